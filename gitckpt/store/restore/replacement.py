"""Files that git replaces. Where a filter fails, it stops in the middle: the next attempt goes on from there, and completes it later."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import time
from collections.abc import Collection, Mapping, Sequence

from gitckpt.git.contents import attributes, raw_files, unfiltered
from gitckpt.git.contents.unfiltered import HeldBack
from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import Difference, present
from gitckpt.git.objects.encoding import empty_tree
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import modules
from gitckpt.git.worktree.administration import failing_filters, filters_off
from gitckpt.git.worktree.index import PARALLEL, PrivateIndex
from gitckpt.model.arguments import first_of
from gitckpt.model.errors import BusyError, WorktreeError
from gitckpt.store.restore.plan import is_within
from gitckpt.store.snapshot import comparison, manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.model.checkpoint import Omitted
    from gitckpt.store.snapshot.capture import Captured

_LATER = 2.0
"""In seconds: git compares whole ones."""

_NOT_UP_TO_DATE = re.compile(r"not uptodate|would be (?:overwritten|removed|lost)")


def changed(what: str) -> BusyError:
    """Returns the error that says of files that somebody has changed them meanwhile."""
    return BusyError(f"a file changed while it was to be replaced: {what}", hint="look at git status, then run the command again")


def is_out_of_date(error: GitError) -> bool:
    """Tells whether git found a file that is not as its index says."""
    return _NOT_UP_TO_DATE.search(error.stderr) is not None


def list_files(index: PrivateIndex, captured: Captured) -> None:
    """Has an index list the files as they were captured, where the capture has left that to whoever needs it.

    Args:
        index: private, in which they were captured.
        captured: what was found.

    Raises:
        BusyError: a file has changed meanwhile.
    """
    if not captured.unlisted:
        return
    top = os.fsencode(index.repository.worktree or "")
    there = [path for path in captured.unlisted if _is_file(top, path)]
    index.update("--force-remove", sorted(set(captured.unlisted).difference(there)))
    index.git("update-index", "--add", "--replace", "-z", "--stdin", data=b"".join(path + b"\0" for path in there))
    now = index.write_tree()
    if now != captured.files:
        changed = [str(one) for one in diff.differences(index.repository, captured.files, now)]
        raise BusyError(f"files changed while they were looked at: {first_of(changed)}", hint="run the command again")


def in_place_of_files(repository: Repository, omitted: Collection[Omitted], tree: str, paths: Sequence[bytes]) -> list[bytes]:
    """Returns the pipes, sockets and devices where a tree has something: a capture takes the tracked file to be there as the index has it.

    Args:
        repository: seen from the worktree.
        omitted: what a capture has left out.
        tree: of the files that are to be there.
        paths: files and directories to which the restore is restricted.
    """
    top = os.fsencode(repository.worktree or "")
    found = [path for path in (modules.unquoted(entry.path) for entry in omitted) if is_within(path, paths)]
    found = [path for path in found if _is_special(os.path.join(top, path))]
    there = present(repository, tree, found)
    return [path for path in found if any(is_within(one, [path]) for one in there)]


def _is_special(path: bytes) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode))


def take_out(index: PrivateIndex, absent: Collection[bytes], wanted: str) -> str:
    """Takes entries out of which no file is there, so that git writes what is missing; returns the tree of the files that are there.

    Attributes that are not wanted stay until git itself takes them out, with what it writes: until then, other files are as they say.

    Args:
        index: lists the files as they are, and entries of others.
        absent: those.
        wanted: the tree of all files as they shall be.
    """
    rules = [path for path in absent if os.path.basename(path) == attributes.FILE]
    later = set(rules) - present(index.repository, wanted, rules)
    index.update("--force-remove", sorted(set(absent) - later))
    if not later:
        return index.write_tree()
    with PrivateIndex(index.repository) as scratch:
        scratch.copy_from(index.path)
        scratch.update("--force-remove", sorted(later))
        return scratch.write_tree()


def take_away(index: PrivateIndex, files: Mapping[bytes, str]) -> None:
    """Remove files that git cannot convert, and so would not replace.

    A checkpoint holds them.

    Args:
        index: has entries for them, which go as well.
        files: oids of their bytes, by path.

    Raises:
        BusyError: one has changed meanwhile.
    """
    if not files:
        return
    repository = index.repository
    differing = raw_files.differing(repository, files)
    if differing:
        raise changed(first_of([os.fsdecode(path) for path in differing]))
    for path in files:
        with contextlib.suppress(FileNotFoundError), raw_files.directory_of(repository, path) as (fd, name):
            os.unlink(name, dir_fd=fd)
    index.update("--force-remove", sorted(files))


def replace_files(index: PrivateIndex, files: Sequence[Difference], before: str, expected: str) -> list[bytes]:
    """Lets git replace the files; it looks at all of them before it touches the first.

    Args:
        index: lists the files as they are.
        files: those to be replaced.
        before: the tree of all files as they are.
        expected: the tree of all files as they shall be.

    Returns:
        The files that are there only as git stores them, because a filter fails.

    Raises:
        GitError: git refused, and `is_out_of_date` says whether because a file has changed; or it could not write.
        BusyError: a file has changed meanwhile.
    """
    replace_them = (*PARALLEL, "read-tree", "-m", "-u", "--no-sparse-checkout", expected)

    def attempt(options: list[str]) -> None:
        try:
            index.git(*options, *replace_them)
        except GitError as error:
            if not is_out_of_date(error):
                raise
            index.refresh()  # a file that was only touched is none that changed
            index.git(*options, *replace_them)

    coming = {one.path: one.new for one in files if one.status != "D"}
    again = functools.partial(_take_note, index, [one.path for one in files], before, expected)
    written, left = unfiltered.write(index.repository, lambda: coming, attempt, again)
    if written:
        unfiltered.settle(index, written, left)
    return sorted(left)


def pending(repository: Repository, wanted: str, touched: Collection[bytes], paths: Sequence[bytes]) -> HeldBack:
    """Returns the files that are as they shall be, but only as git stores them.

    Args:
        repository: seen from the worktree.
        wanted: the tree of all files as they shall be.
        touched: paths that are replaced anyway.
        paths: files and directories that are to be looked at; none for all.
    """
    held = unfiltered.held(repository)
    if not held:
        return {}
    nothing = empty_tree(repository.object_format)
    there = {(one.path, one.new) for one in diff.differences(repository, nothing, wanted, paths)}
    return {path: each for path, each in held.items() if path not in touched and (path, each[0]) in there}


def complete(repository: Repository, pending: HeldBack) -> list[bytes]:
    """Completes files that are there only as git stores them, and returns those that stay so.

    Args:
        repository: seen from the worktree.
        pending: which.

    Raises:
        WorktreeError: one could not be written.
    """
    try:
        return unfiltered.completed(repository, pending) if pending else []
    except GitError as error:
        raise WorktreeError(f"not every file could be written: {error.message}", hint="run the command again") from None


def _take_note(index: PrivateIndex, paths: Collection[bytes], before: str, expected: str) -> None:
    """Has an index list files as they are now.

    Args:
        index: lists them as they were before.
        paths: what was to be replaced.
        before: the tree of the files as they were.
        expected: the tree of the files as they shall be.

    Raises:
        BusyError: a file is neither as it was nor as it shall be: somebody has changed it meanwhile.
    """
    repository = index.repository
    top = os.fsencode(repository.worktree or "")
    there = [path for path in paths if _is_file(top, path)]
    index.update("--force-remove", set(paths).difference(there))
    _read(index, there, expected)
    now = index.write_tree()
    new = [one for one in diff.differences(repository, before, now) if one.status != "D"]
    missed = {one.path: one for one in diff.differences(repository, expected, now)}
    changed = comparison.unexpected(repository, [missed[one.path] for one in new if one.path in missed], None, {})
    if changed:
        raise BusyError(
            f"files changed while they were replaced: {first_of(changed)}", hint="go back to what was there before: git ckpt undo"
        )
    # Of a file as young as the index, git would look at the content, with the filter off this time: it would seem to have changed.
    later = time.time() + _LATER
    os.utime(index.path, (later, later))


def _read(index: PrivateIndex, paths: Sequence[bytes], expected: str) -> None:
    """Read files into an index.

    A file behind a filter that fails is read only if it is as git stores it. Else its entry stays.

    Args:
        index: lists them as they were.
        paths: of the files.
        expected: the tree of the files as they shall be.
    """
    words = ("update-index", "--add", "--replace", "-z", "--stdin")
    try:
        index.git(*words, data=b"".join(path + b"\0" for path in paths))
        return
    except GitError as error:
        failing = failing_filters(index.repository, error)
        if not failing:
            raise
    coming = manifest.regular_files(index.repository, expected)
    behind = unfiltered.behind(index.repository, {path: coming.get(path, "") for path in paths}, failing)
    index.git(*filters_off(failing), *words, data=b"".join(path + b"\0" for path in paths if path not in behind))
    unfiltered.accept(index, unfiltered.still(index.repository, behind))


def _is_file(top: bytes, path: bytes) -> bool:
    whole = os.path.join(top, path)
    parts = path.split(b"/")
    above = (os.path.join(top, *parts[:count]) for count in range(1, len(parts)))
    return (os.path.isfile(whole) or os.path.islink(whole)) and not any(os.path.islink(parent) for parent in above)
