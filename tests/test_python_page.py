"""The blocks of docs/python.md run as one program and print the output shown.

Its table names each error correctly.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import gitckpt
from gitckpt import BusyError, CkptError
from tests.conftest import Checkout

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/python.md").read_text()
FENCE = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[int, str, str]]:
    """Return the line, code and expected output of each executed block.

    The output is in the next block, if that is text.
    """
    found = [
        (page.count("\n", 0, match.start()) + 2, match[1], match[2])
        for match in FENCE.finditer(page)
    ]
    after = [*found[1:], (0, "", "")]
    return [
        (line, code, text if kind == "text" else "")
        for (line, is_a, code), (_, kind, text) in zip(found, after, strict=True)
        if is_a == "python"
    ]


def test_the_blocks_are_those_of_the_page() -> None:
    assert PAGE.count("```") == 2 * len(FENCE.findall(PAGE))
    assert [
        (line, text)
        for line, _, text in blocks("a\n```python\nb\n```\n\n```text\nc\n```\n```text\nd\n```\n")
    ] == [(3, "c\n")]
    texts = [kind for kind, _ in FENCE.findall(PAGE)].count("text")
    assert texts == len([text for _, _, text in blocks(PAGE) if text])


@pytest.mark.long
def test_each_block_prints_what_the_page_says(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(main_checkout.path)
    names: dict[str, Any] = {"__name__": "page"}
    try:
        for line, code, text in blocks(PAGE):
            exec(compile("\n" * (line - 1) + code, "docs/python.md", "exec"), names)
            assert (line, capsys.readouterr().out) == (line, text)
    finally:
        if "store" in names:
            names["store"].close()


def test_nobody_is_told_to_import_what_is_not_public() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py")]
    told = re.compile(r"(from|import)\s+gitckpt\.|gitckpt\.\w+\s+import")
    assert [
        (path.name, match[0]) for path in pages for match in told.finditer(path.read_text())
    ] == []
    lines = [
        line
        for path in pages
        for line in re.findall(r"^from gitckpt import ([\w, ]+)$", path.read_text(), re.MULTILINE)
    ]
    assert {name for line in lines for name in line.split(", ")} - set(gitckpt.__all__) == set()


ROWS = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.+) \| (\w+) \|$", PAGE, re.MULTILINE)


def test_the_table_names_every_public_error_and_what_it_is() -> None:
    public = [getattr(gitckpt, name) for name in gitckpt.__all__]
    errors = {
        each.__name__: each.__mro__[1].__name__
        for each in public
        if inspect.isclass(each) and issubclass(each, CkptError)
    }
    assert {name: base for name, base, _, _ in ROWS} == errors
    assert len(ROWS) == len(errors)


def test_what_is_busy_is_worth_another_call() -> None:
    again = {name for name, _, _, again in ROWS if again != "no"}
    busy = {name for name, *_ in ROWS if issubclass(getattr(gitckpt, name), BusyError)}
    assert (busy - again, again - busy) == ({"LeaseLost"}, {"Moved", "PhaseDeferred"})


@pytest.mark.parametrize(
    "public", [gitckpt.Store, gitckpt.Run, gitckpt.Pipelines, gitckpt.Steps, gitckpt.Observer]
)
def test_every_public_name_is_spoken_of(public: type) -> None:
    words = set(re.findall(r"\w+", PAGE))
    assert {name for name in dir(public) if name[0] != "_"} - words == set()
    assert {name for name in gitckpt.__all__ if name not in words} == set()


VALUES = {
    name: getattr(gitckpt, name)
    for name in gitckpt.__all__
    if dataclasses.is_dataclass(getattr(gitckpt, name))
}
WITHIN = {
    "Amount": "gitckpt.store.usage",
    "Decision": "gitckpt.model.policy",
    "Imported": "gitckpt.model.checkpoint",
    "Leftover": "gitckpt.store.usage",
    "Omitted": "gitckpt.model.checkpoint",
    "PathChange": "gitckpt.store.restore.plan",
    "PhaseProgress": "gitckpt.store.runs.summary",
    "RunFate": "gitckpt.store.retention.runs",
    "StepDefinition": "gitckpt.durable.steps.graph",
    "StepInfo": "gitckpt.store.restore.restorer",
    "Submodule": "gitckpt.model.checkpoint",
    "Suspect": "gitckpt.model.checkpoint",
    "WorktreeUse": "gitckpt.store.usage",
}
"""Types of fields of results that are not public names."""


@pytest.mark.parametrize("name", sorted({*VALUES, *WITHIN}))
def test_every_field_of_a_result_is_in_its_table(name: str) -> None:
    kind = VALUES.get(name) or getattr(importlib.import_module(WITHIN[name]), name)
    properties = {
        each
        for each in dir(kind)
        if each[0] != "_" and isinstance(inspect.getattr_static(kind, each), property)
    }
    table = PAGE.partition(f"\n### {name}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (?:[^|]|\\\|)+ \|$", table, re.MULTILINE)
    assert sorted(rows) == sorted({field.name for field in dataclasses.fields(kind)} | properties)


def test_the_tables_are_those_of_results() -> None:
    section = PAGE.partition("\n## Fields of results\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^### (\w+)$", section, re.MULTILINE)) == sorted({*VALUES, *WITHIN})


def test_two_worktrees_are_equal_where_the_same_was_captured(main_checkout: Checkout) -> None:
    with gitckpt.Store.open(main_checkout.path) as store:
        main_checkout.write("new", "x")
        one, two = store.capture(), store.capture()
        assert one == two
        main_checkout.write("new", "y")
        assert store.capture() != one
        main_checkout.commit("all", new="y")
        clean = store.capture()
        main_checkout.commit("more", new="z")
        assert (store.capture() == clean, clean.dirty) == (True, False), (
            "of the commit it says nothing"
        )
