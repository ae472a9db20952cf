"""`git ckpt step` prints, refuses and records reports, with exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Query, Run, Store
from tests import forked
from tests.cli.conftest import Ckpt, Outcome, Spawn, normal, store_text, without_names
from tests.cli.test_terminal import on_terminal
from tests.conftest import Checkout
from tests.stores import document_of

Step = Callable[..., Outcome]
PLAN = "- [x] Task 1.1: Schema\n- [ ] Task 1.2: Log in\n- [ ] Task 2.1: Deploy\n"


@pytest.fixture
def step(ckpt: Ckpt, checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Step:
    """Return a function that calls `git ckpt step … --track t` in both worktrees.

    Words replace times and ids in the output.
    """
    monkeypatch.delenv("CKPT_RUN", raising=False)

    def call(*words: str, code: int = 0) -> Outcome:
        done = ckpt("step", *words, "--track", "t", at=checkout)
        assert done.code == code, done
        return Outcome(
            done.code,
            *(
                re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", normal(text, checkout))
                for text in done[1:]
            ),
        )

    return call


def to(step: Step, *names: str) -> None:
    for name in names:
        step("pass", name)


class TestReports:
    @pytest.mark.long
    def test_the_way_through(self, step: Step) -> None:
        assert step("start", "PLAN", "--agent", "me") == (
            0,
            "ID\n",
            "run STAMP-t has begun\nPLAN is IN_PROGRESS\n",
        )
        assert step(
            "progress", "PLAN", "--task", "Designing", "--current-phase", "2", "--total-phases", "5"
        ) == (0, "ID\n", "PLAN is IN_PROGRESS\n")
        assert step("pass", "PLAN", "-m", "five tasks") == (
            0,
            "ID\n",
            "PLAN is PASSED; next: git ckpt step --track t start EVALUATE_PLAN\n",
        )
        assert (
            step("pass", "EVAL_PLAN", "--verdict", "pass").err
            == "EVALUATE_PLAN is PASSED; next: git ckpt step --track t start EXECUTE\n"
        )
        step("start", "EXECUTE", "--tasks-total", "2")
        step(
            "progress",
            "EXECUTE",
            "--task",
            "1.1",
            "--task-status",
            "passed",
            "--worker",
            "w1",
            "--commit",
            "HEAD",
        )
        assert step("pass", "EXECUTE").err == (
            "warning: EXECUTE passed with 1 of 2 tasks\n"
            "EXECUTE is PASSED; next: git ckpt step --track t start EVALUATE_EXECUTION\n"
        )
        assert (
            step("fail", "EVALUATE_EXECUTION", "--notes", "red").err
            == "EVALUATE_EXECUTION is FAILED; next: git ckpt step --track t start FIX\n"
        )
        step("pass", "FIX")
        assert (
            step("pass", "EVALUATE_EXECUTION").err
            == "EVALUATE_EXECUTION is PASSED; all steps are complete\n"
        )
        assert step("next") == (0, "COMPLETE\n", "")
        facts = [
            "run        STAMP-t",
            "steps      superpowers",
            "at         COMPLETE",
            "fix cycles 1 of 3",
            "iterations 6 of 50",
            "",
        ]
        assert step("show").out.splitlines()[:6] == facts

    def test_each_report_is_one_checkpoint(self, step: Step, checkout: Checkout) -> None:
        step("start", "PLAN", "--agent", "me")
        step(
            "progress",
            "PLAN",
            "--tasks-completed",
            "5",
            "--tasks-total",
            "35",
            "--task",
            "Designing",
        )
        step("skip", "PLAN")
        step("block", "EVALUATE_PLAN", "--notes", "no\nkey")
        with Store.open(checkout.path, adapter="plumbing") as store:
            found = [store.read(entry.id) for entry in reversed(store.list(Query()))]
        assert [
            (each.sequence, each.label, each.trigger, each.agent, each.message, each.worktree)
            for each in found
        ] == [
            (1, "PLAN-started", "step", "me", None, None),
            (2, "PLAN-progress", "step", None, None, None),
            (3, "PLAN-skipped", "step", None, None, None),
            (4, "EVALUATE_PLAN-blocked", "step", None, "no key", None),
        ]
        progress = found[1].progress
        assert progress is not None
        assert (progress.current_task, progress.tasks_completed, progress.tasks_total) == (
            "Designing",
            5,
            35,
        )
        assert {each.git_sha for each in found} == {checkout.git("rev-parse", "HEAD")}

    def test_files_and_outputs(self, step: Step, checkout: Checkout, ckpt: Ckpt) -> None:
        checkout.write("docs/plan.md", PLAN)
        checkout.write("key.pem", "secret")
        done = step(
            "pass",
            "PLAN",
            "--files",
            "--output",
            "docs/plan.md",
            "--output",
            str(checkout.path / "x"),
            "--output",
            "/elsewhere",
        )
        assert done.err == (
            "run STAMP-t has begun\n"
            "warning: not captured: key.pem: its name looks like a secret (*.pem)\n"
            "PLAN is PASSED; next: git ckpt step --track t start EVALUATE_PLAN\n"
        )
        found = json.loads(step("show", "--json", "--history").out)
        assert found["steps"][1]["record"]["output_files"] == ["docs/plan.md", "x", "/elsewhere"]
        assert found["history"][0]["has_files"] is True
        (checkout.path / "docs/plan.md").unlink()
        assert ckpt("restore", "latest", at=checkout).code == 0
        assert (checkout.path / "docs/plan.md").read_text() == PLAN

    def test_files_for_which_the_time_did_not_suffice(self, step: Step, checkout: Checkout) -> None:
        checkout.write("README", "changed\n")
        checkout.git("config", "ckpt.snapshotTimeout", "0s")
        assert without_names(step("start", "PLAN", "--files").err).splitlines()[1] == (
            "warning: no files were captured: capturing the files took more than 0 seconds; "
            "record them now: git ckpt save; to allow more time: git config "
            "ckpt.snapshotTimeout 5m"
        )

    def test_set(self, step: Step) -> None:
        step(
            "start",
            "FIX",
            "--force",
            "--set",
            "issues_total=3",
            "--set",
            'current_issue="a=b"',
            "--set",
            'checks={"x": [null, true]}',
        )
        record = json.loads(step("show", "--json").out)["steps"][5]["record"]
        assert (record["issues_total"], record["current_issue"], record["checks"]) == (
            3,
            "a=b",
            {"x": [None, True]},
        )

    def test_as_json(self, step: Step) -> None:
        done = step("block", "PLAN", "--notes", "a key", "--json")
        assert json.loads(done.out) == {
            "checkpoint": "ID",
            "run": "STAMP-t",
            "step": "PLAN",
            "status": "BLOCKED",
            "next": {"step": "PLAN", "status": "BLOCKED", "blockers": ["a key"]},
        }
        assert done.err == (
            "run STAMP-t has begun\n"
            "warning: the run is blocked at PLAN: a key; resolve the blocker, then: git ckpt "
            "step --track t reset PLAN\n"
        )

    def test_s07_each_report_is_tied_to_the_commit_and_can_be_gone_back_to(
        self, step: Step, checkout: Checkout, ckpt: Ckpt
    ) -> None:
        checkout.write("README", "before\n")
        step("start", "EXECUTE", "--force", "--files")
        checkout.commit("the work", README="after\n")
        step("fail", "EXECUTE", "--notes", "it was wrong")
        shas = [
            event["git_sha"]
            for event in json.loads(
                ckpt("step", "show", "--history", "--json", "--track", "t").out
            )["history"]
        ]
        assert shas == checkout.git("rev-list", "--reverse", "HEAD").splitlines()[-2:]
        first = json.loads(ckpt("list", "--json", "--phase", "EXECUTE-started").out)["checkpoints"][
            0
        ]["id"]
        assert ckpt("restore", first).code == 0
        assert (checkout.path / "README").read_text() == "before\n"


class TestNext:
    def test_where_to_go_on(self, step: Step, checkout: Checkout) -> None:
        checkout.write("plan.md", PLAN)
        to(step, "PLAN", "EVALUATE_PLAN")
        assert step("next") == (
            0,
            "EXECUTE\t1.2\n",
            "EXECUTE is NOT_STARTED, at Task 1.2: Log in\n",
        )
        step("start", "EXECUTE")
        step("progress", "EXECUTE", "--task", "Task 1.2", "--task-status", "PASSED")
        disagrees = "last_task is 1.2, which is open in plan.md; the run continues with 1.2"
        assert (
            step("next").err
            == f"warning: {disagrees}\nEXECUTE is IN_PROGRESS, at Task 1.2: Log in\n"
        )
        assert json.loads(step("next", "--json").out) == {
            "run": "STAMP-t",
            "step": "EXECUTE",
            "status": "IN_PROGRESS",
            "task": "1.2",
            "title": "Task 1.2: Log in",
            "plan": "plan.md",
            "remarks": [disagrees],
        }
        assert step("next", "--resume-from", "Task 2.1").out == "EXECUTE\t2.1\n"
        assert (
            step("next", "--plan", "none.md", code=12).err
            == "error: there is no file none.md\nhint: name the plan: --plan FILE\n"
        )
        (checkout.path / "other.md").write_text("- [ ] Task 7: x\n")
        assert step("next", "--plan", "other.md").out == "EXECUTE\t7\n"

    def test_of_a_blocked_run(self, step: Step) -> None:
        step("block", "PLAN", "--notes", "a key")
        said = (
            4,
            "",
            (
                "error: the run is blocked at PLAN: a key\n"
                "hint: resolve the blocker, then: git ckpt step --track t reset PLAN\n"
            ),
        )
        assert step("next", code=4) == said
        assert step("next", "--json", code=4) == said
        assert step("start", "PLAN", code=4) == said
        assert (
            step("reset", "PLAN", "--notes", "it is here").err
            == "PLAN is NOT_STARTED; next: git ckpt step --track t start PLAN\n"
        )
        assert step("next").out == "PLAN\n"


class TestShow:
    def test_all_steps(self, step: Step) -> None:
        to(step, "PLAN", "EVALUATE_PLAN")
        step("start", "EXECUTE", "--agent", "me", "--tasks-total", "5", "--task", "1.1")
        step("block", "EXECUTE", "--notes", "a key")
        assert step("show") == (
            0,
            (
                "run        STAMP-t\n"
                "steps      superpowers\n"
                "at         EXECUTE (BLOCKED)\n"
                "fix cycles 0 of 3\n"
                "iterations 3 of 50\n"
                "blocker    EXECUTE: a key\n"
                "\n"
                "   STEP                STATUS       AGENT                      "
                "PROGRESS        UPDATED               NOTES\n"
                "   PLAN                PASSED       superpowers:writing-plans  "
                "                TIME\n"
                "   EVALUATE_PLAN       PASSED       loop-plan-evaluator        "
                "                TIME\n"
                ">  EXECUTE             BLOCKED      me                         "
                "tasks 0/5, 1.1  TIME  a key\n"
                "   EVALUATE_EXECUTION  NOT_STARTED\n"
                "   FIX                 NOT_STARTED\n"
            ),
            "",
        )

    @pytest.mark.long
    def test_s06_the_history_is_never_overwritten(self, step: Step) -> None:
        to(step, "PLAN", "EVALUATE_PLAN", "EXECUTE")
        for cycle in ("one", "two"):
            step("fail", "EVALUATE_EXECUTION", "--notes", f"cycle {cycle}\nred")
            step("pass", "FIX", "--agent", "me", "--notes", f"mended {cycle}")
        step("reset", "PLAN")
        assert step("show", "--history") == (
            0,
            (
                "1\tTIME\tPLAN\tcomplete\tID\tOID\t-\t-\t-\n"
                "2\tTIME\tEVALUATE_PLAN\tcomplete\tID\tOID\t-\t-\t-\n"
                "3\tTIME\tEXECUTE\tcomplete\tID\tOID\t-\t-\t-\n"
                "4\tTIME\tEVALUATE_EXECUTION\tfailed\tID\tOID\t-\t-\tcycle one\\nred\n"
                "5\tTIME\tFIX\tcomplete\tID\tOID\tme\t-\tmended one\n"
                "6\tTIME\tEVALUATE_EXECUTION\tfailed\tID\tOID\t-\t-\tcycle two\\nred\n"
                "7\tTIME\tFIX\tcomplete\tID\tOID\tme\t-\tmended two\n"
                "8\tTIME\tPLAN\tprogress\tID\tOID\t-\t-\treset\n"
            ),
            "",
        )
        events = json.loads(step("show", "--history", "--json").out)["history"]
        assert events[3] == {
            "checkpoint": "ID",
            "sequence": 4,
            "timestamp": "TIME",
            "step": "EVALUATE_EXECUTION",
            "status": "failed",
            "agent": None,
            "message": "cycle one red",
            "git_sha": "OID",
            "has_files": False,
            "errors": ["cycle one\nred"],
            "progress": {
                "current_phase": None,
                "total_phases": None,
                "current_task": None,
                "tasks_completed": None,
                "tasks_total": None,
            },
        }

    def test_as_json(self, step: Step) -> None:
        step("block", "PLAN", "--notes", "a key")
        found = json.loads(step("show", "--json").out)
        steps = found.pop("steps")
        assert found == {
            "run": "STAMP-t",
            "graph": "superpowers",
            "step": "PLAN",
            "status": "BLOCKED",
            "fix_cycle_count": 0,
            "max_fix_cycles": 3,
            "iterations": 1,
            "max_iterations": 50,
            "blockers": [
                {
                    "id": "B1",
                    "description": "a key",
                    "blocked_at": "TIME",
                    "blocked_step": "PLAN",
                    "status": "ACTIVE",
                }
            ],
        }
        assert [(each["step"], each["status"]) for each in steps] == [
            ("BRAINSTORM", "NOT_STARTED"),
            ("PLAN", "BLOCKED"),
            ("EVALUATE_PLAN", "NOT_STARTED"),
            ("EXECUTE", "NOT_STARTED"),
            ("EVALUATE_EXECUTION", "NOT_STARTED"),
            ("FIX", "NOT_STARTED"),
            ("BUSINESS_SYNC", "NOT_STARTED"),
        ]
        assert steps[0]["record"] == {}

    def test_on_a_terminal_the_history_is_a_table(self, main_checkout: Checkout) -> None:
        for action in ("start", "pass"):
            on_terminal("step", action, "PLAN", "--track", "t", "-m", "x" * 200, at=main_checkout)
        code, said = on_terminal(
            "step", "show", "--history", "--track", "t", at=main_checkout, env={"NO_COLOR": "1"}
        )
        lines = said.splitlines()
        assert (code, lines[0].split(), len(lines)) == (
            0,
            ["#", "TIME", "STEP", "STATUS", "COMMIT", "NOTES"],
            3,
        )
        assert all(len(line) <= 80 for line in lines)


HOSTILE = "\x1b]0;owned\x07\x1b[2Jevil\u202e"


@pytest.mark.long
def test_hostile_text_of_a_run_that_was_fetched_is_harmless(main_checkout: Checkout) -> None:
    theirs: dict[str, Any] = {
        "track_id": HOSTILE,
        "loop_state": {
            "current_step": HOSTILE,
            "step_status": HOSTILE,
            "fix_cycle_count": HOSTILE,
            "checkpoints": {
                HOSTILE: {
                    "status": HOSTILE,
                    "agent": HOSTILE,
                    "notes": HOSTILE,
                    "progress": {"current_task": HOSTILE},
                }
            },
        },
        "blockers": [{"description": HOSTILE, "blocked_step": HOSTILE, "status": "ACTIVE"}],
    }
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        run = str(store.record("x-complete", theirs, start="r").run)
        made = store.record(
            "x-failed", None, run=run, trigger="step", agent=HOSTILE, errors=[HOSTILE]
        )
        forged = store_text(
            main_checkout,
            f"refs/checkpoints/{made.id}",
            document_of(replace(made, label=f"{HOSTILE}-failed", state=theirs)),
        )
        main_checkout.git(
            "update-ref", f"refs/ckpt/runs/{run}", main_checkout.git("rev-parse", forged)
        )
        theirs["loop_state"] |= {"current_step": "PLAN", "step_status": "BLOCKED"}
        blocked = str(store.record("x-complete", theirs, start="blocked").run)
        theirs["loop_state"] |= {"graph": HOSTILE}
        other = str(store.record("x-complete", theirs, start="other").run)
    for each in (main_checkout.path / ".git/ckpt/chains").iterdir():
        each.unlink()  # nothing of it was written here
    for code, *words in (
        (0, "show", "--run", run),
        (0, "show", "--history", "--run", run),
        (0, "show", "--history", "--json", "--run", run),
        (0, "next", "--run", run),
        (0, "next", "--json", "--run", run),
        (2, "start", "PLAN", "--run", run),
        (4, "next", "--run", blocked),
        (0, "block", "PLAN", "-m", HOSTILE, "--run", blocked),
        (12, "show", "--run", other),
    ):
        done = apart("step", *words, at=main_checkout)
        assert (done.code, "evil" in done.out + done.err) == (code, True), done
        assert all(line.isprintable() for line in re.split("[\n\t]", done.out + done.err)), done


class TestAdvice:
    """Advised commands work in the place that they are printed, and name the run."""

    @pytest.mark.long
    @pytest.mark.parametrize("by", ["track", "run"])
    def test_a_command_names_the_run(
        self, step: Step, ckpt: Ckpt, checkout: Checkout, by: str
    ) -> None:
        def call(words: list[str]) -> Outcome:
            return ckpt("step", *words, at=checkout)

        step("start", "PLAN")
        name = (
            ["--track", "t"]
            if by == "track"
            else ["--run", ckpt("runs", at=checkout).out.split("\t")[0]]
        )
        advised = call(["pass", "PLAN", *name]).err.partition("next: git ckpt step ")[2].split()
        assert advised[:2] == name
        assert call(advised).err == "EVALUATE_PLAN is IN_PROGRESS\n"
        ahead = (
            call(["start", "EXECUTE", *name])
            .err.partition("to go back or ahead: git ckpt step ")[2]
            .partition(",")[0]
            .split()
        )
        assert call(ahead).code == 0
        call(["block", "EXECUTE", "-m", "a key", *name])
        advised = call(["next", *name]).err.partition("then: git ckpt step ")[2].split()
        assert call(advised).code == 0


class TestRefused:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (
                ["fly", "PLAN"],
                (
                    "there is no action 'fly'\n"
                    "hint: use one of start, progress, pass, fail, block, skip, reset, show, next"
                ),
            ),
            (
                ["start"],
                (
                    "STEP is missing\n"
                    "hint: name the step: git ckpt step start EXECUTE; or see: git ckpt step next"
                ),
            ),
            (["next", "PLAN"], "next takes no step\nhint: run: git ckpt step next"),
            (["show", "--notes", "x"], "show takes no --notes\nhint: see: git ckpt step --help"),
            (["next", "--history"], "next takes no --history\nhint: see: git ckpt step --help"),
            (
                ["start", "PLAN", "--plan", "x"],
                "start takes no --plan\nhint: see: git ckpt step --help",
            ),
            (
                ["fail", "PLAN"],
                'PLAN cannot fail without notes\nhint: say what went wrong: --notes "…"',
            ),
            (
                ["block", "PLAN"],
                'PLAN cannot block without notes\nhint: say what must be resolved: --notes "…"',
            ),
            (
                ["start", "PLANS"],
                "superpowers has no step 'PLANS'\nhint: did you mean PLAN? The steps: " + "STEPS",
            ),
            (
                ["start", "EXECUTE"],
                (
                    "the run is at PLAN (NOT_STARTED), not at EXECUTE\n"
                    "hint: next is: git ckpt step --track t start PLAN; "
                    "to go back or ahead: git ckpt step --track t reset EXECUTE, or --force"
                ),
            ),
            (
                ["start", "PLAN", "--set", "x"],
                (
                    "'x' is not KEY=JSON: there is no key and no =\n"
                    "hint: write --set fixed=3, or a text: --set 'goal=\"login\"'"
                ),
            ),
            (
                ["start", "PLAN", "--tasks-total", "-1"],
                (
                    "--tasks-total must be a whole number of 0 or more, not '-1'\n"
                    "hint: write a whole number, such as 20"
                ),
            ),
        ],
    )
    def test_calls_that_are_wrong_exit_with_2_and_leave_nothing(
        self, step: Step, checkout: Checkout, words: list[str], said: str
    ) -> None:
        before = checkout.fingerprint()
        steps = "BRAINSTORM, PLAN, EVALUATE_PLAN, EXECUTE, EVALUATE_EXECUTION, FIX, BUSINESS_SYNC"
        assert step(*words, code=2) == (
            2,
            "",
            f"error: {said.replace('STEPS', steps) if said.endswith('STEPS') else said}\n",
        )
        assert checkout.fingerprint() == before

    def test_what_is_not_there_exits_with_12(
        self, step: Step, ckpt: Ckpt, checkout: Checkout
    ) -> None:
        assert step("show", code=12).err == (
            "error: no run has the track t\nhint: start one: git ckpt step start STEP --track t\n"
        )
        assert step("start", "PLAN", "--commit", "HEAD..HEAD", code=12).out == ""
        assert step("start", "PLAN", "--commit", "none", code=12).err == (
            "error: no commit is named 'none'\n"
            "hint: name a branch, a tag or a commit: git log --oneline --all\n"
        )
        assert step("start", "PLAN", "--graph", "none", code=12).err == (
            "error: there are no steps named 'none'\n"
            "hint: there are: superpowers; define others in gitckpt.toml\n"
        )
        assert ckpt("step", "show", "--run", "20990101", at=checkout).code == 12

    def test_no_run_is_said(self, ckpt: Ckpt, checkout: Checkout) -> None:
        assert ckpt("step", "start", "PLAN", at=checkout) == (
            2,
            "",
            (
                "error: no run is named\n"
                "hint: name a run: --run RUN, or start one: --track NAME; list all: git ckpt runs\n"
            ),
        )
        assert ckpt("step", "start", "PLAN", "--run", "x", "--track", "t").err == (
            "error: --run and --track exclude each other\nhint: give only one of them\n"
        )

    def test_a_state_that_cannot_be_stored_exits_with_13(self, step: Step) -> None:
        assert step("start", "PLAN", "--set", 'x="\\ud800"', code=13).out == ""

    def test_outside_of_a_repository(self, ckpt: Ckpt, tmp_path: Path) -> None:
        assert ckpt("step", "show", at=tmp_path).code == 10


def apart(*words: str, at: Checkout) -> Outcome:
    """Run `git ckpt` in a forked process."""
    return Outcome(*forked.git_ckpt(*words, directory=at.path))


def reports(path: str, worker: int) -> list[str]:
    """Report five times and return the printed ids."""
    said: list[str] = []
    for number in range(5):
        words = (
            "--track",
            "t",
            "--output",
            f"{worker}-{number}",
            "--worker",
            str(worker),
            "--task",
            f"1.{worker}",
        )
        command = [sys.executable, "-m", "gitckpt", "step", "progress", "EXECUTE", *words]
        done = subprocess.run(command, cwd=path, capture_output=True, text=True, check=True)
        said += done.stdout.split()
    return said


class TestRuns:
    def test_in_the_worktree_of_a_run_and_by_the_environment(
        self, ckpt: Ckpt, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = Path(ckpt("start", "add-login", at=main_checkout).out.strip())
        run = path.name
        assert ckpt("step", "start", "PLAN", at=path).code == 0
        monkeypatch.setenv("CKPT_RUN", run)
        assert ckpt("step", "pass", "PLAN", at=main_checkout).code == 0
        monkeypatch.delenv("CKPT_RUN")
        assert ckpt("step", "pass", "EVALUATE_PLAN", "--run", run[:-2], at=main_checkout).code == 0
        (path / "plan.md").write_text(PLAN)
        assert ckpt("step", "next", "--run", run, at=main_checkout).out == "EXECUTE\t1.2\n"

    def test_of_a_driver_that_was_taken_over_exits_with_11(
        self, ckpt: Ckpt, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Store.open(main_checkout.path, adapter="plumbing") as store:
            first = Run.start(store, "r", adapter="plumbing")
            monkeypatch.setenv("CKPT_RUN", first.id)
            monkeypatch.setenv("CKPT_LEASE", "1")
            assert ckpt("step", "start", "PLAN", at=main_checkout).code == 0
            first.pause()
            first.__exit__(None, None, None)
            with Run.resume(store, first.id, adapter="plumbing") as second:
                done = ckpt("step", "pass", "PLAN", at=main_checkout)
                assert (done.code, done.out) == (11, "")
                second.pause()

    @pytest.mark.long
    def test_many_processes(self, main_checkout: Checkout) -> None:
        assert (
            apart("step", "start", "EXECUTE", "--force", "--track", "t", at=main_checkout).code == 0
        )
        said = forked.together(
            *((reports, (str(main_checkout.path), worker)) for worker in range(4))
        )
        found = json.loads(
            apart("step", "show", "--json", "--history", "--track", "t", at=main_checkout).out
        )
        assert {event["checkpoint"] for event in found["history"][1:]} == {
            line for lines in said for line in lines
        }
        record = next(each["record"] for each in found["steps"] if each["step"] == "EXECUTE")
        assert sorted(record["output_files"]) == sorted(
            f"{worker}-{number}" for worker in range(4) for number in range(5)
        )
        assert sorted(record["tasks"]) == ["1.0", "1.1", "1.2", "1.3"]

    @pytest.mark.long
    def test_s01_s02_a_process_that_was_killed_blocks_nobody(
        self, main_checkout: Checkout, spawn: Spawn
    ) -> None:
        script = (
            "import os, signal; from gitckpt.store.records.recorder import CheckpointRecorder;"
            "CheckpointRecorder._write_documents = lambda *a, **k: "
            "os.kill(os.getpid(), signal.SIGKILL); from gitckpt.__main__ import main; main()"
        )
        killed = spawn(
            "step",
            "start",
            "PLAN",
            "--track",
            "t",
            at=main_checkout,
            argv=[sys.executable, "-c", script],
        )
        assert killed.code == -9
        assert apart("step", "start", "PLAN", "--track", "t", at=main_checkout).code == 0
        killed = spawn(
            "step",
            "pass",
            "PLAN",
            "--track",
            "t",
            at=main_checkout,
            argv=[sys.executable, "-c", script],
        )
        assert killed.code == -9
        assert apart("step", "next", "--track", "t", at=main_checkout).out == "PLAN\n"
        assert apart("step", "pass", "PLAN", "--track", "t", at=main_checkout).code == 0
        assert apart("verify", at=main_checkout).code == 0

    def test_s08_times_without_a_zone_and_tasks_that_failed(
        self, ckpt: Ckpt, main_checkout: Checkout
    ) -> None:
        theirs = {
            "created_at": "2026-02-13",
            "loop_state": {
                "current_step": "EXECUTE",
                "step_status": "IN_PROGRESS",
                "checkpoints": {
                    "EXECUTE": {
                        "status": "IN_PROGRESS",
                        "started_at": "2026-02-13T00:00:00",
                        "last_updated": "2026-02-13",
                    }
                },
            },
        }
        with Store.open(main_checkout.path, adapter="plumbing") as store:
            run = str(store.record("manual-complete", theirs, start="r").run)
        assert (
            ckpt(
                "step",
                "progress",
                "EXECUTE",
                "--run",
                run,
                "--task",
                "1.1",
                "--task-status",
                "failed",
                "-m",
                "red",
                at=main_checkout,
            ).code
            == 0
        )
        record = json.loads(ckpt("step", "show", "--json", "--run", run).out)["steps"][3]["record"]
        assert (
            record["started_at"],
            record["tasks"]["1.1"]["status"],
            record["tasks"]["1.1"]["notes"],
        ) == ("2026-02-13T00:00:00", "FAILED", "red")

    def test_sup_10_a_lock_of_somebody_who_is_dead_is_no_obstacle(
        self, ckpt: Ckpt, main_checkout: Checkout
    ) -> None:
        ckpt("step", "start", "PLAN", "--track", "t", at=main_checkout)
        private = main_checkout.path / ".git" / "ckpt"
        for name in ("write.lock", "track.lock"):
            (private / name).write_text("999999\n")
        (main_checkout.path / ".metadata.lock").mkdir()
        assert ckpt("step", "pass", "PLAN", "--track", "t").code == 0


class TestIds:
    ID = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"

    def test_a_report_that_is_made_again_is_recorded_once(
        self, ckpt: Ckpt, main_checkout: Checkout
    ) -> None:
        words = ("step", "start", "PLAN", "--track", "t", "--id", self.ID)
        first, second = ckpt(*words, at=main_checkout), ckpt(*words, at=main_checkout)
        assert (first.code, first.out, second.code, second.out) == (
            0,
            f"{self.ID}\n",
            0,
            f"{self.ID}\n",
        )
        assert second.err == "PLAN is IN_PROGRESS\n"
        assert (
            len(
                ckpt("step", "show", "--history", "--track", "t", at=main_checkout).out.splitlines()
            )
            == 1
        )
        block = (
            "step",
            "block",
            "PLAN",
            "-m",
            "no key",
            "--track",
            "t",
            "--id",
            self.ID.replace("6", "7"),
        )
        assert [ckpt(*block, at=main_checkout).code for _ in range(2)] == [0, 0]
        shown = json.loads(ckpt("step", "show", "--json", "--track", "t", at=main_checkout).out)
        assert len([each for each in shown["blockers"] if each["status"] == "ACTIVE"]) == 1

    def test_an_id_of_something_else_is_refused(self, ckpt: Ckpt, main_checkout: Checkout) -> None:
        assert (
            ckpt("step", "start", "PLAN", "--track", "t", "--id", self.ID, at=main_checkout).code
            == 0
        )
        before = main_checkout.fingerprint()
        done = ckpt("step", "pass", "PLAN", "--track", "t", "--id", self.ID, at=main_checkout)
        assert done == (
            2,
            "",
            (
                f"error: checkpoint {self.ID} belongs to another report: PLAN-started\n"
                "hint: give each report a different id\n"
            ),
        )
        done = ckpt("step", "pass", "PLAN", "--track", "t", "--id", "mine", at=main_checkout)
        assert done == (2, "", "error: 'mine' is not a UUIDv4\nhint: run: uuidgen --random\n")
        assert main_checkout.fingerprint() == before
