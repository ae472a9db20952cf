"""Runs whose driver or commands are killed end as if undisturbed.

The kills come at random moments and at every write.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Checkout
from tests.durable.command.commanding import comes
from tests.durable.nursery import Done, Nursery
from tests.durable.run import killing
from tests.durable.run.killing import Nest, Outcome, Project
from tests.system.kills.killer import Positions

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        sys.platform != "linux", reason="finds orphans as their subreaper, and in /proc"
    ),
]

MakeNest = Callable[..., Nest]


@pytest.fixture
def nest(main_checkout: Checkout, tmp_path: Path, request: pytest.FixtureRequest) -> Nest:
    """Projects with a pipeline; `request.param` names it, with `linked` or `hooks`."""
    words = str(request.param).split()
    definition = {
        "reset": killing.RESET,
        "keep": killing.KEEP,
        "again": killing.AGAIN,
        "held": killing.HELD,
    }[words[0]]
    main_checkout.commit("second", **{"gitckpt.toml": definition, "gone": "g\n", "moved": "m\n"})
    return Nest(main_checkout, tmp_path / "nest", linked="linked" in words, hooks="hooks" in words)


@pytest.fixture
def nursery(nest: Nest, tmp_path: Path) -> Iterator[Nursery]:
    with Nursery(tmp_path, {killing.PLACE: str(nest.log)}) as made:
        yield made


def undisturbed(nest: Nest, nursery: Nursery) -> tuple[Outcome, float]:
    """Return the outcome of a run without kills, and its duration in seconds."""
    project = nest.make(nursery)
    before = time.monotonic()
    done = nursery.call(project.checkout, "run", "three")
    seconds = time.monotonic() - before
    assert done.code == 0, done
    run = project.run()
    assert run is not None
    project.require_settled(nursery, run, interruptions=0)
    return project.outcome(run), seconds


class Disturbed:
    """Drive one run to its end despite kills.

    Attributes:
        kills: how often its driver was killed.
        left: the approximate share of the run that is left, from 1 to 0.
    """

    def __init__(self, project: Project, nursery: Nursery) -> None:
        self.project = project
        self.nursery = nursery
        self.kills = 0
        self.left = 1.0

    def start(self, env: dict[str, str] | None = None) -> None:
        """Start the run, or resume an existing one, sometimes without its id."""
        run = self.project.run()
        words = (
            ("run", "three") if run is None else ("resume", run) if self.kills % 3 else ("resume",)
        )
        self.nursery.start(self.project.checkout, *words, env=env)

    def is_killed(self, done: Done) -> bool:
        """Return whether the driver was killed.

        If not, the run must be complete, now or just before the last kill.
        """
        if done.code == 0:
            return False
        run = self.project.run()
        if done.code == 2 and self.kills and done.err.startswith(f"error: run {run} is complete\n"):
            return False
        assert done.code == -9, done
        self.kills += 1
        if run is not None:
            self.left = 1 - self.project.require_nothing_lost(run) / (len(killing.PHASES) + 1)
        return True

    def require(self, expected: Outcome) -> None:
        """Assert that the run ended like one without kills."""
        run = self.project.run()
        assert run is not None
        self.project.require_settled(self.nursery, run, interruptions=self.kills)
        outcome = self.project.outcome(run)
        for name in Outcome.__slots__:
            assert (name, getattr(outcome, name)) == (name, getattr(expected, name))


KILLS = 6
"""How often each random test kills a driver; `--long`: over 3,000 in all."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("nest", ["reset", "reset linked", "keep", "reset hooks"], indirect=True)
def test_a_driver_that_is_killed_at_random_moments(
    nest: Nest, nursery: Nursery, seed: int, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(f"{request.node.name} {seed}")
    expected, seconds = undisturbed(nest, nursery)
    left = 400 if request.config.getoption("--long") else KILLS
    while left > 0:
        disturbed = Disturbed(nest.make(nursery), nursery)
        while True:
            disturbed.start()
            moment = chance.random() * seconds * disturbed.left if disturbed.kills < 8 else 60
            if not disturbed.is_killed(nursery.kill_after(moment)):
                break
            if chance.random() < 0.5:
                assert nursery.orphans() == []
        disturbed.require(expected)
        left -= disturbed.kills


SHARES, STRIDE = 2, 24
"""The number of tests that share the positions, and the stride of each.

Without the stride, under `--long`, each test takes all positions of its share.
"""


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("nest", ["reset"], indirect=True)
def test_a_driver_that_is_killed_at_every_git_call(
    nest: Nest, nursery: Nursery, tmp_path: Path, share: int, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(share)
    positions = Positions(tmp_path / "positions")
    expected, _ = undisturbed(nest, nursery)
    assert nursery.call(nest.make(nursery).checkout, "run", "three", env=positions.env(0)).code == 0
    count = positions.count()
    assert count > 60
    for at in range(
        1 + share, count + 1, SHARES * (1 if request.config.getoption("--long") else STRIDE)
    ):
        disturbed = Disturbed(nest.make(nursery), nursery)
        disturbed.start(positions.env(at))
        if not disturbed.is_killed(nursery.wait()):
            assert at > count * 3 / 4  # the number varies by a few: the clock delays links
            continue
        again = chance.randint(0, count)  # the rest has fewer positions: some kill no process
        disturbed.start(positions.env(again))
        if disturbed.is_killed(nursery.wait()):
            disturbed.start()
            assert not disturbed.is_killed(nursery.wait())
        disturbed.require(expected)


def kill_commands(project: Project, nursery: Nursery, chance: random.Random, *, most: int) -> int:
    """Kill commands of phases at random moments, and return the number of kills.

    At most `most` commands are killed, all while their driver lives.
    """
    sent, seen = 0, len(project.shells())
    while not nursery.has_ended():
        shells = project.shells()
        if len(shells) == seen:
            time.sleep(0.001)
            continue
        seen = len(shells)
        if sent < most and chance.random() < 0.8:
            time.sleep(chance.random() * COMMAND)
            sent += kill_command(shells[-1], project.log)
    return sent


def kill_command(pid: int, log: Path) -> bool:
    """Kill the shell of a phase, and return whether it still existed."""
    try:
        if str(log).encode() not in Path(f"/proc/{pid}/environ").read_bytes():
            return False
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True


COMMAND = 0.02
"""The approximate duration of a phase's command, in seconds."""


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("nest", ["again", "again hooks"], indirect=True)
def test_commands_that_are_killed_are_tried_again(
    nest: Nest, nursery: Nursery, seed: int, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(f"{request.node.name} {seed}")
    expected, _ = undisturbed(nest, nursery)
    left = 400 if request.config.getoption("--long") else KILLS // 5
    while left > 0:
        disturbed = Disturbed(nest.make(nursery), nursery)
        disturbed.start()
        disturbed.kills = kill_commands(disturbed.project, nursery, chance, most=20)
        assert nursery.wait().code == 0
        disturbed.require(expected)
        left -= max(disturbed.kills, 1)


@pytest.mark.long
@pytest.mark.parametrize("nest", ["reset", "keep"], indirect=True)
def test_a_run_whose_command_is_killed_has_failed_and_can_be_resumed(
    nest: Nest, nursery: Nursery, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(request.node.name)
    expected, _ = undisturbed(nest, nursery)
    left = 200 if request.config.getoption("--long") else KILLS // 5
    while left > 0:
        disturbed = Disturbed(nest.make(nursery), nursery)
        while True:
            disturbed.start()
            sent = kill_commands(disturbed.project, nursery, chance, most=int(disturbed.kills < 6))
            done = nursery.wait()
            disturbed.kills += sent
            if done.code == 0:
                break
            run = disturbed.project.run()
            assert (done.code, sent, run is not None) == (20, 1, True), done
            assert "signal 9" in done.err
            assert nursery.call(disturbed.project.checkout, "runs").out.split("\t")[:2] == [
                run,
                "failed",
            ]
            disturbed.project.require_nothing_lost(str(run))
        disturbed.require(expected)
        left -= max(disturbed.kills, 1)


@pytest.mark.parametrize("nest", ["held"], indirect=True)
def test_a_phase_that_crashes_too_often_is_blocked(nest: Nest, nursery: Nursery) -> None:
    expected, _ = undisturbed(nest, nursery)
    disturbed = Disturbed(nest.make(nursery), nursery)
    hold = Path(f"{nest.log}.hold")
    hold.touch()
    for crashes in range(1, 4):
        disturbed.start()
        assert comes(lambda: disturbed.project.said("hold") == ["two"] * crashes)  # noqa: B023
        assert disturbed.is_killed(nursery.kill_after(0))
        assert nursery.orphans() == []
        disturbed.project.set_head_back(str(disturbed.project.run()))
    checkout, run = disturbed.project.checkout, str(disturbed.project.run())
    for _ in range(2):
        done = nursery.call(checkout, "resume", run)
        assert (done.code, f"git ckpt resume {run} --from two" in done.err) == (4, True), done
        assert nursery.call(checkout, "runs").out.split("\t")[:3] == [run, "blocked", "two-blocked"]
    assert disturbed.project.said("hold") == ["two"] * 3
    hold.unlink()
    assert nursery.call(checkout, "resume", run, "--from", "two").code == 0
    disturbed.require(expected)


AT_THE_END = """\
#!/bin/sh
[ "$1" = committed ] || exit 0
while read -r _ _ ref; do
    case $ref in
    refs/ckpt/SPACE/*)
        git cat-file blob "$ref" | grep -q '^WORD' || continue
        kill -9 "$(git cat-file blob "refs/ckpt/leases/${ref##*/}" | sed -n 's/^pid = //p')"
        ;;
    esac
done
"""
"""A git hook that kills the driver at a given write.

The write points a ref below SPACE to a document with a line that begins with WORD.
"""


@pytest.mark.parametrize(
    ("space", "word", "code"), [("runs", 'phase = "run-complete"', 0), ("leases", "released = ", 2)]
)
@pytest.mark.parametrize("nest", ["reset"], indirect=True)
def test_what_a_driver_put_off_to_its_end_is_not_lost_with_it(
    nest: Nest, nursery: Nursery, space: str, word: str, code: int
) -> None:
    expected, _ = undisturbed(nest, nursery)
    disturbed = Disturbed(nest.make(nursery), nursery)
    hook = disturbed.project.checkout.write(
        ".git/hooks/reference-transaction", AT_THE_END.replace("SPACE", space).replace("WORD", word)
    )
    hook.chmod(0o755)
    disturbed.start()
    assert disturbed.is_killed(nursery.wait())
    hook.unlink()
    run = str(disturbed.project.run())
    assert disturbed.project.is_released(run) == (space == "leases")
    assert nursery.call(disturbed.project.checkout, "runs").out.split("\t")[1] == "complete"
    assert (
        nursery.call(disturbed.project.checkout, "resume", run).code == code
    )  # 2: the run is complete
    disturbed.require(expected)
