"""A tree with some of its files changed, made from the trees on the way to them alone, and from files that git would store as they are.

An index says as much, but git reads and writes all of it each time: 3 MB for 40,000 files, with a checksum of the whole.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from gitckpt.git.objects.encoding import DIRECTORY, FILE, Entries, decode_tree, empty_tree, encode_tree, object_id
from gitckpt.git.process import GitError

if TYPE_CHECKING:
    from gitckpt.git.objects.port import Item, Objects
    from gitckpt.git.repository import Repository

File: TypeAlias = tuple[bytes, str]
"""Mode and oid."""

Place: TypeAlias = tuple[bytes, ...]
"""Of a directory: the parts of its path."""

_LINK, _TOOL = b"120000", b"100755"
_UNUSUAL = re.compile(rb"[^ -~]|[~:\\]|(?:^|/)\.git", re.IGNORECASE)
"""What a path has that git may refuse, or take for another (`verify_path` in read-cache.c)."""

_MANY = 200
_LARGE = 1 << 20
"""For more files, or longer ones, git is the quicker."""


def stored(repository: Repository, objects: Objects, base: str, files: Collection[bytes], gone: Collection[bytes]) -> str | None:
    """Stores files as they are, and returns the tree of a worktree.

    Args:
        repository: seen from the worktree, in which git converts nothing.
        objects: its objects.
        base: the tree of the worktree's index.
        files: paths whose files are others, or new.
        gone: paths that have no file any more.

    Returns:
        None where that is rather for git: a path or a file is unusual, or there are many.

    Raises:
        GitError: an object cannot be read or written.
    """
    if len(files) > _MANY or any(_UNUSUAL.search(path) for path in (*files, *gone)):
        return None
    top = os.path.realpath(os.fsencode(repository.worktree or ""))
    blobs: list[Item] = []
    changes: dict[bytes, File | None] = dict.fromkeys(gone)
    for path in files:
        read = _read_file(top, path)
        if read is None:
            return None
        mode, data = read
        blobs.append(("blob", data))
        changes[path] = (mode, object_id("blob", data, repository.object_format))
    try:
        tree, made = edited(objects, base, changes, repository.object_format)
    except ValueError:  # files and directories change places while they are looked at
        return None
    objects.write([*blobs, *made], flushed=False)
    return tree


def _read_file(top: bytes, path: bytes) -> tuple[bytes, bytes] | None:
    """Returns mode and content of a file or symlink; None where it is neither, cannot be read, is long, or lies behind a symlink."""
    try:
        whole = os.path.join(top, path)
        if os.path.realpath(os.path.dirname(whole)) != os.path.dirname(whole):
            return None
        if stat.S_ISLNK(os.lstat(whole).st_mode):
            return _LINK, os.readlink(whole)
        with open(os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGE:
                return None
            return _TOOL if status.st_mode & stat.S_IXUSR else FILE, file.read()
    except OSError:
        return None


def edited(objects: Objects, base: str, changes: Mapping[bytes, File | None], object_format: str) -> tuple[str, list[Item]]:
    """Returns a tree in which some files are others, and what has to be written for that.

    As git's own trees, it has no directories without files. A file takes the place of a directory with all that is in it.

    Args:
        objects: where the tree is.
        base: its oid.
        changes: what each path becomes; None where it is no file any more.
        object_format: "sha1" or "sha256".

    Raises:
        GitError: a tree on the way is missing.
        ValueError: a path is to be a file and a directory.
    """
    _require_places({path for path, file in changes.items() if file is not None})
    wanted = _by_directory(changes)
    there = _directories(objects, base, wanted, object_format)
    made: list[Item] = []
    oids: dict[Place, str] = {}
    for place in sorted(wanted, key=len, reverse=True):  # from below, and no recursion: a path may have two thousand parts
        old, entries = there.get(place, ("", {}))
        new = dict(entries)
        for name, file in wanted[place].files.items():
            if file is not None:
                new[name] = file
            elif name in new and new[name][0] != DIRECTORY:
                del new[name]
        for name in wanted[place].directories:
            oid = oids[(*place, name)]
            if oid:
                new[name] = (DIRECTORY, oid)
            elif name in new and new[name][0] == DIRECTORY:
                del new[name]
        oids[place] = old
        if new != entries:
            oids[place] = ""
            if new or not place:
                made.append(("tree", encode_tree(new)))
                oids[place] = object_id("tree", made[-1][1], object_format)
    return oids[()], made


class _Wanted:
    """What is to become of a directory."""

    def __init__(self) -> None:
        self.files: dict[bytes, File | None] = {}
        self.directories: set[bytes] = set()


def _require_places(paths: Iterable[bytes]) -> None:
    known = set(paths)
    for path in known:
        at = path.find(b"/")
        while at >= 0:
            if path[:at] in known:
                raise ValueError(f"{path[:at]!r} is to be a file and a directory")
            at = path.find(b"/", at + 1)


def _by_directory(changes: Mapping[bytes, File | None]) -> dict[Place, _Wanted]:
    """Returns what is to become of each directory that leads to a change; what lies below a new file goes with its place."""
    found: dict[Place, _Wanted] = {(): _Wanted()}
    for path, file in changes.items():
        *above, name = path.split(b"/")
        place: Place = ()
        for part in above:
            found[place].directories.add(part)
            place = (*place, part)
            found.setdefault(place, _Wanted())
        found[place].files[name] = file
    for wanted in found.values():
        wanted.directories -= {name for name, file in wanted.files.items() if file is not None}
    return found


def _directories(objects: Objects, base: str, wanted: Mapping[Place, _Wanted], object_format: str) -> dict[Place, tuple[str, Entries]]:
    """Returns oid and entries of those directories that are there; all of a level are read at once."""
    found: dict[Place, tuple[str, Entries]] = {}
    level: list[tuple[Place, str]] = [((), base)]
    while level:
        deeper: list[tuple[Place, str]] = []
        for (place, oid), read in zip(level, objects.read([oid for _, oid in level]), strict=True):
            if read is None and oid != empty_tree(object_format):
                raise GitError(["cat-file", "tree", oid], 128, f"fatal: {oid} is missing")
            entries = decode_tree(read[1], object_format) if read is not None else {}
            found[place] = (oid, entries)
            names = sorted(wanted[place].directories & entries.keys())
            deeper += [((*place, name), entries[name][1]) for name in names if entries[name][0] == DIRECTORY]
        level = deeper
    return found
