"""The output of a client determines the kind of its failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitckpt.durable.agent import call
from gitckpt.durable.agent.call import FATAL, LIMITED, OTHER, TRANSIENT, AgentAnswer, AgentReport
from gitckpt.durable.agent.clients import find_client
from gitckpt.durable.command.execution import EXIT, TIMEOUT, Timeouts

NOW = 1_800_000_000.0


def answer(said: str, code: int = 1, *, ended_by: str = EXIT, worked: bool = False) -> AgentAnswer:
    report = AgentReport("", worked=worked, structured=worked)
    return AgentAnswer(
        report,
        code,
        ended_by,
        said,
        1.0,
        "",
        resumed=False,
        client="agent",
        patience=Timeouts(timeout=1),
    )


@pytest.mark.parametrize(
    ("said", "code", "kind", "wait"),
    [
        ("sh: 1: claude: not found", 127, FATAL, None),
        ("sh: 1: claude: Permission denied", 126, FATAL, None),
        ("Invalid API key · Please run /login", 1, FATAL, None),
        ("Not logged in · Please run /login", 1, FATAL, None),
        ('API Error: 401 {"type":"error","error":{"type":"authentication_error"}}', 1, FATAL, None),
        ("unexpected status 401 Unauthorized: Missing bearer", 1, FATAL, None),
        ("error: unexpected argument '--full-auto' found", 2, FATAL, None),
        ("error: unknown option '--permision-mode'", 1, FATAL, None),
        (
            "litellm.AuthenticationError: AuthenticationError: OpenAIException - bad",
            0,
            None,
            None,
        ),  # its report says so
        ("HTTP 401: bad key", 1, FATAL, None),
        (
            '[API Error: {"error":{"code":401,"message":"no","status":"UNAUTHENTICATED"}}]',
            1,
            FATAL,
            None,
        ),
        (
            "Please set an Auth method in your settings.json or specify GEMINI_API_KEY",
            41,
            FATAL,
            None,
        ),
        ("API Error: 429 rate_limit_error", 1, LIMITED, None),
        ("API Error: 529 overloaded_error", 1, LIMITED, None),
        ("Error: 429 Too Many Requests, retry after 30 seconds", 1, LIMITED, 30.0),
        ("Rate limit reached for gpt. Please try again in 1.5s.", 1, LIMITED, 1.5),
        ("HTTP 429: slow down (retry after 7 seconds)", 1, LIMITED, 7.0),
        ("exceeded retry limit, last status: 429 Too Many Requests", 1, LIMITED, None),
        ("quota exceeded; try again in 5 minutes", 1, LIMITED, 300.0),
        ("Claude AI usage limit reached|1800000600", 1, LIMITED, 600.0),
        ("Claude AI usage limit reached|1700000000", 1, LIMITED, None),
        ("rate limited: try again in 900000 hours", 1, LIMITED, call.LONGEST_TOLD),
        ("RESOURCE_EXHAUSTED: quota", 1, LIMITED, None),
        ("stream disconnected before completion: error sending request", 1, TRANSIENT, None),
        ("API Error: 500 internal server error", 1, TRANSIENT, None),
        ("connect ECONNREFUSED 127.0.0.1:1", 1, TRANSIENT, None),
        (
            'Failed to authenticate. API Error: 401 {"error":{"type":"overloaded_error"}}',
            1,
            FATAL,
            None,
        ),
        (
            'API Error: 400 {"error":{"type":"invalid_request_error","message":"overloaded"}}',
            1,
            FATAL,
            None,
        ),
        ("Error code: 404 - the model gpt-x does not exist, others are overloaded", 1, FATAL, None),
        ("API Error: 413 request too large: rate limit of 6000 tokens", 1, FATAL, None),
        ('{"name":"APIError","statusCode":422,"message":"quota exceeded"}', 1, FATAL, None),
        ("HTTP 403: this organization has been disabled", 1, FATAL, None),
        ("HTTP 403: API rate limit exceeded", 1, LIMITED, None),
        ("API Error: 401 once\nAPI Error: 529 overloaded_error", 1, LIMITED, None),
        (
            'API Error: 429 {"error":{"type":"invalid_request_error"}}, retry after 5 seconds',
            1,
            LIMITED,
            5.0,
        ),
        ("got status: 503 UNAVAILABLE: the model is overloaded", 1, LIMITED, None),
        ("expected status 200, got status 404\nthe tests do not pass", 1, OTHER, None),
        ("the tests do not pass", 1, OTHER, None),
        ("I looked at line 429 of a.py", 0, None, None),
    ],
)
def test_kinds(said: str, code: int, kind: str | None, wait: float | None) -> None:
    found = call.classify_failure(answer(said, code), NOW)
    assert (found.kind if found else None, found.wait if found else None) == (kind, wait)


def test_what_an_agent_says_that_has_worked_is_about_its_work() -> None:
    """The agent may have written a program that is not logged in."""
    found = call.classify_failure(answer("not logged in; connection refused", worked=True), NOW)
    assert found is not None
    assert found.kind == OTHER


@pytest.mark.parametrize(
    ("error", "said", "kind"),
    [
        ("the limit of turns was reached", "I wrote the rate limit, which answers 429", OTHER),
        (None, "the rate limit answers 429\n2 tests fail", OTHER),
        ("API Error: 429 rate_limit_error", "I began", LIMITED),
        (None, "I began\nHTTP 429: slow down", LIMITED),
    ],
)
def test_a_limit_that_has_ended_work_is_the_clients_word_for_it(
    error: str | None, said: str, kind: str
) -> None:
    """A limit uses no iteration, so an agent that works on limits would never end."""
    report = AgentReport("", worked=True, structured=True, is_error=error is not None, error=error)
    found = call.classify_failure(replace(answer(said), report=report), NOW)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("said", "wait"),
    [
        ("20ms", 0.02),
        ("20 milliseconds", 0.02),
        ("3 min", 180.0),
        ("3 mins", 180.0),
        ("3m", 180.0),
        ("3 s", 3.0),
        ("3", 3.0),
        ("2h", 7200),
    ],
)
def test_units(said: str, wait: float) -> None:
    found = call.classify_failure(answer(f"429: try again in {said}"), NOW)
    assert found is not None
    assert found.wait == wait


def test_one_that_took_too_long_is_like_any_other() -> None:
    found = call.classify_failure(answer("…", ended_by=TIMEOUT), NOW)
    assert found is not None
    assert found.kind == OTHER


def test_waits_grow_up_to_an_hour() -> None:
    assert [call.compute_rate_limit_wait(None, times) for times in (1, 2, 3, 7, 9999)] == [
        60,
        120,
        240,
        3600,
        3600,
    ]


def test_a_client_that_says_no_time_is_not_asked_without_end() -> None:
    assert [call.compute_rate_limit_wait(0.02, times) for times in (1, 2, 3, 7, 9999)] == [
        1,
        2,
        4,
        60,
        60,
    ]
    assert [call.compute_rate_limit_wait(90.0, times) for times in (1, 2, 9999)] == [90, 90, 90]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "gemini --output-format json",
            "Error resuming session: No previous sessions found for this project.",
        ),
        ("claude -p --output-format json", "No conversation found with session ID: x"),
        ("opencode run --format json", "Error: Session not found: ses_1"),
    ],
)
def test_a_conversation_that_is_forgotten(name: str, said: str) -> None:
    assert find_client(name, {}).is_session_error(said)
