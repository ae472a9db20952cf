"""Run the review as a phase: its agents, commands and tracker, and task changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from gitckpt.durable.agent.call import Agent, Answer
from gitckpt.durable.agent.clients import Client, words
from gitckpt.durable.command.execution import DEADLINE, EXIT, Ending, Timeouts
from gitckpt.durable.phases import command, options
from gitckpt.durable.phases.agent import patiently, require_installed
from gitckpt.durable.phases.beads import Beads, TrackerFailed
from gitckpt.durable.phases.review.cycle import Commits, Reply, Review, ReviewOptions
from gitckpt.durable.phases.review.state import (
    OF_FILTER,
    CycleState,
    ReviewFinding,
    cut,
    unresolved,
)
from gitckpt.durable.pipeline.launch import Context
from gitckpt.durable.run.attempts import DeadlineReached, Ended
from gitckpt.model.errors import UsageError
from gitckpt.model.values import replace
from gitckpt.store.runs import run_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Timeouts of an answer, of the linter or a filter, and of the tracker, in seconds.
AGENT_TIMEOUT, CHECK_TIMEOUT, TRACKER_TIMEOUT = 3600.0, 600.0, 30.0

_LONGEST_DESCRIPTION = 3000  # characters of a finding's description in the tracker
_FORCE = "force"
_REFACTORING = "refactoring"  # a file of the run with the changed task


def carry_out(context: Context) -> Ended:
    options = read(context.option)
    timeout = _agent_timeout(context.option)
    run = context.run
    if options.force and _FORCE in run.pipeline.inputs:  # it counts for one attempt only
        inputs = {**run.pipeline.inputs, _FORCE: ""}
        run.writer.pipeline = replace(run.pipeline, inputs=inputs)

    def tell(text: str) -> None:
        context.output(f"[review] {words(text)}\n".encode())

    coder, reviewer = (
        _Agent(context, context.client(role), role, timeout, tell) for role in ("coder", "reviewer")
    )
    extras: dict[str, Any] = {}
    if options.epic:
        extras["file"] = Filing(Beads(options.epic, f"ckpt-{run.id}", _tracker(context)), tell).file
    review = Review(
        run,
        coder,
        reviewer,
        Commits(run.path, context.environment()),
        options,
        tell=tell,
        shell=_shell(context),
        refactor=lambda: _changed_task(run.files.path),
        clock=run.store.clock,
        **extras,
    )
    verdict = review.go()
    result = {
        "approved": verdict.approved,
        "cycles": verdict.cycles,
        "total_cost_usd": verdict.total_cost_usd,
        "findings": [
            {"id": finding.id, "severity": finding.severity, "status": finding.status}
            for finding in verdict.findings
        ],
        "commits": list(run.state["review"]["cycle_commits"]),
    }
    return Ended(result=result)


def read(option: Callable[[str], str]) -> ReviewOptions:
    """Parse the options of a review; `option` returns the text of one, or ""."""
    _agent_timeout(option)
    if not option("title").strip():
        raise UsageError("there is no task", hint='name it: git ckpt review "Add a login page"')
    filters = {}
    for line in filter(None, map(str.strip, option("filters").splitlines())):
        name, equals, command = line.partition("=")
        if not equals or not name.strip() or not command.strip():
            raise UsageError(
                f"{line!r:.100} is no filter", hint="write NAME=COMMAND, such as tests='make test'"
            )
        filters[name.strip()] = command.strip()
    if option("epic"):
        options.require_issue(option("epic"))
    usual = ReviewOptions("", "")
    return ReviewOptions(
        task=option("task") or "task",
        title=option("title"),
        max_cycles=options.count("max_cycles", option("max_cycles"), usual.max_cycles)
        or usual.max_cycles,
        max_budget_usd=options.amount("max_budget", option("max_budget")),
        lint=option("lint") or None,
        lint_retries=options.count("lint_retries", option("lint_retries"), usual.lint_retries),
        filters=filters,
        epic=option("epic"),
        force=options.agreed(_FORCE, option(_FORCE)),
    )


def refactor(directory: str, task: str) -> None:
    """Change the task of a run; the coder gets it in the next cycle."""
    run_files.make_directory(directory)
    run_files.replace_file(os.path.join(directory, _REFACTORING), task.encode("utf-8", "replace"))


def _changed_task(directory: str) -> str | None:
    try:
        with open(
            os.path.join(directory, _REFACTORING), encoding="utf-8", errors="replace"
        ) as file:
            return file.read()
    except OSError:
        return None


class Filing:
    """Creates an issue for each finding, as quasar does; errors are only reported."""

    def __init__(self, beads: Beads, tell: Callable[[str], None]) -> None:
        self._beads = beads
        self._tell = tell

    def file(self, state: CycleState) -> CycleState:
        # Findings of filters get no issue: the filter itself shows whether they are fixed.
        lacking = [
            finding
            for finding in unresolved(state.all_findings)
            if not finding.description.startswith(OF_FILTER) and finding.id not in state.beads
        ]
        created, problem = self._create(lacking) if lacking else ({}, "")
        if problem:
            count = len(lacking) - len(created)
            self._tell(f"no bead for {count} of the findings, retried in the next cycle: {problem}")
        ids = dict.fromkeys((*state.child_bead_ids, *created.values()))
        return replace(state, beads={**state.beads, **created}, child_bead_ids=tuple(ids))

    def _create(self, findings: Sequence[ReviewFinding]) -> tuple[dict[str, str], str]:
        created: dict[str, str] = {}
        problem = ""
        try:
            existing = self._beads.existing()
        except TrackerFailed as error:
            return created, str(error)  # without the existing ones, some would be created twice
        for finding in findings:
            description = cut(finding.description, _LONGEST_DESCRIPTION)
            text = f"{finding.severity}, found in cycle {finding.cycle}\n\n{description}"
            try:
                created[finding.id] = existing.get(finding.id) or self._beads.create(
                    finding.id, finding.description, text
                )
            except TrackerFailed as error:
                problem = problem or str(error)  # the remaining findings are still tried
                if error.hangs:
                    break
        return created, problem


class _Agent:
    """The coder or the reviewer; `timeout` is in seconds."""

    def __init__(
        self,
        context: Context,
        client: Client,
        role: str,
        timeout: float,
        tell: Callable[[str], None],
    ) -> None:
        self._context = context
        self._client = client
        self._role = role
        self._timeout = timeout
        self._tell = tell

    def ask(self, prompt: str, session: str | None, env: Mapping[str, str]) -> Reply:
        context, run = self._context, self._context.run
        variables = context.environment()
        require_installed(self._client, variables, run, self._role)
        files = os.path.join(run.files.path, self._role)
        agent = Agent(self._client, run.path, {**variables, **env}, context.watchdog, files)

        def call() -> Answer:
            return agent.ask(
                prompt,
                session=session,
                patience=Timeouts(self._timeout, None, run.seconds_left()),
                output=context.output,
                tick=context.look,
                budget=self._left(),
            )

        answer = patiently(run, call, self._tell, self._role)
        if answer.ended_by == DEADLINE:
            message = f"the run reached its deadline while the {self._role} worked"
            raise DeadlineReached(message, output=answer.tail)
        report = answer.report
        return Reply(
            not answer.problem, answer.problem, report.text, report.cost_usd, report.session
        )

    def _left(self) -> float | None:
        """Return the rest of the budget in US dollars; None without a budget."""
        state = self._context.run.state.get("review")
        table = state if isinstance(state, dict) else {}
        budget, spent = table.get("max_budget_usd"), table.get("total_cost_usd")
        if not isinstance(budget, int | float) or not isinstance(spent, int | float):
            return None
        return float(budget) - float(spent) if budget > 0 else None


def _shell(context: Context) -> Callable[[str], tuple[int, str]]:
    def call(line: str) -> tuple[int, str]:
        outcome = command.run(context, line, CHECK_TIMEOUT, show=True)
        if outcome.ended_by != EXIT:
            return outcome.code or 1, f"{outcome.tail}\nended: timed out after {CHECK_TIMEOUT:g}s"
        return outcome.code, outcome.tail

    return call


def _tracker(context: Context) -> Callable[[str], tuple[Ending, bytes]]:
    return lambda line: command.ask(context, line, TRACKER_TIMEOUT, "beads.json")


def _agent_timeout(option: Callable[[str], str]) -> float:
    return options.limit("agent_timeout", option("agent_timeout"), AGENT_TIMEOUT)
