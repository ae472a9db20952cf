"""A random kill loses no reported checkpoint and leaves no lasting lock.

It kills Python and every git that it started.
"""

from __future__ import annotations

import os
import random
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gitckpt import LockHeld
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import require_runs, require_whole, view
from tests.system.kills.killer import Worker, opened

pytestmark = pytest.mark.long

RECORD_ON = """
    n = 0
    while True:
        n += 1
        open(path + "/draft", "w").write(f"{os.getpid()} {n}")
        print(store.record("a-complete", {"n": n}, \
worktree=store.capture_worktree() if n % 2 else None, run=args[0]).id, flush=True)
"""
REMOVE_ON = """
    n = 0
    while True:
        n += 1
        open(path + "/draft", "w").write(f"{os.getpid()} {n}")
        made = [store.record("b-complete", {"n": n}, run=args[0], \
worktree=store.capture_worktree()).id for _ in range(2)]
        store.record("b-complete", {})
        print(*made, flush=True)
        store.remove(made)
        print(*made, flush=True)
"""
RESUME_ON = """
    n = 0
    while True:
        n += 1
        print(resumption.resume_checkpoint(store, store.read(args[0]), \
os.path.join(args[1], f"{os.getpid()}-{n}")).path, flush=True)
"""


def insist(work: Callable[[], object], allowed: Sequence[str]) -> None:
    """Retry work, and remove each lock that an error names, as a user would.

    A lock that is not among the allowed ones fails the test.
    """
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
        plant(monkeypatch, planted.LOCK_TIMEOUT_MS, 50)

    @pytest.mark.parametrize("seed", range(2))
    def test_of_records(self, main_checkout: Checkout, seed: int) -> None:
        chance = random.Random(seed)
        with opened(main_checkout) as store:
            first = store.record("a-started", {}, start="r")
        run, path = str(first.run), str(main_checkout.path)
        reported = {first.id}
        for _ in range(10):
            lines = Worker(RECORD_ON, path, run).kill_after(
                chance.randint(1, 4), chance.random() * 0.06
            )
            reported |= {id_ for line in lines for id_ in line}
            found = require_whole(main_checkout)
            assert reported <= found.keys()
            require_runs(main_checkout, found)
            store = opened(main_checkout)
            made: list[str] = []
            insist(
                lambda: made.append(store.record("b-complete", {}, run=run).id),  # noqa: B023
                [f"refs/ckpt/runs/{run}.lock"],
            )
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
            lines = Worker(REMOVE_ON, path, run).kill_after(
                chance.choice([1, 1, 2, 3]), chance.random() * 0.06
            )
            found = require_whole(main_checkout)
            assert first.id in found
            told = [tuple(line) for line in lines]
            gone = {id_ for line in set(told) if told.count(line) == 2 for id_ in line}
            assert not gone & found.keys()
            store = opened(main_checkout)
            rest = [id_ for id_ in found if id_ != first.id]
            locks = [
                "packed-refs.lock",
                "refs/notes/checkpoints.lock",
                f"refs/ckpt/runs/{run}.lock",
                *(f"{id_}.lock" for id_ in found),
            ]
            insist(lambda: store.remove(rest), locks)  # noqa: B023
            insist(
                lambda: store.record("b-complete", {}, run=run),  # noqa: B023
                [f"refs/ckpt/runs/{run}.lock"],
            )
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
            lines = Worker(RESUME_ON, str(main_checkout.path), made.id, str(root)).kill_after(
                number % 2, 0.15 + chance.random() * 0.15
            )
            names = (
                [name for name in os.listdir(root) if not name.startswith(".")]
                if root.exists()
                else []
            )
            assert {os.path.basename(" ".join(line)) for line in lines} <= set(names)
            with opened(main_checkout) as store:
                for name in names:
                    assert store.resume(made, str(root / name)).made is False
                    assert view(root / name) == expected
                assert view(store.resume(made, str(root / "last")).path) == expected
            assert [name for name in os.listdir(root) if name.startswith(".")] == []
            assert main_checkout.refs() == before
