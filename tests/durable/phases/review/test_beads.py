"""Child beads: the review files one issue per finding, and never waits for bd."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gitckpt import UsageError
from gitckpt.durable.command.execution import EXIT, TIMEOUT, CommandResult
from gitckpt.durable.phases.review import phase
from gitckpt.durable.phases.review.phase import BeadsTracker
from gitckpt.durable.phases.review.state import FIXED, ReviewFinding, ReviewState
from tests.cli.test_review import Pair, pair
from tests.durable.phases.review.examples import MID_CYCLE
from tests.durable.stage import Stage, stage

__all__ = ["pair", "stage"]

BD = r"""
touch "$CALLS.issues"
[ ! -e "$CALLS.broken" ] || { echo "Error: no beads database found" >&2; exit 1; }
case $1 in
    create)
        n=$(($(wc -l < "$CALLS.issues") + 1))
        printf 'bd-9.%s\t%s\t%s\n' "$n" "$2" "$3 $4 $5 $6 $7 $8" >> "$CALLS.issues"
        [ ! -e "$CALLS.kills" ] || { rm "$CALLS.kills"; kill -9 $(cat "$CALLS.driver"); sleep 9; }
        printf '{"id": "bd-9.%s", "title": "%s"}\n' "$n" "$2" ;;
    list)
        awk -F '\t' 'BEGIN { printf "[" } END { print "]" }
            { printf "%s{\n\"id\": \"%s\", \"title\": \"%s\"}", (NR > 1 ? "," : ""), $1, $2 }' \
            "$CALLS.issues" ;;
esac
"""
ONE = ReviewFinding("major", "it says one", 1)
TWO = ReviewFinding("minor", "it's 'quoted' and $(false)\n\nin two lines", 2)


def issue(severity: str, text: str) -> str:
    return f"ISSUE:\nSEVERITY: {severity}\nDESCRIPTION: {text}\n\n"


@dataclass
class Tracker:
    """An issue tracker in memory, called with the words of a shell command."""

    issues: dict[str, str] = field(default_factory=dict)
    lines: list[list[str]] = field(default_factory=list)
    refuses: str = "\0"
    answers: dict[str, tuple[CommandResult, bytes]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def call(self, line: str) -> tuple[CommandResult, bytes]:
        printed = subprocess.run(
            ["sh", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True
        ).stdout
        words = printed.decode().split("\0")[:-1]
        self.lines.append(words)
        if words[1] in self.answers:
            return self.answers[words[1]]
        if words[1] == "list":
            return ended(0), json.dumps(
                [{"id": bead, "title": title} for bead, title in self.issues.items()]
            ).encode()
        if self.refuses in words[2]:
            return ended(1, "Error: no\n"), b""
        self.issues[f"bd-9.{len(self.issues) + 1}"] = words[2]
        return ended(0), json.dumps({"id": f"bd-9.{len(self.issues)}"}).encode()

    def file(self, *findings: ReviewFinding, **state: object) -> ReviewState:
        filing = phase.IssueCreator(
            BeadsTracker("bd-9", "ckpt-20270115-080000-x", self.call), self.said.append
        )
        return filing.create_missing_issues(replace(ReviewState(all_findings=findings), **state))  # type: ignore[arg-type]


def ended(code: int, tail: str = "", by: str = EXIT) -> CommandResult:
    return CommandResult(code, by, tail, 0.1)


class TestOfFindings:
    def test_each_becomes_a_child_once(self) -> None:
        tracker = Tracker()
        state = tracker.file(
            ONE, TWO, replace(ONE, cycle=2), replace(TWO, severity="major", status=FIXED)
        )
        assert state.child_bead_ids == ("bd-9.1", "bd-9.2")
        assert state.beads == {ONE.id: "bd-9.1", TWO.id: "bd-9.2"}
        assert [line[:2] for line in tracker.lines] == [
            ["bd", "list"],
            ["bd", "create"],
            ["bd", "create"],
        ]
        assert tracker.lines[0] == ["bd", "list", "--label", "ckpt-20270115-080000-x", "--json"]
        assert tracker.lines[2] == [
            *(
                "bd",
                "create",
                f"{TWO.id}: it's 'quoted' and $(false) in two lines",
                "--parent",
                "bd-9",
                "--type",
                "task",
            ),
            *(
                "--labels",
                "ckpt-20270115-080000-x",
                f"--description=minor, found in cycle 2\n\n{TWO.description}",
                "--json",
            ),
        ]
        again = Tracker()
        assert again.file(
            ONE, TWO, beads=state.beads, child_bead_ids=state.child_bead_ids
        ) == replace(state, all_findings=(ONE, TWO))
        assert again.lines == []

    def test_one_that_was_made_before_a_kill_is_found_again(self) -> None:
        tracker = Tracker({"bd-9.4": f"{ONE.id}: it says one", "-x": f"{TWO.id}: no id"})
        state = tracker.file(ONE, TWO)
        assert state.beads == {ONE.id: "bd-9.4", TWO.id: "bd-9.3"}

    def test_what_a_filter_found_becomes_none(self) -> None:
        tracker = Tracker()
        assert tracker.file(ReviewFinding("critical", "[filter:tests] no", 1)).child_bead_ids == ()
        assert tracker.lines == []

    def test_what_quasar_had_made_stays_and_is_not_made_again(self) -> None:
        table = {**MID_CYCLE.to_state_table(), "child_bead_ids": ["q-1.1"]}
        del table["more"]
        found = ReviewState.from_state_table(table)
        tracker = Tracker()
        filed = tracker.file(
            *found.all_findings, ONE, beads=found.beads, child_bead_ids=found.child_bead_ids
        )
        assert filed.child_bead_ids == ("q-1.1", "bd-9.1")
        assert (
            ReviewState.from_state_table(json.loads(json.dumps(filed.to_state_table()))).beads
            == filed.beads
        )

    def test_a_long_one_is_cut(self) -> None:
        tracker = Tracker()
        tracker.file(ReviewFinding("major", "é'\0" * 100_000, 1))
        title, text = tracker.lines[1][2], tracker.lines[1][9]
        assert (len(title.partition(": ")[2]), title[-1]) == (72, "…")
        assert len(text) < 3100


class TestATrackerThatFails:
    def test_one_that_is_refused_is_not_in_the_way_of_others(self) -> None:
        tracker = Tracker(refuses=ONE.id)
        state = tracker.file(ONE, TWO)
        assert (state.child_bead_ids, state.beads) == (("bd-9.1",), {TWO.id: "bd-9.1"})
        assert tracker.said == [
            (
                "no issue created for 1 of the findings; the next cycle retries: bd create: "
                "exit code 1: Error: no"
            )
        ]

    @pytest.mark.parametrize(
        ("answers", "calls", "why"),
        [
            (
                {"list": (ended(127, "sh: 1: bd: not found\n"), b"")},
                1,
                "bd list: exit code 127: sh: 1: bd: not found",
            ),
            ({"list": (ended(-9, by=TIMEOUT), b"")}, 1, "bd list timed out"),
            ({"create": (ended(-9, by=TIMEOUT), b"")}, 2, "bd create timed out"),
            ({"create": (ended(0), b"Created bd-9.1")}, 3, "bd create did not print JSON"),
            ({"create": (ended(0), b"[" * 100_000)}, 3, "bd create did not print JSON"),
            (
                {"create": (ended(0), b"")},
                3,
                f"bd does not report the id of the issue for {ONE.id}",
            ),
            (
                {"create": (ended(0), b'[{"id": "../x"}]')},
                3,
                f"bd does not report the id of the issue for {ONE.id}",
            ),
            (
                {"create": (ended(0), b"[1]")},
                3,
                f"bd does not report the id of the issue for {ONE.id}",
            ),
        ],
    )
    def test_it_is_told_of(
        self, answers: dict[str, tuple[CommandResult, bytes]], calls: int, why: str
    ) -> None:
        tracker = Tracker(answers=answers)
        state = tracker.file(ONE, TWO, child_bead_ids=("old",))
        assert (state.child_bead_ids, state.beads) == (("old",), {})
        assert tracker.said == [
            f"no issue created for 2 of the findings; the next cycle retries: {why}"
        ]
        assert len(tracker.lines) == calls

    @pytest.mark.parametrize(
        "said", [b"", b"null", b'{"id": "bd-9.1"}', b'[1, {"id": 1, "title": "x"}, {"title": "x"}]']
    )
    def test_a_list_that_has_nothing(self, said: bytes) -> None:
        assert Tracker(answers={"list": (ended(0), said)}).file(ONE).child_bead_ids == ("bd-9.1",)


class TestReview:
    CODER = tuple(
        {"write": {"a": f"{number}\n"}, "say": "did", "cost": 0.1} for number in (1, 2, 3)
    )
    AGAIN = issue("major", "it says one")
    REVIEWER = ({"say": AGAIN}, {"say": AGAIN + issue("minor", "no end")}, {"say": "APPROVED:"})

    def say(self, pair: Pair, *reviewer: dict[str, str]) -> None:
        pair.say([*self.CODER], [*(reviewer or self.REVIEWER)])

    def note(self, stage: Stage, name: str) -> Path:
        return Path(f"{stage.env['CALLS']}.{name}")

    @pytest.mark.long
    def test_new_findings_get_child_beads(self, pair: Pair, stage: Stage) -> None:
        self.say(pair)
        stage.program("bd", BD)
        done = pair.review("--epic", "bd-9")
        assert done.code == 0, done.err
        run = stage.run()
        state = stage.newest(run).state["review"]
        assert state["child_bead_ids"] == ["bd-9.1", "bd-9.2"]
        assert list(state["more"]["beads"].values()) == ["bd-9.1", "bd-9.2"]
        made = [line.split("\t") for line in self.note(stage, "issues").read_text().splitlines()]
        assert [each[1].partition(": ")[2] for each in made] == ["it says one", "no end"]
        assert {each[2] for each in made} == {f"--parent bd-9 --type task --labels ckpt-{run}"}
        assert stage.calls.count("bd") == 4

    @pytest.mark.long
    def test_without_an_epic_nobody_is_asked(self, pair: Pair, stage: Stage) -> None:
        self.say(pair)
        stage.program("bd", BD)
        assert pair.review().code == 0
        assert stage.calls == []
        assert stage.newest(stage.run()).state["review"]["child_bead_ids"] == []

    @pytest.mark.long
    def test_a_tracker_that_fails_fails_no_review(self, pair: Pair, stage: Stage) -> None:
        self.say(pair)
        stage.program("bd", BD)
        self.note(stage, "broken").touch()
        done = pair.review("--epic", "bd-9")
        assert done.code == 0, done.err
        why = "bd list: exit code 1: Error: no beads database found"
        assert (
            f"[review] no issue created for 2 of the findings; the next cycle retries: {why}\n"
            in done.err
        )
        assert stage.newest(stage.run()).state["review"]["child_bead_ids"] == []

    @pytest.mark.long
    def test_a_driver_that_is_killed_while_one_is_made(self, pair: Pair, stage: Stage) -> None:
        self.say(pair)
        stage.program("bd", BD)
        self.note(stage, "kills").touch()
        words = (
            "review",
            "Say two",
            "--coder",
            "coder",
            "--reviewer",
            "reviewer",
            "--epic",
            "bd-9",
        )
        driver = stage.begin(*words)
        self.note(stage, "driver").write_text(str(driver.pid))
        assert driver.wait(timeout=60) == -9
        run = stage.run()
        assert stage.newest(run).state["review"]["child_bead_ids"] == []
        assert len(self.note(stage, "issues").read_text().splitlines()) == 1
        done = stage.ckpt("resume", run)
        assert done.code == 0, done.err
        assert stage.newest(run).state["review"]["child_bead_ids"] == ["bd-9.1", "bd-9.2"]

    def test_what_is_no_issue_is_refused_before_there_is_a_run(
        self, pair: Pair, stage: Stage
    ) -> None:
        self.say(pair)
        done = pair.review("--epic", "../x")
        assert (done.code, done.err.splitlines()[0]) == (2, "error: '../x' is not an issue id")
        assert stage.runs() == []
        with pytest.raises(UsageError):
            phase.parse_review_options(lambda name: {"title": "x", "epic": "-x"}.get(name, ""))
