"""Installations that fail: each says why, and leaves the files as they were."""

from __future__ import annotations

import pytest

from gitckpt.git.repository import discover
from gitckpt.model.errors import RepositoryError, UsageError
from gitckpt.store.hooks.installation import install
from tests.conftest import Checkout
from tests.store.hook_standin import (
    OLD,
    USER_TEXT,
    StandIn,
    everything,
    hooks_of,
    put_hook,
)


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
                standin.install(discover(str(main_checkout.path)))
        finally:
            hooks.chmod(0o755)
        assert caught.value.message == f"cannot write {hooks}/post-commit: Permission denied"
        assert (
            caught.value.hint == f"make it writable, then run the command again: chmod u+w {hooks}"
        )
        assert everything(main_checkout) == before

    def test_a_file_that_cannot_be_read(
        self, mortal: None, main_checkout: Checkout, standin: StandIn
    ) -> None:
        path = put_hook(main_checkout, "post-merge", USER_TEXT, 0o000)
        with pytest.raises(RepositoryError) as caught:
            standin.install(discover(str(main_checkout.path)))
        assert caught.value.message == f"cannot read {path}: Permission denied"
        assert [file.name for file in hooks_of(main_checkout).iterdir()] == ["post-merge"]

    def test_a_file_in_the_place_of_the_directory(
        self, main_checkout: Checkout, standin: StandIn
    ) -> None:
        repository = discover(str(main_checkout.path))
        standin.install(repository, "none")
        hooks = hooks_of(main_checkout)
        hooks.write_text("in the way")
        with pytest.raises(RepositoryError) as caught:
            standin.install(repository, "files")
        hooks.unlink()
        assert caught.value.message == f"cannot make the directory {hooks}: File exists"

    def test_no_interpreter(self, main_checkout: Checkout) -> None:
        with pytest.raises(UsageError) as caught:
            install(discover(str(main_checkout.path)), version=OLD, python="")
        assert (caught.value.message, caught.value.hint) == (
            "the hooks need a Python interpreter, and none is known",
            "run it as: python3 -m gitckpt init",
        )
