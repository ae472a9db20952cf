"""Make commits that keep other commits alive."""

from __future__ import annotations

from gitckpt.git.objects.encoding import object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.objects.port import Item

_MAX_DATE = 10**11  # git refuses only far larger ones


def make(commits: Sequence[str], date: int, object_format: str) -> tuple[str, list[Item]]:
    """Return oid and objects of a commit with parents; `date` is the newest one's."""
    author = f"gitckpt <gitckpt> {date} +0000"
    parents = "".join(f"parent {oid}\n" for oid in commits)
    tree = object_id("tree", b"", object_format)
    header = f"tree {tree}\n{parents}author {author}\ncommitter {author}"
    data = f"{header}\n\nkeeps alive what checkpoints need\n".encode("ascii")
    return object_id("commit", data, object_format), [("tree", b""), ("commit", data)]


def committed_at(text: bytes) -> int:
    """Return the committer date in seconds since the epoch; 0 if it has none."""
    for line in text.partition(b"\n\n")[0].split(b"\n"):
        if line.startswith(b"committer "):
            words = line.rpartition(b"> ")[2].split()
            return min(int(words[0]), _MAX_DATE) if words and words[0].isdigit() else 0
    return 0
