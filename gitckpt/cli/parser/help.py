"""The words of help and usage: arguments as they are typed, without the parser's types and brackets around brackets."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from typer.core import TyperCommand

from gitckpt.cli.parser import quick
from gitckpt.model.errors import UsageError
from gitckpt.model.names import closest, shell_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
        """Returns what follows the command's name in its usage line."""
        return ["[OPTIONS]", *(_metavar(parameter) for parameter in self.get_params(ctx) if _is_argument(parameter))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the lists of arguments and options."""
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
    """Raises an error with the likely meaning if the command of a command line is none of ours.

    Raises:
        UsageError: there is no such command.
    """
    unknown = next(iter(words[quick.command_of(words) :]), None)
    if unknown is not None and unknown not in commands:
        meant = next((name for name, others in _ALSO_CALLED.items() if unknown in others.split()), unknown)
        raise UsageError(f"there is no command {unknown!r}", hint=_close("git ckpt ", meant, commands) or "see: git ckpt --help")


def wrong_usage(error: Any, words: Sequence[str], commands: Collection[str]) -> UsageError:
    """Returns what the parser complained of, in our words.

    Args:
        error: the parser's.
        words: the command line.
        commands: the names of all commands.
    """
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
