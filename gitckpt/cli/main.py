"""The commands of `git ckpt`, and the one place where their errors end."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gitckpt import __version__
from gitckpt.cli import (
    completing,
    diffing,
    doctoring,
    expiring,
    helping,
    initializing,
    listing,
    removing,
    resuming,
    saving,
    showing,
    terminal,
)
from gitckpt.model.errors import CkptError, RepositoryError, UsageError

BUG = 3
INTERRUPTED = 130

_NOT_OURS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP),
)
"""What the system may refuse to any program; any other such error is a case that we should have foreseen."""

app = typer.Typer(
    name="git ckpt",
    help="Checkpoints of a git repository: the state, the files and the commit of every step, kept in refs of the repository itself.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("init", initializing.init, "Record a checkpoint at every commit from now on."),
    ("save", saving.save, "Record a checkpoint now."),
    ("list", listing.list_, "List checkpoints, newest first."),
    ("show", showing.show, "Show one checkpoint."),
    ("diff", diffing.diff, "Show what changed between two, or since one."),
    ("resume", resuming.resume, "Open a worktree with the files of one."),
    ("remove", removing.remove, "Remove checkpoints by name."),
    ("expire", expiring.expire, "Remove checkpoints by policy."),
    ("doctor", doctoring.doctor, "Look for what is wrong, and name the cure."),
    ("uninit", initializing.uninit, "Take out what init put in."),
    ("hook", initializing.hook, "What the installed hooks call."),
    ("completion", completing.completion, "Print a script for the shell's completion."),
    ("demo", initializing.demo, "Show all of it in a scratch repository."),
)
for _name, _function, _summary in _COMMANDS:
    app.command(_name, cls=helping.Command, short_help=_summary)(_function)
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
            raise RepositoryError(f"cannot go to {directory}: {error.strerror}", hint="give a directory that exists") from None


def run(argv: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: what follows `git ckpt`; by default the process's own arguments.

    Returns:
        The exit code (DESIGN: 0 done, 1 failed, 2 usage, 3 bug, and those of the errors).
    """
    _prepare_streams()
    argv = sys.argv[1:] if argv is None else argv
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # a state may hold integers of any size
    try:
        return _run(argv)
    finally:
        sys.set_int_max_str_digits(limit)


def _run(argv: list[str]) -> int:
    command: Any = typer.main.get_command(app)
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    shown_error: type[Exception] = usage_error.__mro__[1]
    words, paths = _split_paths(argv)
    try:
        helping.require_command(words, command.commands)
        try:
            with command.make_context("git ckpt", words, obj=paths) as context:
                command.invoke(context)
            code = 0
        except typer.Exit as leaving:
            code = leaving.exit_code
        sys.stdout.flush()
        return code
    except CkptError as error:
        error.hint = error.hint or _cure(error.message)
        return terminal.fail(error)
    except shown_error as error:
        return _wrong_usage(error, words, list(command.commands))
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("\n")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does.
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in _NOT_OURS:
            return _bug(error, argv)
        _discard_output()
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        return terminal.fail(CkptError(message, hint=_cure(message)))
    except Exception as error:  # noqa: BLE001 - the end of the line: what nobody foresaw
        return _bug(error, argv)


def _cure(message: str) -> str | None:
    """Returns what helps against what the system refused, in our words or git's."""
    if os.strerror(errno.ENOSPC) in message:
        return "make room on the disk, and run the command again"
    if "ermission denied" in message or "insufficient permission" in message or os.strerror(errno.EROFS) in message:
        return "make it writable for you, and run the command again"
    return None


def _prepare_streams() -> None:
    """Escapes what a terminal's character set lacks: an old locale is no reason to end in the middle of a listing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Lets go of what standard output still holds: Python must not fail anew when it flushes at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _split_paths(argv: list[str]) -> tuple[list[str], list[str]]:
    """Splits off the paths behind `diff … --`: the parser drops the dashes, and with them the difference."""
    at = helping.command_of(argv)
    if argv[at : at + 1] != ["diff"] or "--" not in argv[at:]:
        return argv, []
    dashes = argv.index("--", at)
    return argv[:dashes], argv[dashes + 1 :]


def _wrong_usage(error: Any, words: list[str], commands: list[str]) -> int:
    if helping.command_of(words) == len(words) and "command" in str(error).lower():  # none was given
        sys.stderr.write(f"{error.ctx.get_help()}\n")
        return UsageError.exit_code
    return terminal.fail(helping.wrong_usage(error, words, commands))


def _bug(error: Exception, argv: list[str]) -> int:
    import traceback

    from gitckpt.git.repository import discover
    from gitckpt.store import log

    text = "".join(traceback.format_exception(error))
    hint = None
    try:
        path = log.append(discover(), f"gitckpt {__version__}: git ckpt {' '.join(argv)}\n{text}")
        hint = f"report it with what {path} ends with"
    except CkptError:
        sys.stderr.write(terminal.harmless_lines(text))
    line = " ".join(str(error).split())
    terminal.fail(CkptError(f"this is a bug in gitckpt: {type(error).__name__}: {line}", hint=hint))
    return BUG
