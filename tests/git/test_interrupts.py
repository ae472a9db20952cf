"""An interrupted call leaves no process, no pipe and no lock behind."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from gitckpt import DeadlinePassed
from gitckpt.git import lock
from gitckpt.git.command import GitRunner
from gitckpt.git.lock import FileLock
from gitckpt.git.repository import discover_repository
from tests.conftest import Checkout
from tests.git.test_process import children_of_ours


class Interrupt(BaseException):
    pass


@pytest.fixture
def git(main_checkout: Checkout) -> GitRunner:
    return discover_repository(str(main_checkout.path)).git


@pytest.fixture
def after() -> Iterator[Callable[[float], object]]:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def descriptors() -> list[str]:
    return sorted(os.listdir("/dev/fd"))


def test_of_a_command(git: GitRunner, after: Callable[[float], object]) -> None:
    before = descriptors(), children_of_ours()
    after(0.2)
    with pytest.raises(Interrupt):
        git.run("-c", "alias.wait=!exec sleep 600", "wait")
    assert (descriptors(), children_of_ours()) == before


def test_of_one_that_takes_too_long_while_it_is_listened_to(git: GitRunner) -> None:
    before = descriptors(), children_of_ours()
    with pytest.raises(DeadlinePassed, match="timed out"):
        git.stream_lines(
            "-c",
            "alias.wait=!exec sleep 600",
            "wait",
            handle=lambda _: None,
            deadline=time.monotonic() + 0.2,
        )
    assert (descriptors(), children_of_ours()) == before


def test_of_one_that_is_listened_to(git: GitRunner) -> None:
    def take(_lines: list[bytes]) -> None:
        raise Interrupt

    before = descriptors(), children_of_ours()
    with pytest.raises(Interrupt):
        git.stream_lines("version", handle=take)
    assert (descriptors(), children_of_ours()) == before


@pytest.mark.parametrize("argument", ["a\0", "\ud800"])
def test_of_one_that_cannot_be_started(git: GitRunner, argument: str) -> None:
    before = descriptors()
    with pytest.raises(ValueError, match=r"embedded null byte|surrogates not allowed"):
        git.run("version", argument)
    assert descriptors() == before


def test_a_descriptor_is_closed_once(git: GitRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second close could hit a new file with the same descriptor."""
    child = git.start_git("cat-file", "--batch")
    real = os.close

    def close(fd: int) -> None:
        real(fd)
        monkeypatch.setattr(os, "close", real)
        raise Interrupt

    monkeypatch.setattr(os, "close", close)
    with pytest.raises(Interrupt):
        child.close()
    assert child.stdin == -1
    assert child.close() == 0


def test_of_waiting_for_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, path = descriptors(), str(tmp_path / "a.lock")
    real = fcntl.flock

    def flock(fd: int, how: int) -> None:
        real(fd, how)
        raise Interrupt

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(Interrupt), FileLock(path, 0):
        pass
    monkeypatch.undo()
    assert (descriptors(), lock.is_held_by_this_process(path)) == (before, False)
    with FileLock(path, 0) as is_got:
        assert is_got
