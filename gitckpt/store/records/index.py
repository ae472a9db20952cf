"""List checkpoints from a cache in SQLite; each query first updates the cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import threading
import zlib
from binascii import unhexlify
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from sqlite3 import Connection

from gitckpt.git.files import private_dirs, refs_stat
from gitckpt.git.objects.encoding import oid_length
from gitckpt.git.refs import Refs
from gitckpt.git.repository import Repository
from gitckpt.model import ids
from gitckpt.model.arguments import require_type
from gitckpt.model.checkpoint import TURN
from gitckpt.model.codec import decode_summary
from gitckpt.model.errors import InvalidCheckpoint, RepositoryError
from gitckpt.model.skip_invalid import read_or_raise_invalid
from gitckpt.store.records import entry, ref_names
from gitckpt.store.records.entry import CheckpointInfo, Problem, Query, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias, TypeVar

    from gitckpt.git.objects.writer import ObjectDatabase

    _T = TypeVar("_T")
    Take: TypeAlias = Callable[[Iterable[tuple[Any, ...]]], Any]

Notify = Callable[[str], object]  # takes a line, "" at the end
Ref = tuple[bytes, bytes]  # id of a checkpoint and oid of its document
Values = tuple[Value | None, ...]  # from `entry.to_row`
# Id and oid of an invalid checkpoint, its problem, and whether that may be temporary.
ProblemRow = tuple[bytes, bytes, str, bool]
PATIENCE = 5.0  # seconds to wait for a locked file
# Increase this when documents are converted to rows differently: all rows are then read again.
_READER = 1
_NAMES = ("meta", "entry", "problem", "unranked")
_DROP = "".join(f"DROP TABLE IF EXISTS {name};" for name in _NAMES)
_TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entry ({", ".join(entry.COLUMNS)});
CREATE TABLE problem (
    id BLOB PRIMARY KEY, oid BLOB NOT NULL, sentence TEXT NOT NULL, may_pass INTEGER NOT NULL
) WITHOUT ROWID;
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

_INDEXES = (f"CREATE INDEX {name} ON entry {columns};" for name, columns in _ORDERS.items())
_SCHEMA = _TABLES + "".join(_INDEXES)
_SCHEMA_VERSION = zlib.crc32(_SCHEMA.encode() + b"%d" % _READER) >> 1
_STORED = "SELECT id, oid FROM entry UNION ALL SELECT id, oid FROM problem"
# Ids of rows to delete. One statement for all takes half the time of 10,000 single ones.
_CREATE_GOING = "CREATE TEMP TABLE IF NOT EXISTS going (id BLOB PRIMARY KEY) WITHOUT ROWID"
_DELETE_GOING = (
    """INSERT OR IGNORE INTO unranked
    SELECT run, sequence FROM entry WHERE id IN going AND run IS NOT NULL""",
    "DELETE FROM entry WHERE id IN going",
    "DELETE FROM problem WHERE id IN going",
    "DELETE FROM going",
)
_RANK_BEFORE = """SELECT rank FROM entry WHERE run = each.run AND sequence < first
    ORDER BY sequence DESC, id DESC LIMIT 1"""
_UNRANKED = "(SELECT run, MIN(sequence) AS first FROM unranked GROUP BY run) AS each"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_LISTED = re.compile(f"^([0-9a-f]+) {ref_names.CHECKPOINTS}({_UUID})$".encode(), re.MULTILINE)


def connect_to_cache(path: str) -> Connection:
    # A store may be closed by another thread than the one that used it; SQLite allows that.
    connection = sqlite3.connect(path, PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.create_function(entry.ID_BYTES, 1, entry.to_id_bytes, deterministic=True)
        connection.create_function(entry.HAS_MATCH, 2, entry.has_match, deterministic=True)
        # The file is new, or another version of gitckpt made it.
        if connection.execute("PRAGMA user_version").fetchone()[0] != _SCHEMA_VERSION:
            version = f"PRAGMA user_version = {_SCHEMA_VERSION:d};"
            connection.executescript(f"BEGIN IMMEDIATE; {_DROP} {_SCHEMA} {version} COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def _read_meta(connection: Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT key, value FROM meta"))


def compare(connection: Connection, listing: bytes | bytearray) -> tuple[set[bytes], list[Ref]]:
    stored_oids = dict(connection.execute(_STORED))
    new_refs = []
    for ref_line in _LISTED.finditer(listing):
        oid, uuid = ref_line.groups()
        ref = unhexlify(uuid.replace(b"-", b"")), unhexlify(oid)
        if not stored_oids or stored_oids.get(ref[0]) != ref[1]:
            new_refs.append(ref)
        else:
            del stored_oids[ref[0]]
    return set(stored_oids), new_refs


def insert(connection: Connection, rows: Iterable[Values], problems: Iterable[ProblemRow]) -> None:
    marks = ", ".join("?" * len(entry.COLUMNS))
    connection.executemany(f"INSERT INTO entry VALUES ({marks})", sorted(rows, key=itemgetter(0)))
    connection.executemany("INSERT INTO problem VALUES (?, ?, ?, ?)", problems)


def delete_rows(connection: Connection, ids: Collection[bytes]) -> None:
    if ids:
        connection.execute(_CREATE_GOING)
        connection.executemany("INSERT OR IGNORE INTO going VALUES (?)", [(id_,) for id_ in ids])
        for sql in _DELETE_GOING:
            connection.execute(sql)


def mark_checkpoints_unranked(connection: Connection, runs: Mapping[str, int]) -> None:
    connection.executemany("INSERT OR IGNORE INTO unranked VALUES (?, ?)", runs.items())


def update_ranks(connection: Connection) -> None:
    """Set the sort rank of new checkpoints: the latest time up to them in their run."""
    latest_times = dict(connection.execute(f"SELECT run, ({_RANK_BEFORE}) FROM {_UNRANKED}"))
    ranks = []
    joined_tables = f"{_UNRANKED} JOIN entry ON entry.run = each.run AND sequence >= first"
    query = f"SELECT entry.run, entry.rowid, time, rank FROM {joined_tables}"
    for run, rowid, instant, old_rank in connection.execute(f"{query} ORDER BY 1, sequence, id"):
        latest_times[run] = max(instant, latest_times[run] or 0)  # a clock may jump back
        if old_rank != latest_times[run]:
            ranks.append((latest_times[run], rowid))
    connection.executemany("UPDATE entry SET rank = ? WHERE rowid = ?", ranks)
    connection.execute("DELETE FROM unranked")


# Documents to read at once while others cannot write: less time than they wait (`PATIENCE`).
_AT_ONCE = 20_000
_DIRECTORY = ref_names.CHECKPOINTS.rstrip("/")

FILE = "index.sqlite"
_NEWEST = "ORDER BY rank DESC, sequence DESC, id DESC"

# Held until SQLite has opened the new file: see `private_dirs.ensure_file`.
_OPENING = threading.Lock()


class Index:
    """A cache of all checkpoints; long reads call `progress` with a line of text."""

    def __init__(
        self,
        repository: Repository,
        objects: ObjectDatabase,
        refs: Refs,
        progress: Notify = lambda _: None,
    ) -> None:
        self._repository = repository
        self._path = os.path.join(repository.private_dir, FILE)
        self._connection: Connection | None = None
        self._objects, self._refs, self._progress = objects, refs, progress
        # Two threads in one connection crash Python, and one could replace it for the other.
        self._mutex = threading.RLock()

    def select(self, query: Query | None = None) -> list[CheckpointInfo]:
        query = Query() if query is None else query
        require_type("query", query, Query, "a Query")
        where_clause, sql_values = entry.build_sql_condition(query)
        limit = -1 if query.limit is None else query.limit
        sql = f"SELECT {', '.join(entry.FIELDS)} FROM entry{where_clause} {_NEWEST}"
        sql += f" LIMIT {limit:d} OFFSET {query.skip or 0:d}"
        return [entry.from_row(row) for row in self._run_query(sql, sql_values)]

    def list_problems(self) -> list[Problem]:
        rows = self._run_query("SELECT id, sentence FROM problem ORDER BY id")
        return [Problem(ref_names.CHECKPOINTS + ids.id_from_bytes(id_), text) for id_, text in rows]

    def oids_by_id(self) -> dict[str, str]:
        return {ids.id_from_bytes(id_): oid.hex() for id_, oid in self._run_query(_STORED)}

    def list_runs(self) -> list[str]:
        return [row[0] for row in self._run_query(entry.RUN_IDS)]

    def list_agents(self) -> list[str]:
        """Return the agents whose sessions have turns."""
        sql = "SELECT DISTINCT agent FROM entry WHERE run IS NOT NULL AND agent IS NOT NULL"
        return [agent for (agent,) in self._run_query(f"{sql} AND trigger = ?", [TURN])]

    def list_commits(self) -> set[str] | None:
        """Return the commits of all checkpoints; None if a checkpoint is unreadable."""
        select_linked = "SELECT git_sha FROM entry WHERE length(git_sha) = ?"
        sql = f"SELECT NULL FROM problem UNION ALL {select_linked}"
        length = oid_length(self._repository.object_format)
        # Build the set as rows arrive: many checkpoints have the same commit.
        oids = self._run_query(sql, [length], lambda rows: {oid and oid.hex() for (oid,) in rows})
        return None if None in oids else oids

    def list_run_rows(self) -> list[tuple[Any, ...]]:
        rows = self._run_query(entry.RUNS)
        return [(*row[:2], ids.id_from_bytes(row[2]), *row[3:]) for row in rows]

    def count_checkpoints(self) -> tuple[int, dict[str, tuple[int, str, str]]]:
        """Count all checkpoints, and by run; with id and oid of the first one of each run."""
        (total_count, *_), *rows = self._run_query(entry.SIZES)
        by_run = {
            run: (count, ids.id_from_bytes(id_), oid.hex()) for count, run, id_, oid, _ in rows
        }
        return total_count, by_run

    def refresh(self) -> None:
        self._run_query("SELECT 1")

    def access_cache(self, access: Callable[[Connection], _T], otherwise: _T) -> _T:
        with self._mutex:
            try:
                return access(self._open_or_reuse())
            except sqlite3.DatabaseError:
                return otherwise

    def remember_changed_counts(self, counts: Iterable[tuple[str, int]]) -> None:
        rows = [(count, ids.id_to_bytes(id_)) for id_, count in counts]
        update_sql = "UPDATE entry SET changed = ? WHERE id = ?"
        self.access_cache(lambda connection: connection.executemany(update_sql, rows), None)

    def delete_cache(self) -> None:
        self.close()
        self._delete_files()

    def close(self) -> None:
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run_query(self, sql: str, values: Sequence[Value] = (), take: Take = list) -> Any:
        def update_and_select(connection: Connection) -> Any:
            with connection:  # one transaction: another process may have seen older refs
                self._update_to_refs(connection)
                return take(connection.execute(sql, values))

        with self._mutex:
            try:
                return update_and_select(self._open_or_reuse())
            except sqlite3.DatabaseError as error:
                return update_and_select(self._open_in_memory(error))

    def _update_to_refs(self, connection: Connection) -> None:
        refs_state = refs_stat.read_refs_state(self._repository, _DIRECTORY)
        connection.execute("BEGIN")
        old_meta = _read_meta(connection)
        refs_marks = (refs_state.packed, refs_state.loose)
        if None in refs_marks or (old_meta.get("packed"), old_meta.get("loose")) != refs_marks:
            connection.rollback()
            self._update_from_listing(connection, refs_state)

    def _update_from_listing(self, connection: Connection, state: refs_stat.RefsState) -> None:
        # `state` was read before the listing: the next query detects a change during the listing.
        listing = self._refs.list_refs(_DIRECTORY, fields="%(objectname) %(refname)")
        listing_digest = hashlib.blake2b(listing).hexdigest()
        connection.execute("BEGIN IMMEDIATE")
        if _read_meta(connection).get("digest") != listing_digest:
            # Permanent problems stay: they are slow to read.
            connection.execute("DELETE FROM problem WHERE may_pass")
            self._read_new_refs(connection, listing)
            update_ranks(connection)
        self._record_state(connection, state, listing_digest)

    def _read_new_refs(self, connection: Connection, listing: bytes) -> None:
        count = 0
        while True:
            stale_ids, unread = compare(connection, listing)
            delete_rows(connection, stale_ids)
            self._read_documents(connection, unread[:_AT_ONCE])
            if len(unread) <= _AT_ONCE:
                break
            connection.execute("DELETE FROM meta")
            connection.commit()  # others may write now
            count += _AT_ONCE
            total = count + len(unread) - _AT_ONCE
            self._progress(f"… reading checkpoints: {count:,} of {total:,}")
            connection.execute("BEGIN IMMEDIATE")
        if count:
            self._progress("")

    def _record_state(
        self, connection: Connection, state: refs_stat.RefsState, digest: str
    ) -> None:
        connection.execute("DELETE FROM meta")
        # A missing object may reappear, so the next query must read it again.
        if connection.execute("SELECT 1 FROM problem WHERE may_pass").fetchone() is None:
            meta = {"packed": state.packed, "loose": state.loose, "digest": digest}
            pairs = [(key, value) for key, value in meta.items() if value is not None]
            connection.executemany("INSERT INTO meta VALUES (?, ?)", pairs)

    def _read_documents(self, connection: Connection, refs: Sequence[Ref]) -> None:
        rows: list[Values] = []
        problems: list[ProblemRow] = []
        starts: dict[str, int] = {}
        oids = [oid.hex() for _, oid in refs]
        documents = ref_names.read_documents(self._repository, self._objects, oids)
        for (id_, oid), document in zip(refs, documents, strict=True):
            ref = ref_names.CHECKPOINTS + ids.id_from_bytes(id_)
            try:
                document_bytes = ref_names.require_document(document, ref, oid.hex())
                header = read_or_raise_invalid(ref, partial(decode_summary, document_bytes, ref))
            except InvalidCheckpoint as error:
                problems.append((id_, oid, error.message, document is None))
                continue
            rows.append(entry.to_row(header, oid.hex()))
            if header.run is not None and header.sequence is not None:
                starts[header.run] = min(header.sequence, starts.get(header.run, header.sequence))
        insert(connection, rows, problems)
        mark_checkpoints_unranked(connection, starts)

    def _open_or_reuse(self) -> Connection:
        if self._connection is None:
            try:
                self._repository.make_private_dir()
                with _OPENING:
                    private_dirs.ensure_file(self._path)  # SQLite's other files get the same mode
                    self._connection = connect_to_cache(self._path)
            except (OSError, RepositoryError, sqlite3.DatabaseError) as error:
                return self._open_in_memory(error)
        return self._connection

    def _open_in_memory(self, error: Exception) -> Connection:
        # Damaged, locked, or the disk is full or read-only: it is only a cache.
        self.close()
        is_damaged = isinstance(error, sqlite3.DatabaseError)
        if is_damaged and not isinstance(error, sqlite3.OperationalError):
            self._delete_files()  # the next process creates it again
        self._connection = connect_to_cache(":memory:")
        return self._connection

    def _delete_files(self) -> None:
        for path in (self._path, f"{self._path}-wal", f"{self._path}-shm"):
            with contextlib.suppress(OSError):
                os.unlink(path)
