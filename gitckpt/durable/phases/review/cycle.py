"""The cycle of coder and reviewer, as a machine whose whole memory is a table of the run's state.

    bead_created ─→ coding ─→ code_complete ─→ linting ─→ filtering ─→ reviewing ─→ review_complete ─→ approved
                      ↑                                       │                            │
                      └────────────── resolving_issues ←──────┴────────────────────────────┘

Whatever phase the table names, the step of that phase begins with nothing else; so one can stop anywhere and go on. An answer is in the
table before anything is made of it: nobody is asked twice but for the answer that a crash cut off.
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


# Notices that coder and reviewer go round in circles. Pure.


_FIRST_CYCLE = 2
"""The first cycle that can show it."""

_THRESHOLD = 0.6
_FILTER_WEIGHT, _OVERLAP_WEIGHT, _BURN_WEIGHT = 0.35, 0.40, 0.25
_REPEATS, _OVERLAP = 2, 0.6
"""From where on the first two count in full. The third counts from an even share of the budget on, and in full from twice of it."""

_SAME = 0.8
"""How alike two descriptions are that say the same."""


@dataclass(frozen=True, slots=True)
class Signs:
    """How much it looks like a struggle.

    Attributes:
        repeats: in how many cycles on end the same filter failed.
        overlap: which part of this cycle's findings is like one of an earlier cycle, from 0 to 1.
        burn: what a cycle costs, as a multiple of what each may cost if the budget is to last for all.
    """

    repeats: int = 0
    overlap: float = 0.0
    burn: float = 0.0

    @property
    def score(self) -> float:
        """All signs together, from 0 to 1."""
        return (
            _FILTER_WEIGHT * min(self.repeats / _REPEATS, 1)
            + _OVERLAP_WEIGHT * min(self.overlap / _OVERLAP, 1)
            + _BURN_WEIGHT * min(max(self.burn - 1, 0), 1)
        )

    def sentence(self) -> str:
        """Returns the signs that were seen, for people."""
        said = []
        if self.repeats:
            said.append(f"the same filter failed in {self.repeats} cycles on end" if self.repeats > 1 else "a filter failed")
        if self.overlap:
            said.append(f"{self.overlap:.0%} of the findings are those of earlier cycles")
        if self.burn > 1:
            said.append(f"a cycle costs {self.burn:.2f} times its share of the budget")
        return ", ".join(said)


def signs(state: CycleState) -> Signs:
    """Returns what a state shows at the end of a cycle that was not approved; nothing before `_FIRST_CYCLE`."""
    if state.cycle < _FIRST_CYCLE:
        return Signs()
    earlier = [each for each in state.all_findings if each.cycle < state.cycle]
    return Signs(repeats(state.filter_history), overlap(state.findings, earlier), burn(state))


def reason(state: CycleState) -> str:
    """Returns why a state at the end of a cycle is taken for a struggle; "" where it is not."""
    seen = signs(state)
    return seen.sentence() if seen.score >= _THRESHOLD else ""


def repeats(history: Sequence[str]) -> int:
    """Returns how often the last filter that failed did so on end; 0 where none failed last."""
    count = 0
    for name in reversed(history):
        if not name or name != history[-1]:
            break
        count += 1
    return count


def overlap(current: Sequence[ReviewFinding], earlier: Iterable[ReviewFinding]) -> float:
    """Returns which part of some findings is like an earlier one, from 0 to 1."""
    known = [each.description for each in earlier]
    same = [each for each in current if any(likeness(each.description, other) >= _SAME for other in known)]
    return len(same) / len(current) if current else 0.0


def burn(state: CycleState) -> float:
    """Returns what a cycle costs, as a multiple of its even share of the budget; 0 where there is none."""
    if state.max_budget_usd <= 0 or state.max_cycles <= 0 or state.cycle <= 0:
        return 0.0
    return (state.total_cost_usd / state.cycle) / (state.max_budget_usd / state.max_cycles)


def likeness(one: str, other: str) -> float:
    """Returns how many of the words of two texts are in both (Jaccard), from 0 to 1; upper and lower case are the same."""
    words, others = set(one.lower().split()), set(other.lower().split())
    return len(words & others) / len(words | others) if words | others else 1.0


# What a review is given, and what it gives back: agents, journal, commits, options, result.


BUDGET_VARIABLE = "CKPT_BUDGET_USD"
"""The environment variable that tells an agent what its answer may cost, in US dollars. It may ignore it."""

Checker = Callable[[str], tuple[int, str]]
"""Runs a command in the worktree, and returns its exit code and what it printed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an agent answers.

    Attributes:
        ok: whether it did what it was asked.
        problem: why not, one sentence.
        text: its final answer.
        cost_usd: what it cost; None where it does not say.
        session: the conversation that it was part of; None where it does not say.
    """

    ok: bool
    problem: str = ""
    text: str = ""
    cost_usd: float | None = None
    session: str | None = None


class Asks(Protocol):
    """An agent."""

    def ask(self, prompt: str, session: str | None, env: Mapping[str, str]) -> Reply:
        """Returns its answer.

        Args:
            prompt: what it is asked.
            session: the conversation to go on with; None for a new one.
            env: variables to set for it.
        """


class Journal(Protocol):
    """Where the state is kept: a run.

    Attributes:
        state: JSON values, all that a later attempt begins with.
    """

    state: dict[str, Any]

    @property
    def id(self) -> str:
        """By which a person goes on with it."""

    def milestone(
        self, *, trigger: str = "review", message: str | None = None, progress: Progress | None = None, errors: Sequence[str] = ()
    ) -> object:
        """Records the state and the files."""

    def check(self) -> None:
        """Raises where the run shall stop."""


class Committing(Protocol):
    """The commits of the worktree, as `gitckpt.durable.phases.review.cycle.Commits` makes them."""

    def head(self) -> str:
        """Returns HEAD's oid; "" on an unborn branch."""

    def commit(self, task: str, cycle: int, title: str, suffix: str = "") -> str:
        """Commits whatever has changed, and returns HEAD."""

    def relation(self, recorded: str) -> str:
        """Returns how a recorded commit relates to HEAD."""


@dataclass(frozen=True, slots=True)
class ReviewOptions:
    """What is to be done.

    Attributes:
        task: its name, which the subjects of commits begin with.
        title: the task itself, of any length.
        max_cycles: how often the coder may try.
        max_budget_usd: what all answers together may cost, in US dollars; 0 for as much as they like.
        lint: a command that fails where the linter complains; None for none.
        lint_retries: how often in a cycle the coder is asked to satisfy it.
        filters: name → a command that must succeed before the reviewer is asked, in order.
        epic: the issue of beads below which each finding becomes one; "" for none.
        force: whether to go on although HEAD has diverged from the recorded work.
    """

    task: str
    title: str
    max_cycles: int = 3
    max_budget_usd: float = 0.0
    lint: str | None = None
    lint_retries: int = 2
    filters: Mapping[str, str] = field(default_factory=dict)
    epic: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it ended.

    Attributes:
        approved: whether the reviewer approved.
        cycles: how many there were.
        total_cost_usd: of all answers.
        findings: of all cycles, with what became of them.
        report: the reviewer's last.
        reason: why it was not approved; "" where it was.
    """

    approved: bool
    cycles: int
    total_cost_usd: float
    findings: tuple[ReviewFinding, ...]
    report: ReviewReport | None
    reason: str = ""


# The ways in which coder and reviewer fail. Each leaves a checkpoint from which one can go on.


class ReviewFailed(PhaseFailed):
    """The work was not approved.

    Attributes:
        result: how far it came; None where that is not known.
    """

    result: Verdict | None = None


class MaxCyclesReached(ReviewFailed):
    """The last cycle ended without approval."""


class BudgetExceeded(ReviewFailed):
    """The answers have cost what they may, and the work is not approved."""


class Struggling(ReviewFailed):
    """Coder and reviewer go round in circles."""


class AgentFailed(ReviewFailed):
    """Coder or reviewer could not answer."""


class CommitRefused(ReviewFailed):
    """git, or a hook of the user's, refused to commit the coder's work."""


class Diverged(ReviewFailed):
    """HEAD is not where the recorded work can be gone on with."""


# The commits of a worktree: one for each cycle, made as the user would make it, hooks and all.


SAME, ANCESTOR, DIVERGED, UNKNOWN = "same", "ancestor", "diverged", "unknown"

_SUBJECT = 72
_LAST_LINES = 5
_ERRORS = ("fatal: ", "error: ")
_NO_IDENTITY = ("tell me who you are", "auto-detect email address", "empty ident name", "no email was given", "no name was given")


class Commits:
    """Makes the commits of a worktree.

    Args:
        path: its top.
        env: variables for git and for the hooks that it calls.
    """

    def __init__(self, path: str, env: Mapping[str, str] | None = None) -> None:
        self._prefix = [process.git_executable(), *DURABLE, "-C", path]
        self._env = process.environment(env)

    def head(self) -> str:
        """Returns HEAD's oid; "" on an unborn branch.

        Raises:
            GitError: there is no repository.
        """
        done = self._git("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
        if done.code not in (0, 1):
            raise GitError(["rev-parse"], done.code, done.complaint)
        return done.out.decode("ascii").strip()

    def commit(self, task: str, cycle: int, title: str, suffix: str = "") -> str:
        """Commits all that has changed and is not ignored, and returns HEAD; where nothing has, nothing is committed.

        Args:
            task: the name of the task.
            cycle: the number of the cycle.
            title: the task; its first line, 72 characters at most, ends the subject `<task>/cycle-<n>: <title>`.
            suffix: what follows it, such as " (lint fix)".

        Raises:
            CommitRefused: git cannot commit, or a hook refuses to.
        """
        what = f"the work of cycle {cycle}"
        done = self._git("add", "--all")
        if done.code != 0:
            raise CommitRefused(f"{what} cannot be staged: {_complaint(done)}", output=done.complaint)
        if self._git("diff", "--cached", "--quiet").code == 0:
            return self.head()
        done = self._git(
            "commit", "--quiet", "--message", f"{first_line(task, _SUBJECT)}/cycle-{cycle}: {first_line(title, _SUBJECT)}{suffix}"
        )
        if done.code != 0:
            raise _refused(what, done)
        return self.head()

    def relation(self, recorded: str) -> str:
        """Returns how a recorded commit relates to HEAD.

        Args:
            recorded: its oid; "" for an unborn branch, which every commit comes after.

        Returns:
            SAME; ANCESTOR, where HEAD has moved on from it; DIVERGED; or UNKNOWN, where there is no such commit.
        """
        head = self.head()
        if recorded == head:
            return SAME
        if not recorded:
            return ANCESTOR
        if not ids.is_oid(recorded) or self._git("cat-file", "-e", f"{recorded}^{{commit}}").code != 0:
            return UNKNOWN
        return ANCESTOR if head and self._git("merge-base", "--is-ancestor", recorded, head).code == 0 else DIVERGED

    def _git(self, *args: str) -> Completed:
        return process.run([*self._prefix, *args], env=self._env)


def _refused(what: str, done: Completed) -> CommitRefused:
    said = done.complaint
    if any(words in said.lower() for words in _NO_IDENTITY):
        hint = "tell git who commits: git config --global user.name NAME; git config --global user.email ADDRESS"
        return CommitRefused(f"{what} cannot be committed: git does not know who commits", output=said, hint=hint)
    hint = "see what a hook of yours asks for, change it or the files, then resume the run: the coder is not asked again"
    return CommitRefused(f"{what} was not committed: {_said(done)}", code=done.code, output=said, hint=hint)


def _complaint(done: Completed) -> str:
    """Returns what git complains of, without its advice."""
    lines = [line for line in done.complaint.splitlines() if line.startswith(_ERRORS)]
    return lines[0].partition(": ")[2] if lines else _said(done)


def _said(done: Completed) -> str:
    """Returns the last words of git or of a hook, which may talk on either stream."""
    text = done.complaint + done.out.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-_LAST_LINES:]) or f"exit code {done.code}"


# The cycle of coder and reviewer, as a machine whose whole memory is a table of the run's state.


_TRIGGER = "review"
CODER, REVIEWER = "coder", "reviewer"

_LINT_FIX = " (lint fix)"
_OF_FILTER = 3000
_CYCLE, _FIX = "cycle", "lint fix"


class Review:
    """One task, from its first cycle, or from where it was left, to its approval.

    Args:
        journal: where the state is kept.
        coder: does the work, in one conversation.
        reviewer: judges it, each time with a fresh mind.
        commits: of the worktree.
        options: what is to be done.
        tell: gets a sentence for people now and then.
        shell: runs the linter and the filters.
        file: returns a state in which new findings are with a tracker, too; asked at the end of each cycle that was not approved.
        refactor: returns what the task has become meanwhile; None, or the same again, where it has not changed. It is asked once a cycle.
        clock: the current instant, in microseconds since the epoch.
    """

    def __init__(
        self,
        journal: Journal,
        coder: Asks,
        reviewer: Asks,
        commits: Committing,
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
        """Goes on until the work is approved.

        Raises:
            ReviewFailed: it was not, or somebody could not do his part; its sub-classes say why. What was done is recorded.
            Diverged: HEAD is elsewhere than the recorded work; nothing was changed.
            InvalidCheckpoint: what is recorded cannot be; nothing was changed.
        """
        self._open()
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
        """Begins, or takes up what is recorded."""
        options, found = self._options, self._journal.state.get(KEY)
        limits: dict[str, Any] = {"max_cycles": options.max_cycles, "max_budget_usd": options.max_budget_usd}
        if found is None:
            title = storable(options.title)
            self._state = CycleState(task_bead_id=options.task, task_title=title, base_commit_sha=self._commits.head(), **limits)
            self._enter(BEAD_CREATED)
            return
        state = CycleState.from_state(found)
        phase = resumes_in(state)
        if phase == APPROVED:
            self._state = state
            self._tell(f"approved already, in cycle {state.cycle}")
            return
        notice = _require_base(state, self._commits, self._journal.id, force=options.force)
        self._tell(f"resumed from checkpoint: cycle {state.cycle}, {phase}{f', after: {state.problem}' if state.problem else ''}")
        if notice:
            self._tell(notice)
        failed = state.phase == ERROR
        self._state = replace(
            state,
            phase=phase,
            failed_in="",
            problem="",
            struggle="" if failed else state.struggle,  # whoever goes on after it has been told of it
            task_bead_id=state.task_bead_id or options.task,
            task_title=state.task_title or storable(options.title),
            **limits,
        )

    def _next_cycle(self) -> None:
        """From bead_created and resolving_issues: begins another cycle, if there may be one."""
        state = self._state
        self._require_budget()
        if state.struggle:
            raise Struggling(
                f"struggling: {state.struggle}",
                hint="split the task, or say more exactly what is wanted; resuming the run tries another cycle",
            )
        if state.cycle >= state.max_cycles:
            raise MaxCyclesReached(
                f"not approved after {state.cycle} cycles, the most there may be",
                hint=f"look at the findings; to go on, allow more cycles: git ckpt resume {self._journal.id} --input max_cycles=N",
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
        """From coding: asks the coder."""
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
        """From code_complete: commits what the coder did."""
        self._commit()
        self._require_budget()
        self._enter(LINTING if self._options.lint is not None else self._after_linting())

    def _lint(self) -> None:
        """From linting: asks the linter, and, where it complains, the coder to satisfy it."""
        self._commit()
        self._require_budget()
        state, command = self._state, self._options.lint
        if state.lint_output and command is not None:
            self._ask(CODER, prompts.lint_fix(state))
            self._enter(LINTING, lint_output="", lint_fixes=state.lint_fixes + 1, uncommitted=_FIX)
            return
        code, said = self._shell(command) if command is not None else (0, "")
        if code == 0:
            self._commit(_FIX)  # what the linter has changed itself
            self._enter(self._after_linting())
            return
        is_last = state.lint_fixes >= self._options.lint_retries
        self._tell(f"cycle {state.cycle}: the linter {'still complains; the reviewer will be told' if is_last else 'complains'}")
        self._enter(self._after_linting() if is_last else LINTING, lint_output=cut(f"$ {command}\n{_output(said, code)}", LONGEST))

    def _after_linting(self) -> str:
        return FILTERING if self._options.filters else REVIEWING

    def _filter(self) -> None:
        """From filtering: lets the filters judge before the reviewer does."""
        for name, command in self._options.filters.items():
            code, said = self._shell(command)
            if code != 0:
                output = _output(said, code)
                self._tell(f"cycle {self._state.cycle}: the filter {name} fails")
                finding = ReviewFinding(CRITICAL, f"{_mark(name)} {cut(output, _OF_FILTER)}", self._state.cycle)
                self._settle((finding,), filter_check_name=name, filter_output=cut(output, LONGEST))
                return
            passed = _mark(name)
            self._state = replace(
                self._state,
                all_findings=tuple(
                    replace(each, status=FIXED) if each.description.startswith(passed) else each for each in self._state.all_findings
                ),
            )
        self._enter(REVIEWING, filter_output="", filter_check_name="")

    def _review(self) -> None:
        """From reviewing: asks the reviewer."""
        answer = self._ask(REVIEWER, prompts.reviewer(self._state))
        self._enter(REVIEW_COMPLETE, review_output=ending(answer, LONGEST))

    def _judge(self) -> None:
        """From review_complete: reads what the reviewer said."""
        state, answer = self._state, self._state.review_output
        found = tuple(replace(each, cycle=state.cycle) for each in replies.findings(answer))
        said = replies.verifications(answer)
        self._state = replace(state, verifications=said, all_findings=verified(state.all_findings, said), report=replies.report(answer))
        if replies.is_approved(answer):
            self._seal()
            self._tell(f"cycle {state.cycle}: approved")
            self._enter(APPROVED, findings=found, all_findings=(*self._state.all_findings, *found))
            return
        self._tell(f"cycle {state.cycle}: not approved, {len(found)} {'finding' if len(found) == 1 else 'findings'}")
        self._settle(found)

    def _settle(self, found: tuple[ReviewFinding, ...], **changes: Any) -> None:
        """Ends a cycle that was not approved."""
        self._seal()
        self._take_refactoring()
        state = self._state
        self._state = replace(
            state,
            findings=found,
            all_findings=(*state.all_findings, *found),
            filter_history=(*state.filter_history, changes.get("filter_check_name", "")),
            **changes,
        )
        self._state = self._file(self._state)
        self._enter(RESOLVING_ISSUES, struggle=reason(self._state))

    def _seal(self) -> None:
        """Counts the commit of the cycle among those of all cycles."""
        state = self._state
        if state.last_cycle_sha:
            self._state = replace(state, cycle_commits=(*state.cycle_commits, state.last_cycle_sha), last_cycle_sha="")

    def _take_refactoring(self) -> None:
        """Looks whether the task was changed."""
        state = self._state
        task = storable((self._refactor() if self._refactor is not None else None) or "")
        if trimmed(task) and task != state.task_title:
            self._tell("the task was changed; the coder is told in the next cycle")
            self._state = replace(state, refactored=True, original_description=state.task_title, refactor_description=task, task_title=task)

    def _ask(self, role: str, prompt: str) -> str:
        """Returns the answer of an agent; what it cost and its conversation are in the state, whatever it answers.

        Raises:
            AgentFailed: it could not do what it was asked.
        """
        state = self._state
        self._tell(f"cycle {state.cycle}: the {role} is at work")
        prompt = prompt.replace("\0", "\ufffd")  # which no command takes
        env = {BUDGET_VARIABLE: f"{state.budget_share:.4f}"} if state.max_budget_usd > 0 else {}
        reply = self._agents[role].ask(prompt, state.sessions.get(role) if role == CODER else None, env)
        sessions = {**state.sessions, role: storable(reply.session)} if reply.session else state.sessions
        self._state = replace(state, total_cost_usd=state.total_cost_usd + _amount(reply.cost_usd), sessions=sessions)
        if not reply.ok:
            problem = storable(reply.problem) or "it does not say why"
            raise AgentFailed(f"the {role} failed in cycle {state.cycle}: {problem}", hint="to ask again, resume the run")
        return storable(reply.text)

    def _require_budget(self) -> None:
        """Raises `BudgetExceeded` where everything is spent."""
        spent, budget = self._state.total_cost_usd, self._state.max_budget_usd
        if 0 < budget <= spent:
            raise BudgetExceeded(
                f"the budget is used up: {spent:.2f} of {budget:.2f} USD in cycle {self._state.cycle}",
                hint=f"to go on, allow more: git ckpt resume {self._journal.id} --input max_budget=USD",
            )

    def _commit(self, what: str = "") -> None:
        """Commits what is noted as not committed yet, or what somebody else changed.

        Args:
            what: what it is, where nothing is noted.
        """
        state = self._state
        what = state.uncommitted or what
        if what:
            suffix = _LINT_FIX if what == _FIX else ""
            sha = self._commits.commit(state.task_bead_id, state.cycle, state.task_title, suffix)
            self._state = replace(state, last_cycle_sha=sha, uncommitted="")

    def _enter(self, phase: str, **changes: Any) -> None:
        """Enters a phase, and records it."""
        self._state = replace(self._state, phase=phase, **changes)
        self._record(f"cycle {self._state.cycle}: {phase}")

    def _fail(self, error: PhaseFailed) -> None:
        """Records an error, and the phase in which to go on."""
        self._state = replace(self._state, phase=ERROR, failed_in=self._state.phase, problem=storable(error.message))
        self._record(f"cycle {self._state.cycle}: {ERROR}", error.errors)

    def _record(self, message: str, errors: Sequence[str] = ()) -> None:
        self._state = state = replace(self._state, git_sha=self._commits.head(), created_at=times.to_text(self._clock()))
        self._journal.state[KEY] = state.to_state()
        progress = Progress(current_phase=state.cycle, total_phases=state.max_cycles, current_task=state.failed_in or state.phase)
        self._journal.milestone(trigger=_TRIGGER, message=message, progress=progress, errors=[storable(each) for each in errors])

    def _result(self) -> Verdict:
        state = self._state
        approved = state.phase == APPROVED
        return Verdict(approved, state.cycle, state.total_cost_usd, state.all_findings, state.report, state.problem)

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
    """Phase → the step that begins in it."""


def _require_base(state: CycleState, commits: Committing, run: str, *, force: bool) -> str:
    """Returns what is to be said of HEAD, and raises `Diverged` where it does not follow the recorded commit."""
    relation = commits.relation(state.git_sha)
    if relation == SAME:
        return ""
    head = commits.head() or "unborn"
    if relation == ANCESTOR:
        return f"HEAD has moved on from {state.git_sha or 'nothing'} to {head}; going on from there"
    what = "which does not follow" if relation == DIVERGED else "and there is no commit"
    message = f"HEAD is {head}, {what} {state.git_sha}, where cycle {state.cycle} was recorded"
    if not force:
        raise Diverged(message, hint=f"go back to it: git checkout {state.git_sha}; or go on from HEAD: git ckpt resume {run} --force")
    return f"{message}; going on nevertheless"


def _amount(cost: float | None) -> float:
    """Returns a cost that can be added; what is no amount costs nothing."""
    return cost if cost is not None and math.isfinite(cost) and cost > 0 else 0.0


def _output(said: str, code: int) -> str:
    """Returns what a command printed, with what looks like a secret masked, or at least how it ended."""
    return trimmed(secrets.masked(storable(said))) or f"exit code {code}, without a word"


def _mark(name: str) -> str:
    """Returns what the finding of a filter begins with."""
    return f"{OF_FILTER}{name}]"
