"""What would be ignored, were the files of a worktree those of a snapshot."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gitckpt.git.files import premises
from gitckpt.git.objects.encoding import FILES
from gitckpt.git.objects.trees import leaves
from gitckpt.git.repository import Repository

RULES = b".gitignore"


def rules_in(repository: Repository, tree: str) -> dict[bytes, str]:
    """Returns the files of a tree that hold rules: oid by path."""
    return {path: oid for path, mode, oid in leaves(repository, tree) if os.path.basename(path) == RULES and mode in FILES}


def ignored_by(repository: Repository, rules: Mapping[bytes, str], paths: Sequence[bytes]) -> set[bytes]:
    """Returns the paths that git would ignore by some rules (and those of the repository and the user, as everywhere).

    Args:
        rules: oids of the files that hold them, by path.
        paths: relative to the top.
    """
    if not paths:
        return set()
    scratch = repository.scratch("rules")
    try:
        for path, oid in rules.items():
            _write(os.path.join(os.fsencode(scratch), path), _content(repository, oid))
        os.makedirs(scratch, exist_ok=True)
        words = (f"--work-tree={scratch}", "-C", scratch, "check-ignore", "--no-index", "-z", "--stdin")
        return set(repository.git.run(*words, data=b"\0".join(paths), ok=(0, 1)).out.split(b"\0")) - {b""}
    finally:
        premises.discard(scratch)


def _content(repository: Repository, oid: str) -> bytes:
    found = next(repository.cat_file.contents([oid]))
    return found[2] if found else b""


def _write(path: bytes, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
