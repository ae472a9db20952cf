"""The documents speak of what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gitckpt.cli.parser.commands import COMMANDS

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("floor", ["model", "git", "store"])
def test_the_floor_plan_names_every_module(floor: str) -> None:
    plan = (ROOT / "docs" / "design.md").read_text().partition("```")[2].partition("```")[0]
    named = set(re.findall(r"[a-z0-9_]+", plan))
    modules = {file.stem for file in (ROOT / "gitckpt" / floor).glob("*.py")} - {"__init__"}
    assert modules - named == set()


@pytest.mark.parametrize("page", ["README.md", "man/git-ckpt.1"])
def test_every_command_is_described(page: str) -> None:
    text = (ROOT / page).read_text()
    shown = {name for name, command in COMMANDS.items() if command.summary}
    assert {name for name in shown if not re.search(rf"\b{name}\b", text)} == set()


def test_links_between_documents_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
