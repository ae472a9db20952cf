"""The newest checkpoint of a run, beside fetched checkpoints and fetched runs."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from gitckpt import CheckpointInfo, NotFoundError, Query, Store
from gitckpt.git.refs import RefUpdate
from gitckpt.store import local_checkpoints
from gitckpt.store.records import heads as module
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.conftest import RUN, MakeStore, nth

OTHER = "20270115-080002-another"
HEAD = f"refs/ckpt/runs/{RUN}"


class Runs(NamedTuple):
    """Two runs of two checkpoints each, one of them fetched.

    A third checkpoint of the other run was fetched as well.
    """

    ours: list[str]
    fetched: str
    others: list[str]


@pytest.fixture
def runs(plain: Store, main_checkout: Checkout) -> Runs:
    for name in ("Add login!", "another"):
        plain.record("run-started", {}, start=name)
    for run in (RUN, OTHER):
        plain.record("a-complete", {}, run=run)
    plain.record("beside-complete", {})
    repository = checkpoints_of_store(plain).repository
    made = {entry.id: entry.oid for entry in plain.list()}
    ours, others = ([made[nth(number)] for number in numbers] for numbers in ((1, 3), (2, 4)))
    local_checkpoints.delete_run_file(repository, OTHER)
    return Runs(ours, fetch(main_checkout, ours[1], 3), others)


def fetch(checkout: Checkout, oid: str, sequence: int) -> str:
    """Add a successor of a checkpoint as a fetch does; return its document's oid."""
    text = checkout.git("cat-file", "blob", oid).replace("sequence = 2", f"sequence = {sequence}")
    name = nth(0xF00 + sequence)
    text = text.replace(nth(3), name)
    assert (f"sequence = {sequence}" in text, name in text) == (True, True)
    made = checkout.git("hash-object", "-w", "--stdin", data=f"{text}\n")
    checkout.git("update-ref", f"refs/checkpoints/{name}", made)
    return made


def oids(entries: list[CheckpointInfo]) -> list[str]:
    return [entry.oid for entry in entries]


class TestWritten:
    """The chain of a local run leaves fetched checkpoints out; a fetched run has all."""

    def test_of_ours_those_alone_newest_first(self, plain: Store, runs: Runs) -> None:
        store = checkpoints_of_store(plain)
        assert oids(module.list_run_checkpoints(store.index, store.repository, RUN)) == [
            runs.ours[1],
            runs.ours[0],
        ]

    def test_of_others_all(self, plain: Store, runs: Runs) -> None:
        store = checkpoints_of_store(plain)
        assert oids(module.list_run_checkpoints(store.index, store.repository, OTHER)) == [
            runs.others[1],
            runs.others[0],
        ]

    def test_of_none_nothing(self, plain: Store, runs: Runs) -> None:
        store = checkpoints_of_store(plain)
        assert (
            module.list_run_checkpoints(store.index, store.repository, "20270115-080009-missing")
            == []
        )


class TestNewest:
    """`newest` returns the first checkpoint of `chain` with fewer queries."""

    @pytest.mark.parametrize("run", [RUN, OTHER, "20270115-080009-missing"])
    def test_is_the_first_of_what_was_written(self, plain: Store, runs: Runs, run: str) -> None:
        store = checkpoints_of_store(plain)
        newest = {RUN: runs.ours[1], OTHER: runs.others[1]}.get(run)
        found = module.find_newest_of_run(store.index, store.repository, run)
        assert (found and found.oid) == newest

    def test_where_it_is_ours_one_row_is_enough(
        self, plain: Store, main_checkout: Checkout, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        main_checkout.git("update-ref", "-d", f"refs/checkpoints/{nth(0xF03)}")
        store = checkpoints_of_store(plain)
        index = store.index
        asked: list[Query] = []
        select = index.select

        def noted(query: Query) -> list[CheckpointInfo]:
            asked.append(query)
            return select(query)

        monkeypatch.setattr(index, "select", noted)
        found = module.find_newest_of_run(index, store.repository, RUN)
        assert (found and found.oid, asked) == (runs.ours[1], [Query(run=RUN, limit=1)])

    def test_of_several_in_one_go(self, plain: Store, runs: Runs) -> None:
        store = checkpoints_of_store(plain)
        found = module.find_newest_by_run(
            store.index, store.repository, {OTHER, RUN, "20270115-080009-missing"}
        )
        assert {run: entry.oid for run, entry in found.items()} == {
            RUN: runs.ours[1],
            OTHER: runs.others[1],
        }
        assert module.find_newest_by_run(store.index, store.repository, ()) == {}

    def test_of_several_only_those_that_are_asked_for(self, plain: Store, runs: Runs) -> None:
        store = checkpoints_of_store(plain)
        assert list(module.find_newest_by_run(store.index, store.repository, [OTHER])) == [OTHER]


class TestRead:
    def test_document_and_checkpoint(self, plain: Store, runs: Runs) -> None:
        heads = checkpoints_of_store(plain).heads
        oid, checkpoint = heads.read_head(RUN)
        assert (oid, checkpoint.id, heads.read(RUN)) == (runs.ours[1], nth(3), checkpoint)

    def test_of_none(self, plain: Store, runs: Runs) -> None:
        with pytest.raises(NotFoundError) as caught:
            checkpoints_of_store(plain).heads.read_head("20270115-080009-missing")
        said = caught.value
        assert (said.message, said.hint) == (
            "no run 20270115-080009-missing",
            "list the runs: git ckpt runs",
        )

    def test_whose_it_is(self, plain: Store, main_checkout: Checkout, runs: Runs) -> None:
        heads = checkpoints_of_store(plain).heads
        found = [
            heads.is_head_local(run) for run in (RUN, OTHER, "20270115-080009-missing", "../runs")
        ]
        main_checkout.git("update-ref", HEAD, runs.fetched)
        assert [*found, heads.is_head_local(RUN)] == [True, False, False, False, False]

    def test_what_is_no_run_id_is_not_asked_of_git(
        self, make_store: MakeStore, main_checkout: Checkout, runs: Runs
    ) -> None:
        """A text that is no run id is not passed to git.

        A line break in it would make two queries, and the second answer would belong to the next
        run.
        """
        main_checkout.git("pack-refs", "--all")
        heads = checkpoints_of_store(make_store(main_checkout)).heads
        assert [heads.is_head_local(run) for run in ("x\ninfo HEAD", RUN)] == [False, True]


class TestMovedUp:
    """A head that was written here moves to no fetched document.

    A fetched head, or a missing one, may.
    """

    def head(self, checkout: Checkout, ref: str = HEAD) -> str | None:
        return checkout.refs(ref).get(ref)

    def test_of_ours_up_to_ours(
        self, make_store: MakeStore, main_checkout: Checkout, runs: Runs
    ) -> None:
        main_checkout.git("update-ref", HEAD, runs.ours[0])
        checkpoints_of_store(make_store(main_checkout)).heads.move_head_up(RUN)
        assert self.head(main_checkout) == runs.ours[1]

    def test_of_ours_that_is_the_newest_of_ours_stays(
        self, make_store: MakeStore, main_checkout: Checkout, runs: Runs
    ) -> None:
        before = main_checkout.fingerprint()
        checkpoints_of_store(make_store(main_checkout)).heads.move_head_up(RUN)
        assert main_checkout.fingerprint() == before

    def test_one_that_is_gone_comes_back_at_the_newest_of_ours(
        self, make_store: MakeStore, main_checkout: Checkout, runs: Runs
    ) -> None:
        main_checkout.git("update-ref", "-d", HEAD)
        checkpoints_of_store(make_store(main_checkout)).heads.move_head_up(RUN)
        assert self.head(main_checkout) == runs.ours[1]

    def test_one_that_somebody_has_set_to_his_goes_on_to_his(
        self, make_store: MakeStore, main_checkout: Checkout, runs: Runs
    ) -> None:
        newest = fetch(main_checkout, runs.ours[1], 4)
        main_checkout.git("update-ref", HEAD, runs.fetched)
        checkpoints_of_store(make_store(main_checkout)).heads.move_head_up(RUN)
        assert self.head(main_checkout) == newest

    def test_of_a_run_of_others_up_to_its_newest(
        self, make_store: MakeStore, main_checkout: Checkout, runs: Runs
    ) -> None:
        other = f"refs/ckpt/runs/{OTHER}"
        heads = checkpoints_of_store(make_store(main_checkout)).heads
        main_checkout.git("update-ref", other, runs.others[0])
        heads.move_head_up(OTHER)
        assert self.head(main_checkout, other) == runs.others[1]
        main_checkout.git("update-ref", "-d", other)
        heads.move_head_up(OTHER)
        assert self.head(main_checkout, other) == runs.others[1]

    def test_by_an_update_that_expects_what_was_seen(
        self,
        make_store: MakeStore,
        main_checkout: Checkout,
        runs: Runs,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        heads = checkpoints_of_store(make_store(main_checkout)).heads
        made: list[tuple[str, str, str]] = []

        def note(updates: list[RefUpdate]) -> None:
            made.extend((update.ref, update.new, update.old) for update in updates)

        monkeypatch.setattr(heads._refs, "apply_updates", note)
        main_checkout.git("update-ref", HEAD, runs.ours[0])
        heads.move_head_up(RUN)
        main_checkout.git("update-ref", "-d", HEAD)
        heads.move_head_up(RUN)
        assert made == [(HEAD, runs.ours[1], runs.ours[0]), (HEAD, runs.ours[1], "")]

    def test_one_that_was_moved_is_noted_as_such(
        self, make_store: MakeStore, main_checkout: Checkout, runs: Runs
    ) -> None:
        heads = checkpoints_of_store(make_store(main_checkout)).heads
        heads.move_head_up(RUN)
        main_checkout.git("update-ref", HEAD, runs.ours[0])
        heads.move_head_up_once(RUN)
        assert self.head(main_checkout) == runs.ours[0]
        main_checkout.git("update-ref", f"refs/ckpt/runs/{OTHER}", runs.others[0])
        heads.move_head_up_once(OTHER)
        assert self.head(main_checkout, f"refs/ckpt/runs/{OTHER}") == runs.others[1]
