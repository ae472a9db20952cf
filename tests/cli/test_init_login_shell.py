"""`git ckpt init` warns if a login shell does not find the program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import planted
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout
from tests.planted import plant


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put `git-ckpt` and `codex` into a directory on PATH with a space in its name."""
    path = tmp_path / "my programs" / "git-ckpt"
    path.parent.mkdir()
    for each in (path, path.with_name("codex")):
        each.write_text("#!/bin/sh\n")
        each.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    return path


def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Make a script the user's login shell."""
    path = tmp_path / "bash"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("SHELL", str(path))


def test_one_that_does_not_find_it(
    main_checkout: Checkout,
    ckpt: Ckpt,
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell(tmp_path, monkeypatch, '[ "$1" = -lc ] && PATH=/nowhere; command -v git-ckpt')
    said = ckpt("init", at=main_checkout)
    alias = f"git config --global alias.ckpt '!{program}'"
    assert [line for line in said.err.splitlines() if "login shell" in line] == [
        f"Codex runs commands in a login shell, which does not find git-ckpt; run: {alias}"
    ]
    program.with_name("codex").unlink()
    # Only Codex runs commands in a login shell.
    assert "login shell" not in ckpt("init", at=main_checkout).err
    program.with_name("codex").touch(0o755)
    main_checkout.git("config", "alias.ckpt", f"!{program}")
    assert "login shell" not in ckpt("init", at=main_checkout).err


@pytest.mark.parametrize("script", ["command -v git-ckpt", "exit 0"])
def test_one_that_finds_it(
    main_checkout: Checkout,
    ckpt: Ckpt,
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
) -> None:
    shell(tmp_path, monkeypatch, script)
    assert "login shell" not in ckpt("init", at=main_checkout).err


def test_one_that_waits(
    main_checkout: Checkout,
    ckpt: Ckpt,
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, planted.LOGIN_SHELL_PATIENCE, 0.1)
    shell(tmp_path, monkeypatch, "sleep 60")
    assert "login shell" not in ckpt("init", at=main_checkout).err


@pytest.mark.parametrize("value", ["", "/usr/bin/fish", "/nowhere/bash"])
def test_what_is_no_shell_of_this_kind(
    main_checkout: Checkout, ckpt: Ckpt, program: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SHELL", value)
    assert "login shell" not in ckpt("init", at=main_checkout).err
