"""Set the clock back or forward before or during an operation."""

from __future__ import annotations

import os
import time

from tests.system.faults import processes
from tests.system.faults.fault import Fault, MakePlace
from tests.system.faults.operation import CKPT, Ended, Operation, Place

_DAY = 86400
_BY = {"a-day": _DAY, "ten-years": 3653 * _DAY}
_LOOKS = (0, 1, 2, 3, 5, 8)
"""The number of calls after which the clock jumps; with 0, it is always wrong."""

_JUMPING = """
import sys, time
by, after = int(sys.argv.pop(1)), int(sys.argv.pop(1))
true, true_ns, looks = time.time, time.time_ns, [0]
def off():
    looks[0] += 1
    return by if looks[0] > after else 0
time.time, time.time_ns = lambda: true() + off(), lambda: true_ns() + off() * 10**9
"""
_COMMAND = f"{_JUMPING}\nfrom gitckpt.__main__ import main\nmain()"


def _instants(operation: Operation, make: MakePlace) -> list[str]:
    """Name the clock errors: before the operation, or after a number of clock calls."""
    del operation, make
    ways = [*(f"{name}-{way}" for name in _BY for way in ("on", "back")), "to-1970"]
    return [
        *(f"before/{way}" for way in ways),
        *(f"after-{looks}/{way}" for way in ways for looks in _LOOKS),
    ]


def _seconds(way: str) -> int:
    if way == "to-1970":
        return 3600 - int(time.time())
    name, _, direction = way.rpartition("-")
    return _BY[name] if direction == "on" else -_BY[name]


def _turn(place: Place, operation: Operation, instant: str) -> Ended:
    when, _, way = instant.partition("/")
    by, command = _seconds(way), operation.command(place)
    if when == "before":
        for directory, names, files in os.walk(place.project):
            for name in (*names, *files):
                path = os.path.join(directory, name)
                status = os.lstat(path)
                os.utime(
                    path,
                    ns=(status.st_atime_ns, status.st_mtime_ns + by * 10**9),
                    follow_symlinks=False,
                )
        return processes.run(place, command)
    numbers = [str(by), when.removeprefix("after-")]
    if tuple(command[: len(CKPT)]) == CKPT:
        turned = [command[0], "-c", _COMMAND, *numbers, *command[len(CKPT) - 1 :]]
    else:  # the hook is called as `python -I -S -c CODE …`
        turned = [*command[:4], f"{_JUMPING}\n{command[4]}", *numbers, *command[5:]]
    return processes.run(place, turned)


CLOCKS = Fault("clocks", _instants, _turn, quick=80, long=120)
