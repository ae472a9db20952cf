"""Compare a worktree with a snapshot that was restored into it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from gitckpt.git.contents import attributes, conversion, exact_files
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
    contents: Contents,
    commit: str,
    limits: Limits,
    *,
    with_operation: bool = True,
    deleted: Collection[bytes] | None = None,
    stays: Callable[[bytes], bool] = lambda _: False,
) -> list[str]:
    """List the differences between the worktree and a snapshot that was restored.

    If `deleted` is not None, new files at other paths do not count. `stays` says which paths to
    ignore; `commit` is the snapshot's linked commit.
    """
    head = objects.head()[0]
    with PrivateIndex(repository) as index:
        index.start_status()
        merged = merged_tree(repository, contents, commit)
        additions = diff.diff_trees(repository, merged, contents.files)
        untracked = [entry.path for entry in additions if entry.status == "A"]
        limits = replace(limits, timeout=float("inf"))
        captured = capture.capture_in(index, objects, head, limits, untracked, keeps=lambda _: True)
    current = manifest.read(repository, objects, captured.worktree.tree, head)
    changes = diff.diff_trees(repository, contents.files, captured.files)
    changes = [change for change in changes if not stays(change.path)]
    differing = [change for change in changes if not _is_displaced(repository, contents, change)]
    raw = manifest.raw_of(repository, contents)
    restored = {path: oid for path, oid in raw.items() if not stays(path)}
    names = unexpected(repository, differing, deleted, restored)
    if merged != merged_tree(repository, current, head):
        names.append("what is staged")
    stages = [stage for stage in (1, 2, 3) if contents.index.get(stage) != current.index.get(stage)]
    names += [f"stage {stage} of the index" for stage in stages]
    if _flags(contents) != _flags(current):
        names.append("flags of the index")
    if with_operation and contents.operation != current.operation:
        files = sorted(contents.operation.keys() ^ current.operation.keys()) or ["content"]
        names.append(f"the operation in progress ({', '.join(files)})")
    return names + find_wrong_layout(repository, contents.directories, contents.modes)


def _is_displaced(repository: Repository, contents: Contents, change: Difference) -> bool:
    # git clears skip-worktree if a directory, such as one with ignored files, is at the path.
    if contents.sparse is None or change.status != "D":
        return False
    absolute = os.path.join(os.fsencode(repository.worktree or ""), change.path)
    return change.path in contents.flags.get(SKIPPED, ()) and os.path.isdir(absolute)


def find_wrong_layout(
    repository: Repository, directories: Collection[bytes], modes: Mapping[bytes, int]
) -> list[str]:
    unmet = exact_files.find_unrestored_paths(repository.worktree or "", directories, modes)
    return [f"the mode or directory {path.decode('utf-8', 'replace')}" for path in unmet]


def unexpected(
    repository: Repository,
    differing: Iterable[Difference],
    deleted: Collection[bytes] | None,
    raw: Mapping[bytes, str],
) -> list[str]:
    """Describe wrong differences; `raw` has oids of files restored byte for byte."""
    differing_raw = set(exact_files.find_differing_paths(repository, raw))
    same_raw = raw.keys() - differing_raw
    names = []
    for entry in differing:
        may_stay = entry.status == "A" and deleted is not None and entry.path not in deleted
        if not entry.is_submodule and not may_stay:
            differing_raw.discard(entry.path)
            if entry.path not in same_raw and not _is_as_git_writes_it(repository, entry):
                names.append(str(entry))
    return names + [f"M {path.decode('utf-8', 'replace')}" for path in sorted(differing_raw)]


def _is_as_git_writes_it(repository: Repository, change: Difference) -> bool:
    # The file may be right though git would store it differently, by newer attributes.
    if change.status != "M" or change.old_mode != change.new_mode or change.new_mode == LINK:
        return False
    with open(os.path.join(os.fsencode(repository.worktree or ""), change.path), "rb") as file:
        content = file.read()
    words = ("cat-file", "--filters", f"--path={os.fsdecode(change.path)}", change.old)
    checkout = repository.git.run(*words, ok=(0, 128))
    return checkout.code == 0 and checkout.out == content


def comparable_trees(
    repository: Repository,
    objects: Objects,
    old_side: tuple[str | None, str],
    new_side: tuple[str | None, str],
) -> tuple[str, str]:
    """Return a tree per side, so that a diff shows all differences of two snapshots.

    A side is a snapshot (or None) and its commit. Files kept byte for byte get raw blobs.
    """
    sides = []
    for snapshot, commit in (old_side, new_side):
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
        for side, (snapshot, _) in zip(sides, (old_side, new_side), strict=True):
            raw = manifest.raw_of(repository, side)
            as_git = [path for path in paths if path not in raw]
            blobs = [(stored[0][path], path) for path in as_git]
            options = attributes.line_end_options(manifest.conversion_of(repository, snapshot))
            contents = conversion.convert_blobs(index, blobs, is_filtered=False, options=options)
            new_oids = objects.write([("blob", data or b"") for data in contents], flushed=False)
            oids = dict(zip(as_git, new_oids, strict=True))
            oids |= {path: raw[path] for path in paths if path in raw}
            index.git("read-tree", side.files)
            entries = [(mode, path) for path, mode, *_ in index.entries() if path in oids]
            index.put(b"%s %s 0\t%s" % (mode, oids[path].encode(), path) for mode, path in entries)
            trees.append(index.write_tree())
    return trees[0], trees[1]


def merged_tree(repository: Repository, contents: Contents, commit: str) -> str:
    """Return the tree of a snapshot's index entries that have no conflict."""
    return contents.index.get(0) or manifest.base_tree(repository, commit)


def _flags(contents: Contents) -> dict[str, set[bytes]]:
    flags = contents.flags.items()
    return {flag: set(paths) for flag, paths in flags if flag not in (SKIPPED, ABSENT)}
