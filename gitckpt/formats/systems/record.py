"""What one file of another tool becomes: a checkpoint that has no place yet. Pure values, which readers of formats return."""

from __future__ import annotations

from collections.abc import Mapping

from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RLM_ACT, WORKFLOW, FORGE, QUASAR, NEBULA, SUPERPOWERS = "rlm-act", "workflow", "forge", "quasar", "nebula", "superpowers"
FORMATS = (RLM_ACT, WORKFLOW, FORGE, QUASAR, NEBULA, SUPERPOWERS)
"""The names of the formats."""

KEY = "import"
"""The key of a state below which stands what the file says and a checkpoint has no place for."""


class Unreadable(ValueError):
    """A file cannot be read as what it is; the message says why, in words for a person."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file.

    Attributes:
        path: where it is, as it is shown; relative to the top of the worktree where it lies in it.
        data: its bytes.
        beside: names → bytes of the files beside it that a reader may ask for.
    """

    path: str
    data: bytes
    beside: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drive:
    """What drives the run that a file tells of, if it goes on here.

    Attributes:
        pipeline: the name of the preset.
        completed: its phases that are complete.
        inputs: name → value, of those that the file has.
        files: of inputs that are files: name → their path as the file has it.
        contents: of inputs that are files, and came along: name → bytes.
    """

    pipeline: str
    completed: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """What a file becomes.

    Attributes:
        format: one of `FORMATS`.
        identity: what the run is known by: files with the same one are of the same run.
        name: what the run is about; becomes part of its id.
        by_path: whether the path is part of the identity: elsewhere, the same bytes are another run.
        phase: the label of the checkpoint.
        state: of the checkpoint.
        said: the timestamp as the file has it; "" without one.
        time: the instant that this means if it is taken at its word, in microseconds since the epoch; None without one.
        started: when the run began, likewise.
        is_local: whether the file's clock may have been a local one that was called UTC.
        commit: what the file says that HEAD was; "" where it does not.
        errors: what went wrong.
        id: the id that the checkpoint should have; None for any.
        run: the id that the run should have; None for one that is made of `started` and `name`.
        place: orders records of a run that have the same time.
        drive: what drives the run; None where nothing does.
        worktree: absolute path of the worktree that the work was done in, as the file has it; None where it has none.
        branch: the branch that the work was done on; None where that is not told.
        remarks: what was repaired, or was kept and not understood, a clause each.
    """

    format: str
    identity: str
    name: str
    phase: str
    state: Mapping[str, Any]
    by_path: bool = False
    said: str = ""
    time: int | None = None
    started: int | None = None
    is_local: bool = False
    commit: str = ""
    errors: tuple[str, ...] = ()
    id: str | None = None
    run: str | None = None
    place: int = 0
    drive: Drive | None = None
    worktree: str | None = None
    branch: str | None = None
    remarks: tuple[str, ...] = ()
