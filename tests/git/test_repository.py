"""`discover` finds the same repository and worktree as git does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import NotFoundError, RepositoryError
from gitckpt.git.objects.plumbing import open_objects
from gitckpt.git.refs import RefUpdate
from gitckpt.git.repository import Repository, discover_repository
from tests.conftest import Checkout
from tests.git.applying import apply_once
from tests.git.whereabouts import Open, main_of, whereabouts


def check_usable(checkout: Checkout, repository: Repository) -> None:
    """Discover the repository, write a ref and an object, and read both with git."""
    objects = open_objects(repository)
    objects.write([("blob", b"usable")])
    commit, branch = objects.read_head()
    assert commit == checkout.git("rev-parse", "HEAD")
    apply_once(
        repository,
        [
            RefUpdate(
                "refs/checkpoints/usable", checkout.git("hash-object", "--stdin", data="usable"), ""
            )
        ],
    )
    assert checkout.git("cat-file", "blob", "refs/checkpoints/usable") == "usable"
    assert repository.git.run_for_text("symbolic-ref", "--short", "HEAD") == branch
    objects.close()


class TestDiscover:
    def test_main_worktree(self, main_checkout: Checkout, opened: Open) -> None:
        repository = opened(main_checkout)
        assert whereabouts(repository) == main_of(main_checkout)
        assert (repository.object_format, repository.has_reftable) == ("sha1", False)
        check_usable(main_checkout, repository)

    def test_current_directory_is_the_default(
        self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(main_checkout.path)
        assert whereabouts(discover_repository()) == main_of(main_checkout)

    def test_subdirectory(self, main_checkout: Checkout, opened: Open) -> None:
        main_checkout.write("a/b/c", "")
        assert whereabouts(opened(main_checkout.path / "a" / "b")) == main_of(main_checkout)

    def test_symbolic_link_to_it(
        self, main_checkout: Checkout, tmp_path: Path, opened: Open
    ) -> None:
        (tmp_path / "link").symlink_to(main_checkout.path)
        assert whereabouts(opened(tmp_path / "link")) == main_of(main_checkout)

    def test_linked_worktree(self, main_checkout: Checkout, tmp_path: Path, opened: Open) -> None:
        linked = Checkout(tmp_path / "linked", main_checkout.path)
        main_checkout.git("worktree", "add", "--quiet", "-b", "side", str(linked.path))
        linked.write("below/file", "")
        repository = opened(linked.path / "below")
        assert whereabouts(repository) == {
            "git_dir": str(main_checkout.path / ".git" / "worktrees" / "linked"),
            "common_dir": str(main_checkout.path / ".git"),
            "worktree": str(linked.path),
            "is_linked": True,
        }
        check_usable(linked, repository)

    def test_linked_worktree_of_a_bare_repository(
        self, main_checkout: Checkout, tmp_path: Path, opened: Open
    ) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
        linked = Checkout(tmp_path / "linked")
        Checkout(tmp_path / "bare").git(
            "worktree", "add", "--quiet", "-b", "side", str(linked.path)
        )
        repository = opened(linked)
        assert whereabouts(repository) == {
            "git_dir": str(tmp_path / "bare" / "worktrees" / "linked"),
            "common_dir": str(tmp_path / "bare"),
            "worktree": str(linked.path),
            "is_linked": True,
        }
        check_usable(linked, repository)

    @pytest.mark.parametrize("below", [".", "refs"])
    def test_bare_repository(
        self, main_checkout: Checkout, tmp_path: Path, opened: Open, below: str
    ) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
        repository = opened(tmp_path / "bare" / below)
        bare = str(tmp_path / "bare")
        assert whereabouts(repository) == {
            "git_dir": bare,
            "common_dir": bare,
            "worktree": None,
            "is_linked": False,
        }
        check_usable(Checkout(tmp_path / "bare"), repository)

    def test_bare_repository_is_usable_from_a_directory_that_is_gone(
        self, main_checkout: Checkout, tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
        repositories = [opened(tmp_path / "bare"), opened(main_checkout)]
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        heads = [repository.git.run_for_text("rev-parse", "HEAD") for repository in repositories]
        monkeypatch.chdir(tmp_path)
        assert heads == [main_checkout.git("rev-parse", "HEAD")] * 2

    def test_a_directory_that_is_gone_is_in_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As after `git worktree remove` of the current worktree."""
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        with pytest.raises(
            RepositoryError, match=r"^the current directory does not exist any more$"
        ) as refused:
            discover_repository()
        monkeypatch.chdir(tmp_path)
        assert refused.value.hint == "change to another directory: cd DIR"

    @pytest.mark.parametrize("below", [".git", ".git/refs/heads"])
    def test_inside_the_git_directory_there_is_no_worktree(
        self, main_checkout: Checkout, opened: Open, below: str
    ) -> None:
        assert whereabouts(opened(main_checkout.path / below)) == main_of(main_checkout) | {
            "worktree": None
        }

    def test_separate_git_directory(
        self, make_checkout: Callable[..., Checkout], tmp_path: Path, opened: Open
    ) -> None:
        checkout = make_checkout("project", f"--separate-git-dir={tmp_path / 'elsewhere'}")
        checkout.commit("first")
        repository = opened(checkout)
        git_dir = str(tmp_path / "elsewhere")
        assert whereabouts(repository) == {
            "git_dir": git_dir,
            "common_dir": git_dir,
            "worktree": str(checkout.path),
            "is_linked": False,
        }
        check_usable(checkout, repository)

    def test_submodule(
        self, main_checkout: Checkout, make_checkout: Callable[..., Checkout], opened: Open
    ) -> None:
        outer = make_checkout("outer")
        outer.git("submodule", "--quiet", "add", str(main_checkout.path), "inner module")
        inner = Checkout(outer.path / "inner module")
        repository = opened(inner)
        git_dir = str(outer.path / ".git" / "modules" / "inner module")
        assert whereabouts(repository) == {
            "git_dir": git_dir,
            "common_dir": git_dir,
            "worktree": str(inner.path),
            "is_linked": False,
        }
        check_usable(inner, repository)

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "name",
        [
            "with space",
            "quo'te\"s",
            "new\nline",
            "ends in newline\n",
            "größe-枝",
            "\udcff\udcfe",
            "$HOME",
            "back\\slash",
            "-dash",
            "{a,b}*?[x]",
        ],
    )
    def test_any_path(
        self, main_checkout: Checkout, tmp_path: Path, opened: Open, name: str
    ) -> None:
        moved = Checkout(tmp_path / name)
        main_checkout.path.rename(moved.path)
        linked = Checkout(tmp_path / f"{name}2")
        moved.git("worktree", "add", "--quiet", "-b", "side", str(linked.path))
        repository = opened(moved)
        assert whereabouts(repository) == main_of(moved)
        check_usable(moved, repository)
        there = opened(linked)
        assert (there.common_dir, there.worktree, there.is_linked) == (
            str(moved.path / ".git"),
            str(linked.path),
            True,
        )
        assert there.git.run_for_text("rev-parse", "--abbrev-ref", "HEAD") == "side"

    def test_unborn(self, make_checkout: Callable[..., Checkout], opened: Open) -> None:
        checkout = make_checkout()
        assert whereabouts(opened(checkout)) == main_of(checkout)

    def test_sha256(self, make_checkout: Callable[..., Checkout], opened: Open) -> None:
        checkout = make_checkout("project", "--object-format=sha256")
        checkout.commit("first")
        assert opened(checkout).object_format == "sha256"
        check_usable(checkout, opened(checkout))

    def test_reftable(
        self, newer_git: str, make_checkout: Callable[..., Checkout], opened: Open
    ) -> None:
        checkout = make_checkout("project", "--ref-format=reftable")
        checkout.commit("first")
        assert opened(checkout).has_reftable
        check_usable(checkout, opened(checkout))

    def test_worktree_configuration(self, checkout: Checkout, opened: Open) -> None:
        checkout.git("config", "extensions.worktreeConfig", "true")
        checkout.git("config", "--worktree", "ckpt.here", "yes")
        repository = opened(checkout)
        assert repository.git.run_for_text("config", "ckpt.here") == "yes"
        check_usable(checkout, repository)

    def test_sparse_checkout_with_sparse_and_split_index(
        self, main_checkout: Checkout, opened: Open
    ) -> None:
        main_checkout.commit("more", **{"in/file": "1", "out/file": "2"})
        main_checkout.git("sparse-checkout", "set", "--sparse-index", "in")
        check_usable(main_checkout, opened(main_checkout))
        main_checkout.git("sparse-checkout", "disable")
        main_checkout.git("update-index", "--split-index")
        main_checkout.git("update-ref", "-d", "refs/checkpoints/usable")
        check_usable(main_checkout, opened(main_checkout))

    def test_shallow_and_partial_clones(
        self, main_checkout: Checkout, tmp_path: Path, opened: Open
    ) -> None:
        main_checkout.commit("second")
        main_checkout.git("config", "uploadpack.allowFilter", "true")
        for number, option in enumerate(["--depth=1", "--filter=blob:none"]):
            clone = Checkout(tmp_path / str(number))
            main_checkout.git(
                "clone", "--quiet", option, f"file://{main_checkout.path}", str(clone.path)
            )
            repository = opened(clone)
            assert whereabouts(repository) == main_of(clone)
            check_usable(clone, repository)


class TestPrivateDirectory:
    def test_is_shared_by_all_worktrees_and_made_when_asked(
        self, checkout: Checkout, opened: Open
    ) -> None:
        repository = opened(checkout)
        expected = checkout.main / ".git" / "ckpt"
        assert (repository.private_dir, expected.exists()) == (str(expected), False)
        assert [repository.make_private_dir(), repository.make_private_dir()] == [str(expected)] * 2
        assert expected.is_dir()

    def test_that_cannot_be_made_is_an_error(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        main_checkout.write(".git/ckpt", "in the way")
        with pytest.raises(RepositoryError) as caught:
            repository.make_private_dir()
        assert (caught.value.message, caught.value.hint) == (
            f"cannot write to {main_checkout.path / '.git'}: Not a directory",
            f"make it writable: chmod -R u+w {main_checkout.path / '.git'}",
        )


class TestCommit:
    def test_a_rev_names_a_commit(self, checkout: Checkout, opened: Open) -> None:
        first, second = checkout.commit("first work"), checkout.commit("second work")
        checkout.git("tag", "--annotate", "--message", "x", "v1", first)
        checkout.git("branch", "-f", "größe", first)
        repository = opened(checkout)
        said = {
            "HEAD": second,
            "HEAD~1": first,
            "v1": first,
            "größe": first,
            first[:12]: first,
            second: second,
            ":/first w": first,
        }
        assert {rev: repository.resolve_commit(rev) for rev in said} == said

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "rev",
        [
            "",
            " ",
            "none",
            "0" * 40,
            "HEAD:file",
            "HEAD^{tree}",
            "^HEAD",
            "HEAD..HEAD",
            ":/none",
            "--all",
            "-x",
            "a\0b",
            "\ud800",
        ],
    )
    def test_what_names_none(self, checkout: Checkout, opened: Open, rev: str) -> None:
        checkout.write("file", "content")
        checkout.git("add", "file")
        checkout.commit("first")
        with pytest.raises(NotFoundError) as caught:
            opened(checkout).resolve_commit(rev)
        error = caught.value
        assert (error.message, error.hint) == (
            f"no commit is named {rev!r}",
            "name a branch, a tag or a commit: git log --oneline --all",
        )

    def test_an_unborn_branch_names_none(
        self, make_checkout: Callable[..., Checkout], opened: Open
    ) -> None:
        with pytest.raises(NotFoundError, match="no commit is named 'HEAD'"):
            opened(make_checkout("unborn")).resolve_commit("HEAD")
