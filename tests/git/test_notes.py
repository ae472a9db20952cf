"""Notes are edited as trees, in every shape that git reads."""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt import RefMoved
from gitckpt.git.notes import MAX_NOTE_SIZE, GitNotes
from gitckpt.git.objects.plumbing import open_objects
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.git.repository import Repository, discover_repository
from tests.conftest import Checkout, examples

if TYPE_CHECKING:
    from gitckpt.git.objects.writer import ObjectDatabase

REF = "refs/notes/checkpoints"
INSTANT = 1_800_000_000_000_000
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def commit_name(number: int, object_format: str = "sha1") -> str:
    """Return an oid for a commit; notes may exist without their object."""
    return hashlib.new(object_format, b"%d" % number).hexdigest()


class Book:
    """The notes of one repository, and how git reads them.

    Attributes:
        checkout: a worktree of the repository.
        notes: the notes under test.
    """

    def __init__(self, checkout: Checkout, repository: Repository, objects: ObjectDatabase) -> None:
        self.checkout = checkout
        self.repository = repository
        self.objects = objects
        self.notes = GitNotes(repository, objects, REF)

    def change(self, wanted: dict[str, list[str]]) -> str:
        """Set the lines of commits, write them, and return the notes commit."""
        tip = self.notes.tip_oid()
        commit, items = self.notes.edit_notes(
            tip, list(wanted), lambda name, _: wanted[name], INSTANT
        )
        self.objects.write(items)
        if commit != tip:
            self.checkout.git("update-ref", REF, commit, tip or "0" * len(commit))
        return commit

    def as_git_reads_it(self) -> dict[str, list[str]]:
        """Return the lines of each commit that `git notes list` names."""
        listed = [
            line.split()
            for line in self.checkout.git("notes", "--ref=checkpoints", "list").splitlines()
        ]
        said = (
            self.checkout.git(
                "cat-file", "--batch", data="".join(f"{blob}\n" for blob, _ in listed)
            ).encode()
            + b"\n"
        )
        book = {}
        for blob, commit in listed:
            header, _, said = said.partition(b"\n")
            size = int(header.removeprefix(f"{blob} blob ".encode()))
            book[commit] = said[:size].decode().removesuffix("\n").split("\n")
            said = said[size + 1 :]
        return book

    def everything(self) -> dict[str, list[str]]:
        return {commit: lines for commit, lines in self.notes.read_all_notes() if lines is not None}

    def show(self, commit: str) -> str:
        return self.checkout.git("notes", "--ref=checkpoints", "show", commit)

    def tree(self) -> list[str]:
        """Return mode and name of each entry at the top of the notes tree."""
        lines = self.checkout.git("ls-tree", REF).splitlines()
        return [f"{line.split()[0]} {line.partition(chr(9))[2]}" for line in lines]


@pytest.fixture
def book(main_checkout: Checkout, repository: Repository, objects: ObjectDatabase) -> Book:
    """The notes of `main_checkout`, through either adapter."""
    return Book(main_checkout, repository, objects)


def many(count: int, object_format: str = "sha1") -> dict[str, list[str]]:
    return {commit_name(number, object_format): [f"line {number}"] for number in range(count)}


def add_by_git(checkout: Checkout, notes: dict[str, list[str]]) -> None:
    """Write notes with git itself, which chooses the shape of the tree."""
    blob = [
        f"blob\nmark :{mark}\ndata {len(chr(10).join(lines)) + 1}\n{chr(10).join(lines)}\n\n"
        for mark, lines in enumerate(notes.values(), 1)
    ]
    head = f"commit {REF}\ncommitter a <a@b> 1700000000 +0000\ndata 0\n"
    entries = "".join(f"N :{mark} {commit}\n" for mark, commit in enumerate(notes, 1))
    checkout.git("fast-import", "--quiet", data="".join(blob) + head + entries)


def real_commits(checkout: Checkout, count: int) -> list[str]:
    """Create real commits, as `git fast-import` and `git log` need them."""
    stream = "".join(
        f"commit refs/heads/many\ncommitter a <a@b> {1700000000 + number} +0000\n"
        f"data {len(str(number))}\n{number}\n"
        for number in range(count)
    )
    checkout.git("fast-import", "--quiet", data=stream)
    return checkout.git("rev-list", "many").splitlines()


@pytest.mark.turns("adapter")
class TestEdited:
    def test_the_first_note_makes_a_commit_without_parent(self, book: Book) -> None:
        head = book.checkout.git("rev-parse", "HEAD")
        commit = book.change({head: ["one", "two"]})
        assert book.checkout.git("cat-file", "commit", commit).split("\n", 1)[1] == (
            "author gitckpt <gitckpt> 1800000000 +0000\n"
            "committer gitckpt <gitckpt> 1800000000 +0000\n\nCheckpoints of commits (derived)"
        )
        assert [book.show(head), book.tree()] == ["one\ntwo", [f"100644 {head}"]]
        shown = book.checkout.git("log", "--notes=checkpoints", "--format=%N", "-1")
        assert shown == "one\ntwo\n"

    def test_of_nothing_in_nothing_is_nothing(self, book: Book) -> None:
        assert book.notes.edit_notes("", [], lambda _, lines: lines, INSTANT) == ("", [])
        assert book.notes.edit_notes("", [commit_name(1)], lambda _, lines: lines, INSTANT) == (
            "",
            [],
        )

    def test_without_change_is_the_tip_itself(self, book: Book) -> None:
        tip = book.change(many(300))
        assert book.notes.edit_notes(tip, list(many(300)), lambda _, lines: lines, INSTANT) == (
            tip,
            [],
        )
        assert book.notes.edit_notes(tip, [commit_name(999)], lambda _, lines: lines, INSTANT) == (
            tip,
            [],
        )

    def test_hands_the_lines_there_are_to_the_change(self, book: Book) -> None:
        one, two = commit_name(1), commit_name(2)
        book.change({one: ["a", "b"]})
        seen = []

        def change(commit: str, lines: list[str]) -> list[str]:
            seen.append((commit, lines))
            return []

        book.notes.edit_notes(book.notes.tip_oid(), [two, one, two], change, INSTANT)
        assert seen == [
            (commit, ["a", "b"] if commit == one else []) for commit in sorted([one, two])
        ]

    def test_adds_changes_and_removes(self, book: Book) -> None:
        one, two, three = map(commit_name, (1, 2, 3))
        book.change({one: ["a"], two: ["b"]})
        book.change({one: ["a", "more"], two: [], three: ["größe 枝"]})
        assert book.as_git_reads_it() == {one: ["a", "more"], three: ["größe 枝"]}

    def test_names_what_is_referred_to_before_what_refers_to_it(self, book: Book) -> None:
        commit, items = book.notes.edit_notes("", list(many(400)), lambda name, _: [name], INSTANT)
        kinds = [kind for kind, _ in items]
        last_tree = len(kinds) - 1 - kinds[::-1].index("tree")
        assert (kinds[-1], kinds.count("commit"), last_tree, kinds.count("tree")) == (
            "commit",
            1,
            len(kinds) - 2,
            1 + len(book_prefixes(400)),
        )
        assert commit != ""

    def test_the_last_note_leaves_an_empty_tree(self, book: Book) -> None:
        book.change({commit_name(1): ["a"]})
        commit = book.change({commit_name(1): []})
        assert book.checkout.git("rev-parse", f"{commit}^{{tree}}") == EMPTY_TREE
        assert book.as_git_reads_it() == {}
        book.change({commit_name(2): ["b"]})
        assert book.as_git_reads_it() == {commit_name(2): ["b"]}

    def test_blank_lines_of_a_note_are_kept(self, book: Book) -> None:
        head = book.checkout.git("rev-parse", "HEAD")
        book.checkout.git("notes", "--ref=checkpoints", "add", "-F", "-", head, data="a\n\nb\n")
        assert book.notes.read_note_lines([head]) == {head: ["a", "", "b"]}
        book.change({head: ["a", "", "b", "c"]})
        assert book.show(head) == "a\n\nb\nc"

    def test_bytes_that_are_not_utf8_are_kept(self, book: Book) -> None:
        head = book.checkout.git("rev-parse", "HEAD")
        book.checkout.git("notes", "--ref=checkpoints", "add", "-F", "-", head, data=b"\xff\xfe\n")
        tip = book.notes.tip_oid()
        commit, items = book.notes.edit_notes(
            tip, [head], lambda _, lines: [*lines, "more"], INSTANT
        )
        assert ("blob", b"\xff\xfe\nmore\n") in items
        assert commit != tip


def book_prefixes(count: int) -> set[str]:
    return {name[:2] for name in many(count)}


@pytest.mark.turns("adapter")
class TestShapes:
    def test_a_flat_tree_stays_flat_up_to_its_limit(self, book: Book) -> None:
        book.change(many(256))
        assert book.tree() == [f"100644 {name}" for name in sorted(many(256))]
        assert book.as_git_reads_it() == many(256)

    def test_one_more_splits_it_as_git_does(self, book: Book) -> None:
        book.change(many(256))
        book.change({commit_name(256): ["line 256"]})
        assert book.tree() == [f"040000 {prefix}" for prefix in sorted(book_prefixes(257))]
        assert book.as_git_reads_it() == many(257)
        assert book.checkout.git("fsck", "--strict", "--no-dangling") == ""

    def test_a_split_tree_takes_changes_and_removals(self, book: Book) -> None:
        wanted = many(300)
        book.change(wanted)
        changes: dict[str, list[str]] = {
            commit_name(0): ["changed"],
            commit_name(1): [],
            commit_name(1000): ["new"],
        }
        book.change(changes)
        assert book.as_git_reads_it() == {
            commit: lines for commit, lines in (wanted | changes).items() if lines
        }
        book.change({commit: [] for commit in book.as_git_reads_it()})
        assert [book.as_git_reads_it(), book.tree()] == [{}, []]

    def test_notes_that_git_fanned_out_are_edited_in_place(self, book: Book) -> None:
        commits = real_commits(book.checkout, 600)
        wanted = {commit: [f"by git {commit[:4]}"] for commit in commits}
        add_by_git(book.checkout, wanted)
        assert {entry[:6] for entry in book.tree()} == {"040000"}
        changes: dict[str, list[str]] = {
            commits[0]: ["changed"],
            commits[1]: [],
            commits[2]: [*wanted[commits[2]], "more"],
            commit_name(1): ["new"],
        }
        book.change(changes)
        wanted = {commit: lines for commit, lines in (wanted | changes).items() if lines}
        assert [book.as_git_reads_it(), book.everything()] == [wanted, wanted]
        assert book.show(commits[2]).splitlines() == wanted[commits[2]]
        assert book.checkout.git("fsck", "--strict", "--no-dangling") == ""

    def test_git_goes_on_with_notes_of_ours(self, book: Book) -> None:
        head = book.checkout.git("rev-parse", "HEAD")
        for wanted in (many(3), many(300)):
            book.change(wanted)
            book.checkout.git("notes", "--ref=checkpoints", "add", "-f", "-m", "by git", head)
            assert book.as_git_reads_it() == {**wanted, head: ["by git"]}
            book.change({head: []})
            assert book.as_git_reads_it() == wanted

    def test_deep_fan_out_is_followed(self, book: Book) -> None:
        name = commit_name(7)
        blob = book.checkout.git("hash-object", "-w", "--stdin", data="deep\n")
        index = {"GIT_INDEX_FILE": str(book.checkout.path / ".git" / "scratch")}
        path = "/".join([name[:2], name[2:4], name[4:6], name[6:]])
        book.checkout.git(
            "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=index
        )
        commit = book.checkout.git(
            "commit-tree", book.checkout.git("write-tree", env=index), "-m", "notes"
        )
        book.checkout.git("update-ref", REF, commit)
        assert book.notes.read_note_lines([name]) == {name: ["deep"]}
        book.change({name: ["deep", "deeper"]})
        assert book.checkout.git("ls-tree", "-r", "--name-only", REF) == path
        assert book.as_git_reads_it() == {name: ["deep", "deeper"]}

    @pytest.mark.parametrize("count", [1, 300])
    def test_foreign_entries_stay_where_they_are(self, book: Book, count: int) -> None:
        blob = book.checkout.git("hash-object", "-w", "--stdin", data="foreign\n")
        foreign = ["README.txt", "docs/a", "ab/README", "ff", "F" * 40, "x" * 40, "z/" + "1" * 38]
        index = {"GIT_INDEX_FILE": str(book.checkout.path / ".git" / "scratch")}
        lines = "".join(f"100644 {blob}\t{path}\n" for path in foreign)
        book.checkout.git("update-index", "--index-info", data=lines, env=index)
        commit = book.checkout.git(
            "commit-tree", book.checkout.git("write-tree", env=index), "-m", "notes"
        )
        book.checkout.git("update-ref", REF, commit)
        book.change(many(count))
        assert book.everything() == many(count)
        paths = book.checkout.git("ls-tree", "-r", "--name-only", REF).splitlines()
        assert [path for path in paths if path.replace("/", "") not in many(count)] == sorted(
            foreign
        )
        book.change({commit: [] for commit in many(count)})
        assert book.checkout.git("ls-tree", "-r", "--name-only", REF).splitlines() == sorted(
            foreign
        )

    def test_a_ref_that_holds_no_commit_counts_as_empty(self, book: Book) -> None:
        blob = book.checkout.git("hash-object", "-w", "--stdin", data="not notes\n")
        book.checkout.git("update-ref", REF, blob)
        assert book.everything() == {}
        book.change({commit_name(1): ["a"]})
        assert book.as_git_reads_it() == {commit_name(1): ["a"]}

    def test_sha256(
        self, make_checkout: Callable[..., Checkout], opened: Callable[..., Repository]
    ) -> None:
        checkout = make_checkout("project", "--object-format=sha256")
        head = checkout.commit("first")
        repository = opened(checkout)
        book = Book(checkout, repository, open_objects(repository))
        wanted = many(300, "sha256") | {head: ["here"]}
        book.change({commit: wanted[commit] for commit in list(wanted)[:10]})
        book.change(wanted)
        assert [book.as_git_reads_it(), book.everything(), book.show(head)] == [
            wanted,
            wanted,
            "here",
        ]
        assert checkout.git("fsck", "--strict", "--no-dangling") == ""


@pytest.mark.turns("adapter")
class TestLines:
    @pytest.mark.parametrize("count", [5, 300])
    def test_are_those_of_the_commits_asked_for(self, book: Book, count: int) -> None:
        book.change(many(count))
        asked = [commit_name(1), commit_name(count - 1), commit_name(9999)]
        assert book.notes.read_note_lines(asked) == {
            commit_name(1): ["line 1"],
            commit_name(count - 1): [f"line {count - 1}"],
        }
        assert book.notes.read_note_lines([]) == {}

    @pytest.mark.long
    def test_trees_that_stand_for_more_than_there_is_are_not_all_looked_at_and_stay(
        self, book: Book, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gitckpt.git.notes.MAX_ENTRIES", 200)
        blob = book.checkout.git("hash-object", "-w", "--stdin", data="a line\n")
        tree = book.checkout.git("mktree", data=f"100644 blob {blob}\t{'7' * 36}\n")
        for _ in range(2):
            tree = book.checkout.git(
                "mktree",
                data="".join(f"040000 tree {tree}\t{number:02x}\n" for number in range(16)),
            )
        book.checkout.git("update-ref", REF, book.checkout.git("commit-tree", tree, "-m", "notes"))
        assert list(book.notes.read_all_notes()) == []
        wanted = {name: lines for name, lines in many(900).items() if name[:2] >= "10"}
        assert len(wanted) > 500  # with so many, the tree is rebuilt if it is known completely
        book.change(wanted)
        before = {
            f"{first:02x}{second:02x}{'7' * 36}": ["a line"]
            for first in range(16)
            for second in range(16)
        }
        assert book.as_git_reads_it() == before | wanted

    def test_trees_that_go_deeper_than_any_name_are_looked_at_no_further(self, book: Book) -> None:
        """A fetched notes tree may have any depth."""
        blob = book.checkout.git("hash-object", "-w", "--stdin", data="a line\n")
        tree = book.checkout.git("mktree", data=f"100644 blob {blob}\tfile\n")
        for _ in range(50):
            tree = book.checkout.git("mktree", data=f"040000 tree {tree}\tab\n")
        book.checkout.git("update-ref", REF, book.checkout.git("commit-tree", tree, "-m", "notes"))
        book.change(many(3))
        assert book.everything() == many(3)
        assert (
            "/".join([*["ab"] * 50, "file"])
            in book.checkout.git("ls-tree", "-r", "--name-only", REF).splitlines()
        )

    def test_two_notes_of_one_commit_are_joined_as_git_does(self, book: Book) -> None:
        name = commit_name(7)
        index = {"GIT_INDEX_FILE": str(book.checkout.path / ".git" / "scratch")}
        for place in (name, f"{name[:2]}/{name[2:]}"):
            blob = book.checkout.git("hash-object", "-w", "--stdin", data=f"at {len(place)}\n")
            book.checkout.git(
                "update-index", "--add", "--cacheinfo", f"100644,{blob},{place}", env=index
            )
        book.checkout.git(
            "update-ref",
            REF,
            book.checkout.git(
                "commit-tree", book.checkout.git("write-tree", env=index), "-m", "notes"
            ),
        )
        assert (list(book.notes.read_all_notes()), book.notes.read_note_lines([name])) == (
            [(name, ["at 40", "at 41"])],
            {name: ["at 40", "at 41"]},
        )
        book.change({name: ["at 40", "more"]})
        assert book.checkout.git("ls-tree", "-r", "--name-only", REF) == f"{name[:2]}/{name[2:]}"
        assert book.as_git_reads_it() == {name: ["at 40", "more"]}

    def test_without_notes_there_are_none(self, book: Book) -> None:
        assert list(book.notes.read_all_notes()) == []
        assert [book.notes.tip_oid(), book.notes.read_note_lines([commit_name(1)])] == ["", {}]

    def test_of_notes_that_others_changed_meanwhile(self, book: Book) -> None:
        head = book.checkout.git("rev-parse", "HEAD")
        before = book.notes.read_note_lines([head])
        book.checkout.git("notes", "--ref=checkpoints", "add", "-m", "later", head)
        assert [before, book.notes.read_note_lines([head])] == [{}, {head: ["later"]}]


names = st.integers(0, 400).map(commit_name) | st.integers(0, 40).map(
    lambda number: "ab" + commit_name(number)[2:]
)
texts = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]),
        min_size=1,
        max_size=8,
    ),
    max_size=3,
)
steps = st.lists(st.dictionaries(names, texts, max_size=12), min_size=1, max_size=4)


@pytest.mark.long
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(start=st.sampled_from([0, 3, 250, 256, 300]), steps=steps)
def test_notes_are_a_map_from_commits_to_lines(
    shared_book: Book, start: int, steps: list[dict[str, list[str]]]
) -> None:
    book = shared_book
    book.checkout.git("update-ref", "-d", REF)
    model = many(start)
    book.change(dict(model))
    for step in steps:
        book.change(step)
        model = {commit: lines for commit, lines in (model | step).items() if lines}
        assert book.everything() == model
        assert book.notes.read_note_lines(list(step)) == {
            commit: lines for commit, lines in step.items() if lines
        }
    assert book.as_git_reads_it() == model


@pytest.fixture
def shared_book(main_checkout: Checkout, repository: Repository) -> Book:
    """Notes in one repository that many examples share."""
    return Book(main_checkout, repository, open_objects(repository, "libgit2"))


def add_notes(path: str, adapter: str, number: int, count: int) -> None:
    """Add lines to a commit of its own and to a shared one, by compare and swap."""
    repository = discover_repository(path)
    objects = open_objects(repository, adapter)
    refs = Refs(repository)
    notes = GitNotes(repository, objects, REF)
    shared = commit_name(0)
    for serial in range(count):
        wanted = {commit_name(1000 * number + serial + 1): "own", shared: f"{number}-{serial}"}

        def change(name: str, lines: list[str], wanted: dict[str, str] = wanted) -> list[str]:
            return [*lines, wanted[name]]

        while True:
            tip = notes.tip_oid()
            commit, items = notes.edit_notes(tip, list(wanted), change, INSTANT)
            objects.write(items)
            try:
                refs.apply_updates([RefUpdate(REF, commit, tip)])
            except RefMoved:
                continue
            break
    refs.close()
    objects.close()
    repository.close()


@pytest.mark.turns("adapter")
class TestMany:
    """Many notes cost few reads and writes."""

    @pytest.fixture
    def reads(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Return a function that counts the objects read since the start."""
        read, found = book.objects.read, []

        def counted(oids: list[str], *most: int) -> Iterator[tuple[str, bytes] | None]:
            found.append(len(oids))
            return read(oids, *most)

        monkeypatch.setattr(book.objects, "read", counted)
        return found

    @pytest.mark.long
    def test_a_few_of_many_are_changed_where_they_are(self, book: Book, reads: list[int]) -> None:
        names = [commit_name(number) for number in range(12_000)]
        book.change({name: [f"line {name}"] for name in names})
        assert len({name[:2] for name in names}) == 256
        chosen = [name for name in names if name < "0d"]
        assert len(chosen) > 500
        changes = {name: [] if number % 2 else ["changed"] for number, name in enumerate(chosen)}
        tip = book.notes.tip_oid()
        seen: dict[str, list[str]] = {}
        reads.clear()
        _, items = book.notes.edit_notes(
            tip,
            list(changes),
            lambda name, lines: seen.setdefault(name, lines) and changes[name],
            INSTANT,
        )
        assert seen == {name: [f"line {name}"] for name in chosen}
        assert [kind for kind, _ in items].count("tree") == 1 + 13
        assert len(reads) < 10
        book.change(changes)
        wanted = {name: [f"line {name}"] for name in names} | changes
        assert book.as_git_reads_it() == {name: lines for name, lines in wanted.items() if lines}

    @pytest.mark.parametrize("count", [1, 400])
    def test_where_one_commit_has_two_notes_neither_goes_with_changes_of_others(
        self, book: Book, count: int
    ) -> None:
        """Git shows both notes, one after the other."""
        names = [commit_name(number) for number in range(256)]
        first = names[0]
        above, below = (
            book.checkout.git("hash-object", "-w", "--stdin", data=f"{word}\n")
            for word in ("above", "below")
        )
        inner = book.checkout.git("mktree", data=f"100644 blob {below}\t{first[2:]}\n")
        listing = "".join(f"100644 blob {above}\t{name}\n" for name in names)
        root = book.checkout.git("mktree", data=f"{listing}040000 tree {inner}\t{first[:2]}\n")
        book.checkout.git("update-ref", REF, book.checkout.git("commit-tree", "-m", "x", root))
        assert book.show(first).split() in (["above", "below"], ["below", "above"])
        others = [name for name in map(commit_name, range(256, 2_000)) if name[:2] != first[:2]][
            :count
        ]
        book.change({name: ["new"] for name in [*names[1:count], *others]})
        assert book.as_git_reads_it().items() >= {name: ["new"] for name in others}.items()
        assert set(book.show(first).split()) == {"above", "below"}

    @pytest.mark.long
    @pytest.mark.parametrize("line", [[], ["new"]])
    def test_of_very_many_one_that_is_too_long_to_be_read_stays(
        self, book: Book, line: list[str]
    ) -> None:
        names = [commit_name(number) for number in range(600)]
        book.change({name: [f"line {name}"] for name in names})
        own = book.checkout.git(
            "hash-object", "-w", "--stdin", data="words of a user\n" * (MAX_NOTE_SIZE // 10)
        )
        book.checkout.git("notes", "--ref=checkpoints", "add", "--force", "-C", own, names[0])
        book.change(dict.fromkeys(names, line))
        assert book.checkout.git("notes", "--ref=checkpoints", "list", names[0]) == own

    def test_what_was_missing_the_last_time_is_looked_for_again(self, book: Book) -> None:
        wanted = many(3)
        book.change(wanted)
        one, *others = wanted
        blob = book.checkout.git("rev-parse", f"{REF}:{one}")
        path = book.checkout.path / ".git/objects" / blob[:2] / blob[2:]
        aside = path.rename(path.with_suffix(".aside"))
        assert book.notes.edit_notes(
            book.notes.tip_oid(), [one, others[0]], lambda _, lines: lines, INSTANT
        ) == (book.notes.tip_oid(), [])
        aside.rename(path)
        commit, items = book.notes.edit_notes(
            book.notes.tip_oid(), [one], lambda _, lines: [*lines, "more"], INSTANT
        )
        book.objects.write(items)
        book.checkout.git("update-ref", REF, commit)
        assert book.as_git_reads_it() == wanted | {one: [*wanted[one], "more"]}

    @pytest.mark.long
    def test_of_very_many_those_in_a_tree_that_cannot_be_read_now_stay(self, book: Book) -> None:
        names = [commit_name(number) for number in range(1_100)]
        book.change({name: [f"line {name}"] for name in names})
        there = book.checkout.git("rev-parse", f"{REF}:{names[0][:2]}")
        path = book.checkout.path / ".git/objects" / there[:2] / there[2:]
        path.rename(path.with_suffix(".away"))
        others = [name for name in names if name[:2] != names[0][:2]]
        book.change({name: [] for name in others})
        path.with_suffix(".away").rename(path)
        assert book.as_git_reads_it() == {
            name: [f"line {name}"] for name in names if name not in others
        }


@pytest.mark.long
@pytest.mark.turns("adapter")
def test_parallel_writers_lose_nothing(
    main_checkout: Checkout, adapter: str, repository: Repository
) -> None:
    context = multiprocessing.get_context("fork")
    arguments = [(str(main_checkout.path), adapter, number, 25) for number in range(1, 5)]
    writers = [context.Process(target=add_notes, args=each) for each in arguments]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0, 0, 0, 0]
    book = {
        commit: lines or []
        for commit, lines in GitNotes(repository, open_objects(repository), REF).read_all_notes()
    }
    shared = book.pop(commit_name(0))
    assert sorted(shared) == sorted(
        f"{number}-{serial}" for number in range(1, 5) for serial in range(25)
    )
    assert book == {
        commit_name(1000 * number + serial + 1): ["own"]
        for number in range(1, 5)
        for serial in range(25)
    }
    assert main_checkout.git("fsck", "--strict", "--no-dangling") == ""
