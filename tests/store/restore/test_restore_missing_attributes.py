"""Restore where a sparse checkout leaves `.gitattributes` in the index alone.

git then reads the index entry, also when it writes other files. Found by
`test_worktree_returns.py`, `linked-libgit2`, seed 702.
"""

from __future__ import annotations

import pytest

from gitckpt import Store
from tests.conftest import Checkout
from tests.store.conftest import view

TURN = "tr a-z n-za-m"


@pytest.fixture
def checkout(checkout: Checkout) -> Checkout:
    """A worktree with a file that no rule converts yet."""
    for step in ("clean", "smudge"):
        checkout.git("config", f"filter.turned.{step}", TURN)
    checkout.commit("more", **{"t.txt": "base\n", "a": "a\n", "d/x": "x\n"})
    return checkout


def convert(here: Checkout) -> None:
    here.write(".gitattributes", "*.txt filter=turned\n")
    here.git("add", "--all")
    here.git(
        "add", "--renormalize", "."
    )  # a file that is as old as the index says is not read again by itself
    here.git("sparse-checkout", "set", "--no-cone", "a", "t.txt")
    assert not (here.path / ".gitattributes").exists()
    assert here.git("cat-file", "blob", ":t.txt") == "onfr"


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("paths", [(), (b"t.txt", b".gitattributes")])
def test_those_are_not_wanted(store: Store, checkout: Checkout, paths: tuple[bytes, ...]) -> None:
    made = store.save("a-complete", {})
    convert(checkout)
    before = view(checkout.path)
    store.restore(made, paths or None, index=True)
    after = view(checkout.path)
    assert (checkout.path / "t.txt").read_text() == "base\n"
    assert checkout.git("cat-file", "blob", ":t.txt") == "base"
    assert checkout.git("diff", "--name-only") == ""
    store.undo()
    assert view(checkout.path) == before
    assert checkout.git("diff", "--name-only") == ""
    store.redo()
    assert view(checkout.path) == after


@pytest.mark.long
def test_those_are_wanted_again(store: Store, checkout: Checkout) -> None:
    convert(checkout)
    made = store.save("a-complete", {})
    wanted = view(checkout.path)
    checkout.git("rm", "--quiet", "--cached", "--sparse", ".gitattributes")
    checkout.git("add", "--renormalize", "--sparse", "t.txt")  # by its stat data it is as it was
    assert checkout.git("cat-file", "blob", ":t.txt") == "base"
    before = view(checkout.path)
    store.restore(made)
    assert view(checkout.path) == wanted
    assert checkout.git("diff", "--name-only") == ""
    store.undo()
    assert view(checkout.path) == before
