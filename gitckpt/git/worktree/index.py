"""A private copy of a worktree's index, which git works on instead of the user's.

It starts as a copy of the user's index with its time stamp, so that git reads again only files that may have changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping, Sequence

from gitckpt.git import config
from gitckpt.git.command import NO_HOOKS
from gitckpt.git.files import premises
from gitckpt.git.files.refs_stat import content_mark
from gitckpt.git.filesystem import copied_within
from gitckpt.git.objects.diff import leaves
from gitckpt.git.objects.encoding import FILES, GITLINK, object_hash, object_id, oid_size
from gitckpt.git.process import DeadlinePassed, GitError
from gitckpt.git.refs import LockHeld
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import TRIES, IndexWatch, failing_filters, filters_off, met_change
from gitckpt.model.errors import BusyError, WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from types import TracebackType
    from typing import BinaryIO, Self, TypeAlias

    from gitckpt.git.process import Child, Completed

    IndexEntry: TypeAlias = tuple[bytes, bytes, str, int, bytes]
    """Path, mode, oid, stage, and git's tag: H; S for one to be skipped, M for one in conflict; small for one assumed to be unchanged."""


# A private copy of a worktree's index, which git works on instead of the user's.


# The extensions of other programs' indexes are not for this copy: split, it would leave shared files behind; a file system monitor or
# the untracked cache would have to be believed, where looking is the point; and git 2.39 lists one file many times where it makes an
# index sparse that has entries added in intent only.
_PLAIN = (
    *("-c", "core.splitIndex=false", "-c", "core.untrackedCache=false", "-c", "index.sparse=false"),
    *("-c", "core.fsync=pack,pack-metadata,none", *NO_HOOKS),  # loose objects are flushed side by side, before a ref leads to them
    # What is larger goes into a pack, piece by piece: git holds the whole of a smaller file in memory, and 512 MB is its idea of small.
    *("-c", "core.bigFileThreshold=32m"),
)
PARALLEL = ("-c", f"checkout.workers={max(8, os.cpu_count() or 1)}", "-c", "checkout.thresholdForParallelism=100")
"""Options for git commands that write files, where git by itself writes alone. More processes than cores: they wait for the disk."""

_LOOK = (
    *("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all"),
    *("--no-renames", "--no-ahead-behind", "--ignore-submodules=none"),
)
_ENTRY = re.compile(rb"([A-Za-z]) ([0-7]{6}) ([0-9a-f]+) ([0-3])\t([^\0]+)\0")

_GRAIN = 2_000_000_000
"""In nanoseconds: the coarsest time stamps of file systems. Another one than ours may have a clock of its own, too."""


class PrivateIndex:
    """A copy of an index, from `open` on. A context manager that opens and closes it; the copy is gone at its end.

    Args:
        repository: seen from the worktree whose index it is.
        deadline: when to give up, on the clock of `time.monotonic`.

    Attributes:
        path: absolute path of the copy.
        is_rebuilt: whether the user's index could not be read, so that this one starts from the commit, with nothing staged.
        opened: when it was opened, by the file system that the worktree is on, in nanoseconds: what changed before was not changed since.
    """

    def __init__(self, repository: Repository, deadline: float | None = None) -> None:
        self.repository = repository
        self.deadline = deadline
        self.is_rebuilt = False
        self.opened = 0
        self._look: Child | None = None
        self._origin: BinaryIO | None = None
        self.path = repository.scratch("index")
        self._watch = IndexWatch(self.path)
        self._options = [*_PLAIN]
        if not os.path.exists(os.path.join(repository.git_dir, "hEAD")):
            self._options += ["-c", "core.ignoreCase=false"]  # set by mistake, it would hide README beside readme
        if _has_links(repository):
            self._options += ["-c", "core.symlinks=true"]  # or a link and a file that stands for one would be the same

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def open(self) -> None:
        """Copies the user's index, unless that was done.

        Raises:
            WorktreeError: it cannot be copied.
        """
        if self._look is not None:
            return
        top = self.repository.worktree
        if top is not None and not os.path.isdir(top):  # whoever works in it may have deleted or moved it
            state = "no directory" if os.path.lexists(top) else "gone"
            raise WorktreeError(f"cannot look at the files of {top}: it is {state}", hint="if it is that of a run: git ckpt resume")
        try:
            self.opened = _clock(self.repository)
        except FileNotFoundError:
            raise self._watch.failure() from None
        try:
            self.copy_from(os.path.join(self.repository.git_dir, "index"))
        except BaseException:
            self._let_go()
            self._remove()
            raise

    def close(self) -> None:
        """Removes the copy, and ends what still looks."""
        self._stop_looking()
        self._let_go()
        self._remove()

    def look(self, *options: str) -> Child:
        """Returns a `git status` as a surveyor reads it, for `finish`: one that looks already, or a new one.

        Args:
            options: settings for git; with any, a new one starts.
        """
        child, self._look = self._look, None
        if child is not None and options:
            child.kill_group()
        return child if child is not None and not options else self.start(*options, *_LOOK)

    def look_ahead(self) -> None:
        """Lets git begin to look at the files, for `look` to find it at work."""
        self._look = self.start(*_LOOK)

    def _stop_looking(self) -> None:
        child, self._look = self._look, None
        if child is not None:
            child.kill_group()

    def copy_from(self, path: str) -> None:
        """Starts again as a copy of another index, or as an empty one where there is none.

        Raises:
            WorktreeError: it cannot be copied.
        """
        self._stop_looking()
        self._let_go()
        if not os.path.exists(path):
            self._remove()
            return
        try:
            origin = self._origin = open(path, "rb")  # noqa: SIM115 - held until the copy is gone
            self._watch.begin()
            with self._watch:
                _copy(origin, self.path)
        except OSError as error:
            place = os.path.dirname(self.path)  # not by its own name: who tries again and again says the same again
            raise WorktreeError(f"cannot copy the index into {place}: {error.strerror}") from None

    def git(self, *args: str, data: bytes = b"", ok: Sequence[int] = (0,)) -> bytes:
        """Runs a git command on this index and returns its output.

        Raises:
            GitError: another exit code; DeadlinePassed: it took too long.
        """
        return self.run(*args, data=data, ok=ok).out

    def run(self, *args: str, data: bytes = b"", ok: Sequence[int] = (0,), env: Mapping[str, str] | None = None) -> Completed:
        """Runs a git command on this index and returns all that it said; `env` are more variables. Raises as `git`."""
        environment = {"GIT_INDEX_FILE": self.path, **(env or {})}
        left = TRIES
        while True:
            try:
                with self._watch:
                    return self.repository.git.run(*self._options, *args, data=data, env=environment, ok=ok, deadline=self.deadline)
            except GitError as error:
                left -= 1
                if not left or not met_change(error):
                    raise
            self.unlock()

    def unlock(self) -> None:
        """Removes the lock on this copy that a git of ours has left which was killed."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}.lock")

    def edit(self, *args: str, data: bytes = b"", ok: Sequence[int] = (0,)) -> Completed:
        """Run a git command that writes this index and stores no file.

        When git writes an index, it compares all files that are as young as the one before. Filters
        that fail at that are switched off. Raises as `git`.
        """
        try:
            return self.run(*args, data=data, ok=ok)
        except GitError as error:
            failing = failing_filters(self.repository, error)
            if not failing:
                raise
        return self.run(*filters_off(failing), *args, data=data, ok=ok)

    def start(self, *args: str) -> Child:
        """Starts a git command on this index, for `finish`."""
        return self.repository.git.start(*self._options, *args, env={"GIT_INDEX_FILE": self.path})

    def finish(self, child: Child, *, ok: Sequence[int] = (0,)) -> bytes:
        """Waits for a command that was started, and returns its output. Raises as `git`."""
        with self._watch:
            return self.repository.git.finish(child, child.argv[6:], ok=ok, deadline=self.deadline).out

    def require_time(self, doing: str) -> None:
        """Raises `DeadlinePassed` where the time is over: for what is done without git.

        Args:
            doing: what takes the place of a git command in the error.
        """
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise DeadlinePassed([doing], 0, "it took too long")

    def write_tree(self) -> str:
        """Writes this index as a tree, and returns its oid; blobs that a partial clone lacks may be missing.

        Raises:
            GitError: entries are in conflict, or git cannot write.
        """
        return self.edit("write-tree", "--missing-ok").out.strip().decode("ascii")

    def entries(self, mode: bytes = b"") -> list[IndexEntry]:
        """Returns what this index lists, sorted by path and stage (git-ls-files(1)). Raises as `git`.

        Args:
            mode: of those that are wanted, where they are few: all of 100,000 take 0.15 seconds.
        """
        listing = self.git("ls-files", "--stage", "-v", "-z")
        if mode:
            listing = b"".join(line + b"\0" for line in listing.split(b"\0") if line[2:8] == mode)
        listed = _ENTRY.findall(listing)
        return [(path, mode, oid.decode("ascii"), int(stage), tag) for tag, mode, oid, stage, path in listed]

    def refresh(self) -> None:
        """Has git note when files last changed that have changed in nothing else, so that it need not read them again. Raises as `git`."""
        self.edit("update-index", "-q", "--refresh", ok=(0, 1))

    def look_at_young(self) -> None:
        """Let git compare files as young as this index now, and not once more.

        Raises as `git`.
        """
        self.edit("update-index", "-q", "--refresh", "--force-write-index", ok=(0, 1))
        later = time.time() + _GRAIN / 1e9
        os.utime(self.path, (later, later))

    def put(self, lines: Iterable[bytes]) -> None:
        """Sets or removes entries.

        Args:
            lines: each as `git update-index --index-info` takes it, without the end: mode, oid, stage, tab, path; mode 0 removes.

        Raises:
            GitError: git refuses a path.
        """
        data = b"".join(line + b"\0" for line in lines)
        if data:
            done = self.edit("update-index", "-z", "--index-info", data=data)
            if "Ignoring path" in done.complaint:  # git goes on without it, and calls that success
                raise GitError(["update-index"], done.code, done.complaint)

    def is_whole(self) -> bool:
        """Tells whether this index ends with the checksum of all before it (gitformat-index(5)): git reads one that was cut off."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return True
        size = oid_size(self.repository.object_format)
        checksum = data[-size:]
        return not checksum.strip(b"\0") or object_hash(self.repository.object_format, data[:-size]).digest() == checksum

    def update(self, option: str, paths: Iterable[bytes]) -> None:
        """Does to some entries what an option of `git update-index` says.

        Args:
            option: such as "--force-remove" or "--skip-worktree".
            paths: of the entries; without any, nothing is done.
        """
        data = b"".join(path + b"\0" for path in paths)
        if data:
            self.edit("update-index", option, "-z", "--stdin", data=data)

    def rebuild(self, commit: str) -> None:
        """Starts again from a commit ("" for none), as the user's index cannot be read."""
        self.close()
        self.git("read-tree", commit or "--empty")
        self.is_rebuilt = True

    def require_unlocked(self) -> None:
        """Raises `LockHeld` if another process is about to change the worktree's index."""
        lock = os.path.join(self.repository.git_dir, "index.lock")
        if os.path.lexists(lock) and not _is_left_over(lock, self.repository.private_dir):
            raise LockHeld(lock)

    def require_latest(self) -> None:
        """Raises `BusyError` where the user's index lists something else than when it was copied: what was staged since is nowhere else.

        Git writes it anew whenever it has looked at files, which changes nothing that it lists.
        """
        target = os.path.join(self.repository.git_dir, "index")
        origin = self._origin
        then = os.fstat(origin.fileno()) if origin is not None else None
        try:
            now = os.stat(target)
        except FileNotFoundError:
            return
        if self.is_rebuilt or (then is not None and content_mark(now) == content_mark(then)):
            return
        words = ("ls-files", "--stage", "-v", "-z")
        with PrivateIndex(self.repository) as later:
            listed = later.git(*words)
        with contextlib.closing(PrivateIndex(self.repository)) as earlier:
            if origin is not None:
                _copy(origin, earlier.path)
            is_same = listed == earlier.git(*words)
        if not is_same or (then is not None and os.path.samestat(now, then)):
            raise BusyError(f"another process has changed {target} meanwhile", hint="look at git status, then run the command again")

    def install(self) -> None:
        """Makes this index the worktree's own, under git's lock and at once.

        Raises:
            LockHeld: another process is about to change the worktree's index.
            BusyError: as `require_latest`.
            WorktreeError: it cannot be written.
        """
        target = os.path.join(self.repository.git_dir, "index")
        lock = f"{target}.lock"
        try:
            with open(self.path, "rb+") as file:
                os.fsync(file.fileno())
            if _is_left_over(lock, self.repository.private_dir):
                os.unlink(lock)
            os.link(self.path, lock)
            try:
                self.require_latest()
                os.replace(lock, target)
            except BaseException:
                os.unlink(lock)
                raise
        except FileExistsError:
            raise LockHeld(lock) from None
        except OSError as error:
            raise WorktreeError(f"cannot write {target}: {error.strerror}") from None

    def _let_go(self) -> None:
        if self._origin is not None:
            self._origin.close()
            self._origin = None

    def _remove(self) -> None:
        self._watch.end()
        for leftover in (self.path, f"{self.path}.lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)


def _copy(source: BinaryIO, target: str) -> None:
    """Copies a file with its mode and its time stamp: by that git tells which entries are racy."""
    status = os.fstat(source.fileno())
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, status.st_mode & 0o777), "wb") as copy:
        if not copied_within(source.fileno(), copy.fileno(), status.st_size):
            source.seek(0)
            copy.write(source.read())
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _has_links(repository: Repository) -> bool:
    """Tells whether the worktree is on a file system that has symlinks, which is tried out beside our own files if these are on it, too."""
    scratch = repository.scratch("symlink")
    try:
        if os.stat(repository.private_dir).st_dev != os.stat(repository.worktree or "").st_dev:
            return False
        os.symlink("nowhere", scratch)
        os.unlink(scratch)
    except OSError:
        return False
    return True


def _clock(repository: Repository) -> int:
    directory = repository.make_private_dir()
    os.utime(directory)
    here = os.stat(directory)
    is_same = repository.worktree is None or os.stat(repository.worktree).st_dev == here.st_dev
    return here.st_ctime_ns - (0 if is_same else _GRAIN)


def _is_left_over(lock: str, directory: str) -> bool:
    """Tells whether a lock was left by a process that was killed in `install`: then it is one file with that process's private index."""
    try:
        found = os.stat(lock)
    except FileNotFoundError:
        return False
    if found.st_nlink == 1:
        return False
    from gitckpt.git.leftovers import is_alive

    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if name.startswith("index.") and os.path.samestat(os.stat(path), found):
            return not is_alive(int(name.split(".")[1]))
    return False


# Entries of an index that were added in intent only (`git add --intent-to-add`), whatever has become of their files.


EXECUTABLE, LINK, REPOSITORY = b"100755", b"120000", GITLINK
_FLAG = 0x20000000
"""CE_INTENT_TO_ADD, as `git ls-files --debug` prints it."""

_FEW = 100
_INTENT_ENTRY = re.compile(
    rb"([0-7]{6}) [0-9a-f]{40,64} 0\t([^\0]++)"
    rb"(?:\0(?:  [a-z]{1,9}: [0-9a-z:\t ]{1,80}\n){4}"
    rb"  size: \d{1,20}\tflags: ([0-9a-f]{1,16})\n|\Z)"
)
_ADD = ("add", "--sparse", "--intent-to-add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")


def placeholder(object_format: str) -> bytes:
    """Returns the oid that such entries have: that of the empty blob."""
    return object_id("blob", b"", object_format).encode("ascii")


def intended(index: PrivateIndex, paths: Collection[bytes]) -> dict[bytes, bytes]:
    """Returns those of some entries that were added in intent only, with their modes as in trees.

    Args:
        paths: of entries that could be, as they have the oid of the empty blob.
    """
    if not paths:
        return {}
    words = [os.fsdecode(path) for path in paths] if len(paths) <= _FEW else []
    listing = index.git("--literal-pathspecs", "ls-files", "--stage", "--debug", "-z", "--", *words)
    wanted = set(paths)
    entries = _INTENT_ENTRY.findall(listing)
    return {path: mode for mode, path, flags in entries if path in wanted and int(flags or b"0", 16) & _FLAG}


def forget_trees(index: PrivateIndex, paths: Collection[bytes]) -> None:
    """Has git write the trees above some entries anew, without them.

    Where the commit has an empty file, `git reset --hard` takes an entry in intent for that one, and keeps it among trees that it then
    calls written.

    Args:
        paths: of entries that were added in intent only; they are not assumed to be unchanged.
    """
    index.update("--no-assume-unchanged", paths)  # of all that git does to an entry, this changes nothing else


def add(index: PrivateIndex, paths: Collection[bytes], modes: Mapping[bytes, bytes]) -> None:
    """Adds entries in intent only; others in the place of them, or of directories above them, go.

    Git finds files of these names in a directory of our own: without a file it makes no such entry, and of the one in the worktree it
    would take the mode, which may be another one by now.

    Args:
        paths: of the entries.
        modes: as in trees, of those that are no plain files.

    Raises:
        GitError: git refuses a path.
    """
    if not paths:
        return
    wanted = sorted(set(paths))
    oid = placeholder(index.repository.object_format)
    index.put(b"100644 %s 0\t%s" % (oid, path) for path in wanted)  # git looks at the paths, which may have been fetched
    index.update("--force-remove", wanted)
    scratch = index.repository.scratch("intent")
    try:
        try:
            for path in wanted:
                whole = os.path.join(os.fsencode(scratch), path)
                _stand_in(whole, modes.get(path), index.repository.object_format)
        except OSError as error:
            raise GitError(["add"], 1, f"{os.fsdecode(error.filename)}: {error.strerror}") from None
        words = (f"--work-tree={scratch}", "-C", scratch, "-c", "core.fileMode=true", "-c", "core.symlinks=true")
        index.git(*words, "--literal-pathspecs", *_ADD, data=b"\0".join(wanted))
    finally:
        premises.discard(scratch)


def _stand_in(path: bytes, mode: bytes | None, object_format: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if mode == LINK:
        os.symlink(b"nowhere", path)
    elif mode == REPOSITORY:
        _stand_in_repository(os.path.join(path, b".git"), object_format)
    else:
        with open(path, "wb") as file:
            os.fchmod(file.fileno(), 0o700 if mode == EXECUTABLE else 0o600)


def _stand_in_repository(git_dir: bytes, object_format: str) -> None:
    """Make what git takes for a repository with a commit checked out."""
    for name in (b"objects", b"refs"):
        os.makedirs(os.path.join(git_dir, name))
    config = "[core]\n\trepositoryformatversion = 1\n"
    config += f"[extensions]\n\tobjectFormat = {object_format}\n"
    head = placeholder(object_format) + b"\n"  # any oid will do
    for name, content in ((b"config", config.encode("ascii")), (b"HEAD", head)):
        with open(os.path.join(git_dir, name), "xb") as file:
            file.write(content)


# The settings of a sparse checkout (git-sparse-checkout(1)), kept with a snapshot and brought back with it.


_NAMES = r"^(core\.sparsecheckout(cone)?|index\.sparse)$"
_ALL = b"/*"


def read(repository: Repository) -> bytes | None:
    """Returns the settings of a worktree; None where its checkout is not sparse.

    Args:
        repository: seen from the worktree.
    """
    try:
        with open(os.path.join(repository.git_dir, "info", "sparse-checkout"), "rb") as file:
            patterns = file.read().splitlines()
    except FileNotFoundError:
        return None  # git itself takes every file then, whatever its configuration says
    values = {name: config.is_on(found[-1]) for name, found in config.read(repository, _NAMES).items()}
    if not values.get("core.sparsecheckout"):
        return None
    listed = repository.git.run(*NO_HOOKS, "sparse-checkout", "list").out
    # Of patterns that it did not write itself, git says "disabling cone pattern matching", lists them as they are, and goes by them.
    is_cone = values.get("core.sparsecheckoutcone") and _ALL in patterns and _ALL not in listed.splitlines()
    words = ["cone" if is_cone else "no-cone", *(["index"] if values.get("index.sparse") else [])]
    return " ".join(words).encode() + b"\n" + listed


def bring_back(made: Repository, settings: bytes | None) -> None:
    """Gives a worktree that has no files yet the settings of a snapshot.

    Args:
        made: seen from the worktree.
        settings: as `read` returned them.

    Raises:
        GitError: git refuses them.
    """
    if settings is None:
        if read(made) is not None:  # git gives a new worktree those of the one it is made from
            made.git.run(*NO_HOOKS, "sparse-checkout", "disable")
        return
    head, _, listed = settings.partition(b"\n")
    words = head.split()
    cone = "--cone" if words[:1] == [b"cone"] else "--no-cone"
    index = "--sparse-index" if b"index" in words else "--no-sparse-index"
    made.git.run(*NO_HOOKS, "sparse-checkout", "set", cone, index, "--stdin", data=listed)


# What would be ignored, were the files of a worktree those of a snapshot.


RULES = b".gitignore"


def rules_in(repository: Repository, tree: str) -> dict[bytes, str]:
    """Returns the files of a tree that hold rules: oid by path."""
    return {path: oid for path, mode, oid in leaves(repository, tree) if os.path.basename(path) == RULES and mode in FILES}


def ignored_by(repository: Repository, rules: Mapping[bytes, str], paths: Sequence[bytes]) -> set[bytes]:
    """Returns the paths that git would ignore by some rules (and those of the repository and the user, as everywhere).

    Args:
        rules: oids of the files that hold them, by path.
        paths: relative to the top.
    """
    if not paths:
        return set()
    scratch = repository.scratch("rules")
    try:
        for path, oid in rules.items():
            _write(os.path.join(os.fsencode(scratch), path), _content(repository, oid))
        os.makedirs(scratch, exist_ok=True)
        words = (f"--work-tree={scratch}", "-C", scratch, "check-ignore", "--no-index", "-z", "--stdin")
        return set(repository.git.run(*words, data=b"\0".join(paths), ok=(0, 1)).out.split(b"\0")) - {b""}
    finally:
        premises.discard(scratch)


def _content(repository: Repository, oid: str) -> bytes:
    found = next(repository.cat_file.contents([oid]))
    return found[2] if found else b""


def _write(path: bytes, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
