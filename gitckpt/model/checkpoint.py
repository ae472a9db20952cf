"""The checkpoint: an immutable record of a state, a commit and files."""

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
# Recorded before the files of a worktree are replaced.
SAFETY = "safety"

# Recorded from a worktree whose directory is gone. No policy expires it: it may be the only copy.
RESCUE = "safety:worktree"

# Recorded by the driver of a run where a phase, or the run, begins or ends.
PHASE = "phase"

# Recorded in a submodule's repository for a checkpoint of its superproject.
SUBMODULE = "submodule"

# Recorded within a phase: by the agent loop, by the review cycle, by the step protocol.
LOOP, REVIEW, STEP = "loop", "review", "step"

# Prefix of the trigger of imported checkpoints; the format's name follows.
IMPORT = "import:"

# Checkpoints made by hooks; the default policy expires them.
HOOK_TRIGGERS = (POST_COMMIT, POST_MERGE)


@dataclass(frozen=True, slots=True)
class Omitted:
    # Relative to the top of the worktree; C-quoted like git's output where it is not UTF-8.
    path: str
    # In words for people.
    reason: str
    # In bytes; None where it was not determined.
    size: int | None = None
    # The commit checked out in a submodule or nested repository.
    oid: str | None = None
    # Whether a submodule has uncommitted changes; None for other paths.
    dirty: bool | None = None
    # Keys that this version does not know; written back unchanged.
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submodule:
    """A captured submodule; its own repository has a checkpoint of it."""

    # As in `Omitted`.
    path: str
    # An id in the submodule's repository.
    checkpoint: str
    # Its HEAD; "" on an unborn branch.
    git_sha: str
    # Whether files, index or an operation in progress differed from that commit.
    dirty: bool
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A place in a captured file that looks like a secret; the text is not kept."""

    # As in `Omitted`.
    path: str
    # Name of the rule that matched.
    rule: str
    # Counted from 1.
    line: int
    # A digest of the match; it identifies the text only in the clone that captured it.
    digest: str
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Worktree:
    """The files of a checkpoint: the table `[worktree]`."""

    # Whether files, index or an operation in progress differed from the linked commit.
    dirty: bool
    # The oid of `refs/ckpt/trees/<id>`; None when clean, unless there is more to keep.
    tree: str | None = None
    # In progress: merge, cherry-pick, revert, rebase, am or bisect.
    operation: str | None = None
    # The oid of `refs/keep/ckpt-operations/<id>`; it reaches every commit that the operation needs
    # and HEAD does not reach.
    operation_commit: str | None = None
    omitted: tuple[Omitted, ...] = ()
    submodules: tuple[Submodule, ...] = ()
    # Captured paths that may come back as git writes them, not byte for byte.
    converted: tuple[str, ...] = ()
    # Only in captured files that differ from the commit, less the settled ones.
    suspects: tuple[Suspect, ...] = ()
    # Why files are missing that should be here, for people.
    degraded: str | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)


CLEAN = Worktree(dirty=False)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run or plan: the table `[progress]`; counts start at zero."""

    current_phase: int | None = None
    total_phases: int | None = None
    current_task: str | None = None
    tasks_completed: int | None = None
    tasks_total: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("current_phase", "total_phases", "tasks_completed", "tasks_total"):
            require_number(name, getattr(self, name), may_be_none=True)
        require_text("current_task", self.current_task, may_be_none=True)
        require("unknown", self.unknown, Mapping, "a map of names to values")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The pipeline of a run: the table `[pipeline]`, copied to each later checkpoint."""

    # None where a program drives the run.
    name: str | None = None
    # In order; empty where a program decides as it goes.
    phases: tuple[str, ...] = ()
    # Phase -> the checkpoint that completed it, in order of completion.
    completed: Mapping[str, str] = field(default_factory=dict)
    # Where the run pauses: checkpoint, batch or fully_autonomous.
    autonomy: str | None = None
    # Timestamp at which the run is stopped.
    deadline: str | None = None
    # Digests of what the phases do; resuming a run detects changes by them.
    definition: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    # Input that is a file -> digest of its content.
    contents: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a phase: the table `[attempt]`."""

    phase: str
    # Counted over the whole life of the run.
    number: int = 1
    # Status at its end; None while it runs, and where the end was not observed.
    ended: str | None = None
    # Checkpoint at which the phase began; None for the first attempt since.
    began: str | None = None
    # Failed attempts, counted against `retries`.
    failures: int = 0
    # Attempts whose end was not recorded, such as after a power cut.
    recoveries: int = 0
    # Timestamp of the next attempt; None where none follows by itself.
    retry_at: str | None = None
    # Negative for a signal.
    exit_code: int | None = None
    seconds: float | None = None
    # The end of the command's output.
    output: str | None = None
    # What the phase returned, as JSON.
    result: str | None = None
    # Input of the phase -> digest.
    inputs: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """The source file of an imported checkpoint: the table `[imported]`."""

    # Relative to the top of the worktree if the file was in it; C-quoted as in `Omitted`.
    path: str
    # The oid of `refs/ckpt/originals/<id>`: the blob with the file's bytes.
    original: str
    # Timestamp of the import; the checkpoint has the timestamp of the file.
    at: str
    # True if nothing confirms the file's timestamp; None otherwise.
    untrusted: bool | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint document, version 1 (`docs/format.md`).

    Fields are named like the document's keys, except `label`, which is `phase` there.
    """

    id: str
    # `{phase}-{status}`
    label: str
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
    # None where files were not captured (`save --no-worktree`, a hook): the commit stands for them.
    worktree: Worktree | None = None
    progress: Progress | None = None
    pipeline: Pipeline | None = None
    attempt: Attempt | None = None
    imported: Imported | None = None
    # In the first checkpoint of a fork: the checkpoint of the other run.
    forked_from: str | None = None
    # The earlier checkpoint whose files, state and completed phases the run went back to.
    rewound_to: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)

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
        """The snapshot, or None if the files were not captured."""
        return self.worktree.tree if self.worktree is not None else None

    @property
    def phase_name(self) -> str:
        """The phase without its status."""
        return phases.split(self.label)[0]

    @property
    def status(self) -> str:
        """The status at the end of the label; "" where it has none."""
        return phases.split(self.label)[1]
