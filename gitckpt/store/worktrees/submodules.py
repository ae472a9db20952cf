"""Make the submodules of a worktree: copy repositories, restore checkpoints.

A copy, and no linked worktree of the submodule: `git submodule update` there writes
`core.worktree` into the configuration that all worktrees share, and breaks the main one.
"""

from __future__ import annotations

import contextlib
import os

from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES
from gitckpt.git.worktree import administration, modules, operation
from gitckpt.model import ids
from gitckpt.model.arguments import first_of, shell_word
from gitckpt.model.checkpoint import SAFETY
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.store import roster, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.worktrees import checkout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint, Submodule
    from gitckpt.store.snapshot.limits import Limits


def begin(made: Repository, checkpoint: Checkpoint) -> None:
    """Note that submodules are missing, so that `finish` resumes after a kill."""
    if checkpoint.worktree is not None and checkpoint.worktree.submodules:
        with open(os.path.join(made.git_dir, layout.SUBMODULES_FILE), "w", encoding="ascii") as file:
            file.write(f"{checkpoint.id}\n")


def are_to_come(path: str) -> bool:
    git_dir = administration.named_by(path) if os.path.lexists(path) else None
    return git_dir is None or os.path.lexists(os.path.join(git_dir, layout.SUBMODULES_FILE))


def finish(store: Checkpoints, path: str, checkpoint: Checkpoint, limits: Limits) -> list[str]:
    """Make the missing submodules of a worktree; return a remark for each that failed."""
    made = administration.seen_from(store.repository, path)
    if made is None:
        return []
    with contextlib.closing(made):
        note = os.path.join(made.git_dir, layout.SUBMODULES_FILE)
        if administration.content(note).strip() != checkpoint.id:
            return []
        remarks = make(store, store.repository, made, checkpoint, limits)
        os.unlink(note)
    return remarks


def make(
    store: Checkpoints, around: Repository, made: Repository, checkpoint: Checkpoint, limits: Limits, *, above: bytes = b""
) -> list[str]:
    """Make the submodules that a checkpoint names, nested ones included.

    Args:
        store: of any repository: its clock and its ids are used.
        around: where git keeps the repositories of the submodules.
        made: seen from the worktree.
        above: the path of that worktree if it is that of a submodule.

    Returns:
        A remark for each that did not come back.
    """
    remarks: list[str] = []
    for one in checkpoint.worktree.submodules if checkpoint.worktree is not None else ():
        path = modules.unquoted(one.path)
        try:
            if not modules.is_submodule(made, manifest.files_of(made, checkpoint), path):
                raise WorktreeError("the files have no submodule there")
            remarks += _make(store, around, made, one, limits, above=above)
        except CkptError as error:
            init, back = submodules.way_to_make(path), f"git ckpt restore {checkpoint.id[: ids.SHORT]}"
            here = f"after cd {shell_word(os.fsdecode(above))}" if above else "in this worktree"
            if isinstance(error, _Unknown):  # `init` first: a fetch needs the repository
                cure = f"{here}: {init}; {error.hint}; then {back}"
            else:
                cure = (f"{error.hint}; " if error.hint else "") + f"then, {here}: {init} && {back}"
            remarks.append(f"the submodule {os.fsdecode(os.path.join(above, path))} did not come back: {error.message}; {cure}")
    return remarks


class _Unknown(WorktreeError):
    """No repository has the checkpoint of a submodule; the hint tells how to fetch it."""


def _make(store: Checkpoints, around: Repository, made: Repository, one: Submodule, limits: Limits, *, above: bytes) -> list[str]:
    path, ref = modules.unquoted(one.path), layout.CHECKPOINTS + one.checkpoint
    top = modules.place(made, path)
    kept = modules.holding(around, path, ref) if top is not None else None
    if kept is None or top is None:
        reason = f"no repository of it is here that has the checkpoint {one.checkpoint}"
        raise WorktreeError(reason) if top is None else _Unknown(reason, hint=submodules.way_to_fetch(path, one.checkpoint))
    with contextlib.closing(kept):
        try:
            there = modules.seen_from(made, path) or _copied(around, kept, made, one)
        except GitError as error:  # git does not copy a repository with missing objects
            hint = f"see what it lacks: git --git-dir={shell_word(kept.git_dir)} ckpt verify"
            raise WorktreeError(f"its repository cannot be copied: {error.message}", hint=hint) from None
        if there is None:
            raise WorktreeError("something is in its place")
        with contextlib.closing(store.seen_from(there, "plumbing")) as inner:
            captured, remarks = inner.read_own(one.checkpoint), list[str]()
            if not os.path.lexists(os.path.join(there.git_dir, "index")):
                said = _fill(inner, captured, limits, is_own=roster.is_captured_here(kept, captured.id))
                remarks = [f"the submodule {os.fsdecode(os.path.join(above, path))}: {sentence}" for sentence in said]
            return [*remarks, *make(store, kept, there, captured, limits, above=os.path.join(above, path))]


def _copied(around: Repository, kept: Repository, made: Repository, one: Submodule) -> Repository | None:
    """Return a copy of a submodule's repository; None if its path is taken."""
    path = modules.unquoted(one.path)
    own = [space + one.checkpoint for space in (layout.CHECKPOINTS, *layout.HOLDERS)]
    refs = [*(each for each in own if modules.has(kept, each)), f"{layout.KEEP}*"]
    with contextlib.closing(modules.copied(around, kept, made, path, refs)) as copy:
        roster.copy(kept, copy, [one.checkpoint])
        return modules.attach(copy, modules.place(made, path) or "")


def _record_half_made(inner: Checkpoints, captured: Checkpoint, limits: Limits) -> None:
    # The files are overwritten next: fail unless this checkpoint has each of them.
    there = inner.repository
    top = os.fsencode(there.worktree or "")
    found = inner.capture(limits)
    held = {b".git"}
    if not (found.degraded or found.omitted):
        files = manifest.tree_of_files(there, found.tree, inner.objects.head()[0])
        held.update(checkout.blobs_of(there, files))
    names = (os.path.relpath(os.path.join(parent, name), top) for parent, _, leaves in os.walk(top) for name in leaves)
    if not held.issuperset(names):
        way = f"git -C {shell_word(there.worktree or '')} ckpt restore {captured.id[: ids.SHORT]}"
        raise WorktreeError(f"it is half made: {way}")
    message = f"before {captured.id[: ids.SHORT]} came back again"
    inner.record(layout.SAFETY_COMPLETE, {"path": there.worktree or ""}, worktree=found, trigger=SAFETY, message=message)


def _fill(inner: Checkpoints, captured: Checkpoint, limits: Limits, *, is_own: bool) -> list[str]:
    """Give a submodule without files the state of its checkpoint.

    The operation in progress comes back if `is_own`: the checkpoint was captured here.
    """
    there, commit = inner.repository, captured.git_sha
    if os.listdir(there.worktree or "") != [".git"]:  # after a kill: any files may be there
        _record_half_made(inner, captured, limits)
    if captured.branch is not None and there.tip_of(captured.branch) == commit:
        there.point_head(BRANCHES + captured.branch)
    elif commit:
        there.point_head(commit)
    whole = manifest.contents_of(captured, there, inner.objects)
    is_left_out = bool(whole.operation) and not is_own
    whole.operation = {} if is_left_out else operation.detached(there, whole.operation)
    checkout.fill(there, whole, commit)
    differing = comparison.compare(there, inner.objects, whole, commit, limits)
    if differing:
        short = captured.id[: ids.SHORT]
        raise WorktreeError(f"what came back is not what its checkpoint {short} captured: {first_of(differing)}")
    return [operation.FOREIGN] if is_left_out else []
