"""Claude Code: how it is called, and what its messages mean."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.durable.agent.dialect import ERROR, SESSION, Dialect, lines, one_line, session_id, sound, table, telling, tool_line

_HIGHEST_COST = 1_000_000_000
_KINDS = ("system", "assistant", "user", "result", "stream_event")
_ERRORS = {
    "error_max_turns": "it reached its limit of turns",
    "error_max_budget_usd": "it reached its limit of costs",
    "error_during_execution": "an error during execution",
}


class Claude(Dialect):
    """Claude Code, `--output-format json` and `stream-json`."""

    name = "claude"
    command = "claude -p --output-format stream-json --verbose"
    resume = f"--resume {SESSION}"
    conversations = ("conversation", "session")  # No conversation found with session ID: …

    def take(self, message: Mapping[str, object]) -> str | None:
        """See `Dialect.take`."""
        kind = message.get("type")
        if kind not in _KINDS and "session_id" not in message:
            return None
        self.session = session_id(message.get("session_id")) or self.session
        if kind == "assistant":
            return self._assistant(message)
        return self._result(message) if kind == "result" else ""

    def _assistant(self, message: Mapping[str, object]) -> str:
        self.worked = True
        content = table(message.get("message")).get("content")
        blocks = [table(block) for block in content] if isinstance(content, list) else [{"type": "text", "text": content}]
        said = "\n".join(filter(None, (sound(block.get("text")) for block in blocks if block.get("type") == "text")))
        if said and not message.get("parent_tool_use_id"):  # what an agent of the agent says is no answer to us
            self.text = said
        return "".join(_block(block) for block in blocks)

    def _result(self, message: Mapping[str, object]) -> str:
        subtype, before = sound(message.get("subtype")), self.text
        self.complete = True
        self.is_error = message.get("is_error") is True or subtype.startswith("error")
        for key in ("cost_usd", "total_cost_usd"):  # the first one is that of older versions
            cost = _cost(message.get(key))
            self.cost_usd = self.cost_usd if cost is None else cost
        turns = message.get("num_turns")
        self.worked = self.worked or (not self.is_error if type(turns) is not int else turns > 0)
        self.text = sound(message.get("result")) or self.text
        if self.is_error:
            errors = message.get("errors")
            listed = "; ".join(filter(None, map(sound, errors))) if isinstance(errors, list) else ""
            named = _ERRORS.get(subtype) or (subtype if subtype.startswith("error") else "")
            self.error = one_line(listed or sound(message.get("result")) or named, ERROR) or None
        return lines(self.text) if self.text != before else ""


def _cost(value: object) -> float | None:
    is_number = type(value) in (int, float)
    return float(value) if is_number and 0 <= value <= _HIGHEST_COST else None  # type: ignore[operator, arg-type]


def _block(block: Mapping[str, object]) -> str:
    if block.get("type") == "tool_use":
        return tool_line(sound(block.get("name")), telling(block.get("input")))
    return lines(sound(block.get("text"))) if block.get("type") == "text" else ""
