"""The autonomous loop; its memory is the table `loop` of the state.

Each iteration records two milestones: one after the agent's call, one after its result was checked.
After a kill, the loop resumes in the same iteration.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence

from gitckpt.durable.agent import call
from gitckpt.durable.agent.call import Agent, Answer
from gitckpt.durable.agent.clients import words
from gitckpt.durable.command.execution import DEADLINE, EXIT, Ending, Patience, last_line
from gitckpt.durable.phases import command, options
from gitckpt.durable.phases.agent import MOST_LOST, RETRY_AT, require_there, unusable, wait_for_a_limit
from gitckpt.durable.phases.beads import BD
from gitckpt.durable.phases.loop import prompt
from gitckpt.durable.phases.loop.prompt import Documents
from gitckpt.durable.pipeline.launch import RESUMED, Context
from gitckpt.durable.run.attempts import AgentUnusable, DeadlineReached, Ended, PhaseFailed
from gitckpt.model import times
from gitckpt.model.checkpoint import LOOP, Progress
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass
from gitckpt.store import secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Options of the loop.

MAX_ITERATIONS = 100
PAUSE, AGENT_TIMEOUT, TEST_TIMEOUT, TRACKER_TIMEOUT = 10.0, 3600.0, 300.0, 30.0  # seconds

NEW, CONTINUE = "new", "continue"
CONVERSATIONS = (NEW, CONTINUE)  # whether each call starts a conversation or continues the last


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """The options of the loop. Durations are in seconds."""

    issues: tuple[str, ...] = ()  # must be closed
    epic: str = ""  # the parent issue; "": none
    done: str = ""  # command whose exit code 0 says that the work is done; "": none
    tests: str = ""  # test command; "": pytest or make
    max_iterations: int = MAX_ITERATIONS
    pause: float = PAUSE  # between two calls
    agent_timeout: float = AGENT_TIMEOUT  # of one call
    test_timeout: float = TEST_TIMEOUT
    conversation: str = NEW  # one of CONVERSATIONS
    max_budget: float = 0.0  # limit for all calls in US dollars; 0: no limit
    # longest silence; retries of its server count as silence; None: no limit
    idle_timeout: float | None = None


def read(said: Callable[[str], str]) -> LoopOptions:
    """Parse the options of a loop; `option` returns the text of one, or ""."""
    issues = tuple(said("issues").replace(",", " ").split())
    epic, done = said("epic"), said("done")
    for issue in (*issues, *([epic] if epic else [])):
        options.require_issue(issue)
    until_tests_pass = options.agreed("until_tests_pass", said("until_tests_pass"))
    if not issues and not done and not until_tests_pass:
        raise UsageError(
            "nothing says when the work is done",
            hint="name the issues, or a command that knows, or let the tests decide: --issue ID, --done COMMAND or --until-tests-pass of "
            "git ckpt loop; --input issues=ID, done=COMMAND or until_tests_pass=yes of git ckpt run and resume",
        )
    conversation = said("conversation") or NEW
    if conversation not in CONVERSATIONS:
        raise UsageError(f"conversation is {conversation!r:.60}", hint=f"it is one of {', '.join(CONVERSATIONS)}")
    return LoopOptions(
        issues=issues,
        epic=epic,
        done=done,
        tests=said("tests"),
        # 0 means the default, as everywhere in rlm-act.
        max_iterations=options.count("max_iterations", said("max_iterations"), MAX_ITERATIONS) or MAX_ITERATIONS,
        pause=options.pause("pause", said("pause"), PAUSE),
        agent_timeout=options.limit("agent_timeout", said("agent_timeout"), AGENT_TIMEOUT),
        idle_timeout=options.limit("idle_timeout", said("idle_timeout"), 1.0) if said("idle_timeout") else None,
        test_timeout=options.limit("test_timeout", said("test_timeout"), TEST_TIMEOUT),
        conversation=conversation,
        max_budget=options.amount("max_budget", said("max_budget")),
    )


# Status of the issues, from beads or from a command.

# Statuses of a closed issue: beads has the first, older versions and users have the others.
CLOSED = ("closed", "done", "complete", "tombstone")

# Runs a shell command. Very long output is cut.
Call = Callable[[str], Ending]


@dataclass(frozen=True, slots=True)
class Standing:
    closed: tuple[str, ...]
    open: tuple[str, ...]  # includes unknown issues
    problem: str = ""  # why the status is incomplete; "": it is complete

    @property
    def is_done(self) -> bool:
        return not self.open and not self.problem


def beads(issues: Sequence[str], read: Callable[[Sequence[str]], tuple[Ending, bytes]]) -> Standing:
    """Ask beads for the status of issues (`bd show ID… --json`).

    Since version 0.47 only JSON is reliable: an array of issues, or a single one in older versions.
    A missing issue is reported on standard error only, so every id is checked.
    """
    outcome, said = read(issues)
    if outcome.ended_by != EXIT:
        return Standing((), tuple(issues), "bd was ended: it took too long")
    found = statuses(said)
    closed = tuple(issue for issue in issues if found.get(issue, "") in CLOSED)
    still = tuple(issue for issue in issues if issue not in closed)
    unknown = [issue for issue in issues if issue not in found]
    if not unknown and not outcome.code:
        return Standing(closed, still)
    what = f"bd does not tell of {', '.join(unknown)}" if unknown else f"bd failed: exit code {outcome.code}"
    return Standing(closed, still, what + (last_line(outcome.tail) if outcome.code else ""))


def statuses(said: bytes) -> Mapping[str, str]:
    try:
        document = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    issues: list[Any] = document if isinstance(document, list) else [document]
    return {
        issue["id"]: issue["status"].strip().lower()
        for issue in issues
        if isinstance(issue, dict) and isinstance(issue.get("id"), str) and isinstance(issue.get("status"), str)
    }


def issue_command(line: str, call: Call) -> Standing:
    outcome = call(line)
    if outcome.ended_by == EXIT and outcome.code == 0:
        return Standing((), ())
    how = f"exit code {outcome.code}" if outcome.ended_by == EXIT else "it took too long"
    return Standing((), (), f"{line}: {how}{last_line(outcome.tail)}")


# Tests of the project.

_PYTEST = "pytest -v --tb=short"
_MAKE = "make test"
NONE = (
    "no test command found: pytest is not installed, and no Makefile has a target test; "
    "name one: --tests COMMAND of git ckpt loop, --input tests=COMMAND of git ckpt run and resume"
)

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


@dataclass(frozen=True, slots=True)
class Tested:
    passed: bool
    output: str  # with secrets masked; or why they could not run


def choose(path: str, env: Mapping[str, str]) -> str:
    """Return the test command of a project, or ""; search the PATH of `env`."""
    # `make test` replaces pytest only where it is not installed, not after it failed.
    if shutil.which("pytest", path=env.get("PATH", os.defpath)):
        return _PYTEST
    for name in _MAKEFILES:
        makefile = os.path.join(path, name)
        if os.path.isfile(makefile):
            with open(makefile, encoding="utf-8", errors="replace") as file:
                # make reads only the first of these files
                return _MAKE if _has_target(file) else ""
    return ""


def _has_target(makefile: Iterable[str]) -> bool:
    # No regular expression: one took minutes for a line of 500 KB.
    for line in makefile:
        targets, colon, rest = line.partition(":")
        is_rule = bool(colon) and not line[0].isspace() and not {"=", "#"}.intersection(targets)
        if is_rule and not rest.lstrip(":").startswith("=") and "test" in targets.split():
            return True
    return False


def run(line: str, call: Callable[[str], Ending], seconds: float) -> Tested:
    """Run the tests; without a command (`line` is "") they fail."""
    if not line:
        return Tested(passed=False, output=NONE)
    outcome = call(line)
    if outcome.ended_by != EXIT:
        output = f"{secrets.masked(outcome.tail).rstrip()}\nTests timed out after {seconds:g} seconds".lstrip()
        return Tested(passed=False, output=output)
    return Tested(outcome.code == 0, secrets.masked(outcome.tail))


# The loop: call the agent, check whether the work is done, test, repeat.

# The next step: call the agent, check its result, or nothing.
ASK, LOOK, DONE = "ask", "look", "done"

_KEPT_OUTPUT = 8000
_KEPT_FAILURES = 10
_SHOWN_FAILURE = 500
_DENIED = 3
_LINE = 200


@dataclass(frozen=True, slots=True)
class PhaseResult:
    # The phase's checkpoint stores it as JSON.
    iterations: int
    tests_passed: bool
    issues_closed: list[str]
    output: str  # end of the agent's last answer
    cost_usd: float  # of all answers, if the client reports it


class Loop:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._run = context.run
        self._env = context.environment()
        self._files = os.path.join(context.run.files.path, "agent")
        self._documents = Documents(context)
        try:
            self._options = read(context.option)
            self._client = context.client("agent")
        except UsageError as error:
            raise PhaseFailed(error.message, hint=error.hint) from None
        self._has_asked = False
        self._memory = self._remembered()

    def go(self) -> Ended:
        """Work until everything is done. Without a plan there is nothing to do."""
        memory = self._memory
        if not self._documents.plans:
            memory.update(next=DONE, said="no plan is named: nothing is to be done")
            self._show(memory["said"])
        elif memory["next"] != DONE:
            if self._options.max_budget:
                memory["max_budget_usd"] = self._options.max_budget
            self._require_what_is_needed()
            self._allow_more()
        while memory["next"] != DONE:
            if memory["next"] == ASK:
                if memory["iterations"] >= memory["allowed"]:
                    raise self._exhausted()
                self._require_budget()
                if self._has_asked:
                    self._run.wait(self._options.pause)
                if not self._ask():
                    continue
            self._look()
        result = PhaseResult(
            iterations=memory["iterations"],
            tests_passed=memory["tests"] == "passed",
            issues_closed=memory["closed_issues"],
            output=memory["said"],
            cost_usd=memory["cost_usd"],
        )
        return Ended(result={name: getattr(result, name) for name in result.__match_args__}, output=result.output)

    def _remembered(self) -> dict[str, Any]:
        phase, state, allowed = self._context.phase.name, self._run.state, self._options.max_iterations
        found = state.get("loop")
        memory: dict[str, Any] = found if isinstance(found, dict) else {}
        is_done_again = memory.get("next") == DONE and self._context.attempt.began is None
        if memory.get("phase") != phase or is_done_again:
            memory = state["loop"] = {"phase": phase, "iterations": 0, "allowed": allowed, "next": ASK}
            memory.update(open_issues=list(self._options.issues), closed_issues=[], tests="not run", tests_output="", failures=[])
            memory.update(cost_usd=0.0, session=None, said="", problem="", plan="")
        return memory

    def _allow_more(self) -> None:
        """Allow more iterations when an exhausted loop is resumed, but not after a crash."""
        memory = self._memory
        if memory["next"] == ASK and memory["iterations"] >= memory["allowed"] and not self._context.attempt.recoveries:
            memory["allowed"] = memory["iterations"] + self._options.max_iterations
            self._milestone(f"up to {memory['allowed']} iterations from now on")

    def _ask(self) -> bool:
        # Returns False if the call has to be repeated; any other failure uses up the iteration.
        memory = self._memory
        wait_for_a_limit(self._run, memory, self._show)
        number = memory["iterations"] + 1
        is_first, self._has_asked = not self._has_asked, True
        self._show(f"iteration {number} of {memory['allowed']}")
        task = prompt.Assignment(self._documents.plan(memory), self._options.epic, self._options.issues, self._options.tests)
        failed = memory["tests_output"] if memory["tests"] == "failed" else ""
        agent = Agent(self._client, self._run.path, self._env, self._context.watchdog, self._files)
        answer = agent.ask(
            prompt.build(self._documents.template(), task, failed, self._env["CKPT_REVISION"], self._resumed() if is_first else ""),
            session=memory["session"] if self._options.conversation == CONTINUE else None,
            patience=Patience(self._options.agent_timeout, self._options.idle_timeout, self._run.seconds_left()),
            output=self._context.output,
            tick=self._context.look,
            budget=self._options.max_budget - memory["cost_usd"] if self._options.max_budget else None,
        )
        if answer.ended_by == DEADLINE:
            raise DeadlineReached(f"iteration {number} was ended: the run took longer than it may", output=answer.tail)
        self._count(answer)
        if self._is_to_be_asked_again(number, answer):
            return False
        self._note(number, answer)
        self._milestone(f"iteration {number}: the agent was asked", errors=[answer.problem] if answer.problem else [])
        self._require_allowed()
        return True

    def _is_to_be_asked_again(self, number: int, answer: Answer) -> bool:
        """Return whether a limit or a lost connection prevented an answer (not counted)."""
        memory, now = self._memory, self._run.store.clock() / times.MICRO
        found = call.classify(answer, now)
        if found is None or found.kind == call.OTHER:
            memory.pop("limited", None)
            memory.pop("lost", None)
            return False
        self._show(answer.problem)
        if found.kind == call.FATAL:
            raise unusable(answer, self._run.id)
        if found.kind == call.TRANSIENT:
            memory["lost"] = memory.get("lost", 0) + 1
            if memory["lost"] > MOST_LOST:
                memory.pop("lost")
                return False  # as any other failure
            self._milestone(f"iteration {number}: asked again after {answer.problem}"[:_LINE], errors=[answer.problem])
            self._run.wait(min(2.0 ** memory["lost"], 60.0))
            return True
        memory["limited"] = memory.get("limited", 0) + 1
        if found.wait is None and memory["limited"] > call.MOST_LIMITED:
            memory.pop("limited")
            return False
        until = memory[RETRY_AT] = times.to_text(int((now + call.pause(found.wait, memory["limited"])) * times.MICRO))
        self._milestone(f"iteration {number}: limited until {until}", errors=[answer.problem])
        return True

    def _require_allowed(self) -> None:
        # The loop is unattended: a denied permission will not be granted later.
        memory = self._memory
        if memory.get("denied", 0) >= _DENIED:
            memory.pop("denied")
            raise AgentUnusable(
                f"{self._client.name} was not allowed what it wanted, {_DENIED} times in a row: {memory['denial']}",
                hint=f"allow it, as in: git ckpt resume {self._run.id} --input 'agent=claude -p --permission-mode acceptEdits "
                '--allowedTools "Edit,Write,Bash(git *)" --output-format stream-json --verbose\'',
            )

    def _resumed(self) -> str:
        """Return a note for the agent about an earlier attempt; "" in the first one."""
        if self._env.get(RESUMED) != "1":
            return ""
        changed = self._run.has_changed_files(self._context.attempt)
        left = "what was done until then is in the files of the worktree" if changed else "no file has changed since it began"
        return f"This is attempt {self._context.attempt.number}: an earlier one was interrupted, and {left}. Look before you go on."

    def _note(self, number: int, answer: Answer) -> None:
        memory = self._memory
        memory.update(iterations=number, next=LOOK, said=answer.report.text[-_KEPT_OUTPUT:], problem=answer.problem)
        memory["session"] = answer.report.session or memory["session"]
        if answer.report.denied:
            memory.update(denied=memory.get("denied", 0) + 1, denial=answer.report.denied[0])
        else:
            memory.pop("denied", None)
        if answer.problem:
            self._fail(f"iteration {number}: {answer.problem}")
            self._show(answer.problem)

    def _count(self, answer: Answer) -> None:
        # Calls that do not use up an iteration cost money, too.
        memory = self._memory
        memory["cost_usd"] = round(memory["cost_usd"] + (answer.report.cost_usd or 0.0), 6)
        for kind, count in answer.report.tokens.items():
            memory.setdefault("tokens", {})[kind] = memory.get("tokens", {}).get(kind, 0) + count

    def _look(self) -> None:
        memory = self._memory
        standing = self._standing() if self._options.issues or self._options.done else Standing((), (), memory["problem"])
        memory.update(open_issues=list(standing.open), closed_issues=list(standing.closed), next=ASK)
        number = memory["iterations"]
        if not standing.is_done:
            what = standing.problem or f"still open: {', '.join(standing.open)}"
            if what != memory["problem"]:
                self._show(what)
            self._milestone(f"iteration {number}: {_line(what)}")
            return
        line = self._options.tests or choose(self._run.path, self._env)
        self._show(f"tests: {line or 'there are none'}")
        tested = run(line, lambda text: command.run(self._context, text, self._options.test_timeout, show=True), self._options.test_timeout)
        memory.update(tests="passed" if tested.passed else "failed", tests_output=tested.output[-_KEPT_OUTPUT:])
        if tested.passed:
            memory.update(next=DONE, failures=[])
            self._milestone(f"iteration {number}: the tests pass")
            return
        what = f"Final tests failed: {tested.output[:_SHOWN_FAILURE]}"
        self._fail(what)
        self._milestone(f"iteration {number}: the tests fail", errors=[what])

    def _require_budget(self) -> None:
        spent, budget = self._memory["cost_usd"], self._options.max_budget
        if 0 < budget <= spent:
            raise PhaseFailed(
                f"the budget is used up: {spent:.2f} of {budget:.2f} USD",
                output=self._memory["said"],
                hint=f"to go on, allow more: git ckpt resume {self._run.id} --input max_budget=USD",
            )

    def _exhausted(self) -> PhaseFailed:
        memory = self._memory
        message = f"reached max iterations ({memory['allowed']})"
        hint = f"see what is missing: git ckpt status {self._run.id}; to go on: git ckpt resume {self._run.id}"
        return PhaseFailed(message, errors=(*memory["failures"], message), output=memory["said"], hint=hint)

    def _standing(self) -> Standing:
        found = Standing((), ())
        if self._options.issues:
            found = beads(self._options.issues, self._beads)
        if self._options.done and found.is_done:
            said = issue_command(self._options.done, lambda line: command.run(self._context, line, TRACKER_TIMEOUT))
            found = Standing(found.closed, found.open, said.problem)
        return found

    def _beads(self, issues: Sequence[str]) -> tuple[Ending, bytes]:
        line = f"{BD} show {' '.join(map(shlex.quote, issues))} --json"
        return command.ask(self._context, line, TRACKER_TIMEOUT, os.path.join("agent", "issues.json"))

    def _require_what_is_needed(self) -> None:
        self._documents.plan(self._memory)
        require_there(self._client, self._env, self._run)
        if self._options.max_budget and not self._client.tells_cost:
            name = self._client.name
            raise PhaseFailed(
                f"there is a budget, and nobody says what {name} costs",
                hint=f"say in gitckpt.toml what a million tokens cost: [agents.{name}.price], with input = USD and output = USD",
            )
        if self._options.issues and not shutil.which(BD, path=self._env.get("PATH", os.defpath)):
            raise PhaseFailed("bd is not there, which knows the issues", hint="install beads, or name another tracker: --done COMMAND")

    def _fail(self, text: str) -> None:
        self._memory["failures"] = [*self._memory["failures"], text][-_KEPT_FAILURES:]

    def _milestone(self, message: str, errors: Sequence[str] = ()) -> None:
        total = len(self._options.issues) or None
        progress = Progress(
            current_task=f"iteration {self._memory['iterations']}",
            tasks_completed=len(self._memory["closed_issues"]) if total else None,
            tasks_total=total,
        )
        self._run.milestone(trigger=LOOP, message=message, progress=progress, errors=errors)

    def _show(self, text: str) -> None:
        self._context.output(f"[loop] {words(text)}\n".encode())


def _line(text: str) -> str:
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())[:200]
