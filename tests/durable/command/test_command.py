"""The command of a phase: its environment, its output, and how it ends by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from gitckpt import CkptError, WorktreeError
from gitckpt.durable.command import execution as command_module
from gitckpt.durable.command.execution import (
    EXIT,
    TAIL_BYTES,
    CommandResult,
    OutputTail,
    error_line,
)
from gitckpt.durable.command.watchdog import Watchdog
from tests.durable.command.commanding import Runner, comes, ends, pretend, tag

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["orphans are adopted", "orphans are not adopted"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, request.param)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runner]:
    directory = tmp_path / "work"
    directory.mkdir()
    with Watchdog(tag(tmp_path)) as watchdog:
        yield Runner(directory, watchdog)


def seen(outcome: CommandResult) -> tuple[int, str, str]:
    return outcome.code, outcome.ended_by, outcome.tail


# Exit codes


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("true", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -9 $$", -signal.SIGKILL),
        ("kill -TERM $$; sleep 60", -signal.SIGTERM),
        ("", 0),
        ("exec true", 0),
        ("(exit 75)", 75),
        ("exit 125", 125),
    ],
)
@pytest.mark.usefixtures("both_ways")
def test_exit_code(run: Runner, command: str, code: int) -> None:
    assert seen(run(command)) == (code, EXIT, "")


@pytest.mark.parametrize(
    ("tail", "line"),
    [
        ("", ""),
        (" \n\n", ""),
        ("one\n  two  \n\n", ": two"),
        ("x" * 300, ": " + "x" * 200),
        ("error: one\nFatal: two\nhelp\nmore help\n", ": Fatal: two"),
        ("an error: one\nlast\n", ": last"),
        ("error: one\n" + "later\n" * 7, ": error: one"),
        ("error: one\n" + "later\n" * 8, ": later"),
    ],
)
def test_what_a_command_said_last_is_its_error_where_advice_follows_one(
    tail: str, line: str
) -> None:
    assert error_line(tail) == line


def test_program_that_does_not_exist(run: Runner) -> None:
    outcome = run("no-such-program-anywhere --now")
    assert (outcome.code, outcome.ended_by) == (127, EXIT)
    assert "no-such-program-anywhere" in outcome.tail


def test_syntax_error_is_the_commands_own(run: Runner) -> None:
    outcome = run("if true")
    assert outcome.code == 2
    assert "yntax error" in outcome.tail


def test_seconds_are_those_of_the_shell(run: Runner) -> None:
    assert run("sleep 0.2").seconds >= 0.2


def test_signals_that_we_ignore_or_block_reach_the_command(run: Runner) -> None:
    handlers = {
        number: signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, list(handlers))
    try:
        codes = [
            run(f"kill -{int(number)} $$; echo survived").code
            for number in (*handlers, signal.SIGPIPE)
        ]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, list(handlers))
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert codes == [-signal.SIGINT, -signal.SIGTERM, -signal.SIGQUIT, -signal.SIGPIPE]


@pytest.mark.usefixtures("both_ways")
def test_exit_code_reaches_a_driver_that_ignores_the_end_of_its_children(run: Runner) -> None:
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert [run(f"exit {code}").code for code in (0, 4)] == [0, 4]
        run.watchdog.end_supervisor()
    finally:
        signal.signal(signal.SIGCHLD, handler)
    assert run("exit 5").code == 5


# What it gets


def test_command_is_passed_on_as_it_is(run: Runner) -> None:
    odd = 'it\'s "$HOME" \\n `x` * ü\t\n#'
    command = f'cat <<\'END\'\n{odd}\nEND\necho "$0" "$#"'
    assert seen(run(command)) == (0, EXIT, f"{odd}\n/bin/sh 0\n")


def test_environment_is_that_of_a_plain_shell(run: Runner) -> None:
    given = {
        "A": "1\n2",
        "ODD": "=x 'y\" ü",
        "IFS": "x",
        "CDPATH": "/",
        "_": "/somewhere",
        "PATH": os.environ["PATH"],
        "go": "1",
        "1": "one",
    }
    expected = given | run.watchdog.tag.env_variables
    plain = subprocess.run(
        ["/bin/sh", "-c", "env -0"],
        env=expected,
        cwd=run.directory,
        capture_output=True,
        check=True,
    ).stdout
    run("env -0", env=given)
    assert sorted(b"".join(run.shown).split(b"\0")) == sorted(plain.split(b"\0"))


@pytest.mark.parametrize(
    "name", ["-", "--help", "a b", 'it\'s "$HOME"', "line\nbreak\n", "ü *", "-P"]
)
def test_directory_with_an_odd_name(run: Runner, name: str) -> None:
    place = run.directory / name
    place.mkdir()
    run("pwd; touch here", directory=str(place))
    assert b"".join(run.shown) == os.fsencode(f"{place}\n")
    assert [each.name for each in place.iterdir()] == ["here"]


def test_relative_directory_is_ours(
    run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "decoy" / "work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert seen(run("pwd", directory="work", env={"CDPATH": str(tmp_path / "decoy")})) == (
        0,
        EXIT,
        f"{run.directory}\n",
    )


def test_directory_behind_a_link(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run.directory)
    (tmp_path / "beside").mkdir()
    assert run("pwd", directory=f"{tmp_path}/link/../beside").tail == f"{tmp_path}/beside\n"
    assert run("pwd", directory=f"{tmp_path}/link").tail == f"{run.directory}\n"


def test_directory_that_is_gone(run: Runner) -> None:
    with pytest.raises(WorktreeError) as error:
        run("touch /never", directory=f"{run.directory}/gone")
    assert error.value.message == f"cannot run a command in {run.directory}/gone: no such directory"


def test_directory_that_goes_away_before_the_command_enters_it(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.directory / "gone").mkdir()
    launch_command = run.watchdog.launch_command

    def remove_and_launch(command: str, directory: str, env: Mapping[str, str]) -> None:
        (run.directory / "gone").rmdir()
        launch_command(command, directory, env)

    monkeypatch.setattr(run.watchdog, "launch_command", remove_and_launch)
    with pytest.raises(CkptError) as error:
        run("touch ../never", directory=f"{run.directory}/gone")
    assert (
        error.value.message
        == f"cannot run a command in {run.directory}/gone: No such file or directory"
    )
    assert list(run.directory.iterdir()) == []


def test_standard_input_is_empty(run: Runner) -> None:
    assert seen(run("cat; read -r x; echo $?; test -c /dev/stdin; echo $?")) == (0, EXIT, "1\n0\n")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
def test_command_inherits_no_pipe_of_ours(run: Runner) -> None:
    theirs = subprocess.run(
        ["ls", "/proc/self/fd"], close_fds=False, capture_output=True, text=True, check=True
    ).stdout
    assert run("ls /proc/self/fd").tail == theirs


@pytest.mark.parametrize(
    ("command", "env", "problem"),
    [
        ("echo \0", {}, "embedded null byte"),
        ("true", {"A=B": "c"}, "illegal environment variable name"),
        ("echo " + "x" * 200_000, {}, "Argument list too long"),
    ],
    ids=["null", "name", "long"],
)
def test_what_cannot_be_started(
    run: Runner, command: str, env: dict[str, str], problem: str
) -> None:
    with pytest.raises(CkptError) as error:
        run(command, env=env)
    assert error.value.message == f"cannot start the command: {problem}"
    assert error.value.hint


# What it says


@pytest.mark.usefixtures("both_ways")
def test_output_and_errors_keep_their_order(run: Runner) -> None:
    outcome = run("for i in 1 2 3; do echo out $i; echo err $i >&2; done")
    assert outcome.tail == "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    assert b"".join(run.shown).decode() == outcome.tail


def test_output_comes_before_the_end(run: Runner) -> None:
    fifo = run.directory / "go"
    os.mkfifo(fifo)

    def answer(chunk: bytes) -> None:
        run.shown.append(chunk)
        if chunk == b"ready\n":
            fifo.write_text("on\n")

    outcome = run("echo ready; read -r word <go; echo went $word", output=answer)
    assert (outcome.code, run.shown) == (0, [b"ready\n", b"went on\n"])


def test_megabytes_pass_through_and_are_not_kept(run: Runner) -> None:
    passed = 0

    def count(chunk: bytes) -> None:
        nonlocal passed
        passed += len(chunk)

    tracemalloc.start()
    try:
        outcome = run("head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end", output=count)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert passed == 20_000_005
    assert outcome.tail == "end\n"
    assert peak < 1_000_000


@pytest.mark.parametrize("size", [1, 7, 1000, 65536, 10**6])
@pytest.mark.parametrize(
    ("whole", "tail"),
    [
        ("", ""),
        ("no newline", "no newline"),
        ("x" * TAIL_BYTES, "x" * TAIL_BYTES),
        ("x" * TAIL_BYTES + "y", "x" * (TAIL_BYTES - 1) + "y"),
        ("cut\n" + "x" * (TAIL_BYTES - 1) + "\n", "x" * (TAIL_BYTES - 1) + "\n"),
        ("cut through\n" + "x" * (TAIL_BYTES - 5) + "\n", "x" * (TAIL_BYTES - 5) + "\n"),
        ("x" * 100_000 + "\n", "x" * (TAIL_BYTES - 1) + "\n"),
        (
            "".join(f"line {i}\n" for i in range(20_000)),
            "".join(f"line {i}\n" for i in range(20_000 - 1489, 20_000)),
        ),
        ("ü" * TAIL_BYTES, "ü" * (TAIL_BYTES // 2)),
        ("x" + "ü" * TAIL_BYTES + "y", "ü" * (TAIL_BYTES // 2 - 1) + "y"),
    ],
    ids=range(10),
)
def test_tail(whole: str, tail: str, size: int) -> None:
    kept, data = OutputTail(), whole.encode()
    for start in range(0, len(data), size):
        kept.add_chunk(data[start : start + size])
    assert kept.text() == tail
    assert kept.text() == tail


def test_what_is_not_text_is_replaced(run: Runner) -> None:
    assert run("printf 'a\\377\\000b\\n'").tail == "a�\0b\n"


@pytest.mark.long
def test_ticks_while_waiting(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "_TICK", 0.1)
    ticks: list[float] = []
    outcome = run("sleep 0.4", tick=ticks.append)
    assert outcome.code == 0
    assert 1 <= len(ticks) <= outcome.seconds / 0.1
    assert all(later - earlier >= 0.1 for earlier, later in pairwise([0, *ticks]))


# What it leaves behind


@pytest.mark.usefixtures("both_ways")
def test_background_process_that_holds_the_output_keeps_nobody_waiting(run: Runner) -> None:
    outcome = run("sleep 60 & echo $! >pid; echo done; exit 5")
    assert seen(outcome) == (5, EXIT, "done\n")
    assert ends(run.pid("pid"))


@pytest.mark.usefixtures("both_ways")
def test_background_process_that_is_silent_ends_too(run: Runner) -> None:
    run("sleep 60 >/dev/null 2>&1 & echo $! >pid")
    assert ends(run.pid("pid"))


@pytest.mark.long
def test_background_process_that_ignores_sigterm_ends_too(run: Runner) -> None:
    run(
        "(trap '' TERM; touch ready; sleep 60 & echo $! >pid; wait) & "
        "while ! test -s pid; do :; done"
    )
    assert ends(run.pid("pid"))


def test_background_process_may_clean_up(run: Runner) -> None:
    run(
        "(trap 'echo cleaned >left; exit' TERM; touch ready; while :; do :; done) & "
        "while ! test -e ready; do :; done"
    )
    assert (run.directory / "left").read_text() == "cleaned\n"


def test_what_ends_by_itself_a_moment_later_may_finish(run: Runner) -> None:
    outcome = run("(sleep 0.03; echo finished) & echo first")
    assert outcome.tail == "first\nfinished\n"


def test_what_left_the_group_and_writes_on_and_on_keeps_nobody_waiting(run: Runner) -> None:
    shown = 0

    def show_slowly(chunk: bytes) -> None:
        nonlocal shown
        shown += len(chunk)
        (run.directory / "shown").touch()
        time.sleep(0.001)
        assert shown < 30_000_000, "it would go on for ever"

    run(
        "setsid sh -c 'echo $$ >pid; exec yes' & while ! test -e shown; do :; done",
        output=show_slowly,
    )
    assert ends(run.pid("pid")), "nobody reads the pipe any more"


def test_other_children_of_ours_are_left_alone(run: Runner) -> None:
    other = subprocess.Popen(["/bin/sh", "-c", "exit 9"])
    assert comes(
        lambda: os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    )
    run("sleep 60 &")
    assert other.wait() == 9


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
@pytest.mark.usefixtures("both_ways")
def test_no_file_descriptors_are_lost(run: Runner) -> None:
    run("true")
    before = sorted(os.listdir("/proc/self/fd"))
    for number in range(40):
        assert run(f"exit {number % 7}").code == number % 7
    with pytest.raises(CkptError):
        run("\0")
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_driver_without_standard_streams(tmp_path: Path) -> None:
    script = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
for fd in (0, 1, 2):
    os.close(fd)
from pathlib import Path
from tests.durable.command.commanding import Runner, tag
from gitckpt.durable.command.watchdog import Watchdog
with Watchdog(tag(Path({str(tmp_path)!r}))) as watchdog:
    outcome = Runner(Path({str(tmp_path)!r}), watchdog)("echo out; echo err >&2; cat; exit 3")
Path({str(tmp_path / "said")!r}).write_text(repr((outcome.code, outcome.tail)))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert (tmp_path / "said").read_text() == repr((3, "out\nerr\n"))
