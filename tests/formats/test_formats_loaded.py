"""Exported files satisfy the loading rules of their own tools.

The rules copy the structs and validators of the tools, as our own readers accept more.
"""

from __future__ import annotations

import datetime as dt
import json
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gitckpt import Checkpoint, Pipeline
from gitckpt.durable.phases.review.state import PHASES, ReviewFinding, ReviewState
from gitckpt.formats.systems import forge, quasar, superpowers
from tests.formats.conftest import Imports
from tests.formats.test_formats_random import TEXTS, checkpoint

FORGE: Mapping[str, type] = {
    **dict.fromkeys(
        (
            "id",
            "plan_path",
            "mode",
            "status",
            "branch",
            "worktree_path",
            "pr_url",
            "issue_key",
            "issue_url",
        ),
        str,
    ),
    **dict.fromkeys(("cr_feedback", "plan_title", "cr_fix_summary", "source_issue"), str),
    **dict.fromkeys(("pr_number", "cr_retry_count"), int),
    **dict.fromkeys(("created_at", "updated_at"), dt.datetime),
    "steps": list,
}
QUASAR: Mapping[str, type] = {
    **dict.fromkeys(("phase_id", "nebula_name", "git_sha", "task_bead_id", "task_title"), str),
    **dict.fromkeys(("coder_output", "review_output", "lint_output", "base_commit_sha"), str),
    **dict.fromkeys(("version", "cycle", "max_cycles", "phase"), int),
    **dict.fromkeys(("total_cost_usd", "max_budget_usd"), float),
    **dict.fromkeys(("cycle_commits", "child_bead_ids"), list),
    "created_at": dt.datetime,
    "refactored": bool,
}
STATUSES = ("NOT_STARTED", "IN_PROGRESS", "PASSED", "FAILED", "BLOCKED", "SKIPPED")


def require_forge(data: bytes) -> dict[str, Any]:
    """Return the fields, or fail where forge's struct would not unmarshal."""
    found = yaml.safe_load(data)
    for key, value in found.items():
        assert type(value) is FORGE[key], key
        assert value not in ("", 0, []), f"{key} would have been left out"
    assert {"id", "plan_path", "status", "created_at", "updated_at", "steps"} <= found.keys()
    assert found["status"] in ("active", "completed", "failed")
    assert found.get("mode", "push") == "push"
    for step in found["steps"]:
        assert {key: type(value) for key, value in step.items()}.items() <= {
            "name": str,
            "status": str,
            "error": str,
        }.items()
        assert step["status"] in ("pending", "running", "completed", "failed")
        assert step["name"]
    return dict(found)


def require_quasar(data: bytes) -> dict[str, Any]:
    """Return the fields, or fail where quasar's struct or Validate refuses them."""
    found = tomllib.loads(data.decode())
    findings = {name: found.pop(name, []) for name in ("findings", "all_findings")}
    assert {key: type(value) for key, value in found.items()} == dict(QUASAR)
    assert all(
        type(each) is str for key in ("cycle_commits", "child_bead_ids") for each in found[key]
    )
    for each in (*findings["findings"], *findings["all_findings"]):
        assert {key: type(value) for key, value in each.items()} == {
            "severity": str,
            "description": str,
            "cycle": int,
        }
    assert found["version"] == 1
    assert found["created_at"].tzinfo is not None
    assert found["cycle"] >= 1
    assert 0 <= found["phase"] <= 9
    return found


def require_superpowers(data: bytes) -> dict[str, Any]:
    """Return the loop's state, or fail where the protocol lacks a required key."""
    loop = json.loads(data)["loop_state"]
    assert loop["step_status"] in STATUSES
    for step, record in loop["checkpoints"].items():
        assert record["status"] in STATUSES, step
        if record["status"] == "NOT_STARTED":
            continue
        assert all(
            isinstance(record[key], str) and record[key]
            for key in ("started_at", "agent", "last_updated")
        ), step
        assert (record["completed_at"] is None) == (record["status"] == "IN_PROGRESS"), step
        assert record["status"] != "FAILED" or record["notes"], step
        for time in filter(
            None, (record["started_at"], record["completed_at"], record["last_updated"])
        ):
            assert dt.datetime.fromisoformat(time).tzinfo is not None
    return dict(loop)


STEPS = (
    "read plan",
    "generate branch",
    "create worktree",
    "run agent",
    "commit and push",
    "create pr",
)


@given(
    st.integers(0, 6),
    st.sampled_from(["failed", "complete", "progress"]),
    st.text(min_size=1, max_size=30).filter(str.isprintable),
    TEXTS.filter(bool),
    st.sampled_from([None, 7]),
)
@example(1, "failed", "=", "=", None)
def test_forge_loads_a_run_that_was_born_here(
    done: int, how: str, branch: str, error: str, number: int | None
) -> None:
    phase = STEPS[min(done, 5)]
    label = "run-complete" if done == 6 else f"{phase}-{how}"
    written = forge.write_run(
        checkpoint(
            run="20261124-120000-x",
            sequence=9,
            label=label,
            errors=(error,) if label.endswith("-failed") else (),
            state={"branch": branch, **({"pr_number": number} if number else {})},
            pipeline=Pipeline(
                name="plan-to-pr",
                phases=STEPS,
                completed=dict.fromkeys(STEPS[:done], "6f9619ff-8b86-4d11-b42d-00c04fc964ff"),
                inputs={"plan": "plans/x.md"},
            ),
        ),
        [],
    )
    found = require_forge(written)
    assert [step["status"] for step in found["steps"]].count("completed") >= done - (done == 6)
    assert (found["plan_path"], found["branch"], found.get("pr_number")) == (
        "plans/x.md",
        branch,
        number,
    )


FINDINGS = st.builds(
    ReviewFinding,
    st.sampled_from(["critical", "major", "minor"]),
    TEXTS.filter(bool),
    st.integers(1, 9),
)


@given(
    st.builds(
        ReviewState,
        task_title=TEXTS,
        coder_output=TEXTS,
        review_output=TEXTS,
        cycle=st.integers(1, 9),
        phase=st.sampled_from(PHASES),
        total_cost_usd=st.floats(0, 1e6).map(lambda cost: round(cost, 6)),
        findings=st.lists(FINDINGS, max_size=2).map(tuple),
        all_findings=st.lists(FINDINGS, max_size=2).map(tuple),
        created_at=st.just("2026-02-24T20:08:59.120000Z"),
    )
)
def test_quasar_loads_a_review_of_ours(state: ReviewState) -> None:
    found = require_quasar(
        quasar.write_review(checkpoint(state={"review": state.to_state_table()}), [])
    )
    assert (found["cycle"], found["task_title"]) == (state.cycle, state.task_title)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "reports",
    [
        ["start PLAN"],
        ["start PLAN", "pass PLAN"],
        ["start PLAN", "pass PLAN", "start EVALUATE_PLAN", "fail EVALUATE_PLAN --notes no"],
        ["start PLAN", "block PLAN --notes why"],
    ],
)
def test_the_protocol_holds_for_a_track_that_was_born_here(
    imports: Imports, reports: list[str]
) -> None:
    for report in reports:
        imports.ok(
            "step", *report.split(), "--track", "login", "--agent", "superpowers:writing-plans"
        )
    run = imports.ok("runs").split("\t")[0]
    loop = require_superpowers(imports.ok("export", run, "--format", "superpowers").encode())
    begun = {
        step for step, record in loop["checkpoints"].items() if record["status"] != "NOT_STARTED"
    }
    assert (
        reports[-1].split()[1] in begun <= {report.split()[1] for report in reports}
    )  # a plan that fails is to be made again


def test_it_holds_for_what_a_track_of_theirs_became(imports: Imports) -> None:
    made: Checkpoint = checkpoint(
        state={
            "track_id": "t",
            "own": [1],
            "loop_state": {"current_step": "PLAN", "step_status": "NOT_STARTED", "checkpoints": {}},
        }
    )
    assert json.loads(superpowers.write_track(made, []))["own"] == [1]
    require_superpowers(superpowers.write_track(made, []))
