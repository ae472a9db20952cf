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
from gitckpt.store import local_checkpoints, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
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
        note = os.path.join(made.git_dir, ref_names.SUBMODULES_FILE)
        with open(note, "w", encoding="ascii") as file:
            file.write(f"{checkpoint.id}\n")


def are_to_come(path: str) -> bool:
    git_dir = administration.named_by(path) if os.path.lexists(path) else None
    return git_dir is None or os.path.lexists(os.path.join(git_dir, ref_names.SUBMODULES_FILE))


def finish(store: Checkpoints, path: str, checkpoint: Checkpoint, limits: Limits) -> list[str]:
    """Make the missing submodules of a worktree; return a remark for each that failed."""
    made = administration.seen_from(store.repository, path)
    if made is None:
        return []
    with contextlib.closing(made):
        note = os.path.join(made.git_dir, ref_names.SUBMODULES_FILE)
        if administration.content(note).strip() != checkpoint.id:
            return []
        remarks = make(store, store.repository, made, checkpoint, limits)
        os.unlink(note)
    return remarks


def make(
    store: Checkpoints,
    around: Repository,
    made: Repository,
    checkpoint: Checkpoint,
    limits: Limits,
    *,
    above: bytes = b"",
) -> list[str]:
    """Make the submodules that a checkpoint names; return remarks on failures.

    Args:
        around: where git keeps the repositories of the submodules.
        made: seen from the worktree.
        above: the path of that worktree if it is that of a submodule.
    """
    remarks: list[str] = []
    for submodule in checkpoint.worktree.submodules if checkpoint.worktree is not None else ():
        path = modules.unquoted(submodule.path)
        try:
            if not modules.is_submodule(made, manifest.files_of(made, checkpoint), path):
                raise WorktreeError("the files have no submodule there")
            remarks += _make(store, around, made, submodule, limits, above=above)
        except CkptError as error:
            init = submodules.way_to_make(path)
            back = f"git ckpt restore {checkpoint.id[: ids.SHORT]}"
            place = f"after cd {shell_word(os.fsdecode(above))}" if above else "in this worktree"
            if isinstance(error, _Unknown):  # `init` first: a fetch needs the repository
                cure = f"{place}: {init}; {error.hint}; then {back}"
            else:
                first = f"{error.hint}; " if error.hint else ""
                cure = f"{first}then, {place}: {init} && {back}"
            name = os.fsdecode(os.path.join(above, path))
            message = f"the submodule {name} did not come back: {error.message}"
            remarks.append(f"{message}; {cure}")
    return remarks


class _Unknown(WorktreeError):
    """No repository has the checkpoint of a submodule; the hint tells how to fetch it."""


def _make(
    store: Checkpoints,
    around: Repository,
    made: Repository,
    submodule: Submodule,
    limits: Limits,
    *,
    above: bytes,
) -> list[str]:
    path, ref = modules.unquoted(submodule.path), ref_names.CHECKPOINTS + submodule.checkpoint
    top = modules.place(made, path)
    kept = modules.holding(around, path, ref) if top is not None else None
    if kept is None:
        message = f"no repository of it has the checkpoint {submodule.checkpoint}"
        if top is None:
            raise WorktreeError(message)
        raise _Unknown(message, hint=submodules.way_to_fetch(path, submodule.checkpoint))
    with contextlib.closing(kept):
        try:
            repository = modules.seen_from(made, path) or _copied(around, kept, made, submodule)
        except GitError as error:  # git does not copy a repository with missing objects
            message = f"its repository cannot be copied: {error.message}"
            hint = f"see what it lacks: git --git-dir={shell_word(kept.git_dir)} ckpt verify"
            raise WorktreeError(message, hint=hint) from None
        if repository is None:
            raise WorktreeError("something is in its place")
        with contextlib.closing(store.seen_from(repository, "plumbing")) as inner:
            captured, remarks = inner.read_own(submodule.checkpoint), list[str]()
            full_path = os.path.join(above, path)
            if not os.path.lexists(os.path.join(repository.git_dir, "index")):
                is_own = local_checkpoints.is_captured_here(kept, captured.id)
                sentences = _fill(inner, captured, limits, is_own=is_own)
                remarks = [f"the submodule {os.fsdecode(full_path)}: {text}" for text in sentences]
            return remarks + make(store, kept, repository, captured, limits, above=full_path)


def _copied(
    around: Repository, kept: Repository, made: Repository, submodule: Submodule
) -> Repository | None:
    """Return a copy of a submodule's repository; None if its path is taken."""
    path = modules.unquoted(submodule.path)
    own = [space + submodule.checkpoint for space in (ref_names.CHECKPOINTS, *ref_names.HOLDERS)]
    refs = [*(ref for ref in own if modules.has(kept, ref)), f"{ref_names.KEEP}*"]
    with contextlib.closing(modules.copied(around, kept, made, path, refs)) as copy:
        local_checkpoints.copy(kept, copy, [submodule.checkpoint])
        return modules.attach(copy, modules.place(made, path) or "")


def _record_half_made(inner: Checkpoints, captured: Checkpoint, limits: Limits) -> None:
    # The files are overwritten next: fail unless this checkpoint has each of them.
    repository = inner.repository
    worktree = repository.worktree or ""
    files = inner.capture(limits)
    tree = manifest.tree_of_files(repository, files.tree, inner.objects.head()[0])
    # All files, ignored ones included: there is no index.
    paths = repository.git.run("ls-files", "--others", "-z").out.split(b"\0")[:-1]
    is_whole = checkout.blobs_of(repository, tree).keys() >= {*paths}
    if files.degraded or files.omitted or not is_whole:
        back = f"git -C {shell_word(worktree)} ckpt restore {captured.id[: ids.SHORT]}"
        raise WorktreeError(f"it is half made: {back}")
    inner.record(
        ref_names.SAFETY_COMPLETE,
        {"path": worktree},
        worktree=files,
        trigger=SAFETY,
        message=f"before {captured.id[: ids.SHORT]} came back again",
    )


def _fill(inner: Checkpoints, captured: Checkpoint, limits: Limits, *, is_own: bool) -> list[str]:
    """Give a submodule without files the state of its checkpoint.

    The operation in progress comes back if `is_own`: the checkpoint was captured here.
    """
    repository, commit = inner.repository, captured.git_sha
    if os.listdir(repository.worktree or "") != [".git"]:  # after a kill: any files may be there
        _record_half_made(inner, captured, limits)
    if captured.branch is not None and repository.tip_of(captured.branch) == commit:
        repository.point_head(BRANCHES + captured.branch)
    elif commit:
        repository.point_head(commit)
    whole = manifest.contents_of(captured, repository, inner.objects)
    is_left_out = bool(whole.operation) and not is_own
    whole.operation = {} if is_left_out else operation.detached(repository, whole.operation)
    checkout.fill(repository, whole, commit)
    differing = comparison.compare(repository, inner.objects, whole, commit, limits)
    if differing:
        short = captured.id[: ids.SHORT]
        raise WorktreeError(
            f"what came back is not what its checkpoint {short} captured: {first_of(differing)}"
        )
    return [operation.FOREIGN] if is_left_out else []
