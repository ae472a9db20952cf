"""Whose a linked worktree is: what gitckpt adds to what git keeps of it (`git.worktree.administration`).

Directories of worktrees get moved or deleted by hand, and what git keeps of them gets pruned. Nothing here deletes what is not held.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from gitckpt.git.files import atomic, premises
from gitckpt.git.filesystem import names_in
from gitckpt.git.lock import Lock
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.git.worktree.administration import content, lock_reason, moved_to, named_by, registered, seen_from, went_along
from gitckpt.model import ids
from gitckpt.store.records import layout
from gitckpt.store.records import layout as owners
from gitckpt.store.records.layout import Owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection


# Whose a linked worktree is: what gitckpt adds to what git keeps of it (`git.worktree.administration`).


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
    return behind_in(repository.git_dir)


def behind_in(git_dir: str) -> tuple[str, str] | None:
    """Read the same from the administrative directory of a worktree."""
    stands_at, _, adopted = content(os.path.join(git_dir, layout.BEHIND_FILE)).partition(" ")
    return (stands_at, adopted) if stands_at and adopted else None


def note_behind(repository: Repository, run: str, checkpoint_id: str, adopted: str) -> None:
    """Notes that the worktrees of a run, if it has any, stand at a checkpoint, and not at that which is about to be adopted."""
    for git_dir, _ in registered(repository):  # also of one that was moved, or is on a disk that is away: `resume` may find it later
        one = owner_in(git_dir)
        if one is not None and one.run == run:
            before = behind_in(git_dir)
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


# Where a worktree is made, out of everybody's sight until it is whole: a directory beside the place to which it is moved then.


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
        if is_locked_by_us(git_dir) and is_being_made(place) and not _is_held(f"{directory}.lock"):
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
