"""`atomic` writes a file completely or not at all, even if a kill interrupts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt.git.files import regular

LEFT = ".file.123.0a1b2c3d"


def age(path: Path) -> None:
    """Make a file older than any write that is still running."""
    path.write_text("half")
    os.utime(path, (1_000_000_000, 1_000_000_000))


def test_what_a_kill_left_goes_with_the_next_one_who_writes_the_file(tmp_path: Path) -> None:
    age(tmp_path / LEFT)
    others = [
        ".file.123.0a1b2c3",
        ".file.x.0a1b2c3d",
        ".file2.123.0a1b2c3d",
        ".file.123.0a1b2c3x",
        "file.123.0a1b2c3d",
    ]
    for name in others:
        age(tmp_path / name)
    (tmp_path / ".file.123.00000000").write_text("somebody is at it")
    regular.write(str(tmp_path / "file"), b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == sorted([*others, ".file.123.00000000", "file"])


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_who_may_read_the_old_file_may_read_the_new_one_and_nobody_else(
    tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    regular.write(str(path), b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", mode)
    (tmp_path / "link").symlink_to(path)
    regular.write(str(tmp_path / "link"), b"new")
    regular.write(str(tmp_path / "fresh"), b"new")
    assert (tmp_path / "link").lstat().st_mode == (tmp_path / "fresh").stat().st_mode


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        regular.write(str(tmp_path / "file"), b"new")
    assert os.listdir(tmp_path) == ["file"]


def test_a_name_as_long_as_names_are_which_bytes_count(tmp_path: Path) -> None:
    name = "界" * 85
    regular.write(str(tmp_path / name), b"new")
    assert os.listdir(tmp_path) == [name]
