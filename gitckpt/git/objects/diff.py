"""What differs between two trees, path by path (git-diff-tree(1), raw format)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.repository import Repository


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that differs. Modes are as in trees; where there is nothing, mode and oid are zeros."""

    status: str
    """A (added), D (deleted), M (modified) or T (its type changed)."""

    path: bytes
    old_mode: bytes
    new_mode: bytes
    old: str
    new: str

    @property
    def is_submodule(self) -> bool:
        """Whether it is a submodule before and after, or before or after: its content is its own."""
        return GITLINK in (self.old_mode, self.new_mode)

    @property
    def line(self) -> bytes:
        """The line for `PrivateIndex.put` that makes an index agree with the second tree."""
        return b"%s %s 0\t%s" % (self.new_mode.lstrip(b"0") or b"0", self.new.encode("ascii"), self.path)

    def __str__(self) -> str:
        return f"{self.status} {self.path.decode('utf-8', 'replace')}"


def differences(repository: Repository, old: str, new: str, paths: Iterable[bytes] = (), *, with_trees: bool = False) -> list[Difference]:
    """Returns what differs between two trees, sorted by path.

    Args:
        repository: where.
        old: a tree.
        new: another one.
        paths: files or directories to look at, literally; none, or the empty one for the top, for all.
        with_trees: whether the directories that differ are returned as well.

    Raises:
        GitError: a tree is missing.
    """
    if old == new:
        return []
    options = ("-r", *(["-t"] if with_trees else []), "--raw", "-z", "--no-renames", "--no-abbrev", "--ignore-submodules=none")
    wanted = [path.decode("utf-8", "surrogateescape") for path in paths]
    if "" in wanted:
        wanted = []
    out = repository.git.run("--literal-pathspecs", "diff-tree", *options, old, new, "--", *wanted).out
    records = out.split(b"\0")[:-1]
    found = []
    for head, path in zip(records[::2], records[1::2], strict=True):
        old_mode, new_mode, before, after, status = head[1:].split(b" ")
        found.append(Difference(status.decode("ascii"), path, old_mode, new_mode, before.decode("ascii"), after.decode("ascii")))
    return found


def present(repository: Repository, tree: str, paths: Iterable[bytes]) -> set[bytes]:
    """Returns the files of a tree that have one of the paths, or are in a directory that has.

    Args:
        repository: where.
        tree: its oid.
        paths: one at least, literally.
    """
    wanted = [path.decode("utf-8", "surrogateescape") for path in paths]
    return set(repository.git.run("--literal-pathspecs", "ls-tree", "-r", "--name-only", "-z", tree, "--", *wanted).out.split(b"\0")[:-1])
