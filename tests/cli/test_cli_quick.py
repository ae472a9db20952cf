"""The quick door: what it understands, it understands as Typer does, and what comes of it is the same."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from gitckpt.cli import options
from gitckpt.cli.options import Syntax
from gitckpt.cli.parser import app, quick
from gitckpt.cli.parser.commands import COMMANDS, QUICK
from gitckpt.cli.parser.quick_table import AFTER, BEFORE, FUNCTIONS
from gitckpt.git.process import GitError
from gitckpt.model.errors import CkptError
from gitckpt.store.store import Store
from tests.cli import quick_writer
from tests.cli.conftest import PROJECT, Ckpt, Outcome, normal
from tests.conftest import Checkout, examples

WORDS = [
    "x",
    "",
    "-",
    "--",
    "7",
    "-7",
    "a b",
    "ä",
    "\udc80",
    "a=b",
    "-h",
    "--help",
    "-q",
    "--version",
    "-x",
    "--no-such",
]


@functools.cache
def typer_group() -> Any:
    return app.build()


def parameters(name: str) -> list[Any]:
    return list(typer_group().commands[name].params)


def defaults(function: Callable[..., object]) -> dict[str, object]:
    found = {each.name: each.default for each in inspect.signature(function).parameters.values()}
    return {
        name: None if value is inspect.Parameter.empty else value for name, value in found.items()
    }


# The table


def outdated(text: str) -> str:
    """Returns what is wrong with the text of the table."""
    return (
        ""
        if text == quick_writer.table()
        else f"{quick_writer.TABLE.name} is not what the commands declare: run ./dev generate"
    )


def test_the_table_is_what_the_commands_declare() -> None:
    problem = outdated(quick_writer.TABLE.read_text("utf-8"))
    assert not problem, problem


@pytest.mark.parametrize(
    ("declared", "otherwise"),
    [
        ('"--raw": "raw",', '"--row": "raw",'),
        ('"--raw": "raw", ', ""),
        ('"number": options.count', ""),
        ('arguments=["id_"],\n', ""),
        ("commands.show", "commands.list"),
    ],
)
def test_a_table_that_is_not_what_the_commands_declare_is_found_and_written_anew(
    declared: str,
    otherwise: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = quick_writer.TABLE.read_text("utf-8")
    table = tmp_path / "quick_table.py"
    table.write_text(text.replace(declared, otherwise, 1), "utf-8")
    assert (
        outdated(table.read_text("utf-8"))
        == "quick_table.py is not what the commands declare: run ./dev generate"
    )
    monkeypatch.setattr(quick_writer, "TABLE", table)
    quick_writer.main()
    quick_writer.main()
    assert (table.read_text("utf-8"), capsys.readouterr().out) == (
        text,
        "written: quick_table.py\n",
    )


def test_the_table_is_written_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick_writer, "TABLE", tmp_path / "quick_table.py")
    quick_writer.main()
    assert (tmp_path / "quick_table.py").read_text("utf-8") == quick_writer.table()


def test_the_table_can_be_written_while_the_old_one_cannot_be_read() -> None:
    """As where two branches changed it."""
    broken = "import sys; sys.modules['gitckpt.cli.parser.quick_table'] = None"
    code = f"{broken}; from tests.cli import quick_writer; print(quick_writer.table(), end='')"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (quick_writer.table(), "")


def test_the_quick_door_knows_no_option_by_its_name() -> None:
    source = inspect.getsource(quick)
    spellings = [
        spelling
        for group in (typer_group(), *typer_group().commands.values())
        for each in group.params
        for spelling in each.opts
    ]
    assert [each for each in spellings if each.startswith("-") and f'"{each}"' in source] == []


@pytest.mark.parametrize("name", QUICK)
def test_what_is_not_given_is_what_typer_gives(name: str) -> None:
    assert FUNCTIONS[name]() is COMMANDS[name].load()
    assert defaults(COMMANDS[name].load()) == {
        each.name: None if getattr(each, "multiple", False) else each.default
        for each in parameters(name)
    }


def test_what_is_not_given_before_a_command_is_what_typer_gives() -> None:
    *shared, version = typer_group().params
    assert (version.name, version.opts, version.is_flag) == ("version", [options.VERSION], True)
    assert defaults(options.apply) == {each.name: each.default for each in shared}


def declared(function: Callable[..., None]) -> list[Any]:
    """Returns the parameters that Typer makes of a function."""
    program = typer.Typer(add_completion=False)
    program.command()(function)
    return list(typer.main.get_command(program).params)


def everything(
    first: Annotated[str, typer.Argument()] = "a",
    second: Annotated[str | None, typer.Argument()] = None,
    flag: Annotated[bool, typer.Option("--flag", "-f")] = False,
    text: Annotated[str | None, typer.Option("--text", "-t")] = None,
    number: Annotated[int | None, typer.Option("-n", parser=options.count)] = None,
    both: Annotated[bool, typer.Option("--both/--neither")] = False,
    on: Annotated[bool, typer.Option("--on")] = True,
    verbose: Annotated[int, typer.Option("-v", count=True)] = 0,
    several: Annotated[list[str] | None, typer.Option("--several")] = None,
    pair: Annotated[tuple[str, str] | None, typer.Option("--pair")] = None,
    size: Annotated[int, typer.Option("--size")] = 3,
    length: Annotated[float | None, typer.Option("--length", parser=float)] = None,
) -> None:
    """Declare one parameter of each kind."""


def a_list(
    first: Annotated[list[str], typer.Argument()],
    flag: Annotated[bool, typer.Option("--flag")] = False,
) -> None:
    """Declare that something must be given."""


def an_optional_list(first: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Declare that any number may be given."""


def test_what_cannot_be_followed_is_left_to_typer() -> None:
    found = quick_writer.syntax_of("everything", declared(everything))
    values = {"--text": "text", "-t": "text", "-n": "number"}
    flags = {"--flag": "flag", "-f": "flag"}
    lists = {"--several": "several"}
    expected = Syntax(
        arguments=["first", "second"],
        flags=flags,
        values=values,
        lists=lists,
        readers={"number": options.count},
    )
    assert vars(found) == vars(expected)
    found = quick_writer.syntax_of("needed_argument", declared(needed_argument))
    assert vars(found) == vars(Syntax(arguments=["first"], required=1))
    assert vars(quick_writer.syntax_of("a_list", declared(a_list))) == vars(
        Syntax(arguments=[], required=1, words="first", flags={"--flag": "flag"})
    )


def needed_argument(first: Annotated[str, typer.Argument()]) -> None: ...
def number_argument(first: Annotated[int, typer.Argument()] = 3) -> None: ...
def pair_argument(first: Annotated[tuple[str, str], typer.Argument()]) -> None: ...
def list_behind(
    zeroth: Annotated[str, typer.Argument()] = "",
    first: Annotated[list[str], typer.Argument()] = ...,
) -> None: ...
def needed_option(first: Annotated[str, typer.Option("--first")]) -> None: ...
def variable(first: Annotated[str, typer.Option("--first", envvar="FIRST")] = "") -> None: ...
def callback(first: Annotated[str, typer.Option("--first", callback=str.upper)] = "") -> None: ...
def question(first: Annotated[str, typer.Option("--first", prompt=True)] = "") -> None: ...


NEITHER = "first is neither a text nor the one list of texts"


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        *((each, NEITHER) for each in (number_argument, pair_argument, list_behind)),
        (needed_option, "first is an option that must be given"),
        *((each, "first is more than what is typed") for each in (variable, callback, question)),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_command_that_cannot_be_followed_is_refused(
    function: Callable[..., None], problem: str
) -> None:
    with pytest.raises(quick_writer.NotPlainError, match=f"^name: {problem}$"):
        quick_writer.syntax_of("name", declared(function))


def test_every_command_loads_and_those_without_summary_are_hidden() -> None:
    group = typer_group()
    assert list(group.commands) == list(COMMANDS)
    assert [
        name for name, each in COMMANDS.items() if group.commands[name].hidden != (not each.summary)
    ] == []


# What is understood


@pytest.mark.parametrize(
    ("name", "words", "understood"),
    [
        ("save", [], {}),
        (
            "save",
            ["-m", "a b", "--phase", "p", "--state", "-"],
            {"message": "a b", "phase": "p", "state": "-"},
        ),
        ("save", ["--message=-x=y", "--no-worktree"], {"message": "-x=y", "no_worktree": True}),
        ("save", ["--phase", "a", "--phase="], {"phase": ""}),
        ("list", ["-n", "5", "--all", "--json"], {"number": 5, "all_": True, "as_json": True}),
        ("list", ["--since=3x"], {"since": "3x"}),
        ("show", ["--state", "abcd"], {"state": True, "id_": "abcd"}),
        ("show", [""], {"id_": ""}),
        (
            "resume",
            ["--into", "dir", "a=b", "--no-run"],
            {"into": "dir", "id_": "a=b", "no_run": True},
        ),
        ("run", ["ci", "--input", "a=1", "--input=b"], {"pipeline": "ci", "inputs": ["a=1", "b"]}),
    ],
)
def test_plain_calls_are_understood(
    name: str, words: list[str], understood: dict[str, object]
) -> None:
    assert quick.parse(AFTER[name], words) == understood
    assert quick.call_of([name, *words]) is not None
    assert quick.call_of(["-q", "-C", "list", name, *words]) is not None


@pytest.mark.parametrize(
    "line",
    [
        *(
            ["save", each]
            for each in (
                "x",
                "-",
                "--",
                "-h",
                "--help",
                "-mx",
                "--mess=x",
                "--no-worktree=1",
                "-m=x",
                "-m",
                "--phase",
            )
        ),
        *(
            ["list", *each]
            for each in (
                ["-n", "x"],
                ["-n", "-1"],
                ["-n5"],
                ["--run", "--all"],
                ["-q"],
                ["--", "x"],
            )
        ),
        *(
            [],
            ["-q"],
            ["-C", "show"],
            ["-C", "-q", "show"],
            ["-qC", "x", "list"],
            ["-C=x", "list"],
            ["--", "list"],
            ["show", "a", "b"],
        ),
        *(["run"], ["cancel"], ["export", "x"], ["loop", "plan.md", "--max-iterations", "3"]),
        *(
            ["--version", "list"],
            ["-q", "--version"],
            ["--help", "list"],
            ["frobnicate"],
            ["diff", "a"],
            ["complete", "--", "sa"],
        ),
    ],
)
def test_everything_else_is_left_to_typer(line: list[str]) -> None:
    assert quick.call_of(line) is None


PARTS = 3
"""Random words are shared out among so many tests, of which the lane `test` has one."""

each_part = pytest.mark.parametrize("part", range(PARTS))


@pytest.mark.sampled(3)
@pytest.mark.turns("part")
@each_part
@pytest.mark.parametrize("name", QUICK)
@given(data=st.data())
@settings(max_examples=examples(300 // PARTS), deadline=None)
def test_what_the_quick_door_understands_typer_understands_the_same(
    name: str, part: int, data: st.DataObject
) -> None:
    spellings = [spelling for each in parameters(name) for spelling in each.opts]
    known = [spelling for spelling in spellings if spelling.startswith("-")]
    vocabulary = [
        *known,
        *(f"{each}{tail}" for each in known for tail in ("=", "=x", "x")),
        *(each[:-1] for each in known),
        *WORDS,
    ]
    words = data.draw(
        st.lists(
            st.one_of(st.sampled_from(known or WORDS), st.sampled_from(vocabulary)), max_size=5
        )
    )
    found = quick.parse(AFTER[name], words)
    if found is not None:
        context = typer_group().commands[name].make_context(name, list(words))
        parsed = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in context.params.items()
        }
        understood = {**defaults(COMMANDS[name].load()), **found}
        for each in parameters(name):
            if getattr(each, "multiple", False) or each.nargs == -1:
                understood[each.name], parsed[each.name] = (
                    understood[each.name] or None,
                    parsed[each.name] or None,
                )
        assert understood == parsed


@pytest.mark.turns("part")
@each_part
@given(
    words=st.lists(
        st.sampled_from(["-q", "--quiet", "-C", "-qC", "-Cx", "--quiet=1", *WORDS]), max_size=4
    )
)
@settings(max_examples=examples(300 // PARTS), deadline=None)
def test_what_the_quick_door_understands_before_a_command_typer_understands_the_same(
    part: int, words: list[str]
) -> None:
    line = [*words, "save"]
    at = quick.command_of(line)
    found = quick.parse(BEFORE, line[:at])
    if found is not None and at < len(line):
        context = typer_group().make_context("git ckpt", line)
        assert {**defaults(options.apply), **found, "version": None} == context.params


# What comes of it


@pytest.mark.sampled(2)
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
    ckpt: Ckpt,
    main_checkout: Checkout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: list[str],
) -> None:
    assert (
        ckpt("save", "--phase", "plan", "--state", "-", at=main_checkout, stdin='{"step": 1}').code
        == 0
    )
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
        (
            PermissionError(13, "Permission denied", "f"),
            Outcome(1, "", "error: f: Permission denied\nhint: make it writable for you"),
        ),
        (
            ZeroDivisionError("over"),
            Outcome(
                3, "", "error: this is a bug in gitckpt: ZeroDivisionError: over\nhint: report it"
            ),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_errors_end_alike_behind_both_doors(
    ckpt: Ckpt,
    main_checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    door: str,
    error: BaseException,
    outcome: Outcome,
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


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            OSError(5, "Input/output error", "f"),
            "see whether the disk is sound (dmesg says what it complained of), and run the command again",
        ),
        (
            OSError(24, "Too many open files"),
            "let more files be open (ulimit -n 1024), and run the command again",
        ),
        (
            OSError(21, "Is a directory", "f"),
            "run the command again; if it fails again, see what is wrong: git ckpt doctor",
        ),
        (
            GitError(["status"], -9, ""),
            "git was killed, and no harm is done: run the command again",
        ),
        (
            GitError(["status"], 128, "fatal: odd"),
            "run the command again; if it fails again, see what is wrong: git ckpt doctor",
        ),
        (
            GitError(["config"], 255, "error: could not lock config file .git/config: File exists"),
            "see whose the lock is, or whether it was left: git ckpt doctor; remove it, and run the command again",
        ),
        (
            GitError(["update-ref"], 128, "fatal: commit: couldn't set 'refs/checkpoints/x'"),
            "see whether there is room on the disk, and it is sound, and run the command again",
        ),
        (
            CkptError(
                "cannot bring back the files 1510: git update-index failed: fatal: Unable to write new index file"
            ),
            "see whether there is room on the disk, and it is sound, and run the command again",
        ),
        (GitError(["x"], 1, "what", hint="do this"), "do this"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_the_system_refuses_ends_with_what_to_do(
    ckpt: Ckpt,
    main_checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    hint: str,
) -> None:
    def fall(*_: object) -> None:
        raise error

    monkeypatch.setattr("gitckpt.cli.main._discard_output", lambda: None)
    monkeypatch.setattr(Store, "find", fall)
    done = ckpt("show", "abcd", at=main_checkout)
    assert done.code == 1
    assert done.err.splitlines()[1:] == [f"hint: {hint}"]


def test_quiet_is_for_one_call_only(ckpt: Ckpt, main_checkout: Checkout) -> None:
    assert ckpt("-q", "save", at=main_checkout).err == ""
    assert ckpt("save", at=main_checkout).err.startswith("saved ")
