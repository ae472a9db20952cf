"""The documents speak of what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gitckpt.cli.parser.commands import COMMANDS
from tests.house_rules import RANK

ROOT = Path(__file__).parent.parent


def test_the_table_of_the_house_names_every_room_and_no_other() -> None:
    house = (ROOT / "docs" / "design.md").read_text().partition("| room | is for |")[2].partition("\n\n")[0]
    named = {room for line in house.splitlines() if line.startswith("| `") for room in re.findall(r"`([a-z._]+)`", line.split("|")[1])}
    assert named == set(RANK) - {"__main__", "cli.main"}


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
