"""An agent call: prompt, output, kept files, exit, and continued conversations."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitckpt import CkptError, UsageError, WorktreeError
from gitckpt.durable.agent import call, clients
from gitckpt.durable.agent.call import AgentAnswer, AgentReport, AgentRunner, TranscriptFile
from gitckpt.durable.agent.clients import AgentClient, TokenPrice
from gitckpt.durable.command import execution as command_module
from gitckpt.durable.command.execution import DEADLINE, EXIT, IDLE_TIMEOUT, TIMEOUT, Timeouts
from gitckpt.durable.command.watchdog import Watchdog
from tests.durable.command.commanding import comes, ends, tag

ROOT = Path(__file__).parents[3]
FAKE = ROOT / "examples" / "fake-agent"
RESUMES = {
    "claude": "--resume {session}",
    "codex": "--resume {session}",
    "gemini": "--resume {session}",
    "opencode": "--resume {session}",
    "text": "--resume {session}",
}


class Desk:
    """Call agents in a directory of their own.

    Attributes:
        work: the directory in which the agents run.
        files: the directory for prompts and outputs.
        shown: the output that all calls showed.
    """

    def __init__(self, path: Path, watchdog: Watchdog) -> None:
        self.work = path / "work"
        self.files = path / "files of the run"
        self.work.mkdir()
        self.shown = b""
        self._watchdog = watchdog

    def agent(self, client: AgentClient, **env: str) -> AgentRunner:
        return AgentRunner(
            client, str(self.work), os.environ | env, self._watchdog, str(self.files)
        )

    def ask(
        self,
        client: AgentClient,
        prompt: str = "Do it.",
        *,
        patience: Timeouts | None = None,
        **more: Any,
    ) -> AgentAnswer:
        return self.agent(client).ask_agent(
            prompt, patience=patience or Timeouts(), output=self.show, **more
        )

    def show(self, chunk: bytes) -> None:
        self.shown += chunk

    def script(self, *entries: dict[str, Any]) -> Path:
        path = self.files.parent / "script.jsonl"
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        return path

    def fake(self, name: str, *entries: dict[str, Any]) -> AgentClient:
        words = [
            sys.executable,
            "-I",
            "-S",
            str(FAKE),
            "--format",
            name,
            "--script",
            str(self.script(*entries)),
        ]
        return AgentClient("fake", shlex.join(words), format=name, resume=RESUMES[name])


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with Watchdog(tag(tmp_path)) as watchdog:
        yield Desk(tmp_path, watchdog)


def shell(command: str, **more: Any) -> AgentClient:
    return AgentClient("agent", command, **more)


# Prompts

PROMPTS = [
    'it\'s "$HOME" `id` \\n $(id) * ü\n\nand more\n',
    "",
    "-n",
    "--help me",
    "\n\n- a list\n",
    "x" * 200_000,
]


@pytest.mark.parametrize("prompt", PROMPTS, ids=range(len(PROMPTS)))
def test_prompt_by_standard_input(desk: Desk, prompt: str) -> None:
    answer = desk.ask(shell("cat"), prompt)
    assert (answer.report, answer.succeeded, answer.problem) == (AgentReport(prompt), True, "")
    assert desk.shown.decode() == prompt


@pytest.mark.parametrize("prompt", PROMPTS[:-1], ids=range(len(PROMPTS) - 1))
def test_prompt_by_argument(desk: Desk, prompt: str) -> None:
    answer = desk.ask(shell("printf '<%s>' before", prompt=clients.ARGUMENT), prompt)
    wanted = ("\n" if prompt.startswith("-") else "") + prompt.rstrip("\n")
    assert answer.report.text == f"<before><{wanted}>"


def test_longest_argument(desk: Desk) -> None:
    client = shell("printf %s", prompt=clients.ARGUMENT)
    assert desk.ask(client, "x" * call.MAX_ARGUMENT).report.text == "x" * call.MAX_ARGUMENT
    with pytest.raises(UsageError) as error:
        desk.ask(client, "ü" * (call.MAX_ARGUMENT // 2) + "x")
    assert error.value.message == "the prompt has 100001 bytes; an argument has at most 100000"
    assert error.value.hint == 'set prompt = "stdin" for the agent agent'


def test_prompt_with_a_nul(desk: Desk) -> None:
    with pytest.raises(UsageError) as error:
        desk.ask(shell("touch never"), "a\0b")
    assert error.value.message == "the prompt contains a NUL byte"
    assert list(desk.work.iterdir()) == []


def test_prompt_that_is_not_unicode(desk: Desk) -> None:
    assert desk.ask(shell("cat"), "caf\udce9").report.text == "caf?"


# Ends


@pytest.mark.parametrize(
    ("command", "code", "problem"),
    [
        ("echo fine", 0, ""),
        ("echo one; echo 'fatal: two'; echo; exit 3", 3, "agent failed: exit code 3: fatal: two"),
        (
            "echo 'Error: no credit'; echo 'see: agent help'; exit 3",
            3,
            "agent failed: exit code 3: Error: no credit",
        ),
        ("exit 1", 1, "agent failed: exit code 1"),
        ("kill -9 $$", -9, "agent failed: signal 9"),
    ],
)
def test_end_of_plain_text(desk: Desk, command: str, code: int, problem: str) -> None:
    answer = desk.ask(shell(command))
    assert (answer.code, answer.ended_by, answer.problem, answer.succeeded) == (
        code,
        EXIT,
        problem,
        not problem,
    )


def test_program_that_is_not_there(desk: Desk) -> None:
    answer = desk.ask(clients.find_client("no-such-agent", {}))
    assert answer.code == 127
    assert answer.problem.startswith("no-such-agent failed: exit code 127: ")


def test_directory_that_is_gone(desk: Desk) -> None:
    desk.work.rmdir()
    with pytest.raises(WorktreeError):
        desk.ask(shell("true"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RESUMES)
def test_success_in_each_format(desk: Desk, name: str) -> None:
    client = desk.fake(
        name,
        {
            "write": {"a/b.txt": "{call}: {prompt}"},
            "run": ["true"],
            "say": "It is done.",
            "cost": 0.25,
        },
    )
    answer = desk.ask(client, "Write it.")
    assert (answer.problem, answer.succeeded, answer.code, answer.client, answer.resumed) == (
        "",
        True,
        0,
        "fake",
        False,
    )
    assert (desk.work / "a/b.txt").read_text() == "1: Write it."
    assert answer.report.text.endswith("It is done." + ("\n" if name == "text" else ""))
    assert answer.report.session == (None if name == "text" else "fake-1")
    assert answer.report.cost_usd == (0.25 if name in ("claude", "opencode") else None)
    shown = {
        "text": "Write: a/b.txt\nBash: true\n",
        "claude": "→ Write: a/b.txt\n→ Bash: true\n",
        "codex": "→ files: a/b.txt\n→ true\n",
        "gemini": "",
        "opencode": "→ Write: a/b.txt\n→ Bash: true\n",
    }
    assert desk.shown.decode() == shown[name] + "It is done.\n" == answer.tail


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RESUMES)
@pytest.mark.parametrize(
    ("entry", "problems"),
    [
        (
            {"error": "no credit"},
            {"text": "fake failed: exit code 1: error: no credit", "": "fake failed: no credit"},
        ),
        ({"error": "no credit", "exit": 0}, {"text": "", "": "fake failed: no credit"}),
        ({"exit": 7}, {"": "fake failed: exit code 7: done"}),
        ({"cut": True}, {"text": "", "": "fake failed: the output ends before the final message"}),
        (
            {"garbage": True, "exit": 9},
            {"claude": "fake failed: exit code 9: ", "": "fake failed: exit code 9: "},
        ),
    ],
    ids=["error", "error and exit 0", "exit", "cut", "garbage"],
)
def test_failure_in_each_format(
    desk: Desk, name: str, entry: dict[str, Any], problems: dict[str, str]
) -> None:
    answer = desk.ask(desk.fake(name, entry))
    wanted = problems.get(name, problems[""])
    assert answer.problem.startswith(wanted) if "garbage" in entry else answer.problem == wanted
    assert answer.succeeded is not bool(wanted)


def test_silent_agent_is_killed_with_all_that_it_started(desk: Desk) -> None:
    command = "trap '' TERM; sleep 60 & echo $! >child; echo $$ >own; wait"
    answer = desk.ask(shell(command), patience=Timeouts(timeout=0.3, grace=0.1))
    assert (answer.ended_by, answer.problem) == (
        TIMEOUT,
        "agent was ended: the call took more than 0.3s",
    )
    assert ends(*(int((desk.work / name).read_text()) for name in ("child", "own")))


def test_agent_that_hangs(desk: Desk) -> None:
    answer = desk.ask(
        desk.fake("claude", {"hang": True}), patience=Timeouts(timeout=0.3, grace=0.1)
    )
    assert (answer.ended_by, answer.problem, answer.succeeded) == (
        TIMEOUT,
        "fake was ended: the call took more than 0.3s",
        False,
    )


@pytest.mark.parametrize(
    ("patience", "ended_by", "problem"),
    [
        (
            Timeouts(idle_timeout=0.2),
            IDLE_TIMEOUT,
            "agent was ended: no output for more than 0.2s",
        ),
        (
            Timeouts(left=0.2, timeout=5400),
            DEADLINE,
            "agent was ended: the run reached its deadline",
        ),
    ],
)
def test_other_limits(desk: Desk, patience: Timeouts, ended_by: str, problem: str) -> None:
    answer = desk.ask(shell("sleep 60"), patience=patience)
    assert (answer.ended_by, answer.problem) == (ended_by, problem)


def test_length_of_a_limit_is_written_as_in_a_pipeline() -> None:
    answer = AgentAnswer(
        AgentReport(""),
        -15,
        TIMEOUT,
        "",
        5400.0,
        "",
        resumed=False,
        client="claude",
        patience=Timeouts(timeout=5400),
    )
    assert answer.problem == "claude was ended: the call took more than 90m"


@pytest.mark.long
def test_what_a_tick_raises_ends_the_agent(desk: Desk) -> None:
    def cancel(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.ask(shell("echo $$ >own; exec sleep 60"), tick=cancel)
    assert ends(int((desk.work / "own").read_text()))


def test_agent_can_be_asked_again(desk: Desk) -> None:
    client = desk.fake("claude", {"say": "one"}, {"say": "two"})
    agent = desk.agent(client)
    said = [
        agent.ask_agent("?", patience=Timeouts(), output=desk.show).report.text for _ in range(3)
    ]
    assert said == ["one", "two", "two"]


# Conversations


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RESUMES)
def test_going_on_with_a_conversation(desk: Desk, name: str) -> None:
    client = desk.fake(name, {"say": "in {session}"})
    answer = desk.ask(client, session="abc-1")
    assert (answer.report.text.strip(), answer.resumed, answer.succeeded) == (
        "in abc-1",
        True,
        True,
    )
    assert answer.report.session == (None if name == "text" else "abc-1")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RESUMES)
def test_conversation_that_is_not_known_any_more(desk: Desk, name: str) -> None:
    client = desk.fake(name, {"unknown": True}, {"say": "in {session}"})
    answer = desk.ask(client, session="abc-1")
    assert (answer.report.text.strip(), answer.resumed, answer.problem) == ("in fake-1", False, "")
    assert b"fake does not know the conversation abc-1: a new one begins\nin fake-1\n" in desk.shown
    log = Path(answer.log).read_text()
    assert "abc-1" in log
    assert "in fake-1" in log


def test_failed_result_that_names_the_conversation_is_understood_too(desk: Desk) -> None:
    result = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "num_turns": 0,
        "session_id": "other",
    }
    result["errors"] = ["No conversation found with session ID: abc-1"]
    again = json.dumps(
        {"type": "result", "subtype": "success", "result": "new", "session_id": "third"}
    )
    command = (
        f"case \"$*\" in '') echo {shlex.quote(again)};; "
        f"*) echo {shlex.quote(json.dumps(result))}; exit 1;; esac"
    )
    (desk.work / "client").write_text(command)
    answer = desk.ask(
        shell("sh ./client", format="claude", resume="--resume {session}"), session="abc-1"
    )
    assert (answer.report.text, answer.report.session, answer.resumed) == ("new", "third", False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("claude", {"error": "the session service says: no conversation found"}),
        ("codex", {"error": "no rollout found"}),
        ("text", {"say": "x" * 3000 + "\nsession not found", "exit": 1}),
        ("claude", {"unknown": False, "say": "unknown session", "exit": 1}),
        ("text", {"say": "the server is out of ideas", "exit": 1}),
    ],
)
def test_other_failures_are_not_tried_again(desk: Desk, name: str, entry: dict[str, Any]) -> None:
    answer = desk.ask(desk.fake(name, entry, {"say": "again"}), session="abc-1")
    assert (answer.succeeded, answer.resumed) == (False, True)
    assert "again" not in answer.report.text


def test_client_that_does_not_know_its_new_conversation_is_not_called_a_third_time(
    desk: Desk,
) -> None:
    (desk.work / "client").write_text("echo >>calls; echo 'no conversation found' >&2; exit 1")
    answer = desk.ask(
        shell("sh ./client", format="claude", resume="--resume {session}"), session="abc-1"
    )
    assert (answer.problem, answer.resumed) == (
        "agent failed: exit code 1: no conversation found",
        False,
    )
    assert (desk.work / "calls").read_text() == "\n\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("session", ["$(touch never)", "--help", "", "a b", "x" * 200])
def test_conversation_that_cannot_be_one_is_none(desk: Desk, session: str) -> None:
    answer = desk.ask(desk.fake("claude", {"say": "in {session}"}), session=session)
    assert (answer.report.text, answer.resumed) == ("in fake-1", False)
    assert list(desk.work.iterdir()) == []


def test_client_that_cannot_go_on_begins_anew(desk: Desk) -> None:
    assert desk.ask(shell('echo "$#"'), session="abc-1").resumed is False


def test_second_call_has_what_is_left_of_the_deadline(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Timeouts] = []
    run = command_module.run_command

    def watch(command: str, **more: Any) -> Any:
        seen.append(more["patience"])
        return run(command, **more)

    monkeypatch.setattr(command_module, "run_command", watch)
    answer = desk.ask(
        desk.fake("claude", {"unknown": True}, {}),
        session="a",
        patience=Timeouts(timeout=60, left=100),
    )
    assert [each.timeout for each in seen] == [60, 60]
    assert seen[1].left is not None
    assert 0 < seen[1].left < 100
    assert answer.patience == Timeouts(timeout=60, left=100)


# What is kept


def test_raw_output_is_kept(desk: Desk) -> None:
    answer = desk.ask(shell("printf 'a\\377\\000b'; echo c >&2"), log="iterations/7.log")
    assert answer.log == str(desk.files / "iterations" / "7.log")
    assert Path(answer.log).read_bytes() == b"a\xff\x00bc\n"
    assert desk.shown == "a\ufffd\ufffdbc\n".encode()
    assert (desk.files / "prompt").read_text() == "Do it."
    assert desk.ask(shell("echo new"), log="iterations/7.log").log == answer.log
    assert Path(answer.log).read_bytes() == b"new\n"


def test_the_output_of_each_call_is_kept(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept() -> dict[str, str]:
        return {path.name: path.read_text() for path in desk.files.glob("agent*")}

    for number in range(12):
        desk.ask(shell(f"echo {number}"))
    assert kept() == {
        "agent.log": "11\n",
        **{f"agent-{number + 1}.log": f"{number}\n" for number in range(11)},
    }
    monkeypatch.setattr(call, "MOST", 3)
    desk.ask(shell("echo 12"))
    assert kept() == {
        "agent.log": "12\n",
        "agent-12.log": "11\n",
        "agent-11.log": "10\n",
        "agent-10.log": "9\n",
    }
    monkeypatch.setattr(call, "MOST_BYTES", 7)
    desk.ask(shell("echo 13"))
    assert kept() == {"agent.log": "13\n", "agent-13.log": "12\n", "agent-12.log": "11\n"}
    monkeypatch.setattr(call, "MOST_BYTES", 0)  # the last output is always kept
    desk.ask(shell("echo 14"))
    assert kept() == {"agent.log": "14\n", "agent-14.log": "13\n"}


@pytest.mark.long
def test_calling_the_server_again_is_no_sign_of_life(desk: Desk) -> None:
    retry = json.dumps(
        {"type": "system", "subtype": "api_retry", "error": "529 overloaded", "session_id": "x"}
    )
    client = shell(f"while :; do echo {shlex.quote(retry)}; sleep 0.05; done", format="claude")
    answer = desk.ask(client, patience=Timeouts(timeout=60, idle_timeout=0.5, grace=0.5))
    assert answer.ended_by == IDLE_TIMEOUT
    assert desk.shown.count(b"the model is called again: 529 overloaded\n") > 2


def test_colors_hide_nothing(desk: Desk) -> None:
    """The client opencode colors its message about an unknown conversation."""
    forgets = (
        "f() { case $* in *--resume*) printf '\\033[91m\\033[1mError: "
        "\\033[0mSession not found\\n' >&2; exit 1 ;; esac; echo new; }; f"
    )
    answer = desk.ask(shell(forgets, format="text", resume="--resume {session}"), session="s-1")
    assert (answer.succeeded, answer.resumed, answer.report.text) == (True, False, "new\n")
    failed = desk.ask(shell("printf '\\033[91mno\\033[0m credit\\n'; exit 3"))
    assert failed.problem == "agent failed: exit code 3: no credit"


def test_what_tokens_cost(desk: Desk) -> None:
    usage = {
        "type": "turn.completed",
        "usage": {
            "input_tokens": 1_000_000,
            "cached_input_tokens": 400_000,
            "output_tokens": 10_000,
        },
    }
    words = f"echo {shlex.quote(json.dumps(usage))}"
    assert desk.ask(shell(words, format="codex")).report.cost_usd is None
    price = TokenPrice(2.0, 10.0, 0.5)
    assert desk.ask(shell(words, format="codex", price=price)).report.cost_usd == pytest.approx(
        0.6 * 2 + 0.4 * 0.5 + 0.01 * 10
    )
    assert desk.ask(
        shell(words, format="codex", price=TokenPrice(2.0, 10.0))
    ).report.cost_usd == pytest.approx(2 + 0.1)
    told = {"type": "result", "total_cost_usd": 0.25, "usage": {"input_tokens": 5}}
    assert (
        desk.ask(
            shell(f"echo {shlex.quote(json.dumps(told))}", format="claude", price=price)
        ).report.cost_usd
        == 0.25
    )
    assert desk.ask(shell("echo done", price=price)).report.cost_usd is None


def test_a_client_is_told_what_it_may_cost(desk: Desk) -> None:
    echo = "f() { cat > /dev/null; echo $*; }; f -p"
    assert (
        desk.ask(shell(echo, format="claude"), budget=0.5).report.text
        == "-p --max-budget-usd 0.5000\n"
    )
    own = f"{echo} --max-budget-usd 3"
    assert desk.ask(
        shell(own, format="claude", resume="--resume {session}"), budget=0.5, session="x"
    ).report.text.endswith(" 3 --resume x\n")
    assert desk.ask(shell(echo, format="codex"), budget=0.5).report.text == "-p\n"
    assert desk.ask(shell(echo, format="claude")).report.text == "-p\n"


def test_output_is_on_disk_as_it_comes(desk: Desk) -> None:
    log = desk.files / "agent.log"
    desk.ask(
        shell(
            f"echo one; while ! grep -q one {shlex.quote(str(log))}; do sleep 0.01; "
            f"done; cp {shlex.quote(str(log))} seen"
        )
    )
    assert (desk.work / "seen").read_bytes() == b"one\n"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "FIRST", 10)
    monkeypatch.setattr(call, "LAST", 20)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [1, 7, 25, 1000])
@pytest.mark.parametrize("length", [0, 10, 30, 31, 50, 51, 333])
def test_long_output_is_kept_at_both_ends(tmp_path: Path, length: int, size: int) -> None:
    data = bytes(ord("a") + i % 26 for i in range(length))
    kept = TranscriptFile(str(tmp_path / "log"))
    for i in range(0, length, size):
        kept.write_chunk(data[i : i + size])
        assert (tmp_path / "log").stat().st_size <= 50 + 40 + size
    kept.mask_and_close()
    left_out = f"\n[{length - 30} bytes are left out here]\n".encode()
    assert (tmp_path / "log").read_bytes() == (
        data if length <= 30 else data[:10] + left_out + data[-20:]
    )
    assert os.listdir(tmp_path) == ["log"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_full_disk_is_an_error(tmp_path: Path) -> None:
    kept = TranscriptFile("/dev/full")
    with pytest.raises(CkptError) as error:
        kept.write_chunk(b"x")
    kept.mask_and_close()
    assert (
        error.value.message
        == "cannot write the output of the agent to /dev/full: No space left on device"
    )


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("prompt", "cannot write the prompt of the agent to {files}/prompt: Is a directory"),
        ("agent.log", "cannot write the output of the agent to {files}/agent.log: Is a directory"),
    ],
)
def test_files_that_cannot_be_written(desk: Desk, place: str, message: str) -> None:
    (desk.files / place).mkdir(parents=True)
    with pytest.raises(CkptError) as error:
        desk.ask(shell("touch never"))
    assert error.value.message == message.format(files=desk.files)
    assert list(desk.work.iterdir()) == []


# The fake agent


@pytest.mark.long
def test_fake_agent_without_a_script(desk: Desk) -> None:
    client = shell(f"{shlex.quote(str(FAKE))} --format codex", format="codex")
    assert desk.ask(client, "Do\nthis.").report.text == "I added a line to NOTES.md: Do this."
    assert desk.ask(client, "And that.").succeeded
    assert (desk.work / "NOTES.md").read_text() == "- Do this.\n- And that.\n"


def test_fake_agent_keeps_its_count_where_it_is_told(desk: Desk) -> None:
    client = desk.fake(
        "text", {"write": {"one": "1"}}, {"delete": ["one", "gone"], "write": {"two": "2"}}
    )
    agent = desk.agent(client, FAKE_AGENT_COUNTER="count")

    def ask() -> AgentAnswer:
        return agent.ask_agent("?", patience=Timeouts(), output=desk.show)

    assert ask().succeeded
    assert sorted(os.listdir(desk.work)) == ["count", "one"]
    assert ask().succeeded
    assert sorted(os.listdir(desk.work)) == ["count", "two"]
    assert (desk.work / "count").read_text() == "2\n"


def test_fake_agent_takes_its_prompt_as_an_argument(desk: Desk) -> None:
    (desk.files.parent / "script.json").write_text('[{"say": "{prompt}!"}]')
    command = shlex.join(
        [sys.executable, "-I", "-S", str(FAKE), "--script", str(desk.files.parent / "script.json")]
    )
    assert (
        desk.ask(shell(command, prompt=clients.ARGUMENT), "a 'prompt'").report.text
        == "a 'prompt'!\n"
    )


def test_fake_agent_that_was_killed_does_what_comes_next(desk: Desk) -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        str(FAKE),
        "--script",
        str(desk.script({"hang": True}, {"say": "next"})),
    ]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:
        assert comes(desk.files.parent.joinpath("script.jsonl.calls").exists)
        child.kill()
    assert (
        subprocess.run(command, input="", capture_output=True, text=True, check=True).stdout
        == "next\n"
    )


# The page about agents


def blocks(language: str) -> list[str]:
    page = (ROOT / "docs" / "agents.md").read_text()
    return [part.partition("```")[0] for part in page.split(f"```{language}\n")[1:]]


def test_example_of_a_configuration(tmp_path: Path) -> None:
    example = next(block for block in blocks("toml") if "[agents." in block)
    (tmp_path / "gitckpt.toml").write_text(example)
    found = clients.read_clients(str(tmp_path / "gitckpt.toml"))
    assert {
        name: (client.prompt, client.format, client.resume) for name, client in found.items()
    } == {
        "claude": ("stdin", "claude", "--resume {session}"),
        "reviewer": ("stdin", "codex", "resume {session}"),
        "own": ("argument", "text", "--continue-from {session}"),
        "codex": ("stdin", "codex", "resume {session}"),
    }
    assert found["codex"].price == TokenPrice(1.25, 10.0, 0.125)


def test_example_with_the_fake_agent(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(FAKE.parent)
    done = subprocess.run(
        ["/bin/sh", "-ec", blocks("sh")[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1])["result"] == "I wrote hello.py."
    assert (tmp_path / "hello.py").read_text() == "print('hello')\n"
