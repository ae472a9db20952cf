"""A tree with some of its files changed, made from the trees on the way to them alone.

An index says as much, but git reads and writes all of it each time: 3 MB for 40,000 files, with a checksum of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from gitckpt.git.objects.encoding import DIRECTORY, Entries, decode_tree, empty_tree, encode_tree, object_id
from gitckpt.git.process import GitError

if TYPE_CHECKING:
    from gitckpt.git.objects.port import Item, Objects

File: TypeAlias = tuple[bytes, str]
"""Mode and oid."""

Place: TypeAlias = tuple[bytes, ...]
"""Of a directory: the parts of its path."""


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
    there = _read(objects, base, wanted, object_format)
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


def _read(objects: Objects, base: str, wanted: Mapping[Place, _Wanted], object_format: str) -> dict[Place, tuple[str, Entries]]:
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
