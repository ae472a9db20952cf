"""Tree objects as bytes (gitformat of a tree: mode, space, name, NUL, raw oid; sorted as if directories ended in a slash)."""

from __future__ import annotations

Entries = dict[bytes, tuple[bytes, str]]
"""Of a tree: mode and oid by name."""

DIRECTORY = b"40000"
FILE = b"100644"
GITLINK = b"160000"


def encode_tree(entries: Entries) -> bytes:
    """Returns the content of a tree object."""
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1][0] == DIRECTORY else item[0])
    return b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(oid)) for name, (mode, oid) in ordered)


def decode_tree(data: bytes, object_format: str) -> Entries:
    """Returns the entries of a tree object.

    Args:
        data: its content.
        object_format: "sha1" or "sha256", which says how long an oid is.
    """
    size = 32 if object_format == "sha256" else 20
    entries: Entries = {}
    at = 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(b"\0", space)
        entries[data[space + 1 : end]] = (data[at:space], data[end + 1 : end + 1 + size].hex())
        at = end + 1 + size
    return entries
