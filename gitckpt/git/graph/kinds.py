"""Of which kind many objects are, and whether they are there: git is asked for all of them at once, and nothing is fetched."""

from __future__ import annotations

from gitckpt.git.command import BOUNDED
from gitckpt.git.graph.reachability import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gitckpt.git.repository import Repository


def unlike(repository: Repository, oids: Iterable[str], usual: str) -> dict[str, str | None]:
    """Returns the kind of each of some objects that is none of the usual kind; None for one that is missing.

    Args:
        oids: full ones, which need not be in memory at once.
        usual: "blob", "tree", "commit" or "tag".
    """
    found: dict[str, str | None] = {}
    ending = f" {usual}".encode("ascii")

    def look(lines: list[bytes]) -> None:
        for line in lines:
            if not line.endswith(ending):
                oid, kind = line.decode("ascii").split(" ")
                found[oid] = None if kind == "missing" else kind

    words = ("cat-file", "--batch-check=%(objectname) %(objecttype)", "--buffer")
    repository.git.each_line(*BOUNDED, *words, take=look, data=lines_of(oids))
    return found
