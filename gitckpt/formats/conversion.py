"""Convert an imported file to a checkpoint: its commit, files and pipeline."""

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
from gitckpt.formats.systems.content import KEY, Record, Source, Unreadable
from gitckpt.git.process import GitError
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration
from gitckpt.model import times
from gitckpt.model.checkpoint import CLEAN, Checkpoint, Pipeline, Worktree
from gitckpt.model.phase import split
from gitckpt.model.values import dataclass, field
from gitckpt.store import secrets
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.runs import run_files

# When a file was written, by its own timestamp and by the commit that it names.

_COMMITTER = re.compile(rb"^committer .*> (-?\d{1,15}) ([+-])(\d\d)(\d\d)$", re.MULTILINE)
_SECOND = 1_000_000
_LAST = 253_402_300_799 * _SECOND


@dataclass(frozen=True, slots=True)
class Commit:
    """The committer's time and time zone of a commit, in microseconds."""

    time: int  # since the epoch
    offset: int  # from UTC


@dataclass(frozen=True, slots=True)
class Time:
    """When a file was written, in microseconds since the epoch."""

    instant: int
    started: int  # when its run began
    is_trusted: bool  # whether anything confirms the time
    remark: str | None = None  # what was repaired


def commits(repository: Repository, oids: Collection[str]) -> dict[str, Commit]:
    sorted_oids = sorted(set(oids))
    committers = {}
    for oid, entry in zip(sorted_oids, repository.cat_file.contents(sorted_oids), strict=True):
        # With SHA-256, git takes 40 digits as an abbreviation.
        if entry is None or entry[:2] != (oid, "commit"):
            continue
        if committer := _COMMITTER.search(entry[2].partition(b"\n\n")[0]):
            seconds, sign, hours, minutes = committer.groups()
            offset = (int(hours) * 60 + int(minutes)) * 60 * _SECOND
            committers[oid] = Commit(int(seconds) * _SECOND, -offset if sign == b"-" else offset)
    return committers


def time_of(record: Record, commit: Commit | None, import_time: int) -> Time:
    """Return when a file was written; `commit` is the one that it names, if present."""
    # rlm-act writes local time and calls it UTC. If that is before the commit that the file names,
    # the clock is taken as one of the committer's zone (true of 42 of 44 public files).
    if record.time is None or not 0 < record.time <= _LAST:
        remark = "has no time: the import's is used"
        return Time(import_time, import_time, is_trusted=False, remark=remark)
    has_start = record.started and 0 < record.started <= _LAST
    started = (record.started if has_start else None) or record.time
    if commit is None or not record.is_local or record.time >= commit.time or not commit.offset:
        return Time(record.time, started, is_trusted=commit is not None or not record.is_local)
    repaired = record.time - commit.offset
    text = times.to_text(repaired)
    remark = f"calls {record.timestamp} UTC, before its commit: repaired to {text}"
    return Time(repaired, started - commit.offset, is_trusted=True, remark=remark)


# The versions of a file in the history.


def versions(repository: Repository, path: str) -> list[tuple[str, int, bytes]]:
    """Return commit, its time and content of each version of a file, oldest first."""
    try:
        # Not `log`: user settings can add lines to its output.
        order = ("--timestamp", "--reverse", "--topo-order")
        output = repository.git.run("rev-list", *order, "HEAD", "--", f":(top,literal){path}").out
    except GitError:
        return []  # there is no commit yet
    pairs = [line.split(" ") for line in output.decode("ascii").splitlines()]
    blobs = repository.cat_file.contents([f"{commit}:{path}" for _, commit in pairs])
    distinct: list[tuple[str, int, bytes]] = []
    for (time, commit), blob in zip(pairs, blobs, strict=True):
        if blob and blob[1] == "blob" and (not distinct or distinct[-1][2] != blob[2]):
            distinct.append((commit, int(time) * _SECOND, blob[2]))
    return distinct


# The checkpoint of a file.

_MAX_LABEL = 200
# A thousand files need the same one.
_preset = functools.cache(functools.partial(pipelines.preset, known_steps=OPTIONS))


@dataclass(frozen=True, slots=True)
class FoundFile:
    record: Record
    source: Source
    time: Time
    commit: str  # the one that it names; "" if it is missing here
    original: str  # oid of its bytes as a blob
    # path of a file that it names, but is not read → why
    unread: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drafted:
    item: FoundFile
    checkpoint: Checkpoint  # without its place in a run
    fields: dict[str, Any]  # the keys of its document
    state: dict[str, Any] | None

    @property
    def is_ours(self) -> bool:
        """Whether its run may continue without the user's trust."""
        return self.item.record.drive is None

    def goes_with(self, previous: Drafted) -> bool:
        """Return whether one transaction can record it after another checkpoint."""
        keys = ("git_sha", "branch", "worktree")
        return (
            all(self.fields.get(key) == previous.fields.get(key) for key in keys)
            and self.checkpoint.id != previous.checkpoint.id
            and self.item.original != previous.item.original
            and self.is_ours == previous.is_ours
            # After a kill, the newest recorded checkpoint is found by its time.
            and self.checkpoint.time > previous.checkpoint.time
        )


def place(
    store: Checkpoints, item: FoundFile, *, dry_run: bool
) -> tuple[str, str | None, Worktree | None]:
    """Return commit, branch and files, if possible from the worktree in the file."""
    record, repository = item.record, store.repository
    if record.worktree is not None and not dry_run:
        linked = administration.seen_from(repository, record.worktree)
        if linked is not None:
            with store.seen_from(linked, "plumbing") as linked_store:
                worktree = linked_store.capture()
                return *linked_store.objects.head(), worktree
    if not item.commit and record.branch is not None:
        branch_info = repository.cat_file.info(BRANCHES + record.branch)
        if branch_info is not None and branch_info[1] == "commit":
            return branch_info[0], record.branch, None
    return item.commit, None, None


def pipeline(
    store: Checkpoints,
    item: FoundFile,
    checkpoint_id: str,
    newest: Checkpoint | None,
    captured: tuple[str, Worktree | None],
    *,
    reason: Callable[[str], str | None],
    dry_run: bool,
) -> tuple[Pipeline | None, Worktree | None]:
    """Return the pipeline of a file's run, and the worktree with the input files.

    `newest` is that of its run, `captured` the commit and the captured files.
    """
    commit, worktree = captured
    drive = item.record.drive
    if drive is None:
        return None, worktree
    definition = _preset(drive.pipeline)
    project = content.string(item.record.state.get("project_path"))
    contents = dict(drive.contents)
    for name, path in drive.files.items():
        try:
            if name not in contents:
                contents[name] = files.inside(path, store.repository.worktree, reason, project)
        except Unreadable as error:
            item.unread[path] = str(error)
    inputs = dict(definition.inputs)
    inputs |= {name: secrets.masked(value) for name, value in drive.inputs.items()}
    inputs |= {name: drive.files[name] for name in contents if name in drive.files}
    # A run would wait forever for an input file that is missing here.
    inputs |= {name: "" for name in definition.files if name not in contents and name != "plan"}
    earlier = newest.pipeline.completed if newest is not None and newest.pipeline else {}
    names = [phase.name for phase in definition.phases]
    completed = [name for name in names if name in drive.completed]
    is_unfinished = item.record.phase != ref_names.RUN_COMPLETE
    if drive.pipeline == "plan-to-pr" and is_unfinished and worktree is None and not commit:
        # Without worktree and branch, later work is missing here.
        completed = [name for name in completed if name in names[: names.index("create worktree")]]
    described = Pipeline(
        name=definition.name,
        phases=tuple(names),
        completed={name: earlier.get(name, checkpoint_id) for name in completed},
        autonomy=definition.autonomy,
        definition=definition.digest(),
        inputs=inputs,
        contents={name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
    )
    if contents and not dry_run:
        place = store.repository, store.objects, worktree or CLEAN, commit
        worktree = run_files.with_inputs(*place, contents)
    return described, worktree


def state(item: FoundFile) -> dict[str, Any]:
    """Return the state of a checkpoint; it keeps the name of a missing commit as text."""
    values = dict(item.record.state)
    if item.record.commit and not item.commit and KEY in values:
        values[KEY] = {**values[KEY], "git_commit": item.record.commit}
    return values


def label(phase: str) -> str:
    """Return a label that a document may have, for a phase of any length and content."""
    name, status = split(phase)
    name = name[: 10 * _MAX_LABEL]  # bounds the work; the rest is never shown
    printable = "".join(character if character.isprintable() else " " for character in name)
    text = " ".join(printable.split())[:_MAX_LABEL].rstrip("-")
    return f"{text or 'phase'}-{status}"
