"""What is common to the clients that print messages; each of them, with all that is known of it, is a file of its own beside this one.

Every value is hostile: a message may have anything in any place. What is not as it should be counts as not said.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


KEPT = 1 << 20
"""So many characters of a text are kept, the last ones."""

ERROR = 500
"""So many characters of an error, on one line, are shown."""

SESSION = "{session}"
"""Stands for the id of a conversation in the words with which a client goes on with it."""

_SHOWN = 120
_HIGHEST = 1_000_000_000
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "�") | {13: ""}
_TELLING = ("command", "file_path", "path", "pattern", "query", "url", "description", "prompt")
"""The inputs of a tool that say most of what it does, the best first."""

_STRUCTURED = ("json", "stream-json")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


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
    """The messages of one client, taken in one after the other; and how that client is called.

    Attributes:
        name: of the client, its program and its format.
        command: what the shell runs to ask it something, where nobody says anything else.
        resume: the words with which it goes on with the conversation `SESSION`.
        conversations: its words for a conversation, as it says that it does not know one.
        prompt: where it takes its prompt from: "stdin", or "argument" for its last argument.
        budget: its option for what a call may cost, in US dollars, which follow it; "" where it has none.
        tells_cost: whether it says what a call has cost.
        text: the answer so far.
        session: the id of the conversation.
        cost_usd: what the call has cost.
        is_error: whether the client says that it failed.
        error: why; it may have recovered from that, where `is_error` is not set.
        complete: whether its final message came.
        worked: whether the agent did or said anything.
        tokens: how many it took, by kind: "input" and "output", and the "cached" ones of the input; none where the client does not say it.
        denied: what the agent was not allowed to do, a line each.
        retries: whether its last message says only that it calls its server again.
    """

    name: ClassVar[str]
    command: ClassVar[str]
    resume: ClassVar[str]
    conversations: ClassVar[Sequence[str]]
    prompt: ClassVar[str] = "stdin"
    budget: ClassVar[str] = ""
    tells_cost: ClassVar[bool] = False

    def __init__(self) -> None:
        self.text = ""
        self.session: str | None = None
        self.cost_usd: float | None = None
        self.is_error = False
        self.error: str | None = None
        self.complete = False
        self.worked = False
        self.tokens: dict[str, int] = {}
        self.denied: list[str] = []
        self.retries = False

    def count(self, usage: Mapping[str, object], kinds: Mapping[str, str]) -> None:
        """Adds tokens.

        Args:
            usage: how many of each, in the client's words.
            kinds: the client's word → "input", "output" or "cached"; what is cached counts as input as well.
        """
        for word, kind in kinds.items():
            number = usage.get(word)
            if type(number) is int and 0 <= number <= _HIGHEST:
                self.tokens[kind] = self.tokens.get(kind, 0) + number

    @staticmethod
    def asks_for_messages(options: Sequence[str]) -> bool:
        """Tells whether a client with these options prints messages, by `--output-format`."""
        said = [after for option, after in zip(options, [*options, ""][1:], strict=True) if option in ("--output-format", "-o")]
        said += [option.partition("=")[2] for option in options if option.startswith("--output-format=")]
        return bool(said) and said[-1] in _STRUCTURED

    @abstractmethod
    def take(self, message: Mapping[str, object]) -> str | None:
        """Takes in a message. Returns what a person is shown of it, None where it is no message of this client."""


def session_id(value: object) -> str | None:
    """Returns the id of a conversation, None where it cannot be one: ids come out of an agent's output, and go into a command.

    Args:
        value: what claims to be one.
    """
    return value if isinstance(value, str) and _SESSION_ID.fullmatch(value) else None


def does_not_know(conversations: Sequence[str], said: str) -> bool:
    """Tells whether a client says that there is no such conversation.

    Args:
        conversations: its words for a conversation.
        said: what it says.
    """
    return _unknown(tuple(conversations)).search(said) is not None


@functools.cache
def _unknown(conversations: tuple[str, ...]) -> re.Pattern[str]:
    words = "|".join(f"{word}s?" for word in conversations)
    unknown = rf"\b(no|unknown|invalid|cannot find|could not find)\b[^\n]{{0,40}}\b({words})\b"
    missing = rf"\b({words})\b[^\n]{{0,200}}\b(not found|does not exist|not exist|unknown|expired)\b"
    return re.compile(f"{unknown}|{missing}", re.IGNORECASE)


def cost(value: object) -> float | None:
    """Returns an amount of money; None for what is none."""
    is_number = type(value) in (int, float)
    return float(value) if is_number and 0 <= value <= _HIGHEST else None  # type: ignore[operator, arg-type]


def sound(value: object) -> str:
    """Returns a text without NUL and lone surrogates, the empty one for what is no text."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def uncolored(text: str) -> str:
    """Returns a text without what changes colors on a terminal: clients print it although nobody looks."""
    return _COLORS.sub("", text)


def one_line(text: str, limit: int = _SHOWN) -> str:
    """Returns a text on one line, cut where it is long."""
    line = " ".join(text[: 4 * limit].split()).translate(_CONTROL)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def table(value: object) -> Mapping[str, object]:
    """Returns a table, the empty one for what is none."""
    return value if isinstance(value, dict) else {}


def lines(text: str) -> str:
    """Returns a text as a terminal shows it, with its last line ended."""
    shown = text.translate(_CONTROL)
    return shown if not shown or shown.endswith("\n") else shown + "\n"


def words(text: str) -> str:
    """Return a part of a text as a terminal may show it: without colors and control characters."""
    return uncolored(text).translate(_CONTROL)


def tool_line(name: str, what: str) -> str:
    """Returns the line that says which tool is used, and for what."""
    said = one_line(": ".join(filter(None, (name, what))))
    return f"→ {said}\n" if said else ""


def telling(inputs: object) -> str:
    """Returns the input of a tool that says most of what it does."""
    found = table(inputs)
    return next((text for text in (sound(found.get(key)) for key in _TELLING) if text), "")
