"""A commit of which a `git gc --prune=now` of somebody else takes something before its checkpoint is recorded."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gitckpt import hook
from gitckpt.git.command import require_git
from gitckpt.git.repository import discover
from gitckpt.model.errors import CkptError
from gitckpt.store.hooks import installation
from gitckpt.store.records import layout
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, require_whole

LOST = ["^{tree}", ":below", ":one"]


class Gc:
    """A gc that began before a commit, knows nothing of what is new in it, and deletes that piece by piece.

    Args:
        checkout: the main worktree, with our hooks, which are silent while the commit is made.
    """

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        self._objects = checkout.path / ".git/objects"
        self._known = set(self._objects.glob("??/*"))
        (checkout.path / ".git/gc.pid").write_text(f"{os.getpid()} {socket.gethostname()}")
        checkout.write("one", "1\n")
        checkout.write("below/two", "2\n")
        checkout.git("add", "--all")
        checkout.git("commit", "--quiet", "-m", "new", env={"GITCKPT_SKIP": "1"})

    def take(self, *which: str) -> None:
        """Deletes some objects of the commit."""
        oids = self._checkout.git("rev-parse", *(f"HEAD{each}" for each in which)).splitlines()
        for oid in oids:
            (self._objects / oid[:2] / oid[2:]).unlink()

    def end(self) -> None:
        """Deletes the rest, and is over."""
        for path in set(self._objects.glob("??/*")) - self._known:
            path.unlink()
        self.be_over()

    def be_over(self) -> None:
        """Deletes no more. The last that git writes is the commit graph."""
        (self._checkout.path / ".git/gc.pid").unlink()
        self._checkout.git("commit-graph", "write", "--reachable")


@pytest.fixture
def gc(main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Gc:
    repository = discover(str(main_checkout.path))
    installation.install(repository, version=require_git())
    (Path(repository.make_private_dir()) / layout.MAINTAINED).touch()
    monkeypatch.chdir(main_checkout.path)
    return Gc(main_checkout)


def test_what_is_new_in_a_commit_is_held_while_a_gc_runs(main_checkout: Checkout, gc: Gc, capfd: pytest.CaptureFixture[str]) -> None:
    hook.main(["post-commit"])
    assert capfd.readouterr().err == ""
    gc.end()
    assert len(require_whole(main_checkout)) == 1
    assert list((main_checkout.path / ".git/objects/pack").glob("*.keep")) == []


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("lost", LOST)
def test_the_hook_names_what_is_gone(main_checkout: Checkout, gc: Gc, capfd: pytest.CaptureFixture[str], lost: str, is_over: bool) -> None:
    oid = main_checkout.git("rev-parse", f"HEAD{lost}")
    gc.take(lost)
    if is_over:
        gc.be_over()
    assert hook.main(["post-commit"]) == 0
    said = capfd.readouterr().err
    assert said.startswith(f"gitckpt: post-commit: no checkpoint was recorded: the object {oid} of the commit ")
    assert said.count("\n") == 1
    assert "no checkpoint was recorded" in (main_checkout.path / ".git/ckpt/log").read_text()
    assert main_checkout.refs("refs/checkpoints", "refs/keep") == {}
    assert list((main_checkout.path / ".git/objects/pack").glob("*.keep")) == []


def test_a_record_fails_where_something_is_gone(main_checkout: Checkout, make_store: MakeStore, adapter: str, gc: Gc) -> None:
    store = make_store(main_checkout, adapter)
    gc.take(":below")
    with pytest.raises(CkptError, match=r"of the commit .* is gone, as a git gc --prune=now takes it"):
        store.record("a-complete", {})
    assert main_checkout.refs("refs/checkpoints", "refs/keep") == {}


def test_what_a_partial_clone_lacks_is_no_loss(main_checkout: Checkout, gc: Gc, capfd: pytest.CaptureFixture[str]) -> None:
    main_checkout.git("config", "remote.origin.url", "nowhere")
    main_checkout.git("config", "remote.origin.promisor", "true")
    main_checkout.git("config", "extensions.partialClone", "origin")
    gc.take(":one")
    main_checkout.write("one", "changed since\n")
    hook.main(["post-commit"])
    assert capfd.readouterr().err == ""
    assert len(main_checkout.refs("refs/checkpoints")) == 1
