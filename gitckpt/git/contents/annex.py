"""Read the content of unlocked git-annex files from `.git/annex/objects`.

For such a file, git stores a pointer. The filter of git-annex writes the pointer into the
worktree, and a hook of git-annex then writes the content. gitckpt's git calls run no hooks.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat

from gitckpt.git import config
from gitckpt.git.contents import raw_files, unfiltered
from gitckpt.git.contents.attributes import ANNEX
from gitckpt.git.files import premises
from gitckpt.model.errors import WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gitckpt.git.repository import Repository
    from gitckpt.git.worktree.index import PrivateIndex

_POINTER = re.compile(rb"/annex/objects/([A-Z0-9_]+(?:-[a-zA-Z][0-9]+)*--[^\x00-\x1f/]+)(?:\n|\Z)")
_LETTERS = "0123456789zqjxkmvwgpfZQJXKMVWGPF"
# In bytes: the largest file that git-annex takes for a pointer.
_LARGEST = 32 << 10


def is_used(repository: Repository) -> bool:
    return bool(config.read(repository, rf"^filter\.{ANNEX}\."))


def held(repository: Repository, files: Mapping[bytes, tuple[str, int]]) -> set[bytes]:
    """Return the files (oid and size by path) whose content git-annex has here."""
    keys = {}
    oids = [oid for oid, _ in files.values()]
    for path, blob in zip(files, repository.cat_file.contents(oids, _LARGEST), strict=True):
        match = _POINTER.match(blob[2]) if blob is not None and blob[1] == "blob" else None
        if match:
            keys[path] = match[1]
    places = {path: _place(repository, key) for path, key in keys.items()}
    return {path for path, place in places.items() if place is not None and _size(place) == files[path][1]}


def populate(index: PrivateIndex, blobs: Mapping[bytes, str]) -> None:
    """Replace pointers by their contents where git-annex has these here."""
    repository = index.repository
    top = os.fsencode(repository.worktree or "")
    keys = {}
    small = [path for path in blobs if _size(os.path.join(top, path)) in range(1, _LARGEST + 1)]
    for path, data in zip(small, raw_files.bytes_of(repository, small), strict=True):
        match = _POINTER.match(data or b"")
        if match:
            keys[path] = match[1]
    keys = {path: keys[path] for path in unfiltered.still(repository, {path: (blobs[path], ANNEX) for path in keys})}
    places = {path: place for path, key in keys.items() if (place := _place(repository, key)) is not None}
    scratch = repository.scratch("unfiltered")
    try:
        for path, place in places.items():
            whole = os.path.join(top, path)
            shutil.copyfile(place, scratch)
            os.chmod(scratch, stat.S_IMODE(os.lstat(whole).st_mode))
            unfiltered.move(os.fsencode(scratch), whole)
    except OSError as error:
        raise WorktreeError(f"cannot write a file of git-annex: {error}") from None
    finally:
        premises.discard(scratch)
    raw_files.refresh(index, places.keys())


def _place(repository: Repository, key: bytes) -> bytes | None:
    # https://git-annex.branchable.com/internals/hashing/: two letters, or three digits in bare
    # repositories.
    # Computed without git-annex, which writes into the worktree before it answers.
    digest = hashlib.md5(key, usedforsecurity=False).digest()
    number = int.from_bytes(digest[:4], "little")
    mixed = [_LETTERS[number >> (6 * at) & 31] for at in range(4)]
    name = key.replace(b"&", b"&a").replace(b"%", b"&s").replace(b":", b"&c")
    top = os.path.join(os.fsencode(repository.common_dir), b"annex", b"objects")
    lower = digest.hex()
    for first, second in ((mixed[1] + mixed[0], mixed[3] + mixed[2]), (lower[:3], lower[3:6])):
        place = os.path.join(top, first.encode(), second.encode(), name, name)
        if _size(place) >= 0:
            return place
    return None


def _size(path: bytes) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1
