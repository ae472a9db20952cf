"""Start-up is part of the product: what each command imports."""

from __future__ import annotations

import sys

import pytest

from tests.cli.conftest import Spawn
from tests.conftest import Checkout

HEAVY = ("pygit2", "tomlkit", "rich", "markdown_it", "pygments", "shellingham", "asyncio", "subprocess", "unittest")
PROBE = """
import sys
sys.argv[0] = "git-ckpt"
from gitckpt.__main__ import main
try:
    main()
finally:
    sys.stdout.flush()
    sys.stderr.write("\\nMODULES " + " ".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def modules_of(spawn: Spawn, checkout: Checkout, *args: str) -> set[str]:
    """Returns the top-level packages that a command has imported when it ends."""
    done = spawn(*args, at=checkout, argv=[sys.executable, "-c", PROBE])
    assert done.code == 0, done.err
    return set(done.err.rpartition("MODULES ")[2].split())


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["save"], ["list"], ["list", "--json"], ["show"], ["complete", "--", "sh"], ["resume"], ["uninit"]]
)
def test_no_command_of_every_day_imports_what_is_heavy(spawn: Spawn, main_checkout: Checkout, args: list[str]) -> None:
    assert spawn("save", at=main_checkout).code == 0
    found = modules_of(spawn, main_checkout, *args)
    assert "typer" in found
    assert found & set(HEAVY[:5]) == set()


@pytest.mark.parametrize("event", ["post-commit", "post-merge", "post-rewrite", "pre-auto-gc"])
def test_a_hook_imports_no_command_line(spawn: Spawn, main_checkout: Checkout, event: str) -> None:
    found = modules_of(spawn, main_checkout, "hook", event)
    assert "gitckpt" in found
    assert found & {"typer", "click", "sqlite3", "json", "tomllib", *HEAVY} == set()


def test_the_probe_sees_what_is_imported(spawn: Spawn, main_checkout: Checkout) -> None:
    assert "tomlkit" in modules_of(spawn, main_checkout, "init", "--hooks", "none")
    assert "typer" in modules_of(spawn, main_checkout, "hook", "--help")
