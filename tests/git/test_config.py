"""gitckpt reads settings from git's configuration."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import GitError
from gitckpt.git import config
from gitckpt.git.files import refs_stat
from gitckpt.git.graph import find_promisor_remote
from gitckpt.git.process import ProcResult
from gitckpt.git.repository import Repository, discover_repository
from gitckpt.git.worktree.administration import main_worktree
from tests.conftest import Checkout


class TestRead:
    def test_gives_all_values_in_the_order_of_the_files(
        self,
        sealed: Path,
        main_checkout: Checkout,
        repository: Repository,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        main_checkout.git("config", "--global", "ckpt.name", "global")
        main_checkout.git("config", "ckpt.name", "local")
        main_checkout.git("config", "--add", "ckpt.name", "again")
        main_checkout.git("config", "ckpt.Sub.Section.KeyName", "x")
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "ckpt.name")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", "environment")
        assert config.read_settings(repository, r"^ckpt\.") == {
            "ckpt.name": ["global", "local", "again", "environment"],
            "ckpt.Sub.Section.keyname": ["x"],
        }

    def test_of_nothing_is_nothing(self, repository: Repository) -> None:
        assert config.read_settings(repository, r"^ckpt\.") == {}

    def test_keeps_every_value_as_it_is(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        with (main_checkout.path / ".git" / "config").open("ab") as file:
            file.write(
                b'[ckpt]\n\tflag\n\tempty =\n\tlines = "a\\nb\\n"\n\tspaces = "  x  "\n'
                b"\traw = \xff\n\tequals = a=b\n"
            )
        assert config.read_settings(repository, r"^ckpt\.") == {
            "ckpt.flag": ["true"],
            "ckpt.empty": [""],
            "ckpt.lines": ["a\nb\n"],
            "ckpt.spaces": ["  x  "],
            "ckpt.raw": ["\udcff"],
            "ckpt.equals": ["a=b"],
        }

    def test_of_a_linked_worktree_includes_its_own(
        self, checkout: Checkout, main_checkout: Checkout
    ) -> None:
        main_checkout.git("config", "extensions.worktreeConfig", "true")
        checkout.git("config", "--worktree", "ckpt.name", "here")
        repository = discover_repository(str(checkout.path))
        config.write_setting(repository, "ckpt.shared", "yes")
        assert config.read_settings(repository, r"^ckpt\.") == {
            "ckpt.name": ["here"],
            "ckpt.shared": ["yes"],
        }
        assert config.read_settings(
            discover_repository(str(main_checkout.path)), r"^ckpt\.shared"
        ) == {"ckpt.shared": ["yes"]}


class Changes:
    """Changes to a configuration, and `git config --list` after them.

    Args:
        checkout: whose.
        home: of the user.
        patch: sets variables.
    """

    def __init__(self, checkout: Checkout, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.checkout = checkout
        self.home = home
        self.patch = patch
        self.included = home / "included"
        checkout.git("config", "--global", "include.path", "included")  # is not there yet
        checkout.git(
            "config", "--global", f"includeIf.gitdir:{checkout.main}/.path", "/nowhere/of-ours"
        )
        checkout.git("config", "extensions.worktreeConfig", "true")

    def local(self, value: str) -> None:
        self.checkout.git("config", "ckpt.name", value)

    def of_the_worktree(self, value: str) -> None:
        self.checkout.git("config", "--worktree", "ckpt.name", value)

    def of_the_user(self, value: str) -> None:
        self.checkout.git("config", "--global", "ckpt.name", value)

    def beside_it(self, value: str) -> None:
        place = self.home / ".config/git"
        place.mkdir(parents=True, exist_ok=True)
        (place / "config").write_text(f"[ckpt]\n\tname = {value}\n")

    def of_what_is_included(self, value: str) -> None:
        self.included.write_text(f"[ckpt]\n\tname = {value}\n")

    def of_the_same_length_in_the_same_file(self, value: str) -> None:
        with (self.checkout.main / ".git/config").open("r+b") as file:
            before = file.read()
            file.seek(0)
            file.write(
                before.replace(b"filemode = true", b"filemode = 1   ")
                if b"= true" in before
                else before.replace(b"1   ", b"true")
            )

    def gone(self, value: str) -> None:
        self.included.unlink(missing_ok=True)

    def of_the_environment(self, value: str) -> None:
        for name, said in (("COUNT", "1"), ("KEY_0", "ckpt.name"), ("VALUE_0", value)):
            self.patch.setenv(f"GIT_CONFIG_{name}", said)

    def of_a_home(self, value: str) -> None:
        home = self.home / f"home-{value}"
        home.mkdir()
        (home / ".gitconfig").write_text(f"[ckpt]\n\tname = {value}\n")
        self.patch.setenv("HOME", str(home))


class TestKnown:
    @pytest.fixture
    def changes(self, checkout: Checkout, sealed: Path, monkeypatch: pytest.MonkeyPatch) -> Changes:
        return Changes(checkout, sealed, monkeypatch)

    @pytest.mark.long
    def test_what_is_known_is_what_git_says(
        self, changes: Changes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refs_stat, "_FINELY_SETTLED", 2 * 10**7)
        repository, chance, told = (
            discover_repository(str(changes.checkout.path)),
            random.Random(20261125),
            [],
        )
        kinds = [name for name in vars(Changes) if not name.startswith("_")]
        for number in range(60):
            time.sleep(chance.choice([0, 0, 0.025]))
            if chance.random() < 0.6:
                told.append(chance.choice(kinds))
                getattr(changes, told[-1])(f"of-{number}")
            told.append("?")
            said = changes.checkout.git("config", "--null", "--list").split("\0")[:-1]
            expected: dict[str, list[str]] = {}
            for entry in said:
                name, _, value = entry.partition("\n")
                expected.setdefault(name, []).append(value)
            assert config.read_settings(repository, r"^(ckpt\.|core\.filemode$)") == {
                name: values
                for name, values in expected.items()
                if name in ("ckpt.name", "core.filemode")
            }, told

    def test_git_is_asked_once(self, changes: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
        repository, asked = discover_repository(str(changes.checkout.path)), list[str]()
        really = repository.git.run

        def counting(*words: str, **rest: Any) -> ProcResult:
            asked.append(words[0])
            return really(*words, **rest)

        monkeypatch.setattr(repository.git, "run", counting)
        changes.local("one")
        time.sleep(0.06)
        for _ in range(3):
            assert config.read_settings(repository, r"^ckpt\.") == {"ckpt.name": ["one"]}
        assert asked == ["config"]
        changes.local("two")
        for _ in range(2):  # it is too young, at first
            assert config.read_settings(repository, r"^ckpt\.") == {"ckpt.name": ["two"]}
        assert asked == ["config"] * 3

    def test_what_counts_on_one_branch_is_asked_for_each_time(self, changes: Changes) -> None:
        changes.checkout.git("config", "includeIf.onbranch:topic.path", "of-topic")
        (changes.checkout.main / ".git/of-topic").write_text("[ckpt]\n\tname = of topic\n")
        time.sleep(0.06)
        repository = discover_repository(str(changes.checkout.path))
        found = [config.read_settings(repository, r"^ckpt\.")]
        changes.checkout.git("checkout", "--quiet", "-b", "topic")
        assert [*found, config.read_settings(repository, r"^ckpt\.")] == [
            {},
            {"ckpt.name": ["of topic"]},
        ]


class TestWrite:
    @pytest.mark.parametrize(
        "value",
        [
            "plain",
            "",
            "-5",
            "--global",
            "  spaces  ",
            "a\nb",
            'quo"te\\',
            "größe",
            "# no comment",
            "; nor this",
        ],
    )
    def test_sets_any_value(
        self, main_checkout: Checkout, repository: Repository, value: str
    ) -> None:
        config.write_setting(repository, "ckpt.name", "before")
        config.write_setting(repository, "ckpt.name", value)
        assert config.read_settings(repository, r"^ckpt\.") == {"ckpt.name": [value]}

    def test_adds_one_more(self, repository: Repository) -> None:
        config.write_setting(repository, "ckpt.name", "one", add=True)
        config.write_setting(repository, "ckpt.name", "two", add=True)
        assert config.read_settings(repository, r"^ckpt\.") == {"ckpt.name": ["one", "two"]}

    def test_replaces_several_by_one(self, repository: Repository) -> None:
        config.write_setting(repository, "ckpt.name", "one", add=True)
        config.write_setting(repository, "ckpt.name", "two", add=True)
        config.write_setting(repository, "ckpt.name", "three")
        assert config.read_settings(repository, r"^ckpt\.") == {"ckpt.name": ["three"]}

    def test_leaves_other_files_and_settings_alone(
        self, sealed: Path, main_checkout: Checkout, repository: Repository
    ) -> None:
        before = (
            (sealed / ".gitconfig").read_bytes(),
            main_checkout.git("config", "--local", "--list"),
        )
        config.write_setting(repository, "ckpt.name", "x")
        after = (
            (sealed / ".gitconfig").read_bytes(),
            main_checkout.git("config", "--local", "--list"),
        )
        assert after == (before[0], before[1] + "\nckpt.name=x")

    def test_is_on_the_disk(
        self, checkout: Checkout, opened: Callable[..., Repository], flushed: list[str]
    ) -> None:
        config.write_setting(opened(checkout), "ckpt.name", "x")
        assert sorted(flushed) == [
            str(checkout.main / ".git"),
            str(checkout.main / ".git/config"),
        ]  # side by side

    def test_refuses_a_name_that_git_refuses(self, repository: Repository) -> None:
        with pytest.raises(GitError, match="key does not contain a section: name"):
            config.write_setting(repository, "name", "x")

    def test_says_when_the_file_is_locked(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        (main_checkout.path / ".git" / "config.lock").touch()
        with pytest.raises(GitError, match="could not lock config file"):
            config.write_setting(repository, "ckpt.name", "x")
        with pytest.raises(GitError, match="could not lock config file"):
            config.unset_setting(repository, "core.bare")


class TestIsOn:
    @pytest.mark.parametrize(
        "value", ["true", "TRUE", "yes", "On", "1", "2", "", "false", "No", "OFF", "0"]
    )
    def test_as_git_has_it(
        self, main_checkout: Checkout, repository: Repository, value: str
    ) -> None:
        main_checkout.git("config", "ckpt.switch", value)
        (found,) = config.read_settings(repository, r"^ckpt\.switch$")["ckpt.switch"]
        assert config.is_true(found) == (
            main_checkout.git("config", "--type=bool", "ckpt.switch") == "true"
        )

    def test_of_a_name_without_a_value(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        with (main_checkout.path / ".git" / "config").open("a") as file:
            file.write("[ckpt]\n\tswitch\n")
        assert list(
            map(config.is_true, config.read_settings(repository, r"^ckpt\.switch$")["ckpt.switch"])
        ) == [True]

    @pytest.mark.parametrize("value", ["true", "yes", "1"])
    def test_a_repository_is_bare_however_it_says_so(
        self, main_checkout: Checkout, repository: Repository, value: str
    ) -> None:
        main_checkout.git("config", "core.bare", value)
        assert main_worktree(repository) is None

    @pytest.mark.parametrize("value", ["true", "yes", "1"])
    def test_a_clone_is_partial_however_it_says_so(
        self, main_checkout: Checkout, repository: Repository, value: str
    ) -> None:
        main_checkout.git("config", "remote.origin.promisor", value)
        assert find_promisor_remote(repository) == "origin"


class TestUnset:
    def test_removes_all_values(self, repository: Repository) -> None:
        for value in ("one", "two"):
            config.write_setting(repository, "ckpt.name", value, add=True)
        config.unset_setting(repository, "ckpt.name")
        config.unset_setting(repository, "ckpt.name")
        assert config.read_settings(repository, r"^ckpt\.") == {}

    def test_removes_one_value_literally(self, repository: Repository) -> None:
        for value in ("a.c", "abc", "a.c", "-x"):
            config.write_setting(repository, "ckpt.name", value, add=True)
        config.unset_setting(repository, "ckpt.name", "a.c")
        config.unset_setting(repository, "ckpt.name", "-x")
        config.unset_setting(repository, "ckpt.name", "missing")
        assert config.read_settings(repository, r"^ckpt\.") == {"ckpt.name": ["abc"]}
