"""What is read from git's files is what git reads; what is not plain, git is asked for."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gitckpt.git.catfile import CatFile
from gitckpt.git.files import reader
from gitckpt.git.files.reader import FileLookup
from gitckpt.git.repository import Repository, discover
from tests.conftest import Checkout


def text(version: int) -> str:
    """Returns a text that git stores as what differs from another version of it, and that from yet another one."""
    return "".join(f"line {n} of a text, which {'is new' if n % 10 < version else 'was there before'}\n" for n in range(200))


class Asked:
    """Counts the questions that went to git."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        info, contents = CatFile.info, CatFile.contents

        def counted_info(itself: CatFile, name: str) -> tuple[str, str, int] | None:
            self.count += 1
            return info(itself, name)

        def counted_contents(itself: CatFile, names: list[str], *most: int) -> Iterator[tuple[str, str, bytes] | None]:
            self.count += len(names)
            return contents(itself, names, *most)

        monkeypatch.setattr(CatFile, "info", counted_info)
        monkeypatch.setattr(CatFile, "contents", counted_contents)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@pytest.fixture(params=["sha1", "sha256"])
def full(request: pytest.FixtureRequest, make_checkout: Callable[..., Checkout]) -> Checkout:
    """A repository with objects of each kind, some of them in two packs as what differs from others, some loose; and refs of all sorts."""
    checkout: Checkout = make_checkout("project", f"--object-format={request.param}")
    for number in range(8):
        checkout.commit(f"commit {number}", text=text(number), **{f"file-{number}": "x" * number})
    checkout.git("tag", "--annotate", "--message=a tag", "v1")
    checkout.git("tag", "light", "HEAD~2")
    checkout.git("branch", "other", "HEAD~3")
    for number in range(40):
        checkout.git("update-ref", f"refs/checkpoints/{number:02}", f"HEAD~{number % 7}")
        checkout.git("update-ref", f"refs/tags/annotated-{number:02}", "v1")
    checkout.git("gc", "--quiet")
    checkout.commit("after", text=text(9))
    checkout.git("update-ref", "refs/checkpoints/20", "HEAD")
    checkout.git("repack", "--quiet", "-d")
    checkout.commit("loose", more="loose\n")
    checkout.git("update-ref", "refs/checkpoints/loose", "HEAD")
    return checkout


def objects(checkout: Checkout) -> list[str]:
    return [line.split()[0] for line in checkout.git("cat-file", "--batch-all-objects", "--batch-check").splitlines()]


def opened(checkout: Checkout) -> tuple[FileLookup, CatFile]:
    repository = discover(str(checkout.path))
    return FileLookup(repository), CatFile(repository.git)


def check_same(checkout: Checkout, names: list[str]) -> None:
    ours, theirs = opened(checkout)
    try:
        assert list(map(ours.info, names)) == list(map(theirs.info, names))
        assert [next(ours.contents([name])) for name in names] == list(theirs.contents(names))
        assert list(ours.contents(names)) == list(theirs.contents(names))
    finally:
        ours.close()
        theirs.close()


def test_each_object_is_the_same(full: Checkout) -> None:
    found = objects(full)
    depths = full.git("verify-pack", "-v", *map(str, (full.path / ".git/objects/pack").glob("*.idx")))
    assert "chain length = 2" in depths
    check_same(full, found)


@pytest.mark.long
def test_no_object_is_asked_for(full: Checkout, asked: Asked) -> None:
    found = objects(full)
    kinds = {name: next(opened(full)[1].contents([name])) for name in found}
    asked.count = 0
    ours, _ = opened(full)
    assert {name: next(ours.contents([name])) for name in found} == kinds
    tags = sum(each is not None and each[1] == "tag" for each in kinds.values())
    assert asked.count == tags  # a tag in a pack is not plain


@pytest.mark.long
def test_each_ref_is_the_same(full: Checkout, asked: Asked) -> None:
    refs = full.git("for-each-ref", "--format=%(refname)").splitlines()
    assert len(refs) > 80
    check_same(full, refs)
    absent = [f"{ref}{ending}" for ref in refs for ending in ("0", "-", "~")] + [ref[:-1] + chr(ord(ref[-1]) - 1) for ref in refs]
    check_same(full, [name for name in absent if "~" not in name])
    asked.count = 0
    ours, _ = opened(full)
    assert [ours.info("HEAD"), ours.info("refs/checkpoints/07"), ours.info("refs/aaa"), ours.info("refs/zzz")].count(None) == 2
    assert asked.count == 0


@pytest.mark.parametrize("count", range(6))
def test_packed_refs_of_any_number(main_checkout: Checkout, count: int) -> None:
    names = [f"refs/checkpoints/{'x' * number}{number}" for number in range(count)]
    for name in names:
        main_checkout.git("update-ref", name, "HEAD")
    main_checkout.git("tag", "--annotate", "--message=a tag", "v1")
    main_checkout.git("pack-refs", "--all", "--prune")
    check_same(
        main_checkout, [*names, "refs/heads/main", "refs/tags/v1", "refs/a", "refs/checkpoints/y", "refs/checkpoints/x", "refs/z", "HEAD"]
    )


def test_names_that_are_not_plain(main_checkout: Checkout) -> None:
    check_same(
        main_checkout,
        [
            "HEAD:README",
            "HEAD^{tree}",
            "HEAD~9",
            "main",
            "refs/heads",
            "refs/heads/",
            "refs/heads/../heads/main",
            "",
            "1" * 39,
            "1" * 40,
            "@",
        ],
    )


def test_head_of_each_worktree(checkout: Checkout, asked: Asked) -> None:
    check_same(checkout, ["HEAD", "ORIG_HEAD"])
    checkout.commit("more")
    checkout.git("reset", "--quiet", "--hard", "HEAD~1")
    asked.count = 0
    ours, _ = opened(checkout)
    assert [ours.info(name) is None for name in ("HEAD", "ORIG_HEAD")] == [False, False]
    assert asked.count == 0
    check_same(checkout, ["HEAD", "ORIG_HEAD"])
    checkout.git("checkout", "--quiet", "--detach")
    check_same(checkout, ["HEAD"])
    checkout.git("checkout", "--quiet", "--orphan", "unborn")
    check_same(checkout, ["HEAD"])


def test_a_ref_of_a_worktree_is_that_of_ours(checkout: Checkout) -> None:
    checkout.git("update-ref", "refs/worktree/mine", "HEAD")
    check_same(checkout, ["refs/worktree/mine", "refs/bisect/bad"])


def test_a_symbolic_ref_leads_on(main_checkout: Checkout) -> None:
    main_checkout.git("symbolic-ref", "refs/checkpoints/symbolic", "refs/heads/main")
    os.symlink("main", main_checkout.path / ".git/refs/heads/linked")
    os.symlink("nowhere", main_checkout.path / ".git/refs/heads/broken")
    check_same(main_checkout, ["refs/checkpoints/symbolic", "refs/heads/linked", "refs/heads/broken"])


@pytest.mark.parametrize("text", ["", "\n", "garbage\n", "1" * 40, "1" * 40 + "\n"])
def test_a_broken_ref_is_what_git_says(main_checkout: Checkout, text: str) -> None:
    (main_checkout.path / ".git/refs/heads/broken").write_text(text)
    check_same(main_checkout, ["refs/heads/broken"])


@pytest.mark.parametrize("first", ["", "# pack-refs with: peeled \n"])
def test_packed_refs_that_are_not_sorted(main_checkout: Checkout, first: str) -> None:
    oid = main_checkout.git("rev-parse", "HEAD")
    main_checkout.git("pack-refs", "--all")
    (main_checkout.path / ".git/packed-refs").write_text(f"{first}{oid} refs/heads/z\n{oid} refs/heads/main\n{oid} refs/heads/a\n")
    check_same(main_checkout, ["refs/heads/main", "refs/heads/a", "refs/heads/z", "refs/heads/m"])


def test_a_ref_with_a_very_long_name(main_checkout: Checkout) -> None:
    oid = main_checkout.git("rev-parse", "HEAD")
    main_checkout.git("pack-refs", "--all")
    names = ["refs/heads/a", f"refs/heads/{'b/' * 900}b", "refs/heads/c"]
    text = "".join(f"{oid} {name}\n" for name in names)
    (main_checkout.path / ".git/packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted \n{text}")
    check_same(main_checkout, names)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_object_is_what_git_says(main_checkout: Checkout, damage: str) -> None:
    oid = main_checkout.git("rev-parse", "HEAD:README")
    path = main_checkout.path / ".git/objects" / oid[:2] / oid[2:]
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes({"flip": data[:-1] + bytes([data[-1] ^ 1]), "cut": data[:-6], "empty": b""}[damage])
    ours, theirs = opened(main_checkout)
    assert list(ours.contents([oid, oid])) == list(theirs.contents([oid, oid]))


@pytest.mark.long
def test_a_damaged_pack_gives_nothing_that_was_not_asked_for(full: Checkout) -> None:
    data = max((full.path / ".git/objects/pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    names = objects(full)
    whole = {name: next(opened(full)[1].contents([name])) for name in names}
    content = data.read_bytes()
    data.chmod(0o644)
    for at in range(12, len(content) - 20, 37):
        data.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
        ours, _ = opened(full)
        for name in names:
            found = ours._look(name)
            assert found is None or found == whole[name]


def test_objects_of_an_alternate_are_asked_for(main_checkout: Checkout, tmp_path: Path) -> None:
    main_checkout.git("clone", "--quiet", "--shared", ".", str(tmp_path / "borrower"))
    check_same(Checkout(tmp_path / "borrower"), ["HEAD", main_checkout.git("rev-parse", "HEAD:README")])


def test_what_is_small_is_read_into_little_memory(main_checkout: Checkout) -> None:
    ours, _ = opened(main_checkout)
    ours.info("HEAD")
    tracemalloc.start()
    try:
        assert next(ours.contents(["HEAD"])) is not None
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()


def test_a_head_that_says_too_much_is_left_to_git(main_checkout: Checkout, asked: Asked) -> None:
    (main_checkout.path / ".git/HEAD").write_text(f"ref: refs/heads/main{' ' * reader._LONG}\n")
    ours, theirs = opened(main_checkout)
    assert ours.info("HEAD") == theirs.info("HEAD")
    assert asked.count == 2


def test_large_objects_are_asked_for(main_checkout: Checkout) -> None:
    names = [main_checkout.git("hash-object", "-w", "--stdin", data="x" * size) for size in ((1 << 20) - 9, 1 << 20, 3 << 20)]
    check_same(main_checkout, names)
    for name in names:
        main_checkout.git("update-ref", f"refs/checkpoints/{name}", name)
    main_checkout.git("gc", "--quiet")
    check_same(main_checkout, names)


def test_packs_by_the_dozen_are_left_to_git(main_checkout: Checkout, asked: Asked) -> None:
    commits = []
    for number in range(reader._MANY + 1):
        commits.append(main_checkout.commit(f"{number}"))
        main_checkout.git("repack", "--quiet", "-d")
    check_same(main_checkout, commits)
    asked.count = 0
    opened(main_checkout)[0].info(commits[0])
    assert asked.count == 1


def test_without_any_pack_or_packed_refs(main_checkout: Checkout) -> None:
    (main_checkout.path / ".git/objects/pack").rmdir()
    check_same(main_checkout, ["HEAD", "refs/heads/main", "refs/heads/none", "1" * 40])


@pytest.mark.usefixtures("newer_git")
def test_reftables_are_left_to_git(make_checkout: Callable[..., Checkout]) -> None:
    checkout = make_checkout("project", "--ref-format=reftable")
    checkout.commit("first")
    check_same(checkout, ["HEAD", "refs/heads/main", "refs/heads/none"])


def test_what_comes_later_is_seen(main_checkout: Checkout, repository: Repository) -> None:
    ours = FileLookup(repository)
    assert ours.info("refs/checkpoints/new") is None
    main_checkout.git("update-ref", "refs/checkpoints/new", "HEAD")
    assert ours.info("refs/checkpoints/new") is not None
    main_checkout.git("gc", "--quiet")
    assert ours.info("refs/checkpoints/new") is not None
