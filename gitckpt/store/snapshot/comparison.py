"""Compare a worktree with a snapshot that was restored into it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from gitckpt.git.contents import attributes, conversion, exact_files
from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import PathDifference
from gitckpt.git.objects.encoding import LINK
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.values import replace
from gitckpt.store.snapshot import capture, manifest
from gitckpt.store.snapshot.limits import Limits
from gitckpt.store.snapshot.manifest import ABSENT, SKIPPED, Snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import ObjectDatabase


def compare_with_worktree(
    repository: Repository,
    objects: ObjectDatabase,
    contents: Snapshot,
    commit: str,
    limits: Limits,
    *,
    with_operation: bool = True,
    deleted: Collection[bytes] | None = None,
    stays: Callable[[bytes], bool] = lambda _: False,
) -> list[str]:
    """List the differences between the worktree and a snapshot that was restored.

    `contents` is the snapshot, and `commit` its linked commit. Paths for which `stays` returns True
    are ignored. If `deleted` is not None, so are new files, unless `deleted` has their path. An
    operation in progress is compared only if `with_operation`.
    """
    head = objects.read_head()[0]
    with PrivateIndex(repository) as index:
        index.start_status_process()
        staged = staged_tree(repository, contents, commit)
        added_files = diff.diff_trees(repository, staged, contents.files)
        new_paths = [entry.path for entry in added_files if entry.status == "A"]
        limits = replace(limits, timeout=float("inf"))
        captured = capture.capture_in(index, objects, head, limits, new_paths, keeps=lambda _: True)
    actual = manifest.read(repository, objects, captured.worktree.tree, head)
    changes = diff.diff_trees(repository, contents.files, captured.files)
    changes = [change for change in changes if not stays(change.path)]
    differing = [change for change in changes if not _is_directory(repository, contents, change)]
    raw_oids = manifest.raw_files(repository, contents)
    checked_raw_oids = {path: oid for path, oid in raw_oids.items() if not stays(path)}
    descriptions = unexpected_changes(repository, differing, deleted, checked_raw_oids)
    if staged != staged_tree(repository, actual, head):
        descriptions.append("what is staged")
    stages = [stage for stage in (1, 2, 3) if contents.index.get(stage) != actual.index.get(stage)]
    descriptions += [f"stage {stage} of the index" for stage in stages]
    if _index_flags_to_compare(contents) != _index_flags_to_compare(actual):
        descriptions.append("flags of the index")
    if with_operation and contents.operation != actual.operation:
        files = sorted(contents.operation.keys() ^ actual.operation.keys()) or ["content"]
        descriptions.append(f"the operation in progress ({', '.join(files)})")
    return descriptions + find_wrong_modes(repository, contents.directories, contents.modes)


def _is_directory(repository: Repository, contents: Snapshot, change: PathDifference) -> bool:
    # git clears skip-worktree if a directory, such as one with ignored files, is at the path.
    if contents.sparse is None or change.status != "D":
        return False
    absolute_path = os.path.join(os.fsencode(repository.worktree or ""), change.path)
    return change.path in contents.flags.get(SKIPPED, ()) and os.path.isdir(absolute_path)


def find_wrong_modes(
    repository: Repository, directories: Collection[bytes], modes: Mapping[bytes, int]
) -> list[str]:
    paths = exact_files.find_unrestored_paths(repository.worktree or "", directories, modes)
    return [f"the mode or directory {path.decode('utf-8', 'replace')}" for path in paths]


def unexpected_changes(
    repository: Repository,
    differing: Iterable[PathDifference],
    deleted: Collection[bytes] | None,
    raw: Mapping[bytes, str],
) -> list[str]:
    """Describe the differences that a restore must not leave in the worktree.

    `differing` lists the candidates. `raw` has, by path, the oids of files that were restored byte
    for byte. If `deleted` is not None, new files at other paths are expected.
    """
    differing_raw_paths = set(exact_files.find_differing_paths(repository, raw))
    same_raw_paths = raw.keys() - differing_raw_paths
    lines = []
    for entry in differing:
        is_allowed = entry.status == "A" and deleted is not None and entry.path not in deleted
        if not entry.is_submodule and not is_allowed:
            differing_raw_paths.discard(entry.path)
            if entry.path not in same_raw_paths and not _equals_git_checkout(repository, entry):
                lines.append(str(entry))
    return lines + [f"M {path.decode('utf-8', 'replace')}" for path in sorted(differing_raw_paths)]


def _equals_git_checkout(repository: Repository, change: PathDifference) -> bool:
    # The file may be right though git would store it differently, by newer attributes.
    if change.status != "M" or change.old_mode != change.new_mode or change.new_mode == LINK:
        return False
    with open(os.path.join(os.fsencode(repository.worktree or ""), change.path), "rb") as file:
        content = file.read()
    arguments = ("cat-file", "--filters", f"--path={os.fsdecode(change.path)}", change.old)
    checkout = repository.git.run(*arguments, ok=(0, 128))
    return checkout.code == 0 and checkout.out == content


def make_comparable_trees(
    repository: Repository,
    objects: ObjectDatabase,
    old_side: tuple[str | None, str],
    new_side: tuple[str | None, str],
) -> tuple[str, str]:
    """Return two trees whose diff shows all differences between two snapshots.

    Each side is given as a snapshot (or None) and its commit. For a file whose blobs are equal but
    whose raw copies differ, the trees get blobs with the bytes that a checkout writes.
    """
    side_contents = []
    for snapshot, commit in (old_side, new_side):
        files = manifest.tree_of_files(repository, snapshot, commit)
        side_contents.append(Snapshot(files, raw=manifest.raw_tree(repository, snapshot)))
    old, new = (side.files for side in side_contents)
    if side_contents[0].raw == side_contents[1].raw:
        return old, new
    stored_oids = [manifest.regular_files(repository, tree) for tree in (old, new)]
    raw_changes = manifest.differing_raw_paths(repository, *side_contents)
    paths = [path for path in raw_changes if stored_oids[0].get(path) == stored_oids[1].get(path)]
    trees = []
    with PrivateIndex(repository) as index:
        for side, (snapshot, _) in zip(side_contents, (old_side, new_side), strict=True):
            raw_oids = manifest.raw_files(repository, side)
            paths_without_raw = [path for path in paths if path not in raw_oids]
            blobs = [(stored_oids[0][path], path) for path in paths_without_raw]
            options = attributes.make_line_end_options(manifest.conversion_of(repository, snapshot))
            file_data = conversion.convert_blobs(index, blobs, is_filtered=False, options=options)
            new_oids = objects.write([("blob", data or b"") for data in file_data], flushed=False)
            oids = dict(zip(paths_without_raw, new_oids, strict=True))
            oids |= {path: raw_oids[path] for path in paths if path in raw_oids}
            index.git("read-tree", side.files)
            entries = [(mode, path) for path, mode, *_ in index.list_entries() if path in oids]
            lines = (b"%s %s 0\t%s" % (mode, oids[path].encode(), path) for mode, path in entries)
            index.put_entries(lines)
            trees.append(index.write_tree())
    return trees[0], trees[1]


def staged_tree(repository: Repository, contents: Snapshot, commit: str) -> str:
    """Return the tree of a snapshot's index, without entries in conflict."""
    return contents.index.get(0) or manifest.base_tree(repository, commit)


def _index_flags_to_compare(contents: Snapshot) -> dict[str, set[bytes]]:
    flags = contents.flags.items()
    return {flag: set(paths) for flag, paths in flags if flag not in (SKIPPED, ABSENT)}
