"""opencode: how it is called, and what its messages mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitckpt.durable.agent.dialect import ERROR, SESSION, Dialect, Kept, cost, lines, one_line, session_id, sound, table, telling, tool_line

_KINDS = ("text", "tool_use", "tool", "step_start", "step_finish", "error", "reasoning")


class OpenCode(Dialect):
    """opencode, `run --format json`."""

    name = "opencode"
    command = "opencode run --format json"
    resume = f"--session {SESSION}"
    conversations = ("session", "conversation")
    prompt = "argument"
    tells_cost = True

    def __init__(self) -> None:
        super().__init__()
        self._saying = Kept()

    @staticmethod
    def asks_for_messages(options: Sequence[str]) -> bool:
        """Tells whether these options let it print messages."""
        pairs = zip(options, [*options, ""][1:], strict=True)
        return any((option == "--format" and after == "json") or option == "--format=json" for option, after in pairs)

    def take(self, message: Mapping[str, object]) -> str | None:
        """See `Dialect.take`."""
        kind = message.get("type")
        if kind not in _KINDS:
            return None
        self.session = session_id(message.get("sessionID")) or self.session
        part = table(message.get("part"))
        if kind == "error":
            return self._error(table(message.get("error")))
        if kind == "step_finish":
            return self._finished(part)
        self.worked = True
        if kind == "text":
            self._saying.clear()
            self._saying.add(sound(part.get("text")))
            self.text = self._saying.text()
            return lines(self.text)
        if kind in ("tool_use", "tool"):
            return tool_line(sound(part.get("tool")), telling(table(part.get("state")).get("input")))
        return ""

    def _finished(self, part: Mapping[str, object]) -> str:
        """Takes in the end of a step: the last one, unless it waits for a tool."""
        price = cost(part.get("cost"))
        if price is not None:
            self.cost_usd = (self.cost_usd or 0.0) + price
        tokens = table(part.get("tokens"))
        self.count(tokens, {"input": "input", "output": "output", "reasoning": "output"})
        self.count(table(tokens.get("cache")), {"read": "input", "write": "input"})
        self.count(table(tokens.get("cache")), {"read": "cached"})
        self.complete = part.get("reason") != "tool-calls"
        return ""

    def _error(self, error: Mapping[str, object]) -> str:
        data = table(error.get("data"))
        status, wait = data.get("statusCode"), table(data.get("responseHeaders")).get("retry-after")
        words = sound(data.get("message")) or sound(error.get("message")) or sound(error.get("name"))
        head = f"HTTP {status}: " if type(status) is int and words else ""
        after = f" (retry after {sound(wait)} seconds)" if head and sound(wait).isdecimal() else ""
        said = one_line(f"{head}{words}{after}", ERROR)
        self.complete, self.is_error, self.error = True, True, said or self.error
        return f"error: {said}\n" if said else ""
