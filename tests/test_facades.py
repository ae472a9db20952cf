"""The facades give rlm-act and forge their calls in less than 60 lines each."""

from __future__ import annotations

import datetime as dt
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gitckpt import Store
from tests.cli.conftest import store_text
from tests.conftest import Checkout
from tests.stores import clock_of, set_clock

EXAMPLES = Path(__file__).resolve().parent.parent / "examples/facades"
DAY = 86_400_000_000


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["rlm_act", "forge"])
def test_it_is_short_and_needs_public_names_alone(name: str) -> None:
    lines = [
        line
        for line in (EXAMPLES / f"{name}.py").read_text().splitlines()
        if line.strip() and not line.startswith('"""')
    ]
    assert len(lines) < 60
    assert [
        line for line in lines if "gitckpt" in line and line.startswith(("from", "import"))
    ] == ["from gitckpt import Policy, Store"]


def test_rlm_act(checkout: Checkout) -> None:
    manager = loaded("rlm_act").CheckpointManager(str(checkout.path))
    assert manager.detect_resumable_checkpoint() is None
    first = manager.write_checkpoint({"research": {"notes": [1, None]}}, "research-complete")
    second = manager.write_checkpoint(
        {"plan": "x"}, "decomposition-failed", ["no network", "twice"]
    )
    found = manager.detect_resumable_checkpoint()
    assert (found["phase"], found["errors"], found["state"], found["file_path"]) == (
        "decomposition-failed",
        ["no network", "twice"],
        {"plan": "x"},
        second,
    )
    assert found["git_sha"] == checkout.head()
    assert manager.load_checkpoint(first) == {"research": {"notes": [1, None]}}
    assert manager.get_checkpoint_age_days(found) == 0
    assert manager.get_checkpoint_age_days({"timestamp": "2020-01-01T00:00:00+02:00"}) > 2000
    assert manager.cleanup_by_age(3) == (0, 0)
    store_text(checkout, "refs/checkpoints/11111111-1111-4111-8111-111111111111", "x")
    assert manager.cleanup_all() == (2, 1)
    assert manager.cleanup_by_age(-1) == (0, 1)
    manager.store.close()


@pytest.mark.parametrize(
    ("timestamp", "days"),
    [
        ("", 0),
        ("garbage", 0),
        ("2024-01-01T00:00:00", 0),
        (None, 0),
        ("{-71}Z", 2),
        ("{-73}Z", 3),
        ("{-71}+02:00", 3),
        ("{+9}Z", 0),
    ],
)
def test_rlm_act_counts_whole_days_and_takes_no_timestamp_for_today(
    timestamp: str | None, days: int
) -> None:
    """A number in braces is an offset in hours from the present, in UTC."""
    manager_class = loaded("rlm_act").CheckpointManager
    if timestamp is not None and timestamp.startswith("{"):
        hours, _, zone = timestamp[1:].partition("}")
        timestamp = (dt.datetime.now(dt.UTC) + dt.timedelta(hours=int(hours))).replace(
            tzinfo=None
        ).isoformat() + zone
    assert manager_class.get_checkpoint_age_days(None, {"timestamp": timestamp}) == days
    assert manager_class.get_checkpoint_age_days(None, {}) == 0


@pytest.mark.long
def test_forge(checkout: Checkout) -> None:
    forge = loaded("forge")
    called: list[int] = []

    def fails() -> None:
        raise RuntimeError("agent exited 1")

    with Store.open(checkout.path, adapter="plumbing") as store:
        state = forge.State.new(store, "auth.md", "auth")
        assert state.id.endswith("-auth")
        assert [step["status"] for step in state.data["steps"]] == ["pending"] * 6
        for index in range(3):
            state.run_step(index, lambda index=index: called.append(index))
        checkout.write("half", "half\n")
        with pytest.raises(RuntimeError, match="agent exited 1"):
            state.run_step(3, fails)
        (run,) = store.runs()
        assert (run.run, run.status, run.label) == (state.id, "failed", "run agent-failed")
        again = forge.State.load(store, state.id)
        assert again.data["steps"][3] == {
            "name": "run agent",
            "status": "failed",
            "error": "agent exited 1",
        }
        for index in range(6):
            again.run_step(index, lambda index=index: called.append(index))
        assert called == [0, 1, 2, 3, 4, 5]
        assert [each.status for each in store.runs()] == ["complete"]
        assert forge.cleanup(store, DAY) == []
        now: Any = clock_of(store)
        set_clock(store, lambda: now() + 2 * DAY)
        assert forge.cleanup(store, DAY) == [state.id]
