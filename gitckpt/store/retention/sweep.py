"""Delete scratch files and refs that killed processes left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from gitckpt.git import leftovers
from gitckpt.git.filesystem import names_in
from gitckpt.git.lock import FileLock, is_locked
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model import times
from gitckpt.store.leases.leases import LONGEST
from gitckpt.store.records import commit_refs, heads, ref_names
from gitckpt.store.records.index import Notify
from gitckpt.store.worktrees import ownership

# Kinds of scratch files in the private directory.
_PRIVATE = (
    *(ref_names.DRIVER, "bisect", "clock", "exports", "index", "intent", "objects", "pack"),
    *("rules", "secret-key", "symlink", "unfiltered", "written"),
)
# Kinds of scratch files in the administrative directory of a worktree.
_ADMIN = (
    *(administration.WORKTREE_SCRATCH, administration.SCRATCH, ref_names.UNDO_FILE),
    *("ckpt-exact", "ckpt-unfiltered"),
)


def delete_orphans(repository: Repository, refs: Refs, tell: Notify = lambda _: None) -> list[str]:
    """Delete refs to objects of checkpoints that do not exist; return these refs."""
    if repository.has_reftable:
        return []  # its transactions are atomic
    with ref_names.write_lock(repository, 0) as is_acquired:
        if not is_acquired:
            return []
        # The stale lock of a ref that is never written again is only removed here.
        heads.discard_stale_locks(repository, tell)
        ref_prefixes = [prefix for prefix in ref_names.OWN if f"{prefix}/" != ref_names.CHECKPOINTS]
        oids = dict(refs.iterate_refs(*ref_prefixes))
        if any(ref.startswith(ref_names.OBJECTS) for ref in oids):
            # List these refs last: a checkpoint is written after its object refs.
            oids |= dict(refs.iterate_refs(ref_names.CHECKPOINTS))
        orphan_refs = [ref for ref in oids if _is_orphan_ref(repository, ref, oids)]
        is_recent = commit_refs.is_recently_written
        if old_orphans := [ref for ref in orphan_refs if not is_recent(repository, ref)]:
            refs.apply_updates([RefUpdate(ref, "", oids[ref]) for ref in old_orphans])
        return old_orphans


def delete_leftover_files(repository: Repository) -> list[str]:
    leftover_files = find_leftover_files(repository).items()
    paths = [path for path, mark in leftover_files if leftovers.delete_if_unchanged(path, mark)]
    prefix, suffix = ref_names.FILES_LOCK.split("{}")
    for name in names_in(repository.private_dir):
        if name.startswith(prefix) and name.endswith(suffix):
            path = os.path.join(repository.private_dir, name)
            with FileLock(path, 0) as is_acquired:
                if is_acquired:
                    os.unlink(path)
                    paths.append(path)
    abandoned = ownership.list_abandoned_dirs(repository)
    paths += [path for path in abandoned if ownership.discard_abandoned_dir(repository, path)]
    return sorted(paths)


def find_leftover_files(repository: Repository) -> dict[str, leftovers.FileFingerprint]:
    marks = ((path, leftovers.read_fingerprint(path)) for path in _list_scratch_files(repository))
    return {
        **leftovers.find_stale_temporary_objects(repository),
        **_find_stale_keep_files(repository),
        **_find_unfinished_worktrees(repository),
        **{path: mark for path, mark in marks if mark is not None and _is_abandoned(path)},
    }


def list_all_scratch_files(repository: Repository) -> list[str]:
    return [
        *leftovers.find_temporary_objects(repository),
        *_list_scratch_files(repository),
        *_find_stale_keep_files(repository),
        *_find_unfinished_worktrees(repository),
    ]


def file_name_pattern_of(path: str) -> str:
    """Return the pattern for files of the same kind as `path`, such as "ckpt/index.*"."""
    name = os.path.basename(path)
    for prefix, pattern in ((".tmp-", ".tmp-*-pack-*"), ("tmp_objdir-", "tmp_objdir-*")):
        if name.startswith(prefix):
            return pattern
    if name.startswith(("tmp_", "bulk_")):
        return f"{'_'.join(name.split('_')[:2])}_*"
    parent_name = os.path.basename(os.path.dirname(path))
    if name.endswith(".keep") and parent_name == "pack":
        return "pack-*.keep"
    if parent_name == "worktrees":
        return "worktrees/*"
    kind = name.partition(".")[0]
    return f"{kind}.*" if kind in _ADMIN else f"ckpt/{kind}.*"


def _list_scratch_files(repository: Repository) -> list[str]:
    paths = []
    git_dirs = [git_dir for git_dir, _ in administration.list_worktrees(repository)]
    for directory in (repository.private_dir, repository.common_dir, *git_dirs):
        scratch_kinds = _PRIVATE if directory == repository.private_dir else _ADMIN
        for name in names_in(directory):
            kind, _, suffix = name.partition(".")
            if kind in scratch_kinds and suffix.partition(".")[0].isdigit():
                paths.append(os.path.join(directory, name))
    return paths


def _find_unfinished_worktrees(repository: Repository) -> dict[str, leftovers.FileFingerprint]:
    # Left by a killed `git worktree add`: git locks the new worktree, so it is never pruned.
    paths = filter(ownership.is_locked_by_gitckpt, administration.list_unfinished_dirs(repository))
    return leftovers.find_old_files(times.GRACE, paths)


def _find_stale_keep_files(repository: Repository) -> dict[str, leftovers.FileFingerprint]:
    # Git never repacks or deletes the contents of a kept pack.
    marks = {}
    packs = os.path.join(repository.common_dir, "objects", "pack")
    for path in [os.path.join(packs, name) for name in names_in(packs) if name.endswith(".keep")]:
        mark = leftovers.read_fingerprint(path)
        try:
            with open(path, "rb") as file:
                owner, _, pid = file.read(100).strip().partition(b" ")
        except OSError:
            continue
        is_dead = owner == b"gitckpt" and pid.isdigit() and not leftovers.is_process_alive(int(pid))
        if mark is not None and is_dead and time.time() - mark.changed > times.GRACE:
            marks[path] = mark
    return marks


def _is_abandoned(path: str) -> bool:
    status = os.lstat(path)
    # Not mtime: a private index has the mtime of the index that it was copied from.
    age = time.time() - status.st_ctime
    if os.path.basename(path).startswith(f"{ref_names.DRIVER}."):
        # A process that wants the lease checks this file to see whether the driver is alive.
        return age * times.MICRO > LONGEST and not is_locked(path)
    # A file with two links is also the lock file of an index: that lock must stay.
    return age > times.GRACE and (status.st_nlink == 1 or os.path.isdir(path))


def _is_orphan_ref(repository: Repository, ref: str, oids: Mapping[str, str]) -> bool:
    if ref.startswith(ref_names.KEEP):
        return not commit_refs.is_full_oid(repository, ref.removeprefix(ref_names.KEEP))
    owner = ref_names.CHECKPOINTS + ref.rpartition("/")[2]
    return ref.startswith(ref_names.OBJECTS) and owner not in oids
