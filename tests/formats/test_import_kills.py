"""An import killed at any git call leaves a sound store; a repeat completes it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from tests.cli.conftest import ckpt
from tests.conftest import Checkout
from tests.formats.conftest import Imports
from tests.store.conftest import require_runs, require_whole
from tests.system.kills.killer import Killer
from tests.system.kills.test_kill_at_git_calls import SHARES, Copies

__all__ = ["ckpt"]

IMPORT = """
    from gitckpt.formats.importer import Importer
    from gitckpt.store.store import Store
    os.chdir(path)
    for each in Importer(Store(store)).take(["."]):
        print(each.checkpoint, flush=True)
"""


@pytest.mark.long(but=["0"])
@pytest.mark.parametrize("share", range(SHARES))
def test_a_kill_at_every_git_call(
    main_checkout: Checkout, tmp_path: Path, imports: Imports, share: int
) -> None:
    Imports(main_checkout, imports.ckpt).bring("rlm-act", "forge", "superpowers")
    copies, killer = Copies(main_checkout, tmp_path / "copy"), Killer(tmp_path / "killer")
    wanted: dict[str, str] | None = None
    for number in count():
        there = Imports(copies.make(), imports.ckpt)
        survived, reported = killer.run(
            1 + share + SHARES * 3 * number, IMPORT, str(there.checkout.path)
        )
        found = require_whole(there.checkout)
        require_runs(there.checkout, found)
        assert set(reported) <= found.keys()
        assert there.ok("verify") == ""
        there()
        statuses = there.statuses()
        assert wanted is None or statuses == wanted
        wanted = statuses
        assert {line.status for line in there()} == {"known"}
        assert there.ok("verify") == ""
        if survived:
            return
