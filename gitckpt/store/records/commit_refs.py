"""Maintain `refs/keep/ckpt/<oid>`, which protect checkpoints' commits from git gc."""

from __future__ import annotations

import os
import time

from gitckpt.git.files.refs_stat import require_no_pipe
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
    Needed: TypeAlias = Callable[[], Collection[str] | None]


def is_full_oid(repository: Repository, name: str) -> bool:
    return ids.is_oid(name) and len(name) == 2 * oid_size(repository.object_format)


def is_recently_written(repository: Repository, ref: str) -> bool:
    try:
        mtime = os.stat(os.path.join(repository.common_dir, ref)).st_mtime
    except OSError:
        # Packed: only `git gc` packs new refs, and the recorder checks again. Reftables are atomic.
        return False
    return time.time() - mtime < times.GRACE


class KeepRef:
    """A planned ref that protects a commit and its ancestors from `git gc`."""

    def __init__(self, repository: Repository, commit: str, *, is_retry: bool = False) -> None:
        self._repository, self.commit = repository, commit
        self._parent_deletions: list[Update] = []
        value = read_oid(repository, KEEP + commit, is_retry=is_retry)
        is_symbolic = value == commit and _is_symbolic(repository, KEEP + commit)
        self.update = Update(KEEP + commit, commit, value, is_symbolic=is_symbolic)
        if value == commit or commit.encode("ascii") in repository.read_shallow_and_grafts():
            return
        content = next(repository.cat_file.contents([commit]))
        text = content[2] if content else repository.git.run("cat-file", "commit", commit).out
        for parent in parents(text):
            if read_oid(repository, KEEP + parent, is_retry=is_retry) == parent:
                self._parent_deletions.append(Update(KEEP + parent, "", parent))

    def delete_parent_refs(self, apply: Apply) -> None:
        """Delete refs that protect the commit's parents: the commit's ref protects them."""
        ref, commit = self.update.ref, self.commit
        try:
            path = os.path.join(self._repository.common_dir, ref)
            # Maintenance may have deleted the ref before the checkpoint needed it.
            if not os.path.isfile(path) and not read_oid(self._repository, ref):
                apply([Update(ref, commit, "")])
            if self._parent_deletions:
                apply([Update(ref, commit, commit), *self._parent_deletions])
        except CkptError:
            return  # maintenance deletes the superfluous refs


def _is_symbolic(repository: Repository, ref: str) -> bool:
    try:
        with open(os.path.join(repository.common_dir, ref), "rb") as file:
            return file.read(4) == b"ref:"
    except OSError:
        return False


def is_blocked(ref: str, error: CkptError) -> bool:
    """Return whether `error` says that the lock of `ref` or a ref below `ref` exists."""
    if isinstance(error, GitError):
        return f"'{ref}/" in error.stderr and "exists; cannot create" in error.stderr
    return isinstance(error, LockHeld) and error.path.endswith(f"/{ref}.lock")


def is_locked(repository: Repository, ref: str) -> bool:
    return os.path.lexists(os.path.join(repository.common_dir, f"{ref}.lock"))


def list_refs(repository: Repository) -> tuple[dict[str, str], set[str]]:
    """Return which oid each ref has, by the oid in its name; and symbolic refs' oids."""
    fields = "--format=%(objectname) %(refname) %(symref)"
    output = repository.git.run("for-each-ref", fields, KEEP.rstrip("/")).out
    values, symbolic = dict[str, str](), set[str]()
    for line in output.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        oid, ref, target = line.split(" ")
        name = ref.removeprefix(KEEP)
        if is_full_oid(repository, name):
            values[name] = oid
            symbolic |= {name} if target else set()
    return values, symbolic


def create_refs(apply: Apply, values: Mapping[str, str], symbolic: Collection[str]) -> bool:
    """Let each `refs/keep/ckpt/<oid>` point to the oid; return False if one is locked.

    `values` maps the oid in the name of each ref to the oid that the ref has now ("" if missing).
    """
    wrong = [oid for oid, value in values.items() if value != oid or oid in symbolic]
    updates = {
        oid: Update(KEEP + oid, oid, values[oid], is_symbolic=oid in symbolic) for oid in wrong
    }
    while updates:
        try:
            apply(list(updates.values()))
            break
        except GitError as error:
            blocked = [oid for oid, update in updates.items() if is_blocked(update.ref, error)]
            if not blocked:
                raise
            del updates[blocked[0]]
    return len(updates) == len(wrong)


def read_oid(repository: Repository, ref: str, *, is_retry: bool = False) -> str:
    """Return the oid that a ref points to; "" if the ref does not exist.

    If `is_retry` is false, a packed ref to a missing object also gives "": asking git is slow.
    """
    require_no_pipe(repository, ref)
    if (info := repository.cat_file.info(ref)) is not None:
        return info[0]
    if not is_retry and not os.path.isfile(os.path.join(repository.common_dir, ref)):
        return ""
    # The object is missing.
    words = ("rev-parse", "--quiet", "--verify", ref)
    return repository.git.run(*words, ok=(0, 1, 128)).out.decode("ascii").strip()


def update_refs(repository: Repository, apply: Apply, needed: Needed) -> None:
    """Protect needed commits by few refs `refs/keep/ckpt/<oid>`; delete all others.

    `needed` returns the commits of all checkpoints, or None if a checkpoint is unreadable.
    """
    from gitckpt.git import graph

    values, symbolic = list_refs(repository)
    intact = [oid for oid, value in values.items() if value == oid and oid not in symbolic]
    # A ref whose commit is gone is not being written, and makes every gc fail.
    young = [oid for oid in intact if is_recently_written(repository, KEEP + oid)]
    needed_oids = set(repository.cat_file.existing(young))
    linked = needed()
    needed_oids |= set(intact if linked is None else linked)
    try:
        newest = graph.newest(repository.git, needed_oids)
    except GitError:
        return
    if not create_refs(apply, {oid: values.get(oid, "") for oid in newest}, symbolic):
        return  # delete nothing: the old refs keep these commits alive
    superfluous = [
        oid
        for oid in intact
        if oid not in newest
        and (oid not in needed_oids or repository.cat_file.info(oid) is not None)
        # One locked ref would make the whole transaction fail.
        and not is_locked(repository, KEEP + oid)
    ]
    if superfluous:
        checks = [Update(KEEP + oid, oid, oid) for oid in newest]
        apply([*checks, *(Update(KEEP + oid, "", oid) for oid in superfluous)])
        # A checkpoint recorded meanwhile may have relied on a ref that was just deleted.
        added = {oid for oid in needed() or () if is_full_oid(repository, oid)} - needed_oids
        unreached = graph.outside(repository.git, added, newest)
        create_refs(apply, {oid: read_oid(repository, KEEP + oid) for oid in unreached}, symbolic)
