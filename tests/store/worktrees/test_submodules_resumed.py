"""A resumed worktree gets its submodules from local repositories.

The remotes of these submodules are gone.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Store, WorktreeError
from tests import planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.conftest import MakeStore
from tests.store.submodules import CHECKPOINTS, dirty, named, names, settled
from tests.stores import operation_of

FOREIGN = "the operation in progress is not restored, as it was captured in another repository"

pytestmark = pytest.mark.long


def places(path: str) -> tuple[Checkout, Checkout, Checkout]:
    top = Path(path)
    return Checkout(top), Checkout(top / "lib"), Checkout(top / "lib" / "inner")


def files(checkouts: tuple[Checkout, ...]) -> list[tuple[str, str, str]]:
    return [(commit, status, contents) for _, commit, status, contents in settled(*checkouts)]


def test_they_are_there(
    plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout
) -> None:
    dirty(lib, inner)
    lib.git("remote", "add", "other", 'a "strange"\\url')
    before, here = files((main_checkout, lib, inner)), settled(main_checkout, lib, inner)
    made = plain.save("a-complete", {})
    opened = plain.resume(made)
    assert opened.remarks == ()
    there = places(opened.path)
    assert files(there) == before
    assert settled(main_checkout, lib, inner) == here
    assert there[1].git("remote", "get-url", "other") == 'a "strange"\\url'
    assert there[1].git("config", "remote.origin.url") == lib.git("config", "remote.origin.url")
    for one in there[1:]:
        assert os.path.realpath(one.git("rev-parse", "--absolute-git-dir")).startswith(
            os.path.realpath(main_checkout.path / ".git/worktrees")
        )
        one.git("fsck", "--strict")
    assert plain.resume(made).remarks == ()


def test_git_works_in_them(
    plain: Store, main_checkout: Checkout, lib: Checkout, inner: Checkout
) -> None:
    made = plain.save("a-complete", {})
    before = settled(main_checkout, lib, inner)
    top, theirs, _ = places(plain.resume(made).path)
    assert [line[:1] for line in top.git("submodule", "status", "--recursive").splitlines()] == [
        " ",
        " ",
    ]
    commit = theirs.commit("a change", l="changed\n")
    top.git("commit", "--quiet", "--all", "--message", "the submodule moves on")
    theirs.git("checkout", "--quiet", "--detach", "HEAD~1")
    top.git("submodule", "--quiet", "update", "--recursive")
    assert (theirs.git("rev-parse", "HEAD"), top.git("status", "--porcelain")) == (commit, "")
    top.git("submodule", "--quiet", "foreach", "--recursive", "git status")
    assert settled(main_checkout, lib, inner) == before


@pytest.mark.parametrize("is_known", [True, False])
def test_an_operation_comes_back_where_it_was_captured_here(
    plain: Store, make_store: MakeStore, lib: Checkout, *, is_known: bool
) -> None:
    base = lib.git("rev-parse", "HEAD")
    theirs = lib.commit("theirs", l="theirs\n")
    lib.git("reset", "--quiet", "--hard", base)
    lib.commit("ours", l="ours\n")
    lib.git("merge", theirs, ok=(1,))
    made = plain.save("a-complete", {})
    if not is_known:
        Path(lib.git("rev-parse", "--absolute-git-dir"), "ckpt/written").unlink()
    opened = plain.resume(made)
    with make_store(opened.path + "/lib") as store:
        assert operation_of(store) == ("merge" if is_known else None)
        assert opened.remarks == (() if is_known else (f"the submodule lib: {FOREIGN}",))
        restored = store.restore(named(made)[0])
        assert (FOREIGN in restored.remarks) == (not is_known)


def test_what_is_captured_there(plain: Store, make_store: MakeStore, lib: Checkout) -> None:
    opened = plain.resume(plain.save("a-complete", {}))
    _, theirs, _ = places(opened.path)
    theirs.write("l", "changed there\n")
    with make_store(opened.path) as store:
        second = store.save("b-complete", {})
    assert (named(second)[0] in names(theirs), named(second)[0] in names(lib)) == (True, False)
    third = places(plain.resume(second).path)
    assert (third[1].path / "l").read_text() == "changed there\n"


def test_one_that_is_gone_is_named(plain: Store, lib: Checkout) -> None:
    made = plain.save("a-complete", {})
    lib.git("update-ref", "-d", f"{CHECKPOINTS}/{named(made)[0]}")
    opened = plain.resume(made)
    reason = f"no repository of the submodule has the checkpoint {named(made)[0]}"
    (remark,) = opened.remarks
    first = (
        f"the submodule lib was not restored: {reason}; in this worktree: "
        "git submodule update --init --recursive -- lib; "
    )
    assert remark.startswith(
        f"{first}fetch the checkpoint from the CLONE that captured it: "
        "git --git-dir=lib/.git fetch "
    )
    assert remark.endswith(f"; then git ckpt restore {made.id[:8]}")
    assert list((Path(opened.path) / "lib").iterdir()) == []


def test_what_is_told_brings_one_that_nobody_has_checked_out_here(
    plain: Store, make_store: MakeStore, main_checkout: Checkout, lib: Checkout, tmp_path: Path
) -> None:
    """The fetch fails without the submodule: `git -C lib` finds the superproject."""
    lib.git("submodule", "--quiet", "deinit", "--force", "inner")
    lib.write("l", "work\n")
    made = plain.save("a-complete", {})
    shutil.move(lib.git("rev-parse", "--absolute-git-dir"), tmp_path / "CLONE")
    main_checkout.git(
        "config", "--file", str(tmp_path / "CLONE/config"), "--unset", "core.worktree"
    )
    shutil.rmtree(lib.path)
    lib.path.mkdir()
    opened = plain.resume(made)
    (remark,) = opened.remarks
    fetch = shlex.split(
        remark.partition("captured it: ")[2]
        .partition(";")[0]
        .replace("CLONE", str(tmp_path / "CLONE"))
    )[1:]
    before = main_checkout.git("for-each-ref")
    main_checkout.git(*fetch, ok=(128,))
    assert main_checkout.git("for-each-ref") == before
    around = Checkout(Path(opened.path))
    around.git("config", "submodule.lib.url", str(tmp_path / "CLONE"))
    around.git(
        *shlex.split(remark.partition("in this worktree: ")[2].partition(";")[0])[1:], ok=(1,)
    )  # the nested submodule exists nowhere
    around.git(*fetch)
    with make_store(opened.path) as store:
        store.restore(made)
    assert (around.path / "lib/l").read_text() == "work\n"


@pytest.mark.parametrize("recursive", [True, False])
def test_what_is_told_brings_those_within_it(
    plain: Store,
    make_store: MakeStore,
    lib: Checkout,
    inner: Checkout,
    request: pytest.FixtureRequest,
    *,
    recursive: bool,
) -> None:
    """The remark's commands fetch the checkpoints of nested submodules.

    The worktree has lost its copies of the submodules, so git clones them again. Only the
    repositories of the main worktree have the checkpoints.
    """
    dirty(lib, inner)
    before = [seen[1:] for seen in settled(lib, inner)]
    made = plain.save("a-complete", {})
    around, theirs, within = places(plain.resume(made).path)
    shutil.rmtree(theirs.path)
    shutil.rmtree(Path(around.git("rev-parse", "--absolute-git-dir"), "modules"))
    theirs.path.mkdir()
    source = Path(
        lib.git("config", "--file", ".gitmodules", "submodule.inner.url")
    )  # the fixture deleted it
    request.addfinalizer(lambda: shutil.rmtree(source))
    inner.git(
        "clone", "--quiet", "--bare", inner.git("rev-parse", "--absolute-git-dir"), str(source)
    )
    around.git("config", "submodule.lib.url", lib.git("rev-parse", "--absolute-git-dir"))
    with make_store(around.path) as store:
        with pytest.raises(WorktreeError, match="in use elsewhere") as caught:
            store.restore(made)
        told = (
            str(caught.value.hint)
            .partition("make one for this worktree: git ")[2]
            .partition(";")[0]
        )
        assert told == "submodule update --init --recursive -- lib"
        around.git(*told.replace("" if recursive else "--recursive ", "").split())
        if not recursive:
            with pytest.raises(WorktreeError, match="belongs to another worktree") as caught:
                store.restore(made)
            place, _, told = (
                str(caught.value.hint)
                .removeprefix("after cd ")
                .partition(": make one for this worktree: git ")
            )
            assert told.partition("; ")[2] == (
                "then, in this directory, run the command again, or undo the restore: git ckpt undo"
            )
            Checkout(around.path / place).git(*told.partition(";")[0].split())
        store.restore(made)
    assert [seen[1:] for seen in settled(theirs, within)] == before


def test_what_is_told_of_one_within_another_names_its_place(
    plain: Store, lib: Checkout, inner: Checkout
) -> None:
    made = plain.save("a-complete", {})
    (found,) = names(inner)
    inner.git("update-ref", "-d", f"{CHECKPOINTS}/{found}")
    (remark,) = plain.resume(made).remarks
    assert remark.startswith(
        "the submodule lib/inner was not restored: "
        f"no repository of the submodule has the checkpoint {found}; "
    )
    assert (
        "; after cd lib: git submodule update --init --recursive -- inner; fetch the checkpoint "
        in remark
    )
    assert remark.endswith(f"; then git ckpt restore {named(made)[0][:8]}")


def test_one_that_lacks_a_file_comes_by_what_is_told(
    plain: Store, make_store: MakeStore, lib: Checkout
) -> None:
    """Git cannot copy a repository that lacks an object, until the object is back."""
    lib.git("submodule", "--quiet", "deinit", "--force", "inner")
    lib.write("l", "changed\n")
    made = plain.save("a-complete", {})
    git_dir = Path(lib.git("rev-parse", "--absolute-git-dir"))
    oid = lib.git("hash-object", "l")
    (git_dir / "objects" / oid[:2] / oid[2:]).unlink()
    opened = plain.resume(made)
    (remark,) = opened.remarks
    assert remark.startswith("the submodule lib was not restored: git cannot copy its repository: ")
    assert (
        f"list the missing objects: git --git-dir={git_dir} ckpt verify; then, in this worktree: "
        in remark
    )
    lib.git("hash-object", "-w", "l")
    around = Checkout(Path(opened.path))
    around.git("config", "submodule.lib.url", str(git_dir))  # the fixture's remote is gone
    around.git("submodule", "--quiet", "update", "--init", "--", "lib")
    with make_store(opened.path) as store:
        store.restore(made)
    assert (around.path / "lib/l").read_text() == "changed\n"


def test_one_that_is_not_checked_out_here(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    lib.write("l", "changed\n")
    made = plain.save("a-complete", {})
    shutil.rmtree(lib.path)
    assert (places(plain.resume(made).path)[1].path / "l").read_text() == "changed\n"


@pytest.mark.parametrize("after", ["copied", "attached"])
def test_after_a_kill_the_next_one_goes_on(
    plain: Store, lib: Checkout, inner: Checkout, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    dirty(lib, inner)
    made = plain.save("a-complete", {})

    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        plant(
            patched, planted.ATTACH_SUBMODULE if after == "copied" else planted.FILL_SUBMODULE, kill
        )
        with pytest.raises(KeyboardInterrupt):
            plain.resume(made)
    opened = plain.resume(made)
    assert (opened.made, opened.remarks) == (False, ())
    assert files(places(opened.path)[1:]) == files((lib, inner))
    git_dir = places(opened.path)[0].git("rev-parse", "--absolute-git-dir")
    assert not os.path.exists(os.path.join(git_dir, "ckpt-submodules"))


def test_after_a_kill_no_ignored_file_is_overwritten(
    plain: Store, lib: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The safety checkpoint cannot hold an ignored file."""
    made = plain.save("a-complete", {})

    def kill(inner: Any, *_: object, **__: object) -> None:
        there = Path(inner.repository.worktree or "")
        (there / ".gitignore").write_text("l\n")
        (there / "l").write_text("mine\n")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        plant(patched, planted.FILL_SUBMODULE, kill)
        with pytest.raises(KeyboardInterrupt):
            plain.resume(made)
    opened = plain.resume(made)
    there = Path(opened.path) / "lib"
    assert (there / "l").read_text() == "mine\n"
    (remark,) = opened.remarks
    assert f"its files are incomplete; to restore them: git -C {there} ckpt restore " in remark


def test_the_settings_can_switch_it_off(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    made = plain.save("a-complete", {})
    main_checkout.git("config", "ckpt.submodules", "none")
    opened = plain.resume(made)
    assert (opened.remarks, list((Path(opened.path) / "lib").iterdir())) == ((), [])


def test_a_path_that_somebody_made_up(plain: Store, main_checkout: Checkout, lib: Checkout) -> None:
    made = plain.save("a-complete", {})
    document = plain.raw(made.id).replace(b'path = "lib"', b'path = "../lib"')
    main_checkout.git(
        "update-ref",
        f"{CHECKPOINTS}/{made.id}",
        main_checkout.git("hash-object", "-w", "--stdin", data=document),
    )
    opened = plain.resume(plain.read(made.id))
    assert [remark.partition(":")[0] for remark in opened.remarks] == [
        "the submodule ../lib was not restored"
    ]
    assert not (Path(opened.path).parent / "lib").exists()


def test_one_that_the_sparse_checkout_leaves_out_stays_out(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    shutil.rmtree(lib.path)
    main_checkout.git("sparse-checkout", "set", "--no-cone", "a")
    made = plain.save("a-complete", {})
    main_checkout.git("submodule", "--quiet", "update", "--init", "--recursive", "--force", "lib")
    there = Checkout(Path(plain.resume(plain.read(made.id)).path))
    assert there.git("ls-files", "-v", "lib") == "S lib"
    assert (there.path / "lib" / ".git").exists() is False


@pytest.mark.parametrize("patterns", [(), ("/*",)])
def test_one_that_is_skipped_and_was_not_there_stays_away(
    plain: Store, main_checkout: Checkout, lib: Checkout, patterns: tuple[str, ...]
) -> None:
    """Git creates a directory for the entry when it checks out the others."""
    if patterns:
        main_checkout.git("sparse-checkout", "set", "--no-cone", *patterns)
    main_checkout.git("update-index", "--skip-worktree", "lib")
    shutil.rmtree(lib.path)
    made = plain.save("a-complete", {})
    main_checkout.git("submodule", "--quiet", "update", "--init", "--recursive", "--force", "lib")
    opened = plain.resume(made)
    there = Checkout(Path(opened.path))
    assert (
        opened.remarks,
        there.git("ls-files", "-v", "lib"),
        there.git("status", "--porcelain"),
    ) == ((), "S lib", "")
    assert not (there.path / "lib").exists()


def test_one_that_is_skipped_and_was_there_comes_back(
    plain: Store, main_checkout: Checkout, lib: Checkout
) -> None:
    """Without a sparse checkout, the flag only hides the entry from `git status`.

    The checkpoint keeps the flag, and does not name the submodule.
    """
    main_checkout.git("update-index", "--skip-worktree", "lib")
    main_checkout.git("config", "ckpt.submodules", "none")
    made = plain.save("a-complete", {})
    main_checkout.git("config", "--unset", "ckpt.submodules")
    assert named(made) == []
    there = Checkout(Path(plain.resume(made).path))
    assert there.git("ls-files", "-v", "lib") == "S lib"
    assert (there.path / "lib" / "l").read_text() == (lib.path / "l").read_text()
