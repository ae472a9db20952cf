"""Codex: how it is called, and what its messages mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitckpt.durable.agent.dialect import ERROR, SESSION, Dialect, lines, one_line, session_id, sound, table, tool_line

_KINDS = ("thread.", "turn.", "item.")
_JSON = ("--json", "--experimental-json")


class Codex(Dialect):
    """Codex, `codex exec --json`."""

    name = "codex"
    command = "codex exec --json -"
    resume = f"resume {SESSION}"
    conversations = ("rollout", "thread", "conversation", "session")  # no rollout found for thread id …

    @staticmethod
    def asks_for_messages(options: Sequence[str]) -> bool:
        """Tells whether these options let it print messages."""
        return any(option in _JSON for option in options)

    def take(self, message: Mapping[str, object]) -> str | None:
        """See `Dialect.take`."""
        kind = message.get("type")
        if not isinstance(kind, str) or not (kind == "error" or kind.startswith(_KINDS)):
            return None
        if kind == "thread.started":
            self.session = session_id(message.get("thread_id")) or self.session
        elif kind == "turn.completed":
            self.complete, self.is_error, self.error = True, False, None
            self.count(table(message.get("usage")), {"input_tokens": "input", "cached_input_tokens": "cached", "output_tokens": "output"})
        elif kind == "turn.failed":
            failure = one_line(sound(table(message.get("error")).get("message")), ERROR)
            self.complete, self.is_error, self.error = True, True, failure or self.error
        elif kind == "error":
            return self._error(one_line(sound(message.get("message")), ERROR))
        elif kind.startswith("item."):
            return self._item(kind, table(message.get("item")))
        return ""

    def _error(self, problem: str) -> str:
        """It may be about a connection that is tried again: only the end of the turn says whether the call failed."""
        if not self.complete:
            self.is_error, self.error = True, problem or self.error
        return f"error: {problem}\n" if problem else ""

    def _item(self, kind: str, item: Mapping[str, object]) -> str:
        # A turn begins before the model is asked, and what the client itself complains of is an item, too: neither is work.
        self.worked = self.worked or item.get("type") != "error"
        what, began = item.get("type"), kind == "item.started"
        if what in ("command_execution", "mcp_tool_call", "collab_tool_call"):
            named = " ".join(filter(None, (sound(item.get("server")), sound(item.get("tool")))))
            return tool_line(named, sound(item.get("command"))) if began else _exit_code(item.get("exit_code"))
        if kind != "item.completed":
            return ""
        if what == "agent_message":
            self.text = sound(item.get("text")) or self.text
            return lines(sound(item.get("text")))
        if what == "file_change":
            changes = item.get("changes")
            paths = [sound(table(change).get("path")) for change in changes] if isinstance(changes, list) else []
            return tool_line("files", ", ".join(filter(None, paths)))
        if what == "web_search":
            return tool_line("search", sound(item.get("query")))
        return lines(f"error: {one_line(sound(item.get('message')), ERROR)}") if what == "error" else ""


def _exit_code(code: object) -> str:
    return f"  exit code {code}\n" if type(code) is int and 0 < abs(code) < 1000 else ""
