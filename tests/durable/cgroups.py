"""Control groups, for tests."""

from __future__ import annotations

import pytest

from gitckpt.durable.command import cgroup


def _can_be_had() -> bool:
    place = cgroup.make("a-trial", "0", "0:0")
    if place is not None:
        cgroup.remove(place)
    return place is not None


has_groups = pytest.mark.skipif(not _can_be_had(), reason="no control group can be had here")
