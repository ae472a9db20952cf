"""Recording in every kind of repository: bare, shallow, SHA-256 and others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Checkpoint, Store
from gitckpt.git.objects.libgit2 import Libgit2Objects
from gitckpt.git.objects.plumbing import PlumbingObjects
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.conftest import ONE, MakeStore, blob, notes, require_whole


class TestRepositories:
    """Each kind of repository records, reads, finds, lists and captures."""

    @staticmethod
    def check(store: Store, checkout: Checkout, *, branch: str | None, adapter: type) -> Checkpoint:
        head = checkout.git("rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1))
        files = store.capture() if store.worktree else None
        made = store.record("a-complete", {"n": 1}, worktree=files, start="odd one")
        assert (type(checkpoints_of_store(store).objects), made.git_sha, made.branch) == (
            adapter,
            head,
            branch,
        )
        assert [store.find(made.id[:8]), store.find("latest"), store.list()[0].id] == [made.id] * 3
        assert store.read(made.id) == made
        assert require_whole(checkout) == {made.id: made}
        assert notes(checkout) == ({head: [made.id]} if head else {})
        assert [entry.id for entry in store.links(head)] == [made.id]
        return made

    def test_detached(self, make_store: MakeStore, checkout: Checkout, adapter: str) -> None:
        checkout.git("checkout", "--quiet", "--detach")
        self.check(
            make_store(checkout, adapter),
            checkout,
            branch=None,
            adapter={"libgit2": Libgit2Objects, "plumbing": PlumbingObjects}[adapter],
        )

    def test_unborn(
        self, make_store: MakeStore, make_checkout: Callable[..., Checkout], adapter: str
    ) -> None:
        checkout = make_checkout()
        checkout.write("draft", "x")
        made = self.check(
            make_store(checkout, adapter),
            checkout,
            branch="main",
            adapter={"libgit2": Libgit2Objects, "plumbing": PlumbingObjects}[adapter],
        )
        tree = made.tree or ""
        assert (
            checkout.git("ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{ONE}") == "files/draft"
        )
        assert checkout.refs() == {
            f"refs/checkpoints/{ONE}": checkout.git("rev-parse", f"refs/checkpoints/{ONE}"),
            f"refs/ckpt/trees/{ONE}": tree,
            f"refs/ckpt/runs/{made.run}": checkout.git("rev-parse", f"refs/checkpoints/{ONE}"),
        }

    def test_bare(self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
        bare = Checkout(tmp_path / "bare.git")
        self.check(make_store(bare, "auto"), bare, branch="main", adapter=Libgit2Objects)

    def test_shallow(self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path) -> None:
        main_checkout.commit("second")
        main_checkout.git(
            "clone",
            "--quiet",
            "--depth=1",
            f"file://{main_checkout.path}",
            str(tmp_path / "shallow"),
        )
        clone = Checkout(tmp_path / "shallow")
        clone.write("new", "x")
        self.check(make_store(clone, "auto"), clone, branch="main", adapter=Libgit2Objects)

    def test_sha256(self, make_store: MakeStore, make_checkout: Callable[..., Checkout]) -> None:
        checkout = make_checkout("wide", "--object-format=sha256")
        checkout.commit("first", README="hello\n")
        checkout.write("new", "x")
        made = self.check(
            make_store(checkout, "auto"), checkout, branch="main", adapter=PlumbingObjects
        )
        assert len(made.git_sha) == 64

    def test_partial_clone(
        self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.commit("second", README="second\n", other="other\n")
        main_checkout.git("config", "uploadpack.allowFilter", "true")
        place = tmp_path / "partial"
        main_checkout.git(
            "clone",
            "--quiet",
            "--filter=blob:none",
            "--no-checkout",
            f"file://{main_checkout.path}",
            str(place),
        )
        clone = Checkout(place)
        clone.git("sparse-checkout", "set", "--no-cone", "/README")
        clone.git("checkout", "--quiet", "main")
        clone.write("README", "changed\n")
        missing = clone.git("rev-list", "--objects", "--missing=print", "HEAD").count("?")
        made = make_store(clone, "auto").record(
            "a-complete", {}, worktree=make_store(clone, "auto").capture()
        )
        names = clone.git("ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{made.id}").splitlines()
        assert names == ["files/README", "files/other", "flags", "sparse"]
        assert (
            missing,
            clone.git("rev-list", "--objects", "--missing=print", "HEAD").count("?"),
        ) == (2, 2)  # nothing was fetched for it

    def test_worktree_config(
        self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.git("config", "extensions.worktreeConfig", "true")
        main_checkout.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        side = Checkout(tmp_path / "side", main_checkout.path)
        side.git("config", "--worktree", "core.autocrlf", "true")
        side.write("crlf", "a\r\nb\r\n")
        made = self.check(make_store(side, "auto"), side, branch="side", adapter=Libgit2Objects)
        assert (
            blob(side, side.git("rev-parse", f"refs/ckpt/trees/{made.id}:files/crlf")) == b"a\nb\n"
        )

    @pytest.mark.parametrize("kind", ["sparse checkout", "sparse index", "split index"])
    def test_index(
        self, make_store: MakeStore, make_checkout: Callable[..., Checkout], kind: str
    ) -> None:
        checkout = make_checkout()
        checkout.commit("first", **{"in/a": "a", "out/b": "b", "out/deep/c": "c", "top": "t"})
        if kind == "split index":
            checkout.git("update-index", "--split-index")
        else:
            checkout.git(
                "sparse-checkout",
                "set",
                "--cone",
                "--sparse-index" if kind == "sparse index" else "--no-sparse-index",
                "in",
            )
        checkout.write("in/a", "changed")
        checkout.write("in/new", "new")
        before = checkout.fingerprint()
        store = make_store(checkout, "auto")
        files = store.capture()
        assert checkout.fingerprint() == before
        made = store.record("a-complete", {}, worktree=files)
        names = checkout.git(
            "ls-tree", "-r", "--name-only", f"refs/ckpt/trees/{made.id}:files"
        ).splitlines()
        assert names == ["in/a", "in/new", "out/b", "out/deep/c", "top"]
        assert require_whole(checkout) == {made.id: made}

    def test_reftable(
        self, newer_git: str, make_store: MakeStore, make_checkout: Callable[..., Checkout]
    ) -> None:
        checkout = make_checkout("tables", "--ref-format=reftable")
        checkout.commit("first", README="hello\n")
        checkout.write("new", "x")
        store = make_store(checkout, "auto")
        assert checkpoints_of_store(store).repository.has_reftable
        made = self.check(store, checkout, branch="main", adapter=PlumbingObjects)
        assert store.remove([made.id]) == 1
        assert list(checkout.refs("refs/checkpoints", "refs/ckpt")) == []
