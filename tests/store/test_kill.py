"""Crashes and failures: a kill at every git call and at random moments, held locks, a full disk, a read-only repository, a ruthless gc."""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from gitckpt.git.process import GitError, git_executable
from gitckpt.git.refs import LockHeld, Update
from gitckpt.git.repository import discover
from gitckpt.model.errors import BusyError, CkptError, RepositoryError, WorktreeError
from gitckpt.store import recorder, resumption
from gitckpt.store.recorder import FilesPruned
from gitckpt.store.store import Store
from gitckpt.store.worktrees import Opened
from tests.conftest import Checkout
from tests.store.conftest import ROOT, Denied, MakeStore, notes, nth, require_runs, require_whole, view

OPEN = """
import os, sys
from gitckpt.git.repository import discover
from gitckpt.store import resumption
from gitckpt.store.store import Store
path, *args = sys.argv[1:]
with Store(discover(path), adapter="plumbing") as store:
"""
RECORD = """
    first = store.record("a-started", {"n": 1}, worktree=store.capture(), start="r")
    print(first.id, flush=True)
    open(path + "/more", "w").write("more")
    print(store.record("a-complete", worktree=store.capture(), run=first.run).id, flush=True)
"""
REMOVE = """
    print(store.remove(args), flush=True)
"""
RESUME = """
    print(resumption.resume(store, store.read(store.find("latest"))).path, flush=True)
"""
RECORD_ON = """
    n = 0
    while True:
        n += 1
        open(path + "/draft", "w").write(f"{os.getpid()} {n}")
        print(store.record("a-complete", {"n": n}, worktree=store.capture() if n % 2 else None, run=args[0]).id, flush=True)
"""
REMOVE_ON = """
    n = 0
    while True:
        n += 1
        open(path + "/draft", "w").write(f"{os.getpid()} {n}")
        made = [store.record("b-complete", {"n": n}, worktree=store.capture(), run=args[0]).id for _ in range(2)]
        store.record("b-complete", {})
        print(*made, flush=True)
        store.remove(made)
        print(*made, flush=True)
"""
RESUME_ON = """
    n = 0
    while True:
        n += 1
        print(resumption.resume(store, store.read(args[0]), os.path.join(args[1], f"{os.getpid()}-{n}")).path, flush=True)
"""

WRAPPER = """\
#!/bin/sh
# Counts positions in $KILL_COUNT, before and after each git call; at number $KILL_AT it kills the caller.
position() {
    until mkdir "$KILL_COUNT.lock" 2>/dev/null; do :; done # two of us may run side by side
    printf x >>"$KILL_COUNT"
    number=$(wc -c <"$KILL_COUNT")
    rmdir "$KILL_COUNT.lock"
    if [ "$number" -eq "$KILL_AT" ]; then kill -9 "$PPID"; exit 137; fi
}
case " $* " in
*" update-ref --stdin "*) exec "$KILL_PYTHON" -IS "$KILL_PROXY" "$@" ;;
*" cat-file --batch-command "*) position; exec git "$@" ;;
esac
position
git "$@"
code=$?
position
exit $code
"""

PROXY = """\
# Passes ref transactions on, and counts a position before, between and after the refs of each: a kill leaves the first ones done.
import os, sys

def position(count):
    while True:
        try:
            os.mkdir(os.environ["KILL_COUNT"] + ".lock")
            break
        except FileExistsError:
            pass
    with open(os.environ["KILL_COUNT"], "ab") as file:
        before = file.tell()
        file.write(b"x" * count)
    os.rmdir(os.environ["KILL_COUNT"] + ".lock")
    at = int(os.environ["KILL_AT"]) - before - 1
    return at if 0 <= at < count else None

def commands(transaction):
    words, found = transaction.split(b"\\0"), []
    while words[0] not in (b"commit", b""):
        size = {b"start": 1, b"update": 3}.get(words[0].split(b" ")[0], 2)
        found.append(b"".join(word + b"\\0" for word in words[:size]))
        words = words[size:]
    return found

in_read, in_write = os.pipe()
out_read, out_write = os.pipe()
actions = [(os.POSIX_SPAWN_DUP2, in_read, 0), (os.POSIX_SPAWN_DUP2, out_write, 1)]
git = os.posix_spawnp("git", ["git", *sys.argv[1:]], os.environ, file_actions=actions)
os.close(in_read), os.close(out_write)

def ask(data):
    said = b""
    os.write(in_write, data)
    while not said.endswith(b"commit: ok\\n"):
        chunk = os.read(out_read, 65536)
        if not chunk:
            break
        said += chunk
    return said

pending = b""
while chunk := os.read(0, 65536):
    pending += chunk
    if not pending.endswith(b"\\0commit\\0"):
        continue
    parts, whole, pending = commands(pending), pending, b""
    at = position(len(parts))
    if at is None:
        os.write(1, ask(whole))
        continue
    if at:
        ask(b"".join(parts[: at + 1]) + b"commit\\0")
    os.kill(os.getppid(), 9)
    os._exit(137)
os.close(in_write)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(git, 0)[1]))
"""


class Killer:
    """Runs scripts that die at a given position.

    Args:
        directory: for the files it needs.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._count, self._proxy, self._wrapper = directory / "count", directory / "proxy.py", directory / "git"
        self._proxy.write_text(PROXY)
        self._wrapper.write_text(WRAPPER)
        self._wrapper.chmod(0o755)

    def run(self, at: int, script: str, *args: str) -> tuple[bool, list[str]]:
        """Returns whether the script survived, and the words that it printed."""
        self._count.write_bytes(b"")
        env = os.environ | {
            "GITCKPT_GIT": str(self._wrapper),
            "KILL_AT": str(at),
            "KILL_COUNT": str(self._count),
            "KILL_PROXY": str(self._proxy),
            "KILL_PYTHON": sys.executable,
        }
        done = subprocess.run([sys.executable, "-c", OPEN + script, *args], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        assert (done.returncode == 0) == (self._count.stat().st_size < at), "the position was not where the script died"
        return done.returncode == 0, done.stdout.split()


@pytest.fixture
def killer(tmp_path: Path) -> Killer:
    return Killer(tmp_path / "killer")


class Copies:
    """Makes copies of a repository, to kill a process in each.

    Args:
        original: top of its main worktree.
        directory: where the copies are made; each replaces the one before.
    """

    def __init__(self, original: Checkout, directory: Path) -> None:
        self._original = original
        self._directory = directory

    def make(self) -> Checkout:
        shutil.rmtree(self._directory, ignore_errors=True)
        shutil.copytree(self._original.path, self._directory, symlinks=True)
        return Checkout(self._directory)


@pytest.fixture
def copies(main_checkout: Checkout, tmp_path: Path) -> Copies:
    return Copies(main_checkout, tmp_path / "copy")


def positions(share: int) -> Iterator[int]:
    """Yields every so-manieth position, without end."""
    at = share
    while True:
        at += SHARES
        yield at


SHARES = 4
"""The positions are shared out among so many tests, which may run at the same time."""

each_share = pytest.mark.parametrize("share", range(SHARES))


def opened(checkout: Checkout) -> Store:
    return Store(discover(str(checkout.path)), adapter="plumbing")


class TestAKillAtEveryGitCall:
    @each_share
    def test_of_a_record(self, main_checkout: Checkout, copies: Copies, killer: Killer, share: int) -> None:
        main_checkout.write("README", "changed")
        main_checkout.write("new", "x")
        for at in positions(share):
            checkout = copies.make()
            survived, reported = killer.run(at, RECORD, str(checkout.path))
            found = require_whole(checkout)
            assert set(reported) <= found.keys()
            runs = require_runs(checkout, found)
            with opened(checkout) as store:
                (run,) = runs or [store.record("a-started", {}, start="another").run]
                made = store.record("b-complete", {}, run=run)
                assert made.sequence == len(runs.get(str(run), "x")) + 1
                assert store.find("HEAD") == made.id
            assert set(require_runs(checkout, require_whole(checkout))[str(run)]) >= {*reported, made.id}
            if survived:
                assert (len(reported), at > 40) == (2, True)
                return

    @each_share
    @pytest.mark.parametrize("packed", [True, False])
    def test_of_a_removal(self, main_checkout: Checkout, copies: Copies, killer: Killer, share: int, packed: bool) -> None:
        with opened(main_checkout) as store:
            run = str(store.record("a-started", {}, start="r").run)
            main_checkout.write("new", "x")
            ids = [store.record("a-complete", {"n": n}, worktree=store.capture(), run=run).id for n in range(3)]
            other = store.record("b-complete", {}).id
        if packed:
            main_checkout.git("pack-refs", "--all")
        for at in positions(share):
            checkout = copies.make()
            survived, reported = killer.run(at, REMOVE, str(checkout.path), *ids[1:], other)
            found = require_whole(checkout)
            assert len(found) >= 2
            assert reported == (["3"] if survived else reported)
            with opened(checkout) as store:
                assert {entry.id for entry in store.list()} == found.keys()
                gone = store.remove([*ids[1:], other])
                assert gone == len(found) - 2
                made = store.record("c-complete", run=run)
                assert (made.sequence, made.parent, store.read(made.id).state) == (3, ids[0], {"n": 0})
            assert require_runs(checkout, require_whole(checkout))[run][1:] == [ids[0], made.id]
            assert {name for lines in notes(checkout).values() for name in lines} == require_whole(checkout).keys()
            assert {ref.rpartition("/")[2] for ref in checkout.refs("refs/ckpt/commits", "refs/ckpt/trees")} == require_whole(
                checkout
            ).keys()
            if survived:
                assert at > 10
                return

    @each_share
    @pytest.mark.parametrize("dirty", [True, False])
    def test_of_a_resume(self, main_checkout: Checkout, copies: Copies, killer: Killer, share: int, dirty: bool) -> None:
        main_checkout.commit("second", **{f"file-{n}": "x" * n for n in range(20)})
        if dirty:
            main_checkout.write("file-3", "changed")
            main_checkout.git("add", "file-3")
            main_checkout.write("file-3", "changed again")
            main_checkout.write("new", "x")
        expected = view(main_checkout.path)
        with opened(main_checkout) as store:
            made = store.record("a-complete", {}, worktree=store.capture(), start="r")
        for at in positions(share):
            checkout = copies.make()
            before = (checkout.refs(), view(checkout.path))
            survived, _ = killer.run(at, RESUME, str(checkout.path))
            with opened(checkout) as store:
                path = resumption.resume(store, made).path
                assert view(path) == expected
                assert resumption.resume(store, made) == Opened(path, made=False)
                Path(path, "work").write_text("goes on")
                again = Store(discover(path), adapter="plumbing")
                second = again.record("b-complete", {}, worktree=again.capture(), run=made.run)
                again.close()
            assert (second.sequence, second.parent) == (2, made.id)
            worktrees = [line for line in checkout.git("worktree", "list", "--porcelain").splitlines() if line.startswith("worktree ")]
            assert worktrees == [f"worktree {checkout.path}", f"worktree {path}"]
            assert sorted(os.listdir(checkout.path / ".ckpt" / "worktrees")) == [made.run]
            after = checkout.refs()
            assert {ref: oid for ref, oid in after.items() if second.id not in ref and "/runs/" not in ref and "notes" not in ref} == {
                ref: oid for ref, oid in before[0].items() if "/runs/" not in ref and "notes" not in ref
            }
            assert view(checkout.path) == before[1]
            require_whole(checkout)
            if survived:
                assert at > 15
                return


class Worker:
    """A script in a session of its own, which works until all of it is killed: Python and every git that it started.

    Args:
        script: what it does.
        args: its arguments.
    """

    def __init__(self, script: str, *args: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OPEN + script, *args], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def kill_after(self, lines: int, seconds: float) -> list[list[str]]:
        """Kills it so many seconds after it has reported so many lines, and returns the words of every line."""
        out = self._process.stdout
        assert out is not None
        said = [out.readline() for _ in range(lines)]
        time.sleep(seconds)  # the moment is what is tested
        assert self._process.poll() is None, "it ended by itself"
        while pids := self._session():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        said += out.readlines()
        out.close()
        self._process.wait()
        return [line.split() for line in said if line.endswith("\n")]

    def _session(self) -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(fields[3]) == self._process.pid and fields[0] != "Z":
                    found.append(int(name))
        return found


def insist(work: Callable[[], object], allowed: Sequence[str]) -> None:
    """Does something, and removes each lock that an error names, as a person would. Locks that are not allowed must not block."""
    while (error := _lock_in_the_way(work)) is not None:
        assert any(name in error.path for name in allowed), f"{error.path} should not be in the way"
        assert str(error.hint).endswith(f"rm {shlex.quote(error.path)}")
        os.unlink(error.path)


def _lock_in_the_way(work: Callable[[], object]) -> LockHeld | None:
    try:
        work()
    except LockHeld as error:
        return error
    return None


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds the processes to kill in /proc")
class TestAKillAtARandomMoment:
    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gitckpt.git.refs.LOCK_TIMEOUT_MS", 50)

    @pytest.mark.parametrize("seed", range(2))
    def test_of_records(self, main_checkout: Checkout, seed: int) -> None:
        chance = random.Random(seed)
        with opened(main_checkout) as store:
            first = store.record("a-started", {}, start="r")
        run, path = str(first.run), str(main_checkout.path)
        reported = {first.id}
        for _ in range(10):
            lines = Worker(RECORD_ON, path, run).kill_after(chance.randint(1, 4), chance.random() * 0.06)
            reported |= {id_ for line in lines for id_ in line}
            found = require_whole(main_checkout)
            assert reported <= found.keys()
            require_runs(main_checkout, found)
            store = opened(main_checkout)
            made: list[str] = []
            insist(lambda: made.append(store.record("b-complete", {}, run=run).id), [f"refs/ckpt/runs/{run}.lock"])  # noqa: B023
            insist(store.close, ["refs/notes/checkpoints.lock"])
            reported |= set(made)
            assert set(require_runs(main_checkout, require_whole(main_checkout))[run]) >= reported

    def test_of_removals(self, main_checkout: Checkout) -> None:
        chance = random.Random(7)
        with opened(main_checkout) as store:
            first = store.record("a-started", {"n": -1}, start="r")
        run, path = str(first.run), str(main_checkout.path)
        for number in range(10):
            if number % 3 == 0:
                main_checkout.git("pack-refs", "--all", ok=(0, 128))
            lines = Worker(REMOVE_ON, path, run).kill_after(chance.choice([1, 1, 2, 3]), chance.random() * 0.06)
            found = require_whole(main_checkout)
            assert first.id in found
            told = [tuple(line) for line in lines]
            gone = {id_ for line in set(told) if told.count(line) == 2 for id_ in line}
            assert not gone & found.keys()
            store = opened(main_checkout)
            rest = [id_ for id_ in found if id_ != first.id]
            locks = ["packed-refs.lock", "refs/notes/checkpoints.lock", f"refs/ckpt/runs/{run}.lock", *(f"{id_}.lock" for id_ in found)]
            insist(lambda: store.remove(rest), locks)  # noqa: B023
            insist(lambda: store.record("b-complete", {}, run=run), [f"refs/ckpt/runs/{run}.lock"])  # noqa: B023
            insist(store.close, ["refs/notes/checkpoints.lock"])
            assert len(require_runs(main_checkout, require_whole(main_checkout))[run]) == 2
            with opened(main_checkout) as last:
                last.remove([entry.id for entry in last.list() if entry.id != first.id])

    def test_of_resumes(self, main_checkout: Checkout, tmp_path: Path) -> None:
        chance = random.Random(11)
        main_checkout.commit("many", **{f"d{n % 7}/file-{n}": f"{n}\n" * 50 for n in range(300)})
        for n in range(60):
            main_checkout.write(f"d{n % 7}/file-{n}", "changed")
        expected = view(main_checkout.path)
        with opened(main_checkout) as store:
            made = store.save("a-complete", {})
        before = main_checkout.refs()
        for number in range(10):
            root = tmp_path / f"trees {number}"
            lines = Worker(RESUME_ON, str(main_checkout.path), made.id, str(root)).kill_after(number % 2, 0.15 + chance.random() * 0.15)
            names = [name for name in os.listdir(root) if not name.startswith(".")] if root.exists() else []
            assert {os.path.basename(" ".join(line)) for line in lines} <= set(names)
            with opened(main_checkout) as store:
                for name in names:
                    assert resumption.resume(store, made, str(root / name)).made is False
                    assert view(root / name) == expected
                assert view(resumption.resume(store, made, str(root / "last")).path) == expected
            assert [name for name in os.listdir(root) if name.startswith(".")] == []
            assert main_checkout.refs() == before


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gitckpt.git.refs.LOCK_TIMEOUT_MS", 20)


@pytest.mark.usefixtures("impatient")
class TestHeldLocks:
    def test_of_the_run(self, main_checkout: Checkout, make_store: MakeStore, adapter: str) -> None:
        store = make_store(main_checkout, adapter)
        run = store.record("a-started", {}, start="r").run
        lock = main_checkout.path / ".git" / f"refs/ckpt/runs/{run}.lock"
        lock.touch()
        before = main_checkout.fingerprint()
        with pytest.raises(LockHeld) as caught:
            store.record("a-complete", {}, run=run)
        assert (caught.value.path, caught.value.message, caught.value.exit_code) == (str(lock), f"another process holds {lock}", 11)
        assert (lock.exists(), main_checkout.fingerprint()) == (True, before)
        store.record("b-complete", {})
        lock.unlink()
        assert store.record("a-complete", {}, run=run).sequence == 2

    def test_of_the_notes(self, main_checkout: Checkout, make_store: MakeStore, adapter: str) -> None:
        lock = main_checkout.path / ".git" / "refs/notes/checkpoints.lock"
        lock.parent.mkdir()
        lock.touch()
        store = make_store(main_checkout, adapter)
        made = store.record("a-complete", {})
        head = main_checkout.git("rev-parse", "HEAD")
        assert [entry.id for entry in store.links(head)] == [made.id]
        assert store.find("HEAD") == made.id
        store.close()
        log = (main_checkout.path / ".git" / "ckpt" / "log").read_text()
        assert log.endswith(f"links were not written: another process holds {lock}\n")
        assert (lock.exists(), notes(main_checkout)) == (True, {})
        lock.unlink()
        store.close()
        assert notes(main_checkout) == {head: [made.id]}

    def test_of_packed_refs_and_of_other_checkpoints(self, main_checkout: Checkout, make_store: MakeStore, adapter: str) -> None:
        store = make_store(main_checkout, adapter)
        store.record("a-complete", {})
        places = ["packed-refs", f"refs/checkpoints/{nth(1)}", f"refs/ckpt/commits/{nth(1)}", f"refs/ckpt/trees/{nth(99)}", "HEAD", "index"]
        locks = [main_checkout.path / ".git" / f"{place}.lock" for place in places]
        for lock in locks:
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        main_checkout.write("new", "x")
        store.save("b-complete", {})
        assert require_whole(main_checkout).keys() == {nth(1), nth(2)}
        assert all(lock.exists() for lock in locks)

    def test_of_reftables(self, newer_git: str, make_checkout: Callable[..., Checkout], make_store: MakeStore) -> None:
        checkout = make_checkout("tables", "--ref-format=reftable")
        checkout.commit("first", README="hello\n")
        store = make_store(checkout)
        store.record("a-complete", {})
        lock = checkout.path / ".git" / "reftable" / "tables.list.lock"
        lock.touch()
        before = checkout.refs()
        with pytest.raises(LockHeld) as caught:
            store.record("b-complete", {})
        assert (caught.value.path, lock.exists(), checkout.refs()) == (str(lock), True, before)
        lock.unlink()
        store.record("b-complete", {})


class TestAReadOnlyRepository:
    SCRIPT = (
        "import sys; from gitckpt.store.store import Store; from gitckpt.model.errors import CkptError\n"
        "store = Store.open(sys.argv[1], adapter=sys.argv[2])\n"
        "print(len(store.list()), store.find('latest'), store.read(store.find('latest')).phase, len(store.links(sys.argv[3])))\n"
        "for work in (lambda: store.record('b-complete', {}), store.capture, lambda: store.remove([store.find('latest')])):\n"
        "    try:\n"
        "        work()\n"
        "    except CkptError as error:\n"
        "        print(type(error).__name__, error.message)\n"
        "store.close()\n"
    )

    @pytest.mark.parametrize("has_private", [True, False])
    def test_is_read_and_refuses_the_rest(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str, denied: Denied, has_private: bool
    ) -> None:
        made = make_store(main_checkout).record("a-complete", {})
        git_dir = main_checkout.path / ".git"
        make_store(main_checkout).list()
        if not has_private:
            shutil.rmtree(git_dir / "ckpt")
        head = main_checkout.git("rev-parse", "HEAD")
        before = main_checkout.fingerprint()
        done = denied(git_dir, self.SCRIPT, str(main_checkout.path), adapter, head)
        first, *errors = done.stdout.splitlines()
        assert (done.stderr, first) == ("", f"1 {made.id} a-complete 1")
        assert len(errors) == 3
        assert all("permission" in error.lower() for error in errors), errors
        assert main_checkout.fingerprint() == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB; skips where we may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


class TestAFullDisk:
    @staticmethod
    def fill(disk: Path) -> Path:
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        assert os.statvfs(disk).f_bavail == 0
        return filler

    def test_changes_nothing(self, small_disk: Path, make_store: MakeStore, adapter: str) -> None:
        path = small_disk / "project"
        subprocess.run([git_executable(), "init", "--quiet", str(path)], check=True)
        checkout = Checkout(path)
        checkout.commit("first", README="hello\n")
        store = make_store(checkout, adapter)
        run = store.record("a-started", {}, start="r").run
        checkout.write("new", "x" * 5000)
        before = checkout.refs()
        filler = self.fill(small_disk)
        for work in (
            lambda: store.record("a-complete", {"big": "y" * 10_000}, run=run),
            store.capture,
            lambda: store.remove([nth(1)]),
        ):
            with pytest.raises(CkptError) as caught:
                work()
            # libgit2 has other words for it
            assert "No space left on device" in caught.value.message or caught.value.message.startswith("git write failed: ")
            assert checkout.refs() == before
        assert [entry.id for entry in store.list()] == [nth(1)]
        filler.unlink()
        made = store.save("a-complete", {"big": "y" * 10_000}, run=run)
        assert (made.sequence, made.parent) == (2, nth(1))
        assert len(require_whole(checkout)) == 2

    def test_while_refs_are_written(
        self, main_checkout: Checkout, make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The words of git, from a git that only says them."""
        wrapper = tmp_path / "full"
        said = "fatal: commit: cannot lock ref 'refs/x': Unable to write new value: No space left on device"
        wrapper.write_text(f'#!/bin/sh\ncase " $* " in *" update-ref "*) echo "{said}" >&2; exit 128;; esac\nexec git "$@"\n')
        wrapper.chmod(0o755)
        before = main_checkout.fingerprint()
        monkeypatch.setenv("GITCKPT_GIT", str(wrapper))
        with pytest.raises(GitError) as caught:
            make_store(main_checkout).record("a-complete", {})
        assert caught.value.message == f"git update-ref failed: {said}"
        monkeypatch.delenv("GITCKPT_GIT")
        assert main_checkout.fingerprint() == before


class TestARuthlessGc:
    """`git gc --prune=now` of somebody else, at the worst moments."""

    @staticmethod
    def gc(checkout: Checkout) -> None:
        checkout.git("reflog", "expire", "--expire=now", "--all")
        checkout.git("gc", "--quiet", "--prune=now")

    @pytest.mark.parametrize("moment", ["before the refs", "after the refs"])
    def test_a_record(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str, moment: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store(main_checkout, adapter)
        run = store.record("a-started", {}, start="r").run
        really = store._recorder._update

        def update(updates: list[Update]) -> None:
            if moment == "before the refs":
                self.gc(main_checkout)
                monkeypatch.undo()
                really(updates)
            else:
                really(updates)
                for update in updates[1:]:  # not the linked commit
                    (main_checkout.path / ".git/objects" / update.new[:2] / update.new[2:]).unlink(missing_ok=True)
                monkeypatch.undo()

        monkeypatch.setattr(recorder, "LINK_INTERVAL", 3600.0)
        monkeypatch.setattr(store._recorder, "_update", update)
        made = store.record("a-complete", {"n": 2}, run=run)
        monkeypatch.undo()
        assert list(require_runs(main_checkout, require_whole(main_checkout)).values()) == [[nth(1), made.id]]
        assert store.read(made.id).state == {"n": 2}

    def test_the_files_before_the_refs(self, main_checkout: Checkout, make_store: MakeStore, adapter: str) -> None:
        store = make_store(main_checkout, adapter)
        main_checkout.write("new", "x")
        files = store.capture()
        self.gc(main_checkout)
        before = main_checkout.fingerprint()
        with pytest.raises(FilesPruned) as caught:
            store.record("a-complete", {}, worktree=files)
        assert caught.value.message == "the captured files vanished before they could be recorded: somebody ran git gc --prune=now"
        assert main_checkout.fingerprint() == before
        store.record("a-complete", {}, worktree=store.capture())
        require_whole(main_checkout)

    @pytest.mark.parametrize("times", [1, 2, 3])
    def test_save_captures_again(
        self, main_checkout: Checkout, make_store: MakeStore, adapter: str, times: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store(main_checkout, adapter)
        main_checkout.write("new", "x")
        really, left = store.capture, [times]

        def capture() -> object:
            files = really()
            if left[0]:
                left[0] -= 1
                self.gc(main_checkout)
            return files

        monkeypatch.setattr(store, "capture", capture)
        if times < 3:
            made = store.save("a-complete", {})
            assert list(require_whole(main_checkout)) == [made.id]
            assert main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{made.id}:files/new") == "x"
            return
        with pytest.raises(BusyError):
            store.save("a-complete", {})
        assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}

    def test_an_amended_commit_and_its_files_survive(self, main_checkout: Checkout, make_store: MakeStore, adapter: str) -> None:
        store = make_store(main_checkout, adapter)
        old = main_checkout.commit("second", README="second\n", kept="kept\n")
        main_checkout.write("README", "dirty\n")
        main_checkout.write("new", "new\n")
        expected = view(main_checkout.path)
        dirty = store.save("a-complete", {"n": 1})
        main_checkout.git("stash", "push", "--quiet", "--include-untracked")
        main_checkout.git("stash", "drop", "--quiet")
        clean = store.save("b-complete", {})
        main_checkout.write("README", "third\n")
        main_checkout.git("rm", "--quiet", "kept")
        main_checkout.git("commit", "--quiet", "--all", "--amend", "--message", "rewritten")
        self.gc(main_checkout)
        main_checkout.git("cat-file", "-e", old)
        assert view(resumption.resume(store, store.read(dirty.id)).path) == expected
        path = Path(resumption.resume(store, store.read(clean.id)).path)
        assert ((path / "README").read_text(), (path / "kept").read_text()) == ("second\n", "kept\n")
        assert Checkout(path).git("rev-parse", "HEAD") == old


def test_no_git_at_all(main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITCKPT_GIT", "/nonexistent/git")
    with pytest.raises(CkptError) as caught:
        Store.open(main_checkout.path)
    assert caught.value.message == "cannot start /nonexistent/git: No such file or directory"


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError) as caught:
        Store.open(tmp_path)
    assert (caught.value.message, caught.value.exit_code) == (f"not in a git repository: {tmp_path}", 10)


def test_errors_know_their_exit_codes() -> None:
    assert [error.exit_code for error in (BusyError, LockHeld, FilesPruned, WorktreeError)] == [11, 11, 11, 14]
