"""Check runs: the order of their checkpoints, heads, references, keys and leases."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from gitckpt.git.refs import RefUpdate
from gitckpt.model import codec, phase
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.checkpoint import PHASE, Checkpoint
from gitckpt.model.errors import InvalidCheckpoint, NewerCheckpoint
from gitckpt.store.audit.inventory import AuditData, Flaw, Row, lasting, problem_of, repairable
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.leases.leases import parse_lease
from gitckpt.store.records import commit_refs, keys, ref_names, remover

_FETCH = "fetch the missing checkpoint from a clone that has it"
_GAP = f"{_FETCH}; or delete leftover refs and notes: git ckpt verify --repair"
_REMOVED = f"{_FETCH}; if you removed the checkpoint, nothing is wrong"
_CLOSING = ("complete", "skipped")
# The phase part of the labels of a run's first and last checkpoint.
_RUN = phase.split_label(ref_names.RUN_COMPLETE)[0]


def audit_runs(store: Checkpoints, evidence: AuditData) -> Iterator[Flaw]:
    """Yield the flaws of runs; needs what `audit_links` found in the notes.

    If notes or refs still name a missing checkpoint, its ref was lost (by a pruning fetch or a disk
    fault), because `remove` would have deleted them, too.
    """
    ref_ids = {id_ for space in ref_names.OBJECTS for id_, *_ in evidence.list_refs_below(space)}
    traced_ids = evidence.strays | ref_ids
    traced_ids -= remover.read_interrupted_removals(store.repository)
    for run, chain in sorted(evidence.runs.items()):
        yield from _audit_run_checkpoints(run, chain, evidence, traced_ids)
        if not _is_run_complete(chain):  # a complete run may outlive the checkpoints it names
            yield from _audit_references(run, chain, evidence)
    yield from _audit_run_heads(store, evidence)


def _audit_run_checkpoints(
    run: str, chain: Sequence[Row], evidence: AuditData, traced_ids: Collection[str]
) -> Iterator[Flaw]:
    head_ref = ref_names.RUNS + run
    previous_rows: list[Row] = []  # checkpoints with the preceding number
    for position, row in enumerate(chain):
        number, last_number = (_sequence(row), _sequence(previous_rows[0]) if previous_rows else 0)
        if previous_rows and number == last_number:
            sentence = f"{row.id} and {previous_rows[0].id} are both number {number} of the run"
            cure = f"compare them with git ckpt show, then: git ckpt remove {row.id}"
            yield lasting("chain-fork", head_ref, sentence, cure)
            previous_rows.append(row)
            continue
        if number == last_number + 1:
            yield from _audit_parent(row, [parent.id for parent in previous_rows], evidence)
        # Nothing names a removed or never fetched parent; a lost one is in `traced_ids`.
        elif not _is_gap_explained(chain, position, evidence) and (
            row.parent is None or row.parent in evidence.oids or row.parent in traced_ids
        ):
            gap_text = f"number {last_number + 1} is"
            if number != last_number + 2:
                gap_text = f"numbers {last_number + 1} to {number - 1} are"
            yield lasting("chain-gap", head_ref, f"{gap_text} missing before {row.id}", _GAP)
        previous_rows = [row]


def _sequence(row: Row) -> int:
    return row.entry.sequence or 0


def _audit_parent(row: Row, expected: Sequence[str], evidence: AuditData) -> Iterator[Flaw]:
    if row.parent in expected or (row.parent is None and not expected):
        return
    if row.parent is not None and row.parent not in evidence.oids:
        sentence = f"the parent {row.parent} of this checkpoint does not exist"
        yield lasting("parent-missing", row.ref, sentence, _REMOVED)
        return
    sentence = f"names {row.parent} as its parent, " if row.parent else "names no parent, "
    sentence += f"but {expected[0]} is the previous" if expected else "but is the run's first"
    yield lasting("parent-wrong", row.ref, sentence, f"git ckpt remove {row.id}")


def _is_gap_explained(chain: Sequence[Row], position: int, evidence: AuditData) -> bool:
    if chain[position].parent in evidence.invalid:
        return True
    last = (_find_newest_by_driver(chain), chain[-1]) if _is_run_complete(chain) else ()
    if last and all(row in last for row in chain):
        return True  # an expiry was interrupted, which removes the newest checkpoints last
    # Expiry removes checkpoints between the start and the end of a phase.
    is_phase_open: dict[str, bool] = {}
    for row in chain[:position]:
        name, status = phase.split_label(row.entry.label)
        if status == "started" or status in _CLOSING:
            is_phase_open[name] = status == "started" and name != _RUN
    later_phases = [phase.split_label(row.entry.label) for row in chain[position:]]
    return any(is_phase_open.get(name) for name, status in later_phases if status in _CLOSING)


def _find_newest_by_driver(chain: Sequence[Row]) -> Row:
    return next((row for row in reversed(chain) if row.entry.trigger == PHASE), chain[-1])


def _is_run_complete(chain: Sequence[Row]) -> bool:
    return _find_newest_by_driver(chain).entry.label == ref_names.RUN_COMPLETE


def _audit_references(run: str, chain: Sequence[Row], evidence: AuditData) -> Iterator[Flaw]:
    first_references: dict[str, tuple[str, str]] = {}
    for row in chain:
        for key, checkpoint_id in row.references:
            first_references.setdefault(checkpoint_id, (row.ref, key))
    for checkpoint_id, (ref, key) in first_references.items():
        if checkpoint_id not in evidence.oids:
            sentence = f"{key} of run {run} names {checkpoint_id}, which does not exist"
            yield lasting("reference-missing", ref, sentence, _REMOVED)


def _audit_run_heads(store: Checkpoints, evidence: AuditData) -> Iterator[Flaw]:
    heads_by_run = {run: oid for run, _, oid in evidence.list_refs_below(ref_names.RUNS)}
    invalid_oids = set(evidence.invalid.values())
    for run in sorted(evidence.list_all_runs()):
        ref, head = ref_names.RUNS + run, heads_by_run.get(run)
        newest_row = evidence.runs[run][-1] if run in evidence.runs else None
        if newest_row is None:
            if head is not None and head not in invalid_oids and not _is_starting(store, ref, head):
                sentence = "the run of this head has no checkpoints"
                update = RefUpdate(ref, "", head)
                yield repairable("run-head-orphan", ref, sentence, update, is_leftover=True)
            continue
        if head in invalid_oids or head == newest_row.entry.oid:
            continue
        code, sentence = "run-head-missing", "the run has no head"
        if head is not None:
            code, sentence = _describe_wrong_head(store, evidence.runs[run], head)
        sentence += f"; the newest checkpoint of the run is {newest_row.id}"
        update = RefUpdate(ref, newest_row.entry.oid, head or "")
        yield repairable(code, ref, sentence, newest_row.unchanged, update)


def _is_starting(store: Checkpoints, ref: str, head: str) -> bool:
    if not commit_refs.is_recently_written(store.repository, ref):
        return False
    try:
        return _read_document(store, head).run == ref.removeprefix(ref_names.RUNS)
    except InvalidCheckpoint as error:
        return isinstance(error, NewerCheckpoint)  # unknown to this version


def _read_document(store: Checkpoints, oid: str) -> Checkpoint:
    stored_object = next(store.objects.read([oid]))
    if stored_object is None or stored_object[0] != "blob":
        raise InvalidCheckpoint("", "", "is not the document of a checkpoint")
    return codec.decode(stored_object[1], "")


def _describe_wrong_head(store: Checkpoints, chain: Sequence[Row], head: str) -> tuple[str, str]:
    row_at_head = next((row for row in chain if row.entry.oid == head), None)
    if row_at_head is not None:
        return "run-head-lags", f"points to {row_at_head.id}, number {row_at_head.entry.sequence}"
    try:
        checkpoint = _read_document(store, head)
    except InvalidCheckpoint:
        return "run-head-wrong", "does not point to a checkpoint document"
    is_foreign = checkpoint.run != chain[0].entry.run
    problem = "belongs to another run" if is_foreign else "no longer exists"
    return "run-head-wrong", f"points to {checkpoint.id}, which {problem}"


def audit_keys(store: Checkpoints, evidence: AuditData) -> Iterator[Flaw]:
    existing_runs = evidence.list_all_runs()
    for _, ref, oid, stored_object in _read_refs_below(store, evidence, ref_names.KEYS):
        try:
            run = keys.parse_run(stored_object, ref)
        except InvalidCheckpoint as error:
            yield lasting("key-invalid", ref, problem_of(error), error.hint)
            continue
        if run not in existing_runs and not commit_refs.is_recently_written(store.repository, ref):
            updates = (RefUpdate(ref_names.RUNS + run, "", ""), RefUpdate(ref, "", oid))
            sentence = f"the run {run} of this key does not exist"
            yield repairable("key-orphan", ref, sentence, *updates, is_leftover=True)


def audit_leases(store: Checkpoints, evidence: AuditData) -> Iterator[Flaw]:
    # A held lease may belong to a run that is about to start.
    existing_runs = evidence.list_all_runs()
    for run, ref, oid, stored_object in _read_refs_below(store, evidence, ref_names.LEASES):
        take_over_command = f"if the run has no driver: git ckpt resume {run} --take-over"
        try:
            if stored_object is None or stored_object[0] != "blob":
                raise InvalidCheckpoint(ref, "", "does not point to a lease")
            lease = parse_lease(stored_object[1], ref)
        except InvalidCheckpoint as error:
            delete_command = f"if the run has no driver: git update-ref -d {shell_quoted(ref)}"
            cure = error.hint or (take_over_command if run in existing_runs else delete_command)
            yield lasting("lease-invalid", ref, problem_of(error), cure)
            continue
        if lease.is_endless(store.clock()):
            sentence = f"expires at {lease.expires}, too long after the renewal at {lease.renewed}"
            yield lasting("lease-endless", ref, sentence, take_over_command)
        if run not in existing_runs and not store.leases.is_held(oid, lease):
            sentence = "the run of this lease does not exist"
            yield repairable("lease-orphan", ref, sentence, RefUpdate(ref, "", oid))


def _read_refs_below(
    store: Checkpoints, evidence: AuditData, space: str
) -> Iterator[tuple[str, str, str, tuple[str, bytes] | None]]:
    refs = evidence.list_refs_below(space)
    stored_objects = store.objects.read([oid for _, _, oid in refs])
    return ((*ref, content) for ref, content in zip(refs, stored_objects, strict=True))
