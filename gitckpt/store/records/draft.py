"""From what a caller hands in to the keys of a document, checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType

from gitckpt.git.repository import lost_commit
from gitckpt.model import codec, document, times
from gitckpt.model import phase as phases
from gitckpt.model.arguments import require, require_callable, require_text, strings
from gitckpt.model.checkpoint import MANUAL, Attempt, Checkpoint, Pipeline, Progress, Worktree
from gitckpt.model.errors import InvalidCheckpoint, UsageError
from gitckpt.model.values import replace
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.store.records.recorder import Change, ProgressOf

    class Details(TypedDict, total=False):
        """Keys of a checkpoint that a caller may set."""

        id: str
        """A fresh UUID version 4, where the caller has to know it before; one that is taken is refused at once."""

        run: str | None
        """Id of the run that it extends."""

        trigger: str
        """What caused it: "manual", which is the default, "phase", "step", …"""

        message: str | None
        """One line for people; what looks like a secret in it is masked."""

        agent: str | None
        """Who did the work."""

        errors: Sequence[str] | None
        """What went wrong, in order of occurrence, masked likewise; none where it is None."""

        progress: Progress | None
        """How far the run has come."""

        pipeline: Pipeline | None
        """What drives the run; None carries it on."""

        attempt: Attempt | None
        """The attempt at a phase that it is about; None carries it on."""

        forked_from: str | None
        """The checkpoint of another run that this one goes on from."""

        rewound_to: str | None
        """The earlier checkpoint of the run that it went back to."""


_GIVEN = tuple(key for key in document.KEYS if key.is_given)
_OPTIONAL_TEXTS = ("run", "text", "optional id")
"""The kinds of keys that a caller hands in as a text or leaves out."""

_PARTS = {"Progress": Progress, "Pipeline": Pipeline, "Attempt": Attempt}


def require_known(details: Details) -> None:
    """Raises `UsageError` for a key that no caller may set."""
    unknown = sorted(set(details) - _KNOWN)
    if unknown:
        raise UsageError(f"there is no argument {unknown[0]!r}", hint=f"what may be said of a checkpoint: {', '.join(sorted(_KNOWN))}")


def require_call(label: str, details: Details, /, **others: object) -> None:
    """Looks at what `Checkpoints.record` or `Checkpoints.save` was called with, before anything is done with it.

    Args:
        label: of the checkpoint.
        details: keys of the document.
        others: the other arguments by name; those that are not there are not looked at.

    Raises:
        UsageError: an argument is unknown or of a wrong type, or two of them exclude each other.
    """
    require_text("label", label)
    for key in _GIVEN:
        if key.kind in _OPTIONAL_TEXTS:
            require_text(key.name, details.get(key.name), may_be_none=True)
        elif key.kind in _PARTS:
            kind = _PARTS[key.kind]
            require(key.name, details.get(key.name), (kind, NoneType), f"a{'n' if kind is Attempt else ''} {kind.__name__}")
    require_text("id", details.get("id", ""))
    require_text("trigger", details.get("trigger", MANUAL))
    require_known(details)
    for name in ("start", "key", "base"):
        require_text(name, others.get(name), may_be_none=True)
    for name in ("change", "progress_of"):
        require_callable(name, others.get(name), may_be_none=True)
    strings("keeps", others.get("keeps", ()))  # type: ignore[arg-type]
    if others.get("key") is not None and others.get("start") is None:
        raise UsageError("a key is for a run that starts", hint="name it: start=…, or find the run: Store.run_of(key)")
    for one, other in (("start", details.get("run")), ("change", others.get("state"))):
        if others.get(one) is not None and other is not None:
            raise UsageError(f"{one} and {'run' if one == 'start' else 'state'} exclude each other", hint="give one of them")
    if others.get("progress_of") is not None and others.get("change") is None:
        raise UsageError("progress_of says how far the run is by what change made, and there is no change", hint="give progress instead")
    require("worktree", others.get("worktree"), (Worktree, NoneType), "what Store.capture returned")


_KNOWN = frozenset(key.name for key in _GIVEN)


def head(repository: Repository, objects: Objects) -> tuple[str, str | None]:
    """As `Objects.head`, for what is to be recorded: not as one of an unborn branch where a power cut has taken the commit.

    Raises:
        RepositoryError: the commit is missing or damaged.
    """
    commit, branch = objects.head()
    if not commit:
        repository.require_unborn()
    elif next(objects.read([commit])) is None:  # with a limit, git would be ended instead of being listened to
        raise lost_commit(commit)
    return commit, branch


def draft(
    label: str,
    state: Mapping[str, Any] | None,
    details: Details,
    *,
    head: tuple[str, str | None],
    worktree: Worktree | None,
    checkpoint_id: str,
    instant: int,
) -> tuple[Checkpoint, dict[str, Any], dict[str, Any] | None]:
    """Returns a checkpoint without its place in a run and without its state; the keys of its document; the state to write.

    Args:
        label: as a caller may write it: see `phase.label`.
        state: what the caller handed in.
        details: its other keys.
        head: the commit it is linked to, and the branch.
        worktree: its files.
        checkpoint_id: its id.
        instant: now, in microseconds since the epoch.

    Raises:
        UsageError: the label is none, the message is none, or a reader would refuse a document with
            these keys.
        StateError: the state is not a map.
    """
    message, errors = details.get("message"), strings("errors", details.get("errors"))
    if message or errors:  # hooks have neither, and no time for more imports
        from gitckpt.store import secrets

        errors = tuple(secrets.masked(each) for each in errors)
        message = secrets.masked(message) if message else None
    if message and (message.splitlines() != [message] or len(message) > document.MESSAGE):
        what = f"a message is one line of at most {document.MESSAGE:,} characters"
        raise UsageError(what, hint="shorten it, and put the rest into the state")
    given: dict[str, Any] = {"trigger": MANUAL, **details, "id": checkpoint_id, "message": message or None, "errors": errors}
    drafted = Checkpoint(
        label=phases.label(label), timestamp=times.to_text(instant), git_sha=head[0], branch=head[1], worktree=worktree, **given
    )
    fields = codec.fields(drafted)
    return drafted, fields, _require_valid(fields, state)


def _require_valid(fields: Mapping[str, Any], state: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the state to write.

    Args:
        fields: keys of a document.
        state: what the caller handed in.

    Raises:
        UsageError: a reader would refuse a document with these keys.
        StateError: the state is not a map.
    """
    if state is not None:
        codec.require_map(state)
    pipeline = fields.get("pipeline")
    known = {} if pipeline is None else {"pipeline": {key: value for key, value in pipeline.items() if key != "completed"}}
    try:
        codec.check({**fields, **known, "run": None}, layout.CHECKPOINTS + fields["id"])
    except InvalidCheckpoint as error:
        raise UsageError(f"{error.field}: {error.problem}") from None
    return None if state is None else dict(state)


def recorded(checkpoint: Checkpoint, fields: Mapping[str, Any], state: Mapping[str, Any] | None) -> Checkpoint:
    """Returns a checkpoint as it was written.

    Args:
        checkpoint: as it was drafted.
        fields: the keys that were written.
        state: the state that was handed in.
    """
    place = {"state": dict(state or {}), "run": fields["run"], "parent": fields.get("parent"), "sequence": fields.get("sequence")}
    written = codec.tables({key: fields[key] for key in ("pipeline", "attempt") if fields.get(key) and getattr(checkpoint, key) is None})
    if checkpoint.pipeline is not None:
        written["pipeline"] = replace(checkpoint.pipeline, completed=fields["pipeline"].get("completed", {}))
    return replace(checkpoint, **place, **written)


class Changing:
    """A change for a `Proposal` that keeps the checkpoint in step with the state it makes.

    Args:
        checkpoint: as it was drafted.
        fields: its keys, which are going to be written.
        change: makes the new state of the one before; must not change that.
        progress_of: says how far the run has come by the new state; None leaves the table as it was
            drafted.

    Attributes:
        checkpoint: as it was made last.
        state: as it was made last.
    """

    def __init__(self, checkpoint: Checkpoint, fields: dict[str, Any], change: Change, progress_of: ProgressOf | None) -> None:
        self.checkpoint = checkpoint
        self.state: dict[str, Any] = {}
        self._fields = fields
        self._change = change
        self._progress_of = progress_of
        if progress_of is not None:
            fields["progress"] = None  # its place is before the tables that a run carries on

    def __call__(self, before: dict[str, Any]) -> dict[str, Any]:
        """Makes the new state, and returns it."""
        self.state = self._change(before)
        if self._progress_of is not None:
            self.checkpoint = replace(self.checkpoint, progress=self._progress_of(self.state))
            self._fields["progress"] = codec.fields(self.checkpoint).get("progress")
        _require_valid({**self._fields, "sequence": None, "parent": None}, self.state)
        return self.state


class Successor:
    """A checkpoint that follows another one of its run at once, on the same commit and with the same files, in the same transaction.

    Args:
        label: of the checkpoint.
        state: what it carries.
        details: its other keys.

    Attributes:
        made: the checkpoint once it is recorded.
    """

    def __init__(self, label: str, state: Mapping[str, Any], details: Details) -> None:
        self.label = label
        self.state = state
        self.details = details
        self.made: Checkpoint | None = None
