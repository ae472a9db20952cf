"""Scripted agents and a journal in memory for the tests of reviews."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gitckpt import Progress
from gitckpt.durable.phases.review.cycle import (
    AgentReply,
    GitCommits,
    ReviewOptions,
    ReviewRunner,
    ReviewVerdict,
)
from gitckpt.durable.phases.review.state import KEY, ReviewState
from tests.conftest import Checkout
from tests.durable.conftest import Killed

REJECTED = (
    "ISSUE:\nSEVERITY: major\nDESCRIPTION: {}\n\nREPORT:\nSATISFACTION: low\nSUMMARY: not yet"
)
APPROVED = (
    "APPROVED: fine\n\nREPORT:\nSATISFACTION: high\nRISK: low\nNEEDS_HUMAN_REVIEW: no\n"
    "SUMMARY: done"
)


@dataclass(frozen=True)
class Turn:
    """One action of an agent: files to write, and its reply."""

    text: str = "I did it."
    files: Mapping[str, str] = field(default_factory=dict)
    cost: float | None = 0.25
    ok: bool = True
    problem: str = ""
    session: str | None = None


class Actor:
    """An agent whose turns follow a script, one for each new prompt.

    A repeated prompt gets the same answer.

    Args:
        checkout: the worktree.
        turns: the last is repeated.
    """

    def __init__(self, checkout: Checkout, *turns: Turn) -> None:
        self.checkout = checkout
        self.turns = turns
        self.prompts: list[str] = []
        self.calls: list[tuple[str, str | None, dict[str, str]]] = []
        self.dies_in = 0

    def ask_agent(self, prompt: str, session: str | None, env: Mapping[str, str]) -> AgentReply:
        self.calls.append((prompt, session, dict(env)))
        if prompt not in self.prompts:
            self.prompts.append(prompt)
        turn = self.turns[min(self.prompts.index(prompt), len(self.turns) - 1)]
        dies = len(self.calls) == self.dies_in
        for name, text in turn.files.items():
            self.checkout.write(name, text[: len(text) // 2] if dies else text)
        if dies:
            raise Killed
        return AgentReply(turn.ok, turn.problem, turn.text, turn.cost, turn.session)


class Memory:
    """A journal that keeps its records in memory.

    Args:
        state: the initial state.
        dies_after: the number of the milestone after which the writer is killed.
    """

    id = "RUN"

    def __init__(self, state: dict[str, Any] | None = None, dies_after: int = 0) -> None:
        self.state: dict[str, Any] = copy.deepcopy(state or {})
        self.dies_after = dies_after
        self.recorded: list[dict[str, Any]] = []
        self.notes: list[tuple[str | None, tuple[str, ...]]] = []
        self.progress: list[Progress | None] = []

    def milestone(
        self,
        *,
        trigger: str = "review",
        message: str | None = None,
        progress: Progress | None = None,
        errors: Sequence[str] = (),
    ) -> None:
        assert trigger == "review"
        assert json.loads(json.dumps(self.state)) == self.state
        self.recorded.append(copy.deepcopy(self.state))
        self.notes.append((message, tuple(errors)))
        self.progress.append(progress)
        if len(self.recorded) == self.dies_after:
            raise Killed

    def check(self) -> None:
        pass

    @property
    def messages(self) -> list[str | None]:
        return [message for message, _ in self.notes]

    @property
    def cycle(self) -> ReviewState:
        """The newest recorded state."""
        return ReviewState.from_state_table(self.recorded[-1][KEY])


class Bench:
    """A worktree with coder, reviewer, journal and options, for several reviews."""

    def __init__(self, checkout: Checkout, coder: Actor, reviewer: Actor, **options: Any) -> None:
        self.checkout = checkout
        self.coder = coder
        self.reviewer = reviewer
        self.options = ReviewOptions(**{"task": "t-1", "title": "Add a login", **options})
        self.journal = Memory()
        self.said: list[str] = []
        self.tasks: list[str | None] = []
        self.commands: list[str] = []

    def go(self, **options: Any) -> ReviewVerdict:
        """Start or resume the review; named options replace the others."""
        chosen = ReviewOptions(
            **{**{name: getattr(self.options, name) for name in ReviewOptions.__slots__}, **options}
        )
        commits = GitCommits(os.fspath(self.checkout.path))
        review = ReviewRunner(
            self.journal,
            self.coder,
            self.reviewer,
            commits,
            chosen,
            tell=self.said.append,
            shell=self.shell,
            refactor=lambda: self.tasks.pop(0) if self.tasks else None,
            clock=lambda: 1_800_000_000_000_000,
        )
        return review.run_cycles()

    def resume(
        self, state: ReviewState | dict[str, Any] | None = None, **options: Any
    ) -> ReviewVerdict:
        """Resume in a new process, from the newest record or from another state."""
        table = state.to_state_table() if isinstance(state, ReviewState) else state
        self.journal = Memory({KEY: table} if table is not None else self.journal.recorded[-1])
        return self.go(**options)

    def shell(self, command: str) -> tuple[int, str]:
        self.commands.append(command)
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.checkout.path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def log(self) -> list[str]:
        """Return the subjects of the commits, oldest first."""
        return self.checkout.git("log", "--reverse", "--format=%s").splitlines()
