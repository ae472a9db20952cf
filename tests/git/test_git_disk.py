"""What is flushed is on the disk, and what the disk says of it is heard."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt.git import disk
from gitckpt.git.disk import Arrivals
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.errors import CkptError
from tests.conftest import Checkout, repository_of


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    place = tmp_path / "files"
    place.mkdir()
    paths = [place / str(number) for number in range(disk._ALL_FROM)]
    for path in paths:
        path.touch()
    return [str(path) for path in paths]


def put_sync(directory: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> Path:
    """Puts a `sync` on PATH that notes what it is called with."""
    programs, said = directory / "programs", directory / "said"
    programs.mkdir()
    (programs / "sync").write_text(f'#!/bin/sh\necho "$@" >>"{said}"\nexit {code}\n')
    (programs / "sync").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    said.touch()
    return said


@pytest.mark.parametrize("count", [0, 1, 2, 3, 20, disk._ALL_FROM - 1])
def test_each_is_flushed_once(files: list[str], flushed: list[str], count: int) -> None:
    disk.flush([*files[:count], *files[:count]])
    assert sorted(flushed) == sorted(files[:count])


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="Linux has a program that flushes one file system")
def test_of_many_on_two_file_systems_both_are_flushed(
    tmp_path: Path, files: list[str], flushed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.git/objects` may be one of its own."""
    said = put_sync(tmp_path, monkeypatch, 0)
    (tmp_path / "few").touch()
    place = tempfile.mkdtemp(dir="/dev/shm" if os.stat("/dev/shm").st_dev != os.stat(tmp_path).st_dev else "/var/tmp")
    try:
        other = [os.path.join(place, str(number)) for number in range(disk._ALL_FROM)]
        for path in other:
            Path(path).touch()
        if os.stat(place).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("there is one file system")
        disk.flush([files[0], *other, *files[1:]])
        assert [sorted(said.read_text().splitlines()), flushed] == [sorted([f"-f {tmp_path}/files", f"-f {place}"]), []]
        said.write_text("")
        disk.flush([*other, str(tmp_path / "few"), place])
        assert [said.read_text(), flushed] == [f"-f {place}\n", [str(tmp_path / "few")]]
    finally:
        shutil.rmtree(place)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="Linux has a program that flushes one file system")
def test_of_many_the_file_system_is_flushed(tmp_path: Path, files: list[str], flushed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said = put_sync(tmp_path, monkeypatch, 0)
    disk.flush(files)
    assert [said.read_text(), flushed] == [f"-f {tmp_path}/files\n", []]


def test_where_that_cannot_be_each_is_flushed(
    tmp_path: Path, files: list[str], flushed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_sync(tmp_path, monkeypatch, 1)
    disk.flush(files)
    assert sorted(flushed) == sorted(files)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    disk.flush(files)
    assert sorted(flushed) == sorted([*files, *files])


def test_what_is_gone_is_passed_over(files: list[str], flushed: list[str]) -> None:
    os.unlink(files[0])
    disk.flush([files[0], files[1], f"{files[2]}/below"])
    assert flushed == [files[1]]


def test_directories_above_are_flushed_only_where_they_have_changed(tmp_path: Path, files: list[str], flushed: list[str]) -> None:
    above = str(tmp_path / "files")
    for _ in range(2):
        disk.flush([files[0]], above=[above])
    (tmp_path / "files" / "new").touch()
    disk.flush([files[0]], above=[above])
    assert [flushed.count(above), flushed.count(files[0])] == [2, 3]


@pytest.mark.parametrize("count", [1, 20])
def test_an_error_of_the_disk_is_raised(files: list[str], monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CkptError, match=r"cannot flush .*/files/\d+ to the disk: Input/output error"):
        disk.flush(files[:count])


def test_a_file_system_that_flushes_no_directory_is_put_up_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", fail)
    disk.flush([str(tmp_path)])


def test_one_that_failed_is_flushed_again(tmp_path: Path, flushed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    note = os.fsync

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CkptError):
        disk.flush([], above=[str(tmp_path)])
    monkeypatch.setattr(os, "fsync", note)
    disk.flush([], above=[str(tmp_path)])
    assert flushed == [str(tmp_path)]


@pytest.mark.parametrize(("pace", "count", "threads"), [(1.0, 3, 1), (0.0, 3, 0), (0.0, 4, 1), (0.0, 10, 3)])
def test_on_a_quick_disk_a_few_go_without_threads(
    files: list[str], flushed: list[str], monkeypatch: pytest.MonkeyPatch, pace: float, count: int, threads: int
) -> None:
    started: list[object] = []
    start = disk._start

    def noted(*call: Any) -> Any:
        started.append(call)
        return start(*call)

    monkeypatch.setattr(disk, "_start", noted)
    monkeypatch.setattr(disk._Pace, "last", pace)
    disk.flush(files[:count])
    assert (len(started), sorted(flushed)) == (threads, sorted(files[:count]))
    assert 0 < disk._Pace.last < 1


def test_how_quick_the_disk_is_does_not_count_what_is_done_meanwhile(
    files: list[str], flushed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk._Pace, "last", 0.0)
    done: list[bool] = []
    disk.flush(files[:2], meanwhile=lambda: done.append(True))
    assert (sorted(flushed), done, disk._Pace.last) == (sorted(files[:2]), [True], 0.0)


def test_a_directory_that_a_gc_deletes_meanwhile_is_passed_over(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once before it is looked at, as a link that leads nowhere is, and once before its names are read."""
    objects = Path(repository.common_dir) / "objects"
    (objects / "ab").symlink_to("gone")
    (objects / "cd").mkdir()
    real = os.scandir

    def scandir(path: str | int) -> object:
        if isinstance(path, str) and path.endswith("/cd"):
            os.rmdir(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    disk.Arrivals(repository).catch_up()
    assert not (objects / "cd").exists()


def test_a_linked_worktree_has_reftables_of_its_own(
    newer_git: str, make_checkout: Callable[..., Checkout], tmp_path: Path, flushed: list[str]
) -> None:
    """Its HEAD is in them, and each commit writes the log of that: where one is broken, git takes it to be at no commit."""
    checkout = make_checkout("tabled", "--ref-format=reftable")
    commit = checkout.commit("first")
    checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    place = checkout.path / ".git/worktrees/linked"
    tables = [str(each) for each in (place / "reftable").iterdir()]
    repository = repository_of(Checkout(tmp_path / "linked", checkout.path))
    with Arrivals(repository).look([commit], []) as due:
        due.flush()
    assert set(flushed) >= {*tables, str(place / "reftable"), str(place / "HEAD"), str(checkout.path / ".git/reftable")}
    flushed.clear()
    administration.flush(repository, str(tmp_path / "linked"))
    assert set(flushed) >= {*tables, str(place / "reftable"), str(place / "HEAD"), str(place)}
    repository.close()


def test_what_is_kept_of_an_operation_is_flushed(main_checkout: Checkout, tmp_path: Path, flushed: list[str]) -> None:
    """A worktree that is made for a checkpoint of a rebase has a directory of files that say how far it is."""
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    place = main_checkout.path / ".git/worktrees/linked"
    for name in ("rebase-merge", "modules"):
        (place / name).mkdir()
        (place / name / "done").touch()
    repository = repository_of(main_checkout)
    administration.flush(repository, str(tmp_path / "linked"))
    assert {str(place / "rebase-merge"), str(place / "rebase-merge/done")} <= set(flushed)
    assert str(place / "modules/done") not in flushed
    repository.close()


def test_what_is_no_file_of_a_worktree_is_not_flushed(main_checkout: Checkout, tmp_path: Path, flushed: list[str]) -> None:
    """Git's file system monitor listens at a socket there; of a pipe, the flush waited for ever."""
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    place = main_checkout.path / ".git/worktrees/linked"
    os.mkfifo(place / "pipe")
    os.mknod(place / "fsmonitor--daemon.ipc", 0o600 | stat.S_IFSOCK)
    repository = repository_of(main_checkout)
    administration.flush(repository, str(tmp_path / "linked"))
    assert str(place / "HEAD") in flushed
    repository.close()
