"""Build the prompts of coder and reviewer."""

from __future__ import annotations

from gitckpt.durable.phases.review.state import CycleState, ReviewFinding, cut, trim, unresolved

_FORMAT = """\
Report each problem as a block of its own, with an empty line after it:

ISSUE:
SEVERITY: critical, major or minor
DESCRIPTION: what is wrong, where, and what to do about it

If nothing has to be changed, write this line instead:

APPROVED: why

Then describe the work as a whole:

REPORT:
SATISFACTION: high, medium or low
RISK: high, medium or low
NEEDS_HUMAN_REVIEW: yes or no
SUMMARY: one line
"""

_INSTRUCTIONS = """\
REVIEW INSTRUCTIONS:
1. Read the files themselves to verify the changes; do not rely on the summary above.
2. Look at correctness, security, error handling, quality of the code, and edge cases.
3. Look at what linters and tests of this project say; what they complain of is an issue.
4. End with either APPROVED: or one or more ISSUE: blocks.
"""

_PRIOR = """\
[PRIOR FINDINGS]
These were found in earlier cycles. For each of them, report its status as a block of its own, with
an empty line after it:

VERIFICATION:
FINDING_ID: the id
STATUS: fixed, still_present or regressed
COMMENT: why

"""

# Maximum characters of the coder's answer, of remaining and of new linter output, and of the
# coder's previous answer after the task was changed.
_ANSWER, _LEFT_OVER, _LINT, _BEFORE = 3000, 2000, 3000, 2000


def coder(state: CycleState) -> str:
    if state.refactored:
        return _refactor(state)
    task = f"{_task(state)}\n\n"
    if state.cycle <= 1:
        return f"{task}Implement this task. Read the existing code first, then make the changes.\n"
    open_findings = unresolved(state.all_findings)
    if open_findings:
        return (
            f"{task}Your last implementation has these issues:\n\n{_numbered(open_findings)}\n"
            "Fix them. Read the files concerned first: they are the current state.\n"
        )
    answer = cut(trim(state.review_output), _ANSWER)
    return (
        f"{task}The reviewer did not approve of your last implementation, and said:\n\n{answer}\n\n"
        "Do what is asked there. Read the files concerned first: they are the current state.\n"
    )


def lint_fix(state: CycleState) -> str:
    return (
        f"{_task(state)}\n\nThe linter complains about your work; fix this before the review.\n\n"
        f"LINT OUTPUT:\n{cut(state.lint_output, _LINT)}\n\n"
        "Fix all of it. Read the files concerned first.\n"
    )


def reviewer(state: CycleState) -> str:
    answer = cut(state.coder_output, _ANSWER)
    parts = [f"{_task(state)}\n\nThe coder has finished, and says:\n\n{answer}\n"]
    if state.lint_output:
        complaints = cut(state.lint_output, _LEFT_OVER)
        parts.append(f"NOTE: the coder did not fix these complaints of the linter:\n{complaints}\n")
    if state.all_findings:
        parts.append(_PRIOR + _prior(state.all_findings))
    return "\n".join([*parts, _INSTRUCTIONS, _FORMAT])


def _refactor(state: CycleState) -> str:
    old_task, new_task = state.original_description, state.refactor_description
    parts = [
        f"Task {state.task_bead_id}\n\n[REFACTOR: THE TASK WAS CHANGED]\n",
        f"The task was changed while you were working. It was:\n---\n{old_task}\n---\n",
        f"It is now:\n---\n{new_task}\n---\n",
        "The new task is what counts. Keep what is good of the work done so far.\n",
    ]
    if state.coder_output:
        answer = cut(state.coder_output, _BEFORE)
        parts.append(f"[PREVIOUS WORK]\nYour last answer was:\n{answer}\n")
    open_findings = unresolved(state.all_findings)
    if open_findings:
        parts.append(f"The reviewer found:\n\n{_numbered(open_findings)}")
    return "\n".join(parts)


def _task(state: CycleState) -> str:
    name = f"Task {state.task_bead_id}" if state.task_bead_id else "Task"
    return f"{name}: {state.task_title}"


def _numbered(findings: tuple[ReviewFinding, ...]) -> str:
    lines = [f"[{finding.severity}] {finding.description}\n" for finding in findings]
    return "".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def _prior(findings: tuple[ReviewFinding, ...]) -> str:
    # A finding can recur in several cycles; its latest version counts.
    last = {finding.id: finding for finding in findings}
    return "".join(
        f"{number}. [{finding.severity}] id={finding.id} cycle={finding.cycle} "
        f"status={finding.status}\n   {cut(finding.description, _BEFORE)}\n"
        for number, finding in enumerate(last.values(), 1)
    )
