"""Find mount points below a directory, whose contents must not be deleted."""

from __future__ import annotations

import os

from gitckpt.model.arguments import shell_word

_MOUNTINFO = "/proc/self/mountinfo"


def below(*directories: str) -> list[str]:
    """Return the mount points at or below some directories, the latest first."""
    found: list[str] = []
    listed = _listed()
    for directory in directories:
        top = os.path.realpath(directory)
        if listed is None:
            found += _other_devices(top)
        else:
            found += (path for path in listed if path == top or path.startswith(f"{top}{os.sep}"))
    return found


def reason(*directories: str) -> str | None:
    """Return why some directories cannot be deleted, and the remedy; None if they can."""
    found = below(*directories)
    if not found:
        return None
    more = f", as are {len(found) - 1} more below it" if len(found) > 1 else ""
    return f"{found[0]} is a mount point{more}: umount {shell_word(found[0])}"


def way_to_remove(path: str) -> str:
    # Unmount first: git would delete what is mounted in the worktree.
    unmount = [f"umount {shell_word(each)} && " for each in below(path)]
    return f"{''.join(unmount)}git worktree remove --force --force {shell_word(path)}"


def mount_of(fd: int) -> str:
    """Return the mount id of an open directory, or its device without /proc."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
            for line in file:
                if line.startswith("mnt_id:"):
                    return line.strip()
    except OSError:
        pass  # no /proc
    return f"device {os.fstat(fd).st_dev}"


def _listed() -> list[str] | None:
    # None where the system does not list its mounts (proc_pid_mountinfo(5)).
    try:
        with open(_MOUNTINFO, "rb") as file:
            lines = [line.split(b" ") for line in file]
    except OSError:
        return None
    return [os.fsdecode(_unescaped(words[4])) for words in reversed(lines)]


def _unescaped(path: bytes) -> bytes:
    # Octal escapes encode space, tab, newline and backslash: `\040`, `\011`, `\012`, `\134`.
    first, *parts = path.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in parts)


def _other_devices(top: str) -> list[str]:
    try:
        devices = {top: os.lstat(top).st_dev}
        found = [top] if os.lstat(os.path.dirname(top)).st_dev != devices[top] else []
    except OSError:
        return []  # deleted meanwhile
    for parent, names, _ in os.walk(top):
        for name in list(names):
            path = os.path.join(parent, name)
            if os.lstat(path).st_dev != devices[top]:
                found.append(path)
                names.remove(name)  # do not descend
    return found[::-1]
