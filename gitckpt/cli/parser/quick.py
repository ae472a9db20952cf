"""The quick door: understands plain calls of the commands that agents and scripts use all the time, without Typer.

Typer takes longer to import and to set up than most of these commands take to work. It remains the authority: whatever is not wholly
understood here is left to it, with its help and its errors, and a test compares what both make of the same words.
"""

from __future__ import annotations

from gitckpt.cli.parser import options
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


class Syntax:
    """What may follow a command; what is left out has the default of the command's function.

    Attributes:
        arguments: the parameters that are given by position.
        words: instead, the parameter that takes all that is given by position; there must be something.
        flags: option → the parameter that becomes true.
        values: option → the parameter that becomes the next word.
        readers: parameter → what makes a value of that word; by default the word is the value.
        left: parameters whose options are left to Typer, as they may be given again.
    """

    def __init__(
        self,
        *,
        arguments: Sequence[str] = (),
        words: str | None = None,
        flags: Mapping[str, str] | None = None,
        values: Mapping[str, str] | None = None,
        readers: Mapping[str, Callable[[str], object]] | None = None,
        left: Sequence[str] = (),
    ) -> None:
        self.arguments = arguments
        self.words = words
        self.flags = flags or {}
        self.values = values or {}
        self.readers = readers or {}
        self.left = left


BEFORE = Syntax(flags={"-q": "quiet", "--quiet": "quiet"}, values={"-C": "directory"})
"""What may stand before any command."""

AFTER = {
    "save": Syntax(
        flags={"--no-worktree": "no_worktree"},
        values={"--message": "message", "-m": "message", "--phase": "phase", "--state": "state"},
    ),
    "list": Syntax(
        flags={"--all": "all_", "--json": "as_json"},
        values={"--run": "run", "--commit": "commit", "--phase": "phase", "--status": "status", "--since": "since", "-n": "number"},
        readers={"number": options.count},
    ),
    "show": Syntax(arguments=["id_"], flags={"--json": "as_json", "--raw": "raw", "--state": "state"}),
    "resume": Syntax(
        arguments=["id_"],
        flags={
            "--no-run": "no_run",
            "--fork": "fork",
            "--rewind": "rewind",
            "--accept-changes": "accept_changes",
            "--trust": "trust",
            "--force": "force",
        },
        values={"--into": "into", "--from": "from_", "--autonomy": "autonomy", "--timeout": "timeout"},
        left=["inputs"],
    ),
    "runs": Syntax(flags={"--json": "as_json"}, values={"--status": "status", "-n": "number"}, readers={"number": options.count}),
    "status": Syntax(arguments=["run"], flags={"--json": "as_json", "--watch": "watch", "-w": "watch"}),
    "restore": Syntax(words="id_and_paths", flags={"--dry-run": "dry_run"}),
    "undo": Syntax(flags={"--dry-run": "dry_run"}),
    "verify": Syntax(flags={"--repair": "repair", "--json": "as_json"}),
}
"""Command → what may stand behind it."""


def call_of(words: Sequence[str]) -> Callable[[], int | None] | None:
    """Returns what a command line asks for, to be called for an exit code, None standing for 0; None where only Typer can tell."""
    if list(words) == ["--version"]:
        return options.print_version
    at = options.command_of(words)
    name = words[at] if at < len(words) else ""
    before = parse(BEFORE, words[:at])
    after = parse(AFTER[name], words[at + 1 :]) if name in AFTER else None
    if before is None or after is None:
        return None

    def call() -> int | None:
        options.apply(**before)
        return COMMANDS[name].load()(**after)

    return call


def parse(syntax: Syntax, words: Sequence[str]) -> dict[str, Any] | None:
    """Returns the parameters that words give a value; None where they are not wholly understood."""
    found: dict[str, Any] = {}
    places, rest = iter(syntax.arguments), iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if syntax.words and (word == "--" or not word.startswith("-")):
            found.setdefault(syntax.words, []).extend(rest if word == "--" else [word])
        elif not word.startswith("-"):
            name = next(places, None)
            if name is None:
                return None
            found[name] = word
        elif word in syntax.flags:
            found[syntax.flags[word]] = True
        elif word in syntax.values:
            value = next(rest, "--")
            if value.startswith("-") and value != "-":
                return None  # more likely an option whose neighbour lacks its value
            found[syntax.values[word]] = value
        elif equals and option.startswith("--") and option in syntax.values:
            found[syntax.values[option]] = value
        else:
            return None
    if syntax.words and not found.get(syntax.words):
        return None
    try:
        return {name: syntax.readers[name](value) if name in syntax.readers else value for name, value in found.items()}
    except UsageError:
        return None  # something before it may be wrong, too, and is to be told first
