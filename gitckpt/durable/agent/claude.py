"""Claude Code: how it is called, and what its messages mean."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.durable.agent.dialect import ERROR, SESSION, Dialect, cost, lines, one_line, session_id, sound, table, telling, tool_line

_KINDS = ("system", "assistant", "user", "result", "stream_event")
_ERRORS = {
    "error_max_turns": "it reached its limit of turns",
    "error_max_budget_usd": "it reached its limit of costs",
    "error_during_execution": "an error during execution",
}


_TOKENS = {
    "input_tokens": "input",
    "cache_creation_input_tokens": "input",
    "cache_read_input_tokens": "input",
    "output_tokens": "output",
}
_MOST = 20
_SYNTHETIC = "<synthetic>"


class Claude(Dialect):
    """Claude Code, `--output-format json` and `stream-json`."""

    name = "claude"
    command = "claude -p --output-format stream-json --verbose"
    resume = f"--resume {SESSION}"
    budget = "--max-budget-usd"
    tells_cost = True
    conversations = ("conversation", "session")  # No conversation found with session ID: …

    def take(self, message: Mapping[str, object]) -> str | None:
        """See `Dialect.take`."""
        kind = message.get("type")
        if kind not in _KINDS and "session_id" not in message:
            return None
        self.session = session_id(message.get("session_id")) or self.session
        self.retries = kind == "system" and message.get("subtype") == "api_retry"
        if kind == "assistant":
            return self._assistant(message)
        if self.retries:
            return _retry(message)
        return self._result(message) if kind == "result" else ""

    def _assistant(self, message: Mapping[str, object]) -> str:
        # What the client says itself, as of a call to its model that failed, stands there as well.
        self.worked = self.worked or (table(message.get("message")).get("model") != _SYNTHETIC and not message.get("error"))
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
            price = cost(message.get(key))
            self.cost_usd = self.cost_usd if price is None else price
        usage = table(message.get("usage"))
        self.count(usage, _TOKENS)
        self.count(usage, {"cache_read_input_tokens": "cached"})
        denials = message.get("permission_denials")
        self.denied = [_denial(table(each)) for each in denials[:_MOST]] if isinstance(denials, list) else []
        turns = message.get("num_turns")
        self.worked = self.worked or (not self.is_error if type(turns) is not int else turns > self.is_error)  # a call that failed is one
        self.text = sound(message.get("result")) or self.text
        if self.is_error:
            errors = message.get("errors")
            listed = "; ".join(filter(None, map(sound, errors))) if isinstance(errors, list) else ""
            named = _ERRORS.get(subtype) or (subtype if subtype.startswith("error") else "")
            self.error = one_line(listed or sound(message.get("result")) or named, ERROR) or None
        told = "".join(f"not allowed: {each}\n" for each in self.denied)
        return (lines(self.text) if self.text != before else "") + told


def _retry(message: Mapping[str, object]) -> str:
    """Returns the line that says that the client calls its server again."""
    attempt, most = message.get("attempt"), message.get("max_retries")
    number = f", attempt {attempt}" + (f" of {most}" if type(most) is int else "") if type(attempt) is int else ""
    why = one_line(sound(message.get("error")) or sound(table(message.get("error")).get("message")))
    return f"the model is called again{number}{': ' if why else ''}{why}\n"


def _denial(denial: Mapping[str, object]) -> str:
    return one_line(": ".join(filter(None, (sound(denial.get("tool_name")), telling(denial.get("tool_input"))))) or "a tool")


def _block(block: Mapping[str, object]) -> str:
    if block.get("type") == "tool_use":
        return tool_line(sound(block.get("name")), telling(block.get("input")))
    return lines(sound(block.get("text"))) if block.get("type") == "text" else ""
