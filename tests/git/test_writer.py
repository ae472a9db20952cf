"""Packs and loose files are written without git, while a prune runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gitckpt import GitError
from gitckpt.git.objects import writer
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.repository import Repository
from tests.conftest import Checkout

if TYPE_CHECKING:
    from gitckpt.git.objects.writer import ObjectDatabase

ITEMS = [("blob", b""), ("blob", b"a blob\n"), ("tree", b""), ("blob", os.urandom(100_000))]


def is_there(checkout: Checkout, data: bytes, kind: str = "blob") -> bool:
    oid = object_id(kind, data, "sha1")
    return (
        checkout.git("cat-file", "--batch-check=%(objecttype)", data=f"{oid}\n").split()[-1] == kind
    )


class TestPacks:
    @pytest.mark.parametrize("object_format", ["sha1", "sha256"])
    def test_git_reads_them(
        self,
        make_checkout: Callable[..., Checkout],
        opened: Callable[..., Repository],
        object_format: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        checkout = make_checkout("project", f"--object-format={object_format}")
        monkeypatch.setattr(writer, "_MAX_OFFSET", 1000)  # so that offsets of all widths are in it
        repository = opened(checkout)
        many = [("blob", b"%d" % number) for number in range(300)]
        writer.write_pack(repository, [*many, *many[:3]])
        monkeypatch.undo()
        names = "".join(f"{object_id(*item, object_format)}\n" for item in many)
        said = checkout.git("cat-file", "--batch=%(objecttype)", data=names)
        assert said == "\n".join(f"blob\n{number}" for number in range(300))
        checkout.git("fsck", "--strict")
        assert checkout.git("count-objects") == "0 objects, 0 kilobytes"

    def test_git_verifies_them(self, main_checkout: Checkout, repository: Repository) -> None:
        writer.write_pack(repository, [*ITEMS, ITEMS[1]])
        (index,) = (main_checkout.path / ".git/objects/pack").glob("*.idx")
        main_checkout.git("verify-pack", str(index))
        assert main_checkout.git("fsck", "--strict", "--no-dangling") == ""
        assert all(is_there(main_checkout, data, kind) for kind, data in ITEMS)

    def test_who_may_read_the_directory_may_read_them(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        directory = main_checkout.path / ".git/objects/pack"
        for mode in (0o750, 0o755):
            directory.chmod(mode)
            before = set(directory.iterdir())
            writer.write_pack(repository, [ITEMS[1]])
            assert {path.stat().st_mode & 0o777 for path in set(directory.iterdir()) - before} == {
                mode & 0o444
            }

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
        writer.write_pack(repository, ITEMS)
        assert left == [0]
        assert all(is_there(main_checkout, data, kind) for kind, data in ITEMS)
        assert not list((main_checkout.path / ".git/objects/pack").glob("tmp_*"))

    def test_what_cannot_be_written(self, main_checkout: Checkout, repository: Repository) -> None:
        (main_checkout.path / ".git/objects/pack").rmdir()
        (main_checkout.path / ".git/objects/pack").write_text("in the way")
        with pytest.raises(GitError) as caught:
            writer.write_pack(repository, ITEMS)
        assert "objects/pack: File exists" in caught.value.message


class TestLooseObjects:
    def test_one_that_takes_what_is_half_written(
        self, main_checkout: Checkout, objects: ObjectDatabase, tmp_path: Path
    ) -> None:
        """Another process deletes the object's empty directory, as a prune does."""
        script = (
            f"while [ ! -e {tmp_path}/over ]; do "
            f"rmdir {main_checkout.path}/.git/objects/?? 2>/dev/null; done"
        )
        with subprocess.Popen(["sh", "-c", script]) as pruning:
            try:
                data = [b"%d\n" % number for number in range(30)]
                for each in data:
                    objects.write([("blob", each)])
            finally:
                (tmp_path / "over").touch()
                pruning.wait()
        assert all(is_there(main_checkout, each) for each in data)

    def test_what_was_not_flushed_is_flushed_once(
        self, objects: ObjectDatabase, flushed: list[str]
    ) -> None:
        (oid,) = objects.write([("blob", b"later\n")], flushed=False)
        assert flushed == []
        objects.flush()
        assert [path.endswith(f"{oid[:2]}/{oid[2:]}") for path in flushed].count(True) == 1
        flushed.clear()
        objects.flush()
        assert flushed == []
