"""Files that nothing converts, written as blobs and trees without git, which would read and write the whole index for them, twice.

Where it lists 40,000 files, `update-index` and `write-tree` take 20 ms each for 20 changed ones, and this takes 5. All that is not plain is
left to git: what it converts, refuses, or takes otherwise than the file system has it.
"""

from __future__ import annotations

import os
import re
import stat

from gitckpt.git.files import regular
from gitckpt.git.objects.diff import listed
from gitckpt.git.objects.encoding import DIRECTORY, EXECUTABLE, FILE, GITLINK, LINK, MalformedTree, encode_raw, object_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gitckpt.git.objects.port import Item, Objects
    from gitckpt.git.repository import Repository

    Listed = dict[bytes, tuple[bytes, bytes]]
    Edits = Mapping[bytes, tuple[bytes, bytes] | None]

_LARGEST = 1 << 20
_LARGEST_TOGETHER = 16 << 20
"""In bytes: what is held in memory at once. A larger tree takes Python longer than git needs for the index."""

_REFUSABLE = re.compile(rb"[^ -~]|(^|/)\.git|[~:\\]", re.IGNORECASE)
"""What git may refuse to put into an index; a name that is in one it has taken."""


class _NotPlain(Exception):
    """Something is for git to look at."""


class TreeWriter:
    """Writes the files of a worktree.

    Args:
        repository: seen from the worktree.
        objects: of its repository.

    Attributes:
        contents: what was read of the regular files, by path.
    """

    def __init__(self, repository: Repository, objects: Objects) -> None:
        self._repository = repository
        self._top = os.fsencode(repository.worktree or "")
        self._objects = objects
        self._format = repository.object_format
        self._items: dict[str, Item] = {}
        self.contents: dict[bytes, bytes] = {}

    @property
    def oids(self) -> Collection[str]:
        """The objects that the tree has and the one that it differs from may lack. Whoever keeps them keeps no content."""
        return frozenset(self._items)

    def tree(self, base: str, gone: Collection[bytes], paths: Collection[bytes], new: Collection[bytes]) -> str | None:
        """Returns a tree with the files as they are; None where something is for git to look at: then nothing was written.

        Args:
            base: oid of the tree that they differ from.
            gone: paths in it that have no file any more.
            paths: those of the files that it lacks, or has otherwise.
            new: those of them that no index lists: git may not take their names.

        Raises:
            GitError: git cannot write.
        """
        if any(_REFUSABLE.search(path) for path in new) or any(b"\n" in path for path in paths):
            return None
        try:
            entries = self._read(paths)
            found = self._edited(base, {**dict.fromkeys(gone), **entries})
        except (_NotPlain, MalformedTree, OSError):
            return None
        if self._is_something_damaged():
            return None
        self._objects.write(list(self._items.values()), flushed=False)
        return found

    def _is_something_damaged(self) -> bool:
        """Tells whether a blob that is to be written is there, and cannot be read: git and `repair` see to it, and say so.

        Trees are not looked for: where one in a pack is damaged, git reads the one that is written beside it.
        """
        packed = []
        for oid, (kind, _) in self._items.items():
            if kind != "blob":
                continue
            try:
                if not os.stat(os.path.join(self._repository.common_dir, "objects", oid[:2], oid[2:])).st_size:
                    return True
            except FileNotFoundError:
                packed.append(oid)
        return any(found is None for found in self._objects.read(self._repository.cat_file.known(packed), None))

    def _read(self, paths: Iterable[bytes]) -> Listed:
        """Returns mode and oid of each file."""
        entries = {}
        left = _LARGEST_TOGETHER
        directories = {b""}
        for path in paths:
            self._require_no_link(os.path.dirname(path), directories)
            whole = os.path.join(self._top, path)
            status = os.lstat(whole)
            if stat.S_ISLNK(status.st_mode):
                mode, data = LINK, os.readlink(whole)
            else:
                mode = EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE
                data = self.contents[path] = regular.content(whole, min(left, _LARGEST), follow=False)
            left -= len(data)
            entries[path] = (mode, self._put("blob", data))
        return entries

    def _require_no_link(self, directory: bytes, known: set[bytes]) -> None:
        """Raises `_NotPlain` where a directory is a link by now, or one above it: what lies behind it is not of this worktree."""
        while directory not in known:
            if not stat.S_ISDIR(os.lstat(os.path.join(self._top, directory)).st_mode):
                raise _NotPlain(directory)
            known.add(directory)
            directory = os.path.dirname(directory)

    def _edited(self, base: str, changes: Edits) -> str:
        """Returns a tree with some entries removed or set; each level of directories is read in one go."""
        names: dict[bytes, set[bytes]] = {b"": set()}
        for path in changes:
            rest = path
            while rest:
                above, _, name = rest.rpartition(b"/")
                if name in names.setdefault(above, set()):
                    break
                names[above].add(name)
                rest = above
        trees: dict[bytes, Listed] = {}
        level = {b"": base}
        while level:
            for (directory, oid), found in zip(level.items(), self._objects.read(list(level.values()), _LARGEST), strict=True):
                if found is None or found[0] != "tree":
                    raise _NotPlain(oid)
                trees[directory] = listed(found[1], self._format)
            level = {
                path: trees[directory][name][1].hex()
                for directory in level
                for name in names[directory]
                if (path := _joined(directory, name)) in names and trees[directory].get(name, (b"",))[0] == DIRECTORY
            }
        return (self._built(b"", names, trees, changes) or self._put("tree", b"")).hex()

    def _built(self, directory: bytes, names: Mapping[bytes, set[bytes]], trees: Mapping[bytes, Listed], changes: Edits) -> bytes | None:
        """Returns the new tree of a directory; None where nothing is left in it."""
        entries = dict(trees.get(directory, {}))
        for name in names[directory]:
            path = _joined(directory, name)
            if entries.get(name, (b"",))[0] == GITLINK:
                raise _NotPlain(path)
            below = self._built(path, names, trees, changes) if path in names else None
            made = changes.get(path)
            if below is not None and made is not None:  # a file and a directory at once: something changes under our eyes
                raise _NotPlain(path)
            if below is not None:
                made = (DIRECTORY, below)
            if made is not None:
                entries[name] = made
            elif path in names or path in changes:
                entries.pop(name, None)
        return self._put("tree", encode_raw(entries)) if entries else None

    def _put(self, kind: str, data: bytes) -> bytes:
        oid = object_id(kind, data, self._format)
        self._items[oid] = (kind, data)
        return bytes.fromhex(oid)


def _joined(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name
