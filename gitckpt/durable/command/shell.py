"""The shell of a phase's command: started in a process group of its own, held at a gate, and seen to end without being waited for."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

from gitckpt.durable.command.watchdog import SHELL, make_pipe
from gitckpt.model.errors import CkptError

_GATE = f'read -r GITCKPT_GO && cd -P -- "$2" || exit 125; unset OLDPWD; exec {SHELL} -c "$1" </dev/null'
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class Shell:
    """A shell that runs a command once it may, with nothing on standard input, and all that it says on one pipe.

    It waits at a gate, so that others can know of it before the command does anything. If we die before, it leaves with exit code 125.

    Args:
        command: what it runs.
        directory: where.
        env: its whole environment.

    Attributes:
        pid: its process, which leads a group by this number.
        pipe: where its output is read.
        end: a file descriptor that is readable once it has ended; -1 where the system offers none, and `has_ended` has to be asked.

    Raises:
        CkptError: it cannot be started.
    """

    def __init__(self, command: str, directory: str, env: Mapping[str, str]) -> None:
        # A relative directory would be looked for along CDPATH.
        argv = ["sh", "-c", _GATE, "sh", command, os.path.join(os.getcwd(), directory)]
        self.pid, self._gate, self.pipe = _start(argv, env)
        self.end = -1
        if sys.platform == "darwin":
            self._queue = select.kqueue()
            self.end = self._queue.fileno()
            event = select.kevent(self.pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, select.KQ_NOTE_EXIT)
            self._queue.control([event], 0)
        elif hasattr(os, "pidfd_open"):
            try:
                self.end = os.pidfd_open(self.pid)
            except OSError:
                pass  # an old kernel, or a container that forbids it

    def go(self) -> None:
        """Opens the gate."""
        try:
            os.write(self._gate, b"\n")
        except BrokenPipeError:
            pass  # somebody killed it already
        os.close(self._gate)
        self._gate = -1

    def has_ended(self) -> bool:
        """Returns whether it has ended; it is not waited for, so that its number stays taken. Only to be asked where there is no `end`."""
        if sys.platform == "darwin":
            return False
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def close(self) -> None:
        """Closes our ends of its pipes, and what tells of its end."""
        for fd in (self._gate, self.pipe):
            if fd >= 0:
                os.close(fd)
        self._gate = self.pipe = -1
        if sys.platform == "darwin":
            self._queue.close()
        elif self.end >= 0:
            os.close(self.end)
            self.end = -1


def _start(argv: list[str], env: Mapping[str, str]) -> tuple[int, int, int]:
    """Returns the pid, our end of the pipe it waits at, and our end of the one it writes to.

    A signal whose handler raises at this moment loses the pid; the shell then finds its gate closed, and leaves.
    """
    gate_read, gate = make_pipe()
    pipe, pipe_write = make_pipe()
    actions = [(os.POSIX_SPAWN_DUP2, gate_read, 0), (os.POSIX_SPAWN_DUP2, pipe_write, 1), (os.POSIX_SPAWN_DUP2, pipe_write, 2)]
    try:
        pid = os.posix_spawn(SHELL, argv, env, file_actions=actions, setpgroup=0, setsigdef=_RESET, setsigmask=[])
    except BaseException as error:
        os.close(gate)
        os.close(pipe)
        if isinstance(error, OSError | ValueError):
            _cannot_start(error)
        raise
    finally:
        os.close(gate_read)
        os.close(pipe_write)
    return pid, gate, pipe


def _cannot_start(error: OSError | ValueError) -> NoReturn:
    if isinstance(error, ValueError):
        raise CkptError(f"cannot start the command: {error}", hint="take that out of the command or its environment") from None
    hint = "put the command into a script, and call that" if error.errno == errno.E2BIG else "see what runs already: ps"
    raise CkptError(f"cannot start the command: {error.strerror}", hint=hint) from None
