"""What git keeps of linked worktrees (gitrepository-layout(5), `worktrees`), and what gitckpt adds: whose a worktree is.

Directories of worktrees get moved or deleted by hand, and what git keeps of them gets pruned. Nothing here deletes what is not held.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gitckpt.git.repository import Repository
from gitckpt.store.records import layout

LOCK_REASON = "gitckpt"
"""Begins the reason for which our worktrees are locked: `git worktree prune` shall leave them."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What a worktree was made for, as kept in its administrative directory."""

    checkpoint: str
    run: str | None


def owner(repository: Repository) -> Owner | None:
    """Returns what the worktree that `repository` is seen from was made for; None where gitckpt did not make it."""
    return owner_in(repository.git_dir)


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


def write_owner(repository: Repository, owner: Owner) -> None:
    """Notes what the worktree that `repository` is seen from was made for."""
    import json

    with open(os.path.join(repository.git_dir, layout.RUN_FILE), "w", encoding="utf-8") as file:
        json.dump({"checkpoint": owner.checkpoint, "run": owner.run}, file)


def owner_at(repository: Repository, path: str) -> Owner | None:
    """Returns whose a directory is, if it is a worktree of this repository that gitckpt made."""
    there = seen_from(repository, path)
    return owner(there) if there is not None else None


def seen_from(repository: Repository, path: str) -> Repository | None:
    """Returns the repository as seen from one of its linked worktrees, whatever `GIT_DIR` says; None where there is none at the path."""
    git_dir = named_by(path)
    if git_dir is None or not is_ours(repository, git_dir) or not os.path.isdir(git_dir):
        return None
    return Repository(git_dir, path, repository.object_format)


def named_by(path: str) -> str | None:
    """Returns the administrative directory that a worktree's `.git` file names, whether it is there or not; None without such a file."""
    named = content(os.path.join(path, ".git")).removeprefix("gitdir: ")
    return os.path.normpath(os.path.join(path, named)) if named else None


def is_ours(repository: Repository, git_dir: str) -> bool:
    """Tells whether an administrative directory is, or would be, one of this repository."""
    return os.path.realpath(os.path.dirname(git_dir)) == os.path.realpath(administration(repository))


def administration(repository: Repository) -> str:
    """Returns the directory that holds the administrative directories of the linked worktrees."""
    return os.path.join(repository.common_dir, "worktrees")


def registered(repository: Repository) -> list[tuple[str, str]]:
    """Returns the administrative directory of every linked worktree, with the path at which git believes the worktree to be."""
    place = administration(repository)
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    found = []
    for name in names:
        git_dir = os.path.join(place, name)
        dot_git = content(os.path.join(git_dir, "gitdir"))
        found.append((git_dir, os.path.dirname(os.path.normpath(os.path.join(git_dir, dot_git)))))
    return found


def registration_of(repository: Repository, path: str) -> str | None:
    """Returns the administrative directory of the worktree that git believes to be at a path, if gitckpt made it."""
    for git_dir, where in registered(repository):
        if os.path.realpath(where) == os.path.realpath(path) and content(os.path.join(git_dir, "locked")).startswith(LOCK_REASON):
            return git_dir
    return None


def moved_to(git_dir: str, places: list[str]) -> str | None:
    """Returns where a worktree was moved by hand: the directory, of those in some places, whose `.git` file names what git keeps of it."""
    for place in places:
        for name in sorted(os.listdir(place)) if os.path.isdir(place) else ():
            path = os.path.join(place, name)
            named = named_by(path)
            if named is not None and os.path.realpath(named) == os.path.realpath(git_dir):
                return path
    return None


def content(path: str) -> str:
    """Returns the one line that a small file of git holds; "" where there is none."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read().removesuffix(b"\n"))
    except OSError:
        return ""
