"""Find the last places that had a file, and the commands that bring it back."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence

from gitckpt.git.worktree import administration
from gitckpt.model import times
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.checkpoint import GUARD
from gitckpt.model.ids import SHORT
from gitckpt.model.values import dataclass
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.history.log import Listing, files_name, find_in_trees, has_files
from gitckpt.store.records.entry import CheckpointInfo, Query

CHECKPOINT, STASH, COMMIT, REFLOG, WORKTREE = "checkpoint", "stash", "commit", "reflog", "worktree"
_FORMAT = "--format=%H%x00%ct%x00%s"
_AT_ONCE = 500  # names that are looked up at once
_MOST_COMMITS = 1000
_REFS = ("--branches", "--tags", "--remotes")
_SPECIAL = frozenset("*?[\\")  # of pathspecs


@dataclass(frozen=True, slots=True)
class FileSource:
    """The last place of its kind that had the file, or had other contents of it."""

    kind: str  # one of the five above
    name: str  # an id, an oid, `stash@{0}` or the path of a worktree
    time: int  # in microseconds since the epoch
    title: str  # a message or subject; "" for none
    oid: str  # of the content; "" in a worktree
    command: str  # that brings it back
    ended_by: str | None = None  # what deleted or changed it then: a checkpoint or commit
    ended: int | None = None  # when
    was_deleted: bool = False  # otherwise it was changed
    after_gap: bool = False  # between both are checkpoints that do not tell which files were there


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a file is and was; `places` come newest first."""

    path: bytes
    is_here: bool  # in this worktree; `places` then have other contents
    places: list[FileSource]


@dataclass(frozen=True, slots=True)
class _Commit:
    oid: str
    time: int
    subject: str


class _Finder:
    def __init__(self, store: Checkpoints, path: bytes, typed: str) -> None:
        self._store, self._repository, self._path = store, store.repository, path
        self._quoted = shell_quoted(typed)
        is_pathspec = typed.startswith(":") or not _SPECIAL.isdisjoint(typed)
        self._pathspec = shell_quoted(f":(literal){typed}") if is_pathspec else self._quoted
        top = os.fsencode(store.repository.worktree or "")
        self._here = os.path.join(top, path) if top else b""
        self.is_here = bool(top) and os.path.lexists(self._here)
        self._oid = self._hash_here() if self.is_here else None

    def _hash_here(self) -> str | None:
        mode = os.lstat(self._here).st_mode
        git = self._repository.git
        if stat.S_ISLNK(mode):
            return git.run("hash-object", "--stdin", data=os.readlink(self._here)).text
        if not stat.S_ISREG(mode):
            return None
        return git.run("hash-object", "--", os.fsdecode(self._here)).text

    def _is_other(self, oid: str | None) -> bool:
        return oid is not None and oid != self._oid

    def find_places(self) -> list[FileSource]:
        stashes = self._list_commits("-g", "refs/stash")
        found = (
            self._in_checkpoints(),
            self._in_kept_commits(),
            self._in_stashes(stashes),
            self._in_commits(),
            self._in_reflogs(stashes),
            self._in_worktrees(),
        )
        return sorted(filter(None, found), key=lambda place: place.time, reverse=True)

    def _restore_command(self, source: str) -> str:
        safely = "git ckpt save && " if self.is_here else ""
        return f"{safely}git restore --source={shell_quoted(source)} -- {self._pathspec}"

    def _look_up(self, names: Iterable[str]) -> Iterator[str | None]:
        waiting = list(names)
        for start in range(0, len(waiting), _AT_ONCE):
            portion = waiting[start:][:_AT_ONCE]
            yield from (oid for (oid,) in find_in_trees(self._repository, portion, [self._path]))

    # Checkpoints

    def _in_checkpoints(self) -> FileSource | None:
        listing = Listing(self._store, Query())
        entries = listing.read_all()
        oids = self._look_up(files_name(entry) for entry in entries if has_files(entry))
        newer: dict[str, CheckpointInfo] = {}
        newer_oids: dict[str, str | None] = {}
        gaps: set[str] = set()  # worktrees with such checkpoints since the newer one
        for entry in entries:
            key, oid = listing.keys[entry.id], next(oids) if has_files(entry) else None
            if oid is not None and self._is_other(oid):
                command = f"git ckpt restore {entry.id[:SHORT]} -- {self._quoted}"
                then = newer.get(key)
                return FileSource(
                    *(CHECKPOINT, entry.id, entry.time, entry.message or entry.label, oid, command),
                    ended_by=f"checkpoint {then.id[:SHORT]}" if then is not None else None,
                    ended=then.time if then is not None else None,
                    was_deleted=newer_oids.get(key) is None,
                    after_gap=key in gaps,
                )
            if entry.examined and has_files(entry):
                newer[key], newer_oids[key] = entry, oid
                gaps.discard(key)
            elif entry.trigger != GUARD:
                gaps.add(key)
        return None

    def _in_kept_commits(self) -> FileSource | None:
        """Look in the commits, such as dropped stashes, that guards have kept."""
        entries = self._store.list(Query(triggers=["guard"]))
        for entry in entries:
            if entry.examined or not entry.git_sha:
                continue
            for tip in self._list_kept_tips(entry.git_sha):
                names = [f"{tip}{parent}^{{tree}}" for parent in ("^3", "", "^2")]
                for name, oid in zip(names, self._look_up(names), strict=True):
                    if oid is not None and self._is_other(oid):
                        command = self._restore_command(name.removesuffix("^{tree}"))
                        title = entry.message or entry.label
                        return FileSource(CHECKPOINT, entry.id, entry.time, title, oid, command)
        return None

    def _list_kept_tips(self, commit: str) -> list[str]:
        content = next(self._repository.cat_file.read_contents([commit]))
        header = content[2].partition(b"\n\n")[0].split(b"\n") if content is not None else []
        is_made_here = any(line.startswith(b"author gitckpt <gitckpt>") for line in header)
        parents = [line[7:].decode("ascii") for line in header if line.startswith(b"parent ")]
        return parents if is_made_here else [commit]

    # Commits

    def _list_commits(self, *words: str, pathspecs: Sequence[str] = ()) -> list[_Commit]:
        limit = f"-n{_MOST_COMMITS}"
        options = ("--no-show-signature", limit, _FORMAT)
        arguments = ("--literal-pathspecs", "log", *options, *words, "--", *pathspecs)
        out = self._repository.git.run(*arguments, ok=(0, 128)).out  # 128: an unborn branch
        fields = (line.split("\0", 2) for line in out.decode("utf-8", "replace").split("\n"))
        return [
            _Commit(oid, int(date) * times.MICRO, text)
            for oid, date, text in filter(_is_whole, fields)
        ]

    def _in_stashes(self, stashes: Sequence[_Commit]) -> FileSource | None:
        for number, stash in enumerate(stashes):
            names = [f"{stash.oid}{parent}^{{tree}}" for parent in ("^3", "", "^2", "^1")]
            *oids, base = self._look_up(names)
            for parent, oid in zip(("^3", "", "^2"), oids, strict=True):
                if oid is not None and self._is_other(oid) and oid != base:
                    name = f"stash@{{{number}}}"
                    command = self._restore_command(name + parent)
                    return FileSource(STASH, name, stash.time, stash.subject, oid, command)
        return None

    def _in_commits(self) -> FileSource | None:
        words = ("--no-renames", "HEAD", *_REFS)
        commits = self._list_commits(
            *words, pathspecs=[os.fsdecode(self._path)] if self._path else ()
        )
        then, then_oid = None, None
        oids = self._look_up(f"{commit.oid}^{{tree}}" for commit in commits)
        for commit, oid in zip(commits, oids, strict=True):
            if oid is not None and self._is_other(oid):
                command = self._restore_command(commit.oid[:10])
                return FileSource(
                    *(COMMIT, commit.oid, commit.time, commit.subject, oid, command),
                    ended_by=f"commit {then.oid[:10]}" if then is not None else None,
                    ended=then.time if then is not None else None,
                    was_deleted=then_oid is None,
                )
            then, then_oid = commit, oid
        return None

    def _in_reflogs(self, stashes: Sequence[_Commit]) -> FileSource | None:
        """Look in the commits that only reflogs have, such as before a reset."""
        others = (f"^{stash.oid}" for stash in stashes)
        commits = self._list_commits("--reflog", *others, "--not", "HEAD", *_REFS)
        oids = self._look_up(f"{commit.oid}^{{tree}}" for commit in commits)
        for commit, oid in zip(commits, oids, strict=True):
            if oid is not None and self._is_other(oid):
                command = self._restore_command(commit.oid[:10])
                return FileSource(REFLOG, commit.oid, commit.time, commit.subject, oid, command)
        return None

    # Worktrees

    def _in_worktrees(self) -> FileSource | None:
        main = administration.main_worktree(self._repository)
        tops = [top for _, top in administration.list_worktrees(self._repository)]
        found = []
        for top in (*([main] if main else []), *tops):
            file = os.path.join(os.fsencode(top), self._path)
            if top == self._repository.worktree or not os.path.lexists(file):
                continue
            if self.is_here and _have_same_content(file, self._here):
                continue
            safely = "git ckpt save && " if self.is_here else ""
            words = f"{shell_quoted(os.fsdecode(file))} {self._quoted}"
            instant = os.lstat(file).st_mtime_ns // 1000
            found.append(FileSource(WORKTREE, top, instant, "", "", f"{safely}cp -pR -- {words}"))
        return max(found, key=lambda place: place.time, default=None)


def _is_whole(fields: Sequence[str]) -> bool:
    return len(fields) == 3 and fields[1].isdigit()


def _have_same_content(first: bytes, second: bytes) -> bool:
    import filecmp

    if not (os.path.isfile(first) and os.path.isfile(second)):
        return False
    return filecmp.cmp(first, second, shallow=False)


def find(store: Checkpoints, path: bytes, typed: str) -> Whereabouts:
    """Find the places that had a file; if it is here, those with other contents.

    Args:
        store: its checkpoints are searched, and the repository.
        path: relative to the top of the worktree.
        typed: the path in commands, relative to the current directory.
    """
    finder = _Finder(store, path, typed)
    return Whereabouts(path, finder.is_here, finder.find_places())
