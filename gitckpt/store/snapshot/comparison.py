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
    from gitckpt.git.objects.port import Objects


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
    """Describe how a worktree differs from a snapshot.

    Leaves out the contents of submodules, and what a sparse checkout skips.

    Args:
        commit: the commit the snapshot is linked to; "" for none.
        with_operation: whether the operation in progress was restored as well.
        gone: the deleted paths if the worktree was not empty before: other files that were
            ignored until now may stay.
        stays: returns whether a path is passed over.
    """
    head = objects.head()[0]
    with PrivateIndex(repository) as index:
        index.look_ahead()
        merged = merged_tree(repository, wanted, commit)
        untracked = [
            one.path
            for one in diff.differences(repository, merged, wanted.files)
            if one.status == "A"
        ]
        unlimited = replace(limits, timeout=float("inf"))
        captured = capture.capture_in(
            index, objects, head, unlimited, untracked, keeps=lambda _: True
        )
    found = manifest.read(repository, objects, captured.worktree.tree, head)
    differing = [
        one
        for one in diff.differences(repository, wanted.files, captured.files)
        if not _is_displaced(repository, wanted, one)
    ]
    differing = [one for one in differing if not stays(one.path)]
    raw = {
        path: oid for path, oid in manifest.raw_of(repository, wanted).items() if not stays(path)
    }
    said = unexpected(repository, differing, gone, raw)
    if merged != merged_tree(repository, found, head):
        said.append("what is staged")
    said += [
        f"stage {stage} of the index"
        for stage in (1, 2, 3)
        if wanted.index.get(stage) != found.index.get(stage)
    ]
    if _flags(wanted) != _flags(found):
        said.append("flags of the index")
    if with_operation and wanted.operation != found.operation:
        names = sorted(wanted.operation.keys() ^ found.operation.keys()) or ["content"]
        said.append(f"the operation in progress ({', '.join(names)})")
    return said + unshaped(repository, wanted.directories, wanted.modes)


def _is_displaced(repository: Repository, wanted: Contents, one: Difference) -> bool:
    # git takes the skip mark off where a directory is, such as one with ignored files.
    is_away = (
        wanted.sparse is not None
        and one.status == "D"
        and one.path in wanted.flags.get(SKIPPED, ())
    )
    return is_away and os.path.isdir(os.path.join(os.fsencode(repository.worktree or ""), one.path))


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

    Args:
        gone: as for `compare`.
        raw: oids of the files that are wanted byte for byte, by path.
    """
    wrong = [
        one
        for one in differing
        if not one.is_submodule and (one.status != "A" or gone is None or one.path in gone)
    ]
    otherwise = set(raw_files.differing(repository, raw))
    said = [
        str(one)
        for one in wrong
        if one.path not in raw.keys() - otherwise and not _is_as_git_writes_it(repository, one)
    ]
    return said + [
        f"M {path.decode('utf-8', 'replace')}"
        for path in sorted(otherwise - {one.path for one in wrong})
    ]


def _is_as_git_writes_it(repository: Repository, one: Difference) -> bool:
    # The file may be right though git would store it otherwise: attributes came after it.
    if one.status != "M" or one.old_mode != one.new_mode or one.new_mode == LINK:
        return False
    with open(os.path.join(os.fsencode(repository.worktree or ""), one.path), "rb") as file:
        found = file.read()
    written = repository.git.run(
        "cat-file", "--filters", f"--path={os.fsdecode(one.path)}", one.old, ok=(0, 128)
    )
    return written.code == 0 and written.out == found


def comparable(
    repository: Repository,
    objects: Objects,
    before: tuple[str | None, str],
    after: tuple[str | None, str],
) -> tuple[str, str]:
    """Return two trees that differ where the files of two snapshots differ.

    They hold what git stores. Files that differ only in what git does not store are whole in them.

    Args:
        before: tree of a snapshot (None if its commit has the files), and commit ("" for none).
        after: the same of the other one.
    """
    sides = [
        Contents(
            manifest.tree_of_files(repository, *side), raw=manifest.raw_tree(repository, side[0])
        )
        for side in (before, after)
    ]
    old, new = (side.files for side in sides)
    if sides[0].raw == sides[1].raw:
        return old, new
    stored = [manifest.regular_files(repository, tree) for tree in (old, new)]
    paths = [
        path
        for path in manifest.differing_raw(repository, *sides)
        if stored[0].get(path) == stored[1].get(path)
    ]
    made = []
    with PrivateIndex(repository) as index:
        for side, (snapshot, _) in zip(sides, (before, after), strict=True):
            raw = manifest.raw_of(repository, side)
            as_git = [path for path in paths if path not in raw]
            wanted = [(stored[0][path], path) for path in as_git]
            options = attributes.line_end_options(manifest.conversion_of(repository, snapshot))
            written = conversion.written_by_git(index, wanted, is_filtered=False, options=options)
            oids = objects.write([("blob", data or b"") for data in written], flushed=False)
            whole = dict(zip(as_git, oids, strict=True)) | {
                path: raw[path] for path in paths if path in raw
            }
            index.git("read-tree", side.files)
            index.put(
                b"%s %s 0\t%s" % (mode, whole[path].encode(), path)
                for path, mode, *_ in index.entries()
                if path in whole
            )
            made.append(index.write_tree())
    return made[0], made[1]


def merged_tree(repository: Repository, found: Contents, commit: str) -> str:
    """Return the tree of a snapshot's index entries that are not in conflict."""
    return found.index.get(0) or manifest.base_tree(repository, commit)


def _flags(found: Contents) -> dict[str, set[bytes]]:
    return {
        flag: set(paths) for flag, paths in found.flags.items() if flag not in (SKIPPED, ABSENT)
    }
