"""A run that was fetched: nothing that it brings along is executed unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitckpt.store.runs import trust
from tests.conftest import Checkout
from tests.durable.stage import Stage, stage

__all__ = ["stage"]

REFS = "+refs/checkpoints/*:refs/checkpoints/*"
OWN = "+refs/ckpt/*:refs/ckpt/*"


@pytest.fixture
def elsewhere(stage: Stage, tmp_path: Path) -> Checkout:
    """Another repository, to which a run of the first one was fetched that failed, with an input that is a command."""
    stage.pipeline('one: eval "$CKPT_INPUT_TOOL"', top='inputs = { tool = "true", name = "x" }')
    stage.checkout.git("add", "--all")
    stage.checkout.git("commit", "--quiet", "--message", "pipeline")
    assert stage.ckpt("run", "ci", "-i", "tool=echo \x1b[31m; false").code == 20
    other = Checkout(tmp_path / "other")
    stage.checkout.git("clone", "--quiet", str(stage.checkout.path), str(other.path))
    other.git("fetch", "--quiet", "origin", REFS, OWN)
    return other


@pytest.mark.parametrize("words", [["resume"], ["resume", "--fork"], ["resume", "--from", "one"], ["resume", "--input", "name=y"]])
def test_its_inputs_are_shown_and_nothing_is_done(stage: Stage, elsewhere: Checkout, words: list[str]) -> None:
    run = stage.run()
    done = stage.ckpt(*words[:1], *([run] if "--fork" in words else []), *words[1:], at=elsewhere.path)
    assert (done.code, done.out) == (2, "")
    said = [line for line in done.err.splitlines() if not line.startswith(f"run {run}-") and "goes on from" not in line]
    about = run if "--fork" not in words else said[0].split()[2]
    assert said == [
        f"error: run {about} was not started in this repository, and brings inputs of its own, which may become commands",
        "  tool = echo \\x1b[31m; false",
        f"hint: if you trust them: git ckpt resume {about} --trust",
    ]
    assert not (elsewhere.path / ".ckpt").exists()


def test_whoever_has_seen_them_is_not_asked_again(stage: Stage, elsewhere: Checkout) -> None:
    assert stage.ckpt("resume", "--trust", at=elsewhere.path).code == 20
    assert stage.ckpt("resume", at=elsewhere.path).code == 20
    assert stage.ckpt("resume", "--input", "tool=true", at=elsewhere.path).code == 0


def test_inputs_that_are_those_of_the_pipeline_here_need_no_trust(stage: Stage, elsewhere: Checkout) -> None:
    text = (elsewhere.path / "gitckpt.toml").read_text()
    elsewhere.write("gitckpt.toml", text.replace('"true"', '"echo \\u001b[31m; false"'))
    done = stage.ckpt("resume", at=elsewhere.path)
    assert (done.code, "was not started" in done.err) == (20, False)


def test_a_run_of_ours_whose_inputs_were_replaced_by_a_fetch_is_not_ours(stage: Stage, elsewhere: Checkout) -> None:
    run = stage.run()
    assert stage.ckpt("resume", "--trust", "--input", "tool=touch evil; false", at=elsewhere.path).code == 20
    stage.checkout.git("fetch", "--quiet", str(elsewhere.path), REFS, OWN)
    done = stage.ckpt("resume", run)
    assert (done.code, done.err.splitlines()[1]) == (2, "  tool = touch evil; false")
    assert not (stage.worktree(run) / "evil").exists()


def test_a_run_that_brings_none_goes_on(stage: Stage, tmp_path: Path) -> None:
    stage.pipeline("one: [ -e go ]")
    stage.checkout.git("add", "--all")
    stage.checkout.git("commit", "--quiet", "--message", "pipeline")
    assert stage.ckpt("run", "ci").code == 20
    other = Checkout(tmp_path / "other")
    stage.checkout.git("clone", "--quiet", str(stage.checkout.path), str(other.path))
    other.git("fetch", "--quiet", "origin", REFS, OWN)
    assert stage.ckpt("resume", at=other.path).code == 20


def test_where_the_note_is_gone_one_is_asked(stage: Stage) -> None:
    stage.pipeline("one: false", top='inputs = { name = "x" }')
    assert stage.ckpt("run", "ci", "-i", "name=y").code == 20
    (stage.checkout.path / ".git/ckpt" / trust.FILE).unlink()
    done = stage.ckpt("resume")
    assert (done.code, done.err.splitlines()[1]) == (2, "  name = y")
