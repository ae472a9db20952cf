"""Secrets in a run's inputs and outputs are masked before they are stored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gitckpt import Run, Store
from tests import forked
from tests.conftest import Checkout

pytestmark = pytest.mark.long

TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2bC4"
PIPELINE = """
[pipelines.leak]
[pipelines.leak.inputs]
task = ""
[[pipelines.leak.phases]]
name = "tell"
run = "echo token {token}; echo told: $CKPT_INPUT_TASK; mkdir -p $CKPT_OUTPUT; \
echo said {token} > $CKPT_OUTPUT/agent.log; {end}"
"""


def documents(checkout: Checkout) -> str:
    refs = checkout.git("for-each-ref", "--format=%(refname)", "refs/checkpoints").split()
    return "".join(blob.decode() for blob in checkout.blobs(*refs))


@pytest.mark.parametrize("end", ["true", "false"])
def test_no_document_and_no_transcript_of_a_run_holds_the_secret(
    main_checkout: Checkout, end: str
) -> None:
    main_checkout.write("gitckpt.toml", PIPELINE.format(token=f"{TOKEN[:8]}''{TOKEN[8:]}", end=end))
    main_checkout.git("add", "--all")
    main_checkout.git("commit", "--quiet", "--message", "pipeline")
    done = forked.git_ckpt("run", "leak", "-i", f"task=use {TOKEN}", directory=main_checkout.path)
    assert done.code == (0 if end == "true" else 20), done
    stored = documents(main_checkout)
    assert TOKEN not in stored
    assert "token [masked: github-pat]" in stored
    assert 'task = "use [masked: github-pat]"' in stored
    with Store.open(main_checkout.path) as store:
        newest = store.list()[0]
    log = main_checkout.git(
        "cat-file", "blob", f"refs/ckpt/trees/{newest.id}:run/output/tell/agent.log"
    )
    assert log == "said [masked: github-pat]"


def test_what_a_phase_returns_is_masked_for_later_starts_and_the_state_is_not(plain: Store) -> None:
    with Run.start(plain, "leak") as run:
        run.state["token"] = TOKEN
        assert run.phase("tell", lambda: [TOKEN, 1]) == [TOKEN, 1]
        run.pause()
    with Run.resume(plain, run.id) as run:
        assert run.phase("tell", lambda: None) == ["[masked: github-pat]", 1]
        assert run.state == {"token": TOKEN}


WITH_FILE = """
[pipelines.leak]
inputs = {{ plan = "{path}" }}
files = ["plan"]
[[pipelines.leak.phases]]
name = "read"
run = "wc -c < $CKPT_INPUT_PLAN > size.txt; mkdir -p $CKPT_OUTPUT; \
cp $CKPT_INPUT_PLAN $CKPT_OUTPUT/prompt"
[[pipelines.leak.phases]]
name = "again"
run = "grep -q call $CKPT_INPUT_PLAN"
"""
PLAN = f"# Plan\ncall it with {TOKEN}\nand be done\n"
MASKED = "# Plan\ncall it with [masked: github-pat]\nand be done"


class Told:
    """Start a pipeline with an input that is an uncommitted file.

    Args:
        here: the repository.
    """

    def __init__(self, here: Checkout) -> None:
        self.here = here
        here.write("gitckpt.toml", WITH_FILE.format(path="plan.md"))
        here.git("add", "gitckpt.toml")
        here.git("commit", "--quiet", "--allow-empty", "--message", "pipeline")
        here.write("plan.md", PLAN)
        self.done = forked.git_ckpt("run", "leak", "--autonomy", "checkpoint", directory=here.path)
        with Store.open(here.path) as store:
            self.run = str(store.list()[0].run)

    @property
    def copy(self) -> Path:
        return self.here.path / ".ckpt" / "runs" / self.run / "input" / "plan"

    def resume(self, *more: str) -> forked.Done:
        return forked.git_ckpt(
            "resume", self.run, "--autonomy", "fully_autonomous", *more, directory=self.here.path
        )

    def stored(self) -> list[str]:
        """Return the copies of the plan in the checkpoints."""
        refs = self.here.git("for-each-ref", "--format=%(refname)", "refs/ckpt/trees").split()
        return [self.here.git("cat-file", "blob", f"{ref}:run/input/plan") for ref in refs]


@pytest.fixture
def told(main_checkout: Checkout) -> Told:
    return Told(main_checkout)


def test_what_is_stored_of_a_file_is_masked_and_the_run_has_it_whole(told: Told) -> None:
    assert told.done.code == 0, told.done
    assert (
        "masked what looks like a secret in the stored copy of plan.md, line 2 (github-pat)"
        in told.done.err
    )
    assert told.copy.read_text() == PLAN == (told.here.path / "plan.md").read_text()
    done = told.resume()
    assert done.code == 0, done
    stored = told.stored()
    assert len(stored) > 2
    assert set(stored) == {MASKED}
    assert TOKEN not in documents(told.here)
    listed = told.here.git(
        "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"
    ).splitlines()
    blobs = told.here.blobs(*(line.split()[1] for line in listed if line.startswith("blob ")))
    assert not [data for data in blobs if TOKEN.encode() in data]
    assert (
        told.here.path / ".ckpt" / "worktrees" / told.run / "size.txt"
    ).read_text().strip() == str(len(PLAN))
    with Store.open(told.here.path) as store:
        newest = store.list()[0]
    assert (
        told.here.git("cat-file", "blob", f"refs/ckpt/trees/{newest.id}:run/output/read/prompt")
        == MASKED
    )
    shown = forked.git_ckpt("show", newest.id, directory=told.here.path).out
    assert "beside the worktree: input/plan, with possible secrets masked" in shown


def test_a_copy_that_is_gone_comes_back_from_the_file(told: Told) -> None:
    told.copy.unlink()
    assert told.resume().code == 0
    assert told.copy.read_text() == PLAN
    assert set(told.stored()) == {MASKED}


@pytest.mark.parametrize("is_other", [False, True])
def test_without_the_file_nobody_goes_on_from_what_is_masked_unasked(
    told: Told, is_other: bool
) -> None:
    told.copy.unlink()
    (told.here.path / "plan.md").unlink()
    if is_other:
        told.here.write("plan.md", "another one\n")
    done = told.resume()
    assert done.code == 2, done
    if is_other:
        assert "input 'plan' has changed" in done.err
        return
    assert "the run's copy of the input plan has masked secrets" in done.err
    assert (
        "restore the original plan.md, or continue with the masked copy: "
        f"git ckpt resume {told.run} --accept-changes"
    ) in done.err
    assert told.copy.read_text() == f"{MASKED}\n"
    told.here.write("plan.md", PLAN)
    assert told.resume("--no-run").code == 0
    (told.here.path / "plan.md").unlink()
    assert told.resume("--accept-changes").code == 0


def test_what_is_settled_is_stored_whole(main_checkout: Checkout) -> None:
    advised = re.search("git ckpt allow --secret ([0-9a-f]{16})", Told(main_checkout).done.err)
    assert advised is not None
    assert forked.git_ckpt("allow", "--secret", advised[1], directory=main_checkout.path).code == 0
    before = set(
        main_checkout.git("for-each-ref", "--format=%(refname)", "refs/ckpt/trees").split()
    )
    told = Told(main_checkout)
    assert "looks like a secret" not in told.done.err
    later = (
        set(main_checkout.git("for-each-ref", "--format=%(refname)", "refs/ckpt/trees").split())
        - before
    )
    assert {
        main_checkout.git("cat-file", "blob", f"{ref}:run/input/plan") + "\n" for ref in later
    } == {PLAN}


def test_a_fork_has_the_file_whole(told: Told) -> None:
    done = told.resume("--fork")
    assert done.code in (0, 10), done
    with Store.open(told.here.path) as store:
        fork = str(store.list()[0].run)
    assert fork != told.run
    assert (told.copy.parents[2] / fork / "input" / "plan").read_text() == PLAN
    assert set(told.stored()) == {MASKED}


def test_message_and_errors_of_a_checkpoint_are_masked(main_checkout: Checkout) -> None:
    said = f"use {TOKEN} for it"
    assert forked.git_ckpt("save", "-m", said, directory=main_checkout.path).code == 0
    with Store.open(main_checkout.path) as store:
        made = store.record("build-failed", {"said": said}, message=said, errors=[said])
        assert (made.message, made.errors) == (
            "use [masked: github-pat] for it",
            ("use [masked: github-pat] for it",),
        )
        assert store.read(made.id).message == made.message
        assert store.read(made.id).state == {"said": said}  # a state is the caller's own
    saved, recorded = sorted(
        documents(main_checkout).split("version = 1\n")[1:], key=lambda text: "state]\nsaid" in text
    )
    assert TOKEN not in saved
    assert recorded.count(TOKEN) == 1


def test_what_an_agent_answers_is_masked_before_a_loop_remembers_it(
    main_checkout: Checkout,
) -> None:
    agent = main_checkout.write(
        "agent.sh",
        f"cat > /dev/null\necho the token is {TOKEN[:8]}''{TOKEN[8:]}\necho work >> work.txt\n",
    )
    main_checkout.write("PLAN.md", "# Plan\nwork\n")
    main_checkout.git("add", "--all")
    main_checkout.git("commit", "--quiet", "--message", "plan")
    words = (
        "loop",
        "PLAN.md",
        "--agent",
        f"sh {agent}",
        "--tests",
        f"echo fails with {TOKEN[:8]}''{TOKEN[8:]}; false",
    )
    done = forked.git_ckpt(
        *words, "--until-tests-pass", "--max-iterations", "1", directory=main_checkout.path
    )
    stored = documents(main_checkout)
    assert "[masked: github-pat]" in stored, done
    assert "the token is [masked: github-pat]" in stored, done
    assert "fails with [masked: github-pat]" in stored, done
    assert TOKEN not in stored


OUTPUT = """
[[pipelines.leak.phases]]
name = "tell"
run = "mkdir -p $CKPT_OUTPUT; echo {token} > $CKPT_OUTPUT/result.txt; {end}"
[[pipelines.leak.phases]]
name = "wait"
run = "true"
"""


@pytest.mark.parametrize("end", ["true", "false"])
def test_a_secret_in_the_output_of_a_phase_is_kept_and_named(
    main_checkout: Checkout, end: str
) -> None:
    main_checkout.write("gitckpt.toml", OUTPUT.format(token=f"{TOKEN[:8]}''{TOKEN[8:]}", end=end))
    main_checkout.git("add", "--all")
    main_checkout.git("commit", "--quiet", "--message", "pipeline")
    done = forked.git_ckpt("run", "leak", directory=main_checkout.path)
    path = "run/output/tell/result.txt"
    [warning] = [line for line in done.err.splitlines() if "looks like a secret" in line]
    assert f"{path}:1 (github-pat)" in warning
    with Store.open(main_checkout.path) as store:
        newest = store.list()[0]
        files = store.read(newest.id).worktree
        assert files is not None
        assert [(suspect.path, suspect.rule, suspect.line) for suspect in files.suspects] == [
            (path, "github-pat", 1)
        ]
    assert main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{newest.id}:{path}") == TOKEN
    shown = forked.git_ckpt("show", newest.id, directory=main_checkout.path)
    assert f"looks like a secret: {path}:1" in shown.out

    settled = forked.git_ckpt(
        "allow", "--secret", files.suspects[0].digest, directory=main_checkout.path
    )
    assert settled.code == 0, settled
    again = forked.git_ckpt("run", "leak", directory=main_checkout.path)
    assert "looks like a secret" not in again.err
