"""Export checkpoints and runs as files of other tools.

An imported and unchanged checkpoint is exported as the original bytes; any other checkpoint is
written as the tool itself would write it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable

from gitckpt.formats.importer import trigger
from gitckpt.formats.systems import content, detection, forge, quasar, rlm_act, superpowers
from gitckpt.git import fsync
from gitckpt.git.files import private_dirs, regular
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.worktree import administration
from gitckpt.model.arguments import require, require_path, require_text, shell_word
from gitckpt.model.checkpoint import IMPORT, Checkpoint
from gitckpt.model.errors import CkptError, UsageError, WorktreeError
from gitckpt.model.phase import NOT_PHASES, split
from gitckpt.model.values import dataclass, replace
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import finder, heads, ref_names
from gitckpt.store.records.entry import CheckpointInfo
from gitckpt.store.store import Store, inside

# A writer appends a clause to the list for each thing that the format cannot express. It raises
# `Unreadable` if the checkpoint does not fit the format.
_WRITERS: dict[str, Callable[[Checkpoint, list[str]], bytes]] = {
    content.RLM_ACT: rlm_act.write,
    content.FORGE: forge.write,
    content.QUASAR: quasar.write,
    content.SUPERPOWERS: superpowers.write,
}
# Formats in which a run is a directory with a file for each ended phase.
_DIRECTORIES = (content.RLM_ACT,)
_LARGEST = 64 * 1024 * 1024
# File of the last exports, one line each: digest of the path, oid of the bytes.
_LIST, _LARGEST_LIST, _MAX_EXPORTS = "exports", 1024 * 1024, 5000
_EXPORT = re.compile("[0-9a-f]{64} [0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A checkpoint converted to a file of another tool."""

    checkpoint: str  # id
    name: str  # the file name that the tool would use
    data: bytes
    losses: tuple[str, ...]  # a clause for each thing that the format cannot express
    is_original: bool  # whether `data` are the imported bytes


class Exporter:
    """Exports checkpoints and runs of a repository as files of other tools."""

    def __init__(self, store: Store) -> None:
        self._checkpoints = inside(store)

    def files(self, text: str, format: str, *, every: bool = False) -> list[ExportResult]:  # noqa: A002 - the word for it
        """Return a checkpoint or a run as files of another tool, without writing them.

        Args:
            text: names a checkpoint or a run, as for `Store.find`.
            format: one of `detection.NAMES`.
            every: export each checkpoint that ends a phase, if the tool has such files; else only
                the newest one.

        Raises:
            NotFoundError, AmbiguousError: the text names no checkpoint or run, or several.
            UsageError: the format is unknown, or cannot express the checkpoint.
            InvalidCheckpoint: the checkpoint cannot be read.
        """
        store, format_ = self._checkpoints, format
        require_text("text", text)
        require_text("format", format_)
        detection.require_format(format_)
        run = finder.resolve_run(text, store.repository, store.index)
        if run is None:
            return [_export(store, store.read(store.find(text)), format_)]
        entries = list(reversed(heads.list_checkpoints(store.index, store.repository, run)))
        if format_ in (content.RLM_ACT, content.WORKFLOW):
            entries = [entry for entry in entries if _ends_phase(entry)] or entries[-1:]
        if not (every and format_ in _DIRECTORIES):
            entries = entries[-1:]
        exports = [_export(store, store.read(entry.id), format_) for entry in entries]
        return _with_distinct_names(exports)

    def is_directory(self, text: str, format: str) -> bool:  # noqa: A002 - the word for it
        """Return whether `files(…, every=True)` returns a file per phase: for a directory."""
        require_text("text", text)
        store = self._checkpoints
        is_directory = format in _DIRECTORIES
        return is_directory and bool(finder.resolve_run(text, store.repository, store.index))

    def write(self, path: str, exported: ExportResult, *, force: bool = False) -> None:
        """Write a file atomically.

        `force` replaces any file; else only an imported file or the last export is replaced.

        Raises:
            UsageError: another file exists, or a link leads out of the worktree.
            WorktreeError: the file cannot be written, or its directory does not exist.
        """
        require_path("path", path, as_text=True)
        require("exported", exported, ExportResult, "what Exporter.files returned")
        store, place = self._checkpoints, os.path.abspath(path)
        _require_inside(store, place)
        if os.path.lexists(place) and not force:
            _require_replaceable(store, place, exported)
        if not os.path.isdir(os.path.dirname(place)):
            raise _no_directory(path)
        try:
            if _is_in_worktree(store, place):
                administration.write_file(store.repository, place, exported.data)
            else:
                regular.write(place, exported.data)
        except OSError as error:
            hint = "choose another path: -o PATH"
            raise WorktreeError(f"cannot write {path}: {error.strerror}", hint=hint) from None
        fsync.flush(_parent_directories(place))  # the directory may be new
        _record_export(store, place, exported.data)

    def make_directory(self, path: str) -> None:
        """Create a directory unless it exists; raise the same errors as `write`."""
        require_path("path", path, as_text=True)
        place = os.path.abspath(path)
        if os.path.isdir(place):
            return
        _require_inside(self._checkpoints, place)
        if not os.path.isdir(os.path.dirname(place)):
            raise _no_directory(path)
        try:
            os.mkdir(place)
        except OSError as error:
            problem = f"cannot create the directory {path}: {error.strerror}"
            hint = "choose another path: -o PATH; or export a single checkpoint"
            raise WorktreeError(problem, hint=hint) from None


def _no_directory(path: str) -> WorktreeError:
    directory = os.path.dirname(path.rstrip(os.sep)) or os.curdir
    hint = f"create it: mkdir -p {shell_word(directory)}; or choose another path: -o PATH"
    return WorktreeError(f"cannot write {path}: there is no directory {directory}", hint=hint)


def _require_inside(store: Checkpoints, place: str) -> None:
    """Refuse a path below the worktree if a link in it leads outside, or into `.git`."""
    repository = store.repository
    top = os.path.realpath(repository.worktree or os.devnull)
    directory = os.path.dirname(place)
    if not f"{directory}/".startswith(f"{top}/"):
        return
    real = os.path.realpath(directory)
    git_dirs = map(os.path.realpath, (repository.git_dir, repository.common_dir))
    is_in_git = f"{real}/".startswith(tuple(f"{path}/" for path in git_dirs))
    if real != directory and (is_in_git or not _is_in_worktree(store, place)):
        message = f"{directory} leads out of the worktree through a link, to {real}"
        raise UsageError(message, hint="choose a path without links: -o PATH")


def _is_in_worktree(store: Checkpoints, place: str) -> bool:
    # Inside, a capture would find temporary files that a kill leaves.
    top = os.path.realpath(store.repository.worktree or os.devnull)
    return f"{os.path.realpath(os.path.dirname(place))}/".startswith(f"{top}/")


def _ends_phase(entry: CheckpointInfo) -> bool:
    name, status = split(entry.label)
    return entry.trigger.startswith(IMPORT) or (
        status in ("complete", "failed", "skipped") and name not in NOT_PHASES
    )


def _export(store: Checkpoints, checkpoint: Checkpoint, format_: str) -> ExportResult:
    imported = checkpoint.imported
    name = _name(checkpoint, format_)
    formats = (content.QUASAR, content.NEBULA) if format_ == content.QUASAR else (format_,)
    if imported is not None and checkpoint.trigger in map(trigger, formats):
        original = next(store.objects.read([imported.original], None))
        if original is None or original[0] != "blob":
            problem = f"the file from which checkpoint {checkpoint.id} was imported is missing"
            raise CkptError(problem, hint="check the store: git ckpt verify")
        name = _imported_name(imported.path) or name
        return ExportResult(checkpoint.id, name, original[1], (), is_original=True)
    if format_ not in _WRITERS:
        hint = f"choose another format: --format {content.RLM_ACT}"
        raise UsageError(f"only imported checkpoints can be exported as {format_}", hint=hint)
    losses: list[str] = []
    try:
        data = _WRITERS[format_](checkpoint, losses)
    except content.Unreadable as error:
        problem = f"cannot export checkpoint {checkpoint.id[:8]} as {format_}: {error}"
        hint = f"see the state: git ckpt show {checkpoint.id[:8]} --state"
        raise UsageError(problem, hint=hint) from None
    losses = list(dict.fromkeys(losses + _losses_of_format(checkpoint, format_)))
    return ExportResult(checkpoint.id, name, data, tuple(losses), is_original=False)


def _losses_of_format(checkpoint: Checkpoint, format_: str) -> list[str]:
    values = {name: getattr(checkpoint, name) for name in ("message", "agent", "branch")}
    values["commit"] = checkpoint.git_sha or None
    losses = [
        f"{name} = {value}"
        for name, value in values.items()
        if value is not None and format_ not in _FORMATS_BY_VALUE[name]
    ]
    inputs = checkpoint.pipeline.inputs if checkpoint.pipeline is not None else {}
    stored_names = _INPUTS_BY_FORMAT.get(format_, ())
    names = [name for name, value in inputs.items() if value and name not in stored_names]
    losses += [f"the inputs {', '.join(names)} of the pipeline"] if names else []
    if checkpoint.worktree is not None and checkpoint.worktree.dirty:
        losses.append("uncommitted changes")
    if checkpoint.sequence is not None and checkpoint.sequence > 1 and format_ != content.RLM_ACT:
        losses.append(f"the history of the run: {checkpoint.sequence - 1} earlier checkpoints")
    return losses


# The formats that can express a value; the pipeline inputs that a format can express.
_FORMATS_BY_VALUE = {"message": (), "agent": (content.SUPERPOWERS,), "branch": (content.FORGE,)}
_FORMATS_BY_VALUE["commit"] = (content.RLM_ACT, content.QUASAR)
_INPUTS_BY_FORMAT = {
    content.FORGE: ("plan",),
    content.QUASAR: ("task", "title", "max_cycles", "max_budget"),
}


def _imported_name(path: str) -> str | None:
    # An imported checkpoint can contain any path; only names that a tool would use are reused.
    name = os.path.basename(path)
    is_usual = name.endswith(detection.SUFFIXES) and not name.startswith(".")
    return name if is_usual and name.isprintable() else None


def _with_distinct_names(files: list[ExportResult]) -> list[ExportResult]:
    distinct: dict[str, ExportResult] = {}
    for file in files:
        name = f"{file.checkpoint}.json" if file.name in distinct else file.name
        distinct[name] = replace(file, name=name)
    return list(distinct.values())


def _name(checkpoint: Checkpoint, format_: str) -> str:
    names = {content.FORGE: f"{checkpoint.run}.yaml", content.QUASAR: "checkpoint.toml"}
    names[content.SUPERPOWERS] = "metadata.json"
    return names.get(format_, f"{checkpoint.id}.json")


def _require_replaceable(store: Checkpoints, place: str, exported: ExportResult) -> None:
    """Refuse to replace a file unless it was imported, exported last, or is equal."""
    try:
        data = regular.content(place, _LARGEST, follow=False)
    except OSError as error:
        hint = "move that file away, or choose another path: -o PATH"
        raise UsageError(f"cannot replace {place}: {error.strerror}", hint=hint) from None
    oid = object_id("blob", data, store.repository.object_format)
    if data == exported.data or _read_exports(store).get(_digest(place)) == oid:
        return
    if oid not in (original for _, original in store.refs.iterate(ref_names.ORIGINALS)):
        problem = f"{place} exists, and was neither imported nor written by the last export"
        hint = "to replace the file: --force; or choose another path: -o PATH"
        raise UsageError(problem, hint=hint)


def _digest(place: str) -> str:
    return hashlib.sha256(os.fsencode(place)).hexdigest()


def _read_exports(store: Checkpoints) -> dict[str, str]:
    path = os.path.join(store.repository.private_dir, _LIST)
    try:
        text = regular.content(path, _LARGEST_LIST, follow=False).decode("ascii", "replace")
    except OSError:
        return {}  # the next export needs --force
    # A power cut may leave any content.
    return dict(line.split(" ") for line in text.splitlines() if _EXPORT.fullmatch(line))


def _record_export(store: Checkpoints, place: str, data: bytes) -> None:
    repository, digest = store.repository, _digest(place)
    path = os.path.join(repository.make_private_dir(), _LIST)
    with ref_names.write_lock(repository):
        exports = _read_exports(store)
        exports.pop(digest, None)  # move to the end: the oldest are dropped
        exports[digest] = object_id("blob", data, repository.object_format)
        lines = [f"{key} {oid}\n" for key, oid in exports.items()][-_MAX_EXPORTS:]
        try:
            data = "".join(lines).encode("ascii")
            regular.write_private(path, data, flushed=True, opener=private_dirs.create)
        except OSError as error:
            hint = f"{place} was written; to replace that file later: --force"
            raise WorktreeError(f"cannot write {path}: {error.strerror}", hint=hint) from None
    fsync.flush([repository.private_dir, repository.common_dir])


def _parent_directories(place: str) -> list[str]:
    """Return the readable directories above the directory of a file."""
    directories = []
    path = os.path.dirname(place)
    while (parent := os.path.dirname(path)) != path:
        path = parent
        directories.append(path)
    return [path for path in directories if os.access(path, os.R_OK)]
