"""The derived index: the header of every checkpoint in a small SQLite file, keyed by the oid of its blob.

A listing asks git for all refs once, compares a digest of the answer with the digest that the index was made from, and reads only
blobs it has not seen. Deleting the file changes nothing but the time that the next listing takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gitckpt import __version__
from gitckpt.git.files import premises
from gitckpt.git.refs import Refs
from gitckpt.git.repository import Repository
from gitckpt.model.arguments import require
from gitckpt.model.errors import InvalidCheckpoint, RepositoryError
from gitckpt.model.readers.codec import decode_summary
from gitckpt.model.readers.fence import fenced
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Entry, Problem, Query

if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects

FILE = "index.sqlite"

_DROP = "DROP TABLE IF EXISTS meta; DROP TABLE IF EXISTS entry; DROP TABLE IF EXISTS problem;"
_FIELDS = tuple(Entry.__slots__)
_EXAMINED = _FIELDS.index("examined")
_SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entry (
    line BLOB PRIMARY KEY, name TEXT NOT NULL, status TEXT NOT NULL, rank INTEGER NOT NULL,
    {", ".join(_FIELDS)}
) WITHOUT ROWID;
CREATE TABLE problem (line BLOB PRIMARY KEY, ref TEXT NOT NULL, sentence TEXT NOT NULL, may_pass INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX entry_by_rank ON entry (rank DESC, sequence DESC, id DESC);
CREATE INDEX entry_by_run ON entry (run, sequence);
CREATE INDEX entry_by_commit ON entry (git_sha);
CREATE INDEX entry_by_id ON entry (id);
"""
_NEWEST = "ORDER BY rank DESC, sequence DESC, id DESC"
_RUNS = """
WITH ends AS (SELECT run, MIN(sequence) AS first, MAX(sequence) AS last FROM entry WHERE run IS NOT NULL GROUP BY run)
SELECT ends.run, newest.rank, newest.id, newest.branch, newest.phase,
       (SELECT phase FROM entry WHERE run = ends.run AND trigger = 'phase' ORDER BY sequence DESC LIMIT 1), oldest.time
FROM ends JOIN entry AS newest ON newest.run = ends.run AND newest.sequence = ends.last
          JOIN entry AS oldest ON oldest.run = ends.run AND oldest.sequence = ends.first
GROUP BY ends.run ORDER BY newest.rank DESC, ends.run DESC
"""
"""Grouped once more for refs from elsewhere that give a place in a run twice."""

_AT_ONCE = 2000
_PATIENCE = 5.0
"""How long a locked file is waited for, in seconds."""

_SCHEMA_VERSION = zlib.crc32(_SCHEMA.encode()) >> 1


class Index:
    """The index of a repository.

    Args:
        repository: where.
        objects: its objects.
        refs: its refs.
    """

    def __init__(self, repository: Repository, objects: Objects, refs: Refs) -> None:
        self._repository = repository
        self._objects = objects
        self._refs = refs
        self._path = os.path.join(repository.private_dir, FILE)
        self._connection: sqlite3.Connection | None = None
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
        where, values = _conditions(query)
        limit = f" LIMIT {query.limit:d}" if query.limit is not None else ""
        rows = self._ask(f"SELECT {', '.join(_FIELDS)} FROM entry{where} {_NEWEST}{limit}", values)  # noqa: S608 - fixed parts only
        return [_entry(row) for row in rows]

    def problems(self) -> list[Problem]:
        """Returns the refs that are no valid checkpoints."""
        return [Problem(*row) for row in self._ask("SELECT ref, sentence FROM problem ORDER BY ref")]

    def runs(self) -> list[str]:
        """Returns the ids of all runs that checkpoints belong to."""
        return [row[0] for row in self._ask("SELECT DISTINCT run FROM entry WHERE run IS NOT NULL ORDER BY run")]

    def commits(self) -> set[str] | None:
        """Returns the commits that checkpoints are linked to; None while there are refs of ours whose documents cannot be read."""
        found = {row[0] for row in self._ask("SELECT git_sha FROM entry UNION SELECT NULL FROM problem")}
        return None if None in found else found - {""}

    def run_rows(self) -> list[tuple[Any, ...]]:
        """Returns a row for each run, the one with the newest checkpoint first.

        Its columns: run, time of the newest checkpoint, in microseconds since the epoch, its id, branch and label; the label of the newest
        checkpoint that whoever drove the run recorded, None without any; and the time of the first checkpoint.
        """
        return self._ask(_RUNS)

    def remember_changed(self, counts: Iterable[tuple[str, int]]) -> None:
        """Keeps the number of changed paths of some checkpoints, each given by id."""
        with self._turn, contextlib.suppress(sqlite3.DatabaseError), self._opened() as connection:  # read-only: counted anew each time
            connection.executemany("UPDATE entry SET changed = ? WHERE id = ?", [(count, id_) for id_, count in counts])

    def close(self) -> None:
        """Closes the file."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _ask(self, question: str, values: Sequence[str | int] = ()) -> list[tuple[Any, ...]]:
        """Returns the rows of a query on the refs as they are now."""
        with self._turn:
            return self._asked(question, values)

    def _asked(self, question: str, values: Sequence[str | int]) -> list[tuple[Any, ...]]:
        listing = self._refs.list(layout.CHECKPOINTS.rstrip("/"), fields="%(objectname) %(refname)")
        digest = f"{__version__} {hashlib.blake2b(listing).hexdigest()}"
        connection = self._opened()
        try:
            return self._answer(connection, (listing, digest), question, values)
        except sqlite3.DatabaseError as error:  # damaged, locked for long, or on a disk that is full or read-only: it is only a cache
            self.close()
            if not isinstance(error, sqlite3.OperationalError):
                self._discard()
            self._connection = _connect(":memory:")
            return self._answer(self._connection, (listing, digest), question, values)

    def _answer(
        self, connection: sqlite3.Connection, refs: tuple[bytes, str], question: str, values: Sequence[str | int]
    ) -> list[tuple[Any, ...]]:
        """Brings the index up to the refs, and answers in the same transaction: another process may have seen older refs."""
        with connection:
            connection.execute("BEGIN")
            if _digest(connection) != refs[1]:
                connection.rollback()
                connection.execute("BEGIN IMMEDIATE")
                self._sync(connection, *refs)
            return connection.execute(question, values).fetchall()

    def _sync(self, connection: sqlite3.Connection, listing: bytes, digest: str) -> None:
        if _digest(connection).partition(" ")[0] != __version__:
            connection.execute("DELETE FROM entry")
            connection.execute("DELETE FROM problem")
        connection.execute("DELETE FROM problem WHERE may_pass")  # what is bad for good is as slow to read again as it was the first time
        now = set(listing.splitlines())
        known = {row[0] for row in connection.execute("SELECT line FROM entry UNION ALL SELECT line FROM problem")}
        new = (line for line in now - known if not layout.is_foreign(line.partition(b" ")[2].decode("utf-8", "backslashreplace")))
        runs = _forget(connection, known - now) | self._add(connection, sorted(new))
        _rank(connection, runs)
        passing = connection.execute("SELECT 1 FROM problem WHERE may_pass LIMIT 1").fetchone()  # then the next query looks again
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('digest', ?)", (f"{__version__} -" if passing else digest,))

    def _add(self, connection: sqlite3.Connection, lines: Sequence[bytes]) -> set[str]:
        """Adds what refs point to, and returns the runs that it belongs to."""
        runs: set[str] = set()
        for start in range(0, len(lines), _AT_ONCE):
            some = lines[start : start + _AT_ONCE]
            rows, problems = [], []
            names = [line.decode("utf-8", "backslashreplace").partition(" ") for line in some]
            for line, (oid, _, ref), found in zip(some, names, self._objects.read([name[0] for name in names]), strict=True):
                try:
                    row = fenced(ref, partial(_row, line, oid, ref, found))
                except InvalidCheckpoint as error:
                    problems.append((line, ref, error.message, found is None))
                else:
                    rows.append(row)
                    runs.update([str(row[6])] if row[6] else [])
            connection.executemany(f"INSERT OR REPLACE INTO entry VALUES ({', '.join('?' * (4 + len(_FIELDS)))})", rows)  # noqa: S608
            connection.executemany("INSERT OR REPLACE INTO problem VALUES (?, ?, ?, ?)", problems)
        return runs

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._repository.make_private_dir()
                os.close(premises.create(self._path, os.O_RDWR | os.O_CREAT))  # what SQLite puts beside it gets the same mode
                self._connection = _connect(self._path)
            except (OSError, RepositoryError, sqlite3.OperationalError):  # locked for long, or on a disk that is full or read-only
                self._connection = _connect(":memory:")
            except sqlite3.DatabaseError:  # damaged: the next one that opens it starts anew
                self._discard()
                self._connection = _connect(":memory:")
        return self._connection

    def _discard(self) -> None:
        for path in (self._path, f"{self._path}-wal", f"{self._path}-shm"):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _connect(path: str) -> sqlite3.Connection:
    # A store may be closed by another thread than the one that used it; SQLite itself does not mind.
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if connection.execute("PRAGMA user_version").fetchone()[0] != _SCHEMA_VERSION:  # new, or made by another gitckpt
            connection.executescript(f"BEGIN IMMEDIATE; {_DROP} {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION:d}; COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def _digest(connection: sqlite3.Connection) -> str:
    """Returns what the index was made from: the version of gitckpt, and a digest of the refs."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'digest'").fetchone()
    return str(found[0]) if found else ""


def _forget(connection: sqlite3.Connection, lines: Iterable[bytes]) -> set[str]:
    """Removes what refs pointed to, and returns the runs that it belonged to."""
    connection.execute("CREATE TEMP TABLE gone (line BLOB PRIMARY KEY) WITHOUT ROWID")
    connection.executemany("INSERT INTO gone VALUES (?)", [(line,) for line in lines])
    runs = {row[0] for row in connection.execute("SELECT DISTINCT run FROM entry JOIN gone USING (line) WHERE run IS NOT NULL")}
    connection.execute("DELETE FROM entry WHERE line IN (SELECT line FROM gone)")
    connection.execute("DELETE FROM problem WHERE line IN (SELECT line FROM gone)")
    connection.execute("DROP TABLE gone")
    return runs


def _rank(connection: sqlite3.Connection, runs: Iterable[str]) -> None:
    """Gives the checkpoints of runs the latest timestamp up to them, so that a clock that jumps cannot reorder a run."""
    for run in runs:
        latest = 0
        ranks = []
        for line, time in connection.execute("SELECT line, time FROM entry WHERE run = ? ORDER BY sequence", (run,)):
            latest = max(latest, time)
            ranks.append((latest, line))
        connection.executemany("UPDATE entry SET rank = ? WHERE line = ?", ranks)


def _row(line: bytes, oid: str, ref: str, found: tuple[str, bytes] | None) -> tuple[bytes | str | int | None, ...]:
    header = decode_summary(layout.document(found, ref, oid), ref)
    entry = Entry.of(header, oid)
    return (line, header.phase_name, header.status, entry.time, *(getattr(entry, name) for name in _FIELDS))


def _entry(row: tuple[Any, ...]) -> Entry:
    values = list(row)
    values[_EXAMINED] = bool(values[_EXAMINED])
    return Entry(*values)


def _conditions(query: Query) -> tuple[str, list[str | int]]:
    parts = []
    values: list[str | int] = []
    for condition, value in (
        ("run = ?", query.run),
        ("git_sha = ?", query.git_sha),
        ("time >= ?", query.since),
        ("status = ?", query.status),
    ):
        if value is not None:
            parts.append(condition)
            values.append(value)
    if query.in_run is not None:
        parts.append("run IS NOT NULL" if query.in_run else "run IS NULL")
    if query.phase is not None:
        parts.append("(phase = ? OR name = ?)")
        values += [query.phase, query.phase]
    for column, wanted in (("id", query.ids), ("run", query.runs)):
        if wanted is not None:
            parts.append(f"{column} IN (SELECT value FROM json_each(?))")  # noqa: S608 - one of two names
            values.append(json.dumps(list(wanted)))
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), values
