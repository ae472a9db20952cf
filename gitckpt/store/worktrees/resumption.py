"""Open the worktree in which the work of a checkpoint or run continues."""

from __future__ import annotations

import contextlib
import functools
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from gitckpt.git.files import mounts, private_dirs
from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, OF_A_WORKTREE, Repository
from gitckpt.git.worktree import administration, modules, operation
from gitckpt.git.worktree import index as intent
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import quote_path, require_path, shell_quoted
from gitckpt.model.checkpoint import CLEAN, IMPORT, RESCUE, Checkpoint, Worktree
from gitckpt.model.document import shorten_message
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import replace
from gitckpt.store import local_checkpoints
from gitckpt.store import submodules as captured_submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.records import heads, ref_names
from gitckpt.store.records.entry import CheckpointInfo
from gitckpt.store.records.ref_names import WorktreeOwner
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.manifest import Snapshot
from gitckpt.store.worktrees import opener, ownership, plan, submodules
from gitckpt.store.worktrees.opener import OpenResult, WorktreeOpener
from gitckpt.store.worktrees.plan import PathState, ResumeFacts, RunBranch, WorktreeEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import ObjectDatabase


def record_deleted_worktree(store: Checkpoints, git_dir: str, path: str) -> None:
    """Save index and HEAD of a deleted worktree if no ref or checkpoint has them."""
    worktree = Repository(git_dir, None, store.repository.object_format)
    with store.open_store_for(worktree, "plumbing") as worktree_store:
        commit = worktree_store.objects.read_head()[0]
        files = _capture_index(worktree, worktree_store.objects, commit)
        if files.dirty or (commit and not _is_reached(worktree, store.index.list_commits() or ())):
            message = shorten_message(f"the index of the deleted worktree {path}")
            label = ref_names.SAFETY_COMPLETE
            worktree_store.record(label, worktree=files, trigger=RESCUE, message=message)


def may_forget_worktree(worktree: Repository, linked: Iterable[str]) -> bool:
    """Return whether git may forget a deleted worktree without any loss.

    An operation in progress, staged changes, refs of the worktree or submodules would be lost, as
    would commits that neither branches, tags nor `linked` (commits of checkpoints) reach.
    """
    if worktree.operation_in_progress() is not None or modules.has_modules_dir(worktree.git_dir):
        return False
    git = worktree.git
    arguments = ("diff-index", "--cached", "--quiet", "--ita-visible-in-index", "HEAD", "--")
    ref_prefixes = [prefix.rstrip("/") for prefix in OF_A_WORKTREE]
    try:
        if git.run(*arguments, ok=(0, 1, 128)).code != 0:
            return False
        if git.run("for-each-ref", "--count=1", *ref_prefixes).out:
            return False
        # Without reflogs (`core.logAllRefUpdates`), only ORIG_HEAD tells where HEAD was.
        original_head = git.run("rev-parse", "--verify", "--quiet", "ORIG_HEAD", ok=(0, 1)).out
        commits = git.run_for_text("log", "--walk-reflogs", "--format=%H", "HEAD").split()
        return _is_reached(worktree, linked, [*commits, *original_head.decode("ascii").split()])
    except GitError:  # unreadable: maybe a loss
        return False


def _is_reached(repository: Repository, linked: Iterable[str], commits: Iterable[str] = ()) -> bool:
    """Return whether branches, tags or `linked` commits reach HEAD and `commits`."""
    # Refs below `refs/keep` do not count: gitckpt may delete them within the hour.
    lines = [*(f"{commit}\n" for commit in commits), *(f"^{commit}\n" for commit in linked)]
    options = ("--max-count=1", "--ignore-missing", "--stdin")
    arguments = ("rev-list", *options, "HEAD", "--not", "--branches", "--tags", "--remotes")
    return repository.git.run(*arguments, data="".join(lines).encode("ascii")).out == b""


def _capture_index(repository: Repository, objects: ObjectDatabase, commit: str) -> Worktree:
    base = manifest.base_tree(repository, commit)
    operation_name = repository.operation_in_progress()
    empty_oid = intent.intent_to_add_oid(repository.object_format).decode("ascii")
    with PrivateIndex(repository) as index:
        by_stage: dict[int, list[bytes]] = defaultdict(list)
        entries = index.list_entries()
        empty_paths = [path for path, _, oid, stage, _ in entries if (oid, stage) == (empty_oid, 0)]
        flags = manifest.intent_flags(intent.find_intent_to_add_entries(index, empty_paths))
        intent_paths = set(flags.get(manifest.INTENT, ()))
        for path, mode, oid, stage, _ in entries:
            if path not in intent_paths:
                by_stage[stage].append(b"%s %s 0\t%s" % (mode, oid.encode("ascii"), path))
        trees = {}
        for stage_number, lines in sorted(by_stage.items()):
            index.git("read-tree", "--empty")
            index.put_entries(lines)
            trees[stage_number] = index.write_tree()
        # "Ours" wins.
        index.put_entries(line for stage in (1, 3, 2) for line in by_stage.get(stage, ()))
        index.put_entries(by_stage.get(0, ()))
        files = index.write_tree()
    if (not trees or trees == {0: base}) and not flags and not operation_name:
        return Worktree(dirty=False)
    state = operation.collect_operation_files(repository) if operation_name else {}
    keep_commit = operation.write_keep_commit(repository, objects, state, commit)
    tree = manifest.write(repository, objects, Snapshot(files, trees, flags, operation=state))
    return Worktree(dirty=True, tree=tree, operation=operation_name, operation_commit=keep_commit)


def resume_checkpoint(
    store: Checkpoints,
    checkpoint: Checkpoint,
    directory: str | os.PathLike[str] | None = None,
    *,
    is_driven: bool = False,
) -> OpenResult:
    """Return the worktree of a checkpoint; make it if it does not exist.

    The newest checkpoint of a run opens the run's worktree, in which each commit and `save`
    extends the run; any other checkpoint gets a separate worktree. HEAD is on the branch that the
    run made, if no other worktree uses that branch and it has not moved; else HEAD is detached.

    `directory` defaults to the path of the run's worktree, or to one below the configured
    directory. If `is_driven`, a phase will run in the worktree: missing submodules are an error.
    """
    if directory is not None:
        require_path("directory", directory, as_text=True)
        try:
            directory = os.path.abspath(os.fspath(directory))
        except FileNotFoundError:
            message = f"cannot find {directory}: the current directory was deleted"
            raise WorktreeError(message, hint="give an absolute path: /…") from None
    repository = store.repository
    checkpoint, import_remark = _start_from_head(store, checkpoint)
    head = None if is_driven else store.objects.read_head()[0]
    checkpoint, commit_remark = manifest.relink_commit(repository, checkpoint, head)
    limits = store.settings_reader.read_settings().limits
    run = checkpoint.run
    newest = heads.find_newest_of_run(store.index, repository, run) if run is not None else None
    is_newest = newest is not None and checkpoint.id == newest.id and _extends_run(store, newest)
    owner = WorktreeOwner(checkpoint.id, run if is_newest else None)
    opened = None
    while opened is None:  # again if another process made the worktree meanwhile
        _clear_half_made(repository, owner, directory)
        resume_plan = plan.plan_resume(_gather_resume_facts(store, checkpoint, owner, directory))
        if limits.submodules and resume_plan.fills_submodules:
            checkpoint = _add_uncaptured_submodules(store, checkpoint)
        opened = WorktreeOpener(
            *(repository, store.objects, checkpoint, resume_plan, owner, limits),
            rescue=functools.partial(record_deleted_worktree, store),
            is_of_other_commit=commit_remark is not None,
        ).open()
    submodule_remarks = submodules.make_missing_submodules(store, opened.path, checkpoint, limits)
    if is_driven and submodule_remarks:
        path, command = shell_quoted(opened.path), f"git ckpt resume {checkpoint.run}"
        hint = f"do that in {path}; then, or to continue without submodules: {command}"
        raise WorktreeError("; ".join(submodule_remarks), hint=hint)
    remarks = [*resume_plan.remarks, *opened.remarks]
    if opened.made:
        remarks += [*resume_plan.remarks_made, *filter(None, (import_remark, commit_remark))]
    return replace(opened, remarks=(*remarks, *submodule_remarks), behind=resume_plan.behind)


@contextlib.contextmanager
def open_scratch(store: Checkpoints, checkpoint: Checkpoint) -> Iterator[str]:
    """Yield a worktree with the files of a checkpoint, which is removed at the end."""
    limits = store.settings_reader.read_settings().limits
    root, (message, hint) = _find_worktrees_dir(store.repository)
    if root is None:
        raise WorktreeError(message, hint=hint)
    path = os.path.join(root, checkpoint.id)
    scratch = WorktreeOpener(
        *(store.repository, store.objects, checkpoint),
        plan.ResumePlan(forget=(), relink=False, action=plan.MAKE, path=path),
        WorktreeOwner(checkpoint.id, None),
        limits,
        rescue=functools.partial(record_deleted_worktree, store),
        is_of_other_commit=False,
    )
    with scratch.open_scratch() as new_path:
        submodules.make_missing_submodules(store, new_path, checkpoint, limits)
        yield new_path


def _clear_half_made(repository: Repository, owner: WorktreeOwner, directory: str | None) -> None:
    root = known_worktrees_dir(repository)
    default_path = os.path.join(root, owner.run or owner.checkpoint) if root is not None else None
    for path in (directory, default_path):
        if path is not None:
            private_dirs.require_own_directory(path)
            ownership.remove_half_made(repository, os.path.dirname(path))


def _extends_run(store: Checkpoints, newest: CheckpointInfo) -> bool:
    # A fetched checkpoint that was not adopted does not extend the local run.
    run, repository = str(newest.run), store.repository
    is_local = local_checkpoints.is_document_local
    if newest.trigger.startswith(IMPORT) or is_local(repository, run, newest.oid):
        return True
    # The file that lists local checkpoints may be lost.
    return run in ownership.worktrees_of_runs(repository)


def _start_from_head(store: Checkpoints, checkpoint: Checkpoint) -> tuple[Checkpoint, str | None]:
    # Without a commit, the worktree of an imported checkpoint would be empty: start from HEAD.
    head = store.objects.read_head()[0]
    if checkpoint.imported is None or checkpoint.git_sha or not head:
        return checkpoint, None
    remark = f"the repository lacks the commits that {checkpoint.imported.path} names: "
    remark += f"the worktree starts from HEAD, {head[:10]}"
    return replace(checkpoint, git_sha=head, worktree=None), remark


def _add_uncaptured_submodules(store: Checkpoints, checkpoint: Checkpoint) -> Checkpoint:
    # A hook does not capture submodules: add them at the commits that the files name.
    files = checkpoint.worktree or CLEAN
    if files.degraded or not modules.may_have_submodules(store.repository):
        return checkpoint
    contents = manifest.contents_of(checkpoint, store.repository, store.objects)
    paths = {submodule.path for submodule in files.submodules}
    paths.update(map(quote_path, contents.absent_paths))  # a sparse checkout may exclude submodules
    added_submodules = captured_submodules.capture_submodules_of_tree(store, contents.files, paths)
    files = replace(files, submodules=(*files.submodules, *added_submodules))
    return replace(checkpoint, worktree=files) if added_submodules else checkpoint


def _gather_resume_facts(
    store: Checkpoints, checkpoint: Checkpoint, owner: WorktreeOwner, directory: str | None
) -> ResumeFacts:
    repository = store.repository
    root, no_default = _find_worktrees_dir(repository)
    default_path = None if root is None else os.path.join(root, owner.run or owner.checkpoint)
    candidates = [path for path in (directory, default_path) if path is not None]
    likely_paths = {os.path.realpath(path) for path in candidates}
    registrations = [
        _describe_entry(repository, git_dir, path, owner.run, likely_paths)
        for git_dir, path in administration.list_worktrees(repository)
    ]
    paths: list[str | None] = [*candidates]
    for entry in registrations:
        paths += [entry.path, entry.moved_to, entry.left_at] if entry.is_owned else []
    path_states = {path: _describe_path(repository, path) for path in paths if path is not None}
    is_missing = not all(path_states[path].exists for path in candidates)
    return ResumeFacts(
        owner,
        checkpoint.git_sha,
        requested=directory,
        default=default_path,
        no_default=no_default,
        registrations=tuple(registrations),
        path_states=path_states,
        branch=_find_branch(store, checkpoint) if owner.run is not None and is_missing else None,
        has_submodules=modules.may_have_submodules(repository),
    )


def _find_worktrees_dir(repository: Repository) -> tuple[str | None, tuple[str, str | None]]:
    try:
        configured = settings.read_settings(repository).worktree_dir
        return opener.worktrees_dir(repository, configured), ("", None)
    except WorktreeError as error:
        return None, (error.message, error.hint)


def _describe_entry(
    repository: Repository, git_dir: str, path: str, run: str | None, likely: set[str]
) -> WorktreeEntry:
    owner, real = ownership.owner_in(git_dir), os.path.realpath(path)
    is_owned = owner is not None and run is not None and owner.run == run
    if not is_owned and real not in likely:
        return WorktreeEntry(git_dir, path, real, is_owned=False)
    exists, linked_dir = os.path.lexists(path), administration.git_dir_of(path)
    return WorktreeEntry(
        git_dir,
        path,
        real,
        is_owned=is_owned,
        is_there=ownership.is_same_directory(linked_dir, git_dir)
        and not ownership.is_worktree_being_made(path),
        is_gone=ownership.is_worktree_deleted(repository, git_dir, path),
        is_locked_by_gitckpt=ownership.is_locked_by_gitckpt(git_dir),
        has_submodules=modules.has_modules_dir(git_dir),
        moved_to=None if exists else administration.find_moved(repository, git_dir, path),
        left_at=administration.find_worktree_left_behind(repository, git_dir, path),
    )


def _describe_path(repository: Repository, path: str) -> PathState:
    real = os.path.realpath(path)
    if not os.path.lexists(path):
        return PathState(path, real, lacks_submodules=True)
    git_dir = administration.git_dir_of(path)
    has_git_dir = git_dir is not None and os.path.isdir(git_dir)
    registry_dir = administration.worktrees_dir(repository)
    entry = os.path.join(registry_dir, os.path.basename(git_dir or ""))
    is_kept = git_dir is not None and not has_git_dir and os.path.isdir(entry)
    owner = ownership.owner_in(entry) if is_kept else ownership.owner_at_path(repository, path)
    owned_dir = entry if is_kept else git_dir or ""
    behind = ownership.read_behind_id(owned_dir) if owner is not None else None
    return PathState(
        path,
        real,
        exists=True,
        has_dot_git=os.path.lexists(os.path.join(path, ".git")),
        git_dir=git_dir,
        git_dir_exists=has_git_dir,
        is_kept=is_kept,
        is_of_this_repository=git_dir is not None
        and administration.owns_git_dir(repository, git_dir),
        owner=owner,
        other_repository=administration.find_foreign_repository(repository, path)
        if owner is None
        else None,
        behind=behind[0] if behind is not None else None,
        lacks_submodules=submodules.lacks_submodules(path),
        removal=mounts.removal_command(path) if owner is None else "",
    )


def _find_branch(store: Checkpoints, checkpoint: Checkpoint) -> RunBranch | None:
    if checkpoint.branch is None or not checkpoint.git_sha:
        return None
    oldest = heads.list_run_checkpoints(store.index, store.repository, str(checkpoint.run))[-1]
    # An imported run made its branch itself.
    if oldest.branch == checkpoint.branch and not oldest.trigger.startswith(IMPORT):
        return None
    ref = BRANCHES + checkpoint.branch
    info = store.repository.cat_file.info(ref)
    is_free = opener.is_branch_unused(store.repository, ref)
    used_in = () if is_free else tuple(opener.worktrees_with_branch(store.repository, ref))
    return RunBranch(checkpoint.branch, info[0] if info is not None else None, is_free, used_in)


def find_moved_worktrees(repository: Repository, runs: Collection[str]) -> dict[str, str]:
    """Map runs to the paths of worktrees that were moved or are no longer registered."""
    root = known_worktrees_dir(repository) or ""
    moved_paths: dict[str, str] = {}
    for git_dir, path, owner in ownership.owners(repository):
        if owner.run in runs:
            current = administration.find_worktree_left_behind(repository, git_dir, path)
            current = current or administration.find_moved(repository, git_dir, path, root)
            if current is not None:
                moved_paths[str(owner.run)] = current
    for run in set(runs) - moved_paths.keys():
        path = os.path.join(root, run)
        git_dir = administration.git_dir_of(path) or ""
        is_owned = bool(git_dir) and administration.owns_git_dir(repository, git_dir)
        if is_owned and not os.path.isdir(git_dir):
            moved_paths[run] = path
    return moved_paths


def known_worktrees_dir(repository: Repository) -> str | None:
    return _find_worktrees_dir(repository)[0]
