"""Notes are written in time, follow rewritten commits and survive kills."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Policy, Store
from tests import forked, planted
from tests.conftest import Checkout, Clock
from tests.planted import plant
from tests.store.conftest import (
    ONE,
    THREE,
    TWO,
    MakeStore,
    notes,
    nth,
    require_whole,
    written_notes,
)
from tests.stores import maintain, make_private_dir, open_store
from tests.system.kills.killer import Killer, opened

MINUTE = 60_000_000


@pytest.fixture
def head(main_checkout: Checkout) -> str:
    return main_checkout.git("rev-parse", "HEAD")


@pytest.fixture
def killer(tmp_path: Path) -> Killer:
    return Killer(tmp_path / "killer")


def loose(checkout: Checkout) -> int:
    return int(checkout.git("count-objects").split()[0])


def place(checkout: Checkout) -> Path:
    return Path(make_private_dir(checkout), "links")


def ids_in(path: Path) -> list[str]:
    return [line.split(" ")[1] for line in path.read_text().splitlines() if line]


def require_clean(checkout: Checkout) -> None:
    with open_store(checkout, clock=Clock()) as store:
        report = store.verify()
    assert report.findings == []


def note_of(checkout: Checkout, commit: str) -> list[str]:
    return checkout.git("notes", "--ref=checkpoints", "show", commit).splitlines()


class TestLinks:
    def test_links_that_wait_are_found(self, plain: Store, main_checkout: Checkout) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        for _ in range(3):
            plain.record("a-complete", {})
        assert [entry.id for entry in plain.links(head)] == [THREE, TWO, ONE]
        assert written_notes(main_checkout) == {head: [ONE]}
        assert plain.write_notes()
        assert written_notes(main_checkout) == {head: [ONE, TWO, THREE]}
        assert not plain.write_notes()

    def test_the_next_one_that_is_due_takes_those_put_off_along(
        self, plain: Store, main_checkout: Checkout, clock: Clock
    ) -> None:
        first = main_checkout.git("rev-parse", "HEAD")
        plain.record("a-complete", {})
        plain.record("a-complete", {})
        second = main_checkout.commit("second")
        clock.instant += 60_000_000
        plain.record("a-complete", {})
        assert written_notes(main_checkout) == {first: [ONE, TWO], second: [THREE]}

    @pytest.mark.parametrize("rewrite", ["amend", "rebase"])
    def test_a_rewrite_carries_them_over(
        self, store: Store, checkout: Checkout, rewrite: str
    ) -> None:
        checkout.git("config", "notes.rewriteRef", "refs/notes/checkpoints")
        checkout.git("config", "notes.rewriteMode", "cat_sort_uniq")
        base = checkout.git("rev-parse", "HEAD")
        old = checkout.commit("second", second="2")
        store.record("a-complete", {})
        store.record("b-complete", {})
        store.write_notes()
        if rewrite == "amend":
            checkout.git("commit", "--quiet", "--amend", "--message", "other words")
        else:
            checkout.git("checkout", "--quiet", "-b", "topic")
            checkout.git("checkout", "--quiet", "--detach", base)
            onto = checkout.commit("onto", onto="o")
            checkout.git("checkout", "--quiet", "topic")
            checkout.git("rebase", "--quiet", onto)
        new = checkout.git("rev-parse", "HEAD")
        third = store.record("c-complete", {})
        assert new != old
        assert [entry.id for entry in store.links(new)] == [third.id, TWO, ONE]
        assert [entry.id for entry in store.links(old)] == [TWO, ONE]
        assert notes(checkout)[new] == [ONE, TWO, THREE]
        assert (store.find("HEAD"), store.find(new), store.find(old)) == (THREE, THREE, TWO)

    def test_a_commit_without_any(self, plain: Store, main_checkout: Checkout) -> None:
        assert plain.links(main_checkout.git("rev-parse", "HEAD")) == []
        assert plain.links("0" * 40) == []

    def test_a_lost_note_is_made_up_for_by_the_checkpoint_itself(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        plain.record("a-complete", {})
        main_checkout.git("update-ref", "-d", "refs/notes/checkpoints")
        assert [entry.id for entry in plain.links(main_checkout.git("rev-parse", "HEAD"))] == [ONE]

    def test_lines_of_people_stay_while_git_appends_beside(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        head = main_checkout.head()
        plain.record("a-complete", {})
        words = ["first", "", "and 3 more", "xyz not an id"]
        main_checkout.git("notes", "--ref=checkpoints", "append", "-F", "-", data="\n".join(words))
        for number in range(3):
            plain.record("b-complete", {})
            main_checkout.git("notes", "--ref=checkpoints", "append", "-m", f"more {number}")
            plain.write_notes()
        lines = note_of(main_checkout, head)
        assert [line for line in lines if line and line in words] == [
            word for word in words if word
        ]
        assert [line for line in lines if line.startswith("more ")] == [
            "more 0",
            "more 1",
            "more 2",
        ]
        assert [line.split(" ")[0] for line in lines if line[:8].isdigit()] == [
            nth(number) for number in range(1, 5)
        ]

    def test_a_note_that_git_writes_meanwhile_is_not_lost(
        self, plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain.record("a-complete", {})
        plain.record("b-complete", {})
        edited, tries = planted.original(planted.EDIT_NOTES), list[Any]()

        def disturbed(*args: Any) -> Any:
            found = edited(*args)
            if not tries:
                main_checkout.git("notes", "--ref=checkpoints", "append", "-m", "meanwhile")
            tries.append(found)
            return found

        plant(monkeypatch, planted.EDIT_NOTES, disturbed)
        plain.write_notes()
        assert len(tries) == 2
        assert {"meanwhile", TWO} <= {line.split(" ")[0] for line in note_of(main_checkout, "HEAD")}

    def test_what_is_removed_goes_from_every_note_that_git_carried_it_to(
        self, plain: Store, main_checkout: Checkout
    ) -> None:
        first = main_checkout.head()
        plain.record("a-complete", {})
        plain.record("b-complete", {})
        plain.write_notes()
        second = main_checkout.commit()
        main_checkout.git("notes", "--ref=checkpoints", "copy", first, second)
        main_checkout.git("notes", "--ref=checkpoints", "append", "-m", "words", second)
        plain.remove([ONE])
        plain.write_notes()
        assert written_notes(main_checkout) == {first: [TWO], second: [TWO, "", "words"]}
        plain.remove([TWO])
        plain.write_notes()
        assert written_notes(main_checkout) == {second: ["", "words"]}

    def test_what_a_full_note_leaves_out_follows_an_amend(
        self, plain: Store, main_checkout: Checkout, clock: Clock
    ) -> None:
        main_checkout.git("config", "notes.rewriteRef", "refs/notes/checkpoints")
        old = main_checkout.commit("second")
        for _ in range(30):
            plain.record("a-complete", {}, trigger="post-commit")
        plain.write_notes()
        main_checkout.git("commit", "--quiet", "--amend", "--message", "other words")
        new = main_checkout.head()
        assert [entry.id for entry in plain.links(new)] == [
            nth(number) for number in range(30, 0, -1)
        ]
        assert [entry.id for entry in plain.links(old)] == [
            nth(number) for number in range(30, 0, -1)
        ]
        require_clean(main_checkout)
        clock.instant += 8 * 86400 * 1_000_000
        decided = plain.expire(Policy(keep_last=1), dry_run=True).checkpoints
        assert sum("its commit was rewritten" in decision.reason for _, decision in decided) >= 29

    def test_list_writes_what_has_waited(
        self, plain: Store, main_checkout: Checkout, clock: Clock
    ) -> None:
        head = main_checkout.head()
        for _ in range(2):
            plain.record("a-complete", {})
        assert not plain.write_notes(only_if_due=True)
        clock.instant += MINUTE
        assert plain.write_notes(only_if_due=True)
        assert written_notes(main_checkout) == {head: [ONE, TWO]}


class TestWhatIsWritten:
    def test_a_record_that_is_not_due_writes_its_document_alone(
        self, main_checkout: Checkout, plain: Store
    ) -> None:
        plain.record("a-complete", {})
        before, ref = loose(main_checkout), main_checkout.refs("refs/notes")
        for _ in range(20):
            plain.record("a-complete", {})
        assert (loose(main_checkout) - before, main_checkout.refs("refs/notes")) == (20, ref)
        assert plain.write_notes()
        assert loose(main_checkout) - before == 23

    @pytest.mark.long
    def test_stores_that_come_and_go_write_once_a_minute(
        self, main_checkout: Checkout, make_store: MakeStore, clock: Clock
    ) -> None:
        """A loop of `git ckpt save` opens one store after the other."""
        clock.step = MINUTE // 20
        before = loose(main_checkout)
        for _ in range(60):
            with make_store(main_checkout) as store:
                store.record("a-complete", {})
        assert 60 + 3 * 3 <= loose(main_checkout) - before <= 60 + 3 * 10
        require_clean(main_checkout)

    @pytest.mark.long
    def test_a_thousand_checkpoints_on_one_commit(
        self, main_checkout: Checkout, plain: Store, head: str
    ) -> None:
        for _ in range(1000):
            plain.record("a-complete", {})
        plain.write_notes()
        lines = note_of(main_checkout, head)
        assert [line.split(" ")[0] for line in lines] == [
            *(nth(number) for number in range(981, 1001)),
            "and",
        ]
        assert [entry.id for entry in plain.links(head)] == [
            nth(number) for number in range(1000, 0, -1)
        ]
        assert plain.find("HEAD") == nth(1000)
        require_clean(main_checkout)
        assert plain.verify().checked["links"] == 1000

    @pytest.mark.parametrize("away", [-1, -MINUTE, MINUTE, 10 * 365 * 86400 * 1_000_000])
    def test_a_stamp_that_is_old_or_in_the_future_puts_nothing_off(
        self, main_checkout: Checkout, plain: Store, clock: Clock, head: str, away: int
    ) -> None:
        plain.record("a-complete", {})
        stamp = place(main_checkout).with_name("linked")
        then = clock.instant + clock.step - (away if away > 0 else away - 1)
        os.utime(stamp, ns=(then * 1000, then * 1000))
        plain.record("b-complete", {})
        assert written_notes(main_checkout) == {head: [ONE, TWO]}
        assert 0 < clock.instant - stamp.stat().st_mtime_ns // 1000 + 1 <= clock.step
        plain.record("c-complete", {})
        assert written_notes(main_checkout) == {head: [ONE, TWO]}

    def test_a_store_that_is_closed_later_than_that(
        self, main_checkout: Checkout, make_store: MakeStore, clock: Clock, head: str
    ) -> None:
        store = make_store(main_checkout)
        store.record("a-complete", {})
        store.record("b-complete", {})
        clock.instant += MINUTE
        store.close()
        assert written_notes(main_checkout) == {head: [ONE, TWO]}

    def test_maintenance(self, main_checkout: Checkout, plain: Store, head: str) -> None:
        for _ in range(3):
            plain.record("a-complete", {})
        maintain(main_checkout)
        assert written_notes(main_checkout) == {head: [ONE, TWO, THREE]}
        assert ids_in(place(main_checkout)) == []

    def test_expiry_that_only_decides_writes_nothing(
        self, main_checkout: Checkout, plain: Store
    ) -> None:
        for _ in range(3):
            plain.record("a-complete", {})
        before = main_checkout.fingerprint()
        plain.expire(Policy(), dry_run=True)
        assert main_checkout.fingerprint() == before

    def test_a_linked_worktree_shares_them(
        self, main_checkout: Checkout, make_store: MakeStore, head: str
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", "../other")
        make_store(main_checkout).record("a-complete", {})
        make_store(main_checkout.path.parent / "other").record("b-complete", {})
        assert written_notes(main_checkout) == {head: [ONE]}
        third = make_store(main_checkout)
        assert third.write_notes()
        assert written_notes(main_checkout) == {head: [ONE, TWO]}
        assert not (main_checkout.path.parent / "other" / "ckpt").exists()


class TestNothingIsLost:
    @pytest.mark.long
    def test_verify_at_each_moment(self, main_checkout: Checkout, plain: Store) -> None:
        for number in range(30):
            plain.record("a-complete", {})
            if number % 5 == 0:
                require_clean(main_checkout)
        assert plain.verify().checked["links"] == 30
        assert written_notes(main_checkout).popitem()[1] == [ONE]
        assert plain.verify(repair=True).findings == []
        assert len(note_of(main_checkout, "HEAD")) == 21
        require_clean(main_checkout)

    def test_a_removal(self, main_checkout: Checkout, plain: Store, head: str) -> None:
        for _ in range(5):
            plain.record("a-complete", {})
        plain.remove([ONE, THREE])
        assert [entry.id for entry in plain.links(head)] == [nth(5), nth(4), TWO]
        plain.write_notes()
        assert written_notes(main_checkout) == {head: [TWO, nth(4), nth(5)]}

    def test_a_disk_that_is_full_and_a_lock_on_the_notes(
        self, main_checkout: Checkout, plain: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The checkpoint is recorded even if its note is neither written nor queued."""
        plant(monkeypatch, planted.LOCK_TIMEOUT_MS, 20)
        plain.record("a-complete", {})
        (main_checkout.path / ".git/refs/notes/checkpoints.lock").touch()
        plant(monkeypatch, planted.QUEUE_NOTE, lambda *_: None)
        plain.record("b-complete", {})
        assert require_whole(main_checkout).keys() == {ONE, TWO}

    def test_the_file_is_lost(self, main_checkout: Checkout, plain: Store, head: str) -> None:
        for _ in range(4):
            plain.record("a-complete", {})
        place(main_checkout).unlink()
        assert [entry.id for entry in plain.links(head)] == [nth(4), THREE, TWO, ONE]
        assert plain.find("HEAD") == nth(4)
        assert not plain.write_notes()
        assert {finding.code for finding in plain.verify(repair=True).findings} == {"note-missing"}
        assert written_notes(main_checkout) == {head: [ONE, TWO, THREE, nth(4)]}

    def test_damaged_lines_are_passed_over(
        self, main_checkout: Checkout, plain: Store, head: str
    ) -> None:
        plain.record("a-complete", {})
        plain.record("b-complete", {})
        path = place(main_checkout)
        line = path.read_text().strip()
        stranger = line.replace(TWO, nth(99))
        torn = [line.replace(TWO, THREE)[:cut] for cut in (20, 41, 60, 90, len(line) - 1)]
        path.write_bytes(
            b"\0\0\xff\n"
            + "\n".join([*torn, stranger, line, "x" * 5000, f"{head} {THREE}"]).encode()
        )
        plain.record("c-complete", {})
        assert [entry.id for entry in plain.links(head)] == [THREE, TWO, ONE]
        require_clean(main_checkout)
        plain.write_notes()
        assert written_notes(main_checkout) == {head: [ONE, TWO, THREE]}
        require_clean(main_checkout)

    @pytest.mark.parametrize("name", ["links", "linked"])
    @pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
    def test_something_else_in_its_place(
        self, main_checkout: Checkout, plain: Store, tmp_path: Path, name: str, kind: str
    ) -> None:
        """A link, pipe or directory is neither written nor waited for.

        `verify --repair` writes the notes that could not be queued.
        """
        path = place(main_checkout).with_name(name)
        target = tmp_path / "theirs"
        target.write_text("theirs")
        if kind == "link":
            path.symlink_to(target)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
        head = main_checkout.git("rev-parse", "HEAD")
        plain.record("a-complete", {})
        plain.record("b-complete", {})
        assert target.read_text() == "theirs"
        assert [entry.id for entry in plain.links(head)] == [TWO, ONE]
        plain.verify(repair=True)
        assert notes(main_checkout) == {head: [ONE, TWO]}

    def test_a_stamp_of_somebody_else_is_replaced(
        self,
        main_checkout: Checkout,
        plain: Store,
        clock: Clock,
        head: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        plain.record("a-complete", {})
        utime, refusals = os.utime, [PermissionError(1, "not the owner")]

        def refused_once(*args: object, **named: object) -> None:
            if refusals:
                raise refusals.pop()
            utime(*args, **named)  # type: ignore[arg-type]

        clock.instant += MINUTE
        monkeypatch.setattr(os, "utime", refused_once)
        plain.record("b-complete", {})
        plain.record("c-complete", {})
        assert written_notes(main_checkout) == {head: [ONE, TWO]}


class TestKills:
    def test_between_the_notes_and_the_file(
        self, main_checkout: Checkout, plain: Store, head: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A crash between writing the notes and clearing the queue lists nothing twice."""
        for _ in range(5):
            plain.record("a-complete", {})
        with monkeypatch.context() as patched:
            plant(patched, planted.CLEAR_NOTE_QUEUE, lambda *_: None)
            plain.write_notes()
        assert len(ids_in(place(main_checkout))) == 4
        require_clean(main_checkout)
        assert not plain.write_notes()
        assert ids_in(place(main_checkout)) == []
        assert written_notes(main_checkout) == {head: [nth(number) for number in range(1, 6)]}

    def test_before_the_refs(
        self, main_checkout: Checkout, plain: Store, head: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain.record("a-complete", {})
        with monkeypatch.context() as patched:
            plant(patched, planted.WRITE_RECORD, lambda *_: (_ for _ in ()).throw(SystemExit))
            with pytest.raises(SystemExit):
                plain.record("b-complete", {})
        assert ids_in(place(main_checkout)) == [TWO]
        require_clean(main_checkout)
        assert [entry.id for entry in plain.links(head)] == [ONE]
        plain.record("c-complete", {})
        plain.write_notes()
        assert written_notes(main_checkout) == {head: [ONE, THREE]}
        require_clean(main_checkout)

    @pytest.mark.long
    def test_at_each_git_call(
        self, main_checkout: Checkout, tmp_path: Path, killer: Killer
    ) -> None:
        script = """
            for _ in range(22):
                print(store.record("a-complete").id, flush=True)
            store.write_links()
            print(store.record("b-complete").id, flush=True)
            print(store.remove([store.find_id("HEAD")]), flush=True)
        """
        at = 0
        while True:
            at += 11
            copy = Checkout(tmp_path / f"copy-{at}")
            main_checkout.git("clone", "--quiet", "--no-hardlinks", ".", str(copy.path))
            survived, reported = killer.run(at, script, str(copy.path))
            found = require_whole(copy)
            assert set(reported[:22]) <= found.keys()
            with opened(copy) as store:
                flaws = [
                    finding
                    for finding in store.verify().findings
                    if finding.code in ("note-missing", "note-stray")
                ]
                assert flaws == []
            listed = [name for names in notes(copy).values() for name in names]
            assert sorted(listed) == sorted(found)
            require_clean(copy)
            if survived:
                assert at > 40
                return


def write_notes(path: str, count: int) -> int:
    """Write pending notes repeatedly, as one of several processes."""
    with open_store(path) as store:
        return sum(store.write_notes() for _ in range(count))


def record(path: str, count: int) -> list[str]:
    with open_store(path) as store:
        return [store.record("a-complete").id for _ in range(count)]


@pytest.mark.long
def test_writers_side_by_side(main_checkout: Checkout, head: str) -> None:
    path = str(main_checkout.path)
    *recorded, _, _ = forked.together(
        *[(record, (path, 40))] * 3, (write_notes, (path, 30)), (write_notes, (path, 30))
    )
    assert sorted(notes(main_checkout)[head]) == sorted(
        name for names in recorded for name in names
    )
    require_clean(main_checkout)


@pytest.mark.long
def test_threads_read_what_waits_while_it_is_written(
    main_checkout: Checkout, make_store: MakeStore, head: str
) -> None:
    store = make_store(main_checkout)
    store.record("a-complete", {})
    over = threading.Event()
    seen: list[int] = []

    def look() -> None:
        while not over.is_set():
            seen.append(len(store.links(head)))

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(20):
        store.record("a-complete", {})
        store.write_notes()
    over.set()
    thread.join()
    assert seen == sorted(seen)


@pytest.mark.parametrize("is_empty", [False, True])
def test_notes_whose_commit_is_missing_or_damaged_are_made_anew(
    plain: Store, main_checkout: Checkout, clock: Clock, is_empty: bool
) -> None:
    """A power cut can damage a commit of the notes; no other process repairs it."""
    plain.record("a-complete", {})
    plain.write_notes()
    first = main_checkout.head()
    tip = main_checkout.git("rev-parse", "refs/notes/checkpoints")
    path = main_checkout.path / ".git/objects" / tip[:2] / tip[2:]
    path.unlink()
    if is_empty:
        path.touch()
    main_checkout.commit()
    clock.instant += 2 * MINUTE
    started = time.monotonic()
    plain.record("b-complete", {})
    assert time.monotonic() - started < 30.0 / 2
    assert [line.split(" ")[0] for line in note_of(main_checkout, "HEAD")] == [TWO]
    plain.verify(repair=True)
    assert [line.split(" ")[0] for line in note_of(main_checkout, first)] == [ONE]
    if not is_empty:  # else the empty file is named
        require_clean(main_checkout)
