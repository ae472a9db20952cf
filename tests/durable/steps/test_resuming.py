"""A run resumes at the step that its plan and its records determine.

People and models write the plans.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitckpt import NextStep, NotFoundError, OutOfOrder, StepsBlocked, UsageError
from gitckpt.durable.steps import machine as next_step
from gitckpt.durable.steps import report
from tests.durable.steps.stepper import Loop

PLAN = """\
# Plan
## Phase 1
- [x] Task 1.1: Set up <!-- abc1234 -->
- [x] **Task 1.2**: Schema <!-- done -->
  - [ ] a detail of it
* [~] Task 1.3: Log in
## Phase 2
```
- [ ] Task 9.9: an example
```
1. [!] Task 2.1: Deploy
+ [ ] 2.2 Tell them
- [ ] and a thing without a number
"""


def tasks(text: str) -> list[tuple[str | None, str, str, int]]:
    return [(task.id, task.title, task.mark, task.line) for task in report.parse_plan(text)]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "plan.md").write_text(PLAN)
    return tmp_path


def executing(**record: Any) -> dict[str, Any]:
    state = Loop().to("EXECUTE")("start", "EXECUTE").state
    state["loop_state"]["checkpoints"]["EXECUTE"] |= record
    return state


def next_of(state: dict[str, Any], top: Path | None, **how: Any) -> NextStep:
    return next_step.find_next_step(
        Loop().graph, state, str(top) if top is not None else None, **how
    )


class TestPlans:
    def test_tasks_in_their_order(self) -> None:
        assert tasks(PLAN) == [
            ("1.1", "Task 1.1: Set up", "x", 3),
            ("1.2", "Task 1.2: Schema", "x", 4),
            ("1.3", "Task 1.3: Log in", "~", 6),
            ("2.1", "Task 2.1: Deploy", "!", 11),
            ("2.2", "2.2 Tell them", " ", 12),
            (None, "and a thing without a number", " ", 13),
        ]
        assert [task.commit for task in report.parse_plan(PLAN)][:2] == ["abc1234", None]

    def test_headings_are_as_far_as_their_steps(self) -> None:
        text = (
            "### Task 1: All\n- [x] **Step 1: a**\n- [X] Step 2\n### Task 2: Some\n"
            "- [x] a\n- [ ] b\n"
            "### Task 3: None\n- [ ] a\n### Task 4: Stuck\n- [x] a\n- [!] b\n### Task 5: "
            "without a status\n## More\n- [ ] loose\n"
        )
        assert tasks(text) == [
            ("1", "Task 1: All", "x", 1),
            ("2", "Task 2: Some", "~", 4),
            ("3", "Task 3: None", " ", 7),
            ("4", "Task 4: Stuck", "!", 9),
            (None, "loose", " ", 14),
        ]

    @pytest.mark.parametrize(
        "text",
        ["", "no tasks\n", "- [x]\n" * 0, "[ ] no item\n", "~~~\n- [ ] Task 1\n", "-[ ] Task 1\n"],
    )
    def test_what_is_none(self, text: str) -> None:
        assert report.parse_plan(text) == []


class TestNext:
    def test_sup_08_the_first_task_that_is_not_done(self, top: Path) -> None:
        assert next_of(executing(), top) == NextStep(
            "EXECUTE", "IN_PROGRESS", "1.3", "Task 1.3: Log in", "plan.md"
        )

    @pytest.mark.parametrize("last", ["Task 1.2", "1.2", "Task 1.1", "task 1.2: Schema", None, 7])
    def test_sup_08_what_agrees_with_last_task(self, top: Path, last: object) -> None:
        assert next_of(executing(last_task=last), top).remarks == ()

    @pytest.mark.parametrize(
        ("last", "remark"),
        [
            ("Task 2.2", "last_task is 2.2, which is open in plan.md; the run continues with 1.3"),
            ("Task 1.3", "last_task is 1.3, which is open in plan.md; the run continues with 1.3"),
            ("7.1", "last_task is 7.1, which plan.md lacks; the run continues with 1.3"),
        ],
    )
    def test_sup_08_what_disagrees_is_said_and_the_plan_is_right(
        self, top: Path, last: str, remark: str
    ) -> None:
        found = next_of(executing(last_task=last), top)
        assert (found.task, found.remarks) == ("1.3", (remark,))

    def test_sup_08_a_task_that_was_left_out(self, top: Path) -> None:
        (top / "plan.md").write_text("- [x] Task 1\n- [ ] Task 2\n- [x] Task 3\n- [ ] Task 4\n")
        found = next_of(executing(last_task="Task 3"), top)
        assert (found.task, found.remarks) == (
            "2",
            ("last_task is 3, but 2 is still open in plan.md; the run continues with 2",),
        )

    def test_sup_08_tasks_that_workers_have_reported(self, top: Path) -> None:
        said = {
            "1.1": {"status": "FAILED"},
            "1.3": {"status": "PASSED"},
            "2.1": {"status": "IN_PROGRESS"},
            "x": 5,
        }
        assert next_of(executing(tasks=said), top).remarks == (
            "task 1.1 is reported as FAILED, but is done in plan.md",
            "task 1.3 is reported as PASSED, but is open in plan.md",
        )

    @pytest.mark.parametrize("text", ["2.2", "Task 2.2"])
    def test_sup_08_resume_from_goes_before_all(self, top: Path, text: str) -> None:
        assert next_of(executing(last_task="7"), top, resume_from=text) == NextStep(
            "EXECUTE", "IN_PROGRESS", "2.2", "2.2 Tell them", "plan.md"
        )
        assert next_of(executing(), None, resume_from=text) == NextStep(
            "EXECUTE", "IN_PROGRESS", "2.2"
        )

    def test_resume_from_what_is_done_and_from_what_is_not_there(self, top: Path) -> None:
        assert next_of(executing(), top, resume_from="1.1").remarks == (
            "task 1.1 is already done, according to plan.md",
        )
        with pytest.raises(NotFoundError) as caught:
            next_of(executing(), top, resume_from="3.1")
        assert caught.value.message == "plan.md has no task '3.1'"
        assert (
            caught.value.hint == "the tasks: 1.1, 1.2, 1.3, 2.1, 2.2, and a thing without a number"
        )
        with pytest.raises(OutOfOrder, match="the run is at PLAN, which has no tasks"):
            next_of({}, top, resume_from="1.1")

    def test_a_task_that_is_stuck_and_all_that_are_done(self, top: Path) -> None:
        (top / "plan.md").write_text("- [!] Task 1\n")
        assert next_of(executing(), top).remarks == (
            "task 1 is marked as blocked in plan.md, line 1",
        )
        (top / "plan.md").write_text("- [x] Task 1\n")
        done = next_of(executing(), top)
        assert (done.task, done.remarks) == (
            None,
            ("all tasks of plan.md are done: git ckpt step pass EXECUTE",),
        )
        (top / "plan.md").write_text("later\n")
        assert next_of(executing(), top).remarks == ("plan.md has no tasks",)

    def test_which_plan(self, top: Path, tmp_path: Path) -> None:
        for name, task in (
            ("docs/plan.md", "2"),
            ("conductor/tracks/t/plan.md", "3"),
            ("named", "4"),
        ):
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(f"- [ ] Task {task}\n")
        state = executing()
        assert next_of(state, top).task == "1.3"
        (top / "plan.md").unlink()
        assert next_of(state, top).remarks == (
            "there is no plan to take the task from; name a plan: --plan FILE",
        )
        assert next_of({**state, "track_id": "t"}, top).task == "3"
        state["loop_state"]["checkpoints"]["PLAN"]["output_files"] = [
            "spec.md",
            5,
            "gone/plan.md",
            "docs/plan.md",
        ]
        assert next_of({**state, "track_id": "t"}, top).plan == "docs/plan.md"
        assert next_of(state, top, path=str(top / "named")).task == "4"
        with pytest.raises(NotFoundError, match="there is no file nowhere"):
            next_of(state, top, path="nowhere")
        with pytest.raises(UsageError, match="cannot read"):
            next_of(state, top, path=str(top))

    def test_a_state_of_somebody_else_reads_nothing_outside_of_the_worktree(
        self, top: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        secret = tmp_path_factory.mktemp("outside") / "plan.md"
        secret.write_text("- [ ] Task 6.6: secret\n")
        (top / "plan.md").unlink()
        (top / "link").mkdir()
        (top / "link" / "plan.md").symlink_to(secret)
        state = executing(
            output_files=[str(secret), "../" * 20 + str(secret), "link/plan.md", "\0/plan.md"]
        )
        assert next_of({**state, "track_id": "../../../" + str(secret.parent)}, top).plan is None

    def test_positions_without_tasks(self, top: Path) -> None:
        assert next_of({}, top) == NextStep("PLAN", "NOT_STARTED")
        assert next_of(Loop().to("COMPLETE").state, top) == NextStep("COMPLETE", "PASSED")
        failed = Loop()("fail", "PLAN", notes="no spec").state
        assert next_of(failed, top) == NextStep("PLAN", "FAILED", remarks=("PLAN failed: no spec",))
        unknown = {"loop_state": {"current_step": "ENRICH"}}
        remark = (
            "the run is at ENRICH, which is not a step of superpowers; to continue: "
            "git ckpt step reset STEP"
        )
        assert next_of(unknown, top).remarks == (remark,)
        with pytest.raises(StepsBlocked, match="the run is blocked at PLAN: a key"):
            next_of(Loop()("block", "PLAN", notes="a key").state, top)

    def test_blockers_elsewhere_are_told(self, top: Path) -> None:
        state = Loop()("start", "PLAN")("start", "FIX", force=True)(
            "block", "PLAN", notes="a key"
        ).state
        assert next_of(state, top) == NextStep(
            "FIX", "IN_PROGRESS", remarks=("unresolved blocker: a key (at PLAN)",)
        )
