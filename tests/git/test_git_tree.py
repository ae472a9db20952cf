"""Trees that are edited: they are those that git makes of an index with the same changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt.git.contents import tree
from gitckpt.git.objects.encoding import empty_tree
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from tests.conftest import Checkout

if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects

MODES = (b"100644", b"100755", b"120000")
PARTS = st.sampled_from([b"a", b"b", b"a.b", b"a0", b"\xff", b"a b"])
PATHS = st.lists(PARTS, min_size=1, max_size=4).map(b"/".join)
FILES = st.tuples(st.sampled_from(MODES), st.integers(0, 5))


def blob(checkout: Checkout, number: int) -> str:
    """Returns the oid of a small blob, which is there."""
    return checkout.git("hash-object", "-w", "--stdin", data=f"{number}\n").strip()


def by_git(checkout: Checkout, base: str, changes: Mapping[bytes, tree.File | None]) -> str:
    """Returns the tree of an index in which the files that go are removed first, and the others put afterwards."""
    width = len(base)
    gone = [b"0 %s 0\t%s" % (b"0" * width, path) for path, file in changes.items() if file is None]
    new = [b"%s %s 0\t%s" % (file[0], file[1].encode(), path) for path, file in changes.items() if file is not None]
    env = {"GIT_INDEX_FILE": str(checkout.path / ".git" / "index.of-test")}
    checkout.git("read-tree", base, env=env)
    for lines in (gone, new):
        checkout.git("update-index", "-z", "--index-info", data=b"".join(line + b"\0" for line in lines), env=env)
    return checkout.git("write-tree", env=env).strip()


def without_contradictions(paths: Mapping[bytes, object]) -> bool:
    """Tells whether no file is below another one."""
    return not any(other != path and other.startswith(path + b"/") for path in paths for other in paths)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.dictionaries(PATHS, FILES, max_size=8).filter(without_contradictions),
    new=st.dictionaries(PATHS, FILES, max_size=6).filter(without_contradictions),
    gone=st.sets(PATHS, max_size=6),
)
def test_an_edited_tree_is_the_one_of_git(
    main_checkout: Checkout,
    repository: Repository,
    objects: Objects,
    before: dict[bytes, tuple[bytes, int]],
    new: dict[bytes, tuple[bytes, int]],
    gone: set[bytes],
) -> None:
    blobs = [blob(main_checkout, number) for number in range(6)]
    empty = empty_tree(repository.object_format)
    main_checkout.git("hash-object", "-t", "tree", "-w", "--stdin")
    base = by_git(main_checkout, empty, {path: (mode, blobs[number]) for path, (mode, number) in before.items()})
    some = [path for path in before if len(path) % 2]
    changes: dict[bytes, tree.File | None] = dict.fromkeys([*gone, *some])
    changes |= {path: (mode, blobs[number]) for path, (mode, number) in new.items()}

    made, items = tree.edited(objects, base, changes, repository.object_format)

    objects.write(items)
    assert made == by_git(main_checkout, base, changes)
    assert main_checkout.git("ls-tree", "-r", "-z", made) == main_checkout.git("ls-tree", "-r", "-z", by_git(main_checkout, base, changes))


def test_nothing_is_written_for_what_stays(main_checkout: Checkout, repository: Repository, objects: Objects) -> None:
    main_checkout.commit(**{"d/e": "e\n"})
    base = main_checkout.git("rev-parse", "HEAD^{tree}").strip()
    known = main_checkout.git("rev-parse", "HEAD:d/e").strip()
    changes: dict[bytes, tree.File | None] = {b"d/e": (b"100644", known), b"d/none": None, b"none/f": None}

    assert tree.edited(objects, base, changes, repository.object_format) == (base, [])


def test_a_very_deep_path(main_checkout: Checkout, repository: Repository, objects: Objects) -> None:
    oid = blob(main_checkout, 1)
    path = b"/".join([b"d"] * 2000)
    empty = empty_tree(repository.object_format)
    made, items = tree.edited(objects, empty, {path: (b"100644", oid)}, repository.object_format)
    objects.write(items, flushed=False)
    assert len(items) == 2000
    assert tree.edited(objects, made, {path: None}, repository.object_format) == (empty, [("tree", b"")])


def test_a_file_and_a_directory_in_one_place_are_refused(main_checkout: Checkout, repository: Repository, objects: Objects) -> None:
    oid = blob(main_checkout, 1)
    with pytest.raises(ValueError, match="b'a' is to be a file and a directory"):
        tree.edited(objects, empty_tree("sha1"), {b"a": (b"100644", oid), b"a/b": (b"100644", oid)}, repository.object_format)


def test_a_tree_that_is_missing_is_an_error(main_checkout: Checkout, repository: Repository, objects: Objects) -> None:
    with pytest.raises(GitError, match=r"1{40} is missing"):
        tree.edited(objects, "1" * 40, {b"a": None}, repository.object_format)
