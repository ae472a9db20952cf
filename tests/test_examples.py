"""Each example prints exactly the output that its page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import normal

ROOT = Path(__file__).resolve().parent.parent

NAMES = ("review", "steps")
"""Examples with a script `try` and its expected output in `output.txt`."""

LENGTH, AGE, TIME = (
    r"\b\d+\.\ds$|(?<=after )(\d+m)?\d+s$",
    r"\b\d+[sm] ago",
    r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
)
COMPLAINT = r"^greet\.sh: .*$"
"""The syntax errors of the different shells."""

SAVED = r"^review-progress\t-\n"
"""The driver polls every 2 s and may save this commit before the next milestone."""


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """Copy the examples and put `git ckpt` on PATH; return the copy."""
    there = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", there)
    program = tmp_path / "bin/git-ckpt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gitckpt "$@"\n')
    program.chmod(0o755)
    return there


def tried(examples: Path, name: str, directory: Path) -> str:
    """Run an example and return its output, with variable parts replaced by words."""
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PATH": f"{examples.parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    for variable in ("CKPT_RUN", "CKPT_LEASE"):
        env.pop(variable, None)
    done = subprocess.run(
        [str(examples / name / "try"), str(directory)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    text = normal(done.stdout, directory)
    for pattern, word in (
        (LENGTH, "0.0s"),
        (AGE, "0s ago"),
        (TIME, "TIME"),
        (COMPLAINT, "COMPLAINT"),
        (SAVED, ""),
    ):
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_it_should(examples: Path, tmp_path: Path, name: str) -> None:
    before = {path: path.read_bytes() for path in examples.rglob("*") if path.is_file()}
    assert (
        tried(examples, name, tmp_path / "scratch") == (examples / name / "output.txt").read_text()
    )
    assert {path: path.read_bytes() for path in examples.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", NAMES)
def test_an_example_leaves_a_directory_alone_that_is_there(
    examples: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "mine").mkdir()
    done = subprocess.run(
        [str(examples / name / "try"), str(tmp_path / "mine")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert list((tmp_path / "mine").iterdir()) == []
