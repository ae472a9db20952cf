"""Call an agent in a loop; the table `loop` in the run's state has the progress.

Each iteration records two checkpoints: after the agent's call, and after the check of its work.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Template
from typing import Any

from gitckpt.durable.agent import call
from gitckpt.durable.agent.call import AgentAnswer, AgentRunner
from gitckpt.durable.agent.clients import remove_control_chars
from gitckpt.durable.command.execution import DEADLINE, EXIT, CommandResult, Timeouts, error_line
from gitckpt.durable.phases import command, options
from gitckpt.durable.phases import command as agents
from gitckpt.durable.pipeline.launch import RESUMED, PhaseContext
from gitckpt.durable.run.attempts import AgentUnusable, DeadlineReached, PhaseFailed, PhaseResult
from gitckpt.git.files import private_dirs
from gitckpt.git.worktree import administration
from gitckpt.model import times
from gitckpt.model.checkpoint import LOOP, Progress
from gitckpt.model.errors import UsageError, WorktreeError
from gitckpt.model.values import dataclass
from gitckpt.store import secrets
from gitckpt.store.runs import run_files

# Names that a prompt template may contain after a `$`.
NAMES = ("plan", "epic", "issues", "tests", "tracking", "failure")

_TEMPLATE = os.path.join(os.path.dirname(__file__), "prompt.md")

_TRACKING = """
## Beads tracking

```
bd ready                              # issues that nothing blocks
bd show <id>                          # one issue
bd update <id> --status=in_progress   # begin with it
bd close <id>                         # it is done
bd sync                               # bring the issues into git
```
"""


@dataclass(frozen=True, slots=True)
class LoopAssignment:
    plan: str  # path
    epic: str  # the parent issue; "": none
    issues: Sequence[str]  # one for each phase of the plan, in order
    tests: str  # the test command


def read_default_prompt_template() -> str:
    with open(_TEMPLATE, encoding="utf-8") as file:
        return file.read()


def build_loop_prompt(
    template: str, task: LoopAssignment, failure: str, revision: str = "", note: str = ""
) -> str:
    """Return the prompt for the agent: a template with its placeholders filled in.

    `failure` is the output of failed tests, and `revision` a wish of the user. They and `note` come
    last if the template has no placeholder `$failure`.
    """
    notes = ""
    if failure:
        notes = "\n## The tests failed\n\nMake them pass. This is their last output:\n\n"
        notes += f"```\n{failure.strip()}\n```\n"
    if revision:
        notes = f"\n## To be revised\n\n{revision.strip()}\n{notes}"
    if note:
        notes = f"\n## Resumed\n\n{note}\n{notes}"
    lines = "".join(f"- Phase {number}: `{issue}`\n" for number, issue in enumerate(task.issues, 1))
    placeholders = {"plan": task.plan, "failure": notes}
    placeholders["epic"] = f"\n**Epic**: `{task.epic}`\n" if task.epic else ""
    placeholders["issues"] = f"\n**Phase Issues**:\n{lines}" if lines else ""
    placeholders["tests"] = f"`{task.tests}`" if task.tests else "`pytest` or `make test`"
    placeholders["tracking"] = _TRACKING if task.issues or task.epic else ""
    require_valid_template(template)
    parser = Template(template)
    text = parser.substitute(placeholders)
    return (text if "failure" in parser.get_identifiers() else text + notes).rstrip() + "\n"


def require_valid_template(template: str) -> None:
    parser = Template(template)
    unknown_names = [name for name in parser.get_identifiers() if name not in NAMES]
    if parser.is_valid() and not unknown_names:
        return
    problem = f"${unknown_names[0]} is unknown" if unknown_names else "it has a $ without a name"
    known_names = ", ".join(f"${name}" for name in NAMES)
    hint = f"use {known_names}; write $$ for $"
    raise PhaseFailed(f"cannot use the template of the prompt: {problem}", hint=hint)


class PlanAndTemplate:
    def __init__(self, context: PhaseContext) -> None:
        self._context = context
        # Candidate paths of the plan; the first path that exists is used.
        self.plans = [line.strip() for line in context.option("plan").splitlines() if line.strip()]

    def find_plan_path(self, memory: dict[str, Any]) -> str:
        """Return the path of the plan; first copy a plan from the inputs to the worktree."""
        context, run = self._context, self._context.run
        for path in self.plans:
            target = os.path.join(run.path, path)
            copies = [(name, context.path_of_copy(name)) for name in context.input_names_at(path)]
            name, copy_path = next((pair for pair in copies if os.path.isfile(pair[1])), ("", ""))
            # The worktree lacks a plan that is not committed. `memory["plan"]` is the digest of the
            # copied plan: copy again only after a person accepted a changed plan.
            digest = run.pipeline.contents[name] if name else memory["plan"]
            if digest != memory["plan"] and not os.path.isabs(path):
                self._copy_plan(copy_path, target)
                memory["plan"] = digest
            if os.path.isfile(target):
                return path
            if copy_path:
                return copy_path
        hint = "create the plan, and commit it to the base of the run"
        raise PhaseFailed(f"Plan not found: {', '.join(self.plans)}", hint=hint)

    def read_template(self) -> str:
        path = self._context.option("prompt")
        if not path:
            return read_default_prompt_template()
        data = self._context.read_input_or_file(path, "the template of the prompt")
        return data.decode("utf-8", "replace").replace("\r\n", "\n")

    def _copy_plan(self, copy: str, path: str) -> None:
        with open(copy, "rb") as file:
            data = file.read()
        if os.path.isfile(path):
            with open(path, "rb") as file:
                if file.read() == data:
                    return
        run_files.make_directory(os.path.dirname(path))
        try:
            with private_dirs.hold_directory_open(os.path.dirname(path)):
                administration.write_worktree_file(self._context.run.store.repository, path, data)
        except OSError as error:
            raise WorktreeError(f"cannot write {path}: {error.strerror}") from None


MAX_ITERATIONS = 100
PAUSE, AGENT_TIMEOUT, TEST_TIMEOUT, TRACKER_TIMEOUT = 10.0, 3600.0, 300.0, 30.0  # seconds

NEW, CONTINUE = "new", "continue"
CONVERSATIONS = (NEW, CONTINUE)  # whether each call starts a conversation or continues the last


@dataclass(frozen=True, slots=True)
class LoopOptions:  # durations are in seconds
    issues: tuple[str, ...] = ()  # ids of the issues that must be closed
    epic: str = ""  # the parent issue; "": none
    done_command: str = ""  # command whose exit code 0 says that the work is done; "": none
    tests: str = ""  # test command; "": pytest or make
    max_iterations: int = MAX_ITERATIONS
    pause: float = PAUSE  # between two calls
    agent_timeout: float = AGENT_TIMEOUT  # of one call
    test_timeout: float = TEST_TIMEOUT
    conversation: str = NEW  # one of CONVERSATIONS
    max_budget: float = 0.0  # limit for all calls in US dollars; 0: no limit
    # longest time without output, not counting messages about retries; None: no limit
    idle_timeout: float | None = None


def parse_loop_options(option: Callable[[str], str]) -> LoopOptions:
    issues = tuple(option("issues").replace(",", " ").split())
    epic, done_command, idle_text = option("epic"), option("done"), option("idle_timeout")
    for issue in filter(None, (*issues, epic)):
        options.require_issue_id(issue)
    until_tests_pass = options.parse_yes_or_no("until_tests_pass", option("until_tests_pass"))
    if not issues and not done_command and not until_tests_pass:
        hint = "git ckpt loop: --issue ID, --done COMMAND or --until-tests-pass; git ckpt run "
        hint += "and resume: --input issues=ID, done=COMMAND or until_tests_pass=yes"
        raise UsageError("the loop has no end condition", hint=hint)
    conversation = option("conversation") or NEW
    if conversation not in CONVERSATIONS:
        hint = f"choose {' or '.join(CONVERSATIONS)}"
        raise UsageError(f"unknown conversation: {conversation!r:.60}", hint=hint)
    max_iterations = options.parse_count("max_iterations", option("max_iterations"), MAX_ITERATIONS)
    return LoopOptions(
        *(issues, epic, done_command, option("tests")),
        # 0 means the default, as everywhere in rlm-act.
        max_iterations=max_iterations or MAX_ITERATIONS,
        pause=options.parse_seconds("pause", option("pause"), PAUSE),
        agent_timeout=options.read_timeout("agent_timeout", option("agent_timeout"), AGENT_TIMEOUT),
        idle_timeout=options.read_timeout("idle_timeout", idle_text, 1.0) if idle_text else None,
        test_timeout=options.read_timeout("test_timeout", option("test_timeout"), TEST_TIMEOUT),
        conversation=conversation,
        max_budget=options.parse_dollars("max_budget", option("max_budget")),
    )


# Statuses of a closed issue: the first is of beads, the others of older versions and users.
CLOSED = ("closed", "done", "complete", "tombstone")

# Runs a shell command. Very long output is cut.
Call = Callable[[str], CommandResult]


@dataclass(frozen=True, slots=True)
class IssueStatus:
    closed: tuple[str, ...]
    open: tuple[str, ...]  # includes unknown issues
    problem: str = ""  # why the status is incomplete; "": it is complete

    @property
    def is_done(self) -> bool:
        return not self.open and not self.problem


def query_issue_status(
    issues: Sequence[str], show: Callable[[Sequence[str]], tuple[CommandResult, bytes]]
) -> IssueStatus:
    outcome, output = show(issues)
    if outcome.ended_by != EXIT:
        return IssueStatus((), tuple(issues), "bd timed out")
    statuses = parse_issue_statuses(output)
    closed_issues = tuple(issue for issue in issues if statuses.get(issue, "") in CLOSED)
    open_issues = tuple(issue for issue in issues if issue not in closed_issues)
    unknown_issues = [issue for issue in issues if issue not in statuses]
    problem = f"bd does not report {', '.join(unknown_issues)}" if unknown_issues else ""
    if outcome.code:
        problem = problem or f"bd failed: exit code {outcome.code}"
        problem += error_line(outcome.tail)
    return IssueStatus(closed_issues, open_issues, problem)


def parse_issue_statuses(output: bytes) -> Mapping[str, str]:
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        return {}
    issues: list[Any] = document if isinstance(document, list) else [document]
    issue_tables = [issue for issue in issues if isinstance(issue, dict)]
    issue_statuses = [(table.get("id"), table.get("status")) for table in issue_tables]
    return {
        issue: status.strip().lower()
        for issue, status in issue_statuses
        if isinstance(issue, str) and isinstance(status, str)
    }


def run_done_command(line: str, call: Call) -> IssueStatus:
    outcome = call(line)
    if outcome.ended_by == EXIT and outcome.code == 0:
        return IssueStatus((), ())
    end_text = f"exit code {outcome.code}" if outcome.ended_by == EXIT else "timed out"
    return IssueStatus((), (), f"{line}: {end_text}{error_line(outcome.tail)}")


_PYTEST = "pytest -v --tb=short"
_MAKE = "make test"
NO_TEST_COMMAND = (
    "no test command found: pytest is not installed, and no Makefile has a target test; "
    "add --tests COMMAND to git ckpt loop, or --input tests=COMMAND to git ckpt run or resume"
)

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


@dataclass(frozen=True, slots=True)
class TestResult:
    passed: bool
    output: str  # of the tests, with secrets masked; or why no tests could run


def find_test_command(path: str, env: Mapping[str, str]) -> str:
    """Return a command for the tests in `path`: pytest, `make test`, or "" for none."""
    # `make test` replaces pytest only where it is not installed, not after it failed.
    if shutil.which("pytest", path=env.get("PATH", os.defpath)):
        return _PYTEST
    for name in _MAKEFILES:
        makefile = os.path.join(path, name)
        if os.path.isfile(makefile):
            with open(makefile, encoding="utf-8", errors="replace") as file:
                # make reads only the first of these files
                return _MAKE if _has_test_target(file) else ""
    return ""


def _has_test_target(makefile: Iterable[str]) -> bool:
    # No regular expression: matching a line of 500 KB took minutes.
    for line in makefile:
        targets, colon, prerequisites = line.partition(":")
        is_rule = bool(colon) and not line[0].isspace() and not {"=", "#"}.intersection(targets)
        if is_rule and not prerequisites.lstrip(":").startswith("=") and "test" in targets.split():
            return True
    return False


def run_tests(line: str, call: Callable[[str], CommandResult], seconds: float) -> TestResult:
    """Run the test command `line`; if it is "", return a failure with the reason."""
    if not line:
        return TestResult(passed=False, output=NO_TEST_COMMAND)
    outcome = call(line)
    if outcome.ended_by != EXIT:
        output = secrets.mask_text(outcome.tail).rstrip()
        output = f"{output}\nTests timed out after {seconds:g} seconds"
        return TestResult(passed=False, output=output.lstrip())
    return TestResult(outcome.code == 0, secrets.mask_text(outcome.tail))


# Values of `next` in the progress: call the agent, check the result, or the loop has ended.
ASK, LOOK, DONE = "ask", "look", "done"

_MAX_OUTPUT, _MAX_FAILURES, _MAX_FAILURE, _MAX_LINE = 8000, 10, 500, 200
_MAX_DENIED = 3


class AgentLoop:
    def __init__(self, context: PhaseContext) -> None:
        self._context = context
        self._run = context.run
        self._env = context.command_environment()
        self._files = os.path.join(context.run.files.path, "agent")
        self._documents = PlanAndTemplate(context)
        try:
            self._options = parse_loop_options(context.option)
            self._client = context.client("agent")
        except UsageError as error:
            raise PhaseFailed(error.message, hint=error.hint) from None
        self._has_asked = False
        self._memory = self._load_loop_memory()

    def run_iterations(self) -> PhaseResult:
        """Call the agent until the work is done; return at once if there is no plan."""
        memory = self._memory
        if not self._documents.plans:
            memory.update(next=DONE, said="there is no plan, so there is nothing to do")
            self._show_line(memory["said"])
        elif memory["next"] != DONE:
            if self._options.max_budget:
                memory["max_budget_usd"] = self._options.max_budget
            self._require_installed_programs()
            self._allow_more_iterations()
        while memory["next"] != DONE:
            if memory["next"] == ASK:
                if memory["iterations"] >= memory["allowed"]:
                    message = f"reached max iterations ({memory['allowed']})"
                    errors, run_id = (*memory["failures"], message), self._run.id
                    hint = f"see the progress: git ckpt status {run_id}; to continue: "
                    hint += f"git ckpt resume {run_id}"
                    raise PhaseFailed(message, errors=errors, output=memory["said"], hint=hint)
                self._require_budget_left()
                if self._has_asked:
                    self._run.wait(self._options.pause)
                if not self._call_agent():
                    continue
            self._check_issues_and_tests()
        # The checkpoint stores `result` as JSON; `cost_usd` is 0 if the client reports no costs.
        result = {key: memory[key] for key in ("iterations", "cost_usd")}
        result |= {"tests_passed": memory["tests"] == "passed", "output": memory["said"]}
        result["issues_closed"] = memory["closed_issues"]
        return PhaseResult(result=result, output=memory["said"])

    def _load_loop_memory(self) -> dict[str, Any]:
        phase, state = self._context.phase.name, self._run.state
        recorded_memory = state.get("loop")
        memory: dict[str, Any] = recorded_memory if isinstance(recorded_memory, dict) else {}
        is_phase_repeated = memory.get("next") == DONE and self._context.attempt.began is None
        if memory.get("phase") != phase or is_phase_repeated:
            max_iterations, issues = self._options.max_iterations, list(self._options.issues)
            memory = {"phase": phase, "iterations": 0, "allowed": max_iterations, "next": ASK}
            memory |= {"open_issues": issues, "closed_issues": [], "tests": "not run"}
            memory |= {"tests_output": "", "failures": [], "cost_usd": 0.0, "session": None}
            memory |= dict.fromkeys(("said", "problem", "plan"), "")
            state["loop"] = memory
        return memory

    def _allow_more_iterations(self) -> None:
        memory, iterations = self._memory, self._memory["iterations"]
        is_exhausted = memory["next"] == ASK and iterations >= memory["allowed"]
        # A person who resumes the run allows more; a restart after a crash does not.
        if is_exhausted and not self._context.attempt.recoveries:
            memory["allowed"] = iterations + self._options.max_iterations
            self._record_milestone(f"up to {memory['allowed']} iterations from now on")

    def _call_agent(self) -> bool:
        # Returns False if the call must be repeated; any other failure uses up the iteration.
        memory, options = self._memory, self._options
        agents.wait_for_rate_limit(self._run, memory, self._show_line)
        iteration = memory["iterations"] + 1
        is_first_call, self._has_asked = not self._has_asked, True
        self._show_line(f"iteration {iteration} of {memory['allowed']}")
        plan = self._documents.find_plan_path(memory)
        task = LoopAssignment(plan, options.epic, options.issues, options.tests)
        test_failure = memory["tests_output"] if memory["tests"] == "failed" else ""
        notes = (self._env["CKPT_REVISION"], self._describe_resumption() if is_first_call else "")
        prompt = build_loop_prompt(self._documents.read_template(), task, test_failure, *notes)
        budget = options.max_budget - memory["cost_usd"] if options.max_budget else None
        context, time_left = self._context, self._run.seconds_to_deadline()
        agent = AgentRunner(self._client, self._run.path, self._env, context.watchdog, self._files)
        session = memory["session"] if options.conversation == CONTINUE else None
        timeouts = Timeouts(options.agent_timeout, options.idle_timeout, time_left)
        call_options: dict[str, Any] = {"session": session, "patience": timeouts, "budget": budget}
        answer = agent.ask_agent(prompt, context.output, context.check_and_tick, **call_options)
        if answer.ended_by == DEADLINE:
            message = f"the run reached its deadline in iteration {iteration}"
            raise DeadlineReached(message, output=answer.tail)
        self._add_cost_and_tokens(answer)
        if self._must_repeat_call(iteration, answer):
            return False
        self._record_answer(iteration, answer)
        errors = [answer.problem] if answer.problem else []
        self._record_milestone(f"iteration {iteration}: the agent was asked", errors)
        self._require_agent_permissions()
        return True

    def _must_repeat_call(self, number: int, answer: AgentAnswer) -> bool:
        memory, now = self._memory, self._run.store.clock() / times.MICRO
        failure = call.classify_failure(answer, now)
        if failure is None or failure.kind == call.OTHER:
            memory.pop("limited", None)
            memory.pop("lost", None)
            return False
        self._show_line(answer.problem)
        if failure.kind == call.FATAL:
            raise agents.make_agent_unusable_error(answer, self._run.id)
        if failure.kind == call.TRANSIENT:
            memory["lost"] = memory.get("lost", 0) + 1
            if memory["lost"] > agents.MAX_LOST:
                memory.pop("lost")
                return False  # count the iteration, as for any other failure
            message = f"iteration {number}: asked again after {answer.problem}"[:_MAX_LINE]
            self._record_milestone(message, [answer.problem])
            self._run.wait(min(2.0 ** memory["lost"], 60.0))
            return True
        memory["limited"] = memory.get("limited", 0) + 1
        if failure.wait is None and memory["limited"] > call.MOST_LIMITED:
            memory.pop("limited")
            return False
        retry_at = now + call.compute_rate_limit_wait(failure.wait, memory["limited"])
        retry_text = memory[agents.RETRY_AT] = times.to_text(int(retry_at * times.MICRO))
        self._record_milestone(f"iteration {number}: limited until {retry_text}", [answer.problem])
        return True

    def _require_agent_permissions(self) -> None:
        # The loop is unattended: a denied permission will not be granted later.
        memory = self._memory
        if memory.get("denied", 0) >= _MAX_DENIED:
            memory.pop("denied")
            agent_options = '--permission-mode acceptEdits --allowedTools "Edit,Write,Bash(git *)"'
            agent = f"claude -p {agent_options} --output-format stream-json --verbose"
            denials = f"{_MAX_DENIED} times in a row: {memory['denial']}"
            hint = f"grant the permission: git ckpt resume {self._run.id} --input 'agent={agent}'"
            raise AgentUnusable(f"{self._client.name} was denied a permission {denials}", hint=hint)

    def _describe_resumption(self) -> str:
        if self._env.get(RESUMED) != "1":
            return ""
        has_changes = self._run.has_changed_files(self._context.attempt)
        changes_note = "Its changes are in the worktree" if has_changes else "It changed no file"
        attempt_number = self._context.attempt.number
        attempt_note = f"This is attempt {attempt_number}: an earlier one was interrupted."
        return f"{attempt_note} {changes_note}. Look before you continue."

    def _record_answer(self, number: int, answer: AgentAnswer) -> None:
        memory = self._memory
        memory.update(iterations=number, next=LOOK, problem=answer.problem)
        memory["said"] = answer.report.text[-_MAX_OUTPUT:]
        memory["session"] = answer.report.session or memory["session"]
        if answer.report.denied:
            memory.update(denied=memory.get("denied", 0) + 1, denial=answer.report.denied[0])
        else:
            memory.pop("denied", None)
        if answer.problem:
            self._add_failure(f"iteration {number}: {answer.problem}")
            self._show_line(answer.problem)

    def _add_cost_and_tokens(self, answer: AgentAnswer) -> None:
        # Calls that do not use up an iteration cost money, too.
        memory = self._memory
        memory["cost_usd"] = round(memory["cost_usd"] + (answer.report.cost_usd or 0.0), 6)
        for kind, count in answer.report.tokens.items():
            memory.setdefault("tokens", {})[kind] = memory.get("tokens", {}).get(kind, 0) + count

    def _check_issues_and_tests(self) -> None:
        memory, options = self._memory, self._options
        status = IssueStatus((), (), memory["problem"])
        if options.issues or options.done_command:
            status = self._query_issues()
        memory.update(open_issues=list(status.open), closed_issues=list(status.closed), next=ASK)
        iteration = memory["iterations"]
        if not status.is_done:
            reason = status.problem or f"still open: {', '.join(status.open)}"
            if reason != memory["problem"]:
                self._show_line(reason)
            characters = (character if character.isprintable() else " " for character in reason)
            line = " ".join("".join(characters).split())[:_MAX_LINE]
            self._record_milestone(f"iteration {iteration}: {line}")
            return
        line = options.tests or find_test_command(self._run.path, self._env)
        timeout = options.test_timeout
        self._show_line(f"tests: {line or 'none'}")
        call = functools.partial(command.run_tool, self._context, seconds=timeout, show=True)
        test_result = run_tests(line, call, timeout)
        memory["tests"] = "passed" if test_result.passed else "failed"
        memory["tests_output"] = test_result.output[-_MAX_OUTPUT:]
        if test_result.passed:
            memory.update(next=DONE, failures=[])
            self._record_milestone(f"iteration {iteration}: the tests pass")
            return
        failure = f"Final tests failed: {test_result.output[:_MAX_FAILURE]}"
        self._add_failure(failure)
        self._record_milestone(f"iteration {iteration}: the tests fail", [failure])

    def _require_budget_left(self) -> None:
        spent_usd, budget_usd = self._memory["cost_usd"], self._options.max_budget
        if 0 < budget_usd <= spent_usd:
            message = f"the budget is used up: {spent_usd:.2f} of {budget_usd:.2f} USD"
            hint = f"allow more: git ckpt resume {self._run.id} --input max_budget=USD"
            raise PhaseFailed(message, output=self._memory["said"], hint=hint)

    def _query_issues(self) -> IssueStatus:
        status = IssueStatus((), ())
        if self._options.issues:
            status = query_issue_status(self._options.issues, self._run_bd_show)
        if self._options.done_command and status.is_done:
            run_line = functools.partial(command.run_tool, self._context, seconds=TRACKER_TIMEOUT)
            command_result = run_done_command(self._options.done_command, run_line)
            status = IssueStatus(status.closed, status.open, command_result.problem)
        return status

    def _run_bd_show(self, issues: Sequence[str]) -> tuple[CommandResult, bytes]:
        line = f"{options.BD} show {' '.join(map(shlex.quote, issues))} --json"
        file_name = os.path.join("agent", "issues.json")
        return command.capture_tool_output(self._context, line, TRACKER_TIMEOUT, file_name)

    def _require_installed_programs(self) -> None:
        self._documents.find_plan_path(self._memory)
        agents.require_installed(self._client, self._env, self._run)
        if self._options.max_budget and not self._client.reports_cost:
            client_name = self._client.name
            message = f"a budget needs the price of {client_name}, which is unknown"
            hint = "set input and output in USD per million tokens in gitckpt.toml: "
            raise PhaseFailed(message, hint=f"{hint}[agents.{client_name}.price]")
        path = self._env.get("PATH", os.defpath)
        if self._options.issues and not shutil.which(options.BD, path=path):
            raise PhaseFailed("bd is not installed", hint="install beads, or use --done COMMAND")

    def _add_failure(self, text: str) -> None:
        self._memory["failures"] = [*self._memory["failures"], text][-_MAX_FAILURES:]

    def _record_milestone(self, message: str, errors: Sequence[str] = ()) -> None:
        issue_count = len(self._options.issues) or None
        done_count = len(self._memory["closed_issues"]) if issue_count else None
        task = f"iteration {self._memory['iterations']}"
        progress = Progress(current_task=task, tasks_completed=done_count, tasks_total=issue_count)
        self._run.milestone(trigger=LOOP, message=message, progress=progress, errors=errors)

    def _show_line(self, text: str) -> None:
        self._context.output(f"[loop] {remove_control_chars(text)}\n".encode())
