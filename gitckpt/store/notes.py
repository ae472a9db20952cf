"""Queue and write the git notes that link commits to checkpoints.

Many changes are written together, as each notes commit turns the previous one into garbage. A note
line is queued before the refs of its checkpoint are written, and leaves the queue when the notes
contain it. The hook imports this module.
"""

from __future__ import annotations

import contextlib
import os
import time

from gitckpt.git.files import private_dirs
from gitckpt.git.files.refs_stat import read_loose_ref
from gitckpt.git.refs import RefMoved, RefUpdate
from gitckpt.model import ids
from gitckpt.model.note import leading_id, update_note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gitckpt.git.objects.writer import Item, ObjectDatabase
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository

    Lines = dict[str, list[str]]

CHECKPOINTS = "refs/checkpoints/"
NOTES = "refs/notes/checkpoints"

# File in the private directory. Lines: `<commit> <id> <phase> <timestamp>` for a new link,
# `<id>` for a removed checkpoint.
WAITING = "links"

# An empty file in the private directory; its mtime is when notes were last written.
WRITTEN = "linked"

INTERVAL = 60.0  # seconds between writes of notes by commands with another main task
PATIENCE = 30.0  # seconds to retry against other writers
_MANY = 1000  # for more checkpoints, list all refs instead of looking up each one
_STAMP = len("2026-11-21T20:16:35.123456Z")


def create_link_queue(repository: Repository) -> None:
    """Create the queue: if it is missing, the shell hook starts the slow Python hook."""
    private_dirs.append_to_private_file(os.path.join(repository.make_private_dir(), WAITING), b"")


def queue_links(repository: Repository, links: Lines, removed: Collection[str] = ()) -> None:
    """Queue note lines by commit, and ids to remove; do nothing if the disk is full."""
    text = "".join(f"{commit} {line}\n" for commit, lines in links.items() for line in lines)
    text += "".join(f"{removed_id}\n" for removed_id in removed)
    if text:
        path = os.path.join(repository.make_private_dir(), WAITING)
        with contextlib.suppress(OSError):
            # The first newline ends a line that was cut off.
            data = f"\n{text}".encode("utf-8", "surrogateescape")
            private_dirs.append_to_private_file(path, data)


def is_write_due(repository: Repository, instant: int) -> bool:
    queue_status, last_write_status = (_stat_file(repository, file) for file in (WAITING, WRITTEN))
    if queue_status is None or not queue_status.st_size:
        return False
    age_ns = instant * 1000 - last_write_status.st_mtime_ns if last_write_status is not None else -1
    return not 0 <= age_ns < INTERVAL * 1_000_000_000


def list_pending_links(repository: Repository) -> tuple[Lines, set[str]]:
    return _parse_queue(private_dirs.read_private_file(_queue_path(repository)))


def write_link_notes(
    repository: Repository,
    objects: ObjectDatabase,
    refs: Refs,
    instant: int,
    *,
    links: Lines | None = None,
    removed_ids: Collection[str] = (),
    prepared: Callable[[Sequence[Item]], object] = lambda _: None,
) -> bool:
    """Apply the queue, `links` and `removed_ids` to the notes; return if they changed.

    The caller holds `ref_names.write_lock`. `prepared` gets the git objects before the write.
    """
    queue_data = private_dirs.read_private_file(_queue_path(repository))
    lines_by_commit, ids_to_remove = _parse_queue(queue_data)
    for commit, lines in (links or {}).items():
        lines_by_commit.setdefault(commit, []).extend(lines)
    ids_to_remove.update(removed_ids)
    if not lines_by_commit and not ids_to_remove:
        return False
    from gitckpt.git.notes import GitNotes  # appending does not need it

    linked_ids = {leading_id(line) for lines in lines_by_commit.values() for line in lines}
    existing_ids = _find_existing_ids(repository, refs, ids_to_remove | linked_ids)
    for commit, lines in lines_by_commit.items():
        lines_by_commit[commit] = [line for line in lines if leading_id(line) in existing_ids]
    ids_to_remove -= existing_ids

    def edit_note(commit: str, lines: list[str]) -> list[str]:
        return update_note(lines, lines_by_commit.get(commit, ()), ids_to_remove)

    notes = GitNotes(repository, objects, NOTES)
    deadline = time.monotonic() + PATIENCE
    while True:
        tip = notes.tip_oid()
        commits = {commit for commit, lines in lines_by_commit.items() if lines}
        # Git copies lines to rewritten commits, so any note may contain one that is removed.
        for commit, note in notes.read_all_notes() if ids_to_remove and tip else ():
            if note and not ids_to_remove.isdisjoint(map(leading_id, note)):
                commits.add(commit)
        new_tip, new_objects = notes.edit_notes(tip, list(commits), edit_note, instant)
        prepared(new_objects)
        objects.write(new_objects)
        try:
            if new_tip != tip:
                refs.apply_updates([RefUpdate(NOTES, new_tip, tip)])
            break
        except RefMoved:
            if time.monotonic() > deadline:
                raise
    _clear_queue(repository, len(queue_data), instant)
    return new_tip != tip


def copy_links_to_rewritten(repository: Repository, command: str) -> None:
    queued_lines, _ = list_pending_links(repository)
    if not queued_lines:
        return
    from gitckpt.git.worktree import operation  # recording a commit does not need it

    # Read git's own records: the stdin of the hook belongs to the user's part of the hook.
    read = operation.read_amended_commits if command == "amend" else operation.read_rebased_commits
    copied_lines: Lines = {}
    for old_commit, new_commit in read(repository):
        if old_commit in queued_lines and new_commit != old_commit:
            copied_lines.setdefault(new_commit, []).extend(queued_lines[old_commit])
    queue_links(repository, copied_lines)


def _find_existing_ids(repository: Repository, refs: Refs, checkpoint_ids: set[str]) -> set[str]:
    if len(checkpoint_ids) > _MANY:
        listed_ids = (ref.removeprefix(CHECKPOINTS) for ref, _ in refs.iterate_refs(CHECKPOINTS))
        return checkpoint_ids.intersection(listed_ids)
    look_up = repository.cat_file.info
    paths = {id_: CHECKPOINTS + id_ for id_ in checkpoint_ids}
    return {id_ for id_, ref in paths.items() if read_loose_ref(repository, ref) or look_up(ref)}


def _stat_file(repository: Repository, file_name: str) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        return os.lstat(os.path.join(repository.private_dir, file_name))
    return None


def _queue_path(repository: Repository) -> str:
    return os.path.join(repository.private_dir, WAITING)


def _parse_queue(data: bytes) -> tuple[Lines, set[str]]:
    links: dict[str, dict[str, str]] = {}
    removed_ids: set[str] = set()
    for entry in data.decode("utf-8", "surrogateescape").split("\n"):
        commit, _, line = entry.partition(" ")
        id_, stamp = leading_id(line), line.rpartition(" ")[2]
        if not line and ids.is_checkpoint_id(commit):
            removed_ids.add(commit)
        elif ids.is_oid(commit) and ids.is_checkpoint_id(id_) and _is_time(stamp):  # else cut off
            links.setdefault(commit, {})[id_] = line
    return {commit: [*lines.values()] for commit, lines in links.items()}, removed_ids


def _is_time(text: str) -> bool:
    has_form = len(text) == _STAMP and text.isascii() and text[10] == "T" and text[-1] == "Z"
    return has_form and text[:4].isdigit() and text[20:26].isdigit()


def _clear_queue(repository: Repository, size: int, instant: int) -> None:
    directory = repository.make_private_dir()
    with contextlib.suppress(OSError):
        path = os.path.join(directory, WAITING)
        with open(path, "r+b", buffering=0, opener=private_dirs.open_private_file) as file:
            # If a line was queued meanwhile, keep all: writing a line twice changes nothing.
            if os.fstat(file.fileno()).st_size == size:
                file.truncate(0)
        path = os.path.join(directory, WRITTEN)
        for _ in range(2):
            try:
                with open(path, "wb", opener=private_dirs.open_private_file) as file:
                    os.utime(file.fileno(), ns=(instant * 1000, instant * 1000))
            except PermissionError:  # only the owner of a file may set its time
                os.unlink(path)
            else:
                return
