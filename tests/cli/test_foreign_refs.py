"""gitckpt ignores refs of other tools below `refs/checkpoints/`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import planted
from tests.cli.conftest import Ckpt, Outcome
from tests.conftest import Checkout
from tests.planted import plant
from tests.stores import common_dir, maintain

Save = Callable[..., str]
ID = "11111111-1111-4111-8111-111111111111"
FOREIGN = (
    "session/1",
    "session/2",
    "_redo/ab",
    "name",
    ID.replace("4", "1"),
    ID.upper().replace("1", "A"),
    f"{ID}/1",
)
STEPBACK = """
import pathlib, sys
from stepback.engine import Engine
engine = Engine(pathlib.Path(sys.argv[1]), adapters=[])
if sys.argv[2] == "checkpoint":
    print(engine.checkpoint("by the other tool").ref)
else:
    engine.rewind(engine.state.checkpoints[0])
"""


def stepback(checkout: Checkout, what: str) -> str:
    """Run an action of the other tool and return its output."""
    command = [sys.executable, "-c", STEPBACK, str(checkout.path), what]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def require_left_alone(
    ckpt: Ckpt, checkout: Checkout, refs: dict[str, str], mine: list[str], doctor: Outcome
) -> None:
    """Assert that commands neither mention nor change the refs of other tools.

    Only one line of `doctor` counts them.

    Args:
        ckpt: calls the command line.
        checkout: the worktree.
        refs: the refs of other tools.
        mine: the checkpoints of gitckpt, newest first.
        doctor: the result of `doctor` before the other tools' refs existed.
    """
    done = ckpt("list", at=checkout)
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()] == mine
    report = ckpt("verify", "--repair", at=checkout)
    assert (report.code, report.out) == (0, "")
    assert f"looked at {len(mine)} checkpoint" in report.err
    said = ckpt("doctor", at=checkout)
    extra = [line for line in said.out.splitlines() if line not in doctor.out.splitlines()]
    assert extra == [f"foreign refs:  {len(refs)} refs of another tool below refs/checkpoints"]
    assert (said.code, said.err) == (doctor.code, doctor.err)
    assert ckpt("expire", at=checkout).code == 0
    maintain(checkout)
    assert {
        ref: oid for ref, oid in checkout.refs("refs/checkpoints").items() if ref in refs
    } == refs


@pytest.fixture
def doctor(ckpt: Ckpt, checkout: Checkout, save: Save) -> Outcome:
    """Return the result of `doctor` with one checkpoint and no foreign refs."""
    save(checkout)
    return ckpt("doctor", at=checkout)


def own(checkout: Checkout) -> list[str]:
    (name,) = (ref.rpartition("/")[2] for ref in checkout.refs("refs/checkpoints"))
    return [name]


@pytest.mark.long
def test_refs_of_others_are_left_alone(
    ckpt: Ckpt, checkout: Checkout, doctor: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, planted.PACK_FROM, 1)
    mine = own(checkout)
    tree = checkout.git("rev-parse", "HEAD^{tree}")
    refs = {}
    for number, name in enumerate(FOREIGN):
        refs[f"refs/checkpoints/{name}"] = checkout.git("rev-parse", "HEAD") if number % 2 else tree
        checkout.git("update-ref", f"refs/checkpoints/{name}", refs[f"refs/checkpoints/{name}"])
    place = Path(common_dir(checkout), "refs/checkpoints/session")
    (place / "3").touch()
    (place / "4.lock").touch()
    for path in place.iterdir():
        os.utime(path, (time.time() - 1e6,) * 2)
    require_left_alone(ckpt, checkout, refs, mine, doctor)
    for name in FOREIGN:
        assert ckpt("remove", name, at=checkout).code != 0
    assert ckpt("remove", mine[0], at=checkout).code == 0
    assert checkout.refs("refs/checkpoints") == refs


def test_one_is_told_in_the_singular(ckpt: Ckpt, checkout: Checkout, doctor: Outcome) -> None:
    checkout.git("update-ref", "refs/checkpoints/a/b", "HEAD")
    assert (
        "foreign refs:  1 ref of another tool below refs/checkpoints\n"
        in ckpt("doctor", at=checkout).out
    )


@pytest.mark.long
def test_the_package_stepback_works_beside_us(
    ckpt: Ckpt, checkout: Checkout, doctor: Outcome, save: Save
) -> None:
    mine = own(checkout)
    checkout.write("work", "one\n")
    refs = {}
    for content in ("one\n", "two\n"):
        checkout.write("work", content)
        ref = stepback(checkout, "checkpoint")
        refs[ref] = checkout.git("rev-parse", ref)
    assert all(ref.count("/") == 3 for ref in refs)
    require_left_alone(ckpt, checkout, refs, mine, doctor)
    saved = save(checkout)
    stepback(checkout, "rewind")
    assert (checkout.path / "work").read_text() == "one\n"
    assert ckpt("restore", saved, at=checkout).code == 0
    assert (checkout.path / "work").read_text() == "two\n"
    assert checkout.refs("refs/checkpoints").items() >= refs.items()
