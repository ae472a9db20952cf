"""What lies in a worktree whose directory is gone: what was staged, or committed and reached by no ref."""

from __future__ import annotations

from collections.abc import Iterable

from gitckpt.git.repository import Repository
from gitckpt.model.checkpoint import SAFETY
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.snapshot import capture


def record_leftover(store: Checkpoints, git_dir: str, path: str) -> None:
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
        if found.dirty or not _is_reached(there, store.index.commits() or ()):
            leftover.record(layout.SAFETY_COMPLETE, worktree=found, trigger=SAFETY, message=f"what was staged in {path}, which is gone")


def _is_reached(repository: Repository, linked: Iterable[str]) -> bool:
    """Tells whether a branch, a tag, a remote-tracking branch or a linked commit leads to HEAD.

    What `refs/keep` holds does not count: some of it is let go within the hour.
    """
    data = "".join(f"^{commit}\n" for commit in linked).encode("ascii")
    words = ("rev-list", "--max-count=1", "--ignore-missing", "--stdin", "HEAD", "--not", "--branches", "--tags", "--remotes")
    return repository.git.run(*words, data=data, ok=(0, 128)).out == b""
