"""`git ckpt agent` installs hooks; `git ckpt turns` and `diff` show what turns did."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.agents.hook_calls import SESSION, bash, call_hook
from tests.cli.conftest import Ckpt, normal
from tests.conftest import Checkout

FILES = {
    "claude": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "opencode": ".opencode/plugin/gitckpt.js",
}
OWN_FILES = {**FILES, "claude": ".claude/settings.local.json"}


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("scope", ["local", "project", "user"])
def test_install_and_uninstall_leave_no_trace(
    ckpt: Ckpt,
    checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    client: str,
    scope: str,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    options = [] if scope == "local" else [f"--{scope}"]
    top = tmp_path if scope == "user" else checkout.path
    name = (OWN_FILES if scope == "local" else FILES)[client]
    if scope == "user":
        name = name.replace(".opencode", ".config/opencode")
    excluded = checkout.path / checkout.git("rev-parse", "--git-path", "info/exclude")
    excluded.parent.mkdir(exist_ok=True)
    excluded.write_text("mine")
    assert ckpt("agent", "install", client, *options, at=checkout).code == 0
    text = (top / name).read_text()
    assert "hook agent" in text or '"hook", "agent"' in text
    again = ckpt("agent", "install", client, *options, at=checkout)
    assert "already installed" in again.err
    status = ckpt("agent", "status", client, at=checkout).out.splitlines()
    states = {line.split("\t")[1]: line.split("\t")[2] for line in status}
    listed = scope if scope in states else "project"
    assert states == {name: "installed" if name == listed else "none" for name in states}
    assert ckpt("agent", "uninstall", client, *options, at=checkout).code == 0
    assert not (top / name).exists()
    assert excluded.read_text() == "mine"


def test_git_clean_and_reset_leave_the_hooks(ckpt: Ckpt, checkout: Checkout) -> None:
    ckpt("agent", "install", *FILES, at=checkout)
    assert checkout.git("status", "--porcelain") == ""
    checkout.git("reset", "-q", "--hard")
    checkout.git("clean", "-fdq")
    for name in OWN_FILES.values():
        assert (checkout.path / name).exists()


def test_hooks_that_git_would_remove_are_to_be_committed(ckpt: Ckpt, checkout: Checkout) -> None:
    checkout.commit("settings", **{".gemini/settings.json": "{}\n"})
    tracked = ckpt("agent", "install", "gemini", at=checkout)
    shared = ckpt("agent", "install", "claude", "--project", at=checkout)
    assert "gemini: commit .gemini/settings.json, so that git keeps the hooks" in tracked.err
    assert "claude: commit .claude/settings.json, so that git keeps the hooks" in shared.err


def test_hooks_are_installed_in_one_place(ckpt: Ckpt, checkout: Checkout) -> None:
    ckpt("agent", "install", "claude", at=checkout)
    again = ckpt("agent", "install", "claude", "--project", at=checkout)
    assert "claude: already installed in .claude/settings.local.json" in again.err
    assert not (checkout.path / ".claude/settings.json").exists()


def test_settings_of_the_user_are_kept(ckpt: Ckpt, checkout: Checkout) -> None:
    text = '{\n  // mine\n  "permissions": {"allow": ["Bash(ls)"]},\n}\n'
    settings = checkout.write(".claude/settings.json", text)
    settings.chmod(0o600)
    preview = ckpt("agent", "install", "claude", "--project", "--dry-run", at=checkout)
    assert "UserPromptSubmit" in preview.out
    assert settings.read_text() == text
    ckpt("agent", "install", "claude", "--project", at=checkout)
    assert "// mine" in settings.read_text()
    assert settings.stat().st_mode & 0o777 == 0o600
    ckpt("agent", "uninstall", "claude", "--project", at=checkout)
    assert settings.read_text() == text


def test_a_file_that_is_not_json_stays_as_it_is(ckpt: Ckpt, checkout: Checkout) -> None:
    settings = checkout.write(".claude/settings.json", "not JSON")
    done = ckpt("agent", "install", "claude", "--project", at=checkout)
    assert (done.code, settings.read_text()) == (2, "not JSON")
    assert ".claude/settings.json is not JSON" in done.err


def test_an_unknown_client_is_an_error(ckpt: Ckpt, checkout: Checkout) -> None:
    done = ckpt("agent", "install", "aider", at=checkout)
    assert done.code == 2
    assert "git ckpt watch -- COMMAND" in done.err


def test_turns_show_prompt_files_and_guards(ckpt: Ckpt, checkout: Checkout) -> None:
    call_hook("UserPromptSubmit", checkout, prompt="Add a login")
    checkout.write("login.py", "one\ntwo\n")
    call_hook("PreToolUse", checkout, **bash("python3 fix.py"))
    checkout.write("README", "")
    call_hook("Stop", checkout)
    call_hook("UserPromptSubmit", checkout, prompt="Explain")
    call_hook("Stop", checkout)
    lines = normal(ckpt("turns", at=checkout).out).splitlines()
    assert lines == [
        "STAMP-claude-add-a-login:2\tTIME\tclaude\t-\t-\tExplain",
        "STAMP-claude-add-a-login:1\tTIME\tclaude\t2 +2 -1\t1\tAdd a login",
    ]
    patch = ckpt("diff", "add-a-login:1", at=checkout).out
    assert "+one" in patch
    assert "state" not in patch
    assert ckpt("diff", f"{SESSION}:2", at=checkout).out == ""
    turns = json.loads(ckpt("turns", SESSION, "--json", at=checkout).out)["turns"]
    assert [turn["status"] for turn in turns] == ["complete", "complete"]
    assert turns[1]["files"] == [
        {"path": "README", "added": 0, "removed": 1},
        {"path": "login.py", "added": 2, "removed": 0},
    ]
    assert turns[1]["guards"][0]["message"] == "before: python3 fix.py"


def test_the_status_of_a_session_leads_to_its_turns(ckpt: Ckpt, checkout: Checkout) -> None:
    call_hook("UserPromptSubmit", checkout, prompt="Add a login")
    run = ckpt("runs", at=checkout).out.split("\t")[0]
    assert f"git ckpt turns {run}" in ckpt("status", run, at=checkout).out


def test_a_turn_that_does_not_exist_is_an_error(ckpt: Ckpt, checkout: Checkout) -> None:
    call_hook("UserPromptSubmit", checkout, prompt="Add a login")
    missing = ckpt("diff", "login:7", at=checkout)
    assert missing.code != 0
    assert "has no turn 7" in missing.err
    assert "no session 'other'" in ckpt("turns", "other", at=checkout).err


def test_save_if_changed_records_each_state_once(ckpt: Ckpt, checkout: Checkout) -> None:
    checkout.write("README", "changed\n")
    first = ckpt("save", "--if-changed", at=checkout).out
    time.sleep(0.05)
    again = ckpt("save", "--if-changed", at=checkout)
    assert again.out == first
    assert "nothing has changed" in again.err
    checkout.write("new.txt", "new\n")
    second = ckpt("save", "--if-changed", at=checkout).out
    checkout.git("add", "new.txt")
    third = ckpt("save", "--if-changed", at=checkout).out
    checkout.git("commit", "-q", "-a", "-m", "all")
    fourth = ckpt("save", "--if-changed", at=checkout).out
    assert len({first, second, third, fourth}) == 4
    assert ckpt("save", "--if-changed", at=checkout).out == fourth
    assert ckpt("save", "--if-changed", "--state", "x.json", at=checkout).code != 0
