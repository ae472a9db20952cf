"""The checker of the import and style rules notices each violation."""

from __future__ import annotations

import pytest

from tests.house_rules import cycles, import_graph, namesakes, violations


@pytest.mark.parametrize(
    ("path", "source", "said"),
    [
        (
            "gitckpt/model/x.py",
            "from gitckpt.git import refs",
            "model imports gitckpt.git.refs of git, which lies above it",
        ),
        (
            "gitckpt/model/x.py",
            "import gitckpt.store.store",
            "model imports gitckpt.store.store of store.store, which lies above it",
        ),
        (
            "gitckpt/git/x.py",
            "def f():\n    from gitckpt.store.records.ref_names import NOTES",
            "x.py:2: git imports gitckpt.store",
        ),
        (
            "gitckpt/git/x.py",
            "from ..store.records import ref_names",
            "git imports gitckpt.store.records.ref_names of store.records",
        ),
        (
            "gitckpt/git/objects/x.py",
            "from ...store import error_log",
            "git imports gitckpt.store.error_log of store.error_log",
        ),
        (
            "gitckpt/store/records/x.py",
            "from gitckpt.store.audit import verification",
            "above it; a room imports only those",
        ),
        (
            "gitckpt/store/snapshot/x.py",
            "from gitckpt.store.leases import lease",
            "store.leases, which lies beside it",
        ),
        (
            "gitckpt/store/runs/x.py",
            "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from gitckpt.durable.run import y",
            ":3: store.runs",
        ),
        (
            "gitckpt/store/runs/x.py",
            "import typing\nif typing.TYPE_CHECKING:\n    from gitckpt.cli.main import app",
            ":3: store.runs",
        ),
        (
            "gitckpt/durable/run/x.py",
            "from gitckpt import hook",
            "durable.run imports gitckpt.hook of hook, which lies above it",
        ),
        (
            "gitckpt/durable/run/x.py",
            "import gitckpt.__main__",
            "durable.run imports gitckpt.__main__ of __main__",
        ),
        (
            "gitckpt/git/x.py",
            "import importlib\nimportlib.import_module('gitckpt.store.store')",
            "x.py:2: git imports gitckpt.store.store",
        ),
        (
            "gitckpt/git/x.py",
            "import importlib\nimportlib.import_module(name)",
            "imports gitckpt.<computed>, which belongs to no room",
        ),
        (
            "gitckpt/git/x.py",
            "import gitckpt.attic.y",
            "imports gitckpt.attic.y, which belongs to no room",
        ),
        ("gitckpt/attic/x.py", "", "stands in no room"),
        ("gitckpt/attic.py", "", "stands in no room"),
        ("gitckpt/store/x.py", "", "stands in no room"),
        (
            "gitckpt/store/audit/x.py",
            "from gitckpt.store.retention import runs",
            "retention.runs, which is no door",
        ),
        (
            "gitckpt/hook.py",
            "def f():\n    from gitckpt.store.snapshot.status import GitStatus",
            "no door of gitckpt/store/snapshot; others come in by",
        ),
        (
            "gitckpt/git/worktree/x.py",
            "from gitckpt.git.objects import libgit2",
            "no door of gitckpt/git/objects; others come in by",
        ),
        (
            "gitckpt/durable/phases/loop/x.py",
            "from ..review import prompts",
            "no door of gitckpt/durable/phases/review",
        ),
        (
            "gitckpt/store/audit/x.py",
            "import gitckpt.store.records.other",
            "no door of gitckpt/store/records; others come in by",
        ),
        (
            "gitckpt/git/contents/x.py",
            (
                "TYPE_CHECKING = False\nif TYPE_CHECKING:\n"
                "    from gitckpt.git.objects.loose import write"
            ),
            (
                "x.py:3: imports gitckpt.git.objects.loose.write, which is no door of "
                "gitckpt/git/objects"
            ),
        ),
        (
            "gitckpt/durable/phases/agent.py",
            "def f():\n    from gitckpt.durable.phases.loop.other import x",
            (
                "agent.py:2: imports gitckpt.durable.phases.loop.other.x, which is no door of "
                "gitckpt/durable/phases/loop"
            ),
        ),
        (
            "gitckpt/cli/commands/x.py",
            "from gitckpt.formats import clock",
            "no door of gitckpt/formats; others come in by exporter, importer",
        ),
        (
            "gitckpt/__init__.py",
            (
                "TYPE_CHECKING = False\nif TYPE_CHECKING:\n"
                "    from gitckpt.durable.phases.review.prompts import Cycle as Cycle"
            ),
            (
                "__init__.py:3: imports gitckpt.durable.phases.review.prompts.Cycle, which is no "
                "door of gitckpt/durable/phases/review"
            ),
        ),
        (
            "gitckpt/git/objects/x.py",
            "from gitckpt.git.worktree import index",
            "git.objects imports gitckpt.git.worktree.index of git.worktree",
        ),
        (
            "gitckpt/git/files/x.py",
            "def f():\n    from gitckpt.git.contents.bounds import x",
            "x.py:2: git.files imports gitckpt.git.contents",
        ),
        (
            "gitckpt/git/files/x.py",
            "from ..worktree import index",
            "of git.worktree, which lies above it; folders in a room import only",
        ),
        (
            "gitckpt/durable/phases/review/x.py",
            "from gitckpt.durable.phases.loop import loop",
            "of durable.phases.loop, which lies beside it",
        ),
        (
            "gitckpt/git/objects/x.py",
            "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from gitckpt.git.files import atomic",
            (
                "x.py:3: git.objects imports gitckpt.git.files.atomic of git.files, "
                "which lies above it"
            ),
        ),
        (
            "gitckpt/git/worktree/x.py",
            "from gitckpt.git import objects",
            "imports the folder gitckpt.git.objects, by which all",
        ),
        (
            "gitckpt/git/objects/__init__.py",
            '"""The objects."""',
            "lists no public modules; without the list",
        ),
        (
            "gitckpt/store/records/__init__.py",
            '"""The records."""\nfrom gitckpt.store.records.index import Index',
            "and nothing else",
        ),
        (
            "gitckpt/store/records/__init__.py",
            "",
            "must be a docstring that says what the room is for",
        ),
        (
            "gitckpt/store/records/indexing.py",
            "",
            "is called indexing; modules are nouns of the field",
        ),
        (
            "gitckpt/__init__.py",
            "from gitckpt.store.store import Store",
            "the package itself imports gitckpt.store.store.Store",
        ),
        ("gitckpt/model/x.py", "import yaml", "floor 0 needs nothing but Python"),
        ("gitckpt/model/x.py", "import os.path", "imports os; floor 0 is pure"),
        (
            "gitckpt/model/x.py",
            "def f():\n    import subprocess",
            "x.py:2: imports subprocess; floor 0 is pure",
        ),
        ("gitckpt/model/x.py", "from pathlib import Path", "imports pathlib; floor 0 is pure"),
        ("gitckpt/model/x.py", "def f(p):\n    return open(p).read()", "x.py:2: calls open()"),
        (
            "gitckpt/cli/commands/x.py",
            "def f():\n    from gitckpt.store.store import checkpoints_of_store",
            "x.py:2: imports gitckpt.store.store.checkpoints_of_store, which is not public",
        ),
        ("gitckpt/model/x.py", "print(1)", "calls print()"),
        (
            "gitckpt/cli/commands/x.py",
            "import sys\nsys.stdout.write('x')",
            "calls sys.stdout.write()",
        ),
        (
            "gitckpt/cli/commands/x.py",
            "import sys\nsys.stderr.buffer.write(b'x')",
            "calls sys.stderr.buffer.write()",
        ),
        (
            "gitckpt/cli/commands/x.py",
            "from gitckpt.cli import terminal\nterminal.EscapedText('x')",
            "calls terminal.EscapedText()",
        ),
        ("gitckpt/model/ids.py", "import os\nos.getcwd()", "ids.py:2: uses os.getcwd"),
        (
            "gitckpt/store/error_log.py",
            "import subprocess",
            "imports subprocess; only gitckpt/git/process.py starts processes",
        ),
        (
            "gitckpt/cli/commands/x.py",
            "from subprocess import run",
            "imports subprocess.run; only gitckpt/git/process.py starts processes",
        ),
        ("gitckpt/store/audit/x.py", "import os\nos.system('x')", "x.py:2: uses os.system"),
        (
            "gitckpt/store/audit/x.py",
            "import os as o\no.posix_spawn('x', [], {})",
            "x.py:2: uses o.posix_spawn",
        ),
        ("gitckpt/hook.py", "import os\nos.execv('x', [])", "hook.py:2: uses os.execv"),
        (
            "gitckpt/cli/commands/x.py",
            "from os import popen",
            "imports os.popen; only gitckpt/git/process.py",
        ),
        (
            "gitckpt/cli/commands/x.py",
            "import asyncio\nasyncio.create_subprocess_exec('x')",
            "uses asyncio.create_subprocess_exec",
        ),
        (
            "gitckpt/git/refs.py",
            "import pygit2",
            "imports pygit2, which only gitckpt/git/objects/libgit2.py may; pygit2 takes 80 ms",
        ),
        ("gitckpt/git/refs.py", "from pygit2.enums import Option", "imports pygit2, which only"),
        (
            "gitckpt/git/x.py",
            "def f():\n    import tomllib",
            "x.py:2: imports tomllib, which only gitckpt/model/toml.py may; one module owns TOML",
        ),
        (
            "gitckpt/cli/commands/x.py",
            "import tomlkit",
            "imports tomlkit, which only gitckpt/store/config/settings.py may",
        ),
        (
            "gitckpt/store/store.py",
            "import sqlite3",
            "which only gitckpt/store/records/index.py may",
        ),
        ("gitckpt/hook.py", "import typer", "imports typer, which only gitckpt/cli/ may"),
        (
            "gitckpt/store/audit/x.py",
            "from rich.table import Table",
            "imports rich, which only gitckpt/cli/ may",
        ),
        ("gitckpt/__main__.py", "import click", "imports click, which only gitckpt/cli/ may"),
        ("gitckpt/store/audit/x.py", "import requests", "imports requests, which is no dependency"),
        (
            "gitckpt/store/audit/x.py",
            "try:\n    f()\nexcept Exception:\n    pass",
            "x.py:3: `except Exception`: a broad except hides bugs",
        ),
        (
            "gitckpt/store/audit/x.py",
            "try:\n    f()\nexcept BaseException:\n    g()",
            "`except BaseException`",
        ),
        ("gitckpt/store/audit/x.py", "try:\n    f()\nexcept:\n    g()", "x.py:3: `except `"),
        (
            "gitckpt/cli/commands/x.py",
            "try:\n    f()\nexcept (OSError, Exception) as e:\n    g()",
            "`except (OSError, Exception)`",
        ),
        (
            "gitckpt/store/audit/x.py",
            "import builtins\ntry:\n    f()\nexcept builtins.Exception:\n    g()",
            "`except builtins.Exception`",
        ),
        (
            "gitckpt/store/audit/x.py",
            "try:\n    f()\nexcept BaseException as e:\n    raise ValueError from e",
            "`except BaseException`",
        ),
        (
            "gitckpt/store/audit/x.py",
            (
                "def h():\n    try:\n        f()\n    except BaseException:\n        if g():\n"
                "            return\n        raise"
            ),
            "x.py:4",
        ),
        (
            "gitckpt/store/audit/x.py",
            "import contextlib\nwith contextlib.suppress(Exception):\n    f()",
            "x.py:2: `contextlib.suppress(Exception)`",
        ),
        (
            "gitckpt/git/x.py",
            "try:\n    f()\nexcept OSError as e:\n    e.filename = p\n    raise",
            "x.py:4: `e.filename` changes an error",
        ),
        (
            "gitckpt/git/x.py",
            "try:\n    f()\nexcept OSError as e:\n    if g():\n        e.args += (p,)",
            "x.py:5: `e.args` changes an error",
        ),
        (
            "gitckpt/git/x.py",
            "try:\n    f()\nexcept OSError as e:\n    a, e.found[0] = b",
            "`e.found[0]` changes an error that was raised",
        ),
        (
            "gitckpt/git/x.py",
            "try:\n    f()\nexcept OSError as e:\n    del e.hint",
            "`e.hint` changes an error",
        ),
        (
            "gitckpt/git/x.py",
            "try:\n    f()\nexcept OSError as e:\n    setattr(e, 'hint', h)",
            "`setattr(e, 'hint', h)` changes an error",
        ),
        (
            "gitckpt/git/x.py",
            "try:\n    f()\nexcept OSError as e:\n    e.add_note(h)",
            "`e.add_note(h)` changes an error",
        ),
        ("gitckpt/git/x.py", "def f():\n" + "    g()\n" * 75, "x.py:1: f has 76 lines"),
        (
            "gitckpt/cli/commands/x.py",
            "def f(\n    a,\n):\n" + "    g()\n" * 76,
            "x.py:1: f has 76 lines",
        ),
        (
            "gitckpt/store/audit/x.py",
            "import os\nos.path.join(r.common_dir, 'ckpt')",
            "x.py:2: `os.path.join(r.common_dir, 'ckpt')`",
        ),
        (
            "gitckpt/store/audit/x.py",
            "import os\nos.path.join(r.common_dir, 'ckpt/index')",
            "knows the path of the private directory",
        ),
        (
            "gitckpt/store/runs/x.py",
            "def f(git):\n    git.run('ls-tree', '-r')",
            "x.py:2: asks git for 'ls-tree'; only gitckpt/git/",
        ),
        ("gitckpt/store/utils.py", "", "is called utils; such a name says nothing"),
        ("gitckpt/git/_helpers.py", "", "is called _helpers"),
        ("gitckpt/store/common/x.py", "", "is called common"),
        ("gitckpt/misc.py", "", "is called misc"),
    ],
)
def test_the_checker_notices(path: str, source: str, said: str) -> None:
    assert [
        found for found in violations(path, source) if found.startswith(path) and said in found
    ], violations(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "gitckpt/__init__.py",
            "def __getattr__(name):\n    from gitckpt.store.store import Store\n    return Store",
        ),
        (
            "gitckpt/model/x.py",
            (
                "import re\nfrom collections.abc import Mapping\nfrom gitckpt.model import ids\n"
                "from . import times"
            ),
        ),
        ("gitckpt/model/ids.py", "import os\nos.urandom(16)"),
        ("gitckpt/model/toml.py", "def f():\n    import tomllib"),
        ("gitckpt/git/process.py", "import os\nos.posix_spawn('x', [], {})"),
        ("gitckpt/git/objects/libgit2.py", "import pygit2\nfrom pygit2.enums import Option"),
        (
            "gitckpt/store/audit/x.py",
            (
                "from gitckpt import __version__\nimport gitckpt\nfrom gitckpt.git import refs\n"
                "import os\nos.replace('a', 'b')"
            ),
        ),
        ("gitckpt/store/audit/x.py", "try:\n    f()\nexcept BaseException:\n    g()\n    raise"),
        ("gitckpt/store/audit/x.py", "try:\n    f()\nexcept (OSError, ValueError):\n    pass"),
        (
            "gitckpt/git/x.py",
            (
                "try:\n    f()\nexcept OSError as e:\n    self.error = found[e.errno] = e\n"
                "    e = g(e)"
            ),
        ),
        (
            "gitckpt/git/objects/x.py",
            "from gitckpt.git.objects import libgit2, loose\nfrom . import port",
        ),
        (
            "gitckpt/git/worktree/x.py",
            (
                "from gitckpt.git.objects import writer\n"
                "from gitckpt.git.objects.encoding import object_id"
            ),
        ),
        (
            "gitckpt/durable/phases/x.py",
            (
                "from gitckpt.durable.phases.review import phase\n"
                "from gitckpt.durable.phases.loop import loop"
            ),
        ),
        (
            "gitckpt/git/x.py",
            "from gitckpt.git.worktree import index\nfrom gitckpt.git.contents import bounds",
        ),
        ("gitckpt/git/objects/x.py", "from gitckpt.git import leftovers"),
        (
            "gitckpt/store/records/x.py",
            "from gitckpt.store.records import ref_names\nfrom gitckpt.git.contents import bounds",
        ),
        ("gitckpt/store/config/settings.py", "import tomlkit"),
        ("gitckpt/store/records/index.py", "import sqlite3"),
        ("gitckpt/durable/run/x.py", "import subprocess\nfrom gitckpt.store.store import Store"),
        ("gitckpt/git/x.py", 'def f():\n    """Says.\n' + "\n" * 75 + '    """\n    g()'),
        ("gitckpt/cli/commands/x.py", "def f(\n" + "    a,\n" * 75 + "):\n    g()"),
        ("gitckpt/hook.py", "try:\n    f()\nexcept BaseException:\n    g()"),
        (
            "gitckpt/cli/main.py",
            "import typer\nfrom rich.table import Table\ntry:\n    f()\nexcept Exception:\n    g()",
        ),
        ("gitckpt/cli/commands/x.py", "x.system\nplatform.system()\nshell.popen\n" + "\n" * 397),
    ],
)
def test_the_checker_allows(path: str, source: str) -> None:
    assert violations(path, source) == []


A, B, C = "gitckpt.git.a", "gitckpt.git.b", "gitckpt.git.c"


@pytest.mark.parametrize(
    ("a", "b", "c", "found"),
    [
        ("from gitckpt.git import b", "from gitckpt.git.c import x", "", set()),
        ("from gitckpt.git import b", "import gitckpt.git.a", "", {frozenset((A, B))}),
        ("from . import b", "from .c import x", "from .a import y", {frozenset((A, B, C))}),
        ("from . import b", "def f():\n    from . import a", "", {frozenset((A, B))}),
        ("from . import b", "if TYPE_CHECKING:\n    from . import a", "", {frozenset((A, B))}),
        (
            "from . import b",
            "import typing as t\nif t.TYPE_CHECKING:\n    from . import c",
            "from . import a",
            {frozenset((A, B, C))},
        ),
    ],
)
def test_the_checker_finds_circles(a: str, b: str, c: str, found: set[frozenset[str]]) -> None:
    sources = {
        "gitckpt/__init__.py": "",
        "gitckpt/git/__init__.py": "",
        "gitckpt/git/a.py": a,
        "gitckpt/git/b.py": b,
        "gitckpt/git/c.py": c,
    }
    assert cycles(import_graph(sources)) == found


def test_one_name_for_two_things_is_noticed() -> None:
    there = {
        "gitckpt/git/a.py": "class Held:\n    pass\n\nclass _Own:\n    pass",
        "gitckpt/git/b.py": (
            "class Other:\n    class Held:\n        pass\n\nclass _Own:\n    pass\n"
        ),
        "gitckpt/git/c.py": "class Held:\n    pass\n\nKEPT = 1",
        "gitckpt/git/d.py": "KEPT = 2",
    }
    said = "gitckpt/git/a.py and gitckpt/git/c.py: Held is the name of 2 things"
    assert [found.partition(";")[0] for found in namesakes(there)] == [said]


@pytest.mark.parametrize(
    "source",
    [
        "Held = tuple[int, str]",
        "Held: TypeAlias = tuple[int, str]",
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    class Held(Protocol):\n        pass",
    ],
)
def test_one_name_for_a_class_and_a_type_is_noticed(source: str) -> None:
    assert (
        len(
            list(
                namesakes({"gitckpt/git/a.py": "class Held:\n    pass", "gitckpt/git/b.py": source})
            )
        )
        == 1
    )
