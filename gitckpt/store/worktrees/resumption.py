"""Resume: from a checkpoint to the worktree that goes on with it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from gitckpt.git.files import mounts, premises
from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, OF_A_WORKTREE, Repository
from gitckpt.git.worktree import administration, modules, operation
from gitckpt.git.worktree import index as intent
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import quoted, require_path, shell_word
from gitckpt.model.checkpoint import CLEAN, IMPORT, RESCUE, Checkpoint, Worktree
from gitckpt.model.document import message_of
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import replace
from gitckpt.store import roster
from gitckpt.store import submodules as keeper
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.records import heads, layout
from gitckpt.store.records.layout import Owner
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.manifest import Contents
from gitckpt.store.worktrees import opener, ownership, plan, submodules
from gitckpt.store.worktrees.opener import Opened, Wish
from gitckpt.store.worktrees.plan import Branch, PathState, Registration, Situation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gitckpt.git.command import Git
    from gitckpt.git.objects.port import Objects
    from gitckpt.store.records.entry import Entry
    from gitckpt.store.snapshot.limits import Limits
    from gitckpt.store.worktrees.plan import ResumePlan


# What is left of a worktree whose directory is gone.


def record_leftover(store: Checkpoints, git_dir: str, path: str) -> None:
    """Record staged content and unreachable commits of a deleted worktree."""
    there = Repository(git_dir, None, store.repository.object_format)
    with store.seen_from(there, "plumbing") as leftover:
        commit = leftover.objects.head()[0]
        found = _capture_index(there, leftover.objects, commit)
        if found.dirty or (commit and not _is_reached(there, store.index.commits() or ())):
            message = message_of(f"what was staged in {path}, which is gone")
            leftover.record(layout.SAFETY_COMPLETE, worktree=found, trigger=RESCUE, message=message)


def holds_nothing(there: Repository, linked: Iterable[str]) -> bool:
    """Return whether a worktree whose directory is gone holds nothing to lose.

    Besides what `record_leftover` records, these count, as no checkpoint would have them: commits
    only in the reflog of its HEAD or its ORIG_HEAD, its own refs, repositories of submodules.
    """
    if there.operation() is not None or modules.has_own(there.git_dir):
        return False
    git = there.git
    try:
        return _is_as_committed(git) and _is_reached(there, linked, _been_at(git))
    except GitError:  # unreadable: unknown
        return False


def _is_as_committed(git: Git) -> bool:
    """Return whether nothing is staged and the worktree has no refs of its own."""
    if git.run("diff-index", "--cached", "--quiet", "--ita-visible-in-index", "HEAD", "--", ok=(0, 1, 128)).code != 0:
        return False
    return git.run("for-each-ref", "--count=1", *(space.rstrip("/") for space in OF_A_WORKTREE)).out == b""


def _been_at(git: Git) -> list[str]:
    # Without reflogs (`core.logAllRefUpdates`), only ORIG_HEAD tells where HEAD was.
    before = git.run("rev-parse", "--verify", "--quiet", "ORIG_HEAD", ok=(0, 1)).out.decode("ascii")
    return [*git.text("log", "--walk-reflogs", "--format=%H", "HEAD").split(), *before.split()]


def _is_reached(repository: Repository, linked: Iterable[str], more: Iterable[str] = ()) -> bool:
    """Return whether branches, tags or linked commits reach HEAD and `more`.

    What `refs/keep` holds does not count: some of it goes within the hour.
    """
    data = "".join([*(f"{commit}\n" for commit in more), *(f"^{commit}\n" for commit in linked)]).encode("ascii")
    words = ("rev-list", "--max-count=1", "--ignore-missing", "--stdin", "HEAD", "--not", "--branches", "--tags", "--remotes")
    return repository.git.run(*words, data=data).out == b""


def _capture_index(repository: Repository, objects: Objects, commit: str) -> Worktree:
    """Capture the index of a worktree whose directory is gone."""
    base = manifest.base_tree(repository, commit)
    under_way = repository.operation()
    empty = intent.placeholder(repository.object_format).decode("ascii")
    with PrivateIndex(repository) as index:
        staged: dict[int, list[bytes]] = {}
        entries = index.entries()
        flags = manifest.flags_of(intent.intended(index, [path for path, _, oid, stage, _ in entries if (oid, stage) == (empty, 0)]))
        intended = set(flags.get(manifest.INTENT, ()))
        for path, mode, oid, stage, _ in entries:
            if path not in intended:
                staged.setdefault(stage, []).append(b"%s %s 0\t%s" % (mode, oid.encode("ascii"), path))
        trees = {}
        for number, lines in sorted(staged.items()):
            index.git("read-tree", "--empty")
            index.put(lines)
            trees[number] = index.write_tree()
        index.put(line for stage in (1, 3, 2) for line in staged.get(stage, ()))  # ours wins
        index.put(staged.get(0, ()))
        files = index.write_tree()
    if (not trees or trees == {0: base}) and not flags and not under_way:
        return Worktree(dirty=False)
    found = Contents(files, trees, flags, operation=operation.collect(repository) if under_way else {})
    needed = operation.holder_of(repository, objects, found.operation, commit)
    tree = manifest.write(repository, objects, found)
    return Worktree(dirty=True, tree=tree, operation=under_way, operation_commit=needed)


# Resume.


def resume(
    store: Checkpoints, checkpoint: Checkpoint, directory: str | os.PathLike[str] | None = None, *, is_driven: bool = False
) -> Opened:
    """Return the worktree of a checkpoint; make it if it does not exist.

    The newest checkpoint of a run opens the run's worktree, in which each commit and `save`
    extends the run; any other checkpoint opens one of its own. HEAD is detached at the linked
    commit, or on the run's branch (not the one the run was started on) if it is free and has not
    moved.

    Args:
        directory: the worktree's path; by default where the run's worktree is, else a directory
            named after run or checkpoint where the settings say.
        is_driven: whether a phase works there before a person looks: a submodule that does not
            come back is an error then, once.
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
    wanted = Owner(checkpoint.id, checkpoint.run if in_run else None)
    opened = None
    while opened is None:  # again where another process made one meanwhile
        _require_own_places(repository, wanted, directory)
        todo = plan.plan_resume(_situation(store, checkpoint, wanted, directory))
        if said.limits.submodules and todo.fills_submodules:
            checkpoint = _with_submodules(store, checkpoint)
        wish = _wish(store, checkpoint, todo, said.limits, in_run=in_run, is_of_other_commit=stand_in is not None)
        opened = opener.carry_out(repository, store.objects, todo, wish)
    lacking = submodules.finish(store, opened.path, checkpoint, said.limits)
    if is_driven and lacking:
        there = f"do that in {shell_word(opened.path)}"
        raise WorktreeError("; ".join(lacking), hint=f"{there}; then, or to go on without: git ckpt resume {checkpoint.run}")
    made = (*todo.remarks_made, *(remark for remark in (is_elsewhere, stand_in) if remark)) if opened.made else ()
    return replace(opened, remarks=(*todo.remarks, *opened.remarks, *made, *lacking), behind=todo.behind)


def _require_own_places(repository: Repository, wanted: Owner, directory: str | None) -> None:
    """Refuse places behind a link; remove what killed processes left there."""
    root = known_root(repository)
    for place in (directory, os.path.join(root, wanted.run or wanted.checkpoint) if root is not None else None):
        if place is not None:
            premises.require(place)
            ownership.sweep(repository, os.path.dirname(place))


def _wish(store: Checkpoints, checkpoint: Checkpoint, todo: ResumePlan, limits: Limits, *, in_run: bool, is_of_other_commit: bool) -> Wish:
    def rescue(there: Repository, path: str) -> None:
        record_leftover(store, there.git_dir, path)

    return Wish(
        checkpoint, todo.path, in_run=in_run, branch=todo.branch, limits=limits, rescue=rescue, is_of_other_commit=is_of_other_commit
    )


def _is_of_run(store: Checkpoints, newest: Entry) -> bool:
    # Fetched checkpoints are only looked at until adopted; what was fetched may continue a run.
    run = str(newest.run)
    ours = roster.knows(store.repository, run, newest.oid) or newest.trigger.startswith(IMPORT)
    return ours or run in ownership.of_runs(store.repository)  # the file of the chain may be lost


def _from_here(store: Checkpoints, checkpoint: Checkpoint) -> tuple[Checkpoint, str | None]:
    # Without the commit, the worktree of an imported checkpoint would be empty: HEAD stands in.
    head = store.objects.head()[0]
    if checkpoint.imported is None or checkpoint.git_sha or not head:
        return checkpoint, None
    remark = f"no commit that {checkpoint.imported.path} names is here: the worktree begins with {head[:10]}, which is checked out"
    return replace(checkpoint, git_sha=head, worktree=None), remark


def _with_submodules(store: Checkpoints, checkpoint: Checkpoint) -> Checkpoint:
    # A hook does not wait for submodules: they are added unchanged, as the files name them.
    files = checkpoint.worktree or CLEAN
    if files.degraded or not modules.are_there(store.repository):
        return checkpoint
    found = manifest.contents_of(checkpoint, store.repository, store.objects)
    away = map(quoted, found.away)  # a sparse checkout may leave out submodules
    more = keeper.of_tree(store, found.files, {*(one.path for one in files.submodules), *away})
    return replace(checkpoint, worktree=replace(files, submodules=(*files.submodules, *more))) if more else checkpoint


def _situation(store: Checkpoints, checkpoint: Checkpoint, wanted: Owner, directory: str | None) -> Situation:
    repository, name = store.repository, wanted.run or wanted.checkpoint
    root, no_default = _root(repository)
    default = None if root is None else os.path.join(root, name)
    likely = {os.path.realpath(path) for path in (directory, default) if path is not None}
    registrations = [_registration(repository, git_dir, path, wanted, likely) for git_dir, path in administration.registered(repository)]
    of_run = [each for each in registrations if each.of_run]
    paths = [directory, default, *(path for each in of_run for path in (each.path, each.moved_to, each.left_at))]
    places = {path: _place(repository, path) for path in paths if path is not None}
    is_found = all(places[path].exists for path in (directory, default) if path is not None)
    return Situation(
        wanted,
        checkpoint.git_sha,
        asked=directory,
        default=default,
        no_default=no_default,
        registrations=tuple(registrations),
        places=places,
        branch=_branch(store, checkpoint) if wanted.run is not None and not is_found else None,
        has_submodules=modules.are_there(repository),
    )


def _root(repository: Repository) -> tuple[str | None, tuple[str, str | None]]:
    """Return where worktrees are made; or None, with message and hint."""
    try:
        return opener.default_root(repository, settings.read(repository).worktree_dir), ("", None)
    except WorktreeError as error:
        return None, (error.message, error.hint)


def _registration(repository: Repository, git_dir: str, path: str, wanted: Owner, likely: set[str]) -> Registration:
    owner, real = ownership.owner_in(git_dir), os.path.realpath(path)
    of_run = owner is not None and wanted.run is not None and owner.run == wanted.run
    if not of_run and real not in likely:
        return Registration(git_dir, path, real, of_run=False)
    exists, named = os.path.lexists(path), administration.named_by(path)
    return Registration(
        git_dir,
        path,
        real,
        of_run=of_run,
        is_there=named is not None and os.path.realpath(named) == os.path.realpath(git_dir) and not ownership.is_being_made(path),
        is_gone=ownership.is_gone(repository, git_dir, path),
        is_locked_by_us=ownership.is_locked_by_us(git_dir),
        has_submodules=modules.has_own(git_dir),
        moved_to=None if exists else administration.moved_to(repository, git_dir, path),
        left_at=administration.left_by(repository, git_dir, path),
    )


def _place(repository: Repository, path: str) -> PathState:
    real = os.path.realpath(path)
    if not os.path.lexists(path):
        return PathState(path, real, lacks_submodules=True)
    git_dir = administration.named_by(path)
    exists = git_dir is not None and os.path.isdir(git_dir)
    kept = os.path.join(administration.administration(repository), os.path.basename(git_dir or ""))
    is_kept = git_dir is not None and not exists and os.path.isdir(kept)
    owner = ownership.owner_in(kept) if is_kept else ownership.owner_at(repository, path)
    stands_at = ownership.behind_in(kept if is_kept else git_dir or "") if owner is not None else None
    return PathState(
        path,
        real,
        exists=True,
        has_dot_git=os.path.lexists(os.path.join(path, ".git")),
        git_dir=git_dir,
        git_dir_exists=exists,
        is_kept=is_kept,
        is_of_this_repository=git_dir is not None and administration.is_ours(repository, git_dir),
        owner=owner,
        other=administration.elsewhere(repository, path) if owner is None else None,
        behind=stands_at[0] if stands_at is not None else None,
        lacks_submodules=submodules.are_to_come(path),
        removal=mounts.way_to_remove(path) if owner is None else "",
    )


def _branch(store: Checkpoints, checkpoint: Checkpoint) -> Branch | None:
    """Return the branch that a run's worktree may be on, unless it is the user's."""
    if checkpoint.branch is None or not checkpoint.git_sha:
        return None
    first = heads.chain(store.index, store.repository, str(checkpoint.run))[-1]
    # An imported run owns its branch, even the first one.
    if first.branch == checkpoint.branch and not first.trigger.startswith(IMPORT):
        return None
    ref = BRANCHES + checkpoint.branch
    tip = store.repository.cat_file.info(ref)
    is_free = opener.is_free(store.repository, ref)
    used_in = () if is_free else tuple(opener.worktrees_on(store.repository, ref))
    return Branch(checkpoint.branch, tip[0] if tip is not None else None, is_free=is_free, used_in=used_in)


def places(repository: Repository, runs: Collection[str]) -> dict[str, str]:
    """Return where worktrees of runs are that were moved or that git forgot."""
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
    return _root(repository)[0]
