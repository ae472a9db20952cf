"""Runs expire as a whole or not at all, with a reason, and survive any kill."""

from __future__ import annotations

import functools
import json
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gitckpt import LockHeld, Pipeline, Policy, Store
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.model import times
from gitckpt.store.config import settings
from gitckpt.store.retention import runs, sweep
from gitckpt.store.retention import worktree as worktree_removal
from gitckpt.store.retention.runs import RunFate
from gitckpt.store.runs import run_files
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock
from tests.store import working
from tests.store.conftest import MakeStore, require_whole, view
from tests.store.working import Work, driven_elsewhere
from tests.stores import DAY, head_of, hold_run
from tests.system.kills.killer import Killer, opened

pytestmark = pytest.mark.long

ALL = Policy(everything=True, older_than=0, keep_last=0)


def told(store: Store, rules: Policy, *, dry_run: bool = False) -> dict[str, str]:
    """Return each run's reason by the end of its id; a minus marks expiry."""
    found = store.expire(rules, dry_run=dry_run)
    return {fate.run[16:]: ("- " if fate.expires else "") + fate.reason for fate in found.runs}


def labels(store: Store) -> list[str]:
    """Return the labels of all checkpoints, oldest first."""
    return [entry.label for entry in reversed(store.list())]


worked = functools.partial(working.worked, in_branch=True)
"""Make runs whose work is also in a branch, unless a test says otherwise."""


class TestWholeRuns:
    def test_a_complete_one_goes_with_all_that_it_had(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore, clock: Clock
    ) -> None:
        before = main_checkout.refs()
        work = worked(plain, "done", make_store)
        hold_run(plain, work.run, "a test").release_lease()
        beside = Path(
            run_files.files_of_run(checkpoints_of_store(plain).repository, work.run).path, "input"
        )
        beside.mkdir(parents=True)
        (beside / "plan.md").write_text("x")
        checkpoints_of_store(make_store(work.worktree)).save(
            "run-complete",
            run=work.run,
            trigger="phase",
            beside=run_files.files_of_run(checkpoints_of_store(plain).repository, work.run).added,
        )
        clock.instant += 7 * DAY
        with_it = str(work.worktree.path)
        fate = RunFate(
            work.run,
            "run-complete",
            4,
            with_it,
            is_due=True,
            expires=True,
            reason="complete, 7d old, limit 7d",
        )
        whole = main_checkout.fingerprint()
        found = plain.expire(Policy(), dry_run=True)
        assert (found.runs, found.squashed) == ([fate], set())
        assert [(decision.expires, decision.reason) for _, decision in found.checkpoints] == [
            (True, fate.reason)
        ] * 4
        assert main_checkout.fingerprint() == whole
        assert plain.expire(Policy()) == found
        after = main_checkout.refs()
        del after["refs/notes/checkpoints"], after["refs/heads/made-done"]
        assert {
            ref: oid for ref, oid in after.items() if not ref.startswith("refs/keep/ckpt/")
        } == before  # those are younger than an hour
        assert not work.worktree.path.exists()
        assert not beside.parent.exists()
        assert plain.expire(Policy()).runs == []
        assert plain.verify().findings == []

    @pytest.mark.long
    def test_what_is_said_of_each(self, plain: Store, make_store: MakeStore, clock: Clock) -> None:
        held = worked(plain, "held", make_store)
        worked(plain, "open", make_store, end="build-complete")
        worked(plain, "failed", make_store, end="build-failed")
        driven = worked(plain, "driven", make_store)
        worked(plain, "done", make_store)
        clock.instant += 7 * DAY
        held.worktree.write("more", "x")
        driven_elsewhere(plain, driven.run)
        worked(plain, "young", make_store)
        reasons = {
            "young": "complete, 1s old, limit 7d",
            "done": "- complete, 7d old, limit 7d",
            "driven": "a process drives the run",
            "failed": "unfinished: failed",
            "open": "unfinished: paused",
            "held": f"the worktree {held.worktree.path} has contents that no checkpoint has: more",
        }
        young = reasons.pop("young")
        for dry_run in (True, False):
            found = told(plain, Policy(), dry_run=dry_run)
            assert found.pop("young").startswith(young[:10])
            assert found == reasons
        assert {fate.run[16:]: fate.is_due for fate in plain.expire(Policy()).runs} == {
            "young": False,
            "driven": False,
            "failed": False,
            "open": False,
            "held": True,
        }
        assert len(labels(plain)) == 14

    def test_hook_checkpoints_go_with_their_run_and_not_before(
        self, plain: Store, clock: Clock
    ) -> None:
        run = plain.record("run-started", {}, start="r", trigger="phase").run
        plain.record("commit-complete", {}, run=run, trigger="post-commit")
        clock.instant += 400 * DAY
        assert told(plain, Policy(keep_last=0)) == {"r": "unfinished: open"}
        plain.record("run-complete", {}, run=run, trigger="phase")
        clock.instant += 6 * DAY
        assert told(plain, Policy(keep_last=0)) == {"r": "complete, 6d old, limit 7d"}
        assert labels(plain) == ["run-started", "commit-complete", "run-complete"]
        clock.instant += DAY
        assert told(plain, Policy(keep_last=0)) == {"r": "- complete, 7d old, limit 7d"}
        assert labels(plain) == []

    def test_a_run_whose_worktree_is_gone(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore, clock: Clock
    ) -> None:
        work = worked(plain, "r", make_store)
        work.worktree.write("staged", "x")
        work.worktree.git("add", "staged")
        shutil.rmtree(work.worktree.path)
        clock.instant += 7 * DAY
        assert told(plain, Policy(), dry_run=True) == {"r": "- complete, 7d old, limit 7d"}
        assert told(plain, Policy()) == {"r": "- complete, 7d old, limit 7d"}
        assert labels(plain) == ["safety-complete"]
        assert main_checkout.git("worktree", "list").count("\n") == 0

    def test_a_run_that_went_on_meanwhile_stays(
        self, plain: Store, make_store: MakeStore, clock: Clock
    ) -> None:
        work = worked(plain, "r", make_store)
        clock.instant += 7 * DAY
        fates, chains = runs.decide_fates(checkpoints_of_store(plain), Policy())
        make_store(work.worktree).record("build-started", run=work.run, trigger="phase")
        assert [
            (fate.expires, fate.reason)
            for fate in runs.remove_runs(checkpoints_of_store(plain), chains, fates)
        ] == [(False, "the run has continued meanwhile")]
        assert (len(plain.list()), work.worktree.path.exists()) == (4, True)
        hold_run(plain, work.run, "a test")

    def test_a_worktree_that_cannot_be_looked_at_keeps_its_run(
        self, plain: Store, make_store: MakeStore, clock: Clock
    ) -> None:
        work = worked(plain, "r", make_store)
        other = worked(plain, "other", make_store)
        clock.instant += 7 * DAY
        Path(work.worktree.git("rev-parse", "--git-path", "index")).write_bytes(b"nonsense")
        for dry_run in (True, False):
            found = told(plain, Policy(), dry_run=dry_run)
            assert found["other"] == "- complete, 7d old, limit 7d"
            assert "index" in found["r"]
        assert (work.worktree.path.exists(), other.worktree.path.exists()) == (True, False)

    @pytest.mark.long
    def test_mistakes_in_the_file_of_a_worktree_do_not_keep_its_run(
        self, plain: Store, make_store: MakeStore, clock: Clock
    ) -> None:
        """Mistakes in a run's settings file do not keep the run from expiry.

        Built-in limits apply to its files: a broken file in a commit would keep the run forever.
        """
        works = [worked(plain, name, make_store) for name in ("r", "more")]
        for work in works:
            work.worktree.commit("a mistake", **{"gitckpt.toml": "nonsense"})
            work.worktree.git("branch", f"mistake-{work.run}")
            plain_run = checkpoints_of_store(make_store(work.worktree))
            plain_run.save("run-complete", run=work.run, trigger="phase")
        works[1].worktree.write("more", "x")
        clock.instant += 7 * DAY
        for dry_run in (True, False):
            assert told(plain, Policy(), dry_run=dry_run) == {
                "r": "- complete, 7d old, limit 7d",
                "more": (
                    f"the worktree {works[1].worktree.path} has contents that no checkpoint has: "
                    "more"
                ),
            }
        assert [work.worktree.path.exists() for work in works] == [False, True]

    def test_the_setting(self, main_checkout: Checkout, plain: Store) -> None:
        main_checkout.write("gitckpt.toml", '[retention]\nruns_older_than = "2w"\n')
        assert settings.read_settings(checkpoints_of_store(plain).repository).policy == Policy(
            runs_older_than=14 * DAY
        )
        main_checkout.git("config", "ckpt.runsOlderThan", "1d")
        assert settings.read_settings(checkpoints_of_store(plain).repository).policy == Policy(
            runs_older_than=DAY
        )


class TestEverything:
    def test_unfinished_runs_go_when_asked_but_not_what_is_in_no_checkpoint(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore
    ) -> None:
        worked(plain, "failed", make_store, end="build-failed")
        held = worked(plain, "held", make_store, end="build-failed")
        driven = worked(plain, "driven", make_store, end="build-failed")
        held.worktree.write("more", "x")
        driven_elsewhere(plain, driven.run)
        found = told(plain, ALL)
        assert found.pop("failed").startswith("- unfinished: failed, ")
        assert found == {
            "driven": "a process drives the run",
            "held": f"the worktree {held.worktree.path} has contents that no checkpoint has: more",
        }
        assert len(plain.list()) == 6
        assert sorted(
            path.name[16:] for path in (main_checkout.path / ".ckpt" / "worktrees").iterdir()
        ) == ["driven", "held"]

    def test_it_leaves_no_ref(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore
    ) -> None:
        worked(plain, "failed", make_store, end="build-failed")
        plain.record("manual-complete", {})
        assert told(plain, ALL).keys() == {"failed"}
        assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}


class TestRunsThatAreReferredTo:
    def fork(self, store: Store, work: Work, **details: object) -> str:
        return str(store.record("run-started", {}, start="fork", trigger="phase", **details).run)  # type: ignore[arg-type]

    def test_by_an_unfinished_fork(self, plain: Store, make_store: MakeStore, clock: Clock) -> None:
        work = worked(plain, "old", make_store)
        fork = self.fork(plain, work, forked_from=work.newest.id)
        plain.record("build-failed", {}, run=fork, trigger="phase")
        clock.instant += 7 * DAY
        assert told(plain, Policy()) == {
            "fork": "unfinished: failed",
            "old": f"the unfinished run {fork} refers to this run",
        }
        plain.record("run-complete", {}, run=fork, trigger="phase")
        assert told(plain, Policy())["old"] == "- complete, 7d old, limit 7d"

    def test_by_phases_that_it_completed(
        self, plain: Store, make_store: MakeStore, clock: Clock
    ) -> None:
        work = worked(plain, "old", make_store)
        fork = self.fork(
            plain, work, pipeline=Pipeline(completed={"build": str(work.newest.parent)})
        )
        plain.record("test-failed", {}, run=fork, trigger="phase")
        clock.instant += 7 * DAY
        assert told(plain, Policy())["old"] == f"the unfinished run {fork} refers to this run"


class TestManyAtOnce:
    def begun(self, trace: Path) -> list[str]:
        """Return the git commands that started since the last call."""
        events = [json.loads(line) for line in trace.read_text("utf-8").splitlines()]
        trace.write_text("")
        return [event["name"] for event in events if event["event"] == "cmd_name"]

    @pytest.mark.long
    def test_more_of_them_take_no_more_processes(
        self,
        main_checkout: Checkout,
        make_store: MakeStore,
        clock: Clock,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        trace = tmp_path / "trace"
        monkeypatch.setenv("GIT_TRACE2_EVENT", str(trace))
        begun = []
        for number in (2, 22):
            with make_store(main_checkout, adapter="plumbing") as store:
                for _ in range(number):
                    run = str(store.record("run-started", {}, start="r", trigger="phase").run)
                    store.record("run-complete", {}, run=run, trigger="phase")
                clock.instant += 7 * DAY
            with make_store(main_checkout, adapter="plumbing") as store:
                self.begun(trace)
                assert sum(fate.expires for fate in store.expire(Policy()).runs) == number
                begun.append(self.begun(trace))
        # A few more may be needed, such as for a commit that is kept since the last time.
        assert len(begun[1]) <= len(begun[0]) + 5

    def test_in_portions(
        self, plain: Store, main_checkout: Checkout, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runs, "_AT_ONCE", 2)
        made = [
            str(plain.record("run-started", {}, start="r", trigger="phase").run) for _ in range(5)
        ]
        for run in made[:-1]:
            plain.record("run-complete", {}, run=run, trigger="phase")
        clock.instant += 7 * DAY
        driven_elsewhere(plain, made[1])
        said: list[str] = []
        found = plain.expire(Policy(), progress=said.append)
        assert {fate.run for fate in found.runs if fate.expires} == {made[0], *made[2:4]}
        assert {str(entry.run) for entry in plain.list()} == {made[1], made[4]}
        assert [each for each in said if each.startswith("removing")] == [
            f"removing run {made[3]}, 1 of 3",
            f"removing run {made[2]}, 2 of 3",
            "removing 4 checkpoints of runs",
            f"removing run {made[0]}, 3 of 3",
            "removing 2 checkpoints of runs",
        ]
        assert plain.verify().findings == []

    def test_what_says_how_it_ended_goes_last(
        self, plain: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = str(plain.record("run-started", {}, start="r", trigger="phase").run)
        names = [
            plain.record(f"{name}-complete", {}, run=run, trigger="phase").id
            for name in ("a", "b", "run")
        ]
        clock.instant += 7 * DAY
        gone: list[set[str]] = []
        update = Refs.apply_updates

        def note(refs: Refs, updates: Sequence[RefUpdate], *args: Any, **options: Any) -> Any:
            gone.append(
                {
                    one.ref.rpartition("/")[2]
                    for one in updates
                    if one.ref.startswith("refs/checkpoints/") and not one.new
                }
            )
            return update(refs, updates, *args, **options)

        monkeypatch.setattr(Refs, "apply_updates", note)
        plain.expire(Policy())
        first, last = (each for each in gone if each)
        assert first > set(names[:2])
        assert last == {names[2]}


class TestSquashing:
    def chain(self, store: Store, *names: str) -> tuple[str, list[str]]:
        """Return a run with checkpoints of these labels, and their ids."""
        first = store.record(names[0], {}, start="r", trigger="phase")
        run = str(first.run)
        return run, [
            first.id,
            *(store.record(name, {}, run=run, trigger="phase").id for name in names[1:]),
        ]

    def test_progress_of_complete_phases_goes_at_once(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        _, ids = self.chain(
            plain,
            *[
                "run-started",
                "a-started",
                "a-progress",
                "a-progress",
                "a-complete",
                "b-started",
                "b-progress",
            ],
        )
        dry = plain.expire(Policy(), dry_run=True)
        assert set(dry.squashed) == {ids[2], ids[3]}
        assert pickle.loads(pickle.dumps(dry)) == dry
        assert len(plain.list()) == 7
        found = plain.expire(Policy())
        assert found == dry
        reasons = {
            entry.id: decision.reason for entry, decision in found.checkpoints if decision.expires
        }
        assert reasons == {ids[2]: "phase a is complete", ids[3]: "phase a is complete"}
        assert labels(plain) == [
            "run-started",
            "a-started",
            "a-complete",
            "b-started",
            "b-progress",
        ]
        assert head_of(plain, str(plain.list()[0].run)).id == ids[-1]
        assert require_whole(main_checkout).keys() == set(ids) - {ids[2], ids[3]}
        assert [finding.code for finding in plain.verify().findings] == []

    def test_what_another_checkpoint_names_stays(self, plain: Store) -> None:
        run, ids = self.chain(
            plain,
            *["run-started", "a-started", "a-progress", "a-progress", "a-progress", "a-complete"],
        )
        plain.record("rewind-complete", {}, run=run, trigger="phase", rewound_to=ids[2])
        plain.record("run-started", {}, start="fork", trigger="phase", forked_from=ids[3])
        assert set(plain.expire(Policy()).squashed) == {ids[4]}

    def test_in_a_run_that_stays_for_its_worktree(
        self, plain: Store, make_store: MakeStore, clock: Clock
    ) -> None:
        work = worked(plain, "r", make_store, end="build-started")
        for label in ("build-progress", "build-complete", "run-complete"):
            make_store(work.worktree).save(label, run=work.run, trigger="phase")
        work.worktree.write("more", "x")
        clock.instant += 7 * DAY
        assert len(plain.expire(Policy(), dry_run=True).squashed) == 1
        assert len(plain.expire(Policy()).squashed) == 1
        assert labels(plain) == [
            "run-started",
            "build-complete",
            "build-started",
            "build-complete",
            "run-complete",
        ]

    def test_hooks_and_people_within_a_phase_stay(self, plain: Store) -> None:
        run, _ = self.chain(plain, "run-started", "a-started")
        plain.record("commit-complete", {}, run=run, trigger="post-commit")
        plain.record("a-progress", {}, run=run)
        plain.record("a-complete", {}, run=run, trigger="phase")
        assert set(plain.expire(Policy()).squashed) == set()


class TestLeasesOfNoRun:
    def test_go_unless_they_are_held(self, plain: Store, main_checkout: Checkout) -> None:
        hold_run(plain, "20270115-080001-gone", "a test").release_lease()
        driven_elsewhere(plain, "20270115-080001-driven")
        main_checkout.git("update-ref", "refs/ckpt/leases/20270115-080001-odd", "HEAD")
        run = str(plain.record("run-started", {}, start="there", trigger="phase").run)
        hold_run(plain, run, "a test").release_lease()
        runs.delete_orphan_leases(checkpoints_of_store(plain))
        left = ["20270115-080001-driven", "20270115-080001-odd", run]
        assert sorted(main_checkout.refs("refs/ckpt/leases")) == sorted(
            f"refs/ckpt/leases/{name}" for name in left
        )


EXPIRE = """
    from gitckpt.model.policy import Policy
    from gitckpt.store.retention import expiry
    expiry.expire_checkpoints(store, Policy(runs_older_than=0))
"""
SHARES, STRIDE = 4, 3
"""How many tests share the kill positions, and the stride within a share."""


@pytest.fixture
def real(main_checkout: Checkout) -> Work:
    """A complete run by the wall clock, with a lease."""
    with opened(main_checkout) as store:
        work = worked(store, "r", opened)
        hold_run(store, work.run, "a test").release_lease()
    return work


def moved_copy(original: Checkout, run: str, place: Path) -> tuple[Checkout, Path]:
    """Return a copy of a repository, and the worktree of a run in it."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(original.path, place, symlinks=True)
    worktree, admin = place / ".ckpt" / "worktrees" / run, place / ".git" / "worktrees" / run
    (worktree / ".git").write_text(f"gitdir: {admin}\n")
    (admin / "gitdir").write_text(f"{worktree}/.git\n")
    return Checkout(place), worktree


@pytest.mark.long(but=["0"])
@pytest.mark.parametrize("share", range(SHARES))
def test_a_kill_at_every_git_call(
    main_checkout: Checkout, real: Work, tmp_path: Path, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "GRACE", -1)
    killer = Killer(tmp_path / "killer")
    content = view(real.worktree.path)
    at = share
    while True:
        at += SHARES * STRIDE
        checkout, worktree = moved_copy(main_checkout, real.run, tmp_path / "copy")
        survived, _ = killer.run(at, EXPIRE, str(checkout.path))
        found = require_whole(checkout)
        assert not worktree.exists() or view(worktree) == content
        assert not found or real.newest.id in found
        with opened(checkout) as store:
            if real.newest.id in found and at % (2 * SHARES * STRIDE) == share:
                assert view(store.resume(store.read(real.newest.id)).path) == content
            store.expire(Policy(runs_older_than=0))
            sweep.delete_orphans(
                checkpoints_of_store(store).repository, checkpoints_of_store(store).refs
            )
        assert checkout.refs("refs/checkpoints", "refs/ckpt") == {}
        assert not worktree.exists()
        assert list((checkout.path / ".git" / "worktrees").glob("*")) == []
        if survived:
            assert at > 30
            return


def test_a_removal_of_refs_that_fails_loses_nothing(
    plain: Store,
    main_checkout: Checkout,
    make_store: MakeStore,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gitckpt.git.refs.LOCK_TIMEOUT_MS", 20)
    work = worked(plain, "r", make_store)
    content = view(work.worktree.path)
    clock.instant += 7 * DAY
    lock = main_checkout.write(f".git/refs/checkpoints/{work.newest.id}.lock", "")
    found = plain.expire(Policy())
    assert [(entry.id, str(error)) for entry, error in found.failed] == [
        (work.newest.id, f"another process holds {lock}")
    ]
    with pytest.raises(LockHeld):
        plain.remove_run(work.run)
    lock.unlink()
    assert view(plain.resume(work.newest).path) == content
    assert worktree_removal.remove_worktree(checkpoints_of_store(plain), work.run) is None
    assert told(plain, Policy()) == {"r": "- complete, 7d old, limit 7d"}
    assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}


class TestWorkInNoBranch:
    def test_the_last_checkpoint_of_a_run_stays_where_nothing_else_holds_what_it_made(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore, clock: Clock
    ) -> None:
        work = worked(plain, "r", make_store, in_branch=False)
        clock.instant += 7 * DAY
        reason = (
            "complete, 7d old, limit 7d; the last checkpoint stays: no branch contains the result"
        )
        assert told(plain, Policy(), dry_run=True) == told(plain, Policy()) == {"r": f"- {reason}"}
        assert [entry.id for entry in plain.list()] == [work.newest.id]
        assert not work.worktree.path.exists()
        assert told(plain, Policy()) == {"r": "no branch contains the result"}
        assert plain.verify().findings == []
        assert view(plain.resume(plain.read(work.newest.id)).path)["files"] == {
            b"README": (False, False, b"hello\n"),
            b"made": (False, False, b"by r"),
        }

    def test_a_commit_in_no_branch_is_held_too(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore, clock: Clock
    ) -> None:
        work = worked(plain, "r", make_store)
        main_checkout.git("branch", "-D", "made-r")
        clock.instant += 7 * DAY
        plain.expire(Policy())
        assert f"refs/keep/ckpt/{work.newest.git_sha}" in main_checkout.refs()
        main_checkout.git("branch", "made-r", work.newest.git_sha)
        plain.expire(Policy())
        assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}

    def test_who_asks_for_everything_gets_rid_of_it(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore, clock: Clock
    ) -> None:
        worked(plain, "r", make_store, in_branch=False)
        clock.instant += 7 * DAY
        plain.expire(Policy(everything=True))
        assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}
