"""Restore files byte for byte where git's conversions would write other bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gitckpt.git.contents import attributes, conversion, exact_files
from gitckpt.git.contents.attributes import Configured
from gitckpt.git.objects.diff import Difference
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import join_first
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.model.values import dataclass, field
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.manifest import Contents

_AT_ONCE = 1000
_CRLF = b"\r\n"


@dataclass(slots=True)
class Exactness:
    """The files whose captured bytes may differ from what git writes."""

    raw: dict[bytes, str] = field(default_factory=dict)  # oids of exact bytes in the snapshot
    # Files with different bytes now, though git stores the same blob: oids of the current bytes.
    equal_blobs: dict[bytes, str] = field(default_factory=dict)
    unchanged: set[bytes] = field(default_factory=set)  # files that already have the captured bytes
    is_within: Callable[[bytes], bool] = lambda _: True
    # Paths that git writes or deletes; None unless one is `.gitattributes`, which affects others.
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
    configured: Configured = field(default_factory=Configured)
    blobs: Mapping[bytes, str] = field(default_factory=dict)  # oids of regular files


def plan(
    repository: Repository,
    current: Contents,
    target: Contents,
    differing: Iterable[Difference],
    is_within: Callable[[bytes], bool],
) -> Exactness:
    """Plan which files gitckpt writes or checks; git writes those in `differing`."""
    old_oids, new_oids = (manifest.raw_of(repository, side) for side in (current, target))
    touched = {entry.path: entry.status != "D" for entry in differing}
    planned = Exactness(is_within=is_within)
    if any(os.path.basename(path) == attributes.FILE for path in touched):
        planned.touched = touched.keys()
    unknown = new_oids.keys() - old_oids.keys() - touched.keys()
    old_oids |= _hash_files(repository, list(filter(is_within, unknown)))
    line_ends = attributes.line_end_options(target.conversion)
    has_attributes = attributes.have_same_attributes(target.conversion, current.conversion)
    planned.is_unsure = target.is_of_commit or not has_attributes
    if not target.is_of_commit and line_ends != attributes.line_end_options(current.conversion):
        planned.line_ends = line_ends
        to_write = {path for path, is_written in touched.items() if is_written}
        planned.to_write = to_write - new_oids.keys()
    for path in filter(is_within, new_oids):
        if path in touched:
            if touched[path]:
                planned.raw[path] = new_oids[path]
        elif old_oids.get(path) == new_oids[path]:
            planned.unchanged.add(path)
        elif path in old_oids:  # else a missing file, marked skip-worktree
            planned.raw[path], planned.equal_blobs[path] = new_oids[path], old_oids[path]
    if old_oids:
        planned.blobs = manifest.regular_files(repository, target.files)
        paths = (planned.blobs.keys() & old_oids.keys()) - new_oids.keys() - touched.keys()
        equal_blobs = {path: old_oids[path] for path in filter(is_within, paths)}
        planned.equal_blobs |= _find_changed(repository, planned, equal_blobs)
    return planned


def _hash_files(repository: Repository, paths: Collection[bytes]) -> dict[bytes, str]:
    return _hash(repository, zip(paths, exact_files.read_files(repository, paths), strict=True))


def _hash(repository: Repository, files: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, str]:
    kind = repository.object_format
    return {path: object_id("blob", data, kind) for path, data in files if data is not None}


def _find_changed(
    repository: Repository, planned: Exactness, equal_blobs: dict[bytes, str]
) -> dict[bytes, str]:
    """Return the files whose bytes differ; add the others to `planned.unchanged`."""
    if planned.touched is not None and (planned.line_ends or planned.is_unsure):
        return {}  # `write_captured` decides when the captured attributes are in place
    if planned.is_unsure:
        planned.unchanged.update(equal_blobs)
        return {}
    if not planned.line_ends or not equal_blobs:
        return equal_blobs
    with PrivateIndex(repository) as index:
        contents = _convert(index, planned, equal_blobs, planned.line_ends)
    captured = _hash(repository, contents.items())
    planned.unchanged.update(path for path, oid in equal_blobs.items() if captured.get(path) == oid)
    return {path: oid for path, oid in equal_blobs.items() if path not in planned.unchanged}


def changed_error(names: str) -> BusyError:
    hint = "look at git status, then run the command again"
    return BusyError(f"a file changed while it was to be replaced: {names}", hint=hint)


def prepare(
    index: PrivateIndex, planned: Exactness, configured: Configured, expected: str
) -> Mapping[bytes, str]:
    """Raise `BusyError` if a planned file changed meanwhile; return all blob oids."""
    repository = index.repository
    has_any = planned.equal_blobs or planned.raw or planned.to_write or planned.touched is not None
    planned.blobs = manifest.regular_files(repository, expected) if has_any else {}
    planned.configured = configured
    current = _hash_files(repository, planned.equal_blobs)
    if paths := [path for path, oid in planned.equal_blobs.items() if current.get(path) != oid]:
        raise changed_error(join_first([*map(os.fsdecode, paths)]))
    if planned.touched is not None:
        planned.converted = _find_converted(index, planned)
    return planned.blobs


def write_captured(index: PrivateIndex, planned: Exactness) -> None:
    """Write the captured bytes where git wrote others; `index` describes git's files."""
    plain = planned.equal_blobs.keys() - planned.raw.keys()
    if planned.touched is not None:
        planned.converted |= _find_converted(index, planned)
    paths = sorted(plain | planned.converted | set(planned.to_write))
    for start in range(0, len(paths), _AT_ONCE):
        batch, text = paths[start : start + _AT_ONCE], set[bytes]()
        if planned.line_ends or planned.is_unsure:  # git converts only the line ends of these files
            treatments = attributes.treatments(index, planned.configured, batch).items()
            text = {path for path, kind in treatments if kind.is_text and not kind.is_rewritten}
        binary = [path for path in batch if path not in text and path not in planned.to_write]
        contents = _convert(index, planned, binary)
        contents |= _convert(index, planned, sorted(text), planned.line_ends)
        existing = exact_files.read_files(index.repository, contents)
        for (path, data), current in zip(contents.items(), existing, strict=True):
            if data is None:
                hint = "restore the previous state: git ckpt undo"
                raise WorktreeError(f"git cannot write {os.fsdecode(path)}", hint=hint)
            is_same = data == current
            if planned.is_unsure and path in text and current is not None:
                is_same = data.replace(_CRLF, b"\n") == current.replace(_CRLF, b"\n")
            if not is_same:
                exact_files.replace(index.repository, path, data)
                plain.add(path)
    exact_files.restore_raw(index.repository, planned.raw)
    planned.rewritten = plain | planned.raw.keys()
    exact_files.refresh(index, planned.rewritten)


def _convert(
    index: PrivateIndex, planned: Exactness, paths: Iterable[bytes], options: Sequence[str] = ()
) -> dict[bytes, bytes | None]:
    """Return by path the bytes that git would write; omit symlinks and submodules."""
    files = [(planned.blobs[path], path) for path in paths if path in planned.blobs]
    contents = conversion.written_by_git(index, files, is_filtered=False, options=options)
    return {path: data for (_, path), data in zip(files, contents, strict=True)}


def _find_converted(index: PrivateIndex, planned: Exactness) -> set[bytes]:
    # Converted files, except the ones that the restore writes, deletes or found unchanged.
    excluded = {*planned.raw, *planned.unchanged, *(planned.touched or ())}
    paths = [path for path in planned.blobs if path not in excluded and planned.is_within(path)]
    treatments = attributes.treatments(index, planned.configured, paths).items()
    converted = (entry for entry in treatments if entry[1].is_rewritten or entry[1].is_text)
    return {path for path, treatment in converted if not treatment.is_required}
