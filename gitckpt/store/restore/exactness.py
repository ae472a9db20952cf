"""What a restore does for files that git by itself would not write as they were: which they are, and their bytes afterwards."""

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
    """Files that come back byte for byte."""

    raw: dict[bytes, str] = field(default_factory=dict)
    """Those whose bytes the snapshot holds: oids by path."""

    alike: dict[bytes, str] = field(default_factory=dict)
    """Those of which git stores the same here and there, and whose bytes differ: their oids here."""

    same: set[bytes] = field(default_factory=set)
    """Those whose bytes are here already: they stay, whatever git would make of them by other attributes."""

    is_within: Callable[[bytes], bool] = lambda _: True
    """Tells whether the restore is about a path."""

    touched: Collection[bytes] | None = None
    """What git itself writes, where attributes are among it: by these, it would write others otherwise than they are."""

    converted: set[bytes] = field(default_factory=set)
    """Files that git converts by the attributes that are there before."""

    line_ends: tuple[str, ...] = ()
    """Options by which git writes the captured line ends; () where none are needed, or known."""

    coming: Collection[bytes] = ()
    """The files that git writes by the settings of now, where `line_ends` are others."""

    is_unsure: bool = False
    """Whether the settings of the capture are not known: then what git stores the same of stays."""

    written: set[bytes] = field(default_factory=set)
    """What an index is to take note of, as somebody else than git has written it."""


def plan(
    repository: Repository,
    found: Contents,
    wanted: Contents,
    differing: Iterable[Difference],
    is_within: Callable[[bytes], bool],
) -> Exactness:
    """Returns what is to be done.

    Args:
        repository: seen from the worktree.
        found: what it holds; its `conversion` says which settings are those of now.
        wanted: what it shall hold.
        differing: what git writes or deletes.
        is_within: tells whether the restore is about a path.

    Raises:
        WorktreeError: what is to come back cannot be read.
    """
    before, after = manifest.raw_of(repository, found), manifest.raw_of(repository, wanted)
    touched = {one.path: one.status != "D" for one in differing}
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
            continue  # it is to be skipped, and git leaves it away as well
        if touched.get(path, True):
            made.raw[path] = oid
        if path not in touched:
            made.alike[path] = before[path]
    if before:
        blobs = manifest.regular_files(repository, wanted.files)
        apart = after.keys() | touched.keys()
        alike = {path: oid for path, oid in before.items() if path in blobs and path not in apart}
        alike = {path: oid for path, oid in alike.items() if is_within(path)}
        made.alike |= _changed_since(repository, made, alike, blobs)
    return made


def _oids_here(repository: Repository, paths: Collection[bytes]) -> dict[bytes, str]:
    """Return the oids of the bytes of files as they are on the disk, where there is one."""
    contents = zip(paths, raw_files.bytes_of(repository, paths), strict=True)
    kind = repository.object_format
    return {path: object_id("blob", data, kind) for path, data in contents if data is not None}


def _changed_since(
    repository: Repository,
    planned: Exactness,
    alike: Mapping[bytes, str],
    blobs: Mapping[bytes, str],
) -> dict[bytes, str]:
    """Return the files that do not hold the bytes that were captured.

    Args:
        repository: seen from the worktree.
        planned: says how they were written then; the others are added to its `same`.
        alike: of which git stores the same, and writes something else by now: oids of their bytes.
        blobs: what git stores, of all files.
    """
    if planned.touched is not None and (planned.line_ends or planned.is_unsure):
        return {}  # `bring_back` looks, once the attributes are there by which they were written
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


def missing(repository: Repository, planned: Exactness) -> list[tuple[bytes, str]]:
    """Returns each path whose bytes are to come back, and are missing, and their oid."""
    return [(path, oid) for path, oid in planned.raw.items() if repository.cat_file.info(oid) is None]


def prepare(index: PrivateIndex, planned: Exactness, configured: Configured, expected: str) -> Mapping[bytes, str]:
    """Sees to it that the files of which git stores the same are as they were captured, before git writes the others.

    Args:
        index: private, lists the files of the worktree as they were captured.
        planned: what is to be done.
        configured: what git's configuration says of conversions.
        expected: the tree that the files shall have.

    Returns:
        What `bring_back` needs.

    Raises:
        BusyError: one has changed.
    """
    repository = index.repository
    has_any = planned.alike or planned.raw or planned.coming or planned.touched is not None
    blobs = manifest.regular_files(repository, expected) if has_any else {}
    changed = []
    for path, data in zip(planned.alike, raw_files.bytes_of(repository, planned.alike), strict=True):
        if data is None or object_id("blob", data, repository.object_format) != planned.alike[path]:
            changed.append(os.fsdecode(path))
    if changed:
        raise BusyError(
            f"a file changed while it was to be replaced: {first_of(changed)}", hint="look at git status, then run the command again"
        )
    if planned.touched is not None:
        planned.converted = _converted(index, planned, configured, blobs)
    return blobs


def bring_back(index: PrivateIndex, planned: Exactness, configured: Configured, blobs: Mapping[bytes, str]) -> None:
    """Gives the files their bytes, after git has written what differs.

    Args:
        index: private, lists the files as git has written them.
        planned: what is to be done.
        configured: what git's configuration says of conversions.
        blobs: what `prepare` returned.

    Raises:
        WorktreeError: an object is missing, or a file cannot be written.
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
                raise WorktreeError(f"git cannot write {os.fsdecode(path)}", hint="go back to what was there before: git ckpt undo")
            if planned.is_unsure and path in text and _is_same_text(data, now):
                continue
            if data != now:
                raw_files.put(index.repository, path, data)
                plain.add(path)
    raw_files.bring_back(index.repository, planned.raw)
    planned.written = plain | planned.raw.keys()
    raw_files.refresh(index, planned.written)


def _text(
    index: PrivateIndex,
    planned: Exactness,
    configured: Configured,
    paths: Sequence[bytes],
) -> set[bytes]:
    """Return the files of which git converts line ends alone, where settings matter."""
    if not (planned.line_ends or planned.is_unsure):
        return set()
    found = attributes.treatments(index, configured, paths)
    return {path for path, how in found.items() if how.is_text and not how.is_rewritten}


def _is_same_text(data: bytes, other: bytes | None) -> bool:
    """Tell whether two contents differ in line ends at most."""
    return other is not None and data.replace(_CRLF, b"\n") == other.replace(_CRLF, b"\n")


def _written(
    index: PrivateIndex,
    paths: Sequence[bytes],
    blobs: Mapping[bytes, str],
    options: Sequence[str] = (),
) -> dict[bytes, bytes | None]:
    """Return what git writes for each of some files; links and submodules are left out."""
    files = [path for path in paths if path in blobs]
    wanted = [(blobs[path], path) for path in files]
    contents = conversion.written_by_git(index, wanted, is_filtered=False, options=options)
    return dict(zip(files, contents, strict=True))


def _converted(index: PrivateIndex, planned: Exactness, configured: Configured, blobs: Mapping[bytes, str]) -> set[bytes]:
    """Returns the files that git converts, and that it does not write by itself."""
    apart = {*planned.raw, *planned.same, *(planned.touched or ())}
    paths = [path for path in blobs if path not in apart and planned.is_within(path)]
    found = attributes.treatments(index, configured, paths)
    return {path for path, treatment in found.items() if (treatment.is_rewritten or treatment.is_text) and not treatment.is_required}
