"""The tables of the index: made, filled, compared with the refs, and put in order."""

from __future__ import annotations

import re
import sqlite3
import zlib
from binascii import unhexlify
from collections.abc import Iterable, Mapping
from operator import itemgetter

from gitckpt.store.records import entry, layout
from gitckpt.store.records.entry import Value

Ref = tuple[bytes, bytes]
"""The id of a checkpoint and the oid of its document."""

Row = tuple[Value | None, ...]
"""As `entry.row` makes it."""

Unreadable = tuple[bytes, bytes, str, bool]
"""Id and oid of what is no valid checkpoint, a sentence on it, and whether that may pass."""

PATIENCE = 5.0
"""How long a locked file is waited for, in seconds."""

_CACHE, _LARGE_CACHE = -2_000, -64_000
"""In kilobytes, negative as SQLite has it; the first is its default."""

_READER = 1
"""To be raised where another row is made of the same document: rows that an older version has made are then made anew."""

_DROP = "".join(f"DROP TABLE IF EXISTS {table};" for table in ("meta", "entry", "problem", "loose", "unranked"))
_TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entry ({", ".join(entry.COLUMNS)});
CREATE TABLE problem (id BLOB PRIMARY KEY, oid BLOB NOT NULL, sentence TEXT NOT NULL, may_pass INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE loose (id BLOB PRIMARY KEY, stamp TEXT) WITHOUT ROWID;
CREATE TABLE unranked (run TEXT, sequence INTEGER, PRIMARY KEY (run, sequence)) WITHOUT ROWID;
CREATE UNIQUE INDEX entry_by_id ON entry (id);
"""
_ORDERS = {
    "entry_by_run": "(run, sequence) WHERE run IS NOT NULL",
    "entry_by_rank": "(rank, sequence, id)",
    "entry_by_commit": "(git_sha)",
    "safety_by_rank": "(rank, sequence, id) WHERE run IS NULL AND trigger = 'safety'",
    "agents_by_rank": "(rank, sequence, id) WHERE run IS NULL AND agent IS NOT NULL",
    "progress_by_rank": "(rank, sequence, id) WHERE run IS NOT NULL AND status = 'progress'",
}
"""Orders of the rows, by name. No answer depends on them, but the time that it takes."""

_ORDERED = tuple(f"CREATE INDEX IF NOT EXISTS {name} ON entry {columns};" for name, columns in _ORDERS.items())
_SCHEMA = _TABLES + "".join(_ORDERED)
_SCHEMA_VERSION = zlib.crc32(_SCHEMA.encode() + b"%d" % _READER) >> 1

_STORED = "SELECT id, oid FROM entry UNION ALL SELECT id, oid FROM problem"
_BEFORE = "SELECT rank FROM entry WHERE run = each.run AND sequence < first ORDER BY sequence DESC, id DESC LIMIT 1"
_UNRANKED = "(SELECT run, MIN(sequence) AS first FROM unranked GROUP BY run) AS each"
_LISTED = re.compile(
    rb"^([0-9a-f]+) %s([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}) " % layout.CHECKPOINTS.encode(), re.MULTILINE
)


def connect(path: str) -> sqlite3.Connection:
    """Returns a connection to the file of an index, which is made where it is missing, or of another version."""
    # A store may be closed by another thread than the one that used it; SQLite itself does not mind.
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.create_function(entry.ID_BYTES, 1, entry.id_bytes, deterministic=True)
        if connection.execute("PRAGMA user_version").fetchone()[0] != _SCHEMA_VERSION:  # new, or made by another gitckpt
            connection.executescript(f"BEGIN IMMEDIATE; {_DROP} {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION:d}; COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def noted(connection: sqlite3.Connection) -> dict[str, str]:
    """Returns what is noted of the refs that the index was made from."""
    return dict(connection.execute("SELECT key, value FROM meta"))


def version(connection: sqlite3.Connection) -> int:
    """Returns a number that is another one whenever others have written."""
    found: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return found


def compared(connection: sqlite3.Connection, listing: bytes | bytearray) -> tuple[set[bytes], list[Ref]]:
    """Returns the ids whose rows are of no ref any more, or of another document, and the refs that have no rows, in order.

    Args:
        connection: to the index.
        listing: a line for each ref below `refs/checkpoints/`: oid, full name, and more.
    """
    stored = dict(connection.execute(_STORED))
    new = []
    for found in _LISTED.finditer(listing):
        oid, name = found.groups()
        one = unhexlify(name.replace(b"-", b"")), unhexlify(oid)
        if not stored or stored.get(one[0]) != one[1]:
            new.append(one)
        else:
            del stored[one[0]]
    return set(stored), new


def unknown(connection: sqlite3.Connection, refs: Iterable[Ref]) -> list[Ref]:
    """Returns those of some refs that have no row, in order."""
    one = f"SELECT oid FROM ({_STORED}) WHERE id = ?"  # noqa: S608 - fixed parts only
    return [(id_, oid) for id_, oid in refs if (oid,) not in connection.execute(one, (id_,)).fetchall()]


def add(connection: sqlite3.Connection, rows: Iterable[Row], problems: Iterable[Unreadable]) -> None:
    """Adds what no rows are of."""
    by_id = sorted(rows, key=itemgetter(0))
    connection.executemany(f"INSERT INTO entry VALUES ({', '.join('?' * len(entry.COLUMNS))})", by_id)  # noqa: S608
    connection.executemany("INSERT INTO problem VALUES (?, ?, ?, ?)", problems)


def forget(connection: sqlite3.Connection, gone: Iterable[bytes]) -> None:
    """Removes rows by their ids."""
    of = [(id_,) for id_ in gone]
    changed = "INSERT OR IGNORE INTO unranked SELECT run, sequence FROM entry WHERE id = ? AND run IS NOT NULL"
    connection.executemany(changed, of)
    connection.executemany("DELETE FROM entry WHERE id = ?", of)
    connection.executemany("DELETE FROM problem WHERE id = ?", of)


def has_changed(connection: sqlite3.Connection, runs: Mapping[str, int]) -> None:
    """Notes from which sequence on runs have to be ranked: one may be scattered over many transactions, and a kill may come in between."""
    connection.executemany("INSERT OR IGNORE INTO unranked VALUES (?, ?)", runs.items())


def rank(connection: sqlite3.Connection) -> None:
    """Gives the checkpoints of runs the latest timestamp up to them, so that a clock that jumps cannot reorder a run."""
    latest = dict(connection.execute(f"SELECT run, ({_BEFORE}) FROM {_UNRANKED}"))  # noqa: S608 - fixed parts only
    ranks = []
    rows = connection.execute(
        f"SELECT entry.run, entry.rowid, time, rank FROM {_UNRANKED} JOIN entry ON entry.run = each.run AND sequence >= first"  # noqa: S608
        " ORDER BY each.run, sequence, id"
    )
    for run, row, time, known in rows:
        latest[run] = max(time, latest[run] or 0)
        if known != latest[run]:
            ranks.append((latest[run], row))
    connection.executemany("UPDATE entry SET rank = ? WHERE rowid = ?", ranks)
    connection.execute("DELETE FROM unranked")


def disorder(connection: sqlite3.Connection, count: int) -> None:
    """Gives up the orders where many rows are to come: to sort them once, at last, is a quarter of the work."""
    if connection.execute("SELECT COUNT(*) FROM entry").fetchone()[0] < count:
        connection.execute(f"PRAGMA cache_size = {_LARGE_CACHE}")
        for name in _ORDERS:
            connection.execute(f"DROP INDEX IF EXISTS {name}")


def put_in_order(connection: sqlite3.Connection) -> None:
    """Makes the orders that are not there; outside of a transaction, one after the other, so that nobody waits for all of them."""
    for command in _ORDERED:
        connection.execute(command)
    connection.execute(f"PRAGMA cache_size = {_CACHE}")
