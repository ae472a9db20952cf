"""Reports find their run, are visible at once, and survive concurrent writers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import (
    AmbiguousError,
    LeaseLost,
    NotFoundError,
    OutOfOrder,
    Pipeline,
    Progress,
    Query,
    Run,
    StateError,
    StepsBlocked,
    Store,
    UsageError,
)
from gitckpt.durable.run.opener import begin_run
from gitckpt.durable.steps import journal, machine
from gitckpt.store.records import ref_names
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.durable.conftest import crash, labels
from tests.durable.steps.stepper import report
from tests.stores import head_of

REPORTER = Path(__file__).with_name("reporter.py")
ROOT = Path(__file__).parents[3]


def reporter(checkout: Checkout, run: str, worker: int, count: int) -> subprocess.Popen[str]:
    """Start a process that makes a number of reports."""
    return subprocess.Popen(
        [sys.executable, str(REPORTER), str(checkout.path), run, str(worker), str(count)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def require_all(store: Store, run: str, reported: list[str]) -> None:
    """Assert that each report is one checkpoint in one chain without gaps.

    Each report must add to the state before it.
    """
    chain = [store.read(entry.id) for entry in reversed(store.list(Query(run=run)))]
    assert [each.sequence for each in chain] == list(range(1, len(chain) + 1))
    assert [each.parent for each in chain] == [None, *(each.id for each in chain[:-1])]
    made = [each for each in chain if each.label == "EXECUTE-progress"]
    assert set(reported) <= {each.id for each in made}
    record = head_of(store, run).state["loop_state"]["checkpoints"]["EXECUTE"]
    assert record["output_files"] == [each.message for each in made]
    newest = {str(each.message).partition("/")[0]: each.message for each in made}
    assert {name: task["notes"] for name, task in record["tasks"].items()} == {
        f"1.{worker}": notes for worker, notes in newest.items()
    }
    assert (record["progress"]["tasks_completed"], record["progress"]["tasks_total"]) == (
        0,
        len(newest),
    )


@pytest.fixture
def run(plain: Store) -> str:
    """A run that is at EXECUTE."""
    return str(report(plain, None, "start", "EXECUTE", track="t", force=True).run)


class TestMany:
    @pytest.mark.long
    def test_s02_16_processes_report_50_times_each(
        self, main_checkout: Checkout, plain: Store, run: str
    ) -> None:
        workers = [reporter(main_checkout, run, number, 50) for number in range(16)]
        said = [worker.communicate()[0].splitlines() for worker in workers]
        assert [worker.returncode for worker in workers] == [0] * 16
        assert [len(lines) for lines in said] == [50] * 16
        require_all(plain, run, [line for lines in said for line in lines])
        assert len(plain.list(Query(run=run))) == 801

    @pytest.mark.long
    def test_some_are_killed_in_between(
        self, main_checkout: Checkout, plain: Store, run: str
    ) -> None:
        workers = [
            reporter(main_checkout, run, number, 1000 if number % 2 else 12) for number in range(6)
        ]
        said: list[list[str]] = []
        for worker in workers[1::2]:
            assert worker.stdout is not None
            lines = [worker.stdout.readline().strip() for _ in range(3)]
            worker.send_signal(signal.SIGKILL)
            said.append([*lines, *worker.communicate()[0].splitlines()])
        said += [worker.communicate()[0].splitlines() for worker in workers[::2]]
        assert [worker.returncode for worker in workers] == [0, -signal.SIGKILL] * 3
        assert [len(lines) for lines in said[3:]] == [12] * 3
        require_all(plain, run, [line for lines in said for line in lines])

    @pytest.mark.long
    def test_two_that_begin_a_track_at_once_report_to_one_run(
        self, main_checkout: Checkout, plain: Store
    ) -> None:
        script = (
            "import sys; from gitckpt.durable.steps import journal; "
            "from gitckpt.durable.steps.report import StepReport;"
            "from gitckpt.git.repository import open_repository; "
            "from gitckpt.store.checkpoints import Checkpoints;"
            "store = Checkpoints(open_repository('.'), 'plumbing');"
            "where = journal.find_report_target(store, track='t'); sys.stdin.read();"
            "print(journal.record_report(store, where, StepReport('progress', 'PLAN', "
            "notes=sys.argv[1])).is_new)"
        )
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", script, str(number)],
                cwd=main_checkout.path,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(4)
        ]
        assert sorted(racer.communicate()[0] for racer in racers) == ["False\n"] * 3 + ["True\n"]
        (run,) = [summary.run for summary in plain.runs()]
        assert sorted(str(entry.message) for entry in plain.list(Query(run=run))) == [
            "0",
            "1",
            "2",
            "3",
        ]


class TestChange:
    """`Store.record(change=…)`, on which the reports are built."""

    def test_it_is_called_with_the_state_of_the_head_and_again_when_others_were_faster(
        self,
        make_store: Callable[..., Store],
        main_checkout: Checkout,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(
            ref_names, "PATIENCE", 0.0
        )  # the other store continues without the lock
        one, other = make_store(main_checkout), make_store(main_checkout)
        run = one.record("a-started", {"n": 1}, start="r").run
        seen = []

        def change(state: dict[str, Any]) -> dict[str, Any]:
            seen.append(state)
            if len(seen) == 1:
                other.record("b-complete", {"n": 5}, run=run)
            return {"n": state["n"] + 1}

        made = checkpoints_of_store(one).record(
            "c-complete",
            change=change,
            progress_of=lambda state: Progress(tasks_completed=state["n"]),
            run=run,
        )
        assert seen == [{"n": 1}, {"n": 5}]
        assert (made.state, made.progress, made.sequence) == (
            {"n": 6},
            Progress(tasks_completed=6),
            3,
        )
        assert one.read(made.id) == made

    def test_it_begins_with_nothing_where_the_run_starts_and_outside_of_a_run(
        self, plain: Store
    ) -> None:
        def change(state: dict[str, Any]) -> dict[str, Any]:
            return {**state, "n": 1}

        for made in (
            checkpoints_of_store(plain).record("a-complete", change=change, start="r"),
            checkpoints_of_store(plain).record("a-complete", change=change),
        ):
            assert plain.read(made.id) == made
            assert made.state == {"n": 1}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"change": {}}, "change: must be a function, not {}"),
            ({"keeps": "abc"}, "keeps: must be a list of strings, not 'abc'"),
            ({"change": dict, "state": {}}, "change and state exclude each other"),
            ({"progress_of": len, "state": {}}, "progress_of needs the state that change returns"),
        ],
    )
    def test_arguments_that_are_refused(
        self, main_checkout: Checkout, plain: Store, arguments: dict[str, Any], message: str
    ) -> None:
        before = main_checkout.fingerprint()
        with pytest.raises(UsageError) as caught:
            checkpoints_of_store(plain).record("a-complete", **arguments)
        assert caught.value.message == message
        assert main_checkout.fingerprint() == before

    def test_what_it_raises_refuses_the_checkpoint(
        self, main_checkout: Checkout, plain: Store
    ) -> None:
        run = plain.record("a-started", {"n": 1}, start="r").run
        before = main_checkout.fingerprint()

        def refuse(state: dict[str, Any]) -> dict[str, Any]:
            raise UsageError("no")

        with pytest.raises(UsageError, match="no"):
            checkpoints_of_store(plain).record("b-complete", change=refuse, run=run)
        with pytest.raises(
            UsageError, match="tasks_total: must be a whole number from 0 on, not -1"
        ):
            checkpoints_of_store(plain).record(
                "b-complete", change=dict, progress_of=lambda _: Progress(tasks_total=-1), run=run
            )
        with pytest.raises(StateError, match="/x"):
            checkpoints_of_store(plain).record("b-complete", change=lambda _: {"x": {1}}, run=run)
        assert main_checkout.fingerprint() == before

    def test_a_writer_with_a_state_of_its_own_keeps_what_others_have_reported(
        self, make_store: Callable[..., Store], main_checkout: Checkout
    ) -> None:
        driver, other = make_store(main_checkout), make_store(main_checkout)
        run = driver.record("a-started", {"mine": 1, "loop": 1}, start="r").run
        assert checkpoints_of_store(driver).record(
            "a-progress", {"mine": 2, "loop": 2}, run=run, keeps=["loop"]
        ).state == {"mine": 2, "loop": 2}
        checkpoints_of_store(other).record(
            "S-started", change=lambda state: {**state, "mine": 0, "loop": 3}, run=run
        )
        made = checkpoints_of_store(driver).record(
            "a-complete", {"mine": 4}, run=run, keeps=["loop", "none"]
        )
        assert made.state == {"mine": 4, "loop": 3}
        assert driver.read(made.id) == made
        checkpoints_of_store(other).record(
            "S-complete", change=lambda state: {**state, "loop": 5}, run=run
        )
        assert driver.record("b-complete", {"mine": 6, "loop": 6}, run=run).state == {
            "mine": 6,
            "loop": 6,
        }
        checkpoints_of_store(other).record(
            "S-complete", change=lambda state: {**state, "loop": 7}, run=run
        )
        back = checkpoints_of_store(driver).record(
            "rewind-complete", {"loop": 1}, run=run, keeps=["loop"], rewound_to=made.id
        )
        assert back.state == {"loop": 1}

    def test_with_files(self, main_checkout: Checkout, plain: Store) -> None:
        main_checkout.write("README", "changed\n")
        made = checkpoints_of_store(plain).save(
            "a-complete", change=lambda state: {**state, "n": 1}, start="r"
        )
        assert plain.read(made.id) == made
        assert made.worktree is not None
        assert (made.state, made.worktree.dirty, made.sequence) == ({"n": 1}, True, 1)

    def test_the_tables_of_its_document_have_their_usual_order(self, plain: Store) -> None:
        run = begin_run(
            checkpoints_of_store(plain), "r", state={}, pipeline=Pipeline(name="ci")
        ).run
        made = checkpoints_of_store(plain).record(
            "a-complete", change=dict, progress_of=lambda _: Progress(tasks_total=1), run=run
        )
        headings = [
            line for line in plain.raw(made.id).decode().splitlines() if line.startswith("[")
        ]
        assert headings == ["[progress]", "[pipeline]", "[pipeline.completed]", "[state]"]


class TestWhichRun:
    def test_the_one_that_is_named_goes_before_the_environment_the_worktree_and_the_track(
        self, store: Store
    ) -> None:
        runs = [
            str(begin_run(checkpoints_of_store(store), name, state={}, pipeline=Pipeline()).run)
            for name in ("a", "b", "c")
        ]
        opened = store.resume(head_of(store, runs[2]))
        with Store.open(opened.path, adapter="plumbing") as within:
            env = {"CKPT_RUN": runs[1]}
            place = journal.find_report_target
            assert (
                place(checkpoints_of_store(within), run=runs[0], track="t", environ=env).run
                == runs[0]
            )
            assert place(checkpoints_of_store(within), track="t", environ=env).run == runs[1]
            assert place(checkpoints_of_store(within), track="t", environ={}).run == runs[2]
            assert place(
                checkpoints_of_store(store), track="t", environ={}
            ) == journal.ReportTarget(None, "t", by_track=True)

    def test_a_prefix_will_do_where_it_is_one_of_one_run(self, plain: Store) -> None:
        run = str(begin_run(checkpoints_of_store(plain), "a", state={}, pipeline=Pipeline()).run)
        assert (
            journal.find_report_target(checkpoints_of_store(plain), run=run[:-1], environ={}).run
            == run
        )
        begin_run(checkpoints_of_store(plain), "ab", state={}, pipeline=Pipeline())
        with pytest.raises(AmbiguousError):
            journal.find_report_target(checkpoints_of_store(plain), run=run[:8], environ={})
        with pytest.raises(NotFoundError):
            journal.find_report_target(checkpoints_of_store(plain), run="2026", environ={})

    def test_none_said(self, plain: Store) -> None:
        with pytest.raises(UsageError, match="no run is named"):
            journal.find_report_target(checkpoints_of_store(plain), environ={})

    def test_tracks_with_one_slug_are_two_runs(self, plain: Store) -> None:
        one = report(plain, None, "start", "PLAN", track="add login")
        other = report(plain, None, "start", "PLAN", track="add-login")
        assert one.run != other.run
        assert report(plain, None, "pass", "PLAN", track="add login").run == one.run
        assert report(plain, None, "pass", "PLAN", track="add-login").run == other.run
        assert head_of(plain, str(one.run)).state["track_id"] == "add login"

    def test_a_track_that_is_complete_begins_again_with_a_start_and_not_otherwise(
        self, plain: Store
    ) -> None:
        first = report(plain, None, "start", "PLAN", track="t")
        report(plain, None, "pass", "COMPLETE", track="t", force=True)
        with pytest.raises(OutOfOrder, match="the run is complete, so not at EXECUTE"):
            report(plain, None, "progress", "EXECUTE", track="t")
        again = report(plain, None, "start", "PLAN", track="t")
        assert again.run != first.run
        assert again.sequence == 1

    @pytest.mark.parametrize("track", ["", " ", "a\nb", "\x1b[31m"])
    def test_a_track_is_one_line(self, plain: Store, track: str) -> None:
        with pytest.raises(UsageError, match="is not a track name"):
            journal.find_report_target(checkpoints_of_store(plain), track=track, environ={})


class TestFromWhere:
    def test_a_run_without_a_worktree_is_linked_to_the_commit_one_is_on(
        self, checkout: Checkout, store: Store
    ) -> None:
        first = report(store, None, "start", "PLAN", track="t")
        commit = checkout.commit("more")
        second = report(store, None, "pass", "PLAN", track="t", files=True)
        assert (first.worktree, second.git_sha) == (None, commit)
        assert second.worktree is not None
        assert second.trigger == "step"

    def test_a_run_with_a_worktree_is_seen_from_there(
        self, main_checkout: Checkout, plain: Store
    ) -> None:
        run = str(begin_run(checkpoints_of_store(plain), "r", state={}, pipeline=Pipeline()).run)
        within = Checkout(Path(plain.resume(head_of(plain, run)).path))
        commit = within.commit("within")
        main_checkout.commit("elsewhere")
        within.write("new", "not committed\n")
        made = report(plain, run, "start", "PLAN", files=True)
        assert made.git_sha == commit
        assert made.worktree is not None
        tree = made.worktree.tree
        assert (
            main_checkout.git("ls-tree", "-r", "--name-only", f"{tree}:files").splitlines()[-1]
            == "new"
        )

    def test_a_worktree_that_is_gone_will_be_what_it_was(
        self, main_checkout: Checkout, plain: Store
    ) -> None:
        run = str(begin_run(checkpoints_of_store(plain), "r", state={}, pipeline=Pipeline()).run)
        commit = head_of(plain, run).git_sha
        main_checkout.commit("elsewhere")
        made = report(plain, run, "start", "PLAN")
        assert (made.git_sha, made.branch) == (commit, None)
        with pytest.raises(UsageError, match=f"the worktree of run {run} is gone"):
            report(plain, run, "pass", "PLAN", files=True)

    def test_an_unborn_branch(
        self, make_checkout: Callable[..., Checkout], make_store: Callable[..., Store]
    ) -> None:
        made = report(make_store(make_checkout()), None, "start", "PLAN", track="t")
        assert (made.git_sha, made.label) == ("", "PLAN-started")


class TestDrivenRuns:
    def test_steps_are_no_phases_of_the_pipeline(self, plain: Store) -> None:
        pipeline = Pipeline(name="ci", phases=("PLAN", "b"))
        run = str(begin_run(checkpoints_of_store(plain), "r", state={}, pipeline=pipeline).run)
        made = report(plain, run, "pass", "PLAN")
        assert made.pipeline is not None
        assert made.pipeline.completed == {}
        assert labels(plain, run) == ["run-started", "PLAN-complete"]

    def test_a_process_of_a_driver_that_was_taken_over_is_refused(
        self, plain: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver = Run.start(plain, "r", adapter="plumbing")
        run = driver.id
        monkeypatch.setenv("CKPT_RUN", run)
        monkeypatch.setenv("CKPT_LEASE", "1")
        report(plain, run, "start", "PLAN")
        crash(driver)
        with Run.resume(plain, run, adapter="plumbing") as second:
            with pytest.raises(LeaseLost):
                report(plain, run, "pass", "PLAN")
            monkeypatch.setenv("CKPT_LEASE", "2")
            report(plain, run, "pass", "PLAN")
            monkeypatch.delenv("CKPT_LEASE")
            report(plain, run, "pass", "EVALUATE_PLAN")
            second.pause()
        assert [event.step for event in journal.read_history(checkpoints_of_store(plain), run)] == [
            "PLAN",
            "PLAN",
            "EVALUATE_PLAN",
        ]


class TestStates:
    def test_keys_of_others_stay_as_they_are(self, plain: Store) -> None:
        theirs = {
            "version": 3,
            "track_id": "t",
            "created_at": "2026-02-13",
            "goal": None,
            "loop_state": {
                "current_step": "EVAL_PLAN",
                "step_status": "in progress",
                "complexity": 2**70,
                "checkpoints": {"ENRICH": {"artifacts": [1]}},
            },
            "blockers": [{"id": "x", "status": "done"}, "free text"],
        }
        run = str(plain.record("manual-complete", theirs, start="r").run)
        made = report(plain, run, "pass", "EVALUATE_PLAN", values={"checks": {"scope": True}})
        state = plain.read(made.id).state
        assert {
            key: state[key] for key in ("version", "track_id", "created_at", "goal", "blockers")
        } == {key: theirs[key] for key in ("version", "track_id", "created_at", "goal", "blockers")}
        assert state["loop_state"]["complexity"] == 2**70
        assert state["loop_state"]["checkpoints"]["ENRICH"] == {"artifacts": [1]}
        assert state["loop_state"]["current_step"] == "EXECUTE"

    @pytest.mark.parametrize(
        "state",
        [
            {"loop_state": 5},
            {"loop_state": {"checkpoints": []}},
            {"loop_state": {"checkpoints": {"PLAN": "x"}}},
            {"blockers": {}},
        ],
        ids=["loop_state", "checkpoints", "record", "blockers"],
    )
    def test_what_is_no_state_of_steps_is_refused(
        self, main_checkout: Checkout, plain: Store, state: dict[str, Any]
    ) -> None:
        run = str(plain.record("manual-complete", state, start="r").run)
        before = main_checkout.refs()
        with pytest.raises(UsageError, match=r"in the state of the run is not a (table|list)"):
            report(plain, run, "start", "PLAN")
        assert main_checkout.refs() == before

    def test_a_graph_belongs_to_its_run(self, main_checkout: Checkout, plain: Store) -> None:
        main_checkout.write(
            "gitckpt.toml", '[[steps.two.steps]]\nname = "a"\n[[steps.two.steps]]\nname = "b"\n'
        )
        first = report(plain, None, "start", "a", track="t", graph="two")
        assert next(iter(first.state["loop_state"].items())) == ("graph", "two")
        report(plain, None, "pass", "A", track="t")
        assert (
            machine.find_position(
                journal.find_graph(
                    checkpoints_of_store(plain), head_of(plain, str(first.run)).state
                ),
                first.state,
            ).step
            == "a"
        )
        with pytest.raises(UsageError, match="the run uses the graph two, not superpowers"):
            report(plain, None, "pass", "b", track="t", graph="superpowers")
        assert (
            report(plain, None, "pass", "b", track="t", graph="two").state["loop_state"][
                "current_step"
            ]
            == "COMPLETE"
        )
        with pytest.raises(NotFoundError, match="there are no steps named 'three'"):
            report(plain, None, "start", "a", track="new", graph="three")

    def test_a_refused_report_leaves_nothing(self, main_checkout: Checkout, plain: Store) -> None:
        report(plain, None, "block", "PLAN", track="t", notes="no key")
        before = main_checkout.fingerprint()
        for action, error in (("start", StepsBlocked), ("pass", StepsBlocked), ("fly", UsageError)):
            with pytest.raises(error):
                report(plain, None, action, "PLAN", track="t")
        with pytest.raises(UsageError, match="superpowers has no step 'PLANN'"):
            report(plain, None, "start", "PLANN", track="new")
        assert main_checkout.fingerprint() == before

    def test_a_report_is_what_its_checkpoint_says(self, plain: Store) -> None:
        report(plain, None, "start", "EXECUTE", track="t", force=True, agent="me")
        made = report(
            plain,
            None,
            "fail",
            "EXECUTE",
            track="t",
            notes="it broke\nin two lines",
            task="2.3",
            tasks_total=7,
            current_phase=1,
        )
        assert (made.label, made.message, made.errors, made.agent) == (
            "EXECUTE-failed",
            "it broke in two lines",
            ("it broke\nin two lines",),
            None,
        )
        assert made.progress == Progress(
            current_phase=1, current_task="2.3", tasks_completed=0, tasks_total=7
        )
        assert plain.read(made.id) == made
        reset = report(plain, None, "reset", "EXECUTE", track="t", notes="once more")
        assert (reset.label, reset.message, reset.errors) == (
            "EXECUTE-progress",
            "reset: once more",
            (),
        )
        long = report(plain, None, "progress", "EXECUTE", track="t", notes="x" * 1000)
        assert long.message == "x" * 300 + "…"
        assert long.state["loop_state"]["checkpoints"]["EXECUTE"]["notes"] == "x" * 1000
