"""Start processes without `subprocess`, whose import takes too long for the hook."""

from __future__ import annotations

import os
import select
import time

from gitckpt.model.errors import CkptError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, NoReturn

# Variables that tie a process to one repository (`git rev-parse --local-env-vars`), except those of
# `git -c` settings. A call for another worktree would write into the caller's index.
LOCAL_VARIABLES = (
    *("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_PREFIX"),
    *("GIT_INTERNAL_SUPER_PREFIX", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_REFERENCE_BACKEND", "GIT_GRAFT_FILE"),
    *("GIT_SHALLOW_FILE", "GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE"),
)
_QUIET = {"LC_ALL": "C", "LANGUAGE": "C", "GIT_TERMINAL_PROMPT": "0"}
# Variables under which git fetches nothing, whatever the configuration says. A remote may be a
# command (`ext::`); git before 2.39.4 knows only GIT_ALLOW_PROTOCOL.
OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
LOCAL_ONLY = {"GIT_ALLOW_PROTOCOL": "file"}
MAY_FETCH = {"GIT_NO_LAZY_FETCH": "0"}  # over the protocols that the user allows
# git 2.39.4 and later print this before the error when GIT_NO_LAZY_FETCH is set.
_NO_LAZY_FETCH = "warning: lazy fetching disabled; some objects may not be available"
_CHUNK = 65536
_UNREADABLE = "copy packed-refs, delete that line, then list the missing objects: git ckpt verify"
# Importing `signal` for their names would cost the hook 6 ms.
_SIGKILL, _SIGPIPE, _SIGTERM = 9, 13, 15
# git's complaints about missing or damaged objects.
_DAMAGED = ("corrupt loose object", " (stored in ", "unable to read tree", "bad object", "bad tree")
SEE_DAMAGE = "see which objects are missing or damaged: git ckpt verify --contents"
# git's complaint about an object that a partial clone lacks, before the oid.
_PROMISED = "could not fetch "


def find_fetch_hint(complaint: str) -> str | None:
    oid = complaint.partition(_PROMISED)[2].partition(" ")[0]
    if not oid or "promisor remote" not in complaint:
        return None
    return f"gitckpt fetches no object to read it; fetch this one: git cat-file -e {oid}"


def describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


class GitError(CkptError):
    def __init__(
        self, command: Sequence[str], code: int, stderr: str, *, hint: str | None = None
    ) -> None:
        stripped_lines = (line.strip() for line in stderr.splitlines())
        lines = [line for line in stripped_lines if line and line != _NO_LAZY_FETCH]
        reason = "; ".join([*lines, describe_exit(code)] if code < 0 or not lines else lines)
        word_pairs = zip(["", *command], command, strict=False)
        arguments = (argument for previous_word, argument in word_pairs if previous_word != "-C")
        name = next((arg for arg in arguments if not arg.startswith("-") and "=" not in arg), "git")
        # git names the line of `packed-refs`.
        if hint is None and ("unexpected line in" in reason or "unterminated line in" in reason):
            hint = _UNREADABLE
        is_damaged = any(text in reason for text in _DAMAGED)
        hint = hint or find_fetch_hint(reason) or (SEE_DAMAGE if is_damaged else None)
        super().__init__(f"git {name} failed: {reason}", hint=hint)
        self.command = list(command)
        self.code = code
        self.stderr = stderr


class DeadlinePassed(GitError):
    """A git command missed its deadline and was killed with its process group."""


@dataclass(slots=True)
class ProcResult:
    """The output and exit code of a process; -9 means that signal 9 killed it."""

    code: int
    out: bytes
    err: bytes

    @property
    def error_text(self) -> str:
        return self.err.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace").strip()


def git_executable() -> str:
    return os.environ.get("GITCKPT_GIT") or "git"


def git_environment(
    extra: Mapping[str, str] | None = None, *, keep_local: bool = False
) -> dict[str, str]:
    """Return variables for a git process; omit GIT_DIR and such unless `keep_local`."""
    dropped_names = () if keep_local else LOCAL_VARIABLES
    variables = {name: value for name, value in os.environ.items() if name not in dropped_names}
    return {**variables, **_QUIET, **(extra or {})}


class Child:
    """A process with three pipes; with `own_group`, Ctrl-C does not reach the process."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], *, own_group: bool = False
    ) -> None:
        self.owner = os.getpid()
        self.argv = list(argv)
        self.has_ended = False
        self._buffer, self._offset = b"", 0
        self._errors = b""
        self.pid, self.stdin, self.stdout, self.stderr = _spawn(argv, env, own_group=own_group)
        self._poll = self._output_poll()

    def _output_poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self.stdout, select.POLLIN)
        poll.register(self.stderr, select.POLLIN)
        return poll

    def write_input(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.stdin, view) :]

    def read_output_line(self, patience: float | None = None) -> bytes:
        """Return the next line of output without its newline; b"" at the end.

        If no output comes for `patience` seconds, the stdin of the process is closed.
        """
        while (end := self._buffer.find(b"\n", self._offset)) < 0:
            if not self._fill_buffer(len(self._buffer) - self._offset + 1, patience):
                return b""  # also for a line that is cut off
        line = self._buffer[self._offset : end]
        self._offset = end + 1
        return line

    def read_output(self, size: int) -> bytes:
        """Return exactly `size` bytes of output, or fewer at the end of the output."""
        if len(self._buffer) - self._offset < size:
            self._fill_buffer(size)
        data = self._buffer[self._offset : self._offset + size]
        self._offset += len(data)
        if self._offset == len(self._buffer):  # a process that lives on must not hold large output
            self._buffer, self._offset = b"", 0
        return data

    def _fill_buffer(self, size: int, patience: float | None = None) -> bool:
        # Cuts the buffer only here: a copy for each line would be quadratic.
        parts = [self._buffer[self._offset :]]
        length = len(parts[0])
        while length < size and (chunk := self.receive(max(_CHUNK, size - length), patience)):
            parts.append(chunk)
            length += len(chunk)
        self._buffer, self._offset = b"".join(parts), 0
        return length >= size

    def receive(self, size: int, patience: float | None = None) -> bytes:
        """Wait for output and return at most `size` bytes; bypass the buffer."""
        # Reads standard error, too: with that pipe full, the process would block.
        while True:
            ready = self._poll.poll(None if patience is None or self.stdin < 0 else patience * 1000)
            if not ready:
                self._close_pipes("stdin")
            for fd, _ in ready:
                if fd == self.stdout:
                    return os.read(fd, size)
                chunk = os.read(fd, _CHUNK)
                self._errors = (self._errors + chunk)[-_CHUNK:]
                if not chunk:
                    self._poll.unregister(fd)

    def shrink_input_pipe(self, size: int) -> None:
        """Let the pipe hold only `size` bytes that the process has not read yet, on Linux."""
        import fcntl

        if hasattr(fcntl, "F_SETPIPE_SZ"):
            try:
                fcntl.fcntl(self.stdin, fcntl.F_SETPIPE_SZ, size)
            except OSError:  # only the progress is less exact
                pass

    def write_and_close_input(self, data: bytes) -> None:
        """Write `data` and close stdin; call `communicate` for the result."""
        try:
            self.write_input(data)
        except BrokenPipeError:
            pass  # it ended early; `communicate` returns why
        self._close_pipes("stdin")

    def communicate(
        self,
        data: bytes | Iterable[bytes] = b"",
        deadline: float | None = None,
        into: Callable[[bytes], object] | None = None,
        handle_errors: Callable[[bytes], object] | None = None,
    ) -> ProcResult:
        """Write `data`, close stdin, wait for the process, and return its output.

        At `deadline`, on the clock of `time.monotonic`, kills the process group and raises
        `DeadlinePassed`. If `into` is given, it receives the output in chunks, and none is
        returned. `handle_errors` receives each chunk of standard error, which is also returned.
        """
        output_chunks, error_chunks = [self._buffer[self._offset :]], [self._errors]
        parts = iter((data,) if isinstance(data, bytes) else data)
        unwritten_data = memoryview(next(parts, b""))
        poll = self._output_poll()
        if self.stdin >= 0:
            os.set_blocking(self.stdin, False)
            poll.register(self.stdin, select.POLLOUT)
            if not unwritten_data:
                self._close_input(poll)
        open_pipe_count = 2
        while open_pipe_count:
            timeout = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
            ready_fds = poll.poll(timeout)
            if not ready_fds:
                raise DeadlinePassed(self.argv[1:], self.kill_process_group(), "timed out")
            for fd, _ in ready_fds:
                if fd == self.stdin:
                    try:
                        unwritten_data = unwritten_data[os.write(fd, unwritten_data[:_CHUNK]) :]
                        unwritten_data = unwritten_data or memoryview(next(parts, b""))
                    except BrokenPipeError:
                        unwritten_data = memoryview(b"")
                    if not unwritten_data:
                        self._close_input(poll)
                    continue
                chunk = os.read(fd, _CHUNK)
                if chunk and into is not None and fd == self.stdout:
                    into(chunk)
                elif chunk:
                    (output_chunks if fd == self.stdout else error_chunks).append(chunk)
                    if handle_errors is not None and fd == self.stderr:
                        handle_errors(chunk)
                else:
                    poll.unregister(fd)
                    open_pipe_count -= 1
        return ProcResult(self.close(), b"".join(output_chunks), b"".join(error_chunks))

    def kill_process_group(self) -> int:
        try:
            os.killpg(self.pid, _SIGKILL)
        except ProcessLookupError:
            pass
        return self.close()

    def close(self) -> int:
        """Close the pipes, wait until the process ends, and return its exit code."""
        self._close_pipes("stdin", "stdout", "stderr")
        if self.owner != os.getpid() or self.has_ended:
            return 0
        self.has_ended = True
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            return 0

    def is_running(self) -> bool:
        try:
            self.has_ended = self.has_ended or os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            self.has_ended = True
        return not self.has_ended

    def terminate_and_close(self) -> None:
        self.terminate()  # closing is not enough: a forked process may hold the pipes open
        self.close()

    def terminate(self) -> None:
        """Send SIGTERM; call `close` later, when no thread uses the pipes."""
        if self.owner == os.getpid() and not self.has_ended:
            try:
                os.kill(self.pid, _SIGTERM)
            except ProcessLookupError:
                pass

    def close_output(self) -> None:
        """Send SIGTERM and close the output pipes; call `close` later."""
        self.terminate()
        self._close_pipes("stdout", "stderr")

    def _close_pipes(self, *names: str) -> None:
        for name in names:
            fd = getattr(self, name)
            setattr(self, name, -1)  # first: after an interrupt, `fd` may be reused
            if fd >= 0:
                os.close(fd)

    def _close_input(self, poll: select.poll) -> None:
        poll.unregister(self.stdin)
        self._close_pipes("stdin")


def run_program(
    argv: Sequence[str], *, data: bytes = b"", env: Mapping[str, str] | None = None
) -> ProcResult:
    return Child(argv, git_environment() if env is None else env).communicate(data)


def run_attached(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a program with this process's standard streams and return its exit code."""
    return wait_for_exit(start_attached(argv, env))


def start_attached(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Start a program with this process's standard streams and return its process id."""
    return _start_process(argv, env, setsigdef=[_SIGPIPE])


def start_reader(argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, int]:
    """Start a program with this process's output; return its pid and a pipe to its input."""
    read_end, write_end = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, read_end, 0)]
    try:
        pid = _start_process(argv, env, file_actions=actions, setsigdef=[_SIGPIPE])
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    return pid, write_end


def wait_for_exit(pid: int) -> int:
    """Wait for a process; return its exit code, or minus the number of a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def replace_by(program: str, argv: Sequence[str]) -> NoReturn:
    """Replace this process by a program, with its streams and environment."""
    import signal  # not needed otherwise, and takes time to import

    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; programs inherit that
        signal.signal(number, signal.SIG_DFL)
    os.execv(program, list(argv))  # noqa: S606 - the command of the user


def start_detached(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Start a program in a new session, without standard streams; do not wait for it."""
    # An open standard error would block readers of the output of `git commit`.
    null_actions = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    _start_process(argv, env, file_actions=null_actions, setsid=True)


def _spawn(
    argv: Sequence[str], env: Mapping[str, str], *, own_group: bool
) -> tuple[int, int, int, int]:
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    child_fds = (in_read, out_write, err_write)
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(child_fds)]
    options = {"setpgroup": 0} if own_group else {}
    try:
        pid = _start_process(argv, env, file_actions=actions, setsigdef=[_SIGPIPE], **options)
    except BaseException:
        for fd in (in_write, out_read, err_read):
            os.close(fd)
        raise
    finally:
        for fd in child_fds:
            os.close(fd)
    return pid, in_write, out_read, err_read


def _start_process(argv: Sequence[str], env: Mapping[str, str], **options: Any) -> int:
    try:
        return os.posix_spawnp(argv[0], list(argv), env, **options)
    except OSError as error:
        is_missing_program = isinstance(error, FileNotFoundError | PermissionError)
        hint = f"install {argv[0]}, or put it on PATH" if is_missing_program else None
        raise CkptError(f"cannot start {argv[0]}: {error.strerror}", hint=hint) from None
