"""Import files of other tools: each file becomes a checkpoint of a run.

The original bytes are stored as well. After a kill, the same call completes the import. Index,
HEAD and worktree do not change.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from gitckpt.durable.steps import graph_file
from gitckpt.formats import conversion, files
from gitckpt.formats.conversion import CheckpointDraft, ParsedFile
from gitckpt.formats.systems import content, detection, forge, quasar, rlm_act, superpowers
from gitckpt.formats.systems.content import BadFormat, FileRecord, SourceFile
from gitckpt.git.lock import FileLock
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, RefUpdate
from gitckpt.model import ids, times
from gitckpt.model.arguments import as_paths, quote_path, require_callable, require_text
from gitckpt.model.checkpoint import IMPORT, Checkpoint, Imported
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError, StateError, UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import draft, keys, ref_names
from gitckpt.store.records.keys import KeyClaim
from gitckpt.store.records.recorder import CheckpointRecorder, Proposal
from gitckpt.store.snapshot import limits
from gitckpt.store.store import Store, checkpoints_of_store

# Find earlier imports by the bytes of a file, and the run by its key.


def trigger_of(format_: str) -> str:
    return IMPORT + format_


def stored_path(path: str) -> str:
    return quote_path(os.fsencode(path))  # a document holds only UTF-8


class KnownImports:
    def __init__(self, store: Checkpoints) -> None:
        self._store = store
        self._by_original: defaultdict[str, list[str]] = defaultdict(list)
        for ref, oid in store.refs.iterate_refs(ref_names.ORIGINALS):
            self.add_import(oid, ref.removeprefix(ref_names.ORIGINALS))

    # `original` is the oid of the file's bytes.
    def find_import(self, record: FileRecord, path: str, original: str) -> Checkpoint | None:
        for name in self._by_original.get(original, ()):
            try:
                checkpoint = self._store.read(name)
            except (NotFoundError, InvalidCheckpoint):
                continue  # the import was killed, or the checkpoint was removed
            imported = checkpoint.imported
            if imported is None or checkpoint.trigger != trigger_of(record.format):
                continue
            if not record.by_path or imported.path == stored_path(path):
                return checkpoint
        return None

    def add_import(self, original: str, checkpoint_id: str) -> None:
        self._by_original[original].append(checkpoint_id)

    def delete_leftover_refs(self, checkpoint_id: str) -> None:
        require_no_checkpoint = RefUpdate(ref_names.CHECKPOINTS + checkpoint_id, "", "")
        for ref_prefix in ref_names.OBJECTS:
            oid = self._store.refs.read_ref(ref_prefix + checkpoint_id)
            try:
                if oid is not None:
                    update = RefUpdate(ref_prefix + checkpoint_id, "", oid)
                    self._store.refs.apply_updates([require_no_checkpoint, update])
            except RefMoved:
                return  # a concurrent import has changed it

    def claim_run_key(self, record: FileRecord) -> KeyClaim:
        key = f"{trigger_of(record.format)}:{record.identity}"
        if len(key) > keys.MAX_LENGTH or not key.isprintable():
            digest = hashlib.sha256(os.fsencode(record.identity)).hexdigest()
            key = f"{trigger_of(record.format)}:{digest}"
        return self._store.claim_of_key(key)


# Import files.

IMPORTED, KNOWN, REFUSED, FAILED, SKIPPED = "imported", "known", "refused", "failed", "skipped"
_LOCK_SECONDS = 120.0  # then go on without the lock: refs still prevent duplicate ids
_BATCH = 20  # files per transaction: other writers wait for the locks of a transaction


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The result of importing one file: its status and, if imported, its checkpoint."""

    path: str  # relative to the top of the worktree if inside it
    # "imported"; "known": imported before; "refused": its run has continued here since the import;
    # "failed": unreadable, or of unknown format though named; "skipped": of unknown format.
    status: str
    format: str | None = None  # None: unknown
    run: str | None = None
    checkpoint: str | None = None  # id; None: no checkpoint
    label: str | None = None  # of the checkpoint
    timestamp: str | None = None  # of the checkpoint
    remarks: tuple[str, ...] = ()  # a clause for each thing that was repaired or not understood
    problem: str | None = None  # why the file was refused, or cannot be read


class Importer:
    """Imports files into a store's repository; refuses arguments by `UsageError`.

    Args:
        format: one of `detection.NAMES`; by default, the content of each file decides.
        phases: a phase that files of old quasar versions lack: "linting", "filtering" or "".
        history: whether to import each version of a superpowers file in git's history.
        fork: whether a file becomes a second run if the run of its first import has gone on.
    """

    def __init__(
        self,
        store: Store,
        *,
        format: str | None = None,  # noqa: A002 - the word for it
        phases: str = "",
        history: bool = False,
        fork: bool = False,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        require_text("format", format, may_be_none=True)
        require_text("phases", phases)
        require_callable("progress", progress)
        if format is not None:
            detection.require_known_format(format)
        if phases not in quasar.TABLES:
            hint = "give linting or filtering"
            raise UsageError(f"quasar files cannot lack the phase {phases!r}", hint=hint)
        self._store = checkpoints_of_store(store)
        self._format, self._phases, self._progress = format, phases, progress
        self._history, self._fork, self._dry_run = history, fork, dry_run
        self._planned: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._top = self._store.repository.worktree
        self.left: list[str] = []  # files that were not read, as a snapshot would not capture them
        self._recorder = CheckpointRecorder(
            self._store.repository, self._store.objects, self._store.refs
        )

    def take(self, paths: Sequence[str | os.PathLike[str]]) -> list[ImportedFile]:
        """Import the files that `paths` name, and those below its directories.

        Returns:
            The result of each named or recognized file; the files of a run are in their order.

        Raises:
            NotFoundError: a path does not exist; nothing was imported.
            CkptError: a checkpoint could not be recorded; the earlier ones were.
        """
        path_names = [os.fsdecode(path) for path in as_paths(paths)]
        # Without the lock, two concurrent imports could record the same files twice.
        lock: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if not self._dry_run:
            private_dir = self._store.repository.make_private_dir()
            lock = FileLock(os.path.join(private_dir, "import.lock"), _LOCK_SECONDS)
        with lock:
            self._known = KnownImports(self._store)
            return self._import_files(path_names)

    def _import_files(self, paths: list[str]) -> list[ImportedFile]:
        results: list[ImportedFile] = []
        parsed_files: list[tuple[FileRecord, SourceFile]] = []
        for file in files.find_files(paths, self._top, self._list_capturable_files, self.left):
            try:
                source = files.read_file(file)
                records = self._parse_file(source, file.full_path)
                if not records and file.is_expected:
                    self._require_skippable(source, is_named=file.is_named)
                    problem = "the format is unknown"
                    results.append(ImportedFile(file.path, SKIPPED, problem=problem))
                parsed_files += records
            except BadFormat as error:
                if file.is_expected:
                    failed_file = ImportedFile(file.path, FAILED, self._format, problem=str(error))
                    results.append(failed_file)
        files_by_run: defaultdict[tuple[str, str], list[ParsedFile]] = defaultdict(list)
        for found_file in self._add_times(parsed_files):
            files_by_run[found_file.record.format, found_file.record.identity].append(found_file)
        count = 0
        try:
            for run_files in files_by_run.values():
                self._progress(f"importing {count + len(run_files)} of {len(parsed_files)} files")
                run_files.sort(
                    key=lambda file: (file.time.instant, file.record.sort_key, file.source.path)
                )
                results += self._import_run(run_files)
                count += len(run_files)
        finally:
            if count and not self._dry_run:
                self._store.write_due_links()
        return results

    def _require_skippable(self, source: SourceFile, *, is_named: bool) -> None:
        """Raise `BadFormat` if a file of unknown format must not be skipped."""
        detection.require_complete_file(source)
        format_ = detection.format_by_path(source.path)
        if format_ is not None and not detection.may_be_of_other_tool(source, format_):
            self._parse_record(format_, source)
        if is_named:
            raise BadFormat("unknown format; to see what a format lacks, name it: --format NAME")

    def _parse_file(self, source: SourceFile, place: str) -> list[tuple[FileRecord, SourceFile]]:
        format_ = self._format or detection.detect_format(source)
        if format_ is None:
            return []
        remark = None
        if format_ in (content.FORGE, content.SUPERPOWERS):
            source, remark = files.add_neighboring_plan(source, place, self._reason_to_skip)
        record = self._parse_record(format_, source)
        if remark:
            record = replace(record, remarks=(*record.remarks, remark))
        records = [(record, source)]
        if self._history and format_ == content.SUPERPOWERS:
            versions: list[tuple[FileRecord, SourceFile]] = []
            for commit, time, data in conversion.read_versions(self._store.repository, source.path):
                older_source = replace(source, data=data)
                try:
                    record = self._parse_record(format_, older_source)
                    record = replace(record, commit=commit, time=time, is_local=False)
                    versions.append((record, older_source))
                except BadFormat as error:
                    self._progress(f"{source.path} of commit {commit[:10]}: {error}")
            is_committed = versions and versions[-1][1].data == source.data
            records = versions if is_committed else versions + records
        return records

    def _reason_to_skip(self, path: str) -> str | None:
        return limits.reason_not_captured(self._store.repository, self._limits, path)

    def _list_capturable_files(self, directory: str) -> set[str] | None:
        if self._top is None:
            return None
        return limits.captured_below(self._store.repository, self._limits, directory)

    @cached_property
    def _limits(self) -> limits.Limits:
        return self._store.settings_reader.read_limits()

    def _parse_record(self, format_: str, source: SourceFile) -> FileRecord:
        is_quasar = format_ == self._format == content.QUASAR
        if is_quasar and detection.is_nebula_state(source):
            format_ = content.NEBULA
        if format_ == content.QUASAR:
            return quasar.read_review(source, self._phases)
        if format_ == content.SUPERPOWERS:
            return superpowers.read_track(source, graph_file.read_preset_graph())
        return _READERS[format_](source)

    def _add_times(self, parsed_files: Iterable[tuple[FileRecord, SourceFile]]) -> list[ParsedFile]:
        records = list(parsed_files)
        oids = {record.commit for record, _ in records if ids.is_oid(record.commit)}
        commits = conversion.read_commit_times(self._store.repository, oids)
        import_time, items = self._store.clock(), []
        for record, source in records:
            time = conversion.determine_time(record, commits.get(record.commit), import_time)
            original = object_id("blob", source.data, self._store.repository.object_format)
            commit = record.commit if record.commit in commits else ""
            items.append(ParsedFile(record, source, time, commit, original))
        return items

    def _import_run(self, items: list[ParsedFile]) -> list[ImportedFile]:
        results: list[ImportedFile] = []
        new_items: list[ParsedFile] = []
        originals: set[str] = set()
        for item in items:
            earlier_import = self._known.find_import(item.record, item.source.path, item.original)
            if earlier_import is not None:
                results.append(_make_result(item, KNOWN, earlier_import.run, earlier_import))
            elif item.original in originals:
                results.append(_make_result(item, KNOWN))  # another new file has the same bytes
            else:
                new_items.append(item)
                originals.add(item.original)
        if not new_items:
            # A kill may have left the heads of these runs behind.
            runs = {result.run for result in results if result.run and not self._dry_run}
            for name in runs:
                self._store.heads.move_head_up(name)
            return results
        run = self._known.claim_run_key(new_items[0].record).existing_run()
        newest = self._store.heads.move_head_up_and_read(run) if run is not None else None
        if newest is not None and newest.trigger != trigger_of(new_items[0].record.format):
            if not self._fork:
                problem = f"run {run} has continued here; import the file as another run: --fork"
                refused_files = [_make_result(item, REFUSED, run) for item in new_items]
                return results + [replace(result, problem=problem) for result in refused_files]
            run = newest = None
        if not self._dry_run:
            self._store.objects.write([("blob", item.source.data) for item in new_items])
        batch_size = 1 if self._dry_run else _BATCH
        while new_items:
            drafts: list[CheckpointDraft] = []
            try:
                drafts = self._draft_batch(new_items[:batch_size], newest)
                checkpoints = self._record_drafts(drafts, newest)
            except (StateError, UsageError) as error:
                if len(drafts) > 1:
                    batch_size = 1  # find the file that failed
                    continue
                failed_file = _make_result(new_items.pop(0), FAILED, run)
                results.append(replace(failed_file, problem=error.message))
                continue
            newest = checkpoints[-1]
            items = [draft_.item for draft_ in drafts]
            results += map(self._make_imported_result, items, checkpoints)
            del new_items[: len(checkpoints)]
        return results

    def _make_imported_result(self, item: ParsedFile, checkpoint: Checkpoint) -> ImportedFile:
        result = _make_result(item, IMPORTED, checkpoint.run, checkpoint)
        # A real import generates another id.
        has_random_id = self._dry_run and checkpoint.id != item.record.id
        return replace(result, checkpoint=None) if has_random_id else result

    def _draft_batch(
        self, items: Sequence[ParsedFile], newest: Checkpoint | None
    ) -> list[CheckpointDraft]:
        drafts = [self._make_draft(items[0], newest)]
        for item in items[1:]:
            try:
                next_draft = self._make_draft(item, drafts[-1].checkpoint)
            except (StateError, UsageError):
                break  # reported in the next group, as its first file
            if not all(next_draft.can_share_transaction(draft_) for draft_ in drafts):
                break
            drafts.append(next_draft)
        return drafts

    def _make_draft(self, item: ParsedFile, newest: Checkpoint | None) -> CheckpointDraft:
        record, store = item.record, self._store
        checkpoint_id = record.id
        if checkpoint_id is not None:
            if store.refs.read_ref(ref_names.CHECKPOINTS + checkpoint_id) is not None:
                checkpoint_id = None  # an earlier version of the file was imported
            elif not self._dry_run:
                self._known.delete_leftover_refs(checkpoint_id)
        checkpoint_id = checkpoint_id or store.new_id()
        commit, branch, worktree = conversion.capture_worktree(store, item, dry_run=self._dry_run)
        pipeline_options: Any = {"reason": self._reason_to_skip, "dry_run": self._dry_run}
        captured = commit, worktree
        pipeline, worktree = conversion.make_pipeline(
            store, item, checkpoint_id, newest, captured, **pipeline_options
        )
        path, untrusted = stored_path(item.source.path), None if item.time.is_trusted else True
        imported = Imported(path, item.original, times.to_text(store.clock()), untrusted)
        details: draft.CheckpointDetails = {"trigger": trigger_of(record.format)}
        details |= {"errors": record.errors, "pipeline": pipeline}
        checkpoint, fields, state = draft.make_checkpoint(
            conversion.make_valid_label(record.phase),
            conversion.make_checkpoint_state(item),
            details,
            head=(commit, branch),
            worktree=worktree,
            checkpoint_id=checkpoint_id,
            instant=item.time.instant,
        )
        import_table: dict[str, Any] = {"path": imported.path, "original": imported.original}
        import_table |= {"at": imported.at, **({"untrusted": True} if imported.untrusted else {})}
        fields = {**fields, "imported": import_table}
        return CheckpointDraft(item, replace(checkpoint, imported=imported), fields, state)

    def _record_drafts(
        self, drafts: Sequence[CheckpointDraft], newest: Checkpoint | None
    ) -> list[Checkpoint]:
        first = drafts[0]
        run = newest.run if newest is not None else None
        claim = None
        if run is None:
            run = self._find_unused_run_id(first.item)
            if self._dry_run:
                self._planned.add(run)
            else:
                claim = self._known.claim_run_key(first.item.record)
                claim = None if self._fork and claim.existing_run() is not None else claim
        if self._dry_run:
            return [replace(first.checkpoint, run=run)]
        for one in drafts:
            one.fields["run"] = run
        options: Any = {"starts_run": newest is None, "claim": claim, "is_apart": True}
        proposal = Proposal(first.fields, first.state, is_ours=first.needs_no_trust, **options)
        later_proposals = [
            Proposal(one.fields, one.state, is_ours=one.needs_no_trust, is_apart=True)
            for one in drafts[1:]
        ]
        self._recorder.record_proposals(proposal, then=later_proposals)
        for one in drafts:
            self._known.add_import(one.item.original, one.checkpoint.id)
        return [draft.complete_checkpoint(one.checkpoint, one.fields, one.state) for one in drafts]

    def _find_unused_run_id(self, item: ParsedFile) -> str:
        start_stamp = times.to_run_id_stamp(item.time.started)
        run_id = item.record.run or ids.make_run_id(start_stamp, item.record.name[:1000])
        if self._is_unused_run_id(run_id):
            return run_id
        run_id = run_id[:180].rstrip("-")  # leave room for a number
        attempt = self._attempts.get(run_id, 2)
        while not self._is_unused_run_id(f"{run_id}-{attempt}"):
            attempt += 1
        self._attempts[run_id] = attempt
        return f"{run_id}-{attempt}"

    def _is_unused_run_id(self, run: str) -> bool:
        return run not in self._planned and self._store.refs.read_ref(ref_names.RUNS + run) is None


_READERS: dict[str, Callable[[SourceFile], FileRecord]] = {
    content.RLM_ACT: rlm_act.read_checkpoint,
    content.WORKFLOW: rlm_act.read_workflow,
    content.FORGE: forge.read_run,
    content.NEBULA: quasar.read_nebula,
}


def _make_result(
    item: ParsedFile, status: str, run: str | None = None, checkpoint: Checkpoint | None = None
) -> ImportedFile:
    record = item.record
    all_remarks = [*record.remarks, *filter(None, [item.time.remark])]
    if record.commit and not item.commit:
        all_remarks.append(f"names the commit {record.commit[:10]:.60}, which is missing here")
    if not item.time.is_trusted and item.time.remark is None:
        all_remarks.append("has a timestamp that no commit confirms")
    if record.continuation and checkpoint is not None and checkpoint.pipeline is not None:
        all_remarks += [f"names {path!r:.120}, which {why}" for path, why in item.unread.items()]
    remarks = tuple(all_remarks) if status == IMPORTED else ()
    result = ImportedFile(item.source.path, status, record.format, run, remarks=remarks)
    if checkpoint is None:
        return result
    fields: Any = {"label": checkpoint.label, "timestamp": checkpoint.timestamp}
    return replace(result, checkpoint=checkpoint.id, **fields)
