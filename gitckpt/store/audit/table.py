"""The checkpoints that an audit compares with everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import NamedTuple

from gitckpt.git.refs import Update
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Entry


class SheetRow(NamedTuple):
    """What the document of a valid checkpoint says, less what nothing depends on.

    Attributes:
        oid: the blob of the document.
        holds: namespace of refs → the oid that its ref there should point to, or, below `refs/keep/ckpt/`, keep.
        names: the other checkpoints it names, each with the key that does.
        submodules: as `Entry` has them.
        entry: what the index should know of it.
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
    entry: Entry

    @property
    def ref(self) -> str:
        """Full name of its ref."""
        return layout.CHECKPOINTS + self.id

    @property
    def is_there(self) -> Update:
        """What a transaction that depends on it begins with."""
        return Update(self.ref, self.oid, self.oid)


class Sheet:
    """The checkpoints, in the order of their ids; a place is a number from 0.

    Attributes:
        valid: for each place 1 where the document is one.
        extras: places of checkpoints that are in a run, or name more than a commit.
    """

    def __init__(self) -> None:
        self._oids: list[tuple[str, str]] = []
        self._places: dict[str, int] = {}
        self._rows: dict[int, SheetRow] = {}
        self.valid = bytearray()
        self.extras: set[int] = set()

    def __len__(self) -> int:
        return len(self._oids)

    def append(self, name: str, oid: str) -> None:
        """Add a ref below `refs/checkpoints/`; they come in the order of their names."""
        self._places[name] = len(self._oids)
        self._oids.append((name, oid))
        self.valid.append(0)

    def fill(self, at: int, checkpoint: Checkpoint, names: Sequence[tuple[str, str]]) -> None:
        """Note what the valid checkpoint at a place says, and which others it names."""
        entry, files, imported = Entry.of(checkpoint, self.oid(at)), checkpoint.worktree, checkpoint.imported
        needed = {
            layout.TREES: checkpoint.tree,
            layout.OPERATIONS: files.operation_commit if files else None,
            layout.ORIGINALS: imported.original if imported else None,
        }
        holds = {space: oid for space, oid in needed.items() if oid}
        if holds or names or entry.run is not None or entry.submodules:
            self.extras.add(at)
        if entry.git_sha:
            holds[layout.KEEP] = entry.git_sha
        self.valid[at] = 1
        self._rows[at] = SheetRow(
            id=entry.id,
            oid=entry.oid,
            run=entry.run,
            sequence=entry.sequence,
            phase=entry.label,
            timestamp=entry.timestamp,
            git_sha=entry.git_sha,
            trigger=entry.trigger,
            parent=checkpoint.parent,
            holds=holds,
            names=names,
            submodules=entry.submodules,
            entry=entry,
        )

    def find(self, name: str) -> int | None:
        """Return the place of the checkpoint with an id; None where no ref is named so."""
        return self._places.get(name)

    def id(self, at: int) -> str:
        """Return the id at a place."""
        return self._oids[at][0]

    def oid(self, at: int) -> str:
        """Return the oid of the document at a place."""
        return self._oids[at][1]

    def oids(self) -> list[str]:
        """Return the oids of all documents."""
        return [oid for _, oid in self._oids]

    def record(self, at: int) -> SheetRow:
        """Return the valid checkpoint at a place."""
        return self._rows[at]

    def commit(self, at: int) -> str:
        """Return the linked commit of a valid checkpoint; "" for none."""
        return self._rows[at].git_sha

    def by_time(self) -> list[int]:
        """Return the places of the valid checkpoints in the order of their timestamps."""
        return sorted(compress(range(len(self)), self.valid), key=lambda at: self._rows[at].entry.time)
