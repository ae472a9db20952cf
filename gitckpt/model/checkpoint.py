"""The checkpoint: the immutable record of a state, tied to a commit and to the files of a worktree."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.model import phase as phases
from gitckpt.model import times
from gitckpt.model.arguments import require, require_number, require_text
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime as dt
    from typing import Any


POST_COMMIT = "post-commit"
POST_MERGE = "post-merge"
MANUAL = "manual"
SAFETY = "safety"
"""Recorded before the files of a worktree are replaced."""

RESCUE = "safety:worktree"
"""Recorded of what lay in a worktree whose directory is gone. It expires by no policy: nobody may have another copy."""

PHASE = "phase"
"""Recorded by whoever drives a run, where one of its phases, or the run itself, begins or ends."""

SUBMODULE = "submodule"
"""Recorded in the repository of a submodule, where a checkpoint of the repository around it needs one."""

LOOP, REVIEW, STEP = "loop", "review", "step"
"""Recorded by an agent loop within its phase: the autonomous one, coder and reviewer; by the step protocol."""

IMPORT = "import:"
"""How the trigger of a checkpoint begins that was made of another tool's file; the format of that follows."""

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
class Submodule:
    """A submodule that was captured: its own repository has a checkpoint of it."""

    path: str
    """Relative to the top of the worktree; C-quoted as git does it where it is not UTF-8."""

    checkpoint: str
    """Id of the checkpoint in its repository."""

    git_sha: str
    """What its HEAD pointed to; "" on an unborn branch."""

    dirty: bool
    """Whether its files, its index or an operation in progress differed from that commit."""

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this table that this program does not know; written back as they were."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A place in a captured file that looks like a secret. What stands there is not told."""

    path: str
    """Relative to the top of the worktree; C-quoted as git does it where it is not UTF-8."""

    rule: str
    """The name of the rule that says so."""

    line: int
    """Counted from 1."""

    digest: str
    """Stands for what was found, in the clone that captured it."""

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this table that this program does not know; written back as they were."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """What a checkpoint knows of the files: the table `[worktree]`."""

    dirty: bool
    """Whether files, index or an operation in progress differed from the linked commit."""

    tree: str | None = None
    """The oid that `refs/ckpt/trees/<id>` points to; None when clean, unless there is more than that to keep."""

    operation: str | None = None
    """The operation in progress: merge, cherry-pick, revert, rebase, am or bisect."""

    operation_commit: str | None = None
    """The commit that `refs/keep/ckpt-operations/<id>` points to: it leads to every commit that the operation needs and HEAD does not."""

    omitted: tuple[Omitted, ...] = ()
    """What was left out."""

    submodules: tuple[Submodule, ...] = ()
    """The submodules that were captured, each in its own repository."""

    converted: tuple[str, ...] = ()
    """Captured paths that may come back as git writes them, not byte for byte."""

    suspects: tuple[Suspect, ...] = ()
    """What looks like a secret in captured files that differ from the commit, less what somebody has settled."""

    degraded: str | None = None
    """Why there are no files although there should be some, in words for a person."""

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this table that this program does not know; written back as they were."""


CLEAN = Worktree(dirty=False)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run or plan has come: the table `[progress]`. Counts start at zero; a UsageError names one that is none."""

    current_phase: int | None = None
    total_phases: int | None = None
    current_task: str | None = None
    tasks_completed: int | None = None
    tasks_total: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this table that this program does not know; written back as they were."""

    def __post_init__(self) -> None:
        for name in ("current_phase", "total_phases", "tasks_completed", "tasks_total"):
            require_number(name, getattr(self, name), may_be_none=True)
        require_text("current_task", self.current_task, may_be_none=True)
        require("unknown", self.unknown, Mapping, "a map of names to values")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What drives a run: the table `[pipeline]`, which every later checkpoint of the run carries on."""

    name: str | None = None
    """The pipeline, where the run was started from one."""

    phases: tuple[str, ...] = ()
    """Its phases, in order; empty where a program decides as it goes."""

    completed: Mapping[str, str] = field(default_factory=dict)
    """Phase → the checkpoint that completed it, in order of completion."""

    autonomy: str | None = None
    """Where the run pauses: checkpoint, batch or fully_autonomous."""

    deadline: str | None = None
    """The instant at which the run is stopped, as a timestamp."""

    definition: Mapping[str, str] = field(default_factory=dict)
    """What the phases do, as digests: a changed one is noticed when the run goes on."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    """What the run was started with, by name."""

    contents: Mapping[str, str] = field(default_factory=dict)
    """Of inputs that are files: the digest of what is in them."""

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this table that this program does not know; written back as they were."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a phase: the table `[attempt]`."""

    phase: str
    number: int = 1
    """Counted over the whole life of the run."""

    ended: str | None = None
    """The status with which it ended; None while it runs, and where nobody saw its end."""

    began: str | None = None
    """The checkpoint at which the phase began, where this is not its first attempt since."""

    failures: int = 0
    """How many of the attempts that `retries` allows have failed."""

    recoveries: int = 0
    """How many attempts at this phase ended without anybody having noted it, as when the machine goes down."""

    retry_at: str | None = None
    """When the next attempt is due, as a timestamp; None where there will be none without a new order."""

    exit_code: int | None = None
    """What the command returned; negative for a signal."""

    seconds: float | None = None
    """How long the attempt took."""

    output: str | None = None
    """The end of what the command printed."""

    result: str | None = None
    """What the phase returned, as JSON."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    """What the phase was called with, as digests by name."""

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this table that this program does not know; written back as they were."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The file of another tool that a checkpoint was made of: the table `[imported]`."""

    path: str
    """Of the file: relative to the top of the worktree where it lay in it; C-quoted as git does it where it is not UTF-8."""

    original: str
    """The oid that `refs/ckpt/originals/<id>` points to: the blob with its bytes."""

    at: str
    """When it was imported, as a timestamp; that of the checkpoint is the file's."""

    untrusted: bool | None = None
    """Whether nothing confirms the file's timestamp; None for no."""

    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of this table that this program does not know; written back as they were."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint document, version 1 (`docs/format.md`). Field names are the document's keys, but for `label`: `phase` there."""

    id: str
    label: str
    """`{phase}-{status}`."""

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
    pipeline: Pipeline | None = None
    attempt: Attempt | None = None
    imported: Imported | None = None
    """None for what was recorded here."""

    forked_from: str | None = None
    """Of the first checkpoint of a run: the checkpoint of another run that it goes on from."""

    rewound_to: str | None = None
    """An earlier checkpoint, whose files, state and completed phases the run went back to here."""

    state: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the document that this program does not know; written back as they were."""

    @property
    def time(self) -> int:
        """The timestamp, in microseconds since the epoch."""
        return times.from_text(self.timestamp)

    @property
    def datetime(self) -> dt.datetime:
        """The timestamp as an aware `datetime` in UTC."""
        return times.as_datetime(self.timestamp)

    @property
    def tree(self) -> str | None:
        """The snapshot; None where the linked commit stands for the files."""
        return self.worktree.tree if self.worktree is not None else None

    @property
    def phase_name(self) -> str:
        """The phase without its status."""
        return phases.split(self.label)[0]

    @property
    def status(self) -> str:
        """The status at the end of the label, or "" where it has none."""
        return phases.split(self.label)[1]
