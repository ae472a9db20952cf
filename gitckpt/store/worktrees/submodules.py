"""Make the submodules of a worktree: copy repositories, restore checkpoints.

A copy, and no linked worktree of the submodule: `git submodule update` there writes
`core.worktree` into the configuration that all worktrees share, and breaks the main one.
"""

from __future__ import annotations

import contextlib
import os

from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, modules, operation
from gitckpt.model import ids
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import SAFETY, Checkpoint, Submodule
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.store import local_checkpoints, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.limits import Limits
from gitckpt.store.worktrees import opener


def are_missing(path: str) -> bool:
    git_dir = administration.git_dir_of(path) if os.path.lexists(path) else None
    return git_dir is None or os.path.lexists(os.path.join(git_dir, ref_names.SUBMODULES_FILE))


def finish(store: Checkpoints, path: str, checkpoint: Checkpoint, limits: Limits) -> list[str]:
    """Make the missing submodules of a worktree; return a remark for each that failed."""
    if (worktree := administration.seen_from(store.repository, path)) is None:
        return []
    with contextlib.closing(worktree):
        note = os.path.join(worktree.git_dir, ref_names.SUBMODULES_FILE)
        if administration.read_line(note).strip() != checkpoint.id:
            return []
        remarks = _make_all(store, store.repository, worktree, checkpoint, limits)
        os.unlink(note)
    return remarks


def _make_all(
    store: Checkpoints,
    around: Repository,
    worktree: Repository,
    checkpoint: Checkpoint,
    limits: Limits,
    *,
    above: bytes = b"",
) -> list[str]:
    """Make the submodules that a checkpoint names; return remarks on failures.

    Their repositories are in `around`. `above` is the path of the worktree if it is a submodule.
    """
    remarks: list[str] = []
    for submodule in checkpoint.worktree.submodules if checkpoint.worktree is not None else ():
        path = modules.unquote(submodule.path)
        name = os.path.join(above, path)
        try:
            if not modules.is_submodule(worktree, manifest.files_of(worktree, checkpoint), path):
                raise WorktreeError("the files have no submodule there")
            with contextlib.closing(_find_source(around, worktree, submodule)) as source:
                repository = _open(around, source, worktree, submodule)
                with store.seen_from(repository, "plumbing") as inner:
                    captured = inner.read_own(submodule.checkpoint)
                    sentences: list[str] = []
                    if not os.path.lexists(os.path.join(repository.git_dir, "index")):
                        is_own = local_checkpoints.is_captured_here(source, captured.id)
                        sentences = _fill(inner, captured, limits, is_own=is_own)
                    nested = _make_all(store, source, repository, captured, limits, above=name)
                    title = f"the submodule {os.fsdecode(name)}"
                    remarks += [f"{title}: {text}" for text in sentences] + nested
        except CkptError as error:
            init = submodules.init_command(path)
            restore = f"git ckpt restore {checkpoint.id[: ids.SHORT]}"
            place = f"after cd {shell_word(os.fsdecode(above))}" if above else "in this worktree"
            if isinstance(error, _CheckpointMissing):  # `init` first: a fetch needs the repository
                cure = f"{place}: {init}; {error.hint}; then {restore}"
            else:
                first = f"{error.hint}; " if error.hint else ""
                cure = f"{first}then, {place}: {init} && {restore}"
            message = f"the submodule {os.fsdecode(name)} did not come back: {error.message}"
            remarks.append(f"{message}; {cure}")
    return remarks


class _CheckpointMissing(WorktreeError):
    """No repository has the checkpoint of a submodule; the hint tells how to fetch it."""


def _find_source(around: Repository, worktree: Repository, submodule: Submodule) -> Repository:
    path, ref = modules.unquote(submodule.path), ref_names.CHECKPOINTS + submodule.checkpoint
    message = f"no repository of it has the checkpoint {submodule.checkpoint}"
    if modules.checkout_path(worktree, path) is None:
        raise WorktreeError(message)
    source = modules.find_with_ref(around, path, ref)
    if source is None:
        raise _CheckpointMissing(message, hint=submodules.fetch_hint(path, submodule.checkpoint))
    return source


def _open(
    around: Repository, source: Repository, worktree: Repository, submodule: Submodule
) -> Repository:
    """Return a submodule's repository; copy it if it is missing."""
    path = modules.unquote(submodule.path)
    repository = modules.seen_from(worktree, path)
    if repository is not None:
        return repository
    spaces = (ref_names.CHECKPOINTS, *ref_names.HOLDERS)
    own_refs = (space + submodule.checkpoint for space in spaces)
    refs = [*(ref for ref in own_refs if modules.has_ref(source, ref)), f"{ref_names.KEEP}*"]
    try:
        with contextlib.closing(modules.clone(around, source, worktree, path, refs)) as copy:
            local_checkpoints.copy(source, copy, [submodule.checkpoint])
            repository = modules.attach(copy, modules.checkout_path(worktree, path) or "")
    except GitError as error:  # git does not copy a repository with missing objects
        message = f"its repository cannot be copied: {error.message}"
        hint = f"see what it lacks: git --git-dir={shell_word(source.git_dir)} ckpt verify"
        raise WorktreeError(message, hint=hint) from None
    if repository is None:
        raise WorktreeError("something is in its place")
    return repository


def _record_half_made(inner: Checkpoints, captured: Checkpoint, limits: Limits) -> None:
    # The files are overwritten next: fail unless this checkpoint has each of them.
    repository = inner.repository
    worktree = repository.worktree or ""
    files = inner.capture(limits)
    tree = manifest.tree_of_files(repository, files.tree, inner.objects.head()[0])
    # All files, ignored ones included: there is no index.
    paths = repository.git.run("ls-files", "--others", "-z").out.split(b"\0")[:-1]
    is_whole = opener.blobs_of(repository, tree).keys() >= {*paths}
    if files.degraded or files.omitted or not is_whole:
        back = f"git -C {shell_word(worktree)} ckpt restore {captured.id[: ids.SHORT]}"
        raise WorktreeError(f"it is half made: {back}")
    message, state = f"before {captured.id[: ids.SHORT]} came back again", {"path": worktree}
    inner.record(ref_names.SAFETY_COMPLETE, state, worktree=files, trigger=SAFETY, message=message)


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
    contents = manifest.contents_of(captured, repository, inner.objects)
    is_left_out = bool(contents.operation) and not is_own
    contents.operation = {} if is_left_out else operation.detach(repository, contents.operation)
    opener.fill(repository, contents, captured, limits)
    return [operation.FOREIGN] if is_left_out else []
