"""What is due now and then: expiry of checkpoints and runs by the policy, leftovers, and packing of the store's own refs.

Uses no package but Python's own, as the hook starts it without any.
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

# Remove the runs of a pipeline that are complete and old enough.


@dataclass(frozen=True, slots=True)
class Retired:
    """What became of runs that are complete and old enough.

    Attributes:
        gone: the ids of those that are gone, with their worktrees.
        kept: why each of the others stays, by id.
    """

    gone: tuple[str, ...]
    kept: Mapping[str, str]


def cleanup_runs(store: Checkpoints, *, pipeline: str | None = None, older_than: int) -> Retired:
    """Removes the runs that are complete and old enough, with their worktrees; see `runs`.

    Args:
        pipeline: the one whose runs are meant; None for all runs.
        older_than: the age of their newest checkpoint, in microseconds.

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
    """Returns the runs of a pipeline that are complete."""
    found = set()
    for run in summary.summaries(store):
        try:
            said = store.read(run.newest).pipeline if run.status == runstate.COMPLETE else None
        except (InvalidCheckpoint, NotFoundError):
            continue
        if said is not None and said.name == pipeline:
            found.add(run.run)
    return found


# What is due now and then: expiry of checkpoints and runs by the policy, leftovers, and packing of the store's own refs.


_DONE, _FAILED, _AT_WORK, _NEVER = "done", "failed: ", "is at work", "never ran"


@dataclass(frozen=True, slots=True)
class Maintained:
    """When maintenance last ran, and how it ended.

    Attributes:
        started: when, in microseconds since the epoch; None where it never did.
        ended: when; None where it did not, or is at work.
        outcome: how, in a few words.
    """

    started: int | None = None
    ended: int | None = None
    outcome: str = _NEVER


def maintain(repository: Repository) -> None:
    """Expires checkpoints and runs, sweeps leftovers, packs refs and objects where many are loose; notes how it ended, for `last`.

    While the settings have a mistake, nothing expires: nobody sees which values apply instead.

    Args:
        repository: seen from any of its worktrees.

    Raises:
        CkptError: what went wrong; each checkpoint is whole or gone.
    """
    try:
        require_git()
        with Checkpoints(repository, adapter="plumbing") as store:
            found = settings.read(repository)
            if found.problem:
                log.append(repository, f"maintenance: nothing expires: {found.problem}")
            if found.notice:
                log.append(repository, f"maintenance: {found.notice}")
            doubt = expiry.doubt(repository, store.clock())
            if doubt is not None:
                log.append(repository, f"maintenance: {doubt}")
            policy = NOTHING_EXPIRES if doubt is not None or found.problem else found.policy
            expired = expiry.expire(store, policy)
        pack(repository)
        collect(repository)
        if expired.failed:
            raise expired.failed[0][1]  # after all else is done
    except Exception as error:
        _note(repository, f"{_FAILED}{error.message if isinstance(error, CkptError) else f'{type(error).__name__}: {error}'}")
        raise
    _note(repository, _DONE)


def work(repository: Repository, *, only_pack: bool) -> None:
    """Does what is due in the background, in the repository of this process, unless another one is at it. Errors: as `maintain`.

    Args:
        repository: the same, as the hook sees it.
        only_pack: whether only refs are packed.
    """
    gc.disable()  # to look for cycles among 100,000 checkpoints takes a second, and there are none
    with Lock(os.path.join(repository.make_private_dir(), layout.MAINTENANCE_LOCK), 0) as alone:
        if alone and only_pack:
            pack(discover())
        elif alone:
            maintain(discover())


def settle(repository: Repository) -> None:
    """Has refs keep what is below where history was cut off, for a hook; what fails is for the log, and is done by what follows."""
    try:
        with Checkpoints(repository, adapter="plumbing") as store:
            store.remover().settle()
    except CkptError as error:
        log.append(repository, f"what is below where history was cut off may not be kept yet: {error.message}")


def expect(repository: Repository) -> None:
    """Notes that maintenance never ran: whoever looks whether it is due counts from now."""
    _note(repository, _NEVER)


def last(repository: Repository) -> Maintained:
    """Returns when maintenance last ran, and how it ended."""
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
    """Tells whether maintenance last failed."""
    return found.outcome.startswith(_FAILED)


def _is_at_work(repository: Repository) -> bool:
    path = os.path.join(repository.private_dir, layout.MAINTENANCE_LOCK)
    if not os.path.exists(path):
        return False
    with Lock(path, 0) as alone:
        return not alone


def _note(repository: Repository, outcome: str) -> None:
    """Notes how maintenance ended; when it started stays the time of the file."""
    path = os.path.join(repository.make_private_dir(), layout.MAINTAINED)
    with open(path, "a+", encoding="utf-8", errors="backslashreplace", opener=premises.create) as file:
        status = os.fstat(file.fileno())
        file.truncate(0)
        file.write(f"{times.to_text(times.now())} {' '.join(outcome.split())}\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def pack(repository: Repository) -> None:
    """Packs the store's refs where many are loose; the user's own stay as they are.

    Args:
        repository: seen from any of its worktrees.

    Raises:
        GitError: git refused for another reason than a lock.
    """
    packing.pack_if_many(repository, layout.OWN, require_git())


def collect(repository: Repository) -> None:
    """Packs objects where many are loose, and has git do what else it finds due, as `git commit` does: who only saves never commits.

    Git's settings say whether that is done unasked at all (`gc.auto`, `maintenance.auto`), and `pre-auto-gc` whether now is the time.

    Args:
        repository: seen from any of its worktrees.

    Raises:
        GitError: git refused.
    """
    said = config.read(repository, r"^(maintenance\.auto|gc\.auto|gc\.cruftpacks)$")
    if not all(config.is_on(said.get(name, ["true"])[-1]) for name in ("maintenance.auto", "gc.auto")):
        return
    # Of us, maintenance is at work already; somebody's own hook may say that this is no time for it.
    alone = {"GITCKPT_SKIP": "1"}
    if packing.count_loose_objects(repository) > packing.PACK_FROM:
        if repository.git.run("hook", "run", "--ignore-missing", "pre-auto-gc", env=alone, ok=(0, 1)).code != 0:
            return
        packing.pack_objects(repository)
    # What nothing leads to any more waits for two weeks. Git before 2.41 makes each of these objects a file, warns of them at each commit,
    # and gives up for a day, unless it is told that they may share a pack.
    cruft = ("-c", "gc.cruftPacks=true") if "gc.cruftpacks" not in said else ()
    repository.git.run(*cruft, "-c", "gc.autoDetach=false", "gc", "--auto", "--quiet", env=alone)
