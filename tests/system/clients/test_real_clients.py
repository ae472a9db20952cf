"""Real clients work through loop, review, kill and resume (`./dev clients`)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from tests.conftest import Checkout
from tests.system.clients.client_kit import CLIENTS_VARIABLE, KITS
from tests.system.clients.conftest import LIMIT, Bench
from tests.system.clients.model_server import INPUT_TOKENS, Turn

pytestmark = pytest.mark.client

QUICK = ("claude", "codex")
"""The clients that answer within two seconds; every test runs with them."""

TASK = "LOOP TASK"
TESTS = "test -f one.txt && test -f two.txt || { echo two.txt is missing; exit 1; }"
APPROVED = (
    "APPROVED: fine\n\nREPORT:\nSATISFACTION: high\nRISK: low\nNEEDS_HUMAN_REVIEW: no\n"
    "SUMMARY: done"
)
REJECTED = (
    "ISSUE:\nSEVERITY: major\nDESCRIPTION: two.txt is to be there, too\n\nREPORT:\n"
    "SATISFACTION: low\nSUMMARY: not yet"
)

SESSIONS = {
    "claude": ".claude/projects",
    "codex": ".codex",
    "gemini": ".gemini/tmp",
    "opencode": ".local/share/opencode",
}
"""The directory of conversations in the home of each client."""


def loop(desk: Bench, *more: str) -> tuple[str, ...]:
    """Return the words that start a loop; its tests want two files."""
    prompt = desk.home / "template.txt"
    prompt.write_text(f"{TASK}: do what is missing in $plan.\n$failure\n")
    words = (
        "loop",
        "plan.md",
        "--agent",
        desk.kit.command,
        "--prompt",
        str(prompt),
        "--until-tests-pass",
        "--tests",
        TESTS,
    )
    return (*words, "--pause", "0s", *more)


def worktree(desk: Bench, run: str) -> Path:
    return Path(desk.call("resume", "--no-run", run)[0].strip())


def price(desk: Bench) -> None:
    """Set a price for the client's tokens: a model without a name has none."""
    desk.checkout.commit(
        "a price",
        **{"gitckpt.toml": f"[agents.{desk.kit.name}.price]\ninput = 100\noutput = 100\n"},
    )


def test_loop_kill_and_resume(desk: Bench) -> None:
    """After a kill in the second call, the third call knows of it and ends the loop.

    The first call has written a file.
    """
    kit, models = desk.kit, desk.models
    price(desk)
    half = [kit.shell("echo half > half.txt")] if kit.shell else []
    models.scripts = {
        TASK: kit.writes("one.txt", "1"),
        "two.txt is missing": [*half, Turn(hold=True)],
        "This is attempt 2": kit.writes("two.txt", "$CKPT_RESUMED $CKPT_ATTEMPT"),
    }
    driver = desk.begin(*loop(desk))
    desk.wait_for_hold(driver)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate(timeout=LIMIT)
    desk.wait_for_end()

    run = desk.call("resume")[0].split()[0]
    tree = worktree(desk, run)
    assert (tree / "two.txt").read_text() == (
        "1 2\n" if kit.shell else "$CKPT_RESUMED $CKPT_ATTEMPT\n"
    )
    assert not (tree / "half.txt").exists(), "the iteration began with the files as they were"
    told = models.prompts("This is attempt 2")[-1]
    assert "an earlier one was interrupted. It changed no file" in told
    memory = desk.state(run)["loop"]
    assert (memory["iterations"], memory["tests"]) == (2, "passed")
    assert memory["tokens"]["input"] >= 2 * INPUT_TOKENS
    assert memory["cost_usd"] > 0
    assert bool(memory["session"]) is kit.has_sessions


@pytest.mark.long(but=QUICK)
def test_review(desk: Bench) -> None:
    """The coder writes a file, and the reviewer approves it."""
    kit, models = desk.kit, desk.models
    models.scripts = {
        "Implement this task.": kit.writes("one.txt", "1"),
        "REVIEW INSTRUCTIONS": [Turn(APPROVED)],
    }
    run = desk.call("review", "Write files", "--coder", kit.command, "--reviewer", kit.command)[
        0
    ].split()[0]
    tree = worktree(desk, run)
    assert (tree / "one.txt").read_text() == "1\n"
    assert desk.state(run)["review"]["cycle"] == 1


@pytest.mark.long(but=QUICK)
def test_review_that_goes_on(desk: Bench) -> None:
    """The reviewer approves the coder's second try, in the same conversation."""
    kit, models = desk.kit, desk.models
    models.scripts = {
        "Implement this task.": kit.writes("one.txt", "1"),
        "two.txt is to be there, too": kit.writes("two.txt", "2"),
        "REVIEW INSTRUCTIONS": [Turn(REJECTED)],
        "[PRIOR FINDINGS]": [Turn(APPROVED)],
    }
    run = desk.call("review", "Write files", "--coder", kit.command, "--reviewer", kit.command)[
        0
    ].split()[0]
    tree = worktree(desk, run)
    assert [(tree / name).read_text() for name in ("one.txt", "two.txt")] == ["1\n", "2\n"]
    assert desk.state(run)["review"]["cycle"] == 2


@pytest.mark.long(but=QUICK)
def test_plan_to_pr(desk: Bench, tmp_path: Path) -> None:
    """A phase's checkpoint has the agent's tokens and conversation; work is pushed."""
    kit, remote = desk.kit, tmp_path / "remote.git"
    desk.checkout.git("init", "--quiet", "--bare", str(remote))
    desk.checkout.git("remote", "add", "origin", str(remote))
    desk.models.scripts = {"two.txt is there.": kit.writes("two.txt", "2")}
    run = desk.call(
        "run", "plan.md", "-i", f"agent={kit.command}", "-i", "pr=echo https://example.org/7 #"
    )[0].split()[0]
    assert desk.checkout.git("--git-dir", str(remote), "show", "forge/plan:two.txt") == "2"
    assert desk.state(run)["pr_number"] == 7
    listed = json.loads(desk.call("list", "--run", run, "--json")[0])
    (agent,) = [
        each["id"] for each in listed["checkpoints"] if each["label"] == "run agent-complete"
    ]
    result = json.loads(json.loads(desk.call("show", agent, "--json")[0])["attempt"]["result"])
    assert result["tokens"]["input"] >= INPUT_TOKENS
    assert bool(result.get("session")) is kit.has_sessions


@pytest.mark.long(but=QUICK)
def test_conversation_that_is_forgotten(desk: Bench) -> None:
    """The third call starts a new conversation when the client has lost the old one."""
    kit, models = desk.kit, desk.models
    if not kit.has_sessions:
        pytest.skip(f"{kit.name} has no conversations to go on with")
    where = desk.home / SESSIONS[kit.name]
    models.scripts = {
        TASK: kit.writes("one.txt", "1"),
        "two.txt is missing": kit.writes("three.txt", "3"),
    }
    desk.call(*loop(desk, "--conversation", "continue", "--max-iterations", "2"), code=20)
    going_on = [each for each in models.requests if each.key == "two.txt is missing"]
    assert [
        message.text
        for message in going_on[0].messages
        if TASK in message.text and not message.by_model
    ][:1] != [
        message.text for message in going_on[0].messages if "two.txt is missing" in message.text
    ], "the second call began a new conversation"
    shutil.rmtree(where)
    desk.kit.settle(desk.home, models.url)  # Codex has its settings in the deleted directory
    models.scripts["two.txt is missing"] = kit.writes("two.txt", "2")
    out, err = desk.call("resume")
    assert ": a new one begins" in err
    assert desk.state(out.split()[0])["loop"]["iterations"] == 3


@pytest.mark.long(but=QUICK)
def test_key_that_is_refused(desk: Bench) -> None:
    """The loop ends at once with the client's message, and tries nothing again."""
    desk.models.scripts = {TASK: [Turn(status=401, message="invalid x-api-key")]}
    _, err = desk.call(*loop(desk), code=4)
    assert f"cannot use {desk.kit.name}: {desk.kit.name} failed" in err
    assert "iteration 2" not in err


def only(name: str) -> pytest.MarkDecorator:
    """Return the mark that lets a test drive one client."""
    return pytest.mark.parametrize(
        "kit", [kit for kit in KITS if kit.name == name], ids=[name], indirect=True
    )


@only("claude")
def test_claude_at_a_limit(desk: Bench) -> None:
    """The loop shows Claude's own retry, waits as told, and spends no iteration.

    Claude calls its server twice before it gives up.
    """
    limit = Turn(status=429, message="slow down, try again in 1 seconds", times=2)
    desk.models.scripts = (
        {TASK: [limit, desk.kit.shell("echo 1 | tee one.txt > two.txt")]} if desk.kit.shell else {}
    )
    out, err = desk.call(*loop(desk))
    assert "the model is called again, attempt 1 of 1: rate_limit" in err
    assert "limited: the next call is at" in err
    assert desk.state(out.split()[0])["loop"]["iterations"] == 1


@only("claude")
def test_claude_that_hangs_at_its_server(desk: Bench) -> None:
    """Claude's reports of retries count as silence, so the time limit ends it."""
    desk.env["CLAUDE_CODE_MAX_RETRIES"] = "100"
    desk.models.scripts = {TASK: [Turn(status=500, message="no")]}
    _, err = desk.call(*loop(desk, "--idle-timeout", "3s", "--max-iterations", "1"), code=20)
    assert "the model is called again, attempt 2 of " in err
    assert "claude was ended: no output for more than 3s" in err


@only("claude")
def test_claude_that_is_not_allowed_what_it_wants(desk: Bench) -> None:
    assert desk.kit.shell is not None
    desk.models.scripts = {TASK: [desk.kit.shell("touch one.txt two.txt"), Turn("I may not.")]}
    command = "claude -p --output-format stream-json --verbose"
    words = [command if word == desk.kit.command else word for word in loop(desk)]
    _, err = desk.call(*words, code=4)
    assert err.count("not allowed: Bash: touch one.txt two.txt") == 3
    assert "claude was denied a permission 3 times in a row" in err
    assert "--allowedTools" in err


@only("claude")
def test_claude_with_a_budget(desk: Bench) -> None:
    """Claude gets the rest of the budget, keeps to it, and the loop ends."""
    assert desk.kit.shell is not None
    desk.models.scripts = {TASK: [desk.kit.shell("echo again")] * 50}
    out, err = desk.call(*loop(desk, "--max-budget", "0.01"), code=20)
    assert "the limit of costs was reached" in err or "budget" in err
    memory = desk.state(out.split()[0])["loop"]
    assert memory["cost_usd"] >= memory["max_budget_usd"] == 0.01


@only("codex")
def test_step_inside_of_the_sandbox_of_codex(desk: Bench, request: pytest.FixtureRequest) -> None:
    """The documented options let a step be recorded; without, the error names them."""
    assert desk.kit.shell is not None
    # The directory of a test is where the sandbox allows every write, or shows nothing.
    place = Path(tempfile.mkdtemp(prefix="sandboxed-", dir=os.environ[CLIENTS_VARIABLE]))
    request.addfinalizer(lambda: shutil.rmtree(place))
    desk.checkout = Checkout(Path(shutil.copytree(desk.checkout.path, place / "project")))
    git = json.dumps(str(desk.checkout.path / ".git"))
    desk.checkout.git("config", "alias.ckpt", f"!{shutil.which('git-ckpt', path=desk.env['PATH'])}")
    steps = "git ckpt step start PLAN --track t > one.txt 2>&1; cp one.txt two.txt; true"
    desk.models.scripts = {TASK: [desk.kit.shell(steps), Turn("I tried.")]}
    sandbox = "--sandbox workspace-write " + " ".join(
        f"-c sandbox_workspace_write.{each}=true"
        for each in ("exclude_tmpdir_env_var", "exclude_slash_tmp")
    )
    for options, is_refused in (
        (sandbox, True),
        (f"{sandbox} -c 'sandbox_workspace_write.writable_roots=[{git}]'", False),
    ):
        words = [
            f"codex exec --json {options} -" if word == desk.kit.command else word
            for word in loop(desk)
        ]
        out, _ = desk.call(*words)
        answer = (worktree(desk, out.split()[0]) / "one.txt").read_text()
        assert ("writable_roots" in answer) is is_refused, answer
        assert ("error" in answer) is is_refused, answer
