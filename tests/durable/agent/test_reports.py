"""The output of each client becomes a report and the text that a person sees.

The cases are success, failure, output that was cut off, and garbage.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitckpt.durable.agent import call as reports
from gitckpt.durable.agent import clients
from gitckpt.durable.agent.call import AgentReport, TranscriptFile, create_output_reader
from gitckpt.durable.agent.clients import FORMATS

CLAUDE_ID = "5f2b9a64-3c1e-4d0b-9a43-0f6d1c9b7e21"
CODEX_ID = "0199a213-81c0-7800-8aa1-bbab2a035a53"
GEMINI_ID = "c0a1b2d3-0000-4abc-8def-112233445566"


def read(name: str, output: bytes | str, size: int | None = None) -> tuple[str, AgentReport]:
    """Return the shown text and the report of an output in chunks of `size`.

    The tokens in the report have tests of their own.
    """
    shown, report = read_whole(name, output, size)
    return shown, replace(report, tokens={})


def read_whole(name: str, output: bytes | str, size: int | None = None) -> tuple[str, AgentReport]:
    data = output.encode() if isinstance(output, str) else output
    found = create_output_reader(name)
    size = size or max(len(data), 1)
    shown = "".join([found.read_chunk(data[i : i + size]) for i in range(0, len(data), size)])
    report = found.finish_report()
    return shown + found.rest, report


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


# Claude Code


def claude_result(**changes: Any) -> dict[str, Any]:
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "duration_ms": 20112,
        "duration_api_ms": 18003,
        "num_turns": 4,
        "result": "All tests pass.",
        "session_id": CLAUDE_ID,
        "total_cost_usd": 0.0421,
        "usage": {"input_tokens": 12, "output_tokens": 345},
        "permission_denials": [],
        "uuid": "8d7c",
    } | changes


def claude_says(*content: Any, **more: Any) -> dict[str, Any]:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": list(content),
        "stop_reason": None,
    }
    return {
        "type": "assistant",
        "message": message,
        "parent_tool_use_id": None,
        "session_id": CLAUDE_ID,
    } | more


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def tool(name: str, **inputs: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_01", "name": name, "input": inputs}


CLAUDE_BEGIN = {
    "type": "system",
    "subtype": "init",
    "cwd": "/w",
    "session_id": CLAUDE_ID,
    "tools": ["Bash"],
    "model": "claude",
    "apiKeySource": "none",
}
CLAUDE_STREAM = [
    CLAUDE_BEGIN,
    claude_says(text("I run the tests.")),
    claude_says(tool("Bash", command="pytest -q\n  tests", description="Run the tests")),
    {
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": "1 failed"}],
        },
    },
    claude_says(tool("Edit", file_path="src/a.py", old_string="x", new_string="y")),
    claude_says({"type": "thinking", "thinking": "hm"}, tool("TodoWrite", todos=[])),
    claude_says(text("from below"), parent_tool_use_id="toolu_09"),
    claude_says(text("All tests pass.")),
]
CLAUDE_SHOWN = (
    "I run the tests.\n→ Bash: pytest -q tests\n→ Edit: src/a.py\n→ TodoWrite\nfrom below\n"
    "All tests pass.\n"
)
CLAUDE_REPORT = AgentReport(
    "All tests pass.", CLAUDE_ID, 0.0421, complete=True, structured=True, worked=True
)


def test_claude_stream() -> None:
    assert read("claude", lines(*CLAUDE_STREAM, claude_result())) == (CLAUDE_SHOWN, CLAUDE_REPORT)


@pytest.mark.parametrize(
    "end",
    [
        [],
        [claude_result(result="")],
        [{**claude_result(subtype="error_max_turns"), "result": None}],
    ],
)
def test_claude_what_an_agent_of_the_agent_says_last_is_shown_but_is_no_answer(
    end: list[Any],
) -> None:
    below = {"parent_tool_use_id": "toolu_01"}
    asked = tool(
        "Agent",
        description="Look for tests",
        prompt="Where are the tests?",
        subagent_type="general-purpose",
    )
    messages = [
        CLAUDE_BEGIN,
        claude_says(text("Another agent looks for the tests.")),
        claude_says(asked),
        {
            "type": "user",
            "message": {"role": "user", "content": [text("Where are the tests?")]},
            "session_id": CLAUDE_ID,
        }
        | below,
        claude_says(tool("Bash", command="ls"), **below),
        claude_says(text("They are in tests/."), **below),
    ]
    shown, report = read("claude", lines(*messages, *end))
    assert shown == (
        "Another agent looks for the tests.\n→ Agent: Look for tests\n→ Bash: ls\n"
        "They are in tests/.\n"
    )
    assert (report.text, report.worked, report.complete) == (
        "Another agent looks for the tests.",
        True,
        bool(end),
    )


@pytest.mark.parametrize("indent", [None, 2])
def test_claude_json(indent: int | None) -> None:
    assert read("claude", json.dumps(claude_result(), indent=indent)) == (
        "All tests pass.\n",
        CLAUDE_REPORT,
    )
    assert read("claude", json.dumps(claude_result(), indent=indent) + "\n") == (
        "All tests pass.\n",
        CLAUDE_REPORT,
    )


@pytest.mark.parametrize("indent", [None, 2])
def test_claude_json_verbose(indent: int | None) -> None:
    assert read("claude", json.dumps([*CLAUDE_STREAM, claude_result()], indent=indent)) == (
        CLAUDE_SHOWN,
        CLAUDE_REPORT,
    )


def test_claude_final_text_that_was_not_said_before() -> None:
    shown, report = read("claude", lines(*CLAUDE_STREAM, claude_result(result="Another text.")))
    assert (shown, report.text) == (CLAUDE_SHOWN + "Another text.\n", "Another text.")


def test_claude_older_name_of_the_cost() -> None:
    old = {
        key: value for key, value in claude_result(cost_usd=0.5).items() if key != "total_cost_usd"
    }
    assert read("claude", lines(old))[1].cost_usd == 0.5
    assert read("claude", lines(claude_result(cost_usd=0.5)))[1].cost_usd == 0.0421


@pytest.mark.parametrize(
    ("changes", "error", "answer"),
    [
        ({"subtype": "error_max_turns"}, "the limit of turns was reached", "All tests pass."),
        (
            {"subtype": "error_max_budget_usd", "is_error": True},
            "the limit of costs was reached",
            "All tests pass.",
        ),
        ({"subtype": "error_during_execution"}, "an error during execution", "All tests pass."),
        ({"subtype": "error_new", "is_error": True}, "error_new", "All tests pass."),
        (
            {"subtype": "error_during_execution", "errors": ["one\n", "two"]},
            "one ; two",
            "All tests pass.",
        ),
        (
            {"is_error": True, "result": "API Error: 529\noverloaded"},
            "API Error: 529 overloaded",
            "API Error: 529\noverloaded",
        ),
        ({"is_error": True, "result": None, "subtype": None}, None, "All tests pass."),
    ],
)
def test_claude_failure(changes: dict[str, Any], error: str | None, answer: str) -> None:
    failed = {key: value for key, value in claude_result().items() if key != "result"} | changes
    assert read("claude", lines(*CLAUDE_STREAM, failed))[1] == AgentReport(
        answer,
        CLAUDE_ID,
        0.0421,
        is_error=True,
        error=error,
        complete=True,
        structured=True,
        worked=True,
    )


def test_claude_that_does_not_know_the_conversation() -> None:
    problem = f"No conversation found with session ID: {CLAUDE_ID}"
    result = claude_result(
        subtype="error_during_execution",
        is_error=True,
        num_turns=0,
        errors=[problem],
        session_id="other",
        total_cost_usd=0,
    )
    del result["result"]
    assert read("claude", problem + "\n" + lines(result)) == (
        problem + "\n",
        AgentReport(
            "",
            "other",
            0.0,
            is_error=True,
            error=problem,
            complete=True,
            structured=True,
            worked=False,
        ),
    )


def test_claude_cut_off_in_mid_line() -> None:
    whole = lines(*CLAUDE_STREAM, claude_result()).encode()
    cut = AgentReport("All tests pass.", CLAUDE_ID, complete=False, structured=True, worked=True)
    assert read("claude", whole[:-40]) == (CLAUDE_SHOWN, cut)
    assert read("claude", whole[:-1]) == (CLAUDE_SHOWN, CLAUDE_REPORT)


def test_claude_cut_off_in_its_only_line() -> None:
    part = json.dumps(claude_result())[:60]
    assert read("claude", part) == ("", AgentReport(part, complete=False, structured=True))


def test_claude_cut_off_in_mid_character() -> None:
    part = json.dumps(claude_says(text("für")), ensure_ascii=False).encode().partition(b"\xbc")[0]
    shown, report = read("claude", part)
    assert (shown, report.text[-2:], report.structured, report.complete) == (
        "",
        "f\ufffd",
        True,
        False,
    )


def test_line_that_is_cut_off_in_the_middle_of_the_output_is_text() -> None:
    output = lines(CLAUDE_BEGIN) + '{"type":"assistant","mess\n' + lines(claude_result())
    assert read("claude", output) == ('{"type":"assistant","mess\nAll tests pass.\n', CLAUDE_REPORT)


def test_what_others_print_in_between_is_shown() -> None:
    output = (
        "warning: old\n{\n  not: 'JSON'\n}\n[\nspread [1]\n"
        + lines(*CLAUDE_STREAM)
        + "progress… "
        + lines(claude_result())
        + '{"a": 1}\n'
    )
    shown, report = read("claude", output)
    assert report == CLAUDE_REPORT
    assert (
        shown
        == "warning: old\n{\n  not: 'JSON'\n}\n[\nspread [1]\n"
        + CLAUDE_SHOWN
        + 'progress… \n{"a": 1}\n'
    )


@pytest.mark.parametrize(
    ("changes", "session", "cost"),
    [
        ({"session_id": 5}, None, 0.0421),
        ({"session_id": "-rf / #"}, None, 0.0421),
        ({"session_id": {"a": 1}}, None, 0.0421),
        ({"total_cost_usd": -1}, CLAUDE_ID, None),
        ({"total_cost_usd": float("nan")}, CLAUDE_ID, None),
        ({"total_cost_usd": float("inf")}, CLAUDE_ID, None),
        ({"total_cost_usd": True}, CLAUDE_ID, None),
        ({"total_cost_usd": "0.5"}, CLAUDE_ID, None),
        ({"total_cost_usd": 10**400}, CLAUDE_ID, None),
        ({"num_turns": "4", "usage": 3, "errors": 4}, CLAUDE_ID, 0.0421),
    ],
)
def test_claude_values_of_another_kind(
    changes: dict[str, Any], session: str | None, cost: float | None
) -> None:
    report = read("claude", lines(claude_result(**changes)))[1]
    assert (report.session, report.cost_usd, report.text, report.is_error) == (
        session,
        cost,
        "All tests pass.",
        False,
    )


@pytest.mark.parametrize(
    "content",
    [
        None,
        3,
        "plain",
        {"a": 1},
        [3],
        [{"type": "text", "text": 3}],
        [{"type": "tool_use", "name": [], "input": 4}],
    ],
)
def test_claude_content_of_another_kind(content: Any) -> None:
    message = {"type": "assistant", "message": {"content": content}, "session_id": CLAUDE_ID}
    shown, report = read("claude", lines(message))
    assert (shown, report.text) == (("plain\n", "plain") if content == "plain" else ("", ""))


# Codex

CODEX_BEGIN = [{"type": "thread.started", "thread_id": CODEX_ID}, {"type": "turn.started"}]
CODEX_ITEMS = [
    {
        "type": "item.completed",
        "item": {"id": "item_0", "type": "reasoning", "text": "**Searching**"},
    },
    {
        "type": "item.started",
        "item": {
            "id": "item_1",
            "type": "command_execution",
            "command": "bash -lc ls",
            "aggregated_output": "",
            "status": "in_progress",
        },
    },
    {
        "type": "item.completed",
        "item": {
            "id": "item_1",
            "type": "command_execution",
            "command": "bash -lc ls",
            "exit_code": 0,
            "status": "completed",
        },
    },
    {
        "type": "item.started",
        "item": {
            "id": "item_2",
            "type": "command_execution",
            "command": "false",
            "status": "in_progress",
        },
    },
    {
        "type": "item.completed",
        "item": {
            "id": "item_2",
            "type": "command_execution",
            "command": "false",
            "exit_code": 1,
            "status": "failed",
        },
    },
    {
        "type": "item.completed",
        "item": {
            "id": "item_3",
            "type": "file_change",
            "changes": [{"path": "a.py", "kind": "add"}, {"path": "b.py", "kind": "update"}],
        },
    },
    {
        "type": "item.started",
        "item": {
            "id": "item_4",
            "type": "mcp_tool_call",
            "server": "docs",
            "tool": "find",
            "status": "in_progress",
        },
    },
    {
        "type": "item.completed",
        "item": {"id": "item_5", "type": "web_search", "query": "a question"},
    },
    {"type": "item.updated", "item": {"id": "item_6", "type": "todo_list", "items": []}},
    {"type": "item.completed", "item": {"id": "item_7", "type": "error", "message": "not so bad"}},
    {
        "type": "item.completed",
        "item": {"id": "item_8", "type": "agent_message", "text": "Yes: there is a README."},
    },
]
CODEX_END = {
    "type": "turn.completed",
    "usage": {"input_tokens": 24763, "cached_input_tokens": 24448, "output_tokens": 122},
}
CODEX_SHOWN = """\
→ bash -lc ls
→ false
  exit code 1
→ files: a.py, b.py
→ docs find
→ search: a question
error: not so bad
Yes: there is a README.
"""
CODEX_REPORT = AgentReport(
    "Yes: there is a README.", CODEX_ID, complete=True, structured=True, worked=True
)


def test_codex() -> None:
    assert read("codex", lines(*CODEX_BEGIN, *CODEX_ITEMS, CODEX_END)) == (
        CODEX_SHOWN,
        CODEX_REPORT,
    )


def test_codex_failure() -> None:
    failed = {"type": "turn.failed", "error": {"message": "stream disconnected"}}
    assert read("codex", lines(*CODEX_BEGIN, failed)) == (
        "",
        AgentReport(
            "", CODEX_ID, is_error=True, error="stream disconnected", complete=True, structured=True
        ),
    )


def test_codex_error_without_a_turn() -> None:
    assert read("codex", lines({"type": "error", "message": "no credits"})) == (
        "error: no credits\n",
        AgentReport("", is_error=True, error="no credits", complete=False, structured=True),
    )


def test_codex_that_reconnects_has_not_failed() -> None:
    again = {"type": "error", "message": "Reconnecting... 1/5"}
    shown, report = read("codex", lines(*CODEX_BEGIN, again, *CODEX_ITEMS, CODEX_END, again))
    assert (shown, report) == (
        "error: Reconnecting... 1/5\n" + CODEX_SHOWN + "error: Reconnecting... 1/5\n",
        CODEX_REPORT,
    )


def test_codex_cut_off() -> None:
    whole = lines(*CODEX_BEGIN, *CODEX_ITEMS, CODEX_END)
    assert read("codex", whole[:-50]) == (
        CODEX_SHOWN,
        AgentReport(CODEX_REPORT.text, CODEX_ID, complete=False, structured=True, worked=True),
    )


def test_codex_log_lines_are_shown() -> None:
    log = "2026-02-12T20:29:52Z ERROR codex_core: state db missing\n"
    assert read("codex", "Reading prompt from stdin...\n" + log) == (
        "Reading prompt from stdin...\n" + log,
        AgentReport("Reading prompt from stdin...\n" + log, complete=False),
    )


# Gemini

GEMINI_WHOLE = {
    "session_id": GEMINI_ID,
    "response": "Paris.\n",
    "stats": {"models": {"gemini": {"tokens": {"total": 7}}}, "tools": {}},
}
GEMINI_REPORT = AgentReport("Paris.\n", GEMINI_ID, complete=True, structured=True, worked=True)


@pytest.mark.parametrize("end", ["", "\n"])
def test_gemini(end: str) -> None:
    output = "Loaded cached credentials.\n" + json.dumps(GEMINI_WHOLE, indent=2) + end
    assert read("gemini", output) == ("Loaded cached credentials.\nParis.\n", GEMINI_REPORT)


def test_gemini_failure() -> None:
    error = {
        "session_id": GEMINI_ID,
        "error": {
            "type": "FatalAuthenticationError",
            "message": "Please set\nan Auth method",
            "code": 41,
        },
    }
    assert read("gemini", json.dumps(error, indent=2) + "\n") == (
        "",
        AgentReport(
            "",
            GEMINI_ID,
            is_error=True,
            error="Please set an Auth method",
            complete=True,
            structured=True,
        ),
    )


def test_gemini_cut_off() -> None:
    output = json.dumps(GEMINI_WHOLE, indent=2)[:-30]
    assert read("gemini", output) == ("", AgentReport(output, complete=False, structured=True))


def test_gemini_stream() -> None:
    events = [
        {"type": "init", "timestamp": "2026", "session_id": GEMINI_ID, "model": "gemini"},
        {"type": "message", "role": "user", "content": "a prompt"},
        {"type": "message", "role": "assistant", "content": "I ", "delta": True},
        {"type": "message", "role": "assistant", "content": "look.", "delta": True},
        {
            "type": "tool_use",
            "tool_name": "read_file",
            "tool_id": "1",
            "parameters": {"path": "a.py"},
        },
        {"type": "tool_result", "tool_id": "1", "status": "success", "output": "x"},
        {"type": "error", "severity": "warning", "message": "slow"},
        {"type": "message", "role": "assistant", "content": "It is ", "delta": True},
        {"type": "message", "role": "assistant", "content": "x.", "delta": True},
    ]
    shown = "I look.\n→ read_file: a.py\nerror: slow\nIt is x."
    assert read("gemini", lines(*events)) == (
        shown,
        AgentReport("It is x.", GEMINI_ID, complete=False, structured=True, worked=True),
    )
    end = {"type": "result", "status": "success", "stats": {"total_tokens": 3}}
    assert read("gemini", lines(*events, end)) == (
        shown + "\n",
        AgentReport("It is x.", GEMINI_ID, complete=True, structured=True, worked=True),
    )
    end = {"type": "result", "status": "error", "error": {"type": "X", "message": "too many turns"}}
    report = read("gemini", lines(*events, end))[1]
    assert (report.is_error, report.error, report.text) == (True, "too many turns", "It is x.")


# Text, and garbage

GARBAGE = [
    b"",
    b"\n\n",
    b"\x00\xff\xfe{}[]\n",
    b"{",
    b"}\n",
    b"[\n]\n",
    b'null\n5\n"text"\ntrue\n',
    b'{"type":"result"' * 50,
    b"[" * 100_000 + b"\n",
    b'{"a":' * 100_000 + b"\n",
    b'{"type":' + b"9" * 5000 + b"}\n",
    b'{"type":"result","result":"\\ud800\\u0000"}\n',
    "ü".encode("utf-16"),
]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("output", GARBAGE)
def test_garbage_is_no_failure(name: str, output: bytes) -> None:
    report = read(name, output)[1]
    assert (report.session, report.cost_usd, report.is_error, report.error) == (
        None,
        None,
        False,
        None,
    )
    assert not set(report.text) & {"\0", "\ud800"}


def test_text_is_shown_and_kept_as_it_is() -> None:
    assert read("text", 'one\n{"type":"result"}\r\nthree \x1b[1mü', 1) == (
        'one\n{"type":"result"}\r\nthree \x1b[1mü',
        AgentReport('one\n{"type":"result"}\r\nthree \x1b[1mü'),
    )


def test_text_where_messages_should_be_is_the_answer() -> None:
    for name in ("claude", "codex", "gemini"):
        assert read(name, "Please log in.\n[done]") == (
            "Please log in.\n[done]",
            AgentReport("Please log in.\n[done]", complete=False),
        )


def test_control_characters_in_messages_do_not_reach_the_terminal() -> None:
    shown, report = read(
        "claude", lines(claude_says(text("a\x1b[2Jb\tc\r\nd"), tool("Ba\x1bsh", command="x\x07")))
    )
    assert (shown, report.text) == (
        "a\ufffd[2Jb\tc\nd\n→ Ba\ufffdsh: x\ufffd\n",
        "a\x1b[2Jb\tc\r\nd",
    )


def test_long_tool_line_is_cut() -> None:
    assert (
        read("claude", lines(claude_says(tool("Bash", command="x" * 500))))[0]
        == f"→ Bash: {'x' * 113}…\n"
    )


@pytest.mark.parametrize("size", [1000, 64, 7, None])
def test_line_too_long_for_a_message_is_text(
    monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    monkeypatch.setattr(reports, "MAX_MESSAGE", 300)
    long = lines(claude_says(text("x" * 400)))
    spread = "{\n" + '"a": 1\n' * 60
    output = long + lines({"type": "result", "result": "end"}) + long.strip() + "\n" + spread
    shown, report = read("claude", output, size)
    assert shown == long + "end\n" + long + spread
    assert report == AgentReport("end", complete=True, structured=True, worked=True)


def test_only_the_end_of_a_long_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "KEPT", 10)
    assert read("text", "0123456789" * 7 + "abc", 4)[1].text == "3456789abc"
    assert read("claude", lines(claude_result(result="0123456789abc")))[1].text == "3456789abc"


# opencode

OPENCODE = (
    {"type": "step_start", "sessionID": "ses_1", "part": {"snapshot": "4b825dc6"}},
    {"type": "text", "sessionID": "ses_1", "part": {"type": "text", "text": "I write it."}},
    {
        "type": "tool_use",
        "sessionID": "ses_1",
        "part": {"tool": "write", "state": {"input": {"filePath": "a", "path": "a"}}},
    },
    {
        "type": "step_finish",
        "sessionID": "ses_1",
        "part": {"reason": "tool-calls", "cost": 0.25, "tokens": {"input": 10, "output": 2}},
    },
    {"type": "text", "sessionID": "ses_1", "part": {"type": "text", "text": "It is done."}},
    {
        "type": "step_finish",
        "sessionID": "ses_1",
        "part": {
            "reason": "stop",
            "cost": 0.5,
            "tokens": {"input": 5, "output": 1, "reasoning": 4},
        },
    },
)


def test_opencode() -> None:
    shown, report = read_whole("opencode", lines(*OPENCODE))
    assert shown == "I write it.\n→ write: a\nIt is done.\n"
    assert report == AgentReport(
        "It is done.",
        "ses_1",
        0.75,
        complete=True,
        structured=True,
        worked=True,
        tokens={"input": 15, "output": 7},
    )


def test_opencode_that_ends_before_its_tool_answered() -> None:
    report = read("opencode", lines(*OPENCODE[:4]))[1]
    assert (report.complete, report.cost_usd, report.text) == (False, 0.25, "I write it.")


def test_opencode_failure() -> None:
    failed = {
        "type": "error",
        "sessionID": "ses_1",
        "error": {"name": "APIError", "data": {"message": "no credit"}},
    }
    shown, report = read("opencode", lines(OPENCODE[0], failed))
    assert (shown, report.is_error, report.error, report.session) == (
        "error: no credit\n",
        True,
        "no credit",
        "ses_1",
    )


def test_opencode_failure_of_its_model() -> None:
    data = {"message": "slow down", "statusCode": 429, "responseHeaders": {"retry-after": "7"}}
    report = read(
        "opencode",
        lines({"type": "error", "sessionID": "ses_1", "error": {"name": "APIError", "data": data}}),
    )[1]
    assert report.error == "HTTP 429: slow down (retry after 7 seconds)"
    hostile = {
        "message": "slow down",
        "statusCode": "429",
        "responseHeaders": {"retry-after": "; rm"},
    }
    assert (
        read("opencode", lines({"type": "error", "error": {"data": hostile}}))[1].error
        == "slow down"
    )


def test_codex_has_done_nothing_where_its_model_does_not_answer() -> None:
    """Codex begins a turn and reports an unknown model as an item, as observed."""
    about = {
        "type": "item.completed",
        "item": {"id": "item_0", "type": "error", "message": "Model metadata for `m` not found."},
    }
    failed = {
        "type": "turn.failed",
        "error": {"message": "unexpected status 401 Unauthorized: no, url: x"},
    }
    report = read("codex", lines(CODEX_BEGIN[0], about, CODEX_BEGIN[1], failed))[1]
    assert (report.worked, report.error) == (
        False,
        "unexpected status 401 Unauthorized: no, url: x",
    )


# aider

AIDER = """\
Aider v0.86.2
Model: openai/m with whole edit format

a.txt

Tokens: 1.2k sent, 300 cache hit, 10 received. Cost: $0.0042 message, $0.0042 session.
Applied edit to a.txt
Tokens: 3,400 sent, 1.5k received. Cost: $0.0100 message, $0.0142 session.
"""


def test_aider() -> None:
    shown, report = read_whole("aider", AIDER)
    assert shown == AIDER
    assert (report.tokens, report.worked, report.is_error) == (
        {"input": 4600, "output": 1510},
        True,
        False,
    )
    assert report.cost_usd == pytest.approx(0.0142)


def test_aider_whose_model_has_no_price() -> None:
    report = read_whole("aider", "Tokens: 1.0M sent, 10 received.\n")[1]
    assert (report.tokens, report.cost_usd) == ({"input": 1_000_000, "output": 10}, None)
    assert read_whole("aider", "Tokens: 1..2k sent, 5 received.\n")[1].tokens == {
        "input": 0,
        "output": 5,
    }


def test_aider_that_failed_ends_with_0() -> None:
    """The client aider exits with 0 although it failed, as observed."""
    failed = (
        "Aider v0.86.2\nlitellm.AuthenticationError: AuthenticationError: "
        "OpenAIException - bad\nCheck your API key.\n"
    )
    report = read("aider", failed)[1]
    assert (report.is_error, report.worked) == (True, False)
    assert report.error == "litellm.AuthenticationError: AuthenticationError: OpenAIException - bad"
    assert read("aider", failed + AIDER)[1].is_error is False


# Tokens, and what was not allowed


def test_tokens_of_gemini() -> None:
    tokens = {"prompt": 9, "candidates": 2, "thoughts": 1, "cached": 4, "total": 12}
    whole = {
        "session_id": GEMINI_ID,
        "response": "x",
        "stats": {"models": {"a": {"tokens": tokens}, "b": {"tokens": {"prompt": 1}}, "c": 5}},
    }
    assert read_whole("gemini", json.dumps(whole))[1].tokens == {
        "input": 10,
        "output": 3,
        "cached": 4,
    }
    end = {
        "type": "result",
        "status": "success",
        "stats": {"total_tokens": 2020, "input_tokens": 2000, "output_tokens": 20, "cached": 0},
    }
    assert read_whole("gemini", lines(end))[1].tokens == {"input": 2000, "output": 20, "cached": 0}


@pytest.mark.parametrize(
    ("name", "message", "tokens"),
    [
        (
            "claude",
            claude_result(
                usage={"input_tokens": 1, "cache_read_input_tokens": 20, "output_tokens": 3}
            ),
            {"input": 21, "cached": 20, "output": 3},
        ),
        ("claude", claude_result(usage={"input_tokens": -1, "output_tokens": "3"}), {}),
        ("claude", claude_result(usage=5), {}),
        (
            "codex",
            {
                "type": "turn.completed",
                "usage": {"input_tokens": 7, "cached_input_tokens": 2, "output_tokens": 1},
            },
            {"input": 7, "cached": 2, "output": 1},
        ),
    ],
)
def test_tokens(name: str, message: dict[str, Any], tokens: dict[str, int]) -> None:
    assert read_whole(name, lines(message))[1].tokens == tokens


def test_what_claude_was_not_allowed() -> None:
    denials = [
        {"tool_name": "Write", "tool_use_id": "t", "tool_input": {"file_path": "a"}},
        {"tool_name": "Bash"},
        5,
    ]
    shown, report = read("claude", lines(claude_result(permission_denials=denials)))
    assert report.denied == ("Write: a", "Bash", "a tool")
    assert shown.endswith("not allowed: Write: a\nnot allowed: Bash\nnot allowed: a tool\n")


def test_claude_calls_its_model_again() -> None:
    retry = {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 2,
        "max_retries": 10,
        "error": "529 overloaded",
        "session_id": "x",
    }
    assert (
        read("claude", lines(retry))[0]
        == "the model is called again, attempt 2 of 10: 529 overloaded\n"
    )
    assert (
        read("claude", lines({"type": "system", "subtype": "api_retry", "session_id": "x"}))[0]
        == "the model is called again\n"
    )


SAMPLES = {
    "claude": lines(*CLAUDE_STREAM, claude_result()).encode(),
    "codex": lines(*CODEX_BEGIN, *CODEX_ITEMS, CODEX_END).encode(),
    "gemini": json.dumps(GEMINI_WHOLE, indent=2).encode(),
    "opencode": lines(*OPENCODE).encode(),
    "aider": AIDER.encode(),
    "text": "plain\nü text".encode(),
}
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["result", "item.completed", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "content", "item", "message"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
MESSAGE = st.dictionaries(
    st.sampled_from(
        [
            "type",
            "message",
            "item",
            "session_id",
            "thread_id",
            "result",
            "error",
            "response",
            "total_cost_usd",
            "errors",
            "content",
        ]
    ),
    VALUE
    | st.sampled_from(["assistant", "result", "item.completed", "error", "message", "tool_use"]),
    max_size=6,
).map(lambda value: json.dumps(value).encode())
PIECE = (
    st.binary(max_size=20)
    | MESSAGE
    | st.sampled_from(
        [
            b"\n",
            b"{",
            b"}",
            b"[",
            b"]",
            b"\n{\n",
            b"\n}\n",
            b"\n[\n",
            b"\n]",
            b'{"',
            b"\xc3",
            b"\r\n",
            b"\0",
        ]
    )
    | st.sampled_from(list(SAMPLES.values())).flatmap(
        lambda whole: st.integers(0, len(whole)).map(lambda end: whole[:end])
    )
)


@given(pieces=st.lists(PIECE, max_size=8), cuts=st.lists(st.integers(0, 400), max_size=8))
@example(pieces=[b"{\n", b'{"type":"result","result":"x"}'], cuts=[1])
@settings(deadline=None)
@pytest.mark.long(spare=[f"2-{name}" for name in FORMATS])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("part", range(3))
def test_any_bytes_in_any_chunks_are_read_alike(
    name: str, part: int, pieces: list[bytes], cuts: list[int]
) -> None:
    output = b"".join(pieces)
    whole = read_whole(name, output)
    assert read_whole(name, output, 1) == whole
    ends = sorted({min(cut, len(output)) for cut in cuts} | {0, len(output)})
    found = create_output_reader(name)
    shown = "".join([found.read_chunk(output[start:end]) for start, end in pairwise(ends)])
    report = found.finish_report()
    assert (shown + found.rest, report) == whole
    whole[0].encode()
    report.text.encode()
    assert "\0" not in report.text
    assert report.cost_usd is None or report.cost_usd >= 0


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FORMATS)
def test_sample_that_ends_anywhere(name: str) -> None:
    whole = SAMPLES[name]
    for end in range(len(whole)):
        report = read(name, whole[:end])[1]
        assert report.complete is (name in ("text", "aider")) or end == len(whole) - 1


TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4"


def test_a_transcript_is_masked_when_it_is_closed(tmp_path: Path) -> None:
    transcript = TranscriptFile(str(tmp_path / "agent.log"))
    transcript.write_chunk(b"first " + TOKEN[:10].encode())
    transcript.write_chunk(TOKEN[10:].encode() + b" last\n")
    transcript.mask_and_close()
    assert (tmp_path / "agent.log").read_bytes() == b"first [masked: github-pat] last\n"


def test_a_transcript_without_secrets_stays_as_it_was(tmp_path: Path) -> None:
    transcript = TranscriptFile(str(tmp_path / "agent.log"))
    transcript.write_chunk(b"\0\xff first\n")
    transcript.mask_and_close()
    assert (tmp_path / "agent.log").read_bytes() == b"\0\xff first\n"
