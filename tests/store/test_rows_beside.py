"""What is kept beside the rows of the index: which lines of history are kept, and which trees of notes are plain, while rows say so."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator

import pytest

from gitckpt.model import ids
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.store.records import entry
from gitckpt.store.records.rows import tables
from tests.store.conftest import nth

A, B, C = (digits * 20 for digits in ("ab", "cd", "ef"))


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    found = tables.connect(":memory:")
    yield found
    found.close()


def put(connection: sqlite3.Connection, number: int, commit: str) -> None:
    one = Checkpoint(id=nth(number), label="a-complete", timestamp="2027-01-15T08:00:00.000000Z", git_sha=commit, trigger="manual")
    tables.add(connection, [entry.row(one, "4" * 40)], [])


def forget(connection: sqlite3.Connection, number: int) -> None:
    tables.forget(connection, [ids.to_bytes(nth(number))])


class TestLines:
    """With them goes how far the rows went, so that it is known which commits have come since."""

    def test_none_are_known_at_first(self, connection: sqlite3.Connection) -> None:
        assert (tables.settled(connection), tables.mark(connection)) == ((None, set(), (0, 0)), (0, 0))
        put(connection, 1, A)
        assert (tables.settled(connection), tables.mark(connection)) == ((None, set(), (1, 0)), (1, 0))

    def test_what_has_come_since(self, connection: sqlite3.Connection) -> None:
        put(connection, 1, A)
        tables.keep_settled(connection, [A], tables.mark(connection))
        assert tables.settled(connection) == ({A}, set(), (1, 0))
        for number, commit in ((2, B), (3, C), (4, C)):
            put(connection, number, commit)
        assert tables.settled(connection) == ({A}, {B, C}, (4, 0))
        tables.keep_settled(connection, {C, B}, (3, 0))
        assert tables.settled(connection) == ({B, C}, {C}, (4, 0))

    def test_not_where_rows_have_gone_meanwhile(self, connection: sqlite3.Connection) -> None:
        put(connection, 1, A)
        put(connection, 2, B)
        mark = tables.mark(connection)
        tables.keep_settled(connection, [A], mark)
        forget(connection, 9)
        assert tables.mark(connection) == mark  # there was none
        forget(connection, 1)
        assert tables.mark(connection) == (2, 1)
        tables.keep_settled(connection, [B], mark)
        assert tables.settled(connection) == ({A}, set(), (2, 1))

    def test_a_row_that_gets_the_number_of_one_that_went_has_come_since(self, connection: sqlite3.Connection) -> None:
        put(connection, 1, A)
        put(connection, 2, B)
        tables.keep_settled(connection, [B], tables.mark(connection))
        forget(connection, 2)
        put(connection, 3, C)
        assert tables.settled(connection) == ({B}, {C}, (2, 1))
        for number in (1, 3):
            forget(connection, number)
        put(connection, 4, A)
        assert tables.settled(connection) == ({B}, {A}, (1, 3))


class TestPlainTrees:
    def test_are_kept_where_their_depth_is_one_that_is_looked_at(self, connection: sqlite3.Connection) -> None:
        assert tables.plain(connection) == ({}, 0)
        trees = {A[:digits]: f"tree {digits}" for digits in range(9)}
        tables.keep_plain(connection, trees, 0)
        kept = {A[:digits]: f"tree {digits}" for digits in (0, 2, 4, 6)}
        assert tables.plain(connection) == (kept, 0)
        tables.keep_plain(connection, {"": "other", "ef": "new"}, 0)
        assert tables.plain(connection) == (kept | {"": "other", "ef": "new"}, 0)

    @pytest.mark.parametrize("many", [1, 1000], ids=["of many", "of few"])
    def test_are_forgotten_where_a_row_goes_by_which_they_were_judged(
        self, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, many: int
    ) -> None:
        monkeypatch.setattr(tables, "_MANY", many)
        put(connection, 1, A)
        put(connection, 2, B)
        beside = {"cd": "b", "cdcd": "bb", "abcd": "beside a"}
        tables.keep_plain(connection, {A[:digits]: "a" for digits in (0, 2, 4, 6)} | beside, 0)
        forget(connection, 1)
        assert tables.plain(connection) == (beside, 1)
        tables.keep_plain(connection, {"": "judged before"}, 0)
        assert tables.plain(connection) == (beside, 1)
        tables.keep_plain(connection, {"": "judged since"}, 1)
        assert tables.plain(connection) == (beside | {"": "judged since"}, 1)

    def test_to_forget_one_row_takes_no_longer_with_many_of_them(self, connection: sqlite3.Connection) -> None:
        """Each checkpoint that comes has its id forgotten first."""
        steps = []
        for number, trees in ((0, 1), (1, 5000)):
            put(connection, number, A)
            tables.keep_plain(connection, {f"{tree:06x}": "plain" for tree in range(trees)}, number)
            taken: list[int] = []
            connection.set_progress_handler(functools.partial(taken.append, 1), 1)  # after each of SQLite's steps
            forget(connection, number)
            connection.set_progress_handler(None, 1)
            steps.append(len(taken))
        assert len(tables.plain(connection)[0]) == 5000
        assert steps[1] < 2 * steps[0]
