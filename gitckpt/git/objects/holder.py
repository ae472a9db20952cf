"""Commits that keep others alive and lend them no name.

`git name-rev` names a commit after the ref with the fewest hops to it, and takes the way to a second parent for 65535 hops. So a ref that
points to the last of a few commits, each of which has the next one as its second parent, keeps what lies below as any ref does, but every
branch, tag and remote-tracking branch is nearer. `git describe` does not see such a ref at all: no commit descends from a holder.

Each of these commits follows from the one below it alone: a holder of more levels extends one of fewer, and whoever sees a ref can tell by
hashing whether, and how, it keeps the commit that it is named after.
"""

from __future__ import annotations

from gitckpt.git.objects.encoding import object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gitckpt.git.objects.port import Item

DEPTH = 4
"""How many second parents lie at least between the ref and what it keeps.

One is lost to `main~5`: name-rev adds 65535 for any `~`. A branch that reaches the commit by way of two merged ones wins against four. Each
more takes an amend's hook 1 % longer, and `git log --all` shows it; `graph.names` tells which repositories need more.
"""

DEEPEST = 64
"""Of more levels is no holder: a ref that was fetched has us hash no longer."""

_MAX_DATE = 10**11  # what git refuses is far above


def make(commits: Sequence[str], date: int, object_format: str, depth: int = DEPTH) -> tuple[str, list[Item]]:
    """Returns the oid of the commit that keeps some others alive, and the objects that it consists of, in the order to write them.

    The same commits have the same holder, whoever makes it and when.

    Args:
        commits: what is to be kept, one or more.
        date: of the newest of them, in seconds since the epoch: a history whose dates go backwards misleads git's walks.
        object_format: "sha1" or "sha256".
        depth: how many levels it has.
    """
    return next(holder for holder in _levels(commits, date, object_format) if _depth(holder[1]) == depth)


def find(value: str, commits: Sequence[str], date: int, object_format: str, least: int = DEPTH) -> tuple[str, list[Item]] | None:
    """Returns what `make` does for the number of levels with which the holder is `value`; None where it is none.

    Args:
        value: the oid.
        commits: as for `make`.
        date: likewise.
        object_format: likewise.
        least: how many levels it has to have.
    """
    for holder in _levels(commits, date, object_format):
        if holder[0] == value:
            return holder if _depth(holder[1]) >= least else None
    return None


def _levels(commits: Sequence[str], date: int, object_format: str) -> Iterator[tuple[str, list[Item]]]:
    """Yields the holders of one level, of two, and so on."""
    tree = object_id("tree", b"", object_format)
    end = _commit(tree, (), 0)
    objects: list[Item] = [("tree", b""), ("commit", end)]
    first = object_id("commit", end, object_format)
    needed = list(commits)
    for _ in range(DEEPEST):
        data = _commit(tree, (first, *needed), date)
        objects.append(("commit", data))
        needed = [object_id("commit", data, object_format)]
        yield needed[0], objects


def _depth(objects: Sequence[Item]) -> int:
    return len(objects) - 2


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
