"""Programs look up runs and checkpoints without driving a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt import (
    AmbiguousError,
    Extras,
    NotFoundError,
    Pipelines,
    Run,
    Store,
    Untrusted,
    UsageError,
)
from tests.conftest import Checkout
from tests.store.conftest import THREE


@pytest.fixture
def fetched(plain: Store, main_checkout: Checkout, tmp_path: Path) -> Store:
    """A clone with a run fetched from another clone."""
    with Run.start(plain, "theirs") as run:
        run.phase("one", lambda: 1)
    clone = tmp_path / "clone"
    main_checkout.git("clone", "--quiet", ".", str(clone))
    main_checkout.git(
        "-C",
        str(clone),
        "fetch",
        "--quiet",
        "origin",
        "refs/checkpoints/*:refs/checkpoints/*",
        "refs/ckpt/*:refs/ckpt/*",
    )
    return Store.open(clone, adapter="plumbing")


def test_the_newest_of_a_run(plain: Store) -> None:
    first = plain.record("begin", {"step": 1}, start="a")
    assert first.run is not None
    second = plain.record("more", {"step": 2}, run=first.run)
    assert plain.newest(first.run) == second == plain.read(plain.find(first.run))
    with pytest.raises(NotFoundError, match="no run 20260101-000000-b"):
        plain.newest("20260101-000000-b")
    with pytest.raises(UsageError):
        plain.newest(first.id)


def test_a_head_that_lags_is_moved_up(plain: Store, main_checkout: Checkout) -> None:
    first = plain.record("begin", start="a")
    ref = f"refs/ckpt/runs/{first.run}"
    before = main_checkout.git("rev-parse", ref)
    second = plain.record("more", run=first.run)
    main_checkout.git("update-ref", ref, before)
    assert plain.newest(str(first.run)).id == second.id
    assert main_checkout.git("rev-parse", ref) == main_checkout.git(
        "rev-parse", f"refs/checkpoints/{second.id}"
    )


def test_a_run_is_meant_or_a_checkpoint(plain: Store) -> None:
    first = plain.record("begin", start="a")
    second = plain.record("begin", start="a")
    for text in (first.id, first.id[:8], "latest", "HEAD", "nothing"):
        assert plain.run_named(text) is None
    assert plain.run_named(str(first.run)) == first.run
    assert (
        plain.run_named(
            str(second.run)[:-1] if str(second.run)[:-1] != first.run else str(second.run)
        )
        == second.run
    )
    with pytest.raises(AmbiguousError) as several:
        plain.run_named(str(first.run)[:10])
    assert {line.split()[0] for line in several.value.candidates} == {first.run, second.run}
    with pytest.raises(UsageError):
        plain.run_named(5)  # type: ignore[arg-type]


def test_what_was_fetched_is_not_ours_until_it_is_adopted(fetched: Store) -> None:
    (run,) = (each.run for each in fetched.runs())
    newest = fetched.newest(run)
    assert (fetched.is_ours(newest), fetched.is_ours(newest.id)) == (False, False)
    shown: list[str] = []

    def show(what: str, lines: object) -> None:
        shown.append(what)

    pipelines = Pipelines(fetched)
    with pytest.raises(Untrusted) as refused:
        pipelines.require_ours([newest], show=show)
    assert (refused.value.message, shown) == (f"run {run} was not written in this repository", [])
    pipelines.require_ours([newest], trust=True, adopt=False, show=show)
    assert (shown, fetched.is_ours(newest)) == ([run], False)
    pipelines.require_ours([newest], trust=True, show=show)
    pipelines.require_ours([newest])
    assert (shown, fetched.is_ours(newest.id)) == ([run, run], True)


def test_our_own_is_ours(plain: Store) -> None:
    outside, within = plain.record("plan"), plain.record("begin", start="a")
    assert (plain.is_ours(outside), plain.is_ours(within.id)) == (True, True)
    with pytest.raises(NotFoundError):
        plain.is_ours(THREE)


def test_the_worktrees_made_from_checkpoints(plain: Store, tmp_path: Path) -> None:
    saved, other = plain.save("plan"), plain.record("begin", start="a")
    place = plain.resume(saved, tmp_path / "place").path
    assert plain.resume(other).path  # of the run, rather than of the checkpoint
    assert plain.worktrees_made_from([saved.id, other.id]) == {place: saved.id}
    assert plain.worktrees_made_from([]) == plain.worktrees_made_from([other.id]) == {}
    plain.remove([saved.id])
    assert plain.worktrees_made_from({saved.id}) == {place: saved.id}
    with pytest.raises(UsageError):
        plain.worktrees_made_from(saved.id)


def test_what_git_cannot_hold(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.write(".gitattributes", "*.txt text eol=lf\n")
    main_checkout.write("d/mixed.txt", "one\r\ntwo\n")
    main_checkout.write("key", "k\n")
    os.chmod(main_checkout.path / "key", 0o600)
    os.makedirs(main_checkout.path / "void/deep")
    saved = plain.save("plan")
    assert (
        plain.extras(saved)
        == plain.extras(saved.id)
        == Extras([b"d/mixed.txt"], [b"void/deep"], {b"key": 0o600})
    )


def test_of_a_record_without_files_there_is_nothing_besides(plain: Store) -> None:
    assert plain.extras(plain.record("plan")) == Extras((), (), {})
    assert plain.masked(plain.record("plan")) == []


def test_what_was_masked_beside_the_worktree(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(main_checkout.path)
    main_checkout.write("task.md", "use ghp_" + "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW1xY2" + "\n")
    main_checkout.write("other.md", "nothing\n")
    names = 'inputs = { task = "", other = "" }\nfiles = ["task", "other"]\n'
    main_checkout.write(
        "gitckpt.toml", f'[pipelines.ci]\n{names}phases = [{{ name = "one", run = "true" }}]\n'
    )
    newest = plain.find(Pipelines(plain).run("ci", {"task": "task.md", "other": "other.md"}).run)
    assert set(plain.beside(newest)) >= {"input/task", "input/other"}
    assert plain.masked(newest) == ["input/task"]


def test_what_becomes_of_the_next_commit(plain: Store, main_checkout: Checkout) -> None:
    assert plain.outlook() == "not installed"
    plain.install()
    assert plain.outlook() == "recorded"
    plain.install("none")
    assert plain.outlook() == "none"
    plain.uninstall()
    assert plain.outlook() == "not installed"


def test_links_of_a_tag_and_of_a_commit_that_is_gone(plain: Store, main_checkout: Checkout) -> None:
    gone = main_checkout.commit("second", a="2")
    saved = plain.record("plan")
    main_checkout.git("tag", "--annotate", "--message", "v1", "v1")
    tag = main_checkout.git("rev-parse", "v1")
    assert tag != gone
    assert [[each.id for each in plain.links(name)] for name in ("HEAD", gone, "v1", tag)] == [
        [saved.id]
    ] * 4
    main_checkout.git("tag", "--delete", "v1")
    main_checkout.git("reset", "--quiet", "--hard", "HEAD~1")
    ref = main_checkout.git("for-each-ref", "--format=%(refname)", "--points-at", gone, "refs/keep")
    main_checkout.git("update-ref", "-d", ref)
    main_checkout.git("reflog", "expire", "--expire=now", "--all")
    main_checkout.git("gc", "--quiet", "--prune=now")
    with Store.open(main_checkout.path, adapter="plumbing") as store:
        assert [each.id for each in store.links(gone)] == [saved.id]
        assert store.links("0" * 39 + "1") == []
        with pytest.raises(NotFoundError, match="no commit is named 'nowhere'"):
            store.links("nowhere")
