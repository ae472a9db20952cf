"""Many documents are read in portions, each of which is kept: with a line to show for each, and with runs that are scattered over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitckpt.store.records import index as module
from gitckpt.store.records.entry import Query
from gitckpt.store.records.index import Index
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout
from tests.store.conftest import nth


@pytest.fixture
def five(plain: Store, main_checkout: Checkout) -> Store:
    """A store with five checkpoints of which no index knows; a run begins with the second and ends with the last, by a clock years back."""
    plain.record("beside", {})
    run = str(plain.record("run-started", {}, start="Add login!").run)
    for _ in range(2):
        plain.record("beside", {})
    inside(plain).clock = lambda: 1_700_000_000_000_000
    plain.record("run-complete", {}, run=run)
    plain.close()
    for path in Path(main_checkout.path, ".git/ckpt").glob("index.sqlite*"):
        path.unlink()
    return plain


def opened(store: Store, told: list[str]) -> Index:
    inner = inside(store)
    return Index(inner.repository, inner.objects, inner.refs, told.append)


@pytest.mark.parametrize(
    ("portion", "lines"),
    [
        (1, [*(f"… reading checkpoints: {done} of 5" for done in range(1, 5)), ""]),
        (2, ["… reading checkpoints: 2 of 5", "… reading checkpoints: 4 of 5", ""]),
        (4, ["… reading checkpoints: 4 of 5", ""]),
        (5, []),
        (6, []),
    ],
)
def test_each_is_told_and_all_are_there(five: Store, monkeypatch: pytest.MonkeyPatch, portion: int, lines: list[str]) -> None:
    monkeypatch.setattr(module, "_PORTION", portion)
    told: list[str] = []
    index = opened(five, told)
    assert sorted(entry.id for entry in index.select()) == [nth(number) for number in range(1, 6)]
    assert [entry.sequence for entry in index.select(Query(runs=["20270115-080002-add-login"]))] == [2, 1]
    assert [entry.id for entry in index.select()][:4] == [nth(4), nth(3), nth(5), nth(2)]  # a run goes by its latest time up to there
    assert told == lines
    index.close()
    again = opened(five, told)
    assert (len(again.select()), told) == (5, lines)
    again.close()


def test_where_no_file_can_be_kept_all_is_read_for_whoever_asks(five: Store, main_checkout: Checkout) -> None:
    Path(main_checkout.path, ".git/ckpt/index.sqlite").mkdir()
    index = opened(five, [])
    assert len(index.select()) == 5
    index.close()
    assert Path(main_checkout.path, ".git/ckpt/index.sqlite").is_dir()
