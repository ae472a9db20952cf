"""The derived index: the header of every checkpoint in a small SQLite file.

A question first looks whether refs can have changed since the last one (`validity`), which takes no process, whatever their number. Where
only files of refs have, those are read, and of packed refs that were held since (`packed`) what differs; otherwise git lists all. Only
documents are read that were not seen yet, in portions: a kill leaves what was done, and two processes at it share the work. Deleting the
file changes nothing but the time that the next question takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter

from gitckpt.git.files import premises
from gitckpt.git.files.order import in_packs
from gitckpt.git.files.validity import State
from gitckpt.git.refs import Refs, in_parts
from gitckpt.git.repository import Repository
from gitckpt.model import ids, times
from gitckpt.model.arguments import require
from gitckpt.model.errors import InvalidCheckpoint, RepositoryError
from gitckpt.model.readers.codec import decode_summary
from gitckpt.model.readers.fence import fenced
from gitckpt.model.readers.plain import PlainReader
from gitckpt.store.records import entry, layout
from gitckpt.store.records.entry import Entry, Problem, Query, Value
from gitckpt.store.records.rows import tables
from gitckpt.store.records.rows.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from gitckpt.git.objects.port import Objects
    from gitckpt.model.checkpoint import Checkpoint

    _T = TypeVar("_T")

FILE = "index.sqlite"

_NEWEST = "ORDER BY rank DESC, sequence DESC, id DESC"

_PORTION = 20_000
"""So many documents are read and kept at once."""

_DIRECTORY = layout.CHECKPOINTS.rstrip("/")

_OPENING = threading.Lock()
"""Held from the making of the file until SQLite has it: see `premises.ensure`."""


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


class Index:
    """The index of a repository.

    Args:
        progress: is given a line to show while many documents are read, and at last "".
    """

    def __init__(self, repository: Repository, objects: Objects, refs: Refs, progress: Callable[[str], object] = lambda _: None) -> None:
        self._repository = repository
        self._objects = objects
        self._refs = refs
        self._progress = progress
        self._path = os.path.join(repository.private_dir, FILE)
        self._connection: sqlite3.Connection | None = None
        self._reader = PlainReader()
        self._watch = Watch(repository, refs)
        self._turn = threading.RLock()  # two threads in one connection crash Python, and one may replace it beneath the other

    def select(self, query: Query | None = None) -> list[Entry]:
        """Returns the checkpoints that meet every criterion, newest first.

        Within a run the sequence decides; otherwise the timestamp, then the id.

        Args:
            query: the criteria; None for all checkpoints.

        Raises:
            UsageError: the query is none.
        """
        query = Query() if query is None else query
        require("query", query, Query, "a Query")
        where, values = entry.condition(query)
        limit = "" if query.limit is None and query.skip is None else f" LIMIT {-1 if query.limit is None else query.limit:d}"
        limit += f" OFFSET {query.skip:d}" if query.skip is not None else ""
        rows = self._ask(f"SELECT {', '.join(entry.FIELDS)} FROM entry{where} {_NEWEST}{limit}", values)  # noqa: S608 - fixed parts only
        return [entry.of_row(row) for row in rows]

    def problems(self) -> list[Problem]:
        """Returns the refs that are no valid checkpoints."""
        found = self._ask("SELECT id, sentence FROM problem ORDER BY id")
        return [Problem(layout.CHECKPOINTS + ids.from_bytes(id_), sentence) for id_, sentence in found]

    def runs(self) -> list[str]:
        """Returns the ids of all runs that checkpoints belong to."""
        return [row[0] for row in self._ask(entry.RUN_IDS)]

    def commits(self) -> set[str] | None:
        """Returns the commits that checkpoints are linked to; None while there are refs of ours whose documents cannot be read."""
        found = {row[0] for row in self._ask("SELECT git_sha FROM entry UNION SELECT NULL FROM problem")}
        return None if None in found else {oid.hex() for oid in found if oid}

    def run_rows(self) -> list[tuple[Any, ...]]:
        """Returns a row for each run, the one with the newest checkpoint first.

        Its columns: run, time of the newest checkpoint, in microseconds since the epoch, its id, oid, branch and label; label and oid of
        the newest checkpoint that whoever drove the run recorded, None without any; the time of the first checkpoint; and, of a run that
        nobody has driven beyond its beginning, label, oid and trigger of the newest checkpoint of a phase or a step.
        """
        return [(*row[:2], ids.from_bytes(row[2]), *row[3:]) for row in self._ask(entry.RUNS)]

    def sizes(self) -> tuple[int, dict[str, tuple[int, str, str]]]:
        """Returns how many checkpoints there are, and of each run how many it has, and id and oid of the first one."""
        (total, *_), *rows = self._ask(entry.SIZES)
        return total, {run: (count, ids.from_bytes(id_), oid.hex()) for count, run, id_, oid, _ in rows}

    def audited(self, take: Callable[[Iterable[tuple[Any, ...]]], object]) -> None:
        """Has each row looked at, in any order, with the columns `entry.AUDITED`; anew from the first one where the file is damaged."""
        self._ask(f"SELECT {', '.join(entry.AUDITED)} FROM entry", take=take)  # noqa: S608 - fixed parts only

    def linked(self, commits: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
        """Yields the commit, and id, phase and timestamp of each checkpoint that is linked to one of some commits, the oldest first."""
        for commit, key, phase, written, time in self._ask(entry.LINKED, [json.dumps(commits)]):
            yield commit.hex(), ids.from_bytes(key), phase, times.to_text(time) if written is None else written

    def linked_below(self, starts: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
        """Yields the same of all commits that begin with some digits, an even number of them, one commit after the other."""
        for commit, key, phase, written, time in sorted(self._ask(entry.LINKED_BELOW, [json.dumps(starts)]), key=itemgetter(0, 4, 1)):
            yield commit.hex(), ids.from_bytes(key), phase, times.to_text(time) if written is None else written

    def refresh(self) -> None:
        """Brings it up to the refs."""
        self._ask("SELECT 1")

    def aside(self, access: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        """Reads or writes what is kept beside the rows to save time; returns `otherwise` where the file cannot be read, or written."""
        with self._turn:
            try:
                return access(self._opened())
            except sqlite3.DatabaseError:
                return otherwise

    def remember_changed(self, counts: Iterable[tuple[str, int]]) -> None:
        """Keeps the number of changed paths of some checkpoints, each given by id."""
        rows = [(count, ids.to_bytes(id_)) for id_, count in counts]
        self.aside(lambda connection: connection.executemany("UPDATE entry SET changed = ? WHERE id = ?", rows), None)

    def close(self) -> None:
        """Closes the file."""
        with self._turn:
            self._watch.close()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _ask(self, question: str, values: Sequence[Value] = (), take: Callable[[Iterable[tuple[Any, ...]]], Any] = list) -> Any:
        """Returns the rows of a query on the refs as they are now, or what is made of them."""
        with self._turn:
            try:
                return self._answer(self._opened(), question, values, take)
            except sqlite3.DatabaseError as error:  # damaged, locked for long, or on a disk that is full or read-only: it is only a cache
                self.close()
                if not isinstance(error, sqlite3.OperationalError):
                    self._discard()
                self._connection = tables.connect(":memory:")
                return self._answer(self._connection, question, values, take)

    def _answer(
        self, connection: sqlite3.Connection, question: str, values: Sequence[Value], take: Callable[[Iterable[tuple[Any, ...]]], Any]
    ) -> Any:
        """Brings the index up to the refs, and answers in the same transaction: another process may have seen older refs."""
        state = self._watch.look()
        with connection:
            connection.execute("BEGIN")
            if not _is_of(connection, state):
                connection.rollback()
                if not self._catch_up(connection, state):
                    self._list(connection, state)
            self._watch.hold(state)
            return take(connection.execute(question, values))

    def _catch_up(self, connection: sqlite3.Connection, state: State) -> bool:
        """Brings it up to the refs where that takes no listing of them all. Leaves the transaction open.

        Returns:
            Whether that was all; otherwise nothing was changed, and no transaction is open.
        """
        connection.execute("BEGIN IMMEDIATE")
        passing = connection.execute("SELECT 1 FROM problem WHERE may_pass").fetchone()
        changes = None if passing else self._watch.changes(connection, state)
        if changes is None:
            connection.rollback()
            return False
        tables.forget(connection, [*changes.gone, *(id_ for id_, _ in changes.new)])
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

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._repository.make_private_dir()
                with _OPENING:
                    premises.ensure(self._path)  # what SQLite puts beside it gets the same mode
                    self._connection = tables.connect(self._path)
            except (OSError, RepositoryError, sqlite3.OperationalError):  # locked for long, or on a disk that is full or read-only
                self._connection = tables.connect(":memory:")
            except sqlite3.DatabaseError:  # damaged: the next one that opens it starts anew
                self._discard()
                self._connection = tables.connect(":memory:")
        return self._connection

    def _discard(self) -> None:
        for path in (self._path, f"{self._path}-wal", f"{self._path}-shm"):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _is_of(connection: sqlite3.Connection, state: State) -> bool:
    """Tells whether the index was made from refs that looked like this."""
    noted, seen = tables.noted(connection), (state.packed, state.loose)
    return None not in seen and (noted.get("packed"), noted.get("loose")) == seen


def _keep(connection: sqlite3.Connection, read: _Read) -> None:
    tables.add(connection, read.rows, read.problems)
    tables.has_changed(connection, read.runs)


def _header(oid: str, ref: str, found: tuple[str, bytes] | None) -> Checkpoint:
    return decode_summary(layout.document(found, ref, oid), ref)
