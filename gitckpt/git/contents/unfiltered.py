"""Files that are there as git stores them, because a filter that is required could not make of them what they should be.

Which they are stands in the worktree's administrative directory, as nothing else tells them from files that a person has changed. What it
says counts of a file only while that has these very bytes.
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

HeldBack = dict[bytes, tuple[str, str]]
"""For each path, the oid of the blob whose bytes it has, and the filter that failed."""

_FAILED = re.compile(r"^fatal: (?=.* failed$)(.*): smudge filter (.*) failed$", re.MULTILINE)
_LENIENT = ("-c", "lfs.skipDownloadErrors=true")
"""Then the filter of LFS goes on after the first file whose content is nowhere; others have to be started again."""

_ENOUGH = 20
"""After so many failures in a row, nothing more is asked of a filter that may take its time."""

_LARGEST = 512 << 20
"""In bytes: git itself has to hold in memory what it gives to a filter."""

_PAST = 10_000_000_000
"""In nanoseconds: git asks the filter again of a file that is as young as the index."""


def failing(repository: Repository, error: GitError) -> set[str]:
    """Return the filters by which git may have failed to write files.

    git also looks at other files, if they are as young as the index.
    """
    found = _FAILED.search(error.stderr)
    return {found[2]} if found else failing_filters(repository, error)


def behind(repository: Repository, oids: Mapping[bytes, str], names: Collection[str]) -> HeldBack:
    """Returns those of some files to which one of some filters applies.

    Args:
        repository: seen from the worktree.
        oids: of the blobs that stand for them, by path.
        names: of the filters.
    """
    if not oids or not names:
        return {}
    said = repository.git.run("check-attr", "-z", "--stdin", "filter", data=b"".join(path + b"\0" for path in oids)).out.split(b"\0")
    drivers = {path: driver.decode("utf-8", "surrogateescape") for path, driver in zip(said[::3], said[2::3], strict=False)}
    return {path: (oid, drivers[path]) for path, oid in oids.items() if drivers.get(path) in names}


def held(repository: Repository) -> HeldBack:
    """Returns the files of a worktree that are there as git stores them."""
    known = _load(repository)
    return still(repository, known) if known else {}


def still(repository: Repository, files: HeldBack) -> HeldBack:
    """Returns those of some files that have the bytes which git stores of them; not empty ones, of which filters make nothing else."""
    top = os.fsencode(repository.worktree or "")
    return {path: each for path, each in files.items() if _has(os.path.join(top, path), each[0], repository.object_format)}


def note(repository: Repository, files: HeldBack) -> None:
    """Notes which files of a worktree are there as git stores them, or may be: instead of all that was noted before."""
    path = os.path.join(repository.git_dir, FILE)
    if not files:
        if os.path.lexists(path):
            os.unlink(path)
        return
    said = [[os.fsdecode(name), oid, driver] for name, (oid, driver) in sorted(files.items())]
    import json  # for the few repositories in which a filter fails

    atomic.write_own(path, json.dumps(said).encode(), flushed=True)


def forget(repository: Repository, paths: Collection[bytes]) -> None:
    """Notes of some files that they are there as they shall be."""
    known = _load(repository)
    left = {path: each for path, each in known.items() if path not in paths}
    if len(left) < len(known):
        note(repository, left)


def accept(index: PrivateIndex, files: HeldBack) -> None:
    """Lets an index have files that are there as git stores them, without the filter, which would make something else of their bytes.

    Args:
        files: those.
    """
    if files:
        drivers = {driver for _, driver in files.values()}
        data = b"".join(path + b"\0" for path in files)
        index.git(*filters_off(drivers), "update-index", "--add", "--replace", "-z", "--stdin", data=data)


def _age(repository: Repository, paths: Iterable[bytes]) -> None:
    """Makes files older than the index, by whose time stamp git would ask the filter again."""
    top = os.fsencode(repository.worktree or "")
    for path in paths:
        whole = os.path.join(top, path)
        status = os.lstat(whole)
        os.utime(whole, ns=(status.st_atime_ns, status.st_mtime_ns - _PAST))


def complete(repository: Repository, files: HeldBack) -> HeldBack:
    """Writes files again that are there as git stores them: beside them first, so that they stay as they are where the filter fails.

    Args:
        repository: seen from the worktree.
        files: some of what `held` returned; in the end, what was noted of these counts no longer, or again.

    Returns:
        Those that the filters still fail at.

    Raises:
        GitError: git cannot write one for another reason.
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
    """Writes all files of a worktree again that are there as git stores them, and has its index know; returns those that stay so.

    Raises:
        GitError: git cannot write one for another reason than its filter.
        LockHeld: another process is about to change the index.
    """
    files = held(repository)
    return completed(repository, files) if files else []


def completed(repository: Repository, files: HeldBack) -> list[bytes]:
    """Writes some of these files again, as `complete_in_place` does all."""
    left = complete(repository, files)
    if len(left) < len(files):
        with PrivateIndex(repository) as index:
            settle(index, {path: each for path, each in files.items() if path not in left}, {})
            index.install()
    return sorted(left)


def _write_beside(index: PrivateIndex, directory: bytes, paths: list[bytes]) -> tuple[set[bytes], bool]:
    """Lets git write files below a directory.

    Returns those at which a filter fails, where git stops; and whether it has complained of others that are there as git stores them.
    """
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
            found = _FAILED.search(error.stderr)
            at = next((at for at, path in enumerate(paths) if found and path.decode("utf-8", "replace") == found[1]), None)
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
    """Moves a file, also to another file system."""
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
    """Lets git write files, and those as it stores them at which a filter fails that is required.

    Args:
        repository: seen from the worktree.
        wanted: returns what is to be written: oids by path; called only where a filter fails.
        attempt: writes the files; is given options for git.
        again: called before a further attempt: git stops at the first file.

    Returns:
        What was written as git stores it, and what was left so, which is noted: both for `settle`.

    Raises:
        GitError: git fails for another reason.
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
            note(repository, _load(repository) | behind(repository, wanted(), names))  # a kill may come while they are written
    if not names:
        return {}, {}
    written = still(repository, behind(repository, wanted(), names))
    note(repository, held(repository) | written)
    left = complete(repository, written)
    _age(repository, left)
    return written, left


def settle(index: PrivateIndex, written: HeldBack, left: HeldBack) -> None:
    """Lets an index agree with files that were written as git stores them, and then again.

    Args:
        index: of the worktree; where it has other blobs of these files by now, it keeps them.
        written: those files.
        left: those of them at which the filter failed again.

    Raises:
        GitError: git cannot read one.
    """
    staged = {path: oid for path, _, oid, stage, _ in index.entries() if stage == 0}
    same = {path: each for path, each in written.items() if staged.get(path) == each[0]}
    done = b"".join(path + b"\0" for path in same if path not in left)
    if done:  # a refresh would believe their sizes
        index.git("update-index", "-z", "--stdin", data=done)
    accept(index, {path: each for path, each in same.items() if path in left})


def failure(paths: Collection[bytes], again: str) -> WorktreeError:
    """Returns the error for files that are there as git stores them.

    Args:
        paths: of the files; one at least.
        again: the command that completes them.
    """
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
    """Tells whether a file has the bytes of a blob."""
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
