"""The one place that starts processes.

Built on `posix_spawn` and `poll`: importing Python's `subprocess` alone would cost the hook as much as three git calls. `posix_spawn` has
no working directory, which suits git: it has `-C`.
"""

from __future__ import annotations

import os
import select
import time

from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import NoReturn

    FileAction = tuple[int, int, int] | tuple[int, int] | tuple[int, int, str, int, int]

LOCAL_VARIABLES = (
    *("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_PREFIX", "GIT_INTERNAL_SUPER_PREFIX"),
    *("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_REFERENCE_BACKEND"),
    *("GIT_GRAFT_FILE", "GIT_SHALLOW_FILE", "GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE"),
)
"""What ties a process to one repository (`git rev-parse --local-env-vars`), less the variables that carry `git -c` settings.
Left in place, they would make a call for another worktree write into the caller's index."""

_QUIET = {"LC_ALL": "C", "LANGUAGE": "C", "GIT_TERMINAL_PROMPT": "0"}

OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
"""Variables under which git fetches nothing, whatever its configuration says.

A remote may be a command (`ext::`), and git before 2.39.4 knows only the second one.
"""

LOCAL_ONLY = {"GIT_ALLOW_PROTOCOL": "file"}
"""Variables for a fetch from another repository on this machine."""

MAY_FETCH = {"GIT_NO_LAZY_FETCH": "0"}
"""Variables for a command that fetches on purpose, over the protocols that the user allows."""

_NO_LAZY_FETCH = "warning: lazy fetching disabled; some objects may not be available"
"""What git 2.39.4 and later say of `GIT_NO_LAZY_FETCH`, before the error."""

_CHUNK = 65536
_UNREADABLE = "git reads no ref until that line is taken out of the file; keep a copy, then see what is missing: git ckpt verify"
_SIGKILL, _SIGPIPE, _SIGTERM = 9, 13, 15  # importing `signal` for their names would cost the hook 6 ms


_DAMAGED = ("corrupt loose object", " (stored in ", "unable to read tree", "bad object", "bad tree object")
"""What git says of an object that is missing or damaged."""

SEE_DAMAGE = "see which objects are missing or damaged: git ckpt verify --contents"

_PROMISED = "could not fetch "
"""What git says of an object that a partial clone lacks, before its oid."""


def cure_of_promised(complaint: str) -> str | None:
    """Returns how to fetch an object that git lacks in a partial clone; None where it lacks none."""
    oid = complaint.partition(_PROMISED)[2].partition(" ")[0]
    if not oid or "promisor remote" not in complaint:
        return None
    return f"gitckpt fetches nothing to look at it; fetch it: git cat-file -e {oid}"


def ending(code: int) -> str:
    """Returns how a process ended that said nothing, by its exit code; a negative one names a signal."""
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


class GitError(CkptError):
    """A git command failed.

    Args:
        command: its arguments, without the executable and the options that name the repository.
        code: its exit code; negative for a signal.
        stderr: what it said.
    """

    def __init__(self, command: Sequence[str], code: int, stderr: str, *, hint: str | None = None) -> None:
        stripped = (line.strip() for line in stderr.splitlines())
        lines = [line for line in stripped if line and line != _NO_LAZY_FETCH]
        said = "; ".join([*lines, ending(code)] if code < 0 or not lines else lines)
        words = (word for before, word in zip(["", *command], command, strict=False) if before != "-C")
        name = next((word for word in words if not word.startswith("-") and "=" not in word), "git")
        if hint is None and ("unexpected line in" in said or "unterminated line in" in said):  # of `packed-refs`: it says in which
            hint = _UNREADABLE
        hint = hint or cure_of_promised(said) or (SEE_DAMAGE if any(text in said for text in _DAMAGED) else None)
        super().__init__(f"git {name} failed: {said}", hint=hint)
        self.command = list(command)
        self.code = code
        self.stderr = stderr


class DeadlinePassed(GitError):
    """A git command took longer than it was given; it was ended, with all it had started."""


class Completed:
    """A process that has ended.

    Attributes:
        code: exit code; the negated signal number where a signal ended it.
        out: standard output.
        err: standard error.
    """

    __slots__ = ("code", "err", "out")

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def complaint(self) -> str:
        """Standard error as text."""
        return self.err.decode("utf-8", "replace")


def git_executable() -> str:
    """Returns the git to call: `GITCKPT_GIT`, or "git" on PATH."""
    return os.environ.get("GITCKPT_GIT") or "git"


def environment(extra: Mapping[str, str] | None = None, *, keep_local: bool = False) -> dict[str, str]:
    """Returns the environment for a git process: untranslated, never asking a terminal, bound to no repository.

    Args:
        extra: variables to set.
        keep_local: whether the variables of `LOCAL_VARIABLES` stay, as they must while the repository is still being looked for.
    """
    env = dict(os.environ)
    if not keep_local:
        for name in LOCAL_VARIABLES:
            env.pop(name, None)
    env.update(_QUIET)
    if extra:
        env.update(extra)
    return env


class Child:
    """A process with pipes on standard input, output and error.

    Args:
        argv: program and arguments; the program is looked up on PATH.
        env: the whole environment.
        own_group: whether Ctrl-C in the terminal spares it, as it must where we go on after it ourselves.

    Attributes:
        has_ended: whether its end was waited for.

    Raises:
        CkptError: the program cannot be started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, own_group: bool = False) -> None:
        self.owner = os.getpid()
        self.argv = list(argv)
        self.has_ended = False
        self._buffer = b""
        self._errors = b""
        self.pid, self.stdin, self.stdout, self.stderr = _spawn(argv, env, own_group=own_group)
        self._poll = select.poll()
        self._poll.register(self.stdout, select.POLLIN)
        self._poll.register(self.stderr, select.POLLIN)

    def write(self, data: bytes) -> None:
        """Writes to its standard input.

        Raises:
            BrokenPipeError: it has ended.
        """
        view = memoryview(data)
        while view:
            view = view[os.write(self.stdin, view) :]

    def read_line(self, patience: float | None = None) -> bytes:
        """Returns the next line of its output without the newline; b"" at the end.

        Args:
            patience: after how many seconds without a word its input ends, for a program that then ends what it has begun, and itself.
        """
        while b"\n" not in self._buffer:
            chunk = self._receive(_CHUNK, patience)
            if not chunk:
                line, self._buffer = self._buffer, b""
                return line
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def read(self, size: int) -> bytes:
        """Returns exactly `size` bytes of its output, or fewer at its end."""
        parts = [self._buffer]
        have = len(self._buffer)
        while have < size:
            chunk = self._receive(max(_CHUNK, size - have))
            if not chunk:
                break
            parts.append(chunk)
            have += len(chunk)
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    def receive(self, size: int) -> bytes:
        """Returns what there is of its output, `size` bytes at most, once there is any; b"" at the end. Not for use beside `read`."""
        return self._receive(size)

    def feed(self, data: bytes) -> None:
        """Writes `data` and closes its input, for a program that reads everything before it says much; `communicate` waits for it."""
        try:
            self.write(data)
        except BrokenPipeError:
            pass  # it has ended early, and `communicate` returns why
        self._end_input()

    def communicate(
        self,
        data: bytes | Iterable[bytes] = b"",
        deadline: float | None = None,
        most: int | None = None,
        into: Callable[[bytes], object] | None = None,
    ) -> Completed:
        """Writes `data`, closes its input, and returns once it has ended, with all it said.

        Args:
            data: what it reads; if it comes in parts, none of them is empty.
            deadline: when to give up, on the clock of `time.monotonic`; it must have a group of its own then.
            most: after how many bytes of output it is ended, with what it has said by then. None for any number.
            into: is given its output as it comes, which is not returned then.

        Raises:
            DeadlinePassed: it was ended, with all it had started.
        """
        out, err = [self._buffer], [self._errors]
        parts = iter((data,) if isinstance(data, bytes) else data)
        pending = memoryview(next(parts, b""))
        poll = select.poll()
        poll.register(self.stdout, select.POLLIN)
        poll.register(self.stderr, select.POLLIN)
        if self.stdin >= 0:
            os.set_blocking(self.stdin, False)
            poll.register(self.stdin, select.POLLOUT)
            if not pending:
                self._close_input(poll)
        waiting, said = 2, 0
        while waiting:
            if most is not None and said > most:
                self.terminate()
                break
            left = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
            ready = poll.poll(left)
            if not ready:
                raise DeadlinePassed(self.argv[1:], self.kill_group(), "it took too long")
            for fd, _ in ready:
                if fd == self.stdin:
                    try:
                        pending = pending[os.write(fd, pending[:_CHUNK]) :] or memoryview(next(parts, b""))
                    except BrokenPipeError:
                        pending = memoryview(b"")
                    if not pending:
                        self._close_input(poll)
                    continue
                chunk = os.read(fd, _CHUNK)
                said += len(chunk)
                if chunk and into is not None and fd == self.stdout:
                    into(chunk)
                elif chunk:
                    (out if fd == self.stdout else err).append(chunk)
                else:
                    poll.unregister(fd)
                    waiting -= 1
        return Completed(self.close(), b"".join(out), b"".join(err))

    def kill_group(self) -> int:
        """Ends it and all it started by SIGKILL, and returns its exit code as `close` does. It must have a group of its own."""
        try:
            os.killpg(self.pid, _SIGKILL)
        except ProcessLookupError:
            pass
        return self.close()

    def close(self) -> int:
        """Closes its pipes, waits for its end, and returns its exit code."""
        for name in ("stdin", "stdout", "stderr"):
            fd = getattr(self, name)
            setattr(self, name, -1)  # first: an interrupt in between must not have somebody else's file closed later
            if fd >= 0:
                os.close(fd)
        if self.owner != os.getpid() or self.has_ended:
            return 0
        self.has_ended = True
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            return 0

    def is_running(self) -> bool:
        """Tells whether it has not ended; somebody may have killed it while it had nothing to do. It must be ours."""
        try:
            ended = os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            ended = True
        self.has_ended = self.has_ended or ended
        return not ended

    def stop(self) -> None:
        """Ends it now; a process forked from ours may still hold its pipes open, so that closing ours would not do."""
        self.terminate()
        self.close()

    def terminate(self) -> None:
        """Has it end now; `close` is still to come, once no other thread uses its pipes."""
        if self.owner == os.getpid() and not self.has_ended:
            try:
                os.kill(self.pid, _SIGTERM)
            except ProcessLookupError:
                pass

    def hang_up(self) -> None:
        """Has it end now, and whatever it started: what is still written to its output is read by nobody. `close` is still to come."""
        self.terminate()
        for name in ("stdout", "stderr"):
            fd = getattr(self, name)
            setattr(self, name, -1)
            if fd >= 0:
                os.close(fd)

    def _close_input(self, poll: select.poll) -> None:
        poll.unregister(self.stdin)
        self._end_input()

    def _end_input(self) -> None:
        fd, self.stdin = self.stdin, -1
        os.close(fd)

    def _receive(self, size: int, patience: float | None = None) -> bytes:
        """Returns more of its output, b"" at the end. Takes its complaints in as well: with their pipe full, it would wait for us."""
        while True:
            ready = self._poll.poll(None if patience is None or self.stdin < 0 else patience * 1000)
            if not ready:
                self._end_input()
            for fd, _ in ready:
                if fd == self.stdout:
                    return os.read(fd, size)
                said = os.read(fd, _CHUNK)
                self._errors = (self._errors + said)[-_CHUNK:]
                if not said:
                    self._poll.unregister(fd)


def run(argv: Sequence[str], *, data: bytes = b"", env: Mapping[str, str] | None = None) -> Completed:
    """Runs a program to its end.

    Args:
        argv: program and arguments.
        data: its standard input.
        env: the whole environment; by default `environment()`.

    Raises:
        CkptError: the program cannot be started.
    """
    return Child(argv, environment() if env is None else env).communicate(data)


def run_attached(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs a program on our own standard streams to its end, and returns its exit code as `Completed.code`.

    Raises:
        CkptError: the program cannot be started.
    """
    try:
        pid = os.posix_spawnp(argv[0], list(argv), env, setsigdef=[_SIGPIPE])
    except OSError as error:
        _cannot_start(argv[0], error)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def detach(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Starts a program in a session of its own, with all three streams on /dev/null, and does not wait for it.

    A background child that kept standard error open would make whoever reads the output of `git commit` wait for it.

    Raises:
        CkptError: the program cannot be started.
    """
    null: list[FileAction] = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    try:
        os.posix_spawnp(argv[0], list(argv), env, file_actions=null, setsid=True)
    except OSError as error:
        _cannot_start(argv[0], error)


def _spawn(argv: Sequence[str], env: Mapping[str, str], *, own_group: bool) -> tuple[int, int, int, int]:
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    theirs = (in_read, out_write, err_write)
    actions: list[FileAction] = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(theirs)]
    try:
        if own_group:
            pid = os.posix_spawnp(argv[0], list(argv), env, file_actions=actions, setsigdef=[_SIGPIPE], setpgroup=0)
        else:
            pid = os.posix_spawnp(argv[0], list(argv), env, file_actions=actions, setsigdef=[_SIGPIPE])
    except BaseException as error:
        for fd in (in_write, out_read, err_read):
            os.close(fd)
        if isinstance(error, OSError):
            _cannot_start(argv[0], error)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return pid, in_write, out_read, err_read


def _cannot_start(program: str, error: OSError) -> NoReturn:
    hint = f"install {program}, or put it on PATH" if isinstance(error, FileNotFoundError | PermissionError) else None
    raise CkptError(f"cannot start {program}: {error.strerror}", hint=hint) from None
