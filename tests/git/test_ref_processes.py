"""Long-lived ref processes survive forks, threads, signals and other writers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import RefMoved
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.git.repository import Repository, discover_repository
from tests.conftest import Checkout

ROOT = Path(__file__).parents[2]
A, B, C = (f"refs/checkpoints/{name}" for name in "abc")


def in_a_fork(task: Callable[[], object]) -> int:
    """Run a task in a fork of this process; return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            task()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class TestProcesses:
    def test_a_fork_uses_a_writer_of_its_own(
        self, main_checkout: Checkout, repository: Repository, refs: Refs
    ) -> None:
        one = main_checkout.git("hash-object", "-w", "--stdin", data="one")
        refs.apply_updates([RefUpdate(A, one, "")])
        assert refs.read_ref(A) == one

        def use() -> None:
            refs.apply_updates([RefUpdate(B, one, "")])
            assert refs.read_ref(B) == one
            refs.close()
            repository.close()

        codes = [in_a_fork(use), in_a_fork(refs.close)]
        refs.apply_updates([RefUpdate(C, one, "")])
        assert (codes, main_checkout.refs("refs/checkpoints")) == ([0, 0], {A: one, B: one, C: one})

    def test_close_does_not_wait_for_a_fork_that_lives_on(
        self, main_checkout: Checkout, repository: Repository, refs: Refs
    ) -> None:
        refs.apply_updates([RefUpdate(A, main_checkout.git("rev-parse", "HEAD"), "")])
        refs.read_ref(A)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        os.close(reader)
        refs.close()
        repository.close()
        os.close(writer)
        assert os.waitpid(pid, 0)[1] == 0

    def test_threads_do_not_get_into_each_others_way(
        self, main_checkout: Checkout, refs: Refs
    ) -> None:
        one = main_checkout.git("hash-object", "-w", "--stdin", data="one")
        names = [
            [f"refs/checkpoints/{thread}-{number}" for number in range(20)] for thread in range(4)
        ]
        read: list[str | None] = []

        def work(mine: list[str]) -> None:
            for name in mine:
                refs.apply_updates([RefUpdate(name, one, "")])
                read.append(refs.read_ref(name))

        threads = [threading.Thread(target=work, args=(mine,)) for mine in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert main_checkout.refs("refs/checkpoints") == dict.fromkeys(
            (name for mine in names for name in mine), one
        )
        assert read == [one] * 80

    def test_goes_on_after_the_writer_died(
        self, main_checkout: Checkout, refs: Refs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = main_checkout.git("hash-object", "-w", "--stdin", data="one")
        refs.apply_updates([RefUpdate(A, one, "")])
        os.kill(refs._standby._idle[0].pid, signal.SIGKILL)
        refs.apply_updates([RefUpdate(B, one, "")])
        refs.apply_updates([RefUpdate(C, one, "")])
        assert main_checkout.refs("refs/checkpoints") == {A: one, B: one, C: one}

    def test_control_c_spares_the_long_lived_processes(self, main_checkout: Checkout) -> None:
        script = (
            "import os, signal, sys\n"
            "from gitckpt.git.refs import Refs, RefUpdate\n"
            "from gitckpt.git.repository import discover_repository\n"
            "repository = discover_repository(sys.argv[1])\n"
            "refs = Refs(repository)\n"
            "head = refs.read_ref('refs/heads/main')\n"
            "refs.apply_updates([RefUpdate('refs/checkpoints/a', head, '')])\n"
            "try:\n"
            "    os.killpg(0, signal.SIGINT)\n"
            "    signal.pause()\n"
            "except KeyboardInterrupt:\n"
            "    pass\n"
            "head = refs.read_ref('refs/checkpoints/a')\n"
            "refs.apply_updates([RefUpdate('refs/checkpoints/b', head, '')])\n"
        )
        subprocess.run(
            [sys.executable, "-c", script, str(main_checkout.path)],
            check=True,
            cwd=ROOT,
            start_new_session=True,
        )
        head = main_checkout.git("rev-parse", "HEAD")
        assert main_checkout.refs("refs/checkpoints") == {A: head, B: head}

    def test_a_writer_that_was_warmed_up_sees_what_others_wrote_since(
        self, main_checkout: Checkout, refs: Refs
    ) -> None:
        head = main_checkout.git("rev-parse", "HEAD")
        refs.start_idle_process()
        main_checkout.git("update-ref", A, head)
        main_checkout.git("pack-refs", "--all", "--prune")
        with pytest.raises(RefMoved):
            refs.apply_updates([RefUpdate(A, head, "")])
        refs.start_idle_process()
        main_checkout.git("update-ref", "-d", A)
        refs.apply_updates([RefUpdate(A, head, "")])
        assert main_checkout.refs(A) == {A: head}

    @pytest.mark.long
    def test_parallel_writers_lose_nothing(self, main_checkout: Checkout) -> None:
        one, two = (
            main_checkout.git("hash-object", "-w", "--stdin", data=text) for text in ("one", "two")
        )
        main_checkout.git("update-ref", "refs/ckpt/runs/shared", one)
        context = multiprocessing.get_context("fork")
        writers = [
            context.Process(
                target=create_and_swap, args=(str(main_checkout.path), number, 50, one, two)
            )
            for number in range(3)
        ]
        for process in writers:
            process.start()
        for process in writers:
            process.join()
        assert [process.exitcode for process in writers] == [0, 0, 0]
        assert main_checkout.refs("refs/checkpoints") == {
            f"refs/checkpoints/{number}-{count}": one for number in range(3) for count in range(50)
        }
        # Each of the 150 swaps has inverted the value exactly once.
        assert main_checkout.refs("refs/ckpt") == {"refs/ckpt/runs/shared": one}
        assert main_checkout.git("fsck", "--strict", "--no-dangling") == ""


def create_and_swap(path: str, number: int, count: int, one: str, two: str) -> None:
    """Create refs, each in one transaction that also swaps a contended ref."""
    repository = discover_repository(path)
    refs = Refs(repository)
    for serial in range(count):
        while True:
            now = refs.read_ref("refs/ckpt/runs/shared")
            assert now is not None
            swap = RefUpdate("refs/ckpt/runs/shared", two if now == one else one, now)
            try:
                refs.apply_updates(
                    [RefUpdate(f"refs/checkpoints/{number}-{serial}", one, ""), swap]
                )
            except RefMoved:
                continue
            break
    refs.close()
    repository.close()
