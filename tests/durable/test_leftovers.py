"""Tools that outlive the client that started them: none writes into a worktree that somebody works in again."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt.durable.command import processes, watchdog
from gitckpt.durable.command.mark import WATCHDOG_VARIABLE, Mark
from gitckpt.durable.command.watchdog import Watchdog
from gitckpt.store.leases.leases import Hold
from gitckpt.store.records import layout
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout
from tests.durable.commanding import Runner, comes, runs
from tests.durable.conftest import RUN
from tests.durable.stage import Stage, Talk, stage

__all__ = ["stage"]

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"), pytest.mark.long]

WRITE = "while test -e $CALLS.pids; do echo $CKPT_ATTEMPT >>lines; sleep 0.01; done"
TOOLS = {
    "session": f"setsid sh -c 'echo $$ >>\"$CALLS.pids\"; {WRITE}' &",
    "daemon": f"setsid sh -c '(sh -c \"echo \\$\\$ >>$CALLS.pids; {WRITE}\" <&- >&- 2>&- &)' &",
    "no environment": (
        'setsid env -i CALLS=$CALLS PATH="$PATH" sh -c \'(sh -c "echo \\$\\$ >>$CALLS.pids; '
        "while test -e $CALLS.pids; do echo 1 >>lines; sleep 0.01; done\" <&- >&- 2>&- &)' &"
    ),
}
"""What an agent may run a tool as, which then writes into the worktree on and on."""


@pytest.fixture(autouse=True)
def nobody_stays(tmp_path: Path) -> Iterator[None]:
    """Ends the tools of a test that failed."""
    yield
    (tmp_path / "calls.pids").unlink(missing_ok=True)


def phase(tool: str) -> str:
    """Returns a phase whose first attempt waits for ever beside a tool, and whose second one has no tools."""
    return f'one: if [ "$CKPT_ATTEMPT" -gt 1 ]; then echo begin >>lines; sleep 0.1; exit; fi\n{tool}\nsleep 60'


def tools(stage: Stage) -> list[int]:
    """Returns the numbers of the tools, once there is one that has written something."""
    note, run = Path(f"{stage.env['CALLS']}.pids"), stage.run
    assert comes(lambda: note.exists() and note.read_text().endswith("\n") and (stage.worktree(run()) / "lines").exists())
    return [int(word) for word in note.read_text().split()]


def watchdogs(driver: int) -> list[int]:
    """Returns the processes of the watchdog of a driver."""
    found = processes.descendants({driver}, processes.table())
    return [process.pid for process in found if processes.variables(process, [WATCHDOG_VARIABLE])]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_driver_that_was_killed_leaves_nobody_who_writes_into_the_next_attempt(tool: str, stage: Stage) -> None:
    stage.pipeline(phase(TOOLS[tool]))
    driver = stage.begin("run", "ci")
    left = tools(stage)
    driver.kill()
    driver.wait()
    assert stage.ckpt("resume").code == 0
    lines = (stage.worktree(stage.run()) / "lines").read_text().split()
    assert (lines[0], lines[-1]) == ("1", "begin")
    assert not any(map(runs, left))


def test_a_resume_ends_what_lives_though_the_watchdog_was_killed_too_and_says_so(stage: Stage) -> None:
    stage.pipeline(phase(TOOLS["daemon"]))
    driver = stage.begin("run", "ci")
    left = tools(stage)
    watching = [driver.pid, *watchdogs(driver.pid)]
    for pid in watching:  # none of them is to notice the end of another one
        os.kill(pid, signal.SIGSTOP)
    # The driver last: with it their group becomes an orphaned one, whose stopped members the kernel lets go on (_exit(2)).
    for pid in reversed(watching):
        os.kill(pid, signal.SIGKILL)
    driver.wait()
    assert all(map(runs, left))
    done = stage.ckpt("resume")
    assert done.code == 0
    assert "what an earlier attempt had left running was ended: " in done.err
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
        f"one: {TOOLS['daemon']}\nwhile ! test -s lines; do sleep 0.01; done", "two: mv lines before; sleep 0.05; test ! -e lines"
    )
    assert stage.ckpt("run", "ci").code == 0
    assert not any(runs(int(word)) for word in Path(f"{stage.env['CALLS']}.pids").read_text().split())


def test_the_terminal_is_that_of_the_driver(stage: Stage) -> None:
    """Where git or ssh ask for a passphrase, though not by standard input."""
    stage.pipeline('one: tty </dev/tty >"$CALLS"')
    talk = Talk(stage, "run", "ci")
    try:
        assert talk.ends() == 0
        assert stage.calls == ["/dev/tty"]
    finally:
        talk.close()


# The lease is lost while the driver is stopped


@pytest.fixture
def held(plain: Store) -> Hold:
    """The lease of a run, which this process holds."""
    return inside(plain).leases.acquire(RUN, "a test")


@pytest.fixture
def run(plain: Store, held: Hold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.setattr(watchdog, "PATIENCE", 0.05)
    with Watchdog(Mark(RUN, held.lease.token, inside(plain).repository.common_dir)) as made:
        yield Runner(tmp_path, made)


def take_over(store: Store, run: str) -> None:
    """Takes the lease of a run, as another machine does after it has expired."""
    found = inside(store).leases.read(run)
    assert found is not None
    inside(store).leases.swap(replace(found[1], token=found[1].token + 1, host="elsewhere"), found[0])


def launch(run: Runner, command: str) -> None:
    """Starts a command as a driver does that is stopped right after: nobody says to its watchdog that all is well."""
    run.watchdog.launch(command, str(run.directory), dict(os.environ))
    assert comes((run.directory / "pid").exists)


def require_looks(run: Runner) -> None:
    """Waits until the watchdog has looked after the lease some times."""
    (inner,) = (process for process in processes.table().values() if process.parent == run.watchdog.pid)
    looks: set[int] = set()

    def has_looked() -> bool:
        there = processes.table().values()
        looks.update(process.pid for process in there if process.parent == inner.pid and process.pid != run.pid("pid"))
        return len(looks) >= 3

    assert comes(has_looked)


def test_command_is_ended_where_somebody_took_over_the_lease(run: Runner, plain: Store) -> None:
    launch(run, "setsid sh -c 'echo $$ >pid; exec sleep 60' & wait; sleep 60")
    take_over(plain, RUN)
    assert comes(lambda: "alone" in run.watchdog.hear())
    assert not runs(run.pid("pid"))


def test_command_is_ended_where_the_lease_is_gone(run: Runner, plain: Store, main_checkout: Checkout) -> None:
    launch(run, "echo $$ >pid; exec sleep 60")
    main_checkout.git("update-ref", "-d", layout.LEASES + RUN)
    assert comes(lambda: "alone" in run.watchdog.hear())


@pytest.mark.long
def test_command_goes_on_as_long_as_the_lease_is_held(run: Runner, held: Hold, tmp_path: Path) -> None:
    """A driver that somebody stopped by Ctrl-Z, or a lease that was renewed, is no reason to end anything."""
    launch(run, "echo $$ >pid; while ! test -e go; do sleep 0.01; done; exit 3")
    require_looks(run)
    held.renew()
    require_looks(run)
    (tmp_path / "go").touch()
    heard: list[str] = []

    def has_ended() -> bool:
        heard.extend(run.watchdog.hear())
        return "alone" in heard

    assert comes(has_ended)
    assert heard == ["ended 3", "alone"]


def test_command_goes_on_where_git_cannot_tell(run: Runner, plain: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITCKPT_GIT", "false")
    launch(run, "echo $$ >pid; while ! test -e go; do sleep 0.01; done; exit 3")
    require_looks(run)
    assert runs(run.pid("pid"))


@pytest.mark.long
def test_a_driver_that_is_stopped_and_was_taken_over_from_does_not_let_its_command_write_on(stage: Stage) -> None:
    stage.pipeline(phase(TOOLS["daemon"]))
    driver = stage.begin("run", "ci")
    left = tools(stage)
    driver.send_signal(signal.SIGSTOP)
    with stage.store() as store:
        take_over(store, stage.run())
    assert comes(lambda: not any(map(runs, left)))
    driver.send_signal(signal.SIGCONT)
    assert driver.wait() == 11
