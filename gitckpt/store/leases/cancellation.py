"""Stop the driver of a run: by its lease and, on this machine, by a signal."""

from __future__ import annotations

import os
import signal
import time

from gitckpt.model.errors import CkptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gitckpt.store.leases.leases import Lease, Leases

_LOOK = 0.1


def cancel(leases: Leases, run: str, *, wait: float, tell: Callable[[str], object]) -> bool:
    """Stop the driver of a run and wait for its end; return whether there was one.

    Args:
        wait: seconds to wait until the driver has ended its phase and recorded that. 0 only asks,
            and sends no signal.
        tell: takes a sentence if the process cannot be signaled.
    """
    found = leases.cancel(run)
    if found is None:
        return False
    oid, lease = found
    if wait <= 0 or lease.is_ours:  # no signal to this process: the driver stops at its next check
        return True
    if leases.is_process(oid, lease):
        _signal(lease, tell)
    _await_end(leases, run, lease.token, wait)
    return True


def _signal(lease: Lease, tell: Callable[[str], object]) -> None:
    try:
        os.kill(lease.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended
    except PermissionError:
        tell(
            f"process {lease.pid} belongs to somebody else, and will notice by itself that run {lease.run} shall stop"
        )


def _await_end(leases: Leases, run: str, token: int, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        found = leases.read(run)
        if found is None or found[1].token != token or not leases.is_held(*found):
            return
        if leases.is_stalled(*found):
            raise CkptError(
                f"run {run} was asked to stop, and will when process {found[1].pid} goes on, which is stalled",
                hint=f"let it go on: kill -CONT {found[1].pid}; or go on without it: git ckpt resume {run} --take-over",
            )
        left = deadline - time.monotonic()
        if left <= 0:
            raise CkptError(
                f"run {run} was asked to stop, and has not yet",
                hint=f"it stops when it next looks; see: git ckpt status {run}",
            )
        time.sleep(min(left, _LOOK))
