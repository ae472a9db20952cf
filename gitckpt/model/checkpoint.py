"""The checkpoint: an immutable record of a state, a commit and files."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.model import phase as phases
from gitckpt.model import times
from gitckpt.model.arguments import require_number, require_text, require_type
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime as dt
    from typing import Any


POST_COMMIT = "post-commit"
POST_MERGE = "post-merge"
MANUAL = "manual"
SAFETY = "safety"  # recorded before the files of a worktree are replaced

# Recorded from a worktree whose directory is gone. No policy expires it: it may be the only copy.
RESCUE = "safety:worktree"
PHASE = "phase"  # recorded by the driver of a run where a phase, or the run, begins or ends
SUBMODULE = "submodule"  # recorded in a submodule's repository for a checkpoint of its superproject

# Recorded by the hooks of an agent, before and after each of its turns; before a command that may
# destroy work; and when files have changed.
TURN, GUARD, WATCH = "turn", "guard", "watch"

# Recorded within a phase: by the agent loop, by the review cycle, by the step protocol.
LOOP, REVIEW, STEP = "loop", "review", "step"
IMPORT = "import:"  # prefix of the trigger of imported checkpoints; the format's name follows

# Checkpoints made by hooks; the default policy expires them.
HOOK_TRIGGERS = (POST_COMMIT, POST_MERGE)
# Triggers of checkpoints that expire by age outside of runs; a person asked for all others.
EXPIRING = (*HOOK_TRIGGERS, GUARD, WATCH)

# Triggers within a phase. These checkpoints do not determine the status of their run.
WITHIN = (*HOOK_TRIGGERS, SAFETY, RESCUE, LOOP, REVIEW, SUBMODULE, TURN, GUARD, WATCH)


@dataclass(frozen=True, slots=True)
class Omitted:
    # Relative to the top of the worktree; C-quoted like git's output where it is not UTF-8.
    path: str
    reason: str  # why the path was not captured, in words for people
    size: int | None = None  # in bytes; None where it was not determined
    oid: str | None = None  # the commit checked out in a submodule or nested repository
    dirty: bool | None = None  # whether a submodule has uncommitted changes; None for other paths
    # Keys that this version does not know; written back unchanged.
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submodule:
    """A submodule of a checkpoint; a checkpoint in its repository has its files."""

    path: str  # as in `Omitted`
    checkpoint: str  # an id in the submodule's repository
    git_sha: str  # its HEAD; "" on an unborn branch
    dirty: bool  # whether files, index or an operation in progress differed from that commit
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A line of a captured file that may hold a secret; the text is not stored."""

    path: str  # as in `Omitted`
    rule: str  # name of the rule that matched
    line: int  # counted from 1
    digest: str  # a digest of the match; it identifies the text only in the clone that captured it
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Worktree:
    """The captured files of a checkpoint: the document's table `[worktree]`."""

    dirty: bool  # whether files, index or an operation in progress differed from the linked commit
    # The oid of `refs/ckpt/trees/<id>`; None if clean, and nothing else has to be stored.
    tree: str | None = None
    operation: str | None = None  # in progress: merge, cherry-pick, revert, rebase, am or bisect
    # The oid of `refs/keep/ckpt-operations/<id>`; it reaches every commit that the operation needs
    # and HEAD does not reach.
    operation_commit: str | None = None
    omitted: tuple[Omitted, ...] = ()
    submodules: tuple[Submodule, ...] = ()
    # Captured paths that a restore may not reproduce byte for byte, because git converts them.
    converted: tuple[str, ...] = ()
    # Only in captured files that differ from the commit; without those the user declared no secret.
    suspects: tuple[Suspect, ...] = ()
    degraded: str | None = None  # why files that should be captured are missing, for people
    unknown: Mapping[str, Any] = field(default_factory=dict)


CLEAN = Worktree(dirty=False)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run or plan: the document's table `[progress]`; counts begin at 0."""

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
        require_type("unknown", self.unknown, Mapping, "a map of names to values")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The phases and inputs of a run: the table `[pipeline]` of its checkpoints."""

    name: str | None = None  # None if a program drives the run
    phases: tuple[str, ...] = ()  # in order; empty where a program decides as it goes
    # Phase -> the checkpoint that completed it, in order of completion.
    completed: Mapping[str, str] = field(default_factory=dict)
    autonomy: str | None = None  # where the run pauses: checkpoint, batch or fully_autonomous
    deadline: str | None = None  # timestamp at which the run is stopped
    # Digests of what the phases do; resuming a run detects changes by them.
    definition: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    # Input that is a file -> digest of its content.
    contents: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a phase of a run: the document's table `[attempt]`."""

    phase: str
    number: int = 1  # counted over the whole life of the run
    # Status at the attempt's end; None while it runs, or if the end was not observed.
    ended: str | None = None
    # Checkpoint whose files and state the next attempt begins with; None in the first attempt.
    began: str | None = None
    failures: int = 0  # failed attempts, counted against `retries`
    recoveries: int = 0  # attempts whose end was not recorded, such as after a power cut
    retry_at: str | None = None  # timestamp of the next attempt; None without an automatic one
    exit_code: int | None = None  # negative for a signal
    seconds: float | None = None
    output: str | None = None  # the end of the command's output
    result: str | None = None  # what the phase returned, as JSON
    inputs: Mapping[str, str] = field(default_factory=dict)  # input of the phase -> digest
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Imported:
    """The file that a checkpoint was imported from: the table `[imported]`."""

    path: str  # relative to the top of the worktree if the file was in it; C-quoted as in `Omitted`
    original: str  # the oid of `refs/ckpt/originals/<id>`: the blob with the file's bytes
    at: str  # timestamp of the import; the checkpoint has the timestamp of the file
    untrusted: bool | None = None  # true if nothing confirms the file's timestamp; None otherwise
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint document, version 1 (`docs/format.md`).

    Each field has the name of a key of the document, except `label`: that key is `phase`.
    """

    id: str
    label: str  # `{phase}-{status}`
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
    # None if files were not captured (`save --no-worktree`, a hook): only the commit is recorded.
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
        """The checkpoint's timestamp in microseconds since the epoch."""
        return times.parse_timestamp(self.timestamp)

    @property
    def datetime(self) -> dt.datetime:
        """The checkpoint's timestamp as an aware `datetime` in UTC."""
        return times.as_datetime(self.timestamp)

    @property
    def tree(self) -> str | None:
        """The snapshot's tree oid; None if the files are clean or were not captured."""
        return self.worktree.tree if self.worktree is not None else None

    @property
    def phase_name(self) -> str:
        """The name of the phase: the label without its status."""
        return phases.split_label(self.label)[0]

    @property
    def status(self) -> str:
        """The status at the end of the label; "" if the label has none."""
        return phases.split_label(self.label)[1]
