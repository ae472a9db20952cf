"""A run's worktree goes only when a checkpoint has its contents, despite kills."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import LeaseHeld, NotFoundError, Store, WorktreeError
from gitckpt.store.retention import worktree
from gitckpt.store.retention.worktree import is_run_pushed, reason_not_to_remove, remove_worktree
from gitckpt.store.runs import run_files
from gitckpt.store.store import checkpoints_of_store
from gitckpt.store.worktrees import ownership
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, view
from tests.store.working import Work, driven_elsewhere, worked
from tests.stores import hold_run


@pytest.fixture
def work(plain: Store, make_store: MakeStore) -> Work:
    return worked(plain, "r", make_store)


def nothing_left(checkout: Checkout) -> None:
    """Assert that the removal left nothing of a worktree."""
    assert os.listdir(checkout.path / ".ckpt" / "worktrees") == []
    assert list((checkout.path / ".git" / "worktrees").glob("*")) == []
    assert [
        name for name in os.listdir(checkout.path / ".git" / "ckpt") if name.startswith("removing.")
    ] == []


@pytest.mark.long
def test_what_a_checkpoint_holds_goes_and_comes_back(
    plain: Store, main_checkout: Checkout, work: Work
) -> None:
    before, refs = (
        view(work.worktree.path),
        main_checkout.refs("refs/checkpoints", "refs/keep", "refs/ckpt/trees", "refs/ckpt/runs"),
    )
    assert reason_not_to_remove(checkpoints_of_store(plain), work.run) is None
    assert view(work.worktree.path) == before
    assert remove_worktree(checkpoints_of_store(plain), work.run) is None
    nothing_left(main_checkout)
    assert (
        main_checkout.refs(*["refs/checkpoints", "refs/keep", "refs/ckpt/trees", "refs/ckpt/runs"])
        == refs
    )
    assert remove_worktree(checkpoints_of_store(plain), work.run) is None
    assert (plain.resume(work.newest).path, view(work.worktree.path)) == (
        str(work.worktree.path),
        before,
    )


def test_ignored_files_and_sockets_are_nobody_s_work(
    plain: Store, main_checkout: Checkout, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_checkout.write(".git/info/exclude", "build/\n")
    work.worktree.write("build/result.o", "x")
    monkeypatch.chdir(work.worktree.path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    monkeypatch.chdir(main_checkout.path)
    assert remove_worktree(checkpoints_of_store(plain), work.run) is None
    nothing_left(main_checkout)


def change(work: Work) -> None:
    work.worktree.write("README", "changed")


def add(work: Work) -> None:
    for name in ("b", "a", "ä", "c"):
        work.worktree.write(name, "new")


def delete(work: Work) -> None:
    (work.worktree.path / "made").unlink()


def stage(work: Work) -> None:
    work.worktree.git("add", "made")


def commit(work: Work) -> None:
    work.worktree.git("commit", "--quiet", "--allow-empty", "--message", "more")


def keep_a_secret(work: Work) -> None:
    work.worktree.write(".env", "x")


def keep_a_repository(work: Work) -> None:
    work.worktree.git("init", "--quiet", "inner")


def merge(work: Work) -> None:
    path = work.worktree.git("rev-parse", "--path-format=absolute", "--git-path", "MERGE_HEAD")
    Path(path).write_text(
        work.worktree.git("rev-parse", "HEAD") + "\n"
    )  # as git merge does: newer ones refuse update-ref


def assume(work: Work) -> None:
    work.worktree.git("update-index", "--assume-unchanged", "README")


def refer(work: Work) -> None:
    work.worktree.git("update-ref", "refs/worktree/mine", "HEAD")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("do", "held"),
    [
        (change, "README"),
        (add, "a, b, c and 1 more"),
        (delete, "made"),
        (stage, "staged changes"),
        (commit, "commit {commit:.12}"),
        (keep_a_secret, ".env"),
        (keep_a_repository, "inner/"),
        (merge, "an operation in progress"),
        (assume, "flags of the index"),
        (refer, "refs/worktree/mine"),
    ],
)
def test_what_no_checkpoint_holds_stays(
    plain: Store, work: Work, do: Callable[[Work], None], held: str
) -> None:
    do(work)
    before = view(work.worktree.path)
    said = held.format(commit=work.worktree.git("rev-parse", "HEAD"))
    expected = f"the worktree {work.worktree.path} has contents that no checkpoint has: {said}"
    assert reason_not_to_remove(checkpoints_of_store(plain), work.run) == expected
    assert remove_worktree(checkpoints_of_store(plain), work.run) == expected
    assert view(work.worktree.path) == before


def test_a_checkpoint_more_lets_it_go(
    plain: Store, main_checkout: Checkout, make_store: MakeStore, work: Work
) -> None:
    change(work)
    stage(work)
    make_store(work.worktree).save("more-complete", run=work.run)
    assert remove_worktree(checkpoints_of_store(plain), work.run) is None
    nothing_left(main_checkout)


def test_files_that_are_too_large_stay(plain: Store, work: Work) -> None:
    work.worktree.git("config", "ckpt.maxFileSize", "3 B")
    work.worktree.write("large", "1234")
    assert (
        reason_not_to_remove(checkpoints_of_store(plain), work.run)
        == f"the worktree {work.worktree.path} has contents that no checkpoint has: made, large"
    )


def test_what_the_run_put_out_beside_its_worktree_counts(plain: Store, work: Work) -> None:
    place = Path(
        run_files.files_of_run(checkpoints_of_store(plain).repository, work.run).path,
        "output",
        "build",
    )
    place.mkdir(parents=True)
    (place / "report").write_text("x")
    expected = (
        f"the worktree {work.worktree.path} has contents that no checkpoint has: "
        "run/output/build/report"
    )
    assert remove_worktree(checkpoints_of_store(plain), work.run) == expected


def test_whoever_stands_in_it_keeps_it(
    plain: Store, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work.worktree.path / "deep").mkdir()
    monkeypatch.chdir(work.worktree.path / "deep")
    assert (
        remove_worktree(checkpoints_of_store(plain), work.run)
        == f"the current directory is in the worktree {work.worktree.path}"
    )


def test_it_is_not_removed_by_a_store_that_is_seen_from_it(
    work: Work, make_store: MakeStore
) -> None:
    assert (
        remove_worktree(checkpoints_of_store(make_store(work.worktree)), work.run)
        == f"the current directory is in the worktree {work.worktree.path}"
    )


def test_a_lock_of_somebody_else_keeps_it(plain: Store, work: Work) -> None:
    work.worktree.git("worktree", "unlock", ".")
    work.worktree.git("worktree", "lock", ".")
    assert (
        remove_worktree(checkpoints_of_store(plain), work.run)
        == f"the worktree {work.worktree.path} is locked"
    )
    work.worktree.git("worktree", "unlock", ".")
    assert remove_worktree(checkpoints_of_store(plain), work.run) is None


@pytest.mark.parametrize("lost", ["commondir", "HEAD"])
def test_one_that_git_does_not_see_stays_with_the_way_to_mend_it(
    plain: Store, work: Work, main_checkout: Checkout, lost: str
) -> None:
    file = main_checkout.path / ".git/worktrees" / work.run / lost
    file.unlink()
    path = work.worktree.path
    said = f"git cannot use the worktree {path}; to repair it: git ckpt resume {work.run}"
    assert remove_worktree(checkpoints_of_store(plain), work.run) == said
    plain.resume(plain.find(work.run))
    assert file.exists()
    assert remove_worktree(checkpoints_of_store(plain), work.run) is None


def test_a_repository_of_a_submodule_that_is_nowhere_else_keeps_it(
    plain: Store, main_checkout: Checkout, work: Work
) -> None:
    git_dir = main_checkout.path / ".git" / "worktrees" / work.run
    main_checkout.git("init", "--quiet", "--bare", str(git_dir / "modules" / "lib"))
    expected = (
        f"the worktree {work.worktree.path} has contents that no checkpoint has: "
        "the only repository of submodule lib"
    )
    assert remove_worktree(checkpoints_of_store(plain), work.run) == expected
    shutil.rmtree(work.worktree.path)
    expected = (
        f"the worktree {work.worktree.path} is missing, and {git_dir} has repositories of "
        "submodules"
    )
    assert remove_worktree(checkpoints_of_store(plain), work.run) == expected


class TestLeases:
    def test_a_driver_that_is_alive_keeps_it(self, plain: Store, work: Work) -> None:
        lease = driven_elsewhere(plain, work.run)
        expected = (
            f"run {work.run} is driven by {lease.sentence()}, on another machine; "
            f"unless renewed, the lease ends at {lease.expires}"
        )
        assert (
            reason_not_to_remove(checkpoints_of_store(plain), work.run),
            remove_worktree(checkpoints_of_store(plain), work.run),
        ) == (expected, expected)
        assert work.worktree.path.is_dir()

    def test_the_driver_itself_may_remove_it(
        self, plain: Store, main_checkout: Checkout, work: Work
    ) -> None:
        hold = hold_run(plain, work.run, "a test")
        assert remove_worktree(checkpoints_of_store(plain), work.run) is None
        hold.require_lease_held()
        nothing_left(main_checkout)

    def test_the_lease_is_ours_while_it_goes_and_given_back(
        self, plain: Store, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def take_away(*_: object) -> None:
            with pytest.raises(LeaseHeld):
                hold_run(plain, work.run, "a test")

        monkeypatch.setattr(worktree, "_delete_worktree", take_away)
        assert remove_worktree(checkpoints_of_store(plain), work.run) is None
        hold_run(plain, work.run, "a test").release_lease()

    def test_of_no_run(self, plain: Store) -> None:
        with pytest.raises(NotFoundError, match="no run 20270115-080001-nothing"):
            remove_worktree(checkpoints_of_store(plain), "20270115-080001-nothing")


class TestDirectoriesThatAreElsewhere:
    def test_gone_with_nothing_staged(
        self, plain: Store, main_checkout: Checkout, make_store: MakeStore, work: Work
    ) -> None:
        shutil.rmtree(work.worktree.path)
        count = len(plain.list())
        assert reason_not_to_remove(checkpoints_of_store(plain), work.run) is None
        assert remove_worktree(checkpoints_of_store(plain), work.run) is None
        assert len(plain.list()) == count
        nothing_left(main_checkout)

    def test_gone_with_something_staged(
        self, plain: Store, main_checkout: Checkout, work: Work
    ) -> None:
        stage(work)
        shutil.rmtree(work.worktree.path)
        assert remove_worktree(checkpoints_of_store(plain), work.run) is None
        newest = plain.read(plain.list()[0].id)
        assert (newest.trigger, newest.run, newest.message) == (
            "safety:worktree",
            None,
            f"the index of the deleted worktree {work.worktree.path}",
        )
        assert (
            main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{newest.id}:files/made")
            == "by r"
        )
        nothing_left(main_checkout)

    def test_moved(self, plain: Store, main_checkout: Checkout, work: Work) -> None:
        moved = main_checkout.path / ".ckpt" / "worktrees" / "moved"
        work.worktree.path.rename(moved)
        assert (
            remove_worktree(checkpoints_of_store(plain), work.run)
            == f"the worktree was moved to {moved}; run: git worktree repair {moved}"
        )
        assert (moved / "made").exists()

    def test_replaced(self, plain: Store, work: Work) -> None:
        shutil.rmtree(work.worktree.path)
        work.worktree.path.mkdir()
        assert (
            remove_worktree(checkpoints_of_store(plain), work.run)
            == f"{work.worktree.path} is no longer the worktree of the run"
        )

    def test_forgotten_by_git(self, plain: Store, main_checkout: Checkout, work: Work) -> None:
        shutil.rmtree(main_checkout.path / ".git" / "worktrees" / work.run)
        expected = (
            f"git no longer lists the worktree {work.worktree.path}; "
            f"to register it: git ckpt resume {work.run}"
        )
        assert (
            reason_not_to_remove(checkpoints_of_store(plain), work.run),
            remove_worktree(checkpoints_of_store(plain), work.run),
        ) == (expected, expected)

    def test_worktrees_of_others_stay(
        self,
        plain: Store,
        make_store: MakeStore,
        main_checkout: Checkout,
        work: Work,
        tmp_path: Path,
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", str(tmp_path / "mine"))
        other = worked(plain, "other", make_store)
        before = view(tmp_path / "mine"), view(other.worktree.path)
        assert remove_worktree(checkpoints_of_store(plain), work.run) is None
        assert (view(tmp_path / "mine"), view(other.worktree.path)) == before
        assert not work.worktree.path.exists()


class Killed(BaseException):
    """Raised in place of a kill."""


class TestKills:
    """Kills between the steps of a removal that do not call git."""

    @pytest.fixture(
        params=[
            "before parking",
            "before moving",
            "before deleting",
            "while deleting",
            "before the last",
        ]
    )
    def kill(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[], None]:
        rename, delete_directory = os.rename, worktree.delete_directory
        steps: list[str] = []

        def dying_rename(old: str, new: str) -> None:
            steps.append(new)
            if (len(steps), request.param) in ((1, "before parking"), (2, "before moving")):
                raise Killed
            rename(old, new)

        def dying_delete(path: str) -> None:
            steps.append(path)
            if len(steps) == 3 and request.param == "while deleting":
                os.unlink(os.path.join(path, "made"))
            if (len(steps) == 3 and request.param in ("before deleting", "while deleting")) or len(
                steps
            ) == 4:
                raise Killed
            delete_directory(path)

        def arm() -> None:
            monkeypatch.setattr(os, "rename", dying_rename)
            monkeypatch.setattr(worktree, "delete_directory", dying_delete)

        def disarm() -> None:
            monkeypatch.setattr(os, "rename", rename)
            monkeypatch.setattr(worktree, "delete_directory", delete_directory)

        self.disarm = disarm
        return arm

    @pytest.mark.sampled(2)
    def test_the_next_removal_ends_it(
        self, plain: Store, main_checkout: Checkout, work: Work, kill: Callable[[], None]
    ) -> None:
        kill()
        with pytest.raises(Killed):
            remove_worktree(checkpoints_of_store(plain), work.run)
        self.disarm()
        assert remove_worktree(checkpoints_of_store(plain), work.run) is None
        nothing_left(main_checkout)

    @pytest.mark.sampled(6)
    def test_a_resume_goes_on_with_all_of_it(
        self,
        plain: Store,
        main_checkout: Checkout,
        make_store: MakeStore,
        work: Work,
        kill: Callable[[], None],
    ) -> None:
        before = view(work.worktree.path)
        kill()
        with pytest.raises(Killed):
            remove_worktree(checkpoints_of_store(plain), work.run)
        self.disarm()
        assert plain.resume(work.newest).path == str(work.worktree.path)
        assert view(work.worktree.path) == before
        work.worktree.write("goes on", "x")
        worktree.finish_worktree_removals(checkpoints_of_store(plain).repository)
        assert (work.worktree.path / "goes on").exists()
        assert (
            ownership.owner_at_path(checkpoints_of_store(plain).repository, str(work.worktree.path))
            is not None
        )
        assert "has contents that no checkpoint has: goes on" in str(
            remove_worktree(checkpoints_of_store(plain), work.run)
        )
        make_store(work.worktree).save("more-complete", run=work.run)
        assert remove_worktree(checkpoints_of_store(plain), work.run) is None
        nothing_left(main_checkout)


def test_a_directory_that_cannot_be_moved(
    plain: Store, main_checkout: Checkout, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rename = view(work.worktree.path), os.rename

    def refuse(old: str, new: str) -> None:
        if old == str(work.worktree.path):
            raise PermissionError(13, "Permission denied")
        rename(old, new)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(
        WorktreeError, match=f"cannot remove the worktree {work.worktree.path}: Permission denied"
    ):
        remove_worktree(checkpoints_of_store(plain), work.run)
    assert view(work.worktree.path) == before


class TestPushed:
    def test_the_commit_of_the_worktree_counts(
        self, plain: Store, main_checkout: Checkout, work: Work, tmp_path: Path
    ) -> None:
        main_checkout.git("init", "--quiet", "--bare", str(tmp_path / "remote.git"))
        main_checkout.git("remote", "add", "origin", str(tmp_path / "remote.git"))
        assert not is_run_pushed(checkpoints_of_store(plain), work.run)
        main_checkout.git("push", "--quiet", "origin", "HEAD:refs/heads/main")
        assert is_run_pushed(checkpoints_of_store(plain), work.run)
        commit(work)
        assert not is_run_pushed(checkpoints_of_store(plain), work.run)
        work.worktree.git("push", "--quiet", "origin", "HEAD:refs/heads/work")
        work.worktree.git("push", "--quiet", "origin", "HEAD~:refs/heads/main")
        assert is_run_pushed(checkpoints_of_store(plain), work.run)

    def test_without_a_worktree_that_of_the_newest_checkpoint(
        self, plain: Store, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        run = str(plain.record("run-started", {}, start="r", trigger="phase").run)
        main_checkout.git("update-ref", "refs/remotes/origin/main", "HEAD")
        assert is_run_pushed(checkpoints_of_store(plain), run)
        main_checkout.commit("more")
        plain.record("a-complete", {}, run=run)
        assert not is_run_pushed(checkpoints_of_store(plain), run)

    def test_an_unborn_branch(
        self, make_checkout: Callable[..., Checkout], make_store: MakeStore
    ) -> None:
        store = make_store(make_checkout())
        assert not is_run_pushed(
            checkpoints_of_store(store),
            str(store.record("run-started", {}, start="r", trigger="phase").run),
        )
