"""What both doors of the command line share: what a command may be followed by, what the options before it do, what a number is."""

from __future__ import annotations

import os

from gitckpt import __version__
from gitckpt.cli.screen import terminal
from gitckpt.model.errors import RepositoryError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

VERSION = "--version"
"""Prints the version, in place of a command."""


class Syntax:
    """What may follow a command; what is left out has the default of the command's function.

    Attributes:
        arguments: the parameters that are given by position.
        required: how many of these must be given.
        words: instead, the parameter that takes all that is given by position, at least `required`.
        flags: option → the parameter that becomes true.
        values: option → the parameter that becomes the next word.
        lists: option that may be given again → the parameter that has each next word.
        readers: parameter → what makes a value of that word; by default the word is the value.
    """

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
        self.required = required
        self.words = words
        self.flags = flags or {}
        self.values = values or {}
        self.lists = lists or {}
        self.readers = readers or {}


def command_of(words: Sequence[str], valued: Container[str]) -> int:
    """Returns where in a command line the command stands; the length of the line where there is none.

    Args:
        words: what follows `git ckpt`.
        valued: the options before the command that take a value.
    """
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued else 1
    return min(at, len(words))


def apply(quiet: bool = False, directory: str | None = None) -> None:
    """Does what the options before the command say.

    Args:
        quiet: whether remarks are left out.
        directory: where to work, if not here.

    Raises:
        RepositoryError: the directory cannot be entered.
    """
    terminal.Verbosity.quiet = quiet
    if directory is not None:
        try:
            os.chdir(directory)
        except OSError as error:
            raise RepositoryError(f"cannot go to {directory}: {error.strerror}", hint="give a directory that exists") from None


def print_version() -> None:
    """Prints which version this is."""
    terminal.out(f"gitckpt {__version__}")


def count(text: str) -> int:
    """Returns a number that a person typed.

    Raises:
        UsageError: it is not a whole number, or below 0.
    """
    if text.removeprefix("-").isdigit() and text.startswith("-"):
        raise UsageError(f"a number must be 0 or more, not {text}", hint="write a whole number, such as 20")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UsageError(f"{text!r} is not a whole number", hint="write a whole number, such as 20")
    return int(text)
