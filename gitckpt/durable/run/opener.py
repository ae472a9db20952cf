"""Record the first checkpoint of a run; reopen runs with their lease and worktree."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

from gitckpt.durable.command.watchdog import DriverEnvTag, end_leftover_processes
from gitckpt.durable.run import rewind
from gitckpt.durable.run.writer import lock_run_files
from gitckpt.git.contents import unfiltered
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.arguments import require_text
from gitckpt.model.checkpoint import CLEAN, PHASE, Checkpoint, Pipeline
from gitckpt.model.errors import NotFoundError, RunComplete, RunExists, UsageError, WorktreeError
from gitckpt.model.values import dataclass, replace
from gitckpt.store import local_checkpoints, submodules
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.leases.leases import LENGTH, HeldLease, LeaseLost
from gitckpt.store.records import ref_names
from gitckpt.store.runs import run_files, trust
from gitckpt.store.runs.run_files import RunFiles
from gitckpt.store.worktrees import opener, resumption


class OpenRunOptions(TypedDict, total=False):
    accept_changes: bool
    again: bool
    adapter: str
    holder: str
    directory: str | os.PathLike[str] | None
    take_over: bool
    trust: bool
    lease: int


@dataclass(frozen=True, slots=True)
class ReopenedRun:
    run: str
    path: str  # of the worktree
    store: Checkpoints  # opened in the worktree
    files: RunFiles
    hold: HeldLease
    newest: Checkpoint
    is_new: bool  # the worktree was just created
    remarks: tuple[str, ...]
    accepts_changes: bool
    leases: Checkpoints  # a store only for the lease, as its renewal runs in a thread

    def close_stores(self) -> None:
        self.store.close()
        self.leases.close()


def begin_run(
    store: Checkpoints,
    name: str,
    *,
    base: str = "HEAD",
    state: Mapping[str, Any],
    pipeline: Pipeline,
    files: Mapping[str, bytes] | None = None,
    key: str | None = None,
) -> Checkpoint:
    run_settings = settings.read_settings(store.repository)
    if pipeline.name is not None:
        run_settings.require_valid_settings()
    # Raises for a bare repository without a configured directory.
    opener.worktrees_dir(store.repository, run_settings.worktree_dir)
    if key is not None:
        store.claim_of_key(key).require_key_unused()  # before anything is written
    commit = store.repository.resolve_commit_or_unborn(base)
    if pipeline.name is not None:
        # The run's worktree will contain the settings file of that commit.
        settings.require_valid_settings_at(store.repository, commit)
    snapshot = CLEAN
    if run_settings.limits.submodules:
        snapshot = replace(CLEAN, submodules=submodules.capture_submodules_of_tree(store, commit))
    if files:
        snapshot = run_files.add_input_files(
            store.repository, store.objects, snapshot, commit, files
        )
    details: Any = {"worktree": snapshot, "trigger": PHASE, "pipeline": pipeline}
    record = store.record(ref_names.RUN_STARTED, state, start=name, key=key, base=commit, **details)
    if files:
        run_files.files_of_run(store.repository, str(record.run)).write_inputs(files)
    return record


def find_or_begin(
    store: Checkpoints, name: str, *, key: str | None, base: str, state: Mapping[str, Any]
) -> tuple[Checkpoint, bool]:
    """Return the newest checkpoint of the run with a key, or the first of a new run.

    The second value is True if the run is new.
    """
    require_text("name", name)
    try:
        return begin_run(store, name, base=base, state=state, pipeline=Pipeline(), key=key), True
    except RunExists as error:
        return _read_trusted_checkpoint(store, error.run, trusted=False), False


def require_known_arguments(names: Iterable[str], known_names: Iterable[str]) -> None:
    unknown_names = sorted({*names} - {*known_names})
    if unknown_names:
        hint = f"valid arguments: {', '.join(sorted(known_names))}"
        raise UsageError(f"there is no argument {unknown_names[0]!r}", hint=hint)


def reopen_run(store: Checkpoints, run: str, **options: Unpack[OpenRunOptions]) -> ReopenedRun:
    require_known_arguments(options, OpenRunOptions.__annotations__)
    accepts_complete = options.get("again", False)
    newest = _read_trusted_checkpoint(store, run, trusted=options.get("trust", False))
    if not accepts_complete:
        release_lease_of_complete_run(store, run)
    require_incomplete(store, newest, again=accepts_complete)
    source = store.repository
    with contextlib.ExitStack() as cleanups:
        lease_repository = Repository(source.git_dir, source.worktree, source.object_format)
        lease_store = store.open_store_for(lease_repository, "plumbing")
        cleanups.callback(lease_store.close)
        holder, lease_length = options.get("holder", "a program"), options.get("lease", LENGTH)
        take_over = options.get("take_over", False)
        hold = lease_store.leases.acquire_lease(run, holder, lease_length, take_over=take_over)
        cleanups.callback(_release_lease, hold)
        # Read the run again: the last driver may have written until now.
        newest = _read_trusted_checkpoint(store, run, trusted=False)
        require_incomplete(store, newest, again=accepts_complete)
        # The scan takes 1 ms for 100 processes.
        env_tag = DriverEnvTag(run, hold.lease.token, source.common_dir)
        ended_processes = [] if hold.is_first else end_leftover_processes(env_tag)
        with lock_run_files(source, hold):
            directory = options.get("directory")
            opened = resumption.resume_checkpoint(store, newest, directory, is_driven=True)
            if opened.unfiltered:  # an agent would take unfiltered files for real content
                raise unfiltered.unfiltered_files_error(opened.unfiltered, f"git ckpt resume {run}")
            repository = administration.open_linked_worktree(source, opened.path)
            if repository is None:
                hint = "run: git ckpt doctor"
                raise WorktreeError(f"{opened.path} is not a worktree", hint=hint)
            files = run_files.files_of_run(source, run)
            if newest.tree is not None:
                files.restore_missing(source, store.objects, newest.tree)
            run_store = store.open_store_for(repository, options.get("adapter", "auto"))
            cleanups.callback(run_store.close)
            update_remarks = rewind.update_worktree(run_store, files, newest)
        cleanups.pop_all()
    accepts, remarks = options.get("accept_changes", False), (*opened.remarks, *update_remarks)
    if ended_processes:
        remarks = (f"ended processes of an earlier attempt: {', '.join(ended_processes)}", *remarks)
    return ReopenedRun(
        run, opened.path, run_store, files, hold, newest, opened.made, remarks, accepts, lease_store
    )


def _read_trusted_checkpoint(store: Checkpoints, run: str, *, trusted: bool) -> Checkpoint:
    store.heads.move_head_up(run)
    head_oid, newest = store.heads.read_head(run)
    if not local_checkpoints.is_document_local(store.repository, run, head_oid):
        if not trusted:
            raise trust.trust_error(store, newest, trust.describe(store, newest))
        trust.adopt(store, run, head_oid)
    return newest


def release_lease_of_complete_run(store: Checkpoints, run: str) -> bool:
    if store.heads.move_head_up_and_read(run).label != ref_names.RUN_COMPLETE:
        return False
    lease = store.leases.read(run)
    if lease is None or lease[1].released is not None or store.leases.is_held(*lease):
        return False
    _release_lease(store.leases.acquire_lease(run, "cleanup after a killed driver"))
    return True


def _release_lease(hold: HeldLease) -> None:
    try:
        hold.release_lease()
    except LeaseLost:
        return  # another driver has taken over


def require_incomplete(store: Checkpoints, newest: Checkpoint, *, again: bool = False) -> None:
    if newest.label == ref_names.RUN_COMPLETE and not again:
        raise RunComplete(str(newest.run), _read_phase_results(store, newest))


def _read_phase_results(store: Checkpoints, newest: Checkpoint) -> dict[str, Any]:
    # Omits phases whose checkpoints are gone.
    results: dict[str, Any] = {}
    completed_phases = newest.pipeline.completed if newest.pipeline is not None else {}
    for phase, checkpoint_id in completed_phases.items():
        with contextlib.suppress(NotFoundError):
            attempt = trust.read(store, str(newest.run), checkpoint_id).attempt
            is_of_phase = attempt is not None and attempt.phase == phase
            json_result = attempt.result if attempt is not None and is_of_phase else None
            results[phase] = json.loads(json_result) if json_result is not None else None
    return results
