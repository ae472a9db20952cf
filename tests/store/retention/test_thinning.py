"""Thinning keeps one automatic checkpoint an hour, then one a day.

The kept checkpoint has the contents of the ones that go.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gitckpt import CheckpointInfo, Policy, Query, Store
from gitckpt.agents import turn_list
from gitckpt.model import policy
from gitckpt.model.policy import ExpiryCandidate
from gitckpt.store import local_checkpoints
from gitckpt.store.audit import doctor
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock
from tests.model.test_policy import newest
from tests.store.conftest import MakeStore, nth
from tests.store.retention.test_remove_expire import left as numbers
from tests.stores import DAY, HOUR, instant_of, timestamp

NOON = instant_of("2027-01-20T12:00:00Z")
ALL_AGES = Policy(keep_last=0)
MINUTE = HOUR // 60


def reasons(store: Store, rules: Policy = ALL_AGES, *, dry_run: bool = False) -> dict[int, str]:
    """Expire, and return the reason for each expired checkpoint by number."""
    found = store.expire(rules, dry_run=dry_run).checkpoints
    return {int(entry.id[:8], 16): decision.reason for entry, decision in found if decision.expires}


def agent_saves(
    store: Store, checkout: Checkout, clock: Clock, *instants: int, path: str = "work"
) -> None:
    """Overwrite a file and save as an agent, at each instant."""
    for number, instant in enumerate(instants):
        clock.instant = instant
        checkout.write(path, f"{instant} {number}\n")
        store.save("turn-complete", agent="claude")


@pytest.mark.long
def test_an_hour_then_a_day(store: Store, checkout: Checkout, clock: Clock) -> None:
    agent_saves(
        store, checkout, clock, *(NOON + minutes * MINUTE for minutes in (1, 2, 59, 60, 61, 300))
    )
    clock.instant = NOON + 20 * HOUR
    assert reasons(store) == {}
    clock.instant = NOON + DAY + 30 * MINUTE
    assert reasons(store, dry_run=True) == {1: "1d old, one an hour stays"}
    assert numbers(checkout) == [1, 2, 3, 4, 5, 6]
    assert reasons(store) == {1: "1d old, one an hour stays"}
    clock.instant = NOON + 2 * DAY
    assert reasons(store) == dict.fromkeys((4, 2), "1d old, one an hour stays")
    assert reasons(store) == {}
    clock.instant = NOON + 8 * DAY
    assert reasons(store) == dict.fromkeys((5, 3), "7d old, one a day stays")
    assert numbers(checkout) == [6]
    clock.instant = NOON + 800 * DAY
    assert reasons(store) == {}
    assert store.expire(Policy(everything=True, keep_last=0)).checkpoints[0][1].expires


def test_ages_are_settings(plain: Store, main_checkout: Checkout, clock: Clock) -> None:
    agent_saves(plain, main_checkout, clock, NOON, NOON + 1, NOON + 2 * HOUR)
    clock.instant = NOON + 3 * HOUR
    rules = Policy(keep_last=0, hourly_after=HOUR, daily_after=2 * HOUR)
    main_checkout.git("config", "ckpt.hourlyAfter", "1h")
    main_checkout.git("config", "ckpt.dailyAfter", "2h")
    main_checkout.git("config", "ckpt.keepLast", "0")
    assert checkpoints_of_store(plain).settings_reader.read_settings().policy == rules
    assert reasons(plain, rules) == {1: "3h old, one a day stays"}
    assert reasons(plain, Policy(keep_last=0, hourly_after=400 * DAY, daily_after=400 * DAY)) == {}


def test_the_newest_stay(plain: Store, main_checkout: Checkout, clock: Clock) -> None:
    agent_saves(plain, main_checkout, clock, *(NOON + number for number in range(5)))
    clock.instant = NOON + 2 * DAY
    assert sorted(reasons(plain, Policy(keep_last=3))) == [1, 2]


def test_what_people_saved_stays_and_stands_for_nothing(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    agent_saves(plain, main_checkout, clock, NOON)
    clock.instant = NOON + MINUTE
    plain.save("mine-complete")
    plain.save("mine-complete")
    clock.instant = NOON + 20 * DAY
    assert reasons(plain) == {}


def test_those_of_runs_stay(plain: Store, main_checkout: Checkout, clock: Clock) -> None:
    clock.instant = NOON
    run = plain.save("a-started", start="it", agent="claude").run
    plain.save("a-progress", run=run, agent="claude")
    clock.instant = NOON + 20 * DAY
    assert reasons(plain) == {}


@pytest.mark.long
def test_a_file_that_no_later_one_has(store: Store, checkout: Checkout, clock: Clock) -> None:
    """The last checkpoint of a deleted file stays, and replaces earlier ones."""
    checkout.write("notes", "somebody's\n")
    agent_saves(store, checkout, clock, NOON, NOON + MINUTE)
    os.unlink(checkout.path / "notes")
    agent_saves(store, checkout, clock, NOON + 2 * MINUTE, NOON + 3 * MINUTE, NOON + 4 * MINUTE)
    clock.instant = NOON + 2 * DAY
    assert sorted(reasons(store)) == [1, 3, 4]
    clock.instant = NOON + 20 * DAY
    assert reasons(store) == {}
    assert numbers(checkout) == [2, 5]
    store.restore(nth(2), paths=["notes"])
    assert (checkout.path / "notes").read_text() == "somebody's\n"


def test_a_change_that_was_taken_back_stays(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    main_checkout.commit("tracked", tracked="1\n")
    agent_saves(plain, main_checkout, clock, NOON, path="tracked")
    main_checkout.git("rm", "--quiet", "--force", "tracked")
    agent_saves(plain, main_checkout, clock, NOON + MINUTE)
    clock.instant = NOON + 2 * DAY
    assert reasons(plain) == {}


def test_a_change_that_was_put_back_stays(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    """A checkpoint with an agent's change stays where later ones lack that change."""
    main_checkout.commit("tracked", tracked="1\n")
    agent_saves(plain, main_checkout, clock, NOON, NOON + 1, path="tracked")
    main_checkout.git("checkout", "--quiet", "--", "tracked")
    agent_saves(plain, main_checkout, clock, NOON + 2, NOON + 3)
    clock.instant = NOON + 2 * DAY
    assert sorted(reasons(plain)) == [1, 3]


def test_a_mode_that_was_put_back_stays(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    clock.instant = NOON
    (main_checkout.path / "README").chmod(0o755)
    plain.save("turn-complete", agent="claude")
    (main_checkout.path / "README").chmod(0o644)
    plain.save("turn-complete", agent="claude")
    clock.instant = NOON + 2 * DAY
    assert reasons(plain) == {}


def test_without_a_branch_another_version_may_be_of_another_worktree(
    plain: Store, main_checkout: Checkout, make_store: MakeStore, clock: Clock
) -> None:
    other = main_checkout.path.parent / "other"
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(other))
    main_checkout.git("checkout", "--quiet", "--detach")
    agent_saves(plain, main_checkout, clock, NOON)
    plain.save("turn-complete", agent="claude")  # 2: the same files
    agent_saves(make_store(other), Checkout(other), clock, NOON + MINUTE)
    clock.instant = NOON + 2 * DAY
    assert sorted(reasons(plain)) == [1]


def test_a_file_that_was_committed_since(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    agent_saves(plain, main_checkout, clock, NOON)
    main_checkout.git("add", ".")
    main_checkout.commit("work")
    agent_saves(plain, main_checkout, clock, NOON + MINUTE, path="more")
    clock.instant = NOON + 2 * DAY
    assert sorted(reasons(plain)) == [1]


def test_a_commit_that_nothing_else_holds(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    clock.instant = NOON
    main_checkout.commit("on its own", alone="1\n")
    plain.record("commit-complete", trigger="post-commit")  # 1: its commit goes, and is not amended
    plain.save("turn-complete", agent="claude")  # 2: likewise
    main_checkout.git("reset", "--quiet", "--hard", "HEAD^")
    for number in range(3):
        main_checkout.commit(str(number), file=f"{number}\n")
        plain.record("commit-complete", trigger="post-commit")  # 3, 4, 5
        plain.save("turn-complete", agent="claude")
    clock.instant = NOON + 2 * DAY
    assert numbers(main_checkout) == list(range(1, 9))
    # 2 has the commit of 1, so 1 may go; no later checkpoint has the files of 2.
    assert sorted(reasons(plain)) == [3, 4, 5, 6, 7]
    assert numbers(main_checkout) == [1, 2, 8]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", ["commit", "document", "annotated"])
def test_what_is_tagged_stays(
    plain: Store, main_checkout: Checkout, clock: Clock, what: str
) -> None:
    clock.instant = NOON
    main_checkout.commit("one", one="1")
    plain.record("commit-complete", trigger="post-commit")
    main_checkout.commit("two", two="2")
    plain.record("commit-complete", trigger="post-commit")
    options = {
        "commit": ["v1", "HEAD^"],
        "document": ["v1", "refs/checkpoints/" + nth(1)],
        "annotated": ["-m", "x", "v1", "HEAD^"],
    }[what]
    main_checkout.git("tag", *options)
    clock.instant = NOON + 2 * DAY
    assert reasons(plain) == {}
    clock.instant = NOON + 40 * DAY
    assert sorted(reasons(plain)) == [2]
    main_checkout.git("tag", "-d", "v1")
    assert sorted(reasons(plain)) == [1]


def test_of_another_branch(plain: Store, main_checkout: Checkout, clock: Clock) -> None:
    agent_saves(plain, main_checkout, clock, NOON)
    main_checkout.git("checkout", "--quiet", "-b", "other")
    agent_saves(plain, main_checkout, clock, NOON + 1)
    clock.instant = NOON + 2 * DAY
    assert reasons(plain) == {}


def test_what_a_run_was_forked_from_stays(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    agent_saves(plain, main_checkout, clock, NOON, NOON + 1, NOON + 2)
    plain.record("run-started", start="it", forked_from=nth(1))
    clock.instant = NOON + 2 * DAY
    assert sorted(reasons(plain)) == [2]


@pytest.mark.long
def test_what_a_worktree_was_made_from_stays(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    agent_saves(plain, main_checkout, clock, NOON, NOON + 1, NOON + 2)
    plain.resume(nth(1))
    clock.instant = NOON + 2 * DAY
    assert sorted(reasons(plain)) == [2]
    assert plain.verify().is_clean


def test_an_operation_under_way_stays(plain: Store, main_checkout: Checkout, clock: Clock) -> None:
    clock.instant = NOON
    main_checkout.git("bisect", "start")
    agent_saves(plain, main_checkout, clock, NOON)
    main_checkout.git("bisect", "reset")
    agent_saves(plain, main_checkout, clock, NOON + 1, NOON + 2)
    clock.instant = NOON + 2 * DAY
    assert sorted(reasons(plain)) == [2]


def fetch_forged(checkout: Checkout, store: Store, change: Callable[[str], str]) -> None:
    """Add a ref to a document that was written elsewhere."""
    forged = change(store.raw(nth(1)).decode().replace(nth(1), nth(99)))
    oid = checkout.git("hash-object", "-w", "--stdin", data=forged)
    checkout.git("update-ref", "refs/checkpoints/" + nth(99), oid)


def test_what_was_fetched_stands_for_nothing_of_ours(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    agent_saves(plain, main_checkout, clock, NOON)
    stamp = timestamp(NOON)
    fetch_forged(main_checkout, plain, lambda text: text.replace(stamp, timestamp(NOON + MINUTE)))
    clock.instant = NOON + 2 * DAY
    assert reasons(plain) == {}
    assert len(plain.list()) == 2
    (forged,) = plain.list(Query(ids=[nth(99)]))
    local_checkpoints.append_lines(
        checkpoints_of_store(plain).repository, [(forged.id, forged.oid)]
    )
    assert sorted(reasons(plain)) == [1]


def test_a_fetched_one_of_a_hook_stands_for_nothing_of_ours(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    clock.instant = NOON
    plain.record("commit-complete", trigger="post-commit")
    fetch_forged(
        main_checkout, plain, lambda text: text.replace(timestamp(NOON), timestamp(NOON + MINUTE))
    )
    clock.instant = NOON + 9 * DAY
    assert reasons(plain) == {}


def test_what_is_not_known_to_be_ours_stays(
    plain: Store, main_checkout: Checkout, clock: Clock, make_store: MakeStore
) -> None:
    agent_saves(plain, main_checkout, clock, NOON, NOON + 1)
    plain.write_notes()
    os.unlink(main_checkout.path / ".git/ckpt" / "written")
    clock.instant = NOON + 2 * DAY
    assert reasons(plain) == {}


def test_files_that_cannot_be_read_are_nowhere_else(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    agent_saves(plain, main_checkout, clock, NOON, NOON + 1)
    tree = plain.read(nth(1)).tree
    clock.instant = NOON + 2 * DAY
    files = main_checkout.git("rev-parse", f"{tree}:files")
    os.unlink(main_checkout.path / ".git/objects" / files[:2] / files[2:])
    assert reasons(plain) == {}


def save_in_session(store: Store, clock: Clock, instant: int, label: str) -> str:
    """Save as a hook of an agent does: a turn, or a guard in the middle of one."""
    clock.instant = instant
    checkpoints = checkpoints_of_store(store)
    runs = checkpoints.index.list_runs()
    place: Any = {"run": runs[0]} if runs else {"start": "claude one"}
    trigger = "guard" if label.endswith("-progress") else "turn"
    return checkpoints.save(label, {"turn": 1}, trigger=trigger, agent="claude", **place).id


class TestSessions:
    @pytest.mark.long
    def test_keep_all_then_an_end_an_hour_then_the_last(
        self, store: Store, checkout: Checkout, clock: Clock
    ) -> None:
        for turn in range(3):
            for number, step in enumerate(("started", "progress", "complete")):
                checkout.write("work", f"{turn} {step}\n")
                instant = NOON + (10 * turn + number) * MINUTE
                save_in_session(store, clock, instant, f"turn-{turn + 1}-{step}")
        clock.instant = NOON + 23 * HOUR
        assert reasons(store) == {}
        clock.instant = NOON + 2 * DAY
        ends = dict.fromkeys((6, 3), "1d old, one an hour stays")
        assert reasons(store, dry_run=True) == ends
        assert reasons(store) == ends
        assert numbers(checkout) == [1, 2, 4, 5, 7, 8, 9]
        assert [turn.status for turn in turn_list.list_turns(store)] == ["complete"] * 3
        assert reasons(store) == {}
        clock.instant = NOON + 8 * DAY + HOUR
        assert set(reasons(store).values()) == {"8d old, only the last of a session stays"}
        assert numbers(checkout) == [9]
        checkout.git("add", "work")
        checkout.git("commit", "-q", "-m", "work")
        assert store.verify().is_clean
        clock.instant = NOON + 30 * DAY
        assert reasons(store) == {}
        assert len(store.runs()) == 1
        clock.instant = NOON + 31 * DAY
        store.expire(ALL_AGES)
        assert numbers(checkout) == [9]  # no branch has exactly its files

    def test_expire_as_a_whole_if_a_branch_has_the_result(
        self, plain: Store, main_checkout: Checkout, clock: Clock
    ) -> None:
        for step in ("started", "complete"):
            save_in_session(plain, clock, NOON, f"turn-1-{step}")
        clock.instant = NOON + 31 * DAY
        assert set(reasons(plain).values()) == {"a session, 31d old, limit 30d"}
        assert plain.runs() == []

    @pytest.mark.parametrize("hours", [1, 6 * 24])
    @pytest.mark.parametrize("command", ["git checkout -f", "git clean -fdq", "echo x > draft"])
    def test_keep_what_a_guarded_command_destroyed(
        self, plain: Store, main_checkout: Checkout, clock: Clock, command: str, hours: int
    ) -> None:
        """Of one hour the last checkpoint lacks what the guard saved."""
        save_in_session(plain, clock, NOON, "turn-1-started")
        main_checkout.write("draft", "hours of work\n")
        main_checkout.write("README", "hours of work\n")
        guard = save_in_session(plain, clock, NOON + MINUTE, "turn-1-progress")
        subprocess.run(["sh", "-c", command], cwd=main_checkout.path, check=True)
        save_in_session(plain, clock, NOON + 2 * MINUTE, "turn-1-complete")
        save_in_session(plain, clock, NOON + 3 * MINUTE, "turn-2-started")
        save_in_session(plain, clock, NOON + 4 * MINUTE, "turn-2-complete")
        clock.instant = NOON + hours * HOUR
        reasons(plain)
        plain.restore(guard)
        for name in ("draft", "README"):
            assert (main_checkout.path / name).read_text() == "hours of work\n"

    def test_keep_the_begin_of_a_turn_and_an_end_whose_files_are_gone(
        self, plain: Store, main_checkout: Checkout, clock: Clock
    ) -> None:
        """No guard is recorded while the files are as at the begin of the turn."""
        main_checkout.write("draft", "of the user\n")
        save_in_session(plain, clock, NOON, "turn-1-started")
        main_checkout.write("draft", "overwritten\n")
        save_in_session(plain, clock, NOON + 1, "turn-1-complete")
        (main_checkout.path / "draft").unlink()
        save_in_session(plain, clock, NOON + 2, "turn-2-started")
        save_in_session(plain, clock, NOON + 3, "turn-2-complete")
        save_in_session(plain, clock, NOON + 4, "turn-3-complete")
        clock.instant = NOON + 2 * DAY
        assert sorted(reasons(plain)) == [4]

    def test_are_not_thinned_by_what_was_fetched(
        self, plain: Store, main_checkout: Checkout, clock: Clock
    ) -> None:
        save_in_session(plain, clock, NOON, "turn-1-complete")
        stamp = timestamp(NOON)
        fetch_forged(
            main_checkout, plain, lambda text: text.replace(stamp, timestamp(NOON + MINUTE))
        )
        clock.instant = NOON + 20 * DAY
        assert reasons(plain) == {}


@pytest.mark.long
def test_what_is_gone_is_forgotten(plain: Store, main_checkout: Checkout, clock: Clock) -> None:
    agent_saves(plain, main_checkout, clock, *(NOON + number for number in range(200)))
    clock.instant = NOON + 2 * DAY
    assert len(reasons(plain)) == 199
    assert set(LocalCheckpoints.read(checkpoints_of_store(plain).repository)) == {nth(200)}
    assert (main_checkout.path / ".git/ckpt" / "written").stat().st_mode & 0o777 == 0o600


def test_a_pipe_in_its_place(plain: Store, main_checkout: Checkout, clock: Clock) -> None:
    agent_saves(plain, main_checkout, clock, NOON)
    path = main_checkout.path / ".git/ckpt" / "written"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    agent_saves(plain, main_checkout, clock, NOON + DAY)
    plain.write_notes()
    assert (
        set(LocalCheckpoints.read(checkpoints_of_store(plain).repository)),
        (main_checkout.path / ".git/ckpt/links").read_text(),
    ) == (set(), "")


@pytest.mark.long
def test_only_what_is_old_is_looked_at_and_nothing_else_would_go(
    plain: Store, main_checkout: Checkout, clock: Clock
) -> None:
    """The index selects the same candidates as the rules do for all checkpoints."""
    chance = random.Random(20270120)
    for _ in range(60):
        clock.instant = NOON + chance.randrange(60 * 24) * HOUR
        trigger = chance.choice([*("post-commit", "post-merge"), "manual", "manual", "safety"])
        plain.record("a-complete", trigger=trigger, agent=chance.choice([None, "claude"]))
    clock.instant = NOON + 61 * DAY
    everything = list(plain.list())
    for _ in range(40):
        ages = {
            name: chance.randrange(60) * DAY
            for name in ("older_than", "rewritten_older_than", "safety_older_than")
        }
        numbers = {
            name: chance.choice([0, 1, 5, 100]) for name in ("keep_last", "safety_keep_last")
        }
        rules = Policy(
            **ages,
            **numbers,
            hourly_after=400 * DAY,
            daily_after=400 * DAY,
            everything=chance.random() < 0.3,
        )
        candidates = [
            ExpiryCandidate(
                each.id,
                each.time,
                each.trigger,
                each.run,
                rewritten=False,
                agent=each.agent is not None,
            )
            for each in everything
        ]
        decided = policy.decide_expiry(
            candidates, rules, newest(candidates, rules), now=clock.instant
        )
        assert [entry.id for entry, _ in plain.expire(rules, dry_run=True).checkpoints] == [
            each.id for each in decided if each.expires
        ]


@pytest.mark.parametrize(
    ("who", "cure"),
    [
        ("agent", "git ckpt expire; if too many stay: lower ages in [retention] of gitckpt.toml"),
        ("person", "git ckpt expire --all --older-than 90d --dry-run; then without --dry-run"),
        ("run", "see git ckpt runs; remove each run that you do not need: git ckpt remove RUN"),
    ],
)
def test_the_doctor_says_what_many_cost(
    plain: Store, monkeypatch: pytest.MonkeyPatch, who: str, cure: str
) -> None:
    def many() -> list[tuple[str, str | None]]:
        return [
            (one.sentence, one.cure)
            for one in plain.examine().findings
            if one.code == "many-checkpoints"
        ]

    run = plain.record("a-started", start="it").run if who == "run" else None
    for _ in range(2):
        plain.record("turn-complete", agent="claude" if who == "agent" else None, run=run)
    assert many() == []
    count = len(plain.list())
    monkeypatch.setattr(doctor, "_MANY", count)
    numbers = {name: count if name == who else 0 for name in ("run", "agent", "person")}
    sentence = (
        f"holds {count} checkpoints ({numbers['run']} of runs, {numbers['agent']} by hooks and "
        f"agents, {numbers['person']} by hand), "
        "which git fetch, push and gc read one by one: about 0 s each time"
    )
    assert many() == [(sentence, cure)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_what_is_thinned_is_in_a_later_one_whatever_was_done(
    plain: Store, main_checkout: Checkout, clock: Clock, seed: int
) -> None:
    """Each file of a thinned checkpoint is in a kept one, after random work.

    Agents, hooks and people work at random, and time passes.
    """
    chance = random.Random(seed)
    clock.instant = NOON
    for number in range(60):
        clock.instant += chance.randrange(1, 30) * MINUTE
        path = main_checkout.path / f"file{chance.randrange(5)}"
        deed = chance.randrange(8)
        if deed < 3:
            path.write_text(f"{number}\n")
        elif deed == 3:
            main_checkout.git("checkout", "--quiet", "HEAD", "--", ".")
        elif deed == 4:
            path.unlink(missing_ok=True)
        elif deed == 5:
            main_checkout.git(
                "checkout",
                "--quiet",
                *(["--detach"] if chance.random() < 0.3 else ["-B", chance.choice("abc")]),
            )
        else:
            main_checkout.git("add", "--all")
            amend = ["--amend"] if chance.random() < 0.3 else []
            main_checkout.git("commit", "--quiet", "--allow-empty", "-m", str(number), *amend)
            plain.record("commit-complete", trigger="post-commit")
        plain.save("turn-complete", agent=chance.choice(["claude", "claude", "codex", None]))
    before = list(plain.list())

    def files(entry: CheckpointInfo) -> dict[str, str]:
        tree = f"{entry.tree}:files" if entry.tree else entry.git_sha
        lines = main_checkout.git("ls-tree", "-r", tree).splitlines()
        return {line.partition("\t")[2]: line.partition("\t")[0] for line in lines}

    held = {entry.id: (files(entry), files(replace(entry, tree=None))) for entry in before}
    for days in (2, 9):
        clock.instant = NOON + days * DAY
        gone = plain.expire(
            Policy(keep_last=0, older_than=400 * DAY, rewritten_older_than=400 * DAY)
        ).checkpoints
        staying = {entry.id for entry in plain.list()}
        commits = {entry.git_sha for entry in before if entry.id in staying}
        reached = main_checkout.git("rev-list", "--branches", *commits).split()
        for entry, _ in gone:
            assert entry.agent is not None or entry.trigger == "post-commit"
            later = [
                one
                for one in before
                if one.id in staying and one.branch == entry.branch and one.time > entry.time
            ]
            kept = entry.git_sha in reached
            own, committed = held[entry.id]
            wanted = {
                path for path, blob in own.items() if not (kept and committed.get(path) == blob)
            }

            def has(one: CheckpointInfo, path: str) -> bool:
                then = held[one.id][0].get(path)
                return then is not None and (
                    then == own[path] or (one.branch is not None and then != committed.get(path))  # noqa: B023
                )

            assert later
            assert any(all(has(one, path) for path in wanted) for one in later), (entry, wanted)
            assert kept or entry.trigger != "post-commit"
    assert main_checkout.git("fsck", "--no-dangling") == ""
