"""Build snapshots that gitckpt never makes: invalid, endless, or too large trees."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable

from gitckpt.git.objects.encoding import DIRECTORY, FILE, encode_tree
from gitckpt.model import budget
from gitckpt.store.records import ref_names
from tests.conftest import Checkout
from tests.system.hostile.attacks import BAD
from tests.system.hostile.bombs import bad

Parts = dict[bytes, tuple[bytes, str]]
ENDLESS = "holds more than 10,000,000 paths, or too many nested directories"


class Maker:
    """Store objects that git need not find valid.

    Args:
        at: the repository.
    """

    def __init__(self, at: Checkout) -> None:
        self.at = at
        self.blob = at.git("hash-object", "-w", "--stdin", data="x")

    def raw(self, data: bytes) -> str:
        """Store a tree without checks, faster than `git hash-object --literally`.

        That would take 3,000 processes for as many levels.
        """
        content = b"tree %d\0%s" % (len(data), data)
        name = hashlib.sha1(content).hexdigest()
        place = self.at.main / ".git/objects" / name[:2]
        place.mkdir(exist_ok=True)
        if not (place / name[2:]).exists():
            (place / name[2:]).write_bytes(zlib.compress(content, 1))
        return name

    def tree(self, *entries: tuple[bytes, bytes, str]) -> str:
        """Return a tree with unchecked entries: mode, name, oid."""
        return self.raw(
            b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(oid)) for mode, name, oid in entries)
        )

    def nested(self, levels: int, *names: bytes) -> str:
        """Return nested trees; each contains the next one under each name."""
        below = (FILE, self.blob)
        for _ in range(levels):
            below = (DIRECTORY, self.raw(encode_tree(dict.fromkeys(names, below))))
        return below[1]

    def checkpoint(self, parts: Parts | str) -> None:
        """Make a checkpoint whose snapshot is a file and these parts, or this object."""
        if not isinstance(parts, str):
            parts = self.raw(
                encode_tree(
                    {b"files": (DIRECTORY, self.tree((FILE, b"README", self.blob)))} | parts
                )
            )
        self.at.git("update-ref", ref_names.TREES + BAD, parts)
        document = bad(
            f'[worktree]\ndirty = true\ntree = "{parts}"',
            git_sha=f'"{self.at.git("rev-parse", "HEAD")}"',
        )
        self.at.git(
            "update-ref",
            ref_names.CHECKPOINTS + BAD,
            self.at.git("hash-object", "-w", "--stdin", data=document),
        )


def _in(part: bytes, *entries: tuple[bytes, bytes]) -> Callable[[Maker], Parts]:
    """Return a function that makes a part of a snapshot from entries: mode and name."""
    return lambda make: {
        part: (DIRECTORY, make.tree(*((mode, name, make.blob) for mode, name in entries)))
    }


def _below(name: bytes) -> Callable[[Maker], Parts]:
    return lambda make: {
        b"files": (DIRECTORY, make.tree((DIRECTORY, name, make.tree((FILE, b"evil", make.blob)))))
    }


def _within(part: bytes, levels: int, *names: bytes) -> Callable[[Maker], Parts]:
    return lambda make: {part: (DIRECTORY, make.nested(levels, *names))}


def _in_operation(size: int) -> Callable[[Maker], Parts]:
    def make_it(make: Maker) -> Parts:
        blob = make.at.git("hash-object", "-w", "--stdin", data="x" * size)
        return {b"operation": (DIRECTORY, make.tree((FILE, b"MERGE_MSG", blob)))}

    return make_it


def _file_and_directory(make: Maker) -> Parts:
    return {
        b"operation": (
            DIRECTORY,
            make.tree(
                (FILE, b"a", make.blob), (DIRECTORY, b"a", make.tree((FILE, b"b", make.blob)))
            ),
        )
    }


TWO, MANY = (b"a", b"b"), tuple(b"%03d" % number for number in range(200))
OPERATION = (
    f"more than {budget.OPERATION.count:,} files, {budget.OPERATION.depth} nested directories"
)
ODD: dict[str, tuple[Callable[[Maker], Parts | str], str]] = {
    "3,000 directories within each other": (_within(b"files", 3000, b"d"), ENDLESS),
    "an operation 3,000 deep": (_within(b"operation", 3000, b"d"), ENDLESS),
    "files of a run 3,000 deep": (_within(b"run", 3000, b"d"), ENDLESS),
    "each directory twice": (_within(b"files", 60, *TWO), ENDLESS),
    "an operation, each directory twice": (_within(b"operation", 60, *TWO), ENDLESS),
    "an index, each directory twice": (
        lambda make: {b"index": (DIRECTORY, make.tree((DIRECTORY, b"0", make.nested(60, *TWO))))},
        ENDLESS,
    ),
    "an operation of 8,000,000 files": (_within(b"operation", 3, *MANY), OPERATION),
    "an operation 30 deep": (_within(b"operation", 30, b"d"), OPERATION),
    "a large operation": (
        _in_operation(budget.OPERATION_SIZE + 1),
        "exceed 67,108,864 bytes",
    ),
    "an operation with a and a/b": (_file_and_directory, "two entries are named b'a'"),
    "an operation with the name a/b": (
        _in(b"operation", (FILE, b"a"), (FILE, b"a/b")),
        "invalid entry b'a/b' of mode b'100644'",
    ),
    "an operation with a mode 0": (
        _in(b"operation", (b"0", b"MERGE_MSG")),
        "b'MERGE_MSG' has the invalid mode 0",
    ),
    "one name twice": (_in(b"files", (FILE, b"a"), (FILE, b"a")), "two entries are named b'a'"),
    "no name": (_in(b"files", (FILE, b"")), "invalid entry b''"),
    "a name with a slash": (_in(b"files", (FILE, b"a/b")), "invalid entry b'a/b'"),
    "a way out": (_in(b"files", (FILE, b"..")), "an entry is named b'..'"),
    "a way out by a directory": (_below(b".."), "an entry is named b'..'"),
    "itself": (_below(b"."), "an entry is named b'.'"),
    "git's directory": (_below(b".git"), "an entry is named b'.git'"),
    "git's directory in capitals": (_below(b".GIT"), "an entry is named b'.GIT'"),
    "a mode 0": (_in(b"files", (b"0", b"a")), "b'a' has the invalid mode 0"),
    "a directory that is a blob": (
        _in(b"files", (DIRECTORY, b"a")),
        "a blob is listed as a directory",
    ),
    "nonsense below": (
        lambda make: {b"files": (DIRECTORY, make.raw(b"nonsense"))},
        "a tree is malformed",
    ),
    "nonsense": (lambda make: make.raw(b"nonsense"), "is malformed"),
    "nothing": (lambda make: make.raw(b""), "it has no files/"),
    "files that are a file": (
        lambda make: {b"files": (FILE, make.blob)},
        "files is not a directory",
    ),
    "an operation that is a file": (
        lambda make: {b"operation": (b"0", make.blob)},
        "operation is not a directory",
    ),
    "flags that are a directory": (
        lambda make: {b"flags": (DIRECTORY, make.raw(b""))},
        "flags is not a list",
    ),
}
"""Name → the function that makes the snapshot, and the message of `verify`."""
