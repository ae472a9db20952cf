"""A run as programs have it: phases that are done once, whatever happens in between.

    with Run.start(store, "add-login") as run:
        notes = run.phase("research", research, inputs={"question": "…"})
        run.phase("implementation", implement)

Every phase is a chain of checkpoints: `<phase>-started`, perhaps `<phase>-progress`, then `<phase>-complete` or `<phase>-failed`. One that
is complete is not done again; its recorded result is returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from gitckpt.durable.run import rewind
from gitckpt.durable.run.active_run import ActiveRun
from gitckpt.durable.run.attempts import USUAL, Conduct
from gitckpt.durable.run.opener import find_or_begin, require_open
from gitckpt.model.arguments import mapping, require
from gitckpt.model.checkpoint import PHASE, Attempt, Checkpoint, Progress
from gitckpt.model.errors import UsageError
from gitckpt.store.store import Store, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from gitckpt.durable.run.opener import How


class _Turn:
    """Lets one thread at a time use a run. Another one gets an error at once: to wait would hide that phases have an order.

    Args:
        run: its id.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = threading.RLock()  # a phase may call what the run has

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise UsageError(
                f"run {self._run} is in use by another thread: phases of one run go one after the other",
                hint="call them from one thread, or start a run for each thread",
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Run:
    """A run that this process drives, until `close`. A context manager: leaving it normally completes the run.

    Its `store` may be shared by threads. While one thread is in a phase or another call that changes the run, another thread that calls one
    gets a UsageError.
    """

    def __init__(self, active: ActiveRun) -> None:
        self._active = active
        self._store = Store(active.store)
        self._turn = _Turn(active.id)

    @classmethod
    def start(
        cls,
        store: Store,
        name: str,
        *,
        key: str | None = None,
        base: str = "HEAD",
        state: Mapping[str, Any] | None = None,
        adapter: str = "auto",
    ) -> Self:
        """Starts a run in a worktree of its own, and drives it; or, where a run has the key, goes on with that as `resume` does.

        Args:
            store: of the repository.
            name: what it is about; becomes part of its id.
            key: the caller's own name for it, such as "nightly-2026-11-22": however often and by however many processes it is started,
                there is one run. Where there is one, `name`, `base` and `state` are what they were when it began.
            base: the rev that its worktree begins with.
            state: what its checkpoints carry.
            adapter: as for `Store.open`.

        Raises:
            NotFoundError: there is no such rev.
            WorktreeError: the worktree cannot be made.
            LeaseHeld: somebody drives the run with that key.
            RunComplete: the run with that key is complete; `results` has what its phases returned.
        """
        return cls(ActiveRun.start(inside(store), name, key=key, base=base, state=state, adapter=adapter))

    @classmethod
    def begin(
        cls, store: Store, name: str, *, key: str | None = None, base: str = "HEAD", state: Mapping[str, Any] | None = None
    ) -> tuple[Checkpoint, bool]:
        """Starts a run that nobody drives, as `git ckpt start` does; or finds the one with the key. `Store.resume` opens its worktree.

        Args:
            store: of the repository.
            name: what it is about; becomes part of its id.
            key: as for `start`.
            base: the rev that its worktree begins with.
            state: what its checkpoints carry.

        Returns:
            The newest checkpoint of the run, and whether it began just now.

        Raises:
            NotFoundError: there is no such rev.
            LeaseHeld, RunComplete: as for `start`.
            UsageError: an argument is of a wrong type.
            Untrusted: the run with that key was not written here.
            WorktreeError: the repository is bare, and no directory for worktrees is configured.
        """
        here = inside(store)
        newest, is_new = find_or_begin(here, name, key=key, base=base, state=mapping("state", state))
        if not is_new:
            require_open(here, newest)
            here.leases.require_free(str(newest.run))
        return newest, is_new

    @classmethod
    def resume(cls, store: Store, run: str, **how: Unpack[How]) -> Self:
        """Goes on with a run, in its worktree, which is made again if it is gone.

        Args:
            store: of the repository.
            run: its id.
            how: `accept_changes=True` goes on though the inputs of phases are other ones than they were; `again=True` goes on with a run
                that is complete; `directory` is where its worktree is made; `take_over=True` takes it from a driver that is stalled;
                `trust=True` adopts, as it stands, one that was not written here;
                `holder` says to others who drives it; `lease` is how long it is theirs without a sign of life, in microseconds, ten minutes
                at most;
                `adapter` is as for `Store.open`.

        Raises:
            NotFoundError: there is no such run.
            RunComplete: it is complete; `results` has what its phases returned.
            UsageError: there is no such argument.
            Untrusted: it was not written here: `candidates` says what decides.
            LeaseHeld: somebody who is alive drives it.
            WorktreeError: its worktree cannot be opened.
        """
        return cls(ActiveRun.resume(inside(store), run, **how))

    @classmethod
    def fork(cls, store: Store, checkpoint: Checkpoint | str, name: str | None = None, **how: Unpack[How]) -> Self:
        """Starts a run that goes on from a checkpoint, and drives it; the run that the checkpoint is of stays as it is.

        Args:
            store: of the repository.
            checkpoint: the one to go on from, or its full id; of a run, or of none.
            name: what the new run is about; by default what the old one was.
            how: as for `resume`.

        Raises:
            NotFoundError, InvalidCheckpoint: as `Store.read`.
            Untrusted: the checkpoint was not written here, and is not trusted.
            WorktreeError: the worktree cannot be made.
        """
        return cls.resume(store, str(cls.begin_fork(store, checkpoint, name, trust=how.get("trust", False)).run), **how)

    @classmethod
    def begin_fork(cls, store: Store, checkpoint: Checkpoint | str, name: str | None = None, *, trust: bool = False) -> Checkpoint:
        """Starts a run that goes on from a checkpoint, and that nobody drives: `resume`, or `Pipelines.resume`, goes on with it.

        Args:
            store: of the repository.
            checkpoint: as for `fork`.
            name: as for `fork`.
            trust: whether the checkpoint may be one that was not written here.

        Returns:
            The first checkpoint of the new run.

        Raises:
            NotFoundError, InvalidCheckpoint: as `Store.read`.
            Untrusted: the checkpoint was not written here, and is not trusted.
        """
        here = inside(store)
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = store.read(checkpoint)
        return rewind.fork(here, checkpoint, name, trusted=trust)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._turn:
            self._active.__exit__(kind, error, trace)

    def close(self) -> None:
        """Gives the lease back. What is not complete can be resumed."""
        with self._turn:
            self._active.close()

    def pause(self) -> None:
        """Lets the run be left without completing it."""
        with self._turn:
            self._active.pause()

    def finish(self) -> None:
        """Completes the run."""
        with self._turn:
            self._active.finish()

    @property
    def id(self) -> str:
        """Its id."""
        return self._active.id

    @property
    def path(self) -> str:
        """The top of its worktree."""
        return self._active.path

    @property
    def store(self) -> Store:
        """The store as seen from there; `close` closes it."""
        return self._store

    @property
    def state(self) -> dict[str, Any]:
        """What its checkpoints carry; a phase may change it."""
        return self._active.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        require("state", state, dict, "a dict of names to values")
        with self._turn:
            self._active.state = state

    @property
    def last_attempt(self) -> Attempt | None:
        """The last attempt at a phase."""
        return self._active.last_attempt

    @property
    def completed(self) -> Mapping[str, str]:
        """Phase → the checkpoint that completed it, in order of completion."""
        return self._active.completed

    @property
    def newest(self) -> Checkpoint:
        """Its newest checkpoint that this process knows of."""
        return self._active.newest

    @property
    def unwritten(self) -> list[str]:
        """The checkpoints that could not be written until now, and why, a sentence each."""
        return self._active.unwritten

    @property
    def remarks(self) -> Sequence[str]:
        """What is to be told about how its worktree was opened, a sentence each."""
        return self._active.remarks

    def phase(
        self,
        name: str,
        work: Callable[..., Any],
        *,
        inputs: Mapping[str, Any] | None = None,
        conduct: Conduct = USUAL,
    ) -> Any:
        """Does a phase, unless it is complete; returns what `work` returned, then or now.

        Args:
            name: of the phase.
            work: called with the inputs by name. It works in the directory `path`, may change `state`, and returns a JSON value, which is
                stored, and returned by a later start, with what looks like a secret masked.
            inputs: JSON values. They belong to the phase: with other ones it is not the same.
            conduct: how often it is tried, and so on.

        Raises:
            Changed: the phase is complete, but was called with other inputs.
            PhaseBlocked: it crashed too often.
            LeaseLost: somebody else drives the run by now.
            UsageError: `work` is asynchronous; or another thread uses the run. Nothing was done.
            Exception: what `work` raised, after it was recorded.
        """
        with self._turn:
            return self._active.phase(name, work, inputs=inputs, conduct=conduct)

    def milestone(
        self, *, trigger: str = PHASE, message: str | None = None, progress: Progress | None = None, errors: Sequence[str] | None = None
    ) -> None:
        """Records, within a phase, how far it has come: its files and the state.

        After a crash or a failure, the next attempt begins with this state, and where the phase resets its files, with these files.

        Args:
            trigger: what caused the checkpoint.
            message: one line for people, of at most 1,000 characters.
            progress: how far the phase has come.
            errors: what went wrong since the last one, in order.

        Raises:
            UsageError: no phase is under way.
            Cancelled, DeadlineReached, LeaseLost: the run shall stop, as with `check`.
        """
        with self._turn:
            self._active.milestone(trigger=trigger, message=message, progress=progress, errors=errors)

    def skip(self, name: str, result: Any = None, *, message: str | None = None) -> None:
        """Records that a phase need not be done.

        Args:
            name: of the phase.
            result: what it returns.
            message: why, one line of at most 1,000 characters.
        """
        with self._turn:
            self._active.skip(name, result, message=message)

    def redo(self, name: str, *, record: bool = False) -> None:
        """Lets a phase be done again, complete or not, with all that were completed after it; files and state stay as they are.

        Args:
            name: of the phase.
            record: whether that is recorded at once, for whoever goes on with the run; else the next start of the phase says so. The name
                is taken as people write it then: in any case, and with hyphens or underscores for spaces.

        Raises:
            UsageError: the run has no such phase, where it is to be recorded, or the name is no string; nothing was changed.
        """
        with self._turn:
            if record:
                self._active.reopen(name)
            else:
                self._active.redo(name)

    def restart(self, name: str) -> None:
        """Lets a phase be done again, with files and state as they were when it began.

        Raises:
            WorktreeError: the files cannot be brought back.
        """
        with self._turn:
            self._active.restart(name)

    def rewind(self, checkpoint: Checkpoint | str) -> None:
        """Takes the run back to an earlier checkpoint: its files, its state, and which phases are complete. What is newer is saved first.

        Args:
            checkpoint: one of this run, or its full id.

        Raises:
            NotFoundError, InvalidCheckpoint: as `Store.read`.
            UsageError: it is of another run, or of none; nothing was changed.
            WorktreeError: its files were not captured, or something is in the way, and nothing was changed; or they cannot be brought back.
            CkptError: what is newer could not be recorded; no file was changed.
        """
        with self._turn:
            self._active.rewind(checkpoint)

    def check(self) -> None:
        """Looks whether the run shall stop; for work that takes long.

        Raises:
            Cancelled: somebody asked for it.
            DeadlineReached: the run took as long as it may.
            LeaseLost: somebody else drives it by now.
        """
        self._active.check()

    def wait(self, seconds: float) -> None:
        """Waits, as long as the run need not stop.

        Args:
            seconds: for so long; whole or not.

        Raises:
            UsageError: it is no number.
            Cancelled, DeadlineReached, LeaseLost: as `check`.
        """
        self._active.wait(seconds)
