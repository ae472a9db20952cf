"""A document takes over place, pipeline, attempt and state from the one before."""

from __future__ import annotations

from typing import Any

import pytest

from gitckpt.model import codec
from gitckpt.store.records.recorder import Proposal
from tests.store.conftest import ONE, RUN, THREE, TWO, nth

PIPELINE = {"name": "ci", "phases": ["one", "two", "three"]}
ATTEMPT = {"phase": "two", "number": 2, "began": ONE, "failures": 1}
ENDED = {"exit_code": 3, "seconds": 1.5, "output": "no\n", "result": "null"}


def fields(**more: Any) -> dict[str, Any]:
    """Return the keys of the second checkpoint of a run."""
    wanted = {
        "version": 1,
        "id": TWO,
        "phase": "two-progress",
        "timestamp": "2027-01-15T08:00:02.000000Z",
        "git_sha": "",
        "trigger": "phase",
        "run": RUN,
        "errors": [],
    }
    return wanted | more


def before(**more: Any) -> dict[str, Any]:
    """Return the keys of the checkpoint before it."""
    return {"id": ONE, "sequence": 4} | more


def made(
    said: dict[str, Any],
    was: dict[str, Any] | None,
    state: dict[str, Any] | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Return the resulting keys, and assert that the document agrees."""
    proposal = Proposal(said, state, **how)
    checkpoint = codec.decode(proposal.render_document(was, {}), f"refs/checkpoints/{TWO}")
    assert (
        (checkpoint.sequence, checkpoint.parent) == (said["sequence"], said["parent"])
        if said.get("run")
        else (None, None)
    )
    assert list(checkpoint.pipeline.completed if checkpoint.pipeline else ()) == list(
        (said.get("pipeline") or {}).get("completed", ())
    )
    assert (checkpoint.attempt is None) == (said.get("attempt") is None)
    return proposal.fields


class TestPlace:
    @pytest.mark.parametrize(
        ("was", "expected"),
        [(None, (1, None)), (before(), (5, ONE)), (before(sequence=None), (1, ONE))],
    )
    def test_behind_the_one_before(
        self, was: dict[str, Any] | None, expected: tuple[int, str | None]
    ) -> None:
        found = made(fields(), was)
        assert (found["sequence"], found["parent"]) == expected

    def test_none_outside_of_a_run(self) -> None:
        found = made(fields(run=None), before(pipeline=PIPELINE, attempt=ATTEMPT))
        assert not found.keys() & {"sequence", "parent"}
        assert (found["pipeline"], found["attempt"]) == (None, None)


class TestPipeline:
    def test_is_carried_on_with_what_is_complete(self) -> None:
        was = PIPELINE | {"completed": {"one": ONE}}
        assert made(fields(), before(pipeline=was))["pipeline"] == was

    def test_the_last_key_is_left_out_where_nothing_is_complete(self) -> None:
        assert made(fields(), before(pipeline=PIPELINE))["pipeline"] == PIPELINE
        assert made(fields(pipeline=PIPELINE | {"completed": {}}), None)["pipeline"] == PIPELINE

    def test_none_stays_none(self) -> None:
        assert made(fields(), before())["pipeline"] is None

    @pytest.mark.parametrize("label", ["two-complete", "two-skipped"])
    def test_a_phase_that_is_complete_joins(self, label: str) -> None:
        found = made(fields(phase=label), before(pipeline=PIPELINE | {"completed": {"one": ONE}}))
        assert found["pipeline"] == PIPELINE | {"completed": {"one": ONE, "two": TWO}}

    def test_one_that_starts_again_leaves_with_all_after_it(self) -> None:
        was = PIPELINE | {"completed": {"one": ONE, "two": THREE, "three": nth(4)}}
        assert made(fields(phase="two-started"), before(pipeline=was))["pipeline"] == PIPELINE | {
            "completed": {"one": ONE}
        }

    def test_what_was_complete_before_is_not_changed_by_that(self) -> None:
        completed = {"one": ONE}
        made(fields(phase="two-complete"), before(pipeline=PIPELINE | {"completed": completed}))
        assert completed == {"one": ONE}

    def test_a_step_of_a_protocol_is_no_phase(self) -> None:
        was = PIPELINE | {"completed": {"one": ONE}}
        assert (
            made(fields(phase="two-complete", trigger="step"), before(pipeline=was))["pipeline"]
            == was
        )

    def test_ones_own_replaces_it_but_for_what_is_complete(self) -> None:
        own = {"name": "other", "phases": ["two", "four"], "completed": {"four": nth(9)}}
        found = made(fields(pipeline=own), before(pipeline=PIPELINE | {"completed": {"one": ONE}}))
        assert found["pipeline"] == {
            "name": "other",
            "phases": ["two", "four"],
            "completed": {"one": ONE},
        }

    def test_where_there_was_none_ones_own_says_what_is_complete(self) -> None:
        own = PIPELINE | {"completed": {"one": THREE}}
        assert made(fields(pipeline=own, phase="two-complete"), before())[
            "pipeline"
        ] == PIPELINE | {"completed": {"one": THREE, "two": TWO}}

    def test_a_rewind_says_itself_what_is_complete(self) -> None:
        own = PIPELINE | {"completed": {"one": ONE}}
        was = PIPELINE | {"completed": {"one": ONE, "two": THREE}}
        assert made(fields(pipeline=own, rewound_to=ONE), before(pipeline=was))["pipeline"] == own

    @pytest.mark.parametrize("kept", [{"completed": {"one": ONE}}, {}], ids=["one", "none"])
    def test_where_phases_are_to_be_done_again_it_says_itself_which_are_complete(
        self, kept: dict[str, Any]
    ) -> None:
        was = PIPELINE | {"completed": {"one": ONE, "two": THREE}}
        assert (
            made(fields(pipeline=PIPELINE | kept, phase="rewind-complete"), before(pipeline=was))[
                "pipeline"
            ]
            == PIPELINE | kept
        )

    def test_each_try_begins_with_what_was_handed_in(self) -> None:
        """Each attempt begins with the given keys.

        Another process may record first, and the attempt must not keep what that process carried
        on.
        """
        proposal = Proposal(fields(), {})
        proposal.render_document(
            before(pipeline=PIPELINE | {"completed": {"one": ONE}}, attempt=ATTEMPT), {}
        )
        proposal.render_document(before(sequence=7), {})
        assert (
            proposal.fields["pipeline"],
            proposal.fields["attempt"],
            proposal.fields["sequence"],
        ) == (None, None, 8)


class TestAttempt:
    def test_is_carried_on_without_how_it_ended(self) -> None:
        assert made(fields(), before(attempt=ATTEMPT | ENDED))["attempt"] == ATTEMPT

    def test_ones_own_stays_whole(self) -> None:
        own = {"phase": "three", "number": 1, "exit_code": 3}
        assert made(fields(attempt=own), before(attempt=ATTEMPT))["attempt"] == own

    def test_none_stays_none(self) -> None:
        assert made(fields(), before())["attempt"] is None


class TestState:
    def state(
        self,
        said: dict[str, Any],
        state: dict[str, Any] | None,
        carried: dict[str, Any],
        **how: Any,
    ) -> dict[str, Any]:
        return dict(
            codec.decode(
                Proposal(said, state, **how).render_document(before(), carried),
                f"refs/checkpoints/{TWO}",
            ).state
        )

    def test_none_carries_it_on(self) -> None:
        assert self.state(fields(), None, {"a": 1}) == {"a": 1}

    def test_ones_own_replaces_it(self) -> None:
        assert self.state(fields(), {"b": 2}, {"a": 1}) == {"b": 2}
        assert self.state(fields(), {}, {"a": 1}) == {}

    def test_keys_that_others_write_too_are_theirs(self) -> None:
        assert self.state(fields(), {"a": 1, "b": 2}, {"a": 8, "c": 9}, keeps=("a", "d")) == {
            "a": 8,
            "b": 2,
        }

    def test_but_not_after_a_rewind(self) -> None:
        assert self.state(fields(rewound_to=ONE), {"a": 1}, {"a": 8}, keeps=("a",)) == {"a": 1}

    def test_a_change_makes_it_of_what_is_there(self) -> None:
        assert self.state(
            fields(), None, {"a": 1}, change=lambda state: state | {"a": state["a"] + 1}
        ) == {"a": 2}
