"""What a listing knows of checkpoints, and what it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from gitckpt.model.arguments import require_number, require_text, strings
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.ids import require_oid_or_unborn


@dataclass(frozen=True, slots=True)
class Entry:
    """What a listing knows of a checkpoint: its document without state, errors and progress.

    Attributes:
        oid: the blob of the document.
        time: its timestamp, in microseconds since the epoch.
        examined: whether the files were looked at when it was made; if not, the linked commit stands for them.
        tree: the snapshot, where the files differed from the linked commit.
        changed: how many paths of the snapshot differ from the linked commit; None while nobody has counted.
        submodules: for each submodule that was captured the id of the checkpoint in its repository, a space, its path, and NUL.
    """

    id: str
    oid: str
    run: str | None
    sequence: int | None
    phase: str
    timestamp: str
    time: int
    git_sha: str
    branch: str | None
    trigger: str
    message: str | None
    agent: str | None
    examined: bool
    tree: str | None
    operation: str | None
    changed: int | None
    submodules: str = ""

    @classmethod
    def of(cls, checkpoint: Checkpoint, oid: str) -> Self:
        """Returns what a listing should know of a checkpoint whose document is the blob `oid`."""
        files = checkpoint.worktree
        return cls(
            id=checkpoint.id,
            oid=oid,
            run=checkpoint.run,
            sequence=checkpoint.sequence,
            phase=checkpoint.phase,
            timestamp=checkpoint.timestamp,
            time=checkpoint.time,
            git_sha=checkpoint.git_sha,
            branch=checkpoint.branch,
            trigger=checkpoint.trigger,
            message=checkpoint.message,
            agent=checkpoint.agent,
            examined=files is not None,
            tree=checkpoint.tree,
            operation=files.operation if files else None,
            changed=0 if files is not None and not files.dirty else None,
            submodules="".join(f"{one.checkpoint} {one.path}\0" for one in files.submodules) if files else "",
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """A ref of ours below `refs/checkpoints/` that is no valid checkpoint."""

    ref: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Query:
    """Which checkpoints are wanted. None leaves a criterion out; a UsageError names one that cannot be meant.

    Attributes:
        run: id of their run.
        git_sha: full oid of the linked commit.
        runs: ids of runs, one of which is theirs.
        ids: their ids.
        phase: the phase without status, or the whole label.
        status: the status at the end of the phase label.
        in_run: whether they belong to a run.
        since: the earliest timestamp, in microseconds since the epoch.
        limit: at most so many, the newest.
    """

    run: str | None = None
    git_sha: str | None = None
    runs: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    phase: str | None = None
    status: str | None = None
    in_run: bool | None = None
    since: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("run", "git_sha", "phase", "status"):
            require_text(name, getattr(self, name), may_be_none=True)
        if self.git_sha:
            require_oid_or_unborn(self.git_sha)
        for name in ("since", "limit"):
            require_number(name, getattr(self, name), may_be_none=True)
        for name in ("runs", "ids"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, strings(name, getattr(self, name)))
