"""Define `Store`, which has all operations on the checkpoints of a repository."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import NoneType

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError, find_fetch_hint
from gitckpt.git.repository import open_repository
from gitckpt.model import arguments, ids
from gitckpt.model.arguments import as_strings, require_callable, require_text, require_type
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
    from gitckpt.store.history.bisection import Bisection, BisectResult
    from gitckpt.store.history.files import GrepMatch, StoredFile
    from gitckpt.store.history.log import LogItem
    from gitckpt.store.history.whereabouts import Whereabouts
    from gitckpt.store.hooks.installation import Installation
    from gitckpt.store.records.entry import CheckpointInfo, Problem, Query
    from gitckpt.store.records.labels import Labels
    from gitckpt.store.records.recorder import LeaseGuard
    from gitckpt.store.restore.restorer import RestoreResult
    from gitckpt.store.restore.undo import UndoStep
    from gitckpt.store.retention.expiry import ExpireResult
    from gitckpt.store.runs.summary import History, RunInfo
    from gitckpt.store.snapshot.limits import Limits
    from gitckpt.store.snapshot.manifest import Extras
    from gitckpt.store.usage import Usage
    from gitckpt.store.worktrees.opener import OpenResult
    from gitckpt.store.worktrees.rescue import LostWorktree

    _Path = str | bytes | os.PathLike[str]
    _Announce = Callable[[Sequence[str]], None]


class Store:
    """Read and write the checkpoints of one repository; a context manager.

        with Store.open() as store: saved = store.save("plan-complete", {"step": 3})

    Threads may share a store; a forked process must open its own. A `checkpoint` argument is a
    `Checkpoint` or a full id. If it is an id, the method also raises the errors of `read`.
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
        """Open the store of the git repository that contains `path`.

        `adapter` selects how git's objects are read: by "libgit2" (fast for many calls), by
        "plumbing" (git commands), or "auto". Variables such as `GIT_DIR` are obeyed only if `path`
        is the current directory. Raises RepositoryError if there is no repository.
        """
        arguments.require_path("path", path, as_text=True)
        require_text("adapter", adapter)
        require_type("listener", listener, (Listener, NoneType), "a Listener")
        path_text = os.fspath(path)
        # Otherwise a program started by a hook would open the repository of the hook.
        is_current = not os.path.exists(path_text) or os.path.samefile(path_text, os.curdir)
        repository = open_repository(path_text, by_variables=is_current)
        return cls(Checkpoints(repository, adapter=adapter, listener=listener))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write queued git notes (or log why not), end git processes and close files."""
        self._checkpoints.close()

    @property
    def worktree(self) -> str | None:
        """The top directory of the worktree of this store; None in a bare repository."""
        return self._checkpoints.repository.worktree

    @property
    def run(self) -> str | None:
        """The id of the run for which gitckpt created this worktree; None if for no run."""
        from gitckpt.store.worktrees import ownership

        owner = ownership.owner_of(self._checkpoints.repository)
        return owner.run if owner is not None else None

    def capture(self, limits: Limits | None = None) -> Worktree:
        """Store the worktree's files in git, for `record`; by default without a timeout."""
        return self._checkpoints.capture_worktree(limits)

    def record(
        self,
        label: str,
        state: Mapping[str, Any] | None = None,
        *,
        worktree: Worktree | None = None,
        start: str | None = None,
        key: str | None = None,
        base: str | None = None,
        **details: Unpack[draft.CheckpointDetails],
    ) -> Checkpoint:
        """Record a checkpoint, which is on disk when this method returns.

        Args:
            label: `{phase}-{status}`, such as "research-failed"; the default status is "complete".
            state: JSON values, bytes, dates and times by name; None copies the run's newest state.
            worktree: the result of `capture`; None if all files are as in the linked commit.
            start: the name of a new run, to record its first checkpoint; excludes `run`.
            key: an idempotency key of the new run: `run_of` returns the run that has this key.
            base: rev or full oid of the commit to link, instead of HEAD; "" to link no commit.

        Raises UsageError, StateError, NotFoundError, RunExists, LeaseLost or BusyError.
        """
        checkpoints, guard = self._checkpoints, self._find_lease_guard(details)
        if isinstance(base, str) and base != "":
            # The running cat-file process checks a full oid; that of a tag must be peeled.
            object_info = checkpoints.repository.cat_file.info(base) if ids.is_oid(base) else None
            if object_info is None or object_info[1] != "commit":
                base = checkpoints.repository.resolve_commit_or_unborn(base)
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
        if_changed: bool = False,
        **details: Unpack[draft.CheckpointDetails],
    ) -> Checkpoint:
        """Capture the worktree and record it; raise BusyError if HEAD keeps moving.

        With `if_changed`, return the checkpoint of this worktree's last capture, and record
        nothing, if files, index, HEAD and operation in progress are as that checkpoint has them.
        """
        guard = self._find_lease_guard(details)
        require_type("if_changed", if_changed, bool, "True or False")
        options: Any = {"limits": limits, "start": start, "key": key, "if_changed": if_changed}
        return self._checkpoints.save(label, state, guard=guard, **options, **details)

    def read(self, checkpoint_id: str) -> Checkpoint:
        """Return the checkpoint with a full id; raise NotFoundError or InvalidCheckpoint."""
        return self._checkpoints.read(checkpoint_id)

    def raw(self, checkpoint_id: str) -> bytes:
        """Return the bytes of a checkpoint's document; raise the errors of `read`."""
        return self._checkpoints.read_document_bytes(checkpoint_id)

    def find(self, text: str) -> str:
        """Return the id of the checkpoint that an address names.

        `text` is at least 4 characters of an id, a tag, a run or part of its name (for its newest
        checkpoint), a git revision (for a checkpoint of that commit), "latest" (in this worktree),
        "latest:any", `latest~3`, `@{20m}`, `@{yesterday 18:00}`, `RUN~2`, `RUN:PHASE` or
        `SESSION:TURN`. Raises NotFoundError or AmbiguousError.
        """
        return self._checkpoints.find_id(text)

    def find_path(self, text: str) -> tuple[str, str | None]:
        """Split `ADDRESS:PATH` into a checkpoint's id and the path; None for no path."""
        checkpoint_id, path = self._checkpoints.addresses.split_path(text)
        self._checkpoints.warn_if_replaced(checkpoint_id)
        return checkpoint_id, path

    def list(self, query: Query | None = None) -> Sequence[CheckpointInfo]:
        """List the checkpoints that match a query, newest first; without one, list all."""
        return self._checkpoints.list(query)

    def links(self, commit: str) -> Sequence[CheckpointInfo]:
        """List the checkpoints linked to a commit (rev or oid), or without a commit ("")."""
        require_text("commit", commit)
        checkpoints = self._checkpoints
        try:
            oid = checkpoints.repository.resolve_commit(commit) if commit else ""
        except NotFoundError:
            if not ids.is_oid(commit):
                raise
            oid = commit
        return checkpoints.find_linked(oid)

    def changed_files(self, entries: Sequence[CheckpointInfo]) -> Mapping[str, int]:
        """Map each checkpoint id to the number of files that differ from its commit."""
        from gitckpt.store.records import finder

        store = self._checkpoints
        return finder.count_changed_files(store.repository, store.index, _require_entries(entries))

    def problems(self) -> Sequence[Problem]:
        """List the refs below `refs/checkpoints/` that are not valid checkpoints."""
        return self._checkpoints.list_problems()

    def replaced(self, entries: Sequence[CheckpointInfo]) -> Mapping[str, str]:
        """Map the id of each checkpoint that a fetch replaced to its document's old oid."""
        oids = {entry.id: entry.oid for entry in _require_entries(entries)}
        return LocalCheckpoints.read(self._checkpoints.repository, oids).replaced_oids(oids)

    def labels(self, checkpoint_ids: Collection[str]) -> Mapping[str, Labels]:
        """Map the ids of checkpoints with tags, a pin or a note to these."""
        return self._checkpoints.labels.read_labels(as_strings("checkpoint_ids", checkpoint_ids))

    def tags(self) -> Mapping[str, str]:
        """Map the names of all tags to the ids of their checkpoints."""
        return self._checkpoints.labels.read_tags()

    def tag(self, checkpoint: Checkpoint | str, name: str) -> None:
        """Name a checkpoint, which then never expires; raise UsageError if taken."""
        checkpoint_id = self._resolve(checkpoint).id
        if self._checkpoints.addresses.is_beginning(name):
            hint = "choose another name"
            raise UsageError(f"{name!r} names a checkpoint or run already", hint=hint)
        self._checkpoints.labels.add_tag(checkpoint_id, name)

    def untag(self, name: str) -> None:
        """Delete a tag; raise NotFoundError without one."""
        self._checkpoints.labels.delete_tag(name)

    def pin(self, checkpoint: Checkpoint | str) -> None:
        """Keep a checkpoint from expiring."""
        self._checkpoints.labels.pin(self._resolve(checkpoint).id)

    def unpin(self, checkpoint: Checkpoint | str) -> bool:
        """Let a checkpoint expire again; return whether it was pinned."""
        return self._checkpoints.labels.unpin(self._resolve(checkpoint).id)

    def annotate(self, checkpoint: Checkpoint | str, text: str | None) -> None:
        """Set the user's own note on a checkpoint, whose document stays as it is."""
        self._checkpoints.labels.write_note(self._resolve(checkpoint).id, text)

    def unique_prefixes(self, names: Iterable[str]) -> Mapping[str, str]:
        """Map full ids of checkpoints to the shortest prefixes that name them."""
        return self._checkpoints.index.find_unique_prefixes(as_strings("names", names))

    def resume(
        self, checkpoint: Checkpoint | str, directory: str | os.PathLike[str] | None = None
    ) -> OpenResult:
        """Return a worktree in which the work can continue from a checkpoint.

        Creates a missing worktree, in `directory` if given. Raises WorktreeError.
        """
        from gitckpt.store.worktrees import resumption

        return resumption.resume_checkpoint(self._checkpoints, self._resolve(checkpoint), directory)

    def lost_worktrees(self) -> Sequence[LostWorktree]:
        """List vanished linked worktrees whose files are in a checkpoint, newest first."""
        from gitckpt.store.worktrees import rescue

        return rescue.list_lost(self._checkpoints)

    def worktrees_made_from(self, checkpoint_ids: Collection[str]) -> Mapping[str, str]:
        """Map paths of worktrees to the ids of the checkpoints that they were made from."""
        from gitckpt.store.worktrees import ownership

        valid_ids = as_strings("checkpoint_ids", checkpoint_ids)
        return dict(ownership.made_for_ids(self._checkpoints.repository, valid_ids))

    def rewritten(self) -> Sequence[CheckpointInfo]:
        """List checkpoints linked to commits that `git filter-repo` has rewritten."""
        return self._checkpoints.list_rewritten()

    def remove(self, checkpoint_ids: Collection[str]) -> int:
        """Remove checkpoints by full id; return how many refs of checkpoints it deleted.

        Raises NotFoundError before any change, or BusyError after some checkpoints were removed.
        """
        for checkpoint_id in as_strings("checkpoint_ids", checkpoint_ids):
            ids.require_checkpoint_id(checkpoint_id)
        return self._checkpoints.remove(checkpoint_ids)

    def _find_lease_guard(self, details: draft.CheckpointDetails) -> LeaseGuard | None:
        draft.require_known_names(details)  # `Checkpoints` accepts more arguments
        return self._checkpoints.find_lease_guard(details.get("run"))

    # History

    def log(
        self,
        query: Query | None = None,
        *,
        fold: str | None = None,
        paths: Sequence[_Path] = (),
        start: Sequence[CheckpointInfo] = (),
    ) -> Sequence[LogItem]:
        """List checkpoints, newest first, with what each changed.

        Each is compared with the one before it in the same run or worktree. `query.limit` counts
        items of the log.

        Args:
            query: which checkpoints to list; without `safety`, none of these is compared with.
            fold: "runs" lists a run as one item, and "turns" each turn of an agent.
            paths: files and directories, relative to the top; list only what changed in these.
            start: list these checkpoints, and those before them in their runs or worktrees.
        """
        from gitckpt.store.history.log import Log
        from gitckpt.store.records.entry import Query

        log, raw_paths = (
            Log(self._checkpoints, query or Query()),
            _encode_paths(paths) if paths else [],
        )
        items = log.list_items(fold=fold, paths=raw_paths, starts=_require_entries(start))
        log.compare(items, raw_paths)
        return items

    def log_changes(
        self, items: Sequence[LogItem], *, options: Sequence[str], paths: Sequence[_Path] = ()
    ) -> Sequence[bytes]:
        """Return what `git diff-tree` prints of each item of a log, such as with "-p"."""
        from gitckpt.store.history.log import Log
        from gitckpt.store.records.entry import Query

        options = arguments.as_command_words("options", options)
        raw_paths = _encode_paths(paths) if paths else []
        return Log(self._checkpoints, Query()).format_changes(items, options, raw_paths)

    def files(
        self, checkpoint: Checkpoint | str, path: _Path = ".", *, recursive: bool = False
    ) -> Sequence[StoredFile]:
        """List a directory of a checkpoint, or one file; `path` is relative to the top.

        Raises NotFoundError.
        """
        from gitckpt.store.history import files

        store, (raw_path,) = self._checkpoints, _encode_paths([path])
        return files.list_files(store, self._resolve(checkpoint), raw_path, recursive=recursive)

    def grep(
        self,
        pattern: str,
        entries: Sequence[CheckpointInfo] | None = None,
        *,
        paths: Sequence[_Path] = (),
        options: Sequence[str] = (),
    ) -> Sequence[GrepMatch]:
        """Search files of checkpoints, by default of this worktree.

        `paths` are relative to the top; `options` are options of `git grep`, such as "-i". The same
        content at the same path is searched once. Raises UsageError for an invalid pattern.
        """
        from gitckpt.store.history import files

        arguments.require_path("pattern", pattern, as_text=True)
        chosen = _require_entries(entries) if entries is not None else None
        chosen = files.newest_here(self._checkpoints) if chosen is None else chosen
        raw_paths, words = (
            _encode_paths(paths) if paths else [],
            arguments.as_command_words("options", options),
        )
        return files.grep(self._checkpoints, pattern, chosen, paths=raw_paths, options=words)

    def why(self, path: _Path, *, typed: str | None = None) -> Whereabouts:
        """Find the last places that had a file, and the commands that bring it back.

        `path` is relative to the top; `typed` is how commands name it.
        """
        from gitckpt.store.history import whereabouts

        (raw_path,) = _encode_paths([path])
        return whereabouts.find(self._checkpoints, raw_path, typed or os.fsdecode(raw_path))

    def begin_bisection(
        self, command: Sequence[str], *, good: str | None = None, bad: str
    ) -> Bisection:
        """Begin to search for the first checkpoint in which a command fails.

        `bad` is the full id of a checkpoint in which it fails, `good` of an older one in the same
        run or worktree, by default the oldest. Raises UsageError.
        """
        from gitckpt.store.history import bisection

        words = arguments.as_command_words("command", command)
        entries = {id_: self._entry_of(id_) for id_ in (good, bad) if id_ is not None}
        first = entries[good] if good is not None else None
        return bisection.begin(self._checkpoints, words, first, entries[bad])

    def bisection(self) -> Bisection | None:
        """Return the search that has begun and not ended, or None."""
        from gitckpt.store.history import bisection

        return bisection.load(self._checkpoints)

    def bisect(
        self,
        search: Bisection,
        trial: Callable[[str, str], int],
        *,
        progress: Callable[[CheckpointInfo, str, int], object] = lambda *_: None,
    ) -> BisectResult:
        """Find the first bad checkpoint of a search.

        `trial` gets the directory of a scratch worktree and the id of its checkpoint; it returns an
        exit code: 0 for good, 125 to skip, otherwise bad. `progress` gets each checkpoint, its
        verdict, and how many are left. Raises UsageError.
        """
        from gitckpt.store.history import bisection

        require_callable("trial", trial)
        return bisection.run(self._checkpoints, search, trial, progress)

    def reset_bisection(self) -> bool:
        """Forget the search that has begun; return False without one."""
        from gitckpt.store.history import bisection

        return bisection.reset(self._checkpoints)

    def _entry_of(self, checkpoint_id: str) -> CheckpointInfo:
        from gitckpt.store.records.entry import Query

        entries = self.list(Query(ids=[checkpoint_id]))
        if not entries:
            self.read(checkpoint_id)  # raises the reason
            raise NotFoundError(f"no checkpoint {checkpoint_id!r}", hint="list: git ckpt list")
        return entries[0]

    # Runs

    def find_run(self, text: str) -> str:
        """Return the run that a text names; raise NotFoundError or AmbiguousError.

        `text` is the beginning or a unique part of its id, or an agent's id of the session.
        """
        return self._checkpoints.addresses.find_run(text)

    def run_named(self, text: str) -> str | None:
        """Return the run if a text names one, and no checkpoint; raise AmbiguousError."""
        return self._checkpoints.addresses.find_named_run(text)

    def newest(self, run: str) -> Checkpoint:
        """Return a run's newest checkpoint; raise NotFoundError or InvalidCheckpoint."""
        return self._checkpoints.heads.move_head_up_and_read(ids.require_run_id(run))

    def is_ours(self, checkpoint: Checkpoint | str) -> bool:
        """Return whether this clone wrote a checkpoint or the user decided to trust it."""
        from gitckpt.store.runs import trust

        return trust.is_trusted(self._checkpoints, self._resolve(checkpoint))

    def runs(self) -> Sequence[RunInfo]:
        """List all runs with their status; sort by newest checkpoint, newest run first."""
        from gitckpt.store.runs import summary

        return summary.list_runs(self._checkpoints)

    def unfinished_runs(self) -> Sequence[RunInfo]:
        """List this worktree's unfinished runs that no process drives, newest first."""
        from gitckpt.store.runs import summary

        return summary.list_unfinished_runs(self._checkpoints)

    def made_elsewhere(self, names: Iterable[str]) -> Mapping[str, str]:
        """Map ids of runs and checkpoints to the other worktrees that they were made in."""
        from gitckpt.store.runs import summary

        return summary.find_made_in_others(self._checkpoints, as_strings("names", names))

    def history(self, run: str) -> History:
        """Return a run's history, phase by phase; raise NotFoundError without such a run."""
        from gitckpt.store.runs import summary

        return summary.read_history(self._checkpoints, run)

    def cancel(self, run: str, *, wait: float = 30.0) -> bool:
        """Stop the process that drives a run; return whether there was one.

        The run can be resumed. Raises CkptError if the process still runs after `wait` seconds. If
        `wait` is 0, this only asks the process to stop, and does not wait.
        """
        from gitckpt.store.leases.leases import cancel_driver

        arguments.require_seconds("wait", wait)
        leases, announce = self._checkpoints.leases, self._checkpoints.announce
        return cancel_driver(leases, ids.require_run_id(run), wait=wait, tell=announce)

    def take_over(self, run: str, *, holder: str = "a program") -> None:
        """Release the lease of a run if its driver is stalled; otherwise raise LeaseHeld."""
        require_text("holder", holder)
        checkpoints = self._checkpoints
        checkpoints.heads.read(ids.require_run_id(run))
        checkpoints.leases.acquire_lease(run, holder, take_over=True).release_lease()

    def run_of(self, key: str) -> str | None:
        """Return the id of the run that `record` started with this key, or None."""
        return self._checkpoints.claim_of_key(key).existing_run()

    def latest_resumable(self) -> Checkpoint | None:
        """Return this worktree's newest checkpoint of an unfinished run or phase."""
        from gitckpt.store.runs import summary

        return summary.find_resumable(self._checkpoints)

    def remove_run(self, run: str) -> int:
        """Remove a run, its worktree, lease and files; return how many checkpoints it had.

        Raises LeaseHeld (a process drives the run), WorktreeError (its worktree has uncaptured
        changes) or UsageError (another run needs this run).
        """
        from gitckpt.store.retention import expiry

        return expiry.remove_run(self._checkpoints, ids.require_run_id(run))

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
        """Restore files of a checkpoint into this worktree, without moving HEAD.

        First records a safety checkpoint, to which `undo` can return. Restores `paths` (relative to
        the top), and with `index` their index entries; if `paths` is None, all files, the index,
        and a merge or rebase in progress. `announce` gets a list of warnings before any change.
        `trust` accepts a checkpoint that was fetched from another clone. Nothing has changed if
        this raises NotFoundError or WorktreeError.
        """
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        source = self._resolve(checkpoint)
        raw_paths = [] if paths is None else _encode_paths(paths)
        options = {"index": index, "dry_run": dry_run, "trusted": trust}
        return restorer.restore_checkpoint(
            self._checkpoints, source, raw_paths, announce=announce, **options
        )

    def undo(self, *, dry_run: bool = False, announce: _Announce = lambda _: None) -> RestoreResult:
        """Revert this worktree's newest `restore`; raise NotFoundError without one."""
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        return restorer.undo_restore(self._checkpoints, dry_run=dry_run, announce=announce)

    def redo(self, *, dry_run: bool = False, announce: _Announce = lambda _: None) -> RestoreResult:
        """Repeat the `restore` that `undo` reverted; raise NotFoundError without one."""
        from gitckpt.store.restore import restorer

        require_callable("announce", announce)
        return restorer.redo_restore(self._checkpoints, dry_run=dry_run, announce=announce)

    def undo_steps(self) -> Sequence[UndoStep]:
        """List the restores that `undo` can revert, then the ones `redo` can repeat."""
        from gitckpt.store.restore import undo

        return undo.list_steps(self._checkpoints)

    def is_cut_off(self) -> bool:
        """Return whether the newest restore was killed before it had written all files."""
        from gitckpt.store.restore import undo

        return undo.read_stack(self._checkpoints).open is not None

    def here(self) -> str | None:
        """Return the checkpoint that the worktree was last saved as or restored to."""
        from gitckpt.store.restore import undo

        return undo.find_current(self._checkpoints)

    def diff(
        self,
        before: Checkpoint | str,
        after: Checkpoint | str | None = None,
        *,
        paths: Sequence[_Path] = (),
        options: Sequence[str] = (),
    ) -> bytes:
        """Return the output of `git diff` from `before` to `after`, or to this worktree.

        `paths` are pathspecs relative to the current directory; `options` are options of `git
        diff`. Raises NotFoundError if a pathspec matches no file, and WorktreeError if the
        repository lacks the content of a file.
        """
        from gitckpt.store.snapshot import comparison, manifest

        checkpoints, paths = self._checkpoints, arguments.as_paths(paths)
        old, new = (self._resolve(before), None if after is None else self._resolve(after))
        # First check for missing objects: a capture of the same files would write them again.
        manifest.files_tree(checkpoints.repository, old)
        if new is not None:
            place = f"in checkpoint {new.id[: ids.SHORT]}"
            second_files = new.tree, new.git_sha
        elif checkpoints.repository.worktree is not None:
            place = "among the captured files here"
            captured_tree = checkpoints.capture_worktree(recursive=False).tree
            second_files = captured_tree, checkpoints.objects.read_head()[0]
        else:
            hint = "compare two checkpoints: git ckpt diff ID ID"
            raise WorktreeError("there is no worktree here to compare with", hint=hint)
        pairs, repository = ((old.tree, old.git_sha), second_files), checkpoints.repository
        trees = comparison.make_comparable_trees(repository, checkpoints.objects, *pairs)
        self._require_matches(trees, paths, f"in checkpoint {old.id[: ids.SHORT]} or {place}")
        return self._diff(*trees, paths, options)

    def diff_commit(
        self,
        checkpoint: Checkpoint | str,
        *,
        paths: Sequence[_Path] = (),
        options: Sequence[str] = (),
    ) -> bytes:
        """Return `git diff` from a checkpoint's linked commit to its captured files."""
        from gitckpt.store.snapshot import manifest

        repository, full_checkpoint = (self._checkpoints.repository, self._resolve(checkpoint))
        commit_tree = manifest.tree_of_files(repository, None, full_checkpoint.git_sha)
        files_tree = manifest.files_tree(repository, full_checkpoint)
        return self._diff(commit_tree, files_tree, arguments.as_paths(paths), options)

    def _require_matches(self, trees: Sequence[str], paths: Sequence[_Path], where: str) -> None:
        empty_tree = object_id("tree", b"", self._checkpoints.repository.object_format)
        unmatched_paths = [  # perhaps typos
            os.fsdecode(path)
            for path in paths
            if not any(self._diff(empty_tree, tree, [path], ["--name-only"]) for tree in trees)
        ]
        if unmatched_paths:
            hint = "paths are relative to the current directory; see: git ckpt diff ID --stat"
            shown_paths = arguments.join_first(unmatched_paths)
            raise NotFoundError(f"no file {where} matches {shown_paths}", hint=hint)

    def _diff(self, old: str, new: str, paths: Sequence[_Path], options: Sequence[str]) -> bytes:
        repository = self._checkpoints.repository
        try:
            cwd = ["-C", os.getcwd()] if repository.worktree else []
        except FileNotFoundError:  # deleted: paths are relative to the top
            cwd = []
        options = arguments.as_command_words("options", options)
        is_stat = any(option.startswith("--stat") for option in options)  # for people
        settings = ["-c", "core.quotePath=false"] if is_stat else []
        command = [
            *cwd,
            *settings,
            "diff",
            "--no-color",
            *options,
            old,
            new,
            "--",
            *map(os.fsdecode, paths),
        ]
        try:
            return repository.git.run(*command).out
        except GitError as error:
            if find_fetch_hint(error.stderr) is None:
                raise
            problem = "this partial clone lacks contents of files, and diff fetches nothing"
            hint = f"fetch the contents: git diff --numstat {old} {new}; then run the command again"
            raise WorktreeError(problem, hint=hint) from None

    def file(self, checkpoint: Checkpoint | str, path: _Path, *, beside: bool = False) -> bytes:
        """Return a captured file's content; with `beside`, of a file from `beside()`."""
        from gitckpt.store.snapshot import manifest

        arguments.require_path("path", path)
        repository, full_checkpoint = (self._checkpoints.repository, self._resolve(checkpoint))
        return manifest.content(repository, full_checkpoint, os.fsencode(path), beside=beside)

    def beside(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """List a run's inputs and phase outputs, which are stored outside its worktree."""
        from gitckpt.store.runs import run_files

        repository = self._checkpoints.repository
        return run_files.list_run_files(repository, self._resolve(checkpoint).tree)

    def masked(self, checkpoint: Checkpoint | str) -> Sequence[str]:
        """List the files of `beside()` in which gitckpt has masked likely secrets."""
        from gitckpt.store.runs import run_files

        repository = self._checkpoints.repository
        return run_files.list_masked_files(repository, self._resolve(checkpoint).tree)

    def extras(self, checkpoint: Checkpoint | str) -> Extras:
        """Return properties of the captured files that a git tree cannot express."""
        from gitckpt.store.snapshot import manifest

        store = self._checkpoints
        return manifest.read_extras(store.repository, store.objects, self._resolve(checkpoint))

    def diff_states(
        self, before: Checkpoint | str, after: Checkpoint | str
    ) -> Sequence[StateChange]:
        """List the values that differ between the states of two checkpoints."""
        from gitckpt.model import jsonable

        old, new = (dict(self._resolve(checkpoint).state) for checkpoint in (before, after))
        return jsonable.compare_states(old, new)

    def _resolve(self, checkpoint: Checkpoint | str) -> Checkpoint:
        if isinstance(checkpoint, Checkpoint):
            return checkpoint
        return self._checkpoints.read(checkpoint)

    # Upkeep

    def policy(self) -> Policy:
        """Return the retention policy that `gitckpt.toml` and git's configuration define."""
        return self._checkpoints.settings_reader.read_settings().policy

    def expire(
        self,
        policy: Policy | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> ExpireResult:
        """Remove the checkpoints that a policy (by default `policy()`) does not keep."""
        from gitckpt.model.policy import Policy
        from gitckpt.store.retention import expiry, maintenance

        require_type("policy", policy, (Policy, NoneType), "a Policy")
        require_callable("progress", progress)
        store = self._checkpoints
        policy = policy or self.policy()
        result = expiry.expire_checkpoints(store, policy, dry_run=dry_run, progress=progress)
        if not dry_run:
            maintenance.pack_repository(store.repository)
        return result

    def settle(self, what: str) -> bool:
        """Record, in this clone, that a file or a likely secret holds no secret.

        `what` is a path, or a digest from `worktree.suspects`. Returns False if known before.
        """
        from gitckpt.store.secrets import SettledSecrets

        require_text("what", what)
        arguments.require_path("what", what)
        return SettledSecrets(self._checkpoints.repository).mark_as_harmless(what)

    def loosened(self) -> Loosening | None:
        """Return the defaults that `gitckpt.toml` weakens; None if it weakens none."""
        from gitckpt.store.config import settings

        current_settings = settings.read_settings(self._checkpoints.repository)
        current_settings.require_valid_settings()
        return current_settings.loosened

    def allow(self, loosened: Loosening) -> None:
        """Let `gitckpt.toml` weaken these defaults in this clone, until the file changes."""
        from gitckpt.store.config import settings

        require_type("loosened", loosened, settings.Loosening, "what Store.loosened returned")
        settings.record_approval(self._checkpoints.repository, [loosened.digest])

    def disallow(self) -> bool:
        """Withdraw all permissions that `allow` gave; return False if there were none."""
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
        """Check every checkpoint, or the ones in `only`, and all objects that it needs.

        `repair` rewrites refs, notes and the index, which follow from the documents, and restores
        replaced documents; this may raise BusyError. `contents` also reads every object, and then
        calls `progress` with two numbers: objects read, and objects in all. `only` has full ids of
        checkpoints and runs.
        """
        from gitckpt.store.audit import verification

        require_callable("progress", progress, may_be_none=True)
        if repair:
            with contextlib.suppress(BusyError):  # queued notes are not an error
                self._checkpoints.write_links()
        only = None if only is None else as_strings("only", only)
        return verification.verify_repository(
            self._checkpoints, repair=repair, contents=contents, only=only, progress=progress
        )

    def write_notes(self, *, only_if_due: bool = False) -> bool:
        """Write the queued git notes, or only if due; return whether the notes changed."""
        checkpoints = self._checkpoints
        return checkpoints.write_due_links() if only_if_due else checkpoints.write_links()

    def examine(self) -> Diagnosis:
        """Check git, hooks, settings, locks and refs for problems, without any change."""
        from gitckpt.store.audit import doctor

        return doctor.diagnose(self._checkpoints)

    def usage(self) -> Usage:
        """Measure the disk usage of checkpoints, worktrees and gitckpt's own files."""
        from gitckpt.store import usage

        return usage.measure_usage(self._checkpoints)

    def install(self, hooks: str = "auto") -> Installation:
        """Install git hooks, which record each commit, and `gitckpt.toml`.

        `hooks` selects how: "config" (in git's configuration), "files" (in the hooks directory),
        "external" (the user adds the lines of `advice` to hooks), "none", or "auto" (chooses).
        """
        from gitckpt.store import setup
        from gitckpt.store.retention import maintenance

        result = setup.install_hooks(self._checkpoints.repository, hooks)
        maintenance.record_never_maintained_if_new(self._checkpoints.repository)
        return result

    def outlook(self) -> str:
        """Return whether the installed hooks will record the next commit.

        The result is "recorded", "missed" (the user must act), "none" (installed without hooks) or
        "not installed".
        """
        from gitckpt.git.command import require_git_version
        from gitckpt.store.hooks import installation

        repository = self._checkpoints.repository
        return installation.predict_next_commit(repository, version=require_git_version())

    def uninstall(self) -> Installation:
        """Remove what `install` added, but keep checkpoints and other tools' hook lines."""
        from gitckpt.store import setup

        return setup.uninstall_hooks(self._checkpoints.repository)


def _encode_paths(paths: Sequence[_Path]) -> list[bytes]:
    encoded_paths = [os.fsencode(path) for path in arguments.as_paths(paths)]
    if not encoded_paths:
        raise UsageError("paths: the list is empty", hint="pass no paths to restore all files")
    if b"" in encoded_paths:
        raise UsageError("paths: a path is empty", hint='name "." for all files')
    return [b"" if raw == b"." else raw for raw in encoded_paths]  # git names the top ""


def _require_entries(entries: Sequence[CheckpointInfo]) -> Sequence[CheckpointInfo]:
    from gitckpt.store.records.entry import CheckpointInfo

    require_type("entries", entries, Iterable, "a list of entries")
    return arguments.as_tuple("entries", entries, CheckpointInfo, "a CheckpointInfo")


def checkpoints_of_store(store: Store) -> Checkpoints:
    require_type("store", store, Store, "a Store")
    return store._checkpoints  # noqa: SLF001 - the only access to it
