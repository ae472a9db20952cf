"""Survey a worktree: git status, index flags, and files that git passes over."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping

from gitckpt.git.contents import layout
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.process import Child, GitError
from gitckpt.git.worktree import index as intent
from gitckpt.git.worktree import modules
from gitckpt.git.worktree.administration import TRIES, failing_filters, filters_off, met_change
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import quoted
from gitckpt.model.checkpoint import Omitted
from gitckpt.model.values import dataclass, field
from gitckpt.store.snapshot.manifest import ABSENT, ASSUMED, INTENT, SKIPPED, flags_of

# What git passes over silently: sockets, fifos, devices, and unreadable directories.

_KINDS = ((stat.S_ISSOCK, "a socket"), (stat.S_ISFIFO, "a fifo"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


class Scan:
    """A look into the directories of a worktree; paths are relative to its top.

    Attributes:
        found: paths that cannot be captured, each with the reason.
        seen: the directories that were looked into.
        modes: of directories without the top, from lstat(2).
        repositories: tops of other repositories; not all of those in ignored directories.
        apart: directories to leave out; to be set before `look_elsewhere`.
    """

    def __init__(self, index: PrivateIndex) -> None:
        self._index = index
        self._top = os.fsencode(index.repository.worktree or "")
        self._unknown: set[bytes] = set()
        self._special: list[tuple[bytes, str]] = []
        self.found: list[tuple[bytes, str]] = []
        self.seen: set[bytes] = set()
        self.modes: dict[bytes, int] = {}
        self.repositories: list[bytes] = []
        self.apart: Collection[bytes] = ()

    def look(self, directories: Iterable[bytes]) -> None:
        """Look into directories that are not ignored, parents first."""
        for directory in sorted(directories):
            is_inside = not directory or os.path.dirname(directory) in self.seen  # not behind a link
            if is_inside and directory not in self.seen:
                self._look(directory)

    def look_elsewhere(self) -> None:
        """Look into the subdirectories found, unless they are ignored or repositories."""
        while self._unknown:
            new = sorted((self._unknown - self.seen).difference(self.apart))
            others = [path for path in new if os.path.lexists(self._join(path, b".git"))]
            there = sorted(set(new).difference(others))
            self.repositories += others
            self._unknown.clear()
            ignored = self._ignored(there)  # with a slash, a directory's own rules would decide
            self.look(path for path in there if path not in ignored)
        ignored = self._ignored([path for path, _ in self._special])
        self.found += [(path, reason) for path, reason in self._special if path not in ignored]
        self._special.clear()

    def _look(self, directory: bytes) -> None:
        prefix = directory + b"/" if directory else b""
        whole = self._join(directory)
        try:
            status = os.lstat(whole)
            if not stat.S_ISDIR(status.st_mode):
                return
            directories, special = _list(whole)
        except PermissionError:
            self.found.append((prefix, "cannot be read: permission denied"))
            return
        except (FileNotFoundError, NotADirectoryError):
            return  # it is tracked, and no longer there
        self.seen.add(directory)
        if directory:
            self.modes[directory] = status.st_mode
        self._unknown.update(prefix + name for name in directories)
        self._special += [(prefix + name, kind) for name, kind in special]

    def _ignored(self, paths: list[bytes]) -> set[bytes]:
        if not paths:
            return set()
        out = self._index.git("check-ignore", "--no-index", "-z", "--stdin", data=b"\0".join(paths), ok=(0, 1))
        return set(out.split(b"\0"))

    def _join(self, *parts: bytes) -> bytes:
        return os.path.join(self._top, *parts)


def _list(directory: bytes) -> tuple[list[bytes], list[tuple[bytes, str]]]:
    """Return the subdirectories, and sockets, pipes and devices with their kind."""
    directories, special = [], []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) or entry.is_symlink():
                continue
            if not entry.is_dir(follow_symlinks=False):
                special.append((entry.name, _kind(entry)))
            elif entry.name != b".git":
                directories.append(entry.name)
    return directories, special


def _kind(entry: os.DirEntry[bytes]) -> str:
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "gone"
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")


# The whole survey.

_FLAGS = {b"h": (ASSUMED,), b"s": (ASSUMED, SKIPPED), b"S": (SKIPPED,)}
_PASSED_OVER = "files in the place of a submodule that is not checked out: git passes them over"
_INSTEAD = ", in the place of a tracked file, which the checkpoint has as the index does"
_GONE = b"000000"


@dataclass(slots=True)
class Survey:
    """What a worktree holds. Paths are relative; directories end in a slash."""

    commit: str = ""  # what HEAD pointed to; "" on an unborn branch
    is_staged: bool = False  # whether the index differs from the commit
    # Entries in conflict by stage, each mode, space, oid, tab and path.
    conflicts: dict[int, list[bytes]] = field(default_factory=dict)
    unmerged: list[bytes] = field(default_factory=list)
    # Tracked paths that are in conflict, or whose file differs from the index.
    changed: list[bytes] = field(default_factory=list)
    staged: dict[bytes, bytes] = field(default_factory=dict)  # their oids, unless in conflict
    deleted: list[bytes] = field(default_factory=list)  # those of `changed` without a file
    untracked: list[bytes] = field(default_factory=list)
    nested: list[bytes] = field(default_factory=list)  # directories of other repositories
    # Bare repositories and the repository's own directories, without a slash: left out.
    apart: Collection[bytes] = ()
    vanished: dict[bytes, bytes] = field(default_factory=dict)  # oids of deleted entries, by path
    submodules: dict[bytes, Omitted] = field(default_factory=dict)
    flags: dict[str, list[bytes]] = field(default_factory=dict)  # paths by flag, as in `Contents`
    passed_over: list[Omitted] = field(default_factory=list)  # sockets, unreadable directories
    directories: Collection[bytes] = ()  # those not ignored; the top is the empty path
    leading: Collection[bytes] = ()  # directories of index entries, and the top
    modes: Mapping[bytes, int] = field(default_factory=dict)  # of directories, from lstat(2)


class Surveyor:
    """Looks at a worktree, from the moment it is made.

    It clears flags in the private index, so that git looks at files marked as assume-unchanged,
    and at existing ones marked as skip-worktree.
    """

    def __init__(self, index: PrivateIndex) -> None:
        self._index = index
        self._status = index.look()
        self._listing: Child | None = None

    def begin(self) -> None:
        """Start to list the flags of the index."""
        if not self._index.is_whole():
            raise GitError(["ls-files"], 128, "index file corrupt")
        self._listing = self._index.start("ls-files", "-v", "-z")

    def stop(self) -> None:
        for child in (self._listing, self._status):
            if child is not None and not child.has_ended:
                child.kill_group()

    def finish(self, *, is_sparse: bool) -> Survey:
        """Wait for git and return what the worktree holds."""
        found = Survey()
        tracked = self._tracked(found, is_sparse=is_sparse)
        found.apart = modules.own_directories(self._index.repository)
        scan = Scan(self._index)
        scan.look(path for path in tracked if not modules.lies_in(path, found.apart))  # while git looks at the files
        _read_status(self._status_out(), found)
        _set_apart(self._index, found, tracked)
        scan.apart = found.apart
        _read_intended(self._index, found)
        above = leading_to(found.untracked)
        scan.look(above)
        scan.look_elsewhere()
        found.directories, found.leading, found.modes = scan.seen, tracked, scan.modes
        changed = set(found.changed)
        found.passed_over = [Omitted(quoted(path), reason + (_INSTEAD if path in changed else "")) for path, reason in scan.found]
        _read_submodules(self._index, found, scan.repositories, _bare(scan, set(tracked), above))
        return found

    def _status_out(self) -> bytes:
        try:
            return self._finished()
        except GitError as error:
            # Files that need a failing required filter count as changed.
            failing = failing_filters(self._index.repository, error)
            if not failing:
                raise
        self._status = self._index.look(*filters_off(failing))
        return self._index.finish(self._status)

    def _finished(self) -> bytes:
        left = TRIES
        while True:
            try:
                return self._index.finish(self._status)
            except GitError as error:
                left -= 1  # a file changed while git read it: ask again
                if not left or not met_change(error):
                    raise
            self._index.unlock()
            self._status = self._index.look()

    def _tracked(self, found: Survey, *, is_sparse: bool) -> Collection[bytes]:
        """Return the directories that lead to tracked files; note the flags of the index."""
        paths = _read_flags(self._index.finish(self._listing), found) if self._listing is not None else []
        if _look_again(self._index, found, is_sparse=is_sparse):
            status, self._status = self._status, self._index.look()
            status.kill_group()
        return leading_to(paths)


def _read_flags(listing: bytes, found: Survey) -> list[bytes]:
    """Return the tracked paths, and note the flagged ones."""
    entries = listing.split(b"\0")[:-1]
    if any(b"\0%s " % tag in listing or listing.startswith(tag + b" ") for tag in _FLAGS):
        for entry in entries:
            for flag in _FLAGS.get(entry[:1], ()):
                found.flags.setdefault(flag, []).append(entry[2:])
    return [entry[2:] for entry in entries]


def _look_again(index: PrivateIndex, found: Survey, *, is_sparse: bool) -> bool:
    """Clear index flags so that git looks at these files; return if there are any."""
    assumed, skipped = found.flags.get(ASSUMED, []), found.flags.get(SKIPPED, [])
    if is_sparse:
        skipped = []  # git itself clears the flag if there is a file
    elif skipped:
        top = os.fsencode(index.repository.worktree or "")
        absent = [path for path in skipped if not os.path.lexists(os.path.join(top, path))]
        if absent:
            found.flags[ABSENT] = absent
            skipped = sorted(set(skipped) - set(absent))
    index.update("--no-assume-unchanged", assumed)
    index.update("--no-skip-worktree", skipped)
    return bool(assumed or skipped)


def leading_to(paths: Iterable[bytes]) -> set[bytes]:
    """Return the directories that lead to paths; the top is the empty path."""
    return layout.with_above({path.rpartition(b"/")[0] for path in paths}) | {b""}


def _read_status(out: bytes, found: Survey) -> None:
    """Read `git status --porcelain=v2 -z` (git-status(1))."""
    for record in out.split(b"\0"):
        kind = record[:1]
        if kind == b"1":
            _, xy, submodule, *modes, _, oid, path = record.split(b" ", 8)
            found.staged[path] = oid
            if xy[1:] == b"D":
                found.vanished[path] = oid
            _read_changed(found, xy, submodule, modes[2], path)
        elif kind == b"?":
            path = record[2:]
            (found.nested if path.endswith(b"/") else found.untracked).append(path)
        elif kind == b"u":
            *fields, path = record.split(b" ", 10)
            found.is_staged = True
            found.unmerged.append(path)
            found.changed.append(path)
            if fields[6] == _GONE:
                found.deleted.append(path)
            for stage in (1, 2, 3):
                if fields[2 + stage] != _GONE:
                    found.conflicts.setdefault(stage, []).append(b"%s %s\t%s" % (fields[2 + stage], fields[6 + stage], path))
        elif record.startswith(b"# branch.oid ") and record[13:] != b"(initial)":
            found.commit = record[13:].decode("ascii")


def _set_apart(index: PrivateIndex, found: Survey, tracked: Collection[bytes]) -> None:
    own = found.apart  # git's own directories; bare repositories without tracked files follow
    found.changed, found.deleted = ([path for path in paths if not modules.lies_in(path, own)] for paths in (found.changed, found.deleted))
    others = [path for path in found.untracked if not modules.lies_in(path, own)]
    bare = [path for path in modules.bare_above(os.fsencode(index.repository.worktree or ""), others) if path not in tracked]
    outermost = [path for path in bare if not modules.lies_in(os.path.dirname(path), bare)]
    found.untracked = [path for path in others if not modules.lies_in(path, outermost)]
    found.nested = [path for path in found.nested if not modules.lies_in(path, own)] + [path + b"/" for path in outermost]
    found.apart = [*own, *outermost]


def _read_changed(found: Survey, xy: bytes, submodule: bytes, mode: bytes, path: bytes) -> None:
    if xy[1:] == b"A":
        found.flags.setdefault(INTENT, []).append(path)
    if xy[:1] != b".":
        found.is_staged = True
    if xy[1:] == b".":
        return
    if submodule[:1] == b"S" and mode != _GONE:
        found.submodules[path] = Omitted("", "", dirty=submodule[2:] != b"..")
        if submodule[1:2] != b"C":
            return
    found.changed.append(path)
    if mode == _GONE:
        found.deleted.append(path)


def _read_intended(index: PrivateIndex, found: Survey) -> None:
    # `git status` shows an intent-to-add entry without a file like an empty file, and no modes.
    empty = intent.placeholder(index.repository.object_format) if found.vanished else b""
    candidates = [*found.flags.get(INTENT, ()), *(path for path, oid in found.vanished.items() if oid == empty)]
    intended = intent.intended(index, candidates)
    found.flags.update(flags_of(intended))
    intent.forget_trees(index, sorted(intended))


def _read_submodules(index: PrivateIndex, found: Survey, repositories: Collection[bytes], bare: Collection[bytes]) -> None:
    """Record each checked-out submodule and its commit, in `.gitmodules` or not.

    Args:
        repositories: directories that are the top of one.
        bare: directories in which git sees nothing. It passes over what is in the place of a
            submodule that is not checked out.
    """
    top = os.fsencode(index.repository.worktree or "")
    changed = found.submodules
    found.submodules = {}
    if not changed and not bare and not {path + b"/" for path in repositories}.difference(found.nested):
        return
    for path, _, staged, _, _ in index.entries(GITLINK):
        if not os.path.lexists(os.path.join(top, path, b".git")):
            if path in bare and any(leaves for _, _, leaves in os.walk(os.path.join(top, path))):
                found.passed_over.append(Omitted(quoted(path + b"/"), _PASSED_OVER))
            continue
        dirty = path in changed and bool(changed[path].dirty)
        oid = modules.head_of(os.path.join(top, path)) if path in changed else staged
        reason = "a submodule with uncommitted changes: its files stay in it" if dirty else "a submodule: its files stay in it"
        found.submodules[path] = Omitted(quoted(path), reason, oid=oid, dirty=dirty)


def _bare(scan: Scan, leading: Collection[bytes], told: Collection[bytes]) -> set[bytes]:
    """Return directories next to tracked files that hold no untracked files."""
    return {path for path in scan.seen if path not in leading and path not in told and path.rpartition(b"/")[0] in leading}
