"""Reads what an agent's client prints, as it comes: what of it a person is shown, and in the end what it reports.

Nothing in it is trusted. What cannot be read is text: garbage, lines that are cut off, longer than memory, or nested too deeply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

from gitckpt.durable.agent import aider
from gitckpt.durable.agent.client import DIALECTS
from gitckpt.durable.agent.dialect import ERROR, KEPT, Dialect, one_line
from gitckpt.durable.agent.text import PlainText
from gitckpt.model.values import dataclass, field, replace

LINE = 16 << 20
"""A message longer than this, in bytes, is text."""

_OBJECTS = (b'{"', b"[{")


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What a client reports of a call.

    Attributes:
        text: the agent's answer, or its last words where the final message is missing; where no message came at all, all that was printed.
            Of more than `dialect.KEPT` characters the last ones. Without NUL and lone surrogates.
        session: the id of the conversation, with which another call can go on; None where none was said, or one that cannot be trusted.
        cost_usd: what the call has cost; None where that was not said.
        is_error: whether the client says that it failed.
        error: why, on one line; None where it did not say.
        complete: whether the client's final message came. Plain text has none, and is complete.
        structured: whether any message came, or one began.
        worked: whether a message says that the agent did or said anything.
        tokens: how many it took, "input" and "output", and the "cached" ones of the input; none where the client does not say it.
        denied: what the agent was not allowed to do, a line each.
    """

    text: str
    session: str | None = None
    cost_usd: float | None = None
    is_error: bool = False
    error: str | None = None
    complete: bool = True
    structured: bool = False
    worked: bool = False
    tokens: Mapping[str, int] = field(default_factory=dict)
    denied: tuple[str, ...] = ()


class MessageReader(Protocol):
    """Reads output, chunk by chunk. It makes no difference where a chunk ends.

    Attributes:
        rest: what is to be shown after `close`, in addition to what `feed` returned.
        retries: whether the last message says only that the client calls its server again.
    """

    rest: str
    retries: bool

    def feed(self, chunk: bytes) -> str:
        """Takes in what follows. Returns what a person is to be shown of it."""

    def close(self) -> AgentReport:
        """Returns what was reported, now that nothing follows."""


def reader(name: str) -> MessageReader:
    """Returns what reads the output of a client.

    Args:
        name: of its format, one of `client.FORMATS`.
    """
    if name == aider.NAME:
        return _Aider()
    return _Messages(DIALECTS[name]()) if name in DIALECTS else _Text()


class _Text:
    """Reads plain text."""

    def __init__(self) -> None:
        self.rest = ""
        self.retries = False
        self._text = PlainText()

    def feed(self, chunk: bytes) -> str:
        return self._text.feed(chunk)

    def close(self) -> AgentReport:
        self.rest = self._text.feed(b"", final=True)
        return AgentReport(self._text.text)


class _Aider(_Text):
    """Reads what aider prints: plain text, some lines of which say what it took, and why its model did not answer."""

    def close(self) -> AgentReport:
        report = super().close()
        tokens, cost = aider.usage(report.text)
        failure = aider.failure(report.text)
        error = one_line(failure, ERROR) if failure else None
        return replace(report, tokens=tokens, cost_usd=cost, worked=bool(tokens), is_error=failure is not None, error=error)


class _Messages:
    """Reads messages: objects of JSON, or arrays of them, on a line each, or spread over several lines; and text in between.

    Args:
        dialect: what the messages mean.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.rest = ""
        self.retries = False
        self._dialect = dialect
        self._came = False
        self._cut = False
        self._line = bytearray()
        self._is_long = False
        self._spread: bytearray | None = None
        """The lines so far of what began with a bracket on a line of its own."""

        self._text = PlainText()

    def feed(self, chunk: bytes) -> str:
        *lines, rest = chunk.split(b"\n")
        shown = "".join([self._take(line, b"\n") for line in lines])
        return shown + self._collect(rest)

    def close(self) -> AgentReport:
        shown = "" if self._is_long else self._last()
        rest = self._text.feed(b"", final=True)
        self.rest = shown if self._cut else shown + rest
        said = self._dialect
        return AgentReport(
            text=said.text[-KEPT:] if self._came else self._text.text,
            session=said.session,
            cost_usd=said.cost_usd,
            is_error=said.is_error,
            error=said.error if said.is_error else None,
            complete=said.complete,
            structured=self._came or self._cut,
            worked=said.worked,
            tokens=dict(said.tokens),
            denied=tuple(said.denied),
        )

    def _collect(self, part: bytes) -> str:
        """Takes in part of a line. Returns what is shown of it: nothing, until it is too long for a message."""
        if self._is_long:
            return self._text.feed(part)
        self._line += part
        if len(self._line) <= LINE:
            return ""
        self._is_long = True
        return self._give_up() + self._text.feed(self._emptied())

    def _take(self, part: bytes, end: bytes) -> str:
        """Takes in the last part of a line, and how it ended."""
        shown = self._collect(part)
        if self._is_long:
            self._is_long = False
            return shown + self._text.feed(end)
        return self._whole(self._emptied() + end)

    def _whole(self, line: bytes) -> str:
        if self._spread is not None:
            if line.startswith(_OBJECTS) and (shown := self._message(line)) is not None:
                return self._give_up() + shown
            self._spread += line
            if line[:1] not in (b"}", b"]"):
                return "" if len(self._spread) <= LINE else self._give_up()
            line, self._spread = bytes(self._spread), None
        elif line.strip() in (b"{", b"["):
            self._spread = bytearray(line)
            return ""
        shown = self._message(line)
        return self._text.feed(line) if shown is None else shown

    def _last(self) -> str:
        """Takes in what is left without an end. A message that was cut off is kept, but shown to nobody."""
        left = self._emptied()
        shown: str | None = ""
        if left and not left.lstrip().startswith(_OBJECTS):
            shown, left = self._whole(left), b""
        elif left and (shown := self._message(left)) is not None:
            shown, left = self._give_up() + shown, b""
        cut = bytes(self._spread or b"") + left
        self._spread, self._cut = None, bool(cut)
        self._text.feed(cut)
        return shown or ""

    def _message(self, line: bytes) -> str | None:
        """Returns what is shown of a line with messages, None where it has none."""
        start = 0 if line.lstrip()[:1] in (b"{", b"[") else line.find(b'{"')
        if start < 0:
            return None
        found = _parsed(line[start:])
        shown = [self._dialect.take(each) for each in found]
        known = [each for each in shown if each is not None]
        if not known:
            return None
        self._came = True
        self.retries = self._dialect.retries
        return (self._text.feed(line[:start] + b"\n") if start else "") + "".join(known)

    def _give_up(self) -> str:
        """Returns the lines of what turned out to be no message."""
        lines, self._spread = self._spread, None
        return self._text.feed(bytes(lines)) if lines is not None else ""

    def _emptied(self) -> bytes:
        line = bytes(self._line)
        self._line.clear()
        return line


def _parsed(text: bytes) -> list[dict[str, object]]:
    """Returns the objects of a JSON text: itself, or those in its array; none where it is anything else."""
    try:
        value = json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return []
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]
