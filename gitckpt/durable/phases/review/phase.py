"""Perform the step "review" with agents, shell commands and an issue tracker."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gitckpt.durable.agent.call import AgentAnswer, AgentRunner
from gitckpt.durable.agent.clients import AgentClient, remove_control_chars
from gitckpt.durable.command.execution import DEADLINE, EXIT, CommandResult, Timeouts, error_line
from gitckpt.durable.phases import command, options
from gitckpt.durable.phases.command import ShowLine, ask_agent_with_retries, require_installed
from gitckpt.durable.phases.review import state as review_state
from gitckpt.durable.phases.review.cycle import AgentReply, GitCommits, ReviewOptions, ReviewRunner
from gitckpt.durable.phases.review.state import ReviewFinding, ReviewState
from gitckpt.durable.pipeline.launch import PhaseContext
from gitckpt.durable.run.attempts import DeadlineReached, PhaseResult
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.runs import run_files

_MAX_TITLE = 72

# Runs a shell command; returns how it ended and its standard output.
AskBeads = Callable[[str], tuple[CommandResult, bytes]]


class TrackerFailed(Exception):
    """The issue tracker failed; if it timed out (`hangs`), it is not called again."""

    def __init__(self, problem: str, *, hangs: bool = False) -> None:
        super().__init__(problem)
        self.hangs = hangs


class BeadsTracker:
    """Lists and creates issues in the tracker beads. The methods raise TrackerFailed."""

    def __init__(self, parent: str, label: str, call: AskBeads) -> None:
        self._parent, self._label, self._call = parent, label, call

    def list_issue_ids(self) -> Mapping[str, str]:
        """Return issue ids by finding id; the title of an issue begins with a finding id."""
        document = self._call_bd(f"list --label {shlex.quote(self._label)}")
        issues: list[Any] = document if isinstance(document, list) else []
        ids_by_finding = {}
        for issue in filter(lambda issue: isinstance(issue, dict), issues):
            title, issue_id = issue.get("title"), issue.get("id")
            if isinstance(title, str) and isinstance(issue_id, str) and options.is_issue(issue_id):
                ids_by_finding[title.partition(":")[0]] = issue_id
        return ids_by_finding

    def add_issue(self, finding: str, title: str, description: str) -> str:
        one_line = " ".join(title.replace("\0", " ").split())
        short_title = one_line if len(one_line) <= _MAX_TITLE else f"{one_line[: _MAX_TITLE - 1]}…"
        arguments = [f"{finding}: {short_title}", "--parent", self._parent, "--type", "task"]
        arguments += ["--labels", self._label]
        arguments.append("--description=" + description.replace("\0", " "))
        document = self._call_bd(f"create {' '.join(map(shlex.quote, arguments))}")
        issue = document[0] if isinstance(document, list) and document else document
        issue_id = issue.get("id") if isinstance(issue, dict) else None
        if not isinstance(issue_id, str) or not options.is_issue(issue_id):
            raise TrackerFailed(f"bd does not report the id of the issue for {finding}")
        return issue_id

    def _call_bd(self, arguments: str) -> Any:
        outcome, output = self._call(f"{options.BD} {arguments} --json")
        command = arguments.partition(" ")[0]
        if outcome.ended_by != EXIT:
            raise TrackerFailed(f"bd {command} timed out", hangs=True)
        if outcome.code:
            raise TrackerFailed(f"bd {command}: exit code {outcome.code}{error_line(outcome.tail)}")
        try:
            return json.loads(output) if output.strip() else None
        except (ValueError, RecursionError):
            raise TrackerFailed(f"bd {command} did not print JSON") from None


# Timeouts of an answer, of the linter or a filter, and of the tracker, in seconds.
AGENT_TIMEOUT, CHECK_TIMEOUT, TRACKER_TIMEOUT = 3600.0, 600.0, 30.0

_MAX_DESCRIPTION = 3000  # characters of a finding's description in the tracker
_FORCE = "force"
_TASK_FILE = "refactoring"  # file in the run's directory with the changed task


def perform_review(context: PhaseContext) -> PhaseResult:
    options = parse_review_options(context.option)
    timeout = _parse_agent_timeout(context.option)
    run = context.run
    if options.force and _FORCE in run.pipeline.inputs:  # `force` applies to one attempt only
        run.writer.pipeline = replace(run.pipeline, inputs={**run.pipeline.inputs, _FORCE: ""})

    def tell(text: str) -> None:
        context.output(f"[review] {remove_control_chars(text)}\n".encode())

    def run_check(line: str) -> tuple[int, str]:
        outcome = command.run_tool(context, line, CHECK_TIMEOUT, show=True)
        if outcome.ended_by != EXIT:
            return outcome.code or 1, f"{outcome.tail}\nended: timed out after {CHECK_TIMEOUT:g}s"
        return outcome.code, outcome.tail

    def ask_tracker(line: str) -> tuple[CommandResult, bytes]:
        return command.capture_tool_output(context, line, TRACKER_TIMEOUT, "beads.json")

    coder, reviewer = (
        _ReviewAgent(context, context.client(role), role, timeout, tell)
        for role in ("coder", "reviewer")
    )
    kwargs: dict[str, Any] = {"tell": tell, "shell": run_check, "clock": run.store.clock}
    if options.epic:
        tracker = BeadsTracker(options.epic, f"ckpt-{run.id}", ask_tracker)
        kwargs["file"] = IssueCreator(tracker, tell).create_missing_issues
    kwargs["refactor"] = lambda: _read_changed_task(run.files.path)
    commits = GitCommits(run.path, context.command_environment())
    verdict = ReviewRunner(run, coder, reviewer, commits, options, **kwargs).run_cycles()
    keys = ("id", "severity", "status")
    findings = [{key: getattr(finding, key) for key in keys} for finding in verdict.findings]
    result = {key: getattr(verdict, key) for key in ("approved", "cycles", "total_cost_usd")}
    cycle_commits = list(run.state["review"]["cycle_commits"])
    return PhaseResult({**result, "findings": findings, "commits": cycle_commits})


def parse_review_options(option: Callable[[str], str]) -> ReviewOptions:
    _parse_agent_timeout(option)
    if not option("title").strip():
        raise UsageError("there is no task", hint='name a task: git ckpt review "Add a login page"')
    filters = {}
    for line in filter(None, map(str.strip, option("filters").splitlines())):
        name, equals, command = line.partition("=")
        if not equals or not name.strip() or not command.strip():
            raise UsageError(f"{line!r:.100} is not a filter", hint="write NAME=COMMAND")
        filters[name.strip()] = command.strip()
    if option("epic"):
        options.require_issue_id(option("epic"))
    defaults = ReviewOptions("", "")
    return ReviewOptions(
        task=option("task") or "task",
        title=option("title"),
        max_cycles=options.parse_count("max_cycles", option("max_cycles"), defaults.max_cycles)
        or defaults.max_cycles,
        max_budget_usd=options.parse_dollars("max_budget", option("max_budget")),
        lint=option("lint") or None,
        lint_retries=options.parse_count(
            "lint_retries", option("lint_retries"), defaults.lint_retries
        ),
        filters=filters,
        epic=option("epic"),
        force=options.parse_yes_or_no(_FORCE, option(_FORCE)),
    )


def store_changed_task(directory: str, task: str) -> None:
    run_files.make_directory(directory)
    run_files.replace_file(os.path.join(directory, _TASK_FILE), task.encode("utf-8", "replace"))


def _read_changed_task(directory: str) -> str | None:
    try:
        with open(os.path.join(directory, _TASK_FILE), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class IssueCreator:
    beads: BeadsTracker
    tell: ShowLine

    def create_missing_issues(self, state: ReviewState) -> ReviewState:
        # Findings of filters get no issue: the filter itself shows whether they are fixed.
        new_findings = [
            finding
            for finding in review_state.find_unresolved(state.all_findings)
            if not finding.description.startswith(review_state.FILTER_PREFIX)
            and finding.id not in state.beads
        ]
        created_ids, problem = self._create_issues(new_findings) if new_findings else ({}, "")
        if problem:
            count = len(new_findings) - len(created_ids)
            outcome = f"no issue created for {count} of the findings"
            self.tell(f"{outcome}; the next cycle retries: {problem}")
        all_ids = dict.fromkeys((*state.child_bead_ids, *created_ids.values()))
        return replace(state, beads={**state.beads, **created_ids}, child_bead_ids=tuple(all_ids))

    def _create_issues(self, findings: Sequence[ReviewFinding]) -> tuple[dict[str, str], str]:
        created_ids: dict[str, str] = {}
        problem = ""
        try:
            known_ids = self.beads.list_issue_ids()
        except TrackerFailed as error:
            return created_ids, str(error)  # unknown existing issues might be created again
        for finding in findings:
            description = review_state.cut(finding.description, _MAX_DESCRIPTION)
            text = f"{finding.severity}, found in cycle {finding.cycle}\n\n{description}"
            try:
                issue_id = known_ids.get(finding.id)
                issue_id = issue_id or self.beads.add_issue(finding.id, finding.description, text)
                created_ids[finding.id] = issue_id
            except TrackerFailed as error:
                problem = problem or str(error)  # the remaining findings are still tried
                if error.hangs:
                    break
        return created_ids, problem


@dataclass(frozen=True, slots=True)
class _ReviewAgent:
    context: PhaseContext
    client: AgentClient
    role: str
    timeout: float
    tell: ShowLine

    def ask_agent(self, prompt: str, session: str | None, env: Mapping[str, str]) -> AgentReply:
        context, run = self.context, self.context.run
        variables = context.command_environment()
        require_installed(self.client, variables, run, self.role)
        files = os.path.join(run.files.path, self.role)
        agent = AgentRunner(self.client, run.path, {**variables, **env}, context.watchdog, files)

        def call_client() -> AgentAnswer:
            timeouts = Timeouts(self.timeout, None, run.seconds_to_deadline())
            options: dict[str, Any] = {"patience": timeouts, "budget": self._remaining_budget()}
            options["session"] = session
            return agent.ask_agent(prompt, context.output, context.check_and_tick, **options)

        answer = ask_agent_with_retries(run, call_client, self.tell, self.role)
        if answer.ended_by == DEADLINE:
            message = f"the run reached its deadline while the {self.role} worked"
            raise DeadlineReached(message, output=answer.tail)
        report, problem = answer.report, answer.problem
        return AgentReply(not problem, problem, report.text, report.cost_usd, report.session)

    def _remaining_budget(self) -> float | None:  # in US dollars
        state = self.context.run.state.get("review")
        table = state if isinstance(state, dict) else {}
        budget_usd, spent_usd = table.get("max_budget_usd"), table.get("total_cost_usd")
        if not isinstance(budget_usd, int | float) or not isinstance(spent_usd, int | float):
            return None
        return float(budget_usd) - float(spent_usd) if budget_usd > 0 else None


def _parse_agent_timeout(option: Callable[[str], str]) -> float:
    return options.read_timeout("agent_timeout", option("agent_timeout"), AGENT_TIMEOUT)
