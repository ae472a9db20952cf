"""The derived index: the header of every checkpoint in a small SQLite file.

Each query first checks by `stat` whether refs can have changed. If so, git lists them, and new
documents are read. Deleting the file only makes the next query slower.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import threading
import time
import zlib
from binascii import unhexlify
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter

from gitckpt.git.files import premises, refs_stat
from gitckpt.git.files.refs_stat import State
from gitckpt.git.objects.encoding import oid_size
from gitckpt.git.refs import Refs
from gitckpt.git.repository import Repository
from gitckpt.model import ids
from gitckpt.model.arguments import require
from gitckpt.model.codec import decode_summary
from gitckpt.model.errors import InvalidCheckpoint, RepositoryError
from gitckpt.model.fence import fenced
from gitckpt.store.records import entry, layout
from gitckpt.store.records.entry import Entry, Problem, Query, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from gitckpt.git.objects.port import Objects
    from gitckpt.model.checkpoint import Checkpoint

    _T = TypeVar("_T")


# Tables of the index.


Ref = tuple[bytes, bytes]  # id of a checkpoint and oid of its document
Row = tuple[Value | None, ...]  # as `entry.row` makes it
# Id and oid of an invalid checkpoint, a sentence, and whether the problem may be temporary.
ProblemRow = tuple[bytes, bytes, str, bool]

PATIENCE = 5.0  # seconds to wait for a locked file
# Increase this when the row of a document changes; all rows are then made again.
_READER = 1

_NAMES = ("meta", "entry", "problem", "unranked")
_DROP = "".join(f"DROP TABLE IF EXISTS {name};" for name in _NAMES)
_TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entry ({", ".join(entry.COLUMNS)});
CREATE TABLE problem (id BLOB PRIMARY KEY, oid BLOB NOT NULL, sentence TEXT NOT NULL, may_pass INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE unranked (run TEXT, sequence INTEGER, PRIMARY KEY (run, sequence)) WITHOUT ROWID;
CREATE UNIQUE INDEX entry_by_id ON entry (id);
"""
# Columns of the indexes by name. They change only the time of queries.
_ORDERS = {
    "entry_by_run": "(run, sequence) WHERE run IS NOT NULL",
    "entry_by_rank": "(rank, sequence, id)",
    "entry_by_commit": "(git_sha)",
    "safety_by_rank": "(rank, sequence, id) WHERE run IS NULL AND trigger = 'safety'",
    "agents_by_rank": "(rank, sequence, id) WHERE run IS NULL AND agent IS NOT NULL",
    "progress_by_rank": "(rank, sequence, id) WHERE run IS NOT NULL AND status = 'progress'",
}

_SCHEMA = _TABLES + "".join(f"CREATE INDEX {name} ON entry {columns};" for name, columns in _ORDERS.items())
_SCHEMA_VERSION = zlib.crc32(_SCHEMA.encode() + b"%d" % _READER) >> 1

STORED = "SELECT id, oid FROM entry UNION ALL SELECT id, oid FROM problem"
# Ids of rows to delete. One statement for all takes half the time of 10,000 single ones.
_GOING = "CREATE TEMP TABLE IF NOT EXISTS going (id BLOB PRIMARY KEY) WITHOUT ROWID"

_FORGET = (
    "INSERT OR IGNORE INTO unranked SELECT run, sequence FROM entry WHERE id IN going AND run IS NOT NULL",
    "DELETE FROM entry WHERE id IN going",
    "DELETE FROM problem WHERE id IN going",
    "DELETE FROM going",
)
_BEFORE = "SELECT rank FROM entry WHERE run = each.run AND sequence < first ORDER BY sequence DESC, id DESC LIMIT 1"
_UNRANKED = "(SELECT run, MIN(sequence) AS first FROM unranked GROUP BY run) AS each"
_LISTED = re.compile(
    rb"^([0-9a-f]+) %s([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}) " % layout.CHECKPOINTS.encode(), re.MULTILINE
)


def connect(path: str) -> sqlite3.Connection:
    # A store may be closed by another thread than the one that used it; SQLite allows that.
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.create_function(entry.ID_BYTES, 1, entry.id_bytes, deterministic=True)
        connection.create_function(entry.OID_BYTES, 1, bytes.fromhex, deterministic=True)
        if connection.execute("PRAGMA user_version").fetchone()[0] != _SCHEMA_VERSION:  # new, or made by another gitckpt
            connection.executescript(f"BEGIN IMMEDIATE; {_DROP} {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION:d}; COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def noted_commits(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the state of the refs that the index was made from."""
    return dict(connection.execute("SELECT key, value FROM meta"))


def compared(connection: sqlite3.Connection, listing: bytes | bytearray) -> tuple[set[bytes], list[Ref]]:
    """Return the ids whose rows are stale, and the refs without rows, in order."""
    stored = dict(connection.execute(STORED))
    new = []
    for found in _LISTED.finditer(listing):
        oid, name = found.groups()
        one = unhexlify(name.replace(b"-", b"")), unhexlify(oid)
        if not stored or stored.get(one[0]) != one[1]:
            new.append(one)
        else:
            del stored[one[0]]
    return set(stored), new


def add(connection: sqlite3.Connection, rows: Iterable[Row], problems: Iterable[ProblemRow]) -> None:
    by_id = sorted(rows, key=itemgetter(0))
    connection.executemany(f"INSERT INTO entry VALUES ({', '.join('?' * len(entry.COLUMNS))})", by_id)  # noqa: S608
    connection.executemany("INSERT INTO problem VALUES (?, ?, ?, ?)", problems)


def forget(connection: sqlite3.Connection, gone: Collection[bytes]) -> None:
    if gone:
        connection.execute(_GOING)
        connection.executemany("INSERT OR IGNORE INTO going VALUES (?)", [(id_,) for id_ in gone])
        for statement in _FORGET:
            connection.execute(statement)


def has_changed(connection: sqlite3.Connection, runs: Mapping[str, int]) -> None:
    """Note from which sequence on to rank runs: a kill may come before `rank`."""
    connection.executemany("INSERT OR IGNORE INTO unranked VALUES (?, ?)", runs.items())


def rank(connection: sqlite3.Connection) -> None:
    """Set each rank to the run's latest timestamp so far, in case a clock jumped."""
    latest = dict(connection.execute(f"SELECT run, ({_BEFORE}) FROM {_UNRANKED}"))  # noqa: S608 - fixed parts only
    ranks = []
    rows = connection.execute(
        f"SELECT entry.run, entry.rowid, time, rank FROM {_UNRANKED} JOIN entry ON entry.run = each.run AND sequence >= first"  # noqa: S608
        " ORDER BY each.run, sequence, id"
    )
    for run, row, instant, known in rows:
        latest[run] = max(instant, latest[run] or 0)
        if known != latest[run]:
            ranks.append((latest[run], row))
    connection.executemany("UPDATE entry SET rank = ? WHERE rowid = ?", ranks)
    connection.execute("DELETE FROM unranked")


# Update the tables from the refs.


# Documents to read at once while others cannot write: less time than they wait (`PATIENCE`).
_PORTION = 20_000
_LARGE = 4 << 20  # bytes of a listing that takes longer to repeat than `_MOMENT`
# Seconds until mtimes are reliable, on file systems with fine timestamps (`refs_stat`).
_MOMENT = 0.06

_DIRECTORY = layout.CHECKPOINTS.rstrip("/")


class Sync:
    def __init__(self, repository: Repository, objects: Objects, refs: Refs, progress: Callable[[str], object]) -> None:
        self._repository = repository
        self._objects = objects
        self._refs = refs
        self._progress = progress
        self._has_many = False

    def bring_up(self, connection: sqlite3.Connection) -> None:
        """Update the tables, and leave open a transaction in which they match the refs."""
        state = refs_stat.look(self._repository, _DIRECTORY)
        if self._has_many and None in (state.packed, state.loose):
            time.sleep(_MOMENT)
            state = refs_stat.look(self._repository, _DIRECTORY)
        connection.execute("BEGIN")
        if not _is_of(connection, state):
            connection.rollback()
            self._list(connection, state)

    def _list(self, connection: sqlite3.Connection, state: State) -> None:
        # `state` is from before the listing, so that a change during it is noticed next time.
        listing = self._refs.list(_DIRECTORY, fields="%(objectname) %(refname) %(symref)")
        if listing.count(b" \n") < listing.count(b"\n"):  # the target of a symbolic ref changes elsewhere
            state = State(None, None)
        self._has_many = len(listing) > _LARGE
        digest = hashlib.blake2b(listing).hexdigest()
        connection.execute("BEGIN IMMEDIATE")
        if noted_commits(connection).get("digest") != digest:
            connection.execute("DELETE FROM problem WHERE may_pass")  # permanent problems stay: they are slow to read
            self._read_new(connection, listing)
            rank(connection)
        self._note(connection, state, digest)

    def _read_new(self, connection: sqlite3.Connection, listing: bytes) -> None:
        done = 0
        while True:
            gone, new = compared(connection, listing)
            forget(connection, gone)
            self._add(connection, new[:_PORTION])
            if len(new) <= _PORTION:
                break
            connection.execute("DELETE FROM meta")
            connection.commit()  # others may write now
            done += _PORTION
            self._progress(f"… reading checkpoints: {done:,} of {done + len(new) - _PORTION:,}")
            connection.execute("BEGIN IMMEDIATE")
        if done:
            self._progress("")

    def _note(self, connection: sqlite3.Connection, state: State, digest: str) -> None:
        connection.execute("DELETE FROM meta")
        # Missing objects may come back: then the next query must look again.
        if connection.execute("SELECT 1 FROM problem WHERE may_pass").fetchone() is None:
            found = {"packed": state.packed, "loose": state.loose, "digest": digest}
            connection.executemany("INSERT INTO meta VALUES (?, ?)", [(key, value) for key, value in found.items() if value is not None])

    def _add(self, connection: sqlite3.Connection, refs: Sequence[Ref]) -> None:
        rows: list[Row] = []
        problems: list[ProblemRow] = []
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
        add(connection, rows, problems)
        has_changed(connection, runs)


def _is_of(connection: sqlite3.Connection, state: State) -> bool:
    noted, seen = noted_commits(connection), (state.packed, state.loose)
    return None not in seen and (noted.get("packed"), noted.get("loose")) == seen


def _header(oid: str, ref: str, document: tuple[str, bytes] | None) -> Checkpoint:
    return decode_summary(layout.document(document, ref, oid), ref)


# Queries.


FILE = "index.sqlite"

_NEWEST = "ORDER BY rank DESC, sequence DESC, id DESC"

# Held until SQLite has opened the new file: see `premises.ensure`.
_OPENING = threading.Lock()


class Index:
    """The index; `progress` takes a line to show during long reads, "" at the end."""

    def __init__(self, repository: Repository, objects: Objects, refs: Refs, progress: Callable[[str], object] = lambda _: None) -> None:
        self._repository = repository
        self._path = os.path.join(repository.private_dir, FILE)
        self._connection: sqlite3.Connection | None = None
        self._sync = Sync(repository, objects, refs, progress)
        self._turn = threading.RLock()  # two threads in one connection crash Python, and one could replace it for the other

    def select(self, query: Query | None = None) -> list[Entry]:
        """List matching checkpoints, newest first."""
        query = Query() if query is None else query
        require("query", query, Query, "a Query")
        where, values = entry.condition(query)
        limit = "" if query.limit is None and query.skip is None else f" LIMIT {-1 if query.limit is None else query.limit:d}"
        limit += f" OFFSET {query.skip:d}" if query.skip is not None else ""
        rows = self._ask(f"SELECT {', '.join(entry.FIELDS)} FROM entry{where} {_NEWEST}{limit}", values)  # noqa: S608 - fixed parts only
        return [entry.of_row(row) for row in rows]

    def problems(self) -> list[Problem]:
        found = self._ask("SELECT id, sentence FROM problem ORDER BY id")
        return [Problem(layout.CHECKPOINTS + ids.from_bytes(id_), sentence) for id_, sentence in found]

    def oids(self) -> dict[str, str]:
        """Return the oid of each ref of a checkpoint by id, valid or not."""
        return {ids.from_bytes(id_): oid.hex() for id_, oid in self._ask(STORED)}

    def runs(self) -> list[str]:
        return [row[0] for row in self._ask(entry.RUN_IDS)]

    def commits(self) -> set[str] | None:
        """Return linked commits of this object format; None if a document is unreadable."""
        question = "SELECT NULL FROM problem UNION ALL SELECT git_sha FROM entry WHERE length(git_sha) = ?"
        size = oid_size(self._repository.object_format)
        found = self._ask(question, [size], take=lambda rows: {oid and oid.hex() for (oid,) in rows})
        return None if None in found else found

    def run_rows(self) -> list[tuple[Any, ...]]:
        """Return a row for each run, the one with the newest checkpoint first.

        Columns: run; time (microseconds since the epoch), id, oid, branch and label of its newest
        checkpoint; label and oid of the newest one that a driver recorded, or None; time of the
        first one; and, for a run never driven beyond its start, label, oid and trigger of the
        newest one of a phase or step.
        """
        return [(*row[:2], ids.from_bytes(row[2]), *row[3:]) for row in self._ask(entry.RUNS)]

    def sizes(self) -> tuple[int, dict[str, tuple[int, str, str]]]:
        """Return the number of checkpoints; by run its number, first id and first oid."""
        (total, *_), *rows = self._ask(entry.SIZES)
        return total, {run: (count, ids.from_bytes(id_), oid.hex()) for count, run, id_, oid, _ in rows}

    def refresh(self) -> None:
        self._ask("SELECT 1")

    def aside(self, access: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        """Access cached data; return `otherwise` if the file cannot be used."""
        with self._turn:
            try:
                return access(self._opened())
            except sqlite3.DatabaseError:
                return otherwise

    def remember_changed(self, counts: Iterable[tuple[str, int]]) -> None:
        rows = [(count, ids.to_bytes(id_)) for id_, count in counts]
        self.aside(lambda connection: connection.executemany("UPDATE entry SET changed = ? WHERE id = ?", rows), None)

    def close(self) -> None:
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _ask(self, question: str, values: Sequence[Value] = (), take: Callable[[Iterable[tuple[Any, ...]]], Any] = list) -> Any:
        with self._turn:
            try:
                return self._answer(self._opened(), question, values, take)
            except sqlite3.DatabaseError as error:  # damaged, locked, or disk full or read-only: it is only a cache
                self.close()
                if not isinstance(error, sqlite3.OperationalError):
                    self._discard()
                self._connection = connect(":memory:")
                return self._answer(self._connection, question, values, take)

    def _answer(
        self, connection: sqlite3.Connection, question: str, values: Sequence[Value], take: Callable[[Iterable[tuple[Any, ...]]], Any]
    ) -> Any:
        with connection:  # one transaction: another process may have seen older refs
            self._sync.bring_up(connection)
            return take(connection.execute(question, values))

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._repository.make_private_dir()
                with _OPENING:
                    premises.ensure(self._path)  # SQLite's other files get the same mode
                    self._connection = connect(self._path)
            except (OSError, RepositoryError, sqlite3.OperationalError):  # locked, or the disk is full or read-only
                self._connection = connect(":memory:")
            except sqlite3.DatabaseError:  # damaged: the next process creates it again
                self._discard()
                self._connection = connect(":memory:")
        return self._connection

    def _discard(self) -> None:
        for path in (self._path, f"{self._path}-wal", f"{self._path}-shm"):
            with contextlib.suppress(OSError):
                os.unlink(path)
