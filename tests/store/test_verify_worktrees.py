"""`verify`: worktrees are registered, where git believes them to be, and of something that exists; none is ever deleted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gitckpt.store.store import inside
from gitckpt.store.worktrees.resumption import resume
from tests.conftest import Checkout
from tests.store.conftest import ONE, MakeStore
from tests.store.verifying import look, require_left, told


@pytest.fixture
def opened(checkout: Checkout, make_store: MakeStore) -> Path:
    """The worktree of a checkpoint, in its default place."""
    checkout.write("new", "work\n")
    with make_store(checkout) as store:
        path = resume(inside(store), store.save("plan-complete")).path
    report = look(checkout)
    assert (told(report), report.checked["worktrees"]) == ([], 1)
    return Path(path)


def admin(checkout: Checkout, path: Path) -> Path:
    return Path(checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")) / "worktrees" / path.name


def test_the_worktree_of_a_run(checkout: Checkout, make_store: MakeStore) -> None:
    with make_store(checkout) as store:
        run = str(store.record("run-started", start="Add login!").run)
        path = Path(resume(inside(store), inside(store).heads.read(run)).path)
    assert told(look(checkout)) == []
    shutil.rmtree(path)
    seen = require_left(checkout, [("worktree-missing", str(path), "its directory is gone")])
    assert seen.findings[0].cure == f"git ckpt resume {run}"


def test_a_worktree_that_is_gone(checkout: Checkout, opened: Path, make_store: MakeStore) -> None:
    shutil.rmtree(opened)
    seen = require_left(checkout, [("worktree-missing", str(opened), "its directory is gone")])
    assert seen.findings[0].cure == f"git ckpt resume {ONE}"
    with make_store(checkout) as store:
        resume(inside(store), store.read(ONE))
    assert told(look(checkout)) == []


@pytest.mark.parametrize("to", ["beside", "../../elsewhere"])
def test_a_worktree_that_was_moved(checkout: Checkout, opened: Path, to: str) -> None:
    new = Path(os.path.normpath(opened.parent / to))
    opened.rename(new)
    seen = require_left(checkout, [("worktree-moved", str(opened), f"is at {new} now")])
    assert seen.findings[0].cure == f"git worktree repair {new}"
    checkout.git("worktree", "repair", str(new))
    assert told(look(checkout)) == []


def test_a_worktree_in_whose_place_is_something_else(checkout: Checkout, opened: Path) -> None:
    (opened / ".git").unlink()
    said = [
        ("worktree-moved", str(opened), f"is not the worktree that git keeps {admin(checkout, opened)} for"),
        ("worktree-unregistered", str(opened), "git knows no worktree there"),
    ]
    seen = require_left(checkout, said)
    assert seen.findings[0].cure == f"git worktree repair {opened}"


def test_a_worktree_that_git_has_forgotten(checkout: Checkout, opened: Path, make_store: MakeStore) -> None:
    shutil.rmtree(admin(checkout, opened))
    (opened.parent / "by a person").mkdir()
    (opened.parent / ".making-1234").mkdir()
    (opened.parent / "file").touch()
    sentence = "git knows no worktree there"
    found = [("worktree-unregistered", str(path), sentence) for path in (opened, opened.parent / "by a person")]
    seen = require_left(checkout, found)
    assert [finding.cure for finding in seen.findings] == [
        f"git ckpt resume {name}, if it is the worktree of that; if not, move it elsewhere" for name in (ONE, "'by a person'")
    ]
    (opened.parent / "by a person").rmdir()
    with make_store(checkout) as store:
        resume(inside(store), store.read(ONE))
    assert told(look(checkout)) == []


def test_a_worktree_of_nothing(checkout: Checkout, opened: Path, make_store: MakeStore) -> None:
    with make_store(checkout) as store:
        store.remove([ONE])
    seen = require_left(checkout, [("worktree-orphan", str(opened), f"its checkpoint {ONE} does not exist any more")])
    assert seen.findings[0].cure == f"save what you need of it, then: git worktree remove --force --force {opened}"
    (admin(checkout, opened) / "ckpt-run").write_text(f'{{"checkpoint": "{ONE}", "run": "20270115-080000-gone"}}')
    require_left(checkout, [("worktree-orphan", str(opened), "its run 20270115-080000-gone does not exist any more")])
    (admin(checkout, opened) / "ckpt-run").unlink()
    require_left(checkout, [("worktree-unclaimed", str(opened), "does not say what it was made for")])
    checkout.git("worktree", "remove", "--force", "--force", str(opened))
    assert told(look(checkout)) == []


def test_worktrees_of_others_are_theirs(main_checkout: Checkout, tmp_path: Path) -> None:
    main_checkout.git("worktree", "add", "--quiet", str(tmp_path / "theirs"))
    shutil.rmtree(tmp_path / "theirs")
    report = look(main_checkout)
    assert (told(report), report.checked["worktrees"]) == ([], 0)


def test_a_bare_repository_and_settings_that_cannot_be_read(main_checkout: Checkout, tmp_path: Path) -> None:
    main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
    assert told(look(Checkout(tmp_path / "bare"))) == []
    main_checkout.write("gitckpt.toml", "nonsense")
    assert told(look(main_checkout)) == []
