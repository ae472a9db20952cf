"""Timeouts and interruptions end the command of a phase."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from gitckpt.durable.command import execution as command_module
from gitckpt.durable.command.execution import DEADLINE, EXIT, IDLE_TIMEOUT, TIMEOUT
from gitckpt.durable.command.watchdog import Watchdog
from tests.durable.command.commanding import Runner, ends, pretend, runs, tag

pytestmark = pytest.mark.long

STUBBORN = "trap '' TERM; sleep 60 & echo $! >pid; echo ready; wait"


class Unforeseen(BaseException):
    """An exception that no handler catches by accident."""


@pytest.fixture(params=["orphans are adopted", "orphans are not adopted"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, request.param)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runner]:
    with Watchdog(tag(tmp_path)) as watchdog:
        yield Runner(tmp_path, watchdog)


# Patience


@pytest.mark.usefixtures("both_ways")
def test_timeout(run: Runner) -> None:
    outcome = run("while :; do echo busy; sleep 0.01; done", timeout=0.2)
    assert (outcome.code, outcome.ended_by) == (-signal.SIGTERM, TIMEOUT)
    assert outcome.seconds >= 0.2


def test_deadline_of_the_run(run: Runner) -> None:
    outcome = run("sleep 60", timeout=50, idle_timeout=50, left=0.1)
    assert (outcome.code, outcome.ended_by) == (-signal.SIGTERM, DEADLINE)


def test_deadline_that_has_passed(run: Runner) -> None:
    outcome = run("sleep 60", left=-5)
    assert (outcome.code, outcome.ended_by) == (-signal.SIGTERM, DEADLINE)


@pytest.mark.usefixtures("both_ways")
def test_silence(run: Runner) -> None:
    outcome = run("echo ready; sleep 60", timeout=50, silence=0.1)
    assert (outcome.code, outcome.ended_by, outcome.tail) == (
        -signal.SIGTERM,
        IDLE_TIMEOUT,
        "ready\n",
    )


@pytest.mark.long
def test_output_keeps_it_alive(run: Runner) -> None:
    outcome = run("for i in 1 2 3 4 5 6; do sleep 0.2; echo $i; done", idle_timeout=1)
    assert (outcome.code, outcome.ended_by) == (0, EXIT)


@pytest.mark.usefixtures("both_ways")
def test_closed_output_is_silence(run: Runner) -> None:
    outcome = run("exec >/dev/null 2>&1; sleep 60", idle_timeout=0.1)
    assert (outcome.code, outcome.ended_by) == (-signal.SIGTERM, IDLE_TIMEOUT)


def test_patience_that_is_not_needed(run: Runner) -> None:
    outcome = run("exit 3", timeout=60, idle_timeout=60, left=60)
    assert (outcome.code, outcome.ended_by) == (3, EXIT)


def test_whoever_handles_sigterm_has_its_say(run: Runner) -> None:
    outcome = run(
        "trap 'echo saving; sleep 0.1; echo saved; exit 7' TERM; echo ready; sleep 60 & wait",
        silence=0.2,
    )
    assert (outcome.code, outcome.ended_by, outcome.tail) == (
        7,
        IDLE_TIMEOUT,
        "ready\nsaving\nsaved\n",
    )


def test_children_of_a_shell_that_dies_at_once_have_the_whole_grace(run: Runner) -> None:
    agent = "trap 'sleep 0.8; echo saved' TERM; echo ready; sleep 60 & wait"
    outcome = run(f'sh -c "{agent}"; echo never', silence=0.2)
    assert (outcome.code, outcome.tail) == (-signal.SIGTERM, "ready\nsaved\n")


@pytest.mark.usefixtures("both_ways")
def test_whoever_ignores_sigterm_is_killed(run: Runner) -> None:
    outcome = run(STUBBORN, silence=0.1, grace=0.1)
    assert (outcome.code, outcome.ended_by) == (-signal.SIGKILL, IDLE_TIMEOUT)
    assert ends(run.pid("pid"))


@pytest.mark.usefixtures("both_ways")
def test_stopped_command_is_ended(run: Runner) -> None:
    outcome = run("echo ready; kill -STOP $$", silence=0.1, grace=60)
    assert (outcome.code, outcome.ended_by) == (-signal.SIGTERM, IDLE_TIMEOUT)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("before", ["", "echo ready; sleep 0.2; "])
def test_who_stops_the_parent_of_his_shell_stops_nothing(run: Runner, before: str) -> None:
    """The parent is the watchdog, which may not yet have reported the start."""
    outcome = run(f"{before}kill -STOP $PPID; echo on; exit 3", timeout=60)
    assert (outcome.code, outcome.ended_by, outcome.tail.splitlines()[-1]) == (3, EXIT, "on")


@pytest.mark.usefixtures("both_ways")
def test_who_stops_it_over_and_over_is_ended(run: Runner) -> None:
    command = "echo ready; while :; do kill -STOP $PPID; sleep 0.01; done"
    outcome = run(command, silence=0.1, grace=0.1)
    assert outcome.ended_by == IDLE_TIMEOUT


def test_whoever_prints_without_end_is_ended(run: Runner) -> None:
    outcome = run("trap '' TERM; yes", timeout=0.1, grace=0.1, output=lambda _: None)
    assert outcome.ended_by == TIMEOUT
    assert outcome.tail == "y\n" * (len(outcome.tail) // 2)


# Interruptions


@pytest.mark.usefixtures("both_ways")
def test_interrupt_ends_the_group(run: Runner) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(
            "echo $$ >shell; sleep 60 & echo $! >pid; echo ready; wait",
            output=lambda _: signal.raise_signal(signal.SIGINT),
        )
    assert not runs(run.pid("shell"))
    assert ends(run.pid("pid"))
    assert run("echo next").tail == "next\n"


def test_interrupt_while_a_command_is_started(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    run("true")
    answered = run.watchdog._receive_reports

    def interrupt() -> None:
        answered()
        raise KeyboardInterrupt

    monkeypatch.setattr(run.watchdog, "_receive_reports", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run("echo $$ >shell; sleep 60")
    monkeypatch.undo()
    assert not (run.directory / "shell").exists() or not runs(run.pid("shell"))
    assert run("echo next").tail == "next\n"


@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="Linux alone says which children there are"
)
def test_interrupt_leaves_no_child_to_wait_for(run: Runner) -> None:
    before = children()  # another test may have left background processes
    with Watchdog(tag(run.directory)) as run.watchdog, pytest.raises(KeyboardInterrupt):
        run("echo ready; sleep 60", output=lambda _: signal.raise_signal(signal.SIGINT))
    assert children() <= before


def children() -> set[str]:
    """Return the child processes of this process that were not waited for yet."""
    return {
        pid
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    }


def test_stubborn_command_is_killed_after_an_interrupt(run: Runner) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(STUBBORN, output=lambda _: signal.raise_signal(signal.SIGINT), grace=0.1)
    assert ends(run.pid("pid"))


@pytest.mark.usefixtures("both_ways")
def test_second_interrupt_kills_at_once(run: Runner) -> None:
    interrupts = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        if len(interrupts) == 2:
            signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(
                "trap '' TERM; echo $$ >shell; echo ready; sleep 5; touch late",
                output=lambda _: signal.setitimer(signal.ITIMER_REAL, 0.05, 0.1) and None,
                grace=60,
            )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert len(interrupts) == 2
    assert not runs(run.pid("shell"))
    assert not (run.directory / "late").exists()


def test_interrupt_while_a_timeout_has_its_grace(run: Runner) -> None:
    def interrupt(chunk: bytes) -> None:
        if b"saving" in chunk:
            raise KeyboardInterrupt

    command = """
        trap 'echo term >>terms; echo saving' TERM; echo $$ >shell; echo ready
        while ! test -e terms; do :; done
        i=0; while test $i -lt 100000; do i=$((i + 1)); done
        touch saved
    """
    with pytest.raises(KeyboardInterrupt):
        run(command, output=interrupt, silence=0.2)
    assert (run.directory / "saved").exists()
    assert (run.directory / "terms").read_text() == "term\n", (
        "who is told twice often gives up saving"
    )
    assert not runs(run.pid("shell"))


def test_what_is_raised_for_the_first_output_is_not_asked_again(run: Runner) -> None:
    calls = []

    def fail(chunk: bytes) -> None:
        calls.append(chunk)
        raise Unforeseen

    with pytest.raises(Unforeseen):
        run(
            (
                "trap 'echo saving; sleep 0.1; touch saved; exit' TERM; echo ready; "
                "while :; do :; done"
            ),
            output=fail,
        )
    assert calls == [b"ready\n"]
    assert (run.directory / "saved").exists()


def test_what_a_tick_raises_ends_the_group(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "_TICK", 0.1)

    def fail(seconds: float) -> None:
        raise Unforeseen(seconds)

    with pytest.raises(Unforeseen):
        run("sleep 60 & echo $! >pid; wait", tick=fail)
    assert ends(run.pid("pid"))


@pytest.mark.filterwarnings(
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)  # a file that was open then
def test_interrupt_while_leftovers_are_ended(run: Runner) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(
                (
                    "(trap '' TERM; sleep 60 & echo $! >pid; wait) & while ! test -s pid; "
                    "do :; done; echo left"
                ),
                output=lambda _: signal.setitimer(signal.ITIMER_REAL, 0.3) and None,
            )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert ends(run.pid("pid"))
