"""What HEAD points to, without a process where its file says so."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository


def target(repository: Repository) -> str:
    """Returns the full name of the ref that HEAD stands for; "" when detached.

    Args:
        repository: seen from the worktree whose HEAD is meant.
    """
    path = os.path.join(repository.git_dir, "HEAD")
    with open(path, encoding="utf-8", errors="replace") as file:
        said = file.read().removesuffix("\n")
    ref = said.removeprefix("ref: ").strip()
    if ref == "refs/heads/.invalid" or os.path.islink(path):  # kept in a reftable, or as git did it long ago
        done = repository.git.run("symbolic-ref", "--quiet", "HEAD", ok=(0, 1))
        return done.out.decode("utf-8", "replace").removesuffix("\n")
    return ref if said.startswith("ref:") else ""
