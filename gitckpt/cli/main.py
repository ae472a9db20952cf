"""Runs `git ckpt`, and is the one place where its errors end."""

from __future__ import annotations

import errno
import io
import os
import sys

from gitckpt import __version__
from gitckpt.cli import terminal
from gitckpt.cli.parser import quick
from gitckpt.model.errors import CkptError

BUG = 3
_INTERRUPTED = 130

_STREAMS = ("stdin", "stdout", "stderr")
"""In the order of their numbers: who opens a file gets the lowest one that is free."""

_NOT_OURS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP),
)
"""What the system may refuse to any program; any other such error is a case that we should have foreseen."""


_CURES = (
    ((os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "Out of diskspace"), "make room on the disk"),
    (("ermission denied", "insufficient permission", os.strerror(errno.EROFS)), "make it writable for you"),
    ((os.strerror(errno.EIO),), "see whether the disk is sound (dmesg says what it complained of)"),
    ((os.strerror(errno.EMFILE), os.strerror(errno.ENFILE)), "let more files be open (ulimit -n 1024)"),
    (
        (".lock': File exists", "packed-refs.new: File exists", "could not lock config file"),
        "see whose the lock is, or whether it was left: git ckpt doctor; remove it",
    ),
    # git does not say why.
    (("couldn't write", "couldn't set", "nable to write", "failed to write"), "see whether there is room on the disk, and it is sound"),
)
"""What the system says, in our words or git's, and what helps."""

_DONE = "what was recorded or changed by then is: git ckpt list shows it; see to where the output goes"
_KILLED = "git was killed, and no harm is done: run the command again"
_AGAIN = "run the command again; if it fails again, see what is wrong: git ckpt doctor"


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
    try:
        code = _perform(argv)
        sys.stdout.flush()
        return code
    except CkptError as error:
        hint = _sandbox_cure(error.message) or error.hint or _cure(error.message) or _next(error)
        return terminal.fail(error if hint == error.hint else error.but(hint=hint))
    except KeyboardInterrupt:
        terminal.explain("")
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does.
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in _NOT_OURS:
            return _bug(error, argv)
        if _is_of_output(error):
            _discard_output()
            return terminal.fail(CkptError(f"cannot write the output: {error.strerror}", hint=_DONE))
        _discard_output()
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        return terminal.fail(CkptError(message, hint=_sandbox_cure(message) or _cure(message) or _AGAIN))
    except Exception as error:  # noqa: BLE001 - the end of the line: what nobody foresaw
        return _bug(error, argv)


def _perform(argv: list[str]) -> int:
    call = quick.call_of(argv)
    if call is not None:
        return call() or 0
    from gitckpt.cli.parser import app

    return app.perform(argv)


def _cure(message: str) -> str | None:
    """Returns what helps against what the system refused, in our words or git's."""
    if "killed by signal" in message:
        return _KILLED
    for reasons, cure in _CURES:
        if any(reason in message for reason in reasons):
            return f"{cure}, and run the command again"
    return None


def _sandbox_cure(message: str) -> str | None:
    """Returns what helps where the sandbox of Codex keeps the repository from being written, which no permission cures."""
    if os.strerror(errno.EROFS) not in message or not any(name.startswith("CODEX_SANDBOX") for name in os.environ):
        return None
    from gitckpt.git.repository import discover
    from gitckpt.model.arguments import shell_word

    try:
        place = discover().common_dir
    except CkptError:
        place = "/PATH/TO/.git"
    option = shell_word(f'sandbox_workspace_write.writable_roots=["{place}"]')
    return f"Codex's sandbox keeps it read-only: codex exec --sandbox workspace-write -c {option} …"


def _next(error: CkptError) -> str | None:
    """Returns what to do after git failed at something for a reason that nobody foresaw, or was killed."""
    from gitckpt.git.process import GitError  # here, as --version needs nothing of git

    if not isinstance(error, GitError):
        return None
    return _KILLED if error.code < 0 else _AGAIN


def _prepare_streams() -> None:
    """Escapes what a terminal's character set lacks: an old locale is no reason to end in the middle of a listing.

    In the place of a stream that was closed comes the null device, as with git: a daemon saves like anybody else, and no file of ours gets
    the number that what we start writes its errors to.
    """
    for name in _STREAMS:
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)
            setattr(sys, name, open(null, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115 - as long as we live
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_of_output(error: OSError) -> bool:
    """Tells whether an error is that of writing standard output, by who raised it: it is written when all else is done."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and at.tb_frame.f_globals["__name__"] in (terminal.__name__, __name__)


def _discard_output() -> None:
    """Lets go of what standard output still holds: Python must not fail anew when it flushes at its end."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
    except OSError:
        return  # too many files are open: what has failed was said
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _bug(error: Exception, argv: list[str]) -> int:
    from gitckpt.git.repository import discover
    from gitckpt.store import log

    hint = None
    try:
        path = log.append(discover(), f"gitckpt {__version__}: git ckpt {_command(argv)}\n{log.trace(error)}")
        hint = f"report it with what {path} ends with"
    except CkptError:
        import traceback

        terminal.explain("".join(traceback.format_exception(error)).rstrip())
    line = " ".join(str(error).split())
    terminal.fail(CkptError(f"this is a bug in gitckpt: {type(error).__name__}: {line}", hint=hint))
    return BUG


def _command(argv: list[str]) -> str:
    """Returns the name of the command that was called, without a word of what it was called with."""
    from gitckpt.cli.parser.commands import COMMANDS

    return next((word for word in argv if word in COMMANDS), "…")
