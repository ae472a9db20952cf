"""Remove the worktree of a run if a checkpoint has all contents of the worktree."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections.abc import Iterator

from gitckpt.git.files import mounts, private_dirs
from gitckpt.git.filesystem import names_in
from gitckpt.git.lock import FileLock
from gitckpt.git.objects import diff
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration, modules
from gitckpt.model.arguments import join_first, shell_quoted
from gitckpt.model.checkpoint import SUBMODULE, Checkpoint, Omitted
from gitckpt.model.errors import NotFoundError, WorktreeError
from gitckpt.model.values import replace
from gitckpt.store import submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.leases.leases import LeaseHeld, LeaseLost
from gitckpt.store.records import heads
from gitckpt.store.records.entry import CheckpointInfo
from gitckpt.store.runs import run_files
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.worktrees import opener, ownership
from gitckpt.store.worktrees.resumption import record_deleted_worktree

Reason = str | None  # a clause why a worktree stays; None if it was removed or may be removed

# Refs of submodule repositories that may have the only copy of commits.
_USER_REFS = ("refs/heads", "refs/tags", "refs/stash")


def describe_unsaved_submodules(store: Checkpoints, git_dir: str) -> list[str]:
    descriptions = []
    for name, submodule, counterpart in modules.iterate_submodule_pairs(store.repository, git_dir):
        if counterpart is None:
            descriptions.append(f"the only repository of submodule {name}")
            continue
        unsaved = _unsaved_in(store, submodule, counterpart)
        descriptions += [f"{description} in submodule {name}" for description in unsaved]
    return descriptions


def _unsaved_in(store: Checkpoints, submodule: Repository, counterpart: Repository) -> list[str]:
    descriptions = ["linked worktrees"] if administration.list_worktrees(submodule) else []
    format_option = "--format=%(objectname) %(objecttype) %(refname)"
    output = submodule.git.run("for-each-ref", format_option, *_USER_REFS).out
    for line in output.decode("utf-8", "replace").split("\n")[:-1]:
        oid, object_type, ref = line.split(" ", 2)
        if object_type not in ("commit", "tag"):
            is_saved = counterpart.cat_file.info(ref) == submodule.cat_file.info(ref)
        else:
            arguments = ("rev-list", "--max-count=1", oid, "--not", "--remotes")
            unreached_commit = submodule.git.run(*arguments).out.strip()
            is_saved = not unreached_commit or _is_commit_reached(counterpart, oid)
        if not is_saved:
            descriptions.append(f"{ref.removeprefix('refs/heads/')} ({oid[:12]})")
    with contextlib.closing(store.open_store_for(submodule, "plumbing")) as inner_store:
        unsaved_ids = [entry.id for entry in inner_store.list() if entry.trigger != SUBMODULE]
        descriptions += [f"checkpoint {id_}" for id_ in unsaved_ids]
    return descriptions


def _is_commit_reached(counterpart: Repository, oid: str) -> bool:
    if counterpart.cat_file.info(oid) is None:
        return False
    arguments = ("rev-list", "--max-count=1", oid, "--not", "--branches", "--tags", "--remotes")
    unreached = counterpart.git.run(*arguments, ok=(0, 128))
    return unreached.code == 0 and not unreached.out.strip()


HOLDER = "git ckpt expire"  # `holder` of leases during a removal; also the command to retry it
HOLDS = "has contents that no checkpoint has"
_STAGE = ".making-way-"  # name prefix of a renamed worktree that is about to be deleted
_PARKED = "removing."  # name prefix of a git directory moved to the private directory
_NOTE = "ckpt-removal"  # JSON file in that directory: the paths before and after the move
_LOCK = "removal.lock"
_PATIENCE = 10.0  # seconds to wait for the lock of removals
_SHOWN = 3  # number of unsaved paths to show


def remove_worktree(store: Checkpoints, run: str, newest: CheckpointInfo | None = None) -> Reason:
    """Remove a run's worktree; return why it stays, such as unsaved contents, or None."""
    lease = store.leases.read(run)
    if lease is not None and store.leases.is_held(*lease) and lease[1].is_ours:
        return _remove_worktrees(store, run, newest)
    try:
        hold = store.leases.acquire_lease(run, HOLDER)
    except LeaseHeld as error:
        return error.message
    try:
        return _remove_worktrees(store, run, None)
    finally:
        with contextlib.suppress(LeaseLost):
            hold.release_lease()


def reason_not_to_remove(store: Checkpoints, run: str) -> str | None:
    """Return why `remove_worktree` would leave the worktree, or None; change nothing."""
    lease = store.leases.read(run)
    if lease is not None and store.leases.is_held(*lease) and not lease[1].is_ours:
        return store.leases.held_error(*lease).message
    return _remove_worktrees(store, run, None, dry_run=True)


def is_run_pushed(store: Checkpoints, run: str) -> bool:
    """Return whether a remote-tracking branch contains the last commit of a run."""
    commit = _newest_checkpoint(store, run).git_sha
    for _, path in _worktrees_of(store.repository, run):
        if (repository := administration.open_linked_worktree(store.repository, path)) is not None:
            with store.open_store_for(repository, "plumbing") as worktree_store:
                commit = worktree_store.objects.read_head()[0]
    if not commit:
        return False
    arguments = ("for-each-ref", "--count=1", f"--contains={commit}", "refs/remotes")
    return store.repository.git.run(*arguments).out != b""


def finish_worktree_removals(repository: Repository) -> list[str]:
    """Finish or undo the removals that a kill interrupted; return error messages."""
    failures = []
    with FileLock(os.path.join(repository.make_private_dir(), _LOCK), 0) as is_acquired:
        for parked_dir in _list_moved_git_dirs(repository) if is_acquired else ():
            try:
                _finish_removal(parked_dir)
            except WorktreeError as error:
                failures.append(f"{error.message}; {error.hint}")
    return failures


def list_interrupted_removals(repository: Repository) -> list[str]:
    parked_dirs = _list_moved_git_dirs(repository)
    paths = [*parked_dirs, *(_read_note(path).get("stage", "") for path in parked_dirs)]
    return [path for path in paths if os.path.isdir(path)]


def _list_moved_git_dirs(repository: Repository) -> list[str]:
    names = [name for name in names_in(repository.private_dir) if name.startswith(_PARKED)]
    return [os.path.join(repository.private_dir, name) for name in names]


def delete_directory(path: str) -> None:
    try:
        private_dirs.delete_directory(path)
    except FileNotFoundError:
        return  # another process deleted it
    except OSError as error:
        reason, hint = mounts.describe_mounts(path), "unmount the file system, then run"
        if reason is None:
            name = error.filename if isinstance(error.filename, str) else path
            reason = f"{name}: {error.strerror}"
            hint = f"see why: ls -la {shell_quoted(path)}; then run"
        raise WorktreeError(f"cannot delete {path}: {reason}", hint=f"{hint}: {HOLDER}") from None


def _remove_worktrees(
    store: Checkpoints, run: str, newest: CheckpointInfo | None, *, dry_run: bool = False
) -> Reason:
    if not dry_run:
        finish_worktree_removals(store.repository)  # `expire` reports the errors
    latest = newest or _newest_checkpoint(store, run)
    paths = [path for pair in _worktrees_of(store.repository, run) for path in pair]
    reason = mounts.describe_mounts(*paths, run_files.files_of_run(store.repository, run).path)
    if reason is not None:
        return reason
    for git_dir, path in _worktrees_of(store.repository, run):
        if (reason := _reason_to_keep(store, store.read(latest.id), git_dir, path)) is not None:
            return reason
        if dry_run:
            continue
        for _, submodule, counterpart in modules.iterate_submodule_pairs(store.repository, git_dir):
            if counterpart is not None:  # copy the checkpoints to the submodule's main repository
                submodules.copy_checkpoints(store, submodule, counterpart)
        if os.path.lexists(path):  # ignored files go, as with `git worktree remove`
            _delete_worktree(store.repository, git_dir, path)
        else:
            record_deleted_worktree(store, git_dir, path)
            administration.remove_git_dir(store.repository, git_dir)
    return _reason_if_unlisted(store.repository, run)


def _newest_checkpoint(store: Checkpoints, run: str) -> CheckpointInfo:
    if (newest := heads.find_newest_of_run(store.index, store.repository, run)) is None:
        raise NotFoundError(f"no run {run}", hint="list the runs: git ckpt runs")
    return newest


def _worktrees_of(repository: Repository, run: str) -> Iterator[tuple[str, str]]:
    for git_dir, path in administration.list_worktrees(repository):
        if (owner := ownership.owner_in(git_dir)) is not None and owner.run == run:
            yield git_dir, path


def _reason_if_unlisted(repository: Repository, run: str) -> str | None:
    configured_dir = settings.read_settings(repository).worktree_dir
    if configured_dir is None and administration.main_worktree(repository) is None:
        return None
    path = os.path.join(opener.worktrees_dir(repository, configured_dir), run)
    git_dir = administration.git_dir_of(path)
    if git_dir is None or os.path.isdir(git_dir):
        return None
    if not administration.owns_git_dir(repository, git_dir):
        return None
    return f"git no longer lists the worktree {path}; to register it: git ckpt resume {run}"


def _reason_to_keep(store: Checkpoints, newest: Checkpoint, git_dir: str, path: str) -> str | None:
    if not os.path.lexists(path) and modules.has_modules_dir(git_dir):
        return f"the worktree {path} is missing, and {git_dir} has repositories of submodules"
    if ownership.is_locked_by_user(git_dir):
        return f"the worktree {path} is locked"
    if not ownership.is_same_directory(administration.git_dir_of(path), git_dir):
        if (moved := administration.find_moved(store.repository, git_dir, path)) is not None:
            command = f"git worktree repair {shell_quoted(moved)}"
            return f"the worktree was moved to {moved}; run: {command}"
        return f"{path} is no longer the worktree of the run" if os.path.lexists(path) else None
    is_broken = administration.lacks_commondir(store.repository, git_dir)
    if is_broken or administration.lacks_valid_head(git_dir):
        return f"git cannot use the worktree {path}; to repair it: git ckpt resume {newest.run}"
    if _is_cwd_in(path) or os.path.realpath(store.repository.git_dir) == os.path.realpath(git_dir):
        return f"the current directory is in the worktree {path}"
    if not (losses := _unsaved(store, newest, path) + describe_unsaved_submodules(store, git_dir)):
        return None
    return f"the worktree {path} {HOLDS}: {join_first(losses, _SHOWN)}"


def _is_cwd_in(path: str) -> bool:
    real_path = os.path.realpath(path)
    try:
        return os.path.commonpath([os.path.realpath(os.getcwd()), real_path]) == real_path
    except FileNotFoundError:
        return False


def _unsaved(store: Checkpoints, newest: Checkpoint, path: str) -> list[str]:
    if (repository := administration.open_linked_worktree(store.repository, path)) is None:
        raise WorktreeError(f"{path} is not a worktree", hint="find the cause: git ckpt doctor")
    with store.open_store_for(repository, "plumbing") as inside:
        commit = inside.objects.read_head()[0]
        if commit != newest.git_sha:
            return [f"commit {commit[:12]}" if commit else "an unborn branch"]
        rules = settings.read_settings(inside.repository)  # reports mistakes, asks for no approval
        limits = rules.limits if not rules.problem else inside.settings_reader.read_limits()
        limits = replace(limits, timeout=math.inf)
        add_run_files = run_files.files_of_run(repository, str(newest.run)).added
        captured = inside.capture_worktree(limits, add_run_files)
        old_contents = manifest.read(repository, inside.objects, newest.tree, commit)
        current = manifest.read(repository, inside.objects, captured.tree, commit)
        paths = [d.path for d in diff.diff_trees(repository, old_contents.files, current.files)]
        paths += manifest.differing_raw_paths(repository, old_contents, current)
        descriptions = [path.decode("utf-8", "replace") for path in paths]
        descriptions += _compare_indexes(repository, old_contents, current, commit)
        descriptions += _compare_run_files(repository, newest.tree, captured.tree)
        recorded_submodules = newest.worktree.submodules if newest.worktree is not None else ()
        recorded_ids = {submodule.path: submodule.checkpoint for submodule in recorded_submodules}
        for submodule in captured.submodules:
            if recorded_ids.get(submodule.path) != submodule.checkpoint:
                descriptions.append(f"the submodule {submodule.path}")
        descriptions += [e.path for e in captured.omitted if _is_file_or_directory(path, e)]
        refs = repository.git.run_for_text("for-each-ref", "--format=%(refname)", "refs/worktree")
        descriptions += filter(None, refs.split("\n"))
        return list(dict.fromkeys(descriptions))


def _compare_indexes(
    repository: Repository, old: manifest.Snapshot, new: manifest.Snapshot, commit: str
) -> list[str]:
    contents = (old, new)
    staged_trees = [{**c.index, 0: comparison.staged_tree(repository, c, commit)} for c in contents]
    flags = [{(flag, p) for flag, paths in c.flags.items() for p in paths} for c in contents]
    differences = {
        "staged changes": staged_trees[0] != staged_trees[1],
        "an operation in progress": old.operation != new.operation,
        "flags of the index": flags[0] != flags[1],
    }
    return [description for description, differs in differences.items() if differs]


def _compare_run_files(repository: Repository, old: str | None, new: str | None) -> list[str]:
    entry, empty_tree = run_files.ENTRY, manifest.base_tree(repository, "")
    tree_infos = [tree and repository.cat_file.info(f"{tree}:{entry}") for tree in (old, new)]
    old_oid, new_oid = (info[0] if info else empty_tree for info in tree_infos)
    changes = diff.diff_trees(repository, old_oid, new_oid) if old_oid != new_oid else ()
    return [f"{entry}/{d.path.decode('utf-8', 'replace')}" for d in changes if d.status != "D"]


def _is_file_or_directory(top: str, omitted: Omitted) -> bool:
    try:  # sockets, pipes and devices are no work
        mode = os.lstat(os.path.join(top, omitted.path)).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _delete_worktree(repository: Repository, git_dir: str, path: str) -> None:
    # After a kill, the worktree is complete or unregistered; the next removal deletes the rest.
    private_dir, random_hex = repository.make_private_dir(), os.urandom(4).hex()
    new_path = os.path.join(os.path.dirname(path), f"{_STAGE}{random_hex}")
    parked = os.path.join(private_dir, f"{_PARKED}{random_hex}")
    lock = FileLock(os.path.join(private_dir, _LOCK), _PATIENCE)
    with private_dirs.hold_directory_open(os.path.dirname(path)), lock:
        try:
            with open(os.path.join(git_dir, _NOTE), "w", encoding="utf-8") as file:
                json.dump({"git_dir": git_dir, "path": path, "stage": new_path}, file)
                file.flush()
                os.fsync(file.fileno())
            with administration.lock_worktrees(repository):
                os.rename(git_dir, parked)
            os.rename(path, new_path)
        except OSError as error:
            if os.path.isdir(parked):
                _finish_removal(parked)
            raise WorktreeError(f"cannot remove the worktree {path}: {error.strerror}") from None
        _finish_removal(parked)


def _finish_removal(parked: str) -> None:
    """Undo a removal if only the git directory `parked` was moved; else complete it."""
    git_dir, path, new_path = map(_read_note(parked).get, ("git_dir", "path", "stage"), [""] * 3)
    if os.path.lexists(new_path):
        private_dirs.require_own_directory(new_path)
        delete_directory(new_path)
    elif git_dir and not os.path.lexists(git_dir):
        is_in_place = administration.git_dir_of(path) == os.path.normpath(git_dir)
        if is_in_place:
            os.unlink(os.path.join(parked, _NOTE))
            return os.rename(parked, git_dir)
    return delete_directory(parked)


def _read_note(parked: str) -> dict[str, str]:
    try:
        with open(os.path.join(parked, _NOTE), encoding="utf-8") as file:
            note = json.load(file)
        return {key: str(note[key]) for key in ("git_dir", "path", "stage")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
