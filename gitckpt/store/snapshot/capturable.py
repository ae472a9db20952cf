"""Tell whether a snapshot would capture a file, for callers who read what other files name.

A branch decides what its files name: an ignored `.env` must not get into a checkpoint that way.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.store.snapshot.limits import Limits

IGNORED = "git ignores it"


def reason_to_leave(repository: Repository, limits: Limits, path: str) -> str | None:
    """Return why a snapshot would leave a file out; None where it would capture it.

    Args:
        repository: seen from the worktree.
        limits: what a snapshot leaves out.
        path: absolute path of the file. Where links lead is what counts.
    """
    top = os.path.realpath(repository.worktree or os.devnull)
    real = os.path.realpath(path)
    if not real.startswith(f"{top}/"):
        return "it lies outside of the worktree"
    tag = _listed(repository, os.path.relpath(real, top)).get(real)
    if tag == b"H":
        return None
    is_included = _is_included(repository, limits, real, top)
    if tag is None and not is_included:
        return IGNORED
    reason = limits.reason_to_omit(os.fsencode(real), included=is_included)
    return reason[0] if reason is not None else None


def below(repository: Repository, limits: Limits, directory: str) -> set[str] | None:
    """Return the files below a directory that a snapshot would capture.

    Returns:
        Absolute paths; None where it would capture none, or the directory is in no worktree.
    """
    top = os.path.realpath(repository.worktree or os.devnull)
    if directory != top and not directory.startswith(f"{top}/"):
        return None
    listed = _listed(repository, os.path.relpath(directory, top))
    return {path for path, tag in listed.items() if tag == b"H" or not _omits(limits, path)} or None


def _omits(limits: Limits, path: str) -> bool:
    return limits.reason_to_omit(os.fsencode(path), included=False) is not None


def _listed(repository: Repository, relative: str) -> dict[str, bytes]:
    """Return tracked files (`H`) and those that are neither tracked nor ignored (`?`)."""
    top = os.path.realpath(repository.worktree or "")
    words = ("ls-files", "-t", "-z", "--cached", "--others", "--exclude-standard", "--", relative)
    listing = repository.git.run("--literal-pathspecs", *words, ok=(0, 128)).out
    entries = (entry.split(b" ", 1) for entry in listing.split(b"\0")[:-1])
    return {f"{top}/{os.fsdecode(path)}": b"?" if tag == b"?" else b"H" for tag, path in entries}


def _is_included(repository: Repository, limits: Limits, real: str, top: str) -> bool:
    if not limits.include:
        return False
    patterns = [option for pattern in limits.include for option in ("-x", pattern)]
    listing = repository.git.run("ls-files", "--others", "--ignored", "-z", *patterns).out
    return os.fsencode(os.path.relpath(real, top)) in listing.split(b"\0")
