"""Declare and check the arguments and options of commands, without Typer."""

from __future__ import annotations

import builtins
import os

from gitckpt import __version__
from gitckpt.cli import terminal
from gitckpt.model.errors import RepositoryError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    Command = TypeVar("Command", bound=Callable[..., int | None])

VERSION = "--version"
# Option -> parameter of the function, where their names differ.
_PARAMETER_NAMES = {"C": "directory", "json": "as_json", "from": "from_"}


class Parameter:
    """An argument or option of a command, parsed from one line of the command's help."""

    def __init__(self, line: str, argument: str, required: Container[str]) -> None:
        names, _, self.help = line.partition("  ")
        words = names.replace(",", "").split() if names.startswith("-") else []
        self.spellings = [text for text in words if text.startswith("-")]  # [] for an argument
        metavars = [text for text in words if not text.startswith("-")] if words else [names]
        self.metavar = "".join(metavars) or None
        self.is_flag = self.metavar is None
        self.is_number = bool(words) and self.metavar == "N"
        takes_many_words = not words and ("…" in names or " " in names)
        self.is_list = takes_many_words or "may be repeated" in self.help
        self.takes_paths = "[--" in names  # words after two dashes are the parameter `paths`
        option_name = words and self.spellings[-1].lstrip("-").replace("-", "_")
        self.name = _PARAMETER_NAMES.get(option_name, option_name) if option_name else argument
        if option_name and hasattr(builtins, option_name):
            self.name += "_"
        self.is_required = self.name in required


# Function of a command -> its parameters, in order.
PARAMETERS: dict[Callable[..., int | None], list[Parameter]] = {}


def declare_parameters(text: str) -> Callable[[Command], Command]:
    """Return a decorator that declares a command's parameters by its help text.

    Each line of `text` declares one parameter. Arguments are the first parameters of the function,
    in order. An option is the parameter that has the option's long name. Typer's declarations would
    take seven lines per option, and import Typer.
    """
    lines = text.strip("\n").replace("\n  ", " ").split("\n")

    def register_parameters(function: Command) -> Command:
        code_object, defaults = function.__code__, function.__defaults__ or ()
        count = code_object.co_argcount
        keyword_only = code_object.co_varnames[count:][: code_object.co_kwonlyargcount]
        required_names = {*code_object.co_varnames[: count - len(defaults)], *keyword_only}
        required_names -= (function.__kwdefaults__ or {}).keys()
        argument_names = iter(code_object.co_varnames)
        PARAMETERS[function] = [
            Parameter(line, "" if line.startswith("-") else next(argument_names), required_names)
            for line in lines
        ]
        return function

    return register_parameters


def options_with_value(function: Callable[..., int | None]) -> list[str]:
    parameters = PARAMETERS[function]
    return [name for option in parameters if not option.is_flag for name in option.spellings]


def command_index(words: Sequence[str], options_with_value: Container[str]) -> int:
    # `options_with_value` has the spellings of the options that take a value.
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in options_with_value else 1
    return min(index, len(words))


@declare_parameters("""
-q, --quiet  Print only results and errors.
-C DIR  Run as if started in DIR.
""")
def apply_globals(quiet: bool = False, directory: str | None = None) -> None:
    terminal.TerminalState.quiet = quiet
    if directory is not None:
        try:
            os.chdir(directory)
        except OSError as error:
            problem = f"cannot change to the directory {directory}: {error.strerror}"
            raise RepositoryError(problem, hint="name a directory that exists") from None


def call_command(function: Callable[..., int | None], values: Mapping[str, Any]) -> int | None:
    terminal.TerminalState.prints_json = bool(values.get("as_json"))
    return function(**values)


def print_version() -> None:
    terminal.out(f"gitckpt {__version__}")


def parse_count(text: str, option: str = "a number") -> int:
    problem = f"{option} must be a whole number of 0 or more, not {text!r}"
    is_whole_number = text.isascii() and text.isdigit() and len(text) < 19
    refuse_if(not is_whole_number, problem, "write a whole number, such as 20")
    return int(text)


def parse_instant(text: str | None) -> int | None:
    """Return the microseconds since the epoch that --since or --until names."""
    if text is None:
        return None
    from gitckpt.git import dates  # imports `datetime`

    return dates.parse_instant(text)


def refuse_if(is_wrong: object, problem: str, hint: str) -> None:
    if is_wrong:
        raise UsageError(problem, hint=hint)


def refuse_run_and_track(run: str | None, track: str | None) -> None:
    has_both = run is not None and track is not None
    refuse_if(has_both, "--run and --track exclude each other", "give only one of them")


def require_one_of(kind: str, value: str | None, names: Iterable[str]) -> None:
    if value is not None and value not in names:
        raise UsageError(f"there is no {kind} {value!r}", hint=f"use one of {', '.join(names)}")


def path_from_top(worktree: str | None, path: str) -> bytes:
    """Return a path relative to the worktree's top; b"." is the top itself."""
    if not path:  # an unset variable of a script; git refuses it as well
        hint = "name . for this directory, or no path to restore everything"
        raise UsageError("a path is empty", hint=hint)
    if worktree is None:
        return os.fsencode(path)
    # Resolve symbolic links on the way to the top; below the top, a link is a path to restore.
    worktree_top = os.path.realpath(worktree)
    *parts, last = os.path.normpath(os.path.join(os.path.realpath(os.getcwd()), path)).split(os.sep)
    for part_count in range(1, len(parts) + 1):
        if os.path.realpath(os.sep.join(parts[:part_count]) or os.sep) == worktree_top:
            return os.fsencode(os.sep.join([*parts[part_count:], last]))
    if os.path.realpath(os.sep.join([*parts, last])) == worktree_top:
        return b"."
    problem = f"{path} is outside of the worktree {worktree}"
    raise UsageError(problem, hint="name paths inside of the worktree")
