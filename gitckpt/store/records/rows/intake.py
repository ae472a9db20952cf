"""Documents come into the tables, until those have what the refs point to.

Where only files of refs have changed, those are read, and of packed refs that were held since (`packed`) what differs; otherwise git lists
all. Only documents are read that were not seen yet, in portions: a kill leaves what was done, and two processes at it share the work.
"""

from __future__ import annotations

import hashlib
from collections import deque
from functools import partial

from gitckpt.git.files.order import in_packs
from gitckpt.git.files.ref_files import in_parts
from gitckpt.git.files.validity import State
from gitckpt.model import ids
from gitckpt.model.errors import InvalidCheckpoint
from gitckpt.model.readers.codec import decode_summary
from gitckpt.model.readers.fence import fenced
from gitckpt.model.readers.plain import PlainReader
from gitckpt.store.records import entry, layout
from gitckpt.store.records.rows import tables
from gitckpt.store.records.rows.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint

_PORTION = 20_000
"""So many documents are read and kept at once."""

_DIRECTORY = layout.CHECKPOINTS.rstrip("/")


class _Read:
    """What was read of documents, as it is to be kept.

    Attributes:
        rows: of the valid ones.
        problems: the others.
        runs: the first sequence of each run that is among them.
    """

    def __init__(self) -> None:
        self.rows: list[tables.Row] = []
        self.problems: list[tables.ProblemRow] = []
        self.runs: dict[str, int] = {}

    def take(self, row: tables.Row, run: str | None, sequence: int | None) -> None:
        """Adds the row of a valid document, and what it says of its run."""
        self.rows.append(row)
        if run is not None and sequence is not None:
            self.runs[run] = min(sequence, self.runs.get(run, sequence))


class Intake:
    """Brings the tables of an index up to the refs.

    Args:
        progress: is given a line to show while many documents are read, and at last "".
    """

    def __init__(self, repository: Repository, objects: Objects, refs: Refs, progress: Callable[[str], object]) -> None:
        self._repository = repository
        self._objects = objects
        self._refs = refs
        self._progress = progress
        self._reader = PlainReader()
        self._watch = Watch(repository, refs)
        self._expected: frozenset[bytes] | None = None

    def bring_up(self, connection: sqlite3.Connection) -> None:
        """Brings the tables up to the refs, and leaves a transaction open in which they are as these: another process may see other ones.

        It is for the caller to commit it.
        """
        self.conclude(connection)
        state = self._watch.look()
        connection.execute("BEGIN")
        if not _is_of(connection, state):
            connection.rollback()
            connection.execute("BEGIN IMMEDIATE")
            if not self._catch_up(connection, state):
                self._list(connection, state)
        self._watch.hold(state)

    def expect(self, connection: sqlite3.Connection, gone: Collection[str]) -> None:
        """Has the rows of checkpoints go whose refs are being deleted just now, while git is at it.

        Nobody sees it: they go for good once their refs were found to be gone (`conclude`), with all else that has changed. What was
        expected before, and is still open, as where git was killed at it, has not happened.

        Args:
            connection: to the index.
            gone: their ids.

        Raises:
            sqlite3.DatabaseError: somebody else writes, or the file cannot be written; all rows are there.
        """
        expected = frozenset(map(ids.to_bytes, gone))
        self._expected = None
        connection.rollback()
        try:
            tables.begin_at_once(connection)
            tables.forget(connection, expected)
            self._expected = expected
        except BaseException:
            self._expected = None  # an interrupt comes wherever it likes
            connection.rollback()
            raise

    def conclude(self, connection: sqlite3.Connection) -> None:
        """Ends what `expect` has begun: the rows go if their refs have, and are back if that cannot be told without listing all refs."""
        expected, self._expected = self._expected, None
        if expected is None:
            return
        try:
            state = self._watch.look()
            if self._catch_up(connection, state, expected):
                connection.commit()
                self._watch.hold(state)
        except BaseException:
            connection.rollback()
            raise

    def close(self) -> None:
        """Lets go of what is held; what was expected has not happened."""
        self._expected = None
        self._watch.close()

    def _catch_up(self, connection: sqlite3.Connection, state: State, expected: Collection[bytes] = frozenset()) -> bool:
        """Brings it up to the refs where that takes no listing of them all, and leaves the transaction open that is.

        Args:
            connection: to the index.
            state: what refs looked like before.
            expected: those whose rows have gone already in this transaction.

        Returns:
            Whether that was all; otherwise nothing was changed, and no transaction is open.
        """
        passing = connection.execute("SELECT 1 FROM problem WHERE may_pass").fetchone()
        changes = None if passing else self._watch.changes(connection, state)
        gone = set() if changes is None else set(changes.gone)
        if changes is None or not gone.issuperset(expected):
            connection.rollback()
            return False
        tables.forget(connection, [*gone.difference(expected), *(id_ for id_, _ in changes.new)])
        self._add(connection, changes.new)
        tables.rank(connection)
        connection.executemany("DELETE FROM loose WHERE id = ?", [(id_,) for id_ in changes.vanished])
        connection.executemany("INSERT OR REPLACE INTO loose VALUES (?, ?)", changes.files)
        self._note(connection, state, "")
        return True

    def _list(self, connection: sqlite3.Connection, state: State) -> None:
        """Compares with all refs, and reads what is new. Leaves the transaction open.

        Args:
            connection: to the index.
            state: what refs looked like before: what changes while git lists them shows the next time.
        """
        files = {} if self._repository.has_reftable else self._watch.files()
        listing = bytearray()
        for part in in_parts(self._repository, _DIRECTORY):
            listing += self._refs.list(part, fields="%(objectname) %(refname) %(symref)")
        if listing.count(b" \n") < listing.count(b"\n"):  # what a symbolic ref leads to changes elsewhere
            state = State(None, None)
        digest = hashlib.blake2b(listing).hexdigest()
        seen = -1
        new: list[tables.Ref] = []
        while True:
            connection.execute("BEGIN IMMEDIATE")
            version = tables.version(connection)
            if version != seen:  # another process has written: what is new is judged again
                seen = version
                if tables.noted(connection).get("digest") == digest:
                    break
                connection.execute("DELETE FROM problem WHERE may_pass")  # what is bad for good is as slow to read as it was before
                gone, new = tables.compared(connection, listing)
                tables.forget(connection, gone)
            if len(new) <= _PORTION:
                self._add(connection, new)
                tables.put_in_order(connection)
                tables.rank(connection)
                break
            connection.execute("DELETE FROM meta")
            tables.disorder(connection, len(new))
            connection.commit()
            new = self._add_most(connection, new)
        connection.execute("DELETE FROM loose")
        connection.executemany("INSERT INTO loose VALUES (?, ?)", files.items())
        self._note(connection, state, digest)

    def _add_most(self, connection: sqlite3.Connection, refs: list[tables.Ref]) -> list[tables.Ref]:
        """Adds what refs point to, but for one portion, and puts it in order; another process may be at the same work.

        Documents are read while others may write; each portion is kept for good. Who comes upon what another one has just added goes on
        from the other end.

        Returns:
            The refs of that portion.
        """
        order = in_packs(self._repository, b"".join(oid for _, oid in refs), len(refs[0][1]))
        refs = [refs[at] for at in order]
        portions = deque(refs[start : start + _PORTION] for start in range(0, len(refs), _PORTION))
        take, done = portions.popleft, 0
        seen = tables.version(connection)
        while len(portions) > 1:
            some = take()
            done += len(some)
            if tables.version(connection) == seen or tables.unknown(connection, some):
                read = self._read(some)
                connection.execute("BEGIN IMMEDIATE")
                if tables.version(connection) != seen:
                    if not tables.unknown(connection, some):
                        take = portions.pop
                    tables.forget(connection, [id_ for id_, _ in some])
                _keep(connection, read)
                connection.commit()
            self._progress(f"… reading checkpoints: {done:,} of {len(refs):,}")
        tables.put_in_order(connection)
        self._progress("")
        return portions[0]

    def _note(self, connection: sqlite3.Connection, state: State, digest: str) -> None:
        """Notes which refs the index is made from; nothing where objects of theirs may come back: then the next query looks again."""
        connection.execute("DELETE FROM meta")
        if connection.execute("SELECT 1 FROM problem WHERE may_pass").fetchone() is None:
            found = {"packed": state.packed, "loose": state.loose, "digest": digest}
            connection.executemany("INSERT INTO meta VALUES (?, ?)", [(key, value) for key, value in found.items() if value is not None])

    def _add(self, connection: sqlite3.Connection, refs: Sequence[tables.Ref]) -> None:
        """Adds what refs point to that have no rows."""
        _keep(connection, self._read(refs))

    def _read(self, refs: Sequence[tables.Ref]) -> _Read:
        """Reads what refs point to."""
        found = _Read()
        documents = layout.documents(self._repository, self._objects, [oid.hex() for _, oid in refs])
        for (id_, oid), document in zip(refs, documents, strict=True):
            name = ids.from_bytes(id_)
            plain = self._reader.summary(document[1], name) if document is not None and document[0] == "blob" else None
            if plain is not None:
                found.take(entry.row_plain(plain, oid), plain.run, plain.sequence)
                continue
            ref = layout.CHECKPOINTS + name
            try:
                header = fenced(ref, partial(_header, oid.hex(), ref, document))
            except InvalidCheckpoint as error:
                found.problems.append((id_, oid, error.message, document is None))
            else:
                found.take(entry.row(header, oid.hex()), header.run, header.sequence)
        return found


def _is_of(connection: sqlite3.Connection, state: State) -> bool:
    """Tells whether the index was made from refs that looked like this."""
    noted, seen = tables.noted(connection), (state.packed, state.loose)
    return None not in seen and (noted.get("packed"), noted.get("loose")) == seen


def _keep(connection: sqlite3.Connection, read: _Read) -> None:
    tables.add(connection, read.rows, read.problems)
    tables.has_changed(connection, read.runs)


def _header(oid: str, ref: str, found: tuple[str, bytes] | None) -> Checkpoint:
    return decode_summary(layout.document(found, ref, oid), ref)
