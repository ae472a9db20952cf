"""`git ckpt du` shows the disk space of checkpoints to people and programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store, Usage
from tests.cli.conftest import Ckpt, Outcome, size
from tests.cli.test_terminal import BOLD, RESET, on_terminal
from tests.conftest import Checkout

Save = Callable[..., str]
NOTHING = "".join(
    f"{what}\t-\t0\t0\t-\n"
    for what in (
        "checkpoints",
        "files",
        "leases",
        "links",
        "refs",
        "worktrees",
        "run_files",
        "index",
        "private",
        "leftovers",
    )
)
SWEPT = "1 file of killed processes, 2.0 MB; to delete them: git ckpt expire\n"


@pytest.fixture
def left(main_checkout: Checkout) -> Path:
    """Return a temporary pack that a killed git left behind."""
    path = main_checkout.path / ".git/objects/pack/tmp_pack_x"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * 2_002_944)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


def run_in(checkout: Checkout, name: str, size: int, *, complete: bool) -> tuple[str, int]:
    """Make a run whose worktree has a file of some size.

    Return the run's id and the size of its worktree.
    """
    with Store.open(checkout.path) as store:
        started = store.record("run-started", {}, start=name, trigger="phase")
        path = Path(store.resume(started).path)
        if complete:
            store.record("run-complete", {}, run=started.run, trigger="phase")
        (path / "big").write_bytes(b"x" * size)
        return str(started.run), next(
            each.bytes for each in store.usage().worktrees if each.run == started.run
        )


def measured(checkout: Checkout) -> Usage:
    with Store.open(checkout.path, adapter="plumbing") as store:
        return store.usage()


@pytest.mark.parametrize("options", [[], ["--bare"]])
def test_of_nothing(ckpt: Ckpt, make_checkout: Callable[..., Checkout], options: list[str]) -> None:
    empty = make_checkout("empty", *options)
    assert ckpt("du", at=empty) == Outcome(0, f"{NOTHING}total\t-\t-\t0\t-\n", "")


def test_piped_each_row_has_five_columns(ckpt: Ckpt, checkout: Checkout, save: Save) -> None:
    checkout.write("new", "new\n")
    save(checkout)
    run, _ = run_in(checkout, "work", 10, complete=False)
    before, found = checkout.fingerprint(), measured(checkout)
    (worktree,) = found.worktrees
    assert ckpt("du", at=checkout) == Outcome(
        0,
        f"checkpoints\t-\t2\t{found.checkpoints.bytes}\t-\n"
        f"files\t-\t3\t{found.files.bytes}\t-\n"
        f"leases\t-\t0\t0\t-\n"
        f"links\t-\t1\t{found.links.bytes}\t-\n"
        f"refs\t-\t{found.refs.number}\t{found.refs.bytes}\t-\n"
        f"worktrees\t-\t1\t{worktree.bytes}\t-\n"
        f"worktree\t{run}\t{worktree.files}\t{worktree.bytes}\tunfinished\n"
        f"run_files\t-\t0\t0\t-\n"
        f"index\t-\t{found.index.number}\t{found.index.bytes}\t-\n"
        f"private\t-\t{found.private.number}\t{found.private.bytes}\t-\n"
        f"leftovers\t-\t0\t0\t-\n"
        f"total\t-\t-\t{found.bytes}\t-\n",
        "",
    )
    assert (
        found.bytes
        == sum(int(line.split("\t")[3]) for line in ckpt("du", at=checkout).out.splitlines()[:-1])
        - worktree.bytes
    )
    assert checkout.fingerprint() == before


def test_what_was_left_is_told_with_the_command_that_deletes_it(
    ckpt: Ckpt, main_checkout: Checkout, left: Path
) -> None:
    done = ckpt("du", at=main_checkout)
    assert done.out.splitlines()[-3:] == [
        "leftovers\t-\t1\t2002944\t-",
        "leftover\ttmp_pack_*\t1\t2002944\t1 left by killed processes",
        "total\t-\t-\t2002944\t-",
    ]
    assert (done.code, done.err) == (0, SWEPT)
    assert ckpt("--quiet", "du", at=main_checkout).err == ""
    assert ckpt("expire", at=main_checkout).code == 0
    assert not left.exists()
    assert ckpt("du", at=main_checkout).err == ""


@pytest.mark.long
def test_what_frees_room_is_told_where_there_is_some(
    ckpt: Ckpt, main_checkout: Checkout, save: Save
) -> None:
    main_checkout.write("new", os.urandom(1_500_000))
    save(main_checkout)
    (main_checkout.path / "new").unlink()
    _, one = run_in(main_checkout, "one", 1_000_000, complete=True)
    _, two = run_in(main_checkout, "two", 1_000_000, complete=False)
    run_in(main_checkout, "small", 10, complete=False)
    found = measured(main_checkout)
    ends = "git ckpt finish RUN"
    small = min(each.bytes for each in found.worktrees)
    expected = [
        "to see what expires: git ckpt expire --dry-run; to free space after that: git gc",
        f"{found.loose.number} loose objects, {size(found.loose.bytes or 0)}; to pack them: git gc",
        (
            f"{size(one)} in worktrees of complete runs; such a worktree is removed when its run "
            "expires: git ckpt expire --dry-run"
        ),
        (
            f"{size(two + small)} in worktrees of unfinished runs; such a worktree stays until "
            f"its run is complete: {ends}"
        ),
    ]
    assert ckpt("du", at=main_checkout).err.splitlines() == expected
    main_checkout.git("gc", "--quiet")
    assert ckpt("du", at=main_checkout).err.splitlines() == [expected[0], *expected[2:]]


def test_where_an_object_is_damaged_that_is_said(
    ckpt: Ckpt, main_checkout: Checkout, save: Save
) -> None:
    save(main_checkout)
    tree = main_checkout.git("rev-parse", "HEAD^{tree}")
    path = main_checkout.path / ".git/objects" / tree[:2] / tree[2:]
    path.chmod(0o600)
    path.write_bytes(b"damaged")
    done = ckpt("du", at=main_checkout)
    said = "an object is damaged, so the numbers are incomplete; "
    said += "to find it: git ckpt verify --contents"
    assert (done.code, done.err) == (0, f"warning: {said}\n")
    assert json.loads(ckpt("du", "--json", at=main_checkout).out)["complete"] is False


@pytest.mark.long
def test_on_a_terminal_it_is_a_table_with_the_largest_worktrees(
    main_checkout: Checkout, save: Save, left: Path
) -> None:
    save(main_checkout)
    for number in range(6):
        run_in(main_checkout, f"run-{number}", 10_000 * (number + 1), complete=number == 5)
    found = measured(main_checkout)
    lines = [
        ("WHAT", "NUMBER", "ON DISK", "STATE"),
        ("checkpoints", "8", size(found.checkpoints.bytes or 0), ""),
        ("links in notes", "1", size(found.links.bytes or 0), ""),
        ("refs", str(found.refs.number), size(found.refs.bytes or 0), ""),
        ("worktrees", "6", size(sum(each.bytes for each in found.worktrees)), ""),
        *(
            (f"  {each.run}", "3 files", size(each.bytes), each.status)
            for each in found.worktrees[:5]
        ),
        ("  1 more: git ckpt du --runs", "3 files", size(found.worktrees[5].bytes), ""),
        (
            "index",
            f"{found.index.number} file{'' if found.index.number == 1 else 's'}",
            size(found.index.bytes or 0),
            "",
        ),
        (
            "logs and other private files",
            f"{found.private.number} files",
            size(found.private.bytes or 0),
            "",
        ),
        ("scratch files of processes", "1", "2.0 MB", ""),
        ("  tmp_pack_*", "1", "2.0 MB", "1 left by killed processes"),
        ("total", "", size(found.bytes), ""),
    ]
    lines = [line for line in lines if line[1] != "0 files"]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    table = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    table[0] = f"{BOLD}{table[0]}{RESET}"
    assert on_terminal("du", at=main_checkout, columns=120) == (0, "\n".join([*table, SWEPT]))
    code, said = on_terminal("du", "--runs", at=main_checkout, columns=120)
    assert (code, len(re.findall(r"^  \d{8}-\d{6}-run-", said, re.MULTILINE)), "more" in said) == (
        0,
        6,
        False,
    )


def test_hostile_paths_are_made_harmless(ckpt: Ckpt, main_checkout: Checkout) -> None:
    hostile = main_checkout.path / ".ckpt/worktrees/a\x1b[31m\tb\n\u202ec"
    hostile.mkdir(parents=True)
    with Store.open(main_checkout.path) as store:
        assert [each.path for each in store.usage().worktrees] == [str(hostile)]
    (line,) = (
        line
        for line in ckpt("du", at=main_checkout).out.splitlines()
        if line.startswith("worktree\t")
    )
    assert line.split("\t")[1] == f"{hostile.parent}/a\\x1b[31m\\tb\\n\\u{{202e}}c"
    _, said = on_terminal("du", at=main_checkout, columns=300)
    assert "a\\x1b[31m\\tb\\n\\u{202e}c" in said
    assert json.loads(ckpt("du", "--json", at=main_checkout).out)["worktrees"][0]["path"] == str(
        hostile
    )


def test_in_reftables_refs_have_no_size(
    ckpt: Ckpt, newer_git: str, make_checkout: Callable[..., Checkout], save: Save
) -> None:
    checkout = make_checkout("tables", "--ref-format=reftable")
    checkout.commit("first", README="hello\n")
    save(checkout)
    number = len(checkout.refs("refs/checkpoints", "refs/keep", "refs/notes"))
    assert f"refs\t-\t{number}\t-\t-\n" in ckpt("du", at=checkout).out
    assert json.loads(ckpt("du", "--json", at=checkout).out)["refs"] == {
        "number": number,
        "bytes": None,
    }
    assert re.search(
        rf"^refs +{number} +in reftables$", on_terminal("du", at=checkout)[1], re.MULTILINE
    )
