"""Resume: from a checkpoint to the worktree that goes on with it."""

from __future__ import annotations

import os

from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, modules
from gitckpt.model.arguments import require_path
from gitckpt.model.checkpoint import CLEAN, IMPORT, Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.model.names import quoted, shell_word
from gitckpt.model.values import replace
from gitckpt.store import chains
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.records import heads
from gitckpt.store.snapshot import manifest
from gitckpt.store.submodules import keeper
from gitckpt.store.worktrees import leftover, opener, ownership, submodules
from gitckpt.store.worktrees.opener import Opened, Wish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gitckpt.store.records.entry import Entry


def resume(
    store: Checkpoints, checkpoint: Checkpoint, directory: str | os.PathLike[str] | None = None, *, is_driven: bool = False
) -> Opened:
    """Returns the worktree of a checkpoint, made if it is not there.

    The newest checkpoint of a run opens the run's worktree, in which every commit and `save` extends the run; any other one of its own.
    HEAD is detached at the linked commit, or on the run's branch: one that the run was not started on, or that the file of another tool
    names, where it is free and has not moved.

    Args:
        checkpoint: what the worktree shall hold.
        directory: the worktree's path; by default where the worktree of the run is, whoever has moved it; else a directory named after run
            or checkpoint, where the settings say.
        is_driven: whether nobody looks at it before a phase works there: a submodule that does not come back is an error, once.

    Raises:
        UsageError: the directory is no path.
        WorktreeError: the directory is in the way, or the run has a worktree elsewhere; something is missing, or what came back is not what
            was captured.
    """
    if directory is not None:
        require_path("directory", directory, as_text=True)
        try:
            directory = os.path.abspath(os.fspath(directory))
        except FileNotFoundError:
            hint = "name it from the root: /…"
            raise WorktreeError(f"{directory} is nowhere, as the current directory does not exist any more", hint=hint) from None
    repository = store.repository
    checkpoint, is_elsewhere = _from_here(store, checkpoint)
    checkpoint, stand_in = manifest.with_commit(repository, checkpoint, None if is_driven else store.objects.head()[0])
    said = store.rules.read()
    newest = heads.newest(store.index, store.repository, checkpoint.run) if checkpoint.run is not None else None
    in_run = newest is not None and checkpoint.id == newest.id and _is_of_run(store, newest)
    name = checkpoint.run if in_run and checkpoint.run else checkpoint.id
    path = directory
    moved: list[str] = []
    if in_run and checkpoint.run:
        _forget_deleted(store, checkpoint.run)
        path, moved = _where_it_is(store, checkpoint.run, directory)
    if path is None:  # only then, as there may be no such place
        path = os.path.join(opener.default_root(repository, said.worktree_dir), name)
    branch, remark = _branch(store, checkpoint) if in_run else (None, None)
    if said.limits.submodules and submodules.are_to_come(path):
        checkpoint = _with_submodules(store, checkpoint)

    def rescue(there: Repository) -> None:
        leftover.record_leftover(store, there.git_dir, path)

    wish = Wish(checkpoint, path, in_run=in_run, branch=branch, limits=said.limits, rescue=rescue, is_of_other_commit=stand_in is not None)
    opened = opener.open_worktree(repository, store.objects, wish)
    lacking = submodules.finish(store, opened.path, checkpoint, said.limits)
    if is_driven and lacking:
        there = f"do that in {shell_word(opened.path)}"
        raise WorktreeError("; ".join(lacking), hint=f"{there}; then, or to go on without: git ckpt resume {checkpoint.run}")
    remarks = [
        *moved,
        *opened.remarks,
        *([remark] if remark and opened.made else []),
        *([said for said in (is_elsewhere, stand_in) if said and opened.made]),
        *lacking,
    ]
    return replace(opened, remarks=tuple(remarks), behind=_behind(repository, opened.path, checkpoint) if in_run else None)


def _is_of_run(store: Checkpoints, newest: Entry) -> bool:
    """Tells whether the newest checkpoint of a run opens the run's worktree, and not one of its own.

    What others wrote is only looked at until somebody adopts it; by then, what was fetched may have gone on from there.
    """
    run = str(newest.run)
    ours = chains.knows(store.repository, run, newest.oid) or newest.trigger.startswith(IMPORT)
    return ours or run in ownership.of_runs(store.repository)  # the file of the chain may be lost


def _behind(repository: Repository, path: str, checkpoint: Checkpoint) -> str | None:
    """Returns the checkpoint at which a run's worktree stands; None where it is where its run is."""
    there = administration.seen_from(repository, path)
    stands_at = ownership.behind(there) if there is not None else None
    return stands_at[0] if stands_at is not None and stands_at[0] != checkpoint.id else None


def _from_here(store: Checkpoints, checkpoint: Checkpoint) -> tuple[Checkpoint, str | None]:
    """Returns a checkpoint as it can be opened, and what the person should know of that.

    One that was made of another tool's file, and whose commit is not here, begins with what is checked out: without it, its worktree
    would be empty.
    """
    head = store.objects.head()[0]
    if checkpoint.imported is None or checkpoint.git_sha or not head:
        return checkpoint, None
    remark = f"no commit that {checkpoint.imported.path} names is here: the worktree begins with {head[:10]}, which is checked out"
    return replace(checkpoint, git_sha=head, worktree=None), remark


def _with_submodules(store: Checkpoints, checkpoint: Checkpoint) -> Checkpoint:
    """Returns a checkpoint with those submodules, too, that a hook has not waited for: as its files name them, without changes."""
    files = checkpoint.worktree or CLEAN
    if files.degraded or not modules.are_there(store.repository):
        return checkpoint
    found = manifest.contents_of(checkpoint, store.repository, store.objects)
    away = map(quoted, found.away)  # a sparse checkout may leave out a submodule, too
    more = keeper.of_tree(store, found.files, {*(one.path for one in files.submodules), *away})
    return replace(checkpoint, worktree=replace(files, submodules=(*files.submodules, *more))) if more else checkpoint


def _where_it_is(store: Checkpoints, run: str, directory: str | None) -> tuple[str | None, list[str]]:
    """Returns where the worktree of a run is, which has one: another one would begin with what is recorded, and each go its own way.

    What somebody should know of that comes with it.

    Args:
        directory: where somebody wants it; None for anywhere, and then returned where there is none.

    Raises:
        WorktreeError: it is elsewhere.
    """
    remarks: list[str] = []
    there = ownership.of_run(store.repository, run, directory or os.path.join(known_root(store.repository) or "", run))
    if there is None:
        there, remarks = _moved(store, run)
    if directory is None:
        return there, remarks
    if there is not None and os.path.realpath(there) != os.path.realpath(directory):
        hint = "leave the directory out to go on there"
        if not os.path.lexists(directory) and not modules.are_there(store.repository):  # git moves none that has submodules
            hint += f"; or move it: git worktree move -f -f {shell_word(there)} {shell_word(directory)}"
        raise WorktreeError(f"run {run} has its worktree already, at {there}", hint=hint)
    return directory, remarks


def _moved(store: Checkpoints, run: str) -> tuple[str | None, list[str]]:
    """Returns where the worktree of a run is that somebody has moved without telling git, or whose repository he has; git is told.

    Only as far as that can be found. What somebody should know of it comes with it.
    """
    for git_dir, path in administration.registered(store.repository):
        owner = ownership.owner_in(git_dir)
        if owner is None or owner.run != run:
            continue
        moved = None if os.path.lexists(path) else administration.moved_to(store.repository, git_dir, path)
        remarks = [f"it was moved there from {path}"] if moved is not None else []
        moved = moved or administration.left_by(store.repository, git_dir, path)
        if moved is not None:
            administration.repair(store.repository, moved)
            return moved, remarks
    return None, []


def _forget_deleted(store: Checkpoints, run: str) -> None:
    """Lets git forget the worktrees of a run whose directories were deleted by hand; what was staged there is recorded before.

    Until then they seem to have the run's branch, wherever its worktree is made anew.
    """
    for git_dir, path in administration.registered(store.repository):
        owner = ownership.owner_in(git_dir)
        if owner is None or owner.run != run or not ownership.is_gone(store.repository, git_dir, path):
            continue
        if not modules.has_own(git_dir):  # with those, a person has to look
            leftover.record_leftover(store, git_dir, path)
            administration.forget(store.repository, git_dir)


def _branch(store: Checkpoints, checkpoint: Checkpoint) -> tuple[str | None, str | None]:
    """Returns the branch that a run's worktree shall be on; and, where there is one but it cannot, why not."""
    if checkpoint.branch is None or not checkpoint.git_sha:
        return None, None
    first = heads.chain(store.index, store.repository, str(checkpoint.run))[-1]
    if first.branch == checkpoint.branch and not first.trigger.startswith(IMPORT):  # of an imported run it is its own branch
        return None, None
    ref = BRANCHES + checkpoint.branch
    found = store.repository.cat_file.info(ref)
    if found is None or found[0] != checkpoint.git_sha:
        return None, f"HEAD is detached: the branch {checkpoint.branch} is {'gone' if found is None else 'elsewhere by now'}"
    if not opener.is_free(store.repository, ref):
        where = " and ".join(opener.worktrees_on(store.repository, ref)) or "another worktree"
        behind = "stays behind there when the run commits or pushes"
        return None, f"HEAD is detached: the branch {checkpoint.branch} is checked out in {where}, and {behind}"
    return checkpoint.branch, None


def places(repository: Repository, runs: Collection[str]) -> dict[str, str]:
    """Return where the worktrees of runs are that were moved without telling git, or that git has forgotten.

    Args:
        repository: seen from any of its worktrees.
        runs: those of which git knows no worktree.
    """
    found: dict[str, str] = {}
    root = known_root(repository) or ""
    for git_dir, path in administration.registered(repository):
        owner = ownership.owner_in(git_dir)
        if owner is not None and owner.run is not None and owner.run in runs:
            moved = administration.left_by(repository, git_dir, path) or administration.moved_to(repository, git_dir, path, root)
            if moved is not None:
                found[owner.run] = moved
    for run in runs:
        path = os.path.join(root, run)
        named = administration.named_by(path) if run not in found else None
        if named is not None and administration.is_ours(repository, named) and not os.path.isdir(named):
            found[run] = path
    return found


def known_root(repository: Repository) -> str | None:
    """Returns where worktrees are made, for those that look and change nothing.

    Args:
        repository: seen from any of its worktrees.

    Returns:
        The directory; None where there is no such place.
    """
    try:
        return opener.default_root(repository, settings.read(repository).worktree_dir)
    except WorktreeError:
        return None
