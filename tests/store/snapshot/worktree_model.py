"""A model of a worktree, and of the result that a restore should have.

The state machine of `test_worktree_machine.py` compares it with the real worktree.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from gitckpt.git.process import git_executable
from gitckpt.git.repository import PSEUDO_REFS
from gitckpt.git.worktree import operation

CONVERTED = b"t.txt"
"""The file that git may convert; it is exact only under the same attributes."""

ATTRIBUTES = b".gitattributes"

Entries = tuple[tuple[bytes, ...], ...]
"""The index entries of a path, each with mode, oid, stage and flags."""

File = tuple[str, bytes]
"""A file as git knows it: "file", "tool" (executable) or "link", with its content."""

_ENTRY = re.compile(
    rb"\S ([0-7]+) ([0-9a-f]+) ([0-3])\t([^\0]*)\0(?:  [^\n]*\n){4}  size: \d+\tflags: "
    rb"([0-9a-f]+)\n"
)
_MEANT = 0x60008000
"""Flags that a person sets: intent-to-add, skip-worktree, assume-unchanged."""

_OWN = ("refs/checkpoints/", "refs/ckpt/", "refs/keep/", "refs/notes/checkpoints")
_PASSING = ("ORIG_HEAD", "AUTO_MERGE")
"""Not compared: `ORIG_HEAD` outlives an operation, gc deletes `AUTO_MERGE`'s tree."""

_MARKS = (
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "BISECT_LOG",
)
_OF_OPERATIONS = ("refs/bisect/", "refs/rewritten/")


@dataclass(frozen=True)
class Seen:
    """Everything that a person and git see of a worktree."""

    files: Mapping[bytes, File]
    exact: bytes | None
    """The content of the file that git may convert; None if it is not a file."""

    stats: Mapping[bytes, tuple[int, int]]
    """Time of the last change and inode of each file."""

    ignored: frozenset[bytes]
    """Ignored untracked files, which no capture holds."""

    entries: Mapping[bytes, Entries]
    """The index, by path."""

    status: Mapping[bytes, bytes]
    """The line of `git status` for each changed tracked path."""

    operation: Mapping[str, bytes]
    """git's files and per-worktree refs of the operation in progress, if any."""

    commit: bytes
    head: bytes
    refs: tuple[bytes, ...]
    index: bytes

    @property
    def captured(self) -> dict[bytes, File]:
        return {path: file for path, file in self.files.items() if path not in self.ignored}

    def is_converted_as(self, other: Seen) -> bool:
        """Return whether the attributes are the same."""
        return (self.files.get(ATTRIBUTES), self.entries.get(ATTRIBUTES)) == (
            other.files.get(ATTRIBUTES),
            other.entries.get(ATTRIBUTES),
        )

    def lasting(self) -> Seen:
        """Leave out what may differ between equal states: time stamps and the raw index."""
        status = {path: line for path, line in self.status.items() if path != CONVERTED}
        return replace(self, stats={}, index=b"", status=status)


class Place:
    """A worktree under test.

    Args:
        top: where it is.
        is_exact: whether the line ends of `CONVERTED` count.
    """

    def __init__(self, top: str, *, is_exact: bool = False) -> None:
        self.top = os.fsencode(top)
        self._is_exact = is_exact
        self.git_dir = self.git("rev-parse", "--absolute-git-dir").removesuffix(b"\n")

    def git(
        self,
        *args: str | bytes,
        data: bytes = b"",
        ok: Sequence[int] = (0,),
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        """Run git and return its output; an empty `ok` allows any exit code."""
        settings = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_EDITOR": "true", **env}
        done = subprocess.run(
            [git_executable(), *args],
            cwd=self.top,
            input=data,
            capture_output=True,
            env=settings,
            check=False,
        )
        assert not ok or done.returncode in ok, (args, done.returncode, done.stderr)
        return done.stdout

    def join(self, path: bytes) -> bytes:
        return os.path.join(self.top, path)

    def make_way(self, path: bytes) -> bytes:
        """Clear a path and the directories above it for a file; return the full path."""
        whole = self.join(path)
        above = os.path.dirname(path)
        while above:
            if os.path.islink(self.join(above)) or os.path.isfile(self.join(above)):
                os.unlink(self.join(above))
            above = os.path.dirname(above)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        self.delete(path)
        return whole

    def delete(self, path: bytes) -> None:
        whole = self.join(path)
        if os.path.isdir(whole) and not os.path.islink(whole):
            shutil.rmtree(whole)
        elif os.path.lexists(whole) and not self._is_behind_link(path):
            os.unlink(whole)

    def write(self, path: bytes, content: bytes) -> None:
        """Write a file; an existing file keeps its mode."""
        whole = self.join(path)
        if not os.path.isfile(whole) or os.path.islink(whole) or self._is_behind_link(path):
            whole = self.make_way(path)
        with open(whole, "wb") as file:
            file.write(content)

    def rename(self, path: bytes, to: bytes) -> None:
        if self.is_file(path) and not is_within(to, [path]) and not is_within(path, [to]):
            os.rename(self.join(path), self.make_way(to))

    def chmod(self, path: bytes, mode: int) -> None:
        if self.is_file(path):
            os.chmod(self.join(path), mode)

    def touch(self, path: bytes) -> None:
        if self.is_file(path):
            os.utime(self.join(path), (1_000_000_000, 1_000_000_000))

    def link(self, path: bytes, to: bytes) -> None:
        os.symlink(to, self.make_way(path))

    def make_directory(self, path: bytes) -> None:
        os.mkdir(self.make_way(path))

    def ignore(self, directory: bytes, rules: bytes) -> None:
        """Write ignore rules, but never ignore attributes.

        A checkpoint's own attributes decide how its files are restored.
        """
        if rules:
            self.write(directory + b".gitignore", rules + b"!.gitattributes\n")
        else:
            self.delete(directory + b".gitignore")

    def convert(self, rules: bytes) -> None:
        self.write(b".gitattributes", rules)

    def add(self, path: bytes, option: str) -> None:
        self.git_whatever("add", option, "--", path)

    def stage_in_part(self, path: bytes, content: bytes) -> None:
        self.write(path, b"staged " + content)
        self.add(path, "--force")
        self.write(path, content)

    def unstage(self, path: bytes) -> None:
        self.git_whatever("rm", "--quiet", "--cached", "--force", "-r", "--", path)

    def assume(self, path: bytes, option: str) -> None:
        self.git_whatever("update-index", option, "--", path)

    def skip(self, path: bytes, option: str) -> None:
        self.git_whatever("update-index", option, "--", path)

    def git_whatever(self, *args: str | bytes) -> None:
        """Run git, which may refuse."""
        self.git(*args, ok=())

    def is_file(self, path: bytes) -> bool:
        whole = self.join(path)
        return (
            os.path.isfile(whole) and not os.path.islink(whole) and not self._is_behind_link(path)
        )

    def look(self) -> Seen:
        files: dict[bytes, File] = {}
        exact = None
        stats = {}
        for path in self._walk():
            whole = self.join(path)
            status = os.lstat(whole)
            stats[path] = (status.st_mtime_ns, status.st_ino)
            if os.path.islink(whole):
                files[path] = ("link", os.readlink(whole))
            else:
                content = _content(whole)
                if path == CONVERTED and not self._is_exact:
                    exact, content = content, b""
                files[path] = ("tool" if status.st_mode & 0o100 else "file", content)
        status_lines, ignored, commit = self._status()
        entries = self._entries()
        if self._is_exact:
            status_lines |= self._unnoticed(status_lines, entries)
        refs = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return Seen(
            files=files,
            exact=exact,
            stats=stats,
            ignored=frozenset(ignored),
            entries=entries,
            status=status_lines,
            operation=self._operation(
                line for line in refs if line.decode().startswith(_OF_OPERATIONS)
            ),
            commit=commit,
            head=_content(os.path.join(self.git_dir, b"HEAD")),
            refs=tuple(
                line for line in refs if not line.decode().startswith((*_OWN, *_OF_OPERATIONS))
            ),
            index=_content(os.path.join(self.git_dir, b"index")),
        )

    def ignored_of(self, paths: Iterable[bytes]) -> set[bytes]:
        """Return the paths that the ignore rules match, tracked or not."""
        data = b"".join(path + b"\0" for path in paths)
        return (
            set(
                self.git("check-ignore", "--no-index", "-z", "--stdin", data=data, ok=(0, 1)).split(
                    b"\0"
                )[:-1]
            )
            if data
            else set()
        )

    def _is_behind_link(self, path: bytes) -> bool:
        parts = path.split(b"/")
        return any(
            os.path.islink(self.join(b"/".join(parts[:count]))) for count in range(1, len(parts))
        )

    def _walk(self) -> Iterable[bytes]:
        for parent, directories, names in os.walk(self.top):
            if parent == self.top:
                directories[:] = [name for name in directories if name != b".git"]
            elif b".git" in (*directories, *names):  # a submodule
                directories.clear()
                continue
            links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
            found = [
                os.path.relpath(os.path.join(parent, name), self.top) for name in [*names, *links]
            ]
            yield from (path for path in found if path != b".git")

    def _status(self) -> tuple[dict[bytes, bytes], list[bytes], bytes]:
        options = (
            "--branch",
            "--no-renames",
            "--untracked-files=all",
            "--ignored=traditional",
            "-z",
        )
        seen: dict[bytes, bytes] = {}
        ignored = []
        commit = b""
        for record in self.git("status", "--porcelain=v2", *options).split(b"\0"):
            if record.startswith((b"1 ", b"u ")):
                fields, path = (
                    record.split(b" ", 8 if record[:1] == b"1" else 10)[:-1],
                    record.split(b" ", 8 if record[:1] == b"1" else 10)[-1],
                )
                seen[path] = b" ".join(fields)
            elif record.startswith(b"! "):
                ignored.append(record[2:])
            elif record.startswith(b"# branch.oid "):
                commit = record[13:]
        return seen, ignored, commit

    def _unnoticed(
        self, status: Mapping[bytes, bytes], entries: Mapping[bytes, Entries]
    ) -> dict[bytes, bytes]:
        """Return the status lines of changes that git has not noticed yet.

        git does not notice if only conversion rules changed, until it reads the file.
        """
        if not os.path.lexists(self.join(ATTRIBUTES)) and not self.git(
            "config", "core.autocrlf", ok=(0, 1)
        ):
            return {}
        plain = {
            path: found[0]
            for path, found in entries.items()
            if len(found) == 1 and found[0][2:] == (b"0", b"0")
        }
        if not plain:
            return {}
        apart = {
            "GIT_INDEX_FILE": os.path.join(os.fsdecode(self.git_dir), "index without stat data")
        }
        data = b"".join(
            b"%s %s\t%s\0" % (mode, oid, path) for path, (mode, oid, *_) in plain.items()
        )
        self.git("update-index", "-z", "--index-info", data=data, env=apart)
        changed = self.git(
            "diff", "--name-only", "--diff-filter=M", "--no-renames", "-z", env=apart
        ).split(b"\0")[:-1]
        os.unlink(apart["GIT_INDEX_FILE"])
        found = {}
        for path in changed:
            mode, oid, *_ = plain[path]
            line = status.get(path, b" ".join([b"1 .M N...", mode, mode, mode, oid, oid]))
            found[path] = line[:3] + b"M" + line[4:]
        return found

    def _entries(self) -> dict[bytes, Entries]:
        found: dict[bytes, list[tuple[bytes, ...]]] = {}
        for mode, oid, stage, path, flags in _ENTRY.findall(
            self.git("ls-files", "-v", "--stage", "--debug", "-z")
        ):
            found.setdefault(path, []).append((mode, oid, stage, b"%x" % (int(flags, 16) & _MEANT)))
        return {path: tuple(entries) for path, entries in found.items()}

    def _operation(self, refs: Iterable[bytes]) -> dict[str, bytes]:
        git_dir = os.fsdecode(self.git_dir)
        if not any(os.path.exists(os.path.join(git_dir, name)) for name in _MARKS):
            return {}
        names = [*operation.FILES, *(name for name in PSEUDO_REFS if name not in _PASSING)]
        for directory in operation.DIRECTORIES:
            for parent, _, inside in os.walk(os.path.join(git_dir, directory)):
                names += [os.path.relpath(os.path.join(parent, name), git_dir) for name in inside]
        found = {
            name: _content(os.path.join(git_dir, name))
            for name in names
            if os.path.isfile(os.path.join(git_dir, name))
        }
        return found | {name.decode(): oid + b"\n" for name, oid in (line.split() for line in refs)}


@dataclass(frozen=True)
class Expected:
    """The result that a restore should have."""

    files: dict[bytes, File]
    entries: dict[bytes, Entries]
    operation: Mapping[str, bytes]
    unsure: set[bytes]
    """Untracked files that are missing afterwards, unless restored rules ignore them."""

    refused: bool
    """Whether something that no checkpoint can hold is in the way."""


def _rebase(operation: Mapping[str, bytes]) -> str:
    return next(
        (name for name in ("rebase-merge", "rebase-apply") if f"{name}/head-name" in operation), ""
    )


def is_at_its_start(operation: Mapping[str, bytes], refs: Sequence[bytes]) -> bool:
    """Return whether a rebase's branch is where an abort would set it."""
    state = _rebase(operation)
    branch = operation.get(f"{state}/head-name", b"").strip()
    return (
        not branch.startswith(b"refs/heads/")
        or branch + b" " + operation[f"{state}/orig-head"].strip() in refs
    )


def detached(operation: Mapping[str, bytes], refs: Sequence[bytes]) -> dict[str, bytes]:
    """Return an operation that moves no branch; `refs` name the current branches."""
    found = {
        name: content for name, content in operation.items() if name != "rebase-merge/update-refs"
    }
    state = _rebase(found)
    if found.get(f"{state}/head-name", b"").startswith(b"refs/heads/"):
        found[f"{state}/head-name"] = b"detached HEAD\n"
    if "rebase-merge/git-rebase-todo" in found:
        lines = found["rebase-merge/git-rebase-todo"].splitlines(keepends=True)
        found["rebase-merge/git-rebase-todo"] = b"".join(
            line for line in lines if not line.startswith((b"update-ref ", b"u "))
        )
    branch = b"refs/heads/" + found.get("BISECT_START", b"").strip()
    for name, oid in (line.split() for line in refs):
        if name == branch:
            found["BISECT_START"] = oid + b"\n"
    return found


def would_move(before: Seen, target: Seen) -> bool:
    """Return whether restoring the operation would move another branch at this commit."""
    moves = any(
        name.startswith(("rebase-merge/", "rebase-apply/", "sequencer/"))
        for name in target.operation
    )
    return moves and before.head.startswith(b"ref: ") and before.head != target.head


def brings_operation(before: Seen, target: Seen, paths: Sequence[bytes]) -> bool:
    """Return whether a restore replaces the operation in progress."""
    return before.commit == target.commit and not paths and not would_move(before, target)


def is_within(path: bytes, paths: Sequence[bytes]) -> bool:
    return not paths or any(path == one or path.startswith(one + b"/") for one in paths)


def expect(
    before: Seen,
    target: Seen,
    paths: Sequence[bytes] = (),
    written: frozenset[bytes] = frozenset(),
    *,
    index: bool = True,
) -> Expected:
    """Return the result that a restore should have.

    Args:
        before: the worktree before the restore.
        target: the captured worktree.
        paths: the paths to restore; none for all.
        written: files that only an undone restore wrote.
        index: whether the index entries of the paths are restored, too.
    """
    wanted = {path: file for path, file in target.captured.items() if is_within(path, paths)}
    files, unsure = {}, set()
    refused = False
    for path, file in before.files.items():
        above = any(one.startswith(path + b"/") for one in wanted)
        below = any(path.startswith(one + b"/") for one in wanted)
        if not is_within(path, paths):
            files[path] = file
            refused |= above
        elif path in wanted:
            continue
        elif path in before.ignored - written:
            refused |= below and path not in target.entries
            if not above and path not in target.entries:
                files[path] = file
        elif (
            path not in before.entries
            and path not in target.entries
            and path not in written
            and not above
            and not below
        ):
            unsure.add(path)
    entries = {path: entry for path, entry in before.entries.items() if not is_within(path, paths)}
    new = {path: entry for path, entry in target.entries.items() if is_within(path, paths)}
    for path in list(
        entries
    ):  # a stage of the index cannot hold a file and a directory of one name
        taken = {
            entry[2]
            for one in new
            if one.startswith(path + b"/") or path.startswith(one + b"/")
            for entry in new[one]
        }
        entries[path] = tuple(entry for entry in entries[path] if entry[2] not in taken)
        if not entries[path]:
            del entries[path]
    brings = brings_operation(before, target, paths)
    if paths and not index:
        return Expected(files | wanted, dict(before.entries), before.operation, unsure, refused)
    return Expected(
        files | wanted,
        entries | new,
        target.operation if brings else before.operation,
        unsure,
        refused,
    )


def _content(path: str | bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()
