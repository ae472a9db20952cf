"""When a file was written, by what it says and by the commit that it names."""

from __future__ import annotations

import re
from collections.abc import Collection

from gitckpt.formats.systems.record import Record
from gitckpt.git.repository import Repository
from gitckpt.model import times
from gitckpt.model.values import dataclass

_COMMITTER = re.compile(rb"^committer .*> (-?\d{1,15}) ([+-])(\d\d)(\d\d)$", re.MULTILINE)
_SECOND = 1_000_000
_LAST = 253_402_300_799 * _SECOND


@dataclass(frozen=True, slots=True)
class Commit:
    """What is known of a commit.

    Attributes:
        time: its committer's, in microseconds since the epoch.
        offset: of the committer's zone from UTC, in microseconds.
    """

    time: int
    offset: int


@dataclass(frozen=True, slots=True)
class Time:
    """When a file was written.

    Attributes:
        instant: in microseconds since the epoch.
        started: when its run began.
        is_trusted: whether anything confirms it.
        remark: what was repaired; None where nothing was.
    """

    instant: int
    started: int
    is_trusted: bool
    remark: str | None = None


def commits(repository: Repository, oids: Collection[str]) -> dict[str, Commit]:
    """Returns those of some oids that are commits which are here."""
    wanted = sorted(set(oids))
    found = {}
    for oid, there in zip(wanted, repository.cat_file.contents(wanted), strict=True):
        if there is None or there[:2] != (oid, "commit"):  # with SHA-256, git takes 40 digits for the beginning of 64
            continue
        said = _COMMITTER.search(there[2].partition(b"\n\n")[0])
        if said is None:
            continue
        offset = (int(said[3]) * 60 + int(said[4])) * 60 * _SECOND
        found[oid] = Commit(int(said[1]) * _SECOND, -offset if said[2] == b"-" else offset)
    return found


def of(record: Record, commit: Commit | None, now: int) -> Time:
    """Returns when a file was written.

    rlm-act writes the time of its place and calls it UTC: where that lies before the commit which it has seen, the clock is taken for one
    of the committer's zone (42 of 44 files that it wrote in public lie so).

    Args:
        record: what the file says.
        commit: that it names; None where that is not here.
        now: the current instant.
    """
    if record.time is None or not 0 < record.time <= _LAST:
        return Time(now, now, is_trusted=False, remark="tells no time: that of the import stands for it")
    started = record.started if record.started is not None and 0 < record.started <= _LAST else record.time
    if not record.is_local:
        return Time(record.time, started, is_trusted=True)
    if commit is None:
        return Time(record.time, started, is_trusted=False)
    if record.time >= commit.time or not commit.offset:
        return Time(record.time, started, is_trusted=True)
    repaired = record.time - commit.offset
    remark = f"calls {record.said} UTC, which is before its commit: repaired to {times.to_text(repaired)}"
    return Time(repaired, started - commit.offset, is_trusted=True, remark=remark)
