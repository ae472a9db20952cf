"""`save` prints a hint if the sandbox of Codex makes the repository read-only."""

from __future__ import annotations

import errno
import os

import pytest

from gitckpt import CkptError
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout


def test_the_sandbox_of_codex_is_named(
    main_checkout: Checkout, ckpt: Ckpt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CkptError(
            f"cannot write to {main_checkout.path}/.git: {os.strerror(errno.EROFS)}",
            hint="chmod it",
        )

    monkeypatch.setattr("gitckpt.store.store.Store.save", refuse)
    assert "hint: chmod it\n" in ckpt("save", at=main_checkout).err
    monkeypatch.setenv("CODEX_SANDBOX_NETWORK_DISABLED", "1")
    roots = f"'sandbox_workspace_write.writable_roots=[\"{main_checkout.path}/.git\"]'"
    hint = (
        "hint: Codex's sandbox makes the repository read-only; run: codex exec --sandbox "
        f"workspace-write -c {roots} …\n"
    )
    assert hint in ckpt("save", at=main_checkout).err
