"""Sets a repository up: hooks, settings of git, and `gitckpt.toml`; and takes out exactly what it put in."""

from __future__ import annotations

import os

from gitckpt.git.command import require_git
from gitckpt.model.values import replace
from gitckpt.store import notes, remotes, roster
from gitckpt.store.config import settings
from gitckpt.store.hooks import installation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.store.hooks.installation import Installation


def install(repository: Repository, mode: str) -> Installation:
    """Makes git call gitckpt at each commit, and writes the file of settings. Done again, it changes only what is not as it should be.

    Args:
        mode: how git calls gitckpt, as for `installation.install`.

    Raises:
        UsageError: there is no such mode; nothing was changed.
        CkptError: something cannot be written.
    """
    version = require_git()
    notes.prepare(repository)
    roster.prepare(repository)
    done = installation.install(repository, version=version, mode=mode)
    done = replace(
        done, advice=[*done.advice, *(f"{found.object} {found.sentence}: {found.cure}" for found in remotes.inspect(repository))]
    )
    path = _file(repository)
    if path is None or (os.path.lexists(path) and settings.read(repository).error is not None):
        return done  # the caller tells what is wrong with the file, which stays as it is
    if not settings.write_template(path):
        return done
    return replace(done, changed=[*done.changed, f"wrote {path}: settings for everybody, to be committed"])


def uninstall(repository: Repository) -> Installation:
    """Takes out what `install` put in; checkpoints, and other people's text in hooks, stay. Errors: as `installation.uninstall`."""
    removed = installation.uninstall(repository)
    path = _file(repository)
    lines = installation.lines_left(repository)
    advice = [f"{each} has lines of yours that call gitckpt, and stays; take them out" for each in lines]
    if path is not None and os.path.exists(path):
        if repository.git.run("ls-files", "--error-unmatch", "--", path, ok=(0, 1)).code == 0:
            advice.append(f"{path} is committed, and stays: others may use it")
        elif not settings.is_template(path):
            advice.append(f"{path} was changed since, and stays")
        else:
            os.unlink(path)
            removed.append(f"removed {path}")
    return installation.Installation("none", removed, advice)


def _file(repository: Repository) -> str | None:
    return os.path.join(repository.worktree, settings.FILE) if repository.worktree else None
