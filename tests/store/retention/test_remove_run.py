"""A run is removed by name as a whole, or not at all."""

from __future__ import annotations

import pytest

from gitckpt import CkptError, LeaseHeld, NotFoundError, Store, UsageError, WorktreeError
from tests.conftest import Checkout
from tests.store.conftest import MakeStore
from tests.store.working import driven_elsewhere, worked
from tests.stores import hold_run


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("end", ["run-complete", "build-failed"])
def test_it_goes_with_all_that_it_had(
    plain: Store, main_checkout: Checkout, make_store: MakeStore, end: str
) -> None:
    other = worked(plain, "other", make_store)
    plain.save("mine-complete", {})
    before = main_checkout.refs("refs/checkpoints", "refs/ckpt")
    work = worked(plain, "done", make_store, end=end)
    hold_run(plain, work.run, "a test").release_lease()
    assert plain.remove_run(work.run) == 3
    assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == before
    assert not work.worktree.path.exists()
    assert other.worktree.path.exists()
    assert str(work.worktree.path) not in main_checkout.git("worktree", "list")
    assert [run.run for run in plain.runs()] == [other.run]
    assert plain.verify().findings == []
    with pytest.raises(NotFoundError, match=f"no run {work.run}"):
        plain.remove_run(work.run)


def refused(store: Store, run: str, checkout: Checkout) -> CkptError:
    """Return the error, and assert that the run is unchanged."""
    before = checkout.refs()
    with pytest.raises(CkptError) as caught:
        store.remove_run(run)
    after = checkout.refs()
    assert {ref: oid for ref, oid in after.items() if not ref.startswith("refs/ckpt/leases/")} == {
        ref: oid for ref, oid in before.items() if not ref.startswith("refs/ckpt/leases/")
    }
    return caught.value


def test_it_stays_where_its_worktree_holds_what_no_checkpoint_does(
    plain: Store, main_checkout: Checkout, make_store: MakeStore
) -> None:
    work = worked(plain, "done", make_store)
    work.worktree.write("more", "x")
    error = refused(plain, work.run, main_checkout)
    assert isinstance(error, WorktreeError)
    path = work.worktree.path
    assert (
        error.message
        == f"run {work.run} stays: the worktree {path} has contents that no checkpoint has: more"
    )
    assert error.hint == (
        f"save or move these files: git -C {path} ckpt save; then run: git ckpt remove {work.run}"
    )
    assert (path / "more").read_text() == "x"
    with make_store(work.worktree) as there:
        there.save("more", run=work.run)
    assert plain.remove_run(work.run) == 4
    assert not path.exists()


@pytest.mark.parametrize(
    "why", ["", "gitckpt", "gitckpt: not yet, please", "gitckpt must leave this"]
)
def test_it_stays_where_somebody_has_locked_its_worktree(
    plain: Store, main_checkout: Checkout, make_store: MakeStore, why: str
) -> None:
    work = worked(plain, "done", make_store)
    main_checkout.git("worktree", "unlock", str(work.worktree.path))
    main_checkout.git("worktree", "lock", "--reason", why, str(work.worktree.path))
    error = refused(plain, work.run, main_checkout)
    assert error.message == f"run {work.run} stays: the worktree {work.worktree.path} is locked"
    assert error.hint == f"solve that, then run: git ckpt remove {work.run}"


def test_it_stays_while_somebody_drives_it(
    plain: Store, main_checkout: Checkout, make_store: MakeStore
) -> None:
    work = worked(plain, "done", make_store)
    lease = driven_elsewhere(plain, work.run)
    error = refused(plain, work.run, main_checkout)
    assert isinstance(error, LeaseHeld)
    assert error.message == (
        f"run {work.run} is driven by {lease.sentence()}, on another machine; "
        f"unless renewed, the lease ends at {lease.expires}"
    )
    assert work.worktree.path.exists()


def test_it_stays_while_an_unfinished_run_refers_to_it(
    plain: Store, main_checkout: Checkout, make_store: MakeStore
) -> None:
    work = worked(plain, "done", make_store)
    fork = str(
        plain.record(
            "run-started", {}, start="fork", trigger="phase", forked_from=work.newest.id
        ).run
    )
    error = refused(plain, work.run, main_checkout)
    assert isinstance(error, UsageError)
    assert (
        error.message
        == f"run {work.run} stays: the unfinished run {fork} refers to its checkpoints"
    )
    assert error.hint == f"remove that run first: git ckpt remove {fork}"
    plain.record("run-complete", {}, run=fork, trigger="phase")
    assert plain.remove_run(work.run) == 3


def test_what_is_no_run_id(plain: Store) -> None:
    with pytest.raises(UsageError):
        plain.remove_run("latest")


def test_which_run_a_text_means(plain: Store, make_store: MakeStore) -> None:
    work = worked(plain, "done", make_store)
    named = [
        plain.run_named(text)
        for text in (work.run, work.run[:10], work.newest.id, "latest", "HEAD")
    ]
    assert named == [work.run, work.run, None, None, None]
