"""Variables such as `GIT_DIR` are used to find a repository, and not passed on.

Other variables are set for every git process.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gitckpt.git.process import LOCAL_VARIABLES, git_environment, git_executable
from gitckpt.git.repository import Repository, discover_repository
from tests.conftest import Checkout
from tests.git.whereabouts import Open, main_of, whereabouts


class TestEnvironment:
    def test_git_dir_and_work_tree_are_respected(
        self, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
    ) -> None:
        (tmp_path / "tree").mkdir()
        monkeypatch.setenv("GIT_DIR", str(main_checkout.path / ".git"))
        monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "tree"))
        assert whereabouts(opened(tmp_path / "tree")) == main_of(main_checkout) | {
            "worktree": str(tmp_path / "tree")
        }

    def test_git_dir_alone_makes_the_current_directory_the_worktree(
        self, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
    ) -> None:
        (tmp_path / "tree").mkdir()
        monkeypatch.setenv("GIT_DIR", str(main_checkout.path / ".git"))
        assert whereabouts(opened(tmp_path / "tree")) == main_of(main_checkout) | {
            "worktree": str(tmp_path / "tree")
        }

    def test_a_relative_git_dir_of_a_hook(
        self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(main_checkout.path)
        monkeypatch.setenv("GIT_DIR", ".git")
        monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
        assert whereabouts(discover_repository()) == main_of(main_checkout)

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
            main.git.run(
                "worktree", "add", "--quiet", "--detach", str(tmp_path / "third"), locks=True
            )
            main_checkout.write("README", "staged\n")
            main.git.run("add", "README", locks=True)
        assert whereabouts(here)["git_dir"] == str(git_dir)
        assert (git_dir / "index").read_bytes() == before
        assert main_checkout.git("diff", "--cached", "--name-only") == "README"
        assert Checkout(tmp_path / "third").git("status", "--porcelain") == ""

    def test_no_variable_of_a_repository_is_passed_on(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        # `-c name=value` of an outer git is the user's wish and stays.
        carried = {"GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"}
        known = subprocess.run(
            [git_executable(), "rev-parse", "--local-env-vars"],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        local = set(known.stdout.split())
        for name in local:
            monkeypatch.setenv(name, "x")
        assert local - set(LOCAL_VARIABLES) == carried
        assert {name for name in local if name in git_environment()} == carried
        assert {name for name in local if name in git_environment(keep_local=True)} == local

    def test_git_speaks_english_and_asks_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LC_ALL", "LANGUAGE", "LANG"):
            monkeypatch.setenv(name, "de_DE.UTF-8")
        env = git_environment({"EXTRA": "1", "LC_ALL": "C.UTF-8"})
        assert {
            name: env[name] for name in ("LC_ALL", "LANGUAGE", "GIT_TERMINAL_PROMPT", "EXTRA")
        } == {
            "LC_ALL": "C.UTF-8",
            "LANGUAGE": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "EXTRA": "1",
        }

    def test_reads_leave_the_index_alone(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        readme = main_checkout.path / "README"
        os.utime(readme, (1_700_000_000, 1_700_000_000))
        index = main_checkout.path / ".git" / "index"
        before = index.read_bytes()
        repository.git.run("status")
        untouched = index.read_bytes() == before
        repository.git.run("status", locks=True)
        assert (untouched, index.read_bytes() == before) == (True, False)
