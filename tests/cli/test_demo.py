"""`git ckpt demo`, as a user runs it, proves its claims and cleans up."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gitckpt.cli.commands import demo as module

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = """\
cd SCRATCH
git init --quiet --initial-branch=main project
cd project
git config user.name Demo && git config user.email demo@example.org
echo '# The app' > app.py && git add app.py
git commit --quiet --message='Begin the app'
git ckpt init
cat job.sh
git add . && git commit --quiet --message='Add the job'
echo '# by hand' >> app.py && git add app.py && echo 'ask Ada' > todo.txt
LONG=3600 sh job.sh &
kill -KILL -- -PID
git reset --quiet --hard && git clean --quiet --force -d
ls
git ckpt list
git ckpt show ID
git ckpt diff ID ID
git ckpt diff --stat ID
git commit --quiet --amend --message='Add the job, reworded'
git reflog expire --expire=now --all && git gc --quiet --prune=now
git cat-file -t OID
git ckpt resume ID
git ckpt show ID --state
cd .ckpt/worktrees/UUID
git status --short
sh job.sh 2>&1
git ckpt list
"""

PROOFS = """\
  ok: the job was killed while it worked
  ok: all that is lost is part_2.py, which no checkpoint holds yet
  ok: HEAD is another commit now
  ok: the amended commit is still there
  ok: same files as before the crash (app.py, findings.md, gitckpt.toml, job.sh, part_1.py, \
todo.txt)
  ok: same status as before the crash: what was staged is staged
  ok: same state as before the crash
  ok: same commit as before the crash
  ok: research and part 1 were not done again
  ok: the work is whole
"""


def demo(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(
        [sys.executable, "-m", "gitckpt", "demo", *args],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )


@pytest.fixture
def hostile(tmp_path: Path, sealed: Path) -> Path:
    """Write user settings that would break a repository; return the file."""
    hooks = tmp_path / "template" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    (sealed / ".config" / "git").mkdir(parents=True)
    (sealed / ".config" / "git" / "ignore").write_text("*.md\n")
    config = sealed / ".gitconfig"
    config.write_text(
        f"[commit]\n\tgpgSign = true\n[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n"
        f"[init]\n\ttemplateDir = {hooks.parent}\n"
    )
    return config


@pytest.mark.long
def test_demo_kills_destroys_and_resumes_whatever_the_users_configuration(
    tmp_path: Path, hostile: Path
) -> None:
    scratch = tmp_path / "a demo's place"
    before = hostile.read_text()
    done = demo(
        "--dir",
        str(scratch),
        GIT_DIR="/nowhere",
        GIT_TEMPLATE_DIR=str(tmp_path / "template"),
        GITCKPT_SKIP="1",
    )
    assert (done.returncode, "error:" in done.stderr) == (0, False), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert (
        anonymous([line[2:] for line in lines if line.startswith("$ ")], scratch)
        == COMMANDS.splitlines()
    )
    assert [
        line for line in lines if line.startswith(("  ok: ", "  FAILED: "))
    ] == PROOFS.splitlines()
    assert lines[-3:] == [
        "Killed, its files deleted, its commit amended: the job finished, and no work was lost.",
        f"The scratch repository is {scratch}/project",
        f"Delete it when you have seen it: {shlex.quote(str(scratch))}",
    ]
    assert "\033" not in done.stdout
    # Each line of a command's output has its own line.
    assert [line for line in lines if "\\n" in line and "s/.*" not in line] == []
    assert {'  "findings": "findings.md",', "job: finished"} <= set(lines)
    assert hostile.read_text() == before


def test_demo_refuses_a_directory_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = demo("--dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == f"error: {tmp_path} exists already\n"
        "hint: name a directory that git ckpt can create: git ckpt demo --dir DIR\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_demo_fails_when_a_proof_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    showing = module._Demo(str(tmp_path))
    showing.check("one and one is two", True)
    showing.check("one and one is three", False)
    assert showing.print_conclusion() is False
    out = capsys.readouterr().out
    assert out.startswith("  ok: one and one is two\n  FAILED: one and one is three\n")
    assert "\nNOT everything was restored: see the lines that begin with FAILED.\n" in out


def anonymous(commands: list[str], scratch: Path) -> list[str]:
    """Return commands with variable parts replaced by words."""
    patterns = {
        re.escape(shlex.quote(str(scratch))): "SCRATCH",
        r"(?<= -)\d+$": "PID",
        r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "UUID",
        r"\b[0-9a-f]{10}\b": "OID",
        r"\b[0-9a-f]{8}\b": "ID",
    }
    for pattern, word in patterns.items():
        commands = [re.sub(pattern, word, command) for command in commands]
    return commands
