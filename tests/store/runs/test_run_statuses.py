"""Statuses of runs without a pipeline: of steps, of programs, of people."""

from __future__ import annotations

import json

import pytest

from gitckpt import Run, Store
from tests.cli.conftest import Ckpt, ckpt
from tests.conftest import Checkout

__all__ = ["ckpt"]


def status(ckpt: Ckpt, checkout: Checkout, run: str) -> dict[str, object]:
    done = ckpt("status", run, "--json", at=checkout)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert isinstance(told, dict)
    return told


class TestSteps:
    def begin(self, ckpt: Ckpt, checkout: Checkout) -> str:
        assert ckpt("step", "start", "PLAN", "--track", "t", at=checkout).code == 0
        return ckpt("runs", at=checkout).out.split("\t")[0]

    def test_a_blocked_one_is_blocked_and_says_by_what(
        self, ckpt: Ckpt, checkout: Checkout
    ) -> None:
        run = self.begin(ckpt, checkout)
        assert status(ckpt, checkout, run)["status"] == "open"
        ckpt(
            "step", "block", "PLAN", "--track", "t", "--notes", "no access to the API", at=checkout
        )
        told = status(ckpt, checkout, run)
        assert (told["status"], told["next"]) == (
            "blocked",
            f"git ckpt step reset PLAN --run {run} --notes TEXT",
        )
        shown = ckpt("status", run, at=checkout).out
        assert "blocker  B1: no access to the API\n" in shown
        refused = ckpt("finish", run, at=checkout)
        assert (refused.code, refused.out) == (2, "")
        assert f"error: run {run} is blocked: PLAN-blocked\n" in refused.err
        ckpt("step", "reset", "PLAN", "--run", run, "--notes", "there is a key", at=checkout)
        told = status(ckpt, checkout, run)
        assert (told["status"], told["next"]) == ("open", f"git ckpt step next --run {run}")

    @pytest.mark.long
    def test_the_limit_of_fix_cycles_blocks_it_though_the_report_was_a_failure(
        self, ckpt: Ckpt, checkout: Checkout
    ) -> None:
        run = self.begin(ckpt, checkout)
        for step in ("PLAN", "EVALUATE_PLAN", "EXECUTE"):
            ckpt("step", "pass", step, "--run", run, at=checkout)
        for _ in range(3):
            ckpt("step", "fail", "EVALUATE_EXECUTION", "--run", run, "--notes", "red", at=checkout)
            assert status(ckpt, checkout, run)["status"] == "open"  # it goes on with a fix
            ckpt("step", "pass", "FIX", "--run", run, at=checkout)
        ckpt("step", "fail", "EVALUATE_EXECUTION", "--run", run, "--notes", "red", at=checkout)
        assert status(ckpt, checkout, run)["status"] == "blocked"

    def test_a_step_that_failed_and_has_no_way_on(self, ckpt: Ckpt, checkout: Checkout) -> None:
        run = self.begin(ckpt, checkout)
        ckpt("step", "fail", "PLAN", "--run", run, "--notes", "no", at=checkout)
        told = status(ckpt, checkout, run)
        assert (told["status"], told["label"]) == ("failed", "PLAN-failed")

    def test_one_that_is_over_is_to_be_finished(self, ckpt: Ckpt, checkout: Checkout) -> None:
        run = self.begin(ckpt, checkout)
        for step in ("PLAN", "EVALUATE_PLAN", "EXECUTE", "EVALUATE_EXECUTION"):
            ckpt("step", "pass", step, "--run", run, at=checkout)
        told = status(ckpt, checkout, run)
        assert (told["status"], told["next"]) == ("open", f"git ckpt finish {run}")


class TestPrograms:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("trigger", ["manual", "my-tool", "phase"])
    def test_a_phase_that_failed(self, ckpt: Ckpt, checkout: Checkout, trigger: str) -> None:
        with Store.open(checkout.path, adapter="plumbing") as store:
            run = str(store.record("research-started", {}, start="tool", trigger=trigger).run)
            store.record("research-failed", {}, run=run, trigger=trigger, errors=["no network"])
        told = status(ckpt, checkout, run)
        assert (told["status"], told["label"]) == ("failed", "research-failed")
        phases = told["phases"]
        assert isinstance(phases, list)
        assert [(each["phase"], each["status"], each["errors"]) for each in phases] == [
            ("research", "failed", ["no network"])
        ]
        assert told["next"] == f"git ckpt resume {run}"
        assert ckpt("finish", run, at=checkout).code == 2
        assert ckpt("finish", "--force", run, at=checkout).code == 0
        assert status(ckpt, checkout, run)["status"] == "complete"

    def test_what_a_person_saves_afterwards_changes_nothing(self, checkout: Checkout) -> None:
        with Store.open(checkout.path, adapter="plumbing") as store:
            run = str(store.record("research-failed", {}, start="tool").run)
            store.record("manual-complete", {}, run=run)
            assert [each.status for each in store.runs()] == ["failed"]
            store.record("research-complete", {}, run=run)
            assert [each.status for each in store.runs()] == ["open"]
            store.record("run-complete", {}, run=run)
            assert [each.status for each in store.runs()] == ["complete"]

    def test_the_class_run(self, ckpt: Ckpt, checkout: Checkout) -> None:
        def fail() -> None:
            raise ValueError("no")

        with Store.open(checkout.path, adapter="plumbing") as store:
            with pytest.raises(ValueError, match="no"), Run.start(store, "lib") as run:
                run.phase("one", fail)
            told = status(ckpt, checkout, run.id)
            assert (told["status"], told["next"]) == ("failed", f"git ckpt resume {run.id}")
            with Run.resume(store, run.id) as again:
                again.phase("one", lambda: 1)
            assert status(ckpt, checkout, run.id)["status"] == "complete"

    def test_phases_of_the_run_that_it_was_forked_from_are_complete(
        self, checkout: Checkout
    ) -> None:
        with Store.open(checkout.path, adapter="plumbing") as store:
            with Run.start(store, "first") as first:
                first.phase("one", lambda: 1)
                first.pause()
            with Run.fork(store, store.read(first.newest.id)) as second:
                second.phase("two", lambda: 2)
            events = {each.phase: each.status for each in store.history(second.id).events}
        assert events == {"one": "complete", "two": "complete"}
