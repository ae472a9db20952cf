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

    Item = tuple[str, bytes]

    class Objects(Protocol):
        """Objects of a repository, as an adapter provides them."""

        def head(self) -> tuple[str, str | None]:
            """Return the commit and the short branch name of HEAD.

            The commit is "" on an unborn branch; the name is None when detached.
            """

        def read(self, oids: Sequence[str], most: int | None = budget.DOCUMENT.size) -> Iterator[tuple[str, bytes] | None]:
            """Yield kind and content for each oid, in order; None if missing or damaged.

            Args:
                most: largest size in bytes; a larger object is not read and has the kind
                    `encoding.OVERSIZED`. None for any size, as for the user's files.
            """

        def write(self, items: Sequence[Item], *, flushed: bool = True) -> list[str]:
            """Write objects and return their oids.

            Args:
                items: kind ("blob", "tree", "commit") and content; referenced objects come first.
                flushed: whether to flush them; otherwise call `flush` before a ref reaches them.

            Raises:
                GitError: they could not be written.
                CkptError: the disk reports an error.
            """

        def flush(self, oids: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
            """Wait until unflushed objects are on the disk, with their names.

            Args:
                oids: further objects to flush, written by git.
                paths: further files and directories.

            Raises:
                CkptError: the disk reports an error.
            """

        def close(self) -> None:
            """Release processes and files."""
