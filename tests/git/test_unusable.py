"""A repository that git refuses is refused with git's own remedy.

So are a git that is too old, missing, or another program.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gitckpt import CkptError, RepositoryError
from gitckpt.git.command import require_git_version
from gitckpt.git.repository import discover_repository
from tests.conftest import Checkout
from tests.git.whereabouts import Open, main_of, whereabouts


class TestRefused:
    def refused(self, path: Path) -> tuple[str, str | None]:
        with pytest.raises(RepositoryError) as caught:
            discover_repository(str(path))
        assert caught.value.exit_code == 10
        return caught.value.message, caught.value.hint

    def test_outside_of_any(self, tmp_path: Path) -> None:
        assert self.refused(tmp_path) == (
            f"not in a git repository: {tmp_path}",
            "change to a repository, or create one: git init",
        )

    def test_outside_of_any_a_worktree_that_is_named_is_not_to_blame(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
        assert self.refused(tmp_path)[0] == f"not in a git repository: {tmp_path}"

    def test_no_such_directory(self, tmp_path: Path) -> None:
        assert self.refused(tmp_path / "nowhere") == (
            f"no such directory: {tmp_path / 'nowhere'}",
            None,
        )

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("GIT_DIR", "/nowhere/at/all"),
            ("GIT_DIR", ""),
            ("GIT_COMMON_DIR", "/nowhere/at/all"),
            ("GIT_WORK_TREE", "/nowhere/at/all"),
        ],
    )
    def test_a_variable_that_leads_nowhere(
        self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, name: str, value: str
    ) -> None:
        monkeypatch.setenv(name, value)
        message, hint = self.refused(main_checkout.path)
        assert message.startswith(
            f"git finds no repository at {main_checkout.path}, as {name} is {value!r}: "
        )
        assert hint == f"ignore the variables: unset {name}"

    def test_a_variable_has_nothing_to_do_with_what_else_is_wrong(
        self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Git sets `GIT_DIR` for its hooks."""
        main_checkout.git("config", "core.repositoryFormatVersion", "9")
        monkeypatch.setenv("GIT_DIR", str(main_checkout.path / ".git"))
        assert self.refused(main_checkout.path)[0].startswith(
            f"git refuses the repository at {main_checkout.path}: "
        )

    def test_a_worktree_that_git_takes_for_none(
        self, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        linked = tmp_path / "linked"
        main_checkout.git("worktree", "add", "--quiet", "--detach", str(linked))
        git_dir = main_checkout.path / ".git/worktrees/linked"
        (git_dir / "commondir").unlink()
        message = f"{linked} belongs to {git_dir}, which is no longer a git repository"
        assert self.refused(linked) == (
            message,
            f"see what is wrong: git -C {main_checkout.path} ckpt verify",
        )
        shutil.rmtree(
            git_dir
        )  # as `git worktree prune` does where the worktree was on a disk that was not there
        cure = "make another worktree and copy your files there"
        assert self.refused(linked) == (
            message,
            f"{cure}: git -C {main_checkout.path} worktree add DIR",
        )
        shutil.rmtree(main_checkout.path / ".git")
        assert self.refused(linked) == (message, f"see whether this directory was moved: {git_dir}")

    def test_owned_by_somebody_else(
        self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        path = main_checkout.path
        assert self.refused(path) == (
            (
                f"git refuses the repository at {path}: "
                f"detected dubious ownership in repository at '{path}'"
            ),
            f"git config --global --add safe.directory {path}",
        )

    def test_the_cure_for_that_helps(
        self, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, opened: Open
    ) -> None:
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        _, hint = self.refused(main_checkout.path)
        assert hint is not None
        Checkout(main_checkout.path.parent).git(*hint.split()[1:])
        assert whereabouts(opened(main_checkout)) == main_of(main_checkout)

    def test_an_extension_that_git_does_not_know(self, main_checkout: Checkout) -> None:
        main_checkout.git("config", "core.repositoryFormatVersion", "1")
        main_checkout.git("config", "extensions.somethingNew", "true")
        path = main_checkout.path
        assert self.refused(path) == (
            (
                f"git refuses the repository at {path}: unknown repository extension found: "
                "somethingnew"
            ),
            None,
        )

    def test_a_format_that_git_does_not_know(self, main_checkout: Checkout) -> None:
        main_checkout.git("config", "core.repositoryFormatVersion", "9")
        path = main_checkout.path
        assert self.refused(path) == (
            f"git refuses the repository at {path}: Expected git repo version <= 1, found 9",
            None,
        )

    def test_a_configuration_that_git_cannot_read(self, main_checkout: Checkout) -> None:
        main_checkout.write(".git/config", "[core\n")
        path = main_checkout.path
        assert self.refused(path) == (
            f"git refuses the repository at {path}: bad config line 1 in file .git/config",
            None,
        )


def fake_git(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fake-git"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("GITCKPT_GIT", str(path))


class TestGitItself:
    def test_version(self) -> None:
        assert (2, 39) <= require_git_version() < (4,)

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
    def test_version_of_many_builds(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: tuple[int, ...]
    ) -> None:
        fake_git(tmp_path, f"echo '{said}'", monkeypatch)
        assert require_git_version() == version

    def test_too_old(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main_checkout: Checkout
    ) -> None:
        fake_git(tmp_path, "echo 'git version 2.30.1'", monkeypatch)
        for call in (require_git_version, lambda: discover_repository(str(main_checkout.path))):
            with pytest.raises(RepositoryError) as caught:
                call()
            assert (caught.value.message, caught.value.hint, caught.value.exit_code) == (
                "git version 2.30.1 is too old",
                "install git 2.39 or newer, or set GITCKPT_GIT to the path of a newer one",
                10,
            )

    def test_old_enough_to_repeat_what_it_does_not_know(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main_checkout: Checkout
    ) -> None:
        fake_git(
            tmp_path,
            (
                'if test "$1" = version; then echo git version 2.30.1; '
                'else echo "--path-format=absolute"; echo false; fi'
            ),
            monkeypatch,
        )
        with pytest.raises(RepositoryError, match=r"^git version 2\.30\.1 is too old$"):
            discover_repository(str(main_checkout.path))

    def test_something_else_by_that_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main_checkout: Checkout
    ) -> None:
        fake_git(
            tmp_path,
            'if test "$1" = version; then echo git version 2.40.0; else echo hello; fi',
            monkeypatch,
        )
        with pytest.raises(RepositoryError) as caught:
            discover_repository(str(main_checkout.path))
        assert (caught.value.message, caught.value.hint) == (
            f"{tmp_path / 'fake-git'} does not behave like git",
            "set GITCKPT_GIT to the path of git",
        )

    def test_not_installed(self, monkeypatch: pytest.MonkeyPatch, main_checkout: Checkout) -> None:
        monkeypatch.delenv("GITCKPT_GIT", raising=False)
        monkeypatch.setenv("PATH", "/nowhere")
        for call in (require_git_version, lambda: discover_repository(str(main_checkout.path))):
            with pytest.raises(CkptError) as caught:
                call()
            assert (caught.value.message, caught.value.hint) == (
                "cannot start git: No such file or directory",
                "install git, or put it on PATH",
            )


@pytest.mark.parametrize(
    ("end", "said"),
    [("kill -9 $$", "git was killed by signal 9"), ("exit 3", "git gave no reason")],
)
def test_a_git_that_ends_without_a_word_is_named_with_its_end(
    main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, said: str
) -> None:
    git = tmp_path / "git"
    git.write_text(f"#!/bin/sh\n{end}\n")
    git.chmod(0o755)
    monkeypatch.setenv("GITCKPT_GIT", str(git))
    with pytest.raises(RepositoryError) as caught:
        discover_repository(str(main_checkout.path))
    assert caught.value.message == f"git refuses the repository at {main_checkout.path}: {said}"
