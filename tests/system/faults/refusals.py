"""Let the system refuse disk space, writes, flushes, descriptors, or access."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system.faults import processes
from tests.system.faults.fault import Fault, MakePlace
from tests.system.faults.operation import Ended, Operation, Place

_PAGE = 4
"""The smallest size of a file on a tmpfs, in KiB."""

_SIZE = 32 * 1024
"""The size of the small disk, in KiB."""

_MAKING = (
    "mkdir",
    "rename",
    "link",
    "symlink",
    "write",
    "pwrite64",
    "writev",
    "ftruncate",
    "copy_file_range",
)
_FLUSHING = ("fsync", "fdatasync")


def _is_meant(change: processes.Change, kinds: tuple[str, ...]) -> bool:
    return bool(change.path) and change.call.partition("-")[0].startswith(kinds)


def _struck_at(operation: Operation, make: MakePlace, kinds: tuple[str, ...]) -> list[str]:
    """Name the system calls on files, of gitckpt and of each git process."""
    place = make()
    own = [
        f"ours/{change.call}"
        for change in processes.traced(place, operation.command(place))
        if _is_meant(change, kinds)
    ]
    place = make()
    calls = processes.GitCalls(place).traced(operation.command(place))
    return own + [
        f"git/{number}/{change.call}"
        for number, made in enumerate(calls, 1)
        for change in made
        if _is_meant(change, kinds)
    ]


def _struck(place: Place, operation: Operation, instant: str, how: str) -> Ended:
    whose, _, which = instant.partition("/")
    command = operation.command(place)
    if whose == "ours":
        return processes.run(place, processes.struck(command, which, how))
    number, _, call = which.partition("/")
    return processes.GitCalls(place).run(command, int(number), call, how)


@contextmanager
def _small_disk(place: Place) -> Iterator[None]:
    """Move the repository to a small disk, and back at the end."""
    aside = place.top / "aside"
    place.project.rename(aside)
    place.project.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}k", "tmpfs", str(place.project)], check=True
    )
    try:
        subprocess.run(["cp", "-a", f"{aside}/.", str(place.project)], check=True)
        shutil.rmtree(aside)
        yield
        (place.project / "filler").unlink(missing_ok=True)
        subprocess.run(["cp", "-a", str(place.project), str(aside)], check=True)
    finally:
        subprocess.run(["umount", str(place.project)], check=True)
        place.project.rmdir()
        aside.rename(place.project)


def _used(place: Place) -> tuple[int, int]:
    """Return the KiB in use on the disk, and the number of free inodes."""
    status = os.statvfs(place.project)
    return (status.f_blocks - status.f_bfree) * status.f_frsize // 1024, status.f_ffree


def _full_at(operation: Operation, make: MakePlace) -> list[str]:
    """Name the system calls on files, and the amounts of room on a small disk.

    Room is counted in KiB and in files.
    """
    instants = _struck_at(operation, make, _MAKING)
    if _cannot_mount() is None:
        place = make()
        with _small_disk(place):
            before = _used(place)
            processes.run(place, operation.command(place))
            after = _used(place)
        instants += [
            f"room/{room}" for room in range(0, max(after[0] - before[0], 0) + 4 * _PAGE, _PAGE)
        ]
        instants += [f"files/{number}" for number in range(0, max(before[1] - after[1], 0) + 4, 2)]
    return instants


def _fill(place: Place, operation: Operation, instant: str) -> Ended:
    whose, _, which = instant.partition("/")
    if whose not in ("room", "files"):
        return _struck(place, operation, instant, "error=ENOSPC")
    with _small_disk(place):
        filler = place.project / ".git/filler"  # never part of a checkpoint
        if whose == "room":
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, (_SIZE - _used(place)[0] - int(which)) * 1024)
        else:
            status = os.statvfs(place.project)
            inodes = status.f_files - status.f_ffree + int(which)
            subprocess.run(
                ["mount", "-o", f"remount,nr_inodes={inodes}", str(place.project)], check=True
            )
        ended = processes.run(place, operation.command(place))
        filler.unlink(missing_ok=True)
    return ended


def _cannot_mount() -> str | None:
    return (
        None
        if os.geteuid() == 0 and os.path.isdir("/proc/self") and shutil.which("mount")
        else "only root may mount a disk"
    )


def _failing_at(operation: Operation, make: MakePlace) -> list[str]:
    """Name the system calls on files, and the flushes of all processes together."""
    return [*_struck_at(operation, make, (*_MAKING, *_FLUSHING, "unlink")), "all-flushes"]


def _fail(place: Place, operation: Operation, instant: str) -> Ended:
    if instant == "all-flushes":
        flushes = ",".join(_FLUSHING)
        options = [
            "-f",
            "-o",
            os.devnull,
            "-e",
            f"trace={flushes}",
            "-e",
            f"inject={flushes}:error=EIO",
        ]
        return processes.run(place, ["strace", *options, *operation.command(place)])
    return _struck(place, operation, instant, "error=EIO")


DISK_FULL = Fault("disk-full", _full_at, _fill, quick=110, long=200, obstacle=processes.can_trace)
IO_ERRORS = Fault(
    "io-errors", _failing_at, _fail, quick=110, long=200, obstacle=processes.can_trace
)

_FEWEST, _MOST = 6, 40


def _counts(operation: Operation, make: MakePlace) -> list[str]:
    """Name the limits of descriptors, from the number that Python needs to start."""
    del operation, make
    return [str(count) for count in range(_FEWEST, _MOST)]


def _restrict(place: Place, operation: Operation, instant: str) -> Ended:
    return processes.run(
        place, ["sh", "-c", f'ulimit -n {int(instant)}; exec "$@"', "sh", *operation.command(place)]
    )


DESCRIPTORS = Fault("descriptors", _counts, _restrict, quick=60, long=120)

_MOUNTED = "mounted"
_CLOSED = (
    ".git",
    ".git/objects",
    ".git/objects/pack",
    ".git/refs",
    ".git/refs/checkpoints",
    ".git/refs/ckpt",
    ".git/refs/keep",
    ".git/refs/notes",
    ".git/ckpt",
    ".git/ckpt/index.sqlite",
    ".git/ckpt/write.lock",
    ".git/index",
    ".git/config",
    ".git/hooks",
    ".git/logs",
    ".git/worktrees",
    ".ckpt",
    ".",
)
"""Directories that are write-protected, with everything below."""


def _places(operation: Operation, make: MakePlace) -> list[str]:
    """Name the paths to write-protect that exist when the operation begins."""
    del operation
    place = make()
    return [name for name in _CLOSED if (place.project / name).exists()] + (
        [_MOUNTED] if _cannot_mount() is None else []
    )


def _close(place: Place, operation: Operation, instant: str) -> Ended:
    command = operation.command(place)
    if instant == _MOUNTED:
        subprocess.run(["mount", "--bind", str(place.project), str(place.project)], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(place.project)], check=True)
            return processes.run(place, command)
        finally:
            subprocess.run(["umount", str(place.project)], check=True)
    prefix = (
        ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]
        if os.geteuid() == 0
        else []
    )
    top = place.project / instant
    below = [
        path
        for path in (top, *top.rglob("*"))
        if not path.is_symlink() and (instant != "." or ".git" not in path.parts)
    ]
    modes: dict[Path, int] = {path: path.stat().st_mode for path in below}
    try:
        for path, mode in modes.items():
            path.chmod(mode & ~0o222)
        return processes.run(place, [*prefix, *command])
    finally:
        for path, mode in modes.items():
            if path.exists():
                path.chmod(mode)


def _cannot_close() -> str | None:
    return (
        "modes do not stop root, and there is no setpriv to give up its rights"
        if os.geteuid() == 0 and not shutil.which("setpriv")
        else None
    )


READ_ONLY = Fault("read-only", _places, _close, quick=80, long=120, obstacle=_cannot_close)
