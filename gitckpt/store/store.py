"""Offer all operations on the checkpoints of a repository, as the class `Store`."""

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

    Threads may share a store; a forked process opens its own. A checkpoint argument is a
    `Checkpoint` or a full id; an id raises the errors of `read`.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        if not isinstance(checkpoints, Checkpoints):
            raise UsageError("a store is not made of a path", hint="open it: Store.open(path)")
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

        `adapter` "libgit2" is faster for many calls; "plumbing" runs git; "auto" chooses. Variables
        such as `GIT_DIR` count for the current directory only.
        """
        require_path("path", path, as_text=True)
        require_text("adapter", adapter)
        require("listener", listener, (Listener, NoneType), "a Listener")
        place = os.fspath(path)
        # Otherwise a program started by a hook would open the repository of the hook.
        is_current = not os.path.exists(place) or os.path.samefile(place, os.curdir)
        repository = open_repository(place, by_variables=is_current)
        return cls(Checkpoints(repository, adapter=adapter, listener=listener))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write deferred notes, end processes and close files; failures are logged."""
        self._checkpoints.close()

    @property
    def worktree(self) -> str | None:
        """The top of the worktree in which checkpoints are recorded; None if bare."""
        return self._checkpoints.repository.worktree

    @property
    def run(self) -> str | None:
        """The run that this worktree belongs to; None for any other worktree."""
        from gitckpt.store.worktrees import ownership

        owner = ownership.owner(self._checkpoints.repository)
        return owner.run if owner is not None else None

    def capture(self, limits: Limits | None = None) -> Worktree:
        """Capture the worktree, for `record`, without timeout; or raise WorktreeError."""
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
            label: `{phase}-{status}`, such as "research-failed"; "add-login" alone is complete.
            state: JSON values, bytes, dates and times by name; None keeps that of the run's newest.
            worktree: what `capture` returned; None if the files are those of the linked commit.
            start: name of a run to start, instead of `run`; `run_of` finds it by its `key`.
            base: rev or full oid of the commit to link, instead of HEAD; "" for none.

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
        """Capture the files, then record, as `capture` and `record`; or raise BusyError."""
        guard = self._guard(details)
        return self._checkpoints.save(
            label, state, limits=limits, start=start, key=key, guard=guard, **details
        )

    def read(self, checkpoint_id: str) -> Checkpoint:
        """Return a checkpoint, given by its full id; NotFoundError or InvalidCheckpoint."""
        return self._checkpoints.read(checkpoint_id)

    def raw(self, checkpoint_id: str) -> bytes:
        """Return the document of a checkpoint as stored; errors as `read`."""
        return self._checkpoints.raw(checkpoint_id)

    def find(self, text: str) -> str:
        """Resolve a name to a checkpoint's id; NotFoundError or AmbiguousError.

        `text` is an id or run id, a prefix of four characters, a rev, "latest" or "latest:any".
        """
        return self._checkpoints.find(text)

    def list(self, query: Query | None = None) -> Sequence[CheckpointInfo]:
        """List the checkpoints that match a query, newest first, without states."""
        return self._checkpoints.list(query)

    def links(self, commit: str) -> Sequence[CheckpointInfo]:
        """List the checkpoints linked to a rev, to an oid that is gone, or to "" (unborn)."""
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
        """Return, by id, how many captured files differ from the linked commit."""
        from gitckpt.store.records import finder

        inside = self._checkpoints
        return finder.count(inside.repository, inside.index, _require_entries(entries))

    def problems(self) -> Sequence[Problem]:
        """List the refs below `refs/checkpoints/` that are not valid checkpoints."""
        return self._checkpoints.problems()

    def replaced(self, entries: Sequence[CheckpointInfo]) -> Mapping[str, str]:
        """Return, by id, the original oid of each checkpoint that a fetch has replaced."""
        oids = {entry.id: entry.oid for entry in _require_entries(entries)}
        return LocalCheckpoints.read(self._checkpoints.repository, oids).replaced(oids)

    def resume(
        self, checkpoint: Checkpoint | str, directory: str | os.PathLike[str] | None = None
    ) -> OpenResult:
        """Return the worktree of a checkpoint, created if missing; or raise WorktreeError."""
        from gitckpt.store.worktrees import resumption

        return resumption.resume(self._checkpoints, self._resolve(checkpoint), directory)

    def worktrees_made_from(self, checkpoint_ids: Collection[str]) -> Mapping[str, str]:
        """Return, by path, the checkpoint from which `resume` made each worktree."""
        from gitckpt.store.worktrees import ownership

        names = strings("checkpoint_ids", checkpoint_ids)
        return dict(ownership.made_from(self._checkpoints.repository, names))

    def rewritten(self) -> Sequence[CheckpointInfo]:
        """List checkpoints of commits that `git filter-repo` has rewritten, to purge data."""
        return self._checkpoints.rewritten()

    def remove(self, checkpoint_ids: Collection[str]) -> int:
        """Remove checkpoints by full id; return the number of deleted checkpoint refs.

        NotFoundError before any removal, or BusyError: each checkpoint is then gone or complete.
        """
        for checkpoint_id in strings("checkpoint_ids", checkpoint_ids):
            ids.require_id(checkpoint_id)
        return self._checkpoints.remove(checkpoint_ids)

    def _guard(self, details: draft.Details) -> Guard | None:
        draft.require_known(details)  # checked here, because `Checkpoints` accepts more arguments
        return self._checkpoints.bound(details.get("run"))

    # Runs

    def find_run(self, text: str) -> str:
        """Resolve a run id or a prefix of it; NotFoundError or AmbiguousError."""
        from gitckpt.store.records import finder

        require_text("text", text)
        return finder.find_run(text, self._checkpoints.index)

    def run_named(self, text: str) -> str | None:
        """Resolve a run id or prefix; None if the text names no run, or AmbiguousError."""
        from gitckpt.store.records import finder

        return finder.named_run(text, self._checkpoints.repository, self._checkpoints.index)

    def newest(self, run: str) -> Checkpoint:
        """Return the newest checkpoint of a run; NotFoundError or InvalidCheckpoint."""
        return self._checkpoints.heads.catch_up(ids.require_run_id(run))

    def is_ours(self, checkpoint: Checkpoint | str) -> bool:
        """Return whether a checkpoint was written in this clone or adopted (trusted)."""
        from gitckpt.store.runs import trust

        return trust.is_ours(self._checkpoints, self._resolve(checkpoint))

    def runs(self) -> Sequence[RunInfo]:
        """List all runs with their status, the one with the newest checkpoint first."""
        from gitckpt.store.runs import summary

        return summary.summaries(self._checkpoints)

    def unfinished_runs(self) -> Sequence[RunInfo]:
        """List the unfinished runs of this worktree without a live driver, newest first."""
        from gitckpt.store.runs import summary

        return summary.unfinished(self._checkpoints)

    def made_elsewhere(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return, by id, the other worktree here that made each checkpoint or run."""
        from gitckpt.store.runs import summary

        return summary.made_elsewhere(self._checkpoints, strings("names", names))

    def history(self, run: str) -> History:
        """Return one run, phase by phase; NotFoundError if it does not exist."""
        from gitckpt.store.runs import summary

        return summary.read(self._checkpoints, run)

    def cancel(self, run: str, *, wait: float = 30.0) -> bool:
        """Stop the driver of a run, which can be resumed; return whether it had one.

        `wait` is in seconds, then CkptError; 0 only asks, without a signal.
        """
        from gitckpt.store.leases.leases import cancel

        arguments.require_seconds("wait", wait)
        leases, tell = self._checkpoints.leases, self._checkpoints.announce
        return cancel(leases, ids.require_run_id(run), wait=wait, tell=tell)

    def take_over(self, run: str, *, holder: str = "a program") -> None:
        """Take a run from a stalled driver, which can write no more; else LeaseHeld."""
        require_text("holder", holder)
        inside = self._checkpoints
        inside.heads.read(ids.require_run_id(run))
        inside.leases.acquire(run, holder, take_over=True).release()

    def run_of(self, key: str) -> str | None:
        """Return the run that was started with a key; None if it does not exist."""
        return self._checkpoints.claim(key).run()

    def latest_resumable(self) -> Checkpoint | None:
        """Return the newest checkpoint of an unfinished run or phase here, or None."""
        from gitckpt.store.runs import summary

        return summary.latest_resumable(self._checkpoints)

    def remove_run(self, run: str) -> int:
        """Remove a run with worktree, lease and files; return its number of checkpoints.

        LeaseHeld, WorktreeError (uncaptured changes) or UsageError (another run refers to it).
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
        """Restore files into this worktree, after a safety checkpoint; HEAD stays.

        Without `paths` (relative to the top), all files, the index and an operation in progress;
        with them, index entries only with `index`. `announce` gets warnings before any change;
        `trust` accepts a fetched document. After NotFoundError or WorktreeError, nothing changed.
        """
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        resolved, names = self._resolve(checkpoint), [] if paths is None else _encode_paths(paths)
        options = {"index": index, "dry_run": dry_run, "trusted": trust}
        return restorer.restore(self._checkpoints, resolved, names, announce=announce, **options)

    def undo(self, *, dry_run: bool = False, announce: _Announce = lambda _: None) -> RestoreResult:
        """Undo the newest `restore` here, then earlier ones; NotFoundError without any."""
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        return restorer.undo(self._checkpoints, dry_run=dry_run, announce=announce)

    def redo(self, *, dry_run: bool = False, announce: _Announce = lambda _: None) -> RestoreResult:
        """Redo the newest `undo` here since `restore`; NotFoundError without any."""
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        return restorer.redo(self._checkpoints, dry_run=dry_run, announce=announce)

    def undo_steps(self) -> Sequence[UndoStep]:
        """List the steps of `undo` in this worktree, then those of `redo`, next first."""
        from gitckpt.store.restore import undo

        return undo.steps(self._checkpoints)

    def is_cut_off(self) -> bool:
        """Return whether the newest restore was cut off: files may be from either side."""
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
        """Return git's diff between two checkpoints, or a checkpoint and this worktree.

        `paths` are pathspecs relative to the current directory; `options` are those of `git diff`.
        NotFoundError if a path matches no file, or WorktreeError if files are missing.
        """
        from gitckpt.store.snapshot import comparison, manifest

        inside, paths = self._checkpoints, arguments.paths_of(paths)
        first, second = self._resolve(before), None if after is None else self._resolve(after)
        # First check for missing objects: a capture of the same files would write them again.
        manifest.files_of(inside.repository, first)
        if second is not None:
            place = f"in checkpoint {second.id[: ids.SHORT]}"
            files = second.tree, second.git_sha
        elif inside.repository.worktree is not None:
            place = "among the captured files here"
            files = inside.capture(recursive=False).tree, inside.objects.head()[0]
        else:
            hint = "compare two checkpoints: git ckpt diff ID ID"
            raise WorktreeError("there is no worktree here to compare with", hint=hint)
        sides = (first.tree, first.git_sha), files
        trees = comparison.comparable(inside.repository, inside.objects, *sides)
        self._require_matches(trees, paths, f"in checkpoint {first.id[: ids.SHORT]} or {place}")
        return self._compare(*trees, paths, options)

    def diff_commit(
        self,
        checkpoint: Checkpoint | str,
        *,
        paths: Sequence[_Path] = (),
        options: Sequence[str] = (),
    ) -> bytes:
        """Return git's diff between a checkpoint's commit and its files, as `diff`."""
        from gitckpt.store.snapshot import manifest

        repository, resolved = self._checkpoints.repository, self._resolve(checkpoint)
        base = manifest.tree_of_files(repository, None, resolved.git_sha)
        files = manifest.files_of(repository, resolved)
        return self._compare(base, files, arguments.paths_of(paths), options)

    def _require_matches(self, trees: Sequence[str], paths: Sequence[_Path], where: str) -> None:
        nothing = object_id("tree", b"", self._checkpoints.repository.object_format)
        unmatched = [  # perhaps typos
            os.fsdecode(path)
            for path in paths
            if not any(self._compare(nothing, tree, [path], ["--name-only"]) for tree in trees)
        ]
        if unmatched:
            hint = "paths are relative to the current directory; see: git ckpt diff ID --stat"
            names = arguments.first_of(unmatched)
            raise NotFoundError(f"no file {where} matches {names}", hint=hint)

    def _compare(self, old: str, new: str, paths: Sequence[_Path], options: Sequence[str]) -> bytes:
        repository = self._checkpoints.repository
        try:
            place = ["-C", os.getcwd()] if repository.worktree else []
        except FileNotFoundError:  # deleted: paths are relative to the top
            place = []
        options = arguments.words("options", options)
        command = [*place, "diff", "--no-color", *options, old, new, "--", *map(os.fsdecode, paths)]
        try:
            return repository.git.run(*command).out
        except GitError as error:
            if find_fetch_hint(error.stderr) is None:
                raise
            problem = "contents of files are missing: diff fetches nothing into this partial clone"
            hint = f"fetch them: git diff --numstat {old} {new}; then run the command again"
            raise WorktreeError(problem, hint=hint) from None

    def file(self, checkpoint: Checkpoint | str, path: _Path, *, beside: bool = False) -> bytes:
        """Return the content of a file, or of a run's file `beside` the worktree."""
        from gitckpt.store.snapshot import manifest

        require_path("path", path)
        repository, resolved = self._checkpoints.repository, self._resolve(checkpoint)
        return manifest.content(repository, resolved, os.fsencode(path), beside=beside)

    def beside(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """List the files that a run keeps beside its worktree: inputs and phase outputs."""
        from gitckpt.store.runs import run_files

        return run_files.names(self._checkpoints.repository, self._resolve(checkpoint).tree)

    def masked(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """List the files of `beside` in which likely secrets were masked."""
        from gitckpt.store.runs import run_files

        return run_files.masked(self._checkpoints.repository, self._resolve(checkpoint).tree)

    def extras(self, checkpoint: Checkpoint | str) -> Extras:
        """Return the parts of a snapshot that a git tree cannot represent; WorktreeError."""
        from gitckpt.store.snapshot import manifest

        inside = self._checkpoints
        return manifest.extras(inside.repository, inside.objects, self._resolve(checkpoint))

    def diff_states(
        self, before: Checkpoint | str, after: Checkpoint | str
    ) -> Sequence[StateChange]:
        """List the values that differ in the states of two checkpoints."""
        from gitckpt.model import jsonable

        return jsonable.compare(dict(self._resolve(before).state), dict(self._resolve(after).state))

    def _resolve(self, checkpoint: Checkpoint | str) -> Checkpoint:
        if isinstance(checkpoint, Checkpoint):
            return checkpoint
        return self._checkpoints.read(checkpoint)

    # Upkeep

    def policy(self) -> Policy:
        """Return the policy of `gitckpt.toml` and git's configuration, or the default."""
        return self._checkpoints.rules.read().policy

    def expire(
        self,
        policy: Policy | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> ExpireResult:
        """Remove the checkpoints and runs that the policy does not keep; or BusyError."""
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
        """Settle a digest of `worktree.suspects`, or a path; return whether it is new."""
        from gitckpt.store.secrets import Settled

        require_text("what", what)
        require_path("what", what)
        return Settled(self._checkpoints.repository).settle(what)

    def loosened(self) -> Loosening | None:
        """Return the defaults that `gitckpt.toml` here loosens, or None; UsageError."""
        from gitckpt.store.config import settings

        current = settings.read(self._checkpoints.repository)
        current.require_correct()
        return current.loosened

    def allow(self, loosened: Loosening) -> None:
        """Allow what `loosened` returned in all worktrees of this clone, until it changes."""
        from gitckpt.store.config import settings

        require("loosened", loosened, settings.Loosening, "what Store.loosened returned")
        settings.note(self._checkpoints.repository, [loosened.digest])

    def disallow(self) -> bool:
        """Withdraw what `allow` allowed in this clone; return whether there was any."""
        from gitckpt.store.config import settings

        return settings.forget(self._checkpoints.repository)

    def verify(
        self,
        *,
        repair: bool = False,
        contents: bool = False,
        only: Collection[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Report:
        """Check every checkpoint and all objects that it needs.

        `repair` restores derived data and objects whose content is elsewhere, or BusyError;
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
        """Write the notes for `git log`; return whether it did. May raise BusyError."""
        inside = self._checkpoints
        return inside.write_due_links() if only_if_due else inside.write_links()

    def examine(self) -> Diagnosis:
        """Diagnose git, hooks, settings, locks and invalid refs, without changes."""
        from gitckpt.store.audit import doctor

        return doctor.diagnose(self._checkpoints)

    def usage(self) -> Usage:
        """Measure the disk usage of checkpoints, worktrees and derived files."""
        from gitckpt.store import usage

        return usage.measure(self._checkpoints)

    def install(self, hooks: str = "auto") -> Installation:
        """Install hooks, git settings and `gitckpt.toml`: commits record checkpoints.

        `hooks` is "config", "files", "external" (the user adds `advice`), "none", or "auto".
        """
        from gitckpt.store import setup
        from gitckpt.store.retention import maintenance

        result = setup.install(self._checkpoints.repository, hooks)
        maintenance.expect_in_new(self._checkpoints.repository)
        return result

    def outlook(self) -> str:
        """Return "recorded", "missed" (the user must act), "none" or "not installed"."""
        from gitckpt.git.command import require_git
        from gitckpt.store.hooks import installation

        return installation.outlook(self._checkpoints.repository, version=require_git())

    def uninstall(self) -> Installation:
        """Remove what `install` added; checkpoints and foreign text in hooks stay."""
        from gitckpt.store import setup

        return setup.uninstall(self._checkpoints.repository)


def _encode_paths(paths: Sequence[_Path]) -> list[bytes]:
    names = [os.fsencode(path) for path in arguments.paths_of(paths)]
    if not names:
        raise UsageError("paths: the list is empty", hint="leave it out to restore all files")
    if b"" in names:
        raise UsageError("paths: a path is empty", hint='name "." for all files')
    return [b"" if name == b"." else name for name in names]  # git names the top ""


def _require_entries(entries: Sequence[CheckpointInfo]) -> Sequence[CheckpointInfo]:
    from gitckpt.store.records.entry import CheckpointInfo

    require("entries", entries, Iterable, "a list of entries")
    return arguments.instances("entries", entries, CheckpointInfo, "an Entry")


def inside(store: Store) -> Checkpoints:
    require("store", store, Store, "a Store")
    return store._checkpoints  # noqa: SLF001 - the only access to it
