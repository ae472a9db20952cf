"""Commands show, stop, finish and resume runs that exist already."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from gitckpt import LockHeld, Query, Run, Store
from tests import planted
from tests.cli.test_run import children, told, waiting
from tests.conftest import Checkout
from tests.durable.command.commanding import comes, ends
from tests.durable.stage import Stage, Talk, normal, stage
from tests.planted import plant

__all__ = ["stage"]


def with_a_rewind_cut_off(stage: Stage, *phases: str) -> tuple[str, str]:
    """Return a run whose second phase failed, and the target of its broken rewind."""
    stage.pipeline(*phases)
    assert stage.ckpt("run", "ci").code == 20
    run = stage.run()
    target = stage.checkpoint(run, "one-complete").id
    with Store.open(stage.worktree(run)) as store:
        store.save(
            "rewind-started", {}, run=run, trigger="phase", message=f"before going back to {target}"
        )
    return run, target


class TestSignals:
    @pytest.mark.long
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
    )
    def test_an_interrupted_run_says_so_and_leaves_nothing_behind(
        self, stage: Stage, number: signal.Signals
    ) -> None:
        driver = waiting(stage)
        driver.send_signal(number)
        out, err = driver.communicate(timeout=30)
        run = stage.run()
        assert (driver.returncode, out) == (130, f"{run}\n")
        assert normal(err, stage) == (
            "[1/2] one\n      one: failed after 0.0s\n"
            "the run was interrupted; to continue: git ckpt resume STAMP-ci\n\n"
        )
        assert ends(*children(stage))
        newest = stage.newest(run)
        assert (newest.label, newest.errors, stage.files(newest)) == (
            "one-failed",
            ("interrupted",),
            ["README", "work"],
        )
        assert stage.status(run) == "failed"
        stage.pipeline("one: cat work", "two: true")
        assert stage.ckpt("resume", "--accept-changes").code == 0

    @pytest.mark.long
    def test_cancel(self, stage: Stage) -> None:
        driver = waiting(stage)
        run = stage.run()
        assert stage.ckpt("cancel", run) == (
            0,
            "",
            f"run {run} has stopped; to go on: git ckpt resume {run}\n",
        )
        driver.communicate(timeout=30)
        assert driver.returncode == 130
        assert ends(*children(stage))
        assert stage.newest(run).label == "one-failed"
        assert stage.status(run) == "failed"
        again = stage.ckpt("cancel", run)
        assert again == (
            1,
            "",
            f"error: run {run} is not running\nhint: see the run's status: git ckpt status {run}\n",
        )

    @pytest.mark.long
    def test_a_driver_that_was_stopped_is_stalled_and_can_be_taken_over(self, stage: Stage) -> None:
        """Real processes show that a stopped driver changes no files after a takeover."""
        driver = waiting(stage)
        run = stage.run()
        driver.send_signal(signal.SIGSTOP)
        assert comes(lambda: stage.status(run) == "stalled")
        assert (
            stage.ok("status", run).splitlines()[-1]
            == f"next     git ckpt resume {run} --take-over"
        )
        assert stage.ok("runs", "--status", "stalled").split("\t")[0] == run
        pid = driver.pid
        refused = stage.ckpt("resume", run)
        assert (refused.code, refused.err.splitlines()[0].partition(":")[2]) == (
            11,
            f" run {run} is driven by {stage.lease(run)}, which is stalled",
        )
        cancelled = stage.ckpt("cancel", run)
        assert cancelled == (
            1,
            "",
            (
                f"error: run {run} was asked to stop, but its process {pid} is stalled\n"
                f"hint: let the process continue: kill -CONT {pid}; or take over the run: git "
                f"ckpt resume {run} --take-over\n"
            ),
        )
        left = children(stage)
        stage.pipeline("one: cat work", "two: true")
        assert stage.ckpt("resume", run, "--accept-changes", "--take-over").code == 0
        assert ends(*left)
        assert stage.status(run) == "complete"
        labels = stage.labels(run)
        driver.send_signal(signal.SIGCONT)
        _, err = driver.communicate(timeout=30)
        assert driver.returncode == 11
        assert f"error: the lease of run {run} was taken over by git ckpt resume" in err
        assert stage.labels(run) == labels

    @pytest.mark.long
    def test_a_run_goes_on_where_nobody_listens(self, stage: Stage) -> None:
        stage.pipeline(
            'one: echo a; until [ -e "$CALLS.go" ]; do sleep 0.02; done; yes | head -c 300000',
            "two: echo b",
        )
        driver = stage.begin("run", "ci")
        assert driver.stdout is not None
        assert driver.stderr is not None
        run = driver.stdout.readline().rstrip("\n")
        assert comes(lambda: stage.status(run) == "running")
        driver.stdout.close()
        driver.stderr.close()
        Path(f"{stage.env['CALLS']}.go").touch()
        assert driver.wait() == 0
        assert stage.status(run) == "complete"
        attempt = stage.checkpoint(run, "one-complete").attempt
        assert attempt is not None
        assert str(attempt.output).endswith("y\n" * 1000)

    @pytest.mark.long
    def test_a_run_that_is_driven_is_nobody_elses(self, stage: Stage) -> None:
        driver = waiting(stage)
        run = stage.run()
        for words in (["resume"], ["finish", run], ["resume", run, "--from", "one"]):
            done = stage.ckpt(*words)
            assert (done.code, done.out) == (11, "")
            assert done.err.startswith(
                f"error: run {run} is driven by git ckpt run ci on {os.uname().nodename}, "
                f"process {driver.pid}, "
            )
        assert stage.ckpt("status").out.splitlines()[-1] == f"next     git ckpt cancel {run}"
        assert stage.newest(run).label in ("one-started", "one-progress")


class TestStatus:
    @pytest.mark.long
    def test_of_a_run_that_failed(self, stage: Stage) -> None:
        stage.pipeline(
            "one: true",
            "two: echo no >&2; exit 1",
            "the last: true",
            top="autonomy = 'batch'\ninputs = { q = 'how?', r = '' }",
            more="group = 'g'\n",
        )
        assert stage.ckpt("run", "ci", "--autonomy", "autonomous").code == 20
        assert stage.ckpt("resume").code == 20
        said = normal(stage.ok("status"), stage)
        assert said == (
            "run      STAMP-ci\n"
            "status   failed, 0s ago\n"
            "pipeline ci, fully_autonomous\n"
            "input    q = how?\n"
            "progress 1 of 3 phases complete\n"
            "worktree TOP/.ckpt/worktrees/STAMP-ci\n"
            "\n"
            "  one       complete  0.0s\n"
            "> two       failed    0.0s  2 attempts\n"
            "      phase 'two' failed: exit code 1: no\n"
            "  the last  pending\n"
            "\n"
            "next     git ckpt resume STAMP-ci"
        )

    @pytest.mark.long
    def test_at_a_terminal_the_failure_comes_first(self, stage: Stage) -> None:
        lines = "for i in 1 2 3 4 5 6 7 8 9 10 11; do echo line $i; done"
        stage.pipeline("one: true", f"two: {lines}; exit 7", top="inputs = { q = 'how?' }")
        assert stage.ckpt("run", "ci").code == 20
        shown = {}
        for words in ([], ["-v"]):
            talk = Talk(stage, "status", *words)
            assert talk.ends() == 0
            talk.close()
            text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", talk.said)
            shown[" ".join(words)] = normal(text, stage).splitlines()
        assert shown[""][:3] == [
            "two failed after 0.0s",
            "  phase 'two' failed: exit code 7: line 11",
            "  | line 2",
        ]
        assert shown[""][11:14] == ["  | line 11", "next     git ckpt resume STAMP-ci", ""]
        assert shown[""][-2:] == ["  one  complete  0.0s", "> two  failed    0.0s"]
        assert [line for line in shown["-v"] if line not in shown[""]] == ["input    q = how?"]

    def test_used_dollars_and_tokens_are_added_up(self, stage: Stage) -> None:
        loop = {"iterations": 2, "cost_usd": 0.5, "tokens": {"input": 1000, "output": 200}}
        with stage.store() as store:
            store.record("a-progress", {"loop": loop}, start="x")
        talk = Talk(stage, "status")
        talk.reads("0.50 USD, 1,200 tokens")
        talk.close()

    @pytest.mark.long
    def test_as_json(self, stage: Stage) -> None:
        stage.pipeline("one: true", "two: exit 7")
        assert stage.ckpt("run", "ci").code == 20
        done = stage.ckpt("status", "--json")
        said = json.loads(done.out)
        run = stage.run()
        assert (done.code, done.err) == (0, "")
        assert {
            key: said[key]
            for key in (
                "run",
                "status",
                "label",
                "branch",
                "worktree",
                "lease",
                "unwritten",
                "next",
            )
        } == {
            "run": run,
            "status": "failed",
            "label": "two-failed",
            "branch": None,
            "worktree": str(stage.worktree(run)),
            "lease": None,
            "unwritten": [],
            "next": f"git ckpt resume {run}",
        }
        assert said["pipeline"] == {
            "name": "ci",
            "autonomy": "fully_autonomous",
            "deadline": None,
            "inputs": {},
            "phases": ["one", "two"],
        }
        one, two = said["phases"]
        assert [each.pop("phase") for each in (one, two)] == ["one", "two"]
        assert {
            key: two[key] for key in ("status", "attempts", "saves", "errors", "exit_code")
        } == {
            "status": "failed",
            "attempts": 1,
            "saves": 0,
            "errors": ["phase 'two' failed: exit code 7"],
            "exit_code": 7,
        }
        assert two["checkpoint"] == stage.newest(run).id == said["newest"]["id"]

    @pytest.mark.long
    def test_of_one_that_is_driven(self, stage: Stage) -> None:
        driver = waiting(stage)
        run = stage.run()
        said = normal(stage.ok("status"), stage).splitlines()
        assert said[1] == "status   running"
        driven = f"driver   git ckpt run ci on {os.uname().nodename}, process {driver.pid}, "
        assert said[said.index("") - 1].startswith(driven)
        assert said[said.index("") :] == [
            "",
            "> one  started",
            "  two  pending",
            "",
            "next     git ckpt cancel STAMP-ci",
        ]
        lease = json.loads(stage.ok("status", "--json", run))["lease"]
        assert (lease["holder"], lease["pid"], lease["token"]) == ("git ckpt run ci", driver.pid, 1)
        driver.kill()
        driver.wait()
        said = normal(stage.ok("status"), stage).splitlines()
        assert (said[1], said[-1]) == (
            "status   crashed, 0s ago",
            "next     git ckpt resume STAMP-ci",
        )

    @pytest.mark.long
    def test_by_default_the_run_whose_worktree_it_is_else_the_newest(self, stage: Stage) -> None:
        first = Path(stage.ok("start", "first"))
        stage.ok("start", "second")
        assert stage.ok("status").splitlines()[0].endswith("-second")
        assert stage.ok("status", at=first).splitlines()[0].endswith("-first")


class TestRuns:
    @pytest.fixture
    def three(self, stage: Stage) -> Stage:
        stage.pipeline("one: exit 1")
        assert stage.ckpt("run", "ci").code == 20
        stage.pipeline("one: git switch -qc side")
        assert stage.ckpt("run", "ci").code == 0
        stage.ok("start", "by hand")
        return stage

    @pytest.mark.long
    def test_piped(self, three: Stage) -> None:
        assert re.sub(r"STAMP-ci(-2)?", "STAMP-ci", normal(three.ok("runs"), three)) == (
            "STAMP-by-hand\topen\trun-started\tTIME\t-\tTOP/.ckpt/worktrees/STAMP-by-hand\n"
            "STAMP-ci\tcomplete\trun-complete\tTIME\tside\tTOP/.ckpt/worktrees/STAMP-ci\n"
            "STAMP-ci\tfailed\tone-failed\tTIME\t-\tTOP/.ckpt/worktrees/STAMP-ci"
        )

    @pytest.mark.long
    def test_on_a_terminal(self, three: Stage) -> None:
        talk = Talk(three, "runs")
        assert talk.ends() == 0
        talk.close()
        rows = [re.split(r" {2,}", normal(line, three)) for line in talk.said.splitlines()]
        assert rows[0][:5] == ["RUN", "STATUS", "PHASE", "AGE", "BRANCH"]
        assert [row[1:3] for row in rows[1:]] == [
            ["open", "run-started"],
            ["complete", "run"],
            ["failed", "one-failed"],
        ]
        assert rows[1][0] == "by-hand"
        assert rows[2][4].startswith("side")

    @pytest.mark.long
    def test_some(self, three: Stage) -> None:
        names = [line.split("\t")[1] for line in three.ok("runs", "-n", "2").splitlines()]
        assert names == ["open", "complete"]
        assert [
            line.split("\t")[1] for line in three.ok("runs", "--status", "failed").splitlines()
        ] == ["failed"]
        assert three.ckpt("runs", "--status", "blocked") == (0, "", "no run is blocked\n")

    @pytest.mark.long
    def test_as_json(self, three: Stage) -> None:
        done = three.ckpt("runs", "--json")
        said = json.loads(done.out)["runs"]
        assert (done.code, done.err) == (0, "")
        assert [list(each) for each in said] == [
            ["run", "status", "label", "started", "newest", "branch", "worktree", "lease"]
        ] * 3
        assert [each["status"] for each in said] == ["open", "complete", "failed"]
        assert [each["branch"] for each in said] == [None, "side", None]

    def test_none_as_json(self, stage: Stage) -> None:
        assert stage.ckpt("runs", "--json") == (0, '{\n  "runs": []\n}\n', "")


class TestByHand:
    @pytest.mark.long
    def test_an_end_that_could_not_be_recorded_is_recorded_by_finish(self, stage: Stage) -> None:
        run = Path(stage.ckpt("start", "work").out.strip()).name
        flag, hook = (
            stage.checkout.path / ".git/full",
            stage.checkout.path / ".git/hooks/reference-transaction",
        )
        flag.touch()
        hook.parent.mkdir(exist_ok=True)
        refuse = (
            f'[ "$1" = prepared ] && [ -e "{flag}" ] && grep -q refs/checkpoints/ && echo "no '
            'space" >&2 && exit 1'
        )
        hook.write_text(f"#!/bin/sh\n{refuse}\nexit 0\n")
        hook.chmod(0o755)
        done = stage.ckpt("finish", run)
        assert (done.code, done.out) == (1, "")
        assert "cannot record run-complete: " in done.err
        assert f"hint: solve the problem, then: git ckpt finish {run}\n" in done.err
        assert "cannot record" in stage.ckpt("status", run).err
        flag.unlink()
        assert stage.ckpt("finish", run).code == 0
        status = stage.ckpt("status", run)
        assert ("status   complete" in status.out, status.err) == (True, "")
        assert not list((stage.checkout.path / ".git/ckpt").glob("unwritten-*"))

    def test_start_and_finish(self, stage: Stage) -> None:
        before = stage.checkout.fingerprint()
        code, out, err = told(stage.ckpt("start", "add login"), stage)
        assert (code, out, err) == (
            0,
            "TOP/.ckpt/worktrees/STAMP-add-login\n",
            "run STAMP-add-login has begun\n",
        )
        run = stage.run()
        worktree = stage.worktree(run)
        (worktree / "work").write_text("x\n")
        stage.ok("save", "-m", "half", at=worktree)
        assert stage.status(run) == "open"
        (worktree / "work").write_text("whole\n")
        done = stage.ckpt("finish", at=worktree)
        assert told(done, stage) == (
            0,
            "ID\n",
            "run STAMP-add-login is complete; its worktree: TOP/.ckpt/worktrees/STAMP-add-login\n",
        )
        newest = stage.newest(run)
        assert (newest.id, newest.label) == (done.out.strip(), "run-complete")
        assert newest.worktree is not None
        assert stage.checkout.git("show", f"{newest.worktree.tree}:files/work") == "whole"
        assert stage.labels(run) == ["run-started", "manual-complete", "run-complete"]
        again = stage.ckpt("finish", run)
        assert (again.code, again.err.splitlines()[0]) == (2, f"error: run {run} is complete")
        after = stage.checkout.fingerprint()
        assert [after[key] for key in ("head", "index", "config")] == [
            before[key] for key in ("head", "index", "config")
        ]

    def test_start_without_a_name_and_elsewhere(self, stage: Stage) -> None:
        first = stage.checkout.git("rev-parse", "HEAD")
        stage.checkout.commit("second", more="x")
        worktree = Checkout(Path(stage.ok("start", "--base", "HEAD~1")))
        assert re.fullmatch(r"\d{8}-\d{6}-work", worktree.path.name)
        assert worktree.git("rev-parse", "HEAD") == first

    def test_a_commit_extends_the_run(self, stage: Stage) -> None:
        stage.ok("init")
        worktree = Checkout(Path(stage.ok("start", "login")), stage.checkout.path)
        run = worktree.path.name
        sha = worktree.commit("mine", more="x")
        newest = stage.newest(run)
        assert (newest.git_sha, newest.trigger) == (sha, "post-commit")


class TestResume:
    def test_the_path_alone(self, stage: Stage) -> None:
        stage.pipeline("one: exit 1")
        assert stage.ckpt("run", "ci").code == 20
        run = stage.run()
        done = stage.ckpt("resume", run, "--no-run")
        assert (done.code, done.out) == (0, f"{stage.worktree(run)}\n")
        assert stage.events(run)["one"].attempts == 1

    @pytest.mark.long
    def test_what_is_done_is_told(self, stage: Stage) -> None:
        stage.pipeline("one: true", "two: [ -e ok ]")
        assert stage.ckpt("run", "ci").code == 20
        (stage.worktree(stage.run()) / "ok").touch()
        assert told(stage.ckpt("resume"), stage) == (
            0,
            "STAMP-ci\n",
            (
                "resuming STAMP-ci at two: [ -e ok ]\n[2/2] two (attempt 2)\n"
                "      two: complete after 0.0s\n"
                "run STAMP-ci is complete; to bring its work here: git ckpt diff --binary SHORT "
                "STAMP-ci | git apply\nthe run's worktree: TOP/.ckpt/worktrees/STAMP-ci\n"
            ),
        )

    @pytest.mark.long
    def test_from_a_phase_that_is_blocked(self, stage: Stage) -> None:
        stage.pipeline('one: echo one >> "$CALLS"', '2nd: echo 2 >> "$CALLS"; [ -e ok ] || exit 4')
        assert stage.ckpt("run", "ci").code == 4
        run = stage.run()
        refused = stage.ckpt("resume")
        assert (refused.code, refused.err.splitlines()[1]) == (
            4,
            f"error: phase '2nd' of run {run} is blocked",
        )
        assert stage.ckpt("resume", run, "--from", "2nd").code == 4
        (stage.worktree(run) / "ok").touch()
        assert stage.ckpt("resume", run, "--from", "2nd").code == 0
        assert stage.calls == ["one", "2", "2", "2"]

    @pytest.mark.long
    def test_a_fork_leaves_the_run_as_it_is(self, stage: Stage) -> None:
        stage.pipeline(
            'one: echo 1 >> "$CALLS"; echo work > work', 'two: echo 2 >> "$CALLS"; [ -e ok ]'
        )
        assert stage.ckpt("run", "ci").code == 20
        old = stage.run()
        before = stage.newest(old)
        done = stage.ckpt("resume", old, "--fork")
        new, other = stage.runs()
        assert (done.code, done.out, other) == (20, f"{new}\n", old)
        assert (
            done.err.splitlines()[0] == f"new run {new} continues from checkpoint {before.id[:8]}"
        )
        assert stage.newest(old) == before
        assert stage.checkpoint(new, "run-started").forked_from == before.id
        assert stage.calls == ["1", "2", "2"]
        assert (stage.worktree(new) / "work").read_text() == "work\n"

    @pytest.mark.long
    def test_an_older_checkpoint_needs_a_word(self, stage: Stage) -> None:
        stage.pipeline('one: echo "$CKPT_ATTEMPT" > work', "two: echo two > work; exit 1")
        assert stage.ckpt("run", "ci").code == 20
        run = stage.run()
        older = stage.checkpoint(run, "one-complete").id
        short = older[:8]
        code, out, err = stage.ckpt("resume", older)
        assert (code, out) == (2, "")
        other = "or --fork starts a new run; or --no-run only opens the files"
        hint = f"to return the run to it: git ckpt resume {short} --rewind; {other}"
        assert err == f"error: checkpoint {short} is not the newest of run {run}\nhint: {hint}\n"
        both = stage.ckpt("resume", older, "--fork", "--rewind")
        assert (both.code, both.err.splitlines()[0]) == (
            2,
            "error: --fork and --rewind exclude each other",
        )
        looked = stage.ckpt("resume", older, "--no-run")
        assert (Path(looked.out.strip()) / "work").read_text() == "1\n"
        stage.pipeline('one: echo "$CKPT_ATTEMPT" > work', "two: cat work > seen")
        assert stage.ckpt("resume", older, "--rewind", "--accept-changes").code == 0
        assert (stage.worktree(run) / "seen").read_text() == "1\n"
        assert stage.labels(run)[5:] == [
            "rewind-started",
            "rewind-complete",
            "two-started",
            "two-complete",
            "run-complete",
        ]
        saved = stage.checkpoint(run, "rewind-started")
        assert saved.worktree is not None
        assert stage.checkout.git("show", f"{saved.worktree.tree}:files/work") == "two"

    @pytest.mark.long
    @pytest.mark.parametrize("trigger", ["phase", "manual"])
    def test_going_back_that_was_cut_off_is_said_with_both_ways_out(
        self, stage: Stage, trigger: str
    ) -> None:
        worktree = Path(stage.ok("start", "work"))
        run = worktree.name
        (worktree / "work").write_text("x\n")
        target = stage.ok("save", at=worktree)
        with Store.open(worktree) as store:
            before = store.save(
                "rewind-started",
                {},
                run=run,
                trigger=trigger,
                message=f"before going back to {target}",
            )
        done, status = stage.ckpt("resume", run), stage.ckpt("status", run)
        assert done.out == f"{worktree}\n"
        said = (
            f"warning: a rewind to {target[:8]} was interrupted; to finish: git ckpt resume "
            f"{target} --rewind; to cancel: git ckpt resume {before.id} --rewind\n"
        )
        assert (said in done.err) == (trigger == "phase")
        assert (f"next     git ckpt resume {target} --rewind" in status.out) == (trigger == "phase")
        assert stage.ckpt("resume", target, "--rewind").code == 0
        assert "was interrupted" not in stage.ckpt("resume", run).err

    @pytest.mark.long
    def test_a_pipeline_goes_on_from_before_it_and_says_so(self, stage: Stage) -> None:
        run, target = with_a_rewind_cut_off(
            stage, "one: echo one > work", "two: echo two > work; [ -e ../../../on ]"
        )
        (stage.worktree(run) / "work").write_text("half-way\n")
        said = (
            f"warning: an interrupted rewind to {target[:8]} was undone; "
            f"to repeat the rewind: git ckpt resume {target} --rewind\n"
        )
        done = stage.ckpt("resume", run)
        assert (done.code, said in done.err) == (20, True)
        stage.checkout.write("on", "")
        back = stage.ckpt("resume", target, "--rewind")
        assert (back.code, "was interrupted" in back.err) == (0, False)

    @pytest.mark.long
    @pytest.mark.parametrize("name", ["index.lock", "HEAD.lock"])
    def test_a_lock_that_a_kill_left_is_in_the_way_of_neither_way_out(
        self, stage: Stage, name: str
    ) -> None:
        one, two = (
            "one: echo one > work; git add work; git commit -qm one",
            "two: echo two > work; git commit -qam two; exit 1",
        )
        run, target = with_a_rewind_cut_off(stage, one, two)
        lock = stage.checkout.path / ".git/worktrees" / run / name
        lock.touch()
        assert stage.ckpt("resume", run).code == 20
        assert not lock.exists()
        lock.touch()
        stage.ok("resume", target, "--rewind", "--no-run")
        assert (stage.worktree(run) / "work").read_text() == "one\n"

    @pytest.mark.long
    def test_what_is_not_as_it_was_is_told(self, stage: Stage) -> None:
        for name in ("clean", "smudge"):
            stage.checkout.git("config", f"filter.own.{name}", "cat")
        stage.checkout.git("config", "filter.own.required", "true")
        stage.checkout.commit("attributes", **{".gitattributes": "*.txt text=auto filter=own\n"})
        stage.pipeline("one: printf 'one\\r\\n' > work.txt", "two: rm work.txt; exit 1")
        assert stage.ckpt("run", "ci").code == 20
        run = stage.run()
        target = stage.checkpoint(run, "one-complete").id
        done = stage.ckpt("resume", target, "--rewind", "--no-run")
        assert (done.code, (stage.worktree(run) / "work.txt").read_bytes()) == (0, b"one\n")
        assert (
            "warning: not restored byte for byte, as git converts these files: work.txt\n"
            in done.err
        )

    @pytest.mark.long
    def test_somebody_who_is_at_the_index_is_noticed_before_anything_is_changed(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.pipeline(
            "one: echo one > work; git add work; git commit -qm one",
            "two: echo two > work; git commit -qam two; exit 1",
        )
        assert stage.ckpt("run", "ci").code == 20
        run = stage.run()
        target = stage.checkpoint(run, "one-complete").id
        there = Checkout(stage.worktree(run))
        kept = ("head", "index", "files")
        before, recorded = [there.fingerprint()[what] for what in kept], stage.labels(run)
        (stage.checkout.path / ".git/worktrees" / run / "index.lock").touch()
        # Treat the lock as that of an open editor, not as a stale one.
        plant(monkeypatch, planted.REMOVE_LOCKS, lambda *_: None)
        with (
            Store.open(there.path) as store,
            Run.resume(store, run, adapter="plumbing", again=True) as opened,
        ):
            with pytest.raises(LockHeld):
                opened.rewind(target)
            opened.pause()
        (stage.checkout.path / ".git/worktrees" / run / "index.lock").unlink()
        assert [there.fingerprint()[what] for what in kept] == before
        assert stage.labels(run) == recorded

    @pytest.mark.long
    def test_going_back_that_is_over_or_at_work_is_not_called_cut_off(self, stage: Stage) -> None:
        worktree = Path(stage.ok("start", "work"))
        (worktree / "work").write_text("x\n")
        target = stage.ok("save", at=worktree)
        stage.ok("resume", target, "--rewind")
        with Store.open(worktree) as store:
            before = store.list(Query(run=worktree.name, label="rewind-started"))[0].id
        stage.ok("resume", before, "--no-run")
        assert "was interrupted" not in stage.ckpt("resume", before, "--no-run").err
        with (
            Store.open(worktree) as store,
            Run.resume(store, worktree.name, adapter="plumbing") as run,
        ):
            store.save(
                "rewind-started",
                {},
                run=run.id,
                trigger="phase",
                message=f"before going back to {target}",
            )
            assert "was interrupted" not in stage.ckpt("resume", run.id).err
            run.pause()
        assert "was interrupted" in stage.ckpt("resume", worktree.name).err

    @pytest.mark.long
    def test_a_pipeline_that_is_gone(self, stage: Stage) -> None:
        stage.pipeline("one: exit 1")
        assert stage.ckpt("run", "ci").code == 20
        file, run = stage.checkout.path / "gitckpt.toml", stage.run()
        file.unlink()
        error = f"error: the pipeline 'ci' of run {run} is not in {file}\n"
        ways = (
            f"git ckpt resume {run}",
            f"git ckpt finish --force {run}",
            f"git ckpt remove {run}",
        )
        hint = (
            f"hint: restore the pipeline, then: {ways[0]}; or end the run: {ways[1]}; or "
            f"remove it: {ways[2]}\n"
        )
        assert stage.ckpt("resume") == stage.ckpt("resume", run) == (12, "", error + hint)
        assert stage.ckpt("finish", run).code == 2
        assert stage.ckpt("finish", "--force", run).code == 0
        assert stage.status(run) == "complete"
        assert stage.ok("remove", run) == run

    @pytest.mark.long
    def test_a_worktree_that_cannot_be_made(self, stage: Stage, tmp_path: Path) -> None:
        """`resume --into` an existing directory exits with 14 and leaves it unchanged."""
        stage.pipeline("one: exit 1")
        assert stage.ckpt("run", "ci").code == 20
        taken = tmp_path / "taken"
        taken.mkdir()
        (taken / "mine").write_text("x\n")
        run = stage.run()
        stage.checkout.git("worktree", "remove", "--force", "--force", str(stage.worktree(run)))
        done = stage.ckpt("resume", run, "--into", str(taken))
        assert (done.code, done.out) == (14, "")
        assert os.listdir(taken) == ["mine"]
        assert stage.status(run) == "failed"
        assert stage.ckpt("resume", run, "--into", str(tmp_path / "free")).code == 20
        assert (tmp_path / "free/README").read_text() == "hello\n"

    @pytest.mark.long
    def test_it_goes_on_where_its_worktree_was_moved_to(self, stage: Stage, tmp_path: Path) -> None:
        """The phases `two` and `three` use the moved worktree, not a new one."""
        flags = tmp_path / "flags"
        flags.mkdir()
        stage.pipeline(
            f"one: test -e {flags}/one", "two: echo 2 >two", f"three: ls; test -e {flags}/three"
        )
        assert stage.ckpt("run", "ci").code == 20
        run, moved = stage.run(), tmp_path / "moved"
        stage.checkout.git("worktree", "move", "-f", "-f", str(stage.worktree(run)), str(moved))
        (flags / "one").touch()
        assert stage.ckpt("resume", run).code == 20
        assert (moved / "two").exists()
        (flags / "three").touch()
        assert stage.ckpt("resume", run).code == 0
        assert not stage.worktree(run).exists()
        assert (
            "two"
            in stage.checkout.git(
                "ls-tree", "--name-only", f"refs/ckpt/trees/{stage.newest(run).id}:files"
            ).split()
        )

    @pytest.mark.long
    def test_skipped_phases_stay_skipped(self, stage: Stage) -> None:
        stage.pipeline(
            "two: [ -e ok ]",
            'one: echo one >> "$CALLS"',
            top="inputs = { notes = '' }",
            more="skip_with = ['notes']\n",
        )
        assert stage.ckpt("run", "ci", "-i", "notes=x").code == 20
        (stage.worktree(stage.run()) / "ok").touch()
        done = stage.ckpt("resume")
        assert (done.code, stage.calls) == (0, [])
        assert "      one: skipped\n" in done.err


@pytest.mark.long
def test_what_a_program_recorded_is_shown_like_what_a_run_did(stage: Stage) -> None:
    shown = {}
    for trigger in ("manual", "phase", "import:forge"):
        with Store.open(stage.checkout.path) as store:
            run = str(store.record("research-started", {}, start="lib", trigger=trigger).run)
            store.record("research-complete", {}, run=run, trigger=trigger)
            store.record("plan-started", {}, run=run, trigger=trigger)
            store.record("plan-failed", {}, run=run, trigger=trigger, errors=["no spec.md"])
            store.record("commit-complete", {}, run=run, trigger="post-commit")
        phases = json.loads(stage.ok("status", run, "--json"))["phases"]
        shown[trigger] = [
            (each["phase"], each["status"], each["attempts"], each["errors"]) for each in phases
        ]
        assert "no spec.md" in stage.ok("status", run)
    assert shown == {
        key: [("research", "complete", 1, []), ("plan", "failed", 1, ["no spec.md"])]
        for key in shown
    }


class TestWhereGitKnowsNoPlaceForAnotherWorktree:
    """These linked worktrees have no main worktree, or one that git does not know."""

    @pytest.mark.long
    def test_a_run_is_opened_and_ended_in_its_own(self, stage: Stage, tmp_path: Path) -> None:
        stage.checkout.git("init", "--quiet", f"--separate-git-dir={tmp_path / 'elsewhere'}")
        there = Path(stage.ok("start", "login"))
        assert stage.ok("resume", "--no-run", stage.run(), at=there) == str(there)
        refused = stage.ckpt("start", "another", at=there)
        assert refused.code == 14
        assert refused.err.splitlines()[0] == (
            f"error: no directory for worktrees: {tmp_path / 'elsewhere'} does not name "
            "its main worktree"
        )
        stage.ok("finish", at=there)
        assert stage.status(stage.run()) == "complete"

    def test_a_run_of_a_bare_one_goes_on_where_it_was_made(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        bare, there = tmp_path / "bare", tmp_path / "there"
        stage.checkout.git("clone", "--quiet", "--bare", ".", str(bare))
        with Store.open(bare) as store:
            run = str(store.record("work-started", {}, start="login", base="HEAD").run)
        assert stage.ok("resume", run, "--into", str(there), at=bare) == str(there)
        assert stage.ok("resume", run, at=bare) == str(there)
        stage.ok("finish", at=there)
