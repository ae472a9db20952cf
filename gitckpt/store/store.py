"""The store as programs have it: the checkpoints of a repository, and all that the command line can do with them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import NoneType, TracebackType

from gitckpt.git.repository import open_repository
from gitckpt.model import ids
from gitckpt.model.arguments import instances, require, require_path, require_text, strings
from gitckpt.model.errors import NotFoundError, UsageError
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.listener import Listener
from gitckpt.store.supervision import Supervision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any, Self, Unpack

    from gitckpt.model.checkpoint import Checkpoint, Worktree
    from gitckpt.store.records.draft import Details
    from gitckpt.store.records.entry import Entry, Problem, Query
    from gitckpt.store.records.recorder import Guard
    from gitckpt.store.snapshot.limits import Limits
    from gitckpt.store.worktrees.opener import Opened


class Store(Supervision):
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
        super().__init__(checkpoints)

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
        from gitckpt.store.records import changed
        from gitckpt.store.records.entry import Entry

        require("entries", entries, Iterable, "a list of entries")
        return changed.count(self._checkpoints.repository, self._checkpoints.index, instances("entries", entries, Entry, "an Entry"))

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
