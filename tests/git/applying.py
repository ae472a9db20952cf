"""A ref transaction by a process of its own, which ends with it."""

from __future__ import annotations

from collections.abc import Sequence

from gitckpt.git.refs import Refs, Update
from gitckpt.git.repository import Repository


def apply_once(repository: Repository, updates: Sequence[Update]) -> None:
    """Applies updates as `Refs.update` does, and ends the process."""
    refs = Refs(repository)
    refs.update(updates)
    refs._standby.take().communicate()  # to its own end, where git writes down how often it flushed
