"""Open or make the worktree of a checkpoint, whatever became of it meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from gitckpt.git import config, fsync, graph
from gitckpt.git.command import NO_HOOKS
from gitckpt.git.contents import unfiltered
from gitckpt.git.files import private_dirs
from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, operation
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model import ids
from gitckpt.model.arguments import first_of
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass
from gitckpt.store import local_checkpoints
from gitckpt.store.records.ref_names import Owner
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
class OpenResult:
    """A worktree that is ready to be worked in.

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
class OpenRequest:
    """What `carry_out` opens.

    `rescue` is called before git forgets a worktree whose directory is gone, with that and its
    path; it records what is in no checkpoint. If another commit stands in, no operation comes back.
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


def carry_out(
    repository: Repository, objects: Objects, plan: ResumePlan, request: OpenRequest
) -> OpenResult | None:
    """Open or make a worktree as planned; None if another process made one meanwhile.

    Raises:
        WorktreeError: commit or files are missing, or what came back differs from what was
            captured. Nothing that existed before is changed.
    """
    private_dirs.require(request.path)
    for gone in plan.forget:
        _forget(repository, gone, request)
    if plan.relink:
        administration.repair(repository, request.path)
    if plan.action == MAKE:
        return _make(repository, objects, request)
    if plan.action == ADOPT:
        return _adopt(repository, objects, request)
    remarks = _mend_head(repository, request)
    unfiltered_files = _complete(repository, request.path)
    return OpenResult(request.path, made=False, remarks=remarks, unfiltered=unfiltered_files)


def _make(repository: Repository, objects: Objects, request: OpenRequest) -> OpenResult | None:
    _require_objects(repository, request.checkpoint)
    root = os.path.dirname(request.path)
    try:
        private_dirs.make(root)
    except OSError as error:
        raise WorktreeError(
            f"cannot make {root}: {error.strerror}",
            hint="choose another place: git ckpt resume --into DIR",
        ) from None
    with private_dirs.holding(root), ownership.around(repository, request.path) as staged:
        held = _add(repository, staged, request.checkpoint)
        remarks, held = _fill(repository, staged, objects, request, held)
        is_moved = _move(repository, staged, request.path)
    administration.flush(repository, request.path)
    if not is_moved:
        return None
    return OpenResult(request.path, made=True, remarks=remarks, unfiltered=tuple(held))


def default_root(repository: Repository, configured: str | None) -> str:
    """Return the directory in which worktrees are made.

    `configured` is `ckpt.worktreeDir`, relative to the top of the main worktree.
    """
    top = administration.main_worktree(repository)
    if configured:
        place = os.path.expanduser(configured)
        return os.path.normpath(os.path.join(top or repository.common_dir, place))
    if top is None:
        values = config.read(repository, r"^core\.bare$").get("core.bare", ["false"])
        why = "is bare" if config.is_on(values[-1]) else "does not name its main worktree"
        raise WorktreeError(
            f"no place for worktrees: {repository.common_dir} {why}",
            hint="choose one: git config ckpt.worktreeDir DIR, or git ckpt resume --into DIR",
        )
    return os.path.join(top, private_dirs.PRIVATE, "worktrees")


def _mend_head(repository: Repository, request: OpenRequest) -> tuple[str, ...]:
    # A power cut can empty HEAD: what is started there would be on no branch, or on another.
    git_dir = administration.named_by(request.path)
    if git_dir is None or not administration.lacks_head(git_dir):
        return ()
    commit = request.checkpoint.git_sha
    state = "gone" if administration.has_no_head(git_dir) else "empty or broken"
    if not commit and request.branch is None:
        raise WorktreeError(
            f"HEAD of the worktree {request.path} is {state}, "
            f"and checkpoint {request.checkpoint.id} has no commit",
            hint=f"write into {git_dir}/HEAD where it was: ref: refs/heads/BRANCH",
        )
    _require_objects(repository, request.checkpoint)
    head, position = commit, f"detached at {commit[:10]}"
    if request.branch is not None:
        head, position = f"ref: {BRANCHES}{request.branch}", f"on {request.branch}"
    administration.write_head(repository, git_dir, head)
    return (f"its HEAD was {state}, and is {position} now; what it was at before: git reflog",)


def _complete(repository: Repository, path: str) -> tuple[bytes, ...]:
    """Write unfiltered files; return those whose filter still fails."""
    with contextlib.closing(_require_seen(repository, path)) as made:
        try:
            return tuple(unfiltered.complete_in_place(made))
        except GitError as error:
            raise WorktreeError(f"cannot write files of {path}: {error.message}") from None


def _adopt(repository: Repository, objects: Objects, request: OpenRequest) -> OpenResult:
    """Turn a directory that git forgot into a worktree again."""
    _require_objects(repository, request.checkpoint)
    with ownership.around(repository, request.path) as staged:
        try:
            _add(repository, staged, request.checkpoint)
            made = _require_seen(repository, staged)
            _start_head(made, request)
            whole = manifest.contents_of(request.checkpoint, repository, objects)
            files, remarks = _operation(repository, whole, request)
            whole.operation = operation.detached(repository, files)
            with PrivateIndex(made) as index:
                manifest.turn_into(index, whole, request.checkpoint.git_sha)
                index.install()
            operation.bring_back(made, whole.operation)
            ownership.write_owner(made, request.owner)
            made.close()
            os.replace(os.path.join(staged, ".git"), os.path.join(request.path, ".git"))
            administration.repair(repository, request.path)
            administration.flush(repository, request.path)
        except GitError as error:
            message = f"cannot make {request.path} a worktree again: {error.message}"
            raise WorktreeError(message) from None
    remark = "git had forgotten it; its files are unchanged, and what is staged is the checkpoint's"
    return OpenResult(request.path, made=False, remarks=(remark, *remarks))


def _forget(repository: Repository, gone: Registration, request: OpenRequest) -> None:
    worktree = Repository(gone.git_dir, None, repository.object_format)
    with contextlib.closing(worktree):
        request.rescue(worktree, gone.path)
    administration.forget(repository, gone.git_dir)


def _fill(
    repository: Repository, staged: str, objects: Objects, request: OpenRequest, held: list[bytes]
) -> tuple[tuple[str, ...], list[bytes]]:
    """Restore the checkpoint; return remarks and the unfiltered files."""
    checkpoint = request.checkpoint
    branch, remarks = None, list[str]()
    with contextlib.closing(_require_seen(repository, staged)) as made:
        _start_head(made, request)
        if _has_files(checkpoint):
            whole = manifest.contents_of(checkpoint, made, objects)
            files, remarks = _operation(made, whole, request)
            branch = operation.rebased_branch(files)
            whole.operation = operation.detached(made, files)
            held = checkout.fill(made, whole, checkpoint.git_sha)
            _require_same(made, whole, checkpoint, request.limits)
        ownership.write_owner(made, request.owner)
        if request.limits.submodules:
            submodules.begin(made, checkpoint)
    return tuple(_remarks(checkpoint, remarks, branch)), held


def _require_same(
    made: Repository, whole: Contents, checkpoint: Checkpoint, limits: Limits
) -> None:
    from gitckpt.git.objects.plumbing import open_objects

    # Objects of its own: no ref leads to what it writes, so it must not be held while a gc runs.
    with contextlib.closing(open_objects(made, "plumbing")) as objects:
        differing = comparison.compare(made, objects, whole, checkpoint.git_sha, limits)
    if differing:
        raise WorktreeError(
            f"what came back is not what checkpoint {checkpoint.id} captured: "
            f"{first_of(differing)}",
            hint=f"look at both: git ckpt show {checkpoint.id[: ids.SHORT]}; "
            f"git ls-tree -r refs/ckpt/trees/{checkpoint.id}",
        )


def _operation(
    repository: Repository, whole: Contents, request: OpenRequest
) -> tuple[Mapping[str, bytes], list[str]]:
    if request.is_of_other_commit or not whole.operation:
        return {}, []
    if not local_checkpoints.is_captured_here(repository, request.checkpoint.id):
        return {}, [operation.FOREIGN]
    if operation.would_move(whole.operation, request.branch, request.checkpoint.branch):
        return {}, [f"the operation in progress is left out, as it would move {request.branch}"]
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
    # Without unchanged submodules.
    omitted = [entry for entry in files.omitted if entry.dirty is not False] if files else []
    if omitted:
        count = f"{len(omitted)} paths were" if len(omitted) > 1 else "1 path was"
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
        raise WorktreeError(
            f"git made no worktree at {path}", hint="look at the repository: git ckpt doctor"
        )
    return made


def _require_objects(repository: Repository, checkpoint: Checkpoint) -> None:
    manifest.require_commit(repository, checkpoint)
    tree = checkpoint.tree
    graph.fetch_for(repository, tree, checkpoint.git_sha)
    if tree and repository.cat_file.info(f"{tree}:files") is None:
        raise WorktreeError(
            f"the files {tree} of checkpoint {checkpoint.id} are missing",
            hint="see what is wrong: git ckpt verify",
        )


def _add(repository: Repository, path: str, checkpoint: Checkpoint) -> list[bytes]:
    """Make a worktree, with files only if just the commit is known."""
    reason = f"{ownership.LOCK_REASON} {checkpoint.run or checkpoint.id}"
    how = ("--no-checkout", "--detach", "--lock", "--reason", reason)
    commit = checkpoint.git_sha or _empty_commit(repository)
    try:
        administration.call(repository, "add", *how, path, commit, options=_ALONE)
        if checkpoint.git_sha and not _has_files(checkpoint):  # as `git worktree add` would
            with contextlib.closing(_require_seen(repository, path)) as made:
                return checkout.fill_from_commit(made, _ALONE)
    except GitError as error:
        raise WorktreeError(f"cannot make the worktree {path}: {error.message}") from None
    return []


def _empty_commit(repository: Repository) -> str:
    # git makes no worktree without a commit: a checkpoint of an unborn branch gets an empty one.
    tree = repository.git.run("mktree").out.decode("ascii").strip()
    keys = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
    identity = {f"GIT_{key}": "gitckpt" for key in keys}
    made = repository.git.run("commit-tree", tree, "-m", "empty", env=identity)
    commit = made.out.decode("ascii").strip()
    fsync.flush(fsync.object_paths(repository.common_dir, [tree, commit]))
    return commit


def _start_head(made: Repository, request: OpenRequest) -> None:
    if request.branch is not None:
        made.point_head(BRANCHES + request.branch)
    elif not request.checkpoint.git_sha:
        branch = BRANCHES + (request.checkpoint.branch or "main")
        free = is_free(made, branch) and made.cat_file.info(branch) is None
        made.point_head(branch if free else f"{BRANCHES}ckpt/{request.checkpoint.id[: ids.SHORT]}")
    else:
        # `git status` reads in the reflog where HEAD was detached; git logs only a HEAD that
        # changes. A fetched name is not safe as an argument.
        checkpoint, commit = request.checkpoint, request.checkpoint.git_sha
        branch = "".join(c for c in checkpoint.branch or "" if c.isprintable())
        message = f"checkout: moving from {branch or commit} to {commit}"
        made.point_head(f"{BRANCHES}ckpt/{checkpoint.id}", options=_ALONE)
        made.point_head(commit, message, options=_ALONE)


def is_free(repository: Repository, ref: str) -> bool:
    """Return whether a ref may be a branch, and no existing worktree is on it."""
    is_valid = repository.git.run("check-ref-format", ref, ok=(0, 1)).code == 0
    return is_valid and not worktrees_on(repository, ref)


def worktrees_on(repository: Repository, ref: str) -> list[str]:
    """Return the existing worktrees that have a branch checked out."""
    listing = administration.call(repository, "list", "--porcelain", "-z").out
    records = [record.split(b"\0") for record in listing.split(b"\0\0") if record]
    branch = b"branch " + os.fsencode(ref)
    paths = {os.fsdecode(lines[0].partition(b" ")[2]) for lines in records if branch in lines}
    gone = {
        path
        for git_dir, path in administration.registered(repository)
        if path in paths and ownership.is_gone(repository, git_dir, path)
    }
    return sorted(paths - gone)
