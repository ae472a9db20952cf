"""Intent-to-add entries come back as they were, even without their file."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import Store, WorktreeError
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, view
from tests.stores import plant_snapshot

Prepare = Callable[[Checkout], None]


def intend(here: Checkout, *names: str) -> None:
    for name in names:
        if not os.path.lexists(here.path / name):
            here.write(name, "content\n")
    here.git("add", "--intent-to-add", *names)


def deleted(here: Checkout) -> None:
    intend(here, "d/e", "odd [name]\nof two lines")
    shutil.rmtree(here.path / "d")
    (here.path / "odd [name]\nof two lines").unlink()


def file_in_the_place_of_the_directory(here: Checkout) -> None:
    intend(here, "d/e")
    shutil.rmtree(here.path / "d")
    here.write("d", "a file\n")


def link_in_the_place_of_the_directory(here: Checkout) -> None:
    intend(here, "d/e")
    os.rename(here.path / "d", here.path / "elsewhere")
    (here.path / "d").symlink_to("elsewhere")


def directory_in_the_place_of_the_file(here: Checkout) -> None:
    intend(here, "f")
    (here.path / "f").unlink()
    here.write("f/in", "1\n")
    here.write("f/deep/er", "2\n")


def tools_and_links(here: Checkout) -> None:
    (here.path / "link").symlink_to("README")
    here.write("tool", "").chmod(0o755)
    intend(here, "link", "tool")
    for name in ("link", "tool"):
        (here.path / name).unlink()


def over_a_file_of_the_commit(here: Checkout) -> None:
    here.git("rm", "--quiet", "--cached", "README")
    intend(here, "README")
    (here.path / "README").unlink()


def among_others(here: Checkout) -> None:
    here.commit("more", empty="", kept="")
    intend(here, "gone", "there")
    (here.path / "gone").unlink()
    (here.path / "empty").unlink()
    here.write("staged", "1\n")
    here.git("add", "staged")
    here.write("README", "changed\n")


def ignored(here: Checkout) -> None:
    here.commit("rules", **{".gitignore": "*.o\n"})
    here.write("a.o", "")
    here.git("add", "--force", "--intent-to-add", "a.o")
    (here.path / "a.o").unlink()


def over_an_empty_file_of_the_commit(here: Checkout) -> None:
    """Make `git reset --hard` treat intent-to-add entries as those of the commit.

    git then keeps them in directories that its cache tree calls valid.
    """
    here.commit("empty", empty="", other="")
    here.git("rm", "--quiet", "--cached", "empty", "other")
    intend(here, "empty", "other")
    here.git("reset", "--quiet", "--hard")
    (here.path / "other").unlink()
    here.write("README", "changed\n")


def of_another_kind_by_now(here: Checkout) -> None:
    here.write("plain", "1\n").chmod(0o755)
    here.write("linked", "1\n").chmod(0o755)
    (here.path / "file").symlink_to("README")
    intend(here, "plain", "linked", "file", "tool", "link")
    (here.path / "plain").chmod(0o644)
    (here.path / "tool").chmod(0o755)
    for name in ("linked", "file", "link"):
        (here.path / name).unlink()
    (here.path / "linked").symlink_to("README")
    (here.path / "link").symlink_to("nowhere")
    here.write("file", "2\n")


STATES: list[Prepare] = [
    *(over_an_empty_file_of_the_commit, of_another_kind_by_now),
    *(
        deleted,
        file_in_the_place_of_the_directory,
        link_in_the_place_of_the_directory,
        directory_in_the_place_of_the_file,
    ),
    *(tools_and_links, over_a_file_of_the_commit, among_others, ignored),
]


def flags(path: Path | str) -> list[tuple[str, ...]]:
    """Return mode, path and lasting flags of each entry of an index."""
    listing = Checkout(Path(path)).git("ls-files", "--stage", "--debug", "-z")
    found = re.findall(
        (
            r"(\d+) [0-9a-f]+ \d\t([^\0]*)\0(?:  [a-z]+: .*\n){4}  size: \d+\tflags: "
            r"([0-9a-f]+)(?:\n|$)"
        ),
        listing,
    )
    return [(mode, name, f"{int(each, 16) & 0x60008000:x}") for mode, name, each in found]


@pytest.mark.long
@pytest.mark.sampled(12)
@pytest.mark.parametrize("prepare", STATES)
def test_there_and_back(store: Store, checkout: Checkout, prepare: Prepare) -> None:
    prepare(checkout)
    expected = view(checkout.path), flags(checkout.path)
    assert any(each[2] == "20000000" for each in expected[1])
    made = store.save("a-complete", {})
    assert (made.worktree and made.worktree.dirty, store.save("b-complete", {}).worktree) == (
        True,
        made.worktree,
    )
    opened = store.resume(made)
    assert (view(opened.path), flags(opened.path)) == expected
    checkout.git("reset", "--quiet", "--hard")
    checkout.git("clean", "--quiet", "-fdx", "--exclude=.ckpt")
    before = view(checkout.path), flags(checkout.path)
    store.restore(made)
    assert (view(checkout.path), flags(checkout.path)) == expected
    store.undo()
    assert (view(checkout.path), flags(checkout.path)) == before
    store.redo()
    assert (view(checkout.path), flags(checkout.path)) == expected


@pytest.mark.long
@pytest.mark.parametrize("has_file", [True, False])
def test_what_git_itself_overlooks(store: Store, checkout: Checkout, has_file: bool) -> None:
    """Entries below a valid cache tree come back, though `git status` misses them."""
    checkout.commit("empty", **{"d/empty": ""})
    checkout.git("rm", "--quiet", "--cached", "d/empty")
    intend(checkout, "d/empty")
    checkout.git("reset", "--quiet", "--hard")
    if not has_file:
        (checkout.path / "d" / "empty").unlink()
    made = store.save("a-complete", {})
    expected = [("100644", "README", "0"), ("100644", "d/empty", "20000000")]
    assert flags(checkout.path) == expected
    opened = store.resume(made)
    assert (flags(opened.path), (Path(opened.path) / "d" / "empty").exists()) == (
        expected,
        has_file,
    )
    checkout.git("rm", "--quiet", "--cached", "d/empty")
    checkout.write("d/empty", "other\n")
    store.restore(made)
    assert (flags(checkout.path), (checkout.path / "d" / "empty").exists()) == (expected, has_file)
    store.undo()
    assert (flags(checkout.path), (checkout.path / "d" / "empty").read_text()) == (
        expected[:1],
        "other\n",
    )


def test_one_path_of_several(store: Store, checkout: Checkout) -> None:
    among_others(checkout)
    intend(checkout, "d/e")
    shutil.rmtree(checkout.path / "d")
    made = store.save("a-complete", {})
    checkout.git("reset", "--quiet", "--hard")
    store.restore(made, [b"d/e"], index=True)
    assert [each for each in flags(checkout.path) if each[2] != "0"] == [
        ("100644", "d/e", "20000000")
    ]
    assert checkout.git("status", "--porcelain", "--untracked-files=no") == " D d/e"
    store.undo()
    assert checkout.git("status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.long
@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
@pytest.mark.parametrize("is_gone", [False, True])
def test_repository_added_in_intent_keeps_its_mode(
    make_checkout: Callable[..., Checkout],
    make_store: MakeStore,
    object_format: str,
    is_gone: bool,
) -> None:
    """Git gives such an entry mode 160000 and the oid of an empty blob."""
    here = make_checkout("project", f"--object-format={object_format}")
    here.commit("first", README="hello\n")
    store = make_store(here)
    first = store.save("a-complete", {})
    here.git("init", "--quiet", f"--object-format={object_format}", "deep/nest")
    nest = Checkout(here.path / "deep/nest")
    nest.commit("nested", i="i\n")
    here.git("add", "--intent-to-add", "deep/nest")
    if is_gone:
        shutil.rmtree(here.path / "deep")
    expected = flags(here.path)
    assert ("160000", "deep/nest", "20000000") in expected
    second = store.save("b-complete", {})
    assert flags(store.resume(second).path) == expected
    store.restore(first)
    assert flags(here.path) == [("100644", "README", "0")]
    store.undo()
    assert flags(here.path) == expected
    store.redo()
    store.restore(second, [b"deep/nest"], index=True)
    assert flags(here.path) == expected
    assert is_gone or (nest.path / "i").read_text() == "i\n"


def test_it_is_no_empty_file_that_was_staged(store: Store, checkout: Checkout) -> None:
    """`git status` shows the same for a staged empty file whose file is gone."""
    checkout.write("staged", "")
    checkout.git("add", "staged")
    checkout.commit("empty", kept="")
    for name in ("staged", "kept"):
        (checkout.path / name).unlink()
    made = store.save("a-complete", {})
    assert checkout.git("ls-tree", "--name-only", f"refs/ckpt/trees/{made.id}").split() == ["files"]


def test_what_was_intended_in_a_worktree_whose_directory_is_gone(
    plain: Store, main_checkout: Checkout
) -> None:
    main_checkout.write("README", "changed\n")
    made = plain.save("a-complete", {})
    there = Checkout(Path(plain.resume(made).path))
    there.write("tool", "").chmod(0o755)
    intend(there, "later", "tool")
    there.write("staged", "1\n")
    there.git("add", "staged")
    expected = [each for each in flags(there.path) if each[1] != "README"]
    shutil.rmtree(there.path)
    plain.resume(made)
    rescued = plain.read(plain.find("latest:any"))
    assert rescued.trigger == "safety:worktree"
    again = plain.resume(rescued)
    assert [each for each in flags(again.path) if each[1] != "README"] == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "path", [b"../outside", b".git/config", b"a/../../b", b"/etc/x", b"d/.git/hooks/x", b""]
)
def test_paths_of_a_fetched_snapshot(
    plain: Store, main_checkout: Checkout, tmp_path: Path, path: bytes
) -> None:
    tree = main_checkout.git("rev-parse", "HEAD^{tree}")
    made = plain.save("a-complete", {})
    assert made.worktree is not None
    snapshot = plant_snapshot(plain, tree, flags={"intent-to-add": [path], "link": [path]})
    hostile = replace(made, worktree=replace(made.worktree, dirty=True, tree=snapshot))
    config = (main_checkout.path / ".git" / "config").read_text()
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(WorktreeError):
        plain.resume(hostile, str(tmp_path / "there"))
    assert sorted(os.listdir(tmp_path)) == before
    assert (main_checkout.path / ".git" / "config").read_text() == config


def test_paths_that_exclude_each_other(
    make_store: MakeStore, main_checkout: Checkout, tmp_path: Path
) -> None:
    plain = make_store(main_checkout)
    made = plain.save("a-complete", {})
    assert made.worktree is not None
    tree = main_checkout.git("rev-parse", "HEAD^{tree}")
    snapshot = plant_snapshot(plain, tree, flags={"intent-to-add": [b"d", b"d/e"]})
    hostile = replace(made, worktree=replace(made.worktree, dirty=True, tree=snapshot))
    with pytest.raises(WorktreeError):
        plain.resume(hostile, str(tmp_path / "there"))
