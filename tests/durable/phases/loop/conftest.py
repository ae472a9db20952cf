"""Fixtures that the tests of the autonomous loop share."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitckpt import Store
from tests.conftest import Checkout, Clock
from tests.durable.conftest import Sleeper
from tests.durable.phases.loop.bench import Bench


@pytest.fixture
def bench(
    main_checkout: Checkout,
    plain: Store,
    clock: Clock,
    sleeper: Sleeper,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    """A project with a committed plan, whose agent says "done" and whose tests pass."""
    clock.step = 1
    return Bench(main_checkout, plain, sleeper, tmp_path, monkeypatch)
