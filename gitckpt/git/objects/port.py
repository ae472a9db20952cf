"""The interface for reading and writing objects, with two adapters.

`libgit2` (pygit2) is faster in a long-lived process, but takes 80 ms to import and cannot open all
repositories. `plumbing` (the git executable) opens whatever git opens.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Protocol

    from gitckpt.model import budget

    Item = tuple[str, bytes]  # kind and content
    Items = Iterator[Item | None]

    class Objects(Protocol):
        def head(self) -> tuple[str, str | None]:
            """Return commit ("" if unborn) and branch (None if detached) of HEAD."""

        def read(self, oids: Sequence[str], max_size: int | None = budget.DOCUMENT.size) -> Items:
            """Yield kind and content by oid; None if missing, OVERSIZED above the limit."""

        def write(self, items: Sequence[Item], *, flushed: bool = True) -> list[str]:
            """Write objects, referenced ones first; refs may name them once flushed."""

        def flush(self, oids: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
            """Wait until unflushed objects, and other oids and paths, are on the disk."""

        def close(self) -> None: ...
