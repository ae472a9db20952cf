"""Packing the refs of gitckpt leaves all other refs as they are.

git has `pack-refs --include` since 2.42; older versions need a scratch repository of links.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import GitError
from gitckpt.git import fsync
from gitckpt.git.command import require_git_version
from gitckpt.git.packing import count_loose_refs, pack_refs
from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.git.repository import Repository, discover_repository
from tests.conftest import Checkout, MakeOnce

OURS = ("refs/checkpoints", "refs/ckpt")
BY_LINKS, BY_OPTION = (2, 39, 5), (2, 42)

Open = Callable[..., Repository]


@pytest.fixture(params=[BY_LINKS, BY_OPTION], ids=["by-links", "by-option"])
def version(request: pytest.FixtureRequest) -> tuple[int, ...]:
    """Select a way of packing: links work with every git, the option with a newer one."""
    chosen: tuple[int, ...] = request.param
    if chosen == BY_OPTION > require_git_version():
        request.getfixturevalue("newer_git")
    return chosen


@pytest.fixture
def filled(main_checkout: Checkout, make_once: MakeOnce) -> Checkout:
    """A repository with loose and packed refs of gitckpt and of others."""
    checkout = main_checkout

    def fill() -> None:
        head = checkout.git("rev-parse", "HEAD")
        checkout.git("tag", "--annotate", "--message=a tag", "v1")
        checkout.git("branch", "packed/branch")
        checkout.git("update-ref", "refs/checkpoints/packed", head)
        checkout.git("pack-refs", "--all", "--prune")
        checkout.git("branch", "loose")
        checkout.git("tag", "--annotate", "--message=another", "v2")
        add(checkout, 5)
        checkout.git("update-ref", "refs/ckpt/tagged", checkout.git("rev-parse", "v2"))
        checkout.git("update-ref", "refs/notes/checkpoints", head)
        checkout.git("update-ref", "refs/checkpoints-not/x", head)

    make_once(checkout, fill)
    return checkout


def add(checkout: Checkout, count: int) -> None:
    head = checkout.git("rev-parse", "HEAD")
    names = [f"refs/checkpoints/{number}" for number in range(count)] + [
        f"refs/ckpt/trees/{number}" for number in range(count)
    ]
    checkout.git("update-ref", "--stdin", data="".join(f"create {name} {head}\n" for name in names))


def loose(checkout: Checkout) -> list[str]:
    top = checkout.main / ".git"
    return sorted(
        str(path.relative_to(top)) for path in (top / "refs").rglob("*") if path.is_file()
    )


LOOSE_OTHERS = [
    "refs/checkpoints-not/x",
    "refs/heads/loose",
    "refs/notes/checkpoints",
    "refs/tags/v2",
]


def leftovers(checkout: Checkout) -> list[str]:
    """Return files in the private directory, and those beside the packed refs."""
    top = checkout.main / ".git"
    return sorted(
        str(path.relative_to(top))
        for pattern in ("ckpt/*", "packed-refs.*")
        for path in top.glob(pattern)
    )


def see(checkout: Checkout) -> str:
    """Return the target of each ref, and the object that a tag points to."""
    return checkout.git(
        "for-each-ref", "--format=%(refname) %(objectname) %(*objectname)"
    ) + checkout.git("show-ref", "--dereference")


class TestPack:
    def test_packs_ours_and_leaves_the_others(
        self, filled: Checkout, opened: Open, version: tuple[int, ...]
    ) -> None:
        before = see(filled)
        assert pack_refs(opened(filled), OURS, version)
        assert [loose(filled), see(filled), leftovers(filled)] == [LOOSE_OTHERS, before, []]
        assert filled.git("fsck", "--strict", "--no-dangling") == ""
        packed = (filled.path / ".git" / "packed-refs").read_text().splitlines()
        tag, commit = filled.git("rev-parse", "v2", "v2^{commit}").splitlines()
        assert packed[packed.index(f"{tag} refs/ckpt/tagged") + 1] == f"^{commit}"
        names = [line.split()[1] for line in packed if line[0] not in "#^"]
        assert names == sorted(
            [
                "refs/checkpoints/packed",
                "refs/ckpt/tagged",
                "refs/heads/main",
                "refs/heads/packed/branch",
                "refs/tags/v1",
            ]
            + [
                f"refs/{name}/{number}"
                for name in ("checkpoints", "ckpt/trees")
                for number in range(5)
            ]
        )

    def test_where_nothing_was_packed_before(
        self, main_checkout: Checkout, opened: Open, version: tuple[int, ...]
    ) -> None:
        add(main_checkout, 3)
        before = see(main_checkout)
        assert pack_refs(opened(main_checkout), OURS, version)
        assert [loose(main_checkout), see(main_checkout), leftovers(main_checkout)] == [
            ["refs/heads/main"],
            before,
            [],
        ]
        assert not (main_checkout.path / ".git" / "packed-refs").is_symlink()

    def test_a_second_time(self, filled: Checkout, opened: Open, version: tuple[int, ...]) -> None:
        repository = opened(filled)
        pack_refs(repository, OURS, version)
        before = see(filled)
        pack_refs(repository, OURS, version)
        assert [loose(filled), see(filled)] == [LOOSE_OTHERS, before]

    def test_newer_values_win(
        self, filled: Checkout, opened: Open, version: tuple[int, ...]
    ) -> None:
        tree = filled.git("rev-parse", "HEAD^{tree}")
        filled.git("update-ref", "refs/checkpoints/packed", tree)
        assert pack_refs(opened(filled), OURS, version)
        assert filled.refs("refs/checkpoints/packed") == {"refs/checkpoints/packed": tree}

    def test_of_one_nested_namespace(
        self, filled: Checkout, opened: Open, version: tuple[int, ...]
    ) -> None:
        before = see(filled)
        assert pack_refs(opened(filled), ["refs/ckpt/trees", "refs/ckpt/none"], version)
        ours = [f"refs/checkpoints/{number}" for number in range(5)] + ["refs/ckpt/tagged"]
        assert [loose(filled), see(filled)] == [sorted([*LOOSE_OTHERS, *ours]), before]

    def test_of_nothing_is_not_done(
        self, main_checkout: Checkout, opened: Open, version: tuple[int, ...]
    ) -> None:
        repository = opened(main_checkout)
        before = main_checkout.fingerprint()
        assert not pack_refs(repository, OURS, version)
        assert [main_checkout.fingerprint(), loose(main_checkout)] == [before, ["refs/heads/main"]]

    def test_from_a_linked_worktree(
        self, filled: Checkout, tmp_path: Path, opened: Open, version: tuple[int, ...]
    ) -> None:
        filled.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
        before = see(filled)
        assert pack_refs(opened(tmp_path / "linked"), OURS, version)
        assert [loose(filled), see(filled), leftovers(filled)] == [LOOSE_OTHERS, before, []]

    def test_in_a_submodule_whose_worktree_is_configured(
        self,
        main_checkout: Checkout,
        make_checkout: Callable[..., Checkout],
        opened: Open,
        version: tuple[int, ...],
    ) -> None:
        outer = make_checkout("outer")
        outer.git("submodule", "--quiet", "add", str(main_checkout.path), "inner")
        inner = Checkout(outer.path / "inner")
        add(inner, 3)
        before = see(inner)
        assert pack_refs(opened(inner), OURS, version)
        assert see(inner) == before
        assert count_loose_refs(opened(inner)) == 0

    def test_with_sha256_and_a_bare_repository(
        self, make_checkout: Callable[..., Checkout], opened: Open, version: tuple[int, ...]
    ) -> None:
        checkout = make_checkout("project", "--bare", "--object-format=sha256")
        blob = checkout.git("hash-object", "-w", "--stdin", data="text")
        checkout.git("update-ref", "refs/checkpoints/a", blob)
        assert pack_refs(opened(checkout), OURS, version)
        assert (checkout.refs(), count_loose_refs(opened(checkout))) == (
            {"refs/checkpoints/a": blob},
            0,
        )
        assert f"{blob} refs/checkpoints/a\n" in (checkout.path / "packed-refs").read_text()

    def test_with_objects_of_an_alternate(
        self, main_checkout: Checkout, tmp_path: Path, opened: Open, version: tuple[int, ...]
    ) -> None:
        borrower = Checkout(tmp_path / "borrower")
        main_checkout.git("clone", "--quiet", "--shared", ".", str(borrower.path))
        alternates = borrower.path / ".git" / "objects" / "info" / "alternates"
        alternates.write_text("../../../project/.git/objects\n")
        add(borrower, 3)
        before = see(borrower)
        assert pack_refs(opened(borrower), OURS, version)
        assert (see(borrower), count_loose_refs(opened(borrower))) == (before, 0)

    def test_with_a_path_of_any_name(
        self, main_checkout: Checkout, tmp_path: Path, opened: Open, version: tuple[int, ...]
    ) -> None:
        moved = Checkout(tmp_path / "a b'\"\n größe \udcff*[x]")
        main_checkout.path.rename(moved.path)
        add(moved, 3)
        before = see(moved)
        assert pack_refs(opened(moved), OURS, version)
        assert [loose(moved), see(moved)] == [["refs/heads/main"], before]

    def test_group_may_still_write(
        self, make_checkout: Callable[..., Checkout], opened: Open, version: tuple[int, ...]
    ) -> None:
        checkout = make_checkout("project", "--shared=group")
        checkout.commit("first")
        add(checkout, 2)
        pack_refs(opened(checkout), OURS, version)
        assert oct((checkout.path / ".git" / "packed-refs").stat().st_mode & 0o060) == "0o60"

    def test_runs_no_hook(self, filled: Checkout, opened: Open, version: tuple[int, ...]) -> None:
        hook = filled.write(
            ".git/hooks/reference-transaction",
            '#!/bin/sh\ntouch "$(git rev-parse --git-common-dir)/ran"\n',
        )
        hook.chmod(0o755)
        filled.git("config", "core.hooksPath", str(hook.parent))
        assert pack_refs(opened(filled), OURS, version)
        assert not (filled.path / ".git" / "ran").exists()

    def test_is_on_the_disk_before_loose_refs_go(
        self, filled: Checkout, opened: Open, version: tuple[int, ...], flushes: Callable[[], int]
    ) -> None:
        repository = opened(filled)
        before = flushes()
        pack_refs(repository, OURS, version)
        assert flushes() - before == 2  # once with all loose refs, and once for the deleted refs

    def test_the_name_of_the_packed_refs_is_on_the_disk_before_loose_refs_go(
        self,
        filled: Checkout,
        opened: Open,
        version: tuple[int, ...],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        loose_then: list[int] = []
        monkeypatch.setattr(fsync, "flush", lambda paths: loose_then.append(len(loose(filled))))
        before = len(loose(filled))
        pack_refs(opened(filled), OURS, version)
        assert loose_then[0] == before > loose_then[-1] == len(loose(filled))

    def test_broken_refs_stay_for_the_doctor(
        self, filled: Checkout, opened: Open, version: tuple[int, ...]
    ) -> None:
        filled.write(".git/refs/checkpoints/dangling", "1" * 40 + "\n")
        filled.write(".git/refs/checkpoints/empty", "")
        pack_refs(opened(filled), OURS, version)
        assert loose(filled) == sorted(
            ["refs/checkpoints/dangling", "refs/checkpoints/empty", *LOOSE_OTHERS]
        )

    def test_not_with_reftables(
        self, newer_git: str, make_checkout: Callable[..., Checkout], opened: Open
    ) -> None:
        checkout = make_checkout("project", "--ref-format=reftable")
        checkout.commit("first")
        add(checkout, 3)
        before = see(checkout)
        for each in (BY_LINKS, BY_OPTION):
            assert not pack_refs(opened(checkout), OURS, each)
        assert (see(checkout), count_loose_refs(opened(checkout))) == (before, 0)


class TestLocks:
    def test_the_lock_of_the_packed_refs_is_that_of_everybody(
        self, filled: Checkout, opened: Open, version: tuple[int, ...]
    ) -> None:
        lock = filled.write(".git/packed-refs.lock", "")
        before = (see(filled), loose(filled), (filled.path / ".git" / "packed-refs").read_bytes())
        assert not pack_refs(opened(filled), OURS, version)
        assert (
            see(filled),
            loose(filled),
            (filled.path / ".git" / "packed-refs").read_bytes(),
        ) == before
        assert leftovers(filled) == ["packed-refs.lock"]
        lock.unlink()
        assert pack_refs(opened(filled), OURS, version)
        assert loose(filled) == LOOSE_OTHERS

    def test_a_locked_ref_stays_loose_and_is_not_lost(
        self, filled: Checkout, opened: Open, version: tuple[int, ...]
    ) -> None:
        lock = filled.write(".git/refs/checkpoints/3.lock", "")
        before = see(filled)
        pack_refs(opened(filled), OURS, version)
        assert (see(filled), lock.exists(), leftovers(filled)) == (before, True, [])
        assert {"refs/checkpoints/3", "refs/checkpoints/3.lock"} <= set(loose(filled))

    def test_other_failures_are_errors_and_leave_no_scratch(
        self, filled: Checkout, opened: Open, version: tuple[int, ...]
    ) -> None:
        repository = opened(filled)
        before = loose(filled)
        packed = filled.path / ".git" / "packed-refs"
        good = packed.read_text()
        packed.write_text("nonsense\n")
        with pytest.raises(
            GitError,
            match=r"git pack-refs failed: fatal: unexpected line in .*packed-refs: nonsense",
        ):
            pack_refs(repository, OURS, version)
        packed.write_text(good)
        assert [loose(filled), leftovers(filled)] == [before, []]


class TestCountLoose:
    def test_counts_checkpoints_alone(self, main_checkout: Checkout, opened: Open) -> None:
        repository = opened(main_checkout)
        without = count_loose_refs(repository)
        add(main_checkout, 4)
        main_checkout.write(".git/refs/checkpoints/x.lock", "")
        main_checkout.git("update-ref", "refs/checkpoints/directory/ref", "HEAD")
        assert [without, count_loose_refs(repository)] == [0, 4]

    def test_of_a_linked_worktree(
        self, main_checkout: Checkout, tmp_path: Path, opened: Open
    ) -> None:
        main_checkout.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
        add(main_checkout, 4)
        assert count_loose_refs(opened(tmp_path / "linked")) == 4

    def test_where_the_directory_is_none(
        self, main_checkout: Checkout, repository: Repository
    ) -> None:
        main_checkout.write(".git/refs/checkpoints", "")
        assert count_loose_refs(repository) == 0


def create(path: str, oid: str, number: int, count: int) -> None:
    repository = discover_repository(path)
    refs = Refs(repository)
    for serial in range(count):
        name = f"{number}-{serial}"
        refs.apply_updates(
            [
                RefUpdate(f"refs/ckpt/trees/{name}", oid, ""),
                RefUpdate(f"refs/checkpoints/{name}", oid, ""),
            ]
        )
    refs.close()
    repository.close()


def delete(path: str, oid: str, count: int) -> None:
    repository = discover_repository(path)
    refs = Refs(repository)
    for serial in range(0, count, 5):
        names = [f"refs/checkpoints/old-{number}" for number in range(serial, serial + 5)]
        refs.apply_updates([RefUpdate(name, "", oid) for name in names])
    refs.close()
    repository.close()


def pack_until(path: str, version: tuple[int, ...], stop: str) -> None:
    repository = discover_repository(path)
    while not os.path.exists(stop):
        pack_refs(repository, OURS, version)
    repository.close()


@pytest.mark.long
def test_packing_while_others_write_loses_and_resurrects_nothing(
    main_checkout: Checkout, tmp_path: Path, version: tuple[int, ...]
) -> None:
    checkout, count = main_checkout, 120
    path, stop = str(checkout.path), tmp_path / "stop"
    oid = checkout.git("hash-object", "-w", "--stdin", data="text")
    olds = [f"refs/checkpoints/old-{number}" for number in range(count)]
    checkout.git("update-ref", "--stdin", data="".join(f"create {name} {oid}\n" for name in olds))
    context = multiprocessing.get_context("fork")
    packer = context.Process(target=pack_until, args=(path, version, str(stop)))
    writers = [
        context.Process(target=create, args=(path, oid, number, count)) for number in range(3)
    ]
    writers.append(context.Process(target=delete, args=(path, oid, count)))
    for process in (packer, *writers):
        process.start()
    for process in writers:
        process.join()
    stop.touch()
    packer.join()
    assert [process.exitcode for process in (packer, *writers)] == [0] * 5
    names = [f"{number}-{serial}" for number in range(3) for serial in range(count)]
    expected = dict.fromkeys(
        [f"refs/{kind}/{name}" for kind in ("checkpoints", "ckpt/trees") for name in names], oid
    )
    assert checkout.refs("refs/checkpoints", "refs/ckpt") == expected
    assert [entry for entry in loose(checkout) if entry.endswith(".lock")] == []
    assert leftovers(checkout) == []
    assert checkout.git("fsck", "--strict", "--no-dangling") == ""
    assert checkout.refs("refs/heads") == {"refs/heads/main": checkout.git("rev-parse", "HEAD")}
    assert "refs/heads/main" in loose(checkout)
