"""Git's own configuration, read in one call and written by git."""

from __future__ import annotations

import os

from gitckpt.git import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

_NAMING = ("include.path", "core.excludesfile", "core.attributesfile")
"""Settings that name a file."""


def read(repository: Repository, pattern: str) -> dict[str, list[str]]:
    r"""Returns the settings whose name matches.

    Args:
        repository: where.
        pattern: a regular expression on the canonical name, such as `^ckpt\.`.

    Returns:
        Values by name in git's canonical spelling (section and key lower case), in the order git reads them; the last one counts.
    """
    out = repository.git.run("config", "--null", "--get-regexp", pattern, ok=(0, 1)).out
    settings: dict[str, list[str]] = {}
    for entry in out.decode("utf-8", "surrogateescape").split("\0"):
        if entry:
            name, newline, value = entry.partition("\n")
            settings.setdefault(name, []).append(value if newline else "true")
    return settings


def files(repository: Repository) -> list[str]:
    """Returns the files that the configuration comes from, with those that it names: what it includes, rules to ignore files, attributes.

    Args:
        repository: where.

    Returns:
        Absolute paths; what does not exist is among them where git would read it if it did (git-config(1), "FILES").
    """
    home = os.path.expanduser("~")
    shared = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git")
    found = [
        os.environ.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig",
        *([os.environ["GIT_CONFIG_GLOBAL"]] if os.environ.get("GIT_CONFIG_GLOBAL") else [os.path.join(home, ".gitconfig")]),
        *(os.path.join(shared, name) for name in ("config", "ignore", "attributes")),
        os.path.join(repository.common_dir, "config"),
        *(os.path.join(place, "config.worktree") for place in (repository.common_dir, repository.git_dir)),
        "/etc/gitattributes",
    ]
    words = repository.git.run("config", "--null", "--show-origin", "--list").out.decode("utf-8", "surrogateescape").split("\0")
    for origin, entry in zip(words[::2], words[1::2], strict=False):
        place = origin.removeprefix("file:") if origin.startswith("file:") else ""
        name, _, value = entry.partition("\n")
        if place:
            found.append(place)
        if name.lower() in _NAMING or (name.startswith("includeif.") and name.endswith(".path")):
            found.append(os.path.join(os.path.dirname(place), os.path.expanduser(value)))
    top = repository.worktree or repository.common_dir
    return list(dict.fromkeys(os.path.join(top, path) for path in found))


def write(repository: Repository, name: str, value: str, *, add: bool = False) -> None:
    """Sets a name of the repository's own configuration, or adds one more value to it; when this returns, it is on the disk."""
    repository.git.run("config", "--local", "--add" if add else "--replace-all", name, value)
    disk.flush([os.path.join(repository.common_dir, "config"), repository.common_dir])


def unset(repository: Repository, name: str, value: str | None = None) -> None:
    """Removes a name of the repository's own configuration, or one of its values; it may be missing."""
    wanted = ["--fixed-value", "--unset-all", name, value] if value is not None else ["--unset-all", name]
    repository.git.run("config", "--local", *wanted, ok=(0, 5))
