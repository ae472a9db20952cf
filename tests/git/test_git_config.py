"""Git's own configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt.git import config
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from tests.conftest import Checkout


class TestRead:
    def test_gives_all_values_in_the_order_of_the_files(
        self, sealed: Path, main_checkout: Checkout, repository: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        main_checkout.git("config", "--global", "ckpt.name", "global")
        main_checkout.git("config", "ckpt.name", "local")
        main_checkout.git("config", "--add", "ckpt.name", "again")
        main_checkout.git("config", "ckpt.Sub.Section.KeyName", "x")
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "ckpt.name")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", "environment")
        assert config.read(repository, r"^ckpt\.") == {
            "ckpt.name": ["global", "local", "again", "environment"],
            "ckpt.Sub.Section.keyname": ["x"],
        }

    def test_of_nothing_is_nothing(self, repository: Repository) -> None:
        assert config.read(repository, r"^ckpt\.") == {}

    def test_keeps_every_value_as_it_is(self, main_checkout: Checkout, repository: Repository) -> None:
        with (main_checkout.path / ".git" / "config").open("ab") as file:
            file.write(b'[ckpt]\n\tflag\n\tempty =\n\tlines = "a\\nb\\n"\n\tspaces = "  x  "\n\traw = \xff\n\tequals = a=b\n')
        assert config.read(repository, r"^ckpt\.") == {
            "ckpt.flag": ["true"],
            "ckpt.empty": [""],
            "ckpt.lines": ["a\nb\n"],
            "ckpt.spaces": ["  x  "],
            "ckpt.raw": ["\udcff"],
            "ckpt.equals": ["a=b"],
        }

    def test_of_a_linked_worktree_includes_its_own(self, checkout: Checkout, main_checkout: Checkout) -> None:
        from gitckpt.git.repository import discover

        main_checkout.git("config", "extensions.worktreeConfig", "true")
        checkout.git("config", "--worktree", "ckpt.name", "here")
        repository = discover(str(checkout.path))
        config.write(repository, "ckpt.shared", "yes")
        assert config.read(repository, r"^ckpt\.") == {"ckpt.name": ["here"], "ckpt.shared": ["yes"]}
        assert config.read(discover(str(main_checkout.path)), r"^ckpt\.shared") == {"ckpt.shared": ["yes"]}


class TestWrite:
    @pytest.mark.parametrize(
        "value", ["plain", "", "-5", "--global", "  spaces  ", "a\nb", 'quo"te\\', "größe", "# no comment", "; nor this"]
    )
    def test_sets_any_value(self, main_checkout: Checkout, repository: Repository, value: str) -> None:
        config.write(repository, "ckpt.name", "before")
        config.write(repository, "ckpt.name", value)
        assert config.read(repository, r"^ckpt\.") == {"ckpt.name": [value]}

    def test_adds_one_more(self, repository: Repository) -> None:
        config.write(repository, "ckpt.name", "one", add=True)
        config.write(repository, "ckpt.name", "two", add=True)
        assert config.read(repository, r"^ckpt\.") == {"ckpt.name": ["one", "two"]}

    def test_replaces_several_by_one(self, repository: Repository) -> None:
        config.write(repository, "ckpt.name", "one", add=True)
        config.write(repository, "ckpt.name", "two", add=True)
        config.write(repository, "ckpt.name", "three")
        assert config.read(repository, r"^ckpt\.") == {"ckpt.name": ["three"]}

    def test_leaves_other_files_and_settings_alone(self, sealed: Path, main_checkout: Checkout, repository: Repository) -> None:
        before = ((sealed / ".gitconfig").read_bytes(), main_checkout.git("config", "--local", "--list"))
        config.write(repository, "ckpt.name", "x")
        after = ((sealed / ".gitconfig").read_bytes(), main_checkout.git("config", "--local", "--list"))
        assert after == (before[0], before[1] + "\nckpt.name=x")

    def test_is_on_the_disk(self, checkout: Checkout, opened: Callable[..., Repository], flushed: list[str]) -> None:
        config.write(opened(checkout), "ckpt.name", "x")
        assert sorted(flushed) == [str(checkout.main / ".git"), str(checkout.main / ".git/config")]  # side by side

    def test_refuses_a_name_that_git_refuses(self, repository: Repository) -> None:
        with pytest.raises(GitError, match="key does not contain a section: name"):
            config.write(repository, "name", "x")

    def test_says_when_the_file_is_locked(self, main_checkout: Checkout, repository: Repository) -> None:
        (main_checkout.path / ".git" / "config.lock").touch()
        with pytest.raises(GitError, match="could not lock config file"):
            config.write(repository, "ckpt.name", "x")
        with pytest.raises(GitError, match="could not lock config file"):
            config.unset(repository, "core.bare")


class TestUnset:
    def test_removes_all_values(self, repository: Repository) -> None:
        for value in ("one", "two"):
            config.write(repository, "ckpt.name", value, add=True)
        config.unset(repository, "ckpt.name")
        config.unset(repository, "ckpt.name")
        assert config.read(repository, r"^ckpt\.") == {}

    def test_removes_one_value_literally(self, repository: Repository) -> None:
        for value in ("a.c", "abc", "a.c", "-x"):
            config.write(repository, "ckpt.name", value, add=True)
        config.unset(repository, "ckpt.name", "a.c")
        config.unset(repository, "ckpt.name", "-x")
        config.unset(repository, "ckpt.name", "missing")
        assert config.read(repository, r"^ckpt\.") == {"ckpt.name": ["abc"]}
