"""Compare a worktree with a snapshot that was restored into it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from gitckpt.git.contents import attributes, conversion, dir_modes, raw_files
from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import Difference
from gitckpt.git.objects.encoding import LINK
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.values import replace
from gitckpt.store.snapshot import capture, manifest
from gitckpt.store.snapshot.limits import Limits
from gitckpt.store.snapshot.manifest import ABSENT, SKIPPED, Contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import Objects


def compare(
    repository: Repository,
    objects: Objects,
    wanted: Contents,
    commit: str,
    limits: Limits,
    *,
    with_operation: bool = True,
    gone: Collection[bytes] | None = None,
    stays: Callable[[bytes], bool] = lambda _: False,
) -> list[str]:
    """Describe how a worktree differs from a snapshot, except in submodules.

    Args:
        with_operation: whether the operation in progress was restored as well.
        gone: the deleted paths if the worktree was not empty before: other files that were
            ignored until now may stay.
    """
    head = objects.head()[0]
    with PrivateIndex(repository) as index:
        index.look_ahead()
        merged = merged_tree(repository, wanted, commit)
        additions = diff.differences(repository, merged, wanted.files)
        untracked = [entry.path for entry in additions if entry.status == "A"]
        unlimited = replace(limits, timeout=float("inf"))
        captured = capture.capture_in(
            index, objects, head, unlimited, untracked, keeps=lambda _: True
        )
    found = manifest.read(repository, objects, captured.worktree.tree, head)
    changes = diff.differences(repository, wanted.files, captured.files)
    differing = [
        change
        for change in changes
        if not stays(change.path) and not _is_displaced(repository, wanted, change)
    ]
    raw = manifest.raw_of(repository, wanted)
    restored = {path: oid for path, oid in raw.items() if not stays(path)}
    names = unexpected(repository, differing, gone, restored)
    if merged != merged_tree(repository, found, head):
        names.append("what is staged")
    stages = [stage for stage in (1, 2, 3) if wanted.index.get(stage) != found.index.get(stage)]
    names += [f"stage {stage} of the index" for stage in stages]
    if _flags(wanted) != _flags(found):
        names.append("flags of the index")
    if with_operation and wanted.operation != found.operation:
        files = sorted(wanted.operation.keys() ^ found.operation.keys()) or ["content"]
        names.append(f"the operation in progress ({', '.join(files)})")
    return names + unshaped(repository, wanted.directories, wanted.modes)


def _is_displaced(repository: Repository, wanted: Contents, change: Difference) -> bool:
    # git takes the skip mark off where a directory is, such as one with ignored files.
    if wanted.sparse is None or change.status != "D":
        return False
    whole = os.path.join(os.fsencode(repository.worktree or ""), change.path)
    return change.path in wanted.flags.get(SKIPPED, ()) and os.path.isdir(whole)


def unshaped(
    repository: Repository, directories: Collection[bytes], modes: Mapping[bytes, int]
) -> list[str]:
    unmet = dir_modes.unmet(repository.worktree or "", directories, modes)
    return [f"the mode or directory {path.decode('utf-8', 'replace')}" for path in unmet]


def unexpected(
    repository: Repository,
    differing: Iterable[Difference],
    gone: Collection[bytes] | None,
    raw: Mapping[bytes, str],
) -> list[str]:
    """Describe the differences between the wanted and the found files that are wrong.

    `raw` has the oids of the files that are wanted byte for byte; `gone` is as for `compare`.
    """
    differing_raw = set(raw_files.differing(repository, raw))
    same_raw = raw.keys() - differing_raw
    names = []
    for entry in differing:
        if not entry.is_submodule and (entry.status != "A" or gone is None or entry.path in gone):
            differing_raw.discard(entry.path)
            if entry.path not in same_raw and not _is_as_git_writes_it(repository, entry):
                names.append(str(entry))
    return names + [f"M {path.decode('utf-8', 'replace')}" for path in sorted(differing_raw)]


def _is_as_git_writes_it(repository: Repository, change: Difference) -> bool:
    # The file may be right though git would store it otherwise: attributes came after it.
    if change.status != "M" or change.old_mode != change.new_mode or change.new_mode == LINK:
        return False
    with open(os.path.join(os.fsencode(repository.worktree or ""), change.path), "rb") as file:
        content = file.read()
    words = ("cat-file", "--filters", f"--path={os.fsdecode(change.path)}", change.old)
    written = repository.git.run(*words, ok=(0, 128))
    return written.code == 0 and written.out == content


def comparable(
    repository: Repository,
    objects: Objects,
    before: tuple[str | None, str],
    after: tuple[str | None, str],
) -> tuple[str, str]:
    """Return two trees that differ where the files of two snapshots differ.

    They hold what git stores. Files that differ only in what git does not store are whole in them.
    Each side is the tree of a snapshot, or None, and its commit ("" for none).
    """
    sides = []
    for snapshot, commit in (before, after):
        files = manifest.tree_of_files(repository, snapshot, commit)
        sides.append(Contents(files, raw=manifest.raw_tree(repository, snapshot)))
    old, new = (side.files for side in sides)
    if sides[0].raw == sides[1].raw:
        return old, new
    stored = [manifest.regular_files(repository, tree) for tree in (old, new)]
    differing = manifest.differing_raw(repository, *sides)
    paths = [path for path in differing if stored[0].get(path) == stored[1].get(path)]
    trees = []
    with PrivateIndex(repository) as index:
        for side, (snapshot, _) in zip(sides, (before, after), strict=True):
            raw = manifest.raw_of(repository, side)
            as_git = [path for path in paths if path not in raw]
            wanted = [(stored[0][path], path) for path in as_git]
            options = attributes.line_end_options(manifest.conversion_of(repository, snapshot))
            written = conversion.written_by_git(index, wanted, is_filtered=False, options=options)
            oids = objects.write([("blob", data or b"") for data in written], flushed=False)
            whole = dict(zip(as_git, oids, strict=True))
            whole |= {path: raw[path] for path in paths if path in raw}
            index.git("read-tree", side.files)
            entries = [(mode, path) for path, mode, *_ in index.entries() if path in whole]
            index.put(b"%s %s 0\t%s" % (mode, whole[path].encode(), path) for mode, path in entries)
            trees.append(index.write_tree())
    return trees[0], trees[1]


def merged_tree(repository: Repository, found: Contents, commit: str) -> str:
    """Return the tree of a snapshot's index entries that are not in conflict."""
    return found.index.get(0) or manifest.base_tree(repository, commit)


def _flags(found: Contents) -> dict[str, set[bytes]]:
    flags = found.flags.items()
    return {flag: set(paths) for flag, paths in flags if flag not in (SKIPPED, ABSENT)}
