"""Define an operation, its place, its end, and its acknowledgments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.system.faults.view import Files, View

CKPT = (sys.executable, "-m", "gitckpt", "--quiet")


@dataclass(frozen=True)
class Place:
    """A directory in which an operation is done.

    Attributes:
        top: a directory with nothing else in it.
        env: the environment of every process.
    """

    top: Path
    env: dict[str, str]

    @property
    def project(self) -> Path:
        """The repository."""
        return self.top / "project"

    @property
    def beside(self) -> Path:
        """The directory beside the repository, untouched by faults: `$BESIDE`."""
        return self.top / "beside"

    @property
    def run(self) -> Path:
        """The worktree of the run, as the file `path` beside the repository names it."""
        return self.project / (self.beside / "path").read_text().strip()

    def git(self, *args: str, data: bytes = b"") -> bytes:
        """Return git's output in the repository; raise an error if it fails."""
        return subprocess.run(
            ["git", *args],
            cwd=self.project,
            env=self.env,
            input=data,
            capture_output=True,
            check=True,
        ).stdout


@dataclass(frozen=True)
class Ended:
    """The end of an operation.

    Attributes:
        code: the exit code, negative for a signal; None if all its processes were killed.
    """

    code: int | None
    out: str
    err: str


@dataclass
class Acknowledged:
    """What the user may rely on after an operation.

    Attributes:
        there: checkpoint → its files, byte for byte; None where they are not known.
        gone: checkpoints that must not come back.
        states: checkpoint → the JSON of its state.
        commits: commits that have a checkpoint.
    """

    there: dict[str, Files | None] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    states: dict[str, str] = field(default_factory=dict)
    commits: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    """Results that the operation reported, but did not reach."""


@dataclass(frozen=True)
class Operation:
    """A command of gitckpt in a repository that has some data of every kind.

    Attributes:
        name: its name on the command line.
        argv: the program. `@ID` is the checkpoint whose id is in the file `id` beside the
            repository.
        before: a shell script that ends before it.
        promised: returns the acknowledgments, from how it ended.
        changes: the parts of a view that it may change to those of an undisturbed one.
        again: completes it after an interruption; by default nothing does.
        again_codes: exit codes of that, also if there is nothing left to do.
        ends_alike: whether the user's own data is then the same as after an undisturbed one.
        begins_damaged: whether it repairs earlier damage.
        is_report: whether it prints damage, and ends with 1 if the damage stays.
    """

    name: str
    argv: Sequence[str]
    promised: Callable[[Place, Ended, View, View], Acknowledged]
    before: str = ""
    changes: frozenset[str] = frozenset()
    again: tuple[str, ...] = ()
    again_codes: tuple[int, ...] = (0,)
    ends_alike: bool = False
    begins_damaged: bool = False
    is_report: bool = False

    def named(self, place: Place, words: Sequence[str]) -> list[str]:
        """Return a command line with `@ID` replaced by the checkpoint's id."""
        named = place.beside / "id"
        checkpoint = named.read_text().strip() if named.exists() else ""
        return [
            checkpoint if word == "@ID" else word.replace("@BESIDE", str(place.beside))
            for word in words
        ]

    def command(self, place: Place) -> list[str]:
        """Return the program to start."""
        return self.named(place, self.argv)


def snapshot(place: Place, checkpoint: str) -> Files | None:
    """Return a checkpoint's files, read by git alone; None if it has no own tree."""
    tree = subprocess.run(
        ["git", "ls-tree", "-r", "-z", "--full-tree", f"refs/ckpt/trees/{checkpoint}:files"],
        cwd=place.project,
        env=place.env,
        capture_output=True,
        check=False,
    )
    if tree.returncode:
        return None
    entries = [line.split(b"\t", 1) for line in tree.stdout.split(b"\0") if line]
    heads = [head.split() for head, _ in entries]
    read = place.git("cat-file", "--batch", data=b"".join(oid + b"\n" for _, _, oid in heads))
    files: Files = {}
    for (_, name), (mode, _, _) in zip(entries, heads, strict=True):
        head, _, read = read.partition(b"\n")
        if head.endswith(b" missing"):
            files[name.decode("utf-8", "surrogateescape")] = ("missing", b"")
            continue
        size = int(head.split()[2])
        files[name.decode("utf-8", "surrogateescape")] = (mode.decode(), read[:size])
        read = read[size + 1 :]
    return files


def snapshots(place: Place) -> list[Files]:
    """Return the files of all checkpoints that have a tree of their own."""
    named = (
        place.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/ckpt/trees")
        .decode()
        .split()
    )
    return [files for name in named if (files := snapshot(place, name)) is not None]
