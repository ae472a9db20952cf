"""Whether the clock can be gone by where things expire that nobody asked to go.

A clock that is ahead, if only for a moment, makes all there is old. While the machine runs, another clock tells whether it was set: the one
that counts since its start. Over a start of the machine it looks like that of a repository which nobody has used for so long. So after it
was set, or after a long gap, nothing goes until the clock has gone on for a day.
"""

from __future__ import annotations

import contextlib
import os
import time

from gitckpt.git.files import atomic, premises
from gitckpt.git.repository import Repository
from gitckpt.model import times
from gitckpt.model.policy import DAY, HOUR

_FILE = "clock"
"""In the private directory: since when the clock has gone on without a gap, and when it was looked at last, in microseconds since the
epoch; the start of the machine that this was in, and how long after it. Where the file is missing, there was no gap."""

_BOOT = "/proc/sys/kernel/random/boot_id"
_GAP, _PROOF = 30 * DAY, DAY
_HALTED = DAY
"""So far a clock may have gone ahead of the other one: a virtual machine that is halted each night stops that, and has its clock set each
morning. By a clock that is ahead no more than this, things go a day too early."""


def doubt(repository: Repository, now: int) -> str | None:
    """Takes note of what time it is, and returns why nothing should expire by it, one clause; None where that is as good as any.

    Args:
        now: by the clock, in microseconds since the epoch.
    """
    since, last, *then = _read(repository) or (0, now)
    beside = _running() if abs(now - times.now()) < HOUR else []  # it is of the clock of this machine, and of no other one
    gap = now - last
    is_same_start = bool(beside) and then[:1] == beside[:1]
    ahead, most = (gap - (beside[1] - then[1]), _HALTED) if is_same_start else (gap, _GAP)
    is_right = -HOUR <= ahead <= most
    if not is_right:
        since = now
    with contextlib.suppress(OSError):  # on a full disk, what is older says as much
        path = os.path.join(repository.make_private_dir(), _FILE)
        line = " ".join(map(str, (since, now, *beside)))
        atomic.write_own(path, f"{line}\n".encode("ascii"), flushed=False, opener=premises.create)
    if now - since >= _PROOF:
        return None
    return "the clock was set, or nobody has used this repository for a month: nothing expires unasked until it has gone on for a day"


def _running() -> list[int]:
    """Returns a number for this start of the machine, and for how long it has run, in microseconds; nothing where that cannot be told."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return []
    try:
        with open(_BOOT, "rb") as file:
            start = int(file.read(64).replace(b"-", b""), 16)
    except (OSError, ValueError):
        return []
    return [start, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000]


def _read(repository: Repository) -> list[int] | None:
    """Returns two numbers, or four."""
    try:
        with open(os.path.join(repository.private_dir, _FILE), "rb", opener=premises.create) as file:
            found = [int(word) for word in file.read(256).split()]
    except (OSError, ValueError):
        return None
    return found if len(found) in (2, 4) else None
