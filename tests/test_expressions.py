"""Every regular expression of the package ends soon on any text."""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import os
import pkgutil
import random
import re
import signal
import string
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, TypeGuard

import pytest

import gitckpt
from gitckpt.cli import terminal
from gitckpt.durable.agent import clients
from gitckpt.durable.phases.loop.loop import find_test_command
from gitckpt.durable.steps.report import parse_plan
from gitckpt.git.contents import attributes
from gitckpt.model import budget
from gitckpt.store import secrets
from gitckpt.store.hooks import installation
from gitckpt.store.hooks.files import remove_blocks
from gitckpt.store.secrets import load_token_rules

pytestmark = pytest.mark.long

PACKAGE = Path(gitckpt.__file__).parent
USES = {"search": "finditer", "findall": "finditer", "sub": "finditer", "split": "finditer"}
"""Map methods to the one that searches the text in the same way."""

ALL = ("finditer", "match", "fullmatch")
TIMES = 5000
LENGTH = 150_000
LONGEST = 1_000_000
SECONDS = 1.0
"""CPU time for one text."""

COMPUTED = {
    "cli/terminal.py write_live_output": [re.compile(f"[{terminal._UNSEEN}]")],
    "durable/agent/clients.py _missing_conversation_pattern": [
        clients._missing_conversation_pattern(("session", "conversation"))
    ],
    "durable/agent/call.py rotate_transcripts": [re.compile(r"agent-(\d{1,9})\.log")],
    "git/config.py read_settings": [
        re.compile(rf"^({attributes.SETTINGS})"),
        re.compile(r"^ckpt\."),
    ],
    "git/config.py find_setting_files": [re.compile(r"^ckpt\.")],
    "model/budget.py _compile_toml_patterns": [*budget._compile_toml_patterns()],
    "store/secrets.py _compile_cached": [],  # the rules
    "store/records/entry.py compile_message_pattern": [],  # the user's own
}

Case = tuple[str, "re.Pattern[Any]", str]


def test_every_expression_of_the_package_ends_soon() -> None:
    cases = [(where, pattern, use) for where, pattern, uses in expressions() for use in uses]
    assert len(cases) > 200
    assert overdue(cases) == []


@pytest.mark.parametrize(
    "expression",
    [r"(?:a|a)+b", r"\s*x", r"<!--\s*.*?\s*-->", r"^(?:[^:\n]*[ \t])?test(?:[ \t][^:\n]*)?:"],
)
def test_an_expression_that_does_not_end_soon_is_noticed(expression: str) -> None:
    assert overdue([("here", re.compile(expression, re.MULTILINE), "finditer")])


def makefile(directory: Path) -> str:
    (directory / "Makefile").write_text("test " * 100_000)
    return find_test_command(str(directory), {"PATH": ""})


def hook(directory: Path) -> bool:
    (directory / "hook").write_bytes(b"\n" * 1_000_000)
    return installation.calls_hook(str(directory / "hook"), "post-commit")


TOKEN = b"ghp_aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4\n"
READERS: dict[str, Callable[[Path], object]] = {
    "keys without an end": lambda _: secrets.locate_hits(b"-----BEGIN PRIVATE KEY-----\n" * 35_000),
    "tokens": lambda _: secrets.locate_hits(TOKEN * 24_000),
    "names of tokens": lambda _: secrets.locate_hits(b"token=" * 160_000),
    "beginnings of tokens": lambda _: secrets.locate_hits(b"ABSK000000000000/" * 58_000),
    "a line of a plan": lambda _: parse_plan(f"- [ ] <!--{' ' * 5000}"),
    "comments of a plan": lambda _: parse_plan(f"- [ ] {'<!-- ' * 100_000}"),
    "a line of a Makefile": makefile,
    "empty lines of a hook": hook,
    "blocks of a hook": lambda _: remove_blocks(b"# >>> gitckpt >>>\n# <<< gitckpt <<<\n" * 27_000),
    "blocks without an end": lambda _: remove_blocks(b"# >>> gitckpt >>>\n" * 55_000),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_read_line_by_line_ends_soon(reader: str, tmp_path: Path) -> None:
    assert ends_soon(lambda: READERS[reader](tmp_path), 4 * SECONDS)


def test_expressions_that_functions_put_together_are_known() -> None:
    """Add a new expression to `COMPUTED` with an example."""
    assert {place for place, expression, _ in in_functions() if expression is None} == set(COMPUTED)


def expressions() -> Iterator[tuple[str, re.Pattern[Any], tuple[str, ...]]]:
    """Yield the place of an expression, the expression, and its methods."""
    for module in pkgutil.walk_packages(gitckpt.__path__, "gitckpt."):
        if module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        source = Path(loaded.__file__ or "").read_text(encoding="utf-8")
        for name, value in vars(loaded).items():
            for pattern in patterns(value):
                yield f"{module.name}.{name}", pattern, uses(name, source)
    for place, expression, used in in_functions():
        for pattern in [re.compile(expression)] if expression is not None else COMPUTED[place]:
            yield place, pattern, used
    for name, _, expression, _ in load_token_rules():
        yield f"rule {name}", re.compile(expression.encode()), ("match",)


def patterns(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping):
        yield from itertools.chain.from_iterable(map(patterns, value.values()))
    elif isinstance(value, tuple | list):
        yield from itertools.chain.from_iterable(map(patterns, value))


def uses(name: str, source: str) -> tuple[str, ...]:
    """Return the methods called on a variable; all if the call is elsewhere."""
    found = {USES.get(method, method) for method in re.findall(rf"\b{name}\.(\w+)", source)}
    return tuple(sorted(found.intersection(ALL))) or ALL


def in_functions() -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Yield each expression in a function, None if computed, and its methods."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "re." not in source:
            continue
        for function in ast.walk(ast.parse(source)):
            if not isinstance(function, ast.FunctionDef) or not any(
                map(is_call, ast.walk(function))
            ):
                continue
            variables = {
                id(node.value): ast.unparse(node.targets[0])
                for node in ast.walk(function)
                if isinstance(node, ast.Assign)
            }
            for call in filter(is_call, ast.walk(function)):
                expression = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
                used: tuple[str, ...] = (USES.get(call.func.attr, call.func.attr),)
                if call.func.attr == "compile":
                    used = uses(variables.get(id(call), "-"), ast.unparse(function))
                yield f"{path.relative_to(PACKAGE)} {function.name}", expression, used


def is_call(node: ast.AST) -> TypeGuard[Any]:
    """Return whether a node calls a function of `re` with an expression."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr
        in (
            "compile",
            "search",
            "match",
            "fullmatch",
            "findall",
            "finditer",
            "split",
            "sub",
            "subn",
        )
    )


def ends_soon(function: Callable[[], object], seconds: float) -> bool:
    """Return whether a function ends within some CPU time."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            function()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert not status or os.WIFSIGNALED(status), status
    return not status


def overdue(cases: list[Case]) -> list[str]:
    """Return the cases that take too long.

    A child process runs them, as no signal handler runs before a match ends.
    """
    found = []
    at = 0
    while at < len(cases):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
            try_all(cases, at, writing)
            os._exit(0)
        os.close(writing)
        with open(reading, encoding="ascii") as file:
            said = file.read().split()
        _, status = os.waitpid(child, 0)
        if not status:
            break
        assert os.WIFSIGNALED(status), status
        at, text = map(int, said[-1].split(":"))
        where, pattern, use = cases[at]
        found.append(f"{where} {use} {texts(pattern)[text][:60]!r}")
        at += 1
    return found


def try_all(cases: list[Case], first: int, writing: int) -> None:
    for at, (_, pattern, use) in enumerate(cases[first:], first):
        method = getattr(pattern, use)
        for number, text in enumerate(texts(pattern)):
            os.write(writing, b"%d:%d\n" % (at, number))
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            found = method(text)
            if use == "finditer":
                for _ in found:
                    pass
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def texts(pattern: re.Pattern[Any]) -> list[Any]:
    """Return long texts of characters that an expression names."""
    chance = random.Random(repr(pattern.pattern))
    parsed = _parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    letters = "".join(
        sorted({character for characters in members(parsed) for character in characters})
    )
    whole = some(parsed, chance)
    units = {*chance.sample(letters, min(len(letters), 3)), whole}
    long = {letters * TIMES}
    for beginning, repeated in repeats(parsed, "", chance):
        for letter in repeated[:3]:
            long.add(f"{beginning}{letter * LENGTH}\n")
            units |= {f"{beginning}{letter}", f"{beginning}{letter}{whole}"}
    long |= {unit * max(LENGTH // len(unit), TIMES) for unit in units if unit}
    every = sorted(text[:LONGEST] for text in long)
    return (
        [text.encode("latin-1", "replace") for text in every]
        if isinstance(pattern.pattern, bytes)
        else every
    )


def repeats(pattern: Any, beginning: str, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Yield a text before each unbounded repeat, and characters that it repeats."""
    for element in pattern:
        operation, argument = element
        if operation is _constants.BRANCH:
            for branch in argument[1]:
                yield from repeats(branch, beginning, chance)
        elif operation in REPEATS or operation in (_constants.SUBPATTERN, _constants.ATOMIC_GROUP):
            if operation in REPEATS and argument[1] > 50:
                yield beginning, "".join(members(argument[-1]))
            yield from repeats(inner(operation, argument), beginning, chance)
        beginning += some([element], chance)


def members(pattern: Any) -> Iterator[str]:
    """Yield the characters that an expression names, a few of each class."""
    for operation, argument in pattern:
        if operation in (_constants.LITERAL, _constants.NOT_LITERAL):
            yield chr(argument)
        elif operation is _constants.ANY:
            yield "a\n"
        elif operation is _constants.IN:
            yield "".join(class_members(tuple(argument)))
        elif operation in (_constants.ASSERT, _constants.ASSERT_NOT):
            yield from members(argument[1])
        elif operation is _constants.BRANCH:
            yield from itertools.chain.from_iterable(map(members, argument[1]))
        elif operation not in (_constants.AT, _constants.GROUPREF):
            yield from members(inner(operation, argument))


@functools.cache
def class_members(argument: tuple[Any, ...]) -> list[str]:
    """Return a few characters of a class, the more usual ones first."""
    usual = [character for character in 'a \n0"=' if in_class(argument, character)]
    plain = [character for character in string.printable if in_class(argument, character)]
    return [*dict.fromkeys([*usual, *plain[:2], *plain[-2:]])] or [
        chr(next(c for c in range(256) if in_class(argument, chr(c))))
    ]


def in_class(argument: Any, character: str) -> bool:
    (first, value), *others = argument
    if first is _constants.NEGATE:
        return not in_class(others, character) if others else True
    if first is _constants.RANGE:
        matches = value[0] <= ord(character) <= value[1]
    elif first is _constants.CATEGORY:
        matches = re.fullmatch(CATEGORIES[value], character) is not None
    else:
        matches = ord(character) == value
    return matches or (bool(others) and in_class(others, character))


REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
CATEGORIES = {
    _constants.CATEGORY_DIGIT: r"\d",
    _constants.CATEGORY_NOT_DIGIT: r"\D",
    _constants.CATEGORY_SPACE: r"\s",
    _constants.CATEGORY_NOT_SPACE: r"\S",
    _constants.CATEGORY_WORD: r"\w",
    _constants.CATEGORY_NOT_WORD: r"\W",
}


def inner(operation: Any, argument: Any) -> Any:
    return argument if operation is _constants.ATOMIC_GROUP else argument[-1]


def some(pattern: Any, chance: random.Random) -> str:
    """Return a text that an expression, or its beginning, may match."""
    parts = []
    for operation, argument in pattern:
        if operation is _constants.LITERAL:
            parts.append(chr(argument))
        elif operation is _constants.NOT_LITERAL:
            parts.append("a" if argument != ord("a") else "b")
        elif operation is _constants.ANY:
            parts.append("a")
        elif operation is _constants.IN:
            parts.append(chance.choice(class_members(tuple(argument))))
        elif operation is _constants.BRANCH:
            parts.append(some(chance.choice(argument[1]), chance))
        elif operation in REPEATS:
            least, most, repeated = argument
            parts += [
                some(repeated, chance) for _ in range(chance.randint(least, min(most, least + 3)))
            ]
        elif operation not in (
            _constants.AT,
            _constants.GROUPREF,
            _constants.ASSERT,
            _constants.ASSERT_NOT,
        ):
            parts.append(some(inner(operation, argument), chance))
    return "".join(parts)
