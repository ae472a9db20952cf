"""Files are written in the style of their own tools, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gitckpt import Checkpoint
from gitckpt.formats.systems import detection, forge, quasar, yaml_text
from gitckpt.formats.systems.content import Remarks, SourceFile
from tests.formats.conftest import SAMPLES


def named(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("forge/*.yaml")), ids=named)
def test_yaml_of_forge(path: Path) -> None:
    table = yaml_text.parse_yaml(path.read_text(), Remarks())
    for key in forge.NUMBERS:
        if key in table:
            table[key] = int(table[key])
    assert yaml_text.render_yaml(table, forge.TIMES).decode() == path.read_text()


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(SAMPLES.glob("quasar/*.toml")) if "nebula" not in path.name],
    ids=named,
)
def test_toml_of_quasar(path: Path) -> None:
    """A state keeps neither the offset of its time nor half a character."""
    record = quasar.read_review(SourceFile(path.name, path.read_bytes()))
    losses: list[str] = []
    written = quasar.write_review(
        Checkpoint(
            id="x",
            label=record.phase,
            timestamp="2026-01-01T00:00:00Z",
            git_sha="",
            trigger="import:quasar",
            state=record.state,
        ),
        losses,
    )
    expected = path.read_text("utf-8", "replace").replace(
        "2026-02-28T23:16:02.408934-05:00", "2026-03-01T04:16:02.408934Z"
    )
    assert written.decode() == expected
    assert losses == []


@pytest.mark.parametrize(
    "path",
    sorted(path for path in SAMPLES.rglob("*.*") if path.suffix in detection.SUFFIXES),
    ids=named,
)
def test_formats_are_told_by_their_content(path: Path) -> None:
    wanted = path.relative_to(SAMPLES).parts[0].removesuffix("-checkpoints")
    if "nebula" in path.name:
        wanted = "nebula"
    assert detection.detect_format(SourceFile(f"x{path.suffix}", path.read_bytes())) == wanted


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "x", "version": "1"}',
        "a = 1\n",
        "steps:\n  - run: make\n",
        "",
        "[]",
        "{}",
        "version = 1\nmax_cycles = 3\n",
    ],
)
def test_what_is_none_of_them(text: str) -> None:
    for suffix in detection.SUFFIXES:
        assert detection.detect_format(SourceFile(f"x{suffix}", text.encode())) is None


def test_a_workflow_of_somebody_else_is_none_of_forges() -> None:
    text = "id: x\ncreated_at: y\nstatus: z\nsteps:\n  - uses: actions/checkout\n"
    assert detection.detect_format(SourceFile("x.yml", text.encode())) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("on", '"on"'),
        ("Null", '"Null"'),
        ("12", '"12"'),
        ("=", '"="'),
        ("2026-02-17", '"2026-02-17"'),
        ("", '""'),
        ("a: b", "'a: b'"),
        ("it's: so", "'it''s: so'"),
        ("it's", "it's"),
        ("a\tb", '"a\\tb"'),
        ("a\nb", "|-\n    a\n    b"),
        ("a\nb\n", "|\n    a\n    b"),
        ("a\n\n", "|+\n    a\n"),
        (" a\nb", "|4-\n     a\n    b"),
        ("a \nb", '"a \\nb"'),
        ("\x1b[31m", '"\\e[31m"'),
        ("日本", "日本"),
        (7, "7"),
        (True, "true"),
    ],
)
def test_strings_in_the_style_of_yaml_v3(value: object, text: str) -> None:
    assert yaml_text.render_yaml({"key": value}, frozenset()).decode() == f"key: {text}\n"


def test_go_writes_no_exponents_and_no_zeros_at_the_end_of_a_second() -> None:
    text = (SAMPLES / "quasar/quasar-5r9x.cycle1.toml").read_text()
    changed = re.sub(
        r"^total_cost_usd = .*$", "total_cost_usd = 0.0000001", text, flags=re.MULTILINE
    )
    changed = re.sub(
        r"^max_budget_usd = .*$",
        "max_budget_usd = 1000000000000000000000.0",
        changed,
        flags=re.MULTILINE,
    )
    record = quasar.read_review(SourceFile("x.toml", changed.encode()))
    again = quasar.write_review(
        Checkpoint(
            id="x",
            label="a-failed",
            timestamp="2026-01-01T00:00:00Z",
            git_sha="",
            trigger="x",
            state=record.state,
        ),
        [],
    )
    assert again.decode() == changed
