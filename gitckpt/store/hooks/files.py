"""Add, update and remove gitckpt's block of lines in hook files."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import stat
import sys

from gitckpt.git import fsync, leftovers
from gitckpt.git.files import regular
from gitckpt.git.filesystem import names_in
from gitckpt.model.errors import RepositoryError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack
    from typing import NoReturn


# Event → the environment variable in which pre-commit passes the hook's argument: "" for a hook
# without one, None for a hook that pre-commit does not support.
PRE_COMMIT_ARGUMENTS = {
    "post-commit": "",
    "post-merge": "PRE_COMMIT_IS_SQUASH_MERGE",
    "post-applypatch": None,
    "post-rewrite": "PRE_COMMIT_REWRITE_COMMAND",
    "pre-auto-gc": None,
}

_SCRATCH = re.compile(r"\..+\.gitckpt-hook\.(\d+)\.[0-9a-f]{8}")  # name of a temporary file; pid

EVENTS = tuple(PRE_COMMIT_ARGUMENTS)  # `gitckpt.hook` handles each of them
ANY = f"{', '.join(EVENTS[:-1])} or {EVENTS[-1]}"

# The directory that holds the package `gitckpt`.
PACKAGE_DIR = os.path.abspath(__file__).rsplit(os.sep, 4)[0]

_NEW_FILE, _NEW_MODE = b"#!/bin/sh\n", 0o755
_BEGIN, _END = b"# >>> gitckpt >>>", b"# <<< gitckpt <<<"
_MARKER = re.compile(rb"^(?:%s|%s)\r?$" % (_BEGIN, _END), re.MULTILINE)
_CALL = 'sh @SCRIPT@ @EVENT@ @PYTHON@ @PACKAGE_DIR@ "$@" </dev/null'
# Used in files that gitckpt created, which `sh` runs: saves a process.
_SOURCE = '(set -- @EVENT@ @PYTHON@ @PACKAGE_DIR@ "$@"; . @SCRIPT@) </dev/null'
_CREATED = b"# This file was created by `git ckpt init`.\n"
_SHELLS = frozenset(
    {"sh", "ash", "bash", "dash", "ksh", "ksh93", "mksh", "oksh", "pdksh", "posh", "yash", "zsh"}
)


@dataclass(frozen=True, slots=True)
class PinnedPython:
    """The Python interpreter and the directory of gitckpt with which a hook runs."""

    python: str
    package_dir: str  # the directory that holds the package `gitckpt`

    @property
    def script_path(self) -> str:
        return _find_packaged_file(self.package_dir, "hook.sh")

    def block(self, event: str, *, created: bool = False) -> bytes:
        """Return gitckpt's lines for a hook file; `created` if gitckpt makes that file."""
        first_line, code = _read_template("block.sh").rstrip("\n").split("\n", 1)
        if created:
            code = code.replace(_CALL, _SOURCE)
        opening = first_line.encode() + b"\n" + (_CREATED if created else b"")
        return opening + os.fsencode(self._fill_template(code, event))

    def make_command(self, event: str) -> str:
        lines = _read_template("block.sh").splitlines()
        code = "\n".join(line for line in lines if not line.startswith("#"))
        command = _read_template("command.sh").replace("@BODY@", code).rstrip("\n")
        return self._fill_template(command, event)

    def _fill_template(self, template: str, event: str) -> str:
        words = {"PYTHON": self.python, "PACKAGE_DIR": self.package_dir}
        words |= {"SCRIPT": self.script_path, "EVENT": event}
        return re.sub("@([A-Z_]+)@", lambda match: shlex.quote(words[match[1]]), template)


def parse_pinned_python(text: str) -> PinnedPython | None:
    """Return the `PinnedPython` in a block or command; None for other texts."""
    try:
        arguments = shlex.split(text, comments=True)
        call_index = arguments.index("sh" if "sh" in arguments else "(set")
        return PinnedPython(arguments[call_index + 3], arguments[call_index + 4])
    except (ValueError, IndexError):
        return None


def remove_blocks(data: bytes) -> bytes:
    kept_lines, offset = b"", 0
    for start, end in _find_gitckpt_blocks(data):
        kept_lines += data[offset:start]
        offset = end + 1  # after the line break
    kept_lines += data[offset:]
    return kept_lines[:-1] if offset > len(data) else kept_lines


def _find_gitckpt_blocks(data: bytes) -> Iterator[tuple[int, int]]:
    start = -1
    for marker in _MARKER.finditer(data):
        if start < 0 and marker[0].startswith(_BEGIN):
            start = marker.start()
        elif start >= 0 and marker[0].startswith(_END):
            yield start, marker.end()
            start = -1


@dataclass(frozen=True, slots=True)
class HookFile:
    path: str
    data: bytes | None  # None if `path` is not a regular file
    mode: int
    oddity: str  # the file type, as a predicate; "" for a regular or missing file

    @property
    def block(self) -> bytes | None:
        data = self.data or b""
        return next((data[start:end] for start, end in _find_gitckpt_blocks(data)), None)

    @property
    def is_made_by_gitckpt(self) -> bool:
        return _CREATED in (self.block or b"") and remove_blocks(self.data or b"") == _NEW_FILE

    @property
    def is_executable(self) -> bool:
        return bool(self.mode & 0o111)

    @property
    def obstacle(self) -> str:
        """Return why gitckpt must not edit the file, such as "is not executable", or ""."""
        if self.oddity or self.data is None or self.is_made_by_gitckpt:
            return self.oddity
        if b"\0" in self.data:
            return "is not a text file"
        if problem := _shebang_problem(self.data):
            return problem
        if not self.is_executable:
            return "is not executable; to make it executable would activate its other lines"
        if _MARKER.search(remove_blocks(self.data)):
            return "contains a part of a gitckpt block; remove all from `# >>> gitckpt >>>` on"
        return ""

    def add_block(self, event: str, pin: PinnedPython) -> HookFileChange | None:
        """Return the change that adds or updates the block; None if it is up to date."""
        if self.data is None:
            data = _NEW_FILE + pin.block(event, created=True) + b"\n"
            return HookFileChange(self, data, _NEW_MODE, f"{event}: wrote {self.path}")
        old_block = self.block
        data = _insert_block(self.data, pin.block(event, created=_CREATED in (old_block or b"")))
        mode = _NEW_MODE if self.is_made_by_gitckpt and not self.is_executable else self.mode
        if (data, mode) == (self.data, self.mode):
            return None
        verb = "updated the block in" if old_block else "added a block to"
        return HookFileChange(self, data, mode, f"{event}: {verb} {self.path}")

    def remove_block(self, event: str) -> HookFileChange | None:
        if self.block is None or self.data is None:
            return None
        if self.is_made_by_gitckpt:
            return HookFileChange(self, None, 0, f"{event}: removed {self.path}")
        data = remove_blocks(self.data)
        return HookFileChange(self, data, self.mode, f"{event}: removed the block from {self.path}")


@dataclass(frozen=True, slots=True)
class HookFileChange:
    file: HookFile  # before the change
    data: bytes | None  # None deletes it
    mode: int
    sentence: str  # for the user


def read_hook(path: str) -> HookFile:
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return HookFile(path, None, 0, f"is a symbolic link to {os.readlink(path)}")
        if not stat.S_ISREG(mode):
            return HookFile(path, None, 0, "is not a regular file")
        with open(path, "rb") as file:
            return HookFile(path, file.read(), stat.S_IMODE(mode), "")
    except (FileNotFoundError, NotADirectoryError):
        return HookFile(path, None, 0, "")
    except OSError as error:
        _raise_file_error("read", path, error)


def make_directory(path: str, undo: ExitStack) -> None:
    try:
        os.makedirs(path)
    except OSError as error:
        _raise_file_error("make the directory", path, error)
    undo.callback(remove_directory, path)


def remove_directory(path: str) -> bool:
    with contextlib.suppress(OSError):
        os.rmdir(path)
        return True
    return False


def apply_file_changes(changes: Sequence[HookFileChange], undo: ExitStack) -> list[str]:
    """Write the changed files; let `undo` revert the changes; return their sentences."""
    directories = {os.path.dirname(change.file.path) for change in changes}
    for directory in directories:
        _delete_scratch_files(directory)
    for change in changes:
        try:
            _write_or_delete_file(change.file.path, change.data, change.mode)
        except OSError as error:
            _raise_file_error("write", change.file.path, error)
        undo.callback(_restore_hook_file, change.file)
    # The parent directory, too: the hooks directory may be new.
    fsync.flush(directories | set(map(os.path.dirname, directories)))
    return [change.sentence for change in changes]


def _delete_scratch_files(directory: str) -> None:
    # Without delay: `uninstall` removes the directory only if it is empty.
    for name in names_in(directory):
        match = _SCRATCH.fullmatch(name)
        if match and not leftovers.is_process_alive(int(match[1])):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(directory, name))


def _restore_hook_file(file: HookFile) -> None:
    with contextlib.suppress(OSError):
        _write_or_delete_file(file.path, file.data, file.mode)


def _write_or_delete_file(path: str, data: bytes | None, mode: int) -> None:
    def open_with_mode(scratch: str, flags: int) -> int:
        fd = os.open(scratch, flags, mode)
        os.fchmod(fd, mode)  # regardless of the umask
        return fd

    if data is None:
        os.unlink(path)
        return
    directory, name = os.path.split(path)
    scratch = os.path.join(directory, f".{name}.gitckpt-hook")
    regular.write_private_file(path, data, flushed=True, opener=open_with_mode, scratch=scratch)


def _insert_block(data: bytes, block: bytes) -> bytes:
    for start, end in _find_gitckpt_blocks(data):
        return data[:start] + block + remove_blocks(data[end:])
    if not data.startswith(b"#!"):
        return block + b"\n" + data
    shebang, newline, code = data.partition(b"\n")
    return shebang + b"\n" + block + newline + code


def _shebang_problem(data: bytes) -> str:
    # git runs a file without `#!` with sh.
    if not data.startswith(b"#!"):
        return ""
    line = data[2:].partition(b"\n")[0]
    if line.endswith(b"\r"):
        return "has a carriage return in its first line, which the system cannot run"
    program, *words = os.fsdecode(line).split() or [""]
    name = os.path.basename(program)
    if name in ("env", "busybox"):
        programs = (name for name in words if not name.startswith("-") and "=" not in name)
        name = os.path.basename(next(programs, name))
    if name in _SHELLS:
        return ""
    return f"is a script for {name or 'an unnamed interpreter'}, not for a POSIX shell"


def _raise_file_error(verb: str, path: str, error: OSError) -> NoReturn:
    cure = "correct the cause, then run the command again"
    if error.errno in (errno.EACCES, errno.EPERM):
        directory = shlex.quote(os.path.dirname(path))
        cure = f"make the directory writable, then run the command again: chmod u+w {directory}"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        cure = "see which hooks directory git uses: git config --show-origin core.hooksPath"
    raise RepositoryError(f"cannot {verb} {path}: {error.strerror}", hint=cure) from None


def _read_template(name: str) -> str:
    try:
        with open(_find_packaged_file(PACKAGE_DIR, name), encoding="utf-8") as file:
            return file.read()
    except OSError:
        problem = f"{name} is missing from the installation of gitckpt in {PACKAGE_DIR}/gitckpt"
        raise RepositoryError(problem, hint=f"install gitckpt again for {sys.executable}") from None


def _find_packaged_file(package_dir: str, name: str) -> str:
    # A wheel has `hooks` inside of the package, a checkout next to the package.
    packaged_path = os.path.join(package_dir, "gitckpt", "hooks", name)
    checkout_path = os.path.join(package_dir, "hooks", name)
    return packaged_path if os.path.isfile(packaged_path) else checkout_path
