"""Call an AI agent: run a client program, and parse the answer from the output."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from gitckpt.durable.agent import clients
from gitckpt.durable.agent.clients import AgentClient, ClientDialect, parse_session_id
from gitckpt.durable.command import execution
from gitckpt.durable.command.execution import Output, OutputTail, Tick, Timeouts
from gitckpt.durable.command.watchdog import Watchdog
from gitckpt.model import times
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import secrets

MAX_MESSAGE = 16 << 20  # maximum bytes of a message; longer ones are handled as text
_MESSAGE_STARTS = (b'{"', b"[{")


@dataclass(frozen=True, slots=True)
class AgentReport:
    # The final message, or else the last one; without messages, the whole output of the client.
    # At most the last `KEPT` characters, without NUL and lone surrogates.
    text: str
    session: str | None = None  # id of the conversation; None if missing or malformed
    cost_usd: float | None = None  # None if unknown
    is_error: bool = False
    error: str | None = None  # on one line
    complete: bool = True  # the final message arrived; always true for plain text
    structured: bool = False  # the output has at least the start of a JSON message
    worked: bool = False  # the agent did or said anything
    # "input", "output" and "cached" (part of the input); empty if unknown
    tokens: Mapping[str, int] = field(default_factory=dict)
    denied: tuple[str, ...] = ()  # denied actions


def create_output_reader(name: str) -> ClientOutputReader:
    if name == clients.AIDER:
        return AiderOutputReader()
    dialect = clients.DIALECTS.get(name)
    return JsonOutputReader(dialect()) if dialect is not None else ClientOutputReader()


class ClientOutputReader:
    """Reads the output of a client; `read_chunk` returns the text to show."""

    def __init__(self) -> None:
        self.rest = ""  # more text to show, set by `finish_report`
        self.is_retrying = False  # the last message only announces a retry of the client
        self._text = clients.OutputDecoder()

    def read_chunk(self, chunk: bytes) -> str:
        return self._text.decode(chunk)

    def finish_report(self) -> AgentReport:
        self.rest = self._text.decode(b"", final=True)
        return AgentReport(self._text.text)


class AiderOutputReader(ClientOutputReader):
    def finish_report(self) -> AgentReport:
        report = super().finish_report()
        tokens, cost = clients.parse_aider_usage(report.text)
        failure = clients.find_aider_failure(report.text)
        error_line = clients.one_line(failure, clients.ERROR) if failure else None
        report = replace(report, is_error=failure is not None, error=error_line)
        return replace(report, tokens=tokens, cost_usd=cost, worked=bool(tokens))


class JsonOutputReader(ClientOutputReader):
    # Reads JSON objects or arrays, on one line each or spread over several, with text in between.
    def __init__(self, dialect: ClientDialect) -> None:
        super().__init__()
        self._dialect = dialect
        self._has_messages = self._is_cut = self._is_long = False
        self._line = bytearray()
        # Lines of a message that began with a bracket on its own line.
        self._spread: bytearray | None = None

    def read_chunk(self, chunk: bytes) -> str:
        *lines, rest = chunk.split(b"\n")
        return "".join([self._end_line(line, b"\n") for line in lines]) + self._buffer_part(rest)

    def finish_report(self) -> AgentReport:
        last_text = "" if self._is_long else self._process_last_line()
        final_text = self._text.decode(b"", final=True)
        self.rest = last_text if self._is_cut else last_text + final_text
        dialect = self._dialect
        text = dialect.text[-clients.KEPT :] if self._has_messages else self._text.text
        error = dialect.error if dialect.is_error else None
        result = (dialect.session, dialect.cost_usd, dialect.is_error, error, dialect.complete)
        is_structured = self._has_messages or self._is_cut
        report = AgentReport(text, *result, structured=is_structured, worked=dialect.worked)
        return replace(report, tokens=dict(dialect.tokens), denied=tuple(dialect.denied))

    def _buffer_part(self, part: bytes) -> str:
        if self._is_long:
            return self._text.decode(part)
        self._line += part
        if len(self._line) <= MAX_MESSAGE:
            return ""
        self._is_long = True
        return self._flush_message() + self._text.decode(self._take_line())

    def _end_line(self, part: bytes, end: bytes) -> str:
        shown_text = self._buffer_part(part)
        if self._is_long:
            self._is_long = False
            return shown_text + self._text.decode(end)
        return self._process_whole_line(self._take_line() + end)

    def _process_whole_line(self, line: bytes) -> str:
        if self._spread is not None:
            if line.startswith(_MESSAGE_STARTS) and (text := self._parse_line(line)) is not None:
                return self._flush_message() + text
            self._spread += line
            if line[:1] not in (b"}", b"]"):
                return "" if len(self._spread) <= MAX_MESSAGE else self._flush_message()
            line, self._spread = bytes(self._spread), None
        elif line.strip() in (b"{", b"["):
            self._spread = bytearray(line)
            return ""
        text = self._parse_line(line)
        return self._text.decode(line) if text is None else text

    def _process_last_line(self) -> str:
        # A truncated message becomes part of the report but is not shown.
        line = self._take_line()
        shown_text: str | None = ""
        if line and not line.lstrip().startswith(_MESSAGE_STARTS):
            shown_text, line = self._process_whole_line(line), b""
        elif line and (shown_text := self._parse_line(line)) is not None:
            shown_text, line = self._flush_message() + shown_text, b""
        truncated_message = bytes(self._spread or b"") + line
        self._spread, self._is_cut = None, bool(truncated_message)
        self._text.decode(truncated_message)
        return shown_text or ""

    def _parse_line(self, line: bytes) -> str | None:
        start = 0 if line.lstrip()[:1] in (b"{", b"[") else line.find(b'{"')
        if start < 0:
            return None
        texts = [self._dialect.read_message(message) for message in _parse_messages(line[start:])]
        shown_texts = [text for text in texts if text is not None]
        if not shown_texts:
            return None
        self._has_messages = True
        self.is_retrying = self._dialect.is_retrying
        return (self._text.decode(line[:start] + b"\n") if start else "") + "".join(shown_texts)

    def _flush_message(self) -> str:
        lines, self._spread = self._spread, None
        return self._text.decode(bytes(lines)) if lines is not None else ""

    def _take_line(self) -> bytes:
        line = bytes(self._line)
        self._line.clear()
        return line


def _parse_messages(text: bytes) -> list[dict[str, object]]:
    try:
        document = json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return []
    messages = document if isinstance(document, list) else [document]
    return [message for message in messages if isinstance(message, dict)]


# Transcripts: files with the raw output, written at once, limited in number and size.

FIRST = 1 << 20  # bytes kept of the start of a longer output
LAST = 15 << 20  # bytes kept of the end of a longer output
MOST, MOST_BYTES = 100, 64 << 20  # number and total bytes of earlier transcripts to keep


_OUTPUT = "the output of the agent"


def rotate_transcripts(path: str) -> None:
    """Rename `agent.log` at `path` to `agent-N.log`, and delete the oldest of these."""
    directory, (stem, ending) = os.path.dirname(path), os.path.splitext(os.path.basename(path))
    if not os.path.isfile(path):
        return
    pattern = re.compile(rf"{re.escape(stem)}-(\d{{1,9}}){re.escape(ending)}")
    try:
        name_matches = filter(None, map(pattern.fullmatch, os.listdir(directory)))
        file_numbers = sorted((int(name_match[1]) for name_match in name_matches), reverse=True)
        file_numbers.insert(0, file_numbers[0] + 1 if file_numbers else 1)
        os.rename(path, os.path.join(directory, f"{stem}-{file_numbers[0]}{ending}"))
        free_bytes = MOST_BYTES
        for newer_count, file_number in enumerate(file_numbers):
            transcript = os.path.join(directory, f"{stem}-{file_number}{ending}")
            free_bytes -= os.path.getsize(transcript)
            if newer_count >= MOST or (newer_count and free_bytes < 0):
                os.unlink(transcript)
    except OSError as error:
        raise _make_write_error(_OUTPUT, directory, error) from None


def _make_write_error(content: str, path: str, error: OSError) -> CkptError:
    hint = "check the path, and the free space: df"
    return CkptError(f"cannot write {content} to {path}: {error.strerror}", hint=hint)


class TranscriptFile:
    """A file for the raw output; `mask_and_close` masks secrets and limits its size."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._size = 0
        self._dropped = 0
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            self._file = open(path, "w+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise _make_write_error(_OUTPUT, self.path, error) from None

    def write_chunk(self, chunk: bytes) -> None:
        try:
            unwritten_bytes = memoryview(chunk)
            while unwritten_bytes:
                unwritten_bytes = unwritten_bytes[self._file.write(unwritten_bytes) :]
            self._size += len(chunk)
            if self._size > FIRST + 2 * LAST:
                self._replace_file(self._read_start_and_end())
        except OSError as error:
            raise _make_write_error(_OUTPUT, self.path, error) from None

    def mask_and_close(self) -> None:
        try:
            output = self._read_start_and_end() if self._size else b""  # 0: every write failed
            masked_output = secrets.mask_bytes(output)
            if self._dropped or masked_output != output:
                self._replace_file(masked_output)
        except OSError as error:
            raise _make_write_error(_OUTPUT, self.path, error) from None
        finally:
            self._file.close()

    def _read_start_and_end(self) -> bytes:
        self._file.seek(0)
        if self._size <= FIRST + LAST:
            return self._file.read()
        head = self._file.read(FIRST)
        self._dropped += self._size - FIRST - LAST
        self._size = FIRST + LAST
        self._file.seek(-LAST, os.SEEK_END)
        return b"%b\n[%d bytes are left out here]\n%b" % (head, self._dropped, self._file.read())

    def _replace_file(self, data: bytes) -> None:
        # Atomic: a kill leaves the file unchanged.
        new_path = f"{self.path}.new"
        with open(new_path, "wb") as file:
            file.write(data)
        os.replace(new_path, self.path)
        self._file.close()
        self._file = open(self.path, "r+b", buffering=0)  # noqa: SIM115
        self._file.seek(0, os.SEEK_END)


PROMPT, LOG = "prompt", "agent.log"
MAX_ARGUMENT = 100_000  # bytes of a prompt as an argument; systems allow 128 KiB for one
_BRIEF = 2000  # characters searched for a "conversation not found" error


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """The result of one call of a client program; secrets in its texts are masked."""

    report: AgentReport
    code: int  # exit code of the client; a negated signal number if a signal ended it
    ended_by: str  # EXIT, or the time limit: TIMEOUT, IDLE_TIMEOUT or DEADLINE
    tail: str  # the end of the shown text, at most `execution.TAIL_BYTES`
    seconds: float
    log: str  # path of the raw output
    resumed: bool  # the call continued the requested conversation
    client: str  # its name
    patience: Timeouts  # the time limits of the call

    @property
    def plain_tail(self) -> str:
        return clients.strip_colors(self.tail)

    @property
    def succeeded(self) -> bool:
        return not self.problem

    @property
    def problem(self) -> str:
        """Return a sentence that says why the call failed, or "" if it succeeded."""
        if self.ended_by == execution.DEADLINE:
            return f"{self.client} was ended: the run reached its deadline"
        if self.ended_by != execution.EXIT:
            is_timeout = self.ended_by == execution.TIMEOUT
            limit = self.patience.timeout if is_timeout else self.patience.idle_timeout
            reason = "the call took" if is_timeout else "no output for"
            limit_text = f"{limit or 0:g}s"
            if limit and limit >= 1:
                limit_text = times.exact_age_text(round(limit * times.MICRO))
            return f"{self.client} was ended: {reason} more than {limit_text}"
        cause = ""
        if self.report.is_error:
            cause = self.report.error or "the client gives no reason"
        elif self.code:
            cause = f"{execution.describe_exit(self.code)}{execution.error_line(self.plain_tail)}"
        elif self.report.structured and not self.report.complete:
            cause = "the output ends before the final message"
        return f"{self.client} failed: {cause}" if cause else ""


class AgentRunner:
    """Runs a client in a worktree; keeps prompts and outputs in the directory `files`."""

    def __init__(
        self, client: AgentClient, cwd: str, env: Mapping[str, str], watchdog: Watchdog, files: str
    ) -> None:
        self.client, self._directory, self._env = client, cwd, env
        self._watchdog, self._files = watchdog, os.path.abspath(files)

    def ask_agent(
        self,
        prompt: str,
        output: Output,
        tick: Tick = None,
        *,
        patience: Timeouts,
        session: str | None = None,
        log: str = LOG,
        budget: float | None = None,
    ) -> AgentAnswer:
        """Run the client with a prompt, and return its answer or the reason of a failure.

        `output` gets the text to show, and `tick` the elapsed seconds. `session` is the id of the
        conversation to continue, `log` a file name, and `budget` a cost limit in US dollars.
        """
        path = self._write_prompt_file(prompt)
        conversation = parse_session_id(session) if self.client.resume else None
        log_path = os.path.join(self._files, log)
        rotate_transcripts(log_path)
        transcript = TranscriptFile(log_path)
        call = functools.partial(self._run_client, transcript, output, tick)
        try:
            answer = call(self.client.call_line(path, conversation, budget), patience)
            if conversation is None or not self._has_lost_session(answer):
                return replace(answer, resumed=conversation is not None)
            name = self.client.name
            notice = f"{name} does not know the conversation {conversation}: a new one begins\n"
            output(notice.encode())
            left = None if patience.left is None else max(patience.left - answer.seconds, 0.0)
            answer2 = call(self.client.call_line(path, None, budget), replace(patience, left=left))
            return replace(answer2, seconds=answer.seconds + answer2.seconds, patience=patience)
        finally:
            transcript.mask_and_close()

    def _run_client(
        self, transcript: TranscriptFile, output: Output, tick: Tick, line: str, patience: Timeouts
    ) -> AgentAnswer:
        reader = create_output_reader(self.client.format)
        tail = OutputTail()

        def show_text(text: str) -> None:
            if text:
                shown_bytes = clients.remove_control_chars(text).encode("utf-8", "replace")
                tail.add_chunk(shown_bytes)
                output(shown_bytes)

        def receive_output(chunk: bytes) -> None:
            transcript.write_chunk(chunk)
            show_text(reader.read_chunk(chunk))

        options: Any = {"directory": self._directory, "env": self._env, "watchdog": self._watchdog}
        options |= {"output": receive_output, "tick": tick, "idles": lambda: reader.is_retrying}
        outcome = execution.run_command(line, patience=patience, **options)
        report = reader.finish_report()
        show_text(reader.rest)
        price = self.client.price
        if price is not None and report.tokens and not report.cost_usd:  # a client may report 0
            report = replace(report, cost_usd=price.cost_of(report.tokens))
        error = secrets.mask_text(report.error) if report.error else None
        denied = tuple(secrets.mask_text(action) for action in report.denied)
        report = replace(report, text=secrets.mask_text(report.text), error=error, denied=denied)
        return AgentAnswer(
            *(
                report,
                outcome.code,
                outcome.ended_by,
                secrets.mask_text(tail.text()),
                outcome.seconds,
            ),
            *(transcript.path, False, self.client.name, patience),
        )

    def _has_lost_session(self, answer: AgentAnswer) -> bool:
        report = answer.report
        if answer.ended_by != execution.EXIT or not answer.code or report.worked:
            return False
        if not report.structured and len(report.text) > _BRIEF:
            return False
        return self.client.is_session_error(f"{report.error or ''}\n{answer.plain_tail[-_BRIEF:]}")

    def _write_prompt_file(self, prompt: str) -> str:
        if "\0" in prompt:
            raise UsageError("the prompt contains a NUL byte", hint="remove it from the prompt")
        data = prompt.encode("utf-8", "replace")
        if self.client.prompt == clients.ARGUMENT:
            if len(data) > MAX_ARGUMENT:
                limit = f"an argument has at most {MAX_ARGUMENT}"
                problem = f"the prompt has {len(data)} bytes; {limit}"
                hint = f'set prompt = "{clients.STDIN}" for the agent {self.client.name}'
                raise UsageError(problem, hint=hint)
            if data.startswith(b"-"):
                data = b"\n" + data  # else it would be parsed as an option
        path = os.path.join(self._files, PROMPT)
        try:
            os.makedirs(self._files, exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            raise _make_write_error("the prompt of the agent", path, error) from None
        return path


# Kinds of failures, recognized by the clients' output, which is not a stable interface:

# a person must help; works again later; may work at once; unknown cause.
FATAL, LIMITED, TRANSIENT, OTHER = "fatal", "limited", "transient", "other"
_CANNOT_EXECUTE = (126, 127)  # exit codes of the shell for a missing program
_FATAL = re.compile(
    r"not logged in|please run /login|log ?in to continue|unauthori[sz]ed|set an auth method"
    r"|\b(invalid|missing|incorrect|no)\b[^\n]{0,20}\bapi[ _-]?key"
    r"|api[ _-]?key\b[^\n]{0,40}\b(missing|not set|not found|invalid|required|not valid)"
    r"|authentication[ _]?(error|failed)|credentials? (are|is) (missing|invalid)"
    r"|\b(status|error|code|http)\b[^\n]{0,12}\b401\b"
    r"|\b(unknown|unexpected|unrecogni[sz]ed|invalid)\b[^\n]{0,12}\b(option|argument|flag)",
    re.IGNORECASE,
)
_LIMITED = re.compile(
    r"\b(429|529)\b|rate[ _-]?limit|too many requests|overloaded|resource[ _]exhausted"
    r"|quota[^\n]{0,40}\b(exceeded|exhausted|reached)|usage limit|limit (was |is )?reached",
    re.IGNORECASE,
)
_TRANSIENT = re.compile(
    r"\b(500|502|503|504)\b[^\n]{0,40}(error|gateway|unavailable|timeout)|internal server error"
    r"|bad gateway|service unavailable|connection (was )?(reset|refused|closed|aborted|error)"
    r"|ECONN\w+|ETIMEDOUT|EAI_AGAIN|socket hang up|network error|stream disconnected"
    r"|temporarily unavailable|could not resolve host",
    re.IGNORECASE,
)
_STATUS = re.compile(
    r"\b(?:status(?:[_ -]?code)?|error|code|http)\b[^\n]{0,12}?\b([45]\d\d)\b", re.IGNORECASE
)
# HTTP statuses of requests that a repetition cannot make succeed, whatever the text says.
_REFUSED = ("400", "401", "404", "413", "422")

# Likewise, unless the text mentions a rate limit: some servers use these statuses for limits.
_CANNOT_PAY = ("402", "403")

_AFTER = re.compile(
    r"(?:retry[ -]after|try again in|wait|resets? in|in about)\W{0,3}(\d{1,6}(?:\.\d+)?) ?"
    r"(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)?\b",
    re.IGNORECASE,
)
_AT = re.compile(r"\|(\d{10})\b|resets? at[^\n]{0,12}?(\d{10})\b")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}

# Seconds to wait for a limited client that names no time; doubled up to the second value.
FIRST_WAIT, LONGEST_WAIT = 60.0, 3600.0

# Maximum number of successive waits (four hours in all) for a client that names no time: its
# output may mention limits for another reason.
MOST_LIMITED = 8
_DOUBLINGS = 12  # enough for both waits to reach their maximum

# Maximum wait that a client can ask for, in seconds: its output is not trusted.
LONGEST_TOLD = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class CallFailure:
    kind: str  # FATAL, LIMITED, TRANSIENT or OTHER
    wait: float | None = None  # the wait that the client names, in seconds


def classify_failure(answer: AgentAnswer, now: float) -> CallFailure | None:
    if not answer.problem:
        return None
    has_worked = answer.report.worked
    error_line = answer.report.error or execution.error_line(answer.plain_tail)
    # Most output is about the agent's work, which may mention limits: use the error or the end.
    output = error_line if has_worked else f"{answer.report.error or ''}\n{answer.plain_tail}"
    if answer.code in _CANNOT_EXECUTE and not has_worked:
        return CallFailure(FATAL)
    # The last HTTP status in the client's error. Other lines may be about the agent's work, such
    # as status 404 of a server that the agent tests.
    statuses = [status for status in _STATUS.findall(output) if status in ("401", "429", "529")]
    status = next(reversed(_STATUS.findall(error_line) or statuses), None)
    if status not in _REFUSED and _LIMITED.search(output):
        return CallFailure(LIMITED, _parse_wait_seconds(output, now))
    if has_worked:
        return CallFailure(OTHER)
    if status in (*_REFUSED, *_CANNOT_PAY) or _FATAL.search(output):
        return CallFailure(FATAL)
    return CallFailure(TRANSIENT if _TRANSIENT.search(output) else OTHER)


def _parse_wait_seconds(output: str, now: float) -> float | None:
    # The wait is a duration or an instant.
    wait_match = _AT.search(output)
    if wait_match is not None:
        seconds = float(wait_match[1] or wait_match[2]) - now
        return min(seconds, LONGEST_TOLD) if seconds > 0 else None
    wait_match = _AFTER.search(output)
    if wait_match is None:
        return None
    unit = (wait_match[2] or "s").lower()
    factor = 0.001 if unit.startswith(("ms", "milli")) else _UNITS[unit[0]]
    return min(float(wait_match[1]) * factor, LONGEST_TOLD)


def compute_rate_limit_wait(requested: float | None, limits_in_a_row: int) -> float:
    doubling_factor = 2.0 ** min(max(limits_in_a_row - 1, 0), _DOUBLINGS)
    if requested is None:
        return min(FIRST_WAIT * doubling_factor, LONGEST_WAIT)
    return max(requested, min(doubling_factor, FIRST_WAIT))
