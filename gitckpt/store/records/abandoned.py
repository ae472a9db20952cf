"""Lines of history that have ended: no branch points there any more, and git said nothing of `branch -D` or `reset`.

What files tell is enough; in a reftable, `keep` asks git.
"""

from __future__ import annotations

import os
import time

from gitckpt.git.files.reader import packed_between
from gitckpt.git.files.ref_files import plain
from gitckpt.git.objects.encoding import oid_size
from gitckpt.git.repository import BRANCHES
from gitckpt.model import ids
from gitckpt.store.records.layout import KEEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

_WHOLE = 64 << 10
"""In bytes: so much of the packed refs is looked through at each record, 0.1 ms for 500 of them. In a larger file those that count are
looked for, which are between the others as git sorts them."""

_GRAIN = 2_000_000_000
"""In nanoseconds, the coarsest time stamps of file systems: what has changed since may change again and look the same."""

_seen: dict[str, tuple[str | None, set[str], dict[str, int]]] = {}
"""By repository, how it was when no line had ended: the one that was left out, the names of the loose ones, and when each directory of
branches, and the packed refs, had changed. (That of the lines changes with each record, which locks its own.)

A branch is moved and deleted by names in its directory. A thousand lines beside a thousand branches take 40 ms to look at, and the
records of a run are mostly on one commit.
"""

_FROM, _TO = BRANCHES.encode(), b"refs/keep/ckpt0"  # what follows `refs/keep/ckpt/`


def is_any(repository: Repository, but: str | None) -> bool:
    """Tells whether a ref of a line points right at a commit to which no branch does any more.

    Each record comes by here, mostly with no line beside its own.

    Args:
        repository: whose lines they are.
        but: the commit of that, which has the branch that HEAD is on.
    """
    common, start = repository.common_dir, time.time_ns()
    loose = set(_names(os.path.join(common, KEEP)))
    *seen, times = _seen.get(common, (None, set(), {}))
    if times and seen == [but, loose] and all(_changed_at(path) == changed for path, changed in times.items()):
        return False
    places = [os.path.join(common, name) for name in ("packed-refs", "refs/heads")]
    found = _look(repository, but, loose, places)
    times = {path: _changed_at(path) for path in places}
    _seen[common] = (but, loose, times if not found and all(changed < start - _GRAIN for changed in times.values()) else {})
    return found


def _look(repository: Repository, but: str | None, loose: set[str], places: list[str]) -> bool:
    """As `is_any`; adds the directories of branches that it has looked into."""
    packed = packed_between(repository, _FROM, _TO, _WHOLE)
    if packed is None:
        return False
    common, width = repository.common_dir, 2 * oid_size(repository.object_format)
    names = [line.partition(b" ")[2] for line in packed.split(b"\n") if b" refs/keep/ckpt/" in line]
    lines = loose.union(os.fsdecode(name.removeprefix(KEEP.encode())) for name in names)
    oids = (oid for oid in lines if oid != but and len(oid) == width and ids.is_oid(oid))
    direct = {oid for oid in oids if _points_to_itself(repository, oid, packed)}
    if not direct:
        return False
    tips = {line.partition(b" ")[0].decode("ascii", "replace") for line in packed.split(b"\n") if b" refs/heads/" in line}
    for place, _, files in os.walk(os.path.join(common, BRANCHES)):
        places.append(place)
        below = os.path.relpath(place, common)
        tips.update(plain(repository, f"{below}/{name}") or "" for name in files)
    return not direct <= tips


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _points_to_itself(repository: Repository, oid: str, packed: bytes) -> bool:
    value = plain(repository, KEEP + oid)
    return value == oid if value is not None else f"{oid} {KEEP}{oid}\n".encode("ascii") in packed
