"""Restore the captured bytes of files where git's conversions write other bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gitckpt.git.contents import attributes, conversion, exact_files
from gitckpt.git.contents.attributes import ConversionSettings
from gitckpt.git.objects.diff import PathDifference
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import join_first
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.model.values import dataclass, field
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.manifest import Snapshot

_AT_ONCE = 1000
_CRLF = b"\r\n"


@dataclass(slots=True)
class ByteExactPlan:
    """The files whose captured bytes may differ from the bytes that git writes."""

    raw: dict[bytes, str] = field(default_factory=dict)  # oids of exact bytes in the snapshot
    # Files with different bytes now, though git stores the same blob: oids of the current bytes.
    equal_blobs: dict[bytes, str] = field(default_factory=dict)
    unchanged: set[bytes] = field(default_factory=set)  # files that already have the captured bytes
    is_within: Callable[[bytes], bool] = lambda _: True
    # Paths that git writes or deletes; None unless one is `.gitattributes`, which affects binary.
    touched: Collection[bytes] | None = None
    # Files that the attributes make git convert, before the restore and after it.
    converted: set[bytes] = field(default_factory=set)
    # Git options to write the captured line ends; empty if the settings agree or are unknown.
    line_ends: tuple[str, ...] = ()
    # Files that git writes with the current settings' line ends, not with `line_ends`.
    to_write: Collection[bytes] = ()
    # Whether the conversion settings of the capture are unknown; then equal blobs count as equal.
    is_unsure: bool = False
    rewritten: set[bytes] = field(default_factory=set)  # files that git must stat again
    configured: ConversionSettings = field(default_factory=ConversionSettings)
    blobs: Mapping[bytes, str] = field(default_factory=dict)  # oids of regular files


def plan_exact_files(
    repository: Repository,
    current: Snapshot,
    target: Snapshot,
    differing: Iterable[PathDifference],
    is_within: Callable[[bytes], bool],
) -> ByteExactPlan:
    """Plan which files gitckpt writes or checks; git writes the files in `differing`."""
    current_oids, target_oids = (manifest.raw_files(repository, side) for side in (current, target))
    touched = {entry.path: entry.status != "D" for entry in differing}
    exactness = ByteExactPlan(is_within=is_within)
    if any(os.path.basename(path) == attributes.FILE for path in touched):
        exactness.touched = touched.keys()
    unhashed_paths = target_oids.keys() - current_oids.keys() - touched.keys()
    current_oids |= _hash_files(repository, list(filter(is_within, unhashed_paths)))
    endings = attributes.make_line_end_options(target.conversion)
    has_attributes = attributes.have_same_attributes(target.conversion, current.conversion)
    exactness.is_unsure = target.is_of_commit or not has_attributes
    if not target.is_of_commit and endings != attributes.make_line_end_options(current.conversion):
        exactness.line_ends = endings
        written_paths = {path for path, is_written in touched.items() if is_written}
        exactness.to_write = written_paths - target_oids.keys()
    for path in filter(is_within, target_oids):
        if path in touched:
            if touched[path]:
                exactness.raw[path] = target_oids[path]
        elif current_oids.get(path) == target_oids[path]:
            exactness.unchanged.add(path)
        elif path in current_oids:  # else a missing file, marked skip-worktree
            exactness.raw[path], exactness.equal_blobs[path] = target_oids[path], current_oids[path]
    if current_oids:
        exactness.blobs = manifest.regular_files(repository, target.files)
        paths = (exactness.blobs.keys() & current_oids.keys()) - target_oids.keys() - touched.keys()
        equal_blobs = {path: current_oids[path] for path in filter(is_within, paths)}
        exactness.equal_blobs |= _find_differing_bytes(repository, exactness, equal_blobs)
    return exactness


def _hash_files(repository: Repository, paths: Collection[bytes]) -> dict[bytes, str]:
    return _hash(repository, zip(paths, exact_files.read_files(repository, paths), strict=True))


def _hash(repository: Repository, files: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, str]:
    format_ = repository.object_format
    return {path: object_id("blob", data, format_) for path, data in files if data is not None}


def _find_differing_bytes(
    repository: Repository, planned: ByteExactPlan, equal_blobs: dict[bytes, str]
) -> dict[bytes, str]:
    """Return files of `equal_blobs` with other bytes; note the others as unchanged."""
    if planned.touched is not None and (planned.line_ends or planned.is_unsure):
        return {}  # `write_exact_bytes` decides when the captured attributes are in place
    if planned.is_unsure:
        planned.unchanged.update(equal_blobs)
        return {}
    if not planned.line_ends or not equal_blobs:
        return equal_blobs
    with PrivateIndex(repository) as index:
        contents = _convert_blobs_by_git(index, planned, equal_blobs, planned.line_ends)
    oids = _hash(repository, contents.items())
    planned.unchanged.update(path for path, oid in equal_blobs.items() if oids.get(path) == oid)
    return {path: oid for path, oid in equal_blobs.items() if path not in planned.unchanged}


def file_changed_error(names: str) -> BusyError:
    hint = "look at git status, then run the command again"
    return BusyError(f"a file changed while it was to be replaced: {names}", hint=hint)


def require_files_unchanged(
    index: PrivateIndex, planned: ByteExactPlan, configured: ConversionSettings, expected: str
) -> Mapping[bytes, str]:
    """Raise `BusyError` if a planned file changed; return the blobs to restore."""
    repository = index.repository
    has_any = planned.equal_blobs or planned.raw or planned.to_write or planned.touched is not None
    planned.blobs = manifest.regular_files(repository, expected) if has_any else {}
    planned.configured = configured
    oids = _hash_files(repository, planned.equal_blobs)
    if paths := [path for path, oid in planned.equal_blobs.items() if oids.get(path) != oid]:
        raise file_changed_error(join_first([*map(os.fsdecode, paths)]))
    if planned.touched is not None:
        planned.converted = _find_converted(index, planned)
    return planned.blobs


def write_exact_bytes(index: PrivateIndex, planned: ByteExactPlan) -> None:
    """Write the captured bytes of planned files for which git wrote other bytes."""
    rewritten_paths = planned.equal_blobs.keys() - planned.raw.keys()
    if planned.touched is not None:
        planned.converted |= _find_converted(index, planned)
    paths = sorted(rewritten_paths | planned.converted | set(planned.to_write))
    for start in range(0, len(paths), _AT_ONCE):
        batch, texts = paths[start : start + _AT_ONCE], set[bytes]()
        if planned.line_ends or planned.is_unsure:  # git converts only the line ends of these files
            treatments = attributes.find_conversions(index, planned.configured, batch).items()
            texts = {path for path, kind in treatments if kind.is_text and not kind.is_rewritten}
        binary = [path for path in batch if path not in texts and path not in planned.to_write]
        contents = _convert_blobs_by_git(index, planned, binary)
        contents |= _convert_blobs_by_git(index, planned, sorted(texts), planned.line_ends)
        current_contents = exact_files.read_files(index.repository, contents)
        for (path, content), current_bytes in zip(contents.items(), current_contents, strict=True):
            if content is None:
                hint = "restore the previous state: git ckpt undo"
                raise WorktreeError(f"git cannot write {os.fsdecode(path)}", hint=hint)
            is_same = content == current_bytes
            if planned.is_unsure and path in texts and current_bytes is not None:
                is_same = content.replace(_CRLF, b"\n") == current_bytes.replace(_CRLF, b"\n")
            if not is_same:
                exact_files.replace_file(index.repository, path, content)
                rewritten_paths.add(path)
    exact_files.restore_raw_bytes(index.repository, planned.raw)
    planned.rewritten = rewritten_paths | planned.raw.keys()
    exact_files.refresh_index_entries(index, planned.rewritten)


def _convert_blobs_by_git(
    index: PrivateIndex, planned: ByteExactPlan, paths: Iterable[bytes], options: Sequence[str] = ()
) -> dict[bytes, bytes | None]:
    oids_and_paths = [(planned.blobs[path], path) for path in paths if path in planned.blobs]
    contents = conversion.convert_blobs(index, oids_and_paths, is_filtered=False, options=options)
    return {path: data for (_, path), data in zip(oids_and_paths, contents, strict=True)}


def _find_converted(index: PrivateIndex, planned: ByteExactPlan) -> set[bytes]:
    # Converted files, except the ones that the restore writes, deletes or found unchanged.
    excluded = {*planned.raw, *planned.unchanged, *(planned.touched or ())}
    paths = [path for path in planned.blobs if path not in excluded and planned.is_within(path)]
    treatments = attributes.find_conversions(index, planned.configured, paths).items()
    conversions = (entry for entry in treatments if entry[1].is_rewritten or entry[1].is_text)
    return {path for path, treatment in conversions if not treatment.is_required}
