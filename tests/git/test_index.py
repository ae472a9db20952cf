"""A private copy of an index lists its entries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gitckpt.git.objects.encoding import EXECUTABLE, FILE, GITLINK
from gitckpt.git.repository import Repository, discover_repository
from gitckpt.git.worktree.index import PrivateIndex
from tests.conftest import Checkout


@pytest.fixture
def repository(main_checkout: Checkout) -> Iterator[Repository]:
    opened = discover_repository(str(main_checkout.path))
    yield opened
    opened.close()


def test_its_entries_with_modes_stages_and_flags(
    repository: Repository, main_checkout: Checkout
) -> None:
    ours, theirs = (main_checkout.git("hash-object", "-w", "--stdin", data=text) for text in "ab")
    head = main_checkout.git("rev-parse", "HEAD")
    lines = [
        *(
            f"{mode} {oid} 0\t{path}"
            for mode, oid, path in [
                ("100644", ours, "a\tb\nc"),
                ("100755", ours, "run"),
                ("160000", head, "sub"),
            ]
        ),
        *(f"100644 {oid} {stage}\tboth" for stage, oid in ((2, ours), (3, theirs))),
        *(f"100644 {ours} 0\t{path}" for path in ("assumed", "skipped")),
    ]
    main_checkout.git("read-tree", "--empty")
    main_checkout.git(
        "update-index", "-z", "--index-info", data="".join(f"{line}\0" for line in lines)
    )
    main_checkout.git("update-index", "--skip-worktree", "skipped")
    main_checkout.git("update-index", "--assume-unchanged", "assumed")
    with PrivateIndex(repository) as index:
        assert index.list_entries() == [
            (b"a\tb\nc", FILE, ours, 0, b"H"),
            (b"assumed", FILE, ours, 0, b"h"),
            (b"both", FILE, ours, 2, b"M"),
            (b"both", FILE, theirs, 3, b"M"),
            (b"run", EXECUTABLE, ours, 0, b"H"),
            (b"skipped", FILE, ours, 0, b"S"),
            (b"sub", GITLINK, head, 0, b"H"),
        ]


def test_those_of_one_mode(repository: Repository, main_checkout: Checkout) -> None:
    """Each save lists the submodules of the worktree this way."""
    blob, head = main_checkout.git("hash-object", "-w", "--stdin", data="a"), main_checkout.head()
    odd = f"H 160000 {blob} 0\tf"
    lines = [
        f"{mode} {oid} 0\t{path}"
        for mode, oid, path in [
            ("100644", blob, odd),
            ("160000", head, "b\nc"),
            ("160000", head, "sub"),
        ]
    ]
    main_checkout.git(
        "update-index", "-z", "--index-info", data="".join(f"{line}\0" for line in lines)
    )
    with PrivateIndex(repository) as index:
        assert index.list_entries(GITLINK) == [
            (b"b\nc", GITLINK, head, 0, b"H"),
            (b"sub", GITLINK, head, 0, b"H"),
        ]
        assert index.list_entries(EXECUTABLE) == []


def test_an_empty_one(repository: Repository, main_checkout: Checkout) -> None:
    main_checkout.git("read-tree", "--empty")
    with PrivateIndex(repository) as index:
        assert index.list_entries() == []
