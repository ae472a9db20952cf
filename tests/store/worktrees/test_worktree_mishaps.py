"""Worktrees may be deleted, moved or forgotten; gitckpt touches no foreign ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Checkpoint, OpenResult, Store, WorktreeError
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, nth, view
from tests.stores import open_store, owner_of, run_worktrees


@pytest.fixture
def made(plain: Store, main_checkout: Checkout) -> Checkpoint:
    """The checkpoint that starts a run, with an uncommitted file."""
    main_checkout.write("new", "captured\n")
    return plain.record("a-started", {}, worktree=plain.capture(), start="r")


def resumed(store: Store, made: Checkpoint) -> Checkout:
    return Checkout(Path(store.resume(made).path), Path(str(store.worktree)))


def safeties(store: Store) -> list[Checkpoint]:
    return [store.read(entry.id) for entry in store.list() if entry.trigger == "safety:worktree"]


def registered(checkout: Checkout) -> list[str]:
    """Return the paths of linked worktrees that git lists, with their lock reasons."""
    blocks = checkout.git("worktree", "list", "--porcelain").split("\n\n")[1:]
    lines = [block.strip().splitlines() for block in blocks]
    return [
        " ".join(
            [
                each[0].removeprefix("worktree "),
                *(line for line in each if line.startswith("locked")),
            ]
        )
        for each in lines
    ]


class TestDeletedByHand:
    def test_it_is_made_again(
        self, plain: Store, main_checkout: Checkout, made: Checkpoint
    ) -> None:
        here = resumed(plain, made)
        expected = view(here.path)
        shutil.rmtree(here.path)
        assert plain.resume(made) == OpenResult(str(here.path), made=True)
        assert view(here.path) == expected
        assert registered(main_checkout) == [f"{here.path} locked gitckpt {made.run}"]
        assert safeties(plain) == []  # nothing was staged or committed there

    def test_what_was_staged_is_in_a_safety_checkpoint(
        self, plain: Store, main_checkout: Checkout, made: Checkpoint
    ) -> None:
        here = resumed(plain, made)
        here.write("staged", "precious\n")
        here.git("add", "staged")
        shutil.rmtree(here.path)
        plain.resume(made)
        (safety,) = safeties(plain)
        assert (safety.message, safety.git_sha) == (
            f"the index of the deleted worktree {here.path}",
            made.git_sha,
        )
        assert safety.worktree is not None
        listing = main_checkout.git(
            "ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{safety.id}"
        ).splitlines()
        assert listing == ["files/README", "files/staged", "index/0/README", "index/0/staged"]
        there = Checkout(Path(plain.resume(safety).path))
        assert ((there.path / "staged").read_text(), there.git("status", "--porcelain")) == (
            "precious\n",
            "A  staged",
        )

    @pytest.mark.long
    def test_a_conflict_is_in_a_safety_checkpoint(self, plain: Store, made: Checkpoint) -> None:
        here = resumed(plain, made)
        base = here.commit("ours", README="ours\n")
        here.git("checkout", "--quiet", "--detach", "HEAD^")
        here.commit("theirs", README="theirs\n")
        here.git("merge", base, ok=(1,))
        index = here.git("ls-files", "--stage")
        shutil.rmtree(here.path)
        plain.resume(made)
        (safety,) = safeties(plain)
        assert safety.worktree is not None
        assert safety.worktree.operation == "merge"
        there = Checkout(Path(plain.resume(safety).path))
        assert (there.git("ls-files", "--stage"), there.git("rev-parse", "MERGE_HEAD")) == (
            index,
            base,
        )

    def test_commits_that_no_ref_reaches_are_kept(
        self, plain: Store, main_checkout: Checkout, made: Checkpoint
    ) -> None:
        here = resumed(plain, made)
        lost = here.commit("precious", precious="x\n")
        shutil.rmtree(here.path)
        plain.resume(made)
        (safety,) = safeties(plain)
        assert safety.git_sha == lost
        main_checkout.git("reflog", "expire", "--expire=now", "--all")
        main_checkout.git("gc", "--quiet", "--prune=now")
        there = Checkout(Path(plain.resume(safety).path))
        assert (there.path / "precious").read_text() == "x\n"

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("holder", ["branch", "tag", "checkpoint"])
    def test_commits_that_are_held_need_none(
        self, plain: Store, make_store: MakeStore, made: Checkpoint, holder: str
    ) -> None:
        here = resumed(plain, made)
        here.git("rm", "--quiet", "--cached", "new", ok=(0, 128))
        here.commit("work", work="x\n")
        if holder == "checkpoint":
            make_store(here).record("b-complete", {})
        else:
            here.git(holder, "kept")
        shutil.rmtree(here.path)
        assert plain.resume(made).made
        assert safeties(plain) == []

    @pytest.mark.long
    def test_repositories_of_submodules_are_not_thrown_away(
        self, plain: Store, main_checkout: Checkout, make_checkout: Callable[..., Checkout]
    ) -> None:
        inner = make_checkout("inner")
        inner.commit("first", inside="x")
        main_checkout.git("submodule", "--quiet", "add", str(inner.path), "sub")
        main_checkout.git("commit", "--quiet", "--message", "with a submodule")
        made = plain.record("a-complete", {}, worktree=plain.capture())
        here = resumed(plain, made)
        here.git("submodule", "--quiet", "update", "--init")
        Checkout(here.path / "sub").commit("precious")
        git_dir = here.git("rev-parse", "--absolute-git-dir")
        shutil.rmtree(here.path)
        before = main_checkout.fingerprint()
        with pytest.raises(WorktreeError) as caught:
            plain.resume(made)
        assert (
            caught.value.message
            == f"{here.path} is gone, but {git_dir} has repositories of its submodules"
        )
        assert caught.value.hint == (
            "if the worktree was moved: git worktree repair NEW-PATH; else, "
            f"when you need none of these: git worktree remove -f -f {here.path}"
        )
        assert (os.path.isdir(f"{git_dir}/modules/sub"), main_checkout.fingerprint()) == (
            True,
            before,
        )
        main_checkout.git("worktree", "remove", "-f", "-f", str(here.path))
        assert plain.resume(made) == OpenResult(str(here.path), made=True)


class TestMovedByHand:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("place", ["sibling", "top", "next to the repository"])
    def test_nearby_it_is_found_and_repaired(
        self, plain: Store, main_checkout: Checkout, made: Checkpoint, tmp_path: Path, place: str
    ) -> None:
        here = resumed(plain, made)
        here.write("unsaved", "precious\n")
        here.git("add", "unsaved")
        expected = view(here.path)
        new = {
            "sibling": here.path.parent,
            "top": main_checkout.path,
            "next to the repository": tmp_path,
        }[place] / "moved here"
        here.path.rename(new)
        assert plain.resume(made) == OpenResult(
            str(new), made=False, remarks=(f"the worktree was moved from {here.path}",)
        )
        assert view(new) == expected
        assert registered(main_checkout) == [f"{new} locked gitckpt {made.run}"]
        assert safeties(plain) == []

    def test_far_away_it_is_made_again_and_the_other_stays_as_it_is(
        self, plain: Store, made: Checkpoint, tmp_path: Path
    ) -> None:
        here = resumed(plain, made)
        here.write("unsaved", "precious\n")
        here.git("add", "unsaved")
        far = tmp_path / "far" / "away"
        far.parent.mkdir()
        here.path.rename(far)
        assert plain.resume(made).made
        assert (far / "unsaved").read_text() == "precious\n"
        assert [safety.message for safety in safeties(plain)] == [
            f"the index of the deleted worktree {here.path}"
        ]

    @pytest.mark.parametrize("asked", ["from the main worktree", "from the worktree itself"])
    def test_with_the_whole_repository(
        self,
        make_store: MakeStore,
        main_checkout: Checkout,
        made: Checkpoint,
        plain: Store,
        tmp_path: Path,
        asked: str,
    ) -> None:
        here = resumed(plain, made)
        here.write("unsaved", "precious\n")
        expected = view(here.path)
        new = tmp_path / "elsewhere"
        main_checkout.path.rename(new)
        path = new / here.path.relative_to(main_checkout.path)
        if asked == "from the main worktree":
            assert make_store(new).resume(made) == OpenResult(str(path), made=False)
        else:
            Checkout(new).git("worktree", "repair", str(path))
            assert make_store(path).resume(made) == OpenResult(str(path), made=False)
        assert view(path) == expected
        assert registered(Checkout(new)) == [f"{path} locked gitckpt {made.run}"]


class TestCopied:
    """A copy of a repository keeps worktree entries that point to the original's."""

    @pytest.mark.parametrize("how", ["as it is", "moved by hand"])
    def test_those_of_the_original_stay_its_own(
        self,
        make_store: MakeStore,
        main_checkout: Checkout,
        made: Checkpoint,
        plain: Store,
        tmp_path: Path,
        how: str,
    ) -> None:
        theirs = [
            tmp_path / "by a person",
            Path(plain.resume(made, tmp_path / "ours").path),
        ]
        main_checkout.git("worktree", "add", "--quiet", "--detach", str(theirs[0]))
        before = [(path / ".git").read_text() for path in theirs]
        copy = tmp_path / "copy"
        shutil.copytree(main_checkout.path, copy, symlinks=True)
        store = make_store(copy)
        here = resumed(store, store.save("b-complete"))
        if how == "moved by hand":
            here.path.rename(here.path.with_name("moved"))
        assert not store.resume(store.read(here.path.name)).made
        assert [(path / ".git").read_text() for path in theirs] == before
        assert {Checkout(path).git("rev-parse", "--git-common-dir") for path in theirs} == {
            str(main_checkout.path / ".git")
        }

    def test_one_of_the_original_is_said_to_be_that(
        self,
        make_store: MakeStore,
        main_checkout: Checkout,
        made: Checkpoint,
        plain: Store,
        tmp_path: Path,
    ) -> None:
        path = plain.resume(made, tmp_path / "ours").path
        copy = tmp_path / "copy"
        shutil.copytree(main_checkout.path, copy, symlinks=True)
        store = make_store(copy)
        sentence = f"another repository: {main_checkout.path / '.git'}"
        with pytest.raises(WorktreeError) as caught:
            store.resume(made, path)
        assert caught.value.message == f"{path} is a worktree of {sentence}"
        assert (
            caught.value.hint == f"choose another directory: git ckpt resume {made.run} --into DIR"
        )
        found = store.verify().findings[0]
        assert (found.code, found.object, found.sentence) == (
            "worktree-moved",
            path,
            f"belongs to {sentence}",
        )
        assert str(found.cure).endswith(
            f"mv {copy / '.git/worktrees/ours'} {copy / '.git/ours.old'}"
        )
        assert plain.verify().is_clean


class TestForgotten:
    def test_it_is_adopted_with_its_files_as_they_are(
        self, plain: Store, main_checkout: Checkout, made: Checkpoint
    ) -> None:
        here = resumed(plain, made)
        here.write("README", "unsaved\n")
        (here.path / "new").unlink()
        here.write("newer", "precious\n")
        shutil.rmtree(main_checkout.path / ".git/worktrees" / str(made.run))
        said = (
            "git had removed the worktree from its list; the files are unchanged, "
            "and the index is that of the checkpoint"
        )
        assert plain.resume(made) == OpenResult(str(here.path), made=False, remarks=(said,))
        assert {
            path.name: path.read_text() for path in here.path.iterdir() if path.name != ".git"
        } == {
            "README": "unsaved\n",
            "newer": "precious\n",
        }
        assert here.git("status", "--porcelain") == " M README\n?? newer"
        assert here.git("rev-parse", "HEAD") == made.git_sha
        assert registered(main_checkout) == [f"{here.path} locked gitckpt {made.run}"]
        with open_store(here) as there:
            assert owner_of(there) == (made.id, made.run)
        assert plain.resume(made) == OpenResult(str(here.path), made=False)
        assert sorted(os.listdir(here.path.parent)) == [made.run]

    def test_all_of_them(self, plain: Store, main_checkout: Checkout, made: Checkpoint) -> None:
        other = plain.record("b-complete", {})
        places = [resumed(plain, one) for one in (made, other)]
        shutil.rmtree(main_checkout.path / ".git/worktrees")
        assert [plain.resume(one).made for one in (made, other)] == [False, False]
        expected = [
            f"{places[0].path} locked gitckpt {made.run}",
            f"{places[1].path} locked gitckpt {other.id}",
        ]
        assert sorted(registered(main_checkout)) == sorted(expected)

    def test_under_another_name_it_is_not_adopted(
        self, plain: Store, main_checkout: Checkout, made: Checkpoint, tmp_path: Path
    ) -> None:
        place = tmp_path / "place"
        plain.resume(made, str(place))
        shutil.rmtree(main_checkout.path / ".git/worktrees")
        before = sorted(os.listdir(place))
        with pytest.raises(WorktreeError) as caught:
            plain.resume(made, str(place))
        assert caught.value.message == f"{place} exists and is not the worktree of {made.run}"
        assert sorted(os.listdir(place)) == before


class TestTheBranchOfARun:
    """A run that switched to its own branch resumes on it if possible."""

    @pytest.fixture
    def moved_on(self, plain: Store, make_store: MakeStore, main_checkout: Checkout) -> Checkpoint:
        first = plain.record("a-started", {}, start="r")
        here = resumed(plain, first)
        here.git("checkout", "--quiet", "-b", "topic")
        here.commit("work", work="x\n")
        newest = make_store(here).record("b-complete", {}, run=first.run)
        main_checkout.git("worktree", "remove", "--force", "--force", str(here.path))
        return newest

    def test_free(self, plain: Store, moved_on: Checkpoint) -> None:
        opened = plain.resume(moved_on)
        assert opened.remarks == ()
        assert Checkout(Path(opened.path)).git("branch", "--show-current") == "topic"
        assert Checkout(Path(opened.path)).git("status", "--porcelain") == ""

    @pytest.mark.parametrize("elsewhere", [False, True])
    def test_free_once_the_directory_that_had_it_was_deleted(
        self,
        plain: Store,
        main_checkout: Checkout,
        moved_on: Checkpoint,
        tmp_path: Path,
        elsewhere: bool,
    ) -> None:
        """The run's own worktree was deleted; its staged files are in a safety checkpoint."""
        old = Checkout(Path(plain.resume(moved_on).path))
        old.write("staged", "work\n")
        old.git("add", "staged")
        shutil.rmtree(old.path)
        opened = (
            plain.resume(moved_on, str(tmp_path / "new")) if elsewhere else plain.resume(moved_on)
        )
        there = Checkout(Path(opened.path))
        assert (opened.remarks, opened.made, there.git("branch", "--show-current")) == (
            (),
            True,
            "topic",
        )
        assert len(registered(main_checkout)) == 1
        (safety,) = (entry for entry in plain.list() if entry.trigger == "safety:worktree")
        assert main_checkout.git("show", f"refs/ckpt/trees/{safety.id}:files/staged") == "work"

    @pytest.mark.long
    def test_free_once_somebody_deleted_the_directory_that_had_it(
        self, plain: Store, main_checkout: Checkout, moved_on: Checkpoint, tmp_path: Path
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", str(tmp_path / "theirs"), "topic")
        shutil.rmtree(tmp_path / "theirs")
        opened = plain.resume(moved_on)
        assert (opened.remarks, Checkout(Path(opened.path)).git("branch", "--show-current")) == (
            (),
            "topic",
        )
        assert any("theirs" in line for line in registered(main_checkout))

    def test_not_free_where_the_directory_went_along_with_the_repository(
        self, make_store: MakeStore, main_checkout: Checkout, moved_on: Checkpoint, tmp_path: Path
    ) -> None:
        main_checkout.git(
            "worktree", "add", "--quiet", str(main_checkout.path / "theirs/here"), "topic"
        )
        main_checkout.path.rename(tmp_path / "elsewhere")
        opened = make_store(tmp_path / "elsewhere").resume(moved_on)
        assert [each.partition(" in /")[0] for each in opened.remarks] == [
            "HEAD is detached: the branch topic is checked out"
        ]

    @pytest.mark.parametrize("why", ["moved", "locked"])
    def test_not_free_where_the_directory_is_elsewhere(
        self, plain: Store, main_checkout: Checkout, moved_on: Checkpoint, tmp_path: Path, why: str
    ) -> None:
        theirs = tmp_path / "theirs"
        main_checkout.git("worktree", "add", "--quiet", str(theirs), "topic")
        if why == "moved":
            theirs.rename(tmp_path / "moved")
        else:
            main_checkout.git("worktree", "lock", str(theirs))
            shutil.rmtree(theirs)
        remarks = plain.resume(moved_on).remarks
        assert [each.partition(" in /")[0] for each in remarks] == [
            "HEAD is detached: the branch topic is checked out"
        ]

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("why", "said"),
        [
            ("checked out", "is checked out in "),
            ("moved", "is at another commit now"),
            ("deleted", "is gone"),
        ],
    )
    def test_not_free(
        self,
        plain: Store,
        main_checkout: Checkout,
        moved_on: Checkpoint,
        tmp_path: Path,
        why: str,
        said: str,
    ) -> None:
        if why == "checked out":
            main_checkout.git("worktree", "add", "--quiet", str(tmp_path / "other"), "topic")
        elif why == "moved":
            main_checkout.git("branch", "--force", "topic", "main")
        else:
            main_checkout.git("branch", "-D", "topic")
        before = main_checkout.refs("refs/heads")
        opened = plain.resume(moved_on)
        assert opened.remarks[0].startswith(f"HEAD is detached: the branch topic {said}")
        there = Checkout(Path(opened.path))
        assert (there.git("branch", "--show-current"), there.git("rev-parse", "HEAD")) == (
            "",
            moved_on.git_sha,
        )
        assert main_checkout.refs("refs/heads") == before

    def test_an_older_checkpoint_is_detached(
        self, plain: Store, main_checkout: Checkout, moved_on: Checkpoint
    ) -> None:
        there = Checkout(Path(plain.resume(plain.read(str(moved_on.parent))).path))
        assert there.git("branch", "--show-current") == ""

    def test_the_branch_that_the_run_was_started_on_is_the_users(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        made = plain.record("a-started", {}, start="r")
        main_checkout.git("checkout", "--quiet", "--detach")
        opened = plain.resume(made)
        assert (opened.remarks, Checkout(Path(opened.path)).git("branch", "--show-current")) == (
            (),
            "",
        )


@pytest.mark.parametrize("along", [False, True])
def test_a_repository_that_was_moved_finds_the_worktree_of_a_run(
    plain: Store, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path, *, along: bool
) -> None:
    """A new worktree at the default path would lack the work in the existing one."""
    made = plain.record("a-complete", {}, start="r")
    before = tmp_path / "before"
    before.mkdir()
    main_checkout.path.rename(before / "project")
    with make_store(before / "project") as store:
        here = Path(store.resume(made, str(before / "here")).path)
    (here / "work").write_text("x\n")
    if along:
        before.rename(tmp_path / "after")
        here = tmp_path / "after/here"
    else:
        (before / "project").rename(tmp_path / "after")
    with make_store(tmp_path / "after/project" if along else tmp_path / "after") as store:
        opened = store.resume(made)
        assert opened == OpenResult(str(here), made=False)
        assert run_worktrees(store) == {made.run: str(here)}
    assert Checkout(here).git("status", "--porcelain") == "?? work"


def test_worktrees_of_others_are_never_touched(
    plain: Store, main_checkout: Checkout, made: Checkpoint, tmp_path: Path
) -> None:
    for name in ("alive", "gone", "moved", "locked"):
        main_checkout.git("worktree", "add", "--quiet", "-b", name, str(tmp_path / name))
    main_checkout.git("worktree", "lock", "--reason", "theirs", str(tmp_path / "locked"))
    shutil.rmtree(tmp_path / "gone")  # git worktree prune would forget it
    (tmp_path / "moved").rename(tmp_path / "moved there")
    (tmp_path / "alive" / "unsaved").write_text("x")
    before = registered(main_checkout)
    administration = main_checkout.path / ".git/worktrees"

    def others() -> dict[str, bytes]:
        names = ("alive", "gone", "moved", "locked")
        return {
            str(path): path.read_bytes()
            for name in names
            for path in sorted((administration / name).rglob("*"))
            if path.is_file()
        }

    kept = others()
    here = resumed(plain, made)
    shutil.rmtree(here.path)
    plain.resume(made)
    shutil.rmtree(administration / str(made.run))
    plain.resume(made)
    here.path.rename(here.path.parent / "moved")
    assert plain.resume(made).path == str(here.path.parent / "moved")
    assert others() == kept
    assert [line for line in registered(main_checkout) if "gitckpt" not in line] == before
    assert (tmp_path / "alive" / "unsaved").read_text() == "x"
    beside = plain.record("beside", {})
    for checkpoint, said in (
        (beside, f"{tmp_path / 'locked'} exists and is not the worktree of {beside.id}"),
        (made, f"run {made.run} has a worktree already, at {here.path.parent / 'moved'}"),
    ):
        with pytest.raises(WorktreeError) as caught:
            plain.resume(checkpoint, str(tmp_path / "locked"))
        assert caught.value.message == said
    assert made.id == nth(1)
