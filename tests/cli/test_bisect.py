"""`git ckpt bisect` finds the first checkpoint in which a command fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import PROJECT, Ckpt
from tests.conftest import Checkout

Save = Callable[..., str]


@pytest.fixture
def steps(main_checkout: Checkout, save: Save) -> list[str]:
    """Ten checkpoints; the untracked file `number` has 0 to 9."""
    made = []
    for number in range(10):
        main_checkout.write("number", f"{number}\n")
        made.append(save(main_checkout, "-m", f"step {number}"))
    return made


def below(number: int) -> list[str]:
    return ["--", "sh", "-c", f"test $(cat number) -lt {number}"]


def worktrees(at: Checkout) -> int:
    return at.git("worktree", "list", "--porcelain").count("worktree ")


@pytest.mark.long(but=["5"])
@pytest.mark.parametrize("first", [1, 5, 9])
def test_the_first_bad_one_is_found(
    ckpt: Ckpt, main_checkout: Checkout, steps: list[str], first: int
) -> None:
    main_checkout.write("number", "not saved\n")
    done = ckpt("bisect", *below(first), at=main_checkout)
    assert (done.code, done.out) == (0, f"{steps[first]}\n")
    assert f"last good: {steps[first - 1][:8]}" in done.err
    assert done.err.count("good: ") + done.err.count("bad: ") <= 8
    assert (main_checkout.path / "number").read_text() == "not saved\n"
    assert worktrees(main_checkout) == 1
    assert ckpt("bisect").code == 2  # nothing to continue
    assert not list((main_checkout.path / ".git/ckpt").glob("bisect*"))


@pytest.mark.long
def test_good_and_bad_limit_the_range(
    ckpt: Ckpt, main_checkout: Checkout, steps: list[str]
) -> None:
    words = ["--good", steps[2], "--bad", steps[7], *below(5)]
    assert ckpt("bisect", *words, at=main_checkout).out == f"{steps[5]}\n"
    for words, problem in (
        (["--bad", steps[3], *below(5)], f"the command succeeds in {steps[3][:8]}"),
        (["--good", steps[7], "--bad", steps[3], *below(5)], "is not before"),
        (["--", "no-such-command"], "exit code 127, which is no verdict"),
        ([], "no bisection has begun"),
    ):
        done = ckpt("bisect", *words)
        assert (done.code, done.out) == (2, ""), words
        assert problem in done.err
    everywhere = ckpt("bisect", "--", "false")
    assert (everywhere.code, everywhere.out) == (1, "")
    assert f"error: the oldest checkpoint {steps[0][:8]} of the range already" in everywhere.err
    assert "git ckpt bisect --good ID -- COMMAND" in everywhere.err
    assert ckpt("bisect").code == 2  # nothing to continue


@pytest.mark.long
def test_125_skips(ckpt: Ckpt, main_checkout: Checkout, steps: list[str]) -> None:
    script = "n=$(cat number); test $n -lt 5 || test $n -gt 6 || exit 125; test $n -lt 5"
    done = ckpt("bisect", "--", "sh", "-c", script, at=main_checkout)
    assert done.out == f"{steps[7]}\n"
    for number in (5, 6):
        assert f"skipped, and perhaps bad: {steps[number][:8]}" in done.err


@pytest.mark.long
def test_after_a_kill_the_search_continues(
    ckpt: Ckpt, main_checkout: Checkout, steps: list[str], tmp_path: Path
) -> None:
    """The command kills gitckpt at its third trial."""
    count = tmp_path / "count"
    script = f"echo >>'{count}'; test $(wc -l <'{count}') = 3 && kill -9 $PPID; "
    script += "test $(cat number) -lt 6"
    command = [sys.executable, "-m", "gitckpt", "bisect", "--", "sh", "-c", script]
    env = os.environ | {"PYTHONPATH": str(PROJECT)}
    killed = subprocess.run(
        command, cwd=main_checkout.path, env=env, capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    begun = ckpt("bisect", *below(6), at=main_checkout)
    assert begun.code == 2
    assert "a bisection has not ended" in begun.err
    done = ckpt("bisect")
    assert done.out == f"{steps[6]}\n"
    assert steps[9][:8] not in done.err  # its verdict was kept
    assert worktrees(main_checkout) == 1


@pytest.mark.long
def test_ctrl_c_removes_the_worktree_and_reset_forgets(
    ckpt: Ckpt, main_checkout: Checkout, steps: list[str]
) -> None:
    command = [sys.executable, "-m", "gitckpt", "bisect", "--", "sh", "-c", "kill -INT $PPID; cat"]
    done = subprocess.run(
        command,
        cwd=main_checkout.path,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdin=subprocess.PIPE,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 130
    assert b"to continue: git ckpt bisect" in done.stderr
    assert worktrees(main_checkout) == 1
    assert ckpt("bisect", "--reset", at=main_checkout).code == 0
    assert ckpt("bisect", "--reset").err == "no bisection has begun\n"


def test_in_a_run_only_its_checkpoints_are_tried(ckpt: Ckpt, main_checkout: Checkout) -> None:
    from gitckpt import Store

    with Store.open(main_checkout.path) as store:
        run = store.save("a-complete", {}, start="work").run
        main_checkout.write("elsewhere", "1\n")
        store.save("b-complete", {})
        main_checkout.write("bad", "1\n")
        last = store.save("c-complete", {}, run=run)
    done = ckpt("bisect", "--bad", str(run), "--", "sh", "-c", "! test -e bad", at=main_checkout)
    assert done.out == f"{last.id}\n"
    assert "2 checkpoints left" in done.err
