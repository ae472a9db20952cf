"""Recording beside a `git gc --prune=now` without end: every checkpoint that was acknowledged is whole, and none is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gitckpt.git.process import git_executable
from tests.conftest import Checkout
from tests.store.conftest import ROOT, require_whole

pytestmark = pytest.mark.long

EACH = 12
RECORD = f"""
import sys
from gitckpt import Store
path, adapter, number = sys.argv[1:]
with Store.open(path, adapter=adapter) as store:
    for count in range({EACH}):
        if count % 2:
            store.record("a-complete", {{"count": count}})
        else:
            with open(path + "/new", "w", encoding="utf-8") as file:
                file.write(f"{{number}} {{count}}")
            store.save("b-complete", {{"count": count}})
"""
GC = f"until [ -e over ]; do '{git_executable()}' gc --quiet --prune=now 2>/dev/null; done"


@pytest.mark.parametrize(("adapter", "writers"), [("plumbing", 4), ("libgit2", 4), ("plumbing", 16)])
def test_nobody_loses(main_checkout: Checkout, tmp_path: Path, adapter: str, writers: int) -> None:
    """On one commit that a branch holds: what git itself loses in this race is another matter."""
    places = [str(tmp_path / f"worktree-{number}") for number in range(writers)]
    for place in places:
        main_checkout.git("worktree", "add", "--quiet", "--detach", place)
    collecting = subprocess.Popen(["sh", "-c", GC], cwd=main_checkout.path)
    try:
        commands = [[sys.executable, "-c", RECORD, place, adapter, str(number)] for number, place in enumerate(places)]
        recording = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) for command in commands]
        said = [each.communicate()[1].decode() for each in recording]
    finally:
        main_checkout.write("over", "")
        collecting.wait()
    assert said == [""] * writers
    assert len(require_whole(main_checkout)) == writers * EACH
    main_checkout.git("gc", "--quiet", "--prune=now")
    assert len(require_whole(main_checkout)) == writers * EACH
    packs = main_checkout.path / ".git/objects/pack"
    assert [path.name for path in packs.iterdir() if path.suffix not in (".pack", ".idx", ".rev", ".bitmap", ".mtimes")] == []


def test_no_hook_loses(main_checkout: Checkout) -> None:
    """Commits that come while a gc deletes what it does not know of are recorded, whatever becomes of their scratch files."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from gitckpt.hook import run; run(sys.argv[1:])"
    collecting = subprocess.Popen(["sh", "-c", GC], cwd=main_checkout.path)
    try:
        command = [sys.executable, "-I", "-S", "-c", code, "post-commit"]
        hooks = [subprocess.run(command, cwd=main_checkout.path, capture_output=True, check=True, env=os.environ) for _ in range(60)]
    finally:
        main_checkout.write("over", "")
        collecting.wait()
    assert [done.stderr for done in hooks] == [b""] * 60
    assert len(require_whole(main_checkout)) == 60
