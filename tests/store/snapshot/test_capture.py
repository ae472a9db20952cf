"""A capture leaves the user's index alone and survives its damage and time limits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gitckpt import Limits, Store, Worktree, WorktreeError
from tests.cli.conftest import PROJECT
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, view
from tests.stores import LeftOut, left_out, private_dir


def captured(checkout: Checkout, files: Worktree) -> dict[str, str]:
    """Return the content of each file in a snapshot."""
    listing = checkout.git("ls-tree", "-r", "--name-only", "-z", f"{files.tree}:files").split("\0")[
        :-1
    ]
    return {
        name: checkout.git("cat-file", "blob", f"{files.tree}:files/{name}") for name in listing
    }


def kept(checkout: Checkout) -> dict[str, object]:
    """Return all files of the repository except objects and derived data.

    The index comes with its inode and modification time.
    """
    git_dir = Path(checkout.git("rev-parse", "--absolute-git-dir"))
    common = Path(checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir"))
    found: dict[str, object] = {
        str(path): path.read_bytes()
        for path in sorted(common.rglob("*"))
        if path.is_file() and path.relative_to(common).parts[0] not in ("objects", "ckpt")
    }
    status = (git_dir / "index").stat()
    return found | {
        "index": (status.st_ino, status.st_mtime_ns),
        "stash": checkout.git("stash", "list"),
    }


@pytest.fixture
def adapter(checkout: Checkout) -> str:
    """Use libgit2 in the main worktree and plumbing in the linked one.

    Two of the four combinations suffice.
    """
    return "libgit2" if checkout.path == checkout.main else "plumbing"


class TestTheUsersOwn:
    def test_index_head_refs_and_stash_stay_byte_for_byte(
        self, store: Store, checkout: Checkout
    ) -> None:
        checkout.write("README", "stashed\n")
        checkout.git("stash", "push", "--quiet")
        checkout.write("staged", "s\n")
        checkout.git("add", "staged")
        checkout.write("README", "changed\n")
        os.utime(checkout.path / "staged", (5, 5))  # git would like to refresh its index now
        before = kept(checkout)
        files = store.capture()
        assert kept(checkout) == before
        assert captured(checkout, files) == {"README": "changed", "staged": "s"}
        store.record("a-complete", {}, worktree=files)
        after = kept(checkout)
        assert {name: after[name] for name in before} == before

    def test_what_other_programs_keep_in_an_index_is_left_there(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.git("config", "core.splitIndex", "true")
        main_checkout.git("config", "core.untrackedCache", "true")
        main_checkout.git("update-index", "--split-index", "--untracked-cache")
        main_checkout.write("new", "x\n")
        before = kept(main_checkout)
        assert captured(main_checkout, plain.capture()) == {"README": "hello", "new": "x"}
        assert kept(main_checkout) == before


class TestAnIndex:
    @pytest.mark.parametrize("damage", ["garbage", "cut off", "empty"])
    def test_that_is_corrupt_is_named_and_the_files_are_captured(
        self, store: Store, checkout: Checkout, damage: str
    ) -> None:
        checkout.write("staged", "s\n")
        checkout.git("add", "staged")
        checkout.write("README", "changed\n")
        index = Path(checkout.git("rev-parse", "--absolute-git-dir")) / "index"
        whole = index.read_bytes()
        index.write_bytes(
            {"garbage": b"x" * 200, "cut off": whole[: len(whole) // 2], "empty": b""}[damage]
        )
        broken = index.read_bytes()
        files = store.capture()
        assert left_out(files) == (
            LeftOut(".git/index", "git cannot read the index, so staged changes are not captured"),
        )
        assert captured(checkout, files) == {"README": "changed", "staged": "s"}
        assert index.read_bytes() == broken
        made = store.record("a-complete", {}, worktree=files)
        assert store.read(made.id).worktree == files
        there = Checkout(Path(store.resume(made).path))
        assert there.git("status", "--porcelain") == " M README\n?? staged"

    def test_that_is_corrupt_with_nothing_changed(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        (main_checkout.path / ".git/index").write_bytes(b"x" * 200)
        files = plain.capture()
        assert files == Worktree(dirty=False, omitted=files.omitted)
        assert left_out(files) == (
            LeftOut(".git/index", "git cannot read the index, so staged changes are not captured"),
        )

    def test_that_is_locked(self, store: Store, checkout: Checkout) -> None:
        checkout.write("README", "staged\n")
        checkout.git("add", "README")
        checkout.write("README", "changed\n")
        expected = view(checkout.path)
        lock = Path(checkout.git("rev-parse", "--absolute-git-dir")) / "index.lock"
        lock.write_text("somebody else's")
        made = store.save("a-complete", {})
        assert lock.read_text() == "somebody else's"
        assert view(store.resume(made).path) == expected

    def test_that_is_missing(self, store: Store, checkout: Checkout) -> None:
        index = Path(checkout.git("rev-parse", "--absolute-git-dir")) / "index"
        index.unlink()
        files = store.capture()
        assert not index.exists()
        assert (captured(checkout, files), files.omitted) == ({"README": "hello"}, ())
        made = store.record("a-complete", {}, worktree=files)
        assert view(store.resume(made).path) == view(
            checkout.path
        )  # git counts every file as deleted in it


class TestFlags:
    def test_entries_assumed_to_be_unchanged_are_looked_at(
        self, store: Store, checkout: Checkout
    ) -> None:
        checkout.commit("more", same="same\n", gone="gone\n")
        checkout.git("update-index", "--assume-unchanged", "README", "same", "gone")
        checkout.write("README", "changed in secret\n")
        (checkout.path / "gone").unlink()
        assert captured(checkout, store.capture()) == {
            "README": "changed in secret",
            "same": "same",
        }
        assert checkout.git("ls-files", "-v") == "h README\nh gone\nh same"

    def test_entries_to_be_skipped_without_a_sparse_checkout(
        self, store: Store, checkout: Checkout
    ) -> None:
        checkout.commit("more", gone="gone\n", same="same\n")
        checkout.git("update-index", "--skip-worktree", "README", "same", "gone")
        checkout.write("README", "a password of my own\n")
        (checkout.path / "gone").unlink()
        files = store.capture()
        assert captured(checkout, files) == {
            "README": "a password of my own",
            "gone": "gone",
            "same": "same",
        }
        there = Path(store.resume(store.record("a-complete", {}, worktree=files)).path)
        assert view(there) == view(checkout.path)
        assert sorted(path.name for path in there.iterdir()) == [".git", "README", "same"]


@pytest.mark.parametrize("victim", ["z-new", "z-tracked", "z-directory"])
def test_a_file_that_vanishes_meanwhile_is_not_there(
    plain: Store, main_checkout: Checkout, victim: str
) -> None:
    main_checkout.write("z-directory/inside", "x\n")
    main_checkout.write(".gitattributes", "a.dat filter=thief\n")
    main_checkout.commit("more", **{"z-tracked": "x\n", "a.dat": "a\n"})
    main_checkout.git(
        "config", "filter.thief.clean", f"rm -rf '{main_checkout.path / victim}'; cat"
    )
    for name in ("a.dat", "z-new", "z-tracked", "z-directory/inside", "z-directory/new"):
        main_checkout.write(name, "changed\n")
    files = plain.capture()
    names = {
        ".gitattributes",
        "README",
        "a.dat",
        "z-new",
        "z-tracked",
        "z-directory/inside",
        "z-directory/new",
    }
    assert captured(main_checkout, files).keys() == {
        name for name in names if not name.startswith(victim)
    }
    assert files.omitted == ()


class TestTime:
    @pytest.fixture
    def slow(self, main_checkout: Checkout, tmp_path: Path) -> int:
        """A filter that needs 30 seconds for a changed file.

        Return the reading end of a pipe that all processes of the filter hold open.
        """
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        for name, text in ((".gitattributes", "*.slow filter=slow\n"), ("a.slow", "one\n")):
            # With an old time: git reads a file again that is as young as the index.
            os.utime(main_checkout.write(name, text), (1_000_000_000, 1_000_000_000))
        main_checkout.git("add", ".")
        main_checkout.git("commit", "--quiet", "-m", "rules")
        main_checkout.git(
            "config", "filter.slow.clean", f"exec 3>'{pipe}'; sleep 30; echo survived >&3; cat"
        )
        main_checkout.write("new", "x")
        return reader

    @pytest.mark.long
    @pytest.mark.parametrize("where", ["while git looks", "while files are read"])
    def test_that_runs_out_leaves_no_files_and_no_processes(
        self, plain: Store, main_checkout: Checkout, slow: int, where: str
    ) -> None:
        main_checkout.write("a.slow" if where == "while git looks" else "b.slow", "two\n")
        before = kept(main_checkout)
        files = plain.capture(Limits(timeout=3))
        os.set_blocking(slow, True)
        assert os.read(slow, 100) == b""  # waits for the last process that holds the other end
        os.close(slow)
        left_out = {
            "while git looks": "which files have changed is unknown",
            "while files are read": "left out: 2 untracked ('b.slow', 'new')",
        }
        said = f"capturing the files took more than 3 seconds; {left_out[where]}"
        assert files == Worktree(dirty=True, degraded=said)
        assert kept(main_checkout) == before
        assert [
            name
            for name in os.listdir(private_dir(plain))
            if name.startswith("index.") and "sqlite" not in name
        ] == []

    @pytest.mark.long
    def test_that_runs_out_is_told_with_the_names_of_changed_files(
        self, plain: Store, main_checkout: Checkout, slow: int
    ) -> None:
        os.close(slow)
        main_checkout.write("README", "changed\n")
        main_checkout.write("staged", "x")
        main_checkout.git("add", "staged")
        main_checkout.write("\x1b]0;owned\x07\n", "x")
        for name in ("é", "x" * 200, "c.slow"):
            main_checkout.write(name, "x")
        left_out = str(plain.capture(Limits(timeout=3)).degraded).partition("left out: ")[2]
        assert left_out == (
            "2 changed ('README', 'staged'), "
            "5 untracked ('\\x1b]0;owned\\x07\\n', 'c.slow', 'new' and 2 more)"
        )

    def test_that_runs_out_is_told_wherever_the_checkpoint_is_used(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        main_checkout.write("README", "changed\n")
        made = plain.record("a-complete", {}, worktree=plain.capture(Limits(timeout=0)))
        assert made.worktree is not None
        said = str(made.worktree.degraded)
        assert said.startswith("capturing the files took more than 0 seconds; ")
        assert plain.read(made.id).worktree == made.worktree == Worktree(dirty=True, degraded=said)
        before = main_checkout.fingerprint()
        with pytest.raises(WorktreeError) as caught:
            plain.restore(made)
        assert (caught.value.exit_code, caught.value.message) == (
            14,
            f"checkpoint {made.id} has no files: {said}",
        )
        assert caught.value.hint == (
            f"the files of its commit: git restore --source={made.git_sha[:10]} --staged "
            "--worktree ."
        )
        assert main_checkout.fingerprint() == before
        opened = plain.resume(made)
        assert (opened.made, opened.remarks) == (
            True,
            (f"the worktree has the files of the commit only: {said}",),
        )
        assert (Path(opened.path) / "README").read_text() == "hello\n"
        assert Checkout(Path(opened.path)).git("status", "--porcelain") == ""

    def test_that_runs_out_on_a_commit_to_be(self, make_store: MakeStore, tmp_path: Path) -> None:
        subprocess.run(["git", "init", "--quiet", str(tmp_path / "new")], check=True)
        (tmp_path / "new/draft").write_text("x")
        store = make_store(tmp_path / "new")
        made = store.record("a-complete", {}, worktree=store.capture(Limits(timeout=0)))
        with pytest.raises(WorktreeError) as caught:
            store.restore(made)
        assert caught.value.hint is None or "--source= " not in caught.value.hint
        assert os.listdir(store.resume(made).path) == [".git"]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_no_unchanged_file_is_opened(main_checkout: Checkout, tmp_path: Path) -> None:
    for number in range(300):
        path = main_checkout.write(f"directory-{number % 10}/file-{number:03}", f"{number}\n")
        os.utime(path, (1_700_000_000, 1_700_000_000))
    main_checkout.git("add", "--all")
    main_checkout.git("commit", "--quiet", "--message", "many")
    changed = {"file-007", "file-150"}
    for name in changed:
        main_checkout.write(f"directory-{int(name[-1])}/{name}", "changed\n")
    main_checkout.write("directory-3/file-new", "new\n")
    log = tmp_path / "strace"
    argv = [sys.executable, "-m", "gitckpt", "save"]
    traced = ["strace", "-f", "-e", "trace=open,openat,openat2", "-o", str(log), *argv]
    subprocess.run(
        traced,
        cwd=main_checkout.path,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        check=True,
        capture_output=True,
    )
    opened = re.findall(r"\"(?:[^\"]*/)?(file-[^\"/]*)\"", log.read_text())
    assert set(opened) == changed | {"file-new"}
    assert max(opened.count(name) for name in opened) <= 2


def test_a_clean_worktree_is_not_read_at_all(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.git(
        "config", "filter.loud.clean", f"touch '{main_checkout.path / '.git' / 'called'}'; cat"
    )
    main_checkout.commit("rules", **{".gitattributes": "*.loud filter=loud\n", "a.loud": "one\n"})
    os.utime(main_checkout.path / "a.loud", (1_700_000_000, 1_700_000_000))
    main_checkout.git("update-index", "--refresh")
    (main_checkout.path / ".git/called").unlink()
    assert plain.capture() == Worktree(dirty=False)
    assert not (main_checkout.path / ".git/called").exists()
