"""Parse plain calls without Typer, for commands that agents and scripts use often.

Typer takes longer to import and set up than most of them take to run. It parses all that this
module does not fully understand, and prints help and errors. A test compares both parsers.
"""

from __future__ import annotations

from gitckpt.cli import options
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# Typer handles the paths of `diff`, and the arguments of git's own hooks.
TYPER_ONLY = ("diff", "hook", "complete")


def command_of(words: Sequence[str]) -> int:
    """Return the index of the command in a command line."""
    before = options.PARAMETERS[options.apply]
    return options.command_of(
        words, [name for option in before if not option.is_flag for name in option.spellings]
    )


def call_of(words: Sequence[str]) -> Callable[[], int | None] | None:
    """Return the call for a command line, which returns an exit code; None for Typer's."""
    if list(words) == [options.VERSION]:
        return options.print_version
    index = command_of(words)
    name = words[index] if index < len(words) else ""
    before = parse(options.apply, words[:index])
    if before is None or name not in COMMANDS or name in TYPER_ONLY:
        return None
    function = COMMANDS[name]()
    after = parse(function, words[index + 1 :])
    if after is None:
        return None

    def call() -> int | None:
        options.apply(**before)
        return function(**after)

    return call


def parse(function: Callable[..., int | None], words: Sequence[str]) -> dict[str, Any] | None:
    """Return parameters and their values; None for words that Typer must parse."""
    parameters = options.PARAMETERS.get(function, [])
    arguments = [parameter for parameter in parameters if not parameter.spellings]
    takes_list = any(argument.is_list for argument in arguments)
    by_spelling = {name: option for option in parameters for name in option.spellings}
    values: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        spelling, equals, value = word.partition("=")
        option = by_spelling.get(spelling)
        if word == "--" and takes_list:
            values.setdefault(arguments[0].name, []).extend(rest)
            continue
        if not word.startswith("-"):
            if not arguments:
                return None
            option, value = arguments[0] if takes_list else arguments.pop(0), word
        elif option is None or (equals and (option.is_flag or not spelling.startswith("--"))):
            return None
        elif not option.is_flag and not equals:
            value = next(rest, "--")
            if value.startswith("-") and value != "-":
                return None  # probably an option: the value is missing
        if option.is_list:
            values.setdefault(option.name, []).append(value)
        else:
            values[option.name] = True if option.is_flag else value
    required = parameters[: len(parameters) - len(function.__defaults__ or ())]
    if any(values.get(parameter.name) in (None, []) for parameter in required):
        return None
    try:
        numbers = [option.name for option in parameters if option.is_number]
        return values | {name: options.count(values[name]) for name in numbers if name in values}
    except UsageError:
        return None  # Typer reports errors in order
