"""The shells' scripts call `git ckpt complete`, which offers completions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Store
from tests.cli.conftest import COMMANDS, Ckpt, Outcome
from tests.conftest import Checkout

Save = Callable[..., str]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ([], COMMANDS),
        ([""], COMMANDS),
        (["s"], ["save", "show", "status", "start", "step"]),
        (["-q", "re"], ["resume", "restore", "redo", "review", "rescue", "report", "remove"]),
        (["-C", "show", "un"], ["unpin", "undo", "uninit"]),
        (["--"], ["--quiet", "--version", "--help"]),
        (["list", "--s"], ["--status", "--since"]),
        (["-C", "x", "show", "--r"], ["--raw"]),
        (
            ["save", "--"],
            [
                "--message",
                "--phase",
                "--state",
                "--agent",
                "--error",
                "--run",
                "--track",
                "--if-changed",
                "--yes",
                "--no-worktree",
                "--help",
            ],
        ),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["completion", "z"], ["zsh"]),
        (["frobnicate", ""], []),
        (["frobnicate", "--"], []),
        (["list", ""], []),
        (["-C", ""], []),
        (["diff", "a", "--", ""], []),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_words_are_completed_inside_and_outside_a_repository(
    ckpt: Ckpt,
    main_checkout: Checkout,
    tmp_path: Path,
    words: list[str],
    offered: list[str],
    inside: bool,
) -> None:
    done = ckpt("complete", "--", *words, at=main_checkout if inside else tmp_path)
    assert done == Outcome(0, "".join(f"{each}\n" for each in offered), "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", ["show", "diff", "resume", "restore", "remove"])
def test_ids_and_runs_are_completed(ckpt: Ckpt, checkout: Checkout, command: str) -> None:
    with Store.open(checkout.path) as store:
        made = store.record("a-complete", {}, start="work")
        other = store.record("b-complete", {})
    ids = ["latest", "latest:any", made.run, other.id, made.id]
    assert ckpt("complete", "--", command, "", at=checkout) == Outcome(
        0, "".join(f"{each}\n" for each in ids), ""
    )
    assert ckpt("complete", "--", command, other.id[:9], at=checkout) == Outcome(
        0, f"{other.id}\n", ""
    )
    assert ckpt("complete", "--", command, "lat", at=checkout) == Outcome(
        0, "latest\nlatest:any\n", ""
    )
    assert ckpt("-C", "/", "complete", "--", command, "", at=checkout) == Outcome(0, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_and_its_shell_can_read_it(
    ckpt: Ckpt, shell: str, tmp_path: Path
) -> None:
    done = ckpt("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "git-ckpt complete -- " in done.out
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here to read it")
    script = tmp_path / "script"
    script.write_text(done.out)
    assert (
        subprocess.run([shell, "-n", str(script)], capture_output=True, check=False).stderr == b""
    )


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (["git-ckpt", "sh"], ["show"]),
        (["git", "ckpt", "sh"], ["show"]),
        (["git", "-C", "/", "ckpt", "resu"], ["resume"]),
        (["git", "ckpt", "show", "--"], ["--json", "--raw", "--state", "--help"]),
        (["git-ckpt", "show", "lat"], ["latest", "latest:any"]),
        (["git", "ckpt", "completion", ""], ["bash", "zsh", "fish"]),
        (["git-ckpt", ""], COMMANDS),
        (["git", "ckpt", ""], COMMANDS),
    ],
)
def test_bash_completes(
    ckpt: Ckpt,
    main_checkout: Checkout,
    save: Save,
    git_ckpt: Path,
    tmp_path: Path,
    line: list[str],
    offered: list[str],
) -> None:
    assert git_ckpt.exists()
    save(main_checkout)
    script = tmp_path / "script"
    script.write_text(ckpt("completion", "bash").out)
    program = (
        f'. "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _git_ckpt; printf "%s\\n" '
        f'"${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "-c", program, "bash", *line],
        cwd=main_checkout.path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")
