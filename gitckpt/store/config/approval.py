"""Remember what was allowed in this clone, as digests in the private directory, a line each.

The directory is never fetched, and no branch can write there.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from gitckpt.git.files import premises
from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.git.repository import Repository

FILE = "allowed"


def digest_of(kind: str, value: Any) -> str:
    """Return the digest of a value that JSON can write."""
    import hashlib  # neither is needed where the file loosens nothing
    import json

    return hashlib.sha256(json.dumps([kind, value]).encode("utf-8")).hexdigest()


def path(repository: Repository) -> str:
    """Return the path of the file of digests, whether it exists or not."""
    return os.path.join(repository.private_dir, FILE)


def approved(repository: Repository) -> frozenset[str]:
    """Return the allowed digests; none where the file cannot be read."""
    try:
        with open(path(repository), encoding="ascii", errors="replace", opener=premises.create) as file:
            return frozenset(file.read().split())
    except OSError:
        return frozenset()


def note(repository: Repository, digests: Collection[str]) -> None:
    """Allow digests in all worktrees of this clone, and flush them to the disk.

    Raises:
        CkptError: they cannot be written.
    """
    from gitckpt.git import fsync

    # The line end comes first: after a line that a power cut tore, the next digest is still whole.
    lines = "".join(f"\n{digest}" for digest in digests)
    repository.make_private_dir()
    try:
        with open(path(repository), "a", encoding="ascii", opener=premises.create) as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        fsync.flush([repository.private_dir, repository.common_dir])
    except OSError as error:
        raise CkptError(f"cannot write {path(repository)}: {error.strerror}") from None


def forget(repository: Repository) -> bool:
    """Allow nothing any more; tell whether anything was allowed.

    Raises:
        CkptError: the file cannot be written.
    """
    try:
        with open(path(repository), "r+", encoding="ascii", errors="replace", opener=premises.create) as file:
            was_any = bool(file.read().strip())
            file.truncate(0)
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CkptError(f"cannot write {path(repository)}: {error.strerror}") from None
    return was_any
