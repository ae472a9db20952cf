"""The interface for reading and writing objects, with two adapters.

`libgit2` (pygit2) is faster in a long-lived process, but takes 80 ms to import and cannot open
repositories with SHA-256, reftable, a partial clone's extension, or a sparse or split index.
`plumbing` (the git executable) opens whatever git opens.
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
            """Return commit ("" if unborn) and short branch name (None if detached) of HEAD."""

        def read(self, oids: Sequence[str], most: int | None = budget.DOCUMENT.size) -> Items:
            """Yield kind and content for each oid, in order; None if missing or damaged.

            An object above `most` bytes is not read and has the kind `encoding.OVERSIZED`.
            """

        def write(self, items: Sequence[Item], *, flushed: bool = True) -> list[str]:
            """Write objects, referenced ones first, and return their oids.

            Unless `flushed`, call `flush` before a ref reaches them.
            """

        def flush(self, oids: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
            """Wait until unflushed objects are on the disk, with their names.

            `oids` and `paths` are further objects, written by git, and files and directories.
            """

        def close(self) -> None: ...
