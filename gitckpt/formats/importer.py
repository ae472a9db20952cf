"""Import files of other tools: a file becomes a checkpoint, a piece of work a run.

The original bytes are kept. An import that was killed is completed by the same call. Index, HEAD
and worktree do not change.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import count

from gitckpt.durable.steps import graph_file
from gitckpt.formats import conversion, files
from gitckpt.formats.conversion import Drafted, FoundFile
from gitckpt.formats.systems import detection, forge, quasar, rlm_act, superpowers
from gitckpt.formats.systems.content import FORGE, NEBULA, QUASAR, RLM_ACT, SUPERPOWERS, WORKFLOW, Record, Source, Unreadable
from gitckpt.git.lock import Lock
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, Update
from gitckpt.model import ids, times
from gitckpt.model.arguments import paths_of, quoted, require_callable, require_text
from gitckpt.model.checkpoint import IMPORT, Checkpoint, Imported
from gitckpt.model.errors import InvalidCheckpoint, NotFoundError, StateError, UsageError
from gitckpt.model.values import dataclass, replace
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import draft, keys, layout
from gitckpt.store.records.recorder import Proposal, Recorder
from gitckpt.store.snapshot import limits
from gitckpt.store.store import Store, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.records.keys import Claim
    from gitckpt.store.snapshot.limits import Limits

# Earlier imports, by the bytes of a file and by the key of a run.


def trigger(format_: str) -> str:
    return IMPORT + format_


def shown(path: str) -> str:
    """Return a path as a checkpoint stores it: a document holds only UTF-8."""
    return quoted(os.fsencode(path))


class KnownImports:
    def __init__(self, store: Checkpoints) -> None:
        self._store = store
        self._by_original: dict[str, list[str]] = {}
        for ref, oid in store.refs.each(layout.ORIGINALS):
            self._by_original.setdefault(oid, []).append(ref.removeprefix(layout.ORIGINALS))

    # `original` is the oid of the file's bytes.
    def of_bytes(self, record: Record, path: str, original: str) -> Checkpoint | None:
        for name in self._by_original.get(original, ()):
            try:
                found = self._store.read(name)
            except (NotFoundError, InvalidCheckpoint):
                continue  # a kill left only the bytes, or the checkpoint was removed
            is_same = found.trigger == trigger(record.format) and found.imported is not None
            if is_same and (not record.by_path or (found.imported is not None and found.imported.path == shown(path))):
                return found
        return None

    def note(self, original: str, checkpoint_id: str) -> None:
        self._by_original.setdefault(original, []).append(checkpoint_id)

    def clear(self, checkpoint_id: str) -> None:
        """Delete the bytes left by an import that was killed before it had a checkpoint."""
        for space in layout.HOLDERS:
            oid = self._store.refs.read(space + checkpoint_id)
            if oid is not None:
                try:
                    self._store.refs.update([Update(layout.CHECKPOINTS + checkpoint_id, "", ""), Update(space + checkpoint_id, "", oid)])
                except RefMoved:
                    return  # a concurrent import has changed it

    def claim(self, record: Record) -> Claim:
        key = f"{trigger(record.format)}:{record.identity}"
        if len(key) > keys.MAX_LENGTH or not key.isprintable():
            import hashlib

            key = f"{trigger(record.format)}:{hashlib.sha256(os.fsencode(record.identity)).hexdigest()}"
        return self._store.claim(key)

    def run(self, record: Record) -> str | None:
        return self.claim(record).run()


# The import.

IMPORTED, KNOWN, REFUSED, FAILED, SKIPPED = "imported", "known", "refused", "failed", "skipped"

# In seconds. Without the lock, only the refs prevent that one id is recorded twice.
_LOCK, _PATIENCE = "import.lock", 120.0

# Files per transaction: each has locks for which others may wait.
_TOGETHER = 20

# In characters. Only so much of a run's name is used for its id.
_NAME = 1000

# In characters. A longer id has no room for a number.
_LONGEST_RUN = 180


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The result of importing one file."""

    path: str  # relative to the top of the worktree if inside it
    # "imported"; "known": imported before; "refused": its run has continued here since;
    # "failed": unreadable, or named and of no known format; "skipped": only its name is a tool's.
    status: str
    format: str | None = None  # None: unknown
    run: str | None = None
    checkpoint: str | None = None  # its id, if any
    label: str | None = None  # of the checkpoint
    timestamp: str | None = None  # of the checkpoint
    remarks: tuple[str, ...] = ()  # what was repaired, or kept but not understood, a clause each
    problem: str | None = None  # why it was refused or cannot be read


class Importer:
    """Imports files into the repository of a store.

    Args:
        format: one of `detection.NAMES`; by default the content decides.
        phases: "linting" or "filtering" for quasar files from before that phase existed, else "".
        history: import every version of a superpowers file in git's history.
        fork: import a file whose run has continued here as a second run.
        dry_run: report only.
        progress: gets short messages.

    Raises:
        UsageError: the format or phase is unknown.
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
        if format is not None and format not in detection.NAMES:
            raise UsageError(f"there is no format {format!r}", hint=f"it is one of {', '.join(detection.NAMES)}")
        if phases not in quasar.TABLES:
            raise UsageError(f"{phases!r} is no phase that quasar once lacked", hint="it is linting or filtering")
        self._store = inside(store)
        self._format = format
        self._phases = phases
        self._history = history
        self._fork = fork
        self._dry_run = dry_run
        self._progress = progress
        self._planned: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._top = self._store.repository.worktree
        # Files that were not read, since a snapshot would leave them out.
        self.left: list[str] = []
        self._recorder = Recorder(self._store.repository, self._store.objects, self._store.refs)

    def take(self, paths: Sequence[str | os.PathLike[str]]) -> list[ImportedFile]:
        """Import files and those below directories.

        Returns:
            The result of each named or recognized file; files of a run in their order.

        Raises:
            NotFoundError: a path does not exist; nothing was imported.
            CkptError: a checkpoint could not be recorded; earlier ones are.
        """
        names = [os.fsdecode(path) for path in paths_of(paths)]
        with self._alone():
            self._known = KnownImports(self._store)
            return self._import(names)

    def _alone(self) -> contextlib.AbstractContextManager[object]:
        # Two concurrent imports would both record files that neither knows yet.
        if self._dry_run:
            return contextlib.nullcontext()
        return Lock(os.path.join(self._store.repository.make_private_dir(), _LOCK), _PATIENCE)

    def _import(self, paths: list[str]) -> list[ImportedFile]:
        outcomes: list[ImportedFile] = []
        read: list[tuple[Record, Source]] = []
        for found in files.search(paths, self._top, self._captured, self.left):
            try:
                source = files.read(found)
                made = self._read(source, found.place)
                if not made and found.is_meant:
                    self._require_unknown(source, is_named=found.is_named)
            except Unreadable as error:
                if found.is_meant:
                    outcomes.append(ImportedFile(found.path, FAILED, self._format, problem=str(error)))
                continue
            if made:
                read += made
            elif found.is_meant:
                outcomes.append(ImportedFile(found.path, SKIPPED, problem="it is of none of the formats"))
        runs: dict[tuple[str, str], list[FoundFile]] = {}
        for item in self._items(read):
            runs.setdefault((item.record.format, item.record.identity), []).append(item)
        done = 0
        try:
            for items in runs.values():
                self._progress(f"importing {done + len(items)} of {len(read)} files")
                items.sort(key=lambda item: (item.time.instant, item.record.place, item.source.path))
                outcomes += self._run(items)
                done += len(items)
        finally:
            if done and not self._dry_run:
                self._store.write_due_links()
        return outcomes

    def _require_unknown(self, source: Source, *, is_named: bool) -> None:
        """Raise `Unreadable` with what a file lacks, unless it may belong to no tool."""
        detection.require_whole(source)
        format_ = detection.format_by_place(source.path)
        if format_ is not None and not detection.may_be_anybodys(source, format_):
            self._record(format_, source)
        if is_named:
            raise Unreadable("it is of none of the formats; with --format NAME, what it lacks is said")

    def _read(self, source: Source, place: str) -> list[tuple[Record, Source]]:
        format_ = self._format or detection.format_of(source)
        if format_ is None:
            return []
        remark = None
        if format_ in (FORGE, SUPERPOWERS):
            source, remark = files.beside(source, place, self._reason)
        record = self._record(format_, source)
        made = [(replace(record, remarks=(*record.remarks, remark)) if remark else record, source)]
        if self._history and format_ == SUPERPOWERS:
            versions = []
            for version in conversion.versions(self._store.repository, source.path):
                older = replace(source, data=version.data)
                try:
                    record = self._record(format_, older)
                except Unreadable as error:
                    self._progress(f"{source.path} of commit {version.commit[:10]}: {error}")
                    continue
                versions.append((replace(record, commit=version.commit, time=version.time, is_local=False), older))
            if versions and versions[-1][1].data == source.data:
                made = []
            made = [*versions, *made]
        return made

    def _reason(self, path: str) -> str | None:
        return limits.reason_to_leave(self._store.repository, self._limits, path)

    def _captured(self, directory: str) -> set[str] | None:
        """Return the files below a directory that a snapshot captures; None to search all."""
        if self._top is None:
            return None
        return limits.below(self._store.repository, self._limits, directory)

    @cached_property
    def _limits(self) -> Limits:
        return self._store.rules.limits()

    def _record(self, format_: str, source: Source) -> Record:
        if format_ == QUASAR and self._format == QUASAR and detection.is_state_of_nebula(source):
            format_ = NEBULA
        if format_ == QUASAR:
            return quasar.read(source, self._phases)
        if format_ == SUPERPOWERS:
            return superpowers.read(source, graph_file.preset())
        return _READERS[format_](source)

    def _items(self, read: Iterable[tuple[Record, Source]]) -> list[FoundFile]:
        known = list(read)
        there = conversion.commits(self._store.repository, {record.commit for record, _ in known if ids.is_oid(record.commit)})
        now, items = self._store.clock(), []
        for record, source in known:
            time = conversion.of(record, there.get(record.commit), now)
            original = object_id("blob", source.data, self._store.repository.object_format)
            items.append(FoundFile(record, source, time, record.commit if record.commit in there else "", original))
        return items

    def _run(self, items: list[FoundFile]) -> list[ImportedFile]:
        outcomes: list[ImportedFile] = []
        fresh: list[FoundFile] = []
        seen: set[str] = set()
        for item in items:
            before = self._known.of_bytes(item.record, item.source.path, item.original)
            if before is not None:
                outcomes.append(_outcome(item, KNOWN, before.run, before))
            elif item.original in seen:
                outcomes.append(_outcome(item, KNOWN))  # the same bytes at another path
            else:
                fresh.append(item)
                seen.add(item.original)
        if not fresh:
            return self._settled(outcomes)
        run = self._known.run(fresh[0].record)
        newest = self._store.heads.catch_up(run) if run is not None else None
        if newest is not None and newest.trigger != trigger(fresh[0].record.format):
            if not self._fork:
                problem = f"run {run} has gone on here since it was imported: --fork makes a second run of the file"
                return outcomes + [replace(_outcome(item, REFUSED, run), problem=problem) for item in fresh]
            run = newest = None
        if not self._dry_run:
            self._store.objects.write([("blob", item.source.data) for item in fresh])
        together = 1 if self._dry_run else _TOGETHER
        while fresh:
            group: list[Drafted] = []
            try:
                group = self._group(fresh[:together], newest)
                made = self._take(group, newest, is_second=self._fork)
            except (StateError, UsageError) as error:
                if len(group) > 1:
                    together = 1  # the others may be right
                    continue
                outcomes.append(replace(_outcome(fresh.pop(0), FAILED, run), problem=error.message))
                continue
            newest = made[-1]
            outcomes += [self._imported(each.item, checkpoint) for each, checkpoint in zip(group, made, strict=True)]
            del fresh[: len(made)]
        return outcomes

    def _imported(self, item: FoundFile, made: Checkpoint) -> ImportedFile:
        outcome = _outcome(item, IMPORTED, made.run, made)
        is_drawn = self._dry_run and made.id != item.record.id  # a real import draws another id
        return replace(outcome, checkpoint=None) if is_drawn else outcome

    def _settled(self, outcomes: list[ImportedFile]) -> list[ImportedFile]:
        """Move heads of runs that lag after a kill, and return the outcomes."""
        if not self._dry_run:
            for run in {each.run for each in outcomes if each.run is not None}:
                self._store.heads.move_up(run)
        return outcomes

    def _group(self, items: Sequence[FoundFile], newest: Checkpoint | None) -> list[Drafted]:
        """Return the first files of a run that one transaction can record."""
        group = [self._draft(items[0], newest)]
        for item in items[1:]:
            try:
                following = self._draft(item, group[-1].checkpoint)
            except (StateError, UsageError):
                break  # reported when it is the first one
            if not all(following.goes_with(each) for each in group):
                break
            group.append(following)
        return group

    def _draft(self, item: FoundFile, newest: Checkpoint | None) -> Drafted:
        record, store = item.record, self._store
        checkpoint_id = record.id
        if checkpoint_id is not None and store.refs.read(layout.CHECKPOINTS + checkpoint_id) is not None:
            checkpoint_id = None  # the file has changed since its import
        elif checkpoint_id is not None and not self._dry_run:
            self._known.clear(checkpoint_id)
        checkpoint_id = checkpoint_id or store.new_id()
        commit, branch, worktree = conversion.place(store, item, dry_run=self._dry_run)
        pipeline, worktree = conversion.pipeline(
            store, item, checkpoint_id, newest, (commit, worktree), reason=self._reason, dry_run=self._dry_run
        )
        imported = Imported(
            shown(item.source.path),
            item.original,
            times.to_text(store.clock()),
            untrusted=True if not item.time.is_trusted else None,
        )
        details: draft.Details = {"trigger": trigger(record.format), "errors": record.errors, "pipeline": pipeline}
        drafted, fields, state = draft.draft(
            conversion.label(record.phase),
            conversion.state(item),
            details,
            head=(commit, branch),
            worktree=worktree,
            checkpoint_id=checkpoint_id,
            instant=item.time.instant,
        )
        fields = {**fields, "imported": {"path": imported.path, "original": imported.original, "at": imported.at}}
        if imported.untrusted:
            fields["imported"]["untrusted"] = True
        return Drafted(item, replace(drafted, imported=imported), fields, state)

    def _take(self, group: Sequence[Drafted], newest: Checkpoint | None, *, is_second: bool) -> list[Checkpoint]:
        first = group[0]
        run = newest.run if newest is not None else None
        claim = None
        if run is None:
            run = self._free_run(first.item)
            if self._dry_run:
                self._planned.add(run)
            elif not (is_second and self._known.run(first.item.record) is not None):
                claim = self._known.claim(first.item.record)
        if self._dry_run:
            return [replace(first.checkpoint, run=run)]
        for each in group:
            each.fields["run"] = run
        proposals = [Proposal(each.fields, each.state, is_ours=each.is_ours, is_apart=True) for each in group]
        if newest is None:
            proposals[0] = Proposal(first.fields, first.state, starts_run=True, claim=claim, is_ours=first.is_ours, is_apart=True)
        self._recorder.record(proposals[0], then=proposals[1:])
        for each in group:
            self._known.note(each.item.original, each.checkpoint.id)
        return [draft.recorded(each.checkpoint, each.fields, each.state) for each in group]

    def _free_run(self, item: FoundFile) -> str:
        base = item.record.run or ids.run_id(times.to_stamp(item.time.started), item.record.name[:_NAME])
        if self._is_free(base):
            return base
        base = base[:_LONGEST_RUN].rstrip("-")
        for attempt in count(self._attempts.get(base, 2)):
            self._attempts[base] = attempt
            if self._is_free(f"{base}-{attempt}"):
                break
        return f"{base}-{attempt}"

    def _is_free(self, run: str) -> bool:
        return run not in self._planned and self._store.refs.read(layout.RUNS + run) is None


_READERS: dict[str, Callable[[Source], Record]] = {
    RLM_ACT: rlm_act.read,
    WORKFLOW: rlm_act.read_workflow,
    FORGE: forge.read,
    NEBULA: quasar.read_nebula,
}


def _outcome(item: FoundFile, status: str, run: str | None = None, made: Checkpoint | None = None) -> ImportedFile:
    said = [*item.record.remarks, *([item.time.remark] if item.time.remark is not None else [])]
    if item.record.commit and not item.commit:
        said.append(f"names the commit {item.record.commit[:10]:.60}, which is not here: it is kept as text")
    if not item.time.is_trusted and item.time.remark is None:
        said.append("has a time that no commit confirms")
    if item.record.drive is not None and made is not None and made.pipeline is not None:
        said += [f"names {path!r:.120}, which {why}" for path, why in item.unread.items()]
    remarks = tuple(said) if status == IMPORTED else ()
    plain = ImportedFile(item.source.path, status, item.record.format, run, remarks=remarks)
    return plain if made is None else replace(plain, checkpoint=made.id, label=made.label, timestamp=made.timestamp)
