"""`fsync` flushes files to the disk and reports the errors of the disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import CkptError
from gitckpt.git import fsync
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from tests.conftest import Checkout, repository_of


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    place = tmp_path / "files"
    place.mkdir()
    paths = [place / str(number) for number in range(64)]
    for path in paths:
        path.touch()
    return [str(path) for path in paths]


@pytest.mark.parametrize("count", [0, 1, 2, 20, 64])
def test_each_is_flushed_once(files: list[str], flushed: list[str], count: int) -> None:
    fsync.flush([*files[:count], *files[:count]])
    assert sorted(flushed) == sorted(files[:count])


def test_what_is_gone_is_passed_over(files: list[str], flushed: list[str]) -> None:
    os.unlink(files[0])
    fsync.flush([files[0], files[1], f"{files[2]}/below"])
    assert flushed == [files[1]]


@pytest.mark.parametrize("count", [1, 20])
def test_an_error_of_the_disk_is_raised(
    files: list[str], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(
        CkptError, match=r"cannot flush .*/files/\d+ to the disk: Input/output error"
    ):
        fsync.flush(files[:count])


def test_a_file_system_that_flushes_no_directory_is_put_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", fail)
    fsync.flush([str(tmp_path)])


def test_a_linked_worktree_has_reftables_of_its_own(
    newer_git: str, make_checkout: Callable[..., Checkout], tmp_path: Path, flushed: list[str]
) -> None:
    """The reftables of a linked worktree are flushed, as they hold its HEAD.

    Each commit in the worktree writes HEAD's log. If git cannot read a table, the worktree has no
    commit.
    """
    checkout = make_checkout("tabled", "--ref-format=reftable")
    checkout.commit("first")
    checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    place = checkout.path / ".git/worktrees/linked"
    tables = [str(each) for each in (place / "reftable").iterdir()]
    repository = repository_of(Checkout(tmp_path / "linked", checkout.path))
    administration.flush_worktree(repository, str(tmp_path / "linked"))
    assert set(flushed) >= {*tables, str(place / "reftable"), str(place / "HEAD"), str(place)}
    repository.close()


def test_what_is_kept_of_an_operation_is_flushed(
    main_checkout: Checkout, tmp_path: Path, flushed: list[str]
) -> None:
    """The files of a rebase are flushed with the worktree made for its checkpoint."""
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    place = main_checkout.path / ".git/worktrees/linked"
    for name in ("rebase-merge", "modules"):
        (place / name).mkdir()
        (place / name / "done").touch()
    repository = repository_of(main_checkout)
    administration.flush_worktree(repository, str(tmp_path / "linked"))
    assert {str(place / "rebase-merge"), str(place / "rebase-merge/done")} <= set(flushed)
    assert str(place / "modules/done") not in flushed
    repository.close()


def test_what_is_no_file_of_a_worktree_is_not_flushed(
    main_checkout: Checkout, tmp_path: Path, flushed: list[str]
) -> None:
    """The flush skips sockets and pipes, as it would wait at a pipe forever."""
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    place = main_checkout.path / ".git/worktrees/linked"
    os.mkfifo(place / "pipe")
    os.mknod(place / "fsmonitor--daemon.ipc", 0o600 | stat.S_IFSOCK)
    repository = repository_of(main_checkout)
    administration.flush_worktree(repository, str(tmp_path / "linked"))
    assert str(place / "HEAD") in flushed
    repository.close()


def test_an_object_is_flushed_with_its_directories(repository: Repository) -> None:
    top = f"{repository.common_dir}/objects"
    assert fsync.object_paths(repository.common_dir, ["ab" * 20]) == [
        f"{top}/ab/{'ab' * 19}",
        f"{top}/ab",
        f"{top}/pack",
        top,
    ]
    assert fsync.object_paths(repository.common_dir, []) == []
