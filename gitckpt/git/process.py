"""The only module that starts processes.

It uses `posix_spawn` and `poll`: importing `subprocess` would cost the hook as much as three git
calls. `posix_spawn` cannot set a working directory; git has `-C`.
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

# Variables that tie a process to one repository (`git rev-parse --local-env-vars`), except those of
# `git -c` settings. A call for another worktree would write into the caller's index.
LOCAL_VARIABLES = (
    *("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_PREFIX", "GIT_INTERNAL_SUPER_PREFIX"),
    *("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_REFERENCE_BACKEND"),
    *("GIT_GRAFT_FILE", "GIT_SHALLOW_FILE", "GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE"),
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
_UNREADABLE = "git reads no ref until that line is taken out of the file; keep a copy, then see what is missing: git ckpt verify"
_SIGKILL, _SIGPIPE, _SIGTERM = 9, 13, 15  # importing `signal` for their names would cost the hook 6 ms

# git's complaints about missing or damaged objects.
_DAMAGED = ("corrupt loose object", " (stored in ", "unable to read tree", "bad object", "bad tree object")

SEE_DAMAGE = "see which objects are missing or damaged: git ckpt verify --contents"

# git's complaint about an object that a partial clone lacks, before the oid.
_PROMISED = "could not fetch "


def cure_of_promised(complaint: str) -> str | None:
    oid = complaint.partition(_PROMISED)[2].partition(" ")[0]
    if not oid or "promisor remote" not in complaint:
        return None
    return f"gitckpt fetches nothing to look at it; fetch it: git cat-file -e {oid}"


def ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"


class GitError(CkptError):
    """A git command failed; a negative `code` is a signal."""

    def __init__(self, command: Sequence[str], code: int, stderr: str, *, hint: str | None = None) -> None:
        stripped = (line.strip() for line in stderr.splitlines())
        lines = [line for line in stripped if line and line != _NO_LAZY_FETCH]
        said = "; ".join([*lines, ending(code)] if code < 0 or not lines else lines)
        words = (word for before, word in zip(["", *command], command, strict=False) if before != "-C")
        name = next((word for word in words if not word.startswith("-") and "=" not in word), "git")
        if hint is None and ("unexpected line in" in said or "unterminated line in" in said):  # git names the line of `packed-refs`
            hint = _UNREADABLE
        hint = hint or cure_of_promised(said) or (SEE_DAMAGE if any(text in said for text in _DAMAGED) else None)
        super().__init__(f"git {name} failed: {said}", hint=hint)
        self.command = list(command)
        self.code = code
        self.stderr = stderr


class DeadlinePassed(GitError):
    """A git command exceeded its deadline; it was killed with its process group."""


class Completed:
    """The result of a process; a negative `code` is a signal."""

    __slots__ = ("code", "err", "out")

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def complaint(self) -> str:
        return self.err.decode("utf-8", "replace")


def git_executable() -> str:
    return os.environ.get("GITCKPT_GIT") or "git"


def environment(extra: Mapping[str, str] | None = None, *, keep_local: bool = False) -> dict[str, str]:
    """Return the environment of a git process: no translations, prompts, repository.

    `keep_local` keeps `LOCAL_VARIABLES`, as while git still looks for the repository.
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

    Its own group spares it Ctrl-C in the terminal. `has_ended`: it was waited for.
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
        view = memoryview(data)
        while view:
            view = view[os.write(self.stdin, view) :]

    def read_line(self, patience: float | None = None) -> bytes:
        """Return the next line of output without the newline; b"" at the end.

        After `patience` seconds without output, close its input, so that it finishes and ends.
        """
        while b"\n" not in self._buffer:
            chunk = self.receive(_CHUNK, patience)
            if not chunk:
                line, self._buffer = self._buffer, b""
                return line
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes of output, or fewer at its end."""
        parts = [self._buffer]
        have = len(self._buffer)
        while have < size:
            chunk = self.receive(max(_CHUNK, size - have))
            if not chunk:
                break
            parts.append(chunk)
            have += len(chunk)
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    def receive(self, size: int, patience: float | None = None) -> bytes:
        """Return at most `size` bytes of output; do not mix with `read`, which buffers."""
        # Reads standard error, too: with that pipe full, the process would block.
        while True:
            ready = self._poll.poll(None if patience is None or self.stdin < 0 else patience * 1000)
            if not ready:
                self._end_input()
            for fd, _ in ready:
                if fd == self.stdout:
                    return os.read(fd, size)
                chunk = os.read(fd, _CHUNK)
                self._errors = (self._errors + chunk)[-_CHUNK:]
                if not chunk:
                    self._poll.unregister(fd)

    def feed(self, data: bytes) -> None:
        """Write `data` and close the input; call `communicate` for the result."""
        try:
            self.write(data)
        except BrokenPipeError:
            pass  # it ended early; `communicate` returns why
        self._end_input()

    def communicate(
        self,
        data: bytes | Iterable[bytes] = b"",
        deadline: float | None = None,
        most: int | None = None,
        into: Callable[[bytes], object] | None = None,
    ) -> Completed:
        """Write `data`, close the input, and return all output once the process has ended.

        Parts of an iterable `data` must not be empty. `deadline`: on the clock of `time.monotonic`;
        requires a group of its own, which is killed. `most`: bytes of output after which to end it
        and return what was read. `into` receives standard output in chunks instead.
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
        waiting, received = 2, 0
        while waiting:
            if most is not None and received > most:
                self.terminate()
                break
            timeout = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
            ready = poll.poll(timeout)
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
                received += len(chunk)
                if chunk and into is not None and fd == self.stdout:
                    into(chunk)
                elif chunk:
                    (out if fd == self.stdout else err).append(chunk)
                else:
                    poll.unregister(fd)
                    waiting -= 1
        return Completed(self.close(), b"".join(out), b"".join(err))

    def kill_group(self) -> int:
        try:
            os.killpg(self.pid, _SIGKILL)
        except ProcessLookupError:
            pass
        return self.close()

    def close(self) -> int:
        """Close its pipes, wait for its end, and return its exit code."""
        for name in ("stdin", "stdout", "stderr"):
            fd = getattr(self, name)
            setattr(self, name, -1)  # first: after an interrupt, `fd` may be reused
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
        try:
            ended = os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            ended = True
        self.has_ended = self.has_ended or ended
        return not ended

    def stop(self) -> None:
        self.terminate()  # closing is not enough: a forked process may hold the pipes open
        self.close()

    def terminate(self) -> None:
        """Send SIGTERM; call `close` once no other thread uses its pipes."""
        if self.owner == os.getpid() and not self.has_ended:
            try:
                os.kill(self.pid, _SIGTERM)
            except ProcessLookupError:
                pass

    def hang_up(self) -> None:
        """Send SIGTERM and close its output, also for its children; `close` is still due."""
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


def run(argv: Sequence[str], *, data: bytes = b"", env: Mapping[str, str] | None = None) -> Completed:
    return Child(argv, environment() if env is None else env).communicate(data)


def run_attached(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a program on this process's own streams and return its exit code."""
    try:
        pid = os.posix_spawnp(argv[0], list(argv), env, setsigdef=[_SIGPIPE])
    except OSError as error:
        _cannot_start(argv[0], error)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def detach(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Start a program in a new session, with all streams on /dev/null; do not wait."""
    # An open standard error would block readers of the output of `git commit`.
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
