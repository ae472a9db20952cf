"""The links of commits to their checkpoints: when they are written, and that they follow a rewritten commit."""

from __future__ import annotations

import pytest

from gitckpt.store.store import Store
from tests.conftest import Checkout, Clock
from tests.store.conftest import ONE, THREE, TWO, MakeStore, notes, nth, written_notes


class TestLinks:
    def test_a_burst_is_written_by_close(self, main_checkout: Checkout, make_store: MakeStore) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        store = make_store(main_checkout)
        for _ in range(5):
            store.record("a-complete", {})
        assert written_notes(main_checkout) == {head: [ONE]}
        store.close()
        assert written_notes(main_checkout) == {head: [nth(n) for n in range(1, 6)]}

    def test_links_that_wait_are_found(self, plain: Store, main_checkout: Checkout) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        for _ in range(3):
            plain.record("a-complete", {})
        assert [entry.id for entry in plain.links(head)] == [THREE, TWO, ONE]
        assert written_notes(main_checkout) == {head: [ONE]}
        assert plain.write_notes()
        assert written_notes(main_checkout) == {head: [ONE, TWO, THREE]}
        assert not plain.write_notes()

    def test_the_next_one_that_is_due_takes_those_put_off_along(self, plain: Store, main_checkout: Checkout, clock: Clock) -> None:
        first = main_checkout.git("rev-parse", "HEAD")
        plain.record("a-complete", {})
        plain.record("a-complete", {})
        second = main_checkout.commit("second")
        clock.instant += 60_000_000
        plain.record("a-complete", {})
        assert written_notes(main_checkout) == {first: [ONE, TWO], second: [THREE]}

    @pytest.mark.parametrize("rewrite", ["amend", "rebase"])
    def test_a_rewrite_carries_them_over(self, store: Store, checkout: Checkout, rewrite: str) -> None:
        checkout.git("config", "notes.rewriteRef", "refs/notes/checkpoints")
        checkout.git("config", "notes.rewriteMode", "cat_sort_uniq")
        base = checkout.git("rev-parse", "HEAD")
        old = checkout.commit("second", second="2")
        store.record("a-complete", {})
        store.record("b-complete", {})
        store.write_notes()
        if rewrite == "amend":
            checkout.git("commit", "--quiet", "--amend", "--message", "other words")
        else:
            checkout.git("checkout", "--quiet", "-b", "topic")
            checkout.git("checkout", "--quiet", "--detach", base)
            onto = checkout.commit("onto", onto="o")
            checkout.git("checkout", "--quiet", "topic")
            checkout.git("rebase", "--quiet", onto)
        new = checkout.git("rev-parse", "HEAD")
        third = store.record("c-complete", {})
        assert new != old
        assert [entry.id for entry in store.links(new)] == [third.id, TWO, ONE]
        assert [entry.id for entry in store.links(old)] == [TWO, ONE]
        assert notes(checkout)[new] == [ONE, TWO, THREE]
        assert (store.find("HEAD"), store.find(new), store.find(old)) == (THREE, THREE, TWO)

    def test_a_commit_without_any(self, plain: Store, main_checkout: Checkout) -> None:
        assert plain.links(main_checkout.git("rev-parse", "HEAD")) == []
        assert plain.links("0" * 40) == []

    def test_a_lost_note_is_made_up_for_by_the_checkpoint_itself(self, plain: Store, main_checkout: Checkout) -> None:
        plain.record("a-complete", {})
        main_checkout.git("update-ref", "-d", "refs/notes/checkpoints")
        assert [entry.id for entry in plain.links(main_checkout.git("rev-parse", "HEAD"))] == [ONE]
