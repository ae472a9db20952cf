"""Small tree diffs are computed in process and equal those of `git diff-tree`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt import GitError
from gitckpt.git.command import GitRunner
from gitckpt.git.objects import diff
from gitckpt.git.repository import Repository, discover_repository
from tests.conftest import Checkout

PATHS = (
    "a",
    "a.b",
    "a/x",
    "a/y/z",
    "a-b",
    "b",
    "b/a",
    "b/a/x",
    "c/d/e/f",
    "c/d/e/g",
    "ü",
    "a b",
    "a\nb",
)
ENTRIES = (
    "100644 blob {0}",
    "100644 blob {1}",
    "100755 blob {0}",
    "120000 blob {1}",
    "160000 commit {2}",
)


@pytest.fixture
def repository(main_checkout: Checkout) -> Iterator[Repository]:
    opened = discover_repository(str(main_checkout.path))
    yield opened
    opened.close()


@pytest.fixture
def oids(main_checkout: Checkout) -> list[str]:
    return [
        *(main_checkout.git("hash-object", "-w", "--stdin", data=text) for text in "ab"),
        main_checkout.git("rev-parse", "HEAD"),
    ]


def made(here: Checkout, entries: Mapping[str, str], oids: list[str]) -> str:
    """Return a tree of the entries; the first one wins where two conflict."""
    kept: dict[str, str] = {}
    for path, entry in entries.items():
        if not any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in kept):
            kept[path] = entry
    here.git("read-tree", "--empty")
    lines = (
        entry.format(*oids).replace(" blob", "").replace(" commit", "") + f"\t{path}\0"
        for path, entry in kept.items()
    )
    here.git("update-index", "--add", "-z", "--index-info", data="".join(lines))
    return here.git("write-tree")


def by_git(
    here: Checkout, old: str, new: str, *, with_trees: bool
) -> list[tuple[str, bytes, bytes, bytes, str, str]]:
    """Return the output of `git diff-tree`."""
    said = here.git(
        "diff-tree",
        "-r",
        *(["-t"] if with_trees else []),
        "--raw",
        "-z",
        "--no-renames",
        "--no-abbrev",
        old,
        new,
    )
    fields = said.split("\0")[:-1]
    found = []
    for head, path in zip(fields[::2], fields[1::2], strict=True):
        before, after, old_oid, new_oid, status = head[1:].split(" ")
        found.append((status, path.encode(), before.encode(), after.encode(), old_oid, new_oid))
    return found


def by_us(
    repository: Repository, old: str, new: str, *, with_trees: bool
) -> list[tuple[str, bytes, bytes, bytes, str, str]]:
    found = diff.diff_trees(repository, old, new, with_trees=with_trees)
    return [(one.status, one.path, one.old_mode, one.new_mode, one.old, one.new) for one in found]


CONTENTS = st.dictionaries(st.sampled_from(PATHS), st.sampled_from(ENTRIES))


@pytest.mark.long
@settings(deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=CONTENTS, after=CONTENTS)
def test_the_same_as_git_says(
    repository: Repository,
    main_checkout: Checkout,
    oids: list[str],
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> None:
    old, new = (made(main_checkout, entries, oids) for entries in (before, after))
    for with_trees in (False, True):
        assert by_us(repository, old, new, with_trees=with_trees) == by_git(
            main_checkout, old, new, with_trees=with_trees
        )


@pytest.fixture
def asked(main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the git commands that run."""
    asked: list[str] = []
    run = GitRunner.run

    def note(git: object, *args: str, **options: object) -> object:
        asked.extend(word for word in args if word == "diff-tree")
        return run(git, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(GitRunner, "run", note)
    return asked


def test_a_few_need_no_process(
    repository: Repository, main_checkout: Checkout, oids: list[str], asked: list[str]
) -> None:
    old, new = (made(main_checkout, {"a/b/c": entry}, oids) for entry in ENTRIES[:2])
    assert [one.path for one in diff.diff_trees(repository, old, new, with_trees=True)] == [
        b"a",
        b"a/b",
        b"a/b/c",
    ]
    assert asked == []


def test_of_many_git_says_it(
    repository: Repository, main_checkout: Checkout, oids: list[str], asked: list[str]
) -> None:
    old, new = (
        made(main_checkout, {f"a/{number}": entry for number in range(300)}, oids)
        for entry in ENTRIES[:2]
    )
    assert by_us(repository, old, new, with_trees=False) == by_git(
        main_checkout, old, new, with_trees=False
    )
    assert asked == ["diff-tree"]


def test_many_pairs_are_counted_by_one_process(
    repository: Repository, main_checkout: Checkout, oids: list[str], asked: list[str]
) -> None:
    """One process counts many pairs, whatever their paths and `diff.ignoreSubmodules`."""
    main_checkout.git("config", "core.quotePath", "false")
    main_checkout.write(".gitmodules", '[submodule "a"]\npath = a\nurl = /nowhere\nignore = all\n')
    other = f"160000 commit {'1' * 40}"
    kinds = [
        {},
        {"a": ENTRIES[4]},
        {"a": other},
        {"a\nb": ENTRIES[0], "a\u2028b\x85": ENTRIES[1]},
        {"a": ENTRIES[0]},
        {"a/x": ENTRIES[0], "c": ENTRIES[2]},
    ]
    trees = ["", *(made(main_checkout, kind, oids) for kind in kinds)]
    pairs = [(old, new) for old in trees for new in trees]
    found = diff.count_differences(repository, pairs)
    assert asked == ["diff-tree"]
    empty = trees[1]
    assert found == {
        (old, new): len(diff.diff_trees(repository, old or empty, new or empty))
        for old, new in pairs
    }
    assert set(found.values()) == {0, 1, 2, 3, 4}
    assert diff.count_differences(repository, []) == {}
    assert asked == ["diff-tree"]


def test_what_git_would_not_write_is_for_git_to_judge(
    repository: Repository, main_checkout: Checkout, oids: list[str], asked: list[str]
) -> None:
    """Trees with modes of old versions of git, or a duplicate name, are left to git."""
    raw = bytes.fromhex(oids[0])
    for data in (
        b"100664 a\0" + raw,
        b"100600 a\0" + raw,
        b"100644 a\0" + raw + b"100644 a\0" + raw,
    ):
        (main_checkout.path / "tree").write_bytes(data)
        tree = main_checkout.git("hash-object", "-t", "tree", "-w", "--literally", "tree")
        new = made(main_checkout, {"b": ENTRIES[0]}, oids)
        assert by_us(repository, tree, new, with_trees=False) == by_git(
            main_checkout, tree, new, with_trees=False
        )
    assert asked == ["diff-tree"] * 3


def test_a_tree_that_is_missing(repository: Repository, main_checkout: Checkout) -> None:
    tree = main_checkout.git("rev-parse", "HEAD^{tree}")
    with pytest.raises(GitError):
        diff.diff_trees(repository, tree, "1" * len(tree))


def test_a_file_in_the_place_of_a_submodule_is_of_its_own(
    repository: Repository, main_checkout: Checkout, oids: list[str]
) -> None:
    old, new = (made(main_checkout, {"a": entry}, oids) for entry in (ENTRIES[4], ENTRIES[0]))
    assert diff.list_new_objects(repository, old, new) == [oids[0]]
    assert diff.list_new_objects(repository, new, old) == []
