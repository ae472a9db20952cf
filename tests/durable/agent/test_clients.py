"""A text selects a client; a file configures clients; both make the command."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import ConfigError, UsageError
from gitckpt.durable.agent.clients import (
    BUILT_IN,
    FORMATS,
    AgentClient,
    TokenPrice,
    describe_client_override,
    find_client,
    parse_session_id,
    read_clients,
)
from gitckpt.git.repository import discover_repository
from gitckpt.store.config import settings
from tests.conftest import Checkout

OWN = AgentClient("own", "./agent.sh", "argument", "text", "--go-on {session}")


# Names and commands


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode", "aider"])
def test_name_of_a_built_in_client(name: str) -> None:
    assert find_client(f" {name}\n", {}) is BUILT_IN[name]


def test_configured_client_goes_before_a_built_in_one() -> None:
    mine = AgentClient("claude", "claude-wrapper")
    assert find_client("claude", {"claude": mine, "own": OWN}) is mine
    assert find_client("own", {"claude": mine, "own": OWN}) is OWN


@pytest.mark.parametrize(
    ("command", "name", "kind", "resume"),
    [
        ("claude -p --output-format json", "claude", "claude", "--resume {session}"),
        (
            "claude --output-format=stream-json -p --verbose",
            "claude",
            "claude",
            "--resume {session}",
        ),
        (
            "/opt/bin/claude -p --output-format stream-json",
            "claude",
            "claude",
            "--resume {session}",
        ),
        (
            "KEY=1 OTHER='a b' ~/claude -p --output-format json",
            "claude",
            "claude",
            "--resume {session}",
        ),
        ("claude -p", "claude", "text", None),
        ("claude -p --output-format text", "claude", "text", None),
        ("claude -p --output-format json --output-format=text", "claude", "text", None),
        ("claude -p --output-format", "claude", "text", None),
        *(
            (f"/opt/bin/{name}", name, "text", None)
            for name in ("claude", "gemini", "codex", "opencode")
        ),
        ("codex exec --json -m gpt-5 -", "codex", "codex", "resume {session}"),
        ("codex exec -", "codex", "text", None),
        ("gemini -o json --yolo", "gemini", "gemini", "--resume {session}"),
        ("gemini --output-format stream-json", "gemini", "gemini", "--resume {session}"),
        ("gemini", "gemini", "gemini", "--resume {session}"),
        ("gemini -y", "gemini", "text", None),
        ("my-claude --output-format json", "my-claude", "text", None),
        ("claude -p --output-format json | jq -r .result", "the agent", "text", None),
        ("cd sub && claude -p --output-format json", "the agent", "text", None),
        ("claude -p --output-format json; true", "the agent", "text", None),
        ("claude -p \\\n --output-format json", "the agent", "text", None),
        (
            "claude -p 'it | is; quoted' --output-format json",
            "claude",
            "claude",
            "--resume {session}",
        ),
        ("claude -p 'open --output-format json", "the agent", "text", None),
        ("A=1", "the agent", "text", None),
        ("./agent.py --json # not codex", "agent.py", "text", None),
    ],
)
def test_command_shows_its_client(command: str, name: str, kind: str, resume: str | None) -> None:
    expected = (
        BUILT_IN["gemini"]
        if command == "gemini"
        else AgentClient(name, command, "stdin", kind, resume)
    )
    assert find_client(command, {}) == expected


@pytest.mark.parametrize(
    ("text", "problem"), [("", "is empty"), (" \n", "is empty"), ("a\0b", "contains a NUL byte")]
)
def test_what_is_no_command(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        find_client(text, {"own": OWN})
    assert error.value.message == f"the command of the agent {problem}"
    assert (
        error.value.hint == "give a command, or one of: own, claude, codex, gemini, opencode, aider"
    )


# The line for the shell


@pytest.mark.parametrize(
    ("client", "session", "line"),
    [
        (
            BUILT_IN["claude"],
            None,
            "exec <'/a b/p' || exit 125\nclaude -p --output-format stream-json --verbose",
        ),
        (
            BUILT_IN["claude"],
            "s-1",
            (
                "exec <'/a b/p' || exit 125\nclaude -p --output-format stream-json --verbose "
                "--resume s-1"
            ),
        ),
        (BUILT_IN["codex"], None, "exec <'/a b/p' || exit 125\ncodex exec --json -"),
        (BUILT_IN["codex"], "s-1", "exec <'/a b/p' || exit 125\ncodex exec --json resume s-1 -"),
        (
            BUILT_IN["gemini"],
            "s-1",
            "exec <'/a b/p' || exit 125\ngemini --output-format json --resume s-1",
        ),
        (OWN, None, "./agent.sh \"$(cat '/a b/p')\""),
        (OWN, "s-1", "./agent.sh --go-on s-1 \"$(cat '/a b/p')\""),
        (OWN, "x; rm -rf /", "./agent.sh --go-on 'x; rm -rf /' \"$(cat '/a b/p')\""),
        (AgentClient("a", "agent"), "s-1", "exec <'/a b/p' || exit 125\nagent"),
    ],
)
def test_line(client: AgentClient, session: str | None, line: str) -> None:
    assert client.call_line("/a b/p", session) == line


@pytest.mark.parametrize(
    ("budget", "said"), [(2.5, "2.5000"), (0.00003, "0.0001"), (0.0, "0.0001"), (-1.0, "0.0001")]
)
def test_a_budget_that_is_nearly_spent_is_no_amount_of_nothing(budget: float, said: str) -> None:
    assert (
        find_client("claude", {})
        .call_line("/p", None, budget)
        .endswith(f" --max-budget-usd {said}")
    )


@pytest.mark.parametrize(
    ("kind", "said", "is_unknown"),
    [
        ("claude", "No conversation found with session ID: 5f2b9a64", True),
        ("claude", "no rollout found for thread id 0199a213", False),
        ("claude", "the session is over", False),
        ("codex", "Error: thread/resume failed: no rollout found for thread id 0199a213", True),
        ("gemini", "Error resuming session: Invalid session identifier 7", True),
        ("text", "unknown session: s-1", True),
        ("text", "thread s-1 does not exist", True),
        ("text", "no space on device", False),
        ("text", "no\nsession", False),
    ],
)
def test_client_says_that_it_does_not_know_a_conversation_in_its_own_words(
    kind: str, said: str, is_unknown: bool
) -> None:
    assert AgentClient("agent", "agent", format=kind).is_session_error(said) is is_unknown


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ("0199a213-81c0-7800-8aa1-bbab2a035a53", True),
        ("a", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("", False),
        ("-rf", False),
        ("--resume", False),
        (".", False),
        ("a b", False),
        ("a\n", False),
        ("a;b", False),
        ("$(id)", False),
        ("ü", False),
        ("a\0", False),
        (5, False),
        (None, False),
        (["a"], False),
    ],
)
def test_session_id(value: object, is_one: bool) -> None:
    assert parse_session_id(value) == (value if is_one else None)


# The file


def configured(tmp_path: Path, text: str) -> dict[str, AgentClient]:
    path = tmp_path / "gitckpt.toml"
    path.write_text(text)
    return read_clients(str(path))


def test_file_that_is_not_there_configures_nothing(tmp_path: Path) -> None:
    assert read_clients(str(tmp_path / "gitckpt.toml")) == {}


def test_clients_of_a_file(tmp_path: Path) -> None:
    text = """
[agents.claude]
command = "claude -p --output-format json --model opus"

[agents.codex]
prompt = "argument"

[agents.plain]
command = "claude -p --output-format json"
format = "text"
resume = "-r {session}"

[agents."my own"]
command = "./agent.sh"
prompt = "argument"
"""
    assert configured(tmp_path, text) == {
        "claude": AgentClient(
            "claude",
            "claude -p --output-format json --model opus",
            "stdin",
            "claude",
            "--resume {session}",
        ),
        "codex": AgentClient(
            "codex", "codex exec --json -", "argument", "codex", "resume {session}"
        ),
        "plain": AgentClient(
            "plain", "claude -p --output-format json", "stdin", "text", "-r {session}"
        ),
        "my own": AgentClient("my own", "./agent.sh", "argument", "text", None),
    }


def test_every_mistake_is_named_with_its_line(tmp_path: Path) -> None:
    text = """\
[agents.one]
comand = "x"

[agents.two]
command = 3
format = "claud"

[agents.three]
command = "x"
prompt = "file"
resume = "--resume"

[agents]
four = "claude"
"a/b" = {command = "x"}
"five" = {command = "a\\nb"}
"""
    with pytest.raises(ConfigError) as error:
        configured(tmp_path, text)
    assert error.value.message == "gitckpt.toml: 9 mistakes"
    assert error.value.candidates == [
        "gitckpt.toml:1: agent 'one' has no command (add command = \"COMMAND\")",
        "gitckpt.toml:2: unknown key 'comand' in agent 'one' (did you mean command?)",
        "gitckpt.toml:5: command in agent 'two' must be a string, not 3",
        "gitckpt.toml:6: format in agent 'two' must be one of "
        + ", ".join(FORMATS)
        + ", not 'claud' (did you mean claude?)",
        "gitckpt.toml:10: prompt in agent 'three' must be one of stdin, argument, not 'file'",
        (
            "gitckpt.toml:11: resume of agent 'three' has no {session} (write {session} "
            'where the id belongs, as in resume = "--resume {session}")'
        ),
        "gitckpt.toml:14: four in agents must be a table, not 'claude'",
        "gitckpt.toml:15: the name of agent 'a/b' has a /",
        (
            "gitckpt.toml:16: command in agent 'five' must be one line without control "
            "characters, not 'a\\nb'"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agents.a\n", "gitckpt.toml:1: not TOML: Expected ']' at the end of a table declaration"),
        ("x = 1\nagents = 3\n", "gitckpt.toml:2: agents must be a table"),
    ],
)
def test_file_that_cannot_be_understood(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        configured(tmp_path, text)
    assert error.value.message == message


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        read_clients(str(tmp_path))
    assert error.value.message == f"cannot read {tmp_path}: Is a directory"


def test_settings_leave_the_table_of_agents_alone(main_checkout: Checkout) -> None:
    main_checkout.write("gitckpt.toml", "[agents.a]\nwrong = 1\n[retention]\nkeep_last = 300\n")
    assert (
        settings.read_settings(discover_repository(str(main_checkout.path))).policy.keep_last == 300
    )


def test_line_hands_the_prompt_to_every_part_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("a prompt\n")
    client = AgentClient("two", "read -r first rest; echo $first; (echo $rest)")
    done = subprocess.run(
        ["/bin/sh", "-c", client.call_line(str(tmp_path / "p"))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "a\nprompt\n"


# Prices


def test_price_of_a_client(tmp_path: Path) -> None:
    text = """
[agents.codex.price]
input = 1.25
cached_input = 0.125
output = 10

[agents.own]
command = "./agent.sh"
price = {input = 1, output = 2.5}
"""
    clients = configured(tmp_path, text)
    codex = replace(BUILT_IN["codex"], price=TokenPrice(1.25, 10.0, 0.125))
    assert clients == {
        "codex": codex,
        "own": AgentClient("own", "./agent.sh", price=TokenPrice(1.0, 2.5)),
    }
    assert find_client("codex", clients) == codex
    sandboxed = "codex exec --json --sandbox workspace-write -"
    assert find_client(sandboxed, clients) == replace(codex, command=sandboxed)
    assert [
        each.reports_cost
        for each in (codex, BUILT_IN["codex"], BUILT_IN["claude"], AgentClient("a", "a"))
    ] == [True, False, True, False]
    assert describe_client_override("codex", clients) is None


def test_mistakes_in_a_price(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        configured(tmp_path, "[agents.codex.price]\ninput = -1\ncashed_input = 2\n")
    assert sorted(error.value.candidates) == [
        (
            "gitckpt.toml:1: the price of agent 'codex' has no output (add output = US "
            "dollars per million tokens)"
        ),
        (
            "gitckpt.toml:2: input in the price of agent 'codex' must be a number from 0 to "
            "1e+06, not -1"
        ),
        (
            "gitckpt.toml:3: unknown key 'cashed_input' in the price of agent 'codex' (did "
            "you mean cached_input?)"
        ),
    ]


@pytest.mark.parametrize(
    ("command", "prompt"),
    [
        ("aider --yes-always --message", "argument"),
        ("/opt/aider -m", "argument"),
        ("OPENAI_API_KEY=x aider --model m --msg", "argument"),
        ("aider --message-file /dev/stdin", "stdin"),
    ],
)
def test_command_that_calls_aider(command: str, prompt: str) -> None:
    assert find_client(command, {}) == AgentClient("aider", command, prompt, "aider")
