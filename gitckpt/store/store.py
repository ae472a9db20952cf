"""The store as programs have it: the checkpoints of a repository, and all that the command line can do with them."""

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
    from collections.abc import Callable, Sequence

    from gitckpt.model.jsonable import StateChange
    from gitckpt.model.policy import Policy
    from gitckpt.store.audit.doctor import Diagnosis
    from gitckpt.store.audit.verification import Report
    from gitckpt.store.config.settings import Loosening
    from gitckpt.store.hooks.installation import Installation
    from gitckpt.store.restore.restorer import Extras, Restored
    from gitckpt.store.restore.undo import UndoStep
    from gitckpt.store.retention.expiry import Expired
    from gitckpt.store.usage import Usage

    _Path = str | bytes | os.PathLike[str]
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any, Self, Unpack

    from gitckpt.model.checkpoint import Checkpoint, Worktree
    from gitckpt.store.records.draft import Details
    from gitckpt.store.records.entry import Entry, Problem, Query
    from gitckpt.store.records.recorder import Guard
    from gitckpt.store.runs.summary import History, RunInfo
    from gitckpt.store.snapshot.limits import Limits
    from gitckpt.store.worktrees.opener import Opened


class Store:
    """The checkpoints of one repository. A context manager; `close` ends its processes and writes what was put off.

        with Store.open() as store:
            saved = store.save("plan-complete", {"step": 3})
            store.restore(saved.id)

    Threads may share it: each call does what it would do alone, and calls that record or list take turns. `close` comes after the last
    of them, and a process that was forked opens a store of its own.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        if not isinstance(checkpoints, Checkpoints):
            raise UsageError("a store is not made of a path", hint="open it: Store.open(path)")
        self._checkpoints = checkpoints

    @classmethod
    def open(cls, path: str | os.PathLike[str] = ".", *, adapter: str = "auto", listener: Listener | None = None) -> Self:
        """Returns the store of the repository that `path` is in.

        Args:
            path: a directory of a worktree, or a bare repository. `GIT_DIR` and the like count for the current directory alone: a hook has
                them for its own repository.
            adapter: how objects are read and written: "libgit2" is the quicker one for many calls and takes 80 ms to import; "plumbing" is
                git's own processes; "auto" is libgit2 wherever it can open the repository.
            listener: who is told what is done unasked, asked whether `gitckpt.toml` may loosen what is built in, and shown how far long
                work has come; by default nobody, and nothing is loosened that was not allowed.

        Raises:
            RepositoryError: there is none, git refuses it, or git is too old; or it is a bare one
                in the worktree of another, which only `GIT_DIR` opens.
            UsageError: it is no path, there is no such adapter, or `listener` is no `Listener`.
        """
        require_path("path", path, as_text=True)
        require_text("adapter", adapter)
        require("listener", listener, (Listener, NoneType), "a Listener")
        place = os.fspath(path)
        # With them, a program that a hook starts would take the files of another repository for those of the hook's.
        repository = open_repository(place, by_variables=not os.path.exists(place) or os.path.samefile(place, os.curdir))
        return cls(Checkpoints(repository, adapter=adapter, listener=listener))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Writes the links that were put off, and lets go of processes and files.

        Links are derived: where they cannot be written, the log says so, and the checkpoints themselves are safe.
        """
        self._checkpoints.close()

    @property
    def worktree(self) -> str | None:
        """The top of the worktree that checkpoints are recorded in; None in a bare repository."""
        return self._checkpoints.repository.worktree

    @property
    def run(self) -> str | None:
        """The run whose worktree that is; None for any other worktree."""
        from gitckpt.store.worktrees import ownership

        owner = ownership.owner(self._checkpoints.repository)
        return owner.run if owner is not None else None

    def capture(self, limits: Limits | None = None) -> Worktree:
        """Captures the files of the worktree for `record`.

        Args:
            limits: what is left out, and how long it may take; by default as the settings say, and as long as it takes.

        Returns:
            What `record` takes; it says what was left out, and is `degraded` where there was not enough time.

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
        """Records a checkpoint; when this returns, it is on the disk.

        Args:
            label: `{phase}-{status}`, such as "research-failed", or a phase, which is complete then: "add-login" is "add-login-complete".
            state: any JSON values, bytes, dates and times by name; None stands for the state of the run's newest checkpoint.
            worktree: what `capture` returned; None if the linked commit stands for the files.
            start: name of a run to start with this checkpoint, instead of `run`.
            key: the caller's own name for that run, by which `run_of` finds it again: no two runs have the same.
            base: rev or full oid of the commit to link, instead of HEAD's; "" for none, as before the first commit.
            details: more keys of the document: `run` (the id of the run that it extends), `trigger`, `message` (one line, of at most
                1,000 characters), `agent`, `errors`, `progress`, `id` (a fresh UUID version 4, where the caller has to know it
                before), `pipeline`, `attempt`, `forked_from`, `rewound_to`.

        Returns:
            The checkpoint, with the state that was written; one that was carried on is left out.

        Raises:
            UsageError: the label or the message is none, the id is taken, or a document may not hold a value.
            StateError: the state cannot be stored losslessly; the value's path is named.
            NotFoundError: there is no such run, or no such rev.
            RunExists: a run with that key exists; the error names it.
            LeaseLost: this program was started by a phase of `run`, and somebody else drives that by now.
            BusyError: somebody holds a lock, or other writers kept being faster.
            CkptError: the objects or refs could not be written; nothing was recorded.
        """
        checkpoints, guard = self._checkpoints, self._guard(details)
        if isinstance(base, str) and base != "":
            # Of a full oid git is asked by the process that is there anyway. It may be that of a tag, which no history can go on with.
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
        """Captures the files and records a checkpoint with them: `capture` and `record` in one.

        It is safe against a `gc --prune=now` and against a HEAD that moves in between.

        Args, returns and errors: as these two.

        Raises:
            BusyError: HEAD moved, or objects of the snapshot vanished, each time.
            WorktreeError: an object is damaged, and no file has its content; as `capture`.
        """
        return self._checkpoints.save(label, state, limits=_limits(limits), start=start, key=key, guard=self._guard(details), **details)

    def read(self, checkpoint_id: str) -> Checkpoint:
        """Returns a checkpoint with its state.

        Args:
            checkpoint_id: its full id.

        Raises:
            NotFoundError: there is none.
            InvalidCheckpoint: its ref does not hold a valid document.
        """
        return self._checkpoints.read(checkpoint_id)

    def raw(self, checkpoint_id: str) -> bytes:
        """Returns the document of a checkpoint as it is stored. Errors: as `read`."""
        return self._checkpoints.raw(checkpoint_id)

    def find(self, text: str) -> str:
        """Returns the id of the checkpoint that a person means.

        Args:
            text: an id or a prefix of four or more characters; a run id or a prefix of it (its newest checkpoint); "latest" (the newest
                of this worktree, in that of a run of the run); "latest:any" (the newest of the repository); or a rev (the newest
                checkpoint linked to that commit, of this worktree where it has one).

        Raises:
            UsageError, NotFoundError: it is empty; or nothing goes by it, and the hint names what is close.
            AmbiguousError: several things do; they are listed.
        """
        return self._checkpoints.find(text)

    def list(self, query: Query | None = None) -> Sequence[Entry]:
        """Returns the checkpoints that meet a query, all by default, newest first; their states are not read."""
        return self._checkpoints.list(query)

    def links(self, commit: str) -> Sequence[Entry]:
        """Returns the checkpoints linked to a commit, newest first: those its note lists, and those that name it themselves.

        Args:
            commit: a rev; or a full oid, also of a commit that is gone; or "" for what was recorded before the first commit.

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
        """Returns how many files differ from the linked commit, by id, for those entries whose files were captured and are still there.

        Raises:
            UsageError: it is no list of entries.
        """
        from gitckpt.store.records import finder
        from gitckpt.store.records.entry import Entry

        require("entries", entries, Iterable, "a list of entries")
        return finder.count(self._checkpoints.repository, self._checkpoints.index, instances("entries", entries, Entry, "an Entry"))

    def problems(self) -> Sequence[Problem]:
        """Returns the refs of ours below `refs/checkpoints/` that are no valid checkpoints."""
        return self._checkpoints.problems()

    def replaced(self, entries: Sequence[Entry]) -> Mapping[str, str]:
        """Return, by id, the oid that was written here of each replaced checkpoint.

        Args:
            entries: the checkpoints as `list` returns them.

        Raises:
            UsageError: it is no list of entries.
        """
        from gitckpt.store.records.entry import Entry
        from gitckpt.store.roster import Roster

        require("entries", entries, Iterable, "a list of entries")
        oids = {entry.id: entry.oid for entry in instances("entries", entries, Entry, "an Entry")}
        return Roster.read(self._checkpoints.repository, oids).replaced(oids)

    def resume(self, checkpoint: Checkpoint | str, directory: str | os.PathLike[str] | None = None) -> Opened:
        """Returns the worktree of a checkpoint, made with its files if it is not there. To go on with a run: `Run.resume`.

        Args:
            checkpoint: a checkpoint, or its full id.
            directory: the worktree's path; by default one named after run or checkpoint, where the settings say.

        Raises:
            UsageError: the directory is no path.
            WorktreeError: the directory is in the way, something is missing, or what came back is not what was captured.
        """
        from gitckpt.store.worktrees import resumption

        return resumption.resume(self._checkpoints, self._given(checkpoint), directory)

    def worktrees_made_from(self, checkpoint_ids: Collection[str]) -> Mapping[str, str]:
        """Returns which worktrees `resume` made from checkpoints, rather than for a run: id by path. They stay when these are removed.

        Args:
            checkpoint_ids: full ids.
        """
        from gitckpt.store.worktrees import ownership

        return dict(ownership.made_from(self._checkpoints.repository, strings("checkpoint_ids", checkpoint_ids)))

    def rewritten(self) -> Sequence[Entry]:
        """Returns the checkpoints of commits that `git filter-repo` has rewritten.

        They may hold what was to be purged.
        """
        return self._checkpoints.rewritten()

    def remove(self, checkpoint_ids: Collection[str]) -> int:
        """Removes checkpoints by name: their links, refs, and run heads that point to them.

        Args:
            checkpoint_ids: full ids; those of refs that are no valid checkpoints are accepted too.

        Returns:
            How many checkpoint refs are gone.

        Raises:
            NotFoundError: one of them is no full id; nothing was removed.
            BusyError: a ref moved meanwhile, or a lock is held; what was removed until then stays removed, the rest is whole.
        """
        for checkpoint_id in strings("checkpoint_ids", checkpoint_ids):
            ids.require_id(checkpoint_id)
        return self._checkpoints.remove(checkpoint_ids)

    def _guard(self, details: Details) -> Guard | None:
        """Returns what binds a call to the lease of the driver that started this program, where one did."""
        from gitckpt.store.records.draft import require_known

        require_known(details)  # here, as some are arguments for the rooms
        return self._checkpoints.bound(details.get("run"))

    # Runs

    def find_run(self, text: str) -> str:
        """Returns the id of the run that a person means.

        Args:
            text: the id, or a prefix of it.

        Raises:
            NotFoundError, AmbiguousError: none goes by it, or several do.
        """
        from gitckpt.store.records import finder

        require_text("text", text)
        return finder.find_run(text, self._checkpoints.index)

    def run_named(self, text: str) -> str | None:
        """Returns the id of the run that a person means who may mean a checkpoint as well; None where it is no run's, nor a prefix of one.

        Args:
            text: what `find` takes.

        Raises:
            AmbiguousError: several checkpoints or runs go by it; they are listed.
        """
        from gitckpt.store.records import finder

        return finder.named_run(text, self._checkpoints.repository, self._checkpoints.index)

    def newest(self, run: str) -> Checkpoint:
        """Returns the newest checkpoint of a run, that of a hook which was still at work when the driver died included.

        Args:
            run: its id.

        Raises:
            NotFoundError: there is no such run.
            InvalidCheckpoint: it is no valid document.
        """
        return self._checkpoints.heads.catch_up(require_run_id(run))

    def is_ours(self, checkpoint: Checkpoint | str) -> bool:
        """Tells whether a checkpoint was written here, or adopted: what was fetched drives nothing before somebody has said `trust`.

        Outside of runs that is so of all that bring nothing along that drives a run.

        Args:
            checkpoint: a checkpoint, or its full id.

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
        """
        from gitckpt.store.runs import trust

        return trust.is_ours(self._checkpoints, self._given(checkpoint))

    def runs(self) -> Sequence[RunInfo]:
        """Returns what has become of each run, the one with the newest checkpoint first."""
        from gitckpt.store.runs import summary

        return summary.summaries(self._checkpoints)

    def unfinished_runs(self) -> Sequence[RunInfo]:
        """Return the unfinished runs of this worktree, the newest checkpoint first.

        Each was started in this worktree, or has it. None is complete, or driven by anybody.
        """
        from gitckpt.store.runs import summary

        return summary.unfinished(self._checkpoints)

    def made_elsewhere(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return which checkpoints and runs other worktrees made: the worktree by id.

        Args:
            names: full ids. What was fetched, or replaced by a fetch, is of no worktree here.

        Raises:
            UsageError: it is no list of strings.
        """
        from gitckpt.store.runs import summary

        return summary.made_elsewhere(self._checkpoints, strings("names", names))

    def history(self, run: str) -> History:
        """Returns one run, phase by phase.

        Args:
            run: its id.

        Raises:
            NotFoundError: there is no such run.
        """
        from gitckpt.store.runs import summary

        return summary.read(self._checkpoints, run)

    def cancel(self, run: str, *, wait: float = 30.0) -> bool:
        """Stops whoever drives a run, and waits for their end, as `git ckpt cancel` does. The run can be resumed.

        A driver in another process of this machine gets SIGTERM: `git ckpt run` ends its phase, and records it as failed; a program that
        does not handle the signal ends there, and its run has crashed. A driver elsewhere, or in this very process, stops when it next
        looks: with `Run.check`, `Run.wait` or a milestone; in this process that is not waited for.

        Args:
            run: its id.
            wait: how long their end is waited for, in seconds; 0 only asks: nobody is signalled, and they stop when they next look.

        Returns:
            Whether somebody drove it.

        Raises:
            UsageError: it is no run id, or `wait` is no number from 0 on.
            BusyError: the lease changed each time it was about to be written.
            CkptError: they were asked to stop, and have not in that time, or are stalled, and will when they go on.
        """
        from gitckpt.store.leases import cancellation

        require_seconds("wait", wait)
        inside = self._checkpoints
        return cancellation.cancel(inside.leases, require_run_id(run), wait=wait, tell=inside.announce)

    def take_over(self, run: str, *, holder: str = "a program") -> None:
        """Takes a run from a driver that is stalled, for whoever goes on with it next: that driver can write nothing more.

        What it had started is ended by the next `Run.resume`, which does both with its own `take_over`.

        Args:
            run: its id.
            holder: who takes it over, for people.

        Raises:
            UsageError: it is no run id, or `holder` is no string.
            NotFoundError: there is no such run.
            LeaseHeld: somebody drives it who is not stalled.
            BusyError: the lease could not be written.
        """
        require_text("holder", holder)
        inside = self._checkpoints
        inside.heads.read(require_run_id(run))
        inside.leases.acquire(run, holder, take_over=True).release()

    def run_of(self, key: str) -> str | None:
        """Returns the id of the run that was started with a key; None where there is none, or not any more. Errors: as `keys.Claim`."""
        return self._checkpoints.claim(key).run()

    def latest_resumable(self) -> Checkpoint | None:
        """Returns the checkpoint to go on with; None where there is none.

        It is the newest one of the newest of `unfinished_runs`; or, where that is newer, the newest of a phase that was recorded in this
        worktree outside of runs, as a script does with `git ckpt save --phase research-failed`.
        """
        from gitckpt.store.runs import summary

        return summary.latest_resumable(self._checkpoints)

    def remove_run(self, run: str) -> int:
        """Removes a run as a whole, whatever has become of it: its checkpoints, worktree, lease and files.

        Args:
            run: its id.

        Returns:
            How many checkpoints went with it.

        Raises:
            NotFoundError: there is no such run.
            LeaseHeld: somebody who is alive drives it.
            WorktreeError: its worktree holds what no checkpoint does, or cannot be removed; the run stays.
            UsageError: an unfinished run refers to it; it stays.
            BusyError: as `remove`; the run may be without its worktree then, and goes with the next call.
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
        """Puts the files of a checkpoint into this worktree, after a checkpoint of what is here; HEAD stays.

        What was taken back until now with `undo` is out of reach of `redo` then.

        Args:
            checkpoint: a checkpoint, or its full id.
            paths: only these, from the top of the worktree, which is "."; by default all, with what is staged and an operation in progress.
            index: whether the entries of `paths` in the index come back, too; without `paths` they always do.
            dry_run: whether to say only what would change.
            announce: is told, before anything is changed, what a person should know, a sentence each: that the
                checkpoint is of another commit or branch than HEAD, or in the middle of an operation (`apart` of the
                result), and what else `remarks` has. Not called where there is nothing to say.
            trust: whether a checkpoint whose document a fetch has replaced may be restored.

        Raises:
            NotFoundError: one of the paths is neither here nor in the checkpoint.
            WorktreeError: something is in the way or missing; nothing was changed.
            UsageError: `paths` is no list of paths, or an empty one, or one of them is empty: who names none does not mean all.
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
        """Takes the newest `restore` in this worktree back; called again, the one before it, up to the first.

        What is here now is in a checkpoint first, with all that was edited since; `redo` brings it back.

        Args:
            dry_run: whether to say only what would change.
            announce: as for `restore`.

        Raises:
            NotFoundError: there is nothing to take back.
            WorktreeError: as `restore`.
        """
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        return restorer.undo(self._checkpoints, dry_run=dry_run, announce=announce)

    def redo(self, *, dry_run: bool = False, announce: Callable[[Sequence[str]], None] = lambda _: None) -> Restored:
        """Brings back what was here before the newest `undo`; called again, what was here before the one that preceded it.

        What is here now is in a checkpoint first; `undo` brings it back.

        Args:
            dry_run: whether to say only what would change.
            announce: as for `restore`.

        Raises:
            NotFoundError: nothing was taken back since the newest `restore`.
            WorktreeError: as `restore`.
        """
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        return restorer.redo(self._checkpoints, dry_run=dry_run, announce=announce)

    def undo_steps(self) -> Sequence[UndoStep]:
        """Returns what `undo` and `redo` can do in this worktree: the steps back, then those forward, each time the next one first."""
        from gitckpt.store.restore import undo

        return undo.steps(self._checkpoints)

    def is_cut_off(self) -> bool:
        """Tells whether the newest restore, `undo` or `redo` in this worktree never came to its end: some files may be of either side.

        To take that step back, or to do it again, brings all of them to one side.
        """
        from gitckpt.store.restore import undo

        return undo.read(self._checkpoints).is_open

    def diff(
        self, before: Checkpoint | str, after: Checkpoint | str | None = None, *, paths: Sequence[_Path] = (), options: Sequence[str] = ()
    ) -> bytes:
        """Returns git's own diff of the files of two checkpoints, or of one and this worktree.

        Args:
            before: a checkpoint, or its full id.
            after: another one; None for the files as they are in this worktree now.
            paths: patterns of git's to look at only, which count from the current directory where there is a worktree.
            options: more options of `git diff`, such as "--stat".

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`; or no file of either side matches one of the paths.
            WorktreeError: files are missing, or there is no worktree here to compare with.
            UsageError: `paths` is no list of paths, or `options` none of strings.
        """
        from gitckpt.store.snapshot import comparison, manifest

        repository = self._checkpoints.repository
        paths = paths_of(paths)
        first, second = self._given(before), None if after is None else self._given(after)
        # First what may be missing: a capture of the same files would write it anew.
        manifest.files_of(repository, first)
        here = self._current() if second is None else (second.tree, second.git_sha)
        old, new = comparison.comparable(repository, self._checkpoints.objects, (first.tree, first.git_sha), here)
        other = "among the files here that are captured" if second is None else f"in checkpoint {second.id[: ids.SHORT]}"
        self._require_matches((old, new), paths, f"in checkpoint {first.id[: ids.SHORT]} or {other}")
        return self._compared(old, new, paths, options)

    def diff_commit(self, checkpoint: Checkpoint | str, *, paths: Sequence[_Path] = (), options: Sequence[str] = ()) -> bytes:
        """Returns git's own diff of the commit that a checkpoint is linked to, and its files: what `git ckpt show` counts.

        Args:
            checkpoint: a checkpoint, or its full id.
            paths: as for `diff`.
            options: as for `diff`.

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
            WorktreeError: the commit or files are missing.
            UsageError: as `diff`.
        """
        from gitckpt.store.snapshot import manifest

        repository, given = self._checkpoints.repository, self._given(checkpoint)
        base = manifest.tree_of_files(repository, None, given.git_sha)
        return self._compared(base, manifest.files_of(repository, given), paths_of(paths), options)

    def _require_matches(self, trees: Sequence[str], paths: Sequence[_Path], where: str) -> None:
        """Raise `NotFoundError` where a pattern matches no file of some trees: a mistyped path would look like one without changes."""
        repository = self._checkpoints.repository
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
        except FileNotFoundError:  # it is gone: they count from the top
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
        """Returns the content of a file of a checkpoint: as git stores it; or byte for byte, where git would write that otherwise.

        Args:
            checkpoint: a checkpoint, or its full id.
            path: of the file, from the top of the worktree; of a link, where that leads to is its content.
            beside: whether it is one of those that the run keeps beside its worktree, as `beside` names it.

        Raises:
            NotFoundError: the checkpoint has no such file; or as `read`.
            InvalidCheckpoint: as `read`.
            WorktreeError: its files are missing.
            UsageError: it is no path.
        """
        from gitckpt.store.restore import restorer

        require_path("path", path)
        return restorer.content(self._checkpoints.repository, self._given(checkpoint), os.fsencode(path), beside=beside)

    def beside(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """Returns the names of the files that a run kept beside its worktree: its inputs, and what its phases put out.

        Args:
            checkpoint: a checkpoint, or its full id.

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
            WorktreeError: there are more than anybody lists.
        """
        from gitckpt.store.runs import run_files

        return run_files.names(self._checkpoints.repository, self._given(checkpoint).tree)

    def masked(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """Returns the names of those among the files that `beside` names in which what looked like a secret was masked.

        Args and errors: as `beside`.
        """
        from gitckpt.store.runs import run_files

        return run_files.masked(self._checkpoints.repository, self._given(checkpoint).tree)

    def extras(self, checkpoint: Checkpoint | str) -> Extras:
        """Returns what the snapshot of a checkpoint has that a tree of git's cannot hold.

        Args:
            checkpoint: a checkpoint, or its full id.

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
            WorktreeError: an object of the snapshot is missing or damaged, or there are more paths than anybody lists.
        """
        from gitckpt.store.restore import restorer

        return restorer.extras(self._checkpoints.repository, self._checkpoints.objects, self._given(checkpoint))

    def _current(self) -> tuple[str | None, str]:
        """Returns the snapshot of this worktree as it is now, and its commit."""
        inside = self._checkpoints
        if inside.repository.worktree is None:
            raise WorktreeError("there is no worktree here to compare with", hint="compare two checkpoints: git ckpt diff ID ID")
        return inside.capture(with_submodules=False).tree, inside.objects.head()[0]

    def diff_states(self, before: Checkpoint | str, after: Checkpoint | str) -> Sequence[StateChange]:
        """Returns the values that differ in the states of two checkpoints.

        Args:
            before: a checkpoint, or its full id.
            after: another one.

        Raises:
            NotFoundError, InvalidCheckpoint: as `read`.
        """
        from gitckpt.model import jsonable

        return jsonable.compare(dict(self._given(before).state), dict(self._given(after).state))

    def _given(self, checkpoint: Checkpoint | str) -> Checkpoint:
        return checkpoint if isinstance(checkpoint, Checkpoint) else self._checkpoints.read(checkpoint)

    # Upkeep

    def policy(self) -> Policy:
        """Returns what `expire` goes by: the policy of `gitckpt.toml` and of git's configuration, or else the built-in one.

        What `gitckpt.toml` loosens counts once it is allowed. For another value: `dataclasses.replace(store.policy(), keep_last=5)`.
        Where the settings have a mistake, the values that keep the longest apply, and the
        listener is told.
        """
        return self._checkpoints.rules.read().policy

    def expire(self, policy: Policy | None = None, *, dry_run: bool = False, progress: Callable[[str], None] = lambda _: None) -> Expired:
        """Removes the checkpoints and runs that a policy lets go.

        A run goes as a whole, with its worktree, if a checkpoint holds all that is in the worktree; if not, it stays. A checkpoint that
        cannot be deleted, as when somebody holds a lock of its ref, is among those that `failed`; the others go.

        Args:
            policy: the rules; by default those of the settings, as `policy` returns them.
            dry_run: whether to decide only.
            progress: is told how far it has come, in a few words, now and then.

        Raises:
            BusyError: somebody was faster, or holds a lock; what was removed until then stays removed, the rest is whole.
            UsageError: the policy is none.
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
        """Settles that something which looked like a secret is none: no checkpoint names it as a suspect from now on.

        Args:
            what: a digest, as `worktree.suspects` has it, or the path of a file relative to the top of the worktree.

        Returns:
            Whether it is new.

        Raises:
            UsageError: it is empty, or no string.
            CkptError: it cannot be noted.
        """
        from gitckpt.store.secrets import Settled

        require_text("what", what)
        require_path("what", what)
        return Settled(self._checkpoints.repository).settle(what)

    def loosened(self) -> Loosening | None:
        """Return what `gitckpt.toml` of this worktree loosens; None where nothing.

        Values of `git config ckpt.*`, and those that a program passes, are its user's own.

        Raises:
            UsageError: the settings have a mistake.
        """
        from gitckpt.store.config import settings

        found = settings.read(self._checkpoints.repository)
        found.require_correct()
        return found.loosened

    def allow(self, loosened: Loosening) -> None:
        """Allow these values in all worktrees of this clone, until one of them changes.

        Args:
            loosened: what `loosened` returned.

        Raises:
            UsageError: it is something else.
            CkptError: it cannot be written.
        """
        from gitckpt.store.config import settings
        from gitckpt.store.config.settings import Loosening

        require("loosened", loosened, Loosening, "what Store.loosened returned")
        settings.note(self._checkpoints.repository, [loosened.digest])

    def disallow(self) -> bool:
        """Allow nothing any more in this clone; tell whether anything was allowed.

        Raises:
            CkptError: it cannot be written.
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
        """Looks at every checkpoint and all it needs.

        Args:
            repair: whether to mend what is derived, and objects whose content is elsewhere; no checkpoint and no worktree is ever changed.
            contents: whether to read every object of the repository.
            only: full ids of checkpoints and runs to look at, without the history of their commits.
            progress: told how many of how many objects were read, now and then.

        Raises:
            BusyError: a lock stayed in the way of mending.
        """
        from gitckpt.store.audit import verification

        require_callable("progress", progress, may_be_none=True)
        if repair:
            with contextlib.suppress(BusyError):  # what waits is no flaw
                self._checkpoints.write_links()
        if only is not None:
            only = strings("only", only)
        return verification.verify(self._checkpoints, repair=repair, contents=contents, only=only, progress=progress)

    def write_notes(self, *, only_if_due: bool = False) -> bool:
        """Writes the notes by which `git log --notes=checkpoints` shows the checkpoints of each commit.

        `record`, `save`, `git ckpt list` and maintenance do so where no notes were written in the last minute. Nothing else depends on
        them: `list`, `links` and `find` know all checkpoints.

        Args:
            only_if_due: whether to write only where something has waited for a minute; a failure is then for the log.

        Returns:
            Whether anything was written.

        Raises:
            BusyError: another process was faster, or holds a lock; what waits goes on waiting.
            GitError: git refused.
        """
        return self._checkpoints.write_due_links() if only_if_due else self._checkpoints.write_links()

    def examine(self) -> Diagnosis:
        """Looks at the installation: git, hooks, settings, locks, and refs that are no checkpoints. Changes nothing."""
        from gitckpt.store.audit import doctor

        return doctor.diagnose(self._checkpoints)

    def usage(self) -> Usage:
        """Measures what the checkpoints take on the disk, with worktrees, derived files, and what lies around. Changes nothing."""
        from gitckpt.store import usage

        return usage.measure(self._checkpoints)

    def install(self, hooks: str = "auto") -> Installation:
        """Lets every commit record a checkpoint: installs hooks, settings and `gitckpt.toml`; again, it mends them.

        Args:
            hooks: how git calls gitckpt: "config", "files", "external" (somebody adds the lines that `advice` names), "none", or "auto".

        Raises:
            UsageError: there is no such way; nothing was changed.
            CkptError: something cannot be written.
        """
        from gitckpt.store import setup

        return setup.install(self._checkpoints.repository, hooks)

    def outlook(self) -> str:
        """Returns what becomes of the next commit: "recorded"; "missed", where a person has to do something first; "none", where hooks
        were not wanted; or "not installed".

        Raises:
            RepositoryError: a hook file cannot be read, or there is no git.
        """
        from gitckpt.git.command import require_git
        from gitckpt.store.hooks import installation

        return installation.outlook(self._checkpoints.repository, version=require_git())

    def uninstall(self) -> Installation:
        """Takes out what `install` put in. Checkpoints, and other people's text in hooks, stay.

        Raises:
            CkptError: a file or the configuration cannot be written.
        """
        from gitckpt.store import setup

        return setup.uninstall(self._checkpoints.repository)


def _named(paths: Sequence[_Path]) -> list[bytes]:
    """Returns paths as git has them, that of the top as b""."""
    names = [os.fsencode(path) for path in paths_of(paths)]
    if not names:
        raise UsageError("paths: the list is empty", hint="leave it out to restore all files; to restore none, do not call restore")
    if b"" in names:
        raise UsageError("paths: one of them is empty", hint='name "." for all files')
    return [b"" if name == b"." else name for name in names]


def inside(store: Store) -> Checkpoints:
    """Returns what the rooms work with, for those above that need more than programs have.

    Raises:
        UsageError: it is no store: programs hand it over.
    """
    require("store", store, Store, "a Store")
    return store._checkpoints  # noqa: SLF001 - the one door to it


def _limits(limits: Limits | None) -> Limits | None:
    """Returns the limits of a call. Errors: `UsageError`, where they are none."""
    if limits is not None:  # who hands none over does not pay for the import
        from gitckpt.store.snapshot.limits import Limits

        require("limits", limits, Limits, "a Limits")
    return limits
