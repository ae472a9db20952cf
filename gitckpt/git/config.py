"""Read and write git's configuration; cache it until one of its files changes."""

from __future__ import annotations

import os
import time

from gitckpt.git import fsync
from gitckpt.git.command import GitRunner
from gitckpt.git.files import refs_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import ConfigEntries, Repository

# Settings that name a file.
_FILE_SETTINGS = ("include.path", "core.excludesfile", "core.attributesfile")
_OWN_PREFIX = "ckpt."
# Variables that decide which files git reads, or that add settings.
_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG")
_FALSE = ("", "false", "no", "off", "0")


def read_settings(repository: Repository, pattern: str) -> dict[str, list[str]]:
    """Return the values of the git settings whose names match the regex `pattern`.

    Omits `ckpt.*` settings in configuration files that git tracks: a branch could change them.
    """
    import re

    settings: dict[str, list[str]] = {}
    entries = _read_entries(repository)
    files = _find_tracked_files(repository, entries)
    for file, name, value in entries:
        if re.search(pattern, name) and not (file in files and name.startswith(_OWN_PREFIX)):
            settings.setdefault(name, []).append(value)
    return settings


def find_setting_files(repository: Repository, pattern: str) -> dict[str, str]:
    """Map each setting that matches `pattern` to its file; "" if set by other means."""
    import re

    return {name: file for file, name, _ in _read_entries(repository) if re.search(pattern, name)}


def settings_in_tracked_files(repository: Repository) -> dict[str, list[str]]:
    files = _find_tracked_files(repository, _read_entries(repository))
    return {os.path.normpath(file): names for file, names in files.items()}


def _find_tracked_files(repository: Repository, entries: ConfigEntries) -> dict[str, list[str]]:
    names_by_file: dict[str, list[str]] = {}
    trusted_files = _list_standard_config_files(repository)
    for file, name, _ in entries:
        if file and name.startswith(_OWN_PREFIX) and file not in trusted_files:
            names_by_file.setdefault(file, []).append(name)
    return {file: names_by_file[file] for file in names_by_file if _is_tracked(repository, file)}


def _is_tracked(repository: Repository, file: str) -> bool:
    worktrees = {repository.worktree: repository.git}
    main_worktree, name = os.path.split(repository.common_dir)
    if name == ".git" and main_worktree not in worktrees:
        worktrees[main_worktree] = GitRunner(repository.common_dir, main_worktree)
    for top, git in worktrees.items():
        if top is None:
            continue
        path = os.path.normpath(os.path.join(top, file))
        for candidate in {path, os.path.realpath(path)}:
            words = ("--literal-pathspecs", "ls-files", "-z", "--", candidate)
            if candidate.startswith(f"{top}/") and git.run(*words).out:
                return True
    return False


def read_local_settings(repository: Repository, pattern: str) -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    out = repository.git.run("config", "--local", "--null", "--get-regexp", pattern, ok=(0, 1)).out
    for entry in out.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        name, value = _split_entry(entry)
        settings.setdefault(name, []).append(value)
    return settings


def is_true(value: str) -> bool:
    # git-config(1), "boolean"
    return value.lower() not in _FALSE


def _read_entries(repository: Repository) -> ConfigEntries:
    # Ask git again only if a file or a variable has changed.
    current = variables()
    if repository.configuration is not None:
        entries, (old_variables, stamps) = repository.configuration
        are_files_same = all(stamp(path) == old for path, old in stamps.items())
        if old_variables == current and are_files_same:
            return entries
    start_time = time.time_ns()
    entries = []
    words = ("config", "--null", "--show-origin", "--list")
    fields = repository.git.run(*words).out.decode("utf-8", "surrogateescape").split("\0")
    for origin, entry in zip(fields[::2], fields[1::2], strict=False):
        kind, _, path = origin.partition(":")
        entries.append((path if kind == "file" else "", *_split_entry(entry)))
    new_stamps = {path: stamp(path, start_time) for path in _list_files(repository, entries)}
    readable_stamps = {path: mark for path, mark in new_stamps.items() if mark is not None}
    # A change may stay unnoticed if a file is too young, or included on one branch only.
    is_conditional = any(name.startswith("includeif.onbranch:") for _, name, _ in entries)
    is_cacheable = len(readable_stamps) == len(new_stamps) and not is_conditional
    repository.configuration = (entries, (current, readable_stamps)) if is_cacheable else None
    return entries


def variables() -> dict[str, str]:
    """Return the environment variables that decide which settings git reads."""
    return {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}


def _split_entry(entry: str) -> tuple[str, str]:
    name, newline, value = entry.partition("\n")  # a name without a value means true
    return name, value if newline else "true"


def stamp(path: str, start: int | None = None) -> str | None:
    """Return a stamp of a file: "" if missing, None if unreadable or too young."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError):
        return None
    return refs_stat.make_stat_stamp(status, start)


def config_dir() -> str:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "git")


def _list_standard_config_files(repository: Repository) -> list[str]:
    return [
        os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig",
        os.environ.get("GIT_CONFIG_GLOBAL") or os.path.join(os.path.expanduser("~"), ".gitconfig"),
        os.path.join(config_dir(), "config"),
        os.path.join(repository.common_dir, "config"),
        os.path.join(repository.common_dir, "config.worktree"),
        os.path.join(repository.git_dir, "config.worktree"),
    ]


def _list_files(repository: Repository, entries: ConfigEntries) -> list[str]:
    # Also missing files that git would read (git-config(1), "FILES").
    paths = [
        *_list_standard_config_files(repository),
        *(os.path.join(config_dir(), name) for name in ("ignore", "attributes")),
        "/etc/gitattributes",
    ]
    for file, name, value in entries:
        if file:
            paths.append(file)
        if name.lower() in _FILE_SETTINGS or (
            name.startswith("includeif.") and name.endswith(".path")
        ):
            paths.append(os.path.join(os.path.dirname(file), os.path.expanduser(value)))
    top = repository.worktree or repository.common_dir
    return list(dict.fromkeys(os.path.join(top, path) for path in paths))


def write_setting(repository: Repository, name: str, value: str, *, add: bool = False) -> None:
    repository.git.run("config", "--local", "--add" if add else "--replace-all", name, value)
    fsync.flush([os.path.join(repository.common_dir, "config"), repository.common_dir])


def unset_setting(repository: Repository, name: str, value: str | None = None) -> None:
    options, values = ((), ()) if value is None else (("--fixed-value",), (value,))
    repository.git.run("config", "--local", *options, "--unset-all", name, *values, ok=(0, 5))
