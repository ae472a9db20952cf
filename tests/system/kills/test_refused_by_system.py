"""With too few descriptors or too small files, a save is whole or absent.

Its error is one sentence.
"""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gitckpt import Store, WorktreeError
from tests.conftest import Checkout, git_program
from tests.store.conftest import MakeStore, require_whole
from tests.system.faults import processes

ROOT = Path(__file__).parents[3]


def save(checkout: Checkout, kind: int, limit: int) -> subprocess.CompletedProcess[str]:
    """Run `git ckpt save` under a resource limit."""

    def restrict() -> None:
        resource.setrlimit(kind, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "gitckpt", "save"],
        cwd=checkout.path,
        # Python would cache bytecode that it could write in part only, and fail ever after.
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=restrict,
    )


def look(checkout: Checkout, done: subprocess.CompletedProcess[str], before: int) -> int:
    """Require that a save is whole or refused; return the number of checkpoints."""
    there = len(require_whole(checkout))
    assert there == before + (done.returncode == 0), (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert "this is a bug" not in done.stderr
    if done.returncode > 0 and done.stderr:
        assert done.stderr.splitlines()[-1].startswith(("error: ", "hint: "))
    return there


@pytest.mark.long(but=["12"], spare=[str(limit) for limit in range(22, 40, 4)])
@pytest.mark.parametrize("limit", range(6, 40, 2), ids=str)
def test_too_few_descriptors(main_checkout: Checkout, limit: int) -> None:
    main_checkout.write("new", "x")
    there = look(main_checkout, save(main_checkout, resource.RLIMIT_NOFILE, limit), 0)
    main_checkout.write("new", "y")
    assert look(main_checkout, save(main_checkout, resource.RLIMIT_NOFILE, 256), there) == there + 1


@pytest.mark.long(but=["100"])
@pytest.mark.parametrize("limit", [1, 60, 100, 200, 500, 1000, 5000], ids=str)
def test_files_that_may_not_grow(main_checkout: Checkout, limit: int) -> None:
    """A file size limit ends writes early, as a full disk does, in Python and in git."""
    main_checkout.write("new", os.urandom(400))
    there = look(main_checkout, save(main_checkout, resource.RLIMIT_FSIZE, limit), 0)
    assert (
        look(
            main_checkout, save(main_checkout, resource.RLIMIT_FSIZE, resource.RLIM_INFINITY), there
        )
        == there + 1
    )


FULL_FOR_A_MOMENT = """\
#!/bin/sh
case " $* " in
*" update-index --add "*) exec strace -o /dev/null -e trace=mkdir \
-e inject=mkdir:error=ENOSPC:when=1 {git} "$@" ;;
esac
exec {git} "$@"
"""
"""The first directory that git makes is for the first object."""


@pytest.mark.skipif(
    processes.can_trace() is not None, reason="needs strace, and the right to use it"
)
class TestAnObjectThatFindsNoRoom:
    """A file is never left out because the disk was full for one object only."""

    @pytest.fixture(autouse=True)
    def _full(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        git = tmp_path / "git"
        git.write_text(FULL_FOR_A_MOMENT.format(git=git_program()))
        git.chmod(0o755)
        self.git = str(git)

    def test_a_save_fails_and_leaves_no_file_out(
        self, main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        main_checkout.commit(
            "rules", **{".gitattributes": "new text\n"}
        )  # with attributes, git writes the file, not gitckpt
        main_checkout.write("new", "what is to be saved")
        monkeypatch.setenv("GITCKPT_GIT", self.git)
        with pytest.raises(WorktreeError, match="new: failed to insert into database") as caught:
            make_store(main_checkout).save("a-complete")
        assert caught.value.hint is None  # a commit without files would find no room either
        monkeypatch.undo()
        assert require_whole(main_checkout) == {}

    def test_a_restore_replaces_nothing(
        self, main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = make_store(main_checkout).save("a-complete")
        main_checkout.commit(
            **{"README": "another", ".gitattributes": "*.txt text\n"}
        )  # with attributes, git writes the file, not gitckpt
        main_checkout.write("README", "what would be lost")
        before = main_checkout.fingerprint()
        monkeypatch.setenv("GITCKPT_GIT", self.git)
        with pytest.raises(WorktreeError, match="README: failed to insert into database"):
            make_store(main_checkout).restore(made.id)
        monkeypatch.undo()
        assert main_checkout.fingerprint() == before


@pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"),
    reason="the system does not say which file a descriptor is of",
)
def test_a_restore_that_cannot_note_what_was_there_names_the_file(
    main_checkout: Checkout, plain: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plain.save("a-complete")
    main_checkout.write("README", "changed")
    note = main_checkout.path / ".git/ckpt-undo"
    really = os.fsync

    def fail(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(str(note)):
            raise OSError(errno.EIO, "Input/output error")
        really(fd)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WorktreeError, match=f"^cannot write {note}: Input/output error$"):
        plain.restore(made.id)
    assert (main_checkout.path / "README").read_text() == "changed"
    assert list(note.parent.glob("ckpt-undo*")) == []
