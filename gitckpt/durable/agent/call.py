"""Asks an agent something: its client runs as a command, is watched like one, and its answer is read from what it prints."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Protocol

from gitckpt.durable.agent import clients
from gitckpt.durable.agent.clients import DIALECTS, ERROR, KEPT, Client, Dialect, PlainText, one_line, session_id, uncolored, words
from gitckpt.durable.command import execution
from gitckpt.durable.command.execution import Patience, Tail
from gitckpt.durable.command.watchdog import Watchdog
from gitckpt.model import times
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import secrets

# Reads what an agent's client prints, as it comes: what of it a person is shown, and in the end what it reports.


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


def report_reader(name: str) -> MessageReader:
    """Returns what reads the output of a client.

    Args:
        name: of its format, one of `client.FORMATS`.
    """
    if name == clients.NAME:
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
        tokens, cost = clients.usage(report.text)
        failure = clients.failure(report.text)
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


# Keeps the raw output of each call of an agent in files of bounded number and size, on disk from the first byte on.


FIRST = 1 << 20
LAST = 15 << 20
"""Of a longer output, so many bytes of its beginning and of its end are kept, and a line between them says so."""

MOST, MOST_BYTES = 100, 64 << 20
"""So many transcripts of earlier calls are kept, with so many bytes in all: the newest ones."""

_LINE = 100
"""More bytes than that line has."""


def set_aside(path: str) -> None:
    """Gives the transcript of the last call a name with a number, and removes the oldest of those that have one where they are too many.

    Args:
        path: of the transcript of the last call, where there is one; `agent.log` becomes `agent-1.log`, and the next one `agent-2.log`.

    Raises:
        CkptError: it cannot be renamed, or another one not removed.
    """
    directory, (stem, ending) = os.path.dirname(path), os.path.splitext(os.path.basename(path))
    if not os.path.isfile(path):
        return
    named = re.compile(rf"{re.escape(stem)}-(\d{{1,9}}){re.escape(ending)}")
    try:
        earlier = sorted((int(found[1]), found[0]) for found in map(named.fullmatch, os.listdir(directory)) if found)
        name = f"{stem}-{earlier[-1][0] + 1 if earlier else 1}{ending}"
        os.rename(path, os.path.join(directory, name))
        left = MOST_BYTES
        for count, each in enumerate((name, *(each for _, each in reversed(earlier)))):
            there = os.path.join(directory, each)
            left -= os.path.getsize(there)
            if count >= MOST or (count and left < 0):
                os.unlink(there)
    except OSError as error:
        problem = f"cannot keep the output of the agent's last call in {directory}: {error.strerror}"
        raise CkptError(problem, hint="make room there: df") from None


class Transcript:
    """The file with the output. While it is written it may have up to twice the bytes that stay.

    Args:
        path: of the file; one that is there is overwritten.

    Raises:
        CkptError: it cannot be written; all methods raise that.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._size = 0
        self._left_out = 0
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            self._file = open(path, "w+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._failure(error) from None

    def add(self, chunk: bytes) -> None:
        """Takes in what follows."""
        try:
            view = memoryview(chunk)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise self._failure(error) from None
        self._size += len(chunk)
        if self._size > FIRST + 2 * LAST:
            self._shorten()

    def close(self) -> None:
        """Leaves the file as it stays."""
        try:
            if self._size > FIRST + LAST:
                self._shorten()
            self._mask()
        finally:
            self._file.close()

    def _mask(self) -> None:
        """Masks what looks like a secret: whoever reads the transcript needs to know that there was one, and not which."""
        if not self._size:
            return
        try:
            self._file.seek(0)
            data = self._file.read(FIRST + LAST + _LINE)
            masked = secrets.masked_bytes(data)
            if masked != data:
                beside = f"{self.path}.new"
                with open(beside, "wb") as file:
                    file.write(masked)
                os.replace(beside, self.path)
        except OSError as error:
            raise self._failure(error) from None

    def _shorten(self) -> None:
        """Takes out what lies between the first and the last bytes. A kill meanwhile leaves the file as it was."""
        self._left_out += self._size - FIRST - LAST
        self._size = FIRST + LAST
        beside = f"{self.path}.new"
        try:
            with open(beside, "wb") as file:
                self._file.seek(0)
                file.write(self._file.read(FIRST))
                file.write(f"\n[{self._left_out} bytes are left out here]\n".encode())
                self._file.seek(-LAST, os.SEEK_END)
                file.write(self._file.read(LAST))
            os.replace(beside, self.path)
            self._file.close()
            self._file = open(self.path, "r+b", buffering=0)  # noqa: SIM115
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> CkptError:
        return CkptError(f"cannot keep the output of the agent in {self.path}: {error.strerror}", hint="make room there: df")


# Asks an agent something: its client runs as a command, is watched like one, and its answer is read from what it prints.


PROMPT, LOG = "prompt", "agent.log"
MAX_ARGUMENT = 100_000
"""A longer prompt, in bytes, is no argument: systems allow 128 KiB for one."""

_BRIEF = 2000


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call of an agent ended, and what it said: with what looks like a secret masked, as states and messages are made of it.

    Attributes:
        report: what its client reports.
        code: exit code of the client; the negated signal number where a signal ended it.
        ended_by: who decided: EXIT (itself), TIMEOUT, IDLE_TIMEOUT or DEADLINE of `gitckpt.durable.command.execution`.
        tail: the end of what was shown, at most `execution.TAIL_BYTES`.
        seconds: how long it took.
        log: path of the file with the raw output.
        resumed: whether it went on with the conversation that was asked for.
        client: the name of the client.
        patience: how long it was waited for.
    """

    report: AgentReport
    code: int
    ended_by: str
    tail: str
    seconds: float
    log: str
    resumed: bool
    client: str
    patience: Patience

    @property
    def said(self) -> str:
        """What was shown last, without colors."""
        return uncolored(self.tail)

    @property
    def ok(self) -> bool:
        """Whether the client ended well, by itself, and with its final message, where it sends messages."""
        return not self.problem

    @property
    def problem(self) -> str:
        """What went wrong, in a sentence for people; empty where nothing did."""
        if self.ended_by == execution.DEADLINE:
            return f"{self.client} was ended: the run took longer than it may"
        if self.ended_by == execution.TIMEOUT:
            return f"{self.client} was ended: it took more than {_length(self.patience.timeout)}"
        if self.ended_by == execution.IDLE_TIMEOUT:
            return f"{self.client} was ended: it printed nothing for more than {_length(self.patience.idle_timeout)}"
        if self.report.is_error:
            return f"{self.client} failed: {self.report.error or 'it does not say why'}"
        if self.code:
            cause = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
            return f"{self.client} failed: {cause}{execution.last_line(self.said)}"
        if self.report.structured and not self.report.complete:
            return f"{self.client} failed: its output ends in the middle"
        return ""


class Agent:
    """One agent, which can be asked again and again.

    Args:
        client: how it is called.
        directory: where it runs.
        env: its whole environment.
        watchdog: that of this process; it kills the agent if this process is killed.
        files: a directory, which is made where it is missing, for its prompt (`PROMPT`) and its output.
    """

    def __init__(self, client: Client, directory: str, env: Mapping[str, str], watchdog: Watchdog, files: str) -> None:
        self.client = client
        self._directory = directory
        self._env = env
        self._watchdog = watchdog
        self._files = os.path.abspath(files)

    def ask(
        self,
        prompt: str,
        *,
        session: str | None = None,
        patience: Patience,
        output: Callable[[bytes], None],
        tick: Callable[[float], None] | None = None,
        log: str = LOG,
        budget: float | None = None,
    ) -> Answer:
        """Asks it something, and waits for the answer. Whatever fails on its side is in the answer.

        Args:
            prompt: what to ask.
            session: the conversation to go on with, if the client can. Where the client does not know it any more, a new one is begun.
            patience: when to end it, with all that it started. `left` counts for a second call too, the others for each.
            output: gets what a person is to be shown, as it comes: the agent's words, and a line for each tool that it uses.
            tick: gets the seconds since the start, about once a second; what it raises ends the agent, and is raised on.
            log: path of the file for the raw output, from `files` on; that of an earlier call gets a number (`transcript.set_aside`).
            budget: what it may cost, in US dollars, for a client that can be told; None where that is not limited.

        Raises:
            UsageError: the prompt has a NUL in it, or is too long for an argument.
            WorktreeError: the directory is not there or cannot be entered.
            CkptError: a file cannot be written, or the client cannot be started.
        """
        path = self._write(prompt)
        known = session_id(session) if self.client.resume else None
        place = os.path.join(self._files, log)
        set_aside(place)
        transcript = Transcript(place)
        try:
            line = self.client.line(path, known, budget)
            answer = self._call(line, patience, output=output, tick=tick, transcript=transcript, resumed=known is not None)
            if known is not None and self._does_not_know(answer):
                output(f"{self.client.name} does not know the conversation {known} any more: a new one begins\n".encode())
                left = None if patience.left is None else max(patience.left - answer.seconds, 0.0)
                line = self.client.line(path, None, budget)
                second = self._call(line, replace(patience, left=left), output=output, tick=tick, transcript=transcript, resumed=False)
                answer = replace(second, seconds=answer.seconds + second.seconds, patience=patience)
        finally:
            transcript.close()
        return answer

    def _call(
        self,
        line: str,
        patience: Patience,
        *,
        output: Callable[[bytes], None],
        tick: Callable[[float], None] | None,
        transcript: Transcript,
        resumed: bool,
    ) -> Answer:
        reader = report_reader(self.client.format)
        tail = Tail()

        def show(text: str) -> None:
            if text:
                shown = words(text).encode("utf-8", "replace")
                tail.add(shown)
                output(shown)

        def receive(chunk: bytes) -> None:
            transcript.add(chunk)
            show(reader.feed(chunk))

        outcome = execution.run_command(
            line,
            directory=self._directory,
            env=self._env,
            watchdog=self._watchdog,
            patience=patience,
            output=receive,
            tick=tick,
            idles=lambda: reader.retries,
        )
        report = reader.close()
        show(reader.rest)
        return Answer(
            report=_masked(self._priced(report)),
            code=outcome.code,
            ended_by=outcome.ended_by,
            tail=secrets.masked(tail.text()),
            seconds=outcome.seconds,
            log=transcript.path,
            resumed=resumed,
            client=self.client.name,
            patience=patience,
        )

    def _priced(self, report: AgentReport) -> AgentReport:
        """Returns a report with what its tokens cost, where the client does not say it, and a price is known."""
        if self.client.price is None or report.cost_usd or not report.tokens:  # a client that knows no price itself may say 0
            return report
        return replace(report, cost_usd=self.client.price.of(report.tokens))

    def _does_not_know(self, answer: Answer) -> bool:
        """Tells whether a client ended, before the agent did anything, because it does not know the conversation."""
        report = answer.report
        if answer.ended_by != execution.EXIT or not answer.code or report.worked:
            return False
        if not report.structured and len(report.text) > _BRIEF:
            return False
        return self.client.does_not_know(f"{report.error or ''}\n{answer.said[-_BRIEF:]}")

    def _write(self, prompt: str) -> str:
        """Returns the path of the file with the prompt."""
        if "\0" in prompt:
            raise UsageError("the prompt has a NUL in it, which no agent can be told", hint="take it out of the prompt")
        data = prompt.encode("utf-8", "replace")
        if self.client.prompt == clients.ARGUMENT:
            if len(data) > MAX_ARGUMENT:
                problem = f"the prompt has {len(data)} bytes, and an argument takes {MAX_ARGUMENT}"
                raise UsageError(problem, hint=f'give it to {self.client.name} by prompt = "{clients.STDIN}"')
            if data.startswith(b"-"):
                data = b"\n" + data  # which would be taken for an option
        path = os.path.join(self._files, PROMPT)
        try:
            os.makedirs(self._files, exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            raise CkptError(f"cannot write the prompt to {path}: {error.strerror}", hint="make room there: df") from None
        return path


def _length(seconds: float | None) -> str:
    return times.length_text(round((seconds or 0) * times.MICRO)) if (seconds or 0) >= 1 else f"{seconds or 0:g}s"


def _masked(report: AgentReport) -> AgentReport:
    text, error = secrets.masked(report.text), secrets.masked(report.error) if report.error else None
    return replace(report, text=text, error=error, denied=tuple(secrets.masked(each) for each in report.denied))


# What kind of failure a client's is: whether it makes sense to ask again, and when. Told by what clients print, which nobody promises.


FATAL, LIMITED, TRANSIENT, OTHER = "fatal", "limited", "transient", "other"
"""It fails until somebody does something; it works again later; it may work at once; nothing is known but that it failed."""

_NOT_THERE = (126, 127)
_FATAL = re.compile(
    r"not logged in|please run /login|log ?in to continue|\b(invalid|missing|incorrect|no)\b[^\n]{0,20}\bapi[ _-]?key"
    r"|api[ _-]?key\b[^\n]{0,40}\b(missing|not set|not found|invalid|required|not valid)|authentication[ _]?(error|failed)|unauthori[sz]ed"
    r"|\b(status|error|code|http)\b[^\n]{0,12}\b401\b|\b(unknown|unexpected|unrecogni[sz]ed|invalid)\b[^\n]{0,12}\b(option|argument|flag)"
    r"|set an auth method|credentials? (are|is) (missing|invalid)",
    re.IGNORECASE,
)
_LIMITED = re.compile(
    r"\b(429|529)\b|rate[ _-]?limit|too many requests|overloaded|quota[^\n]{0,40}\b(exceeded|exhausted|reached)|resource[ _]exhausted"
    r"|usage limit|limit (was |is )?reached",
    re.IGNORECASE,
)
_TRANSIENT = re.compile(
    r"\b(500|502|503|504)\b[^\n]{0,40}(error|gateway|unavailable|timeout)|internal server error|bad gateway|service unavailable"
    r"|connection (was )?(reset|refused|closed|aborted|error)|ECONN\w+|ETIMEDOUT|EAI_AGAIN|socket hang up|network error|stream disconnected"
    r"|temporarily unavailable|could not resolve host",
    re.IGNORECASE,
)
_STATUS = re.compile(r"\b(?:status(?:[_ -]?code)?|error|code|http)\b[^\n]{0,12}?\b([45]\d\d)\b", re.IGNORECASE)
_REFUSED = ("400", "401", "404", "413", "422")
"""Statuses of HTTP that say that the same request never succeeds, whatever words stand beside them."""

_CANNOT_PAY = ("402", "403")
"""Those that say so, unless a limit is named: some servers send them for one."""

_AFTER = re.compile(
    r"(?:retry[ -]after|try again in|wait|resets? in|in about)\W{0,3}(\d{1,6}(?:\.\d+)?) ?"
    r"(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)?\b",
    re.IGNORECASE,
)
_AT = re.compile(r"\|(\d{10})\b|resets? at[^\n]{0,12}?(\d{10})\b")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}

FIRST_WAIT, LONGEST_WAIT = 60.0, 3600.0
"""In seconds: how long is waited where a client that is limited does not say for how long; each time twice as long, up to that."""

MOST_LIMITED = 8
"""So often in a row, four hours in all, an agent is waited for that is limited and does not say until when: it may only speak of limits."""

_DOUBLINGS = 12
"""After so many, both waits are as long as they get."""

LONGEST_TOLD = 24 * 3600.0
"""In seconds: what a client tells is an agent's output, and nobody waits for a year."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure.

    Attributes:
        kind: `FATAL`, `LIMITED`, `TRANSIENT` or `OTHER`.
        wait: how long the client says to wait, in seconds; None where it does not.
    """

    kind: str
    wait: float | None = None


def classify(answer: Answer, now: float) -> Failure | None:
    """Returns what kind of failure an answer is; None where it is none, or was ended from outside.

    Where the agent has done anything, another call is an attempt like any other, unless a limit has ended it.

    Args:
        answer: the answer.
        now: the current time, in seconds since the epoch.
    """
    if not answer.problem:
        return None
    said = f"{answer.report.error or ''}\n{answer.said}"
    if answer.report.worked:  # then most of it is about its work, of limits perhaps: what ended it, the client says, or stands at the end
        said = answer.report.error or execution.last_line(answer.said)
    if answer.code in _NOT_THERE and not answer.report.worked:
        return Failure(FATAL)
    status = _status(answer, said)
    if status not in _REFUSED and _LIMITED.search(said):
        return Failure(LIMITED, _wait(said, now))
    if answer.report.worked:
        return Failure(OTHER)
    if status in (*_REFUSED, *_CANNOT_PAY) or _FATAL.search(said):
        return Failure(FATAL)
    return Failure(TRANSIENT if _TRANSIENT.search(said) else OTHER)


def _status(answer: Answer, said: str) -> str | None:
    """Return the status of HTTP that a client names last as its error; None where it names none."""
    found = _STATUS.findall(answer.report.error or execution.last_line(answer.said))
    # What stands before the last line may be about the work of an agent, as a 404 of the server that it tests.
    found = found or [status for status in _STATUS.findall(said) if status in ("401", "429", "529")]
    return found[-1] if found else None


def _wait(said: str, now: float) -> float | None:
    """Returns how long to wait, as a client tells it: for a while, or until an instant."""
    found = _AT.search(said)
    if found is not None:
        left = float(found[1] or found[2]) - now
        return min(left, LONGEST_TOLD) if left > 0 else None
    found = _AFTER.search(said)
    if found is None:
        return None
    unit = (found[2] or "s").lower()
    factor = 0.001 if unit.startswith(("ms", "milli")) else _UNITS[unit[0]]
    return min(float(found[1]) * factor, LONGEST_TOLD)


def pause(told: float | None, times: int) -> float:
    """Returns how long to wait, in seconds, after so many limits in a row.

    Args:
        told: what the client says, in seconds, which counts; but where it says milliseconds, or none, again and again, it would be asked
            without end: so it is a second at least, then twice as long each time, up to `FIRST_WAIT`. None where it says nothing.
        times: how many.
    """
    doubled = 2.0 ** min(max(times - 1, 0), _DOUBLINGS)
    return min(FIRST_WAIT * doubled, LONGEST_WAIT) if told is None else max(told, min(doubled, FIRST_WAIT))
