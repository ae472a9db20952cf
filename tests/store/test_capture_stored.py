"""Files that are stored without git, where it would take them as they are: the tree is the one that git makes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt.git.contents import tree
from gitckpt.git.objects.adapters import open_objects
from gitckpt.git.repository import discover
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.store.snapshot import capture
from gitckpt.store.snapshot.limits import Limits
from gitckpt.store.store import Store
from tests.conftest import Checkout
from tests.store.conftest import MakeStore
from tests.store.test_worktree_machine import EDITS, Edit, prepare
from tests.store.worktree_model import Place

SETTINGS = st.sampled_from(["", "", "", "core.fileMode=false", "core.symlinks=false", "core.ignoreCase=true", "core.autocrlf=true"])


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("places")


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits=st.lists(EDITS, min_size=1, max_size=12), setting=SETTINGS, adapter=st.sampled_from(["plumbing", "libgit2"]))
def test_the_tree_is_the_one_that_git_makes(
    make_checkout: Callable[..., Checkout], places: Path, edits: list[Edit], setting: str, adapter: str
) -> None:
    template = places / "template"
    if not template.exists():
        made = make_checkout("template")
        prepare(made)
        shutil.copytree(made.path, template, symlinks=True)
    top = Path(tempfile.mkdtemp(dir=places)) / "here"
    shutil.copytree(template, top, symlinks=True)
    here = Place(str(top))
    if setting:
        here.git("config", *setting.split("="))
    for edit, arguments in edits:
        edit(here, *arguments)
    repository = discover(str(top))
    objects = open_objects(repository, adapter)
    found = []
    for is_listed in (True, False):
        with PrivateIndex(repository) as index:
            found.append(capture.capture_in(index, objects, objects.head()[0], Limits(), is_listed=is_listed))
    assert found[1] == found[0]
    objects.close()
    repository.close()
    shutil.rmtree(top.parent)


@pytest.mark.parametrize("name", ["plain", "d/deep", "-n", "with space", "a.b,c"])
@pytest.mark.parametrize("kind", ["file", "tool", "link"])
def test_what_is_usual_is_stored(main_checkout: Checkout, make_store: MakeStore, name: str, kind: str) -> None:
    path = main_checkout.path / name
    path.parent.mkdir(exist_ok=True)
    if kind == "link":
        path.symlink_to("nowhere")
    else:
        main_checkout.write(name, "content\n")
        path.chmod(0o755 if kind == "tool" else 0o644)
    assert is_stored(main_checkout, [os.fsencode(name)])
    with make_store(main_checkout) as store:
        assert main_checkout.git("rev-parse", f"{store.save('a-complete', {}).tree}:files").strip() == by_git(main_checkout)


@pytest.mark.parametrize("name", ["caf\udce9", "a~1", "a:b", "a\\b", ".gitmodules", "d/.GIT-x", "tab\there"])
def test_a_name_that_git_may_refuse_is_left_to_it(main_checkout: Checkout, name: str) -> None:
    main_checkout.write(name, "content\n")
    assert not is_stored(main_checkout, [os.fsencode(name)])


def test_so_is_what_is_no_file_long_many_or_behind_a_symlink(main_checkout: Checkout, tmp_path: Path) -> None:
    here = main_checkout.path
    main_checkout.write("d/file", "content\n")
    (here / "l").symlink_to("d")
    (here / "directory").mkdir()
    os.mkfifo(here / "fifo")
    os.truncate(main_checkout.write("long", "x"), tree._LARGE + 1)
    for name in (b"l/file", b"directory", b"fifo", b"long", b"gone"):
        assert not is_stored(main_checkout, [name]), name
    assert not is_stored(main_checkout, [b"d/file"] * (tree._MANY + 1))
    assert is_stored(main_checkout, [b"d/file"])


def is_stored(checkout: Checkout, names: list[bytes]) -> bool:
    repository = discover(str(checkout.path))
    objects = open_objects(repository, "plumbing")
    base = checkout.git("rev-parse", "HEAD^{tree}").strip()
    try:
        return tree.stored(repository, objects, base, names, ()) is not None
    finally:
        objects.close()
        repository.close()


def by_git(checkout: Checkout) -> str:
    """Returns the tree of all files, as `git add --all` stores them in another index."""
    env = {"GIT_INDEX_FILE": str(checkout.path / ".git/index.of-test")}
    checkout.git("read-tree", "HEAD", env=env)
    checkout.git("add", "--all", env=env)
    return checkout.git("write-tree", env=env).strip()


def test_a_file_that_is_deleted_takes_its_directories_along(main_checkout: Checkout, make_store: MakeStore) -> None:
    main_checkout.commit("deep", **{"d/e/f": "1\n", "g": "2\n"})
    shutil.rmtree(main_checkout.path / "d")
    with Store.open(main_checkout.path) as store:
        made = store.save("a-complete", {})
    assert main_checkout.git("ls-tree", "-r", "-t", "--name-only", f"{made.tree}:files").split() == ["README", "g"]
