"""A fetched run executes nothing before a person has seen and trusted it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gitckpt import Pipelines
from tests.conftest import Checkout
from tests.durable.stage import Stage, stage

__all__ = ["stage"]

REFS = "+refs/checkpoints/*:refs/checkpoints/*"
OWN = "+refs/ckpt/*:refs/ckpt/*"

ELSEWHERE = """
[pipelines.ci]
inputs = { tool = "true", name = "x" }
[[pipelines.ci.phases]]
name = "zero"
run = "true"
[[pipelines.ci.phases]]
name = "one"
run = 'eval "$CKPT_INPUT_TOOL"'
[[pipelines.ci.phases]]
name = "two"
run = "cat new >seen; false"
"""


@pytest.fixture
def elsewhere(stage: Stage, tmp_path: Path) -> Checkout:
    """Fetch a failed run, with a command as input, into another repository."""
    stage.pipeline(
        'zero: echo x=1 >>"$CKPT_SET"; echo new >new',
        'one: eval "$CKPT_INPUT_TOOL"',
        top='inputs = { tool = "true", name = "x" }',
    )
    stage.checkout.git("add", "--all")
    stage.checkout.git("commit", "--quiet", "--message", "pipeline")
    assert stage.ckpt("run", "ci", "-i", "tool=echo \x1b[31m; false").code == 20
    other = Checkout(tmp_path / "other")
    stage.checkout.git("clone", "--quiet", str(stage.checkout.path), str(other.path))
    other.git("fetch", "--quiet", "origin", REFS, OWN)
    return other


ACCOUNT = [
    "  files that differ from the checked-out commit:",
    "    A new",
    "  state:",
    '    /x = "1"',
    "  phases marked as complete:",
    "    zero",
    "  inputs:",
    "    tool = echo \\x1b[31m; false",
    "    name = x",
    "  pauses:",
    "    fully_autonomous",
    "  commands that would run:",
    '    one: eval "$CKPT_INPUT_TOOL"',
]
"""The facts that a person needs to decide whether to trust the run."""


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "words",
    [
        ["resume"],
        ["resume", "--from", "one"],
        ["resume", "--input", "name=y"],
        ["resume", "--rewind"],
    ],
)
def test_what_decides_is_shown_and_nothing_is_done(
    stage: Stage, elsewhere: Checkout, words: list[str]
) -> None:
    run = stage.run()
    before = elsewhere.refs()
    done = stage.ckpt(*words[:1], run, *words[1:], at=elsewhere.path)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        f"error: run {run} was not written in this repository",
        *ACCOUNT,
        f"hint: if you trust it: git ckpt resume {run} --trust",
    ]
    assert elsewhere.refs() == before
    assert not (elsewhere.path / ".ckpt").exists()


@pytest.mark.long
def test_a_fork_of_it_is_refused_as_well(stage: Stage, elsewhere: Checkout) -> None:
    run = stage.run()
    done = stage.ckpt("resume", run, "--fork", at=elsewhere.path)
    assert (done.code, done.err.splitlines()[1:-1]) == (2, ACCOUNT)
    done = stage.ckpt("resume", run, "--fork", "--trust", at=elsewhere.path)
    assert (
        done.code,
        ACCOUNT[1:2] == [line for line in done.err.splitlines() if line == ACCOUNT[1]],
    ) == (20, True)
    assert stage.ckpt("resume", run, at=elsewhere.path).code == 2  # the old one is what it was


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize("words", [["resume"], ["resume", "latest"], ["status"], ["show"]])
def test_it_is_never_chosen(stage: Stage, elsewhere: Checkout, words: list[str]) -> None:
    done = stage.ckpt(*words, at=elsewhere.path)
    assert (done.code, done.out, (elsewhere.path / ".ckpt").exists()) == (12, "", False)


@pytest.mark.long
def test_status_does_not_deny_that_it_is_there(stage: Stage, elsewhere: Checkout) -> None:
    said = "error: every run was fetched from another repository\n"
    said += "hint: to list runs: git ckpt runs; then name one\n"
    assert stage.ckpt("status", at=elsewhere.path) == (12, "", said)


@pytest.mark.long
def test_one_may_look_at_its_files(stage: Stage, elsewhere: Checkout) -> None:
    path = stage.ok("resume", stage.run(), "--no-run", at=elsewhere.path)
    assert (Path(path) / "new").read_text() == "new\n"


@pytest.mark.long
def test_whoever_has_seen_it_is_not_asked_again(stage: Stage, elsewhere: Checkout) -> None:
    run = stage.run()
    done = stage.ckpt("resume", run, "--trust", at=elsewhere.path)
    assert (done.code, done.out) == (20, f"{run}\n")
    assert done.err.splitlines()[: len(ACCOUNT) + 1] == [
        f"adopts {run}, which was not written in this repository",
        *ACCOUNT,
    ]
    again = stage.ckpt("resume", at=elsewhere.path)
    assert (again.code, "adopts" in again.err) == (20, False)
    assert stage.ckpt("resume", "--input", "tool=true", at=elsewhere.path).code == 0


@pytest.mark.long
def test_it_is_adopted_once(stage: Stage, elsewhere: Checkout) -> None:
    run = stage.run()
    assert stage.ckpt("resume", run, "--trust", at=elsewhere.path).code == 20
    assert stage.ckpt("resume", run).code == 20
    elsewhere.git("fetch", "--quiet", "origin", REFS, OWN)
    done = stage.ckpt("resume", run, at=elsewhere.path)
    assert (done.code, "the newest local checkpoint is" in done.err) == (2, True), done.err


@pytest.mark.long
def test_inputs_that_were_replaced_by_a_fetch_are_not_ours(
    stage: Stage, elsewhere: Checkout
) -> None:
    run = stage.run()
    assert (
        stage.ckpt(
            "resume", run, "--trust", "--input", "tool=touch evil; false", at=elsewhere.path
        ).code
        == 20
    )
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
        assert cure.startswith("hint: continue without it: git ckpt remove ")
        stage.ok("remove", cure.partition("git ckpt remove ")[2].partition(";")[0])
    assert done.code == 20


@pytest.mark.long
def test_where_the_chain_is_gone_one_is_asked_and_nothing_is_lost(stage: Stage) -> None:
    stage.pipeline("one: echo x=1 >>$CKPT_SET", "two: false")
    assert stage.ckpt("run", "ci").code == 20
    run = stage.run()
    shutil.rmtree(stage.checkout.path / ".git/ckpt" / "chains")
    assert stage.ckpt("resume", run).code == 2
    assert stage.ckpt("resume", run, "--trust").code == 20
    assert stage.newest(run).state == {"x": "1"}
    assert stage.ckpt("resume").code == 20


@pytest.mark.long
def test_the_worktree_is_brought_to_where_others_have_gone_on_with_the_run(
    stage: Stage, elsewhere: Checkout
) -> None:
    run = stage.run()
    there = stage.worktree(run)
    (there / "mine").write_text("by hand, after the failure\n")
    (elsewhere.path / "gitckpt.toml").write_text(ELSEWHERE)
    tool = "tool=echo more >>new; git add new; git commit --quiet -m new"
    assert (
        stage.ckpt(
            "resume", run, "--trust", "--accept-changes", "--input", tool, at=elsewhere.path
        ).code
        == 20
    )
    stage.checkout.git(
        "fetch", "--quiet", str(elsewhere.path), REFS, OWN, "+refs/keep/*:refs/keep/*"
    )
    (stage.checkout.path / "gitckpt.toml").write_text(ELSEWHERE.replace("; false", ""))
    done = stage.ckpt("resume", run, "--trust", "--accept-changes")
    assert done.code == 0, done.err
    assert (there / "seen").read_text() == "new\nmore\n"
    assert "updated the worktree of the run from " in done.err
    with stage.store() as store:
        held = [entry for entry in store.list() if entry.trigger == "safety"]
        assert [store.file(entry.id, "mine") for entry in held if entry.tree][
            -1
        ] == b"by hand, after the failure\n"


@pytest.fixture
def shared(stage: Stage, tmp_path: Path) -> tuple[str, Path, Checkout]:
    """Return a run of people, its worktree, and a repository that continued it."""
    path = Path(stage.ok("start", "login"))
    run = stage.run()
    other = Checkout(tmp_path / "other")
    stage.checkout.git("clone", "--quiet", str(stage.checkout.path), str(other.path))
    other.git("fetch", "--quiet", "origin", REFS, OWN)
    theirs = Path(stage.ok("resume", run, "--trust", at=other.path))
    (theirs / "more").write_text("from there\n")
    stage.ok("save", at=theirs)
    stage.checkout.git("fetch", "--quiet", str(other.path), REFS, OWN)
    return run, path, other


@pytest.mark.long
def test_of_a_run_that_people_drive_as_well(
    stage: Stage, shared: tuple[str, Path, Checkout]
) -> None:
    run, path, _ = shared
    assert stage.ckpt("resume", run, "--no-run").code == 0
    assert not (path / "more").exists()
    assert stage.ok("resume", run, "--trust") == str(path)
    assert (path / "more").read_text() == "from there\n"


@pytest.mark.long
def test_a_worktree_that_was_moved_is_brought_there_as_well(
    stage: Stage, shared: tuple[str, Path, Checkout]
) -> None:
    run, path, _ = shared
    moved = path.rename(stage.checkout.path / "moved")
    done = stage.ckpt("resume", run, "--trust")
    assert (done.code, done.out.strip(), (moved / "more").exists()) == (0, str(moved), True)
    assert f"warning: the worktree was moved from {path}\n" in done.err
    assert "as it was left" not in done.err


@pytest.mark.long
def test_what_was_saved_since_is_not_replaced(
    stage: Stage, shared: tuple[str, Path, Checkout]
) -> None:
    run, path, _ = shared
    with stage.store() as store:
        adopted = store.newest(run)
        Pipelines(store).require_ours([adopted], trust=True, show=lambda *_: None, adopt=True)
    (path / "mine").write_text("saved\n")
    stage.ok("save", at=path)
    (path / "mine").write_text("edited\n")
    done = stage.ckpt("resume", run)
    assert (done.code, (path / "mine").read_text()) == (14, "edited\n")
    assert f"to replace them: git ckpt resume {adopted.id} --rewind" in done.err
    assert (
        stage.ckpt("resume", run).code,
        (path / "mine").read_text(),
        (path / "more").exists(),
    ) == (0, "edited\n", False)
    assert stage.ckpt("resume", adopted.id, "--rewind").code == 0
    assert (path / "more").read_text() == "from there\n"


@pytest.mark.long
def test_nor_where_it_was_saved_before_the_run_was_adopted(
    stage: Stage, shared: tuple[str, Path, Checkout]
) -> None:
    run, path, _ = shared
    (path / "mine").write_text("saved\n")
    stage.ok("save", at=path)
    (path / "mine").write_text("edited\n")
    done = stage.ckpt("resume", run, "--trust")
    assert (done.code, (path / "mine").read_text()) == (14, "edited\n")
    assert "continued elsewhere until" in done.err
    assert (stage.ckpt("resume", run).code, (path / "mine").read_text()) == (0, "edited\n")


def test_nor_where_only_a_full_disk_has_left_it_out_of_the_chain(stage: Stage) -> None:
    path = Path(stage.ok("start", "login"))
    run = stage.run()
    chain = stage.checkout.path / ".git/ckpt/chains" / run
    before = chain.read_bytes()
    (path / "mine").write_text("saved\n")
    stage.ok("save", at=path)
    chain.write_bytes(before)
    (path / "mine").write_text("edited\n")
    assert stage.ckpt("resume", run).code == 2
    done = stage.ckpt("resume", run, "--trust")
    assert (done.code, (path / "mine").read_text()) == (0, "edited\n")
    assert "updated the worktree of the run" not in done.err


@pytest.mark.long
def test_what_is_left_of_theirs_comes_where_the_newest_was_removed(
    stage: Stage, shared: tuple[str, Path, Checkout]
) -> None:
    run, path, other = shared
    theirs = other.path / ".ckpt/worktrees" / run
    (theirs / "more").write_text("wrong\n")
    stage.ok("save", at=theirs)
    stage.checkout.git("fetch", "--quiet", str(other.path), REFS, OWN)
    with stage.store() as store:
        newest = store.newest(run)
        Pipelines(store).require_ours([newest], trust=True, show=lambda *_: None, adopt=True)
        store.remove([newest.id])
    assert stage.ckpt("resume", run).code == 0
    assert (path / "more").read_text() == "from there\n"


@pytest.mark.long
def test_who_looks_at_one_that_others_completed_is_told_what_brings_it(
    stage: Stage, shared: tuple[str, Path, Checkout]
) -> None:
    run, path, other = shared
    stage.ok("finish", run, at=other.path)
    stage.checkout.git("fetch", "--quiet", str(other.path), REFS, OWN)
    with stage.store() as store:
        newest = store.newest(run)
        Pipelines(store).require_ours([newest], trust=True, show=lambda *_: None, adopt=True)
    done = stage.ckpt("resume", run, "--no-run")
    assert done.err.endswith(f"to open its newest files: git ckpt resume {newest.id} --rewind\n")
    assert stage.ckpt("resume", newest.id, "--rewind").code == 0
    assert (path / "more").read_text() == "from there\n"


@pytest.mark.long
def test_what_was_only_looked_at_is_not_gone_on_in(stage: Stage, elsewhere: Checkout) -> None:
    run = stage.run()
    stage.ok("resume", run, "--no-run", at=elsewhere.path)
    (stage.worktree(run) / "new").write_text("newer\n")
    stage.ok("save", at=stage.worktree(run))
    elsewhere.git("fetch", "--quiet", "origin", REFS, OWN)
    assert stage.ckpt("resume", run, "--trust", at=elsewhere.path).code == 20
    assert (elsewhere.path / ".ckpt/worktrees" / run / "new").read_text() == "newer\n"
