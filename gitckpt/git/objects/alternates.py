"""Find borrowed objects, and make commits that keep other commits alive."""

from __future__ import annotations

import os

from gitckpt.git.objects.encoding import object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.objects.port import Item

# A commit that keeps other commits alive, such as the ones an operation in progress needs

_MAX_DATE = 10**11  # git refuses only far larger ones


def make(commits: Sequence[str], date: int, object_format: str) -> tuple[str, list[Item]]:
    """Return oid and objects of a commit with the given parents, always the same ones.

    `date` is that of the newest parent: dates that go backwards mislead git's walks.
    """
    who = f"gitckpt <gitckpt> {date} +0000"
    lines = [f"tree {object_id('tree', b'', object_format)}", *(f"parent {oid}" for oid in commits)]
    data = "\n".join([*lines, f"author {who}", f"committer {who}", "", "keeps alive what checkpoints need\n"]).encode("ascii")
    return object_id("commit", data, object_format), [("tree", b""), ("commit", data)]


def committed_at(text: bytes) -> int:
    """Return the committer date in seconds since the epoch; 0 if it has none."""
    for line in text.partition(b"\n\n")[0].split(b"\n"):
        if line.startswith(b"committer "):
            words = line.rpartition(b"> ")[2].split()
            return min(int(words[0]), _MAX_DATE) if words and words[0].isdigit() else 0
    return 0


# Borrowed objects

_SHORT = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}


def stores(objects: str) -> list[str]:
    """Return an object directory and its alternates, existing or not.

    See gitrepository-layout(5), `objects/info/alternates`.
    """
    directories = [objects]
    for place in directories:  # grows in the loop
        try:
            with open(os.path.join(place, "info", "alternates"), "rb") as file:
                lines = file.read().split(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            continue
        named = [os.path.normpath(os.path.join(place, os.fsdecode(_unquoted(line)))) for line in lines if line and line[:1] != b"#"]
        directories += [directory for directory in dict.fromkeys(named) if directory not in directories]
    return directories


def _unquoted(line: bytes) -> bytes:
    # A line that is not validly quoted as in C is the path itself.
    if not line.startswith(b'"'):
        return line
    path = bytearray()
    offset = 1
    while (char := line[offset : offset + 1]) not in (b"", b'"'):
        if char == b"\\":
            digits = line[offset + 1 : offset + 4]
            if len(digits) == 3 and b"000" <= digits <= b"377" and not digits.strip(b"01234567"):
                path.append(int(digits, 8))
                offset += 4
                continue
            if line[offset + 1 : offset + 2] not in _SHORT:
                return line
            path.append(_SHORT[line[offset + 1 : offset + 2]])
            offset += 2
        else:
            path += char
            offset += 1
    return bytes(path) if char else line
