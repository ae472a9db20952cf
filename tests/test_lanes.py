"""Each test runs in one lane and in one shard."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import shard

ROOT = Path(__file__).parents[1]
CONFTEST = (
    "from tests.conftest import pytest_addoption, pytest_collection_modifyitems, pytest_configure\n"
)
MARKERS = "\n".join(
    f"    {name}: as in the project" for name in ("long", "turns", "sampled", "client")
)
INI = (
    "[pytest]\ntestpaths = .\naddopts = --strict-markers -p no:cacheprovider\nmarkers =\n"
    f"{MARKERS}\n"
)
TESTS = """\
import pytest
from hypothesis import given, settings, strategies
from tests.conftest import examples

MANY = examples(300)

def test_short(): ...

@pytest.mark.long
def test_long(): ...

@pytest.mark.long(but=["b"])
@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_some(case): ...

@pytest.mark.long(but=["a"], spare=["c", "d"])
@pytest.mark.parametrize("case", ["a", "b", "c", "d"])
def test_spare(case): ...

@pytest.mark.parametrize("case", ["a", "b"])
def test_cases(case): ...

@pytest.fixture(params=["main", "linked"])
def checkout(request): return request.param

@pytest.fixture(params=["libgit2", "plumbing"])
def adapter(request): return request.param

def test_place(checkout): ...

@pytest.mark.parametrize("case", range(20))
def test_places(checkout, adapter, case): ...

@pytest.mark.long
@pytest.mark.parametrize("case", range(4))
def test_long_places(checkout, adapter, case): ...

@pytest.mark.long(but=["linked-plumbing"])
def test_named_places(checkout, adapter): ...

def test_adapters(adapter): ...

@pytest.mark.turns("way", "adapter")
@pytest.mark.parametrize("way", ["by land", "by sea"])
@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_turns(case, way, adapter): ...

@pytest.mark.client
def test_real(): ...

@pytest.mark.client
@pytest.mark.long(but=["quick"])
@pytest.mark.parametrize("case", ["quick", "slow"])
def test_reals(case): ...

@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", range(8))
def test_grid(case): ...

@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", range(8))
def test_grid_of_places(checkout, adapter, case): ...

@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", range(8))
def test_grid_that_takes_long(case): ...

@given(strategies.integers())
def test_property(number): print(settings().max_examples, "examples", MANY, "of 300")
"""
LONG = {"test_long", "test_some[a]", "test_some[c]", "test_spare[b]", "test_property"}
PLACED = (
    "test_place",
    "test_long_places",
    "test_named_places",
    "test_turns",
    "test_grid",
    "test_real",
)
SPARE = {"test_spare[c]", "test_spare[d]"}
SHORT = {
    *("test_short", "test_property", "test_some[b]", "test_spare[a]"),
    *("test_cases[a]", "test_cases[b]", "test_adapters[libgit2]", "test_adapters[plumbing]"),
}
PLACES = {"test_place[main]", "test_place[linked]"}
CELLS = [
    f"{place}-{adapter}" for place in ("main", "linked") for adapter in ("libgit2", "plumbing")
]

Lanes = dict[str, list[str]]
"""The names of the tests of each lane."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with tests of every kind."""
    for name, content in (("conftest.py", CONFTEST), ("pytest.ini", INI), ("test_it.py", TESTS)):
        (tmp_path / name).write_text(content)
    return tmp_path


def run(project: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in the project."""
    command = [sys.executable, "-m", "pytest", *args]
    done = subprocess.run(
        command,
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def collected(project: Path, *args: str) -> list[str]:
    """Return the names of the tests that pytest would run."""
    done = run(project, "--collect-only", "--quiet", *args)
    return [line.removeprefix("test_it.py::") for line in done.stdout.splitlines() if "::" in line]


def alike(names: list[str]) -> set[str]:
    """Return the names of the tests whose lane does not depend on parameters."""
    return {name for name in names if not name.startswith(PLACED)}


@pytest.mark.long
def test_without_a_path_those_that_take_long_are_left_out(project: Path) -> None:
    assert alike(collected(project)) == SHORT
    assert alike(collected(project, "test_it.py")) == SHORT | LONG | SPARE


@pytest.mark.long
def test_each_case_has_its_lane(project: Path) -> None:
    """One test covers all lanes, because each needs a process of about a second."""
    found = {
        lane: collected(project, "test_it.py", "--lane", lane)
        for lane in ("test", "long", "clients", "all")
    }
    assert alike(found["test"]) == SHORT
    _real_clients_are_driven_only_where_somebody_asks_for_it(found)
    _each_place_and_each_adapter_has_its_turn(found)
    _of_the_cases_that_are_alike_one_has_its_turn(found)
    _of_a_grid_some_cases_stand_for_all(found)
    assert {*found["test"], *found["long"], *found["clients"]} < {*found["all"]}
    shards = [collected(project, "--lane", "long", "--shard", f"{number}/2") for number in (1, 2)]
    assert [len(shard) for shard in shards] == [
        len(found["long"]) - len(found["long"]) // 2,
        len(found["long"]) // 2,
    ]
    assert sorted(name for shard in shards for name in shard) == sorted(found["long"])
    assert alike(found["long"]) == LONG


def _real_clients_are_driven_only_where_somebody_asks_for_it(found: Lanes) -> None:
    real = {
        lane: [name for name in names if name.startswith("test_real")]
        for lane, names in found.items()
    }
    assert (real["test"], real["long"]) == ([], [])
    assert real["clients"] == ["test_real", "test_reals[quick]"]
    assert real["all"] == ["test_real", "test_reals[quick]", "test_reals[slow]"]
    assert real["clients"] == found["clients"]


def _each_place_and_each_adapter_has_its_turn(found: Lanes) -> None:
    lanes = [found["test"], found["long"]]
    assert [len(PLACES & set(names)) for names in lanes] == [1, 1]
    seen = []
    for case in range(20):
        cells = [
            [cell for cell in CELLS if f"test_places[{cell}-{case}]" in names] for names in lanes
        ]
        assert [len(each) for each in cells] == [1, 1]
        assert not {*cells[0][0].split("-")} & {*cells[1][0].split("-")}
        assert {cell for cell in CELLS if f"test_places[{cell}-{case}]" in found["all"]} == {*CELLS}
        seen += cells[0]
    assert (len(seen), set(seen)) == (20, set(CELLS))
    of_long = [
        {cell for cell in CELLS if f"test_long_places[{cell}-{case}]" in found["long"]}
        for case in range(4)
    ]
    assert [len(cells) for cells in of_long] == [1] * 4
    assert set.union(*of_long) == set(CELLS)
    assert [
        [name for name in names if name.startswith("test_named_places")] for names in lanes
    ] == [
        ["test_named_places[linked-plumbing]"],
        ["test_named_places[main-libgit2]"],
    ]


def _of_the_cases_that_are_alike_one_has_its_turn(found: Lanes) -> None:
    turns = [
        [name for name in found[lane] if name.startswith("test_turns")]
        for lane in ("test", "long", "all")
    ]
    words = [
        set(name.removeprefix("test_turns[").removesuffix("]").split("-")) for name in turns[0]
    ]
    assert [len([one for one in words if case in one]) for case in ("a", "b", "c")] == [1, 1, 1]
    assert {"by land", "by sea", "libgit2", "plumbing"} <= set.union(*words)
    assert ([len(names) for names in turns], {*turns[0]} & {*turns[1]}) == ([3, 3, 12], set())


def _of_a_grid_some_cases_stand_for_all(found: Lanes) -> None:
    grids = [
        [name for name in found[lane] if name.startswith("test_grid[")] for lane in ("test", "long")
    ]
    assert grids[0] == ["test_grid[0]", "test_grid[3]", "test_grid[6]"]
    assert grids[1] == [f"test_grid[{case}]" for case in (1, 2, 4, 5, 7)]
    placed = [
        [name for name in found[lane] if name.startswith("test_grid_of_places")]
        for lane in ("test", "long", "all")
    ]
    assert [len(names) for names in placed] == [3, 5 + 3, 32]
    cases = [name.rpartition("-")[2] for names in placed[:2] for name in names]
    assert {*cases} == {f"{case}]" for case in range(8)}
    long = [name for name in found["long"] if name.startswith("test_grid_that_takes_long")]
    assert [name.rpartition("[")[2] for name in long] == ["0]", "3]", "6]"]


@pytest.mark.long
def test_a_property_is_tried_with_fewer_examples_where_it_is_to_be_quick(project: Path) -> None:
    said = [
        run(project, "-s", "-k", "property", "--lane", lane).stdout
        for lane in ("test", "long", "all")
    ]
    found = [re.findall(r"(\d+) examples (\d+) of 300", text)[-1] for text in said]
    assert found == [("33", "99"), ("100", "300"), ("100", "300")]


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/", "-1/2"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError,
        match=f"^'{text}' is no part of the tests: say --shard 1/4 for the first of four$",
    ):
        shard(text)
