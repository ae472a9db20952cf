"""A commit that keeps others alive: what an operation in progress needs, and HEAD does not lead to."""

from __future__ import annotations

from gitckpt.git.objects.encoding import object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.objects.port import Item

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
