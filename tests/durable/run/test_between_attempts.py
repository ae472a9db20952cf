"""A later attempt at a phase finds changes that people made in the worktree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gitckpt import PhaseOptions, Run, Store
from tests.conftest import Checkout
from tests.durable.stage import Stage, stage

pytestmark = pytest.mark.long

__all__ = ["stage"]

WAYS = [
    "git commit --quiet --amend --message mended",
    "git add . && git commit --quiet --message mended",
    "git ckpt save",
]


@pytest.mark.parametrize("how", WAYS)
def test_what_was_committed_or_saved_by_hand_after_a_failure_is_not_reset(
    stage: Stage, how: str
) -> None:
    stage.ok("init")
    half = "echo half > half; git add half; git commit --quiet --message half"
    stage.pipeline(
        f"one: if [ -e mended ]; then cat mended > found; else {half}; exit 1; fi",
        more="on_resume = 'reset'\n",
    )
    assert stage.ckpt("run", "ci").code == 20
    there = Checkout(stage.worktree(stage.run()), stage.checkout.main)
    there.write("mended", "by hand")
    subprocess.run(
        how.replace("git ckpt", f"{sys.executable} -m gitckpt"),
        shell=True,
        cwd=there.path,
        env=stage.env,
        check=True,
    )
    before = there.git("rev-parse", "HEAD")
    done = stage.ckpt("resume")
    assert done.code == 0, done.err
    assert (there.git("rev-parse", "HEAD"), (there.path / "found").read_text()) == (
        before,
        "by hand",
    )


def test_who_goes_back_to_what_was_saved_has_it_in_the_next_attempt(stage: Stage) -> None:
    stage.pipeline(
        "one: if [ -e mended ]; then cat mended > found; else echo half > half; exit 1; fi",
        more="on_resume = 'reset'\n",
    )
    assert stage.ckpt("run", "ci").code == 20
    there = Checkout(stage.worktree(stage.run()), stage.checkout.main)
    there.write("mended", "by hand")
    stage.ok("save", at=there.path)
    saved = stage.newest(stage.run()).id
    (there.path / "mended").unlink()
    done = stage.ckpt("resume", saved, "--rewind")
    assert done.code == 0, done.err
    assert (there.path / "found").read_text() == "by hand"


def test_who_has_a_phase_of_a_program_done_again_keeps_what_was_mended(plain: Store) -> None:
    def work() -> None:
        mended = Path(run.path, "mended")
        Path(run.path, "half").touch()
        mended.rename(mended.with_name("found"))

    run = Run.start(plain, "build")
    with pytest.raises(FileNotFoundError), run:
        run.phase("one", work, conduct=PhaseOptions(on_resume="reset"))
    Path(run.path, "mended").write_text("by hand\n")
    with Run.resume(plain, run.id) as run:
        run.redo("one", record=True)
        run.pause()
    with Run.resume(plain, run.id) as run:
        run.phase("one", work, conduct=PhaseOptions(on_resume="reset"))
    assert Path(run.path, "found").read_text() == "by hand\n"
