"""What git leaves behind when it is killed: locks, and objects half written. Tells them from what a living process is at, by Linux's /proc.

Git closes the lock of a ref as soon as it has written it, long before it lets go of it: that nobody has the file open says little. What
says it is that nobody who is alive can have made it: no git at work on this repository is older than the file.
"""

from __future__ import annotations

import os
import time

from gitckpt.git.files import premises

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gitckpt.git.repository import Repository

QUIET = 2.0
"""A lock that was written less than this ago, in seconds, is somebody's. Git waits as long for one before it gives up."""

OBJECTS_QUIET = 30.0
"""As `QUIET`, for objects half written: whoever writes one in another container, where nobody sees them, touches it more often."""

_REPACK_QUIET = 3600.0
"""As `OBJECTS_QUIET`, for packs that are written, and wait for others of the same repack."""

_BEGUN = ("tmp_obj_", "tmp_pack_", "tmp_idx_", "tmp_rev_", "tmp_mtimes_", "tmp_bitmap_", "tmp_midx_", "tmp_graph_", "tmp_ckpt_")
"""How the names begin of what git, and we (`pack.write`), write among the objects before they rename it."""

_DEEPER = ("info", os.path.join("info", "commit-graphs"), os.path.join("pack", "multi-pack-index.d"))
"""Where else git does so."""

_PROC = "/proc/self/stat"
_GRAIN = 0.1
"""How exact the start of a process and the time stamp of a file are taken to be, in seconds."""

_NO_REFS = frozenset(
    b"""
    annotate blame cat-file check-attr check-ignore ckpt count-objects credential credential-cache credential-cache--daemon daemon describe
    diff diff-files diff-index diff-tree difftool for-each-ref for-each-repo format-patch fsck fsmonitor--daemon gitk grep gui hash-object
    help index-pack instaweb log ls-files ls-remote ls-tree merge-base merge-tree name-rev pack-objects prune-packed range-diff rev-list
    rev-parse shortlog show show-branch show-ref status unpack-objects upload-archive upload-pack var version write-tree
    """.split()
)
"""Commands of git that write no ref. `git ckpt` waits for us, or for somebody like us: the git that it calls is looked at."""

_NO_OBJECTS = _NO_REFS - {b"hash-object", b"index-pack", b"merge-tree", b"pack-objects", b"unpack-objects", b"write-tree"} | {b"update-ref"}

_WITH_VALUE = frozenset((b"-c", b"-C", b"--git-dir", b"--work-tree", b"--namespace", b"--exec-path", b"--super-prefix", b"--config-env"))
_ITS_REPOSITORY = (b"GIT_DIR=", b"GIT_COMMON_DIR=", b"GIT_OBJECT_DIRECTORY=", b"--git-dir=")
_OURS = (b"core.logAllRefUpdates=false", b"update-ref", b"--stdin")


class FileMark:
    """What tells a file from a later one of the same name.

    Args:
        status: of the file.
    """

    __slots__ = ("changed", "inode", "owner", "size")

    def __init__(self, status: os.stat_result) -> None:
        self.inode = status.st_ino
        self.changed = status.st_mtime
        self.size = status.st_size
        self.owner = status.st_uid

    def is_same(self, other: FileMark | None) -> bool:
        """Tells whether this is still that file, as it was."""
        return other is not None and (self.inode, self.changed, self.size) == (other.inode, other.changed, other.size)


def mark(path: str) -> FileMark | None:
    """Returns what a file is known by; None where there is none."""
    try:
        return FileMark(os.lstat(path))
    except OSError:
        return None


def lock_files(repository: Repository) -> list[str]:
    """Returns the paths of git's locks: of refs, of HEAD, index and refs of each worktree, and of what lies beside objects.

    `packed-refs.new` is one in all but its name: git makes it under the lock, and makes no other while it is there.
    """
    from gitckpt.git.worktree import administration

    common = repository.common_dir
    tops = [common, *(git_dir for git_dir, _ in administration.registered(repository))]
    places = [*tops, *(os.path.join(common, name) for name in ("objects/info", "objects/info/commit-graphs", "objects/pack", "reftable"))]
    places += [parent for top in tops for parent, _, _ in os.walk(os.path.join(top, "refs"))]
    found = [os.path.join(place, name) for place in places for name in sorted(_names(place))]
    return [path for path in found if path.endswith(".lock") or os.path.basename(path) == "packed-refs.new"]


def left_locks(repository: Repository, paths: Iterable[str]) -> dict[str, FileMark]:
    """Returns those of some lock files of git that nobody who is alive can have made; none where the system does not tell.

    Args:
        repository: whose.
        paths: absolute paths.
    """
    return _left(repository, paths, QUIET, _NO_REFS)


def discard(path: str, known: FileMark) -> bool:
    """Deletes what was left, if it still is what it was; tells whether it did: it may not be allowed to.

    While a lock is there, nobody can make another one; names of what is half written are drawn by lot.
    """
    if not known.is_same(_newest(path)):
        return False
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            premises.remove(path)
        else:
            os.unlink(path)
    except OSError:
        return False
    return True


def is_alive(pid: int) -> bool:
    """Tells whether there is a process with this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def half_written(repository: Repository) -> list[str]:
    """Returns what is half written beside the objects, whoever is at it: files, and directories of such."""
    place = os.path.join(repository.common_dir, "objects")
    found = [os.path.join(place, name) for name in _names(place) if name.startswith(("tmp_objdir-", "tmp_obj_", "bulk_fsync_"))]
    for name in (*_fans(place), "pack", *_DEEPER):
        inside = os.path.join(place, name)
        found += [os.path.join(inside, each) for each in _names(inside) if each.startswith(_BEGUN) or _repacker(each)]
    return found


def _repacker(name: str) -> int | None:
    """Returns the process of a `git repack` that a pack, or what belongs to one, has its name from until all of its packs are written."""
    before, _, rest = name.partition("-")
    pid, _, pack = rest.partition("-")
    return int(pid) if before == ".tmp" and pid.isdigit() and pack.startswith("pack-") else None


def left_objects(repository: Repository) -> dict[str, FileMark]:
    """Returns those of `half_written` that nobody who is alive can have made."""
    found = _left(repository, half_written(repository), OBJECTS_QUIET, _NO_OBJECTS)
    return {path: known for path, known in found.items() if not _may_be_repacking(path, known)}


def _may_be_repacking(path: str, known: FileMark) -> bool:
    """Tells whether a pack waits for others of the same repack: nobody touches it meanwhile, and its process may be one nobody sees."""
    pid = _repacker(os.path.basename(path))
    return pid is not None and (is_alive(pid) or abs(time.time() - known.changed) < _REPACK_QUIET)


def left_directories(repository: Repository, paths: Iterable[str]) -> dict[str, FileMark]:
    """Returns those of some directories, which git was to fill, that nobody who is alive can have made.

    Args:
        repository: whose.
        paths: absolute paths.
    """
    return _left(repository, paths, OBJECTS_QUIET, _NO_REFS)


def discard_objects(repository: Repository) -> None:
    """Deletes what `left_objects` returns, as far as that is allowed."""
    for path, known in left_objects(repository).items():
        discard(path, known)


def size_of(path: str) -> int:
    """Returns how many bytes a file, or a directory with all that is in it, takes on the disk."""
    status = os.lstat(path)
    size = status.st_blocks * 512
    if os.path.isdir(path) and not os.path.islink(path):
        for parent, names, files in os.walk(path):
            size += sum(os.lstat(os.path.join(parent, name)).st_blocks * 512 for name in (*names, *files))
    return size


def _fans(place: str) -> list[str]:
    return [name for name in _names(place) if len(name) == 2]


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _left(repository: Repository, paths: Iterable[str], quiet: float, harmless: Collection[bytes]) -> dict[str, FileMark]:
    marks = {path: found for path in paths if (found := _newest(path)) is not None}
    now = time.time()
    # One from the future was made before the clock was set back; whoever made it may be of any age.
    old = {path: found for path, found in marks.items() if abs(now - found.changed) >= quiet}
    if not old or not os.path.exists(_PROC):
        return {}
    suspects = list(_suspects(repository, harmless))
    may_see_all = os.geteuid() == 0
    left = {}
    for path, found in old.items():
        is_visible = may_see_all or found.owner == os.geteuid()
        if is_visible and not any(owner == found.owner and started <= found.changed + _GRAIN for owner, started in suspects):
            left[path] = found
    held = _open_files(left) if left else set()
    return {path: found for path, found in left.items() if path not in held and found.is_same(_newest(path))}


def _newest(path: str) -> FileMark | None:
    """Returns what a file is known by; a directory by what in it was changed last."""
    found = mark(path)
    if found is not None and os.path.isdir(path) and not os.path.islink(path):
        for parent, names, files in os.walk(path):
            inside = (mark(os.path.join(parent, name)) for name in (*names, *files))
            found.changed = max([found.changed, *(each.changed for each in inside if each is not None)])
    return found


def _suspects(repository: Repository, harmless: Collection[bytes]) -> Iterator[tuple[int, float]]:
    """Yields owner and start, in seconds since the epoch, of each git that may be at work on the repository, less those that only wait."""
    booted = time.time() - float(_text("/proc/uptime").split()[0])
    tick = os.sysconf("SC_CLK_TCK")
    tops = _tops(repository)
    waiting = _ancestors()
    for number in filter(str.isdigit, os.listdir("/proc")):
        name, fields = _stat(number)
        if not (name == "git" or name.startswith("git-")) or name == "git-ckpt" or not fields or fields[0] in "ZX" or number in waiting:
            continue
        said = _content(f"/proc/{number}/cmdline").split(b"\0")[:-1]
        if _command(said) in harmless or _waits_for_us(number, said) or not _is_here(number, said, tops):
            continue
        try:
            owner = os.stat(f"/proc/{number}").st_uid
        except OSError:
            continue  # it has ended
        yield owner, booted + int(fields[19]) / tick


def _ancestors() -> set[str]:
    """Returns the numbers of the processes that wait for us: a git that called our hook has no lock of ours."""
    found = set()
    number = str(os.getppid())
    while number not in ("0", "") and number not in found:
        found.add(number)
        number = (_stat(number)[1] or ["", ""])[1]
    return found


def _stat(number: str) -> tuple[str, list[str]]:
    """Returns name and further fields of a process (proc(5)), state and parent first; none where it has ended."""
    head, _, rest = _text(f"/proc/{number}/stat").rpartition(")")
    return head.partition("(")[2], rest.split()


def _tops(repository: Repository) -> list[str]:
    """Returns the directories in which whoever works on the repository is."""
    from gitckpt.git.worktree import administration

    places = [repository.common_dir, repository.worktree, administration.main_worktree(repository)]
    places += [path for _, path in administration.registered(repository)]
    return [os.path.realpath(place) for place in places if place]


def _is_here(number: str, said: list[bytes], tops: list[str]) -> bool:
    """Tells whether a process works on a repository, or may: git goes to the top of its worktree, or is told where the repository is."""
    try:
        here = os.readlink(f"/proc/{number}/cwd")
    except FileNotFoundError:
        return False  # it has ended
    except OSError:
        return True
    if any(here == top or here.startswith(top + os.sep) for top in tops):
        return True
    told = [word for word in (*said, *_content(f"/proc/{number}/environ").split(b"\0")) if word.startswith(_ITS_REPOSITORY)]
    common = tops[0]
    for word in told:
        named = os.path.realpath(os.path.join(here, os.fsdecode(word.partition(b"=")[2])))
        if named == common or named.startswith(common + os.sep):
            return True
    return False


def _waits_for_us(number: str, said: list[bytes]) -> bool:
    """Tells whether a process is one by which a gitckpt writes refs, and has nothing to do.

    What waits for input has no lock, or has been told to make ready by somebody who has the lock of writers.
    """
    return all(word in said for word in _OURS) and "pipe" in _text(f"/proc/{number}/wchan")


def _command(said: list[bytes]) -> bytes:
    """Returns the git command of a command line; b"" where there is none."""
    if said and os.path.basename(said[0]).startswith(b"git-"):
        return os.path.basename(said[0]).removeprefix(b"git-")
    words = iter(said[1:])
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith(b"-"):
            return word
    return b""


def _open_files(paths: Collection[str]) -> set[str]:
    """Returns those of some paths that a process has open, or something beneath."""
    wanted = {os.path.realpath(path): path for path in paths}
    found = set()
    for number in filter(str.isdigit, os.listdir("/proc")):
        for fd in _names(f"/proc/{number}/fd"):
            try:
                target = os.readlink(f"/proc/{number}/fd/{fd}")
            except OSError:
                continue
            while len(target) > 1 and target.startswith("/"):
                if target in wanted:
                    found.add(wanted[target])
                target = os.path.dirname(target)
    return found


def _text(path: str) -> str:
    return _content(path).decode("utf-8", "replace")


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
