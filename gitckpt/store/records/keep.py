"""The refs that keep linked commits alive: `refs/keep/ckpt/<oid>`, one for each line of history.

A line that goes on takes its ref along: the transaction that creates the ref of a commit is
followed by one that deletes those of its parents, and verifies the new one. Imported by the hook.
"""

from __future__ import annotations

import os
import time

from gitckpt.git.files.refs_stat import plain, require_no_pipe
from gitckpt.git.objects.encoding import oid_size, parents
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, Update
from gitckpt.model import ids, times
from gitckpt.model.errors import CkptError
from gitckpt.store.records.layout import KEEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import TypeAlias

    from gitckpt.git.repository import Repository

    Apply: TypeAlias = Callable[[list[Update]], None]


# The refs that keep linked commits alive: `refs/keep/ckpt/<oid>`, one for each line of history.


def may_name(repository: Repository, name: str) -> bool:
    """Tells whether the last part of a ref that keeps commits may name one: a full object id of this repository's format."""
    return ids.is_oid(name) and len(name) == 2 * oid_size(repository.object_format)


def is_young(repository: Repository, ref: str) -> bool:
    """Tells whether a ref may belong to a checkpoint that is being written.

    One that is packed does not: nobody packs what was written just now but a `git gc`, and who
    records looks at it once more. Neither does one in a reftable, where transactions are all or
    nothing.
    """
    try:
        return time.time() - os.stat(os.path.join(repository.common_dir, ref)).st_mtime < times.GRACE
    except OSError:
        return False


class Line:
    """The line of history that a new checkpoint goes on with, or begins.

    Args:
        commit: the one that the checkpoint is linked to.
        again: whether a ref was not as it seemed before, so that git is asked for those whose
            objects may be missing.

    Attributes:
        commit: as above.
        update: what keeps the commit, for the transaction that makes the checkpoint.

    Raises:
        CkptError: the commit is missing.
    """

    def __init__(self, repository: Repository, commit: str, *, again: bool = False) -> None:
        self._repository = repository
        self.commit = commit
        self._passed: list[Update] = []
        ref = KEEP + commit
        there = value_of(repository, ref, again=again)
        self.update = Update(ref, commit, there, is_symbolic=there == commit and is_symbolic(repository, ref))
        if there == commit:
            return
        for parent in _above(repository, commit, _text(repository, commit)):
            old = value_of(repository, KEEP + parent, again=again)
            if old == parent:
                self._passed.append(Update(KEEP + parent, "", old))

    def follow_up(self, apply: Apply) -> None:
        """Drop the refs of the commit's parents.

        The checkpoint is recorded by then: what fails here leaves a ref too many, which maintenance
        drops.

        Args:
            apply: applies updates in one transaction.
        """
        is_there = Update(self.update.ref, self.update.new, self.update.new)
        try:
            path = os.path.join(self._repository.common_dir, is_there.ref)
            if not os.path.isfile(path) and not value_of(self._repository, is_there.ref):  # dropped while no checkpoint needed it
                apply([Update(is_there.ref, is_there.new, "")])
            if self._passed:
                apply([is_there, *self._passed])
        except CkptError:
            return

    def recorded(self) -> Line | None:
        """Return the line for a further checkpoint on the same commit; None where its ref is to be looked at again."""
        if self.update.is_symbolic:
            return None
        self.update = Update(self.update.ref, self.update.new, self.update.new)
        self._passed = []
        return self

    def is_as_it_was(self) -> bool:
        """Tell whether the file of the ref says the same. Where there is no file, the transaction confirms it."""
        path = os.path.join(self._repository.common_dir, self.update.ref)
        return plain(self._repository, self.update.ref) == self.update.new or not os.path.lexists(path)


def is_symbolic(repository: Repository, ref: str) -> bool:
    """Tells whether a ref stands for another one, such as a branch: it moves, and goes, with that. Reftables are not looked into."""
    try:
        with open(os.path.join(repository.common_dir, ref), "rb") as file:
            return file.read(4) == b"ref:"
    except OSError:
        return False


def is_barred(ref: str, error: CkptError) -> bool:
    """Tells whether a lock that a kill left is in the way of a ref, or a ref of somebody's below its name."""
    if isinstance(error, GitError):
        return f"'{ref}/" in error.stderr and "exists; cannot create" in error.stderr
    return isinstance(error, LockHeld) and error.path.endswith(f"/{ref}.lock")


def is_locked(repository: Repository, ref: str) -> bool:
    """Tells whether somebody has the lock of a ref, or a kill left it: the transaction that wants it would delete none of the others."""
    return os.path.lexists(os.path.join(repository.common_dir, f"{ref}.lock"))


def listing(repository: Repository) -> tuple[dict[str, str], set[str]]:
    """Return what the refs point to, by the oid in their name; and those oids whose ref stands for another one."""
    form = "--format=%(objectname) %(refname) %(symref)"
    kept: dict[str, str] = {}
    symbolic: set[str] = set()
    for line in repository.git.run("for-each-ref", form, KEEP.rstrip("/")).out.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        oid, ref, target = line.split(" ")
        name = ref.removeprefix(KEEP)
        if may_name(repository, name):
            kept[name] = oid
            if target:
                symbolic.add(name)
    return kept, symbolic


def give(apply: Apply, kept: Mapping[str, str], symbolic: Collection[str]) -> bool:
    """Give commits their refs; tell whether each has its own, as others' refs may lie below the name.

    Args:
        apply: applies updates in one transaction.
        kept: what the ref of each commit points to now; "" where it has none.
        symbolic: commits whose ref stands for another one.
    """
    wrong = {oid: value for oid, value in kept.items() if value != oid or oid in symbolic}
    updates = {oid: Update(KEEP + oid, oid, value, is_symbolic=oid in symbolic) for oid, value in wrong.items()}
    while updates:
        try:
            apply(list(updates.values()))
            break
        except GitError as error:
            barred = next((oid for oid, update in updates.items() if is_barred(update.ref, error)), None)
            if barred is None:
                raise
            del updates[barred]
    return updates.keys() == wrong.keys()


def value_of(repository: Repository, ref: str, *, again: bool = False) -> str:
    """Returns what a ref points to; "" where it is not there, or, but for `again`, is packed while its object is missing."""
    require_no_pipe(repository, ref)
    found = repository.cat_file.info(ref)
    if found is not None:
        return found[0]
    if not again and not os.path.isfile(os.path.join(repository.common_dir, ref)):
        return ""
    return repository.git.run("rev-parse", "--quiet", "--verify", ref, ok=(0, 1, 128)).out.decode("ascii").strip()  # its object is missing


def _above(repository: Repository, commit: str, text: bytes) -> tuple[str, ...]:
    """Returns the parents of a commit; none where git may take it to have others."""
    return () if commit.encode("ascii") in repository.cuts() else tuple(parents(text))


def _text(repository: Repository, oid: str) -> bytes:
    """Returns a commit. Errors: `GitError`, which says what is wrong with it."""
    found = next(repository.cat_file.contents([oid]))
    return found[2] if found is not None else repository.git.run("cat-file", "commit", oid).out


# The ends of the lines of history that are kept: refs move down to the newest commits that checkpoints need, or go.


def settle(repository: Repository, apply: Apply, needed: Callable[[], Collection[str] | None]) -> None:
    """Moves the refs down to the newest commits that checkpoints need, and drops those that others reach.

    None of the last hour is moved. What lies in a history that git cannot walk stays as it is.

    Args:
        apply: applies updates in one transaction.
        needed: returns the commits that checkpoints need now, by full names; None where that is not
            known.

    Raises:
        RefMoved: another writer was faster.
        LockHeld, GitError: git refused; each commit is kept all the same.
    """
    listed, symbolic = listing(repository)
    from gitckpt.git import graph

    kept = {oid: value for oid, value in listed.items() if oid not in symbolic and value == oid}
    young = {oid for oid in kept if is_young(repository, KEEP + oid) and repository.cat_file.info(oid) is not None}
    before = needed()
    # One whose commit is gone belongs to nothing that is being written, and no gc succeeds as long as it is there.
    wanted = young.union(kept if before is None else before)
    try:
        newest = graph.newest(repository.git, wanted)
    except GitError:
        return
    if not give(apply, {oid: listed.get(oid, "") for oid in newest}, symbolic):
        return  # what they lead to is kept by what is there
    gone = [oid for oid in kept if oid not in newest]
    gone = [oid for oid in gone if oid not in wanted or repository.cat_file.info(oid) is not None]
    gone = [oid for oid in gone if not is_locked(repository, KEEP + oid)]
    if gone:
        there = [Update(KEEP + oid, oid, oid) for oid in newest]
        apply([*there, *(Update(KEEP + oid, "", kept[oid]) for oid in gone)])
        # What came meanwhile: its ref was there when it was recorded, and may be among those that went.
        came = {oid for oid in needed() or () if may_name(repository, oid)} - wanted
        lost = graph.outside(repository.git, came, newest)
        give(apply, {oid: value_of(repository, KEEP + oid) for oid in lost}, symbolic)
