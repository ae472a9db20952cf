"""A run begins with the submodules that are checked out at its start.

Each is at the commit that the superproject's commit records.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gitckpt import Attempt, PhaseOptions, Run, Store, Worktree, WorktreeError
from tests.conftest import Checkout
from tests.store.submodules import dirty, names, settled
from tests.stores import LeftOut, begin_run, left_out

PASSED_OVER = "files at the path of a submodule that is not checked out: git skips them"


def begin(store: Store) -> tuple[Checkout, Checkout, Checkout]:
    """Begin a run; return its worktree, and those of its submodules."""
    begun = begin_run(store, "build")
    top = Path(store.resume(begun).path)
    return Checkout(top), Checkout(top / "lib"), Checkout(top / "lib" / "inner")


@pytest.mark.long
def test_what_it_begins_with(
    plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout
) -> None:
    clean = settled(main_checkout, lib, inner)
    dirty(lib, inner)
    before = settled(main_checkout, lib, inner)
    there = begin(plain)
    assert settled(main_checkout, lib, inner) == before
    assert [seen[1:] for seen in settled(*there)] == [seen[1:] for seen in clean]
    assert [seen[0] for seen in settled(*there)] == ["", "", ""]


@pytest.mark.long
def test_the_same_checkpoint_serves_each_run(plain: Store, lib: Checkout, inner: Checkout) -> None:
    for _ in range(2):
        begin(plain)
    assert (len(names(lib)), len(names(inner))) == (1, 1)


def test_what_is_not_checked_out_stays_so_and_what_lies_there_is_named(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    main_checkout.git("submodule", "--quiet", "deinit", "--force", "lib")
    top, there, _ = begin(plain)
    assert list(there.path.iterdir()) == []
    there.write("work", "of forty minutes\n")
    assert top.git("status", "--porcelain") == ""
    with plain.__class__.open(str(top.path)) as store:
        found = store.save("a-complete", {}).worktree
    assert found is not None
    assert left_out(found) == (LeftOut("lib/", PASSED_OVER),)


def test_a_commit_that_is_not_here(plain: Store, main_checkout: Checkout, lib: Checkout) -> None:
    main_checkout.git("update-index", "--cacheinfo", f"160000,{'1' * 40},lib")
    main_checkout.git("commit", "--quiet", "--message", "one that nobody has")
    begun = begin_run(plain, "before")
    assert begun.worktree == Worktree(dirty=False)
    _, there, _ = begin(plain)
    assert list(there.path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("value", ["none", "all"])
def test_the_settings_can_switch_it_off(
    plain: Store, main_checkout: Checkout, lib: Checkout, value: str
) -> None:
    main_checkout.git("config", "ckpt.submodules", value)
    _, there, _ = begin(plain)
    assert (there.path / "l").exists() == (value == "all")


@pytest.mark.long
def test_a_checkpoint_that_has_none_is_opened_with_them(
    plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout
) -> None:
    """The checkpoint of a hook records no submodules."""
    made = plain.record("commit-complete", {}, trigger="post-commit")
    assert made.worktree is None
    clean = settled(main_checkout, lib, inner)
    dirty(lib, inner)
    top = Path(plain.resume(made).path)
    assert [
        seen[1:] for seen in settled(*map(Checkout, (top, top / "lib", top / "lib/inner")))
    ] == [seen[1:] for seen in clean]


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("setting", ["transfer.hideRefs", "uploadpack.hideRefs"])
def test_a_submodule_that_hides_its_refs_from_others(
    plain: Store, lib: Checkout, inner: Checkout, setting: str
) -> None:
    for one in (lib, inner):
        one.git("config", setting, "refs/checkpoints")
    dirty(lib, inner)
    top = Path(plain.resume(plain.save("a-complete", {})).path)
    assert [seen[1:] for seen in settled(*map(Checkout, (top / "lib", top / "lib/inner")))] == [
        seen[1:] for seen in settled(lib, inner)
    ]


@pytest.mark.long
def test_a_run_does_not_go_on_unasked_without_one_that_was_lost(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    with Run.start(plain, "build") as run:
        run.phase(
            "one",
            lambda: dirty(
                Checkout(Path(run.path, "lib")), Checkout(Path(run.path, "lib", "inner"))
            ),
        )
        run.pause()
    main_checkout.git(
        "worktree", "remove", "--force", "--force", run.path
    )  # with its repositories of submodules
    with pytest.raises(
        WorktreeError,
        match="the submodule lib was not restored: no repository of the submodule has",
    ) as raised:
        Run.resume(plain, run.id)
    assert raised.value.hint == (
        f"do that in {run.path}; then, or to continue without submodules: git ckpt resume {run.id}"
    )
    with Run.resume(plain, run.id) as again:
        assert list(Path(again.path, "lib").iterdir()) == []


@pytest.mark.long
def test_nor_where_others_have_gone_on_with_one_of_theirs(
    plain: Store, main_checkout: Checkout, lib: Checkout, tmp_path: Path
) -> None:
    with Run.start(plain, "build") as run:
        run.pause()
    other = Checkout(tmp_path / "other")
    main_checkout.git("clone", "--quiet", str(main_checkout.path), str(other.path))
    other.git("config", "submodule.lib.url", str(lib.path))
    refs = [f"+refs/{each}/*:refs/{each}/*" for each in ("checkpoints", "ckpt", "keep")]
    other.git("fetch", "--quiet", "origin", *refs)
    with Store.open(str(other.path)) as theirs:
        with pytest.raises(WorktreeError, match="the submodule lib was not restored"):
            Run.resume(theirs, run.id, trust=True)
        there = Run.resume(theirs, run.id)
        Checkout(Path(there.path)).git(
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "update",
            "--init",
            "--",
            "lib",
        )
        there.phase("one", lambda: Path(there.path, "lib", "more").write_text("from there\n"))
        there.phase("two", lambda: Path(there.path, "more").write_text("from there\n"))
        there.close()
    main_checkout.git("fetch", "--quiet", str(other.path), *refs)
    with pytest.raises(
        WorktreeError, match="all else was restored, but these submodules failed: lib"
    ) as raised:
        Run.resume(plain, run.id, trust=True)
    assert str(raised.value.hint).endswith(
        f"in {run.path}; then, or to continue without the submodule: git ckpt resume {run.id}"
    )
    with Run.resume(plain, run.id) as again:
        assert (Path(again.path, "more").exists(), Path(again.path, "lib", "more").exists()) == (
            True,
            False,
        )


@pytest.mark.long
def test_what_changed_in_one_since_a_failure_is_not_reset(plain: Store, lib: Checkout) -> None:
    found: list[tuple[bool, bool]] = []

    def work() -> None:
        there = Path(run.path, "lib")
        found.append(((there / "half").exists(), (there / "mended").exists()))
        (there / "half").touch()
        if not found[-1][1]:
            raise OSError("not yet")

    run = Run.start(plain, "build")
    for _ in range(2):
        with pytest.raises(OSError, match="not yet"), run:
            run.phase("one", work, conduct=PhaseOptions(on_resume="reset"))
        run = Run.resume(plain, run.id)
    Path(run.path, "lib", "mended").write_text("by hand\n")
    with run:
        run.phase("one", work, conduct=PhaseOptions(on_resume="reset"))
    assert found == [(False, False), (False, False), (True, True)]


@pytest.mark.long
def test_a_phase_that_changes_one_has_changed_files(
    plain: Store, lib: Checkout, inner: Checkout
) -> None:
    def changed(*names: str) -> bool:
        for name in names:
            Path(run.path, "lib", name).write_text("x\n")
        Checkout(Path(run.path, "lib")).git("checkout", "--quiet", "-B", f"branch-{len(names)}")
        return run._session.has_changed_files(Attempt("one", 1))

    with Run.start(plain, "build") as run:
        assert [changed(), changed("inner/new")] == [False, True]
        Path(run.path, "lib/inner/new").unlink()
        assert [changed(), changed("new")] == [False, True]
