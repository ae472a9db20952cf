"""Read which commits an amend, a rebase, am or filter-repo has rewritten."""

from __future__ import annotations

import os

from gitckpt.git.files import regular
from gitckpt.model import ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

_MERGING, _APPLYING = "rebase-merge", "rebase-apply"
_MERGED, _APPLIED = os.path.join(_MERGING, "rewritten-list"), os.path.join(_APPLYING, "rewritten")
_BEFORE = tuple(os.path.join(name, "orig-head") for name in (_MERGING, _APPLYING))
"""One for each backend of `git rebase`."""

_LARGEST = 8 << 20
_LARGEST_MAP = 256 << 20
"""In bytes: three million commits, of 82 each."""

_LINES = 64 << 10
"""In bytes: a line of a reflog is much shorter."""


def amended(repository: Repository) -> list[tuple[str, str]]:
    """Returns the commit that was amended just now, and the one in its place: what HEAD was and is; nothing where no reflog says it."""
    head = repository.cat_file.info("HEAD")
    old, new = (*_newest_of_reflog(repository).split()[:2], b"", b"")[:2]
    return _pairs([b"%s %s" % (old, new)]) if head and new == head[0].encode("ascii") else []


def rebased(repository: Repository) -> list[tuple[str, str]]:
    """Returns the commits of a rebase that ends just now, each with the one in its place."""
    return [*_noted(repository, _MERGED), *applied(repository)]


def applied(repository: Repository) -> list[tuple[str, str]]:
    """Returns what `rebased` does, of the apply backend alone: with it, the branch still is where it was when git tells of its end."""
    return _noted(repository, _APPLIED)


def has_moved(repository: Repository) -> bool:
    """Tells whether HEAD is elsewhere, at the end of a rebase, than before it; where git has not noted that, it is taken to be."""
    head = repository.cat_file.info("HEAD")
    return head is None or head[0].encode("ascii") not in [_end(os.path.join(repository.git_dir, name), _LINES).strip() for name in _BEFORE]


def branch(repository: Repository) -> str:
    """Returns the branch that a rebase with the apply backend is about to come back to, which git notes down only where it had stopped."""
    return _end(os.path.join(repository.git_dir, _APPLYING, "head-name"), _LINES).strip().decode("utf-8", "replace")  # as what HEAD says


def filtered(repository: Repository) -> dict[str, str]:
    """Return the new commits by those that `git filter-repo` has rewritten.

    "" stands for a commit that is gone.
    """
    try:
        data = regular.content(os.path.join(repository.common_dir, "filter-repo", "commit-map"), _LARGEST_MAP, follow=False)
    except OSError:
        return {}
    return {old: new if new.strip("0") else "" for old, new in _pairs(data.splitlines()) if old != new}


def is_last_patch(repository: Repository) -> bool:
    """Tells whether `git am` has come to the last patch.

    Raises:
        OSError, ValueError: git's own files do not say.
    """
    numbers = []
    for name in ("next", "last"):
        with open(os.path.join(repository.git_dir, _APPLYING, name), encoding="ascii") as file:
            numbers.append(int(file.read()))
    return numbers[0] >= numbers[1]


def _noted(repository: Repository, name: str) -> list[tuple[str, str]]:
    return _pairs(_end(os.path.join(repository.git_dir, name), _LARGEST).splitlines())


def _pairs(lines: list[bytes]) -> list[tuple[str, str]]:
    found = [line.decode("ascii", "replace").split() for line in lines]
    return [(old, new) for old, new in (pair for pair in found if len(pair) == 2) if ids.is_oid(old) and ids.is_oid(new)]


def _newest_of_reflog(repository: Repository) -> bytes:
    """Returns the newest line of the reflog of HEAD, which begins with what HEAD was and is; nothing where there is none."""
    if repository.has_reftable:
        return repository.git.run("rev-parse", "--quiet", "HEAD@{1}", "HEAD", ok=(0, 1, 128)).out
    return _end(os.path.join(repository.git_dir, "logs", "HEAD"), _LINES).rstrip(b"\n").rpartition(b"\n")[2]


def _end(path: str, size: int) -> bytes:
    """Returns the end of a file, at most so many bytes; nothing where it is missing."""
    try:
        return regular.tail(path, size)
    except OSError:
        return b""
