"""The derived index: the header of every checkpoint in a small SQLite file.

A question first looks by `stat` whether refs can have changed since the last one; if so, git lists them, and the new documents are read
(`rows.sync`). Deleting the file changes nothing but the time that the next question takes.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence

from gitckpt.git.files import premises
from gitckpt.git.objects.encoding import oid_size
from gitckpt.git.refs import Refs
from gitckpt.git.repository import Repository
from gitckpt.model import ids
from gitckpt.model.arguments import require
from gitckpt.model.errors import RepositoryError
from gitckpt.store.records import entry, layout
from gitckpt.store.records.entry import Entry, Problem, Query, Value
from gitckpt.store.records.rows import tables
from gitckpt.store.records.rows.sync import Sync

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from gitckpt.git.objects.port import Objects

    _T = TypeVar("_T")

FILE = "index.sqlite"

_NEWEST = "ORDER BY rank DESC, sequence DESC, id DESC"

_OPENING = threading.Lock()
"""Held from the making of the file until SQLite has it: see `premises.ensure`."""


class Index:
    """The index of a repository.

    Args:
        progress: is given a line to show while many documents are read, and at last "".
    """

    def __init__(self, repository: Repository, objects: Objects, refs: Refs, progress: Callable[[str], object] = lambda _: None) -> None:
        self._repository = repository
        self._path = os.path.join(repository.private_dir, FILE)
        self._connection: sqlite3.Connection | None = None
        self._sync = Sync(repository, objects, refs, progress)
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

    def oids(self) -> dict[str, str]:
        """Return what each ref of a checkpoint points to, by id, valid or not."""
        return {ids.from_bytes(id_): oid.hex() for id_, oid in self._ask(tables.STORED)}

    def runs(self) -> list[str]:
        """Returns the ids of all runs that checkpoints belong to."""
        return [row[0] for row in self._ask(entry.RUN_IDS)]

    def commits(self) -> set[str] | None:
        """Returns the commits that checkpoints are linked to, less what is no name of one in this repository.

        None while there are refs of ours whose documents cannot be read.
        """
        question = "SELECT NULL FROM problem UNION ALL SELECT git_sha FROM entry WHERE length(git_sha) = ?"
        size = oid_size(self._repository.object_format)
        found = self._ask(question, [size], take=lambda rows: {oid and oid.hex() for (oid,) in rows})
        return None if None in found else found

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
        with connection:
            self._sync.bring_up(connection)
            return take(connection.execute(question, values))

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
