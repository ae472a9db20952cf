"""The watchdog ends every process of a command whose driver was killed."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt import BusyError, CkptError
from gitckpt.durable.command import process_tree, supervisor
from gitckpt.durable.command import watchdog as env_tag
from gitckpt.durable.command import watchdog as watchdog_module
from gitckpt.durable.command.watchdog import DriverEnvTag, Watchdog, end_leftover_processes
from tests.durable.command.commanding import SYSTEMS, Runner, comes, ends, marked, pretend, runs

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
DRIVER = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.durable.command.commanding import Runner
from gitckpt.durable.command.watchdog import DriverEnvTag; \
from gitckpt.durable.command.watchdog import end_leftover_processes
from gitckpt.durable.command.watchdog import Watchdog
directory, command, rounds = sys.argv[1:]
run = Runner(Path(directory), Watchdog(DriverEnvTag("a-run", 1, directory)))
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
GETAWAYS = {
    "a group of its own": "sh -mc 'sh -c \"echo $$ >pid; exec sleep 60\" & wait' 2>&- & wait",
    "a session of its own": "setsid sh -c 'echo $$ >pid; exec sleep 60' & wait",
    "a daemon": (
        "setsid sh -c '(echo $$ >/dev/null; sh -c \"echo \\$\\$ >pid; exec sleep 60\" &)' "
        "<&- >&- 2>&- & wait; sleep 60"
    ),
    "no environment": (
        "setsid env -i sh -c 'sh -c \"echo \\$\\$ >pid; exec sleep 60\" &' & wait; sleep 60"
    ),
    "deaf": (
        "setsid sh -c \"trap '' TERM HUP INT; echo \\$\\$ >pid; while :; do sleep 60; done\" & wait"
    ),
}
"""Ways in which a tool detaches itself.

Each writes its process id into a file, and the command waits.
"""

WAYS = [
    (kind, system)
    for kind in GETAWAYS
    for system in SYSTEMS
    if kind != "no environment" or system == "orphans are adopted"
]
"""Elsewhere, a process without an environment cannot be traced to its run."""

TAGGED = [kind for kind in GETAWAYS if kind != "no environment"]
"""Without its watchdog, a process with an empty environment has no known run.

See docs/limits.md.
"""

needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")
is_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="orphans are adopted by prctl(2), which is Linux's"
)


def start_driver(
    directory: Path, command: str, mark: str, rounds: int = 1_000_000
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a driver that repeats one command; return the driver and its watchdog."""
    argv = [sys.executable, "-c", DRIVER, str(directory), command, str(rounds)]
    driver = subprocess.Popen(argv, stdout=subprocess.PIPE, env=os.environ | {"CKPT_MARK": mark})
    assert driver.stdout
    watchdog = int(driver.stdout.readline())
    driver.stdout.close()
    return driver, watchdog


@pytest.fixture
def tag(tmp_path: Path) -> DriverEnvTag:
    return DriverEnvTag("20270115-080001-add-login", 2, str(tmp_path))


@pytest.fixture
def run(tmp_path: Path, tag: DriverEnvTag) -> Iterator[Runner]:
    with Watchdog(tag) as watchdog:
        yield Runner(tmp_path, watchdog)


# The driver is killed


@needs_proc
@pytest.mark.long
@pytest.mark.parametrize("kind", COMMANDS)
def test_nothing_outlives_a_driver_killed_at_any_moment(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for _ in range(100 if request.config.getoption("--long") else 4):
        mark = str(uuid.uuid4())
        driver, watchdog = start_driver(tmp_path, COMMANDS[kind], mark)
        time.sleep(random.uniform(0, 0.02 if kind == "running" else 0.3))
        driver.kill()
        driver.wait()
        assert ends(watchdog)
        assert comes(lambda mark=mark: marked(mark) == []), marked(mark)  # type: ignore[misc]


@pytest.mark.sampled(2)
@is_linux
@pytest.mark.parametrize("kind", GETAWAYS)
def test_nobody_gets_away_from_a_driver_that_is_killed(kind: str, tmp_path: Path) -> None:
    driver, watchdog = start_driver(tmp_path, GETAWAYS[kind], "")
    assert comes(
        lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n")
    )
    driver.kill()
    driver.wait()
    assert ends(watchdog, int((tmp_path / "pid").read_text()))


@is_linux
@pytest.mark.long
@pytest.mark.parametrize("kind", TAGGED)
def test_a_resume_finds_nobody_whoever_was_killed_when(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(kind)
    for _ in range(100 if request.config.getoption("--long") else 5):
        word = str(uuid.uuid4())
        driver, watchdog = start_driver(tmp_path, f"({GETAWAYS[kind]}) & sleep 0.1", word)
        victims = [driver.pid, *chance.sample([watchdog], chance.randint(0, 1))]
        time.sleep(chance.uniform(0, 0.3))
        for pid in chance.sample(victims, len(victims)):
            os.kill(pid, signal.SIGKILL)
        driver.wait()
        end_leftover_processes(DriverEnvTag("a-run", 2, str(tmp_path)))
        assert marked(word) == []


def test_who_is_left_may_clean_up_when_the_driver_is_killed(tmp_path: Path) -> None:
    command = "trap 'echo cleaned >left; exit' TERM; touch ready; while :; do sleep 0.01; done"
    driver, watchdog = start_driver(tmp_path, command, "")
    assert comes((tmp_path / "ready").exists)
    driver.kill()
    driver.wait()
    assert ends(watchdog)
    assert (tmp_path / "left").read_text() == "cleaned\n"


def test_driver_that_ends_without_a_word_leaves_no_watchdog(tmp_path: Path) -> None:
    driver, watchdog = start_driver(tmp_path, "sleep 60 &", "", rounds=1)
    assert driver.wait() == 0
    assert ends(watchdog)


def test_command_that_was_ordered_last_is_not_begun_after_the_death_of_the_driver(
    run: Runner,
) -> None:
    run("true")
    pid = run.watchdog.pid
    os.kill(pid, signal.SIGSTOP)
    os.write(
        run.watchdog._orders, watchdog_module._encode_order("touch late", str(run.directory), {})
    )
    os.close(run.watchdog._orders)
    run.watchdog._orders = -1
    os.kill(pid, signal.SIGCONT)
    run.watchdog.end_supervisor()
    assert not runs(pid)
    assert not (run.directory / "late").exists()


# The driver ends a command


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "system"), WAYS)
def test_nobody_gets_away_from_a_time_limit(
    kind: str, system: str, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, system)
    outcome = run(
        f"{GETAWAYS[kind]} & while ! test -s pid; do sleep 0.01; done; echo ready; wait",
        silence=0.01,
        grace=0.05,
    )
    assert outcome.ended_by == "idle timeout"
    assert not runs(run.pid("pid"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "system"), WAYS)
def test_nobody_gets_away_when_the_shell_ends(
    kind: str, system: str, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, system)
    assert (
        run(
            f"({GETAWAYS[kind]}) >/dev/null 2>&1 & while ! test -s pid; do sleep 0.01; done; exit 3"
        ).code
        == 3
    )
    assert not runs(run.pid("pid"))


def test_who_descends_from_nobody_of_the_phase_stays(run: Runner) -> None:
    """A service manager, for example, starts such a process."""
    argv = [
        "/bin/sh",
        "-c",
        "while ! test -e go; do sleep 0.01; done; sleep 60 & echo $! >stays; wait",
    ]
    manager = subprocess.Popen(argv, cwd=run.directory)
    try:
        assert run("touch go; while ! test -s stays; do sleep 0.01; done").code == 0
        assert runs(run.pid("stays"))
    finally:
        os.kill(run.pid("stays"), signal.SIGKILL)
        manager.wait()


def test_who_cannot_be_ended_is_named(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may wait for a disk that is gone, or belong to another user."""
    start = (
        "import sys; sys.path.insert(0, sys.argv[1]); from gitckpt.durable.command import "
        "process_tree, supervisor"
    )
    kept = "process_tree.send_signal = lambda *_: False; supervisor.os.killpg = lambda *_: None"
    monkeypatch.setattr(
        supervisor, "_BOOTSTRAP", f"{start}; {kept}; supervisor.run_supervisor(sys.argv[2:])"
    )
    monkeypatch.setattr("gitckpt.durable.command.execution._DYING", 0.05)
    run("true")
    watchdog = run.watchdog.pid
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watchdog_module, "_DYING", -0.5)
        with pytest.raises(BusyError) as error:
            run(
                (
                    "setsid sleep 60 & echo $! >pid; while ! ps -o args= -p $! | grep -q ^sleep; "
                    "do :; done"
                ),
                grace=0.05,
            )
    pid = run.pid("pid")
    assert error.value.message == (
        "cannot end processes of an earlier attempt, which may still change files: "
        f"{pid} (sleep 60)"
    )
    assert error.value.hint == f"end these processes: sudo kill -9 {pid}; then: git ckpt resume"
    assert runs(watchdog), "it goes on trying, and shows whoever resumes the run what is left"
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(watchdog, 0)[1] == 0
    assert run("echo next").tail == "next\n"


# The watchdog


def test_watchdog_starts_with_the_first_command_and_ends_when_closed(
    tmp_path: Path, tag: DriverEnvTag
) -> None:
    with Watchdog(tag) as watchdog:
        run = Runner(tmp_path, watchdog)
        assert watchdog.pid == 0
        run("true")
        pid = watchdog.pid
        run("true")
        assert watchdog.pid == pid
        assert runs(pid)
    assert not runs(pid)
    assert watchdog.pid == 0


def test_closing_without_a_command_or_twice_is_nothing(tag: DriverEnvTag) -> None:
    watchdog = Watchdog(tag)
    watchdog.end_supervisor()
    watchdog.end_supervisor()


def test_watchdog_that_was_killed_is_replaced_with_the_next_command(run: Runner) -> None:
    run("true")
    first = run.watchdog.pid
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert run("echo on").tail == "on\n"
    assert run.watchdog.pid != first
    with pytest.raises(ChildProcessError):
        os.waitpid(first, os.WNOHANG)


@is_linux
@pytest.mark.parametrize("kind", TAGGED)
def test_nobody_gets_away_when_the_watchdog_is_killed(
    kind: str, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env_tag, "_GRACE", 0.2)

    def kill(shown: bytes) -> None:
        if b"ready" in shown:
            os.kill(run.watchdog.pid, signal.SIGKILL)

    with pytest.raises(
        CkptError, match="the parent process of the command was killed, so the command was ended"
    ):
        run(
            f"{GETAWAYS[kind]} & while ! test -s pid; do sleep 0.01; done; echo ready; sleep 60",
            output=kill,
        )
    assert not runs(run.pid("pid"))


def test_signals_of_a_supervisor_do_not_end_the_watchdog(run: Runner) -> None:
    run("true")
    before = run.watchdog.pid
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(before, number)
    assert run("sleep 0.05").code == 0
    assert run.watchdog.pid == before
    assert os.getpgid(before) == before


# What an earlier attempt left


def noted(directory: Path, program: str = "") -> int:
    """Return the process id in the file `pid`, once the file exists.

    With a program, wait until the process has become that program.
    """
    path = directory / "pid"
    assert comes(lambda: path.exists() and path.read_text().endswith("\n"))
    pid = int(path.read_text())
    assert comes(
        lambda: f"({program}" in process_tree.describe_process(process_tree.list_processes()[pid])
    )
    return pid


def left_by(tag: DriverEnvTag, command: str, directory: Path) -> int:
    """Start a process like one left by a phase, and return its id once it is ready."""
    subprocess.run(
        ["/bin/sh", "-c", f"({command}) >/dev/null 2>&1 &"],
        cwd=directory,
        env={**os.environ, **tag.env_variables},
        check=True,
    )
    return noted(directory)


SLEEPER = "sh -c 'echo $$ >pid; exec sleep 60'"


@pytest.mark.parametrize("has_proc", [True, False], ids=["proc", "ps"])
def test_what_an_earlier_attempt_left_is_ended(
    has_proc: bool, tmp_path: Path, tag: DriverEnvTag, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_proc:
        monkeypatch.setattr(process_tree, "_SELF", "/nowhere")
    left_by(DriverEnvTag(tag.run, 1, tag.directory), SLEEPER, tmp_path)
    pid = noted(tmp_path, "sleep 60")
    (ended,) = end_leftover_processes(tag)
    assert ended.startswith(f"{pid} (sleep 60")
    assert not runs(pid)
    assert end_leftover_processes(tag) == []


def test_what_is_deaf_is_killed_after_a_grace(
    tmp_path: Path, tag: DriverEnvTag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env_tag, "_GRACE", 0.05)
    pid = left_by(
        DriverEnvTag(tag.run, 1, tag.directory),
        "trap '' TERM; sh -c 'echo $$ >pid; sleep 60; :'",
        tmp_path,
    )
    assert end_leftover_processes(tag) != []
    assert not runs(pid)


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_children_that_cleared_their_environment_end_with_their_parent(
    trap: str, tmp_path: Path, tag: DriverEnvTag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env_tag, "_GRACE", 0.2)
    child = f"env -i sh -c '{trap}echo $$ >pid; sleep 60; :' & wait".replace("'' TERM", '"" TERM')
    pid = left_by(DriverEnvTag(tag.run, 1, tag.directory), child, tmp_path)
    end_leftover_processes(tag)
    assert not runs(pid)


def test_nobody_else_is_touched(tmp_path: Path, tag: DriverEnvTag) -> None:
    (tmp_path / "copy").mkdir()
    others = {
        "another run": DriverEnvTag("20270115-080001-add-logout", 1, tag.directory),
        "another repository": DriverEnvTag(tag.run, 1, str(tmp_path / "copy")),
        "this driver": tag,
        "a later driver": DriverEnvTag(tag.run, 3, tag.directory),
    }
    spared = {
        name: subprocess.Popen(["sleep", "60"], env={**os.environ, **each.env_variables})
        for name, each in others.items()
    }
    spared["no lease"] = subprocess.Popen(
        ["sleep", "60"], env={**os.environ, "CKPT_RUN": tag.run, "CKPT_LEASE": "no"}
    )
    try:
        assert end_leftover_processes(tag) == []
        assert {name for name, child in spared.items() if child.poll() is not None} == set()
    finally:
        for child in spared.values():
            child.kill()
            child.wait()


def test_whoever_resumes_from_within_an_earlier_attempt_is_not_ended(
    tmp_path: Path, tag: DriverEnvTag
) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from gitckpt.durable.command.watchdog import DriverEnvTag; \
from gitckpt.durable.command.watchdog import end_leftover_processes
print(end_leftover_processes(DriverEnvTag({tag.run!r}, 2, {tag.directory!r})))
"""
    line = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)}; echo on"
    env = {**os.environ, **DriverEnvTag(tag.run, 1, tag.directory).env_variables}
    assert (
        subprocess.run(
            ["/bin/sh", "-c", line], env=env, capture_output=True, text=True, check=True
        ).stdout
        == "[]\non\n"
    )


def test_who_cannot_be_ended_refuses_the_resume(
    tmp_path: Path, tag: DriverEnvTag, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_GRACE", "_DYING"):
        monkeypatch.setattr(env_tag, name, 0.05)
    monkeypatch.setattr(process_tree, "send_signal", lambda *_: False)
    left_by(DriverEnvTag(tag.run, 1, tag.directory), SLEEPER, tmp_path)
    pid = noted(tmp_path, "sleep 60")
    try:
        with pytest.raises(BusyError, match=rf"{pid} \(sleep 60\)$"):
            end_leftover_processes(tag)
    finally:
        os.kill(pid, signal.SIGKILL)
        assert ends(pid)


def test_watchdog_that_waits_for_the_end_of_somebody_shows_who_that_is(
    tmp_path: Path, tag: DriverEnvTag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A phase may start a root process with sudo, which the watchdog cannot end.

    Other users cannot read its environment either.
    """
    for name in ("_WATCHDOG_WAIT", "_GRACE", "_DYING"):
        monkeypatch.setattr(env_tag, name, 0.05)
    monkeypatch.setattr(process_tree, "send_signal", lambda *_: False)
    with Watchdog(DriverEnvTag(tag.run, 1, tag.directory)) as watchdog:
        watchdog.launch_command(
            "exec env -i sh -c 'echo $$ >pid; exec sleep 60'", str(tmp_path), os.environ
        )
        pid = noted(tmp_path, "sleep 60")
        with pytest.raises(BusyError, match=rf"{pid} \(sleep 60\)$"):
            end_leftover_processes(tag)


@pytest.mark.sampled(2)
@needs_proc
@pytest.mark.parametrize("is_stopped", [False, True])
def test_watchdog_of_a_dead_driver_is_waited_for_and_not_touched(
    is_stopped: bool, tmp_path: Path
) -> None:
    driver, watchdog = start_driver(tmp_path, "sleep 60", "")
    if is_stopped:
        os.kill(watchdog, signal.SIGSTOP)
    driver.kill()
    driver.wait()
    end_leftover_processes(DriverEnvTag("a-run", 2, str(tmp_path)))
    assert not runs(watchdog)


def test_watchdog_of_a_driver_that_lives_goes_on(run: Runner, tag: DriverEnvTag) -> None:
    """A paused driver that lost its run does not delay the next resume."""
    run("true")
    assert end_leftover_processes(DriverEnvTag(tag.run, 3, tag.directory)) == []
    assert run("echo on").tail == "on\n"


# Processes


@pytest.mark.parametrize("has_proc", [True, False], ids=["proc", "ps"])
def test_table_of_processes(has_proc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_proc:
        monkeypatch.setattr(process_tree, "_SELF", "/nowhere")
    child = subprocess.Popen(
        ["sleep", "60"], env={**os.environ, "CKPT_RUN": "a-run"}, start_new_session=True
    )
    assert comes(lambda: process_tree.list_processes()[child.pid].parent == os.getpid())
    assert comes(
        lambda: (
            process_tree.read_env_variables(
                process_tree.list_processes()[child.pid], ["CKPT_RUN", "CKPT_LEASE"]
            )
            == {"CKPT_RUN": "a-run"}
        )
    )
    found = process_tree.list_processes()[child.pid]
    assert found.group == child.pid
    assert child.pid in {
        process.pid
        for process in process_tree.find_descendants({os.getpid()}, process_tree.list_processes())
    }
    assert {child.pid, os.getpid(), os.getppid()} <= process_tree.find_ancestors(
        child.pid, process_tree.list_processes()
    )
    assert process_tree.send_signal(found, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid not in process_tree.list_processes(), "who has ended, and was not waited for"
    child.wait()
    assert not process_tree.send_signal(found, signal.SIGKILL)


@needs_proc
@pytest.mark.parametrize("has_descriptors", [True, False])
def test_no_signal_for_whoever_got_the_number_since(
    has_descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_descriptors:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    child = subprocess.Popen(["sleep", "60"])
    found = process_tree.list_processes()[child.pid]
    found.start = "1"
    assert not process_tree.send_signal(found, signal.SIGKILL)
    assert child.poll() is None
    child.kill()
    child.wait()
