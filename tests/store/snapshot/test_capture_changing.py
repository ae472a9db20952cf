"""Files may change, shrink or vanish while they are captured."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gitckpt import Limits, WorktreeError
from tests.conftest import Checkout, git_program
from tests.store.conftest import MakeStore

BUS = 'kill -BUS "$$"'
UNSTABLE = 'echo "fatal: confused by unstable object source data for 12" >&2; exit 128'
SHORT = "echo \"fatal: failed to read 12 bytes from 'new'\" >&2; exit 128"


def failing(place: Path, command: str, how: str, times: int) -> None:
    """Make a git whose command fails several times and leaves its index lock.

    git does so when a file changes while git reads it.
    """
    tries = "\n".join(
        f'mkdir "{place}/{number}" 2>/dev/null && {{ : >"$GIT_INDEX_FILE.lock"; {how}; }}'
        for number in range(times)
    )
    place.mkdir()
    script = place / "git"
    script.write_text(
        f'#!/bin/sh\ncase " $* " in *" {command} "*)\n{tries}\nesac\n'
        f'exec {shutil.which(git_program())} "$@"\n'
    )
    script.chmod(0o755)


@pytest.mark.parametrize("how", [BUS, UNSTABLE, SHORT])
@pytest.mark.parametrize("command", ["status", "update-index"])
def test_what_changes_while_git_reads_it_is_read_again(
    main_checkout: Checkout,
    make_store: MakeStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    how: str,
) -> None:
    main_checkout.write("new", "work")
    main_checkout.write("staged", "work")
    main_checkout.git("add", "staged")  # git has to read what is new, then
    failing(tmp_path / "git", command, how, 3)
    monkeypatch.setenv("GITCKPT_GIT", str(tmp_path / "git" / "git"))
    made = make_store(main_checkout).save("a-complete")
    assert sorted(os.listdir(tmp_path / "git")) == ["0", "1", "2", "git"]
    assert made.worktree is not None
    assert made.worktree.omitted == ()
    assert main_checkout.git("show", f"refs/ckpt/trees/{made.id}:files/new") == "work"


@pytest.mark.parametrize("how", [BUS, UNSTABLE, SHORT])
def test_of_many_that_change_all_the_while_a_few_are_read_at_a_time(
    main_checkout: Checkout,
    make_store: MakeStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """Each file is unchanged for long enough at some time, but never all at once."""
    names = [f"new{number}" for number in range(20)]
    for name in (*names, "staged"):
        main_checkout.write(name, "work")
    main_checkout.git("add", "staged")
    failing(tmp_path / "git", "update-index", how, 7)
    monkeypatch.setenv("GITCKPT_GIT", str(tmp_path / "git" / "git"))
    made = make_store(main_checkout).save("a-complete")
    listed = main_checkout.git("ls-tree", "--name-only", f"refs/ckpt/trees/{made.id}:files")
    assert listed.split("\n") == ["README", *sorted(names), "staged"]


def test_a_file_that_is_never_still_is_named(
    main_checkout: Checkout, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_checkout.write("new", "work")
    main_checkout.write("staged", "work")
    main_checkout.git("add", "staged")
    failing(tmp_path / "git", "update-index", UNSTABLE, 9)
    monkeypatch.setenv("GITCKPT_GIT", str(tmp_path / "git" / "git"))
    with pytest.raises(WorktreeError, match="new changes while git reads the file") as caught:
        make_store(main_checkout).save("a-complete")
    assert str(caught.value.hint).startswith("stop the program that writes to the file")


def test_what_changes_all_the_time_is_no_endless_loop(
    main_checkout: Checkout, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_checkout.write("README", "changed")
    failing(tmp_path / "git", "status", BUS, 9)
    monkeypatch.setenv("GITCKPT_GIT", str(tmp_path / "git" / "git"))
    with pytest.raises(WorktreeError, match="killed by signal"):
        make_store(main_checkout).save("a-complete")


def test_a_file_whose_directory_is_a_file_by_now_has_gone(tmp_path: Path) -> None:
    (tmp_path / "place").touch()
    assert (
        Limits().reason_to_omit(os.fsencode(tmp_path / "place" / "inside"), included=False) is None
    )
