"""Files that nothing converts are put back without git and without the index; what comes out is what git would have made of it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt.git.contents import exchange, layout
from gitckpt.git.contents.exchange import Exchange
from gitckpt.model.errors import BusyError, CkptError, WorktreeError
from gitckpt.store.restore import plain as plain_restores
from gitckpt.store.store import Store
from tests import forked
from tests.conftest import Checkout, examples
from tests.store.conftest import MakeStore, after_recording, view
from tests.store.killer import opened

PATHS = ("a", "b/c", "b/d/e", "b/d/f", "g", "h-i", "h/i", "h.i", "b/d-e", "x y", "deep/er/still")
CONTENTS = ("", "one\n", "two\n", "three\r\n", "\0")
KINDS = ("file", "link", "x")
FILES = st.dictionaries(st.sampled_from(PATHS), st.tuples(st.sampled_from(CONTENTS), st.sampled_from(KINDS)), max_size=8)


def shaped(checkout: Checkout) -> dict[str, Any]:
    """Returns what there is to be seen, with modes and directories."""
    top = checkout.path
    modes = {str(one.relative_to(top)): stat.S_IMODE(one.lstat().st_mode) for one in top.rglob("*") if ".git" not in one.parts[:1]}
    return {**view(top), "modes": {name: mode for name, mode in modes.items() if not name.startswith(".git")}}


def fill(checkout: Checkout, files: dict[str, tuple[str, str]]) -> None:
    """Has the worktree hold some files and no others."""
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


@pytest.fixture
def exchanged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are replaced without git, from here on."""
    found: list[str] = []
    replace = Exchange.replace

    def noted(self: Exchange) -> None:
        replace(self)
        found.extend(os.fsdecode(one.path) for one in self._files)

    monkeypatch.setattr(Exchange, "replace", noted)
    return found


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Returns what tells which commands of git that go through an index have been started since the last time."""
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(trace))

    def ask() -> list[str]:
        text = trace.read_text("utf-8") if trace.exists() else ""
        trace.write_text("")
        return [name for name in ("update-index", "write-tree", "read-tree", "checkout-index", "status") if f'"{name}"' in text]

    return ask


def test_one_look_at_the_worktree_is_all_that_git_does(
    store: Store, checkout: Checkout, exchanged: list[str], commands: Callable[[], list[str]]
) -> None:
    checkout.commit("more", **{"gone/by/then": "1\n", "x": "x\n"})
    made = store.save("a-complete", {})
    shutil.rmtree(checkout.path / "gone")
    checkout.write("README", "changed\n")
    checkout.write("came/since", "new\n")
    before = shaped(checkout)
    index = Path(checkout.git("rev-parse", "--absolute-git-dir"), "index")
    bytes_of_index = index.read_bytes()
    commands()
    store.restore(made.id)
    assert commands() == ["status"]
    assert sorted(exchanged) == ["README", "came/since", "gone/by/then"]
    assert index.read_bytes() == bytes_of_index
    assert checkout.git("status", "--porcelain") == ""
    assert not (checkout.path / "came").exists()
    store.undo()
    assert shaped(checkout) == before
    assert len(exchanged) == 6


def hollow(checkout: Checkout) -> None:
    (checkout.path / "x").unlink()
    (checkout.path / "x").mkdir()


def flat(checkout: Checkout) -> None:
    shutil.rmtree(checkout.path / "away")
    checkout.write("away", "a file\n")


def linked(checkout: Checkout) -> None:
    (checkout.path / "came").rename(checkout.path / "went")
    (checkout.path / "came").symlink_to("went")


def piped(checkout: Checkout) -> None:
    (checkout.path / "README").unlink()
    os.mkfifo(checkout.path / "README")


LEFT_TO_GIT: dict[str, Callable[[Checkout], object]] = {
    "attributes": lambda checkout: checkout.write(".gitattributes", "*.txt text\n"),
    "attributes where nobody looked": lambda checkout: (
        (checkout.main / ".git/ignored").write_text("/away\n"),
        checkout.git("config", "core.excludesFile", str(checkout.main / ".git/ignored")),
        checkout.write("away/.gitattributes", "* text eol=crlf\n"),
    ),
    "line ends": lambda checkout: checkout.git("config", "core.autocrlf", "input"),
    "modes that git is not to believe": lambda checkout: checkout.git("config", "core.fileMode", "false"),
    "what is staged": lambda checkout: checkout.git("add", "README"),
    "a name that git may refuse": lambda checkout: checkout.write("x~1", "new\n"),
    "an empty directory in the place of a file": hollow,
    "a file in the place of a directory": flat,
    "a large one": lambda checkout: checkout.write("x", b"x" * 100),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", LEFT_TO_GIT)
def test_git_does_what_is_more_than_that(
    store: Store, checkout: Checkout, exchanged: list[str], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.commit("more", **{"away/x": "1\n", "x": "x" * 90})
    checkout.git("config", "core.fileMode", "true")
    monkeypatch.setattr(exchange, "_LARGEST", 80)
    made = store.save("a-complete", {})
    checkout.write("README", "changed\n")
    checkout.write("away/x", "2\n")
    LEFT_TO_GIT[change](checkout)
    store.restore(made.id)
    assert exchanged == []
    assert (checkout.path / "README").read_text() == "hello\n"


MEANWHILE: dict[str, Callable[[Checkout], object]] = {
    "a file that was to be replaced": lambda checkout: checkout.write("README", "typed in this moment\n"),
    "a file that was to go": lambda checkout: checkout.write("came/since", "typed in this moment\n"),
    "a file that is executable now": lambda checkout: os.chmod(checkout.path / "README", 0o755),
    "a file that is gone": lambda checkout: os.unlink(checkout.path / "README"),
    "a file that came where another one comes": lambda checkout: checkout.write("gone", "typed in this moment\n"),
    "a link in the place of a directory": linked,
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
    """Returns what is there, of whatever kind."""
    found: dict[str, tuple[int, bytes | None]] = {}
    for path in sorted(checkout.path.rglob("*")):
        name = str(path.relative_to(checkout.path))
        if not name.startswith(".git"):
            status = path.lstat()
            found[name] = (status.st_mode, path.read_bytes() if path.is_file() and not path.is_symlink() else None)
    return found


@pytest.mark.parametrize("change", MEANWHILE)
def test_what_changes_after_the_capture_stays_and_nothing_is_touched(
    plain: Store, main_checkout: Checkout, changed: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    there: list[object] = []

    def in_this_moment() -> None:
        MEANWHILE[change](main_checkout)
        there.append(content(main_checkout))

    after_recording(plain, monkeypatch, in_this_moment)
    with pytest.raises(BusyError, match="a file changed while it was to be replaced: "):
        plain.restore(changed)
    assert [content(main_checkout)] == there


@pytest.mark.parametrize("change", ["a file that was to be replaced", "a file that came where another one comes", "a file that is gone"])
def test_what_changes_at_the_last_moment_stays(
    plain: Store, main_checkout: Checkout, changed: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """After all were looked at, and before the first one was replaced."""
    with monkeypatch.context() as patch:
        patch.setattr(layout, "remove_empty", lambda *_: MEANWHILE[change](main_checkout))
        with pytest.raises(BusyError, match="a file changed while it was to be replaced: "):
            plain.restore(changed)
    there = [data for _, data in content(main_checkout).values()]
    assert b"typed in this moment\n" in there or "gone" in change
    assert not [name for name in os.listdir(main_checkout.path) if name.startswith(".gitckpt")]
    plain.restore(changed)
    assert main_checkout.git("status", "--porcelain") == ""


def test_a_full_disk(plain: Store, main_checkout: Checkout, changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = view(main_checkout.path)

    def full(name: bytes, fd: int, mode: bytes, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fsdecode(name))

    with monkeypatch.context() as patch:
        patch.setattr(exchange, "_write", full)
        with pytest.raises(WorktreeError, match="not every file could be written: No space left on device") as caught:
            plain.restore(changed)
    assert caught.value.hint == "go back to what was there before: git ckpt undo"
    assert (main_checkout.path / "README").read_text() == "before\n"
    plain.undo()
    assert view(main_checkout.path) == before


def test_what_is_wrong_in_the_end_is_told(plain: Store, changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put = exchange._write
    monkeypatch.setattr(exchange, "_write", lambda name, fd, mode, data: put(name, fd, mode, data + b"?"))
    with pytest.raises(WorktreeError, match=r"what came back is not what checkpoint .* captured: M README, A gone") as caught:
        plain.restore(changed)
    assert caught.value.hint == "go back to what was there before: git ckpt undo"


def test_nobody_loses_the_directory_they_are_in(
    plain: Store, main_checkout: Checkout, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(main_checkout.path / "came")
    plain.restore(changed)
    assert os.listdir() == []
    assert main_checkout.git("status", "--porcelain") == ""


def test_where_the_current_directory_is_gone(plain: Store, main_checkout: Checkout, changed: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    before = os.getcwd()
    os.chdir(tmp_path / "gone")
    try:
        (tmp_path / "gone").rmdir()
        plain.restore(changed)
    finally:
        os.chdir(before)
    assert main_checkout.git("status", "--porcelain") == ""


def test_a_damaged_object_is_left_to_git(plain: Store, main_checkout: Checkout, exchanged: list[str]) -> None:
    main_checkout.write("new", "captured\n")
    made = plain.save("a-complete", {})
    oid = main_checkout.git("rev-parse", f"{made.tree}:files/new")
    main_checkout.write("new", "since\n")
    path = main_checkout.main / ".git/objects" / oid[:2] / oid[2:]
    path.chmod(0o644)
    path.write_bytes(b"")
    with pytest.raises(CkptError):
        plain.restore(made.id)
    assert (exchanged, (main_checkout.path / "new").read_text()) == ([], "since\n")


SCRIPT = """
import os, sys
from gitckpt.git.repository import discover
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import Store, inside
from gitckpt.git.contents import exchange
path, made, at = sys.argv[1:]
left = int(at)
def counted(really):
    def call(*args, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return really(*args, **options)
    return call
with Store(Checkpoints(discover(path), adapter="plumbing")) as store:
    exchange.Exchange.replace = (lambda really: lambda self: (
        [setattr(os, name, counted(getattr(os, name))) for name in ("unlink", "rename", "rmdir", "mkdir", "open")], really(self)
    ))(exchange.Exchange.replace)
    store.restore(made)
"""


@pytest.mark.long
def test_a_kill_at_each_step_of_it(plain: Store, main_checkout: Checkout, changed: str) -> None:
    """Files that are missing come back with an undo, and so does what was half done with the restore, run again."""
    before = shaped(main_checkout)
    for at in count(0, 3):
        done = forked.script(SCRIPT, str(main_checkout.path), changed, str(at), env=dict(os.environ))
        assert done.code in (0, 9), done.err
        with opened(main_checkout) as store:
            if at % 2 == 0 or done.code == 0:
                store.restore(changed)
                assert main_checkout.git("status", "--porcelain", "--ignored") == ""
            store.undo()
        assert shaped(main_checkout) == before, at
        if done.code == 0:
            assert at > 20
            return


@pytest.mark.long
@settings(max_examples=examples(120), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(base=FILES, wanted=FILES, there=FILES)
def test_whatever_differs_it_is_as_git_makes_it(
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
    found = []
    with make_store(checkout, "plumbing") as store:
        made = store.save("a-complete", {})
        for is_plain in (True, False):
            fill(checkout, there)
            before = shaped(checkout)
            with pytest.MonkeyPatch.context() as patch:
                if not is_plain:
                    patch.setattr(plain_restores, "exchange", lambda *_: None)
                done = store.restore(made.id)
                found.append((shaped(checkout), done.changes))
                if done.safety:
                    store.undo()
                    assert shaped(checkout) == before
    assert found[0] == found[1]
