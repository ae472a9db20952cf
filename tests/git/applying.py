"""Apply ref updates in a process of its own that ends afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from gitckpt.git.refs import Refs, Update
from gitckpt.git.repository import Repository


def apply_once(repository: Repository, updates: Sequence[Update]) -> None:
    """Apply updates as `Refs.update` does, then end the git process."""
    refs = Refs(repository)
    refs.update(updates)
    refs._standby.take().communicate()  # git logs its flushes when it exits
