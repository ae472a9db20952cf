"""Restore makes the worktree equal the checkpoint, and undo takes that back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt import NotFoundError, Position, RestoreResult, Store, WorktreeError
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, nth, require_whole, view
from tests.stores import git_dir


def prepare(here: Checkout) -> None:
    """Make one change of each kind."""
    here.commit(
        "more", kept="kept\n", gone="gone\n", staged="s\n", link="x\n", **{".gitignore": "*.o\n"}
    )
    here.write("a.o", "ignored\n")
    here.write("README", "staged\n")
    here.git("add", "README")
    here.write("README", "changed\n")
    (here.path / "gone").unlink()
    (here.path / "link").unlink()
    (here.path / "link").symlink_to("README")
    here.write("new dir/tool", "#!/bin/sh\n").chmod(0o755)
    here.git("rm", "--quiet", "--cached", "staged")


def disturb(here: Checkout) -> None:
    """Change everything that `prepare` made."""
    here.git("reset", "--quiet", "--hard")
    here.git("clean", "--quiet", "--force", "-d")
    here.write("README", "something else\n")
    here.write("added later", "x\n")
    here.write("new dir", "a file now\n")
    here.git("add", "new dir")


def merge(here: Checkout) -> None:
    base = here.git("rev-parse", "HEAD")
    here.commit("ours", README="ours\n", kept="k\n")
    here.git("checkout", "--quiet", "-b", "theirs", base)
    here.commit("theirs", README="theirs\n", other="o\n")
    here.git("checkout", "--quiet", "-")
    here.git("merge", "theirs", ok=(1,))


def changes(done: RestoreResult) -> list[tuple[str, bytes]]:
    return [(change.kind, change.path) for change in done.changes]


def looks(here: Checkout) -> dict[str, tuple[int, int]]:
    """Return inode and time of each file."""
    files = [
        path
        for path in here.path.rglob("*")
        if not path.is_dir() and ".git" not in path.relative_to(here.path).parts
    ]
    return {
        str(path.relative_to(here.path)): (path.lstat().st_ino, path.lstat().st_mtime_ns)
        for path in files
    }


@pytest.fixture
def adapter(checkout: Checkout) -> str:
    """libgit2 in the main worktree, plumbing in the linked one."""
    return "libgit2" if checkout.path == checkout.main else "plumbing"


class TestAll:
    @pytest.mark.long
    def test_there_and_back_and_there_again(self, store: Store, checkout: Checkout) -> None:
        prepare(checkout)
        wanted = view(checkout.path)
        made = store.save("a-complete", {"n": 1})
        disturb(checkout)
        other = view(checkout.path)
        head, refs = (
            checkout.git("rev-parse", "--abbrev-ref", "HEAD"),
            checkout.refs("refs/heads", "refs/stash"),
        )
        done = store.restore(made)
        assert changes(done) == [
            *(
                ("change", b"README"),
                ("delete", b"added later"),
                ("delete", b"gone"),
                ("change", b"link"),
            ),
            *(("delete", b"new dir"), ("add", b"new dir/tool"), ("unstage", b"staged")),
        ]
        assert (done.safety, done.remarks) == (nth(2), [])
        assert view(checkout.path) == wanted
        back = store.undo()
        assert (view(checkout.path), back.safety) == (other, nth(3))
        again = store.redo()
        assert (view(checkout.path), again.safety) == (wanted, nth(4))
        assert (
            checkout.git("rev-parse", "--abbrev-ref", "HEAD"),
            checkout.refs("refs/heads", "refs/stash"),
        ) == (head, refs)
        safety = store.read(nth(2))
        assert (safety.label, safety.trigger, safety.message) == (
            "safety-complete",
            "safety",
            f"before the restore of checkpoint {made.id[:8]}",
        )
        require_whole(checkout)
        assert not Path(checkout.git("rev-parse", "--absolute-git-dir"), "index.lock").exists()

    def test_dry_run_changes_nothing(self, store: Store, checkout: Checkout) -> None:
        prepare(checkout)
        made = store.save("a-complete", {})
        disturb(checkout)
        before, seen = checkout.fingerprint(), looks(checkout)
        planned = store.restore(made, dry_run=True)
        assert (checkout.fingerprint(), looks(checkout)) == (before, seen)
        done = store.restore(made)
        assert (planned.changes, planned.safety, planned.remarks) == (
            done.changes,
            None,
            done.remarks,
        )
        before = checkout.fingerprint()
        assert len(store.undo(dry_run=True).changes) == len(done.changes)
        assert checkout.fingerprint() == before

    def test_nothing_to_do_records_nothing(self, store: Store, checkout: Checkout) -> None:
        prepare(checkout)
        made = store.save("a-complete", {})
        before, seen = checkout.fingerprint(), looks(checkout)
        here = Position(made.git_sha, made.branch, None)
        assert store.restore(made) == RestoreResult(made.id, [], None, [], here, here, [])
        assert (checkout.fingerprint(), looks(checkout)) == (before, seen)

    def test_only_what_differs_is_touched(self, store: Store, checkout: Checkout) -> None:
        checkout.commit("more", **{f"file-{n}": f"{n}\n" for n in range(20)})
        checkout.write("file-1", "changed\n")
        made = store.save("a-complete", {})
        checkout.write("file-1", "changed again\n")
        checkout.write("file-2", "changed\n")
        before = looks(checkout)
        assert changes(store.restore(made)) == [
            ("change", b"file-1"),
            ("change", b"file-2"),
        ]
        after = looks(checkout)
        assert {name for name in before if before[name] != after[name]} == {"file-1", "file-2"}
        assert checkout.git("status", "--porcelain") == " M file-1"
        # git need not read a file again to know that it is as its index says
        assert checkout.git("diff-files", "--name-only") == "file-1"

    def test_what_is_deleted_is_in_the_safety_checkpoint(
        self, store: Store, checkout: Checkout
    ) -> None:
        made = store.save("a-complete", {})
        checkout.write("deep/new", "precious\n")
        checkout.write("large", "x" * 2000)
        checkout.write(".env", "secret\n")
        checkout.write("gitckpt.toml", '[snapshot]\nmax_file_size = "1 kB"\n')
        checkout.write(".gitignore", "*.o\n")
        checkout.write("a.o", "x")
        done = store.restore(made)
        assert changes(done) == [
            ("delete", b".gitignore"),
            ("delete", b"deep/new"),
            ("delete", b"gitckpt.toml"),
        ]
        assert sorted(path.name for path in checkout.path.iterdir() if path.name != ".git") == [
            ".env",
            "README",
            "a.o",
            "large",
        ]
        assert (
            checkout.git("cat-file", "blob", f"refs/ckpt/trees/{done.safety}:files/deep/new")
            == "precious"
        )
        assert b"a.o" not in [
            change.path for change in store.undo().changes
        ]  # untracked by now, and ignored again afterwards

    def test_a_directory_that_became_a_link_to_one_with_the_same_names(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.commit("more", **{"docs/a": "a\n", "docs/b/c": "c\n"})
        made = plain.save("a-complete", {})
        (main_checkout.path / "docs").rename(tmp_path / "docs")
        (main_checkout.path / "docs").symlink_to(tmp_path / "docs")
        (tmp_path / "docs/a").write_text("another\n")
        other = view(main_checkout.path)
        assert changes(plain.restore(made)) == [
            ("delete", b"docs"),
            ("add", b"docs/a"),
            ("add", b"docs/b/c"),
        ]
        assert main_checkout.git("status", "--porcelain") == ""
        plain.undo()
        assert (view(main_checkout.path), (tmp_path / "docs/a").read_text()) == (other, "another\n")

    def test_the_checkpoint_of_an_unborn_branch(
        self, make_store: MakeStore, make_checkout: object, tmp_path: Path
    ) -> None:
        assert callable(make_checkout)
        checkout = make_checkout()
        checkout.write("draft", "one\n")
        checkout.write("staged", "s\n")
        checkout.git("add", "staged")
        store = make_store(checkout)
        wanted = view(checkout.path)
        made = store.save("a-complete", {})
        checkout.git("rm", "--quiet", "--cached", "staged")
        checkout.write("draft", "two\n")
        other = view(checkout.path)
        store.restore(made)
        assert view(checkout.path) == wanted
        store.undo()
        assert view(checkout.path) == other
        checkout.git("rm", "--quiet", "--cached", "staged", ok=(0, 128))
        checkout.git("add", "draft")
        checkout.git("commit", "--quiet", "--message", "first")
        store.restore(made)
        assert (checkout.path / "draft").read_text() == "one\n"
        assert checkout.git("status", "--porcelain") == "D  draft\nA  staged\n?? draft"


class TestPaths:
    @pytest.mark.long
    @pytest.mark.sampled(6)
    @pytest.mark.parametrize(
        ("paths", "expected"),
        [
            ([b"README"], {b"README"}),
            ([b"new dir"], {b"new dir", b"new dir/tool"}),
            ([b"gone"], {b"gone"}),
            ([b"staged", b"link"], {b"staged", b"link"}),
            ([b"added later"], {b"added later"}),
            (
                [b"."],
                {
                    b"README",
                    b"added later",
                    b"gone",
                    b"link",
                    b"new dir",
                    b"new dir/tool",
                    b"staged",
                },
            ),
        ],
    )
    @pytest.mark.parametrize("index", [True, False])
    def test_nothing_else_is_touched(
        self,
        plain: Store,
        main_checkout: Checkout,
        paths: list[bytes],
        expected: set[bytes],
        index: bool,
    ) -> None:
        prepare(main_checkout)
        wanted = view(main_checkout.path)
        made = plain.save("a-complete", {})
        disturb(main_checkout)
        other = view(main_checkout.path)
        done = plain.restore(made, paths or None, index=index)
        assert {
            path for kind, path in changes(done) if index or kind not in ("stage", "unstage")
        } == (expected if index else expected - {b"staged"})
        now = view(main_checkout.path)
        for path in wanted["files"].keys() | other["files"].keys():
            assert now["files"].get(path) == (wanted if path in expected else other)["files"].get(
                path
            )

        def entries(seen: dict[str, str]) -> dict[str, str]:
            return {entry.partition("\t")[2]: entry for entry in seen["index"].split("\0")[:-1]}

        for path in entries(wanted).keys() | entries(other).keys():
            comes = index and path.encode() in expected
            assert entries(now).get(path) == entries(wanted if comes else other).get(path)
        if done.safety:
            plain.undo()
        assert view(main_checkout.path) == other

    @pytest.mark.parametrize(
        ("path", "similar"),
        [(b"nowhere", ""), (b"*", ""), (b"READ", "README"), (b"docs/README", "README")],
    )
    def test_a_path_that_nobody_knows(
        self, plain: Store, main_checkout: Checkout, path: bytes, similar: str
    ) -> None:
        made = plain.save("a-complete", {})
        main_checkout.write("README", "changed\n")
        before = main_checkout.fingerprint()
        with pytest.raises(NotFoundError) as caught:
            plain.restore(made, [b"README", path])
        assert (
            caught.value.message
            == f"neither in the worktree nor in checkpoint {made.id}: {path.decode()}"
        )
        suggestion = f"did you mean {similar}? " if similar else ""
        assert caught.value.hint == f"{suggestion}list its files: git ckpt ls {made.id[:8]}"
        assert main_checkout.fingerprint() == before

    def test_a_file_in_the_way_that_is_not_named_stays(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        prepare(main_checkout)
        made = plain.save("a-complete", {})
        disturb(main_checkout)
        before = main_checkout.fingerprint()
        with pytest.raises(WorktreeError) as caught:
            plain.restore(made, [b"new dir/tool"])
        assert (
            caught.value.message
            == "the restore would overwrite paths that are in no checkpoint: new dir"
        )
        assert main_checkout.fingerprint() == before

    @pytest.mark.long
    def test_in_conflict(self, store: Store, checkout: Checkout) -> None:
        merge(checkout)
        wanted = view(checkout.path)
        made = store.save("a-complete", {})
        checkout.write("README", "resolved\n")
        checkout.git("add", "README")
        checkout.write("kept", "changed\n")
        done = store.restore(made, [b"README"], index=True)
        assert changes(done) == [("change", b"README")]
        now = view(checkout.path)
        assert now["index"] == wanted["index"]
        assert (now["files"][b"README"], now["files"][b"kept"][2]) == (
            wanted["files"][b"README"],
            b"changed\n",
        )
        assert checkout.git("rev-parse", "MERGE_HEAD") == checkout.git("rev-parse", "theirs")


class TestAnotherCommit:
    def test_head_and_branch_stay(self, store: Store, checkout: Checkout) -> None:
        prepare(checkout)
        wanted = view(checkout.path)
        made = store.save("a-complete", {})
        checkout.git("reset", "--quiet", "--hard")
        head = checkout.commit("elsewhere", README="elsewhere\n", brand="new\n")
        branch = checkout.git("branch", "--show-current")
        assert store.restore(made).remarks == []
        now = view(checkout.path)
        assert (now["files"], now["index"]) == (wanted["files"], wanted["index"])
        assert (checkout.git("rev-parse", "HEAD"), checkout.git("branch", "--show-current")) == (
            head,
            branch,
        )
        store.undo()
        assert (checkout.git("status", "--porcelain"), (checkout.path / "README").read_text()) == (
            "",
            "elsewhere\n",
        )

    def test_an_operation_of_it_stays_out(self, plain: Store, main_checkout: Checkout) -> None:
        merge(main_checkout)
        made = plain.save("a-complete", {})
        main_checkout.git("merge", "--abort")
        main_checkout.commit("elsewhere", brand="new\n")
        done = plain.restore(made)
        assert done.remarks == []
        left_out = (
            "the merge of the checkpoint is not restored, as the checkpoint was recorded at "
            "another commit than HEAD; to open a worktree with the merge"
        )
        assert done.apart[1:] == [f"{left_out}: git ckpt resume {made.id[:8]}"]
        assert not (main_checkout.path / ".git/MERGE_HEAD").exists()
        assert "<<<<<<<" in (main_checkout.path / "README").read_text()


class TestOperations:
    @pytest.mark.long
    def test_a_merge_comes_back_and_goes_away(self, store: Store, checkout: Checkout) -> None:
        merge(checkout)
        wanted = view(checkout.path)
        git_dir = Path(checkout.git("rev-parse", "--absolute-git-dir"))
        state = {path.name: path.read_bytes() for path in git_dir.glob("MERGE_*")}
        made = store.save("a-complete", {})
        checkout.git("merge", "--abort")
        clean = view(checkout.path)
        store.restore(made)
        assert (
            view(checkout.path),
            {path.name: path.read_bytes() for path in git_dir.glob("MERGE_*")},
        ) == (wanted, state)
        store.undo()
        assert (view(checkout.path), list(git_dir.glob("MERGE_*"))) == (clean, [])
        store.redo()
        checkout.write("README", "resolved\n")
        checkout.git("commit", "--quiet", "--all", "--no-edit")
        assert checkout.git("rev-parse", "HEAD^2") == checkout.git("rev-parse", "theirs")

    def test_only_the_operation_differs(self, plain: Store, main_checkout: Checkout) -> None:
        made = plain.save("a-complete", {})
        main_checkout.git("bisect", "start")
        main_checkout.git("bisect", "bad")
        done = plain.restore(made)
        assert (done.changes, done.safety) == ([], nth(2))
        assert main_checkout.refs("refs/bisect") == {}
        plain.undo()
        assert main_checkout.refs("refs/bisect") == {
            "refs/bisect/bad": main_checkout.git("rev-parse", "HEAD")
        }


class TestUndo:
    def test_where_nothing_was_restored(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.write("README", "changed\n")
        plain.save("a-complete", {})
        before = main_checkout.fingerprint()
        with pytest.raises(NotFoundError) as caught:
            plain.undo()
        assert (caught.value.message, caught.value.hint, caught.value.exit_code) == (
            "nothing was restored in this worktree",
            "see other checkpoints: git ckpt list",
            12,
        )
        assert main_checkout.fingerprint() == before

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("lost", ["deleted", "garbage", "empty"])
    def test_worktrees_do_not_mix_even_if_the_pointer_is_lost(
        self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path, lost: str
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "other"))
        stores = [make_store(main_checkout), make_store(tmp_path / "other")]
        made = stores[0].save("a-complete", {})
        for number, store in enumerate(stores):
            Path(str(store.worktree), "README").write_text(f"in {number}\n")
        for store in stores:
            store.restore(made)
        for number, store in enumerate(stores):
            pointer = Path(git_dir(store), "ckpt-undo")
            pointer.unlink() if lost == "deleted" else pointer.write_text(
                "" if lost == "empty" else '{"safety": 7'
            )
            store.undo()
            assert Path(str(store.worktree), "README").read_text() == f"in {number}\n"
        third = tmp_path / "third"
        main_checkout.git("worktree", "add", "--quiet", "-b", "third", str(third))
        with pytest.raises(NotFoundError):
            make_store(third).undo()

    def test_whose_safety_checkpoint_was_removed(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        made = plain.save("a-complete", {})
        main_checkout.write("README", "one\n")
        first = plain.restore(made).safety
        main_checkout.write("README", "two\n")
        second = plain.restore(made).safety
        plain.remove([str(second)])
        plain.undo()
        assert (main_checkout.path / "README").read_text() == "one\n"
        plain.remove([entry.id for entry in plain.list() if entry.trigger == "safety"])
        with pytest.raises(NotFoundError):
            plain.undo()
        assert first != second

    def test_in_a_worktree_that_was_resumed(
        self, plain: Store, make_store: MakeStore, main_checkout: Checkout
    ) -> None:
        main_checkout.write("README", "one\n")
        made = plain.save("a-complete", {})
        there = make_store(plain.resume(made).path)
        readme = Path(str(there.worktree), "README")
        readme.write_text("two\n")
        there.restore(made)
        assert readme.read_text() == "one\n"
        there.undo()
        assert (readme.read_text(), (main_checkout.path / "README").read_text()) == (
            "two\n",
            "one\n",
        )


@pytest.mark.parametrize("where", ["bare", ".git"])
def test_where_there_is_no_worktree(
    plain: Store, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path, where: str
) -> None:
    main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
    store = make_store(tmp_path / "bare" if where == "bare" else main_checkout.path / ".git")
    made = store.record("a-complete", {})
    with pytest.raises(WorktreeError) as caught:
        store.restore(made)
    assert (caught.value.message, caught.value.hint) == (
        "the repository has no worktree to restore files into",
        f"open a worktree: git ckpt resume {made.id[:8]}",
    )


def test_files_with_old_times_are_told_apart(plain: Store, main_checkout: Checkout) -> None:
    """Git sees a changed file of equal size and second as changed."""
    main_checkout.write("README", "aaaaa\n")
    os.utime(main_checkout.path / "README", (1_700_000_000, 1_700_000_000))
    main_checkout.git("add", "README")
    main_checkout.git("commit", "--quiet", "--message", "a")
    made = plain.save("a-complete", {})
    main_checkout.write("README", "bbbbb\n")
    plain.restore(made)
    assert (main_checkout.path / "README").read_text() == "aaaaa\n"
    plain.undo()
    assert (main_checkout.path / "README").read_text() == "bbbbb\n"
    assert main_checkout.git("status", "--porcelain") == " M README"


def test_files_that_were_only_touched(store: Store, checkout: Checkout) -> None:
    """Restore works where the index has other times and inodes than the files.

    A copy of the repository, or a checkout by another program, leaves such an index.
    """
    made = store.save("a-complete", {})
    checkout.write("README", "staged\n")
    checkout.git("add", "README")
    other = view(checkout.path)
    os.utime(checkout.path / "README", (1_700_000_000, 1_700_000_000))
    store.restore(made)
    assert checkout.git("status", "--porcelain") == ""
    os.utime(checkout.path / "README", (1_600_000_000, 1_600_000_000))
    store.undo()
    assert view(checkout.path) == other
