"""What lies in a worktree whose directory is gone: what was staged, or committed and reached by no ref."""

from __future__ import annotations

from gitckpt.git.repository import Repository
from gitckpt.model.checkpoint import SAFETY
from gitckpt.store.records import layout
from gitckpt.store.snapshot import capture
from gitckpt.store.store import Store

HOLDING = ("--branches", "--tags", "--remotes", f"--glob={layout.COMMITS}*")
"""What holds a commit whether a worktree is there or not, as options of `git rev-list`."""
"""Options of `git rev-list` for the refs that keep a commit."""


def record_leftover(store: Store, git_dir: str, path: str) -> None:
    """Records what was staged, or committed and reached by no ref, in a worktree whose directory is gone.

    Args:
        store: of the repository.
        git_dir: what git keeps of the worktree.
        path: where it was.

    Raises:
        CkptError: it could not be recorded.
    """
    there = Repository(git_dir, None, store.repository.object_format)
    with store.seen_from(there, "plumbing") as leftover:
        found = capture.capture_index(there, leftover.objects, leftover.objects.head()[0])
        reached = there.git.run("rev-list", "--max-count=1", "HEAD", "--not", *HOLDING, ok=(0, 128)).out == b""
        if found.dirty or not reached:
            leftover.record(layout.SAFETY_COMPLETE, worktree=found, trigger=SAFETY, message=f"what was staged in {path}, which is gone")
