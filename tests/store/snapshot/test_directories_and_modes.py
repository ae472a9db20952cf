"""Empty directories and restrictive modes are restored, which git does not store."""

from __future__ import annotations

import functools
import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import Checkpoint, Store, Worktree, WorktreeError
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import view
from tests.stores import plant_snapshot


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def directories(top: Path | str) -> dict[str, str]:
    """Return the directories of a worktree with their modes."""
    found = {}
    for path in sorted(Path(top).rglob("*")):
        parts = path.relative_to(top).parts
        if parts[0] not in (".git", ".ckpt") and path.is_dir() and not path.is_symlink():
            found["/".join(parts)] = mode(path)
    return found


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.lstat().st_mode):o}"


def prepared(here: Checkout) -> None:
    """Create empty directories, a secret in a private directory, and ignored ones."""
    here.commit("more", **{"d/e": "1\n", "gone/in/it": "1\n", ".gitignore": "ignored/\n*.o\n"})
    for name in (
        "empty",
        "deep/er/empty",
        "d/in a known one",
        "ignored/empty",
        "other",
        b"caf\xe9".decode("utf-8", "surrogateescape"),
    ):
        (here.path / name).mkdir(parents=True)
    (here.path / "gone/in/it").unlink()
    (here.path / "private").mkdir(0o700)
    here.write("private/diary", "secret\n").chmod(0o600)
    here.write("tool", "x\n").chmod(0o700)
    here.write("read only", "x\n").chmod(0o444)
    here.write("wide", "x\n").chmod(0o666)


def test_there_and_back(store: Store, checkout: Checkout) -> None:
    prepared(checkout)
    expected = directories(checkout.path)
    del expected["ignored"], expected["ignored/empty"]
    made = store.save("a-complete", {})
    assert made.worktree is not None
    assert made.worktree.omitted == ()
    assert store.save("b-complete", {}).tree == made.tree
    found = store.extras(made)
    assert found.directories == [
        b"caf\xe9",
        b"d/in a known one",
        b"deep/er/empty",
        b"empty",
        b"gone/in",
        b"other",
    ]
    assert found.modes == {
        b"private": 0o700,
        b"private/diary": 0o600,
        b"read only": 0o444,
        b"tool": 0o700,
    }
    there = Path(store.resume(made).path)
    assert directories(there) == expected
    assert [mode(there / name) for name in ("private/diary", "tool", "read only", "wide")] == [
        "600",
        "700",
        "444",
        "644",
    ]
    assert Checkout(there).git("status", "--porcelain") == checkout.git("status", "--porcelain")


@pytest.mark.long
def test_restore_and_undo(store: Store, checkout: Checkout) -> None:
    prepared(checkout)
    expected, files = directories(checkout.path), view(checkout.path)
    made = store.save("a-complete", {})
    checkout.git("checkout", "--quiet", "--", ".")
    for name in ("empty", "deep", "other", "private"):
        shutil.rmtree(checkout.path / name)
    (checkout.path / "mine").mkdir()
    (checkout.path / "tool").chmod(0o755)
    before, seen = directories(checkout.path), view(checkout.path)
    plan = store.restore(made, dry_run=True)
    assert [(change.kind, change.path) for change in plan.changes] == [
        ("add", b"deep/er/empty/"),
        ("add", b"empty/"),
        ("delete", b"gone/in/it"),
        ("add", b"other/"),
        ("add", b"private/diary"),
        ("mode", b"tool"),
    ]
    assert directories(checkout.path) == before
    assert store.restore(made).changes == plan.changes
    assert directories(checkout.path) == {**expected, "mine": "755"}
    assert (mode(checkout.path / "private/diary"), mode(checkout.path / "tool")) == ("600", "700")
    assert view(checkout.path)["status"] == files["status"]
    assert store.restore(made).safety is None
    checkout.write("empty/by hand", "")
    (checkout.path / "empty/by hand").rename(checkout.path / "other/by.o")
    store.undo()
    assert directories(checkout.path) == {**before, "other": "755"}  # which is not empty
    assert mode(checkout.path / "tool") == "755"
    assert view(checkout.path)["status"] == seen["status"]


def test_only_some_paths(store: Store, checkout: Checkout) -> None:
    prepared(checkout)
    made = store.save("a-complete", {})
    shutil.rmtree(checkout.path / "deep")
    shutil.rmtree(checkout.path / "empty")
    done = store.restore(made, [b"empty"])
    assert [change.path for change in done.changes] == [b"empty/"]
    assert (not (checkout.path / "deep").exists(), (checkout.path / "empty").is_dir()) == (
        True,
        True,
    )


def test_a_clean_worktree_with_an_empty_directory(store: Store, checkout: Checkout) -> None:
    (checkout.path / "empty").mkdir()
    found = store.capture()
    assert (found.dirty, found.tree is not None) == (False, True)
    made = store.save("a-complete", {})
    (checkout.path / "empty").rmdir()
    assert store.capture() == Worktree(dirty=False)
    assert [change.path for change in store.restore(made).changes] == [b"empty/"]
    assert (checkout.path / "empty").is_dir()
    store.undo()
    assert not (checkout.path / "empty").exists()


@pytest.mark.parametrize("change", ["mkdir", "chmod"])
def test_a_process_that_remembers_a_clean_worktree(
    store: Store, checkout: Checkout, change: str
) -> None:
    checkout.commit("more", **{"d/e": "1\n"})
    time.sleep(0.1)  # for the time stamps to tell
    assert [store.save("a-complete", {}).worktree for _ in range(3)] == [Worktree(dirty=False)] * 3
    if change == "mkdir":
        (checkout.path / "d/empty").mkdir()
    else:
        (checkout.path / "d").chmod(0o700)
    found = store.extras(store.save("b-complete", {}))
    assert (found.directories, found.modes) == (
        ([b"d/empty"], {}) if change == "mkdir" else ([], {b"d": 0o700})
    )


def test_an_empty_directory_in_the_place_of_files(store: Store, checkout: Checkout) -> None:
    (checkout.path / "d").mkdir()
    made = store.save("a-complete", {})
    checkout.write("d/file", "1\n")
    store.restore(made)
    assert (os.listdir(checkout.path / "d"), (checkout.path / "d").is_dir()) == ([], True)
    (checkout.path / "d").rmdir()
    checkout.write("d", "a file now\n")
    store.restore(made)
    assert (checkout.path / "d").is_dir()
    store.undo()
    assert (checkout.path / "d").read_text() == "a file now\n"


def test_modes_only_get_narrower(store: Store, checkout: Checkout, tmp_path: Path) -> None:
    prepared(checkout)
    made = store.save("a-complete", {})
    os.umask(0o077)
    there = Path(store.resume(made, str(tmp_path / "there")).path)
    assert [mode(there / name) for name in ("private", "empty", "read only", "tool", "wide")] == [
        "700",
        "700",
        "400",
        "700",
        "600",
    ]
    assert store.extras(store.save("b-complete", {})).modes == {
        b"read only": 0o400
    }  # all else is as narrow as this umask


def test_what_is_too_much_is_said(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, planted.MOST_DIR_MODES, 3)
    for number in range(6):
        (main_checkout.path / f"d{number}").mkdir(0o700)
    made = plain.save("a-complete", {})
    assert made.worktree is not None
    assert [(entry.path, entry.reason) for entry in made.worktree.omitted] == [
        ("d3", "only its mode, and 2 more modes: a snapshot keeps 3")
    ]
    found = plain.extras(made)
    assert (found.directories, sorted(found.modes)) == (
        [b"d0", b"d1", b"d2"],
        [b"d0", b"d1", b"d2"],
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "path",
    [
        b"../outside",
        b"/tmp/x",
        b"a/../../b",
        b".git/hooks",
        b"d/.GIT/x",
        b".git",
        b"",
        b"a//b",
        b".gi\xe2\x80\x8ct/x",
    ],
)
@pytest.mark.parametrize("kind", ["directories", "modes"])
def test_paths_of_a_fetched_snapshot(
    plain: Store, main_checkout: Checkout, tmp_path: Path, path: bytes, kind: str
) -> None:
    hostile = forged(
        plain, main_checkout, **{kind: [path] if kind == "directories" else {path: 0o600}}
    )
    hooks = main_checkout.path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    before = sorted(os.listdir(tmp_path)), mode(hooks), mode(main_checkout.path / ".git")
    with pytest.raises(WorktreeError):
        plain.resume(hostile, str(tmp_path / "there"))
    with pytest.raises(WorktreeError, match="cannot be trusted"):
        plain.restore(hostile, dry_run=True)
    assert (sorted(os.listdir(tmp_path)), mode(hooks), mode(main_checkout.path / ".git")) == before


def test_links_and_repositories_are_not_entered(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(0o755)
    (main_checkout.path / "link").symlink_to(outside)
    main_checkout.git("add", "--all")
    main_checkout.git("commit", "--quiet", "--message", "link")
    main_checkout.git("init", "--quiet", "inner")
    (main_checkout.path / "inner/d").mkdir(0o755)
    hostile = forged(
        plain, main_checkout, modes={b"link": 0o700, b"link/x": 0o700, b"inner/d": 0o700}
    )
    plain.restore(hostile)
    assert (mode(outside), mode(main_checkout.path / "inner/d")) == ("755", "755")
    for path, said in (
        (b"link/made", "would overwrite paths that are in no checkpoint"),
        (b"inner/made", "cannot make the directory"),
    ):
        with pytest.raises(WorktreeError, match=said):
            plain.restore(forged(plain, main_checkout, directories=[path]))
    assert os.listdir(outside) == []


def forged(store: Store, here: Checkout, **more: object) -> Checkpoint:
    made = store.save("a-complete", {})
    assert made.worktree is not None
    tree = here.git("rev-parse", "HEAD^{tree}")
    snapshot = plant_snapshot(store, tree, **more)
    return replace(made, worktree=replace(made.worktree, dirty=True, tree=snapshot, omitted=()))


def test_a_directory_in_which_all_is_ignored_does_not_count(
    store: Store, checkout: Checkout
) -> None:
    """Caches ignore themselves with a `.gitignore` of `*`; they are not captured."""
    before = store.save("a-complete", {}).worktree
    for name in (".cache/.gitignore", ".cache/v/some", ".cache/v/lastfailed/some"):
        checkout.write(name, "*\n")
    assert store.save("b-complete", {}).worktree == before


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", ["directory", "mode"])
@pytest.mark.parametrize("how", ["restore", "restore a path", "resume"])
def test_what_does_not_come_back_is_said(
    store: Store, checkout: Checkout, monkeypatch: pytest.MonkeyPatch, what: str, how: str
) -> None:
    """A directory or mode that is lost during the restore is reported.

    Some file systems accept every mode and keep none; other processes may remove a directory.
    """
    (checkout.path / "d" / "empty").mkdir(parents=True)
    checkout.write("d/diary", "secret\n").chmod(0o600)
    made = store.save("a-complete")
    shutil.rmtree(checkout.path / "d")
    honest = planted.original(planted.RESTORE_DIR_MODES)

    def forgetful(top: str, directories: list[bytes], modes: dict[bytes, int]) -> None:
        honest(top, () if what == "directory" else directories, {} if what == "mode" else modes)

    plant(monkeypatch, planted.RESTORE_DIR_MODES, forgetful)
    name = "d/empty/" if what == "directory" else "d/diary"
    command = (
        functools.partial(store.restore, paths=[b"d"])
        if how == "restore a path"
        else store.restore
        if how == "restore"
        else store.resume
    )
    with pytest.raises(WorktreeError, match=f": the mode or directory {name}$"):
        command(made)
