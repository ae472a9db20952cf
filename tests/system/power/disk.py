"""A disk whose power can be cut, with the loss of everything unwritten.

The disk is a file system in a file, which Linux shuts down on request.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, which is XFS_IOC_GOINGDOWN
_WITHOUT_LOG = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH

SIZE = 48 * 2**20


class NoDisk(Exception):
    """A disk cannot be made on this machine; the text says why."""


class Disk:
    """An ext4 file system on a loop device, mounted below a directory.

    A cut loses every write that has not reached the device: ext4 commits the journal every five
    seconds and with each flush, and writes contents of files after half a minute. A device that
    reports a flush and has not done it is not modelled.

    Args:
        directory: where the file is and the file system is mounted.
        fill: called once with the top of the new file system; the result is on the disk.

    Attributes:
        top: where it is mounted.

    Raises:
        NoDisk: this takes root, Linux, loop devices and `mkfs.ext4`.
    """

    def __init__(self, directory: Path, fill: Callable[[Path], None]) -> None:
        self._master, self._image = directory / "master.img", directory / "disk.img"
        self.top = directory / "disk"
        self.top.mkdir()
        self._mounted = False
        with self._master.open("wb") as file:
            file.truncate(SIZE)
        shutil.copy(self._master, self._image)
        self._run(
            "mkfs.ext4",
            "-q",
            "-F",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
            str(self._image),
        )
        self._mount()
        try:
            fill(self.top)
        finally:
            self.unmount()
        os.replace(self._image, self._master)

    def mount(self) -> None:
        """Mount a fresh copy of the filled file system."""
        self.unmount()
        self._image.unlink(missing_ok=True)
        self._run("cp", "--sparse=always", str(self._master), str(self._image))
        self._mount()

    def commit(self) -> None:
        """Commit the journal: names and sizes reach the disk, contents need not."""
        path = self.top / "unrelated"
        path.write_text("x")
        with path.open("rb") as file:
            os.fsync(file.fileno())

    def cut(self, then: Callable[[], object] = lambda: None) -> None:
        """Cut the power, and mount the rest.

        Args:
            then: waits for the processes that were still working.
        """
        fd = os.open(self.top, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUT_DOWN, struct.pack("I", _WITHOUT_LOG))
        finally:
            os.close(fd)
        then()
        self.unmount()
        # Use another file: a process with separate mounts may hold this one, and keep it shut down.
        left = self._image.with_suffix(".left")
        self._run("cp", "--sparse=always", str(self._image), str(left))
        os.replace(left, self._image)
        self._mount()

    def unmount(self) -> None:
        """Unmount the file system if it is mounted."""
        patience = time.monotonic() + 20
        while self._mounted:
            try:
                self._run("umount", str(self.top))
                self._mounted = False
            except NoDisk:  # a process in the background has yet to end
                if time.monotonic() > patience:
                    raise
                time.sleep(0.05)

    def _mount(self) -> None:
        self._run("mount", "-o", "loop", str(self._image), str(self.top))
        self._mounted = True

    @staticmethod
    def _run(*argv: str) -> None:
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise NoDisk(f"there is no {argv[0]} here") from None
        if done.returncode != 0:
            raise NoDisk(f"{argv[0]}: {done.stderr.strip()}")
