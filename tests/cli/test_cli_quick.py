"""The quick door: what it understands, it understands as Typer does, and what comes of it is the same."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitckpt.cli.parser import app, options, quick
from gitckpt.cli.parser.commands import COMMANDS
from gitckpt.store.store import Store
from tests.cli.conftest import Ckpt, Outcome, normal
from tests.conftest import Checkout

QUICK = sorted(quick.AFTER)
WORDS = ["x", "", "-", "--", "7", "-7", "a b", "ä", "\udc80", "a=b", "-h", "--help", "-q", "--version", "-x", "--no-such"]


@functools.cache
def typer_group() -> Any:
    return app.build()


def parameters(name: str) -> list[Any]:
    return list(typer_group().commands[name].params)


def defaults(function: Callable[..., object]) -> dict[str, object]:
    found = {each.name: each.default for each in inspect.signature(function).parameters.values()}
    return {name: None if value is inspect.Parameter.empty else value for name, value in found.items()}


def assert_same(syntax: quick.Syntax, params: list[Any], function: Callable[..., object]) -> None:
    """Asserts that a syntax has the parameters that Typer made, and no other."""
    arguments = [each for each in params if each.param_type_name == "argument"]
    named = [each for each in params if each.param_type_name == "option" and each.name not in syntax.left]
    assert [each.name for each in params if each.param_type_name == "option" and each.multiple] == list(syntax.left)
    flags = [each for each in named if each.is_flag]
    values = [each for each in named if not each.is_flag]
    assert list(syntax.arguments) == [each.name for each in arguments if each.nargs == 1]
    assert [syntax.words] == ([each.name for each in arguments if each.nargs != 1 and each.required] or [None])
    assert syntax.flags == {spelling: each.name for each in flags for spelling in each.opts}
    assert syntax.values == {spelling: each.name for each in values for spelling in each.opts}
    assert [each.name for each in named if each.secondary_opts or each.count or each.multiple or each.prompt] == []
    assert [
        each.name for each in params if ((each.required or each.nargs != 1) and each.name != syntax.words) or each.envvar or each.callback
    ] == []
    assert syntax.readers == {each.name: each.type.func for each in params if hasattr(each.type, "func")}
    assert {each.type.name for each in flags} <= {"boolean"}
    assert {each.type.name for each in [*arguments, *values] if each.name not in syntax.readers} <= {"str"}
    assert {each.default for each in flags} <= {False}
    assert defaults(function) == {each.name: None if each.name in syntax.left else each.default for each in params}


# The tables


@pytest.mark.parametrize("name", QUICK)
def test_the_quick_door_knows_every_parameter_of_its_commands_as_typer_does(name: str) -> None:
    assert_same(quick.AFTER[name], parameters(name), COMMANDS[name].load())


def test_the_quick_door_knows_every_option_before_a_command_as_typer_does() -> None:
    *shared, version = typer_group().params
    assert (version.name, version.opts, version.is_flag) == ("version", ["--version"], True)
    assert_same(quick.BEFORE, shared, options.apply)


SHOW_FLAGS = {"--json": "as_json", "--raw": "raw", "--state": "state"}


@pytest.mark.parametrize(
    "syntax",
    [
        pytest.param(quick.Syntax(flags=SHOW_FLAGS), id="the argument is missing"),
        pytest.param(quick.Syntax(arguments=["id_"], flags={"--json": "as_json", "--raw": "raw"}), id="an option is missing"),
        pytest.param(quick.Syntax(arguments=["id_"], flags={**SHOW_FLAGS, "-s": "state"}), id="an option is ours alone"),
        pytest.param(quick.Syntax(arguments=["id_"], flags={**SHOW_FLAGS, "--raw": "state"}), id="an option is another's"),
        pytest.param(quick.Syntax(arguments=["id_"], values=SHOW_FLAGS), id="flags take values"),
        pytest.param(quick.Syntax(arguments=["id_"], flags=SHOW_FLAGS, readers={"id_": options.count}), id="a text is read as a number"),
    ],
)
def test_the_comparison_notices_a_wrong_table(syntax: quick.Syntax) -> None:
    assert_same(quick.Syntax(arguments=["id_"], flags=SHOW_FLAGS), parameters("show"), COMMANDS["show"].load())
    with pytest.raises(AssertionError):
        assert_same(syntax, parameters("show"), COMMANDS["show"].load())


def test_every_command_loads_and_those_without_summary_are_hidden() -> None:
    group = typer_group()
    assert list(group.commands) == list(COMMANDS)
    assert [name for name, each in COMMANDS.items() if group.commands[name].hidden != (not each.summary)] == []


# What is understood


@pytest.mark.parametrize(
    ("name", "words", "understood"),
    [
        ("save", [], {}),
        ("save", ["-m", "a b", "--phase", "p", "--state", "-"], {"message": "a b", "phase": "p", "state": "-"}),
        ("save", ["--message=-x=y", "--no-worktree"], {"message": "-x=y", "no_worktree": True}),
        ("save", ["--phase", "a", "--phase="], {"phase": ""}),
        ("list", ["-n", "5", "--all", "--json"], {"number": 5, "all_": True, "as_json": True}),
        ("list", ["--since=3x"], {"since": "3x"}),
        ("show", ["--state", "abcd"], {"state": True, "id_": "abcd"}),
        ("show", [""], {"id_": ""}),
        ("resume", ["--into", "dir", "a=b", "--no-run"], {"into": "dir", "id_": "a=b", "no_run": True}),
    ],
)
def test_plain_calls_are_understood(name: str, words: list[str], understood: dict[str, object]) -> None:
    assert quick.parse(quick.AFTER[name], words) == understood
    assert quick.call_of([name, *words]) is not None
    assert quick.call_of(["-q", "-C", "list", name, *words]) is not None


@pytest.mark.parametrize(
    "line",
    [
        *(["save", each] for each in ("x", "-", "--", "-h", "--help", "-mx", "--mess=x", "--no-worktree=1", "-m=x", "-m", "--phase")),
        *(["list", *each] for each in (["-n", "x"], ["-n", "-1"], ["-n5"], ["--run", "--all"], ["-q"], ["--", "x"])),
        *([], ["-q"], ["-C", "show"], ["-C", "-q", "show"], ["-qC", "x", "list"], ["-C=x", "list"], ["--", "list"], ["show", "a", "b"]),
        *(["--version", "list"], ["-q", "--version"], ["--help", "list"], ["frobnicate"], ["diff", "a"], ["complete", "--", "sa"]),
    ],
)
def test_everything_else_is_left_to_typer(line: list[str]) -> None:
    assert quick.call_of(line) is None


@pytest.mark.parametrize("name", QUICK)
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_what_the_quick_door_understands_typer_understands_the_same(name: str, data: st.DataObject) -> None:
    spellings = [spelling for each in parameters(name) for spelling in each.opts]
    known = [spelling for spelling in spellings if spelling.startswith("-")]
    vocabulary = [*known, *(f"{each}{tail}" for each in known for tail in ("=", "=x", "x")), *(each[:-1] for each in known), *WORDS]
    words = data.draw(st.lists(st.one_of(st.sampled_from(known), st.sampled_from(vocabulary)), max_size=5))
    found = quick.parse(quick.AFTER[name], words)
    if found is not None:
        context = typer_group().commands[name].make_context(name, list(words))
        parsed = {key: list(value) if isinstance(value, tuple) else value for key, value in context.params.items()}
        parsed |= {key: parsed[key] or None for key in quick.AFTER[name].left}
        assert {**defaults(COMMANDS[name].load()), **found} == parsed


@given(words=st.lists(st.sampled_from(["-q", "--quiet", "-C", "-qC", "-Cx", "--quiet=1", *WORDS]), max_size=4))
@settings(max_examples=300, deadline=None)
def test_what_the_quick_door_understands_before_a_command_typer_understands_the_same(words: list[str]) -> None:
    line = [*words, "save"]
    at = options.command_of(line)
    found = quick.parse(quick.BEFORE, line[:at])
    if found is not None and at < len(line):
        context = typer_group().make_context("git ckpt", line)
        assert {**defaults(options.apply), **found, "version": None} == context.params


# What comes of it


@pytest.mark.parametrize(
    "line",
    [
        ["--version"],
        ["save", "--phase", "review", "-m", "two  words"],
        ["-q", "save", "--no-worktree", "--state", "-"],
        ["--quiet", "-C", "TOP", "list", "-n", "1"],
        ["list", "--json", "--phase=plan"],
        ["list", "--status", "done"],
        ["list", "--run", "nobody"],
        ["show", "--state"],
        ["show", "latest", "--json"],
        ["show", "--json", "--raw"],
        ["show", "nowhere"],
        ["-C", "TOP/none", "show"],
        ["save", "--state", "TOP/none"],
        ["save", "--phase", ""],
        ["resume", "latest", "--into", "TOP/.git"],
    ],
)
def test_both_doors_do_the_same(
    ckpt: Ckpt, main_checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: list[str]
) -> None:
    assert ckpt("save", "--phase", "plan", "--state", "-", at=main_checkout, stdin='{"step": 1}').code == 0
    words = [each.replace("TOP", str(main_checkout.path)) for each in line]
    at = tmp_path if "-C" in line else main_checkout
    assert quick.call_of(words) is not None
    quickly = ckpt(*words, at=at, stdin="{}")
    monkeypatch.setattr(quick, "call_of", lambda _: None)
    slowly = ckpt(*words, at=at, stdin="{}")
    assert quickly.code == slowly.code
    assert normal(quickly.out, main_checkout) == normal(slowly.out, main_checkout)
    assert normal(quickly.err, main_checkout) == normal(slowly.err, main_checkout)


@pytest.mark.parametrize("door", ["quick", "Typer"])
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (KeyboardInterrupt(), Outcome(130, "", "\n")),
        (BrokenPipeError(), Outcome(0, "", "")),
        (PermissionError(13, "Permission denied", "f"), Outcome(1, "", "error: f: Permission denied\nhint: make it writable for you")),
        (ZeroDivisionError("over"), Outcome(3, "", "error: this is a bug in gitckpt: ZeroDivisionError: over\nhint: report it")),
    ],
    ids=lambda each: type(each).__name__,
)
def test_errors_end_alike_behind_both_doors(
    ckpt: Ckpt, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, door: str, error: BaseException, outcome: Outcome
) -> None:
    def fall(*_: object) -> None:
        raise error

    monkeypatch.setattr("gitckpt.cli.main._discard_output", lambda: None)
    monkeypatch.setattr(Store, "find", fall)
    if door == "Typer":
        monkeypatch.setattr(quick, "call_of", lambda _: None)
    done = ckpt("show", "abcd", at=main_checkout)
    assert (done.code, done.out) == (outcome.code, outcome.out)
    assert done.err.startswith(outcome.err)


def test_quiet_is_for_one_call_only(ckpt: Ckpt, main_checkout: Checkout) -> None:
    assert ckpt("-q", "save", at=main_checkout).err == ""
    assert ckpt("save", at=main_checkout).err.startswith("saved ")
