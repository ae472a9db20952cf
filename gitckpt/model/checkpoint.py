"""The checkpoint: the immutable record of a state, tied to a commit and to the files of a worktree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gitckpt.model import phase as phases
from gitckpt.model import times

VERSION = 1
"""The document version that this program writes, and the highest it reads."""

POST_COMMIT = "post-commit"
POST_MERGE = "post-merge"
MANUAL = "manual"
SAFETY = "safety"
"""Recorded before the files of a worktree are replaced."""

HOOK_TRIGGERS = (POST_COMMIT, POST_MERGE)
"""What a hook records; these checkpoints expire by the default policy."""


@dataclass(frozen=True, slots=True)
class Omitted:
    """A path of the worktree that a snapshot did not capture."""

    path: str
    """Relative to the top of the worktree; C-quoted as git does it where it is not UTF-8."""

    reason: str
    """Why, in words for a person."""

    size: int | None = None
    """In bytes, where it was looked at."""

    oid: str | None = None
    """Of a submodule or a nested repository: the commit that is checked out there."""

    dirty: bool | None = None
    """Of a submodule: whether it has changes of its own that are not committed; None for other paths."""

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this table that this program does not know; written back as they were."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """What a checkpoint knows of the files: the table `[worktree]`."""

    dirty: bool
    """Whether files, index or an operation in progress differed from the linked commit."""

    tree: str | None = None
    """The oid that `refs/ckpt/trees/<id>` points to; None when clean, unless the checkout is sparse."""

    operation: str | None = None
    """The operation in progress: merge, cherry-pick, revert, rebase, am or bisect."""

    operation_commit: str | None = None
    """The commit that `refs/ckpt/operations/<id>` points to: it leads to every commit that the operation needs and HEAD does not."""

    omitted: tuple[Omitted, ...] = ()
    """What was left out."""

    converted: tuple[str, ...] = ()
    """Captured paths whose line ends come back as git converts them, not as they were."""

    degraded: str | None = None
    """Why there are no files although there should be some, in words for a person."""

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this table that this program does not know; written back as they were."""


CLEAN = Worktree(dirty=False)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run or plan has come: the table `[progress]`. Counts start at zero."""

    current_phase: int | None = None
    total_phases: int | None = None
    current_task: str | None = None
    tasks_completed: int | None = None
    tasks_total: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this table that this program does not know; written back as they were."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint document, version 1 (`docs/format.md`). Field names are the document's keys."""

    id: str
    phase: str
    timestamp: str
    git_sha: str
    trigger: str
    run: str | None = None
    parent: str | None = None
    sequence: int | None = None
    branch: str | None = None
    message: str | None = None
    agent: str | None = None
    errors: tuple[str, ...] = ()
    worktree: Worktree | None = None
    """None where the files were not looked at (`save --no-worktree`, a hook): the linked commit stands for them."""

    progress: Progress | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the document that this program does not know; written back as they were."""

    @property
    def time(self) -> int:
        """The timestamp, in microseconds since the epoch."""
        return times.from_text(self.timestamp)

    @property
    def phase_name(self) -> str:
        """The phase without its status."""
        return phases.split(self.phase)[0]

    @property
    def status(self) -> str:
        """The status at the end of the phase label, or "" where it has none."""
        return phases.split(self.phase)[1]
