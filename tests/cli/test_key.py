"""`--key` names one run, however often it is started."""

from __future__ import annotations

import pytest

from tests.cli.test_run import told
from tests.durable.stage import Stage, stage

__all__ = ["stage"]


class TestRun:
    @pytest.mark.long
    def test_goes_on_with_the_run_that_has_the_key(self, stage: Stage) -> None:
        stage.pipeline('one: echo one >> "$CALLS"', 'two: echo two >> "$CALLS"; [ -e go ]')
        assert stage.ckpt("run", "ci", "--key", "nightly").code == 20
        run = stage.run()
        (stage.worktree(run) / "go").write_text("")
        done = told(stage.ckpt("run", "ci", "--key", "nightly"), stage)
        assert (done[0], done[1]) == (0, "STAMP-ci\n")
        assert "[2/2] two (attempt 2)\n" in done[2]
        assert "[1/2] one\n" not in done[2]
        assert stage.run() == run
        again = told(stage.ckpt("run", "ci", "--key=nightly"), stage)
        assert again == (
            0,
            "STAMP-ci\n",
            (
                "run STAMP-ci is complete already; to bring its work here: git ckpt diff "
                "--binary SHORT STAMP-ci | git apply\n"
                "the run's worktree: TOP/.ckpt/worktrees/STAMP-ci\n"
            ),
        )
        assert stage.run() == run

    def test_another_pipeline_or_other_inputs_are_refused(self, stage: Stage) -> None:
        stage.pipeline("one: false")
        stage.ckpt("run", "ci", "--key", "nightly")
        hint = "hint: use another key, or continue this run: git ckpt resume STAMP-ci\n"
        what = "error: run STAMP-ci has changed since its start: "
        assert told(
            stage.ckpt(
                "run", "loop", "-i", "plan=README", "-i", "until_tests_pass=yes", "--key", "nightly"
            ),
            stage,
        ) == (
            2,
            "",
            f"{what}the run's pipeline is ci, not loop\n{hint}",
        )
        stage.pipeline("one: true")
        assert told(stage.ckpt("run", "ci", "--key", "nightly"), stage) == (
            2,
            "",
            f"{what}phase 'one': run\n{hint}",
        )

    def test_a_blank_key(self, stage: Stage) -> None:
        stage.pipeline("one: true")
        hint = "hint: give a text of 1 to 1000 characters, such as nightly-2026-11-22\n"
        assert told(stage.ckpt("run", "ci", "--key", ""), stage) == (
            2,
            "",
            f"error: '' is not a valid key\n{hint}",
        )


class TestStart:
    def test_opens_the_run_that_has_the_key(self, stage: Stage) -> None:
        path = stage.ok("start", "login", "--key", "issue 7")
        assert told(stage.ckpt("start", "another name", "--key", "issue 7"), stage) == (
            0,
            "TOP/.ckpt/worktrees/STAMP-login\n",
            "run STAMP-login existed already\n",
        )
        stage.ok("finish", at=stage.worktree(stage.run()))
        done = told(stage.ckpt("start", "--key", "issue 7"), stage)
        assert done[:2] == (2, "")
        assert done[2].startswith("error: run STAMP-login is complete\n")
        assert path.endswith("-login")

    @pytest.mark.long
    def test_eight_at_the_same_time(self, stage: Stage) -> None:
        racers = [stage.begin("start", "login", "--key", "issue 7") for _ in range(8)]
        said = [racer.communicate() for racer in racers]
        assert [racer.returncode for racer in racers] == [0] * 8, said
        assert {out for out, _ in said} == {f"{stage.worktree(stage.run())}\n"}
