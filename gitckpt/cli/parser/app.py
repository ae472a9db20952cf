"""Print help, and parse the command lines that the module `quick` cannot parse."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from gitckpt.cli import options, terminal
from gitckpt.cli.parser import quick
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.cli.parser.help import ADDRESSES, EXAMPLES, GROUPS, SOME_ADDRESSES, find_synonym
from gitckpt.model.arguments import closest_word, shell_quoted
from gitckpt.model.errors import UsageError

Function = Callable[..., int | None]
_BY_NAME = inspect.Parameter.KEYWORD_ONLY

# Help and usage errors.

_EXTRA_ARGUMENT = re.compile(r"^Got unexpected extra argument(s|\(s\))? \(")


class MetavarCommand(TyperCommand):
    """A command whose help shows each argument by its metavar, such as `[ID]`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        parameters = self.get_params(ctx)
        required = (_option_text(p) for p in parameters if p.required and not _is_argument(p))
        return ["[OPTIONS]", *required, *map(_metavar, filter(_is_argument, parameters))]

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
        if any(map(_takes_address, self.get_params(ctx))):
            with formatter.section("Addresses"):
                formatter.write(f"{'':{formatter.current_indent}}{SOME_ADDRESSES}\n")
        if examples := EXAMPLES.get(str(ctx.info_name)):
            with formatter.section("Examples"):
                for example in examples:
                    formatter.write(f"{'':{formatter.current_indent}}$ git ckpt {example}\n")


class CommandGroups(TyperGroup):
    """The application, whose help lists the commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        summaries = {
            name: command.get_short_help_str(500) for name, command in self.commands.items()
        }
        summaries["help"] = "Show the help of a command, or of addresses."
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(n, summaries[n]) for n in names.split() if n in summaries])


def require_known_command(words: Sequence[str]) -> None:
    command_name = next(iter(words[quick.command_index(words) :]), None)
    if command_name is not None and command_name not in COMMANDS:
        name = find_synonym(command_name, COMMANDS)
        closest_name = closest_word(name, [*COMMANDS, "help", options.VERSION])
        hint = f"did you mean git ckpt {closest_name}?" if closest_name else "see: git ckpt -h"
        raise UsageError(f"there is no command {command_name!r}", hint=hint)


def convert_typer_error(error: Any, words: Sequence[str]) -> UsageError:
    command, parameters = _command_and_parameters(words)
    help_hint = f"see: git ckpt {command} --help" if command else "see: git ckpt -h"
    message = str(getattr(error, "message", "") or error).rstrip(".")
    option = getattr(error, "option_name", "")
    if message.startswith("No such option"):
        return _unknown_option_error(option, command, parameters, help_hint)
    parameter = getattr(error, "param", None)
    is_missing = message.startswith("Missing parameter") and parameter is not None
    if is_missing and not _is_argument(parameter):
        text = _option_text(parameter)
        hint = f"run: git ckpt {' '.join(map(shell_quoted, words))} {text}"
        return UsageError(f"{text} is missing", hint=hint)
    if is_missing:
        argument_name = _metavar(parameter).split("…")[0].split(" ")[0]
        return UsageError(f"{argument_name} is missing", hint=help_hint)
    if message.startswith("Got unexpected extra argument"):
        extra_arguments = _EXTRA_ARGUMENT.sub("", message).rstrip(")")
        if command == "save":
            help_hint = "quote the message: git ckpt save 'TEXT'"
        return UsageError(f"too many arguments: {extra_arguments}", hint=help_hint)
    return UsageError(message[:1].lower() + message[1:], hint=help_hint)


def _command_and_parameters(words: Sequence[str]) -> tuple[str, Sequence[options.Parameter]]:
    name = next(iter(words[quick.command_index(words) :]), "")
    return name, options.PARAMETERS.get(COMMANDS[name](), []) if name in COMMANDS else []


def _unknown_option_error(
    option: str, command: str, parameters: Sequence[options.Parameter], help_hint: str
) -> UsageError:
    for parameter in options.PARAMETERS[options.apply_globals]:
        if command and option in parameter.spellings:
            value = "" if parameter.is_flag else f"{parameter.metavar} "
            hint = f"run: git ckpt {option} {value}{command}"
            return UsageError(f"{option} goes before the command", hint=hint)
    spellings = [name for parameter in parameters for name in parameter.spellings]
    closest_option = closest_word(option, [name for name in spellings if name.startswith("--")])
    hint = f"did you mean {closest_option}?" if closest_option else help_hint
    return UsageError(f"there is no option {option}", hint=hint)


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _takes_address(parameter: Any) -> bool:
    # Other options with an ID, such as `loop --issue`, name other things.
    is_candidate = _is_argument(parameter) or "--good" in parameter.opts
    return is_candidate and re.search(r"\b(ID|ADDRESS)\b", _metavar(parameter)) is not None


def _option_text(option: Any) -> str:
    return f"{option.opts[0]} {option.metavar}"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name)


# Running commands.


def run_with_typer(words: Sequence[str]) -> int:
    index = quick.command_index(words)
    if list(words[index : index + 1]) == ["help"]:  # git itself takes `git ckpt --help`
        command = [word for word in words[index + 1 : index + 2] if word != "help"]
        if command == ["addresses"]:
            for form, meaning in ADDRESSES.items():
                terminal.out(f"  {form:14}{meaning}")
            return 0
        words = [*words[:index], *command, "--help"]
    require_known_command(words)
    words, paths = _split_off_paths(words)
    try:
        app = build_app(_needed_commands(words), paths)
        with app.make_context("git ckpt", list(words)) as context:
            return context.command.invoke(context) or 0
    except typer.Exit as early_exit:
        return early_exit.exit_code
    except TyperException as error:
        context = getattr(error, "ctx", None)
        is_missing = quick.command_index(words) == len(words) and "command" in str(error).lower()
        if context is not None and is_missing:
            terminal.print_explanation(context.get_help())
            return UsageError.exit_code
        raise convert_typer_error(error, words) from None


def build_app(names: Iterable[str] = COMMANDS, paths: Sequence[str] = ()) -> Any:
    """Return the Typer application with the named commands; import no other command."""
    # `paths` are the words after `--`, which Typer would take for other arguments.
    app = typer.Typer(
        name="git ckpt",
        cls=CommandGroups,
        help="Checkpoints in a git repository: the state, files and commit of every step.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    version_option = typer.Option(
        options.VERSION, callback=_print_version_and_exit, is_eager=True, help="Print the version."
    )
    app.callback()(_wrap_for_typer(options.apply_globals, version=Annotated[bool, version_option]))
    for name in names:
        function = COMMANDS[name]()
        summary = str(function.__doc__).partition("\n")[0]  # Typer's may end within a sentence
        app.command(name, cls=MetavarCommand, short_help=summary)(_wrap_for_typer(function, paths))
    return typer.main.get_command(app)


def _print_version_and_exit(is_given: bool) -> None:
    if is_given:
        options.print_version()
        raise typer.Exit


def _wrap_for_typer(function: Function, paths: Sequence[str] = (), **extra: Any) -> Function:
    def call_command(**values: Any) -> int | None:
        arguments = {name: value for name, value in values.items() if value is not None}
        for name in extra:
            arguments.pop(name, None)
        return options.call_command(function, arguments | ({"paths": list(paths)} if paths else {}))

    parameters = options.PARAMETERS.get(function, [])
    annotations = {parameter.name: _typer_annotation(parameter) for parameter in parameters} | extra
    signature = []
    for name, annotation in annotations.items():
        default = False if get_args(annotation)[0] is bool else None
        signature.append(inspect.Parameter(name, _BY_NAME, annotation=annotation, default=default))
    for index, parameter in enumerate(parameters):
        if parameter.is_required:
            signature[index] = signature[index].replace(default=inspect.Parameter.empty)
    call_command.__annotations__ = annotations
    call_command.__doc__ = function.__doc__
    call_command.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    return call_command


def _typer_annotation(parameter: options.Parameter) -> Any:
    value_type: Any = list[str] | None if parameter.is_list else str | None
    typer_arguments: dict[str, Any] = {"metavar": parameter.metavar, "help": parameter.help}
    if not parameter.spellings:
        return Annotated[value_type, typer.Argument(**typer_arguments)]
    if parameter.is_number:
        option_name = parameter.spellings[-1]
        typer_arguments["parser"] = lambda text: options.parse_count(text, option_name)
        value_type = int | None
    option = typer.Option(*parameter.spellings, **typer_arguments)
    return Annotated[bool, option] if parameter.is_flag else Annotated[value_type, option]


def _needed_commands(words: Sequence[str]) -> Iterable[str]:
    index = quick.command_index(words)
    # Without a command, help lists all commands.
    if index == len(words) or quick.parse_words(options.apply_globals, words[:index]) is None:
        return COMMANDS
    return [words[index]]


def _split_off_paths(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    index = quick.command_index(words)
    takes_paths = any(parameter.takes_paths for parameter in _command_and_parameters(words)[1])
    if not takes_paths or "--" not in words[index:]:
        return words, []
    dashes_index = words.index("--", index)  # Typer would drop `--`, and take paths for ids
    return words[:dashes_index], words[dashes_index + 1 :]
