"""Cut the power in one scenario at a time, in both ways of `tests.system.power`."""

from __future__ import annotations

from pathlib import Path

from tests.system.faults.judge import LOST
from tests.system.power import replay, scenarios
from tests.system.power.__main__ import cut as cut_disk
from tests.system.power.__main__ import instants
from tests.system.power.scenarios import SCENARIOS

__all__ = ["SCENARIOS", "cut", "ways"]


def ways() -> list[str]:
    """Return the ways to try: a record needs strace, a disk is attempted always."""
    return [*(["record"] if replay.can_record() else []), "disk"]


def cut(
    way: str, name: str, directory: Path, tries: int, every: int, seed: int
) -> tuple[int, list[str]]:
    """Cut the power in one scenario; return the number of cuts, and the violations.

    Args:
        way: "record" or "disk".
        name: of the scenario.
        directory: to work in.
        tries: how often to cut off the disk.
        every: cut the record only at every n-th instant.
        seed: of the moments; the same seed repeats them.

    Raises:
        NoDisk: this takes root, Linux, loop devices and `mkfs.ext4`.
    """
    scenario = SCENARIOS[name]
    place = directory / f"{way}-{name.replace(' ', '-')}"
    place.mkdir()
    env = scenarios.environment(place / "home")
    count, wrong = 0, []
    if way == "record":
        found = (
            (moment, sentences)
            for moment, sentences in instants(scenario, place / "record", env, every)
        )
    else:
        found = (
            (moment, sentences)
            for _, moment, sentences in cut_disk([scenario], place, env, tries, seed)
        )
    for moment, sentences in found:
        count += 1
        wrong += [f"{LOST}{moment}: {sentence}" for sentence in sentences]
    return count, wrong
