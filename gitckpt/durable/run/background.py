"""What goes on beside a run while its driver works: the lease is renewed, and files are saved now and then."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from gitckpt.git.repository import Repository
from gitckpt.model.checkpoint import PHASE, Checkpoint
from gitckpt.model.errors import CkptError
from gitckpt.store import log
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.lease import LeaseLost
from gitckpt.store.leases.leases import Hold
from gitckpt.store.runs.run_files import RunFiles
from gitckpt.store.snapshot import assurance
from gitckpt.store.snapshot.limits import MORE_TIME, Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.records.recorder import Guard

LOOK = 2.0
"""How often the driver looks whether there is a new commit, in seconds."""


class Attendant:
    """Does something again and again in a thread of its own, until it is closed; `close` waits for what is under way.

    Args:
        interval: in seconds.
        action: what is done. It returns whether to go on.
    """

    def __init__(self, interval: float, action: Callable[[], bool]) -> None:
        self._interval = interval
        self._action = action
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._attend, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _attend(self) -> None:
        while not self._ending.wait(self._interval):
            if not self._action():
                return


def heartbeat(hold: Hold, repository: Repository, interval: float) -> Attendant:
    """Returns what renews a lease. Once it is lost, nothing is renewed; the driver finds out when it writes.

    Args:
        hold: the lease.
        repository: where failures are logged.
        interval: in seconds.
    """

    def beat() -> bool:
        try:
            hold.renew()
        except LeaseLost:
            return False
        except CkptError as error:
            _log(repository, f"the lease of {hold.lease.run} was not renewed: {error.message}")
        return True

    return Attendant(interval, beat)


class Autosaver:
    """Saves the files of a run while a phase is under way: at each new commit, and at intervals where they have changed.

    Args:
        store: the driver's, as seen from the run's worktree.
        phase: the phase that is under way.
        saved: the commit and the snapshot that the newest checkpoint holds.
        guard: the run's lease.
        beside: files of the run that lie beside its worktree.
        limits: what a snapshot leaves out.

    Attributes:
        failures: what went wrong, a sentence each.
    """

    def __init__(self, store: Checkpoints, phase: str, run: str, saved: Content, *, guard: Guard, beside: RunFiles, limits: Limits) -> None:
        self._driver = store
        self._repository = store.repository
        self._phase = phase
        self._run = run
        self._saved = saved
        self._guard = guard
        self._beside = beside
        self._limits = limits
        self._store: Checkpoints | None = None
        self._saving = threading.Lock()
        self._is_told = False
        self.failures: list[str] = []

    def attendant(self, interval: float) -> Attendant:
        """Returns what does it, at an interval in seconds."""
        step = min(interval, LOOK)
        waited = 0.0

        def look() -> bool:
            nonlocal waited
            waited += step
            try:
                with self._saving:
                    store = self._own_store()
                    if waited >= interval or store.objects.head()[0] != self._saved[0]:
                        waited = 0.0
                        self._save(store)
            except LeaseLost:
                return False
            except CkptError as error:
                self.failures.append(error.message)
                _log(self._repository, f"the files of {self._run} were not saved in between: {error.message}")
            return True

        return Attendant(step, look)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Saves nothing meanwhile."""
        with self._saving:
            yield

    def saved(self, newest: Content) -> None:
        """Notes what the newest checkpoint holds, by now."""
        self._saved = newest

    def close(self) -> None:
        """Lets go of processes; to be called after the attendant has ended."""
        if self._store is not None:
            self._store.close()

    def _own_store(self) -> Checkpoints:
        """Returns a store for the thread that saves; the driver's belongs to another one."""
        if self._store is None:
            here = self._repository
            self._store = self._driver.seen_from(Repository(here.git_dir, here.worktree, here.object_format), "plumbing")
        return self._store

    def _save(self, store: Checkpoints) -> None:
        commit = store.objects.head()[0]
        newest = store.heads.read(self._run)
        if newest.git_sha == commit != self._saved[0]:  # the hook has recorded the commit, with the files
            self._saved = held(newest)
            return
        files = store.capture(self._limits, self._beside)
        if files.degraded and not self._is_told:
            self._is_told = True
            store.announce(f"files of {self._run} are not saved in between: {files.degraded}; {MORE_TIME}")
        if (commit, files.tree) == self._saved and not files.degraded:
            return
        made = store.record(f"{self._phase}-progress", worktree=files, run=self._run, trigger=PHASE, guard=self._guard)
        failure = assurance.failure(store.repository, store.objects, made, store.announce)
        if failure is not None:
            store.remove([made.id])
            raise failure
        self._saved = held(made)


Content = tuple[str, str | None]
"""The commit and the snapshot that a checkpoint holds."""


def held(checkpoint: Checkpoint) -> Content:
    """Returns what a checkpoint holds."""
    return checkpoint.git_sha, checkpoint.tree


def _log(repository: Repository, text: str) -> None:
    try:
        log.append(repository, text)
    except CkptError:
        return  # the disk is full, perhaps; the driver tells of what it could not write itself
