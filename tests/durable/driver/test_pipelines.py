"""Programs use pipelines, steps and forks through the public names alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import (
    CkptError,
    LeaseHeld,
    NotFoundError,
    Observer,
    OutOfOrder,
    PhaseFailed,
    Pipelines,
    Run,
    StepReport,
    Steps,
    Store,
    UsageError,
)
from tests.conftest import Checkout

FILE = """
[pipelines.ci]
inputs = {{ word = "x" }}
phases = [
    {{ name = "one", run = '''{one}''' }},
    {{ name = "two", run = "echo $CKPT_INPUT_WORD >>two" }},
]
"""


class Told(Observer):
    """Record the events of a driver, and answer when a run pauses."""

    def __init__(self, *answers: tuple[str, str]) -> None:
        self.said: list[object] = []
        self._answers = list(answers)

    def started(self, run: str) -> None:
        self.said.append(run[16:])

    def warn(self, sentence: str) -> None:
        self.said.append(sentence)

    def begins(self, phase: str, attempt: int, number: int, total: int) -> None:
        self.said.append((phase, attempt, number, total))

    def ended(self, phase: str, status: str, seconds: float | None) -> None:
        self.said.append((phase, status))

    def ask(self, phase: str) -> tuple[str, str]:
        return self._answers.pop(0) if self._answers else super().ask(phase)


@pytest.fixture
def define(main_checkout: Checkout) -> Callable[[str], None]:
    def write(one: str) -> None:
        main_checkout.write("gitckpt.toml", FILE.format(one=one))

    return write


class TestARun:
    def test_to_its_end(self, plain: Store, define: Callable[[str], None]) -> None:
        define("true")
        told = Told()
        outcome = Pipelines(plain, told).run("ci", {"word": "hello"}, about="try it")
        assert (
            outcome.status,
            outcome.after,
            outcome.stays,
            outcome.removed,
            outcome.was_complete,
        ) == (
            "complete",
            None,
            None,
            False,
            False,
        )
        assert (Path(str(outcome.path)) / "two").read_text() == "hello\n"
        assert told.said == [
            "try-it",
            ("one", 1, 1, 2),
            ("one", "complete"),
            ("two", 1, 2, 2),
            ("two", "complete"),
        ]
        assert plain.runs()[0].status == "complete"

    @pytest.mark.long
    def test_that_pauses_asks_and_is_left_where_nobody_answers(
        self, plain: Store, define: Callable[[str], None]
    ) -> None:
        define('echo "$CKPT_REVISION." >>one')
        told = Told(("revise", "shorter"), ("restart", ""))
        outcome = Pipelines(plain, told).run("ci", autonomy="checkpoint")
        assert (outcome.status, outcome.after) == ("paused", "one")
        assert (
            Path(str(outcome.path)) / "one"
        ).read_text() == ".\nshorter.\n"  # not twice: the restart removed the second line
        again = Pipelines(plain).resume(
            outcome.run, autonomy="fully_autonomous", inputs={"word": "late"}
        )
        assert (again.status, again.run, (Path(str(again.path)) / "two").read_text()) == (
            "complete",
            outcome.run,
            "late\n",
        )

    @pytest.mark.long
    def test_that_fails_says_how_to_go_on_and_is_gone_on_with(
        self, plain: Store, define: Callable[[str], None], main_checkout: Checkout
    ) -> None:
        define("exit 3")
        with pytest.raises(PhaseFailed) as caught:
            Pipelines(plain).run("ci")
        (info,) = plain.runs()
        run = info.run
        assert caught.value.hint == (
            f"see more: git ckpt status {run}; to continue, edit the files in {info.path}, "
            f"then: git ckpt resume {run}"
        )
        define("true")
        with pytest.raises(CkptError, match="has changed since its start: phase 'one': run"):
            Pipelines(plain).resume(run)
        assert Pipelines(plain).resume(run, accept_changes=True).status == "complete"
        with pytest.raises(UsageError, match="is complete"):
            Pipelines(plain).resume(run)
        assert Pipelines(plain).resume(run, phase="two").status == "complete"
        assert [event.attempts for event in plain.history(run).events] == [2, 2]

    @pytest.mark.long
    def test_that_is_taken_back(self, plain: Store, define: Callable[[str], None]) -> None:
        define("echo 1 >>one")
        outcome = Pipelines(plain).run("ci")
        first = next(entry.id for entry in reversed(plain.list()) if entry.label == "one-complete")
        told = Told()
        back = Pipelines(plain, told).resume(outcome.run, rewind=plain.read(first))
        assert told.said == ["ci", ("two", 2, 2, 2), ("two", "complete")]
        assert (
            (Path(str(back.path)) / "two").read_text(),
            (Path(str(back.path)) / "one").read_text(),
        ) == ("x\n", "1\n")

    @pytest.mark.long
    def test_with_a_key_is_one_run(self, plain: Store, define: Callable[[str], None]) -> None:
        define("[ -e go ]")
        with pytest.raises(PhaseFailed):
            Pipelines(plain).run("ci", key="nightly")
        (run,) = plain.runs()
        (Path(str(run.path)) / "go").touch()
        first, second = (Pipelines(plain).run("ci", key="nightly") for _ in range(2))
        assert (first.run, second.run, first.was_complete, second.was_complete) == (
            run.run,
            run.run,
            False,
            True,
        )
        with pytest.raises(UsageError, match="input 'word'"):
            Pipelines(plain).run("ci", {"word": "other"}, key="nightly")

    def test_that_somebody_drives_is_refused(
        self, plain: Store, define: Callable[[str], None]
    ) -> None:
        define("exit 1")
        with pytest.raises(PhaseFailed):
            Pipelines(plain).run("ci")
        with Run.resume(plain, plain.runs()[0].run) as run, pytest.raises(LeaseHeld):
            Pipelines(plain).resume(run.id)


class TestNothingIsChanged:
    @pytest.mark.parametrize(
        ("name", "inputs", "message"),
        [
            ("none", {}, "there is no pipeline 'none'"),
            ("ci", {"other": "1"}, "the pipeline ci has no input 'other'"),
            ("loop", {"plan": "README"}, "the loop has no end condition"),
            (
                "loop",
                {"plan": "README", "until_tests_pass": "yes", "max_iterations": "many"},
                "max_iterations",
            ),
            ("review", {}, "there is no task"),
            ("review", {"title": "x", "filters": "nonsense"}, "'nonsense' is not a filter"),
        ],
    )
    def test_by_what_cannot_be_run(
        self,
        plain: Store,
        main_checkout: Checkout,
        monkeypatch: pytest.MonkeyPatch,
        define: Callable[[str], None],
        name: str,
        inputs: dict[str, str],
        message: str,
    ) -> None:
        define("true")
        monkeypatch.chdir(main_checkout.path)
        before = main_checkout.fingerprint()
        for call in (Pipelines(plain).preview, Pipelines(plain).run):
            with pytest.raises((NotFoundError, UsageError), match=message):
                call(name, inputs)
        assert main_checkout.fingerprint() == before

    def test_by_a_preview(
        self, plain: Store, main_checkout: Checkout, define: Callable[[str], None]
    ) -> None:
        define("true")
        before = main_checkout.fingerprint()
        preview = Pipelines(plain).preview("ci", {"word": "y"})
        assert [phase.name for phase in preview.definition.phases] == ["one", "two"]
        assert (dict(preview.given.inputs), dict(preview.skipped)) == ({"word": "y"}, {})
        assert Pipelines(plain).names() == ["ci", "plan-to-pr", "rlm-act", "loop", "review"]
        assert main_checkout.fingerprint() == before

    def test_by_going_on_with_what_no_pipeline_drives(self, plain: Store) -> None:
        with Run.start(plain, "by-hand") as run:
            run.pause()
        with pytest.raises(UsageError, match="has no pipeline"):
            Pipelines(plain).resume(run.id)
        with pytest.raises(UsageError, match="is not an open review"):
            Pipelines(plain).refactor(run.id, "another task")


@pytest.mark.long
def test_a_fork_goes_on_from_a_checkpoint_and_leaves_the_run_as_it_is(plain: Store) -> None:
    with Run.start(plain, "first", state={"n": 1}) as run:
        run.phase("one", lambda: (Path(run.path) / "made").write_text("by the first") and None)
        at = run.newest
        run.phase("two", lambda: None)
    before = [entry.id for entry in plain.list() if entry.run == run.id]
    with Run.fork(plain, at.id) as fork:
        assert (fork.id != run.id, fork.id[16:], fork.state, list(fork.completed)) == (
            True,
            "first",
            {"n": 1},
            ["one"],
        )
        assert (Path(fork.path) / "made").read_text() == "by the first"
        assert fork.phase("one", lambda: "again") is None
        assert fork.phase("two", lambda: "other") == "other"
    assert [entry.id for entry in plain.list() if entry.run == run.id] == before
    with Run.fork(plain, at, "renamed") as other:
        assert other.id[16:] == "renamed"


class TestSteps:
    def test_of_a_track(self, plain: Store) -> None:
        steps = Steps(plain, track="search")
        assert steps.run is None
        for call in (steps.newest, steps.graph, steps.show, steps.history, steps.next):
            with pytest.raises(NotFoundError, match="no run has the track search"):
                call()
        first = steps.report(
            StepReport("start", "PLAN", agent="ada"),
            checkpoint_id="11111111-1111-4111-8111-111111111111",
        )
        again = steps.report(
            StepReport("start", "PLAN", agent="ada"),
            checkpoint_id="11111111-1111-4111-8111-111111111111",
        )
        assert (first.is_new, again.is_new, again.checkpoint.id) == (
            True,
            False,
            first.checkpoint.id,
        )
        assert (steps.run, steps.next().step, steps.next().status) == (
            first.checkpoint.run,
            "PLAN",
            "IN_PROGRESS",
        )
        with pytest.raises(OutOfOrder):
            steps.report(StepReport("start", "EXECUTE"))
        assert (
            Steps(plain, run=str(steps.run)).show(with_history=True)["history"][0]["agent"] == "ada"
        )

    def test_what_is_said_is_taken_as_people_say_it(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit = main_checkout.commit("the work")
        (main_checkout.path / "deep").mkdir()
        monkeypatch.chdir(main_checkout.path / "deep")
        steps = Steps(plain, track="search")
        said = StepReport(
            "start",
            "PLAN",
            task="1.1",
            task_status="passed",
            outputs=("made.md", "/elsewhere"),
            commit="HEAD",
        )
        record = steps.report(said).checkpoint.state["loop_state"]["checkpoints"]["PLAN"]
        assert (record["output_files"], record["tasks"]["1.1"]["status"]) == (
            ["deep/made.md", "/elsewhere"],
            "PASSED",
        )
        assert commit in str(record)
        with pytest.raises(NotFoundError):
            steps.report(StepReport("progress", "PLAN", commit="nowhere"))
