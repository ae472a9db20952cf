"""Apply ref updates in a process of its own that ends afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from gitckpt.git.refs import Refs, RefUpdate
from gitckpt.git.repository import Repository


def apply_once(repository: Repository, updates: Sequence[RefUpdate]) -> None:
    """Apply updates as `Refs.apply_updates` does, then end the git process."""
    refs = Refs(repository)
    refs.apply_updates(updates)
    refs._standby.take_process().communicate()  # git logs its flushes when it exits
