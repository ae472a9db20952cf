"""Entries of a listing: rows, the conditions of a query, and who drove a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gitckpt import Checkpoint, CheckpointInfo, Query, UsageError, Worktree
from gitckpt.model.checkpoint import Submodule
from gitckpt.store.records import entry as module
from gitckpt.store.records import index
from tests.store.conftest import ONE, RUN, THREE, TWO, nth

COMMIT, TREE, OID = "a" * 40, "b" * 40, "c" * 40
TIME = 1_800_000_000_000_000
PLAIN = Checkpoint(
    id=ONE,
    label="plan-complete",
    timestamp="2027-01-15T08:00:00.000000Z",
    git_sha=COMMIT,
    branch=None,
    trigger="manual",
)
WHOLE = replace(
    PLAIN,
    run=RUN,
    sequence=7,
    parent=TWO,
    timestamp="2027-01-15T09:00:00+01:00",
    branch="main",
    message="one line",
    agent="ada",
    errors=("no",),
    worktree=Worktree(
        dirty=True,
        tree=TREE,
        operation="merge",
        submodules=(
            Submodule("lib", TWO, COMMIT, dirty=False),
            Submodule("a b", THREE, COMMIT, dirty=True),
        ),
    ),
    state={"n": 1},
)


class TestEntries:
    def test_of_next_to_nothing(self) -> None:
        assert CheckpointInfo.of(PLAIN, OID) == CheckpointInfo(
            id=ONE,
            oid=OID,
            run=None,
            sequence=None,
            label="plan-complete",
            timestamp="2027-01-15T08:00:00.000000Z",
            time=TIME,
            git_sha=COMMIT,
            branch=None,
            trigger="manual",
            message=None,
            agent=None,
            examined=False,
            tree=None,
            operation=None,
            changed=None,
            submodules="",
        )

    def test_of_everything(self) -> None:
        assert CheckpointInfo.of(WHOLE, OID) == CheckpointInfo(
            id=ONE,
            oid=OID,
            run=RUN,
            sequence=7,
            label="plan-complete",
            timestamp="2027-01-15T09:00:00+01:00",
            time=TIME,
            git_sha=COMMIT,
            branch="main",
            trigger="manual",
            message="one line",
            agent="ada",
            examined=True,
            tree=TREE,
            operation="merge",
            changed=None,
            submodules=f"{TWO} lib\0{THREE} a b\0",
        )

    def test_where_the_files_are_as_the_commit_has_them_nothing_has_changed(self) -> None:
        made = CheckpointInfo.of(replace(PLAIN, worktree=Worktree(dirty=False)), OID)
        assert (made.examined, made.changed, made.tree, made.operation, made.submodules) == (
            True,
            0,
            None,
            None,
            "",
        )


class TestRows:
    """A row has ids and oids as bytes, and no timestamp that repeats the time."""

    def test_of_next_to_nothing(self) -> None:
        row = dict(zip(module.COLUMNS, module.to_row(PLAIN, OID), strict=True))
        expected = {name: getattr(CheckpointInfo.of(PLAIN, OID), name) for name in module.FIELDS}
        id_ = bytes.fromhex(ONE.replace("-", ""))
        assert row == expected | {
            "id": id_,
            "oid": b"\xcc" * 20,
            "git_sha": b"\xaa" * 20,
            "timestamp": None,
            "name": "plan",
            "status": "complete",
            "rank": TIME,
        }

    @pytest.mark.parametrize(
        "checkpoint",
        [PLAIN, WHOLE, replace(PLAIN, git_sha="", worktree=Worktree(dirty=False))],
        ids=["plain", "whole", "unborn"],
    )
    def test_there_and_back(self, checkpoint: Checkpoint) -> None:
        row = module.to_row(checkpoint, OID)
        stored = [
            int(each) if isinstance(each, bool) else each for each in row[: len(module.FIELDS)]
        ]  # as SQLite returns it
        made = module.from_row(stored)
        assert made == CheckpointInfo.of(checkpoint, OID)
        assert type(made.examined) is bool

    def test_an_unusual_timestamp_is_kept(self) -> None:
        assert (
            module.to_row(WHOLE, OID)[module.FIELDS.index("timestamp")]
            == "2027-01-15T09:00:00+01:00"
        )

    def test_the_bytes_of_an_id(self) -> None:
        assert module.to_id_bytes(ONE) == bytes.fromhex(ONE.replace("-", ""))
        assert [
            module.to_id_bytes(text) for text in ("", ONE[:-1], ONE + "0", "x", nth(10).upper())
        ] == [None] * 5


class TestConditions:
    """Each criterion gives a clause and its values, alone and with all the others."""

    @pytest.mark.parametrize(
        ("query", "clause", "values"),
        [
            (Query(), "", []),
            (Query(limit=3, skip=4), "", []),
            (Query(run=RUN), " WHERE run = ?", [RUN]),
            (Query(run=""), " WHERE run = ?", [""]),
            (Query(git_sha=COMMIT), " WHERE git_sha = ?", [b"\xaa" * 20]),
            (Query(git_sha=""), " WHERE git_sha = ?", [b""]),
            (Query(since=0), " WHERE time >= ?", [0]),
            (Query(until=0), " WHERE time <= ?", [0]),
            (Query(until=5, in_run=True), " WHERE time <= ? AND run IS NOT NULL", [5]),
            (Query(until=5, in_run=False), " WHERE rank <= ? AND run IS NULL", [5]),
            (Query(status="failed"), " WHERE status = 'failed'", []),
            (Query(status="it's"), " WHERE status = ?", ["it's"]),
            (Query(status="é"), " WHERE status = ?", ["é"]),
            (Query(status=""), " WHERE status = ?", [""]),
            (Query(triggers=["safety"]), " WHERE trigger = 'safety'", []),
            (Query(triggers=["post-commit"]), " WHERE trigger = ?", ["post-commit"]),
            (Query(triggers=[]), " WHERE trigger IN (SELECT value FROM json_each(?))", ["[]"]),
            (
                Query(triggers=["a", "b"]),
                " WHERE trigger IN (SELECT value FROM json_each(?))",
                ['["a", "b"]'],
            ),
            (Query(by_agent=True), " WHERE agent IS NOT NULL", []),
            (Query(by_agent=False), " WHERE agent IS NULL", []),
            (Query(agent="claude"), " WHERE agent = ?", ["claude"]),
            (Query(branch="main"), " WHERE branch = ?", ["main"]),
            (Query(branch="refs/heads/a/b"), " WHERE branch = ?", ["a/b"]),
            (Query(grep="a+"), " WHERE has_match(?, message)", ["a+"]),
            (Query(safety=False), " WHERE trigger <> 'safety'", []),
            (Query(phase="plan"), " WHERE name = ?", ["plan"]),
            (Query(label="plan-failed"), " WHERE label = ?", ["plan-failed"]),
            (
                Query(ids=[ONE, "x"]),
                " WHERE id IN (SELECT id_bytes(value) FROM json_each(?))",
                [f'["{ONE}", "x"]'],
            ),
            (Query(runs=[RUN]), " WHERE run IN (SELECT value FROM json_each(?))", [f'["{RUN}"]']),
            (Query(runs=[]), " WHERE run IN (SELECT value FROM json_each(?))", ["[]"]),
        ],
    )
    def test_of_one_criterion(self, query: Query, clause: str, values: list[Any]) -> None:
        assert module.build_sql_condition(query) == (clause, values)

    def test_of_all(self) -> None:
        query = Query(
            run=RUN,
            git_sha=COMMIT,
            runs=[RUN],
            ids=[ONE],
            phase="plan",
            label="plan-a b",
            status="a b",
            in_run=True,
            since=1,
            until=2,
            triggers=["x-y"],
            by_agent=True,
        )
        parts = [
            *(
                "run = ?",
                "git_sha = ?",
                "time >= ?",
                "time <= ?",
                "name = ?",
                "label = ?",
                "status = ?",
                "trigger = ?",
                "run IS NOT NULL",
                "agent IS NOT NULL",
            ),
            *(
                "id IN (SELECT id_bytes(value) FROM json_each(?))",
                "run IN (SELECT value FROM json_each(?))",
            ),
        ]
        values = [
            RUN,
            b"\xaa" * 20,
            1,
            2,
            "plan",
            "plan-a b",
            "a b",
            "x-y",
            f'["{ONE}"]',
            f'["{RUN}"]',
        ]
        assert module.build_sql_condition(query) == (f" WHERE {' AND '.join(parts)}", values)


class TestQueries:
    """A query that cannot be meant is refused by the name of the criterion."""

    @pytest.mark.parametrize(
        ("criteria", "message"),
        [
            *(
                ({name: 7}, f"{name}: must be a string, not 7")
                for name in (
                    "run",
                    "git_sha",
                    "phase",
                    "status",
                    "label",
                    "agent",
                    "branch",
                    "grep",
                )
            ),
            ({"git_sha": "HEAD"}, "'HEAD' is not the full oid of a commit"),
            *(
                ({name: "7"}, f"{name}: must be a whole number, not '7'")
                for name in ("since", "until", "limit", "skip")
            ),
            *(
                ({name: -1}, f"{name}: must be a whole number from 0 on, not -1")
                for name in ("since", "until", "limit", "skip")
            ),
            *(
                ({name: "x"}, f"{name}: must be a list of strings, not 'x'")
                for name in ("runs", "ids", "triggers")
            ),
            *(
                ({name: ["x", 7]}, f"{name}[1]: must be a string, not 7")
                for name in ("runs", "ids", "triggers")
            ),
        ],
    )
    def test_what_is_refused(self, criteria: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError) as caught:
            Query(**criteria)
        assert caught.value.message == message

    def test_what_may_come_from_anywhere_is_taken_once(self) -> None:
        found: Any = {name: (each for each in ("x", "y")) for name in ("runs", "ids", "triggers")}
        query = Query(**found)
        assert (query.runs, query.ids, query.triggers) == (("x", "y"),) * 3


def of(trigger: str, phase: str) -> Checkpoint:
    return replace(PLAIN, run=RUN, sequence=1, trigger=trigger, label=phase)


TRIGGERS = [
    *(
        "manual",
        "phase",
        "step",
        "safety",
        "safety:worktree",
        "loop",
        "review",
        "submodule",
        "post-commit",
        "post-merge",
    ),
    *("import:forge", "import:superpowers", "import", "Import:x", "x"),
]
PHASES = [
    f"{name}-{status}"
    for name in ("run", "plan", "commit", "manual", "safety", "rewind")
    for status in ("complete", "progress")
]


class TestWhatTellsOfARun:
    """Python and SQL agree on which checkpoints describe their run."""

    @pytest.fixture
    def rows(self) -> Iterator[Any]:
        connection = index.connect_to_cache(":memory:")

        def ask(checkpoint: Checkpoint) -> tuple[Any, ...]:
            connection.execute("DELETE FROM entry")
            connection.execute(
                f"INSERT INTO entry VALUES ({', '.join('?' * len(module.COLUMNS))})",
                module.to_row(checkpoint, OID),
            )
            [row] = connection.execute(module.RUNS).fetchall()
            found: tuple[Any, ...] = row
            return found

        yield ask
        connection.close()

    def test_who_drove_it(self) -> None:
        found = {
            trigger: module.is_made_by_driver(CheckpointInfo.of(of(trigger, "plan-complete"), OID))
            for trigger in TRIGGERS
        }
        assert [trigger for trigger, is_driven in found.items() if is_driven] == [
            "phase",
            "import:forge",
        ]

    def test_what_has_become_of_it(self) -> None:
        told = [
            trigger
            for trigger in TRIGGERS
            if module.reports_status(CheckpointInfo.of(of(trigger, "plan-complete"), OID))
        ]
        assert told == [
            "manual",
            "phase",
            "step",
            "import:forge",
            "import:superpowers",
            "import",
            "Import:x",
            "x",
        ]
        labels = [
            phase
            for phase in PHASES
            if module.reports_status(CheckpointInfo.of(of("manual", phase), OID))
        ]
        assert labels == ["run-complete", "run-progress", "plan-complete", "plan-progress"]

    @pytest.mark.sampled(5)
    @pytest.mark.parametrize(("trigger", "phase"), list(itertools.product(TRIGGERS, PHASES)))
    def test_both_say_the_same(self, rows: Any, trigger: str, phase: str) -> None:
        checkpoint = of(trigger, phase)
        entry = CheckpointInfo.of(checkpoint, OID)
        is_driven = module.is_made_by_driver(entry)
        is_told = module.reports_status(entry) and (not is_driven or phase.startswith("run-"))
        assert rows(checkpoint) == (
            *(RUN, TIME, bytes.fromhex(ONE.replace("-", "")), OID, None, phase),
            *((phase, OID) if is_driven else (None, "")),
            TIME,
            *((phase, OID, trigger) if is_told else (None, "", None)),
        )
