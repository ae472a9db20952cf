"""A pipeline as a value: waits, phase names, groups, and equal definitions."""

# mypy: disable-error-code="arg-type,call-arg,call-overload,dict-item,assignment,comparison-overlap"

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitckpt import Retries, UsageError
from gitckpt.durable.pipeline import definition as pipeline
from gitckpt.durable.pipeline.definition import (
    CHANGEABLE,
    CHANGEABLE_IN_PHASES,
    PhaseDefinition,
    PipelineDefinition,
    describe_changes,
)
from gitckpt.model.times import MICRO
from tests.stores import timestamp


def made(*phases: PhaseDefinition, **said: object) -> PipelineDefinition:
    return replace(PipelineDefinition("ci", phases), **said)


def named(*names: str, **said: object) -> PipelineDefinition:
    return made(*(PhaseDefinition(name, run="true") for name in names), **said)


class TestRetries:
    def test_the_wait_grows_to_its_limit(self) -> None:
        retries = Retries(attempts=9, delay=10 * MICRO, backoff=3.0, max_delay=60 * MICRO)
        assert [retries.wait_before(attempt, 0.5) / MICRO for attempt in (0, 1, 2, 3, 4, 5)] == [
            0,
            0,
            10,
            30,
            60,
            60,
        ]

    def test_the_default_limit_is_an_hour(self) -> None:
        assert Retries(attempts=99).wait_before(99, 0.5) == 3600 * MICRO

    def test_jitter(self) -> None:
        retries = Retries(attempts=1, delay=100, jitter=0.2)
        assert [retries.wait_before(2, random) for random in (0.0, 0.5, 0.75)] == [80, 100, 110]

    @given(
        st.builds(
            Retries,
            st.integers(0, 99),
            st.integers(0, 10**16),
            st.floats(1, 100),
            st.integers(0, 10**16),
            st.floats(0, 1),
        )
    )
    def test_a_wait_is_never_less_than_nothing_nor_twice_the_limit(self, retries: Retries) -> None:
        for attempt in (1, 2, 3, 10, 1000, 10**6):
            assert 0 <= retries.wait_before(attempt, 0.999) <= 2 * retries.max_delay

    def test_no_delay_stays_none_however_often(self) -> None:
        assert Retries(attempts=9, delay=0).wait_before(10**6, 0.9) == 0
        assert Retries(attempts=9, delay=0, backoff=float("inf")).wait_before(3, 0.9) == 0

    def test_what_comes_after_the_longest_has_a_timestamp(self) -> None:
        wait = Retries(attempts=9, delay=10**29, max_delay=10**30).wait_before(2, 0.999)
        assert timestamp(time.time_ns() // 1000 + wait) > timestamp(time.time_ns() // 1000)

    def test_which_failures(self) -> None:
        assert [Retries(attempts=1).retries(code) for code in (1, 75, None)] == [True, True, True]
        assert [Retries(attempts=1, on=(1, 75)).retries(code) for code in (1, 75, 2, None)] == [
            True,
            True,
            False,
            False,
        ]
        assert not Retries().retries(1)


class TestPhaseByName:
    PIPELINE = made(
        PhaseDefinition("read plan", use="read plan"),
        PhaseDefinition("tdd_planning", run="true", aliases=("planning",)),
        PhaseDefinition("Lint", run="true"),
    )

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("read plan", "read plan"),
            ("read-plan", "read plan"),
            ("Read_Plan", "read plan"),
            ("tdd_planning", "tdd_planning"),
            ("tdd planning", "tdd_planning"),
            ("PLANNING", "tdd_planning"),
            ("lint", "Lint"),
        ],
    )
    def test_what_a_person_types(self, text: str, name: str) -> None:
        assert self.PIPELINE.phase(text).name == name

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("read plna", "did you mean read plan? phases: read plan, tdd_planning, Lint"),
            ("plannin", "did you mean tdd_planning? phases: read plan, tdd_planning, Lint"),
            ("xyzzy", "phases: read plan, tdd_planning, Lint"),
        ],
    )
    def test_none_by_that_name(self, text: str, hint: str) -> None:
        with pytest.raises(UsageError) as caught:
            self.PIPELINE.phase(text)
        assert (caught.value.message, caught.value.hint) == (
            f"the pipeline ci has no phase {text!r}",
            hint,
        )


def test_where_groups_end() -> None:
    groups = {"a": "one", "b": "one", "c": None, "d": None, "e": "two", "f": "one", "g": "one"}
    definition = made(
        *(PhaseDefinition(name, run="true", group=group) for name, group in groups.items())
    )
    assert "".join(filter(definition.ends_phase_group, groups)) == "bcdeg"
    with pytest.raises(KeyError):
        definition.ends_phase_group("h")


class TestDigest:
    def test_what_is_in_it(self) -> None:
        full = PhaseDefinition(
            "full", run="x", env={"A": "1"}, needs=("lint",), on_resume="reset", must_change=True
        )
        definition = made(
            PhaseDefinition("lint", run="ruff check ."),
            PhaseDefinition("read plan", use="read plan"),
            full,
            env={"P": "0"},
        )
        digest = definition.value_digests()
        assert list(digest) == [
            *("env", "order", "lint.run", "read plan.use"),
            *("full.run", "full.env", "full.needs", "full.on_resume", "full.must_change"),
        ]
        assert digest["lint.run"] == "d1f1b5017d1e1ada"  # `"ruff check ."` | sha256sum
        assert digest["env"] == "3b53ff876a92cd23"  # `{"P":"0"}` | sha256sum

    def test_every_key_of_a_pipeline_counts_or_is_an_exception(self) -> None:
        usual = named("a", "b", inputs={"plan": ""})
        others: dict[str, object] = {
            "name": "other",
            "phases": usual.phases[:1],
            "description": "x",
            "autonomy": "batch",
            "timeout": 1,
            "env": {"A": "1"},
            "worktree": "remove_when_pushed",
            "retention": 1,
            "inputs": {"plan": "x"},
            "files": ("plan",),
            "source": "elsewhere",
        }
        assert set(others) == set(PipelineDefinition.__match_args__)
        same = {
            key
            for key, value in others.items()
            if replace(usual, **{key: value}).value_digests() == usual.value_digests()
        }
        assert same == set(CHANGEABLE) - {"phases"}

    def test_every_key_of_a_phase_counts_or_is_an_exception(self) -> None:
        usual = PhaseDefinition("a", run="true")
        others: dict[str, object] = {
            "name": "other",
            "run": "false",
            "use": "loop",
            "env": {"A": "1"},
            "timeout": 1,
            "idle_timeout": 1,
            "retries": Retries(attempts=3),
            "autosave": 0,
            "max_recoveries": 0,
            "group": "x",
            "needs": ("b",),
            "on_resume": "reset",
            "must_change": True,
            "aliases": ("x",),
            "skip_with": ("plan",),
            "options": {"plan": "x"},
        }
        assert set(others) == set(PhaseDefinition.__match_args__)
        alone = made(usual).value_digests()
        same = {
            key
            for key, value in others.items()
            if made(replace(usual, **{key: value})).value_digests() == alone
        }
        assert same == set(CHANGEABLE_IN_PHASES) - {"name"}

    def test_orders_that_mean_nothing(self) -> None:
        one = PhaseDefinition("c", run="x", needs=("a", "b"), env={"A": "1", "B": "2"})
        other = PhaseDefinition("c", run="x", needs=("b", "a"), env={"B": "2", "A": "1"})
        assert made(one).value_digests() == made(other).value_digests()


class TestChanges:
    OLD = made(
        PhaseDefinition("lint", run="x", env={"A": "1"}),
        PhaseDefinition("v1.0 docs", run="y"),
        PhaseDefinition("test", run="z"),
    )

    def to(self, *phases: PhaseDefinition, **said: object) -> list[str]:
        return describe_changes(self.OLD.value_digests(), made(*phases, **said).value_digests())

    def test_none(self) -> None:
        assert self.to(*self.OLD.phases) == []

    def test_in_phases(self) -> None:
        lint, docs, test = self.OLD.phases
        assert self.to(replace(lint, run="xx", env={}), docs, replace(test, must_change=True)) == [
            "phase 'lint': run",
            "phase 'lint': env",
            "phase 'test': must_change",
        ]

    def test_phases_that_came_and_went(self) -> None:
        lint, _, test = self.OLD.phases
        assert self.to(
            lint, PhaseDefinition("build", run="b"), replace(test, run=None, use="u")
        ) == [
            "phase 'build' is new",
            "phase 'test': use",
            "phase 'test': run",
            "phase 'v1.0 docs' is gone",
        ]

    def test_order_and_environment(self) -> None:
        lint, docs, test = self.OLD.phases
        assert self.to(docs, lint, test, env={"P": "0"}) == ["env", "the order of the phases"]


class TestAutonomy:
    @pytest.mark.parametrize(
        ("text", "mode"),
        [
            (" Checkpoint\n", "checkpoint"),
            ("BATCH", "batch"),
            ("fully_autonomous",) * 2,
            ("Autonomous", "fully_autonomous"),
        ],
    )
    def test_modes(self, text: str, mode: str) -> None:
        assert pipeline.parse_autonomy(text) == mode

    @pytest.mark.parametrize(
        ("text", "hint"),
        [("bach", "did you mean batch?"), ("", "choose from checkpoint, batch, fully_autonomous")],
    )
    def test_no_mode(self, text: str, hint: str) -> None:
        with pytest.raises(UsageError) as caught:
            pipeline.parse_autonomy(text)
        assert (caught.value.message, caught.value.hint) == (
            f"{text!r} is not a mode of autonomy",
            hint,
        )
