"""The refs that keep linked commits alive: one for each line of history, `refs/keep/ckpt/<oid>`. Imported by the hook.

A line that goes on takes its ref along. `<oid>` points to itself while a branch points there as well, and to its holder (`git.holder`)
otherwise: `git name-rev` and `git describe` then answer as without us. Every transaction that deletes such a ref verifies those that keep
what it kept, so that no two writers together can lose a commit.
"""

from __future__ import annotations

import os
import time

from gitckpt.git import disk
from gitckpt.git.files.premises import create
from gitckpt.git.files.reader import cuts
from gitckpt.git.files.ref_files import plain, require_no_pipe
from gitckpt.git.objects.anchor import gc_is_running, may_have_pruned
from gitckpt.git.objects.encoding import object_id, oid_size, parents
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, Update
from gitckpt.git.repository import BRANCHES
from gitckpt.model import ids, times
from gitckpt.model.errors import CkptError
from gitckpt.store.records.layout import KEEP, LEVELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import TypeAlias

    from gitckpt.git.objects.port import Item, Objects
    from gitckpt.git.repository import Repository

    Apply: TypeAlias = Callable[[list[Update]], None]

_AT_ONCE = 20
"""How many lines a record gives a holder: each takes 20 ms to flush, and refs may be fetched by the hundred. Maintenance does all."""


def may_name(repository: Repository, name: str) -> bool:
    """Tells whether the last part of a ref that keeps commits may name one: a full object id of this repository's format."""
    return ids.is_oid(name) and len(name) == 2 * oid_size(repository.object_format)


def is_young(repository: Repository, ref: str) -> bool:
    """Tells whether a ref may belong to a checkpoint that is being written.

    One that is packed does not: nobody packs what was written just now but a `git gc`, and who records looks at it once more. Neither does
    one in a reftable, where transactions are all or nothing.
    """
    try:
        return time.time() - os.stat(os.path.join(repository.common_dir, ref)).st_mtime < times.GRACE
    except OSError:
        return False


class Line:
    """The line of history that a new checkpoint goes on with, or begins.

    Args:
        commit: the one that the checkpoint is linked to.
        has_branch: whether a branch points to it.
        again: whether a ref was not as it seemed before, so that git is asked for those whose objects may be missing.

    Attributes:
        commit: as above.
        has_branch: as above.
        update: what keeps the commit, for the transaction that makes the checkpoint.
        objects: what has to be written before.

    Raises:
        CkptError: the commit is missing.
    """

    def __init__(self, repository: Repository, commit: str, *, has_branch: bool, again: bool = False) -> None:
        self._repository = repository
        self.commit = commit
        self.has_branch = has_branch
        self._passed: list[Update] = []
        self._is_new = self._is_held = False
        self._parts: dict[str, list[str]] = {}
        self.objects: list[Item] = []
        ref = KEEP + commit
        there = value_of(repository, ref, again=again)
        if there == commit:
            self.update = Update(ref, commit, commit, is_symbolic=is_symbolic(repository, ref))
            return
        self._text = _text(repository, commit)
        value = commit
        if there or not has_branch:  # a commit of a branch whose line goes on has nothing to do with holders: the hook mostly meets these
            value, made = _holder(repository, commit, self._text, there)
            if there == value:
                self.update = Update(ref, value, value)
                self.objects = made if _lacks(repository, made) else []
                return
            value, self.objects = (commit, []) if has_branch else (value, made)
        self.update = Update(ref, value, there)
        self._is_new = True
        for parent in _above(repository, commit, self._text):
            old = value_of(repository, KEEP + parent, again=again)
            if old:
                self._passed.append(Update(KEEP + parent, "", old, lasting=False))  # one too many does no harm

    def secured(self, objects: Objects | None = None) -> Line:
        """Returns this, once all that is new in the commit is there, and held where a gc runs that may not know of it.

        Args:
            objects: hold it until refs lead to it; None where refs do already.

        Raises:
            CkptError: something is gone.
            GitError: it could not be held.
        """
        if self._is_new and not self._is_held and may_have_pruned(self._repository, self._text):
            revs = [self.commit, *(f"^{parent}" for parent in _above(self._repository, self.commit, self._text))]
            if gc_is_running(self._repository.common_dir):
                self._is_held = objects.hold(revs, revs=True) if objects is not None else _pack(self._repository, revs)
            if not self._is_held:
                _require_present(self._repository, self.commit, revs)
        return self

    def detour(self) -> list[Update]:
        """Returns what keeps the commit as well, where a lock that a kill left is in the way of the ref.

        While the lock is there, nobody can delete a ref that is there. For one that is not, be it that it went since it was looked at, one
        stands in under the name of the commit's holder, until the next maintenance.
        """
        if not self._is_new and value_of(self._repository, self.update.ref) == self.update.new:
            return []
        held, self.objects = _basic(self._repository, self.commit, _text(self._repository, self.commit))
        there = value_of(self._repository, KEEP + held)
        self.update = Update(KEEP + held, there if there and is_right(self._repository, held, there) else held, there)
        return [self.update]

    def follow_up(self, objects: Objects, apply: Apply) -> None:
        """Drops the refs of the commit's parents; where it goes on with no line, or one has ended, sorts out what became of the others.

        The checkpoint is recorded by then: what fails here leaves a ref too many, which maintenance drops.

        Args:
            apply: applies updates in one transaction.
        """
        is_there = Update(self.update.ref, self.update.new, self.update.new)
        try:
            path = os.path.join(self._repository.common_dir, is_there.ref)
            if not os.path.isfile(path) and not value_of(self._repository, is_there.ref):  # dropped while no checkpoint needed it
                apply([Update(is_there.ref, is_there.new, "")])
            if self._is_new and gc_is_running(self._repository.common_dir):  # it may have begun since
                self.secured()
            if self._passed:
                apply([is_there, *self._passed])
            has_begun = self._is_new and (not self._passed or self._has_left())
            if has_begun or self._has_another_ended():
                sort(self._repository, objects, apply, self.commit)
        except CkptError:
            return

    def recorded(self) -> Line | None:
        """Returns the line for a further checkpoint on the same commit; None where what keeps the commit is to be looked at anew."""
        if self.update.ref != KEEP + self.commit or self.update.is_symbolic:
            return None
        self.update = Update(self.update.ref, self.update.new, self.update.new)
        self.objects, self._passed, self._is_new = [], [], False
        return self

    def is_as_it_was(self) -> bool:
        """Tells whether the file of the ref says the same, and the holder is there; where that is not plain, it is looked at anew.

        A ref without a file is packed, or gone: the transaction confirms it.
        """
        path = os.path.join(self._repository.common_dir, self.update.ref)
        if plain(self._repository, self.update.ref) != self.update.new and os.path.lexists(path):
            return False
        if self.update.new == self.commit:
            return True
        held = self.update.new
        if held not in self._parts:
            self._parts = {held: _oids(self._repository, _holder(self._repository, self.commit, self._text, held)[1])}
        return _are_there(self._repository, self._parts[held])

    def _has_another_ended(self) -> bool:
        """Tells whether a line beside this one ended where no branch points any more."""
        if self._repository.has_reftable:  # where no file tells
            kept, tips, _ = listing(self._repository)
            return any(value == oid and oid not in tips for oid, value in kept.items())
        common = self._repository.common_dir
        loose = os.path.join(common, KEEP)
        lines = os.listdir(loose) if os.path.isdir(loose) else []
        if lines == [self.commit] and self.has_branch and not os.path.exists(os.path.join(common, "packed-refs")):
            return False  # mostly there is no other, and the hook need not import what knows of them
        from gitckpt.store.records import abandoned

        return abandoned.is_any(self._repository, but=self.commit if self.has_branch else None)

    def _has_left(self) -> bool:
        """Tells whether a reset came to the parent from a commit that counts as the end of a line."""
        before = self._repository.cat_file.info("ORIG_HEAD")
        if before is None or before[0] == self.commit or any(KEEP + before[0] == each.ref for each in self._passed):
            return False
        return value_of(self._repository, KEEP + before[0]) == before[0]


def _pack(repository: Repository, revs: list[str]) -> bool:
    from gitckpt.git.objects import pack  # seldom does a gc run

    return pack.hold(repository, revs, revs=True) is not None


def _require_present(repository: Repository, commit: str, revs: list[str]) -> None:
    """Raises a CkptError where git finds that something is missing that a commit adds to its parents."""
    done = repository.git.run("rev-list", "--objects", "--no-object-names", "--missing=print", *revs, ok=(0, 128))
    missing = [line[1:].decode("ascii") for line in done.out.splitlines() if line.startswith(b"?")]
    if done.code != 0 and repository.cat_file.info(commit) is None:
        missing = [commit]
    if not missing:
        return
    from gitckpt.git.graph import partial

    for oid in missing if partial.promisor(repository) is None else ():
        raise CkptError(
            f"the object {oid} of the commit {commit} is gone, as a git gc --prune=now takes it beside a commit",
            hint="see what is missing: git fsck; write files again: git hash-object -w FILE; then the commit: git commit --amend",
        )


def sort(repository: Repository, objects: Objects, apply: Apply, newest: str, left_by: Collection[str] = ()) -> None:
    """Sorts the lines that end where no branch points any more: drops the refs of those that go on, and lets the others lend no name.

    Args:
        apply: applies updates in one transaction.
        newest: the commit that was recorded just now.
        left_by: commits that branches are about to leave.

    Raises:
        BusyError, GitError: they stay as they are.
    """
    kept, tips, symbolic = listing(repository)
    if kept.get(newest) == newest and (newest not in tips or newest in symbolic):  # it was recorded before, while a branch was there
        kept |= give(repository, objects, apply, {newest: newest}, tips, symbolic=symbolic)
    left = [oid for oid, value in kept.items() if value == oid != newest and (oid not in tips or oid in left_by or oid in symbolic)]
    if not left:
        return
    from gitckpt.git.graph import reachability

    on = kept.get(newest, "")
    alone = reachability.outside(repository.git, left, [newest]) if on else set(left)
    gone = [Update(KEEP + oid, "", oid, lasting=False) for oid in left if oid not in alone and not is_locked(repository, KEEP + oid)]
    if gone:
        apply([Update(KEEP + newest, on, on), *gone])
    give(repository, objects, apply, {oid: kept[oid] for oid in sorted(alone)[:_AT_ONCE]}, (), symbolic=symbolic)


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


def is_right(repository: Repository, oid: str, value: str) -> bool:
    """Tells whether a ref that points to an object, and stands for no other one, keeps the commit that it is named after."""
    if value == oid:
        return True
    try:
        return value == _holder(repository, oid, _text(repository, oid), value)[0]
    except CkptError:
        return False


def is_whole(repository: Repository, oid: str, value: str) -> bool:
    """Tells whether the holder is there that a ref which is right points to. It can be made anew; without it, every `git gc` fails."""
    return value == oid or not _lacks(repository, _holder(repository, oid, _text(repository, oid), value)[1])


def listing(repository: Repository) -> tuple[dict[str, str], set[str], set[str]]:
    """Returns what the refs point to, by the oid in their name; where branches point; and those oids whose ref stands for another one."""
    form = "--format=%(objectname) %(refname) %(symref)"
    lines = repository.git.run("for-each-ref", form, KEEP.rstrip("/"), BRANCHES.rstrip("/")).out
    kept: dict[str, str] = {}
    tips: set[str] = set()
    symbolic: set[str] = set()
    for line in lines.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        oid, ref, target = line.split(" ")
        if ref.startswith(BRANCHES):
            tips.add(oid)
        elif may_name(repository, ref.removeprefix(KEEP)):
            kept[ref.removeprefix(KEEP)] = oid
            if target:
                symbolic.add(ref.removeprefix(KEEP))
    return kept, tips, symbolic


def give(
    repository: Repository,
    objects: Objects,
    apply: Apply,
    kept: Mapping[str, str],
    tips: Collection[str],
    *,
    symbolic: Collection[str],
    least: int = 0,
) -> dict[str, str]:
    """Gives each commit the ref it should have.

    Args:
        apply: applies updates in one transaction.
        kept: what the ref of each commit points to now; "" where it has none.
        tips: where branches point.
        symbolic: commits whose ref stands for another one.
        least: how many levels a holder has to have; of those that are there, each with four is right.

    Returns:
        What the refs point to now, by the last part of their names.
    """
    values: dict[str, str] = {}
    new: list[Item] = []
    for oid in kept:
        values[oid] = oid
        if oid not in tips:
            values[oid], made = _holder(repository, oid, _text(repository, oid), kept[oid], least)
            new += made if kept[oid] != values[oid] or _lacks(repository, made) else []
    updates = {
        oid: Update(KEEP + oid, values[oid], there, is_symbolic=oid in symbolic)
        for oid, there in kept.items()
        if values[oid] != there or oid in symbolic
    }
    if new:
        objects.write(new)
    while updates:
        try:
            apply(list(updates.values()))
            break
        except GitError as error:
            barred = next((oid for oid, update in updates.items() if is_barred(update.ref, error)), None)
            if barred is None:
                raise
            del updates[barred], values[barred]
            held = _stand_in(repository, objects, barred)
            values[held.ref.removeprefix(KEEP)] = held.new
            if held.new != held.old:
                updates[held.ref] = held
    return values


def _stand_in(repository: Repository, objects: Objects, oid: str) -> Update:
    """Returns what keeps a commit under the name of its holder, where its own name is barred; the holder is written."""
    held, made = _basic(repository, oid, _text(repository, oid))
    objects.write(made)
    there = value_of(repository, KEEP + held)
    return Update(KEEP + held, there if there and is_right(repository, held, there) else held, there)


def value_of(repository: Repository, ref: str, *, again: bool = False) -> str:
    """Returns what a ref points to; "" where it is not there, or, but for `again`, is packed while its object is missing."""
    require_no_pipe(repository, ref)
    found = repository.cat_file.info(ref)
    if found is not None:
        return found[0]
    if not again and not os.path.isfile(os.path.join(repository.common_dir, ref)):
        return ""
    return repository.git.run("rev-parse", "--quiet", "--verify", ref, ok=(0, 1, 128)).out.decode("ascii").strip()  # its object is missing


def _holder(repository: Repository, oid: str, text: bytes, there: str, least: int = 0) -> tuple[str, list[Item]]:
    """Returns the holder that a ref points to, or else the one to give it: as deep as this repository needs them."""
    from gitckpt.git.objects import holder

    date, least = holder.committed_at(text), max(least, holder.DEPTH)
    found = holder.find(there, [oid], date, repository.object_format, least) if there not in ("", oid) else None
    return found or holder.make([oid], date, repository.object_format, max(least, depth(repository)))


def _basic(repository: Repository, oid: str, text: bytes) -> tuple[str, list[Item]]:
    """Returns the holder with the fewest levels, after which what stands in for a ref is named."""
    from gitckpt.git.objects import holder

    return holder.make([oid], holder.committed_at(text), repository.object_format)


def depth(repository: Repository) -> int:
    """Returns how many levels a new holder gets, as maintenance has noted it."""
    from gitckpt.git.objects import holder

    try:
        with open(os.path.join(repository.private_dir, LEVELS), "rb", opener=create) as file:
            said = file.read(9).strip()
    except OSError:
        return holder.DEPTH
    return min(max(int(said), holder.DEPTH), holder.DEEPEST) if said.isdigit() else holder.DEPTH


def _lacks(repository: Repository, made: list[Item]) -> bool:
    """Tells whether some of the objects of a holder are missing."""
    return not _are_there(repository, _oids(repository, made))


def _oids(repository: Repository, made: list[Item]) -> list[str]:
    return [object_id(kind, data, repository.object_format) for kind, data in made]


def _are_there(repository: Repository, oids: Iterable[str]) -> bool:
    """Tells whether objects are there; each record asks, so git is asked only for those that are not loose."""
    return all(disk.is_there(repository, oid) or repository.cat_file.info(oid) is not None for oid in oids)


def _above(repository: Repository, commit: str, text: bytes) -> tuple[str, ...]:
    """Returns the parents of a commit; none where git may take it to have others."""
    return () if commit.encode("ascii") in cuts(repository) else tuple(parents(text))


def _text(repository: Repository, oid: str) -> bytes:
    """Returns a commit. Errors: `GitError`, which says what is wrong with it."""
    found = next(repository.cat_file.contents([oid]))
    return found[2] if found is not None else repository.git.run("cat-file", "commit", oid).out
