"""A run's documents are registered as local before the refs move.

After a kill, they do not look like documents of another clone.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gitckpt import CkptError, Store
from gitckpt.store import local_checkpoints
from gitckpt.store.runs import trust
from gitckpt.store.store import checkpoints_of_store
from tests import forked
from tests.conftest import Checkout
from tests.dying import DyingGit
from tests.store.conftest import ROOT, MakeStore
from tests.stores import hold_run, make_private_dir, open_store, private_dir, ref_oid


def started(store: Store) -> str:
    """Start a run and return its name."""
    return str(store.record("a-started", {"n": 1}, start="Add login!").run)


def noted(store: Store, run: str) -> list[str]:
    path = Path(private_dir(store), "chains", run)
    return path.read_text().split() if path.exists() else []


def head(store: Store, run: str) -> str:
    oid = ref_oid(store, "refs/ckpt/runs/" + run)
    assert oid is not None
    return oid


def forge(checkout: Checkout, run: str, **other: str) -> str:
    """Replace a run's head as a forced fetch does; return the oid of its document."""
    said = checkout.git("cat-file", "blob", "refs/ckpt/runs/" + run) + "\n"
    for old, new in other.items():
        assert old in said
        said = said.replace(old, new)
    oid = checkout.git("hash-object", "-w", "--stdin", data=f"{said}evil = 1\n")
    checkout.git("update-ref", "refs/ckpt/runs/" + run, oid)
    return oid


def test_nobody_waits_for_a_pipe_in_its_place(store: Store) -> None:
    run = started(store)
    repository, oid = checkpoints_of_store(store).repository, head(store, run)
    path = os.path.join(repository.private_dir, "chains", run)
    os.unlink(path)
    os.mkfifo(path)
    assert local_checkpoints.append_oids(repository, run, [oid]) == []
    assert (
        local_checkpoints.is_document_local(repository, run, oid),
        local_checkpoints.list_oids_after(repository, run, oid),
        local_checkpoints.read_local_oids(repository, run),
    ) == (False, [], frozenset())
    assert store.record("a-complete", {}, run=run).sequence == 2


def test_each_record_extends_the_chain(
    store: Store, checkout: Checkout, make_store: MakeStore
) -> None:
    run = started(store)
    heads = [head(store, run)]
    store.record("a-complete", {}, run=run)
    heads.append(head(store, run))
    make_store(checkout.main).save("b-complete", {}, run=run)
    heads.append(head(store, run))
    assert noted(store, run) == heads
    assert checkpoints_of_store(store).heads.is_head_local(run)
    assert [store.is_ours(store.read(entry.id)) for entry in store.list()] == [True] * 3


def test_what_stands_outside_of_runs_has_no_chain(plain: Store) -> None:
    made = plain.save("a-complete", {})
    assert not Path(private_dir(plain), "chains").exists()
    assert plain.is_ours(made)


def test_only_the_user_may_read_it(plain: Store) -> None:
    before = os.umask(0)
    try:
        run = started(plain)
    finally:
        os.umask(before)
    path = Path(private_dir(plain), "chains", run)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]


def test_who_shares_the_repository_may_write_there_too(
    make_store: MakeStore, tmp_path: Path
) -> None:
    shared = Checkout(tmp_path / "shared")
    shared.path.mkdir()
    shared.git("init", "--quiet", "--shared=group")
    store = make_store(shared)
    path = Path(private_dir(store), "chains", started(store))
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o2770, 0o660]


def test_what_stands_on_somebody_elses_is_somebody_elses(
    plain: Store, main_checkout: Checkout, make_store: MakeStore
) -> None:
    run = started(plain)
    ours = head(plain, run)
    forge(main_checkout, run)
    made = make_store(main_checkout).record("b-complete", {}, run=run)
    assert noted(plain, run) == [ours]
    assert not plain.is_ours(made)
    assert not checkpoints_of_store(plain).heads.is_head_local(run)


def test_a_driver_goes_on_from_nothing_that_others_wrote(
    plain: Store, main_checkout: Checkout
) -> None:
    run = started(plain)
    ours = head(plain, run)
    hold = hold_run(plain, run, "a test")
    evil = forge(main_checkout, run)
    with pytest.raises(CkptError, match="was not written in this clone") as raised:
        checkpoints_of_store(plain).record("b-complete", {}, run=run, guard=hold)
    hint = f"see the fetched checkpoint: git ckpt resume {run}"
    assert (raised.value.hint, head(plain, run)) == (hint, evil)
    main_checkout.git("update-ref", "refs/ckpt/runs/" + run, ours)
    assert checkpoints_of_store(plain).record("b-complete", {}, run=run, guard=hold).sequence == 2


def test_a_head_of_ours_moves_up_to_ours_alone(
    plain: Store, main_checkout: Checkout, make_store: MakeStore
) -> None:
    run = started(plain)
    first = head(plain, run)
    plain.record("a-complete", {}, run=run)
    second = head(plain, run)
    text = main_checkout.git("cat-file", "blob", second) + "\n"
    checkpoint = "00000000-0000-4000-8000-00000000000f"
    text = text.replace("sequence = 2", "sequence = 9").replace(plain.list()[0].id, checkpoint)
    main_checkout.git(
        "update-ref",
        "refs/checkpoints/" + checkpoint,
        main_checkout.git("hash-object", "-w", "--stdin", data=text),
    )
    for behind in (first, second, None):
        main_checkout.git(
            "update-ref",
            *(["refs/ckpt/runs/" + run, behind] if behind else ["-d", "refs/ckpt/runs/" + run]),
        )
        other = make_store(main_checkout)
        checkpoints_of_store(other).heads.move_head_up(run)
        assert head(other, run) == second
    assert plain.list()[0].id == checkpoint
    assert plain.find("latest") != checkpoint
    found = plain.latest_resumable()
    assert found is not None
    assert found.sequence == 2


def test_where_the_newest_is_removed_the_one_before_is_ours(plain: Store) -> None:
    run = started(plain)
    newest = plain.record("a-complete", {}, run=run)
    plain.remove([newest.id])
    assert checkpoints_of_store(plain).heads.is_head_local(run)
    plain.remove([entry.id for entry in plain.list()])
    assert noted(plain, run) == []


def test_the_chain_of_a_run_that_is_gone_goes_with_maintenance(plain: Store) -> None:
    run = started(plain)
    place = Path(private_dir(plain), "chains")
    hours_ago = time.time() - 2 * 3600
    for name, is_old in (("20260101-000000-left", True), ("20260101-000000-begins", False)):
        (place / name).write_text("")
        if is_old:
            os.utime(place / name, (hours_ago, hours_ago))
    os.utime(place / run, (hours_ago, hours_ago))
    plain.expire()
    assert sorted(os.listdir(place)) == ["20260101-000000-begins", run]


def test_one_that_is_long_is_known_to_its_beginning(plain: Store) -> None:
    run = started(plain)
    first = head(plain, run)
    repository = checkpoints_of_store(plain).repository
    for number in range(300):
        local_checkpoints.append_oids(repository, run, [f"{number:040x}"])
    assert [
        local_checkpoints.is_document_local(repository, run, oid)
        for oid in (first, f"{0:040x}", f"{299:040x}", "f" * 40, "")
    ] == [True, True, True, False, False]
    assert not local_checkpoints.is_document_local(repository, "../" + run, first)


def test_a_line_that_a_full_disk_has_cut_off_spoils_no_other(plain: Store) -> None:
    run = started(plain)
    path = Path(private_dir(plain), "chains", run)
    path.write_text(path.read_text() + "0123456")
    plain.record("a-complete", {}, run=run)
    assert checkpoints_of_store(plain).heads.is_head_local(run)


def test_where_it_cannot_be_noted_there_is_a_checkpoint_all_the_same(plain: Store) -> None:
    place = Path(make_private_dir(plain), "chains")
    place.write_text("in the way")
    run = started(plain)
    assert not checkpoints_of_store(plain).heads.is_head_local(run)
    assert f"git ckpt resume {run} --trust" in (place.parent / "log").read_text()


def extended(path: str, worker: int) -> list[str]:
    """Extend the only run repeatedly in a process of its own; return the ids."""
    with open_store(path) as store:
        (run,) = (each.run for each in store.runs())
        return [store.record(f"w{worker}-complete", {"n": n}, run=run).id for n in range(6)]


@pytest.mark.long
def test_of_several_processes_each_line_is_there(plain: Store, main_checkout: Checkout) -> None:
    run = started(plain)
    made = forked.together(*((extended, (str(main_checkout.path), worker)) for worker in range(4)))
    assert len({one for each in made for one in each}) == 24
    assert {entry.oid for entry in plain.list()} <= set(noted(plain, run))
    assert checkpoints_of_store(plain).heads.is_head_local(run)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("done", range(5))
def test_a_git_that_dies_within_the_transaction_makes_no_run_of_ours_foreign(
    main_checkout: Checkout,
    make_store: MakeStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    done: int,
) -> None:
    run = started(make_store(main_checkout))
    git = DyingGit(tmp_path / "dying", monkeypatch)
    git.die_after(done)
    with make_store(main_checkout) as store:
        store.record("a-complete", {}, run=run)
    assert git.has_died
    assert checkpoints_of_store(make_store(main_checkout)).heads.is_head_local(run)


KILLED = """
import os, sys
from gitckpt.git.repository import discover_repository
from gitckpt.store.checkpoints import Checkpoints
path, at = sys.argv[1], int(sys.argv[2])
count = 0

def hear(event, args):
    global count
    writes = event in ("os.rename", "os.mkdir", "os.remove") or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR))
    if writes or event == "os.posix_spawn":
        count += 1
        if count == at:
            os.kill(os.getpid(), 9)

sys.addaudithook(hear)
with Checkpoints(discover_repository(path), adapter="plumbing") as store:
    first = store.record("a-started", {"n": 1}, start="r")
    for _ in range(3):
        store.record("a-complete", run=first.run)
"""  # noqa: E501


@pytest.mark.long
def test_a_kill_at_each_write_leaves_the_run_ours(main_checkout: Checkout) -> None:
    begun = 0
    for at in range(1, 200):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(main_checkout.path), str(at)],
            cwd=ROOT,
            capture_output=True,
            check=False,
            text=True,
        )
        with open_store(str(main_checkout.path)) as store:
            for run in [each.run for each in store.runs()]:
                checkpoints_of_store(store).heads.move_head_up(run)
                assert checkpoints_of_store(store).heads.is_head_local(run), (at, run)
                begun += 1
                store.remove([entry.id for entry in store.list()])
        if done.returncode == 0:
            assert (at > 15, begun > 5) == (True, True)
            return
        assert done.returncode == -9, done.stderr
    raise AssertionError("it is killed each time")


def test_a_run_that_is_adopted_is_ours_as_it_stands(plain: Store, main_checkout: Checkout) -> None:
    run = started(plain)
    older = plain.record("a-complete", {}, run=run)
    evil = forge(main_checkout, run)
    trust.adopt(checkpoints_of_store(plain), run, evil)
    assert checkpoints_of_store(plain).heads.is_head_local(run)
    assert trust.read(checkpoints_of_store(plain), run, older.id) == older
    forge(main_checkout, run, **{"evil = 1": "evil = 2"})
    assert not checkpoints_of_store(plain).heads.is_head_local(run)


def test_a_checkpoint_that_was_replaced_is_not_read_for_the_one_of_ours(
    plain: Store, main_checkout: Checkout
) -> None:
    run = started(plain)
    newest = plain.record("a-complete", {}, run=run)
    assert trust.read(checkpoints_of_store(plain), run, newest.id) == newest
    main_checkout.git("update-ref", "refs/checkpoints/" + newest.id, forge(main_checkout, run))
    with pytest.raises(
        trust.Untrusted, match="was not written in this repository; the newest local checkpoint is"
    ):
        trust.read(checkpoints_of_store(plain), run, newest.id)
