"""A review that is killed anywhere and resumed ends as if undisturbed."""

# mypy: disable-error-code="arg-type,call-arg,call-overload,dict-item,assignment,comparison-overlap"

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitckpt import AgentFailed, PhaseOptions, Progress, Run, Store
from gitckpt.durable.phases.review.cycle import GitCommits, ReviewRunner, ReviewVerdict
from gitckpt.durable.phases.review.state import KEY, ReviewState, make_finding_id
from tests.conftest import Checkout
from tests.durable.conftest import Killed, die, go_on, labels
from tests.durable.phases.review.acting import APPROVED, REJECTED, Actor, Bench, Memory, Turn

ONE, TWO = make_finding_id("major", "no test"), make_finding_id("major", "no docs")
LINT = "cat work; ! grep -q ugly work"
FILTERS = {"style": "true", "vet": "cat work; ! grep -q broken work"}

CODER = (
    Turn("First try.", {"work": "ugly and broken\n"}, session="c-1"),
    Turn("Prettier.", {"work": "broken\n"}),
    Turn("Second try.", {"work": "no test, no docs\n"}),
    Turn("For mail.", {"work": "mail, tested\n", "test": "ok\n"}, session="c-2"),
    Turn("Documented.", {"work": "mail, tested, documented\n"}),
)
REVIEWER = (
    Turn(f"{REJECTED.format('no test')}\n\n{REJECTED.format('no docs')}"),
    Turn(
        f"VERIFICATION:\nFINDING_ID: {ONE}\nSTATUS: fixed\n\nVERIFICATION:\nFINDING_ID: "
        f"{TWO}\nSTATUS: still_present"
    ),
    Turn(f"VERIFICATION:\nFINDING_ID: {TWO}\nSTATUS: fixed\n\n{APPROVED}"),
)
OPTIONS = {"lint": LINT, "filters": FILTERS, "max_cycles": 4, "max_budget_usd": 100.0}
CALLS = len(CODER) + len(REVIEWER)


def made(checkout: Checkout) -> Bench:
    bench = Bench(checkout, Actor(checkout, *CODER), Actor(checkout, *REVIEWER), **OPTIONS)
    bench.tasks = [None, "Add a login by mail"]
    return bench


def changing_task(bench: Bench) -> Callable[[], str | None]:
    """Return a check that reports a changed task from cycle 2 on."""
    return lambda: "Add a login by mail" if bench.journal.state[KEY]["cycle"] >= 2 else None


def go(bench: Bench, journal: Memory) -> ReviewVerdict:
    bench.journal = journal
    commits = GitCommits(os.fspath(bench.checkout.path))
    how = {
        "tell": bench.said.append,
        "shell": bench.shell,
        "refactor": changing_task(bench),
        "clock": lambda: 1_800_000_000_000_000,
    }
    return ReviewRunner(
        journal, bench.coder, bench.reviewer, commits, bench.options, **how
    ).run_cycles()


@pytest.fixture
def copies(main_checkout: Checkout, tmp_path: Path) -> Callable[[], Checkout]:
    """Copy one repository, so that all commits of the copies are equal."""
    made = 0

    def copy_of() -> Checkout:
        nonlocal made
        made += 1
        return Checkout(
            Path(shutil.copytree(main_checkout.path, tmp_path / f"copy {made}", symlinks=True))
        )

    return copy_of


def story(bench: Bench) -> list[tuple[str, str]]:
    """Return subject and tree of each commit."""
    return [
        (line[:40], line[41:])
        for line in bench.checkout.git("log", "--reverse", "--format=%T %s").splitlines()
    ]


def undisturbed(checkout: Checkout) -> tuple[Bench, ReviewVerdict]:
    bench = made(checkout)
    return bench, go(bench, Memory())


def test_the_undisturbed_one_passes_through_everything(main_checkout: Checkout) -> None:
    bench, result = undisturbed(main_checkout)
    assert (result.approved, result.cycles, result.total_cost_usd) == (True, 4, 0.25 * CALLS)
    assert bench.journal.messages == [
        "cycle 0: bead_created",
        *(
            f"cycle 1: {phase}"
            for phase in (
                "coding",
                "code_complete",
                "linting",
                "linting",
                "linting",
                "filtering",
                "resolving_issues",
            )
        ),
        *(
            f"cycle {cycle}: {phase}"
            for cycle in (2, 3, 4)
            for phase in (
                "coding",
                "code_complete",
                "linting",
                "filtering",
                "reviewing",
                "review_complete",
                END[cycle],
            )
        ),
    ]
    assert [subject for _, subject in story(bench)] == [
        "first",
        "t-1/cycle-1: Add a login",
        "t-1/cycle-1: Add a login (lint fix)",
        "t-1/cycle-2: Add a login",
        "t-1/cycle-3: Add a login by mail",
        "t-1/cycle-4: Add a login by mail",
    ]


END = {2: "resolving_issues", 3: "resolving_issues", 4: "approved"}
MILESTONES = 29


class Keeping(Memory):
    """A journal that also keeps the worktree and the prompts of each milestone."""

    def __init__(self, bench: Bench, directory: Path) -> None:
        super().__init__()
        self.kept: list[tuple[Path, list[str], list[str]]] = []
        self._bench = bench
        self._directory = directory

    def milestone(self, **said: Any) -> None:
        super().milestone(**said)
        path = self._directory / f"after {len(self.recorded)}"
        shutil.copytree(self._bench.checkout.path, path, symlinks=True)
        self.kept.append(
            (path, list(self._bench.coder.prompts), list(self._bench.reviewer.prompts))
        )


@pytest.mark.long
@pytest.mark.parametrize("share", range(3))
def test_killed_after_each_transition(main_checkout: Checkout, tmp_path: Path, share: int) -> None:
    """A resumed review does not repeat a call whose answer is recorded."""
    bench = made(main_checkout)
    journal = Keeping(bench, tmp_path)
    result = go(bench, journal)
    assert len(journal.recorded) == MILESTONES
    for number, (path, *asked) in list(enumerate(journal.kept, 1))[share::3]:
        other = made(Checkout(path))
        other.coder.prompts, other.reviewer.prompts = map(list, asked)
        assert go(other, Memory(journal.recorded[number - 1])) == result, number
        assert other.journal.recorded == journal.recorded[number:], number
        assert story(other) == story(bench), number
        assert len(other.coder.calls) + len(other.reviewer.calls) == CALLS - sum(map(len, asked)), (
            number
        )


@pytest.mark.long
@pytest.mark.parametrize("role", ["coder", "reviewer"])
def test_killed_in_the_middle_of_each_call(copies: Callable[[], Checkout], role: str) -> None:
    """The review repeats only the call that was cut off, with the same prompt."""
    bench, result = undisturbed(copies())
    for number in range(1, len(CODER if role == "coder" else REVIEWER) + 1):
        other = made(copies())
        actor: Actor = getattr(other, role)
        actor.dies_in = number
        with pytest.raises(Killed):
            go(other, Memory())
        assert go(other, Memory(other.journal.recorded[-1])) == result, number
        assert other.journal.recorded[-1] == bench.journal.recorded[-1], number
        assert story(other) == story(bench), number
        assert actor.calls[number - 1] == actor.calls[number], number
        assert len(actor.calls) == len(getattr(bench, role).calls) + 1


@pytest.mark.long
def test_killed_again_and_again(copies: Callable[[], Checkout]) -> None:
    bench, result = undisturbed(copies())
    other = made(copies())
    journal = Memory(dies_after=1)
    for _ in range(MILESTONES - 1):
        with pytest.raises(Killed):
            go(other, journal)
        journal = Memory(other.journal.recorded[-1], dies_after=1)
    journal.dies_after = 0
    assert go(other, journal) == result
    assert journal.recorded[-1] == bench.journal.recorded[-1]
    assert story(other) == story(bench)


@pytest.mark.long
def test_killed_after_an_error(copies: Callable[[], Checkout]) -> None:
    """The milestone of an agent's error resumes at the step that failed."""
    bench, _ = undisturbed(copies())
    for role, number in [
        *(("coder", at) for at in range(5)),
        *(("reviewer", at) for at in range(3)),
    ]:
        other = made(copies())
        actor: Actor = getattr(other, role)
        turns = actor.turns
        actor.turns = tuple(
            replace(turn, ok=False) if at == number else turn for at, turn in enumerate(turns)
        )
        with pytest.raises(AgentFailed):
            go(other, Memory())
        assert other.journal.messages[-1] == f"cycle {other.journal.cycle.cycle}: error"
        actor.turns = turns
        again = go(other, Memory(other.journal.recorded[-1]))
        final, expected = other.journal.cycle, bench.journal.cycle
        assert final == replace(expected, total_cost_usd=expected.total_cost_usd + 0.25), (
            role,
            number,
        )
        assert again.total_cost_usd == 0.25 * (CALLS + 1)
        assert story(other) == story(bench)


class Recorder:
    """A run as a journal; its driver is killed after a milestone."""

    def __init__(self, run: Run, dies_after: int = 0) -> None:
        self._run = run
        self.id = run.id
        self.state = run.state
        self.left = dies_after

    def milestone(
        self,
        *,
        trigger: str = "review",
        message: str | None = None,
        progress: Progress | None = None,
        errors: object = (),
    ) -> None:
        self._run.milestone(trigger=trigger, message=message, progress=progress)
        self.left -= 1
        if self.left == 0:
            raise Killed

    def check(self) -> None:
        self._run.check()


RESET = PhaseOptions(on_resume="reset", autosave=0)


def work_of(run: Run, bench: Bench, dies_after: int = 0) -> Callable[[], str]:
    """Return the work of the phase `review`."""

    def work() -> str:
        checkout = Checkout(Path(run.path), bench.checkout.main)
        bench.coder.checkout = bench.reviewer.checkout = bench.checkout = checkout
        journal = Recorder(run, dies_after)
        commits = GitCommits(run.path)
        bench.journal = journal
        how = {
            "tell": bench.said.append,
            "shell": bench.shell,
            "refactor": changing_task(bench),
            "clock": lambda: 1_800_000_000_000_000,
        }
        assert (
            ReviewRunner(journal, bench.coder, bench.reviewer, commits, bench.options, **how)
            .run_cycles()
            .approved
        )
        return checkout.git("rev-parse", "HEAD")

    return work


def goes_on_to_the_same_end(store: Store, run: Run, bench: Bench, copy_of: Checkout) -> None:
    """Let another driver finish a run whose driver was killed."""
    expected, _ = undisturbed(copy_of)
    with go_on(store, run.id) as again:
        head = again.phase("review", work_of(again, bench), conduct=RESET)
        assert ReviewState.from_state_table(again.state[KEY]) == expected.journal.cycle
    assert head == copy_of.git("rev-parse", "HEAD")
    assert labels(store, run.id).count("review-progress") == MILESTONES


@pytest.mark.long(but=["14"])
@pytest.mark.parametrize("number", [3, 14])
def test_a_run_whose_driver_is_killed_after_a_milestone(
    make_store: Callable[[Checkout], Store], copies: Callable[[], Checkout], number: int
) -> None:
    """Files, commits and state return together to the newest milestone."""
    checkout = copies()
    store, bench = make_store(checkout), made(checkout)
    run = Run.start(store, "Add login!", adapter="plumbing")
    die(run, "review", work_of(run, bench, number), RESET)
    goes_on_to_the_same_end(store, run, bench, copies())
    assert len(bench.coder.calls) + len(bench.reviewer.calls) == CALLS


@pytest.mark.long
@pytest.mark.parametrize(("role", "number"), [("coder", 2), ("coder", 3), ("reviewer", 2)])
def test_a_run_whose_driver_is_killed_while_an_agent_works(
    make_store: Callable[[Checkout], Store], copies: Callable[[], Checkout], role: str, number: int
) -> None:
    checkout = copies()
    store, bench = make_store(checkout), made(checkout)
    getattr(bench, role).dies_in = number
    run = Run.start(store, "Add login!", adapter="plumbing")
    die(run, "review", work_of(run, bench), RESET)
    goes_on_to_the_same_end(store, run, bench, copies())
    assert len(bench.coder.calls) + len(bench.reviewer.calls) == CALLS + 1
