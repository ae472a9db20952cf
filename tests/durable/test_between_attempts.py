"""What people do in a run's worktree between two attempts at a phase, and what the next one finds of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import Checkout
from tests.durable.stage import Stage, stage

__all__ = ["stage"]

WAYS = ["git commit --quiet --amend --message mended", "git add . && git commit --quiet --message mended", "git ckpt save"]


@pytest.mark.parametrize("how", WAYS)
def test_what_was_committed_or_saved_by_hand_after_a_failure_is_not_reset(stage: Stage, how: str) -> None:
    stage.ok("init")
    half = "echo half > half; git add half; git commit --quiet --message half"
    stage.pipeline(f"one: if [ -e mended ]; then cat mended > found; else {half}; exit 1; fi", more="on_resume = 'reset'\n")
    assert stage.ckpt("run", "ci").code == 20
    there = Checkout(stage.worktree(stage.run()), stage.checkout.main)
    there.write("mended", "by hand")
    subprocess.run(how.replace("git ckpt", f"{sys.executable} -m gitckpt"), shell=True, cwd=there.path, env=stage.env, check=True)
    before = there.git("rev-parse", "HEAD")
    done = stage.ckpt("resume")
    assert done.code == 0, done.err
    assert (there.git("rev-parse", "HEAD"), (there.path / "found").read_text()) == (before, "by hand")
