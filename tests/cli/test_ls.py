"""`ls`, `show ID:PATH` and `show ID -- PATH` list and print files of a checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt.cli import terminal
from tests.cli.conftest import PROJECT, Ckpt
from tests.conftest import Checkout

Save = Callable[..., str]
RAW = bytes(range(256)) + b"\r\n"


def print_file(at: Checkout, *args: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "gitckpt", "show", *args],
        cwd=at.path,
        env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def saved(checkout: Checkout, save: Save) -> str:
    checkout.commit("files", **{"src/app.py": "1\n", "src/lib/b.py": "22\n"})
    checkout.write("untracked", RAW)
    checkout.write("staged", "only\n")
    checkout.git("add", "staged")
    (checkout.path / "link").symlink_to("src")
    (checkout.path / "empty/inner").mkdir(parents=True)
    made = save(checkout)
    (checkout.path / "untracked").unlink()
    return made


def test_a_directory_is_listed_as_the_worktree_had_it(
    ckpt: Ckpt, checkout: Checkout, saved: str
) -> None:
    names = ckpt("ls", saved, at=checkout).out.splitlines()
    assert {"src/", "link", "staged", "untracked", "empty/"} <= set(names)
    assert ckpt("ls", saved, "src").out == "src/app.py\nsrc/lib/\n"
    assert ckpt("ls", saved, "src/").out == "src/app.py\nsrc/lib/\n"
    assert ckpt("ls", saved, "src/app.py", "-l").out == "100644\t2\tsrc/app.py\n"
    assert ckpt("ls", saved, "empty").out == "empty/inner/\n"
    everything = ckpt("ls", saved, "-r").out.splitlines()
    assert {"src/app.py", "src/lib/b.py", "empty/inner/"} <= set(everything)
    assert ckpt("ls", saved, at=checkout.path / "src").out == "app.py\nlib/\n"
    report = json.loads(ckpt("ls", saved, "--json", at=checkout).out)
    kinds = {file["path"]: (file["kind"], file["size"]) for file in report["files"]}
    assert kinds["link"] == ("link", 3)
    assert kinds["untracked"] == ("file", len(RAW))
    assert kinds["src"] == ("directory", None)


@pytest.mark.long
def test_a_file_is_printed_byte_for_byte(checkout: Checkout, saved: str) -> None:
    assert print_file(checkout, saved, "--", "untracked") == RAW
    assert print_file(checkout, f"{saved[:8]}:untracked") == RAW
    assert print_file(checkout, "latest:src/app.py") == b"1\n"
    assert print_file(checkout, saved, "--", "src") == b"src/app.py\nsrc/lib/\n"


def test_a_path_from_here_begins_with_a_dot(ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
    source = checkout.path / "src"
    assert ckpt("show", f"{saved}:./app.py", at=source).out == "1\n"
    assert ckpt("show", f"{saved}:../staged", at=source).out == "only\n"
    assert ckpt("show", f"{saved}:src/app.py", at=source).out == "1\n"
    assert ckpt("show", f"{saved}:./src/app.py", at=checkout).out == "1\n"


def test_at_a_terminal_a_file_cannot_control_it(
    ckpt: Ckpt, checkout: Checkout, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.write("evil", "\x1b[31mred\n")
    made = save(checkout)
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    assert ckpt("show", f"{made}:evil", at=checkout).out == "\\x1b[31mred\n"


def test_what_is_not_there(ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
    for words in (["ls", saved, "nowhere"], ["show", saved, "--", "nowhere"]):
        done = ckpt(*words, at=checkout)
        assert done.code == 12
        assert done.err == (
            f"error: checkpoint {saved[:8]} has no file 'nowhere'\n"
            "hint: find it: git ckpt why nowhere\n"
        )
    assert ckpt("show", f"{saved}:../x").code == 2  # outside
    assert ckpt("show", "missing:x").code == 12
    assert ckpt("show", saved, "second").code == 2
    assert ckpt("show", saved, "--json", "--", "link").code == 2
    assert ckpt("ls", saved, "/").code == 2


def test_files_of_a_submodule_are_in_its_own_checkpoint(
    ckpt: Ckpt, main_checkout: Checkout, save: Save, tmp_path: Path
) -> None:
    inner = Checkout(tmp_path / "inner")
    main_checkout.git("init", "--quiet", str(inner.path))
    inner.commit("inner", file="1\n")
    main_checkout.git("submodule", "--quiet", "add", str(inner.path), "lib")
    main_checkout.git("commit", "--quiet", "-m", "submodule")
    main_checkout.write("lib/file", "2\n")
    made = save(main_checkout)
    assert "lib" in ckpt("ls", made, at=main_checkout).out.splitlines()
    done = ckpt("ls", made, "lib/file", at=main_checkout)
    assert "hint: it is in a submodule: git -C lib ckpt ls " in done.err
    words = done.err.rpartition("ckpt ")[2].split()
    assert ckpt(*words, at=main_checkout.path / "lib").out == "file\n"
