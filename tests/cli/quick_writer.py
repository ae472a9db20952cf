"""Writes the table of the quick door from what the commands declare to Typer: `./dev generate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from gitckpt.cli import options
from gitckpt.cli.options import Syntax
from gitckpt.cli.parser import app, quick
from gitckpt.cli.parser.commands import COMMANDS, QUICK

TABLE = Path(quick.__file__).with_name("quick_table.py")

# Characters of an argument's line without its indent.
LONGEST = 88

TEXT = '''\
"""What the quick door understands. Written by `./dev generate` from what the commands declare to Typer: a change here would be lost."""

from __future__ import annotations

from importlib import import_module

from {package} import {name}

# What may stand before any command.
BEFORE = {before}

# Command → what may stand behind it.
AFTER = {{
{after}
}}

# Command → what imports its module, and returns the function that does the work.
FUNCTIONS = {{
{functions}
}}
'''


class NotPlainError(Exception):
    """A command is declared in a way that the quick door cannot follow."""


def syntax_of(command: str, params: Sequence[Any]) -> Syntax:
    """Returns what the quick door understands behind a command.

    An option that it cannot follow, as one that takes two words, is left out: calls with it go to Typer.

    Args:
        command: its name.
        params: its parameters, as Typer made them.

    Raises:
        NotPlainError: even a call without such options would not be understood as Typer does.
    """
    arguments: list[str] = []
    required = 0
    words = None
    flags: dict[str, str] = {}
    values: dict[str, str] = {}
    lists: dict[str, str] = {}
    readers = {}
    for each in params:
        if each.envvar or each.callback or getattr(each, "prompt", None):
            raise NotPlainError(f"{command}: {each.name} is more than what is typed")
        is_text, reader = _kind(each) is str, _reader(each)
        if each.param_type_name == "argument":
            if (
                is_text
                and each.nargs == 1
                and not words
                and (not each.required or required == len(arguments))
            ):
                arguments.append(each.name)
                required += each.required
            elif is_text and each.nargs == -1 and not words and not arguments:
                words = each.name
                required = int(each.required)
            else:
                raise NotPlainError(
                    f"{command}: {each.name} is neither a text nor the one list of texts"
                )
        elif each.required:
            raise NotPlainError(f"{command}: {each.name} is an option that must be given")
        elif (
            each.is_flag
            and not each.secondary_opts
            and not each.count
            and _kind(each) is bool
            and each.default is False
        ):
            flags |= dict.fromkeys(each.opts, each.name)
        elif not each.is_flag and not each.count and each.nargs == 1 and each.multiple and is_text:
            lists |= dict.fromkeys(each.opts, each.name)
        elif (
            not each.is_flag
            and not each.count
            and each.nargs == 1
            and not each.multiple
            and (is_text or reader)
        ):
            values |= dict.fromkeys(each.opts, each.name)
            if reader:
                readers[each.name] = reader
    return Syntax(
        arguments=arguments,
        required=required,
        words=words,
        flags=flags,
        values=values,
        lists=lists,
        readers=readers,
    )


def _kind(param: Any) -> Any:
    """Return the type of one value of a parameter; None for others than texts and flags, and where a function reads it."""
    if not hasattr(param, "type_descriptor"):  # Typer 0.28
        return {"str": str, "boolean": bool}.get(param.type.name)
    annotation = param.type_descriptor.annotation
    kind = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    return kind if kind in (str, bool) and _parser(param) is None else None


def _parser(param: Any) -> Any:
    """Return the function that reads a parameter; None where there is none."""
    if not hasattr(param, "type_descriptor"):  # Typer 0.28
        return getattr(param.type, "func", None)
    return param.type_descriptor.parameter_info.parser


def _reader(param: Any) -> Any:
    """Returns what reads the text of an option, where the quick door has it."""
    function = _parser(param)
    return (
        function
        if function is not None and getattr(options, function.__name__, None) is function
        else None
    )


def table() -> str:
    """Returns the text of the table."""
    program = app.build()
    package, _, name = options.__name__.rpartition(".")
    before = syntax_of(
        "git ckpt", [each for each in program.params if options.VERSION not in each.opts]
    )
    after = {each: syntax_of(each, program.commands[each].params) for each in QUICK}
    functions = {each: COMMANDS[each].load() for each in QUICK}
    return TEXT.format(
        package=package,
        name=name,
        before=_call(before),
        after="\n".join(
            f"    {_quoted(each)}: {_call(syntax, '    ')}," for each, syntax in after.items()
        ),
        functions="\n".join(
            f"    {_quoted(each)}: lambda: import_module({_quoted(function.__module__)}).{_name(function)},"
            for each, function in functions.items()
        ),
    )


def _call(syntax: Syntax, indent: str = "") -> str:
    """Returns the expression that makes a syntax, with a line for each thing, as ruff leaves it."""
    inner = f"{indent}    "
    said = []
    if syntax.arguments:
        said.append(f"arguments=[{', '.join(map(_quoted, syntax.arguments))}],")
    if syntax.required:
        said.append(f"required={syntax.required},")
    if syntax.words:
        said.append(f"words={_quoted(syntax.words)},")
    said += _mapping("flags", {key: _quoted(value) for key, value in syntax.flags.items()})
    said += _mapping("values", {key: _quoted(value) for key, value in syntax.values.items()})
    said += _mapping("lists", {key: _quoted(value) for key, value in syntax.lists.items()})
    module = options.__name__.rpartition(".")[2]
    said += _mapping(
        "readers", {key: f"{module}.{_name(reader)}" for key, reader in syntax.readers.items()}
    )
    return (
        f"{module}.Syntax("
        + "".join(f"\n{inner}{line}" for line in said)
        + (f"\n{indent})" if said else ")")
    )


def _mapping(name: str, said: Mapping[str, str]) -> list[str]:
    pairs = [f"{_quoted(key)}: {value}" for key, value in said.items()]
    line = f"{name}={{{', '.join(pairs)}}},"
    if len(line) <= LONGEST:
        return [line] if said else []
    return [f"{name}={{", *(f"    {pair}," for pair in pairs), "},"]


def _name(function: Any) -> str:
    return str(function.__name__)


def _quoted(text: str) -> str:
    return json.dumps(text)


def main() -> None:
    """Writes the table, and says so where it had been another."""
    text = table()
    if not TABLE.exists() or TABLE.read_text("utf-8") != text:
        TABLE.write_text(text, "utf-8")
        sys.stdout.write(f"written: {TABLE.name}\n")


if __name__ == "__main__":
    main()
