"""The heads of runs: which checkpoint of a run is its newest, and how a run gets an id that nobody else has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable

from gitckpt.git import leftovers, lock
from gitckpt.git.refs import RefMoved, Refs, Update
from gitckpt.model import ids, times
from gitckpt.model.arguments import first_of
from gitckpt.model.errors import BusyError, NotFoundError
from gitckpt.store import roster
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.store.records.entry import Entry
    from gitckpt.store.records.index import Index


# The heads of runs: which checkpoint of a run is its newest, and how a run gets an id that nobody else has.


_STARTS = 1000


def chain(index: Index, repository: Repository, run: str) -> list[Entry]:
    """Returns the checkpoints of a run, newest first; of a run of ours, those alone that were written here.

    What else says that it is of the run may have been fetched: nothing is shown, decided or deleted
    by that.

    Args:
        index: of the repository.
    """
    from gitckpt.store.records.entry import Query

    entries = index.select(Query(run=run))
    known = roster.known(repository, run)
    return [entry for entry in entries if entry.oid in known] or entries


def newest(index: Index, repository: Repository, run: str) -> Entry | None:
    """Returns the first of what `chain` does, which takes less; None where there is none."""
    from gitckpt.store.records.entry import Query

    found = index.select(Query(run=run, limit=1))
    if found and not roster.knows(repository, run, found[0].oid):
        found = chain(index, repository, run)
    return found[0] if found else None


def newest_of(index: Index, repository: Repository, runs: Collection[str]) -> dict[str, Entry]:
    """Returns, by run, what `newest` does for each of some runs, in one go; those without checkpoints are left out."""
    from gitckpt.store.records.entry import Query

    found: dict[str, list[Entry]] = {}
    for entry in index.select(Query(runs=sorted(runs))):
        found.setdefault(str(entry.run), []).append(entry)
    known = {run: roster.known(repository, run) for run in found}
    return {run: next((entry for entry in entries if entry.oid in known[run]), entries[0]) for run, entries in found.items()}


def recorded_among(noted: Iterable[bytes], run: str, objects: Objects, refs: Refs) -> Checkpoint | None:
    """Returns the first of some documents that has become a checkpoint of a run; None where none has.

    A hook in the run's worktree that is killed, or has no room left, between its checkpoint and the
    head of the run leaves the head behind, while a driver goes on: there would be two checkpoints
    of one number.

    Args:
        noted: oids, as `chains.noted_after` has them; a line may be none, and a document may never
            have been written.

    Raises:
        InvalidCheckpoint: one of them is no document of a run.
    """
    for line in noted:
        oid = line.decode("ascii", "replace")
        found = next(objects.read([oid])) if ids.is_oid(oid) else None
        if found is not None and found[0] == "blob":
            newest = layout.run_head(found, layout.RUNS + run)
            if newest.run == run and refs.read(layout.CHECKPOINTS + newest.id) == oid:
                return newest
    return None


class Heads:
    """The heads of the runs of a repository.

    Args:
        index: returns the derived listing of its checkpoints.
        knows: tells of a run and the oid of a document whether that was written here.
    """

    def __init__(self, refs: Refs, objects: Objects, index: Callable[[], Index], knows: Callable[[str, str], bool]) -> None:
        self._refs = refs
        self._objects = objects
        self._index = index
        self._knows = knows
        self._moved: set[str] = set()

    def read(self, run: str) -> Checkpoint:
        """Returns the checkpoint that the head of a run points to.

        Raises:
            NotFoundError: there is no such run.
            InvalidCheckpoint: its head does not hold a valid document.
        """
        return self.head(run)[1]

    def head(self, run: str) -> tuple[str, Checkpoint]:
        """Returns the oid of the document that the head of a run points to, and its checkpoint. Errors: as `read`."""
        ref = layout.RUNS + ids.require_run_id(run)
        oid = self._refs.read(ref)
        if oid is None:
            raise NotFoundError(f"no run {run}", hint="see which there are: git ckpt list")
        return oid, layout.run_head(next(self._objects.read([oid])), ref)

    def is_ours(self, run: str) -> bool:
        """Tells whether the document that the head of a run points to was written or adopted here."""
        oid = self._refs.read(layout.RUNS + run) if ids.is_run_id(run) else None
        return oid is not None and self._knows(run, oid)

    def catch_up(self, run: str) -> Checkpoint:
        """Returns the newest checkpoint of a run, after its head was moved up where it lags. Errors: as `read`."""
        self.move_up(run)
        return self.read(run)

    def move_up(self, run: str) -> None:
        """Moves the head of a run up where it lags behind the run's newest checkpoint, as a power cut between the two can leave it.

        One that was written here moves to no other: a checkpoint that says it is of the run may
        have been fetched.
        """
        from gitckpt.store.records.entry import Query

        ref = layout.RUNS + ids.require_run_id(run)
        newest = self._index().select(Query(run=run, limit=1))
        old = self._refs.read(ref)
        if newest and newest[0].oid != old and not self._knows(run, newest[0].oid):
            ours = [entry for entry in self._index().select(Query(run=run)) if self._knows(run, entry.oid)]
            newest = ours if ours and (old is None or self._knows(run, old)) else newest
        if newest and newest[0].oid != old:
            head = layout.run_head(next(self._objects.read([old])), ref) if old else None
            if head is None or (head.sequence or 0) < (newest[0].sequence or 0):
                with contextlib.suppress(RefMoved):  # by another process, which has seen the same
                    self._refs.update([Update(ref, newest[0].oid, old or "")])
        self._moved.add(run)

    def move_up_once(self, run: str) -> None:
        """As `move_up`, but only the first time: from then on this process notices by itself."""
        if run not in self._moved:
            self.move_up(run)

    def is_there(self, run: str) -> bool:
        """Tells whether a run exists; a head that a kill left out is made."""
        if self._refs.read(layout.RUNS + run) is None:
            self.move_up(run)
        return self._refs.read(layout.RUNS + run) is not None

    def start(self, record: Callable[[], object], fields: dict[str, Any], instant: int, name: str) -> None:
        """Records the first checkpoint of a run, under an id that no other run has.

        Args:
            record: writes the checkpoint that has these keys; raises `RefMoved` where the run
                exists by then.
            fields: its keys; `run` is filled in.
            instant: now, in microseconds since the epoch.
            name: what the run is about.

        Raises:
            RunExists: another run has the key.
            BusyError: a thousand runs of that name started in this second.
        """
        for attempt in range(1, _STARTS):
            fields["run"] = ids.run_id(times.to_stamp(instant), name, attempt)
            if self._refs.read(layout.RUNS + fields["run"]) is not None:
                continue
            try:
                record()
            except RefMoved:
                continue
            return
        raise BusyError(f"a thousand runs named {name!r} started in this second", hint="choose another name")


# Locks below refs of ours that a git has left which was killed: whoever writes removes them. Those of others are not ours to remove.


_SUFFIX = ".lock"
_PATIENCE = 2.0
"""How long those who write are waited for, in seconds."""


def clear(repository: Repository, tell: Callable[[str], None], in_the_way: str) -> bool:
    """Removes the locks below refs of ours that nobody who is alive can have made, if that is what one of them is.

    Nobody of ours writes meanwhile: who does holds the lock of writers, and so do we.

    Args:
        tell: is told what was removed.
        in_the_way: the lock that somebody met.

    Returns:
        Whether that one is gone.
    """
    gone: list[str] = []
    if is_ours(repository, in_the_way):
        if lock.is_ours(os.path.join(repository.make_private_dir(), layout.WRITE_LOCK)):
            gone = _clear(repository)
        else:
            with layout.turn(repository, _PATIENCE) as alone:
                gone = _clear(repository) if alone else []
    _say(gone, tell)
    return not os.path.lexists(in_the_way)


def discard_left(repository: Repository, tell: Callable[[str], object]) -> None:
    """Removes the locks below refs of ours that nobody who is alive can have made, and tells of it; the caller has the lock of writers."""
    _say(_clear(repository), tell)


def is_ours(repository: Repository, path: str) -> bool:
    """Tells whether a file is the lock of a ref of ours."""
    common = os.path.realpath(repository.common_dir)
    ref = os.path.relpath(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)), common).removesuffix(_SUFFIX)
    is_below = any(ref.startswith(f"{space}/") for space in layout.OWN) and not layout.is_foreign(ref)
    return path.endswith(_SUFFIX) and (ref == layout.NOTES or is_below)


def there(repository: Repository) -> list[str]:
    """Returns the paths of all locks of refs of ours, whether they were left or not."""
    found = [os.path.join(repository.common_dir, layout.NOTES + _SUFFIX)]
    for space in layout.OWN:
        for parent, _, names in os.walk(os.path.join(repository.common_dir, space)):
            found += [os.path.join(parent, name) for name in names if name.endswith(_SUFFIX)]
    return [path for path in found if is_ours(repository, path) and os.path.lexists(path)]


def _say(gone: list[str], tell: Callable[[str], object]) -> None:
    if gone:
        tell(f"removed {first_of(gone, 1)}, which a git had left that was killed")


def _clear(repository: Repository) -> list[str]:
    left = leftovers.left_locks(repository, there(repository))
    return sorted(path for path, known in left.items() if leftovers.discard(path, known))
