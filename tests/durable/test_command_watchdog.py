"""The watchdog: no command outlives a driver that was killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from gitckpt.durable.command import watchdog as watchdog_module
from gitckpt.durable.command.watchdog import Watchdog
from tests.durable.commanding import Runner, comes, ends, marked, runs

ROOT = Path(__file__).parents[2]
DRIVER = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.durable.commanding import Runner
from gitckpt.durable.command.watchdog import Watchdog
directory, command, rounds = sys.argv[1:]
run = Runner(Path(directory), Watchdog())
run("true")
print(run.watchdog.pid, flush=True)
for _ in range(int(rounds)):
    run(command)
"""
COMMANDS = {
    "quick": "true",
    "running": "trap '' TERM HUP; sleep 60 & (sleep 60 | cat) & wait",
    "leaving": "(trap '' TERM; sleep 60 >/dev/null 2>&1) & (sleep 60 | cat) &",
}


def start_driver(directory: Path, command: str, mark: str, rounds: int = 1_000_000) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a driver that runs one command again and again; returns it, and its watchdog."""
    argv = [sys.executable, "-c", DRIVER, str(directory), command, str(rounds)]
    driver = subprocess.Popen(argv, stdout=subprocess.PIPE, env=os.environ | {"CKPT_MARK": mark})
    assert driver.stdout
    watchdog = int(driver.stdout.readline())
    driver.stdout.close()
    return driver, watchdog


def end_by_kill(watchdog: Watchdog) -> None:
    """Kills a watchdog, and waits until it has ended without taking that from who owns it."""
    os.kill(watchdog.pid, signal.SIGKILL)
    os.waitid(os.P_PID, watchdog.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")
@pytest.mark.parametrize("kind", COMMANDS)
def test_nothing_outlives_a_driver_killed_at_any_moment(kind: str, tmp_path: Path) -> None:
    for _ in range(8):
        mark = str(uuid.uuid4())
        driver, watchdog = start_driver(tmp_path, COMMANDS[kind], mark)
        time.sleep(random.uniform(0, 0.02 if kind == "running" else 0.3))
        driver.kill()
        driver.wait()
        assert ends(watchdog)
        assert comes(lambda mark=mark: marked(mark) == []), marked(mark)  # type: ignore[misc]


def test_driver_that_ends_without_a_word_leaves_no_watchdog(tmp_path: Path) -> None:
    driver, watchdog = start_driver(tmp_path, "sleep 60 &", "", rounds=1)
    assert driver.wait() == 0
    assert ends(watchdog)


def test_watchdog_starts_with_the_first_command_and_ends_when_closed(tmp_path: Path) -> None:
    with Watchdog() as watchdog:
        run = Runner(tmp_path, watchdog)
        assert watchdog.pid == 0
        run("true")
        pid = watchdog.pid
        run("true")
        assert watchdog.pid == pid
        assert runs(pid)
    assert not runs(pid)
    assert watchdog.pid == 0


def test_closing_without_a_command_or_twice_is_nothing() -> None:
    watchdog = Watchdog()
    watchdog.close()
    watchdog.forget()
    watchdog.close()


def test_watchdog_that_was_killed_is_replaced_with_the_next_command(tmp_path: Path) -> None:
    with Watchdog() as watchdog:
        run = Runner(tmp_path, watchdog)
        run("true")
        first = watchdog.pid
        end_by_kill(watchdog)
        assert run("echo on").tail == "on\n"
        assert watchdog.pid != first
        assert runs(watchdog.pid)
        with pytest.raises(ChildProcessError):
            os.waitpid(first, os.WNOHANG)


def test_command_goes_on_when_its_watchdog_is_killed(tmp_path: Path) -> None:
    with Watchdog() as watchdog:
        run = Runner(tmp_path, watchdog)
        outcome = run(
            "echo ready; sleep 0.1; echo on; sleep 60 & exit 3", output=lambda chunk: end_by_kill(watchdog) if b"r" in chunk else None
        )
        assert (outcome.code, outcome.tail) == (3, "ready\non\n")
        first = watchdog.pid
        assert run("true").code == 0
        assert watchdog.pid != first


def test_signals_of_a_supervisor_do_not_end_the_watchdog(tmp_path: Path) -> None:
    with Watchdog() as watchdog:
        Runner(tmp_path, watchdog)("sleep 0.05")
        pid = watchdog.pid
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            os.kill(watchdog.pid, number)
        Runner(tmp_path, watchdog)("sleep 0.05")
        assert watchdog.pid == pid
        assert runs(pid)
        assert os.getsid(pid) == pid


def test_watchdog_is_told_before_the_command_starts_and_before_its_number_is_free(tmp_path: Path) -> None:
    told: list[tuple[str, bool]] = []

    def note(word: str) -> None:
        told.append((word, (tmp_path / "started").exists()))

    class Noting(Watchdog):
        def watch(self, group: int) -> None:
            note("watch")
            super().watch(group)

        def release_leader(self, group: int) -> None:
            os.waitid(os.P_PID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises if it was waited for
            note("release leader")
            super().release_leader(group)

        def forget(self) -> None:
            note("forget")
            super().forget()

    with Noting() as watchdog:
        assert Runner(tmp_path, watchdog)("touch started").code == 0
    assert told == [("watch", False), ("release leader", True), ("forget", True)]


# What it kills at the end of the file


def group_of(script: str) -> subprocess.Popen[bytes]:
    """Starts a shell that leads a group, and waits until it says that it is ready."""
    child = subprocess.Popen(["/bin/sh", "-c", script], process_group=0, stdout=subprocess.PIPE)
    assert child.stdout
    assert child.stdout.readline() == b"ready\n"
    child.stdout.close()
    return child


def test_it_kills_the_group_named_last() -> None:
    spared, killed = (group_of("echo ready; sleep 60 & wait") for _ in range(2))
    watchdog = Watchdog()
    watchdog.watch(spared.pid)
    watchdog.watch(killed.pid)
    watchdog.close()
    assert killed.wait() == -signal.SIGKILL
    assert spared.poll() is None
    os.killpg(spared.pid, signal.SIGKILL)
    spared.wait()


def test_it_kills_nobody_who_was_forgotten() -> None:
    spared = group_of("echo ready; sleep 60 & wait")
    watchdog = Watchdog()
    watchdog.watch(spared.pid)
    watchdog.forget()
    watchdog.close()
    assert spared.poll() is None
    os.killpg(spared.pid, signal.SIGKILL)
    spared.wait()


def test_it_kills_what_outlived_the_leader(tmp_path: Path) -> None:
    left = tmp_path / "left"
    leader = group_of(f"sleep 60 >/dev/null & echo $! >{left}; echo ready")
    watchdog = Watchdog()
    watchdog.watch(leader.pid)
    watchdog.release_leader(leader.pid)
    leader.wait()
    watchdog.close()
    assert ends(int(left.read_text()))


def test_it_spares_whoever_got_the_number_of_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog_module, "TRIES", 2)
    spared = group_of("echo ready; sleep 60 & wait")
    watchdog = Watchdog()
    watchdog.watch(spared.pid)
    watchdog.release_leader(spared.pid)
    watchdog.close()
    assert spared.poll() is None
    os.killpg(spared.pid, signal.SIGKILL)
    spared.wait()
