"""A project with files of the four formats, for tests of import and export."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import Ckpt, ckpt, save, spawn
from tests.conftest import Checkout

__all__ = ["ckpt", "save", "spawn"]

SAMPLES = Path(__file__).parent / "samples"

PLACES = {
    "rlm-act": ".rlm-act-checkpoints",
    "workflow-checkpoints": ".workflow-checkpoints",
    "forge": ".forge/runs",
    "quasar": ".quasar",
    "superpowers": "conductor/tracks",
}
"""Folder of samples → where the tool keeps its files."""


class Line(NamedTuple):
    """A line that `git ckpt import` printed about a file."""

    path: str
    status: str
    format: str
    run: str
    checkpoint: str
    label: str
    timestamp: str
    remarks: str


class Imports:
    """A project with files of the four formats, and `git ckpt import` in it."""

    def __init__(self, checkout: Checkout, ckpt: Ckpt) -> None:
        self.checkout = checkout
        self.ckpt = ckpt

    def bring(self, *folders: str) -> None:
        """Copy samples to the paths that their tools use; all samples by default."""
        for folder in folders or PLACES:
            shutil.copytree(
                SAMPLES / folder, self.checkout.path / PLACES[folder], dirs_exist_ok=True
            )

    def __call__(self, *words: str, code: int = 0) -> list[Line]:
        done = self.ckpt("import", *(words or (".",)), at=self.checkout)
        assert done.code == code, done.err
        return [Line(*line.split("\t")) for line in done.out.splitlines()]

    def ok(self, *words: str) -> str:
        done = self.ckpt(*words, at=self.checkout)
        assert done.code == 0, done.err
        return done.out

    def statuses(self) -> dict[str, str]:
        """Return the status of each run."""
        return dict(line.split("\t")[:2] for line in self.ok("runs").splitlines())


@pytest.fixture
def imports(checkout: Checkout, ckpt: Ckpt) -> Imports:
    return Imports(checkout, ckpt)


@pytest.fixture
def sample() -> Callable[[str], bytes]:
    """Return the bytes of a sample."""
    return lambda name: (SAMPLES / name).read_bytes()
