"""What ends the command of a phase when its driver is killed: a shell that waits for our death.

Nobody can handle SIGKILL, and a command that outlives its driver would change files behind the back of the one that resumes. So a shell,
in a session of its own, reads from a pipe whose only writer we are. Each line says which process group runs now; at the end of file, when
we are dead, it kills the one named last.
"""

from __future__ import annotations

import fcntl
import os

from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

SHELL = "/bin/sh"

TRIES = 50
"""How often it looks whether the number of a leader that was waited for is free again, ten times a second."""

_SCRIPT = """
trap "" HUP INT TERM
cd /
last=
while read -r line; do last=$line; done
case $last in
"") exit ;;
leaderless*)
    # Whoever has the number is the old leader, whom init is about to reap, or somebody else who got it since.
    last=${last#leaderless }
    tries=0
    while kill -s 0 "$last"; do
        [ "$tries" -lt "$1" ] || exit
        tries=$((tries + 1))
        sleep 0.1
    done
    ;;
esac
kill -s KILL -- "-$last"
"""
_STANDARD_STREAMS = 3


class Watchdog:
    """Kills the process group that was named last, by SIGKILL, when this process is gone. Started when first needed; watches one at a time.

    Whoever makes it owns its process, and ends it: by `close`, or by leaving its `with`, as a driver does when it has driven. Those who
    get it from him only name groups.

    Attributes:
        pid: its process; 0 while there is none.
    """

    def __init__(self) -> None:
        self.pid = 0
        self._pipe = -1

    def watch(self, group: int) -> None:
        """Names the group to kill from now on.

        Args:
            group: its id. Its leader is alive, or was not waited for yet.

        Raises:
            CkptError: the watchdog cannot be started.
        """
        if not self._tell(f"{group}\n"):
            self.close()
            self._start()
            self._tell(f"{group}\n")

    def release_leader(self, group: int) -> None:
        """Says that the leader of the group is waited for from now on, so that the system may give its number to somebody else.

        What is left of the group is killed still; a process that has the number is spared, with its group.

        Args:
            group: the id that was given to `watch`.
        """
        self._tell(f"leaderless {group}\n")

    def forget(self) -> None:
        """Says that there is nothing to kill."""
        self._tell("\n")

    def close(self) -> None:
        """Ends the watchdog, which kills what was not forgotten, and waits for its end."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self.pid:
            pid, self.pid = self.pid, 0
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _tell(self, line: str) -> bool:
        """Returns whether there was a watchdog to be told."""
        if self._pipe < 0:
            return False
        try:
            os.write(self._pipe, line.encode())
        except BrokenPipeError:
            return False
        return True

    def _start(self) -> None:
        theirs, ours = make_pipe()
        actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [(os.POSIX_SPAWN_DUP2, theirs, 0)]
        actions += [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        argv = ["sh", "-c", _SCRIPT, "gitckpt-watchdog", str(TRIES)]
        try:
            self.pid = os.posix_spawn(SHELL, argv, {"PATH": os.defpath}, file_actions=actions, setsid=True, setsigmask=[])
            self._pipe = ours
        except OSError as error:
            raise CkptError(f"cannot start the watchdog of a command, {SHELL}: {error.strerror}", hint="see what runs: ps") from None
        finally:
            os.close(theirs)
            if self._pipe != ours:
                os.close(ours)


def make_pipe() -> tuple[int, int]:
    """Returns both ends of a pipe, reading end first. No child inherits them, and neither has the number of a standard stream.

    Where ours are closed, a pipe gets their numbers; given to a child as one of its streams, it would be overwritten by another.
    """
    return _above_standard(*os.pipe())


def _above_standard(*fds: int) -> tuple[int, int]:
    reading, writing = (fd if fd >= _STANDARD_STREAMS else fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STANDARD_STREAMS) for fd in fds)
    for fd in {*fds} - {reading, writing}:
        os.close(fd)
    return reading, writing
