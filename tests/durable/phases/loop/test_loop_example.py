"""The example in the documentation works as written."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import git_ckpt

__all__ = ["git_ckpt"]

ROOT = Path(__file__).parents[4]
SECONDS = re.compile(r"after (\d+\.\d+s|(\d+m)?\d+s)")


@pytest.mark.long
def test_the_example_prints_what_the_page_says(git_ckpt: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "loop.md").read_text()
    expected = page.partition("```text\n")[2].partition("```")[0]
    done = subprocess.run(
        [str(ROOT / "examples/loop/try"), str(tmp_path / "try")],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert SECONDS.sub("after 0.0s", done.stdout.lstrip()) == SECONDS.sub("after 0.0s", expected)
