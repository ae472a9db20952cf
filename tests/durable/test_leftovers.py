"""Tools that outlive their client do not write into a worktree in use."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt.durable.command import process_tree
from gitckpt.durable.command.watchdog import WATCHDOG_VARIABLE
from tests.durable.command.commanding import comes, runs
from tests.durable.stage import Stage, Talk, stage

__all__ = ["stage"]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.long,
]

WRITE = "while test -e $CALLS.pids; do echo $CKPT_ATTEMPT >>lines; sleep 0.01; done"
TOOLS = {
    "session": f"setsid sh -c 'echo $$ >>\"$CALLS.pids\"; {WRITE}' &",
    "daemon": f"setsid sh -c '(sh -c \"echo \\$\\$ >>$CALLS.pids; {WRITE}\" <&- >&- 2>&- &)' &",
    "no environment": (
        'setsid env -i CALLS=$CALLS PATH="$PATH" sh -c \'(sh -c "echo \\$\\$ >>$CALLS.pids; '
        "while test -e $CALLS.pids; do echo 1 >>lines; sleep 0.01; done\" <&- >&- 2>&- &)' &"
    ),
}
"""The ways in which an agent may run a tool that keeps writing into the worktree."""


@pytest.fixture(autouse=True)
def nobody_stays(tmp_path: Path) -> Iterator[None]:
    """End the tools of a failed test."""
    yield
    (tmp_path / "calls.pids").unlink(missing_ok=True)


def phase(tool: str) -> str:
    """Return a phase that waits beside a tool at first, and then has no tools."""
    return (
        'one: if [ "$CKPT_ATTEMPT" -gt 1 ]; then echo begin >>lines; sleep 0.1; exit; fi\n'
        f"{tool}\nsleep 60"
    )


def tools(stage: Stage) -> list[int]:
    """Return the process ids of the tools, once one of them has written something."""
    note, run = Path(f"{stage.env['CALLS']}.pids"), stage.run
    assert comes(
        lambda: (
            note.exists()
            and note.read_text().endswith("\n")
            and (stage.worktree(run()) / "lines").exists()
        )
    )
    return [int(word) for word in note.read_text().split()]


def watchdog_of(driver: int) -> int:
    """Return the process of the watchdog of a driver."""
    children = process_tree.find_descendants({driver}, process_tree.list_processes())
    (found,) = (
        process.pid
        for process in children
        if process_tree.read_env_variables(process, [WATCHDOG_VARIABLE])
    )
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_driver_that_was_killed_leaves_nobody_who_writes_into_the_next_attempt(
    tool: str, stage: Stage
) -> None:
    stage.pipeline(phase(TOOLS[tool]))
    driver = stage.begin("run", "ci")
    left = tools(stage)
    driver.kill()
    driver.wait()
    assert stage.ckpt("resume").code == 0
    lines = (stage.worktree(stage.run()) / "lines").read_text().split()
    assert (lines[0], lines[-1]) == ("1", "begin")
    assert not any(map(runs, left))


def test_a_resume_ends_what_lives_though_the_watchdog_was_killed_too_and_says_so(
    stage: Stage,
) -> None:
    stage.pipeline(phase(TOOLS["daemon"]))
    driver = stage.begin("run", "ci")
    left = tools(stage)
    watching = [driver.pid, watchdog_of(driver.pid)]
    for pid in watching:  # neither may notice the end of the other
        os.kill(pid, signal.SIGSTOP)
    # The driver ends last: its end orphans the process group, and the kernel
    # then continues the stopped members (_exit(2)).
    for pid in reversed(watching):
        os.kill(pid, signal.SIGKILL)
    driver.wait()
    assert all(map(runs, left))
    done = stage.ckpt("resume")
    assert done.code == 0
    assert "ended processes of an earlier attempt: " in done.err
    assert all(str(pid) in done.err for pid in left)
    assert not any(map(runs, left))
    assert (stage.worktree(stage.run()) / "lines").read_text().split()[-1] == "begin"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["timeout", "cancel", "interrupt"])
def test_whoever_ends_a_phase_ends_its_tools(how: str, stage: Stage) -> None:
    stage.pipeline(phase(TOOLS["daemon"]), more="timeout = '2s'\n" if how == "timeout" else "")
    driver = stage.begin("run", "ci")
    left = tools(stage)
    if how == "cancel":
        assert stage.ckpt("cancel", stage.run()).code == 0
    elif how == "interrupt":
        driver.send_signal(signal.SIGINT)
    assert driver.wait() != 0
    assert not any(map(runs, left))


def test_what_a_phase_left_that_is_complete_has_ended_before_the_next_one(stage: Stage) -> None:
    stage.pipeline(
        f"one: {TOOLS['daemon']}\nwhile ! test -s lines; do sleep 0.01; done",
        "two: mv lines before; sleep 0.05; test ! -e lines",
    )
    assert stage.ckpt("run", "ci").code == 0
    assert not any(
        runs(int(word)) for word in Path(f"{stage.env['CALLS']}.pids").read_text().split()
    )


def test_the_terminal_is_that_of_the_driver(stage: Stage) -> None:
    """Git and ssh ask for a passphrase on /dev/tty, not on standard input."""
    stage.pipeline('one: tty </dev/tty >"$CALLS"')
    talk = Talk(stage, "run", "ci")
    try:
        assert talk.ends() == 0
        assert stage.calls == ["/dev/tty"]
    finally:
        talk.close()
