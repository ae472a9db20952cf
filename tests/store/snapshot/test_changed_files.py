"""A checkpoint's number of changed files is computed on demand and cached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Checkpoint, CheckpointInfo, Store
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import MakeStore


def entries(store: Store, *made: Checkpoint) -> list[CheckpointInfo]:
    by_id = {entry.id: entry for entry in store.list()}
    return [by_id[each.id] for each in made]


@pytest.fixture
def traced(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Trace the git commands that run after this."""
    trace = sealed / "trace"
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(trace))
    return trace


def test_each_is_counted_against_its_own_commit(store: Store, checkout: Checkout) -> None:
    checkout.commit("more", **{"a/b": "1\n", "c": "1\n", "d": "1\n"})
    checkout.write("a/b", "2\n")
    (checkout.path / "c").unlink()
    checkout.write("new/one", "1\n")
    three = store.save("three")
    (checkout.path / "d").rename(checkout.path / "e")  # two paths: where it was, and where it is
    five = store.save("five")
    again = store.save("again")
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message", "all of it")
    none = store.save("none")
    unseen = store.record("unseen")
    checkout.write("d", "1\n")
    one = store.save("one")
    expected = {three.id: 3, five.id: 5, again.id: 5, none.id: 0, one.id: 1}
    assert store.changed_files(entries(store, three, five, again, none, unseen, one)) == expected
    assert store.changed_files(entries(store, unseen, five)) == {five.id: 5}
    assert store.changed_files(entries(store, unseen)) == {}
    assert store.changed_files([]) == {}


def test_without_a_commit_every_path_counts(
    make_checkout: Callable[..., Checkout], make_store: MakeStore
) -> None:
    checkout = make_checkout("unborn")
    store = make_store(checkout)
    for name in ("a", "b/c", "b/d"):
        checkout.write(name, f"{name}\n")
    made = store.save("three")
    assert (made.git_sha, store.changed_files(entries(store, made))) == ("", {made.id: 3})


def test_a_commit_without_files_is_as_none(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.git("rm", "--quiet", "README")
    main_checkout.git("commit", "--quiet", "--message", "nothing is left")
    main_checkout.write("new", "1\n")
    one = plain.save("one")
    main_checkout.git("checkout", "--quiet", "--orphan", "unborn")
    other = plain.save("another")
    assert (bool(one.git_sha), other.git_sha) == (True, "")
    assert plain.changed_files(entries(plain, one, other)) == {one.id: 1, other.id: 1}


def test_what_was_counted_is_kept(
    plain: Store, main_checkout: Checkout, make_store: MakeStore, traced: Path
) -> None:
    main_checkout.write("README", "other\n")
    made, other = plain.save("one"), plain.save("another")
    found = entries(plain, made, other)
    assert [entry.changed for entry in found] == [None, None]
    assert plain.changed_files(found) == {made.id: 1, other.id: 1}
    assert traced.read_text("utf-8").count('"diff-tree"') > 0
    traced.unlink()
    again = entries(make_store(main_checkout), made, other)
    assert [entry.changed for entry in again] == [1, 1]
    assert make_store(main_checkout).changed_files(again) == {made.id: 1, other.id: 1}
    assert not traced.exists() or '"diff-tree"' not in traced.read_text("utf-8")


def test_one_whose_files_or_commit_are_gone_is_left_out(
    plain: Store, main_checkout: Checkout, make_store: MakeStore
) -> None:
    made = []
    for name in ("without files", "without a commit", "whole"):
        main_checkout.commit(name)
        main_checkout.write("README", f"{name}\n")
        made.append(plain.save(name))
    found = entries(plain, *made)
    for oid in (main_checkout.git("rev-parse", f"{made[0].tree}:files"), made[1].git_sha):
        (main_checkout.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    assert make_store(main_checkout).changed_files(found) == {made[2].id: 1}


def test_one_that_unfolds_beyond_measure_is_left_out(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_checkout.write("README", "other\n")
    made = plain.save("one")
    main_checkout.write("other", "other\n")
    two = plain.save("two")
    files = main_checkout.git("rev-parse", f"{made.tree}:files")
    asked = []

    def is_beyond(self: object, old: str, new: str) -> bool:
        asked.append((old, new))
        return new == files

    plant(monkeypatch, planted.EXPANDS_TOO_FAR, is_beyond)
    base = main_checkout.git("rev-parse", "HEAD^{tree}")
    assert plain.changed_files(entries(plain, made, two)) == {two.id: 2}
    assert asked == [(base, files), (base, main_checkout.git("rev-parse", f"{two.tree}:files"))]


def test_names_may_be_of_any_bytes_and_shown_as_they_are(
    plain: Store, main_checkout: Checkout
) -> None:
    main_checkout.git("config", "core.quotePath", "false")
    for name in ("a\u2028b", "a\x85:b", "caf\udce9", "new\nline"):
        main_checkout.write(name, "1\n")
    four = plain.save("four")
    main_checkout.write("x", "1\n")
    five = plain.save("five")
    assert plain.changed_files(entries(plain, four, five)) == {four.id: 4, five.id: 5}


def test_without_a_commit_git_is_asked_for_the_files_alone(
    make_checkout: Callable[..., Checkout], make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = make_checkout("unborn")
    store = make_store(checkout)
    checkout.write("a", "1\n")
    made = store.save("one")
    asked: list[tuple[str, str]] = []

    def is_beyond(self: object, old: str, new: str) -> bool:
        asked.append((old, new))
        return False

    plant(monkeypatch, planted.EXPANDS_TOO_FAR, is_beyond)
    assert store.changed_files(entries(store, made)) == {made.id: 1}
    assert asked == [("", checkout.git("rev-parse", f"{made.tree}:files"))]
