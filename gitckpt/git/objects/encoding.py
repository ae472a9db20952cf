"""Objects as bytes: their ids, and the content of trees (mode, space, name, NUL, raw oid; sorted as if directories ended in a slash)."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Protocol

    class Hash(Protocol):
        """A digest in the making."""

        def update(self, data: bytes, /) -> None:
            """Goes on with more content."""

        def digest(self) -> bytes:
            """Returns the digest."""

        def hexdigest(self) -> str:
            """Returns the digest in hexadecimal digits."""


OVERSIZED = "oversized"
"""Kind of an object that is larger than whoever asked wants to read."""


_digests: dict[str, Callable[[bytes], Hash]] = {}
"""By format; to import one takes as long as it does to hash a commit, of which a record does so with seven."""


def object_id(kind: str, data: bytes, object_format: str) -> str:
    """Returns the oid of an object: the hash of `<kind> <size>NUL<content>` in the repository's format."""
    return object_hash(object_format, f"{kind} {len(data)}\0".encode() + data).hexdigest()


def blob_ids(contents: Iterable[bytes], object_format: str) -> list[str]:
    """Returns the oids of many blobs, in half the time."""
    digest = _digest(object_format)
    return [digest(b"blob %d\0%s" % (len(data), data)).hexdigest() for data in contents]


def object_hash(object_format: str, data: bytes) -> Hash:
    """Returns the hash that a repository of this format ("sha1" or "sha256") uses."""
    return _digest(object_format)(data)


def oid_size(object_format: str) -> int:
    """Returns how many bytes an oid has, each of them two digits."""
    return 32 if object_format == "sha256" else 20


def _digest(object_format: str) -> Callable[[bytes], Hash]:
    if known := _digests.get(object_format):
        return known
    # The C modules behind hashlib: importing hashlib itself loads OpenSSL, 3 ms that the hook does not have.
    try:
        if object_format == "sha1":
            from _sha1 import sha1 as digest
        elif sys.version_info >= (3, 12):
            from _sha2 import sha256 as digest
        else:
            from _sha256 import sha256 as digest
    except ImportError:
        import hashlib

        digest = getattr(hashlib, object_format)
    made: Callable[[bytes], Hash] = digest
    _digests[object_format] = made
    return made


Entries = dict[bytes, tuple[bytes, str]]
"""Of a tree: mode and oid by name."""


DIRECTORY = b"40000"
FILE = b"100644"
EXECUTABLE = b"100755"
LINK = b"120000"
GITLINK = b"160000"
FILES = (FILE, EXECUTABLE)
_USUAL = frozenset((DIRECTORY, FILE, GITLINK, EXECUTABLE, LINK))
_SHOWN = 60
"""So many bytes of a name are told: a name may be of any length."""


def _is_mode(mode: bytes) -> bool:
    return 1 <= len(mode) <= 6 and not mode.strip(b"01234567")


class MalformedTree(ValueError):
    """An object that is stored as a tree is none: git takes such ones where it is told not to look (`hash-object --literally`).

    Args:
        problem: what is wrong with it.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(f"a tree is malformed: {problem}")


def encode_tree(entries: Entries) -> bytes:
    """Returns the content of a tree object."""
    return encode_raw({name: (mode, bytes.fromhex(oid)) for name, (mode, oid) in entries.items()})


def encode_raw(entries: Mapping[bytes, tuple[bytes, bytes]]) -> bytes:
    """Returns what `encode_tree` does, of raw oids, as `diff.listed` has them."""
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1][0] == DIRECTORY else item[0])
    return b"".join([b"%s %s\0%s" % (mode, name, oid) for name, (mode, oid) in ordered])


def decode_tree(data: bytes, object_format: str) -> Entries:
    """Returns the entries of a tree object.

    Args:
        data: its content.
        object_format: "sha1" or "sha256", which says how long an oid is.

    Raises:
        MalformedTree: it is none. What is no name of a file, as "..", is left to whoever writes one.
    """
    size = oid_size(object_format)
    entries: Entries = {}
    at = 0
    try:
        while at < len(data):
            space = data.index(b" ", at)
            end = data.index(b"\0", space)
            mode, name = data[at:space], data[space + 1 : end]
            at = end + 1 + size
            if not name or b"/" in name or (mode not in _USUAL and not _is_mode(mode)):
                raise MalformedTree(f"it has an entry {name[:_SHOWN]!r} of mode {mode[:_SHOWN]!r}")
            if name in entries:  # git looks at the first one, and we would at the last
                raise MalformedTree(f"it has two entries {name[:_SHOWN]!r}")
            entries[name] = (mode, data[end + 1 : at].hex())
    except MalformedTree:
        raise
    except ValueError:
        raise MalformedTree("an entry lacks its name or its end") from None
    if at != len(data):
        raise MalformedTree("it ends within an entry")
    return entries


class Uniform:
    """A tree in which all entries have one mode, and names of so many hexadecimal digits: nothing has to be taken apart.

    Nobody makes one but `uniform`.
    """

    __slots__ = ("_start", "_stop", "_stride", "content", "mode")

    def __init__(self, content: bytes, mode: bytes, digits: int, stride: int) -> None:
        self.content = content
        self.mode = mode
        self._start = len(mode) + 1
        self._stop = self._start + digits
        self._stride = stride

    def __len__(self) -> int:
        return len(self.content) // self._stride

    def oids(self) -> dict[str, str] | None:
        """Returns the oids by name, in a tenth of the time that `decode_tree` takes; None where a name comes twice."""
        start, stop, stride = self._start, self._stop, self._stride
        text, oids = self.content.decode("latin-1"), self.content.hex()
        places = range(0, len(text), stride)
        found = {text[at + start : at + stop]: oids[2 * (at + stop + 1) : 2 * (at + stride)] for at in places}
        return found if len(found) == len(places) else None

    def oids_of(self, names: Sequence[bytes]) -> list[str]:
        """Returns the oid of each of some names, which are in order; "" for one that is not there; the first of two."""
        stop, stride = self._stop + 1, self._stride
        return [self.content[at + stop : at + stride].hex() if is_there else "" for at, is_there in self._places(names)]

    def with_oids(self, oids: Mapping[bytes, str]) -> bytes:
        """Returns the content of this tree with other oids for some names, which are in order; one whose oid is "" goes."""
        parts, end = [], 0
        changes = zip(self._places(oids), oids.items(), strict=True)
        for (at, is_there), (name, oid) in sorted(changes, key=lambda change: change[0][0]):
            parts.append(self.content[end:at])
            if oid:
                parts.append(b"%s %s\0%s" % (self.mode, name, bytes.fromhex(oid)))
            end = at + self._stride if is_there else at
        return b"".join([*parts, self.content[end:]])

    def _places(self, names: Iterable[bytes]) -> Iterator[tuple[int, bool]]:
        """Yields where the entry of each of some names begins, or would begin, and whether it is there.

        Git makes no tree that is in no order, but reads every one; whoever has made one finds what is new at its end.
        """
        content, start, stop, stride = self.content, self._start, self._stop, self._stride
        there = [content[at + start : at + stop] for at in range(0, len(content), stride)]
        is_ordered = all(map(bytes.__le__, there, there[1:]))
        first = {} if is_ordered else {name: at for at, name in reversed([*enumerate(there)])}
        low, count = 0, len(there)
        for name in names:
            high = count
            while is_ordered and low < high:
                middle = (low + high) // 2
                if there[middle] < name:
                    low = middle + 1
                else:
                    high = middle
            place = low if is_ordered else first.get(name, count)
            yield place * stride, place < count and there[place] == name


def uniform(content: bytes, mode: bytes, digits: int, object_format: str) -> Uniform | None:
    """Returns a tree in which all entries are alike; None for another one.

    A name holds no NUL: where all entries have mode, space, digits and NUL in their places, there is no other reading.

    Args:
        content: of the tree.
        mode: of all entries.
        digits: of each name, hexadecimal ones.
        object_format: "sha1" or "sha256", which says how long an oid is.
    """
    if digits < 1:  # trees of notes may have been made deeper than any name is long
        return None
    start, stop = len(mode) + 1, len(mode) + 1 + digits
    stride = stop + 1 + oid_size(object_format)
    count = len(content) // stride
    if len(content) != count * stride or content[stop::stride] != bytes(count):
        return None
    if any(content[at::stride] != byte * count for at, byte in enumerate(b"%c" % each for each in mode + b" ")):
        return None
    if any(content[at::stride].strip(b"0123456789abcdef") for at in range(start, stop)):
        return None
    return Uniform(content, mode, digits, stride)


def stays_within(path: bytes) -> bool:
    """Tells whether a path of a tree leads to a place below its top: git makes no other one, and a tree may have been fetched."""
    return {b"", b".", b".."}.isdisjoint(path.split(b"/"))


def empty_tree(object_format: str) -> str:
    """Returns the oid of the tree without entries, which git knows in every repository."""
    return object_id("tree", b"", object_format)


def parents(text: bytes) -> list[str]:
    """Returns the oids of a commit's parents.

    Args:
        text: the commit.
    """
    lines = text.partition(b"\n\n")[0].split(b"\n")
    return [line[7:].decode("ascii") for line in lines if line.startswith(b"parent ")]
