"""Without git, a repository, write access or room, an error says so.

Nothing in the repository changes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt import (
    BusyError,
    CkptError,
    FilesPruned,
    GitError,
    LockHeld,
    RepositoryError,
    Store,
    WorktreeError,
)
from tests.conftest import Checkout, git_program
from tests.store.conftest import Denied, MakeStore, nth, require_whole


class TestAReadOnlyRepository:
    SCRIPT = (
        "import sys; from gitckpt.store.store import Store; "
        "from gitckpt.model.errors import CkptError\n"
        "store = Store.open(sys.argv[1], adapter=sys.argv[2])\n"
        "print(len(store.list()), store.find('latest:any'), "
        "store.read(store.find('latest:any')).label, len(store.links(sys.argv[3])))\n"
        "for work in (lambda: store.record('b-complete', {}), store.capture, lambda: "
        "store.remove([store.find('latest:any')])):\n"
        "    try:\n"
        "        work()\n"
        "    except CkptError as error:\n"
        "        print(type(error).__name__, error.message)\n"
        "store.close()\n"
    )

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("has_private", [True, False])
    def test_is_read_and_refuses_the_rest(
        self,
        main_checkout: Checkout,
        make_store: MakeStore,
        adapter: str,
        denied: Denied,
        has_private: bool,
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
    """Mount a file system of 2 MB, or skip the test without the right to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    if (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)],
            capture_output=True,
            check=False,
        ).returncode
        != 0
    ):
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
        subprocess.run([git_program(), "init", "--quiet", str(path)], check=True)
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
        ):
            with pytest.raises(CkptError) as caught:
                work()
            # libgit2 words this error differently
            assert (
                "No space left on device" in caught.value.message
                or caught.value.message.startswith(
                    ("git hash-object failed: ", "git index-pack failed: ")
                )
            )
            assert checkout.refs() == before
        assert [entry.id for entry in store.list()] == [nth(1)]
        filler.unlink()
        made = store.save("a-complete", {"big": "y" * 10_000}, run=run)
        assert (made.sequence, made.parent) == (2, nth(1))
        assert len(require_whole(checkout)) == 2

    def test_while_refs_are_written(
        self,
        main_checkout: Checkout,
        make_store: MakeStore,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Git's own message reaches the user; a wrapper prints it in place of git."""
        wrapper = tmp_path / "full"
        said = (
            "fatal: commit: cannot lock ref 'refs/x': Unable to write new value: "
            "No space left on device"
        )
        wrapper.write_text(
            f'#!/bin/sh\ncase " $* " in *" update-ref "*) echo "{said}" >&2; exit 128;; esac\n'
            'exec git "$@"\n'
        )
        wrapper.chmod(0o755)
        before = main_checkout.fingerprint()
        monkeypatch.setenv("GITCKPT_GIT", str(wrapper))
        with pytest.raises(GitError) as caught:
            make_store(main_checkout).record("a-complete", {})
        assert caught.value.message == f"git update-ref failed: {said}"
        monkeypatch.delenv("GITCKPT_GIT")
        assert main_checkout.fingerprint() == before


def test_no_git_at_all(main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITCKPT_GIT", "/nonexistent/git")
    with pytest.raises(CkptError) as caught:
        Store.open(main_checkout.path)
    assert caught.value.message == "cannot start /nonexistent/git: No such file or directory"


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError) as caught:
        Store.open(tmp_path)
    assert (caught.value.message, caught.value.exit_code) == (
        f"not in a git repository: {tmp_path}",
        10,
    )


def test_errors_know_their_exit_codes() -> None:
    assert [error.exit_code for error in (BusyError, LockHeld, FilesPruned, WorktreeError)] == [
        11,
        11,
        11,
        14,
    ]
