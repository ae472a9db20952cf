"""Record the turns of an agent: a session is a run, a prompt is a phase of it.

The checkpoint before a turn is labelled `turn-N-started`, with the first line of the prompt as its
message; the one after it `turn-N-complete`, or `turn-N-partial` if the session ended in the middle.
Guards (`guards`) record `turn-N-progress` in between.
"""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.agents import events, guards, transcript
from gitckpt.agents.events import HookEvent
from gitckpt.agents.guards import MAX_MESSAGE
from gitckpt.git.repository import open_repository
from gitckpt.model.checkpoint import GUARD, TURN, Checkpoint
from gitckpt.model.errors import NotFoundError, RunExists
from gitckpt.model.values import replace
from gitckpt.store import secrets
from gitckpt.store.checkpoints import Checkpoints

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    TurnState = dict[str, Any]
    MoreDetails = Mapping[str, Any]

_SECONDS_AT_END = 1.0


def record(event: HookEvent) -> Checkpoint | None:
    """Record what an event asks for; return the new checkpoint, or None.

    Raises RepositoryError if the agent does not work in a repository.
    """
    repository = open_repository(event.directory, by_variables=False)
    if repository.worktree is None:
        return None
    with Checkpoints(repository, adapter="plumbing") as store:
        session = AgentSession(store, event)
        if event.kind == events.PROMPT:
            return session.begin_turn()
        if event.kind == events.TOOL:
            return session.guard()
        return session.end_turn(is_interrupted=event.kind == events.END)


class AgentSession:
    """The run of one conversation with a client; an event belongs to it."""

    def __init__(self, store: Checkpoints, event: HookEvent) -> None:
        self._store, self._event = store, event
        self._key = f"agent:{event.client}:{event.session}"
        self.run = store.claim_of_key(self._key).existing_run()
        self._newest: Checkpoint | None = None
        if self.run is not None:
            try:
                self._newest = store.heads.read(self.run)
                store.heads.trust_head(self.run)
            except NotFoundError:  # removed meanwhile
                self.run = None

    def begin_turn(self) -> Checkpoint:
        turn = self._turn() + 1
        # Masked before it is cut: half a secret would no longer be recognized.
        prompt = secrets.mask_text(self._event.prompt)[: events.MAX_STORED]
        state = {**self._facts(), "turn": turn, "prompt": prompt, "guards": 0}
        return self._save(f"turn-{turn}-started", state, first_line(prompt) or "(no prompt)")

    def end_turn(self, *, is_interrupted: bool) -> Checkpoint | None:
        newest = self._newest
        if newest is None:
            return None  # the session began before its hooks were installed
        if is_interrupted and newest.status in ("complete", "partial"):
            return None  # the usual end: Stop came before SessionEnd
        old = newest.state
        state = {**old, **self._facts(), **transcript.summary(self._event.transcript, old)}
        status = "partial" if is_interrupted else "complete"
        message = first_line(str(old.get("prompt", ""))) or newest.message
        return self._save(f"turn-{self._turn()}-{status}", state, message)

    def guard(self) -> Checkpoint | None:
        """Keep what a shell command may destroy; return the checkpoint of this worktree."""
        event = self._event
        if event.command is None:
            return None
        return guards.protect(
            self._store, event.command, event.directory, self._save_guard, event.client
        )

    def _save_guard(self, message: str) -> Checkpoint | None:
        state = {**self._facts(), **(self._newest.state if self._newest else {})}
        state["guards"] = _count(state.get("guards")) + 1
        state["command"] = secrets.mask_text(str(self._event.command))[: events.MAX_STORED]
        checkpoint_id = self._store.new_id()
        details = {"trigger": GUARD, "id": checkpoint_id, "if_changed": True}
        saved = self._save(f"turn-{self._turn()}-progress", state, message, details)
        return saved if saved.id == checkpoint_id else None

    def _turn(self) -> int:
        return _count(self._newest.state.get("turn")) if self._newest is not None else 0

    def _facts(self) -> TurnState:
        event = self._event
        facts: TurnState = {"session": event.session}
        if event.model:
            facts["model"] = event.model
        if event.transcript:
            facts["transcript"] = event.transcript
            facts["transcript_bytes"] = transcript.size(event.transcript)
        return facts

    def _save(
        self,
        label: str,
        state: TurnState,
        message: str | None,
        more: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        store, event = self._store, self._event
        details: Any = {"trigger": TURN, "agent": event.client, "message": message, **(more or {})}
        unchanged = store.unchanged() if more is None else None
        limits = store.settings_reader.read_limits_within_budget()
        if event.kind == events.END:  # a client ends the hook about two seconds after its own end
            limits = replace(limits, timeout=min(limits.timeout, _SECONDS_AT_END))
        while True:
            place: Any = {"run": self.run}
            if self.run is None:
                place = {"start": f"{event.client} {message or ''}", "key": self._key}
            try:
                if unchanged is not None:
                    return store.record_again(unchanged, label, state, **place, **details)
                return store.save(label, state, limits=limits, **place, **details)
            except RunExists as error:  # another hook of this session has just started it
                self.run = error.run


def first_line(text: str) -> str:
    """Return the first line of a text, without control characters."""
    line = next(filter(None, map(str.strip, text.splitlines())), "")
    return "".join(c if c.isprintable() else " " for c in line)[:MAX_MESSAGE].strip()


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0
