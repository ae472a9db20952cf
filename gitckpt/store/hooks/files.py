"""Insert, renew and remove gitckpt's block in hook files; all other bytes stay."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import stat
import sys
import tempfile

from gitckpt.git import fsync, leftovers
from gitckpt.git.filesystem import names_in
from gitckpt.model.errors import RepositoryError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack
    from typing import NoReturn


# The hooks that gitckpt uses.


# Event → the variable in which pre-commit passes its argument: "" if it has none, None for an
# event that pre-commit does not support.
PRE_COMMIT_ARGUMENTS = {
    "post-commit": "",
    "post-merge": "PRE_COMMIT_IS_SQUASH_MERGE",
    "post-applypatch": None,
    "post-rewrite": "PRE_COMMIT_REWRITE_COMMAND",
    "pre-auto-gc": None,
}

# `gitckpt.hook` says what is done at each.
EVENTS = tuple(PRE_COMMIT_ARGUMENTS)

# All events, as a phrase.
ANY = f"{', '.join(EVENTS[:-1])} or {EVENTS[-1]}"


# The block in a hook file.


# The directory that holds the package `gitckpt`.
PACKAGE_DIR = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

_HOOKS, _SCRIPT = "hooks", "hook.sh"
_NEW_FILE = b"#!/bin/sh\n"
_NEW_MODE = 0o755

_BEGIN = b"# >>> gitckpt >>>"
_END = b"# <<< gitckpt <<<"
_MARKER = re.compile(rb"^(?:%s|%s)\r?$" % (_BEGIN, _END), re.MULTILINE)
_STAGED = re.compile(r"\..+\.gitckpt-(\d+)-\w+")
_CALL = 'sh @SCRIPT@ @EVENT@ @PYTHON@ @PACKAGE_DIR@ "$@" </dev/null'
# Used in a file with nothing but the block, which `sh` runs: saves a process.
_SOURCE = '(set -- @EVENT@ @PYTHON@ @PACKAGE_DIR@ "$@"; . @SCRIPT@) </dev/null'
_CREATED = b"# This file was created by `git ckpt init`.\n"
_SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "ksh93", "mksh", "oksh", "pdksh", "posh", "yash", "zsh"})


@dataclass(frozen=True, slots=True)
class Pin:
    """What a hook runs; both paths are absolute."""

    python: str
    package_dir: str  # the directory that holds the package `gitckpt`

    @property
    def script(self) -> str:
        """The shell script that the hook runs."""
        packaged = os.path.join(self.package_dir, "gitckpt", _HOOKS, _SCRIPT)
        return packaged if os.path.isfile(packaged) else os.path.join(self.package_dir, _HOOKS, _SCRIPT)

    def block(self, event: str, *, created: bool = False) -> bytes:
        """Return the block for a file; note in it whether gitckpt `created` the file."""
        first, rest = _template("block.sh").rstrip("\n").split("\n", 1)
        if created:
            rest = rest.replace(_CALL, _SOURCE)
        return first.encode() + b"\n" + (_CREATED if created else b"") + os.fsencode(self._filled(rest, event))

    def command(self, event: str) -> str:
        code = "".join(line for line in _template("block.sh").splitlines(keepends=True) if not line.startswith("#"))
        return self._filled(_template("command.sh").replace("@BODY@", code.rstrip("\n")).rstrip("\n"), event)

    def _filled(self, text: str, event: str) -> str:
        words = {"PYTHON": self.python, "PACKAGE_DIR": self.package_dir, "SCRIPT": self.script, "EVENT": event}
        return re.sub("@([A-Z_]+)@", lambda place: shlex.quote(words[place[1]]), text)


def pinned(text: str) -> Pin | None:
    """Return what a block or command of gitckpt's runs, or None for others."""
    try:
        words = shlex.split(text, comments=True)
        call = words.index("sh" if "sh" in words else "(set")
        return Pin(words[call + 3], words[call + 4])
    except (ValueError, IndexError):
        return None


def without_blocks(data: bytes) -> bytes:
    """Return a text without gitckpt's blocks, as it was before they were added."""
    parts, offset = [], 0
    for start, end in _blocks(data):
        parts.append(data[offset:start])
        offset = end + 1  # with its line break
    rest = b"".join([*parts, data[offset:]])
    return rest[:-1] if offset > len(data) else rest


def _blocks(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each block, from a first marker to the next last one."""
    start = -1
    for marker in _MARKER.finditer(data):
        if start < 0 and marker[0].startswith(_BEGIN):
            start = marker.start()
        elif start >= 0 and marker[0].startswith(_END):
            yield start, marker.end()
            start = -1


@dataclass(frozen=True, slots=True)
class HookFile:
    """A hook file as it is."""

    path: str
    data: bytes | None  # None if there is no regular file
    mode: int
    oddity: str  # what is there instead, as a phrase; "" for a regular file or nothing

    @property
    def block(self) -> bytes | None:
        data = self.data or b""
        return next((data[start:end] for start, end in _blocks(data)), None)

    @property
    def is_ours(self) -> bool:
        """Whether gitckpt created it and nothing was added."""
        return _CREATED in (self.block or b"") and without_blocks(self.data or b"") == _NEW_FILE

    @property
    def quoted(self) -> str:
        return shlex.quote(self.path)

    @property
    def is_executable(self) -> bool:
        return bool(self.mode & 0o111)

    @property
    def obstacle(self) -> str:
        """Why it must not be written, as a predicate; "" if it may."""
        if self.oddity or self.data is None or self.is_ours:
            return self.oddity
        if b"\0" in self.data:
            return "is no text file"
        if problem := _shebang_problem(self.data):
            return problem
        if not self.is_executable:
            return "is not executable, so git ignores it, and making it executable would switch on the text that is in it"
        if _MARKER.search(without_blocks(self.data)):
            return "holds a part of a gitckpt block; take out the lines from `# >>> gitckpt >>>` on that belong to it"
        return ""

    def with_block(self, event: str, pin: Pin) -> FileChange | None:
        """Return the change that adds or renews the block; None if it is up to date."""
        if self.data is None:
            return FileChange(self, _NEW_FILE + pin.block(event, created=True) + b"\n", _NEW_MODE, f"{event}: wrote {self.path}")
        old = self.block
        new = pin.block(event, created=_CREATED in (old or b""))
        data = _inserted(self.data, new)
        mode = _NEW_MODE if self.is_ours and not self.is_executable else self.mode
        if (data, mode) == (self.data, self.mode):
            return None
        return FileChange(self, data, mode, f"{event}: {'renewed the block in' if old else 'added a block to'} {self.path}")

    def without_block(self, event: str) -> FileChange | None:
        if self.block is None or self.data is None:
            return None
        if self.is_ours:
            return FileChange(self, None, 0, f"{event}: removed {self.path}")
        return FileChange(self, without_blocks(self.data), self.mode, f"{event}: took the block out of {self.path}")


@dataclass(frozen=True, slots=True)
class FileChange:
    file: HookFile  # before the change
    data: bytes | None  # None deletes it
    mode: int
    sentence: str  # for the user


def read(path: str) -> HookFile:
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return HookFile(path, None, 0, f"is a symbolic link to {os.readlink(path)}")
        if not stat.S_ISREG(mode):
            return HookFile(path, None, 0, "is no regular file")
        with open(path, "rb") as file:
            return HookFile(path, file.read(), stat.S_IMODE(mode), "")
    except (FileNotFoundError, NotADirectoryError):
        return HookFile(path, None, 0, "")
    except OSError as error:
        _refused("read", path, error)


def make_directory(path: str, undo: ExitStack) -> bool:
    """Make a directory for hooks; return whether it was missing."""
    if os.path.isdir(path):
        return False
    try:
        os.makedirs(path)
    except OSError as error:
        _refused("make the directory", path, error)
    undo.callback(remove_directory, path)
    return True


def remove_directory(path: str) -> bool:
    """Remove a directory if it is empty; return whether it was removed."""
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


def apply(changes: Sequence[FileChange], undo: ExitStack) -> None:
    """Make all changes, or none; `undo` receives callbacks that revert them."""
    for place in {os.path.dirname(change.file.path) for change in changes}:
        _sweep(place)
    staged: list[tuple[FileChange, str]] = []
    path = ""
    try:
        for change in changes:
            path = change.file.path
            staged.append((change, "" if change.data is None else _staged(path, change.data, change.mode)))
        for change, temporary in staged:
            path = change.file.path
            if temporary:
                os.replace(temporary, path)
            else:
                os.unlink(path)
            undo.callback(_take_back, change)
        places = {os.path.dirname(change.file.path) for change in changes}
        # The hooks directory may be new.
        fsync.flush(places | {os.path.dirname(place) for place in places})
    except OSError as error:
        _refused("write", path, error)
    finally:
        for _, temporary in staged:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _take_back(change: FileChange) -> None:
    file = change.file
    with contextlib.suppress(OSError):
        if file.data is None:
            os.unlink(file.path)
        else:
            os.replace(_staged(file.path, file.data, file.mode), file.path)


def _staged(path: str, data: bytes, mode: int) -> str:
    fd, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.gitckpt-{os.getpid()}-", dir=os.path.dirname(path))
    try:
        with open(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, mode)
            file.flush()
            os.fsync(fd)
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _sweep(place: str) -> None:
    """Delete the temporary files of killed processes beside hooks."""
    for name in names_in(place):
        match = _STAGED.fullmatch(name)
        if match and not leftovers.is_alive(int(match[1])):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(place, name))


def _inserted(data: bytes, block: bytes) -> bytes:
    for start, end in _blocks(data):
        return data[:start] + block + without_blocks(data[end:])
    if not data.startswith(b"#!"):
        return block + b"\n" + data
    shebang, newline, rest = data.partition(b"\n")
    return shebang + b"\n" + block + newline + rest


def _shebang_problem(data: bytes) -> str:
    """Return why a text cannot take shell code, or ""."""
    if not data.startswith(b"#!"):
        return ""
    line = data[2:].partition(b"\n")[0]
    if line.endswith(b"\r"):
        return "cannot be run by the system: its first line ends with a carriage return"
    words = os.fsdecode(line).split()
    name = os.path.basename(words.pop(0)) if words else ""
    if name in ("env", "busybox"):
        name = next((os.path.basename(word) for word in words if not word.startswith("-") and "=" not in word), name)
    return "" if name in _SHELLS else f"is a script for {name or 'an interpreter without a name'}, not for a POSIX shell"


def _refused(verb: str, path: str, error: OSError) -> NoReturn:
    cure = "mend that, and run the command again"
    if error.errno in (errno.EACCES, errno.EPERM):
        cure = f"make it writable, and run the command again: chmod u+w {shlex.quote(os.path.dirname(path))}"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        cure = "core.hooksPath, or what stands in place of the directory: git config --show-origin core.hooksPath"
    raise RepositoryError(f"cannot {verb} {path}: {error.strerror}", hint=cure) from None


def _template(name: str) -> str:
    """Return a file of `hooks/`."""
    package = os.path.join(PACKAGE_DIR, "gitckpt")
    for directory in (package, PACKAGE_DIR):
        try:
            with open(os.path.join(directory, _HOOKS, name), encoding="utf-8") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            continue
    raise RepositoryError(f"{name} is missing from the installation of gitckpt in {package}", hint=f"install it again for {sys.executable}")
