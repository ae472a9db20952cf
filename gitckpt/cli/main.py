"""Run a `git ckpt` command, and turn errors into messages and exit codes."""

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

# Errors that any program may get from the system; any other `OSError` is a bug.
_SYSTEM_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EISDIR, errno.ENOTDIR),
    *(errno.ENAMETOOLONG, errno.ELOOP),
)

# Texts of system errors, in Python's words or git's, and their cures.
_LOCKED = (".lock': File exists", "packed-refs.new: File exists", "could not lock config file")
_DENIED = ("ermission denied", "insufficient permission", os.strerror(errno.EROFS))
_NO_REASON = ("couldn't write", "couldn't set", "nable to write", "failed to write")
_CURES = {
    (*map(os.strerror, (errno.ENOSPC, errno.EDQUOT)), "Out of diskspace"): "make room on the disk",
    _DENIED: "make the file or directory writable",
    (os.strerror(errno.EIO),): "check the disk: dmesg",
    tuple(map(os.strerror, (errno.EMFILE, errno.ENFILE))): "allow more open files (ulimit -n 1024)",
    _LOCKED: "see which process has the lock: git ckpt doctor; remove a stale lock",
    _NO_REASON: "check the disk and its free space",  # git does not say why
}

_DONE = "the command has done its work, only its output is lost; see: git ckpt list"
_KILLED = "git was killed; nothing is damaged: run the command again"
_AGAIN = "run the command again; if it fails again: git ckpt doctor"


def run(argv: list[str] | None = None) -> int:
    """Run a command; return its exit code, such as 0, 1 (failed), 2 (usage), 3 (bug)."""
    _prepare_standard_streams()
    argv = sys.argv[1:] if argv is None else argv
    digit_limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # a state may hold integers of any size
    try:
        return _run_and_report(argv)
    finally:
        sys.set_int_max_str_digits(digit_limit)


def _run_and_report(argv: list[str]) -> int:
    try:
        words = quick.expand_limit(argv)
        run_command = quick.prepare_command_call(words)
        if run_command is not None:
            exit_code = run_command() or 0
        else:
            from gitckpt.cli.parser import app

            exit_code = app.run_with_typer(words)
        sys.stdout.flush()
        return exit_code
    except CkptError as error:
        hint = (
            _find_sandbox_cure(error.message)
            or error.hint
            or _find_cure_for_error(error.message)
            or _git_hint(error)
        )
        return terminal.print_error(error if hint == error.hint else error.but(hint=hint))
    except KeyboardInterrupt:
        terminal.print_explanation("")
        return 130
    except BrokenPipeError:  # a reader such as `head` has closed the output
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in _SYSTEM_ERRORS:
            return _report_bug(error, argv)
        _discard_output()
        if _is_output_error(error):
            message = f"cannot write the output: {error.strerror}"
            return terminal.print_error(CkptError(message, hint=_DONE))
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        hint = _find_sandbox_cure(message) or _find_cure_for_error(message) or _AGAIN
        return terminal.print_error(CkptError(message, hint=hint))
    except Exception as error:  # noqa: BLE001 - the last handler: a bug
        return _report_bug(error, argv)


def _find_cure_for_error(message: str) -> str | None:
    if "killed by signal" in message:
        return _KILLED
    for system_texts, cure in _CURES.items():
        if any(system_text in message for system_text in system_texts):
            return f"{cure}, and run the command again"
    return None


def _find_sandbox_cure(message: str) -> str | None:
    has_sandbox = any(variable.startswith("CODEX_SANDBOX") for variable in os.environ)
    if os.strerror(errno.EROFS) not in message or not has_sandbox:
        return None
    from gitckpt.git.repository import discover_repository
    from gitckpt.model.arguments import shell_quoted

    try:
        git_dir = discover_repository().common_dir
    except CkptError:
        git_dir = "/PATH/TO/.git"
    option = shell_quoted(f'sandbox_workspace_write.writable_roots=["{git_dir}"]')
    problem = "Codex's sandbox makes the repository read-only"
    return f"{problem}; run: codex exec --sandbox workspace-write -c {option} …"


def _git_hint(error: CkptError) -> str | None:
    from gitckpt.git.process import GitError  # imported here: --version needs no git

    if not isinstance(error, GitError):
        return None
    return _KILLED if error.code < 0 else _AGAIN


def _prepare_standard_streams() -> None:
    # A closed stream becomes the null device, as in git. Otherwise a file that gitckpt opens would
    # get the number to which child processes write their errors.
    for name in ("stdin", "stdout", "stderr"):  # by number: a file gets the lowest free one
        if getattr(sys, name) is None:
            null_device = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null_device, True)
            setattr(sys, name, open(null_device, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115 - until exit
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_output_error(error: OSError) -> bool:
    # The module that raised the error decides: output is written when all else is done.
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    output_modules = (terminal.__name__, __name__)
    return innermost is not None and innermost.tb_frame.f_globals["__name__"] in output_modules


def _discard_output() -> None:
    try:
        null_device = os.open(os.devnull, os.O_WRONLY)
    except OSError:
        return  # too many files are open, and the error was printed
    # Otherwise Python fails again when it flushes at exit.
    os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)


def _report_bug(error: Exception, argv: list[str]) -> int:
    from gitckpt.cli.parser.commands import COMMANDS
    from gitckpt.git.repository import discover_repository
    from gitckpt.store import error_log

    hint = "report this bug with the traceback above"
    try:
        # Without arguments: they may be private.
        command = next((argument for argument in argv if argument in COMMANDS), "…")
        entry = f"gitckpt {__version__}: git ckpt {command}\n{error_log.format_traceback(error)}"
        log_path = error_log.append_to_log(discover_repository(), entry)
        hint = f"report this bug with the end of the log {log_path}"
    except CkptError:
        import traceback

        terminal.print_explanation("".join(traceback.format_exception(error)).rstrip())
    line = f"{type(error).__name__}: {' '.join(str(error).split())}"
    terminal.print_error(CkptError(f"this is a bug in gitckpt: {line}", hint=hint))
    return BUG
