"""After a kill, the same restore, undo or redo completes, and undo works.

Kills come before, after and within each call of git.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from gitckpt import NotFoundError, Store
from tests.conftest import Checkout
from tests.store.conftest import require_whole, view
from tests.system.kills.killer import Killer, opened
from tests.system.kills.test_kill_at_git_calls import SHARES, Copies

pytestmark = pytest.mark.long

RESTORE = """
    from gitckpt.store.restore import restorer
    id_, *paths = [word for word in args if not word.startswith("--")]
    options = {word[2:].replace("-", "_"): True for word in args if word.startswith("--")}
    paths = [path.encode() for path in paths]
    restorer.restore_checkpoint(store, store.read(id_), paths, **options)
"""
STEP = """
    from gitckpt.store.restore import restorer
    getattr(restorer, args[0] + "_restore")(store)
"""

each_share = pytest.mark.parametrize("share", range(SHARES))


@pytest.fixture
def killer(tmp_path: Path) -> Killer:
    return Killer(tmp_path / "killer")


@pytest.fixture
def copies(main_checkout: Checkout, tmp_path: Path) -> Copies:
    return Copies(main_checkout, tmp_path / "copy")


def merging(here: Checkout) -> str:
    """Save a conflicted merge with work on top, change everything, return the id."""
    base = here.git("rev-parse", "HEAD")
    ours = here.commit("ours", README="ours\n", kept="k\n", gone="g\n")
    here.git("checkout", "--quiet", "-b", "theirs", base)
    here.commit("theirs", README="theirs\n", other="o\n")
    here.git("checkout", "--quiet", "main")
    here.git("merge", "theirs", ok=(1,))
    here.write("new", "x\n")
    (here.path / "gone").unlink()
    with opened(here) as store:
        made = store.save("a-complete", {}).id
    here.git("reset", "--quiet", "--hard", ours)
    here.write("README", "typed since\n")
    here.git("add", "README")
    here.write("kept", "typed since\n")
    here.write("precious", "typed since\n")
    (here.path / "new").unlink()
    return made


def seen(here: Checkout) -> dict[str, object]:
    """Return everything that a restore changes."""
    state = {path.name: path.read_bytes() for path in sorted((here.path / ".git").glob("MERGE_*"))}
    return {**view(here.path), "state": state}


class TestAKillAtEveryGitCall:
    """A killed restore is completed in every other copy, and undone in all of them."""

    @pytest.mark.sampled(2)
    @each_share
    def test_of_a_restore(
        self, main_checkout: Checkout, copies: Copies, killer: Killer, share: int
    ) -> None:
        made = merging(main_checkout)
        before = seen(main_checkout)
        with opened(copies.make()) as store:
            store.restore(store.read(made))
            wanted = seen(Checkout(Path(str(store.worktree))))
        main_checkout.git("gc", "--quiet")
        killer.run(10**6, RESTORE, str(copies.make().path), "--dry-run", made)
        begin = killer.count() - 4  # restore changes nothing before this call
        for number in count():
            at = begin + 5 * (
                number * SHARES + share
            )  # skip positions with the same result: after one call and before the next
            checkout = copies.make()
            survived, _ = killer.run(at, RESTORE, str(checkout.path), made)
            if number % 2 == share % 2 or survived:
                self.go_on(checkout, lambda store: store.restore(store.read(made)))
                assert seen(checkout) == wanted
            self.go_on(checkout, Store.undo)
            assert seen(checkout) == before
            if survived:
                assert number > 2
                return

    @pytest.mark.long
    @pytest.mark.sampled(2)
    @each_share
    @pytest.mark.parametrize("step", ["undo", "redo"])
    def test_of_an_undo_and_a_redo(
        self, main_checkout: Checkout, copies: Copies, killer: Killer, step: str, share: int
    ) -> None:
        """After a kill, undo and redo reach both sides, and a second undo the first state."""
        made = merging(main_checkout)
        first = seen(main_checkout)
        sides = {}
        with opened(main_checkout) as store:
            store.restore(store.read(made), [b"README"])
            main_checkout.write("kept", "typed between\n")
            sides["undo"] = seen(main_checkout)
            store.restore(store.read(made))
            main_checkout.write("kept", "typed afterwards\n")
            sides["redo"] = seen(main_checkout)
            if step == "redo":
                store.undo()
        # Undo and redo make the calls of a restore: a few kills suffice, each with one direction.
        for turn, at in enumerate((share * 9 + 36, share * 4 + 72), share):
            checkout = copies.make()
            killer.run(at, STEP, str(checkout.path), step)
            self.go_either_way(checkout, sides, [*sides][turn % 2])
            self.go_on(checkout, Store.undo)
            assert seen(checkout) == first

    def go_either_way(
        self, checkout: Checkout, sides: dict[str, dict[str, object]], then: str
    ) -> None:
        """Go to one side of a step that may have been killed, then the other, then undo."""
        with opened(checkout) as store:
            is_open = store.is_cut_off()
        if is_open or seen(checkout) != sides[then]:
            self.go_on(checkout, getattr(Store, then))
        assert seen(checkout) == sides[then]
        if then == "undo":
            self.go_on(checkout, Store.redo)
            assert seen(checkout) == sides["redo"]
        self.go_on(checkout, Store.undo)
        assert seen(checkout) == sides["undo"]

    @pytest.mark.long(but=["0"])
    @pytest.mark.sampled(2)
    @each_share
    def test_of_a_restore_of_paths(
        self, main_checkout: Checkout, copies: Copies, killer: Killer, share: int
    ) -> None:
        made = merging(main_checkout)
        before = seen(main_checkout)
        for at in (share * 7 + 36,):
            checkout = copies.make()
            killer.run(at, RESTORE, str(checkout.path), "--index", made, "README", "new")

            def again(store: Store) -> object:
                paths = [b"README", b"new"]
                return store.restore(store.read(made), paths or None, index=True)

            self.go_on(checkout, again)
            assert ((checkout.path / "new").read_text(), (checkout.path / "kept").read_text()) == (
                "x\n",
                "typed since\n",
            )
            assert checkout.git("ls-files", "--unmerged", "--", "README").count("\n") == 2
            self.go_on(checkout, Store.undo)
            assert seen(checkout) == before

    @staticmethod
    def go_on(checkout: Checkout, action: Callable[[Store], object]) -> None:
        """Continue as a user would; require whole checkpoints and no lock of the index."""
        with opened(checkout) as store:
            try:
                action(store)
            except NotFoundError:
                assert not any(entry.trigger == "safety" for entry in store.list())
        require_whole(checkout)
        assert not (checkout.path / ".git/index.lock").exists()
