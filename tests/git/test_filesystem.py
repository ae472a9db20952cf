"""`names_in` lists a directory, and returns no names if it does not exist."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt.git.filesystem import names_in
from gitckpt.git.repository import Repository
from gitckpt.store.retention import sweep


def test_what_is_there(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()
    assert names_in(str(tmp_path)) == ["a", "b", "c"]
    assert [names_in(str(tmp_path / name)) for name in ("a", "none", "a/none")] == [[], [], []]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_one_that_may_not_be_read_is_not_called_empty(tmp_path: Path) -> None:
    tmp_path.chmod(0o300)
    with pytest.raises(PermissionError):
        names_in(str(tmp_path))
    tmp_path.chmod(0o700)


def test_one_that_goes_while_it_is_looked_at(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep of the private directory succeeds if it vanishes after the check."""
    private = repository.make_private_dir()
    is_directory = os.path.isdir

    def gone(path: str) -> bool:
        found = is_directory(path)
        if path == private and found:
            os.rename(private, f"{private}.gone")
        return found

    monkeypatch.setattr(os.path, "isdir", gone)
    assert sweep.delete_leftover_files(repository) == []
