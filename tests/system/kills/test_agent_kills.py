"""A hook of an agent, a guard and `watch` may be killed at any write; the next one works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.hook_calls import SESSION, bash, call_hook
from tests.conftest import Checkout
from tests.store.conftest import require_runs, require_whole
from tests.system.kills.killer import Killer, opened
from tests.system.kills.test_kill_at_git_calls import SHARES, Copies, positions

pytestmark = pytest.mark.long

HOOK = """
    import json
    from gitckpt.agents import events, turns
    event = events.parse(json.loads(args[0]) | {"cwd": path})
    made = turns.record(event)
    print(made.id if made is not None else "", flush=True)
"""
GUARD = """
    from gitckpt.agents import guards
    from gitckpt.store.store import Store
    os.chdir(path)
    made = guards.guard(Store(store), "git reset --hard && git stash drop")
    print(made.id if made is not None else "", flush=True)
"""

WATCH = """
    from gitckpt.agents.watch import Watch
    from gitckpt.git.process import start_attached
    from gitckpt.store.store import Store
    os.chdir(path)
    command = ["sh", "-c", "echo $0 > draft.txt; sleep 1.5; echo $0 > last.txt", args[0]]
    watch = Watch(Store(store), 0.1, lambda line: print(line.split()[-1], flush=True))
    assert watch.run(lambda: start_attached(command, os.environ)) == 0
"""

each_share = pytest.mark.parametrize("share", range(SHARES))


@pytest.fixture
def killer(tmp_path: Path) -> Killer:
    return Killer(tmp_path / "killer")


@pytest.fixture
def copies(main_checkout: Checkout, tmp_path: Path) -> Copies:
    return Copies(main_checkout, tmp_path / "copy")


@pytest.mark.sampled(2)
@each_share
@pytest.mark.parametrize("event", ["UserPromptSubmit", "PreToolUse", "Stop"])
def test_a_hook_may_be_killed_at_every_write(
    main_checkout: Checkout, copies: Copies, killer: Killer, event: str, share: int
) -> None:
    if event != "UserPromptSubmit":
        call_hook("UserPromptSubmit", main_checkout, prompt="one")
    main_checkout.write("draft.txt", "draft\n")
    payload = {"hook_event_name": event, "session_id": SESSION, "prompt": "two", **bash("make")}
    for at in positions(share):
        checkout = copies.make()
        survived, reported = killer.run(at, HOOK, str(checkout.path), json.dumps(payload))
        found = require_whole(checkout)
        assert set(reported) <= found.keys()
        require_runs(checkout, found)
        call_hook(event, checkout, prompt="two", **bash("make"))
        call_hook("Stop", checkout)
        with opened(checkout) as store:
            entries = store.list()
            assert entries[0].label.endswith("-complete")
            assert len({entry.run for entry in entries}) == 1
            assert b"draft.txt" in store.diff_commit(entries[0].id)
        require_runs(checkout, require_whole(checkout))
        require_no_locks(checkout)
        if survived:
            assert at > 8
            return


@pytest.mark.sampled(2)
@each_share
def test_a_guard_may_be_killed_at_every_write(
    main_checkout: Checkout, copies: Copies, killer: Killer, share: int
) -> None:
    main_checkout.write("README", "stashed\n")
    main_checkout.git("stash")
    main_checkout.write("draft.txt", "draft\n")
    for at in positions(share):
        checkout = copies.make()
        survived, reported = killer.run(at, GUARD, str(checkout.path))
        assert set(filter(None, reported)) <= require_whole(checkout).keys()
        again, _ = killer.run(10**9, GUARD, str(checkout.path))
        assert again
        with opened(checkout) as store:
            patches = [store.diff_commit(entry.id) for entry in store.list()]
            assert any(b"draft.txt" in patch for patch in patches)
        require_whole(checkout)
        if survived:
            assert at > 8
            return


@pytest.mark.sampled(4)
@each_share
def test_watch_may_be_killed_at_every_write(
    main_checkout: Checkout, copies: Copies, killer: Killer, share: int
) -> None:
    main_checkout.write("README", "changed before\n")
    for at in positions(share):
        checkout = copies.make()
        survived, reported = killer.run(at, WATCH, str(checkout.path), "first")
        found = require_whole(checkout)
        assert set(reported) <= {name[:8] for name in found}
        assert not survived or len(found) >= 2
        with opened(checkout) as store:
            assert store.verify().findings == []
        killer.run(10**9, WATCH, str(checkout.path), "second")
        with opened(checkout) as store:
            entries = store.list()
            assert entries[0].label == "watch-complete"
            patch = store.diff_commit(entries[0].id)
            assert b"changed before" in patch
            assert patch.count(b"+second") == 2
            assert store.verify().findings == []
        require_whole(checkout)
        require_no_locks(checkout)
        if survived:
            assert at > 16
            return


def require_no_locks(checkout: Checkout) -> None:
    locks = (checkout.path / ".git").rglob("*.lock")
    assert [path for path in locks if path.parent.name != "ckpt"] == []  # those are permanent
