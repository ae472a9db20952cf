"""Return comparable facts about the current repository and worktree."""

from __future__ import annotations

from collections.abc import Callable

from gitckpt.git.repository import Repository
from tests.conftest import Checkout

Open = Callable[..., Repository]


def whereabouts(repository: Repository) -> dict[str, object]:
    return {
        "git_dir": repository.git_dir,
        "common_dir": repository.common_dir,
        "worktree": repository.worktree,
        "is_linked": repository.is_linked,
    }


def main_of(checkout: Checkout) -> dict[str, object]:
    git_dir = str(checkout.path / ".git")
    return {
        "git_dir": git_dir,
        "common_dir": git_dir,
        "worktree": str(checkout.path),
        "is_linked": False,
    }
