"""Captures skip git's own directory, whatever its name, and bare repositories."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Limits, Store
from tests.conftest import Checkout
from tests.store.conftest import MakeStore
from tests.stores import LeftOut, left_out

NESTED = "an embedded repository: not captured"


@pytest.fixture
def moved(main_checkout: Checkout) -> Checkout:
    """A worktree whose repository is in its subdirectory `.cfg`."""
    main_checkout.git("init", "--quiet", f"--separate-git-dir={main_checkout.path / '.cfg'}")
    return main_checkout


def names(here: Checkout, tree: str | None) -> list[str]:
    return here.git("ls-tree", "-r", "--name-only", f"{tree}:files").splitlines()


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()
    }


@pytest.mark.long
def test_a_git_directory_of_another_name_is_not_captured(
    moved: Checkout, make_store: MakeStore
) -> None:
    store = make_store(moved)
    moved.write("new", "1\n")
    made = store.save("a-complete", {})
    assert made.worktree is not None
    assert (made.worktree.omitted, names(moved, made.tree)) == ((), ["README", "new"])
    assert "directories" not in moved.git("ls-tree", "--name-only", str(made.tree)).split()
    assert names(moved, store.capture(Limits(include=("*",))).tree) == ["README", "new"]
    moved.commit("later", later="1\n")
    moved.write("new", "2\n")
    store.restore(made)
    assert (moved.path / "new").read_text() == "1\n"
    store.undo()
    store.redo()
    store.restore(made, [b"new"])
    assert moved.git("fsck", "--no-dangling") == ""


@pytest.mark.long
@pytest.mark.parametrize("how", ["variables", "core.worktree"])
def test_dotfiles_are_saved_and_restored(
    main_checkout: Checkout, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, git_dir = tmp_path / "dot home", tmp_path / "dot home/.config/vcsh/repo.d/dot.git"
    (home / "Documents").mkdir(parents=True)
    main_checkout.git("init", "--quiet", "--bare", str(git_dir))
    main_checkout.git("init", "--quiet", "--bare", str(git_dir.parent / "other.git"))
    monkeypatch.setenv("GIT_DIR", str(git_dir))
    if how == "variables":
        monkeypatch.setenv("GIT_WORK_TREE", str(home))
    else:
        main_checkout.git("config", "core.bare", "false")
        main_checkout.git("config", "core.worktree", str(home))
    monkeypatch.chdir(home)
    here = Checkout(home)
    here.git("config", "status.showUntrackedFiles", "no")
    here.write(".bashrc", "1\n")
    here.git("add", ".bashrc")
    here.git("commit", "--quiet", "--message", "one")
    here.write(".bashrc", "2\n")
    with Store.open() as store:
        made = store.save("a-complete", {})
        assert made.worktree is not None
        assert names(here, made.tree) == [".bashrc"]
        assert left_out(made.worktree) == (LeftOut(".config/vcsh/repo.d/other.git/", NESTED),)
        here.write(".bashrc", "3\n")
        here.git("commit", "--quiet", "--all", "--message", "three")
        assert store.restore(made).kept == {}
        assert (home / ".bashrc").read_text() == "2\n"
        store.undo()
        assert (home / ".bashrc").read_text() == "3\n"
        opened = store.resume(made, str(tmp_path / "opened"))
    assert (Path(opened.path) / ".bashrc").read_text() == "2\n"


def test_what_an_older_checkpoint_has_in_the_git_directory_is_left_out(
    moved: Checkout, make_store: MakeStore, tmp_path: Path
) -> None:
    moved.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "side"))
    side = Checkout(tmp_path / "side", moved.path)
    side.write(".cfg/hooks/post-commit", "#!/bin/sh\ntouch ran\n")
    side.write(".cfg/config", "[core]\n")
    (side.path / ".cfg/made").mkdir()
    side.write("new", "1\n")
    made = make_store(side).save("a-complete", {})
    assert len(names(moved, made.tree)) == 4
    before = contents(moved.path / ".cfg/hooks"), (moved.path / ".cfg/config").read_bytes()
    store = make_store(moved)
    done = store.restore(made)
    assert done.remarks == [
        "files inside of another repository are not restored: .cfg/config, .cfg/hooks/post-commit"
    ]
    assert (
        contents(moved.path / ".cfg/hooks"),
        (moved.path / ".cfg/config").read_bytes(),
    ) == before
    assert ((moved.path / "new").read_text(), (moved.path / ".cfg/made").exists()) == ("1\n", False)
    store.undo()
    assert not (moved.path / "new").exists()


def test_a_bare_repository_is_listed_and_left_alone(
    store: Store, checkout: Checkout, make_checkout: Callable[..., Checkout]
) -> None:
    made = store.save("a-complete", {})
    inner = make_checkout("inner")
    head = inner.commit("first")
    (checkout.path / "deep").mkdir()
    shutil.move(inner.path / ".git", checkout.path / "deep/srv.git")
    checkout.git("init", "--quiet", "--bare", "deep/srv.git/within.git")
    checkout.write("deep/file", "x")
    found = store.capture()
    assert left_out(found) == (LeftOut("deep/srv.git/", NESTED, oid=head),)
    assert names(checkout, found.tree) == ["README", "deep/file"]
    assert "directories" not in checkout.git("ls-tree", "--name-only", str(found.tree)).split()
    before = contents(checkout.path / "deep/srv.git")
    store.restore(made)
    assert not (checkout.path / "deep/file").exists()
    assert contents(checkout.path / "deep/srv.git") == before


def test_restore_writes_no_files_into_a_bare_repository(
    plain: Store, main_checkout: Checkout
) -> None:
    main_checkout.write("srv.git/HEAD", "ref: refs/heads/gone\n")
    main_checkout.write("srv.git/refs/heads/gone", "0" * 40)
    made = plain.save("a-complete", {})
    assert len(names(main_checkout, made.tree)) == 3  # it has no objects
    shutil.rmtree(main_checkout.path / "srv.git")
    main_checkout.git("init", "--quiet", "--bare", "srv.git")
    before = contents(main_checkout.path / "srv.git")
    done = plain.restore(made)
    assert done.remarks == [
        "files inside of another repository are not restored: srv.git/HEAD, srv.git/refs/heads/gone"
    ]
    assert contents(main_checkout.path / "srv.git") == before


def test_a_bare_repository_that_is_tracked_is_captured(
    plain: Store, main_checkout: Checkout
) -> None:
    """Some projects keep bare repositories as test fixtures."""
    main_checkout.git("init", "--quiet", "--bare", "fixture.git")
    main_checkout.write("fixture.git/refs/heads/main", "0" * 40)
    main_checkout.git("add", "--all")
    main_checkout.git("commit", "--quiet", "--message", "fixture")
    main_checkout.write("fixture.git/HEAD", "ref: refs/heads/other\n")
    main_checkout.write("fixture.git/new", "x")
    found = plain.capture()
    assert found.omitted == ()
    assert "fixture.git/new" in names(main_checkout, found.tree)
