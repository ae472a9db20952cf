"""What a commit has, looked at once: whether it is there, and sound. Power cuts leave objects of length zero, or none at all.

`git add` and `git commit` flush nothing, so it is their objects that a cut takes, and git goes on as if they were there. Of a commit that
was found whole, all is on the disk: it was flushed for the checkpoint. So what came since the last such commit is looked at: of all of it
whether it is there, and of few and small files whether they hold what they should. A file in the private directory names the last such
commits; it may be deleted at any time.
"""

from __future__ import annotations

import os
import zlib

from gitckpt.git.disk import file_of
from gitckpt.git.files import premises
from gitckpt.git.files.reader import cuts
from gitckpt.git.objects.anchor import is_partial
from gitckpt.git.objects.diff import listed
from gitckpt.git.objects.encoding import DIRECTORY, GITLINK, MalformedTree, object_hash, parents
from gitckpt.model import ids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository

FILE = "whole"

_KEPT = 8
"""So many commits are named: worktrees of several branches take turns."""

_MOST = 5000
"""Of more objects that are new, only files of length zero are looked for: that takes no longer the more there are in packs."""

_FEW, _SMALL = 200, 8 << 20
"""So many loose objects, of so many bytes in all, are read."""

_FAR = 200
"""So many commits are looked at between one that was found whole and the newest; where more came, that one alone."""

_CHUNK = 1 << 20


def lacking(repository: Repository, objects: Objects, commit: str) -> tuple[set[str], set[str]]:
    """Returns objects that cannot be read: of those that came with a commit (of many, others may be among them), and with those before it.

    Args:
        commit: its full oid; "" for none.
    """
    known = _read(repository)
    if not commit or any(commit == each for each, _ in known):
        return set(), set()
    found = repository.cat_file.info(f"{commit}^{{tree}}")
    if found is None:
        return set(), set()  # nobody can capture anything then
    tree, came = found[0], None
    before: set[str] = set()
    if not is_partial(repository):  # else to ask for what is missing would fetch it
        came = _came(objects, known[0][1] if known else "", tree, repository.object_format)
        before = _before(repository, objects, commit, dict(known)) - (came or set()) if known else before
    suspects = _suspects(repository, came) if came is not None else _empty(repository)
    before = _suspects(repository, before)
    if suspects or before:
        from gitckpt.git.damage import integrity

        suspects, before = integrity.damaged(repository, suspects), integrity.damaged(repository, before)
    if not suspects and not before:
        _write(repository, [(commit, tree), *known[: _KEPT - 1]])
    return suspects, before


def pass_over(repository: Repository, commit: str) -> None:
    """Takes a commit for whole though those before it are not, and cannot be made so: that is said once."""
    found = repository.cat_file.info(f"{commit}^{{tree}}")
    if found is not None:
        _write(repository, [(commit, found[0]), *_read(repository)[: _KEPT - 1]])


def _before(repository: Repository, objects: Objects, commit: str, known: dict[str, str]) -> set[str]:
    """Returns the commits since those that were found whole, with what came with each of them but the newest; none where they are many.

    Args:
        known: commits that were found whole, each with its tree.
    """
    cut = cuts(repository)
    trees: dict[str, str] = dict(known)
    above: dict[str, list[str]] = {}
    level = [commit]
    while level and len(above) <= _FAR:
        below: list[str] = []
        for oid, read in zip(level, objects.read(level, None), strict=True):
            text = read[1] if read is not None and read[0] == "commit" else b""
            trees[oid] = text[5 : text.find(b"\n")].decode("ascii", "replace") if text.startswith(b"tree ") else ""
            above[oid] = _parents(text) if oid.encode("ascii") not in cut else []
            below += above[oid]
        level = [oid for oid in dict.fromkeys(below) if oid not in trees]
    if level:
        return set()
    found = set(above)
    for oid, parent in above.items():
        new, old = trees[oid], trees[parent[0]] if parent else ""
        if oid != commit and ids.is_oid(new):
            found |= _came(objects, old, new, repository.object_format) or set()
        if len(found) > _MOST:
            return set()
    return found


def _parents(text: bytes) -> list[str]:
    try:
        return parents(text)
    except UnicodeDecodeError:  # it is damaged, and among the objects that are looked at
        return []


def _suspects(repository: Repository, oids: set[str]) -> set[str]:
    missing = oids.difference(repository.cat_file.known(sorted(oids)))
    return missing | _spoiled(repository, oids - missing)


def _empty(repository: Repository) -> set[str]:
    from gitckpt.git.damage import integrity  # threads and hashes: not where few objects came

    return set(integrity.empty(repository))


def _came(objects: Objects, old: str, new: str, object_format: str) -> set[str] | None:
    """Returns the objects of a tree that another one has not at the same place; None where they are too many."""
    found = {new}
    level = {(old, new)}
    while level:
        oids = sorted({oid for pair in level for oid in pair if oid})
        trees = {oid: _entries(read, object_format) for oid, read in zip(oids, objects.read(oids, None), strict=True)}
        below = set()
        for before, after in level:
            had = trees.get(before, {})
            for name, (mode, raw) in trees[after].items():
                other = had.get(name, (b"", b""))
                if mode == GITLINK or other == (mode, raw):
                    continue
                found.add(raw.hex())
                if mode == DIRECTORY:
                    below.add((other[1].hex() if other[0] == DIRECTORY else "", raw.hex()))
        if len(found) > _MOST:
            return None
        level = below
    return found


def _entries(read: tuple[str, bytes] | None, object_format: str) -> dict[bytes, tuple[bytes, bytes]]:
    """Returns mode and raw oid of each name; nothing of what cannot be read, which is itself among the objects that are looked at."""
    try:
        return listed(read[1], object_format) if read is not None and read[0] == "tree" else {}
    except MalformedTree:
        return {}


def _spoiled(repository: Repository, oids: Iterable[str]) -> set[str]:
    """Returns those of some objects whose file does not hold what it should; none where the files are many, or large."""
    loose: dict[str, int] = {}
    for oid in oids:
        try:
            loose[oid] = os.stat(file_of(repository, oid)).st_size
        except OSError:
            continue
    if len(loose) > _FEW or sum(loose.values()) > _SMALL:
        return set()
    return {oid for oid in loose if not _is_sound(file_of(repository, oid), oid, repository.object_format)}


def _is_sound(path: str, oid: str, object_format: str) -> bool:
    """Tells whether a file holds an object; one that a gc has packed meanwhile is looked at by git."""
    digest, stream = object_hash(object_format, b""), zlib.decompressobj()
    try:
        with open(path, "rb") as file:
            data = file.read()
        part = stream.decompress(data, _CHUNK)
        while part:
            digest.update(part)
            part = stream.decompress(stream.unconsumed_tail, _CHUNK)
    except (OSError, zlib.error):
        return False
    return stream.eof and digest.hexdigest() == oid


def _read(repository: Repository) -> list[tuple[str, str]]:
    """Returns commits that were found whole, each with its tree, the last one first."""
    try:
        with open(os.path.join(repository.private_dir, FILE), encoding="ascii", errors="replace", opener=premises.create) as file:
            lines = [line.split() for line in file.read().splitlines()]
    except OSError:
        return []
    return [(line[0], line[1]) for line in lines if len(line) == 2 and ids.is_oid(line[0]) and ids.is_oid(line[1])]  # else a cut left it


def _write(repository: Repository, known: list[tuple[str, str]]) -> None:
    try:
        with open(os.path.join(repository.make_private_dir(), FILE), "w", encoding="ascii", opener=premises.create) as file:
            file.write("".join(f"{commit} {tree}\n" for commit, tree in known))
    except OSError:
        pass  # derived: without it, the next save looks again
