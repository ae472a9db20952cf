"""The quick door: understands plain calls of the commands that agents and scripts use all the time, without Typer.

Typer takes longer to import and to set up than most of these commands take to work. It remains the authority: what is understood here is
generated from what the commands declare to it (`./dev generate`), and whatever is not wholly understood is left to it, with its help and
its errors. A test compares what both make of the same words.
"""

from __future__ import annotations

from gitckpt.cli import options
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def command_of(words: Sequence[str]) -> int:
    """Returns where in a command line the command stands; the length of the line where there is none."""
    from gitckpt.cli.parser.quick_table import BEFORE

    return options.command_of(words, BEFORE.values)


def call_of(words: Sequence[str]) -> Callable[[], int | None] | None:
    """Returns what a command line asks for, to be called for an exit code, None standing for 0; None where only Typer can tell."""
    if list(words) == [options.VERSION]:
        return options.print_version
    from gitckpt.cli.parser.quick_table import AFTER, BEFORE, FUNCTIONS

    at = command_of(words)
    name = words[at] if at < len(words) else ""
    before = parse(BEFORE, words[:at])
    after = parse(AFTER[name], words[at + 1 :]) if name in AFTER else None
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
        elif word in syntax.values or word in syntax.lists:
            value = next(rest, "--")
            if value.startswith("-") and value != "-":
                return None  # more likely an option whose neighbour lacks its value
            _note(found, syntax, word, value)
        elif equals and option.startswith("--") and (option in syntax.values or option in syntax.lists):
            _note(found, syntax, option, value)
        else:
            return None
    if syntax.words and syntax.required and not found.get(syntax.words):
        return None
    if any(name not in found for name in syntax.arguments[: syntax.required]):
        return None
    try:
        return {name: syntax.readers[name](value) if name in syntax.readers else value for name, value in found.items()}
    except UsageError:
        return None  # something before it may be wrong, too, and is to be told first
