"""Packed refs: what differs between two states of them, and what some of them take.

Git writes them anew as a whole for each that goes, so most of a million refs that were listed before are as they were. To compare both
files takes a tenth of what listing all does. The format is that of git's refs/packed-backend.c: a header, then a line for each ref, sorted
by name, with what an annotated tag points to in a line of its own after it.
"""

from __future__ import annotations

import os

from gitckpt.git.files import validity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from gitckpt.git.repository import Repository

_LARGE = 4 << 20
"""In bytes: fewer refs than that, some 40,000, are listed in a quarter of a second."""

_HEADER, _SORTED = b"# pack-refs with:", b" sorted "


class Packed:
    """The packed refs as they were at one time. The file stays open: git never writes into it, but puts another one in its place.

    Others may write into it, as `cp` does from a backup; then it says nothing of what was there before.

    Attributes:
        stamp: what the file looks like from outside, as `validity.State.packed` has it; None where it was not opened.
    """

    def __init__(self) -> None:
        self.stamp: str | None = None
        self._file: BinaryIO | None = None
        self._mark = (0, 0, 0, 0)

    @property
    def is_held(self) -> bool:
        """Whether a file is held."""
        return self._file is not None

    def hold(self, repository: Repository, stamp: str | None) -> bool:
        """Holds the file of this stamp instead of what was held before; nothing where that is a small one, or another one lies there now.

        Returns:
            Whether it is held.
        """
        if self.stamp == stamp:
            return self._file is not None
        self.close()
        self.stamp = stamp
        try:
            file = open(os.path.join(repository.common_dir, "packed-refs"), "rb")  # noqa: SIM115 - held beyond this call
        except OSError:
            return False
        status = os.fstat(file.fileno())
        if status.st_size < _LARGE or validity.stamp(status, None) != stamp:
            file.close()
            return False
        self._file, self._mark = file, validity.content_mark(status)
        return True

    def changed(self, later: Packed, width: int) -> Iterator[tuple[bytes, bytes]]:
        """Yields the name of each ref that differs in a later file, sorted, and its oid there, in hex, which is empty for one that is gone.

        Args:
            later: holds the other file.
            width: the digits of an oid.

        Raises:
            ValueError: they cannot be compared: a file is not held, not sorted, or not as git writes it; or somebody has written into it.
            OSError: a file cannot be read.
        """
        old, new = self._lines(), later._lines()
        if self._mark[:2] == later._mark[:2]:
            raise ValueError("somebody has written into the file")
        before, after = next(old, b""), next(new, b"")
        at = width + 1
        while before or after:
            if before == after:
                before, after = next(old, b""), next(new, b"")
            elif before.startswith(b"^"):
                before = next(old, b"")
            elif after.startswith(b"^"):
                after = next(new, b"")
            elif not after or (before and before[at:] < after[at:]):
                yield _name(before, width), b""
                before = next(old, b"")
            else:
                yield _name(after, width), after[:width]
                before, after = (next(old, b"") if before[at:] == after[at:] else before), next(new, b"")

    def close(self) -> None:
        """Lets the file go."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.stamp = None

    def _lines(self) -> Iterator[bytes]:
        if self._file is None:
            raise ValueError("the file is not held")
        if validity.content_mark(os.fstat(self._file.fileno())) != self._mark:
            raise ValueError("somebody has written into the file")
        self._file.seek(0)
        header = self._file.readline()
        if not header.startswith(_HEADER) or _SORTED not in header:
            raise ValueError("the refs are not sorted")
        return iter(self._file)


def size_of(repository: Repository, refs: Iterable[str]) -> int:
    """Returns how many bytes the lines of some refs take; nothing for those that are not packed."""
    names = {os.fsencode(ref) for ref in refs}
    try:
        with open(os.path.join(repository.common_dir, "packed-refs"), "rb") as file:
            return sum(len(line) for line in file if line.rstrip(b"\n").partition(b" ")[2] in names)
    except FileNotFoundError:
        return 0


def _name(line: bytes, width: int) -> bytes:
    if len(line) < width + 3 or line[width : width + 1] != b" " or not line.endswith(b"\n") or line[:width].strip(b"0123456789abcdef"):
        raise ValueError("a line is not as git writes it")
    return line[width + 1 : -1]
