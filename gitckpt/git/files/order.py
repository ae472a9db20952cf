"""In which order many objects are read most quickly: as they lie in their packs.

Git keeps an object as what differs from others near it. In any other order it makes each of those again and again: of a million documents,
it takes six times as long. The order is nothing but advice, so that an index that cannot be read is passed over.
"""

from __future__ import annotations

import os
import sys
from array import array
from contextlib import ExitStack
from itertools import pairwise

from gitckpt.git.repository import Repository

_MANY = 50
"""So many packs are looked at, the largest: git itself joins them when there are more."""

_HEAD = b"\377tOc\0\0\0\2"
_FANOUT, _NAMES = 8, 8 + 4 * 256
_FAR = 1 << 31  # from here on, offsets are in a table of their own


def in_packs(repository: Repository, oids: bytes | bytearray, width: int) -> array[int]:
    """Returns the numbers of some objects, from 0 on, in the order in which they are read most quickly; first those that are in no pack.

    Args:
        oids: of all of them, one after the other.
        width: the bytes of each.
    """
    count = len(oids) // width
    places = array("Q", bytes(8 * count))
    groups = [array("I") for _ in range(256)]
    for number in range(count):
        groups[oids[number * width]].append(number)
    with ExitStack() as stack:
        indexes = [_Index(stack, path, width, number + 1) for number, path in enumerate(_paths(repository))]
        for byte, group in enumerate(groups):
            wanted = {bytes(oids[number * width : (number + 1) * width]): number for number in group}
            for index in indexes:
                index.look(byte, wanted, places)
    del groups
    return array("I", sorted(range(count), key=places.__getitem__))


def _paths(repository: Repository) -> list[str]:
    """Returns the indexes of the largest packs."""
    found = []
    try:
        with os.scandir(os.path.join(repository.common_dir, "objects", "pack")) as entries:
            found = [(entry.stat().st_size, entry.path) for entry in entries if entry.name.endswith(".idx")]
    except OSError:
        pass
    return [path for _, path in sorted(found, reverse=True)[:_MANY]]


class _Index:
    """The index of a pack, of version 2 (gitformat-pack(5)); one that is none, or cannot be read, is as if it were empty.

    Args:
        stack: closes it.
        path: its file.
        width: the bytes of an oid.
        number: of the pack.
    """

    def __init__(self, stack: ExitStack, path: str, width: int, number: int) -> None:
        self._width = width
        self._number = number << 48
        self._ends = array("I", bytes(4 * 256))
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, self._file)
            ends = self._numbers(256, _FANOUT)
            is_whole = len(ends) == 256 and os.fstat(self._file).st_size >= _NAMES + ends[255] * (width + 8)
            if is_whole and os.pread(self._file, 8, 0) == _HEAD and all(low <= high for low, high in pairwise(ends)):
                self._ends = ends
        except OSError:
            pass

    def look(self, byte: int, wanted: dict[bytes, int], places: array[int]) -> None:
        """Notes where objects lie whose oids begin with a byte.

        Args:
            byte: it.
            wanted: their numbers by oid; those that are found are taken out.
            places: by number.
        """
        width, count = self._width, self._ends[255]
        low, high = self._ends[byte - 1] if byte else 0, self._ends[byte]
        if low >= high or not wanted:
            return
        try:
            names = os.pread(self._file, (high - low) * width, _NAMES + low * width)
            offsets = self._numbers(high - low, _NAMES + count * (width + 4) + 4 * low)
            for at in range(high - low):
                number = wanted.pop(names[at * width : (at + 1) * width], None)
                if number is not None:
                    offset = offsets[at]
                    far = _NAMES + count * (width + 8) + 8 * (offset - _FAR)
                    place = offset if offset < _FAR else int.from_bytes(os.pread(self._file, 8, far)[2:], "big")
                    places[number] = self._number | place
        except OSError:
            pass

    def _numbers(self, count: int, start: int) -> array[int]:
        data = os.pread(self._file, 4 * count, start)
        found = array("I", data[: len(data) // 4 * 4])
        if sys.byteorder == "little":
            found.byteswap()
        return found
