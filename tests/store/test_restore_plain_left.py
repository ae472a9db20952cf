"""Files that look plain, and are left to git all the same; and what a person reads where one cannot be replaced."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gitckpt.git.contents.exchange import Exchange
from gitckpt.model.errors import WorktreeError
from gitckpt.store.restore import plain as plain_restores
from gitckpt.store.snapshot import manifest
from gitckpt.store.store import Store
from tests.conftest import Checkout
from tests.store.conftest import view


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[Exchange]:
    """What replaces files without git, from here on."""
    found: list[Exchange] = []
    replace = Exchange.replace

    def noted(self: Exchange) -> None:
        found.append(self)
        replace(self)

    monkeypatch.setattr(Exchange, "replace", noted)
    return found


def test_a_directory_that_became_a_repository_of_its_own(plain: Store, main_checkout: Checkout, replaced: list[Exchange]) -> None:
    main_checkout.commit("more", **{"inner/one": "1\n"})
    made = plain.save("a-complete", {})
    main_checkout.git("init", "--quiet", "inner")
    (main_checkout.path / "inner/one").unlink()
    main_checkout.write("inner/new/two", "2\n")
    main_checkout.write("README", "changed\n")
    before = view(main_checkout.path)
    plain.restore(made.id)
    assert (main_checkout.git("status", "--porcelain"), replaced) == ("", [])
    assert sorted(os.listdir(main_checkout.path / "inner")) == [".git", "one"]
    plain.undo()
    assert view(main_checkout.path)["files"] == before["files"]


SCRIPT = """
import ctypes, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
import os
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], *sys.argv[2:]])
"""
RESTORE = """
import sys
from gitckpt.git.repository import discover
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import Store
with Store(Checkpoints(discover(sys.argv[1]), adapter="plumbing")) as store:
    store.restore(sys.argv[2])
"""


def test_a_directory_that_may_not_be_listed(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.commit("more", **{"inner/one": "1\n"})
    made = plain.save("a-complete", {})
    main_checkout.write("inner/one", "2\n")
    os.chmod(main_checkout.path / "inner", 0o300)
    try:
        command = [sys.executable, "-c", SCRIPT, RESTORE, str(main_checkout.path), made.id]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        os.chmod(main_checkout.path / "inner", 0o755)
    assert done.returncode == 0, done.stderr
    assert (main_checkout.path / "inner/one").read_text() == "1\n"


@pytest.mark.parametrize("base", ["1\n", None])
def test_paths_that_are_one_file(plain: Store, main_checkout: Checkout, base: str | None) -> None:
    if base is not None:
        main_checkout.commit("more", other=base)
    made = plain.save("a-complete", {})
    main_checkout.write("README", "changed\n")
    (main_checkout.path / "other").unlink(missing_ok=True)
    os.link(main_checkout.path / "README", main_checkout.path / "other")
    plain.restore(made.id)
    assert main_checkout.git("status", "--porcelain") == ""
    plain.undo()
    assert (main_checkout.path / "other").read_text() == (main_checkout.path / "README").read_text() == "changed\n"


def test_a_link_out_of_the_worktree_does_no_harm(plain: Store, main_checkout: Checkout, tmp_path: Path, replaced: list[Exchange]) -> None:
    made = plain.save("a-complete", {})
    os.link(main_checkout.write("README", "changed\n"), tmp_path / "kept")
    plain.restore(made.id)
    assert len(replaced) == 1
    assert ((tmp_path / "kept").read_text(), (main_checkout.path / "README").read_text()) == ("changed\n", "hello\n")


def test_line_ends_from_a_time_when_git_converted_them(plain: Store, main_checkout: Checkout) -> None:
    """Such a file is unchanged for git, by its stat data."""
    main_checkout.write("README", "captured\n")
    made = plain.save("a-complete", {})
    main_checkout.git("config", "core.autocrlf", "true")
    main_checkout.git("checkout", "README")
    os.utime(main_checkout.path / "README", (1_000_000_000, 1_000_000_000))
    main_checkout.git("update-index", "--refresh")
    main_checkout.git("config", "--unset", "core.autocrlf")
    assert (main_checkout.path / "README").read_bytes() == b"hello\r\n"
    assert main_checkout.git("status", "--porcelain") == ""
    plain.restore(made.id)
    assert (main_checkout.path / "README").read_bytes() == b"captured\n"


def test_what_git_wrote_into_a_file_when_it_was_to(plain: Store, main_checkout: Checkout, replaced: list[Exchange]) -> None:
    main_checkout.commit("with an id", README="$Id$\n")
    main_checkout.write("README", "captured\n")
    made = plain.save("a-complete", {})
    (main_checkout.main / ".git/info").mkdir(exist_ok=True)
    attributes = main_checkout.main / ".git/info/attributes"
    attributes.write_text("README ident\n")
    main_checkout.git("checkout", "README")
    os.utime(main_checkout.path / "README", (1_000_000_000, 1_000_000_000))
    main_checkout.git("update-index", "--refresh")
    attributes.unlink()
    assert (main_checkout.path / "README").read_text().startswith("$Id: ")
    assert main_checkout.git("status", "--porcelain") == ""
    plain.restore(made.id)
    assert ((main_checkout.path / "README").read_text(), replaced) == ("captured\n", [])


def test_a_large_file_is_not_read_for_what_git_made_of_it(
    plain: Store, main_checkout: Checkout, replaced: list[Exchange], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_restores, "_LARGEST", 80)
    main_checkout.commit("more", large="x" * 90)
    main_checkout.write("large", "captured\n")
    made = plain.save("a-complete", {})
    main_checkout.git("checkout", "large")
    plain.restore(made.id)
    assert ((main_checkout.path / "large").read_text(), replaced) == ("captured\n", [])


@pytest.mark.parametrize(("call", "name"), [("rename", "README"), ("unlink", "inner/one")])
def test_the_file_that_cannot_be_replaced_is_named(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, call: str, name: str
) -> None:
    made = plain.save("a-complete", {})
    main_checkout.write(name, "changed\n")
    really = getattr(os, call)

    def busy(path: Any, *args: Any, **options: Any) -> None:
        if os.path.basename(os.fsencode(path)) == b"one" or (call == "rename" and "dst_dir_fd" in options):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        really(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, busy)
        with pytest.raises(WorktreeError, match=f"not every file could be written: Device or resource busy: {name}$"):
            plain.restore(made.id)
    assert not [one for one in os.listdir(main_checkout.path) if one.startswith(".gitckpt-")]


def forge(patch: pytest.MonkeyPatch, files: str) -> None:
    """Has the checkpoint that comes back hold a tree of files that git did not make of a worktree."""
    contents_of = manifest.contents_of

    def forged(*args: Any) -> Any:
        found = contents_of(*args)
        found.files = files
        return found

    patch.setattr(manifest, "contents_of", forged)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("target", [b"a\0b", b"", b"x" * 5000])
def test_a_link_that_cannot_be(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, target: bytes, *, there: bool
) -> None:
    """A checkpoint that was fetched may hold anything."""
    made = plain.save("a-complete", {})
    readme, link = (main_checkout.git("hash-object", "-w", "--stdin", data=data) for data in (b"hello\n", target))
    files = main_checkout.git("mktree", data=f"100644 blob {readme}\tREADME\n120000 blob {link}\tlink\n")
    main_checkout.write("README", "changed\n")
    if there:
        os.symlink("nowhere", main_checkout.path / "link")
    before = view(main_checkout.path)
    with monkeypatch.context() as patch:
        forge(patch, files)
        with pytest.raises(WorktreeError, match=r"link"):
            plain.restore(made.id)
    plain.undo()
    assert view(main_checkout.path) == before


def test_a_tree_with_one_name_twice(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, replaced: list[Exchange]
) -> None:
    """Nobody has changed a file here, and nobody is told so."""
    made = plain.save("a-complete", {})
    oids = [main_checkout.git("hash-object", "-w", "--stdin", data=data) for data in ("hello\n", "1\n", "2\n")]
    entries = [b"100644 %s\0%s" % (name, bytes.fromhex(oid)) for name, oid in zip((b"README", b"x", b"x"), oids, strict=True)]
    files = main_checkout.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=b"".join(entries))
    main_checkout.write("README", "changed\n")
    before = view(main_checkout.path)
    with monkeypatch.context() as patch:
        forge(patch, files)
        with pytest.raises(WorktreeError, match=r"what came back is not what checkpoint .* captured"):
            plain.restore(made.id)
    assert replaced == []
    plain.undo()
    assert view(main_checkout.path) == before


KILLED = """
import os, sys
from gitckpt.git.contents.exchange import Exchange
really = Exchange.replace
def replace(self):
    os.rename = lambda *_, **__: os._exit(9)
    really(self)
Exchange.replace = replace
"""


@pytest.mark.parametrize("rules", ["", ".*\n"])
@pytest.mark.parametrize("is_dirty", [False, True])
def test_undo_removes_what_a_kill_left(plain: Store, main_checkout: Checkout, rules: str, *, is_dirty: bool) -> None:
    main_checkout.commit("more", **{"inner/one": "1\n"})
    main_checkout.write(".git/ignored", rules)
    main_checkout.git("config", "core.excludesFile", str(main_checkout.path / ".git/ignored"))
    main_checkout.write("inner/one", "captured\n")
    made = plain.save("a-complete", {})
    main_checkout.git("checkout", "inner")
    if is_dirty:
        main_checkout.write("inner/one", "since\n")
    before = view(main_checkout.path)
    command = [sys.executable, "-c", KILLED + RESTORE, str(main_checkout.path), made.id]
    assert subprocess.run(command, check=False).returncode == 9
    assert len(os.listdir(main_checkout.path / "inner")) == 2
    plain.undo()
    assert os.listdir(main_checkout.path / "inner") == ["one"]
    assert view(main_checkout.path) == before
