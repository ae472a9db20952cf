"""What an operation is: where it is done, how it ended, and what has been acknowledged by then."""

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
    """Where an operation is done.

    Attributes:
        top: a directory with nothing else in it.
        env: for all that is started.
    """

    top: Path
    env: dict[str, str]

    @property
    def project(self) -> Path:
        """The repository."""
        return self.top / "project"

    @property
    def beside(self) -> Path:
        """What lies beside it, and no fault touches: `$BESIDE`."""
        return self.top / "beside"

    @property
    def run(self) -> Path:
        """The worktree of the run that is meant: the file `path` beside it says where."""
        return self.project / (self.beside / "path").read_text().strip()

    def git(self, *args: str, data: bytes = b"") -> bytes:
        """Returns what git says here; fails where it fails."""
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
    """How an operation ended.

    Attributes:
        code: the exit code, negative for a signal; None where it was killed with all it had started.
    """

    code: int | None
    out: str
    err: str


@dataclass
class Acknowledged:
    """What may be relied on from now on.

    Attributes:
        there: checkpoint → its files, byte for byte; None where they are not known.
        gone: checkpoints that are not to come back.
        states: checkpoint → the JSON of its state.
        commits: that have a checkpoint.
    """

    there: dict[str, Files | None] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    states: dict[str, str] = field(default_factory=dict)
    commits: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    """What it said that it had done, and has not."""


@dataclass(frozen=True)
class Operation:
    """Something that gitckpt does to a repository in which there is something of everything.

    Attributes:
        name: what it is called.
        argv: the program. `@ID` stands for the checkpoint whose id is in the file `id` beside the repository.
        before: a shell script that has come to its end before.
        promised: what is acknowledged by how it ended.
        changes: which parts of a view it may change, to what they are after an undisturbed one.
        again: completes it after an interruption; by default nothing does.
        again_codes: how that may end: where there is nothing to go on with, too.
        ends_alike: whether all that is the user's own is then what it is after an undisturbed one.
        begins_damaged: whether it mends what was damaged before.
        is_report: whether it prints what is wrong, and ends with 1 if that stays so.
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
        """Returns words of a command line with the checkpoint that is meant."""
        named = place.beside / "id"
        checkpoint = named.read_text().strip() if named.exists() else ""
        return [
            checkpoint if word == "@ID" else word.replace("@BESIDE", str(place.beside))
            for word in words
        ]

    def command(self, place: Place) -> list[str]:
        """Returns the program to start."""
        return self.named(place, self.argv)


def snapshot(place: Place, checkpoint: str) -> Files | None:
    """Returns the files of a checkpoint, as git alone reads them; None where it has no tree of its own."""
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
    """Returns the files of all checkpoints that have a tree of their own."""
    named = (
        place.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/ckpt/trees")
        .decode()
        .split()
    )
    return [files for name in named if (files := snapshot(place, name)) is not None]
