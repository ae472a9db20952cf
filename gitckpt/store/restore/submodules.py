"""Restore a checkpoint's submodules; on undo, remove newly checked-out submodules.

HEAD of a submodule moves. The checkpoint before the restore protects the old commit from `git gc`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from gitckpt.git.files import mounts
from gitckpt.git.objects.diff import list_leaves
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, modules
from gitckpt.model import ids
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.checkpoint import SAFETY, Checkpoint, Submodule
from gitckpt.model.document import shorten_message
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.model.values import dataclass
from gitckpt.store import submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.restore.plan import ADD, CHANGE, DELETE, PathChange, decode_path, is_within
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Key in a safety checkpoint's state: by path, `_read_submodule_head` of submodules to check out.
_KEY = "submodules"


class _SubmoduleStays(CkptError):
    """A submodule has files that are in no checkpoint or changed after their capture."""


def _read_submodule_head(store: Checkpoints, repository: Repository, top: str) -> dict[str, Any]:
    """Return a submodule's HEAD, and how many directories of `top` are missing."""
    missing_count = 0
    while not os.path.lexists(top):
        top, missing_count = os.path.dirname(top), missing_count + 1
    with store.open_store_for(repository, "plumbing") as submodule_store:
        head_commit, branch = submodule_store.objects.read_head()
    return {"head": head_commit, "branch": branch or "", "missing": missing_count}


class SubmoduleRemoval:
    """Remove the submodules that a restore has checked out, when `undo` reverses it.

    The repositories of the submodules stay. `undone` is the state of the safety checkpoint that
    `undo` restores. It is empty in a restore.
    """

    def __init__(
        self, store: Checkpoints, undone: Mapping[str, Any], stay: Iterable[bytes], limits: Limits
    ) -> None:
        self._store, self._limits = store, limits
        self.remarks: list[str] = []
        recorded_states = undone.get(_KEY)
        recorded_items = recorded_states.items() if isinstance(recorded_states, dict) else ()
        state_of = {modules.unquote_path(str(text)): state for text, state in recorded_items}
        paths = sorted(state_of.keys() - stay)
        self._states = {path: state_of[path] for path in paths if isinstance(state_of[path], dict)}

    def plan_removals(self) -> list[PathChange]:
        """List a change for each submodule that `remove_submodules` will remove."""
        changes = []
        for path in self._states:
            if submodule := modules.open_submodule(self._store.repository, path):
                submodule.close()
                changes.append(PathChange(DELETE, path))
        return changes

    def remove_submodules(self, safety: Checkpoint) -> None:
        """Remove submodules that `safety` has captured; add remarks on other submodules."""
        captures = safety.worktree.submodules if safety.worktree else ()
        checkpoints = {modules.unquote_path(entry.path): entry.checkpoint for entry in captures}
        for path, state in self._states.items():
            submodule = modules.open_submodule(self._store.repository, path)
            if submodule is None:
                continue
            try:
                if path not in checkpoints:
                    raise _SubmoduleStays("no checkpoint has captured the submodule")
                self._remove(submodule, checkpoints[path], state)
            except (CkptError, OSError) as error:
                reason = error.message if isinstance(error, CkptError) else error.strerror
                self.remarks.append(f"the submodule {decode_path(path)} was not removed: {reason}")

    def _remove(self, submodule: Repository, checkpoint: str, state: Mapping[str, Any]) -> None:
        top = submodule.worktree or ""
        if (mount := mounts.describe_mounts(top)) is not None:
            raise _SubmoduleStays(mount)
        with self._store.open_store_for(submodule, "plumbing") as submodule_store:
            files = self._list_files(submodule_store, submodule_store.read_own(checkpoint))
            levels = os.walk(os.fsencode(top))
            entries = [os.path.join(parent, name) for parent, names, _ in levels for name in names]
            directories = [path for path in entries if not os.path.islink(path)]
            _point_head(submodule_store, str(state.get("head", "")), str(state.get("branch", "")))
        # `.git` files go last, nested ones first: after a kill, they tell which submodule is left.
        files.sort(key=lambda file: (os.path.basename(file) == b".git", -len(file)))
        for file in files:
            os.unlink(file)
        for directory in sorted(directories, key=len, reverse=True):
            os.rmdir(directory)
        missing_count = state.get("missing", 0)
        for _ in range(missing_count if isinstance(missing_count, int) else 0):
            os.rmdir(top)
            top = os.path.dirname(top)

    def _list_files(self, submodule_store: Checkpoints, checkpoint: Checkpoint) -> list[bytes]:
        """List a submodule's files; raise `_SubmoduleStays` if no checkpoint has one."""
        repository, captured = submodule_store.repository, checkpoint.worktree
        top = os.fsencode(repository.worktree or "")
        if not os.path.isfile(os.path.join(top, b".git")):
            raise _SubmoduleStays("the directory contains its own repository")
        if captured is None or captured.degraded or captured.omitted or captured.converted:
            raise _SubmoduleStays("the checkpoint of the submodule is incomplete")
        new_capture = submodule_store.capture_worktree(self._limits)
        current_state = submodule_store.objects.read_head()[0], new_capture.tree, new_capture.dirty
        if current_state != (checkpoint.git_sha, captured.tree, captured.dirty):
            raise _SubmoduleStays("the submodule changed meanwhile")
        tree_entries = list_leaves(repository, manifest.files_tree(repository, checkpoint))
        captured_paths = {path for path, mode, _ in tree_entries if mode != GITLINK} | {b".git"}
        files: list[bytes] = []
        nested_tops: set[bytes] = set()
        for submodule in captured.submodules:
            path = modules.unquote_path(submodule.path)
            nested_repository = modules.open_submodule(repository, path)
            if nested_repository is None:
                raise _SubmoduleStays("the submodule changed meanwhile")
            with submodule_store.open_store_for(nested_repository, "plumbing") as nested_store:
                files += self._list_files(nested_store, nested_store.read(submodule.checkpoint))
            nested_tops.add(os.path.join(top, path))
        for parent, directories, file_names in os.walk(top):
            full_paths = {name: os.path.join(parent, name) for name in [*file_names, *directories]}
            directories[:] = [name for name in directories if full_paths[name] not in nested_tops]
            link_names = [name for name in directories if os.path.islink(full_paths[name])]
            for file in [full_paths[name] for name in [*file_names, *link_names]]:
                path = os.path.relpath(file, top)
                if path not in captured_paths:
                    raise _SubmoduleStays(f"no checkpoint has its file {decode_path(path)}")
                files.append(file)
        return files


def _point_head(submodule_store: Checkpoints, head: str, branch: str) -> None:
    # The checkpoint of the submodule keeps the old commit of HEAD alive.
    commit, current = submodule_store.objects.read_head()
    repository = submodule_store.repository
    if not head or (commit, current or "") == (head, branch) or not _has_commit(repository, head):
        return
    if branch and repository.read_branch_tip(branch) == head:
        repository.set_head(BRANCHES + branch, f"checkout: moving to {branch}")
    else:
        repository.set_head(head, f"checkout: moving to {head}")


def _has_commit(repository: Repository, commit: str) -> bool:
    return repository.cat_file.info(f"{commit}^{{commit}}") is not None


_INSIDE = "after cd "  # begins advice for commands inside of a submodule


class _SubmodulesFailed(WorktreeError):
    """Some submodules were not restored; `is_changed` tells whether other files were."""

    def __init__(self, failures: Sequence[str], advice: str, *, is_changed: bool) -> None:
        next_words = "then, in this directory," if advice.startswith(_INSIDE) else "then"
        hint = f"{advice}; {next_words} run the command again" if advice else ""
        if is_changed:
            hint += f"{', or' if hint else 'to'} undo the restore: git ckpt undo"
        result_words = "all else was restored" if is_changed else "all else equals the checkpoint"
        message = f"{result_words}, but these submodules failed: {'; '.join(failures)}"
        super().__init__(message, hint=hint or None)
        self.advice = advice


class _Unavailable(CkptError):
    """A submodule cannot be opened; the hint has commands to run in the superproject."""


def advice_on_failed_submodules(error: CkptError) -> str | None:
    """Return the advice of an error if only submodules failed; None for other errors."""
    return error.advice if isinstance(error, _SubmodulesFailed) else None


@dataclass(frozen=True, slots=True)
class SubmoduleResult:
    """The changes that a restore makes in one submodule, or plans in a dry run."""

    changes: Sequence[PathChange]
    remarks: Sequence[str]
    is_due: bool  # whether anything had to change
    failures: Sequence[str] = ()  # one sentence for each nested submodule that failed
    advice: str = ""  # on the first failure


# Restores a checkpoint into a submodule: its store, the checkpoint, whether it is a dry run.
Restore = Callable[[Checkpoints, Checkpoint, bool], SubmoduleResult]


class SubmoduleRestorer:
    """Restore the selected submodules of a checkpoint; collect changes and failures."""

    def __init__(
        self, store: Checkpoints, checkpoint: Checkpoint, paths: Sequence[bytes], restore: Restore
    ) -> None:
        self._store, self._repository = store, store.repository
        self._checkpoint, self._paths, self._restore = checkpoint, paths, restore
        captured = checkpoint.worktree.submodules if checkpoint.worktree is not None else ()
        by_path = {modules.unquote_path(submodule.path): submodule for submodule in captured}
        self._by_path = {path: by_path[path] for path in by_path if is_within(path, paths)}
        self.paths = frozenset(self._by_path)
        self._states: dict[str, dict[str, Any]] = {}
        self.changes: list[PathChange] = []
        self.remarks: list[str] = []
        self.failures: list[str] = []
        self.advice = ""
        self.moved: set[bytes] = set()  # current paths of submodules to move back

    @property
    def undo_state(self) -> dict[str, Any]:
        """Return what `undo` needs to remove submodules; `plan_submodules` sets it."""
        return {_KEY: self._states} if self._states else {}

    def plan_submodules(self) -> bool:
        """Add planned changes to `changes`; return whether any submodule must change."""
        needs_change = [self._try_to_restore(path, dry_run=True) for path in self._by_path]
        return any(needs_change)

    def restore_submodules(self) -> None:
        """Restore all submodules; after a failure, add it to `failures` and continue."""
        self.changes, self.remarks, self.failures = [], [], []
        for path in self._by_path:
            self._try_to_restore(path, dry_run=False)

    def _try_to_restore(self, path: bytes, *, dry_run: bool) -> bool:
        try:
            return self._restore_submodule(path, self._by_path[path], dry_run=dry_run)
        except _Unavailable as error:
            self._add_failure(path, error.message, error.hint)
        except CkptError as error:
            if dry_run:
                raise error.but(hint=_prefix_cd(path, error.hint) or None) from None
            advice = error.advice if isinstance(error, _SubmodulesFailed) else error.hint
            self._add_failure(path, error.message, _prefix_cd(path, advice))
        return False

    def require_all_restored(self, *, is_changed: bool = True) -> None:
        """Raise an error if a submodule failed; `is_changed` tells if other files changed."""
        if self.failures:
            raise _SubmodulesFailed(self.failures, self.advice, is_changed=is_changed)

    def _add_failure(self, path: bytes, reason: str, advice: str | None) -> None:
        if not self.failures:
            self.advice = advice or ""
        self.failures.append(f"{decode_path(path)}: {reason}")

    def _restore_submodule(self, path: bytes, submodule: Submodule, *, dry_run: bool) -> bool:
        repository = modules.open_submodule(self._repository, path)
        is_present = repository is not None
        if repository is None:
            repository = self._check_out(path, submodule, dry_run=dry_run)
        if repository is None:  # a dry run: `_check_out` has added the change
            return True
        with self._store.open_store_for(repository, "plumbing") as submodule_store:
            if is_present:
                if not self._fetch_checkpoint(path, submodule, repository, dry_run=dry_run):
                    return True
                if not dry_run:
                    old_path = modules.find_checkout_path(self._repository, repository)
                    is_checkout_lost = old_path is None and modules.has_lost_worktree(repository)
                    if is_checkout_lost or old_path not in (None, path, *self.paths):  # moved since
                        top = os.path.join(self._repository.worktree or "", os.fsdecode(path))
                        modules.set_worktree(repository, top)
            elif submodule_store.objects.read_head()[0] != submodule.git_sha:
                # No checkpoint of the superproject keeps this HEAD's commit alive.
                message = shorten_message(f"before the submodule {decode_path(path)} was restored")
                label, state = ref_names.SAFETY_COMPLETE, {"path": decode_path(path)}
                submodule_store.record(label, state, trigger=SAFETY, message=message)
            checkpoint = submodule_store.read_own(submodule.checkpoint)
            is_moved = self._move_submodule_head(submodule_store, path, checkpoint, dry_run=dry_run)
            result = self._restore(submodule_store, checkpoint, dry_run)
        name, prefix = decode_path(path), path + b"/"
        self.changes += [PathChange(change.kind, prefix + change.path) for change in result.changes]
        self.remarks += [f"in the submodule {name}: {remark}" for remark in result.remarks]
        if result.failures:
            self._add_failure(path, "; ".join(result.failures), _prefix_cd(path, result.advice))
        return result.is_due or is_moved

    def _fetch_checkpoint(
        self, path: bytes, submodule: Submodule, repository: Repository, *, dry_run: bool
    ) -> bool:
        """Fetch a submodule's checkpoint if it is missing; return False in a dry run."""
        ref = ref_names.CHECKPOINTS + submodule.checkpoint
        if modules.has_ref(repository, ref):
            return True
        source_repository = modules.find_submodule_with_ref(self._repository, path, ref)
        source_repository = source_repository or modules.find_nested_with_ref(self._repository, ref)
        if source_repository is None:
            raise _no_checkpoint_error(path, submodule.checkpoint)
        with contextlib.closing(source_repository):
            if not modules.is_copy_of_submodule(self._repository, repository, submodule.git_sha):
                raise _Unavailable("another repository is at this path", hint=_advise_moving(path))
            if dry_run:
                self.changes.append(PathChange(CHANGE, path))
                return False
            submodules.copy_all_checkpoints(self._store, source_repository, repository)
        return True

    def _check_out(self, path: bytes, submodule: Submodule, *, dry_run: bool) -> Repository | None:
        """Check out a submodule at `path`, or move it there; return None in a dry run."""
        repository, top = self._repository, modules.checkout_path(self._repository, path)
        if top is None or (os.path.lexists(top) and (not os.path.isdir(top) or os.listdir(top))):
            raise _Unavailable("other files are at this path", hint=_advise_moving(path))
        command = submodules.submodule_init_command(path)
        ref = ref_names.CHECKPOINTS + submodule.checkpoint
        source = modules.find_submodule_with_ref(repository, path, ref)
        if source is None:
            nested_source = modules.find_nested_with_ref(repository, ref)
            if nested_source is None:
                raise _no_checkpoint_error(path, submodule.checkpoint, f"{command}; ")
            nested_source.close()
            reason = f"its repository {nested_source.git_dir} belongs to another worktree"
            raise _Unavailable(reason, hint=f"make one for this worktree: {command}")
        if not self._is_submodule(path):
            raise _Unavailable("the files of the checkpoint have no submodule at this path")
        with contextlib.closing(source):
            old_path = modules.find_checkout_path(repository, source)
            checked_out = None
            if old_path is not None:
                self._require_movable_submodule(path, old_path)
                self.moved.add(old_path)
                self.changes.append(PathChange(DELETE, old_path))
                if not dry_run:
                    checked_out = modules.move_submodule(repository, source, old_path, top)
            elif dry_run:
                self._states[submodule.path] = _read_submodule_head(self._store, source, top)
            else:
                checked_out = modules.attach_worktree(source, top)
                if checked_out is None:
                    reason = f"its repository {source.git_dir} is in use elsewhere"
                    raise _Unavailable(reason, hint=f"make one for this worktree: {command}")
        self.changes.append(PathChange(ADD, path))
        return checked_out

    def _require_movable_submodule(self, path: bytes, old: bytes) -> None:
        if is_within(old, self._paths) and not (old in self.paths or self._is_submodule(old)):
            return
        advice, reason = _advise_moving(old), f"its repository is checked out at {decode_path(old)}"
        if self._paths:
            quoted_paths = [shell_quoted(decode_path(name)) for name in (path, old)]
            short_id = self._checkpoint.id[: ids.SHORT]
            advice = f"restore both: git ckpt restore {short_id} -- {' '.join(quoted_paths)}"
        raise _Unavailable(reason, hint=advice)

    def _is_submodule(self, path: bytes) -> bool:
        # A fetched checkpoint may name any path.
        tree = manifest.files_tree(self._repository, self._checkpoint)
        return modules.is_submodule(self._repository, tree, path)

    def _move_submodule_head(
        self, submodule_store: Checkpoints, path: bytes, checkpoint: Checkpoint, *, dry_run: bool
    ) -> bool:
        head, commit = submodule_store.objects.read_head()[0], checkpoint.git_sha
        if head == commit or not commit:
            return False
        if not _has_commit(submodule_store.repository, commit):
            message = f"commit {commit} of checkpoint {checkpoint.id} is missing in the submodule"
            raise WorktreeError(message, hint=manifest.VERIFY)
        branch = checkpoint.branch if _may_check_out_branch(submodule_store, checkpoint) else None
        old_head, head_state = head or "an unborn branch", f"on {branch}" if branch else "detached"
        movement = f"from {old_head[:10] if head else old_head} to {commit[:10]}, {head_state}"
        self.remarks.append(f"HEAD of the submodule {decode_path(path)} moves {movement}")
        if not dry_run:
            message = f"checkout: moving from {old_head} to {branch or commit}"
            submodule_store.repository.set_head(BRANCHES + branch if branch else commit, message)
        return True


def _may_check_out_branch(submodule_store: Checkpoints, checkpoint: Checkpoint) -> bool:
    branch = checkpoint.branch
    if branch is None or submodule_store.repository.read_branch_tip(branch) != checkpoint.git_sha:
        return False
    return not any(
        administration.read_line(os.path.join(git_dir, "HEAD")) == f"ref: {BRANCHES}{branch}"
        for git_dir, _ in administration.list_worktrees(submodule_store.repository)
    )


def _no_checkpoint_error(path: bytes, checkpoint: str, first: str = "") -> _Unavailable:
    reason = f"no repository of the submodule has the checkpoint {checkpoint}"
    return _Unavailable(reason, hint=first + submodules.fetch_hint(path, checkpoint))


def _prefix_cd(path: bytes, advice: str | None) -> str:
    return f"{_INSIDE}{shell_quoted(decode_path(path))}: {advice}" if advice else ""


def _advise_moving(path: bytes) -> str:
    return f"move away: {shell_quoted(decode_path(path))}"
