"""Where a repository borrows objects (gitrepository-layout(5), `objects/info/alternates`)."""

from __future__ import annotations

import os

from gitckpt.git.objects.encoding import object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.objects.port import Item


# A commit that keeps others alive: what an operation in progress needs, and HEAD does not lead to.


_MAX_DATE = 10**11  # what git refuses is far above


def make(commits: Sequence[str], date: int, object_format: str) -> tuple[str, list[Item]]:
    """Return the oid of a commit whose parents are some others, and the objects to write for it.

    The same commits have the same holder, whoever makes it and when.

    Args:
        commits: what is to be kept, one or more.
        date: of the newest of them, in seconds since the epoch: a history whose dates go backwards misleads git's walks.
        object_format: "sha1" or "sha256".
    """
    who = f"gitckpt <gitckpt> {date} +0000"
    lines = [f"tree {object_id('tree', b'', object_format)}", *(f"parent {oid}" for oid in commits)]
    data = "\n".join([*lines, f"author {who}", f"committer {who}", "", "keeps alive what checkpoints need\n"]).encode("ascii")
    return object_id("commit", data, object_format), [("tree", b""), ("commit", data)]


def committed_at(text: bytes) -> int:
    """Return when a commit was made, in seconds since the epoch; 0 where it does not say.

    Args:
        text: the commit.
    """
    for line in text.partition(b"\n\n")[0].split(b"\n"):
        if line.startswith(b"committer "):
            words = line.rpartition(b"> ")[2].split()
            return min(int(words[0]), _MAX_DATE) if words and words[0].isdigit() else 0
    return 0


# Where a repository borrows objects (gitrepository-layout(5), `objects/info/alternates`).


_SHORT = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}


def stores(objects: str) -> list[str]:
    """Returns the directories that objects are read from: one, then those that it borrows from (`info/alternates`), there or not."""
    found = [objects]
    for place in found:  # which grows
        try:
            with open(os.path.join(place, "info", "alternates"), "rb") as file:
                lines = file.read().split(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            continue
        named = [os.path.normpath(os.path.join(place, os.fsdecode(_unquoted(line)))) for line in lines if line and line[:1] != b"#"]
        found += [each for each in dict.fromkeys(named) if each not in found]
    return found


def _unquoted(line: bytes) -> bytes:
    """Returns the path that a line names: one that begins with a quote is quoted as in C, unless it is none that way."""
    if not line.startswith(b'"'):
        return line
    path = bytearray()
    at = 1
    while (char := line[at : at + 1]) not in (b"", b'"'):
        if char == b"\\":
            digits = line[at + 1 : at + 4]
            if len(digits) == 3 and b"000" <= digits <= b"377" and not digits.strip(b"01234567"):
                path.append(int(digits, 8))
                at += 4
                continue
            if line[at + 1 : at + 2] not in _SHORT:
                return line
            path.append(_SHORT[line[at + 1 : at + 2]])
            at += 2
        else:
            path += char
            at += 1
    return bytes(path) if char else line
