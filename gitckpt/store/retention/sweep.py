"""Sweep scratch files and refs of checkpoints that a kill interrupted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from gitckpt.git import leftovers
from gitckpt.git.filesystem import names_in
from gitckpt.git.leftovers import FileMark
from gitckpt.git.lock import Lock, is_locked
from gitckpt.git.refs import Refs, Update
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model import times
from gitckpt.store.leases.leases import LONGEST
from gitckpt.store.records import heads, keep, layout
from gitckpt.store.worktrees import ownership

# Kinds of scratch files in the private directory.
_PRIVATE = (
    *(layout.DRIVER, "exports", "index", "intent", "objects", "pack", "rules"),
    *("secret-key", "symlink", "unfiltered", "written"),
)

# Kinds of scratch files in the administrative directory of a worktree.
_BESIDE = (administration.AWAY, administration.SCRATCH, "ckpt-exact", layout.UNDO_FILE, "ckpt-unfiltered")


def sweep(repository: Repository, refs: Refs, tell: Callable[[str], object] = lambda _: None) -> list[str]:
    """Delete and return the refs of checkpoints that do not exist.

    Deletes nothing while a checkpoint is being written. `tell` is called with each ref lock that
    was removed.
    """
    if repository.has_reftable:
        return []  # its transactions are atomic
    with layout.turn(repository, 0) as alone:
        if not alone:
            return []
        # A ref that is never written again keeps its stale lock unless it is removed here.
        heads.discard_left(repository, tell)
        return _sweep(repository, refs)


def sweep_files(repository: Repository) -> list[str]:
    """Delete and return files of killed processes and half-made worktrees."""
    gone = [path for path, known in left_files(repository).items() if leftovers.discard(path, known)]
    gone += filter(_discard_lock, _in_private(repository, *layout.FILES_LOCK.split("{}")))
    return sorted([*gone, *(path for path in ownership.abandoned(repository) if ownership.discard(repository, path))])


def _in_private(repository: Repository, beginning: str, end: str) -> list[str]:
    place = repository.private_dir
    return [os.path.join(place, name) for name in names_in(place) if name.startswith(beginning) and name.endswith(end)]


def _discard_lock(path: str) -> bool:
    with Lock(path, 0) as is_left:
        if is_left:
            os.unlink(path)
        return is_left


def left_files(repository: Repository) -> dict[str, FileMark]:
    """Return the scratch files and directories of killed processes."""
    marks = {**leftovers.left_objects(repository), **_left_keeps(repository), **_left_worktrees(repository)}
    for path in _scratch(repository):
        known = leftovers.mark(path)
        if known is not None and _is_left(path):
            marks[path] = known
    return marks


def scratch_files(repository: Repository) -> list[str]:
    """Return the scratch files and directories of running and of killed processes."""
    return [*leftovers.half_written(repository), *_scratch(repository), *_left_keeps(repository), *_left_worktrees(repository)]


def kind_of(path: str) -> str:
    """Return the name pattern of a scratch file, such as "ckpt/index.*"."""
    name = os.path.basename(path)
    if name.startswith(".tmp-"):
        return ".tmp-*-pack-*"
    if name.startswith(("tmp_", "bulk_")):
        return f"{name.partition('-')[0]}-*" if name.startswith("tmp_objdir-") else f"{'_'.join(name.split('_')[:2])}_*"
    if name.endswith(".keep") and os.path.basename(os.path.dirname(path)) == "pack":
        return "pack-*.keep"
    if os.path.basename(os.path.dirname(path)) == "worktrees":
        return "worktrees/*"
    kind = name.partition(".")[0]
    return f"{kind}.*" if kind in _BESIDE else f"ckpt/{kind}.*"


def _scratch(repository: Repository) -> list[str]:
    """Return gitckpt's scratch files by their names: `<kind>.<pid>.<digits>`."""
    paths = []
    for place in (repository.private_dir, repository.common_dir, *(git_dir for git_dir, _ in administration.registered(repository))):
        kinds = _PRIVATE if place == repository.private_dir else _BESIDE
        for name in names_in(place):
            kind, _, rest = name.partition(".")
            if kind in kinds and rest.partition(".")[0].isdigit():
                paths.append(os.path.join(place, name))
    return paths


def _left_worktrees(repository: Repository) -> dict[str, FileMark]:
    # From a killed `git worktree add`: git locks a worktree while it adds it, and never prunes it.
    return leftovers.left_for(times.GRACE, filter(ownership.is_locked_by_us, administration.unfinished(repository)))


def _left_keeps(repository: Repository) -> dict[str, FileMark]:
    # Git never repacks or deletes the contents of a kept pack.
    marks = {}
    place = os.path.join(repository.common_dir, "objects", "pack")
    for path in [os.path.join(place, name) for name in names_in(place) if name.endswith(".keep")]:
        known = leftovers.mark(path)
        try:
            with open(path, "rb") as file:
                owner, _, pid = file.read(100).strip().partition(b" ")
        except OSError:
            continue
        if known is None or owner != b"gitckpt" or not pid.isdigit() or leftovers.is_alive(int(pid)):
            continue
        if time.time() - known.changed > times.GRACE:
            marks[path] = known
    return marks


def _is_left(path: str) -> bool:
    status = os.lstat(path)
    # Not mtime: a private index has that of the index it was copied from.
    age = time.time() - status.st_ctime
    if os.path.basename(path).startswith(f"{layout.DRIVER}."):
        # A process that wants the lease checks this file to see whether the driver is alive.
        return age * times.MICRO > LONGEST and not is_locked(path)
    # A file with two links is also the lock of an index, which is identified by it.
    return age > times.GRACE and (status.st_nlink == 1 or os.path.isdir(path))


def _sweep(repository: Repository, refs: Refs) -> list[str]:
    oids = dict(refs.each(*(name for name in layout.OWN if f"{name}/" != layout.CHECKPOINTS)))
    if any(ref.startswith(layout.HOLDERS) for ref in oids):
        # Last: a checkpoint is written after the refs it needs.
        oids |= dict(refs.each(layout.CHECKPOINTS))
    leftover = [ref for ref in oids if _is_of_nobody(repository, ref, oids) and not keep.is_young(repository, ref)]
    if leftover:
        refs.update([Update(ref, "", oids[ref]) for ref in leftover])
    return leftover


def _is_of_nobody(repository: Repository, ref: str, oids: Mapping[str, str]) -> bool:
    """Return whether a ref names a checkpoint that does not exist, or no valid commit."""
    if ref.startswith(layout.KEEP):
        return not keep.may_name(repository, ref.removeprefix(layout.KEEP))
    return ref.startswith(layout.HOLDERS) and layout.CHECKPOINTS + ref.rpartition("/")[2] not in oids
