"""`save` rewrites damaged objects if the worktree has their files.

git itself never rewrites an object whose file exists.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitckpt import CkptError, Store, WorktreeError
from tests.conftest import Checkout
from tests.damaging import KINDS, place_of, some, spoil, spoil_packed
from tests.store.conftest import ONE, MakeStore, require_whole, view
from tests.stores import private_dir

pytestmark = pytest.mark.long

PLACES = (
    "files/new",
    "files/deep/changed",
    "files/deep/staged",
    "files/link",
    "files",
    "files/deep",
    "index/0",
    "index",
    "",
)


def fill(checkout: Checkout) -> None:
    checkout.write("deep/staged", "staged, and not committed\n" * 20)
    checkout.git("add", "deep/staged")
    checkout.write("deep/changed", "changed, and not committed\n" * 20)
    checkout.write("new", "new, and not committed\n" * 20)
    (checkout.path / "link").symlink_to("wherever the wind blows, and the rain falls")


def told(store: Store) -> list[str]:
    """Return the lines in the store's log about rewritten objects."""
    path = Path(private_dir(store), "log")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [line.partition(" ")[2] for line in lines if "rewritten" in line]


@pytest.mark.long(but=some(PLACES, [*KINDS, "missing"]))
@pytest.mark.parametrize("how", [*KINDS, "missing"])
@pytest.mark.parametrize("path", PLACES)
def test_it_is_written_again(
    main_checkout: Checkout, make_store: MakeStore, path: str, how: str
) -> None:
    fill(main_checkout)
    with make_store(main_checkout) as store:
        store.save("one-complete")
        oid = main_checkout.git("rev-parse", f"refs/ckpt/trees/{ONE}:{path}")
        # With time stamps in the index, save reads only the files that it has to.
        main_checkout.git("update-index", "-q", "--refresh", ok=(0, 1))
        before = view(main_checkout.path)
        if how == "missing":
            place_of(main_checkout, oid).unlink()
        else:
            spoil(place_of(main_checkout, oid), how)
        made = store.save("two-complete")
        said = list(told(store))
        if how == "empty" and path in ("index", ""):
            assert said == []  # gitckpt's own write replaces the empty file
        elif how != "missing":
            assert [oid in sentence and "rewritten" in sentence for sentence in said] == [True]
        assert set(require_whole(main_checkout)) == {ONE, made.id}
        assert main_checkout.git("fsck", "--no-dangling") == ""
        store.save("three-complete")
        assert told(store) == said
    assert view(main_checkout.path) == before
    for sentence in said:
        with open(os.path.join(private_dir(store), "log"), encoding="utf-8") as file:
            assert sentence in file.read()


def test_what_was_left_of_a_tree_is_put_aside(
    main_checkout: Checkout, make_store: MakeStore
) -> None:
    fill(main_checkout)
    with make_store(main_checkout) as store:
        store.save("one-complete")
        oid = main_checkout.git("rev-parse", f"refs/ckpt/trees/{ONE}:files/deep")
        spoil(place_of(main_checkout, oid), "cut")
        left = place_of(main_checkout, oid).read_bytes()
        store.save("two-complete")
    assert (main_checkout.path / ".git/ckpt/damaged" / oid).read_bytes() == left


def test_a_packed_one(main_checkout: Checkout, make_store: MakeStore) -> None:
    main_checkout.write("new", os.urandom(5000))
    with make_store(main_checkout) as store:
        store.save("one-complete")
        oid = main_checkout.git("rev-parse", f"refs/ckpt/trees/{ONE}:files/new")
        main_checkout.git("gc", "--quiet")
        (pack,) = (main_checkout.path / ".git/objects/pack").glob("*.pack")
        pack.chmod(0o644)
        data = pack.read_bytes()
        middle = len(data) // 2
        pack.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        made = store.save("two-complete")
        assert [oid in sentence for sentence in told(store)] == [True]
        assert store.read(made.id).tree == made.tree
    assert main_checkout.blobs(f"refs/ckpt/trees/{made.id}:files/new") == [
        (main_checkout.path / "new").read_bytes()
    ]


@pytest.mark.parametrize("place", ["files/deep", "files"])
def test_a_packed_tree_is_named(main_checkout: Checkout, make_store: MakeStore, place: str) -> None:
    """Git finds the damaged tree in its pack, and there is no file to move away."""
    main_checkout.commit("rules", **{".gitattributes": "* text=auto\n"})
    for number in range(5):
        main_checkout.write(f"deep/{number}", f"content {number}\n" * 40)
    with make_store(main_checkout) as store:
        store.save("one-complete")
        oid = main_checkout.git("rev-parse", f"refs/ckpt/trees/{ONE}:{place}")
        main_checkout.git("gc", "--quiet", "--prune=now")
        spoil_packed(main_checkout, oid)
        with pytest.raises(CkptError, match=oid) as caught:
            store.save("two-complete")
        assert "git ckpt verify --contents" in str(caught.value.hint)
        assert [entry.id for entry in store.list()] == [ONE]


def test_a_tree_of_the_commit_that_is_nowhere_stays_where_it_is(
    main_checkout: Checkout, make_store: MakeStore
) -> None:
    """The damaged file may hold all that remains, and `save` could not rewrite it."""
    main_checkout.commit("more", **{"c/x": "x\n", "c/y": "y\n"})
    oid = main_checkout.git("rev-parse", "HEAD:c")
    main_checkout.write("c/y", "another\n")
    main_checkout.git("add", "c/y")
    spoil(place_of(main_checkout, oid), "cut")
    left = place_of(main_checkout, oid).read_bytes()
    with make_store(main_checkout) as store:
        with pytest.raises(WorktreeError, match=oid):
            store.save("one-complete")
        assert told(store) == []
        assert place_of(main_checkout, oid).read_bytes() == left


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", [*KINDS, "missing"])
def test_what_was_staged_and_is_nowhere_is_named(
    main_checkout: Checkout, make_store: MakeStore, how: str
) -> None:
    fill(main_checkout)
    oid = main_checkout.git("rev-parse", ":deep/staged")
    main_checkout.write("deep/staged", "something else\n")
    if how == "missing":
        place_of(main_checkout, oid).unlink()
    else:
        spoil(place_of(main_checkout, oid), how)
    before = main_checkout.refs()
    with make_store(main_checkout) as store:
        with pytest.raises(WorktreeError) as caught:
            store.save("one-complete")
        assert caught.value.message == (
            f"the object {oid} of deep/staged is missing or damaged, and no file has that content"
        )
        assert caught.value.hint == (
            "stage the file again: git add; or see how to fetch the object: "
            "git ckpt verify --contents"
        )
        assert {
            ref: oid
            for ref, oid in main_checkout.refs().items()
            if not ref.startswith(("refs/keep", "refs/notes"))
        } == before
        main_checkout.git("add", "deep/staged")
        store.save("one-complete")


def test_a_file_of_many(main_checkout: Checkout, make_store: MakeStore) -> None:
    """A separate process reads this many files."""
    for number in range(250):
        main_checkout.write(f"many/{number}", f"the number {number} in words\n" * 5)
    with make_store(main_checkout) as store:
        store.save("one-complete")
        oid = main_checkout.git("rev-parse", f"refs/ckpt/trees/{ONE}:files/many/77")
        spoil(place_of(main_checkout, oid), "flipped")
        store.save("two-complete")
        assert len(told(store)) == 1
    assert main_checkout.git("fsck", "--no-dangling") == ""


def test_the_safety_checkpoint_of_a_restore(main_checkout: Checkout, make_store: MakeStore) -> None:
    with make_store(main_checkout) as store:
        clean = store.save("one-complete")
        fill(main_checkout)
        dirty = store.save("two-complete")
        oid = main_checkout.git("rev-parse", f"refs/ckpt/trees/{dirty.id}:files/new")
        spoil(place_of(main_checkout, oid), "empty")
        done = store.restore(store.read(clean.id))
        assert len(told(store)) == 1
        assert done.safety is not None
        assert main_checkout.git(
            "cat-file", "blob", f"refs/ckpt/trees/{done.safety}:files/new"
        ).startswith("new, and not")
    require_whole(main_checkout)


@pytest.mark.parametrize("how", ["garbage", "a directory", "a pipe", "a link to itself"])
@pytest.mark.parametrize("name", ["maintained"])
def test_what_may_be_deleted_at_any_time_may_be_anything(
    main_checkout: Checkout, make_store: MakeStore, name: str, how: str
) -> None:
    """`save` works with anything at the path of a file that it never flushes."""
    with make_store(main_checkout) as store:
        store.save("one-complete")
        place = Path(private_dir(store), name)
        place.unlink(missing_ok=True)
        if how == "garbage":
            place.write_bytes(
                b"\xff" * 40 + b" " + b"\xfe" * 40 + b"\n" + b"g" * 40 + b" " + b"h" * 40
            )
        elif how == "a directory":
            place.mkdir()
        elif how == "a pipe":
            os.mkfifo(place)
        else:
            place.symlink_to(place)
        main_checkout.commit("more", a="a\n")
        main_checkout.write("new", "new\n")
        store.save("two-complete")
    with make_store(main_checkout) as store:
        store.save("three-complete")
        assert (told(store), len(store.list())) == ([], 3)
    require_whole(main_checkout)


@pytest.mark.parametrize("how", ["missing", "empty", "garbage"])
@pytest.mark.parametrize("adapter", ["libgit2", "plumbing"])
def test_a_commit_that_is_lost_is_no_unborn_branch(
    main_checkout: Checkout, make_store: MakeStore, adapter: str, how: str
) -> None:
    """A lost commit is an error: the branch must not look like an unborn one."""
    commit = main_checkout.commit("more", a="a\n")
    place = place_of(main_checkout, commit)
    place.chmod(0o644)
    if how == "missing":
        place.unlink()
    else:
        place.write_bytes(b"" if how == "empty" else b"\xff" * 100)
    with make_store(main_checkout, adapter=adapter) as store:
        with pytest.raises(CkptError) as caught:
            store.record("one-complete")
        assert commit in caught.value.message
        with pytest.raises(CkptError):
            store.record("run-started", start="Add login!")
    with make_store(main_checkout, adapter=adapter) as store, pytest.raises(CkptError):
        store.save("two-complete")
    assert main_checkout.refs("refs/checkpoints", "refs/ckpt") == {}
    main_checkout.git("symbolic-ref", "HEAD", "refs/heads/new")
    with make_store(main_checkout, adapter=adapter) as store:
        made = store.record("two-complete")
        assert (made.git_sha, made.branch) == ("", "new")
