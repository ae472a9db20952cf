"""A shell script can do what a Python program can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitckpt import Pipeline, Store
from tests.cli.conftest import Ckpt, store_text
from tests.conftest import Checkout
from tests.durable.stage import Stage, stage
from tests.formats.conftest import SAMPLES
from tests.stores import set_clock

__all__ = ["stage"]


class TestSave:
    def test_errors_in_their_order(self, ckpt: Ckpt, checkout: Checkout) -> None:
        """A shell script can record the errors of a phase (Q3)."""
        done = ckpt(
            "save",
            "--phase",
            "research-failed",
            "--error",
            "no network",
            "--error",
            "twice",
            at=checkout,
        )
        with Store.open(checkout.path, adapter="plumbing") as store:
            made = store.read(done.out.strip())
            assert store.latest_resumable() is not None
        assert (made.label, made.errors) == ("research-failed", ("no network", "twice"))

    def test_a_run_that_is_named(self, ckpt: Ckpt, checkout: Checkout) -> None:
        with Store.open(checkout.path, adapter="plumbing") as store:
            run = str(store.record("one-started", {}, start="work").run)
        made = ckpt(
            "save", "--phase", "one-failed", "--error", "no", "--run", run, at=checkout
        ).out.strip()
        with Store.open(checkout.path, adapter="plumbing") as store:
            assert (store.read(made).run, store.runs()[0].status) == (run, "failed")
        assert ckpt("save", "--run", "20200101-000000-gone", at=checkout).code == 12
        assert ckpt("save", "--run", run, "--track", "t", at=checkout).code == 2

    def test_a_track_taken_over_from_its_file(self, ckpt: Ckpt, checkout: Checkout) -> None:
        """A track keeps the state and counts of its file in the main worktree (Q10, Q11)."""
        path = SAMPLES / "superpowers/login_20260210/metadata.json"
        done = ckpt("save", "--state", str(path), "--track", "login_20260210", at=checkout)
        assert done.code == 0, done.err
        assert ckpt("step", "next", "--track", "login_20260210", at=checkout).out == "EXECUTE\n"
        ckpt(
            "step",
            "progress",
            "EXECUTE",
            "--track",
            "login_20260210",
            "--task",
            "1.3",
            "--task-status",
            "PASSED",
            at=checkout,
        )
        shown = json.loads(
            ckpt("step", "show", "--track", "login_20260210", "--json", at=checkout).out
        )
        record = next(each["record"] for each in shown["steps"] if each["step"] == "EXECUTE")
        assert (record["tasks_completed"], record["tasks_total"]) == (6, 35)
        again = ckpt(
            "save", "--state", str(path), "--track", "login_20260210", at=checkout
        ).out.strip()
        with Store.open(checkout.path, adapter="plumbing") as store:
            assert [store.read(again).run] == [each.run for each in store.runs()]


def test_documents_that_cannot_be_read_are_not_none(ckpt: Ckpt, checkout: Checkout) -> None:
    store_text(checkout, "refs/checkpoints/11111111-1111-4111-8111-111111111111", "x")
    done = ckpt("list", at=checkout)
    assert "no checkpoint can be read; to see why: git ckpt verify\n" in done.err
    assert "no checkpoints yet" not in done.err


class TestPlanToPr:
    @pytest.mark.long
    def test_it_is_named_after_its_plan_both_ways(self, stage: Stage) -> None:
        """A run has the name of its plan, with and without `-i plan=` (Q6)."""
        stage.checkout.commit("the plan", **{"auth.md": "# Auth\n"})
        stage.program("claude", "exit 1")
        stage.ckpt("run", "plan-to-pr", "-i", "plan=auth.md")
        stage.ckpt("run", "auth.md")
        assert {run[16:].removesuffix("-2") for run in stage.runs()} == {"auth"}

    @pytest.mark.long
    def test_a_remote_by_a_relative_path(self, stage: Stage) -> None:
        """Git would resolve the path from the run's worktree, where nothing is."""
        stage.checkout.git("remote", "set-url", "origin", f"../{stage.remote.path.name}")
        stage.checkout.commit("the plan", **{"auth.md": "# Auth\n"})
        stage.program("claude", "echo x > made")
        done = stage.ckpt("run", "auth.md")
        assert done.code == 20
        assert (
            "the URL of origin is relative, and git resolves it from here: make it absolute "
            "with git remote set-url"
        ) in done.err


@pytest.mark.long
def test_runs_of_a_pipeline_that_does_not_say_expire_as_the_settings_say(stage: Stage) -> None:
    """Runs expire after each run, not only when the hook looks (Q7)."""
    stage.pipeline("one: true")
    with stage.store() as store:
        set_clock(store, lambda: 1_700_000_000_000_000)
        old, other = (
            str(
                store.record(
                    "run-complete", {}, start=name, trigger="phase", pipeline=Pipeline(name=name)
                ).run
            )
            for name in ("ci", "other")
        )
    stage.checkout.git("config", "ckpt.runsOlderThan", "10000d")
    new = stage.ok("run", "ci")
    assert set(stage.runs()) == {old, other, new}
    stage.checkout.git("config", "ckpt.runsOlderThan", "7d")
    seen = stage.checkout.main / ".git/ckpt/clock"
    seen.write_text("0 0\n")
    after_a_gap = stage.ok("run", "ci")
    assert set(stage.runs()) == {old, other, new, after_a_gap}
    seen.unlink()
    newest = stage.ok("run", "ci")
    assert set(stage.runs()) == {other, new, after_a_gap, newest}  # of this pipeline alone


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ("a=b=c", {"a": "b=c"}),
        ("a=x:=y", {"a": "x:=y"}),
        ("a:=5\nb:=[1, null]\nc:=true", {"a": 5, "b": [1, None], "c": True}),
        ("a<file", {"a": "two\nlines\n"}),
        ("a =b", {"a": "b"}),
        ("a=<file", {"a": "<file"}),
        ("a=b\u2028c\x85e", {"a": "b\u2028c\x85e"}),
    ],
)
def test_what_a_command_can_put_into_the_state(
    stage: Stage, lines: str, state: dict[str, object]
) -> None:
    stage.pipeline(
        f"one: printf 'two\\nlines\\n' > file; cat > \"$CKPT_SET\" <<'END'\n{lines}\nEND"
    )
    run = stage.ok("run", "ci")
    assert stage.newest(run).state == state


@pytest.mark.sampled(4)
@pytest.mark.parametrize("line", ["a", "=b", "a:=[", "a<gone", "a<.", "<file"])
def test_what_a_command_cannot_put_into_the_state(stage: Stage, line: str, tmp_path: Path) -> None:
    stage.pipeline(f"one: echo '{line}' > \"$CKPT_SET\"")
    done = stage.ckpt("run", "ci")
    assert done.code == 20
    assert "in CKPT_SET" in done.err
