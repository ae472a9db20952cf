"""After a kill in a restore with submodules, it completes, and undo works in each."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from gitckpt import Store
from tests.conftest import Checkout
from tests.store.conftest import require_whole
from tests.store.restore.test_submodules_restored import disturb
from tests.store.submodules import dirty, settled
from tests.system.kills.killer import Killer, opened
from tests.system.kills.test_kill_at_git_calls import SHARES, Copies
from tests.system.kills.test_restore_kills import RESTORE

pytestmark = pytest.mark.long


RESUME = """
    from gitckpt.store.worktrees import resumption
    resumption.resume_checkpoint(store, store.read(args[0]))
"""


def places(top: Path) -> list[Checkout]:
    return [Checkout(top), Checkout(top / "lib"), Checkout(top / "lib" / "inner")]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_kill_at_every_git_call(
    main_checkout: Checkout, lib: Checkout, inner: Checkout, tmp_path: Path, share: int
) -> None:
    """A killed restore is completed in every other copy, and undone in all of them."""
    dirty(lib, inner)
    with opened(main_checkout) as store:
        made = store.save("a-complete", {}).id
    disturb(main_checkout, lib, inner)
    before = settled(main_checkout, lib, inner)
    copies, killer = Copies(main_checkout, tmp_path / "copy"), Killer(tmp_path / "killer")

    def restore(store: Store) -> None:
        store.restore(store.read(made))

    there = places(copies.make().path)
    with opened(there[0]) as store:
        restore(store)
    wanted = settled(*there)
    killer.run(10**6, RESTORE, str(copies.make().path), "--dry-run", made)
    begin = killer.count() - 4  # restore changes nothing before this call
    for number in count():
        at = begin + 11 * (number * SHARES + share)
        top = copies.make()
        there = places(top.path)
        survived, _ = killer.run(at, RESTORE, str(top.path), made)
        if number % 2 == share % 2 or survived:
            with opened(top) as store:
                restore(store)
            assert settled(*there) == wanted
        with opened(top) as store:
            if settled(*there) != before:
                store.undo()
        assert settled(*there) == before, at
        for one in there:
            require_whole(one)
        if survived:
            assert number > 2
            return


@pytest.mark.sampled(2)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_kill_at_every_git_call_of_a_resume(
    main_checkout: Checkout, lib: Checkout, inner: Checkout, tmp_path: Path, share: int
) -> None:
    dirty(lib, inner)
    wanted = settled(main_checkout, lib, inner)
    with opened(main_checkout) as store:
        made = store.save("a-complete", {}).id
    copies, killer = Copies(main_checkout, tmp_path / "copy"), Killer(tmp_path / "killer")
    for number in count():
        top = copies.make()
        at = 1 + 9 * (number * SHARES + share)
        survived, _ = killer.run(at, RESUME, str(top.path), made)
        with opened(top) as store:
            path = Path(store.resume(store.read(made)).path)
        assert [seen[1:] for seen in settled(*places(path))] == [seen[1:] for seen in wanted], at
        assert settled(*places(top.path)) == wanted
        for one in [*places(top.path), *places(path)]:
            require_whole(one)
        if survived:
            assert number > 2
            return
