"""Restore the submodules of a checkpoint; on undo, remove newly checked-out ones.

HEAD of a submodule moves; the safety checkpoint of the superproject keeps its old commit alive.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from gitckpt.git.files import mounts
from gitckpt.git.objects.diff import leaves
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, modules
from gitckpt.model import ids
from gitckpt.model.arguments import shell_word
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

# Key in a safety checkpoint's state: by path, the `_read_state` of submodules to check out.
_KEY = "submodules"


class _NotRemovable(CkptError):
    """A submodule has files that are in no checkpoint, or changed since its capture."""


def _read_state(store: Checkpoints, repository: Repository, top: str) -> dict[str, Any]:
    """Return a submodule's HEAD and its number of missing directories before checkout."""
    missing = 0
    while not os.path.lexists(top):
        top, missing = os.path.dirname(top), missing + 1
    with store.seen_from(repository, "plumbing") as submodule_store:
        head, branch = submodule_store.objects.head()
    return {"head": head, "branch": branch or "", "missing": missing}


class SubmoduleRemoval:
    """Remove the submodules that a restore checked out when it is undone.

    Their repositories stay. `undone` is the state of the safety checkpoint that `undo` restores;
    empty for a restore.
    """

    def __init__(
        self, store: Checkpoints, undone: Mapping[str, Any], stay: Iterable[bytes], limits: Limits
    ) -> None:
        self._store, self._limits = store, limits
        self.remarks: list[str] = []
        recorded = undone.get(_KEY)
        states = recorded.items() if isinstance(recorded, dict) else ()
        by_path = {modules.unquote(str(text)): state for text, state in states}
        paths = sorted(by_path.keys() - stay)
        self._states = {path: by_path[path] for path in paths if isinstance(by_path[path], dict)}

    def plan(self) -> list[PathChange]:
        """Return a change for each submodule to remove."""
        changes = []
        for path in self._states:
            if submodule := modules.seen_from(self._store.repository, path):
                submodule.close()
                changes.append(PathChange(DELETE, path))
        return changes

    def apply(self, safety: Checkpoint) -> None:
        """Remove submodules that `safety` has captured; add a remark for each that stays."""
        captured = safety.worktree.submodules if safety.worktree else ()
        checkpoints = {modules.unquote(entry.path): entry.checkpoint for entry in captured}
        for path, state in self._states.items():
            submodule = modules.seen_from(self._store.repository, path)
            if submodule is None:
                continue
            try:
                if path not in checkpoints:
                    raise _NotRemovable("no checkpoint has captured the submodule")
                self._remove(submodule, checkpoints[path], state)
            except (CkptError, OSError) as error:
                why = error.message if isinstance(error, CkptError) else error.strerror
                self.remarks.append(f"the submodule {decode_path(path)} was not removed: {why}")

    def _remove(self, submodule: Repository, checkpoint: str, state: Mapping[str, Any]) -> None:
        top = submodule.worktree or ""
        if (mount := mounts.describe(top)) is not None:
            raise _NotRemovable(mount)
        with self._store.seen_from(submodule, "plumbing") as submodule_store:
            files = self._list_files(submodule_store, submodule_store.read_own(checkpoint))
            walk = os.walk(os.fsencode(top))
            below = [os.path.join(parent, name) for parent, names, _ in walk for name in names]
            directories = [path for path in below if not os.path.islink(path)]
            _point_head(submodule_store, str(state.get("head", "")), str(state.get("branch", "")))
        # `.git` files go last, nested ones first: after a kill, they tell which submodule is left.
        files.sort(key=lambda file: (os.path.basename(file) == b".git", -len(file)))
        for file in files:
            os.unlink(file)
        for directory in sorted(directories, key=len, reverse=True):
            os.rmdir(directory)
        missing = state.get("missing", 0)
        for _ in range(missing if isinstance(missing, int) else 0):
            os.rmdir(top)
            top = os.path.dirname(top)

    def _list_files(self, submodule_store: Checkpoints, checkpoint: Checkpoint) -> list[bytes]:
        """Return all files as absolute paths; raise `_NotRemovable` if one would be lost."""
        repository, captured = submodule_store.repository, checkpoint.worktree
        top = os.fsencode(repository.worktree or "")
        if not os.path.isfile(os.path.join(top, b".git")):
            raise _NotRemovable("the directory contains its own repository")
        if captured is None or captured.degraded or captured.omitted or captured.converted:
            raise _NotRemovable("the checkpoint of the submodule is incomplete")
        current = submodule_store.capture(self._limits)
        state = submodule_store.objects.head()[0], current.tree, current.dirty
        if state != (checkpoint.git_sha, captured.tree, captured.dirty):
            raise _NotRemovable("the submodule changed meanwhile")
        tree = leaves(repository, manifest.files_of(repository, checkpoint))
        captured_paths = {path for path, mode, _ in tree if mode != GITLINK} | {b".git"}
        files: list[bytes] = []
        nested: set[bytes] = set()
        for submodule in captured.submodules:
            path = modules.unquote(submodule.path)
            nested_repository = modules.seen_from(repository, path)
            if nested_repository is None:
                raise _NotRemovable("the submodule changed meanwhile")
            with submodule_store.seen_from(nested_repository, "plumbing") as nested_store:
                files += self._list_files(nested_store, nested_store.read(submodule.checkpoint))
            nested.add(os.path.join(top, path))
        for parent, directories, names in os.walk(top):
            full = {name: os.path.join(parent, name) for name in [*names, *directories]}
            directories[:] = [name for name in directories if full[name] not in nested]
            links = [name for name in directories if os.path.islink(full[name])]
            for file in [full[name] for name in [*names, *links]]:
                path = os.path.relpath(file, top)
                if path not in captured_paths:
                    raise _NotRemovable(f"its file {decode_path(path)} is in no checkpoint")
                files.append(file)
        return files


def _point_head(submodule_store: Checkpoints, head: str, branch: str) -> None:
    # The checkpoint of the submodule keeps the old commit of HEAD alive.
    commit, current = submodule_store.objects.head()
    repository = submodule_store.repository
    if not head or (commit, current or "") == (head, branch) or not _has_commit(repository, head):
        return
    if branch and repository.tip_of(branch) == head:
        repository.point_head(BRANCHES + branch, f"checkout: moving to {branch}")
    else:
        repository.point_head(head, f"checkout: moving to {head}")


def _has_commit(repository: Repository, commit: str) -> bool:
    return repository.cat_file.info(f"{commit}^{{commit}}") is not None


_INSIDE = "after cd "  # begins advice for commands inside of a submodule


class _Incomplete(WorktreeError):
    """Submodules failed; `is_changed` tells whether the restore changed other files."""

    def __init__(self, failures: Sequence[str], advice: str, *, is_changed: bool) -> None:
        then = "then, in this directory," if advice.startswith(_INSIDE) else "then"
        hint = f"{advice}; {then} run the command again" if advice else ""
        if is_changed:
            hint += f"{', or' if hint else 'to'} undo the restore: git ckpt undo"
        success = "all else was restored" if is_changed else "all else equals the checkpoint"
        message = f"{success}, but these submodules failed: {'; '.join(failures)}"
        super().__init__(message, hint=hint or None)
        self.advice = advice


class _Unavailable(CkptError):
    """A submodule cannot be opened; run the hint's commands in the superproject."""


def advice_of(error: CkptError) -> str | None:
    """Return the advice of an error about submodules only; None for other errors."""
    return error.advice if isinstance(error, _Incomplete) else None


@dataclass(frozen=True, slots=True)
class SubmoduleRestoreResult:
    """What the restore of one submodule changed, or would change in a dry run."""

    changes: Sequence[PathChange]
    remarks: Sequence[str]
    is_due: bool  # whether anything had to change
    failures: Sequence[str] = ()  # one sentence for each nested submodule that failed
    advice: str = ""  # on the first failure


# Restores a checkpoint into a submodule: its store, the checkpoint, whether it is a dry run.
Restore = Callable[[Checkpoints, Checkpoint, bool], SubmoduleRestoreResult]


class Submodules:
    """Restore the selected submodules of a checkpoint; collect changes and failures."""

    def __init__(
        self, store: Checkpoints, checkpoint: Checkpoint, paths: Sequence[bytes], restore: Restore
    ) -> None:
        self._store, self._repository = store, store.repository
        self._checkpoint, self._paths, self._restore = checkpoint, paths, restore
        captured = checkpoint.worktree.submodules if checkpoint.worktree is not None else ()
        by_path = {modules.unquote(submodule.path): submodule for submodule in captured}
        self._by_path = {path: by_path[path] for path in by_path if is_within(path, paths)}
        self.paths = frozenset(self._by_path)
        self._states: dict[str, dict[str, Any]] = {}
        self.changes: list[PathChange] = []
        self.remarks: list[str] = []
        self.failures: list[str] = []
        self.advice = ""
        self.moved: set[bytes] = set()  # current paths of submodules to move back

    @property
    def state(self) -> dict[str, Any]:
        """Return the state that `undo` needs in the safety checkpoint; call `plan` first."""
        return {_KEY: self._states} if self._states else {}

    def plan(self) -> bool:
        """Add the planned changes to `changes`; return whether any submodule needs one."""
        are_due = [self._attempt(path, dry_run=True) for path in self._by_path]
        return any(are_due)

    def apply(self) -> None:
        """Restore all submodules; a failure is added to `failures` and stops no other one."""
        self.changes, self.remarks, self.failures = [], [], []
        for path in self._by_path:
            self._attempt(path, dry_run=False)

    def _attempt(self, path: bytes, *, dry_run: bool) -> bool:
        try:
            return self._restore_submodule(path, self._by_path[path], dry_run=dry_run)
        except _Unavailable as error:
            self._fail(path, error.message, error.hint)
        except CkptError as error:
            if dry_run:
                raise error.but(hint=_from_outside(path, error.hint) or None) from None
            advice = error.advice if isinstance(error, _Incomplete) else error.hint
            self._fail(path, error.message, _from_outside(path, advice))
        return False

    def require_all(self, *, is_changed: bool = True) -> None:
        """Raise an error if `failures` has entries; `is_changed` as in `_Incomplete`."""
        if self.failures:
            raise _Incomplete(self.failures, self.advice, is_changed=is_changed)

    def _fail(self, path: bytes, reason: str, advice: str | None) -> None:
        if not self.failures:
            self.advice = advice or ""
        self.failures.append(f"{decode_path(path)}: {reason}")

    def _restore_submodule(self, path: bytes, submodule: Submodule, *, dry_run: bool) -> bool:
        repository = modules.seen_from(self._repository, path)
        is_present = repository is not None
        if repository is None:
            repository = self._check_out(path, submodule, dry_run=dry_run)
        if repository is None:  # a dry run: `_check_out` has added the change
            return True
        with self._store.seen_from(repository, "plumbing") as submodule_store:
            if is_present:
                if not self._fetch(path, submodule, repository, dry_run=dry_run):
                    return True
                if not dry_run:
                    old_path = modules.checked_out_at(self._repository, repository)
                    is_lost = old_path is None and modules.is_lost(repository)
                    if is_lost or old_path not in (None, path, *self.paths):  # moved since
                        top = os.path.join(self._repository.worktree or "", os.fsdecode(path))
                        modules.set_worktree(repository, top)
            elif submodule_store.objects.head()[0] != submodule.git_sha:
                # No checkpoint of the superproject keeps this HEAD's commit alive.
                message = shorten_message(f"before the submodule {decode_path(path)} was restored")
                state = {"path": decode_path(path)}
                submodule_store.record(
                    ref_names.SAFETY_COMPLETE, state, trigger=SAFETY, message=message
                )
            checkpoint = submodule_store.read_own(submodule.checkpoint)
            is_moved = self._move_head(submodule_store, path, checkpoint, dry_run=dry_run)
            result = self._restore(submodule_store, checkpoint, dry_run)
        name, prefix = decode_path(path), path + b"/"
        self.changes += [PathChange(change.kind, prefix + change.path) for change in result.changes]
        self.remarks += [f"in the submodule {name}: {remark}" for remark in result.remarks]
        if result.failures:
            self._fail(path, "; ".join(result.failures), _from_outside(path, result.advice))
        return result.is_due or is_moved

    def _fetch(
        self, path: bytes, submodule: Submodule, repository: Repository, *, dry_run: bool
    ) -> bool:
        """Fetch a submodule's missing checkpoint; a dry run returns False instead."""
        ref = ref_names.CHECKPOINTS + submodule.checkpoint
        if modules.has_ref(repository, ref):
            return True
        source = modules.find_with_ref(self._repository, path, ref)
        source = source or modules.find_nested(self._repository, ref)
        if source is None:
            raise _lacks_checkpoint(path, submodule.checkpoint)
        with contextlib.closing(source):
            if not modules.is_copy(self._repository, repository, submodule.git_sha):
                raise _Unavailable("another repository is at this path", hint=_move_away(path))
            if dry_run:
                self.changes.append(PathChange(CHANGE, path))
                return False
            submodules.copy_all_checkpoints(self._store, source, repository)
        return True

    def _check_out(self, path: bytes, submodule: Submodule, *, dry_run: bool) -> Repository | None:
        """Attach a submodule without files, or move it back; return None in a dry run."""
        repository, top = self._repository, modules.checkout_path(self._repository, path)
        if top is None or (os.path.lexists(top) and (not os.path.isdir(top) or os.listdir(top))):
            raise _Unavailable("other files are at this path", hint=_move_away(path))
        command, ref = submodules.init_command(path), ref_names.CHECKPOINTS + submodule.checkpoint
        source = modules.find_with_ref(repository, path, ref)
        if source is None:
            neighbor = modules.find_nested(repository, ref)
            if neighbor is None:
                raise _lacks_checkpoint(path, submodule.checkpoint, f"{command}; ")
            neighbor.close()
            reason = f"its repository {neighbor.git_dir} belongs to another worktree"
            raise _Unavailable(reason, hint=f"make one for this worktree: {command}")
        if not self._is_submodule(path):
            raise _Unavailable("the files of the checkpoint have no submodule at this path")
        with contextlib.closing(source):
            old_path = modules.checked_out_at(repository, source)
            checked_out = None
            if old_path is not None:
                self._require_movable(path, old_path)
                self.moved.add(old_path)
                self.changes.append(PathChange(DELETE, old_path))
                checked_out = None if dry_run else modules.move(repository, source, old_path, top)
            elif dry_run:
                self._states[submodule.path] = _read_state(self._store, source, top)
            else:
                checked_out = modules.attach(source, top)
                if checked_out is None:
                    reason = f"its repository {source.git_dir} is in use elsewhere"
                    raise _Unavailable(reason, hint=f"make one for this worktree: {command}")
        self.changes.append(PathChange(ADD, path))
        return checked_out

    def _require_movable(self, path: bytes, old: bytes) -> None:
        """Raise an error unless the restore may move a submodule from `old` to `path`."""
        if is_within(old, self._paths) and not (old in self.paths or self._is_submodule(old)):
            return
        advice, reason = _move_away(old), f"its repository is checked out at {decode_path(old)}"
        if self._paths:
            words = [shell_word(decode_path(name)) for name in (path, old)]
            short = self._checkpoint.id[: ids.SHORT]
            advice = f"restore both: git ckpt restore {short} -- {' '.join(words)}"
        raise _Unavailable(reason, hint=advice)

    def _is_submodule(self, path: bytes) -> bool:
        # A fetched checkpoint may name any path.
        tree = manifest.files_of(self._repository, self._checkpoint)
        return modules.is_submodule(self._repository, tree, path)

    def _move_head(
        self, submodule_store: Checkpoints, path: bytes, checkpoint: Checkpoint, *, dry_run: bool
    ) -> bool:
        """Move HEAD to the captured commit; return whether it was elsewhere."""
        head, commit = submodule_store.objects.head()[0], checkpoint.git_sha
        if head == commit or not commit:
            return False
        if not _has_commit(submodule_store.repository, commit):
            message = f"commit {commit} of checkpoint {checkpoint.id} is missing in the submodule"
            raise WorktreeError(message, hint=manifest.VERIFY)
        branch = checkpoint.branch if _is_branch_free(submodule_store, checkpoint) else None
        old, state = head or "an unborn branch", f"on {branch}" if branch else "detached"
        move = f"from {old[:10] if head else old} to {commit[:10]}, {state}"
        self.remarks.append(f"HEAD of the submodule {decode_path(path)} moves {move}")
        if not dry_run:
            message = f"checkout: moving from {old} to {branch or commit}"
            submodule_store.repository.point_head(BRANCHES + branch if branch else commit, message)
        return True


def _is_branch_free(submodule_store: Checkpoints, checkpoint: Checkpoint) -> bool:
    """Return whether the captured branch is at its commit, and no worktree uses it."""
    branch = checkpoint.branch
    if branch is None or submodule_store.repository.tip_of(branch) != checkpoint.git_sha:
        return False
    return not any(
        administration.read_line(os.path.join(git_dir, "HEAD")) == f"ref: {BRANCHES}{branch}"
        for git_dir, _ in administration.registered(submodule_store.repository)
    )


def _lacks_checkpoint(path: bytes, checkpoint: str, first: str = "") -> _Unavailable:
    reason = f"no repository of the submodule has the checkpoint {checkpoint}"
    return _Unavailable(reason, hint=first + submodules.fetch_hint(path, checkpoint))


def _from_outside(path: bytes, advice: str | None) -> str:
    return f"{_INSIDE}{shell_word(decode_path(path))}: {advice}" if advice else ""


def _move_away(path: bytes) -> str:
    return f"move away: {shell_word(decode_path(path))}"
