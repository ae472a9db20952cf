"""Gemini CLI: how it is called, and what its messages mean."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.durable.agent.dialect import ERROR, SESSION, Dialect, Kept, lines, one_line, session_id, sound, table, telling, tool_line

_TOKENS = {"prompt": "input", "candidates": "output", "thoughts": "output", "cached": "cached"}
_KINDS = ("init", "message", "tool_use", "tool_result", "error", "result")


class Gemini(Dialect):
    """Gemini CLI, `--output-format json` and `stream-json`."""

    name = "gemini"
    command = "gemini --output-format json"
    resume = f"--resume {SESSION}"
    conversations = ("session", "conversation")  # Invalid session identifier

    def __init__(self) -> None:
        super().__init__()
        self._saying = Kept()
        self._line_is_open = False

    def take(self, message: Mapping[str, object]) -> str | None:
        """See `Dialect.take`."""
        kind = message.get("type")
        is_whole = kind is None and (isinstance(message.get("response"), str) or isinstance(message.get("error"), dict))
        if not is_whole and kind not in _KINDS:
            return None
        self.session = session_id(message.get("session_id")) or self.session
        if is_whole:
            return self._whole(message)
        if kind == "message":
            return self._message(message)
        shown = self._other(str(kind), message)
        if self._line_is_open and (shown or self.complete):
            shown, self._line_is_open = "\n" + shown, False
        return shown

    def _whole(self, message: Mapping[str, object]) -> str:
        self.complete = True
        for model in table(table(message.get("stats")).get("models")).values():
            self.count(table(table(model).get("tokens")), _TOKENS)
        self.text = sound(message.get("response"))
        self.worked = self.worked or "response" in message
        self._fail(message.get("error"), failed=isinstance(message.get("error"), dict))
        return lines(self.text)

    def _message(self, message: Mapping[str, object]) -> str:
        if message.get("role") != "assistant":
            return ""
        self.worked = True
        content = sound(message.get("content"))
        if message.get("delta") is not True:
            self._saying.clear()
            content = lines(content)
        self._saying.add(content)
        self.text = self._saying.text()
        self._line_is_open = not content.endswith("\n") if content else self._line_is_open
        return content

    def _other(self, kind: str, message: Mapping[str, object]) -> str:
        if kind == "tool_use":
            self.worked = True
            self._saying.clear()
            return tool_line(sound(message.get("tool_name")), telling(message.get("parameters")))
        if kind == "error":
            return lines(f"error: {one_line(sound(message.get('message')), ERROR)}")
        if kind == "result":
            self.complete = True
            self.count(table(message.get("stats")), {"input_tokens": "input", "output_tokens": "output", "cached": "cached"})
            self._fail(message.get("error"), failed=message.get("status") == "error")
        return ""

    def _fail(self, error: object, *, failed: bool) -> None:
        self.is_error = failed
        self.error = one_line(sound(table(error).get("message")), ERROR) or None if failed else None
