"""Run the review as a phase: its agents, commands and tracker, and task changes."""

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

# Timeouts of an answer, of the linter or a filter, and of the tracker, in seconds.
AGENT_TIMEOUT, CHECK_TIMEOUT, TRACKER_TIMEOUT = 3600.0, 600.0, 30.0

_LONGEST_DESCRIPTION = 3000  # characters of a finding's description in the tracker
_FORCE = "force"
_REFACTORING = "refactoring"  # a file of the run with the changed task


def carry_out(context: Context) -> Ended:
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
    """Parse the options of a review; `option` returns the text of one, or ""."""
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
    """Change the task of a run; the coder gets it in the next cycle."""
    run_files.make_directory(directory)
    run_files.replace_file(os.path.join(directory, _REFACTORING), task.encode("utf-8", "replace"))


def _refactoring(directory: str) -> str | None:
    try:
        with open(os.path.join(directory, _REFACTORING), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _settle_force(context: Context, options: ReviewOptions) -> None:
    # --force counts for one attempt only.
    run = context.run
    if options.force and _FORCE in run.pipeline.inputs:
        run.change(replace(run.pipeline, inputs={**run.pipeline.inputs, _FORCE: ""}))


class Filing:
    """Creates an issue for each finding, as quasar does; errors are only reported."""

    def __init__(self, beads: Beads, tell: Callable[[str], None]) -> None:
        self._beads = beads
        self._tell = tell

    def file(self, state: CycleState) -> CycleState:
        # Findings of filters get no issue: the filter itself shows whether they are fixed.
        theirs = [each for each in unresolved(state.all_findings) if not each.description.startswith(OF_FILTER)]
        lacking = [each for each in theirs if each.id not in state.beads]
        made, problem = self._made(lacking) if lacking else ({}, "")
        if problem:
            count = len(lacking) - len(made)
            self._tell(f"no bead was made for {count} {'finding' if count == 1 else 'findings'}, the next cycle tries again: {problem}")
        ids = dict.fromkeys((*state.child_bead_ids, *made.values()))
        return replace(state, beads={**state.beads, **made}, child_bead_ids=tuple(ids))

    def _made(self, findings: Sequence[ReviewFinding]) -> tuple[dict[str, str], str]:
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
                problem = problem or str(error)  # the remaining findings are still tried
                if error.hangs:
                    break
        return made, problem


class _Asked:
    """The coder or the reviewer; `timeout` is in seconds."""

    def __init__(self, context: Context, client: Client, role: str, timeout: float) -> None:
        self._context = context
        self._client = client
        self._role = role
        self._timeout = timeout

    def ask(self, prompt: str, session: str | None, env: Mapping[str, str]) -> Reply:
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
        """Return the rest of the budget in US dollars; None without a budget."""
        state = self._context.run.state.get("review")
        head = state if isinstance(state, dict) else {}
        budget, spent = (head.get(key) for key in ("max_budget_usd", "total_cost_usd"))
        known = isinstance(budget, int | float) and isinstance(spent, int | float) and budget > 0
        return float(budget) - float(spent) if known else None  # type: ignore[arg-type]


def _shell(context: Context) -> Callable[[str], tuple[int, str]]:
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
