"""Stop the driver of a run: by its lease and, on this machine, by a signal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from gitckpt.model.errors import CkptError
from gitckpt.store.leases.leases import Leases

_INTERVAL = 0.1


def cancel(leases: Leases, run: str, *, wait: float, tell: Callable[[str], object]) -> bool:
    """Stop the driver of a run and wait for its end; return whether there was one.

    `wait` is in seconds; 0 only asks, without a signal. `tell` hears if signals are not permitted.
    """
    cancelled = leases.cancel(run)
    if cancelled is None:
        return False
    oid, lease = cancelled
    if wait <= 0 or lease.is_ours:  # no signal to this process: the driver stops at its next check
        return True
    if leases.is_process(oid, lease):
        try:
            os.kill(lease.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # it has just ended
        except PermissionError:
            tell(f"process {lease.pid} is another user's; it stops run {run} at its next check")
    _await_end(leases, run, lease.token, wait)
    return True


def _await_end(leases: Leases, run: str, token: int, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        current = leases.read(run)
        if current is None or current[1].token != token or not leases.is_held(*current):
            return
        if leases.is_stalled(*current):
            pid = current[1].pid
            take_over = f"git ckpt resume {run} --take-over"
            hint = f"let it continue: kill -CONT {pid}; or take the run from it: {take_over}"
            problem = f"run {run} was asked to stop, but its process {pid} is stalled"
            raise CkptError(problem, hint=hint)
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            hint = f"it stops at its next check; see: git ckpt status {run}"
            raise CkptError(f"run {run} was asked to stop and has not stopped yet", hint=hint)
        time.sleep(min(seconds, _INTERVAL))
