"""Compare tools: save a worktree, wreck it, restore it, and print the differences.

The worktree has a merge in progress and a change of every kind. It is wrecked as people do it:
`git merge --abort; git reset --hard; git clean -fd`. Each tool runs in a repository and a HOME of
its own, after the set-up that its documentation asks for, and restores as much as its options
allow. The exit code is 1 if gitckpt loses anything.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gitckpt.git.process import git_executable

PACKAGES = (
    "gitundo==0.1.0",
    "git-safepoint==0.0.1",
    "rewind-ai==1.1.0",
    "unedit==0.1.5",
    "stepback==0.2.0",
)
SETTLE_SECONDS = 2
"""Seconds that stepback's watcher gets to notice a change; it has no save command."""

BUILD = """
git init -qb main . && git config user.name A && git config user.email a@example.org
touch conflict staged unstaged deleted mode && git add . && git commit -qm base
git switch -qc topic && echo theirs >conflict && git commit -qam theirs
git switch -q main && echo ours >conflict && git commit -qam ours
"""
WORK = """
git merge -q topic >/dev/null && exit 1
echo staged >staged && git add staged && echo unstaged >unstaged && rm deleted && chmod +x mode
ln -s staged link && mkdir new && echo untracked >new/untracked
"""
WRECK = 'git merge --abort; git reset -q --hard; git clean -qfd; test -z "$(git status -s)"'


class Tool(NamedTuple):
    """The shell commands of one tool. `prepare` runs before the work, `save` after it."""

    name: str
    prepare: str
    save: str
    restore: str


TOOLS = (
    Tool("gitckpt", "git ckpt init", "git ckpt save", "git ckpt restore latest"),
    Tool("gitundo", "", "gitundo snap", "gitundo restore --index --hard --delete-extraneous"),
    Tool(
        "git-safepoint",
        "",
        "git-safepoint snapshot",
        "id=$(git for-each-ref --format='%(refname:lstrip=2)' refs/snapshots | tail -n 1)\n"
        "git-safepoint restore $id --all --yes; git-safepoint restore $id --all --yes --staged\n"
        "git-safepoint restore $id --all --yes",
    ),
    Tool(
        "rewind-ai",
        "rewind init && git add -A && git commit -qm config",
        "rewind snap",
        "yes | rewind jump 0",
    ),
    Tool("unedit", "echo .unedit/ >>.git/info/exclude", "unedit save", "unedit back --yes"),
    Tool(
        "stepback",
        "",
        f"stepback run -- sh -c 'sleep 1; touch new/last; sleep {SETTLE_SECONDS}'; rm -f new/last",
        "stepback rewind --yes",
    ),
    Tool("git stash -u", "", "git stash push -u", "git stash pop --index"),
    Tool(
        "git stash create",
        "",
        "git stash create >.git/id && test -s .git/id",
        "git stash apply --index $(cat .git/id)",
    ),
)


def _git(path: Path, *arguments: str) -> str:
    call = subprocess.run(
        [git_executable(), *arguments], cwd=path, capture_output=True, text=True, check=False
    )
    return call.stdout


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() and not path.is_symlink() else ""


INDEX = {"UU conflict", "M  staged", " M unstaged", " D deleted", " M mode"}

CHECKS: dict[str, Callable[[Path], bool]] = {
    "merge": lambda path: (path / ".git/MERGE_HEAD").exists(),
    "index": lambda path: set(_git(path, "status", "--porcelain").splitlines()) >= INDEX,
    "conflict": lambda path: "<<<<<<<" in _text(path / "conflict"),
    "staged": lambda path: _text(path / "staged") == "staged\n",
    "unstaged": lambda path: _text(path / "unstaged") == "unstaged\n",
    "deleted": lambda path: not (path / "deleted").exists(),
    "mode": lambda path: (
        (path / "mode").exists() and bool((path / "mode").stat().st_mode & stat.S_IXUSR)
    ),
    "link": lambda path: (path / "link").is_symlink() and os.readlink(path / "link") == "staged",
    "untracked": lambda path: _text(path / "new/untracked") == "untracked\n",
}
"""By name of a kind of change, a check that it came back.

`merge` and `index` ask git; the others read the files.
"""


def compare(tool: Tool, scratch: Path, environment: dict[str, str]) -> tuple[list[bool], str]:
    """Save, wreck and restore one worktree.

    Return which checks hold, and the last line of a command that failed, else "".
    """
    path = scratch / re.sub(r"\W", "-", tool.name)
    (path / "home").mkdir(parents=True)
    worktree = path / "worktree"
    worktree.mkdir()

    def run(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", script],
            cwd=worktree,
            env=environment | {"HOME": str(path / "home")},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    for step in (BUILD, tool.prepare, WORK):
        run(step).check_returncode()
    held_before = [holds(worktree) for holds in CHECKS.values()]
    assert all(held_before), held_before
    failure = ""
    saved = run(tool.save)
    run(WRECK)
    for call in (saved, run(tool.restore) if saved.returncode == 0 else saved):
        if call.returncode:
            lines = (call.stderr or call.stdout).strip().splitlines()
            failure = lines[-1][:60] if lines else f"exit code {call.returncode}"
    return [holds(worktree) for holds in CHECKS.values()], failure


def main() -> int:
    """Print the table as Markdown; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="gitckpt-compare-") as directory:
        scratch = Path(directory)
        venv.create(scratch / "venv", with_pip=True)
        pip = scratch / "venv/bin/pip"
        subprocess.run(
            [pip, "--disable-pip-version-check", "install", "-qq", *PACKAGES], check=True
        )
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            "PATH": f"{Path(sys.executable).parent}:{scratch / 'venv/bin'}:{os.environ['PATH']}",
            "NO_COLOR": "1",
        }
        versions = dict(package.split("==") for package in PACKAGES)
        print(f"| tool | {' | '.join(CHECKS)} | says |")
        print("|" + " --- |" * (len(CHECKS) + 2))
        complete = False
        for tool in TOOLS:
            held, failure = compare(tool, scratch, environment)
            marks = " | ".join("✓" if holds else "✗" for holds in held)
            name = f"{tool.name} {versions.get(tool.name, '')}".strip()
            print(f"| {name} | {marks} | {failure} |", flush=True)
            complete = complete or (tool.name == "gitckpt" and all(held))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
