"""One transaction records the end of a phase and the start of the next.

An interruption between the two loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import CkptError, Observer, PhaseOptions, Pipelines, Query, Run, Store
from gitckpt.durable.run.attempts import PhaseResult, RunSession
from gitckpt.durable.run.run import session_of
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.durable.conftest import labels
from tests.dying import DyingGit

THREE = [
    "run-started",
    "one-started",
    "one-complete",
    "two-started",
    "two-complete",
    "three-started",
    "three-complete",
    "run-complete",
]


@pytest.fixture
def checkout(checkout: Checkout) -> Checkout:
    phases = "".join(
        f'    {{ name = "{name}", run = "echo {name} >{name}" }},\n'
        for name in ("one", "two", "three")
    )
    checkout.write("gitckpt.toml", f"[pipelines.ci]\nphases = [\n{phases}]\n")
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message", "pipeline")
    return checkout


class Witness(Observer):
    """Read the records at each event of a driver."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.run = ""
        self.saw: list[tuple[str, str]] = []

    def started(self, run: str) -> None:
        self.run = run

    def begins(self, phase: str, attempt: int, number: int, total: int) -> None:
        self.saw.append((f"begins {phase}", labels(self._store, self.run)[-1]))

    def ended(self, phase: str, status: str, seconds: float | None) -> None:
        self.saw.append((f"{status} {phase}", " ".join(labels(self._store, self.run)[-2:])))


def write(run: Run, name: str) -> int:
    """Change a file of a run's worktree."""
    return (Path(run.path) / name).write_text(name)


def watch(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[list[str]], None] = lambda _: None
) -> list[list[str]]:
    """Return the labels of the checkpoints of each transaction from now on.

    `act` is called after each transaction.
    """
    update = Refs.apply_updates
    seen: list[list[str]] = []

    def noted(
        self: Refs, updates: list[RefUpdate], meanwhile: Callable[[], None] | None = None
    ) -> None:
        update(self, updates, meanwhile)
        made = [each.ref for each in updates if each.ref.startswith("refs/checkpoints/")]
        if made:
            seen.append(made)
            act(made)

    monkeypatch.setattr(Refs, "apply_updates", noted)
    return seen


@pytest.mark.long
def test_two_checkpoints_are_one_transaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch)
    run = Pipelines(store).run("ci").run
    assert [len(made) for made in seen] == [1, 1, 2, 2, 1, 1]
    assert labels(store, run) == THREE
    chain = list(reversed(store.list(Query(run=run))))
    assert [entry.sequence for entry in chain] == list(range(1, 9))
    read = [store.read(entry.id) for entry in chain]
    assert [each.parent for each in read] == [None, *(each.id for each in read[:-1])]
    assert [
        sorted((each.pipeline.completed if each.pipeline else {}).items()) for each in read[2:5]
    ] == [
        [("one", chain[2].id)],
        [("one", chain[2].id)],
        [("one", chain[2].id), ("two", chain[4].id)],
    ]
    assert read[3].tree == read[2].tree != read[1].tree
    assert [entry.id for entry in store.links("HEAD")] == [
        entry.id for entry in store.list(Query(run=run))
    ]
    assert store.verify().findings == []


@pytest.mark.long
def test_nobody_is_told_of_an_end_that_is_not_recorded(store: Store) -> None:
    witness = Witness(store)
    Pipelines(store, witness).run("ci")
    assert witness.saw == [
        ("begins one", "one-started"),
        ("complete one", "one-complete two-started"),
        ("begins two", "two-started"),
        ("complete two", "two-complete three-started"),
        ("begins three", "three-started"),
        ("complete three", "three-started three-complete"),
    ]


@pytest.mark.long
@pytest.mark.sampled(9)
@pytest.mark.parametrize("done", range(9))
def test_a_git_that_is_killed_leaves_nothing_undone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    git = DyingGit(tmp_path / "dying", monkeypatch)
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        session_of(run).perform_phase(
            "one",
            lambda _: PhaseResult(write(run, "one")),
            inputs={},
            conduct=PhaseOptions(),
            followed=True,
        )
        assert labels(store, run.id) == ["run-started", "one-started"]
        checkpoints_of_store(run.store).refs.close()
        git.die_after(done)
        session_of(run).perform_phase(
            "two", lambda _: PhaseResult(write(run, "two")), inputs={}, conduct=PhaseOptions()
        )
        assert git.has_died
    assert labels(store, run.id) == [*THREE[:5], "run-complete"]
    assert [entry.sequence for entry in store.list(Query(run=run.id))] == list(range(6, 0, -1))
    assert store.verify().findings == []


def test_one_whose_successor_never_comes_is_recorded_at_the_end(store: Store) -> None:
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        session_of(run).perform_phase(
            "one", lambda _: PhaseResult(), inputs={}, conduct=PhaseOptions(), followed=True
        )
        run.pause()
    assert labels(store, run.id) == THREE[:3]


def test_an_error_that_comes_after_both_were_written_writes_neither_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[list[str]] = []

    def fail(made: list[str]) -> None:
        if len(made) == 2 and not failed:
            failed.append(made)
            raise CkptError("git ended unexpectedly")

    watch(monkeypatch, fail)
    run = Pipelines(store).run("ci").run
    assert len(failed) == 1
    assert labels(store, run) == THREE
    assert [entry.sequence for entry in store.list(Query(run=run))] == list(range(8, 0, -1))


@pytest.mark.long
@pytest.mark.parametrize("error", [KeyboardInterrupt(), CkptError("the disk is ill")])
def test_what_ends_the_run_between_two_phases_finds_the_first_one_complete(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """`cancel` or Ctrl-C may come before the next start is recorded."""
    check = RunSession.check

    def fail(session: RunSession) -> None:
        if (
            session.last_attempt is not None
            and session.last_attempt.phase == "one"
            and session.last_attempt.ended
        ):
            patch.undo()
            raise error
        check(session)

    witness = Witness(store)
    with monkeypatch.context() as patch:
        patch.setattr(RunSession, "check", fail)
        with pytest.raises(type(error)):
            Pipelines(store, witness).run("ci")
    assert witness.saw[-1] == ("complete one", "one-started one-complete")
    assert labels(store, witness.run) == THREE[:3]
    assert Pipelines(store).resume(witness.run).status == "complete"
    assert labels(store, witness.run) == THREE


def test_a_phase_that_leaves_what_cannot_be_stored_has_failed(
    store: Store, checkout: Checkout
) -> None:
    deep = "[" * 400 + "]" * 400
    checkout.write("deep.json", f'{{"x": {deep}}}')
    text = (checkout.path / "gitckpt.toml").read_text()
    checkout.write("gitckpt.toml", text.replace("echo one >one", "cp deep.json $CKPT_STATE"))
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message", "deep")
    witness = Witness(store)
    with pytest.raises(CkptError):
        Pipelines(store, witness).run("ci")
    assert labels(store, witness.run) == ["run-started", "one-started", "one-failed"]
