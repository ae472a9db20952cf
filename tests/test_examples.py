"""The examples do what their pages say: each is run as a reader would run it, and all that it prints is compared."""

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
"""Examples that have a script `try`, and a file `output.txt` with what it prints."""

LENGTH, AGE, TIME = (
    r"\b\d+\.\ds$|(?<=after )(\d+m)?\d+s$",
    r"\b\d+[sm] ago",
    r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
)
COMPLAINT = r"^greet\.sh: .*$"
"""What the shell says of a script that it cannot read, each shell in its own words."""

SAVED = r"^review-progress\t-\n"
"""A commit that the driver, which looks every two seconds, has found and saved before the milestone that follows it."""


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the examples, so that nothing is written beside them; `git ckpt` is on PATH."""
    there = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", there)
    program = tmp_path / "bin/git-ckpt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gitckpt "$@"\n')
    program.chmod(0o755)
    return there


def tried(examples: Path, name: str, directory: Path) -> str:
    """Tries an example in a directory, and returns what it prints, with words for what differs from time to time."""
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
