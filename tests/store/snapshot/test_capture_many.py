"""Many or large new files go into one pack, without a time limit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gitckpt import GitError, Limits, WorktreeError
from gitckpt.git import graph
from gitckpt.git.contents import conversion
from gitckpt.git.contents.bounds import ObjectQuarantine
from gitckpt.git.objects.encoding import OVERSIZED
from gitckpt.store.snapshot import capture
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, require_whole
from tests.stores import private_dir

if TYPE_CHECKING:
    from gitckpt import Store

COUNT = 40


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "_MANY", COUNT)
    monkeypatch.setattr(capture, "_AT_ONCE", 15)
    monkeypatch.setattr(conversion, "_MANY", COUNT // 10)


def write(checkout: Checkout, count: int = COUNT) -> dict[str, str]:
    """Write new files, and return their contents by path."""
    files = {f"deep/{number % 7}/file {number}": f"line {number}\r\n" for number in range(count)}
    for path, text in files.items():
        checkout.write(path, text)
    return files


def objects(checkout: Checkout) -> tuple[int, int]:
    """Return the number of loose blobs, and that of packs."""
    place = checkout.main / ".git/objects"
    loose = [path.parent.name + path.name for path in place.glob("??/*")]
    kinds = checkout.git(
        "cat-file", "--batch-check=%(objecttype)", data="\n".join(loose)
    ).splitlines()
    return kinds.count("blob"), len(list(place.glob("pack/*.pack")))


def scratch(store: Store) -> list[str]:
    return [name for name in os.listdir(private_dir(store)) if name.startswith("objects.")]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rules", ["", "* text=auto\n", "*1 text=auto\n"])
def test_become_one_pack(
    checkout: Checkout, make_store: MakeStore, adapter: str, rules: str
) -> None:
    checkout.commit("rules", **{".gitattributes": rules or "# none\n"})
    before = objects(checkout)[0]
    files = write(checkout)
    with make_store(checkout, adapter) as store:
        made = store.save("a-complete", {"n": 1})
        loose, packs = objects(checkout)
        assert loose - before < 10  # the documents, the note, the manifest
        assert packs == (
            2 if rules else 1
        )  # what git makes of the files, and their bytes where that is something else
        assert scratch(store) == []
        assert require_whole(checkout).keys() == {made.id}
        opened = Path(store.resume(made).path)
    for path, text in files.items():
        assert (opened / path).read_bytes() == text.encode()
    assert checkout.git("fsck", "--strict", "--no-dangling") == ""


def test_with_long_oids(make_checkout: Callable[..., Checkout], make_store: MakeStore) -> None:
    checkout = make_checkout("project", "--object-format=sha256")
    checkout.commit("first")
    files = write(checkout)
    with make_store(checkout) as store:
        made = store.save("a-complete")
        assert made.worktree is not None
        assert files.keys() <= {
            *checkout.git(
                "ls-tree", "-r", "--name-only", f"{made.worktree.tree}:files"
            ).splitlines()
        }
    assert objects(checkout)[1] == 1
    assert checkout.git("fsck", "--strict", "--no-dangling") == ""


def test_one_less_becomes_loose_objects(main_checkout: Checkout, make_store: MakeStore) -> None:
    before = objects(main_checkout)[0]
    write(main_checkout, COUNT - 1)
    with make_store(main_checkout) as store:
        store.save("a-complete")
    loose, packs = objects(main_checkout)
    assert (loose - before >= COUNT - 1, packs) == (True, 0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["a:b", 'quo"te', "new\nline", "umläut:ü", 'back\\slash:"'])
def test_in_a_directory_with_a_difficult_name(
    make_checkout: Callable[..., Checkout], make_store: MakeStore, name: str
) -> None:
    checkout = make_checkout(name)
    commit = checkout.commit("known", known="as committed\n")
    checkout.write("same", "as committed\n")
    write(checkout)
    with make_store(checkout) as store:
        made = store.save("a-complete")
        assert made.git_sha == commit
        assert made.worktree is not None
        assert (
            checkout.git("cat-file", "blob", f"{made.worktree.tree}:files/deep/1/file 1")
            == "line 1\r"
        )
    assert objects(checkout)[1] == 1
    assert checkout.git("fsck", "--strict", "--no-dangling") == ""


def test_what_cannot_be_stored_leaves_nothing_behind(
    main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(main_checkout)
    with make_store(main_checkout) as store:
        before = main_checkout.fingerprint()

        def refuse(*_: object) -> None:
            raise GitError(["update-index"], 1, "No space left on device")

        monkeypatch.setattr(ObjectQuarantine, "migrate_objects", refuse)
        with pytest.raises(WorktreeError, match="No space left on device"):
            store.save("a-complete")
        assert scratch(store) == []
        assert main_checkout.fingerprint() == before


def test_a_file_that_git_refuses_is_named_and_the_others_are_captured(
    main_checkout: Checkout, make_store: MakeStore
) -> None:
    main_checkout.commit("rules", **{".gitattributes": "*.bad filter=bad\n"})
    main_checkout.git("config", "filter.bad.clean", "false")
    main_checkout.git("config", "filter.bad.required", "true")
    files = write(main_checkout)
    main_checkout.write("x.bad", "x")
    with make_store(main_checkout) as store:
        made = store.save("a-complete")
        assert made.worktree is not None
        assert [entry.path for entry in made.worktree.omitted] == ["x.bad"]
        listed = main_checkout.git(
            "ls-tree", "-r", "--name-only", f"{made.worktree.tree}:files"
        ).splitlines()
    assert len(listed) == len(files) + 2


def test_what_is_asked_for_has_no_time_limit(
    main_checkout: Checkout, make_store: MakeStore
) -> None:
    main_checkout.git("config", "ckpt.snapshotTimeout", "0s")
    write(main_checkout)
    with make_store(main_checkout) as store:
        assert store.save("a-complete").worktree.degraded is None  # type: ignore[union-attr]
        assert store.capture().degraded is None
        degraded = store.capture(Limits(timeout=0)).degraded
        assert str(degraded).startswith("capturing the files took more than 0 seconds; ")


def test_a_large_file_is_never_held_as_a_whole(
    main_checkout: Checkout, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "_LARGE", 5000)
    main_checkout.write("large", "x" * 5001)
    main_checkout.write("small", "x" * 5000)
    large, small = (main_checkout.git("hash-object", name) for name in ("large", "small"))
    with make_store(main_checkout) as store:
        asked: list[str] = []
        cat_file = checkpoints_of_store(store).repository.cat_file
        really = cat_file.read_contents

        def contents(
            names: Sequence[str], most: int | None = None
        ) -> Iterator[tuple[str, str, bytes] | None]:
            for found in really(names, most):
                if found is not None and found[1] != OVERSIZED and most == graph._LARGE:
                    asked.append(found[0])
                yield found

        monkeypatch.setattr(cat_file, "read_contents", contents)
        made = store.save("a-complete")
        assert large not in asked
        main_checkout.write("large", "x")
        store.save("b-complete")
        assert small in asked
        assert made.id in require_whole(main_checkout)
