"""What of an operation in progress may come back: all where it was captured in this repository, else what `grammar` lets through.

The trees of such snapshots stand in a file of the private directory, which nobody fetches, a line each.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from gitckpt.git.files import premises
from gitckpt.git.worktree import grammar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gitckpt.git.repository import Repository

FILE = "operations"


class Permitted(NamedTuple):
    """What of an operation may come back."""

    files: dict[str, bytes]
    left_out: tuple[str, ...]
    """The rest, told in a few words each."""

    is_own: bool
    """Whether it was captured in this repository."""


def note(repository: Repository, tree: str) -> None:
    """Remembers that a snapshot was captured here. Without the file, what it names counts as fetched, and nothing else is lost.

    Args:
        repository: where.
        tree: the snapshot.

    Raises:
        OSError: the file cannot be written.
        RepositoryError: nor can its directory be made.
    """
    if is_known(repository, tree):
        return
    path = os.path.join(repository.make_private_dir(), FILE)
    with open(path, "ab", opener=premises.create) as file:
        file.write(f"{tree}\n".encode("ascii"))
        file.flush()
        os.fsync(file.fileno())


def is_known(repository: Repository, tree: str | None) -> bool:
    """Tells whether a snapshot was captured here."""
    if tree is None:
        return False
    try:
        fd = os.open(os.path.join(repository.private_dir, FILE), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    with open(fd, "rb") as file:
        return tree.encode("ascii") in file.read().split()


def permitted(repository: Repository, files: Mapping[str, bytes], tree: str | None, *, trusted: bool) -> Permitted:
    """Returns of an operation what may come back: all where it was captured here, else what git may go on with, and no command.

    Args:
        repository: where it is to come back.
        files: what `collect` returned.
        tree: the snapshot that they are from.
        trusted: whether commands that were captured elsewhere may come back, too.
    """
    if not files or is_known(repository, tree):
        return Permitted(dict(files), (), is_own=True)
    found, left_out = grammar.permitted(files, commands=trusted)
    return Permitted(found, left_out, is_own=False)


def remarks(permitted: Permitted, checkpoint_id: str) -> list[str]:
    """Returns what a person should know of an operation that comes back: commands it will run, and what is left out.

    Args:
        permitted: what comes back.
        checkpoint_id: the checkpoint that it is from, as a command names it.
    """
    commands = grammar.commands_in(permitted.files)
    said = [f"the rebase in progress will run a command when it goes on: {command}" for command in commands]
    if permitted.left_out:
        said += [f"of the operation in progress, which was not captured in this repository, is left out: {'; '.join(permitted.left_out)}"]
    if any(each.startswith("the command ") for each in permitted.left_out):
        said += [f"to have its commands as well: git ckpt restore --trust {checkpoint_id}"]
    return said
