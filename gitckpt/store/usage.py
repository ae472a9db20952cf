"""Measure the disk usage of gitckpt: objects that only its refs hold, and files.

Nothing is changed or fetched, no link is followed, and missing objects are skipped.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence

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

_NO_FETCH = {"GIT_FLUSH": "0"}
_WALK = ("rev-list", "--objects", "--no-object-names", "--missing=allow-any", "--ignore-missing")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Holding:
    kind: str
    size: int  # bytes on disk; in a pack those of its own part
    is_loose: bool


@dataclass(frozen=True, slots=True)
class Holdings:
    """Objects that only some refs hold, each in the first lot of roots leading to it."""

    objects: Sequence[set[str]]
    is_complete: bool


def held_only_by(
    repository: Repository,
    lots: Sequence[Collection[str]],
    spaces: Sequence[str],
    others: Collection[str],
) -> Holdings:
    """Return the objects that only the given roots lead to, no other ref or HEAD.

    Args:
        lots: oids of the roots, in lots.
        spaces: refs of the roots, or spaces such as "refs/notes/x": no ref there counts as
            another one, but the oids `others` do.
    """
    besides = [
        word for space in spaces for word in (f"--exclude={space}", f"--exclude={space}/*")
    ] + ["--all"]
    known: set[str] = set()
    found = []
    is_complete = True
    for roots in lots:
        mine: set[str] = set()
        if roots:
            # This leaves out the history of the others, but not their trees.
            revs = [*roots, *(f"^{oid}" for oid in others)]
            walk = _Walk(repository, [*_WALK, "--not", *besides, "--not", "--stdin"], revs)
            mine.update(oid.decode("ascii") for oid in walk)
            is_complete = is_complete and walk.is_complete
        found.append(mine - known)
        known |= mine
    if known:
        # A bitmap, if any, makes this fast.
        walk = _Walk(repository, [*_WALK, "--use-bitmap-index", *besides, "--stdin"], others)
        for oid in walk:
            text = oid.decode("ascii")
            if text in known:
                for mine in found:
                    mine.discard(text)
        is_complete = is_complete and walk.is_complete
    return Holdings(found, is_complete)


def look_up(repository: Repository, oids: Collection[str]) -> dict[str, Holding]:
    if not oids:
        return {}
    data = "".join(f"{oid}\n" for oid in sorted(oids)).encode("ascii")
    words = ("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize:disk)", "--buffer")
    place = os.path.join(repository.common_dir, "objects")
    found = {}
    for line in (
        repository.git.run(*words, data=data, env=_NO_FETCH)
        .out.decode("ascii", "replace")
        .splitlines()
    ):
        oid, _, rest = line.partition(" ")
        kind, _, size = rest.partition(" ")
        if size.isdigit():
            blocks = _blocks(os.path.join(place, oid[:2], oid[2:]))
            found[oid] = Holding(
                kind, int(size) if blocks is None else blocks, is_loose=blocks is not None
            )
    return found


def _blocks(path: str) -> int | None:
    try:
        return os.lstat(path).st_blocks * 512
    except OSError:
        return None


class _Walk:
    """The oids that a `git rev-list` prints, as they come: there may be millions."""

    def __init__(self, repository: Repository, words: Sequence[str], revs: Collection[str]) -> None:
        self._git = repository.git
        self._words = words
        self._data = "".join(f"{rev}\n" for rev in revs).encode("ascii")
        self.is_complete = False  # known once all oids were taken

    def __iter__(self) -> Iterator[bytes]:
        child = self._git.start(*self._words, env=_NO_FETCH)
        try:
            child.feed(self._data)
            rest = b""
            while chunk := child.receive(_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
            self.is_complete = child.close() == 0
        finally:
            child.stop()


class Measure:
    """Counts files, each once, but none at or below the absolute paths `apart`."""

    def __init__(self, apart: Collection[str] = ()) -> None:
        self._apart = frozenset(apart)
        self._seen: set[tuple[int, int]] = set()

    def of(self, path: str) -> tuple[int, int]:
        """Return number and bytes on disk of the files at or below a path.

        The bytes include directories. Vanished or unreadable files are skipped. A link
        is counted, not followed. The path itself counts even if it is `apart`.
        """
        files, size = self._one(path)
        waiting = [path] if os.path.isdir(path) and not os.path.islink(path) else []
        while waiting:
            try:
                with os.scandir(waiting.pop()) as listing:
                    entries = list(listing)
            except OSError:
                continue
            for entry in entries:
                if entry.path in self._apart:
                    continue
                more, bytes_ = self._one(entry.path)
                files, size = files + more, size + bytes_
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
        return files, size

    def _one(self, path: str) -> tuple[int, int]:
        try:
            status = os.lstat(path)
        except OSError:
            return 0, 0
        is_directory = stat.S_ISDIR(status.st_mode)
        if status.st_nlink > 1 and not is_directory:
            key = status.st_dev, status.st_ino
            if key in self._seen:
                return 0, 0
            self._seen.add(key)
        return int(not is_directory), status.st_blocks * 512


# The report.

# Statuses of worktrees; see `WorktreeUse`.
COMPLETE, UNFINISHED, REMOVED, CHECKPOINT, FORGOTTEN = (
    "complete",
    "unfinished",
    "removed",
    "checkpoint",
    "forgotten",
)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of things and their bytes on disk; None if these are not known."""

    number: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class WorktreeUse:
    path: str
    run: str | None
    # "complete", "unfinished", "removed" (the checkpoints of its run are gone), "checkpoint"
    # (opened on a checkpoint, not a run), "forgotten" (git does not know it).
    status: str
    files: int  # one with several names counts once, in all worktrees together
    bytes: int  # with what git keeps of the worktree


@dataclass(frozen=True, slots=True)
class Leftover:
    """Scratch files of one kind, in use by a process or left by a killed one."""

    kind: str  # a pattern of the names, such as "tmp_pack_*"
    number: int  # of files and directories
    bytes: int
    due: int  # how many of them the next maintenance or `expire` deletes
    due_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Disk usage of a repository's checkpoints; each object counts once, in the first."""

    checkpoints: Amount  # documents; `number` is that of refs, valid or not
    files: Amount  # objects (files, trees, commits) that only checkpoints hold
    leases: Amount  # with the keys of runs
    links: Amount  # notes, as objects
    refs: Amount  # all of gitckpt; bytes are None in a reftable, which has all refs
    worktrees: Sequence[WorktreeUse]  # the largest first
    run_files: Amount  # beside the worktrees
    index: Amount  # the derived one
    private: Amount  # logs and other files in the private directory
    leftovers: Sequence[Leftover]
    loose: Amount  # those of all these objects that have a file of their own; `git gc` packs them
    # False if an object is damaged: some may be missing here, or be held by other refs too.
    is_complete: bool

    @property
    def bytes(self) -> int:
        """The known bytes on disk of all; `loose` is part of the rest."""
        amounts = (
            self.checkpoints,
            self.files,
            self.leases,
            self.links,
            self.refs,
            self.run_files,
            self.index,
            self.private,
        )
        beside = sum(each.bytes for each in self.worktrees) + sum(
            each.bytes for each in self.leftovers
        )
        return beside + sum(each.bytes or 0 for each in amounts)


def measure(store: Checkpoints) -> Usage:
    """Measure a repository, with the same number of processes for any size."""
    repository = store.repository
    there = list(store.refs.each(*ref_names.OWN, ref_names.NOTES))
    refs = {ref: oid for ref, oid in there if not ref_names.is_foreign(ref)}
    others = sorted({oid for ref, oid in there if ref_names.is_foreign(ref)})
    objects, is_complete = _objects(repository, refs, others)
    documents, files, leases, links = objects

    beside = run_files.directory(repository)
    root = resumption.known_root(repository) or ""
    worktrees = _worktrees(repository, root)
    left = _leftovers(repository, {os.path.dirname(path) for path, _, _ in worktrees} | {root})
    ours = Measure(
        [
            *left,
            *(path for path, _, _ in worktrees),
            *(os.path.realpath(path) for path, _, _ in worktrees),
        ]
    )
    measured = [_measured(ours, *each) for each in worktrees]
    statuses = _statuses(
        store,
        refs,
        {each.run for each in measured if each.run is not None and each.status != FORGOTTEN},
    )
    measured = [_with_status(each, statuses) for each in measured]
    index_files = [
        os.path.join(repository.private_dir, f"{index.FILE}{end}") for end in ("", "-wal", "-shm")
    ]
    indexed = _sum(ours, index_files)
    rest = Measure([*left, *index_files])
    everything = [each for found in objects for each in found.values()]
    return Usage(
        checkpoints=Amount(
            sum(ref.startswith(ref_names.CHECKPOINTS) for ref in refs), _size(documents)
        ),
        files=Amount(len(files), _size(files)),
        leases=Amount(
            sum(ref.startswith((ref_names.LEASES, ref_names.KEYS)) for ref in refs), _size(leases)
        ),
        links=Amount(sum(each.kind == "blob" for each in links.values()), _size(links)),
        refs=_refs(repository, refs),
        worktrees=sorted(measured, key=lambda each: (-each.bytes, each.path)),
        run_files=_sum(ours, [beside] if os.path.isdir(beside) else []),
        index=indexed,
        private=_sum(rest, [repository.private_dir]),
        leftovers=_by_kind(left),
        loose=Amount(
            sum(each.is_loose for each in everything),
            sum(each.size for each in everything if each.is_loose),
        ),
        is_complete=is_complete,
    )


def _objects(
    repository: Repository, refs: Mapping[str, str], others: Sequence[str]
) -> tuple[list[dict[str, Holding]], bool]:
    """Return the objects that only gitckpt's refs hold, by kind, and if these are all."""
    documents = {
        oid for ref, oid in refs.items() if ref.startswith((ref_names.CHECKPOINTS, ref_names.RUNS))
    }
    leases = {
        oid for ref, oid in refs.items() if ref.startswith((ref_names.LEASES, ref_names.KEYS))
    } - documents
    notes = {oid for ref, oid in refs.items() if ref == ref_names.NOTES}
    lots = [set(refs.values()) - notes, notes]
    found = held_only_by(repository, lots, (*ref_names.OWN, ref_names.NOTES), others)
    ours, links = found.objects
    known = look_up(repository, ours | links)
    sets = (ours & documents, ours - documents - leases, ours & leases, links)
    return [{oid: known[oid] for oid in oids if oid in known} for oids in sets], found.is_complete


def _size(objects: Mapping[str, Holding]) -> int:
    return sum(each.size for each in objects.values())


def _refs(repository: Repository, refs: Mapping[str, str]) -> Amount:
    if repository.has_reftable:
        return Amount(len(refs), None)
    measure = Measure()
    size = sum(measure.of(os.path.join(repository.common_dir, ref))[1] for ref in refs)
    return Amount(len(refs), size + packed_size(repository, refs))


def _worktrees(repository: Repository, root: str) -> list[tuple[str, str | None, Owner | None]]:
    """Return path, git directory and owner of worktrees; the path of forgotten ones.

    `root` is where worktrees are made; "" for none.
    """
    found: list[tuple[str, str | None, Owner | None]] = []
    known = set()
    for git_dir, path in administration.registered(repository):
        known.add(os.path.realpath(path))
        owner = ownership.owner_in(git_dir)
        if owner is not None:
            found.append((path, git_dir, owner))
    making = set(ownership.half_made(root))
    for name in names_in(root):
        path = os.path.join(root, name)
        if (
            path not in making
            and os.path.realpath(path) not in known
            and _was_ours(repository, path)
        ):
            found.append((path, None, None))
    return found


def _was_ours(repository: Repository, path: str) -> bool:
    # The settings may name a root that holds other directories too.
    if os.path.basename(os.path.dirname(os.path.dirname(path))) == private_dirs.PRIVATE:
        return os.path.isdir(path)
    git_dir = administration.named_by(path)
    return git_dir is not None and administration.is_ours(repository, git_dir)


def _measured(measure: Measure, path: str, git_dir: str | None, owner: Owner | None) -> WorktreeUse:
    real = os.path.realpath(path) if git_dir is not None else path
    files, size = measure.of(real)
    kept = measure.of(git_dir)[1] if git_dir is not None else 0
    status = FORGOTTEN if owner is None else CHECKPOINT if owner.run is None else UNFINISHED
    return WorktreeUse(path, owner.run if owner is not None else None, status, files, size + kept)


def _with_status(found: WorktreeUse, statuses: Mapping[str, str]) -> WorktreeUse:
    status = statuses.get(found.run, found.status) if found.run is not None else found.status
    return WorktreeUse(found.path, found.run, status, found.files, found.bytes)


def _statuses(store: Checkpoints, refs: Mapping[str, str], runs: set[str]) -> dict[str, str]:
    # Only the heads are read: reading more would write the index.
    there = sorted(run for run in runs if ref_names.RUNS + run in refs)
    found = dict.fromkeys(runs, REMOVED)
    for run, read in zip(
        there, store.objects.read([refs[ref_names.RUNS + run] for run in there]), strict=True
    ):
        try:
            label = ref_names.run_head(read, ref_names.RUNS + run).label
        except InvalidCheckpoint:
            label = ""
        found[run] = COMPLETE if label == ref_names.RUN_COMPLETE else UNFINISHED
    return found


def _leftovers(repository: Repository, roots: Collection[str]) -> dict[str, tuple[str, bool]]:
    due = sweep.left_files(repository)
    found = {path: (sweep.kind_of(path), path in due) for path in sweep.scratch_files(repository)}
    for root in roots:
        found |= dict.fromkeys(ownership.half_made(root), (f"{ownership.BEING_MADE}*", False))
    # Only the note of a removal names a scaffold where there is no worktree any more.
    for path in worktree.half_removed(repository):
        kind = found.get(path, (f"ckpt/{os.path.basename(path).partition('.')[0]}.*", True))[0]
        found[path] = (kind, True)
    return found


def _by_kind(left: Mapping[str, tuple[str, bool]]) -> list[Leftover]:
    measure = Measure()
    amounts: dict[str, list[int]] = {}
    for path, (kind, is_due) in sorted(left.items()):
        size = measure.of(path)[1]
        amount = amounts.setdefault(kind, [0, 0, 0, 0])
        for at, more in enumerate((1, size, int(is_due), size if is_due else 0)):
            amount[at] += more
    return [Leftover(kind, *amount) for kind, amount in sorted(amounts.items())]


def _sum(measure: Measure, paths: Sequence[str]) -> Amount:
    found = [measure.of(path) for path in paths]
    return Amount(sum(files for files, _ in found), sum(size for _, size in found))
