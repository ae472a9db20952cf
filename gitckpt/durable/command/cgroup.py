"""A control group of their own for the commands of a driver (Linux, cgroups(7), version 2), where one can be had.

Nobody leaves it by a double fork, by `setsid` or by clearing the environment, and it is there until the last one has ended: also when both
processes of the watchdog were killed, whoever resumes finds in it whom neither a parent nor a mark gives away. One can be had in most
containers, and where systemd has delegated a group (`Delegate=yes`); any other one is for systemd alone to divide, and is left alone.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

_SELF, _MOUNTS = "/proc/self/cgroup", "/proc/self/mountinfo"
_SYSTEMD = "/run/systemd/system"
_DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd says that a group is for somebody else to divide (systemd's docs/CGROUP_DELEGATION.md)."""

_LONGEST = 255  # of a name, in bytes


def make(run: str, token: str, repository: str) -> str | None:
    """Makes the group for what is started under a lease, within that of this process; one that is there is taken.

    Args:
        run: as in `Mark.variables`, and so are the others.
        token: that of the lease.
        repository: device and inode.

    Returns:
        Its directory; None where none can be had.
    """
    name = _name(run, token, repository)
    own = _own()
    if own is None or len(os.fsencode(name)) > _LONGEST or not _is_ours_to_divide(own):
        return None
    place = os.path.join(own, name)
    try:
        os.mkdir(place)
    except FileExistsError:
        return place if _is_ours(place) else None
    except OSError:
        return None
    return place


def join(place: str) -> bool:
    """Moves this process into a group, and so all that it starts from then on; tells whether that was done."""
    return _write(os.path.join(place, "cgroup.procs"), b"0")


def leave(place: str) -> None:
    """Moves this process out of a group that it has joined, and removes that where nobody else is left in it."""
    if join(os.path.dirname(place)):
        remove(place)


def find(run: str, repository: str, is_meant: Callable[[int], bool]) -> list[str]:
    """Returns the directories of the groups that `make` has made for a run, wherever they are on this machine.

    Args:
        run: as for `make`.
        repository: likewise.
        is_meant: tells of the token of a lease whether its group is looked for.
    """
    prefix = _name(run, "", repository)
    found = []
    for mount, _ in _mounts():
        for directory, names, _ in os.walk(mount):
            for name in names:
                token = name.removeprefix(prefix)
                is_its = token != name and token.isascii() and token.isdigit() and is_meant(int(token))
                if is_its and _is_ours(os.path.join(directory, name)):
                    found.append(os.path.join(directory, name))
    return found


def members(place: str) -> set[int]:
    """Returns the numbers of the processes in a group and in those below it that have not been waited for."""
    found: set[int] = set()
    for directory, _, _ in os.walk(place):
        try:
            with open(os.path.join(directory, "cgroup.procs"), "rb") as file:
                found.update(map(int, file.read().split()))
        except OSError:
            continue  # it has gone meanwhile
    return found - {0}  # which stands for one in another namespace


def kill(place: str, spared: AbstractSet[int]) -> None:
    """Kills everybody in a group, also who is being forked at this moment (Linux 5.14); nobody where one of them is to be spared."""
    if spared.isdisjoint(members(place)):
        _write(os.path.join(place, "cgroup.kill"), b"1")


def remove(place: str) -> None:
    """Removes a group, with those below it, where nobody is left in it."""
    for directory, _, _ in os.walk(place, topdown=False):
        try:
            os.rmdir(directory)
        except OSError:
            return


def _name(run: str, token: str, repository: str) -> str:
    return f"gitckpt.{repository.replace(':', '-')}.{run}.{token}"


def _own() -> str | None:
    """Returns the directory of the group of this process; None where there are no groups, or it is not to be seen."""
    if sys.platform != "linux":
        return None
    try:
        with open(_SELF, encoding="utf-8", errors="surrogateescape") as file:
            path = next((line.removeprefix("0::").rstrip("\n") for line in file if line.startswith("0::")), "")
    except OSError:
        return None
    for mount, root in _mounts():
        top = root.rstrip("/")
        if path.startswith("/") and ".." not in path.split("/") and (path == root or path.startswith(f"{top}/")):
            return os.path.join(mount, path[len(top) :].lstrip("/"))
    return None


def _mounts() -> Iterator[tuple[str, str]]:
    """Yields where the hierarchy of groups is mounted, and which group is the top there."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        words, _, kind = line.partition(" - ")
        root, mount = words.split(" ")[3:5]
        if kind.startswith("cgroup2 ") and "\\" not in mount + root:
            yield mount, root


def _is_ours(place: str) -> bool:
    """Tells whether a directory is one that this user has made: another one's group of that name is none of ours."""
    try:
        return os.lstat(place).st_uid == os.geteuid()
    except OSError:
        return False


def _is_ours_to_divide(own: str) -> bool:
    if not _is_ours(own) or not os.access(own, os.W_OK):
        return False
    return not os.path.isdir(_SYSTEMD) or any(_attribute(own, name) == b"1" for name in _DELEGATED)


def _attribute(place: str, name: str) -> bytes:
    try:
        return os.getxattr(place, name) if sys.platform == "linux" else b""
    except OSError:
        return b""


def _write(path: str, data: bytes) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(fd, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(fd)
