"""Files without conversion are stored in process, with the same result as git's."""

from __future__ import annotations

import gc
import os
import shutil
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt import Limits, Store
from gitckpt.git.contents.plain_files import TreeWriter
from gitckpt.git.objects import diff
from gitckpt.git.process import Child
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.store.snapshot import capture
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, examples
from tests.store.conftest import MakeStore

T = TypeVar("T")
PATHS = (
    "a",
    "b/c",
    "b/d/e",
    "b/d/f",
    "g",
    "h-i",
    "h/i",
    "h.i",
    ".config",
    "b/d-e",
    "x y",
    "ünï",
    "x~1",
    ".github/w",
)
CONTENTS = ("", "one\n", "two\n", "three\r\n", "\0")


def by_git(checkout: Checkout) -> str:
    """Return the tree that git makes of all files."""
    index = str(checkout.path / ".." / "by git")
    shutil.copy(checkout.git("rev-parse", "--path-format=absolute", "--git-path", "index"), index)
    env = {"GIT_INDEX_FILE": index}
    checkout.git("-c", "core.safecrlf=false", "add", "--all", env=env)
    return checkout.git("write-tree", env=env)


def saved(store: Store, checkout: Checkout) -> str:
    """Return the tree of the files of a new checkpoint."""
    made = store.save("a-complete", {})
    files = checkout.git(
        "rev-parse", f"{made.tree}:files" if made.tree else f"{made.git_sha}^{{tree}}"
    )
    require_parts(store, checkout, files)
    return files


def require_parts(store: Store, checkout: Checkout, files: str) -> None:
    """Assert that the capture reports exactly the objects that it added.

    These include objects of the commit that it had to write again.
    """
    at = checkpoints_of_store(store)
    head = checkout.head()
    parts = at._captured_parts(head, files)
    assert at._captured_parts(head, head) is None
    if parts is not None:
        own = {
            files,
            *diff.list_new_objects(at.repository, checkout.git("rev-parse", "HEAD^{tree}"), files),
        }
        assert own <= set(parts)
        assert set(parts) - own <= set(
            checkout.git("rev-list", "--objects", "--no-object-names", "HEAD^{tree}").split()
        )


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], set[str]]:
    """Return a function that names the writing git commands started so far."""
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(trace))

    def ask() -> set[str]:
        text = trace.read_text("utf-8")
        return {
            name
            for name in ("update-index", "write-tree", "hash-object", "add")
            if f'"{name}"' in text
        }

    return ask


def replace(checkout: Checkout, name: str, target: str | None = None) -> None:
    """Replace a file with a symlink, or with a directory if there is no target."""
    (checkout.path / name).unlink()
    if target is None:
        checkout.write(f"{name}/x", "x\n")
    else:
        (checkout.path / name).symlink_to(target)


CHANGES: dict[str, Callable[[Checkout], object]] = {
    "a file that changed": lambda checkout: checkout.write("README", "changed\n"),
    "a new file": lambda checkout: checkout.write("new/deep/er", "new\n"),
    "a file that can be executed": lambda checkout: os.chmod(checkout.path / "README", 0o755),
    "a link": lambda checkout: os.symlink("README", checkout.path / "link"),
    "a link in the place of a file": lambda checkout: replace(checkout, "README", "x"),
    "a directory in the place of a file": lambda checkout: replace(checkout, "README"),
    "a file that is gone": lambda checkout: os.unlink(checkout.path / "README"),
    "attributes that convert nothing": lambda checkout: checkout.write(
        ".gitattributes", "*.py diff=python\n"
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", CHANGES)
def test_git_is_not_asked_to_write(
    store: Store, checkout: Checkout, asked: Callable[[], set[str]], change: str
) -> None:
    CHANGES[change](checkout)
    found = saved(store, checkout)
    assert (checkpoints_of_store(store)._captured_parts(checkout.head(), found) is None) == (
        "attributes" in change
    )
    # git checks the name of a new `.gitattributes` as that of any file it may refuse.
    assert asked() == ({"update-index", "write-tree"} if "attributes" in change else set())
    assert found == by_git(checkout)


def test_what_was_written_is_not_looked_for_once_more(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_checkout.commit("deep", **{"d/e/f": "1\n"})
    main_checkout.write("d/e/f", "2\n")
    compared: list[str] = []
    monkeypatch.setattr(diff, "list_new_objects", lambda *trees: compared.append(trees[-1]))
    plain.save("a-complete", {})
    assert compared == []


def test_what_was_written_is_not_held_in_memory(plain: Store, main_checkout: Checkout) -> None:
    plain.save("a-complete", {})
    main_checkout.write("large", os.urandom(1 << 20))
    tracemalloc.start()
    try:
        plain.save("b-complete", {})
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_in_the_place_of_a_directory(
    store: Store, checkout: Checkout, asked: Callable[[], set[str]]
) -> None:
    checkout.commit("deep", **{"d/e/f": "1\n", "d/e/g": "2\n", "d/h": "3\n"})
    shutil.rmtree(checkout.path / "d")
    checkout.write("d", "a file\n")
    assert "update-index" not in asked()
    found = saved(store, checkout)
    assert "update-index" not in asked()
    assert found == by_git(checkout)


def test_nothing_is_left(store: Store, checkout: Checkout) -> None:
    for name in checkout.git("ls-files").splitlines():
        (checkout.path / name).unlink()
    assert saved(store, checkout) == by_git(checkout)


def with_a_mode(checkout: Checkout) -> None:
    checkout.git("config", "core.fileMode", "false")
    checkout.write("README", "changed\n").chmod(0o755)


LEFT_TO_GIT: dict[str, Callable[[Checkout], object]] = {
    "modes that git is not to believe": with_a_mode,
    "links that git is not to believe": lambda checkout: (
        checkout.git("config", "core.symlinks", "false"),
        checkout.write("README", "changed\n"),
    ),
    "names that are alike": lambda checkout: (
        checkout.git("config", "core.ignoreCase", "true"),
        checkout.write("new", "new\n"),
    ),
    "what is staged": lambda checkout: (
        checkout.write("staged", "1\n"),
        checkout.git("add", "staged"),
        checkout.write("new", "new\n"),
    ),
    "what is to be added": lambda checkout: (
        checkout.write("new", "1\n"),
        checkout.git("add", "--intent-to-add", "new"),
    ),
    "line ends": lambda checkout: (
        checkout.write(".gitattributes", "* text=auto\n"),
        checkout.write("new", "1\r\n2\n"),
    ),
    "a file that nobody should hold in memory": lambda checkout: checkout.write(
        "new", b"x" * ((1 << 20) + 1)
    ),
    "a name that git may refuse": lambda checkout: checkout.write("x~1", "new\n"),
    "a name with a line break": lambda checkout: checkout.write("new\nline", "new\n"),
    "a tracked file that is marked": lambda checkout: (
        checkout.git("update-index", "--assume-unchanged", "README"),
        checkout.write("new", "new\n"),
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", LEFT_TO_GIT)
def test_git_is_asked_about(
    store: Store, checkout: Checkout, asked: Callable[[], set[str]], change: str
) -> None:
    checkout.git("config", "core.fileMode", "true")
    LEFT_TO_GIT[change](checkout)
    found = saved(store, checkout)
    assert "update-index" in asked()
    assert found == by_git(checkout)


@pytest.mark.parametrize(
    "rules",
    [
        "words filter=hide\n",
        '"words"filter=hide\n',
        "words\rfilter=hide\n",
        "[attr]hidden\rfilter=hide\nwords hidden\n",
        "\ufeffwords filter=hide",
    ],
)
def test_however_git_takes_an_attribute_to_be_written_the_filter_applies(
    plain: Store, main_checkout: Checkout, rules: str
) -> None:
    """Git needs no space after a quoted pattern, and reads a carriage return as one."""
    main_checkout.git("config", "filter.hide.clean", "tr a-z x")
    main_checkout.commit("rules", **{".gitattributes": rules})
    main_checkout.write("words", "password\n")
    assert saved(plain, main_checkout) == by_git(main_checkout)
    made = plain.list()[0].id
    assert (
        main_checkout.git("cat-file", "blob", f"refs/ckpt/trees/{made}:files/words") == "xxxxxxxx"
    )


@pytest.mark.parametrize("where", ["ignored/.gitattributes", "ignored/deep/.gitattributes"])
def test_attributes_in_an_ignored_directory_hold_for_what_is_included(
    plain: Store, main_checkout: Checkout, where: str
) -> None:
    main_checkout.git("config", "filter.hide.clean", "tr a-z x")
    main_checkout.git("config", "ckpt.include", "words")
    main_checkout.commit("rules", **{".gitignore": "ignored/\n"})
    main_checkout.write(where, "words filter=hide\n")
    main_checkout.write("ignored/deep/words", "password\n")
    made = plain.save("a-complete", {})
    assert (
        main_checkout.git("cat-file", "blob", f"{made.tree}:files/ignored/deep/words") == "xxxxxxxx"
    )


@pytest.mark.usefixtures("newer_git")
def test_what_attributes_of_another_tree_hide_stays_hidden(
    plain: Store, main_checkout: Checkout
) -> None:
    main_checkout.git("config", "filter.hide.clean", "tr a-z x")
    main_checkout.git("config", "attr.tree", "rules")
    main_checkout.write("words", "password\n")
    for rules, stored in (
        ("", "password"),
        ("words filter=hide\n", "xxxxxxxx"),
        ("words -filter\n", "password"),
    ):
        blob = main_checkout.git("hash-object", "-w", "--stdin", data=rules)
        tree = main_checkout.git("mktree", data=f"100644 blob {blob}\t.gitattributes\n")
        main_checkout.git(
            "branch", "--force", "rules", main_checkout.git("commit-tree", "-m", "rules", tree)
        )
        found = saved(plain, main_checkout)
        assert found == by_git(main_checkout)
        assert main_checkout.git("cat-file", "blob", f"{found}:words") == stored


def test_what_lies_behind_a_link_is_not_read(
    plain: Store, main_checkout: Checkout, tmp_path: Path
) -> None:
    """The directory became a symlink after git had listed it."""
    main_checkout.commit("deep", **{"d/e/f": "1\n"})
    (tmp_path / "elsewhere/e").mkdir(parents=True)
    (tmp_path / "elsewhere/e/f").write_text("somebody else's\n")
    shutil.rmtree(main_checkout.path / "d")
    (main_checkout.path / "d").symlink_to(tmp_path / "elsewhere")
    tree = main_checkout.git("rev-parse", "HEAD^{tree}")
    assert (
        TreeWriter(
            checkpoints_of_store(plain).repository, checkpoints_of_store(plain).objects
        ).write_changed_tree(tree, (), [b"d/e/f"], [])
        is None
    )


def test_the_time_is_over_though_git_had_ended_when_it_was_asked(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit holds even if the output of `git status` needs no waiting."""
    main_checkout.write("a", "a\n")
    finish = PrivateIndex.wait_for_output

    def wait(index: PrivateIndex, child: Child, **options: Sequence[int]) -> bytes:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        return finish(index, child, **options)

    monkeypatch.setattr(PrivateIndex, "wait_for_output", wait)
    degraded = plain.capture(Limits(timeout=0)).degraded
    assert str(degraded).startswith("capturing the files took more than 0 seconds; ")


@pytest.mark.parametrize("where", ["loose", "packed"])
def test_a_tree_that_is_there_and_damaged_is_written_anew(
    store: Store, checkout: Checkout, where: str
) -> None:
    checkout.write("deep/er", "1\n")
    made = store.save("a-complete", {})
    tree = checkout.git("rev-parse", f"{made.tree}:files/deep")
    if where == "packed":
        checkout.git("repack", "--quiet", "-a", "-d")
        (place,) = (checkout.main / ".git/objects/pack").glob("*.pack")
        data = place.read_bytes()
        at = (
            int(
                checkout.git("verify-pack", "-v", str(place))
                .partition(f"{tree} tree")[2]
                .split()[2]
            )
            + 6
        )
        damaged = data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]
    else:
        place, damaged = checkout.main / ".git/objects" / tree[:2] / tree[2:], b""
    place.chmod(0o644)
    place.write_bytes(damaged)
    again = store.save("b-complete", {})
    assert checkout.git("show", f"{again.tree}:files/deep/er") == "1"


def test_of_very_many_files_git_makes_a_pack(
    plain: Store,
    main_checkout: Checkout,
    asked: Callable[[], set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capture, "_MANY", 20)
    for number in range(20):
        main_checkout.write(f"new/{number}", f"{number}\n")
    assert saved(plain, main_checkout) == by_git(main_checkout)
    assert {"update-index", "write-tree"} <= asked()


def test_what_git_refuses_is_named_as_ever(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.write("GIT~1", "new\n")
    main_checkout.write("new", "new\n")
    made = plain.save("a-complete", {})
    assert made.worktree is not None
    assert [entry.path for entry in made.worktree.omitted] == ["GIT~1"]
    assert main_checkout.git("show", f"{made.tree}:files/new") == "new"


@pytest.mark.long
@settings(
    max_examples=examples(90), deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
@given(
    before=st.dictionaries(st.sampled_from(PATHS), st.sampled_from(CONTENTS), max_size=8),
    after=st.dictionaries(
        st.sampled_from(PATHS),
        st.tuples(st.sampled_from(CONTENTS), st.sampled_from(["file", "link", "x"])),
        max_size=8,
    ),
)
def test_whatever_changes_comes_out_as_git_makes_it(
    make_store: MakeStore,
    make_checkout: Callable[..., Checkout],
    adapter: str,
    before: dict[str, str],
    after: dict[str, tuple[str, str]],
) -> None:
    checkout = make_checkout(os.urandom(6).hex())
    checkout.commit("before", **_consistent(before))
    for path in checkout.path.iterdir():
        if path.name != ".git":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, (content, kind) in _consistent(after).items():
        if kind == "link":
            (checkout.path / name).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(content.replace("\0", "") or "nowhere", checkout.path / name)
        else:
            os.chmod(checkout.write(name, content), 0o755 if kind == "x" else 0o644)
    assert saved(make_store(checkout, adapter), checkout) == by_git(checkout)


def _consistent(files: dict[str, T]) -> dict[str, T]:
    """Drop paths below a path that is itself a file."""
    return {
        name: content
        for name, content in files.items()
        if not any(name.startswith(f"{other}/") for other in files)
    }
