"""git's own housekeeping, without end, while an operation is done: what it does not know of, it deletes."""

from __future__ import annotations

import subprocess
import time

from tests.faults import processes
from tests.faults.fault import Fault, MakePlace
from tests.faults.operation import Ended, Operation, Place

_COMMANDS = {
    "gc": "gc --quiet --prune=now",
    "repack": "repack -a -d --quiet",
    "prune": "prune --expire=now",
    "pack-refs": "pack-refs --all",
}
_APART = ("prune",)
"""Not gone through unless it is asked for by name. Of a bare `git prune --expire=now`, git says that it is safe only where nobody writes
(git-prune(1)): it leaves no trace by which others could know of it, and deletes what they have just written."""

_COMMITTING = ("hook", "run", "resume-run", "fork", "redo-phase", "hook-in-run")
"""Operations in which a user, or a phase, commits: a gc that deletes what is new takes git's own commits from under it, with us or without
us. So theirs spares what is younger than an hour, as git does by default with what is younger than two weeks."""

_TURNS = 3


def _instants(operation: Operation, make: MakePlace) -> list[str]:
    """Names the commands, each alone and all together, and the turns of each."""
    del make
    if operation.begins_damaged:
        return []  # what nothing keeps, git may delete
    return [f"{name}/{turn}" for turn in range(_TURNS) for name in (*_COMMANDS, "all") if name not in _APART]


def _collect(place: Place, operation: Operation, instant: str) -> Ended:
    name, _, turn = instant.partition("/")
    over, begun = place.top / "over", place.top / "begun"
    env = {key: value for key, value in place.env.items() if key != "BESIDE"}  # they are none of the operation's family
    chosen = [command for each, command in _COMMANDS.items() if each == name or (name == "all" and each not in _APART)]
    if operation.name in _COMMITTING:
        chosen = [command.replace("--prune=now", "--prune=1.hour.ago") for command in chosen]
    loops = [
        subprocess.Popen(
            ["sh", "-c", f"until [ -e '{over}' ]; do git {command} >/dev/null 2>&1; : >'{begun}'; done"], cwd=place.project, env=env
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
