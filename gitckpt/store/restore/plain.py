"""Restores in which nothing but files changes, and nothing is converted: the most usual ones, which need neither git nor the index."""

from __future__ import annotations

import os
import re

from gitckpt.git.contents import attributes, layout, raw_files, unfiltered, verdicts
from gitckpt.git.contents.exchange import Exchange
from gitckpt.git.graph import partial
from gitckpt.git.objects.encoding import object_id
from gitckpt.model.names import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gitckpt.git.repository import Repository
    from gitckpt.store.restore.plan import Plan
    from gitckpt.store.snapshot.capture import Captured
    from gitckpt.store.snapshot.limits import Limits
    from gitckpt.store.snapshot.manifest import Contents

UNUSUAL = re.compile(rb"[^ -~]|git|(^|/)\.|[~:\\]|//", re.IGNORECASE)
"""What a path has that git might refuse, as it may lead out of the worktree or into .git; others need not be put to git."""

_LARGEST = 8 << 20
"""In bytes: what is held in memory at once."""


def exchange(repository: Repository, limits: Limits, captured: Captured, sides: tuple[Contents, Contents], plan: Plan) -> Exchange | None:
    """Returns what replaces the files; None where more is to be done, or git has a say in it.

    Args:
        repository: seen from the worktree.
        limits: know what git's configuration says of conversions.
        captured: what the capture before it found.
        sides: what the worktree holds, and what it shall hold.
        plan: what is to be done.
    """
    exact = plan.exactness
    if not plan.files or not plan.is_whole or plan.index_lines or plan.flags or plan.submodules or plan.skipped or plan.absent:
        return None
    if exact.raw or exact.alike or exact.touched is not None or any(map(_is_special, sides)):
        return None
    configured = limits.conversions(repository)
    paths = [one.path for one in plan.files]
    omitted = {one.path for one in captured.worktree.omitted}
    if any(UNUSUAL.search(path) or quoted(path) in omitted for path in paths) or not configured.takes_as_is:
        return None
    if ".git/index" in omitted:  # which cannot be read, and is made anew
        return None
    top = os.fsencode(repository.worktree or "")
    if any(one.status == "A" and os.path.lexists(os.path.join(top, one.path)) for one in plan.files):  # an empty directory
        return None
    directories = layout.with_above([os.path.dirname(path) for path in paths])
    if _are_closed(top, directories) or _are_linked(top, paths):
        return None
    if captured.as_is or captured.unheld:
        return None
    if not captured.is_as_stored or verdicts.are_there(repository) or unfiltered.held(repository) or partial.promisor(repository):
        return None
    # What is ignored was not looked at, and may have attributes, too.
    if attributes.rules(repository, configured, directories, ()) is not None or _was_converted(repository, captured, plan):
        return None
    return Exchange.of(repository, plan.files)


def _is_special(contents: Contents) -> bool:
    """Tells whether there is more than files, and entries of an index that are in no conflict."""
    stages = any(contents.index.get(stage) for stage in (1, 2, 3))
    return bool(stages or contents.flags or contents.sparse is not None or contents.raw or contents.stale)


def _are_closed(top: bytes, directories: Collection[bytes]) -> bool:
    """Tells whether git may go where we do not: into a directory that has a repository of its own, or one that may not be listed."""
    wholes = [top, *(os.path.join(top, path) for path in directories)]
    if any(os.path.lexists(os.path.join(whole, b".git")) for whole in wholes[1:]):
        return True
    return any(os.path.isdir(whole) and not os.access(whole, os.R_OK | os.W_OK | os.X_OK) for whole in wholes)


def _are_linked(top: bytes, paths: Iterable[bytes]) -> bool:
    """Tells whether two of some paths are one file: once the first one is gone, the other one looks as if somebody had changed it."""
    seen = set()
    for path in paths:
        try:
            status = os.lstat(os.path.join(top, path))
        except OSError:
            continue
        if status.st_nlink > 1:
            if (status.st_dev, status.st_ino) in seen:
                return True
            seen.add((status.st_dev, status.st_ino))
    return False


def _was_converted(repository: Repository, captured: Captured, plan: Plan) -> bool:
    """Tells whether a file that git calls unchanged holds something else than its entry: git made it when it still converted something.

    Of a large one, which is not read for that, it is taken to be so.
    """
    top = os.fsencode(repository.worktree or "")
    looked_at = set(captured.unlisted)
    there = {one.path: one.old for one in plan.files if one.status != "A" and one.path not in looked_at}
    if any(_is_large(os.path.join(top, path)) for path in there):
        return True
    contents = zip(there.values(), raw_files.bytes_of(repository, there), strict=True)
    return any(data is not None and object_id("blob", data, repository.object_format) != oid for oid, data in contents)


def _is_large(path: bytes) -> bool:
    try:
        return os.lstat(path).st_size > _LARGEST
    except OSError:
        return False
