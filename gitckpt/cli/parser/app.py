"""The Typer application: help, completion, and calls that `quick` refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from gitckpt.cli import options, terminal
from gitckpt.cli.parser import quick
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.model.arguments import closest, shell_word
from gitckpt.model.errors import UsageError

# Help and usage errors.

_ALSO_CALLED = {
    "list": "ls log status",
    "remove": "rm delete",
    "expire": "gc prune",
    "resume": "checkout",
    "restore": "recover",
    "undo": "revert",
    "save": "create",
}

_EXTRA = re.compile(r"^Got unexpected extra argument(s|\(s\))? \(")


class PlainCommand(TyperCommand):
    """A command whose arguments are shown by their metavars, verbatim: `[ID]`, `ID…`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(_metavar(parameter) for parameter in self.get_params(ctx) if _is_argument(parameter))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments, options = [], []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if _is_argument(parameter):
                arguments.append((_metavar(parameter), getattr(parameter, "help", None) or ""))
            elif record is not None:
                options.append(record)
        for title, records in (("Arguments", arguments), ("Options", options)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def require_command(words: Sequence[str], commands: Collection[str]) -> None:
    unknown = next(iter(words[quick.command_of(words) :]), None)
    if unknown is not None and unknown not in commands:
        meant = next((name for name, others in _ALSO_CALLED.items() if unknown in others.split()), unknown)
        raise UsageError(f"there is no command {unknown!r}", hint=_close("git ckpt ", meant, commands) or "see: git ckpt --help")


def wrong_usage(error: Any, words: Sequence[str], commands: Collection[str]) -> UsageError:
    context = getattr(error, "ctx", None)
    command = next((word for word in words[quick.command_of(words) :][:1] if word in commands), "")
    help_ = f"see: git ckpt {command} --help" if command else "see: git ckpt --help"
    message = str(getattr(error, "message", "") or error).rstrip(".")
    option = getattr(error, "option_name", "")
    if message.startswith("No such option"):
        before = next((each for each in context.find_root().command.params if option in each.opts), None) if command and context else None
        if before is not None:
            value = "" if before.is_flag else f"{_metavar(before)} "
            return UsageError(f"{option} goes before the command", hint=f"git ckpt {option} {value}{command}")
        known = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")] if context else []
        return UsageError(f"there is no option {option}", hint=_close("", option, known) or help_)
    parameter = getattr(error, "param", None)
    if message.startswith("Missing parameter") and parameter is not None:
        return UsageError(f"{_metavar(parameter).split('…')[0].split(' ')[0]} is missing", hint=help_)
    if message.startswith("Got unexpected extra argument"):
        extra = _EXTRA.sub("", message).rstrip(")")
        hint = f"a message is given by -m: git ckpt save -m {shell_word(extra)}" if command == "save" else help_
        return UsageError(f"too many arguments: {extra}", hint=hint)
    return UsageError(message[:1].lower() + message[1:], hint=help_)


def _close(prefix: str, word: str, known: Collection[str]) -> str | None:
    close = closest(word, known)
    return f"did you mean {prefix}{close}?" if close else None


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name)


# Running commands.


def perform(words: Sequence[str]) -> int:
    words, paths = _split_paths(words)
    require_command(words, COMMANDS)
    try:
        with build(_needed(words)).make_context("git ckpt", list(words), obj=paths) as made:
            return made.command.invoke(made) or 0
    except typer.Exit as leaving:
        return leaving.exit_code
    except TyperException as error:
        context = getattr(error, "ctx", None)
        if context is not None and quick.command_of(words) == len(words) and "command" in str(error).lower():
            terminal.explain(context.get_help())
            return UsageError.exit_code
        raise wrong_usage(error, words, COMMANDS) from None


def build(names: Iterable[str] = COMMANDS) -> Any:
    """Return the Typer application with some or all commands; others are not imported."""
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
            app.command(name, cls=PlainCommand, short_help=summary)(function)
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
    # Annotations are strings that name Typer, which the module of a command does not import.
    function.__annotations__ = get_type_hints(function, localns={"typer": typer, "Annotated": Annotated}, include_extras=True)
    return function


def _needed(words: Sequence[str]) -> Iterable[str]:
    from gitckpt.cli.parser.quick_table import BEFORE

    index = quick.command_of(words)
    # Help and completion may be about any command.
    if index == len(words) or words[index] == "complete" or quick.parse(BEFORE, words[:index]) is None:
        return COMMANDS
    return [words[index]]


def _split_paths(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    index = quick.command_of(words)
    if words[index : index + 1] != ["diff"] or "--" not in words[index:]:
        return words, []
    dashes = words.index("--", index)  # the parser would drop the dashes, and their meaning
    return words[:dashes], words[dashes + 1 :]
