"""Which safety checkpoint `undo` goes back to: a small file in the worktree's administrative directory says so.

The file may be deleted: then the newest safety checkpoint of this worktree counts.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gitckpt.git import disk
from gitckpt.model.checkpoint import SAFETY
from gitckpt.model.errors import NotFoundError, WorktreeError
from gitckpt.store.records import layout

if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.store.checkpoints import Checkpoints


@dataclass(frozen=True, slots=True)
class Pointer:
    """What `undo` needs to know.

    Attributes:
        safety: id of the checkpoint to go back to; None where nothing was restored here.
        is_open: whether the restore that it was recorded for never came to its end.
    """

    safety: str | None
    is_open: bool


def name_of(repository: Repository) -> str:
    """Returns what a worktree is called within its repository: "" for the main one."""
    return os.path.basename(repository.git_dir) if repository.is_linked else ""


def read(store: Checkpoints) -> Pointer:
    """Returns the pointer of the store's worktree."""
    found = _read(store.repository)
    if found.safety is not None:
        try:
            store.raw(found.safety)
        except NotFoundError:
            pass  # it was removed, or has expired
        else:
            return found
    here = name_of(store.repository)
    for entry in store.list():
        if entry.trigger == SAFETY and store.read(entry.id).state.get("worktree") == here:
            return Pointer(entry.id, is_open=False)
    return Pointer(None, is_open=False)


def begin(repository: Repository, safety: str) -> None:
    """Notes that a restore begins; after one that never came to its end, its safety checkpoint stays the one to go back to.

    Args:
        repository: seen from the worktree.
        safety: id of the checkpoint that was recorded for it.
    """
    before = _read(repository)
    _write(repository, before.safety if before.is_open and before.safety else safety, is_open=True)


def finish(repository: Repository) -> None:
    """Notes that the restore has come to its end."""
    found = _read(repository)
    if found.safety is not None:
        _write(repository, found.safety, is_open=False)


def _read(repository: Repository) -> Pointer:
    try:
        with open(_path(repository), encoding="utf-8") as file:
            said = json.load(file)
        return Pointer(str(said["safety"]), is_open=bool(said["open"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return Pointer(None, is_open=False)


def _write(repository: Repository, safety: str, *, is_open: bool) -> None:
    path = _path(repository)
    scratch = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with open(scratch, "w", encoding="utf-8") as file:
            json.dump({"safety": safety, "open": is_open}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        raise WorktreeError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
    disk.flush([repository.git_dir])


def _path(repository: Repository) -> str:
    return os.path.join(repository.git_dir, layout.UNDO_FILE)
