"""Tell which run or checkpoint a linked worktree was made for.

Users move or delete worktrees by hand, and git prunes what it keeps of them.
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
from gitckpt.store.records.layout import Owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# gitckpt locks its worktrees against `git worktree prune`; the reason ends with the id of the run
# or checkpoint.
LOCK_REASON = "gitckpt"

# Prefix of the directory in which a worktree is made before it is moved to its path.
BEING_MADE = ".making-"

owner_in = layout.owner_in


def owner(repository: Repository) -> Owner | None:
    return owner_in(repository.git_dir)


def made_from(repository: Repository, checkpoint_ids: Collection[str]) -> list[tuple[str, str]]:
    """Return path and checkpoint of each worktree made from given checkpoints."""
    owners = ((path, owner_in(git_dir)) for git_dir, path in registered(repository))
    return [(path, one.checkpoint) for path, one in owners if one is not None and one.run is None and one.checkpoint in checkpoint_ids]


def of_runs(repository: Repository) -> dict[str, str]:
    """Return the path of each run's worktree that is where git has it registered."""
    paths = {}
    for git_dir, path in registered(repository):
        if is_being_made(path):  # another process is about to move it
            continue
        there, named = owner_in(git_dir), named_by(path)
        if there is not None and there.run is not None and named is not None and os.path.realpath(named) == os.path.realpath(git_dir):
            paths[there.run] = path
    return paths


def is_being_made(path: str) -> bool:
    return os.path.basename(os.path.dirname(path)).startswith(BEING_MADE)


def checkpoints(repository: Repository) -> set[str]:
    """Return the checkpoints that worktrees, existing or not, were made from."""
    owners = (owner_in(git_dir) for git_dir, _ in registered(repository))
    return {one.checkpoint for one in owners if one is not None}


def write_owner(repository: Repository, owner: Owner) -> None:
    import json

    with open(os.path.join(repository.git_dir, layout.RUN_FILE), "w", encoding="utf-8") as file:
        json.dump({"checkpoint": owner.checkpoint, "run": owner.run}, file)


def behind(repository: Repository) -> tuple[str, str] | None:
    """Return what `behind_in` does for the worktree `repository` is seen from."""
    return behind_in(repository.git_dir)


def behind_in(git_dir: str) -> tuple[str, str] | None:
    """Return where a worktree stands, and the adopted checkpoint; None if equal."""
    stands_at, _, adopted = content(os.path.join(git_dir, layout.BEHIND_FILE)).partition(" ")
    return (stands_at, adopted) if stands_at and adopted else None


def note_behind(repository: Repository, run: str, checkpoint_id: str, adopted: str) -> None:
    """Record that the worktrees of a run do not stand at the adopted checkpoint."""
    for git_dir, _ in registered(repository):  # also absent ones: `resume` may find them
        one = owner_in(git_dir)
        if one is not None and one.run == run:
            before = behind_in(git_dir)
            stands_at = before[0] if before is not None else checkpoint_id
            atomic.write(os.path.join(git_dir, layout.BEHIND_FILE), f"{stands_at} {adopted}\n".encode("ascii"))


def forget_behind(repository: Repository) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(repository.git_dir, layout.BEHIND_FILE))


def owner_at(repository: Repository, path: str) -> Owner | None:
    there = seen_from(repository, path)
    return owner(there) if there is not None else None


def is_locked_by_us(git_dir: str) -> bool:
    word, _, name = (lock_reason(git_dir) or "").partition(" ")
    return word == LOCK_REASON and (ids.is_run_id(name) or ids.is_id(name))


def is_locked_by_others(git_dir: str) -> bool:
    return lock_reason(git_dir) is not None and not is_locked_by_us(git_dir)


def is_gone(repository: Repository, git_dir: str, path: str) -> bool:
    """Return whether a worktree's directory was deleted, not just unmounted."""
    if os.path.lexists(path) or is_locked_by_others(git_dir):
        return False
    # A new worktree is moved one directory up; git learns of it after that.
    above = os.path.dirname(os.path.dirname(path))
    return moved_to(repository, git_dir, path, above) is None and not went_along(repository, git_dir, path)


# Worktrees are made in a directory beside their final path, and moved there once they are complete.


def half_made(root: str) -> list[str]:
    """Return the paths of worktrees below a directory that are half made."""
    return [os.path.join(root, name) for name in names_in(root) if name.startswith(BEING_MADE)]


def sweep(repository: Repository, root: str) -> None:
    """Remove half-made worktrees of killed processes; live ones hold a lock."""
    for name in {name.removesuffix(".lock") for name in names_in(root) if name.startswith(BEING_MADE)}:
        directory = os.path.join(root, name)
        with Lock(f"{directory}.lock", 0) as is_left:
            if is_left:
                _discard(repository, directory)


def abandoned(repository: Repository) -> list[str]:
    """Return the directories with registered, half-made worktrees of killed processes.

    While git makes a worktree, its HEAD names no commit: after a kill at that moment every `git gc`
    fails until the worktree is gone.
    """
    found = set()
    for git_dir, place in administration.registered(repository):
        directory = os.path.dirname(place)
        if is_locked_by_us(git_dir) and is_being_made(place) and not _is_held(f"{directory}.lock"):
            found.add(directory)
    return sorted(found)


def discard(repository: Repository, directory: str) -> bool:
    """Remove a directory from `abandoned` unless a process holds it."""
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
    """Yield a path beside `path` to make a worktree at; clean up at the end."""
    root, name = os.path.split(path)
    directory = os.path.join(root, f"{BEING_MADE}{os.urandom(4).hex()}")
    with Lock(f"{directory}.lock", 0):
        try:
            yield os.path.join(directory, name)
        finally:
            _discard(repository, directory)


def _discard(repository: Repository, directory: str) -> None:
    premises.require(directory)
    real = os.path.realpath(directory) + os.sep
    for git_dir, place in administration.registered(repository):
        if not os.path.realpath(place).startswith(real):
            continue
        final = os.path.join(os.path.dirname(directory), os.path.basename(place))
        there = administration.named_by(final)
        if there is not None and os.path.realpath(there) == os.path.realpath(git_dir):
            # The process was killed after the move.
            administration.repair(repository, final)
        else:
            with administration.turn(repository):
                premises.discard(git_dir)
    premises.discard(directory)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{directory}.lock")
