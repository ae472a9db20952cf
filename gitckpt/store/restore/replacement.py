"""Let git replace the files of a worktree, without the filters that fail."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import time
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git.command import encode_paths
from gitckpt.git.contents import attributes, exact_files, unfiltered
from gitckpt.git.contents.unfiltered import FilesByPath
from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import PathDifference, list_paths
from gitckpt.git.objects.encoding import empty_tree_oid
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import modules
from gitckpt.git.worktree.administration import disable_filters, find_failing_filters
from gitckpt.git.worktree.index import PARALLEL, PrivateIndex
from gitckpt.model.arguments import join_first
from gitckpt.model.checkpoint import Omitted
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.store.restore import byte_exact
from gitckpt.store.restore.plan import is_file, is_within, paths_of
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.snapshot.capture import CaptureResult

_LATER = 2.0  # seconds; git compares timestamps in whole seconds
_ORDINARY = (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)
_ADD = ("update-index", "--add", "--replace", "-z", "--stdin")
_NOT_UP_TO_DATE = re.compile(r"not uptodate|would be (?:overwritten|removed|lost)")


def is_outdated_index_error(error: GitError) -> bool:
    """Return whether git failed because a file differs from the entry in the index."""
    return _NOT_UP_TO_DATE.search(error.stderr) is not None


def add_unlisted(index: PrivateIndex, captured: CaptureResult) -> None:
    """Add the captured files that `index` lacks; raise `BusyError` if a file changed."""
    if not captured.unlisted:
        return
    index.git(*_ADD, data=encode_paths(_drop_entries_without_file(index, captured.unlisted)))
    tree = index.write_tree()
    if tree != captured.files:
        differences = diff.diff_trees(index.repository, captured.files, tree)
        message = f"files changed while gitckpt read them: {join_first([*map(str, differences)])}"
        raise BusyError(message, hint="run the command again")


def _drop_entries_without_file(index: PrivateIndex, paths: Collection[bytes]) -> list[bytes]:
    """Remove the entries of missing files from `index`; return the existing files."""
    top = os.fsencode(index.repository.worktree or "")
    existing_paths = [path for path in paths if is_file(top, path)]
    index.update_paths("--force-remove", sorted(set(paths).difference(existing_paths)))
    return existing_paths


def special_files(
    repository: Repository, omitted: Collection[Omitted], tree: str, paths: Sequence[bytes]
) -> list[bytes]:
    """Return the omitted pipes, sockets and devices at paths where `tree` has a file."""
    top, special_paths = os.fsencode(repository.worktree or ""), []
    for path in (modules.unquote_path(entry.path) for entry in omitted):
        with contextlib.suppress(OSError):
            file_type = stat.S_IFMT(os.lstat(os.path.join(top, path)).st_mode)
            if file_type not in _ORDINARY and is_within(path, paths):
                special_paths.append(path)
    tree_paths = list_paths(repository, tree, special_paths)
    return [path for path in special_paths if any(is_within(file, [path]) for file in tree_paths)]


def remove_index_entries(index: PrivateIndex, absent: Collection[bytes], tree: str) -> str:
    """Remove the index entries of the `absent` files, so that git writes these files.

    Entries of `.gitattributes` files that `tree` lacks stay until git removes them, as they affect
    other files. Returns the tree of the files that exist.
    """
    rule_paths = [path for path in absent if os.path.basename(path) == attributes.FILE]
    postponed_paths = set(rule_paths) - list_paths(index.repository, tree, rule_paths)
    index.update_paths("--force-remove", sorted(set(absent) - postponed_paths))
    if not postponed_paths:
        return index.write_tree()
    with PrivateIndex(index.repository) as scratch_index:
        scratch_index.copy_index_from(index.path)
        scratch_index.update_paths("--force-remove", sorted(postponed_paths))
        return scratch_index.write_tree()


def delete_unconvertible_files(index: PrivateIndex, files: Mapping[bytes, str]) -> None:
    """Delete files that git does not replace because it cannot convert them."""
    if not files:
        return
    repository = index.repository
    if changed_paths := exact_files.find_differing_paths(repository, files):
        raise byte_exact.file_changed_error(join_first([*map(os.fsdecode, changed_paths)]))
    for path in files:
        parent_directory = exact_files.open_parent_directory(repository, path)
        with contextlib.suppress(FileNotFoundError), parent_directory as (fd, name):
            os.unlink(name, dir_fd=fd)
    index.update_paths("--force-remove", sorted(files))


def replace_files(
    index: PrivateIndex, files: Sequence[PathDifference], old_tree: str, expected: str
) -> list[bytes]:
    """Let git replace the current files (tree `old_tree`) by files of tree `expected`.

    Returns the files that stay unfiltered because a filter fails. Raises `GitError` if git finds a
    file that differs from `index` (see `is_outdated_index_error`) or cannot write. Raises
    `BusyError` if a file changed meanwhile.
    """
    progress = index.repository.counter("restoring files")
    switches = ("-m", "-u") if progress is None else ("-m", "-u", "-v")
    command = (*PARALLEL, "read-tree", *switches, "--no-sparse-checkout", expected)

    def attempt(options: list[str]) -> None:
        try:
            index.run(*options, *command, progress=progress)
        except GitError as error:
            if not is_outdated_index_error(error):
                raise
            index.refresh_stat_data()  # a file with a new timestamp may have the same content
            index.run(*options, *command, progress=progress)

    new_oids = {change.path: change.new for change in files if change.status != "D"}
    changed_paths = [change.path for change in files]
    relist = functools.partial(_refresh_entries, index, changed_paths, old_tree, expected)
    filtered, failing_files = unfiltered.write_files_despite_filters(
        index.repository, lambda: new_oids, attempt, relist
    )
    if filtered:
        unfiltered.stage_files(index, filtered, failing_files)
    return sorted(failing_files)


def find_unfiltered_files(
    repository: Repository, tree: str, touched: Collection[bytes], paths: Sequence[bytes]
) -> FilesByPath:
    """Return files in `paths` that are as in `tree`, but whose filter failed before."""
    recorded_files = unfiltered.load_record(repository)
    if not recorded_files:
        return {}
    entries = diff.diff_trees(repository, empty_tree_oid(repository.object_format), tree, paths)
    files = {entry.path: entry.new for entry in entries if entry.path not in touched}
    return {path: state for path, state in recorded_files.items() if files.get(path) == state[0]}


def run_pending_filters(repository: Repository, pending: FilesByPath) -> list[bytes]:
    """Run filters that failed in an earlier restore; return files that fail again."""
    try:
        return unfiltered.filter_again_and_stage(repository, pending) if pending else []
    except GitError as error:
        message = f"git could not write every file: {error.message}"
        raise WorktreeError(message, hint="run the command again") from None


def _refresh_entries(
    index: PrivateIndex, paths: Collection[bytes], old_tree: str, expected: str
) -> None:
    repository = index.repository
    _add_files_to_index(index, _drop_entries_without_file(index, paths), expected)
    tree = index.write_tree()
    new_paths = paths_of(diff.diff_trees(repository, old_tree, tree), "AMT")
    differences = diff.diff_trees(repository, expected, tree)
    missed_changes = [change for change in differences if change.path in new_paths]
    if changed_files := comparison.unexpected_changes(repository, missed_changes, None, {}):
        message = f"files changed while git replaced them: {join_first(changed_files)}"
        raise BusyError(message, hint="restore the previous state: git ckpt undo")
    # git rereads a file that is as new as the index, and would see an unfiltered one as changed.
    later_time = time.time() + _LATER
    os.utime(index.path, (later_time, later_time))


def _add_files_to_index(index: PrivateIndex, paths: Sequence[bytes], expected: str) -> None:
    # If a filter fails, only files with the stored bytes are added; other entries stay.
    try:
        index.git(*_ADD, data=encode_paths(paths))
        return
    except GitError as error:
        failing_filter_names = find_failing_filters(index.repository, error)
        if not failing_filter_names:
            raise
    oids_by_path = manifest.regular_files(index.repository, expected)
    oids = {path: oids_by_path.get(path, "") for path in paths}
    filtered_paths = unfiltered.select_filtered(index.repository, oids, failing_filter_names)
    data = encode_paths(path for path in paths if path not in filtered_paths)
    index.git(*disable_filters(failing_filter_names), *_ADD, data=data)
    unfiltered_files = unfiltered.select_unfiltered(index.repository, filtered_paths)
    unfiltered.add_unfiltered_to_index(index, unfiltered_files)
