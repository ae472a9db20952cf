"""Restore of a hook's checkpoint of a commit keeps untracked files."""

from __future__ import annotations

import pytest

from gitckpt import NotFoundError, Store
from tests.conftest import Checkout


def test_untracked_files_stay(store: Store, checkout: Checkout) -> None:
    made = store.record("commit-complete", {}, trigger="post-commit")
    checkout.write("README", "changed\n")
    checkout.write("new/notes", "mine\n")
    checkout.write("added", "staged\n")
    checkout.git("add", "added")
    done = store.restore(made)
    assert [(change.kind, change.path) for change in done.changes] == [
        ("change", b"README"),
        ("delete", b"added"),
    ]
    assert done.remarks == ["untracked files stay, as the checkpoint captured none: new/notes"]
    assert checkout.git("status", "--porcelain", "--untracked-files=all") == "?? new/notes"
    assert store.restore(made).changes == []
    store.undo()
    assert (
        checkout.git("status", "--porcelain", "--untracked-files=all")
        == " M README\nA  added\n?? new/notes"
    )


def test_one_in_the_way_of_a_file_goes_and_comes_back(store: Store, checkout: Checkout) -> None:
    checkout.commit("a directory", **{"there/file": "x\n"})
    made = store.record("commit-complete", {}, trigger="post-commit")
    checkout.git("rm", "--quiet", "-r", "there")
    checkout.git("commit", "--quiet", "-m", "gone")
    checkout.write("there", "mine\n")
    checkout.write("beside", "mine, too\n")
    store.restore(made)
    assert (checkout.path / "there/file").read_text() == "x\n"
    assert (checkout.path / "beside").read_text() == "mine, too\n"
    store.undo()
    assert (checkout.path / "there").read_text() == "mine\n"


def test_what_was_looked_at_decides(store: Store, checkout: Checkout) -> None:
    made = store.save("a-complete", {})
    checkout.write("notes", "new since then\n")
    assert [(change.kind, change.path) for change in store.restore(made).changes] == [
        ("delete", b"notes")
    ]


@pytest.mark.parametrize("name", ["HEAD", "latest"])
def test_a_name_means_the_same_after_a_restore(store: Store, checkout: Checkout, name: str) -> None:
    """Names skip the newer safety checkpoint, so a second restore changes nothing."""
    made = store.save("a-complete", {})
    checkout.write("README", "changed\n")
    assert store.restore(store.find(name)).safety is not None
    assert store.list()[0].trigger == "safety"
    assert store.find(name) == made.id
    assert store.restore(store.find(name)).changes == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("HEAD", "commit {0} (HEAD) only has safety checkpoints of restores"),
        ("latest", "no checkpoint was made in this worktree"),
        (
            "latest:any",
            "every checkpoint was fetched, or is a safety checkpoint of a restore",
        ),
    ],
)
def test_nothing_else_is_there(store: Store, checkout: Checkout, name: str, message: str) -> None:
    made = store.save("a-complete", {})
    checkout.write("README", "changed\n")
    safety = store.restore(made).safety
    store.remove([made.id])
    with pytest.raises(NotFoundError) as caught:
        store.find(name)
    assert caught.value.message == message.format(checkout.git("rev-parse", "HEAD")[:10])
    assert safety is not None
    assert store.find(safety[:8]) == safety
