"""Command line parts that Typer and the quick parser share."""

from __future__ import annotations

import os

from gitckpt import __version__
from gitckpt.cli import terminal
from gitckpt.model.errors import RepositoryError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from typing import TypeVar

    Command = TypeVar("Command", bound=Callable[..., int | None])

VERSION = "--version"


class Parameter:
    """An argument or option of a command; its function has the default."""

    def __init__(self, name: str, kind: str, names: str, description: str) -> None:
        words = names.replace(",", "").split() if names.startswith("-") else []
        self.name = name
        self.is_flag = "bool" in kind
        self.is_list = "list" in kind
        self.is_number = "int" in kind
        self.spellings = [word for word in words if word.startswith("-")]  # none: an argument
        metavars = [word for word in words if not word.startswith("-")] if words else [names]
        self.metavar = "".join(metavars) or None
        self.help = description


# Function of a command → its parameters, in order.
PARAMETERS: dict[Callable[..., int | None], list[Parameter]] = {}


def usage(text: str) -> Callable[[Command], Command]:
    """Declare the parameters of a command: a line each, in order, as its help shows them.

    Typer's own declarations take seven lines an option, and import Typer.
    """
    lines = text.strip("\n").replace("\n  ", " ").split("\n")

    def declare(function: Command) -> Command:
        kinds = [
            (name, kind)
            for name, kind in function.__annotations__.items()
            if name not in ("context", "return")
        ]
        PARAMETERS[function] = [
            Parameter(name, kind, names, description)
            for (name, kind), (names, _, description) in zip(
                kinds, (line.partition("  ") for line in lines), strict=True
            )
        ]
        return function

    return declare


def command_of(words: Sequence[str], valued: Container[str]) -> int:
    """Return the index of the command, or the length; `valued` options take a value."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in valued else 1
    return min(index, len(words))


@usage("""
-q, --quiet  Print only results and errors.
-C DIR  Run as if started in DIR.
""")
def apply(quiet: bool = False, directory: str | None = None) -> None:
    terminal.Verbosity.quiet = quiet
    if directory is not None:
        try:
            os.chdir(directory)
        except OSError as error:
            raise RepositoryError(
                f"cannot go to {directory}: {error.strerror}", hint="give a directory that exists"
            ) from None


def print_version() -> None:
    terminal.out(f"gitckpt {__version__}")


def count(text: str) -> int:
    if text.removeprefix("-").isdigit() and text.startswith("-"):
        raise UsageError(
            f"a number must be 0 or more, not {text}", hint="write a whole number, such as 20"
        )
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UsageError(f"{text!r} is not a whole number", hint="write a whole number, such as 20")
    return int(text)
