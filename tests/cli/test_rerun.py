"""`git ckpt resume RUN --from PHASE` resets a run that no pipeline drives.

Its program, or a person, does the phase again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gitckpt import PhaseBlocked, Run, Store
from tests.cli.test_run import told
from tests.conftest import Checkout
from tests.durable.stage import Stage, normal, stage
from tests.stores import head_of

__all__ = ["stage"]

PHASES = ("one", "two", "three")


def write(directory: str, name: str, done: list[str]) -> str:
    done.append(name)
    Path(directory, name).write_text(f"{name}\n")
    return f"{name} {len(done)}"


def program(
    stage: Stage, run: str | None = None, *, last: Callable[[], Any] | None = None
) -> tuple[str, list[str], list[Any]]:
    """Do the three phases as a user's program would.

    Return the run, the phases whose function was called, and the results.
    """
    done: list[str] = []
    with stage.store() as store:
        opened = (
            Run.start(store, "lib", adapter="plumbing")
            if run is None
            else Run.resume(store, run, adapter="plumbing")
        )
        with opened as driven:
            works: dict[str, Callable[[], Any]] = {
                name: partial(write, driven.path, name, done) for name in PHASES
            }
            if last is not None:
                works["three"] = last
            said = [driven.phase(name, works[name]) for name in PHASES]
        return driven.id, done, said


def complete(stage: Stage, run: str) -> list[str]:
    pipeline = stage.newest(run).pipeline
    return list(pipeline.completed) if pipeline is not None else []


def states(stage: Stage, run: str) -> dict[str, str]:
    return {name: event.status for name, event in stage.events(run).items()}


class TestAProgramsRun:
    @pytest.mark.long
    def test_the_phase_and_those_after_it_are_done_again(self, stage: Stage) -> None:
        run, done, said = program(stage)
        assert (done, said) == (["one", "two", "three"], ["one 1", "two 2", "three 3"])
        before = stage.newest(run)
        assert told(stage.ckpt("resume", run, "--from", "two"), stage) == (
            0,
            "TOP/.ckpt/worktrees/STAMP-lib\n",
            (
                "run STAMP-lib will repeat 'two' and later phases; complete phases: one\n"
                "the run's program repeats the phase when it calls Run.resume(store, RUN)\n"
            ),
        )
        newest = stage.newest(run)
        assert (newest.label, newest.message, newest.rewound_to) == (
            "rewind-complete",
            "redo phase 'two'",
            None,
        )
        assert (newest.state, newest.tree, newest.git_sha) == (
            before.state,
            before.tree,
            before.git_sha,
        )
        assert complete(stage, run) == ["one"]
        assert (stage.status(run), states(stage, run)) == (
            "paused",
            {"one": "complete", "two": "pending", "three": "pending"},
        )
        # Files stay, as in a run that a pipeline drives.
        assert stage.worktree(run).joinpath("three").exists()

        assert program(stage, run) == (run, ["two", "three"], ["one 1", "two 1", "three 2"])
        assert stage.status(run) == "complete"
        attempt = stage.checkpoint(run, "two-complete").attempt
        assert attempt is not None
        assert attempt.number == 2
        assert stage.ckpt("verify").code == 0

    @pytest.mark.long
    def test_from_the_first_one(self, stage: Stage) -> None:
        run, _, _ = program(stage)
        done = stage.ckpt("resume", run, "--from", "one")
        assert (done.code, done.err.splitlines()[0].rpartition("; ")[2]) == (
            0,
            "complete phases: none",
        )
        assert (complete(stage, run), set(states(stage, run).values())) == ([], {"pending"})
        assert stage.ckpt("resume", run, "--from", "one").code == 0  # twice is once
        assert program(stage, run)[1] == ["one", "two", "three"]

    @pytest.mark.long
    def test_in_a_linked_worktree_whose_run_has_lost_its_own(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        run, _, _ = program(stage)
        stage.checkout.git("worktree", "remove", "--force", "--force", str(stage.worktree(run)))
        linked = tmp_path / "linked"
        stage.checkout.git("worktree", "add", "--quiet", "--detach", str(linked))
        before = Checkout(linked).fingerprint()
        kept = ("head", "index", "config")
        done = stage.ckpt(
            "resume", run, "--from", "three", "--into", str(tmp_path / "there"), at=linked
        )
        assert (done.code, done.out) == (0, f"{tmp_path / 'there'}\n")
        assert sorted(path.name for path in (tmp_path / "there").iterdir()) == [
            ".git",
            "README",
            "one",
            "three",
            "two",
        ]
        after = Checkout(linked).fingerprint()
        assert [after[key] for key in kept] == [before[key] for key in kept]
        assert program(stage, run)[1] == ["three"]
        assert not stage.worktree(run).exists()
        within = stage.ckpt("resume", run, "--from", "Two", at=tmp_path / "there")
        assert (within.code, within.out) == (0, f"{tmp_path / 'there'}\n")
        assert complete(stage, run) == ["one"]

    @pytest.mark.long
    def test_a_phase_that_is_blocked_or_failed(self, stage: Stage) -> None:
        def blocked() -> None:
            raise PhaseBlocked("ask Ada")

        with pytest.raises(PhaseBlocked):
            program(stage, last=blocked)
        run = stage.run()
        assert stage.status(run) == "blocked"
        assert stage.ckpt("resume", run, "--from", "three").code == 0
        assert (stage.status(run), complete(stage, run)) == ("paused", ["one", "two"])
        assert program(stage, run)[1] == ["three"]

    @pytest.mark.long
    def test_an_unknown_phase(self, stage: Stage) -> None:
        run, _, _ = program(stage)
        before = stage.newest(run)
        assert told(stage.ckpt("resume", run, "--from", "tow"), stage) == (
            2,
            "",
            (
                "error: run STAMP-lib has no phase 'tow'\n"
                "hint: did you mean two? The phases: one, two, three\n"
            ),
        )
        assert (
            told(stage.ckpt("resume", run, "--from", "deploy"), stage)[2].splitlines()[1]
            == "hint: the phases: one, two, three"
        )
        assert stage.newest(run) == before
        assert stage.status(run) == "complete"

    @pytest.mark.long
    def test_after_it_was_taken_back_and_in_a_fork(self, stage: Stage) -> None:
        run, _, _ = program(stage)
        at = stage.checkpoint(run, "two-complete").id
        assert stage.ckpt("resume", at, "--rewind", "--from", "two").code == 0
        assert (complete(stage, run), stage.worktree(run).joinpath("three").exists()) == (
            ["one"],
            False,
        )
        assert program(stage, run)[1] == ["two", "three"]
        assert stage.ckpt("resume", run, "--fork", "--from", "three").code == 0
        fork = next(each for each in stage.runs() if each != run)
        assert (complete(stage, fork), complete(stage, run)) == (
            ["one", "two"],
            ["one", "two", "three"],
        )
        assert program(stage, fork)[1] == ["three"]

    def test_while_it_is_driven(self, stage: Stage) -> None:
        with stage.store() as store, Run.start(store, "lib", adapter="plumbing") as run:
            run.phase("one", lambda: 1)
            refused = stage.ckpt("resume", run.id, "--from", "one")
            assert (refused.code, refused.out) == (11, "")
            assert list(run.completed) == ["one"]

    @pytest.mark.long
    def test_the_library_records_it_for_whoever_goes_on(self, stage: Stage) -> None:
        run, _, _ = program(stage)
        with stage.store() as store:
            opened = Run.resume(store, run, again=True, adapter="plumbing")
            opened.redo("three", record=True)
            opened.close()
        assert complete(stage, run) == ["one", "two"]
        assert program(stage, run)[1] == ["three"]


class TestOthers:
    @pytest.mark.long
    def test_a_run_by_hand(self, stage: Stage) -> None:
        worktree = Path(stage.ok("start", "login"))
        run = stage.run()
        for label in ("research", "plan", "code-failed"):
            stage.ok("save", "--phase", label, at=worktree)
        assert complete(stage, run) == ["research", "plan"]
        done = stage.ckpt("resume", run, "--from", "plan")
        assert (done.code, len(done.err.splitlines())) == (0, 1)  # no program to go on with
        assert complete(stage, run) == ["research"]
        assert stage.ckpt("resume", run, "--from", "code").code == 0

    def test_a_run_without_phases(self, stage: Stage) -> None:
        stage.ok("start", "login")
        done = stage.ckpt("resume", stage.run(), "--from", "one")
        assert normal(done.err, stage) == (
            "error: run STAMP-login has no phase 'one'\nhint: the run has no phases; omit --from\n"
        )
        assert (done.code, done.out) == (2, "")

    def test_a_run_of_steps_is_told_of_the_reset(self, stage: Stage) -> None:
        worktree = Path(stage.ok("start", "steps"))
        run = stage.run()
        stage.ok("step", "start", "PLAN", "--run", run, at=worktree)
        done = stage.ckpt("resume", run, "--from", "PLAN")
        assert done.code == 2
        assert (
            normal(done.err, stage).splitlines()[1]
            == "hint: repeat a step: git ckpt step reset PLAN --run STAMP-steps"
        )

    @pytest.mark.long
    def test_a_checkpoint_of_no_run_and_a_worktree_alone(self, stage: Stage) -> None:
        id_ = stage.ok("save", "-m", "x")
        done = stage.ckpt("resume", id_, "--from", "one")
        assert (done.code, done.err.splitlines()[0]) == (
            2,
            f"error: checkpoint {id_} belongs to no run, and has no phase to repeat",
        )
        run, _, _ = program(stage)
        both = stage.ckpt("resume", run, "--no-run", "--from", "one")
        assert (both.code, both.err.splitlines()[0]) == (
            2,
            "error: --no-run and --from exclude each other",
        )
        assert stage.status(run) == "complete"

    @pytest.mark.long
    def test_what_others_recorded_wants_trust(self, stage: Stage, tmp_path: Path) -> None:
        run, _, _ = program(stage)
        clone = Checkout(tmp_path / "clone")
        stage.checkout.git("clone", "--quiet", str(stage.checkout.path), str(clone.path))
        clone.git(
            "fetch",
            "--quiet",
            "origin",
            "refs/ckpt/*:refs/ckpt/*",
            "refs/checkpoints/*:refs/checkpoints/*",
        )
        refused = stage.ckpt("resume", run, "--from", "two", at=clone.path)
        assert (refused.code, refused.out) != (0, "")
        with Store.open(clone.path, adapter="plumbing") as store:
            assert head_of(store, run).label == "run-complete"
        assert stage.ckpt("resume", run, "--from", "two", "--trust", at=clone.path).code == 0
