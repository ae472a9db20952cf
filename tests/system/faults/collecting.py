"""git's own housekeeping, without end, while an operation is done: what it does not know of, it deletes."""

from __future__ import annotations

import subprocess
import time

from tests.system.faults import processes
from tests.system.faults.fault import Fault, MakePlace
from tests.system.faults.operation import Ended, Operation, Place

_COMMANDS = {
    "gc": "gc --quiet --prune=1.hour.ago",
    "repack": "repack -a -d --quiet",
    "prune": "prune --expire=now",
    "pack-refs": "pack-refs --all",
}
# With `--prune=now`, a gc takes new objects from under git's own commits as well: see docs/limits.md.
_APART = ("prune",)
"""Not gone through unless it is asked for by name. Of a bare `git prune --expire=now`, git says that it is safe only where nobody writes
(git-prune(1)): it leaves no trace by which others could know of it, and deletes what they have just written."""

_TURNS = 3


def _instants(operation: Operation, make: MakePlace) -> list[str]:
    """Names the commands, each alone and all together, and the turns of each."""
    del make
    if operation.begins_damaged:
        return []  # what nothing keeps, git may delete
    return [
        f"{name}/{turn}"
        for turn in range(_TURNS)
        for name in (*_COMMANDS, "all")
        if name not in _APART
    ]


def _collect(place: Place, operation: Operation, instant: str) -> Ended:
    name, _, turn = instant.partition("/")
    over, begun = place.top / "over", place.top / "begun"
    env = {
        key: value for key, value in place.env.items() if key != "BESIDE"
    }  # they are none of the operation's family
    chosen = [
        command
        for each, command in _COMMANDS.items()
        if each == name or (name == "all" and each not in _APART)
    ]
    loops = [
        subprocess.Popen(
            [
                "sh",
                "-c",
                f"until [ -e '{over}' ]; do git {command} >/dev/null 2>&1; : >'{begun}'; done",
            ],
            cwd=place.project,
            env=env,
        )
        for command in chosen
    ]
    try:
        while not begun.exists():
            time.sleep(0.002)
        time.sleep(0.005 * (int(turn) % 7))
        return processes.run(place, operation.command(place))
    finally:
        over.touch()
        for loop in loops:
            loop.wait()


COLLECTING = Fault("gc", _instants, _collect, quick=65, long=130)
