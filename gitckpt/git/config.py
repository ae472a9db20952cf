"""Git's own configuration, read in one call and written by git."""

from __future__ import annotations

import os

from gitckpt.git import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository


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


def write(repository: Repository, name: str, value: str, *, add: bool = False) -> None:
    """Sets a name of the repository's own configuration, or adds one more value to it; when this returns, it is on the disk."""
    repository.git.run("config", "--local", "--add" if add else "--replace-all", name, value)
    disk.flush([os.path.join(repository.common_dir, "config"), repository.common_dir])


def unset(repository: Repository, name: str, value: str | None = None) -> None:
    """Removes a name of the repository's own configuration, or one of its values; it may be missing."""
    wanted = ["--fixed-value", "--unset-all", name, value] if value is not None else ["--unset-all", name]
    repository.git.run("config", "--local", *wanted, ok=(0, 5))
