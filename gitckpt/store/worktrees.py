"""Worktrees made from checkpoints: where they live, whose they are, and how one is opened."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gitckpt.git.lock import Lock
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository, main_worktree
from gitckpt.model import ids
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.store import layout, restorer, snapshot

if TYPE_CHECKING:
    from gitckpt.git.objects import Objects

PRIVATE = ".ckpt"
"""The directory at the top of the main worktree that holds the worktrees; it ignores itself."""

_PARALLEL = ("-c", "checkout.workers=0", "-c", "core.hooksPath=/dev/null")
_LOCK_REASON = "gitckpt"
_STAGE = ".making-"
"""Begins the name of a directory in which a worktree is made, out of everybody's sight until it is whole."""


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
    wanted = Owner(checkpoint.id, checkpoint.run if in_run else None)
    root, name = os.path.split(path)
    _sweep(repository, root)
    if os.path.lexists(path):
        return _existing(repository, path, wanted)
    _require_objects(repository, checkpoint)
    _make_root(root)
    stage = os.path.join(root, f"{_STAGE}{os.urandom(4).hex()}")
    with Lock(f"{stage}.lock", 0):
        try:
            staged = os.path.join(stage, name)
            _add(repository, staged, checkpoint)
            _fill(repository, staged, objects, checkpoint, wanted)
            moved = _move(repository, staged, path)
        finally:
            _discard(repository, stage)
    return Opened(path, made=True) if moved else _existing(repository, path, wanted)


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


def _existing(repository: Repository, path: str, wanted: Owner) -> Opened:
    """Returns the worktree at a path as it stands, if it is the one that is wanted."""
    found = _owner_at(repository, path)
    if found is not None and (found.run == wanted.run if wanted.run else found == wanted):
        repository.git.run("worktree", "repair", path)  # a kill may have kept the one that made it from doing so
        return Opened(path, made=False)
    if found is None and _registered_by_us(repository, path):
        raise WorktreeError(
            f"{path} is a worktree of gitckpt that does not say what it was made for",
            hint=f"save what you need of it, then: git worktree remove --force --force '{path}'",
        )
    raise WorktreeError(
        f"{path} exists and is not the worktree of {wanted.run or wanted.checkpoint}",
        hint="move it out of the way, or choose another place: git ckpt resume --into DIR",
    )


def _fill(repository: Repository, staged: str, objects: Objects, checkpoint: Checkpoint, wanted: Owner) -> None:
    made = _seen_from(repository, staged)
    if made is None:
        raise WorktreeError(f"git made no worktree at {staged}", hint="look at the repository: git ckpt doctor")
    try:
        _bring_back(made, objects, checkpoint)
        _write_owner(made, wanted)
    finally:
        made.close()


def _move(repository: Repository, staged: str, path: str) -> bool:
    """Moves a worktree that is whole to where it belongs; returns False if somebody else made one there meanwhile."""
    if not os.path.lexists(path) and _registered_by_us(repository, path):
        repository.git.run("worktree", "remove", "--force", "--force", path)  # its directory was deleted by hand
    try:
        os.rename(staged, path)  # not `git worktree move`, which refuses submodules
    except OSError as error:
        if os.path.lexists(path):
            return False
        raise WorktreeError(f"cannot make the worktree {path}: {error.strerror}") from None
    repository.git.run("worktree", "repair", path)
    return True


def _sweep(repository: Repository, root: str) -> None:
    """Removes what killed processes left half made; whoever still works on one holds its lock."""
    there = os.listdir(root) if os.path.isdir(root) else []
    for name in {name.removesuffix(".lock") for name in there if name.startswith(_STAGE)}:
        stage = os.path.join(root, name)
        with Lock(f"{stage}.lock", 0) as is_left:
            if is_left:
                _discard(repository, stage)


def _discard(repository: Repository, stage: str) -> None:
    """Removes a stage, its lock, and what git keeps of the worktree that was made there. Nobody but its maker has ever known of it."""
    real = os.path.realpath(stage) + os.sep
    administration = os.path.join(repository.common_dir, "worktrees")
    for name in os.listdir(administration) if os.path.isdir(administration) else ():
        git_dir = os.path.join(administration, name)
        place = os.path.dirname(_content(os.path.join(git_dir, "gitdir")))
        if not os.path.realpath(place).startswith(real):
            continue
        final = os.path.join(os.path.dirname(stage), os.path.basename(place))
        there = _seen_from(repository, final)
        if there is not None and os.path.realpath(there.git_dir) == os.path.realpath(git_dir):
            # A kill came between its move and what follows it.
            repository.git.run("worktree", "repair", final)
        else:
            shutil.rmtree(git_dir, ignore_errors=True)
    shutil.rmtree(stage, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{stage}.lock")


def _content(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read().removesuffix(b"\n"))
    except OSError:
        return ""


def _owner_at(repository: Repository, path: str) -> Owner | None:
    """Returns whose the directory is, if it is a worktree of this repository that gitckpt made."""
    there = _seen_from(repository, path)
    return owner(there) if there is not None else None


def _seen_from(repository: Repository, path: str) -> Repository | None:
    """Returns the repository as seen from one of its linked worktrees, whatever `GIT_DIR` says; None where there is none at the path."""
    named = _content(os.path.join(path, ".git")).removeprefix("gitdir: ")
    git_dir = os.path.normpath(os.path.join(path, named))
    place = os.path.join(repository.common_dir, "worktrees")
    if not named or os.path.realpath(os.path.dirname(git_dir)) != os.path.realpath(place) or not os.path.isdir(git_dir):
        return None
    return Repository(git_dir, path, repository.object_format)


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
            ignore = os.path.join(parent, ".gitignore")
            if not os.path.exists(ignore) or not os.path.getsize(ignore):  # empty: a disk was full
                with open(ignore, "w", encoding="utf-8") as file:
                    file.write("*\n")
    except OSError as error:
        raise WorktreeError(f"cannot make {root}: {error.strerror}", hint="choose another place: git ckpt resume --into DIR") from None


def _add(repository: Repository, path: str, checkpoint: Checkpoint) -> None:
    tree = checkpoint.worktree.tree if checkpoint.worktree else None
    options = ["--detach", "--lock", "--reason", f"{_LOCK_REASON} {checkpoint.run or checkpoint.id}"]
    commit = checkpoint.git_sha or _empty_commit(repository)
    if tree or not checkpoint.git_sha:
        options.append("--no-checkout")
    try:
        repository.git.run(*_PARALLEL, "-c", "worktree.useRelativePaths=false", "worktree", "add", *options, path, commit)
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
        made.git.run("symbolic-ref", "HEAD", branch if _is_free(made, branch) else f"refs/heads/ckpt/{checkpoint.id[: ids.SHORT]}")
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


def _is_free(repository: Repository, branch: str) -> bool:
    """Tells whether there is neither such a branch nor a worktree that is about to start it."""
    if repository.git.run("check-ref-format", branch, ok=(0, 1)).code != 0 or repository.cat_file.info(branch) is not None:
        return False
    listing = repository.git.run("worktree", "list", "--porcelain", "-z").out
    return b"branch " + os.fsencode(branch) not in listing.split(b"\0")
