"""Convert a file of another tool to the fields of a checkpoint."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Collection
from typing import Any

from gitckpt.durable.driver.driver import OPTIONS
from gitckpt.durable.pipeline import definition as pipelines
from gitckpt.formats import files
from gitckpt.formats.systems import content
from gitckpt.formats.systems.content import KEY, BadFormat, FileRecord, SourceFile
from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration
from gitckpt.model import times
from gitckpt.model.checkpoint import CLEAN, Checkpoint, Pipeline, Worktree
from gitckpt.model.phase import split_label
from gitckpt.model.values import dataclass, field
from gitckpt.store import secrets
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.runs import run_files

# Find when a file was written, by the timestamp and the commit in the file.

_COMMITTER = re.compile(rb"^committer .*> (-?\d{1,15}) ([+-])(\d\d)(\d\d)$", re.MULTILINE)
_SECOND = 1_000_000
_LAST = 253_402_300_799 * _SECOND


@dataclass(frozen=True, slots=True)
class CommitTime:
    """When a commit was made: its time and its offset from UTC, in microseconds."""

    time: int  # since the epoch
    offset: int  # from UTC


@dataclass(frozen=True, slots=True)
class FileTime:
    """When a file was written, and when its run began, in microseconds."""

    instant: int
    started: int  # when its run began
    is_trusted: bool  # whether the commit, or a UTC offset, confirms the time
    remark: str | None = None  # a clause on how the time was repaired; None if it was not


def read_commit_times(repository: Repository, oids: Collection[str]) -> dict[str, CommitTime]:
    sorted_oids = sorted(set(oids))
    by_oid = {}
    for oid, entry in zip(sorted_oids, repository.cat_file.read_contents(sorted_oids), strict=True):
        # With SHA-256, git takes 40 digits as an abbreviation.
        if entry is None or entry[:2] != (oid, "commit"):
            continue
        if committer := _COMMITTER.search(entry[2].partition(b"\n\n")[0]):
            seconds, sign, hours, minutes = committer.groups()
            offset = (int(hours) * 60 + int(minutes)) * 60 * _SECOND
            by_oid[oid] = CommitTime(int(seconds) * _SECOND, -offset if sign == b"-" else offset)
    return by_oid


def determine_time(record: FileRecord, commit: CommitTime | None, import_time: int) -> FileTime:
    # rlm-act writes local time and calls it UTC. If that is before the commit that the file names,
    # the clock is taken as one of the committer's zone (true of 42 of 44 public files).
    if record.time is None or not 0 < record.time <= _LAST:
        remark = "has no valid timestamp: the time of the import is used"
        return FileTime(import_time, import_time, is_trusted=False, remark=remark)
    has_start = record.started and 0 < record.started <= _LAST
    started = (record.started if has_start else None) or record.time
    if commit is None or not record.is_local or record.time >= commit.time or not commit.offset:
        return FileTime(record.time, started, is_trusted=commit is not None or not record.is_local)
    repaired_time = record.time - commit.offset
    repaired_text = times.to_text(repaired_time)
    remark = f"has the UTC time {record.timestamp}, before the commit: repaired to {repaired_text}"
    return FileTime(repaired_time, started - commit.offset, is_trusted=True, remark=remark)


# Read the versions of a file in git's history.


def read_versions(repository: Repository, path: str) -> list[tuple[str, int, bytes]]:
    """Return commit, commit time, content of each version of a file, oldest first."""
    try:
        # Not `log`: user settings can add lines to its output.
        order = ("--timestamp", "--reverse", "--topo-order")
        output = repository.git.run("rev-list", *order, "HEAD", "--", f":(top,literal){path}").out
    except GitError:
        return []  # there is no commit yet
    commit_lines = [line.split(" ") for line in output.decode("ascii").splitlines()]
    blobs = repository.cat_file.read_contents([f"{commit}:{path}" for _, commit in commit_lines])
    versions: list[tuple[str, int, bytes]] = []
    for (time, commit), blob in zip(commit_lines, blobs, strict=True):
        if blob and blob[1] == "blob" and (not versions or versions[-1][2] != blob[2]):
            versions.append((commit, int(time) * _SECOND, blob[2]))
    return versions


# Draft the checkpoint of a file.

_MAX_LABEL = 200
# Cached: an import may read a thousand files for the same pipeline.
_preset = functools.cache(functools.partial(pipelines.read_preset, known_steps=OPTIONS))


@dataclass(frozen=True, slots=True)
class ParsedFile:
    record: FileRecord
    source: SourceFile
    time: FileTime
    commit: str  # the commit named in the file; "" if it is missing in this repository
    original: str  # oid of the file's bytes as a blob
    # path of a file that the record names and that was not read → why not
    unread: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointDraft:
    item: ParsedFile
    checkpoint: Checkpoint  # without run and sequence
    fields: dict[str, Any]  # the keys of its document
    state: dict[str, Any] | None

    @property
    def needs_no_trust(self) -> bool:
        """Whether the run may continue without the user's approval (`--trust`)."""
        return self.item.record.continuation is None

    def can_share_transaction(self, previous: CheckpointDraft) -> bool:
        keys = ("git_sha", "branch", "worktree")
        return (
            all(self.fields.get(key) == previous.fields.get(key) for key in keys)
            and self.checkpoint.id != previous.checkpoint.id
            and self.item.original != previous.item.original
            and self.needs_no_trust == previous.needs_no_trust
            # After a kill, the newest recorded checkpoint is found by its time.
            and self.checkpoint.time > previous.checkpoint.time
        )


def capture_worktree(
    store: Checkpoints, item: ParsedFile, *, dry_run: bool
) -> tuple[str, str | None, Worktree | None]:
    """Return commit, branch and captured files of the worktree that a file names."""
    record, repository = item.record, store.repository
    if record.worktree is not None and not dry_run:
        linked_worktree = administration.open_linked_worktree(repository, record.worktree)
        if linked_worktree is not None:
            with store.open_store_for(linked_worktree, "plumbing") as linked_store:
                worktree = linked_store.capture_worktree()
                return *linked_store.objects.read_head(), worktree
    if not item.commit and record.branch is not None:
        branch_info = repository.cat_file.info(BRANCHES + record.branch)
        if branch_info is not None and branch_info[1] == "commit":
            return branch_info[0], record.branch, None
    return item.commit, None, None


def make_pipeline(
    store: Checkpoints,
    item: ParsedFile,
    checkpoint_id: str,
    newest: Checkpoint | None,
    captured: tuple[str, Worktree | None],
    *,
    reason: Callable[[str], str | None],
    dry_run: bool,
) -> tuple[Pipeline | None, Worktree | None]:
    """Return the pipeline of a file's run, and its captured files plus input files.

    `newest` is the run's newest checkpoint; `captured` has the commit and the captured files.
    `reason` returns why an input file must not be read, or None.
    """
    commit, worktree = captured
    continuation = item.record.continuation
    if continuation is None:
        return None, worktree
    definition = _preset(continuation.pipeline)
    project = content.to_string(item.record.state.get("project_path"))
    contents = dict(continuation.contents)
    for name, path in continuation.files.items():
        try:
            if name not in contents:
                contents[name] = files.read_input(path, store.repository.worktree, reason, project)
        except BadFormat as error:
            item.unread[path] = str(error)
    inputs = dict(definition.inputs)
    inputs |= {name: secrets.mask_text(value) for name, value in continuation.inputs.items()}
    inputs |= {name: continuation.files[name] for name in contents if name in continuation.files}
    # With the name of a missing input file, a run would wait forever for that file.
    inputs |= {name: "" for name in definition.files if name not in contents and name != "plan"}
    completed_before = newest.pipeline.completed if newest is not None and newest.pipeline else {}
    names = [phase.name for phase in definition.phases]
    completed = [name for name in names if name in continuation.completed]
    is_unfinished = item.record.phase != ref_names.RUN_COMPLETE
    if continuation.pipeline == "plan-to-pr" and is_unfinished and worktree is None and not commit:
        # Without worktree and branch, the results of later phases are missing here.
        completed = [name for name in completed if name in names[: names.index("create worktree")]]
    new_pipeline = Pipeline(
        name=definition.name,
        phases=tuple(names),
        completed={name: completed_before.get(name, checkpoint_id) for name in completed},
        autonomy=definition.autonomy,
        definition=definition.value_digests(),
        inputs=inputs,
        contents={name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
    )
    if contents and not dry_run:
        arguments = store.repository, store.objects, worktree or CLEAN, commit
        worktree = run_files.add_input_files(*arguments, contents)
    return new_pipeline, worktree


def make_checkpoint_state(item: ParsedFile) -> dict[str, Any]:
    state_values = dict(item.record.state)
    if item.record.commit and not item.commit and KEY in state_values:
        state_values[KEY] = {**state_values[KEY], "git_commit": item.record.commit}
    return state_values


def make_valid_label(phase: str) -> str:
    name, status = split_label(phase)
    name = name[: 10 * _MAX_LABEL]  # bounds the time; the rest is cut off below anyway
    printable_name = "".join(character if character.isprintable() else " " for character in name)
    text = " ".join(printable_name.split())[:_MAX_LABEL].rstrip("-")
    return f"{text or 'phase'}-{status}"
