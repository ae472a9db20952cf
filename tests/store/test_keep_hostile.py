"""The refs that keep linked commits, where histories are cut, objects are gone, or others have written below their name."""

from __future__ import annotations

import pytest

from gitckpt.git.refs import Update
from gitckpt.store.records import layout
from gitckpt.store.retention import sweep
from gitckpt.store.store import Store
from tests.conftest import Checkout
from tests.store.test_keep import age, held, kept, linked


def collect(checkout: Checkout) -> None:
    """Lets git delete all that nothing leads to."""
    checkout.git("reflog", "expire", "--expire=now", "--all")
    checkout.git("gc", "--quiet", "--prune=now")


def gone(checkout: Checkout) -> set[str]:
    """Returns the linked commits that are not there."""
    said = checkout.git("cat-file", "--batch-check", data="".join(f"{oid}\n" for oid in linked(checkout)))
    return {line.split()[0] for line in said.splitlines() if line.endswith("missing")}


class TestNamesOfOthers:
    def test_an_oid_of_another_format_drops_nothing(self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        commit = plain.record("one-complete").git_sha
        main_checkout.git("update-ref", f"{layout.KEEP}{'0' * 64}", "HEAD")
        age(main_checkout)
        seen: list[list[Update]] = []
        monkeypatch.setattr(plain.refs, "update", seen.append)
        plain.settle()
        assert seen == []
        monkeypatch.undo()
        assert sweep.sweep(plain.repository, plain.refs) == [f"{layout.KEEP}{'0' * 64}"]
        assert kept(main_checkout) == {commit: commit}

    def test_a_symbolic_ref_goes_and_its_branch_stays(self, plain: Store, main_checkout: Checkout) -> None:
        commit = plain.record("one-complete").git_sha
        main_checkout.git("branch", "work")
        main_checkout.git("symbolic-ref", f"{layout.KEEP}mine", "refs/heads/work")
        age(main_checkout)
        sweep.sweep(plain.repository, plain.refs)
        assert kept(main_checkout) == {commit: commit}
        assert set(main_checkout.refs("refs/heads")) == {"refs/heads/main", "refs/heads/work"}

    def test_a_symbolic_ref_of_a_parent_goes_and_its_branch_stays(self, plain: Store, main_checkout: Checkout) -> None:
        parent = plain.record("one-complete").git_sha
        main_checkout.git("branch", "work")
        main_checkout.git("symbolic-ref", layout.KEEP + parent, "refs/heads/work")
        commit = main_checkout.commit()
        plain.record("two-complete")
        assert kept(main_checkout) == {commit: commit}
        assert set(main_checkout.refs("refs/heads")) == {"refs/heads/main", "refs/heads/work"}

    def test_a_clone_that_fetched_only_checkpoints_keeps_their_commits(self, plain: Store, main_checkout: Checkout) -> None:
        commit = plain.record("one-complete").git_sha
        main_checkout.git("update-ref", "-d", layout.KEEP + commit)
        main_checkout.git("checkout", "--quiet", "--orphan", "other")
        main_checkout.commit()
        main_checkout.git("branch", "-D", "main")
        plain.settle()
        assert kept(main_checkout) == {commit: held(main_checkout, commit)}
        collect(main_checkout)
        assert gone(main_checkout) == set()
