"""Whether the clock can be gone by where things expire that nobody asked to go.

A clock that is years ahead, if only for a moment, makes all there is old. It looks like that of a repository which nobody has used for so
long; so after a gap nothing goes until the clock has gone on for a day without another one.
"""

from __future__ import annotations

import contextlib
import os

from gitckpt.git.files import atomic, premises
from gitckpt.git.repository import Repository
from gitckpt.model.policy import DAY, HOUR

_FILE = "clock"
"""In the private directory: since when the clock has gone on without a gap, and when it was looked at last, in microseconds since the
epoch. Where it is missing, there was no gap."""

_GAP, _PROOF = 30 * DAY, DAY


def doubt(repository: Repository, now: int) -> str | None:
    """Takes note of what time it is, and returns why nothing should expire by it, one clause; None where that is as good as any.

    Args:
        now: by the clock, in microseconds since the epoch.
    """
    since, last = _read(repository) or (0, now)
    gap = now - last
    if not -HOUR <= gap <= _GAP:
        since = now
    with contextlib.suppress(OSError):  # on a full disk, what is older says as much
        path = os.path.join(repository.make_private_dir(), _FILE)
        atomic.write_own(path, f"{since} {now}\n".encode("ascii"), flushed=False, opener=premises.create)
    if now - since >= _PROOF:
        return None
    return "the clock was set, or nobody has used this repository for a month: nothing expires unasked until it has gone on for a day"


def _read(repository: Repository) -> tuple[int, int] | None:
    try:
        with open(os.path.join(repository.private_dir, _FILE), "rb", opener=premises.create) as file:
            since, last = map(int, file.read(64).split())
    except (OSError, ValueError):
        return None
    return since, last
