"""Make the submodules of a worktree: copy repositories, restore checkpoints.

A linked worktree of the submodule would not do: `git submodule update` in it writes
`core.worktree` into the configuration that all worktrees share, and breaks the main worktree.
"""

from __future__ import annotations

import contextlib
import os

from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, modules, operation
from gitckpt.model import ids
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.checkpoint import SAFETY, Checkpoint, Submodule
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.store import local_checkpoints, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.limits import Limits
from gitckpt.store.worktrees import opener


def lacks_submodules(path: str) -> bool:
    git_dir = administration.git_dir_of(path) if os.path.lexists(path) else None
    return git_dir is None or os.path.lexists(os.path.join(git_dir, ref_names.SUBMODULES_FILE))


def make_missing_submodules(
    store: Checkpoints, path: str, checkpoint: Checkpoint, limits: Limits
) -> list[str]:
    """Make the missing submodules of a worktree; return a remark on each failure."""
    if (worktree := administration.open_linked_worktree(store.repository, path)) is None:
        return []
    with contextlib.closing(worktree):
        marker = os.path.join(worktree.git_dir, ref_names.SUBMODULES_FILE)
        if administration.read_line(marker).strip() != checkpoint.id:
            return []
        remarks = _make_submodules(store, store.repository, worktree, checkpoint, limits)
        os.unlink(marker)
    return remarks


def _make_submodules(
    store: Checkpoints,
    superproject: Repository,
    worktree: Repository,
    checkpoint: Checkpoint,
    limits: Limits,
    *,
    above: bytes = b"",
) -> list[str]:
    """Make the submodules of a checkpoint in `worktree`; return remarks on failures.

    `superproject` has the repositories to copy. `above` is the path of `worktree` in the outermost
    worktree if `worktree` is a submodule itself, else empty.
    """
    remarks: list[str] = []
    for submodule in checkpoint.worktree.submodules if checkpoint.worktree is not None else ():
        path = modules.unquote_path(submodule.path)
        name = os.path.join(above, path)
        try:
            if not modules.is_submodule(worktree, manifest.files_tree(worktree, checkpoint), path):
                raise WorktreeError("the files of the checkpoint have no submodule at this path")
            with contextlib.closing(_find_repository(superproject, worktree, submodule)) as source:
                repository = _open_or_copy_submodule(superproject, source, worktree, submodule)
                with store.open_store_for(repository, "plumbing") as submodule_store:
                    target = submodule_store.read_own(submodule.checkpoint)
                    sentences: list[str] = []
                    if not os.path.lexists(os.path.join(repository.git_dir, "index")):
                        is_own = local_checkpoints.is_captured_here(source, target.id)
                        sentences = _fill_submodule(submodule_store, target, limits, is_own=is_own)
                    nested = _make_submodules(store, source, repository, target, limits, above=name)
                    title = f"the submodule {os.fsdecode(name)}"
                    remarks += [f"{title}: {text}" for text in sentences] + nested
        except CkptError as error:
            init_command = submodules.submodule_init_command(path)
            restore_command = f"git ckpt restore {checkpoint.id[: ids.SHORT]}"
            place = f"after cd {shell_quoted(os.fsdecode(above))}" if above else "in this worktree"
            if isinstance(error, _CheckpointMissing):  # `init` makes the repository to fetch into
                cure = f"{place}: {init_command}; {error.hint}; then {restore_command}"
            else:
                first_step = f"{error.hint}; " if error.hint else ""
                cure = f"{first_step}then, {place}: {init_command} && {restore_command}"
            message = f"the submodule {os.fsdecode(name)} was not restored: {error.message}"
            remarks.append(f"{message}; {cure}")
    return remarks


class _CheckpointMissing(WorktreeError):
    """No repository has the checkpoint of a submodule; the hint tells how to fetch it."""


def _find_repository(
    superproject: Repository, worktree: Repository, submodule: Submodule
) -> Repository:
    path, ref = modules.unquote_path(submodule.path), ref_names.CHECKPOINTS + submodule.checkpoint
    message = f"no repository of the submodule has the checkpoint {submodule.checkpoint}"
    if modules.checkout_path(worktree, path) is None:
        raise WorktreeError(message)
    source = modules.find_submodule_with_ref(superproject, path, ref)
    if source is None:
        raise _CheckpointMissing(message, hint=submodules.fetch_hint(path, submodule.checkpoint))
    return source


def _open_or_copy_submodule(
    superproject: Repository, source: Repository, worktree: Repository, submodule: Submodule
) -> Repository:
    path = modules.unquote_path(submodule.path)
    repository = modules.open_submodule(worktree, path)
    if repository is not None:
        return repository
    ref_prefixes = (ref_names.CHECKPOINTS, *ref_names.OBJECTS)
    own_refs = (prefix + submodule.checkpoint for prefix in ref_prefixes)
    refs = [*(ref for ref in own_refs if modules.has_ref(source, ref)), f"{ref_names.KEEP}*"]
    try:
        copy = modules.clone_submodule(superproject, source, worktree, path, refs)
        with contextlib.closing(copy):
            local_checkpoints.copy_lines(source, copy, [submodule.checkpoint])
            repository = modules.attach_worktree(copy, modules.checkout_path(worktree, path) or "")
    except GitError as error:  # git does not copy a repository with missing objects
        message = f"git cannot copy its repository: {error.message}"
        hint = f"list the missing objects: git --git-dir={shell_quoted(source.git_dir)} ckpt verify"
        raise WorktreeError(message, hint=hint) from None
    if repository is None:
        raise WorktreeError("other files are at its path")
    return repository


def _record_partial_files(store: Checkpoints, captured: Checkpoint, limits: Limits) -> None:
    # gitckpt overwrites the files next: fail unless the safety checkpoint has all of them.
    repository = store.repository
    worktree = repository.worktree or ""
    files = store.capture_worktree(limits)
    tree = manifest.tree_of_files(repository, files.tree, store.objects.read_head()[0])
    # All files, ignored ones included: there is no index.
    paths = repository.git.run("ls-files", "--others", "-z").out.split(b"\0")[:-1]
    has_all_files = opener.blobs_of(repository, tree).keys() >= {*paths}
    if files.degraded or files.omitted or not has_all_files:
        restore_command = f"git -C {shell_quoted(worktree)} ckpt restore {captured.id[: ids.SHORT]}"
        raise WorktreeError(f"its files are incomplete; to restore them: {restore_command}")
    message, state = f"before the restore of {captured.id[: ids.SHORT]}", {"path": worktree}
    store.record(ref_names.SAFETY_COMPLETE, state, worktree=files, trigger=SAFETY, message=message)


def _fill_submodule(
    store: Checkpoints, captured: Checkpoint, limits: Limits, *, is_own: bool
) -> list[str]:
    """Restore a checkpoint in a new submodule, opened as `store`; return remarks."""
    repository, commit = store.repository, captured.git_sha
    if os.listdir(repository.worktree or "") != [".git"]:  # left by a killed process
        _record_partial_files(store, captured, limits)
    if captured.branch is not None and repository.read_branch_tip(captured.branch) == commit:
        repository.set_head(BRANCHES + captured.branch)
    elif commit:
        repository.set_head(commit)
    contents = manifest.contents_of(captured, repository, store.objects)
    drops_operation = bool(contents.operation) and not is_own
    contents.operation = (
        {} if drops_operation else operation.detach_operation(repository, contents.operation)
    )
    opener.fill_worktree(repository, contents, captured, limits)
    return [operation.FOREIGN] if drops_operation else []
