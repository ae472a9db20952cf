"""The tables of the index: made, filled, and compared with the refs."""

from __future__ import annotations

import json
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

Revision = tuple[int, int]
"""The last row, and how often rows were removed: the next one may get the same number as one that was."""

PATIENCE = 5.0
"""How long a locked file is waited for, in seconds."""

_MANY = 1000
"""For so many rows that go it is worth while to look how deep the trees are of which something is kept."""

_DEPTHS = [0, 2, 4, 6]
"""How many digits of a commit lead to the trees of notes of which is kept that they are plain."""

_READER = 1
"""To be raised where another row is made of the same document: rows that an older version has made are then made anew."""

_NAMES = ("meta", "entry", "problem", "unranked", "plain", "line", "upkeep")
_DROP = "".join(f"DROP TABLE IF EXISTS {name};" for name in _NAMES)
_TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entry ({", ".join(entry.COLUMNS)});
CREATE TABLE problem (id BLOB PRIMARY KEY, oid BLOB NOT NULL, sentence TEXT NOT NULL, may_pass INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE unranked (run TEXT, sequence INTEGER, PRIMARY KEY (run, sequence)) WITHOUT ROWID;
CREATE TABLE plain (path TEXT PRIMARY KEY, tree TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE line (oid TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE upkeep (removals INTEGER NOT NULL, settled INTEGER);
INSERT INTO upkeep VALUES (0, NULL);
CREATE UNIQUE INDEX entry_by_id ON entry (id);
"""  # noqa: S608 - fixed parts only
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

_NO_LONGER_PLAIN = """
DELETE FROM plain WHERE path IN
    (SELECT lower(hex(substr(git_sha, 1, digits.value / 2))) FROM entry, json_each(?) AS digits WHERE entry.id IN going)
"""
_FORGET = (
    "UPDATE upkeep SET removals = removals + (SELECT COUNT(*) FROM entry WHERE id IN going)",
    "INSERT OR IGNORE INTO unranked SELECT run, sequence FROM entry WHERE id IN going AND run IS NOT NULL",
    "DELETE FROM entry WHERE id IN going",
    "UPDATE upkeep SET settled = MIN(settled, (SELECT IFNULL(MAX(rowid), 0) FROM entry))",
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
        depths = _DEPTHS
        if len(gone) >= _MANY:
            depths = [digits for (digits,) in connection.execute("SELECT DISTINCT length(path) FROM plain")]
        connection.execute(_NO_LONGER_PLAIN, [json.dumps(depths)])
        for statement in _FORGET:
            connection.execute(statement)


def plain(connection: sqlite3.Connection) -> tuple[dict[str, str], int]:
    """Returns the trees of notes that are plain, by path, and a number that is another one once rows were removed."""
    (removals,) = connection.execute("SELECT removals FROM upkeep").fetchone()
    return dict(connection.execute("SELECT path, tree FROM plain")), removals


def keep_plain(connection: sqlite3.Connection, trees: Mapping[str, str], removals: int) -> None:
    """Keeps which trees of notes are plain, where no rows were removed since `plain` returned the number."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("SELECT removals FROM upkeep").fetchone() == (removals,):
            some = ((path, tree) for path, tree in trees.items() if len(path) in _DEPTHS)
            connection.executemany("INSERT OR REPLACE INTO plain VALUES (?, ?)", some)


def mark(connection: sqlite3.Connection) -> Revision:
    """Returns what tells how far the rows go."""
    found: Revision = connection.execute("SELECT (SELECT IFNULL(MAX(rowid), 0) FROM entry), removals FROM upkeep").fetchone()
    return found


def settled(connection: sqlite3.Connection) -> tuple[set[str] | None, set[str], Revision]:
    """Returns the lines of history that were kept when that was settled last, None where it was never; the commits of the rows that have
    come since; and what tells how far the rows go.
    """
    with connection:
        connection.execute("BEGIN")
        mark, removals = connection.execute("SELECT settled, removals FROM upkeep").fetchone()
        lines = None if mark is None else {oid for (oid,) in connection.execute("SELECT oid FROM line")}
        (last,) = connection.execute("SELECT IFNULL(MAX(rowid), 0) FROM entry").fetchone()
        since = connection.execute("SELECT git_sha FROM entry WHERE rowid > ?", (last if mark is None else mark,))
        return lines, {oid.hex() for (oid,) in since}, (last, removals)


def count(connection: sqlite3.Connection) -> int:
    """Returns how many rows of valid documents there are."""
    (found,) = connection.execute("SELECT COUNT(*) FROM entry").fetchone()
    return int(found)


def keep_settled(connection: sqlite3.Connection, lines: Iterable[str], mark: Revision) -> None:
    """Keeps which lines of history are kept, for the rows as far as `settled` has said; not where some of these may be others by now."""
    last, removals = mark
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("SELECT removals FROM upkeep").fetchone() == (removals,):
            connection.execute("DELETE FROM line")
            connection.executemany("INSERT INTO line VALUES (?)", [(oid,) for oid in lines])
            connection.execute("UPDATE upkeep SET settled = ?", (last,))


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
