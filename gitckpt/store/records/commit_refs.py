"""The refs that keep commits alive: `refs/keep/ckpt/<oid>`, one per history line.

When history advances, the ref moves along: one transaction creates the ref of the new commit, a
second one verifies it and deletes those of the parents. The hook imports this module.
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
from gitckpt.store.records.ref_names import KEEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import TypeAlias

    from gitckpt.git.repository import Repository

    Apply: TypeAlias = Callable[[list[Update]], None]


# Keep a commit alive while a checkpoint is recorded.


def may_name(repository: Repository, name: str) -> bool:
    return ids.is_oid(name) and len(name) == 2 * oid_size(repository.object_format)


def is_young(repository: Repository, ref: str) -> bool:
    """Return whether a ref may belong to a checkpoint that is being written."""
    try:
        return (
            time.time() - os.stat(os.path.join(repository.common_dir, ref)).st_mtime < times.GRACE
        )
    # Packed: only `git gc` packs new refs, and the recorder checks again. Reftables are atomic.
    except OSError:
        return False


class Line:
    """A line of history that a checkpoint continues; `update` keeps its commit."""

    def __init__(self, repository: Repository, commit: str, *, again: bool = False) -> None:
        self._repository = repository
        self.commit = commit
        self._passed: list[Update] = []
        ref = KEEP + commit
        there = value_of(repository, ref, again=again)
        self.update = Update(
            ref, commit, there, is_symbolic=there == commit and is_symbolic(repository, ref)
        )
        if there == commit:
            return
        for parent in _above(repository, commit, _text(repository, commit)):
            old = value_of(repository, KEEP + parent, again=again)
            if old == parent:
                self._passed.append(Update(KEEP + parent, "", old))

    def follow_up(self, apply: Apply) -> None:
        """Delete the refs of the commit's parents, once the checkpoint is recorded."""
        is_there = Update(self.update.ref, self.update.new, self.update.new)
        try:
            path = os.path.join(self._repository.common_dir, is_there.ref)
            if not os.path.isfile(path) and not value_of(
                self._repository, is_there.ref
            ):  # deleted before the checkpoint needed it
                apply([Update(is_there.ref, is_there.new, "")])
            if self._passed:
                apply([is_there, *self._passed])
        # An extra ref is left, which maintenance deletes.
        except CkptError:
            return

    def recorded(self) -> Line | None:
        """Return the line for another checkpoint on the commit; None: read its ref again."""
        if self.update.is_symbolic:
            return None
        self.update = Update(self.update.ref, self.update.new, self.update.new)
        self._passed = []
        return self

    def is_as_it_was(self) -> bool:
        """Return whether the loose ref is unchanged; if packed, the transaction checks."""
        path = os.path.join(self._repository.common_dir, self.update.ref)
        return plain(self._repository, self.update.ref) == self.update.new or not os.path.lexists(
            path
        )


def is_symbolic(repository: Repository, ref: str) -> bool:
    """Return whether a loose ref is symbolic: it moves and vanishes with its target."""
    try:
        with open(os.path.join(repository.common_dir, ref), "rb") as file:
            return file.read(4) == b"ref:"
    except OSError:
        return False


def is_barred(ref: str, error: CkptError) -> bool:
    """Return whether a stale lock or a foreign ref below its name blocks a ref."""
    if isinstance(error, GitError):
        return f"'{ref}/" in error.stderr and "exists; cannot create" in error.stderr
    return isinstance(error, LockHeld) and error.path.endswith(f"/{ref}.lock")


def is_locked(repository: Repository, ref: str) -> bool:
    return os.path.lexists(os.path.join(repository.common_dir, f"{ref}.lock"))


def listing(repository: Repository) -> tuple[dict[str, str], set[str]]:
    """Return each ref's value by the oid in its name, and the oids of symbolic refs."""
    form = "--format=%(objectname) %(refname) %(symref)"
    kept: dict[str, str] = {}
    symbolic: set[str] = set()
    for line in (
        repository.git.run("for-each-ref", form, KEEP.rstrip("/"))
        .out.decode("utf-8", "surrogateescape")
        .split("\n")[:-1]
    ):
        oid, ref, target = line.split(" ")
        name = ref.removeprefix(KEEP)
        if may_name(repository, name):
            kept[name] = oid
            if target:
                symbolic.add(name)
    return kept, symbolic


def give(apply: Apply, kept: Mapping[str, str], symbolic: Collection[str]) -> bool:
    """Create the refs of commits; return whether all exist (foreign refs can block)."""
    wrong = {oid: value for oid, value in kept.items() if value != oid or oid in symbolic}
    updates = {
        oid: Update(KEEP + oid, oid, value, is_symbolic=oid in symbolic)
        for oid, value in wrong.items()
    }
    while updates:
        try:
            apply(list(updates.values()))
            break
        except GitError as error:
            barred = next(
                (oid for oid, update in updates.items() if is_barred(update.ref, error)), None
            )
            if barred is None:
                raise
            del updates[barred]
    return updates.keys() == wrong.keys()


def value_of(repository: Repository, ref: str, *, again: bool = False) -> str:
    """Return the value of a ref; "" if missing or, unless `again`, without its object."""
    require_no_pipe(repository, ref)
    found = repository.cat_file.info(ref)
    if found is not None:
        return found[0]
    if not again and not os.path.isfile(os.path.join(repository.common_dir, ref)):
        return ""
    return (
        repository.git.run("rev-parse", "--quiet", "--verify", ref, ok=(0, 1, 128))
        .out.decode("ascii")
        .strip()
    )  # the object is missing


def _above(repository: Repository, commit: str, text: bytes) -> tuple[str, ...]:
    return () if commit.encode("ascii") in repository.cuts() else tuple(parents(text))


def _text(repository: Repository, oid: str) -> bytes:
    found = next(repository.cat_file.contents([oid]))
    return found[2] if found is not None else repository.git.run("cat-file", "commit", oid).out


# Maintenance.


def settle(
    repository: Repository, apply: Apply, needed: Callable[[], Collection[str] | None]
) -> None:
    """Move the refs down to the newest commits that checkpoints need; delete the rest."""
    listed, symbolic = listing(repository)
    from gitckpt.git import graph

    kept = {oid: value for oid, value in listed.items() if oid not in symbolic and value == oid}
    young = {
        oid
        for oid in kept
        if is_young(repository, KEEP + oid) and repository.cat_file.info(oid) is not None
    }
    before = needed()
    # A ref whose commit is gone is not being written, and makes every gc fail.
    wanted = young.union(kept if before is None else before)
    try:
        newest = graph.newest(repository.git, wanted)
    except GitError:
        return
    if not give(apply, {oid: listed.get(oid, "") for oid in newest}, symbolic):
        return  # the present refs keep these commits
    gone = [oid for oid in kept if oid not in newest]
    gone = [oid for oid in gone if oid not in wanted or repository.cat_file.info(oid) is not None]
    # One locked ref would make the whole transaction fail.
    gone = [oid for oid in gone if not is_locked(repository, KEEP + oid)]
    if gone:
        there = [Update(KEEP + oid, oid, oid) for oid in newest]
        apply([*there, *(Update(KEEP + oid, "", kept[oid]) for oid in gone)])
        # A checkpoint recorded meanwhile may have relied on a ref that was just deleted.
        came = {oid for oid in needed() or () if may_name(repository, oid)} - wanted
        lost = graph.outside(repository.git, came, newest)
        give(apply, {oid: value_of(repository, KEEP + oid) for oid in lost}, symbolic)
