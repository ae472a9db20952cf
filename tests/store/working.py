"""Create runs with worktrees for tests of their later states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gitckpt import Checkpoint, Lease, Store
from gitckpt.model import times
from gitckpt.model.checkpoint import PHASE
from gitckpt.store.store import checkpoints_of_store
from gitckpt.store.worktrees import resumption
from tests.conftest import Checkout


@dataclass
class Work:
    """A run and its worktree."""

    run: str
    worktree: Checkout
    newest: Checkpoint


def worked(
    store: Store,
    name: str,
    seen_from: Callable[[Checkout], Store],
    *,
    end: str = "run-complete",
    in_branch: bool = False,
) -> Work:
    """Return a run that made a file in its worktree, up to the label `end`.

    With `in_branch`, the file is committed to a branch as well.
    """
    first = store.record("run-started", {}, start=name, trigger=PHASE)
    run = str(first.run)
    worktree = Checkout(Path(resumption.resume_checkpoint(checkpoints_of_store(store), first).path))
    there = seen_from(worktree)
    worktree.write("made", f"by {name}")
    if in_branch:
        worktree.commit("made", made=f"by {name}")
        worktree.git("branch", f"made-{name}")
    newest = there.save("build-complete", {"n": 1}, run=run, trigger=PHASE)
    if end != "build-complete":
        newest = there.save(end, {"n": 2}, run=run, trigger=PHASE)
    there.close()
    return Work(run, worktree, newest)


def driven_elsewhere(store: Store, run: str) -> Lease:
    """Give a run a lease of a driver on another machine; return the lease."""
    leases = checkpoints_of_store(store).leases
    hold = leases.acquire_lease(run, "a program")
    lease = replace(
        hold.lease,
        host="elsewhere",
        boot="its boot",
        expires=times.to_text(checkpoints_of_store(store).clock() + 10**8),
    )
    leases.replace_lease(lease, hold.make_lease_update().old)
    return lease


def crashed(store: Store, run: str) -> None:
    """Simulate a killed driver: its lock file exists, but is not locked."""
    leases = checkpoints_of_store(store).leases
    found = leases.read(run)
    assert found is not None
    lease = replace(found[1], started="1")
    Path(leases._files._lock_path(lease)).touch()
    leases.replace_lease(lease, found[0], is_ours=True)
