"""The commands of `git ckpt`, and the one place where their errors end."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from typing import Annotated

import typer

from gitckpt import __version__
from gitckpt.cli import (
    completing,
    diffing,
    doctoring,
    expiring,
    initializing,
    listing,
    removing,
    resuming,
    saving,
    showing,
    terminal,
)
from gitckpt.model.errors import CkptError

BUG = 3
INTERRUPTED = 130
USAGE = 2

app = typer.Typer(
    name="git ckpt",
    help="Checkpoints of a git repository: the state, the files and the commit of every step, kept in refs of the repository itself.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

app.command("init")(initializing.init)
app.command("uninit")(initializing.uninit)
app.command("save")(saving.save)
app.command("list")(listing.list_)
app.command("show")(showing.show)
app.command("diff")(diffing.diff)
app.command("resume")(resuming.resume)
app.command("remove")(removing.remove)
app.command("expire")(expiring.expire)
app.command("doctor")(doctoring.doctor)
app.command("hook")(initializing.hook)
app.command("demo")(initializing.demo)
app.command("completion")(completing.completion)
app.command("complete", hidden=True, context_settings={"ignore_unknown_options": True})(completing.complete)


def _print_version(wanted: bool) -> None:
    if wanted:
        terminal.out(f"gitckpt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")] = False,
    directory: Annotated[str | None, typer.Option("-C", metavar="DIR", help="Work as if started in DIR.")] = None,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    del version
    terminal.Settings.quiet = quiet
    if directory is not None:
        try:
            os.chdir(directory)
        except OSError as error:
            raise CkptError(f"cannot go to {directory}: {error.strerror}") from None


def run(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: what follows `git ckpt`; by default the process's own arguments.

    Returns:
        The exit code (DESIGN: 0 done, 1 failed, 2 usage, 3 bug, and those of the errors).
    """
    command = typer.main.get_command(app)
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    shown_error: type[Exception] = usage_error.__mro__[1]
    words, paths = _split_paths(sys.argv[1:] if argv is None else argv)
    try:
        code = command.main(args=words, prog_name="git ckpt", standalone_mode=False, obj=paths)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CkptError as error:
        return terminal.fail(error)
    except shown_error as error:
        return _wrong_usage(error, command)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("\n")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does; Python must not complain again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the end of the line: what nobody foresaw
        return _bug(error)


def _split_paths(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits off the paths behind `diff … --`: the parser drops the dashes, and with them the difference."""
    if "diff" not in argv or "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _wrong_usage(error: Exception, command: object) -> int:
    message = str(getattr(error, "message", "") or error)
    if message.startswith("Usage:"):  # the help, printed for want of arguments
        sys.stderr.write(f"{message}\n")
        return USAGE
    context = getattr(error, "ctx", None)
    name = context.info_name if context is not None and context.parent is not None else ""
    hint = f"see: git ckpt {name} --help" if name else "see: git ckpt --help"
    word = message.partition("No such command '")[2].partition("'")[0]
    close = difflib.get_close_matches(word, list(getattr(command, "commands", {})), n=1, cutoff=0.5) if word else []
    if close:
        message, hint = f"there is no command {word!r}", f"did you mean git ckpt {close[0]}?"
    return terminal.fail(_Usage(message.rstrip("."), hint=hint))


class _Usage(CkptError):
    exit_code = USAGE


def _bug(error: Exception) -> int:
    from gitckpt.git.repository import discover

    text = "".join(traceback.format_exception(error))
    where = ""
    try:
        path = os.path.join(discover().make_private_dir(), "log")
        with open(path, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"gitckpt {__version__}, {sys.version.split()[0]}: git ckpt {' '.join(sys.argv[1:])}\n{text}")
        where = f"; details: {path}"
    except (CkptError, OSError):
        sys.stderr.write(text)
    sys.stderr.write(f"error: this is a bug in gitckpt: {type(error).__name__}: {terminal.harmless(str(error))}{where}\n")
    return BUG
