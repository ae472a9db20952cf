"""Real clients call the hooks of `git ckpt agent install` (`./dev clients`)."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Checkout
from tests.system.clients.conftest import LIMIT, Bench
from tests.system.clients.model_server import Turn

pytestmark = pytest.mark.client

HOOK_OPTIONS = {"codex": "--dangerously-bypass-hook-trust"}
"""A person trusts hooks in the client's own dialog; there is none in these tests."""

RESUME = {"claude": "--resume {}", "codex": "resume {}", "opencode": "--session {}"}
"""The options that continue a conversation, before a final `-`."""

MERGE = "git -c user.name=A -c user.email=a@example.com merge -q other"
"""Ends with a conflict in plan.md. Gemini CLI keeps git's variables from its tools."""

DESTROY = "git reset -q --hard && git clean -fdq"


def ask(desk: Bench, prompt: str, session: str | None = None) -> None:
    """Have the client answer one prompt, in a new conversation or in that of `session`."""
    words = shlex.split(desk.kit.options)
    stdin = desk.kit.name != "opencode"
    dash = [words.pop()] if words[-1] == "-" else []
    words += shlex.split(HOOK_OPTIONS.get(desk.kit.name, ""))
    if session is not None and desk.kit.name in RESUME:
        words += RESUME[desk.kit.name].format(session).split()
    done = subprocess.run(
        [desk.kit.name, *words, *dash, *([] if stdin else [prompt])],
        cwd=desk.checkout.path,
        env=desk.env,
        input=prompt if stdin else "",
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def listed(desk: Bench) -> list[dict[str, Any]]:
    """Return the turns, oldest first."""
    turns: list[dict[str, Any]] = json.loads(desk.call("turns", "--json")[0])["turns"]
    return turns[::-1]


def files(checkout: Checkout) -> dict[str, str]:
    """Return the content of all files of a worktree, its index and the commit that it merges.

    Without those that opencode puts beside its plugins and ignores.
    """
    found = {
        path.relative_to(checkout.path).as_posix(): path.read_text()
        for path in checkout.path.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    found.pop(".opencode/.gitignore", None)
    merge_head = checkout.path / ".git/MERGE_HEAD"
    merged = merge_head.read_text() if merge_head.exists() else ""
    return {**found, "(index)": checkout.git("ls-files", "--stage"), "(merged)": merged}


def test_every_turn_of_a_real_client_can_be_taken_back(desk: Bench) -> None:
    kit, models, checkout = desk.kit, desk.models, desk.checkout
    if kit.shell is None:
        pytest.skip("the client has no hooks")
    scope = ["--user"] if kit.name == "codex" else []
    # Codex alone is tried with the settings of the user; others write their own into these.
    own_files = [path for path in desk.home.rglob("*") if path.is_file()] if scope else []
    before_install = {path: path.read_bytes() for path in own_files}
    desk.call("agent", "install", kit.name, *scope)
    checkout.git("add", "--all")
    checkout.git("commit", "-q", "--allow-empty", "-m", "hooks of the agent")
    checkout.git("switch", "-q", "-c", "other")
    checkout.commit("theirs", **{"plan.md": "theirs\n"})
    checkout.git("switch", "-q", "-")
    checkout.commit("ours", **{"plan.md": "ours\n"})
    (checkout.path / "mine.txt").write_text("work of a person\n")

    models.scripts = {
        "TURN ONE": [
            kit.shell(f"{MERGE}; echo one > one.txt; echo staged > two.txt; git add two.txt"),
            Turn("done"),
        ],
        "TURN TWO": [
            kit.shell("echo changed >> one.txt"),
            kit.shell(DESTROY),
            kit.shell("echo after > after.txt"),
            Turn("done"),
        ],
        "TURN THREE": [Turn("nothing to do")],
    }
    states = [files(checkout)]
    ask(desk, "TURN ONE: make files")
    states.append(files(checkout))
    session = str(listed(desk)[0]["session"])
    ask(desk, "TURN TWO: tidy up", session)
    states.append(files(checkout))
    ask(desk, "TURN THREE: explain", session)

    turns = listed(desk)
    # opencode puts quotes around a prompt of several words.
    assert [turn["prompt"].splitlines()[0].strip('"') for turn in turns] == [
        "TURN ONE: make files",
        "TURN TWO: tidy up",
        "TURN THREE: explain",
    ]
    assert [turn["status"] for turn in turns] == ["complete"] * 3
    assert {turn["agent"] for turn in turns} == {kit.name}
    guarded = next(guard for guard in turns[1]["guards"] if DESTROY in guard["message"])
    assert not (checkout.path / "mine.txt").exists()

    assert files(checkout)["(merged)"] == ""
    lost = {**states[1], "one.txt": "one\nchanged\n"}
    assert lost["(merged)"] == f"{checkout.git('rev-parse', 'other')}\n"
    assert all(f" {stage}\tplan.md" in lost["(index)"] for stage in "123")
    for checkpoint, state in (
        (guarded["id"], lost),
        (turns[1]["before"], states[1]),
        (turns[0]["before"], states[0]),
        (turns[1]["after"], states[2]),
    ):
        desk.call("restore", checkpoint)
        assert files(checkout) == state

    desk.call("agent", "uninstall", kit.name, *scope)
    after = {path: path.read_bytes() for path in before_install}
    assert after == before_install
    hooks = [path for path in checkout.path.rglob("*") if is_hook_file(path)]
    assert hooks == []


def is_hook_file(path: Path) -> bool:
    return path.is_file() and ".git" not in path.parts and b"hook agent" in path.read_bytes()
