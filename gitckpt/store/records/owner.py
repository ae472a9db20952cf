"""What a worktree was made for, as gitckpt notes it in git's administrative directory of that worktree."""

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
    """Returns what an administrative directory says that its worktree was made for; None where it does not."""
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
