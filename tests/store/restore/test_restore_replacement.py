"""Git replaces files for restore, edits meanwhile survive, and undo works."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt import BusyError, CkptError, Store, WorktreeError
from tests import planted
from tests.conftest import Checkout, examples
from tests.planted import plant
from tests.store.conftest import MakeStore, after_recording, view

PATHS = ("a", "b/c", "b/d/e", "b/d/f", "g", "h-i", "h/i", "h.i", "b/d-e", "x y", "deep/er/still")
CONTENTS = ("", "one\n", "two\n", "three\r\n", "\0")
KINDS = ("file", "link", "x")
FILES = st.dictionaries(
    st.sampled_from(PATHS), st.tuples(st.sampled_from(CONTENTS), st.sampled_from(KINDS)), max_size=8
)


def shaped(checkout: Checkout) -> dict[str, Any]:
    """Return the visible state, with modes and directories."""
    top = checkout.path
    modes = {
        str(one.relative_to(top)): stat.S_IMODE(one.lstat().st_mode)
        for one in top.rglob("*")
        if ".git" not in one.parts[:1]
    }
    return {
        **view(top),
        "modes": {name: mode for name, mode in modes.items() if not name.startswith(".git")},
    }


def fill(checkout: Checkout, files: dict[str, tuple[str, str]]) -> None:
    """Make the worktree hold exactly these files."""
    for path in checkout.path.iterdir():
        if path.name != ".git":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name, (content, kind) in files.items():
        if any(name.startswith(f"{other}/") for other in files):
            continue
        if kind == "link":
            (checkout.path / name).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(content.replace("\0", "") or "nowhere", checkout.path / name)
        else:
            os.chmod(checkout.write(name, content), 0o755 if kind == "x" else 0o644)


def test_restore_and_undo_of_changed_files(store: Store, checkout: Checkout) -> None:
    checkout.commit("more", **{"gone/by/then": "1\n", "x": "x\n"})
    made = store.save("a-complete", {})
    shutil.rmtree(checkout.path / "gone")
    checkout.write("README", "changed\n")
    checkout.write("came/since", "new\n")
    before = shaped(checkout)
    store.restore(made.id)
    assert checkout.git("status", "--porcelain") == ""
    assert not (checkout.path / "came").exists()
    store.undo()
    assert shaped(checkout) == before


def hollow(checkout: Checkout) -> None:
    (checkout.path / "x").unlink()
    (checkout.path / "x").mkdir()


def flat(checkout: Checkout) -> None:
    shutil.rmtree(checkout.path / "away")
    checkout.write("away", "a file\n")


def piped(checkout: Checkout) -> None:
    (checkout.path / "README").unlink()
    os.mkfifo(checkout.path / "README")


ODD: dict[str, Callable[[Checkout], object]] = {
    "attributes": lambda checkout: checkout.write(".gitattributes", "*.txt text\n"),
    "attributes where nobody looked": lambda checkout: (
        (checkout.main / ".git/ignored").write_text("/away\n"),
        checkout.git("config", "core.excludesFile", str(checkout.main / ".git/ignored")),
        checkout.write("away/.gitattributes", "* text eol=crlf\n"),
    ),
    "line ends": lambda checkout: checkout.git("config", "core.autocrlf", "input"),
    "modes that git is not to believe": lambda checkout: checkout.git(
        "config", "core.fileMode", "false"
    ),
    "what is staged": lambda checkout: checkout.git("add", "README"),
    "a name that git may refuse": lambda checkout: checkout.write("x~1", "new\n"),
    "an empty directory in the place of a file": hollow,
    "a file in the place of a directory": flat,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", ODD)
def test_restore_beside_odd_places(store: Store, checkout: Checkout, change: str) -> None:
    checkout.commit("more", **{"away/x": "1\n", "x": "x" * 90})
    checkout.git("config", "core.fileMode", "true")
    made = store.save("a-complete", {})
    checkout.write("README", "changed\n")
    checkout.write("away/x", "2\n")
    ODD[change](checkout)
    store.restore(made.id)
    assert (checkout.path / "README").read_text() == "hello\n"


MEANWHILE: dict[str, Callable[[Checkout], object]] = {
    "a file that was to be replaced": lambda checkout: checkout.write(
        "README", "typed in this moment\n"
    ),
    "a file that was to go": lambda checkout: checkout.write(
        "came/since", "typed in this moment\n"
    ),
    "a file that is executable now": lambda checkout: os.chmod(checkout.path / "README", 0o755),
    "a file that came where another one comes": lambda checkout: checkout.write(
        "gone", "typed in this moment\n"
    ),
    "a pipe": piped,
}


@pytest.fixture
def changed(plain: Store, main_checkout: Checkout) -> str:
    """A checkpoint, and a worktree that differs from it in each way."""
    main_checkout.commit("more", gone="1\n")
    made = plain.save("a-complete", {})
    main_checkout.write("README", "before\n")
    main_checkout.write("came/since", "new\n")
    (main_checkout.path / "gone").unlink()
    return made.id


def content(checkout: Checkout) -> dict[str, tuple[int, bytes | None]]:
    """Return the contents of a path of any kind."""
    found: dict[str, tuple[int, bytes | None]] = {}
    for path in sorted(checkout.path.rglob("*")):
        name = str(path.relative_to(checkout.path))
        if not name.startswith(".git"):
            status = path.lstat()
            found[name] = (
                status.st_mode,
                path.read_bytes() if path.is_file() and not path.is_symlink() else None,
            )
    return found


@pytest.mark.parametrize("change", MEANWHILE)
def test_what_changes_after_the_capture_stays_and_nothing_is_touched(
    plain: Store,
    main_checkout: Checkout,
    changed: str,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    there: list[object] = []

    def in_this_moment() -> None:
        MEANWHILE[change](main_checkout)
        there.append(content(main_checkout))

    after_recording(plain, monkeypatch, in_this_moment)
    with pytest.raises(BusyError, match="a file changed while it was to be replaced: "):
        plain.restore(changed)
    assert [content(main_checkout)] == there


def test_nobody_loses_the_directory_they_are_in(
    plain: Store, main_checkout: Checkout, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(main_checkout.path / "came")
    plain.restore(changed)
    assert os.listdir() == []
    assert main_checkout.git("status", "--porcelain") == ""


def test_where_the_current_directory_is_gone(
    plain: Store, main_checkout: Checkout, changed: str, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    before = os.getcwd()
    os.chdir(tmp_path / "gone")
    try:
        (tmp_path / "gone").rmdir()
        plain.restore(changed)
    finally:
        os.chdir(before)
    assert main_checkout.git("status", "--porcelain") == ""


def test_a_damaged_object_changes_nothing(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.write("new", "captured\n")
    made = plain.save("a-complete", {})
    oid = main_checkout.git("rev-parse", f"{made.tree}:files/new")
    main_checkout.write("new", "since\n")
    path = main_checkout.main / ".git/objects" / oid[:2] / oid[2:]
    path.chmod(0o644)
    path.write_bytes(b"")
    with pytest.raises(CkptError):
        plain.restore(made.id)
    assert (main_checkout.path / "new").read_text() == "since\n"


@pytest.mark.long
@settings(
    max_examples=examples(60),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(base=FILES, wanted=FILES, there=FILES)
def test_restore_and_undo_of_random_files(
    make_store: MakeStore,
    make_checkout: Callable[..., Checkout],
    base: dict[str, tuple[str, str]],
    wanted: dict[str, tuple[str, str]],
    there: dict[str, tuple[str, str]],
) -> None:
    checkout = make_checkout(os.urandom(6).hex())
    fill(checkout, base)
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "--allow-empty", "--message", "base")
    fill(checkout, wanted)
    with make_store(checkout, "plumbing") as store:
        made = store.save("a-complete", {})
        saved = shaped(checkout)
        fill(checkout, there)
        before = shaped(checkout)
        done = store.restore(made.id)
        assert shaped(checkout) == saved
        if done.safety:
            store.undo()
            assert shaped(checkout) == before


def test_a_directory_that_became_a_repository_of_its_own(
    plain: Store, main_checkout: Checkout
) -> None:
    main_checkout.commit("more", **{"inner/one": "1\n"})
    made = plain.save("a-complete", {})
    main_checkout.git("init", "--quiet", "inner")
    (main_checkout.path / "inner/one").unlink()
    main_checkout.write("inner/new/two", "2\n")
    main_checkout.write("README", "changed\n")
    before = view(main_checkout.path)
    plain.restore(made.id)
    assert main_checkout.git("status", "--porcelain") == ""
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
from gitckpt.git.repository import discover_repository
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import Store
with Store(Checkpoints(discover_repository(sys.argv[1]), adapter="plumbing")) as store:
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
    assert (
        (main_checkout.path / "other").read_text()
        == (main_checkout.path / "README").read_text()
        == "changed\n"
    )


def test_a_link_out_of_the_worktree_does_no_harm(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    made = plain.save("a-complete", {})
    os.link(main_checkout.write("README", "changed\n"), tmp_path / "kept")
    plain.restore(made.id)
    assert ((tmp_path / "kept").read_text(), (main_checkout.path / "README").read_text()) == (
        "changed\n",
        "hello\n",
    )


def test_line_ends_from_a_time_when_git_converted_them(
    plain: Store, main_checkout: Checkout
) -> None:
    """Restore replaces an old CRLF file that git's stat data call unchanged."""
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


def test_what_git_wrote_into_a_file_when_it_was_to(plain: Store, main_checkout: Checkout) -> None:
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
    assert (main_checkout.path / "README").read_text() == "captured\n"


def forge(patch: pytest.MonkeyPatch, files: str) -> None:
    """Make the restored checkpoint hold a tree that is not from a worktree."""
    contents_of = planted.original(planted.CONTENTS_OF)

    def forged(*args: Any) -> Any:
        found = contents_of(*args)
        found.files = files
        return found

    plant(patch, planted.CONTENTS_OF, forged)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("target", [b"a\0b", b"", b"x" * 5000])
def test_a_link_that_cannot_be(
    plain: Store,
    main_checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    target: bytes,
    *,
    there: bool,
) -> None:
    """A fetched checkpoint with an impossible link fails, and undo works."""
    made = plain.save("a-complete", {})
    readme, link = (
        main_checkout.git("hash-object", "-w", "--stdin", data=data)
        for data in (b"hello\n", target)
    )
    files = main_checkout.git(
        "mktree", data=f"100644 blob {readme}\tREADME\n120000 blob {link}\tlink\n"
    )
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
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree with a duplicate name fails without blaming an edit of the user."""
    made = plain.save("a-complete", {})
    oids = [
        main_checkout.git("hash-object", "-w", "--stdin", data=data)
        for data in ("hello\n", "1\n", "2\n")
    ]
    entries = [
        b"100644 %s\0%s" % (name, bytes.fromhex(oid))
        for name, oid in zip((b"README", b"x", b"x"), oids, strict=True)
    ]
    files = main_checkout.git(
        "hash-object", "-w", "-t", "tree", "--literally", "--stdin", data=b"".join(entries)
    )
    main_checkout.write("README", "changed\n")
    before = view(main_checkout.path)
    with monkeypatch.context() as patch:
        forge(patch, files)
        with pytest.raises(WorktreeError, match=r"the restored files differ from checkpoint"):
            plain.restore(made.id)
    plain.undo()
    assert view(main_checkout.path) == before
