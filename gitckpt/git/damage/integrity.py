"""Which objects are damaged: those of length zero and of packs that are cut off, at a look; all others, by reading everything."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence

from gitckpt.git.command import LEAN, STREAMED
from gitckpt.git.files import regular
from gitckpt.git.filesystem import names_in
from gitckpt.git.graph import kinds, partial
from gitckpt.git.objects import alternates
from gitckpt.git.objects.encoding import oid_size
from gitckpt.git.process import Child
from gitckpt.git.repository import Repository
from gitckpt.model.values import dataclass

_HEX = frozenset("0123456789abcdef")
_CHUNK = 1 << 20
_EVERY = 1000

Counted = Callable[[int, int], None]
"""Is told how many objects were read, and of how many."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with the files that objects lie in.

    Attributes:
        empty: path of each file of length zero that should hold one object, by its oid.
        packs: what is wrong with each pack that git cannot use, by its path.
        lost: the oids of what git cannot read.
    """

    empty: dict[str, str]
    packs: dict[str, str]
    lost: frozenset[str]


def look(repository: Repository) -> Damage:
    """Returns what can be seen without reading contents."""
    places = [place for place in stores(repository) if os.path.isdir(place)]
    found = empty(repository)
    packs: dict[str, str] = {}
    listed: set[str] = set(found)
    for place in places:
        for path, sentence in _bad_packs(os.path.join(place, "pack"), repository.object_format):
            packs[path] = sentence
            listed |= _listed(repository, path)
    return Damage(found, packs, frozenset(_missing(repository, listed)))


def empty(repository: Repository) -> dict[str, str]:
    """Returns the path of each file of length zero that should hold one object, by its oid."""
    places = [place for place in stores(repository) if os.path.isdir(place)]
    return {oid: path for place in reversed(places) for oid, path in _empty(place)}


def damaged(repository: Repository, oids: Collection[str] | None = None, progress: Counted | None = None) -> set[str]:
    """Reads objects, and returns those whose content is not what their oid says, or is not there. Nothing is fetched.

    Of an object that is there twice, the copy counts that git reads.

    Args:
        oids: what is read, where in a partial clone what is not there is no damage; None for all that is there, as it lies there.
        progress: told now and then.
    """
    if oids is not None:
        lost = _unreadable(repository, [oid.encode("ascii") for oid in oids], progress)
        return lost & present(repository) if lost and partial.promisor(repository) is not None else lost
    found = _unreadable(repository, _present(repository), progress)
    # What a gc has deleted since it was listed is no damage.
    return damaged(repository, found & present(repository)) if found else found


def present(repository: Repository) -> set[str]:
    """Returns all objects that there is a file or an entry in a pack for, damaged or not."""
    return {oid.decode("ascii") for oid in _present(repository)}


def _present(repository: Repository) -> list[bytes]:
    words = ("cat-file", "--batch-all-objects", "--unordered", "--buffer", "--batch-check=%(objectname)")
    return repository.git.run(*words).out.split()


def _unreadable(repository: Repository, oids: Sequence[bytes], progress: Counted | None = None) -> set[str]:
    found: set[str] = set()
    at = 0
    while at < len(oids):
        for oid, is_whole in _Reading(repository, oids[at:]).results():
            at += 1
            if not is_whole:
                found.add(oid)
            if progress is not None and (at % _EVERY == 0 or at == len(oids)):
                progress(at, len(oids))
    return found


def unneeded(repository: Repository, oids: Collection[str]) -> set[str]:
    """Returns those of some objects that git would delete sooner or later: no ref, reflog or index of any worktree leads to them.

    Where git cannot walk all that these lead to, none: what cannot be read may need them.
    """
    left = set(oids)

    def take(lines: list[bytes]) -> None:
        left.difference_update(line[: line.find(b" ")].decode("ascii") if b" " in line else line.decode("ascii") for line in lines)

    words = ("rev-list", "--objects", "--all", "--reflog", "--indexed-objects")
    done = repository.git.each_line(*LEAN, *words, take=take, ok=(0, 1, 128)) if left else None
    return left if done is not None and done.code == 0 else set()


def stores(repository: Repository) -> list[str]:
    """Returns the directories that objects are read from: the repository's own, then those that it borrows from (`info/alternates`)."""
    return alternates.stores(os.path.join(repository.common_dir, "objects"))


class _Reading:
    """One `git cat-file` that reads objects until it meets a damaged one, at which git ends."""

    def __init__(self, repository: Repository, oids: Sequence[bytes]) -> None:
        self._oids = oids
        self._new_hash = hashlib.sha256 if repository.object_format == "sha256" else hashlib.sha1
        self._child: Child = repository.git.start(*STREAMED, "cat-file", "--batch", "--buffer")
        self._data = b""
        self._at = 0

    def results(self) -> Iterator[tuple[str, bool]]:
        """Yields each oid with whether it is whole, in order; the last one is damaged unless there is no more."""
        feeding = threading.Thread(target=self._child.feed, args=(b"\n".join(self._oids) + b"\n",))
        feeding.start()
        try:
            for oid in self._oids:
                is_whole = self._read(oid)
                yield oid.decode("ascii"), bool(is_whole)
                if is_whole is None:
                    return
        finally:
            self._child.terminate()
            feeding.join()
            self._child.close()

    def _read(self, oid: bytes) -> bool | None:
        """Tells whether the next object is whole; None where git has ended."""
        line = self._line()
        if line is None:
            return None
        words = line.split(b" ")
        if len(words) != 3 or words[0] != oid:
            return False  # "missing": the file is there, and holds none
        digest = self._new_hash(b"%s %s\0" % (words[1], words[2]))
        left = int(words[2])
        while True:
            part = memoryview(self._data)[self._at : self._at + left]
            digest.update(part)
            self._at += len(part)
            left -= len(part)
            if not left:
                break
            if not self._more():
                return None
        if self._at == len(self._data) and not self._more():
            return None
        self._at += 1
        return digest.hexdigest().encode("ascii") == oid

    def _line(self) -> bytes | None:
        while (end := self._data.find(b"\n", self._at)) < 0:
            if not self._more():
                return None
        line = self._data[self._at : end]
        self._at = end + 1
        return line

    def _more(self) -> bool:
        chunk = self._child.receive(_CHUNK)
        self._data = self._data[self._at :] + chunk
        self._at = 0
        return bool(chunk)


def _empty(place: str) -> Iterator[tuple[str, str]]:
    """Yields oid and path of each loose object of length zero."""
    with os.scandir(place) as directories:
        names = [entry.name for entry in directories if len(entry.name) == 2 and _HEX.issuperset(entry.name)]
    for name in names:
        try:
            with os.scandir(os.path.join(place, name)) as files:
                for file in files:
                    if len(file.name) in (38, 62) and _HEX.issuperset(file.name) and not file.stat(follow_symlinks=False).st_size:
                        yield name + file.name, file.path
        except (FileNotFoundError, NotADirectoryError):  # a gc has come
            continue


def _bad_packs(directory: str, object_format: str) -> Iterator[tuple[str, str]]:
    """Yields path and sentence for each pack that git cannot use as a whole."""
    size = oid_size(object_format)
    for name in names_in(directory):
        stem, ending = os.path.splitext(os.path.join(directory, name))
        try:
            if ending == ".idx":
                pack, index = regular.tail(f"{stem}.pack", size), regular.tail(f"{stem}.idx", 2 * size)
                if len(index) < 2 * size:
                    yield f"{stem}.idx", "is cut off"
                elif pack != index[:size]:
                    yield f"{stem}.pack", "is cut off, or not the one that its index describes"
        except FileNotFoundError:  # repacked meanwhile, or nobody's
            continue


def _listed(repository: Repository, path: str) -> set[str]:
    """Returns the objects of a pack by its index; none where that is cut off."""
    if path.endswith(".idx"):
        return set()
    with open(f"{path.removesuffix('.pack')}.idx", "rb") as file:
        done = repository.git.run("show-index", f"--object-format={repository.object_format}", data=file.read(), ok=(0, 128))
    return {line.split(b" ")[1].decode("ascii") for line in done.out.splitlines()}


def _missing(repository: Repository, oids: Collection[str]) -> Iterator[str]:
    """Yields those of some objects that git finds nowhere."""
    yield from (oid for oid, kind in kinds.unlike(repository, sorted(oids), "blob").items() if kind is None) if oids else ()
