"""Submodules brought back by a restore, each by one of its own in its repository.

Their files come back as those of any worktree. HEAD of a submodule, other than that of the worktree around it, goes back as well: the
safety checkpoint of the worktree around it keeps the commit that it leaves.
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
from gitckpt.store.records import layout
from gitckpt.store.restore.plan import ADD, CHANGE, DELETE, PathChange, is_within
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Submodules that a restore has checked out, and that go again when it is taken back; their repositories stay where git keeps them.


KEY = "submodules"
"""In the state of a safety checkpoint: what the restore is to check out, with what is said of it by `before`."""


class _Stays(CkptError):
    """A submodule differs from its checkpoint, or has content that no checkpoint has."""


def before(store: Checkpoints, kept: Repository, top: str) -> dict[str, Any]:
    """Record a submodule's HEAD and missing parent directories before checkout.

    Args:
        store: of the worktree around it.
        kept: its repository.
        top: where it is to be.
    """
    missing = 0
    while not os.path.lexists(top):
        top, missing = os.path.dirname(top), missing + 1
    with contextlib.closing(store.seen_from(kept, "plumbing")) as inner:
        head, branch = inner.objects.head()
    return {"head": head, "branch": branch or "", "missing": missing}


class Departures:
    """The submodules that go.

    Args:
        store: of the worktree around them.
        undone: the state of the safety checkpoint whose restore is taken back; empty for a restore.
        stay: the submodules that are to be there.
        limits: of captures.

    Attributes:
        remarks: which of them stay, and why.
    """

    def __init__(self, store: Checkpoints, undone: Mapping[str, Any], stay: Iterable[bytes], limits: Limits) -> None:
        self._store = store
        self._limits = limits
        said = undone.get(KEY, {})
        known = {modules.unquoted(str(text)): was for text, was in said.items()} if isinstance(said, dict) else {}
        self._known = {path: was for path, was in known.items() if path not in set(stay) and isinstance(was, dict)}
        self.remarks: list[str] = []

    def look(self) -> list[PathChange]:
        """Returns what would be done."""
        return [PathChange(DELETE, path) for path in sorted(self._known) if self._is_there(path)]

    def take(self, safety: Checkpoint) -> None:
        """Remove the submodules, after a safety checkpoint.

        Args:
            safety: the checkpoint of what is there.
        """
        held = {modules.unquoted(one.path): one for one in safety.worktree.submodules} if safety.worktree is not None else {}
        for path, was in sorted(self._known.items()):
            if not self._is_there(path):
                continue
            try:
                if path not in held:
                    raise _Stays("no checkpoint holds it")
                self._take(path, held[path], was)
            except (CkptError, OSError) as error:
                why = error.message if isinstance(error, CkptError) else f"{error.strerror}"
                self.remarks.append(f"the submodule {path.decode('utf-8', 'replace')} stays: {why}")

    def _is_there(self, path: bytes) -> bool:
        there = modules.seen_from(self._store.repository, path)
        if there is None:
            return False
        there.close()
        return True

    def _take(self, path: bytes, one: Submodule, was: Mapping[str, Any]) -> None:
        there = modules.seen_from(self._store.repository, path)
        if there is None:
            return
        mounted = mounts.reason(there.worktree or "")
        if mounted is not None:
            raise _Stays(mounted)
        top = os.fsencode(there.worktree or "")
        with contextlib.closing(self._store.seen_from(there, "plumbing")) as inner:
            checkpoint = inner.read_own(one.checkpoint)
            files = sorted(os.path.relpath(each, top) for each in self._files(inner, checkpoint))
            directories = _directories(top)
            _point_head(inner, str(was.get("head", "")), str(was.get("branch", "")))
        ends = [name for name in files if os.path.basename(name) == b".git"]  # what says whose they are goes last
        for name in [*(name for name in files if name not in ends), *sorted(ends, key=len, reverse=True)]:
            os.unlink(os.path.join(top, name))
        for directory in sorted(directories, key=len, reverse=True):
            os.rmdir(directory)
        missing = was.get("missing", 0)
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
            raise _Stays("its repository is in it")
        found = checkpoint.worktree
        if found is None or found.degraded or found.omitted or found.converted:
            raise _Stays("its checkpoint leaves something out")
        now = inner.capture(self._limits)
        if (inner.objects.head()[0], now.tree, now.dirty) != (checkpoint.git_sha, found.tree, found.dirty):
            raise _Stays("it has changed meanwhile")
        held = {path for path, mode, _ in leaves(repository, manifest.files_of(repository, checkpoint)) if mode != GITLINK} | {b".git"}
        files: list[bytes] = []
        within: list[bytes] = []
        for one in found.submodules:
            path = modules.unquoted(one.path)
            there = modules.seen_from(repository, path)
            if there is None:
                raise _Stays("it has changed meanwhile")
            with contextlib.closing(inner.seen_from(there, "plumbing")) as nested:
                files += self._files(nested, nested.read(one.checkpoint))
            within.append(os.path.join(top, path))
        for parent, names, others in os.walk(top):
            names[:] = [name for name in names if os.path.join(parent, name) not in within]
            links = [name for name in names if os.path.islink(os.path.join(parent, name))]
            for name in [*others, *links]:
                whole = os.path.join(parent, name)
                if os.path.relpath(whole, top) not in held:
                    raise _Stays(f"no checkpoint holds {os.path.relpath(whole, top).decode('utf-8', 'replace')} in it")
                files.append(whole)
        return files


def _directories(top: bytes) -> list[bytes]:
    return [
        os.path.join(parent, name) for parent, names, _ in os.walk(top) for name in names if not os.path.islink(os.path.join(parent, name))
    ]


def _point_head(inner: Checkpoints, head: str, branch: str) -> None:
    """Point HEAD to its previous position; a checkpoint keeps the commit it leaves."""
    now: Sequence[str | None] = inner.objects.head()
    if not head or (now[0], now[1] or "") == (head, branch) or inner.repository.cat_file.info(f"{head}^{{commit}}") is None:
        return
    is_there = bool(branch) and inner.repository.tip_of(branch) == head
    inner.repository.point_head(BRANCHES + branch if is_there else head, f"checkout: moving to {branch if is_there else head}")


# Submodules brought back by a restore, each by one of its own in its repository.


_INSIDE = "after cd "
"""Begins advice that is for a submodule."""

_UNDO = "git ckpt undo"


class _Incomplete(WorktreeError):
    """Submodules did not come back; all else did, or was in place (`is_changed`)."""

    def __init__(self, failures: Sequence[str], advice: str, *, is_changed: bool) -> None:
        again = "then, back here, run the command again" if advice.startswith(_INSIDE) else "then run the command again"
        then = f"{advice}; {again}" if advice else ""
        if is_changed:
            then = f"{then}, or go back: {_UNDO}" if then else f"to go back: {_UNDO}"
        what = "all else came back" if is_changed else "all else is as it was captured"
        super().__init__(f"{what}, but not every submodule: {'; '.join(failures)}", hint=then or None)
        self.advice = advice


def advice_of(error: CkptError) -> str | None:
    """Return the advice if a restore failed for submodules only, else None."""
    return error.advice if isinstance(error, _Incomplete) else None


@dataclass(frozen=True, slots=True)
class Returned:
    """What became of one submodule, or would.

    Attributes:
        changes: path by path, relative to the top of the submodule.
        remarks: what else the person should know.
        is_due: whether there is anything to do.
        failures: submodules within it that would not come back, where it is only looked at.
        advice: what helps with the first of them; "" where nothing does.
    """

    changes: Sequence[PathChange]
    remarks: Sequence[str]
    is_due: bool
    failures: Sequence[str] = ()
    advice: str = ""


Restore = Callable[[Checkpoints, Checkpoint, bool], Returned]
"""Restores a checkpoint in its own repository, or, where the last argument says so, only tells what it would do."""


class Submodules:
    """The submodules that a checkpoint names, and that are to come back.

    Args:
        store: of the worktree around them.
        checkpoint: names them.
        paths: files and directories to which the restore is restricted; none for all.
        restore: restores in one of them.
    """

    def __init__(self, store: Checkpoints, checkpoint: Checkpoint, paths: Sequence[bytes], restore: Restore) -> None:
        self._store = store
        self._checkpoint = checkpoint
        self._restore = restore
        self._paths = paths
        named = checkpoint.worktree.submodules if checkpoint.worktree is not None else ()
        self._wanted = {path: one for one in named if is_within(path := modules.unquoted(one.path), paths)}
        self.changes: list[PathChange] = []
        self.remarks: list[str] = []
        self.failures: list[str] = []
        self.advice = ""
        self.moved: set[bytes] = set()
        """Paths from which submodules that were renamed since go back to theirs."""

        self.made: dict[str, dict[str, Any]] = {}
        """Those that are to be checked out, as `departure.KEY` knows them; after `look`."""

    @property
    def state(self) -> dict[str, Any]:
        """For the safety checkpoint: what `undo` has to know, after `look`."""
        return {KEY: self.made} if self.made else {}

    @property
    def paths(self) -> frozenset[bytes]:
        """Where they are."""
        return frozenset(self._wanted)

    def look(self) -> bool:
        """Tells whether there is anything to do, and notes what would be done.

        Raises:
            WorktreeError: something is in the way; nothing was changed.
        """
        due = False
        for path, one in self._wanted.items():
            try:
                due |= self._each(path, one, dry_run=True)
            except CkptError as error:
                raise error.but(hint=_there(path, error.hint) or None) from None
        return due

    def bring_back(self) -> None:
        """Restore the submodules; list failed ones in `failures` and go on."""
        self.changes, self.remarks, self.failures = [], [], []
        for path, one in self._wanted.items():
            try:
                self._each(path, one, dry_run=False)
            except CkptError as error:
                advice = error.advice if isinstance(error, _Incomplete) else error.hint
                self._fail(path, error.message, _there(path, advice))

    def require_all(self, *, is_changed: bool = True) -> None:
        """Raise an error if submodules failed."""
        if self.failures:
            raise _Incomplete(self.failures, self.advice, is_changed=is_changed)

    def _fail(self, path: bytes, reason: str, advice: str) -> None:
        """Notes that a submodule does not come back, and, of the first one, what helps."""
        if not self.failures:
            self.advice = advice
        self.failures.append(f"{_text(path)}: {reason}")

    def _each(self, path: bytes, one: Submodule, *, dry_run: bool) -> bool:
        with self._opened(path, one, dry_run=dry_run) as inner:
            if inner is None:
                return self._is_to_be_made(path)
            checkpoint = inner.read_own(one.checkpoint)
            moves = self._move(inner, path, checkpoint, dry_run=dry_run)
            done = self._restore(inner, checkpoint, dry_run)
        self.changes += [PathChange(change.kind, path + b"/" + change.path) for change in done.changes]
        self.remarks += [f"in the submodule {_text(path)}: {remark}" for remark in done.remarks]
        if done.failures:
            self._fail(path, "; ".join(done.failures), _there(path, done.advice))
        return done.is_due or moves

    def _fail_to_make(self, path: bytes, checkpoint: str, *, is_free: bool, is_held: bool) -> None:
        """Record why a missing submodule cannot be made."""
        twin = modules.beside(self._store.repository, layout.CHECKPOINTS + checkpoint) if is_free and not is_held else None
        if is_held:
            self._fail(path, f"no submodule in the files, and not to be made for the checkpoint {checkpoint}", "")
        elif twin is not None:
            twin.close()
            self._fail(path, f"its repository {twin.git_dir} is that of another worktree", f"bring it here: {submodules.way_to_make(path)}")
        elif is_free:
            advice = f"{submodules.way_to_make(path)}; {submodules.way_to_fetch(path, checkpoint)}"
            self._fail(path, f"no repository of it is here that has the checkpoint {checkpoint}", advice)
        else:
            self._fail(
                path, f"something else is in its place, and not the checkpoint {checkpoint}", f"move it away: {shell_word(_text(path))}"
            )

    def _is_to_be_made(self, path: bytes) -> bool:
        return any(change.path == path for change in self.changes)

    @contextlib.contextmanager
    def _opened(self, path: bytes, one: Submodule, *, dry_run: bool) -> Iterator[Checkpoints | None]:
        """Yield the checkpoints of a submodule; None if it is not checked out, or not yet."""
        repository = self._store.repository
        ref = layout.CHECKPOINTS + one.checkpoint
        there = modules.seen_from(repository, path)
        if there is not None and not modules.has(there, ref):
            kept = modules.holding(repository, path, ref) or modules.beside(repository, ref)
            if kept is not None and not modules.is_copy(repository, there, one.git_sha):
                kept.close()
                there.close()
                self._fail(path, "another repository is in its place", f"move it away: {shell_word(_text(path))}")
                yield None
                return
            if kept is None or dry_run:
                there.close()
                if kept is None:
                    self._fail(
                        path, f"no repository of it has the checkpoint {one.checkpoint}", submodules.way_to_fetch(path, one.checkpoint)
                    )
                else:
                    kept.close()
                    self.changes.append(PathChange(CHANGE, path))
                yield None
                return
            with contextlib.closing(kept):  # it was captured in another worktree
                submodules.bring_all(self._store, kept, there)
        if there is None:
            there = self._made_anew(path, one, dry_run=dry_run)
            if there is None:
                yield None
                return
            with contextlib.closing(self._store.seen_from(there, "plumbing")) as inner:
                if inner.objects.head()[0] != one.git_sha:  # no checkpoint of the worktree around it keeps where it was
                    message = message_of(f"before it came back at {_text(path)}")
                    inner.record(layout.SAFETY_COMPLETE, {"path": _text(path)}, trigger=SAFETY, message=message)
                yield inner
                return
        if not dry_run:
            self._claim(path, there)
        with contextlib.closing(self._store.seen_from(there, "plumbing")) as inner:
            yield inner

    def _claim(self, path: bytes, there: Repository) -> None:
        """Point a submodule's `core.worktree` here if it was checked out elsewhere since."""
        repository = self._store.repository
        other = modules.checked_out_at(repository, there)
        is_gone = other is None and modules.is_lost(there)
        if is_gone or (other not in (None, path) and other not in self._wanted):
            modules.claim(there, os.path.join(repository.worktree or "", os.fsdecode(path)))

    def _made_anew(self, path: bytes, one: Submodule, *, dry_run: bool) -> Repository | None:
        """Check a submodule out, without files, or move it back to where it was.

        Returns:
            Its repository; None where it is only noted what would be done, or why that fails.
        """
        repository = self._store.repository
        ref = layout.CHECKPOINTS + one.checkpoint
        top = modules.place(repository, path)
        is_free = top is not None and (not os.path.lexists(top) or (os.path.isdir(top) and not os.listdir(top)))
        kept = modules.holding(repository, path, ref) if is_free else None
        if kept is None or top is None or not self._is_submodule(path):
            self._fail_to_make(path, one.checkpoint, is_free=is_free, is_held=kept is not None)
            return None
        with contextlib.closing(kept):
            other = modules.checked_out_at(repository, kept)
            if other is not None and not self._may_move(other):
                self._fail_to_move(path, other)
                return None
            there = None
            if other is not None:
                self.moved.add(other)
                there = None if dry_run else modules.move(repository, kept, other, top)
            elif dry_run:
                self.made[one.path] = before(self._store, kept, top)
            else:
                there = modules.attach(kept, top)
        if there is None and not dry_run:
            self._fail(path, f"its repository {kept.git_dir} is in use elsewhere", f"bring it here: {submodules.way_to_make(path)}")
            return None
        self.changes.append(PathChange(ADD, path))
        if other is not None:
            self.changes.append(PathChange(DELETE, other))
        return there

    def _may_move(self, other: bytes) -> bool:
        """Return whether a submodule may leave a path: captured, and not wanted there."""
        return is_within(other, self._paths) and other not in self._wanted and not self._is_submodule(other)

    def _fail_to_move(self, path: bytes, other: bytes) -> None:
        """Note that a submodule does not come back, as it is checked out at another path."""
        short = self._checkpoint.id[: ids.SHORT]
        both = " ".join(shell_word(_text(each)) for each in (path, other))
        advice = f"restore both: git ckpt restore {short} -- {both}" if self._paths else f"move it away: {shell_word(_text(other))}"
        self._fail(path, f"its repository is checked out at {_text(other)}", advice)

    def _is_submodule(self, path: bytes) -> bool:
        """Return whether the checkpoint's files have a submodule at a path."""
        return modules.is_submodule(self._store.repository, manifest.files_of(self._store.repository, self._checkpoint), path)

    def _move(self, inner: Checkpoints, path: bytes, checkpoint: Checkpoint, *, dry_run: bool) -> bool:
        """Move HEAD to the captured commit and branch; return whether it moved."""
        head, commit = inner.objects.head()[0], checkpoint.git_sha
        if head == commit or not commit:
            return False
        if inner.repository.cat_file.info(f"{commit}^{{commit}}") is None:
            raise WorktreeError(f"commit {commit} of checkpoint {checkpoint.id} is missing in the submodule", hint=manifest.VERIFY)
        branch = BRANCHES + checkpoint.branch if checkpoint.branch is not None and _is_free(inner, checkpoint) else None
        how = f"on {checkpoint.branch}" if branch is not None else "detached"
        self.remarks.append(f"HEAD of the submodule {_text(path)} goes from {head[:10] or 'an unborn branch'} to {commit[:10]}, {how}")
        if not dry_run:
            said = f"checkout: moving from {head or 'an unborn branch'} to {checkpoint.branch if branch else commit}"
            inner.repository.point_head(branch or commit, said)
        return True


def _is_free(inner: Checkpoints, checkpoint: Checkpoint) -> bool:
    """Return whether the branch is still at its commit and in no other worktree."""
    if inner.repository.tip_of(str(checkpoint.branch)) != checkpoint.git_sha:
        return False
    ref = f"{BRANCHES}{checkpoint.branch}"
    return not any(
        administration.content(os.path.join(git_dir, "HEAD")) == f"ref: {ref}" for git_dir, _ in administration.registered(inner.repository)
    )


def _there(path: bytes, advice: str | None) -> str:
    """Return advice for a submodule as commands for outside of it."""
    return f"{_INSIDE}{shell_word(_text(path))}: {advice}" if advice else ""


def _text(path: bytes) -> str:
    return path.decode("utf-8", "replace")
