"""After `git filter-repo`, files come back, and purged content can go."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gitckpt import Store, WorktreeError
from tests.conftest import Checkout
from tests.store.conftest import MakeStore

needs_filter_repo = pytest.mark.skipif(
    shutil.which("git-filter-repo") is None, reason="git-filter-repo is not installed"
)

SECRET = "pw=geheim\n"


def committed(here: Checkout) -> None:
    """Commit a secret with another file, then another secret alone."""
    here.commit("both", secret=SECRET, work="1\n")
    here.commit("alone", **{"deep/secret": SECRET})


def purge(here: Checkout) -> None:
    here.git(
        "filter-repo",
        "--force",
        "--quiet",
        "--invert-paths",
        "--path",
        "secret",
        "--path",
        "deep/secret",
    )


def make_way(here: Checkout) -> None:
    here.git("reset", "--quiet", "--hard")
    here.git("clean", "--quiet", "--force", "-d")


@pytest.mark.long
@needs_filter_repo
def test_files_come_back_at_the_commit_that_was_rewritten(
    main_checkout: Checkout, make_store: MakeStore
) -> None:
    main_checkout.commit("both", secret=SECRET, work="1\n")
    main_checkout.write("work", "2\n")
    main_checkout.git("add", "work")
    main_checkout.write("new", "1\n")
    with make_store(main_checkout) as store:
        made = store.save("a-complete", {})
    make_way(main_checkout)
    purge(main_checkout)
    head = main_checkout.git("rev-parse", "HEAD")
    assert head != made.git_sha
    store = make_store(main_checkout)
    done = store.restore(made)
    assert done.remarks == [f"commit {made.git_sha[:10]} was rewritten: using {head[:10]} instead"]
    assert done.apart == []
    expected = "A  secret\nM  work\n?? new"  # that it was tracked is in the checkpoint as well
    assert main_checkout.git("status", "--porcelain") == expected
    opened = store.resume(made)
    there = Checkout(Path(opened.path), main_checkout.path)
    assert (there.git("rev-parse", "HEAD"), there.git("status", "--porcelain")) == (head, expected)
    store.undo()
    assert main_checkout.git("status", "--porcelain") == ""


@needs_filter_repo
def test_files_come_back_where_the_commit_is_gone(
    main_checkout: Checkout, make_store: MakeStore
) -> None:
    committed(main_checkout)
    main_checkout.write("new", "two hours of work\n")
    with make_store(main_checkout) as store:
        made = store.save("a-complete", {})
        clean = store.record("b-complete", {})
    make_way(main_checkout)
    purge(main_checkout)
    store = make_store(main_checkout)
    done = store.restore(made)
    assert (main_checkout.path / "new").read_text() == "two hours of work\n"
    assert done.remarks == [
        (
            f"commit {made.git_sha[:10]} is gone: "
            "the files are those of the checkpoint, and the index has the files of HEAD"
        )
    ]
    assert main_checkout.git("diff", "--cached", "--name-only") == ""
    opened = store.resume(made)
    assert (Path(opened.path) / "new").read_text() == "two hours of work\n"
    with pytest.raises(WorktreeError, match="is missing"):
        store.restore(clean)


@pytest.mark.long
@needs_filter_repo
def test_a_merge_in_progress_is_not_brought_back_to_another_commit(
    main_checkout: Checkout, make_store: MakeStore
) -> None:
    main_checkout.commit("both", secret=SECRET, work="1\n")
    main_checkout.git("checkout", "--quiet", "-b", "side")
    main_checkout.commit("side", side="1\n")
    main_checkout.git("checkout", "--quiet", "main")
    main_checkout.commit("more", more="1\n")
    main_checkout.git("merge", "--quiet", "--no-commit", "side")
    with make_store(main_checkout) as store:
        made = store.save("a-complete", {})
    main_checkout.git("merge", "--abort")
    purge(main_checkout)
    store = make_store(main_checkout)
    store.restore(made)
    assert (main_checkout.path / "side").read_text() == "1\n"
    assert not (main_checkout.path / ".git/MERGE_HEAD").exists()


@pytest.mark.long
@needs_filter_repo
def test_what_was_purged_goes_with_the_checkpoints_of_rewritten_commits(
    main_checkout: Checkout, make_store: MakeStore
) -> None:
    main_checkout.commit("before", before="1\n")
    with make_store(main_checkout) as store:
        kept = store.save("kept-complete", {})
        committed(main_checkout)
        main_checkout.write("new", "1\n")
        first = store.save("a-complete", {})
        run = store.record("run-started", {}, start="all")
        assert store.rewritten() == []
    make_way(main_checkout)
    purge(main_checkout)
    blob = main_checkout.git("hash-object", "--stdin", data=SECRET)
    store = make_store(main_checkout)
    assert {entry.id for entry in store.rewritten()} == {first.id, run.id}
    codes = {finding.code for finding in store.examine().findings}
    assert "commits-rewritten" in codes
    found = {
        (finding.code, finding.cure)
        for finding in store.verify().findings
        if first.id in finding.object
    }
    assert found == {("commit-rewritten", "git ckpt remove --rewritten")}
    main_checkout.git("cat-file", "-e", blob)
    store.remove([first.id, run.id])
    assert [entry.id for entry in store.list()] == [kept.id]
    store.close()
    main_checkout.git("reflog", "expire", "--expire=now", "--all")
    main_checkout.git("gc", "--quiet", "--prune=now")
    main_checkout.git("cat-file", "-e", blob, ok=(1,))


@pytest.mark.parametrize("how", ["link", "garbage", "directory", "none"])
def test_the_map_of_commits_is_only_read_for_what_it_is(
    main_checkout: Checkout, plain: Store, how: str
) -> None:
    made = plain.save("a-complete", {})
    place = main_checkout.path / ".git/filter-repo"
    place.mkdir()
    if how == "link":
        (place / "commit-map").symlink_to("/dev/zero")
    elif how == "garbage":
        lines = [
            b"old new",
            b"\xff\0",
            b"--help --version",
            b"HEAD main",
            f"{made.git_sha} ../../x".encode(),
            b"0" * 10_000,
        ]
        (place / "commit-map").write_bytes(b"\n".join(lines))
    elif how == "directory":
        os.mkdir(place / "commit-map")
    assert plain.rewritten() == []
