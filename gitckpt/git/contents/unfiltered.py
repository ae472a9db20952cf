"""Record files that a failed smudge filter left with the bytes of their blobs.

Without this record, which is in the git directory of the worktree, such a file would look like one
that the user changed. An entry is valid only while the file has the bytes of the blob.

The blob of an unlocked git-annex file is a pointer, which the filter of git-annex copies to the
worktree. A hook of git-annex, which gitckpt does not run, then writes the content instead.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Mapping

from gitckpt.git import config
from gitckpt.git.command import encode_paths
from gitckpt.git.contents import exact_files
from gitckpt.git.contents.attributes import ANNEX, find_filters
from gitckpt.git.files import private_dirs, regular
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import disable_filters, find_failing_filters, has_hung_up
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import join_first
from gitckpt.model.errors import WorktreeError

FILE = "ckpt-unfiltered"

# The oid of the blob whose bytes the file has, and the filter that failed, by path.
FilesByPath = dict[bytes, tuple[str, str]]

_FAILED = re.compile(r"^fatal: (?=.* failed$)(.*): smudge filter (.*) failed$", re.MULTILINE)
# Lets the filter of LFS go on after a missing content; other filters must be started again.
_LENIENT = ("-c", "lfs.skipDownloadErrors=true")

# After this many failures in a row, the filter, which may be slow, is not run any more.
_ENOUGH = 20

_LARGEST = 512 << 20  # bytes: git, too, holds in memory what it gives to a filter

# In nanoseconds: git runs the filter again on a file that is as young as the index.
_PAST = 10_000_000_000


def find_failing_smudge_filters(repository: Repository, error: GitError) -> set[str]:
    # git also reads other files if they are as young as the index.
    match = _FAILED.search(error.stderr)
    return {match[2]} if match else find_failing_filters(repository, error)


def select_filtered(
    repository: Repository, oids: Mapping[bytes, str], names: Collection[str]
) -> FilesByPath:
    drivers = find_filters(repository.git, oids) if oids and names else {}
    return {path: (oid, drivers[path]) for path, oid in oids.items() if drivers.get(path) in names}


def load_record(repository: Repository) -> FilesByPath:
    """Read the record; omit files that no longer have the bytes of their blobs."""
    return select_unfiltered(repository, _read_unfiltered_record(repository))


def select_unfiltered(
    repository: Repository, files: FilesByPath, top: bytes | None = None
) -> FilesByPath:
    """Return which of `files`, below `top`, are non-empty and equal to their blobs."""
    top = _top_dir(repository) if top is None else top
    return {
        path: (oid, driver)
        for path, (oid, driver) in files.items()
        if _has_content_of_blob(os.path.join(top, path), oid, repository.object_format)
    }


def _omit(files: FilesByPath, paths: Collection[bytes]) -> FilesByPath:
    return {path: files[path] for path in files if path not in paths}


def save_record(repository: Repository, files: FilesByPath) -> None:
    path = os.path.join(repository.git_dir, FILE)
    if not files:
        if os.path.lexists(path):
            os.unlink(path)
        return
    records = [[os.fsdecode(name), oid, driver] for name, (oid, driver) in sorted(files.items())]
    import json  # for the few repositories in which a filter fails

    regular.write_private_file(path, json.dumps(records).encode(), flushed=True)


def forget_unfiltered_files(repository: Repository, paths: Collection[bytes]) -> None:
    recorded_files = _read_unfiltered_record(repository)
    remaining_files = _omit(recorded_files, paths)
    if len(remaining_files) < len(recorded_files):
        save_record(repository, remaining_files)


def add_unfiltered_to_index(index: PrivateIndex, files: FilesByPath) -> None:
    if files:
        options = disable_filters({driver for _, driver in files.values()})
        words = ("update-index", "--add", "--replace", "-z", "--stdin")
        index.git(*options, *words, data=encode_paths(files))


def filter_files_again(repository: Repository, files: FilesByPath) -> FilesByPath:
    """Write files again through their filters; return the files that fail again."""
    if not files:
        return {}
    top = _top_dir(repository)
    scratch_dir = os.fsencode(repository.scratch_path("unfiltered"))
    failing_files: FilesByPath = {}
    try:
        with PrivateIndex(repository) as index:
            index.git("read-tree", "--empty")
            modes = {path: os.lstat(os.path.join(top, path)).st_mode for path in files}
            index.put_entries(
                b"100%d %s 0\t%s" % (755 if modes[path] & 0o100 else 644, oid.encode(), path)
                for path, (oid, _) in files.items()
            )
            for driver in sorted({driver for _, driver in files.values()}):
                batch = {path: files[path] for path in sorted(files) if files[path][1] == driver}
                failed_paths, has_errors = _check_out_to_scratch(index, scratch_dir, list(batch))
                failing_files |= {path: batch[path] for path in failed_paths}
                if has_errors:
                    failing_files |= select_unfiltered(repository, batch, scratch_dir)
        for path in select_unfiltered(repository, _omit(files, failing_files)):
            move_file(os.path.join(scratch_dir, path), os.path.join(top, path))
    finally:
        private_dirs.discard_directory(os.fsdecode(scratch_dir))
    save_record(repository, _omit(load_record(repository), files) | failing_files)
    return failing_files


def filter_recorded_again(repository: Repository) -> list[bytes]:
    files = load_record(repository)
    return filter_again_and_stage(repository, files) if files else []


def filter_again_and_stage(repository: Repository, files: FilesByPath) -> list[bytes]:
    still_failing = filter_files_again(repository, files)
    if len(still_failing) < len(files):
        with PrivateIndex(repository) as index:
            stage_files(index, _omit(files, still_failing), {})
            index.replace_user_index()
    return sorted(still_failing)


def _check_out_to_scratch(
    index: PrivateIndex, directory: bytes, paths: list[bytes]
) -> tuple[set[bytes], bool]:
    # Returns the failed files, and whether git printed errors.
    failed_paths: set[bytes] = set()
    consecutive_failures = 0
    prefix = f"--prefix={os.fsdecode(directory)}/"
    while paths:
        words = (*_LENIENT, "checkout-index", "--force", prefix, "-z", "--stdin")
        try:
            return failed_paths, bool(index.run(*words, data=encode_paths(paths)).error_text)
        except GitError as error:
            if has_hung_up(error):
                return failed_paths.union(paths), False
            match = _FAILED.search(error.stderr)
            names = [path.decode("utf-8", "replace") for path in paths]
            if match is None or match[1] not in names:
                raise
            position = names.index(match[1])
        failed_paths.add(paths[position])
        consecutive_failures = 1 if position else consecutive_failures + 1
        paths = paths[position + 1 :]
        if consecutive_failures == _ENOUGH:
            return failed_paths.union(paths), False
    return failed_paths, False


def move_file(source: bytes, target: bytes) -> None:
    try:
        os.replace(source, target)
    except OSError:  # another file system
        shutil.copy(source, target)


def write_files_despite_filters(
    repository: Repository,
    find_oids: Callable[[], Mapping[bytes, str]],
    attempt: Callable[[list[str]], object],
    reset: Callable[[], object] = lambda: None,
) -> tuple[FilesByPath, FilesByPath]:
    """Let git write files; where a required filter fails, write the bytes of the blob.

    `attempt` lets git write, with the given git options. After a failure, `reset` prepares another
    attempt. `find_oids` returns the blob of each file. Returns the files for which a filter failed,
    and those for which it failed a second time.
    """
    names: set[str] = set()
    while True:
        try:
            attempt(disable_filters(names))
            break
        except GitError as error:
            new_names = find_failing_smudge_filters(repository, error) - names
            if not new_names:
                raise
            names |= new_names
            reset()
            # Before the attempt: it may be killed.
            files = select_filtered(repository, find_oids(), names)
            save_record(repository, _read_unfiltered_record(repository) | files)
    if not names:
        return {}, {}
    unfiltered = select_unfiltered(repository, select_filtered(repository, find_oids(), names))
    save_record(repository, load_record(repository) | unfiltered)
    still_failing = filter_files_again(repository, unfiltered)
    for path in still_failing:
        full_path = os.path.join(_top_dir(repository), path)
        status = os.lstat(full_path)
        os.utime(full_path, ns=(status.st_atime_ns, status.st_mtime_ns - _PAST))
    return unfiltered, still_failing


def stage_files(index: PrivateIndex, unfiltered: FilesByPath, still_failing: FilesByPath) -> None:
    """Stage the files in `unfiltered`, except where an entry has another blob."""
    index_oids = {path: oid for path, _, oid, stage, _ in index.list_entries() if stage == 0}
    files = {path: entry for path, entry in unfiltered.items() if index_oids.get(path) == entry[0]}
    completed_files = _omit(files, still_failing)
    if completed_files:  # a refresh would trust the recorded sizes
        index.git("update-index", "-z", "--stdin", data=encode_paths(completed_files))
    add_unfiltered_to_index(index, _omit(files, completed_files))


def unfiltered_files_error(paths: Collection[bytes], command: str) -> WorktreeError:
    names = join_first([path.decode("utf-8", "replace") for path in paths])
    subject = f"{len(paths)} files are in the worktree only as git stores them"
    subject = subject if len(paths) > 1 else "1 file is in the worktree only as git stores it"
    message = f"{subject}, because a filter fails: {names}"
    return WorktreeError(message, hint=f"once the filter works: {command}")


def _read_unfiltered_record(repository: Repository) -> FilesByPath:
    try:
        with open(os.path.join(repository.git_dir, FILE), encoding="utf-8") as file:
            import json

            records = json.load(file)
        return {os.fsencode(path): (oid, driver) for path, oid, driver in records}
    except (OSError, ValueError, TypeError):
        return {}


def _has_content_of_blob(path: bytes, oid: str, object_format: str) -> bool:
    if not 0 < _file_size(path) <= _LARGEST:
        return False
    try:
        with open(path, "rb") as file:
            return object_id("blob", file.read(), object_format) == oid
    except OSError:
        return False


def _top_dir(repository: Repository) -> bytes:
    return os.fsencode(repository.worktree or "")


# Unlocked files of git-annex.

_POINTER = re.compile(rb"/annex/objects/([A-Z0-9_]+(?:-[a-zA-Z][0-9]+)*--[^\x00-\x1f/]+)(?:\n|\Z)")
_LETTERS = "0123456789zqjxkmvwgpfZQJXKMVWGPF"
_LARGEST_POINTER = 32 << 10  # bytes: the largest file that git-annex takes for a pointer


def uses_git_annex(repository: Repository) -> bool:
    return bool(config.read_settings(repository, rf"^filter\.{ANNEX}\."))


def find_annexed(repository: Repository, files: Mapping[bytes, tuple[str, int]]) -> set[bytes]:
    """Return the paths of files whose size is that of their git-annex content."""
    blobs = repository.cat_file.read_contents([oid for oid, _ in files.values()], _LARGEST_POINTER)
    pointers = (blob[2] if blob is not None and blob[1] == "blob" else None for blob in blobs)
    sources = _find_annex_contents(repository, files, pointers)
    return {path for path, source in sources.items() if _file_size(source) == files[path][1]}


def populate_annexed_files(index: PrivateIndex, blobs: Mapping[bytes, str]) -> None:
    """Replace git-annex pointers by the contents that are in `.git/annex/objects`."""
    repository = index.repository
    top = _top_dir(repository)
    small = [path for path in blobs if 0 < _file_size(os.path.join(top, path)) <= _LARGEST_POINTER]
    sources = _find_annex_contents(repository, small, exact_files.read_files(repository, small))
    pointers = select_unfiltered(repository, {path: (blobs[path], ANNEX) for path in sources})
    scratch_path = repository.scratch_path("unfiltered")
    try:
        for path in pointers:
            full_path = os.path.join(top, path)
            shutil.copyfile(sources[path], scratch_path)
            os.chmod(scratch_path, stat.S_IMODE(os.lstat(full_path).st_mode))
            move_file(os.fsencode(scratch_path), full_path)
    except OSError as error:
        raise WorktreeError(f"cannot write a file of git-annex: {error}") from None
    finally:
        private_dirs.discard_directory(scratch_path)
    exact_files.refresh_index_entries(index, pointers.keys())


def _find_annex_contents(
    repository: Repository, paths: Iterable[bytes], pointers: Iterable[bytes | None]
) -> dict[bytes, bytes]:
    sources = {}
    for path, pointer in zip(paths, pointers, strict=True):
        match = _POINTER.match(pointer or b"")
        source = _find_annex_content(repository, match[1]) if match else None
        if source is not None:
            sources[path] = source
    return sources


def _find_annex_content(repository: Repository, key: bytes) -> bytes | None:
    # https://git-annex.branchable.com/internals/hashing/: two letters, or three digits in bare
    # repositories.
    # Computed without git-annex, which writes into the worktree before it answers.
    digest = hashlib.md5(key, usedforsecurity=False).digest()
    digest_number = int.from_bytes(digest[:4], "little")
    mixed = [_LETTERS[digest_number >> (6 * index) & 31] for index in range(4)]
    name = key.replace(b"&", b"&a").replace(b"%", b"&s").replace(b":", b"&c")
    top = os.path.join(os.fsencode(repository.common_dir), b"annex", b"objects")
    md5_hex = digest.hex()
    for outer, inner in ((mixed[1] + mixed[0], mixed[3] + mixed[2]), (md5_hex[:3], md5_hex[3:6])):
        path = os.path.join(top, outer.encode(), inner.encode(), name, name)
        if _file_size(path) >= 0:
            return path
    return None


def _file_size(path: bytes) -> int:
    # -1 if missing or not regular.
    try:
        status = os.lstat(path)
    except OSError:
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1
