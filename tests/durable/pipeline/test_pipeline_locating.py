"""The line of each key agrees with `tomllib` in generated and real documents."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import tomli_w
import tomlkit
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gitckpt.store.config.lines import KeyLocations, KeyPath
from tests.conftest import examples

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["a", "b", "a.b", "x#y", "[c]", '"', "'", "=", "\n"]
)
SCALARS = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.datetimes()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(["# no", '"""', "'''", "a = 1\n[b]\n", "\\", '\\"', "]", "}", ",", "x\ny"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(
    KEYS,
    VALUES | st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=3),
    max_size=4,
)


def paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of everything within a value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def assert_located(text: str) -> None:
    """Assert that every key stands on its reported line.

    No key of a table may be reported before the table itself.
    """
    lines = text.split("\n")
    locations = KeyLocations(text)
    for path in paths(tomllib.loads(text)):
        said, above = locations.line_of_key(*path), locations.line_of_key(*path[:-1])
        assert said >= above
        key = path[-1]
        if isinstance(key, str) and said > above:
            line = lines[said - 1]
            assert key in line or is_quoted_in(key, line), (path, line)


def is_quoted_in(key: str, line: str) -> bool:
    """Return whether one of the quoted words of a line is the key."""
    return any(
        tomllib.loads(f"k = {quoted}")["k"] == key
        for quoted in re.findall(r'(?=("(?:\\.|[^"\\])*"))', line)
    )


def is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


@given(DOCUMENTS)
@settings(deadline=None, max_examples=examples(60))
def test_what_tomlkit_writes(document: dict[str, Any]) -> None:
    text = tomlkit.dumps(document)
    assume(is_toml(text))  # some keys tomlkit writes wrongly
    assert_located(text)


@given(DOCUMENTS, st.booleans())
@settings(deadline=None, max_examples=examples(60))
def test_what_tomli_w_writes(document: dict[str, Any], multiline: bool) -> None:
    assert_located(tomli_w.dumps(document, multiline_strings=multiline))


BY_HAND = """\
# [pipelines.no]
top = { a = 1, "b.c" = [ 1, 2 ] } # { x = 1
title.short = "a = 1"
[pipelines]
[pipelines."a b".env]
X = '''
Y = 1
[pipelines.no]
''''
[pipelines.ci]
timeout   = "2h"
env = { A = "1", "B" = "}", C = '''
x''' }
[[pipelines.ci.phases]]
name = "one"
retries = { attempts = 2,  on = [
  1, # ]
  75,
] }
[[ pipelines . ci . 'phases' ]]
name = \"\"\"
a\\
b = 2\"\"\"\"\"
  needs = [
    "one",

    [ { deep = 1 }, { deep = 2 } ],
  ]
[pipelines.ci.phases.env]
X = 1979-05-27 07:32:00
[[other.inner]]
[[other.inner]]
y = 1.5
[other.inner.table]
z = +inf
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("top", "b.c", 1), 2),
        (("title", "short"), 3),
        (("pipelines",), 4),
        (("pipelines", "a b"), 5),
        (("pipelines", "a b", "env", "X"), 6),
        (("pipelines", "no"), 4),
        (("pipelines", "ci"), 10),
        (("pipelines", "ci", "timeout"), 11),
        (("pipelines", "ci", "env", "C"), 12),
        (("pipelines", "ci", "phases"), 14),
        (("pipelines", "ci", "phases", 0), 14),
        (("pipelines", "ci", "phases", 0, "retries", "on"), 16),
        (("pipelines", "ci", "phases", 0, "retries", "on", 0), 16),
        (("pipelines", "ci", "phases", 0, "retries", "on", 1), 16),
        (("pipelines", "ci", "phases", 0, "retries", "missing"), 16),
        (("pipelines", "ci", "phases", 1), 20),
        (("pipelines", "ci", "phases", 1, "name"), 21),
        (("pipelines", "ci", "phases", 1, "needs", 0), 24),
        (("pipelines", "ci", "phases", 1, "needs", 1), 24),
        (("pipelines", "ci", "phases", 1, "needs", 1, 1, "deep"), 24),
        (("pipelines", "ci", "phases", 1, "env"), 29),
        (("pipelines", "ci", "phases", 1, "env", "X"), 30),
        (("other", "inner", 0), 31),
        (("other", "inner", 1, "y"), 33),
        (("other", "inner", 1, "table", "z"), 35),
        (("nothing",), 1),
    ],
)
def test_what_a_person_writes(path: KeyPath, line: int) -> None:
    tomllib.loads(BY_HAND)
    assert KeyLocations(BY_HAND).line_of_key(*path) == line
    assert KeyLocations(BY_HAND.replace("\n", "\r\n")).line_of_key(*path) == line


def test_what_is_inside_a_value_has_the_line_of_its_key() -> None:
    text = f"a.b = [\n  {{ c = 1 }},\n]\nd = {'[' * 300}\n1\n{']' * 300}\ne = 1\n"
    locations = KeyLocations(text)
    assert locations.line_of_key("a", "b", 0, "c") == 1
    assert (locations.line_of_key("d", *[0] * 300), locations.line_of_key("e")) == (4, 7)
