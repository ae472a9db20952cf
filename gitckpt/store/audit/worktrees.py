"""Check gitckpt's worktrees, with at most one finding for each worktree."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from gitckpt.git.files import mounts
from gitckpt.git.filesystem import names_in
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import Finding
from gitckpt.store.audit.inventory import REPAIR, AuditData, Flaw, lasting
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.worktrees import opener, ownership, resumption


def audit_worktrees(store: Checkpoints, evidence: AuditData) -> tuple[list[Flaw], int]:
    repository = store.repository
    root = resumption.known_worktrees_dir(repository)
    flaws: list[Flaw] = []
    worktree_count = 0
    for git_dir, path in administration.list_worktrees(repository):
        is_ours = os.path.exists(os.path.join(git_dir, ref_names.RUN_FILE))
        is_ours |= ownership.is_locked_by_gitckpt(git_dir)
        if is_ours and not ownership.is_worktree_being_made(path):
            worktree_count += 1
            flaws += _audit_worktree(store, git_dir, path, evidence, root)
    for directory in ownership.list_abandoned_dirs(repository):
        sentence = "its creation was interrupted; git gc may fail as long as git keeps it"
        finding = Finding("worktree-unfinished", directory, sentence, REPAIR)
        flaws.append(Flaw(finding, scaffold=directory))
    paths = {flaw.finding.object for flaw in flaws}
    flaws += [Flaw(finding) for finding in find_headless(repository) if finding.object not in paths]
    reported_paths = {os.path.realpath(flaw.finding.object) for flaw in flaws}
    for name in names_in(root) if root is not None else ():
        path = os.path.join(root or "", name)
        if os.path.realpath(path) in reported_paths or name.startswith(ownership.BEING_MADE):
            continue
        if os.path.isdir(path) and not _is_registered_worktree(repository, path):
            sentence = "git has no record of this worktree"
            quoted_name = shell_quoted(name)
            cure = f"if {quoted_name} is a checkpoint or run: git ckpt resume {quoted_name}; "
            cure += "else move the directory elsewhere"
            flaws.append(lasting("worktree-unregistered", path, sentence, cure))
    return flaws, worktree_count


def find_headless(repository: Repository) -> Iterator[Finding]:
    """Yield a finding for each worktree whose HEAD or commondir file is unusable."""
    for git_dir, path in administration.list_worktrees(repository):
        if not ownership.is_same_directory(administration.git_dir_of(path), git_dir):
            continue
        if administration.lacks_commondir(repository, git_dir):
            file_name = administration.COMMONDIR
            cure = f"echo ../.. >{shell_quoted(os.path.join(git_dir, file_name))}"
        elif administration.lacks_valid_head(git_dir):
            file_name, head = "HEAD", shell_quoted(os.path.join(git_dir, "HEAD"))
            cure = f"write ref: refs/heads/BRANCH into {head}"
            if repository.has_reftable:
                cure = f"write ref: refs/heads/.invalid into {head}: the reftable has the branch"
        else:
            continue
        owner = ownership.owner_in(git_dir)
        if owner is not None:
            cure = f"git ckpt resume {shell_quoted(owner.run or owner.checkpoint)}"
        sentence = f"the file {file_name} is missing or broken, so git does not see the worktree"
        yield Finding("worktree-headless", path, sentence, cure)


def _is_registered_worktree(repository: Repository, path: str) -> bool:
    git_dir = administration.git_dir_of(path)
    if git_dir is None or not administration.owns_git_dir(repository, git_dir):
        return False
    return os.path.isdir(git_dir) and git_dir not in administration.list_unfinished_dirs(repository)


def _audit_worktree(
    store: Checkpoints, git_dir: str, path: str, evidence: AuditData, root: str | None
) -> Iterator[Flaw]:
    repository, owner = store.repository, ownership.owner_in(git_dir)
    code, problem = "worktree-unclaimed", "names no run or checkpoint"
    if owner is not None:
        code, problem = "worktree-orphan", _describe_missing_owner(owner, evidence)
    removal = mounts.removal_command(path)
    lost_work = "all that is only staged there, or committed on no branch"
    if ownership.is_same_directory(administration.git_dir_of(path), git_dir):
        if problem:
            yield lasting(code, path, problem, f"save what you need of the files, then: {removal}")
    # First: removal by the old path would delete the index of the moved worktree.
    elif (move_flaw := _find_moved(repository, git_dir, path, root)) is not None:
        yield move_flaw
    elif owner is not None and not problem:
        cure = f"git ckpt resume {shell_quoted(owner.run or owner.checkpoint)}"
        if owner.run is None:  # runs are removed with `git ckpt remove`
            cure += f"; or, to delete {lost_work}: {removal}"
        yield lasting("worktree-missing", path, "the directory of this worktree is gone", cure)
    else:  # nothing is left from which the worktree could be recreated
        sentence = "the directory of this worktree is gone, "
        sentence += f"and {problem if owner is not None else f'the record of git {problem}'}"
        if can_forget(repository, git_dir, path, store.index.list_commits() or ()):
            yield Flaw(Finding(code, path, sentence, REPAIR), worktree=(git_dir, path))
        else:
            yield lasting(code, path, sentence, f"to delete {lost_work}: {removal}")


def can_forget(repository: Repository, git_dir: str, path: str, linked: Iterable[str]) -> bool:
    """Return whether a deleted worktree held no work except commits in `linked`."""
    if administration.main_worktree(repository) is None:
        return False
    # Only in the default directory beside the main worktree: elsewhere a disk may be unmounted.
    default_root = opener.worktrees_dir(repository, None)
    is_default = os.path.realpath(os.path.dirname(path)) == os.path.realpath(default_root)
    if not is_default or not ownership.is_worktree_deleted(repository, git_dir, path):
        return False
    worktree = Repository(git_dir, None, repository.object_format)
    return resumption.may_forget_worktree(worktree, linked)


def _describe_missing_owner(owner: ref_names.WorktreeOwner, evidence: AuditData) -> str:
    has_owner, owner_name = owner.checkpoint in evidence.oids, f"checkpoint {owner.checkpoint}"
    if owner.run is not None:
        has_owner, owner_name = owner.run in evidence.list_all_runs(), f"run {owner.run}"
    return "" if has_owner else f"the {owner_name} of this worktree no longer exists"


def _find_moved(repository: Repository, git_dir: str, path: str, root: str | None) -> Flaw | None:
    new_path = administration.find_moved(repository, git_dir, path, *([root] if root else []))
    other_repository = administration.find_foreign_repository(repository, path)
    if new_path is not None:
        sentence, cure = f"is at {new_path} now", f"git worktree repair {shell_quoted(new_path)}"
    # `git worktree repair` would take the worktree away from the other repository.
    elif other_repository is not None:
        name = f"{os.path.basename(git_dir)}.old"
        backup = shell_quoted(os.path.join(repository.common_dir, name))
        sentence = f"belongs to another repository: {other_repository}"
        cure = "if that repository is not a copy of this one, move aside the record here: "
        cure += f"mv {shell_quoted(git_dir)} {backup}"
    elif os.path.lexists(path):
        # No path in the hint: with it, git repairs the worktree but still exits with an error.
        sentence = f"is not the worktree that {git_dir} belongs to"
        cure = "move the directory elsewhere; or, if it is that worktree: git worktree repair"
    else:
        return None
    return lasting("worktree-moved", path, sentence, cure)
