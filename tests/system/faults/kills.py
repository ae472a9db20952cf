"""Send SIGKILL at a system call, at a call of git, or at any moment.

The first two kill gitckpt or one git process; the last kills all processes together.
"""

from __future__ import annotations

from tests.system.faults import processes
from tests.system.faults.fault import Fault, MakePlace
from tests.system.faults.operation import Ended, Operation, Place
from tests.system.kills.killer import Positions

KILL = "signal=KILL"
_TOGETHER = 0.7
"""Seconds within which nearly every operation ends."""


def _own(operation: Operation, make: MakePlace) -> list[str]:
    """Name the process's system calls, and the positions at its calls of git.

    The positions are before and after each call, and between the refs of a transaction.
    """
    place = make()
    named = [f"write/{change.call}" for change in processes.traced(place, operation.command(place))]
    place = make()
    positions = Positions(place.top / "positions")
    ended = processes.run(place, operation.command(place), env=_positioned(place, positions, 0))
    if ended.code:
        raise AssertionError(f"undisturbed, {operation.name} ended with {ended.code}: {ended.err}")
    return [*named, *(f"git/{number}" for number in range(1, positions.count() + 1))]


def _positioned(place: Place, positions: Positions, at: int) -> dict[str, str]:
    return {**positions.env(at), "PATH": place.env["PATH"]}


def _kill(place: Place, operation: Operation, instant: str) -> Ended:
    kind, _, which = instant.partition("/")
    command = operation.command(place)
    if kind == "write":
        ended = processes.run(place, processes.struck(command, which, KILL))
    elif kind == "git":
        ended = processes.run(
            place, command, env=_positioned(place, Positions(place.top / "positions"), int(which))
        )
    else:
        ended = processes.run(place, command, kill_after=float(which))
    return Ended(None, ended.out, ended.err) if ended.code == -9 else ended


def _moment(chance: float) -> str:
    return f"together/{chance * _TOGETHER:.4f}"


KILLS = Fault(
    "kills", _own, _kill, quick=300, long=8000, obstacle=processes.can_trace, drawn=_moment
)


def _of_git(operation: Operation, make: MakePlace) -> list[str]:
    """Name each system call of each git process, and its start."""
    place = make()
    calls = processes.GitCalls(place).traced(operation.command(place))
    return [
        f"{number}/{call}"
        for number, made in enumerate(calls, 1)
        for call in ("start", *(change.call for change in made))
    ]


def _kill_git(place: Place, operation: Operation, instant: str) -> Ended:
    number, _, call = instant.partition("/")
    return processes.GitCalls(place).run(
        operation.command(place), int(number), "" if call == "start" else call, KILL
    )


GIT_KILLED = Fault(
    "git-killed", _of_git, _kill_git, quick=200, long=2000, obstacle=processes.can_trace
)
