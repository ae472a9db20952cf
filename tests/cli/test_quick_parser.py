"""The quick parser understands arguments as Typer does, or leaves them to it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitckpt import CkptError, GitError, Store
from gitckpt.cli import options
from gitckpt.cli.parser import app, quick
from gitckpt.cli.parser.commands import COMMANDS
from tests.cli.conftest import COMMANDS as LISTED
from tests.cli.conftest import Ckpt, Outcome, normal
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


QUICK = [name for name in COMMANDS if name not in quick.TYPER_ONLY]


@functools.cache
def typer_group() -> Any:
    return app.build_app()


def parameters(name: str) -> list[Any]:
    return list(typer_group().commands[name].params)


def given_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that do not have a default value."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None and value is not False and value not in ((), [])
    }


# Declarations


def test_every_command_loads() -> None:
    group = typer_group()
    assert list(group.commands) == list(COMMANDS) == LISTED


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
        ("list", ["-n", "5", "--all", "--json"], {"limit": 5, "all_": True, "as_json": True}),
        ("list", ["--since=3x"], {"since": "3x"}),
        ("show", ["--state", "abcd"], {"state": True, "ids": ["abcd"]}),
        ("show", [""], {"ids": [""]}),
        (
            "resume",
            ["--into", "dir", "a=b", "--no-run"],
            {"into": "dir", "id_": "a=b", "no_run": True},
        ),
        ("run", ["ci", "--input", "a=1", "--input=b"], {"pipeline": "ci", "input_": ["a=1", "b"]}),
    ],
)
def test_plain_calls_are_understood(
    name: str, words: list[str], understood: dict[str, object]
) -> None:
    assert quick.parse_words(COMMANDS[name](), words) == understood
    assert quick.prepare_command_call([name, *words]) is not None
    assert quick.prepare_command_call(["-q", "-C", "list", name, *words]) is not None


@pytest.mark.parametrize(
    "line",
    [
        *(
            ["save", each]
            for each in (
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
            ["du", "a", "b"],
            ["save", "a", "b"],
        ),
        *(["run"], ["cancel"], ["export", "x"], ["loop", "plan.md", "-n", "3"]),
        *(
            ["--version", "list"],
            ["-q", "--version"],
            ["--help", "list"],
            ["frobnicate"],
            ["diff", "a", "-x"],
            ["hook", "post-commit"],
        ),
    ],
)
def test_everything_else_is_left_to_typer(line: list[str]) -> None:
    assert quick.prepare_command_call(line) is None


PARTS = 3
"""The number of tests that share the random words; the lane `test` runs one."""

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
    found = quick.parse_words(COMMANDS[name](), words)
    if found is not None and "paths" not in found:
        context = typer_group().commands[name].make_context(name, list(words))
        assert given_values(found) == given_values(context.params)


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
    at = quick.command_index(line)
    found = quick.parse_words(options.apply_globals, line[:at])
    if found is not None and at < len(line):
        context = typer_group().make_context("git ckpt", line)
        assert given_values(found) == given_values(context.params)


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
    assert quick.prepare_command_call(words) is not None
    quickly = ckpt(*words, at=at, stdin="{}")
    monkeypatch.setattr(quick, "prepare_command_call", lambda _: None)
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
            Outcome(
                1, "", "error: f: Permission denied\nhint: make the file or directory writable"
            ),
        ),
        (
            ZeroDivisionError("over"),
            Outcome(
                3,
                "",
                "error: this is a bug in gitckpt: ZeroDivisionError: over\nhint: report this bug",
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
        monkeypatch.setattr(quick, "prepare_command_call", lambda _: None)
    done = ckpt("show", "abcd", at=main_checkout)
    assert (done.code, done.out) == (outcome.code, outcome.out)
    assert done.err.startswith(outcome.err)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            OSError(5, "Input/output error", "f"),
            "check the disk: dmesg, and run the command again",
        ),
        (
            OSError(24, "Too many open files"),
            "allow more open files (ulimit -n 1024), and run the command again",
        ),
        (
            OSError(21, "Is a directory", "f"),
            "run the command again; if it fails again: git ckpt doctor",
        ),
        (
            GitError(["status"], -9, ""),
            "git was killed; nothing is damaged: run the command again",
        ),
        (
            GitError(["status"], 128, "fatal: odd"),
            "run the command again; if it fails again: git ckpt doctor",
        ),
        (
            GitError(["config"], 255, "error: could not lock config file .git/config: File exists"),
            (
                "see which process has the lock: git ckpt doctor; remove a stale lock, and run "
                "the command again"
            ),
        ),
        (
            GitError(["update-ref"], 128, "fatal: commit: couldn't set 'refs/checkpoints/x'"),
            "check the disk and its free space, and run the command again",
        ),
        (
            CkptError(
                "cannot bring back the files 1510: git update-index failed: fatal: Unable to "
                "write new index file"
            ),
            "check the disk and its free space, and run the command again",
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
