"""The programs that agents come as: their commands, how they take a prompt, what they print, and how they go on with a conversation."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping

from gitckpt.durable.agent import aider
from gitckpt.durable.agent.claude import Claude
from gitckpt.durable.agent.codex import Codex
from gitckpt.durable.agent.dialect import SESSION, Dialect, does_not_know
from gitckpt.durable.agent.gemini import Gemini
from gitckpt.durable.agent.opencode import OpenCode
from gitckpt.durable.agent.text import CONVERSATIONS, TEXT
from gitckpt.model.errors import UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.config.file import read_file
from gitckpt.store.config.settings import AGENTS, FILE
from gitckpt.store.config.table import Table

STDIN, ARGUMENT = "stdin", "argument"
PROMPTS = (STDIN, ARGUMENT)
"""Where a client takes its prompt from: standard input, or its last argument."""

DIALECTS: Mapping[str, type[Dialect]] = {each.name: each for each in (Claude, Codex, Gemini, OpenCode)}
"""The clients that print messages, by name: a new one is a file beside this one, and stands here."""

FORMATS = (*DIALECTS, aider.NAME, TEXT)

PRICE = "price"
_PRICES = ("input", "output", "cached_input")
KEYS = ("command", "prompt", "format", "resume", PRICE)

_OPERATORS = frozenset("|&;<>()")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PROGRAM = re.compile(r"[A-Za-z0-9_./+-]+")
_OF_THE_SHELL = frozenset(
    (
        *(".", ":", "[", "cd", "command", "eval", "exec", "export", "set", "source", "test", "time", "trap", "ulimit", "umask", "unset"),
        *("case", "exit", "for", "if", "until", "while"),
    )
)
"""What a shell may have of its own though no program goes by that name, and the words that its commands begin with."""


_MOST_USD, _LEAST_USD = 1_000_000.0, 0.0001
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """What tokens cost, in US dollars for a million of them.

    Attributes:
        input: those of what an agent reads.
        output: those of what it says.
        cached_input: those of what it reads that its server still knew; None where they cost as much as the others.
    """

    input: float
    output: float
    cached_input: float | None = None

    def of(self, tokens: Mapping[str, int]) -> float:
        """Returns what tokens cost, in US dollars.

        Args:
            tokens: how many, as `AgentReport.tokens` has them.
        """
        cached = min(tokens.get("cached", 0), tokens.get("input", 0))
        fresh = tokens.get("input", 0) - cached
        known = self.input if self.cached_input is None else self.cached_input
        return (fresh * self.input + cached * known + tokens.get("output", 0) * self.output) / _MILLION


@dataclass(frozen=True, slots=True)
class Client:
    """One way to call an agent.

    Attributes:
        name: what people call it.
        command: what the shell runs.
        prompt: one of `PROMPTS`.
        format: one of `FORMATS`: whose messages its output consists of; `text` for none.
        resume: the words with which it goes on with an earlier conversation, whose id takes the place of `{session}`. They are added to the
            command, before a `-` at its end. None where it cannot.
        price: what its tokens cost; None where that is not known.
    """

    name: str
    command: str
    prompt: str = STDIN
    format: str = TEXT
    resume: str | None = None
    price: Price | None = None

    @property
    def tells_cost(self) -> bool:
        """Whether what a call has cost will be known."""
        return self.price is not None or (self.format in DIALECTS and DIALECTS[self.format].tells_cost)

    def line(self, prompt: str, session: str | None = None, budget: float | None = None) -> str:
        """Returns what the shell runs to ask it something.

        Args:
            prompt: path of the file with the prompt.
            session: the conversation to go on with; None for a new one, and of no effect where it has no `resume`.
            budget: what it may cost, in US dollars; None for no limit, and of no effect where its program has no option for that, or its
                command has it already.
        """
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
        """Returns the program that its command begins with, if there is none such; None where it is there, or the shell alone can tell.

        Args:
            env: the environment that it gets.
            directory: where it runs.
        """
        import shutil  # seldom: before the first question alone

        word = self.command.split(maxsplit=1)[0]
        if not _PROGRAM.fullmatch(word) or word in _OF_THE_SHELL:
            return None
        found = os.path.exists(os.path.join(directory, word)) if "/" in word else shutil.which(word, path=env.get("PATH", os.defpath))
        return None if found else word

    def does_not_know(self, said: str) -> bool:
        """Tells whether what it says means that there is no such conversation."""
        dialect = DIALECTS.get(self.format)
        return does_not_know(dialect.conversations if dialect is not None else CONVERSATIONS, said)


BUILT_IN = {name: Client(name, dialect.command, dialect.prompt, name, dialect.resume) for name, dialect in DIALECTS.items()}
BUILT_IN[aider.NAME] = Client(aider.NAME, aider.COMMAND, ARGUMENT, aider.NAME)


def client_of(text: str, configured: Mapping[str, Client]) -> Client:
    """Returns the client that a person means.

    Args:
        text: the name of a client, or a shell command. Where a command calls a known program, and has it print its messages as JSON, its
            format and the way to go on with a conversation are those of that program. Any other prints plain text.
        configured: the clients of `gitckpt.toml`, which go before the built-in ones.

    Raises:
        UsageError: the text is empty, or no shell command because of a NUL.
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
    """Returns in one line how a file redefines an agent that people know by that name, or a program; None where it does not.

    Args:
        name: what was asked for.
        configured: the clients of `gitckpt.toml`.
    """
    client = configured.get(name.strip())
    if client is None or replace(client, price=None) == BUILT_IN.get(client.name):
        return None
    if client.name not in BUILT_IN:
        import shutil  # seldom: an agent of the file has a name that nothing else has

        if shutil.which(client.name.split()[0]) is None:
            return None
    return f"{FILE} redefines the agent {client.name}: {client.command}"


def read_clients(path: str) -> dict[str, Client]:
    """Returns the clients that a file configures, `[agents.NAME]`, by name.

    Args:
        path: of the file; one that does not exist configures none.

    Raises:
        ConfigError: it is not TOML, or anything in any of its tables of agents is a mistake.
        UsageError: the file cannot be read.
    """
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
    """Returns what the tokens of an agent cost, as its table says."""
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
    """Returns the client of a shell command, as far as the command shows which one it is."""
    words = _words(command)
    name = os.path.basename(words[0]) if words else ""
    if name == aider.NAME:
        return Client(name, command, ARGUMENT if aider.takes_argument(words) else STDIN, aider.NAME)
    known = BUILT_IN.get(name) if name in DIALECTS else None
    if known is None or not DIALECTS[name].asks_for_messages(words[1:]):
        return Client(name or "the agent", command)
    return replace(known, command=command)


def _words(command: str) -> list[str]:
    """Returns the words of a command, from the program on; none where it is more than one call of one program."""
    if "\n" in command:
        return []
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        return []  # a quote is open: the shell will say so
    while words and _ASSIGNMENT.match(words[0]):
        del words[0]
    return [] if any(word and _OPERATORS.issuperset(word) for word in words) else words
