"""Read objects with libgit2 through pygit2, whose import takes 80 ms."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Sequence

import pygit2
from pygit2.enums import ObjectType

from gitckpt.git.fsync import loose_object_path
from gitckpt.git.objects.encoding import OVERSIZED
from gitckpt.git.objects.writer import ObjectWriter
from gitckpt.git.repository import Repository
from gitckpt.model import budget
from gitckpt.model.errors import RepositoryError, WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import RawIOBase

    from gitckpt.git.objects.writer import Items

# Held during each call of libgit2: its objects must not be shared between threads.
_LOCK = threading.RLock()
_PORTION = 1 << 16  # bytes read at once
_MAX_COMPLETE = 10_000  # limit of loose objects remembered as complete
_NAMES = {
    int(kind): kind.name.lower()
    for kind in (ObjectType.BLOB, ObjectType.TREE, ObjectType.COMMIT, ObjectType.TAG)
}


class Libgit2Objects(ObjectWriter):
    def __init__(self, repository: Repository) -> None:
        try:
            self._repo = pygit2.Repository(repository.git_dir)
        except pygit2.GitError as error:
            raise RepositoryError(f"libgit2 cannot open {repository.git_dir}: {error}") from None
        if _is_shared_with_group(self._repo):
            raise RepositoryError(f"libgit2 ignores core.sharedRepository of {repository.git_dir}")
        super().__init__(repository)
        self._odb = self._repo.odb
        self._complete: set[str] = set()
        self._alternates = os.path.join(repository.common_dir, "objects/info/alternates")

    def read_head(self) -> tuple[str, str | None]:
        with _LOCK:
            try:
                target = self._repo.lookup_reference("HEAD").raw_target
            except (KeyError, pygit2.GitError) as error:
                message = f"cannot read HEAD of {self._repository.git_dir}: {error}"
                raise WorktreeError(message, hint="find the cause: git ckpt doctor") from None
            if isinstance(target, pygit2.Oid):
                return str(target), None
            branch = target.decode("utf-8", "replace").removeprefix("refs/heads/")
            if self._repo.head_is_unborn:
                return "", branch
            return str(self._repo.head.target), branch

    def read(self, oids: Sequence[str], max_size: int | None = budget.DOCUMENT.size) -> Items:
        is_borrowing = os.path.exists(self._alternates)
        for oid in oids:
            if is_borrowing or self._is_object_truncated(oid):
                (entry,) = self._repository.cat_file.read_contents([oid], max_size)
                yield (entry[1], entry[2]) if entry is not None else None
                continue
            try:
                with _LOCK:
                    if max_size is not None and self._odb.read_header(oid)[1] > max_size:
                        yield OVERSIZED, b""
                        continue
                    kind, data = self._odb.read(oid)
            except (KeyError, pygit2.GitError):
                yield None
            else:
                yield _NAMES[int(kind)], data

    def close(self) -> None:
        self._repo.free()

    def _is_object_truncated(self, oid: str) -> bool:
        # A loose object truncated by a power cut makes libgit2 1.9 loop forever; git reports it.
        # `read` leaves borrowed objects to git: only git finds all places that they come from.
        path = loose_object_path(self._repository.common_dir, oid)
        # `exists` takes a quarter of the time of a failing `open`.
        if oid in self._complete or not os.path.exists(path):
            return False
        try:
            with open(path, "rb", buffering=0) as file:
                if not _is_zlib_stream_complete(file):
                    return True
        except OSError:  # missing, or libgit2 reports the error
            return False
        if len(self._complete) < _MAX_COMPLETE:
            self._complete.add(oid)
        return False


def _is_zlib_stream_complete(file: RawIOBase) -> bool:
    # Keeps no content in memory.
    inflate = zlib.decompressobj()
    while compressed_data := file.read(_PORTION):
        try:
            while compressed_data and not inflate.eof:
                inflate.decompress(compressed_data, _PORTION)
                compressed_data = inflate.unconsumed_tail
        except zlib.error:
            return False
        if inflate.eof:
            return True
    return False


def _is_shared_with_group(repo: pygit2.Repository) -> bool:
    # libgit2 creates directories that others of the group cannot write to.
    name = "core.sharedRepository"
    private_values = ("", "0", "false", "no", "off", "umask")
    return name in repo.config and (repo.config[name] or "true").lower() not in private_values
