"""Acquire the lease of each run named on standard input, and print the result.

`test_leases.py` starts it eight times.
"""

from __future__ import annotations

import sys

from gitckpt import LeaseHeld, Store
from gitckpt.git.repository import discover_repository
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import checkpoints_of_store


def main() -> None:
    """Answer each line of standard input with the token that was won, or `held`."""
    with Store(Checkpoints(discover_repository(sys.argv[1]))) as store:
        leases = checkpoints_of_store(store).leases
        for line in sys.stdin:
            try:
                said = str(leases.acquire_lease(line.strip(), "a racer").lease.token)
            except LeaseHeld:
                said = "held"
            print(said, flush=True)  # noqa: T201 - this is its answer


main()
