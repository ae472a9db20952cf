"""Begins a run, or opens it again: its first checkpoint, its lease, its worktree, its files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from gitckpt.durable.command.env_tag import EnvTag, end_leftovers
from gitckpt.durable.run import rewind
from gitckpt.durable.run.writer import FilesLock
from gitckpt.git.contents import unfiltered
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.arguments import require_text
from gitckpt.model.checkpoint import CLEAN, PHASE, Checkpoint, Pipeline
from gitckpt.model.errors import NotFoundError, RunComplete, RunExists, UsageError, WorktreeError
from gitckpt.model.values import dataclass, replace
from gitckpt.store import roster, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.leases.leases import LENGTH, Hold, LeaseLost
from gitckpt.store.records import layout
from gitckpt.store.runs import run_files, trust
from gitckpt.store.runs.run_files import RunFiles
from gitckpt.store.worktrees import opener, resumption

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import TypedDict, Unpack

    class How(TypedDict, total=False):
        """How a run is opened again."""

        accept_changes: bool
        """Whether inputs and definition may be other ones than it was started with."""

        again: bool
        """Whether a run that is complete may be gone on with."""

        adapter: str
        """As for `Store`; "auto" by default."""

        holder: str
        """What its lease is taken for, for people."""

        directory: str | os.PathLike[str] | None
        """Where its worktree is made; by default where the settings say."""

        take_over: bool
        """Whether it is taken from a driver that is alive and stalled, whose commands are ended."""

        trust: bool
        """Whether a run that was not written here is taken for one of ours, as it stands."""

        lease: int
        """How long its lease is good without being renewed, in microseconds; ten minutes at most."""


_KNOWN = frozenset(("accept_changes", "again", "adapter", "holder", "directory", "take_over", "trust", "lease"))


@dataclass(frozen=True, slots=True)
class Opening:
    """A run that is open: nobody else drives it.

    Attributes:
        run: its id.
        path: the top of its worktree.
        store: as seen from there.
        files: its files that lie beside the worktree.
        hold: its lease.
        newest: its newest checkpoint.
        crashed: whether its last driver ended without having given the lease back.
        made: whether the worktree was made just now.
        remarks: what else the person should know, a sentence each.
        accepts_changes: whether inputs and definition may be other ones than it was started with.
        leases: the store that the lease is kept in; only the lease uses it, as threads do.
    """

    run: str
    path: str
    store: Checkpoints
    files: RunFiles
    hold: Hold
    newest: Checkpoint
    crashed: bool
    made: bool
    remarks: tuple[str, ...]
    accepts_changes: bool
    leases: Checkpoints

    def close(self) -> None:
        """Lets go of processes and files."""
        self.store.close()
        self.leases.close()


def begin(
    store: Checkpoints,
    name: str,
    *,
    base: str = "HEAD",
    state: Mapping[str, Any],
    pipeline: Pipeline,
    files: Mapping[str, bytes] | None = None,
    key: str | None = None,
) -> Checkpoint:
    """Records the first checkpoint of a run, and returns it.

    Args:
        name: what the run is about; becomes part of its id.
        base: the rev that its worktree begins with.
        state: what its checkpoints carry.
        pipeline: what drives it.
        files: its inputs that are files: name → content.
        key: the caller's own name for it, which no other run has.

    Raises:
        NotFoundError: there is no such rev.
        RunExists: a run with that key exists.
        ConfigError: a pipeline drives it, and `gitckpt.toml` has mistakes, here or in the commit.
        StateError: the state cannot be stored losslessly.
        WorktreeError: the repository is bare, and no directory for worktrees is configured.
    """
    said = settings.read(store.repository)
    if pipeline.name is not None:
        said.require_correct()
    opener.default_root(store.repository, said.worktree_dir)  # a bare repository may have none
    if key is not None:
        store.claim(key).require_free()  # before anything is written for a run that will not be
    commit = store.repository.commit_or_unborn(base)
    if pipeline.name is not None:
        # Its worktree will have that file, and nobody has looked at it.
        settings.require_correct(store.repository, commit)
    there = replace(CLEAN, submodules=submodules.of_tree(store, commit)) if said.limits.submodules else CLEAN
    if files:
        there = run_files.with_inputs(store.repository, store.objects, there, commit, files)
    made = store.record(layout.RUN_STARTED, state, start=name, key=key, base=commit, worktree=there, trigger=PHASE, pipeline=pipeline)
    if files:
        run_files.of_run(store.repository, str(made.run)).keep(files)
    return made


def find_or_begin(store: Checkpoints, name: str, *, key: str | None, base: str, state: Mapping[str, Any]) -> tuple[Checkpoint, bool]:
    """Begins a run that nothing but a program or people drive, unless there is one with its key.

    Args:
        name: what the run is about; becomes part of its id.
        key: the caller's own name for it; None begins one in any case.
        base: the rev that its worktree begins with.
        state: what its checkpoints carry.

    Returns:
        The newest checkpoint of the run, and whether it began just now.

    Raises:
        UsageError: the name is no string.
        Untrusted: the run with the key was not written here: a key may have been fetched, too.
        Exception: as `begin`.
    """
    require_text("name", name)
    try:
        return begin(store, name, base=base, state=state, pipeline=Pipeline(), key=key), True
    except RunExists as error:
        return _ours(store, error.run, trusted=False), False


def reopen(store: Checkpoints, run: str, **how: Unpack[How]) -> Opening:
    """Takes the lease of a run, and opens its worktree, which is made again if it is gone.

    Args:
        how: see `How`.

    Raises:
        NotFoundError: there is no such run.
        RunComplete: it is complete.
        UsageError: there is no such argument.
        Untrusted: it was not written here, and is not trusted.
        LeaseHeld: somebody who is alive drives it.
        WorktreeError: its worktree cannot be opened.
        BusyError: a process that an earlier attempt left cannot be ended, or somebody still brings files into the worktree.
    """
    unknown = sorted(set(how) - _KNOWN)
    if unknown:
        raise UsageError(f"there is no argument {unknown[0]!r}", hint=f"how a run may be gone on with: {', '.join(sorted(_KNOWN))}")
    again = how.get("again", False)
    newest = _ours(store, run, trusted=how.get("trust", False))
    if not again:
        settle(store, run)
    require_open(store, newest, again=again)
    lease_store = store.seen_from(_again(store.repository), "plumbing")
    hold = None
    try:
        take_over = how.get("take_over", False)
        hold = lease_store.leases.acquire(run, how.get("holder", "a program"), how.get("lease", LENGTH), take_over=take_over)
        crashed = not hold.is_first and (hold.before is None or hold.before.released is None)
        newest = _ours(store, run, trusted=False)  # again: until the lease was ours, somebody else may have written
        require_open(store, newest, again=again)
        ended = _end_what_is_left(store, hold)
        with FilesLock(store.repository, hold):
            opened = resumption.resume(store, newest, how.get("directory"), is_driven=True)
            if opened.unfiltered:  # nobody is there to notice what an agent makes of them
                raise unfiltered.failure(opened.unfiltered, f"git ckpt resume {run}")
            there = administration.seen_from(store.repository, opened.path)
            if there is None:
                raise WorktreeError(f"{opened.path} is no worktree", hint="see what is wrong: git ckpt doctor")
            files = run_files.of_run(store.repository, run)
            tree = newest.tree
            if tree is not None:
                files.bring_back(store.repository, store.objects, tree)
            seen, caught_up = _caught_up(store.seen_from(there, how.get("adapter", "auto")), files, newest)
    except BaseException:
        if hold is not None:
            _give_back(hold)
        lease_store.close()
        raise
    return Opening(
        run=run,
        path=opened.path,
        store=seen,
        files=files,
        hold=hold,
        newest=newest,
        crashed=crashed,
        made=opened.made,
        remarks=(*ended, *opened.remarks, *caught_up),
        accepts_changes=how.get("accept_changes", False),
        leases=lease_store,
    )


def _caught_up(seen: Checkpoints, files: RunFiles, newest: Checkpoint) -> tuple[Checkpoints, tuple[str, ...]]:
    """Returns a store as seen from a run's worktree, and what was done for that to be where the run is, a sentence each."""
    try:
        return seen, rewind.catch_up(seen, files, newest)
    except BaseException:
        seen.close()
        raise


def _ours(store: Checkpoints, run: str, *, trusted: bool) -> Checkpoint:
    """Returns the newest checkpoint of a run, which must have been written here; one that is trusted is adopted. Errors: as `reopen`."""
    store.heads.move_up(run)
    oid, newest = store.heads.head(run)
    if not roster.knows(store.repository, run, oid):
        if not trusted:
            raise trust.refusal(store, newest, trust.account(store, newest))
        trust.adopt(store, run, oid)
    return newest


def _end_what_is_left(store: Checkpoints, hold: Hold) -> tuple[str, ...]:
    """End what earlier attempts left running, and return a sentence about it. The scan takes 1 ms for 100 processes."""
    if hold.is_first:
        return ()
    ended = end_leftovers(EnvTag(hold.lease.run, hold.lease.token, store.repository.common_dir))
    return (f"what an earlier attempt had left running was ended: {', '.join(ended)}",) if ended else ()


def settle(store: Checkpoints, run: str) -> bool:
    """Releases the lease of a run that is complete, where its driver was killed in the last moment.

    Returns:
        Whether it was still held.

    Raises:
        NotFoundError: there is no such run.
        LeaseHeld: somebody drives it.
    """
    if store.heads.catch_up(run).label != layout.RUN_COMPLETE:
        return False
    found = store.leases.read(run)
    if found is None or found[1].released is not None or store.leases.is_held(*found):
        return False
    _give_back(store.leases.acquire(run, "what a driver left undone"))
    return True


def _give_back(hold: Hold) -> None:
    try:
        hold.release()
    except LeaseLost:
        return  # taken over meanwhile


def _again(repository: Repository) -> Repository:
    """Returns the same repository, with processes of its own."""
    return Repository(repository.git_dir, repository.worktree, repository.object_format)


def require_open(store: Checkpoints, newest: Checkpoint, *, again: bool = False) -> None:
    """Raise `RunComplete` for a run that is complete, unless it may be gone on with `again`."""
    if newest.label == layout.RUN_COMPLETE and not again:
        raise RunComplete(str(newest.run), _results(store, newest))


def _results(store: Checkpoints, newest: Checkpoint) -> dict[str, Any]:
    """Return what the phases of a run returned; without those whose checkpoints are gone."""
    found: dict[str, Any] = {}
    for phase, checkpoint_id in newest.pipeline.completed.items() if newest.pipeline is not None else ():
        with contextlib.suppress(NotFoundError):
            attempt = trust.read(store, str(newest.run), checkpoint_id).attempt
            is_its = attempt is not None and attempt.phase == phase and attempt.result is not None
            found[phase] = json.loads(str(attempt.result)) if attempt is not None and is_its else None
    return found
