"""Files beside a run's worktree are written completely or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gitckpt import WorktreeError
from gitckpt.store.runs.run_files import RunFiles


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_copy_of_an_input_is_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RunFiles(str(tmp_path / "run"))
    files.write_inputs({"plan": b"old"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(WorktreeError, match=r"cannot write .*plan: No space left on device"):
            files.write_inputs({"plan": b"new"})
    assert (files.read_inputs(), os.listdir(files.path)) == ({"plan": b"old"}, ["input"])
    files.write_inputs({"plan": b"new"})
    assert (files.read_inputs(), os.listdir(files.path)) == ({"plan": b"new"}, ["input"])


def test_what_a_kill_left_goes_with_the_next_file_and_is_no_input(tmp_path: Path) -> None:
    files = RunFiles(str(tmp_path / "run"))
    files.write_inputs({"plan": b"old"})
    left = tmp_path / "run/writing.123.0a1b2c3d"
    left.write_bytes(b"half")
    os.utime(left, (1_000_000_000, 1_000_000_000))
    assert files.read_inputs() == {"plan": b"old"}
    files.write_inputs({"plan": b"new"})
    assert (files.read_inputs(), os.listdir(files.path)) == ({"plan": b"new"}, ["input"])
