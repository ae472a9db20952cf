"""Track files that are there as git stores them because a required filter failed.

A record in the administrative directory names them: nothing else tells them from files that a user
changed. An entry counts only while the file has the bytes of its blob.
"""

from __future__ import annotations

import os
import re
import stat

from gitckpt.git.files import atomic, premises
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.worktree.administration import failing_filters, filters_off, has_hung_up
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import first_of
from gitckpt.model.errors import WorktreeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gitckpt.git.repository import Repository

FILE = "ckpt-unfiltered"

# The oid of the blob whose bytes the file has, and the filter that failed, by path.
HeldBack = dict[bytes, tuple[str, str]]

_FAILED = re.compile(r"^fatal: (?=.* failed$)(.*): smudge filter (.*) failed$", re.MULTILINE)
# Lets the filter of LFS go on after a missing content; other filters must be started again.
_LENIENT = ("-c", "lfs.skipDownloadErrors=true")

# After this many failures in a row, the filter, which may be slow, is not run any more.
_ENOUGH = 20

# In bytes: git, too, holds in memory what it gives to a filter.
_LARGEST = 512 << 20

# In nanoseconds: git runs the filter again on a file that is as young as the index.
_PAST = 10_000_000_000


def failing(repository: Repository, error: GitError) -> set[str]:
    # git also reads other files if they are as young as the index.
    match = _FAILED.search(error.stderr)
    return {match[2]} if match else failing_filters(repository, error)


def behind(repository: Repository, oids: Mapping[bytes, str], names: Collection[str]) -> HeldBack:
    """Return the files of `oids` (by path) to which one of the filters applies."""
    if not oids or not names:
        return {}
    fields = repository.git.run("check-attr", "-z", "--stdin", "filter", data=b"".join(path + b"\0" for path in oids)).out.split(b"\0")
    drivers = {path: driver.decode("utf-8", "surrogateescape") for path, driver in zip(fields[::3], fields[2::3], strict=False)}
    return {path: (oid, drivers[path]) for path, oid in oids.items() if drivers.get(path) in names}


def held(repository: Repository) -> HeldBack:
    """Return the files of a worktree that are there as git stores them."""
    known = _load(repository)
    return still(repository, known) if known else {}


def still(repository: Repository, files: HeldBack) -> HeldBack:
    """Return the non-empty files whose bytes are those of their blobs."""
    top = os.fsencode(repository.worktree or "")
    return {path: each for path, each in files.items() if _has(os.path.join(top, path), each[0], repository.object_format)}


def note(repository: Repository, files: HeldBack) -> None:
    """Replace the record of files that are, or may be, there as git stores them."""
    path = os.path.join(repository.git_dir, FILE)
    if not files:
        if os.path.lexists(path):
            os.unlink(path)
        return
    records = [[os.fsdecode(name), oid, driver] for name, (oid, driver) in sorted(files.items())]
    import json  # for the few repositories in which a filter fails

    atomic.write_own(path, json.dumps(records).encode(), flushed=True)


def forget(repository: Repository, paths: Collection[bytes]) -> None:
    known = _load(repository)
    remaining = {path: each for path, each in known.items() if path not in paths}
    if len(remaining) < len(known):
        note(repository, remaining)


def accept(index: PrivateIndex, files: HeldBack) -> None:
    """Add files to an index with the bytes they have, with their filters off."""
    if files:
        drivers = {driver for _, driver in files.values()}
        data = b"".join(path + b"\0" for path in files)
        index.git(*filters_off(drivers), "update-index", "--add", "--replace", "-z", "--stdin", data=data)


def _age(repository: Repository, paths: Iterable[bytes]) -> None:
    top = os.fsencode(repository.worktree or "")
    for path in paths:
        whole = os.path.join(top, path)
        status = os.lstat(whole)
        os.utime(whole, ns=(status.st_atime_ns, status.st_mtime_ns - _PAST))


def complete(repository: Repository, files: HeldBack) -> HeldBack:
    """Write files of `held` again; return those whose filter still fails.

    They are first written to a scratch directory, and stay as they are if the filter fails.
    """
    if not files:
        return {}
    top = os.fsencode(repository.worktree or "")
    scratch = os.fsencode(repository.scratch("unfiltered"))
    left: HeldBack = {}
    try:
        with PrivateIndex(repository) as index:
            index.git("read-tree", "--empty")
            index.put(b"%s %s 0\t%s" % (_mode(os.path.join(top, path)), oid.encode("ascii"), path) for path, (oid, _) in files.items())
            for driver in sorted({driver for _, driver in files.values()}):
                some = {path: each for path, each in sorted(files.items()) if each[1] == driver}
                failed, is_doubtful = _write_beside(index, scratch, list(some))
                left |= {path: each for path, each in some.items() if path in failed}
                if is_doubtful:
                    left |= {
                        path: each
                        for path, each in some.items()
                        if _has(os.path.join(scratch, path), each[0], index.repository.object_format)
                    }
        for path in still(repository, {path: each for path, each in files.items() if path not in left}):
            move(os.path.join(scratch, path), os.path.join(top, path))
    finally:
        premises.discard(os.fsdecode(scratch))
    others = {path: each for path, each in held(repository).items() if path not in files}
    note(repository, others | left)
    return left


def complete_in_place(repository: Repository) -> list[bytes]:
    """Complete all recorded files and update the index; return the failing ones."""
    files = held(repository)
    return completed(repository, files) if files else []


def completed(repository: Repository, files: HeldBack) -> list[bytes]:
    left = complete(repository, files)
    if len(left) < len(files):
        with PrivateIndex(repository) as index:
            settle(index, {path: each for path, each in files.items() if path not in left}, {})
            index.install()
    return sorted(left)


def _write_beside(index: PrivateIndex, directory: bytes, paths: list[bytes]) -> tuple[set[bytes], bool]:
    """Return the files whose filter failed, and whether git complained about others."""
    failed: set[bytes] = set()
    in_a_row = 0
    while paths:
        words = ("checkout-index", "--force", f"--prefix={os.fsdecode(directory)}/", "-z", "--stdin")
        try:
            done = index.run(*_LENIENT, *words, data=b"".join(path + b"\0" for path in paths))
            return failed, bool(done.complaint)
        except GitError as error:
            if has_hung_up(error):
                return failed.union(paths), False
            match = _FAILED.search(error.stderr)
            at = next((at for at, path in enumerate(paths) if match and path.decode("utf-8", "replace") == match[1]), None)
            if at is None:
                raise
        failed.add(paths[at])
        in_a_row = 1 if at else in_a_row + 1
        paths = paths[at + 1 :]
        if in_a_row == _ENOUGH:
            failed.update(paths)
            break
    return failed, False


def move(source: bytes, target: bytes) -> None:
    try:
        os.replace(source, target)
    except OSError:  # another file system
        import shutil

        shutil.copy(source, target)


def write(
    repository: Repository,
    wanted: Callable[[], Mapping[bytes, str]],
    attempt: Callable[[list[str]], object],
    again: Callable[[], object] = lambda: None,
) -> tuple[HeldBack, HeldBack]:
    """Let git write files; if a required filter fails, write them as git stores them.

    `wanted` returns the files, oids by path; `attempt` writes them with the given git options;
    `again` is called before another attempt. Returns, for `settle`, the files that were written as
    stored, and those of them that stay so.
    """
    names: set[str] = set()
    while True:
        try:
            attempt(filters_off(names))
            break
        except GitError as error:
            more = failing(repository, error) - names
            if not more:
                raise
            names |= more
            again()
            note(repository, _load(repository) | behind(repository, wanted(), names))  # before the attempt: it may be killed
    if not names:
        return {}, {}
    written = still(repository, behind(repository, wanted(), names))
    note(repository, held(repository) | written)
    left = complete(repository, written)
    _age(repository, left)
    return written, left


def settle(index: PrivateIndex, written: HeldBack, left: HeldBack) -> None:
    """Update the index for files that `write` returned, unless their blobs changed."""
    staged = {path: oid for path, _, oid, stage, _ in index.entries() if stage == 0}
    same = {path: each for path, each in written.items() if staged.get(path) == each[0]}
    done = b"".join(path + b"\0" for path in same if path not in left)
    if done:  # a refresh would trust the recorded sizes
        index.git("update-index", "-z", "--stdin", data=done)
    accept(index, {path: each for path, each in same.items() if path in left})


def failure(paths: Collection[bytes], again: str) -> WorktreeError:
    """Return the error for files that are there only as git stores them."""
    names = first_of([path.decode("utf-8", "replace") for path in paths])
    count = f"{len(paths)} files are there only as git stores them" if len(paths) > 1 else "1 file is there only as git stores it"
    return WorktreeError(
        f"{count}, because a filter fails: {names}",
        hint=f"once the filter works, and has what it needs: {again}",
    )


def _load(repository: Repository) -> HeldBack:
    try:
        with open(os.path.join(repository.git_dir, FILE), encoding="utf-8") as file:
            import json

            return {os.fsencode(str(path)): (str(oid), str(driver)) for path, oid, driver in json.load(file)}
    except (OSError, ValueError, TypeError):
        return {}


def _has(path: bytes, oid: str, object_format: str) -> bool:
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return False
        with open(path, "rb") as file:
            return status.st_size <= _LARGEST and object_id("blob", file.read(), object_format) == oid
    except OSError:
        return False


def _mode(path: bytes) -> bytes:
    return b"100755" if os.lstat(path).st_mode & 0o100 else b"100644"
