"""What a restore does for files that git by itself would not write as they were: which they are, and their bytes afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from gitckpt.git.contents import attributes, conversion, raw_files
from gitckpt.git.contents.attributes import Configured
from gitckpt.git.objects.diff import Difference
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.model.names import first_of
from gitckpt.model.values import dataclass, field
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.manifest import Contents

_AT_ONCE = 1000


@dataclass(slots=True)
class Exactness:
    """Files that come back byte for byte."""

    raw: dict[bytes, str] = field(default_factory=dict)
    """Those whose bytes the snapshot holds: oids by path."""

    alike: dict[bytes, str | None] = field(default_factory=dict)
    """Those of which git stores the same here and there, while their bytes differ: oids of the bytes here; None for as git writes them."""

    same: set[bytes] = field(default_factory=set)
    """Those whose bytes are here already: they stay, whatever git would make of them by other attributes."""

    stale: Collection[bytes] = ()
    """Those of `raw` that `git status` shall call changed by their size, as it did."""

    is_within: Callable[[bytes], bool] = lambda _: True
    """Tells whether the restore is about a path."""

    touched: Collection[bytes] | None = None
    """What git itself writes, where attributes are among it: by these, it would write others otherwise than they are."""

    converted: set[bytes] = field(default_factory=set)
    """Files that git converts by the attributes that are there before."""

    written: set[bytes] = field(default_factory=set)
    """What an index is to take note of, as somebody else than git has written it."""


def plan(
    repository: Repository, found: Contents, wanted: Contents, differing: Iterable[Difference], is_within: Callable[[bytes], bool]
) -> Exactness:
    """Returns what is to be done.

    Args:
        repository: seen from the worktree.
        found: what it holds.
        wanted: what it shall hold.
        differing: what git writes or deletes.
        is_within: tells whether the restore is about a path.

    Raises:
        WorktreeError: what is to come back cannot be read.
    """
    before, after = manifest.raw_of(repository, found), manifest.raw_of(repository, wanted)
    touched = {one.path: one.status != "D" for one in differing}
    made = Exactness(is_within=is_within, stale=set(wanted.stale))
    if any(os.path.basename(path) == attributes.FILE for path in touched):
        made.touched = touched.keys()
    for path, oid in after.items():
        if not is_within(path):
            continue
        is_stale = path in made.stale and path not in found.stale  # its entry has to be made so, for which git writes the file once
        if path not in touched and before.get(path) == oid and not is_stale:
            made.same.add(path)
            continue
        if touched.get(path, True):
            made.raw[path] = oid
        if path not in touched:
            made.alike[path] = before.get(path)
    if before:
        there = manifest.regular_files(repository, wanted.files)
        for path, oid in before.items():
            if path in there and path not in after and path not in touched and is_within(path):
                made.alike[path] = oid
    gone = [path for path, there_now in zip(made.alike, raw_files.bytes_of(repository, made.alike), strict=True) if there_now is None]
    for path in gone:  # it is to be skipped, and git leaves it away as well
        del made.alike[path]
        made.raw.pop(path, None)
    return made


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
    blobs = manifest.regular_files(repository, expected) if planned.alike or planned.raw or planned.touched is not None else {}
    as_git = [path for path, oid in planned.alike.items() if oid is None]
    written = dict(zip(as_git, conversion.written_by_git(index, [(blobs[path], path) for path in as_git], is_filtered=False), strict=True))
    changed = []
    for path, data in zip(planned.alike, raw_files.bytes_of(repository, planned.alike), strict=True):
        oid = planned.alike[path]
        is_same = data is not None and (data == written[path] if oid is None else object_id("blob", data, repository.object_format) == oid)
        if not is_same:
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
    stale = planned.raw.keys() & planned.stale
    plain = {path for path in planned.alike if path not in planned.raw or path in stale}
    if planned.touched is not None:
        planned.converted |= _converted(index, planned, configured, blobs)
    wanted = sorted(plain | planned.converted)
    for at in range(0, len(wanted), _AT_ONCE):
        some = wanted[at : at + _AT_ONCE]
        written = conversion.written_by_git(index, [(blobs[path], path) for path in some], is_filtered=False)
        for path, data, now in zip(some, written, raw_files.bytes_of(index.repository, some), strict=True):
            if data is None:
                raise WorktreeError(f"git cannot write {os.fsdecode(path)}", hint="go back to what was there before: git ckpt undo")
            if data != now:
                raw_files.put(index.repository, path, data)
                plain.add(path)
    raw_files.bring_back(index.repository, {path: oid for path, oid in planned.raw.items() if path not in stale})
    raw_files.refresh(index, plain | (planned.raw.keys() - stale))
    raw_files.bring_back(index.repository, {path: planned.raw[path] for path in stale})
    planned.written = (plain | planned.raw.keys()) - stale


def _converted(index: PrivateIndex, planned: Exactness, configured: Configured, blobs: Mapping[bytes, str]) -> set[bytes]:
    """Returns the files that git converts, and that it does not write by itself."""
    apart = {*planned.raw, *planned.same, *(planned.touched or ())}
    paths = [path for path in blobs if path not in apart and planned.is_within(path)]
    found = attributes.treatments(index, configured, paths)
    return {path for path, treatment in found.items() if (treatment.is_rewritten or treatment.is_text) and not treatment.is_required}
