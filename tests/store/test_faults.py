"""What the system refuses: too few descriptors, too small files. A save is whole or it is not there, and what it says is a sentence."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Checkout
from tests.store.conftest import require_whole

ROOT = Path(__file__).parents[2]


def save(checkout: Checkout, kind: int, limit: int) -> subprocess.CompletedProcess[str]:
    """Runs `git ckpt save` with a limit of the system's."""

    def restrict() -> None:
        resource.setrlimit(kind, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "gitckpt", "save"],
        cwd=checkout.path,
        # Python would keep what it could write of its own bytecode, and fail by it ever after.
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=restrict,
    )


def look(checkout: Checkout, done: subprocess.CompletedProcess[str], before: int) -> int:
    """Requires that a save is whole or refused, and returns how many checkpoints there are."""
    there = len(require_whole(checkout))
    assert there == before + (done.returncode == 0), (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert "this is a bug" not in done.stderr
    if done.returncode > 0 and done.stderr:
        assert done.stderr.splitlines()[-1].startswith(("error: ", "hint: "))
    return there


@pytest.mark.long(but=["12"])
@pytest.mark.parametrize("limit", range(6, 40, 2), ids=str)
def test_too_few_descriptors(main_checkout: Checkout, limit: int) -> None:
    main_checkout.write("new", "x")
    there = look(main_checkout, save(main_checkout, resource.RLIMIT_NOFILE, limit), 0)
    main_checkout.write("new", "y")
    assert look(main_checkout, save(main_checkout, resource.RLIMIT_NOFILE, 256), there) == there + 1


@pytest.mark.long(but=["100"])
@pytest.mark.parametrize("limit", [1, 60, 100, 200, 500, 1000, 5000], ids=str)
def test_files_that_may_not_grow(main_checkout: Checkout, limit: int) -> None:
    """As on a disk that is full: a write ends early, in our processes and in git's."""
    main_checkout.write("new", os.urandom(400))
    there = look(main_checkout, save(main_checkout, resource.RLIMIT_FSIZE, limit), 0)
    assert look(main_checkout, save(main_checkout, resource.RLIMIT_FSIZE, resource.RLIM_INFINITY), there) == there + 1
