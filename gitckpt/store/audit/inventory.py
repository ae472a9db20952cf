"""Read each ref and document once, for all checks of `git ckpt verify`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from gitckpt.git import graph
from gitckpt.git.files.refs_stat import require_no_pipes_in_refs
from gitckpt.git.refs import RefUpdate
from gitckpt.git.repository import Repository
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.codec import decode
from gitckpt.model.errors import Finding, InvalidCheckpoint, NewerCheckpoint
from gitckpt.model.skip_invalid import read_or_raise_invalid
from gitckpt.model.values import dataclass
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.records.entry import CheckpointInfo, list_references

REPAIR = "git ckpt verify --repair"

# The type of object that the refs in each namespace point to.
KINDS = {
    ref_names.KEEP: "commit",
    ref_names.TREES: "tree",
    ref_names.OPERATIONS: "commit",
    ref_names.ORIGINALS: "blob",
}
FETCH = "fetch it from a clone that has it: git fetch --no-tags --no-prune REMOTE"

# A ref with one of these names prevents all refs below that name.
_SPACES = (ref_names.TREES, ref_names.ORIGINALS, ref_names.RUNS, ref_names.LEASES, ref_names.KEYS)
BARRING = (*ref_names.OWN, *(space.rstrip("/") for space in (*_SPACES, *ref_names.LABELS)))
_SHARED = ("refs/keep", "refs/notes")  # other tools use these, too: `list_gitckpt_refs` skips them

_BROKEN = "ignoring broken ref "


class Row(NamedTuple):
    """A valid checkpoint: its index entry, and the objects and checkpoints it needs."""

    entry: CheckpointInfo  # as the index should have it
    parent: str | None
    holds: dict[str, str]  # by namespace: the oid that the checkpoint's ref there should point to
    references: Sequence[tuple[str, str]]  # document key, and id of the checkpoint in its value

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def ref(self) -> str:
        return ref_names.CHECKPOINTS + self.entry.id

    @property
    def unchanged(self) -> RefUpdate:
        return RefUpdate(self.ref, self.entry.oid, self.entry.oid)


@dataclass(frozen=True, slots=True)
class NoteLineChange:
    commit: str
    old: str | None  # the line in the commit's note; None to add one
    new: str | None  # the right line; None to remove `old`


@dataclass(frozen=True, slots=True)
class Flaw:
    """A finding of `verify`, and its repair; without a repair, the fields are empty."""

    finding: Finding
    updates: tuple[RefUpdate, ...] = ()  # in one transaction
    link: NoteLineChange | None = None
    in_index: bool = False  # whether to rebuild gitckpt's index
    is_leftover: bool = False  # delete the ref only while no process records: it may need the ref
    scaffold: str = ""  # directory of an interrupted `git worktree add`, to delete
    worktree: tuple[str, str] | None = None  # git directory, to delete, and path that is gone

    @property
    def key(self) -> tuple[str, str, str]:
        return self.finding.code, self.finding.object, self.finding.sentence

    @property
    def can_be_repaired(self) -> bool:
        return bool(self.updates or self.link or self.in_index or self.scaffold or self.worktree)


def repairable(
    code: str, name: str, sentence: str, *updates: RefUpdate, is_leftover: bool = False
) -> Flaw:
    return Flaw(Finding(code, name, sentence, REPAIR), updates, is_leftover=is_leftover)


def lasting(code: str, name: str, sentence: str, cure: str | None) -> Flaw:
    return Flaw(Finding(code, name, sentence, cure))


class AuditData:
    def __init__(self) -> None:
        self.oids: dict[str, str] = {}  # by id, sorted: each ref of a checkpoint, valid or not
        self.rows: dict[str, Row] = {}  # the valid checkpoints, in the same order
        self.rich: list[Row] = []  # checkpoints of runs, or that name more than a linked commit
        self.runs: dict[str, list[Row]] = {}  # the valid checkpoints of each run, by sequence
        self.digest = b""  # hash of git's listing of refs, to notice changes
        self.refs: dict[str, str] = {}  # oids by full name, without refs below `refs/checkpoints/`
        self.symbolic: dict[str, str] = {}  # targets of symbolic refs, by full name
        self.invalid: dict[str, str] = {}  # oids of documents that are invalid or too new, by id
        self.flaws: list[Flaw] = []  # of single refs and documents
        self.odd: dict[str, str | None] = {}  # by oid: the actual type if wrong, None if missing
        self.listed: set[str] = set()  # ids of valid checkpoints in notes (by `audit_links`)
        self.strays: set[str] = set()  # ids in notes without valid checkpoint (by `audit_links`)

    def object_type(self, space: str, oid: str) -> str | None:
        return self.odd.get(oid, KINDS[space])

    def is_object_sound(self, space: str, oid: str) -> bool:
        return self.object_type(space, oid) == KINDS[space]

    def list_refs_below(self, space: str) -> list[tuple[str, str, str]]:
        refs = [(ref, oid) for ref, oid in self.refs.items() if ref.startswith(space)]
        return [(ref.removeprefix(space), ref, oid) for ref, oid in refs]

    def list_all_runs(self) -> set[str]:
        return {*self.runs, *(run for run, _, _ in self.list_refs_below(ref_names.RUNS))}

    def rows_by_time(self) -> list[Row]:
        return sorted(self.rows.values(), key=lambda row: row.entry.time)

    def list_linked_commits(self) -> list[str]:
        linked_oids = dict.fromkeys(row.entry.git_sha for row in reversed(self.rows_by_time()))
        return [oid for oid in linked_oids if oid and self.is_object_sound(ref_names.KEEP, oid)]


def list_gitckpt_refs(
    repository: Repository, take: Callable[[str, str, str], object] = lambda *_: None
) -> tuple[bytes, str]:
    """Call `take` with oid, name and symbolic target of each of gitckpt's refs.

    The target is "" for an ordinary ref. Returns a hash of the list, and git's error messages.
    """
    ref_hash = hashlib.blake2b()

    def read_lines(lines: list[bytes]) -> None:
        for line in lines:
            ref_hash.update(line + b"\n")
            take(*line.decode("utf-8", "surrogateescape").split(" "))

    require_no_pipes_in_refs(repository)  # git would block on them
    names = (*ref_names.OWN, ref_names.NOTES)
    format_option = "--format=%(objectname) %(refname) %(symref)"
    result = repository.git.stream_lines("for-each-ref", format_option, *names, handle=read_lines)
    return ref_hash.digest(), result.error_text


def gather_evidence(store: Checkpoints) -> AuditData:
    evidence = AuditData()  # filled by three git processes for any number of refs

    def store_ref(oid: str, ref: str, target: str) -> None:
        if not ref.startswith(ref_names.CHECKPOINTS):
            evidence.refs[ref] = oid
        elif not ref_names.is_foreign(ref):
            evidence.oids[ref.removeprefix(ref_names.CHECKPOINTS)] = oid
        else:
            return
        if target:
            evidence.symbolic[ref] = target

    repository, find_odd = store.repository, graph.find_objects_of_other_kinds
    evidence.digest, git_errors = list_gitckpt_refs(repository, store_ref)
    evidence.flaws += find_broken_refs(repository, git_errors)
    evidence.flaws += find_blocking_refs(repository, evidence.refs)
    _read_documents(store, evidence)
    # Find referenced objects that are missing or of a wrong type, without fetching any.
    linked_commits = evidence.list_linked_commits()
    for namespace in ref_names.OBJECTS:
        oids = {row.holds[namespace] for row in evidence.rich if namespace in row.holds}
        evidence.odd |= find_odd(repository, sorted(oids), KINDS[namespace])
    evidence.odd |= find_odd(repository, linked_commits, KINDS[ref_names.KEEP])
    return evidence


def _read_documents(store: Checkpoints, evidence: AuditData) -> None:
    contents = ref_names.read_documents(store.repository, store.objects, [*evidence.oids.values()])
    for (checkpoint_id, oid), content in zip(evidence.oids.items(), contents, strict=True):
        ref = ref_names.CHECKPOINTS + checkpoint_id
        try:
            row = read_or_raise_invalid(ref, partial(_make_checkpoint_row, ref, oid, content))
        except InvalidCheckpoint as error:
            evidence.invalid[checkpoint_id] = oid
            evidence.flaws.append(_describe_invalid_document(error, is_missing=content is None))
            continue
        evidence.rows[checkpoint_id] = row
        if row.entry.run is not None or row.references or row.entry.submodules or row.holds:
            evidence.rich.append(row)
        if row.entry.run is not None:
            evidence.runs.setdefault(row.entry.run, []).append(row)
        if row.entry.git_sha:
            row.holds[ref_names.KEEP] = row.entry.git_sha
    for chain in evidence.runs.values():
        chain.sort(key=lambda row: row.entry.sequence or 0)


def _make_checkpoint_row(ref: str, oid: str, content: tuple[str, bytes] | None) -> Row:
    document = ref_names.require_document(content, ref, oid, lack="missing or damaged")
    checkpoint = decode(document, ref)
    worktree, imported = checkpoint.worktree, checkpoint.imported
    needed_oids = {
        ref_names.TREES: checkpoint.tree,
        ref_names.OPERATIONS: worktree.operation_commit if worktree else None,
        ref_names.ORIGINALS: imported.original if imported else None,
    }
    held_oids = {namespace: oid for namespace, oid in needed_oids.items() if oid}
    entry = CheckpointInfo.of(checkpoint, oid)
    return Row(entry, checkpoint.parent, held_oids, list_references(checkpoint))


def _describe_invalid_document(error: InvalidCheckpoint, *, is_missing: bool) -> Flaw:
    ref = shell_quoted(error.ref)
    sentence = problem_of(error)
    if isinstance(error, NewerCheckpoint):
        return lasting("checkpoint-newer", error.ref, f"cannot be checked: {sentence}", error.hint)
    if is_missing:
        name = shell_quoted(error.ref.removeprefix(ref_names.CHECKPOINTS))
        cure = f"{FETCH} +{ref}:{ref}; or give the checkpoint up: git ckpt remove {name}"
        return lasting("checkpoint-unreadable", error.ref, sentence, cure)
    is_misnamed = error.field == "id" and error.problem.endswith("is not the ref's name")
    code = "checkpoint-misnamed" if is_misnamed else "checkpoint-invalid"
    return lasting(code, error.ref, sentence, cure_of_invalid_ref(error.ref))


def problem_of(error: InvalidCheckpoint) -> str:
    return error.message.removeprefix(f"{error.ref}: ")


def cure_of_invalid_ref(ref: str) -> str:
    name = shell_quoted(ref.removeprefix(ref_names.CHECKPOINTS))
    inspect_hint = f"inspect the document: git cat-file -p {shell_quoted(ref)}"
    return f"{inspect_hint}; remove the checkpoint: git ckpt remove {name}"


def find_broken_refs(repository: Repository, complaint: str) -> Iterator[Flaw]:
    # Each part of git's message may name the ref.
    ref_lines = [line for line in complaint.split("\n") if _BROKEN in line]
    for ref in dict.fromkeys(line.partition(_BROKEN)[2] for line in ref_lines):
        if not ref_names.is_foreign(ref):
            cure = f"rm {shell_quoted(os.path.join(repository.common_dir, ref))}"
            yield lasting("broken-ref", ref, "git cannot read this ref", cure)


def find_blocking_refs(repository: Repository, refs: Collection[str]) -> list[Flaw]:
    """Return flaws for refs such as `refs/ckpt`, which block all refs below them."""
    blocking_refs = [ref for ref in BARRING if ref in refs]
    blocking_refs += [ref for ref in _SHARED if repository.cat_file.info(ref) is not None]
    sentence = "blocks all refs below its name, so nothing can be recorded"
    cure = "move the ref away: git tag NAME {0} && git update-ref --no-deref -d {0}"
    return [lasting("ref-barring", ref, sentence, cure.format(ref)) for ref in blocking_refs]
