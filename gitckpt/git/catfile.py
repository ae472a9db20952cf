"""A long-lived `git cat-file --batch-command`: what a name means now, and what an object holds."""

from __future__ import annotations

import os

from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gitckpt.git.process import Child
    from gitckpt.git.repository import Git

_AT_ONCE = 256  # requests of 80 bytes; all of them fit into a pipe, so that neither side waits for the other


class CatFile:
    """Reads through one process, started at the first question.

    Args:
        git: where.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._child: Child | None = None

    def info(self, name: str) -> tuple[str, str, int] | None:
        """Returns oid, kind and size of what `name` means.

        Args:
            name: an oid, or a full ref name, or `<ref>:<path>`; without line breaks.

        Returns:
            None where there is no such thing, or the name is ambiguous.
        """
        child = self._started()
        child.write(f"info {name}\n".encode("utf-8", "surrogateescape"))
        return _header(child.read_line())

    def contents(self, names: Sequence[str]) -> Iterator[tuple[str, str, bytes] | None]:
        """Yields oid, kind and content for each name, in order; None for one that is missing. Must be read to the end."""
        child = self._started()
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            child.write("".join(f"contents {name}\n" for name in some).encode("utf-8", "surrogateescape"))
            for _ in some:
                header = _header(child.read_line())
                if header is None:
                    yield None
                    continue
                oid, kind, size = header
                data = child.read(size + 1)
                if len(data) != size + 1:
                    raise CkptError(f"git cat-file ended while it printed {oid}", hint="check the repository: git fsck")
                yield oid, kind, data[:-1]

    def close(self) -> None:
        """Ends the process."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _started(self) -> Child:
        if self._child is None or self._child.owner != os.getpid():
            self._child = self._git.start("cat-file", "--batch-command")
        return self._child


def _header(line: bytes) -> tuple[str, str, int] | None:
    parts = line.split(b" ")
    if len(parts) == 3 and parts[2].isdigit():
        return parts[0].decode("ascii"), parts[1].decode("ascii"), int(parts[2])
    if not line:
        raise CkptError("git cat-file ended unexpectedly", hint="check the repository: git fsck")
    return None
