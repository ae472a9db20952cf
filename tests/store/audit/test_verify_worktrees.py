"""`verify` checks worktrees and their registration, and never deletes one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Checkout, git_program
from tests.store.audit.verifying import look, require_left, told
from tests.store.conftest import ONE, MakeStore
from tests.stores import head_of, lock_file

pytestmark = pytest.mark.long


@pytest.fixture
def opened(checkout: Checkout, make_store: MakeStore) -> Path:
    """The worktree of a checkpoint, in its default place."""
    checkout.write("new", "work\n")
    with make_store(checkout) as store:
        path = store.resume(store.save("plan-complete")).path
    report = look(checkout)
    assert (told(report), report.checked["worktrees"]) == ([], 1)
    return Path(path)


def admin(checkout: Checkout, path: Path) -> Path:
    return (
        Path(checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir"))
        / "worktrees"
        / path.name
    )


def test_the_worktree_of_a_run(checkout: Checkout, make_store: MakeStore) -> None:
    with make_store(checkout) as store:
        run = str(store.record("run-started", start="Add login!").run)
        path = Path(store.resume(head_of(store, run)).path)
    assert told(look(checkout)) == []
    shutil.rmtree(path)
    seen = require_left(
        checkout, [("worktree-missing", str(path), "the directory of this worktree is gone")]
    )
    assert seen.findings[0].cure == f"git ckpt resume {run}"


@pytest.mark.parametrize("said", ["", "\0" * 41, "ref: ", "0123456"])
def test_a_head_that_a_power_cut_has_emptied(
    checkout: Checkout, opened: Path, make_store: MakeStore, said: str
) -> None:
    """A worktree with an empty HEAD is reported, and resume repairs it.

    Git does not see such a worktree, but a phase would run in it.
    """
    head = admin(checkout, opened) / "HEAD"
    before = head.read_text()
    head.write_text(said)
    sentence = "the file HEAD is missing or broken, so git does not see the worktree"
    seen = require_left(checkout, [("worktree-headless", str(opened), sentence)])
    assert seen.findings[0].cure == f"git ckpt resume {opened.name}"
    with make_store(checkout) as store:
        assert [
            each for each in store.examine().findings if each.code == "worktree-headless"
        ] == list(seen.findings)
        again = store.resume(store.read(opened.name))
    where = f"detached at {before.strip()[:10]}"
    assert again.remarks == (
        f"HEAD was empty or broken, and is {where} now; to see the commits before: git reflog",
    )
    assert head.read_text() == before
    assert told(look(checkout)) == []


def test_a_head_that_a_power_cut_has_taken(
    checkout: Checkout, opened: Path, make_store: MakeStore
) -> None:
    head = admin(checkout, opened) / "HEAD"
    before = head.read_text()
    head.unlink()
    sentence = "the file HEAD is missing or broken, so git does not see the worktree"
    seen = require_left(checkout, [("worktree-headless", str(opened), sentence)])
    assert seen.findings[0].cure == f"git ckpt resume {opened.name}"
    with make_store(checkout) as store:
        again = store.resume(store.read(opened.name))
    assert again.remarks == (
        (
            f"HEAD was gone, and is detached at {before[:10]} now; "
            "to see the commits before: git reflog"
        ),
    )
    assert [head.read_text(), told(look(checkout))] == [before, []]


@pytest.mark.parametrize("said", [None, "", "\0" * 5, "/nowhere/at/all\n"])
def test_a_worktree_that_does_not_say_whose_it_is(
    checkout: Checkout, opened: Path, make_store: MakeStore, said: str | None
) -> None:
    """A worktree with a broken `commondir` is reported, and resume repairs it.

    Git does nothing in it.
    """
    file = admin(checkout, opened) / "commondir"
    file.unlink() if said is None else file.write_text(said)
    sentence = "the file commondir is missing or broken, so git does not see the worktree"
    seen = require_left(checkout, [("worktree-headless", str(opened), sentence)])
    assert seen.findings[0].cure == f"git ckpt resume {opened.name}"
    with make_store(checkout) as store:
        assert [
            each for each in store.examine().findings if each.code == "worktree-headless"
        ] == list(seen.findings)
        assert store.resume(store.read(opened.name)).remarks == ()
    assert (file.read_text(), told(look(checkout))) == ("../..\n", [])


@pytest.mark.parametrize("said", [None, "", "\0" * 5])
def test_a_worktree_that_git_does_not_find(
    checkout: Checkout, opened: Path, make_store: MakeStore, said: str | None
) -> None:
    file = admin(checkout, opened) / "gitdir"
    before = file.read_text()
    file.unlink() if said is None else file.write_text(said)
    seen = require_left(
        checkout, [("worktree-unregistered", str(opened), "git has no record of this worktree")]
    )
    assert str(seen.findings[0].cure).startswith(f"if {opened.name} is a checkpoint or run: ")
    with make_store(checkout) as store:
        assert store.resume(store.read(opened.name)).remarks == ()
    assert (file.read_text(), told(look(checkout))) == (before, [])


def test_somebody_elses_worktree_that_does_not_say_whose_it_is(
    main_checkout: Checkout, tmp_path: Path
) -> None:
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "theirs"))
    (main_checkout.path / ".git/worktrees/theirs/commondir").unlink()
    (finding,) = look(main_checkout).findings
    assert (finding.code, finding.object) == ("worktree-headless", str(tmp_path / "theirs"))
    subprocess.run(["sh", "-c", str(finding.cure)], check=True)
    assert told(look(main_checkout)) == []


def test_a_head_that_git_is_about_to_write(main_checkout: Checkout, tmp_path: Path) -> None:
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "theirs"))
    for name in ("HEAD", "index"):
        (main_checkout.path / ".git/worktrees/theirs" / name).unlink()
    assert told(look(main_checkout)) == []


def test_a_head_of_somebody_elses_worktree(main_checkout: Checkout, tmp_path: Path) -> None:
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "theirs"))
    head = main_checkout.path / ".git/worktrees/theirs/HEAD"
    head.write_text("")
    sentence = "the file HEAD is missing or broken, so git does not see the worktree"
    seen = require_left(main_checkout, [("worktree-headless", str(tmp_path / "theirs"), sentence)])
    assert str(seen.findings[0].cure).startswith("write ref: refs/heads/BRANCH into ")


def test_an_empty_head_beside_reftables(
    newer_git: str, make_checkout: Callable[..., Checkout], make_store: MakeStore
) -> None:
    checkout = make_checkout("tabled", "--ref-format=reftable")
    before = checkout.commit("first")
    with make_store(checkout) as store:
        path = Path(store.resume(store.save("plan-complete")).path)
    (admin(checkout, path) / "HEAD").write_text("")
    sentence = "the file HEAD is missing or broken, so git does not see the worktree"
    require_left(checkout, [("worktree-headless", str(path), sentence)])
    with make_store(checkout) as store:
        store.resume(store.read(path.name))
    assert [Checkout(path).git("rev-parse", "HEAD"), told(look(checkout))] == [before, []]


def test_a_worktree_that_is_gone(checkout: Checkout, opened: Path, make_store: MakeStore) -> None:
    shutil.rmtree(opened)
    seen = require_left(
        checkout, [("worktree-missing", str(opened), "the directory of this worktree is gone")]
    )
    rid = f"git worktree remove --force --force {opened}"
    assert seen.findings[0].cure == (
        f"git ckpt resume {ONE}; or, to delete all that is only staged there, or committed on "
        f"no branch: {rid}"
    )
    with make_store(checkout) as store:
        store.resume(store.read(ONE))
    assert told(look(checkout)) == []
    shutil.rmtree(opened)
    checkout.git(*rid.split()[1:])
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
        (
            "worktree-moved",
            str(opened),
            f"is not the worktree that {admin(checkout, opened)} belongs to",
        )
    ]
    seen = require_left(checkout, said)
    assert (
        seen.findings[0].cure
        == "move the directory elsewhere; or, if it is that worktree: git worktree repair"
    )
    checkout.git("worktree", "repair")
    assert told(look(checkout)) == []


def test_a_worktree_that_git_has_forgotten(
    checkout: Checkout, opened: Path, make_store: MakeStore
) -> None:
    shutil.rmtree(admin(checkout, opened))
    (opened.parent / "by a person").mkdir()
    (opened.parent / ".making-1234").mkdir()
    (opened.parent / "file").touch()
    sentence = "git has no record of this worktree"
    found = [
        ("worktree-unregistered", str(path), sentence)
        for path in (opened, opened.parent / "by a person")
    ]
    seen = require_left(checkout, found)
    assert [finding.cure for finding in seen.findings] == [
        (
            f"if {name} is a checkpoint or run: git ckpt resume {name}; "
            "else move the directory elsewhere"
        )
        for name in (ONE, "'by a person'")
    ]
    (opened.parent / "by a person").rmdir()
    with make_store(checkout) as store:
        store.resume(store.read(ONE))
    assert told(look(checkout)) == []


def test_a_worktree_of_nothing(checkout: Checkout, opened: Path, make_store: MakeStore) -> None:
    with make_store(checkout) as store:
        store.remove([ONE])
    seen = require_left(
        checkout,
        [
            (
                "worktree-orphan",
                str(opened),
                f"the checkpoint {ONE} of this worktree no longer exists",
            )
        ],
    )
    assert (
        seen.findings[0].cure
        == f"save what you need of the files, then: git worktree remove --force --force {opened}"
    )
    (admin(checkout, opened) / "ckpt-run").write_text(
        f'{{"checkpoint": "{ONE}", "run": "20270115-080000-gone"}}'
    )
    require_left(
        checkout,
        [
            (
                "worktree-orphan",
                str(opened),
                "the run 20270115-080000-gone of this worktree no longer exists",
            )
        ],
    )
    (admin(checkout, opened) / "ckpt-run").unlink()
    require_left(checkout, [("worktree-unclaimed", str(opened), "names no run or checkpoint")])
    checkout.git("worktree", "remove", "--force", "--force", str(opened))
    assert told(look(checkout)) == []


def stage(checkout: Checkout, opened: Path) -> None:
    (opened / "staged").write_text("work\n")
    subprocess.run([git_program(), "add", "staged"], cwd=opened, check=True)


def commit(checkout: Checkout, opened: Path) -> None:
    subprocess.run(
        [git_program(), "commit", "--quiet", "--allow-empty", "-m", "work"],
        cwd=opened,
        check=True,
    )


def commit_and_go_back(checkout: Checkout, opened: Path) -> None:
    commit(checkout, opened)
    subprocess.run([git_program(), "reset", "--quiet", "--hard", "HEAD^"], cwd=opened, check=True)


def commit_and_go_back_without_reflogs(checkout: Checkout, opened: Path) -> None:
    (admin(checkout, opened) / "logs/HEAD").unlink()
    checkout.git("config", "core.logAllRefUpdates", "false")
    commit_and_go_back(checkout, opened)


def intend_to_add(checkout: Checkout, opened: Path) -> None:
    (opened / "new").write_text("work\n")
    subprocess.run([git_program(), "add", "--intent-to-add", "new"], cwd=opened, check=True)


def hide_a_staged_change(checkout: Checkout, opened: Path) -> None:
    stage(checkout, opened)
    subprocess.run(
        [git_program(), "update-index", "--assume-unchanged", "--skip-worktree", "staged"],
        cwd=opened,
        check=True,
    )


def set_a_ref(checkout: Checkout, opened: Path) -> None:
    subprocess.run(
        [git_program(), "update-ref", "refs/worktree/mine", "HEAD"], cwd=opened, check=True
    )


def merge(checkout: Checkout, opened: Path) -> None:
    (admin(checkout, opened) / "MERGE_HEAD").write_text(checkout.git("rev-parse", "HEAD") + "\n")


def have_a_submodule(checkout: Checkout, opened: Path) -> None:
    (admin(checkout, opened) / "modules").mkdir()


def lock(checkout: Checkout, opened: Path) -> None:
    (admin(checkout, opened) / "locked").write_text("mine\n")


def lose_its_commit(checkout: Checkout, opened: Path) -> None:
    (admin(checkout, opened) / "HEAD").write_text(f"{'1' * 40}\n")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "do",
    [
        stage,
        intend_to_add,
        hide_a_staged_change,
        commit,
        commit_and_go_back,
        commit_and_go_back_without_reflogs,
        set_a_ref,
        merge,
        have_a_submodule,
        lock,
        lose_its_commit,
    ],
    ids=lambda do: do.__name__,
)
def test_what_is_left_of_a_worktree_of_nothing_that_is_gone(
    main_checkout: Checkout, make_store: MakeStore, do: Callable[[Checkout, Path], None]
) -> None:
    """A missing worktree of a removed checkpoint gives one finding.

    No cure can make the worktree again, as its checkpoint is gone.
    """
    main_checkout.git("config", "core.logAllRefUpdates", "always")
    with make_store(main_checkout) as store:
        opened = Path(store.resume(store.save("plan-complete")).path)
        do(main_checkout, opened)
        store.remove([ONE])
    shutil.rmtree(opened)
    sentence = (
        f"the directory of this worktree is gone, and the checkpoint {ONE} of this worktree no "
        "longer exists"
    )
    seen = require_left(main_checkout, [("worktree-orphan", str(opened), sentence)])
    command = f"git worktree remove --force --force {opened}"
    assert (
        seen.findings[0].cure
        == f"to delete all that is only staged there, or committed on no branch: {command}"
    )
    main_checkout.git(*command.split()[1:])
    assert told(look(main_checkout)) == []


@pytest.mark.long
def test_a_worktree_of_nothing_that_is_gone_and_with_which_nothing_goes(
    checkout: Checkout, opened: Path, make_store: MakeStore
) -> None:
    with make_store(checkout) as store:
        store.remove([ONE])
    shutil.rmtree(opened)
    before = checkout.refs()
    sentence = (
        f"the directory of this worktree is gone, and the checkpoint {ONE} of this worktree no "
        "longer exists"
    )
    seen = look(checkout)
    assert told(seen) == [("worktree-orphan", str(opened), sentence)]
    assert seen.findings[0].cure == "git ckpt verify --repair"
    assert admin(checkout, opened).exists()
    mended = look(checkout, repair=True)
    assert [(one.code, one.repaired) for one in mended.findings] == [("worktree-orphan", True)]
    assert (told(look(checkout)), checkout.refs(), admin(checkout, opened).exists()) == (
        [],
        before,
        False,
    )


def test_a_worktree_of_nothing_that_may_be_on_another_disk_is_left(
    main_checkout: Checkout, make_store: MakeStore, tmp_path: Path
) -> None:
    with make_store(main_checkout) as store:
        opened = store.resume(store.save("plan-complete"), tmp_path / "disk/place").path
        store.remove([ONE])
    (tmp_path / "disk").rename(tmp_path / "taken out")
    sentence = (
        f"the directory of this worktree is gone, and the checkpoint {ONE} of this worktree no "
        "longer exists"
    )
    require_left(main_checkout, [("worktree-orphan", opened, sentence)])


@pytest.mark.long
def test_of_a_worktree_of_nothing_that_was_moved_the_old_path_is_no_cure(
    checkout: Checkout, opened: Path, make_store: MakeStore
) -> None:
    with make_store(checkout) as store:
        store.remove([ONE])
    new = opened.parent / "beside"
    opened.rename(new)
    require_left(checkout, [("worktree-moved", str(opened), f"is at {new} now")])
    checkout.git("worktree", "repair", str(new))
    require_left(
        checkout,
        [("worktree-orphan", str(new), f"the checkpoint {ONE} of this worktree no longer exists")],
    )


def test_a_worktree_of_nobody_that_is_gone(checkout: Checkout, opened: Path) -> None:
    (admin(checkout, opened) / "ckpt-run").unlink()
    stage(checkout, opened)
    shutil.rmtree(opened)
    require_left(
        checkout,
        [
            (
                "worktree-unclaimed",
                str(opened),
                (
                    "the directory of this worktree is gone, and the record of git names no run "
                    "or checkpoint"
                ),
            )
        ],
    )


def test_worktrees_of_others_are_theirs(main_checkout: Checkout, tmp_path: Path) -> None:
    main_checkout.git("worktree", "add", "--quiet", str(tmp_path / "theirs"))
    shutil.rmtree(tmp_path / "theirs")
    report = look(main_checkout)
    assert (told(report), report.checked["worktrees"]) == ([], 0)


def test_a_bare_repository_and_settings_that_cannot_be_read(
    main_checkout: Checkout, tmp_path: Path
) -> None:
    main_checkout.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare"))
    assert told(look(Checkout(tmp_path / "bare"))) == []
    main_checkout.write("gitckpt.toml", "nonsense")
    assert told(look(main_checkout)) == []


@pytest.fixture
def unfinished(checkout: Checkout, opened: Path) -> tuple[Path, Path]:
    """The remains of a git that was killed while it made a worktree for gitckpt.

    The directory exists, and the HEAD of git's record names no commit yet.
    """
    scaffold, kept = (
        opened.parent / ".making-0a1b2c3d",
        admin(checkout, opened).parent / "unfinished",
    )
    (scaffold / "unfinished").mkdir(parents=True)
    kept.mkdir()
    for name, text in (
        ("HEAD", "0" * 40),
        ("commondir", "../.."),
        ("gitdir", f"{scaffold}/unfinished/.git"),
        ("locked", f"gitckpt {ONE}"),
    ):
        (kept / name).write_text(f"{text}\n")
    return scaffold, kept


def collects(checkout: Checkout) -> bool:
    """Return whether git can collect garbage."""
    return (
        subprocess.run(
            [git_program(), "gc", "--quiet"], cwd=checkout.path, capture_output=True, check=False
        ).returncode
        == 0
    )


def test_a_worktree_that_was_never_finished(
    checkout: Checkout, unfinished: tuple[Path, Path]
) -> None:
    sentence = "its creation was interrupted; git gc may fail as long as git keeps it"
    assert not collects(checkout)
    assert told(look(checkout)) == [("worktree-unfinished", str(unfinished[0]), sentence)]
    assert [(one.code, one.repaired) for one in look(checkout, repair=True).findings] == [
        ("worktree-unfinished", True)
    ]
    assert told(look(checkout)) == []
    assert [path.exists() for path in unfinished] == [False, False]
    assert collects(checkout)


def test_a_worktree_that_is_being_made_is_left_alone(
    checkout: Checkout, unfinished: tuple[Path, Path], make_store: MakeStore
) -> None:
    with lock_file(f"{unfinished[0]}.lock"), make_store(checkout) as store:
        done = subprocess.run(
            [sys.executable, "-m", "gitckpt", "verify", "--repair"],
            cwd=checkout.path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "worktree-unfinished" not in done.stdout
        store.expire()
    assert [path.exists() for path in unfinished] == [True, True]


@pytest.mark.parametrize("has_directory", [True, False])
def test_maintenance_clears_away_what_was_never_finished(
    checkout: Checkout, unfinished: tuple[Path, Path], make_store: MakeStore, has_directory: bool
) -> None:
    if not has_directory:
        shutil.rmtree(unfinished[0])
    with make_store(checkout) as store:
        store.expire()
    assert [path.exists() for path in unfinished] == [False, False]
    assert collects(checkout)


def test_a_worktree_of_somebody_elses_with_such_a_name_stays(
    checkout: Checkout, unfinished: tuple[Path, Path], make_store: MakeStore
) -> None:
    (unfinished[1] / "locked").write_text("mine\n")
    with make_store(checkout) as store:
        store.expire()
    assert told(look(checkout, repair=True)) == []
    assert [path.exists() for path in unfinished] == [True, True]
