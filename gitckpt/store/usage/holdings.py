"""Measure objects that only some refs hold, by a few walks of git, and files on the disk.

Nothing is fetched, no link is followed, and what is missing counts for nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence

from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository

_NO_FETCH = {"GIT_FLUSH": "0"}
_WALK = ("rev-list", "--objects", "--no-object-names", "--missing=allow-any", "--ignore-missing")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Holding:
    """An object that is there.

    Attributes:
        kind: "blob", "tree", "commit" or "tag".
        size: what it takes on the disk, in bytes; of a pack, its own part.
        is_loose: whether it has a file of its own.
    """

    kind: str
    size: int
    is_loose: bool


@dataclass(frozen=True, slots=True)
class Holdings:
    """What some refs hold that no other does.

    Attributes:
        objects: the oids, for each lot of roots; what several lots lead to is in the first of them.
        is_complete: whether git could walk all there is; where an object is damaged, it cannot.
    """

    objects: Sequence[set[str]]
    is_complete: bool


def held_only_by(repository: Repository, lots: Sequence[Collection[str]], spaces: Sequence[str], others: Collection[str]) -> Holdings:
    """Returns the objects that some roots lead to, and no other ref and no HEAD of a worktree does.

    Args:
        lots: oids of the roots, in lots.
        spaces: what the refs of the roots are, or are below, such as "refs/notes/x": no ref there counts as another one, …
        others: … but these oids do.
    """
    besides = [word for space in spaces for word in (f"--exclude={space}", f"--exclude={space}/*")] + ["--all"]
    known: set[str] = set()
    found = []
    is_complete = True
    for roots in lots:
        mine: set[str] = set()
        if roots:
            # This leaves out the history that the others have, and little else: git looks at no tree that only they lead to.
            revs = [*roots, *(f"^{oid}" for oid in others)]
            walk = _Walk(repository, [*_WALK, "--not", *besides, "--not", "--stdin"], revs)
            mine.update(oid.decode("ascii") for oid in walk)
            is_complete = is_complete and walk.is_complete
        found.append(mine - known)
        known |= mine
    if known:
        # A bitmap, where there is one, has the answer ready.
        walk = _Walk(repository, [*_WALK, "--use-bitmap-index", *besides, "--stdin"], others)
        for oid in walk:
            text = oid.decode("ascii")
            if text in known:
                for mine in found:
                    mine.discard(text)
        is_complete = is_complete and walk.is_complete
    return Holdings(found, is_complete)


def look_up(repository: Repository, oids: Collection[str]) -> dict[str, Holding]:
    """Returns what there is to know of objects; those that are missing are left out.

    Args:
        oids: of the objects.
    """
    if not oids:
        return {}
    data = "".join(f"{oid}\n" for oid in sorted(oids)).encode("ascii")
    words = ("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize:disk)", "--buffer")
    place = os.path.join(repository.common_dir, "objects")
    found = {}
    for line in repository.git.run(*words, data=data, env=_NO_FETCH).out.decode("ascii", "replace").splitlines():
        oid, _, rest = line.partition(" ")
        kind, _, size = rest.partition(" ")
        if size.isdigit():
            blocks = _blocks(os.path.join(place, oid[:2], oid[2:]))
            found[oid] = Holding(kind, int(size) if blocks is None else blocks, is_loose=blocks is not None)
    return found


def _blocks(path: str) -> int | None:
    """Returns what a file takes on the disk, in bytes; None where there is none."""
    try:
        return os.lstat(path).st_blocks * 512
    except OSError:
        return None


class _Walk:
    """The oids that a `git rev-list` prints, as they come: there may be millions.

    Attributes:
        is_complete: whether it came to its end; known once all were taken.
    """

    def __init__(self, repository: Repository, words: Sequence[str], revs: Collection[str]) -> None:
        self._git = repository.git
        self._words = words
        self._data = "".join(f"{rev}\n" for rev in revs).encode("ascii")
        self.is_complete = False

    def __iter__(self) -> Iterator[bytes]:
        child = self._git.start(*self._words, env=_NO_FETCH)
        try:
            child.feed(self._data)
            rest = b""
            while chunk := child.receive(_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
            self.is_complete = child.close() == 0
        finally:
            child.stop()


class Measure:
    """Counts files, each once, however many names it has and however many directories are measured.

    Args:
        apart: absolute paths that are counted elsewhere, with all beneath them.
    """

    def __init__(self, apart: Collection[str] = ()) -> None:
        self._apart = frozenset(apart)
        self._seen: set[tuple[int, int]] = set()

    def of(self, path: str) -> tuple[int, int]:
        """Returns how many files are at or below a path, and what they take on the disk, in bytes, with the directories they are in.

        What vanishes meanwhile, or may not be looked into, counts for nothing. A link is counted, and not followed.

        Args:
            path: absolute; it counts though it is set apart.
        """
        files, size = self._one(path)
        waiting = [path] if os.path.isdir(path) and not os.path.islink(path) else []
        while waiting:
            try:
                with os.scandir(waiting.pop()) as listing:
                    entries = list(listing)
            except OSError:
                continue
            for entry in entries:
                if entry.path in self._apart:
                    continue
                more, bytes_ = self._one(entry.path)
                files, size = files + more, size + bytes_
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
        return files, size

    def _one(self, path: str) -> tuple[int, int]:
        try:
            status = os.lstat(path)
        except OSError:
            return 0, 0
        is_directory = stat.S_ISDIR(status.st_mode)
        if status.st_nlink > 1 and not is_directory:
            key = status.st_dev, status.st_ino
            if key in self._seen:
                return 0, 0
            self._seen.add(key)
        return int(not is_directory), status.st_blocks * 512
