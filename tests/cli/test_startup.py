"""Each command imports only the modules that it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.cli.conftest import PROJECT, Spawn
from tests.conftest import Checkout
from tests.stores import default_settings

HEAVY = (
    "pygit2",
    "tomlkit",
    "jinja2",
    "rich",
    "markdown_it",
    "pygments",
    "shellingham",
    "asyncio",
    "subprocess",
    "unittest",
)
ALL = {file.stem for file in (PROJECT / "gitckpt" / "cli" / "commands").glob("[a-z]*.py")} - {
    "demo"
}
"""The modules that contain commands."""

PROBE = """
import os, sys
sys.argv[0] = "git-ckpt"
leave = os._exit
def tell(code):
    sys.stderr.write("\\nMODULES " + " ".join(sorted(sys.modules)))
    sys.stderr.flush()
    leave(code)
os._exit = tell
from gitckpt.__main__ import main
main()
"""


def modules_of(spawn: Spawn, checkout: Checkout, *args: str) -> set[str]:
    """Return the modules that a command has imported when it ends."""
    done = spawn(*args, at=checkout, argv=[sys.executable, "-c", PROBE])
    assert done.code == 0, done.err
    return set(done.err.rpartition("MODULES ")[2].split())


def commands_among(found: set[str]) -> set[str]:
    """Return the imported modules that contain commands."""
    return {name.split(".")[3] for name in found if name.startswith("gitckpt.cli.commands.")} & ALL


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("args", "module"),
    [
        (["--version"], None),
        (["save", "-m", "x"], "save"),
        (["-q", "save", "--no-worktree"], "save"),
        (["list", "-n", "5"], "list"),
        (["list", "--json"], "list"),
        (["-C", ".", "show", "latest"], "show"),
        (["show", "--state"], "show"),
        (["log"], "log"),
        (["log", "-n", "5", "--oneline", "--", "README"], "log"),
        (["ls", "latest"], "files"),
        (["why", "README"], "why"),
        (["resume", "latest"], "resume"),
        (["du"], "du"),
        (["notes"], "doctor"),
    ],
)
def test_a_plain_call_of_every_day_pays_neither_for_typer_nor_for_other_commands(
    spawn: Spawn,
    main_checkout: Checkout,
    save: Callable[..., str],
    args: list[str],
    module: str | None,
) -> None:
    save(main_checkout)
    found = modules_of(spawn, main_checkout, *args)
    assert (
        found
        & {
            "typer",
            "click",
            "gitckpt.cli.parser.app",
            "traceback",
            *HEAVY,
        }
        == set()
    )
    assert commands_among(found) == ({module} if module else set())


@pytest.mark.parametrize(
    "args",
    [
        ["runs", "--json"],
        ["start", "a-run"],
        ["run", "ci", "--dry-run"],
        ["verify", "--json"],
        ["expire", "-n", "--keep-last", "5"],
    ],
)
def test_no_plain_call_imports_what_the_parser_needs(
    spawn: Spawn, main_checkout: Checkout, args: list[str]
) -> None:
    """Typer 0.29 and later imports pydantic, which takes 130 ms."""
    main_checkout.write("gitckpt.toml", '[[pipelines.ci.phases]]\nname = "a"\nrun = "true"\n')
    assert modules_of(spawn, main_checkout, *args) & {"typer", "click", "pydantic"} == set()


def test_settings_as_they_were_made_need_no_library_to_be_read(
    spawn: Spawn, main_checkout: Checkout
) -> None:
    main_checkout.write("gitckpt.toml", default_settings())
    assert "tomllib" not in modules_of(spawn, main_checkout, "save", "-m", "x")


def test_the_version_needs_nothing_of_git(spawn: Spawn, main_checkout: Checkout) -> None:
    assert not {
        name
        for name in modules_of(spawn, main_checkout, "--version")
        if name.startswith(("gitckpt.git", "gitckpt.store"))
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "modules"),
    [
        (["diff", "-h"], {"diff"}),
        (["save", "--help"], {"save"}),
        (["list", "-n5"], {"list"}),
        (["uninit", "--help"], {"init"}),
        (["--help"], ALL),
        (["-qh"], ALL),
        (["--version", "list"], ALL),
    ],
)
def test_typer_imports_the_command_that_is_called_and_for_help_and_completion_all(
    spawn: Spawn,
    main_checkout: Checkout,
    save: Callable[..., str],
    args: list[str],
    modules: set[str],
) -> None:
    save(main_checkout)
    found = modules_of(spawn, main_checkout, *args)
    assert "typer" in found
    assert found & set(HEAVY[:5]) == set()
    assert commands_among(found) == modules


@pytest.mark.parametrize("event", ["post-commit", "post-merge", "post-rewrite", "pre-auto-gc"])
def test_a_hook_imports_no_command_line(spawn: Spawn, main_checkout: Checkout, event: str) -> None:
    found = modules_of(spawn, main_checkout, "hook", event)
    assert "gitckpt" in found
    assert found & {"typer", "click", "sqlite3", "json", "tomllib", *HEAVY} == set()


@pytest.mark.long
def test_the_probe_sees_what_is_imported(spawn: Spawn, main_checkout: Checkout) -> None:
    assert "tomlkit" in modules_of(spawn, main_checkout, "init", "--hooks", "none")
    assert "typer" in modules_of(spawn, main_checkout, "hook", "--help")
