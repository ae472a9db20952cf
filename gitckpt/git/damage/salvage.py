"""Where the content of damaged and missing objects still is (in worktrees, and in other object stores), and how it gets back."""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType

from gitckpt.git import config
from gitckpt.git.damage import integrity
from gitckpt.git.files import premises
from gitckpt.git.objects import pack
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


_SNAPSHOT = re.compile(rb"^(files|raw|index/[0-3])/")
"""What the paths of a worktree stand behind in the tree of a snapshot."""


class Salvage:
    """Objects made anew beside the repository, to be put into it. A context manager; what was not put is gone at its end.

    Args:
        repository: where they belong.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._scratch = repository.scratch("objects")
        self._origins: dict[str, str] = {}

    def __enter__(self) -> Self:
        os.mkdir(self._scratch)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        premises.discard(self._scratch)

    def find(self, wanted: Collection[str], paths: Mapping[str, Collection[bytes]]) -> dict[str, str]:
        """Returns where objects were found that are damaged or missing here, in words, by oid; `put` puts them back.

        Args:
            wanted: their oids.
            paths: of files that had the content of some of them.
        """
        left = set(wanted)
        for repository in _worktrees(self._repository) if left else ():
            left -= self.find_in_files(repository, {oid: paths.get(oid, ()) for oid in left})
            left -= self.find_in_index(repository, left, os.path.join(repository.git_dir, "index"))
        for place in self._other_stores() if left else ():
            left -= self._find_in_store(place, sorted(left))
        return {oid: origin for oid, origin in self._origins.items() if oid in wanted}

    def find_in_files(self, repository: Repository, paths: Mapping[str, Collection[bytes]]) -> set[str]:
        """Looks for blobs among the files of one worktree, by paths that may hold them, and by what its index says.

        Args:
            repository: seen from that worktree.
            paths: relative to its top, by oid; one that cannot be guessed has none.

        Returns:
            The oids of those that were found.
        """
        found: set[str] = set()
        listed = _indexed(repository, paths)
        for oid, named in paths.items():
            for path in dict.fromkeys([*named, *(_SNAPSHOT.sub(b"", path) for path in named), *listed.get(oid, ())]):
                whole = os.path.join(os.fsencode(repository.worktree or ""), path)
                if os.path.lexists(whole) and oid in self._made_of(repository, path, whole):
                    self._origins[oid] = os.fsdecode(whole)
                    found.add(oid)
                    break
        return found

    def find_in_index(self, repository: Repository, wanted: Collection[str], original: str) -> set[str]:
        """Looks for the trees that an index stands for: git makes them anew, of a copy, as it would write to the index.

        Args:
            repository: seen from the worktree that the index is of.
            wanted: their oids.
            original: path of the index.

        Returns:
            The oids of those that were found.
        """
        copy = os.path.join(self._scratch, "index")
        if not os.path.isfile(original):
            return set()
        shutil.copyfile(original, copy)
        env = {"GIT_INDEX_FILE": copy, "GIT_OBJECT_DIRECTORY": self._scratch}
        repository.git.run("-c", "core.splitIndex=false", "write-tree", "--missing-ok", env=env, ok=(0, 128))
        found = {oid for oid in wanted if os.path.exists(self._path(oid))}
        self._origins.update(dict.fromkeys(found, original))
        return found

    def add(self, kind: str, data: bytes) -> str:
        """Makes an object of which the content is known, and returns its oid."""
        oid = object_id(kind, data, self._repository.object_format)
        path = self._path(oid)
        if os.path.exists(path):  # git made it, and lets nobody write to it
            return oid
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(zlib.compress(b"%s %d\0" % (kind.encode("ascii"), len(data)) + data))
        return oid

    def put(self, oid: str) -> None:
        """Puts an object that was found or added into the repository, in the place of what may be there, flushed to the disk.

        Raises:
            GitError: it could not be written.
        """
        target = os.path.join(self._repository.common_dir, "objects", oid[:2], oid[2:])
        try:
            if not os.path.isdir(os.path.dirname(target)):
                os.mkdir(os.path.dirname(target))
                shutil.copymode(os.path.join(self._repository.common_dir, "objects"), os.path.dirname(target))
            pack.put_file(target, self._path(oid))
        except OSError as error:
            raise GitError(["write"], 1, f"{error.filename or target}: {error.strerror}") from None

    def _path(self, oid: str) -> str:
        return os.path.join(self._scratch, oid[:2], oid[2:])

    def _made_of(self, repository: Repository, path: bytes, whole: bytes) -> set[str]:
        """Returns the oids of what git makes of a file: as it would be added, and as it is."""
        if os.path.islink(whole):
            return {self.add("blob", os.readlink(whole))}
        if not os.path.isfile(whole):
            return set()
        try:
            with open(whole, "rb") as file:
                data = file.read()
        except OSError:
            return set()
        # Filters see the name; with the worktree's own attributes, as for `git add`.
        words = ("-c", "core.safecrlf=false", "hash-object", "-w", "--stdin", f"--path={os.fsdecode(path)}")
        done = repository.git.run(*words, data=data, env={"GIT_OBJECT_DIRECTORY": self._scratch}, ok=(0, 1, 128))
        made = {self.add("blob", data)}
        return {*made, done.out.decode("ascii").strip()} if done.code == 0 else made

    def _other_stores(self) -> list[str]:
        """Returns the object directories of repositories on this machine that know ours: those it borrows from, and its remotes."""
        urls = [url for said in config.read(self._repository, r"^remote\..*\.url$").values() for url in said]
        top = self._repository.worktree or self._repository.common_dir
        paths = [os.path.join(top, url.removeprefix("file://")) for url in urls]
        below = [os.path.join(path, name, "objects") for path in paths for name in ("", ".git")]
        own, *borrowed = integrity.stores(self._repository)
        return [place for place in dict.fromkeys([*borrowed, *below]) if os.path.isdir(place) and not os.path.samefile(place, own)]

    def _find_in_store(self, place: str, oids: Sequence[str]) -> set[str]:
        found = set()
        for oid in oids:  # one by one: git ends at what is damaged there as well
            env = {"GIT_OBJECT_DIRECTORY": place}
            out = self._repository.git.run("cat-file", "--batch", data=f"{oid}\n".encode("ascii"), env=env, ok=(0, 128)).out
            head, _, rest = out.partition(b"\n")
            words = head.decode("ascii", "replace").split(" ")
            if len(words) == 3 and words[1] != "missing" and self.add(words[1], rest[:-1]) == oid:
                self._origins[oid] = place
                found.add(oid)
        return found


def put_aside(repository: Repository, oid: str) -> str | None:
    """Takes what is left of a damaged object out of git's way, so that git can write it anew.

    Args:
        oid: of an object that git cannot read.

    Returns:
        Where it is now; None where it is not in a file of its own, of this repository.

    Raises:
        GitError: it cannot be moved.
    """
    path = os.path.join(repository.common_dir, "objects", oid[:2], oid[2:])
    target = os.path.join(repository.make_private_dir(), "damaged", oid)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.replace(path, target)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GitError(["prune"], 1, f"{path}: {error.strerror}") from None
    return target


def remove_empty(path: str) -> None:
    """Removes the file of an object that is of length zero, and so holds nothing; git can then write or fetch the object anew.

    Raises:
        GitError: it cannot be removed.
    """
    try:
        if not os.stat(path).st_size:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise GitError(["prune"], 1, f"{path}: {error.strerror}") from None


def _worktrees(repository: Repository) -> Iterable[Repository]:
    """Yields the repository as seen from each of its worktrees, this one first."""
    main = administration.main_worktree(repository)
    seen = [repository] if repository.worktree is not None else []
    if main is not None and os.path.isdir(main) and main != repository.worktree:
        seen.append(Repository(repository.common_dir, main, repository.object_format))
    for git_dir, path in administration.registered(repository):
        if os.path.isdir(path) and path != repository.worktree:
            seen.append(Repository(git_dir, path, repository.object_format))
    return seen


def _indexed(repository: Repository, wanted: Collection[str]) -> dict[str, list[bytes]]:
    """Returns the paths that the index of a worktree has for some blobs."""
    found: dict[str, list[bytes]] = {}
    done = repository.git.run("ls-files", "--stage", "-z", ok=(0, 128))
    for entry in done.out.split(b"\0")[:-1]:
        fields, _, path = entry.partition(b"\t")
        oid = fields.split(b" ")[1].decode("ascii")
        if oid in wanted:
            found.setdefault(oid, []).append(path)
    return found
