"""Ranks of run checkpoints: updates give the same ranks as a full ranking."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from gitckpt import Checkpoint
from gitckpt.model import ids
from gitckpt.store.records import entry, index
from tests.store.conftest import nth
from tests.stores import timestamp

RUNS = ["20270115-080000-one", "20270115-080001-two"]
START = 1_800_000_000_000_000
ONE = Checkpoint(
    id=nth(1),
    label="plan-complete",
    timestamp=timestamp(START),
    git_sha="",
    trigger="manual",
    run=RUNS[0],
    sequence=1,
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    found = index.connect_to_cache(":memory:")
    yield found
    found.close()


def put(connection: sqlite3.Connection, one: Checkpoint) -> None:
    index.delete_rows(connection, [ids.id_to_bytes(one.id)])
    index.insert(connection, [entry.to_row(one, "4" * 40)], [])
    if one.run is not None and one.sequence is not None:
        index.mark_checkpoints_unranked(connection, {one.run: one.sequence})


def ranks(connection: sqlite3.Connection) -> dict[str, int]:
    return {
        ids.id_from_bytes(id_): rank
        for id_, rank in connection.execute("SELECT id, rank FROM entry")
    }


def expected(there: dict[str, Checkpoint]) -> dict[str, int]:
    found = {one.id: one.time for one in there.values()}
    for run in RUNS:
        latest = 0
        for one in sorted(
            (one for one in there.values() if one.run == run),
            key=lambda one: (one.sequence or 0, one.id),
        ):
            latest = found[one.id] = max(latest, one.time)
    return found


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_however_runs_change(connection: sqlite3.Connection, seed: int) -> None:
    chance = Random(seed)
    there: dict[str, Checkpoint] = {}
    for _ in range(300):
        for _ in range(chance.randrange(1, 4)):
            name = nth(chance.randrange(12))
            if name in there and chance.random() < 0.4:
                index.delete_rows(connection, [ids.id_to_bytes(name)])
                del there[name]
                continue
            run = chance.choice([*RUNS, None])
            sequence = None if run is None else chance.randrange(1, 7)  # two may have the same one
            stamp = timestamp(START + chance.randrange(9))
            there[name] = replace(ONE, id=name, run=run, sequence=sequence, timestamp=stamp)
            put(connection, there[name])
        index.update_ranks(connection)
        assert ranks(connection) == expected(there)


def test_only_what_follows_is_ranked_anew(connection: sqlite3.Connection) -> None:
    many = [
        replace(ONE, id=nth(number), sequence=number, timestamp=timestamp(START - number))
        for number in range(1, 6)
    ]
    for one in many:
        put(connection, one)
    index.update_ranks(connection)
    assert set(ranks(connection).values()) == {START - 1}
    connection.execute("UPDATE entry SET rank = 7 WHERE sequence = 2")
    put(connection, replace(ONE, id=nth(6), sequence=6, timestamp=timestamp(START - 6)))
    index.update_ranks(connection)
    assert [rank for _, rank in sorted(ranks(connection).items())] == [
        START - 1,
        7,
        *[START - 1] * 4,
    ]


def test_from_one_run_to_another(connection: sqlite3.Connection) -> None:
    """The ref of a checkpoint may come to point to a document of another run."""
    late = replace(ONE, timestamp=timestamp(START + 50))
    next_one = replace(ONE, id=nth(2), sequence=2)
    for one in (late, next_one):
        put(connection, one)
    index.update_ranks(connection)
    assert ranks(connection)[nth(2)] == START + 50
    put(connection, replace(late, run=RUNS[1]))
    index.update_ranks(connection)
    assert ranks(connection) == {nth(1): START + 50, nth(2): START}
