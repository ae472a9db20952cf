"""Open or make the worktree of a checkpoint, whatever became of it meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from gitckpt.git import config, fsync, graph
from gitckpt.git.command import NO_HOOKS
from gitckpt.git.contents import unfiltered
from gitckpt.git.files import premises
from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, operation
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model import ids
from gitckpt.model.arguments import first_of
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass
from gitckpt.store import roster
from gitckpt.store.records.layout import Owner
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.snapshot.limits import Limits
from gitckpt.store.snapshot.manifest import Contents
from gitckpt.store.worktrees import checkout, ownership, submodules
from gitckpt.store.worktrees.plan import ADOPT, MAKE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects
    from gitckpt.store.worktrees.plan import Registration, ResumePlan

_ALONE = (*NO_HOOKS, "-c", "worktree.useRelativePaths=false")


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened worktree.

    Attributes:
        path: its top.
        made: whether it was made just now; if not, it is as it was left.
        remarks: what else the user should know, a sentence each.
        unfiltered: files that are there only as git stores them, because a filter fails; opening
            the worktree again completes them.
        behind: the checkpoint at which it stands, if others continued the run; `Run.resume` brings
            what is newer.
    """

    path: str
    made: bool
    remarks: tuple[str, ...] = ()
    unfiltered: tuple[bytes, ...] = ()
    behind: str | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What `carry_out` opens.

    Attributes:
        path: absolute path of its top.
        in_run: whether it is the worktree of the run, and not of this one checkpoint.
        branch: the branch to be on; None for a detached HEAD.
        limits: for the comparison at the end.
        is_of_other_commit: whether another commit stands in: no operation comes back.
        rescue: called before git forgets a worktree whose directory is gone, with that and its
            path; records what is in no checkpoint.
    """

    checkpoint: Checkpoint
    path: str
    in_run: bool
    branch: str | None
    limits: Limits
    rescue: Callable[[Repository, str], None]
    is_of_other_commit: bool = False

    @property
    def owner(self) -> Owner:
        return Owner(self.checkpoint.id, self.checkpoint.run if self.in_run else None)


def carry_out(repository: Repository, objects: Objects, plan: ResumePlan, wish: Wish) -> Opened | None:
    """Open or make a worktree as planned; None if another process made one meanwhile.

    Raises:
        WorktreeError: commit or files are missing, or what came back differs from what was
            captured. Nothing that existed before is changed.
    """
    premises.require(wish.path)
    for gone in plan.forget:
        _forget(repository, gone, wish)
    if plan.relink:
        administration.repair(repository, wish.path)
    if plan.action == MAKE:
        return _make(repository, objects, wish)
    if plan.action == ADOPT:
        return _adopt(repository, objects, wish)
    remarks = _mend_head(repository, wish)
    return Opened(wish.path, made=False, remarks=remarks, unfiltered=_completed(repository, wish.path))


def _make(repository: Repository, objects: Objects, wish: Wish) -> Opened | None:
    _require_objects(repository, wish.checkpoint)
    root = os.path.dirname(wish.path)
    _make_root(root)
    with premises.holding(root), ownership.around(repository, wish.path) as staged:
        held = _add(repository, staged, wish.checkpoint)
        remarks, held = _fill(repository, staged, objects, wish, held)
        moved_in = _move(repository, staged, wish.path)
    administration.flush(repository, wish.path)
    return Opened(wish.path, made=True, remarks=remarks, unfiltered=tuple(held)) if moved_in else None


def default_root(repository: Repository, configured: str | None) -> str:
    """Return the directory in which worktrees are made.

    Args:
        configured: `ckpt.worktreeDir`; relative to the top of the main worktree.

    Raises:
        WorktreeError: there is no main worktree, and none is configured.
    """
    top = administration.main_worktree(repository)
    if configured:
        return os.path.normpath(os.path.join(top or repository.common_dir, os.path.expanduser(configured)))
    if top is None:
        is_bare = config.is_on(config.read(repository, r"^core\.bare$").get("core.bare", ["false"])[-1])
        why = "is bare: there is no worktree" if is_bare else "does not tell a linked worktree where the main one is,"
        raise WorktreeError(
            f"{repository.common_dir} {why} to put another one beside",
            hint="say where they shall be: git config ckpt.worktreeDir DIR; where one shall be: git ckpt resume --into DIR",
        )
    return os.path.join(top, premises.PRIVATE, "worktrees")


def _mend_head(repository: Repository, wish: Wish) -> tuple[str, ...]:
    # A power cut can empty HEAD: what is started there would be on no branch, or on another.
    git_dir = administration.named_by(wish.path)
    if git_dir is None or not administration.lacks_head(repository, git_dir):
        return ()
    commit = wish.checkpoint.git_sha
    state = "gone" if administration.has_no_head(git_dir) else "empty or broken"
    if not commit and wish.branch is None:
        raise WorktreeError(
            f"HEAD of the worktree {wish.path} is {state}, and checkpoint {wish.checkpoint.id} has no commit",
            hint=f"write into {git_dir}/HEAD where it was: ref: refs/heads/BRANCH",
        )
    _require_objects(repository, wish.checkpoint)
    has_log = not (repository.has_reftable and administration.lacks_tables(git_dir))  # else it is lost
    administration.write_head(repository, git_dir, commit if wish.branch is None else f"ref: {BRANCHES}{wish.branch}")
    where = f"detached at {commit[:10]}" if wish.branch is None else f"on {wish.branch}"
    return (f"its HEAD was {state}, and is {where} now{'; what it was at before: git reflog' if has_log else ''}",)


def _completed(repository: Repository, path: str) -> tuple[bytes, ...]:
    """Write files that are only there as git stores them; return failing ones."""
    made = _require_seen(repository, path)
    try:
        return tuple(unfiltered.complete_in_place(made))
    except GitError as error:
        raise WorktreeError(f"cannot write files of {path}: {error.message}") from None
    finally:
        made.close()


def _adopt(repository: Repository, objects: Objects, wish: Wish) -> Opened:
    """Turn a directory that git forgot into a worktree again."""
    _require_objects(repository, wish.checkpoint)
    with ownership.around(repository, wish.path) as staged:
        try:
            _add(repository, staged, wish.checkpoint)
            made = _require_seen(repository, staged)
            _start_head(made, wish)
            whole = manifest.contents_of(wish.checkpoint, repository, objects)
            files, remarks = _operation(repository, whole, wish)
            whole.operation = operation.detached(repository, files)
            with PrivateIndex(made) as index:
                manifest.turn_into(index, whole, wish.checkpoint.git_sha)
                index.install()
            operation.bring_back(made, whole.operation)
            ownership.write_owner(made, wish.owner)
            made.close()
            os.replace(os.path.join(staged, ".git"), os.path.join(wish.path, ".git"))
            administration.repair(repository, wish.path)
            administration.flush(repository, wish.path)
        except GitError as error:
            raise WorktreeError(f"cannot make {wish.path} a worktree again: {error.message}") from None
    said = "git had forgotten it; its files are as they were, and what is staged is as the checkpoint has it"
    return Opened(wish.path, made=False, remarks=(said, *remarks))


def _forget(repository: Repository, gone: Registration, wish: Wish) -> None:
    there = Repository(gone.git_dir, None, repository.object_format)
    try:
        wish.rescue(there, gone.path)
    finally:
        there.close()
    administration.forget(repository, gone.git_dir)


def _fill(repository: Repository, staged: str, objects: Objects, wish: Wish, held: list[bytes]) -> tuple[tuple[str, ...], list[bytes]]:
    """Restore the checkpoint into a new worktree.

    Returns:
        Remarks, and the files that are there only as git stores them (`held` until now).
    """
    made = _require_seen(repository, staged)
    checkpoint = wish.checkpoint
    try:
        _start_head(made, wish)
        branch, remarks = None, list[str]()
        if _has_files(checkpoint):
            whole = manifest.contents_of(checkpoint, made, objects)
            files, remarks = _operation(made, whole, wish)
            branch = operation.rebased_branch(files)
            whole.operation = operation.detached(made, files)
            held = checkout.fill(made, whole, checkpoint.git_sha)
            theirs = _objects_of(made)
            try:
                differing = comparison.compare(made, theirs, whole, checkpoint.git_sha, wish.limits)
            finally:
                theirs.close()  # no ref leads to what it wrote: do not hold it while a gc runs
            if differing:
                raise WorktreeError(
                    f"what came back is not what checkpoint {checkpoint.id} captured: {first_of(differing)}",
                    hint=f"look at both: git ckpt show {checkpoint.id[: ids.SHORT]}; git ls-tree -r refs/ckpt/trees/{checkpoint.id}",
                )
        ownership.write_owner(made, wish.owner)
        if wish.limits.submodules:
            submodules.begin(made, checkpoint)
    finally:
        made.close()
    return tuple(_remarks(checkpoint, remarks, branch)), held


def _operation(repository: Repository, whole: Contents, wish: Wish) -> tuple[Mapping[str, bytes], list[str]]:
    if wish.is_of_other_commit or not whole.operation:
        return {}, []
    if not roster.is_captured_here(repository, wish.checkpoint.id):
        return {}, [operation.FOREIGN]
    if operation.would_move(whole.operation, wish.branch, wish.checkpoint.branch):
        return {}, [f"the operation in progress is left out, as it would move {wish.branch}"]
    return whole.operation, []


def _has_files(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint's files are known, if only as those of its commit."""
    files = checkpoint.worktree
    return files is not None and bool(files.tree or not files.degraded)


def _remarks(checkpoint: Checkpoint, of_operation: list[str], branch: str | None) -> list[str]:
    remarks = []
    files = checkpoint.worktree
    if files is not None and files.degraded:
        remarks.append(f"it has the files of the commit only: {files.degraded}")
    remarks += [operation.farewell(branch)] if branch is not None else []
    remarks += of_operation
    left_out = [entry for entry in files.omitted if entry.dirty is not False] if files is not None else []
    if left_out:  # without unchanged submodules
        count = f"{len(left_out)} paths were" if len(left_out) > 1 else "1 path was"
        remarks.append(f"{count} not captured: git ckpt show {checkpoint.id[: ids.SHORT]}")
    return remarks


def _move(repository: Repository, staged: str, path: str) -> bool:
    """Move a complete worktree to its path; return False if another one is there."""
    try:
        os.rename(staged, path)  # not `git worktree move`, which refuses submodules
    except OSError as error:
        if os.path.lexists(path):
            return False
        raise WorktreeError(f"cannot make the worktree {path}: {error.strerror}") from None
    administration.repair(repository, path)
    return True


def _require_seen(repository: Repository, path: str) -> Repository:
    made = administration.seen_from(repository, path)
    if made is None:
        raise WorktreeError(f"git made no worktree at {path}", hint="look at the repository: git ckpt doctor")
    return made


def _require_objects(repository: Repository, checkpoint: Checkpoint) -> None:
    manifest.require_commit(repository, checkpoint)
    tree = checkpoint.tree
    graph.fetch_for(repository, tree, checkpoint.git_sha)
    if tree and repository.cat_file.info(f"{tree}:files") is None:
        raise WorktreeError(f"the files {tree} of checkpoint {checkpoint.id} are missing", hint="see what is wrong: git ckpt verify")


def _make_root(root: str) -> None:
    try:
        premises.make(root)
    except OSError as error:
        raise WorktreeError(f"cannot make {root}: {error.strerror}", hint="choose another place: git ckpt resume --into DIR") from None


def _add(repository: Repository, path: str, checkpoint: Checkpoint) -> list[bytes]:
    """Make a worktree with git; with files only if the commit is all that is known.

    Returns:
        The files that are there only as git stores them.
    """
    how = ("--no-checkout", "--detach", "--lock", "--reason", f"{ownership.LOCK_REASON} {checkpoint.run or checkpoint.id}")
    commit = checkpoint.git_sha or _empty_commit(repository)
    try:
        administration.call(repository, "add", *how, path, commit, options=_ALONE)
        if checkpoint.git_sha and not _has_files(checkpoint):  # as `git worktree add` would
            made = _require_seen(repository, path)
            try:
                return checkout.fill_from_commit(made, _ALONE)
            finally:
                made.close()
    except GitError as error:
        raise WorktreeError(f"cannot make the worktree {path}: {error.message}") from None
    return []


def _empty_commit(repository: Repository) -> str:
    # git makes no worktree without a commit: a checkpoint of an unborn branch gets an empty one.
    tree = repository.git.run("mktree").out.decode("ascii").strip()
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "gitckpt"), ("EMAIL", "gitckpt"))}
    done = repository.git.run("commit-tree", tree, "-m", "empty", env=who)
    commit = done.out.decode("ascii").strip()
    fsync.flush(fsync.object_paths(repository.common_dir, [tree, commit]))
    return commit


def _start_head(made: Repository, wish: Wish) -> None:
    if wish.branch is not None:
        made.point_head(BRANCHES + wish.branch)
    elif not wish.checkpoint.git_sha:
        branch = BRANCHES + (wish.checkpoint.branch or "main")
        free = is_free(made, branch) and made.cat_file.info(branch) is None
        made.point_head(branch if free else f"{BRANCHES}ckpt/{wish.checkpoint.id[: ids.SHORT]}")
    else:
        _note_checkout(made, wish.checkpoint)


def _note_checkout(made: Repository, checkpoint: Checkpoint) -> None:
    # `git status` reads in the reflog where HEAD was detached; only a HEAD that changes is logged.
    commit = checkpoint.git_sha
    # A fetched name is not safe as an argument.
    branch = "".join(c for c in checkpoint.branch or "" if c.isprintable())
    said = f"checkout: moving from {branch or commit} to {commit}"
    made.point_head(f"{BRANCHES}ckpt/{checkpoint.id}", options=_ALONE)
    made.point_head(commit, said, options=_ALONE)


def is_free(repository: Repository, ref: str) -> bool:
    """Return whether a ref may be a branch, and no existing worktree is on it."""
    return repository.git.run("check-ref-format", ref, ok=(0, 1)).code == 0 and not worktrees_on(repository, ref)


def worktrees_on(repository: Repository, ref: str) -> list[str]:
    """Return the existing worktrees that have a branch checked out."""
    listing = administration.call(repository, "list", "--porcelain", "-z").out
    records = [record.split(b"\0") for record in listing.split(b"\0\0") if record]
    at = {os.fsdecode(lines[0].partition(b" ")[2]) for lines in records if b"branch " + os.fsencode(ref) in lines}
    gone = {path for git_dir, path in administration.registered(repository) if path in at and ownership.is_gone(repository, git_dir, path)}
    return sorted(at - gone)


def _objects_of(made: Repository) -> Objects:
    from gitckpt.git.objects.plumbing import open_objects

    return open_objects(made, "plumbing")
