"""A run that was fetched: nothing that it brings along is executed unseen, and whoever has seen it is not asked again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gitckpt.store import chains
from tests.conftest import Checkout
from tests.durable.stage import Stage, stage

__all__ = ["stage"]

REFS = "+refs/checkpoints/*:refs/checkpoints/*"
OWN = "+refs/ckpt/*:refs/ckpt/*"


@pytest.fixture
def elsewhere(stage: Stage, tmp_path: Path) -> Checkout:
    """Another repository, to which a run of the first one was fetched that failed, with an input that is a command."""
    stage.pipeline(
        'zero: echo x=1 >>"$CKPT_SET"; echo new >new', 'one: eval "$CKPT_INPUT_TOOL"', top='inputs = { tool = "true", name = "x" }'
    )
    stage.checkout.git("add", "--all")
    stage.checkout.git("commit", "--quiet", "--message", "pipeline")
    assert stage.ckpt("run", "ci", "-i", "tool=echo \x1b[31m; false").code == 20
    other = Checkout(tmp_path / "other")
    stage.checkout.git("clone", "--quiet", str(stage.checkout.path), str(other.path))
    other.git("fetch", "--quiet", "origin", REFS, OWN)
    return other


ACCOUNT = [
    "  files that differ from the commit that is checked out:",
    "    A new",
    "  state:",
    '    /x = "1"',
    "  phases that it calls complete:",
    "    zero",
    "  inputs:",
    "    tool = echo \\x1b[31m; false",
    "    name = x",
    "  pauses:",
    "    fully_autonomous",
    "  commands that would run:",
    '    one: eval "$CKPT_INPUT_TOOL"',
]
"""What decides whether to trust it."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("words", [["resume"], ["resume", "--from", "one"], ["resume", "--input", "name=y"], ["resume", "--rewind"]])
def test_what_decides_is_shown_and_nothing_is_done(stage: Stage, elsewhere: Checkout, words: list[str]) -> None:
    run = stage.run()
    before = elsewhere.refs()
    done = stage.ckpt(*words[:1], run, *words[1:], at=elsewhere.path)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        f"error: run {run} was not written in this repository",
        *ACCOUNT,
        f"hint: if you trust it as it stands: git ckpt resume {run} --trust",
    ]
    assert elsewhere.refs() == before
    assert not (elsewhere.path / ".ckpt").exists()


@pytest.mark.long
def test_a_fork_of_it_is_refused_as_well(stage: Stage, elsewhere: Checkout) -> None:
    run = stage.run()
    done = stage.ckpt("resume", run, "--fork", at=elsewhere.path)
    assert (done.code, done.err.splitlines()[1:-1]) == (2, ACCOUNT)
    done = stage.ckpt("resume", run, "--fork", "--trust", at=elsewhere.path)
    assert (done.code, ACCOUNT[1:2] == [line for line in done.err.splitlines() if line == ACCOUNT[1]]) == (20, True)
    assert stage.ckpt("resume", run, at=elsewhere.path).code == 2  # the old one is what it was


@pytest.mark.sampled(4)
@pytest.mark.parametrize("words", [["resume"], ["resume", "latest"], ["status"], ["show"]])
def test_it_is_never_chosen(stage: Stage, elsewhere: Checkout, words: list[str]) -> None:
    done = stage.ckpt(*words, at=elsewhere.path)
    assert (done.code, done.out, (elsewhere.path / ".ckpt").exists()) == (12, "", False)


def test_one_may_look_at_its_files(stage: Stage, elsewhere: Checkout) -> None:
    path = stage.ok("resume", stage.run(), "--no-run", at=elsewhere.path)
    assert (Path(path) / "new").read_text() == "new\n"


@pytest.mark.long
def test_whoever_has_seen_it_is_not_asked_again(stage: Stage, elsewhere: Checkout) -> None:
    run = stage.run()
    done = stage.ckpt("resume", run, "--trust", at=elsewhere.path)
    assert (done.code, done.out) == (20, f"{run}\n")
    assert done.err.splitlines()[: len(ACCOUNT) + 1] == [f"adopts {run}, which was not written in this repository", *ACCOUNT]
    again = stage.ckpt("resume", at=elsewhere.path)
    assert (again.code, "adopts" in again.err) == (20, False)
    assert stage.ckpt("resume", "--input", "tool=true", at=elsewhere.path).code == 0


def test_it_is_adopted_once(stage: Stage, elsewhere: Checkout) -> None:
    run = stage.run()
    assert stage.ckpt("resume", run, "--trust", at=elsewhere.path).code == 20
    assert stage.ckpt("resume", run).code == 20
    elsewhere.git("fetch", "--quiet", "origin", REFS, OWN)
    done = stage.ckpt("resume", run, at=elsewhere.path)
    assert (done.code, "the newest that was is" in done.err) == (2, True), done.err


@pytest.mark.long
def test_inputs_that_were_replaced_by_a_fetch_are_not_ours(stage: Stage, elsewhere: Checkout) -> None:
    run = stage.run()
    assert stage.ckpt("resume", run, "--trust", "--input", "tool=touch evil; false", at=elsewhere.path).code == 20
    stage.checkout.git("fetch", "--quiet", str(elsewhere.path), REFS, OWN)
    done = stage.ckpt("resume", run)
    assert (done.code, "    tool = touch evil; false" in done.err.splitlines()) == (2, True)
    assert not (stage.worktree(run) / "evil").exists()


@pytest.mark.long
def test_without_what_came_it_is_ours_again(stage: Stage, elsewhere: Checkout) -> None:
    run = stage.run()
    assert stage.ckpt("resume", run, "--trust", at=elsewhere.path).code == 20
    stage.checkout.git("fetch", "--quiet", str(elsewhere.path), REFS, OWN)
    while (done := stage.ckpt("resume", run)).code == 2:
        (cure,) = (line for line in done.err.splitlines() if line.startswith("hint: "))
        assert cure.startswith("hint: to go on without it: git ckpt remove ")
        stage.ok("remove", cure.split()[9].rstrip(";"))
    assert done.code == 20


@pytest.mark.long
def test_where_the_chain_is_gone_one_is_asked_and_nothing_is_lost(stage: Stage) -> None:
    stage.pipeline("one: echo x=1 >>$CKPT_SET", "two: false")
    assert stage.ckpt("run", "ci").code == 20
    run = stage.run()
    shutil.rmtree(stage.checkout.path / ".git/ckpt" / chains.DIRECTORY)
    assert stage.ckpt("resume", run).code == 2
    assert stage.ckpt("resume", run, "--trust").code == 20
    assert stage.newest(run).state == {"x": "1"}
    assert stage.ckpt("resume").code == 20
