"""The ends of the lines of history that are kept: refs move down to the newest commits that checkpoints need, or go."""

from __future__ import annotations

from gitckpt.git.process import GitError
from gitckpt.git.refs import Update
from gitckpt.store.records import keep
from gitckpt.store.records.layout import KEEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gitckpt.git.repository import Repository
    from gitckpt.store.records.keep import Apply


def settle(repository: Repository, apply: Apply, needed: Callable[[], Collection[str] | None]) -> None:
    """Moves the refs down to the newest commits that checkpoints need, and drops those that others reach.

    None of the last hour is moved. What lies in a history that git cannot walk stays as it is.

    Args:
        apply: applies updates in one transaction.
        needed: returns the commits that checkpoints need now, by full names; None where that is not known.

    Raises:
        RefMoved: another writer was faster.
        LockHeld, GitError: git refused; each commit is kept all the same.
    """
    listed, symbolic = keep.listing(repository)
    from gitckpt.git.graph import reachability

    kept = {oid: value for oid, value in listed.items() if oid not in symbolic and value == oid}
    young = {oid for oid in kept if keep.is_young(repository, KEEP + oid) and repository.cat_file.info(oid) is not None}
    before = needed()
    # One whose commit is gone belongs to nothing that is being written, and no gc succeeds as long as it is there.
    wanted = young.union(kept if before is None else before)
    try:
        newest = reachability.newest(repository.git, wanted)
    except GitError:
        return
    if not keep.give(apply, {oid: listed.get(oid, "") for oid in newest}, symbolic):
        return  # what they lead to is kept by what is there
    gone = [oid for oid in kept if oid not in newest]
    gone = [oid for oid in gone if oid not in wanted or repository.cat_file.info(oid) is not None]
    gone = [oid for oid in gone if not keep.is_locked(repository, KEEP + oid)]
    if gone:
        there = [Update(KEEP + oid, oid, oid) for oid in newest]
        apply([*there, *(Update(KEEP + oid, "", kept[oid]) for oid in gone)])
        # What came meanwhile: its ref was there when it was recorded, and may be among those that went.
        came = {oid for oid in needed() or () if keep.may_name(repository, oid)} - wanted
        lost = reachability.outside(repository.git, came, newest)
        keep.give(apply, {oid: keep.value_of(repository, KEEP + oid) for oid in lost}, symbolic)
