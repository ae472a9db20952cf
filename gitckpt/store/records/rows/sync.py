"""Bring the tables of the index up to the refs.

`stat` of the refs tells whether any can have changed (`refs_stat`). If so, one `git for-each-ref` lists them all, and the documents that
have no row yet are read in portions: a kill leaves what was done, and two processes at it share the work.
"""

from __future__ import annotations

import hashlib
import time
from functools import partial

from gitckpt.git.files import refs_stat
from gitckpt.git.files.refs_stat import State
from gitckpt.model import ids
from gitckpt.model.errors import InvalidCheckpoint
from gitckpt.model.readers.codec import decode_summary
from gitckpt.model.readers.fence import fenced
from gitckpt.store.records import entry, layout
from gitckpt.store.records.rows import tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint

_PORTION = 20_000
"""So many documents are read at once, while nobody else can write: that takes less time than others wait (`tables.PATIENCE`)."""

_LARGE = 4 << 20
"""In bytes, of a listing: to make another one takes longer than to wait until times of files can be relied on."""

_MOMENT = 0.06
"""In seconds: until they can, where they are fine (`refs_stat`)."""

_DIRECTORY = layout.CHECKPOINTS.rstrip("/")


class Sync:
    """Brings the tables of an index up to the refs.

    Args:
        progress: is given a line to show while many documents are read, and at last "".
    """

    def __init__(self, repository: Repository, objects: Objects, refs: Refs, progress: Callable[[str], object]) -> None:
        self._repository = repository
        self._objects = objects
        self._refs = refs
        self._progress = progress
        self._has_many = False

    def bring_up(self, connection: sqlite3.Connection) -> None:
        """Bring the tables up to the refs, and leave a transaction open in which they agree.

        Another process may see other refs. The caller commits.
        """
        state = refs_stat.look(self._repository, _DIRECTORY)
        if self._has_many and None in (state.packed, state.loose):
            time.sleep(_MOMENT)
            state = refs_stat.look(self._repository, _DIRECTORY)
        connection.execute("BEGIN")
        if not _is_of(connection, state):
            connection.rollback()
            self._list(connection, state)

    def _list(self, connection: sqlite3.Connection, state: State) -> None:
        """Compare with all refs, and read what is new. Leaves the transaction open.

        Args:
            state: what refs looked like before: what changes while git lists them shows the next time.
        """
        listing = self._refs.list(_DIRECTORY, fields="%(objectname) %(refname) %(symref)")
        if listing.count(b" \n") < listing.count(b"\n"):  # what a symbolic ref leads to changes elsewhere
            state = State(None, None)
        self._has_many = len(listing) > _LARGE
        digest = hashlib.blake2b(listing).hexdigest()
        connection.execute("BEGIN IMMEDIATE")
        if tables.noted(connection).get("digest") != digest:
            connection.execute("DELETE FROM problem WHERE may_pass")  # what is bad for good is as slow to read as it was before
            self._read_new(connection, listing)
            tables.rank(connection)
        self._note(connection, state, digest)

    def _read_new(self, connection: sqlite3.Connection, listing: bytes) -> None:
        """Make the rows those of the listing; of many, each portion is kept for good, and others may have a turn after it."""
        done = 0
        while True:
            gone, new = tables.compared(connection, listing)
            tables.forget(connection, gone)
            self._add(connection, new[:_PORTION])
            if len(new) <= _PORTION:
                break
            connection.execute("DELETE FROM meta")
            connection.commit()
            done += _PORTION
            self._progress(f"… reading checkpoints: {done:,} of {done + len(new) - _PORTION:,}")
            connection.execute("BEGIN IMMEDIATE")
        if done:
            self._progress("")

    def _note(self, connection: sqlite3.Connection, state: State, digest: str) -> None:
        """Note which refs the index is made from, unless missing objects may come back: then the next query looks again."""
        connection.execute("DELETE FROM meta")
        if connection.execute("SELECT 1 FROM problem WHERE may_pass").fetchone() is None:
            found = {"packed": state.packed, "loose": state.loose, "digest": digest}
            connection.executemany("INSERT INTO meta VALUES (?, ?)", [(key, value) for key, value in found.items() if value is not None])

    def _add(self, connection: sqlite3.Connection, refs: Sequence[tables.Ref]) -> None:
        """Read the documents that refs point to, and add their rows."""
        rows: list[tables.Row] = []
        problems: list[tables.ProblemRow] = []
        runs: dict[str, int] = {}
        documents = layout.documents(self._repository, self._objects, [oid.hex() for _, oid in refs])
        for (id_, oid), document in zip(refs, documents, strict=True):
            ref = layout.CHECKPOINTS + ids.from_bytes(id_)
            try:
                header = fenced(ref, partial(_header, oid.hex(), ref, document))
            except InvalidCheckpoint as error:
                problems.append((id_, oid, error.message, document is None))
                continue
            rows.append(entry.row(header, oid.hex()))
            if header.run is not None and header.sequence is not None:
                runs[header.run] = min(header.sequence, runs.get(header.run, header.sequence))
        tables.add(connection, rows, problems)
        tables.has_changed(connection, runs)


def _is_of(connection: sqlite3.Connection, state: State) -> bool:
    """Tell whether the index was made from refs that looked like this."""
    noted, seen = tables.noted(connection), (state.packed, state.loose)
    return None not in seen and (noted.get("packed"), noted.get("loose")) == seen


def _header(oid: str, ref: str, document: tuple[str, bytes] | None) -> Checkpoint:
    return decode_summary(layout.document(document, ref, oid), ref)
