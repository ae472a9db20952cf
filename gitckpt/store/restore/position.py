"""Where HEAD is, and where the files of a checkpoint are from: what is to be known before the two are mixed, and afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from gitckpt.model import ids
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.model.names import shell_word
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.checkpoints import Checkpoints

_ENDS = {
    "merge": "git merge --continue, or git merge --abort",
    "cherry-pick": "git cherry-pick --continue, or --abort",
    "revert": "git revert --continue, or --abort",
    "rebase": "git rebase --continue, or --abort",
    "am": "git am --continue, or --abort",
    "bisect": "git bisect good, bad or reset",
}


@dataclass(frozen=True, slots=True)
class Position:
    """Where somebody works.

    Attributes:
        commit: full oid of what HEAD points to; "" before the first commit.
        branch: short name of the branch; None where HEAD is detached.
        operation: the merge, rebase, … in progress; None where there is none.
    """

    commit: str
    branch: str | None
    operation: str | None

    def __str__(self) -> str:
        commit = f"commit {self.commit[: ids.SHORT]}" if self.commit else "no commit yet"
        return f"{commit} ({self.branch or 'detached'})"


def of(checkpoint: Checkpoint) -> Position:
    """Returns where a checkpoint was recorded."""
    files = checkpoint.worktree
    return Position(checkpoint.git_sha, checkpoint.branch, files.operation if files else None)


@dataclass(frozen=True, slots=True)
class Gap:
    """What there is between where HEAD is and where the files of a checkpoint are from.

    Attributes:
        head: where HEAD is, and stays.
        source: where the checkpoint was recorded.
        changes_operation: whether the operation in progress becomes that of the checkpoint, and is another one.
        is_partial: whether only some paths come back.
        would_move: whether the checkpoint's operation would move the branch here, and is left out for that.
        is_foreign: whether it was captured elsewhere: no operation comes back, which is told otherwise.
        elsewhere: the command that opens a worktree where the checkpoint was recorded.
        back: the command that takes it back.
    """

    head: Position
    source: Position
    changes_operation: bool
    is_partial: bool
    would_move: bool
    is_foreign: bool
    elsewhere: str
    back: str

    def sentences(self) -> Sequence[str]:
        """Return what to say before the files come, a sentence each; nothing without a gap."""
        return [*self._of_commit(), *self._of_operation()]

    def _of_commit(self) -> list[str]:
        head, source = self.head, self.source
        if head.commit != source.commit:
            files = f"{'these files' if self.is_partial else 'the files'} of {source}"
            said = f"HEAD stays at {head}; {files} show as changes there"
            return [f"{said}; to work at that commit: {self.elsewhere}"]
        if head.branch == source.branch:
            return []
        if source.branch is None:
            origin, advice = "while HEAD was detached", ""
        else:
            origin = f"on {source.branch}"
            end = "-- " if source.branch.startswith("-") else ""  # a document may say anything
            advice = f"; to be there: git switch {end}{shell_word(source.branch)}"
        return [f"HEAD stays at {head}; the checkpoint was made {origin}, at the same commit{advice}"]

    def _of_operation(self) -> list[str]:
        here, there = self.head.operation, None if self.is_foreign else self.source.operation
        said = []
        if self.changes_operation:
            if here and here != there:
                said.append(f"the {here} in progress here is put away; to have it again: {self.back}")
            if there:
                said.append(f"the {there} of the checkpoint is in progress again; to end it: {_end(there)}")
        elif self.is_partial or self.would_move or self.head.commit != self.source.commit:
            if there:
                why = f"it would move {self.head.branch}" if self.would_move else "it belongs to another commit than HEAD"
                why = "only some paths come back" if self.is_partial else why
                said.append(f"the {there} of the checkpoint is left out, as {why}; a worktree with it: {self.elsewhere}")
            if here and not self.is_partial:
                files = "these files" if self.head.commit == self.source.commit else "these files, which are of another commit"
                said.append(f"the {here} in progress here goes on with {files}; to end it: {_end(here)}")
        return said


def _end(operation: str) -> str:
    return _ENDS.get(operation, "see git status")


def require_source(store: Checkpoints, checkpoint: Checkpoint) -> None:
    """Raises `WorktreeError` if there is no worktree to put the files of a checkpoint into, or they are not there.

    Args:
        store: of the worktree.
        checkpoint: whose files are to come back.
    """
    files = checkpoint.worktree
    short = checkpoint.id[: ids.SHORT]
    if store.repository.worktree is None:
        raise WorktreeError("there is no worktree here to put files into", hint=f"open one: git ckpt resume {short}")
    if files is not None and files.degraded and files.tree is None:
        raise WorktreeError(
            f"checkpoint {checkpoint.id} has no files: {files.degraded}",
            hint=f"the files of its commit: git restore --source={checkpoint.git_sha[:10]} --staged --worktree ."
            if checkpoint.git_sha
            else "see what else there is: git ckpt list",
        )
