"""A capture is complete even if the private directory is deleted meanwhile.

The private index is in that directory. git treats a missing index as empty, without an error: its
tree would lack every file that was not read at that time.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from gitckpt import IndexGone, Store
from tests.conftest import Checkout
from tests.store.conftest import require_whole

pytestmark = pytest.mark.long

ROBBER = """\
#!/bin/sh
case " $* " in
*" {word} "*)
    if [ -e {order} ]; then
        [ "$(cat {order})" = always ] || rm {order}
        rm -rf {private}
        [ {again} = no ] || mkdir -m 700 {private}
    fi
    ;;
esac
exec {git} "$@"
"""


class Robber:
    """Delete the private directory when git is called, by default once.

    Args:
        checkout: the worktree whose private directory is deleted.
        directory: where this class keeps its files.
        monkeypatch: replaces git by a script.
        word: the git command at which the directory is deleted.
        again: whether another gitckpt process creates the directory again at once.
    """

    def __init__(
        self,
        checkout: Checkout,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        word: str,
        *,
        again: bool,
    ) -> None:
        self.order = directory / "order"
        script = directory / "git"
        git = os.environ.get("GITCKPT_GIT") or "git"
        private = checkout.main / ".git/ckpt"
        script.write_text(
            ROBBER.format(
                word=word,
                order=self.order,
                private=private,
                git=git,
                again="yes" if again else "no",
            ),
            encoding="utf-8",
        )
        script.chmod(0o755)
        monkeypatch.setenv("GITCKPT_GIT", str(script))

    def wait(self, how: str = "once") -> None:
        self.order.write_text(how)


@pytest.fixture
def changed(checkout: Checkout) -> Checkout:
    """A worktree with unchanged, changed, staged and new files; git converts one."""
    checkout.commit(
        "more", **{".gitattributes": "*.t text\n", "as-committed": "1\n", "changed.t": "1\n"}
    )
    (checkout.path / "changed.t").write_bytes(b"2\r\n")
    checkout.write("staged", "3\n")
    checkout.git("add", "staged")
    checkout.write("new", "4\n")
    return checkout


@pytest.mark.parametrize("word", ["status", "update-index", "write-tree", "ls-files", "cat-file"])
@pytest.mark.parametrize("again", [False, True], ids=["", "made again"])
def test_the_files_are_captured_all_the_same(
    changed: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, *, again: bool
) -> None:
    status = changed.git("status", "--porcelain=v2")
    robber = Robber(changed, tmp_path, monkeypatch, word, again=again)
    with Store.open(changed.path, adapter="plumbing") as store:
        robber.wait()
        made = store.save("x")
        assert not robber.order.exists()
    monkeypatch.delenv("GITCKPT_GIT")
    assert made.worktree is not None
    files = changed.git("ls-tree", "-r", "--name-only", f"{made.worktree.tree}:files").split()
    assert files == [".gitattributes", "README", "as-committed", "changed.t", "new", "staged"]
    assert changed.git("ls-tree", "-r", "--name-only", f"{made.worktree.tree}:index/0").split() == [
        *files[:4],
        "staged",
    ]
    assert changed.git("status", "--porcelain=v2") == status
    require_whole(changed)


@pytest.mark.parametrize("again", [False, True], ids=["", "made again"])
def test_who_does_it_again_and_again_is_told_of(
    changed: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    robber = Robber(changed, tmp_path, monkeypatch, "write-tree", again=again)
    with Store.open(changed.path, adapter="plumbing") as store:
        robber.wait("always")
        with pytest.raises(IndexGone) as caught:
            store.save("x")
        assert (
            caught.value.message == f"{changed.main}/.git/ckpt was deleted while git read the files"
        )
        assert list(store.list()) == []
        robber.order.unlink()
        assert store.save("x").worktree is not None


@pytest.mark.parametrize("word", ["status", "read-tree", "update-index", "write-tree", "ls-files"])
def test_a_restore_is_completed_by_the_same_command(
    changed: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    robber = Robber(changed, tmp_path, monkeypatch, word, again=True)
    with Store.open(changed.path, adapter="plumbing") as store:
        made = store.save("x")
        wanted = changed.fingerprint()["files"]
        changed.write("README", "other\n")
        changed.git("rm", "--quiet", "--force", "staged")
        changed.write("untracked", "x\n")
        before, status = changed.fingerprint()["files"], changed.git("status", "--porcelain=v2")
        robber.wait()
        with contextlib.suppress(IndexGone):
            store.restore(made)
        assert not robber.order.exists()
        store.restore(made)
        assert changed.fingerprint()["files"] == wanted
        while changed.fingerprint()["files"] != before:  # of two steps, where the first had begun
            store.undo()
        assert changed.git("status", "--porcelain=v2") == status


@pytest.mark.parametrize(
    ("word", "path", "is_replaced"),
    [("status", None, False), ("read-tree", None, True), ("diff-index", "changed.t", True)],
)
def test_a_restore_says_how_to_go_back_where_files_may_be_replaced(
    changed: Checkout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    path: str | None,
    *,
    is_replaced: bool,
) -> None:
    robber = Robber(changed, tmp_path, monkeypatch, word, again=False)
    with Store.open(changed.path, adapter="plumbing") as store:
        made = store.save("x")
        (changed.path / "changed.t").write_bytes(b"3\r\n")
        robber.wait()
        with pytest.raises(IndexGone) as caught:
            store.restore(made, None if path is None else [path])
        back = ", or restore the previous state: git ckpt undo" if is_replaced else ""
        assert caught.value.hint == f"run the command again{back}"
        store.restore(made)
        assert (changed.path / "changed.t").read_bytes() == b"2\r\n"


def test_an_index_that_is_not_there_is_an_empty_one(checkout: Checkout) -> None:
    Path(checkout.git("rev-parse", "--path-format=absolute", "--git-path", "index")).unlink()
    with Store.open(checkout.path, adapter="plumbing") as store:
        made = store.save("x")
    assert made.worktree is not None
    assert checkout.git("ls-tree", "-r", "--name-only", f"{made.worktree.tree}:files").split() == [
        "README"
    ]
