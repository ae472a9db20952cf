"""Whose a linked worktree is: what gitckpt adds to what git keeps of it (`git.worktree.administration`).

Directories of worktrees get moved or deleted by hand, and what git keeps of them gets pruned. Nothing here deletes what is not held.
"""

from __future__ import annotations

import contextlib
import os

from gitckpt.git.files import atomic
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import content, elsewhere, lock_reason, moved_to, named_by, registered, seen_from, went_along
from gitckpt.model import ids
from gitckpt.model.errors import WorktreeError
from gitckpt.model.names import shell_word
from gitckpt.store.records import layout
from gitckpt.store.records import owner as owners
from gitckpt.store.records.owner import Owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

LOCK_REASON = "gitckpt"
"""Begins the reason for which our worktrees are locked, before the id of a run or a checkpoint: `git worktree prune` shall leave them."""


BEING_MADE = ".making-"
"""Prefix of the directory in which a worktree is made before it is moved to its path."""


owner_in = owners.owner_in


def owner(repository: Repository) -> Owner | None:
    """Returns what the worktree that `repository` is seen from was made for; None where gitckpt did not make it."""
    return owner_in(repository.git_dir)


def made_from(repository: Repository, checkpoint_ids: Collection[str]) -> list[tuple[str, str]]:
    """Returns the top of each worktree that was made from one of some checkpoints, rather than for a run, and the id of that.

    Args:
        repository: seen from any of its worktrees.
        checkpoint_ids: of those.
    """
    owners = ((path, owner_in(git_dir)) for git_dir, path in registered(repository))
    return [(path, one.checkpoint) for path, one in owners if one is not None and one.run is None and one.checkpoint in checkpoint_ids]


def of_runs(repository: Repository) -> dict[str, str]:
    """Returns the top of each run's worktree that is where git believes it to be; not those of which another repository is told.

    Args:
        repository: seen from any of its worktrees.
    """
    return dict(_of_runs(repository))


def of_run(repository: Repository, run: str, at: str) -> str | None:
    """Returns the top of a run's worktree that is there, as `of_runs`; None where there is none.

    A run may have several: one was on a disk that was not there when another one was made.

    Args:
        repository: seen from any of its worktrees.
        run: whose.
        at: the one that counts, if it is there.
    """
    found = [path for one, path in _of_runs(repository) if one == run]
    return next((path for path in found if os.path.realpath(path) == os.path.realpath(at)), found[-1] if found else None)


def is_being_made(path: str) -> bool:
    """Return whether a worktree is still in the directory in which it is made."""
    return os.path.basename(os.path.dirname(path)).startswith(BEING_MADE)


def _of_runs(repository: Repository) -> Iterator[tuple[str, str]]:
    for git_dir, path in registered(repository):
        if is_being_made(path):  # another process is about to move it
            continue
        there, named = owner_in(git_dir), named_by(path)
        if there is not None and there.run is not None and named is not None and os.path.realpath(named) == os.path.realpath(git_dir):
            yield there.run, path


def checkpoints(repository: Repository) -> set[str]:
    """Returns the ids of the checkpoints that worktrees were made from, whether they are there or not."""
    owners = (owner_in(git_dir) for git_dir, _ in registered(repository))
    return {one.checkpoint for one in owners if one is not None}


def write_owner(repository: Repository, owner: Owner) -> None:
    """Notes what the worktree that `repository` is seen from was made for."""
    import json

    with open(os.path.join(repository.git_dir, layout.RUN_FILE), "w", encoding="utf-8") as file:
        json.dump({"checkpoint": owner.checkpoint, "run": owner.run}, file)


def behind(repository: Repository) -> tuple[str, str] | None:
    """Returns where a run's worktree stands, with whose run others have gone on elsewhere; None where they have not.

    That is the checkpoint at which it stands, and the one of theirs that was adopted.
    """
    return _behind_in(repository.git_dir)


def _behind_in(git_dir: str) -> tuple[str, str] | None:
    stands_at, _, adopted = content(os.path.join(git_dir, layout.BEHIND_FILE)).partition(" ")
    return (stands_at, adopted) if stands_at and adopted else None


def note_behind(repository: Repository, run: str, checkpoint_id: str, adopted: str) -> None:
    """Notes that the worktrees of a run, if it has any, stand at a checkpoint, and not at that which is about to be adopted."""
    for git_dir, _ in registered(repository):  # also of one that was moved, or is on a disk that is away: `resume` may find it later
        one = owner_in(git_dir)
        if one is not None and one.run == run:
            before = _behind_in(git_dir)
            stands_at = before[0] if before is not None else checkpoint_id
            atomic.write(os.path.join(git_dir, layout.BEHIND_FILE), f"{stands_at} {adopted}\n".encode("ascii"))


def forget_behind(repository: Repository) -> None:
    """Notes that the worktree that `repository` is seen from stands where its run does."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(repository.git_dir, layout.BEHIND_FILE))


def owner_at(repository: Repository, path: str) -> Owner | None:
    """Returns whose a directory is, if it is a worktree of this repository that gitckpt made."""
    there = seen_from(repository, path)
    return owner(there) if there is not None else None


def registration_of(repository: Repository, path: str) -> str | None:
    """Returns the administrative directory of the worktree that git believes to be at a path, if gitckpt made it."""
    for git_dir, where in registered(repository):
        if os.path.realpath(where) == os.path.realpath(path) and is_locked_by_us(git_dir):
            return git_dir
    return None


def require_not_elsewhere(repository: Repository, path: str, wanted: Owner) -> None:
    """Raises `WorktreeError` if a directory is a worktree of another repository, as in a copy of that. `wanted`: whose it should be."""
    other = elsewhere(repository, path)
    if other is not None:
        raise WorktreeError(
            f"{path} is a worktree of another repository: {other}",
            hint=f"make one of this repository elsewhere: git ckpt resume {shell_word(wanted.run or wanted.checkpoint)} --into DIR",
        )


def is_locked_by_us(git_dir: str) -> bool:
    """Tells of what git keeps of a worktree whether that is locked as we lock those that we make."""
    word, _, name = (lock_reason(git_dir) or "").partition(" ")
    return word == LOCK_REASON and (ids.is_run_id(name) or ids.is_id(name))


def is_locked_by_others(git_dir: str) -> bool:
    """Tells whether somebody has locked a worktree, who may not want it to go."""
    return lock_reason(git_dir) is not None and not is_locked_by_us(git_dir)


def is_gone(repository: Repository, git_dir: str, path: str) -> bool:
    """Tells whether the directory of a worktree was deleted. One that somebody else has locked may be on a disk that is not there.

    Args:
        repository: seen from any of its worktrees.
        git_dir: what git keeps of the worktree.
        path: where it was.
    """
    if os.path.lexists(path) or is_locked_by_others(git_dir):
        return False
    # One that is being made is moved from a directory of its own into the one above, and git is told of it after that.
    above = os.path.dirname(os.path.dirname(path))
    return moved_to(repository, git_dir, path, above) is None and not went_along(repository, git_dir, path)
