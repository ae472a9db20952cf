"""The checkpoints of a repository in columns: some eighty bytes for each that belongs to no run and has no snapshot.

An object of Python's for each would take twenty times as much, and an audit has to look at a million.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, compress
from typing import NamedTuple, overload

from gitckpt.git.objects.encoding import oid_size
from gitckpt.git.refs import Update
from gitckpt.model import ids, times
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.readers.plain import Plain
from gitckpt.store.records import entry, layout

_ID = 16  # bytes of an id
_PREFIXES = 1 << 16


class SheetRow(NamedTuple):
    """What the document of a valid checkpoint says, less what nothing depends on.

    Attributes:
        oid: the blob of the document.
        holds: namespace of refs → the oid that its ref there should point to, or, below `refs/keep/ckpt/`, keep.
        names: the other checkpoints it names, each with the key that does.
        submodules: as `Entry` has them.
    """

    id: str
    oid: str
    run: str | None
    sequence: int | None
    phase: str
    timestamp: str
    git_sha: str
    trigger: str
    parent: str | None
    holds: Mapping[str, str]
    names: Sequence[tuple[str, str]]
    submodules: str

    @property
    def ref(self) -> str:
        """Full name of its ref."""
        return layout.CHECKPOINTS + self.id

    @property
    def is_there(self) -> Update:
        """What a transaction that depends on it begins with."""
        return Update(self.ref, self.oid, self.oid)


class Extra(NamedTuple):
    """What few checkpoints have: a run, what is held for them besides a commit, other checkpoints that they name.

    Attributes:
        timestamp: None where it follows from the time.
        commit: None where it is in the column.
        held: what their refs in the namespaces of `layout.HOLDERS` should point to.
    """

    run: str | None
    sequence: int | None
    trigger: str
    timestamp: str | None
    commit: str | None
    parent: str | None
    held: tuple[str | None, str | None, str | None]
    names: Sequence[tuple[str, str]]
    submodules: str


class Sheet:
    """The checkpoints, in the order of their ids; a place is a number from 0.

    Args:
        object_format: of the repository.

    Attributes:
        valid: for each place 1 where the document is one.
        digests: for each place a hash of what the row of the index should hold, good in this process alone.
        extras: by place.
    """

    def __init__(self, object_format: str) -> None:
        self._width = oid_size(object_format)
        self._ids = bytearray()
        self._oids = bytearray()
        self._commits = bytearray()
        self._times = array("q")
        self._labels = array("I")
        self._phases: list[str] = []
        self._places: dict[str, int] = {}
        self._starts = array("I", [0])
        self._by_time = array("I")
        self.valid = bytearray()
        self.digests = array("q")
        self.extras: dict[int, Extra] = {}

    def __len__(self) -> int:
        return len(self._ids) // _ID

    def append(self, name: str, oid: str) -> None:
        """Adds a ref below `refs/checkpoints/`; they come in the order of their names."""
        self._ids += ids.to_bytes(name)
        self._oids += bytes.fromhex(oid)

    def listed(self) -> None:
        """Is called once all refs are there; from then on they can be found."""
        count = len(self)
        counts = array("I", bytes(4 * _PREFIXES))
        for at in range(0, _ID * count, _ID):
            counts[self._ids[at] << 8 | self._ids[at + 1]] += 1
        self._starts.extend(accumulate(counts))
        self._commits = bytearray(self._width * count)
        self._times = array("q", bytes(8 * count))
        self._labels = array("I", bytes(4 * count))
        self.valid = bytearray(count)
        self.digests = array("q", bytes(8 * count))

    def find(self, name: str) -> int | None:
        """Returns the place of the checkpoint with an id; None where no ref is named so."""
        return self.find_bytes(ids.to_bytes(name)) if ids.is_id(name) else None

    def find_bytes(self, key: bytes) -> int | None:
        """Returns the place of the checkpoint with an id of 16 bytes; None where no ref is named so."""
        prefix = key[0] << 8 | key[1]
        at, end = self._starts[prefix] * _ID, self._starts[prefix + 1] * _ID
        while True:
            at = self._ids.find(key, at, end)
            if at < 0:
                return None
            if at % _ID == 0:
                return at // _ID
            at += 1

    def id(self, at: int) -> str:
        """Returns the id at a place."""
        return ids.from_bytes(bytes(self._ids[at * _ID : (at + 1) * _ID]))

    def oid(self, at: int) -> str:
        """Returns the oid of the document at a place."""
        return self._oids[at * self._width : (at + 1) * self._width].hex()

    def oids(self) -> tuple[bytearray, int]:
        """Returns the oids of all documents, one after the other, and the bytes of each."""
        return self._oids, self._width

    def by_time(self) -> array[int]:
        """Returns the places of the valid checkpoints in the order of their timestamps."""
        if len(self._by_time) != sum(self.valid):
            self._by_time = array("I", sorted(compress(range(len(self)), self.valid), key=self._times.__getitem__))
        return self._by_time

    def commit(self, at: int) -> str:
        """Returns the linked commit of a valid checkpoint; "" for none."""
        extra = self.extras.get(at) if self.extras else None
        if extra is not None and extra.commit is not None:
            return extra.commit
        found = self._commits[at * self._width : (at + 1) * self._width]
        return found.hex() if any(found) else ""

    def phase(self, at: int) -> str:
        """Returns the label of a valid checkpoint."""
        return self._phases[self._labels[at]]

    def timestamp(self, at: int) -> str:
        """Returns the timestamp of a valid checkpoint."""
        extra = self.extras.get(at) if self.extras else None
        return extra.timestamp if extra is not None and extra.timestamp is not None else times.to_text(self._times[at])

    def record(self, at: int) -> SheetRow:
        """Returns the valid checkpoint at a place."""
        extra = self.extras.get(at, _NONE)
        commit = self.commit(at)
        holds = {space: held for space, held in zip(layout.HOLDERS, extra.held, strict=True) if held}
        if commit:
            holds[layout.KEEP] = commit
        return SheetRow(
            self.id(at),
            self.oid(at),
            extra.run,
            extra.sequence,
            self.phase(at),
            self.timestamp(at),
            commit,
            extra.trigger,
            extra.parent,
            holds,
            extra.names,
            extra.submodules,
        )

    def fill_plain(self, at: int, found: Plain) -> None:
        """Notes what a plain document says that stands at a place."""
        oid = bytes(self._oids[at * self._width : (at + 1) * self._width])
        self.digests[at] = hash(entry.audited_plain(found, oid))
        commit = self._put(at, found.git_sha, found.phase, found.time)
        if found.run is not None or found.tree is not None or commit is not None:
            run, trigger = _shared(found.run), sys.intern(found.trigger)
            held = (found.tree, None, None)
            self.extras[at] = Extra(run, found.sequence, trigger, None, commit, found.parent, held, (), "")

    def fill(self, at: int, found: Checkpoint, names: Sequence[tuple[str, str]]) -> None:
        """Notes what a valid checkpoint says whose ref stands at a place, and which others it names."""
        self.digests[at] = hash(entry.audited(found, self.oid(at)))
        commit = self._put(at, found.git_sha, found.label, found.time)
        files = found.worktree
        held = (found.tree, files.operation_commit if files else None, found.imported.original if found.imported else None)
        submodules = entry.submodules(found)
        timestamp = None if times.is_usual(found.timestamp) else found.timestamp
        if found.run is not None or any(held) or names or submodules or timestamp or commit is not None:
            run, trigger = _shared(found.run), sys.intern(found.trigger)
            self.extras[at] = Extra(run, found.sequence, trigger, timestamp, commit, found.parent, held, names, submodules)

    def _put(self, at: int, commit: str, phase: str, time: int) -> str | None:
        """Fills the columns; returns the commit where it is not of the format of the repository."""
        self.valid[at] = 1
        self._times[at] = time
        place = self._places.get(phase)
        if place is None:
            place = self._places[phase] = len(self._phases)
            self._phases.append(phase)
        self._labels[at] = place
        if commit and (len(commit) != 2 * self._width or not commit.strip("0")):
            return commit
        if commit:
            self._commits[at * self._width : (at + 1) * self._width] = bytes.fromhex(commit)
        return None


class Oids(Sequence[str]):
    """The oids of documents of a table, each made when it is asked for.

    Args:
        table: it.
        order: their places.
    """

    def __init__(self, table: Sheet, order: Sequence[int]) -> None:
        self._table = table
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self._table.oid(each) for each in self._order[at]]
        return self._table.oid(self._order[at])


_NONE = Extra(None, None, "", None, None, None, (None, None, None), (), "")


def _shared(text: str | None) -> str | None:
    return None if text is None else sys.intern(text)
