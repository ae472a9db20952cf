"""Refs of a checkpoint: the order of writes, note lines, and reading in bulk."""

from __future__ import annotations

from typing import Any

import pytest

from gitckpt import InvalidCheckpoint, Store
from gitckpt.git.objects.encoding import OVERSIZED
from gitckpt.git.refs import RefUpdate
from gitckpt.model import budget
from gitckpt.store.records import ref_names
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.conftest import ONE, RUN, TWO

A, B, C, D, E, F = (digit * 40 for digit in "abcdef")


def said(updates: list[RefUpdate]) -> list[tuple[str, str, str]]:
    return [(update.ref, update.new, update.old) for update in updates]


class TestNewRefs:
    """Each prefix of the updates is a valid store: the head of the run comes last."""

    def test_of_one_with_everything(self) -> None:
        fields = {
            "id": ONE,
            "run": RUN,
            "worktree": {"tree": A, "operation_commit": B},
            "imported": {"original": C},
        }
        kept = RefUpdate(f"refs/keep/ckpt/{D}", D, "")
        assert said(ref_names.plan_refs([(fields, E)], F, kept)) == [
            (f"refs/ckpt/trees/{ONE}", A, ""),
            (f"refs/keep/ckpt-operations/{ONE}", B, ""),
            (f"refs/ckpt/originals/{ONE}", C, ""),
            (kept.ref, D, ""),
            (f"refs/checkpoints/{ONE}", E, ""),
            (f"refs/ckpt/runs/{RUN}", E, F),
        ]

    @pytest.mark.parametrize(
        "fields",
        [{}, {"run": None, "worktree": None, "imported": None}, {"worktree": {}, "imported": {}}],
    )
    def test_of_one_with_nothing(self, fields: dict[str, Any]) -> None:
        assert said(ref_names.plan_refs([({"id": ONE, **fields}, A)], "", None)) == [
            (f"refs/checkpoints/{ONE}", A, "")
        ]

    def test_of_two_in_a_row_the_head_is_at_the_second(self) -> None:
        made = [
            ({"id": ONE, "run": RUN, "worktree": {"tree": A}}, B),
            ({"id": TWO, "run": RUN, "worktree": {"tree": C}}, D),
        ]
        assert said(ref_names.plan_refs(made, "", None)) == [
            (f"refs/ckpt/trees/{ONE}", A, ""),
            (f"refs/ckpt/trees/{TWO}", C, ""),
            (f"refs/checkpoints/{ONE}", B, ""),
            (f"refs/checkpoints/{TWO}", D, ""),
            (f"refs/ckpt/runs/{RUN}", D, ""),
        ]


class TestForeign:
    """Only below `refs/checkpoints/`, a name that is no UUID is another tool's."""

    @pytest.mark.parametrize(
        ("ref", "expected"),
        [
            (f"refs/checkpoints/{ONE}", False),
            ("refs/checkpoints/main", True),
            (f"refs/checkpoints/{ONE.upper()[:-1]}", True),
            (f"refs/checkpoints/x/{ONE}", True),
            ("refs/ckpt/runs/main", False),
            ("refs/heads/main", False),
        ],
    )
    def test_whose_it_is(self, ref: str, expected: bool) -> None:
        assert ref_names.is_foreign(ref) is expected


class TestManyDocuments:
    """Reading in bulk tells blobs, other kinds, large and missing objects apart."""

    @pytest.mark.parametrize("many", [3, 4, 5], ids=["more than many", "just as many", "fewer"])
    def test_are_read_in_order(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, many: int
    ) -> None:
        monkeypatch.setattr(ref_names, "_MANY", many)
        monkeypatch.setattr(budget, "DOCUMENT", budget.SizeLimits(100, 10, 10))
        small, large = (
            main_checkout.git("hash-object", "-w", "--stdin", data="x" * size)
            for size in (100, 101)
        )
        tree = main_checkout.git("rev-parse", "HEAD^{tree}")
        store = checkpoints_of_store(plain)
        found = list(
            ref_names.read_documents(store.repository, store.objects, [small, A, tree, large])
        )
        assert found[:2] == [("blob", b"x" * 100), None]
        assert found[2] is not None
        assert found[2][0] == "tree"
        assert found[3] == ("blob", b"x" * 101)  # asked of the adapter, which knows its own limit

    @pytest.mark.long
    def test_and_one_that_is_too_large_by_any_measure_is_not_read(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ref_names, "_MANY", 2)
        small = main_checkout.git("hash-object", "-w", "--stdin", data="small")
        large = main_checkout.git(
            "hash-object", "-w", "--stdin", data="x" * (budget.DOCUMENT.size + 1)
        )
        store = checkpoints_of_store(plain)
        found = list(
            ref_names.read_documents(store.repository, store.objects, [large, small, large])
        )
        assert found == [(OVERSIZED, b""), ("blob", b"small"), (OVERSIZED, b"")]


class TestOneDocument:
    """A ref without a document is named, with the command that helps."""

    def test_its_bytes(self) -> None:
        assert ref_names.require_document(("blob", b"text"), "refs/checkpoints/x", A) == b"text"

    @pytest.mark.parametrize(
        ("found", "how", "problem", "hint"),
        [
            (None, {}, f"the object {A} is missing", "find the cause: git ckpt verify"),
            (
                None,
                {"lack": "damaged"},
                f"the object {A} is damaged",
                "find the cause: git ckpt verify",
            ),
            ((OVERSIZED, b""), {}, "points to an object larger than any valid document", None),
            (("tree", b""), {}, "points to a tree, not to a blob", None),
        ],
    )
    def test_or_what_is_wrong(
        self, found: tuple[str, bytes] | None, how: dict[str, Any], problem: str, hint: str | None
    ) -> None:
        with pytest.raises(InvalidCheckpoint) as caught:
            ref_names.require_document(found, "refs/checkpoints/x", A, **how)
        error = caught.value
        assert (error.ref, error.field, error.problem, error.hint) == (
            "refs/checkpoints/x",
            "",
            problem,
            hint,
        )
