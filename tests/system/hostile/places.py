"""Replace gitckpt's private paths with links, as a branch or another user can."""

from __future__ import annotations

import os
from pathlib import Path

from tests.conftest import Checkout


def linked_private(here: Checkout, elsewhere: Path) -> None:
    """Track `.ckpt` as a link out of the repository."""
    _tracked(here, ".ckpt", elsewhere)


def linked_worktrees(here: Checkout, elsewhere: Path) -> None:
    """Track `.ckpt/worktrees` as a link out of the repository."""
    _tracked(here, ".ckpt/worktrees", elsewhere)


def linked_ignore(here: Checkout, elsewhere: Path) -> None:
    """Track `.ckpt/.gitignore` as a link to a missing file."""
    _tracked(here, ".ckpt/.gitignore", elsewhere / "made")


def linked_runs(here: Checkout, elsewhere: Path) -> None:
    """Track `.ckpt/runs` as a link out of the repository, to the files of a run."""
    _tracked(here, ".ckpt/runs", elsewhere)


def linked_settings(here: Checkout, elsewhere: Path) -> None:
    """Track `gitckpt.toml` as a link to a file of the user's."""
    (elsewhere / "secret").write_text("password = hunter2\n")
    _tracked(here, "gitckpt.toml", elsewhere / "secret")


def dangling_settings(here: Checkout, elsewhere: Path) -> None:
    """Track `gitckpt.toml` as a link to a missing file."""
    _tracked(here, "gitckpt.toml", elsewhere / "made")


def linked_git_private(here: Checkout, elsewhere: Path) -> None:
    """Replace gitckpt's directory inside `.git` with a link."""
    (here.path / ".git/ckpt").symlink_to(elsewhere)


def _tracked(here: Checkout, name: str, target: Path) -> None:
    path = here.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))
    here.git("add", "--force", "--all")
    here.git("commit", "--quiet", "--message", "a link")
