"""What would be ignored, were the files of a worktree those of a snapshot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from gitckpt.git.repository import Repository

RULES = b".gitignore"


def ignored_by(repository: Repository, tree: str, paths: Sequence[bytes]) -> set[bytes]:
    """Returns the paths that git ignores by the rules of a tree (and those of the repository and the user, as everywhere).

    Args:
        repository: where.
        tree: its oid.
        paths: relative to the top.
    """
    if not paths:
        return set()
    scratch = os.path.join(repository.make_private_dir(), f"rules.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        for entry in repository.git.run("ls-tree", "-r", "-z", tree).out.split(b"\0")[:-1]:
            fields, _, path = entry.partition(b"\t")
            if os.path.basename(path) == RULES and fields.startswith(b"100"):
                _write(os.path.join(os.fsencode(scratch), path), _content(repository, fields.split(b" ")[2].decode("ascii")))
        os.makedirs(scratch, exist_ok=True)
        words = (f"--work-tree={scratch}", "-C", scratch, "check-ignore", "--no-index", "-z", "--stdin")
        return set(repository.git.run(*words, data=b"\0".join(paths), ok=(0, 1)).out.split(b"\0")) - {b""}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _content(repository: Repository, oid: str) -> bytes:
    found = next(repository.cat_file.contents([oid]))
    return found[2] if found else b""


def _write(path: bytes, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
