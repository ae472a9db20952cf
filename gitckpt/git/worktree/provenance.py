"""What of an operation in progress may come back: all where it was captured in this repository, else what `grammar` lets through.

The trees of such snapshots stand in a file of the private directory, which nobody fetches, a line each.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from gitckpt.git.files import premises, regular
from gitckpt.git.worktree import grammar
from gitckpt.model.errors import RepositoryError

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
    """Remembers that a snapshot was captured here, if that is possible; otherwise it counts as fetched, and nothing else is lost.

    Args:
        tree: the snapshot.
    """
    if is_known(repository, tree):
        return
    try:
        with open(os.path.join(repository.make_private_dir(), FILE), "ab", opener=premises.create) as file:
            file.write(f"\n{tree}\n".encode("ascii"))  # a line that a full disk has cut off is none of these
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RepositoryError):
        return  # a checkpoint is worth more: what is left out when it comes back is said then


def is_known(repository: Repository, tree: str | None) -> bool:
    """Tells whether a snapshot was captured here."""
    if tree is None:
        return False
    try:
        return tree.encode("ascii") in regular.content(os.path.join(repository.private_dir, FILE), follow=False).split()
    except OSError:
        return False


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


def would_move(permitted: Permitted, branch: str | None, source: str | None, *, trusted: bool = False) -> bool:
    """Tells whether to go on with an operation, or to give it up, moves a branch that it was not begun on.

    A rebase commits to what HEAD points to, and takes it back to where it began; so do picks and `git am` (sequencer.c, builtin/am.c).

    Args:
        permitted: what comes back.
        branch: what HEAD points to where it comes back; None where it is detached.
        source: the branch that its checkpoint names; None where that was made with a detached HEAD.
        trusted: whether what was captured elsewhere counts as captured here.
    """
    moves = any(name.startswith(("rebase-merge/", "rebase-apply/", "sequencer/")) for name in permitted.files)
    return moves and branch is not None and not (branch == source and (permitted.is_own or trusted))


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
