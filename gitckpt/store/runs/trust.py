"""Check that a run was written in this repository; adopt foreign runs on approval."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gitckpt.git import fsync
from gitckpt.git.objects import diff
from gitckpt.git.process import GitError
from gitckpt.model import codec, ids, jsonable
from gitckpt.model.checkpoint import Checkpoint, Pipeline
from gitckpt.model.errors import CkptError, UsageError, WorktreeError
from gitckpt.store import local_checkpoints
from gitckpt.store import secrets as stored
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import ref_names
from gitckpt.store.records.entry import CheckpointInfo, Query
from gitckpt.store.runs.run_files import ENTRY, INPUT
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.worktrees import ownership

_MAX_LINES = 20  # number of files, values or phases to show; the rest are counted
_MAX_LENGTH = 2000  # number of characters of a value to show


class Untrusted(UsageError):
    """The checkpoint to continue from was not written in this repository."""

    def __init__(self, message: str, account: Sequence[str], *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.candidates = list(account)  # lines that describe what the user would approve


def is_trusted(store: Checkpoints, checkpoint: Checkpoint) -> bool:
    run = checkpoint.run
    if run is None:  # without a pipeline, it can only be restored
        return checkpoint.pipeline is None and not store.is_replaced(checkpoint.id)
    oids = {store.refs.read_ref(ref_names.CHECKPOINTS + checkpoint.id)}
    if store.refs.read_ref(ref_names.RUNS + run) is not None:
        oid, newest = store.heads.read_head(run)
        oids |= {oid} if newest.id == checkpoint.id else set()
    is_local = local_checkpoints.is_document_local
    are_local = [is_local(store.repository, run, str(oid)) for oid in oids - {None}]
    return bool(are_local) and all(are_local)


def read(store: Checkpoints, run: str, checkpoint_id: str) -> Checkpoint:
    """Return a checkpoint; raise `Untrusted` if it was not written or adopted here."""
    ref = ref_names.CHECKPOINTS + checkpoint_id
    oid = store.refs.read_ref(ref) if ids.is_checkpoint_id(checkpoint_id) else None
    if oid is None:
        return store.read(checkpoint_id)  # raises the error
    document = ref_names.require_document(next(store.objects.read([oid])), ref, oid)
    checkpoint = codec.decode(document, ref)
    runs = filter(None, (run, checkpoint.run))
    if not any(local_checkpoints.is_document_local(store.repository, id_, oid) for id_ in runs):
        raise trust_error(store, checkpoint, [])
    return checkpoint


def list_local(store: Checkpoints, query: Query) -> Iterator[CheckpointInfo]:
    """Yield the run checkpoints that match a query and were written or adopted here."""
    for info in store.list(query):
        if info.run and local_checkpoints.is_document_local(store.repository, info.run, info.oid):
            yield info


def adopt(store: Checkpoints, run: str, head: str | None = None, *, by: str | None = None) -> None:
    """Record that the user trusts a run's checkpoints, only for the run `by` if given."""
    entries = store.list(Query(run=run))
    local = LocalCheckpoints.read(store.repository, [entry.id for entry in entries])
    newest = _newest_local(store, run)
    # Before the adoption: it makes foreign checkpoints look local.
    if by is None and newest is not None and newest.oid != head:
        # The worktrees of the run lack the foreign checkpoints. Local saves after a fetch, and
        # saves lost to a full disk, are not in the chain, but their files are here.
        foreign = (e for e in entries if not local.has_document(e.id, e.oid))
        foreign_ids = [e.id for e in foreign if not local.is_written_here(e)]
        if foreign_ids:
            ownership.record_behind_id(store.repository, run, newest.id, foreign_ids[0])
    oids = [*(entry.oid for entry in reversed(entries)), *([head] if head is not None else [])]
    if not (paths := local_checkpoints.append_oids(store.repository, by or run, oids)):
        problem = f"cannot record that run {run} was adopted"
        raise CkptError(problem, hint="see why: git ckpt doctor")
    if by is None:
        unlisted = [(e.id, e.oid) for e in reversed(entries) if not local.has_document(e.id, e.oid)]
        local_checkpoints.append_lines(store.repository, unlisted, is_apart=True)
    fsync.flush(paths)


def trust_error(store: Checkpoints, checkpoint: Checkpoint, account: Sequence[str]) -> Untrusted:
    short_id, run = checkpoint.id[: ids.SHORT], checkpoint.run
    if run is None and checkpoint.pipeline is None:
        advice = "; if you trust the new one: --trust"
        error = local_checkpoints.replaced_error(checkpoint.id, advice)
        return Untrusted(error.message, account, hint=str(error.hint))
    hint = f"if you trust it: git ckpt resume {run} --trust" if run else "if you trust it: --trust"
    newest = _newest_local(store, run) if run is not None else None
    if run is None:
        problem = f"checkpoint {short_id} has a pipeline and no run, and was not written here"
    elif newest is None and checkpoint.imported is not None:
        problem = f"the pipeline of run {run} is from the file {checkpoint.imported.path}, "
        problem += "which anyone may have written"
    elif newest is None:
        problem = f"run {run} was not written in this repository"
    else:
        problem = f"checkpoint {short_id} of run {run} was not written in this repository; "
        problem += f"the newest local checkpoint is {newest.id[: ids.SHORT]}"
        other_cure = f"continue without it: git ckpt remove {short_id}"
        if store.is_replaced(checkpoint.id):
            other_cure = str(local_checkpoints.replaced_error(checkpoint.id).hint)
        hint = f"{other_cure}; {hint}"
    return Untrusted(problem, account, hint=hint)


def describe(store: Checkpoints, checkpoint: Checkpoint, commands: Sequence[str] = ()) -> list[str]:
    """Return lines that describe what a user approves by trusting a checkpoint."""
    newest = _newest_local(store, checkpoint.run) if checkpoint.run is not None else None
    previous = store.read(newest.id) if newest is not None else None
    name = f"checkpoint {previous.id[: ids.SHORT]}" if previous else "the checked-out commit"
    operation = checkpoint.worktree.operation if checkpoint.worktree else None
    state = f"state that differs from {name}" if previous else "state"
    lines = [
        *_format_section(f"files that differ from {name}", _compare(store, checkpoint, previous)),
        *_format_section("operation in progress", [operation] if operation else []),
        *_format_section(state, _describe_state(checkpoint, previous)),
    ]
    pipeline = checkpoint.pipeline
    if pipeline is not None:
        lines += [
            *_format_section("phases marked as complete", pipeline.completed),
            *_format_section("inputs", _describe_inputs(store, checkpoint, pipeline)),
            *_format_section("pauses", [pipeline.autonomy] if pipeline.autonomy else []),
        ]
    return [*lines, *_format_section("commands that would run", commands, every=True)]


def _newest_local(store: Checkpoints, run: str) -> CheckpointInfo | None:
    return next(list_local(store, Query(run=run)), None)


def _format_section(title: str, lines: Iterable[str], *, every: bool = False) -> list[str]:
    shortened = [
        f"{t[:_MAX_LENGTH]}… ({len(t)} characters)" if len(t) > _MAX_LENGTH else t for t in lines
    ]
    shown = shortened if every else shortened[:_MAX_LINES]
    more = [f"  … and {len(shortened) - len(shown)} more"] if len(shortened) > len(shown) else []
    return [f"{title}:", *(f"  {line}" for line in shown), *more] if shortened else []


def _compare(store: Checkpoints, checkpoint: Checkpoint, previous: Checkpoint | None) -> list[str]:
    if checkpoint.imported is not None and not checkpoint.git_sha:
        return []  # the run starts from the current checkout
    head = None, store.objects.read_head()[0]
    old = (previous.tree, previous.git_sha) if previous is not None else head
    new = (checkpoint.tree, checkpoint.git_sha)
    try:
        trees = comparison.make_comparable_trees(store.repository, store.objects, old, new)
        return [str(difference) for difference in diff.diff_trees(store.repository, *trees)]
    except (WorktreeError, GitError) as error:
        return [f"unknown: {error.message}"]


def _describe_state(checkpoint: Checkpoint, previous: Checkpoint | None) -> list[str]:
    old = dict(previous.state) if previous is not None else {}
    changes = jsonable.compare_states(old, dict(checkpoint.state))
    return [
        f"{c.pointer} is gone" if c.is_removed else f"{c.pointer} = {_json(c.new)}" for c in changes
    ]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _describe_inputs(store: Checkpoints, checkpoint: Checkpoint, pipeline: Pipeline) -> list[str]:
    lines, copies = [], _read_input_oids(store, checkpoint.tree) if pipeline.contents else {}
    for name, value in pipeline.inputs.items():
        line = f"{name} = {value}"
        if name in pipeline.contents:
            content = next(store.objects.read([copies[name]])) if name in copies else None
            if content is None:
                line += ", but the file's content is missing"
            else:
                data = content[1]
                line += f", a file that begins with {_json(data[:200].decode('utf-8', 'replace'))}"
                if hashlib.sha256(data).hexdigest() != pipeline.contents[name]:
                    is_masked = stored.has_masked_secrets(data)
                    reason = ": secrets in the content are masked" if is_masked else ""
                    line += f", and does not match the recorded digest{reason}"
        lines.append(line)
    return lines


def _read_input_oids(store: Checkpoints, tree: str | None) -> dict[str, str]:
    info = store.repository.cat_file.info(f"{tree}:{ENTRY}/{INPUT}") if tree is not None else None
    content = next(store.objects.read([info[0]])) if info is not None else None
    if info is None or content is None or content[0] != "tree":
        return {}
    try:
        entries = manifest.decode_snapshot_tree(content[1], store.repository, info[0])
    except WorktreeError:
        return {}  # each input file is then reported as missing
    return {entry.decode("utf-8", "replace"): oid for entry, (_, oid) in entries.items()}
