"""Where a worktree is made, out of everybody's sight until it is whole: a directory beside the place to which it is moved then."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from gitckpt.git.files import premises
from gitckpt.git.filesystem import names_in
from gitckpt.git.lock import Lock
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.store.worktrees import ownership
from gitckpt.store.worktrees.ownership import BEING_MADE


def half_made(root: str) -> list[str]:
    """Returns the files and directories of worktrees that are being made below a directory, or were when somebody was killed."""
    return [os.path.join(root, name) for name in names_in(root) if name.startswith(BEING_MADE)]


def sweep(repository: Repository, root: str) -> None:
    """Removes what killed processes left half made; whoever still works on one holds its lock."""
    for name in {name.removesuffix(".lock") for name in names_in(root) if name.startswith(BEING_MADE)}:
        directory = os.path.join(root, name)
        with Lock(f"{directory}.lock", 0) as is_left:
            if is_left:
                _discard(repository, directory)


def abandoned(repository: Repository) -> list[str]:
    """Returns the directories in which worktrees were half made that git has registered, and that nobody works on any more.

    While git makes a worktree, its HEAD names no commit for a moment: where a kill came just then, every `git gc` fails until it is gone.

    Args:
        repository: seen from any of its worktrees.
    """
    found = set()
    for git_dir, place in administration.registered(repository):
        directory = os.path.dirname(place)
        if ownership.is_locked_by_us(git_dir) and ownership.is_being_made(place) and not _is_held(f"{directory}.lock"):
            found.add(directory)
    return sorted(found)


def discard(repository: Repository, directory: str) -> bool:
    """Removes a scaffold that was abandoned, with what git keeps of the worktree in it; returns whether nobody works on it.

    Args:
        repository: seen from any of its worktrees.
        directory: as `abandoned` returned it.
    """
    with Lock(f"{directory}.lock", 0) as is_left:
        if is_left or not os.path.isdir(os.path.dirname(directory)):
            _discard(repository, directory)
            return True
    return False


def _is_held(lock: str) -> bool:
    if not os.path.exists(lock):
        return False
    with Lock(lock, 0) as is_free:
        return not is_free


@contextlib.contextmanager
def around(repository: Repository, path: str) -> Iterator[str]:
    """Yields where the worktree of a path is made, beside it; what is left there in the end goes."""
    root, name = os.path.split(path)
    directory = os.path.join(root, f"{BEING_MADE}{os.urandom(4).hex()}")
    with Lock(f"{directory}.lock", 0):
        try:
            yield os.path.join(directory, name)
        finally:
            _discard(repository, directory)


def _discard(repository: Repository, directory: str) -> None:
    """Removes a scaffold, its lock, and what git keeps of the worktree that was made there. Nobody but its maker has ever known of it."""
    premises.require(directory)
    real = os.path.realpath(directory) + os.sep
    for git_dir, place in administration.registered(repository):
        if not os.path.realpath(place).startswith(real):
            continue
        final = os.path.join(os.path.dirname(directory), os.path.basename(place))
        there = administration.named_by(final)
        if there is not None and os.path.realpath(there) == os.path.realpath(git_dir):
            # A kill came between its move and what follows it.
            administration.repair(repository, final)
        else:
            with administration.turn(repository):
                premises.discard(git_dir)
    premises.discard(directory)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{directory}.lock")
