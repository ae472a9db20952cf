"""No command continues a forged run, or a forged part of a run, without approval."""

from __future__ import annotations

import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import Pipelines, Policy, Run, Store, Untrusted
from tests.durable.stage import Stage, stage
from tests.stores import document_of, timestamp
from tests.system.hostile import forger as attacks
from tests.system.hostile.forger import FORGED, Forger

pytestmark = pytest.mark.long

__all__ = ["stage"]

PHASES = ("review: echo reviewed", "test: make -s test", "build: make -s build")
EVIL = "all test build:\n\t@touch $$HOME_OF_VICTIM/evil\n"


@pytest.fixture
def victim(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A project with a pipeline of three phases; the last one fails."""
    stage.pipeline(*PHASES)
    stage.checkout.write("Makefile", "test:\n\t@true\nbuild:\n\t@false\n")
    stage.checkout.git("add", "--all")
    stage.checkout.git("commit", "--quiet", "--message", "pipeline")
    monkeypatch.setenv("HOME_OF_VICTIM", str(stage.programs))
    return stage


def is_unharmed(stage: Stage) -> bool:
    return not (stage.programs / "evil").exists()


def test_a_forged_run_of_2099_is_never_chosen(victim: Stage, tmp_path: Path) -> None:
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.run_of_2099(forger, "ci", ["review", "test"], attacked={"Makefile": EVIL})
    forger.fetched()
    done = victim.ckpt("resume")
    assert (done.code, is_unharmed(victim)) == (12, True), done


def test_a_forged_run_that_is_named_is_shown_and_refused(victim: Stage, tmp_path: Path) -> None:
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.run_of_2099(
        forger, "ci", ["review", "test"], attacked={"Makefile": EVIL}, state='branch = "main"'
    )
    forger.fetched()
    done = victim.ckpt("resume", FORGED)
    assert (done.code, is_unharmed(victim)) == (2, True), done
    assert done.err.startswith(f"error: run {FORGED} was not written in this repository"), done.err


@pytest.mark.long
def test_a_state_replayed_under_the_inputs_of_ours(victim: Stage, tmp_path: Path) -> None:
    victim.pipeline(
        "name: echo branch=mine >>$CKPT_SET",
        'push: git push --quiet origin "HEAD:refs/heads/$CKPT_STATE_BRANCH" && false',
        top='inputs = { tool = "none" }',
    )
    victim.checkout.commit("another pipeline")
    assert victim.ckpt("run", "ci", "-i", "tool=x").code == 20
    run = victim.run()
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.other_state(forger, run, 'branch = "mine"', 'branch = "main"')
    forger.fetched(over=True)
    for words in (
        ["resume"],
        ["resume", run],
        ["resume", run, "--from", "push"],
        ["resume", run, "--input", "tool=y"],
    ):
        done = victim.ckpt(*words)
        assert done.code in (2, 12), done
    assert list(victim.remote.refs("refs/heads")) == ["refs/heads/mine"]


def test_other_contents_under_the_digest_of_ours(victim: Stage, tmp_path: Path) -> None:
    victim.pipeline(
        'read: cat "$CKPT_INPUT_PLAN" >>"$HOME_OF_VICTIM/read"; exit 1',
        top='inputs = { plan = "plan.md" }\nfiles = ["plan"]',
    )
    victim.checkout.commit("another pipeline", **{"plan.md": "GOOD PLAN\n"})
    assert victim.ckpt("run", "ci").code == 20
    run = victim.run()
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.other_contents(forger, run, "plan", "EVIL PLAN\n")
    victim.checkout.git("worktree", "remove", "--force", "--force", str(victim.worktree(run)))
    victim.checkout.git("clean", "-ffdxq", ".ckpt")
    (victim.checkout.path / "plan.md").unlink()
    forger.fetched(over=True)
    assert victim.ckpt("resume", run).code == 2
    assert victim.ckpt("resume", run, "--trust").code in (2, 20)
    assert (victim.programs / "read").read_text() == "GOOD PLAN\n"


@pytest.mark.long
def test_a_checkpoint_far_ahead_does_not_move_a_head_of_ours(victim: Stage, tmp_path: Path) -> None:
    assert victim.ckpt("run", "ci").code == 20
    run = victim.run()
    before = victim.newest(run)
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.later_checkpoint(forger, run, "review-failed", 'evil = "yes"')
    forger.fetched()
    assert victim.ckpt("resume", run).code == 20
    newest = victim.newest(run)
    assert (newest.state, newest.sequence) == ({}, (before.sequence or 0) + 2)
    assert [path.name for path in (victim.checkout.path / ".ckpt/worktrees").iterdir()] == [run]


def test_a_checkpoint_of_theirs_is_nothing_to_rewind_to_or_to_fork(
    victim: Stage, tmp_path: Path
) -> None:
    assert victim.ckpt("run", "ci").code == 20
    run = victim.run()
    forger = Forger(victim.checkout, tmp_path / "forger")
    evil = attacks.later_checkpoint(forger, run, "review-failed", 'evil = "yes"')
    forger.fetched()
    refs = victim.checkout.refs("refs/ckpt/runs")
    for words in (["resume", evil, "--rewind"], ["resume", evil, "--fork"]):
        done = victim.ckpt(*words)
        assert (done.code, f"run {run}" in done.err) == (2, True), done
    assert victim.checkout.refs("refs/ckpt/runs") == refs


@pytest.mark.long
def test_an_attempt_begins_with_the_files_of_none_of_theirs(victim: Stage, tmp_path: Path) -> None:
    text = (victim.checkout.path / "gitckpt.toml").read_text()
    victim.checkout.commit("another pipeline", **{"gitckpt.toml": f'{text}on_resume = "reset"\n'})
    assert victim.ckpt("run", "ci").code == 20
    run = victim.run()
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.later_checkpoint(forger, run, "build-started", attacked={"Makefile": EVIL})
    forger.fetched()
    assert victim.ckpt("resume").code in (2, 20)
    assert victim.ckpt("resume", run).code == 20
    assert is_unharmed(victim)


def test_a_document_replaced_under_its_id_is_not_gone_back_to(
    victim: Stage, tmp_path: Path
) -> None:
    victim.pipeline("one: echo x=1 >>$CKPT_SET", "two: echo $CKPT_STATE_X; false")
    victim.checkout.commit("another pipeline")
    assert victim.ckpt("run", "ci").code == 20
    run = victim.run()
    older = victim.checkpoint(run, "one-complete").id
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.same_id(forger, run, older, 'x = "1"', 'x = "evil"')
    forger.fetched(over=True)
    done = victim.ckpt("resume", older, "--rewind")
    assert (done.code, victim.newest(run).state) == (2, {"x": "1"}), done


@pytest.mark.long
def test_a_head_moved_backwards_goes_on_where_we_were(victim: Stage, tmp_path: Path) -> None:
    victim.pipeline(
        "one: echo one >>$HOME_OF_VICTIM/done",
        "two: echo two >>$HOME_OF_VICTIM/done",
        "three: false",
    )
    victim.checkout.commit("another pipeline")
    assert victim.ckpt("run", "ci", "--autonomy", "checkpoint").code == 0
    run = victim.run()
    forger = Forger(victim.checkout, tmp_path / "forger")
    assert victim.ckpt("resume", run).code == 0
    forger.fetched(over=True)
    assert victim.ckpt("resume", run).code == 20
    assert (victim.programs / "done").read_text() == "one\ntwo\n"


@pytest.mark.long
def test_half_of_a_chain_that_came_forwards_is_foreign(victim: Stage, tmp_path: Path) -> None:
    assert victim.ckpt("run", "ci", "--autonomy", "checkpoint").code == 0
    run = victim.run()
    forger = Forger(victim.checkout, tmp_path / "forger")
    assert (
        victim.ckpt(
            "resume", run, "--trust", "--autonomy", "checkpoint", at=forger.checkout.path
        ).code
        == 0
    )
    forger.fetched(over=True)
    done = victim.ckpt("resume", run)
    assert (done.code, "phases marked as complete:" in done.err) == (2, True), done
    assert (
        victim.ckpt("resume").code == 2
    )  # without approval, resume neither chooses the run nor opens its files


def test_what_comes_while_a_run_is_driven_is_not_gone_on_from(
    victim: Stage, tmp_path: Path
) -> None:
    ready, go = victim.programs / "ready", victim.programs / "go"
    victim.pipeline(
        f"one: touch {ready}; until [ -e {go} ]; do sleep 0.05; done",
        "two: echo two >>$HOME_OF_VICTIM/done",
        "three: echo ${CKPT_STATE_EVIL-good} >>$HOME_OF_VICTIM/done",
    )
    victim.checkout.commit("another pipeline")
    child = victim.begin("run", "ci")
    victim.waits_for(ready)
    run = victim.run()
    forger = Forger(victim.checkout, tmp_path / "forger")
    checkpoint = attacks.later_checkpoint(forger, run, "two-complete", 'evil = "yes"')
    forger.point(
        f"refs/ckpt/runs/{run}", forger.checkout.git("rev-parse", f"refs/checkpoints/{checkpoint}")
    )
    forger.fetched(over=True)
    go.touch()
    _, err = child.communicate(timeout=60)
    assert (victim.programs / "done").read_text() == "two\ngood\n"
    assert (child.returncode, "perhaps a fetch replaced the ref" in err) == (1, True), err
    assert victim.ckpt("resume", run).code == 2
    victim.ok("remove", checkpoint)
    assert victim.ckpt("resume", run).code == 0


def test_a_track_of_theirs_is_not_reported_to(victim: Stage, tmp_path: Path) -> None:
    victim.ok("step", "start", "BRAINSTORM", "--track", "forged")
    forger = Forger(victim.checkout, tmp_path / "forger")
    (ours,) = victim.runs()
    forged = attacks.same_run_elsewhere(forger, ours, "20990101-000000-forged")
    forger.fetched()
    victim.ok("step", "pass", "BRAINSTORM", "--track", "forged")
    assert victim.newest(ours).sequence == 2
    assert victim.newest(forged).sequence == 1


def test_a_stolen_key_starts_nothing(victim: Stage, tmp_path: Path) -> None:
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.run_of_2099(forger, "ci", ["review", "test"], attacked={"Makefile": EVIL})
    attacks.stolen_key(forger, "nightly", FORGED)
    forger.fetched()
    for words in (["run", "ci"], ["start", "nightly"]):
        done = victim.ckpt(*words, "--key", "nightly")
        assert (
            done.code,
            done.out,
            f"run {FORGED} was not written in this repository" in done.err,
        ) == (2, "", True), done
    assert is_unharmed(victim)


def test_a_stolen_key_of_a_run_that_is_complete_keeps_nothing_from_being_done(
    victim: Stage, tmp_path: Path
) -> None:
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.run_of_2099(
        forger, "ci", ["review", "test", "build"], attacked={}, label="run-complete"
    )
    attacks.stolen_key(forger, "nightly", FORGED)
    forger.fetched()
    assert [
        victim.ckpt(*words).code
        for words in (["run", "ci", "--key", "nightly"], ["resume", FORGED])
    ] == [2, 2]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("renewed", ["now", "9999-12-31T23:59:00.000000Z"])
def test_an_endless_lease_of_another_machine_is_named_and_ended(
    victim: Stage, tmp_path: Path, renewed: str
) -> None:
    assert victim.ckpt("run", "ci").code == 20
    run = victim.run()
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.endless_lease(
        forger, run, renewed=timestamp(time.time_ns() // 1000) if renewed == "now" else renewed
    )
    forger.fetched(over=True)
    assert "lease-endless" in victim.ckpt("verify").out
    done = victim.ckpt("resume", run)
    assert (done.code, "--take-over" in done.err) == (11, True), done
    assert victim.ckpt("resume", run, "--take-over").code == 20
    lease = victim.checkout.git("cat-file", "blob", f"refs/ckpt/leases/{run}")
    assert tomllib.loads(lease)["token"] == 8


COPIES = 'inputs = { plan = "plan.md" }\nfiles = ["plan"]'


def test_a_copy_of_an_input_is_compared_at_each_start_of_a_phase(victim: Stage) -> None:
    victim.pipeline(
        'one: echo EVIL >"$CKPT_INPUT_PLAN"',
        'two: cat "$CKPT_INPUT_PLAN" >>$HOME_OF_VICTIM/read',
        top=COPIES,
    )
    victim.checkout.commit("another pipeline", **{"plan.md": "GOOD\n"})
    done = victim.ckpt("run", "ci")
    run = victim.run()
    message = f"run {run} has changed since its start: the run's copy of the input plan"
    assert (done.code, message in done.err, (victim.programs / "read").exists()) == (
        2,
        True,
        False,
    ), done
    assert (victim.ckpt("resume").code, victim.ckpt("resume", "--accept-changes").code) == (2, 0)
    assert (
        victim.programs / "read"
    ).read_text() == "GOOD\n"  # the original input file still exists


@pytest.mark.long
def test_where_the_file_is_gone_its_copy_may_be_accepted(victim: Stage) -> None:
    victim.pipeline(
        'one: echo OTHER >"$CKPT_INPUT_PLAN"; false',
        'two: cat "$CKPT_INPUT_PLAN" >>$HOME_OF_VICTIM/read',
        top=COPIES,
    )
    victim.checkout.commit("another pipeline", **{"plan.md": "GOOD\n"})
    assert victim.ckpt("run", "ci").code == 20
    run = victim.run()
    victim.checkout.git("rm", "--quiet", "plan.md")
    assert victim.ckpt("resume").code == 2
    victim.pipeline("one: true", 'two: cat "$CKPT_INPUT_PLAN" >>$HOME_OF_VICTIM/read', top=COPIES)
    assert victim.ckpt("resume", "--accept-changes").code == 0
    assert (victim.programs / "read").read_text() == "OTHER\n"
    assert victim.newest(run).pipeline is not None


def test_what_it_shows_commands_no_terminal(victim: Stage, tmp_path: Path) -> None:
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacked = {"Makefile": EVIL, "a\x1b]0;title\x07\u202eb": "x"}
    attacks.run_of_2099(
        forger,
        "ci",
        ["re\\u001b[2Jview", "test"],
        attacked=attacked,
        state='"\\u001b[31m" = "\\u202e\\u001b[0m"',
    )
    forger.fetched()
    for words in ([], ["--trust"]):
        done = victim.ckpt("resume", FORGED, *words)
        assert "\\x1b" in done.err
        assert not set(done.err + done.out).intersection("\x1b\x07\u202e"), done


def test_a_forged_run_in_the_library_is_refused_or_adopted(victim: Stage, tmp_path: Path) -> None:
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.run_of_2099(
        forger, "ci", ["review", "test"], attacked={"Makefile": EVIL}, state="evil = 1"
    )
    forger.fetched()
    with victim.store() as store:
        before = victim.checkout.refs()
        assert store.latest_resumable() is None
        with pytest.raises(
            Untrusted, match=f"run {FORGED} was not written in this repository"
        ) as raised:
            Run.resume(store, FORGED)
        assert "  /evil = 1" in raised.value.candidates
        with pytest.raises(Untrusted):
            Run.fork(store, store.list()[0].id)
        with pytest.raises(Untrusted):
            Pipelines(store).resume(FORGED)
        assert victim.checkout.refs() == before
        with Run.fork(store, store.list()[0].id, trust=True) as fork:
            assert fork.state == {"evil": 1}
            assert fork.phase("review", lambda: "never") is None
        with pytest.raises(Untrusted):
            Run.resume(store, FORGED)
        with Run.resume(store, FORGED, trust=True) as run:
            assert run.phase("review", lambda: "never") is None
        with Run.resume(store, FORGED, again=True) as run:
            run.pause()


def test_a_checkpoint_of_no_run_that_says_what_drives_one_is_nothing_to_fork(
    victim: Stage, tmp_path: Path
) -> None:
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.run_of_2099(forger, "ci", ["review", "test"], attacked={"Makefile": EVIL})
    checkpoint = attacks.of_no_run(forger, FORGED)
    forger.fetched()
    assert victim.ckpt("resume", checkpoint, "--fork").code == 2
    assert is_unharmed(victim)


def test_what_decides_is_shown_where_the_tree_of_the_inputs_is_none(
    victim: Stage, tmp_path: Path
) -> None:
    forger = Forger(victim.checkout, tmp_path / "forger")
    attacks.run_of_2099(forger, "ci", ["review", "test"], attacked={"Makefile": EVIL})
    forger.fetched()
    attacks.malformed_inputs(forger)
    done = victim.ckpt("resume", FORGED)
    assert (done.code, is_unharmed(victim)) == (2, True), done
    assert "plan = x, but the file's content is missing" in done.err


LATER = "5f0c2c1e-8f0a-4e0b-9d57-3c4b0f3a9f11"


def claims(victim: Stage, run: str, label: str) -> None:
    """Forge a checkpoint that claims to follow a run's newest one, from its driver."""
    here = victim.checkout
    newest = here.git("for-each-ref", "--format=%(objectname)", f"refs/ckpt/runs/{run}")
    name = tomllib.loads(here.git("cat-file", "blob", newest))["id"]
    with Store.open(here.path) as store:
        found = store.read(name)
    files = None if found.worktree is None else replace(found.worktree, dirty=False, tree=None)
    forged = replace(
        found,
        id=LATER,
        parent=found.id,
        sequence=(found.sequence or 0) + 1,
        label=label,
        trigger="phase",
        worktree=files,
    )
    here.git(
        "update-ref",
        f"refs/checkpoints/{LATER}",
        here.git("hash-object", "-w", "--stdin", data=document_of(forged)),
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "label", ["run-complete", "review-complete", "build-complete", "build-started"]
)
def test_what_claims_to_be_of_a_run_of_ours_decides_nothing(victim: Stage, label: str) -> None:
    assert victim.ckpt("run", "ci").code == 20
    run = victim.run()
    before = victim.checkout.refs("refs/checkpoints")
    status, shown = victim.ckpt("status", run).out, victim.ckpt("show", run).out
    claims(victim, run, label)
    assert (
        victim.ckpt("status", run).out.splitlines()[2:] == status.splitlines()[2:]
    )  # the first lines tell how long ago it was
    assert victim.ckpt("show", run).out == shown
    assert [line.split("\t")[1] for line in victim.ckpt("runs").out.splitlines()] == ["failed"]
    with Store.open(victim.checkout.path) as store:
        store.expire(Policy(older_than=0, keep_last=0, runs_older_than=0))
    assert before.items() <= victim.checkout.refs("refs/checkpoints").items()
    assert victim.ckpt("resume", run).code == 20


def test_no_progress_goes_for_a_phase_that_only_they_call_complete(victim: Stage) -> None:
    with Store.open(victim.checkout.path) as store:
        run = str(store.record("run-started", {}, start="work", trigger="phase").run)
        for label in ("build-started", "build-progress", "build-progress"):
            store.record(label, {}, run=run, trigger="phase")
        before = victim.checkout.refs("refs/checkpoints")
        claims(victim, run, "build-complete")
        assert list(store.expire(Policy()).squashed) == []
        assert before.items() <= victim.checkout.refs("refs/checkpoints").items()


def test_a_run_of_ours_that_is_complete_goes_and_keeps_its_own_last_checkpoint(
    victim: Stage,
) -> None:
    victim.pipeline("one: echo work > work")
    victim.checkout.commit("a pipeline that ends")
    assert victim.ckpt("run", "ci").code == 0
    run = victim.run()
    newest = victim.ckpt("list", "--run", run).out.partition("\t")[0]
    claims(victim, run, "review-failed")
    with Store.open(victim.checkout.path) as store:
        (fate,) = store.expire(Policy(runs_older_than=0)).runs
    assert (fate.expires, fate.keeps[-1:]) == (True, (newest,))
