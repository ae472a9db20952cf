"""Open or make the worktree of a checkpoint.

`WorktreeOpener` executes a `ResumePlan`; `fill_worktree` restores files into an empty worktree.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence

from gitckpt.git import config, fsync, graph
from gitckpt.git.command import NO_HOOKS, encode_paths
from gitckpt.git.contents import exact_files, unfiltered
from gitckpt.git.files import private_dirs
from gitckpt.git.objects.diff import list_leaves
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.objects.plumbing import open_objects
from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, operation
from gitckpt.git.worktree import index as sparse
from gitckpt.git.worktree.index import PARALLEL, PrivateIndex
from gitckpt.model import ids
from gitckpt.model.arguments import join_first
from gitckpt.model.checkpoint import CLEAN, Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.model.values import dataclass
from gitckpt.store import local_checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.records.ref_names import WorktreeOwner
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.snapshot.limits import Limits
from gitckpt.store.snapshot.manifest import SKIPPED, Snapshot
from gitckpt.store.worktrees import ownership
from gitckpt.store.worktrees.plan import ADOPT, MAKE, ResumePlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import ObjectDatabase

_ALONE = (*NO_HOOKS, "-c", "worktree.useRelativePaths=false")


@dataclass(frozen=True, slots=True)
class OpenResult:
    """A worktree that is ready to work in."""

    path: str  # of its top
    made: bool  # whether it was made just now; else its files were not changed
    remarks: tuple[str, ...] = ()  # sentences for the user
    # Files written as git stores them because a filter fails; opening again filters them.
    unfiltered: tuple[bytes, ...] = ()
    # The older checkpoint that it is at, if the run was continued elsewhere; see `Run.resume`.
    behind: str | None = None


@dataclass(frozen=True, slots=True)
class WorktreeOpener:
    """Opens or makes the worktree of a checkpoint, by the steps of a `ResumePlan`.

    `rescue` is called with the git directory and the path of a deleted worktree, to record what
    only its index has. If `is_of_other_commit`, the checkpoint's commit was replaced by another
    one, and the operation in progress is not restored.
    """

    repository: Repository
    objects: ObjectDatabase
    checkpoint: Checkpoint
    plan: ResumePlan
    owner: WorktreeOwner
    limits: Limits
    rescue: Callable[[str, str], None]
    is_of_other_commit: bool

    def open(self) -> OpenResult | None:
        """Open or make the worktree; return None if another process made one meanwhile.

        Raises:
            WorktreeError: the commit or files of the checkpoint are missing, or the new worktree
                differs from the checkpoint. Nothing that existed before is changed.
        """
        repository, plan = self.repository, self.plan
        private_dirs.require_own_directory(plan.path)
        for entry in plan.forget:
            self.rescue(entry.git_dir, entry.path)
            administration.remove_git_dir(repository, entry.git_dir)
        if plan.relink:
            administration.repair_worktree(repository, plan.path)
        if plan.action == MAKE:
            return self._make_worktree()
        if plan.action == ADOPT:
            return self._register_directory()
        remarks = self._repair_head()
        with contextlib.closing(_open_worktree(repository, plan.path)) as worktree:
            try:
                failing_paths = tuple(unfiltered.filter_recorded_again(worktree))
            except GitError as error:
                message = f"cannot write files of {plan.path}: {error.message}"
                raise WorktreeError(message) from None
        return OpenResult(plan.path, False, remarks, failing_paths)

    def _make_worktree(self) -> OpenResult | None:
        repository, path = self.repository, self.plan.path
        self._require_objects()
        root = os.path.dirname(path)
        try:
            private_dirs.make_private_directory(root)
        except OSError as error:
            hint = "choose another directory: git ckpt resume ID --into DIR"
            raise WorktreeError(f"cannot make {root}: {error.strerror}", hint=hint) from None
        temporary_path = ownership.temporary_path(repository, path)
        with private_dirs.hold_directory_open(root), temporary_path as new_path:
            remarks, failing_paths = self._fill_new_worktree(new_path)
            is_moved = _move_worktree(repository, new_path, path)
        administration.flush_worktree(repository, path)
        paths = tuple(failing_paths)
        return OpenResult(path, True, tuple(remarks), paths) if is_moved else None

    @contextlib.contextmanager
    def open_scratch(self) -> Iterator[str]:
        """Yield a new worktree, and remove it; after a kill, maintenance does so."""
        self._require_objects()
        root = os.path.dirname(self.plan.path)
        private_dirs.make_private_directory(root)
        ownership.remove_half_made(self.repository, root)
        temporary_path = ownership.temporary_path(self.repository, self.plan.path)
        with private_dirs.hold_directory_open(root), temporary_path as path:
            self._fill_new_worktree(path)
            yield path

    def _fill_new_worktree(self, path: str) -> tuple[list[str], list[bytes]]:
        failing_paths = self._add_worktree(path)
        with contextlib.closing(_open_worktree(self.repository, path)) as worktree:
            return self._restore_files(worktree, failing_paths)

    def _register_directory(self) -> OpenResult:
        """Register a worktree that git forgot with git again; leave its files as they are."""
        self._require_objects()
        repository, path = self.repository, self.plan.path
        with ownership.temporary_path(repository, path) as temporary_path:
            try:
                self._add_worktree(temporary_path)
                worktree = _open_worktree(repository, temporary_path)
                self._set_head(worktree)
                contents = manifest.contents_of(self.checkpoint, repository, self.objects)
                files, remarks = self._choose_operation(repository, contents)
                contents.operation = operation.detach_operation(repository, files)
                with PrivateIndex(worktree) as index:
                    manifest.set_index_to_snapshot(index, contents, self.checkpoint.git_sha)
                    index.replace_user_index()
                operation.restore_operation(worktree, contents.operation)
                ownership.write_owner(worktree, self.owner)
                worktree.close()
                os.replace(os.path.join(temporary_path, ".git"), os.path.join(path, ".git"))
                administration.repair_worktree(repository, path)
                administration.flush_worktree(repository, path)
            except GitError as error:
                message = f"cannot make {path} a worktree again: {error.message}"
                raise WorktreeError(message) from None
        remark = "git had removed the worktree from its list; the files are unchanged, "
        remark += "and the index is that of the checkpoint"
        return OpenResult(path, made=False, remarks=(remark, *remarks))

    @property
    def _has_captured_files(self) -> bool:
        files = self.checkpoint.worktree
        return files is not None and bool(files.tree or not files.degraded)

    def _repair_head(self) -> tuple[str, ...]:
        # A power cut can empty HEAD; new commits would be on no branch, or on a wrong one.
        path, branch, commit = self.plan.path, self.plan.branch, self.checkpoint.git_sha
        git_dir = administration.git_dir_of(path)
        if git_dir is None or not administration.lacks_valid_head(git_dir):
            return ()
        state = "gone" if administration.has_no_head(git_dir) else "empty or broken"
        if not commit and branch is None:
            hint = f"write the branch into {git_dir}/HEAD: ref: refs/heads/BRANCH"
            reason = f"is {state}, and checkpoint {self.checkpoint.id} has no commit"
            raise WorktreeError(f"HEAD of the worktree {path} {reason}", hint=hint)
        self._require_objects()
        head, position = commit, f"detached at {commit[:10]}"
        if branch is not None:
            head, position = f"ref: {BRANCHES}{branch}", f"on {branch}"
        administration.write_head(self.repository, git_dir, head)
        return (f"HEAD was {state}, and is {position} now; to see the commits before: git reflog",)

    def _restore_files(
        self, worktree: Repository, still_failing: list[bytes]
    ) -> tuple[list[str], list[bytes]]:
        checkpoint, captured = self.checkpoint, self.checkpoint.worktree or CLEAN
        remarks, last_remarks = list[str](), list[str]()
        self._set_head(worktree)
        if captured.degraded:
            remarks.append(f"the worktree has the files of the commit only: {captured.degraded}")
        if self._has_captured_files:
            contents = manifest.contents_of(checkpoint, worktree, self.objects)
            files, last_remarks = self._choose_operation(worktree, contents)
            branch = operation.find_rebased_branch(files)
            if branch is not None:
                remarks.append(operation.hint_on_branch(branch))
            contents.operation = operation.detach_operation(worktree, files)
            show_command = f"git ckpt show {checkpoint.id[: ids.SHORT]}"
            hint = f"compare: {show_command}; git ls-tree -r refs/ckpt/trees/{checkpoint.id}"
            still_failing = fill_worktree(worktree, contents, checkpoint, self.limits, hint)
        ownership.write_owner(worktree, self.owner)
        if self.limits.submodules:
            _mark_submodules_missing(worktree, checkpoint)
        # An unchanged submodule is no loss.
        if omitted_count := sum(entry.dirty is not False for entry in captured.omitted):
            count = f"{omitted_count} paths were" if omitted_count > 1 else "1 path was"
            last_remarks.append(f"{count} not captured: git ckpt show {checkpoint.id[: ids.SHORT]}")
        return remarks + last_remarks, still_failing

    def _choose_operation(
        self, repository: Repository, contents: Snapshot
    ) -> tuple[Mapping[str, bytes], list[str]]:
        branch, checkpoint = self.plan.branch, self.checkpoint
        if self.is_of_other_commit or not contents.operation:
            return {}, []
        if not local_checkpoints.is_captured_here(repository, checkpoint.id):
            return {}, [operation.FOREIGN]
        if operation.would_move_branch(contents.operation, branch, checkpoint.branch):
            return {}, [f"the operation in progress is not restored, as that would move {branch}"]
        return contents.operation, []

    def _require_objects(self) -> None:
        checkpoint, tree = self.checkpoint, self.checkpoint.tree
        manifest.require_linked_commit(self.repository, checkpoint)
        graph.fetch_trees_of(self.repository, tree, checkpoint.git_sha)
        if tree and self.repository.cat_file.info(f"{tree}:files") is None:
            message = f"the files {tree} of checkpoint {checkpoint.id} are missing"
            raise WorktreeError(message, hint="find the cause: git ckpt verify")

    def _add_worktree(self, path: str) -> list[bytes]:
        """Add a worktree, empty unless the checkpoint has a commit and no captured files."""
        repository, checkpoint = self.repository, self.checkpoint
        reason = f"{ownership.LOCK_REASON} {checkpoint.run or checkpoint.id}"
        options = ("--no-checkout", "--detach", "--lock", "--reason", reason)
        commit = checkpoint.git_sha or _make_empty_commit(repository)
        try:
            administration.run_git(repository, "add", *options, path, commit, options=_ALONE)
            if checkpoint.git_sha and not self._has_captured_files:  # as `git worktree add` would
                with contextlib.closing(_open_worktree(repository, path)) as worktree:
                    return fill_from_head(worktree, _ALONE)
        except GitError as error:
            raise WorktreeError(f"cannot make the worktree {path}: {error.message}") from None
        return []

    def _set_head(self, worktree: Repository) -> None:
        checkpoint, commit = self.checkpoint, self.checkpoint.git_sha
        if self.plan.branch is not None:
            worktree.set_head(BRANCHES + self.plan.branch)
        elif not commit:
            branch = BRANCHES + (checkpoint.branch or "main")
            if not is_branch_unused(worktree, branch) or worktree.cat_file.info(branch) is not None:
                branch = f"{BRANCHES}ckpt/{checkpoint.id[: ids.SHORT]}"
            worktree.set_head(branch)
        else:
            # `git status` reads in the reflog where HEAD was detached, so HEAD has to change twice.
            # A fetched name is not safe as an argument.
            branch = "".join(filter(str.isprintable, checkpoint.branch or ""))
            message = f"checkout: moving from {branch or commit} to {commit}"
            worktree.set_head(f"{BRANCHES}ckpt/{checkpoint.id}", options=_ALONE)
            worktree.set_head(commit, message, options=_ALONE)


def worktrees_dir(repository: Repository, configured: str | None) -> str:
    """Return the directory for worktrees; `configured` is the setting for it, if set."""
    main_worktree = administration.main_worktree(repository)
    if configured:
        directory = os.path.expanduser(configured)
        return os.path.normpath(os.path.join(main_worktree or repository.common_dir, directory))
    if main_worktree is None:
        values = config.read_settings(repository, r"^core\.bare$").get("core.bare", ["false"])
        reason = "is bare" if config.is_true(values[-1]) else "does not name its main worktree"
        hint = (
            "choose a directory: git config ckpt.worktreeDir DIR, or git ckpt resume ID --into DIR"
        )
        message = f"no directory for worktrees: {repository.common_dir} {reason}"
        raise WorktreeError(message, hint=hint)
    return os.path.join(main_worktree, private_dirs.PRIVATE, "worktrees")


def _move_worktree(repository: Repository, temporary: str, path: str) -> bool:
    try:
        os.rename(temporary, path)  # not `git worktree move`, which refuses submodules
    except OSError as error:
        if os.path.lexists(path):
            return False
        raise WorktreeError(f"cannot make the worktree {path}: {error.strerror}") from None
    administration.repair_worktree(repository, path)
    return True


def _open_worktree(repository: Repository, path: str) -> Repository:
    worktree = administration.open_linked_worktree(repository, path)
    if worktree is None:
        hint = "check the repository: git ckpt doctor"
        raise WorktreeError(f"git made no worktree at {path}", hint=hint)
    return worktree


def _make_empty_commit(repository: Repository) -> str:
    # git makes no worktree without a commit: for an unborn branch, it starts at an empty commit.
    tree = repository.git.run("mktree").out.decode("ascii").strip()
    keys = ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL")
    identity = {f"GIT_{key}": "gitckpt" for key in keys}
    output = repository.git.run("commit-tree", tree, "-m", "empty", env=identity).out
    commit = output.decode("ascii").strip()
    fsync.flush(fsync.object_paths(repository.common_dir, [tree, commit]))
    return commit


def is_branch_unused(repository: Repository, ref: str) -> bool:
    is_valid = repository.git.run("check-ref-format", ref, ok=(0, 1)).code == 0
    return is_valid and not worktrees_with_branch(repository, ref)


def worktrees_with_branch(repository: Repository, ref: str) -> list[str]:
    listing = administration.run_git(repository, "list", "--porcelain", "-z").out
    records = [record.split(b"\0") for record in listing.split(b"\0\0") if record]
    branch = b"branch " + os.fsencode(ref)
    paths = {os.fsdecode(lines[0].partition(b" ")[2]) for lines in records if branch in lines}
    for git_dir, path in administration.list_worktrees(repository):
        if path in paths and ownership.is_worktree_deleted(repository, git_dir, path):
            paths.remove(path)
    return sorted(paths)


def fill_worktree(
    worktree: Repository, contents: Snapshot, checkpoint: Checkpoint, limits: Limits, hint: str = ""
) -> list[bytes]:
    """Restore a checkpoint into an empty worktree, and check the restored files.

    Returns the files that stay unfiltered because their filter fails. Raises WorktreeError, with
    `hint`, if the files differ from the checkpoint.
    """
    commit = checkpoint.git_sha
    try:
        # git-crypt looks for its keys in each worktree's git directory; the first one has them.
        keys_dir = os.path.join(worktree.common_dir, "git-crypt")
        link = os.path.join(worktree.git_dir, "git-crypt")
        if os.path.isdir(keys_dir) and not os.path.lexists(link):
            os.symlink(keys_dir, link)
        sparse.restore_sparse_checkout(worktree, contents.sparse)
        with PrivateIndex(worktree) as index:
            failing_paths = _write_files(index, contents)
            if contents.directories or contents.modes:
                top = worktree.worktree or ""
                exact_files.bring_back(top, contents.directories, contents.modes)
                index.refresh_stat_data()  # their ctime has changed
            if contents.absent_paths:
                # Skipped entries without a file, whatever the patterns of the sparse checkout; but
                # only paths that git has written: others are unsafe.
                paths = {path for path, *_, tag in index.list_entries() if tag == b"H"}
                for path in paths.intersection(contents.absent_paths):
                    absolute_path = os.path.join(os.fsencode(worktree.worktree or ""), path)
                    is_submodule = stat.S_ISDIR(os.lstat(absolute_path).st_mode)
                    (os.rmdir if is_submodule else os.unlink)(absolute_path)
            raw_oids = manifest.raw_files(worktree, contents)
            exact_files.restore_raw_bytes(worktree, raw_oids)
            exact_files.refresh_index_entries(index, raw_oids.keys())
            if failing_paths:
                unfiltered.forget_unfiltered_files(worktree, raw_oids)
            if unfiltered.uses_git_annex(worktree):
                blobs = blobs_of(worktree, contents.files).items()
                annexed = {path: oid for path, oid in blobs if path not in raw_oids}
                unfiltered.populate_annexed_files(index, annexed)
            manifest.set_index_to_snapshot(index, contents, commit, contents.files)
            index.replace_user_index()
        operation.restore_operation(worktree, contents.operation)
    except GitError as error:
        if missing_oids := graph.list_missing_objects(worktree, contents.files, None):
            has_promisor = graph.find_promisor_remote(worktree) is not None
            raise graph.missing_objects_error(missing_oids, is_promised=has_promisor) from None
        message = f"cannot restore the files {contents.files}: {error.message}"
        raise WorktreeError(message, hint=error.hint) from None
    # A separate writer, closed at once: no ref protects the objects that it writes from a gc.
    with contextlib.closing(open_objects(worktree, "plumbing")) as objects:
        differences = comparison.compare_with_worktree(worktree, objects, contents, commit, limits)
    if differences:
        reason = f"the restored files differ from checkpoint {checkpoint.id}"
        raise WorktreeError(f"{reason}: {join_first(differences)}", hint=hint or None)
    return [path for path in failing_paths if path not in raw_oids]


def fill_from_head(worktree: Repository, options: Sequence[str]) -> list[bytes]:
    """Check out HEAD in an empty worktree; return the files whose filter fails."""
    progress = worktree.counter("restoring files")

    def run_reset(filter_options: list[str]) -> None:
        verbosity = "--quiet" if progress is None else "--no-quiet"
        arguments = ("reset", verbosity, "--hard", "--no-recurse-submodules")
        env = graph.variables_allowing_fetch(worktree)
        words = (*PARALLEL, *options, *filter_options, *arguments)
        worktree.git.run(*words, env=env, progress=progress)

    paths, failing_paths = unfiltered.write_files_despite_filters(
        worktree, lambda: blobs_of(worktree, "HEAD"), run_reset
    )
    has_annex = unfiltered.uses_git_annex(worktree)
    if paths or has_annex:
        with PrivateIndex(worktree) as index:
            unfiltered.stage_files(index, paths, failing_paths)
            if has_annex:
                unfiltered.populate_annexed_files(index, blobs_of(worktree, "HEAD"))
            index.replace_user_index()
    return sorted(failing_paths)


def blobs_of(repository: Repository, tree: str) -> dict[bytes, str]:
    return {path: oid for path, mode, oid in list_leaves(repository, tree) if mode != GITLINK}


def _write_files(index: PrivateIndex, contents: Snapshot) -> list[bytes]:
    repository, fetch_env = index.repository, graph.variables_allowing_fetch(index.repository)
    progress = repository.counter("restoring files")
    switches = ("--reset", "-u") if progress is None else ("--reset", "-u", "-v")

    def attempt(options: list[str]) -> None:
        command = (*PARALLEL, "read-tree", *switches, contents.files)
        index.run(*options, *command, env=fetch_env, progress=progress)
        if contents.sparse is None:
            return
        # Captured files that the sparse checkout excludes.
        captured_skips = set(contents.flags.get(SKIPPED, ()))
        skipped_paths = [path for path, *_, tag in index.list_entries() if tag == b"S"]
        if to_write := [path for path in skipped_paths if path not in captured_skips]:
            index.update_paths("--no-skip-worktree", to_write)
            arguments = ("checkout-index", "--force", "--index", "-z", "--stdin")
            index.run(*options, *PARALLEL, *arguments, data=encode_paths(to_write), env=fetch_env)

    tree = contents.files
    paths, failing_paths = unfiltered.write_files_despite_filters(
        repository, lambda: blobs_of(repository, tree), attempt
    )
    if paths:
        unfiltered.stage_files(index, paths, failing_paths)
    return sorted(failing_paths)


def _mark_submodules_missing(worktree: Repository, checkpoint: Checkpoint) -> None:
    # A marker file: `resume` makes the missing submodules, even after a kill.
    if checkpoint.worktree is not None and checkpoint.worktree.submodules:
        marker = os.path.join(worktree.git_dir, ref_names.SUBMODULES_FILE)
        with open(marker, "w", encoding="ascii") as file:
            file.write(f"{checkpoint.id}\n")
