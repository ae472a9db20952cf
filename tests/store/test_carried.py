"""Notes that list checkpoints of other commits are found without reading all, whatever became of notes, checkpoints and the index."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from gitckpt.git.notes import editor
from gitckpt.git.notes.editor import Notes
from gitckpt.model import ids
from gitckpt.model.format import note
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Query
from gitckpt.store.records.removal import carried, known
from gitckpt.store.records.removal.carried import Carried
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, nth

NOTES = ("notes", "--ref=checkpoints")


def found(store: Store) -> dict[str, list[str]]:
    return Carried(Notes(inside(store).repository, inside(store).objects, layout.NOTES), inside(store).index)()


def expected(store: Store) -> dict[str, list[str]]:
    """Returns the notes that are not plain, by reading each, and the documents."""
    commits = {entry.id: entry.git_sha for entry in store.list()}
    book = Notes(inside(store).repository, inside(store).objects, layout.NOTES).everything()
    return {
        commit: lines
        for commit, lines in book.items()
        if note.is_crowded(lines) or any(ids.is_id(note.link_id(line)) and commits.get(note.link_id(line)) != commit for line in lines)
    }


class Life:
    """What may happen to notes and checkpoints, a random thing at a time."""

    def __init__(self, store: Store, checkout: Checkout, chance: Random) -> None:
        self.store = store
        self.checkout = checkout
        self.chance = chance
        self.commits = [checkout.head()]

    def step(self) -> None:
        self.chance.choice(
            [self.record, self.record, self.commit, self.carry, self.carry, self.write, self.lose, self.remove, self.repoint, self.audit]
        )()
        inside(self.store).write_links()

    def record(self) -> None:
        for _ in range(self.chance.choice([1, 1, 2, note.MOST + 2])):
            self.store.record("a-complete", {})

    def commit(self) -> None:
        self.commits.append(self.checkout.commit())
        self.record()

    def carry(self) -> None:
        """Puts the note of a commit on another one, as a rebase does."""
        listed = [line.split()[1] for line in self.checkout.git(*NOTES, "list").splitlines()] if self._has_notes() else []
        if listed:
            new = self.chance.choice([self.checkout.git("commit-tree", "-m", "x", "HEAD^{tree}"), *self.commits])
            old = self.chance.choice(listed)
            if old != new:
                self.checkout.git(*NOTES, "append", "-C", self.checkout.git(*NOTES, "list", old), new)

    def write(self) -> None:
        self.checkout.git(*NOTES, "append", "-m", "somebody's own words", self.chance.choice(self.commits))

    def lose(self) -> None:
        """Deletes the ref of a checkpoint and leaves its link."""
        if refs := list(self.checkout.refs("refs/checkpoints")):
            self.checkout.git("update-ref", "-d", self.chance.choice(refs))

    def remove(self) -> None:
        some = self.store.list(Query(limit=10))
        self.store.remove([entry.id for entry in some if self.chance.random() < 0.4])

    def repoint(self) -> None:
        """Has a checkpoint be of another commit."""
        if some := self.store.list():
            one = self.chance.choice(some)
            text = self.store.raw(one.id).decode().replace(one.git_sha, self.chance.choice(self.commits))
            self.checkout.git("update-ref", layout.CHECKPOINTS + one.id, self.checkout.git("hash-object", "-w", "--stdin", data=text))

    def audit(self) -> None:
        """Leaves what it has seen, where all is as it should be."""
        self.store.verify(repair=self.chance.random() < 0.5)

    def _has_notes(self) -> bool:
        return bool(self.checkout.refs("refs/notes"))


@pytest.mark.long(but=["0"], spare=[str(seed) for seed in range(15, 30)])
@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens(make_store: MakeStore, main_checkout: Checkout, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MANY", 0)
    if seed % 2:  # trees of trees, which many notes are kept in
        monkeypatch.setattr(editor, "_SPLIT_ABOVE", {True: 2, False: 1})
        monkeypatch.setattr(carried, "_FLAT", seed % 3)
        monkeypatch.setattr(carried, "_TREES", 2)
    with make_store(main_checkout, "plumbing") as store, make_store(main_checkout, "plumbing") as other:
        life = Life(store, main_checkout, Random(seed))
        for _ in range(25):
            life.step()
            assert found(store) == expected(other)
        assert [each.code for each in store.verify().findings if each.code == "index-stale"] == []


class TestWhatIsRead:
    @pytest.fixture
    def reads(self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The objects that are read, of notes of five commits whose trees git keeps apart."""
        for _ in range(5):
            main_checkout.commit()
            plain.record("a-complete", {})
        inside(plain).write_links()
        read, seen = inside(plain).objects.read, []

        def noted(oids: list[str], *most: int) -> Iterator[tuple[str, bytes] | None]:
            seen.extend(oids)
            return read(oids, *most)

        monkeypatch.setattr(inside(plain).objects, "read", noted)
        return seen

    @pytest.mark.parametrize("flat", [512, 0], ids=["known from the index", "kept"])
    def test_of_what_is_known_nothing_but_the_tip(
        self, plain: Store, main_checkout: Checkout, reads: list[str], monkeypatch: pytest.MonkeyPatch, flat: int
    ) -> None:
        monkeypatch.setattr(carried, "_FLAT", flat)
        assert found(plain) == {}
        reads.clear()
        assert (found(plain), reads) == ({}, [main_checkout.git("rev-parse", layout.NOTES)])

    def test_of_what_an_audit_has_seen_nothing_but_the_tip(
        self, plain: Store, main_checkout: Checkout, reads: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(known, "MANY", 0)
        assert plain.verify().findings == []
        reads.clear()
        assert (found(plain), reads) == ({}, [main_checkout.git("rev-parse", layout.NOTES)])

    def test_of_what_the_index_would_make_of_the_notes_nothing_but_the_tip(
        self, plain: Store, main_checkout: Checkout, reads: list[str]
    ) -> None:
        plain.list()
        reads.clear()
        assert (found(plain), reads) == ({}, [main_checkout.git("rev-parse", layout.NOTES)])

    def test_of_trees_of_trees_only_the_one_that_has_changed(
        self, plain: Store, main_checkout: Checkout, reads: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(editor, "_SPLIT_ABOVE", {True: 2, False: 2})
        monkeypatch.setattr(carried, "_FLAT", 0)
        main_checkout.commit()
        for _ in range(2):
            plain.record("again-complete", {})
        inside(plain).write_links()
        commit = main_checkout.head()
        below = [line.split() for line in main_checkout.git("ls-tree", layout.NOTES).splitlines()]
        assert {kind for _, kind, *_ in below} == {"tree"}
        main_checkout.git("update-ref", "-d", layout.CHECKPOINTS + plain.list()[0].id)
        plain.list()
        reads.clear()
        assert list(found(plain)) == [commit]
        blob = main_checkout.git("rev-parse", f"{layout.NOTES}:{commit[:2]}/{commit[2:]}")
        revs = [layout.NOTES, f"{layout.NOTES}^{{tree}}", f"{layout.NOTES}:{commit[:2]}"]
        assert reads == [*(main_checkout.git("rev-parse", rev) for rev in revs), blob]

    def test_where_a_note_lies_above_another_one_of_its_commit_the_deeper_one_counts(
        self, plain: Store, main_checkout: Checkout, reads: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(carried, "_FLAT", 0)
        commit = main_checkout.head()
        other = main_checkout.git("rev-parse", f"{layout.NOTES}:{main_checkout.git('rev-parse', 'HEAD~1')}")
        right = main_checkout.git("rev-parse", f"{layout.NOTES}:{commit}")
        inner = main_checkout.git("mktree", data=f"100644 blob {right}\t{commit[2:]}\n")
        root = main_checkout.git("mktree", data=f"100644 blob {other}\t{commit}\n040000 tree {inner}\t{commit[:2]}\n")
        main_checkout.git("update-ref", layout.NOTES, main_checkout.git("commit-tree", "-m", "x", root))
        assert found(plain) == {}

    def test_what_the_lines_follow_from_is_known_without_its_blob(self, plain: Store, main_checkout: Checkout, reads: list[str]) -> None:
        plain.list()
        main_checkout.git(*NOTES, "append", "-m", "somebody's own words")
        blobs = {line.split()[0] for line in main_checkout.git(*NOTES, "list").splitlines() if main_checkout.head() not in line}
        assert len(blobs) == 4
        reads.clear()
        assert found(plain) == {}
        assert blobs.isdisjoint(reads)

    def test_a_tree_that_cannot_be_read_now_is_not_taken_for_plain(
        self, plain: Store, main_checkout: Checkout, reads: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(carried, "_FLAT", 0)
        monkeypatch.setattr(editor, "_SPLIT_ABOVE", {True: 2, False: 2})
        new = main_checkout.git("commit-tree", "-m", "x", "HEAD^{tree}")
        main_checkout.git(*NOTES, "copy", "HEAD", new)
        main_checkout.commit()
        plain.record("a-complete", {})
        inside(plain).write_links()
        there = main_checkout.git("rev-parse", f"{layout.NOTES}:{new[:2]}")
        path = main_checkout.path / ".git/objects" / there[:2] / there[2:]
        path.rename(path.with_suffix(".away"))
        assert found(plain) == {}
        path.with_suffix(".away").rename(path)
        assert list(found(plain)) == [new]

    @pytest.mark.parametrize("name", ["linked", "linked_below"])
    def test_nothing_is_kept_of_what_was_judged_by_rows_that_are_gone(
        self, plain: Store, main_checkout: Checkout, reads: list[str], monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        index = inside(plain).index
        really = getattr(index, name)

        def linked(some: list[str]) -> Iterator[tuple[str, str, str, str]]:
            yield from list(really(some))
            main_checkout.git("update-ref", "-d", layout.CHECKPOINTS + nth(3))
            index.refresh()

        if name == "linked":
            main_checkout.git(*NOTES, "append", "-m", "somebody's own words")
        monkeypatch.setattr(index, name, linked)
        assert found(plain) == {}
        monkeypatch.undo()
        (commit,) = found(plain)
        assert note.link_id(main_checkout.git(*NOTES, "show", commit)) == nth(3)
