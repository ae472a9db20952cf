"""What the messages of each client mean: the answer, the conversation, the cost, what failed; and what of each a person is shown.

Every value is hostile: a message may have anything in any place. What is not as it should be counts as not said.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from gitckpt.durable.agent import client

KEPT = 1 << 20
"""So many characters of a text are kept, the last ones."""

_SHOWN = 120
_ERROR = 500
_HIGHEST_COST = 1_000_000_000
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "�") | {13: ""}

_CLAUDE_KINDS = ("system", "assistant", "user", "result", "stream_event")
_CLAUDE_ERRORS = {
    "error_max_turns": "it reached its limit of turns",
    "error_max_budget_usd": "it reached its limit of costs",
    "error_during_execution": "an error during execution",
}
_TELLING = ("command", "file_path", "path", "pattern", "query", "url", "description", "prompt")
"""The inputs of a tool that say most of what it does, the best first."""

_CODEX_KINDS = ("thread.", "turn.", "item.")
_GEMINI_KINDS = ("init", "message", "tool_use", "tool_result", "error", "result")


class Kept:
    """Keeps the last `KEPT` characters of what is added."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        """Takes in what follows."""
        self._parts.append(text)
        self._size += len(text)
        if self._size > 2 * KEPT:
            self._parts = [self.text()]
            self._size = KEPT

    def text(self) -> str:
        """Returns what is kept."""
        return "".join(self._parts)[-KEPT:]

    def clear(self) -> None:
        """Forgets everything."""
        self._parts, self._size = [], 0


class Dialect(ABC):
    """The messages of one client, taken in one after the other.

    Attributes:
        text: the answer so far.
        session: the id of the conversation.
        cost_usd: what the call has cost.
        is_error: whether the client says that it failed.
        error: why; it may have recovered from that, where `is_error` is not set.
        complete: whether its final message came.
        worked: whether the agent did or said anything.
    """

    def __init__(self) -> None:
        self.text = ""
        self.session: str | None = None
        self.cost_usd: float | None = None
        self.is_error = False
        self.error: str | None = None
        self.complete = False
        self.worked = False

    @abstractmethod
    def take(self, message: Mapping[str, object]) -> str | None:
        """Takes in a message. Returns what a person is shown of it, None where it is no message of this client."""


class _Claude(Dialect):
    """Claude Code, `--output-format json` and `stream-json`."""

    def take(self, message: Mapping[str, object]) -> str | None:
        kind = message.get("type")
        if kind not in _CLAUDE_KINDS and "session_id" not in message:
            return None
        self.session = client.session_id(message.get("session_id")) or self.session
        if kind == "assistant":
            return self._assistant(message)
        return self._result(message) if kind == "result" else ""

    def _assistant(self, message: Mapping[str, object]) -> str:
        self.worked = True
        content = _table(message.get("message")).get("content")
        blocks = [_table(block) for block in content] if isinstance(content, list) else [{"type": "text", "text": content}]
        said = "\n".join(filter(None, (sound(block.get("text")) for block in blocks if block.get("type") == "text")))
        if said and not message.get("parent_tool_use_id"):  # what an agent of the agent says is no answer to us
            self.text = said
        return "".join(_claude_block(block) for block in blocks)

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
            named = _CLAUDE_ERRORS.get(subtype) or (subtype if subtype.startswith("error") else "")
            self.error = one_line(listed or sound(message.get("result")) or named, _ERROR) or None
        return _lines(self.text) if self.text != before else ""


class _Codex(Dialect):
    """Codex, `codex exec --json`."""

    def take(self, message: Mapping[str, object]) -> str | None:
        kind = message.get("type")
        if not isinstance(kind, str) or not (kind == "error" or kind.startswith(_CODEX_KINDS)):
            return None
        if kind == "thread.started":
            self.session = client.session_id(message.get("thread_id")) or self.session
        elif kind == "turn.started":
            self.worked = True
        elif kind == "turn.completed":
            self.complete, self.is_error, self.error = True, False, None
        elif kind == "turn.failed":
            failure = one_line(sound(_table(message.get("error")).get("message")), _ERROR)
            self.complete, self.is_error, self.error = True, True, failure or self.error
        elif kind == "error":
            return self._error(one_line(sound(message.get("message")), _ERROR))
        elif kind.startswith("item."):
            return self._item(kind, _table(message.get("item")))
        return ""

    def _error(self, problem: str) -> str:
        """It may be about a connection that is tried again: only the end of the turn says whether the call failed."""
        if not self.complete:
            self.is_error, self.error = True, problem or self.error
        return f"error: {problem}\n" if problem else ""

    def _item(self, kind: str, item: Mapping[str, object]) -> str:
        self.worked = True
        what, began = item.get("type"), kind == "item.started"
        if what in ("command_execution", "mcp_tool_call", "collab_tool_call"):
            named = " ".join(filter(None, (sound(item.get("server")), sound(item.get("tool")))))
            return _tool(named, sound(item.get("command"))) if began else _exit_code(item.get("exit_code"))
        if kind != "item.completed":
            return ""
        if what == "agent_message":
            self.text = sound(item.get("text")) or self.text
            return _lines(sound(item.get("text")))
        if what == "file_change":
            changes = item.get("changes")
            paths = [sound(_table(change).get("path")) for change in changes] if isinstance(changes, list) else []
            return _tool("files", ", ".join(filter(None, paths)))
        if what == "web_search":
            return _tool("search", sound(item.get("query")))
        return _lines(f"error: {one_line(sound(item.get('message')), _ERROR)}") if what == "error" else ""


class _Gemini(Dialect):
    """Gemini CLI, `--output-format json` and `stream-json`."""

    def __init__(self) -> None:
        super().__init__()
        self._saying = Kept()
        self._line_is_open = False

    def take(self, message: Mapping[str, object]) -> str | None:
        kind = message.get("type")
        is_whole = kind is None and (isinstance(message.get("response"), str) or isinstance(message.get("error"), dict))
        if not is_whole and kind not in _GEMINI_KINDS:
            return None
        self.session = client.session_id(message.get("session_id")) or self.session
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
        self.text = sound(message.get("response"))
        self.worked = self.worked or "response" in message
        self._fail(message.get("error"), failed=isinstance(message.get("error"), dict))
        return _lines(self.text)

    def _message(self, message: Mapping[str, object]) -> str:
        if message.get("role") != "assistant":
            return ""
        self.worked = True
        content = sound(message.get("content"))
        if message.get("delta") is not True:
            self._saying.clear()
            content = _lines(content)
        self._saying.add(content)
        self.text = self._saying.text()
        self._line_is_open = not content.endswith("\n") if content else self._line_is_open
        return content

    def _other(self, kind: str, message: Mapping[str, object]) -> str:
        if kind == "tool_use":
            self.worked = True
            self._saying.clear()
            return _tool(sound(message.get("tool_name")), _telling(message.get("parameters")))
        if kind == "error":
            return _lines(f"error: {one_line(sound(message.get('message')), _ERROR)}")
        if kind == "result":
            self.complete = True
            self._fail(message.get("error"), failed=message.get("status") == "error")
        return ""

    def _fail(self, error: object, *, failed: bool) -> None:
        self.is_error = failed
        self.error = one_line(sound(_table(error).get("message")), _ERROR) or None if failed else None


DIALECTS: Mapping[str, Callable[[], Dialect]] = {client.CLAUDE: _Claude, client.CODEX: _Codex, client.GEMINI: _Gemini}


def sound(value: object) -> str:
    """Returns a text without NUL and lone surrogates, the empty one for what is no text."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def one_line(text: str, limit: int = _SHOWN) -> str:
    """Returns a text on one line, cut where it is long."""
    line = " ".join(text[: 4 * limit].split()).translate(_CONTROL)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _cost(value: object) -> float | None:
    is_number = type(value) in (int, float)
    return float(value) if is_number and 0 <= value <= _HIGHEST_COST else None  # type: ignore[operator, arg-type]


def _lines(text: str) -> str:
    """Returns a text as a terminal shows it, with its last line ended."""
    shown = text.translate(_CONTROL)
    return shown if not shown or shown.endswith("\n") else shown + "\n"


def _tool(name: str, what: str) -> str:
    said = one_line(": ".join(filter(None, (name, what))))
    return f"→ {said}\n" if said else ""


def _exit_code(code: object) -> str:
    return f"  exit code {code}\n" if type(code) is int and 0 < abs(code) < 1000 else ""


def _telling(inputs: object) -> str:
    found = _table(inputs)
    return next((text for text in (sound(found.get(key)) for key in _TELLING) if text), "")


def _claude_block(block: Mapping[str, object]) -> str:
    if block.get("type") == "tool_use":
        return _tool(sound(block.get("name")), _telling(block.get("input")))
    return _lines(sound(block.get("text"))) if block.get("type") == "text" else ""
