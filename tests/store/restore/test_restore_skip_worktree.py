"""Restore of `--skip-worktree` files where the checkout is not sparse.

See git-update-index(1).
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gitckpt import Store
from tests.conftest import Checkout
from tests.store.conftest import view

NAMES = ("a", "d/b")
THERE = {
    "not there": None,
    "as committed": "committed\n",
    "tweaked": "tweaked\n",
    "tweaked again": "tweaked again\n",
}
FLAGGED = {"": None, "skipped": "--skip-worktree", "both": "--assume-unchanged"}


@pytest.fixture
def checkout(checkout: Checkout) -> Checkout:
    """A worktree with two files that may be skipped, and one that may not."""
    checkout.commit("more", **dict.fromkeys(NAMES, "committed\n"), other="other\n")
    return checkout


def make(here: Checkout, there: str, flagged: str = "skipped") -> None:
    for name in NAMES:
        path = here.path / name
        content = THERE[there]
        if content is not None:
            here.write(name, content)
        elif path.exists():
            path.unlink()
    here.git("update-index", "--no-skip-worktree", *NAMES)
    here.git("update-index", "--no-assume-unchanged", *NAMES)
    if flagged:
        here.git("update-index", "--skip-worktree", *NAMES)
    if flagged == "both":
        here.git("update-index", "--assume-unchanged", *NAMES)


@pytest.mark.long
@pytest.mark.sampled(16)
@pytest.mark.parametrize(("then", "now"), [*itertools.product(THERE, THERE)])
def test_there_and_back(store: Store, checkout: Checkout, then: str, now: str) -> None:
    make(checkout, then)
    wanted = view(checkout.path)
    made = store.save("a-complete")
    make(checkout, now)
    before = view(checkout.path)
    done = store.restore(made)
    assert view(checkout.path) == wanted
    assert bool(done.changes) == (then != now)
    if then != now:
        store.undo()
        assert view(checkout.path) == before
        store.redo()
        assert view(checkout.path) == wanted
    there = store.resume(made)
    assert view(there.path) == wanted


@pytest.mark.long
@pytest.mark.sampled(6)
@pytest.mark.parametrize(("then", "now"), [*itertools.product(FLAGGED, FLAGGED)])
@pytest.mark.parametrize("there", ["not there", "tweaked"])
def test_flags_that_differ(
    store: Store, checkout: Checkout, then: str, now: str, there: str
) -> None:
    make(checkout, there, then)
    wanted = view(checkout.path)
    made = store.save("a-complete")
    make(checkout, "as committed", now)
    before = view(checkout.path)
    store.restore(made)
    assert view(checkout.path) == wanted
    store.undo()
    assert view(checkout.path) == before


@pytest.mark.long
def test_one_of_them(store: Store, checkout: Checkout) -> None:
    make(checkout, "tweaked")
    made = store.save("a-complete")
    make(checkout, "not there")
    assert [(change.kind, change.path) for change in store.restore(made, [b"d"]).changes] == [
        ("add", b"d/b")
    ]
    assert [(checkout.path / name).exists() for name in NAMES] == [False, True]
    absent = store.save("b-complete")
    make(checkout, "tweaked again")
    assert [(change.kind, change.path) for change in store.restore(absent, [b"a"]).changes] == [
        ("delete", b"a")
    ]
    assert [(checkout.path / name).exists() for name in NAMES] == [False, True]
    store.undo()
    assert (checkout.path / "a").read_text() == "tweaked again\n"


def test_what_is_said_beforehand(store: Store, checkout: Checkout) -> None:
    make(checkout, "as committed")
    made = store.save("a-complete")
    make(checkout, "not there")
    before = view(checkout.path)
    done = store.restore(made, dry_run=True)
    assert [(change.kind, change.path) for change in done.changes] == [
        ("add", b"a"),
        ("add", b"d/b"),
    ]
    assert view(checkout.path) == before


def test_what_is_in_the_way(store: Store, checkout: Checkout) -> None:
    make(checkout, "tweaked")
    made = store.save("a-complete")
    make(checkout, "not there")
    Path(checkout.path, "a").mkdir()
    checkout.write("a/mine", "mine\n")
    store.restore(made)
    assert (checkout.path / "a").read_text() == "tweaked\n"
    store.undo()
    assert (checkout.path / "a/mine").read_text() == "mine\n"


@pytest.mark.long
def test_a_file_that_only_a_restore_brought_into_a_sparse_checkout(
    store: Store, checkout: Checkout
) -> None:
    checkout.write("d/b", "changed\n")
    checkout.write("other", "changed\n")
    made = store.save("a-complete")
    checkout.git("reset", "--quiet", "--hard")
    checkout.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    before = view(checkout.path)
    assert not (checkout.path / "d/b").exists()
    store.restore(made)
    after = view(checkout.path)
    store.undo()
    assert view(checkout.path) == before
    store.redo()
    assert view(checkout.path) == after


@pytest.mark.long
@pytest.mark.parametrize("paths", [[], [b"d"]])
def test_a_file_that_was_deleted_and_that_a_sparse_checkout_leaves_away(
    store: Store, checkout: Checkout, paths: list[bytes]
) -> None:
    (checkout.path / "d/b").unlink()
    (checkout.path / "d").rmdir()
    made = store.save("a-complete")
    checkout.git("reset", "--quiet", "--hard")
    checkout.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    before = view(checkout.path)
    assert checkout.git("status", "--porcelain") == ""
    store.restore(made, paths or None, index=True)
    assert checkout.git("status", "--porcelain") == " D d/b"
    after = view(checkout.path)
    assert store.restore(made, paths or None, index=True).safety is None
    store.undo()
    assert view(checkout.path) == before
    store.redo()
    assert view(checkout.path) == after


@pytest.mark.long
def test_an_entry_of_a_path_that_a_sparse_checkout_leaves_away(
    store: Store, checkout: Checkout
) -> None:
    """Restore brings back the entry, and leaves the excluded file out."""
    made = store.save("a-complete")
    checkout.commit("later", **{"d/b": "later\n"})
    checkout.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    before = view(checkout.path)
    store.restore(made, [b"d"], index=True)
    assert checkout.git("status", "--porcelain") == "M  d/b"
    after = view(checkout.path)
    assert store.restore(made, [b"d"], index=True).safety is None
    store.undo()
    assert view(checkout.path) == before
    store.redo()
    assert view(checkout.path) == after


@pytest.mark.long
def test_an_entry_that_is_assumed_to_be_unchanged_stays_so(
    store: Store, checkout: Checkout
) -> None:
    made = [store.save(f"{name}-complete") for name in ("a",)]
    checkout.commit("later", a="later\n")
    checkout.git("update-index", "--assume-unchanged", "a")
    made.append(store.save("b-complete"))
    checkout.git("update-index", "--no-assume-unchanged", "a")
    checkout.commit("later still", a="later still\n")
    checkout.git("update-index", "--assume-unchanged", "a")
    store.restore(made[1], [b"a"], index=True)
    assert checkout.git("ls-files", "-v", "a") == "h a"
    store.restore(made[0], [b"a"], index=True)
    assert checkout.git("ls-files", "-v", "a") == "H a"


@pytest.mark.long
def test_a_file_in_conflict_that_a_sparse_checkout_leaves_away_otherwise(
    store: Store, checkout: Checkout
) -> None:
    """Restore removes a conflicted file that the sparse checkout excludes."""
    base = checkout.git("rev-parse", "HEAD")
    checkout.git("checkout", "--quiet", "-b", "theirs")
    checkout.git("rm", "--quiet", "d/b")
    checkout.commit("deleted", other="side\n")
    checkout.git("checkout", "--quiet", "--detach", base)
    checkout.commit("changed", **{"d/b": "changed\n"})
    checkout.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    clean = store.save("a-complete")
    checkout.git("merge", "--quiet", "theirs", ok=(1,))
    before = view(checkout.path)
    assert (checkout.path / "d/b").read_text() == "changed\n"
    store.restore(clean)
    after = view(checkout.path)
    assert not (checkout.path / "d/b").exists()
    store.undo()
    assert view(checkout.path) == before
    store.redo()
    assert view(checkout.path) == after


@pytest.mark.long
def test_a_file_that_is_there_although_the_sparse_checkout_leaves_it_away(
    store: Store, checkout: Checkout
) -> None:
    checkout.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    bare = store.save("a-complete")
    checkout.write("d/b", "committed\n")
    checkout.git("status", "--porcelain")  # takes the flag away
    before = view(checkout.path)
    there = store.save("b-complete")
    store.restore(bare)
    after = view(checkout.path)
    assert not (checkout.path / "d/b").exists()
    store.undo()
    assert view(checkout.path) == before
    store.redo()
    assert view(checkout.path) == after
    store.restore(there, [b"d"])
    assert view(checkout.path) == before


@pytest.mark.long
def test_a_file_that_a_sparse_checkout_leaves_away_and_whose_place_a_directory_takes(
    store: Store, checkout: Checkout
) -> None:
    checkout.write("d/b", "changed\n")
    made = store.save("a-complete")
    checkout.git("rm", "--quiet", "-r", "--force", "d")
    checkout.commit("d is a file", d="file\n")
    checkout.git("sparse-checkout", "set", "--no-cone", "other")
    before = view(checkout.path)
    assert not (checkout.path / "d").exists()
    store.restore(made)
    after = view(checkout.path)
    assert (checkout.path / "d/b").read_text() == "changed\n"
    store.undo()
    assert view(checkout.path) == before
    store.redo()
    assert view(checkout.path) == after


@pytest.mark.long
@pytest.mark.parametrize("names", ["d/b", "d/b/deeper/still"])
@pytest.mark.parametrize("paths", [[], [b"d"]])
def test_an_empty_directory_where_a_sparse_checkout_has_no_file(
    store: Store, checkout: Checkout, names: str, paths: list[bytes]
) -> None:
    """Restore removes a directory in place of an excluded file; undo brings it back.

    Git drops the flag of the entry meanwhile, so that its file looks deleted.
    """
    checkout.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    made = store.save("a-complete")
    (checkout.path / names).mkdir(parents=True)
    assert checkout.git("status", "--porcelain") == " D d/b"
    before = view(checkout.path)
    done = store.restore(made, paths or None, index=True)
    assert [(change.kind, change.path) for change in done.changes][:1] == [("delete", b"d/b/")]
    assert (checkout.git("status", "--porcelain"), (checkout.path / "d/b").exists()) == ("", False)
    after = view(checkout.path)
    store.undo()
    assert (view(checkout.path), (checkout.path / names).is_dir()) == (before, True)
    changes = store.redo().changes
    assert len(changes) == len(set(changes))
    assert view(checkout.path) == after


def test_ignored_files_where_a_sparse_checkout_has_no_file(
    store: Store, checkout: Checkout
) -> None:
    """Ignored files stay, as restore writes no file in their place."""
    checkout.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    made = store.save("a-complete")
    checkout.write("d/b/.gitignore", "*\n")
    checkout.write("other", "changed\n")
    store.restore(made)
    assert (
        (checkout.path / "other").read_text(),
        (checkout.path / "d/b/.gitignore").read_text(),
    ) == ("other\n", "*\n")
    assert checkout.git("status", "--porcelain") == " D d/b"
    store.undo()
    assert (checkout.path / "other").read_text() == "changed\n"


def test_patterns_that_git_takes_for_none_of_a_cone(store: Store, checkout: Checkout) -> None:
    """Resume follows the patterns after `sparse-checkout set --cone` has failed.

    Git has set the mode by then, and uses the patterns as they are.
    """
    checkout.git("sparse-checkout", "set", "--no-cone", "a", "other")
    checkout.git("sparse-checkout", "set", "--cone", "a", ok=(1, 128))
    assert checkout.git("config", "core.sparseCheckoutCone") == "true"
    assert "".join(line[:1] for line in checkout.git("ls-files", "-t").splitlines()).count("S") == 2
    made = store.save("a-complete")
    there = store.resume(made)
    assert view(there.path) == view(checkout.path)


def test_an_entry_that_a_person_skips_within_the_patterns_of_a_sparse_checkout(
    store: Store, checkout: Checkout
) -> None:
    checkout.git("sparse-checkout", "set", "--no-cone", "/*", "!/other")
    (checkout.path / "a").unlink()
    checkout.git("update-index", "--skip-worktree", "a")
    made = store.save("a-complete")
    there = store.resume(made)
    assert view(there.path) == view(checkout.path)


@pytest.mark.parametrize("paths", [[], [b"d"]])
def test_a_deleted_file_that_was_written_where_a_sparse_checkout_leaves_it_away(
    store: Store, checkout: Checkout, paths: list[bytes]
) -> None:
    """Restore removes the excluded file, and undo brings it back.

    Its entry has the flag in the index, although git shows none while the file exists.
    """
    (checkout.path / "d/b").unlink()
    made = store.save("a-complete")
    checkout.git("sparse-checkout", "set", "--no-cone", "/*", "!/d/")
    checkout.write("d/b", "written\n")
    store.restore(made, paths or None)
    assert not (checkout.path / "d/b").exists()
    assert checkout.git("status", "--porcelain") == ("" if paths else " D d/b")
    store.undo()
    assert (checkout.path / "d/b").read_text() == "written\n"


def test_an_entry_that_git_takes_for_unmarked_while_a_directory_is_in_its_place(
    store: Store, checkout: Checkout
) -> None:
    """An index cached without flags is read again when the directory is gone.

    The index is the same before and after.
    """
    checkout.git("sparse-checkout", "set", "--no-cone", "/*")
    (checkout.path / "a").unlink()
    checkout.git("update-index", "--skip-worktree", "a")
    (checkout.path / "a").mkdir()
    for _ in range(2):
        store.save("a-complete")
    (checkout.path / "a").rmdir()
    there = store.resume(store.save("b-complete"))
    assert view(there.path) == view(checkout.path)
    assert not (Path(there.path) / "a").exists()
