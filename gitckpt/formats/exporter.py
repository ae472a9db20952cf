"""Export checkpoints and runs as files of other tools.

A checkpoint that was imported and not changed is exported as the original bytes. Any other
checkpoint is written as the tool itself would write it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable

from gitckpt.formats.importer import trigger_of
from gitckpt.formats.systems import content, detection, forge, quasar, rlm_act, superpowers
from gitckpt.git import fsync
from gitckpt.git.files import private_dirs, regular
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.worktree import administration
from gitckpt.model.arguments import require_path, require_text, require_type, shell_quoted
from gitckpt.model.checkpoint import IMPORT, Checkpoint
from gitckpt.model.errors import CkptError, UsageError, WorktreeError
from gitckpt.model.phase import NOT_PHASES, split_label
from gitckpt.model.values import dataclass, replace
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import heads, ref_names
from gitckpt.store.records.entry import CheckpointInfo
from gitckpt.store.store import Store, checkpoints_of_store

# A writer appends a clause to the list for each thing that the format cannot express. It raises
# `BadFormat` if the checkpoint does not fit the format.
_WRITERS: dict[str, Callable[[Checkpoint, list[str]], bytes]] = {
    content.RLM_ACT: rlm_act.write_checkpoint,
    content.FORGE: forge.write_run,
    content.QUASAR: quasar.write_review,
    content.SUPERPOWERS: superpowers.write_track,
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
        self._checkpoints = checkpoints_of_store(store)

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
        detection.require_known_format(format_)
        run = store.addresses.find_named_run(text)
        if run is None:
            return [_export_checkpoint(store, store.read(store.find_id(text)), format_)]
        entries = list(reversed(heads.list_run_checkpoints(store.index, store.repository, run)))
        if format_ in (content.RLM_ACT, content.WORKFLOW):
            entries = [entry for entry in entries if _ends_phase(entry)] or entries[-1:]
        if not (every and format_ in _DIRECTORIES):
            entries = entries[-1:]
        exports, progress = [], store.repository.counter("exporting checkpoints")
        for entry in entries:
            exports.append(_export_checkpoint(store, store.read(entry.id), format_))
            if progress is not None:
                progress(len(exports), len(entries))
        return _rename_duplicate_files(exports)

    def is_directory(self, text: str, format: str) -> bool:  # noqa: A002 - the word for it
        """Return whether the format exports the run `text` as a directory of files."""
        require_text("text", text)
        store = self._checkpoints
        is_directory = format in _DIRECTORIES
        return is_directory and bool(store.addresses.find_named_run(text))

    def write(self, path: str, exported: ExportResult, *, force: bool = False) -> None:
        """Write the exported file atomically.

        With `force`, any existing file is replaced; else only an imported file or the last export.

        Raises:
            UsageError: another file exists, or a link leads out of the worktree.
            WorktreeError: the file cannot be written, or its directory does not exist.
        """
        require_path("path", path, as_text=True)
        require_type("exported", exported, ExportResult, "what Exporter.files returned")
        store, full_path = self._checkpoints, os.path.abspath(path)
        _require_inside(store, full_path)
        if os.path.lexists(full_path) and not force:
            _require_replaceable(store, full_path, exported)
        if not os.path.isdir(os.path.dirname(full_path)):
            raise _missing_directory_error(path)
        try:
            if _is_in_worktree(store, full_path):
                administration.write_worktree_file(store.repository, full_path, exported.data)
            else:
                regular.write(full_path, exported.data)
        except OSError as error:
            hint = "choose another path: -o PATH"
            raise WorktreeError(f"cannot write {path}: {error.strerror}", hint=hint) from None
        fsync.flush(_readable_directories_above(full_path))  # the directory may be new
        _record_export(store, full_path, exported.data)

    def make_directory(self, path: str) -> None:
        """Create a directory unless it exists; raise the same errors as `write`."""
        require_path("path", path, as_text=True)
        full_path = os.path.abspath(path)
        if os.path.isdir(full_path):
            return
        _require_inside(self._checkpoints, full_path)
        if not os.path.isdir(os.path.dirname(full_path)):
            raise _missing_directory_error(path)
        try:
            os.mkdir(full_path)
        except OSError as error:
            problem = f"cannot create the directory {path}: {error.strerror}"
            hint = "choose another path: -o PATH; or export a single checkpoint"
            raise WorktreeError(problem, hint=hint) from None


def _missing_directory_error(path: str) -> WorktreeError:
    directory = os.path.dirname(path.rstrip(os.sep)) or os.curdir
    hint = f"create it: mkdir -p {shell_quoted(directory)}; or choose another path: -o PATH"
    return WorktreeError(f"cannot write {path}: there is no directory {directory}", hint=hint)


def _require_inside(store: Checkpoints, full_path: str) -> None:
    """Raise `UsageError` if a link leads a path out of the worktree or into `.git`."""
    repository = store.repository
    root = os.path.realpath(repository.worktree or os.devnull)
    directory = os.path.dirname(full_path)
    if not f"{directory}/".startswith(f"{root}/"):
        return
    real_directory = os.path.realpath(directory)
    git_dirs = map(os.path.realpath, (repository.git_dir, repository.common_dir))
    is_in_git = f"{real_directory}/".startswith(tuple(f"{path}/" for path in git_dirs))
    if real_directory != directory and (is_in_git or not _is_in_worktree(store, full_path)):
        message = f"{directory} leads out of the worktree through a link, to {real_directory}"
        raise UsageError(message, hint="choose a path without links: -o PATH")


def _is_in_worktree(store: Checkpoints, full_path: str) -> bool:
    # Inside, a capture would find temporary files that a kill leaves.
    root = os.path.realpath(store.repository.worktree or os.devnull)
    return f"{os.path.realpath(os.path.dirname(full_path))}/".startswith(f"{root}/")


def _ends_phase(entry: CheckpointInfo) -> bool:
    name, status = split_label(entry.label)
    return entry.trigger.startswith(IMPORT) or (
        status in ("complete", "failed", "skipped") and name not in NOT_PHASES
    )


def _export_checkpoint(store: Checkpoints, checkpoint: Checkpoint, format_: str) -> ExportResult:
    imported = checkpoint.imported
    name = _default_file_name(checkpoint, format_)
    formats = (content.QUASAR, content.NEBULA) if format_ == content.QUASAR else (format_,)
    if imported is not None and checkpoint.trigger in map(trigger_of, formats):
        original_object = next(store.objects.read([imported.original], None))
        if original_object is None or original_object[0] != "blob":
            problem = f"the file from which checkpoint {checkpoint.id} was imported is missing"
            raise CkptError(problem, hint="check the store: git ckpt verify")
        name = _usual_imported_file_name(imported.path) or name
        return ExportResult(checkpoint.id, name, original_object[1], (), is_original=True)
    if format_ not in _WRITERS:
        hint = f"choose another format: --format {content.RLM_ACT}"
        raise UsageError(f"only imported checkpoints can be exported as {format_}", hint=hint)
    losses: list[str] = []
    try:
        data = _WRITERS[format_](checkpoint, losses)
    except content.BadFormat as error:
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
    kept_inputs = _INPUTS_BY_FORMAT.get(format_, ())
    lost_inputs = [name for name, value in inputs.items() if value and name not in kept_inputs]
    losses += [f"the inputs {', '.join(lost_inputs)} of the pipeline"] if lost_inputs else []
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


def _usual_imported_file_name(path: str) -> str | None:
    # An imported checkpoint can contain any path; only names that a tool would use are reused.
    name = os.path.basename(path)
    is_usual = name.endswith(detection.SUFFIXES) and not name.startswith(".")
    return name if is_usual and name.isprintable() else None


def _rename_duplicate_files(files: list[ExportResult]) -> list[ExportResult]:
    files_by_name: dict[str, ExportResult] = {}
    for file in files:
        name = f"{file.checkpoint}.json" if file.name in files_by_name else file.name
        files_by_name[name] = replace(file, name=name)
    return list(files_by_name.values())


def _default_file_name(checkpoint: Checkpoint, format_: str) -> str:
    names = {content.FORGE: f"{checkpoint.run}.yaml", content.QUASAR: "checkpoint.toml"}
    names[content.SUPERPOWERS] = "metadata.json"
    return names.get(format_, f"{checkpoint.id}.json")


def _require_replaceable(store: Checkpoints, full_path: str, exported: ExportResult) -> None:
    """Raise `UsageError` unless a file is equal, imported or the last export."""
    try:
        data = regular.read_content(full_path, _LARGEST, follow=False)
    except OSError as error:
        hint = "move that file away, or choose another path: -o PATH"
        raise UsageError(f"cannot replace {full_path}: {error.strerror}", hint=hint) from None
    oid = object_id("blob", data, store.repository.object_format)
    if data == exported.data or _read_exports(store).get(_hash_path(full_path)) == oid:
        return
    if oid not in (original for _, original in store.refs.iterate_refs(ref_names.ORIGINALS)):
        problem = f"{full_path} exists, and was neither imported nor written by the last export"
        hint = "to replace the file: --force; or choose another path: -o PATH"
        raise UsageError(problem, hint=hint)


def _hash_path(full_path: str) -> str:
    return hashlib.sha256(os.fsencode(full_path)).hexdigest()


def _read_exports(store: Checkpoints) -> dict[str, str]:
    path = os.path.join(store.repository.private_dir, _LIST)
    try:
        text = regular.read_content(path, _LARGEST_LIST, follow=False).decode("ascii", "replace")
    except OSError:
        return {}  # the next export needs --force
    # A power cut may leave any content.
    return dict(line.split(" ") for line in text.splitlines() if _EXPORT.fullmatch(line))


def _record_export(store: Checkpoints, full_path: str, data: bytes) -> None:
    repository, path_hash = store.repository, _hash_path(full_path)
    path = os.path.join(repository.make_private_dir(), _LIST)
    with ref_names.write_lock(repository):
        exports = _read_exports(store)
        exports.pop(path_hash, None)  # move to the end: the oldest are dropped
        exports[path_hash] = object_id("blob", data, repository.object_format)
        lines = [f"{key} {oid}\n" for key, oid in exports.items()][-_MAX_EXPORTS:]
        try:
            data = "".join(lines).encode("ascii")
            opener = private_dirs.open_private_file
            regular.write_private_file(path, data, flushed=True, opener=opener)
        except OSError as error:
            hint = f"{full_path} was written; to replace that file later: --force"
            raise WorktreeError(f"cannot write {path}: {error.strerror}", hint=hint) from None
    fsync.flush([repository.private_dir, repository.common_dir])


def _readable_directories_above(full_path: str) -> list[str]:
    directories = []
    path = os.path.dirname(full_path)
    while (parent := os.path.dirname(path)) != path:
        path = parent
        directories.append(path)
    return [path for path in directories if os.access(path, os.R_OK)]
