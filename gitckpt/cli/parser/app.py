"""The commands as Typer knows them: help, completion, and every call that the quick door does not understand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, get_type_hints

import typer
from typer.exceptions import TyperException

from gitckpt.cli import options
from gitckpt.cli.parser import help as helping
from gitckpt.cli.parser import quick
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.cli.screen import terminal
from gitckpt.model.errors import UsageError


def perform(words: Sequence[str]) -> int:
    """Runs one command.

    Args:
        words: what follows `git ckpt`.

    Returns:
        The exit code.

    Raises:
        UsageError: there is no such command, or it cannot be called like that.
        CkptError: what the command raises.
    """
    words, paths = _split_paths(words)
    helping.require_command(words, COMMANDS)
    try:
        with build(_needed(words)).make_context("git ckpt", list(words), obj=paths) as made:
            return made.command.invoke(made) or 0
    except typer.Exit as leaving:
        return leaving.exit_code
    except TyperException as error:
        context = getattr(error, "ctx", None)
        if context is not None and quick.command_of(words) == len(words) and "command" in str(error).lower():  # none was given
            terminal.explain(context.get_help())
            return UsageError.exit_code
        raise helping.wrong_usage(error, words, COMMANDS) from None


def build(names: Iterable[str] = COMMANDS) -> Any:
    """Returns Typer's command line, with some commands or all; the modules of the others are not imported."""
    app = typer.Typer(
        name="git ckpt",
        help="Checkpoints of a git repository: the state, the files and the commit of every step, kept in refs of the repository itself.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_options)
    for name in names:
        function, summary = _annotated(COMMANDS[name].load()), COMMANDS[name].summary
        if summary:
            app.command(name, cls=helping.PlainCommand, short_help=summary)(function)
        else:
            app.command(name, hidden=True, context_settings={"ignore_unknown_options": True})(function)
    return typer.main.get_command(app)


def _leave_with_version(wanted: bool) -> None:
    if wanted:
        options.print_version()
        raise typer.Exit


def _options(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")] = False,
    directory: Annotated[str | None, typer.Option("-C", metavar="DIR", help="Work as if started in DIR.")] = None,
    version: Annotated[bool, typer.Option(options.VERSION, callback=_leave_with_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    del version
    options.apply(quiet, directory)


def _annotated(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Evaluates the annotations of a command, which are strings: its module names Typer in them, but does not import it."""
    function.__annotations__ = get_type_hints(function, localns={"typer": typer, "Annotated": Annotated}, include_extras=True)
    return function


def _needed(words: Sequence[str]) -> Iterable[str]:
    """Returns the one command that will be called; all of them where help or completion may be about any."""
    from gitckpt.cli.parser.quick_table import BEFORE

    at = quick.command_of(words)
    if at == len(words) or words[at] == "complete" or quick.parse(BEFORE, words[:at]) is None:
        return COMMANDS
    return [words[at]]


def _split_paths(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Splits off the paths behind `diff … --`: the parser drops the dashes, and with them the difference."""
    at = quick.command_of(words)
    if words[at : at + 1] != ["diff"] or "--" not in words[at:]:
        return words, []
    dashes = words.index("--", at)
    return words[:dashes], words[dashes + 1 :]
