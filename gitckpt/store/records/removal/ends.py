"""The ends of the lines of history that are kept: refs move down to the newest commits that checkpoints need, or go."""

from __future__ import annotations

from gitckpt.git.process import GitError
from gitckpt.git.refs import Update
from gitckpt.store.records import keep
from gitckpt.store.records.layout import KEEP
from gitckpt.store.records.removal.known import NEVER, are_many

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from collections.abc import Set as AbstractSet

    from gitckpt.git.repository import Repository
    from gitckpt.store.records.keep import Apply
    from gitckpt.store.records.removal.known import Known, Last

_PATIENCE = 60.0
"""In seconds: so long names are looked at. Git names a million commits in ten, and tomorrow is another maintenance."""


def settle(
    repository: Repository,
    apply: Apply,
    needed: Callable[[], Collection[str] | None],
    *,
    known: Known | None = None,
    all_walked: bool = True,
) -> None:
    """Moves the refs down to the newest commits that checkpoints need, and drops those that others reach.

    None of the last hour is moved. What lies in a history that git cannot walk stays as it is.

    Args:
        apply: applies updates in one transaction.
        needed: returns the commits that checkpoints need now, by full names; None where that is not known.
        known: how it was when this was done last, so that of very many commits not all have to be gone through. It is told how it is in the
            end; not where there are few, or what they lead to has not been walked.
        all_walked: whether all commits are walked where it is not known how it was, or history may have been cut off since (`git fetch
            --depth`). That takes ten seconds of a million; without it, refs go and move, and a commit whose ref somebody has taken, or to
            which none leads any more, gets none.

    Raises:
        RefMoved: somebody else was faster.
        LockHeld, GitError: git refused; each commit is kept all the same.
    """
    listed, symbolic = keep.listing(repository)
    from gitckpt.git.graph import reachability

    kept = {oid: value for oid, value in listed.items() if oid not in symbolic and value == oid}
    young = {oid for oid in kept if keep.is_young(repository, KEEP + oid) and repository.cat_file.info(oid) is not None}
    last, before = NEVER if known is None else known.last(), None
    try:
        moved = None
        if known is not None and not (all_walked and repository.cuts()):
            moved = _moved(repository, {*kept}, {*listed}, young, known=known, last=last)
        if moved is not None:
            wanted, newest = moved
        else:
            before = needed()
            # One whose commit is gone belongs to nothing that is being written, and no gc succeeds as long as it is there.
            wanted = young.union(kept if before is None else before)
            newest = _ends(repository, wanted, kept, listed, last, all_walked=all_walked)
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
        # What came while we looked: its ref was there when it was recorded, and we have taken it.
        now = needed() if moved is None or known is None else known.last().new - last.new
        came = {oid for oid in now or () if keep.may_name(repository, oid)} - wanted
        lost = reachability.outside(repository.git, came, newest)
        keep.give(apply, {oid: keep.value_of(repository, KEEP + oid) for oid in lost}, symbolic)
    is_known = moved is not None or (before is not None and are_many(len(wanted)) and (all_walked or last.lines is not None))
    if known is not None and is_known:
        known.keep_last({*newest, *kept}.difference(gone), last.mark)


def _moved(
    repository: Repository, kept: AbstractSet[str], listed: AbstractSet[str], young: AbstractSet[str], *, known: Known, last: Last
) -> tuple[set[str], set[str]] | None:
    """Returns what `_ends` does where it is known how it was, before it those of the commits that checkpoints need which were looked at.

    Args:
        young: those whose refs may belong to a checkpoint that is being written.

    Returns:
        None where there are few commits, or all have to be gone through.

    Raises:
        GitError: git cannot walk the history.
    """
    from gitckpt.git.graph import reachability

    needed = known.among(kept) if last.lines is not None and are_many(last.count) else None
    if needed is None:
        return None
    staying = needed | young
    others = {*listed, *(last.lines or ())} - staying
    if len(set(repository.cat_file.known(sorted(others | staying)))) < len(others | staying):
        return None
    lost = known.among(reachability.between(repository.git, (others | last.new) - staying, staying))
    return None if lost is None else (staying | lost, reachability.newest(repository.git, staying | lost))


def _ends(
    repository: Repository, wanted: set[str], kept: Collection[str], listed: Collection[str], last: Last, *, all_walked: bool
) -> set[str]:
    """Returns those of the commits that checkpoints need to which no other one leads.

    Of very many, which takes git half a minute for a million, only those are looked at that no ref may reach any more: what has lost its
    ref since it was settled last, and what has come. All others are below a commit that has one.

    Args:
        wanted: the commits.
        kept: those that have a ref which is right.
        listed: all that have a ref.
        last: how it was.
        all_walked: as for `settle`.

    Raises:
        GitError: git cannot walk the history.
    """
    from gitckpt.git.graph import reachability

    if are_many(len(wanted)):
        staying = wanted.intersection(kept)
        others = {*listed, *(last.lines or ())} - staying
        is_unknown = all_walked and (last.lines is None or bool(repository.cuts()))
        if is_unknown or len(set(repository.cat_file.known(sorted(others | staying)))) < len(others | staying):
            lost = reachability.beyond(repository.git, wanted, staying)
        else:
            lost = reachability.between(repository.git, (others | last.new) - staying, staying) & wanted
        wanted = staying | lost
    return reachability.newest(repository.git, wanted)
