"""The index behind a listing may be lost, damaged or stale without any effect."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from gitckpt import Query, Store
from gitckpt.store.records import index as tables
from gitckpt.store.records.index import Index
from gitckpt.store.store import checkpoints_of_store
from tests import forked
from tests.conftest import Checkout
from tests.store.conftest import Denied, MakeStore, listed, nth
from tests.stores import private_dir

Damage = Callable[[Path], object]

FOREIGN = "ffffffff-0000-4000-8000-00000000000f"


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def scribble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[200:] = b"\xff" * (len(data) - 200)
    path.write_bytes(data)


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def from_another_version(path: Path) -> None:
    """Leave wrong rows in a schema with other columns."""
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT); "
            "CREATE TABLE entry (id TEXT, line BLOB, later TEXT);"
            "CREATE TABLE problem (ref TEXT); INSERT INTO entry VALUES ('x', 'y', 'z'); "
            "INSERT INTO meta VALUES ('digest', '99.0 x');"
        )
    connection.close()


def from_an_older_reader(path: Path) -> None:
    """Leave rows of the same schema that another reader made."""
    with sqlite3.connect(path) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version - 1}")
        connection.execute("UPDATE entry SET label = 'read by an older version'")
    connection.close()


DAMAGES: tuple[Damage, ...] = (
    os.unlink,
    cut,
    scribble,
    make_directory,
    from_another_version,
    from_an_older_reader,
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"no database at all, but long enough to have a header" * 10),
)


class TestTheIndexIsOnlyACache:
    @pytest.mark.long
    @pytest.mark.sampled(2)
    def test_damage(
        self, make_store: MakeStore, main_checkout: Checkout, adapter: str, tmp_path: Path
    ) -> None:
        store = make_store(main_checkout, adapter)
        run = store.record("a-complete", {}, start="r").run
        for _ in range(30):
            store.record("b-complete", {}, run=run)
        main_checkout.git("update-ref", f"refs/checkpoints/{nth(99)}", "HEAD")
        before = (store.list(), store.problems(), store.find(run or ""))
        store.close()
        for number, damage in enumerate(DAMAGES):
            copy = Checkout(tmp_path / str(number))
            shutil.copytree(main_checkout.path, copy.path)
            damage(copy.path / ".git/ckpt/index.sqlite")
            for _ in range(2):
                again = make_store(copy, adapter)
                assert (again.list(), again.problems(), again.find(run or "")) == before, number
                checkpoints_of_store(again).index.close()
            newest = again.record("c-complete", {}, run=run)
            assert again.list(Query(limit=1))[0].id == newest.id, number

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("damage", [cut, scribble, from_another_version])
    def test_a_damaged_one_is_made_anew(
        self, make_store: MakeStore, main_checkout: Checkout, damage: Damage
    ) -> None:
        store = make_store(main_checkout)
        for _ in range(30):
            store.record("b-complete", {})
        store.list()
        path = Path(private_dir(store)) / "index.sqlite"
        checkpoints_of_store(store).index.close()
        damage(path)
        for _ in range(2):
            make_store(main_checkout).list()
        with sqlite3.connect(path) as connection:
            assert connection.execute("SELECT count(*) FROM entry").fetchone() == (30,)
        connection.close()

    def test_damaged_while_open(self, plain: Store) -> None:
        for _ in range(30):
            plain.record("b-complete", {})
        assert len(plain.list()) == 30
        scribble(Path(private_dir(plain)) / "index.sqlite")
        plain.record("b-complete", {})
        assert listed(plain) == list(range(31, 0, -1))

    def test_locked(
        self, make_store: MakeStore, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tables, "PATIENCE", 0.05)
        store = make_store(main_checkout)
        store.record("a-complete", {})
        assert listed(store) == [1]
        holder = sqlite3.connect(Path(private_dir(store)) / "index.sqlite", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        store.record("a-complete", {})
        assert (listed(store), listed(make_store(main_checkout))) == ([2, 1], [2, 1])
        holder.close()
        assert listed(make_store(main_checkout)) == [2, 1]

    def test_the_whole_directory_gone_under_our_feet(self, plain: Store) -> None:
        plain.record("a-complete", {})
        assert listed(plain) == [1]
        shutil.rmtree(private_dir(plain))
        assert listed(plain) == [1]

    @pytest.mark.long
    def test_a_second_one_in_the_process_leaves_the_first_its_locks(
        self, make_store: MakeStore, main_checkout: Checkout
    ) -> None:
        """A second connection in the process leaves the first one its locks.

        Without those locks, the next process to exit removes the log of writes, and rows are
        lost that the file claims to have.
        """
        stores = [make_store(main_checkout)]
        log = main_checkout.path / ".git/ckpt/index.sqlite-wal"
        other = (
            "import sys; from gitckpt.store.store import Store\n"
            "with Store.open(sys.argv[1]) as store: print(len(store.list()))"
        )
        for number in range(1, 8):
            stores[0].record("a-complete", {})
            stores.append(make_store(main_checkout))
            assert [len(store.list()) for store in stores] == [number] * len(stores)
            before = log.stat().st_ino
            assert forked.script(other, str(main_checkout.path), env=os.environ) == (
                0,
                f"{number}\n",
                "",
            )
            assert log.stat().st_ino == before
            if number % 3 == 0:
                stores.pop(0).close()

    @pytest.mark.parametrize("wrong", ["mode", "link", "directory"])
    def test_the_file_is_not_as_it_should_be(
        self, make_store: MakeStore, main_checkout: Checkout, wrong: str
    ) -> None:
        store = make_store(main_checkout)
        store.record("a-complete", {})
        assert listed(store) == [1]
        store.close()
        path = main_checkout.path / ".git/ckpt/index.sqlite"
        mode = path.stat().st_mode & 0o777
        elsewhere = main_checkout.path / "elsewhere"
        if wrong == "mode":
            path.chmod(0o640)
        elif wrong == "link":
            path.rename(elsewhere)
            path.symlink_to(elsewhere)
        else:
            make_directory(path)
        before = elsewhere.read_bytes() if wrong == "link" else b""
        again = make_store(main_checkout)
        again.record("a-complete", {})
        assert listed(again) == [2, 1]
        if wrong == "mode":
            assert path.stat().st_mode & 0o777 == mode != 0o640
        elif wrong == "link":
            assert (path.is_symlink(), elsewhere.read_bytes()) == (True, before)

    @pytest.mark.parametrize("had_one", [True, False])
    def test_a_directory_that_cannot_be_written(
        self, make_store: MakeStore, main_checkout: Checkout, had_one: bool, denied: Denied
    ) -> None:
        store = make_store(main_checkout)
        store.record("a-complete", {})
        if had_one:
            assert listed(store) == [1]
        store.close()
        if not had_one:
            shutil.rmtree(main_checkout.path / ".git" / "ckpt")
        main_checkout.git("update-ref", f"refs/checkpoints/{nth(99)}", "HEAD")
        script = (
            "import sys; from gitckpt.store.store import Store\n"
            "with Store.open(sys.argv[1], adapter='plumbing') as store:\n"
            "    print([entry.id for entry in store.list()], "
            "[problem.ref for problem in store.problems()])"
        )
        done = denied(main_checkout.path / ".git", script, str(main_checkout.path))
        assert (done.stdout, done.stderr) == (f"['{nth(1)}'] ['refs/checkpoints/{nth(99)}']\n", "")


class TestTheIndexFollowsTheRefs:
    def test_changed_behind_its_back(self, store: Store, checkout: Checkout) -> None:
        for _ in range(3):
            store.record("a-complete", {})
        assert listed(store) == [3, 2, 1]
        two = checkout.git("rev-parse", f"refs/checkpoints/{nth(2)}")
        checkout.git("update-ref", "-d", f"refs/checkpoints/{nth(2)}")
        assert listed(store) == [3, 1]
        checkout.git("update-ref", f"refs/checkpoints/{nth(2)}", two)
        checkout.git("update-ref", f"refs/checkpoints/{nth(3)}", "HEAD")
        assert (listed(store), [problem.ref for problem in store.problems()]) == (
            [2, 1],
            [f"refs/checkpoints/{nth(3)}"],
        )
        document = store.raw(nth(1)).decode().replace("a-complete", "z-failed")
        checkout.git(
            "update-ref",
            f"refs/checkpoints/{nth(1)}",
            checkout.git("hash-object", "-w", "--stdin", data=document),
        )
        assert [entry.label for entry in store.list()] == ["a-complete", "z-failed"]
        checkout.git("pack-refs", "--all")
        assert listed(store) == [2, 1]

    def test_one_index_for_all_worktrees_and_adapters(
        self, make_store: MakeStore, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
        stores = [make_store(main_checkout, "libgit2"), make_store(tmp_path / "side", "plumbing")]
        for number, store in enumerate(stores * 3, 1):
            store.record("a-complete", {})
            assert [listed(one) for one in stores] == [list(range(number, 0, -1))] * 2

    def test_a_listing_reads_each_document_once_and_nothing_twice(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[str] = []
        really = checkpoints_of_store(store).objects.read

        def counting(oids: Sequence[str], *most: int) -> Iterator[tuple[str, bytes] | None]:
            read.extend(oids)
            return really(oids, *most)

        monkeypatch.setattr(checkpoints_of_store(store).objects, "read", counting)
        for _ in range(3):
            store.record("a-complete", {})
        read.clear()
        oids = [entry.oid for entry in store.list()]
        assert sorted(read) == sorted(oids)
        store.record("a-complete", {})
        read.clear()
        store.list()
        assert len(read) == 1
        read.clear()
        for query in (Query(), Query(status="complete"), Query(limit=1), Query(ids=[nth(2)])):
            store.list(query)
        store.problems()
        store.find("latest")
        store.find(nth(1))
        assert read == []


class TestWhatItAnswers:
    """Each query other than `list` agrees with the list."""

    @pytest.fixture
    def index(self, plain: Store, main_checkout: Checkout) -> Index:
        plain.record("plan-complete")
        begun = plain.record("begin", start="a")
        second = main_checkout.commit("second")
        plain.record("tests-failed", run=begun.run)
        plain.record("run-started", {"step": 1}, start="b")
        document = plain.raw(plain.record("plan-complete").id).decode()
        assert second in document
        line = next(each for each in document.splitlines() if each.startswith("timestamp"))
        other = document.replace(nth(5), FOREIGN).replace(
            line, 'timestamp = "2026-01-05T01:00:00.5+01:00"'
        )
        main_checkout.git(
            "update-ref",
            f"refs/checkpoints/{FOREIGN}",
            main_checkout.git("hash-object", "-w", "--stdin", data=other),
        )
        return checkpoints_of_store(plain).index

    def test_how_much_there_is(self, index: Index) -> None:
        entries = index.select()
        first = {str(entry.run): entry for entry in entries if entry.run}
        of_run = {
            run: (sum(entry.run == run for entry in entries), one.id, one.oid)
            for run, one in first.items()
        }
        assert index.count_checkpoints() == (6, of_run)
        assert index.list_runs() == sorted(of_run)

    def test_of_each_run_its_ends(self, index: Index) -> None:
        newest, first = index.select(), list(reversed(index.select()))
        rows = {row[0]: row for row in index.list_run_rows()}
        assert rows.keys() == {entry.run for entry in newest if entry.run}
        for run, (_, time, id_, oid, branch, label, *_, started, _, _, _) in rows.items():
            last = next(entry for entry in newest if entry.run == run)
            assert (time, id_, oid, branch, label) == (
                last.time,
                last.id,
                last.oid,
                last.branch,
                last.label,
            )
            assert started == next(entry for entry in first if entry.run == run).time

    def test_which_commits_are_needed(self, index: Index, main_checkout: Checkout) -> None:
        assert index.list_commits() == {entry.git_sha for entry in index.select()}
        main_checkout.git("update-ref", f"refs/checkpoints/{nth(9)}", "HEAD")
        index.refresh()
        assert index.list_commits() is None
        assert [problem.ref for problem in index.list_problems()] == [f"refs/checkpoints/{nth(9)}"]
