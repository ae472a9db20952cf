"""A place of its own for many new objects, which become packs: git writes one file for each otherwise, and flushes it.

`core.bigFileThreshold=1` lets `git update-index` stream what it reads into one pack (git 2.37 and newer; `index_bulk_checkin`), but for
what a filter or the conversion of line ends changes: those become files, here, and are packed before anybody looks for them.
"""

from __future__ import annotations

import os

from gitckpt.git import fsync
from gitckpt.git.files import premises
from gitckpt.git.process import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from gitckpt.git.repository import Repository

_ENDINGS = (".pack", ".rev", ".idx")
"""In the order in which the parts of a pack come to stand beside the others: by the last one git finds it."""


class Quarantine:
    """Keeps the new objects of some git commands apart, until `migrate`. A context manager: what was not migrated is gone at its end.

    Args:
        repository: whose objects they become.

    Attributes:
        options: what the commands are given before their names.
        environment: with which variables they run.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._objects = os.path.join(repository.common_dir, "objects")
        self._path = repository.scratch("objects")
        # Not even the packs: they are flushed when they are moved, the loose ones never need to be.
        self.options = ("-c", "core.bigFileThreshold=1", "-c", "core.fsync=none")
        self.environment = {"GIT_OBJECT_DIRECTORY": self._path, "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(self._objects)}

    def __enter__(self) -> Self:
        os.makedirs(os.path.join(self._path, "pack"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        premises.discard(self._path)  # what stays is swept later

    def migrate(self, deadline: float | None = None) -> None:
        """Lets the objects become objects of the repository, in packs, flushed to the disk.

        Args:
            deadline: when to give up, on the clock of `time.monotonic`.

        Raises:
            GitError: they could not be written; DeadlinePassed: it took too long.
            CkptError: the disk reports an error.
        """
        pack = os.path.join(self._path, "pack")
        oids = [fan + name for fan in os.listdir(self._path) if len(fan) == 2 for name in os.listdir(os.path.join(self._path, fan))]
        made = os.listdir(pack)
        indexes = [name for name in made if name.endswith(".idx")]
        if oids or len(indexes) > 1:
            known = f"--object-format={self._repository.object_format}"
            for name in indexes:
                with open(os.path.join(pack, name), "rb") as file:
                    listed = self._repository.git.run("show-index", known, data=file.read(), deadline=deadline).out
                oids += [line.split(b" ")[1].decode("ascii") for line in listed.splitlines()]
            # Without a search for deltas, which would take longer than all else; a repack makes them.
            words = (*self.options, "pack-objects", "-q", "--window=0", os.path.join(self._path, "one"))
            data = "".join(f"{oid}\n" for oid in dict.fromkeys(oids)).encode("ascii")
            self._repository.git.run(*words, data=data, env=self.environment, deadline=deadline)
            for name in made:
                os.unlink(os.path.join(pack, name))
            for name in os.listdir(self._path):
                if name.startswith("one-"):
                    os.replace(os.path.join(self._path, name), os.path.join(pack, f"pack{name[3:]}"))
            made = os.listdir(pack)
        target = os.path.join(self._objects, "pack")
        try:
            os.makedirs(target, exist_ok=True)
            fsync.flush(os.path.join(pack, name) for name in made)
            for name in (name for ending in _ENDINGS for name in made if name.endswith(ending)):
                os.replace(os.path.join(pack, name), os.path.join(target, name))
            fsync.flush([target])
        except OSError as error:
            raise GitError(["update-index"], 1, f"{error.filename}: {error.strerror}") from None


def _quoted(path: str) -> str:
    """Returns a path for a list with colons: in double quotes, as git reads it (Documentation/git.txt on alternate object directories)."""
    if ":" not in path and '"' not in path and path.isprintable():
        return path
    octal = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in os.fsencode(path))
    return f'"{octal}"'
