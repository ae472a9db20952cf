"""What was found of the files of a worktree when they were compared with what git makes of their blobs: a derived file beside its index.

It is there once anything was converted, and as long as that may still be to be seen.
"""

from __future__ import annotations

import contextlib
import os

from gitckpt.git.files import atomic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

FILE = "ckpt-exact"

EXACT, INEXACT, REQUIRED = b"=", b"!", b"-"
"""That a file is what git would write; that it is not, and is not kept; that nothing is to go around a filter. Else, an oid."""

_FORM = b"gitckpt exact 1 "


def mark(oid: str, status: os.stat_result) -> bytes:
    """Returns what a verdict is about: a blob, and a file as it is.

    Args:
        oid: of the blob that stands for it.
        status: its stat data.
    """
    return b"%s %d %d" % (oid.encode(), status.st_ctime_ns, status.st_ino)


def are_there(repository: Repository) -> bool:
    """Tells whether anything was converted when a worktree was looked at before, and may be so still.

    Args:
        repository: seen from the worktree.
    """
    return os.path.exists(_path(repository))


def load(repository: Repository) -> tuple[str, dict[bytes, bytes] | None]:
    """Returns under which rules files were looked at the last time, and what was found: marks by path, each with the verdict.

    Args:
        repository: seen from the worktree.

    Returns:
        The digest of the rules, and the verdicts; None where there is no such file.
    """
    try:
        with open(_path(repository), "rb") as file:
            head, *records = file.read().split(b"\0")
    except OSError:
        return "", None
    if not head.startswith(_FORM):
        return "", {}
    found = {}
    for record in records:
        about, tab, path = record.partition(b"\t")
        if tab and about.count(b" ") == 3:
            found[path] = about
    return head.removeprefix(_FORM).decode("ascii", "replace"), found


def save(repository: Repository, key: str, known: dict[bytes, bytes]) -> None:
    """Keeps what was found, where that is possible: without it, the next capture looks again.

    Args:
        repository: seen from the worktree.
        key: the digest of the rules.
        known: marks by path, each with the verdict.
    """
    data = _FORM + key.encode() + b"".join(b"\0%s\t%s" % (about, path) for path, about in known.items())
    with contextlib.suppress(OSError):
        atomic.write_own(_path(repository), data, flushed=False)


def forget(repository: Repository) -> None:
    """Removes the file: nothing is converted any more. Args: as `load`."""
    with contextlib.suppress(OSError):
        os.unlink(_path(repository))


def _path(repository: Repository) -> str:
    return os.path.join(repository.git_dir, FILE)
