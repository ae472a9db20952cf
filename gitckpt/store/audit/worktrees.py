"""Verify the registration, place and owner of gitckpt's worktrees.

Deletes nothing. Each directory gets one finding: contradicting hints would not help.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from gitckpt.git.files import mounts
from gitckpt.git.filesystem import names_in
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import Finding
from gitckpt.store.audit.inventory import REPAIR, Evidence, Flaw, lasting
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.records.layout import Owner
from gitckpt.store.worktrees import opener, ownership, resumption


def audit(store: Checkpoints, evidence: Evidence) -> tuple[list[Flaw], int]:
    """Return the flaws of worktrees, and the number of gitckpt's own."""
    repository = store.repository
    root = resumption.known_root(repository)
    registered = administration.registered(repository)
    ours = [(git_dir, path) for git_dir, path in registered if _is_ours(git_dir) and not ownership.is_being_made(path)]
    flaws = [flaw for git_dir, path in ours if (flaw := _of_one(store, git_dir, path, evidence, root)) is not None]
    for directory in ownership.abandoned(repository):
        sentence = "whoever made a worktree there was killed; git gc may fail as long as git keeps it"
        flaws.append(Flaw(Finding("worktree-unfinished", directory, sentence, REPAIR), scaffold=directory))
    named = {flaw.finding.object for flaw in flaws}
    flaws += [lasting(each.code, each.object, each.sentence, each.cure) for each in headless(repository) if each.object not in named]
    told = {os.path.realpath(flaw.finding.object) for flaw in flaws}
    for name in names_in(root) if root is not None else ():
        path = os.path.join(root or "", name)
        if os.path.realpath(path) in told:
            continue
        if not name.startswith(ownership.BEING_MADE) and os.path.isdir(path) and not _is_registered(repository, path):
            cure = f"git ckpt resume {shell_word(name)}, if it is the worktree of that; if not, move it elsewhere"
            flaws.append(lasting("worktree-unregistered", path, "git knows no worktree there", cure))
    return flaws, len(ours)


def headless(repository: Repository) -> list[Finding]:
    """Return worktrees in place whose HEAD or commondir file is gone or broken."""
    findings = []
    for git_dir, path in administration.registered(repository):
        named = administration.named_by(path)
        is_there = named is not None and os.path.realpath(named) == os.path.realpath(git_dir)
        owner = ownership.owner_in(git_dir) if is_there else None
        if is_there and administration.lacks_commondir(repository, git_dir):
            sentence = "its commondir, which says whose it is, is gone, empty or broken: to git it is no worktree"
            file = shell_word(os.path.join(git_dir, administration.COMMONDIR))
            cure = f"git ckpt resume {shell_word(owner.run or owner.checkpoint)}" if owner is not None else f"echo ../.. >{file}"
            findings.append(Finding("worktree-headless", path, sentence, cure))
            continue
        if not is_there or not administration.lacks_head(repository, git_dir):
            continue
        head, log = shell_word(os.path.join(git_dir, "HEAD")), shell_word(os.path.join(git_dir, "logs", "HEAD"))
        state = "gone" if administration.has_no_head(git_dir) else "empty or broken"
        sentence = f"its HEAD is {state}, as a power cut leaves it: to git it is no worktree, and every git gc fails"
        cure = f"write into {head} where it was: ref: refs/heads/BRANCH, or the last commit that {log} names"
        if repository.has_reftable and administration.lacks_tables(git_dir):
            sentence = "the reftable of its HEAD is empty or broken, as a power cut leaves it: to git it is at no commit"
            tables = shell_word(os.path.join(git_dir, "reftable"))
            cure = f"rm -f {tables}/*; git -C {shell_word(path)} symbolic-ref HEAD refs/heads/BRANCH, or update-ref --no-deref HEAD COMMIT"
        elif repository.has_reftable:
            sentence = f"its HEAD is {state}, as a power cut leaves it: to git it is no worktree"
            cure = f"write into {head}, as the reftables say where it is: ref: refs/heads/.invalid"
        if owner is not None:
            cure = f"git ckpt resume {shell_word(owner.run or owner.checkpoint)}"
        findings.append(Finding("worktree-headless", path, sentence, cure))
    return findings


def _is_ours(git_dir: str) -> bool:
    return ownership.is_locked_by_us(git_dir) or os.path.exists(os.path.join(git_dir, layout.RUN_FILE))


def _is_registered(repository: Repository, path: str) -> bool:
    named = administration.named_by(path)
    is_kept = named is not None and administration.is_ours(repository, named) and os.path.isdir(named)
    return is_kept and named not in administration.unfinished(repository)


def _of_one(store: Checkpoints, git_dir: str, path: str, evidence: Evidence, root: str | None) -> Flaw | None:
    repository, owner = store.repository, ownership.owner_in(git_dir)
    code = "worktree-orphan"
    if owner is not None:
        gone = _gone(owner, evidence)
    else:
        code = "worktree-unclaimed"
        gone = "does not say what it was made for"
    remove = mounts.way_to_remove(path)
    goes = "what is staged there, or committed and on no branch,"
    named = administration.named_by(path)
    if named is not None and os.path.realpath(named) == os.path.realpath(git_dir):
        return None if gone is None else lasting(code, path, gone, f"save what you need of it, then: {remove}")
    away = _elsewhere(repository, git_dir, path, root)
    if away is not None:
        # First: removal by the old path would delete the index of the moved worktree.
        return away
    if owner is not None and gone is None:
        name = shell_word(owner.run or owner.checkpoint)
        # Runs are removed with `git ckpt remove`.
        rid = f"; or, to be rid of it, {goes} with it: {remove}" if owner.run is None else ""
        return lasting("worktree-missing", path, "its directory is gone", f"git ckpt resume {name}{rid}")
    # Nothing is left from which the worktree could be recreated.
    sentence = f"its directory is gone, and {gone if owner is not None else f'it {gone}'}"
    if can_be_forgotten(repository, git_dir, path, store.index.commits() or ()):
        return Flaw(Finding(code, path, sentence, REPAIR), worktree=(git_dir, path))
    return lasting(code, path, sentence, f"{remove}; {goes} goes, too")


def can_be_forgotten(repository: Repository, git_dir: str, path: str, linked: Iterable[str]) -> bool:
    """Return whether git can forget a worktree whose directory is gone, without loss."""
    if administration.main_worktree(repository) is None:
        return False
    # Only at the default place, beside the main worktree: elsewhere a disk may be unmounted.
    place = opener.default_root(repository, None)
    is_default = os.path.realpath(os.path.dirname(path)) == os.path.realpath(place)
    if not is_default or not ownership.is_gone(repository, git_dir, path):
        return False
    return resumption.holds_nothing(Repository(git_dir, None, repository.object_format), linked)


def _gone(owner: Owner, evidence: Evidence) -> str | None:
    """Say that the owner of a worktree no longer exists; None if it does."""
    if owner.run is not None:
        return None if _exists(owner.run, evidence) else f"its run {owner.run} does not exist any more"
    return None if evidence.is_there(owner.checkpoint) else f"its checkpoint {owner.checkpoint} does not exist any more"


def _exists(run: str, evidence: Evidence) -> bool:
    return layout.RUNS + run in evidence.refs or run in evidence.runs()


def _elsewhere(repository: Repository, git_dir: str, path: str, root: str | None) -> Flaw | None:
    """Return the flaw of a worktree that was moved or whose path holds something else."""
    moved = administration.moved_to(repository, git_dir, path, *([root] if root else []))
    if moved is not None:
        return lasting("worktree-moved", path, f"is at {moved} now", f"git worktree repair {shell_word(moved)}")
    other = administration.elsewhere(repository, path)
    # `git worktree repair` would take it away from the other repository.
    if other is not None:
        sentence = f"is of another repository: {other}"
        aside = shell_word(os.path.join(repository.common_dir, f"{os.path.basename(git_dir)}.old"))
        cure = "leave it to that; what is kept of it here is of no use, unless that one is a copy of this: "
        cure += f"mv {shell_word(git_dir)} {aside}"
        return lasting("worktree-moved", path, sentence, cure)
    if os.path.lexists(path):
        sentence = f"is not the worktree that git keeps {git_dir} for"
        # No path in the hint: with it, git repairs the worktree but still exits with an error.
        return lasting("worktree-moved", path, sentence, "if it is, after all: git worktree repair; if not, move it elsewhere")
    return None
