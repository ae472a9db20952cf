"""Processes exclude each other with advisory locks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gitckpt.git.lock import FileLock

ROOT = Path(__file__).parents[2]

HOLD = """
import sys
from gitckpt.git.lock import FileLock
with FileLock(sys.argv[1], 60) as got:
    print(got, flush=True)
    sys.stdin.readline()
"""

COUNT = """
import sys
from gitckpt.git.lock import FileLock
for _ in range(100):
    with FileLock(sys.argv[1], 60) as got:
        assert got
        with open(sys.argv[2]) as file:
            number = int(file.read())
        with open(sys.argv[2], "w") as file:
            file.write(str(number + 1))
"""


def hold(path: Path) -> subprocess.Popen[str]:
    """Start a process that holds the lock until it reads a line."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    return holder


def is_free(path: Path) -> bool:
    lock = FileLock(str(path), 0)
    try:
        return lock.acquire()
    finally:
        lock.release()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A lock file that does not exist yet."""
    return tmp_path / "write.lock"


def test_two_processes_exclude_each_other(path: Path) -> None:
    with hold(path) as holder:
        while_held = is_free(path)
        holder.communicate("\n")
    assert [while_held, is_free(path)] == [False, True]


def test_processes_take_turns(path: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-c", COUNT, str(path), str(counter)]
    counting = [subprocess.Popen(command, cwd=ROOT) for _ in range(4)]
    assert ([process.wait() for process in counting], counter.read_text()) == ([0] * 4, "400")


def test_it_is_free_once_its_holder_is_killed(path: Path) -> None:
    with hold(path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert is_free(path)


def test_a_context_gives_it_back(path: Path) -> None:
    with FileLock(str(path), 0) as got:
        inside = is_free(path)
    with pytest.raises(ZeroDivisionError), FileLock(str(path), 0):
        raise ZeroDivisionError
    assert [got, inside, is_free(path)] == [True, False, True]


def test_the_file_stays(path: Path) -> None:
    with FileLock(str(path), 0):
        pass
    assert path.read_bytes() == b""


def test_a_file_deleted_meanwhile_is_made_anew(path: Path) -> None:
    with FileLock(str(path), 0):
        path.unlink()
        with FileLock(str(path), 0) as got:
            assert [got, path.exists(), is_free(path)] == [True, True, False]
    assert is_free(path)


def test_waiting_for_a_file_that_is_deleted_ends_with_the_new_one(path: Path) -> None:
    with hold(path) as holder:
        path.unlink()
        mine = FileLock(str(path), 60)
        assert mine.acquire()
        holder.communicate("\n")
        assert not is_free(path)
        mine.release()
    assert is_free(path)


def test_a_fork_does_not_keep_what_its_parent_gave_back(path: Path) -> None:
    reader, writer = os.pipe()
    lock = FileLock(str(path), 0)
    assert lock.acquire()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    lock.release()
    free = is_free(path)
    os.close(writer)
    os.waitpid(pid, 0)
    assert free


def test_giving_back_what_is_not_held_does_nothing(path: Path) -> None:
    lock = FileLock(str(path), 0)
    lock.release()
    lock.acquire()
    lock.release()
    lock.release()
    assert is_free(path)


def test_where_no_file_can_be_made_it_is_not_got(tmp_path: Path) -> None:
    assert [
        FileLock(str(tmp_path / "no" / "such"), 5).acquire(),
        FileLock(str(tmp_path), 5).acquire(),
    ] == [
        False,
        False,
    ]


def test_it_is_not_inherited_by_programs_we_start(path: Path) -> None:
    with FileLock(str(path), 0):
        program = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    free = is_free(path)
    program.communicate()
    assert free
