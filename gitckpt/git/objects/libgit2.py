"""The adapter that uses libgit2 through pygit2, inside the process. Importing it takes 80 ms, so only programs that live on do."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator, Sequence

import pygit2
from pygit2.enums import ObjectType

from gitckpt.git.objects import alternates
from gitckpt.git.objects.encoding import OVERSIZED
from gitckpt.git.objects.writer import ObjectWriter
from gitckpt.git.repository import Repository
from gitckpt.model import budget
from gitckpt.model.errors import RepositoryError, WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import RawIOBase

_TURN = threading.RLock()
"""Held for each call of libgit2: what it hands out is not for two threads at once."""

_PORTION = 1 << 16
_SOUND = 10_000
"""So many loose objects at most are remembered as whole."""

_NAMES = {int(kind): kind.name.lower() for kind in (ObjectType.BLOB, ObjectType.TREE, ObjectType.COMMIT, ObjectType.TAG)}


class Libgit2(ObjectWriter):
    """Objects of a repository, through libgit2.

    Args:
        repository: one that libgit2 can open.

    Raises:
        RepositoryError: it cannot (`extensions.*` that libgit2 does not know, for example).
    """

    def __init__(self, repository: Repository) -> None:
        try:
            self._repo = pygit2.Repository(repository.git_dir)
        except pygit2.GitError as error:
            raise RepositoryError(f"libgit2 cannot open {repository.git_dir}: {error}") from None
        if _is_shared(self._repo):
            raise RepositoryError(f"libgit2 ignores core.sharedRepository of {repository.git_dir}")
        super().__init__(repository)
        self._odb = self._repo.odb
        self._top = os.path.join(repository.common_dir, "objects")
        self._sound: set[str] = set()

    def head(self) -> tuple[str, str | None]:
        """See `Objects.head`."""
        with _TURN:
            try:
                target = self._repo.lookup_reference("HEAD").raw_target
            except (KeyError, pygit2.GitError) as error:
                message = f"cannot read HEAD of {self._repository.git_dir}: {error}"
                raise WorktreeError(message, hint="see what is wrong: git ckpt doctor") from None
            if isinstance(target, pygit2.Oid):
                return str(target), None
            branch = target.decode("utf-8", "replace").removeprefix("refs/heads/")
            if self._repo.head_is_unborn:
                return "", branch
            return str(self._repo.head.target), branch

    def read(self, oids: Sequence[str], most: int | None = budget.DOCUMENT.size) -> Iterator[tuple[str, bytes] | None]:
        """See `Objects.read`."""
        stores = alternates.stores(self._top)
        for oid in oids:
            if self._is_spoiled(oid, stores):
                yield from (
                    (found[1], found[2]) if found is not None else None for found in self._repository.cat_file.contents([oid], most)
                )
                continue
            try:
                with _TURN:
                    if most is not None and self._odb.read_header(oid)[1] > most:
                        yield OVERSIZED, b""
                        continue
                    kind, data = self._odb.read(oid)
            except (KeyError, pygit2.GitError):
                yield None
            else:
                yield _NAMES[int(kind)], data

    def close(self) -> None:
        """See `Objects.close`."""
        self._repo.free()

    def _is_spoiled(self, oid: str, stores: Sequence[str]) -> bool:
        """Tells whether a loose object is cut off, as a power cut leaves it: libgit2 1.9 reads that for ever; git tells."""
        if oid in self._sound:
            return False
        for top in stores:
            path = f"{top}/{oid[:2]}/{oid[2:]}"
            if not os.path.exists(path):  # which takes a quarter of the time that `open` takes to find it out
                continue
            try:
                with open(path, "rb", buffering=0) as file:
                    if not _comes_to_its_end(file):
                        return True
            except OSError:  # it is not there, or libgit2 says what is wrong with it
                continue
            if len(self._sound) < _SOUND:
                self._sound.add(oid)
            return False
        return False


def _comes_to_its_end(file: RawIOBase) -> bool:
    """Tells whether a file holds all that was compressed into it; nothing of that is kept in memory."""
    inflate = zlib.decompressobj()
    while portion := file.read(_PORTION):
        try:
            while portion and not inflate.eof:
                inflate.decompress(portion, _PORTION)
                portion = inflate.unconsumed_tail
        except zlib.error:
            return False
        if inflate.eof:
            return True
    return False


def _is_shared(repo: pygit2.Repository) -> bool:
    """Tells whether others of a group write there too, who could not add to the directories that libgit2 makes."""
    name = "core.sharedRepository"
    return name in repo.config and (repo.config[name] or "true").lower() not in ("", "0", "false", "no", "off", "umask")
