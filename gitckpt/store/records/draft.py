"""Check the arguments of `Store.save`; make the keys of a checkpoint's document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType

from gitckpt.git.repository import lost_commit_error
from gitckpt.model import codec, document, phase, times
from gitckpt.model.arguments import as_strings, require_callable, require_text, require_type
from gitckpt.model.checkpoint import MANUAL, Attempt, Checkpoint, Pipeline, Progress, Worktree
from gitckpt.model.errors import InvalidCheckpoint, UsageError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store.records import ref_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    from gitckpt.git.objects.writer import ObjectDatabase
    from gitckpt.git.repository import Repository
    from gitckpt.store.records.recorder import Change, ProgressOf

    Fields = Mapping[str, Any]  # keys of a document, or a state

    class CheckpointDetails(TypedDict, total=False):
        """The keys of a checkpoint's document that callers of `Store.save` may set."""

        id: str  # a new UUID version 4, if the caller must know it in advance
        run: str | None  # id of the run to extend
        trigger: str  # "manual" (default), "phase", "step", …
        message: str | None  # one line for people; likely secrets in it are masked
        agent: str | None
        errors: Sequence[str] | None  # in order of occurrence; likely secrets are masked
        progress: Progress | None
        pipeline: Pipeline | None  # what drives the run; None keeps the previous one
        attempt: Attempt | None  # at a phase; None keeps the previous one
        forked_from: str | None  # id of a checkpoint of another run, continued by this one
        rewound_to: str | None  # id of the earlier checkpoint that the run went back to


_GIVEN = tuple(key for key in document.KEYS if key.is_given)
_KNOWN = frozenset(key.name for key in _GIVEN)
_OPTIONAL_TEXTS = ("run", "text", "optional id")  # kinds of keys
_PARTS = {"Progress": Progress, "Pipeline": Pipeline, "Attempt": Attempt}


def require_known_names(details: CheckpointDetails) -> None:
    if bad_names := sorted(set(details) - _KNOWN):
        known = ", ".join(sorted(_KNOWN))
        raise UsageError(f"there is no argument {bad_names[0]!r}", hint=f"valid arguments: {known}")


def require_valid_arguments(label: str, details: CheckpointDetails, /, **options: object) -> None:
    require_text("label", label)
    for key in _GIVEN:
        if key.kind in _OPTIONAL_TEXTS:
            require_text(key.name, details.get(key.name), may_be_none=True)
        elif key.kind in _PARTS:
            class_, article = _PARTS[key.kind], "an" if key.kind == "Attempt" else "a"
            value = details.get(key.name)
            require_type(key.name, value, (class_, NoneType), f"{article} {key.kind}")
    require_text("id", details.get("id", ""))
    require_text("trigger", details.get("trigger", MANUAL))
    require_known_names(details)
    new_run_name, run = options.get("start"), details.get("run")
    for name in ("start", "key", "base"):
        require_text(name, options.get(name), may_be_none=True)
    for name in ("change", "progress_of"):
        require_callable(name, options.get(name), may_be_none=True)
    as_strings("keeps", options.get("keeps", ()))  # type: ignore[arg-type]
    if options.get("key") is not None and new_run_name is None:
        hint = "name the new run: start=…, or find the existing run: Store.run_of(key)"
        raise UsageError("only a new run takes a key", hint=hint)
    states = options.get("change"), options.get("state")
    for names, values in (("start and run", (new_run_name, run)), ("change and state", states)):
        if None not in values:
            raise UsageError(f"{names} exclude each other", hint="give one of the two")
    if options.get("progress_of") is not None and options.get("change") is None:
        hint = "also give change, or give progress instead of progress_of"
        raise UsageError("progress_of needs the state that change returns", hint=hint)
    worktree = options.get("worktree")
    require_type("worktree", worktree, (Worktree, NoneType), "what Store.capture returned")


def read_head(repository: Repository, objects: ObjectDatabase) -> tuple[str, str | None]:
    commit, branch = objects.read_head()
    if not commit:  # or the branch is lost
        repository.require_unborn_head()
    elif next(objects.read([commit])) is None:  # no limit: git must be able to report its error
        raise lost_commit_error(commit)
    return commit, branch


def make_checkpoint(
    label: str,
    state: Mapping[str, Any] | None,
    details: CheckpointDetails,
    *,
    head: tuple[str, str | None],
    worktree: Worktree | None,
    checkpoint_id: str,
    instant: int,
) -> tuple[Checkpoint, dict[str, Any], dict[str, Any] | None]:
    message, errors = details.get("message"), as_strings("errors", details.get("errors"))
    if message or errors:  # hooks have neither; skip the import
        from gitckpt.store import secrets

        errors = tuple(map(secrets.mask_text, errors))
        message = secrets.mask_text(message) if message else None
    if message and (message.splitlines() != [message] or len(message) > document.MAX_MESSAGE):
        problem = f"a message is one line of at most {document.MAX_MESSAGE:,} characters"
        raise UsageError(problem, hint="shorten the message, and put the rest into the state")
    key_values: dict[str, Any] = {"trigger": MANUAL, **details, "id": checkpoint_id}
    key_values |= {"message": message or None, "errors": errors, "worktree": worktree}
    key_values |= {"label": phase.to_phase_label(label), "timestamp": times.to_text(instant)}
    checkpoint = Checkpoint(git_sha=head[0], branch=head[1], **key_values)
    fields = codec.document_fields(checkpoint)
    return checkpoint, fields, _require_valid_document(fields, state)


def _require_valid_document(fields: Fields, state: Fields | None) -> dict[str, Any] | None:
    if state is not None:
        codec.require_state_map(state)
    checked_fields = {**fields, "run": None}
    if fields.get("pipeline") is not None:
        checked_fields["pipeline"] = {**fields["pipeline"]}
        checked_fields["pipeline"].pop("completed", None)
    try:
        codec.require_valid_document(checked_fields, ref_names.CHECKPOINTS + fields["id"])
    except InvalidCheckpoint as error:
        raise UsageError(f"{error.field}: {error.problem}") from None
    return None if state is None else dict(state)


def complete_checkpoint(checkpoint: Checkpoint, fields: Fields, state: Fields | None) -> Checkpoint:
    run_fields: dict[str, Any] = {key: fields.get(key) for key in ("run", "parent", "sequence")}
    keys = ("pipeline", "attempt")
    carried_keys = [key for key in keys if fields.get(key) and getattr(checkpoint, key) is None]
    tables = codec.read_document_tables({key: fields[key] for key in carried_keys})
    if checkpoint.pipeline is not None:
        completed_phases = fields["pipeline"].get("completed", {})
        tables["pipeline"] = replace(checkpoint.pipeline, completed=completed_phases)
    return replace(checkpoint, state=dict(state or {}), **run_fields, **tables)


@dataclass(slots=True)
class StateUpdater:
    checkpoint: Checkpoint
    _fields: dict[str, Any]
    _change: Change
    _progress_of: ProgressOf | None
    state: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self._progress_of is not None:
            # Reserve the key's place, before the tables copied from the previous checkpoint.
            self._fields["progress"] = None

    def __call__(self, old_state: dict[str, Any]) -> dict[str, Any]:
        self.state = self._change(old_state)
        if self._progress_of is not None:
            self.checkpoint = replace(self.checkpoint, progress=self._progress_of(self.state))
            self._fields["progress"] = codec.document_fields(self.checkpoint).get("progress")
        _require_valid_document({**self._fields, "sequence": None, "parent": None}, self.state)
        return self.state


@dataclass(slots=True)
class SuccessorCheckpoint:
    """A checkpoint to record in the same transaction as its predecessor in the run."""

    label: str
    state: Mapping[str, Any]
    details: CheckpointDetails
    checkpoint: Checkpoint | None = None
