"""The port through which objects are read and written. Two adapters serve it: `libgit2` and `plumbing`.

libgit2 (pygit2) is the faster inside a process that lives on, but takes 80 ms to import and cannot open repositories with SHA-256,
reftable, a partial clone's extension, or a sparse or split index. Plumbing (the git executable) opens whatever git opens.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Protocol

    from gitckpt.model.format import budget

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
                flushed: whether they are on the disk when this returns. If not, whoever writes a ref to them flushes them before.

            Raises:
                GitError: they could not be written.
                CkptError: the disk reports an error.
            """

        def hold(self, names: Iterable[str], *, revs: bool = False) -> bool:
            """Sees to it that no `git gc` takes what git itself has written, until `settle`; returns whether it is there.

            Args:
                names: oids, one at least; with `revs`, commits, with all that they and no commit after a `^` lead to.
                revs: whether these are commits.

            Raises:
                GitError: it could not be held.
            """

        def settle(self) -> None:
            """Is told that refs lead to what this thread has written: until then no `git gc` takes it, and from then on none can.

            Raises:
                GitError: a gc took it, and it could not be written anew.
            """

        def close(self) -> None:
            """Lets go of processes and files."""
