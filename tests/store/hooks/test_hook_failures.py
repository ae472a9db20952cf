"""Failed installations name the cause, and change no file and no setting."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from gitckpt import CkptError, GitError, RepositoryError, UsageError
from gitckpt.git.command import require_git_version
from gitckpt.git.repository import discover_repository
from gitckpt.store.hooks import files as hook_files
from gitckpt.store.hooks.files import HookFileChange
from gitckpt.store.hooks.installation import install_hooks
from tests.conftest import Checkout
from tests.store.hooks.hook_standin import (
    USER_TEXT,
    StandIn,
    everything,
    hooks_of,
    put_hook,
    uninstall,
    version_for,
)
from tests.stores import HOOKS


class TestFailures:
    def test_a_directory_that_cannot_be_written(
        self, mortal: None, main_checkout: Checkout, standin: StandIn
    ) -> None:
        put_hook(main_checkout, "post-merge", USER_TEXT)
        hooks = hooks_of(main_checkout)
        before = everything(main_checkout)
        hooks.chmod(0o555)
        try:
            with pytest.raises(RepositoryError) as caught:
                standin.install(main_checkout)
        finally:
            hooks.chmod(0o755)
        assert caught.value.message == f"cannot write {hooks}/post-commit: Permission denied"
        assert (
            caught.value.hint
            == f"make the directory writable, then run the command again: chmod u+w {hooks}"
        )
        assert everything(main_checkout) == before

    def test_a_file_that_cannot_be_read(
        self, mortal: None, main_checkout: Checkout, standin: StandIn
    ) -> None:
        path = put_hook(main_checkout, "post-merge", USER_TEXT, 0o000)
        with pytest.raises(RepositoryError) as caught:
            standin.install(main_checkout)
        assert caught.value.message == f"cannot read {path}: Permission denied"
        assert [file.name for file in hooks_of(main_checkout).iterdir()] == ["post-merge"]

    def test_a_locked_configuration_takes_the_files_back(
        self, way: str, main_checkout: Checkout, standin: StandIn
    ) -> None:
        put_hook(main_checkout, "post-merge", USER_TEXT)
        lock = main_checkout.path / ".git" / "config.lock"
        lock.touch()
        before = everything(main_checkout)
        with pytest.raises(GitError) as caught:
            standin.install(main_checkout, way, version_for(way))
        assert "could not lock config file" in caught.value.message
        assert everything(main_checkout) == before
        lock.unlink()
        standin.install(main_checkout, way, version_for(way))
        installed = everything(main_checkout)
        lock.touch()
        with pytest.raises(GitError):
            uninstall(main_checkout)
        assert everything(main_checkout) == installed

    def test_settings_that_were_written_before_the_failure_are_taken_back(
        self, mortal: None, main_checkout: Checkout, standin: StandIn
    ) -> None:
        own = main_checkout.path / ".git" / "own"
        own.mkdir()
        main_checkout.git("config", "core.hooksPath", str(own))
        before = everything(main_checkout)
        own.chmod(0o555)
        with pytest.raises(RepositoryError) as caught:
            standin.install(main_checkout)
        own.chmod(0o755)
        assert caught.value.message == f"cannot write {own}/post-commit: Permission denied"
        assert everything(main_checkout) == before

    def test_a_failure_halfway_takes_the_first_half_back(self, tmp_path: Path) -> None:
        (tmp_path / "post-commit").write_text("old")
        (tmp_path / "post-merge").write_text("to be removed")
        (tmp_path / "post-rewrite").mkdir()
        files = [hook_files.read_hook(str(tmp_path / name)) for name in HOOKS]
        new = [b"new", None, b"created", b"in the way of a directory"]
        changes = [
            HookFileChange(file, data, 0o755, "") for file, data in zip(files, new, strict=False)
        ]
        before = {path.name: path.lstat().st_mode for path in tmp_path.iterdir()}
        with pytest.raises(RepositoryError) as caught, ExitStack() as undo:
            hook_files.apply_file_changes(changes, undo)
        assert caught.value.message == f"cannot write {tmp_path}/post-rewrite: Is a directory"
        assert {path.name: path.lstat().st_mode for path in tmp_path.iterdir()} == before
        assert ((tmp_path / "post-commit").read_text(), (tmp_path / "post-merge").read_text()) == (
            "old",
            "to be removed",
        )

    def test_a_file_in_the_place_of_the_directory(
        self, main_checkout: Checkout, standin: StandIn
    ) -> None:
        standin.install(main_checkout, "none")
        before = everything(main_checkout)
        hooks = hooks_of(main_checkout)
        hooks.write_text("in the way")
        with pytest.raises(RepositoryError) as caught:
            standin.install(main_checkout, "files")
        hooks.unlink()
        assert caught.value.message == f"cannot make the directory {hooks}: File exists"
        assert everything(main_checkout) == before

    def test_no_interpreter(self, main_checkout: Checkout, standin: StandIn) -> None:
        with pytest.raises(UsageError) as caught:
            standin.install(main_checkout, python="")
        assert (caught.value.message, caught.value.hint) == (
            "the hooks need a Python interpreter, but sys.executable is empty",
            "run the command as: python3 -m gitckpt init",
        )


@pytest.mark.long
def test_a_disk_that_fails_to_flush_leaves_no_setting_behind(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed flush leaves no setting behind.

    Unflushed files are reverted as well: otherwise they would count as the user's own.
    """
    really, before = os.fsync, main_checkout.git("config", "--local", "--list")
    for at in range(1, 60):
        calls = 0

        def fails(fd: int, at: int = at) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            really(fd)

        with monkeypatch.context() as once:
            once.setattr(os, "fsync", fails)
            try:
                install_hooks(
                    discover_repository(str(main_checkout.path)), version=require_git_version()
                )
            except CkptError:
                assert main_checkout.git("config", "--local", "--list") == before, at
            else:
                break
    assert at > 5
