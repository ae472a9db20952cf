"""Define the clients of AI agents: command lines, and formats of their output."""

from __future__ import annotations

import codecs
import functools
import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config.file import Table, read_file
from gitckpt.store.config.settings import AGENTS, FILE

Message = Mapping[str, object]  # a JSON message of a client, or an object in a message

KEPT = 1 << 20  # characters stored of a longer text, from its end
ERROR = 500  # characters shown of an error
SESSION = "{session}"  # placeholder for the conversation id in the resume option of a client
_SHOWN, _HIGHEST = 120, 1_000_000_000
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "�") | {13: ""}
# Inputs of a tool that describe its use, most specific first.
_INPUT_KEYS = ("command", "file_path", "path", "pattern", "query", "url", "description", "prompt")
_STRUCTURED = ("json", "stream-json")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class TextTail:
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
    name: ClassVar[str]  # also the name of its program and format
    command: ClassVar[str]
    resume: ClassVar[str]  # options that continue the conversation `SESSION`
    conversations: ClassVar[Sequence[str]]  # the client's words for a conversation, in errors
    prompt: ClassVar[str] = "stdin"  # or "argument": the prompt is the last argument
    budget: ClassVar[str] = ""  # the option for a limit in US dollars; "" without one
    tells_cost: ClassVar[bool] = False  # the client reports what a call costs

    def __init__(self) -> None:
        self.text = ""
        self.session: str | None = None
        self.cost_usd: float | None = None
        self.is_error = False
        self.error: str | None = None  # the client may have recovered unless `is_error`
        self.complete = False  # the final message arrived
        self.worked = False  # the agent did or said anything
        self.tokens: dict[str, int] = {}  # as in `AgentReport`
        self.denied: list[str] = []
        self.is_retrying = False  # the last message only announces a retry of the client

    def count(self, usage: Message, kinds: Mapping[str, str]) -> None:
        """Add a message's token counts to `self.tokens`, under the keys in `keys`."""
        for key, kind in kinds.items():
            number = usage.get(key)
            if type(number) is int and 0 <= number <= _HIGHEST:
                self.tokens[kind] = self.tokens.get(kind, 0) + number

    @staticmethod
    def asks_for_messages(options: Sequence[str]) -> bool:
        text = " ".join(options).replace("--output-format=", "--output-format ")
        formats = re.findall(r"(?:^|\s)(?:--output-format|-o)\s(\S+)", text)
        return bool(formats) and formats[-1] in _STRUCTURED

    @abstractmethod
    def take(self, message: Message) -> str | None:
        """Process a message and return text to show; None if another program printed it."""


def session_id(value: object) -> str | None:
    """Return a conversation id that is safe in a shell command; None if it is not."""
    return value if isinstance(value, str) and _SESSION_ID.fullmatch(value) else None


@functools.cache
def _missing_conversation(conversations: Sequence[str]) -> re.Pattern[str]:
    words = "|".join(f"{noun}s?" for noun in conversations)
    unknown = rf"\b(no|unknown|invalid|cannot find|could not find)\b[^\n]{{0,40}}\b({words})\b"
    missing = rf"\b({words})\b[^\n]{{0,200}}\b(not found|(does )?not exist|unknown|expired)\b"
    return re.compile(f"{unknown}|{missing}", re.IGNORECASE)


def as_cost(value: object) -> float | None:
    is_number = type(value) in (int, float)
    return float(value) if is_number and 0 <= value <= _HIGHEST else None  # type: ignore[operator, arg-type]


def clean_text(value: object) -> str:
    """Replace NUL and lone surrogates in a string; return "" for any other type."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def text_of(message: Message, key: str) -> str:
    return clean_text(message.get(key))


def table_of(message: Message, key: str) -> Message:
    return as_table(message.get(key))


def strip_colors(text: str) -> str:
    return _COLORS.sub("", text)


def one_line(text: str, limit: int = _SHOWN) -> str:
    line = " ".join(text[: 4 * limit].split()).translate(_CONTROL)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def as_table(value: object) -> Message:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def end_line(text: str) -> str:
    line = text.translate(_CONTROL)
    return line if not line or line.endswith("\n") else line + "\n"


def words(text: str) -> str:
    return strip_colors(text).translate(_CONTROL)


def tool_line(name: str, inputs: str) -> str:
    line = one_line(": ".join(filter(None, (name, inputs))))
    return f"→ {line}\n" if line else ""


def describe_inputs(inputs: object) -> str:
    return next(filter(None, (clean_text(as_table(inputs).get(key)) for key in _INPUT_KEYS)), "")


# aider: prints text for people, and commits its changes itself.

AIDER = "aider"
# The prompt is the argument of `--message`.
AIDER_COMMAND = (
    "aider --yes-always --no-pretty --no-stream --no-check-update --no-show-release-notes"
)
AIDER_COMMAND += " --message"

_MESSAGE = ("--message", "--msg", "-m")
_USAGE = re.compile(
    r"^Tokens: ([\d.,]+)([kM]?) sent,(?: [\d.,kM]+ cache (?:write|hit),)*"
    r" ([\d.,]+)([kM]?) received\.(.*)$",
    re.MULTILINE,
)
_COST = re.compile(r"\$(\d{1,6}(?:\.\d{1,9})?) message")
_UNITS = {"": 1, "k": 1000, "M": 1_000_000}
_FAILED = re.compile(r"^(litellm\.\w*Error: .+)$", re.MULTILINE)


def aider_usage(output: str) -> tuple[dict[str, int], float | None]:
    """Return rounded token counts, and the cost in US dollars (None if unknown)."""
    tokens: dict[str, int] = {}
    cost = None
    for sent, unit, received, received_unit, cost_text in _USAGE.findall(output):
        for kind, number, scale in (("input", sent, unit), ("output", received, received_unit)):
            try:
                count = int(float(number.replace(",", "")) * _UNITS[scale])
            except (ValueError, OverflowError):
                count = 0
            tokens[kind] = tokens.get(kind, 0) + min(count, _HIGHEST)
        price = _COST.search(cost_text)
        cost = (cost or 0.0) + float(price[1]) if price is not None else cost
    return tokens, cost


def aider_failure(output: str) -> str | None:
    """Find the model's error in the output: the exit code of aider is always 0."""
    failures = list(_FAILED.finditer(output))
    is_last = bool(failures) and _USAGE.search(output, failures[-1].end()) is None
    return failures[-1][1] if is_last else None


_CLAUDE_KINDS = ("system", "assistant", "user", "result", "stream_event")
_ERRORS = {
    "error_max_turns": "the limit of turns was reached",
    "error_max_budget_usd": "the limit of costs was reached",
    "error_during_execution": "an error during execution",
}
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_TOKENS = {**dict.fromkeys(_INPUTS, "input"), "output_tokens": "output"}
_MOST = 20  # denied actions shown
_SYNTHETIC = "<synthetic>"  # the "model" of messages that the client writes itself


class Claude(Dialect):
    name = "claude"
    command = "claude -p --output-format stream-json --verbose"
    resume = f"--resume {SESSION}"
    budget = "--max-budget-usd"
    tells_cost = True
    conversations = ("conversation", "session")  # No conversation found with session ID: …

    def take(self, message: Message) -> str | None:
        kind = message.get("type")
        if kind not in _CLAUDE_KINDS and "session_id" not in message:
            return None
        self.session = session_id(message.get("session_id")) or self.session
        self.is_retrying = kind == "system" and message.get("subtype") == "api_retry"
        if kind == "assistant":
            return self._take_assistant(message)
        if self.is_retrying:
            return _retry_line(message)
        return self._take_result(message) if kind == "result" else ""

    def _take_assistant(self, message: Message) -> str:
        # Some messages are from the client, not the model, such as on a failed call of the model.
        inner = table_of(message, "message")
        is_client = inner.get("model") == _SYNTHETIC or bool(message.get("error"))
        self.worked = self.worked or not is_client
        content = inner.get("content")
        if not isinstance(content, list):
            content = [{"type": "text", "text": content}]
        blocks = [as_table(block) for block in content]
        texts = [text_of(block, "text") for block in blocks if block.get("type") == "text"]
        text = "\n".join(filter(None, texts))
        if text and not message.get("parent_tool_use_id"):  # ignore subagents
            self.text = text
        return "".join(_block_text(block) for block in blocks)

    def _take_result(self, message: Message) -> str:
        subtype, old_text = text_of(message, "subtype"), self.text
        self.complete = True
        self.is_error = message.get("is_error") is True or subtype.startswith("error")
        for key in ("cost_usd", "total_cost_usd"):  # the first: older versions
            price = as_cost(message.get(key))
            self.cost_usd = self.cost_usd if price is None else price
        usage = table_of(message, "usage")
        self.count(usage, _TOKENS)
        self.count(usage, {"cache_read_input_tokens": "cached"})
        denials = message.get("permission_denials")
        if isinstance(denials, list):
            self.denied = []
            for denial in map(as_table, denials[:_MOST]):
                parts = (text_of(denial, "tool_name"), describe_inputs(denial.get("tool_input")))
                self.denied.append(one_line(": ".join(filter(None, parts)) or "a tool"))
        turns = message.get("num_turns")
        turns = turns if type(turns) is int else 1
        self.worked = self.worked or turns > self.is_error  # a failed call counts as a turn
        self.text = text_of(message, "result") or self.text
        if self.is_error:
            errors = "; ".join(filter(None, map(clean_text, as_list(message.get("errors")))))
            type_text = _ERRORS.get(subtype) or (subtype if subtype.startswith("error") else "")
            self.error = one_line(errors or text_of(message, "result") or type_text, ERROR) or None
        denied = "".join(f"not allowed: {action}\n" for action in self.denied)
        return (end_line(self.text) if self.text != old_text else "") + denied


def _retry_line(message: Message) -> str:
    attempt, limit = message.get("attempt"), message.get("max_retries")
    number = f", attempt {attempt}" if type(attempt) is int else ""
    number += f" of {limit}" if number and type(limit) is int else ""
    error = message.get("error")
    cause = one_line(clean_text(error) or text_of(as_table(error), "message"))
    return f"the model is called again{number}{': ' if cause else ''}{cause}\n"


def _block_text(block: Message) -> str:
    if block.get("type") == "tool_use":
        return tool_line(text_of(block, "name"), describe_inputs(block.get("input")))
    return end_line(text_of(block, "text")) if block.get("type") == "text" else ""


_CODEX_KINDS = ("thread.", "turn.", "item.")
_CODEX_TOKENS = {"input_tokens": "input", "output_tokens": "output"}
_CODEX_TOKENS |= {"cached_input_tokens": "cached"}
_JSON = ("--json", "--experimental-json")


class Codex(Dialect):
    name = "codex"
    command = "codex exec --json -"
    resume = f"resume {SESSION}"
    # As in "no rollout found for thread id …".
    conversations = ("rollout", "thread", "conversation", "session")

    @staticmethod
    def asks_for_messages(options: Sequence[str]) -> bool:
        return any(option in _JSON for option in options)

    def take(self, message: Message) -> str | None:
        kind = message.get("type")
        if not isinstance(kind, str) or not (kind == "error" or kind.startswith(_CODEX_KINDS)):
            return None
        if kind == "thread.started":
            self.session = session_id(message.get("thread_id")) or self.session
        elif kind == "turn.completed":
            self.complete, self.is_error, self.error = True, False, None
            self.count(table_of(message, "usage"), _CODEX_TOKENS)
        elif kind == "turn.failed":
            failure = one_line(text_of(table_of(message, "error"), "message"), ERROR)
            self.complete, self.is_error, self.error = True, True, failure or self.error
        elif kind == "error":
            return self._take_error(one_line(text_of(message, "message"), ERROR))
        elif kind.startswith("item."):
            return self._take_item(kind, table_of(message, "item"))
        return ""

    def _take_error(self, problem: str) -> str:
        # The client may retry: only the end of the turn decides about the call.
        if not self.complete:
            self.is_error, self.error = True, problem or self.error
        return f"error: {problem}\n" if problem else ""

    def _take_item(self, kind: str, item: Message) -> str:
        # An item is work of the agent, unless it is an error of the client.
        item_type = item.get("type")
        self.worked = self.worked or item_type != "error"
        if item_type in ("command_execution", "mcp_tool_call", "collab_tool_call"):
            if kind == "item.started":
                tool = " ".join(filter(None, (text_of(item, "server"), text_of(item, "tool"))))
                return tool_line(tool, text_of(item, "command"))
            code = item.get("exit_code")
            return f"  exit code {code}\n" if type(code) is int and 0 < abs(code) < 1000 else ""
        if kind != "item.completed":
            return ""
        if item_type == "agent_message":
            self.text = text_of(item, "text") or self.text
            return end_line(text_of(item, "text"))
        if item_type == "file_change":
            changes = map(as_table, as_list(item.get("changes")))
            paths = [text_of(change, "path") for change in changes]
            return tool_line("files", ", ".join(filter(None, paths)))
        if item_type == "web_search":
            return tool_line("search", text_of(item, "query"))
        return _error_line(item) if item_type == "error" else ""


def _error_line(message: Message) -> str:
    return end_line(f"error: {one_line(clean_text(message.get('message')), ERROR)}")


_GEMINI_TOKENS = {"prompt": "input", "candidates": "output", "thoughts": "output"}
_GEMINI_TOKENS |= {"cached": "cached"}
_GEMINI_TOTALS = {"input_tokens": "input", "output_tokens": "output", "cached": "cached"}
_GEMINI_KINDS = ("init", "message", "tool_use", "tool_result", "error", "result")


class Gemini(Dialect):
    name = "gemini"
    command = "gemini --output-format json"
    resume = f"--resume {SESSION}"
    conversations = ("session", "conversation")  # Invalid session identifier

    def __init__(self) -> None:
        super().__init__()
        self._answer = TextTail()
        self._line_is_open = False

    def take(self, message: Message) -> str | None:
        kind = message.get("type")
        has_answer = isinstance(message.get("response"), str)
        is_document = kind is None and (has_answer or isinstance(message.get("error"), dict))
        if not is_document and kind not in _GEMINI_KINDS:
            return None
        self.session = session_id(message.get("session_id")) or self.session
        if is_document:
            return self._take_document(message)
        if kind == "message":
            return self._take_message(message)
        text = self._take_event(str(kind), message)
        if self._line_is_open and (text or self.complete):
            text, self._line_is_open = "\n" + text, False
        return text

    def _take_document(self, message: Message) -> str:
        self.complete = True
        for model in table_of(table_of(message, "stats"), "models").values():
            self.count(table_of(as_table(model), "tokens"), _GEMINI_TOKENS)
        self.text = text_of(message, "response")
        self.worked = self.worked or "response" in message
        self._set_error(message.get("error"), failed=isinstance(message.get("error"), dict))
        return end_line(self.text)

    def _take_message(self, message: Message) -> str:
        if message.get("role") != "assistant":
            return ""
        self.worked = True
        content = text_of(message, "content")
        if message.get("delta") is not True:
            self._answer.clear()
            content = end_line(content)
        self._answer.add(content)
        self.text = self._answer.text()
        self._line_is_open = not content.endswith("\n") if content else self._line_is_open
        return content

    def _take_event(self, kind: str, message: Message) -> str:
        if kind == "tool_use":
            self.worked = True
            self._answer.clear()
            inputs = describe_inputs(message.get("parameters"))
            return tool_line(text_of(message, "tool_name"), inputs)
        if kind == "error":
            return _error_line(message)
        if kind == "result":
            self.complete = True
            self.count(table_of(message, "stats"), _GEMINI_TOTALS)
            self._set_error(message.get("error"), failed=message.get("status") == "error")
        return ""

    def _set_error(self, error: object, *, failed: bool) -> None:
        self.is_error = failed
        text = one_line(text_of(as_table(error), "message"), ERROR) if failed else ""
        self.error = text or None


_OPENCODE_KINDS = ("text", "tool_use", "tool", "step_start", "step_finish", "error", "reasoning")


class OpenCode(Dialect):
    name = "opencode"
    command = "opencode run --format json"
    resume = f"--session {SESSION}"
    conversations = ("session", "conversation")
    prompt = "argument"
    tells_cost = True

    @staticmethod
    def asks_for_messages(options: Sequence[str]) -> bool:
        return "--format json" in " ".join(options).replace("--format=", "--format ")

    def take(self, message: Message) -> str | None:
        kind = message.get("type")
        if kind not in _OPENCODE_KINDS:
            return None
        self.session = session_id(message.get("sessionID")) or self.session
        part = table_of(message, "part")
        if kind == "error":
            return self._take_error(table_of(message, "error"))
        if kind == "step_finish":
            return self._end_step(part)
        self.worked = True
        if kind == "text":
            self.text = text_of(part, "text")[-KEPT:]
            return end_line(self.text)
        if kind in ("tool_use", "tool"):
            inputs = describe_inputs(table_of(part, "state").get("input"))
            return tool_line(text_of(part, "tool"), inputs)
        return ""

    def _end_step(self, part: Message) -> str:
        # A step that does not call tools is the last one.
        price = as_cost(part.get("cost"))
        if price is not None:
            self.cost_usd = (self.cost_usd or 0.0) + price
        tokens = table_of(part, "tokens")
        self.count(tokens, {"input": "input", "output": "output", "reasoning": "output"})
        cache = table_of(tokens, "cache")
        self.count(cache, {"read": "input", "write": "input"})
        self.count(cache, {"read": "cached"})
        self.complete = part.get("reason") != "tool-calls"
        return ""

    def _take_error(self, error: Message) -> str:
        data = table_of(error, "data")
        wait = text_of(table_of(data, "responseHeaders"), "retry-after")
        status = data.get("statusCode")
        text = text_of(data, "message") or text_of(error, "message") or text_of(error, "name")
        if type(status) is int and text:
            text = f"HTTP {status}: {text}"
            text += f" (retry after {wait} seconds)" if wait.isdecimal() else ""
        text = one_line(text, ERROR)
        self.complete, self.is_error, self.error = True, True, text or self.error
        return f"error: {text}\n" if text else ""


# Any other command prints plain text: its whole output is the answer.

TEXT = "text"  # the format of clients without messages

# Words that clients of an unknown format may use for a conversation.
CONVERSATIONS = ("conversation", "session", "thread", "rollout")


class PlainText:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = TextTail()

    @property
    def text(self) -> str:
        return clean_text(self._tail.text())

    def feed(self, chunk: bytes, *, final: bool = False) -> str:
        text = self._decoder.decode(chunk, final)
        self._tail.add(text)
        return text


PROMPTS = STDIN, ARGUMENT = ("stdin", "argument")  # standard input, or the last argument

# Clients that print messages, by name.
DIALECTS: Mapping[str, type[Dialect]]
DIALECTS = {kind.name: kind for kind in (Claude, Codex, Gemini, OpenCode)}
FORMATS = (*DIALECTS, AIDER, TEXT)
PRICE = "price"
_PRICE_KEYS = ("input", "output", "cached_input")
KEYS = ("command", "prompt", "format", "resume", PRICE)
_OPERATORS = frozenset("|&;<>()")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PROGRAM = re.compile(r"[A-Za-z0-9_./+-]+")
# Shell builtins and keywords that need not exist as programs.
_SHELL_COMMANDS = ". : [ cd command eval exec export set source test time trap ulimit umask unset"
_SHELL_WORDS = frozenset(f"{_SHELL_COMMANDS} case exit for if until while".split())
_MOST_USD, _LEAST_USD = 1_000_000.0, 0.0001
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    # US dollars for a million tokens.
    input: float
    output: float
    cached_input: float | None = None  # None: the same as `input`

    def of(self, tokens: Mapping[str, int]) -> float:
        fresh = tokens.get("input", 0)
        cached = min(tokens.get("cached", 0), fresh)
        cached_price = self.input if self.cached_input is None else self.cached_input
        dollars = (fresh - cached) * self.input + cached * cached_price
        return (dollars + tokens.get("output", 0) * self.output) / _MILLION


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    command: str
    prompt: str = STDIN  # one of PROMPTS
    format: str = TEXT  # one of FORMATS
    # Options that continue a conversation, with `{session}` for its id. They are inserted at the
    # end of the command, before a final `-`.
    resume: str | None = None
    price: Price | None = None

    @property
    def tells_cost(self) -> bool:
        dialect = DIALECTS.get(self.format)
        return self.price is not None or (dialect is not None and dialect.tells_cost)

    def line(self, prompt: str, session: str | None = None, budget: float | None = None) -> str:
        """Return the shell command of a call; `budget` is in US dollars."""
        command = self.command.strip()
        options = ""
        if session is not None and self.resume is not None:
            options += " " + self.resume.replace(SESSION, shlex.quote(session))
        dialect = DIALECTS.get(self.format)
        limit = dialect.budget if dialect is not None and budget is not None else ""
        if limit and limit not in command:
            options += f" {limit} {max(budget or 0.0, _LEAST_USD):.4f}"
        if options and command.endswith(" -"):
            command = f"{command.removesuffix(' -').rstrip()}{options} -"
        else:
            command += options
        if self.prompt == ARGUMENT:
            return f'{command} "$(cat {shlex.quote(prompt)})"'
        return f"exec <{shlex.quote(prompt)} || exit 125\n{command}"

    def missing(self, env: Mapping[str, str], directory: str) -> str | None:
        """Return the client's program if it is not installed, None if that is unknown."""
        import shutil  # only needed before the first call

        program = self.command.split(maxsplit=1)[0]
        if not _PROGRAM.fullmatch(program) or program in _SHELL_WORDS:
            return None
        if "/" in program:
            exists = os.path.exists(os.path.join(directory, program))
        else:
            exists = shutil.which(program, path=env.get("PATH", os.defpath)) is not None
        return None if exists else program

    def does_not_know(self, output: str) -> bool:
        dialect = DIALECTS.get(self.format)
        conversations = dialect.conversations if dialect is not None else CONVERSATIONS
        return _missing_conversation(conversations).search(output) is not None


BUILT_IN = {
    name: Client(name, dialect.command, dialect.prompt, name, dialect.resume)
    for name, dialect in DIALECTS.items()
}
BUILT_IN[AIDER] = Client(AIDER, AIDER_COMMAND, ARGUMENT, AIDER)


Clients = Mapping[str, Client]


def client_of(text: str, configured: Clients) -> Client:
    """Return the client with a name, or the client that a shell command calls.

    `configured`: the clients of `gitckpt.toml`, which override built-in clients.
    """
    name = text.strip()
    if not name or "\0" in name:
        names = ", ".join(dict.fromkeys((*configured, *BUILT_IN)))
        problem = "contains a NUL byte" if name else "is empty"
        hint = f"give a command, or one of: {names}"
        raise UsageError(f"the command of the agent {problem}", hint=hint)
    client = configured.get(name) or BUILT_IN.get(name) or _recognize_client(name)
    priced = configured.get(client.name)
    if client.price is None and priced is not None and priced.price is not None:
        return replace(client, price=priced.price)
    return client


def redefinition(name: str, configured: Clients) -> str | None:
    client = configured.get(name.strip())
    if client is None or replace(client, price=None) == BUILT_IN.get(client.name):
        return None
    if client.name not in BUILT_IN:
        import shutil  # rarely needed

        if shutil.which(client.name.split()[0]) is None:
            return None
    return f"{FILE} redefines the agent {client.name}: {client.command}"


def read_clients(path: str) -> dict[str, Client]:
    return read_file(path).read_tables(AGENTS, "agent", _parse_client)


def _parse_client(name: str, table: Table) -> Client:
    table.only(KEYS)
    command = table.text("command", one_line=True)
    built_in = BUILT_IN.get(name)
    if command is None and "command" not in table.values and built_in is None:
        table.complain(f"{table.label} has no command", hint='add command = "COMMAND"')
    defaults = (
        replace(_recognize_client(command), name=name) if command else built_in or Client(name, "")
    )
    resume = table.text("resume", defaults.resume, one_line=True)
    if resume is not None and SESSION not in resume:
        hint = f'write {SESSION} where the id belongs, as in resume = "--resume {SESSION}"'
        table.complain(f"resume of {table.label} has no {SESSION}", "resume", hint=hint)
    prompt = table.choice("prompt", PROMPTS, defaults.prompt)
    output = table.choice("format", FORMATS, defaults.format)
    return replace(defaults, prompt=prompt, format=output, resume=resume, price=_parse_price(table))


def _parse_price(table: Table) -> Price | None:
    prices = table.subtable(PRICE, f"the price of {table.label}")
    if prices is None:
        return None
    prices.only(_PRICE_KEYS)
    for key in _PRICE_KEYS[:2]:
        if key not in prices.values:
            hint = f"add {key} = US dollars per million tokens"
            prices.complain(f"{prices.label} has no {key}", hint=hint)
    amounts = dict.fromkeys(_PRICE_KEYS[:2], 0.0)
    for key in prices.values.keys() & set(_PRICE_KEYS):
        amounts[key] = prices.number(key, 0.0, 0.0, _MOST_USD)
    return Price(**amounts)


def _recognize_client(command: str) -> Client:
    words = _split_words(command)
    name = os.path.basename(words[0]) if words else ""
    if name == AIDER:
        return Client(name, command, ARGUMENT if words[-1] in _MESSAGE else STDIN, AIDER)
    built_in = BUILT_IN.get(name) if name in DIALECTS else None
    if built_in is None or not DIALECTS[name].asks_for_messages(words[1:]):
        return Client(name or "the agent", command)
    return replace(built_in, command=command)


def _split_words(command: str) -> list[str]:
    # Returns [] unless the command is a single call of a program.
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
