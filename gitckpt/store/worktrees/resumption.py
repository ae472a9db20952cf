"""Open the worktree in which the work of a checkpoint or run continues."""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from collections.abc import Collection, Iterable

from gitckpt.git.files import mounts, private_dirs
from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, OF_A_WORKTREE, Repository
from gitckpt.git.worktree import administration, modules, operation
from gitckpt.git.worktree import index as intent
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import quote_path, require_path, shell_word
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
from gitckpt.store.records.ref_names import Owner
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.manifest import Contents
from gitckpt.store.worktrees import opener, ownership, plan, submodules
from gitckpt.store.worktrees.opener import OpenResult, WorktreeOpener
from gitckpt.store.worktrees.plan import Branch, PathState, Registration, Situation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import Objects


def record_leftover(store: Checkpoints, git_dir: str, path: str) -> None:
    """Record index and HEAD of a deleted worktree if nothing else has them."""
    worktree = Repository(git_dir, None, store.repository.object_format)
    with store.seen_from(worktree, "plumbing") as leftover:
        commit = leftover.objects.head()[0]
        files = _capture_index(worktree, leftover.objects, commit)
        if files.dirty or (commit and not _is_reached(worktree, store.index.commits() or ())):
            message = shorten_message(f"the index of the deleted worktree {path}")
            label = ref_names.SAFETY_COMPLETE
            leftover.record(label, worktree=files, trigger=RESCUE, message=message)


def holds_nothing(worktree: Repository, linked: Iterable[str]) -> bool:
    """Return whether git may forget a deleted worktree without any loss.

    It has no operation, staged changes, own refs or submodule repositories, and all commits of its
    reflog and ORIG_HEAD are reachable elsewhere. `linked` lists the commits of checkpoints.
    """
    if worktree.operation() is not None or modules.has_modules(worktree.git_dir):
        return False
    git = worktree.git
    words = ("diff-index", "--cached", "--quiet", "--ita-visible-in-index", "HEAD", "--")
    spaces = [space.rstrip("/") for space in OF_A_WORKTREE]
    try:
        if git.run(*words, ok=(0, 1, 128)).code != 0:
            return False
        if git.run("for-each-ref", "--count=1", *spaces).out:
            return False
        # Without reflogs (`core.logAllRefUpdates`), only ORIG_HEAD tells where HEAD was.
        original = git.run("rev-parse", "--verify", "--quiet", "ORIG_HEAD", ok=(0, 1)).out
        commits = git.text("log", "--walk-reflogs", "--format=%H", "HEAD").split()
        return _is_reached(worktree, linked, [*commits, *original.decode("ascii").split()])
    except GitError:  # unreadable: maybe a loss
        return False


def _is_reached(repository: Repository, linked: Iterable[str], commits: Iterable[str] = ()) -> bool:
    """Return whether branches, tags or `linked` commits reach HEAD and `commits`.

    Refs below `refs/keep` do not count, as gitckpt deletes some of them within the hour.
    """
    lines = [*(f"{commit}\n" for commit in commits), *(f"^{commit}\n" for commit in linked)]
    options = ("--max-count=1", "--ignore-missing", "--stdin")
    words = ("rev-list", *options, "HEAD", "--not", "--branches", "--tags", "--remotes")
    return repository.git.run(*words, data="".join(lines).encode("ascii")).out == b""


def _capture_index(repository: Repository, objects: Objects, commit: str) -> Worktree:
    """Capture the index of a worktree whose directory is gone."""
    base, under_way = manifest.base_tree(repository, commit), repository.operation()
    empty = intent.intent_oid(repository.object_format).decode("ascii")
    with PrivateIndex(repository) as index:
        staged: dict[int, list[bytes]] = defaultdict(list)
        entries = index.entries()
        candidates = [path for path, _, oid, stage, _ in entries if (oid, stage) == (empty, 0)]
        flags = manifest.flags_of(intent.intent_entries(index, candidates))
        intended = set(flags.get(manifest.INTENT, ()))
        for path, mode, oid, stage, _ in entries:
            if path not in intended:
                staged[stage].append(b"%s %s 0\t%s" % (mode, oid.encode("ascii"), path))
        trees = {}
        for number, lines in sorted(staged.items()):
            index.git("read-tree", "--empty")
            index.put(lines)
            trees[number] = index.write_tree()
        index.put(line for stage in (1, 3, 2) for line in staged.get(stage, ()))  # "ours" wins
        index.put(staged.get(0, ()))
        files = index.write_tree()
    if (not trees or trees == {0: base}) and not flags and not under_way:
        return Worktree(dirty=False)
    state = operation.collect(repository) if under_way else {}
    needed = operation.write_keep_commit(repository, objects, state, commit)
    tree = manifest.write(repository, objects, Contents(files, trees, flags, operation=state))
    return Worktree(dirty=True, tree=tree, operation=under_way, operation_commit=needed)


def resume(
    store: Checkpoints,
    checkpoint: Checkpoint,
    directory: str | os.PathLike[str] | None = None,
    *,
    is_driven: bool = False,
) -> OpenResult:
    """Return the worktree of a checkpoint; make it if it does not exist.

    The newest checkpoint of a run opens the run's worktree, in which each commit and `save`
    extends the run; any other checkpoint gets a separate worktree. HEAD is detached at the
    checkpoint's commit, or on the branch that the run made, if that is free and has not moved.

    `directory` defaults to the path of the run's worktree, or one from the settings. With
    `is_driven`, as a phase runs in the worktree next, a missing submodule is an error.
    """
    if directory is not None:
        require_path("directory", directory, as_text=True)
        try:
            directory = os.path.abspath(os.fspath(directory))
        except FileNotFoundError:
            message = f"cannot find {directory}: the current directory was deleted"
            raise WorktreeError(message, hint="give an absolute path: /…") from None
    repository = store.repository
    checkpoint, head_remark = _start_from_head(store, checkpoint)
    head = None if is_driven else store.objects.head()[0]
    checkpoint, stand_in = manifest.with_commit(repository, checkpoint, head)
    limits = store.rules.read().limits
    run = checkpoint.run
    newest = heads.newest(store.index, repository, run) if run is not None else None
    is_newest = newest is not None and checkpoint.id == newest.id and _is_of_run(store, newest)
    owner = Owner(checkpoint.id, run if is_newest else None)
    opened = None
    while opened is None:  # again if another process made the worktree meanwhile
        _clear_directories(repository, owner, directory)
        steps = plan.plan_resume(_describe_situation(store, checkpoint, owner, directory))
        if limits.submodules and steps.fills_submodules:
            checkpoint = _add_submodules(store, checkpoint)
        opened = WorktreeOpener(
            *(repository, store.objects, checkpoint, steps, owner, limits),
            rescue=functools.partial(record_leftover, store),
            is_of_other_commit=stand_in is not None,
        ).open()
    lacking = submodules.finish(store, opened.path, checkpoint, limits)
    if is_driven and lacking:
        path, command = shell_word(opened.path), f"git ckpt resume {checkpoint.run}"
        hint = f"do that in {path}; then, or to continue without submodules: {command}"
        raise WorktreeError("; ".join(lacking), hint=hint)
    remarks = [*steps.remarks, *opened.remarks]
    if opened.made:
        remarks += [*steps.remarks_made, *filter(None, (head_remark, stand_in))]
    return replace(opened, remarks=(*remarks, *lacking), behind=steps.behind)


def _clear_directories(repository: Repository, owner: Owner, directory: str | None) -> None:
    """Refuse directories behind a link; remove what killed processes left in them."""
    root = known_root(repository)
    default = os.path.join(root, owner.run or owner.checkpoint) if root is not None else None
    for path in (directory, default):
        if path is not None:
            private_dirs.require(path)
            ownership.remove_unfinished(repository, os.path.dirname(path))


def _is_of_run(store: Checkpoints, newest: CheckpointInfo) -> bool:
    # A fetched checkpoint that was not adopted does not extend the local run.
    run, repository = str(newest.run), store.repository
    if newest.trigger.startswith(IMPORT) or local_checkpoints.is_local(repository, run, newest.oid):
        return True
    return run in ownership.of_runs(repository)  # the file that lists local checkpoints may be lost


def _start_from_head(store: Checkpoints, checkpoint: Checkpoint) -> tuple[Checkpoint, str | None]:
    # Without a commit, the worktree of an imported checkpoint would be empty: start from HEAD.
    head = store.objects.head()[0]
    if checkpoint.imported is None or checkpoint.git_sha or not head:
        return checkpoint, None
    remark = f"the repository lacks the commits that {checkpoint.imported.path} names: "
    remark += f"the worktree starts from HEAD, {head[:10]}"
    return replace(checkpoint, git_sha=head, worktree=None), remark


def _add_submodules(store: Checkpoints, checkpoint: Checkpoint) -> Checkpoint:
    # A hook does not capture submodules: add them at the commits that the files name.
    files = checkpoint.worktree or CLEAN
    if files.degraded or not modules.may_have_submodules(store.repository):
        return checkpoint
    contents = manifest.contents_of(checkpoint, store.repository, store.objects)
    paths = {submodule.path for submodule in files.submodules}
    paths.update(map(quote_path, contents.absent_paths))  # a sparse checkout may exclude submodules
    added = captured_submodules.capture_tree(store, contents.files, paths)
    files = replace(files, submodules=(*files.submodules, *added))
    return replace(checkpoint, worktree=files) if added else checkpoint


def _describe_situation(
    store: Checkpoints, checkpoint: Checkpoint, owner: Owner, directory: str | None
) -> Situation:
    repository = store.repository
    root, no_default = _find_root(repository)
    default = None if root is None else os.path.join(root, owner.run or owner.checkpoint)
    candidates = [path for path in (directory, default) if path is not None]
    likely = {os.path.realpath(path) for path in candidates}
    registrations = [
        _describe_registration(repository, git_dir, path, owner.run, likely)
        for git_dir, path in administration.registered(repository)
    ]
    paths: list[str | None] = [*candidates]
    for entry in registrations:
        paths += [entry.path, entry.moved_to, entry.left_at] if entry.is_owned else []
    path_states = {path: _describe_path(repository, path) for path in paths if path is not None}
    is_missing = not all(path_states[path].exists for path in candidates)
    return Situation(
        owner,
        checkpoint.git_sha,
        requested=directory,
        default=default,
        no_default=no_default,
        registrations=tuple(registrations),
        path_states=path_states,
        branch=_find_branch(store, checkpoint) if owner.run is not None and is_missing else None,
        has_submodules=modules.may_have_submodules(repository),
    )


def _find_root(repository: Repository) -> tuple[str | None, tuple[str, str | None]]:
    """Return the directory for worktrees, or None; and message and hint in that case."""
    try:
        return opener.default_root(repository, settings.read(repository).worktree_dir), ("", None)
    except WorktreeError as error:
        return None, (error.message, error.hint)


def _describe_registration(
    repository: Repository, git_dir: str, path: str, run: str | None, likely: set[str]
) -> Registration:
    owner, real = ownership.owner_in(git_dir), os.path.realpath(path)
    is_owned = owner is not None and run is not None and owner.run == run
    if not is_owned and real not in likely:
        return Registration(git_dir, path, real, is_owned=False)
    exists, linked_dir = os.path.lexists(path), administration.git_dir_of(path)
    return Registration(
        git_dir,
        path,
        real,
        is_owned=is_owned,
        is_there=ownership.is_same(linked_dir, git_dir) and not ownership.is_being_made(path),
        is_gone=ownership.is_gone(repository, git_dir, path),
        is_locked_by_gitckpt=ownership.is_locked_by_gitckpt(git_dir),
        has_submodules=modules.has_modules(git_dir),
        moved_to=None if exists else administration.find_moved(repository, git_dir, path),
        left_at=administration.find_left_behind(repository, git_dir, path),
    )


def _describe_path(repository: Repository, path: str) -> PathState:
    real = os.path.realpath(path)
    if not os.path.lexists(path):
        return PathState(path, real, lacks_submodules=True)
    git_dir = administration.git_dir_of(path)
    exists = git_dir is not None and os.path.isdir(git_dir)
    registry = administration.worktrees_dir(repository)
    entry = os.path.join(registry, os.path.basename(git_dir or ""))
    is_kept = git_dir is not None and not exists and os.path.isdir(entry)
    owner = ownership.owner_in(entry) if is_kept else ownership.owner_at(repository, path)
    behind = ownership.behind_in(entry if is_kept else git_dir or "") if owner is not None else None
    return PathState(
        path,
        real,
        exists=True,
        has_dot_git=os.path.lexists(os.path.join(path, ".git")),
        git_dir=git_dir,
        git_dir_exists=exists,
        is_kept=is_kept,
        is_of_this_repository=git_dir is not None
        and administration.owns_git_dir(repository, git_dir),
        owner=owner,
        other_repository=administration.foreign_repository(repository, path)
        if owner is None
        else None,
        behind=behind[0] if behind is not None else None,
        lacks_submodules=submodules.are_missing(path),
        removal=mounts.removal_command(path) if owner is None else "",
    )


def _find_branch(store: Checkpoints, checkpoint: Checkpoint) -> Branch | None:
    """Return the branch of a run's newest checkpoint; None if the user made it."""
    if checkpoint.branch is None or not checkpoint.git_sha:
        return None
    first = heads.chain(store.index, store.repository, str(checkpoint.run))[-1]
    # An imported run made its branch itself.
    if first.branch == checkpoint.branch and not first.trigger.startswith(IMPORT):
        return None
    ref = BRANCHES + checkpoint.branch
    info, is_free = store.repository.cat_file.info(ref), opener.is_free(store.repository, ref)
    used_in = () if is_free else tuple(opener.worktrees_on(store.repository, ref))
    return Branch(checkpoint.branch, info[0] if info is not None else None, is_free, used_in)


def find_moved_worktrees(repository: Repository, runs: Collection[str]) -> dict[str, str]:
    """Return by run the paths of worktrees that were moved or that git forgot."""
    root = known_root(repository) or ""
    moved: dict[str, str] = {}
    for git_dir, path, owner in ownership.owned(repository):
        if owner.run in runs:
            current = administration.find_left_behind(repository, git_dir, path)
            current = current or administration.find_moved(repository, git_dir, path, root)
            if current is not None:
                moved[str(owner.run)] = current
    for run in set(runs) - moved.keys():
        path = os.path.join(root, run)
        git_dir = administration.git_dir_of(path) or ""
        if (
            git_dir
            and administration.owns_git_dir(repository, git_dir)
            and not os.path.isdir(git_dir)
        ):
            moved[run] = path
    return moved


def known_root(repository: Repository) -> str | None:
    return _find_root(repository)[0]
