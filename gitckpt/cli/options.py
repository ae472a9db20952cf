"""Command line parts that Typer and the quick parser share."""

from __future__ import annotations

import builtins
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


# Options whose parameters have other names.
_NAMES = {"C": "directory", "json": "as_json", "from": "from_"}


class Parameter:
    """An argument or option of a command, from a line of its help."""

    def __init__(self, line: str, argument: str) -> None:
        names, _, self.help = line.partition("  ")
        words = names.replace(",", "").split() if names.startswith("-") else []
        self.spellings = [word for word in words if word.startswith("-")]  # none: an argument
        metavars = [word for word in words if not word.startswith("-")] if words else [names]
        self.metavar = "".join(metavars) or None
        self.is_flag = self.metavar is None
        self.is_number = bool(words) and self.metavar == "N"
        self.is_list = "may be repeated" in self.help or (
            not words and ("…" in names or " " in names)
        )
        self.takes_paths = "[--" in names  # words after two dashes are the parameter `paths`
        self.is_required = False
        option = words and self.spellings[-1].lstrip("-").replace("-", "_")
        self.name = _NAMES.get(option, option) if option else argument
        if option and hasattr(builtins, option):
            self.name += "_"


# Function of a command → its parameters, in order.
PARAMETERS: dict[Callable[..., int | None], list[Parameter]] = {}


def usage(text: str) -> Callable[[Command], Command]:
    """Declare the parameters of a command: a line each, as its help shows them.

    Arguments have the names of the first parameters of the function, options those of their long
    spellings. Typer's own declarations take seven lines an option, and import Typer.
    """
    lines = text.strip("\n").replace("\n  ", " ").split("\n")

    def declare(function: Command) -> Command:
        code, defaults = function.__code__, function.__defaults__ or ()
        required = code.co_varnames[: code.co_argcount - len(defaults)]
        arguments = iter(code.co_varnames)
        PARAMETERS[function] = parameters = []
        for line in lines:
            parameter = Parameter(line, "" if line.startswith("-") else next(arguments))
            parameter.is_required = parameter.name in required
            parameters.append(parameter)
        return function

    return declare


def valued(function: Callable[..., int | None]) -> list[str]:
    """Return the spellings of the options that take a value."""
    parameters = PARAMETERS[function]
    return [name for option in parameters if not option.is_flag for name in option.spellings]


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
