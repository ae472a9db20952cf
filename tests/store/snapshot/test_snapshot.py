"""Capturing a worktree changes nothing in it, and resuming restores every byte."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store, Worktree, WorktreeError
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, nth, view
from tests.stores import LeftOut, left_out, private_dir

Prepare = Callable[[Checkout], object]


def modified(here: Checkout) -> None:
    here.write("README", "changed\n")


def staged_and_changed_again(here: Checkout) -> None:
    here.write("README", "staged\n")
    here.git("add", "README")
    here.write("README", "and changed again\n")


def staged_and_changed_back(here: Checkout) -> None:
    here.write("README", "staged\n")
    here.git("add", "README")
    here.write("README", "hello\n")


def untracked(here: Checkout) -> None:
    here.write("new", "x")
    here.write("deep/er/new", "y")
    here.write("empty", "")


def deleted(here: Checkout) -> None:
    (here.path / "README").unlink()


def deleted_in_the_index_only(here: Checkout) -> None:
    here.git("rm", "--quiet", "--cached", "README")


def deleted_and_replaced_by_a_directory(here: Checkout) -> None:
    (here.path / "README").unlink()
    here.write("README/inside", "x")


def everything_deleted(here: Checkout) -> None:
    here.git("rm", "--quiet", "-r", ".")


def renamed(here: Checkout) -> None:
    here.git("mv", "README", "READ ME")


def mode(here: Checkout) -> None:
    (here.path / "README").chmod(0o755)
    here.write("tool", "#!/bin/sh\n").chmod(0o755)


def symlinks(here: Checkout) -> None:
    (here.path / "dangling").symlink_to("nowhere")
    (here.path / "absolute").symlink_to("/etc/hostname")
    (here.path / "README").unlink()
    (here.path / "README").symlink_to("dangling")
    here.git("add", "dangling")


def merge(here: Checkout) -> None:
    base = here.git("rev-parse", "HEAD")
    here.commit("ours", README="ours\n", kept="k\n", both="ours\n")
    here.git("checkout", "--quiet", "-b", "theirs", base)
    here.commit("theirs", README="theirs\n", other="o\n", both="theirs\n")
    here.git("checkout", "--quiet", "-")
    here.git("merge", "theirs", ok=(1,))
    here.write("both", "half resolved\n")
    here.write("new", "x")


def cherry_pick(here: Checkout) -> None:
    base = here.git("rev-parse", "HEAD")
    picked = [here.commit(f"pick {n}", README=f"picked {n}\n") for n in range(2)]
    here.git("reset", "--quiet", "--hard", base)
    here.commit("ours", README="ours\n")
    here.git("cherry-pick", *picked, ok=(1,))


def intent_to_add(here: Checkout) -> None:
    here.write("later", "content\n")
    here.write("later too", "")
    here.git("add", "--intent-to-add", "later", "later too")
    here.write("README", "changed\n")


def assume_unchanged(here: Checkout) -> None:
    here.git("update-index", "--assume-unchanged", "README")
    here.write("README", "changed in secret\n")


def both_flags(here: Checkout) -> None:
    here.git("update-index", "--assume-unchanged", "README")
    here.git("update-index", "--skip-worktree", "README")


def odd_names(here: Checkout) -> None:
    for name in (
        b"caf\xe9",
        b"new\nline",
        b'tab\tquote"back\\slash',
        b" lead",
        b"-x",
        b"*",
        b":(top)x",
        "日本語/ü".encode(),
    ):
        path = os.path.join(os.fsencode(here.path), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_text("x")
    here.git("add", "--all")
    here.write("new\nline", "changed")
    here.write("-x", "changed")


def line_ends(here: Checkout) -> None:
    here.write(".gitattributes", "*.txt text eol=crlf\n*.bin -text\n")
    here.write("a.txt", "one\r\ntwo\r\n")
    here.write("a.bin", "one\r\ntwo\n")


def ignored(here: Checkout) -> None:
    here.write(".gitignore", "*.o\n")
    here.write("a.c", "x")


STATES: list[Prepare] = [
    *(
        modified,
        staged_and_changed_again,
        staged_and_changed_back,
        untracked,
        deleted,
        deleted_in_the_index_only,
    ),
    *(
        deleted_and_replaced_by_a_directory,
        everything_deleted,
        renamed,
        mode,
        symlinks,
        merge,
        cherry_pick,
        intent_to_add,
    ),
    *(assume_unchanged, both_flags, odd_names, line_ends, ignored),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("prepare", STATES)
def test_there_and_back(store: Store, checkout: Checkout, prepare: Prepare) -> None:
    prepare(checkout)
    if prepare is assume_unchanged:
        # its status is the same either way, and the refresh that `view` does would not change it
        checkout.git("update-index", "-q", "--refresh", ok=(0, 1))
    expected = view(checkout.path)
    stash = checkout.git("stash", "list")
    before = checkout.fingerprint()
    files = store.capture()
    assert (checkout.fingerprint(), checkout.git("stash", "list")) == (before, stash)
    assert files.dirty
    assert files.omitted == ()
    assert store.capture() == files
    assert [
        name
        for name in os.listdir(private_dir(store))
        if name.startswith("index.") and "sqlite" not in name
    ] == []
    made = store.record("a-complete", {}, worktree=files)
    opened = store.resume(made)
    assert opened.made
    assert view(opened.path) == expected
    there = Checkout(Path(opened.path))
    assert (there.git("rev-parse", "--verify", "HEAD"), there.git("branch", "--show-current")) == (
        made.git_sha,
        "",
    )
    if files.operation:
        git_dir, its = (
            Path(one.git("rev-parse", "--absolute-git-dir")) for one in (checkout, there)
        )
        for name in ("MERGE_HEAD", "MERGE_MSG", "CHERRY_PICK_HEAD", "sequencer/todo"):
            assert (its / name).exists() == (git_dir / name).exists()
            if (its / name).exists():
                assert (its / name).read_bytes() == (git_dir / name).read_bytes()


def test_clean(store: Store, checkout: Checkout) -> None:
    before = checkout.fingerprint()
    assert store.capture() == Worktree(dirty=False)
    os.utime(checkout.path / "README", (1, 1))
    assert store.capture() == Worktree(dirty=False)
    del before["index"]
    after = checkout.fingerprint()
    del after["index"]
    assert after == before


@pytest.mark.parametrize(
    ("prepare", "operation"), [(merge, "merge"), (cherry_pick, "cherry-pick"), (modified, None)]
)
def test_the_operation_in_progress(
    plain: Store, main_checkout: Checkout, prepare: Prepare, operation: str | None
) -> None:
    prepare(main_checkout)
    assert plain.capture().operation == operation


def test_the_tree(plain: Store, main_checkout: Checkout) -> None:
    merge(main_checkout)
    main_checkout.write("later", "content\n")
    main_checkout.git("add", "--intent-to-add", "later")
    main_checkout.git("update-index", "--assume-unchanged", "kept")
    tree = plain.capture().tree or ""
    listing = main_checkout.git("ls-tree", "-r", "--name-only", tree).splitlines()
    assert [name for name in listing if not name.startswith(("auto-merge/", "operation/"))] == [
        *(
            "files/README",
            "files/both",
            "files/kept",
            "files/later",
            "files/new",
            "files/other",
            "flags",
        ),
        *("index/0/kept", "index/0/other", "index/1/README"),
        *("index/2/README", "index/2/both", "index/3/README", "index/3/both"),
    ]
    assert {"operation/MERGE_HEAD", "operation/MERGE_MSG", "operation/MERGE_MODE"} <= set(listing)
    assert (
        main_checkout.git("cat-file", "blob", f"{tree}:flags")
        == "assume-unchanged kept\0intent-to-add later\0"
    )
    assert main_checkout.git(
        "cat-file", "blob", f"{tree}:files/both"
    ) == "half resolved\n".removesuffix("\n")


def test_plain_git_brings_the_files_back(plain: Store, main_checkout: Checkout) -> None:
    modified(main_checkout)
    untracked(main_checkout)
    made = plain.save("a-complete", {})
    main_checkout.git("reset", "--quiet", "--hard")
    main_checkout.git("clean", "--quiet", "-fd")
    main_checkout.git("restore", f"--source=refs/ckpt/trees/{made.id}:files", "--", ".")
    assert (main_checkout.path / "README").read_text() == "changed\n"
    assert (main_checkout.path / "deep/er/new").read_text() == "y"


def test_an_empty_repository(
    make_store: MakeStore, make_checkout: Callable[..., Checkout], adapter: str
) -> None:
    checkout = make_checkout()
    store = make_store(checkout, adapter)
    assert store.capture() == Worktree(dirty=False)
    checkout.write("draft", "x")
    checkout.write("staged", "y")
    checkout.git("add", "staged")
    expected = view(checkout.path)
    before = checkout.fingerprint()
    files = store.capture()
    assert checkout.fingerprint() == before
    made = store.record("a-complete", {}, worktree=files)
    path = store.resume(made).path
    assert view(path) == expected
    here, there = checkout, Checkout(Path(path))
    assert (
        there.git("rev-parse", "--verify", "--quiet", "HEAD", ok=(1,)),
        here.git("branch", "--show-current"),
    ) == ("", "main")
    # A first commit on a branch shared by two worktrees would make the other's index stale.
    assert there.git("branch", "--show-current") == f"ckpt/{made.id[:8]}"
    there.git("commit", "--quiet", "--message", "first")
    assert view(checkout.path) == expected


def test_ignored_files_are_left_out(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.commit("rules", **{".gitignore": "*.o\nbuild/\n"})
    main_checkout.write("a.o", "x")
    main_checkout.write("build/b", "x")
    assert plain.capture() == Worktree(dirty=False)
    main_checkout.git("add", "--force", "a.o")
    assert main_checkout.git(
        "ls-tree", "-r", "--name-only", f"{plain.capture().tree}:files"
    ).splitlines() == [
        ".gitignore",
        "README",
        "a.o",
    ]


def test_a_nested_repository_without_commits_is_named(
    plain: Store, main_checkout: Checkout
) -> None:
    main_checkout.git("init", "--quiet", "nested dir")
    main_checkout.write("new", "x")
    files = plain.capture()
    assert files == Worktree(dirty=True, tree=files.tree, omitted=files.omitted)
    assert left_out(files) == (LeftOut("nested dir/", "an embedded repository: not captured"),)
    assert main_checkout.git(
        "ls-tree", "-r", "--name-only", f"{files.tree}:files"
    ).splitlines() == ["README", "new"]
    made = plain.record("a-complete", {}, worktree=files)
    assert plain.read(made.id).worktree == files


def test_filters_apply(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.git("config", "filter.secret.clean", "tr a-z n-za-m")
    main_checkout.git("config", "filter.secret.smudge", "tr a-z n-za-m")
    main_checkout.git("config", "filter.secret.required", "true")
    main_checkout.write(".gitattributes", "*.dat filter=secret\n")
    main_checkout.write("a.dat", "secret\n")
    made = plain.save("a-complete", {})
    assert (
        main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{made.id}:files/a.dat") == "frperg"
    )
    assert (Path(plain.resume(made).path) / "a.dat").read_text() == "secret\n"


def test_what_a_required_filter_refuses_is_left_out_and_named(
    plain: Store, main_checkout: Checkout
) -> None:
    main_checkout.git("config", "filter.secret.clean", "false")
    main_checkout.git("config", "filter.secret.required", "true")
    main_checkout.write(".gitattributes", "*.dat filter=secret\n")
    main_checkout.write("a.dat", "secret\n")
    before = main_checkout.fingerprint()
    files = plain.capture()
    assert [(entry.path, entry.reason.partition(": ")[0]) for entry in files.omitted] == [
        ("a.dat", "git cannot store it")
    ]
    assert main_checkout.git(
        "ls-tree", "-r", "--name-only", f"{files.tree}:files"
    ).splitlines() == [".gitattributes", "README"]
    assert main_checkout.fingerprint() == before


@pytest.mark.parametrize("where", ["bare", ".git"])
def test_where_there_is_no_worktree(
    make_store: MakeStore, main_checkout: Checkout, tmp_path: Path, where: str
) -> None:
    main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
    store = make_store(tmp_path / "bare" if where == "bare" else main_checkout.path / ".git")
    with pytest.raises(WorktreeError) as caught:
        store.capture()
    assert caught.value.message == "this repository has no worktree to save files from"
    assert caught.value.hint == "save without files: git ckpt save --no-worktree"


def test_from_a_subdirectory_the_whole_worktree_is_captured(
    make_store: MakeStore, main_checkout: Checkout
) -> None:
    main_checkout.write("deep/er/new", "x")
    modified(main_checkout)
    store = make_store(main_checkout.path / "deep" / "er")
    tree = store.capture().tree
    assert main_checkout.git("ls-tree", "-r", "--name-only", f"{tree}:files").splitlines() == [
        "README",
        "deep/er/new",
    ]


def test_environment_of_a_hook_does_not_leak(
    plain: Store, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modified(main_checkout)
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "foreign index"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "foreign"))
    made = plain.save("a-complete", {})
    path = plain.resume(made).path
    assert not (tmp_path / "foreign index").exists()
    monkeypatch.delenv("GIT_INDEX_FILE")
    monkeypatch.delenv("GIT_DIR")
    assert view(path) == view(main_checkout.path)
    assert made.id == nth(1)
