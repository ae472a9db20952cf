"""Commits that keep others alive and lend them no name.

`git name-rev` names a commit after the ref with the fewest hops to it, and takes the way to a second parent for 65535 hops. So a ref that
points to the last of a few commits, each of which has the next one as its second parent, keeps what lies below as any ref does, but every
branch, tag and remote-tracking branch is nearer. `git describe` does not see such a ref at all: no commit descends from a holder.
"""

from __future__ import annotations

from gitckpt.git.objects.encoding import object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitckpt.git.objects.port import Item

DEPTH = 4
"""How many second parents lie between the ref and what it keeps.

One is lost to `main~5`: name-rev adds 65535 for any `~`. A branch that reaches the commit by way of two merged ones wins against four.
"""

_MAX_DATE = 10**11  # what git refuses is far above


def make(commits: Sequence[str], date: int, object_format: str) -> tuple[str, list[Item]]:
    """Returns the oid of the commit that keeps some others alive, and the objects that it consists of, in the order to write them.

    The same commits have the same holder, whoever makes it and when.

    Args:
        commits: what is to be kept, one or more.
        date: of the newest of them, in seconds since the epoch: a history whose dates go backwards misleads git's walks.
        object_format: "sha1" or "sha256".
    """
    tree = object_id("tree", b"", object_format)
    end = _commit(tree, (), 0)
    objects: list[Item] = [("tree", b""), ("commit", end)]
    first = object_id("commit", end, object_format)
    needed = list(commits)
    for _ in range(DEPTH):
        data = _commit(tree, (first, *needed), date)
        objects.append(("commit", data))
        needed = [object_id("commit", data, object_format)]
    return needed[0], objects


def committed_at(text: bytes) -> int:
    """Returns when a commit was made, in seconds since the epoch; 0 where it does not say.

    Args:
        text: the commit.
    """
    for line in text.partition(b"\n\n")[0].split(b"\n"):
        if line.startswith(b"committer "):
            words = line.rpartition(b"> ")[2].split()
            return min(int(words[0]), _MAX_DATE) if words and words[0].isdigit() else 0
    return 0


def _commit(tree: str, above: Sequence[str], date: int) -> bytes:
    lines = [f"tree {tree}", *(f"parent {oid}" for oid in above)]
    who = f"gitckpt <gitckpt> {date} +0000"
    return "\n".join([*lines, f"author {who}", f"committer {who}", "", "keeps alive what checkpoints need\n"]).encode("ascii")
