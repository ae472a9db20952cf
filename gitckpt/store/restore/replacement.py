"""Let git replace the files of a worktree; if a filter fails, continue without it."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import time
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git.command import nul_ended
from gitckpt.git.contents import attributes, exact_files, unfiltered
from gitckpt.git.contents.unfiltered import FilesByPath
from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import Difference, paths_in_tree
from gitckpt.git.objects.encoding import empty_tree
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import modules
from gitckpt.git.worktree.administration import failing_filters, filters_off
from gitckpt.git.worktree.index import PARALLEL, PrivateIndex
from gitckpt.model.arguments import join_first
from gitckpt.model.checkpoint import Omitted
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.store.restore import byte_exact
from gitckpt.store.restore.plan import is_file, is_within, paths_in
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.snapshot.capture import Captured

_LATER = 2.0  # seconds; git compares timestamps in whole seconds
_ORDINARY = (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)
_ADD = ("update-index", "--add", "--replace", "-z", "--stdin")
_NOT_UP_TO_DATE = re.compile(r"not uptodate|would be (?:overwritten|removed|lost)")


def is_out_of_date(error: GitError) -> bool:
    """Return whether git failed because a file differs from its index entry."""
    return _NOT_UP_TO_DATE.search(error.stderr) is not None


def list_files(index: PrivateIndex, captured: Captured) -> None:
    """Add to `index` the captured files that it lacks."""
    if not captured.unlisted:
        return
    index.git(*_ADD, data=nul_ended(_remove_absent(index, captured.unlisted)))
    tree = index.write_tree()
    if tree != captured.files:
        differing = diff.differences(index.repository, captured.files, tree)
        message = f"files changed while gitckpt read them: {join_first([*map(str, differing)])}"
        raise BusyError(message, hint="run the command again")


def _remove_absent(index: PrivateIndex, paths: Collection[bytes]) -> list[bytes]:
    """Remove index entries of missing files; return the paths of existing files."""
    top = os.fsencode(index.repository.worktree or "")
    files = [path for path in paths if is_file(top, path)]
    index.update("--force-remove", sorted(set(paths).difference(files)))
    return files


def list_special(
    repository: Repository, omitted: Collection[Omitted], tree: str, paths: Sequence[bytes]
) -> list[bytes]:
    """Return the pipes, sockets and devices at paths where a tree has a file.

    A capture takes the content of such a tracked path from the index.
    """
    top, special = os.fsencode(repository.worktree or ""), []
    for path in (modules.unquote(entry.path) for entry in omitted):
        with contextlib.suppress(OSError):
            kind = stat.S_IFMT(os.lstat(os.path.join(top, path)).st_mode)
            if kind not in _ORDINARY and is_within(path, paths):
                special.append(path)
    files = paths_in_tree(repository, tree, special)
    return [path for path in special if any(is_within(file, [path]) for file in files)]


def remove_entries(index: PrivateIndex, absent: Collection[bytes], tree: str) -> str:
    """Remove the index entries of `absent`, so that git writes the missing files.

    `.gitattributes` entries that `tree` lacks stay until git removes them, as they affect other
    files. Returns the tree of the files that exist.
    """
    rules = [path for path in absent if os.path.basename(path) == attributes.FILE]
    postponed = set(rules) - paths_in_tree(index.repository, tree, rules)
    index.update("--force-remove", sorted(set(absent) - postponed))
    if not postponed:
        return index.write_tree()
    with PrivateIndex(index.repository) as scratch:
        scratch.copy_from(index.path)
        scratch.update("--force-remove", sorted(postponed))
        return scratch.write_tree()


def delete_unconvertible(index: PrivateIndex, files: Mapping[bytes, str]) -> None:
    """Delete files that git cannot convert and therefore would not replace.

    The safety checkpoint holds these files. `files` maps paths to the oids of the exact bytes.
    """
    if not files:
        return
    repository = index.repository
    if differing := exact_files.differing_paths(repository, files):
        raise byte_exact.changed_error(join_first([os.fsdecode(path) for path in differing]))
    for path in files:
        parent = exact_files.open_parent(repository, path)
        with contextlib.suppress(FileNotFoundError), parent as (fd, name):
            os.unlink(name, dir_fd=fd)
    index.update("--force-remove", sorted(files))


def replace_files(
    index: PrivateIndex, files: Sequence[Difference], old_tree: str, expected: str
) -> list[bytes]:
    """Let git replace files; git checks all of them before it writes the first.

    Returns the files that stay unfiltered because a filter fails. `index` and `old_tree` describe
    the current files. Raises `GitError` if git refuses (`is_out_of_date`) or cannot write, and
    `BusyError` if a file has changed.
    """
    words = (*PARALLEL, "read-tree", "-m", "-u", "--no-sparse-checkout", expected)

    def attempt(options: list[str]) -> None:
        try:
            index.git(*options, *words)
        except GitError as error:
            if not is_out_of_date(error):
                raise
            index.refresh()  # a file with a new timestamp may have the same content
            index.git(*options, *words)

    to_write = {change.path: change.new for change in files if change.status != "D"}
    paths = [change.path for change in files]
    relist = functools.partial(_list_current, index, paths, old_tree, expected)
    filtered, still_failing = unfiltered.write(index.repository, lambda: to_write, attempt, relist)
    if filtered:
        unfiltered.update_index(index, filtered, still_failing)
    return sorted(still_failing)


def find_unfiltered(
    repository: Repository, tree: str, touched: Collection[bytes], paths: Sequence[bytes]
) -> FilesByPath:
    """Return the files in `paths` that equal `tree`, but that no filter converted yet."""
    recorded = unfiltered.load_record(repository)
    if not recorded:
        return {}
    entries = diff.differences(repository, empty_tree(repository.object_format), tree, paths)
    files = {entry.path: entry.new for entry in entries if entry.path not in touched}
    return {path: state for path, state in recorded.items() if files.get(path) == state[0]}


def filter_pending(repository: Repository, pending: FilesByPath) -> list[bytes]:
    """Run the filters of the `pending` files; return the files whose filter fails."""
    try:
        return unfiltered.complete_and_stage(repository, pending) if pending else []
    except GitError as error:
        message = f"git could not write every file: {error.message}"
        raise WorktreeError(message, hint="run the command again") from None


def _list_current(
    index: PrivateIndex, paths: Collection[bytes], old_tree: str, expected: str
) -> None:
    repository = index.repository
    _add(index, _remove_absent(index, paths), expected)
    tree = index.write_tree()
    new_paths = paths_in(diff.differences(repository, old_tree, tree), "AMT")
    differing = diff.differences(repository, expected, tree)
    missed = [change for change in differing if change.path in new_paths]
    if changed := comparison.unexpected(repository, missed, None, {}):
        message = f"files changed while git replaced them: {join_first(changed)}"
        raise BusyError(message, hint="restore the previous state: git ckpt undo")
    # git rereads a file that is as new as the index, and would see an unfiltered one as changed.
    later = time.time() + _LATER
    os.utime(index.path, (later, later))


def _add(index: PrivateIndex, paths: Sequence[bytes], expected: str) -> None:
    # If a filter fails, only files with the stored bytes are added; other entries stay.
    try:
        index.git(*_ADD, data=nul_ended(paths))
        return
    except GitError as error:
        failing = failing_filters(index.repository, error)
        if not failing:
            raise
    to_write = manifest.regular_files(index.repository, expected)
    oids = {path: to_write.get(path, "") for path in paths}
    behind = unfiltered.select_filtered(index.repository, oids, failing)
    data = nul_ended(path for path in paths if path not in behind)
    index.git(*filters_off(failing), *_ADD, data=data)
    unfiltered.add_unfiltered(index, unfiltered.select_unfiltered(index.repository, behind))
