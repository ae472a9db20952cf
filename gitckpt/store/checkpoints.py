"""Implement the methods of `Store` that read and write checkpoints."""

from __future__ import annotations

import contextlib
from _thread import allocate_lock  # importing `threading` takes 0.5 ms
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from types import NoneType

from gitckpt.git import packing
from gitckpt.git.command import require_git_version
from gitckpt.git.objects.plumbing import open_objects
from gitckpt.git.process import GitError
from gitckpt.git.refs import Refs
from gitckpt.git.repository import Repository
from gitckpt.model import codec, ids, times
from gitckpt.model.arguments import as_strings, require_text, require_type
from gitckpt.model.checkpoint import Checkpoint, Worktree
from gitckpt.model.errors import CkptError, NotFoundError
from gitckpt.model.values import replace
from gitckpt.store import error_log, local_checkpoints, notes
from gitckpt.store.records import draft, ref_names
from gitckpt.store.records.heads import RunHeads
from gitckpt.store.records.recorder import CheckpointRecorder, Proposal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, Unpack

    from gitckpt.git.objects.writer import ObjectDatabase
    from gitckpt.git.worktree.index import PrivateIndex, WorktreeStatus
    from gitckpt.store.config.settings import SettingsReader
    from gitckpt.store.leases.leases import Leases
    from gitckpt.store.records.addresses import Addresses, OnRevision
    from gitckpt.store.records.draft import CheckpointDetails, SuccessorCheckpoint
    from gitckpt.store.records.entry import CheckpointInfo, Problem, Query
    from gitckpt.store.records.index import Index
    from gitckpt.store.records.keys import KeyClaim
    from gitckpt.store.records.labels import LabelRefs
    from gitckpt.store.records.recorder import Change, LeaseGuard, ProgressOf
    from gitckpt.store.records.remover import CheckpointRemover
    from gitckpt.store.snapshot.last_capture import CaptureEvidence
    from gitckpt.store.snapshot.limits import Limits

    # Adds the files that a run keeps outside its worktree to a captured `Worktree`.
    Beside = Callable[[Repository, ObjectDatabase, Worktree, str, Limits], Worktree]

    class SaveOptions(CheckpointDetails, total=False):
        start: str | None
        key: str | None
        guard: LeaseGuard | None
        change: Change | None
        progress_of: ProgressOf | None
        keeps: Collection[str]
        then: SuccessorCheckpoint | None


# Arguments of `record` that are not keys of the document.
_OPTIONS = ("start", "key", "guard", "change", "progress_of", "keeps", "then")

_ONE_IN_256 = "00"  # Prefix of ids. Loose refs are counted on one record in 256.


class Checkpoints:
    """Read and write the checkpoints of one repository; safe to share by threads."""

    def __init__(
        self,
        repository: Repository,
        adapter: str = "auto",
        *,
        clock: Callable[[], int] = times.now,
        new_id: Callable[[], str] = ids.make_checkpoint_id,
        ahead: PrivateIndex | None = None,
        listener: error_log.Listener | None = None,
        on_revision: OnRevision | None = None,
    ) -> None:
        self.repository = repository
        self.objects: ObjectDatabase = open_objects(repository, adapter)
        self.refs = Refs(repository, self._clear_stale_lock)
        self._index: Index | None = None
        self._ahead = [] if ahead is None else [ahead]
        self._parts: tuple[tuple[str, str], Collection[str] | None] = ("", ""), None
        self._evidence: CaptureEvidence | None = None  # of the last capture
        self._status: WorktreeStatus | None = None  # read by `unchanged`, for the next capture
        self._opening = allocate_lock()
        self._listener = listener or error_log.Listener()
        self._on_revision = on_revision  # see `Addresses`
        repository.progress = self._listener.count
        self.clock = clock
        self.new_id = new_id
        self._has_written = self._has_removed = False
        self._recorder = CheckpointRecorder(repository, self.objects, self.refs)
        is_local = partial(local_checkpoints.is_document_local, repository)
        self.heads = RunHeads(self.refs, self.objects, lambda: self.index, is_local)

    def open_store_for(self, repository: Repository, adapter: str) -> Self:
        clock, new_id, listener = self.clock, self.new_id, self._listener
        return type(self)(repository, adapter, clock=clock, new_id=new_id, listener=listener)

    @property
    def index(self) -> Index:
        with self._opening:
            if self._index is None:
                from gitckpt.store.records.index import Index  # recording alone needs no SQLite

                progress = self._listener.progress
                self._index = Index(self.repository, self.objects, self.refs, progress)
            return self._index

    @cached_property
    def leases(self) -> Leases:
        from gitckpt.store.leases.leases import Leases  # needed only to write into a run

        return Leases(self.objects, self.refs, self.repository, self.clock)

    @cached_property
    def settings_reader(self) -> SettingsReader:
        from gitckpt.store.config.settings import SettingsReader  # lazy: only captures need it

        return SettingsReader(self.repository, self._listener.tell)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            if self._has_removed or self._has_written:
                self.write_due_links(at_once=self._has_removed)
        finally:
            if self._index is not None:
                self._index.close()
            for unused_index in self._ahead:
                unused_index.close()
            self.refs.close()
            self.objects.close()
            self.repository.close()

    def take_private_index(self) -> PrivateIndex:
        from gitckpt.git.worktree.index import PrivateIndex

        with contextlib.suppress(IndexError):  # the index that git is already refreshing
            return self._ahead.pop()
        index = PrivateIndex(self.repository)
        index.known_status, self._status = self._status, None
        return index

    def capture_worktree(
        self, limits: Limits | None = None, beside: Beside | None = None, *, recursive: bool = True
    ) -> Worktree:
        from gitckpt.store.snapshot import capture as snapshot
        from gitckpt.store.snapshot.limits import EXCESS, Limits

        require_type("limits", limits, (Limits, NoneType), "a Limits")
        commit = draft.read_head(self.repository, self.objects)[0]
        # An explicit capture has no timeout. A caller that must not wait passes its own limits.
        usual = self.settings_reader.read_limits()
        limits = limits or replace(usual, timeout=float("inf"))
        captured = snapshot.capture(self.take_private_index(), self.objects, commit, limits)
        self._parts = (commit, captured.files), captured.parts
        worktree = captured.worktree
        is_usual = replace(limits, timeout=usual.timeout, max_total_size=None) == usual
        is_usual = is_usual and not any(
            entry.reason.startswith(EXCESS) for entry in worktree.omitted
        )
        self._evidence = captured.evidence if is_usual else None
        if captured.submodules and limits.submodules and recursive:
            from gitckpt.store import submodules  # imports `typing`

            worktree = submodules.capture_submodules(self, worktree, captured.submodules, limits)
        if beside is None:
            return worktree
        return beside(self.repository, self.objects, worktree, commit, limits)

    def record(
        self,
        label: str,
        state: Mapping[str, Any] | None = None,
        *,
        worktree: Worktree | None = None,
        start: str | None = None,
        key: str | None = None,
        base: str | None = None,
        guard: LeaseGuard | None = None,
        change: Change | None = None,
        progress_of: ProgressOf | None = None,
        keeps: Collection[str] = (),
        then: SuccessorCheckpoint | None = None,
        **details: Unpack[CheckpointDetails],
    ) -> Checkpoint:
        """Record a checkpoint and return it; see `Store.record` for other arguments.

        `change` computes the new state from the state of the run's newest checkpoint ({} for a new
        run). If another process records first, `change` runs again, and the keys of the state that
        `keeps` names get the other process's values.
        """
        run = details.get("run")
        options = {"start": start, "key": key, "base": base, "worktree": worktree, "keeps": keeps}
        draft.require_valid_arguments(
            label, details, state=state, change=change, progress_of=progress_of, **options
        )
        if run is not None:
            self.heads.move_head_up_once(run)
        repository = self.repository
        commit, branch = draft.read_head(repository, self.objects) if base is None else (base, None)
        instant = self.clock()
        new_objects: Sequence[str] = ()
        if worktree is not None and worktree.tree is not None:
            from gitckpt.store.snapshot import capture as snapshot

            arguments = worktree.tree, commit, self._captured_parts
            new_objects = sorted(snapshot.list_objects_beyond_commit(repository, *arguments) or ())
        record_proposal = partial(self._recorder.record_proposals, needs=new_objects)
        make_draft = partial(draft.make_checkpoint, head=(commit, branch), worktree=worktree)
        first_id = details["id"] if "id" in details else self.new_id()
        parts = make_draft(label, state, details, checkpoint_id=first_id, instant=instant)
        checkpoint, fields, new_state = parts
        updater = None if change is None else draft.StateUpdater(*parts[:2], change, progress_of)
        proposal = Proposal(fields, new_state, guard=guard, change=updater, keeps=keeps)
        if then is not None:
            draft.require_valid_arguments(then.label, then.details, state=then.state)
            second_details: Any = {"checkpoint_id": then.details["id"], "instant": self.clock()}
            second_draft = make_draft(then.label, then.state, then.details, **second_details)
            record_proposal(proposal, then=[Proposal(*second_draft[1:], keeps=keeps)])
            then.checkpoint = draft.complete_checkpoint(*second_draft)
        elif start is None:
            record_proposal(proposal)
        else:
            proposal.starts_run, proposal.is_apart = True, base is not None
            proposal.claim = None if key is None else self.claim_of_key(key)
            self.heads.start_run(lambda: record_proposal(proposal), fields, instant, start)
        self._has_written = True
        self.write_due_links(instant)
        if updater is not None:
            checkpoint, new_state = updater.checkpoint, updater.state
        if new_state == {} and not details.get("pipeline"):
            error_log.append_to_log(repository, f"checkpoint {checkpoint.id} has an empty state")
        if checkpoint.id.startswith(_ONE_IN_256):
            try:
                packing.pack_refs_if_many(repository, ref_names.OWN, require_git_version())
            except CkptError as error:
                # The checkpoint is recorded by now, so the caller sees no error.
                error_log.append_to_log(repository, f"refs were not packed: {error.message}")
        return draft.complete_checkpoint(checkpoint, fields, new_state)

    def save(
        self,
        label: str,
        state: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        beside: Beside | None = None,
        without_files: str | None = None,
        if_changed: bool = False,
        **options: Unpack[SaveOptions],
    ) -> Checkpoint:
        """Capture and record; `without_files` is the label if the capture times out.

        With `if_changed`, return the worktree's last captured checkpoint if it has the same files.
        """
        is_known = self._status is not None  # the caller has just called `unchanged`
        if if_changed and not is_known and (same := self.unchanged()) is not None:
            return same
        from gitckpt.store.snapshot import capture as snapshot
        from gitckpt.store.snapshot import last_capture

        to_check = {name: options.get(name) for name in ("start", "key", "change", "progress_of")}
        details: Any = {name: value for name, value in options.items() if name not in _OPTIONS}
        draft.require_valid_arguments(label, details, **to_check)
        successor = options.get("then")

        def capture_and_record() -> Checkpoint:
            worktree = self.capture_worktree(limits, beside)
            if if_changed and (same := self._last_captured()) and self._is_same(same, worktree):
                return same
            used_label = without_files if without_files is not None and worktree.degraded else label
            return self.record(used_label, state, worktree=worktree, **options)

        def remove_torn(torn: Collection[str]) -> None:
            second_checkpoint = successor.checkpoint if successor is not None else None
            self.remove([*torn, second_checkpoint.id] if second_checkpoint is not None else torn)

        arguments = (self.repository, self.objects, capture_and_record, remove_torn, self.announce)
        checkpoint = snapshot.record_until_complete(*arguments, parts=self._captured_parts)
        last_capture.store(self.repository, self._evidence, checkpoint.id)
        return checkpoint

    def record_again(
        self, unchanged: Checkpoint, label: str, state: Mapping[str, Any], **options: Any
    ) -> Checkpoint:
        """Record a checkpoint with the files of the one that `unchanged` returned."""
        from gitckpt.store.snapshot import last_capture

        evidence = self._evidence
        head = draft.read_head(self.repository, self.objects)
        if (unchanged.git_sha, unchanged.branch) != head:
            return self.save(label, state, **options)
        checkpoint = self.record(label, state, worktree=unchanged.worktree, **options)
        last_capture.store(self.repository, evidence, checkpoint.id)
        return checkpoint

    def unchanged(self) -> Checkpoint | None:
        """Return the worktree's last captured checkpoint if git shows no change since."""
        from gitckpt.store.snapshot import last_capture

        last = last_capture.load(self.repository)
        evidence = last[1] if last is not None else None
        if evidence is None or not last_capture.may_be_valid(self.repository, evidence):
            return None
        status = self._read_status()
        if status is None or not last_capture.is_valid(self.repository, evidence, status.output):
            return None
        self._status, self._evidence = None, evidence
        return self._last_captured()

    def is_clean(self) -> bool:
        """Return whether branches, tags and remotes have all that a capture would save."""
        if self.repository.operation_in_progress() or self.settings_reader.read_limits().include:
            return False
        status = self._status or self._read_status()
        if status is None or status.has_changes:
            return False
        git = self.repository.git
        if status.is_detached:  # commits of a worktree that is removed go with its reflog
            words = ("-n1", "HEAD", "--not", "--branches", "--tags", "--remotes")
            if git.run("rev-list", *words, ok=(0, 128)).text:
                return False
        # Flags of the index hide changes from git status.
        tags = {line[:1] for line in git.run("ls-files", "-v", "-z").out.split(b"\0")}
        return not tags & {b"h", b"s", b"m", b"S"}

    def _read_status(self) -> WorktreeStatus | None:
        # The capture that follows needs not ask git again.
        from gitckpt.git.worktree.index import WorktreeStatus

        try:
            seconds = self.settings_reader.read_limits().within_budget().timeout
            self._status = WorktreeStatus.read(self.repository, seconds)
        except GitError:
            self._status = None  # such as a filter that fails; the capture gives the reason
        return self._status

    def _last_captured(self) -> Checkpoint | None:
        from gitckpt.store.snapshot import last_capture

        last = last_capture.load(self.repository)
        try:
            return self.read_own(last[0]) if last is not None else None
        except CkptError:  # removed, replaced by a fetch, or damaged
            return None

    def _is_same(self, checkpoint: Checkpoint, files: Worktree) -> bool:
        """Return whether a checkpoint has the HEAD and the files that were just captured."""
        old = checkpoint.worktree
        head = draft.read_head(self.repository, self.objects)
        if old is None or old.degraded or files.degraded:
            return False
        if (checkpoint.git_sha, checkpoint.branch) != head or old.tree != files.tree:
            return False
        if not old.submodules and not files.submodules:
            return True
        from gitckpt.store import submodules

        return len(old.submodules) == len(
            files.submodules
        ) and not submodules.have_submodules_changed(self, old, files)

    def _captured_parts(self, commit: str, files: str) -> Collection[str] | None:
        captured_pair, parts = self._parts
        return parts if captured_pair == (commit, files) else None

    def read(self, checkpoint_id: str) -> Checkpoint:
        document = self.read_document_bytes(checkpoint_id)
        return codec.decode(document, ref_names.CHECKPOINTS + checkpoint_id)

    def is_replaced(self, checkpoint_id: str) -> bool:
        """Return whether a fetch changed the ref of a checkpoint written in this clone."""
        if not ids.is_checkpoint_id(checkpoint_id):
            return False
        oid = self.refs.read_ref(ref_names.CHECKPOINTS + checkpoint_id)
        local_entries = local_checkpoints.LocalCheckpoints.read(self.repository, [checkpoint_id])
        return oid is not None and local_entries.is_replaced(checkpoint_id, oid)

    def read_own(self, checkpoint_id: str) -> Checkpoint:
        if self.is_replaced(checkpoint_id):
            raise local_checkpoints.replaced_error(checkpoint_id)
        return self.read(checkpoint_id)

    def read_document_bytes(self, checkpoint_id: str) -> bytes:
        require_text("id", checkpoint_id)
        ref = ref_names.CHECKPOINTS + checkpoint_id
        ids.require_checkpoint_id(checkpoint_id)
        oid = self.refs.read_ref(ref)
        if oid is None:
            hint = "list the checkpoints: git ckpt list"
            raise NotFoundError(f"no checkpoint {checkpoint_id!r}", hint=hint)
        document = next(self.objects.read([oid]))
        return ref_names.require_document(document, ref, oid)

    @cached_property
    def addresses(self) -> Addresses:
        from gitckpt.store.records.addresses import Addresses

        def run_of(key: str) -> str | None:
            return self.claim_of_key(key).existing_run()

        return Addresses(
            self.repository,
            self.index,
            linked=self.find_linked,
            find_tagged=self.labels.find_tagged,
            run_of=run_of,
            clock=self.clock,
            on_revision=self._on_revision,
        )

    @cached_property
    def labels(self) -> LabelRefs:
        from gitckpt.store.records.labels import LabelRefs

        return LabelRefs(self.repository, self.objects, self.refs)

    def find_id(self, text: str) -> str:
        checkpoint_id = self.addresses.find_checkpoint(text)
        self.warn_if_replaced(checkpoint_id)
        return checkpoint_id

    def warn_if_replaced(self, checkpoint_id: str) -> None:
        if self.is_replaced(checkpoint_id):
            error = local_checkpoints.replaced_error(checkpoint_id)
            self._listener.tell(f"{error.message}; to {error.hint}")

    def list(self, query: Query | None = None) -> Sequence[CheckpointInfo]:
        return self.index.select(query)

    def list_rewritten(self) -> Sequence[CheckpointInfo]:
        from gitckpt.git.worktree import operation

        commits = operation.read_filter_repo_map(self.repository)
        return [entry for entry in self.list() if entry.git_sha in commits] if commits else []

    def list_problems(self) -> Sequence[Problem]:
        return self.index.list_problems()

    def find_linked(self, commit: str) -> Sequence[CheckpointInfo]:
        from gitckpt.store.records import finder

        return finder.find_linked(commit, self.repository, self.objects, self.index)

    def find_lease_guard(self, run: str | None) -> LeaseGuard | None:
        return self.leases.bind_writes_to_token(run) if run is not None else None

    def write_links(self, instant: int | None = None) -> bool:
        instant = self.clock() if instant is None else instant
        with ref_names.write_lock(self.repository):
            return notes.write_link_notes(self.repository, self.objects, self.refs, instant)

    def write_due_links(self, instant: int | None = None, *, at_once: bool = False) -> bool:
        instant = self.clock() if instant is None else instant
        try:
            is_due = at_once or notes.is_write_due(self.repository, instant)
            return is_due and self.write_links(instant)
        except CkptError as error:
            # A disk without room for the notes may have none for the log.
            with contextlib.suppress(CkptError):
                error_log.append_to_log(self.repository, f"notes were not written: {error.message}")
            return False

    def queue_links(self, entries: Sequence[CheckpointInfo]) -> None:
        notes.queue_links(self.repository, ref_names.make_link_lines(entries))

    def claim_of_key(self, key: str) -> KeyClaim:
        from gitckpt.store.records.keys import KeyClaim

        object_format = self.repository.object_format
        return KeyClaim(key, self.refs, self.objects, object_format, self.heads.run_exists)

    def remove(
        self,
        checkpoint_ids: Collection[str],
        *,
        runs: Collection[str] | None = None,
        listed: Mapping[str, CheckpointInfo] | None = None,
        last: Collection[str] = (),
        settled: bool = True,
    ) -> int:
        from gitckpt.store import submodules

        valid_ids = as_strings("checkpoint_ids", checkpoint_ids)
        with submodules.remove_from_submodules_after(self, valid_ids, listed):
            remove = self.make_remover().remove_checkpoints
            count = remove(valid_ids, runs=runs, listed=listed, last=last, settled=settled)
        self._has_removed = True
        return count

    def make_remover(self) -> CheckpointRemover:
        from gitckpt.store.records.remover import CheckpointRemover

        return CheckpointRemover(self.repository, self.objects, self.refs, self.index, self.labels)

    def _clear_stale_lock(self, lock: str) -> bool:
        from gitckpt.store.records import heads  # locks are seldom in the way

        return heads.clear_stale_locks(self.repository, self.announce, lock)

    def announce(self, sentence: str) -> None:
        error_log.append_to_log(self.repository, sentence)
        self._listener.tell(sentence)
