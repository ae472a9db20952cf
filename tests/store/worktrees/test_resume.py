"""`resume` opens the right worktree at the right path and touches no other."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Checkpoint, OpenResult, Store, WorktreeError
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, nth, view
from tests.stores import git, git_dir, owner_of, run_worktrees


def refused(store: Store, checkpoint: Checkpoint, directory: Path | None = None) -> WorktreeError:
    with pytest.raises(WorktreeError) as caught:
        store.resume(checkpoint, str(directory) if directory else None)
    return caught.value


def contents(path: Path) -> dict[str, bytes | str]:
    return {
        str(file.relative_to(path)): os.readlink(file) if file.is_symlink() else file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_symlink() or file.is_file()
    }


class TestWhere:
    def test_in_the_main_worktree_from_wherever(self, store: Store, checkout: Checkout) -> None:
        made = store.record("a-complete", {}, worktree=store.capture())
        root = checkout.main / ".ckpt"
        assert store.resume(made) == OpenResult(str(root / "worktrees" / made.id), made=True)
        assert store.resume(made) == OpenResult(str(root / "worktrees" / made.id), made=False)
        assert (root / ".gitignore").read_text() == "*\n"
        assert (
            Checkout(checkout.main).git(
                "status", "--porcelain", "--untracked-files=all", "--ignored=no"
            )
            == ""
        )
        assert store.capture() == made.worktree

    def test_what_git_keeps_of_it_is_on_the_disk(
        self, store: Store, checkout: Checkout, flushed: list[str]
    ) -> None:
        made = store.resume(store.record("a-complete", {}, worktree=store.capture()))
        kept = git_dir(Path(made.path))
        files = {kept / name for name in ("HEAD", "commondir", "gitdir", "locked", "ckpt-run")} | {
            Path(made.path) / ".git"
        }
        assert {
            str(path)
            for path in {*files, kept, kept.parent, Path(made.path), Path(made.path).parent}
        } <= set(flushed)

    def test_the_newest_of_a_run_opens_the_runs_and_an_older_one_its_own(
        self, store: Store, checkout: Checkout
    ) -> None:
        first = store.record("a-started", {}, start="r")
        second = store.record("a-complete", {}, run=first.run)
        root = checkout.main / ".ckpt" / "worktrees"
        assert store.resume(second) == OpenResult(str(root / str(first.run)), made=True)
        assert store.resume(first) == OpenResult(str(root / first.id), made=True)
        third = store.record("b-complete", {}, run=first.run)
        assert store.resume(third) == OpenResult(str(root / str(first.run)), made=False)
        assert store.resume(second) == OpenResult(str(root / second.id), made=True)
        assert store.resume(first) == OpenResult(str(root / first.id), made=False)

    def test_where_the_settings_say(self, store: Store, checkout: Checkout, tmp_path: Path) -> None:
        made = store.record("a-complete", {})
        checkout.git("config", "ckpt.worktreeDir", "../else where")
        assert store.resume(made).path == os.path.normpath(
            checkout.main / ".." / "else where" / made.id
        )
        assert not (tmp_path / "else where" / ".gitignore").exists()

    def test_where_the_caller_says(self, store: Store, tmp_path: Path) -> None:
        made = store.record("a-complete", {})
        place = tmp_path / "new" / "deep"
        assert store.resume(made, str(place)) == OpenResult(str(place), made=True)
        assert sorted(os.listdir(tmp_path / "new")) == ["deep"]

    @pytest.mark.long
    def test_a_run_has_one_wherever_it_is(
        self, store: Store, make_store: MakeStore, checkout: Checkout, tmp_path: Path
    ) -> None:
        """A second worktree would lack the run's work, and a resume could pick either."""
        made = store.record("a-complete", {}, start="r")
        first = Path(store.resume(made, str(tmp_path / "first")).path)
        (first / "work").write_text("x\n")
        assert store.resume(made) == OpenResult(str(first), made=False)
        made = make_store(Checkout(first)).save("b-complete", {}, run=made.run)
        elsewhere = tmp_path / "it's elsewhere"
        error = refused(store, made, elsewhere)
        assert (error.message, elsewhere.exists()) == (
            f"run {made.run} has a worktree already, at {first}",
            False,
        )
        cure = str(error.hint).rpartition(": ")[2]
        subprocess.run(cure, shell=True, check=True, cwd=checkout.path)
        assert (
            store.resume(made)
            == store.resume(made, str(elsewhere))
            == OpenResult(str(elsewhere), made=False)
        )
        assert (elsewhere / "work").read_text() == "x\n"
        moved = elsewhere.rename(tmp_path / "moved by hand")
        assert store.resume(made) == OpenResult(
            str(moved), made=False, remarks=(f"the worktree was moved from {elsewhere}",)
        )
        assert str(moved) in checkout.git("worktree", "list")
        shutil.rmtree(moved)
        again = store.resume(made)
        assert (again.made, Path(again.path, "work").read_text()) == (True, "x\n")

    def test_a_run_with_two_goes_on_in_the_one_that_is_asked_for(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        """The first worktree was on a missing disk when the second one was made."""
        made = plain.record("a-complete", {}, start="r")
        first, second, away = (
            str(tmp_path / name) for name in ("1 first", "2 second", "away/first")
        )
        plain.resume(made, first)
        main_checkout.git("worktree", "unlock", first)
        main_checkout.git("worktree", "lock", "--reason", "on a disk that may be taken out", first)
        os.renames(first, away)
        assert plain.resume(made, second).made
        os.renames(away, first)
        for path in (first, second):
            assert plain.resume(made, path) == OpenResult(path, made=False)

    def test_no_move_is_advised_that_git_refuses(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        made = plain.record("a-complete", {}, start="r")
        first = plain.resume(made).path
        (tmp_path / "is there").mkdir()
        assert "worktree move" in str(refused(plain, made, tmp_path / "second").hint)
        assert (
            refused(plain, made, tmp_path / "is there").hint
            == "omit the directory to continue in that worktree"
        )
        main_checkout.git("clone", "--quiet", str(main_checkout.path), str(tmp_path / "lib"))
        main_checkout.git(
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            str(tmp_path / "lib"),
            "lib",
        )
        assert (
            refused(plain, made, tmp_path / "second").hint
            == "omit the directory to continue in that worktree"
        )
        assert plain.resume(made) == OpenResult(first, made=False)

    def test_the_one_of_a_copy_of_the_repository_is_not_that_of_the_original(
        self, plain: Store, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        made = plain.record("a-complete", {}, start="r")
        original = plain.resume(made, str(tmp_path / "original"))
        shutil.copytree(main_checkout.path, tmp_path / "copy", symlinks=True)
        copied = make_store(Checkout(tmp_path / "copy"))
        assert run_worktrees(plain) == {made.run: original.path}
        assert run_worktrees(copied) == {}

    def test_a_bare_repository_asks_for_a_directory(
        self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
        store = make_store(tmp_path / "bare")
        made = store.record("a-complete", {})
        error = refused(store, made)
        assert error.message == f"no directory for worktrees: {tmp_path / 'bare'} is bare"
        assert error.hint == (
            "choose a directory: git config ckpt.worktreeDir DIR, or git ckpt resume ID --into DIR"
        )
        opened = store.resume(made, str(tmp_path / "here"))
        assert (Path(opened.path) / "README").read_text() == "hello\n"
        inner = make_store(opened.path)
        second = inner.save("b-complete", {})
        assert inner.resume(second, str(tmp_path / "there")).made

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        "name",
        ["a b", 'it\'s "quoted"', "new\nline", "日本 ü", "$HOME `x`; *", "-dash", "caf\udce9"],
    )
    def test_whatever_the_repository_is_called(
        self,
        make_store: MakeStore,
        make_checkout: Callable[..., Checkout],
        tmp_path: Path,
        name: str,
    ) -> None:
        checkout = make_checkout("plain")
        checkout.path.rename(tmp_path / name)
        checkout = Checkout(tmp_path / name)
        checkout.commit("first", README="hello\n")
        checkout.write("README", "changed\n")
        checkout.write("new", "x")
        store = make_store(checkout)
        made = store.record("a-complete", {}, worktree=store.capture(), start="r")
        opened = store.resume(made)
        assert opened == OpenResult(
            str(tmp_path / name / ".ckpt" / "worktrees" / str(made.run)), made=True
        )
        assert view(opened.path) == view(checkout.path)
        inner = make_store(opened.path)
        second = inner.record("b-complete", {}, worktree=inner.capture(), run=made.run)
        assert (second.sequence, inner.resume(second), store.find("latest:any")) == (
            2,
            OpenResult(opened.path, made=False),
            second.id,
        )


class TestBrokenByThoseWhoWorkInIt:
    def test_a_broken_worktree_is_in_nobody_elses_way(
        self, store: Store, checkout: Checkout
    ) -> None:
        broken, replaced, later = (
            store.record("a-complete", {}, start=name) for name in ("broken", "replaced", "later")
        )
        inside_of_it, gone = (Path(store.resume(made).path) for made in (broken, replaced))
        (inside_of_it / ".git").unlink()
        Checkout(inside_of_it).git("init", "--quiet")
        shutil.rmtree(gone)
        gone.write_text("no directory")
        assert store.resume(later).made
        assert not store.resume(later).made

    def test_a_worktree_without_its_git_file_comes_back_as_it_is_told(self, store: Store) -> None:
        made = store.record("a-complete", {}, start="r")
        path = Path(store.resume(made).path)
        (path / ".git").unlink()
        (path / "work").write_text("more")
        error = refused(store, made)
        assert error.message == f"{path} is a worktree of gitckpt whose .git is gone"
        assert error.hint == (
            "to continue with its files: git worktree repair; or move it away: "
            f"mv {path} {path}.old"
        )
        git(store, "worktree", "repair")
        assert store.resume(made) == OpenResult(str(path), made=False)
        assert (path / "work").read_text() == "more"

    def test_a_repository_in_its_place_is_moved_out_of_the_way(self, store: Store) -> None:
        made = store.record("a-complete", {}, start="r")
        path = Path(store.resume(made).path)
        (path / ".git").unlink()
        Checkout(path).git("init", "--quiet")
        error = refused(store, made)
        assert error.message == f"{path} is a worktree of gitckpt whose .git is not a regular file"
        assert error.hint == f"move it away: mv {path} {path}.old"
        path.rename(f"{path}.old")
        assert store.resume(made) == OpenResult(str(path), made=True)


class TestWhatItIs:
    def test_detached_locked_and_owned(
        self, store: Store, checkout: Checkout, make_store: MakeStore
    ) -> None:
        made = store.record("a-complete", {}, start="r")
        opened = store.resume(made)
        listing = checkout.git("worktree", "list", "--porcelain").split("\n\n")
        assert listing[-1].splitlines() == [
            f"worktree {opened.path}",
            f"HEAD {made.git_sha}",
            "detached",
            f"locked gitckpt {made.run}",
        ]
        assert owner_of(make_store(opened.path)) == (made.id, made.run)
        assert owner_of(store) is None
        git_dir = Checkout(Path(opened.path)).git("rev-parse", "--absolute-git-dir")
        assert os.path.basename(git_dir) == made.run

    def test_nothing_else_changes(self, store: Store, checkout: Checkout) -> None:
        checkout.write("README", "changed\n")
        checkout.write("new", "x")
        made = store.record("a-complete", {}, worktree=store.capture(), start="r")
        before = checkout.fingerprint()
        store.resume(made)
        after = checkout.fingerprint()
        for one in (before, after):
            del one["worktrees"]
            files = one["files"]
            assert isinstance(files, dict)
            one["files"] = {
                name: content for name, content in files.items() if not name.startswith(".ckpt")
            }
        assert after == before

    def test_clean_and_unexamined_ones_are_the_commit(
        self, store: Store, checkout: Checkout
    ) -> None:
        checkout.write("README", "not looked at\n")
        made = store.record("a-complete", {})
        path = Path(store.resume(made).path)
        assert (sorted(contents(path)), (path / "README").read_text()) == (
            [".git", "README"],
            "hello\n",
        )
        assert Checkout(path).git("status", "--porcelain=v2") == ""

    def test_the_state_of_a_run_goes_on_in_it(
        self, store: Store, make_store: MakeStore, checkout: Checkout
    ) -> None:
        made = store.record("a-complete", {"n": 1}, worktree=store.capture(), start="r")
        path = store.resume(made).path
        Checkout(Path(path)).commit("work", work="done\n")
        inner = make_store(path)
        second = inner.record("b-complete", worktree=inner.capture(), run=made.run)
        assert (second.sequence, second.branch, store.read(second.id).state) == (2, None, {"n": 1})
        assert second.git_sha != checkout.git("rev-parse", "HEAD")


class TestWhatIsThereAlready:
    def test_unsaved_work_stays(self, store: Store, checkout: Checkout) -> None:
        checkout.write("new", "x")
        made = store.record("a-complete", {}, worktree=store.capture(), start="r")
        path = Path(store.resume(made).path)
        (path / "README").write_text("unsaved\n")
        (path / "new").unlink()
        Checkout(path).write("staged", "s")
        Checkout(path).git("add", "staged")
        before = view(path)
        newer = store.record("b-complete", {}, worktree=store.capture(), run=made.run)
        assert store.resume(newer) == OpenResult(str(path), made=False)
        assert view(path) == before

    @pytest.mark.parametrize(
        "kind",
        [
            "file",
            "directory",
            "empty directory",
            "dangling link",
            "repository",
            "foreign worktree",
            "main",
        ],
    )
    def test_what_is_not_ours_is_not_touched(
        self,
        plain: Store,
        main_checkout: Checkout,
        make_checkout: Callable[..., Checkout],
        tmp_path: Path,
        kind: str,
    ) -> None:
        made = plain.record("a-complete", {})
        place = tmp_path / "place"
        if kind == "file":
            place.write_text("mine")
        elif kind == "dangling link":
            place.symlink_to("nowhere")
        elif kind == "repository":
            make_checkout("place").commit("theirs")
        elif kind == "foreign worktree":
            main_checkout.git("worktree", "add", "--quiet", str(place))
        elif kind == "main":
            place = main_checkout.path
        else:
            place.mkdir()
            if kind == "directory":
                (place / "mine").write_text("mine")
        before = (
            main_checkout.fingerprint(),
            contents(place) if place.is_dir() else os.lstat(place).st_mtime_ns,
        )
        error = refused(plain, made, place)
        assert error.message == f"{place} exists and is not the worktree of {made.id}"
        assert (
            error.hint
            == "move that away, or choose another directory: git ckpt resume ID --into DIR"
        )
        assert (
            main_checkout.fingerprint(),
            contents(place) if place.is_dir() else os.lstat(place).st_mtime_ns,
        ) == before
        assert sorted(os.listdir(tmp_path)) == sorted({"project", place.name})

    def test_the_worktree_of_another_checkpoint(self, plain: Store, tmp_path: Path) -> None:
        first, second = plain.record("a-complete", {}), plain.record("b-complete", {})
        plain.resume(first, str(tmp_path / "place"))
        assert (
            refused(plain, second, tmp_path / "place").message
            == f"{tmp_path / 'place'} exists and is not the worktree of {second.id}"
        )
        assert plain.resume(first, str(tmp_path / "place")) == OpenResult(
            str(tmp_path / "place"), made=False
        )

    def test_the_runs_worktree_does_not_stand_for_an_older_checkpoint(
        self, plain: Store, tmp_path: Path
    ) -> None:
        first = plain.record("a-started", {}, start="r")
        place = tmp_path / "place"
        plain.resume(first, str(place))
        second = plain.record("a-complete", {}, run=first.run)
        assert plain.resume(second, str(place)) == OpenResult(str(place), made=False)
        assert (
            refused(plain, first, place).message
            == f"{place} exists and is not the worktree of {first.id}"
        )

    def test_one_that_does_not_say_whose_it_is(self, plain: Store, main_checkout: Checkout) -> None:
        made = plain.record("a-complete", {}, start="r")
        path = Path(plain.resume(made).path)
        (path / "work").write_text("unsaved")
        (main_checkout.path / ".git" / "worktrees" / str(made.run) / "ckpt-run").unlink()
        error = refused(plain, made)
        assert error.message == f"{path} is a worktree of gitckpt that names no run or checkpoint"
        assert error.hint == (
            "copy the files that you need, then remove it: "
            f"git worktree remove --force --force {path}"
        )
        assert (path / "work").read_text() == "unsaved"
        main_checkout.git("worktree", "remove", "--force", "--force", str(path))
        assert plain.resume(made) == OpenResult(str(path), made=True)

    def test_one_whose_directory_was_deleted_by_hand(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.write("new", "x")
        made = plain.record("a-complete", {}, worktree=plain.capture(), start="r")
        path = Path(plain.resume(made).path)
        for file in sorted(path.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        path.rmdir()
        assert plain.resume(made) == OpenResult(str(path), made=True)
        assert view(path) == view(main_checkout.path)
        listing = main_checkout.git("worktree", "list", "--porcelain").splitlines()
        assert [line for line in listing if line.startswith("worktree ")] == [
            f"worktree {main_checkout.path}",
            f"worktree {path}",
        ]

    def test_one_with_submodules(
        self, plain: Store, main_checkout: Checkout, make_checkout: Callable[..., Checkout]
    ) -> None:
        inner = make_checkout("inner")
        inner.commit("first", inside="x")
        main_checkout.git("submodule", "--quiet", "add", str(inner.path), "sub")
        main_checkout.git("commit", "--quiet", "--message", "with a submodule")
        main_checkout.write("new", "x")
        made = plain.record("a-complete", {}, worktree=plain.capture())
        path = Path(plain.resume(made).path)
        assert Checkout(path).git("ls-files", "--stage") == main_checkout.git("ls-files", "--stage")
        assert sorted(contents(path)) == [
            ".git",
            ".gitmodules",
            "README",
            "new",
            "sub/.git",
            "sub/inside",
        ]


class TestWhatIsMissing:
    def test_the_linked_commit(self, plain: Store, main_checkout: Checkout) -> None:
        commit = main_checkout.commit("second")
        made = plain.record("a-complete", {})
        (main_checkout.path / ".git" / "objects" / commit[:2] / commit[2:]).unlink()
        error = refused(plain, made)
        assert error.message == f"commit {commit} of checkpoint {made.id} is missing"
        assert (
            error.hint
            == "fetch the commit from a clone that has it, or find the cause: git ckpt verify"
        )
        assert not (main_checkout.path / ".ckpt").exists()

    def test_the_snapshot(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.write("new", "x")
        made = plain.save("a-complete", {})
        tree = made.tree or ""
        assert tree
        (main_checkout.path / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
        error = refused(plain, made)
        assert (error.message, error.hint) == (
            f"the files {tree} of checkpoint {made.id} are missing",
            "find the cause: git ckpt verify",
        )
        assert not (main_checkout.path / ".ckpt").exists()

    def test_a_file_of_the_snapshot(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.write("new", "x")
        made = plain.save("a-complete", {})
        oid = main_checkout.git("rev-parse", f"refs/ckpt/trees/{made.id}:files/new")
        (main_checkout.path / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
        before = main_checkout.fingerprint()
        error = refused(plain, made)
        assert oid in error.message or "new" in error.message
        after = main_checkout.fingerprint()
        assert (after["worktrees"], after["refs"]) == (before["worktrees"], before["refs"])
        assert os.listdir(main_checkout.path / ".ckpt" / "worktrees") == []

    def test_the_place(self, plain: Store, tmp_path: Path) -> None:
        made = plain.record("a-complete", {})
        (tmp_path / "file").write_text("x")
        error = refused(plain, made, tmp_path / "file" / "below")
        assert error.message.startswith(f"cannot make {tmp_path / 'file'}: ")

    def test_a_run_that_is_gone_meanwhile(self, plain: Store) -> None:
        made = plain.record("a-complete", {}, start="r")
        plain.remove([made.id])
        assert plain.resume(made).path.endswith(made.id)


class TestUnborn:
    def test_on_its_branch_where_that_is_free(
        self, make_store: MakeStore, make_checkout: Callable[..., Checkout]
    ) -> None:
        checkout = make_checkout()
        checkout.write("draft", "x")
        store = make_store(checkout)
        made = store.save("a-complete", {})
        checkout.git("symbolic-ref", "HEAD", "refs/heads/other")
        there = Checkout(Path(store.resume(made).path))
        assert (there.git("branch", "--show-current"), there.git("status", "--porcelain")) == (
            "main",
            "?? draft",
        )

    def test_beside_its_branch_where_that_was_started(
        self, make_store: MakeStore, make_checkout: Callable[..., Checkout]
    ) -> None:
        checkout = make_checkout()
        checkout.write("draft", "x")
        store = make_store(checkout)
        made = store.save("a-complete", {})
        head = checkout.commit("first")
        there = Checkout(Path(store.resume(made).path))
        assert there.git("branch", "--show-current") == f"ckpt/{nth(1)[:8]}"
        assert checkout.refs("refs/heads") == {"refs/heads/main": head}
