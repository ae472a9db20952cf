"""Locks of gitckpt's refs: which files count, and how removals are reported."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gitckpt.git.repository import Repository, discover_repository
from gitckpt.store.records import heads, ref_names
from tests.conftest import Checkout
from tests.store.conftest import ONE, RUN

OURS = [
    f"refs/checkpoints/{ONE}",
    f"refs/ckpt/runs/{RUN}",
    "refs/ckpt/leases/x",
    f"refs/keep/ckpt/{'a' * 40}",
    f"refs/keep/ckpt-operations/{ONE}",
    "refs/notes/checkpoints",
]
OTHERS = [
    "refs/checkpoints/a-name",
    "refs/heads/main",
    "refs/keep/mine",
    "refs/ckpt-of-others/x",
    "refs/notes/commits",
    "refs/notes/checkpoints/x",
    "packed-refs",
    "HEAD",
]


@pytest.fixture
def repository(checkout: Checkout) -> Repository:
    return discover_repository(str(checkout.path))


def left(repository: Repository, *refs: str) -> list[str]:
    """Leave locks, as a git that was killed a minute ago does; return their paths."""
    paths = [os.path.join(repository.common_dir, f"{ref}.lock") for ref in refs]
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
        os.utime(path, (time.time() - 60, time.time() - 60))
    return paths


class TestOurs:
    @pytest.mark.parametrize(
        ("ref", "expected"), [*((ref, True) for ref in OURS), *((ref, False) for ref in OTHERS)]
    )
    def test_by_its_path(self, repository: Repository, ref: str, expected: bool) -> None:
        path = os.path.join(repository.common_dir, ref)
        assert [
            heads.is_ref_lock(repository, f"{path}{end}") for end in (".lock", "", ".lock2")
        ] == [expected, False, False]

    def test_by_a_path_that_leads_there_another_way(
        self, repository: Repository, tmp_path: Path
    ) -> None:
        (tmp_path / "a link").symlink_to(repository.common_dir)
        assert heads.is_ref_lock(repository, f"{tmp_path}/a link/{OURS[1]}.lock")
        assert not heads.is_ref_lock(repository, f"{tmp_path}/{OURS[1]}.lock")

    def test_a_lock_that_is_a_link_is_what_its_name_says(
        self, repository: Repository, tmp_path: Path
    ) -> None:
        (path,) = left(repository, OURS[1])
        os.unlink(path)
        Path(path).symlink_to(tmp_path / "nowhere")
        assert heads.is_ref_lock(repository, path)


class TestThere:
    def test_all_of_ours_and_no_others(self, repository: Repository) -> None:
        assert heads.list_ref_locks(repository) == []
        left(repository, *OTHERS)
        ours = left(repository, *OURS)
        assert sorted(heads.list_ref_locks(repository)) == sorted(ours)

    def test_those_of_notes_alone(self, repository: Repository) -> None:
        paths = left(repository, "refs/notes/checkpoints")
        assert heads.list_ref_locks(repository) == paths


@pytest.mark.skipif(
    not os.path.exists("/proc/self/stat"), reason="the system does not tell what processes do"
)
class TestCleared:
    """One stale lock on gitckpt's refs removes all of them, and reports it.

    The return value says whether the given lock is gone.
    """

    @pytest.mark.parametrize(("count", "more"), [(1, ""), (2, " and 1 more"), (6, " and 5 more")])
    def test_all_of_them(self, repository: Repository, count: int, more: str) -> None:
        told: list[str] = []
        paths = left(repository, *OURS[:count])
        assert heads.clear_stale_locks(repository, told.append, paths[-1])
        assert (told, heads.list_ref_locks(repository)) == (
            [f"removed {min(paths)}{more}: left behind by a killed git"],
            [],
        )

    def test_one_that_is_young_stays(self, repository: Repository) -> None:
        told: list[str] = []
        old, young = left(repository, *OURS[:2])
        os.utime(young)
        assert not heads.clear_stale_locks(repository, told.append, young)
        assert (told, heads.list_ref_locks(repository)) == (
            [f"removed {old}: left behind by a killed git"],
            [young],
        )

    @pytest.mark.parametrize("ref", OTHERS)
    def test_none_where_it_is_of_others(self, repository: Repository, ref: str) -> None:
        told: list[str] = []
        ours, other = left(repository, OURS[0], ref)
        assert not heads.clear_stale_locks(repository, told.append, other)
        assert (told, heads.list_ref_locks(repository)) == ([], [ours])

    def test_one_that_is_gone_already_is_gone(self, repository: Repository) -> None:
        told: list[str] = []
        (path,) = left(repository, OURS[0])
        os.unlink(path)
        assert heads.clear_stale_locks(repository, told.append, path)
        assert told == []

    def test_also_by_whoever_holds_the_lock_of_writers_himself(
        self, repository: Repository
    ) -> None:
        told: list[str] = []
        (path,) = left(repository, OURS[0])
        with ref_names.write_lock(repository, 0) as is_held:
            assert (is_held, heads.clear_stale_locks(repository, told.append, path), len(told)) == (
                True,
                True,
                1,
            )

    def test_none_while_another_thread_writes(
        self, repository: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(heads, "_PATIENCE", 0.05)
        told: list[str] = []
        (path,) = left(repository, OURS[0])
        writer = ref_names.write_lock(repository, 0)
        with ThreadPoolExecutor(1) as another:
            assert another.submit(writer.acquire).result()
            assert not heads.clear_stale_locks(repository, told.append, path)
            another.submit(writer.release).result()
        assert (told, heads.list_ref_locks(repository)) == ([], [path])
        assert (heads.clear_stale_locks(repository, told.append, path), len(told)) == (True, 1)

    def test_whoever_sweeps_discards_them_and_says_so(self, repository: Repository) -> None:
        told: list[str] = []
        left(repository, *OURS)
        heads.discard_stale_locks(repository, told.append)
        heads.discard_stale_locks(repository, told.append)
        assert (len(told), heads.list_ref_locks(repository)) == (1, [])
