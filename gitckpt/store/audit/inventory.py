"""Collect the refs and documents that `verify` judges; read each once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import NamedTuple

from gitckpt.git import graph
from gitckpt.git.files.refs_stat import require_no_pipes
from gitckpt.git.refs import Update
from gitckpt.git.repository import EMPTIED, Repository
from gitckpt.model import ids
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import Checkpoint
from gitckpt.model.codec import decode
from gitckpt.model.errors import Finding, InvalidCheckpoint, NewerCheckpoint
from gitckpt.model.fence import fenced
from gitckpt.model.values import dataclass
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Entry

# The table of checkpoints.


class SheetRow(NamedTuple):
    """The fields of a valid checkpoint that the audits need."""

    id: str
    oid: str
    run: str | None
    sequence: int | None
    phase: str
    timestamp: str
    git_sha: str
    trigger: str
    parent: str | None
    holds: Mapping[str, str]  # oid that its ref in each namespace should point to
    names: Sequence[tuple[str, str]]  # pairs of a key and the other checkpoint that it names
    submodules: str  # as in `Entry`
    entry: Entry  # as the index should have it

    @property
    def ref(self) -> str:
        return layout.CHECKPOINTS + self.id

    @property
    def is_there(self) -> Update:
        """The ref update that makes a transaction fail if the checkpoint has changed."""
        return Update(self.ref, self.oid, self.oid)


class Sheet:
    """A table of checkpoints, ordered by id; a place is an index from 0."""

    def __init__(self) -> None:
        self._oids: list[tuple[str, str]] = []
        self._places: dict[str, int] = {}
        self._rows: dict[int, SheetRow] = {}
        self.valid = bytearray()  # for each place, 1 if its document is valid
        # Places of checkpoints in a run, or naming more than a commit.
        self.extras: set[int] = set()

    def __len__(self) -> int:
        return len(self._oids)

    def append(self, name: str, oid: str) -> None:
        """Add a ref below `refs/checkpoints/`; call in the order of names."""
        self._places[name] = len(self._oids)
        self._oids.append((name, oid))
        self.valid.append(0)

    def fill(self, at: int, checkpoint: Checkpoint, names: Sequence[tuple[str, str]]) -> None:
        entry, files, imported = Entry.of(checkpoint, self.oid(at)), checkpoint.worktree, checkpoint.imported
        needed = {
            layout.TREES: checkpoint.tree,
            layout.OPERATIONS: files.operation_commit if files else None,
            layout.ORIGINALS: imported.original if imported else None,
        }
        holds = {space: oid for space, oid in needed.items() if oid}
        if holds or names or entry.run is not None or entry.submodules:
            self.extras.add(at)
        if entry.git_sha:
            holds[layout.KEEP] = entry.git_sha
        self.valid[at] = 1
        self._rows[at] = SheetRow(
            id=entry.id,
            oid=entry.oid,
            run=entry.run,
            sequence=entry.sequence,
            phase=entry.label,
            timestamp=entry.timestamp,
            git_sha=entry.git_sha,
            trigger=entry.trigger,
            parent=checkpoint.parent,
            holds=holds,
            names=names,
            submodules=entry.submodules,
            entry=entry,
        )

    def find(self, name: str) -> int | None:
        return self._places.get(name)

    def id(self, at: int) -> str:
        return self._oids[at][0]

    def oid(self, at: int) -> str:
        return self._oids[at][1]

    def oids(self) -> list[str]:
        return [oid for _, oid in self._oids]

    def record(self, at: int) -> SheetRow:
        return self._rows[at]

    def commit(self, at: int) -> str:
        return self._rows[at].git_sha

    def by_time(self) -> list[int]:
        """Return the places of the valid checkpoints by timestamp."""
        return sorted(compress(range(len(self)), self.valid), key=lambda at: self._rows[at].entry.time)


# Flaws and evidence.


REPAIR = "git ckpt verify --repair"

# The kind of object that the refs in each namespace keep.
KINDS = {layout.KEEP: "commit", layout.TREES: "tree", layout.OPERATIONS: "commit", layout.ORIGINALS: "blob"}

_BARRING = (*layout.OWN, *(space.rstrip("/") for space in (layout.TREES, layout.ORIGINALS, layout.RUNS, layout.LEASES, layout.KEYS)))
_BROKEN = "ignoring broken ref "
_CURE_OF_BAR = "look at it: git show {ref}; move it away: git tag NAME {ref} && git update-ref --no-deref -d {ref}"


@dataclass(frozen=True, slots=True)
class Link:
    """A change of a note line, which may be added or removed."""

    commit: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Flaw:
    """A finding, and how `--repair` mends it, if it can."""

    finding: Finding
    updates: tuple[Update, ...] = ()  # in one transaction
    link: Link | None = None
    in_index: bool = False  # whether rebuilding the index mends it
    is_leftover: bool = False  # mended only while no checkpoint is being written: it could be its
    scaffold: str = ""  # directory of a half-made worktree
    worktree: tuple[str, str] | None = None  # git directory and former path, to forget

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the flaw when it is found again."""
        return self.finding.code, self.finding.object, self.finding.sentence

    @property
    def can_be_mended(self) -> bool:
        return bool(self.updates or self.link or self.in_index or self.scaffold or self.worktree)


def mendable(
    code: str,
    what: str,
    sentence: str,
    *,
    updates: tuple[Update, ...] = (),
    link: Link | None = None,
    in_index: bool = False,
    is_leftover: bool = False,
) -> Flaw:
    """Return a flaw that `--repair` mends."""
    return Flaw(Finding(code, what, sentence, REPAIR), updates, link, in_index, is_leftover)


def lasting(code: str, what: str, sentence: str, cure: str | None) -> Flaw:
    """Return a flaw that only the user can fix."""
    return Flaw(Finding(code, what, sentence, cure))


class Evidence:
    """The refs and checkpoints of a repository, as read by `gather`."""

    def __init__(self) -> None:
        self.table = Sheet()  # valid or not
        self.listing = b""  # digest of git's ref listing
        self.complaint = ""
        self.refs: dict[str, str] = {}  # oids by full name, without refs below `refs/checkpoints/`
        self.symbolic: dict[str, tuple[str, str]] = {}  # target and oid, by full name
        self.barring: list[str] = []
        self.unjudged: dict[str, str] = {}  # oids of invalid or newer checkpoints, by name
        self.flaws: list[Flaw] = []  # of refs and documents as such
        self.odd: dict[str, str | None] = {}  # by oid: kind if it is a wrong one, None if missing
        self.listed = bytearray()  # for each place, whether a note lists it (`derived.links`)
        self.strays: set[str] = set()  # ids in notes without a valid checkpoint (`derived.links`)
        self._runs: dict[str, list[int]] | None = None

    def is_there(self, checkpoint_id: str) -> bool:
        """Return whether a checkpoint has a ref, valid or not."""
        return self.table.find(checkpoint_id) is not None

    def places(self) -> Iterator[int]:
        valid = self.table.valid
        return (at for at in range(len(self.table)) if valid[at])

    def rich(self) -> Iterator[SheetRow]:
        """Yield the valid checkpoints that are in a run, or name more than a commit."""
        return (self.record(at) for at in sorted(self.table.extras))

    def record(self, at: int) -> SheetRow:
        return self.table.record(at)

    def kind(self, space: str, oid: str) -> str | None:
        """Return the kind of an object that a namespace refers to; None if it is missing."""
        return self.odd.get(oid, KINDS[space])

    def below(self, space: str) -> list[tuple[str, str, str]]:
        """Return name, full name and oid of the refs of a namespace."""
        return [(ref.removeprefix(space), ref, oid) for ref, oid in self.refs.items() if ref.startswith(space)]

    def runs(self) -> dict[str, list[int]]:
        """Return the places of each run's valid checkpoints, by sequence."""
        if self._runs is None:
            places: dict[str, list[int]] = {}
            for at in sorted(self.table.extras, key=lambda at: (self.record(at).sequence or 0, at)):
                run = self.record(at).run
                if run is not None:
                    places.setdefault(run, []).append(at)
            self._runs = places
        return self._runs

    def all_runs(self) -> set[str]:
        """Return the runs that have a valid checkpoint or a head."""
        return {*self.runs(), *(run for run, _, _ in self.below(layout.RUNS))}

    def commits(self, *, newest_first: bool = False) -> Iterator[str]:
        """Return the existing linked commits, newest first."""
        last = ""
        by_time = self.table.by_time()
        for at in reversed(by_time) if newest_first else by_time:
            commit = self.table.commit(at)
            if commit and commit != last and self.kind(layout.KEEP, commit) == KINDS[layout.KEEP]:
                yield commit
                last = commit


@dataclass(frozen=True, slots=True)
class Linked:
    """The existing linked commits, newest first; never all in memory."""

    evidence: Evidence

    def __iter__(self) -> Iterator[str]:
        return self.evidence.commits(newest_first=True)


@dataclass(frozen=True, slots=True)
class Listing:
    """The result of `list_refs`."""

    digest: bytes
    complaint: str  # what git wrote to stderr
    barring: Sequence[str]  # refs whose names git needs as directories


def list_refs(repository: Repository, take: Callable[[str, str, str], object] = lambda *_: None) -> Listing:
    """List gitckpt's refs by name: `take` gets oid, full name, symbolic target or ""."""
    digest = hashlib.blake2b()
    barring: list[str] = []

    def look(lines: list[bytes]) -> None:
        for line in lines:
            digest.update(line + b"\n")
            oid, ref, target = line.decode("utf-8", "surrogateescape").split(" ")
            if ref in _BARRING:
                barring.append(ref)
            take(oid, ref, target)

    require_no_pipes(repository)  # git would block on them
    fields = "%(objectname) %(refname) %(symref)"
    complaint = repository.git.each_line("for-each-ref", f"--format={fields}", *layout.OWN, layout.NOTES, take=look).complaint
    return Listing(digest.digest(), complaint, barring)


def gather(store: Checkpoints) -> Evidence:
    """Read all refs and documents, in three processes whatever their number."""
    evidence = Evidence()
    table = evidence.table
    start = len(layout.CHECKPOINTS)

    def take(oid: str, ref: str, target: str) -> None:
        if ref.startswith(layout.CHECKPOINTS):
            if not ids.is_id(ref[start:]):
                return
            table.append(ref[start:], oid)
        else:
            evidence.refs[ref] = oid
        if target:
            evidence.symbolic[ref] = target, oid

    listing = list_refs(store.repository, take)
    evidence.listing = listing.digest
    evidence.flaws += [*broken(store.repository, listing.complaint), *in_the_way(store.repository, listing.barring)]
    _read(store, evidence)
    _find_odd(store.repository, evidence)
    evidence.listed = bytearray(len(table))
    return evidence


def _read(store: Checkpoints, evidence: Evidence) -> None:
    table = evidence.table
    for at, document in enumerate(layout.documents(store.repository, store.objects, table.oids())):
        ref = layout.CHECKPOINTS + table.id(at)
        try:
            fenced(ref, partial(_fill, table, at, ref, table.oid(at), document))
        except InvalidCheckpoint as error:
            evidence.unjudged[table.id(at)] = table.oid(at)
            evidence.flaws.append(_invalid(error, is_missing=document is None))


def _fill(table: Sheet, at: int, ref: str, oid: str, found: tuple[str, bytes] | None) -> None:
    checkpoint = decode(layout.document(found, ref, oid, lack="missing or damaged"), ref)
    table.fill(at, checkpoint, _names(checkpoint))


def _names(checkpoint: Checkpoint) -> tuple[tuple[str, str], ...]:
    named = [("forked_from", checkpoint.forked_from), ("rewound_to", checkpoint.rewound_to)]
    if checkpoint.attempt is not None:
        named.append(("attempt.began", checkpoint.attempt.began))
    if checkpoint.pipeline is not None:
        named += [(f"pipeline.completed.{phase}", each) for phase, each in checkpoint.pipeline.completed.items()]
    return tuple((key, each) for key, each in named if each is not None)


def _invalid(error: InvalidCheckpoint, *, is_missing: bool) -> Flaw:
    ref = shell_word(error.ref)
    sentence = error.message.removeprefix(f"{error.ref}: ")
    if isinstance(error, NewerCheckpoint):
        return lasting("checkpoint-newer", error.ref, f"cannot be judged: {sentence}", error.hint)
    if is_missing:
        fetch = f"fetch it from a clone that has it: git fetch --no-tags --no-prune REMOTE +{ref}:{ref}"
        name = shell_word(error.ref.removeprefix(layout.CHECKPOINTS))
        cure = f"{fetch}; or give it up: git ckpt remove {name}"
        return lasting("checkpoint-unreadable", error.ref, sentence, cure)
    misnamed = error.field == "id" and error.problem.endswith("is not the ref's name")
    code = "checkpoint-misnamed" if misnamed else "checkpoint-invalid"
    return lasting(code, error.ref, sentence, cure_of_invalid(error.ref))


def cure_of_invalid(ref: str) -> str:
    name = shell_word(ref.removeprefix(layout.CHECKPOINTS))
    return f"look at it: git cat-file -p {shell_word(ref)}; remove it: git ckpt remove {name}"


def broken(repository: Repository, complaint: str) -> list[Flaw]:
    """Return the refs that git cannot read, such as empty files after a power cut.

    Git lists all refs but those, and does not even warn of an empty packed-refs.
    """
    emptied, sentence = repository.emptied_refs(), "is empty, as a power cut leaves it: git takes all refs that were packed to be gone"
    flaws = [lasting("broken-ref", emptied, sentence, EMPTIED)] if emptied is not None else []
    # Each part of git's message may name the ref.
    refs = dict.fromkeys(line.partition(_BROKEN)[2] for line in complaint.split("\n") if _BROKEN in line)
    return flaws + [
        lasting("broken-ref", ref, "git cannot read this ref", f"rm {shell_word(os.path.join(repository.common_dir, ref))}")
        for ref in refs
        if not layout.is_foreign(ref)
    ]


def in_the_way(repository: Repository, barring: Sequence[str]) -> list[Flaw]:
    """Return refs whose names git needs as directories; they block every recording."""
    refs = [ref for ref in _BARRING if ref in barring]
    # Refs of other tools live below these two as well.
    refs += [ref for ref in ("refs/keep", "refs/notes") if repository.cat_file.info(ref) is not None]
    return [
        lasting(
            "ref-barring", ref, "bars all refs below its name, so that nothing can be recorded", _CURE_OF_BAR.format(ref=shell_word(ref))
        )
        for ref in refs
    ]


def _find_odd(repository: Repository, evidence: Evidence) -> None:
    """Record which referenced objects are missing or of a wrong kind; fetch nothing."""
    held: dict[str, set[str]] = {space: set() for space in layout.HOLDERS}
    for record in evidence.rich():
        for space in layout.HOLDERS:
            if space in record.holds:
                held[space].add(record.holds[space])
    wanted: dict[str, Iterable[str]] = {space: sorted(oids) for space, oids in held.items()}
    wanted[layout.KEEP] = Linked(evidence)
    for space, oids in wanted.items():
        # One namespace at a time: `Linked` reads `evidence.odd`, so update it only afterwards.
        found = graph.unlike(repository, oids, KINDS[space])
        evidence.odd.update(found)
