"""Git's own configuration: read in one call, again where one of its files has changed, and written by git."""

from __future__ import annotations

import os
import time

from gitckpt.git import fsync
from gitckpt.git.command import Git
from gitckpt.git.files import refs_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import ConfigEntries, Repository, Stamps

_NAMING = ("include.path", "core.excludesfile", "core.attributesfile")
"""Settings that name a file."""

_OURS = "ckpt."
_PLACES = ("HOME", "XDG_CONFIG_HOME")
_OFF = ("", "false", "no", "off", "0")


def read(repository: Repository, pattern: str) -> dict[str, list[str]]:
    r"""Returns the settings whose name matches.

    Args:
        pattern: a regular expression on the canonical name, such as `^ckpt\.`.

    Returns:
        Values by name in git's canonical spelling (section and key lower case), in the order git reads them; the last one counts.
        Settings of gitckpt in a file that is tracked are left out (`tracked`).
    """
    import re

    settings: dict[str, list[str]] = {}
    entries = _entries(repository)
    files = _tracked(repository, entries)
    for place, name, value in entries:
        if re.search(pattern, name) and not (place in files and name.startswith(_OURS)):
            settings.setdefault(name, []).append(value)
    return settings


def places(repository: Repository, pattern: str) -> dict[str, str]:
    """Return the file that sets each setting whose name matches; "" where no file does."""
    import re

    return {name: place for place, name, _ in _entries(repository) if re.search(pattern, name)}


def tracked(repository: Repository) -> dict[str, list[str]]:
    """Return the files with settings of gitckpt that are tracked here, and the names of these.

    `include.path` may lead to such a file: a branch decides what it says. The user's own
    `~/.gitconfig` counts also where the home directory is a repository.
    """
    files = _tracked(repository, _entries(repository))
    return {os.path.normpath(place): names for place, names in files.items()}


def _tracked(repository: Repository, entries: ConfigEntries) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    known: list[str] = []
    for place, name, _ in entries:
        if place and name.startswith(_OURS):
            known = known or _always_read(repository)
            if place not in known:
                found.setdefault(place, []).append(name)
    return {place: names for place, names in found.items() if _is_tracked(repository, place)}


def _is_tracked(repository: Repository, place: str) -> bool:
    worktrees = {repository.worktree: repository.git}
    main, name = os.path.split(repository.common_dir)
    if name == ".git" and main not in worktrees:
        worktrees[main] = Git(repository.common_dir, main)
    for top, git in worktrees.items():
        if top is None:
            continue
        path = os.path.normpath(os.path.join(top, place))
        for each in {path, os.path.realpath(path)}:
            words = ("--literal-pathspecs", "ls-files", "-z", "--", each)
            if each.startswith(f"{top}/") and git.run(*words).out:
                return True
    return False


def read_local(repository: Repository, pattern: str) -> dict[str, list[str]]:
    """Returns, as `read` does, the settings that are the repository's own, and not those that a person has set for all repositories."""
    settings: dict[str, list[str]] = {}
    out = repository.git.run("config", "--local", "--null", "--get-regexp", pattern, ok=(0, 1)).out
    for entry in out.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        name, value = _parted(entry)
        settings.setdefault(name, []).append(value)
    return settings


def is_on(value: str) -> bool:
    """Tells whether a value that `read` returned stands for true (git-config(1), "boolean"); of one that git refuses, it does."""
    return value.lower() not in _OFF


def _entries(repository: Repository) -> ConfigEntries:
    """Returns all that git reads, in one call, and again only where a file has changed since, or a variable."""
    known, variables = repository.configuration, _variables()
    if known is not None:
        entries, (before, stamps) = known
        if before == variables and all(_stamp(path) == stamp for path, stamp in stamps.items()):
            return entries
    start = time.time_ns()
    entries = []
    words = repository.git.run("config", "--null", "--show-origin", "--list").out.decode("utf-8", "surrogateescape").split("\0")
    for origin, entry in zip(words[::2], words[1::2], strict=False):
        entries.append((origin.removeprefix("file:") if origin.startswith("file:") else "", *_parted(entry)))
    repository.configuration = _to_be_kept(repository, entries, variables, start)
    return entries


def _parted(entry: str) -> tuple[str, str]:
    """Returns name and value; a name without one stands for true."""
    name, newline, value = entry.partition("\n")
    return name, value if newline else "true"


def _to_be_kept(
    repository: Repository, entries: ConfigEntries, variables: dict[str, str], start: int
) -> tuple[ConfigEntries, Stamps] | None:
    """Returns what was read with what will tell of a change; None where that might not: a file is young, or counts on one branch only."""
    if any(name.startswith("includeif.onbranch:") for _, name, _ in entries):
        return None
    stamps = {path: _stamp(path, start) for path in _files(repository, entries)}
    found = {path: stamp for path, stamp in stamps.items() if stamp is not None}
    return (entries, (variables, found)) if len(found) == len(stamps) else None


def _stamp(path: str, now: int | None = None) -> str | None:
    """Returns what a file looks like, "" for one that is not there; None for one that cannot be looked at, or was too young then."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError):
        return None
    return refs_stat.stamp(status, now)


def _variables() -> dict[str, str]:
    """Returns the variables that say which files git reads, and what besides."""
    return {name: value for name, value in os.environ.items() if name in _PLACES or name.startswith("GIT_CONFIG")}


def _shared() -> str:
    """Return the directory of the user's configuration that is not `~/.gitconfig`."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "git")


def _always_read(repository: Repository) -> list[str]:
    """Return the files of configuration that git reads without being told to."""
    return [
        os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig",
        os.environ.get("GIT_CONFIG_GLOBAL") or os.path.join(os.path.expanduser("~"), ".gitconfig"),
        os.path.join(_shared(), "config"),
        os.path.join(repository.common_dir, "config"),
        *(os.path.join(place, "config.worktree") for place in (repository.common_dir, repository.git_dir)),
    ]


def _files(repository: Repository, entries: ConfigEntries) -> list[str]:
    """Return the files that the configuration comes from or names; also missing ones that git would read (git-config(1), "FILES")."""
    found = [
        *_always_read(repository),
        *(os.path.join(_shared(), name) for name in ("ignore", "attributes")),
        "/etc/gitattributes",
    ]
    for place, name, value in entries:
        if place:
            found.append(place)
        if name.lower() in _NAMING or (name.startswith("includeif.") and name.endswith(".path")):
            found.append(os.path.join(os.path.dirname(place), os.path.expanduser(value)))
    top = repository.worktree or repository.common_dir
    return list(dict.fromkeys(os.path.join(top, path) for path in found))


def write(repository: Repository, name: str, value: str, *, add: bool = False) -> None:
    """Sets a name of the repository's own configuration, or adds one more value to it; when this returns, it is on the disk."""
    repository.git.run("config", "--local", "--add" if add else "--replace-all", name, value)
    fsync.flush([os.path.join(repository.common_dir, "config"), repository.common_dir])


def unset(repository: Repository, name: str, value: str | None = None) -> None:
    """Removes a name of the repository's own configuration, or one of its values; it may be missing."""
    wanted = ["--fixed-value", "--unset-all", name, value] if value is not None else ["--unset-all", name]
    repository.git.run("config", "--local", *wanted, ok=(0, 5))
