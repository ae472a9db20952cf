"""Merge step reports into step records, and read the tasks of a plan.

A record has the keys of superpowers' `metadata.json`; merging preserves unknown keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gitckpt.durable.steps.graph import StepDefinition
from gitckpt.model.arguments import as_strings, require_number, require_text, require_type
from gitckpt.model.checkpoint import Progress
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, field, replace

# Statuses as superpowers writes them, and other spellings by people and models.

NOT_STARTED, IN_PROGRESS, PASSED = "NOT_STARTED", "IN_PROGRESS", "PASSED"
FAILED, BLOCKED, SKIPPED = "FAILED", "BLOCKED", "SKIPPED"
STATUSES = (NOT_STARTED, IN_PROGRESS, PASSED, FAILED, BLOCKED, SKIPPED)
ACTIVE, RESOLVED = "ACTIVE", "RESOLVED"  # the statuses of a blocker
VERDICT_PASS, VERDICT_FAIL = "PASS", "FAIL"  # the verdicts of a reviewing step

_SPELLINGS = {
    PASSED: "PASS COMPLETE COMPLETED DONE PASSED_WITH_WARNINGS COMPLETED_WITH_WARNINGS",
    FAILED: "FAIL PARTIAL_FAIL",
    BLOCKED: "ESCALATE",
    IN_PROGRESS: "ACTIVE STARTED BOARD_REVIEW",
    NOT_STARTED: "NEW PENDING PLANNED",
    SKIPPED: "SKIP",
}
_BY_SPELLING = {word: status for status, words in _SPELLINGS.items() for word in words.split()}
_TASK = re.compile(
    r"(?:task\s+(\d+(?:\.\d+)*[a-z]?)|(\d+(?:\.\d+)+[a-z]?))(?=$|[\s:.)])"
    r"|(\d+[a-z]?)(?=$|[:)]|\.(?:\s|$))",  # the 3 of "3 retries" is not a task number
    re.IGNORECASE,
)


def parse_status(value: object) -> str | None:
    """Return the status that a word such as "done" means; None for any other value."""
    if not isinstance(value, str):
        return None
    word = re.sub(r"[\s-]+", "_", value.strip()).upper()
    return word if word in STATUSES else _BY_SPELLING.get(word)


def parse_task_number(text: str) -> str | None:
    """Return the number of a task, such as "2.3" of "Task 2.3: Log in", or None."""
    task_match = _TASK.match(text.strip())
    return next(number.lower() for number in task_match.groups() if number) if task_match else None


START, PROGRESS, RESET = "start", "progress", "reset"
PASS, FAIL, BLOCK, SKIP = "pass", "fail", "block", "skip"
# Record key: the number of tasks that were done before any task was reported by name.
BEFORE = "tasks_before"

# The status in the label of each action's checkpoint; a reset is marked in its message.
LABELS = {START: "started", PROGRESS: "progress", PASS: "complete", FAIL: "failed"}
LABELS |= {BLOCK: "blocked", SKIP: "skipped", RESET: "progress"}
ENDS = {PASS: PASSED, FAIL: FAILED, BLOCK: BLOCKED, SKIP: SKIPPED}
# Record keys that `StepReport.values` cannot set: other fields set them, or gitckpt itself.
RESERVED_KEYS: tuple[str, ...] = ("status", "started_at", "completed_at", "last_updated")
RESERVED_KEYS += ("agent", "notes", "progress", "output_files", "tasks", "verdict")

StateTable = Mapping[str, Any]  # the state of a run, or a table in it
_COUNTS = ("current_phase", "total_phases", "tasks_completed", "tasks_total")
_MAX = 2**63


@dataclass(frozen=True, slots=True)
class StepReport:
    """A report on a step; None and empty values leave the step's record unchanged."""

    action: str  # one of `LABELS`
    step: str  # name or alias
    agent: str | None = None
    notes: str | None = None
    task: str | None = None  # a number such as "2.3" or "Task 2.3", or any text
    task_status: str | None = None  # one of `STATUSES`
    worker: str | None = None  # the worker at the task, if there are several
    tasks_completed: int | None = None
    tasks_total: int | None = None
    current_phase: int | None = None
    total_phases: int | None = None
    outputs: tuple[str, ...] = ()  # created or changed files
    verdict: str | None = None
    commit: str | None = None  # oid
    subject: str = ""  # of that commit
    values: Mapping[str, Any] = field(default_factory=dict)  # additional keys of the record
    force: bool = False  # accept the report although the run is blocked or at another step
    checkpoint_id: str | None = None  # id of the new checkpoint; None: a random one

    def __post_init__(self) -> None:
        for name in ("action", "step", "subject"):
            require_text(name, getattr(self, name))
        for name in ("agent", "notes", "task", "task_status"):
            require_text(name, getattr(self, name), may_be_none=True)
        for name in ("worker", "verdict", "commit", "checkpoint_id"):
            require_text(name, getattr(self, name), may_be_none=True)
        for name in _COUNTS:
            require_number(name, getattr(self, name), may_be_none=True)
        object.__setattr__(self, "outputs", as_strings("outputs", self.outputs))
        require_type("force", self.force, bool, "True or False")
        require_type("values", self.values, Mapping, "a map of names to values")
        if self.action not in LABELS:
            hint = f"an action is one of {', '.join(LABELS)}"
            raise UsageError(f"{self.action!r} is not an action of a step", hint=hint)


def require_valid_report(report: StepReport, step: StepDefinition) -> None:
    action, verdict = report.action, report.verdict
    if action in (FAIL, BLOCK) and not (report.notes or "").strip():
        notes_topic = "what went wrong" if action == FAIL else "what must be resolved"
        problem = f"{step.name} cannot {action} without notes"
        raise UsageError(problem, hint=f'say {notes_topic}: --notes "…"')
    if verdict not in (None, VERDICT_PASS, VERDICT_FAIL):
        hint = "a verdict is PASS or FAIL; record other values with --set"
        raise UsageError(f"{verdict!r} is not a verdict", hint=hint)
    expected_verdict = {PASS: VERDICT_PASS, FAIL: VERDICT_FAIL}.get(action)
    if verdict is not None and expected_verdict not in (None, verdict):
        hint = f"omit the verdict, or use {expected_verdict}"
        raise UsageError(f"the verdict {verdict} contradicts {action}", hint=hint)
    if report.task_status is not None and report.task_status not in STATUSES:
        hint = f"a status is one of {', '.join(STATUSES)}"
        raise UsageError(f"{report.task_status!r} is not a task status", hint=hint)
    if report.task is None and (report.task_status is not None or report.worker is not None):
        raise UsageError("no task is named", hint="name the task: --task 2.3")
    for key in report.values:
        if key in RESERVED_KEYS or not key.strip() or not key.isprintable():
            hint = f"gitckpt or other options set these keys: {', '.join(RESERVED_KEYS)}"
            raise UsageError(f"{key!r} cannot be set", hint=hint)


def merge_report(
    record: StateTable, step: StepDefinition, report: StepReport, timestamp: str
) -> dict[str, Any]:
    fields = {**record, **report.values}
    fields["agent"] = report.agent or fields.get("agent") or step.agent or "unknown"
    progress = {key: getattr(report, key) for key in _COUNTS[:2]} | {"current_task": report.task}
    progress |= {key: getattr(report, key) for key in _COUNTS[2:]}
    progress = {key: value for key, value in progress.items() if value is not None}
    fields["progress"] = _as_dict(fields.get("progress")) | progress
    old_outputs = _as_list(fields.get("output_files"))
    new_outputs = [name for name in dict.fromkeys(report.outputs) if name not in old_outputs]
    fields["output_files"] = old_outputs + new_outputs
    fields["notes"] = report.notes if report.notes is not None else fields.get("notes") or ""
    if step.on_fail is not None and report.action in (PASS, FAIL):
        fields["verdict"] = VERDICT_PASS if report.action == PASS else VERDICT_FAIL
    elif report.verdict is not None:
        fields["verdict"] = report.verdict
    if report.commit is not None:
        _add_commit(fields, step, report)
    if report.task is not None:
        _add_task(fields, report.task, report, timestamp)
        if fields.get("tasks") and not record.get("tasks"):
            _keep_earlier_task_counts(fields, record, report)
    _update_task_counts(fields, step)
    fields["last_updated"] = timestamp
    return fields


def _as_list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def _as_dict(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def read_progress(record: StateTable) -> Progress | None:
    progress_table = _as_dict(record.get("progress"))
    counts: dict[str, Any] = {key: _as_count(progress_table.get(key)) for key in _COUNTS}
    task = progress_table.get("current_task")
    progress = Progress(**counts, current_task=task if isinstance(task, str) and task else None)
    return progress if progress != Progress() else None


def _add_commit(record: dict[str, Any], step: StepDefinition, report: StepReport) -> None:
    if not step.has_tasks:
        record["commit_sha"] = report.commit
        return
    record["last_commit"] = report.commit
    commits = _as_list(record.get("commits"))
    if not any(_as_dict(commit).get("sha") == report.commit for commit in commits):
        commits.append({"sha": report.commit, "message": report.subject, "task": report.task})
    record["commits"] = commits


def _add_task(record: dict[str, Any], text: str, report: StepReport, timestamp: str) -> None:
    # Free text without a number is a task only if the report says more about it.
    task_number = parse_task_number(text)
    if task_number is None and report.task_status is None and report.worker is None:
        return
    task_key = task_number or text
    tasks = _as_dict(record.get("tasks"))
    new_task = {"status": NOT_STARTED, "started_at": timestamp, "completed_at": None}
    old_task = tasks.get(task_key)
    task = dict(old_task) if isinstance(old_task, Mapping) else new_task
    task["status"] = report.task_status or IN_PROGRESS
    task["completed_at"] = None if task["status"] in (NOT_STARTED, IN_PROGRESS) else timestamp
    task_values = {"worker": report.worker, "notes": report.notes, "commit": report.commit}
    task |= {key: value for key, value in task_values.items() if value is not None}
    record["tasks"] = tasks | {task_key: task | {"last_updated": timestamp}}
    if task["status"] == PASSED:
        record["last_task"] = f"Task {task_number}" if task_number else task_key


def _keep_earlier_task_counts(new: dict[str, Any], record: StateTable, report: StepReport) -> None:
    # The first task reported by name must not hide the counts that were reported before.
    progress = _as_dict(record.get("progress"))
    count_keys = ("tasks_completed", "tasks_total")
    done, total = (_as_count(progress.get(key)) or _as_count(record.get(key)) for key in count_keys)
    if report.tasks_completed is not None:  # includes the reported task if that is done
        done = report.tasks_completed - (report.task_status == PASSED)
    if done and done > 0:
        new[BEFORE] = done
    if total and report.tasks_total is None:
        new["progress"]["tasks_total"] = total


def _update_task_counts(record: dict[str, Any], step: StepDefinition) -> None:
    # The table of tasks has precedence: no single worker knows all tasks.
    tasks, progress = _as_dict(record.get("tasks")), record["progress"]
    if tasks:
        statuses = [_as_dict(task).get("status") for task in tasks.values()]
        completed_count = (_as_count(record.get(BEFORE)) or 0) + statuses.count(PASSED)
        total = _as_count(progress.get("tasks_total")) or 0
        total = max(total, len(tasks), min(completed_count, total) if total else completed_count)
        # A task that was counted before may be reported again.
        progress |= {"tasks_total": total, "tasks_completed": min(completed_count, total)}
    if step.has_tasks:
        count_keys = ("tasks_completed", "tasks_total")
        record |= {key: progress[key] for key in count_keys if key in progress}


def _as_count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _MAX else None


# The tasks of a Markdown plan: `- [ ] Task 2.3: Log in`.

# The marks in the brackets: pending, in progress, done, blocked.
OPEN, STARTED, DONE, STUCK = " ", "~", "x", "!"
_BOX = re.compile(r"(?P<indent>[ \t]*)(?:[-*+]|\d+[.)])[ \t]+\[(?P<mark>.)\][ \t]*(?P<text>.*)")
_HEADING = re.compile(r"#{1,6}[ \t]+(?P<text>Task[ \t]+\d.*)", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(```+|~~~+)")
_OID = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True, slots=True)
class PlanTask:
    id: str | None  # the number of the task, such as "2.3"
    title: str
    mark: str  # the character in the brackets, such as DONE
    line: int  # from 1
    commit: str | None = None  # the commit that the plan names for the task

    @property
    def is_done(self) -> bool:
        return self.mark == DONE

    @property
    def name(self) -> str:
        return self.id or self.title


def parse_plan(text: str) -> list[PlanTask]:
    """Return the tasks of a plan: items `- [ ] TITLE` and headings `## Task 1: TITLE`."""
    plan_tasks: list[PlanTask] = []
    indent, heading, fence = -1, -1, ""
    for line_number, line in enumerate(text.splitlines(), 1):
        fence_match = _FENCE.match(line)
        if fence_match is not None and (not fence or fence_match[1].startswith(fence)):
            fence = "" if fence else fence_match[1]
        if fence:
            continue
        heading_match = _HEADING.match(line)
        box_match = _BOX.match(line)
        if heading_match is not None:
            plan_tasks.append(_parse_task(heading_match["text"], "", line_number))
            indent, heading = -1, len(plan_tasks) - 1
        elif line.startswith("#"):
            indent, heading = -1, -1
        elif box_match is not None:
            task_indent = len(box_match["indent"].expandtabs(4))
            task = _parse_task(box_match["text"], box_match["mark"].lower(), line_number)
            if task.id is None and heading >= 0:
                joined_mark = _join_task_marks(plan_tasks[heading].mark, task.mark)
                plan_tasks[heading] = replace(plan_tasks[heading], mark=joined_mark)
            elif task.id is not None or indent < 0 or task_indent <= indent:
                plan_tasks.append(task)
                indent, heading = task_indent, -1
    return [task for task in plan_tasks if task.mark]


def find_open_task(plan: Sequence[PlanTask]) -> PlanTask | None:
    return next((task for task in plan if not task.is_done), None)


def next_open(plan: Sequence[PlanTask], last: str) -> PlanTask | None:
    last_index = next((i for i, task in enumerate(plan) if task.id == last), len(plan))
    return find_open_task(plan[last_index + 1 :])


def _parse_task(text: str, mark: str, line: int) -> PlanTask:
    title, comments = _split_html_comments(text)
    commit = comments[0] if comments and _OID.fullmatch(comments[0]) else None
    title = title.replace("**", "").replace("`", "").strip()
    return PlanTask(parse_task_number(title), title, mark, line, commit)


def _split_html_comments(text: str) -> tuple[str, list[str]]:
    text_parts, comments, end = [], [], 0
    while (start := text.find("<!--", end)) >= 0 and (close := text.find("-->", start + 4)) >= 0:
        text_parts.append(text[end:start])
        comments.append(text[start + 4 : close].strip())
        end = close + 3
    return "".join([*text_parts, text[end:]]), comments


def _join_task_marks(first_mark: str, mark: str) -> str:
    if first_mark in ("", mark):
        return mark
    return STUCK if STUCK in (first_mark, mark) else STARTED
