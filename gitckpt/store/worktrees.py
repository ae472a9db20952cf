"""Worktrees made from checkpoints: where they live, whose they are, and how one is opened."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository, discover, main_worktree
from gitckpt.model import ids
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import RepositoryError, WorktreeError
from gitckpt.store import layout, restorer, snapshot

if TYPE_CHECKING:
    from gitckpt.git.objects import Objects

PRIVATE = ".ckpt"
"""The directory at the top of the main worktree that holds the worktrees; it ignores itself."""

_PARALLEL = ("-c", "checkout.workers=0")
_LOCK_REASON = "gitckpt"


@dataclass(frozen=True, slots=True)
class Opened:
    """A worktree that is ready to be worked in.

    Attributes:
        path: its top.
        made: whether it was made just now; if not, it is as it was left.
    """

    path: str
    made: bool


@dataclass(frozen=True, slots=True)
class Owner:
    """What a worktree was made for, as kept in its administrative directory."""

    checkpoint: str
    run: str | None


def open_worktree(repository: Repository, objects: Objects, checkpoint: Checkpoint, path: str, *, in_run: bool) -> Opened:
    """Returns the worktree of a checkpoint; makes it if there is none.

    Args:
        repository: seen from any of its worktrees.
        objects: its objects.
        checkpoint: what it shall hold.
        path: absolute path of its top.
        in_run: whether it is the worktree of the checkpoint's run, rather than of this one checkpoint.

    Raises:
        WorktreeError: the directory there is not ours; the commit or the files are missing; or what was brought back is not what was
            captured. Nothing that was there before is changed.
    """
    run = checkpoint.run if in_run else None
    if os.path.lexists(path):
        owner = _owner_at(repository, path)
        if owner is not None and (owner.run == run if run else owner.checkpoint == checkpoint.id):
            return Opened(path, made=False)
        raise WorktreeError(
            f"{path} exists and is not the worktree of {run or checkpoint.id}",
            hint="move it out of the way, or choose another place: git ckpt resume --into DIR",
        )
    _require_objects(repository, checkpoint)
    _make_root(os.path.dirname(path))
    _add(repository, path, checkpoint)
    try:
        made = discover(path)
        _bring_back(made, objects, checkpoint)
        _write_owner(made, Owner(checkpoint.id, run))
        made.close()
    except BaseException:
        # Ours since a moment ago: nobody has worked in it yet.
        repository.git.run("worktree", "remove", "--force", "--force", path, ok=(0, 128))
        raise
    return Opened(path, made=True)


def owner(repository: Repository) -> Owner | None:
    """Returns what the worktree that `repository` is seen from was made for; None where gitckpt did not make it."""
    try:
        with open(os.path.join(repository.git_dir, layout.RUN_FILE), encoding="utf-8") as file:
            said = json.load(file)
        return Owner(said["checkpoint"], said.get("run"))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def default_root(repository: Repository, configured: str | None) -> str:
    """Returns the directory in which worktrees are made.

    Args:
        repository: seen from any of its worktrees.
        configured: what `ckpt.worktreeDir` says; relative to the top of the main worktree.

    Raises:
        WorktreeError: the repository has no main worktree to put them into, and none is configured.
    """
    top = main_worktree(repository)
    if configured:
        return os.path.normpath(os.path.join(top or repository.common_dir, os.path.expanduser(configured)))
    if top is None:
        raise WorktreeError(
            f"{repository.common_dir} is bare: there is no worktree to put another one beside",
            hint="name a directory: git ckpt resume --into DIR, or git config ckpt.worktreeDir DIR",
        )
    return os.path.join(top, PRIVATE, "worktrees")


def _owner_at(repository: Repository, path: str) -> Owner | None:
    """Returns whose the directory is, if it is a worktree of this repository that gitckpt made."""
    if not os.path.isdir(path) or not os.path.lexists(os.path.join(path, ".git")):
        return None
    try:
        there = discover(path)
    except RepositoryError:
        return None
    return owner(there) if there.common_dir == repository.common_dir and there.git_dir != repository.common_dir else None


def _write_owner(repository: Repository, owner: Owner) -> None:
    with open(os.path.join(repository.git_dir, layout.RUN_FILE), "w", encoding="utf-8") as file:
        json.dump({"checkpoint": owner.checkpoint, "run": owner.run}, file)


def _require_objects(repository: Repository, checkpoint: Checkpoint) -> None:
    commit = checkpoint.git_sha
    if commit and repository.cat_file.info(f"{commit}^{{commit}}") is None:
        raise WorktreeError(
            f"commit {commit} of checkpoint {checkpoint.id} is missing",
            hint="fetch it from where it still is, or see what is wrong: git fsck",
        )
    tree = checkpoint.worktree.tree if checkpoint.worktree else None
    if tree and repository.cat_file.info(f"{tree}:files") is None:
        raise WorktreeError(f"the files {tree} of checkpoint {checkpoint.id} are missing", hint="see what is wrong: git fsck")


def _make_root(root: str) -> None:
    parent, name = os.path.split(root)
    try:
        os.makedirs(root, exist_ok=True)
        if name == "worktrees" and os.path.basename(parent) == PRIVATE:
            with contextlib.suppress(FileExistsError), open(os.path.join(parent, ".gitignore"), "x", encoding="utf-8") as file:
                file.write("*\n")
    except OSError as error:
        raise WorktreeError(f"cannot make {root}: {error.strerror}", hint="choose another place: git ckpt resume --into DIR") from None


def _add(repository: Repository, path: str, checkpoint: Checkpoint) -> None:
    tree = checkpoint.worktree.tree if checkpoint.worktree else None
    options = ["--detach", "--lock", "--reason", f"{_LOCK_REASON} {checkpoint.run or checkpoint.id}"]
    commit = checkpoint.git_sha or _empty_commit(repository)
    if tree or not checkpoint.git_sha:
        options.append("--no-checkout")
    if _registered_by_us(repository, path):
        options += ["--force", "--force"]  # its directory was deleted by hand; what is left of it is ours
    try:
        repository.git.run(*_PARALLEL, "worktree", "add", *options, path, commit)
    except GitError as error:
        raise WorktreeError(f"cannot make the worktree {path}: {error.message}") from None


def _registered_by_us(repository: Repository, path: str) -> bool:
    listing = repository.git.run("worktree", "list", "--porcelain", "-z").out
    for record in listing.split(b"\0\0"):
        lines = record.split(b"\0")
        if lines[0] == b"worktree " + os.fsencode(path):
            return any(line.startswith(b"locked " + _LOCK_REASON.encode()) for line in lines)
    return False


def _empty_commit(repository: Repository) -> str:
    """Returns a commit without files, which a checkpoint of an unborn branch is opened on for want of another."""
    tree = repository.git.run("mktree").out.decode("ascii").strip()
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "gitckpt"), ("EMAIL", "gitckpt"))}
    done = repository.git.run("commit-tree", tree, "-m", "empty", env=who)
    return done.out.decode("ascii").strip()


def _bring_back(made: Repository, objects: Objects, checkpoint: Checkpoint) -> None:
    if not checkpoint.git_sha:
        branch = f"refs/heads/{checkpoint.branch or 'main'}"
        taken = made.cat_file.info(branch) is not None
        made.git.run("symbolic-ref", "HEAD", f"refs/heads/ckpt/{checkpoint.id[: ids.SHORT]}" if taken else branch)
    files = checkpoint.worktree
    if files is None or files.tree is None:
        return
    restorer.bring_back(made, objects, files.tree, checkpoint.git_sha)
    found = snapshot.capture(made, objects, checkpoint.git_sha)
    if found.tree != files.tree:
        raise WorktreeError(
            f"what came back is not what checkpoint {checkpoint.id} captured: {restorer.difference(made, files.tree, found.tree)}",
            hint=f"compare by hand: git ckpt show {checkpoint.id}",
        )
