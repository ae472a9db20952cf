"""What holds objects while a `git gc --prune=now` is at work, and the packs that it uses for it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gitckpt.git.objects import pack
from gitckpt.git.objects.anchor import gc_is_running
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError, git_executable
from gitckpt.git.refs import Refs, Update
from gitckpt.git.repository import Repository
from tests.conftest import Checkout

if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects

ITEMS = [("blob", b""), ("blob", b"a blob\n"), ("tree", b""), ("blob", os.urandom(100_000))]


def gc(checkout: Checkout) -> None:
    checkout.git("gc", "--quiet", "--prune=now")


def is_there(checkout: Checkout, data: bytes, kind: str = "blob") -> bool:
    oid = object_id(kind, data, "sha1")
    return checkout.git("cat-file", "--batch-check=%(objecttype)", data=f"{oid}\n").split()[-1] == kind


def begin_gc(checkout: Checkout, pid: int | None = None) -> Path:
    """Lets it look as if a gc were at work."""
    file = checkout.path / ".git/gc.pid"
    file.write_text(f"{pid or os.getpid()} {socket.gethostname()}")
    return file


class TestWhatAGcTakes:
    """What the anchor is built on, shown with git alone."""

    def test_a_later_time_stamp_saves_nothing(self, main_checkout: Checkout) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data="young\n")
        later = time.time() + 100_000
        os.utime(main_checkout.path / ".git/objects" / oid[:2] / oid[2:], (later, later))
        gc(main_checkout)
        assert not is_there(main_checkout, b"young\n")

    @pytest.mark.parametrize("keep", [True, False])
    def test_a_pack_is_saved_by_a_file_beside_it(self, main_checkout: Checkout, repository: Repository, keep: bool) -> None:
        pack.write(repository, [("blob", b"packed\n")], keep=keep)
        gc(main_checkout)
        assert is_there(main_checkout, b"packed\n") == keep

    def test_a_prune_takes_no_pack(self, main_checkout: Checkout, repository: Repository) -> None:
        pack.write(repository, [("blob", b"packed\n")])
        main_checkout.git("hash-object", "-w", "--stdin", data="loose\n")
        main_checkout.git("prune", "--expire=now")
        assert [is_there(main_checkout, data) for data in (b"packed\n", b"loose\n")] == [True, False]

    def test_git_says_so_while_one_is_at_work(self, main_checkout: Checkout, repository: Repository, tmp_path: Path) -> None:
        """A stand-in for git, by which a gc calls its own parts, looks at the moment of the prune; a newer git asks a program there."""
        program = tmp_path / "bin/git"
        program.parent.mkdir()
        real = shutil.which(git_executable())
        program.write_text(f'#!/bin/sh\ntest "$1" != prune || cp "{main_checkout.path}/.git/gc.pid" "{tmp_path}/said"\nexec {real} "$@"\n')
        program.chmod(0o755)
        asked = tmp_path / "asked"
        asked.write_text(f'#!/bin/sh\ncp "{main_checkout.path}/.git/gc.pid" "{tmp_path}/said"\n')
        asked.chmod(0o755)
        main_checkout.git("hash-object", "-w", "--stdin", data="without one, nobody is asked\n")
        settings = ("-c", f"gc.recentObjectsHook='{asked}'")
        main_checkout.git(*settings, "gc", "--quiet", "--prune=now", env={"GIT_EXEC_PATH": str(program.parent)})
        assert (tmp_path / "said").read_text().split()[1:] == [socket.gethostname()]
        assert not gc_is_running(repository.common_dir)


class TestWhetherAGcIsRunning:
    def test_none(self, repository: Repository) -> None:
        assert not gc_is_running(repository.common_dir)

    def test_one(self, main_checkout: Checkout, repository: Repository) -> None:
        begin_gc(main_checkout)
        assert gc_is_running(repository.common_dir)

    def test_one_that_was_killed(self, main_checkout: Checkout, repository: Repository) -> None:
        with subprocess.Popen(["true"]) as over:
            over.wait()
        begin_gc(main_checkout, over.pid)
        assert not gc_is_running(repository.common_dir)

    def test_one_on_another_machine(self, main_checkout: Checkout, repository: Repository) -> None:
        file = main_checkout.path / ".git/gc.pid"
        file.write_text("1 elsewhere")
        assert gc_is_running(repository.common_dir)
        long_ago = time.time() - 13 * 3600
        os.utime(file, (long_ago, long_ago))
        assert not gc_is_running(repository.common_dir)

    @pytest.mark.parametrize("text", ["", "nonsense", "12"])
    def test_what_cannot_be_read_counts(self, main_checkout: Checkout, repository: Repository, text: str) -> None:
        (main_checkout.path / ".git/gc.pid").write_text(text)
        assert gc_is_running(repository.common_dir)


class TestPacks:
    @pytest.mark.parametrize("object_format", ["sha1", "sha256"])
    def test_git_reads_them(
        self, make_checkout: Callable[..., Checkout], opened: Callable[..., Repository], object_format: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkout = make_checkout("project", f"--object-format={object_format}")
        monkeypatch.setattr(pack, "_FAR", 1000)  # so that offsets of all widths are in it
        repository = opened(checkout)
        many = [("blob", b"%d" % number) for number in range(300)]
        path = pack.write(repository, [*many, *many[:3]])
        monkeypatch.undo()
        assert not os.path.exists(path)
        names = "".join(f"{object_id(*item, object_format)}\n" for item in many)
        said = checkout.git("cat-file", "--batch=%(objecttype)", data=names)
        assert said == "\n".join(f"blob\n{number}" for number in range(300))
        checkout.git("fsck", "--strict")
        assert checkout.git("count-objects") == "0 objects, 0 kilobytes"

    def test_git_verifies_them(self, main_checkout: Checkout, repository: Repository) -> None:
        path = pack.write(repository, [*ITEMS, ITEMS[1]], keep=True)
        main_checkout.git("verify-pack", path.removesuffix(".keep") + ".idx")
        assert main_checkout.git("fsck", "--strict", "--no-dangling") == ""
        assert all(is_there(main_checkout, data, kind) for kind, data in ITEMS)

    def test_who_may_read_the_directory_may_read_them(self, main_checkout: Checkout, repository: Repository) -> None:
        directory = main_checkout.path / ".git/objects/pack"
        for mode in (0o750, 0o755):
            directory.chmod(mode)
            path = Path(pack.write(repository, [ITEMS[1]], keep=True))
            assert {each.stat().st_mode & 0o777 for each in directory.glob(f"{path.stem}.*")} == {mode & 0o444}

    def test_a_prune_that_finds_one_half_written_stops_nobody(
        self, main_checkout: Checkout, repository: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        really, left = os.replace, [2]

        def replace(source: str, target: str) -> None:
            if left[0]:
                left[0] -= 1
                main_checkout.git("prune", "--expire=now")
            really(source, target)

        monkeypatch.setattr(os, "replace", replace)
        pack.write(repository, ITEMS)
        assert left == [0]
        assert all(is_there(main_checkout, data, kind) for kind, data in ITEMS)
        assert not list((main_checkout.path / ".git/objects/pack").glob("tmp_*"))

    def test_what_cannot_be_written(self, main_checkout: Checkout, repository: Repository) -> None:
        (main_checkout.path / ".git/objects/pack").rmdir()
        (main_checkout.path / ".git/objects/pack").write_text("in the way")
        with pytest.raises(GitError) as caught:
            pack.write(repository, ITEMS)
        assert "objects/pack: File exists" in caught.value.message

    def test_objects_of_git_are_held(self, main_checkout: Checkout, repository: Repository) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data="held\n")
        path = pack.hold(repository, [oid], keep=True)
        assert path is not None
        gc(main_checkout)
        assert is_there(main_checkout, b"held\n")
        os.unlink(path)
        gc(main_checkout)
        assert not is_there(main_checkout, b"held\n")
        assert pack.hold(repository, [oid]) is None
        assert [name for name in os.listdir(repository.private_dir) if name.startswith("objects.")] == []

    def test_a_commit_is_held_with_what_is_new_in_it(self, main_checkout: Checkout, repository: Repository) -> None:
        commit = main_checkout.commit("second", new="new\n")
        path = pack.hold(repository, [commit, f"^{commit}~1"], revs=True)
        assert path is not None
        listed = main_checkout.git("show-index", data=_idx(path)).splitlines()
        assert {line.split()[1] for line in listed} == {
            commit,
            main_checkout.git("rev-parse", "HEAD:"),
            object_id("blob", b"new\n", "sha1"),
        }


def _idx(path: str) -> bytes:
    return Path(path).with_suffix(".idx").read_bytes()


class TestHeldUntilRefsLeadThere:
    """With either adapter: whatever a gc does meanwhile, what refs lead to in the end is there."""

    REF = "refs/checkpoints/mine"

    @pytest.fixture
    def refs(self, repository: Repository, objects: Objects) -> Refs:
        return Refs(repository, settle=objects.settle)

    def test_one_that_was_at_work_already(self, main_checkout: Checkout, objects: Objects, refs: Refs) -> None:
        under_way = begin_gc(main_checkout)
        objects.write([("blob", b"durable\n"), ("blob", b"derived\n")])
        under_way.unlink()
        gc(main_checkout)  # which goes further than the one before could: it may repack as well
        refs.update([Update(self.REF, object_id("blob", b"durable\n", "sha1"), "")])
        gc(main_checkout)
        assert [is_there(main_checkout, data) for data in (b"durable\n", b"derived\n")] == [True, False]
        assert not list((main_checkout.path / ".git/objects/pack").glob("*.keep"))

    def test_one_that_began_after_they_were_written(self, main_checkout: Checkout, objects: Objects, refs: Refs) -> None:
        objects.write([("blob", b"durable\n")])
        oid = object_id("blob", b"durable\n", "sha1")
        under_way = begin_gc(main_checkout)
        refs.update([Update(self.REF, oid, "")])
        under_way.unlink()
        main_checkout.git("prune-packed")
        (main_checkout.path / ".git/objects" / oid[:2] / oid[2:]).unlink(missing_ok=True)  # it did not know of the ref
        gc(main_checkout)
        assert is_there(main_checkout, b"durable\n")

    def test_one_that_is_over_when_the_refs_are_there(self, main_checkout: Checkout, objects: Objects, repository: Repository) -> None:
        oid = object_id("blob", b"durable\n", "sha1")

        def settle() -> None:
            (main_checkout.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
            objects.settle()

        objects.write([("blob", b"durable\n"), ("tree", b"")])
        Refs(repository, settle=settle).update([Update(self.REF, oid, "")])
        assert is_there(main_checkout, b"durable\n")
        gc(main_checkout)
        assert is_there(main_checkout, b"durable\n")

    def test_one_that_takes_what_is_half_written(self, main_checkout: Checkout, objects: Objects, tmp_path: Path) -> None:
        """The directory of the object is deleted again and again, as git prunes it once it is empty."""
        script = f"while [ ! -e {tmp_path}/over ]; do rmdir {main_checkout.path}/.git/objects/?? 2>/dev/null; done"
        with subprocess.Popen(["sh", "-c", script]) as pruning:
            try:
                data = [b"%d\n" % number for number in range(30)]
                for each in data:
                    objects.write([("blob", each)])
            finally:
                (tmp_path / "over").touch()
                pruning.wait()
        assert all(is_there(main_checkout, each) for each in data)

    def test_objects_of_git(self, main_checkout: Checkout, objects: Objects, refs: Refs) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data="by git\n")
        assert objects.hold([oid])
        assert not list((main_checkout.path / ".git/objects/pack").iterdir())  # nobody takes it
        under_way = begin_gc(main_checkout)
        assert objects.hold([oid])
        assert not objects.hold(["1" * 40])
        under_way.unlink()
        gc(main_checkout)
        refs.update([Update(self.REF, oid, "")])
        gc(main_checkout)
        assert is_there(main_checkout, b"by git\n")

    def test_what_no_ref_came_to_is_let_go(self, main_checkout: Checkout, objects: Objects) -> None:
        under_way = begin_gc(main_checkout)
        objects.write([("blob", b"in vain\n")])
        objects.close()
        under_way.unlink()
        gc(main_checkout)
        assert not is_there(main_checkout, b"in vain\n")


class TestMemory:
    """What is held or put back may be larger than the memory: it goes by in pieces."""

    SIZE = 24 << 20

    @staticmethod
    def peak(work: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def test_of_what_is_held(self, main_checkout: Checkout, repository: Repository) -> None:
        oid = main_checkout.git("hash-object", "-w", "--stdin", data=os.urandom(self.SIZE))
        assert self.peak(lambda: pack.hold(repository, [oid])) < self.SIZE // 4
        (main_checkout.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
        assert main_checkout.git("cat-file", "-s", oid) == str(self.SIZE)
