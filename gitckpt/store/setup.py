"""Install hooks, git settings and `gitckpt.toml`; uninstall exactly these."""

from __future__ import annotations

import os

from gitckpt.git import config
from gitckpt.git.command import require_git
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import Finding
from gitckpt.model.values import replace
from gitckpt.store import local_checkpoints, notes
from gitckpt.store.config import settings
from gitckpt.store.hooks import installation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.store.hooks.installation import Installation

# Remotes that push checkpoints, or fetch over local ones.

_OURS = ("refs/checkpoints/", "refs/ckpt/", "refs/keep/", "refs/notes/checkpoints")
_KINDS = ("mirror", "push", "fetch")


def inspect(repository: Repository) -> list[Finding]:
    """Return a finding for each remote that pushes, replaces or prunes checkpoints."""
    said = config.read(repository, r"^remote\..*\.(mirror|push|fetch)$")
    remotes: dict[str, dict[str, list[str]]] = {}
    for key, values in said.items():
        name, _, kind = key.removeprefix("remote.").rpartition(".")
        if kind in _KINDS:
            remotes.setdefault(name, {})[kind] = values
    return [finding for name, settings in remotes.items() for finding in _of_remote(name, settings)]


def _of_remote(name: str, settings: dict[str, list[str]]) -> list[Finding]:
    found = []
    push, fetch, mirror = (f"remote.{name}.{kind}" for kind in ("push", "fetch", "mirror"))
    both = " && ".join(
        f"git config --add {shell_word(push)} '+refs/{kind}/*:refs/{kind}/*'"
        for kind in ("heads", "tags")
    )
    fetches = _takes(settings.get("fetch", ()), 1)
    if config.is_on(settings.get("mirror", ["false"])[-1]):
        sentence = "is a mirror: git push sends every checkpoint there, with all that is not committed, and deletes what is not here"
        found.append(
            Finding(
                "remote-mirrors",
                mirror,
                sentence,
                f"git config --unset-all {shell_word(mirror)} && {both}",
            )
        )
    elif _takes(settings.get("push", ()), 0):
        sentence = "names refs of gitckpt: git push sends checkpoints there, with all that is not committed"
        found.append(
            Finding(
                "remote-mirrors",
                push,
                sentence,
                f"git config --unset-all {shell_word(push)} && {both}",
            )
        )
    if fetches:
        sentence = "fetches over refs of gitckpt: git fetch replaces checkpoints by theirs, and with --prune deletes those that are not there"
        cure = f"git config --replace-all {shell_word(fetch)} {shell_word(f'+refs/heads/*:refs/remotes/{name}/*')}"
        found.append(Finding("remote-mirrors", fetch, sentence, cure))
    return found


def _takes(specs: list[str] | tuple[str, ...], side: int) -> bool:
    kept = [spec for spec in specs if not spec.startswith("^")]
    out = {spec[1:].rstrip("*") for spec in specs if spec.startswith("^")}  # negative refspecs
    for spec in kept:
        sides = spec.removeprefix("+").split(":")
        pattern = sides[side] if len(sides) > side else sides[0] if side == 0 else ""
        for ours in _OURS:
            is_meant = (
                ours.startswith(pattern[:-1]) or pattern[:-1].startswith(ours)
                if pattern.endswith("*")
                else pattern.startswith(ours)
            )
            if pattern and is_meant and not any(ours.startswith(each) for each in out):
                return True
    return False


# Installation.


def install(repository: Repository, mode: str) -> Installation:
    """Make git call gitckpt at each commit, and write the settings file if missing."""
    version = require_git()
    notes.prepare(repository)
    local_checkpoints.prepare(repository)
    done = installation.install(repository, version=version, mode=mode)
    done = replace(
        done,
        advice=[
            *done.advice,
            *(f"{found.object} {found.sentence}: {found.cure}" for found in inspect(repository)),
        ],
    )
    path = _file(repository)
    if path is None or (os.path.lexists(path) and settings.read(repository).error is not None):
        return done  # the caller reports the error in the file
    if not settings.write_template(path):
        return done
    return replace(
        done, changed=[*done.changed, f"wrote {path}: settings for everybody, to be committed"]
    )


def uninstall(repository: Repository) -> Installation:
    removed = installation.uninstall(repository)
    path = _file(repository)
    lines = installation.lines_left(repository)
    advice = [
        f"{each} has lines of yours that call gitckpt, and stays; take them out" for each in lines
    ]
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
