"""Fill a new worktree with a snapshot."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from gitckpt.git import graph
from gitckpt.git.contents import annex, layout, raw_files, unfiltered
from gitckpt.git.objects.diff import leaves
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import index as sparse
from gitckpt.git.worktree import operation
from gitckpt.git.worktree.index import PARALLEL, PrivateIndex
from gitckpt.model.errors import WorktreeError
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.manifest import SKIPPED, Contents


def fill(made: Repository, contents: Contents, commit: str) -> list[bytes]:
    """Fill an empty worktree with a snapshot.

    Returns:
        The files that are there only as git stores them, because a filter fails.

    Raises:
        WorktreeError: git refuses a path in it, or an object is missing.
    """
    try:
        _share_keys(made)
        sparse.bring_back(made, contents.sparse)
        with PrivateIndex(made) as index:
            held = _write_files(index, contents)
            if contents.directories or contents.modes:
                layout.bring_back(made.worktree or "", contents.directories, contents.modes)
                index.refresh()  # their ctime has changed
            _remove_absent(index, contents)
            raw = manifest.raw_of(made, contents)
            raw_files.bring_back(made, raw)
            raw_files.refresh(index, raw.keys())
            if held:
                unfiltered.forget(made, raw)
            if annex.is_used(made):
                annex.populate(index, {path: oid for path, oid in blobs_of(made, contents.files).items() if path not in raw})
            manifest.turn_into(index, contents, commit, contents.files)
            index.install()
        operation.bring_back(made, contents.operation)
        return [path for path in held if path not in raw]
    except GitError as error:
        missing = graph.missing(made, contents.files, None)
        if missing:
            raise graph.unreachable(missing, is_promised=graph.promisor(made) is not None) from None
        raise WorktreeError(f"cannot bring back the files {contents.files}: {error.message}", hint=error.hint) from None


def _remove_absent(index: PrivateIndex, contents: Contents) -> None:
    # Skipped entries without a file, whatever the patterns of the sparse checkout.
    if not contents.away:
        return
    written = {path for path, *_, tag in index.entries() if tag == b"H"}  # by git: others are unsafe
    for path in written.intersection(contents.away):
        whole = os.path.join(os.fsencode(index.repository.worktree or ""), path)
        (os.rmdir if stat.S_ISDIR(os.lstat(whole).st_mode) else os.unlink)(whole)  # a submodule


def fill_from_commit(made: Repository, options: Sequence[str]) -> list[bytes]:
    """Fill an empty worktree with the files of HEAD; `options` are for git.

    Returns:
        The files that are there only as git stores them, because a filter fails.
    """

    def attempt(more: list[str]) -> None:
        words = ("reset", "--quiet", "--hard", "--no-recurse-submodules")
        made.git.run(*PARALLEL, *options, *more, *words, env=graph.on_purpose(made))

    written, left = unfiltered.write(made, lambda: blobs_of(made, "HEAD"), attempt)
    of_annex = annex.is_used(made)
    if written or of_annex:
        with PrivateIndex(made) as index:
            unfiltered.settle(index, written, left)
            if of_annex:
                annex.populate(index, blobs_of(made, "HEAD"))
            index.install()
    return sorted(left)


def blobs_of(repository: Repository, tree: str) -> dict[bytes, str]:
    return {path: oid for path, mode, oid in leaves(repository, tree) if mode != GITLINK}


def _write_files(index: PrivateIndex, contents: Contents) -> list[bytes]:
    fetching = graph.on_purpose(index.repository)

    def attempt(options: list[str]) -> None:
        index.run(*options, *PARALLEL, "read-tree", "--reset", "-u", contents.files, env=fetching)
        if contents.sparse is not None:
            _write_beyond_patterns(index, set(contents.flags.get(SKIPPED, ())), options)

    written, left = unfiltered.write(index.repository, lambda: blobs_of(index.repository, contents.files), attempt)
    if written:
        unfiltered.settle(index, written, left)
    return sorted(left)


def _share_keys(made: Repository) -> None:
    # git-crypt looks for its keys in each worktree's git directory, and stores them in the first.
    keys, here = (os.path.join(place, "git-crypt") for place in (made.common_dir, made.git_dir))
    if os.path.isdir(keys) and not os.path.lexists(here):
        os.symlink(keys, here)


def _write_beyond_patterns(index: PrivateIndex, skipped: set[bytes], options: Sequence[str]) -> None:
    """Write files that existed beyond a sparse checkout's patterns."""
    there = [path for path, *_, tag in index.entries() if tag == b"S" and path not in skipped]
    if there:
        wanted = b"".join(path + b"\0" for path in there)
        index.update("--no-skip-worktree", there)
        words = ("checkout-index", "--force", "--index", "-z", "--stdin")
        fetching = graph.on_purpose(index.repository)
        index.run(*options, *PARALLEL, *words, data=wanted, env=fetching)
