"""`git ckpt diff --binary` makes a patch for `git apply`, whatever the settings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ckpt
from tests.conftest import Checkout, git_program
from tests.store.conftest import view

Save = Callable[..., str]
RAW = bytes(range(256)) * 40

SETTINGS = {
    "diff.noprefix": "true",
    "diff.mnemonicPrefix": "true",
    "diff.context": "0",
    "diff.relative": "true",
    "diff.external": "false",
    "diff.people.textconv": "wc -c <",
    "diff.submodule": "log",
    "diff.renames": "copies",
    "color.ui": "always",
}


def changed(here: Checkout) -> None:
    """Make every kind of change that a patch can represent.

    These are text and binary files, new, changed, deleted and renamed files, modes, links, odd
    names and a missing last newline.
    """
    (here.path / "gone.bin").unlink()
    here.write("changed.bin", RAW + b"\0more")
    here.write("new.bin", RAW[::-1])
    here.write("deep/er/new", "text\n")
    here.write("README", "no line end")
    (here.path / "tool").chmod(0o755)
    (here.path / "link").unlink()
    (here.path / "link").symlink_to("elsewhere")
    os.rename(here.path / "moved", here.path / "moved to")
    here.write('odd "name"\nof two lines', b"\xff\xfe\0")
    here.write("people", "for people\n\0\n")


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, SETTINGS])
def test_there_and_back(
    ckpt: Ckpt, save: Save, checkout: Checkout, tmp_path: Path, settings: dict[str, str]
) -> None:
    for name in ("gone.bin", "changed.bin"):
        checkout.write(name, RAW)
    checkout.commit("all", tool="x\n", moved="1\n" * 40, people="\0")
    (checkout.path / "link").symlink_to("README")
    checkout.write(".gitattributes", "people diff=people\n")
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--message", "links")
    for name, value in settings.items():
        checkout.git("config", name, value)
    before, files = save(checkout), view(checkout.path)["files"]
    there = Path(ckpt("resume", before, "--into", str(tmp_path / "there")).out.strip())
    changed(checkout)
    after = save(checkout)
    expected = view(checkout.path)["files"]
    assert expected != files
    patches = [patch(checkout, before), patch(checkout, before, after)]
    assert patches[0] == patches[1]
    apply(there, patches[0])
    assert view(there)["files"] == expected
    apply(there, patches[0], "--reverse")
    assert view(there)["files"] == files
    apply(there, patch(checkout, before, after, "--", "new.bin"))
    assert (there / "new.bin").read_bytes() == RAW[::-1]
    assert (there / "changed.bin").read_bytes() == RAW


def test_what_it_does_not_go_with(ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
    made = save(checkout)
    assert (
        ckpt("diff", "--binary", "--stat", made).code,
        ckpt("diff", "--binary", "--state", made, made).code,
    ) == (2, 2)


def patch(here: Checkout, *words: str) -> bytes:
    command = [sys.executable, "-m", "gitckpt", "diff", "--binary", *words]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        command,
        cwd=here.path,
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def apply(there: Path, text: bytes, *options: str) -> None:
    done = subprocess.run(
        [git_program(), "apply", *options],
        cwd=there,
        input=text,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
