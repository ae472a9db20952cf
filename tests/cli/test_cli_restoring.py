"""`git ckpt restore` and `undo`: the whole of what they say, from main and linked worktrees, through both doors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Limits, Store
from gitckpt.cli.parser import quick
from tests.cli.conftest import Ckpt, Outcome, normal
from tests.conftest import Checkout

Save = Callable[..., str]


@pytest.fixture(autouse=True)
def door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In main worktrees the quick door, in linked ones that of Typer: two of the four pairs will do."""
    if "checkout" in request.fixturenames:
        checkout: Checkout = request.getfixturevalue("checkout")
        if checkout.path != checkout.main:
            monkeypatch.setattr(quick, "call_of", lambda _: None)


@pytest.fixture
def saved(save: Save, checkout: Checkout) -> str:
    """The id of a checkpoint from which every kind of file differs by now."""
    checkout.commit("more", gone="gone\n", staged="s\n", same="same\n")
    checkout.write("README", "captured\n")
    (checkout.path / "gone").unlink()
    checkout.write("new dir/new", "captured\n")
    made = save(checkout)
    checkout.git("checkout", "--quiet", "--", ".")
    checkout.git("rm", "--quiet", "--cached", "staged")
    checkout.write("README", "typed since\n")
    checkout.write("added\nlater", "typed since\n")
    (checkout.path / "new dir/new").unlink()
    return made


CHANGES = "change  README\ndelete  added\\nlater\ndelete  gone\nadd     new dir/new\nstage   staged\n"


def said(done: Outcome, *places: Checkout | Path) -> tuple[int, str, str]:
    return done.code, normal(done.out, *places), normal(done.err, *places)


def files(checkout: Checkout) -> dict[str, str]:
    paths = (path for path in checkout.path.rglob("*") if path.is_file() and ".git" not in path.relative_to(checkout.path).parts)
    return {str(path.relative_to(checkout.path)): path.read_text() for path in paths}


class TestRestore:
    def test_says_what_it_did_and_how_to_go_back(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        before = files(checkout)
        done = ckpt("restore", saved[:8], at=checkout)
        assert said(done) == (0, CHANGES, "what was here is in checkpoint SHORT; to go back: git ckpt undo\n")
        assert files(checkout) == {"README": "captured\n", "new dir/new": "captured\n", "same": "same\n", "staged": "s\n"}
        back = ckpt("undo", at=checkout)
        swapped = "change  README\nadd     added\\nlater\nadd     gone\ndelete  new dir/new\nstage   staged\n"
        assert said(back) == (0, swapped, "what was here is in checkpoint SHORT; to go forward again: git ckpt redo\n")
        assert files(checkout) == before

    def test_the_checkpoint_it_names_is_the_safety_checkpoint(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        done = ckpt("restore", saved, at=checkout)
        short = done.err.split(" in checkpoint ")[1][:8]
        shown = ckpt("show", short, at=checkout).out.splitlines()
        assert {"phase:       safety-complete", "trigger:     safety"} <= set(shown)
        assert f"message:     before the files of {saved[:8]} came back" in shown

    def test_dry_run(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        before = checkout.fingerprint()
        assert said(ckpt("restore", "--dry-run", saved, at=checkout)) == (0, CHANGES, "nothing was changed\n")
        assert checkout.fingerprint() == before

    def test_quiet(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        assert said(ckpt("-q", "restore", saved, at=checkout)) == (0, CHANGES, "")

    def test_nothing_to_do(self, ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
        checkout.write("README", "captured\n")
        made = save(checkout)
        before = checkout.fingerprint()
        assert said(ckpt("restore", made, at=checkout)) == (0, "", "nothing to do: the worktree has these files\n")
        assert said(ckpt("restore", "latest", "--", "README", at=checkout)) == (0, "", "nothing to do: the worktree has these files\n")
        assert checkout.fingerprint() == before

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("at", "paths", "expected"),
        [
            ("", ["README"], "change  README\n"),
            ("", ["new dir", "gone"], "delete  gone\nadd     new dir/new\n"),
            ("", ["./new dir//new", "new dir/../gone"], "delete  gone\nadd     new dir/new\n"),
            ("", ["."], CHANGES),
            ("new dir", ["new"], "add     new dir/new\n"),
            ("new dir", ["."], "add     new dir/new\n"),
            ("new dir", ["..", "new"], CHANGES),
            ("new dir", ["../README"], "change  README\n"),
            ("", ["TOP/README"], "change  README\n"),
        ],
    )
    def test_paths(self, ckpt: Ckpt, checkout: Checkout, saved: str, at: str, paths: list[str], expected: str) -> None:
        words = [path.replace("TOP", str(checkout.path)) for path in paths]
        done = ckpt("restore", saved, "--", *words, at=checkout.path / at)
        remark = "what was here is in checkpoint SHORT; to go back: git ckpt undo\n"
        assert said(done) == (0, expected, remark)

    @pytest.mark.parametrize("path", ["..", "../x", "new dir/../../x", "/etc/passwd", "TOP-beside/x"])
    def test_paths_outside(self, ckpt: Ckpt, checkout: Checkout, saved: str, path: str) -> None:
        before = checkout.fingerprint()
        word = path.replace("TOP", str(checkout.path))
        done = ckpt("restore", saved, "--", "README", word, at=checkout)
        assert said(done, checkout) == (
            2,
            "",
            f"error: {path} is outside of the worktree TOP\nhint: name paths inside of it\n",
        )
        assert checkout.fingerprint() == before

    def test_a_path_behind_a_link_to_the_worktree(self, ckpt: Ckpt, checkout: Checkout, saved: str, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(checkout.path)
        done = ckpt("restore", saved, "README", at=tmp_path / "link" / "new dir" / "..")
        assert done.out == "change  README\n"
        assert ckpt("restore", saved, f"{tmp_path}/link/gone", at=checkout).out == "delete  gone\n"

    def test_a_link_is_a_path_of_its_own(self, ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
        (checkout.path / "link").symlink_to("README")
        made = save(checkout)
        (checkout.path / "link").unlink()
        (checkout.path / "link").symlink_to("/nowhere")
        assert ckpt("restore", made, "link", at=checkout).out == "change  link\n"
        assert os.readlink(checkout.path / "link") == "README"

    def test_another_commit_and_what_is_left_out(self, ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
        checkout.git("bisect", "start")
        checkout.git("bisect", "bad")
        made = save(checkout)
        checkout.git("bisect", "reset")
        head = checkout.commit("elsewhere", README="elsewhere\n")
        done = ckpt("restore", made, at=checkout)
        assert said(done) == (
            0,
            "change  README\n",
            (
                "warning: the operation in progress belongs to another commit than HEAD, and stays as it is\n"
                "what was here is in checkpoint SHORT; to go back: git ckpt undo\n"
            ),
        )
        assert checkout.git("rev-parse", "HEAD") == head


class TestRefused:
    def test_no_such_checkpoint(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        done = ckpt("restore", "ffffffff", at=checkout)
        assert (done.code, done.out) == (12, "")
        assert done.err.startswith("error: no checkpoint, run or rev 'ffffffff'") or "ffffffff" in done.err.splitlines()[0]

    def test_in_the_way(self, ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
        checkout.commit("rules", **{".gitignore": "*.o\n"})
        checkout.write("place", "x\n")
        made = save(checkout)
        (checkout.path / "place").unlink()
        checkout.write("place/a.o", "precious")
        before = checkout.fingerprint()
        assert said(ckpt("restore", made, at=checkout)) == (
            14,
            "",
            (
                "error: in the way of the files, and in no checkpoint: place/a.o\n"
                "hint: move it out of the way, then run the command again; nothing was changed\n"
            ),
        )
        assert checkout.fingerprint() == before

    def test_a_locked_index(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        lock = Path(checkout.git("rev-parse", "--absolute-git-dir"), "index.lock")
        lock.touch()
        done = ckpt("restore", saved, at=checkout)
        assert (done.code, done.out, done.err.splitlines()[0]) == (11, "", f"error: another process holds {lock}")
        lock.unlink()
        assert ckpt("restore", saved, at=checkout).code == 0
        assert ckpt("undo", at=checkout).code == 0
        assert (checkout.path / "README").read_text() == "typed since\n"

    def test_a_checkpoint_without_files(self, ckpt: Ckpt, save: Save, checkout: Checkout) -> None:
        checkout.write("README", "changed\n")
        checkout.git("config", "ckpt.snapshotTimeout", "0s")
        asked = ckpt("save", at=checkout)
        assert said(asked) == (0, "ID\n", "saved manual-complete with uncommitted changes on commit SHORT\n")
        with Store.open(checkout.path, adapter="plumbing") as store:
            saved = store.record("manual", worktree=store.capture(Limits(timeout=0))).id
        before = checkout.fingerprint()
        assert said(ckpt("restore", saved, at=checkout)) == (
            14,
            "",
            (
                "error: checkpoint ID has no files: capturing the files took more than 0 seconds\n"
                "hint: the files of its commit: git restore --source=SHORT --staged --worktree .\n"
            ),
        )
        assert checkout.fingerprint() == before
        opened = ckpt("resume", saved, at=checkout)
        assert (opened.code, normal(opened.err)) == (
            0,
            (
                "made the worktree of SHORT (manual-complete)\n"
                "warning: it has the files of the commit only: capturing the files took more than 0 seconds\n"
            ),
        )
        assert Path(opened.out.strip(), "README").read_text() == "hello\n"

    def test_nothing_to_undo(self, ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
        for words in (["undo"], ["undo", "--dry-run"]):
            assert said(ckpt(*words, at=checkout)) == (
                12,
                "",
                "error: nothing was restored in this worktree\nhint: see what there is to go back to: git ckpt list\n",
            )

    def test_a_bare_repository(self, ckpt: Ckpt, save: Save, main_checkout: Checkout, tmp_path: Path) -> None:
        main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
        made = save(tmp_path / "bare", "--no-worktree")
        assert said(ckpt("restore", made, at=tmp_path / "bare")) == (
            14,
            "",
            "error: there is no worktree here to put files into\nhint: open one: git ckpt resume SHORT\n",
        )

    def test_no_checkpoint_named(self, ckpt: Ckpt, checkout: Checkout) -> None:
        done = ckpt("restore", at=checkout)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("error: ")


def test_undo_dry_run(ckpt: Ckpt, checkout: Checkout, saved: str) -> None:
    ckpt("restore", saved, "README", at=checkout)
    before = checkout.fingerprint()
    assert said(ckpt("undo", "--dry-run", at=checkout)) == (0, "change  README\n", "nothing was changed\n")
    assert checkout.fingerprint() == before
