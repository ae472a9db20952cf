"""The derived index: the header of every checkpoint in a small SQLite file.

A question first looks whether refs can have changed since the last one (`validity`), which takes no process, whatever their number. Where
only files of refs have, those are read; otherwise git lists all. Only documents are read that were not seen yet, in portions: a kill leaves
what was done, and two processes at it share the work. Deleting the file changes nothing but the time that the next question takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from gitckpt.git.files import premises, validity
from gitckpt.git.files.validity import State
from gitckpt.git.refs import Refs, plain
from gitckpt.git.repository import Repository
from gitckpt.model import ids
from gitckpt.model.arguments import require
from gitckpt.model.errors import InvalidCheckpoint, RepositoryError
from gitckpt.model.readers.codec import decode_summary
from gitckpt.model.readers.fence import fenced
from gitckpt.store.records import entry, layout
from gitckpt.store.records.entry import Entry, Problem, Query, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gitckpt.git.objects.port import Objects
    from gitckpt.model.checkpoint import Checkpoint

_Ref = tuple[bytes, bytes]
"""The id of a checkpoint and the oid of its document."""

FILE = "index.sqlite"

_READER = 1
"""To be raised where another row is made of the same document: rows that an older version has made are then made anew."""

_DROP = "".join(f"DROP TABLE IF EXISTS {table};" for table in ("meta", "entry", "problem", "loose", "unranked"))
_SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entry ({", ".join(entry.COLUMNS)});
CREATE TABLE problem (id BLOB PRIMARY KEY, oid BLOB NOT NULL, sentence TEXT NOT NULL, may_pass INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE loose (id BLOB PRIMARY KEY, stamp TEXT) WITHOUT ROWID;
CREATE TABLE unranked (run TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE UNIQUE INDEX entry_by_id ON entry (id);
CREATE INDEX entry_by_rank ON entry (rank, sequence, id);
CREATE INDEX entry_by_run ON entry (run, sequence) WHERE run IS NOT NULL;
CREATE INDEX entry_by_commit ON entry (git_sha);
CREATE INDEX safety_by_rank ON entry (rank, sequence, id) WHERE run IS NULL AND trigger = 'safety';
CREATE INDEX agents_by_rank ON entry (rank, sequence, id) WHERE run IS NULL AND agent IS NOT NULL;
CREATE INDEX progress_by_rank ON entry (rank, sequence, id) WHERE run IS NOT NULL AND status = 'progress';
"""
_NEWEST = "ORDER BY rank DESC, sequence DESC, id DESC"
_STORED = "SELECT id, oid FROM entry UNION ALL SELECT id, oid FROM problem"

_AT_ONCE = 2000
_PORTION = 20_000
"""So many documents are read and kept at once; others can ask in between."""

_FEW = 20  # so many refs whose files are gone are looked up one by one; of more, git is asked for all

_PATIENCE = 5.0  # how long a locked file is waited for, in seconds

_SCHEMA_VERSION = zlib.crc32(_SCHEMA.encode() + b"%d" % _READER) >> 1
_DIRECTORY = layout.CHECKPOINTS.rstrip("/")


class Index:
    """The index of a repository.

    Args:
        repository: where.
        objects: its objects.
        refs: its refs.
        progress: is given a line to show while many documents are read, and at last "".
    """

    def __init__(self, repository: Repository, objects: Objects, refs: Refs, progress: Callable[[str], object] = lambda _: None) -> None:
        self._repository = repository
        self._objects = objects
        self._refs = refs
        self._progress = progress
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

    def remember_changed(self, counts: Iterable[tuple[str, int]]) -> None:
        """Keeps the number of changed paths of some checkpoints, each given by id."""
        with self._turn, contextlib.suppress(sqlite3.DatabaseError), self._opened() as connection:  # read-only: counted anew each time
            connection.executemany("UPDATE entry SET changed = ? WHERE id = ?", [(count, ids.to_bytes(id_)) for id_, count in counts])

    def close(self) -> None:
        """Closes the file."""
        with self._turn:
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
                self._connection = _connect(":memory:")
                return self._answer(self._connection, question, values, take)

    def _answer(
        self, connection: sqlite3.Connection, question: str, values: Sequence[Value], take: Callable[[Iterable[tuple[Any, ...]]], Any]
    ) -> Any:
        """Brings the index up to the refs, and answers in the same transaction: another process may have seen older refs."""
        state = validity.look(self._repository, _DIRECTORY)
        with connection:
            connection.execute("BEGIN")
            if not _is_of(connection, state):
                connection.rollback()
                if not self._catch_up(connection, state):
                    self._list(connection, state)
            return take(connection.execute(question, values))

    def _catch_up(self, connection: sqlite3.Connection, state: State) -> bool:
        """Reads the refs that have come as files of their own, or changed, where no others can have. Leaves the transaction open.

        Returns:
            Whether that was all; otherwise nothing was changed, and no transaction is open.
        """
        connection.execute("BEGIN IMMEDIATE")
        passing = connection.execute("SELECT 1 FROM problem WHERE may_pass").fetchone()
        if (
            state.packed is not None
            and _noted(connection).get("packed") == state.packed
            and not self._repository.has_reftable
            and not passing
        ):
            changes = self._changes(connection)
            if changes is not None:
                files, gone, new = changes
                runs = _forget(connection, gone) | self._add(connection, new)
                _rank(connection, runs)
                connection.executemany("DELETE FROM loose WHERE id = ?", [(id_,) for id_ in gone])
                connection.executemany("INSERT OR REPLACE INTO loose VALUES (?, ?)", files)
                self._note(connection, state, "")
                return True
        connection.rollback()
        return False

    def _changes(self, connection: sqlite3.Connection) -> tuple[list[tuple[bytes, str | None]], list[bytes], list[_Ref]] | None:
        """Returns what the files of refs look like that are not as they were, which ids are gone, and what the others point to now.

        None where git has to be asked for all.
        """
        files = self._files()
        before = dict(connection.execute("SELECT id, stamp FROM loose"))
        vanished = before.keys() - files.keys()
        if len(vanished) > _FEW:
            return None
        changed = [(id_, stamp) for id_, stamp in files.items() if stamp is None or before.get(id_) != stamp]
        gone, now = [], {}
        for id_ in vanished:  # deleted, or packed between two of our looks
            oid = self._refs.read(layout.CHECKPOINTS + ids.from_bytes(id_))
            if oid is not None:
                return None
            gone.append(id_)
        for id_, _ in changed:
            oid = plain(self._repository, layout.CHECKPOINTS + ids.from_bytes(id_))
            if oid is None:
                return None
            now[id_] = bytes.fromhex(oid)
        known = set()
        for id_ in now:
            known |= set(connection.execute(f"SELECT * FROM ({_STORED}) WHERE id = ?", (id_,)))  # noqa: S608 - fixed parts only
        return changed, gone, sorted(now.items() - known)

    def _list(self, connection: sqlite3.Connection, state: State) -> None:
        """Compares with all refs, and reads what is new. Leaves the transaction open.

        Args:
            connection: to the index.
            state: what refs looked like before: what changes while git lists them shows the next time.
        """
        files = {} if self._repository.has_reftable else self._files()
        listing = self._refs.list(_DIRECTORY, fields="%(objectname) %(refname) %(symref)")
        if listing.count(b" \n") < listing.count(b"\n"):  # what a symbolic ref leads to changes elsewhere
            state = State(None, None)
        digest = hashlib.blake2b(listing).hexdigest()
        seen = -1
        done = 0
        new: list[_Ref] = []
        while True:
            connection.execute("BEGIN IMMEDIATE")
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version != seen:  # another process has written: what is new is judged again
                seen = version
                if _noted(connection).get("digest") == digest:
                    break
                connection.execute("DELETE FROM problem WHERE may_pass")  # what is bad for good is as slow to read as it was before
                gone, new = _compared(connection, listing)
                _unranked(connection, _forget(connection, gone))
                done = 0
            some = new[done : done + _PORTION]
            _unranked(connection, self._add(connection, some))
            done += len(some)
            if done == len(new):
                _rank(connection, [row[0] for row in connection.execute("SELECT run FROM unranked")])
                connection.execute("DELETE FROM unranked")
                break
            connection.execute("DELETE FROM meta")
            connection.commit()
            self._progress(f"… reading checkpoints: {done:,} of {len(new):,}")
        if len(new) > _PORTION:
            self._progress("")
        connection.execute("DELETE FROM loose")
        connection.executemany("INSERT INTO loose VALUES (?, ?)", files.items())
        self._note(connection, state, digest)

    def _files(self) -> dict[bytes, str | None]:
        found = validity.files(self._repository, _DIRECTORY)
        return {ids.to_bytes(name): stamp for name, stamp in found.items() if ids.is_id(name)}

    def _note(self, connection: sqlite3.Connection, state: State, digest: str) -> None:
        """Notes which refs the index is made from; nothing where objects of theirs may come back: then the next query looks again."""
        connection.execute("DELETE FROM meta")
        if connection.execute("SELECT 1 FROM problem WHERE may_pass").fetchone() is None:
            found = {"packed": state.packed, "loose": state.loose, "digest": digest}
            connection.executemany("INSERT INTO meta VALUES (?, ?)", [(key, value) for key, value in found.items() if value is not None])

    def _add(self, connection: sqlite3.Connection, refs: Sequence[_Ref]) -> set[str]:
        """Adds what refs point to, and returns the runs that it belongs to."""
        runs: set[str] = set()
        documents = layout.documents(self._repository, self._objects, [oid.hex() for _, oid in refs])
        for start in range(0, len(refs), _AT_ONCE):
            some, rows, problems = refs[start : start + _AT_ONCE], [], []
            for (id_, oid), found in zip(some, documents, strict=False):
                ref = layout.CHECKPOINTS + ids.from_bytes(id_)
                try:
                    header = fenced(ref, partial(_header, oid.hex(), ref, found))
                except InvalidCheckpoint as error:
                    problems.append((id_, oid, error.message, found is None))
                else:
                    rows.append(entry.row(header, oid.hex()))
                    runs |= {header.run} if header.run else set()
            of = [(id_,) for id_, _ in some]
            connection.executemany("DELETE FROM problem WHERE id = ?", of)
            connection.executemany("DELETE FROM entry WHERE id = ?", of)
            connection.executemany(f"INSERT INTO entry VALUES ({', '.join('?' * len(entry.COLUMNS))})", rows)  # noqa: S608
            connection.executemany("INSERT INTO problem VALUES (?, ?, ?, ?)", problems)
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
        connection.create_function(entry.ID_BYTES, 1, entry.id_bytes, deterministic=True)
        if connection.execute("PRAGMA user_version").fetchone()[0] != _SCHEMA_VERSION:  # new, or made by another gitckpt
            connection.executescript(f"BEGIN IMMEDIATE; {_DROP} {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION:d}; COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def _noted(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT key, value FROM meta"))


def _is_of(connection: sqlite3.Connection, state: State) -> bool:
    """Tells whether the index was made from refs that looked like this."""
    noted, seen = _noted(connection), (state.packed, state.loose)
    return None not in seen and (noted.get("packed"), noted.get("loose")) == seen


def _compared(connection: sqlite3.Connection, listing: bytes) -> tuple[set[bytes], list[_Ref]]:
    """Returns the ids whose rows are of no ref any more, and the refs that have no rows, in order."""
    stored = dict(connection.execute(_STORED))
    new = []
    start = len(_DIRECTORY) + 1
    for line in listing.splitlines():
        oid, ref, _ = line.split(b" ")
        name = ref[start:].decode("utf-8", "backslashreplace")
        if ids.is_id(name):
            id_, points_to = ids.to_bytes(name), bytes.fromhex(oid.decode("ascii"))
            if stored.pop(id_, None) != points_to:
                new.append((id_, points_to))
    return set(stored), new


def _forget(connection: sqlite3.Connection, gone: Iterable[bytes]) -> set[str]:
    """Removes rows by their ids, and returns the runs that they belonged to."""
    of = [(id_,) for id_ in gone]
    runs = set()
    for one in of:
        runs |= set(connection.execute("SELECT run FROM entry WHERE id = ? AND run IS NOT NULL", one))
    connection.executemany("DELETE FROM entry WHERE id = ?", of)
    connection.executemany("DELETE FROM problem WHERE id = ?", of)
    return {run for (run,) in runs}


def _unranked(connection: sqlite3.Connection, runs: Iterable[str]) -> None:
    """Notes runs that have changed, to be ranked at last: a run may be scattered over all portions, and a kill may come between them."""
    connection.executemany("INSERT OR IGNORE INTO unranked VALUES (?)", [(run,) for run in runs])


def _rank(connection: sqlite3.Connection, runs: Iterable[str]) -> None:
    """Gives the checkpoints of runs the latest timestamp up to them, so that a clock that jumps cannot reorder a run."""
    for run in runs:
        latest = 0
        ranks = []
        for row, time, rank in connection.execute("SELECT rowid, time, rank FROM entry WHERE run = ? ORDER BY sequence", (run,)):
            latest = max(latest, time)
            if rank != latest:
                ranks.append((latest, row))
        connection.executemany("UPDATE entry SET rank = ? WHERE rowid = ?", ranks)


def _header(oid: str, ref: str, found: tuple[str, bytes] | None) -> Checkpoint:
    return decode_summary(layout.document(found, ref, oid), ref)
