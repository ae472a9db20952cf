"""Undo and redo: a stack of steps for each worktree.

Each step has a safety checkpoint, so that no earlier state is lost.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitckpt import NotFoundError, Policy, Store, WorktreeError
from tests import planted
from tests.conftest import Checkout, Clock
from tests.planted import plant
from tests.store.conftest import MakeStore
from tests.stores import DAY, git_dir

pytestmark = pytest.mark.long


class Desk:
    """A worktree with one file that tells its states apart."""

    def __init__(self, store: Store, checkout: Checkout) -> None:
        self.store = store
        self.checkout = checkout
        self.file = checkout.path / "README"
        self.note = Path(git_dir(store), "ckpt-undo")

    def has(self, text: str) -> None:
        self.file.write_text(text)

    def saved(self, text: str) -> str:
        self.has(text)
        return self.store.save("a-complete", {}).id

    def undo(self) -> str:
        self.store.undo()
        return self.file.read_text()

    def redo(self) -> str:
        self.store.redo()
        return self.file.read_text()

    def steps(self) -> tuple[list[str], list[str]]:
        """Return the text of the file at each step back and at each step forward."""
        found = self.store.undo_steps()
        return tuple(
            [self._text(step.checkpoint.id) for step in found if step.kind == kind]
            for kind in ("undo", "redo")
        )  # type: ignore[return-value]

    def _text(self, checkpoint: str) -> str:
        entry = self.store.read(checkpoint)
        return self.checkout.git(
            "cat-file",
            "blob",
            f"{entry.tree}:files/README" if entry.tree else f"{entry.git_sha}:README",
        )

    def safeties(self) -> list[str]:
        return [entry.id for entry in self.store.list() if entry.trigger == "safety"]


@pytest.fixture
def desk(store: Store, checkout: Checkout) -> Desk:
    return Desk(store, checkout)


@pytest.fixture
def three(desk: Desk) -> Desk:
    """A worktree at "first", with "one" and then "two" restored."""
    one, two = desk.saved("one"), desk.saved("two")
    desk.has("first")
    desk.store.restore(one)
    desk.store.restore(two)
    return desk


class TestBackAndForth:
    def test_back_to_the_first_state_and_forward_again(self, three: Desk) -> None:
        assert three.steps() == (["one", "first"], [])
        assert [three.undo(), three.undo()] == ["one", "first"]
        assert three.steps() == ([], ["one", "two"])
        with pytest.raises(NotFoundError) as caught:
            three.store.undo()
        assert (caught.value.message, caught.value.hint) == (
            "no earlier restore is left to undo",
            "redo the newest undo: git ckpt redo",
        )
        assert [three.redo(), three.redo()] == ["one", "two"]
        with pytest.raises(NotFoundError) as caught:
            three.store.redo()
        assert (caught.value.message, caught.value.hint) == (
            "no undo follows the newest restore",
            "see the steps: git ckpt undo --list",
        )
        assert three.steps() == (["one", "first"], [])
        assert [three.undo(), three.undo(), three.redo(), three.undo()] == [
            "one",
            "first",
            "one",
            "first",
        ]
        assert len(three.safeties()) == 10

    def test_each_step_is_a_checkpoint_of_what_was_there(self, three: Desk) -> None:
        done = three.store.undo()
        made = three.store.read(str(done.safety))
        assert (three._text(made.id), made.trigger, dict(made.state)["before"]) == (
            "two",
            "safety",
            three.safeties()[1],
        )

    def test_a_dry_run_moves_nothing(self, three: Desk) -> None:
        before = three.note.read_bytes()
        assert three.store.undo(dry_run=True).changes == three.store.undo(dry_run=True).changes
        three.undo()
        three.store.redo(dry_run=True)
        assert (three.steps(), three.file.read_text()) == ((["first"], ["two"]), "one")
        three.redo()
        assert json.loads(three.note.read_text()).keys() == json.loads(before).keys()

    def test_a_new_restore_drops_what_is_ahead_and_no_checkpoint(self, three: Desk) -> None:
        three.undo()
        three.undo()
        ahead = three.safeties()
        three.store.restore(three.store.list()[-1].id)
        assert three.steps() == (["first"], [])
        assert set(ahead) <= set(three.safeties())
        with pytest.raises(NotFoundError):
            three.store.redo()
        assert three.undo() == "first"


class TestEdits:
    def test_after_a_restore_redo_brings_them_back(self, three: Desk) -> None:
        three.has("two, edited")
        assert [three.undo(), three.redo()] == ["one", "two, edited"]

    @pytest.mark.parametrize("forward", ["redo", "restore"])
    def test_after_an_undo_both_are_steps(self, three: Desk, forward: str) -> None:
        three.undo()
        three.undo()
        three.has("first, edited")
        if forward == "redo":
            assert three.redo() == "one"
        else:
            three.store.restore(three.store.list()[-1].id)
        assert [three.undo(), three.undo()] == ["first, edited", "first"]
        assert three.steps() == (
            [],
            ["first, edited", "one", *(["two"] if forward == "redo" else [])],
        )

    def test_between_two_undos_redo_brings_back_what_was_there(self, three: Desk) -> None:
        three.undo()
        three.has("one, edited")
        assert three.undo() == "first"
        assert three.steps() == ([], ["one, edited", "one", "two"])
        assert [three.redo(), three.redo(), three.redo()] == ["one, edited", "one", "two"]

    def test_by_hand_to_where_undo_would_go(self, three: Desk) -> None:
        three.has("one")
        done = three.store.undo()
        assert (done.changes, done.safety) == ([], None)
        assert three.steps() == (["first"], [])
        assert three.undo() == "first"

    def test_a_commit_in_between(self, three: Desk) -> None:
        head = three.checkout.git("rev-parse", "HEAD")
        three.checkout.git("commit", "--quiet", "--all", "--message", "in between")
        assert [three.undo(), three.undo(), three.redo(), three.redo()] == [
            "one",
            "first",
            "one",
            "two",
        ]
        assert three.checkout.git("status", "--porcelain") == ""
        assert three.checkout.git("rev-parse", "HEAD~1") == head


class TestGone:
    def test_a_checkpoint_that_is_gone_is_skipped_with_a_word(self, three: Desk) -> None:
        gone = three.safeties()[0]
        three.store.remove([gone])
        assert three.steps() == (["first"], [])
        done = three.store.undo()
        assert done.remarks == [
            (
                "skipped steps whose checkpoints are gone (removed, expired, or replaced by a "
                f"fetch): {gone[:8]}"
            )
        ]
        assert three.file.read_text() == "first"
        assert three.redo() == "two"
        assert three.store.undo().remarks == []

    def test_all_of_them(self, three: Desk) -> None:
        three.store.remove(three.safeties())
        with pytest.raises(NotFoundError) as caught:
            three.store.undo()
        assert (caught.value.message, caught.value.hint) == (
            (
                "the checkpoints that undo would restore are gone: "
                "removed, expired, or replaced by a fetch"
            ),
            "see other checkpoints: git ckpt list",
        )
        assert three.steps() == ([], [])

    @pytest.mark.parametrize("lost", ["deleted", "garbage", "empty", "of another kind"])
    def test_the_note_of_them_is_lost(self, three: Desk, lost: str) -> None:
        """Without the file of steps, each safety checkpoint is a step back, in order."""
        three.undo()
        if lost == "deleted":
            three.note.unlink()
        else:
            three.note.write_text(
                {"garbage": '{"undo": 7', "empty": ""}.get(
                    lost, '{"undo": [7], "redo": {}, "here": [], "open": 1}'
                )
            )
        assert three.steps() == (["two", "one", "first"], [])
        assert [three.undo(), three.undo(), three.undo()] == ["two", "one", "first"]
        assert three.redo() == "one"


class TestExpiry:
    def test_what_is_still_offered_afterwards_can_be_done(self, desk: Desk, clock: Clock) -> None:
        """Steps that remain after expiry work.

        Safety checkpoints have their own limit of seven days, and the newest is kept.
        """
        made = [desk.saved(text) for text in "abcde"]
        desk.has("first")
        for number, each in enumerate(made):
            desk.store.restore(each)
            clock.instant += 3 * DAY if number == 2 else 0
        assert desk.steps() == (["d", "c", "b", "a", "first"], [])
        clock.instant += 5 * DAY
        rules = Policy(older_than=0, keep_last=0, safety_keep_last=1)
        told = {
            entry.id: decision.reason
            for entry, decision in desk.store.expire(rules, dry_run=True).checkpoints
        }
        assert [told.get(each) for each in desk.safeties()] == [
            None,
            None,
            *["made for safety, 8d old, limit 7d"] * 3,
        ]
        desk.store.expire(rules)
        assert desk.steps() == (["d", "c"], [])
        assert [desk.undo(), desk.undo()] == ["d", "c"]
        with pytest.raises(NotFoundError, match="gone"):
            desk.store.undo()
        assert [desk.redo(), desk.redo()] == ["d", "e"]


class TestWorktrees:
    def test_each_has_a_stack_of_its_own(
        self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        store = make_store(main_checkout)
        one, two = (Desk(store, main_checkout).saved(text) for text in ("one", "two"))
        here = Desk(store, main_checkout)
        there = Desk(make_store(tmp_path / "side"), Checkout(tmp_path / "side"))
        for desk, word in ((here, "here"), (there, "there")):
            desk.has(word)
            desk.store.restore(one)
            desk.store.restore(two)
        assert [here.undo(), here.undo(), there.undo(), here.redo(), there.undo()] == [
            "one",
            "here",
            "one",
            "one",
            "there",
        ]
        assert (here.steps(), there.steps()) == ((["here"], ["two"]), ([], ["one", "two"]))


class TestCutOff:
    """After an interrupted step, both of its states can be reached."""

    @staticmethod
    def cut(desk: Desk, monkeypatch: pytest.MonkeyPatch, step: str, *args: str) -> None:

        def fail(*_: object) -> None:
            raise WorktreeError("cut off")

        with monkeypatch.context() as patch:
            plant(patch, planted.RESTORE_PRECHECK, fail)
            with pytest.raises(WorktreeError, match="cut off"):
                getattr(desk.store, step)(*args)

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("undo", ["one", "first"]),
            ("redo", ["two"]),
            ("redo undo undo", ["two", "one", "first"]),
            ("undo redo", ["one", "two"]),
        ],
    )
    def test_an_undo(
        self, three: Desk, monkeypatch: pytest.MonkeyPatch, words: str, expected: list[str]
    ) -> None:
        self.cut(three, monkeypatch, "undo")
        assert three.file.read_text() == "one"
        # The worktree has the files already, so this undo only takes the step.
        three.store.undo() if words == "undo" else None
        seen = [getattr(three, word)() for word in words.split()]
        assert seen == expected[len(expected) - len(seen) :]

    def test_an_undo_with_edits_since(self, three: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cut(three, monkeypatch, "undo")
        three.has("typed since")
        assert three.redo() == "two"
        assert three.steps() == (["typed since", "one", "first"], [])

    def test_a_restore_after_an_undo_that_was_cut_off(
        self, three: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        three.has("two, edited")
        self.cut(three, monkeypatch, "undo")
        three.store.restore(three.store.list()[-2].id)
        assert three.steps() == (["two, edited", "one", "first"], [])

    @pytest.mark.parametrize("edited", [False, True])
    def test_a_restore_is_done_again(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, edited: bool
    ) -> None:
        one, two = desk.saved("one"), desk.saved("two")
        desk.has("first")
        self.cut(desk, monkeypatch, "restore", one)
        if edited:
            desk.has("typed since")
        desk.store.restore(two)
        assert desk.steps() == (["typed since", "first"] if edited else ["first"], [])
        assert desk.undo() == ("typed since" if edited else "first")

    def test_the_listing_says_so(self, three: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not three.store.is_cut_off()
        self.cut(three, monkeypatch, "undo")
        assert three.store.is_cut_off()
        assert three.steps() == (["one", "first"], ["two"])
        assert three.store.undo(dry_run=True).remarks == [
            "the previous restore, undo or redo was interrupted"
        ]
