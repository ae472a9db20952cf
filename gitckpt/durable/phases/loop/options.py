"""How the autonomous loop is carried out, read from text and checked as a whole."""

from __future__ import annotations

from collections.abc import Callable

from gitckpt.durable.phases import options
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass

MAX_ITERATIONS = 100
PAUSE, AGENT_TIMEOUT, TEST_TIMEOUT, TRACKER_TIMEOUT = 10.0, 3600.0, 300.0, 30.0
"""In seconds."""

NEW, CONTINUE = "new", "continue"
CONVERSATIONS = (NEW, CONTINUE)
"""Whether each call of the agent begins a conversation, or goes on with the last one."""


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How the loop is carried out. Lengths of time are in seconds.

    Attributes:
        issues: ids of the issues that must be closed.
        epic: id of the issue that holds them; "" for none.
        done: a command that says by exit code 0 that all is done; "" for none.
        tests: the command that tests; "" for pytest or make.
        max_iterations: how often the agent is called at most.
        pause: between two calls.
        agent_timeout: how long one call may take.
        idle_timeout: how long it may say nothing, or only that it calls its server again; None for as long as it likes.
        test_timeout: how long the tests may take.
        conversation: one of `CONVERSATIONS`.
        max_budget: what all calls together may cost, in US dollars; 0 for as much as they like.
    """

    issues: tuple[str, ...] = ()
    epic: str = ""
    done: str = ""
    tests: str = ""
    max_iterations: int = MAX_ITERATIONS
    pause: float = PAUSE
    agent_timeout: float = AGENT_TIMEOUT
    test_timeout: float = TEST_TIMEOUT
    conversation: str = NEW
    max_budget: float = 0.0
    idle_timeout: float | None = None


def read(said: Callable[[str], str]) -> LoopOptions:
    """Returns the options.

    Args:
        said: returns the text of an option by its name, "" where nothing is said.

    Raises:
        UsageError: one cannot be understood, or nothing says when the work is done.
    """
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
        # None at all stands for the usual number, as everywhere in rlm-act.
        max_iterations=options.count("max_iterations", said("max_iterations"), MAX_ITERATIONS) or MAX_ITERATIONS,
        pause=options.pause("pause", said("pause"), PAUSE),
        agent_timeout=options.limit("agent_timeout", said("agent_timeout"), AGENT_TIMEOUT),
        idle_timeout=options.limit("idle_timeout", said("idle_timeout"), 1.0) if said("idle_timeout") else None,
        test_timeout=options.limit("test_timeout", said("test_timeout"), TEST_TIMEOUT),
        conversation=conversation,
        max_budget=options.amount("max_budget", said("max_budget")),
    )
