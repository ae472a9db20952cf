"""The state of coder and reviewer converts to a table and to quasar's file."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from gitckpt import InvalidCheckpoint, NewerCheckpoint
from gitckpt.durable.phases.review.state import (
    PHASES,
    WITHOUT_FILTERING,
    WITHOUT_LINTING,
    ReviewFinding,
    ReviewState,
)
from gitckpt.formats.systems.quasar import parse_cycle
from gitckpt.model import toml
from tests.durable.phases.review.examples import EMPTY, MANY_CYCLES, MID_CYCLE, STATES

SAMPLES = Path(__file__).parent / "quasar"

KEYS = [
    *(
        "version",
        "phase_id",
        "nebula_name",
        "created_at",
        "git_sha",
        "task_bead_id",
        "task_title",
        "cycle",
        "max_cycles",
        "phase",
    ),
    *(
        "total_cost_usd",
        "max_budget_usd",
        "coder_output",
        "review_output",
        "lint_output",
        "base_commit_sha",
        "cycle_commits",
    ),
    *("child_bead_ids", "refactored"),
]


def table(**changes: Any) -> dict[str, Any]:
    """Return the table of a state with changes; None removes a key."""
    whole = {**MID_CYCLE.to_state_table(), **changes}
    return {key: value for key, value in whole.items() if value is not None}


class TestTable:
    @pytest.mark.parametrize(
        "state", [EMPTY, MID_CYCLE, MANY_CYCLES], ids=["empty", "mid-cycle", "many cycles"]
    )
    def test_it_comes_back(self, state: ReviewState) -> None:
        assert ReviewState.from_state_table(state.to_state_table()) == state

    @given(STATES)
    def test_any_comes_back_by_way_of_json_and_of_a_checkpoint(self, state: ReviewState) -> None:
        assert ReviewState.from_state_table(json.loads(json.dumps(state.to_state_table()))) == state
        types: dict[str, str] = {}
        document = toml.dump_state({"review": state.to_state_table()}, types)
        assert types == {}
        assert ReviewState.from_state_table(tomllib.loads(document)["state"]["review"]) == state

    def test_it_begins_with_the_nineteen_keys_then_the_findings_then_more(self) -> None:
        assert list(MID_CYCLE.to_state_table()) == [*KEYS, "findings", "all_findings", "more"]

    def test_findings_are_as_quasar_has_them(self) -> None:
        assert MID_CYCLE.to_state_table()["all_findings"] == [
            {"severity": "minor", "description": "multi\nline — ✓ 日本", "cycle": 1},
            {"severity": "major", "description": "old", "cycle": 1},
        ]

    def test_without_more_what_quasar_knows_comes_back(self) -> None:
        state = ReviewState.from_state_table(table(more=None))
        assert replace(state, last_cycle_sha="") == replace(
            MID_CYCLE,
            all_findings=tuple(replace(each, status="found") for each in MID_CYCLE.all_findings),
            verifications=(),
            filter_history=(),
            sessions={},
            report=None,
            last_cycle_sha="",
        )

    def test_the_status_of_a_finding_that_was_edited_is_not_kept(self) -> None:
        edited = [
            {**each, "description": "edited"} for each in MID_CYCLE.to_state_table()["all_findings"]
        ]
        assert [
            each.status
            for each in ReviewState.from_state_table(table(all_findings=edited)).all_findings
        ] == ["found", "found"]

    def test_what_quasar_would_read_as_zero_may_be_missing(self) -> None:
        assert ReviewState.from_state_table({"version": 1, "cycle": 1, "phase": 2}) == ReviewState(
            cycle=1, max_cycles=0, phase="coding"
        )

    def test_a_number_without_a_fraction_is_a_number(self) -> None:
        assert ReviewState.from_state_table(table(total_cost_usd=3)).total_cost_usd == 3.0

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"version": None}, "version: is missing"),
            ({"version": 0}, "version: 0 is not supported"),
            ({"version": "1"}, "version: is '1' (str), not a whole number"),
            ({"version": True}, "version: is True (bool), not a whole number"),
            ({"cycle": 0}, "cycle: is 0, but cycles count from 1"),
            ({"cycle": -1}, "cycle: is -1, less than 0"),
            ({"cycle": 2.0}, "cycle: is 2.0 (float), not a whole number"),
            ({"phase": -1}, "phase: is -1, less than 0"),
            ({"phase": None}, "phase: is missing"),
            (
                {"total_cost_usd": float("nan")},
                "total_cost_usd: is nan, not a finite amount of 0 or more",
            ),
            ({"total_cost_usd": -1.0}, "total_cost_usd: is -1.0, not a finite amount of 0 or more"),
            ({"max_budget_usd": "30"}, "max_budget_usd: is '30' (str), not a number"),
            ({"task_title": 5}, "task_title: is 5 (int), not a string"),
            ({"refactored": 1}, "refactored: is 1 (int), not a boolean"),
            ({"cycle_commits": "c1"}, "cycle_commits: is 'c1' (str), not an array"),
            ({"cycle_commits": ["c1", 2]}, "cycle_commits: has values that are not strings"),
            ({"findings": {}}, "findings: is {} (dict), not an array"),
        ],
    )
    def test_what_cannot_be_is_refused_by_name(self, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidCheckpoint) as caught:
            ReviewState.from_state_table(table(**changes))
        assert caught.value.message == f"state.review: {said}"

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"findings": [5]}, "state.review.findings[0]: is 5 (int), not a table"),
            (
                {"findings": [{"severity": 1}]},
                "state.review.findings[0]: severity: is 1 (int), not a string",
            ),
            ({"more": []}, "state.review.more: is [] (list), not a table"),
            (
                {"more": {"sessions": {"coder": 1}}},
                "state.review.more.sessions: coder: is 1 (int), not a string",
            ),
        ],
    )
    def test_what_lies_deeper_is_named_as_well(self, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidCheckpoint) as caught:
            ReviewState.from_state_table(table(**changes))
        assert caught.value.message == said

    def test_a_name_that_is_no_phase_is_refused(self) -> None:
        with pytest.raises(
            InvalidCheckpoint,
            match=r"state\.review\.more: phase: is 'resting', not one of idle, bead_created",
        ):
            ReviewState.from_state_table(
                table(more={**MID_CYCLE.to_extra_table(), "phase": "resting"})
            )

    def test_a_later_version_is_refused_as_such(self) -> None:
        with pytest.raises(NewerCheckpoint, match="2 is not supported"):
            ReviewState.from_state_table(table(version=2))

    def test_something_that_is_no_table(self) -> None:
        with pytest.raises(
            InvalidCheckpoint, match=r"state\.review: is \[\] \(list\), not a table"
        ):
            ReviewState.from_state_table([])  # type: ignore[arg-type]


class TestPhases:
    def test_their_numbers(self) -> None:
        assert dict(enumerate(PHASES)) == {
            0: "idle",
            1: "bead_created",
            2: "coding",
            3: "code_complete",
            4: "linting",
            5: "filtering",
            6: "reviewing",
            7: "review_complete",
            8: "resolving_issues",
            9: "approved",
            10: "error",
        }

    def test_the_numbers_moved_twice(self) -> None:
        tables = (PHASES, WITHOUT_FILTERING, WITHOUT_LINTING)
        assert [each.index("reviewing") for each in tables] == [6, 5, 4]
        assert [
            ReviewState.from_state_table(table(more=None, phase=5), numbers=each).phase
            for each in tables
        ] == [
            "filtering",
            "reviewing",
            "review_complete",
        ]

    def test_the_name_counts_more_than_the_number(self) -> None:
        assert (
            ReviewState.from_state_table(table(phase=4, more={"phase": "reviewing"})).phase
            == "reviewing"
        )


class TestStored:
    @pytest.mark.parametrize(
        "state", [EMPTY, MID_CYCLE, MANY_CYCLES], ids=["empty", "mid-cycle", "many cycles"]
    )
    def test_it_comes_back(self, state: ReviewState) -> None:
        assert ReviewState.from_state_table(toml.loads(toml.dumps(state.to_state_table()))) == state

    @pytest.mark.long
    @given(STATES)
    def test_any_comes_back(self, state: ReviewState) -> None:
        assert ReviewState.from_state_table(toml.loads(toml.dumps(state.to_state_table()))) == state


class TestFile:
    def test_quasar_s_sample_of_hostile_strings(self) -> None:
        state = parse_cycle((SAMPLES / "mid_cycle_hostile_strings.toml").read_bytes(), "sample")
        assert state == ReviewState(
            phase_id="finding-lifecycle",
            nebula_name="Reviewer Memory",
            created_at="2026-03-01T04:16:02.408934Z",
            git_sha="a1b2" * 10,
            task_bead_id="quasar-trjs",
            task_title="Title with \"quotes\" and 'apostrophes'",
            cycle=2,
            max_cycles=5,
            phase="review_complete",
            total_cost_usd=9.421737999999998,
            max_budget_usd=30.0,
            coder_output="line1\nline2 'quoted' `x`\n```go\nfmt.Println(\"hi\\n\")\n```\n",
            review_output="ISSUE:\nSEVERITY: major\nDESCRIPTION: it's broken\r\n",
            lint_output="\x1b[31mred\x1b[0m\ttab\0nul\x7fdel",
            base_commit_sha="0" * 40,
            cycle_commits=("c1", "c2"),
            child_bead_ids=("quasar-1.1",),
            refactored=True,
            findings=(ReviewFinding("major", "it's broken", 2),),
            all_findings=(
                ReviewFinding("minor", "multi\nline — unicode ✓ 日本", 1),
                ReviewFinding("major", "it's broken", 2),
            ),
            beads={"f-943b66c1ea7b": "", "f-eb8239beadee": ""},  # quasar has created their beads
        )

    @pytest.mark.parametrize(("cycle", "commits", "findings"), [(1, 1, 1), (2, 2, 2), (4, 4, 4)])
    def test_quasar_s_real_ones(self, cycle: int, commits: int, findings: int) -> None:
        data = (SAMPLES / f"quasar-5r9x.cycle{cycle}.toml").read_bytes()
        state = parse_cycle(data, "sample")
        assert (state.cycle, state.phase, len(state.cycle_commits), len(state.all_findings)) == (
            cycle,
            "resolving_issues",
            commits,
            findings,
        )
        assert state.last_cycle_sha == ""

    def test_one_that_cannot_be_read_is_refused_with_the_place(self) -> None:
        with pytest.raises(InvalidCheckpoint) as caught:
            parse_cycle((SAMPLES / "UNREADABLE_split_rune.toml").read_bytes(), "UNREADABLE.toml")
        assert (
            caught.value.message
            == "UNREADABLE.toml: is not UTF-8 in line 24: a character was cut in the middle"
        )
        assert (
            caught.value.hint
            == "remove the cut text from the file; quasar cuts characters when it shortens texts"
        )

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("version = ", "a.toml: is not TOML: "),
            ("created_at = 5\nversion = 1", "a.toml: created_at: is 5, not a date-time"),
            ("version = 2\ncycle = 1\nphase = 2", "a.toml: version: 2 is not supported"),
            ("a = " + "[" * 5000, "a.toml: is not TOML: nests deeper than 256 levels"),
        ],
    )
    def test_other_damage(self, text: str, said: str) -> None:
        with pytest.raises(InvalidCheckpoint) as caught:
            parse_cycle(text, "a.toml")
        assert caught.value.message.startswith(said)

    def test_a_time_without_a_zone_is_taken_for_utc(self) -> None:
        text = "version = 1\ncycle = 1\nphase = 2\ncreated_at = 2026-03-01T04:16:02.408934567"
        assert parse_cycle(text, "a.toml").created_at == "2026-03-01T04:16:02.408934Z"
