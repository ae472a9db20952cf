"""Runs that a program drives: where they start, refusals, and resets."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitckpt import (
    CkptError,
    Limits,
    NotFoundError,
    PhaseOptions,
    Query,
    Retries,
    Run,
    StateError,
    Store,
    UsageError,
    WorktreeError,
)
from gitckpt.durable.command import process_tree
from gitckpt.durable.run import rewind
from gitckpt.durable.run.rewind import fork_run
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, git_program
from tests.durable.conftest import RUN, Counted, attempt_of, go_on, labels, refuse_refs
from tests.stores import head_of


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "result", [(1, 2), {1: 2}, b"x", {"a": [object()]}, "\ud800" and {"a": {1}}]
)
def test_a_result_that_json_would_change_fails_the_phase(plain: Store, result: Any) -> None:
    with pytest.raises(StateError), Run.start(plain, "Add login!", adapter="plumbing") as run:
        run.phase(
            "work",
            Counted(result=result),
            conduct=PhaseOptions(retries=Retries(attempts=2, delay=0)),
        )
    assert labels(plain, RUN)[-1] == "work-failed"


def test_a_name_that_labels_could_not_tell_apart_is_refused(plain: Store) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        for name in ("", " ", "a\nb", "research-complete", "run", "commit", "rewind"):
            work = Counted()
            with pytest.raises(UsageError, match="cannot be the name of a phase"):
                run.phase(name, work)
            assert work.calls == [], name


def test_a_base_that_is_no_commit_is_refused_before_anything_begins(
    plain: Store, main_checkout: Checkout
) -> None:
    before = main_checkout.fingerprint()
    with pytest.raises(NotFoundError, match="no commit is named 'nothing'"):
        Run.start(plain, "Add login!", base="nothing", adapter="plumbing")
    assert main_checkout.fingerprint() == before


def test_a_run_begins_at_its_base(plain: Store, main_checkout: Checkout) -> None:
    first = main_checkout.git("rev-parse", "HEAD")
    main_checkout.commit("second")
    with Run.start(plain, "Add login!", base="HEAD~1", adapter="plumbing") as run:
        assert Checkout(Path(run.path), main_checkout.path).git("rev-parse", "HEAD") == first


def test_a_run_begins_on_an_unborn_branch(make_store: Any, make_checkout: Any) -> None:
    store = make_store(make_checkout())
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        run.phase("work", lambda: Path(run.path, "a.txt").write_text("one\n"))
    assert head_of(store, RUN).git_sha == ""


def test_a_worktree_that_is_gone_is_made_again_from_the_newest_checkpoint(
    store: Store, checkout: Checkout
) -> None:
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        run.phase("work", lambda: Path(run.path, "a.txt").write_text("one\n"))
        run.pause()
    checkout.git("worktree", "remove", "--force", "--force", run.path)
    with go_on(store, RUN) as run:
        assert Path(run.path, "a.txt").read_text() == "one\n"


def test_a_run_that_is_complete_is_not_resumed(plain: Store) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing"):
        pass
    with pytest.raises(UsageError, match=f"run {RUN} is complete"):
        Run.resume(plain, RUN, adapter="plumbing")
    with pytest.raises(NotFoundError):
        Run.resume(plain, "20270115-080001-nothing", adapter="plumbing")


def test_a_phase_may_be_skipped_with_a_result(plain: Store) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        run.skip("research", ["given"], message="it was given")
        assert run.phase("research", Counted(result="never")) == ["given"]
    skipped = plain.read(plain.list(Query(run=RUN, label="research-skipped"))[0].id)
    assert skipped.message == "it was given"


def test_a_phase_is_done_again_with_all_that_followed_it(plain: Store) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        for name in ("one", "two", "three"):
            run.phase(name, Counted(result=name))
        run.redo("two")
        assert list(run.completed) == ["one"]
        assert run.phase("two", Counted(result="again")) == "again"
        assert list(run.completed) == ["one", "two"]
        run.pause()
    head = head_of(plain, RUN)
    assert head.pipeline is not None
    assert list(head.pipeline.completed) == ["one", "two"]
    assert attempt_of(plain, RUN, "two-complete").number == 2


@pytest.mark.long
def test_a_run_is_taken_back_to_an_earlier_checkpoint(store: Store, checkout: Checkout) -> None:
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        for name in ("one", "two"):
            run.state[name] = True
            run.phase(name, lambda name=name: Path(run.path, name).write_text(name))
        earlier = store.read(store.list(Query(run=RUN, label="one-complete"))[0].id)
        Path(run.path, "unsaved").write_text("precious")
        run.rewind(earlier)
        assert sorted(path.name for path in Path(run.path).iterdir()) == [".git", "README", "one"]
        assert (run.state, list(run.completed)) == ({"one": True}, ["one"])
        run.pause()
    head = head_of(store, RUN)
    assert (head.label, head.rewound_to) == ("rewind-complete", earlier.id)
    before = store.list(Query(run=RUN, label="rewind-started"))[0]
    assert checkout.git("show", f"refs/ckpt/trees/{before.id}:files/unsaved") == "precious"
    with go_on(store, RUN) as run:
        assert run.phase("one", Counted(result="never")) == 3
        assert run.phase("two", Counted(result="anew")) == "anew"


def test_nothing_is_taken_back_to_files_that_were_not_captured(
    plain: Store, main_checkout: Checkout
) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        here = Checkout(Path(run.path), main_checkout.path)
        here.write("mine", "precious\n")
        earlier = run.store.save("half-partial", {}, limits=replace(Limits(), timeout=0.0), run=RUN)
        here.write("mine", "edited\n")
        head = here.commit("two", two="two")
        before = [entry.id for entry in plain.list()]
        with pytest.raises(WorktreeError, match="has no files"):
            run.rewind(earlier.id)
        assert here.git("rev-parse", "HEAD") == head
        assert (here.path / "mine").read_text() == "edited\n"
        assert [entry.id for entry in plain.list()] == before
        run.pause()


def test_nothing_is_taken_back_while_what_is_newer_cannot_be_recorded(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    flag = tmp_path / "full"
    refuse_refs(main_checkout, flag)
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        for name in ("one", "two"):
            run.phase(name, lambda name=name: Path(run.path, name).write_text(name))
        flag.touch()
        with pytest.raises(
            CkptError, match=r"cannot rewind run .*: the current files cannot be recorded"
        ) as caught:
            run.rewind(plain.list(Query(run=RUN, label="one-complete"))[0].id)
        assert str(caught.value.hint).endswith(" --rewind")
        assert sorted(path.name for path in Path(run.path).iterdir()) == [
            ".git",
            "README",
            "one",
            "two",
        ]
        assert not run.unwritten
        flag.unlink()
        run.pause()
    assert not [
        label for label in labels(plain, RUN) if label.startswith("rewind")
    ]  # no checkpoint reports the cut


@pytest.mark.long
def test_a_fork_goes_on_by_itself(store: Store, checkout: Checkout) -> None:
    with Run.start(store, "Add login!", adapter="plumbing") as run:
        run.state["a"] = 1
        run.phase("one", lambda: Path(run.path, "one").write_text("one"))
        run.phase("two", Counted(result=2))
    before = head_of(store, RUN)
    earlier = store.read(store.list(Query(run=RUN, label="one-complete"))[0].id)
    first = fork_run(checkpoints_of_store(store), earlier)
    assert (first.forked_from, first.sequence, first.parent, first.state) == (
        earlier.id,
        1,
        None,
        {"a": 1},
    )
    with go_on(store, str(first.run)) as forked:
        assert Path(forked.path, "one").read_text() == "one"
        assert forked.phase("one", Counted(result="never")) == 3
        assert forked.phase("two", Counted(result="anew")) == "anew"
    assert head_of(store, RUN) == before


def test_a_store_whose_refs_are_locked_is_no_reason_to_begin(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    flag = tmp_path / "full"
    refuse_refs(main_checkout, flag)
    flag.touch()
    with pytest.raises(CkptError, match=r"no space; fatal: .*aborted by .*hook"):
        Run.start(plain, "Add login!", adapter="plumbing")
    flag.unlink()
    assert plain.list() == []


def test_a_lock_that_somebody_holds_is_left_alone_and_one_that_is_left_goes(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gitckpt.durable.run.rewind.PATIENCE", 0.0)
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        here = Checkout(Path(run.path), main_checkout.path)
        here.write("README", "changed\n")
        env = os.environ | {"GIT_EDITOR": "echo; sleep 60; false"}
        command = [
            "sh",
            "-c",
            f"{git_program()} commit --quiet --all; :",
        ]  # gitckpt finds its own git calls among the children of this process
        committing = subprocess.Popen(
            command, cwd=run.path, env=env, stdout=subprocess.PIPE, start_new_session=True
        )
        lock = Path(here.git("rev-parse", "--absolute-git-dir"), "index.lock")
        assert committing.stdout is not None
        committing.stdout.read(1)
        assert lock.exists()
        rewind.remove_stale_locks(checkpoints_of_store(run.store).repository, run.id)
        assert lock.exists()
        os.killpg(committing.pid, signal.SIGKILL)
        committing.wait()
        committing.stdout.close()
        while process_tree.is_program_working_in(
            "git", run.path
        ):  # the shell is gone; its children may take a moment longer
            time.sleep(0.01)
        rewind.remove_stale_locks(checkpoints_of_store(run.store).repository, run.id)
        assert not lock.exists()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.phase(None, Counted()), "None cannot be the name of a phase"),
        (lambda run: run.phase("one", None), "work: must be a function, not None"),
        (
            lambda run: run.phase("one", Counted(), inputs="x"),
            "inputs: must be a map of names to values, not 'x'",
        ),
        (
            lambda run: run.phase("one", Counted(), conduct=3),
            "conduct: must be a PhaseOptions, not 3",
        ),
        (
            lambda run: run.phase("one", lambda: run.milestone(errors="x")),
            "errors: must be a list of strings, not 'x'",
        ),
        (
            lambda run: run.phase("one", lambda: run.milestone(progress=3)),
            "progress: must be a Progress, not 3",
        ),
    ],
)
def test_what_is_handed_in_wrongly_is_named(plain: Store, call: Any, message: str) -> None:
    with Run.start(plain, "Add login!", adapter="plumbing") as run:
        with pytest.raises(UsageError) as caught:
            call(run)
        assert caught.value.message == message
        run.phase("two", lambda: run.milestone(errors=None))
