"""Begin a run or reopen it: first checkpoint, lease, worktree and files."""

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
        """Options for reopening a run; see `Run.resume`."""

        accept_changes: bool
        again: bool
        adapter: str
        holder: str
        directory: str | os.PathLike[str] | None
        take_over: bool
        trust: bool
        lease: int


_KNOWN = frozenset(("accept_changes", "again", "adapter", "holder", "directory", "take_over", "trust", "lease"))


@dataclass(frozen=True, slots=True)
class Opening:
    """An open run; no other process drives it."""

    run: str
    path: str
    store: Checkpoints
    files: RunFiles
    hold: Hold
    newest: Checkpoint
    crashed: bool  # the last driver did not release the lease
    made: bool  # the worktree was just created
    remarks: tuple[str, ...]
    accepts_changes: bool
    leases: Checkpoints  # a store for the lease, whose renewal runs in a thread

    def close(self) -> None:
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
    """Record the first checkpoint of a run; raise RunExists if a run has the key.

    `name` becomes part of the run id; `files` maps the names of input files to their content.
    """
    rules = settings.read(store.repository)
    if pipeline.name is not None:
        rules.require_correct()
    opener.default_root(store.repository, rules.worktree_dir)  # raises for a bare repository without one
    if key is not None:
        store.claim(key).require_free()  # before anything is written
    commit = store.repository.commit_or_unborn(base)
    if pipeline.name is not None:
        # The run's worktree will contain the settings file of that commit.
        settings.require_correct(store.repository, commit)
    worktree = replace(CLEAN, submodules=submodules.of_tree(store, commit)) if rules.limits.submodules else CLEAN
    if files:
        worktree = run_files.with_inputs(store.repository, store.objects, worktree, commit, files)
    made = store.record(layout.RUN_STARTED, state, start=name, key=key, base=commit, worktree=worktree, trigger=PHASE, pipeline=pipeline)
    if files:
        run_files.of_run(store.repository, str(made.run)).keep(files)
    return made


def find_or_begin(store: Checkpoints, name: str, *, key: str | None, base: str, state: Mapping[str, Any]) -> tuple[Checkpoint, bool]:
    """Begin a run without a pipeline, or find the one with the key.

    Returns the newest checkpoint of the run, and whether the run is new. Raises Untrusted if the
    run was not written here: keys may be fetched, too.
    """
    require_text("name", name)
    try:
        return begin(store, name, base=base, state=state, pipeline=Pipeline(), key=key), True
    except RunExists as error:
        return _ours(store, error.run, trusted=False), False


def reopen(store: Checkpoints, run: str, **how: Unpack[How]) -> Opening:
    """Acquire the lease of a run and open its worktree, recreated if missing.

    Raises RunComplete, Untrusted, LeaseHeld, or BusyError if a leftover process cannot be ended or
    files are still being restored.
    """
    unknown = sorted(set(how) - _KNOWN)
    if unknown:
        raise UsageError(f"there is no argument {unknown[0]!r}", hint=f"how a run may be gone on with: {', '.join(sorted(_KNOWN))}")
    again = how.get("again", False)
    newest = _ours(store, run, trusted=how.get("trust", False))
    if not again:
        settle(store, run)
    require_open(store, newest, again=again)
    here = store.repository
    own = Repository(here.git_dir, here.worktree, here.object_format)
    lease_store = store.seen_from(own, "plumbing")
    hold = None
    try:
        take_over = how.get("take_over", False)
        hold = lease_store.leases.acquire(run, how.get("holder", "a program"), how.get("lease", LENGTH), take_over=take_over)
        crashed = not hold.is_first and (hold.before is None or hold.before.released is None)
        newest = _ours(store, run, trusted=False)  # again: the last driver may have written until now
        require_open(store, newest, again=again)
        ended = _end_what_is_left(store, hold)
        with FilesLock(store.repository, hold):
            opened = resumption.resume(store, newest, how.get("directory"), is_driven=True)
            if opened.unfiltered:  # an agent would take unfiltered files for real content
                raise unfiltered.failure(opened.unfiltered, f"git ckpt resume {run}")
            repository = administration.seen_from(store.repository, opened.path)
            if repository is None:
                raise WorktreeError(f"{opened.path} is no worktree", hint="see what is wrong: git ckpt doctor")
            files = run_files.of_run(store.repository, run)
            if newest.tree is not None:
                files.bring_back(store.repository, store.objects, newest.tree)
            seen, caught_up = _caught_up(store.seen_from(repository, how.get("adapter", "auto")), files, newest)
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
    try:
        return seen, rewind.catch_up(seen, files, newest)
    except BaseException:
        seen.close()
        raise


def _ours(store: Checkpoints, run: str, *, trusted: bool) -> Checkpoint:
    store.heads.move_up(run)
    oid, newest = store.heads.head(run)
    if not roster.knows(store.repository, run, oid):
        if not trusted:
            raise trust.refusal(store, newest, trust.account(store, newest))
        trust.adopt(store, run, oid)
    return newest


def _end_what_is_left(store: Checkpoints, hold: Hold) -> tuple[str, ...]:
    # The scan takes 1 ms for 100 processes.
    if hold.is_first:
        return ()
    ended = end_leftovers(EnvTag(hold.lease.run, hold.lease.token, store.repository.common_dir))
    return (f"what an earlier attempt had left running was ended: {', '.join(ended)}",) if ended else ()


def settle(store: Checkpoints, run: str) -> bool:
    """Release a killed driver's lease of a complete run; return whether it was held."""
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
        return  # another driver has taken over


def require_open(store: Checkpoints, newest: Checkpoint, *, again: bool = False) -> None:
    if newest.label == layout.RUN_COMPLETE and not again:
        raise RunComplete(str(newest.run), _results(store, newest))


def _results(store: Checkpoints, newest: Checkpoint) -> dict[str, Any]:
    # Omits phases whose checkpoints are gone.
    found: dict[str, Any] = {}
    for phase, checkpoint_id in newest.pipeline.completed.items() if newest.pipeline is not None else ():
        with contextlib.suppress(NotFoundError):
            attempt = trust.read(store, str(newest.run), checkpoint_id).attempt
            is_its = attempt is not None and attempt.phase == phase and attempt.result is not None
            found[phase] = json.loads(str(attempt.result)) if attempt is not None and is_its else None
    return found
