"""Run background maintenance: expire, sweep leftovers, pack refs and objects."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Mapping

from gitckpt.git import config, packing
from gitckpt.git.command import require_git_version
from gitckpt.git.files import private_dirs
from gitckpt.git.lock import FileLock, is_locked
from gitckpt.git.repository import Repository, discover_repository
from gitckpt.model import runstate, times
from gitckpt.model.errors import CkptError, InvalidCheckpoint, NotFoundError
from gitckpt.model.policy import NOTHING_EXPIRES, Policy
from gitckpt.model.values import dataclass
from gitckpt.store import error_log
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.records import ref_names
from gitckpt.store.retention import expiry, runs
from gitckpt.store.runs import summary
from gitckpt.store.worktrees import rescue


@dataclass(frozen=True, slots=True)
class RetireResult:
    removed_runs: tuple[str, ...]  # ids
    kept_runs: Mapping[str, str]  # by id of a run that was due: why it was not removed


def cleanup_runs(
    store: Checkpoints, *, pipeline: str | None = None, older_than: int
) -> RetireResult:
    """Remove complete runs older than `older_than` µs, only of `pipeline` if given."""
    run_ids = None if pipeline is None else _list_runs_of(store, pipeline)
    decided_fates, chains = runs.decide_fates(store, Policy(runs_older_than=older_than), run_ids)
    fates = runs.remove_runs(store, chains, decided_fates)
    for fate in fates:
        if fate.failure is not None:
            raise fate.failure
    reasons = {fate.run: fate.reason for fate in fates if fate.is_due and not fate.expires}
    return RetireResult(tuple(fate.run for fate in fates if fate.expires), reasons)


def _list_runs_of(store: Checkpoints, pipeline: str) -> set[str]:
    run_ids = set()
    for info in summary.list_runs(store):
        with contextlib.suppress(InvalidCheckpoint, NotFoundError):
            if info.status == runstate.COMPLETE and (table := store.read(info.newest).pipeline):
                run_ids |= {info.run} if table.name == pipeline else set()
    return run_ids


_PATIENCE = 600.0  # seconds that a background task waits for another one
_DONE, _FAILED, _AT_WORK, _NEVER = "done", "failed: ", "is at work", "never ran"


@dataclass(frozen=True, slots=True)
class MaintenanceState:
    started: int | None = None  # in microseconds since the epoch; None if maintenance never ran
    ended: int | None = None  # likewise; None if maintenance still runs or was killed
    outcome: str = _NEVER


def run_maintenance(repository: Repository) -> None:
    """Expire checkpoints, delete leftovers and pack; write the outcome to a file."""
    try:
        require_git_version()
        try:
            rescue_worktrees(repository)
            with Checkpoints(repository, adapter="plumbing") as store:
                rules = settings.read_settings(repository)
                clock_doubt = expiry.check_clock(repository, store.clock())
                problem = f"nothing expires: {rules.problem}" if rules.problem else None
                for sentence in filter(None, (problem, rules.loosening_notice, clock_doubt)):
                    error_log.append_to_log(repository, f"maintenance: {sentence}")
                # After a mistake in the settings it is unclear which values should apply.
                policy = NOTHING_EXPIRES if clock_doubt or problem else rules.policy
                failures = expiry.expire_checkpoints(store, policy).failed
        finally:  # also after an error: one locked ref must not let the repository grow
            pack_repository(repository)
            collect_garbage(repository)
        if failures:
            raise failures[0][1]
    except Exception as error:
        name = "" if isinstance(error, CkptError) else f"{type(error).__name__}: "
        _record_outcome(repository, f"{_FAILED}{name}{error}")
        raise
    _record_outcome(repository, _DONE)


def rescue_worktrees(repository: Repository) -> None:
    """Capture the changed files of all linked worktrees; log each failure."""
    with Checkpoints(repository, adapter="plumbing") as store:
        for sentence in rescue.capture_linked(store):
            error_log.append_to_log(repository, sentence)


def run_in_background(repository: Repository, task: Callable[[Repository], None]) -> None:
    gc.disable()  # cycle detection over 100,000 checkpoints takes 1 s and finds none
    path = os.path.join(repository.make_private_dir(), ref_names.MAINTENANCE_LOCK)
    with FileLock(path, _PATIENCE) as is_acquired:
        if is_acquired:
            task(discover_repository())


def update_keep_refs(repository: Repository) -> None:
    # If this fails, the next removal tries again.
    try:
        with Checkpoints(repository, adapter="plumbing") as store:
            store.make_remover().update_keep_refs()
    except CkptError as error:
        problem = "git gc may delete commits of checkpoints below the shallow boundary"
        error_log.append_to_log(repository, f"{problem}: {error.message}")


def record_never_maintained(repository: Repository) -> None:
    _record_outcome(repository, _NEVER)


def record_never_maintained_if_new(repository: Repository) -> None:
    is_known = os.path.exists(os.path.join(repository.private_dir, ref_names.MAINTAINED))
    if is_known or repository.read_shallow_and_grafts():
        return
    if not repository.git.run("for-each-ref", "--count=1", "refs/checkpoints").out:
        record_never_maintained(repository)


def read_last_maintenance(repository: Repository) -> MaintenanceState:
    try:
        path = os.path.join(repository.private_dir, ref_names.MAINTAINED)
        opener = private_dirs.open_private_file
        with open(path, encoding="utf-8", errors="replace", opener=opener) as file:
            started = os.fstat(file.fileno()).st_mtime_ns // 1000
            ended, _, outcome = file.read().removesuffix("\n").partition(" ")
    except OSError:
        return MaintenanceState()
    if outcome == _NEVER:
        return MaintenanceState()
    try:
        return MaintenanceState(started, times.parse_timestamp(ended), outcome)
    except ValueError:
        lock = os.path.join(repository.private_dir, ref_names.MAINTENANCE_LOCK)
        is_at_work = is_locked(lock) is not False
        return MaintenanceState(started, None, _AT_WORK if is_at_work else "was cut off")


def has_maintenance_failed(maintained: MaintenanceState) -> bool:
    return maintained.outcome.startswith(_FAILED)


def _record_outcome(repository: Repository, outcome: str) -> None:
    path = os.path.join(repository.make_private_dir(), ref_names.MAINTAINED)
    line = f"{times.to_text(times.now())} {' '.join(outcome.split())}\n"
    with open(path, "ab", opener=private_dirs.open_private_file) as file:
        # The mtime of the file is the start time: keep it when the outcome is written.
        status = os.fstat(file.fileno())
        file.truncate(0)
        file.write(line.encode("utf-8", "backslashreplace"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def pack_repository(repository: Repository) -> None:
    packing.pack_refs_if_many(repository, ref_names.OWN, require_git_version())


def collect_garbage(repository: Repository) -> None:
    # git itself only collects after commits, and users who only save never commit.
    values = config.read_settings(repository, r"^(maintenance\.auto|gc\.auto|gc\.cruftpacks)$")
    auto_settings = [values.get(name, ["true"])[-1] for name in ("maintenance.auto", "gc.auto")]
    if not all(map(config.is_true, auto_settings)):
        return
    # GITCKPT_SKIP: gitckpt's own hooks need not run. A user's pre-auto-gc hook may refuse.
    env = {"GITCKPT_SKIP": "1"}
    if packing.count_loose_objects(repository) > packing.PACK_FROM:
        hook = ("hook", "run", "--ignore-missing", "pre-auto-gc")
        if repository.git.run(*hook, env=env, ok=(0, 1)).code != 0:
            return
        packing.pack_all_objects(repository)
    # Unreachable objects wait for two weeks. Before 2.41, git writes each of them as a loose
    # file, warns at each commit and gives up for a day, unless cruft packs are on.
    cruft_args = ("-c", "gc.cruftPacks=true") if "gc.cruftpacks" not in values else ()
    repository.git.run(*cruft_args, "-c", "gc.autoDetach=false", "gc", "--auto", "--quiet", env=env)
