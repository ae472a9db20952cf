"""The driver's side of the supervisor, which starts and ends commands.

No process can handle SIGKILL, and a command that outlives its driver would change files under the
next attempt. So the parent of all commands is a process that waits for the driver's death.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import time
from collections.abc import Mapping
from typing import Any, Self

from gitckpt.durable.command import process_tree, supervisor
from gitckpt.durable.command.env_tag import WATCHDOG_VARIABLE, EnvTag
from gitckpt.model.errors import CkptError

_CHUNK = 65536
_FIRST_FREE = 5
_DYING = 3.0
_TICK = 1000
_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


class SupervisorEnded(Exception):
    """The supervisor ended unexpectedly."""


class Watchdog:
    """Starts commands, one at a time, and ends them when this process dies.

    The supervisor starts with the first command. The driver that creates a `Watchdog` ends the
    supervisor by `close` or by leaving the `with`; others only run commands with it.
    """

    def __init__(self, tag: EnvTag) -> None:
        self.tag = tag  # by which a later attempt finds the commands
        self.pid = 0  # of the supervisor
        self.output = self.reports = self._orders = -1
        self._unread = b""
        self._used_at = time.monotonic()
        self._is_busy = False

    def prepare(self) -> None:
        """Start the supervisor if it does not run; raise CkptError on failure."""
        self.abandon()
        if self._orders < 0 or self._has_ended():
            self.close()
            self._start()

    def abandon(self) -> None:
        """End a command whose start was interrupted, with the supervisor."""
        if self._is_busy:
            self.close()

    def launch(self, command: str, directory: str, env: Mapping[str, str]) -> None:
        """Start a command in `/bin/sh` with the tag; may raise `SupervisorEnded`."""
        order = _start_order(command, directory, {**env, **self.tag.variables})
        self.prepare()
        drain(self.output)
        self._is_busy = True  # an interrupt may leave half an order or an unread report
        self._order(order)
        while b"\n" not in self._unread:
            if _is_readable(self.reports, _TICK):
                self._receive()
            else:
                self.wake()
        line, _, self._unread = self._unread.partition(b"\n")
        verb, *words = line.decode(errors="replace").split(" ", 3)
        if verb == "error":
            self._is_busy = False
            place, code, text = words
            raise _cannot_start(text, int(code), directory if place == "directory" else "")

    def send(self, number: int) -> None:
        self._order(b"signal %d\n" % number)

    def kill(self) -> None:
        self._order(b"kill\n")

    def wake(self) -> None:
        """Continue a supervisor that a command stopped by `kill -STOP $PPID`."""
        self._used_at = time.monotonic()
        if self.pid:  # an unreaped child, so the number is not reused
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)

    @property
    def idle_seconds(self) -> float:
        return time.monotonic() - self._used_at

    def read_reports(self) -> list[str]:
        """Return pending reports, `ended CODE` or `alone`; may raise `SupervisorEnded`."""
        if _is_readable(self.reports):
            self._receive()
        *lines, self._unread = self._unread.split(b"\n")
        self._is_busy = self._is_busy and b"alone" not in lines
        return [line.decode() for line in lines]

    def close(self) -> None:
        """End the supervisor and the remains of a command, in a few seconds at most."""
        self.wake()
        for fd in (self._orders, self.output, self.reports):
            if fd >= 0:
                os.close(fd)
        self._orders = self.output = self.reports = -1
        self._unread, self._is_busy = b"", False
        until, pause = time.monotonic() + supervisor.GRACE + _DYING, 0.001
        while not self._has_ended() and time.monotonic() < until:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        self.pid = 0  # leave a live one, so that the next attempt finds its descendants

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _has_ended(self) -> bool:
        try:
            if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
                self.pid = 0
        except ChildProcessError:
            self.pid = 0
        return not self.pid

    def _order(self, order: bytes) -> None:
        self.wake()
        view = memoryview(order)
        try:
            while view and self._orders >= 0:
                view = view[os.write(self._orders, view) :]
        except BrokenPipeError:
            raise SupervisorEnded from None
        if view:
            raise SupervisorEnded

    def _receive(self) -> None:
        self._used_at = time.monotonic()
        chunk = os.read(self.reports, _CHUNK) if self.reports >= 0 else b""
        if not chunk:
            raise SupervisorEnded
        self._unread += chunk

    def _start(self) -> None:
        child_orders, orders = _make_pipe()
        output, child_output = _make_pipe()
        reports, child_reports = _make_pipe()
        fds = (child_orders, child_output, child_output, child_reports, output)
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)]
        tag = self.tag.variables
        env = {**os.environ, **tag, WATCHDOG_VARIABLE: process_tree.own_name()}
        argv = supervisor.arguments(tag)
        # A new group: Ctrl-C is for the driver. The driver's session: ssh asks on its terminal.
        options: dict[str, Any] = {"setpgroup": 0, "setsigdef": _DEFAULT, "setsigmask": []}
        try:
            self.pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, **options)
        except OSError as error:
            for fd in (orders, output, reports):
                os.close(fd)
            program = argv[0] or "Python"
            problem = f"cannot start the watchdog of a command, {program}: {error.strerror}"
            raise CkptError(problem, hint="look for too many processes: ps") from None
        finally:
            for fd in (child_orders, child_output, child_reports):
                os.close(fd)
        self._orders, self.output, self.reports = orders, output, reports


def _is_readable(fd: int, milliseconds: int = 0) -> bool:
    poll = select.poll()  # `select` refuses file descriptors above 1023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(milliseconds))


def drain(fd: int) -> bytes:
    """Return the content of a pipe whose writers have ended."""
    data = b""
    while _is_readable(fd) and (chunk := os.read(fd, _CHUNK)):
        data += chunk
    return data


def _make_pipe() -> tuple[int, int]:
    # With closed standard streams, a pipe would get their numbers, and be overwritten in a child
    # that gets it as a stream: use numbers above those of the supervisor.
    pipe = os.pipe()
    reading, writing = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for fd in pipe)
    for fd in pipe:
        os.close(fd)
    return reading, writing


def _start_order(command: str, directory: str, env: Mapping[str, str]) -> bytes:
    # The supervisor has another current directory, so the path must be absolute.
    parts = [command, os.path.join(os.getcwd(), directory)]
    parts += [f"{name}={value}" for name, value in env.items() if name not in ("PWD", "OLDPWD")]
    if any("\0" in part for part in parts):
        raise _cannot_start("embedded null byte")
    if any("=" in name or not name for name in env):
        raise _cannot_start("illegal environment variable name")
    try:
        order = b"\0".join(map(os.fsencode, parts))
    except UnicodeEncodeError as error:
        raise _cannot_start(str(error)) from None
    return b"start %d\n%b" % (len(order), order)


def _cannot_start(text: str, code: int = 0, directory: str = "") -> CkptError:
    problem = f"cannot start the command: {text}"
    if directory:
        problem = f"cannot run a command in {directory}: {text}"
        hint = "open the worktree again: git ckpt resume"
    elif not code:
        hint = "remove that from the command or its environment"
    elif code == errno.E2BIG:
        hint = "put the command into a script, and call that"
    else:
        hint = "look for too many processes: ps"
    return CkptError(problem, hint=hint)
