"""Tables, links, names and promises in the documents match the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gitckpt.git import command
from tests.cli.conftest import COMMANDS
from tests.house_rules import RANK
from tests.store.config import test_user_settings

ROOT = Path(__file__).parent.parent


def test_the_table_of_the_house_names_every_room_and_no_other() -> None:
    house = (
        (ROOT / "docs" / "architecture.md")
        .read_text()
        .partition("| room | is for |")[2]
        .partition("\n\n")[0]
    )
    named = {
        room
        for line in house.splitlines()
        if line.startswith("| `")
        for room in re.findall(r"`([a-z._]+)`", line.split("|")[1])
    }
    assert named == set(RANK) - {"__main__", "cli.main"}


@pytest.mark.parametrize("page", ["README.md", "man/git-ckpt.1"])
def test_every_command_is_described(page: str) -> None:
    text = (ROOT / page).read_text()
    shown = set(COMMANDS)
    assert {name for name in shown if not re.search(rf"\b{name}\b", text)} == set()


def test_links_between_documents_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_promises_name_tests_that_exist() -> None:
    lines = (ROOT / "docs" / "promises.md").read_text().split("\n* ")[1:]
    named = [re.findall(r"`(tests/[^`]+\.py)`", line) for line in lines]
    assert all(named), "each promise names its test"
    assert [path for paths in named for path in paths if not (ROOT / path).is_file()] == []


def test_architecture_names_files_that_exist() -> None:
    rows = (ROOT / "docs" / "architecture.md").read_text().partition("## Where do I change")[2]
    paths = re.findall(r"`([a-z_/]+/[a-z_]+\.(?:py|md|toml))`", rows)
    assert len(paths) > 20
    assert [
        path
        for path in paths
        if not ((ROOT / path).is_file() or (ROOT / "gitckpt" / path).is_file())
    ] == []


def test_pages_stay_short() -> None:
    limits = {"README.md": 130, "CONTRIBUTING.md": 60, "docs/architecture.md": 150}
    limits |= {
        path.relative_to(ROOT).as_posix(): 25 for path in (ROOT / "docs/decisions").glob("0*.md")
    }
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path in limits}
    assert {path: length for path, length in lengths.items() if length > limits[path]} == {}


def test_the_table_of_settings_names_all_that_are_tried_and_all_that_are_overruled() -> None:
    page = (ROOT / "docs" / "exact.md").read_text()
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    overruled = [
        word
        for word in (*command._FIXED, *command.NO_HOOKS)
        if "=" in word and word != "core.warnAmbiguousRefs=false"
    ]
    tried = {
        name.partition("=")[0] for name in (*test_user_settings.SETTINGS, *overruled)
    } | test_user_settings.VARIABLES.keys()
    known = {
        re.sub(r"^(submodule|hook|filter)\.(.+)\.(\w+)$", r"\1.<name>.\3", name) for name in tried
    }
    assert known - named - {"hook.<name>.enabled"} == set()
