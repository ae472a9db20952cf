"""Encode and decode objects as bytes, and compute their oids."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    class Hash(Protocol):
        def update(self, data: bytes, /) -> None: ...

        def digest(self) -> bytes: ...

        def hexdigest(self) -> str: ...


OVERSIZED = "oversized"  # kind of an object that is larger than the reader's limit
# By format: importing one takes as long as hashing a commit, and each record hashes seven objects.
_digests: dict[str, Callable[[bytes], Hash]] = {}


def object_id(kind: str, data: bytes, object_format: str) -> str:
    return object_hash(object_format, f"{kind} {len(data)}\0".encode() + data).hexdigest()


def object_hash(object_format: str, data: bytes) -> Hash:
    return _find_hash_function(object_format)(data)


def oid_length(object_format: str) -> int:
    # Bytes of a raw oid.
    return 32 if object_format == "sha256" else 20


def _find_hash_function(object_format: str) -> Callable[[bytes], Hash]:
    if cached_digest := _digests.get(object_format):
        return cached_digest
    # The C modules behind hashlib: hashlib itself loads OpenSSL, which costs the hook 3 ms.
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
    typed_digest: Callable[[bytes], Hash] = digest
    _digests[object_format] = typed_digest
    return typed_digest


Entries = dict[bytes, tuple[bytes, str]]  # mode and oid by name
DIRECTORY = b"40000"
FILE = b"100644"
EXECUTABLE = b"100755"
LINK = b"120000"
GITLINK = b"160000"
FILES = (FILE, EXECUTABLE)
_USUAL = frozenset((DIRECTORY, FILE, GITLINK, EXECUTABLE, LINK))
_SHOWN = 60  # bytes of a name in messages, as names have any length


class MalformedTree(ValueError):
    """A tree object breaks the format, as `git hash-object --literally` allows."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"a tree is malformed: {problem}")


def encode_tree(entries: Entries) -> bytes:
    return encode_raw_tree(
        {name: (mode, bytes.fromhex(oid)) for name, (mode, oid) in entries.items()}
    )


def encode_raw_tree(entries: Mapping[bytes, tuple[bytes, bytes]]) -> bytes:
    sorted_entries = sorted(
        entries.items(), key=lambda item: item[0] + b"/" if item[1][0] == DIRECTORY else item[0]
    )
    return b"".join([b"%s %s\0%s" % (mode, name, oid) for name, (mode, oid) in sorted_entries])


def decode_tree(data: bytes, object_format: str) -> Entries:
    """Return the entries of a tree; the caller must reject names such as ".."."""
    size = oid_length(object_format)
    entries: Entries = {}
    offset = 0
    try:
        while offset < len(data):
            space = data.index(b" ", offset)
            end = data.index(b"\0", space)
            mode, name = data[offset:space], data[space + 1 : end]
            offset = end + 1 + size
            is_mode = mode in _USUAL or (len(mode) in range(1, 7) and not mode.strip(b"01234567"))
            if not name or b"/" in name or not is_mode:
                raise MalformedTree(f"invalid entry {name[:_SHOWN]!r} of mode {mode[:_SHOWN]!r}")
            if name in entries:  # git reads the first one, a dict keeps the last
                raise MalformedTree(f"two entries are named {name[:_SHOWN]!r}")
            entries[name] = (mode, data[end + 1 : offset].hex())
    except MalformedTree:
        raise
    except ValueError:
        raise MalformedTree("an entry is incomplete") from None
    if offset != len(data):
        raise MalformedTree("the last entry is cut off")
    return entries


def has_no_dotdot(path: bytes) -> bool:
    return {b"", b".", b".."}.isdisjoint(path.split(b"/"))


def empty_tree_oid(object_format: str) -> str:
    return object_id("tree", b"", object_format)


def parse_parents(text: bytes) -> list[str]:
    # `text`: content of a commit.
    lines = text.partition(b"\n\n")[0].split(b"\n")
    return [line[7:].decode("ascii") for line in lines if line.startswith(b"parent ")]


# Commits that keep other commits alive

_MAX_DATE = 10**11  # git refuses only far larger ones


def encode_merge_commit(
    commits: Sequence[str], date: int, object_format: str
) -> tuple[str, list[tuple[str, bytes]]]:
    """Return the oid and the objects of a commit with these parents and an empty tree.

    `date`, in seconds since the epoch, is the date of the newest parent.
    """
    author = f"gitckpt <gitckpt> {date} +0000"
    parents = "".join(f"parent {oid}\n" for oid in commits)
    tree = object_id("tree", b"", object_format)
    header = f"tree {tree}\n{parents}author {author}\ncommitter {author}"
    data = f"{header}\n\nkeeps alive what checkpoints need\n".encode("ascii")
    return object_id("commit", data, object_format), [("tree", b""), ("commit", data)]


def parse_committer_date(text: bytes) -> int:
    for line in text.partition(b"\n\n")[0].split(b"\n"):
        if line.startswith(b"committer "):
            words = line.rpartition(b"> ")[2].split()
            return min(int(words[0]), _MAX_DATE) if words and words[0].isdigit() else 0
    return 0
