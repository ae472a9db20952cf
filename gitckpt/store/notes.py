"""The notes that link commits to their checkpoints: what waits to be written, and the one function that writes it. Imported by the hook.

Notes are derived: nothing else depends on them. To record a checkpoint, or to remove one, appends a line to a file of
the private directory; the notes are written from that now and then, as each notes commit makes garbage of the one
before. A line is there before the refs of its checkpoint, and is taken away after the notes have it: a kill leaves a
line too many, which changes nothing.
"""

from __future__ import annotations

import os
import time

from gitckpt.git.files import premises
from gitckpt.git.files.refs_stat import plain
from gitckpt.git.refs import RefMoved, Update
from gitckpt.model import ids
from gitckpt.model.note import changed, link_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gitckpt.git.objects.port import Item, Objects
    from gitckpt.git.refs import Refs
    from gitckpt.git.repository import Repository

    Lines = dict[str, list[str]]

CHECKPOINTS = "refs/checkpoints/"
NOTES = "refs/notes/checkpoints"

WAITING = "links"
"""In the private directory: `<commit> <id> <phase> <timestamp>` for a link that waits, `<id>` for a checkpoint that was removed."""

WRITTEN = "linked"
"""In the private directory, empty: its time is when notes were last written."""

INTERVAL = 60.0
"""Notes are written this often by commands that do something else, in seconds."""

PATIENCE = 30.0
"""How long they are tried against other writers, in seconds."""

_MANY = 1000
"""For so many checkpoints, all refs are listed to see which ones are there."""

_STAMP = len("2026-11-21T20:16:35.123456Z")


def prepare(repository: Repository) -> None:
    """Makes the file to which the shell hook appends links; without it, the hook starts Python."""
    with open(os.path.join(repository.make_private_dir(), WAITING), "ab", opener=premises.create):
        pass


def append(repository: Repository, links: Lines, gone: Collection[str] = ()) -> None:
    """Lets changes wait for the next write; on a disk that is full, `verify --repair` finds them.

    Args:
        links: note lines by commit.
        gone: ids of checkpoints that are about to be removed.
    """
    text = "".join(f"{commit} {line}\n" for commit, lines in links.items() for line in lines)
    text += "".join(f"{name}\n" for name in gone)
    if not text:
        return
    path = os.path.join(repository.make_private_dir(), WAITING)
    try:
        with open(path, "ab", buffering=0, opener=premises.create) as file:
            file.write(f"\n{text}".encode("utf-8", "surrogateescape"))  # after a line that was cut off
    except OSError:
        return


def is_due(repository: Repository, instant: int) -> bool:
    """Tells whether something waits and no notes were written in the last minute; a stamp in the future says nothing.

    Args:
        instant: now, in microseconds since the epoch.
    """
    if not _size(repository):
        return False
    try:
        age = instant * 1000 - os.lstat(os.path.join(repository.private_dir, WRITTEN)).st_mtime_ns
    except OSError:
        return True
    return not 0 <= age < INTERVAL * 1_000_000_000


def waiting(repository: Repository) -> Lines:
    """Returns the links that wait, by commit; some may be of checkpoints that are gone, or were never finished."""
    return pending(repository)[0]


def pending(repository: Repository) -> tuple[Lines, set[str]]:
    """Returns what `waiting` does, and the ids of removed checkpoints whose lines may still be in notes."""
    return _parsed(_content(repository))


def write(
    repository: Repository,
    objects: Objects,
    refs: Refs,
    instant: int,
    *,
    links: Lines | None = None,
    gone: Collection[str] = (),
    prepared: Callable[[Sequence[Item]], object] = lambda _: None,
) -> bool:
    """Writes what waits into the notes. The caller holds the lock of writers.

    Args:
        instant: now, in microseconds since the epoch.
        links: further note lines by commit.
        gone: further ids whose lines go, unless they are there.
        prepared: is given the objects before they are written.

    Returns:
        Whether the notes changed.

    Raises:
        BusyError, GitError: they could not be written; what waits goes on waiting.
    """
    data = _content(repository)
    wanted, removed = _parsed(data)
    for commit, lines in (links or {}).items():
        wanted.setdefault(commit, []).extend(lines)
    removed.update(gone)
    if not wanted and not removed:
        return False
    from gitckpt.git.notes import Notes  # not for those who only append

    there = _existing(repository, refs, {*removed, *(link_id(line) for lines in wanted.values() for line in lines)})
    wanted = {commit: [line for line in lines if link_id(line) in there] for commit, lines in wanted.items()}
    removed -= there
    notes = Notes(repository, objects, NOTES)
    deadline = time.monotonic() + PATIENCE
    while True:
        tip = notes.tip()
        commits = {commit for commit, lines in wanted.items() if lines}
        if removed and tip:  # git carries lines to other commits, so any note may have one
            commits.update(commit for commit, lines in notes.each() if lines and not removed.isdisjoint(map(link_id, lines)))
        new_tip, items = notes.edited(tip, list(commits), lambda commit, lines: changed(lines, wanted.get(commit, ()), removed), instant)
        prepared(items)
        objects.write(items)
        try:
            if new_tip != tip:
                refs.update([Update(NOTES, new_tip, tip)])
            break
        except RefMoved:
            if time.monotonic() > deadline:
                raise
    _written(repository, len(data), instant)
    return new_tip != tip


def carry(repository: Repository, command: str) -> None:
    """Lets links that wait for a commit wait for the one, too, that has taken its place; those in the notes, git carries over itself.

    Args:
        repository: seen from the worktree in which commits were rewritten.
        command: what git passes to the hook post-rewrite: "amend" or "rebase".
    """
    there = waiting(repository)
    if not there:
        return
    from gitckpt.git.worktree import operation  # not for the records of commits

    carried: Lines = {}
    # As git has noted it: what it tells the hook belongs to the user's part of that.
    for old, new in operation.amended(repository) if command == "amend" else operation.rebased(repository):
        if old in there and new != old:
            carried.setdefault(new, []).extend(there[old])
    append(repository, carried)


def _existing(repository: Repository, refs: Refs, names: set[str]) -> set[str]:
    """Returns those of some checkpoints that are there."""
    if len(names) > _MANY:
        return names.intersection(ref.removeprefix(CHECKPOINTS) for ref, _ in refs.each(CHECKPOINTS))
    there = (name for name in names if plain(repository, CHECKPOINTS + name) or repository.cat_file.info(CHECKPOINTS + name))
    return set(there)


def _size(repository: Repository) -> int:
    try:
        return os.lstat(os.path.join(repository.private_dir, WAITING)).st_size
    except OSError:
        return 0


def _content(repository: Repository) -> bytes:
    try:
        with open(os.path.join(repository.private_dir, WAITING), "rb", opener=premises.create) as file:
            return file.read()
    except OSError:
        return b""


def _parsed(data: bytes) -> tuple[Lines, set[str]]:
    """Returns note lines by commit, and the ids of what was removed; lines that a kill or a full disk cut off are passed over."""
    found: dict[tuple[str, str], str] = {}
    removed: set[str] = set()
    for entry in data.decode("utf-8", "surrogateescape").split("\n"):
        commit, _, line = entry.partition(" ")
        name, stamp = link_id(line), line.rpartition(" ")[2]
        if not line and ids.is_id(commit):
            removed.add(commit)
        elif ids.is_oid(commit) and ids.is_id(name) and _is_stamp(stamp):
            found[commit, name] = line
    lines: Lines = {}
    for (commit, _), line in found.items():
        lines.setdefault(commit, []).append(line)
    return lines, removed


def _is_stamp(text: str) -> bool:
    return len(text) == _STAMP and text[10] == "T" and text[-1] == "Z" and text.isascii() and text[:4].isdigit() and text[20:26].isdigit()


def _written(repository: Repository, size: int, instant: int) -> None:
    """Empties the file, unless a line came meanwhile: then all of them are written once more, which changes nothing."""
    place = repository.make_private_dir()
    try:
        with open(os.path.join(place, WAITING), "r+b", buffering=0, opener=premises.create) as file:
            if os.fstat(file.fileno()).st_size == size:
                file.truncate(0)
        _stamp(os.path.join(place, WRITTEN), instant)
    except OSError:
        return


def _stamp(path: str, instant: int) -> None:
    """Gives an empty file the time of an instant; one of another user is made again, as only they may change its time."""
    for _ in range(2):
        try:
            with open(path, "wb", opener=premises.create) as file:
                os.utime(file.fileno(), ns=(instant * 1000, instant * 1000))
        except PermissionError:
            os.unlink(path)
        else:
            return
