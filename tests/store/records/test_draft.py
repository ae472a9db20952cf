"""Drafts: arguments of `record` and `save`, checkpoints, and state updates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitckpt import Attempt, Checkpoint, Pipeline, Progress, StateError, UsageError, Worktree
from gitckpt.model import codec
from gitckpt.store.records import draft
from tests.store.conftest import ONE, RUN, THREE, TWO

INSTANT = 1_800_000_000_000_000
KNOWN = (
    "agent, attempt, errors, forked_from, id, message, pipeline, progress, rewound_to, run, trigger"
)
COMMIT, TREE = "a" * 40, "b" * 40


def drafted(
    state: dict[str, Any] | None = None, **details: Any
) -> tuple[Checkpoint, dict[str, Any], dict[str, Any] | None]:
    given: Any = details
    return draft.make_checkpoint(
        "plan",
        state,
        given,
        head=(COMMIT, "main"),
        worktree=None,
        checkpoint_id=ONE,
        instant=INSTANT,
    )


def refused(phase: Any, details: dict[str, Any], **others: Any) -> tuple[str, str | None]:
    """Return message and hint."""
    given: Any = details
    with pytest.raises(UsageError) as caught:
        draft.require_valid_arguments(phase, given, **others)
    return caught.value.message, caught.value.hint


class TestCalls:
    """A wrong call is refused before anything is done."""

    @pytest.mark.parametrize(
        ("details", "others"),
        [
            ({}, {}),
            (
                dict.fromkeys(
                    (
                        "run",
                        "message",
                        "agent",
                        "forked_from",
                        "rewound_to",
                        "progress",
                        "pipeline",
                        "attempt",
                    )
                ),
                {},
            ),
            (
                {},
                dict.fromkeys(
                    ("start", "key", "base", "change", "progress_of", "state", "worktree")
                )
                | {"keeps": None},
            ),
            (
                {
                    "run": RUN,
                    "message": "",
                    "agent": "",
                    "forked_from": ONE,
                    "rewound_to": TWO,
                    "id": THREE,
                    "trigger": "step",
                    "errors": ["x"],
                },
                {"state": {}, "base": COMMIT, "keeps": ["a"], "worktree": Worktree(dirty=False)},
            ),
            (
                {"progress": Progress(), "pipeline": Pipeline(), "attempt": Attempt("plan")},
                {"start": "x", "key": "y"},
            ),
            ({}, {"change": dict, "progress_of": len}),
            ({"run": RUN}, {"change": dict}),
        ],
    )
    def test_what_may_be_said(self, details: dict[str, Any], others: dict[str, Any]) -> None:
        given: Any = details
        draft.require_valid_arguments("plan", given, **others)

    @pytest.mark.parametrize(
        ("details", "others", "message"),
        [
            *(
                ({name: 7}, {}, f"{name}: must be a string, not 7")
                for name in ("run", "message", "agent", "forked_from", "rewound_to")
            ),
            *(
                ({name: None}, {}, f"{name}: must be a string, not None")
                for name in ("id", "trigger")
            ),
            ({"progress": 7}, {}, "progress: must be a Progress, not 7"),
            ({"pipeline": 7}, {}, "pipeline: must be a Pipeline, not 7"),
            ({"attempt": 7}, {}, "attempt: must be an Attempt, not 7"),
            *(
                ({}, {name: 7}, f"{name}: must be a string, not 7")
                for name in ("start", "key", "base")
            ),
            *(
                ({}, {name: 7}, f"{name}: must be a function, not 7")
                for name in ("change", "progress_of")
            ),
            ({}, {"keeps": "a"}, "keeps: must be a list of strings, not 'a'"),
            ({}, {"keeps": [7]}, "keeps[0]: must be a string, not 7"),
            ({}, {"worktree": 7}, "worktree: must be what Store.capture returned, not 7"),
        ],
    )
    def test_of_a_wrong_type(
        self, details: dict[str, Any], others: dict[str, Any], message: str
    ) -> None:
        assert refused("plan", details, **others)[0] == message

    @pytest.mark.parametrize(
        ("details", "others", "said"),
        [
            (
                {"worktree": None, "zebra": 1},
                {},
                ("there is no argument 'worktree'", f"valid arguments: {KNOWN}"),
            ),
            (
                {},
                {"key": "y"},
                (
                    "only a new run takes a key",
                    "name the new run: start=…, or find the existing run: Store.run_of(key)",
                ),
            ),
            (
                {"run": RUN},
                {"start": "x"},
                ("start and run exclude each other", "give one of the two"),
            ),
            (
                {},
                {"change": dict, "state": {}},
                ("change and state exclude each other", "give one of the two"),
            ),
            (
                {},
                {"progress_of": len},
                (
                    "progress_of needs the state that change returns",
                    "also give change, or give progress instead of progress_of",
                ),
            ),
        ],
    )
    def test_what_cannot_be_together(
        self, details: dict[str, Any], others: dict[str, Any], said: tuple[str, str]
    ) -> None:
        assert refused("plan", details, **others) == said

    def test_a_label_is_a_string(self) -> None:
        assert refused(None, {}) == ("label: must be a string, not None", None)


class TestDrafts:
    """A draft has the checkpoint, the keys of its document, and the state."""

    def test_of_next_to_nothing(self) -> None:
        checkpoint, fields, state = drafted()
        assert checkpoint == Checkpoint(
            id=ONE,
            label="plan-complete",
            timestamp="2027-01-15T08:00:00.000000Z",
            git_sha=COMMIT,
            branch="main",
            trigger="manual",
        )
        assert (fields, state) == (codec.document_fields(checkpoint), None)

    def test_of_all_that_may_be_said(self) -> None:
        details: dict[str, Any] = {
            "run": RUN,
            "trigger": "step",
            "message": "one line",
            "agent": "ada",
            "progress": Progress(current_phase=1),
            "pipeline": Pipeline(name="ci"),
            "attempt": Attempt("plan", 2),
            "forked_from": TWO,
            "rewound_to": THREE,
        }
        files = Worktree(dirty=True, tree=TREE)
        given: Any = details | {"errors": ["a", "b"]}
        made = draft.make_checkpoint(
            "plan-failed",
            {"n": 1},
            given,
            head=("", None),
            worktree=files,
            checkpoint_id=ONE,
            instant=INSTANT + 1,
        )
        expected = Checkpoint(
            id=ONE,
            label="plan-failed",
            timestamp="2027-01-15T08:00:00.000001Z",
            git_sha="",
            branch=None,
            errors=("a", "b"),
            worktree=files,
            **details,
        )
        assert made == (expected, codec.document_fields(expected), {"n": 1})

    def test_an_empty_message_is_none(self) -> None:
        assert drafted(message="")[0].message is None

    @pytest.mark.parametrize("message", ["a\nb", "a\n", "\n", "a\u2028b", "a\rb", "x" * 1001])
    def test_a_message_is_one_line(self, message: str) -> None:
        with pytest.raises(UsageError) as caught:
            drafted(message=message)
        assert (caught.value.message, caught.value.hint) == (
            "a message is one line of at most 1,000 characters",
            "shorten the message, and put the rest into the state",
        )

    def test_the_state_is_a_copy(self) -> None:
        state = {"n": 1}
        made = drafted(state)[2]
        assert (made, made is state) == (state, False)

    def test_a_state_is_a_map(self) -> None:
        wrong: Any = [1]
        with pytest.raises(StateError) as caught:
            drafted(wrong)
        assert (caught.value.path, caught.value.message) == (
            "",
            "/: a state is a map of names to values, not [1]",
        )

    def test_what_a_reader_would_refuse_is_refused(self) -> None:
        with pytest.raises(UsageError) as caught:
            drafted(attempt=Attempt("plan", 0))
        assert caught.value.message == "attempt.number: must be 1 or more, not 0"

    def test_what_is_complete_is_not_judged_by_what_was_handed_in(self) -> None:
        """The draft keeps `completed` as given.

        The recorder settles it once it knows the checkpoint's place in the run.
        """
        pipeline = Pipeline(name="ci", phases=("a",), completed={"b": ONE})
        checkpoint, fields, _ = drafted(pipeline=pipeline)
        assert (checkpoint.pipeline, fields["pipeline"]["completed"]) == (pipeline, {"b": ONE})


class TestRecorded:
    """The recorded checkpoint has its place, and tables that the run carried on."""

    def fields(self, checkpoint: Checkpoint, **more: Any) -> dict[str, Any]:
        return codec.document_fields(checkpoint) | more

    def test_outside_of_runs(self) -> None:
        checkpoint = drafted()[0]
        fields = self.fields(checkpoint)
        del fields["parent"], fields["sequence"]
        assert draft.complete_checkpoint(checkpoint, fields, None) == checkpoint

    def test_its_place_and_its_state(self) -> None:
        checkpoint = drafted(run=RUN)[0]
        made = draft.complete_checkpoint(
            checkpoint, self.fields(checkpoint, run=RUN, parent=TWO, sequence=7), {"n": 1}
        )
        assert made == replace(checkpoint, run=RUN, parent=TWO, sequence=7, state={"n": 1})

    def test_tables_that_the_run_carried_on(self) -> None:
        checkpoint = drafted(run=RUN)[0]
        tables = {
            "pipeline": {"name": "ci", "phases": ["a"], "completed": {"a": ONE}},
            "attempt": {"phase": "a", "number": 2},
        }
        made = draft.complete_checkpoint(
            checkpoint, self.fields(checkpoint, parent=TWO, sequence=7, **tables), {}
        )
        pipeline, attempt = Pipeline("ci", ("a",), {"a": ONE}), Attempt("a", 2)
        assert made == replace(
            checkpoint, parent=TWO, sequence=7, pipeline=pipeline, attempt=attempt
        )

    def test_of_its_own_tables_only_what_is_complete_is_the_runs(self) -> None:
        pipeline, attempt = Pipeline("ci", ("a",), {"a": TWO}), Attempt("a", 2)
        checkpoint = drafted(pipeline=pipeline, attempt=attempt)[0]
        fields = self.fields(checkpoint) | {
            "pipeline": {"name": "ci", "phases": ["a"], "completed": {"a": ONE}}
        }
        assert draft.complete_checkpoint(checkpoint, fields, {}) == replace(
            checkpoint, pipeline=replace(pipeline, completed={"a": ONE})
        )
        del fields["pipeline"]["completed"]
        assert draft.complete_checkpoint(checkpoint, fields, {}) == replace(
            checkpoint, pipeline=replace(pipeline, completed={})
        )


class TestChanging:
    """An update makes the state; checkpoint, keys and progress follow each call."""

    def test_the_state_is_what_it_returns(self) -> None:
        checkpoint, fields, _ = drafted(progress=Progress(current_phase=3))
        before = dict(fields)
        changing = draft.StateUpdater(
            checkpoint, fields, lambda state: state | {"n": state.get("n", 0) + 1}, None
        )
        assert (changing.state, changing.checkpoint) == ({}, checkpoint)
        given = {"n": 4}
        assert [changing(given), changing({}), given] == [{"n": 5}, {"n": 1}, {"n": 4}]
        assert (changing.state, changing.checkpoint, fields) == ({"n": 1}, checkpoint, before)

    def test_the_progress_is_what_the_state_says(self) -> None:
        checkpoint, fields, _ = drafted(progress=Progress(current_phase=3))
        changing = draft.StateUpdater(
            checkpoint,
            fields,
            lambda state: {"n": state["n"] + 1},
            lambda state: Progress(tasks_completed=state["n"]) if state["n"] < 9 else None,
        )
        assert fields == codec.document_fields(checkpoint) | {"progress": None}
        changing({"n": 1})
        done = replace(checkpoint, progress=Progress(tasks_completed=2))
        assert (changing.checkpoint, fields, changing.state) == (
            done,
            codec.document_fields(done),
            {"n": 2},
        )
        changing({"n": 8})
        none = replace(checkpoint, progress=None)
        assert (changing.checkpoint, fields) == (
            none,
            codec.document_fields(none) | {"progress": None},
        )

    def test_a_state_that_is_no_map_is_refused(self) -> None:
        checkpoint, fields, _ = drafted()
        wrong: Any = lambda state: [state]  # noqa: E731 - that of a caller
        with pytest.raises(StateError):
            draft.StateUpdater(checkpoint, fields, wrong, None)({})

    def test_a_progress_that_no_reader_would_take_is_refused(self) -> None:
        checkpoint, fields, _ = drafted()
        wrong = Progress()
        object.__setattr__(wrong, "tasks_total", -1)  # an invalid Progress is refused as well
        with pytest.raises(UsageError) as caught:
            draft.StateUpdater(checkpoint, fields, dict, lambda state: wrong)({})
        assert caught.value.message == "progress.tasks_total: must be 0 or more, not -1"

    def test_the_place_that_an_earlier_try_got_is_not_judged(self) -> None:
        checkpoint, fields, _ = drafted(run=RUN)
        fields.update(sequence=0, parent="nobody")
        assert draft.StateUpdater(checkpoint, fields, dict, None)({"n": 1}) == {"n": 1}


def test_a_successor_is_what_was_said_until_it_is_recorded() -> None:
    state: dict[str, Any] = {"n": 1}
    details: Any = {"message": "then"}
    after = draft.SuccessorCheckpoint("then", state, details)
    assert (after.label, after.state, after.details, after.checkpoint) == (
        "then",
        state,
        details,
        None,
    )
