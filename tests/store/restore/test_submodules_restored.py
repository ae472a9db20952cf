"""Restore brings submodules back, files and HEAD, and undo takes it back."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Checkpoint, RestoreResult, Store, WorktreeError
from tests.conftest import Checkout
from tests.store.conftest import MakeStore
from tests.store.submodules import CHECKPOINTS, dirty, named, names, settled

pytestmark = pytest.mark.long


def restore(store: Store, made: Checkpoint, *paths: bytes, dry_run: bool = False) -> RestoreResult:
    return store.restore(made, paths or None, dry_run=dry_run)


def changes(done: RestoreResult) -> list[tuple[str, bytes]]:
    return [(change.kind, change.path) for change in done.changes]


def disturb(main: Checkout, lib: Checkout, inner: Checkout) -> None:
    """Change the worktree, `lib` and `inner`."""
    main.write("README", "other\n")
    lib.git("checkout", "--quiet", "--force", "--detach", "HEAD~1")
    lib.write("l", "other\n")
    (lib.path / "new").unlink()
    lib.write("later", "x\n")
    inner.git("reset", "--quiet", "--hard")


def test_there_and_back(
    plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout
) -> None:
    dirty(lib, inner)
    before = settled(main_checkout, lib, inner)
    made = plain.save("a-complete", {})
    disturb(main_checkout, lib, inner)
    after = settled(main_checkout, lib, inner)
    looked = restore(plain, made, dry_run=True)
    assert settled(main_checkout, lib, inner) == after
    done = restore(plain, made)
    assert (
        changes(done)
        == changes(looked)
        == [
            ("change", b"README"),
            ("change", b"lib/inner/i"),
            ("change", b"lib/l"),
            ("delete", b"lib/later"),
            ("add", b"lib/more"),
            ("add", b"lib/new"),
        ]
    )
    assert settled(main_checkout, lib, inner) == before
    plain.undo()
    assert settled(main_checkout, lib, inner) == after
    plain.redo()
    assert settled(main_checkout, lib, inner) == before
    assert restore(plain, made).safety is None


def test_a_commit_that_only_head_had_is_kept_by_the_safety_checkpoint(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    made = plain.save("a-complete", {})
    lib.git("checkout", "--quiet", "--detach")
    lone = lib.commit("nobody else has it", more="x\n")
    done = restore(plain, made)
    assert [
        remark
        for remark in done.remarks
        if remark.startswith("HEAD of the submodule lib moves from ")
    ]
    lib.git("reflog", "expire", "--expire=now", "--all")
    lib.git("gc", "--quiet", "--prune=now")
    plain.undo()
    assert (lib.git("rev-parse", "HEAD"), (lib.path / "more").read_text()) == (lone, "x\n")


def test_only_what_is_asked_for(plain: Store, main_checkout: Checkout, lib: Checkout) -> None:
    made = plain.save("a-complete", {})
    main_checkout.write("README", "other\n")
    lib.write("l", "other\n")
    assert changes(restore(plain, made, b"lib")) == [("change", b"lib/l")]
    lib.write("l", "other\n")
    assert changes(restore(plain, made, b"README")) == [("change", b"README")]
    assert (lib.path / "l").read_text() == "other\n"


def test_what_is_in_the_way_is_said_before_anything_changes(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    lib.write("new", "new\n")
    made = plain.save("a-complete", {})
    (lib.path / "new").unlink()
    shutil.copytree(Path(lib.git("rev-parse", "--absolute-git-dir")), lib.path / "new" / ".git")
    main_checkout.write("README", "other\n")
    with pytest.raises(WorktreeError, match="would overwrite paths that are in no checkpoint"):
        restore(plain, made)
    assert (main_checkout.path / "README").read_text() == "other\n"


@pytest.mark.parametrize("how", ["deleted", "deinitialized"])
def test_one_that_is_gone_comes_back_from_what_git_keeps(
    plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout, how: str
) -> None:
    dirty(lib, inner)
    before = settled(main_checkout, lib, inner)
    made = plain.save("a-complete", {})
    if how == "deleted":
        shutil.rmtree(lib.path)
    else:
        main_checkout.git("submodule", "--quiet", "deinit", "--force", "lib")
    assert (
        b"lib" in [path for _, path in changes(restore(plain, made, dry_run=True))],
        lib.path.exists(),
    ) == (True, how != "deleted")
    restore(plain, made)
    main_checkout.git("submodule", "--quiet", "init")
    assert settled(main_checkout, lib, inner) == before
    main_checkout.git("submodule", "--quiet", "status", "--recursive")


def everything(top: Path) -> dict[str, str]:
    """Return each file and directory of a worktree."""
    paths = (
        path
        for path in top.rglob("*")
        if not {".git", ".ckpt"} & set(path.relative_to(top).parts[:1])
    )
    return {
        str(path.relative_to(top)): path.read_text() if path.is_file() else "" for path in paths
    }


def head_of(git_dir: str) -> str:
    return Path(git_dir, "HEAD").read_text()


@pytest.fixture(params=["deleted", "deinitialized"])
def gone(
    request: pytest.FixtureRequest,
    plain: Store,
    main_checkout: Checkout,
    lib: Checkout,
    inner: Checkout,
) -> Checkpoint:
    """A checkpoint of submodules with work, deleted or deinitialized since.

    Their HEAD has moved as well.
    """
    dirty(lib, inner)
    made = plain.save("a-complete", {})
    lib.git("checkout", "--quiet", "--force", "--detach", "HEAD~1")
    if request.param == "deleted":
        shutil.rmtree(lib.path)
    else:
        main_checkout.git("submodule", "--quiet", "deinit", "--force", "lib")
    return made


def test_undo_takes_away_what_a_restore_has_checked_out(
    plain: Store, main_checkout: Checkout, lib: Checkout, gone: Checkpoint
) -> None:
    git_dir = str(main_checkout.path / ".git" / "modules" / "lib")
    before = everything(main_checkout.path), head_of(git_dir)
    restore(plain, gone)
    after = everything(main_checkout.path), head_of(git_dir)
    assert after[0]["lib/new"] == "new\n"
    looked = plain.undo(dry_run=True)
    assert ("delete", b"lib") in changes(looked)
    done = plain.undo()
    assert (changes(done), everything(main_checkout.path), head_of(git_dir)) == (
        changes(looked),
        *before,
    )
    plain.redo()
    assert (everything(main_checkout.path), head_of(git_dir)) == after
    lib.commit("later", l="later\n")
    lib.write("more work", "x\n")
    worked = everything(main_checkout.path)
    plain.undo()
    assert (everything(main_checkout.path), head_of(git_dir)) == before
    plain.redo()
    assert everything(main_checkout.path) == worked


@pytest.mark.parametrize("what", ["lib/x.o", "lib/inner/x.o", "lib/large"])
def test_undo_leaves_a_submodule_with_something_that_no_checkpoint_holds(
    plain: Store,
    main_checkout: Checkout,
    lib: Checkout,
    inner: Checkout,
    gone: Checkpoint,
    what: str,
) -> None:
    restore(plain, gone)
    for one in (lib, inner):
        exclude = Path(one.git("rev-parse", "--absolute-git-dir"), "info", "exclude")
        exclude.parent.mkdir(exist_ok=True)
        exclude.write_text("*.o\n")
    main_checkout.write(what, "x" * (200_000 if what == "lib/large" else 1))
    main_checkout.git("config", "ckpt.maxFileSize", "100KB")
    there = everything(main_checkout.path)
    done = plain.undo()
    assert [
        remark
        for remark in done.remarks
        if remark.startswith("the submodule lib was not removed: ")
    ]
    assert everything(main_checkout.path) == there


def test_one_whose_checkpoint_is_gone_does_not_keep_the_others_away(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    made = plain.save("a-complete", {})
    lib.git("update-ref", "-d", f"refs/checkpoints/{named(made)[0]}")
    main_checkout.write("README", "other\n")
    lib.write("l", "other\n")
    with pytest.raises(
        WorktreeError,
        match=f"lib: no repository of the submodule has the checkpoint {named(made)[0]}",
    ) as caught:
        restore(plain, made)
    assert (caught.value.exit_code, "git ckpt undo" in str(caught.value.hint)) == (14, True)
    assert ((main_checkout.path / "README").read_text(), (lib.path / "l").read_text()) == (
        "hello\n",
        "other\n",
    )
    with pytest.raises(WorktreeError):  # also where there is nothing else to do
        restore(plain, made)


def hint_of(store: Store, made: Checkpoint, message: str) -> str:
    """Return the hint for a submodule that does not come back."""
    with pytest.raises(WorktreeError, match=message) as caught:
        restore(store, made)
    back = (
        ", or undo the restore: git ckpt undo"
        if caught.value.message.startswith("all else was restored")
        else ""
    )
    assert str(caught.value.hint).endswith(f"; then run the command again{back}")
    return str(caught.value.hint)


def test_what_is_advised_brings_back_a_checkpoint_that_is_gone(
    plain: Store, main_checkout: Checkout, lib: Checkout, tmp_path: Path
) -> None:
    lib.write("l", "work\n")
    made = plain.save("a-complete", {})
    shutil.copytree(lib.git("rev-parse", "--absolute-git-dir"), tmp_path / "CLONE")
    lib.git("config", "--file", str(tmp_path / "CLONE/config"), "--unset", "core.worktree")
    for space in (CHECKPOINTS, "refs/ckpt/trees"):
        lib.git("update-ref", "-d", f"{space}/{named(made)[0]}")
    lib.git("checkout", "--quiet", "l")
    hint = hint_of(plain, made, "no repository of the submodule has the checkpoint")
    words = shlex.split(
        hint.partition(": ")[2].partition(";")[0].replace("CLONE", str(tmp_path / "CLONE"))
    )
    main_checkout.git(*words[1:])
    restore(plain, made)
    assert (lib.path / "l").read_text() == "work\n"


@pytest.mark.parametrize("what", ["file", "commit"])
def test_what_is_advised_finds_what_is_missing(
    plain: Store, make_store: MakeStore, lib: Checkout, what: str
) -> None:
    commit = lib.commit("second", l="second\n")
    lib.write("l", "work\n")
    made = plain.save("a-complete", {})
    oid = commit if what == "commit" else lib.git("hash-object", "l")
    lib.git("reset", "--quiet", "--hard", "HEAD~1")
    git_dir = Path(lib.git("rev-parse", "--absolute-git-dir"))
    (git_dir / "objects" / oid[:2] / oid[2:]).unlink()
    with pytest.raises(WorktreeError, match=oid) as caught:
        restore(plain, made)
    assert str(caught.value.hint).startswith("after cd lib: find the cause: git ckpt verify")
    with make_store(lib) as inside_lib:
        assert any(oid in finding.sentence for finding in inside_lib.verify().findings)


@pytest.mark.parametrize("path", ["lib", "lib/inner"])
def test_one_that_is_none_any_more_fails_though_all_else_is_there(
    plain: Store, lib: Checkout, inner: Checkout, path: str
) -> None:
    """A broken submodule fails the restore, and the hint offers no undo.

    All other files equal the checkpoint already, so undo would take back an earlier restore.
    """
    made = plain.save("a-complete", {})
    broken = lib if path == "lib" else inner
    (broken.path / ".git").unlink()
    with pytest.raises(WorktreeError) as caught:
        restore(plain, made)
    where = "lib: " if path == "lib" else "lib: inner: "
    assert caught.value.message.startswith(
        "all else equals the checkpoint, but these submodules failed: "
        f"{where}other files are at this path"
    )
    advice = (
        "move away: lib; then run"
        if path == "lib"
        else "after cd lib: move away: inner; then, in this directory, run"
    )
    assert caught.value.hint == f"{advice} the command again"
    looked = restore(plain, made, dry_run=True)
    assert looked.remarks == [f"the submodule {where}other files are at this path"]
    shutil.rmtree(broken.path)
    restore(plain, made)
    assert (inner.path / "i").exists()


def test_what_was_captured_in_another_worktree(
    plain: Store, make_store: MakeStore, main_checkout: Checkout, lib: Checkout, inner: Checkout
) -> None:
    path = Path(plain.resume(plain.save("a-complete", {})).path)
    theirs = Checkout(path / "lib"), Checkout(path / "lib" / "inner")
    dirty(*theirs)
    with make_store(path) as store:
        made = store.save("b-complete", {})
    before = settled(lib, inner)
    assert changes(restore(plain, made, dry_run=True)) == [("change", b"lib")]
    restore(plain, made)
    assert [seen[1:] for seen in settled(lib, inner)] == [seen[1:] for seen in settled(*theirs)]
    plain.undo()
    assert settled(lib, inner) == before


def test_one_in_whose_place_is_a_file(plain: Store, main_checkout: Checkout, lib: Checkout) -> None:
    made = plain.save("a-complete", {})
    shutil.rmtree(lib.path)
    lib.path.write_text("a file\n")
    with pytest.raises(WorktreeError, match="lib"):
        restore(plain, made)


def test_the_settings_can_switch_it_off(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    made = plain.save("a-complete", {})
    lib.write("l", "other\n")
    main_checkout.git("config", "ckpt.submodules", "none")
    assert (restore(plain, made).safety, (lib.path / "l").read_text()) == (None, "other\n")


@pytest.mark.parametrize(
    ("path", "reason"),
    [("link/lib", "other files are at this path"), ("fresh/lib", "no submodule at this path")],
)
def test_a_path_that_somebody_made_up(
    plain: Store, main_checkout: Checkout, lib: Checkout, tmp_path: Path, path: str, reason: str
) -> None:
    made = plain.save("a-complete", {})
    document = plain.raw(made.id).replace(b'path = "lib"', f'path = "{path}"'.encode())
    main_checkout.git(
        "update-ref",
        f"refs/checkpoints/{made.id}",
        main_checkout.git("hash-object", "-w", "--stdin", data=document),
    )
    (main_checkout.path / ".git/ckpt" / "written").unlink()  # as if it was fetched
    (tmp_path / "elsewhere").mkdir()
    (main_checkout.path / "link").symlink_to(tmp_path / "elsewhere")
    main_checkout.write(".git/info/exclude", "link\n")
    shutil.rmtree(lib.path)
    with pytest.raises(WorktreeError, match=reason):
        restore(plain, plain.read(made.id))
    assert (list((tmp_path / "elsewhere").iterdir()), (main_checkout.path / "fresh").exists()) == (
        [],
        False,
    )


def test_a_removal_reaches_what_is_not_checked_out(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    made = plain.save("a-complete", {})
    git_dir = lib.git("rev-parse", "--absolute-git-dir")
    shutil.rmtree(lib.path)
    plain.remove([made.id])
    lib.path.mkdir()
    assert names(Checkout(Path(git_dir))) == []


def test_one_that_the_branch_here_does_not_have(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    """A submodule that the branch lacks comes back, and undo restores its files.

    Git leaves the files in a repository that the index does not know. The safety checkpoint has
    them.
    """
    main_checkout.git("branch", "without", "HEAD~1")
    lib.write("l", "changed\n")
    made = plain.save("a-complete", {})
    main_checkout.git("checkout", "--quiet", "without")
    lib.write("l", "changed again\n")
    lib.write("work", "of forty minutes\n")
    lib.git("checkout", "--quiet", "--detach")
    before = settled(main_checkout, lib)
    done = restore(plain, made)
    assert ("delete", b"lib/work") in changes(done)
    after = settled(main_checkout, lib)
    plain.undo()
    assert settled(main_checkout, lib) == before
    plain.redo()
    assert settled(main_checkout, lib) == after


def test_a_repository_in_its_place_that_has_nothing_to_do_with_it(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    made = plain.save("a-complete", {})
    shutil.rmtree(lib.path)
    main_checkout.git("init", "--quiet", "lib")
    lib.commit("of somebody else", l="mine\n")
    main_checkout.write("README", "other\n")
    before = settled(lib)
    with pytest.raises(WorktreeError, match="lib: another repository is at this path"):
        restore(plain, made)
    assert (settled(lib), (main_checkout.path / "README").read_text()) == (before, "hello\n")


def test_one_that_there_was_not_stays_and_that_is_said(
    plain: Store, main_checkout: Checkout, make_checkout: Callable[..., Checkout]
) -> None:
    made = plain.save("a-complete", {})
    other = make_checkout("other")
    other.commit("first", l="l\n")
    main_checkout.git("submodule", "--quiet", "add", str(other.path), "lib")
    main_checkout.git("commit", "--quiet", "-m", "a submodule")
    assert (
        "the submodule lib is not changed; it is not in the checkpoint"
        in restore(plain, made).remarks
    )
    assert (main_checkout.path / "lib/l").exists()


def test_its_empty_directory_stays_where_a_sparse_checkout_had_none(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    main_checkout.git("submodule", "--quiet", "deinit", "--force", "lib")
    main_checkout.git("sparse-checkout", "set", "--no-cone", "/README")
    made = plain.save("a-complete", {})
    main_checkout.git("sparse-checkout", "disable")
    restore(plain, made)
    plain.undo()
    assert (lib.path.is_dir(), main_checkout.git("status", "--porcelain")) == (True, "")


@pytest.mark.parametrize("is_changed", [False, True])
def test_one_that_is_made_again_where_its_repository_is_sparse_by_now(
    plain: Store, lib: Checkout, *, is_changed: bool
) -> None:
    """The sparse patterns of the kept repository apply to unchanged files.

    Changed files come back all the same.
    """
    lib.commit("one more", more="more\n")
    if is_changed:
        lib.write("more", "changed\n")
    made = plain.save("a-complete", {})
    lib.git("checkout", "--quiet", "more")
    lib.git("sparse-checkout", "set", "--no-cone", "/*", "!/more")
    shutil.rmtree(lib.path)
    restore(plain, made)
    after = (settled(lib), lib.git("ls-files", "-v", "more"))
    assert after[1] == ("H more" if is_changed else "S more")
    assert not is_changed or (lib.path / "more").read_text() == "changed\n"
    plain.undo()
    assert not lib.path.exists()
    plain.redo()
    assert (settled(lib), lib.git("ls-files", "-v", "more")) == after


def rename(here: Checkout, path: str) -> None:
    """Move the submodule `lib` to another path with git, and commit."""
    (here.path / path).parent.mkdir(parents=True, exist_ok=True)
    here.git("mv", "lib", path)
    here.git("commit", "--quiet", "--message", "renamed")


@pytest.mark.parametrize("path", ["vendor", "third/party/vendor"])
def test_renamed_submodule_goes_back_with_restore_and_undo(
    plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout, path: str
) -> None:
    """A renamed submodule moves back with all its files, ignored ones too."""
    dirty(lib, inner)
    wanted = settled(lib, inner)
    made = plain.save("a-complete", {})
    inner.git("reset", "--quiet", "--hard")
    lib.git("reset", "--quiet", "--hard")
    rename(main_checkout, path)
    vendor = Checkout(main_checkout.path / path)
    deep = Checkout(vendor.path / "inner")
    Path(vendor.git("rev-parse", "--git-path", "info/exclude")).parent.mkdir(exist_ok=True)
    with open(vendor.git("rev-parse", "--git-path", "info/exclude"), "a") as rules:
        rules.write("*.o\n")
    vendor.write("x.o", "built\n")
    vendor.write("l", "work\n")
    deep.write("i", "more work\n")
    before = settled(main_checkout, vendor, deep)
    looked = restore(plain, made, dry_run=True)
    assert settled(main_checkout, vendor, deep) == before
    assert {("add", b"lib"), ("delete", path.encode())} <= set(changes(looked))
    done = restore(plain, made)
    assert not [remark for remark in done.remarks if "is not changed" in remark]
    assert (lib.path / "x.o").read_text() == "built\n"
    (lib.path / "x.o").unlink()
    assert settled(lib, inner) == wanted
    lib.write("x.o", "built\n")
    assert {entry.name for entry in main_checkout.path.iterdir()} == {
        ".git",
        ".gitmodules",
        "README",
        "lib",
    }
    main_checkout.git("submodule", "--quiet", "status", "--recursive")
    plain.undo()
    assert settled(main_checkout, vendor, deep) == before
    assert not lib.path.exists()
    main_checkout.git("submodule", "--quiet", "status", "--recursive")
    plain.redo()
    (lib.path / "x.o").unlink()
    assert settled(lib, inner) == wanted
    main_checkout.git("submodule", "--quiet", "status", "--recursive")


def test_renamed_submodule_stays_where_paths_do_not_name_it(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    lib.write("l", "work\n")
    made = plain.save("a-complete", {})
    lib.git("reset", "--quiet", "--hard")
    rename(main_checkout, "vendor")
    with pytest.raises(
        WorktreeError, match="lib: its repository is checked out at vendor"
    ) as caught:
        restore(plain, made, b"lib")
    both = f"restore both: git ckpt restore {made.id[:8]} -- lib vendor; then run the command again"
    assert caught.value.hint == both
    assert main_checkout.git("status", "--porcelain") == ""
    restore(plain, made, b"lib", b"vendor")
    assert (lib.path / "l").read_text() == "work\n"
    plain.undo()
    assert main_checkout.git("status", "--porcelain") == ""


def test_undo_where_git_has_checked_a_submodule_out_twice(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    """Undo works where two paths share one repository.

    `git submodule update` allows that, and the repository names the last path.
    """
    lib.write("l", "work\n")
    made = plain.save("a-complete", {})
    lib.git("reset", "--quiet", "--hard")
    rename(main_checkout, "vendor")
    main_checkout.git("config", "ckpt.submodules", "none")
    restore(plain, made)
    main_checkout.git("submodule", "--quiet", "update", "--init", "--recursive", "--", "lib")
    main_checkout.git("config", "--unset", "ckpt.submodules")
    restore(plain, made)
    assert (lib.path / "l").read_text() == "work\n"
    while plain.undo_steps() and plain.undo_steps()[0].kind == "undo":
        plain.undo()
        main_checkout.git("status", "--porcelain")
    assert main_checkout.git("status", "--porcelain").splitlines() in ([], ["?? lib/"])
