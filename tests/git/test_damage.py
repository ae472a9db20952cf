"""`graph` finds every damaged object, loose or packed, and no intact one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import GitError
from gitckpt.git import graph
from gitckpt.git.contents import refusal
from gitckpt.git.repository import Repository
from tests.conftest import Checkout
from tests.damaging import KINDS, place_of, spoil


def filled(checkout: Checkout, count: int = 300) -> list[str]:
    """Commit blobs smaller and larger than a pipe's buffer; return their oids."""
    # Repeated letters will not do: a flipped bit in their stream can decode to the same text.
    files = {
        f"d/{number}": "".join(map(str, range(number * 199))) + f"{number}\n"
        for number in range(count)
    }
    checkout.commit("many", **files)
    return checkout.git("ls-tree", "--format=%(objectname)", "HEAD:d").splitlines()


def only_pack(checkout: Checkout, ending: str = ".pack") -> Path:
    (path,) = (checkout.path / ".git/objects/pack").glob(f"*{ending}")
    return path


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.turns("object_format")
@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
@pytest.mark.parametrize("packed", [False, True])
def test_nothing_is(
    make_checkout: Callable[..., Checkout],
    opened: Callable[..., Repository],
    object_format: str,
    packed: bool,
) -> None:
    checkout = make_checkout("project", f"--object-format={object_format}")
    filled(checkout, 150)
    checkout.git(
        "replace", checkout.git("rev-parse", "HEAD:d/1"), checkout.git("rev-parse", "HEAD:d/2")
    )
    if packed:
        checkout.git("gc", "--quiet")
    repository = opened(checkout)
    told: list[tuple[int, int]] = []
    assert (
        graph.find_all_unreadable(repository, lambda count, of: told.append((count, of))) == set()
    )
    assert graph.find_empty_loose_objects(repository) == {}
    assert told[-1][0] == told[-1][1] > 150


def test_nothing_is_where_nothing_is(
    make_checkout: Callable[..., Checkout], opened: Callable[..., Repository]
) -> None:
    assert graph.find_all_unreadable(opened(make_checkout())) == set()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_loose_ones(
    make_checkout: Callable[..., Checkout],
    opened: Callable[..., Repository],
    how: str,
    object_format: str,
) -> None:
    checkout = make_checkout("project", f"--object-format={object_format}")
    hit = filled(checkout, 30)[3::9]
    for oid in hit:
        spoil(place_of(checkout, oid), how)
    repository = opened(checkout)
    assert graph.find_all_unreadable(repository) == set(hit)
    assert set(graph.find_empty_loose_objects(repository)) == (
        set(hit) if how == "empty" else set()
    )


def test_one_with_the_content_of_another(main_checkout: Checkout, repository: Repository) -> None:
    """The file's checksums match its content, but its name belongs to another object."""
    one, two = filled(main_checkout, 2)
    place_of(main_checkout, one).chmod(0o644)
    place_of(main_checkout, one).write_bytes(place_of(main_checkout, two).read_bytes())
    assert graph.find_all_unreadable(repository) == {one}


def test_packed_ones(main_checkout: Checkout, repository: Repository) -> None:
    filled(main_checkout, 30)
    main_checkout.git("gc", "--quiet")
    pack = only_pack(main_checkout)
    listed = main_checkout.git(
        "verify-pack", "-v", str(only_pack(main_checkout, ".idx"))
    ).splitlines()
    entries = [line.split() for line in listed if " blob " in line and len(line.split()) == 5]
    oid, _, _, size, offset = max(entries, key=lambda words: int(words[3]))
    pack.chmod(0o644)
    with pack.open("r+b") as file:
        file.seek(int(offset) + int(size) // 2)
        file.write(b"\xff\0\xff")
    assert oid in graph.find_all_unreadable(repository)
    main_checkout.git("fsck", ok=(1, 2, 3, 4, 5, 6, 7))


def test_what_is_there_twice_is_read_where_it_is_whole(
    main_checkout: Checkout, repository: Repository
) -> None:
    oid = filled(main_checkout, 1)[0]
    main_checkout.git("repack", "--quiet")
    spoil(place_of(main_checkout, oid), "empty")
    assert graph.find_all_unreadable(repository) == set()
    assert graph.find_empty_loose_objects(repository) == {oid: str(place_of(main_checkout, oid))}


def test_what_a_gc_deletes_meanwhile_is_no_damage(
    main_checkout: Checkout, repository: Repository
) -> None:
    hit, *_ = filled(main_checkout, 2)
    gone = main_checkout.git("hash-object", "-w", "--stdin", data="unreachable\n")
    spoil(place_of(main_checkout, hit), "cut")
    once = [True]

    def progress(count: int, of: int) -> None:
        place_of(main_checkout, gone).unlink(missing_ok=True)
        once.clear()

    assert graph.find_all_unreadable(repository, progress) == {hit}
    assert graph.find_unreadable(repository, [hit, gone]) == {hit, gone}


def test_a_large_one(
    main_checkout: Checkout, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "_LARGE", 1000)
    whole, hit = (
        main_checkout.git("hash-object", "-w", "--stdin", data=os.urandom(5000)) for _ in range(2)
    )
    spoil(place_of(main_checkout, hit), "flipped")
    assert graph.find_unreadable(repository, [whole, hit]) == {hit}


def test_what_is_moved_aside_is_kept(main_checkout: Checkout, repository: Repository) -> None:
    oid = filled(main_checkout, 1)[0]
    content = place_of(main_checkout, oid).read_bytes()
    assert graph.move_object_aside(repository, oid)
    assert not graph.move_object_aside(repository, oid)
    assert (main_checkout.path / ".git/ckpt/damaged" / oid).read_bytes() == content


def test_a_file_that_cannot_be_read_is_not_one_that_cannot_be_stored() -> None:
    """Git prints the same line for both, and another line before it."""
    short = GitError(
        ["update-index"],
        128,
        "error: short read while indexing a\nerror: a: failed to insert into database\n",
    )
    full = GitError(
        ["update-index"],
        128,
        "error: unable to create temporary file: x\nerror: a: failed to insert into database\n",
    )
    assert [refusal.is_storage_failure(error) for error in (short, full)] == [False, True]
