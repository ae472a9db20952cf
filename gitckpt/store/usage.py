"""Measure how much disk space gitckpt's files, refs and objects use.

Measuring changes and fetches nothing, follows no symbolic links, and skips missing objects.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from gitckpt.git.files import private_dirs
from gitckpt.git.files.refs_stat import measure_packed_refs
from gitckpt.git.filesystem import names_in
from gitckpt.git.worktree import administration
from gitckpt.model.errors import InvalidCheckpoint
from gitckpt.model.values import dataclass
from gitckpt.store.records import index, ref_names
from gitckpt.store.records.ref_names import WorktreeOwner
from gitckpt.store.retention import sweep, worktree
from gitckpt.store.runs import run_files
from gitckpt.store.worktrees import ownership, resumption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.store.checkpoints import Checkpoints

    _Worktree = tuple[str, str | None, WorktreeOwner | None]

_BUFFERED = {"GIT_FLUSH": "0"}
_WALK = ("rev-list", "--objects", "--no-object-names", "--missing=allow-any", "--ignore-missing")
_ANY = range(-128, 256)  # exit codes; negative ones are signals

_SPACES = (*ref_names.OWN, ref_names.NOTES)
_HEADS = (ref_names.CHECKPOINTS, ref_names.RUNS)
_LEASES = (ref_names.LEASES, ref_names.KEYS)


@dataclass(frozen=True, slots=True)
class StoredObject:
    kind: str
    size: int  # bytes on disk; in a pack, the compressed size of the object
    is_loose: bool


def _find_exclusive_objects(
    repository: Repository, roots: Sequence[Collection[str]], tips: Collection[str]
) -> tuple[list[set[str]], bool]:
    """Return, for each set of `roots`, the objects that only gitckpt's refs reach.

    An object counts for the first set that reaches it. `tips` are oids of other tools' refs in the
    same namespaces. The second value is False if git could not read all objects.
    """
    exclude_options = [f"--exclude={ref}" for prefix in _SPACES for ref in (prefix, f"{prefix}/*")]
    exclude_options.append("--all")
    object_sets: list[set[str]] = []
    is_complete = True
    for oids in roots:
        reached_oids: set[str] = set()
        if oids:
            # Skips the history of other refs, but not all their trees: `discard_foreign` does that.
            revs = [*oids, *(f"^{oid}" for oid in tips)]
            rev_list_options = ["--not", *exclude_options, "--not", "--stdin"]
            is_complete &= _list_reachable(repository, rev_list_options, revs, reached_oids.update)
        object_sets.append(reached_oids.difference(*object_sets))

    def discard_foreign(oids: Iterator[str]) -> None:
        foreign_oids = set(oids)
        for object_set in object_sets:
            object_set.difference_update(foreign_oids)

    if any(object_sets):
        # A bitmap, if any, makes this fast.
        rev_list_options = ["--use-bitmap-index", *exclude_options, "--stdin"]
        is_complete &= _list_reachable(repository, rev_list_options, tips, discard_foreign)
    return object_sets, is_complete


def _list_reachable(
    repository: Repository,
    words: Sequence[str],
    revs: Collection[str],
    take: Callable[[Iterator[str]], object],
) -> bool:

    def decode(lines: list[bytes]) -> None:
        take(line.decode("ascii") for line in lines)

    stdin_data = "".join(f"{rev}\n" for rev in revs).encode("ascii")
    result = repository.git.stream_lines(*_WALK, *words, handle=decode, data=stdin_data, ok=_ANY)
    return result.code == 0


def _read_sizes(repository: Repository, oids: Collection[str]) -> dict[str, StoredObject]:
    if not oids:
        return {}
    stdin = "".join(f"{oid}\n" for oid in sorted(oids)).encode("ascii")
    args = ("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize:disk)", "--buffer")
    lines = repository.git.run(*args, data=stdin, env=_BUFFERED).out.decode("ascii", "replace")
    by_oid = {}
    for line in lines.splitlines():
        oid, kind, size = (*line.split(" "), "")[:3]
        if size.isdigit():
            path = os.path.join(repository.common_dir, "objects", oid[:2], oid[2:])
            try:
                by_oid[oid] = StoredObject(kind, os.lstat(path).st_blocks * 512, is_loose=True)
            except OSError:
                by_oid[oid] = StoredObject(kind, int(size), is_loose=False)
    return by_oid


class DiskMeasure:
    """Count files, hard links once, but skip the absolute paths in `excluded`."""

    def __init__(self, excluded: Collection[str] = ()) -> None:
        self._excluded = frozenset(excluded)
        self._seen: set[tuple[int, int]] = set()

    def measure_path(self, path: str) -> tuple[int, int]:
        file_count, size, pending_paths = 0, 0, [path]
        while pending_paths:
            current_path = pending_paths.pop()
            try:
                status = os.lstat(current_path)
            except OSError:
                continue
            is_directory = stat.S_ISDIR(status.st_mode)
            if status.st_nlink > 1 and not is_directory:
                inode = status.st_dev, status.st_ino
                if inode in self._seen:
                    continue
                self._seen.add(inode)
            file_count, size = file_count + int(not is_directory), size + status.st_blocks * 512
            if is_directory:
                with contextlib.suppress(OSError):
                    paths = (os.path.join(current_path, name) for name in os.listdir(current_path))
                    pending_paths += [child for child in paths if child not in self._excluded]
        return file_count, size


# Statuses of worktrees; see `WorktreeUse`.
COMPLETE, UNFINISHED, REMOVED = "complete", "unfinished", "removed"
CHECKPOINT, FORGOTTEN = "checkpoint", "forgotten"


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of objects, refs or files, and their bytes on disk (None: unknown)."""

    number: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class WorktreeUse:
    path: str
    run: str | None
    # State of the run: "complete", "unfinished", "removed" (with checkpoints); else "checkpoint"
    # (created from a checkpoint without a run), "forgotten" (git does not list the worktree).
    status: str
    files: int  # a file with hard links counts once in all worktrees together
    bytes: int  # of the worktree and its git directory


@dataclass(frozen=True, slots=True)
class Leftover:
    """Scratch files of one kind that a process uses or a killed process has left."""

    kind: str  # a pattern of the names, such as "tmp_pack_*"
    number: int  # of files and directories
    bytes: int
    due: int  # number of these that the next maintenance or `expire` will delete
    due_bytes: int  # of the `due` ones


@dataclass(frozen=True, slots=True)
class Usage:
    """Disk usage of a repository's checkpoints; each object counts in one field only."""

    checkpoints: Amount  # documents; `number` counts refs, valid or not
    files: Amount  # objects (files, trees, commits) that only checkpoints hold
    leases: Amount  # with the keys of runs
    links: Amount  # objects of the notes
    refs: Amount  # all of gitckpt's; bytes are None in a reftable, which git shares
    worktrees: Sequence[WorktreeUse]  # the largest first
    run_files: Amount  # that runs keep outside their worktrees
    index: Amount  # gitckpt's SQLite index of checkpoints, not git's index
    private: Amount  # logs and other files in the private directory
    leftovers: Sequence[Leftover]
    loose: Amount  # the loose objects among those above; `git gc` packs them
    # False if git met a damaged object: objects may be missing here, or reachable from other refs.
    is_complete: bool

    @property
    def bytes(self) -> int:
        """The sum of the known bytes; `loose` is not added, as other fields include it."""
        amounts = [self.checkpoints, self.files, self.leases, self.links, self.refs]
        amounts += [self.run_files, self.index, self.private]
        size = sum(worktree.bytes for worktree in self.worktrees)
        size += sum(leftover.bytes for leftover in self.leftovers)
        return size + sum(amount.bytes or 0 for amount in amounts)


def measure_usage(store: Checkpoints) -> Usage:
    repository = store.repository
    all_refs = list(store.refs.iterate_refs(*_SPACES))
    refs = {ref: oid for ref, oid in all_refs if not ref_names.is_foreign(ref)}
    foreign_oids = sorted({oid for ref, oid in all_refs if ref_names.is_foreign(ref)})
    object_groups, is_complete = _find_stored_objects(repository, refs, foreign_oids)
    documents, files, leases, links = object_groups
    worktree_root = resumption.known_worktrees_dir(repository) or ""
    worktrees = _list_worktrees(repository, worktree_root)
    paths = [path for path, _, _ in worktrees]
    leftovers = _find_leftovers(repository, {*map(os.path.dirname, paths), worktree_root})
    counter = DiskMeasure([*leftovers, *paths, *map(os.path.realpath, paths)])
    statuses = _read_run_statuses(store, refs, {owner.run for _, _, owner in worktrees if owner})
    worktree_uses = []
    for path, git_dir, owner in worktrees:
        if git_dir is None or owner is None:
            worktree_uses.append(WorktreeUse(path, None, FORGOTTEN, *counter.measure_path(path)))
        else:
            number, size = counter.measure_path(os.path.realpath(path))
            size += counter.measure_path(git_dir)[1]
            worktree_uses.append(WorktreeUse(path, owner.run, statuses[owner.run], number, size))
    index_path = os.path.join(repository.private_dir, index.FILE)
    index_files = [f"{index_path}{suffix}" for suffix in ("", "-wal", "-shm")]
    loose_objects = [item for group in object_groups for item in group if item.is_loose]
    return Usage(
        checkpoints=Amount(_count_refs(refs, ref_names.CHECKPOINTS), _sum_sizes(documents)),
        files=Amount(len(files), _sum_sizes(files)),
        leases=Amount(_count_refs(refs, _LEASES), _sum_sizes(leases)),
        links=Amount(sum(item.kind == "blob" for item in links), _sum_sizes(links)),
        refs=_measure_refs(repository, refs),
        worktrees=sorted(worktree_uses, key=lambda worktree: (-worktree.bytes, worktree.path)),
        run_files=_sum_files(counter, filter(os.path.isdir, [run_files.run_files_dir(repository)])),
        index=_sum_files(counter, index_files),
        private=_sum_files(DiskMeasure([*leftovers, *index_files]), [repository.private_dir]),
        leftovers=_sum_by_kind(leftovers),
        loose=Amount(len(loose_objects), _sum_sizes(loose_objects)),
        is_complete=is_complete,
    )


def _find_stored_objects(
    repository: Repository, refs: Mapping[str, str], tips: Sequence[str]
) -> tuple[list[list[StoredObject]], bool]:
    document_oids = {oid for ref, oid in refs.items() if ref.startswith(_HEADS)}
    leases = {oid for ref, oid in refs.items() if ref.startswith(_LEASES)} - document_oids
    notes_oids = {oid for ref, oid in refs.items() if ref == ref_names.NOTES}
    roots = [set(refs.values()) - notes_oids, notes_oids]
    (own_oids, links), is_complete = _find_exclusive_objects(repository, roots, tips)
    sizes = _read_sizes(repository, own_oids | links)
    groups = (own_oids & document_oids, own_oids - document_oids - leases, own_oids & leases, links)
    return [[sizes[oid] for oid in oids if oid in sizes] for oids in groups], is_complete


def _count_refs(refs: Mapping[str, str], prefixes: str | tuple[str, ...]) -> int:
    return sum(ref.startswith(prefixes) for ref in refs)


def _sum_sizes(objects: Iterable[StoredObject]) -> int:
    return sum(stored_object.size for stored_object in objects)


def _measure_refs(repository: Repository, refs: Mapping[str, str]) -> Amount:
    if repository.has_reftable:
        return Amount(len(refs), None)
    measure = DiskMeasure().measure_path
    size = sum(measure(os.path.join(repository.common_dir, ref))[1] for ref in refs)
    return Amount(len(refs), size + measure_packed_refs(repository, refs))


def _list_worktrees(repository: Repository, root: str) -> list[_Worktree]:
    """List gitckpt's worktrees; if git does not list one, only its path is known."""
    worktrees: list[_Worktree] = []
    registered_paths = set()
    for git_dir, path in administration.list_worktrees(repository):
        registered_paths.add(os.path.realpath(path))
        owner = ownership.owner_in(git_dir)
        if owner is not None:
            worktrees.append((path, git_dir, owner))
    unfinished_paths = set(ownership.list_half_made(root))
    for name in names_in(root):
        path = os.path.join(root, name)
        is_new = path not in unfinished_paths and os.path.realpath(path) not in registered_paths
        if is_new and _is_created_by_us(repository, path):
            worktrees.append((path, None, None))
    return worktrees


def _is_created_by_us(repository: Repository, path: str) -> bool:
    # The configured root of worktrees may hold directories of other programs.
    if os.path.basename(os.path.dirname(os.path.dirname(path))) == private_dirs.PRIVATE:
        return os.path.isdir(path)
    git_dir = administration.git_dir_of(path)
    return git_dir is not None and administration.owns_git_dir(repository, git_dir)


def _read_run_statuses(
    store: Checkpoints, refs: Mapping[str, str], runs: set[str | None]
) -> dict[str | None, str]:
    # Only the heads are read: reading more would write the index.
    runs_by_head = {ref_names.RUNS + run: run for run in sorted(filter(None, runs))}
    runs_by_head = {ref: run for ref, run in runs_by_head.items() if ref in refs}
    statuses = dict.fromkeys(runs, REMOVED) | {None: CHECKPOINT}
    documents = store.objects.read([refs[ref] for ref in runs_by_head])
    for (ref, run), document in zip(runs_by_head.items(), documents, strict=True):
        try:
            label = ref_names.parse_run_head(document, ref).label
        except InvalidCheckpoint:
            label = ""
        statuses[run] = COMPLETE if label == ref_names.RUN_COMPLETE else UNFINISHED
    return statuses


def _find_leftovers(repository: Repository, roots: Collection[str]) -> dict[str, tuple[str, bool]]:
    due_paths = sweep.find_leftover_files(repository)
    paths = sweep.list_all_scratch_files(repository)
    leftovers = {path: (sweep.file_name_pattern_of(path), path in due_paths) for path in paths}
    for root in roots:
        pattern = f"{ownership.BEING_MADE}*"
        leftovers |= dict.fromkeys(ownership.list_half_made(root), (pattern, False))
    # Where there is no worktree any more, only the note of a removal names its scaffold.
    for path in worktree.list_interrupted_removals(repository):
        kind_and_due = f"ckpt/{os.path.basename(path).partition('.')[0]}.*", True
        leftovers[path] = (leftovers.get(path, kind_and_due)[0], True)
    return leftovers


def _sum_by_kind(leftovers: Mapping[str, tuple[str, bool]]) -> list[Leftover]:
    file_counter = DiskMeasure()
    rows: dict[str, list[tuple[int, int, int, int]]] = {}
    for path, (kind, is_due) in sorted(leftovers.items()):
        size = file_counter.measure_path(path)[1]
        rows.setdefault(kind, []).append((1, size, int(is_due), size if is_due else 0))
    return [Leftover(kind, *map(sum, zip(*rows[kind], strict=True))) for kind in sorted(rows)]


def _sum_files(measure: DiskMeasure, paths: Iterable[str]) -> Amount:
    totals = [measure.measure_path(path) for path in paths]
    return Amount(sum(file_count for file_count, _ in totals), sum(size for _, size in totals))
