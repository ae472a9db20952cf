"""`leftovers` tells files of killed git processes from those of running ones."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gitckpt.git import leftovers
from gitckpt.git.process import git_executable
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.git.repository import Repository, discover_repository
from tests.conftest import Checkout

REF = "refs/ckpt/runs/r"
DAYS = 2 * 24 * 3600

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/stat"), reason="the system does not tell what processes do"
)


@pytest.fixture
def repository(main_checkout: Checkout) -> Iterator[Repository]:
    opened = discover_repository(str(main_checkout.path))
    yield opened
    opened.close()


Prepare = Callable[..., tuple["subprocess.Popen[bytes]", Path]]


@pytest.fixture
def prepare(main_checkout: Checkout) -> Iterator[Prepare]:
    """Start a git that holds the lock of `REF`; return both: `prepare(cwd=…)`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *options: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> tuple[subprocess.Popen[bytes], Path]:
        words = [git_executable(), *options, "update-ref", "--stdin"]
        place = cwd or main_checkout.path
        started.append(
            subprocess.Popen(
                words,
                cwd=place,
                env=os.environ | (env or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
        )
        pipe, out = started[-1].stdin, started[-1].stdout
        assert pipe is not None
        assert out is not None
        pipe.write(
            f"start\ncreate {REF} {main_checkout.git('rev-parse', 'HEAD')}\nprepare\n".encode()
        )
        assert (out.readline(), out.readline()) == (b"start: ok\n", b"prepare: ok\n")
        return started[-1], main_checkout.path / ".git" / f"{REF}.lock"

    yield start
    for each in started:
        each.kill()
        each.communicate()


def age(path: Path, seconds: float = 60) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def left(repository: Repository, *paths: Path) -> list[str]:
    return sorted(leftovers.find_stale_locks(repository, map(str, paths)))


class TestLocks:
    @pytest.mark.parametrize("how", ["inside", "by an option", "by a variable"])
    def test_that_a_living_git_holds_is_not_left(
        self, main_checkout: Checkout, repository: Repository, prepare: Prepare, how: str
    ) -> None:
        git_dir, elsewhere = str(main_checkout.path / ".git"), Path.cwd()
        options, place, env = {
            "inside": ((), None, None),
            "by an option": ((f"--git-dir={git_dir}",), elsewhere, None),
            "by a variable": ((), elsewhere, {"GIT_DIR": git_dir}),
        }[how]
        holder, lock = prepare(*options, cwd=place, env=env)
        os.utime(
            lock, (time.time() + 60, time.time() + 60)
        )  # as if the lock were younger than the git process
        assert left(repository, lock) == []
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert left(repository, lock) == [str(lock)]

    def test_that_is_older_than_every_git_at_work_is_left(
        self, main_checkout: Checkout, repository: Repository, prepare: Prepare
    ) -> None:
        _, own = prepare()
        older = main_checkout.path / ".git/refs/ckpt/runs/older.lock"
        older.touch()
        age(older)
        assert left(repository, older, own) == [str(older)]

    def test_of_another_repository_says_nothing(
        self, main_checkout: Checkout, make_checkout: Callable[..., Checkout], prepare: Prepare
    ) -> None:
        other = make_checkout("other")
        prepare()
        lock = other.path / ".git/refs/x.lock"
        lock.touch()
        os.utime(lock, (time.time() + 60, time.time() + 60))
        assert left(discover_repository(str(other.path)), lock) == [str(lock)]

    def test_that_is_young_is_not_left(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        lock = main_checkout.path / ".git/x.lock"
        lock.touch()
        assert left(repository, lock) == []
        age(lock, leftovers.QUIET + 1)
        assert left(repository, lock) == [str(lock)]

    def test_a_git_that_only_reads_holds_none(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        lock = main_checkout.path / ".git/x.lock"
        lock.touch()
        os.utime(lock, (time.time() + 60, time.time() + 60))
        words = [git_executable(), "-C", str(main_checkout.path), "cat-file", "--batch"]
        with subprocess.Popen(words, stdin=subprocess.PIPE) as reader:
            assert left(repository, lock) == [str(lock)]
            reader.communicate()

    def test_a_gitckpt_that_has_nothing_to_write_holds_none(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        refs = Refs(repository)
        refs.apply_updates([RefUpdate(REF, head, "")])
        lock = main_checkout.path / ".git" / f"{REF}.lock"
        lock.touch()
        os.utime(lock, (time.time() + 60, time.time() + 60))
        try:
            assert left(repository, lock) == [str(lock)]
        finally:
            refs.close()

    def test_one_that_was_made_anew_is_not_discarded(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        lock = main_checkout.path / ".git/x.lock"
        lock.touch()
        age(lock)
        known = leftovers.find_stale_locks(repository, [str(lock)])[str(lock)]
        age(lock, 5)
        assert not leftovers.delete_if_unchanged(str(lock), known)
        assert lock.exists()
        known = leftovers.find_stale_locks(repository, [str(lock)])[str(lock)]
        assert leftovers.delete_if_unchanged(str(lock), known)
        assert not lock.exists()
        assert not leftovers.delete_if_unchanged(str(lock), known)


class TestObjects:
    def test_half_written_are_left_once_nothing_has_touched_them_for_a_day(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        objects = main_checkout.path / ".git/objects"
        (objects / "tmp_objdir-bulk-fsync-x" / "ab").mkdir(parents=True)
        inside = objects / "tmp_objdir-bulk-fsync-x/ab/tmp_obj_1"
        (objects / "pack").mkdir(exist_ok=True)
        (objects / "cd").mkdir(exist_ok=True)
        halves = [objects / name for name in ("bulk_fsync_z", "cd/tmp_obj_y", "pack/tmp_pack_x")]
        files = [inside, *halves, objects / "pack/pack-1.keep"]
        for file in files:
            file.write_bytes(b"x" * 10000)
        for path in (*files, inside.parent, inside.parent.parent):
            age(path, 3600)
        assert leftovers.find_stale_temporary_objects(repository) == {}
        for path in (*files, inside.parent, inside.parent.parent):
            age(path, DAYS)
        expected = [*map(str, halves), str(objects / "tmp_objdir-bulk-fsync-x")]
        assert sorted(leftovers.find_stale_temporary_objects(repository)) == expected
        assert leftovers.size_of(expected[3]) >= 10000
        age(inside, 1)
        assert sorted(leftovers.find_stale_temporary_objects(repository)) == expected[:3]

    @pytest.mark.parametrize(
        "name",
        [
            *(
                "pack/tmp_ckpt_0a",
                "cd/tmp_ckpt_0a",
                "pack/tmp_mtimes_x",
                "pack/tmp_bitmap_x",
                "pack/multi-pack-index.d/tmp_midx_x",
            ),
            *("info/tmp_graph_x", "info/commit-graphs/tmp_graph_x"),
        ],
    )
    def test_so_is_what_else_git_and_we_begin(
        self, main_checkout: Checkout, repository: Repository, name: str
    ) -> None:
        path = main_checkout.write(f".git/objects/{name}", "x")
        assert leftovers.find_temporary_objects(repository) == [str(path)]
        assert leftovers.find_stale_temporary_objects(repository) == {}
        age(path, DAYS)
        assert list(leftovers.find_stale_temporary_objects(repository)) == [str(path)]

    @pytest.mark.parametrize("ending", ["pack", "idx", "rev", "bitmap", "mtimes"])
    def test_packs_of_a_repack_are_left_after_a_day(
        self, main_checkout: Checkout, repository: Repository, ending: str
    ) -> None:
        """A repack in progress keeps the packs that it has already written."""
        pack = main_checkout.write(f".git/objects/pack/.tmp-12-pack-{'1' * 40}.{ending}", "x")
        age(pack, 7200)
        assert (
            leftovers.find_temporary_objects(repository),
            leftovers.find_stale_temporary_objects(repository),
        ) == (
            [str(pack)],
            {},
        )
        age(pack, DAYS)
        assert list(leftovers.find_stale_temporary_objects(repository)) == [str(pack)]

    def test_packs_are_none(self, main_checkout: Checkout, repository: Repository) -> None:
        for name in (
            f"pack-{'1' * 40}.pack",
            ".tmp-x-pack-1.pack",
            "multi-pack-index",
            "info/commit-graph",
        ):
            age(main_checkout.write(f".git/objects/pack/{name}", "x"), DAYS)
        assert leftovers.find_temporary_objects(repository) == []
