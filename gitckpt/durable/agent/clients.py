"""Define the client programs of AI agents: their commands and output formats."""

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
from gitckpt.store.config.file import Table, read_config_file
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

    def add_text(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)
        if self._size > 2 * KEPT:
            self._parts = [self.text()]
            self._size = KEPT

    def text(self) -> str:
        return "".join(self._parts)[-KEPT:]

    def clear_text(self) -> None:
        self._parts, self._size = [], 0


class ClientDialect(ABC):
    name: ClassVar[str]  # also the name of its program and format
    command: ClassVar[str]
    resume: ClassVar[str]  # options that continue the conversation `SESSION`
    conversations: ClassVar[Sequence[str]]  # the client's words for a conversation, in errors
    prompt: ClassVar[str] = "stdin"  # or "argument": the prompt is the last argument
    budget: ClassVar[str] = ""  # the option for a limit in US dollars; "" without one
    reports_cost: ClassVar[bool] = False  # the client reports what a call costs

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

    def add_tokens(self, usage: Message, token_kinds: Mapping[str, str]) -> None:
        """Add the token counts in `usage`; `token_kinds` maps its keys to token kinds."""
        for usage_key, token_kind in token_kinds.items():
            token_count = usage.get(usage_key)
            if type(token_count) is int and 0 <= token_count <= _HIGHEST:
                self.tokens[token_kind] = self.tokens.get(token_kind, 0) + token_count

    @staticmethod
    def requests_json_output(options: Sequence[str]) -> bool:
        option_text = " ".join(options).replace("--output-format=", "--output-format ")
        formats = re.findall(r"(?:^|\s)(?:--output-format|-o)\s(\S+)", option_text)
        return bool(formats) and formats[-1] in _STRUCTURED

    @abstractmethod
    def read_message(self, message: Message) -> str | None:
        """Read a message; return text to show, or None if another program printed it."""


def parse_session_id(value: object) -> str | None:
    """Return `value` if it is a conversation id safe in a shell command, else None."""
    return value if isinstance(value, str) and _SESSION_ID.fullmatch(value) else None


@functools.cache
def _missing_conversation_pattern(conversations: Sequence[str]) -> re.Pattern[str]:
    nouns = "|".join(f"{noun}s?" for noun in conversations)
    unknown_text = rf"\b(no|unknown|invalid|cannot find|could not find)\b[^\n]{{0,40}}\b({nouns})\b"
    missing_text = rf"\b({nouns})\b[^\n]{{0,200}}\b(not found|(does )?not exist|unknown|expired)\b"
    return re.compile(f"{unknown_text}|{missing_text}", re.IGNORECASE)


def parse_cost(value: object) -> float | None:
    is_number = type(value) in (int, float)
    return float(value) if is_number and 0 <= value <= _HIGHEST else None  # type: ignore[operator, arg-type]


def clean_text(value: object) -> str:
    """Replace NUL and lone surrogates in a string; return "" if it is not a string."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def text_of(message: Message, key: str) -> str:
    return clean_text(message.get(key))


def dict_of(message: Message, key: str) -> Message:
    return as_dict(message.get(key))


def strip_colors(text: str) -> str:
    return _COLORS.sub("", text)


def one_line(text: str, limit: int = _SHOWN) -> str:
    line = " ".join(text[: 4 * limit].split()).translate(_CONTROL)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def as_dict(value: object) -> Message:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def end_with_newline(text: str) -> str:
    line = text.translate(_CONTROL)
    return line if not line or line.endswith("\n") else line + "\n"


def remove_control_chars(text: str) -> str:
    return strip_colors(text).translate(_CONTROL)


def format_tool_use(name: str, inputs: str) -> str:
    line = one_line(": ".join(filter(None, (name, inputs))))
    return f"→ {line}\n" if line else ""


def describe_inputs(inputs: object) -> str:
    return next(filter(None, (clean_text(as_dict(inputs).get(key)) for key in _INPUT_KEYS)), "")


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


def parse_aider_usage(output: str) -> tuple[dict[str, int], float | None]:
    tokens: dict[str, int] = {}
    cost = None
    for sent, unit, received, received_unit, cost_text in _USAGE.findall(output):
        for kind, number, scale in (("input", sent, unit), ("output", received, received_unit)):
            try:
                token_count = int(float(number.replace(",", "")) * _UNITS[scale])
            except (ValueError, OverflowError):
                token_count = 0
            tokens[kind] = tokens.get(kind, 0) + min(token_count, _HIGHEST)
        cost_match = _COST.search(cost_text)
        cost = (cost or 0.0) + float(cost_match[1]) if cost_match is not None else cost
    return tokens, cost


def find_aider_failure(output: str) -> str | None:
    """Return the model's error if the last call failed; aider always exits with 0."""
    failures = list(_FAILED.finditer(output))
    has_failed_last = bool(failures) and _USAGE.search(output, failures[-1].end()) is None
    return failures[-1][1] if has_failed_last else None


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


class Claude(ClientDialect):
    name = "claude"
    command = "claude -p --output-format stream-json --verbose"
    resume = f"--resume {SESSION}"
    budget = "--max-budget-usd"
    reports_cost = True
    conversations = ("conversation", "session")  # No conversation found with session ID: …

    def read_message(self, message: Message) -> str | None:
        message_type = message.get("type")
        if message_type not in _CLAUDE_KINDS and "session_id" not in message:
            return None
        self.session = parse_session_id(message.get("session_id")) or self.session
        self.is_retrying = message_type == "system" and message.get("subtype") == "api_retry"
        if message_type == "assistant":
            return self._read_assistant_message(message)
        if self.is_retrying:
            return _format_retry_line(message)
        return self._read_result_message(message) if message_type == "result" else ""

    def _read_assistant_message(self, message: Message) -> str:
        # Some messages are from the client, not the model, such as on a failed call of the model.
        inner_message = dict_of(message, "message")
        is_from_client = inner_message.get("model") == _SYNTHETIC or bool(message.get("error"))
        self.worked = self.worked or not is_from_client
        content = inner_message.get("content")
        if not isinstance(content, list):
            content = [{"type": "text", "text": content}]
        blocks = [as_dict(block) for block in content]
        texts = [text_of(block, "text") for block in blocks if block.get("type") == "text"]
        shown_text = "\n".join(filter(None, texts))
        if shown_text and not message.get("parent_tool_use_id"):  # ignore subagents
            self.text = shown_text
        return "".join(_format_content_block(block) for block in blocks)

    def _read_result_message(self, message: Message) -> str:
        subtype, old_text = text_of(message, "subtype"), self.text
        self.complete = True
        self.is_error = message.get("is_error") is True or subtype.startswith("error")
        for cost_key in ("cost_usd", "total_cost_usd"):  # the first: older versions
            cost = parse_cost(message.get(cost_key))
            self.cost_usd = self.cost_usd if cost is None else cost
        usage = dict_of(message, "usage")
        self.add_tokens(usage, _TOKENS)
        self.add_tokens(usage, {"cache_read_input_tokens": "cached"})
        denials = message.get("permission_denials")
        if isinstance(denials, list):
            self.denied = []
            for denial in map(as_dict, denials[:_MOST]):
                parts = (text_of(denial, "tool_name"), describe_inputs(denial.get("tool_input")))
                self.denied.append(one_line(": ".join(filter(None, parts)) or "a tool"))
        turn_count = message.get("num_turns")
        turn_count = turn_count if type(turn_count) is int else 1
        self.worked = self.worked or turn_count > self.is_error  # a failed call counts as a turn
        self.text = text_of(message, "result") or self.text
        if self.is_error:
            errors = "; ".join(filter(None, map(clean_text, as_list(message.get("errors")))))
            type_text = _ERRORS.get(subtype) or (subtype if subtype.startswith("error") else "")
            self.error = one_line(errors or text_of(message, "result") or type_text, ERROR) or None
        denied_lines = "".join(f"not allowed: {action}\n" for action in self.denied)
        return (end_with_newline(self.text) if self.text != old_text else "") + denied_lines


def _format_retry_line(message: Message) -> str:
    attempt, max_attempts = message.get("attempt"), message.get("max_retries")
    attempt_text = f", attempt {attempt}" if type(attempt) is int else ""
    attempt_text += f" of {max_attempts}" if attempt_text and type(max_attempts) is int else ""
    error = message.get("error")
    cause = one_line(clean_text(error) or text_of(as_dict(error), "message"))
    return f"the model is called again{attempt_text}{': ' if cause else ''}{cause}\n"


def _format_content_block(block: Message) -> str:
    if block.get("type") == "tool_use":
        return format_tool_use(text_of(block, "name"), describe_inputs(block.get("input")))
    return end_with_newline(text_of(block, "text")) if block.get("type") == "text" else ""


_CODEX_KINDS = ("thread.", "turn.", "item.")
_CODEX_TOKENS = {"input_tokens": "input", "output_tokens": "output"}
_CODEX_TOKENS |= {"cached_input_tokens": "cached"}
_JSON = ("--json", "--experimental-json")


class Codex(ClientDialect):
    name = "codex"
    command = "codex exec --json -"
    resume = f"resume {SESSION}"
    # As in "no rollout found for thread id …".
    conversations = ("rollout", "thread", "conversation", "session")

    @staticmethod
    def requests_json_output(options: Sequence[str]) -> bool:
        return any(option in _JSON for option in options)

    def read_message(self, message: Message) -> str | None:
        event = message.get("type")
        if not isinstance(event, str) or not (event == "error" or event.startswith(_CODEX_KINDS)):
            return None
        if event == "thread.started":
            self.session = parse_session_id(message.get("thread_id")) or self.session
        elif event == "turn.completed":
            self.complete, self.is_error, self.error = True, False, None
            self.add_tokens(dict_of(message, "usage"), _CODEX_TOKENS)
        elif event == "turn.failed":
            failure = one_line(text_of(dict_of(message, "error"), "message"), ERROR)
            self.complete, self.is_error, self.error = True, True, failure or self.error
        elif event == "error":
            return self._record_error(one_line(text_of(message, "message"), ERROR))
        elif event.startswith("item."):
            return self._read_item_event(event, dict_of(message, "item"))
        return ""

    def _record_error(self, problem: str) -> str:
        # The client may retry: only the end of the turn decides about the call.
        if not self.complete:
            self.is_error, self.error = True, problem or self.error
        return f"error: {problem}\n" if problem else ""

    def _read_item_event(self, event: str, item: Message) -> str:
        # An item is work of the agent, unless it is an error of the client.
        item_type = item.get("type")
        self.worked = self.worked or item_type != "error"
        if item_type in ("command_execution", "mcp_tool_call", "collab_tool_call"):
            if event == "item.started":
                tool_name = " ".join(filter(None, (text_of(item, "server"), text_of(item, "tool"))))
                return format_tool_use(tool_name, text_of(item, "command"))
            code = item.get("exit_code")
            return f"  exit code {code}\n" if type(code) is int and 0 < abs(code) < 1000 else ""
        if event != "item.completed":
            return ""
        if item_type == "agent_message":
            self.text = text_of(item, "text") or self.text
            return end_with_newline(text_of(item, "text"))
        if item_type == "file_change":
            file_changes = map(as_dict, as_list(item.get("changes")))
            paths = [text_of(file_change, "path") for file_change in file_changes]
            return format_tool_use("files", ", ".join(filter(None, paths)))
        if item_type == "web_search":
            return format_tool_use("search", text_of(item, "query"))
        return _format_error_line(item) if item_type == "error" else ""


def _format_error_line(message: Message) -> str:
    return end_with_newline(f"error: {one_line(clean_text(message.get('message')), ERROR)}")


_GEMINI_TOKENS = {"prompt": "input", "candidates": "output", "thoughts": "output"}
_GEMINI_TOKENS |= {"cached": "cached"}
_GEMINI_TOTALS = {"input_tokens": "input", "output_tokens": "output", "cached": "cached"}
_GEMINI_KINDS = ("init", "message", "tool_use", "tool_result", "error", "result")


class Gemini(ClientDialect):
    name = "gemini"
    command = "gemini --output-format json"
    resume = f"--resume {SESSION}"
    conversations = ("session", "conversation")  # Invalid session identifier

    def __init__(self) -> None:
        super().__init__()
        self._answer = TextTail()
        self._line_is_open = False

    def read_message(self, message: Message) -> str | None:
        event = message.get("type")
        has_answer = isinstance(message.get("response"), str)
        is_document = event is None and (has_answer or isinstance(message.get("error"), dict))
        if not is_document and event not in _GEMINI_KINDS:
            return None
        self.session = parse_session_id(message.get("session_id")) or self.session
        if is_document:
            return self._read_final_document(message)
        if event == "message":
            return self._read_chat_message(message)
        shown_text = self._read_other_event(str(event), message)
        if self._line_is_open and (shown_text or self.complete):
            shown_text, self._line_is_open = "\n" + shown_text, False
        return shown_text

    def _read_final_document(self, message: Message) -> str:
        self.complete = True
        for model in dict_of(dict_of(message, "stats"), "models").values():
            self.add_tokens(dict_of(as_dict(model), "tokens"), _GEMINI_TOKENS)
        self.text = text_of(message, "response")
        self.worked = self.worked or "response" in message
        self._set_error(message.get("error"), failed=isinstance(message.get("error"), dict))
        return end_with_newline(self.text)

    def _read_chat_message(self, message: Message) -> str:
        if message.get("role") != "assistant":
            return ""
        self.worked = True
        content = text_of(message, "content")
        if message.get("delta") is not True:
            self._answer.clear_text()
            content = end_with_newline(content)
        self._answer.add_text(content)
        self.text = self._answer.text()
        self._line_is_open = not content.endswith("\n") if content else self._line_is_open
        return content

    def _read_other_event(self, event: str, message: Message) -> str:
        if event == "tool_use":
            self.worked = True
            self._answer.clear_text()
            inputs = describe_inputs(message.get("parameters"))
            return format_tool_use(text_of(message, "tool_name"), inputs)
        if event == "error":
            return _format_error_line(message)
        if event == "result":
            self.complete = True
            self.add_tokens(dict_of(message, "stats"), _GEMINI_TOTALS)
            self._set_error(message.get("error"), failed=message.get("status") == "error")
        return ""

    def _set_error(self, error: object, *, failed: bool) -> None:
        self.is_error = failed
        error_line = one_line(text_of(as_dict(error), "message"), ERROR) if failed else ""
        self.error = error_line or None


_OPENCODE_KINDS = ("text", "tool_use", "tool", "step_start", "step_finish", "error", "reasoning")


class OpenCode(ClientDialect):
    name = "opencode"
    command = "opencode run --format json"
    resume = f"--session {SESSION}"
    conversations = ("session", "conversation")
    prompt = "argument"
    reports_cost = True

    @staticmethod
    def requests_json_output(options: Sequence[str]) -> bool:
        return "--format json" in " ".join(options).replace("--format=", "--format ")

    def read_message(self, message: Message) -> str | None:
        message_type = message.get("type")
        if message_type not in _OPENCODE_KINDS:
            return None
        self.session = parse_session_id(message.get("sessionID")) or self.session
        part = dict_of(message, "part")
        if message_type == "error":
            return self._read_error_message(dict_of(message, "error"))
        if message_type == "step_finish":
            return self._read_step_end(part)
        self.worked = True
        if message_type == "text":
            self.text = text_of(part, "text")[-KEPT:]
            return end_with_newline(self.text)
        if message_type in ("tool_use", "tool"):
            inputs = describe_inputs(dict_of(part, "state").get("input"))
            return format_tool_use(text_of(part, "tool"), inputs)
        return ""

    def _read_step_end(self, part: Message) -> str:
        # A step that does not call tools is the last one.
        cost = parse_cost(part.get("cost"))
        if cost is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost
        token_table = dict_of(part, "tokens")
        self.add_tokens(token_table, {"input": "input", "output": "output", "reasoning": "output"})
        cache_table = dict_of(token_table, "cache")
        self.add_tokens(cache_table, {"read": "input", "write": "input"})
        self.add_tokens(cache_table, {"read": "cached"})
        self.complete = part.get("reason") != "tool-calls"
        return ""

    def _read_error_message(self, error: Message) -> str:
        error_data = dict_of(error, "data")
        retry_seconds = text_of(dict_of(error_data, "responseHeaders"), "retry-after")
        http_status = error_data.get("statusCode")
        text = text_of(error_data, "message") or text_of(error, "message") or text_of(error, "name")
        if type(http_status) is int and text:
            text = f"HTTP {http_status}: {text}"
            text += f" (retry after {retry_seconds} seconds)" if retry_seconds.isdecimal() else ""
        text = one_line(text, ERROR)
        self.complete, self.is_error, self.error = True, True, text or self.error
        return f"error: {text}\n" if text else ""


# Any other command prints plain text: its whole output is the answer.

TEXT = "text"  # the format of clients without messages

# Words that clients of an unknown format may use for a conversation.
CONVERSATIONS = ("conversation", "session", "thread", "rollout")


class OutputDecoder:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = TextTail()

    @property
    def text(self) -> str:
        return clean_text(self._tail.text())

    def decode(self, chunk: bytes, *, final: bool = False) -> str:
        text = self._decoder.decode(chunk, final)
        self._tail.add_text(text)
        return text


PROMPTS = STDIN, ARGUMENT = ("stdin", "argument")  # standard input, or the last argument

# Clients that print messages, by name.
DIALECTS: Mapping[str, type[ClientDialect]]
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
class TokenPrice:
    # US dollars for a million tokens.
    input: float
    output: float
    cached_input: float | None = None  # None: the same as `input`

    def cost_of(self, tokens: Mapping[str, int]) -> float:
        input_count = tokens.get("input", 0)
        cached_count = min(tokens.get("cached", 0), input_count)
        cached_price = self.input if self.cached_input is None else self.cached_input
        dollars = (input_count - cached_count) * self.input + cached_count * cached_price
        return (dollars + tokens.get("output", 0) * self.output) / _MILLION


@dataclass(frozen=True, slots=True)
class AgentClient:
    name: str
    command: str
    prompt: str = STDIN  # one of PROMPTS
    format: str = TEXT  # one of FORMATS
    # Options that continue a conversation, with `{session}` for its id. They are inserted at the
    # end of the command, before a final `-`.
    resume: str | None = None
    price: TokenPrice | None = None

    @property
    def reports_cost(self) -> bool:
        dialect = DIALECTS.get(self.format)
        return self.price is not None or (dialect is not None and dialect.reports_cost)

    def call_line(self, path: str, session: str | None = None, budget: float | None = None) -> str:
        """Return the shell command that runs the client with the prompt file `path`.

        `session` is the conversation to continue, and `budget` a cost limit in US dollars.
        """
        command = self.command.strip()
        added_options = ""
        if session is not None and self.resume is not None:
            added_options += " " + self.resume.replace(SESSION, shlex.quote(session))
        dialect = DIALECTS.get(self.format)
        budget_option = dialect.budget if dialect is not None and budget is not None else ""
        if budget_option and budget_option not in command:
            added_options += f" {budget_option} {max(budget or 0.0, _LEAST_USD):.4f}"
        if added_options and command.endswith(" -"):
            command = f"{command.removesuffix(' -').rstrip()}{added_options} -"
        else:
            command += added_options
        if self.prompt == ARGUMENT:
            return f'{command} "$(cat {shlex.quote(path)})"'
        return f"exec <{shlex.quote(path)} || exit 125\n{command}"

    def find_missing_program(self, env: Mapping[str, str], directory: str) -> str | None:
        import shutil  # only needed before the first call

        program = self.command.split(maxsplit=1)[0]
        if not _PROGRAM.fullmatch(program) or program in _SHELL_WORDS:
            return None
        if "/" in program:
            is_installed = os.path.exists(os.path.join(directory, program))
        else:
            is_installed = shutil.which(program, path=env.get("PATH", os.defpath)) is not None
        return None if is_installed else program

    def is_session_error(self, output: str) -> bool:
        dialect = DIALECTS.get(self.format)
        conversations = dialect.conversations if dialect is not None else CONVERSATIONS
        return _missing_conversation_pattern(conversations).search(output) is not None


BUILT_IN = {
    name: AgentClient(name, dialect.command, dialect.prompt, name, dialect.resume)
    for name, dialect in DIALECTS.items()
}
BUILT_IN[AIDER] = AgentClient(AIDER, AIDER_COMMAND, ARGUMENT, AIDER)


Clients = Mapping[str, AgentClient]


def find_client(text: str, configured: Clients) -> AgentClient:
    """Return the client whose name or shell command is `text`.

    `configured` are the clients in `gitckpt.toml`, which override built-in clients. Raises
    UsageError if `text` is empty or contains a NUL byte.
    """
    name = text.strip()
    if not name or "\0" in name:
        names = ", ".join(dict.fromkeys((*configured, *BUILT_IN)))
        problem = "contains a NUL byte" if name else "is empty"
        hint = f"give a command, or one of: {names}"
        raise UsageError(f"the command of the agent {problem}", hint=hint)
    client = configured.get(name) or BUILT_IN.get(name) or _recognize_client(name)
    override = configured.get(client.name)
    if client.price is None and override is not None and override.price is not None:
        return replace(client, price=override.price)
    return client


def describe_client_override(name: str, configured: Clients) -> str | None:
    client = configured.get(name.strip())
    if client is None or replace(client, price=None) == BUILT_IN.get(client.name):
        return None
    if client.name not in BUILT_IN:
        import shutil  # rarely needed

        if shutil.which(client.name.split()[0]) is None:
            return None
    return f"{FILE} redefines the agent {client.name}: {client.command}"


def read_clients(path: str) -> dict[str, AgentClient]:
    return read_config_file(path).read_tables(AGENTS, "agent", _parse_client)


def _parse_client(name: str, table: Table) -> AgentClient:
    table.check_keys(KEYS)
    command = table.text("command", one_line=True)
    built_in = BUILT_IN.get(name)
    if command is None and "command" not in table.values and built_in is None:
        table.report(f"{table.label} has no command", hint='add command = "COMMAND"')
    defaults = built_in or AgentClient(name, "")
    if command:
        defaults = replace(_recognize_client(command), name=name)
    resume = table.text("resume", defaults.resume, one_line=True)
    if resume is not None and SESSION not in resume:
        hint = f'write {SESSION} where the id belongs, as in resume = "--resume {SESSION}"'
        table.report(f"resume of {table.label} has no {SESSION}", "resume", hint=hint)
    prompt = table.choice("prompt", PROMPTS, defaults.prompt)
    output = table.choice("format", FORMATS, defaults.format)
    return replace(defaults, prompt=prompt, format=output, resume=resume, price=_parse_price(table))


def _parse_price(table: Table) -> TokenPrice | None:
    price_table = table.subtable(PRICE, f"the price of {table.label}")
    if price_table is None:
        return None
    price_table.check_keys(_PRICE_KEYS)
    for price_key in _PRICE_KEYS[:2]:
        if price_key not in price_table.values:
            hint = f"add {price_key} = US dollars per million tokens"
            price_table.report(f"{price_table.label} has no {price_key}", hint=hint)
    amounts = dict.fromkeys(_PRICE_KEYS[:2], 0.0)
    for price_key in price_table.values.keys() & set(_PRICE_KEYS):
        amounts[price_key] = price_table.number(price_key, 0.0, 0.0, _MOST_USD)
    return TokenPrice(**amounts)


def _recognize_client(command: str) -> AgentClient:
    words = _split_command_words(command)
    name = os.path.basename(words[0]) if words else ""
    if name == AIDER:
        return AgentClient(name, command, ARGUMENT if words[-1] in _MESSAGE else STDIN, AIDER)
    built_in = BUILT_IN.get(name) if name in DIALECTS else None
    if built_in is None or not DIALECTS[name].requests_json_output(words[1:]):
        return AgentClient(name or "the agent", command)
    return replace(built_in, command=command)


def _split_command_words(command: str) -> list[str]:
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
