"""The known ways in which earlier programs lost work lose nothing here.

Each has its name (B4 to B13, F1 to F11).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gitckpt import Query
from gitckpt.durable.driver import driver as registry
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.durable.pipeline import launch
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock
from tests.durable.command.commanding import comes, ends
from tests.durable.conftest import refuse_refs
from tests.durable.stage import Stage, normal, stage
from tests.stores import open_store

pytestmark = pytest.mark.long

__all__ = ["stage"]

WAITS = (
    'echo $$ > "$CALLS.pid"; echo work > work; git add --intent-to-add work; '
    'until [ -e "$CALLS.go" ]; do sleep 0.05; done'
)
"""A phase that leaves a file, and waits for permission to continue."""


def note(stage: Stage, name: str) -> Path:
    """Return the path of a file that a phase left for the test beside its worktree."""
    return Path(f"{stage.env['CALLS']}.{name}")


def test_b4_a_resume_keeps_the_inputs_and_takes_another_autonomy(stage: Stage) -> None:
    top = "autonomy = 'checkpoint'\ninputs = { question = '', depth = '1' }"
    ask = 'echo "$CKPT_INPUT_QUESTION, $CKPT_INPUT_DEPTH" >> "$CALLS"'
    stage.pipeline(f"one: {ask}; [ -e ok ]", f"two: {ask}", f"three: {ask}", top=top)
    assert stage.ckpt("run", "ci", "-i", "question=what is it?").code == 20
    run = stage.run()
    (stage.worktree(run) / "ok").touch()
    done = stage.ckpt("resume", "--autonomy", "autonomous")
    assert (done.code, stage.status(run)) == (0, "complete"), done.err
    assert stage.calls == ["what is it?, 1"] * 4
    pipeline = stage.newest(run).pipeline
    assert pipeline is not None
    assert (dict(pipeline.inputs), pipeline.autonomy) == (
        {"question": "what is it?", "depth": "1"},
        "fully_autonomous",
    )


def test_b5_commit_and_files_come_back_wherever_head_is_by_now(stage: Stage) -> None:
    stage.pipeline(
        "one: echo 1 > committed; git add .; git commit -qm mine; echo 2 > loose; rm README",
        "two: exit 1",
    )
    assert stage.ckpt("run", "ci").code == 20
    run = stage.run()
    commit = stage.newest(run).git_sha
    shutil.rmtree(stage.worktree(run))
    stage.checkout.commit("theirs", other="x")
    stage.checkout.write("README", "changed meanwhile\n")
    stage.pipeline(
        "one: false", 'two: git rev-parse HEAD > "$CALLS"; git status --porcelain >> "$CALLS"'
    )
    assert stage.ckpt("resume", "--accept-changes").code == 0
    assert stage.calls == [commit, " D README", "?? loose"]
    assert (stage.checkout.path / "README").read_text() == "changed meanwhile\n"


def test_b6_and_f2_what_a_phase_has_done_is_saved_while_it_runs(stage: Stage) -> None:
    stage.pipeline(f"one: {WAITS}", more="autosave = '1s'\n")
    driver = stage.begin("run", "ci")
    assert comes(lambda: bool(stage.runs()))
    run = stage.run()
    assert comes(lambda: stage.newest(run).label == "one-progress")
    child = int(note(stage, "pid").read_text())
    driver.kill()
    driver.wait()
    assert ends(child)
    newest = stage.newest(run)
    assert (newest.label, stage.files(newest)) == ("one-progress", ["README", "work"])
    shutil.rmtree(stage.worktree(run))
    note(stage, "go").touch()
    stage.pipeline('one: cp work "$CALLS"', more="autosave = '1s'\n")
    assert stage.ckpt("resume", "--accept-changes").code == 0
    assert stage.calls == ["work"]


def test_b8_a_last_phase_that_failed_is_resumed_and_nothing_older_afterwards(stage: Stage) -> None:
    stage.pipeline('one: echo one >> "$CALLS"', 'two: echo two >> "$CALLS"; [ -e ok ]')
    assert stage.ckpt("run", "ci").code == 20
    run = stage.run()
    assert (stage.status(run), stage.ckpt("resume").code) == ("failed", 20)
    (stage.worktree(run) / "ok").touch()
    assert stage.ckpt("resume").code == 0
    assert stage.calls == ["one", "two", "two", "two"]
    code, out, err = stage.ckpt("resume")
    assert (code, out) == (2, "")
    assert err == (
        f"error: run {run} is complete\nhint: to do a phase again: git ckpt resume {run} "
        "--from PHASE; to fork the run: --fork\n"
    )
    older = stage.checkpoint(run, "two-failed").id
    assert (
        stage.ckpt("resume", older).err.splitlines()[0]
        == f"error: checkpoint {older[:8]} is not the newest of run {run}"
    )
    assert stage.calls == ["one", "two", "two", "two"]


def test_b9_a_command_that_is_missing_is_a_failure(stage: Stage) -> None:
    stage.pipeline("test: no-such-pytest -q")
    code, _, err = stage.ckpt("run", "ci")
    assert (code, err.splitlines()[-2].partition(": /bin/sh")[0]) == (
        20,
        "error: phase 'test' failed: exit code 127",
    )
    assert stage.events(stage.run())["test"].exit_code == 127


def test_b12_a_run_goes_on_where_only_its_refs_are(stage: Stage, tmp_path: Path) -> None:
    stage.pipeline(
        'one: echo 7 > "$CKPT_OUTPUT/answer"; echo "found=é" >> "$CKPT_SET"; echo x > loose',
        (
            'two: cat loose ../../runs/*/output/one/answer >> "$CALLS"; '
            'echo "$CKPT_STATE_FOUND $CKPT_INPUT_Q" >> "$CALLS"; [ -e ok ]'
        ),
        top="inputs = { q = 'none' }",
    )
    stage.checkout.commit("the pipeline")
    assert stage.ckpt("run", "ci", "-i", "q=why?").code == 20
    run = stage.run()
    other = Checkout(tmp_path / "elsewhere")
    stage.checkout.git("clone", "--quiet", str(stage.checkout.path), str(other.path))
    specs = (
        "+refs/checkpoints/*:refs/checkpoints/*",
        "+refs/ckpt/*:refs/ckpt/*",
        "+refs/keep/*:refs/keep/*",
        "+refs/notes/*:refs/notes/*",
    )
    other.git("fetch", "--quiet", "origin", *specs)
    shutil.rmtree(stage.checkout.path)
    stage.checkout.path.mkdir()
    assert stage.ckpt("resume", run, at=other.path).code == 2, (
        "an input may be a command, and nobody here has seen it"
    )
    again = stage.ckpt("resume", run, "--trust", at=other.path)
    assert (again.code, again.out) == (20, f"{run}\n"), again.err
    (other.path / ".ckpt/worktrees" / run / "ok").touch()
    assert stage.ckpt("resume", run, at=other.path).code == 0
    assert stage.calls == ["x", "7", "é why?"] * 3


@pytest.mark.long
def test_b13_the_project_may_be_moved(stage: Stage, tmp_path: Path) -> None:
    stage.checkout.write("plan.md", "do it\n")
    stage.program("gh", "exit 1")
    assert stage.ckpt("run", "plan.md").code == 20
    moved = tmp_path / "moved here"
    shutil.move(stage.checkout.path, moved)
    stage.checkout.path = moved
    (stage.worktree(stage.run()) / "unsaved").write_text("by hand\n")
    stage.program("gh", 'ls > "$CALLS.there"')
    done = stage.ckpt("resume")
    assert done.code == 0, done.err
    assert note(stage, "there").read_text().split() == [
        "README",
        "feature",
        "plan-as-read",
        "unsaved",
    ]
    assert stage.worktree(stage.run()).is_dir()
    assert stage.ckpt("verify").code == 0


class TestTheBranchIsThereAndTheWorktreeIsGone:
    """F1: a resume resets nothing."""

    @pytest.fixture
    def run(self, stage: Stage) -> str:
        stage.checkout.write("plan.md", "do it\n")
        stage.program(
            "claude",
            (
                "echo 1 > committed; git add committed; git commit -qm mine; echo 2 > loose; "
                "echo 3 > README"
            ),
        )
        stage.checkout.git("remote", "set-url", "origin", "nowhere")
        assert stage.ckpt("run", "plan.md").code == 20
        run = stage.run()
        assert stage.labels(run)[-1] == "commit and push-failed"
        return run

    def mend(self, stage: Stage) -> None:
        stage.checkout.git("remote", "set-url", "origin", str(stage.remote.path))

    @pytest.mark.long
    def test_f1_after_the_commit(self, stage: Stage, run: str) -> None:
        shutil.rmtree(stage.worktree(run))
        self.mend(stage)
        assert stage.ckpt("resume").code == 0
        assert stage.remote.git("log", "--format=%s", "forge/plan") == "Plan\nmine\nfirst"
        assert [
            stage.remote.git("show", f"forge/plan:{name}")
            for name in ("committed", "loose", "README")
        ] == ["1", "2", "3"]

    def test_f1_before_the_commit_and_with_pruned_worktrees(self, stage: Stage, run: str) -> None:
        stage.ok("resume", stage.checkpoint(run, "run agent-complete").id, "--rewind", "--no-run")
        before = stage.checkout.git("rev-parse", "forge/plan")
        assert stage.checkout.git("log", "--format=%s", "forge/plan") == "mine\nfirst"
        worktree = stage.worktree(run)
        stage.checkout.git("worktree", "unlock", str(worktree))
        shutil.rmtree(worktree)
        stage.checkout.git("worktree", "prune")
        self.mend(stage)
        done = stage.ckpt("resume")
        assert done.code == 0, done.err
        assert stage.remote.git("log", "--format=%s", "forge/plan") == "Plan\nmine\nfirst"
        assert stage.remote.git("rev-parse", "forge/plan^") == before
        assert [
            stage.remote.git("show", f"forge/plan:{name}")
            for name in ("committed", "loose", "README")
        ] == ["1", "2", "3"]


def test_f2_the_agents_work_is_in_a_checkpoint_before_it_is_committed(stage: Stage) -> None:
    stage.checkout.write("plan.md", "do it\n")
    stage.checkout.git("remote", "set-url", "origin", "nowhere")
    stage.program("claude", "echo half > feature; exit 1")
    assert stage.ckpt("run", "plan.md").code == 20
    run = stage.run()
    failed = stage.checkpoint(run, "run agent-failed")
    assert stage.files(failed) == ["README", "feature"]
    stage.program("claude", "echo whole > feature")
    assert stage.ckpt("resume").code == 20
    agent = stage.checkpoint(run, "run agent-complete")
    assert agent.worktree is not None
    assert agent.git_sha == stage.checkout.git("rev-parse", "main")
    assert stage.checkout.git("show", f"{agent.worktree.tree}:files/feature") == "whole"


def test_f3_one_driver_at_a_time_and_a_dead_one_is_known(stage: Stage) -> None:
    stage.pipeline(f"one: {WAITS}")
    driver = stage.begin("run", "ci")
    stage.waits_for(note(stage, "pid"))
    run = stage.run()
    assert stage.status(run) == "running"
    code, out, err = stage.ckpt("resume")
    assert (code, out) == (11, "")
    assert err.startswith(
        f"error: run {run} is driven by git ckpt run ci on {os.uname().nodename}, "
        f"process {driver.pid}, "
    )
    assert err.splitlines()[1:] == [f"hint: wait for that process, or: git ckpt cancel {run}"]
    driver.kill()
    driver.wait()
    assert stage.status(run) == "crashed"
    note(stage, "go").touch()
    done = stage.ckpt("resume")
    assert (done.code, stage.status(run)) == (0, "complete"), done.err
    assert stage.labels(run) == [
        "run-started",
        "one-started",
        "one-started",
        "one-complete",
        "run-complete",
    ]


class TestCheckpointsThatCannotBeWritten:
    """F4: the run reports each failed checkpoint, and the work continues."""

    def test_f4_until_the_end(self, stage: Stage) -> None:
        stage.pipeline(
            'one: [ "$CKPT_ATTEMPT" -gt 1 ] || touch "$CALLS.full"; echo 1 > work',
            'two: echo two >> "$CALLS"',
        )
        refuse_refs(stage.checkout, note(stage, "full"))
        code, _, err = stage.ckpt("run", "ci")
        run = stage.run()
        assert (code, stage.calls) == (1, ["two"])
        assert "warning: cannot record one-complete: " in err
        assert err.splitlines()[-2].startswith(
            f"error: cannot write all checkpoints of run {run}: "
        )
        assert err.splitlines()[-1] == f"hint: fix the cause, then: git ckpt resume {run}"
        assert "warning: cannot record one-complete: " in stage.ckpt("status", run).err
        note(stage, "full").unlink()
        assert stage.ckpt("resume").code == 0
        assert (stage.status(run), stage.files(stage.newest(run))) == (
            "complete",
            ["README", "work"],
        )
        assert stage.ckpt("status", run).err == ""

    def test_f4_for_a_while(self, stage: Stage) -> None:
        stage.pipeline('one: touch "$CALLS.full"', 'two: rm "$CALLS.full"')
        refuse_refs(stage.checkout, note(stage, "full"))
        code, _, err = stage.ckpt("run", "ci")
        run = stage.run()
        assert (code, err.splitlines()[-2]) == (0, f"run {run} is complete")
        assert stage.labels(run) == [
            "run-started",
            "one-started",
            "one-complete",
            "two-started",
            "two-complete",
            "run-complete",
        ]


def test_f5_two_runs_of_one_plan_in_one_second_are_two(stage: Stage) -> None:
    stage.checkout.write("plan.md", "do it\n")
    with stage.store() as here, open_store(str(here.worktree), clock=Clock(step=0)) as store:
        definition = pipelines.read_preset("plan-to-pr", registry.OPTIONS)
        given = launch.read_inputs(
            checkpoints_of_store(store), definition, {"plan": str(stage.checkout.path / "plan.md")}
        )
        runs = [
            launch.start_run(checkpoints_of_store(store), definition, given, name="plan").run
            for _ in range(3)
        ]
    assert runs == [f"20270115-080000-plan{end}" for end in ("", "-2", "-3")]
    assert stage.ckpt("resume", str(runs[1])).code == 0
    assert [stage.status(str(run)) for run in runs] == ["open", "complete", "open"]


CHANGES = [
    (("two: exit 1", "one: true"), "the order of the phases"),
    (("zero: true", "one: true", "two: exit 1"), "phase 'zero' is new"),
    (("one: true", "three: true"), "phase 'three' is new; phase 'two' is gone"),
    (("one: true", "two: true"), "phase 'two': run"),
]


class TestThePipelineHasChanged:
    """F6: a resume identifies phases by name and compares their definitions."""

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(("phases", "said"), CHANGES, ids=[each[1] for each in CHANGES])
    def test_f6_a_resume_names_what_is_not_as_it_was(
        self, stage: Stage, phases: tuple[str, ...], said: str
    ) -> None:
        stage.pipeline("one: true", "two: exit 1")
        assert stage.ckpt("run", "ci").code == 20
        run, before = stage.run(), stage.labels(stage.run())
        stage.pipeline(*phases)
        assert stage.ckpt("resume", run) == (
            2,
            "",
            (
                f"error: run {run} has changed since its start: {said}\n"
                "hint: undo the change, or accept it with --accept-changes\n"
            ),
        )
        assert stage.labels(run) == before
        assert stage.status(run) == "failed"

    def test_f6_what_is_accepted_goes_on_by_name(self, stage: Stage) -> None:
        stage.pipeline('one: echo 1 >> "$CALLS"', "two: exit 1")
        assert stage.ckpt("run", "ci").code == 20
        stage.pipeline(
            *(f'{name}: echo {name} >> "$CALLS"' for name in ("zero", "two", "one", "three"))
        )
        assert stage.ckpt("resume", "--accept-changes").code == 0
        assert stage.calls == ["1", "zero", "two", "three"]
        pipeline = stage.newest(stage.run()).pipeline
        assert pipeline is not None
        assert pipeline.phases == ("zero", "two", "one", "three")


class TestThePlanHasChanged:
    """F7: the plan belongs to the run."""

    @pytest.fixture
    def run(self, stage: Stage) -> str:
        stage.checkout.write("plan.md", "first version\n")
        stage.program("claude", "exit 1")
        assert stage.ckpt("run", "plan.md").code == 20
        stage.program("claude", "cat > as-read")
        return stage.run()

    def read(self, stage: Stage) -> str:
        return stage.remote.git("show", "forge/plan:as-read")

    def test_f7_an_edited_plan_is_noticed(self, stage: Stage, run: str) -> None:
        stage.checkout.write("plan.md", "second version\n")
        said = f"error: run {run} has changed since its start: input 'plan' has changed"
        refused = stage.ckpt("resume", run)
        assert (refused.code, refused.err.splitlines()[0]) == (2, said)
        assert stage.ckpt("resume", "--accept-changes").code == 0
        assert self.read(stage) == "second version"

    @pytest.mark.long
    def test_f7_an_accepted_plan_is_not_asked_about_again(self, stage: Stage, run: str) -> None:
        stage.checkout.write("plan.md", "second version\n")
        stage.program("claude", "exit 1")
        assert stage.ckpt("resume", "--accept-changes").code == 20
        stage.program("claude", "cat > as-read")
        assert stage.ckpt("resume").code == 0
        assert self.read(stage) == "second version"

    @pytest.mark.long
    def test_f7_a_deleted_plan_goes_on_from_the_copy(self, stage: Stage, run: str) -> None:
        (stage.checkout.path / "plan.md").unlink()
        shutil.rmtree(stage.checkout.path / ".ckpt/runs")
        assert stage.ckpt("resume").code == 0
        assert self.read(stage) == "first version"


NO_IDS = [("resume", name) for name in ("../../x", "/etc/passwd", "a/../b", "..", "-")]


@pytest.mark.parametrize(
    ("command", "name"), [*NO_IDS, ("status", "../x"), ("cancel", "../x"), ("finish", "../x")]
)
def test_f8_an_id_is_no_path(stage: Stage, command: str, name: str) -> None:
    before = stage.checkout.fingerprint()
    code, out, err = stage.ckpt(command, "--", name)
    assert (code, out) == (12, "")
    assert err.startswith("error: no ")
    assert stage.checkout.fingerprint() == before


def test_f9_attempts_are_counted_for_good(stage: Stage) -> None:
    waits = 'if [ "$CKPT_ATTEMPT" = 2 ]; then touch "$CALLS.waits"; sleep 60; fi'
    stage.pipeline(f'one: echo "$CKPT_ATTEMPT" >> "$CALLS"; {waits}; [ "$CKPT_ATTEMPT" -ge 4 ]')
    assert stage.ckpt("run", "ci").code == 20
    run = stage.run()
    driver = stage.begin("resume")
    stage.waits_for(note(stage, "waits"))
    driver.kill()
    driver.wait()
    assert [stage.ckpt("resume").code for _ in range(2)] == [20, 0]
    assert stage.calls == ["1", "2", "3", "4"]
    assert stage.events(run)["one"].attempts == 4


@pytest.mark.long
def test_f10_the_directory_one_is_in_does_not_matter(stage: Stage) -> None:
    stage.checkout.write("docs/deep/plan.md", "do it\n")
    stage.program("gh", "exit 1")
    inside = stage.checkout.path / "docs/deep"
    assert stage.ckpt("run", "plan.md", at=inside).code == 20
    run = stage.run()
    stage.program("gh", "true")
    assert stage.ok("status", at=inside).splitlines()[:4:3] == [
        f"run      {run}",
        "input    plan = docs/deep/plan.md",
    ]
    assert stage.ok("resume", at=stage.checkout.path / "docs") == run
    assert stage.status(run) == "complete"
    assert not (stage.checkout.path / "docs/.ckpt").exists()


def test_f11_runs_that_are_not_complete_are_told_of_and_go_when_asked(stage: Stage) -> None:
    stage.pipeline("one: exit 1")
    assert stage.ckpt("run", "ci").code == 20
    run = stage.run()
    stays = stage.ckpt("expire", "--dry-run")
    assert (stays.code, stays.out) == (0, f"stays\t{run}\tone-failed\tunfinished: failed\n")
    gone = stage.ckpt("expire", "--all", "--older-than", "0s", "--keep-last", "0")
    assert gone.code == 0, gone.err
    assert stage.runs() == []
    with stage.store() as store:
        assert store.list(Query(run=run)) == []
    assert normal(str(stage.worktree(run)), stage) == "TOP/.ckpt/worktrees/STAMP-ci"
    assert not stage.worktree(run).exists()
