"""Documents read line by line, without `tomllib`, give the same result."""

from __future__ import annotations

import contextlib
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gitckpt.model import toml
from tests.model.example_documents import DOCUMENT, SMALL_DOCUMENT, quick

_LINES = (
    *(
        'a = "b"',
        'a = "é\u0085"',
        "a-1 = 10",
        "b = -0",
        "b = 007",
        "b = 1_0",
        "b = +1",
        "c = true",
        "c = false",
        "c = True",
        "c = true\r",
    ),
    *(
        "d = []",
        "d = [1]",
        "[t]",
        "[t.u]",
        "[[t]]",
        "[ t ]",
        "[v]",
        "[d]",
        "v = 1",
        "",
        " ",
        "# no",
        "a=1",
        "a.b = 1",
        "k =  1",
        "g = 1.0",
    ),
    *(
        'a = "\\n"',
        "a = 'x'",
        'a = """x"""',
        'e = ""',
        'f = "x" # y',
        "h = 12345678901234567890",
        "h = 123456789012345678",
    ),
    *("#", "#\ttab", "# \x01", "# \x7f", "# \r", "# é\u0085\udc80", " # no", '# a = "b"', "#[t]"),
    *(
        'i = "\t"',
        'i = "\r"',
        'i = "\x7f"',
        '"q" = 1',
        'a = "b" "c"',
        "x = 1979-05-27",
        "y = 1 ",
        " z = 1",
        "é = 1",
    ),
)


@quick
@given(some.lists(some.sampled_from(_LINES), max_size=8).map("\n".join))
def test_what_is_read_line_by_line_is_what_tomllib_reads(text: str) -> None:
    found = toml._parse_simple_toml(text)
    wanted = None
    with contextlib.suppress(tomllib.TOMLDecodeError):
        wanted = tomllib.loads(text)
    assert found is None or found == wanted


def test_each_line_is_read_as_tomllib_reads_it_or_left_to_it() -> None:
    alone = {line: toml._parse_simple_toml(line) for line in _LINES}
    assert {line for line, found in alone.items() if found is not None} == {
        *(
            'a = "b"',
            'a = "é\u0085"',
            "a-1 = 10",
            "b = -0",
            "c = true",
            "c = false",
            "d = []",
            "[t]",
            "[t.u]",
            "[v]",
            "[d]",
            "v = 1",
            "",
            'e = ""',
        ),
        *("h = 123456789012345678", "# no", "#", "#\ttab", "# é\u0085\udc80", '# a = "b"', "#[t]"),
    }


def test_most_documents_are_read_line_by_line() -> None:
    assert toml._parse_simple_toml(SMALL_DOCUMENT) == tomllib.loads(SMALL_DOCUMENT)
    assert toml._parse_simple_toml(DOCUMENT) is None


def test_short_documents_alone_are_read_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    short = SMALL_DOCUMENT + "\n" * (4000 - len(SMALL_DOCUMENT))
    really, read = tomllib.loads, []

    def loads(text: str) -> dict[str, Any]:
        read.append(text)
        return really(text)

    monkeypatch.setattr(tomllib, "loads", loads)
    assert [toml.loads(text) for text in (SMALL_DOCUMENT, short, f"{short}\n")] == [
        really(SMALL_DOCUMENT)
    ] * 3
    assert read == [f"{short}\n"]
