"""Reads refs and objects from git's own files, and asks git about all that is not plain. Imported by the hook.

A process takes 3 ms to start, which is more than a record has to read. An object that is read here is the one that was asked for, and
whole: its oid is computed anew. Not plain are reftables, symbolic and broken refs, objects that are borrowed, large, damaged or
missing, and packs by the dozen.
"""

from __future__ import annotations

import os
import zlib

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.repository import OF_A_WORKTREE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from gitckpt.git.catfile import CatFile
    from gitckpt.git.repository import Repository

_HEX = b"0123456789abcdef"
_LARGE = 1 << 20
_BESIDE = ("HEAD", "ORIG_HEAD")
_UNUSUAL = frozenset(" ~^:?*[\\@\n\0")
_MANY = 12
"""So many packs are looked through sooner than git starts."""

_LONG = 8 << 10
"""In bytes: what the file of a ref says is shorter, as no path is longer than half of that."""

_WHOLE = 1 << 30
"""In bytes: more than any file of git's has that is read whole."""

_DEEP = 100
_LINE = 1024
"""Longer lines of `packed-refs` are not plain."""

_KINDS = {1: "commit", 2: "tree", 3: "blob"}
_FROM_PLACE, _FROM_OID = 6, 7
"""Kinds of entries of a pack that say how an object differs from another one: that at a place before, and that of an oid."""

_FANOUT, _NAMES = 8, 8 + 256 * 4
"""Where the counts and the oids begin in the index of a pack (gitformat-pack(5), version 2)."""


class FileLookup:
    """Reads a repository of one's own, for a process that has a few things to ask."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._git: CatFile | None = None
        self._top = os.path.join(repository.common_dir, "objects")

    def info(self, name: str) -> tuple[str, str, int] | None:
        """See `Lookup.info`."""
        found = self._look(name)
        if found is None:
            return self._asked().info(name)
        oid, kind, data = found
        return (oid, kind, len(data)) if oid else None

    def known(self, oids: Sequence[str]) -> list[str]:
        """See `Lookup.known`."""
        return self._asked().known(oids)

    def contents(self, names: Sequence[str], most: int | None = None) -> Iterator[tuple[str, str, bytes] | None]:
        """See `Lookup.contents`."""
        for at, name in enumerate(names):
            found = self._look(name)
            if found is None:
                yield from self._asked().contents(names[at:], most)
                return
            yield found if found[0] else None  # which are never larger than a document may be

    def warm_up(self) -> None:
        """See `Lookup.warm_up`."""
        self._asked().warm_up()

    def close(self) -> None:
        """See `Lookup.close`."""
        if self._git is not None:
            self._git.close()

    def _asked(self) -> CatFile:
        """Returns git, for a question that is not plain."""
        if self._git is None:
            from gitckpt.git.catfile import CatFile

            self._git = CatFile(self._repository.git)
        return self._git

    def _look(self, name: str) -> tuple[str, str, bytes] | None:
        """Returns oid, kind and content of what a name means; empty ones where there is no such ref, None where git has to be asked."""
        try:
            oid = name if _is_oid(name.encode()) else self._value(name)
            if not oid:
                return None if oid is None else ("", "", b"")
            found = self._loose(oid) or self._packed(oid)
        except (OSError, ValueError, IndexError, zlib.error):
            return None
        if found is None or object_id(*found, "sha256" if len(oid) == 64 else "sha1") != oid:
            return None
        return (oid, *found)

    def _value(self, name: str) -> str | None:
        """Returns what a ref points to; "" where it is not there, None where that is not plain."""
        repository = self._repository
        if repository.has_reftable:
            return None
        if name in _BESIDE:
            try:
                said = _beginning(os.path.join(repository.git_dir, name), _LONG)
            except FileNotFoundError:
                return ""
            if not said.startswith(b"ref: "):
                return _oid(said)
            if len(said) == _LONG:
                return None
            name = os.fsdecode(said[5:].strip())
        if not name.startswith("refs/") or name.startswith(OF_A_WORKTREE) or ".." in name or _UNUSUAL.intersection(name):
            return None
        try:
            return _oid(_beginning(os.path.join(repository.common_dir, name), _LONG))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            if os.path.islink(os.path.join(repository.common_dir, name)):
                return None
        # In this order: a ref that is being packed is there before its file goes.
        try:
            with open(os.path.join(repository.common_dir, "packed-refs"), "rb", buffering=0) as file:
                return _search(file.fileno(), os.fsencode(name))
        except FileNotFoundError:
            return ""

    def _loose(self, oid: str) -> tuple[str, bytes] | None:
        try:
            compressed = _beginning(os.path.join(self._top, oid[:2], oid[2:]), _LARGE)
        except FileNotFoundError:
            return None
        inflate = zlib.decompressobj()
        whole = inflate.decompress(compressed, _LARGE)
        if not inflate.eof:
            raise ValueError("it is large, or cut off")
        head, _, data = whole.partition(b"\0")
        return head.partition(b" ")[0].decode("ascii"), data

    def _packed(self, oid: str) -> tuple[str, bytes] | None:
        place = os.path.join(self._top, "pack")
        names = [name for name in os.listdir(place) if name.endswith(".idx")]
        for name in names if len(names) <= _MANY else ():
            pack = _Pack(os.path.join(place, name[:-4]), len(oid) // 2)
            try:
                at = pack.place_of(bytes.fromhex(oid))
                if at is not None:
                    return pack.entry(at)
            finally:
                pack.close()
        return None


class _Pack:
    """A pack with its index.

    Args:
        path: without the ending.
        length: of an oid, in bytes.
    """

    def __init__(self, path: str, length: int) -> None:
        self._path = path
        self._length = length
        self._index = os.open(f"{path}.idx", os.O_RDONLY | os.O_CLOEXEC)
        self._data = -1

    def close(self) -> None:
        os.close(self._index)
        if self._data >= 0:
            os.close(self._data)

    def place_of(self, oid: bytes) -> int | None:
        """Returns where an object is in the pack; None where it is not in it."""
        length = self._length
        head = os.pread(self._index, _NAMES, 0)
        if head[:8] != b"\377tOc\0\0\0\2":
            raise ValueError("an index of another version")
        low = _number(head, _FANOUT + 4 * oid[0] - 4) if oid[0] else 0
        high, count = _number(head, _FANOUT + 4 * oid[0]), _number(head, _NAMES - 4)
        names = os.pread(self._index, (high - low) * length, _NAMES + low * length)
        at, end = 0, high - low
        while at < end:
            middle = (at + end) // 2
            found = names[middle * length : (middle + 1) * length]
            if found == oid:
                offset = _number(os.pread(self._index, 4, _NAMES + count * (length + 4) + (low + middle) * 4), 0)
                if offset >> 31:
                    raise ValueError("a pack of more than 2 GB")
                return offset
            at, end = (middle + 1, end) if found < oid else (at, middle)
        return None

    def entry(self, at: int) -> tuple[str, bytes] | None:
        """Returns kind and content of the object at a place."""
        if self._data < 0:
            self._data = os.open(f"{self._path}.pack", os.O_RDONLY | os.O_CLOEXEC)
        deltas: list[bytes] = []
        while len(deltas) < _DEEP:
            kind, base, content = self._read(at)
            if kind in _KINDS:
                while deltas:
                    content = _patched(content, deltas.pop())
                return _KINDS[kind], content
            if base is None:
                return None
            deltas.append(content)
            at = base
        return None

    def _read(self, start: int) -> tuple[int, int | None, bytes]:
        """Returns the kind of an entry, the place of what it differs from, and its content."""
        head = os.pread(self._data, 64, start)
        byte, at = head[0], 1
        kind, size, shift = byte >> 4 & 7, byte & 15, 4
        while byte & 0x80:
            byte = head[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
        base: int | None = None
        if kind == _FROM_PLACE:
            byte, at = head[at], at + 1
            back = byte & 0x7F
            while byte & 0x80:
                byte, at = head[at], at + 1
                back = (back + 1 << 7) | byte & 0x7F
            base = start - back
        elif kind == _FROM_OID:
            base = self.place_of(head[at : at + self._length])
            at += self._length
        if size > _LARGE:
            raise ValueError("it is large")
        # zlib makes what cannot be compressed longer by a few bytes.
        content = zlib.decompressobj().decompress(os.pread(self._data, size + size // 500 + 64, start + at), size or 1)
        if len(content) != size:
            raise ValueError("it is cut off")
        return kind, base, content


def _patched(base: bytes, delta: bytes) -> bytes:
    """Returns what a delta makes of a content: copies of it, and bytes of its own (gitformat-pack(5))."""
    at = 0
    for _ in range(2):  # both lengths
        while delta[at] & 0x80:
            at += 1
        at += 1
    parts = []
    while at < len(delta):
        code, at = delta[at], at + 1
        if code & 0x80:
            numbers = [0] * 7
            for bit in range(7):
                if code >> bit & 1:
                    numbers[bit], at = delta[at], at + 1
            offset = int.from_bytes(bytes(numbers[:4]), "little")
            size = int.from_bytes(bytes(numbers[4:]), "little") or 0x10000
            parts.append(base[offset : offset + size])
        else:
            parts.append(delta[at : at + code])
            at += code
    return b"".join(parts)


def cuts(repository: Repository) -> bytes:
    """Returns what the files say by which git, a gc, too, takes commits to have other parents: those of shallow clones, and grafts."""
    said = []
    for name in ("shallow", "info/grafts"):
        try:
            said.append(_beginning(os.path.join(repository.common_dir, name), _WHOLE))
        except OSError:  # mostly there is none
            continue
    return b"".join(said)


def packed_between(repository: Repository, first: bytes, after: bytes, most: int) -> bytes | None:
    """Returns the lines of packed refs whose names lie between two, among others perhaps; None where they are too many, or not sorted.

    Args:
        first: the name from which on they count.
        after: the name before which they end.
        most: so many bytes of lines at most. A file that is no larger is read as a whole.
    """
    try:
        file = open(os.path.join(repository.common_dir, "packed-refs"), "rb")  # noqa: SIM115 - there may be none
    except FileNotFoundError:
        return b""
    with file:
        size = os.fstat(file.fileno()).st_size
        if size <= most:
            return file.read()
        if b" sorted " not in file.readline():
            return None
        start, end = _place(file, size, first), _place(file, size, after)
        if end - start > most:
            return None
        file.seek(start)
        return file.read(end - start)


def _place(file: BinaryIO, size: int, name: bytes) -> int:
    """Returns where the first line of a sorted file begins whose ref is not before a name."""
    low, high = 0, size  # of a place in the line before
    while low < high:
        middle = (low + high) // 2
        if _next(file, middle)[1] < name:
            low = middle + 1
        else:
            high = middle
    return _next(file, low)[0]


def _next(file: BinaryIO, place: int) -> tuple[int, bytes]:
    """Returns where the first ref after a place in the file begins, and its name; at the end, one that is after all others."""
    file.seek(place)
    file.readline()
    at = file.tell()
    line = file.readline()
    while line.startswith(b"^"):  # what an annotated tag points to
        at = file.tell()
        line = file.readline()
    return (at, line.rstrip(b"\n").partition(b" ")[2]) if line else (at, b"\xff")


def _search(fd: int, ref: bytes) -> str | None:
    """Returns what a ref points to by a file of packed refs, which is sorted; "" where it is not in there, None where it is unsorted."""
    start = os.pread(fd, 200, 0).partition(b"\n")[0]
    if not start.startswith(b"# pack-refs with:") or b" sorted" not in start:
        return None
    low, high = len(start) + 1, os.fstat(fd).st_size
    while low < high:
        middle = (low + high) // 2
        begin = max(low, middle - _LINE)
        some = os.pread(fd, 2 * _LINE, begin)
        at = some.rfind(b"\n", 0, middle - begin) + 1
        if at and some.startswith(b"^", at):  # what a tag points at, which stands in the line above
            at = some.rfind(b"\n", 0, at - 1) + 1
        end = some.find(b"\n", at)
        if end < 0 or (at == 0 and begin != low):
            return None
        oid, _, name = some[at:end].partition(b" ")
        if name == ref:
            return _oid(oid)
        if name > ref:
            high = begin + at
        else:
            low = begin + (some.find(b"\n", end + 1) if some.startswith(b"^", end + 1) else end) + 1
    return ""


def _beginning(path: str, most: int) -> bytes:
    """Returns what a file holds, or the beginning: no room is made for more than there is, which takes longer than to read a few bytes.

    Args:
        path: of the file.
        most: so many bytes of it.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, min(os.fstat(fd).st_size, most))
    finally:
        os.close(fd)


def _oid(said: bytes) -> str | None:
    """Returns the oid that the file of a ref holds; None where it holds something else."""
    oid = said.rstrip()
    return oid.decode("ascii") if _is_oid(oid) else None


def _is_oid(said: bytes) -> bool:
    return len(said) in (40, 64) and not said.strip(_HEX)


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")
