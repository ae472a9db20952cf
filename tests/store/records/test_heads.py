"""Heads of runs move up where they lag, and never down or past a newer head."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitckpt import BusyError, InvalidCheckpoint, NotFoundError, RefMoved, Store
from gitckpt.model import codec
from gitckpt.store import local_checkpoints
from gitckpt.store.records import heads as module
from gitckpt.store.records import ref_names
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.conftest import RUN, MakeStore
from tests.stores import private_dir

HEAD = f"refs/ckpt/runs/{RUN}"
LOOK = "repair the head of the run: git ckpt verify --repair"


@pytest.fixture
def chain(plain: Store) -> list[str]:
    """The blobs of a run of three checkpoints, oldest first, beside a second run."""
    first = plain.record("run-started", {}, start="Add login!")
    plain.record("run-started", {}, start="another")
    for label in ("a-complete", "b-complete"):
        plain.record(label, {}, run=first.run)
    return [entry.oid for entry in reversed(plain.list()) if entry.run == first.run]


def set_head(checkout: Checkout, oid: str) -> None:
    checkout.git("update-ref", HEAD, oid)


class TestMovedUp:
    """A store that has recorded nothing itself moves the head up."""

    @pytest.mark.parametrize("at", [0, 1])
    def test_one_that_lags(
        self, make_store: MakeStore, main_checkout: Checkout, chain: list[str], at: int
    ) -> None:
        set_head(main_checkout, chain[at])
        assert make_store(main_checkout).newest(RUN).sequence == 3
        assert main_checkout.refs(HEAD) == {HEAD: chain[2]}

    def test_one_that_is_gone(
        self, make_store: MakeStore, main_checkout: Checkout, chain: list[str]
    ) -> None:
        main_checkout.git("update-ref", "-d", HEAD)
        heads = checkpoints_of_store(make_store(main_checkout)).heads
        assert (heads.run_exists(RUN), heads.run_exists("20270115-080001-missing")) == (True, False)
        assert main_checkout.refs(HEAD) == {HEAD: chain[2]}

    def test_one_that_is_there_is_not_looked_after_by_the_way(
        self, make_store: MakeStore, main_checkout: Checkout, chain: list[str]
    ) -> None:
        set_head(main_checkout, chain[0])
        assert checkpoints_of_store(make_store(main_checkout)).heads.run_exists(RUN)
        assert main_checkout.refs(HEAD) == {HEAD: chain[0]}

    def test_only_once_where_once_is_asked_for(
        self, make_store: MakeStore, main_checkout: Checkout, chain: list[str]
    ) -> None:
        heads = checkpoints_of_store(make_store(main_checkout)).heads
        for expected in (chain[2], chain[0]):
            set_head(main_checkout, chain[0])
            heads.move_head_up_once(RUN)
            assert main_checkout.refs(HEAD) == {HEAD: expected}
        heads.move_head_up(RUN)
        assert main_checkout.refs(HEAD) == {HEAD: chain[2]}

    def test_the_newest_stays_where_it_is(
        self, make_store: MakeStore, main_checkout: Checkout, chain: list[str]
    ) -> None:
        before = main_checkout.fingerprint()
        assert make_store(main_checkout).newest(RUN).sequence == len(chain)
        assert main_checkout.fingerprint() == before

    @pytest.mark.parametrize("ahead", [3, 4])
    def test_never_down_to_one_that_is_no_newer(
        self, make_store: MakeStore, main_checkout: Checkout, chain: list[str], ahead: int
    ) -> None:
        """A head that is not in the listing is not moved down.

        A kill left out the checkpoint's own ref, or a user deleted it.
        """
        text = main_checkout.git("cat-file", "blob", chain[2]).replace(
            "sequence = 3", f"sequence = {ahead}"
        )
        other = main_checkout.git("hash-object", "-w", "--stdin", data=f"{text}\n\n")
        assert other not in chain
        set_head(main_checkout, other)
        assert make_store(main_checkout).newest(RUN).sequence == ahead
        assert main_checkout.refs(HEAD) == {HEAD: other}

    def test_not_past_somebody_who_was_faster(
        self,
        make_store: MakeStore,
        main_checkout: Checkout,
        chain: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        set_head(main_checkout, chain[0])
        heads = checkpoints_of_store(make_store(main_checkout)).heads
        update = heads._refs.apply_updates

        def outrun(updates: list[object]) -> None:
            set_head(main_checkout, chain[1])
            with pytest.raises(RefMoved):
                update(updates)  # type: ignore[arg-type]
            raise RefMoved("another writer was faster")

        monkeypatch.setattr(heads._refs, "apply_updates", outrun)
        heads.move_head_up(RUN)
        assert main_checkout.refs(HEAD) == {HEAD: chain[1]}

    def test_a_run_of_which_nothing_is_there_has_none(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        heads = checkpoints_of_store(plain).heads
        with pytest.raises(NotFoundError) as caught:
            heads.move_head_up_and_read(RUN)
        assert (caught.value.message, caught.value.hint) == (
            f"no run {RUN}",
            "list the runs: git ckpt runs",
        )
        assert main_checkout.refs("refs/ckpt") == {}


class TestBehind:
    """The next record continues after a kill between a checkpoint and its head.

    A live driver wrote the checkpoint before, and needs to look at nothing but the head.
    """

    @pytest.fixture
    def driver(self, plain: Store) -> Store:
        """A store that has recorded in the run, and no longer looks for heads that lag."""
        for label in ("a-started", "a-progress"):
            plain.record(label, {}, **({"run": RUN} if plain.list() else {"start": "Add login!"}))  # type: ignore[arg-type]
        return plain

    @pytest.mark.parametrize("count", [1, 2])
    def test_a_driver_that_is_alive_goes_on_from_what_others_have_recorded(
        self, driver: Store, make_store: MakeStore, main_checkout: Checkout, count: int
    ) -> None:
        head = main_checkout.refs(HEAD)[HEAD]
        others = [
            make_store(main_checkout).record(f"b{number}-complete", {"b": number}, run=RUN)
            for number in range(count)
        ]
        set_head(main_checkout, head)
        made = driver.record("a-complete", {}, run=RUN)
        assert (made.sequence, made.parent) == (3 + count, others[-1].id)
        assert main_checkout.refs(HEAD) == {HEAD: driver.list()[0].oid}
        assert driver.verify().findings == []

    def test_what_was_noted_and_never_recorded_is_passed_over(
        self, driver: Store, main_checkout: Checkout
    ) -> None:
        text = main_checkout.git("cat-file", "blob", HEAD).replace("sequence = 2", "sequence = 3")
        written = main_checkout.git("hash-object", "-w", "--stdin", data=f"{text}\n")
        tree = main_checkout.git("rev-parse", "main^{tree}")
        local_checkpoints.append_oids(
            checkpoints_of_store(driver).repository, RUN, ["1" * 40, written, tree]
        )
        assert driver.record("a-complete", {}, run=RUN).sequence == 3

    def test_nor_is_gone_on_from_what_was_not_written_here(
        self, driver: Store, make_store: MakeStore, main_checkout: Checkout
    ) -> None:
        head = main_checkout.refs(HEAD)[HEAD]
        make_store(main_checkout).record("b-complete", {}, run=RUN)
        set_head(main_checkout, head)
        Path(private_dir(driver), "chains", RUN).write_text(f"{head}\n")
        assert driver.record("a-complete", {}, run=RUN).sequence == 3


class TestInvalid:
    """A head that does not point to a checkpoint of a run is named, and stays."""

    @pytest.mark.parametrize("found", [None, ("tree", b""), ("commit", b"tree 0\n")])
    def test_what_is_no_blob(self, found: tuple[str, bytes] | None) -> None:
        with pytest.raises(InvalidCheckpoint) as caught:
            ref_names.parse_run_head(found, HEAD)
        said = caught.value
        assert (said.ref, said.field, said.problem, said.hint) == (
            HEAD,
            "",
            "does not point to a checkpoint document",
            LOOK,
        )

    def test_a_checkpoint_of_no_run(self, plain: Store, main_checkout: Checkout) -> None:
        plain.record("a-complete", {})
        text = main_checkout.blobs(plain.list()[0].oid)[0]
        assert codec.decode(text, HEAD).sequence is None
        with pytest.raises(InvalidCheckpoint) as caught:
            ref_names.parse_run_head(("blob", text), HEAD)
        said = caught.value
        assert (said.ref, said.field, said.problem, said.hint) == (
            HEAD,
            "sequence",
            "missing",
            LOOK,
        )

    def test_a_document_that_cannot_be_read(self) -> None:
        with pytest.raises(InvalidCheckpoint, match=f"^{HEAD}: "):
            ref_names.parse_run_head(("blob", b"\0"), HEAD)

    def test_it_is_not_moved(
        self, make_store: MakeStore, main_checkout: Checkout, chain: list[str]
    ) -> None:
        set_head(main_checkout, "HEAD^{tree}")
        before = main_checkout.refs(HEAD)
        with pytest.raises(
            InvalidCheckpoint, match=f"^{HEAD}: does not point to a checkpoint document$"
        ):
            checkpoints_of_store(make_store(main_checkout)).heads.move_head_up(RUN)
        assert main_checkout.refs(HEAD) == before


class TestStarted:
    def test_each_try_has_another_name(self, plain: Store) -> None:
        fields: dict[str, object] = {}
        names = []

        def taken() -> None:
            names.append(fields["run"])
            if len(names) < 3:
                raise RefMoved("it is there by now")

        checkpoints_of_store(plain).heads.start_run(
            taken, fields, 1_800_000_000_000_000, "Add login!"
        )
        assert names == [
            "20270115-080000-add-login",
            "20270115-080000-add-login-2",
            "20270115-080000-add-login-3",
        ]

    def test_a_name_that_is_there_is_not_tried(self, plain: Store, main_checkout: Checkout) -> None:
        main_checkout.git("update-ref", "refs/ckpt/runs/20270115-080000-add-login", "HEAD")
        fields: dict[str, object] = {}
        checkpoints_of_store(plain).heads.start_run(
            lambda: None, fields, 1_800_000_000_000_000, "Add login!"
        )
        assert fields == {"run": "20270115-080000-add-login-2"}

    def test_a_thousand_are_enough(self, plain: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_STARTS", 4)
        tries = []

        def taken() -> None:
            tries.append(1)
            raise RefMoved("it is there by now")

        with pytest.raises(BusyError) as caught:
            checkpoints_of_store(plain).heads.start_run(
                taken, {}, 1_800_000_000_000_000, "Add login!"
            )
        said = caught.value
        assert (len(tries), said.message, said.hint) == (
            3,
            "a thousand runs named 'Add login!' have started in this second",
            "choose another name",
        )
