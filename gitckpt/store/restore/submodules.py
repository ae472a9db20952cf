"""Restore the submodules of a checkpoint; remove those that a restore checked out.

Each submodule is restored from its own checkpoint in its own repository. HEAD of a submodule
moves; the safety checkpoint of the outer worktree keeps the commit that it leaves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gitckpt.git.files import mounts
from gitckpt.git.objects.diff import leaves
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, modules
from gitckpt.model import ids
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import SAFETY, Checkpoint, Submodule
from gitckpt.model.document import message_of
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.model.values import dataclass
from gitckpt.store import submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.restore.plan import ADD, CHANGE, DELETE, PathChange, is_within
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Remove submodules when the restore that checked them out is undone. Git keeps the repositories.


# In the state of a safety checkpoint: submodules to check out, with `_state_before` by path.
_KEY = "submodules"


class _NotRemovable(CkptError):
    """A submodule has files that no checkpoint holds, or it changed since its capture."""


def _state_before(store: Checkpoints, kept: Repository, top: str) -> dict[str, Any]:
    """Record a submodule's HEAD and missing parent directories before checkout."""
    missing = 0
    while not os.path.lexists(top):
        top, missing = os.path.dirname(top), missing + 1
    with contextlib.closing(store.seen_from(kept, "plumbing")) as inner:
        head, branch = inner.objects.head()
    return {"head": head, "branch": branch or "", "missing": missing}


class SubmoduleRemoval:
    """Remove the submodules that a restore checked out when it is undone.

    `undone` is the state of the safety checkpoint whose restore is undone; empty for a restore.
    """

    def __init__(
        self, store: Checkpoints, undone: Mapping[str, Any], stay: Iterable[bytes], limits: Limits
    ) -> None:
        self._store = store
        self._limits = limits
        states = undone.get(_KEY, {})
        recorded = states.items() if isinstance(states, dict) else ()
        known = {modules.unquoted(str(text)): state for text, state in recorded}
        kept = set(stay)
        self._states = {
            path: state
            for path, state in sorted(known.items())
            if path not in kept and isinstance(state, dict)
        }
        self.remarks: list[str] = []

    def plan(self) -> list[PathChange]:
        """Return the submodules to remove, as changes."""
        return [PathChange(DELETE, path) for path in self._states if self._exists(path)]

    def apply(self, safety: Checkpoint) -> None:
        """Remove the submodules that the safety checkpoint holds."""
        files = safety.worktree
        held = (
            {modules.unquoted(submodule.path): submodule for submodule in files.submodules}
            if files
            else {}
        )
        for path, state in self._states.items():
            if not self._exists(path):
                continue
            try:
                if path not in held:
                    raise _NotRemovable("no checkpoint holds it")
                self._remove(path, held[path], state)
            except (CkptError, OSError) as error:
                why = error.message if isinstance(error, CkptError) else error.strerror
                self.remarks.append(f"the submodule {_text(path)} stays: {why}")

    def _exists(self, path: bytes) -> bool:
        submodule = modules.seen_from(self._store.repository, path)
        if submodule is None:
            return False
        submodule.close()
        return True

    def _remove(self, path: bytes, held: Submodule, state: Mapping[str, Any]) -> None:
        submodule = modules.seen_from(self._store.repository, path)
        if submodule is None:
            return
        mounted = mounts.reason(submodule.worktree or "")
        if mounted is not None:
            raise _NotRemovable(mounted)
        top = os.fsencode(submodule.worktree or "")
        with contextlib.closing(self._store.seen_from(submodule, "plumbing")) as inner:
            files = self._files(inner, inner.read_own(held.checkpoint))
            directories = _directories(top)
            _point_head(inner, str(state.get("head", "")), str(state.get("branch", "")))
        # `.git` files go last, inner ones first: after a kill they tell whose files are left.
        files.sort(key=lambda file: (os.path.basename(file) == b".git", -len(file)))
        for file in files:
            os.unlink(file)
        for directory in sorted(directories, key=len, reverse=True):
            os.rmdir(directory)
        missing = state.get("missing", 0)
        for _ in range(missing if isinstance(missing, int) else 0):
            os.rmdir(top)
            top = os.path.dirname(top)

    def _files(self, inner: Checkpoints, checkpoint: Checkpoint) -> list[bytes]:
        """Return a submodule's files, with nested ones, as absolute paths.

        Raises `_NotRemovable` if a file is in no checkpoint.
        """
        repository = inner.repository
        top = os.fsencode(repository.worktree or "")
        if not os.path.isfile(os.path.join(top, b".git")):
            raise _NotRemovable("its repository is in it")
        captured = checkpoint.worktree
        if captured is None or captured.degraded or captured.omitted or captured.converted:
            raise _NotRemovable("its checkpoint leaves something out")
        now = inner.capture(self._limits)
        state = inner.objects.head()[0], now.tree, now.dirty
        if state != (checkpoint.git_sha, captured.tree, captured.dirty):
            raise _NotRemovable("it has changed meanwhile")
        tree = leaves(repository, manifest.files_of(repository, checkpoint))
        held = {path for path, mode, _ in tree if mode != GITLINK} | {b".git"}
        files: list[bytes] = []
        nested: set[bytes] = set()
        for submodule in captured.submodules:
            path = modules.unquoted(submodule.path)
            nested_repository = modules.seen_from(repository, path)
            if nested_repository is None:
                raise _NotRemovable("it has changed meanwhile")
            with contextlib.closing(inner.seen_from(nested_repository, "plumbing")) as innermost:
                files += self._files(innermost, innermost.read(submodule.checkpoint))
            nested.add(os.path.join(top, path))
        for parent, directories, names in os.walk(top):
            whole = {name: os.path.join(parent, name) for name in directories}
            directories[:] = [name for name in directories if whole[name] not in nested]
            links = [name for name in directories if os.path.islink(whole[name])]
            for name in [*names, *links]:
                file = os.path.join(parent, name)
                path = os.path.relpath(file, top)
                if path not in held:
                    raise _NotRemovable(f"no checkpoint holds {_text(path)} in it")
                files.append(file)
        return files


def _directories(top: bytes) -> list[bytes]:
    below = (os.path.join(parent, name) for parent, names, _ in os.walk(top) for name in names)
    return [path for path in below if not os.path.islink(path)]


def _point_head(inner: Checkpoints, head: str, branch: str) -> None:
    # The checkpoint of the submodule keeps the commit that HEAD leaves.
    commit, current = inner.objects.head()
    repository = inner.repository
    if not head or (commit, current or "") == (head, branch) or not _has_commit(repository, head):
        return
    is_on_branch = bool(branch) and repository.tip_of(branch) == head
    target = branch if is_on_branch else head
    repository.point_head(
        BRANCHES + branch if is_on_branch else head, f"checkout: moving to {target}"
    )


def _has_commit(repository: Repository, commit: str) -> bool:
    return repository.cat_file.info(f"{commit}^{{commit}}") is not None


# Restore submodules.


# Begins advice to follow inside of a submodule.
_INSIDE = "after cd "


class _Incomplete(WorktreeError):
    """Submodules did not come back; all else did, or was in place (`is_changed`)."""

    def __init__(self, failures: Sequence[str], advice: str, *, is_changed: bool) -> None:
        then = "then, back here," if advice.startswith(_INSIDE) else "then"
        hint = f"{advice}; {then} run the command again" if advice else ""
        if is_changed:
            back = "go back: git ckpt undo"
            hint = f"{hint}, or {back}" if hint else f"to {back}"
        rest = "all else came back" if is_changed else "all else is as it was captured"
        message = f"{rest}, but not every submodule: {'; '.join(failures)}"
        super().__init__(message, hint=hint or None)
        self.advice = advice


def advice_of(error: CkptError) -> str | None:
    """Return the advice if a restore failed for submodules only, else None."""
    return error.advice if isinstance(error, _Incomplete) else None


@dataclass(frozen=True, slots=True)
class SubmoduleRestoreResult:
    """The result of the restore of one submodule, or of its dry run.

    `failures` are nested submodules that do not come back; `advice` helps with the first.
    """

    changes: Sequence[PathChange]
    remarks: Sequence[str]
    is_due: bool
    failures: Sequence[str] = ()
    advice: str = ""


# Restores a checkpoint in the submodule's own repository; the last argument asks for a dry run.
Restore = Callable[[Checkpoints, Checkpoint, bool], SubmoduleRestoreResult]


class Submodules:
    """The submodules of a checkpoint that a restore brings back.

    `moved` are paths from which renamed submodules go back to their captured ones.
    """

    def __init__(
        self, store: Checkpoints, checkpoint: Checkpoint, paths: Sequence[bytes], restore: Restore
    ) -> None:
        self._store = store
        self._repository = store.repository
        self._checkpoint = checkpoint
        self._restore = restore
        self._paths = paths
        named = checkpoint.worktree.submodules if checkpoint.worktree is not None else ()
        self._wanted = {
            path: submodule
            for submodule in named
            if is_within(path := modules.unquoted(submodule.path), paths)
        }
        self._states: dict[str, dict[str, Any]] = {}
        self.changes: list[PathChange] = []
        self.remarks: list[str] = []
        self.failures: list[str] = []
        self.advice = ""
        self.moved: set[bytes] = set()

    @property
    def state(self) -> dict[str, Any]:
        """Return what `undo` needs, for the safety checkpoint; complete after `plan`."""
        return {_KEY: self._states} if self._states else {}

    @property
    def paths(self) -> frozenset[bytes]:
        return frozenset(self._wanted)

    def plan(self) -> bool:
        """Fill `changes` with what would be done; return whether there is anything to do."""
        is_due = False
        for path, submodule in self._wanted.items():
            try:
                is_due |= self._bring_back(path, submodule, dry_run=True)
            except CkptError as error:
                raise error.but(hint=_from_outside(path, error.hint) or None) from None
        return is_due

    def apply(self) -> None:
        """Restore the submodules; note the failed ones in `failures` and go on."""
        self.changes, self.remarks, self.failures = [], [], []
        for path, submodule in self._wanted.items():
            try:
                self._bring_back(path, submodule, dry_run=False)
            except CkptError as error:
                advice = error.advice if isinstance(error, _Incomplete) else error.hint
                self._fail(path, error.message, _from_outside(path, advice))

    def require_all(self, *, is_changed: bool = True) -> None:
        """Raise an error if submodules failed."""
        if self.failures:
            raise _Incomplete(self.failures, self.advice, is_changed=is_changed)

    def _fail(self, path: bytes, reason: str, advice: str) -> None:
        if not self.failures:
            self.advice = advice
        self.failures.append(f"{_text(path)}: {reason}")

    def _bring_back(self, path: bytes, submodule: Submodule, *, dry_run: bool) -> bool:
        with self._opened(path, submodule, dry_run=dry_run) as inner:
            if inner is None:
                return any(change.path == path for change in self.changes)
            checkpoint = inner.read_own(submodule.checkpoint)
            is_moved = self._move_head(inner, path, checkpoint, dry_run=dry_run)
            done = self._restore(inner, checkpoint, dry_run)
        self.changes += [
            PathChange(change.kind, path + b"/" + change.path) for change in done.changes
        ]
        self.remarks += [f"in the submodule {_text(path)}: {remark}" for remark in done.remarks]
        if done.failures:
            self._fail(path, "; ".join(done.failures), _from_outside(path, done.advice))
        return done.is_due or is_moved

    @contextlib.contextmanager
    def _opened(
        self, path: bytes, submodule: Submodule, *, dry_run: bool
    ) -> Iterator[Checkpoints | None]:
        """Yield the checkpoints of a submodule; None if it is not checked out, or not yet."""
        repository = modules.seen_from(self._repository, path)
        is_present = repository is not None
        if repository is None:
            repository = self._check_out(path, submodule, dry_run=dry_run)
        elif not self._has_checkpoint(path, submodule, repository, dry_run=dry_run):
            repository.close()
            repository = None
        elif not dry_run:
            self._claim(path, repository)
        if repository is None:
            yield None
            return
        with contextlib.closing(self._store.seen_from(repository, "plumbing")) as inner:
            if not is_present and inner.objects.head()[0] != submodule.git_sha:
                # No checkpoint of the outer worktree keeps the commit of this HEAD.
                message = message_of(f"before it came back at {_text(path)}")
                state = {"path": _text(path)}
                inner.record(ref_names.SAFETY_COMPLETE, state, trigger=SAFETY, message=message)
            yield inner

    def _has_checkpoint(
        self, path: bytes, submodule: Submodule, repository: Repository, *, dry_run: bool
    ) -> bool:
        """Fetch the checkpoint of a submodule if it was captured in another worktree."""
        ref = ref_names.CHECKPOINTS + submodule.checkpoint
        if modules.has(repository, ref):
            return True
        kept = modules.holding(self._repository, path, ref) or modules.beside(self._repository, ref)
        if kept is None:
            self._fail_without_repository(path, submodule.checkpoint)
            return False
        with contextlib.closing(kept):
            if not modules.is_copy(self._repository, repository, submodule.git_sha):
                self._fail(path, "another repository is in its place", _move_away(path))
                return False
            if dry_run:
                self.changes.append(PathChange(CHANGE, path))
                return False
            submodules.bring_all(self._store, kept, repository)
        return True

    def _fail_without_repository(self, path: bytes, checkpoint: str, first: str = "") -> None:
        advice = first + submodules.way_to_fetch(path, checkpoint)
        self._fail(path, f"no repository of it has the checkpoint {checkpoint}", advice)

    def _claim(self, path: bytes, submodule: Repository) -> None:
        """Point a submodule's `core.worktree` here if it was checked out elsewhere since."""
        other = modules.checked_out_at(self._repository, submodule)
        is_lost = other is None and modules.is_lost(submodule)
        if is_lost or (other not in (None, path) and other not in self._wanted):
            top = os.path.join(self._repository.worktree or "", os.fsdecode(path))
            modules.claim(submodule, top)

    def _check_out(self, path: bytes, submodule: Submodule, *, dry_run: bool) -> Repository | None:
        """Check a submodule out without files, or move it back to its captured path.

        Returns None in a dry run, or if it fails.
        """
        repository = self._repository
        top = modules.place(repository, path)
        is_free = top is not None and (
            not os.path.lexists(top) or (os.path.isdir(top) and not os.listdir(top))
        )
        ref = ref_names.CHECKPOINTS + submodule.checkpoint
        kept = modules.holding(repository, path, ref) if is_free else None
        if kept is None or top is None or not self._is_submodule(path):
            self._fail_to_check_out(
                path, submodule.checkpoint, is_free=is_free, has_kept=kept is not None
            )
            return None
        with contextlib.closing(kept):
            other = modules.checked_out_at(repository, kept)
            if other is not None and not self._may_move(other):
                self._fail_to_move(path, other)
                return None
            checked_out = None
            if other is not None:
                self.moved.add(other)
                self.changes.append(PathChange(DELETE, other))
            elif dry_run:
                self._states[submodule.path] = _state_before(self._store, kept, top)
            if not dry_run and other is not None:
                checked_out = modules.move(repository, kept, other, top)
            elif not dry_run:
                checked_out = modules.attach(kept, top)
        if checked_out is None and not dry_run:
            advice = f"bring it here: {submodules.way_to_make(path)}"
            self._fail(path, f"its repository {kept.git_dir} is in use elsewhere", advice)
            return None
        self.changes.append(PathChange(ADD, path))
        return checked_out

    def _fail_to_check_out(
        self, path: bytes, checkpoint: str, *, is_free: bool, has_kept: bool
    ) -> None:
        way = submodules.way_to_make(path)
        if has_kept:
            self._fail(path, "no submodule in the files of the checkpoint", "")
        elif not is_free:
            self._fail(path, "something else is in its place", _move_away(path))
        elif other := modules.beside(self._repository, ref_names.CHECKPOINTS + checkpoint):
            other.close()
            reason = f"its repository {other.git_dir} is that of another worktree"
            self._fail(path, reason, f"bring it here: {way}")
        else:
            self._fail_without_repository(path, checkpoint, f"{way}; ")

    def _may_move(self, other: bytes) -> bool:
        """Return whether a submodule may leave a path: captured, and not wanted there."""
        is_wanted = other in self._wanted or self._is_submodule(other)
        return is_within(other, self._paths) and not is_wanted

    def _fail_to_move(self, path: bytes, other: bytes) -> None:
        advice = _move_away(other)
        if self._paths:
            both = f"{shell_word(_text(path))} {shell_word(_text(other))}"
            short = self._checkpoint.id[: ids.SHORT]
            advice = f"restore both: git ckpt restore {short} -- {both}"
        self._fail(path, f"its repository is checked out at {_text(other)}", advice)

    def _is_submodule(self, path: bytes) -> bool:
        # The document of a fetched checkpoint may name any path.
        tree = manifest.files_of(self._repository, self._checkpoint)
        return modules.is_submodule(self._repository, tree, path)

    def _move_head(
        self, inner: Checkpoints, path: bytes, checkpoint: Checkpoint, *, dry_run: bool
    ) -> bool:
        """Move HEAD to the captured commit, on the captured branch if that is still there."""
        head, commit = inner.objects.head()[0], checkpoint.git_sha
        if head == commit or not commit:
            return False
        if not _has_commit(inner.repository, commit):
            raise WorktreeError(
                f"commit {commit} of checkpoint {checkpoint.id} is missing in the submodule",
                hint=manifest.VERIFY,
            )
        branch = checkpoint.branch if _is_branch_free(inner, checkpoint) else None
        how = f"on {branch}" if branch else "detached"
        old = head[:10] or "an unborn branch"
        self.remarks.append(
            f"HEAD of the submodule {_text(path)} goes from {old} to {commit[:10]}, {how}"
        )
        if not dry_run:
            message = f"checkout: moving from {head or 'an unborn branch'} to {branch or commit}"
            inner.repository.point_head(BRANCHES + branch if branch else commit, message)
        return True


def _is_branch_free(inner: Checkpoints, checkpoint: Checkpoint) -> bool:
    """Return whether the branch is at its commit and no other worktree is on it."""
    branch = checkpoint.branch
    if branch is None or inner.repository.tip_of(branch) != checkpoint.git_sha:
        return False
    return not any(
        administration.content(os.path.join(git_dir, "HEAD")) == f"ref: {BRANCHES}{branch}"
        for git_dir, _ in administration.registered(inner.repository)
    )


def _from_outside(path: bytes, advice: str | None) -> str:
    return f"{_INSIDE}{shell_word(_text(path))}: {advice}" if advice else ""


def _move_away(path: bytes) -> str:
    return f"move it away: {shell_word(_text(path))}"


def _text(path: bytes) -> str:
    return path.decode("utf-8", "replace")
