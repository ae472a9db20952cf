"""Asks an agent something: its client runs as a command, is watched like one, and its answer is read from what it prints."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from gitckpt.durable.agent import client as clients
from gitckpt.durable.agent import report as reports
from gitckpt.durable.agent.client import Client
from gitckpt.durable.agent.dialect import session_id, uncolored, words
from gitckpt.durable.agent.report import AgentReport
from gitckpt.durable.agent.transcript import Transcript, set_aside
from gitckpt.durable.command import execution
from gitckpt.durable.command.execution import Patience, Tail
from gitckpt.durable.command.watchdog import Watchdog
from gitckpt.model import times
from gitckpt.model.errors import CkptError, UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.secrets import detector

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
        reader = reports.reader(self.client.format)
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
            tail=detector.masked(tail.text()),
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
    text, error = detector.masked(report.text), detector.masked(report.error) if report.error else None
    return replace(report, text=text, error=error, denied=tuple(detector.masked(each) for each in report.denied))
