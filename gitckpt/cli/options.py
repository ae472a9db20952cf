"""Command line parts that Typer and the quick parser share."""

from __future__ import annotations

import os

from gitckpt import __version__
from gitckpt.cli import terminal
from gitckpt.model.errors import RepositoryError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

VERSION = "--version"


class Syntax:
    """The options and arguments of a command; its function has the defaults."""

    def __init__(
        self,
        *,
        arguments: Sequence[str] = (),
        required: int = 0,
        words: str | None = None,
        flags: Mapping[str, str] | None = None,
        values: Mapping[str, str] | None = None,
        lists: Mapping[str, str] | None = None,
        readers: Mapping[str, Callable[[str], object]] | None = None,
    ) -> None:
        self.arguments = arguments
        self.required = required  # how many arguments, or words, must be given
        self.words = words  # the parameter that takes all positional words
        # Option → the parameter that becomes true, takes the next word, or collects the next words.
        self.flags = flags or {}
        self.values = values or {}
        self.lists = lists or {}
        self.readers = readers or {}  # parameter → the function that converts its word


def command_of(words: Sequence[str], valued: Container[str]) -> int:
    """Return the index of the command, or the length; `valued` options take a value."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in valued else 1
    return min(index, len(words))


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
