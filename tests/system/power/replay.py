"""Compute the contents of a disk after a power cut from a record of system calls.

`strace` records writes, names and flushes. The directory is replayed in memory, and each file and
directory knows which part of it is on the disk. This needs no root, and is stricter than any file
system: a name is on the disk once its directory was flushed, contents once their file was.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_CALLS = (
    "openat,creat,write,pwrite64,writev,ftruncate,truncate,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,symlink,"
    "symlinkat,fsync,fdatasync,sync,syncfs,copy_file_range,sendfile,chdir,fchdir,clone,clone3,fork,vfork"
)
_STARTING = ("clone", "clone3", "fork", "vfork")
_LINE = re.compile(
    r"^(\d+\.\d+) (\w+)\((.*)\)\s+= (-?\d+)(?:<(.*?)>)?(?: [A-Z]\w+ \(.*?\))?(?: <(\d+\.\d+)>)?$",
    re.DOTALL,
)
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_PLACE = re.compile(r"(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>")


@dataclass
class Node:
    """A file or directory, as programs see it and as it is on the disk.

    Attributes:
        data: contents of a file; a link's target.
        entries: of a directory; None for a file.
        flushed: the contents on the disk.
        named: the entries on the disk.
        replaced: the contents with which it replaced another file: ext4 (auto_da_alloc) and btrfs
            write those together with the names.
    """

    data: bytes = b""
    entries: dict[str, Node] | None = None
    is_link: bool = False
    mode: int = 0o644
    flushed: bytes = b""
    replaced: bytes | None = None
    named: dict[str, Node] = field(default_factory=dict)

    def flush(self) -> None:
        """Write the contents and entries to the disk."""
        self.flushed = self.data
        self.replaced = None
        self.named = dict(self.entries or {})

    def walk(self) -> Iterator[Node]:
        """Yield this node and all nodes below."""
        yield self
        for below in (self.entries or {}).values():
            yield from below.walk()


@dataclass(frozen=True)
class Call:
    """A recorded system call."""

    instant: float
    """The time when the call ended, or began if it starts a process.

    A child may work before its parent continues.
    """
    process: str
    name: str
    places: list[str]
    """The paths of the descriptors among the arguments."""
    texts: list[bytes]
    words: str
    result: int
    opened: str
    """The path of the opened file."""


def record(argv: Sequence[str], log: Path, cwd: Path, env: dict[str, str]) -> list[Call]:
    """Run a program to its end; return the calls of all its processes, in order."""
    log.mkdir()
    options = [
        "-ff",
        "--absolute-timestamps=format:unix,precision:ns",
        "-T",
        "-y",
        "-xx",
        "-s",
        "100000000",
    ]
    argv = ["strace", *options, "-e", f"trace={_CALLS}", "-o", str(log / "calls"), *argv]
    subprocess.run(argv, cwd=cwd, env=env, stdout=subprocess.DEVNULL, check=True)
    calls = [call for path in sorted(log.iterdir()) for call in _calls(path)]
    return sorted(calls, key=lambda call: call.instant)


def _calls(path: Path) -> Iterator[Call]:
    for line in path.read_text("ascii").splitlines():
        found = _LINE.match(line)
        if found is None or int(found[4]) < 0:
            continue
        began, name, words, result, opened, spent = found.groups()
        texts = [bytes.fromhex(text.replace("\\x", "")) for text in _TEXT.findall(words)]
        without = _TEXT.sub("", words)
        places = [_plain(place) for place in _PLACE.findall(without)]
        instant = float(began) + (0 if name in _STARTING else float(spent or 0))
        yield Call(
            instant,
            path.suffix[1:],
            name,
            places,
            texts,
            without,
            int(result),
            _plain(opened or ""),
        )


def _plain(path: str) -> str:
    return bytes.fromhex(path.replace("\\x", "")).decode() if path.startswith("\\x") else path


class Replay:
    """A directory that is replayed from a state that is wholly on the disk.

    Args:
        top: the directory, as it is now.
        cwd: where the program is about to be started.
    """

    def __init__(self, top: Path, cwd: Path) -> None:
        self._top = str(top)
        self._cwd = str(cwd)
        self._cwds: dict[str, str] = {}
        self.root = _loaded(top)
        self._offsets: dict[tuple[str, str], int] = {}

    def play(self, call: Call) -> bool:
        """Apply a call; return whether the disk or the visible names may have changed."""
        play = getattr(self, f"_{call.name}", None)
        return bool(play(call)) if play is not None else False

    def found(self, path: str) -> Node | None:
        """Return the node at a path; None if it is missing or outside the directory."""
        node: Node | None = self.root
        for name in self._parts(path) or ():
            node = (node.entries or {}).get(name) if node is not None else None
        return node if self._parts(path) is not None else None

    def _parts(self, path: str) -> list[str] | None:
        path = os.path.normpath(path)
        if path == self._top:
            return []
        return path[len(self._top) + 1 :].split("/") if path.startswith(f"{self._top}/") else None

    def _path(self, call: Call, number: int = 0) -> str:
        place = (
            call.places[min(number, len(call.places) - 1)]
            if call.places
            else self._cwds.get(call.process, self._cwd)
        )
        return os.path.join(place, call.texts[number].decode("utf-8", "surrogateescape"))

    def _clone(self, call: Call) -> bool:
        self._cwds.setdefault(str(call.result), self._cwds.get(call.process, self._cwd))
        return False

    _clone3 = _fork = _vfork = _clone

    def _chdir(self, call: Call) -> bool:
        self._cwds[call.process] = os.path.normpath(self._path(call))
        return False

    def _fchdir(self, call: Call) -> bool:
        self._cwds[call.process] = call.places[0]
        return False

    def _parent(self, path: str) -> tuple[dict[str, Node], str] | None:
        parts = self._parts(path)
        if not parts:
            return None
        parent = self.found(os.path.dirname(os.path.normpath(path)))
        return (
            (parent.entries, parts[-1])
            if parent is not None and parent.entries is not None
            else None
        )

    def _openat(self, call: Call) -> bool:
        path = call.opened
        if self._parts(path) is None:
            return False
        there = self.found(path)
        self._offsets[call.process, path] = (
            len(there.data) if there is not None and "O_APPEND" in call.words else 0
        )
        if there is None and "O_CREAT" in call.words:
            where = self._parent(path)
            if where is not None:
                where[0][where[1]] = Node()
                return True
        elif there is not None and "O_TRUNC" in call.words:
            there.data = b""
        return False

    def _write(self, call: Call) -> bool:
        path = call.places[0]
        node = self.found(path)
        if node is None:
            return False
        at = self._offsets.get((call.process, path), 0)
        self._put(node, call.texts[0][: call.result], at)
        self._offsets[call.process, path] = at + call.result
        return False

    def _pwrite64(self, call: Call) -> bool:
        node = self.found(call.places[0])
        if node is not None:
            self._put(node, call.texts[0][: call.result], int(call.words.rpartition(",")[2]))
        return False

    @staticmethod
    def _put(node: Node, data: bytes, at: int) -> None:
        node.data = node.data[:at].ljust(at, b"\0") + data + node.data[at + len(data) :]

    def _ftruncate(self, call: Call) -> bool:
        node = self.found(call.places[0])
        if node is not None:
            size = int(call.words.rpartition(",")[2])
            node.data = node.data[:size].ljust(size, b"\0")
        return False

    def _rename(self, call: Call) -> bool:
        old, new = self._parent(self._path(call, 0)), self._parent(self._path(call, 1))
        if old is None or new is None:
            return False
        node = old[0].pop(old[1])
        if new[1] in new[0]:
            node.replaced = node.data
        new[0][new[1]] = node
        return True

    _renameat = _renameat2 = _rename

    def _link(self, call: Call) -> bool:
        node, new = self.found(self._path(call, 0)), self._parent(self._path(call, 1))
        if node is None or new is None:
            return False
        new[0][new[1]] = node
        return True

    _linkat = _link

    def _unlink(self, call: Call) -> bool:
        where = self._parent(self._path(call))
        return where is not None and where[0].pop(where[1], None) is not None

    _unlinkat = _rmdir = _unlink

    def _mkdir(self, call: Call) -> bool:
        where = self._parent(self._path(call))
        if where is None:
            return False
        where[0][where[1]] = Node(entries={}, mode=0o755)
        return True

    _mkdirat = _mkdir

    def _symlink(self, call: Call) -> bool:
        place = call.places[-1] if call.places else self._cwds.get(call.process, self._cwd)
        where = self._parent(os.path.join(place, call.texts[1].decode()))
        if where is None:
            return False
        where[0][where[1]] = Node(call.texts[0], is_link=True, flushed=call.texts[0])
        return True

    _symlinkat = _symlink

    def _fsync(self, call: Call) -> bool:
        node = self.found(call.places[0])
        if node is not None:
            node.flush()
        return node is not None

    _fdatasync = _fsync

    def _sync(self, call: Call) -> bool:
        del call
        for node in self.root.walk():
            node.flush()
        return True

    _syncfs = _sync

    def seen(self) -> dict[str, bytes | None]:
        """Return the contents of all files as programs see them; None for a directory."""
        return dict(_seen(self.root, ""))

    def left(self, target: Path, *, names: bool, spared: Sequence[str] = ()) -> None:
        """Write the files that a power cut would leave now.

        Args:
            target: a new directory.
            names: whether the names reached the disk as programs see them, as in a journal, so that
                only unflushed contents are lost.
            spared: paths below the top that are kept as programs see them, because git itself does
                not flush them.
        """
        _write(self.root, target, names=names, spared=[f"/{path}" for path in spared], path="")


def _loaded(path: Path) -> Node:
    if path.is_symlink():
        data = os.fsencode(os.readlink(path))
        node = Node(data, is_link=True)
    elif path.is_dir():
        node = Node(entries={each.name: _loaded(each) for each in path.iterdir()}, mode=0o755)
    else:
        node = Node(path.read_bytes(), mode=path.stat().st_mode & 0o777)
    node.flush()
    return node


def _seen(node: Node, path: str) -> Iterator[tuple[str, bytes | None]]:
    yield path, None if node.entries is not None else node.data
    for name, below in (node.entries or {}).items():
        yield from _seen(below, f"{path}/{name}")


def _write(node: Node, target: Path, *, names: bool, spared: Sequence[str], path: str) -> None:
    is_spared = any(path == each or path.startswith(f"{each}/") for each in spared)
    leads = any(each.startswith(f"{path}/") for each in spared)
    if node.entries is not None:
        target.mkdir()
        for name, below in (node.entries if names or is_spared else node.named).items():
            _write(below, target / name, names=names, spared=spared, path=f"{path}/{name}")
        if leads and not names:
            for name, below in node.entries.items():
                inner = f"{path}/{name}"
                if name not in node.named and any(
                    f"{each}/".startswith(f"{inner}/") for each in spared
                ):
                    _write(below, target / name, names=names, spared=spared, path=inner)
    elif node.is_link:
        target.symlink_to(os.fsdecode(node.data))
    else:
        target.write_bytes(
            node.data
            if is_spared
            else node.replaced
            if names and node.replaced is not None
            else node.flushed
        )
        target.chmod(node.mode)


def can_record() -> bool:
    """Tell whether `strace` is installed and may trace."""
    if shutil.which("strace") is None:
        return False
    return (
        subprocess.run(
            ["strace", "-o", os.devnull, "true"], capture_output=True, check=False
        ).returncode
        == 0
    )
