"""The state machine of the steps as specified, and the flaws of its predecessors.

The tests use values only.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitckpt import OutOfOrder, StepReport, StepsBlocked, UsageError
from gitckpt.durable.steps import graph_file, machine, report
from gitckpt.durable.steps.report import LABELS
from tests.durable.steps.stepper import Loop, at

THEIRS = {
    "version": 2,
    "track_id": "login_20260213",
    "status": "in_progress",
    "superpower_enhanced": True,
    "lead_consultations": [],
    "loop_state": {
        "current_step": "EXECUTE",
        "step_status": "IN_PROGRESS",
        "step_started_at": "2026-02-13T12:00:00Z",
        "fix_cycle_count": 1,
        "max_fix_cycles": 5,
        "execution_mode": "PARALLEL",
        "checkpoints": {
            "PLAN": {
                "status": "PASSED",
                "agent": "loop-planner",
                "plan_version": 2,
                "enriched": None,
            },
            "PARALLEL_EXECUTE": {
                "status": "IN_PROGRESS",
                "started_at": "2026-02-13T12:00:00",
                "agent": "loop-executor",
                "last_task": "Task 1.3",
            },
        },
        "board_sessions": [{"verdict": "APPROVED"}],
    },
    "blockers": [],
}


# What SUP asks for


@pytest.mark.parametrize(
    ("action", "status", "ended"),
    [
        ("start", "IN_PROGRESS", False),
        ("progress", "IN_PROGRESS", False),
        ("pass", "PASSED", True),
        ("fail", "FAILED", True),
        ("block", "BLOCKED", True),
        ("skip", "SKIPPED", True),
    ],
)
def test_sup_01_each_point_of_the_protocol_sets_its_status(
    action: str, status: str, ended: bool
) -> None:
    loop = Loop()("start", "PLAN")(action, "PLAN")
    record = loop.record("PLAN")
    assert (record["status"], record["started_at"], record["completed_at"]) == (
        status,
        at(1),
        at(2) if ended else None,
    )


def test_sup_02_a_record_has_the_fields_of_the_protocol_from_the_start() -> None:
    loop = Loop()("start", "PLAN", agent="superpowers:writing-plans")
    loop(
        "progress",
        "PLAN",
        current_phase=2,
        total_phases=5,
        task="Designing parameter schema",
        tasks_completed=5,
        tasks_total=35,
    )
    assert loop.state == {
        "blockers": [],
        "loop_state": {
            "current_step": "PLAN",
            "step_status": "IN_PROGRESS",
            "step_started_at": at(1),
            "fix_cycle_count": 0,
            "max_fix_cycles": 3,
            "iterations": 1,
            "checkpoints": {
                "PLAN": {
                    "status": "IN_PROGRESS",
                    "started_at": at(1),
                    "completed_at": None,
                    "agent": "superpowers:writing-plans",
                    "progress": {
                        "current_phase": 2,
                        "total_phases": 5,
                        "current_task": "Designing parameter schema",
                        "tasks_completed": 5,
                        "tasks_total": 35,
                    },
                    "output_files": [],
                    "notes": "",
                    "last_updated": at(2),
                    "plan_version": 1,
                }
            },
        },
    }


def test_sup_02_each_step_has_an_agent_without_being_told() -> None:
    agents = {
        step.name: Loop()("start", step.name, force=True).record(step.name)["agent"]
        for step in graph_file.read_preset_graph().steps
    }
    assert agents == {
        "BRAINSTORM": "superpowers:brainstorming",
        "PLAN": "superpowers:writing-plans",
        "EVALUATE_PLAN": "loop-plan-evaluator",
        "EXECUTE": "superpowers:executing-plans",
        "EVALUATE_EXECUTION": "loop-execution-evaluator",
        "FIX": "superpowers:systematic-debugging",
        "BUSINESS_SYNC": "business-docs-sync",
    }


def test_sup_03_completed_at_is_null_while_a_step_runs_also_when_it_runs_again() -> None:
    loop = Loop()("start", "PLAN")("fail", "PLAN")
    assert loop.record("PLAN")["completed_at"] == at(2)
    assert loop("start", "PLAN").record("PLAN")["completed_at"] is None
    assert loop("progress", "PLAN").record("PLAN")["started_at"] == at(3)


@pytest.mark.parametrize("notes", [None, "", " \n"])
@pytest.mark.parametrize("action", ["fail", "block"])
def test_sup_04_failed_and_blocked_need_notes(action: str, notes: str | None) -> None:
    with pytest.raises(UsageError, match=f"PLAN cannot {action} without notes"):
        machine.apply_report(
            graph_file.read_preset_graph(), {}, StepReport(action, "PLAN", notes=notes), at(1)
        )


def test_sup_05_the_way_through() -> None:
    loop = Loop()
    way = [loop.here]
    for step in ("PLAN", "EVALUATE_PLAN", "EXECUTE", "EVALUATE_EXECUTION"):
        loop("start", step)("pass", step)
        way.append(loop.here)
    assert way == [
        ("PLAN", "NOT_STARTED"),
        ("EVALUATE_PLAN", "NOT_STARTED"),
        ("EXECUTE", "NOT_STARTED"),
        ("EVALUATE_EXECUTION", "NOT_STARTED"),
        ("COMPLETE", "PASSED"),
    ]
    assert (loop.loop["current_step"], loop.loop["step_status"]) == ("COMPLETE", "PASSED")


def test_sup_05_a_plan_that_fails_is_made_again() -> None:
    loop = Loop().to("EVALUATE_PLAN")("start", "EVALUATE_PLAN")(
        "fail", "EVALUATE_PLAN", values={"failure_reasons": ["scope"]}
    )
    assert loop.here == ("PLAN", "NOT_STARTED")
    assert loop.record("PLAN") == {
        "status": "NOT_STARTED",
        "started_at": None,
        "completed_at": None,
        "agent": None,
        "plan_version": 2,
        "last_updated": at(4),
    }
    assert (
        loop.record("EVALUATE_PLAN")["verdict"],
        loop.record("EVALUATE_PLAN")["failure_reasons"],
    ) == ("FAIL", ["scope"])
    assert (
        loop("start", "PLAN")("pass", "PLAN")("fail", "EVALUATE_PLAN").record("PLAN")[
            "plan_version"
        ]
        == 3
    )
    assert loop.loop["fix_cycle_count"] == 0


def test_sup_05_business_is_synced_only_where_that_is_required() -> None:
    loop = Loop().to("EVALUATE_EXECUTION")(
        "pass", "EVALUATE_EXECUTION", values={"business_sync_required": True}
    )
    assert loop.here == ("BUSINESS_SYNC", "NOT_STARTED")
    assert loop.record("BUSINESS_SYNC")["required"] is True
    assert loop("start", "BUSINESS_SYNC")("pass", "BUSINESS_SYNC").here == ("COMPLETE", "PASSED")


def test_sup_05_the_limit_blocks() -> None:
    loop = Loop().to("EVALUATE_EXECUTION")
    counts = []
    for cycle in range(3):
        loop("start", "EVALUATE_EXECUTION")("fail", "EVALUATE_EXECUTION")
        counts.append((loop.here, loop.loop["fix_cycle_count"], loop.record("FIX")["cycle"]))
        loop("start", "FIX")("progress", "FIX", values={"issues_fixed": cycle})("pass", "FIX")
    assert counts == [
        (("FIX", "NOT_STARTED"), 1, 1),
        (("FIX", "NOT_STARTED"), 2, 2),
        (("FIX", "NOT_STARTED"), 3, 3),
    ]
    loop("start", "EVALUATE_EXECUTION")("fail", "EVALUATE_EXECUTION", notes="two tests fail")
    assert loop.here == ("EVALUATE_EXECUTION", "BLOCKED")
    assert loop.record("EVALUATE_EXECUTION")["status"] == "FAILED"
    assert loop.loop["fix_cycle_count"] == 3
    assert loop.state["blockers"] == [
        {
            "id": "B1",
            "description": "the step failed after 3 fix cycles: two tests fail",
            "blocked_at": at(loop.made),
            "blocked_step": "EVALUATE_EXECUTION",
            "status": "ACTIVE",
        }
    ]
    with pytest.raises(StepsBlocked) as caught:
        loop("start", "EVALUATE_EXECUTION")
    assert (caught.value.message, caught.value.hint, caught.value.exit_code) == (
        (
            "the run is blocked at EVALUATE_EXECUTION: the step failed after 3 fix cycles: "
            "two tests fail"
        ),
        "resolve the blocker, then: git ckpt step reset EVALUATE_EXECUTION",
        4,
    )


def test_sup_05_a_limit_of_the_state_goes_before_that_of_the_graph() -> None:
    loop = Loop({"loop_state": {"max_fix_cycles": 0}}).to("EVALUATE_EXECUTION")(
        "fail", "EVALUATE_EXECUTION"
    )
    assert loop.here == ("EVALUATE_EXECUTION", "BLOCKED")


def test_sup_05_after_fifty_iterations_it_is_blocked() -> None:
    loop = Loop()
    for _ in range(25):
        assert loop.here == ("PLAN", "NOT_STARTED")
        loop("start", "PLAN")("pass", "PLAN")("start", "EVALUATE_PLAN")("fail", "EVALUATE_PLAN")
    assert loop.position == machine.StepPosition(
        "PLAN", "BLOCKED", reasons=("the run reached the limit of 50 iterations",)
    )
    assert loop("reset", "PLAN")("start", "PLAN").loop["iterations"] == 1


def test_sup_05_one_step_that_begins_again_and_again_is_stopped_as_well() -> None:
    loop = Loop()
    for _ in range(50):
        loop("start", "PLAN")("fail", "PLAN")
    with pytest.raises(StepsBlocked, match="limit of 50 iterations"):
        loop("start", "PLAN")
    assert loop("start", "PLAN", force=True).loop["iterations"] == 51


@pytest.mark.parametrize(
    ("alias", "step"),
    [
        ("PARALLEL_EXECUTE", "EXECUTE"),
        ("EVAL_PLAN", "EVALUATE_PLAN"),
        ("EVAL_EXECUTION", "EVALUATE_EXECUTION"),
        ("eval-execution", "EVALUATE_EXECUTION"),
        ("execute", "EXECUTE"),
        ("DONE", "COMPLETE"),
    ],
)
def test_sup_06_aliases(alias: str, step: str) -> None:
    assert graph_file.read_preset_graph().step(alias).name == step
    assert Loop({"loop_state": {"current_step": alias}}).position.step == step


def test_sup_06_a_record_under_an_alias_stays_there() -> None:
    loop = Loop(copy.deepcopy(THEIRS))("progress", "EXECUTE", task="1.4", task_status="PASSED")
    assert list(loop.loop["checkpoints"]) == ["PLAN", "PARALLEL_EXECUTE"]
    assert loop.record("PARALLEL_EXECUTE")["last_task"] == "Task 1.4"


def test_sup_07_files_of_other_versions_keep_what_nobody_here_knows() -> None:
    before = copy.deepcopy(THEIRS)
    loop = Loop(before)
    assert loop.here == ("EXECUTE", "IN_PROGRESS")
    loop("pass", "EXECUTE")("fail", "EVAL_EXECUTION")
    assert before == THEIRS
    own = ("loop_state", "blockers")
    assert {key: loop.state[key] for key in loop.state if key not in own} == {
        key: THEIRS[key] for key in THEIRS if key not in own
    }
    assert (loop.loop["execution_mode"], loop.loop["board_sessions"]) == (
        "PARALLEL",
        [{"verdict": "APPROVED"}],
    )
    assert (loop.loop["max_fix_cycles"], loop.loop["fix_cycle_count"]) == (5, 2)
    assert loop.record("PLAN") == {
        "status": "PASSED",
        "agent": "loop-planner",
        "plan_version": 2,
        "enriched": None,
    }


@pytest.mark.parametrize(
    "state", [{}, {"version": 1, "status": "new"}, {"loop_state": {}}, {"loop_state": None}]
)
def test_sup_07_without_a_loop_state_it_begins_at_the_beginning(state: dict[str, Any]) -> None:
    assert Loop(state).here == ("PLAN", "NOT_STARTED")


def test_sup_09_reports_of_different_steps_both_count() -> None:
    loop = Loop()("start", "PLAN")("start", "EXECUTE", force=True)
    loop("progress", "PLAN", notes="one")("progress", "EXECUTE", notes="other")("pass", "PLAN")
    assert (loop.record("PLAN")["status"], loop.record("EXECUTE")["notes"]) == ("PASSED", "other")
    assert loop.here == ("EXECUTE", "IN_PROGRESS")


# The flaws


def test_s03_a_failed_evaluation_is_counted_once_whoever_reports_of_it() -> None:
    loop = Loop().to("EVALUATE_EXECUTION")("start", "EVALUATE_EXECUTION")(
        "fail", "EVALUATE_EXECUTION"
    )
    with pytest.raises(OutOfOrder):
        loop("fail", "EVALUATE_EXECUTION", notes="the orchestrator says so, too")
    loop("fail", "EVALUATE_EXECUTION", notes="by force", force=True)("start", "FIX")("start", "FIX")
    assert (loop.loop["fix_cycle_count"], loop.record("FIX")["cycle"], loop.here) == (
        1,
        1,
        ("FIX", "IN_PROGRESS"),
    )


@pytest.mark.parametrize("word", ["NOT_STARTED", "not started", "new"])
def test_s04_not_started_as_a_step_is_the_first_one(word: str) -> None:
    loop = Loop({"loop_state": {"current_step": word, "step_status": "NOT_STARTED"}})
    assert loop.here == ("PLAN", "NOT_STARTED")
    assert loop("start", "PLAN").here == ("PLAN", "IN_PROGRESS")


def test_s05_failed_does_not_become_blocked() -> None:
    loop = Loop()("start", "PLAN")("fail", "PLAN", notes="no spec")
    assert loop.here == ("PLAN", "FAILED")
    assert loop.state["blockers"] == []
    assert loop("start", "PLAN").here == ("PLAN", "IN_PROGRESS")


def test_s09_parallel_workers_report_task_by_task() -> None:
    loop = Loop({"loop_state": {"current_step": "EXECUTE"}})("start", "EXECUTE", tasks_total=4)
    for task, worker, status in (
        ("1.1", "a", None),
        ("Task 1.2", "b", None),
        ("1.1: Log in", "a", "PASSED"),
        ("2.1", "c", "FAILED"),
    ):
        loop(
            "progress",
            "EXECUTE",
            task=task,
            worker=worker,
            task_status=status,
            commit="f" * 40 if status == "PASSED" else None,
        )
    record = loop.record("EXECUTE")
    tasks = {
        name: (task["status"], task["worker"], task["started_at"], task["completed_at"])
        for name, task in record["tasks"].items()
    }
    assert tasks == {
        "1.1": ("PASSED", "a", at(2), at(4)),
        "1.2": ("IN_PROGRESS", "b", at(3), None),
        "2.1": ("FAILED", "c", at(5), at(5)),
    }
    assert (
        record["tasks_completed"],
        record["tasks_total"],
        record["last_task"],
        record["last_commit"],
    ) == (1, 4, "Task 1.1", "f" * 40)
    assert record["commits"] == [{"sha": "f" * 40, "message": "", "task": "1.1: Log in"}]
    counted = loop("progress", "EXECUTE", tasks_completed=9).record("EXECUTE")
    assert (counted["tasks_completed"], counted["progress"]["tasks_completed"]) == (1, 1)


def test_s10_a_report_needs_nothing_but_the_step() -> None:
    loop = Loop()("progress", "PLAN")
    assert (loop.record("PLAN")["status"], loop.record("PLAN")["last_updated"]) == (
        "IN_PROGRESS",
        at(1),
    )
    assert loop("progress", "PLAN").record("PLAN")["last_updated"] == at(2)


# Ours


def test_a_step_that_is_not_next_is_refused() -> None:
    loop = Loop()
    for action in ("start", "progress", "pass", "fail", "block", "skip"):
        with pytest.raises(OutOfOrder) as caught:
            loop(action, "EXECUTE")
        assert caught.value.message == "the run is at PLAN (NOT_STARTED), not at EXECUTE"
        assert caught.value.hint == (
            "next is: git ckpt step start PLAN; to go back or ahead: git ckpt step reset "
            "EXECUTE, or --force"
        )
    assert loop.state == {}
    assert loop("start", "EXECUTE", force=True).here == ("EXECUTE", "IN_PROGRESS")


def test_without_a_start_an_end_is_both() -> None:
    loop = Loop()("pass", "PLAN", outputs=("plan.md",), commit="a" * 40)
    record = loop.record("PLAN")
    assert (
        record["started_at"],
        record["completed_at"],
        record["output_files"],
        record["commit_sha"],
    ) == (
        at(1),
        at(1),
        ["plan.md"],
        "a" * 40,
    )
    assert (loop.here, loop.loop["iterations"]) == (("EVALUATE_PLAN", "NOT_STARTED"), 1)


def test_brainstorming_may_come_before_and_need_not() -> None:
    loop = Loop()("start", "BRAINSTORM")
    assert loop.here == ("BRAINSTORM", "IN_PROGRESS")
    assert loop("pass", "BRAINSTORM")("start", "PLAN").here == ("PLAN", "IN_PROGRESS")
    with pytest.raises(OutOfOrder):
        loop("start", "BRAINSTORM")


def test_skip_goes_on() -> None:
    loop = Loop()("skip", "PLAN", notes="it is there")
    assert (loop.here, loop.record("PLAN")["status"]) == (
        ("EVALUATE_PLAN", "NOT_STARTED"),
        "SKIPPED",
    )


def test_block_and_reset() -> None:
    loop = Loop().to("EXECUTE")("start", "EXECUTE")(
        "progress", "EXECUTE", task="1.1", task_status="PASSED"
    )("block", "EXECUTE", notes="a key")
    assert loop.position == machine.StepPosition("EXECUTE", "BLOCKED", reasons=("a key",))
    for action in ("start", "progress", "pass", "fail", "skip"):
        with pytest.raises(StepsBlocked):
            loop(action, "EXECUTE")
    loop("block", "EXECUTE", notes="and a door")
    assert loop.position.reasons == ("a key", "and a door")
    loop("reset", "EXECUTE", notes="both are here")
    assert loop.here == ("EXECUTE", "NOT_STARTED")
    settled = {"status": "RESOLVED", "resolved_at": at(loop.made), "resolution": "both are here"}
    assert [{key: each[key] for key in settled} for each in loop.state["blockers"]] == [
        settled,
        settled,
    ]
    assert loop("start", "EXECUTE").record("EXECUTE")["tasks_completed"] == 1


def test_reset_goes_back_settles_and_counts_anew() -> None:
    loop = Loop().to("EVALUATE_EXECUTION")("fail", "EVALUATE_EXECUTION")("block", "FIX")(
        "reset", "EXECUTE"
    )
    assert (loop.here, loop.loop["fix_cycle_count"], loop.loop["iterations"]) == (
        ("EXECUTE", "NOT_STARTED"),
        0,
        0,
    )
    assert machine.find_active_blockers(loop.state) == []


def test_a_blocker_that_somebody_has_settled_blocks_no_more() -> None:
    loop = Loop()("block", "PLAN")
    loop.state["blockers"][0]["status"] = "resolved"
    assert loop.here == ("PLAN", "NOT_STARTED")


@pytest.mark.parametrize(
    ("current", "status", "here"),
    [
        ("PLAN", "PASSED", ("EVALUATE_PLAN", "NOT_STARTED")),
        ("PLAN", "completed-with-warnings", ("EVALUATE_PLAN", "NOT_STARTED")),
        ("EVALUATE_PLAN", "FAILED", ("PLAN", "NOT_STARTED")),
        ("EVALUATE_EXECUTION", "PASSED", ("COMPLETE", "PASSED")),
        ("EXECUTE", "in-progress", ("EXECUTE", "IN_PROGRESS")),
        ("EXECUTE", "what?", ("EXECUTE", "NOT_STARTED")),
        ("EXECUTE", "BLOCKED", ("EXECUTE", "NOT_STARTED")),
        ("BLOCKED", None, ("PLAN", "NOT_STARTED")),
        ("COMPLETE", None, ("COMPLETE", "PASSED")),
        ("ENRICH", "IN_PROGRESS", ("ENRICH", "IN_PROGRESS")),
    ],
)
def test_states_of_others(current: str, status: str | None, here: tuple[str, str]) -> None:
    assert Loop({"loop_state": {"current_step": current, "step_status": status}}).here == here


def test_a_step_that_the_graph_does_not_have_can_be_left() -> None:
    loop = Loop({"loop_state": {"current_step": "ENRICH", "step_status": "IN_PROGRESS"}})
    assert not loop.position.is_known
    with pytest.raises(OutOfOrder):
        loop("start", "PLAN")
    assert loop("reset", "PLAN").here == ("PLAN", "NOT_STARTED")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"verdict": "MAYBE"}, "'MAYBE' is not a verdict"),
        ({"verdict": "FAIL"}, "the verdict FAIL contradicts pass"),
        ({"task_status": "PASSED"}, "no task is named"),
        ({"worker": "a"}, "no task is named"),
        ({"task": "1", "task_status": "GOOD"}, "'GOOD' is not a task status"),
        ({"values": {"status": "PASSED"}}, "'status' cannot be set"),
        ({"values": {" ": 1}}, "' ' cannot be set"),
    ],
)
def test_contradictions(said: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Loop()("pass", "PLAN", **said)
    assert caught.value.message == message


def test_complete_is_no_step_but_may_be_passed() -> None:
    for action in LABELS:
        if action != "pass":
            with pytest.raises(UsageError, match="COMPLETE is the end of the steps, not a step"):
                Loop()(action, "COMPLETE")
    with pytest.raises(OutOfOrder):
        Loop()("pass", "DONE")
    loop = Loop().to("COMPLETE")
    assert loop("pass", "COMPLETE").here == ("COMPLETE", "PASSED")
    with pytest.raises(OutOfOrder, match="the run is complete, so not at FIX"):
        loop("start", "FIX")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(
            ("2.3", "2.3"),
            ("Task 2.3", "2.3"),
            ("task 2.3: Log in", "2.3"),
            (" 2.3 ", "2.3"),
            ("7", "7"),
            ("7.", "7"),
            ("Task 7", "7"),
        ),
        *(
            ("Task 1.2b", "1.2b"),
            ("7 tests", None),
            ("Log in", None),
            ("", None),
            ("2.3x9", None),
            ("Taskforce 1", None),
        ),
    ],
)
def test_sup_08_the_number_of_a_task(text: str, number: str | None) -> None:
    assert report.parse_task_number(text) == number


def counts_of(loop: Loop) -> tuple[int, int]:
    record = loop.record("EXECUTE")
    assert (record["tasks_completed"], record["tasks_total"]) == (
        record["progress"]["tasks_completed"],
        record["progress"]["tasks_total"],
    )
    return record["tasks_completed"], record["tasks_total"]


@pytest.mark.parametrize("place", ["progress", "record"])
def test_counts_that_were_given_survive_the_first_task(place: str) -> None:
    """Q11: the first task that was named turned 5 of 35 into 1 of 1.

    The counts came from a report or an imported file.
    """
    counts = {"tasks_completed": 5, "tasks_total": 35}
    record = {"status": "IN_PROGRESS", **(counts if place == "record" else {"progress": counts})}
    loop = Loop(
        {
            "loop_state": {
                "current_step": "EXECUTE",
                "step_status": "IN_PROGRESS",
                "checkpoints": {"EXECUTE": record},
            }
        }
    )
    loop("progress", "EXECUTE", task="2.3", task_status="PASSED")
    assert counts_of(loop) == (6, 35)
    loop("progress", "EXECUTE", task="2.4")
    assert counts_of(loop) == (6, 35)
    loop("progress", "EXECUTE", task="2.4", task_status="PASSED")
    assert counts_of(loop) == (7, 35)


def test_counts_that_are_given_with_the_first_task_count_it() -> None:
    loop = Loop({"loop_state": {"current_step": "EXECUTE", "step_status": "IN_PROGRESS"}})
    loop("progress", "EXECUTE", task="2.3", task_status="PASSED", tasks_completed=5, tasks_total=35)
    assert counts_of(loop) == (5, 35)


def test_a_record_in_progress_that_has_no_beginning() -> None:
    """Models write such records; a report on one once raised a KeyError."""
    loop = Loop(
        {
            "loop_state": {
                "current_step": "EXECUTE",
                "checkpoints": {"EXECUTE": {"status": "in progress"}},
            }
        }
    )
    loop("progress", "EXECUTE", notes="half")
    assert loop.state["loop_state"]["step_status"] == "IN_PROGRESS"
