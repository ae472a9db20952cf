"""Nested submodules in everyday use: their state comes back.

In the lane `long`; `--long` runs 100,000 random steps.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.conftest import Checkout
from tests.store.snapshot.test_worktree_machine import run_machine
from tests.store.worktrees.test_worktree_returns import TOP, ReturnMachine, ready

pytestmark = pytest.mark.long

STEPS, LONG_STEPS = 60, 25_000
"""The least number of steps of each test, without and with `--long`."""

LIB, INNER = b"lib", b"lib/inner"


class SubmoduleMachine(ReturnMachine):
    """The worktree machine with a submodule `lib` that contains a submodule `inner`."""

    submodules = (LIB, INNER)

    @rule(where=st.sampled_from([TOP, LIB, LIB, INNER]))
    def enter(self, where: bytes) -> None:
        self._where = where

    @rule(options=st.sampled_from([(), ("--force",), ("--merge",), ("--rebase",)]))
    def update(self, options: tuple[str, ...]) -> None:
        self._places[TOP].git(
            "submodule", "--quiet", "update", "--init", "--recursive", *options, ok=()
        )

    @rule(
        how=st.sampled_from(
            ["add", "add", "add", "foreach", "foreach", "deinit", "delete", "skip", "unskip"]
        )
    )
    def handle(self, how: str) -> None:
        top = self._places[TOP]
        if how == "add":
            top.git("add", "--", LIB, ok=())
        elif how == "deinit":
            top.git("submodule", "--quiet", "deinit", "--force", "--", LIB, ok=())
        elif how == "delete":
            shutil.rmtree(top.join(LIB), ignore_errors=True)
        elif how in ("skip", "unskip"):
            top.skip(LIB, "--skip-worktree" if how == "skip" else "--no-skip-worktree")
        else:
            top.git(
                "submodule",
                "--quiet",
                "foreach",
                "--recursive",
                "git stash push --quiet || :",
                ok=(),
            )


def with_submodules(make_checkout: Callable[..., Checkout]) -> None:
    """Make three repositories, each with branches that conflict."""
    sources = [make_checkout(name) for name in ("inner source", "lib source", "template")]
    for place, (one, name) in enumerate(zip(sources, ("", "inner", "lib"), strict=True)):
        if place:
            one.git("submodule", "--quiet", "add", str(sources[place - 1].path), name)
            one.git("commit", "--quiet", "--message", "with a submodule")
        ready(one)
    top = sources[-1]
    top.git("submodule", "--quiet", "update", "--init", "--recursive")
    for where in ("lib", "lib/inner"):
        there = Checkout(top.path / where)
        for name in ("one", "two", "three"):
            there.git("branch", "--quiet", name, f"origin/{name}")
        for line in sources[0].git("config", "--local", "--get-regexp", r"^filter\.").splitlines():
            there.git("config", *line.split(" ", 1))


@pytest.mark.turns("place", "adapter")
@pytest.mark.parametrize("adapter", ["plumbing", "libgit2"])
@pytest.mark.parametrize("place", ["main", "linked"])
def test_what_was_there_comes_back(
    make_checkout: Callable[..., Checkout],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    place: str,
    adapter: str,
) -> None:
    with_submodules(make_checkout)
    long = bool(request.config.getoption("--long"))
    run_machine(
        SubmoduleMachine,
        (STEPS, LONG_STEPS),
        place=place,
        adapter=adapter,
        scratch=tmp_path,
        long=long,
    )
