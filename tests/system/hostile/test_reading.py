"""Readers of a hostile repository are bounded, read once, and need no index."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store
from gitckpt.git.files import regular
from gitckpt.git.notes import GitNotes
from gitckpt.git.objects.encoding import OVERSIZED
from gitckpt.git.objects.plumbing import open_objects
from gitckpt.git.repository import open_repository
from gitckpt.model import codec
from gitckpt.store.records import index
from tests.conftest import Checkout
from tests.system.hostile.attacks import BAD, Victim
from tests.system.hostile.bombs import REF, bad, notes_of_256_to_the_19


@pytest.mark.sampled(2)
@pytest.mark.parametrize("adapter", ["libgit2", "plumbing"])
@pytest.mark.parametrize("count", [1, 600])
def test_an_object_larger_than_is_wanted_is_not_read(
    main_checkout: Checkout, adapter: str, count: int
) -> None:
    small, large = (
        main_checkout.git("hash-object", "-w", "--stdin", data="x" * size) for size in (100, 101)
    )
    objects = open_objects(open_repository(str(main_checkout.path)), adapter)
    found = list(objects.read([small, large, "1" * 40, small] * count, 100))
    assert found == [("blob", b"x" * 100), (OVERSIZED, b""), None, ("blob", b"x" * 100)] * count
    assert next(objects.read([large], None)) == ("blob", b"x" * 101)
    objects.close()


def test_what_cannot_be_read_is_read_once(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_checkout.git(
        "update-ref", REF, main_checkout.git("hash-object", "-w", "--stdin", data="x = [")
    )
    with Store.open(main_checkout.path) as store:
        assert [problem.ref for problem in store.problems()] == [REF]
        store.record("a-complete", {})
        monkeypatch.setattr(index, "decode_summary", _of_good)
        assert [problem.ref for problem in store.problems()] == [REF]
        assert len(store.list()) == 1
        main_checkout.git("update-ref", "-d", REF)
        assert not store.problems()


def _of_good(data: bytes, ref: str, really: Callable[..., object] = codec.decode_summary) -> object:
    assert ref != REF, "it is known by now"
    return really(data, ref)


def test_what_nobody_foresaw_is_a_problem_of_one_ref(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(
        data: bytes, ref: str, really: Callable[..., object] = codec.decode_summary
    ) -> object:
        if ref == REF:
            raise OverflowError("too large")
        return really(data, ref)

    monkeypatch.setattr(index, "decode_summary", failing)
    main_checkout.git(
        "update-ref", REF, main_checkout.git("hash-object", "-w", "--stdin", data=bad())
    )
    with Store.open(main_checkout.path) as store:
        good = store.record("a-complete", {})
        assert [entry.id for entry in store.list()] == [good.id]
        assert [problem.sentence for problem in store.problems()] == [
            f"{REF}: cannot be read: OverflowError: too large"
        ]


@pytest.mark.parametrize("text", [BAD, BAD[:8]])
def test_a_checkpoint_is_removed_where_there_can_be_no_index(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    def failing(*_: object) -> None:
        raise OverflowError("too large")

    main_checkout.git(
        "update-ref", REF, main_checkout.git("hash-object", "-w", "--stdin", data=bad())
    )
    with Store.open(main_checkout.path) as store:
        good = store.record("a-complete", {})
        monkeypatch.setattr(index.Index, "_update_from_listing", failing)
        found = store.find(text)
        assert store.remove([found]) == 1
    assert list(main_checkout.refs("refs/checkpoints")) == ["refs/checkpoints/" + good.id]
    assert main_checkout.refs("refs/keep/ckpt/".rstrip("/"))


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    assert (
        regular.read_content(str(tmp_path / "link"), 5)
        == regular.read_content(str(tmp_path / "file"))
        == b"12345"
    )
    for name, problem in (
        ("zero", "not a regular file"),
        ("pipe", "not a regular file"),
        (".", "Is a directory"),
        ("none", "No such file"),
    ):
        with pytest.raises(OSError, match=problem):
            regular.read_content(str(tmp_path / name))
    with pytest.raises(OSError, match="larger than 4 bytes"):
        regular.read_content(str(tmp_path / "file"), 4)


def test_trees_of_notes_that_stand_for_too_many_are_left(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gitckpt.git.notes.MAX_ENTRIES", 2000)
    notes_of_256_to_the_19(Victim(main_checkout, "", "", "", ""))
    repository = open_repository(str(main_checkout.path))
    objects = open_objects(repository, "plumbing")
    assert list(GitNotes(repository, objects, "refs/notes/checkpoints").read_all_notes()) == []
    objects.close()
