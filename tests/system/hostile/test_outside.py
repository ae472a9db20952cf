"""No command changes files outside of a hostile worktree, or runs its programs.

The repository combines attacks of all kinds: forged runs, an operation that names programs, a
branch whose `gitckpt.toml` has commands, documents full of escapes, and expensive documents. The
calls are those of `test_escapes.py`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gitckpt import Store
from tests import forked
from tests.cli.conftest import COMMANDS
from tests.conftest import Checkout
from tests.system.hostile import bombs, branches, escapes, forger
from tests.system.hostile.forger import FORGED, Forger
from tests.system.hostile.test_escapes import CALLS

MARKER = "was-run"
NAMING = ("loop", "review", "run")
"""Commands that name a pipeline: they announce and run the branch's replacement."""

EVIL = "rebase-merge/strategy"


def everything(place: Path, but: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of all files below a place, except in one directory."""
    found = {}
    for parent, directories, files in os.walk(place):
        directories[:] = [name for name in directories if Path(parent, name) != but]
        for name in [*directories, *files]:
            path = Path(parent, name)
            status = path.lstat()
            content = (
                os.readlink(path).encode()
                if path.is_symlink()
                else path.read_bytes()
                if path.is_file()
                else b""
            )
            found[str(path.relative_to(place))] = status.st_mode, content
    return found


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory with valuable files, in which the repositories are copied."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "valued").mkdir()
    (place / "valued/thesis").write_text("forty minutes of work\n")
    (place / "valued/thesis").chmod(0o640)
    (place / "link").symlink_to("valued")
    return place


@pytest.fixture
def filled(main_checkout: Checkout, outside: Path, tmp_path: Path) -> Checkout:
    _fill(main_checkout, outside / MARKER, tmp_path)
    return main_checkout


def _fill(main_checkout: Checkout, marker: Path, scratch: Path) -> None:
    main_checkout.write("Makefile", "test:\n\t@true\n")
    main_checkout.git("add", "--all")
    main_checkout.git("commit", "--quiet", "--message", "project")
    with Store.open(main_checkout.path) as store:
        store.record("research-complete", {})
        _forge_operation(main_checkout, store, marker)
    branches.commanding(main_checkout, marker)
    enemy = Forger(main_checkout, scratch / "forger")
    evil = f"all test build:\n\t@touch '{marker}'\n"
    forger.run_of_2099(
        enemy,
        "ci",
        ["one"],
        attacked={"Makefile": evil, "git-merge-x/evil": f"#!/bin/sh\ntouch '{marker}'\n"},
    )
    enemy.fetched()
    escapes.documents_full_of_escapes(main_checkout)
    escapes.lease_full_of_escapes(main_checkout)
    escapes.invalid_documents(main_checkout)
    for number, make in enumerate(bombs.DOCUMENTS.values()):
        data, ref = make(), f"{bombs.REF[:-2]}{number:02x}"
        text = (
            data.replace(bombs.REF.rpartition("/")[2], ref.rpartition("/")[2])
            if isinstance(data, str)
            else data
        )
        main_checkout.git(
            "update-ref",
            ref,
            main_checkout.git(
                "hash-object", "-w", "--literally", "-t", "blob", "--stdin", data=text
            ),
        )


def _forge_operation(checkout: Checkout, store: Store, marker: Path) -> None:
    """Record a rebase in progress that executes programs when it is continued.

    The private directory then forgets that this repository recorded it.
    """
    files = {
        EVIL: "x/evil\n",
        "rebase-merge/git-rebase-todo": f"exec touch '{marker}'\n",
        "rebase-merge/refs-to-delete": "refs/heads/main\n",
    }
    place = checkout.main / ".git" / "rebase-merge"
    place.mkdir()
    head = checkout.git("rev-parse", "HEAD")
    for name, text in {
        **files,
        "rebase-merge/head-name": "refs/heads/main\n",
        "rebase-merge/orig-head": f"{head}\n",
    }.items():
        (checkout.main / ".git" / name).write_text(text)
    (place / "onto").write_text(f"{head}\n")
    assert store.save("evil-complete", {}).tree is not None
    shutil.rmtree(place)
    (checkout.main / ".git/ckpt/written").unlink()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose all commands with `--long`, otherwise every sixth one."""
    if "command" in metafunc.fixturenames:
        metafunc.parametrize(
            "command", list(COMMANDS)[:: 1 if metafunc.config.getoption("--long") else 6]
        )


@pytest.mark.long
def test_nothing_outside_changes_and_nothing_runs(
    filled: Checkout, outside: Path, command: str, request: pytest.FixtureRequest
) -> None:
    home = Path(os.environ["HOME"])  # a sibling of `outside`, so compared separately
    known = [words for words in CALLS[command] if command not in NAMING or "--dry-run" in words]
    calls = [
        *known[: None if request.config.getoption("--long") else 1],
        *([[FORGED]] if command in ("resume", "status", "show", "cancel", "finish") else []),
    ]
    for number, words in enumerate(calls):
        copy = outside / f"copy {number}"
        shutil.copytree(filled.path, copy, symlinks=True)
        before = everything(outside, copy), everything(home, copy), filled.refs("refs/heads")
        done = forked.git_ckpt(command, *words, directory=copy)
        assert done.code != 3, (words, done)
        assert "Traceback" not in done.err, (words, done)
        assert (everything(outside, copy), everything(home, copy)) == before[:2], (words, done)
        assert not (outside / MARKER).exists(), (words, done)
        assert Checkout(copy).refs("refs/heads") == before[2] or command in (
            "resume",
            "start",
            "run",
        ), (words, done)
        shutil.rmtree(copy, ignore_errors=True)
