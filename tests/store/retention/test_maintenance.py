"""Maintenance records when it last ran, and how it ended."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt import CkptError, Store, UsageError, hook
from gitckpt.git import packing
from gitckpt.git.command import require_git_version
from gitckpt.git.lock import FileLock
from gitckpt.git.repository import Repository, discover_repository
from gitckpt.store.audit import doctor
from gitckpt.store.records.remover import CheckpointRemover
from gitckpt.store.retention import maintenance
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.stores import DAY, SECOND, set_clock, timestamp


@pytest.fixture
def repository(main_checkout: Checkout) -> Iterator[Repository]:
    opened = discover_repository(str(main_checkout.path))
    yield opened
    opened.close()


def stamped(repository: Repository, ago: float = 7200) -> float:
    """Record the start of a maintenance run, and return its time."""
    stamp = Path(repository.make_private_dir(), "maintained")
    stamp.write_text("")
    then = round(time.time() - ago, 3)
    os.utime(stamp, (then, then))
    return then


def test_that_never_ran(repository: Repository) -> None:
    assert maintenance.read_last_maintenance(repository) == maintenance.MaintenanceState(
        None, None, "never ran"
    )


def test_that_was_done(repository: Repository) -> None:
    started = stamped(repository)
    before = time.time_ns() // 1000
    maintenance.run_maintenance(repository)
    found = maintenance.read_last_maintenance(repository)
    assert found.started == pytest.approx(started * SECOND, abs=1000)
    assert found.ended is not None
    assert before <= found.ended <= time.time_ns() // 1000
    assert found.outcome == "done"
    assert not maintenance.has_maintenance_failed(found)


def test_that_failed(
    main_checkout: Checkout, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = stamped(repository)

    def refuse(_: Repository) -> None:
        raise CkptError("a lock is held")

    with monkeypatch.context() as patched:
        patched.setattr(maintenance, "pack_repository", refuse)
        with pytest.raises(CkptError):
            maintenance.run_maintenance(repository)
    found = maintenance.read_last_maintenance(repository)
    assert found.started == pytest.approx(started * SECOND, abs=1000)
    assert found.ended is not None
    assert found.outcome == "failed: a lock is held"
    assert maintenance.has_maintenance_failed(found)
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        (finding,) = (
            each
            for each in doctor.list_findings(checkpoints_of_store(store), require_git_version())
            if each.code == "maintenance-failed"
        )
    assert (finding.object, finding.cure) == (
        os.path.join(repository.private_dir, "log"),
        "git ckpt expire",
    )
    assert finding.sentence == f"the last maintenance {found.outcome}"


BROKEN = ["[retention]\nkeep_last = 0\nnewer = 1\n", "<<<<<<< HEAD\n", "ckpt.keepLast"]


@pytest.mark.parametrize("broken", BROKEN)
def test_nothing_expires_unasked_beside_a_mistake(
    main_checkout: Checkout, repository: Repository, broken: str
) -> None:
    now = time.time_ns() // 1000
    with Store.open(main_checkout.path) as store:
        set_clock(store, lambda: now - 40 * DAY)
        run = store.record("run-complete", {}, start="old", trigger="phase").run
        if broken.startswith("ckpt."):
            main_checkout.git("config", broken, "many")
        else:
            main_checkout.write("gitckpt.toml", broken)
        maintenance.run_maintenance(repository)
        assert [each.run for each in store.runs()] == [run]
        assert maintenance.read_last_maintenance(repository).outcome == "done"
        assert "maintenance: nothing expires: " in Path(repository.private_dir, "log").read_text()
        (main_checkout.path / "gitckpt.toml").unlink(missing_ok=True)
        main_checkout.git("config", "--unset-all", "ckpt.keepLast", ok=(0, 5))
        maintenance.run_maintenance(repository)
        assert list(store.runs()) == []


def test_that_is_at_work_or_was_cut_off(repository: Repository) -> None:
    stamped(repository)
    assert maintenance.read_last_maintenance(repository).outcome == "was cut off"
    lock = os.path.join(repository.private_dir, "maintenance.lock")
    with FileLock(lock, 0) as held:
        assert held
        assert maintenance.read_last_maintenance(repository).outcome == "is at work"
    assert maintenance.read_last_maintenance(repository).outcome == "was cut off"


def test_a_doctor_says_both_and_counts_what_was_left(
    main_checkout: Checkout, repository: Repository
) -> None:
    stamped(repository)
    maintenance.run_maintenance(repository)
    half = main_checkout.path / ".git/objects/tmp_objdir-bulk-fsync-x"
    half.mkdir()
    (half / "tmp_obj_1").write_bytes(b"x" * 3_000_000)
    long_ago = time.time() - 2 * 24 * 3600
    for path in (half / "tmp_obj_1", half):
        os.utime(path, (long_ago, long_ago))
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        facts = doctor.list_facts(checkpoints_of_store(store), require_git_version())
        found = maintenance.read_last_maintenance(repository)
        assert found.started is not None
        assert found.ended is not None
        assert facts["maintenance_started"] == timestamp(found.started)
        assert facts["maintenance_ended"] == timestamp(found.ended)
        assert facts["maintenance_outcome"] == "done"
        assert facts["leftover_files"] == 1
        assert 3_000_000 <= int(facts["leftover_bytes"] or 0) < 3_100_000
        store.expire()
        assert (
            doctor.list_facts(checkpoints_of_store(store), require_git_version())["leftover_files"]
            == 0
        )
    assert not half.exists()
    assert (
        subprocess.run(
            ["git", "fsck", "--strict"], cwd=main_checkout.path, capture_output=True, check=True
        ).returncode
        == 0
    )


def _loose(checkout: Checkout, number: int) -> None:
    """Write loose objects into the directory that git samples for `gc --auto`."""
    made, count = 0, 0
    while made < number:
        count += 1
        text = f"blob {count}\n"
        if hashlib.sha1(b"blob %d\0%s" % (len(text), text.encode())).hexdigest().startswith("17"):
            checkout.git("hash-object", "-w", "--stdin", data=text)
            made += 1


class TestObjects:
    """Maintenance packs the loose objects of a user who only saves.

    Without commits, no git command packs them.
    """

    @pytest.fixture
    def full(self, main_checkout: Checkout) -> Checkout:
        main_checkout.git("config", "gc.auto", "1")
        main_checkout.git("config", "maintenance.auto", "true")
        _loose(main_checkout, 2)
        return main_checkout

    def packed(self, checkout: Checkout) -> bool:
        return "packs: 0" not in checkout.git("count-objects", "-v").splitlines()

    def test_many_are_packed(self, full: Checkout, repository: Repository) -> None:
        maintenance.run_maintenance(repository)
        assert self.packed(full)
        assert maintenance.read_last_maintenance(repository).outcome == "done"

    @pytest.mark.parametrize(
        ("name", "value"), [("gc.auto", "0"), ("gc.auto", "6700"), ("maintenance.auto", "false")]
    )
    def test_as_the_user_has_it(
        self, full: Checkout, repository: Repository, name: str, value: str
    ) -> None:
        full.git("config", name, value)
        maintenance.run_maintenance(repository)
        assert not self.packed(full)

    def test_a_hook_of_the_user_may_say_that_this_is_no_time(
        self, full: Checkout, repository: Repository
    ) -> None:
        hook = full.write(".git/hooks/pre-auto-gc", "#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
        maintenance.run_maintenance(repository)
        assert not self.packed(full)
        assert maintenance.read_last_maintenance(repository).outcome == "done"


class TestManyObjects:
    """Maintenance packs more loose objects than git's limit, unreachable ones too.

    Git does not pack unreachable objects, and warns of them at each commit.
    """

    @pytest.fixture
    def full(self, main_checkout: Checkout) -> Checkout:
        main_checkout.git("config", "maintenance.auto", "true")
        main_checkout.git("config", "gc.auto", "6700")
        paths = [
            str(main_checkout.write(f".git/more/{number}", f"{number}\n"))
            for number in range(packing.PACK_FROM + 400)
        ]
        main_checkout.git("hash-object", "-w", "--stdin-paths", data="\n".join(paths) + "\n")
        return main_checkout

    def loose(self, checkout: Checkout) -> int:
        return int(checkout.git("count-objects").split()[0])

    @pytest.mark.long
    def test_are_packed(self, full: Checkout, repository: Repository) -> None:
        tree = full.git("rev-parse", "HEAD^{tree}")
        maintenance.run_maintenance(repository)
        assert self.loose(full) == 0
        assert full.git("cat-file", "-t", tree) == "tree"
        assert full.git("cat-file", "-p", full.git("hash-object", "--stdin", data="7\n")) == "7"

    @pytest.mark.long
    def test_stay_in_packs_when_git_packs_everything_anew(
        self, full: Checkout, repository: Repository
    ) -> None:
        maintenance.run_maintenance(repository)
        full.git("config", "gc.autoPackLimit", "1")
        maintenance.run_maintenance(repository)
        assert self.loose(full) == 0
        assert full.git("cat-file", "-p", full.git("hash-object", "--stdin", data="7\n")) == "7"

    @pytest.mark.long
    @pytest.mark.parametrize(("name", "value"), [("gc.auto", "0"), ("maintenance.auto", "false")])
    def test_as_the_user_has_it(
        self, full: Checkout, repository: Repository, name: str, value: str
    ) -> None:
        full.git("config", name, value)
        before = self.loose(full)
        maintenance.run_maintenance(repository)
        assert self.loose(full) == before

    @pytest.mark.long
    def test_a_hook_of_the_user_may_say_that_this_is_no_time(
        self, full: Checkout, repository: Repository
    ) -> None:
        full.write(".git/hooks/pre-auto-gc", "#!/bin/sh\nexit 1\n").chmod(0o755)
        before = self.loose(full)
        maintenance.run_maintenance(repository)
        assert (self.loose(full), maintenance.read_last_maintenance(repository).outcome) == (
            before,
            "done",
        )

    @pytest.mark.long
    def test_are_counted_roughly(self, full: Checkout, repository: Repository) -> None:
        assert abs(packing.count_loose_objects(repository) - self.loose(full)) < 400


class TestDue:
    """A command that records starts due maintenance, as a hook does."""

    @pytest.fixture
    def begun(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        begun: list[str] = []
        monkeypatch.setattr(hook, "start_detached", lambda argv, _: begun.append(argv[-1]))
        return begun

    def test_a_day_after_the_first_one(self, repository: Repository, begun: list[str]) -> None:
        stamp = Path(repository.make_private_dir(), "maintained")
        for _ in range(2):
            hook.maintain_if_due(repository, lambda: None)
        assert begun == []
        assert maintenance.read_last_maintenance(repository) == maintenance.MaintenanceState(
            None, None, "never ran"
        )
        os.utime(stamp, (time.time() - hook.DAY - 60,) * 2)
        for _ in range(2):
            hook.maintain_if_due(repository, lambda: None)
        assert begun == [hook.MAINTAIN]
        assert maintenance.read_last_maintenance(repository).outcome == "was cut off"

    def test_linked_worktrees_are_captured_once_an_hour(
        self, main_checkout: Checkout, repository: Repository, begun: list[str]
    ) -> None:
        stamped(repository)
        stamp = Path(repository.private_dir, "rescued")
        hook.maintain_if_due(repository, lambda: None)
        assert not stamp.exists(), "there is no linked worktree"
        main_checkout.git("worktree", "add", "--quiet", "../linked")
        for ago, due in ((0, []), (0, []), (3500, []), (3700, [hook.RESCUE]), (-60, [hook.RESCUE])):
            if ago:
                os.utime(stamp, (time.time() - ago,) * 2)
            hook.maintain_if_due(repository, lambda: None)
            assert begun == due
            begun.clear()
            assert time.time() - stamp.stat().st_mtime < 3600

    @pytest.mark.parametrize("name", ["shallow", "info/grafts"])
    def test_where_history_was_cut_off_since(
        self, repository: Repository, begun: list[str], name: str
    ) -> None:
        cut = Path(repository.common_dir, name)
        cut.parent.mkdir(exist_ok=True)
        cut.write_text(f"{'0' * 40}\n")
        os.utime(cut, (time.time() - 60,) * 2)
        for _ in range(2):
            hook.maintain_if_due(repository, lambda: begun.append("settled"))
        assert begun == [], "it was so when the first command recorded"
        cut.touch()
        for _ in range(2):
            hook.maintain_if_due(repository, lambda: begun.append("settled"))
            os.utime(cut, (time.time() - 60,) * 2)
        assert begun == ["settled", hook.MAINTAIN]

    @pytest.mark.parametrize("is_held_up", [False, True])
    def test_a_commit_keeps_what_is_below_where_history_was_cut_off(
        self,
        main_checkout: Checkout,
        repository: Repository,
        begun: list[str],
        monkeypatch: pytest.MonkeyPatch,
        *,
        is_held_up: bool,
    ) -> None:
        """The hook protects commits below a new shallow boundary, as a gc may be next.

        If another process is in the way, maintenance does it.
        """
        monkeypatch.chdir(main_checkout.path)
        for number in range(3):
            main_checkout.commit("another", number=f"{number}\n")
            assert hook.main(["post-commit"]) == 0
        linked = main_checkout.head()
        stamped(repository)
        main_checkout.write(".git/shallow", linked + "\n")
        main_checkout.commit("the next", number="9\n")
        begun.clear()
        if is_held_up:

            def fail(*_: object, **__: object) -> None:
                raise UsageError("another process is at it")

            monkeypatch.setattr(CheckpointRemover, "update_keep_refs", fail)
        assert hook.main(["post-commit"]) == 0
        assert begun == [hook.MAINTAIN]
        if is_held_up:
            assert (
                "below the shallow boundary: another process is at it"
                in Path(repository.private_dir, "log").read_text()
            )
            return
        main_checkout.git("reflog", "expire", "--expire=now", "--all")
        main_checkout.git("gc", "--quiet", "--prune=now")
        with Store.open(main_checkout.path) as store:
            assert store.verify().is_clean

    def test_what_keeps_it_from_starting_is_said(
        self, repository: Repository, begun: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        stamp = Path(repository.make_private_dir(), "maintained")
        stamp.mkdir()
        os.utime(stamp, (0, 0))
        hook.maintain_if_due(repository, lambda: None)
        assert begun == []
        assert capsys.readouterr().err.startswith(
            "gitckpt: pre-auto-gc: maintenance was not started: "
        )

    @pytest.mark.long
    def test_after_a_save(self, main_checkout: Checkout, repository: Repository) -> None:
        stamp = Path(repository.make_private_dir(), "maintained")
        command = [sys.executable, "-m", "gitckpt", "-q", "save"]
        subprocess.run(command, cwd=main_checkout.path, check=True, stdout=subprocess.DEVNULL)
        assert stamp.read_text().endswith(" never ran\n")
        os.utime(stamp, (0, 0))
        subprocess.run(command, cwd=main_checkout.path, check=True, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not stamp.read_text().endswith(" done\n"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
