"""The import rules hold, and each failure names the rule and its reason."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.house_rules import (
    DOORS,
    FLOORS,
    FOLDER_RANK,
    LAYERS,
    PROJECT,
    SOURCES,
    cycles,
    import_graph,
    imports_of,
    module_name,
    namesakes,
    room_of,
    violations,
    words,
)

# The project


def test_there_is_something_to_check() -> None:
    assert {
        "gitckpt/__init__.py",
        "gitckpt/model/toml.py",
        "gitckpt/git/process.py",
        "gitckpt/store/records/recorder.py",
    } <= set(SOURCES)


@pytest.mark.parametrize("path", SOURCES)
def test_module_keeps_the_rules_of_the_house(path: str) -> None:
    found = violations(path, SOURCES[path])
    assert not found, "\n".join(found)


@pytest.mark.long
def test_no_module_reaches_itself_by_way_of_others() -> None:
    found = cycles(import_graph(SOURCES))
    assert not found, (
        "modules import each other in a circle, types counted: "
        f"{[sorted(each) for each in found]}; none of them can be understood or "
        "tested alone. Move what both need beneath them"
    )


@pytest.mark.long
def test_no_name_stands_for_two_things() -> None:
    found = list(namesakes(SOURCES))
    assert not found, "\n".join(found)


def test_every_room_stands_and_every_door_leads_somewhere() -> None:
    """An unused public module or a missing package would make the rules too weak."""
    used: set[tuple[str, str]] = set()
    for path, source in SOURCES.items():
        for each in imports_of(path, source):
            parts = each.module.split(".")
            packages = ("/".join(parts[:depth]) for depth in range(2, len(parts)))
            used |= {
                (package, parts[package.count("/") + 1])
                for package in packages
                if not path.startswith(f"{package}/")
            }
    unused = {
        package: sorted(door for door in doors or () if (package, door) not in used)
        for package, doors in DOORS.items()
    }
    assert not any(unused.values()), (
        "public modules that no other room imports: "
        f"{ {package: doors for package, doors in unused.items() if doors} }"
    )
    rooms = {room for layer in LAYERS for room in layer}
    inside = {
        package.removeprefix("gitckpt/").replace("/", ".") for package in DOORS.keys() - FLOORS
    } - rooms
    assert inside == set(FOLDER_RANK), (
        "a folder in a room has no place in FOLDERS, or one in FOLDERS does not exist"
    )
    there = {room_of(module_name(path)) for path in SOURCES}
    assert rooms <= there, "a room in LAYERS does not exist"


# The hook's imports

LIGHT = [
    f"gitckpt.model.{name}"
    for name in ("errors", "ids", "times", "phase", "toml", "document", "table")
]
HOOK = [
    *(f"gitckpt.model.{name}" for name in ("document", "note", "times", "ids")),
    *(f"gitckpt.git.{name}" for name in ("process", "refs", "notes", "lock", "objects.plumbing")),
    *("gitckpt.store.records.recorder", "gitckpt.store.notes"),
]
HEAVY = words(
    """
    pygit2 typer tomlkit rich click dataclasses typing re enum subprocess pathlib datetime json \
tomllib hashlib inspect
    """
)


def loaded_by(modules: list[str]) -> set[str]:
    """Return the modules that a fresh interpreter loads when it imports `modules`."""
    code = (
        f"import sys; sys.path.insert(0, {str(PROJECT)!r}); import {', '.join(modules)}; "
        "print('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "modules",
    [
        *([module] for module in LIGHT),
        HOOK,
        *([["gitckpt.hook"]] if "gitckpt/hook.py" in SOURCES else []),
    ],
    ids=lambda modules: modules[0] if len(modules) == 1 else "all that the hook uses",
)
def test_what_the_hook_imports_is_light(modules: list[str]) -> None:
    loaded = loaded_by(modules)
    assert set(modules) <= loaded
    assert not loaded & HEAVY, (
        f"importing {', '.join(modules)} loads {sorted(loaded & HEAVY)}; the hook runs at every "
        "commit and has about 10 ms for everything: "
        "import such modules in the function that needs them, or do without"
    )


SAVE = [
    "gitckpt.cli.main",
    "gitckpt.cli.opening",
    "gitckpt.store.store",
    "gitckpt.store.snapshot.capture",
    "gitckpt.store.config.settings",
]


def test_what_a_save_imports_is_light() -> None:
    """Without these modules, the imports of a command take 34 ms instead of 57 ms."""
    loaded = loaded_by(SAVE)
    assert not loaded & words(
        "dataclasses inspect typing subprocess datetime shutil pathlib hashlib tomllib pygit2 "
        "typer tomlkit rich"
    )


@pytest.mark.parametrize("module", ["pathlib", "dataclasses", "json", "hashlib"])
def test_the_check_of_the_hook_s_imports_notices_a_heavy_one(module: str) -> None:
    assert module in loaded_by([module]) & HEAVY


# The tests

GIT = {
    "Checkout",
    "Ckpt",
    "Repository",
    "Stage",
    "Store",
    "discover_repository",
    "forked",
    "open_repository",
}
"""Imports by which a test runs git; a test with none of them covers a pure unit."""


def runs_git(source: str) -> bool:
    """Return whether a test works in a repository."""
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return any(alias.name in GIT for node in imports for alias in node.names)


def uses_internals(source: str) -> bool:
    """Return whether a test imports more than `from gitckpt import …`."""
    folders = {path.split("/")[1].removesuffix(".py") for path in SOURCES}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "gitckpt":
            names = [f"gitckpt.{each.name}" for each in node.names if each.name in folders]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        if any(name.startswith("gitckpt.") for name in names):
            return True
    return False


@pytest.mark.long
def test_tests_use_public_names() -> None:
    files = sorted((PROJECT / "tests").rglob("test_*.py"))
    sources = {path: path.read_text(encoding="utf-8") for path in files}
    internal = [path for path in files if uses_internals(sources[path]) and runs_git(sources[path])]
    assert len(internal) <= len(files) / 3, (
        f"{len(internal)} of {len(files)} test files run git and import internals of gitckpt, "
        "which then cannot change alone: use Store, the command line or git; tests/stores.py "
        "opens stores with a clock, tests/planted.py plants faults"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from gitckpt import Store", False),
        ("import gitckpt", False),
        ("from gitckpt import hook", True),
        ("from gitckpt.model import toml", True),
        ("import gitckpt.cli.main", True),
        ("def work():\n    from gitckpt.git.refs import Refs", True),
    ],
)
def test_imports_of_internals_are_seen(source: str, expected: bool) -> None:
    assert uses_internals(source) is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from tests.conftest import Checkout", True),
        ("from gitckpt import Store, UsageError", True),
        ("from gitckpt.model import toml", False),
    ],
)
def test_tests_that_run_git_are_seen(source: str, expected: bool) -> None:
    assert runs_git(source) is expected
