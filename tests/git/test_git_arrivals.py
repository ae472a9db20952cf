"""What came into a repository since the last flush is flushed, by whomever it was written, and nothing twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt.git import disk
from gitckpt.git.disk import MARK, Arrivals, Due
from gitckpt.git.repository import Repository
from gitckpt.model.errors import CkptError
from tests.conftest import Checkout, repository_of


def files_of(checkout: Checkout, rev: str) -> set[str]:
    """Returns the files of a commit and of all that is new in it."""
    listed = checkout.git("rev-list", "--objects", rev, "--not", f"{rev}^@").splitlines()
    return {str(checkout.main / ".git/objects" / line[:2] / line[2:].split(" ")[0]) for line in listed}


def settle(checkout: Checkout) -> Arrivals:
    """Returns what has flushed all that is there."""
    made = Arrivals(Repository(str(checkout.main / ".git"), None))
    made.catch_up()
    wait_for_a_tick(checkout.main)
    return made


def get_to_disk(due: Due) -> None:
    with due:
        due.flush()


def wait_for_a_tick(place: Path) -> None:
    """Goes on once the clock of the file system has."""
    path = place / ".git" / "tick"
    path.touch()
    before = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == before:
        time.sleep(0.001)
        path.touch()


def test_what_git_wrote_is_flushed_with_its_names(checkout: Checkout, repository: Repository, flushed: list[str]) -> None:
    commit = checkout.commit("change", one="1\n", **{"below/two": "2\n"})
    checkout.write("staged", "3\n")
    checkout.git("add", "staged")
    staged = checkout.git("rev-parse", ":staged")
    get_to_disk(Arrivals(repository).look([commit], [], "main"))
    wanted = files_of(checkout, commit) | {str(checkout.main / ".git/objects" / staged[:2] / staged[2:])}
    assert set(flushed) >= wanted | {os.path.dirname(path) for path in wanted} | {str(checkout.main / ".git/objects")}


def test_nothing_is_flushed_twice(main_checkout: Checkout, repository: Repository, flushed: list[str]) -> None:
    settle(main_checkout)
    flushed.clear()
    commit = main_checkout.commit("change", one="1\n")
    wait_for_a_tick(main_checkout.path)  # a branch written in the tick of the mark may have been written after it
    get_to_disk(Arrivals(repository).look([commit], [], None))
    files = [path for path in flushed if os.path.isfile(path)]
    assert set(files) == files_of(main_checkout, commit) | {str(main_checkout.path / ".git/refs/heads/main")}
    wait_for_a_tick(main_checkout.path)
    flushed.clear()
    for arrivals in (Arrivals(repository), Arrivals(repository)):
        get_to_disk(arrivals.look([commit], [], None))
    assert flushed == []


def test_only_what_was_written_is_flushed_where_the_commit_is_known(
    main_checkout: Checkout, repository: Repository, flushed: list[str]
) -> None:
    commit = main_checkout.git("rev-parse", "HEAD")
    arrivals = Arrivals(repository)
    get_to_disk(arrivals.look([commit], []))
    flushed.clear()
    oid = main_checkout.git("hash-object", "-w", "--stdin", data="document")
    get_to_disk(arrivals.look([commit], [oid]))
    place = main_checkout.path / ".git/objects" / oid[:2]
    assert set(flushed) >= {str(place / oid[2:]), str(place)}
    assert {path for path in flushed if os.path.isfile(path)} == {str(place / oid[2:])}


def test_a_tree_is_looked_for_each_time_another_process_asks(main_checkout: Checkout, repository: Repository, flushed: list[str]) -> None:
    commit = main_checkout.git("rev-parse", "HEAD")
    settle(main_checkout)
    flushed.clear()
    main_checkout.write("new", "1\n")
    main_checkout.git("add", "new")
    tree = main_checkout.git("write-tree")
    get_to_disk(Arrivals(repository).look([commit, tree], []))
    assert str(main_checkout.path / ".git/objects" / tree[:2] / tree[2:]) in flushed


def test_the_branch_and_the_packed_refs_are_flushed(main_checkout: Checkout, repository: Repository, flushed: list[str]) -> None:
    main_checkout.git("pack-refs", "--all")
    main_checkout.git("checkout", "--quiet", "-b", "feature/one")
    commit = main_checkout.commit("change")
    get_to_disk(Arrivals(repository).look([commit], [], "feature/one"))
    common = str(main_checkout.path / ".git")
    assert {f"{common}/refs/heads/feature/one", f"{common}/refs/heads/feature", f"{common}/packed-refs", common} <= set(flushed)


def test_so_are_the_directories_above_a_branch_that_are_new(main_checkout: Checkout, repository: Repository, flushed: list[str]) -> None:
    settle(main_checkout)
    main_checkout.git("checkout", "--quiet", "-b", "feature/deep/one")
    commit = main_checkout.commit("change")
    flushed.clear()
    get_to_disk(Arrivals(repository).look([commit], [], "feature/deep/one"))
    heads = f"{main_checkout.path}/.git/refs/heads"
    assert {f"{heads}/feature/deep/one", f"{heads}/feature/deep", f"{heads}/feature", heads} <= set(flushed)
    assert f"{main_checkout.path}/.git/HEAD" in flushed  # it was written, too, and git flushes none
    wait_for_a_tick(main_checkout.path)
    commit = main_checkout.commit("another")
    flushed.clear()
    get_to_disk(Arrivals(repository).look([commit], [], "feature/deep/one"))
    assert not {f"{heads}/feature", heads, f"{main_checkout.path}/.git/HEAD", f"{main_checkout.path}/.git/refs"} & set(flushed)


def test_a_head_that_is_detached_is_flushed_with_its_commit(checkout: Checkout, flushed: list[str]) -> None:
    """Git moves it with each commit, and flushes it as little as a branch."""
    settle(checkout)
    checkout.git("checkout", "--quiet", "--detach")
    wait_for_a_tick(checkout.main)
    settle(checkout)
    flushed.clear()
    commit = checkout.commit("adrift")
    git_dir = checkout.git("rev-parse", "--absolute-git-dir")
    get_to_disk(Arrivals(Repository(git_dir, None)).look([commit], [], None))
    assert {f"{git_dir}/HEAD", git_dir} <= set(flushed)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda mark: mark.unlink(), id="deleted"),
        pytest.param(lambda mark: mark.write_bytes(b""), id="empty"),
        pytest.param(lambda mark: mark.write_text("soon"), id="no time"),
        pytest.param(lambda mark: mark.write_text(" ".join(["9" * 19, *mark.read_text().split()[1:]])), id="from the future"),
        pytest.param(lambda mark: mark.write_text(" ".join([mark.read_text().split()[0], "1:1"])), id="of another repository"),
    ],
)
def test_where_it_is_not_known_what_was_flushed_all_that_is_recent_is(
    main_checkout: Checkout, repository: Repository, flushed: list[str], spoil: Callable[[Path], object]
) -> None:
    settle(main_checkout)
    flushed.clear()
    spoil(main_checkout.path / ".git/ckpt" / MARK)
    commit = main_checkout.git("rev-parse", "HEAD")
    get_to_disk(Arrivals(repository).look([commit, commit], []))
    assert set(flushed) >= files_of(main_checkout, commit)


@pytest.mark.parametrize("step", [-3, 3])
def test_a_clock_that_was_set_since_is_noticed(
    main_checkout: Checkout, repository: Repository, flushed: list[str], step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then it may have caught up with what the mark says, and what came meanwhile is older than that."""
    boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    with monkeypatch.context() as before:
        before.setattr(time, "clock_gettime_ns", lambda _clock: boot + step * 10**9)
        settle(main_checkout)
    flushed.clear()
    commit = main_checkout.git("rev-parse", "HEAD")
    get_to_disk(Arrivals(repository).look([commit, commit], []))
    assert set(flushed) >= files_of(main_checkout, commit)


def test_a_mark_that_was_ahead_of_its_own_file_is_not_believed(main_checkout: Checkout, repository: Repository, flushed: list[str]) -> None:
    settle(main_checkout)
    mark = main_checkout.path / ".git/ckpt" / MARK
    instant, *rest = mark.read_text().split()
    mark.write_text(" ".join([str(int(instant) + 10**9), *rest]))
    commit = main_checkout.commit("change", one="1\n")
    time.sleep(1.1)
    flushed.clear()
    get_to_disk(Arrivals(repository).look([commit], []))
    assert set(flushed) >= files_of(main_checkout, commit)


def test_what_is_borrowed_is_flushed_where_it_lies(main_checkout: Checkout, tmp_path: Path, flushed: list[str]) -> None:
    subprocess.run(["git", "clone", "--quiet", "--shared", main_checkout.path, tmp_path / "one"], check=True)
    subprocess.run(["git", "clone", "--quiet", "--shared", tmp_path / "one", tmp_path / "two"], check=True)
    borrower = Checkout(tmp_path / "two")
    settle(borrower)
    commit = main_checkout.commit("change", one="1\n", **{"below/two": "2\n"})
    borrower.git("fetch", "--quiet", str(main_checkout.path))
    flushed.clear()
    get_to_disk(Arrivals(Repository(str(borrower.path / ".git"), None)).look([commit], []))
    wanted = files_of(main_checkout, commit)
    assert set(flushed) >= wanted | {os.path.dirname(path) for path in wanted}


def test_of_a_store_that_is_borrowed_from_since_all_that_is_recent_is_flushed(
    main_checkout: Checkout, tmp_path: Path, flushed: list[str]
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path / "one"], check=True)
    borrower = Checkout(tmp_path / "one")
    borrower.commit("first")
    settle(borrower)
    (borrower.path / ".git/objects/info").mkdir(exist_ok=True)
    (borrower.path / ".git/objects/info/alternates").write_text(f"{main_checkout.path}/.git/objects\n{tmp_path}/gone\n")
    commit = main_checkout.git("rev-parse", "HEAD")
    flushed.clear()
    get_to_disk(Arrivals(Repository(str(borrower.path / ".git"), None)).look([commit], []))
    assert set(flushed) >= files_of(main_checkout, commit)


def test_a_copy_of_the_repository_is_not_taken_for_flushed(main_checkout: Checkout, tmp_path: Path, flushed: list[str]) -> None:
    settle(main_checkout)
    shutil.copytree(main_checkout.path, tmp_path / "copy", symlinks=True)
    flushed.clear()
    copy = Checkout(tmp_path / "copy")
    commit = copy.git("rev-parse", "HEAD")
    get_to_disk(Arrivals(Repository(str(copy.path / ".git"), None)).look([commit], []))
    assert set(flushed) >= files_of(copy, commit)


def test_what_git_has_not_finished_is_left_alone(main_checkout: Checkout, repository: Repository, flushed: list[str]) -> None:
    unfinished = main_checkout.write(".git/objects/pack/tmp_pack_x", "half")
    Arrivals(repository).catch_up()
    assert str(unfinished) not in flushed


def test_what_could_not_be_flushed_is_not_taken_for_flushed(
    main_checkout: Checkout, repository: Repository, flushed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = main_checkout.git("rev-parse", "HEAD")
    with monkeypatch.context() as broken:
        broken.setattr(disk, "flush", lambda *_paths: (_ for _ in ()).throw(CkptError("the disk is broken")))
        with pytest.raises(CkptError, match="the disk is broken"):
            get_to_disk(Arrivals(repository).look([commit], []))
    assert os.listdir(main_checkout.path / ".git/ckpt") == []
    get_to_disk(Arrivals(repository).look([commit], []))
    assert set(flushed) >= files_of(main_checkout, commit)


def test_what_was_looked_for_and_is_not_flushed_is_found_again(main_checkout: Checkout, repository: Repository, flushed: list[str]) -> None:
    commit = main_checkout.head()
    with Arrivals(repository).look([commit], []):
        pass
    assert (os.listdir(main_checkout.path / ".git/ckpt"), flushed) == ([], [])
    get_to_disk(Arrivals(repository).look([commit], []))
    assert set(flushed) >= files_of(main_checkout, commit)


def test_what_is_flushed_a_second_time_is_on_the_disk_as_well(main_checkout: Checkout, repository: Repository, flushed: list[str]) -> None:
    """A transaction whose git was killed is tried again, and what it leads to is flushed again."""
    commit = main_checkout.head()
    with Arrivals(repository).look([commit], []) as due:
        due.flush()
        first = [*flushed]
        due.flush()
    assert sorted(flushed) == sorted(first * 2)
    assert os.listdir(main_checkout.path / ".git/ckpt") == [MARK]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_our_directory_may_be_deleted_meanwhile(
    main_checkout: Checkout, repository: Repository, flushed: list[str], *, is_flushed: bool
) -> None:
    """What is in there is not worth a checkpoint."""
    commit = main_checkout.head()
    with Arrivals(repository).look([commit], []) as due:
        shutil.rmtree(main_checkout.path / ".git/ckpt")
        if is_flushed:
            due.flush()
    assert (files_of(main_checkout, commit) <= set(flushed)) == is_flushed
    assert not (main_checkout.path / ".git/ckpt").exists()
    assert not Arrivals(repository).has_flushed([commit])


@pytest.mark.parametrize(("files", "size", "is_much"), [(1, 100, False), (20, 100, False), (80, 100, True), (1, 6 << 20, True)])
def test_much_is_many_files_or_a_large_one(
    main_checkout: Checkout, repository: Repository, files: int, size: int, *, is_much: bool
) -> None:
    settle(main_checkout)
    for number in range(files):
        (main_checkout.path / f"file-{number}").write_bytes(os.urandom(size))
    main_checkout.git("add", ".")
    main_checkout.git("commit", "-qm", "new")
    with Arrivals(repository).look([main_checkout.head()], []) as due:
        assert due.is_much == is_much


def test_so_are_many_worktrees(main_checkout: Checkout, repository: Repository, tmp_path: Path) -> None:
    """From 64 files on, the whole file system is flushed, with what other programs write."""
    settle(main_checkout)
    for number in range(20):
        main_checkout.git("worktree", "add", "--quiet", "--detach", "--no-checkout", str(tmp_path / f"w{number}"))
    with Arrivals(repository).look([main_checkout.commit("change")], []) as due:
        assert due.is_much


def test_packed_refs_that_were_flushed_count_as_changed_when_they_change_again(
    main_checkout: Checkout, repository: Repository, flushed: list[str]
) -> None:
    del flushed  # which forgets what other tests have flushed
    commit = main_checkout.commit("change", one="1\n")
    main_checkout.git("pack-refs", "--all")
    packed = str(main_checkout.path / ".git/packed-refs")
    assert disk.has_changed(packed)
    get_to_disk(Arrivals(repository).look([commit], [], "main"))
    assert not disk.has_changed(packed)
    wait_for_a_tick(main_checkout.path)
    main_checkout.git("tag", "v1")
    main_checkout.git("pack-refs", "--all")
    assert disk.has_changed(packed)


def test_many_new_objects_are_flushed_at_once(main_checkout: Checkout, repository: Repository, flushed: list[str]) -> None:
    settle(main_checkout)
    flushed.clear()
    commit = main_checkout.commit("many", **{f"file-{number}": f"{number}\n" for number in range(80)})
    get_to_disk(Arrivals(repository).look([commit], []))
    assert len(flushed) < 5


def test_a_head_that_was_written_since_is_flushed_where_the_commit_is_known(
    checkout: Checkout, repository: Repository, flushed: list[str]
) -> None:
    """A checkout of another branch at the same commit writes two files, and what is flushed next gets their names to the disk."""
    commit = checkout.head()
    git_dir = checkout.git("rev-parse", "--absolute-git-dir")
    arrivals = Arrivals(Repository(git_dir, None))
    get_to_disk(arrivals.look([commit], [], "main"))
    wait_for_a_tick(checkout.main)
    checkout.git("checkout", "--quiet", "-b", "other")
    branch = f"{checkout.main}/.git/refs/heads/other"
    for each in (arrivals, Arrivals(Repository(git_dir, None))):  # one that knows the commit, and one that reads of it
        flushed.clear()
        wait_for_a_tick(checkout.main)
        checkout.git("symbolic-ref", "HEAD", "refs/heads/other")
        wait_for_a_tick(checkout.main)
        assert not each.has_flushed([commit], "other")
        get_to_disk(each.look([commit], [], "other"))
        assert f"{git_dir}/HEAD" in flushed
        assert (branch in flushed) == (each is arrivals)
        wait_for_a_tick(checkout.main)
        flushed.clear()
        get_to_disk(each.look([commit], [], "other"))
        assert (each.has_flushed([commit], "other"), flushed) == (True, [])


def test_where_each_worktree_is_is_flushed_whoever_records(main_checkout: Checkout, tmp_path: Path, flushed: list[str]) -> None:
    """There is one mark for all of them: what another worktree wrote before it would never be looked at."""
    settle(main_checkout)
    main_checkout.git("worktree", "add", "--quiet", "-b", "topic", str(tmp_path / "theirs"))
    flushed.clear()
    commit = main_checkout.commit("change")
    get_to_disk(Arrivals(Repository(str(main_checkout.path / ".git"), None)).look([commit], [], "main"))
    common = main_checkout.path / ".git"
    theirs = common / "worktrees/theirs"
    files = {theirs / name for name in ("HEAD", "gitdir", "commondir")} | {common / "refs/heads/topic"}
    assert {str(path) for path in (*files, theirs, common / "worktrees", common)} <= set(flushed)


def test_a_branch_that_stands_for_another_one_is_flushed_with_that(main_checkout: Checkout, flushed: list[str]) -> None:
    settle(main_checkout)
    main_checkout.git("branch", "trunk")
    main_checkout.git("symbolic-ref", "refs/heads/main", "refs/heads/trunk")
    commit = main_checkout.commit("change")
    flushed.clear()
    get_to_disk(Arrivals(Repository(str(main_checkout.path / ".git"), None)).look([commit], [], "main"))
    assert {str(main_checkout.path / ".git/refs/heads" / name) for name in ("main", "trunk")} <= set(flushed)


@pytest.mark.parametrize("said", ["ref: refs/heads/loop", "ref: refs/../../x", "ref: ", "\0\xff", "ref: refs/heads/a\0b"])
def test_a_branch_that_stands_for_nothing_is_passed_over(main_checkout: Checkout, said: str) -> None:
    (main_checkout.path / ".git/refs/heads/loop").write_text(said, encoding="latin-1")
    get_to_disk(Arrivals(Repository(str(main_checkout.path / ".git"), None)).look([main_checkout.head()], [], "loop"))


def test_worktrees_of_somebody_else_are_in_nobodys_way(mortal: None, main_checkout: Checkout, tmp_path: Path, flushed: list[str]) -> None:
    """Who may not read what git keeps of one cannot flush it, and works in another one: each commit and save failed."""
    commit = main_checkout.commit("change", one="1\n")
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    repository = repository_of(main_checkout)
    place = main_checkout.path / ".git/worktrees/linked"
    hidden = place / "gitdir"
    hidden.chmod(0)
    get_to_disk(Arrivals(repository).look([commit], [], "main"))
    assert str(place / "HEAD") in flushed
    assert str(hidden) not in flushed
    repository.close()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_what_is_no_head_of_a_worktree_holds_nobody_up(make: Callable[[Path], None], main_checkout: Checkout, flushed: list[str]) -> None:
    commit = main_checkout.commit("change", one="1\n")
    place = main_checkout.path / ".git/worktrees/odd"
    place.mkdir(parents=True)
    make(place / "HEAD")
    repository = repository_of(main_checkout)
    get_to_disk(Arrivals(repository).look([commit], [], "main"))
    assert files_of(main_checkout, commit) <= set(flushed)
    repository.close()


def test_a_file_in_the_place_of_all_worktrees_is_none(main_checkout: Checkout, flushed: list[str]) -> None:
    commit = main_checkout.commit("change", one="1\n")
    (main_checkout.path / ".git/worktrees").touch()
    repository = repository_of(main_checkout)
    get_to_disk(Arrivals(repository).look([commit], [], "main"))
    assert files_of(main_checkout, commit) <= set(flushed)
    repository.close()


def test_the_branch_of_the_main_worktree_is_flushed_by_who_records_in_another_one(
    main_checkout: Checkout, tmp_path: Path, flushed: list[str]
) -> None:
    """What is older than the mark, which is that of all, is never looked at again."""
    main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    settle(main_checkout)
    commit = main_checkout.commit("without a hook")
    linked = repository_of(Checkout(tmp_path / "linked", main_checkout.path))
    other = main_checkout.git("rev-parse", "HEAD~1")
    flushed.clear()
    get_to_disk(Arrivals(linked).look([other], [], None))
    here = repository_of(main_checkout)
    wait_for_a_tick(main_checkout.main)
    get_to_disk(Arrivals(here).look([commit], [], "main"))
    assert str(main_checkout.path / ".git/refs/heads/main") in flushed
    for repository in (linked, here):
        repository.close()


def test_a_branch_is_flushed_that_notes_were_flushed_after(main_checkout: Checkout, flushed: list[str]) -> None:
    """A rebase ends with both, and the hook that follows looks at the notes first."""
    settle(main_checkout)
    flushed.clear()
    commit = main_checkout.commit("rebased")
    repository = repository_of(main_checkout)
    Arrivals(repository).catch_up(refs=["refs/notes/checkpoints"])
    wait_for_a_tick(main_checkout.main)
    get_to_disk(Arrivals(repository).look([commit], [], "main"))
    assert str(main_checkout.path / ".git/refs/heads/main") in flushed
    repository.close()
