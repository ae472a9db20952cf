"""Parse simple command lines without Typer, which takes long to import.

Importing Typer takes longer than running most commands. Typer parses each command line that this
module does not fully understand, and prints help and usage errors. A test compares both parsers.
"""

from __future__ import annotations

from gitckpt.cli import options
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.model.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

TYPER_ONLY = ("hook",)  # git's arguments may look like options


def command_index(words: Sequence[str]) -> int:
    return options.command_index(words, options.options_with_value(options.apply_globals))


def expand_limit(words: Sequence[str]) -> Sequence[str]:
    """Replace `-5` after `log` and `list` by `-n 5`, as git does."""
    index = command_index(words)
    if list(words[index : index + 1]) not in (["log"], ["list"]):
        return words
    with_value = options.options_with_value(COMMANDS[words[index]]())
    expanded = list(words[: index + 1])
    for position in range(index + 1, len(words)):
        word = words[position]
        if word == "--":
            return [*expanded, *words[position:]]
        is_limit = word[:1] == "-" and word[1:].isascii() and word[1:].isdigit()
        is_value = words[position - 1] in with_value
        expanded += ["-n", word[1:]] if is_limit and not is_value else [word]
    return expanded


def prepare_command_call(words: Sequence[str]) -> Callable[[], int | None] | None:
    """Return a function that runs the command; None if Typer must parse `words`."""
    if list(words) == [options.VERSION]:
        return options.print_version
    index = command_index(words)
    name = next(iter(words[index:]), "")
    global_options = parse_words(options.apply_globals, words[:index])
    arguments = words[index + 1 :]
    if name == "complete":  # what completion scripts call
        from gitckpt.cli.parser import completion

        function: Callable[..., int | None] = completion.print_completions
        shell, arguments = (
            (arguments[1], arguments[2:]) if arguments[:1] == ["--for"] else (None, arguments)
        )
        has_dashes = arguments[:1] == ["--"]
        words = arguments[1:] if has_dashes else arguments
        values: dict[str, Any] | None = {"words": words, "shell": shell}
    elif name in COMMANDS and name not in TYPER_ONLY:
        function = COMMANDS[name]()
        values = parse_words(function, arguments)
    else:
        return None
    if global_options is None or values is None:
        return None

    def run_command() -> int | None:
        options.apply_globals(**global_options)
        return options.call_command(function, values)

    return run_command


def parse_words(function: Callable[..., int | None], words: Sequence[str]) -> dict[str, Any] | None:
    """Map each given parameter's name to its value; None if Typer must parse `words`."""
    parameters = options.PARAMETERS.get(function, [])
    arguments = [parameter for parameter in parameters if not parameter.spellings]
    options_by_spelling = {name: option for option in parameters for name in option.spellings}
    values: dict[str, Any] = {}
    remaining_words = iter(words)
    for word in remaining_words:
        spelling, separator, value = word.partition("=")
        option = options_by_spelling.get(spelling)
        if word == "--" and arguments and arguments[-1].is_list:
            name = "paths" if arguments[-1].takes_paths else arguments[-1].name
            values.setdefault(name, []).extend(remaining_words)
            continue
        if not word.startswith("-"):
            if not arguments:
                return None
            option, value = arguments[0] if arguments[0].is_list else arguments.pop(0), word
        elif option is None or (separator and (option.is_flag or not spelling.startswith("--"))):
            return None
        elif not option.is_flag and not separator:
            value = next(remaining_words, "--")
            if value.startswith("-") and value != "-":
                return None  # probably an option: the value is missing
        if option.is_list:
            values.setdefault(option.name, []).append(value)
        else:
            values[option.name] = True if option.is_flag else value
    if any(option.is_required and values.get(option.name) in (None, []) for option in parameters):
        return None
    try:
        numbers = [option.name for option in parameters if option.is_number]
        return values | {key: options.parse_count(values[key]) for key in numbers if key in values}
    except UsageError:
        return None  # Typer parses again, and reports the first error of the line
