"""Work on a private copy of the user's index; save intent-to-add and sparse state."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from gitckpt.git import config
from gitckpt.git.command import NO_HOOKS, STATUS, encode_paths
from gitckpt.git.files import private_dirs
from gitckpt.git.files.refs_stat import content_stamp
from gitckpt.git.filesystem import copy_in_kernel
from gitckpt.git.objects.diff import list_leaves
from gitckpt.git.objects.encoding import FILES, GITLINK, object_hash, object_id, oid_length
from gitckpt.git.process import Child, DeadlinePassed, GitError, ProcResult
from gitckpt.git.refs import LockHeld
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.model.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Self

    from gitckpt.git.command import Codes, Counted, Env

# Path, mode, oid, stage, and git's tag: H; S for skip-worktree, M for a conflict;
# lower case for assume-unchanged.
IndexEntry = tuple[bytes, bytes, str, int, bytes]

# Without extensions of the user's index: a split index would leave shared files behind, the
# untracked cache and a file system monitor would have to be trusted, and git 2.39 lists a file many
# times if it makes an index with intent-to-add entries sparse.
_PLAIN = (
    *("-c", "core.splitIndex=false", "-c", "core.untrackedCache=false", "-c", "index.sparse=false"),
    # Loose objects are flushed in parallel, before a ref is written.
    *("-c", "core.fsync=pack,pack-metadata,none", *NO_HOOKS),
    # git holds files below this size whole in memory; its default is 512 MB.
    *("-c", "core.bigFileThreshold=32m"),
)
# Options for git commands that write files, which git does with one process by default. There are
# more processes than cores: they wait for the disk.
_WORKERS = f"checkout.workers={max(8, os.cpu_count() or 1)}"
PARALLEL = ("-c", _WORKERS, "-c", "checkout.thresholdForParallelism=100")

_ENTRY = re.compile(rb"([A-Za-z]) ([0-7]{6}) ([0-9a-f]+) ([0-3])\t([^\0]+)\0")

# In nanoseconds: the coarsest time stamps of file systems. Another file system may also have
# another clock.
_GRAIN = 2_000_000_000


@dataclass(frozen=True, slots=True)
class WorktreeStatus:
    """What `git status` printed for the user's own index."""

    output: bytes
    start: int  # the time of the file system before git ran, in nanoseconds
    mark: object  # changes when the index is written

    @property
    def has_changes(self) -> bool:
        return any(not record.startswith(b"# ") for record in self.output.split(b"\0")[:-1])

    @property
    def is_detached(self) -> bool:
        return b"\0# branch.head (detached)\0" in self.output

    @classmethod
    def read(cls, repository: Repository, seconds: float | None = None) -> Self:
        """Ask git for at most `seconds`; raise GitError if it fails or takes longer."""
        start, mark = _read_file_system_time(repository), _index_mark(repository)
        words = ("--no-optional-locks", *_file_name_options(repository), *STATUS)
        limit = None if seconds is None else time.monotonic() + seconds
        return cls(repository.git.run(*words, deadline=limit).out, start, mark)


class PrivateIndex:
    """A private copy of the user's index, deleted at the end of the `with` block.

    git commands are killed at `deadline`, on the clock of `time.monotonic`. `is_rebuilt` is true if
    the user's index was unreadable, so that the copy has the files of a commit instead. `opened` is
    the time of the copy in nanoseconds.
    """

    def __init__(self, repository: Repository, deadline: float | None = None) -> None:
        self.repository = repository
        self.deadline = deadline
        self.is_rebuilt = False
        self.opened = 0
        self.known_status: WorktreeStatus | None = None  # the index has not been written since
        self._status: Child | None = None
        self._origin: BinaryIO | None = None
        self.path = repository.scratch_path("index")
        self._watch = administration.IndexDeletionWatch(self.path)
        self._options = [*_PLAIN, *_file_name_options(repository)]

    def __enter__(self) -> Self:
        self.copy_user_index()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def copy_user_index(self) -> None:
        if self._status is not None:
            return
        top = self.repository.worktree
        if top is not None and not os.path.isdir(top):  # it may have been deleted or moved
            state = "not a directory" if os.path.lexists(top) else "missing"
            message = f"cannot read the files of {top}: the worktree is {state}"
            raise WorktreeError(message, hint="if a run uses this worktree: git ckpt resume")
        try:
            self.opened = _read_file_system_time(self.repository)
        except FileNotFoundError:
            raise self._watch.index_deletion_error() from None
        try:
            self.copy_index_from(os.path.join(self.repository.git_dir, "index"))
        except BaseException:
            self.close()
            raise
        known = self.known_status
        if known is not None:
            is_current = known.mark == _index_mark(self.repository)
            self.known_status = known if is_current else None
            self.opened = known.start if is_current else self.opened

    def close(self) -> None:
        self._stop_status_process()
        if self._origin is not None:
            self._origin.close()
            self._origin = None
        self._watch.end_watching()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.delete_lock()

    def take_status_process(self, *options: str) -> Child:
        """Return the running `git status`; with `options`, start a new one."""
        if options:
            self._stop_status_process()
        child, self._status = self._status, None
        return child or self.start_git(*options, *STATUS)

    def start_status_process(self) -> None:
        self._status = self.start_git(*STATUS)

    def _stop_status_process(self) -> None:
        child, self._status = self._status, None
        if child is not None:
            child.kill_process_group()

    def copy_index_from(self, path: str) -> None:
        self.close()
        if not os.path.exists(path):
            return
        try:
            origin = self._origin = open(path, "rb")  # noqa: SIM115 - held until the copy is gone
            self._watch.begin_watching()
            with self._watch:
                _copy_index(origin, self.path)
        except OSError as error:
            # The file has a random name: retries must report the same message.
            place = os.path.dirname(self.path)
            raise WorktreeError(f"cannot copy the index into {place}: {error.strerror}") from None

    def git(self, *args: str, data: bytes = b"", ok: Sequence[int] = (0,)) -> bytes:
        return self.run(*args, data=data, ok=ok).out

    def run(
        self,
        *args: str,
        data: bytes = b"",
        ok: Codes = (0,),
        env: Env = None,
        progress: Counted | None = None,
    ) -> ProcResult:
        git, words, tries = self.repository.git, (*self._options, *args), administration.TRIES
        env = {"GIT_INDEX_FILE": self.path, **(env or {})}
        while True:
            try:
                with self._watch:
                    options: Any = {"ok": ok, "deadline": self.deadline, "progress": progress}
                    return git.run(*words, data=data, env=env, **options)
            except GitError as error:
                tries -= 1
                if not tries or not administration.has_file_changed(error):
                    raise
            self.delete_lock()

    def delete_lock(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}.lock")

    def edit_index(self, *args: str, data: bytes = b"", ok: Sequence[int] = (0,)) -> ProcResult:
        """Run a git command that changes this index but stores no content of files."""
        # git then compares files as young as the index before: failing filters are switched off.
        try:
            return self.run(*args, data=data, ok=ok)
        except GitError as error:
            failing_names = administration.find_failing_filters(self.repository, error)
            if not failing_names:
                raise
        return self.run(*administration.disable_filters(failing_names), *args, data=data, ok=ok)

    def start_git(self, *args: str) -> Child:
        return self.repository.git.start_git(
            *self._options, *args, env={"GIT_INDEX_FILE": self.path}
        )

    def wait_for_output(self, child: Child, *, ok: Sequence[int] = (0,)) -> bytes:
        git = self.repository.git
        with self._watch:
            return git.wait_and_check(child, child.argv[6:], ok=ok, deadline=self.deadline).out

    def require_time_left(self, command: str) -> None:
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise DeadlinePassed([command], 0, "timed out")

    def write_tree(self) -> str:
        return self.edit_index("write-tree", "--missing-ok").text

    def list_entries(self, mode: bytes = b"") -> list[IndexEntry]:
        # Filtering by mode is faster if few match: 100,000 entries take 0.15 seconds.
        output = self.git("ls-files", "--stage", "-v", "-z")
        if mode:
            output = b"".join(line + b"\0" for line in output.split(b"\0") if line[2:8] == mode)
        return [
            (path, mode, oid.decode("ascii"), int(stage), tag)
            for tag, mode, oid, stage, path in _ENTRY.findall(output)
        ]

    def refresh_stat_data(self) -> None:
        self.edit_index("update-index", "-q", "--refresh", ok=(0, 1))

    def refresh_racy_entries(self) -> None:
        """Compare the files of racy entries now, so that later git commands need not."""
        self.edit_index("update-index", "-q", "--refresh", "--force-write-index", ok=(0, 1))
        future_time = time.time() + _GRAIN / 1e9
        os.utime(self.path, (future_time, future_time))

    def put_entries(self, lines: Iterable[bytes]) -> None:
        """Set index entries from lines `MODE OID STAGE<tab>PATH`; mode 0 removes an entry."""
        data = b"".join(line + b"\0" for line in lines)
        if data:
            result = self.edit_index("update-index", "-z", "--index-info", data=data)
            if "Ignoring path" in result.error_text:  # git succeeds all the same
                raise GitError(["update-index"], result.code, result.error_text)

    def has_valid_checksum(self) -> bool:
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return True
        # It ends with a checksum, or with zeros by index.skipHash (gitformat-index(5)).
        object_format = self.repository.object_format
        size = oid_length(object_format)
        content, checksum = data[:-size], data[-size:]
        has_no_checksum = not checksum.strip(b"\0")
        return has_no_checksum or object_hash(object_format, content).digest() == checksum

    def update_paths(self, option: str, paths: Iterable[bytes]) -> None:
        if data := encode_paths(paths):
            self.edit_index("update-index", option, "-z", "--stdin", data=data)

    def rebuild_from_commit(self, commit: str) -> None:
        self.close()
        self.git("read-tree", commit or "--empty")
        self.is_rebuilt = True

    def require_user_index_unlocked(self) -> None:
        lock = os.path.join(self.repository.git_dir, "index.lock")
        if os.path.lexists(lock) and not _is_lock_of_killed(lock, self.repository.private_dir):
            raise LockHeld(lock)

    def require_user_index_unchanged(self) -> None:
        """Raise `BusyError` if entries of the user's index changed since it was copied."""
        # Only this index has what was staged since. A refresh of stat data changes no entry.
        target = os.path.join(self.repository.git_dir, "index")
        origin = self._origin
        old = os.fstat(origin.fileno()) if origin is not None else None
        try:
            new_status = os.stat(target)
        except FileNotFoundError:
            return
        if self.is_rebuilt or (old is not None and content_stamp(new_status) == content_stamp(old)):
            return
        words = ("ls-files", "--stage", "-v", "-z")
        with PrivateIndex(self.repository) as later_index:
            later_listing = later_index.git(*words)
        with contextlib.closing(PrivateIndex(self.repository)) as earlier_index:
            if origin is not None:
                _copy_index(origin, earlier_index.path)
            is_same = later_listing == earlier_index.git(*words)
        if not is_same or (old is not None and os.path.samestat(new_status, old)):
            hint = "look at git status, then run the command again"
            raise BusyError(f"another process has changed {target} meanwhile", hint=hint)

    def replace_user_index(self) -> None:
        """Replace the user's index by this one, atomically and under git's lock."""
        target = os.path.join(self.repository.git_dir, "index")
        lock = f"{target}.lock"
        try:
            with open(self.path, "rb+") as file:
                os.fsync(file.fileno())
            if _is_lock_of_killed(lock, self.repository.private_dir):
                os.unlink(lock)
            os.link(self.path, lock)
            try:
                self.require_user_index_unchanged()
                os.replace(lock, target)
            except BaseException:
                os.unlink(lock)
                raise
        except FileExistsError:
            raise LockHeld(lock) from None
        except OSError as error:
            raise WorktreeError(f"cannot write {target}: {error.strerror}") from None


def _copy_index(source: BinaryIO, target: str) -> None:
    # With mode and time stamp, by which git tells which entries are racy.
    status = os.fstat(source.fileno())
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, status.st_mode & 0o777)
    with open(fd, "wb") as copy:
        if not copy_in_kernel(source.fileno(), copy.fileno(), status.st_size):
            source.seek(0)
            copy.write(source.read())
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _file_name_options(repository: Repository) -> list[str]:
    options = []
    if not os.path.exists(os.path.join(repository.git_dir, "hEAD")):
        # If set by mistake, it hides README beside readme.
        options += ["-c", "core.ignoreCase=false"]
    if _supports_symlinks(repository):
        # Else git treats a file with the text of a link as that link.
        options += ["-c", "core.symlinks=true"]
    return options


def _index_mark(repository: Repository) -> object:
    try:
        return content_stamp(os.stat(os.path.join(repository.git_dir, "index")))
    except FileNotFoundError:
        return None


def _supports_symlinks(repository: Repository) -> bool:
    # Tried out in the private directory, if it is on the file system of the worktree.
    scratch = repository.scratch_path("symlink")
    try:
        if os.stat(repository.private_dir).st_dev != os.stat(repository.worktree or "").st_dev:
            return False
        os.symlink("nowhere", scratch)
        os.unlink(scratch)
    except OSError:
        return False
    return True


def _read_file_system_time(repository: Repository) -> int:
    directory = repository.make_private_dir()
    os.utime(directory)
    status = os.stat(directory)
    is_same_fs = repository.worktree is None or os.stat(repository.worktree).st_dev == status.st_dev
    return status.st_ctime_ns - (0 if is_same_fs else _GRAIN)


def _is_lock_of_killed(lock: str, directory: str) -> bool:
    try:
        lock_status = os.stat(lock)
    except FileNotFoundError:
        return False
    # `replace_user_index` hard-links the lock to the private index, whose name has a process id.
    if lock_status.st_nlink == 1:
        return False
    from gitckpt.git.leftovers import is_process_alive

    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if name.startswith("index.") and os.path.samestat(os.stat(path), lock_status):
            return not is_process_alive(int(name.split(".")[1]))
    return False


# Intent-to-add entries (`git add --intent-to-add`), whether or not their files exist.

EXECUTABLE, LINK, REPOSITORY = b"100755", b"120000", GITLINK
_FLAG = 0x20000000  # CE_INTENT_TO_ADD, as `git ls-files --debug` prints it

_FEW = 100
_INTENT_ENTRY = re.compile(
    rb"([0-7]{6}) [0-9a-f]{40,64} 0\t([^\0]++)"
    rb"(?:\0(?:  [a-z]{1,9}: [0-9a-z:\t ]{1,80}\n){4}"
    rb"  size: \d{1,20}\tflags: ([0-9a-f]{1,16})\n|\Z)"
)
_ADD = (
    *("add", "--sparse", "--intent-to-add", "--force"),
    *("--pathspec-from-file=-", "--pathspec-file-nul"),
)


def intent_to_add_oid(object_format: str) -> bytes:
    # Of the empty blob.
    return object_id("blob", b"", object_format).encode("ascii")


def find_intent_to_add_entries(index: PrivateIndex, paths: Collection[bytes]) -> dict[bytes, bytes]:
    if not paths:
        return {}
    words = [os.fsdecode(path) for path in paths] if len(paths) <= _FEW else []
    output = index.git("--literal-pathspecs", "ls-files", "--stage", "--debug", "-z", "--", *words)
    candidates = set(paths)
    return {
        path: mode
        for mode, path, flags in _INTENT_ENTRY.findall(output)
        if path in candidates and int(flags or b"0", 16) & _FLAG
    }


def drop_cached_trees(index: PrivateIndex, paths: Collection[bytes]) -> None:
    # `git reset --hard` takes such an entry for an empty file of the commit, and keeps it in trees.
    # The option changes nothing else: they are not assumed unchanged.
    index.update_paths("--no-assume-unchanged", paths)


def add_intent(index: PrivateIndex, paths: Collection[bytes], modes: Mapping[bytes, bytes]) -> None:
    """Add intent-to-add entries at `paths`; `modes` has each mode that is not 100644."""
    if not paths:
        return
    paths = sorted(set(paths))
    oid = intent_to_add_oid(index.repository.object_format)
    # Git checks the paths, which may have been fetched.
    index.put_entries(b"100644 %s 0\t%s" % (oid, path) for path in paths)
    index.update_paths("--force-remove", paths)
    # git makes such an entry only from a file, whose mode it takes. The file in the worktree may
    # have another mode by now, so placeholders are made in a scratch directory.
    scratch = index.repository.scratch_path("intent")
    try:
        try:
            for path in paths:
                full_path = os.path.join(os.fsencode(scratch), path)
                _make_placeholder_file(full_path, modes.get(path), index.repository.object_format)
        except OSError as error:
            raise GitError(["add"], 1, f"{os.fsdecode(error.filename)}: {error.strerror}") from None
        words = (f"--work-tree={scratch}", "-C", scratch, "--literal-pathspecs", *_ADD)
        options = ("-c", "core.fileMode=true", "-c", "core.symlinks=true")
        index.git(*options, *words, data=b"\0".join(paths))
    finally:
        private_dirs.discard_directory(scratch)


def _make_placeholder_file(path: bytes, mode: bytes | None, object_format: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if mode == LINK:
        os.symlink(b"nowhere", path)
    elif mode == REPOSITORY:  # a directory that git takes for one with a commit checked out
        for name in (b"objects", b"refs"):
            os.makedirs(os.path.join(path, b".git", name))
        settings = "[core]\n\trepositoryformatversion = 1\n"
        settings += f"[extensions]\n\tobjectFormat = {object_format}\n"
        head_content = intent_to_add_oid(object_format) + b"\n"  # any oid will do
        for name, content in ((b"config", settings.encode("ascii")), (b"HEAD", head_content)):
            with open(os.path.join(path, b".git", name), "xb") as file:
                file.write(content)
    else:
        with open(path, "wb") as file:
            os.fchmod(file.fileno(), 0o700 if mode == EXECUTABLE else 0o600)


# The settings of a sparse checkout (git-sparse-checkout(1)), which a snapshot keeps.

_SPARSE_SETTINGS = r"^(core\.sparsecheckout(cone)?|index\.sparse)$"
_ALL = b"/*"


def read_sparse_checkout(repository: Repository) -> bytes | None:
    try:
        with open(os.path.join(repository.git_dir, "info", "sparse-checkout"), "rb") as file:
            patterns = file.read().splitlines()
    except FileNotFoundError:
        return None  # git then takes every file, whatever the configuration says
    settings = config.read_settings(repository, _SPARSE_SETTINGS)
    values = {name: config.is_true(listed_values[-1]) for name, listed_values in settings.items()}
    if not values.get("core.sparsecheckout"):
        return None
    listed_patterns = repository.git.run(*NO_HOOKS, "sparse-checkout", "list").out
    # git lists patterns that it did not write as they are ("disabling cone pattern matching").
    is_converted = _ALL in patterns and _ALL not in listed_patterns.splitlines()
    is_cone = values.get("core.sparsecheckoutcone") and is_converted
    words = ["cone" if is_cone else "no-cone", *(["index"] if values.get("index.sparse") else [])]
    return " ".join(words).encode() + b"\n" + listed_patterns


def restore_sparse_checkout(repository: Repository, settings: bytes | None) -> None:
    if settings is None:
        # git copies them from the worktree where the command ran.
        if read_sparse_checkout(repository) is not None:
            repository.git.run(*NO_HOOKS, "sparse-checkout", "disable")
        return
    options_line, _, patterns = settings.partition(b"\n")
    words = options_line.split()
    cone = "--cone" if words[:1] == [b"cone"] else "--no-cone"
    index = "--sparse-index" if b"index" in words else "--no-sparse-index"
    repository.git.run(*NO_HOOKS, "sparse-checkout", "set", cone, index, "--stdin", data=patterns)


# What git would ignore by the rules of a snapshot.

RULES = b".gitignore"


def list_gitignore_files(repository: Repository, tree: str) -> dict[bytes, str]:
    return {
        path: oid
        for path, mode, oid in list_leaves(repository, tree)
        if os.path.basename(path) == RULES and mode in FILES
    }


def find_ignored_paths(
    repository: Repository, rules: Mapping[bytes, str], paths: Sequence[bytes]
) -> set[bytes]:
    if not paths:
        return set()
    scratch = repository.scratch_path("rules")
    try:
        os.makedirs(scratch)
        for path, oid in rules.items():
            blob = next(repository.cat_file.read_contents([oid]))
            target = os.path.join(os.fsencode(scratch), path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(blob[2] if blob else b"")
        words = (f"--work-tree={scratch}", "-C", scratch, "check-ignore", "--no-index")
        data = b"\0".join(paths)
        output = repository.git.run(*words, "-z", "--stdin", data=data, ok=(0, 1)).out
        return set(output.split(b"\0")) - {b""}
    finally:
        private_dirs.discard_directory(scratch)
