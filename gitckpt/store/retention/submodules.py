"""Repositories of submodules that a linked worktree has of its own: what nobody else has, and what is handed over before they go.

Each has a counterpart, the repository of the same submodule that git keeps for the main worktree; there the checkpoints stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gitckpt.git.worktree import administration, modules
from gitckpt.model.checkpoint import SUBMODULE
from gitckpt.store.submodules import keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.store.checkpoints import Checkpoints

_OWN = ("refs/heads", "refs/tags", "refs/stash")


def unsaved(store: Checkpoints, git_dir: str) -> list[str]:
    """Returns what repositories of submodules of a worktree hold that would go with them, for a person; it changes nothing.

    What is checked out in them is not looked at: a capture of the worktree says whether a checkpoint has it.

    Args:
        store: of the repository around them.
        git_dir: what git keeps of the worktree.
    """
    said = []
    for name, own, counterpart in _pairs(store.repository, git_dir):
        if counterpart is None:
            said.append(f"the repository of its submodule {name}, and no other one is here")
            continue
        said += [f"{what} in its submodule {name}" for what in _lone(store, own, counterpart)]
    return said


def hand_over(store: Checkpoints, git_dir: str) -> None:
    """Copies the checkpoints that repositories of submodules of a worktree have to their counterparts, with all they keep alive.

    Args:
        store: of the repository around them.
        git_dir: what git keeps of the worktree.

    Raises:
        GitError: not all of them could be copied.
    """
    for _, own, counterpart in _pairs(store.repository, git_dir):
        if counterpart is not None:
            keeper.bring(store, own, counterpart)


def _pairs(repository: Repository, git_dir: str) -> Iterator[tuple[str, Repository, Repository | None]]:
    """Yields name, repository and counterpart of each submodule of a worktree, those within them too."""
    for name, own, counterpart in modules.pairs(repository, git_dir):
        with contextlib.closing(own):
            yield name, own, counterpart
        if counterpart is not None:
            counterpart.close()


def _lone(store: Checkpoints, own: Repository, counterpart: Repository) -> list[str]:
    """Returns the refs that lead to commits which neither the counterpart has nor a remote, and checkpoints of the submodule's own."""
    said = ["linked worktrees"] if administration.registered(own) else []
    form = "--format=%(objectname) %(objecttype) %(refname)"
    for line in own.git.run("for-each-ref", form, *_OWN).out.decode("utf-8", "replace").split("\n")[:-1]:
        oid, kind, ref = line.split(" ", 2)
        if kind not in ("commit", "tag"):
            is_there = counterpart.cat_file.info(ref) == own.cat_file.info(ref)
        else:
            lone = own.git.run("rev-list", "--max-count=1", oid, "--not", "--remotes").out.strip()
            is_there = not lone or _is_reached(counterpart, oid)
        if not is_there:
            said.append(f"{ref.removeprefix('refs/heads/')} ({oid[:12]})")
    with contextlib.closing(store.seen_from(own, "plumbing")) as inner:
        said += [f"checkpoint {entry.id}" for entry in inner.list() if entry.trigger != SUBMODULE]
    return said


def _is_reached(counterpart: Repository, oid: str) -> bool:
    """Tells whether a repository has a commit that branches, tags or remote-tracking branches of its lead to."""
    if counterpart.cat_file.info(oid) is None:
        return False
    found = counterpart.git.run("rev-list", "--max-count=1", oid, "--not", "--branches", "--tags", "--remotes", ok=(0, 128))
    return found.code == 0 and not found.out.strip()
