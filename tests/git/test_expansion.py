"""`Expansion` counts the paths at which two trees differ without listing them."""

from __future__ import annotations

import random

import pytest

from gitckpt.git.objects.diff import DiffCounter
from gitckpt.git.objects.encoding import Entries
from gitckpt.git.repository import discover_repository
from gitckpt.model.budget import PathLimits
from tests.conftest import Checkout


def tree(here: Checkout, chance: random.Random) -> str:
    """Return a tree of a few paths; other trees share some of them."""
    here.git("read-tree", "--empty")
    blobs = [here.git("hash-object", "-w", "--stdin", data=text) for text in "ab"]
    paths = [
        f"{chance.choice('xyz')}{number}/{chance.choice('xyz')}"
        if chance.random() < 0.7
        else f"file{number}"
        for number in range(6)
    ]
    for path in paths:
        here.git("update-index", "--add", "--cacheinfo", f"100644,{chance.choice(blobs)},{path}")
    return here.git("write-tree")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_as_many_as_git_lists(main_checkout: Checkout, seed: int) -> None:
    chance = random.Random(seed)
    trees = ["", *(tree(main_checkout, chance) for _ in range(5))]
    empty = main_checkout.git("hash-object", "-t", "tree", "-w", "--stdin", data="")
    repository = discover_repository(str(main_checkout.path))
    for old in trees:
        for new in trees:
            listed = len(
                main_checkout.git(
                    "diff-tree", "-r", "-t", "--no-renames", old or empty, new or empty
                ).splitlines()
            )
            assert not DiffCounter(repository, PathLimits(listed, 9)).exceeds_path_limit(old, new)
            assert listed == 0 or DiffCounter(
                repository, PathLimits(listed - 1, 9)
            ).exceeds_path_limit(old, new)


def test_directories_within_each_other(main_checkout: Checkout) -> None:
    main_checkout.commit("deep", **{"a/b/c/d": "x"})
    repository = discover_repository(str(main_checkout.path))
    top = main_checkout.git("rev-parse", "HEAD^{tree}")
    assert [
        DiffCounter(repository, PathLimits(100, depth)).exceeds_path_limit("", top)
        for depth in (2, 3, 4)
    ] == [
        True,
        False,
        False,
    ]


def test_what_both_sides_have_is_not_read(main_checkout: Checkout) -> None:
    main_checkout.commit("one", **{"a/b": "x", "c/d": "x"})
    old = main_checkout.git("rev-parse", "HEAD^{tree}")
    main_checkout.commit("two", **{"c/d": "y"})
    repository = discover_repository(str(main_checkout.path))
    read: list[str] = []

    class Counting(DiffCounter):
        def read_tree_entries(self, tree: str) -> Entries:
            read.append(tree)
            return super().read_tree_entries(tree)

    new = main_checkout.git("rev-parse", "HEAD^{tree}")
    assert not Counting(repository, PathLimits(100, 9)).exceeds_path_limit(old, new)
    assert sorted(read) == sorted(
        [old, new, *(main_checkout.git("rev-parse", f"{tree}:c") for tree in (old, new))]
    )
