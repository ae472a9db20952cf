"""Run git's housekeeping in a loop during an operation."""

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
# With `--prune=now`, a gc also deletes new objects of git's own commits: see docs/limits.md.
_APART = ("prune",)
"""Commands that run only when they are named.

git-prune(1) says that `git prune --expire=now` is safe only without concurrent writers: it deletes
their new objects, and leaves no trace from which they could notice it.
"""

_TURNS = 3


def _instants(operation: Operation, make: MakePlace) -> list[str]:
    """Name the commands, each alone and all together, and the turns of each."""
    del make
    if operation.begins_damaged:
        return []  # git may delete objects that no ref keeps
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
    }  # without it, the commands do not count as processes of the operation
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
