"""The public store: the checkpoints of a repository and all operations on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable
from types import NoneType, TracebackType

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError, cure_of_promised
from gitckpt.git.repository import open_repository
from gitckpt.model import ids
from gitckpt.model.arguments import (
    first_of,
    instances,
    paths_of,
    require,
    require_callable,
    require_path,
    require_seconds,
    require_text,
    strings,
    words,
)
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import BusyError, NotFoundError, UsageError, WorktreeError
from gitckpt.model.ids import require_run_id
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.log import Listener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self, Unpack

    from gitckpt.model.checkpoint import Worktree
    from gitckpt.model.jsonable import StateChange
    from gitckpt.model.policy import Policy
    from gitckpt.store.audit.doctor import Diagnosis
    from gitckpt.store.audit.verification import Report
    from gitckpt.store.config.settings import Loosening
    from gitckpt.store.hooks.installation import Installation
    from gitckpt.store.records.draft import Details
    from gitckpt.store.records.entry import Entry, Problem, Query
    from gitckpt.store.records.recorder import Guard
    from gitckpt.store.restore.restorer import Restored
    from gitckpt.store.restore.undo import UndoStep
    from gitckpt.store.retention.expiry import Expired
    from gitckpt.store.runs.summary import History, RunInfo
    from gitckpt.store.snapshot.limits import Limits
    from gitckpt.store.snapshot.manifest import Extras
    from gitckpt.store.usage import Usage
    from gitckpt.store.worktrees.opener import Opened

    _Path = str | bytes | os.PathLike[str]


class Store:
    """The checkpoints of one repository; a context manager.

        with Store.open() as store:
            saved = store.save("plan-complete", {"step": 3})
            store.restore(saved.id)

    Threads may share a store; calls that record or list take turns. Call `close` after the last of
    them. A forked process opens its own store.

    A checkpoint argument is a `Checkpoint` or a full id; an id raises the errors of `read`.
    `UsageError` also reports an argument of the wrong type.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        if not isinstance(checkpoints, Checkpoints):
            raise UsageError("a store is not made of a path", hint="open it: Store.open(path)")
        self._checkpoints = checkpoints

    @classmethod
    def open(cls, path: str | os.PathLike[str] = ".", *, adapter: str = "auto", listener: Listener | None = None) -> Self:
        """Open the store of the repository that contains `path`.

        Args:
            path: a directory in a worktree, or a bare repository. Variables such as `GIT_DIR` are
                used for the current directory only: a hook has them for its own repository.
            adapter: "libgit2" is faster for many calls and takes 80 ms to import; "plumbing" runs
                git; "auto" is libgit2 if it can open the repository.
            listener: receives messages about unrequested actions and ignored settings, and the
                progress of long operations.

        Raises:
            RepositoryError: there is no repository, git refuses it, git is too old, or it is a bare
                repository inside another worktree, which only `GIT_DIR` opens.
            UsageError: the adapter is unknown.
        """
        require_path("path", path, as_text=True)
        require_text("adapter", adapter)
        require("listener", listener, (Listener, NoneType), "a Listener")
        place = os.fspath(path)
        # With these variables, a program started by a hook would open the hook's repository instead.
        repository = open_repository(place, by_variables=not os.path.exists(place) or os.path.samefile(place, os.curdir))
        return cls(Checkpoints(repository, adapter=adapter, listener=listener))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Write deferred notes, end processes and close files.

        Notes that cannot be written are logged: they are derived data.
        """
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
        """Capture the files of the worktree, for `record`.

        The result names what was left out, and is `degraded` after a timeout.

        Args:
            limits: by default the settings, without timeout.

        Raises:
            WorktreeError, UsageError: there is no worktree here, or git cannot read it.
        """
        return self._checkpoints.capture(_limits(limits))

    def record(
        self,
        label: str,
        state: Mapping[str, Any] | None = None,
        *,
        worktree: Worktree | None = None,
        start: str | None = None,
        key: str | None = None,
        base: str | None = None,
        **details: Unpack[Details],
    ) -> Checkpoint:
        """Record a checkpoint; when this returns, it is on disk.

        Args:
            label: `{phase}-{status}`, such as "research-failed"; a phase alone is complete:
                "add-login" means "add-login-complete".
            state: JSON values, bytes, dates and times by name; None keeps the state of the run's
                newest checkpoint, which the result then lacks.
            worktree: what `capture` returned; None if the files are those of the linked commit.
            start: name of a run to start with this checkpoint, instead of `run`.
            key: unique key of that run, chosen by the caller; `run_of` finds the run by it.
            base: rev or full oid of the commit to link, instead of HEAD; "" for none, as before the
                first commit.
            details: more keys of the document: `run` (id of the run to extend), `trigger`,
                `message` (one line of at most 1,000 characters), `agent`, `errors`, `progress`,
                `id` (a new UUID version 4, if the caller must know it in advance), `pipeline`,
                `attempt`, `forked_from`, `rewound_to`.

        Raises:
            UsageError: label or message is invalid, the id is taken, or a value is not allowed.
            StateError: the state cannot be stored losslessly; the error names the value's path.
            NotFoundError: the run or rev does not exist.
            RunExists: a run with that key exists; the error names it.
            LeaseLost: a phase of `run` started this program, and another driver has the run now.
            BusyError: a lock is held, or other writers were faster each time.
            CkptError: objects or refs could not be written; nothing was recorded.
        """
        checkpoints, guard = self._checkpoints, self._guard(details)
        if isinstance(base, str) and base != "":
            # The running cat-file process checks a full oid. The oid of a tag must be peeled to a commit.
            found = checkpoints.repository.cat_file.info(base) if ids.is_oid(base) else None
            if found is None or found[1] != "commit":
                base = checkpoints.repository.commit_or_unborn(base)
        return checkpoints.record(label, state, worktree=worktree, start=start, key=key, base=base, guard=guard, **details)

    def save(
        self,
        label: str,
        state: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        start: str | None = None,
        key: str | None = None,
        **details: Unpack[Details],
    ) -> Checkpoint:
        """Capture the files and record a checkpoint with them, as `capture` and `record`.

        It is safe against a concurrent `gc --prune=now` and against a HEAD that moves in between.

        Raises:
            BusyError: HEAD moved, or objects of the snapshot vanished, at each attempt.
            WorktreeError: an object is damaged and no file has its content; or as `capture`.
        """
        return self._checkpoints.save(label, state, limits=_limits(limits), start=start, key=key, guard=self._guard(details), **details)

    def read(self, checkpoint_id: str) -> Checkpoint:
        """Return a checkpoint, given by its full id, with its state.

        Raises:
            NotFoundError: it does not exist.
            InvalidCheckpoint: its ref does not point to a valid document.
        """
        return self._checkpoints.read(checkpoint_id)

    def raw(self, checkpoint_id: str) -> bytes:
        """Return the document of a checkpoint as stored; errors as `read`."""
        return self._checkpoints.raw(checkpoint_id)

    def find(self, text: str) -> str:
        """Resolve a name to the id of a checkpoint.

        Args:
            text: an id or a prefix of at least four characters; a run id or prefix (its newest
                checkpoint); "latest" (the newest of this worktree or, in a run's worktree, of the
                run); "latest:any" (the newest of the repository); or a rev (the newest checkpoint
                linked to that commit, preferably of this worktree).

        Raises:
            NotFoundError: nothing matches; the hint names similar ids.
            AmbiguousError: several ids match; the error lists them.
        """
        return self._checkpoints.find(text)

    def list(self, query: Query | None = None) -> Sequence[Entry]:
        """List the checkpoints that match a query, newest first, without states."""
        return self._checkpoints.list(query)

    def links(self, commit: str) -> Sequence[Entry]:
        """List the checkpoints linked to a commit by its note or their document.

        Args:
            commit: a rev; the full oid of a commit, even if it is gone; or "" for the checkpoints
                before the first commit.

        Raises:
            NotFoundError: there is no such rev.
        """
        require_text("commit", commit)
        try:
            return self._checkpoints.links(self._checkpoints.repository.commit(commit) if commit else "")
        except NotFoundError:
            if not ids.is_oid(commit):
                raise
            return self._checkpoints.links(commit)

    def changed_files(self, entries: Sequence[Entry]) -> Mapping[str, int]:
        """Return, by id, how many files differ from the linked commit.

        Entries whose files were not captured or are gone are left out.
        """
        from gitckpt.store.records import finder
        from gitckpt.store.records.entry import Entry

        require("entries", entries, Iterable, "a list of entries")
        return finder.count(self._checkpoints.repository, self._checkpoints.index, instances("entries", entries, Entry, "an Entry"))

    def problems(self) -> Sequence[Problem]:
        """List the refs below `refs/checkpoints/` that are not valid checkpoints."""
        return self._checkpoints.problems()

    def replaced(self, entries: Sequence[Entry]) -> Mapping[str, str]:
        """Return, by id, the original oid of each checkpoint that a fetch has replaced."""
        from gitckpt.store.records.entry import Entry
        from gitckpt.store.roster import Roster

        require("entries", entries, Iterable, "a list of entries")
        oids = {entry.id: entry.oid for entry in instances("entries", entries, Entry, "an Entry")}
        return Roster.read(self._checkpoints.repository, oids).replaced(oids)

    def resume(self, checkpoint: Checkpoint | str, directory: str | os.PathLike[str] | None = None) -> Opened:
        """Return the worktree of a checkpoint, created with its files if missing.

        To continue a run, use `Run.resume`.

        Args:
            directory: path of the worktree; by default named after run or checkpoint, where the
                settings say.

        Raises:
            WorktreeError: the directory exists, something is missing, or the restored files differ
                from the captured ones.
        """
        from gitckpt.store.worktrees import resumption

        return resumption.resume(self._checkpoints, self._given(checkpoint), directory)

    def worktrees_made_from(self, checkpoint_ids: Collection[str]) -> Mapping[str, str]:
        """Return, by path, the checkpoint from which `resume` made each worktree.

        Worktrees of runs are left out. The worktrees stay when their checkpoints are removed.
        """
        from gitckpt.store.worktrees import ownership

        return dict(ownership.made_from(self._checkpoints.repository, strings("checkpoint_ids", checkpoint_ids)))

    def rewritten(self) -> Sequence[Entry]:
        """List the checkpoints of commits that `git filter-repo` has rewritten.

        They may contain the data that was to be purged.
        """
        return self._checkpoints.rewritten()

    def remove(self, checkpoint_ids: Collection[str]) -> int:
        """Remove checkpoints with their links and refs, and move the heads of their runs.

        Args:
            checkpoint_ids: full ids, also of refs that are not valid checkpoints.

        Returns:
            The number of checkpoint refs that were deleted.

        Raises:
            NotFoundError: an id is not a full id; nothing was removed.
            BusyError: a ref moved, or a lock is held; some checkpoints may be gone, the others are
                complete.
        """
        for checkpoint_id in strings("checkpoint_ids", checkpoint_ids):
            ids.require_id(checkpoint_id)
        return self._checkpoints.remove(checkpoint_ids)

    def _guard(self, details: Details) -> Guard | None:
        from gitckpt.store.records.draft import require_known

        require_known(details)  # checked here, because `Checkpoints` accepts more arguments
        return self._checkpoints.bound(details.get("run"))

    # Runs

    def find_run(self, text: str) -> str:
        """Resolve a run id or a prefix of it.

        Raises:
            NotFoundError, AmbiguousError: no run matches, or several do.
        """
        from gitckpt.store.records import finder

        require_text("text", text)
        return finder.find_run(text, self._checkpoints.index)

    def run_named(self, text: str) -> str | None:
        """Resolve a run id or prefix; None if the text, as for `find`, names no run.

        Raises:
            AmbiguousError: several checkpoints or runs match; the error lists them.
        """
        from gitckpt.store.records import finder

        return finder.named_run(text, self._checkpoints.repository, self._checkpoints.index)

    def newest(self, run: str) -> Checkpoint:
        """Return the newest checkpoint of a run.

        That includes one that a hook was still recording when the driver died.

        Raises:
            NotFoundError: there is no such run.
            InvalidCheckpoint: the document is invalid.
        """
        return self._checkpoints.heads.catch_up(require_run_id(run))

    def is_ours(self, checkpoint: Checkpoint | str) -> bool:
        """Return whether a checkpoint was written in this clone or adopted.

        Fetched checkpoints drive nothing until they are trusted. Outside of runs, a checkpoint that
        contains nothing to drive a run counts as well.
        """
        from gitckpt.store.runs import trust

        return trust.is_ours(self._checkpoints, self._given(checkpoint))

    def runs(self) -> Sequence[RunInfo]:
        """List all runs with their status, the one with the newest checkpoint first."""
        from gitckpt.store.runs import summary

        return summary.summaries(self._checkpoints)

    def unfinished_runs(self) -> Sequence[RunInfo]:
        """List the unfinished runs of this worktree without a live driver, newest first.

        Each was started in this worktree, or this worktree belongs to it.
        """
        from gitckpt.store.runs import summary

        return summary.unfinished(self._checkpoints)

    def made_elsewhere(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return, by id, the other worktree that made each checkpoint or run.

        Args:
            names: full ids. Those that were fetched, or replaced by a fetch, have no worktree here.
        """
        from gitckpt.store.runs import summary

        return summary.made_elsewhere(self._checkpoints, strings("names", names))

    def history(self, run: str) -> History:
        """Return one run, phase by phase.

        Raises:
            NotFoundError: there is no such run.
        """
        from gitckpt.store.runs import summary

        return summary.read(self._checkpoints, run)

    def cancel(self, run: str, *, wait: float = 30.0) -> bool:
        """Stop the driver of a run, which can be resumed; return whether it had one.

        A driver in another process of this machine gets SIGTERM: `git ckpt run` ends its phase and
        records it as failed; a program without a handler dies, and its run has crashed. A driver
        elsewhere or in this process stops at its next `Run.check`, `Run.wait` or milestone; this
        process is not waited for.

        Args:
            wait: seconds to wait for the end; 0 only asks, without a signal.

        Raises:
            BusyError: the lease changed each time before it could be written.
            CkptError: the driver was asked, but is stalled or has not stopped in time.
        """
        from gitckpt.store.leases import cancellation

        require_seconds("wait", wait)
        inside = self._checkpoints
        return cancellation.cancel(inside.leases, require_run_id(run), wait=wait, tell=inside.announce)

    def take_over(self, run: str, *, holder: str = "a program") -> None:
        """Take a run from a stalled driver, which can then write nothing more.

        The next `Run.resume` ends what that driver had started. `Run.resume` with its own
        `take_over` does both.

        Args:
            holder: who takes it over, shown to people.

        Raises:
            NotFoundError: there is no such run.
            LeaseHeld: a driver that is not stalled has it.
            BusyError: the lease could not be written.
        """
        require_text("holder", holder)
        inside = self._checkpoints
        inside.heads.read(require_run_id(run))
        inside.leases.acquire(run, holder, take_over=True).release()

    def run_of(self, key: str) -> str | None:
        """Return the run that was started with a key; None if it does not exist.

        Raises:
            UsageError: the key is blank or too long.
            InvalidCheckpoint: the ref of the key is damaged.
        """
        return self._checkpoints.claim(key).run()

    def latest_resumable(self) -> Checkpoint | None:
        """Return the checkpoint to continue from, or None.

        It is the newest checkpoint of the newest of `unfinished_runs`; or, if newer, the newest
        checkpoint of a phase outside of runs in this worktree, as from `git ckpt save --phase
        research-failed`.
        """
        from gitckpt.store.runs import summary

        return summary.latest_resumable(self._checkpoints)

    def remove_run(self, run: str) -> int:
        """Remove a run with worktree, lease and files; return its number of checkpoints.

        Raises:
            NotFoundError: there is no such run.
            LeaseHeld: a live process drives it.
            WorktreeError: its worktree has uncaptured changes or cannot be removed; the run stays.
            UsageError: an unfinished run refers to it; it stays.
            BusyError: as `remove`; the worktree may be gone already, call again for the rest.
        """
        from gitckpt.store.retention import expiry

        return expiry.remove(self._checkpoints, require_run_id(run))

    # Files

    def restore(
        self,
        checkpoint: Checkpoint | str,
        paths: Sequence[_Path] | None = None,
        *,
        index: bool = False,
        dry_run: bool = False,
        announce: Callable[[Sequence[str]], None] = lambda _: None,
        trust: bool = False,
    ) -> Restored:
        """Restore a checkpoint's files into this worktree, after a safety checkpoint.

        HEAD stays. After a restore, `redo` cannot reach earlier undone steps any more.

        Args:
            paths: restore only these, relative to the top of the worktree ("."); by default all
                files with the index and an operation in progress.
            index: whether to restore the index entries of `paths` too; without `paths` they always
                are.
            dry_run: whether to only report the changes.
            announce: called with warnings, one sentence each, before anything is changed: that
                commit or branch differ from HEAD, or an operation is in progress (`apart` of the
                result), and `remarks`. Not called without warnings.
            trust: whether to restore a checkpoint whose document a fetch has replaced.

        Raises:
            NotFoundError: a path is neither here nor in the checkpoint.
            WorktreeError: something is in the way or missing; nothing was changed.
            UsageError: `paths` is empty, or contains an empty path.
        """
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        names = _named(paths) if paths is not None else []
        given = self._given(checkpoint)
        return restorer.restore(
            self._checkpoints,
            given,
            names,
            index=index,
            dry_run=dry_run,
            announce=announce,
            trusted=trust,
        )

    def undo(self, *, dry_run: bool = False, announce: Callable[[Sequence[str]], None] = lambda _: None) -> Restored:
        """Undo the newest `restore` in this worktree; repeat to undo earlier ones.

        The present files are saved in a checkpoint first; `redo` restores them. Arguments and
        `WorktreeError` as for `restore`.

        Raises:
            NotFoundError: there is nothing to undo.
        """
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        return restorer.undo(self._checkpoints, dry_run=dry_run, announce=announce)

    def redo(self, *, dry_run: bool = False, announce: Callable[[Sequence[str]], None] = lambda _: None) -> Restored:
        """Redo the newest `undo` in this worktree; repeat to redo earlier ones.

        The present files are saved in a checkpoint first; `undo` restores them. Arguments and
        `WorktreeError` as for `restore`.

        Raises:
            NotFoundError: nothing was undone since the newest `restore`.
        """
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        return restorer.redo(self._checkpoints, dry_run=dry_run, announce=announce)

    def undo_steps(self) -> Sequence[UndoStep]:
        """List the steps of `undo` in this worktree, then those of `redo`, next first."""
        from gitckpt.store.restore import undo

        return undo.steps(self._checkpoints)

    def is_cut_off(self) -> bool:
        """Return whether the newest restore, `undo` or `redo` here was interrupted.

        Files may then be from either side. To undo or repeat that step makes them consistent.
        """
        from gitckpt.store.restore import undo

        return undo.read(self._checkpoints).is_open

    def diff(
        self, before: Checkpoint | str, after: Checkpoint | str | None = None, *, paths: Sequence[_Path] = (), options: Sequence[str] = ()
    ) -> bytes:
        """Return git's diff between two checkpoints, or a checkpoint and this worktree.

        Args:
            after: None for the present files of this worktree.
            paths: pathspecs, relative to the current directory in a worktree.
            options: more options of `git diff`, such as "--stat".

        Raises:
            NotFoundError: a path matches no file of either side.
            WorktreeError: files are missing, or there is no worktree to compare with.
        """
        from gitckpt.store.snapshot import comparison, manifest

        repository = self._checkpoints.repository
        paths = paths_of(paths)
        first, second = self._given(before), None if after is None else self._given(after)
        # First check for missing objects: a capture of the same files would write them again.
        manifest.files_of(repository, first)
        here = self._current() if second is None else (second.tree, second.git_sha)
        old, new = comparison.comparable(repository, self._checkpoints.objects, (first.tree, first.git_sha), here)
        other = "among the files here that are captured" if second is None else f"in checkpoint {second.id[: ids.SHORT]}"
        self._require_matches((old, new), paths, f"in checkpoint {first.id[: ids.SHORT]} or {other}")
        return self._compared(old, new, paths, options)

    def diff_commit(self, checkpoint: Checkpoint | str, *, paths: Sequence[_Path] = (), options: Sequence[str] = ()) -> bytes:
        """Return git's diff between a checkpoint's linked commit and its files, as `diff`.

        Raises:
            WorktreeError: the commit or files are missing.
        """
        from gitckpt.store.snapshot import manifest

        repository, given = self._checkpoints.repository, self._given(checkpoint)
        base = manifest.tree_of_files(repository, None, given.git_sha)
        return self._compared(base, manifest.files_of(repository, given), paths_of(paths), options)

    def _require_matches(self, trees: Sequence[str], paths: Sequence[_Path], where: str) -> None:
        repository = self._checkpoints.repository
        # A pattern without a match may be a typo.
        nothing = object_id("tree", b"", repository.object_format)
        unmatched = [path for path in paths if not any(self._compared(nothing, tree, [path], ["--name-only"]) for tree in trees)]
        if unmatched:
            names = first_of([os.fsdecode(path) for path in unmatched])
            hint = "paths count from the current directory; see which files differ: git ckpt diff ID --stat"
            raise NotFoundError(f"no file {where} matches {names}", hint=hint)

    def _compared(self, old: str, new: str, paths: Sequence[_Path], options: Sequence[str]) -> bytes:
        repository = self._checkpoints.repository
        try:
            place = ["-C", os.getcwd()] if repository.worktree else []
        except FileNotFoundError:  # deleted: paths are relative to the top
            place = []
        patterns = [os.fsdecode(path) for path in paths]
        options = words("options", options)
        try:
            return repository.git.run(*place, "diff", "--no-color", *options, old, new, "--", *patterns).out
        except GitError as error:
            if cure_of_promised(error.stderr) is None:
                raise
            raise WorktreeError(
                "contents of files are missing here: this is a partial clone, and diff fetches nothing",
                hint=f"fetch them: git diff --numstat {old} {new}; then run the command again",
            ) from None

    def file(self, checkpoint: Checkpoint | str, path: _Path, *, beside: bool = False) -> bytes:
        """Return the content of a file of a checkpoint.

        It is the content as git stores it, or the raw bytes if git would change them on checkout.
        For a symbolic link it is the target.

        Args:
            path: relative to the top of the worktree.
            beside: whether `path` is one of the run's files that `beside` lists.

        Raises:
            NotFoundError: the file does not exist.
            WorktreeError: the files of the checkpoint are missing.
        """
        from gitckpt.store.snapshot import manifest

        require_path("path", path)
        return manifest.content(self._checkpoints.repository, self._given(checkpoint), os.fsencode(path), beside=beside)

    def beside(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """List the files that a run keeps beside its worktree: inputs and phase outputs.

        Raises:
            WorktreeError: there are too many to list.
        """
        from gitckpt.store.runs import run_files

        return run_files.names(self._checkpoints.repository, self._given(checkpoint).tree)

    def masked(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """List the files of `beside` in which likely secrets were masked; errors as there."""
        from gitckpt.store.runs import run_files

        return run_files.masked(self._checkpoints.repository, self._given(checkpoint).tree)

    def extras(self, checkpoint: Checkpoint | str) -> Extras:
        """Return the parts of a snapshot that a git tree cannot represent.

        Raises:
            WorktreeError: an object is missing or damaged, or there are too many paths to list.
        """
        from gitckpt.store.snapshot import manifest

        return manifest.extras(self._checkpoints.repository, self._checkpoints.objects, self._given(checkpoint))

    def _current(self) -> tuple[str | None, str]:
        inside = self._checkpoints
        if inside.repository.worktree is None:
            raise WorktreeError("there is no worktree here to compare with", hint="compare two checkpoints: git ckpt diff ID ID")
        return inside.capture(with_submodules=False).tree, inside.objects.head()[0]

    def diff_states(self, before: Checkpoint | str, after: Checkpoint | str) -> Sequence[StateChange]:
        """List the values that differ in the states of two checkpoints."""
        from gitckpt.model import jsonable

        return jsonable.compare(dict(self._given(before).state), dict(self._given(after).state))

    def _given(self, checkpoint: Checkpoint | str) -> Checkpoint:
        return checkpoint if isinstance(checkpoint, Checkpoint) else self._checkpoints.read(checkpoint)

    # Upkeep

    def policy(self) -> Policy:
        """Return the policy of `gitckpt.toml` and git's configuration, or the default.

        To change a value: `dataclasses.replace(store.policy(), keep_last=5)`. If the settings have
        an error, the values that keep the most apply, and the listener gets a message.
        """
        return self._checkpoints.rules.read().policy

    def expire(self, policy: Policy | None = None, *, dry_run: bool = False, progress: Callable[[str], None] = lambda _: None) -> Expired:
        """Remove the checkpoints and runs that the policy does not keep.

        A run is removed as a whole, with its worktree; it stays if the worktree has uncaptured
        changes. A checkpoint that cannot be deleted, for example because its ref is locked, is
        listed in `failed`; the others are removed.

        Args:
            policy: by default that of the settings; see `policy`.
            dry_run: whether to decide only.
            progress: called now and then with a short text.

        Raises:
            BusyError: another process was faster or holds a lock; some checkpoints may be gone, the
                others are complete.
        """
        from gitckpt.model.policy import Policy
        from gitckpt.store.retention import expiry, maintenance

        require("policy", policy, (Policy, NoneType), "a Policy")
        require_callable("progress", progress)
        inside = self._checkpoints
        found = expiry.expire(inside, policy or self.policy(), dry_run=dry_run, progress=progress)
        if not dry_run:
            maintenance.pack(inside.repository)
        return found

    def settle(self, what: str) -> bool:
        """Settle a likely secret as harmless; return whether it was not settled before.

        Args:
            what: a digest from `worktree.suspects`, or the path of a file relative to the top of
                the worktree.

        Raises:
            UsageError: `what` is empty.
            CkptError: it cannot be saved.
        """
        from gitckpt.store.secrets import Settled

        require_text("what", what)
        require_path("what", what)
        return Settled(self._checkpoints.repository).settle(what)

    def loosened(self) -> Loosening | None:
        """Return the defaults that `gitckpt.toml` of this worktree loosens, or None.

        Values of `git config ckpt.*` and of the calling program do not count: they are the user's
        own.

        Raises:
            UsageError: the settings have an error.
        """
        from gitckpt.store.config import settings

        found = settings.read(self._checkpoints.repository)
        found.require_correct()
        return found.loosened

    def allow(self, loosened: Loosening) -> None:
        """Allow what `loosened` returned in all worktrees of this clone, until it changes.

        Raises:
            CkptError: it cannot be saved.
        """
        from gitckpt.store.config import settings
        from gitckpt.store.config.settings import Loosening

        require("loosened", loosened, Loosening, "what Store.loosened returned")
        settings.note(self._checkpoints.repository, [loosened.digest])

    def disallow(self) -> bool:
        """Withdraw what `allow` allowed in this clone; return whether there was any.

        Raises:
            CkptError: it cannot be saved.
        """
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

        Args:
            repair: whether to repair derived data and objects whose content is elsewhere.
                Checkpoints and worktrees are never changed.
            contents: whether to read every object of the repository.
            only: full ids of checkpoints and runs to check, without the history of their commits.
            progress: called now and then with the number of objects read and their total.

        Raises:
            BusyError: a lock prevented the repair.
        """
        from gitckpt.store.audit import verification

        require_callable("progress", progress, may_be_none=True)
        if repair:
            with contextlib.suppress(BusyError):  # queued notes are not an error
                self._checkpoints.write_links()
        if only is not None:
            only = strings("only", only)
        return verification.verify(self._checkpoints, repair=repair, contents=contents, only=only, progress=progress)

    def write_notes(self, *, only_if_due: bool = False) -> bool:
        """Write the notes that `git log --notes=checkpoints` shows; return whether it did.

        `record`, `save`, `git ckpt list` and maintenance do this at most once a minute. Only git
        log depends on notes: `list`, `links` and `find` know all checkpoints without them.

        Args:
            only_if_due: whether to write only after a minute without writing, and log failures.

        Raises:
            BusyError: another process was faster or holds a lock; the notes stay queued.
            GitError: git refused.
        """
        return self._checkpoints.write_due_links() if only_if_due else self._checkpoints.write_links()

    def examine(self) -> Diagnosis:
        """Diagnose git, hooks, settings, locks and invalid refs, without changes."""
        from gitckpt.store.audit import doctor

        return doctor.diagnose(self._checkpoints)

    def usage(self) -> Usage:
        """Measure the disk usage of checkpoints, worktrees and derived files."""
        from gitckpt.store import usage

        return usage.measure(self._checkpoints)

    def install(self, hooks: str = "auto") -> Installation:
        """Install hooks, git settings and `gitckpt.toml`, or repair them.

        Every commit then records a checkpoint.

        Args:
            hooks: how git calls gitckpt: "config", "files", "external" (the user adds the lines in
                `advice`), "none", or "auto".

        Raises:
            UsageError: the mode is unknown; nothing was changed.
            CkptError: a file or the configuration cannot be written.
        """
        from gitckpt.store import setup
        from gitckpt.store.retention import maintenance

        done = setup.install(self._checkpoints.repository, hooks)
        maintenance.expect_in_new(self._checkpoints.repository)
        return done

    def outlook(self) -> str:
        """Return whether the next commit will be recorded.

        "recorded"; "missed" if the user must act first; "none" if no hooks were wanted; or "not
        installed".

        Raises:
            RepositoryError: a hook file cannot be read, or git is missing.
        """
        from gitckpt.git.command import require_git
        from gitckpt.store.hooks import installation

        return installation.outlook(self._checkpoints.repository, version=require_git())

    def uninstall(self) -> Installation:
        """Remove what `install` added; checkpoints and foreign text in hooks stay.

        Raises:
            CkptError: a file or the configuration cannot be written.
        """
        from gitckpt.store import setup

        return setup.uninstall(self._checkpoints.repository)


def _named(paths: Sequence[_Path]) -> list[bytes]:
    names = [os.fsencode(path) for path in paths_of(paths)]
    if not names:
        raise UsageError("paths: the list is empty", hint="leave it out to restore all files; to restore none, do not call restore")
    if b"" in names:
        raise UsageError("paths: one of them is empty", hint='name "." for all files')
    return [b"" if name == b"." else name for name in names]  # git names the top ""


def inside(store: Store) -> Checkpoints:
    require("store", store, Store, "a Store")
    return store._checkpoints  # noqa: SLF001 - the only access to it


def _limits(limits: Limits | None) -> Limits | None:
    if limits is not None:  # without limits, skip the import
        from gitckpt.store.snapshot.limits import Limits

        require("limits", limits, Limits, "a Limits")
    return limits
