"""Read what gitckpt made a worktree for, from its administrative directory."""

from __future__ import annotations

import os

from gitckpt.model.values import dataclass
from gitckpt.store.records import layout


@dataclass(frozen=True, slots=True)
class Owner:
    """What a worktree was made for, as kept in its administrative directory."""

    checkpoint: str
    run: str | None


def owner_in(git_dir: str) -> Owner | None:
    """Return what a worktree was made for; None where gitckpt did not make it."""
    path = os.path.join(git_dir, layout.RUN_FILE)
    if not os.path.exists(path):
        return None
    import json

    try:
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
        return Owner(said["checkpoint"], said.get("run"))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
