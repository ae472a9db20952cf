"""`git ckpt hook agent` answers `{}`, ends with 0, and records turns and guards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Store
from tests.agents.hook_calls import SESSION, bash, call_hook, send
from tests.conftest import Checkout


def labels(at: Checkout) -> list[str]:
    with Store.open(at.path) as store:
        return [entry.label for entry in reversed(store.list())]


def test_a_turn_is_recorded_before_and_after_it(checkout: Checkout) -> None:
    assert call_hook("UserPromptSubmit", checkout, prompt="Add a login\nplease") == {}
    checkout.write("login.py", "print('login')\n")
    assert call_hook("Stop", checkout) == {}
    with Store.open(checkout.path) as store:
        after, before = store.list()
        assert (before.label, before.message) == ("turn-1-started", "Add a login")
        assert (after.label, after.agent) == ("turn-1-complete", "claude")
        assert before.run == after.run is not None
        assert str(after.run).endswith("-claude-add-a-login")
        state = store.read(after.id).state
        assert (state["session"], state["prompt"]) == (SESSION, "Add a login\nplease")
        assert b"+print('login')" in store.diff(before.id, after.id)


def test_a_destructive_command_is_preceded_by_a_checkpoint_and_the_agent_is_told(
    checkout: Checkout,
) -> None:
    call_hook("UserPromptSubmit", checkout, prompt="Tidy up")
    checkout.write("draft.txt", "not committed\n")
    answer = call_hook("PreToolUse", checkout, **bash("git reset --hard && git clean -fd"))
    (checkout.path / "draft.txt").unlink()
    with Store.open(checkout.path) as store:
        guard = store.list()[0]
        assert (guard.label, guard.trigger) == ("turn-1-progress", "guard")
        assert guard.id[:8] in answer["hookSpecificOutput"]["additionalContext"]
        store.restore(guard.id)
    assert (checkout.path / "draft.txt").read_text() == "not committed\n"


def test_without_a_change_a_turn_is_noted_and_a_guard_records_nothing(checkout: Checkout) -> None:
    checkout.write("README", "changed\n")
    call_hook("UserPromptSubmit", checkout, prompt="Explain")
    trees = checkout.refs("refs/ckpt/trees")
    assert call_hook("PreToolUse", checkout, **bash("make test")) == {}
    call_hook("Stop", checkout)
    assert labels(checkout) == ["turn-1-started", "turn-1-complete"]
    assert set(checkout.refs("refs/ckpt/trees").values()) == set(trees.values())


def test_the_agent_is_told_of_the_last_checkpoint_before_a_destructive_command(
    checkout: Checkout,
) -> None:
    call_hook("PreToolUse", checkout, **bash("git clean -fd"))
    checkout.write("README", "changed\n")
    call_hook("UserPromptSubmit", checkout, prompt="Tidy up")
    answer = call_hook("PreToolUse", checkout, **bash("cd . && git reset --hard"))
    with Store.open(checkout.path) as store:
        (begin,) = store.list()
    advice = f"the files are saved as {begin.id[:8]}; to undo the command: git ckpt restore"
    assert advice in answer["hookSpecificOutput"]["additionalContext"]


def test_commands_that_only_read_are_let_through_without_a_look(checkout: Checkout) -> None:
    checkout.write("README", "changed\n")
    assert call_hook("PreToolUse", checkout, **bash("git status --short")) == {}
    assert labels(checkout) == []


@pytest.mark.long
def test_the_end_of_a_session_closes_an_interrupted_turn(checkout: Checkout) -> None:
    """After an error of the model's server, Claude Code sends SessionEnd without Stop."""
    call_hook("UserPromptSubmit", checkout, prompt="one")
    call_hook("SessionEnd", checkout, reason="other")
    call_hook("SessionEnd", checkout, reason="other")
    call_hook("UserPromptSubmit", checkout, prompt="two")
    call_hook("Stop", checkout)
    call_hook("SessionEnd", checkout, reason="exit")
    assert labels(checkout) == [
        *("turn-1-started", "turn-1-partial"),
        *("turn-2-started", "turn-2-complete"),
    ]


def test_sessions_are_no_unfinished_runs(checkout: Checkout) -> None:
    call_hook("UserPromptSubmit", checkout, prompt="one")
    with Store.open(checkout.path) as store:
        assert len(store.runs()) == 1
        assert store.unfinished_runs() == []
        assert store.latest_resumable() is None


@pytest.mark.parametrize("variable", ["CKPT_RUN", "GITCKPT_SKIP"])
def test_nothing_is_recorded_for_the_agent_of_a_driver(checkout: Checkout, variable: str) -> None:
    call_hook("UserPromptSubmit", checkout, prompt="one", env={variable: "1"})
    assert labels(checkout) == []


def test_a_subagent_has_no_turns(checkout: Checkout) -> None:
    call_hook("UserPromptSubmit", checkout, prompt="one", agent_id="a40e6f076b3eda946")
    call_hook("SubagentStop", checkout, agent_id="a40e6f076b3eda946")
    assert labels(checkout) == []


def test_commands_of_a_subagent_are_guarded(checkout: Checkout) -> None:
    checkout.write("draft.txt", "draft\n")
    call_hook("PreToolUse", checkout, agent_id="a40e6f076b3eda946", **bash("git clean -fd"))
    assert labels(checkout) == ["turn-0-progress"]


def test_a_lone_surrogate_does_not_switch_the_guard_off(checkout: Checkout) -> None:
    checkout.write("draft.txt", "draft\n")
    call_hook("PreToolUse", checkout, **bash("rm -rf . # \ud83d"))
    assert labels(checkout) == ["turn-0-progress"]


def test_secrets_in_prompts_and_commands_are_masked(checkout: Checkout) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    call_hook("UserPromptSubmit", checkout, prompt=f"use the token {secret} now")
    checkout.write("draft.txt", "draft\n")
    call_hook("PreToolUse", checkout, **bash(f"TOKEN={secret} rm -rf src"))
    refs = checkout.git("for-each-ref", "refs/checkpoints", "refs/ckpt/runs")
    assert secret.lower()[4:20] not in refs
    with Store.open(checkout.path) as store:
        for entry in store.list():
            assert secret not in store.raw(entry.id).decode()


@pytest.mark.long
@pytest.mark.parametrize(
    "payload",
    [
        {"session_id": "../../x"},
        {"session_id": "a" * 10_000},
        {"session_id": "\ud800"},
        {"prompt": "\x1b[2J\x1b]0;owned\x07 \u202e text"},
        {"prompt": ["no", "text"]},
        {"prompt": "x" * 10_000_000},
        {"transcript_path": "/dev/zero"},
        {"transcript_path": "\0"},
        {"model": {"a": 1}},
    ],
    ids=lambda payload: next(iter(payload)),
)
def test_hostile_values_are_data(checkout: Checkout, payload: dict[str, Any]) -> None:
    call_hook("UserPromptSubmit", checkout, **{"prompt": "one", **payload})
    call_hook("Stop", checkout, **payload)
    with Store.open(checkout.path) as store:
        entries = store.list()
        assert [entry.label for entry in entries] == ["turn-1-complete", "turn-1-started"]
        assert all(str(entry.message).isprintable() for entry in entries)
        assert all(str(entry.run).replace("-", "").isalnum() for entry in entries)
        assert store.verify().findings == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no JSON",
        b"[1, 2]",
        b"\xff\xfe",
        b"{" * 100_000,
        b"0" * (17 << 20),
        json.dumps({"hook_event_name": "Stop"}).encode(),
        json.dumps({"hook_event_name": "Stop", "session_id": "a", "cwd": "relative"}).encode(),
        json.dumps({"hook_event_name": "Stop", "session_id": "a", "cwd": "/missing"}).encode(),
        json.dumps({"hook_event_name": "Stop", "session_id": "a", "cwd": "/etc/passwd"}).encode(),
    ],
    ids=range(10),
)
def test_what_is_no_event_is_answered_and_ignored(checkout: Checkout, data: bytes) -> None:
    assert send(data) == {}
    assert labels(checkout) == []


def test_outside_of_a_repository_nothing_happens(tmp_path: Path) -> None:
    directory = tmp_path / "plain"
    directory.mkdir()
    assert call_hook("UserPromptSubmit", Checkout(directory), prompt="one") == {}
    assert list(directory.iterdir()) == []


def test_a_failure_is_logged_and_the_agent_goes_on(main_checkout: Checkout) -> None:
    main_checkout.write(".git/HEAD", f"{'1' * 40}\n")
    assert call_hook("UserPromptSubmit", main_checkout, prompt="secret words") == {}
    log = (main_checkout.path / ".git/ckpt/log").read_text()
    assert "agent claude: prompt:" in log
    assert "secret words" not in log
