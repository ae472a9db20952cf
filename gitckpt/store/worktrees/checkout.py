"""Fill a new worktree with a snapshot."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence

from gitckpt.git import graph
from gitckpt.git.command import nul_ended
from gitckpt.git.contents import exact_files, unfiltered
from gitckpt.git.objects.diff import leaves
from gitckpt.git.objects.encoding import GITLINK
from gitckpt.git.objects.plumbing import open_objects
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import index as sparse
from gitckpt.git.worktree import operation
from gitckpt.git.worktree.index import PARALLEL, PrivateIndex
from gitckpt.model.arguments import first_of
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.errors import WorktreeError
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.snapshot.limits import Limits
from gitckpt.store.snapshot.manifest import SKIPPED, Contents


def fill(
    worktree: Repository, contents: Contents, checkpoint: Checkpoint, limits: Limits, hint: str = ""
) -> list[bytes]:
    """Fill an empty worktree with the contents of a checkpoint, then compare it.

    Returns the files that are there only as git stores them, because a filter fails. `hint` is
    for the error if the worktree differs.
    """
    commit = checkpoint.git_sha
    try:
        # git-crypt looks for its keys in each worktree's git directory; the first one has them.
        places = (worktree.common_dir, worktree.git_dir)
        keys, link = (os.path.join(place, "git-crypt") for place in places)
        if os.path.isdir(keys) and not os.path.lexists(link):
            os.symlink(keys, link)
        sparse.restore_sparse(worktree, contents.sparse)
        with PrivateIndex(worktree) as index:
            held = _write_files(index, contents)
            if contents.directories or contents.modes:
                top = worktree.worktree or ""
                exact_files.bring_back(top, contents.directories, contents.modes)
                index.refresh()  # their ctime has changed
            if contents.away:
                # Skipped entries without a file, whatever the patterns of the sparse checkout; but
                # only paths that git has written: others are unsafe.
                written = {path for path, *_, tag in index.entries() if tag == b"H"}
                for path in written.intersection(contents.away):
                    absolute = os.path.join(os.fsencode(worktree.worktree or ""), path)
                    is_submodule = stat.S_ISDIR(os.lstat(absolute).st_mode)
                    (os.rmdir if is_submodule else os.unlink)(absolute)
            raw = manifest.raw_of(worktree, contents)
            exact_files.restore_raw(worktree, raw)
            exact_files.refresh(index, raw.keys())
            if held:
                unfiltered.forget(worktree, raw)
            if unfiltered.uses_annex(worktree):
                blobs = blobs_of(worktree, contents.files).items()
                unfiltered.populate_annexed(
                    index, {path: oid for path, oid in blobs if path not in raw}
                )
            manifest.turn_into(index, contents, commit, contents.files)
            index.install()
        operation.bring_back(worktree, contents.operation)
    except GitError as error:
        missing = graph.missing(worktree, contents.files, None)
        if missing:
            is_promised = graph.promisor(worktree) is not None
            raise graph.missing_error(missing, is_promised=is_promised) from None
        message = f"cannot restore the files {contents.files}: {error.message}"
        raise WorktreeError(message, hint=error.hint) from None
    # Objects of its own: no ref leads to what it writes, so it must not be held while a gc runs.
    with contextlib.closing(open_objects(worktree, "plumbing")) as objects:
        differing = comparison.compare(worktree, objects, contents, commit, limits)
    if differing:
        reason = f"what came back is not what checkpoint {checkpoint.id} captured"
        raise WorktreeError(f"{reason}: {first_of(differing)}", hint=hint or None)
    return [path for path in held if path not in raw]


def fill_from_commit(worktree: Repository, options: Sequence[str]) -> list[bytes]:
    """Fill an empty worktree with HEAD; return the unfiltered files, as `fill` does."""

    def attempt(more: list[str]) -> None:
        words = ("reset", "--quiet", "--hard", "--no-recurse-submodules")
        worktree.git.run(*PARALLEL, *options, *more, *words, env=graph.fetch_variables(worktree))

    written, still_failing = unfiltered.write(worktree, lambda: blobs_of(worktree, "HEAD"), attempt)
    of_annex = unfiltered.uses_annex(worktree)
    if written or of_annex:
        with PrivateIndex(worktree) as index:
            unfiltered.update_index(index, written, still_failing)
            if of_annex:
                unfiltered.populate_annexed(index, blobs_of(worktree, "HEAD"))
            index.install()
    return sorted(still_failing)


def blobs_of(repository: Repository, tree: str) -> dict[bytes, str]:
    return {path: oid for path, mode, oid in leaves(repository, tree) if mode != GITLINK}


def _write_files(index: PrivateIndex, contents: Contents) -> list[bytes]:
    repository, fetching = index.repository, graph.fetch_variables(index.repository)

    def attempt(options: list[str]) -> None:
        index.run(*options, *PARALLEL, "read-tree", "--reset", "-u", contents.files, env=fetching)
        if contents.sparse is None:
            return
        # Files that existed beyond the patterns of the sparse checkout.
        skipped = set(contents.flags.get(SKIPPED, ()))
        unmarked = [
            path for path, *_, tag in index.entries() if tag == b"S" and path not in skipped
        ]
        if unmarked:
            index.update("--no-skip-worktree", unmarked)
            words = ("checkout-index", "--force", "--index", "-z", "--stdin")
            index.run(*options, *PARALLEL, *words, data=nul_ended(unmarked), env=fetching)

    written, still_failing = unfiltered.write(
        repository, lambda: blobs_of(repository, contents.files), attempt
    )
    if written:
        unfiltered.update_index(index, written, still_failing)
    return sorted(still_failing)
