"""The settings of a sparse checkout (git-sparse-checkout(1)), kept with a snapshot and brought back with it.

Their form: one line of words, `cone` or `no-cone`, then `index` where the index is sparse as well; then what `git sparse-checkout list`
prints: directories in cone mode, patterns otherwise.
"""

from __future__ import annotations

import os

from gitckpt.git import config
from gitckpt.git.command import NO_HOOKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

_NAMES = r"^(core\.sparsecheckout(cone)?|index\.sparse)$"
_ALL = b"/*"


def read(repository: Repository) -> bytes | None:
    """Returns the settings of a worktree; None where its checkout is not sparse.

    Args:
        repository: seen from the worktree.
    """
    try:
        with open(os.path.join(repository.git_dir, "info", "sparse-checkout"), "rb") as file:
            patterns = file.read().splitlines()
    except FileNotFoundError:
        return None  # git itself takes every file then, whatever its configuration says
    values = {name: config.is_on(found[-1]) for name, found in config.read(repository, _NAMES).items()}
    if not values.get("core.sparsecheckout"):
        return None
    listed = repository.git.run(*NO_HOOKS, "sparse-checkout", "list").out
    # Of patterns that it did not write itself, git says "disabling cone pattern matching", lists them as they are, and goes by them.
    is_cone = values.get("core.sparsecheckoutcone") and _ALL in patterns and _ALL not in listed.splitlines()
    words = ["cone" if is_cone else "no-cone", *(["index"] if values.get("index.sparse") else [])]
    return " ".join(words).encode() + b"\n" + listed


def bring_back(made: Repository, settings: bytes | None) -> None:
    """Gives a worktree that has no files yet the settings of a snapshot.

    Args:
        made: seen from the worktree.
        settings: as `read` returned them.

    Raises:
        GitError: git refuses them.
    """
    if settings is None:
        if read(made) is not None:  # git gives a new worktree those of the one it is made from
            made.git.run(*NO_HOOKS, "sparse-checkout", "disable")
        return
    head, _, listed = settings.partition(b"\n")
    words = head.split()
    cone = "--cone" if words[:1] == [b"cone"] else "--no-cone"
    index = "--sparse-index" if b"index" in words else "--no-sparse-index"
    made.git.run(*NO_HOOKS, "sparse-checkout", "set", cone, index, "--stdin", data=listed)
