"""A restore with a failing required filter writes all other files.

It names the files of the filter, and completes them once the filter works.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gitckpt import BusyError, Store
from tests.conftest import Checkout
from tests.store.conftest import blob, view
from tests.stores import open_store

pytestmark = pytest.mark.long

TURN = "tr a-zA-Z n-za-mN-ZA-M"
NAMES = ("README", "b.dat", "c", "deep/d.dat", "z")


def turned(here: Checkout) -> None:
    """Commit files with a required filter, and others sorted before and after them."""
    here.git("config", "filter.turn.clean", TURN)
    here.git("config", "filter.turn.smudge", TURN)
    here.git("config", "filter.turn.required", "true")
    here.commit(
        "rules",
        **{".gitattributes": "*.dat filter=turn\n", "b.dat": "secret\n", "same.dat": "kept\n"},
    )


def saved(store: Store, here: Checkout) -> str:
    for name in NAMES:
        here.write(name, f"changed {name}\n")
    here.write("empty.dat", "")
    return store.save("a-complete", {}).id


def later(here: Checkout) -> None:
    for name in NAMES[:3]:
        here.write(name, "changed once more\n")
    (here.path / "z").unlink()
    here.write("other", "")


def fails(here: Checkout) -> None:
    here.git("config", "filter.turn.smudge", "false")


def works(here: Checkout) -> None:
    here.git("config", "filter.turn.smudge", TURN)


def saved_and_failing(store: Store, here: Checkout) -> tuple[str, object, object]:
    """Save, change the files and break the filter.

    Return the id, and the views of the worktree at the save and now.
    """
    turned(here)
    made = saved(store, here)
    expected = view(here.path)
    later(here)
    before = view(here.path)
    fails(here)
    return made, expected, before


def test_restore(store: Store, checkout: Checkout) -> None:
    made, expected, before = saved_and_failing(store, checkout)
    done = store.restore(store.read(made))
    assert done.unfiltered == (b"b.dat",)  # the other one is there
    assert {name: (checkout.path / name).read_text() for name in NAMES} == {
        **{name: f"changed {name}\n" for name in NAMES},
        "b.dat": "punatrq o.qng\n",
    }
    between = store.save("b-complete", {})
    assert between.tree == store.read(made).tree
    again = store.restore(store.read(made))
    assert (again.unfiltered, again.changes, again.safety) == ((b"b.dat",), [], None)
    works(checkout)
    assert [change.path for change in store.restore(store.read(made), dry_run=True).changes] == [
        b"b.dat"
    ]
    assert (checkout.path / "b.dat").read_text() == "punatrq o.qng\n"
    again = store.restore(store.read(made))
    assert (again.unfiltered, [change.path for change in again.changes], again.safety) == (
        (),
        [b"b.dat"],
        None,
    )
    assert view(checkout.path) == expected
    assert not (Path(checkout.git("rev-parse", "--absolute-git-dir")) / "ckpt-unfiltered").exists()
    store.undo()
    assert view(checkout.path) == before


def test_files_of_that_filter_that_were_edited_just_now(store: Store, checkout: Checkout) -> None:
    """Git reads files as young as the index again, while the filter is off."""
    turned(checkout)
    checkout.write("same.dat", "staged\n")
    checkout.git("add", "same.dat")
    made = store.save("a-complete", {})
    checkout.git("reset", "--quiet", "--hard")
    for name in ("b.dat", "same.dat"):
        checkout.write(name, "else\n")
    before = view(checkout.path)
    fails(checkout)
    assert store.restore(made).unfiltered == (b"b.dat", b"same.dat")
    works(checkout)
    store.undo()
    assert view(checkout.path) == before


def test_undo_of_what_is_half_there(store: Store, checkout: Checkout) -> None:
    made, expected, before = saved_and_failing(store, checkout)
    store.restore(store.read(made))
    done = store.undo()
    assert done.unfiltered == (b"b.dat",)
    works(checkout)
    assert store.redo().unfiltered == ()
    assert view(checkout.path) == expected
    store.undo()
    assert view(checkout.path) == before


def test_resume(store: Store, checkout: Checkout, tmp_path: Path) -> None:
    turned(checkout)
    made = saved(store, checkout)
    expected = view(checkout.path)
    fails(checkout)
    where = str(tmp_path / "there" / "new")
    opened = store.resume(store.read(made), where)
    assert (opened.made, opened.unfiltered) == (True, (b"b.dat", b"deep/d.dat", b"same.dat"))
    there = Checkout(Path(opened.path))
    assert (there.path / "README").read_text() == "changed README\n"
    assert (there.path / "deep/d.dat").read_text() == "punatrq qrrc/q.qng\n"
    assert "same.dat" not in there.git("status", "--porcelain")
    there.write("deep/d.dat", "mine\n")
    opened = store.resume(store.read(made), where)
    assert (opened.made, opened.unfiltered) == (False, (b"b.dat", b"same.dat"))
    works(checkout)
    assert store.resume(store.read(made), where).unfiltered == ()
    assert (there.path / "deep/d.dat").read_text() == "mine\n"
    there.write("deep/d.dat", "changed deep/d.dat\n")
    assert view(there.path) == expected


def test_resume_of_a_checkpoint_that_the_commit_stands_for(
    store: Store, checkout: Checkout, tmp_path: Path
) -> None:
    turned(checkout)
    made = store.record("a-complete", {})
    fails(checkout)
    where = str(tmp_path / "there" / "new")
    opened = store.resume(made, where)
    assert opened.unfiltered == (b"b.dat", b"same.dat")
    there = Checkout(Path(opened.path))
    assert (there.git("status", "--porcelain"), (there.path / "README").exists()) == ("", True)
    works(checkout)
    assert store.resume(made, where).unfiltered == ()
    assert view(there.path) == view(checkout.path)


def test_a_filter_that_is_not_there(store: Store, checkout: Checkout, tmp_path: Path) -> None:
    """A file that changed only its time must not count as changed."""
    turned(checkout)
    made = store.save("a-complete", {})
    for direction in ("clean", "smudge"):
        checkout.git("config", f"filter.turn.{direction}", "no-such-program %f")
    opened = store.resume(made, str(tmp_path / "new"))
    assert opened.unfiltered == (b"b.dat", b"same.dat")
    there = Checkout(Path(opened.path))
    assert there.git("status", "--porcelain") == ""
    os.utime(there.path / "b.dat")
    with open_store(there) as seen:
        found = seen.capture()
    assert (found.dirty, found.omitted) == (False, ())


def test_it_is_not_taken_for_what_a_person_has_changed(store: Store, checkout: Checkout) -> None:
    turned(checkout)
    made = saved(store, checkout)
    later(checkout)
    fails(checkout)
    store.restore(store.read(made), [b"b.dat", b"README"])
    os.utime(checkout.path / "b.dat")  # by now, git takes it for changed
    between = store.save("b-complete", {})
    assert blob(checkout, f"{between.tree}:files/b.dat") == b"punatrq o.qng\n"
    checkout.write("b.dat", "by hand\n")  # this is an edit
    edited = store.save("c-complete", {})
    assert blob(checkout, f"{edited.tree}:files/b.dat") == b"ol unaq\n"
    works(checkout)
    assert store.restore(between).unfiltered == ()
    assert (checkout.path / "b.dat").read_text() == "changed b.dat\n"


def test_a_file_that_changes_meanwhile_stays(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    turned(main_checkout)
    made = saved(plain, main_checkout)
    later(main_checkout)
    script = tmp_path / "fails"
    script.write_text(f"#!/bin/sh\necho mine > '{main_checkout.path}/c'\nexit 1\n")
    script.chmod(0o755)
    main_checkout.git("config", "filter.turn.smudge", str(script))
    with pytest.raises(BusyError, match="files changed while git replaced them: M c"):
        plain.restore(plain.read(made))
    assert (main_checkout.path / "c").read_text() == "mine\n"


def test_a_run_waits_for_its_files(plain: Store, main_checkout: Checkout) -> None:
    from gitckpt import Run, WorktreeError

    turned(main_checkout)
    fails(main_checkout)
    with pytest.raises(
        WorktreeError, match=r"only as git stores them, because a filter fails: b\.dat, same\.dat"
    ):
        Run.start(plain, "work")
    run = plain.runs()[0].run
    works(main_checkout)
    with Run.resume(plain, run) as going:
        assert (Path(going.path) / "b.dat").read_text() == "secret\n"


def test_lfs_without_the_content(store: Store, checkout: Checkout, tmp_path: Path) -> None:
    if shutil.which("git-lfs") is None:
        pytest.skip("git-lfs is not installed")
    checkout.git("lfs", "install", "--local")
    checkout.git("lfs", "track", "*.bin")
    checkout.commit("large", **{f"{number}.bin": f"content {number}\n" for number in range(6)})
    checkout.write("README", "changed\n")
    made = store.save("a-complete", {})
    expected = view(checkout.path)
    storage = Path(checkout.git("rev-parse", "--path-format=absolute", "--git-common-dir")) / "lfs"
    pointers = {
        number: checkout.git("cat-file", "blob", f"HEAD:{number}.bin") for number in range(6)
    }
    hidden = {}
    for number in (1, 2, 4):
        oid = pointers[number].split("sha256:")[1].split()[0]
        hidden[number] = next(storage.rglob(oid))
        hidden[number].rename(tmp_path / oid)
    opened = store.resume(made, str(tmp_path / "there"))
    assert opened.unfiltered == (b"1.bin", b"2.bin", b"4.bin")
    there = Checkout(Path(opened.path))
    assert [
        (there.path / f"{number}.bin").read_text().startswith("version") for number in range(6)
    ] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
    assert view(there.path)["status"] == expected["status"]
    for path in hidden.values():
        (tmp_path / path.name).rename(path)
    assert store.resume(made, str(tmp_path / "there")).unfiltered == ()
    assert view(there.path) == expected


@pytest.mark.parametrize("text", ["", "{", "[1]", '[["../../outside", "x", "turn"]]', "{}"])
def test_what_was_noted_is_not_trusted(plain: Store, main_checkout: Checkout, text: str) -> None:
    (main_checkout.path / ".git" / "ckpt-unfiltered").write_text(text)
    main_checkout.write("README", "changed\n")
    made = plain.save("a-complete", {})
    main_checkout.write("README", "changed again\n")
    assert replace(plain.restore(made), changes=[], safety="").unfiltered == ()
