"""The files lock keeps other drivers away while a driver restores files.

The driver may be stopped or killed meanwhile.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from gitckpt import Run
from gitckpt.durable.run import writer
from gitckpt.durable.run.writer import lock_run_files
from gitckpt.git.lock import FileLock
from gitckpt.store.retention import sweep
from gitckpt.store.store import checkpoints_of_store
from tests.durable.command.commanding import comes
from tests.durable.stage import Stage, stage
from tests.stores import hold_run, make_private_dir

pytestmark = pytest.mark.long

__all__ = ["stage"]


@pytest.mark.parametrize("fate", [signal.SIGSTOP, signal.SIGKILL])
def test_what_somebody_else_brings_back_is_not_written_over_the_next_attempt(
    fate: signal.Signals, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PATIENCE", 0.2)
    held, asked, again = (tmp_path / name for name in ("held", "asked", "again"))
    locks = stage.checkout.path / ".git" / "ckpt"
    waits = (
        f"if ls {locks}/files.*; then touch {asked}; while test -e {held}; do sleep 0.02; "
        "done; fi >/dev/null 2>&1; cat"
    )
    stage.checkout.git("config", "filter.slow.smudge", waits)
    stage.checkout.git("config", "filter.slow.clean", "cat")
    stage.checkout.commit(
        "a file that takes its time",
        **{".gitattributes": "*.slow filter=slow\n", "file.slow": "first\n"},
    )
    stage.pipeline(
        f"one: if test -e {again}; then echo new; else echo old; fi >file.slow; test -e {again}",
        more="on_resume = 'reset'\n",
    )
    assert stage.ckpt("run", "ci").code == 20
    for path in (held, again):
        path.touch()
    asked.unlink(missing_ok=True)
    driver = stage.begin("resume")
    assert comes(asked.exists)
    driver.send_signal(fate)
    if fate == signal.SIGKILL:
        driver.wait()
    assert comes(lambda: stage.status(stage.run()) in ("stalled", "crashed"))

    refused = stage.ckpt("resume", stage.run(), "--take-over")
    assert refused.code == 11
    assert "another process restores files of run " in refused.err
    assert "kill -CONT " in refused.err

    held.unlink()
    if fate == signal.SIGSTOP:
        assert str(driver.pid) in refused.err
        driver.send_signal(signal.SIGCONT)
        assert driver.wait() == 11
    assert comes(lambda: stage.ckpt("resume", stage.run()).code == 0)
    assert (stage.worktree(stage.run()) / "file.slow").read_text() == "new\n"
    assert not list(locks.glob("files.*"))


def test_what_a_kill_left_of_it_is_swept(stage: Stage) -> None:
    stage.pipeline("one: true")
    with stage.store() as store:
        repository = checkpoints_of_store(store).repository
        left = Path(repository.make_private_dir()) / "files.20261121-201500-r.lock"
        left.touch()
        with FileLock(str(left), 0):
            assert sweep.delete_leftover_files(repository) == []
        assert sweep.delete_leftover_files(repository) == [str(left)]
        assert not left.exists()


def test_a_lock_file_that_somebody_deletes_meanwhile_is_given_back_all_the_same(
    stage: Stage,
) -> None:
    """A release that finds its file gone does not delete the next holder's file.

    It once raised an error for the process that restored files.
    """
    stage.pipeline("one: true")
    with stage.store() as store:
        run = str(Run.begin(store, "r")[0].run)
        hold = hold_run(store, run, "a test")
        path = Path(make_private_dir(store)) / f"files.{run}.lock"
        with lock_run_files(checkpoints_of_store(store).repository, hold):
            path.unlink()
        with lock_run_files(checkpoints_of_store(store).repository, hold):
            path.unlink()
            with FileLock(str(path), 0) as is_got:
                assert is_got
        assert path.exists()
        hold.release_lease()
