"""Which repository and worktree we are in: found as git finds it, whatever its paths and settings, and refused with git's own cure."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt.git.objects import open_objects
from gitckpt.git.process import LOCAL_VARIABLES, environment, git_executable
from gitckpt.git.refs import Update, update_once
from gitckpt.git.repository import Repository, discover, require_git
from gitckpt.model.errors import CkptError, RepositoryError
from tests.conftest import Checkout

Open = Callable[..., Repository]


def whereabouts(repository: Repository) -> dict[str, object]:
    return {
        "git_dir": repository.git_dir,
        "common_dir": repository.common_dir,
        "worktree": repository.worktree,
        "is_linked": repository.is_linked,
    }


def main_of(checkout: Checkout) -> dict[str, object]:
    git_dir = str(checkout.path / ".git")
    return {"git_dir": git_dir, "common_dir": git_dir, "worktree": str(checkout.path), "is_linked": False}


def check_usable(checkout: Checkout, repository: Repository) -> None:
    """Looks, writes a ref and an object, and has git see both."""
    objects = open_objects(repository)
    objects.write([("blob", b"usable")])
    commit, branch = objects.head()
    assert commit == checkout.git("rev-parse", "HEAD")
    update_once(repository, [Update("refs/checkpoints/usable", checkout.git("hash-object", "--stdin", data="usable"), "")])
    assert checkout.git("cat-file", "blob", "refs/checkpoints/usable") == "usable"
    assert repository.git.text("symbolic-ref", "--short", "HEAD") == branch
    objects.close()


class TestDiscover:
    def test_main_worktree(self, main_checkout: Checkout, opened: Open) -> None:
        repository = opened(main_checkout)
        assert whereabouts(repository) == main_of(main_checkout)
        assert (repository.object_format, repository.has_reftable) == ("sha1", False)
        check_usable(main_checkout, repository)

    def test_current_directory_is_the_default(self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(main_checkout.path)
        assert whereabouts(discover()) == main_of(main_checkout)

    def test_subdirectory(self, main_checkout: Checkout, opened: Open) -> None:
        main_checkout.write("a/b/c", "")
        assert whereabouts(opened(main_checkout.path / "a" / "b")) == main_of(main_checkout)

    def test_symbolic_link_to_it(self, main_checkout: Checkout, tmp_path: Path, opened: Open) -> None:
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

    def test_linked_worktree_of_a_bare_repository(self, main_checkout: Checkout, tmp_path: Path, opened: Open) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
        linked = Checkout(tmp_path / "linked")
        Checkout(tmp_path / "bare").git("worktree", "add", "--quiet", "-b", "side", str(linked.path))
        repository = opened(linked)
        assert whereabouts(repository) == {
            "git_dir": str(tmp_path / "bare" / "worktrees" / "linked"),
            "common_dir": str(tmp_path / "bare"),
            "worktree": str(linked.path),
            "is_linked": True,
        }
        check_usable(linked, repository)

    @pytest.mark.parametrize("below", [".", "refs"])
    def test_bare_repository(self, main_checkout: Checkout, tmp_path: Path, opened: Open, below: str) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
        repository = opened(tmp_path / "bare" / below)
        bare = str(tmp_path / "bare")
        assert whereabouts(repository) == {"git_dir": bare, "common_dir": bare, "worktree": None, "is_linked": False}
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
        heads = [repository.git.text("rev-parse", "HEAD") for repository in repositories]
        monkeypatch.chdir(tmp_path)
        assert heads == [main_checkout.git("rev-parse", "HEAD")] * 2

    @pytest.mark.parametrize("below", [".git", ".git/refs/heads"])
    def test_inside_the_git_directory_there_is_no_worktree(self, main_checkout: Checkout, opened: Open, below: str) -> None:
        assert whereabouts(opened(main_checkout.path / below)) == main_of(main_checkout) | {"worktree": None}

    def test_separate_git_directory(self, make_checkout: Callable[..., Checkout], tmp_path: Path, opened: Open) -> None:
        checkout = make_checkout("project", f"--separate-git-dir={tmp_path / 'elsewhere'}")
        checkout.commit("first")
        repository = opened(checkout)
        git_dir = str(tmp_path / "elsewhere")
        assert whereabouts(repository) == {"git_dir": git_dir, "common_dir": git_dir, "worktree": str(checkout.path), "is_linked": False}
        check_usable(checkout, repository)

    def test_submodule(self, main_checkout: Checkout, make_checkout: Callable[..., Checkout], opened: Open) -> None:
        outer = make_checkout("outer")
        outer.git("submodule", "--quiet", "add", str(main_checkout.path), "inner module")
        inner = Checkout(outer.path / "inner module")
        repository = opened(inner)
        git_dir = str(outer.path / ".git" / "modules" / "inner module")
        assert whereabouts(repository) == {"git_dir": git_dir, "common_dir": git_dir, "worktree": str(inner.path), "is_linked": False}
        check_usable(inner, repository)

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
    def test_any_path(self, main_checkout: Checkout, tmp_path: Path, opened: Open, name: str) -> None:
        moved = Checkout(tmp_path / name)
        main_checkout.path.rename(moved.path)
        linked = Checkout(tmp_path / f"{name}2")
        moved.git("worktree", "add", "--quiet", "-b", "side", str(linked.path))
        repository = opened(moved)
        assert whereabouts(repository) == main_of(moved)
        check_usable(moved, repository)
        there = opened(linked)
        assert (there.common_dir, there.worktree, there.is_linked) == (str(moved.path / ".git"), str(linked.path), True)
        assert there.git.text("rev-parse", "--abbrev-ref", "HEAD") == "side"

    def test_unborn(self, make_checkout: Callable[..., Checkout], opened: Open) -> None:
        checkout = make_checkout()
        assert whereabouts(opened(checkout)) == main_of(checkout)

    def test_sha256(self, make_checkout: Callable[..., Checkout], opened: Open) -> None:
        checkout = make_checkout("project", "--object-format=sha256")
        checkout.commit("first")
        assert opened(checkout).object_format == "sha256"
        check_usable(checkout, opened(checkout))

    def test_reftable(self, newer_git: str, make_checkout: Callable[..., Checkout], opened: Open) -> None:
        checkout = make_checkout("project", "--ref-format=reftable")
        checkout.commit("first")
        assert opened(checkout).has_reftable
        check_usable(checkout, opened(checkout))

    def test_worktree_configuration(self, checkout: Checkout, opened: Open) -> None:
        checkout.git("config", "extensions.worktreeConfig", "true")
        checkout.git("config", "--worktree", "ckpt.here", "yes")
        repository = opened(checkout)
        assert repository.git.text("config", "ckpt.here") == "yes"
        check_usable(checkout, repository)

    def test_sparse_checkout_with_sparse_and_split_index(self, main_checkout: Checkout, opened: Open) -> None:
        main_checkout.commit("more", **{"in/file": "1", "out/file": "2"})
        main_checkout.git("sparse-checkout", "set", "--sparse-index", "in")
        check_usable(main_checkout, opened(main_checkout))
        main_checkout.git("sparse-checkout", "disable")
        main_checkout.git("update-index", "--split-index")
        main_checkout.git("update-ref", "-d", "refs/checkpoints/usable")
        check_usable(main_checkout, opened(main_checkout))

    def test_shallow_and_partial_clones(self, main_checkout: Checkout, tmp_path: Path, opened: Open) -> None:
        main_checkout.commit("second")
        main_checkout.git("config", "uploadpack.allowFilter", "true")
        for number, option in enumerate(["--depth=1", "--filter=blob:none"]):
            clone = Checkout(tmp_path / str(number))
            main_checkout.git("clone", "--quiet", option, f"file://{main_checkout.path}", str(clone.path))
            repository = opened(clone)
            assert whereabouts(repository) == main_of(clone)
            check_usable(clone, repository)


class TestEnvironment:
    def test_git_dir_and_work_tree_are_respected(
        self, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
    ) -> None:
        (tmp_path / "tree").mkdir()
        monkeypatch.setenv("GIT_DIR", str(main_checkout.path / ".git"))
        monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "tree"))
        assert whereabouts(opened(tmp_path / "tree")) == main_of(main_checkout) | {"worktree": str(tmp_path / "tree")}

    def test_git_dir_alone_makes_the_current_directory_the_worktree(
        self, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
    ) -> None:
        (tmp_path / "tree").mkdir()
        monkeypatch.setenv("GIT_DIR", str(main_checkout.path / ".git"))
        assert whereabouts(opened(tmp_path / "tree")) == main_of(main_checkout) | {"worktree": str(tmp_path / "tree")}

    def test_a_relative_git_dir_of_a_hook(self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(main_checkout.path)
        monkeypatch.setenv("GIT_DIR", ".git")
        monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
        assert whereabouts(discover()) == main_of(main_checkout)

    def test_a_hooks_variables_do_not_leak_into_calls_for_another_worktree(
        self, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
    ) -> None:
        linked = Checkout(tmp_path / "linked", main_checkout.path)
        main_checkout.git("worktree", "add", "--quiet", "-b", "side", str(linked.path))
        git_dir = main_checkout.path / ".git" / "worktrees" / "linked"
        main = opened(main_checkout)
        before = (git_dir / "index").read_bytes()
        with monkeypatch.context() as hook:
            hook.setenv("GIT_DIR", str(git_dir))
            hook.setenv("GIT_INDEX_FILE", str(git_dir / "index"))
            here = opened(linked)
            main.git.run("worktree", "add", "--quiet", "--detach", str(tmp_path / "third"), locks=True)
            main_checkout.write("README", "staged\n")
            main.git.run("add", "README", locks=True)
        assert whereabouts(here)["git_dir"] == str(git_dir)
        assert (git_dir / "index").read_bytes() == before
        assert main_checkout.git("diff", "--cached", "--name-only") == "README"
        assert Checkout(tmp_path / "third").git("status", "--porcelain") == ""

    def test_no_variable_of_a_repository_is_passed_on(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        # `-c name=value` of an outer git is the user's wish and stays.
        carried = {"GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"}
        known = subprocess.run(
            [git_executable(), "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        local = set(known.stdout.split())
        for name in local:
            monkeypatch.setenv(name, "x")
        assert local - set(LOCAL_VARIABLES) == carried
        assert {name for name in local if name in environment()} == carried
        assert {name for name in local if name in environment(keep_local=True)} == local

    def test_git_speaks_english_and_asks_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LC_ALL", "LANGUAGE", "LANG"):
            monkeypatch.setenv(name, "de_DE.UTF-8")
        env = environment({"EXTRA": "1", "LC_ALL": "C.UTF-8"})
        assert {name: env[name] for name in ("LC_ALL", "LANGUAGE", "GIT_TERMINAL_PROMPT", "EXTRA")} == {
            "LC_ALL": "C.UTF-8",
            "LANGUAGE": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "EXTRA": "1",
        }

    def test_reads_leave_the_index_alone(self, main_checkout: Checkout, repository: Repository) -> None:
        readme = main_checkout.path / "README"
        os.utime(readme, (1_700_000_000, 1_700_000_000))
        index = main_checkout.path / ".git" / "index"
        before = index.read_bytes()
        repository.git.run("status")
        untouched = index.read_bytes() == before
        repository.git.run("status", locks=True)
        assert (untouched, index.read_bytes() == before) == (True, False)


class TestRefused:
    def refused(self, path: Path) -> tuple[str, str | None]:
        with pytest.raises(RepositoryError) as caught:
            discover(str(path))
        assert caught.value.exit_code == 10
        return caught.value.message, caught.value.hint

    def test_outside_of_any(self, tmp_path: Path) -> None:
        assert self.refused(tmp_path) == (f"not in a git repository: {tmp_path}", "go to one, or make one: git init")

    def test_no_such_directory(self, tmp_path: Path) -> None:
        assert self.refused(tmp_path / "nowhere") == (f"no such directory: {tmp_path / 'nowhere'}", None)

    def test_a_broken_git_dir(self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GIT_DIR", "/nowhere")
        assert self.refused(main_checkout.path) == (f"not in a git repository: {main_checkout.path}", "go to one, or make one: git init")

    def test_owned_by_somebody_else(self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        path = main_checkout.path
        assert self.refused(path) == (
            f"git refuses the repository at {path}: detected dubious ownership in repository at '{path}'",
            f"git config --global --add safe.directory {path}",
        )

    def test_the_cure_for_that_helps(self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, opened: Open) -> None:
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        _, hint = self.refused(main_checkout.path)
        assert hint is not None
        Checkout(main_checkout.path.parent).git(*hint.split()[1:])
        assert whereabouts(opened(main_checkout)) == main_of(main_checkout)

    def test_an_extension_that_git_does_not_know(self, main_checkout: Checkout) -> None:
        main_checkout.git("config", "core.repositoryFormatVersion", "1")
        main_checkout.git("config", "extensions.somethingNew", "true")
        path = main_checkout.path
        assert self.refused(path) == (f"git refuses the repository at {path}: unknown repository extension found: somethingnew", None)

    def test_a_format_that_git_does_not_know(self, main_checkout: Checkout) -> None:
        main_checkout.git("config", "core.repositoryFormatVersion", "9")
        path = main_checkout.path
        assert self.refused(path) == (f"git refuses the repository at {path}: Expected git repo version <= 1, found 9", None)

    def test_a_configuration_that_git_cannot_read(self, main_checkout: Checkout) -> None:
        main_checkout.write(".git/config", "[core\n")
        path = main_checkout.path
        assert self.refused(path) == (f"git refuses the repository at {path}: bad config line 1 in file .git/config", None)


def fake_git(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fake-git"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("GITCKPT_GIT", str(path))


class TestGitItself:
    def test_version(self) -> None:
        assert (2, 39) <= require_git() < (4,)

    @pytest.mark.parametrize(
        ("said", "version"),
        [
            ("git version 2.39.5", (2, 39, 5)),
            ("git version 2.39.5 (Apple Git-154)", (2, 39)),
            ("git version 2.45.1.windows.1", (2, 45, 1)),
            ("git version 2.55.GIT", (2, 55)),
            ("git version 3.0.0-rc1", (3, 0)),
        ],
    )
    def test_version_of_many_builds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: tuple[int, ...]) -> None:
        fake_git(tmp_path, f"echo '{said}'", monkeypatch)
        assert require_git() == version

    def test_too_old(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main_checkout: Checkout) -> None:
        fake_git(tmp_path, "echo 'git version 2.30.1'", monkeypatch)
        for call in (require_git, lambda: discover(str(main_checkout.path))):
            with pytest.raises(RepositoryError) as caught:
                call()
            assert (caught.value.message, caught.value.hint, caught.value.exit_code) == (
                "git version 2.30.1 is too old",
                "install git 2.39 or newer, or name one in GITCKPT_GIT",
                10,
            )

    def test_old_enough_to_repeat_what_it_does_not_know(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main_checkout: Checkout
    ) -> None:
        fake_git(
            tmp_path,
            'if test "$1" = version; then echo git version 2.30.1; else echo "--path-format=absolute"; echo false; fi',
            monkeypatch,
        )
        with pytest.raises(RepositoryError, match=r"^git version 2\.30\.1 is too old$"):
            discover(str(main_checkout.path))

    def test_something_else_by_that_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main_checkout: Checkout) -> None:
        fake_git(tmp_path, 'if test "$1" = version; then echo git version 2.40.0; else echo hello; fi', monkeypatch)
        with pytest.raises(RepositoryError) as caught:
            discover(str(main_checkout.path))
        assert (caught.value.message, caught.value.hint) == (
            f"{tmp_path / 'fake-git'} does not answer as git does",
            "name another one in GITCKPT_GIT",
        )

    def test_not_installed(self, monkeypatch: pytest.MonkeyPatch, main_checkout: Checkout) -> None:
        monkeypatch.delenv("GITCKPT_GIT", raising=False)
        monkeypatch.setenv("PATH", "/nowhere")
        for call in (require_git, lambda: discover(str(main_checkout.path))):
            with pytest.raises(CkptError) as caught:
                call()
            assert (caught.value.message, caught.value.hint) == (
                "cannot start git: No such file or directory",
                "install git, or put it on PATH",
            )


class TestPrivateDirectory:
    def test_is_shared_by_all_worktrees_and_made_when_asked(self, checkout: Checkout, opened: Open) -> None:
        repository = opened(checkout)
        expected = checkout.main / ".git" / "ckpt"
        assert (repository.private_dir, expected.exists()) == (str(expected), False)
        assert [repository.make_private_dir(), repository.make_private_dir()] == [str(expected)] * 2
        assert expected.is_dir()

    def test_that_cannot_be_made_is_an_error(self, main_checkout: Checkout, repository: Repository) -> None:
        main_checkout.write(".git/ckpt", "in the way")
        with pytest.raises(RepositoryError) as caught:
            repository.make_private_dir()
        assert (caught.value.message, caught.value.hint) == (
            f"cannot write to {main_checkout.path / '.git'}: File exists",
            f"make it writable: chmod -R u+w {main_checkout.path / '.git'}",
        )
