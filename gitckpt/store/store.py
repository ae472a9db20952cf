"""Define `Store`: all operations on the checkpoints of a repository."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import NoneType

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError, find_fetch_hint
from gitckpt.git.repository import open_repository
from gitckpt.model import arguments, ids
from gitckpt.model.arguments import require, require_callable, require_path, require_text, strings
from gitckpt.model.checkpoint import Checkpoint, Worktree
from gitckpt.model.errors import BusyError, NotFoundError, UsageError, WorktreeError
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.error_log import Listener
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import draft

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, Unpack

    from gitckpt.model.jsonable import StateChange
    from gitckpt.model.policy import Policy
    from gitckpt.store.audit.doctor import Diagnosis
    from gitckpt.store.audit.verification import Report
    from gitckpt.store.config.settings import Loosening
    from gitckpt.store.hooks.installation import Installation
    from gitckpt.store.records.entry import CheckpointInfo, Problem, Query
    from gitckpt.store.records.recorder import Guard
    from gitckpt.store.restore.restorer import RestoreResult
    from gitckpt.store.restore.undo import UndoStep
    from gitckpt.store.retention.expiry import ExpireResult
    from gitckpt.store.runs.summary import History, RunInfo
    from gitckpt.store.snapshot.limits import Limits
    from gitckpt.store.snapshot.manifest import Extras
    from gitckpt.store.usage import Usage
    from gitckpt.store.worktrees.opener import OpenResult

    _Path = str | bytes | os.PathLike[str]
    _Announce = Callable[[Sequence[str]], None]


class Store:
    """Read and write the checkpoints of one repository; a context manager.

        with Store.open() as store: saved = store.save("plan-complete", {"step": 3})

    Threads may share a store; a forked process must open its own. A `checkpoint` argument is a
    `Checkpoint` or a full id; for an id, methods also raise the errors of `read`.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        if not isinstance(checkpoints, Checkpoints):
            raise UsageError("Store() takes no path", hint="open a repository: Store.open(path)")
        self._checkpoints = checkpoints

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] = ".",
        *,
        adapter: str = "auto",
        listener: Listener | None = None,
    ) -> Self:
        """Open the store of the repository that contains `path`, or raise RepositoryError.

        `adapter` is "libgit2" (faster for many calls), "plumbing" (runs git) or "auto" (chooses).
        Variables such as `GIT_DIR` are obeyed only if `path` is the current directory.
        """
        require_path("path", path, as_text=True)
        require_text("adapter", adapter)
        require("listener", listener, (Listener, NoneType), "a Listener")
        name = os.fspath(path)
        # Otherwise a program started by a hook would open the repository of the hook.
        is_current = not os.path.exists(name) or os.path.samefile(name, os.curdir)
        repository = open_repository(name, by_variables=is_current)
        return cls(Checkpoints(repository, adapter=adapter, listener=listener))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write queued notes, end git processes and close files; failures are logged."""
        self._checkpoints.close()

    @property
    def worktree(self) -> str | None:
        """The top of the worktree in which checkpoints are recorded; None if bare."""
        return self._checkpoints.repository.worktree

    @property
    def run(self) -> str | None:
        """The id of the run that this worktree was created for, or None."""
        from gitckpt.store.worktrees import ownership

        owner = ownership.owner(self._checkpoints.repository)
        return owner.run if owner is not None else None

    def capture(self, limits: Limits | None = None) -> Worktree:
        """Capture the worktree, to pass to `record`; the default limits have no timeout."""
        return self._checkpoints.capture(limits)

    def record(
        self,
        label: str,
        state: Mapping[str, Any] | None = None,
        *,
        worktree: Worktree | None = None,
        start: str | None = None,
        key: str | None = None,
        base: str | None = None,
        **details: Unpack[draft.Details],
    ) -> Checkpoint:
        """Record a checkpoint; when this returns, it is on disk.

        Args:
            label: `{phase}-{status}`, such as "research-failed"; without a status, "complete".
            state: JSON values, bytes, dates and times by name; None copies the run's newest state.
            worktree: the result of `capture`; None if the files equal those of the linked commit.
            start: name of a new run, instead of `run`; `run_of` returns the run with a `key`.
            base: rev or full oid of the commit to link, instead of HEAD; "" to link no commit.

        Raises UsageError, StateError, NotFoundError, RunExists, LeaseLost or BusyError.
        """
        checkpoints, guard = self._checkpoints, self._guard(details)
        if isinstance(base, str) and base != "":
            # The running cat-file process checks a full oid; that of a tag must be peeled.
            info = checkpoints.repository.cat_file.info(base) if ids.is_oid(base) else None
            if info is None or info[1] != "commit":
                base = checkpoints.repository.commit_or_unborn(base)
        return checkpoints.record(
            label, state, worktree=worktree, start=start, key=key, base=base, guard=guard, **details
        )

    def save(
        self,
        label: str,
        state: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        start: str | None = None,
        key: str | None = None,
        **details: Unpack[draft.Details],
    ) -> Checkpoint:
        """Call `capture`, then `record`; BusyError if HEAD keeps moving meanwhile."""
        guard = self._guard(details)
        return self._checkpoints.save(
            label, state, limits=limits, start=start, key=key, guard=guard, **details
        )

    def read(self, checkpoint_id: str) -> Checkpoint:
        """Return the checkpoint with a full id, or raise NotFoundError, InvalidCheckpoint."""
        return self._checkpoints.read(checkpoint_id)

    def raw(self, checkpoint_id: str) -> bytes:
        """Return the stored bytes of a checkpoint's document; raises the errors of `read`."""
        return self._checkpoints.raw(checkpoint_id)

    def find(self, text: str) -> str:
        """Resolve a name to a checkpoint's id, or raise NotFoundError, AmbiguousError.

        `text` is a rev, "latest", "latest:any", or at least 4 characters of an id or run id.
        """
        return self._checkpoints.find(text)

    def list(self, query: Query | None = None) -> Sequence[CheckpointInfo]:
        """List checkpoints that match a query, newest first; None lists all of them."""
        return self._checkpoints.list(query)

    def links(self, commit: str) -> Sequence[CheckpointInfo]:
        """List checkpoints linked to a rev, a missing commit's full oid, or "" (unborn)."""
        require_text("commit", commit)
        inside = self._checkpoints
        try:
            oid = inside.repository.commit(commit) if commit else ""
        except NotFoundError:
            if not ids.is_oid(commit):
                raise
            oid = commit
        return inside.links(oid)

    def changed_files(self, entries: Sequence[CheckpointInfo]) -> Mapping[str, int]:
        """Count, by checkpoint id, the captured files that differ from the linked commit."""
        from gitckpt.store.records import finder

        inside = self._checkpoints
        return finder.count_changes(inside.repository, inside.index, _require_entries(entries))

    def problems(self) -> Sequence[Problem]:
        """List the refs below `refs/checkpoints/` that are not valid checkpoints."""
        return self._checkpoints.problems()

    def replaced(self, entries: Sequence[CheckpointInfo]) -> Mapping[str, str]:
        """Return the original oids, by id, of the checkpoints that a fetch has replaced."""
        oids = {entry.id: entry.oid for entry in _require_entries(entries)}
        return LocalCheckpoints.read(self._checkpoints.repository, oids).replaced(oids)

    def resume(
        self, checkpoint: Checkpoint | str, directory: str | os.PathLike[str] | None = None
    ) -> OpenResult:
        """Return the worktree to continue a checkpoint in, or raise WorktreeError.

        Creates a missing worktree, in `directory` if given.
        """
        from gitckpt.store.worktrees import resumption

        return resumption.resume(self._checkpoints, self._resolve(checkpoint), directory)

    def worktrees_made_from(self, checkpoint_ids: Collection[str]) -> Mapping[str, str]:
        """Return worktrees that `resume` created from these checkpoints: id by path."""
        from gitckpt.store.worktrees import ownership

        names = strings("checkpoint_ids", checkpoint_ids)
        return dict(ownership.made_from(self._checkpoints.repository, names))

    def rewritten(self) -> Sequence[CheckpointInfo]:
        """List checkpoints whose commits `git filter-repo` rewrote; they may need a purge."""
        return self._checkpoints.rewritten()

    def remove(self, checkpoint_ids: Collection[str]) -> int:
        """Remove checkpoints by full id; return the number of deleted checkpoint refs.

        NotFoundError: nothing was removed. BusyError: some may be removed, but none only in part.
        """
        for checkpoint_id in strings("checkpoint_ids", checkpoint_ids):
            ids.require_id(checkpoint_id)
        return self._checkpoints.remove(checkpoint_ids)

    def _guard(self, details: draft.Details) -> Guard | None:
        draft.require_known(details)  # checked here, because `Checkpoints` accepts more arguments
        return self._checkpoints.bound(details.get("run"))

    # Runs

    def find_run(self, text: str) -> str:
        """Resolve a run id or its prefix, or raise NotFoundError, AmbiguousError."""
        from gitckpt.store.records import finder

        require_text("text", text)
        return finder.find_run(text, self._checkpoints.index)

    def run_named(self, text: str) -> str | None:
        """Resolve a run id or its prefix; None if no run matches; or AmbiguousError."""
        from gitckpt.store.records import finder

        return finder.named_run(text, self._checkpoints.repository, self._checkpoints.index)

    def newest(self, run: str) -> Checkpoint:
        """Return a run's newest checkpoint, or raise NotFoundError, InvalidCheckpoint."""
        return self._checkpoints.heads.catch_up(ids.require_run_id(run))

    def is_ours(self, checkpoint: Checkpoint | str) -> bool:
        """Return whether this clone wrote a checkpoint, or the user adopted it as trusted."""
        from gitckpt.store.runs import trust

        return trust.is_ours(self._checkpoints, self._resolve(checkpoint))

    def runs(self) -> Sequence[RunInfo]:
        """List all runs with their status, ordered by newest checkpoint, newest first."""
        from gitckpt.store.runs import summary

        return summary.summaries(self._checkpoints)

    def unfinished_runs(self) -> Sequence[RunInfo]:
        """List the unfinished runs of this worktree without a live driver, newest first."""
        from gitckpt.store.runs import summary

        return summary.unfinished(self._checkpoints)

    def made_elsewhere(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return checkpoints and runs of other worktrees of this clone: worktree by id."""
        from gitckpt.store.runs import summary

        return summary.made_elsewhere(self._checkpoints, strings("names", names))

    def history(self, run: str) -> History:
        """Return the phases of one run, or raise NotFoundError."""
        from gitckpt.store.runs import summary

        return summary.read(self._checkpoints, run)

    def cancel(self, run: str, *, wait: float = 30.0) -> bool:
        """Stop the driver of a run, which stays resumable; return whether one was found.

        CkptError if the driver still runs after `wait` seconds. 0 asks it to stop, without signal.
        """
        from gitckpt.store.leases.leases import cancel

        arguments.require_seconds("wait", wait)
        leases, tell = self._checkpoints.leases, self._checkpoints.announce
        return cancel(leases, ids.require_run_id(run), wait=wait, tell=tell)

    def take_over(self, run: str, *, holder: str = "a program") -> None:
        """Take the lease of a run whose driver is stalled; else raise LeaseHeld."""
        require_text("holder", holder)
        inside = self._checkpoints
        inside.heads.read(ids.require_run_id(run))
        inside.leases.acquire(run, holder, take_over=True).release()

    def run_of(self, key: str) -> str | None:
        """Return the id of the run that was started with a key, or None."""
        return self._checkpoints.claim(key).run()

    def latest_resumable(self) -> Checkpoint | None:
        """Return the newest checkpoint of an unfinished run or phase of this worktree."""
        from gitckpt.store.runs import summary

        return summary.latest_resumable(self._checkpoints)

    def remove_run(self, run: str) -> int:
        """Remove a run, its worktree, lease and files; return how many checkpoints it had.

        Raises LeaseHeld, WorktreeError (uncaptured changes) or UsageError (named by another run).
        """
        from gitckpt.store.retention import expiry

        return expiry.remove(self._checkpoints, ids.require_run_id(run))

    # Files

    def restore(
        self,
        checkpoint: Checkpoint | str,
        paths: Sequence[_Path] | None = None,
        *,
        index: bool = False,
        dry_run: bool = False,
        announce: _Announce = lambda _: None,
        trust: bool = False,
    ) -> RestoreResult:
        """Restore files into this worktree, after a safety checkpoint; HEAD does not move.

        Restores `paths` (relative to the top), and with `index` their index entries; if None, all
        files, the index and an operation in progress. `announce` gets warnings before any change;
        `trust` accepts a fetched document. NotFoundError or WorktreeError: nothing has changed.
        """
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        resolved, names = self._resolve(checkpoint), [] if paths is None else _encode_paths(paths)
        options = {"index": index, "dry_run": dry_run, "trusted": trust}
        return restorer.restore(self._checkpoints, resolved, names, announce=announce, **options)

    def undo(self, *, dry_run: bool = False, announce: _Announce = lambda _: None) -> RestoreResult:
        """Undo the newest `restore` of this worktree that is not undone; or NotFoundError."""
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        return restorer.undo(self._checkpoints, dry_run=dry_run, announce=announce)

    def redo(self, *, dry_run: bool = False, announce: _Announce = lambda _: None) -> RestoreResult:
        """Redo the newest `undo` since the last `restore`, or raise NotFoundError."""
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        return restorer.redo(self._checkpoints, dry_run=dry_run, announce=announce)

    def undo_steps(self) -> Sequence[UndoStep]:
        """List the next steps of `undo` in this worktree, then those of `redo`."""
        from gitckpt.store.restore import undo

        return undo.steps(self._checkpoints)

    def is_cut_off(self) -> bool:
        """Return whether the newest restore was interrupted: files may be old or new."""
        from gitckpt.store.restore import undo

        return undo.read(self._checkpoints).open is not None

    def diff(
        self,
        before: Checkpoint | str,
        after: Checkpoint | str | None = None,
        *,
        paths: Sequence[_Path] = (),
        options: Sequence[str] = (),
    ) -> bytes:
        """Return git's diff from `before` to `after`, or to this worktree if None.

        `paths` are pathspecs relative to the current directory; `options` are those of `git diff`.
        NotFoundError if a pathspec matches no file; WorktreeError if the repository lacks contents.
        """
        from gitckpt.store.snapshot import comparison, manifest

        inside, paths = self._checkpoints, arguments.as_paths(paths)
        first, second = self._resolve(before), None if after is None else self._resolve(after)
        # First check for missing objects: a capture of the same files would write them again.
        manifest.files_of(inside.repository, first)
        if second is not None:
            where = f"in checkpoint {second.id[: ids.SHORT]}"
            files = second.tree, second.git_sha
        elif inside.repository.worktree is not None:
            where = "among the captured files here"
            files = inside.capture(recursive=False).tree, inside.objects.head()[0]
        else:
            hint = "compare two checkpoints: git ckpt diff ID ID"
            raise WorktreeError("there is no worktree here to compare with", hint=hint)
        sides = (first.tree, first.git_sha), files
        trees = comparison.comparable_trees(inside.repository, inside.objects, *sides)
        self._require_matches(trees, paths, f"in checkpoint {first.id[: ids.SHORT]} or {where}")
        return self._compare(*trees, paths, options)

    def diff_commit(
        self,
        checkpoint: Checkpoint | str,
        *,
        paths: Sequence[_Path] = (),
        options: Sequence[str] = (),
    ) -> bytes:
        """Return git's diff from a checkpoint's linked commit to its files; see `diff`."""
        from gitckpt.store.snapshot import manifest

        repository, resolved = self._checkpoints.repository, self._resolve(checkpoint)
        base = manifest.tree_of_files(repository, None, resolved.git_sha)
        files = manifest.files_of(repository, resolved)
        return self._compare(base, files, arguments.as_paths(paths), options)

    def _require_matches(self, trees: Sequence[str], paths: Sequence[_Path], where: str) -> None:
        empty_tree = object_id("tree", b"", self._checkpoints.repository.object_format)
        unmatched = [  # perhaps typos
            os.fsdecode(path)
            for path in paths
            if not any(self._compare(empty_tree, tree, [path], ["--name-only"]) for tree in trees)
        ]
        if unmatched:
            hint = "paths are relative to the current directory; see: git ckpt diff ID --stat"
            names = arguments.join_first(unmatched)
            raise NotFoundError(f"no file {where} matches {names}", hint=hint)

    def _compare(self, old: str, new: str, paths: Sequence[_Path], options: Sequence[str]) -> bytes:
        repository = self._checkpoints.repository
        try:
            cwd = ["-C", os.getcwd()] if repository.worktree else []
        except FileNotFoundError:  # deleted: paths are relative to the top
            cwd = []
        options = arguments.as_words("options", options)
        command = [*cwd, "diff", "--no-color", *options, old, new, "--", *map(os.fsdecode, paths)]
        try:
            return repository.git.run(*command).out
        except GitError as error:
            if find_fetch_hint(error.stderr) is None:
                raise
            problem = "this partial clone lacks contents of files, and diff fetches nothing"
            hint = f"fetch the contents: git diff --numstat {old} {new}; then run the command again"
            raise WorktreeError(problem, hint=hint) from None

    def file(self, checkpoint: Checkpoint | str, path: _Path, *, beside: bool = False) -> bytes:
        """Return a file's content; with `beside`, that of a file listed by `beside()`."""
        from gitckpt.store.snapshot import manifest

        require_path("path", path)
        repository, resolved = self._checkpoints.repository, self._resolve(checkpoint)
        return manifest.content(repository, resolved, os.fsencode(path), beside=beside)

    def beside(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """List the files that a run keeps outside its worktree: inputs and phase outputs."""
        from gitckpt.store.runs import run_files

        return run_files.names(self._checkpoints.repository, self._resolve(checkpoint).tree)

    def masked(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """List the files of `beside()` in which likely secrets were masked."""
        from gitckpt.store.runs import run_files

        return run_files.masked(self._checkpoints.repository, self._resolve(checkpoint).tree)

    def extras(self, checkpoint: Checkpoint | str) -> Extras:
        """Return what a snapshot records beyond a git tree; or raise WorktreeError."""
        from gitckpt.store.snapshot import manifest

        inside = self._checkpoints
        return manifest.extras(inside.repository, inside.objects, self._resolve(checkpoint))

    def diff_states(
        self, before: Checkpoint | str, after: Checkpoint | str
    ) -> Sequence[StateChange]:
        """List the values that differ between the states of two checkpoints."""
        from gitckpt.model import jsonable

        return jsonable.compare(dict(self._resolve(before).state), dict(self._resolve(after).state))

    def _resolve(self, checkpoint: Checkpoint | str) -> Checkpoint:
        if isinstance(checkpoint, Checkpoint):
            return checkpoint
        return self._checkpoints.read(checkpoint)

    # Upkeep

    def policy(self) -> Policy:
        """Return the retention policy of `gitckpt.toml` and git's configuration."""
        return self._checkpoints.rules.read().policy

    def expire(
        self,
        policy: Policy | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> ExpireResult:
        """Remove what the policy (default: `policy()`) does not keep; or BusyError."""
        from gitckpt.model.policy import Policy
        from gitckpt.store.retention import expiry, maintenance

        require("policy", policy, (Policy, NoneType), "a Policy")
        require_callable("progress", progress)
        inside = self._checkpoints
        result = expiry.expire(inside, policy or self.policy(), dry_run=dry_run, progress=progress)
        if not dry_run:
            maintenance.pack(inside.repository)
        return result

    def settle(self, what: str) -> bool:
        """Mark a path, or a digest of `worktree.suspects`, as no secret, in this clone.

        Returns False if it was marked before.
        """
        from gitckpt.store.secrets import Settled

        require_text("what", what)
        require_path("what", what)
        return Settled(self._checkpoints.repository).settle(what)

    def loosened(self) -> Loosening | None:
        """Return defaults that `gitckpt.toml` weakens, or None; UsageError for mistakes."""
        from gitckpt.store.config import settings

        current = settings.read(self._checkpoints.repository)
        current.require_correct()
        return current.loosened

    def allow(self, loosened: Loosening) -> None:
        """Allow what `loosened()` returned, in this clone, until `gitckpt.toml` changes."""
        from gitckpt.store.config import settings

        require("loosened", loosened, settings.Loosening, "what Store.loosened returned")
        settings.record_approval(self._checkpoints.repository, [loosened.digest])

    def disallow(self) -> bool:
        """Withdraw what `allow` allowed in this clone; return False if nothing was."""
        from gitckpt.store.config import settings

        return settings.remove_approvals(self._checkpoints.repository)

    def verify(
        self,
        *,
        repair: bool = False,
        contents: bool = False,
        only: Collection[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Report:
        """Check every checkpoint and all objects that it needs.

        `repair` restores derived data, and objects whose content exists elsewhere; or BusyError.
        `contents` reads every object; `only` are full ids of checkpoints and runs to check.
        """
        from gitckpt.store.audit import verification

        require_callable("progress", progress, may_be_none=True)
        if repair:
            with contextlib.suppress(BusyError):  # queued notes are not an error
                self._checkpoints.write_links()
        only = None if only is None else strings("only", only)
        return verification.verify(
            self._checkpoints, repair=repair, contents=contents, only=only, progress=progress
        )

    def write_notes(self, *, only_if_due: bool = False) -> bool:
        """Write queued notes for `git log`; return whether notes changed; or BusyError."""
        inside = self._checkpoints
        return inside.write_due_links() if only_if_due else inside.write_links()

    def examine(self) -> Diagnosis:
        """Check git, hooks, settings, locks and refs for problems; change nothing."""
        from gitckpt.store.audit import doctor

        return doctor.diagnose(self._checkpoints)

    def usage(self) -> Usage:
        """Measure the disk usage of checkpoints, worktrees and derived files."""
        from gitckpt.store import usage

        return usage.measure(self._checkpoints)

    def install(self, hooks: str = "auto") -> Installation:
        """Install hooks, git settings and `gitckpt.toml`: each commit gets a checkpoint.

        `hooks` says where: "config" (git's configuration), "files" (the hooks directory),
        "external" (the user adds the lines of `advice`), "none", or "auto" (chooses).
        """
        from gitckpt.store import setup
        from gitckpt.store.retention import maintenance

        result = setup.install(self._checkpoints.repository, hooks)
        maintenance.record_never_ran_if_new(self._checkpoints.repository)
        return result

    def outlook(self) -> str:
        """Return whether the next commit will record a checkpoint.

        "recorded", "missed" (the user must act), "none" (installed without hooks), "not installed".
        """
        from gitckpt.git.command import require_git
        from gitckpt.store.hooks import installation

        return installation.outlook(self._checkpoints.repository, version=require_git())

    def uninstall(self) -> Installation:
        """Remove what `install` added; keep checkpoints and other tools' lines in hooks."""
        from gitckpt.store import setup

        return setup.uninstall(self._checkpoints.repository)


def _encode_paths(paths: Sequence[_Path]) -> list[bytes]:
    names = [os.fsencode(path) for path in arguments.as_paths(paths)]
    if not names:
        raise UsageError("paths: the list is empty", hint="pass no paths to restore all files")
    if b"" in names:
        raise UsageError("paths: a path is empty", hint='name "." for all files')
    return [b"" if name == b"." else name for name in names]  # git names the top ""


def _require_entries(entries: Sequence[CheckpointInfo]) -> Sequence[CheckpointInfo]:
    from gitckpt.store.records.entry import CheckpointInfo

    require("entries", entries, Iterable, "a list of entries")
    return arguments.as_tuple("entries", entries, CheckpointInfo, "a CheckpointInfo")


def inside(store: Store) -> Checkpoints:
    require("store", store, Store, "a Store")
    return store._checkpoints  # noqa: SLF001 - the only access to it
