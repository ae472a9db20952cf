"""The command line prints usage, help and suggestions, and common exit codes."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gitckpt import Store, __version__
from gitckpt.cli.parser import quick
from gitckpt.cli.parser.help import GROUPS
from tests import planted
from tests.cli.conftest import COMMANDS, PROJECT, Ckpt, Outcome, Spawn, normal
from tests.conftest import Checkout
from tests.planted import plant


def test_help_lists_every_command_in_a_group_with_a_whole_sentence(ckpt: Ckpt) -> None:
    done = ckpt("--help")
    assert (done.code, done.err) == (0, "")
    _, *sections = done.out.partition("--help")[2].split("\n\n")
    assert [section.partition(":")[0] for section in sections] == list(GROUPS)
    entries = [line for section in sections for line in section.splitlines()[1:]]
    listed = [line.split()[0] for line in entries if line[2] != " "]
    assert sorted(listed) == sorted([*COMMANDS, "help"])
    sentences = re.split(r"\n  (?=\S)", done.out.partition("Start:\n  ")[2].replace("\n\n", "\n"))
    assert [text for text in sentences if not re.search(r"[^.]\.(\n\S+( \S+)*:)?\s*$", text)] == []


def test_help_is_a_command(ckpt: Ckpt) -> None:
    assert ckpt("help") == ckpt("help", "help") == ckpt("--help")
    assert ckpt("help", "save") == ckpt("-q", "help", "save") == ckpt("save", "-h")
    assert ckpt("help", "hep").code == 2


def test_help_shows_the_forms_of_addresses_in_the_docs(ckpt: Ckpt) -> None:
    table = (PROJECT / "docs/addresses.md").read_text().partition("| --- |")[2].partition("\n\n")[0]
    documented = [row.split("|")[1].strip(" `") for row in table.splitlines()[1:]]
    out = ckpt("help", "addresses").out
    assert [line[2:16].strip() for line in out.splitlines()] == documented
    assert max(map(len, out.splitlines())) < 80
    for command in ("show", "restore", "bisect"):
        assert "git ckpt help addresses" in ckpt(command, "-h").out
    for command in ("list", "loop", "runs"):
        assert "git ckpt help addresses" not in ckpt(command, "-h").out


def test_without_arguments_the_help_goes_to_standard_error(ckpt: Ckpt) -> None:
    done = ckpt()
    assert (done.code, done.out) == (2, "")
    assert done.err == ckpt("-h").out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_and_names_what_it_takes_in_plain_words(
    ckpt: Ckpt, command: str
) -> None:
    done = ckpt(command, "-h")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: git ckpt {command} [OPTIONS]")
    assert not {"<str>", "<list[str]>", "...", "{"} & set(done.out.split())
    examples = done.out.partition("\nExamples:\n")[2].splitlines()
    assert examples
    for example in examples:
        mark, git, ckpt_, name, *words = shlex.split(example, comments=True)
        assert [mark, git, ckpt_, name] in (
            ["$", "git", "ckpt", command],
            ["$", "git", "ckpt", "diff"],
        )
        words = words[: words.index(">")] if ">" in words else words
        assert name in quick.TYPER_ONLY or quick.prepare_command_call([name, *words]), example


@pytest.mark.parametrize(
    ("args", "usage"),
    [
        (("show",), "[ID] [-- PATH…]"),
        (("diff",), "ID [ID] [-- PATH…]"),
        (("remove",), "ID…"),
        (("hook",), "NAME [ARG]…"),
        (("completion",), "bash|zsh|fish"),
    ],
)
def test_usage_shows_arguments_as_they_are_typed(
    ckpt: Ckpt, args: tuple[str, ...], usage: str
) -> None:
    assert (
        ckpt(*args, "--help").out.splitlines()[0] == f"Usage: git ckpt {args[0]} [OPTIONS] {usage}"
    )


def test_version(ckpt: Ckpt) -> None:
    assert ckpt("--version") == Outcome(0, f"gitckpt {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "error", "hint"),
    [
        (["lst"], "there is no command 'lst'", "did you mean git ckpt list?"),
        (["sav", "-m", "x"], "there is no command 'sav'", "did you mean git ckpt save?"),
        (["rm", "abcd"], "there is no command 'rm'", "did you mean git ckpt remove?"),
        (["stash"], "there is no command 'stash'", "did you mean git ckpt save?"),
        (["rollback"], "there is no command 'rollback'", "did you mean git ckpt restore?"),
        (["version"], "there is no command 'version'", "did you mean git ckpt --version?"),
        (["hlep"], "there is no command 'hlep'", "did you mean git ckpt help?"),
        (["frobnicate"], "there is no command 'frobnicate'", "see: git ckpt -h"),
        (["\x1b[31m"], r"there is no command '\x1b[31m'", "see: git ckpt -h"),
        (["save", "--foo"], "there is no option --foo", "see: git ckpt save --help"),
        (["save", "--fase", "x"], "there is no option --fase", "did you mean --phase?"),
        (["-x"], "there is no option -x", "see: git ckpt -h"),
        (["save", "-q"], "-q goes before the command", "run: git ckpt -q save"),
        (["list", "-C", "/"], "-C goes before the command", "run: git ckpt -C DIR list"),
        (
            ["save", "one", "two"],
            "too many arguments: two",
            "quote the message: git ckpt save 'TEXT'",
        ),
        (
            ["save", "one", "-m", "two"],
            "TEXT and --message exclude each other",
            "give only one of them",
        ),
        (["list", "one"], "too many arguments: one", "see: git ckpt list --help"),
        (["remove"], "ID is missing", "see: git ckpt remove --help"),
        (["report", "a b"], "-o FILE is missing", "run: git ckpt report 'a b' -o FILE"),
        (["export", "x"], "--format F is missing", "run: git ckpt export x --format F"),
        (["diff", "--", "f"], "ID is missing", "see: git ckpt diff --help"),
        (["hook"], "NAME is missing", "see: git ckpt hook --help"),
        (["completion"], "bash|zsh|fish is missing", "see: git ckpt completion --help"),
        (
            ["completion", "tcsh"],
            "there is no completion for the shell 'tcsh'",
            "use one of bash, zsh, fish",
        ),
        (
            ["list", "-n", "x"],
            "--limit must be a whole number of 0 or more, not 'x'",
            "write a whole number, such as 20",
        ),
        (
            ["list", "-n", "-1"],
            "--limit must be a whole number of 0 or more, not '-1'",
            "write a whole number, such as 20",
        ),
        (
            ["runs", "-n", "-5"],
            "--limit must be a whole number of 0 or more, not '-5'",
            "write a whole number, such as 20",
        ),
        (
            ["expire", "--keep-last", "-1"],
            "--keep-last must be a whole number of 0 or more, not '-1'",
            "write a whole number, such as 20",
        ),
        (
            ["expire", "--keep-last=-1"],
            "--keep-last must be a whole number of 0 or more, not '-1'",
            "write a whole number, such as 20",
        ),
        (
            ["expire", "--older-than", "-5d"],
            "'-5d' is not an age",
            "write a number and a unit: 90s, 30m, 12h, 7d or 2w",
        ),
        (
            ["list", "--since", "-5d"],
            "'-5d' is not a point in time",
            "write an age (20m, 2h), a time (11:40, yesterday 18:00) or a date (2026-11-26 18:00)",
        ),
        (
            ["expire", "--keep-last", "1.5"],
            "--keep-last must be a whole number of 0 or more, not '1.5'",
            "write a whole number, such as 20",
        ),
        (
            ["list", "--since", "3x"],
            "'3x' is not a point in time",
            "write an age (20m, 2h), a time (11:40, yesterday 18:00) or a date (2026-11-26 18:00)",
        ),
        (
            ["expire", "--older-than", ""],
            "'' is not an age",
            "write a number and a unit: 90s, 30m, 12h, 7d or 2w",
        ),
        (
            ["list", "--status", "done"],
            "there is no status 'done'",
            "use one of complete, failed, started, progress, blocked, skipped, partial",
        ),
        (
            ["save", "--phase", ""],
            "'' is not a phase",
            (
                "write NAME or NAME-STATUS on one line; a status is one of complete, failed, "
                "started, progress, blocked, skipped, partial"
            ),
        ),
        (
            ["save", "--phase", "a\nb"],
            r"'a\nb' is not a phase",
            (
                "write NAME or NAME-STATUS on one line; a status is one of complete, failed, "
                "started, progress, blocked, skipped, partial"
            ),
        ),
        (["show", ""], "the id is empty", "list the checkpoints: git ckpt list"),
        (
            ["show", "--json", "--raw"],
            "--json, --raw and --state exclude each other",
            "give only one of them",
        ),
        (
            ["diff", "a", "b", "c"],
            "diff takes one or two ids, not 3",
            "write paths after two dashes: git ckpt diff ID -- PATH",
        ),
        (
            ["diff", "a", "--state"],
            "--state takes two ids: a worktree has no state",
            "to see the state of one checkpoint: git ckpt show ID --state",
        ),
        (
            ["diff", "a", "b", "--state", "--stat"],
            "--state compares no files",
            "leave out --state, or else --stat, --binary and the paths",
        ),
        (
            ["init", "--hooks", "magic"],
            "unknown hook mode: magic",
            "one of auto, config, files, external, none",
        ),
    ],
)
def test_wrong_usage_is_2_says_what_to_do_and_changes_nothing(
    ckpt: Ckpt, main_checkout: Checkout, args: list[str], error: str, hint: str | None
) -> None:
    before = main_checkout.fingerprint()
    expected = f"error: {error}\n" + (f"hint: {hint}\n" if hint else "")
    assert ckpt(*args, at=main_checkout) == Outcome(2, "", expected)
    assert main_checkout.fingerprint() == before


@pytest.mark.parametrize(
    "args", [["save", "-m"], ["list", "--since"], ["-C"], ["show", "--json=3"]]
)
def test_an_option_without_its_value_is_2(
    ckpt: Ckpt, main_checkout: Checkout, args: list[str]
) -> None:
    done = ckpt(*args, at=main_checkout)
    assert (done.code, done.out) == (2, "")
    command = "" if args == ["-C"] else f"{args[0]} "
    assert done.err.startswith("error: ")
    option = "--help" if command else "-h"  # git itself takes `git ckpt --help`
    assert done.err.endswith(f"\nhint: see: git ckpt {command}{option}\n")


def test_quiet_leaves_out_remarks_but_neither_results_nor_warnings(
    ckpt: Ckpt, main_checkout: Checkout
) -> None:
    loud = ckpt("save", "--state", "-", at=main_checkout, stdin="{}")
    assert normal(loud.out) == "ID\n"
    assert normal(loud.err) == (
        "warning: the saved state is empty\n"
        "saved manual-complete with a clean worktree on commit SHORT\n"
    )
    quiet = ckpt("--quiet", "save", "--state", "-", at=main_checkout, stdin="{}")
    assert (quiet.code, normal(quiet.out), quiet.err) == (
        0,
        "ID\n",
        "warning: the saved state is empty\n",
    )
    assert ckpt("-q", "expire", at=main_checkout) == Outcome(0, "", "")
    assert ckpt("expire", at=main_checkout) == Outcome(0, "", "0 of 2 checkpoints expired\n")


def test_c_works_as_if_started_there(ckpt: Ckpt, checkout: Checkout, tmp_path: Path) -> None:
    (checkout.path / "sub").mkdir()
    assert ckpt("-C", str(checkout.path / "sub"), "-q", "save", at=tmp_path).code == 0
    assert len(checkout.refs("refs/checkpoints")) == 1


def test_c_to_nowhere_is_10(ckpt: Ckpt, tmp_path: Path) -> None:
    assert ckpt("-C", "no\x1bwhere", "list", at=tmp_path) == Outcome(
        10,
        "",
        (
            "error: cannot change to the directory no\\x1bwhere: No such file or directory\n"
            "hint: name a directory that exists\n"
        ),
    )


def test_a_bug_is_3_one_line_and_a_traceback_in_the_log(
    ckpt: Ckpt, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "over\nthere\x1b[31m"

    def fall(*_: object) -> None:
        raise ZeroDivisionError(words)

    monkeypatch.setattr(Store, "find", fall)
    before = checkout.fingerprint()
    done = ckpt("show", "abcd", at=checkout)
    log = checkout.main / ".git/ckpt/log"
    assert done == Outcome(
        3,
        "",
        (
            "error: this is a bug in gitckpt: ZeroDivisionError: over there\\x1b[31m\n"
            f"hint: report this bug with the end of the log {log}\n"
        ),
    )
    said = log.read_text().splitlines()
    assert said[0].endswith(f" gitckpt {__version__}: git ckpt show")
    assert said[1] == "Traceback (most recent call last):"
    assert "ZeroDivisionError" in said
    assert "abcd" not in log.read_text()
    assert "over" not in log.read_text()
    assert checkout.fingerprint() == before


def test_a_bug_outside_any_repository_shows_the_traceback(
    ckpt: Ckpt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall(*_: object, **__: object) -> None:
        raise ZeroDivisionError("over")

    plant(monkeypatch, planted.OPEN_REPOSITORY, fall)
    done = ckpt("list", at=tmp_path)
    assert (done.code, done.out) == (3, "")
    lines = done.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == [
        "error: this is a bug in gitckpt: ZeroDivisionError: over",
        "hint: report this bug with the traceback above",
    ]


def test_ctrl_c_is_130(main_checkout: Checkout) -> None:
    before = main_checkout.fingerprint()
    imports = "import sys; from gitckpt.cli.main import run; import gitckpt.cli.commands.save"
    script = f"{imports}; print('up', flush=True); sys.exit(run(sys.argv[1:]))"
    child = subprocess.Popen(
        [sys.executable, "-c", script, "save", "--state", "-"],
        cwd=main_checkout.path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )
    with child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == b"up\n"
        assert child.stdin is not None
        # A pipe holds less than this, so the command is reading when the write returns.
        child.stdin.write(b" " * 200_000)
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        # Python notices a signal that came just before a read only after the read.
        child.stdin.close()
        assert child.wait() == 130
        assert (child.stdout.read(), child.stderr.read()) == (b"", b"\n")
    assert main_checkout.fingerprint() == before


INTERRUPTED_AT = """\
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == AT:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
AT = sys.argv.pop(1)
"""
"""Send Ctrl-C when a module is about to be imported."""


@pytest.mark.parametrize(
    ("at", "words", "code"),
    [
        ("gitckpt.cli.main", ["list"], -signal.SIGINT),
        ("gitckpt.cli.terminal", ["list"], -signal.SIGINT),
        ("gitckpt.hook", ["hook", "post-commit"], -signal.SIGINT),
        ("gitckpt.cli.commands.list", ["list"], 130),
    ],
)
def test_interrupted_while_it_is_starting(
    main_checkout: Checkout, at: str, words: list[str], code: int
) -> None:
    """The program ends as git does, without a traceback of its imports."""
    script = f"{INTERRUPTED_AT}from gitckpt.__main__ import main\nmain()\n"
    env = os.environ | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", script, at, *words],
        cwd=main_checkout.path,
        env=env,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (code, b"", b"")


def test_a_hook_that_is_interrupted_says_so_in_one_line(main_checkout: Checkout) -> None:
    script = f"{INTERRUPTED_AT}from gitckpt.hook import run\nrun(sys.argv[1:])\n"
    argv = [sys.executable, "-c", script, "gitckpt.store.records.recorder", "post-commit"]
    done = subprocess.run(
        argv,
        cwd=main_checkout.path,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        check=False,
    )
    said = b"gitckpt: post-commit: no checkpoint was recorded: interrupted\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", said)


def test_a_reader_that_has_seen_enough_is_no_failure(checkout: Checkout, git_ckpt: Path) -> None:
    assert git_ckpt.exists()
    state = '{"long": "' + "x" * 1_000_000 + '"}'
    checkout.git("ckpt", "-q", "save", "--state", "-", data=state)
    script = "git ckpt show --state | head -c 10; echo; echo ${PIPESTATUS[0]}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=checkout.path, capture_output=True, check=True, text=True
    )
    assert (done.stdout, done.stderr) == ('{\n  "long"\n0\n', "")


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_1(main_checkout: Checkout, git_ckpt: Path) -> None:
    assert git_ckpt.exists()
    main_checkout.git("ckpt", "-q", "save")
    done = subprocess.run(
        ["sh", "-c", "git ckpt list > /dev/full"],
        cwd=main_checkout.path,
        capture_output=True,
        check=False,
        text=True,
    )
    expected = (
        "error: cannot write the output: No space left on device\n"
        "hint: the command has done its work, only its output is lost; see: git ckpt list\n"
    )
    assert (done.returncode, done.stderr) == (1, expected)
    done = subprocess.run(
        ["sh", "-c", "git ckpt save > /dev/full"],
        cwd=main_checkout.path,
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stderr, len(main_checkout.refs("refs/checkpoints"))) == (
        1,
        expected,
        2,
    )


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_closed_stream_costs_what_is_said_there(
    spawn: Spawn, main_checkout: Checkout, closed: tuple[int, ...]
) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    main_checkout.write("README", "changed\n")
    done = spawn("save", at=main_checkout, preexec=close)
    assert (done.code, bool(done.out), bool(done.err)) == (0, 1 not in closed, 2 not in closed)
    with Store.open(main_checkout.path) as store:
        (made,) = store.list()
        files = store.read(made.id).worktree
    assert files is not None
    assert files.dirty


def test_an_old_locale_is_no_reason_to_fail(spawn: Spawn, main_checkout: Checkout) -> None:
    env = {"PYTHONIOENCODING": "ascii:strict"}
    assert spawn("save", "-m", "größer", at=main_checkout, env=env).code == 0
    done = spawn("list", at=main_checkout, env=env)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("\tgr\\xf6\\xdfer\n")


def test_save_takes_its_message_as_an_argument(ckpt: Ckpt, main_checkout: Checkout) -> None:
    assert ckpt("save", "a message", at=main_checkout).code == 0
    with Store.open(main_checkout.path) as store:
        assert store.list()[0].message == "a message"
