"""Each answer of docs/howto.md works in a repository after a week of use."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gitckpt import Store
from gitckpt.model import times
from tests.conftest import Checkout
from tests.stores import DAY, SECOND, open_store
from tests.test_readme import BLOCK, ROOT, commands

PAGE = (ROOT / "docs" / "howto.md").read_text()
SECTION = re.compile(r"^\*\*(\d+)\. .*?(?=^\*\*\d+\. |^## |\Z)", re.MULTILINE | re.DOTALL)
ANSWERS = {
    int(section[1]): [
        command for _, block in BLOCK.findall(section[0]) for command, _ in commands(block)
    ]
    for section in SECTION.finditer(PAGE)
}
SETTINGS = """\
[pipelines.add-login]
phases = [{name = "build", run = "echo 'def login(): ...' >src/login.py"}]
"""
TURN = (
    {"hook_event_name": "UserPromptSubmit", "prompt": "Fix the typo"},
    {"hook_event_name": "Stop"},
)
MINUTE = 60 * SECOND

# Question -> pattern of the output that answers it. The others are answered by the files.
OUTPUTS = {
    1: r"every commit records a checkpoint",
    2: r"saved manual-complete with uncommitted changes",
    4: r"src/app\.py +\| +\d",
    5: r"(?m)^\+now",
    9: r"nothing is wrong",
    10: r"claude",
    12: r"(?s)the previous files.*[0-9a-f]{8}",
    13: r"^[0-9a-f]+ [^\n]*set up the project\n$",
    15: r"checkpoints",
    16: r"(?s)before the refactoring.*20\d\d-\d\d-\d\d",
    17: r"nothing is wrong",
    19: r"run \S+-add-login is complete",
    21: r"fix-the-typo",
    22: r"(?s)\+twenty.*before the refactoring",
    23: r"(?s)before the refactoring.*\+def login",
    26: r"checkpoints",
    27: r"(?s)old login.*restore.*gitckpt\.toml:2.*last good",
    30: r'"checkpoints"',
    31: r"^$",
    32: r"build",
    33: r"saved manual-complete",
}
STATUSES = {10: 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("howto")


@pytest.fixture
def week(place: Path) -> Checkout:
    """Return a repository with checkpoints, a run, a session, a clone and a remote."""
    work, pristine = place / "work", place / "pristine"
    if not pristine.exists():
        shutil.rmtree(work, ignore_errors=True)
        _build_week(work)
        shutil.copytree(work, pristine, symlinks=True)
    shutil.rmtree(work)
    shutil.copytree(pristine, work, symlinks=True)
    return Checkout(work / "project")


def _build_week(work: Path) -> None:
    checkout = Checkout(work / "project")
    checkout.path.mkdir(parents=True)
    checkout.git("init", "--quiet")
    app, login, toml = "src/app.py", "src/login.py", "gitckpt.toml"
    checkout.commit("set up the project", **{app: "one\n", login: "old login\n", toml: SETTINGS})
    now = times.now()
    with open_store(checkout) as store:
        _save_at(store, now - 3 * DAY, "first draft")
    checkout.write("notes.md", "untracked\n")
    checkout.write("plan.md", "# Plan\n")
    checkout.write("Makefile", "all:\n\ttrue\n")
    checkout.write(app, "one\ntwenty\n")
    with open_store(checkout) as store:
        _save_at(store, now - 25 * MINUTE, "before the refactoring")
    checkout.write(app, "one\ntwenty\nfive\n")
    checkout.write(login, "broken\n")
    with open_store(checkout) as store:
        _save_at(store, now - 5 * MINUTE, "after it")
    _run(["git", "ckpt", "-q", "init"], checkout)
    _run(["git", "ckpt", "-q", "run", "add-login"], checkout)
    for payload in TURN:
        document = json.dumps({"session_id": "s", "cwd": str(checkout.path), **payload})
        _run(["git", "ckpt", "hook", "agent", "claude"], checkout, document)
    for _ in range(2):
        checkout.write(app, f"{checkout.path.joinpath(app).read_text()}now\n")
        _run(["git", "ckpt", "-q", "restore", "latest"], checkout)
    checkout.write(app, "one\ntwenty\nnow\n")
    checkout.write(login, "old login\n")
    for name, options in (("origin", ["--bare"]), ("clone", [])):
        checkout.git("clone", "--quiet", *options, ".", str(work / name))
    checkout.git("remote", "add", "origin", str(work / "origin"))


def _save_at(store: Store, instant: int, message: str) -> None:
    from tests.stores import set_clock

    set_clock(store, lambda: instant)
    store.save("manual-complete", message=message)


def _run(words: list[str], checkout: Checkout, data: str = "") -> None:
    environment = {**os.environ, "PATH": _path(checkout)}
    subprocess.run(
        words, cwd=checkout.path, input=data, text=True, env=environment, check=True, stdout=-3
    )


def _path(checkout: Checkout) -> str:
    """Return a PATH with a `git-ckpt` that runs this code."""
    directory = checkout.path.parent / "bin"
    program = directory / "git-ckpt"
    if not program.exists():
        directory.mkdir(exist_ok=True)
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m gitckpt "$@"\n'
        )
        program.chmod(0o755)
    return f"{directory}:/usr/local/bin:/usr/bin:/bin"


def test_every_question_has_an_answer() -> None:
    assert list(ANSWERS) == list(range(1, 34))
    assert {
        number: len(lines) for number, lines in ANSWERS.items() if not 1 <= len(lines) <= 2
    } == {}


@pytest.mark.long
@pytest.mark.parametrize("number", ANSWERS)
def test_answer(number: int, week: Checkout) -> None:
    with Store.open(week.path) as store:
        (chosen,) = (each for each in store.list() if each.message == "before the refactoring")
    script = re.sub(r"\bID\b", chosen.id[:8], "".join(ANSWERS[number]))
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=week.path,
        env={**os.environ, "PATH": _path(week)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == STATUSES.get(number, 0), done.stdout
    if number in OUTPUTS:
        assert re.search(OUTPUTS[number], done.stdout), done.stdout
    else:
        assert _is_answered(number, week), done.stdout


def _is_answered(number: int, week: Checkout) -> bool:
    app = week.path.joinpath("src/app.py").read_text()
    login = week.path.joinpath("src/login.py").read_text()
    refs = week.git("for-each-ref", "refs/checkpoints", "refs/ckpt", "refs/keep")
    match number:
        case 3:
            return app == "one\ntwenty\n" and login == "old login\n"
        case 6:
            return app == "one\ntwenty\n"
        case 7:
            return app == "one\ntwenty\nnow\n"
        case 8:
            branch = week.git("branch", "--show-current")
            return (branch, login) == ("login", "def login(): ...\n") and "add-login" not in refs
        case 11:
            return "/build/" in week.path.joinpath(".gitignore").read_text()
        case 14 | 25:
            other = Checkout(week.path.parent / ("clone" if number == 14 else "origin"))
            listed = other.git("for-each-ref", "refs/checkpoints", "--format=%(refname)")
            return listed == week.git("for-each-ref", "refs/checkpoints", "--format=%(refname)")
        case 18:
            return True  # tests/cli/test_completion.py tries the script in real shells
        case 20:
            return week.path.joinpath(".git/hooks/post-commit").exists()
        case 24:
            return login == "def login(): ...\n" and app == "one\ntwenty\nnow\n"
        case 28:
            return "refs/ckpt/tags/before-refactoring" in refs and "refs/ckpt/pins/" in refs
        case 29:
            return not refs and not week.path.joinpath(".git/ckpt").exists()
    return False
