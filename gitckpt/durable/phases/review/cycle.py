"""Run a review in cycles of coding and reviewing. These are its phases.

    bead_created → coding → code_complete → linting → filtering → reviewing → review_complete
                     ↑                                    │                       │      ↓
                     └───────── resolving_issues ←────────┴───────────────────────┘   approved

The table `review` in the run's state has the phase. Each answer of an agent is recorded there
before it is processed, so a crash loses at most one answer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from gitckpt.durable.phases.review import state as review
from gitckpt.durable.phases.review.state import (
    ReviewFinding,
    ReviewReport,
    ReviewState,
    cut,
    find_unresolved,
    sanitize,
    trim,
)
from gitckpt.durable.run.attempts import Cancelled, DeadlineReached, PhaseFailed
from gitckpt.git import process
from gitckpt.git.command import DURABLE
from gitckpt.git.process import GitError, ProcResult
from gitckpt.model import ids, times
from gitckpt.model.checkpoint import Progress
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import secrets

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

_PRIOR_FINDINGS = """\
[PRIOR FINDINGS]
These were found in earlier cycles. For each of them, report its status as a block of its own, with
an empty line after it:

VERIFICATION:
FINDING_ID: the id
STATUS: fixed, still_present or regressed
COMMENT: why

"""

# Maximum characters in a prompt: of an answer, of linter output that the coder did not fix, of
# linter output to fix, and of the coder's answer before the task was changed or an old finding.
_MAX_ANSWER, _MAX_REMAINING_LINT, _MAX_LINT, _MAX_PREVIOUS = 3000, 2000, 3000, 2000


def build_coder_prompt(state: ReviewState) -> str:
    if state.refactored:
        return _build_changed_task_prompt(state)
    task = f"{_format_task(state)}\n\n"
    if state.cycle <= 1:
        return f"{task}Implement this task. Read the existing code first, then make the changes.\n"
    unresolved = find_unresolved(state.all_findings)
    if unresolved:
        return (
            f"{task}Your last implementation has these issues:\n\n{_format_findings(unresolved)}\n"
            "Fix them. Read the files concerned first: they are the current state.\n"
        )
    answer = cut(trim(state.review_output), _MAX_ANSWER)
    return (
        f"{task}The reviewer did not approve of your last implementation, and said:\n\n{answer}\n\n"
        "Do what is asked there. Read the files concerned first: they are the current state.\n"
    )


def build_lint_prompt(state: ReviewState) -> str:
    return (
        f"{_format_task(state)}\n\n"
        "The linter complains about your work; fix this before the review.\n\n"
        f"LINT OUTPUT:\n{cut(state.lint_output, _MAX_LINT)}\n\n"
        "Fix all of it. Read the files concerned first.\n"
    )


def build_reviewer_prompt(state: ReviewState) -> str:
    answer = cut(state.coder_output, _MAX_ANSWER)
    parts = [f"{_format_task(state)}\n\nThe coder has finished, and says:\n\n{answer}\n"]
    if state.lint_output:
        complaints = cut(state.lint_output, _MAX_REMAINING_LINT)
        parts.append(f"NOTE: the coder did not fix these complaints of the linter:\n{complaints}\n")
    if state.all_findings:
        parts.append(_PRIOR_FINDINGS + _format_prior_findings(state.all_findings))
    return "\n".join([*parts, _INSTRUCTIONS, _FORMAT])


def _build_changed_task_prompt(state: ReviewState) -> str:
    old_task, new_task = state.original_description, state.refactor_description
    parts = [
        f"Task {state.task_bead_id}\n\n[REFACTOR: THE TASK WAS CHANGED]\n",
        f"The task was changed while you were working. It was:\n---\n{old_task}\n---\n",
        f"It is now:\n---\n{new_task}\n---\n",
        "The new task is what counts. Keep what is good of the work done so far.\n",
    ]
    if state.coder_output:
        answer = cut(state.coder_output, _MAX_PREVIOUS)
        parts.append(f"[PREVIOUS WORK]\nYour last answer was:\n{answer}\n")
    open_findings = find_unresolved(state.all_findings)
    if open_findings:
        parts.append(f"The reviewer found:\n\n{_format_findings(open_findings)}")
    return "\n".join(parts)


def _format_task(state: ReviewState) -> str:
    name = f"Task {state.task_bead_id}" if state.task_bead_id else "Task"
    return f"{name}: {state.task_title}"


def _format_findings(findings: tuple[ReviewFinding, ...]) -> str:
    finding_lines = [f"[{finding.severity}] {finding.description}\n" for finding in findings]
    return "".join(f"{number}. {line}" for number, line in enumerate(finding_lines, 1))


def _format_prior_findings(findings: tuple[ReviewFinding, ...]) -> str:
    # A finding can recur in several cycles: list only its latest version.
    latest_findings = {finding.id: finding for finding in findings}
    return "".join(
        f"{number}. [{finding.severity}] id={finding.id} cycle={finding.cycle} "
        f"status={finding.status}\n   {cut(finding.description, _MAX_PREVIOUS)}\n"
        for number, finding in enumerate(latest_findings.values(), 1)
    )


_FIRST_CYCLE = 2  # the first cycle in which a struggle can be detected
_THRESHOLD = 0.6
_FILTER_WEIGHT, _OVERLAP_WEIGHT, _BURN_WEIGHT = 0.35, 0.40, 0.25
# Values from which `repeats` and `overlap` have full weight. `burn` has no weight up to 1, which is
# an even share of the budget, and full weight from 2 on.
_MAX_REPEATS, _MAX_OVERLAP = 2, 0.6

_ALIKE = 0.8  # descriptions with at least this likeness count as equal


@dataclass(frozen=True, slots=True)
class StruggleSigns:
    repeats: int = 0  # consecutive cycles in which the same filter failed
    overlap: float = 0.0  # fraction of the findings that resemble earlier ones, 0 to 1
    burn: float = 0.0  # cost of a cycle as a multiple of its even share of the budget

    @property
    def struggle_score(self) -> float:
        return (
            _FILTER_WEIGHT * min(self.repeats / _MAX_REPEATS, 1)
            + _OVERLAP_WEIGHT * min(self.overlap / _MAX_OVERLAP, 1)
            + _BURN_WEIGHT * min(max(self.burn - 1, 0), 1)
        )

    def describe_signs(self) -> str:
        reasons = ["a filter failed"] if self.repeats else []
        if self.repeats > 1:
            reasons = [f"the same filter failed in {self.repeats} cycles in a row"]
        if self.overlap:
            reasons.append(f"{self.overlap:.0%} of the findings are those of earlier cycles")
        if self.burn > 1:
            reasons.append(f"a cycle costs {self.burn:.2f} times its share of the budget")
        return ", ".join(reasons)


def measure_struggle(state: ReviewState) -> StruggleSigns:
    if state.cycle < _FIRST_CYCLE:
        return StruggleSigns()
    earlier_findings = [finding for finding in state.all_findings if finding.cycle < state.cycle]
    return StruggleSigns(
        count_repeated_failures(state.filter_history),
        measure_overlap(state.findings, earlier_findings),
        compare_cost_to_share(state),
    )


def explain_struggle(state: ReviewState) -> str:
    signs = measure_struggle(state)
    return signs.describe_signs() if signs.struggle_score >= _THRESHOLD else ""


def count_repeated_failures(history: Sequence[str]) -> int:
    failures = itertools.takewhile(lambda name: name == history[-1] != "", reversed(history))
    return len(list(failures))


def measure_overlap(current: Sequence[ReviewFinding], earlier: Iterable[ReviewFinding]) -> float:
    old_texts = [finding.description for finding in earlier]
    texts = [finding.description for finding in current]
    count = sum(any(likeness(text, old_text) >= _ALIKE for old_text in old_texts) for text in texts)
    return count / len(texts) if texts else 0.0


def compare_cost_to_share(state: ReviewState) -> float:
    """Divide the mean cost of a cycle by the budget per cycle; 0 without a budget."""
    if state.max_budget_usd <= 0 or state.max_cycles <= 0 or state.cycle <= 0:
        return 0.0
    return (state.total_cost_usd / state.cycle) / (state.max_budget_usd / state.max_cycles)


def likeness(first: str, second: str) -> float:
    """Return the Jaccard similarity of the words of two texts, from 0 to 1."""
    first_words, second_words = set(first.lower().split()), set(second.lower().split())
    all_words = first_words | second_words
    return len(first_words & second_words) / len(all_words) if all_words else 1.0


# Environment variable that tells an agent how many US dollars its answer may cost.
BUDGET_VARIABLE = "CKPT_BUDGET_USD"

# Runs a command in the worktree; returns its exit code and output.
Checker = Callable[[str], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class AgentReply:
    ok: bool  # whether the agent did what it was asked
    problem: str = ""  # one sentence; "" if `ok`
    text: str = ""
    cost_usd: float | None = None  # None: unknown
    session: str | None = None  # id of the conversation; None: unknown


class AskableAgent(Protocol):
    """The coding or the reviewing agent; `session` is the conversation to continue."""

    def ask_agent(self, prompt: str, session: str | None, env: Mapping[str, str]) -> AgentReply: ...


class ReviewRecorder(Protocol):
    """The methods of a run's `RunSession` by which a review records its progress."""

    state: dict[str, Any]  # JSON values; the next attempt starts with these values

    @property
    def id(self) -> str: ...

    @property
    def milestone(self) -> Callable[..., object]: ...  # as `RunSession.milestone`

    def check(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ReviewOptions:
    task: str  # short name; commit subjects begin with it
    title: str  # the task itself, of any length
    max_cycles: int = 3
    max_budget_usd: float = 0.0  # limit for all answers; 0: no limit
    lint: str | None = None  # linter command; None: no linter
    lint_retries: int = 2  # linter fixes that the coder may try per cycle
    # name → command that must succeed before the review, in order
    filters: Mapping[str, str] = field(default_factory=dict)
    epic: str = ""  # parent of the issues to create for findings; "": create no issues
    force: bool = False  # continue although HEAD has diverged from the recorded work


@dataclass(frozen=True, slots=True)
class ReviewVerdict:
    approved: bool
    cycles: int
    total_cost_usd: float
    findings: tuple[ReviewFinding, ...]  # of all cycles
    report: ReviewReport | None  # the reviewer's last report
    reason: str = ""  # why the work was not approved; "" if approved


# Errors of a review. Each leaves a checkpoint from which the run can be resumed.


class ReviewFailed(PhaseFailed):
    """The review ended before the reviewer approved the coder's work."""

    result: ReviewVerdict | None = None  # the progress up to the error; None if unknown


class MaxCyclesReached(ReviewFailed):
    """The reviewer did not approve the coder's work in the last allowed cycle."""


class BudgetExceeded(ReviewFailed):
    """The agents used up the budget before the reviewer approved the coder's work."""


class Struggling(ReviewFailed):
    """Findings or failures repeat, or costs are high: the agents make no progress."""


class AgentFailed(ReviewFailed):
    """A call of the coder or the reviewer failed."""


class CommitRefused(ReviewFailed):
    """git or a hook refused to commit the coder's work."""


class Diverged(ReviewFailed):
    """HEAD is not a descendant of the commit that the review recorded last."""


SAME, ANCESTOR, DIVERGED, UNKNOWN = "same", "ancestor", "diverged", "unknown"

_SUBJECT, _MAX_LINES = 72, 5
_ERRORS = ("fatal: ", "error: ")
_NO_IDENTITY = ["tell me who you are", "auto-detect email address", "empty ident name"]
_NO_IDENTITY += ["no email was given", "no name was given"]


class GitCommits:
    def __init__(self, path: str, env: Mapping[str, str] | None = None) -> None:
        self._prefix = [process.git_executable(), *DURABLE, "-C", path]
        self._env = process.git_environment(env)

    def read_head_commit(self) -> str:
        result = self._git("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
        if result.code not in (0, 1):
            raise GitError(["rev-parse"], result.code, result.error_text)
        return result.out.decode("ascii").strip()

    def commit(self, task: str, cycle: int, title: str, suffix: str = "") -> str:
        """Commit all changes except in ignored files, if there are any; return HEAD's id."""
        work_label = f"the work of cycle {cycle}"
        result = self._git("add", "--all")
        if result.code != 0:
            errors = [line for line in result.error_text.splitlines() if line.startswith(_ERRORS)]
            error = errors[0].partition(": ")[2] if errors else _last_output_lines(result)
            raise CommitRefused(f"cannot stage {work_label}: {error}", output=result.error_text)
        if self._git("diff", "--cached", "--quiet").code != 0:
            task, title = review.first_line(task, _SUBJECT), review.first_line(title, _SUBJECT)
            subject = f"{task}/cycle-{cycle}: {title}{suffix}"
            result = self._git("commit", "--quiet", "--message", subject)
            if result.code != 0:
                raise _make_commit_refused(work_label, result)
        return self.read_head_commit()

    def compare_to_head(self, recorded: str) -> str:
        """Return the relation of a commit to HEAD: SAME, ANCESTOR, DIVERGED or UNKNOWN."""
        head = self.read_head_commit()
        if recorded == head:
            return SAME
        if not recorded:
            return ANCESTOR
        if not ids.is_oid(recorded) or self._git("cat-file", "-e", f"{recorded}^{{commit}}").code:
            return UNKNOWN
        is_ancestor = head and not self._git("merge-base", "--is-ancestor", recorded, head).code
        return ANCESTOR if is_ancestor else DIVERGED

    def _git(self, *args: str) -> ProcResult:
        return process.run_program([*self._prefix, *args], env=self._env)


def _make_commit_refused(label: str, result: ProcResult) -> CommitRefused:
    output = result.error_text
    if any(phrase in output.lower() for phrase in _NO_IDENTITY):
        hint = "git config --global user.name NAME; git config --global user.email ADDRESS"
        message = f"cannot commit {label}: git has no author name and email"
        return CommitRefused(message, output=output, hint=hint)
    hint = "fix what the hook reports, then resume the run: the coder is not asked again"
    message = f"cannot commit {label}: {_last_output_lines(result)}"
    return CommitRefused(message, code=result.code, output=output, hint=hint)


def _last_output_lines(result: ProcResult) -> str:
    text = result.error_text + result.out.decode("utf-8", "replace")  # hooks may print to either
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-_MAX_LINES:]) or f"exit code {result.code}"


CODER, REVIEWER = "coder", "reviewer"

_MAX_FILTER_OUTPUT = 3000
_CYCLE, _FIX = "cycle", "lint fix"


class ReviewRunner:
    """Lets one agent write code and another review it, until the reviewer approves.

    The caller passes functions: `shell` runs a command, `tell` shows a line, `file` creates tracker
    issues for findings, and `refactor` returns the new text of a changed task, or None.
    """

    def __init__(
        self,
        journal: ReviewRecorder,
        coder: AskableAgent,
        reviewer: AskableAgent,
        commits: GitCommits,
        options: ReviewOptions,
        *,
        tell: Callable[[str], None],
        shell: Checker,
        file: Callable[[ReviewState], ReviewState] = lambda state: state,
        refactor: Callable[[], str | None] = lambda: None,
        clock: Callable[[], int] = times.now,
    ) -> None:
        self._journal, self._commits, self._options = journal, commits, options
        self._agents = {CODER: coder, REVIEWER: reviewer}
        self._tell, self._shell, self._file = tell, shell, file
        self._refactor, self._clock = refactor, clock
        self._state = ReviewState()

    def run_cycles(self) -> ReviewVerdict:
        """Run cycles until the reviewer approves the work. Raises ReviewFailed otherwise."""
        self._load_review_state()  # an error here changes nothing in the state
        try:
            while self._state.phase != review.APPROVED:
                self._journal.check()
                self._STEPS[self._state.phase](self)
        except (Cancelled, DeadlineReached):
            raise
        except PhaseFailed as error:
            self._record_failure(error)
            if isinstance(error, ReviewFailed):
                raise error.but(result=self._make_verdict()) from None
            raise
        return self._make_verdict()

    def _load_review_state(self) -> None:
        options, recorded_table = self._options, self._journal.state.get(review.KEY)
        cycles, budget, title = options.max_cycles, options.max_budget_usd, sanitize(options.title)
        if recorded_table is None:
            state = ReviewState(task_bead_id=options.task, task_title=title, max_cycles=cycles)
            head = self._commits.read_head_commit()
            self._state = replace(state, max_budget_usd=budget, base_commit_sha=head)
            self._start(review.BEAD_CREATED)
            return
        state = ReviewState.from_state_table(recorded_table)
        phase = review.find_resume_phase(state)
        if phase == review.APPROVED:
            self._state = state
            self._tell(f"approved already, in cycle {state.cycle}")
            return
        notice = self._require_recorded_work(state)
        cause = f", after: {state.problem}" if state.problem else ""
        self._tell(f"resumed from checkpoint: cycle {state.cycle}, {phase}{cause}")
        if notice:
            self._tell(notice)
        self._state = replace(
            state,
            phase=phase,
            failed_in="",
            problem="",
            # The error of the last attempt has reported the struggle.
            struggle="" if state.phase == review.ERROR else state.struggle,
            task_bead_id=state.task_bead_id or options.task,
            task_title=state.task_title or title,
            max_cycles=cycles,
            max_budget_usd=budget,
        )

    def _require_recorded_work(self, state: ReviewState) -> str:
        """Return a notice if HEAD has moved. Raises Diverged if HEAD lacks recorded work."""
        base, relation = state.git_sha, self._commits.compare_to_head(state.git_sha)
        if relation == SAME:
            return ""
        head = self._commits.read_head_commit() or "unborn"
        if relation == ANCESTOR:
            return f"HEAD has moved from {base or 'nothing'} to {head}; continuing from there"
        clause = "which is no descendant of" if relation == DIVERGED else "and there is no commit"
        message = f"HEAD is {head}, {clause} {base}, where cycle {state.cycle} was recorded"
        if self._options.force:
            return f"{message}; continuing nevertheless"
        force_command = f"git ckpt resume {self._journal.id} --force"
        hint = f"go back: git checkout {base}; or continue from HEAD: {force_command}"
        raise Diverged(message, hint=hint)

    # One method per phase; see _STEPS.

    def _begin_next_cycle(self) -> None:
        state = self._state
        self._require_budget_left()
        if state.struggle:
            hint = "split the task or describe it better; resuming the run tries another cycle"
            raise Struggling(f"struggling: {state.struggle}", hint=hint)
        if state.cycle >= state.max_cycles:
            resume_command = f"git ckpt resume {self._journal.id} --input max_cycles=N"
            message = f"not approved after {state.cycle} cycles, which is the limit"
            hint = f"look at the findings; to allow more cycles: {resume_command}"
            raise MaxCyclesReached(message, hint=hint)
        empty_outputs = dict.fromkeys(("lint_output", "filter_output", "filter_check_name"), "")
        cycle = state.cycle + 1
        self._tell(f"cycle {cycle} of {state.max_cycles}")
        self._start(review.CODING, cycle=cycle, lint_fixes=0, verifications=(), **empty_outputs)

    def _ask_coder(self) -> None:
        answer = self._ask_agent(CODER, build_coder_prompt(self._state))
        new_values = {"coder_output": review.cut(answer, review.LONGEST), "uncommitted": _CYCLE}
        new_values |= dict.fromkeys(("original_description", "refactor_description"), "")
        self._start(review.CODE_COMPLETE, refactored=False, **new_values)

    def _commit_coder_work(self) -> None:
        self._commit_pending_work()
        self._require_budget_left()
        self._start(review.LINTING if self._options.lint is not None else self._next_phase())

    def _run_linter(self) -> None:
        self._commit_pending_work()
        self._require_budget_left()
        state, command = self._state, self._options.lint
        if state.lint_output and command is not None:
            self._ask_agent(CODER, build_lint_prompt(state))
            fix_count = state.lint_fixes + 1
            self._start(review.LINTING, lint_output="", lint_fixes=fix_count, uncommitted=_FIX)
            return
        exit_code, output = self._shell(command) if command is not None else (0, "")
        if exit_code == 0:
            self._commit_pending_work(_FIX)  # the linter may fix files itself
            self._start(self._next_phase())
            return
        is_last_try = state.lint_fixes >= self._options.lint_retries
        lint_result = "still complains; the reviewer will be told" if is_last_try else "complains"
        self._tell(f"cycle {state.cycle}: the linter {lint_result}")
        lint_output = review.cut(f"$ {command}\n{_clean_output(output, exit_code)}", review.LONGEST)
        self._start(self._next_phase() if is_last_try else review.LINTING, lint_output=lint_output)

    def _next_phase(self) -> str:
        return review.FILTERING if self._options.filters else review.REVIEWING

    def _run_filters(self) -> None:
        for name, command in self._options.filters.items():
            exit_code, output = self._shell(command)
            if exit_code != 0:
                output, cycle = _clean_output(output, exit_code), self._state.cycle
                self._tell(f"cycle {cycle}: the filter {name} fails")
                description = f"{_filter_prefix(name)} {review.cut(output, _MAX_FILTER_OUTPUT)}"
                finding = ReviewFinding(review.CRITICAL, description, cycle)
                filter_output = review.cut(output, review.LONGEST)
                self._reject_work((finding,), filter_check_name=name, filter_output=filter_output)
                return
            findings = list(self._state.all_findings)
            for i, old_finding in enumerate(findings):
                if old_finding.description.startswith(_filter_prefix(name)):
                    findings[i] = replace(old_finding, status=review.FIXED)
            self._state = replace(self._state, all_findings=tuple(findings))
        self._start(review.REVIEWING, filter_output="", filter_check_name="")

    def _ask_reviewer(self) -> None:
        answer = self._ask_agent(REVIEWER, build_reviewer_prompt(self._state))
        self._start(review.REVIEW_COMPLETE, review_output=review.cut_start(answer, review.LONGEST))

    def _process_review_answer(self) -> None:
        state, answer = self._state, self._state.review_output
        cycle, report = state.cycle, review.parse_report(answer)
        findings = tuple(replace(finding, cycle=cycle) for finding in review.parse_findings(answer))
        checks = review.parse_verifications(answer)
        old_findings = review.update_statuses(state.all_findings, checks)
        self._state = replace(state, verifications=checks, all_findings=old_findings, report=report)
        if review.is_approved(answer):
            self._record_cycle_commit()
            self._tell(f"cycle {cycle}: approved")
            self._start(review.APPROVED, findings=findings, all_findings=(*old_findings, *findings))
            return
        noun = "finding" if len(findings) == 1 else "findings"
        self._tell(f"cycle {cycle}: not approved, {len(findings)} {noun}")
        self._reject_work(findings)

    def _reject_work(self, findings: tuple[ReviewFinding, ...], **changes: Any) -> None:
        self._record_cycle_commit()
        self._apply_task_change()
        state = self._state
        changes["all_findings"] = (*state.all_findings, *findings)
        changes["filter_history"] = (*state.filter_history, changes.get("filter_check_name", ""))
        self._state = self._file(replace(state, findings=findings, **changes))
        self._start(review.RESOLVING_ISSUES, struggle=explain_struggle(self._state))

    def _record_cycle_commit(self) -> None:
        state = self._state
        if state.last_cycle_sha:
            commits = (*state.cycle_commits, state.last_cycle_sha)
            self._state = replace(state, cycle_commits=commits, last_cycle_sha="")

    def _apply_task_change(self) -> None:
        state = self._state
        task = sanitize(self._refactor() or "")
        if review.trim(task) and task != state.task_title:
            self._tell("the task was changed; the coder gets it in the next cycle")
            state = replace(state, refactored=True, original_description=state.task_title)
            self._state = replace(state, refactor_description=task, task_title=task)

    def _ask_agent(self, role: str, prompt: str) -> str:
        state = self._state
        self._tell(f"cycle {state.cycle}: the {role} is at work")
        prompt = prompt.replace("\0", "\ufffd")  # a command argument cannot contain NUL
        env = {BUDGET_VARIABLE: f"{state.budget_share:.4f}"} if state.max_budget_usd > 0 else {}
        session = state.sessions.get(role) if role == CODER else None
        reply = self._agents[role].ask_agent(prompt, session, env)
        price, sessions = reply.cost_usd or 0.0, state.sessions
        # Ignore a price that is not a positive finite number.
        total_cost = state.total_cost_usd + (price if math.isfinite(price) and price > 0 else 0.0)
        if reply.session:
            sessions = {**sessions, role: sanitize(reply.session)}
        self._state = replace(state, total_cost_usd=total_cost, sessions=sessions)
        if not reply.ok:
            problem = sanitize(reply.problem) or "no reason given"
            message = f"the {role} failed in cycle {state.cycle}: {problem}"
            raise AgentFailed(message, hint=f"to ask the {role} again, resume the run")
        return sanitize(reply.text)

    def _require_budget_left(self) -> None:
        spent_usd, budget_usd = self._state.total_cost_usd, self._state.max_budget_usd
        if 0 < budget_usd <= spent_usd:
            used_budget = f"{spent_usd:.2f} of {budget_usd:.2f} USD in cycle {self._state.cycle}"
            hint = f"allow more: git ckpt resume {self._journal.id} --input max_budget=USD"
            raise BudgetExceeded(f"the budget is used up: {used_budget}", hint=hint)

    def _commit_pending_work(self, kind: str = "") -> None:
        # Commit only work of the coder or linter: other changes were made outside of the review.
        state = self._state
        kind = state.uncommitted or kind
        if kind:
            suffix = " (lint fix)" if kind == _FIX else ""
            sha = self._commits.commit(state.task_bead_id, state.cycle, state.task_title, suffix)
            self._state = replace(state, last_cycle_sha=sha, uncommitted="")

    def _start(self, phase: str, **changes: Any) -> None:
        self._state = replace(self._state, phase=phase, **changes)
        self._record_state(f"cycle {self._state.cycle}: {phase}")

    def _record_failure(self, error: PhaseFailed) -> None:
        # A resumed review continues in the phase that failed.
        state, problem = self._state, sanitize(error.message)
        self._state = replace(state, phase=review.ERROR, failed_in=state.phase, problem=problem)
        self._record_state(f"cycle {state.cycle}: {review.ERROR}", error.errors)

    def _record_state(self, message: str, errors: Sequence[str] = ()) -> None:
        head, timestamp = self._commits.read_head_commit(), times.to_text(self._clock())
        self._state = state = replace(self._state, git_sha=head, created_at=timestamp)
        self._journal.state[review.KEY] = state.to_state_table()
        current_phase = state.failed_in or state.phase
        self._journal.milestone(
            trigger="review",
            message=message,
            progress=Progress(state.cycle, state.max_cycles, current_phase),
            errors=[sanitize(error) for error in errors],
        )

    def _make_verdict(self) -> ReviewVerdict:
        state, is_approved = self._state, self._state.phase == review.APPROVED
        cost, findings = state.total_cost_usd, state.all_findings
        return ReviewVerdict(is_approved, state.cycle, cost, findings, state.report, state.problem)

    _STEPS: ClassVar[dict[str, Callable[[ReviewRunner], None]]] = {
        review.IDLE: _begin_next_cycle,
        review.BEAD_CREATED: _begin_next_cycle,
        review.CODING: _ask_coder,
        review.CODE_COMPLETE: _commit_coder_work,
        review.LINTING: _run_linter,
        review.FILTERING: _run_filters,
        review.REVIEWING: _ask_reviewer,
        review.REVIEW_COMPLETE: _process_review_answer,
        review.RESOLVING_ISSUES: _begin_next_cycle,
    }


def _clean_output(output: str, code: int) -> str:
    return review.trim(secrets.mask_text(sanitize(output))) or f"exit code {code}, no output"


def _filter_prefix(name: str) -> str:
    return f"{review.FILTER_PREFIX}{name}]"
