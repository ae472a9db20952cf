"""Sweeps what a kill or a power cut can leave: refs that hold something for a checkpoint that was never finished, and scratch files."""

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

_PRIVATE = (
    layout.DRIVER,
    "exports",
    "index",
    "intent",
    "objects",
    "pack",
    "rules",
    "secret-key",
    "symlink",
    "unfiltered",
    "written",
)
"""Kinds of scratch files in the private directory, …"""

_BESIDE = (administration.AWAY, administration.SCRATCH, "ckpt-exact", layout.UNDO_FILE, "ckpt-unfiltered")
"""… and in the administrative directory of a worktree."""


def sweep(repository: Repository, refs: Refs, tell: Callable[[str], object] = lambda _: None) -> list[str]:
    """Deletes the refs that hold something for a checkpoint which does not exist.

    Args:
        repository: whose.
        refs: of it.
        tell: is told which locks of refs were removed.

    Returns:
        The refs that are gone; none while a checkpoint is being written.

    Raises:
        RefMoved, LockHeld, GitError: none was deleted.
    """
    if repository.has_reftable:
        return []  # transactions there are all or nothing
    with layout.turn(repository, 0) as alone:
        if not alone:
            return []
        heads.discard_left(repository, tell)  # nobody may ever need the ref again, and remove its lock then
        return _sweep(repository, refs)


def sweep_files(repository: Repository) -> list[str]:
    """Deletes the files of processes that were killed (see `left_files`), and worktrees that they have half made.

    Returns:
        The paths of what is gone; what cannot be deleted stays, and `doctor` counts it.
    """
    gone = [path for path, known in left_files(repository).items() if leftovers.discard(path, known)]
    gone += filter(_discard_lock, _in_private(repository, *layout.FILES_LOCK.split("{}")))
    return sorted([*gone, *(path for path in ownership.abandoned(repository) if ownership.discard(repository, path))])


def _in_private(repository: Repository, beginning: str, end: str) -> list[str]:
    place = repository.private_dir
    return [os.path.join(place, name) for name in names_in(place) if name.startswith(beginning) and name.endswith(end)]


def _discard_lock(path: str) -> bool:
    """Deletes the file of a lock that nobody has, be it that its holder was killed; returns whether it did."""
    with Lock(path, 0) as is_left:
        if is_left:
            os.unlink(path)
        return is_left


def left_files(repository: Repository) -> dict[str, FileMark]:
    """Returns files and directories of processes that were killed: private indexes and the like, and what git has half written."""
    found = {**leftovers.left_objects(repository), **_left_keeps(repository), **_left_worktrees(repository)}
    for path in _scratch(repository):
        known = leftovers.mark(path)
        if known is not None and _is_left(path):
            found[path] = known
    return found


def scratch_files(repository: Repository) -> list[str]:
    """Returns the files and directories that are somebody's who is at work, or that were left: `left_files` says which."""
    return [*leftovers.half_written(repository), *_scratch(repository), *_left_keeps(repository), *_left_worktrees(repository)]


def kind_of(path: str) -> str:
    """Returns a pattern of the names of what is like one of `scratch_files`: "tmp_pack_*", or, in the private directory, "ckpt/index.*"."""
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
    """Returns what processes have made for themselves, by their names: `<kind>.<pid>.<digits>`."""
    found = []
    for place in (repository.private_dir, repository.common_dir, *(git_dir for git_dir, _ in administration.registered(repository))):
        kinds = _PRIVATE if place == repository.private_dir else _BESIDE
        for name in names_in(place):
            kind, _, rest = name.partition(".")
            if kind in kinds and rest.partition(".")[0].isdigit():
                found.append(os.path.join(place, name))
    return found


def _left_worktrees(repository: Repository) -> dict[str, FileMark]:
    """Return what git keeps of worktrees that it was killed at adding for us: it locks them first, and never prunes them then."""
    return leftovers.left_for(times.GRACE, filter(ownership.is_locked_by_us, administration.unfinished(repository)))


def _left_keeps(repository: Repository) -> dict[str, FileMark]:
    """Returns the files that keep a pack for a process of ours which was killed: git would never repack, nor delete, what is in it."""
    found = {}
    place = os.path.join(repository.common_dir, "objects", "pack")
    for path in [os.path.join(place, name) for name in names_in(place) if name.endswith(".keep")]:
        known = leftovers.mark(path)
        try:
            with open(path, "rb") as file:
                whose, _, pid = file.read(100).strip().partition(b" ")
        except OSError:
            continue
        if known is None or whose != b"gitckpt" or not pid.isdigit() or leftovers.is_alive(int(pid)):
            continue
        if time.time() - known.changed > times.GRACE:
            found[path] = known
    return found


def _is_left(path: str) -> bool:
    """Tell by its age whether a scratch file is of a process that was killed."""
    status = os.lstat(path)
    # Not the time of the content, which a private index has from the index that it is a copy of.
    age = time.time() - status.st_ctime
    if os.path.basename(path).startswith(f"{layout.DRIVER}."):
        # A process that wants to take the lease looks there whether its driver is gone.
        return age * times.MICRO > LONGEST and not is_locked(path)
    # One with two names is the lock of an index as well, which is known by it.
    return age > times.GRACE and (status.st_nlink == 1 or os.path.isdir(path))


def _sweep(repository: Repository, refs: Refs) -> list[str]:
    oids = dict(refs.each(*(name for name in layout.OWN if f"{name}/" != layout.CHECKPOINTS)))
    if any(ref.startswith(layout.HOLDERS) for ref in oids):
        oids |= dict(refs.each(layout.CHECKPOINTS))  # after the others: what a checkpoint needs comes before it
    leftover = [ref for ref in oids if _is_of_nobody(repository, ref, oids) and not keep.is_young(repository, ref)]
    if leftover:
        refs.update([Update(ref, "", oids[ref]) for ref in leftover])
    return leftover


def _is_of_nobody(repository: Repository, ref: str, oids: Mapping[str, str]) -> bool:
    """Tells whether a ref names a checkpoint that does not exist, or should name a commit and does not."""
    if ref.startswith(layout.KEEP):
        return not keep.may_name(repository, ref.removeprefix(layout.KEEP))
    return ref.startswith(layout.HOLDERS) and layout.CHECKPOINTS + ref.rpartition("/")[2] not in oids
