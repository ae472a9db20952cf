"""Objects as bytes: their ids, and the content of trees (mode, space, name, NUL, raw oid; sorted as if directories ended in a slash)."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
