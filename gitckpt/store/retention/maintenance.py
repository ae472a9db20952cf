"""Run background maintenance: expire, sweep leftovers, pack refs and objects.

Imports only the standard library and gitckpt: the hook starts it without other packages.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping

from gitckpt.git import config, packing
from gitckpt.git.command import require_git
from gitckpt.git.files import premises
from gitckpt.git.lock import Lock
from gitckpt.git.repository import Repository, discover
from gitckpt.model import runstate, times
from gitckpt.model.errors import CkptError, InvalidCheckpoint, NotFoundError
from gitckpt.model.policy import NOTHING_EXPIRES, Policy
from gitckpt.model.values import dataclass
from gitckpt.store import log
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.config import settings
from gitckpt.store.records import layout
from gitckpt.store.retention import expiry, runs
from gitckpt.store.runs import summary

# Removal of complete runs by age.


@dataclass(frozen=True, slots=True)
class Retired:
    gone: tuple[str, ...]  # the ids of the removed runs
    kept: Mapping[str, str]  # why each of the other runs that were due stays, by id


def cleanup_runs(store: Checkpoints, *, pipeline: str | None = None, older_than: int) -> Retired:
    """Remove complete runs that are old enough, with their worktrees.

    Args:
        pipeline: the pipeline whose runs may go; None for all runs.
        older_than: minimum age of a run's newest checkpoint, in microseconds.

    Raises:
        BusyError, GitError: checkpoints of a run could not be removed; the other runs are gone.
    """
    among = None if pipeline is None else _runs_of(store, pipeline)
    decided, chains = runs.decide(store, Policy(runs_older_than=older_than), among)
    fates = runs.remove(store, chains, decided)
    failure = next((fate.failure for fate in fates if fate.failure is not None), None)
    if failure is not None:
        raise failure
    kept = {fate.run: fate.reason for fate in fates if fate.is_due and not fate.expires}
    return Retired(tuple(fate.run for fate in fates if fate.expires), kept)


def _runs_of(store: Checkpoints, pipeline: str) -> set[str]:
    runs_of_pipeline = set()
    for run in summary.summaries(store):
        try:
            recorded = store.read(run.newest).pipeline if run.status == runstate.COMPLETE else None
        except (InvalidCheckpoint, NotFoundError):
            continue
        if recorded is not None and recorded.name == pipeline:
            runs_of_pipeline.add(run.run)
    return runs_of_pipeline


# Periodic maintenance.

_DONE, _FAILED, _AT_WORK, _NEVER = "done", "failed: ", "is at work", "never ran"


@dataclass(frozen=True, slots=True)
class Maintained:
    started: int | None = None  # in microseconds since the epoch; None if it never ran
    ended: int | None = None  # None if it has not ended or was cut off
    outcome: str = _NEVER


def maintain(repository: Repository) -> None:
    """Expire checkpoints and runs, sweep leftovers, pack; record the outcome.

    Nothing expires while the settings have a mistake: it is unclear which values should apply.
    """
    try:
        require_git()
        with Checkpoints(repository, adapter="plumbing") as store:
            rules = settings.read(repository)
            if rules.problem:
                log.append(repository, f"maintenance: nothing expires: {rules.problem}")
            if rules.notice:
                log.append(repository, f"maintenance: {rules.notice}")
            doubt = expiry.doubt(repository, store.clock())
            if doubt is not None:
                log.append(repository, f"maintenance: {doubt}")
            policy = NOTHING_EXPIRES if doubt is not None or rules.problem else rules.policy
            expired = expiry.expire(store, policy)
        pack(repository)
        collect(repository)
        if expired.failed:
            raise expired.failed[0][1]  # after everything else is done
    except Exception as error:
        _note(repository, f"{_FAILED}{error.message if isinstance(error, CkptError) else f'{type(error).__name__}: {error}'}")
        raise
    _note(repository, _DONE)


def work(repository: Repository, *, only_pack: bool) -> None:
    """Run maintenance in the background unless another process runs it."""
    gc.disable()  # cycle detection over 100,000 checkpoints takes 1 s and finds none
    with Lock(os.path.join(repository.make_private_dir(), layout.MAINTENANCE_LOCK), 0) as alone:
        if alone and only_pack:
            pack(discover())
        elif alone:
            maintain(discover())


def settle(repository: Repository) -> None:
    """Write the keep refs below a shallow boundary; log failures."""
    try:
        with Checkpoints(repository, adapter="plumbing") as store:
            store.remover().settle()
    except CkptError as error:
        log.append(repository, f"what is below where history was cut off may not be kept yet: {error.message}")


def expect(repository: Repository) -> None:
    """Record that maintenance never ran, so that its interval counts from now."""
    _note(repository, _NEVER)


def expect_in_new(repository: Repository) -> None:
    """Record, in a repository without checkpoints, that maintenance never ran."""
    is_known = os.path.exists(os.path.join(repository.private_dir, layout.MAINTAINED))
    if not is_known and not repository.cuts() and not repository.git.run("for-each-ref", "--count=1", "refs/checkpoints").out:
        expect(repository)


def last(repository: Repository) -> Maintained:
    try:
        path = os.path.join(repository.private_dir, layout.MAINTAINED)
        with open(path, encoding="utf-8", errors="replace", opener=premises.create) as file:
            started = os.fstat(file.fileno()).st_mtime_ns // 1000
            ended, _, outcome = file.read().removesuffix("\n").partition(" ")
    except OSError:
        return Maintained()
    try:
        return Maintained() if outcome == _NEVER else Maintained(started, times.from_text(ended), outcome)
    except ValueError:
        return Maintained(started, None, _AT_WORK if _is_at_work(repository) else "was cut off")


def has_failed(found: Maintained) -> bool:
    return found.outcome.startswith(_FAILED)


def _is_at_work(repository: Repository) -> bool:
    path = os.path.join(repository.private_dir, layout.MAINTENANCE_LOCK)
    if not os.path.exists(path):
        return False
    with Lock(path, 0) as alone:
        return not alone


def _note(repository: Repository, outcome: str) -> None:
    path = os.path.join(repository.make_private_dir(), layout.MAINTAINED)
    with open(path, "a+", encoding="utf-8", errors="backslashreplace", opener=premises.create) as file:
        # The mtime of the file is the start time: keep it when the outcome is written.
        status = os.fstat(file.fileno())
        file.truncate(0)
        file.write(f"{times.to_text(times.now())} {' '.join(outcome.split())}\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def pack(repository: Repository) -> None:
    packing.pack_if_many(repository, layout.OWN, require_git())


def collect(repository: Repository) -> None:
    """Pack loose objects if there are many, and run `git gc --auto`.

    Users who only save never commit, so git would not do it. Honors `gc.auto`,
    `maintenance.auto` and the `pre-auto-gc` hook.
    """
    values = config.read(repository, r"^(maintenance\.auto|gc\.auto|gc\.cruftpacks)$")
    if not all(config.is_on(values.get(name, ["true"])[-1]) for name in ("maintenance.auto", "gc.auto")):
        return
    # GITCKPT_SKIP: gitckpt's own hooks need not run. A user's pre-auto-gc hook may refuse.
    env = {"GITCKPT_SKIP": "1"}
    if packing.count_loose_objects(repository) > packing.PACK_FROM:
        if repository.git.run("hook", "run", "--ignore-missing", "pre-auto-gc", env=env, ok=(0, 1)).code != 0:
            return
        packing.pack_objects(repository)
    # Unreachable objects wait for two weeks. Before 2.41, git writes each of them as a loose
    # file, warns at each commit and gives up for a day, unless cruft packs are on.
    cruft = ("-c", "gc.cruftPacks=true") if "gc.cruftpacks" not in values else ()
    repository.git.run(*cruft, "-c", "gc.autoDetach=false", "gc", "--auto", "--quiet", env=env)
