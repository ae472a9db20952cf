"""No command prints fetched text unescaped.

This holds for terminals and pipes, in results, errors and hints.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import shutil
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gitckpt.model import codec, jsonable
from tests import forked
from tests.cli.conftest import COMMANDS
from tests.conftest import Checkout
from tests.system.hostile import escapes
from tests.system.hostile.escapes import ESCAPES, FIRST, FREE_RUN, REF_ESCAPES, RUN, SECOND, THIRD

ARGUMENT = ESCAPES.replace("\x00", "")

CALLS: dict[str, list[list[str]]] = {
    "init": [["--hooks", ARGUMENT], []],
    "save": [["-m", ARGUMENT], ["--phase", ARGUMENT], ["--state", ARGUMENT]],
    "list": [
        [],
        ["--all"],
        ["--json"],
        ["--run", RUN],
        ["--phase", ARGUMENT],
        ["--status", ARGUMENT],
        ["--commit", ARGUMENT],
    ],
    "show": [[FIRST], [THIRD], [FIRST, "--json"], [FIRST, "--state"], [RUN], [ARGUMENT]],
    "diff": [
        [FIRST],
        [FIRST, "--stat"],
        [FIRST, THIRD],
        [FIRST, SECOND, "--state"],
        [FIRST, "--binary"],
        [ARGUMENT],
        [FIRST, "--", ARGUMENT],
    ],
    "log": [
        [],
        ["--all", "-p"],
        ["--stat", RUN],
        ["--oneline", "--all"],
        ["--name-only", FIRST],
        ["--json", "--all"],
        ["--grep", ARGUMENT],
        ["--", ARGUMENT],
    ],
    "ls": [[FIRST], [THIRD, "-r"], [FIRST, ARGUMENT], [FIRST, "--json"]],
    "grep": [["."], [ARGUMENT], ["-l", ".", FIRST]],
    "why": [["README"], [ARGUMENT]],
    "bisect": [["--bad", FIRST, "--", "false"], ["--", ARGUMENT], ["--reset"]],
    "resume": [
        *(
            [],
            [RUN],
            [FREE_RUN],
            [FREE_RUN, "--no-run"],
            [FREE_RUN, "--trust"],
            [FREE_RUN, "--fork"],
            [FREE_RUN, "--rewind"],
        ),
        *(
            [THIRD, "--no-run"],
            [RUN, "--take-over"],
            [RUN, "--take-over", "--trust", "--from", ARGUMENT],
            [RUN, "--take-over", "--trust"],
        ),
        *([ARGUMENT], [RUN, "--path", ARGUMENT, "--no-run"], [RUN, "-i", ARGUMENT]),
    ],
    "restore": [[FIRST, "--dry-run"], [FIRST], [THIRD, ARGUMENT], [FIRST, "--json"], [ARGUMENT]],
    "undo": [[], ["--list"], ["--json"]],
    "redo": [[]],
    "run": [
        [ARGUMENT],
        [ARGUMENT, "--dry-run"],
        ["plan-to-pr", "-i", f"plan={ARGUMENT}", "--dry-run"],
        ["plan-to-pr", "--key", ARGUMENT],
    ],
    "loop": [[ARGUMENT], ["README", "--agent", ARGUMENT, "--dry-run"]],
    "review": [[ARGUMENT], ["README", "--coder", ARGUMENT, "--dry-run"]],
    "runs": [[], ["--json"], ["--status", ARGUMENT]],
    "status": [[], [RUN], [FREE_RUN], [RUN, "--json"], [FREE_RUN, "--watch"], [ARGUMENT]],
    "start": [[ARGUMENT], ["again", "--key", ARGUMENT], ["again", "--base", ARGUMENT]],
    "finish": [[RUN], [FREE_RUN], [ARGUMENT]],
    "step": [
        *(
            ["show", "--run", RUN],
            ["show", "--history", "--run", FREE_RUN],
            ["next", "--run", FREE_RUN],
            ["show", "--json", "--run", RUN],
        ),
        *(
            ["start", ARGUMENT],
            [ARGUMENT],
            ["start", "EXECUTE", "--track", ARGUMENT],
            ["next", "--plan", ARGUMENT],
        ),
    ],
    "agent": [["status", "--all"], ["install", ARGUMENT], ["install", "codex"]],
    "turns": [[], ["--json"], [ARGUMENT]],
    "guard": [["--shell", ARGUMENT], ["--", ARGUMENT]],
    "watch": [["--every", ARGUMENT], ["--", ARGUMENT]],
    "rescue": [[], ["--json"], [ARGUMENT]],
    "report": [["-o", "report.html", "--force"], [ARGUMENT, "-o", ARGUMENT], ["--since", ARGUMENT]],
    "tag": [["latest", ARGUMENT], [ARGUMENT, "x"], [], ["-d", ARGUMENT]],
    "pin": [["latest"], [ARGUMENT]],
    "unpin": [["latest"], [ARGUMENT]],
    "note": [["latest", ARGUMENT], ["latest"], [ARGUMENT]],
    "cancel": [[FREE_RUN], [ARGUMENT]],
    "remove": [[THIRD], [ARGUMENT]],
    "expire": [
        ["--dry-run", "--all"],
        ["--all", "--older-than", "0s", "--keep-last", "0"],
        ["--older-than", ARGUMENT],
    ],
    "verify": [[], ["--json"], ["--contents"], ["--repair"]],
    "doctor": [[], ["--json"]],
    "du": [[], ["--runs"], ["--json"]],
    "uninit": [[]],
    "hook": [["post-commit"], ["post-merge", ARGUMENT], [ARGUMENT]],
    "completion": [["bash"], [ARGUMENT]],
    "demo": [["--dir", f"/nowhere/{ARGUMENT}"]],
    "complete": [["--", "show", ""], ["--", "status", ARGUMENT]],
    "allow": [[], [ARGUMENT]],
    "import": [["."], [ARGUMENT], [".", "--format", ARGUMENT]],
    "export": [
        [SECOND, "--format", "rlm-act"],
        [FIRST, "--format", "forge"],
        [ARGUMENT, "--format", ARGUMENT],
    ],
    "notes": [[], [ARGUMENT]],
}
"""Command → the argument lists of its calls."""

BUILDERS: dict[str, tuple[Callable[[Checkout], object], ...]] = {
    "documents": (escapes.history_full_of_escapes, escapes.documents_full_of_escapes),
    "others": (
        escapes.documents_full_of_escapes,
        escapes.lease_full_of_escapes,
        escapes.invalid_documents,
    ),
    "settings": (escapes.documents_full_of_escapes, escapes.settings_full_of_escapes),
}


@pytest.fixture(params=BUILDERS)
def hostile(request: pytest.FixtureRequest, main_checkout: Checkout) -> Checkout:
    for build in BUILDERS[request.param]:
        build(main_checkout)
    return main_checkout


def on_terminal(args: Sequence[str], at: Path) -> str:
    """Return the output of a command to a terminal."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 4000, 0, 0))
    os.write(leader, b"\x04" * 9)  # a command that asks reads the end of the input
    said: list[bytes] = []

    def listen() -> None:
        try:
            while chunk := os.read(leader, 65536):
                said.append(chunk)
        except OSError:
            pass  # the other side has closed the terminal

    reader = threading.Thread(target=listen)
    reader.start()
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "COLUMNS", "TERM")
    } | {"TERM": "xterm", "GIT_PAGER": "cat"}
    forked.git_ckpt(*args, directory=at, env=env, terminal=os.ttyname(follower))
    os.close(follower)
    reader.join()
    os.close(leader)
    return b"".join(said).decode("utf-8", "surrogateescape").replace("\r\n", "\n")


def fresh(hostile: Checkout) -> Path:
    """Copy the hostile repository, and return the path."""
    copy = hostile.path.with_name(f"copy-{len(list(hostile.path.parent.glob('copy-*')))}")
    shutil.copytree(hostile.path, copy, symlinks=True)
    return copy


def test_every_command_is_called() -> None:
    assert set(COMMANDS) - set(CALLS) == set()


def test_every_text_of_a_document_is_full_of_escapes(main_checkout: Checkout) -> None:
    escapes.documents_full_of_escapes(main_checkout)
    found: dict[str, bool] = {}
    for id_ in (FIRST, SECOND, THIRD):
        ref = f"refs/checkpoints/{id_}"
        document = jsonable.checkpoint_to_json(
            codec.decode(main_checkout.git("cat-file", "blob", ref).encode(), ref)
        )
        for path, text in escapes.texts(document):
            found[path] = found.get(path, False) or ESCAPES in text
    fields = {path for path in found if not path.endswith(".more") and path != "more"}
    assert {path for path in fields if not found[path]} <= escapes.CONSTRAINED
    assert {
        "worktree.operation",
        "worktree.degraded",
        "attempt.output",
        "pipeline.autonomy",
        "progress.current_task",
        "branch",
    } <= fields


@pytest.mark.long
@pytest.mark.sampled(36)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_escape_reaches_anybody(hostile: Checkout, command: str) -> None:
    for words in CALLS[command]:
        args = [command, *words]
        done = forked.git_ckpt(*args, directory=fresh(hostile))
        assert (escapes.strange(done.out), escapes.strange(done.err)) == ([], []), (args, done)
        assert done.code != 3, (args, done)
        if "--json" in words and done.out:
            assert done.out.isascii()
            json.loads(done.out)
        shown = on_terminal(args, fresh(hostile))
        assert escapes.strange(shown) == [], (args, shown)


def test_a_stored_document_is_escaped_on_a_terminal(main_checkout: Checkout) -> None:
    escapes.documents_full_of_escapes(main_checkout)
    assert escapes.strange(on_terminal(["show", FIRST, "--raw"], main_checkout.path)) == []


def test_something_hostile_is_shown(main_checkout: Checkout) -> None:
    escapes.documents_full_of_escapes(main_checkout)
    shown = on_terminal(["list"], main_checkout.path) + on_terminal(
        ["show", FIRST], main_checkout.path
    )
    assert shown.count("\\x1b]0;title\\x07\\x1b[2J\\x1b[35m\\u{202e}") > 10


def test_what_git_stands_for_is_escaped(main_checkout: Checkout) -> None:
    assert escapes.strange("a\x1b[1mb\x1b[0m\r\x1b[K\x1b[?1049h\n\t") == []
    assert set(escapes.strange(ESCAPES)) == set(
        "\x1b\x07\u202e\u2066\u200f\x9b\x9d\x9c\x7f\r\x08\x0b\x00\u2028\ufeff"
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "phase", ["it's", "a b", "'; touch owned; '", "$(touch owned)`touch owned`", 'say "x" \\ !']
)
def test_a_command_that_is_advised_can_be_pasted(main_checkout: Checkout, phase: str) -> None:
    """The commands after `next` and `to go on` pass through a shell unchanged.

    A shell function in place of `git` prints its arguments.
    """
    from dataclasses import replace

    escapes.documents_full_of_escapes(main_checkout)
    document = codec.decode(
        main_checkout.git("cat-file", "blob", f"refs/checkpoints/{FIRST}").encode(),
        f"refs/checkpoints/{FIRST}",
    )
    blocked = replace(
        document,
        label=f"{phase}-blocked",
        attempt=replace(document.attempt, phase=phase) if document.attempt else None,
    )
    oid = main_checkout.git("hash-object", "-w", "--stdin", data=codec.encode(blocked))
    main_checkout.git("update-ref", f"refs/checkpoints/{FIRST}", oid)
    main_checkout.git("update-ref", "-d", f"refs/checkpoints/{SECOND}")
    main_checkout.git("update-ref", f"refs/ckpt/runs/{RUN}", oid)
    said = forked.git_ckpt("status", RUN, directory=main_checkout.path).out
    command = (
        next(line for line in said.splitlines() if line.startswith("next"))
        .removeprefix("next")
        .strip()
    )
    assert called(command, main_checkout.path) == [
        "ckpt",
        "resume",
        RUN,
        "--from",
        phase,
        "--trust",
    ]
    assert not (main_checkout.path / "owned").exists()


def test_a_file_beside_a_run_can_be_read_by_the_command_shown(main_checkout: Checkout) -> None:
    escapes.documents_full_of_escapes(main_checkout)
    said = forked.git_ckpt("show", FIRST, directory=main_checkout.path).out
    line = next(
        line for line in said.splitlines() if "beside the worktree" in line and "title" in line
    )
    command = line[line.index("(git ") + 1 :].removesuffix(")")
    found = subprocess.run(
        ["bash", "-c", command], cwd=main_checkout.path, capture_output=True, check=True
    )
    assert found.stdout == f"{ESCAPES}\n".encode()
    assert not (main_checkout.path / "owned").exists()


SHELLS = [shell for shell in ("sh", "dash", "bash", "zsh", "ksh", "busybox") if shutil.which(shell)]


def called(command: str, at: Path, shell: str = "bash") -> list[str]:
    """Return the arguments of git when a command line is pasted into a shell."""
    script = f'git() {{ printf "%s\\0" "$@"; }}\n{command}\n'
    words = [shell, "sh", "-c"] if shell == "busybox" else [shell, "-c"]
    said = subprocess.run([*words, script], cwd=at, capture_output=True, check=True).stdout
    return [os.fsdecode(word) for word in said.split(b"\0")[:-1]]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_quoted_word_comes_out_of_a_shell_as_it_was(tmp_path: Path, shell: str) -> None:
    from gitckpt.model.arguments import shell_quoted as quote

    words = (ARGUMENT, "plain", "", "a b", "it's", "-x", "日本", "\udcff", "a\u202e'\\!%s$x`y`\"")
    for word in (*words, "a\nb", "';touch owned;\x1b'"):
        shown = quote(word)
        assert escapes.strange(shown) == []
        assert called(f"git {shown}", tmp_path, shell) == [word]
    assert quote("plain-word") == "plain-word"
    assert quote("it's") == shlex.quote("it's")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("shell", SHELLS)
def test_an_advised_command_runs_no_branch(main_checkout: Checkout, shell: str) -> None:
    r"""Dash does not know `$'…'`, and reads `\'` as the end of the quotes."""
    here = main_checkout
    branches = (REF_ESCAPES, "x\u202e';touch${IFS}owned;#", "y';touch${IFS}owned;'")
    for number, branch in enumerate(branches):
        here.git("checkout", "--quiet", "-b", branch)
        here.write("README", f"{number}\n")
        made = forked.git_ckpt("save", directory=here.path).out.strip()
        here.git("checkout", "--quiet", "--force", "main")
        said = forked.git_ckpt("restore", made, directory=here.path)
        command = said.err.partition("at the same commit: ")[2].partition("\n")[0]
        assert called(command, here.path, shell) == ["switch", branch]
        here.git("checkout", "--quiet", "--force", "main")
    assert not any("owned" in path.name for path in here.path.iterdir())


def test_a_branch_of_escapes_is_recorded_and_shown(main_checkout: Checkout) -> None:
    escapes.history_full_of_escapes(main_checkout)
    done = forked.git_ckpt("save", directory=main_checkout.path)
    assert done.code == 0
    shown = forked.git_ckpt("show", "--json", directory=main_checkout.path)
    assert json.loads(shown.out)["branch"] == REF_ESCAPES
