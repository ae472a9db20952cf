"""Parse plain calls without Typer, for commands that agents and scripts use often.

Typer takes longer to import and set up than most of them take to run. It remains the authority: its
declarations generate the table (`./dev generate`), and it parses all that this module does not
fully understand, and prints help and errors. A test compares both parsers.
"""

from __future__ import annotations

from gitckpt.cli import options
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def command_of(words: Sequence[str]) -> int:
    from gitckpt.cli.parser.quick_table import BEFORE

    return options.command_of(words, BEFORE.values)


def call_of(words: Sequence[str]) -> Callable[[], int | None] | None:
    """Return the call for a command line, or None if Typer must parse it."""
    if list(words) == [options.VERSION]:
        return options.print_version
    from gitckpt.cli.parser.quick_table import AFTER, BEFORE, FUNCTIONS

    index = command_of(words)
    name = words[index] if index < len(words) else ""
    before = parse(BEFORE, words[:index])
    after = parse(AFTER[name], words[index + 1 :]) if name in AFTER else None
    if before is None or after is None:
        return None

    def call() -> int | None:
        options.apply(**before)
        code: int | None = FUNCTIONS[name]()(**after)
        return code

    return call


def _note(found: dict[str, Any], syntax: options.Syntax, option: str, value: str) -> None:
    if option in syntax.lists:
        found.setdefault(syntax.lists[option], []).append(value)
    else:
        found[syntax.values[option]] = value


def parse(syntax: options.Syntax, words: Sequence[str]) -> dict[str, Any] | None:
    """Return parameters and their values; None for words that Typer must parse."""
    parameters: dict[str, Any] = {}
    places, rest = iter(syntax.arguments), iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if syntax.words and (word == "--" or not word.startswith("-")):
            parameters.setdefault(syntax.words, []).extend(rest if word == "--" else [word])
        elif not word.startswith("-"):
            name = next(places, None)
            if name is None:
                return None
            parameters[name] = word
        elif word in syntax.flags:
            parameters[syntax.flags[word]] = True
        elif word in syntax.values or word in syntax.lists:
            value = next(rest, "--")
            if value.startswith("-") and value != "-":
                return None  # probably an option: the value is missing
            _note(parameters, syntax, word, value)
        elif equals and option.startswith("--") and (option in syntax.values or option in syntax.lists):
            _note(parameters, syntax, option, value)
        else:
            return None
    if syntax.words and syntax.required and not parameters.get(syntax.words):
        return None
    if any(name not in parameters for name in syntax.arguments[: syntax.required]):
        return None
    try:
        return {name: syntax.readers[name](value) if name in syntax.readers else value for name, value in parameters.items()}
    except UsageError:
        return None  # Typer reports errors in order
