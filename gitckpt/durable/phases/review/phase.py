"""Coder and reviewer as a phase of a pipeline: their commands, the commits of the worktree, and what a person may change meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from gitckpt.durable.agent.call import Agent, Answer
from gitckpt.durable.agent.clients import Client, words
from gitckpt.durable.command.execution import DEADLINE, EXIT, Ending, Patience
from gitckpt.durable.phases import command, options
from gitckpt.durable.phases.agent import patiently, require_there
from gitckpt.durable.phases.beads import Beads, TrackerFailed
from gitckpt.durable.phases.review.cycle import Commits, Reply, Review, ReviewOptions
from gitckpt.durable.phases.review.state import OF_FILTER, CycleState, ReviewFinding, cut, unresolved
from gitckpt.durable.pipeline.launch import Context
from gitckpt.durable.run.attempts import DeadlineReached, Ended
from gitckpt.model.errors import UsageError
from gitckpt.model.values import replace
from gitckpt.store.runs import run_files

AGENT_TIMEOUT, CHECK_TIMEOUT, TRACKER_TIMEOUT = 3600.0, 600.0, 30.0
"""How long an answer, the linter or a filter, and an answer of the tracker may take, in seconds."""

_LONGEST_DESCRIPTION = 3000
"""How many characters of a finding a tracker is told."""

_FORCE = "force"
_REFACTORING = "refactoring"
"""The file of a run in which a person says what its task has become."""


def carry_out(context: Context) -> Ended:
    """Lets coder and reviewer work until the reviewer approves.

    Raises:
        ReviewFailed: he did not; its sub-classes say why.
        UsageError: an option cannot be understood.
        Cancelled, DeadlineReached, LeaseLost: the run has to stop.
    """
    options = read(context.option)
    timeout = _agent_timeout(context.option)
    _settle_force(context, options)
    asked = [_Asked(context, context.client(role), role, timeout) for role in ("coder", "reviewer")]
    run = context.run

    def tell(text: str) -> None:
        context.output(f"[review] {words(text)}\n".encode())

    review = Review(
        run,
        asked[0],
        asked[1],
        Commits(run.path, context.environment()),
        options,
        tell=tell,
        shell=_shell(context),
        file=Filing(Beads(options.epic, f"ckpt-{run.id}", _tracker(context)), tell).file if options.epic else lambda state: state,
        refactor=lambda: _refactoring(run.files.path),
        clock=run.store.clock,
    )
    result = review.go()
    said = {
        "approved": result.approved,
        "cycles": result.cycles,
        "total_cost_usd": result.total_cost_usd,
        "findings": [{"id": each.id, "severity": each.severity, "status": each.status} for each in result.findings],
        "commits": list(run.state["review"]["cycle_commits"]),
    }
    return Ended(result=said)


def read(said: Callable[[str], str]) -> ReviewOptions:
    """Returns the options.

    Args:
        said: returns the text of an option by its name, "" where nothing is said.

    Raises:
        UsageError: one cannot be understood, or there is no task.
    """
    _agent_timeout(said)
    if not said("title").strip():
        raise UsageError("there is no task", hint='say what is to be done: git ckpt review "Add a login page"')
    filters = {}
    for line in filter(None, map(str.strip, said("filters").splitlines())):
        name, equals, line_of_shell = line.partition("=")
        if not equals or not name.strip() or not line_of_shell.strip():
            raise UsageError(f"{line!r:.100} is no filter", hint="write NAME=COMMAND, as in tests='make test'")
        filters[name.strip()] = line_of_shell.strip()
    if said("epic"):
        options.require_issue(said("epic"))
    usual = ReviewOptions("", "")
    return ReviewOptions(
        task=said("task") or "task",
        title=said("title"),
        max_cycles=options.count("max_cycles", said("max_cycles"), usual.max_cycles) or usual.max_cycles,
        max_budget_usd=options.amount("max_budget", said("max_budget")),
        lint=said("lint") or None,
        lint_retries=options.count("lint_retries", said("lint_retries"), usual.lint_retries),
        filters=filters,
        epic=said("epic"),
        force=options.agreed(_FORCE, said(_FORCE)),
    )


def refactor(directory: str, task: str) -> None:
    """Says what the task of a run has become: the coder is told of it in the next cycle.

    Args:
        directory: of the run's files.
        task: the task, as it is now.

    Raises:
        WorktreeError: it cannot be written.
    """
    run_files.make_directory(directory)
    run_files.replace_file(os.path.join(directory, _REFACTORING), task.encode("utf-8", "replace"))


def _refactoring(directory: str) -> str | None:
    try:
        with open(os.path.join(directory, _REFACTORING), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _settle_force(context: Context, options: ReviewOptions) -> None:
    """Forgets that it was forced: that counts for one attempt."""
    run = context.run
    if options.force and _FORCE in run.pipeline.inputs:
        run.change(replace(run.pipeline, inputs={**run.pipeline.inputs, _FORCE: ""}))


class Filing:
    """Lets each finding of the reviewer become a child bead, as quasar does. A tracker that fails is told of; it fails no review.

    Args:
        beads: of the review.
        tell: gets a sentence for people.
    """

    def __init__(self, beads: Beads, tell: Callable[[str], None]) -> None:
        self._beads = beads
        self._tell = tell

    def file(self, state: CycleState) -> CycleState:
        """Returns a state in which each finding that is not fixed has a bead, as far as the tracker makes them.

        What a filter found gets none: the filter will say itself whether it is fixed.
        """
        theirs = [each for each in unresolved(state.all_findings) if not each.description.startswith(OF_FILTER)]
        lacking = [each for each in theirs if each.id not in state.beads]
        made, problem = self._made(lacking) if lacking else ({}, "")
        if problem:
            count = len(lacking) - len(made)
            self._tell(f"no bead was made for {count} {'finding' if count == 1 else 'findings'}, the next cycle tries again: {problem}")
        ids = dict.fromkeys((*state.child_bead_ids, *made.values()))
        return replace(state, beads={**state.beads, **made}, child_bead_ids=tuple(ids))

    def _made(self, findings: Sequence[ReviewFinding]) -> tuple[dict[str, str], str]:
        """Returns the beads of findings, and why not all have one; "" where they have. One that is refused is not in the way of others."""
        made: dict[str, str] = {}
        problem = ""
        try:
            there = self._beads.there()
        except TrackerFailed as error:
            return made, str(error)  # without knowing which there are, some would be made twice
        for finding in findings:
            text = f"{finding.severity}, found in cycle {finding.cycle}\n\n{cut(finding.description, _LONGEST_DESCRIPTION)}"
            try:
                made[finding.id] = there.get(finding.id) or self._beads.create(finding.id, finding.description, text)
            except TrackerFailed as error:
                problem = problem or str(error)
                if error.hangs:
                    break
        return made, problem


class _Asked:
    """Coder or reviewer.

    Args:
        context: the attempt.
        client: how it is called.
        role: which of the two.
        timeout: how long an answer may take, in seconds.
    """

    def __init__(self, context: Context, client: Client, role: str, timeout: float) -> None:
        self._context = context
        self._client = client
        self._role = role
        self._timeout = timeout

    def ask(self, prompt: str, session: str | None, env: Mapping[str, str]) -> Reply:
        """See `Asks.ask`."""
        context, run = self._context, self._context.run
        files = os.path.join(run.files.path, self._role)
        agent = Agent(self._client, run.path, {**context.environment(), **env}, context.watchdog, files)
        require_there(self._client, context.environment(), run, self._role)

        def call() -> Answer:
            patience = Patience(self._timeout, None, run.seconds_left())
            return agent.ask(prompt, session=session, patience=patience, output=context.output, tick=context.look, budget=self._left())

        def tell(text: str) -> None:
            context.output(f"[review] {words(text)}\n".encode())

        answer = patiently(run, call, tell, self._role)
        if answer.ended_by == DEADLINE:
            raise DeadlineReached(f"the {self._role} was ended: the run took longer than it may", output=answer.tail)
        return Reply(not answer.problem, answer.problem, answer.report.text, answer.report.cost_usd, answer.report.session)

    def _left(self) -> float | None:
        """Returns what of the budget is left, in US dollars; None where there is none."""
        state = self._context.run.state.get("review")
        head = state if isinstance(state, dict) else {}
        budget, spent = (head.get(key) for key in ("max_budget_usd", "total_cost_usd"))
        known = isinstance(budget, int | float) and isinstance(spent, int | float) and budget > 0
        return float(budget) - float(spent) if known else None  # type: ignore[arg-type]


def _shell(context: Context) -> Callable[[str], tuple[int, str]]:
    """Returns what runs the linter and the filters."""

    def call(line: str) -> tuple[int, str]:
        outcome = command.run(context, line, CHECK_TIMEOUT, show=True)
        if outcome.ended_by != EXIT:
            return outcome.code or 1, f"{outcome.tail}\nended: it took more than {CHECK_TIMEOUT:g}s"
        return outcome.code, outcome.tail

    return call


def _tracker(context: Context) -> Callable[[str], tuple[Ending, bytes]]:
    return lambda line: command.ask(context, line, TRACKER_TIMEOUT, "beads.json")


def _agent_timeout(said: Callable[[str], str]) -> float:
    return options.limit("agent_timeout", said("agent_timeout"), AGENT_TIMEOUT)
