"""Measure gitckpt's disk usage: its files, and objects that only its refs reach.

Nothing is changed or fetched, symbolic links are not followed, missing objects are skipped.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from gitckpt.git.files import private_dirs
from gitckpt.git.files.refs_stat import packed_size
from gitckpt.git.filesystem import names_in
from gitckpt.git.worktree import administration
from gitckpt.model.errors import InvalidCheckpoint
from gitckpt.model.values import dataclass
from gitckpt.store.records import index, ref_names
from gitckpt.store.records.ref_names import Owner
from gitckpt.store.retention import sweep, worktree
from gitckpt.store.runs import run_files
from gitckpt.store.worktrees import ownership, resumption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.repository import Repository
    from gitckpt.store.checkpoints import Checkpoints

    _Worktree = tuple[str, str | None, Owner | None]

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
    """Return, per set of `roots`, the objects that no other ref reaches.

    An object counts for the first set that reaches it; `tips` are oids of other tools' refs.
    The second value is False if git could not read all objects.
    """
    excluded = [f"--exclude={ref}" for space in _SPACES for ref in (space, f"{space}/*")]
    excluded.append("--all")
    objects: list[set[str]] = []
    is_complete = True
    for oids in roots:
        reached: set[str] = set()
        if oids:
            # Skips the history of other refs, but not all of their trees: `discard` does that.
            revs = [*oids, *(f"^{oid}" for oid in tips)]
            words = ["--not", *excluded, "--not", "--stdin"]
            is_complete &= _walk(repository, words, revs, reached.update)
        objects.append(reached.difference(*objects))

    def discard(oids: Iterator[str]) -> None:
        foreign = set(oids)
        for oid_set in objects:
            oid_set.difference_update(foreign)

    if any(objects):
        # A bitmap, if any, makes this fast.
        words = ["--use-bitmap-index", *excluded, "--stdin"]
        is_complete &= _walk(repository, words, tips, discard)
    return objects, is_complete


def _walk(
    repository: Repository,
    words: Sequence[str],
    revs: Collection[str],
    take: Callable[[Iterator[str]], object],
) -> bool:
    """Pass the oids of `git rev-list` to `take`; return whether git succeeded."""

    def decode(lines: list[bytes]) -> None:
        take(line.decode("ascii") for line in lines)

    data = "".join(f"{rev}\n" for rev in revs).encode("ascii")
    git = repository.git.stream_lines(*_WALK, *words, handle=decode, data=data, ok=_ANY)
    return git.code == 0


def _look_up(repository: Repository, oids: Collection[str]) -> dict[str, StoredObject]:
    if not oids:
        return {}
    data = "".join(f"{oid}\n" for oid in sorted(oids)).encode("ascii")
    words = ("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize:disk)", "--buffer")
    lines = repository.git.run(*words, data=data, env=_BUFFERED).out.decode("ascii", "replace")
    objects = {}
    for line in lines.splitlines():
        oid, kind, size = (*line.split(" "), "")[:3]
        if size.isdigit():
            path = os.path.join(repository.common_dir, "objects", oid[:2], oid[2:])
            try:
                objects[oid] = StoredObject(kind, os.lstat(path).st_blocks * 512, is_loose=True)
            except OSError:
                objects[oid] = StoredObject(kind, int(size), is_loose=False)
    return objects


class Measure:
    """Count files, each once, except at or below the absolute paths `excluded`."""

    def __init__(self, excluded: Collection[str] = ()) -> None:
        self._excluded = frozenset(excluded)
        self._seen: set[tuple[int, int]] = set()

    def of(self, path: str) -> tuple[int, int]:
        """Return number and disk bytes of the files at or below a path."""
        files, size, waiting = 0, 0, [path]
        while waiting:
            current = waiting.pop()
            try:
                status = os.lstat(current)
            except OSError:
                continue
            is_directory = stat.S_ISDIR(status.st_mode)
            if status.st_nlink > 1 and not is_directory:
                key = status.st_dev, status.st_ino
                if key in self._seen:
                    continue
                self._seen.add(key)
            files, size = files + int(not is_directory), size + status.st_blocks * 512
            if is_directory:
                with contextlib.suppress(OSError):
                    inner = (os.path.join(current, name) for name in os.listdir(current))
                    waiting += [entry for entry in inner if entry not in self._excluded]
        return files, size


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
    """Scratch files of one kind, in use by a process or left behind by a killed one."""

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
        """The sum of the known bytes, without `loose`, which the other fields include."""
        amounts = [self.checkpoints, self.files, self.leases, self.links, self.refs]
        amounts += [self.run_files, self.index, self.private]
        size = sum(worktree.bytes for worktree in self.worktrees)
        size += sum(leftover.bytes for leftover in self.leftovers)
        return size + sum(amount.bytes or 0 for amount in amounts)


def measure(store: Checkpoints) -> Usage:
    repository = store.repository
    listed = list(store.refs.iterate(*_SPACES))
    refs = {ref: oid for ref, oid in listed if not ref_names.is_foreign(ref)}
    foreign = sorted({oid for ref, oid in listed if ref_names.is_foreign(ref)})
    objects, is_complete = _find_objects(repository, refs, foreign)
    documents, files, leases, links = objects
    root = resumption.known_root(repository) or ""
    worktrees = _list_worktrees(repository, root)
    paths = [path for path, _, _ in worktrees]
    leftovers = _find_leftovers(repository, {*map(os.path.dirname, paths), root})
    measure = Measure([*leftovers, *paths, *map(os.path.realpath, paths)])
    statuses = _read_statuses(store, refs, {owner.run for _, _, owner in worktrees if owner})
    measured = []
    for path, git_dir, owner in worktrees:
        if git_dir is None or owner is None:
            measured.append(WorktreeUse(path, None, FORGOTTEN, *measure.of(path)))
        else:
            count, size = measure.of(os.path.realpath(path))
            size += measure.of(git_dir)[1]
            measured.append(WorktreeUse(path, owner.run, statuses[owner.run], count, size))
    database = os.path.join(repository.private_dir, index.FILE)
    index_files = [f"{database}{end}" for end in ("", "-wal", "-shm")]
    loose = [stored for group in objects for stored in group if stored.is_loose]
    return Usage(
        checkpoints=Amount(_count(refs, ref_names.CHECKPOINTS), _sum_sizes(documents)),
        files=Amount(len(files), _sum_sizes(files)),
        leases=Amount(_count(refs, _LEASES), _sum_sizes(leases)),
        links=Amount(sum(stored.kind == "blob" for stored in links), _sum_sizes(links)),
        refs=_measure_refs(repository, refs),
        worktrees=sorted(measured, key=lambda worktree: (-worktree.bytes, worktree.path)),
        run_files=_sum_files(measure, filter(os.path.isdir, [run_files.directory(repository)])),
        index=_sum_files(measure, index_files),
        private=_sum_files(Measure([*leftovers, *index_files]), [repository.private_dir]),
        leftovers=_sum_by_kind(leftovers),
        loose=Amount(len(loose), _sum_sizes(loose)),
        is_complete=is_complete,
    )


def _find_objects(
    repository: Repository, refs: Mapping[str, str], tips: Sequence[str]
) -> tuple[list[list[StoredObject]], bool]:
    documents = {oid for ref, oid in refs.items() if ref.startswith(_HEADS)}
    leases = {oid for ref, oid in refs.items() if ref.startswith(_LEASES)} - documents
    notes = {oid for ref, oid in refs.items() if ref == ref_names.NOTES}
    roots = [set(refs.values()) - notes, notes]
    (own_oids, links), is_complete = _find_exclusive_objects(repository, roots, tips)
    stored = _look_up(repository, own_oids | links)
    sets = (own_oids & documents, own_oids - documents - leases, own_oids & leases, links)
    return [[stored[oid] for oid in oids if oid in stored] for oids in sets], is_complete


def _count(refs: Mapping[str, str], prefixes: str | tuple[str, ...]) -> int:
    return sum(ref.startswith(prefixes) for ref in refs)


def _sum_sizes(objects: Iterable[StoredObject]) -> int:
    return sum(stored.size for stored in objects)


def _measure_refs(repository: Repository, refs: Mapping[str, str]) -> Amount:
    if repository.has_reftable:
        return Amount(len(refs), None)
    measure = Measure()
    size = sum(measure.of(os.path.join(repository.common_dir, ref))[1] for ref in refs)
    return Amount(len(refs), size + packed_size(repository, refs))


def _list_worktrees(repository: Repository, root: str) -> list[_Worktree]:
    """Return path, git directory and owner of worktrees; only paths if git lists none."""
    worktrees: list[_Worktree] = []
    registered = set()
    for git_dir, path in administration.registered(repository):
        registered.add(os.path.realpath(path))
        owner = ownership.owner_in(git_dir)
        if owner is not None:
            worktrees.append((path, git_dir, owner))
    unfinished = set(ownership.list_unfinished(root))
    for name in names_in(root):
        path = os.path.join(root, name)
        is_new = path not in unfinished and os.path.realpath(path) not in registered
        if is_new and _is_created_by_us(repository, path):
            worktrees.append((path, None, None))
    return worktrees


def _is_created_by_us(repository: Repository, path: str) -> bool:
    # The configured root of worktrees may hold directories of other programs.
    if os.path.basename(os.path.dirname(os.path.dirname(path))) == private_dirs.PRIVATE:
        return os.path.isdir(path)
    git_dir = administration.git_dir_of(path)
    return git_dir is not None and administration.owns_git_dir(repository, git_dir)


def _read_statuses(
    store: Checkpoints, refs: Mapping[str, str], runs: set[str | None]
) -> dict[str | None, str]:
    # Only the heads are read: reading more would write the index.
    heads = {ref_names.RUNS + run: run for run in sorted(filter(None, runs))}
    heads = {ref: run for ref, run in heads.items() if ref in refs}
    statuses = dict.fromkeys(runs, REMOVED) | {None: CHECKPOINT}
    documents = store.objects.read([refs[ref] for ref in heads])
    for (ref, run), document in zip(heads.items(), documents, strict=True):
        try:
            label = ref_names.parse_run_head(document, ref).label
        except InvalidCheckpoint:
            label = ""
        statuses[run] = COMPLETE if label == ref_names.RUN_COMPLETE else UNFINISHED
    return statuses


def _find_leftovers(repository: Repository, roots: Collection[str]) -> dict[str, tuple[str, bool]]:
    due = sweep.left_files(repository)
    paths = sweep.scratch_files(repository)
    leftovers = {path: (sweep.kind_of(path), path in due) for path in paths}
    for root in roots:
        pattern = f"{ownership.BEING_MADE}*"
        leftovers |= dict.fromkeys(ownership.list_unfinished(root), (pattern, False))
    # Where there is no worktree any more, only the note of a removal names its scaffold.
    for path in worktree.list_interrupted(repository):
        default = f"ckpt/{os.path.basename(path).partition('.')[0]}.*", True
        leftovers[path] = (leftovers.get(path, default)[0], True)
    return leftovers


def _sum_by_kind(leftovers: Mapping[str, tuple[str, bool]]) -> list[Leftover]:
    measure = Measure()
    rows: dict[str, list[tuple[int, int, int, int]]] = {}
    for path, (kind, is_due) in sorted(leftovers.items()):
        size = measure.of(path)[1]
        rows.setdefault(kind, []).append((1, size, int(is_due), size if is_due else 0))
    return [Leftover(kind, *map(sum, zip(*rows[kind], strict=True))) for kind in sorted(rows)]


def _sum_files(measure: Measure, paths: Iterable[str]) -> Amount:
    sizes = [measure.of(path) for path in paths]
    return Amount(sum(files for files, _ in sizes), sum(size for _, size in sizes))
