"""Agent clients: how each is called and what its output means."""

from __future__ import annotations

import codecs
import functools
import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config.file import Table, read_file
from gitckpt.store.config.settings import AGENTS, FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


# Common parts.

# Characters kept of a text: the last ones.
KEPT = 1 << 20

# Characters shown of an error.
ERROR = 500

# Placeholder for the conversation id in the resume option of a client.
SESSION = "{session}"

_SHOWN = 120
_HIGHEST = 1_000_000_000
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "�") | {13: ""}
# Tool inputs that describe its use, most specific first.
_TELLING = ("command", "file_path", "path", "pattern", "query", "url", "description", "prompt")

_STRUCTURED = ("json", "stream-json")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class Kept:
    """Keeps the last `KEPT` characters of a text."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)
        if self._size > 2 * KEPT:
            self._parts = [self.text()]
            self._size = KEPT

    def text(self) -> str:
        return "".join(self._parts)[-KEPT:]

    def clear(self) -> None:
        self._parts, self._size = [], 0


class Dialect(ABC):
    """The command line and messages of a client."""

    name: ClassVar[str]
    command: ClassVar[str]
    resume: ClassVar[str]  # options that continue the conversation `SESSION`
    conversations: ClassVar[Sequence[str]]  # the client's words for one, in "not found" errors
    prompt: ClassVar[str] = "stdin"  # or "argument" for its last argument
    budget: ClassVar[str] = ""  # the option for a limit in US dollars; "" without one
    tells_cost: ClassVar[bool] = False

    def __init__(self) -> None:
        self.text = ""
        self.session: str | None = None
        self.cost_usd: float | None = None
        self.is_error = False
        self.error: str | None = None  # the client may have recovered unless `is_error`
        self.complete = False  # the final message came
        self.worked = False  # the agent did or said anything
        self.tokens: dict[str, int] = {}  # as in `AgentReport`
        self.denied: list[str] = []
        self.retries = False  # the last message only announces a retry of the client

    def count(self, usage: Mapping[str, object], kinds: Mapping[str, str]) -> None:
        """Add token counts; `kinds` maps the client's words to those of `tokens`."""
        for word, kind in kinds.items():
            number = usage.get(word)
            if type(number) is int and 0 <= number <= _HIGHEST:
                self.tokens[kind] = self.tokens.get(kind, 0) + number

    @staticmethod
    def asks_for_messages(options: Sequence[str]) -> bool:
        """Return whether `--output-format` makes the client print messages."""
        said = [after for option, after in zip(options, [*options, ""][1:], strict=True) if option in ("--output-format", "-o")]
        said += [option.partition("=")[2] for option in options if option.startswith("--output-format=")]
        return bool(said) and said[-1] in _STRUCTURED

    @abstractmethod
    def take(self, message: Mapping[str, object]) -> str | None:
        """Process a message; return the text to show, None if it is not this client's."""


def session_id(value: object) -> str | None:
    """Return a well-formed conversation id or None; ids go into a shell command."""
    return value if isinstance(value, str) and _SESSION_ID.fullmatch(value) else None


@functools.cache
def _unknown(conversations: tuple[str, ...]) -> re.Pattern[str]:
    words = "|".join(f"{word}s?" for word in conversations)
    unknown = rf"\b(no|unknown|invalid|cannot find|could not find)\b[^\n]{{0,40}}\b({words})\b"
    missing = rf"\b({words})\b[^\n]{{0,200}}\b(not found|does not exist|not exist|unknown|expired)\b"
    return re.compile(f"{unknown}|{missing}", re.IGNORECASE)


def cost(value: object) -> float | None:
    is_number = type(value) in (int, float)
    return float(value) if is_number and 0 <= value <= _HIGHEST else None  # type: ignore[operator, arg-type]


def sound(value: object) -> str:
    """Return a text without NUL and lone surrogates; "" if it is not a text."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def uncolored(text: str) -> str:
    return _COLORS.sub("", text)


def one_line(text: str, limit: int = _SHOWN) -> str:
    line = " ".join(text[: 4 * limit].split()).translate(_CONTROL)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def lines(text: str) -> str:
    shown = text.translate(_CONTROL)
    return shown if not shown or shown.endswith("\n") else shown + "\n"


def words(text: str) -> str:
    """Return a part of a text without colors and control characters."""
    return uncolored(text).translate(_CONTROL)


def tool_line(name: str, what: str) -> str:
    said = one_line(": ".join(filter(None, (name, what))))
    return f"→ {said}\n" if said else ""


def telling(inputs: object) -> str:
    found = table(inputs)
    return next((text for text in (sound(found.get(key)) for key in _TELLING) if text), "")


# aider. It prints text for people, and commits its changes itself.

NAME = "aider"
# The prompt is the argument of `--message`.
COMMAND = "aider --yes-always --no-pretty --no-stream --no-check-update --no-show-release-notes --message"

_MESSAGE = ("--message", "--msg", "-m")
_USAGE = re.compile(r"^Tokens: ([\d.,]+)([kM]?) sent,(?: [\d.,kM]+ cache (?:write|hit),)* ([\d.,]+)([kM]?) received\.(.*)$", re.MULTILINE)
_COST = re.compile(r"\$(\d{1,6}(?:\.\d{1,9})?) message")
_UNITS = {"": 1, "k": 1000, "M": 1_000_000}
_FAILED = re.compile(r"^(litellm\.\w*Error: .+)$", re.MULTILINE)


def usage(said: str) -> tuple[dict[str, int], float | None]:
    """Return tokens (rounded by aider) and cost in US dollars, if known."""
    tokens: dict[str, int] = {}
    cost = None
    for sent, unit, received, its_unit, rest in _USAGE.findall(said):
        for kind, number, scale in (("input", sent, unit), ("output", received, its_unit)):
            tokens[kind] = tokens.get(kind, 0) + _count(number, scale)
        price = _COST.search(rest)
        cost = (cost or 0.0) + float(price[1]) if price is not None else cost
    return tokens, cost


def failure(said: str) -> str | None:
    """Return why the model did not answer, or None; aider exits with 0 either way."""
    failures = list(_FAILED.finditer(said))
    return failures[-1][1] if failures and _USAGE.search(said, failures[-1].end()) is None else None


def _count(number: str, scale: str) -> int:
    try:
        return min(int(float(number.replace(",", "")) * _UNITS[scale]), 1_000_000_000)
    except ValueError:
        return 0


# Claude Code: `--output-format json` and `stream-json`.

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
    name = "claude"
    command = "claude -p --output-format stream-json --verbose"
    resume = f"--resume {SESSION}"
    budget = "--max-budget-usd"
    tells_cost = True
    conversations = ("conversation", "session")  # No conversation found with session ID: …

    def take(self, message: Mapping[str, object]) -> str | None:
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
        # The client itself also writes assistant messages, such as about a failed call of its model.
        self.worked = self.worked or (table(message.get("message")).get("model") != _SYNTHETIC and not message.get("error"))
        content = table(message.get("message")).get("content")
        blocks = [table(block) for block in content] if isinstance(content, list) else [{"type": "text", "text": content}]
        said = "\n".join(filter(None, (sound(block.get("text")) for block in blocks if block.get("type") == "text")))
        if said and not message.get("parent_tool_use_id"):  # ignore subagents
            self.text = said
        return "".join(_block(block) for block in blocks)

    def _result(self, message: Mapping[str, object]) -> str:
        subtype, before = sound(message.get("subtype")), self.text
        self.complete = True
        self.is_error = message.get("is_error") is True or subtype.startswith("error")
        for key in ("cost_usd", "total_cost_usd"):  # the first: older versions
            price = cost(message.get(key))
            self.cost_usd = self.cost_usd if price is None else price
        usage = table(message.get("usage"))
        self.count(usage, _TOKENS)
        self.count(usage, {"cache_read_input_tokens": "cached"})
        denials = message.get("permission_denials")
        self.denied = [_denial(table(each)) for each in denials[:_MOST]] if isinstance(denials, list) else []
        turns = message.get("num_turns")
        self.worked = self.worked or (
            not self.is_error if type(turns) is not int else turns > self.is_error
        )  # a failed call counts as a turn
        self.text = sound(message.get("result")) or self.text
        if self.is_error:
            errors = message.get("errors")
            listed = "; ".join(filter(None, map(sound, errors))) if isinstance(errors, list) else ""
            named = _ERRORS.get(subtype) or (subtype if subtype.startswith("error") else "")
            self.error = one_line(listed or sound(message.get("result")) or named, ERROR) or None
        told = "".join(f"not allowed: {each}\n" for each in self.denied)
        return (lines(self.text) if self.text != before else "") + told


def _retry(message: Mapping[str, object]) -> str:
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


# Codex: `codex exec --json`.

_CODEX_KINDS = ("thread.", "turn.", "item.")
_JSON = ("--json", "--experimental-json")


class Codex(Dialect):
    name = "codex"
    command = "codex exec --json -"
    resume = f"resume {SESSION}"
    conversations = ("rollout", "thread", "conversation", "session")  # no rollout found for thread id …

    @staticmethod
    def asks_for_messages(options: Sequence[str]) -> bool:
        return any(option in _JSON for option in options)

    def take(self, message: Mapping[str, object]) -> str | None:
        kind = message.get("type")
        if not isinstance(kind, str) or not (kind == "error" or kind.startswith(_CODEX_KINDS)):
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
        # The client may retry: only the end of the turn decides about the call.
        if not self.complete:
            self.is_error, self.error = True, problem or self.error
        return f"error: {problem}\n" if problem else ""

    def _item(self, kind: str, item: Mapping[str, object]) -> str:
        # Neither the start of a turn nor an error item of the client is work.
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


# Gemini CLI: `--output-format json` and `stream-json`.

_GEMINI_TOKENS = {"prompt": "input", "candidates": "output", "thoughts": "output", "cached": "cached"}
_GEMINI_KINDS = ("init", "message", "tool_use", "tool_result", "error", "result")


class Gemini(Dialect):
    name = "gemini"
    command = "gemini --output-format json"
    resume = f"--resume {SESSION}"
    conversations = ("session", "conversation")  # Invalid session identifier

    def __init__(self) -> None:
        super().__init__()
        self._saying = Kept()
        self._line_is_open = False

    def take(self, message: Mapping[str, object]) -> str | None:
        kind = message.get("type")
        is_whole = kind is None and (isinstance(message.get("response"), str) or isinstance(message.get("error"), dict))
        if not is_whole and kind not in _GEMINI_KINDS:
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
            self.count(table(table(model).get("tokens")), _GEMINI_TOKENS)
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


# opencode: `run --format json`.

_OPENCODE_KINDS = ("text", "tool_use", "tool", "step_start", "step_finish", "error", "reasoning")


class OpenCode(Dialect):
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
        pairs = zip(options, [*options, ""][1:], strict=True)
        return any((option == "--format" and after == "json") or option == "--format=json" for option, after in pairs)

    def take(self, message: Mapping[str, object]) -> str | None:
        kind = message.get("type")
        if kind not in _OPENCODE_KINDS:
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
        # A step is the last one unless it waits for a tool.
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


# Plain text of any other command: all of it is the answer.

# The format of clients without messages.
TEXT = "text"

# Words for a conversation, for clients with an unknown format.
CONVERSATIONS = ("conversation", "session", "thread", "rollout")


class PlainText:
    """Text in chunks, which may split a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = Kept()

    @property
    def text(self) -> str:
        return sound(self._kept.text())

    def feed(self, chunk: bytes, *, final: bool = False) -> str:
        text = self._decoder.decode(chunk, final)
        self._kept.add(text)
        return text


# Clients: command, prompt, output format and resumption.

STDIN, ARGUMENT = "stdin", "argument"
# Standard input, or the last argument.
PROMPTS = (STDIN, ARGUMENT)

# Clients that print messages, by name.
DIALECTS: Mapping[str, type[Dialect]] = {each.name: each for each in (Claude, Codex, Gemini, OpenCode)}

FORMATS = (*DIALECTS, NAME, TEXT)

PRICE = "price"
_PRICES = ("input", "output", "cached_input")
KEYS = ("command", "prompt", "format", "resume", PRICE)

_OPERATORS = frozenset("|&;<>()")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PROGRAM = re.compile(r"[A-Za-z0-9_./+-]+")
# Shell builtins and keywords that need not exist as programs.
_OF_THE_SHELL = frozenset(
    (
        *(".", ":", "[", "cd", "command", "eval", "exec", "export", "set", "source", "test", "time", "trap", "ulimit", "umask", "unset"),
        *("case", "exit", "for", "if", "until", "while"),
    )
)

_MOST_USD, _LEAST_USD = 1_000_000.0, 0.0001
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    # US dollars for a million tokens.
    input: float
    output: float
    cached_input: float | None = None  # None: the same as `input`

    def of(self, tokens: Mapping[str, int]) -> float:
        cached = min(tokens.get("cached", 0), tokens.get("input", 0))
        fresh = tokens.get("input", 0) - cached
        known = self.input if self.cached_input is None else self.cached_input
        return (fresh * self.input + cached * known + tokens.get("output", 0) * self.output) / _MILLION


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    command: str
    prompt: str = STDIN  # one of PROMPTS
    format: str = TEXT  # one of FORMATS
    # Options that continue a conversation, with `{session}` for its id. They go to the end of the
    # command, before a final `-`.
    resume: str | None = None
    price: Price | None = None

    @property
    def tells_cost(self) -> bool:
        return self.price is not None or (self.format in DIALECTS and DIALECTS[self.format].tells_cost)

    def line(self, prompt: str, session: str | None = None, budget: float | None = None) -> str:
        """Return the shell command of a call; options that the client lacks are left out."""
        command = self.command.strip()
        added = []
        if session is not None and self.resume is not None:
            added.append(self.resume.replace(SESSION, shlex.quote(session)))
        option = DIALECTS[self.format].budget if budget is not None and self.format in DIALECTS else ""
        if option and option not in command:
            added.append(f"{option} {max(budget or 0.0, _LEAST_USD):.4f}")
        if added:
            words = " ".join(added)
            reads_input = command.endswith(" -")
            command = f"{command.removesuffix(' -').rstrip()} {words}" + (" -" if reads_input else "")
        if self.prompt == ARGUMENT:
            return f'{command} "$(cat {shlex.quote(prompt)})"'
        return f"exec <{shlex.quote(prompt)} || exit 125\n{command}"

    def missing(self, env: Mapping[str, str], directory: str) -> str | None:
        """Return the program if it is not installed; None also if only the shell can tell."""
        import shutil  # only needed before the first call

        word = self.command.split(maxsplit=1)[0]
        if not _PROGRAM.fullmatch(word) or word in _OF_THE_SHELL:
            return None
        found = os.path.exists(os.path.join(directory, word)) if "/" in word else shutil.which(word, path=env.get("PATH", os.defpath))
        return None if found else word

    def does_not_know(self, said: str) -> bool:
        dialect = DIALECTS.get(self.format)
        conversations = dialect.conversations if dialect is not None else CONVERSATIONS
        return _unknown(tuple(conversations)).search(said) is not None


BUILT_IN = {name: Client(name, dialect.command, dialect.prompt, name, dialect.resume) for name, dialect in DIALECTS.items()}
BUILT_IN[NAME] = Client(NAME, COMMAND, ARGUMENT, NAME)


def client_of(text: str, configured: Mapping[str, Client]) -> Client:
    """Return the client with a name, or one for a shell command.

    A command that makes a known program print JSON messages gets that program's format and resume
    options; any other prints plain text. `configured` (`gitckpt.toml`) has precedence.
    """
    name = text.strip()
    if not name or "\0" in name:
        known = ", ".join(dict.fromkeys((*configured, *BUILT_IN)))
        problem = "has a NUL in it" if name else "is empty"
        raise UsageError(f"the command of the agent {problem}", hint=f"give a command, or one of: {known}")
    found = configured.get(name) or BUILT_IN.get(name) or _recognized(name)
    priced = configured.get(found.name)
    return replace(found, price=priced.price) if found.price is None and priced is not None and priced.price is not None else found


def redefinition(name: str, configured: Mapping[str, Client]) -> str | None:
    """Return a line that says how `gitckpt.toml` redefines a known agent, or None."""
    client = configured.get(name.strip())
    if client is None or replace(client, price=None) == BUILT_IN.get(client.name):
        return None
    if client.name not in BUILT_IN:
        import shutil  # rarely needed

        if shutil.which(client.name.split()[0]) is None:
            return None
    return f"{FILE} redefines the agent {client.name}: {client.command}"


def read_clients(path: str) -> dict[str, Client]:
    """Return the clients in `[agents.NAME]` of a file; none if it does not exist."""
    return read_file(path).each(AGENTS, "agent", _client)


def _client(name: str, table: Table) -> Client:
    table.only(KEYS)
    command = table.text("command", one_line=True)
    known = BUILT_IN.get(name)
    if command is None and "command" not in table.values and known is None:
        table.complain(f"{table.label} has no command", hint='add command = "COMMAND"')
    usual = replace(_recognized(command), name=name) if command else known or Client(name, "")
    resume = table.text("resume", usual.resume, one_line=True)
    if resume is not None and SESSION not in resume:
        hint = f'write it where the id belongs, as in resume = "--resume {SESSION}"'
        table.complain(f"resume of {table.label} has no {SESSION}", "resume", hint=hint)
    return replace(
        usual,
        prompt=table.choice("prompt", PROMPTS, usual.prompt),
        format=table.choice("format", FORMATS, usual.format),
        resume=resume,
        price=_price(table),
    )


def _price(table: Table) -> Price | None:
    prices = table.inner(PRICE, f"the price of {table.label}")
    if prices is None:
        return None
    prices.only(_PRICES)
    for key in _PRICES[:2]:
        if key not in prices.values:
            prices.complain(f"{prices.label} has no {key}", hint=f"add {key} = USD, for a million tokens")
    amounts = {key: prices.number(key, 0.0, 0.0, _MOST_USD) for key in _PRICES if key in prices.values}
    return Price(amounts.get("input", 0.0), amounts.get("output", 0.0), amounts.get("cached_input"))


def _recognized(command: str) -> Client:
    words = _words(command)
    name = os.path.basename(words[0]) if words else ""
    if name == NAME:
        return Client(name, command, ARGUMENT if words[-1] in _MESSAGE else STDIN, NAME)
    known = BUILT_IN.get(name) if name in DIALECTS else None
    if known is None or not DIALECTS[name].asks_for_messages(words[1:]):
        return Client(name or "the agent", command)
    return replace(known, command=command)


def _words(command: str) -> list[str]:
    # Returns [] for more than one call of one program.
    if "\n" in command:
        return []
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        return []  # an open quote, which the shell will report
    while words and _ASSIGNMENT.match(words[0]):
        del words[0]
    return [] if any(word and _OPERATORS.issuperset(word) for word in words) else words
