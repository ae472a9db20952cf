"""Track files that are there as git stores them because a required filter failed.

A record in the administrative directory names them: nothing else tells them from files that a user
changed. An entry counts only while the file has the bytes of its blob.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Mapping

from gitckpt.git.command import nul_ended
from gitckpt.git.contents.attributes import filter_names
from gitckpt.git.files import private_dirs, regular
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import failing_filters, filters_off, has_hung_up
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import first_of
from gitckpt.model.errors import WorktreeError

FILE = "ckpt-unfiltered"

# The oid of the blob whose bytes the file has, and the filter that failed, by path.
HeldBack = dict[bytes, tuple[str, str]]

_FAILED = re.compile(r"^fatal: (?=.* failed$)(.*): smudge filter (.*) failed$", re.MULTILINE)
# Lets the filter of LFS go on after a missing content; other filters must be started again.
_LENIENT = ("-c", "lfs.skipDownloadErrors=true")

# After this many failures in a row, the filter, which may be slow, is not run any more.
_ENOUGH = 20

_LARGEST = 512 << 20  # bytes: git, too, holds in memory what it gives to a filter

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
    drivers = filter_names(repository.git, oids)
    return {path: (oid, drivers[path]) for path, oid in oids.items() if drivers.get(path) in names}


def held(repository: Repository) -> HeldBack:
    """Return the files of a worktree that are there as git stores them."""
    return still(repository, _load(repository))


def still(repository: Repository, files: HeldBack, top: bytes | None = None) -> HeldBack:
    """Return the non-empty files whose bytes are those of their blobs."""
    top = os.fsencode(repository.worktree or "") if top is None else top
    return {
        path: (oid, driver)
        for path, (oid, driver) in files.items()
        if _has(os.path.join(top, path), oid, repository.object_format)
    }


def _without(files: HeldBack, paths: Collection[bytes]) -> HeldBack:
    return {path: files[path] for path in files if path not in paths}


def note(repository: Repository, files: HeldBack) -> None:
    """Replace the record of files that are, or may be, there as git stores them."""
    path = os.path.join(repository.git_dir, FILE)
    if not files:
        if os.path.lexists(path):
            os.unlink(path)
        return
    records = [[os.fsdecode(name), oid, driver] for name, (oid, driver) in sorted(files.items())]
    import json  # for the few repositories in which a filter fails

    regular.write_own(path, json.dumps(records).encode(), flushed=True)


def forget(repository: Repository, paths: Collection[bytes]) -> None:
    recorded = _load(repository)
    remaining = _without(recorded, paths)
    if len(remaining) < len(recorded):
        note(repository, remaining)


def accept(index: PrivateIndex, files: HeldBack) -> None:
    """Add files to an index with the bytes they have, with their filters off."""
    if files:
        options = filters_off({driver for _, driver in files.values()})
        words = ("update-index", "--add", "--replace", "-z", "--stdin")
        index.git(*options, *words, data=nul_ended(files))


def complete(repository: Repository, files: HeldBack) -> HeldBack:
    """Write files of `held` again; return those whose filter still fails.

    They are first written to a scratch directory, and stay as they are if the filter fails.
    """
    if not files:
        return {}
    top = os.fsencode(repository.worktree or "")
    scratch = os.fsencode(repository.scratch("unfiltered"))
    still_failing: HeldBack = {}
    try:
        with PrivateIndex(repository) as index:
            index.git("read-tree", "--empty")
            index.put(
                b"%s %s 0\t%s" % (_mode(os.path.join(top, path)), oid.encode("ascii"), path)
                for path, (oid, _) in files.items()
            )
            for driver in sorted({driver for _, driver in files.values()}):
                some = {path: files[path] for path in sorted(files) if files[path][1] == driver}
                failed, is_doubtful = _write_beside(index, scratch, list(some))
                still_failing |= {path: some[path] for path in failed}
                if is_doubtful:
                    still_failing |= still(repository, some, scratch)
        for path in still(repository, _without(files, still_failing)):
            move(os.path.join(scratch, path), os.path.join(top, path))
    finally:
        private_dirs.discard(os.fsdecode(scratch))
    note(repository, _without(held(repository), files) | still_failing)
    return still_failing


def complete_in_place(repository: Repository) -> list[bytes]:
    """Complete all recorded files and update the index; return those that still fail."""
    files = held(repository)
    return completed(repository, files) if files else []


def completed(repository: Repository, files: HeldBack) -> list[bytes]:
    still_failing = complete(repository, files)
    if len(still_failing) < len(files):
        with PrivateIndex(repository) as index:
            settle(index, _without(files, still_failing), {})
            index.install()
    return sorted(still_failing)


def _write_beside(
    index: PrivateIndex, directory: bytes, paths: list[bytes]
) -> tuple[set[bytes], bool]:
    """Return the files whose filter failed, and whether git complained about others."""
    failed: set[bytes] = set()
    in_a_row = 0
    prefix = f"--prefix={os.fsdecode(directory)}/"
    while paths:
        words = (*_LENIENT, "checkout-index", "--force", prefix, "-z", "--stdin")
        try:
            return failed, bool(index.run(*words, data=nul_ended(paths)).complaint)
        except GitError as error:
            if has_hung_up(error):
                return failed.union(paths), False
            match = _FAILED.search(error.stderr)
            shown = [path.decode("utf-8", "replace") for path in paths]
            if match is None or match[1] not in shown:
                raise
            position = shown.index(match[1])
        failed.add(paths[position])
        in_a_row = 1 if position else in_a_row + 1
        paths = paths[position + 1 :]
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
            # Before the attempt: it may be killed.
            note(repository, _load(repository) | behind(repository, wanted(), names))
    if not names:
        return {}, {}
    written = still(repository, behind(repository, wanted(), names))
    note(repository, held(repository) | written)
    still_failing = complete(repository, written)
    for path in still_failing:
        full_path = os.path.join(os.fsencode(repository.worktree or ""), path)
        status = os.lstat(full_path)
        os.utime(full_path, ns=(status.st_atime_ns, status.st_mtime_ns - _PAST))
    return written, still_failing


def settle(index: PrivateIndex, written: HeldBack, left: HeldBack) -> None:
    """Update the index for files that `write` returned, unless their blobs changed."""
    staged = {path: oid for path, _, oid, stage, _ in index.entries() if stage == 0}
    same = {path: entry for path, entry in written.items() if staged.get(path) == entry[0]}
    done = _without(same, left)
    if done:  # a refresh would trust the recorded sizes
        index.git("update-index", "-z", "--stdin", data=nul_ended(done))
    accept(index, _without(same, done))


def failure(paths: Collection[bytes], again: str) -> WorktreeError:
    """Return the error for files that are there only as git stores them."""
    names = first_of([path.decode("utf-8", "replace") for path in paths])
    count = "1 file is there only as git stores it"
    if len(paths) > 1:
        count = f"{len(paths)} files are there only as git stores them"
    message = f"{count}, because a filter fails: {names}"
    return WorktreeError(message, hint=f"once the filter works, and has what it needs: {again}")


def _load(repository: Repository) -> HeldBack:
    try:
        with open(os.path.join(repository.git_dir, FILE), encoding="utf-8") as file:
            import json

            records = json.load(file)
        return {os.fsencode(path): (oid, driver) for path, oid, driver in records}
    except (OSError, ValueError, TypeError):
        return {}


def _has(path: bytes, oid: str, object_format: str) -> bool:
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= _LARGEST:
            return False
        with open(path, "rb") as file:
            return object_id("blob", file.read(), object_format) == oid
    except OSError:
        return False


def _mode(path: bytes) -> bytes:
    return b"100755" if os.lstat(path).st_mode & 0o100 else b"100644"
