"""The public API of runs: phases that are carried out once and survive crashes.

    with Run.start(store, "add-login") as run:
        notes = run.phase("research", research, inputs={"question": "…"})
        run.phase("implementation", implement)

A phase is a chain of checkpoints: `<phase>-started`, perhaps `<phase>-progress`, then
`<phase>-complete` or `<phase>-failed`. A complete phase returns its recorded result.
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
    # Another thread gets an error at once: waiting would hide that phases have an order.
    def __init__(self, run: str) -> None:
        self._run = run
        self._lock = threading.RLock()  # reentrant: a phase may call methods of its run

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise UsageError(
                f"run {self._run} is in use by another thread: phases of one run go one after the other",
                hint="call them from one thread, or start a run for each thread",
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Run:
    """A run that this process drives until `close`.

    A context manager: leaving it normally completes the run. Threads may share `store`. While one
    thread changes the run, such as in a phase, calls of other threads raise UsageError.
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
        """Start a run in its own worktree and drive it, or resume the one with the key.

        Args:
            name: the subject; part of the run id.
            key: the caller's unique name, such as "nightly-2026-11-22": repeated and concurrent
                calls share one run. An existing run keeps its `name`, `base` and `state`.
            base: the rev that the worktree starts with.
            state: the first state.
            adapter: as for `Store.open`.

        Raises:
            NotFoundError: unknown rev.
            WorktreeError: the worktree cannot be created.
            LeaseHeld: another process drives the run with that key.
            RunComplete: the run with that key is complete; `results` has the results of its phases.
        """
        return cls(ActiveRun.start(inside(store), name, key=key, base=base, state=state, adapter=adapter))

    @classmethod
    def begin(
        cls, store: Store, name: str, *, key: str | None = None, base: str = "HEAD", state: Mapping[str, Any] | None = None
    ) -> tuple[Checkpoint, bool]:
        """Start a run without driving it, or find the one with the key.

        Does what `git ckpt start` does. `Store.resume` opens its worktree. Arguments and errors as
        for `start`. Returns the newest checkpoint of the run, and whether the run is new.
        """
        here = inside(store)
        newest, is_new = find_or_begin(here, name, key=key, base=base, state=mapping("state", state))
        if not is_new:
            require_open(here, newest)
            here.leases.require_free(str(newest.run))
        return newest, is_new

    @classmethod
    def resume(cls, store: Store, run: str, **how: Unpack[How]) -> Self:
        """Continue a run in its worktree, which is recreated if missing.

        Args:
            how: `accept_changes=True` accepts changed inputs; `again=True` continues a complete
                run; `directory` is the place of a new worktree; `take_over=True` takes the run from
                a stalled driver; `trust=True` adopts a run that was not written here; `holder`
                names the driver; `lease` is its length without renewal, in microseconds, ten
                minutes at most; `adapter` is as for `Store.open`.

        Raises:
            NotFoundError: unknown run.
            RunComplete: the run is complete; `results` has the results of its phases.
            Untrusted: the run was not written here; see `candidates`.
            LeaseHeld: a live process drives it.
            WorktreeError: its worktree cannot be opened.
        """
        return cls(ActiveRun.resume(inside(store), run, **how))

    @classmethod
    def fork(cls, store: Store, checkpoint: Checkpoint | str, name: str | None = None, **how: Unpack[How]) -> Self:
        """Start and drive a run from a checkpoint; the old run stays unchanged.

        Args:
            checkpoint: a checkpoint or its full id; it need not belong to a run.
            name: the subject of the new run; default: that of the old one.
            how: as for `resume`.

        Raises:
            NotFoundError, InvalidCheckpoint: as `Store.read`.
            Untrusted: the checkpoint was not written here and is not trusted.
            WorktreeError: the worktree cannot be created.
        """
        return cls.resume(store, str(cls.begin_fork(store, checkpoint, name, trust=how.get("trust", False)).run), **how)

    @classmethod
    def begin_fork(cls, store: Store, checkpoint: Checkpoint | str, name: str | None = None, *, trust: bool = False) -> Checkpoint:
        """Start a run from a checkpoint without driving it; return its first checkpoint.

        `resume` or `Pipelines.resume` continues it. Arguments and errors as for `fork`.
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
        """Release the lease; an incomplete run can be resumed."""
        with self._turn:
            self._active.close()

    def pause(self) -> None:
        """Leave the run incomplete at the end of the `with` block."""
        with self._turn:
            self._active.pause()

    def finish(self) -> None:
        """Complete the run."""
        with self._turn:
            self._active.finish()

    @property
    def id(self) -> str:
        """Return the run id."""
        return self._active.id

    @property
    def path(self) -> str:
        """Return the top of the worktree."""
        return self._active.path

    @property
    def store(self) -> Store:
        """Return the store opened in the worktree; `close` closes it."""
        return self._store

    @property
    def state(self) -> dict[str, Any]:
        """Return the state for the next checkpoints; a phase may change it."""
        return self._active.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        require("state", state, dict, "a dict of names to values")
        with self._turn:
            self._active.state = state

    @property
    def last_attempt(self) -> Attempt | None:
        """Return the last attempt at a phase."""
        return self._active.last_attempt

    @property
    def completed(self) -> Mapping[str, str]:
        """Return phase → id of the completing checkpoint, in order of completion."""
        return self._active.completed

    @property
    def newest(self) -> Checkpoint:
        """Return the newest checkpoint known to this process."""
        return self._active.newest

    @property
    def unwritten(self) -> list[str]:
        """Return the checkpoints that could not be written yet, with the reasons."""
        return self._active.unwritten

    @property
    def remarks(self) -> Sequence[str]:
        """Return notes about the opened worktree, one sentence each."""
        return self._active.remarks

    def phase(
        self,
        name: str,
        work: Callable[..., Any],
        *,
        inputs: Mapping[str, Any] | None = None,
        conduct: Conduct = USUAL,
    ) -> Any:
        """Carry out a phase unless it is complete; return the result of `work`.

        Args:
            work: called with the inputs by name; works in `path`, may change `state` and returns a
                JSON value. The value is stored for later starts, with secrets masked.
            inputs: JSON values that identify the phase.

        Raises:
            Changed: the phase is complete but had other inputs.
            PhaseBlocked: it crashed too often.
            LeaseLost: another process drives the run now.
            UsageError: `work` is asynchronous or another thread uses the run; nothing was done.
            Exception: raised by `work`, after it was recorded.
        """
        with self._turn:
            return self._active.phase(name, work, inputs=inputs, conduct=conduct)

    def milestone(
        self, *, trigger: str = PHASE, message: str | None = None, progress: Progress | None = None, errors: Sequence[str] | None = None
    ) -> None:
        """Record files and state within a phase; raise an error if the run must stop.

        After a crash or failure, the next attempt starts with this state, and with these files if
        the phase resets its files. `message` is one line of at most 1,000 characters.
        """
        with self._turn:
            self._active.milestone(trigger=trigger, message=message, progress=progress, errors=errors)

    def skip(self, name: str, result: Any = None, *, message: str | None = None) -> None:
        """Record that a phase is not needed; `message` is the reason, in one line."""
        with self._turn:
            self._active.skip(name, result, message=message)

    def redo(self, name: str, *, record: bool = False) -> None:
        """Mark a phase and those completed after it as incomplete; keep files and state.

        With `record`, record it at once; else the next start of the phase does. The name then
        ignores case, and hyphens and underscores equal spaces.
        """
        with self._turn:
            if record:
                self._active.reopen(name)
            else:
                self._active.redo(name)

    def restart(self, name: str) -> None:
        """Redo a phase with the files and state of its beginning."""
        with self._turn:
            self._active.restart(name)

    def rewind(self, checkpoint: Checkpoint | str) -> None:
        """Return to an earlier checkpoint of this run: files, state and completed phases.

        Records newer content first.

        Raises:
            NotFoundError, InvalidCheckpoint: as `Store.read`.
            UsageError: it belongs to another run or to none; nothing was changed.
            WorktreeError: it has no files or something is in the way, and nothing was changed; or
                restoring failed.
            CkptError: the newer content could not be recorded; no file was changed.
        """
        with self._turn:
            self._active.rewind(checkpoint)

    def check(self) -> None:
        """Raise Cancelled, DeadlineReached or LeaseLost if the run must stop."""
        self._active.check()

    def wait(self, seconds: float) -> None:
        """Wait a number of seconds; raise an error as `check` if the run must stop."""
        self._active.wait(seconds)
