"""Maintain refs `refs/keep/ckpt/<oid>`, which protect linked commits from gc."""

from __future__ import annotations

import os
import time

from gitckpt.git.files.refs_stat import require_no_pipe_at_ref
from gitckpt.git.objects.encoding import oid_length, parse_parents
from gitckpt.git.process import GitError
from gitckpt.git.refs import LockHeld, RefUpdate
from gitckpt.model import ids, times
from gitckpt.model.errors import CkptError
from gitckpt.store.records.ref_names import KEEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import TypeAlias

    from gitckpt.git.repository import Repository

    Apply: TypeAlias = Callable[[list[RefUpdate]], None]
    Needed: TypeAlias = Callable[[], Collection[str] | None]


def is_full_oid(repository: Repository, name: str) -> bool:
    return ids.is_oid(name) and len(name) == 2 * oid_length(repository.object_format)


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
        self._parent_deletions: list[RefUpdate] = []
        old_oid = read_oid(repository, KEEP + commit, is_retry=is_retry)
        is_symbolic = old_oid == commit and _is_symbolic_ref(repository, KEEP + commit)
        self.update = RefUpdate(KEEP + commit, commit, old_oid, is_symbolic=is_symbolic)
        if old_oid == commit or commit.encode("ascii") in repository.read_shallow_and_grafts():
            return
        object_ = next(repository.cat_file.read_contents([commit]))
        body = object_[2] if object_ else repository.git.run("cat-file", "commit", commit).out
        for parent in parse_parents(body):
            if read_oid(repository, KEEP + parent, is_retry=is_retry) == parent:
                self._parent_deletions.append(RefUpdate(KEEP + parent, "", parent))

    def delete_parent_refs(self, apply: Apply) -> None:
        ref, commit = self.update.ref, self.commit
        try:
            path = os.path.join(self._repository.common_dir, ref)
            # Maintenance may have deleted the ref before the checkpoint needed it.
            if not os.path.isfile(path) and not read_oid(self._repository, ref):
                apply([RefUpdate(ref, commit, "")])
            if self._parent_deletions:
                apply([RefUpdate(ref, commit, commit), *self._parent_deletions])
        except CkptError:
            return  # maintenance deletes the superfluous refs


def _is_symbolic_ref(repository: Repository, ref: str) -> bool:
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


def list_keep_refs(repository: Repository) -> tuple[dict[str, str], set[str]]:
    """List the refs `refs/keep/ckpt/<oid>`."""
    format_ = "--format=%(objectname) %(refname) %(symref)"
    listing = repository.git.run("for-each-ref", format_, KEEP.rstrip("/")).out
    targets, symrefs = dict[str, str](), set[str]()
    for line in listing.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        oid, ref, symref = line.split(" ")
        named_oid = ref.removeprefix(KEEP)
        if is_full_oid(repository, named_oid):
            targets[named_oid] = oid
            symrefs |= {named_oid} if symref else set()
    return targets, symrefs


def create_keep_refs(apply: Apply, values: Mapping[str, str], symbolic: Collection[str]) -> bool:
    """Point refs `refs/keep/ckpt/<oid>` to their oids; return False if one is blocked.

    `values` maps the oid in a ref's name to the oid that the ref points to now, or to "".
    """
    wrong_oids = [oid for oid, target in values.items() if target != oid or oid in symbolic]
    updates = {
        oid: RefUpdate(KEEP + oid, oid, values[oid], is_symbolic=oid in symbolic)
        for oid in wrong_oids
    }
    while updates:
        try:
            apply(list(updates.values()))
            break
        except GitError as error:
            blocked_oids = [oid for oid, update in updates.items() if is_blocked(update.ref, error)]
            if not blocked_oids:
                raise
            del updates[blocked_oids[0]]
    return len(updates) == len(wrong_oids)


def read_oid(repository: Repository, ref: str, *, is_retry: bool = False) -> str:
    """Return the oid that a ref points to; "" if the ref does not exist.

    The first try also returns "" for a packed ref to a missing object; a retry asks git, slowly.
    """
    require_no_pipe_at_ref(repository, ref)
    if (object_info := repository.cat_file.info(ref)) is not None:
        return object_info[0]
    if not is_retry and not os.path.isfile(os.path.join(repository.common_dir, ref)):
        return ""
    # The object is missing.
    command = ("rev-parse", "--quiet", "--verify", ref)
    return repository.git.run(*command, ok=(0, 1, 128)).out.decode("ascii").strip()


def update_keep_refs(repository: Repository, apply: Apply, needed: Needed) -> None:
    """Create refs that protect the needed commits from `git gc`; delete other refs."""
    from gitckpt.git import graph

    targets, symrefs = list_keep_refs(repository)
    valid_oids = [oid for oid, target in targets.items() if target == oid and oid not in symrefs]
    # A ref whose commit is gone is not being written, and makes every gc fail.
    young_oids = [oid for oid in valid_oids if is_recently_written(repository, KEEP + oid)]
    needed_oids = set(repository.cat_file.list_existing_objects(young_oids))
    linked_oids = needed()
    needed_oids |= set(valid_oids if linked_oids is None else linked_oids)
    try:
        newest_oids = graph.find_independent_commits(repository.git, needed_oids)
    except GitError:
        return
    if not create_keep_refs(apply, {oid: targets.get(oid, "") for oid in newest_oids}, symrefs):
        return  # delete nothing: the old refs keep these commits alive
    unneeded_oids = [
        oid
        for oid in valid_oids
        if oid not in newest_oids
        and (oid not in needed_oids or repository.cat_file.info(oid) is not None)
        # One locked ref would make the whole transaction fail.
        and not is_locked(repository, KEEP + oid)
    ]
    if unneeded_oids:
        unchanged_refs = [RefUpdate(KEEP + oid, oid, oid) for oid in newest_oids]
        apply([*unchanged_refs, *(RefUpdate(KEEP + oid, "", oid) for oid in unneeded_oids)])
        # A checkpoint recorded meanwhile may have relied on a ref that was just deleted.
        new_oids = {oid for oid in needed() or () if is_full_oid(repository, oid)} - needed_oids
        lost_oids = graph.find_commits_outside(repository.git, new_oids, newest_oids)
        old_values = {oid: read_oid(repository, KEEP + oid) for oid in lost_oids}
        create_keep_refs(apply, old_values, symrefs)
