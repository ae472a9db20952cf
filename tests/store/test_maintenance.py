"""Maintenance says when it last ran, and how it ended."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt.git.command import require_git
from gitckpt.git.lock import Lock
from gitckpt.git.repository import Repository, discover
from gitckpt.model import times
from gitckpt.model.errors import UsageError
from gitckpt.store.audit import doctor
from gitckpt.store.records import layout
from gitckpt.store.retention import maintenance
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout


@pytest.fixture
def repository(main_checkout: Checkout) -> Iterator[Repository]:
    opened = discover(str(main_checkout.path))
    yield opened
    opened.close()


def stamped(repository: Repository, ago: float = 7200) -> float:
    """Notes that maintenance has started, and returns when."""
    stamp = Path(repository.make_private_dir(), layout.MAINTAINED)
    stamp.write_text("")
    then = round(time.time() - ago, 3)
    os.utime(stamp, (then, then))
    return then


def test_that_never_ran(repository: Repository) -> None:
    assert maintenance.last(repository) == maintenance.Maintained(None, None, "never ran")


def test_that_was_done(repository: Repository) -> None:
    started = stamped(repository)
    before = times.now()
    maintenance.maintain(repository)
    found = maintenance.last(repository)
    assert found.started == pytest.approx(started * times.MICRO, abs=1000)
    assert found.ended is not None
    assert before <= found.ended <= times.now()
    assert found.outcome == "done"
    assert not maintenance.has_failed(found)


def test_that_failed(main_checkout: Checkout, repository: Repository) -> None:
    started = stamped(repository)
    (main_checkout.path / "gitckpt.toml").write_text("[nonsense]\n")
    with pytest.raises(UsageError):
        maintenance.maintain(repository)
    found = maintenance.last(repository)
    assert found.started == pytest.approx(started * times.MICRO, abs=1000)
    assert found.ended is not None
    assert found.outcome.startswith("failed: gitckpt.toml:1: ")
    assert maintenance.has_failed(found)
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        (finding,) = (each for each in doctor.examine(inside(store), require_git()) if each.code == "maintenance-failed")
    assert (finding.object, finding.cure) == (os.path.join(repository.private_dir, "log"), "git ckpt expire")
    assert finding.sentence == f"the last maintenance {found.outcome}"


def test_that_is_at_work_or_was_cut_off(repository: Repository) -> None:
    stamped(repository)
    assert maintenance.last(repository).outcome == "was cut off"
    lock = os.path.join(repository.private_dir, layout.MAINTENANCE_LOCK)
    with Lock(lock, 0) as held:
        assert held
        assert maintenance.last(repository).outcome == "is at work"
    assert maintenance.last(repository).outcome == "was cut off"


def test_a_doctor_says_both_and_counts_what_was_left(main_checkout: Checkout, repository: Repository) -> None:
    stamped(repository)
    maintenance.maintain(repository)
    half = main_checkout.path / ".git/objects/tmp_objdir-bulk-fsync-x"
    half.mkdir()
    (half / "tmp_obj_1").write_bytes(b"x" * 3_000_000)
    long_ago = time.time() - 600
    for path in (half / "tmp_obj_1", half):
        os.utime(path, (long_ago, long_ago))
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        facts = doctor.facts(inside(store), require_git())
        found = maintenance.last(repository)
        assert found.started is not None
        assert found.ended is not None
        assert facts["maintenance_started"] == times.to_text(found.started)
        assert facts["maintenance_ended"] == times.to_text(found.ended)
        assert facts["maintenance_outcome"] == "done"
        assert facts["leftover_files"] == 1
        assert 3_000_000 <= int(facts["leftover_bytes"] or 0) < 3_100_000
        store.expire()
        assert doctor.facts(inside(store), require_git())["leftover_files"] == 0
    assert not half.exists()
    assert subprocess.run(["git", "fsck", "--strict"], cwd=main_checkout.path, capture_output=True, check=True).returncode == 0
