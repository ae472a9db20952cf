"""Changes between two states, and a checkpoint as JSON."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from gitckpt import Checkpoint, Progress, StateChange, Worktree
from gitckpt.model import jsonable
from gitckpt.model.checkpoint import Omitted
from gitckpt.model.jsonable import MISSING, compare_states

UTC = dt.datetime(2026, 11, 21, 20, 15, tzinfo=dt.UTC)
ELSEWHERE = UTC.astimezone(dt.timezone(dt.timedelta(hours=2)))


class TestCompare:
    @pytest.mark.parametrize(
        "value",
        [
            {},
            None,
            0,
            -0.0,
            float("nan"),
            float("-inf"),
            "",
            b"\0",
            [],
            [[{}]],
            10**5000,
            UTC,
            dt.date(2026, 1, 1),
            {"a": [float("nan"), {"b": None}]},
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_equal_ones(self, value: Any) -> None:
        assert compare_states({"x": value}, {"x": value}) == []

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (1, True),
            (0, False),
            (1, 1.0),
            (0.0, -0.0),
            (None, False),
            (None, "null"),
            ("AA==", b"\0"),
            ([], {}),
            (10**5000, 10**5000 + 1),
            (float("nan"), float("inf")),
            (UTC, ELSEWHERE),
            (UTC, UTC.replace(tzinfo=None)),
            (dt.date(2026, 1, 1), dt.datetime(2026, 1, 1)),
            ({"a": 1}, 1),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_different_ones(self, old: Any, new: Any) -> None:
        assert compare_states({"x": old}, {"x": new}) == [StateChange("/x", old, new)]
        assert compare_states({"x": new}, {"x": old}) == [StateChange("/x", new, old)]

    def test_what_came_and_what_went(self) -> None:
        old = {"gone": {"a": 1}, "list": [1, 2, 3], "same": [None], "grown": [1]}
        new = {"list": [1, 9], "same": [None], "added": None, "a/b~c": {"": 1}, "grown": [1, 2]}
        assert compare_states(old, new) == [
            StateChange("/list/1", 2, 9),
            StateChange("/list/2", 3, MISSING),
            StateChange("/added", MISSING, None),
            StateChange("/a~1b~0c", MISSING, {"": 1}),
            StateChange("/grown/1", MISSING, 2),
            StateChange("/gone", {"a": 1}, MISSING),
        ]

    def test_the_whole(self) -> None:
        assert compare_states([], {}) == [StateChange("", [], {})]

    def test_states_as_deep_as_they_may_be(self) -> None:
        old: Any = 1
        new: Any = 2
        for _ in range(200):
            old, new = {"x": [old]}, {"x": [new]}
        assert compare_states(old, new) == [StateChange("/x/0" * 200, 1, 2)]


class TestJson:
    CHECKPOINT = Checkpoint(
        id="5f0c2c1e-8f0a-4e0b-9d57-3c4b0f3a9f11",
        run="20261121-201500-add-login",
        sequence=1,
        label="a-complete",
        timestamp="2026-11-21T20:15:00Z",
        git_sha="9" * 40,
        trigger="manual",
        errors=("one",),
        worktree=Worktree(
            dirty=True,
            tree="8" * 40,
            omitted=(Omitted("dump", "larger than 50 MB", 60_000_000, unknown={"x": 1}),),
        ),
        progress=Progress(current_phase=2),
        state={
            "raw": b"\xff",
            "a/b": [float("nan"), float("-inf")],
            "when": UTC,
            "day": dt.date(2026, 1, 1),
            "hour": dt.time(1),
            "n": None,
        },
        unknown={"later": {"x": [1]}},
    )

    def test_the_document(self) -> None:
        found = jsonable.checkpoint_to_json(self.CHECKPOINT)
        assert found == {
            "version": 1,
            "id": "5f0c2c1e-8f0a-4e0b-9d57-3c4b0f3a9f11",
            "run": "20261121-201500-add-login",
            "sequence": 1,
            "phase": "a-complete",
            "timestamp": "2026-11-21T20:15:00Z",
            "git_sha": "9" * 40,
            "trigger": "manual",
            "errors": ["one"],
            "worktree": {
                "dirty": True,
                "tree": "8" * 40,
                "omitted": [
                    {"path": "dump", "reason": "larger than 50 MB", "size": 60_000_000, "x": 1}
                ],
            },
            "progress": {"current_phase": 2},
            "later": {"x": [1]},
            "types": {
                "/raw": "bytes",
                "/a~1b/0": "float",
                "/a~1b/1": "float",
                "/when": "datetime",
                "/day": "date",
                "/hour": "time",
            },
            "state": {
                "raw": "/w==",
                "a/b": ["nan", "-inf"],
                "when": "2026-11-21T20:15:00+00:00",
                "day": "2026-01-01",
                "hour": "01:00:00",
                "n": None,
            },
        }
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert list(found)[-1] == "state"

    def test_the_state_alone(self) -> None:
        assert (
            jsonable.state_to_json(self.CHECKPOINT)
            == jsonable.checkpoint_to_json(self.CHECKPOINT)["state"]
        )

    def test_what_json_knows_has_no_types(self) -> None:
        plain = Checkpoint(
            id="x",
            label="a-b",
            timestamp="t",
            git_sha="",
            trigger="manual",
            state={"a": [1, 2.5, True, None, "s", {}]},
        )
        assert jsonable.checkpoint_to_json(plain) == {
            "version": 1,
            "id": "x",
            "phase": "a-b",
            "timestamp": "t",
            "git_sha": "",
            "trigger": "manual",
            "errors": [],
            "state": {"a": [1, 2.5, True, None, "s", {}]},
        }
