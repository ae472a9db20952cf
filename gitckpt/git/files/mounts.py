"""Find mount points below a directory: what is mounted there must not be deleted."""

from __future__ import annotations

import os

from gitckpt.model.arguments import shell_quoted

_MOUNTINFO = "/proc/self/mountinfo"


def list_mounts(*directories: str) -> list[str]:
    """Return the mount points at or below directories, the latest mount first."""
    mount_points: list[str] = []
    all_mount_points = _list_mount_points()
    for directory in directories:
        top = os.path.realpath(directory)
        mount_points += [path for path in all_mount_points if f"{path}/".startswith(f"{top}/")]
    return mount_points


def describe_mounts(*directories: str) -> str | None:
    """Return a hint to unmount the mounts at or below directories; None for no mount."""
    mount_points = list_mounts(*directories)
    if not mount_points:
        return None
    suffix = f", as are {len(mount_points) - 1} more below it" if len(mount_points) > 1 else ""
    return f"{mount_points[0]} is a mount point{suffix}: umount {shell_quoted(mount_points[0])}"


def removal_command(path: str) -> str:
    # Unmount first: git would delete what is mounted in the worktree.
    unmount_commands = [
        f"umount {shell_quoted(mount_point)} && " for mount_point in list_mounts(path)
    ]
    return f"{''.join(unmount_commands)}git worktree remove --force --force {shell_quoted(path)}"


def read_mount_id(fd: int) -> str:
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
            for line in file:
                if line.startswith("mnt_id:"):
                    return line.strip()
    except OSError:
        pass  # no /proc
    return f"device {os.fstat(fd).st_dev}"


def _list_mount_points() -> list[str]:
    # Empty without /proc (proc_pid_mountinfo(5)): `private_dirs.remove` then stops at a mount.
    try:
        with open(_MOUNTINFO, "rb") as file:
            lines = [line.split(b" ") for line in file]
    except OSError:
        return []
    paths = []
    for words in reversed(lines):
        # Octal escapes for space, tab, newline and backslash: `\040`, `\011`, `\012`, `\134`.
        first_part, *parts = words[4].split(b"\\")
        path = first_part + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in parts)
        paths.append(os.fsdecode(path))
    return paths
