"""Restore files byte for byte where git's conversions would write other bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gitckpt.git.contents import attributes, conversion, raw_files
from gitckpt.git.contents.attributes import Configured
from gitckpt.git.objects.diff import Difference
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import first_of
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.model.values import dataclass, field
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.manifest import Contents

_AT_ONCE = 1000
_CRLF = b"\r\n"


@dataclass(slots=True)
class Exactness:
    """The files whose bytes need care beyond what git writes."""

    # Files whose bytes the snapshot holds: oids by path.
    raw: dict[bytes, str] = field(default_factory=dict)
    # Files that git stores identically on both sides while their bytes differ: current oids.
    alike: dict[bytes, str] = field(default_factory=dict)
    # Files that already have the captured bytes: they stay, whatever the attributes say.
    same: set[bytes] = field(default_factory=set)
    is_within: Callable[[bytes], bool] = lambda _: True
    # Paths that git writes, if `.gitattributes` is among them; it then affects other files.
    touched: Collection[bytes] | None = None
    # Files that git converts by the attributes that are in place before the restore.
    converted: set[bytes] = field(default_factory=set)
    # Options that make git write the captured line ends; empty if not needed or unknown.
    line_ends: tuple[str, ...] = ()
    # Files that git writes with the current settings although `line_ends` differ.
    coming: Collection[bytes] = ()
    # The settings of the capture are unknown: files that git stores identically stay.
    is_unsure: bool = False
    # Files that gitckpt has written itself, so that the index must be refreshed for them.
    written: set[bytes] = field(default_factory=set)


def plan(
    repository: Repository,
    found: Contents,
    wanted: Contents,
    differing: Iterable[Difference],
    is_within: Callable[[bytes], bool],
) -> Exactness:
    """Plan which files need their bytes written or checked; `differing` is up to git."""
    before, after = manifest.raw_of(repository, found), manifest.raw_of(repository, wanted)
    touched = {entry.path: entry.status != "D" for entry in differing}
    made = Exactness(is_within=is_within)
    if any(os.path.basename(path) == attributes.FILE for path in touched):
        made.touched = touched.keys()
    unknown = after.keys() - before.keys() - touched.keys()
    before |= _oids_here(repository, list(filter(is_within, unknown)))
    then = attributes.line_end_options(wanted.conversion)
    has_attributes = attributes.have_same_attributes(wanted.conversion, found.conversion)
    made.is_unsure = wanted.is_of_commit or not has_attributes
    if not wanted.is_of_commit and then != attributes.line_end_options(found.conversion):
        made.line_ends = then
        made.coming = {path for path, comes in touched.items() if comes and path not in after}
    for path, oid in after.items():
        if not is_within(path):
            continue
        if path not in touched and before.get(path) == oid:
            made.same.add(path)
            continue
        if path not in touched and path not in before:
            continue  # a skipped file that is absent: git does not write it either
        if touched.get(path, True):
            made.raw[path] = oid
        if path not in touched:
            made.alike[path] = before[path]
    if before:
        blobs = manifest.regular_files(repository, wanted.files)
        others = (blobs.keys() & before.keys()) - after.keys() - touched.keys()
        alike = {path: before[path] for path in others if is_within(path)}
        made.alike |= _changed_since(repository, made, alike, blobs)
    return made


def _oids_here(repository: Repository, paths: Collection[bytes]) -> dict[bytes, str]:
    contents = zip(paths, raw_files.bytes_of(repository, paths), strict=True)
    kind = repository.object_format
    return {path: object_id("blob", data, kind) for path, data in contents if data is not None}


def _changed_since(
    repository: Repository,
    planned: Exactness,
    alike: Mapping[bytes, str],
    blobs: Mapping[bytes, str],
) -> dict[bytes, str]:
    # Returns the files of `alike` whose bytes differ from the captured ones;
    # adds the others to `planned.same`.
    if planned.touched is not None and (planned.line_ends or planned.is_unsure):
        return {}  # `bring_back` decides once the captured attributes are in place
    if planned.is_unsure:
        planned.same.update(alike)
        return {}
    if not planned.line_ends or not alike:
        return dict(alike)
    with PrivateIndex(repository) as index:
        written = _written(index, list(alike), blobs, planned.line_ends)
    kind = repository.object_format
    contents = {path: data for path, data in written.items() if data is not None}
    captured = {path: object_id("blob", data, kind) for path, data in contents.items()}
    planned.same.update(path for path, oid in alike.items() if captured.get(path) == oid)
    return {path: oid for path, oid in alike.items() if path not in planned.same}


def changed(what: str) -> BusyError:
    """Return the error for files that changed during the restore."""
    return BusyError(
        f"a file changed while it was to be replaced: {what}",
        hint="look at git status, then run the command again",
    )


def missing(repository: Repository, planned: Exactness) -> list[tuple[bytes, str]]:
    """Return path and oid of each raw file whose blob is missing."""
    return [
        (path, oid) for path, oid in planned.raw.items() if repository.cat_file.info(oid) is None
    ]


def prepare(
    index: PrivateIndex, planned: Exactness, configured: Configured, expected: str
) -> Mapping[bytes, str]:
    """Raise `BusyError` if a file of `planned.alike` has changed, before git writes.

    Returns oids of regular files by path, for `bring_back`.
    """
    repository = index.repository
    has_any = planned.alike or planned.raw or planned.coming or planned.touched is not None
    blobs = manifest.regular_files(repository, expected) if has_any else {}
    current = _oids_here(repository, planned.alike)
    names = [os.fsdecode(path) for path, oid in planned.alike.items() if current.get(path) != oid]
    if names:
        raise changed(first_of(names))
    if planned.touched is not None:
        planned.converted = _converted(index, planned, configured, blobs)
    return blobs


def bring_back(
    index: PrivateIndex, planned: Exactness, configured: Configured, blobs: Mapping[bytes, str]
) -> None:
    """Write the captured bytes after git has written what differs.

    `index` lists the files as git has written them; `blobs` is what `prepare` returned.
    """
    plain = planned.alike.keys() - planned.raw.keys()
    if planned.touched is not None:
        planned.converted |= _converted(index, planned, configured, blobs)
    wanted = sorted(plain | planned.converted | set(planned.coming))
    for at in range(0, len(wanted), _AT_ONCE):
        some = wanted[at : at + _AT_ONCE]
        text = _text(index, planned, configured, some)
        others = [path for path in some if path not in text and path not in planned.coming]
        written = _written(index, others, blobs)
        written |= _written(index, sorted(text), blobs, planned.line_ends)
        for path, now in zip(written, raw_files.bytes_of(index.repository, written), strict=True):
            data = written[path]
            if data is None:
                raise WorktreeError(
                    f"git cannot write {os.fsdecode(path)}",
                    hint="go back to what was there before: git ckpt undo",
                )
            if planned.is_unsure and path in text and _is_same_text(data, now):
                continue
            if data != now:
                raw_files.put(index.repository, path, data)
                plain.add(path)
    raw_files.bring_back(index.repository, planned.raw)
    planned.written = plain | planned.raw.keys()
    raw_files.refresh(index, planned.written)


def _text(
    index: PrivateIndex, planned: Exactness, configured: Configured, paths: Sequence[bytes]
) -> set[bytes]:
    # The files for which git converts line ends only; none where settings do not matter.
    if not (planned.line_ends or planned.is_unsure):
        return set()
    found = attributes.treatments(index, configured, paths)
    return {path for path, how in found.items() if how.is_text and not how.is_rewritten}


def _is_same_text(data: bytes, other: bytes | None) -> bool:
    return other is not None and data.replace(_CRLF, b"\n") == other.replace(_CRLF, b"\n")


def _written(
    index: PrivateIndex,
    paths: Sequence[bytes],
    blobs: Mapping[bytes, str],
    options: Sequence[str] = (),
) -> dict[bytes, bytes | None]:
    # Links and submodules are left out.
    files = [path for path in paths if path in blobs]
    wanted = [(blobs[path], path) for path in files]
    contents = conversion.written_by_git(index, wanted, is_filtered=False, options=options)
    return dict(zip(files, contents, strict=True))


def _converted(
    index: PrivateIndex, planned: Exactness, configured: Configured, blobs: Mapping[bytes, str]
) -> set[bytes]:
    # The files that git converts, and that the restore does not touch otherwise.
    apart = {*planned.raw, *planned.same, *(planned.touched or ())}
    paths = [path for path in blobs if path not in apart and planned.is_within(path)]
    found = attributes.treatments(index, configured, paths)
    return {
        path
        for path, treatment in found.items()
        if (treatment.is_rewritten or treatment.is_text) and not treatment.is_required
    }
