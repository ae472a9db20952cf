"""Check the import and style rules, and say why each one exists."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
SOURCES = {
    path.relative_to(PROJECT).as_posix(): path.read_text("utf-8")
    for path in sorted(PROJECT.glob("gitckpt/**/*.py"))
}


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LAYERS = tuple(
    words(line)
    for line in """
    model
    git
    store.error_log
    store.notes store.secrets
    store.local_checkpoints
    store.records
    store.snapshot store.leases store.hooks
    store.config
    store.submodules
    store.checkpoints store.setup
    store.restore store.worktrees
    store.runs
    store.retention
    store.audit store.usage store.history
    store.store
    agents
    durable.command
    durable.agent durable.run
    durable.pipeline
    durable.phases durable.steps durable.progress
    durable.driver
    formats.systems
    formats
    hook
    cli.pager
    cli.terminal
    cli.options cli.opening cli.driver
    cli.report
    cli.commands
    cli.parser
    cli.main
    __main__
    """.strip().splitlines()
)
"""The packages and modules from the lowest layer up, without `gitckpt.`.

A layer imports only lower layers.
"""

FOLDERS = tuple(
    words(line)
    for line in """
    git.objects
    git.files
    git.worktree
    git.contents
    durable.phases.loop durable.phases.review
    """.strip().splitlines()
)
"""The folders inside packages, from the lowest layer up.

Modules beside a folder belong to the package, and may be above one folder and below another.
"""

RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}
FOLDER_RANK = {folder: rank for rank, layer in enumerate(FOLDERS) for folder in layer}


def _doors(package: str) -> frozenset[str] | None:
    """Return the public modules that a package's docstring lists; None for all."""
    text = SOURCES[f"{package}/__init__.py"].partition("\nPublic modules:")[2]
    return (
        None
        if text.startswith(" all")
        else frozenset(re.findall(r"^    (\w+): ", text, re.MULTILINE))
    )


FLOORS = words("gitckpt gitckpt/store gitckpt/durable gitckpt/cli")
"""The folders that contain packages and list no public modules."""

DOORS = {
    path.removesuffix("/__init__.py"): _doors(path.removesuffix("/__init__.py"))
    for path in SOURCES
    if path.endswith("/__init__.py")
}
"""The modules and folders that other folders may import; None for all."""

NOUNS = words("encoding finding opening packing plumbing thinning")
"""Nouns that end in "ing"."""

SPEAKERS = ("gitckpt/cli/terminal.py", "gitckpt/hook.py", "gitckpt/agents/client_hook.py")
BROAD_CATCHERS = (
    "gitckpt/__main__.py",
    "gitckpt/hook.py",
    "gitckpt/agents/client_hook.py",
    "gitckpt/cli/main.py",
    "gitckpt/model/skip_invalid.py",
)
"""`skip_invalid` reports a failure at one ref and lets the others continue."""
INSIDERS = (
    "gitckpt/agents/",
    "gitckpt/durable/",
    "gitckpt/formats/",
    "gitckpt/cli/commands/save.py",
)
"""The modules that may use internals of `Store`.

`save` starts maintenance as the hook does, which the library does not offer.
"""
REPOSITORY = "gitckpt/git/repository.py"
LISTINGS = {"ls-tree": "gitckpt/git/objects/diff.py", "diff-tree": "gitckpt/git/objects/diff.py"}
"""Git commands with a special output format, and the only module that reads it.

Earlier, seven modules each parsed a part of such a format.
"""

PROCESS_STARTERS = ("gitckpt/git/process.py", "gitckpt/durable/")

LIBRARIES: dict[str, tuple[tuple[str, ...], str]] = {
    "dataclasses": (
        ("gitckpt/model/values.py",),
        (
            "it takes 10 ms to import, and half a millisecond for each class that it makes: "
            "gitckpt.model.values makes them alike"
        ),
    ),
    "pygit2": (
        ("gitckpt/git/objects/libgit2.py",),
        (
            "pygit2 takes 80 ms to import and cannot open every repository: one adapter behind "
            "the port of objects uses it"
        ),
    ),
    "tomllib": (
        ("gitckpt/model/toml.py",),
        "one module owns TOML, so that there is one set of rules for what is read and refused",
    ),
    "tomlkit": (
        ("gitckpt/store/config/settings.py",),
        "tomlkit is slow and keeps comments: it is for the one file that people edit",
    ),
    "sqlite3": (
        ("gitckpt/store/records/index.py",),
        "refs are the truth: the one database is a derived index that may be deleted at any time",
    ),
    "yaml": (
        ("gitckpt/formats/systems/yaml_text.py",),
        "one module owns YAML, and refuses what makes a few lines cost hours",
    ),
    "jinja2": (("gitckpt/cli/report/page.py",), "it takes 100 ms to import"),
    "watchfiles": (("gitckpt/agents/watch.py",), "it takes 40 ms to import"),
    "typer": (("gitckpt/cli/",), "only the command line speaks, and typer takes 60 ms to import"),
    "rich": (("gitckpt/cli/",), "only the command line speaks"),
    "click": (("gitckpt/cli/",), "only the command line speaks"),
}
"""Map a library to the modules that may import it, and the reason."""

INPUT_OUTPUT = words(
    """
    subprocess socket ssl select selectors asyncio multiprocessing concurrent threading _thread \
queue signal fcntl mmap pty tty
    termios tempfile shutil pathlib glob io fileinput sqlite3 dbm shelve \
logging http urllib ftplib smtplib imaplib poplib
    socketserver xmlrpc webbrowser ctypes os posix sys getpass platform importlib zipfile tarfile
    """
)
TALKING = words("open print input breakpoint exec eval __import__")
STARTING = words(
    """
    posix_spawn posix_spawnp system popen fork forkpty execl execle execlp \
execlpe execv execve execvp execvpe spawnl spawnle spawnlp
    spawnlpe spawnv spawnve spawnvp spawnvpe startfile
    """
)
STARTING_MODULES = words("subprocess _posixsubprocess multiprocessing pty pexpect")
VAGUE_NAMES = words("util utils helper helpers common misc shared tools")
MAX_FUNCTION = 75
"""Lines without docstrings; a command's signature does not count, either."""


@dataclass(frozen=True)
class Import:
    """One imported name."""

    module: str
    """The dotted name; `a.b` for `from a import b`, a module or a name in one."""

    line: int
    type_checking: bool
    in_function: bool


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@functools.lru_cache(maxsize=1)
def _parsed(path: str, source: str) -> ast.Module:
    return ast.parse(source, path)


@functools.cache
def imports_of(path: str, source: str) -> list[Import]:
    """Return every import of a module, at its top or in a function."""
    in_expressions = "__import__" in source or "import_module" in source
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
        elif (
            isinstance(node, ast.Call)
            and _called(node) in ("__import__", "import_module")
            and node.args
        ):
            first = node.args[0]
            # A computed name could be any module, so no layer may import it.
            names = [
                first.value
                if isinstance(first, ast.Constant) and isinstance(first.value, str)
                else "gitckpt.<computed>"
            ]
        if names:
            found.extend(
                Import(name, getattr(node, "lineno", 0), type_checking, in_function)
                for name in names
            )
        if isinstance(node, ast.If) and _called(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                visit(statement, True, in_function)
            for statement in node.orelse:
                visit(statement, type_checking, in_function)
            return
        inside = in_function or isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )
        for child in ast.iter_child_nodes(node):
            if in_expressions or not isinstance(child, ast.expr):
                visit(child, type_checking, inside)

    visit(_parsed(path, source), False, False)
    return found


def _called(node: ast.AST) -> str:
    """Return the last part of a name, of an attribute or of a called function."""
    if isinstance(node, ast.Call):
        return _called(node.func)
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )


def room_of(module: str) -> str | None:
    """Return the layer's name for a module or a name in it; None if it has none."""
    parts = module.split(".")[1:]
    return next(
        (room for room in (".".join(parts[:2]), parts[0] if parts else "") if room in RANK), None
    )


def folder_of(module: str) -> str | None:
    """Return the listed folder of a module or a name in it; None if it has none."""
    return next(
        (folder for folder in FOLDER_RANK if f"{module}.".startswith(f"gitckpt.{folder}.")), None
    )


def allowed(path: str, places: tuple[str, ...]) -> bool:
    return any(
        path == place or (place.endswith("/") and path.startswith(place)) for place in places
    )


@functools.lru_cache(maxsize=1)
def _nodes(tree: ast.Module) -> list[ast.AST]:
    """Return all nodes of a module; each rule iterates over them."""
    return list(ast.walk(tree))


def violations(path: str, source: str) -> list[str]:
    """Return each violation in a module, with the reason for the rule."""
    tree = _parsed(path, source)
    imports = imports_of(path, source)
    checks = (_rooms, _folders, _doors_kept, _by_public_names, _pure_floor_0, _libraries)
    return [
        *(found for check in checks for found in check(path, imports)),
        *_no_input_or_output(path, tree),
        *_processes(path, tree, imports),
        *_speaking(path, tree),
        *_private_directory(path, tree),
        *_listings(path, tree),
        *_broad_excepts(path, tree),
        *_changed_errors(path, tree),
        *_shape(path, source, tree),
        *_lengths(path, tree),
    ]


def _rooms(path: str, imports: list[Import]) -> Iterator[str]:
    name = module_name(path)
    own = [each for each in imports if each.module.split(".")[0] == "gitckpt"]
    if name == "gitckpt":
        for each in own:
            if not each.in_function and not each.type_checking:
                yield (
                    f"{path}:{each.line}: the package itself imports {each.module}; whatever "
                    "imports any module of gitckpt runs this file, the hook too, which has 10 ms "
                    "for all it does"
                )
        return
    room = room_of(name)
    if room is None and not path.endswith("/__init__.py"):
        yield (
            f"{path}: stands in no room; say in docs/architecture.md and in LAYERS here where "
            "it belongs, or nothing guards its imports"
        )
    if room is None:
        return
    for each in own:
        target = room_of(each.module)
        if target is None and each.module not in ("gitckpt", "gitckpt.__version__"):
            yield (
                f"{path}:{each.line}: imports {each.module}, which belongs to no room, so "
                "its layer is unknown"
            )
        elif target is not None and target != room and RANK[target] >= RANK[room]:
            yield (
                f"{path}:{each.line}: {room} imports {each.module} of {target}, which lies "
                f"{_where(target, room)}; a room imports only "
                "those beneath it, types included, so that each can be understood, tested and "
                "replaced without what stands on it"
            )


def _folders(path: str, imports: list[Import]) -> Iterator[str]:
    own = folder_of(module_name(path))
    for each in imports:
        target = folder_of(each.module)
        if own is None or target is None or target == own or FOLDER_RANK[target] < FOLDER_RANK[own]:
            continue
        if room_of(each.module) == room_of(module_name(path)):
            yield (
                f"{path}:{each.line}: {own} imports {each.module} of {target}, which lies "
                f"{'beside' if FOLDER_RANK[target] == FOLDER_RANK[own] else 'above'} it; folders "
                "in a room import only those beneath them, types included, or none of them can "
                "be understood, tested or replaced without the rest: move what both "
                "need beneath them"
            )


def _doors_kept(path: str, imports: list[Import]) -> Iterator[str]:
    """Check that imports across folders name public modules only."""
    for each in imports:
        if each.module != "gitckpt" and each.module.replace(".", "/") in DOORS:
            yield (
                f"{path}:{each.line}: imports the folder {each.module}, by which all that is in "
                "it can be had; import a module, or a name from one, so that the doors of the "
                "folder can be watched"
            )
        if past := _past_a_door(path, each.module):
            yield (
                f"{path}:{each.line}: imports {each.module}, which is no door of {past}; others "
                f"come in by {', '.join(sorted(DOORS[past] or ())) or 'none'}, so that the rest "
                "of the folder can change without them. If it has to be one, say so in "
                f"{past}/__init__.py"
            )


def _by_public_names(path: str, imports: list[Import]) -> Iterator[str]:
    """Check that the command line uses the public names of `Store`."""
    for each in imports:
        if each.module == "gitckpt.store.store.checkpoints_of_store" and not allowed(
            path, INSIDERS
        ):
            yield (
                f"{path}:{each.line}: imports {each.module}, which is not public; what a command "
                "can do a program has to be able to, too: use what `Store` has, or give it "
                "what is missing"
            )


def _speaking(path: str, tree: ast.Module) -> Iterator[str]:
    """Check that only `cli.terminal` and the hook write to the terminal."""
    why = (
        "text from a repository could tell a terminal what to do: say it through "
        "gitckpt.cli.terminal, which escapes it"
    )
    if path in SPEAKERS:
        return
    for node in _nodes(tree):
        if not isinstance(node, ast.Call):
            continue
        if _called(node) not in ("write", "writelines", "EscapedText", "echo", "secho", "print"):
            continue
        said = ast.unparse(node.func)
        if re.fullmatch(
            (
                r"(sys\.std(out|err)(\.buffer)?\.write(lines)?)|(terminal\.)?EscapedText|(typer|click)\."
                r"s?echo|print"
            ),
            said,
        ):
            yield f"{path}:{node.lineno}: calls {said}(); {why}"


def _where(target: str, room: str) -> str:
    return "beside it" if RANK[target] == RANK[room] else "above it"


def _past_a_door(path: str, module: str) -> str:
    """Return the folder whose non-public module is imported; "" if it is public."""
    parts = module.split(".")
    for depth in range(2, len(parts)):
        package = "/".join(parts[:depth])
        doors = None if package in FLOORS or path.startswith(f"{package}/") else DOORS.get(package)
        if doors is not None and parts[depth] not in doors:
            return package
    return ""


def _pure_floor_0(path: str, imports: list[Import]) -> Iterator[str]:
    if room_of(module_name(path)) != "model":
        return
    for each in imports:
        root = each.module.split(".")[0]
        if root == "gitckpt":
            continue
        if root not in sys.stdlib_module_names:
            yield (
                f"{path}:{each.line}: imports {root}; floor 0 needs nothing but Python: what "
                "a checkpoint is depends on no library"
            )
        if root in INPUT_OUTPUT and not (root == "os" and path == "gitckpt/model/ids.py"):
            yield (
                f"{path}:{each.line}: imports {root}; floor 0 is pure values and functions "
                "without input or output, so that it can be tested with values alone (only "
                "ids.py may use os, for random bytes)"
            )


def _no_input_or_output(path: str, tree: ast.Module) -> Iterator[str]:
    if room_of(module_name(path)) != "model":
        return
    for node in _nodes(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in TALKING
        ):
            yield (
                f"{path}:{node.lineno}: calls {node.func.id}(); floor 0 is pure values and "
                "functions without input or output"
            )
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
            and node.attr != "urandom"
        ):
            yield (
                f"{path}:{node.lineno}: uses os.{node.attr}; floor 0 may ask the system for "
                "random bytes and for nothing else"
            )


def _libraries(path: str, imports: list[Import]) -> Iterator[str]:
    for each in imports:
        root = each.module.split(".")[0]
        if root in LIBRARIES:
            places, reason = LIBRARIES[root]
            if not allowed(path, places):
                yield (
                    f"{path}:{each.line}: imports {root}, which only "
                    f"{' and '.join(places)} may; {reason}"
                )
        elif root not in sys.stdlib_module_names and root not in (
            "gitckpt",
            "_sha1",
            "_sha256",
            "_sha2",
        ):
            yield (
                f"{path}:{each.line}: imports {root}, which is no dependency of this project; "
                "a user would not have it installed"
            )


def _processes(path: str, tree: ast.Module, imports: list[Import]) -> Iterator[str]:
    if allowed(path, PROCESS_STARTERS):
        return
    reason = (
        "gitckpt/git/process.py starts processes: it strips GIT_*, never asks a terminal, and "
        "lets no child outlive its parent"
    )
    system = {"os", "posix"}
    for node in _nodes(tree):
        if isinstance(node, ast.Import):
            system |= {
                alias.asname
                for alias in node.names
                if alias.name in ("os", "posix") and alias.asname
            }
    for each in imports:
        module, _, name = each.module.rpartition(".")
        if each.module.split(".")[0] in STARTING_MODULES or (
            module in ("os", "posix") and name in STARTING
        ):
            yield f"{path}:{each.line}: imports {each.module}; only {reason}"
    for node in _nodes(tree):
        if isinstance(node, ast.Attribute):
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            if (base in system and node.attr in STARTING) or node.attr in (
                "create_subprocess_exec",
                "create_subprocess_shell",
            ):
                yield f"{path}:{node.lineno}: uses {base or '…'}.{node.attr}; only {reason}"


def _private_directory(path: str, tree: ast.Module) -> Iterator[str]:
    if path in (REPOSITORY, "gitckpt/git/files/private_dirs.py"):
        return
    for node in _nodes(tree):
        if (
            isinstance(node, ast.Call)
            and _called(node) == "join"
            and any(_is_private(argument) for argument in node.args)
        ):
            yield (
                f"{path}:{node.lineno}: `{ast.unparse(node)}`: only {REPOSITORY} knows the path "
                "of the private directory; `private_dir` looks at each use whether it is a link, "
                "or another process's"
            )


def _is_private(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Constant) and str(argument.value).split("/")[0] == "ckpt"


def _listings(path: str, tree: ast.Module) -> Iterator[str]:
    for node in _nodes(tree):
        if (
            isinstance(node, ast.Constant)
            and node.value in LISTINGS
            and path != LISTINGS[node.value]
        ):
            yield (
                f"{path}:{node.lineno}: asks git for {node.value!r}; only "
                f"{LISTINGS[node.value]} reads what that prints, for all others"
            )


def _broad_excepts(path: str, tree: ast.Module) -> Iterator[str]:
    if path in BROAD_CATCHERS:
        return
    reason = (
        "a broad except hides bugs and swallows Ctrl-C; only the entry points may catch every "
        "error, once (a handler that ends in a bare `raise` only cleans up, and is allowed)"
    )
    for node in _nodes(tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises_again(node):
            yield (
                f"{path}:{node.lineno}: `except "
                f"{ast.unparse(node.type) if node.type else ''}`: {reason}"
            )
        if (
            isinstance(node, ast.Call)
            and _called(node) == "suppress"
            and any(_is_broad(argument) for argument in node.args)
        ):
            yield f"{path}:{node.lineno}: `{ast.unparse(node)}`: {reason}"


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(each) for each in kind.elts)
    return kind is None or _called(kind) in ("Exception", "BaseException")


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    leaves = any(
        isinstance(node, ast.Return | ast.Break | ast.Continue)
        for each in handler.body
        for node in ast.walk(each)
    )
    return isinstance(last, ast.Raise) and last.exc is None and not leaves


def _changed_errors(path: str, tree: ast.Module) -> Iterator[str]:
    for handler in _nodes(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        for node in (node for statement in handler.body for node in ast.walk(statement)):
            if isinstance(node, ast.expr) and _root(_changed(node)) == handler.name:
                yield (
                    f"{path}:{node.lineno}: `{ast.unparse(node)}` changes an error that was "
                    "raised; its origin may keep or raise it again, with a text that is not in "
                    "the code there: raise another error"
                )


def _changed(node: ast.expr) -> ast.expr | None:
    """Return the object that an expression changes; None if it changes none."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return node.value if isinstance(node.ctx, ast.Store | ast.Del) else None
    if isinstance(node, ast.Call) and _called(node) in ("setattr", "delattr", "__setattr__"):
        return node.args[0] if node.args else None
    return (
        node.func.value
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_note"
        else None
    )


def _root(node: ast.expr | None) -> str:
    """Return the first name of a chain of attributes and subscripts, or ""."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _shape(path: str, source: str, tree: ast.Module) -> Iterator[str]:
    for part in module_name(path).split("."):
        if part.strip("_") in VAGUE_NAMES:
            yield (
                f"{path}: is called {part}; such a name says nothing of what is in it, so "
                "everything ends up there"
            )
        if part.endswith("ing") and part not in NOUNS:
            yield (
                f"{path}: is called {part}; modules are nouns of the field: an activity says "
                "neither what is made nor of what"
            )
    is_room = path.endswith("/__init__.py") and path != "gitckpt/__init__.py"
    if is_room and (not ast.get_docstring(tree) or len(tree.body) != 1):
        yield (
            f"{path}: must be a docstring that says what the room is for, and nothing else: a "
            "name is imported from where it stands, and importing one module of a room must not "
            "load the others"
        )
    elif (
        is_room
        and path.removesuffix("/__init__.py") not in FLOORS
        and "\nPublic modules:" not in source
    ):
        yield (
            f"{path}: lists no public modules; without the list, other rooms may import "
            "everything, and no module can change alone"
        )


def _lengths(path: str, tree: ast.Module) -> Iterator[str]:
    for node in _nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0].lineno if path.startswith("gitckpt/cli/commands/") else node.lineno
            lines = (node.end_lineno or 0) - first + 1 - _documentation(node)
            if lines > MAX_FUNCTION:
                yield (
                    f"{path}:{node.lineno}: {node.name} has {lines} lines; more than a screen "
                    "are several things: cut it at the seam"
                )


def _documentation(node: ast.AST) -> int:
    """Return the number of lines of a function's or class's docstring."""
    if not isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) or not ast.get_docstring(node):
        return 0
    return (node.body[0].end_lineno or 0) - node.body[0].lineno + 1


def namesakes(sources: Mapping[str, str]) -> Iterator[str]:
    """Yield each public name that several classes or types share.

    Args:
        sources: texts by path.
    """
    places: dict[str, list[str]] = {}
    for path, source in sources.items():
        for node in _declared(_parsed(path, source)):
            for name in _type_names(node):
                places.setdefault(name, []).append(path)
    for name, paths in places.items():
        if len(paths) > 1:
            yield (
                f"{' and '.join(paths)}: {name} is the name of {len(paths)} things; one word "
                "for one thing in the whole house"
            )


def _declared(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements at the top of a module, also below `if TYPE_CHECKING`."""
    for node in tree.body:
        yield from node.body if isinstance(node, ast.If) else [node]


def _type_names(node: ast.stmt) -> list[str]:
    """Return the public classes and types that a statement declares.

    Names in capitals such as `CLOSED` or `T` do not count.
    """
    if isinstance(node, ast.ClassDef):
        return [node.name] if not node.name.startswith("_") else []
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [
        each.id
        for each in targets
        if isinstance(each, ast.Name) and re.fullmatch(r"[A-Z]\w*[a-z]\w*", each.id)
    ]


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Map each module of the project to the modules that it imports.

    Imports in functions and for types count.

    Args:
        sources: texts by path.
    """
    modules = {module_name(path) for path in sources}
    graph: dict[str, set[str]] = {}
    for path, source in sources.items():
        name = module_name(path)
        wanted = [each.module for each in imports_of(path, source)]
        targets = {module if module in modules else module.rpartition(".")[0] for module in wanted}
        graph[name] = (targets & modules) - {name}
    # The package imports its public names on demand: they are no dependency of the modules in it.
    graph.get("gitckpt", set()).clear()
    return graph


def cycles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the sets of modules that import each other in a circle."""
    reach = {name: set(targets) for name, targets in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    return {
        frozenset(other for other in reach[name] if name in reach[other])
        for name in graph
        if name in reach[name]
    }
