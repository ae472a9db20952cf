"""Verifies the worktrees that gitckpt made: registered, where git believes them to be, and of something that exists. Deletes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.finding import Finding
from gitckpt.model.names import shell_word
from gitckpt.store.audit.inventory import Evidence
from gitckpt.store.audit.repairable import REPAIR, Flaw, lasting
from gitckpt.store.records import layout
from gitckpt.store.worktrees import ownership, resumption, scaffold
from gitckpt.store.worktrees.ownership import Owner


def audit(repository: Repository, evidence: Evidence) -> tuple[list[Flaw], int]:
    """Returns what is wrong with worktrees, and how many there are of ours."""
    root = resumption.known_root(repository)
    ours = [(git_dir, path) for git_dir, path in administration.registered(repository) if _is_ours(git_dir) and scaffold.PREFIX not in path]
    flaws = [flaw for git_dir, path in ours for flaw in _of_one(repository, git_dir, path, evidence, root)]
    for directory in scaffold.abandoned(repository):
        sentence = "whoever made a worktree there was killed; git gc may fail as long as git keeps it"
        flaws.append(Flaw(Finding("worktree-unfinished", directory, sentence, REPAIR), scaffold=directory))
    for name in sorted(os.listdir(root)) if root is not None and os.path.isdir(root) else ():
        path = os.path.join(root or "", name)
        if not name.startswith(scaffold.PREFIX) and os.path.isdir(path) and not _is_registered(repository, path):
            cure = f"git ckpt resume {shell_word(name)}, if it is the worktree of that; if not, move it elsewhere"
            flaws.append(lasting("worktree-unregistered", path, "git knows no worktree there", cure))
    return flaws, len(ours)


def _is_ours(git_dir: str) -> bool:
    locked = administration.content(os.path.join(git_dir, "locked"))
    return locked.startswith(ownership.LOCK_REASON) or os.path.exists(os.path.join(git_dir, layout.RUN_FILE))


def _is_registered(repository: Repository, path: str) -> bool:
    named = administration.named_by(path)
    return named is not None and administration.is_ours(repository, named) and os.path.isdir(named)


def _of_one(repository: Repository, git_dir: str, path: str, evidence: Evidence, root: str | None) -> Iterator[Flaw]:
    """Yields what is wrong with the worktree that an administrative directory is kept for."""
    owner = ownership.owner_in(git_dir)
    remove = f"save what you need of it, then: git worktree remove --force --force {shell_word(path)}"
    named = administration.named_by(path)
    if named is None or os.path.realpath(named) != os.path.realpath(git_dir):
        missing = _not_there(repository, git_dir, path, owner, root)
        gone = _gone(owner, evidence) if owner is not None else None
        if gone is not None and missing.finding.code == "worktree-missing":  # there is nothing to make it from again
            cure = f"git worktree remove --force --force {shell_word(path)}; what is staged there goes, too"
            yield lasting("worktree-orphan", path, f"its directory is gone, and {gone}", cure)
            return
        yield missing
    if owner is None:
        yield lasting("worktree-unclaimed", path, "does not say what it was made for", remove)
    elif (gone := _gone(owner, evidence)) is not None:
        yield lasting("worktree-orphan", path, gone, remove)


def _gone(owner: Owner, evidence: Evidence) -> str | None:
    """Returns what of that for which a worktree was made does not exist any more."""
    if owner.run is not None:
        return None if _exists(owner.run, evidence) else f"its run {owner.run} does not exist any more"
    return None if evidence.is_there(owner.checkpoint) else f"its checkpoint {owner.checkpoint} does not exist any more"


def _exists(run: str, evidence: Evidence) -> bool:
    return layout.RUNS + run in evidence.refs or any(record.entry.run == run for record in evidence.records.values())


def _not_there(repository: Repository, git_dir: str, path: str, owner: Owner | None, root: str | None) -> Flaw:
    """Returns the flaw of a worktree that is not where git believes it to be."""
    moved = administration.moved_to(repository, git_dir, path, *([root] if root else []))
    if moved is not None:
        return lasting("worktree-moved", path, f"is at {moved} now", f"git worktree repair {shell_word(moved)}")
    if os.path.lexists(path):
        sentence = f"is not the worktree that git keeps {git_dir} for"
        return lasting("worktree-moved", path, sentence, f"git worktree repair {shell_word(path)}")
    name = shell_word(owner.run or owner.checkpoint) if owner else "ID"
    return lasting("worktree-missing", path, "its directory is gone", f"git ckpt resume {name}")
