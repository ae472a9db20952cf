"""Verify runs: chains, heads, references; and the keys and leases of runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from gitckpt.git.refs import Update
from gitckpt.model import codec
from gitckpt.model import phase as phases
from gitckpt.model.arguments import shell_word
from gitckpt.model.checkpoint import PHASE
from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint
from gitckpt.model.values import dataclass
from gitckpt.store.audit.inventory import Evidence, Flaw, SheetRow, lasting, mendable
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import parse
from gitckpt.store.records import keep, keys, layout, remover

_GAP = "fetch what is missing from a clone that has it; or give up what is left of it: git ckpt verify --repair"
_FETCH = "fetch what is missing from a clone that has it; where somebody removed it, nothing is wrong"
_CLOSING = ("complete", "skipped")
# The first part of the labels at both ends of a run.
_RUN = phases.split(layout.RUN_COMPLETE)[0]


def audit_runs(store: Checkpoints, evidence: Evidence) -> list[Flaw]:
    """Return the flaws of runs; call `derived.links` first: it reads the notes.

    `remove` also deletes a checkpoint's note lines and keep refs. If only the checkpoint's ref
    is gone (a pruning fetch, a disk fault, a slip), these traces prove a loss, unless an
    interrupted removal is still to be finished.
    """
    runs = evidence.runs()
    flaws: list[Flaw] = []
    traces = evidence.strays | {name for space in layout.HOLDERS for name, _, _ in evidence.below(space)}
    traces -= remover.begun(store.repository)
    for run in sorted(runs):
        records = [evidence.record(at) for at in runs[run]]
        flaws += _Chain(run, records, evidence, traces).flaws()
        if not _is_over(records):  # a complete run may outlive what it started from
            flaws += _dangling(run, records, evidence)
    return flaws + list(_heads(store, evidence, runs))


@dataclass(frozen=True, slots=True)
class _Chain:
    """The valid checkpoints of a run, by sequence."""

    run: str
    records: Sequence[SheetRow]
    evidence: Evidence
    traces: Collection[str]

    def flaws(self) -> Iterator[Flaw]:
        before: list[SheetRow] = []
        for at, record in enumerate(self.records):
            sequence, last = record.sequence or 0, (before[0].sequence or 0) if before else 0
            if before and sequence == last:
                sentence = f"{record.id} and {before[0].id} both are number {sequence} of the run"
                yield lasting("chain-fork", layout.RUNS + self.run, sentence, f"look at both, then: git ckpt remove {record.id}")
                before.append(record)
                continue
            if sequence == last + 1:
                yield from self._parent(record, before)
            elif not (self._may_be_gone(at) or self._was_removed(record)):
                missing = f"number {last + 1} is" if sequence == last + 2 else f"numbers {last + 1} to {sequence - 1} are"
                yield lasting("chain-gap", layout.RUNS + self.run, f"{missing} missing before {record.id}", _GAP)
            before = [record]

    def _parent(self, record: SheetRow, before: Sequence[SheetRow]) -> Iterator[Flaw]:
        wanted = [each.id for each in before]
        if record.parent in wanted or (record.parent is None and not wanted):
            return
        remove = f"git ckpt remove {record.id}"
        if record.parent is None:
            yield lasting("parent-wrong", record.ref, f"names no parent, though {wanted[0]} comes before it", remove)
        elif self.evidence.is_there(record.parent):
            instead = f"where {wanted[0]} comes before it" if wanted else "though it is the first of its run"
            yield lasting("parent-wrong", record.ref, f"names {record.parent} as its parent, {instead}", remove)
        else:
            yield lasting("parent-missing", record.ref, f"its parent {record.parent} does not exist", _FETCH)

    def _may_be_gone(self, at: int) -> bool:
        """Return whether expiry or an unjudged checkpoint explains the gap before."""
        after = self.records[at]
        if after.parent in self.evidence.unjudged:
            return True
        if _is_over(self.records) and all(record in (_driven(self.records), self.records[-1]) for record in self.records):
            return True  # interrupted expiry: it removes the end last
        later = [phases.split(record.phase) for record in self.records[at:]]
        return any((name, status) in later for name in self._open_at(at) for status in _CLOSING)

    def _was_removed(self, after: SheetRow) -> bool:
        """Return whether the parent was removed or never fetched."""
        return after.parent is not None and not self.evidence.is_there(after.parent) and after.parent not in self.traces

    def _open_at(self, at: int) -> set[str]:
        """Return the phases that are open before a place: expiry squashes their progress."""
        open_phases: set[str] = set()
        for record in self.records[:at]:
            name, status = phases.split(record.phase)
            if status == "started" and name != _RUN:
                open_phases.add(name)
            elif status in _CLOSING:
                open_phases.discard(name)
        return open_phases


def _driven(records: Sequence[SheetRow]) -> SheetRow:
    """Return the newest checkpoint of a phase, else the newest one."""
    return next((record for record in reversed(records) if record.trigger == PHASE), records[-1])


def _is_over(records: Sequence[SheetRow]) -> bool:
    return _driven(records).phase == layout.RUN_COMPLETE


def _dangling(run: str, records: Sequence[SheetRow], evidence: Evidence) -> Iterator[Flaw]:
    seen: set[str] = set()
    for record in records:
        for key, named in record.names:
            if named not in seen and not evidence.is_there(named):
                yield lasting("reference-missing", record.ref, f"{key} of run {run} names {named}, which does not exist", _FETCH)
            seen.add(named)


def _heads(store: Checkpoints, evidence: Evidence, runs: Mapping[str, Sequence[int]]) -> Iterator[Flaw]:
    heads = {run: oid for run, _, oid in evidence.below(layout.RUNS)}
    unjudged = set(evidence.unjudged.values())
    for run in sorted({*heads, *runs}):
        ref, head = layout.RUNS + run, heads.get(run)
        newest = evidence.record(runs[run][-1]) if run in runs else None
        if head is None and newest is not None:
            sentence = f"the run has no head; its newest checkpoint is {newest.id}"
            yield mendable("run-head-missing", ref, sentence, updates=(newest.is_there, Update(ref, newest.oid, "")))
        elif head is None or head in unjudged or (newest is not None and head == newest.oid):
            continue
        elif newest is None:
            if not keep.is_young(store.repository, ref) or not _may_start(store, run, head):
                sentence = "no checkpoint of the run exists"
                yield mendable("run-head-orphan", ref, sentence, updates=(Update(ref, "", head),), is_leftover=True)
        else:
            code, sentence = _wrong_head(store, [evidence.record(at) for at in runs[run]], head)
            said = f"{sentence}; the newest checkpoint of the run is {newest.id}"
            yield mendable(code, ref, said, updates=(newest.is_there, Update(ref, newest.oid, head)))


def _may_start(store: Checkpoints, run: str, head: str) -> bool:
    """Return whether a run without checkpoints may be starting."""
    found = next(store.objects.read([head]))
    try:
        return found is not None and found[0] == "blob" and codec.decode(found[1], "").run == run
    except NewerCheckpoint:
        return True  # unknown to this version
    except InvalidCheckpoint:
        return False


def _wrong_head(store: Checkpoints, chain: Sequence[SheetRow], head: str) -> tuple[str, str]:
    lagging = next((record for record in chain if record.oid == head), None)
    if lagging is not None:
        return "run-head-lags", f"points to {lagging.id}, number {lagging.sequence}"
    found = next(store.objects.read([head]))
    try:
        if found is None or found[0] != "blob":
            raise InvalidCheckpoint("", "", "no document")
        checkpoint = codec.decode(found[1], "")
    except InvalidCheckpoint:
        return "run-head-wrong", "does not point to a checkpoint document"
    if checkpoint.run != chain[0].run:
        return "run-head-wrong", f"points to {checkpoint.id}, which does not belong to this run"
    return "run-head-wrong", f"points to {checkpoint.id}, which does not exist any more"


def audit_keys(store: Checkpoints, evidence: Evidence) -> list[Flaw]:
    runs = evidence.all_runs()
    flaws: list[Flaw] = []
    held = evidence.below(layout.KEYS)
    for (_, ref, oid), found in zip(held, store.objects.read([oid for _, _, oid in held]), strict=True):
        try:
            run = keys.run_in(found, ref)
        except InvalidCheckpoint as error:
            flaws.append(lasting("key-invalid", ref, error.message.removeprefix(f"{ref}: "), error.hint))
            continue
        if run not in runs and not keep.is_young(store.repository, ref):
            updates = (Update(layout.RUNS + run, "", ""), Update(ref, "", oid))
            flaws.append(mendable("key-orphan", ref, f"its run {run} does not exist", updates=updates, is_leftover=True))
    return flaws


def audit_leases(store: Checkpoints, evidence: Evidence) -> list[Flaw]:
    """Return the flaws of leases."""
    runs = evidence.all_runs()
    flaws: list[Flaw] = []
    held = evidence.below(layout.LEASES)
    for (run, ref, oid), found in zip(held, store.objects.read([oid for _, _, oid in held]), strict=True):
        try:
            if found is None or found[0] != "blob":
                raise InvalidCheckpoint(ref, "", "does not point to a lease")
            lease = parse(found[1], ref)
        except InvalidCheckpoint as error:
            take_over = f"git ckpt resume {run} --take-over" if run in runs else f"git update-ref -d {shell_word(ref)}"
            cure = error.hint or f"if nobody drives the run: {take_over}"
            flaws.append(lasting("lease-invalid", ref, error.message.removeprefix(f"{ref}: "), cure))
            continue
        if lease.is_endless(store.clock()):
            sentence = f"it is good until {lease.expires}, and says that it was renewed at {lease.renewed}: no driver says so"
            flaws.append(lasting("lease-endless", ref, sentence, f"if nobody drives the run: git ckpt resume {run} --take-over"))
        if run not in runs and not store.leases.is_held(oid, lease):
            flaws.append(mendable("lease-orphan", ref, "its run does not exist", updates=(Update(ref, "", oid),)))
    return flaws
