"""The cycle of coder and reviewer, as a machine whose whole memory is a table of the run's state.

    bead_created ─→ coding ─→ code_complete ─→ linting ─→ filtering ─→ reviewing ─→ review_complete ─→ approved
                      ↑                                       │                            │
                      └────────────── resolving_issues ←──────┴────────────────────────────┘

Whatever phase the table names, the step of that phase begins with nothing else; so one can stop anywhere and go on. An answer is in the
table before anything is made of it: nobody is asked twice but for the answer that a crash cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gitckpt.durable.phases.review import commits as relations
from gitckpt.durable.phases.review import prompts, replies, stall
from gitckpt.durable.phases.review.errors import AgentFailed, BudgetExceeded, Diverged, MaxCyclesReached, ReviewFailed, Struggling
from gitckpt.durable.phases.review.finding import CRITICAL, FIXED, OF_FILTER, ReviewFinding, verified
from gitckpt.durable.phases.review.ports import BUDGET_VARIABLE, Asks, Checker, Committing, Journal, ReviewOptions, Verdict
from gitckpt.durable.phases.review.state import (
    APPROVED,
    BEAD_CREATED,
    CODE_COMPLETE,
    CODING,
    ERROR,
    FILTERING,
    IDLE,
    KEY,
    LINTING,
    RESOLVING_ISSUES,
    REVIEW_COMPLETE,
    REVIEWING,
    CycleState,
    resumes_in,
)
from gitckpt.durable.phases.review.text import LONGEST, cut, ending, storable, trimmed
from gitckpt.durable.run.errors import Cancelled, DeadlineReached, PhaseFailed
from gitckpt.model import times
from gitckpt.model.checkpoint import Progress
from gitckpt.model.values import replace
from gitckpt.store.secrets import detector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar


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
        self._enter(RESOLVING_ISSUES, struggle=stall.reason(self._state))

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
    if relation == relations.SAME:
        return ""
    head = commits.head() or "unborn"
    if relation == relations.ANCESTOR:
        return f"HEAD has moved on from {state.git_sha or 'nothing'} to {head}; going on from there"
    what = "which does not follow" if relation == relations.DIVERGED else "and there is no commit"
    message = f"HEAD is {head}, {what} {state.git_sha}, where cycle {state.cycle} was recorded"
    if not force:
        raise Diverged(message, hint=f"go back to it: git checkout {state.git_sha}; or go on from HEAD: git ckpt resume {run} --force")
    return f"{message}; going on nevertheless"


def _amount(cost: float | None) -> float:
    """Returns a cost that can be added; what is no amount costs nothing."""
    return cost if cost is not None and math.isfinite(cost) and cost > 0 else 0.0


def _output(said: str, code: int) -> str:
    """Returns what a command printed, with what looks like a secret masked, or at least how it ended."""
    return trimmed(detector.masked(storable(said))) or f"exit code {code}, without a word"


def _mark(name: str) -> str:
    """Returns what the finding of a filter begins with."""
    return f"{OF_FILTER}{name}]"
