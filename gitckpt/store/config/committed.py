"""`gitckpt.toml` as a commit has it: what the worktree of a run begins with, which may be another one than the file that is seen here."""

from __future__ import annotations

import os

from gitckpt.git.objects.encoding import FILES
from gitckpt.git.objects.trees import leaf
from gitckpt.git.repository import Repository
from gitckpt.model.errors import NotFoundError
from gitckpt.model.format import budget
from gitckpt.store.config import settings
from gitckpt.store.config.file import ConfigError, ConfigFile

_SHORT = 10


def require_correct(repository: Repository, commit: str) -> None:
    """Raises `ConfigError` where the settings that a commit has have mistakes; each is named, with the file to correct.

    Args:
        repository: seen from where a run is started.
        commit: what its worktree begins with; "" for an unborn branch.
    """
    name = f"{commit}:{settings.FILE}"
    (found,) = repository.cat_file.contents([name], budget.FILE.size) if commit else (None,)
    if found is None or found[1] != "blob":
        return  # no file, or one that says itself what is wrong with it, once it is there
    if _mistakes(repository, name, found[2]) is None:
        return
    # Only now, as that takes processes: it may be a link, and a filter may make something else of it.
    at_top = leaf(repository, commit, os.fsencode(settings.FILE))
    if at_top is None or at_top[1] not in FILES:
        return
    error = _mistakes(repository, name, repository.git.run("cat-file", "--filters", name).out)
    if error is not None:
        raise ConfigError(f"{commit[:_SHORT]}:{settings.FILE}", error.mistakes, _cure(repository, commit))


def _mistakes(repository: Repository, name: str, data: bytes) -> ConfigError | None:
    try:
        file = ConfigFile(data.decode("utf-8", "surrogateescape"), name)
        error = settings.read(repository, file).error
    except ConfigError as not_toml:
        error = not_toml
    return error if isinstance(error, ConfigError) else None


def _cure(repository: Repository, commit: str) -> str:
    where = settings.path(repository) or settings.FILE
    cure = f"a run begins with that file: correct {where}, commit it, and start again"
    try:
        is_base = repository.commit("HEAD") != commit
    except NotFoundError:  # the branch is unborn, as in a bare repository that others push to
        is_base = True
    return f"{cure}; or begin with another commit: --base REV" if is_base else cure
