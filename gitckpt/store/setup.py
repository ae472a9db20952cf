"""Install or remove git hooks and `gitckpt.toml`; check git's settings of remotes."""

from __future__ import annotations

import os

from gitckpt.git import config
from gitckpt.git.command import require_git_version
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import Finding
from gitckpt.store import local_checkpoints, notes
from gitckpt.store.config import settings
from gitckpt.store.hooks import installation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gitckpt.git.repository import Repository
    from gitckpt.store.hooks.installation import Installation

# Remotes that push checkpoints, or fetch over local ones.

_OURS = ("refs/checkpoints/", "refs/ckpt/", "refs/keep/", "refs/notes/checkpoints")
_KINDS = ("push", "fetch", "mirror")
_PUSHED = ("heads", "tags")  # refs to push after the remote's mirror setting is removed


def inspect_remotes(repository: Repository) -> list[Finding]:
    """Return a finding for each remote whose settings push or overwrite checkpoints."""
    remote_settings = config.read_settings(repository, r"^remote\..*\.(mirror|push|fetch)$")
    remotes: dict[str, dict[str, list[str]]] = {}
    for key, values in remote_settings.items():
        remote, _, setting = key.removeprefix("remote.").rpartition(".")
        remotes.setdefault(remote, {})[setting] = values
    return [
        Finding("remote-mirrors", f"remote.{remote}.{setting}", sentence, cure)
        for remote, values in remotes.items()
        for setting, sentence, cure in _inspect_remote(remote, values)
    ]


def _inspect_remote(name: str, values: dict[str, list[str]]) -> Iterator[tuple[str, str, str]]:
    push_key, fetch_key, mirror_key = (shell_quoted(f"remote.{name}.{kind}") for kind in _KINDS)
    push_heads, push_tags = (
        f"git config --add {push_key} '+refs/{kind}/*:refs/{kind}/*'" for kind in _PUSHED
    )
    consequence = "git push sends checkpoints there, with all uncommitted files"
    if config.is_true(values.get("mirror", ["false"])[-1]):
        sentence = f"is a mirror: {consequence}, and deletes refs that this clone lacks"
        cure = f"git config --unset-all {mirror_key} && {push_heads} && {push_tags}"
        yield "mirror", sentence, cure
    elif _matches_gitckpt_refs(values.get("push", ()), 0):
        cure = f"git config --unset-all {push_key} && {push_heads} && {push_tags}"
        yield "push", f"names refs of gitckpt: {consequence}", cure
    if _matches_gitckpt_refs(values.get("fetch", ()), 1):
        sentence = "fetches over refs of gitckpt: git fetch replaces checkpoints, "
        sentence += "and with --prune deletes refs that the remote lacks"
        refspec = shell_quoted(f"+refs/heads/*:refs/remotes/{name}/*")
        yield "fetch", sentence, f"git config --replace-all {fetch_key} {refspec}"


def _matches_gitckpt_refs(specs: Sequence[str], side: int) -> bool:
    excluded_prefixes = tuple(spec[1:].rstrip("*") for spec in specs if spec.startswith("^"))
    refs = [ref for ref in _OURS if not ref.startswith(excluded_prefixes)]
    for spec in specs:
        spec_sides = spec.removeprefix("+").split(":")
        pattern = spec_sides[side] if len(spec_sides) > side and not spec.startswith("^") else ""
        prefix = pattern.removesuffix("*")
        matched_refs = [ref for ref in refs if ref.startswith(prefix)] if prefix != pattern else []
        if pattern and (matched_refs or any(prefix.startswith(ref) for ref in refs)):
            return True
    return False


def install_hooks(repository: Repository, mode: str) -> Installation:
    version = require_git_version()
    notes.create_link_queue(repository)
    local_checkpoints.create_list_file(repository)
    result = installation.install_hooks(repository, version=version, mode=mode)
    findings = inspect_remotes(repository)
    result.advice.extend(f"{entry.object} {entry.sentence}: {entry.cure}" for entry in findings)
    path = _settings_path(repository)
    if path is None or (os.path.lexists(path) and settings.read_settings(repository).error):
        return result  # the caller reports the error in the file
    if settings.write_template(path):
        result.changed.append(f"wrote {path}: commit it to share the settings")
    return result


def uninstall_hooks(repository: Repository) -> Installation:
    removed_parts = installation.uninstall_hooks(repository)
    path, hook_files = _settings_path(repository), installation.files_calling_hook(repository)
    advice = [f"{line} stays: remove your own lines that call gitckpt" for line in hook_files]
    if path is not None and os.path.exists(path):
        if repository.git.run("ls-files", "--error-unmatch", "--", path, ok=(0, 1)).code == 0:
            advice.append(f"{path} stays: the file is committed, and other clones may use it")
        elif not settings.is_unchanged_template(path):
            advice.append(f"{path} stays: the file was changed")
        else:
            os.unlink(path)
            removed_parts.append(f"removed {path}")
    return installation.Installation("none", removed_parts, advice)


def _settings_path(repository: Repository) -> str | None:
    return os.path.join(repository.worktree, settings.FILE) if repository.worktree else None
