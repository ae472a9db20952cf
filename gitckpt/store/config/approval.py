"""What somebody on this machine has approved of `gitckpt.toml`, and what he has declined: a line each in the private directory.

That is never fetched, and no file of the tree. A value is known by its digest: comments, order and notation of the file do not matter.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from gitckpt.git.files import premises
from gitckpt.git.lock import Lock
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.git.repository import Repository

FILE = "allowed"
_LOCK_FILE = "allowed.lock"
_DECLINED = "-"
_PATIENCE = 10.0


def digest_of(key: str, value: Any) -> str:
    """Returns by what a value is approved.

    Args:
        key: of the value.
        value: as it was read: numbers, texts, and sequences of them.
    """
    import hashlib  # neither is for those whose file loosens nothing
    import json

    return hashlib.sha256(json.dumps([key, value]).encode("utf-8")).hexdigest()


def path(repository: Repository) -> str:
    """Returns where it is noted, whether there is anything or not."""
    return os.path.join(repository.private_dir, FILE)


def approved(repository: Repository) -> frozenset[str]:
    """Returns the digests that were approved here."""
    return frozenset(line for line in _lines(repository) if not line.startswith(_DECLINED))


def declined(repository: Repository) -> frozenset[str]:
    """Returns the digests that somebody here was asked about, and has declined."""
    return frozenset(line.removeprefix(_DECLINED) for line in _lines(repository) if line.startswith(_DECLINED))


def note(repository: Repository, digests: Collection[str], *, approve: bool) -> None:
    """Notes that somebody here has approved or declined values; when this returns, it is on the disk.

    Args:
        repository: seen from any of its worktrees.
        digests: of the values.
        approve: which of both.

    Raises:
        CkptError: it cannot be written.
    """
    wanted = dict.fromkeys(digest if approve else f"{_DECLINED}{digest}" for digest in digests)
    with _turn(repository):
        there = _lines(repository)
        opposite = {f"{_DECLINED}{digest}" if approve else digest for digest in digests}
        after = [*(line for line in there if line not in opposite and line not in wanted), *wanted]
        if sorted(after) != sorted(there):
            _write(repository, after)


def forget(repository: Repository) -> bool:
    """Forgets all that was approved or declined here; tells whether there was anything.

    Raises:
        CkptError: it cannot be written.
    """
    with _turn(repository):
        found = bool(_lines(repository))
        if found:
            _write(repository, [])
        return found


def _turn(repository: Repository) -> Lock:
    return Lock(os.path.join(repository.make_private_dir(), _LOCK_FILE), _PATIENCE)


def _lines(repository: Repository) -> list[str]:
    try:
        with open(path(repository), encoding="ascii", errors="replace", opener=premises.create) as file:
            return file.read().split()
    except OSError:
        return []  # what cannot be read approves nothing


def _write(repository: Repository, lines: Collection[str]) -> None:
    from gitckpt.git import disk
    from gitckpt.git.files import atomic

    try:
        data = "".join(f"{line}\n" for line in lines).encode("ascii", "replace")
        atomic.write_own(path(repository), data, flushed=True, opener=premises.create)
        disk.flush([repository.private_dir], above=[repository.common_dir])
    except OSError as error:
        raise CkptError(f"cannot write {path(repository)}: {error.strerror}") from None
