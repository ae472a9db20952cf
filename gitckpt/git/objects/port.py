"""The port through which objects are read and written. Two adapters serve it: `libgit2` and `plumbing`.

libgit2 (pygit2) is the faster inside a process that lives on, but takes 80 ms to import and cannot open repositories with SHA-256,
reftable, a partial clone's extension, or a sparse or split index. Plumbing (the git executable) opens whatever git opens.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Protocol

    from gitckpt.model import budget

    Item = tuple[str, bytes]

    class Objects(Protocol):
        """What an adapter does."""

        def head(self) -> tuple[str, str | None]:
            """Returns the commit that HEAD points to ("" on an unborn branch) and the short name of the branch (None when detached)."""

        def read(self, oids: Sequence[str], most: int | None = budget.DOCUMENT.size) -> Iterator[tuple[str, bytes] | None]:
            """Yields kind and content for each oid, in order; None for an object that is missing or damaged.

            Args:
                oids: of objects.
                most: of how many bytes one may be: a larger one is of the kind `encoding.OVERSIZED`, without its content, which is not
                    read. None for any size: for files of the user's.
            """

        def write(self, items: Sequence[Item], *, flushed: bool = True) -> list[str]:
            """Writes objects and returns their oids.

            Args:
                items: each a kind ("blob", "tree", "commit") and a content; what is referred to stands before what refers to it.
                flushed: whether they are on the disk when this returns; if not, call `flush` before a ref leads to them.

            Raises:
                GitError: they could not be written.
                CkptError: the disk reports an error.
            """

        def flush(self, oids: Iterable[str] = (), paths: Iterable[str] = ()) -> None:
            """Wait until what was written without a flush is on the disk, under its name.

            Args:
                oids: objects that git has written, to flush as well.
                paths: files and directories beside them.

            Raises:
                CkptError: the disk reports an error.
            """

        def close(self) -> None:
            """Lets go of processes and files."""
