"""Helpers for the tests of submodules."""

from __future__ import annotations

from gitckpt import Checkpoint
from tests.conftest import Checkout

CHECKPOINTS = "refs/checkpoints"


def names(checkout: Checkout) -> list[str]:
    """Return the ids of the checkpoints in a repository."""
    return sorted(ref.rpartition("/")[2] for ref in checkout.refs(CHECKPOINTS))


def named(checkpoint: Checkpoint) -> list[str]:
    """Return the ids of the submodule checkpoints that a checkpoint names."""
    return [one.checkpoint for one in checkpoint.worktree.submodules] if checkpoint.worktree else []


def dirty(lib: Checkout, inner: Checkout) -> None:
    """Make an unpushed commit, and changed, new and staged files in submodules."""
    lib.commit("not pushed", more="x\n")
    lib.write("l", "changed\n")
    lib.write("new", "new\n")
    inner.write("i", "staged\n")
    inner.git("add", "i")
    inner.write("i", "changed\n")


def settled(*checkouts: Checkout) -> list[tuple[str, str, str, str]]:
    """Return branch, commit, status and files of each worktree."""
    seen = []
    for one in checkouts:
        files = sorted(
            path
            for path in one.path.rglob("*")
            if path.is_file() and not {".git", ".ckpt"} & set(path.relative_to(one.path).parts)
        )
        contents = "".join(f"{path.relative_to(one.path)}: {path.read_text()}" for path in files)
        head = one.git("rev-parse", "HEAD")
        seen.append(
            (
                one.git("branch", "--show-current"),
                head,
                one.git("status", "--porcelain=v2"),
                contents,
            )
        )
    return seen
