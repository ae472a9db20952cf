"""State machine of a review; a table in the run's state is its only memory.

    bead_created → coding → code_complete → linting → filtering → reviewing → review_complete
                     ↑                                    │                       │      ↓
                     └───────── resolving_issues ←────────┴───────────────────────┘   approved

The step of a phase needs nothing but that table, so a review can stop and resume anywhere. An
answer is recorded before it is processed: only an answer lost in a crash is asked for again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from gitckpt.durable.phases.review import prompts
from gitckpt.durable.phases.review import state as replies
from gitckpt.durable.phases.review.state import (
    APPROVED,
    BEAD_CREATED,
    CODE_COMPLETE,
    CODING,
    CRITICAL,
    ERROR,
    FILTERING,
    FIXED,
    IDLE,
    KEY,
    LINTING,
    LONGEST,
    OF_FILTER,
    RESOLVING_ISSUES,
    REVIEW_COMPLETE,
    REVIEWING,
    CycleState,
    ReviewFinding,
    ReviewReport,
    cut,
    ending,
    first_line,
    resumes_in,
    storable,
    trimmed,
    verified,
)
from gitckpt.durable.run.attempts import Cancelled, DeadlineReached, PhaseFailed
from gitckpt.git import process
from gitckpt.git.command import DURABLE
from gitckpt.git.process import Completed, GitError
from gitckpt.model import ids, times
from gitckpt.model.checkpoint import Progress
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


# Detect that coder and reviewer make no progress.

_FIRST_CYCLE = 2  # the first one in which this can be detected

_THRESHOLD = 0.6
_FILTER_WEIGHT, _OVERLAP_WEIGHT, _BURN_WEIGHT = 0.35, 0.40, 0.25
# Repeats and overlap from which these signs have full weight. The burn rate counts from an even
# share of the budget on, and has full weight at twice that share.
_REPEATS, _OVERLAP = 2, 0.6

_SAME = 0.8  # two descriptions with this likeness are taken as equal


@dataclass(frozen=True, slots=True)
class Signs:
    repeats: int = 0  # consecutive cycles in which the same filter failed
    overlap: float = 0.0  # fraction of the findings that resemble earlier ones, 0 to 1
    burn: float = 0.0  # cost of a cycle as a multiple of its even share of the budget

    @property
    def score(self) -> float:
        return (
            _FILTER_WEIGHT * min(self.repeats / _REPEATS, 1)
            + _OVERLAP_WEIGHT * min(self.overlap / _OVERLAP, 1)
            + _BURN_WEIGHT * min(max(self.burn - 1, 0), 1)
        )

    def sentence(self) -> str:
        parts = []
        if self.repeats:
            count = f" in {self.repeats} cycles in a row" if self.repeats > 1 else ""
            parts.append(f"the same filter failed{count}" if count else "a filter failed")
        if self.overlap:
            parts.append(f"{self.overlap:.0%} of the findings are those of earlier cycles")
        if self.burn > 1:
            parts.append(f"a cycle costs {self.burn:.2f} times its share of the budget")
        return ", ".join(parts)


def signs(state: CycleState) -> Signs:
    """Return the signs after a failed cycle; none before `_FIRST_CYCLE`."""
    if state.cycle < _FIRST_CYCLE:
        return Signs()
    earlier = [finding for finding in state.all_findings if finding.cycle < state.cycle]
    return Signs(repeats(state.filter_history), overlap(state.findings, earlier), burn(state))


def struggle_reason(state: CycleState) -> str:
    current = signs(state)
    return current.sentence() if current.score >= _THRESHOLD else ""


def repeats(history: Sequence[str]) -> int:
    count = 0
    for name in reversed(history):
        if not name or name != history[-1]:
            break
        count += 1
    return count


def overlap(current: Sequence[ReviewFinding], earlier: Iterable[ReviewFinding]) -> float:
    known = [finding.description for finding in earlier]
    similar = [
        finding
        for finding in current
        if any(likeness(finding.description, other) >= _SAME for other in known)
    ]
    return len(similar) / len(current) if current else 0.0


def burn(state: CycleState) -> float:
    """Return the cost of a cycle relative to its budget share; 0 without budget."""
    if state.max_budget_usd <= 0 or state.max_cycles <= 0 or state.cycle <= 0:
        return 0.0
    return (state.total_cost_usd / state.cycle) / (state.max_budget_usd / state.max_cycles)


def likeness(one: str, other: str) -> float:
    """Return the Jaccard similarity of the words of two texts, ignoring case, 0 to 1."""
    words, others = set(one.lower().split()), set(other.lower().split())
    return len(words & others) / len(words | others) if words | others else 1.0


# Inputs and result of a review.

# Tells an agent the budget of its answer, in US dollars. The agent may ignore it.
BUDGET_VARIABLE = "CKPT_BUDGET_USD"

# Runs a command in the worktree; returns its exit code and output.
Checker = Callable[[str], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Reply:
    ok: bool  # whether the agent did what it was asked
    problem: str = ""  # one sentence
    text: str = ""
    cost_usd: float | None = None  # None: unknown
    session: str | None = None  # id of the conversation; None: unknown


class AskableAgent(Protocol):
    """An agent, asked in the conversation `session` with additional variables `env`."""

    def ask(self, prompt: str, session: str | None, env: Mapping[str, str]) -> Reply: ...


class Journal(Protocol):
    state: dict[str, Any]  # JSON values; a later attempt starts from them

    @property
    def id(self) -> str: ...

    def milestone(
        self,
        *,
        trigger: str = "review",
        message: str | None = None,
        progress: Progress | None = None,
        errors: Sequence[str] = (),
    ) -> object: ...

    def check(self) -> None: ...


class CommitAccess(Protocol):
    def head(self) -> str: ...

    def commit(self, task: str, cycle: int, title: str, suffix: str = "") -> str: ...

    def relation(self, recorded: str) -> str: ...


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
    epic: str = ""  # issue below which each finding becomes an issue; "": none
    force: bool = False  # continue although HEAD has diverged from the recorded work


@dataclass(frozen=True, slots=True)
class Verdict:
    approved: bool
    cycles: int
    total_cost_usd: float
    findings: tuple[ReviewFinding, ...]  # of all cycles
    report: ReviewReport | None  # the last one of the reviewer
    reason: str = ""  # why it was not approved; "" if it was


# Errors of a review. Each leaves a checkpoint from which the run can be resumed.


class ReviewFailed(PhaseFailed):
    """The work was not approved."""

    result: Verdict | None = None  # the progress until then; None if unknown


class MaxCyclesReached(ReviewFailed):
    """The last allowed cycle ended without approval."""


class BudgetExceeded(ReviewFailed):
    """The budget is used up, and the work is not approved."""


class Struggling(ReviewFailed):
    """Coder and reviewer make no progress."""


class AgentFailed(ReviewFailed):
    """Coder or reviewer could not answer."""


class CommitRefused(ReviewFailed):
    """git or a hook refused to commit the coder's work."""


class Diverged(ReviewFailed):
    """HEAD does not follow the commit of the recorded work."""


# Commits of the worktree, one per cycle.

SAME, ANCESTOR, DIVERGED, UNKNOWN = "same", "ancestor", "diverged", "unknown"

_SUBJECT = 72
_MAX_LINES = 5
_ERRORS = ("fatal: ", "error: ")
_NO_IDENTITY = (
    "tell me who you are",
    "auto-detect email address",
    "empty ident name",
    "no email was given",
    "no name was given",
)


class Commits:
    """The commits of a worktree, made with the user's hooks."""

    def __init__(self, path: str, env: Mapping[str, str] | None = None) -> None:
        self._prefix = [process.git_executable(), *DURABLE, "-C", path]
        self._env = process.environment(env)

    def head(self) -> str:
        done = self._git("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
        if done.code not in (0, 1):
            raise GitError(["rev-parse"], done.code, done.complaint)
        return done.out.decode("ascii").strip()

    def commit(self, task: str, cycle: int, title: str, suffix: str = "") -> str:
        """Commit all changes that are not ignored, if there are any, and return HEAD.

        The subject is `<task>/cycle-<n>: <title><suffix>`, with the first line of the title.
        """
        work = f"the work of cycle {cycle}"
        done = self._git("add", "--all")
        if done.code != 0:
            raise CommitRefused(f"cannot stage {work}: {_error_of(done)}", output=done.complaint)
        if self._git("diff", "--cached", "--quiet").code != 0:
            task, title = first_line(task, _SUBJECT), first_line(title, _SUBJECT)
            subject = f"{task}/cycle-{cycle}: {title}{suffix}"
            done = self._git("commit", "--quiet", "--message", subject)
            if done.code != 0:
                raise _refusal(work, done)
        return self.head()

    def relation(self, recorded: str) -> str:
        """Return how a recorded commit relates to HEAD.

        SAME; ANCESTOR, if HEAD is ahead of it; DIVERGED; or UNKNOWN, if there is no such commit.
        The oid of an unborn branch is "".
        """
        head = self.head()
        if recorded == head:
            return SAME
        if not recorded:
            return ANCESTOR
        exists = ids.is_oid(recorded) and self._git("cat-file", "-e", f"{recorded}^{{commit}}")
        if not exists or exists.code != 0:
            return UNKNOWN
        is_ahead = head and self._git("merge-base", "--is-ancestor", recorded, head).code == 0
        return ANCESTOR if is_ahead else DIVERGED

    def _git(self, *args: str) -> Completed:
        return process.run([*self._prefix, *args], env=self._env)


def _refusal(work: str, done: Completed) -> CommitRefused:
    output = done.complaint
    if any(words in output.lower() for words in _NO_IDENTITY):
        hint = "git config --global user.name NAME; git config --global user.email ADDRESS"
        message = f"cannot commit {work}: git has no author name and email"
        return CommitRefused(message, output=output, hint=hint)
    hint = "fix what the hook reports, then resume the run: the coder is not asked again"
    message = f"cannot commit {work}: {_last_lines(done)}"
    return CommitRefused(message, code=done.code, output=output, hint=hint)


def _error_of(done: Completed) -> str:
    """Return the first error line of git, without its advice."""
    lines = [line for line in done.complaint.splitlines() if line.startswith(_ERRORS)]
    return lines[0].partition(": ")[2] if lines else _last_lines(done)


def _last_lines(done: Completed) -> str:
    text = done.complaint + done.out.decode("utf-8", "replace")  # hooks may print to either
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-_MAX_LINES:]) or f"exit code {done.code}"


# The state machine.

_TRIGGER = "review"
CODER, REVIEWER = "coder", "reviewer"

_LINT_FIX = " (lint fix)"
_MAX_FILTER_OUTPUT = 3000
_CYCLE, _FIX = "cycle", "lint fix"


class Review:
    """The review of one task, from its first or its recorded cycle to approval.

    Args:
        coder: does the work, in one conversation.
        reviewer: judges it, in a new conversation each time.
        file: adds new findings to a tracker, after each cycle that was not approved.
        refactor: returns the changed task; None or the same text if it did not change.
    """

    def __init__(
        self,
        journal: Journal,
        coder: AskableAgent,
        reviewer: AskableAgent,
        commits: CommitAccess,
        options: ReviewOptions,
        *,
        tell: Callable[[str], None],
        shell: Checker,
        file: Callable[[CycleState], CycleState] = lambda state: state,
        refactor: Callable[[], str | None] | None = None,
        clock: Callable[[], int] = times.now,
    ) -> None:
        self._journal = journal
        self._agents = {CODER: coder, REVIEWER: reviewer}
        self._commits = commits
        self._options = options
        self._tell = tell
        self._shell = shell
        self._file = file
        self._refactor = refactor
        self._clock = clock
        self._state = CycleState()

    def go(self) -> Verdict:
        """Continue until the work is approved; a failure is recorded with the progress."""
        self._open()  # its errors leave everything unchanged
        try:
            while self._state.phase != APPROVED:
                self._journal.check()
                self._STEPS[self._state.phase](self)
        except (Cancelled, DeadlineReached):
            raise
        except ReviewFailed as error:
            self._fail(error)
            raise error.but(result=self._result()) from None
        except PhaseFailed as error:
            self._fail(error)
            raise
        return self._result()

    def _open(self) -> None:
        options, recorded = self._options, self._journal.state.get(KEY)
        limits: dict[str, Any] = {
            "max_cycles": options.max_cycles,
            "max_budget_usd": options.max_budget_usd,
        }
        title = storable(options.title)
        if recorded is None:
            base = self._commits.head()
            self._state = CycleState(
                task_bead_id=options.task, task_title=title, base_commit_sha=base, **limits
            )
            self._enter(BEAD_CREATED)
            return
        state = CycleState.from_state(recorded)
        phase = resumes_in(state)
        if phase == APPROVED:
            self._state = state
            self._tell(f"approved already, in cycle {state.cycle}")
            return
        notice = _require_base(state, self._commits, self._journal.id, force=options.force)
        after = f", after: {state.problem}" if state.problem else ""
        self._tell(f"resumed from checkpoint: cycle {state.cycle}, {phase}{after}")
        if notice:
            self._tell(notice)
        self._state = replace(
            state,
            phase=phase,
            failed_in="",
            problem="",
            # An error has reported the struggle already.
            struggle="" if state.phase == ERROR else state.struggle,
            task_bead_id=state.task_bead_id or options.task,
            task_title=state.task_title or title,
            **limits,
        )

    # One method per phase; see _STEPS.

    def _next_cycle(self) -> None:
        state = self._state
        self._require_budget()
        if state.struggle:
            raise Struggling(
                f"struggling: {state.struggle}",
                hint="split the task or describe it better; resuming the run tries another cycle",
            )
        if state.cycle >= state.max_cycles:
            raise MaxCyclesReached(
                f"not approved after {state.cycle} cycles, which is the limit",
                hint="look at the findings; to allow more cycles: "
                f"git ckpt resume {self._journal.id} --input max_cycles=N",
            )
        self._tell(f"cycle {state.cycle + 1} of {state.max_cycles}")
        self._enter(
            CODING,
            cycle=state.cycle + 1,
            lint_output="",
            lint_fixes=0,
            filter_output="",
            filter_check_name="",
            verifications=(),
        )

    def _code(self) -> None:
        answer = self._ask(CODER, prompts.coder(self._state))
        self._enter(
            CODE_COMPLETE,
            coder_output=cut(answer, LONGEST),
            uncommitted=_CYCLE,
            refactored=False,
            original_description="",
            refactor_description="",
        )

    def _leave_coding(self) -> None:
        self._commit()
        self._require_budget()
        self._enter(LINTING if self._options.lint is not None else self._after_linting())

    def _lint(self) -> None:
        self._commit()
        self._require_budget()
        state, command = self._state, self._options.lint
        if state.lint_output and command is not None:
            self._ask(CODER, prompts.lint_fix(state))
            self._enter(LINTING, lint_output="", lint_fixes=state.lint_fixes + 1, uncommitted=_FIX)
            return
        code, output = self._shell(command) if command is not None else (0, "")
        if code == 0:
            self._commit(_FIX)  # the linter may fix files itself
            self._enter(self._after_linting())
            return
        is_last = state.lint_fixes >= self._options.lint_retries
        complaint = "still complains; the reviewer will be told" if is_last else "complains"
        self._tell(f"cycle {state.cycle}: the linter {complaint}")
        self._enter(
            self._after_linting() if is_last else LINTING,
            lint_output=cut(f"$ {command}\n{_shown_output(output, code)}", LONGEST),
        )

    def _after_linting(self) -> str:
        return FILTERING if self._options.filters else REVIEWING

    def _filter(self) -> None:
        for name, command in self._options.filters.items():
            code, output = self._shell(command)
            if code != 0:
                output = _shown_output(output, code)
                cycle = self._state.cycle
                self._tell(f"cycle {cycle}: the filter {name} fails")
                description = f"{_mark(name)} {cut(output, _MAX_FILTER_OUTPUT)}"
                finding = ReviewFinding(CRITICAL, description, cycle)
                self._settle((finding,), filter_check_name=name, filter_output=cut(output, LONGEST))
                return
            self._state = replace(
                self._state,
                all_findings=tuple(
                    replace(finding, status=FIXED)
                    if finding.description.startswith(_mark(name))
                    else finding
                    for finding in self._state.all_findings
                ),
            )
        self._enter(REVIEWING, filter_output="", filter_check_name="")

    def _review(self) -> None:
        answer = self._ask(REVIEWER, prompts.reviewer(self._state))
        self._enter(REVIEW_COMPLETE, review_output=ending(answer, LONGEST))

    def _judge(self) -> None:
        state, answer = self._state, self._state.review_output
        cycle = state.cycle
        findings = tuple(replace(finding, cycle=cycle) for finding in replies.findings(answer))
        verifications = replies.verifications(answer)
        self._state = replace(
            state,
            verifications=verifications,
            all_findings=verified(state.all_findings, verifications),
            report=replies.report(answer),
        )
        if replies.is_approved(answer):
            self._seal()
            self._tell(f"cycle {cycle}: approved")
            self._enter(
                APPROVED, findings=findings, all_findings=(*self._state.all_findings, *findings)
            )
            return
        noun = "finding" if len(findings) == 1 else "findings"
        self._tell(f"cycle {cycle}: not approved, {len(findings)} {noun}")
        self._settle(findings)

    def _settle(self, findings: tuple[ReviewFinding, ...], **changes: Any) -> None:
        self._seal()
        self._take_refactoring()
        state = self._state
        self._state = replace(
            state,
            findings=findings,
            all_findings=(*state.all_findings, *findings),
            filter_history=(*state.filter_history, changes.get("filter_check_name", "")),
            **changes,
        )
        self._state = self._file(self._state)
        self._enter(RESOLVING_ISSUES, struggle=struggle_reason(self._state))

    def _seal(self) -> None:
        state = self._state
        if state.last_cycle_sha:
            self._state = replace(
                state, cycle_commits=(*state.cycle_commits, state.last_cycle_sha), last_cycle_sha=""
            )

    def _take_refactoring(self) -> None:
        state = self._state
        task = storable((self._refactor() if self._refactor is not None else None) or "")
        if trimmed(task) and task != state.task_title:
            self._tell("the task was changed; the coder gets it in the next cycle")
            self._state = replace(
                state,
                refactored=True,
                original_description=state.task_title,
                refactor_description=task,
                task_title=task,
            )

    def _ask(self, role: str, prompt: str) -> str:
        """Ask an agent; record cost and conversation even if it failed."""
        state = self._state
        self._tell(f"cycle {state.cycle}: the {role} is at work")
        prompt = prompt.replace("\0", "\ufffd")  # a command argument cannot contain NUL
        env = {BUDGET_VARIABLE: f"{state.budget_share:.4f}"} if state.max_budget_usd > 0 else {}
        session = state.sessions.get(role) if role == CODER else None
        reply = self._agents[role].ask(prompt, session, env)
        cost, sessions = state.total_cost_usd + _amount(reply.cost_usd), state.sessions
        if reply.session:
            sessions = {**sessions, role: storable(reply.session)}
        self._state = replace(state, total_cost_usd=cost, sessions=sessions)
        if not reply.ok:
            problem = storable(reply.problem) or "no reason given"
            raise AgentFailed(
                f"the {role} failed in cycle {state.cycle}: {problem}",
                hint="to ask again, resume the run",
            )
        return storable(reply.text)

    def _require_budget(self) -> None:
        spent, budget = self._state.total_cost_usd, self._state.max_budget_usd
        if 0 < budget <= spent:
            used = f"{spent:.2f} of {budget:.2f} USD in cycle {self._state.cycle}"
            resume = f"git ckpt resume {self._journal.id}"
            raise BudgetExceeded(
                f"the budget is used up: {used}",
                hint=f"allow more: {resume} --input max_budget=USD",
            )

    def _commit(self, what: str = "") -> None:
        # Without `uncommitted`, this commits changes that were made outside of the review.
        state = self._state
        what = state.uncommitted or what
        if what:
            suffix = _LINT_FIX if what == _FIX else ""
            sha = self._commits.commit(state.task_bead_id, state.cycle, state.task_title, suffix)
            self._state = replace(state, last_cycle_sha=sha, uncommitted="")

    def _enter(self, phase: str, **changes: Any) -> None:
        self._state = replace(self._state, phase=phase, **changes)
        self._record(f"cycle {self._state.cycle}: {phase}")

    def _fail(self, error: PhaseFailed) -> None:
        # A resumed review continues in the phase that failed.
        self._state = replace(
            self._state, phase=ERROR, failed_in=self._state.phase, problem=storable(error.message)
        )
        self._record(f"cycle {self._state.cycle}: {ERROR}", error.errors)

    def _record(self, message: str, errors: Sequence[str] = ()) -> None:
        self._state = state = replace(
            self._state, git_sha=self._commits.head(), created_at=times.to_text(self._clock())
        )
        self._journal.state[KEY] = state.to_state()
        task = state.failed_in or state.phase
        self._journal.milestone(
            trigger=_TRIGGER,
            message=message,
            progress=Progress(
                current_phase=state.cycle, total_phases=state.max_cycles, current_task=task
            ),
            errors=[storable(error) for error in errors],
        )

    def _result(self) -> Verdict:
        state = self._state
        return Verdict(
            state.phase == APPROVED,
            state.cycle,
            state.total_cost_usd,
            state.all_findings,
            state.report,
            state.problem,
        )

    _STEPS: ClassVar[dict[str, Callable[[Review], None]]] = {
        IDLE: _next_cycle,
        BEAD_CREATED: _next_cycle,
        CODING: _code,
        CODE_COMPLETE: _leave_coding,
        LINTING: _lint,
        FILTERING: _filter,
        REVIEWING: _review,
        REVIEW_COMPLETE: _judge,
        RESOLVING_ISSUES: _next_cycle,
    }


def _require_base(state: CycleState, commits: CommitAccess, run: str, *, force: bool) -> str:
    """Return a message if HEAD has moved; raise `Diverged` if it has diverged."""
    relation = commits.relation(state.git_sha)
    if relation == SAME:
        return ""
    head = commits.head() or "unborn"
    if relation == ANCESTOR:
        return f"HEAD has moved from {state.git_sha or 'nothing'} to {head}; continuing from there"
    relative = "which does not follow" if relation == DIVERGED else "and there is no commit"
    message = f"HEAD is {head}, {relative} {state.git_sha}, where cycle {state.cycle} was recorded"
    if not force:
        raise Diverged(
            message,
            hint=f"go back: git checkout {state.git_sha}; or continue from HEAD: "
            f"git ckpt resume {run} --force",
        )
    return f"{message}; continuing nevertheless"


def _amount(cost: float | None) -> float:
    # Anything else would spoil the sum.
    return cost if cost is not None and math.isfinite(cost) and cost > 0 else 0.0


def _shown_output(output: str, code: int) -> str:
    return trimmed(secrets.masked(storable(output))) or f"exit code {code}, no output"


def _mark(name: str) -> str:
    return f"{OF_FILTER}{name}]"
