"""The house: who may import whom, and what only one module may do. Every failure says which rule was broken, and why there is one."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
SOURCES = {path.relative_to(PROJECT).as_posix(): path.read_text("utf-8") for path in sorted(PROJECT.glob("gitckpt/**/*.py"))}


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FLOORS = {
    "gitckpt.model": 0,
    "gitckpt.git": 1,
    "gitckpt.store": 2,
    "gitckpt.durable": 3,
    "gitckpt.cli": 4,
    "gitckpt.hook": 4,
    "gitckpt.__main__": 4,
}

BROAD_CATCHERS = ("gitckpt/__main__.py", "gitckpt/hook.py", "gitckpt/cli/main.py")
PROCESS_STARTERS = ("gitckpt/git/process.py", "gitckpt/durable/")

LIBRARIES: dict[str, tuple[tuple[str, ...], str]] = {
    "pygit2": (
        ("gitckpt/git/libgit2.py",),
        "pygit2 takes 80 ms to import and cannot open every repository: one adapter behind the port of objects uses it",
    ),
    "tomllib": (("gitckpt/model/toml.py",), "one module owns TOML, so that there is one set of rules for what is read and refused"),
    "tomlkit": (("gitckpt/store/settings.py",), "tomlkit is slow and keeps comments: it is for the one file that people edit"),
    "sqlite3": (("gitckpt/store/index.py",), "refs are the truth: the one database is a derived index that may be deleted at any time"),
    "typer": (("gitckpt/cli/",), "only the command line speaks, and typer takes 60 ms to import"),
    "rich": (("gitckpt/cli/",), "only the command line speaks"),
    "click": (("gitckpt/cli/",), "only the command line speaks"),
}
"""Library → the files and directories that may import it, and why no other may."""

INPUT_OUTPUT = words(
    """
    subprocess socket ssl select selectors asyncio multiprocessing concurrent threading _thread queue signal fcntl mmap pty tty
    termios tempfile shutil pathlib glob io fileinput sqlite3 dbm shelve logging http urllib ftplib smtplib imaplib poplib
    socketserver xmlrpc webbrowser ctypes os posix sys getpass platform importlib zipfile tarfile
    """
)
TALKING = words("open print input breakpoint exec eval __import__")
STARTING = words(
    """
    posix_spawn posix_spawnp system popen fork forkpty execl execle execlp execlpe execv execve execvp execvpe spawnl spawnle spawnlp
    spawnlpe spawnv spawnve spawnvp spawnvpe startfile
    """
)
STARTING_MODULES = words("subprocess _posixsubprocess multiprocessing pty pexpect")
VAGUE_NAMES = words("util utils helper helpers common misc shared tools")
MAX_LINES = 400

LAZY_CYCLES: set[frozenset[str]] = set()
"""Cycles that exist only because of an import inside a function, and are known; there are none."""


@dataclass(frozen=True)
class Import:
    """One imported name."""

    module: str
    """Full dotted name; for `from a import b` this is `a.b`, which may be a module or something in one."""

    line: int
    type_checking: bool
    in_function: bool


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(path: str, source: str) -> list[Import]:
    """Returns every import of a module, wherever it stands."""
    package = module_name(path).split(".")
    if not path.endswith("/__init__.py"):
        package = package[:-1]
    found: list[Import] = []

    def visit(node: ast.AST, type_checking: bool, in_function: bool) -> None:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and _called(node) in ("__import__", "import_module") and node.args:
            first = node.args[0]
            # A name that is computed could be any module: the rules cannot judge it, so no floor has it.
            names = [first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else "gitckpt.<computed>"]
        found.extend(Import(name, getattr(node, "lineno", 0), type_checking, in_function) for name in names)
        if isinstance(node, ast.If) and _called(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                visit(statement, True, in_function)
            for statement in node.orelse:
                visit(statement, type_checking, in_function)
            return
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, type_checking, inside)

    visit(ast.parse(source, path), False, False)
    return found


def _called(node: ast.AST) -> str:
    """Returns the last part of a name, an attribute or what is called."""
    if isinstance(node, ast.Call):
        return _called(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def floor_of(module: str) -> int | None:
    """Returns the floor of a module or of a name in one; None where it is on no floor."""
    parts = module.split(".")
    return FLOORS.get(".".join(parts[:2]))


def allowed(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or (place.endswith("/") and path.startswith(place)) for place in places)


def violations(path: str, source: str) -> list[str]:
    """Returns what one module does against the rules, each with the reason for the rule."""
    tree = ast.parse(source, path)
    imports = imports_of(path, source)
    checks = (_floors, _pure_floor_0, _libraries)
    return [
        *(found for check in checks for found in check(path, imports)),
        *_no_input_or_output(path, tree),
        *_processes(path, tree, imports),
        *_broad_excepts(path, tree),
        *_shape(path, source),
    ]


def _floors(path: str, imports: list[Import]) -> Iterator[str]:
    name = module_name(path)
    own = [each for each in imports if each.module.split(".")[0] == "gitckpt"]
    if name == "gitckpt":
        for each in own:
            if not each.in_function and not each.type_checking:
                yield (
                    f"{path}:{each.line}: the package itself imports {each.module}; whatever imports any module of gitckpt runs this "
                    "file, the hook too, which has 10 ms for all it does"
                )
        return
    floor = floor_of(name)
    if floor is None:
        yield f"{path}: stands on no floor; say in docs/design.md and in FLOORS here where it belongs, or nothing guards its imports"
        return
    for each in own:
        target = floor_of(each.module)
        if target is None and each.module not in ("gitckpt", "gitckpt.__version__"):
            yield f"{path}:{each.line}: imports {each.module}, which is on no floor, so that nobody can say whether it lies beneath"
        elif target is not None and target > floor:
            yield (
                f"{path}:{each.line}: floor {floor} imports {each.module} of floor {target}; a module imports only its own floor and those "
                "beneath, so that each floor can be understood, tested and replaced without what stands on it"
            )


def _pure_floor_0(path: str, imports: list[Import]) -> Iterator[str]:
    if floor_of(module_name(path)) != 0:
        return
    for each in imports:
        root = each.module.split(".")[0]
        if root == "gitckpt":
            continue
        if root not in sys.stdlib_module_names:
            yield f"{path}:{each.line}: imports {root}; floor 0 needs nothing but Python: what a checkpoint is depends on no library"
        if root in INPUT_OUTPUT and not (root == "os" and path == "gitckpt/model/ids.py"):
            yield (
                f"{path}:{each.line}: imports {root}; floor 0 is pure values and functions without input or output, "
                "so that it can be tested with values alone (only ids.py may use os, for random bytes)"
            )


def _no_input_or_output(path: str, tree: ast.Module) -> Iterator[str]:
    if floor_of(module_name(path)) != 0:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TALKING:
            yield f"{path}:{node.lineno}: calls {node.func.id}(); floor 0 is pure values and functions without input or output"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os" and node.attr != "urandom":
            yield f"{path}:{node.lineno}: uses os.{node.attr}; floor 0 may ask the system for random bytes and for nothing else"


def _libraries(path: str, imports: list[Import]) -> Iterator[str]:
    for each in imports:
        root = each.module.split(".")[0]
        if root in LIBRARIES:
            places, reason = LIBRARIES[root]
            if not allowed(path, places):
                yield f"{path}:{each.line}: imports {root}, which only {' and '.join(places)} may; {reason}"
        elif root not in sys.stdlib_module_names and root not in ("gitckpt", "_sha1", "_sha256", "_sha2"):
            yield f"{path}:{each.line}: imports {root}, which is no dependency of this project; a user would not have it installed"


def _processes(path: str, tree: ast.Module, imports: list[Import]) -> Iterator[str]:
    if allowed(path, PROCESS_STARTERS):
        return
    reason = "gitckpt/git/process.py starts processes: it strips GIT_*, never asks a terminal, and lets no child outlive its parent"
    system = {"os", "posix"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            system |= {alias.asname for alias in node.names if alias.name in ("os", "posix") and alias.asname}
    for each in imports:
        module, _, name = each.module.rpartition(".")
        if each.module.split(".")[0] in STARTING_MODULES or (module in ("os", "posix") and name in STARTING):
            yield f"{path}:{each.line}: imports {each.module}; only {reason}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            if (base in system and node.attr in STARTING) or node.attr in ("create_subprocess_exec", "create_subprocess_shell"):
                yield f"{path}:{node.lineno}: uses {base or '…'}.{node.attr}; only {reason}"


def _broad_excepts(path: str, tree: ast.Module) -> Iterator[str]:
    if path in BROAD_CATCHERS:
        return
    reason = (
        "a broad except hides bugs and swallows Ctrl-C; each door catches everything once, at its top, and nobody else does "
        "(one that ends in a bare `raise` only cleans up, and may stand anywhere)"
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises_again(node):
            yield f"{path}:{node.lineno}: `except {ast.unparse(node.type) if node.type else ''}`: {reason}"
        if isinstance(node, ast.Call) and _called(node) == "suppress" and any(_is_broad(argument) for argument in node.args):
            yield f"{path}:{node.lineno}: `{ast.unparse(node)}`: {reason}"


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(each) for each in kind.elts)
    return kind is None or _called(kind) in ("Exception", "BaseException")


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    leaves = any(isinstance(node, ast.Return | ast.Break | ast.Continue) for each in handler.body for node in ast.walk(each))
    return isinstance(last, ast.Raise) and last.exc is None and not leaves


def _shape(path: str, source: str) -> Iterator[str]:
    lines = len(source.splitlines())
    if lines > MAX_LINES:
        yield f"{path}: has {lines} lines; a module of more than {MAX_LINES} does several things, and nobody reads it to its end"
    for part in module_name(path).split("."):
        if part.strip("_") in VAGUE_NAMES:
            yield f"{path}: is called {part}; such a name says nothing of what is in it, so everything ends up there"


def import_graph(sources: Mapping[str, str], *, lazy: bool) -> dict[str, set[str]]:
    """Returns which modules of the project each of them imports when it runs.

    Args:
        sources: texts by path.
        lazy: whether imports inside functions count too.
    """
    modules = {module_name(path) for path in sources}
    graph: dict[str, set[str]] = {}
    for path, source in sources.items():
        name = module_name(path)
        wanted = [each.module for each in imports_of(path, source) if not each.type_checking and (lazy or not each.in_function)]
        targets = {module if module in modules else module.rpartition(".")[0] for module in wanted}
        graph[name] = (targets & modules) - {name}
    if lazy:
        graph.get("gitckpt", set()).clear()  # names that the package offers on demand are no dependency of those who import beneath it
    return graph


def cycles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Returns the sets of modules that reach each other."""
    reach = {name: set(targets) for name, targets in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    return {frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]}


# The project


def test_there_is_something_to_check() -> None:
    assert {"gitckpt/__init__.py", "gitckpt/model/toml.py", "gitckpt/git/process.py", "gitckpt/store/recorder.py"} <= set(SOURCES)


@pytest.mark.parametrize("path", SOURCES)
def test_module_keeps_the_rules_of_the_house(path: str) -> None:
    found = violations(path, SOURCES[path])
    assert not found, "\n".join(found)


def test_no_module_imports_itself_by_way_of_others() -> None:
    found = cycles(import_graph(SOURCES, lazy=False)) | (cycles(import_graph(SOURCES, lazy=True)) - LAZY_CYCLES)
    assert not found, (
        f"modules import each other in a circle: {[sorted(each) for each in found]}; none of them can be understood or loaded alone, "
        "and what works depends on which is imported first. Move what both need beneath them"
    )


def test_the_known_cycles_still_exist() -> None:
    gone = LAZY_CYCLES - cycles(import_graph(SOURCES, lazy=True))
    assert not gone, f"{[sorted(each) for each in gone]} is no cycle any more: take it out of LAZY_CYCLES, so that it cannot come back"


# The hook's imports

LIGHT = [f"gitckpt.model.{name}" for name in ("errors", "ids", "times", "phase", "toml", "document")]
HOOK = [
    *("gitckpt.model.document", "gitckpt.model.times", "gitckpt.model.ids", "gitckpt.git.process", "gitckpt.git.refs", "gitckpt.git.notes"),
    *("gitckpt.git.plumbing", "gitckpt.git.lock", "gitckpt.store.recorder"),
]
HEAVY = words(
    """
    pygit2 typer tomlkit rich click dataclasses typing re enum subprocess pathlib datetime json tomllib hashlib inspect
    """
)


def loaded_by(modules: list[str]) -> set[str]:
    """Returns the names in `sys.modules` of a bare interpreter that imported `modules` and nothing else."""
    code = f"import sys; sys.path.insert(0, {str(PROJECT)!r}); import {', '.join(modules)}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "modules",
    [*([module] for module in LIGHT), HOOK, *([["gitckpt.hook"]] if "gitckpt/hook.py" in SOURCES else [])],
    ids=lambda modules: modules[0] if len(modules) == 1 else "all that the hook uses",
)
def test_what_the_hook_imports_is_light(modules: list[str]) -> None:
    loaded = loaded_by(modules)
    assert set(modules) <= loaded
    assert not loaded & HEAVY, (
        f"importing {', '.join(modules)} loads {sorted(loaded & HEAVY)}; the hook runs at every commit and has about 10 ms for everything: "
        "import such modules in the function that needs them, or do without"
    )


@pytest.mark.parametrize("module", ["pathlib", "dataclasses", "json", "hashlib"])
def test_the_check_of_the_hook_s_imports_notices_a_heavy_one(module: str) -> None:
    assert module in loaded_by([module]) & HEAVY


# The checker itself


@pytest.mark.parametrize(
    ("path", "source", "said"),
    [
        ("gitckpt/model/x.py", "from gitckpt.git import refs", "floor 0 imports gitckpt.git.refs of floor 1"),
        ("gitckpt/model/x.py", "import gitckpt.store.store", "floor 0 imports gitckpt.store.store of floor 2"),
        ("gitckpt/git/x.py", "def f():\n    from gitckpt.store.layout import NOTES", "x.py:2: floor 1 imports gitckpt.store.layout.NOTES"),
        ("gitckpt/git/x.py", "from ..store import layout", "floor 1 imports gitckpt.store.layout of floor 2"),
        ("gitckpt/git/__init__.py", "from ..store import layout", "floor 1 imports gitckpt.store.layout of floor 2"),
        ("gitckpt/store/x.py", "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from gitckpt.durable import y", "x.py:3: floor 2 imports"),
        ("gitckpt/store/x.py", "import typing\nif typing.TYPE_CHECKING:\n    from gitckpt.cli.main import app", "x.py:3: floor 2 imports"),
        ("gitckpt/durable/x.py", "from gitckpt import hook", "floor 3 imports gitckpt.hook of floor 4"),
        ("gitckpt/durable/x.py", "import gitckpt.__main__", "floor 3 imports gitckpt.__main__ of floor 4"),
        (
            "gitckpt/git/x.py",
            "import importlib\nimportlib.import_module('gitckpt.store.store')",
            "x.py:2: floor 1 imports gitckpt.store.store",
        ),
        ("gitckpt/git/x.py", "import importlib\nimportlib.import_module(name)", "imports gitckpt.<computed>, which is on no floor"),
        ("gitckpt/git/x.py", "import gitckpt.attic.y", "imports gitckpt.attic.y, which is on no floor"),
        ("gitckpt/attic/x.py", "", "stands on no floor"),
        ("gitckpt/attic.py", "", "stands on no floor"),
        ("gitckpt/__init__.py", "from gitckpt.store.store import Store", "the package itself imports gitckpt.store.store.Store"),
        ("gitckpt/model/x.py", "import yaml", "floor 0 needs nothing but Python"),
        ("gitckpt/model/x.py", "import os.path", "imports os; floor 0 is pure"),
        ("gitckpt/model/x.py", "def f():\n    import subprocess", "x.py:2: imports subprocess; floor 0 is pure"),
        ("gitckpt/model/x.py", "from pathlib import Path", "imports pathlib; floor 0 is pure"),
        ("gitckpt/model/x.py", "def f(p):\n    return open(p).read()", "x.py:2: calls open()"),
        ("gitckpt/model/x.py", "print(1)", "calls print()"),
        ("gitckpt/model/ids.py", "import os\nos.getcwd()", "ids.py:2: uses os.getcwd"),
        ("gitckpt/store/x.py", "import subprocess", "imports subprocess; only gitckpt/git/process.py starts processes"),
        ("gitckpt/cli/x.py", "from subprocess import run", "imports subprocess.run; only gitckpt/git/process.py starts processes"),
        ("gitckpt/store/x.py", "import os\nos.system('x')", "x.py:2: uses os.system"),
        ("gitckpt/store/x.py", "import os as o\no.posix_spawn('x', [], {})", "x.py:2: uses o.posix_spawn"),
        ("gitckpt/hook.py", "import os\nos.execv('x', [])", "hook.py:2: uses os.execv"),
        ("gitckpt/cli/x.py", "from os import popen", "imports os.popen; only gitckpt/git/process.py"),
        ("gitckpt/cli/x.py", "import asyncio\nasyncio.create_subprocess_exec('x')", "uses asyncio.create_subprocess_exec"),
        ("gitckpt/git/refs.py", "import pygit2", "imports pygit2, which only gitckpt/git/libgit2.py may; pygit2 takes 80 ms"),
        ("gitckpt/git/refs.py", "from pygit2.enums import Option", "imports pygit2, which only"),
        (
            "gitckpt/git/x.py",
            "def f():\n    import tomllib",
            "x.py:2: imports tomllib, which only gitckpt/model/toml.py may; one module owns TOML",
        ),
        ("gitckpt/cli/x.py", "import tomlkit", "imports tomlkit, which only gitckpt/store/settings.py may"),
        ("gitckpt/store/store.py", "import sqlite3", "imports sqlite3, which only gitckpt/store/index.py may"),
        ("gitckpt/hook.py", "import typer", "imports typer, which only gitckpt/cli/ may"),
        ("gitckpt/store/x.py", "from rich.table import Table", "imports rich, which only gitckpt/cli/ may"),
        ("gitckpt/__main__.py", "import click", "imports click, which only gitckpt/cli/ may"),
        ("gitckpt/store/x.py", "import requests", "imports requests, which is no dependency"),
        ("gitckpt/store/x.py", "try:\n    f()\nexcept Exception:\n    pass", "x.py:3: `except Exception`: a broad except hides bugs"),
        ("gitckpt/store/x.py", "try:\n    f()\nexcept BaseException:\n    g()", "`except BaseException`"),
        ("gitckpt/store/x.py", "try:\n    f()\nexcept:\n    g()", "x.py:3: `except `"),
        ("gitckpt/cli/x.py", "try:\n    f()\nexcept (OSError, Exception) as e:\n    g()", "`except (OSError, Exception)`"),
        ("gitckpt/store/x.py", "import builtins\ntry:\n    f()\nexcept builtins.Exception:\n    g()", "`except builtins.Exception`"),
        ("gitckpt/store/x.py", "try:\n    f()\nexcept BaseException as e:\n    raise ValueError from e", "`except BaseException`"),
        (
            "gitckpt/store/x.py",
            "def h():\n    try:\n        f()\n    except BaseException:\n        if g():\n            return\n        raise",
            "x.py:4",
        ),
        (
            "gitckpt/store/x.py",
            "import contextlib\nwith contextlib.suppress(Exception):\n    f()",
            "x.py:2: `contextlib.suppress(Exception)`",
        ),
        ("gitckpt/store/x.py", "\n" * 401, "has 401 lines"),
        ("gitckpt/store/utils.py", "", "is called utils; such a name says nothing"),
        ("gitckpt/git/_helpers.py", "", "is called _helpers"),
        ("gitckpt/store/common/x.py", "", "is called common"),
        ("gitckpt/misc.py", "", "is called misc"),
    ],
)
def test_the_checker_notices(path: str, source: str, said: str) -> None:
    assert [found for found in violations(path, source) if found.startswith(path) and said in found], violations(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("gitckpt/__init__.py", "def __getattr__(name):\n    from gitckpt.store.store import Store\n    return Store"),
        ("gitckpt/model/x.py", "import re\nfrom collections.abc import Mapping\nfrom gitckpt.model import ids\nfrom . import times"),
        ("gitckpt/model/ids.py", "import os\nos.urandom(16)"),
        ("gitckpt/model/toml.py", "def f():\n    import tomllib"),
        ("gitckpt/git/process.py", "import os\nos.posix_spawn('x', [], {})"),
        ("gitckpt/git/libgit2.py", "import pygit2\nfrom pygit2.enums import Option"),
        (
            "gitckpt/store/x.py",
            "from gitckpt import __version__\nimport gitckpt\nfrom gitckpt.git import refs\nimport os\nos.replace('a', 'b')",
        ),
        ("gitckpt/store/x.py", "try:\n    f()\nexcept BaseException:\n    g()\n    raise"),
        ("gitckpt/store/x.py", "try:\n    f()\nexcept (OSError, ValueError):\n    pass"),
        ("gitckpt/store/settings.py", "import tomlkit"),
        ("gitckpt/store/index.py", "import sqlite3"),
        ("gitckpt/durable/x.py", "import subprocess\nfrom gitckpt.store.store import Store"),
        ("gitckpt/hook.py", "try:\n    f()\nexcept BaseException:\n    g()"),
        ("gitckpt/cli/main.py", "import typer\nfrom rich.table import Table\ntry:\n    f()\nexcept Exception:\n    g()"),
        ("gitckpt/cli/x.py", "x.system\nplatform.system()\nshell.popen\n" + "\n" * 397),
    ],
)
def test_the_checker_allows(path: str, source: str) -> None:
    assert violations(path, source) == []


A, B, C = "gitckpt.git.a", "gitckpt.git.b", "gitckpt.git.c"


@pytest.mark.parametrize(
    ("a", "b", "c", "at_import", "ever"),
    [
        ("from gitckpt.git import b", "from gitckpt.git.c import x", "", set(), set()),
        ("from gitckpt.git import b", "import gitckpt.git.a", "", {frozenset((A, B))}, {frozenset((A, B))}),
        ("from . import b", "from .c import x", "from .a import y", {frozenset((A, B, C))}, {frozenset((A, B, C))}),
        ("from . import b", "def f():\n    from . import a", "", set(), {frozenset((A, B))}),
        ("from . import b", "if TYPE_CHECKING:\n    from . import a", "", set(), set()),
        ("from . import b", "import typing as t\nif t.TYPE_CHECKING:\n    from . import a\nelse:\n    from . import c", "", set(), set()),
    ],
)
def test_the_checker_finds_cycles(a: str, b: str, c: str, at_import: set[frozenset[str]], ever: set[frozenset[str]]) -> None:
    sources = {
        "gitckpt/__init__.py": "",
        "gitckpt/git/__init__.py": "",
        "gitckpt/git/a.py": a,
        "gitckpt/git/b.py": b,
        "gitckpt/git/c.py": c,
    }
    assert (cycles(import_graph(sources, lazy=False)), cycles(import_graph(sources, lazy=True))) == (at_import, ever)
