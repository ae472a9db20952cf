"""The tables of the index: made, filled, and compared with the refs."""

from __future__ import annotations

import re
import sqlite3
import zlib
from binascii import unhexlify
from collections.abc import Collection, Iterable, Mapping
from operator import itemgetter

from gitckpt.store.records import entry, layout
from gitckpt.store.records.entry import Value

Ref = tuple[bytes, bytes]
"""The id of a checkpoint and the oid of its document."""

Row = tuple[Value | None, ...]
"""As `entry.row` makes it."""

ProblemRow = tuple[bytes, bytes, str, bool]
"""Id and oid of what is no valid checkpoint, a sentence on it, and whether that may pass."""

PATIENCE = 5.0
"""How long a locked file is waited for, in seconds."""

_READER = 1
"""To be raised where another row is made of the same document: rows that an older version has made are then made anew."""

_NAMES = ("meta", "entry", "problem", "unranked")
_DROP = "".join(f"DROP TABLE IF EXISTS {name};" for name in _NAMES)
_TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entry ({", ".join(entry.COLUMNS)});
CREATE TABLE problem (id BLOB PRIMARY KEY, oid BLOB NOT NULL, sentence TEXT NOT NULL, may_pass INTEGER NOT NULL) WITHOUT ROWID;
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

_SCHEMA = _TABLES + "".join(f"CREATE INDEX {name} ON entry {columns};" for name, columns in _ORDERS.items())
_SCHEMA_VERSION = zlib.crc32(_SCHEMA.encode() + b"%d" % _READER) >> 1

STORED = "SELECT id, oid FROM entry UNION ALL SELECT id, oid FROM problem"
_GOING = "CREATE TEMP TABLE IF NOT EXISTS going (id BLOB PRIMARY KEY) WITHOUT ROWID"
"""The ids of rows that are about to go. With a statement for all of them, ten thousand take half of the time that one for each takes."""

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
    """Returns a connection to the file of an index, which is made where it is missing, or of another version."""
    # A store may be closed by another thread than the one that used it; SQLite itself does not mind.
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


def noted(connection: sqlite3.Connection) -> dict[str, str]:
    """Returns what is noted of the refs that the index was made from."""
    return dict(connection.execute("SELECT key, value FROM meta"))


def compared(connection: sqlite3.Connection, listing: bytes | bytearray) -> tuple[set[bytes], list[Ref]]:
    """Returns the ids whose rows are of no ref any more, or of another document, and the refs that have no rows, in order.

    Args:
        connection: to the index.
        listing: a line for each ref below `refs/checkpoints/`: oid, full name, and more.
    """
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
    """Adds what no rows are of."""
    by_id = sorted(rows, key=itemgetter(0))
    connection.executemany(f"INSERT INTO entry VALUES ({', '.join('?' * len(entry.COLUMNS))})", by_id)  # noqa: S608
    connection.executemany("INSERT INTO problem VALUES (?, ?, ?, ?)", problems)


def forget(connection: sqlite3.Connection, gone: Collection[bytes]) -> None:
    """Removes rows by their ids."""
    if gone:
        connection.execute(_GOING)
        connection.executemany("INSERT OR IGNORE INTO going VALUES (?)", [(id_,) for id_ in gone])
        for statement in _FORGET:
            connection.execute(statement)


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
