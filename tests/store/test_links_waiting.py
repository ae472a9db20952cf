"""Links that wait: how little is written, that nothing is lost meanwhile, and what a kill or damage leaves."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from gitckpt.git.repository import discover
from gitckpt.model.policy import Policy
from gitckpt.store import links
from gitckpt.store.audit.verification import verify
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import recorder
from gitckpt.store.records.recorder import Recorder
from gitckpt.store.retention import maintenance
from gitckpt.store.retention.expiry import expire_alone
from gitckpt.store.store import Store, inside
from tests import forked
from tests.conftest import Checkout, Clock
from tests.store.conftest import ONE, THREE, TWO, MakeStore, notes, nth, require_whole, written_notes
from tests.store.killer import Killer, opened

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
    return Path(discover(str(checkout.path)).make_private_dir(), links.WAITING)


def ids_in(path: Path) -> list[str]:
    return [line.split(" ")[1] for line in path.read_text().splitlines() if line]


def require_clean(checkout: Checkout) -> None:
    with Checkpoints(discover(str(checkout.path)), adapter="plumbing", clock=Clock()) as store:
        report = verify(store)
    assert report.findings == []


def note_of(checkout: Checkout, commit: str) -> list[str]:
    return checkout.git("notes", "--ref=checkpoints", "show", commit).splitlines()


class TestWhatIsWritten:
    def test_a_record_that_is_not_due_writes_its_document_alone(self, main_checkout: Checkout, plain: Store) -> None:
        plain.record("a-complete", {})
        before, ref = loose(main_checkout), main_checkout.refs("refs/notes")
        for _ in range(20):
            plain.record("a-complete", {})
        assert (loose(main_checkout) - before, main_checkout.refs("refs/notes")) == (20, ref)
        assert plain.write_notes()
        assert loose(main_checkout) - before == 23

    @pytest.mark.long
    def test_stores_that_come_and_go_write_once_a_minute(self, main_checkout: Checkout, make_store: MakeStore, clock: Clock) -> None:
        """As `git ckpt save` in a loop."""
        clock.step = MINUTE // 20
        before = loose(main_checkout)
        for _ in range(60):
            with make_store(main_checkout) as store:
                store.record("a-complete", {})
        assert 60 + 3 * 3 <= loose(main_checkout) - before <= 60 + 3 * 10
        require_clean(main_checkout)

    @pytest.mark.long
    def test_a_thousand_checkpoints_on_one_commit(self, main_checkout: Checkout, plain: Store, head: str) -> None:
        for _ in range(1000):
            plain.record("a-complete", {})
        plain.write_notes()
        lines = note_of(main_checkout, head)
        assert [line.split(" ")[0] for line in lines] == [*(nth(number) for number in range(981, 1001)), "and"]
        assert lines[-1] == "and 980 more"
        assert [entry.id for entry in plain.links(head)] == [nth(number) for number in range(1000, 0, -1)]
        assert plain.find("HEAD") == nth(1000)
        require_clean(main_checkout)
        assert plain.verify().checked["links"] == 1000

    @pytest.mark.long
    def test_the_file_is_bounded(self, main_checkout: Checkout, plain: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(links, "LARGE", 1000)
        for _ in range(100):
            plain.record("a-complete", {})
            assert not place(main_checkout).exists() or place(main_checkout).stat().st_size < 1300
        assert len(notes(main_checkout).popitem()[1]) == 100

    @pytest.mark.parametrize("away", [-1, -MINUTE, MINUTE, 10 * 365 * 86400 * 1_000_000])
    def test_a_stamp_that_is_old_or_in_the_future_puts_nothing_off(
        self, main_checkout: Checkout, plain: Store, clock: Clock, head: str, away: int
    ) -> None:
        plain.record("a-complete", {})
        stamp = place(main_checkout).with_name(links.WRITTEN)
        then = clock.instant + clock.step - (away if away > 0 else away - 1)
        os.utime(stamp, ns=(then * 1000, then * 1000))
        plain.record("b-complete", {})
        assert written_notes(main_checkout) == {head: [ONE, TWO]}
        assert 0 < clock.instant - stamp.stat().st_mtime_ns // 1000 + 1 <= clock.step
        plain.record("c-complete", {})
        assert written_notes(main_checkout) == {head: [ONE, TWO]}

    def test_a_store_that_is_closed_later_than_that(self, main_checkout: Checkout, make_store: MakeStore, clock: Clock, head: str) -> None:
        store = make_store(main_checkout)
        store.record("a-complete", {})
        store.record("b-complete", {})
        clock.instant += MINUTE
        store.close()
        assert written_notes(main_checkout) == {head: [ONE, TWO]}

    def test_maintenance(self, main_checkout: Checkout, plain: Store, head: str) -> None:
        for _ in range(3):
            plain.record("a-complete", {})
        maintenance.maintain(discover(str(main_checkout.path)))
        assert written_notes(main_checkout) == {head: [ONE, TWO, THREE]}
        assert ids_in(place(main_checkout)) == []

    def test_expiry_that_only_decides_writes_nothing(self, main_checkout: Checkout, plain: Store) -> None:
        for _ in range(3):
            plain.record("a-complete", {})
        before = main_checkout.fingerprint()
        expire_alone(inside(plain), Policy(), dry_run=True)
        assert main_checkout.fingerprint() == before

    def test_a_linked_worktree_shares_them(self, main_checkout: Checkout, make_store: MakeStore, head: str) -> None:
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
        assert ids_in(place(main_checkout)) == [TWO, nth(4), nth(5)]
        assert written_notes(main_checkout) == {}
        require_clean(main_checkout)
        plain.write_notes()
        assert written_notes(main_checkout) == {head: [TWO, nth(4), nth(5)]}

    def test_a_removal_of_what_is_counted(self, main_checkout: Checkout, plain: Store, head: str) -> None:
        for _ in range(50):
            plain.record("a-complete", {})
        plain.write_notes()
        plain.remove([nth(3), nth(4), nth(50)])
        assert written_notes(main_checkout) == {head: [*(nth(number) for number in range(30, 50)), "and"]}
        assert note_of(main_checkout, head)[-1] == "and 27 more"
        plain.remove([nth(number) for number in range(30, 50)])
        assert note_of(main_checkout, head)[-1] == "and 7 more"
        plain.remove([nth(number) for number in range(10, 30)])
        assert written_notes(main_checkout) == {head: [nth(number) for number in (1, 2, *range(5, 10))]}
        require_clean(main_checkout)

    def test_a_removal_while_others_wait_for_a_note_that_counts(self, main_checkout: Checkout, plain: Store, head: str) -> None:
        for _ in range(50):
            plain.record("a-complete", {})
        plain.write_notes()
        for _ in range(30):
            plain.record("a-complete", {})
        plain.remove([nth(40), nth(60)])
        assert note_of(main_checkout, head)[-1] == "and 29 more"
        plain.write_notes()
        assert note_of(main_checkout, head)[-1] == "and 58 more"
        assert notes(main_checkout)[head] == [nth(number) for number in range(1, 81) if number not in (40, 60)]

    def test_a_disk_that_is_full_and_a_lock_on_the_notes(
        self, main_checkout: Checkout, plain: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The checkpoint is what counts."""
        monkeypatch.setattr("gitckpt.git.refs.LOCK_TIMEOUT_MS", 20)
        plain.record("a-complete", {})
        (main_checkout.path / ".git/refs/notes/checkpoints.lock").touch()
        monkeypatch.setattr(links, "_append", lambda *_: False)
        plain.record("b-complete", {})
        assert require_whole(main_checkout).keys() == {ONE, TWO}

    def test_a_link_that_cannot_wait_is_written(
        self, main_checkout: Checkout, plain: Store, head: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(links, "_append", lambda *_: False)
        for _ in range(3):
            plain.record("a-complete", {})
        assert written_notes(main_checkout) == {head: [ONE, TWO, THREE]}

    def test_what_is_counted_follows_an_amend(self, main_checkout: Checkout, plain: Store) -> None:
        main_checkout.git("config", "notes.rewriteRef", "refs/notes/checkpoints")
        main_checkout.git("config", "notes.rewriteMode", "cat_sort_uniq")
        old = main_checkout.commit("second")
        for _ in range(30):
            plain.record("a-complete", {})
        plain.write_notes()
        main_checkout.git("commit", "--quiet", "--amend", "--message", "other words")
        new = main_checkout.git("rev-parse", "HEAD")
        for _ in range(25):
            plain.record("b-complete", {})
        plain.write_notes()
        assert note_of(main_checkout, new)[-1] == f"and 35 more of {old}"
        assert [entry.id for entry in plain.links(new)] == [nth(number) for number in range(55, 0, -1)]
        assert [entry.id for entry in plain.links(old)] == [nth(number) for number in range(30, 0, -1)]
        decided = expire_alone(inside(plain), Policy(rewritten_older_than=0), dry_run=True)
        assert {entry.git_sha for entry, decision in decided if "rewritten" in decision.reason} <= {old}
        require_clean(main_checkout)
        plain.remove([nth(1), nth(2)])
        assert note_of(main_checkout, new)[-1] == f"and 33 more of {old}"

    def test_a_commit_that_takes_another_ones_place_expires_what_was_only_counted(
        self, main_checkout: Checkout, plain: Store, clock: Clock
    ) -> None:
        main_checkout.git("config", "notes.rewriteRef", "refs/notes/checkpoints")
        main_checkout.commit("second")
        for _ in range(30):
            plain.record("a-complete", {}, trigger="post-commit")
        plain.write_notes()
        main_checkout.git("commit", "--quiet", "--amend", "--message", "other words")
        clock.instant += 8 * 86400 * 1_000_000
        decided = expire_alone(inside(plain), Policy(keep_last=1), dry_run=True)
        reasons = [decision.reason for _, decision in decided]
        assert sum("its commit was rewritten" in reason for reason in reasons) >= 29

    def test_the_file_is_lost(self, main_checkout: Checkout, plain: Store, head: str) -> None:
        for _ in range(4):
            plain.record("a-complete", {})
        place(main_checkout).unlink()
        assert [entry.id for entry in plain.links(head)] == [nth(4), THREE, TWO, ONE]
        assert plain.find("HEAD") == nth(4)
        assert not plain.write_notes()
        assert {finding.code for finding in plain.verify(repair=True).findings} == {"note-missing"}
        assert written_notes(main_checkout) == {head: [ONE, TWO, THREE, nth(4)]}

    def test_damaged_lines_are_passed_over(self, main_checkout: Checkout, plain: Store, head: str) -> None:
        plain.record("a-complete", {})
        plain.record("b-complete", {})
        path = place(main_checkout)
        line = path.read_text().strip()
        stranger = line.replace(TWO, nth(99))
        torn = [line.replace(TWO, THREE)[:cut] for cut in (20, 41, 60, 90, len(line) - 1)]
        path.write_bytes(b"\0\0\xff\n" + "\n".join([*torn, stranger, line, "x" * 5000, f"{head} {THREE}"]).encode())
        plain.record("c-complete", {})
        assert [entry.id for entry in plain.links(head)] == [THREE, TWO, ONE]
        require_clean(main_checkout)
        plain.write_notes()
        assert written_notes(main_checkout) == {head: [ONE, TWO, THREE]}
        require_clean(main_checkout)

    @pytest.mark.parametrize("name", [links.WAITING, links.WRITTEN])
    @pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
    def test_something_else_in_its_place(self, main_checkout: Checkout, plain: Store, tmp_path: Path, name: str, kind: str) -> None:
        """Nothing is written through it, nobody waits for it, and the notes are written at once where a link cannot wait."""
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
        plain.write_notes()
        assert notes(main_checkout) == {head: [ONE, TWO]}

    @pytest.mark.parametrize(
        "said", ["", "Waited:", "Waited: x y", f"Waited: {'9' * 5000} {'0' * 40}", "Waited: -1 x", f"Waited: 5 {'0' * 40}"]
    )
    def test_a_notes_commit_that_was_fetched_may_say_anything(self, main_checkout: Checkout, plain: Store, head: str, said: str) -> None:
        plain.record("a-complete", {})
        plain.record("b-complete", {})
        message = f"Checkpoints of commits (derived)\n\n{said}\n"
        tip = main_checkout.git("commit-tree", "refs/notes/checkpoints^{tree}", data=message)
        main_checkout.git("update-ref", "refs/notes/checkpoints", tip)
        plain.write_notes()
        assert written_notes(main_checkout) == {head: [ONE, TWO]}

    def test_a_stamp_of_somebody_else_is_replaced(
        self, main_checkout: Checkout, plain: Store, clock: Clock, head: str, monkeypatch: pytest.MonkeyPatch
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
        """What waited is in the notes and in the file: it is neither listed nor counted twice."""
        for _ in range(50):
            plain.record("a-complete", {})
        with monkeypatch.context() as patched:
            patched.setattr(links.Links, "written", lambda *_: None)
            plain.write_notes()
        assert len(ids_in(place(main_checkout))) == 49
        require_clean(main_checkout)
        assert not plain.write_notes()
        assert ids_in(place(main_checkout)) == []
        assert note_of(main_checkout, head)[-1] == "and 30 more"
        with monkeypatch.context() as patched:
            patched.setattr(links.Links, "written", lambda *_: None)
            plain.record("b-complete", {})
            plain.write_notes()
        plain.record("c-complete", {})
        plain.write_notes()
        assert note_of(main_checkout, head)[-1] == "and 32 more"

    def test_before_the_refs(self, main_checkout: Checkout, plain: Store, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
        plain.record("a-complete", {})
        with monkeypatch.context() as patched:
            patched.setattr(Recorder, "_apply", lambda *_: (_ for _ in ()).throw(SystemExit))
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
    def test_at_each_git_call(self, main_checkout: Checkout, tmp_path: Path, killer: Killer) -> None:
        script = """
            for _ in range(22):
                print(store.record("a-complete").id, flush=True)
            store.write_links()
            print(store.record("b-complete").id, flush=True)
            print(store.remove([store.find("HEAD")]), flush=True)
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
                flaws = [finding for finding in store.verify().findings if finding.code in ("note-missing", "note-stray")]
                assert flaws == []
            listed = [name for names in notes(copy).values() for name in names]
            assert sorted(listed) == sorted(found)
            require_clean(copy)
            if survived:
                assert at > 40
                return


def write_notes(path: str, count: int) -> int:
    """Writes what waits again and again, as one of several processes."""
    with Checkpoints(discover(path), adapter="plumbing") as store:
        return sum(store.write_links() for _ in range(count))


def record(path: str, count: int) -> list[str]:
    with Checkpoints(discover(path), adapter="plumbing") as store:
        return [store.record("a-complete").id for _ in range(count)]


@pytest.mark.long
def test_writers_side_by_side(main_checkout: Checkout, head: str) -> None:
    path = str(main_checkout.path)
    *recorded, _, _ = forked.together(*[(record, (path, 40))] * 3, (write_notes, (path, 30)), (write_notes, (path, 30)))
    assert sorted(notes(main_checkout)[head]) == sorted(name for names in recorded for name in names)
    assert note_of(main_checkout, head)[-1] == "and 100 more"
    require_clean(main_checkout)


def test_threads_read_what_waits_while_it_is_written(main_checkout: Checkout, make_store: MakeStore, head: str) -> None:
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
    """As a power cut leaves what `git notes` wrote; nobody else was faster, so that there is nothing to wait for."""
    plain.record("a-complete", {})
    inside(plain).write_links()
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
    assert time.monotonic() - started < recorder.PATIENCE / 2
    assert [line.split(" ")[0] for line in note_of(main_checkout, "HEAD")] == [TWO]
    plain.verify(repair=True)
    assert [line.split(" ")[0] for line in note_of(main_checkout, first)] == [ONE]
    require_clean(main_checkout)
