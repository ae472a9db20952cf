"""Entries are looked up in a tree by path, with the same result as git's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gitckpt import GitError
from gitckpt.git.objects.diff import find_leaf, list_leaves, list_paths
from gitckpt.git.objects.encoding import DIRECTORY, EXECUTABLE, FILE, GITLINK, LINK
from gitckpt.git.repository import Repository, discover_repository
from tests.conftest import Checkout


@pytest.fixture
def repository(main_checkout: Checkout) -> Iterator[Repository]:
    opened = discover_repository(str(main_checkout.path))
    yield opened
    opened.close()


@pytest.fixture
def tree(main_checkout: Checkout) -> str:
    """An entry of each kind, and a group-writable file as old versions of git wrote."""
    blob, commit = (
        main_checkout.git("hash-object", "-w", "--stdin", data="x"),
        main_checkout.git("rev-parse", "HEAD"),
    )
    inner = main_checkout.git(
        "mktree", "-z", data=f"100755 blob {blob}\t[ab]*\0" + f"100644 blob {blob}\tx\ny\0"
    )
    top = (
        f"100644 blob {blob}\ta",
        f"120000 blob {blob}\tlink",
        f"100664 blob {blob}\told",
        f"160000 commit {commit}\tsub",
    )
    return main_checkout.git(
        "mktree", "-z", data="".join(f"{line}\0" for line in (*top, f"040000 tree {inner}\td"))
    )


def test_all_of_it(repository: Repository, tree: str) -> None:
    modes = {
        b"a": FILE,
        b"d/[ab]*": EXECUTABLE,
        b"d/x\ny": FILE,
        b"link": LINK,
        b"old": FILE,
        b"sub": GITLINK,
    }
    found = list_leaves(repository, tree)
    assert {path: mode for path, mode, _ in found} == modes
    assert all(repository.cat_file.info(oid) is not None for _, _, oid in found)
    assert {path: mode for path, mode, _ in list_leaves(repository, tree, with_trees=True)} == {
        **modes,
        b"d": DIRECTORY,
    }


def test_one_path_is_no_pattern(repository: Repository, tree: str) -> None:
    assert [path for path, _, _ in list_leaves(repository, tree, [b"d/[ab]*"])] == [b"d/[ab]*"]
    assert find_leaf(repository, tree, b"d/[a]*") is None
    assert find_leaf(repository, tree, b"*") is None


@pytest.mark.parametrize(
    ("path", "mode"),
    [(b"d", DIRECTORY), (b"d/x\ny", FILE), (b"sub", GITLINK), (b"b", None), (b"d/", None)],
)
def test_what_is_at_a_path(
    repository: Repository, tree: str, path: bytes, mode: bytes | None
) -> None:
    found = find_leaf(repository, tree, path)
    assert (found[1] if found is not None else None) == mode


@pytest.mark.parametrize("more", [0, 30_000], ids=["few", "more than a command takes"])
def test_which_paths_are_there(repository: Repository, tree: str, more: int) -> None:
    """A sparse checkout may leave all of these files out."""
    others = [
        b"somewhere/in/a/directory/with/a/rather/long/name/as/there/are/many/in/projects/of/some/age/%d"
        % n
        for n in range(more)
    ]
    assert list_paths(repository, tree, [b"a", b"d", b"lin", b"sub/x", b"b", *others]) == {
        b"a",
        b"d/[ab]*",
        b"d/x\ny",
    }


def test_no_path_is_none(repository: Repository, tree: str) -> None:
    assert list_paths(repository, tree, []) == set()


def test_a_tree_that_is_missing(repository: Repository) -> None:
    with pytest.raises(GitError):
        list_leaves(repository, "1" * 40)
