"""Links of commits to checkpoints: what a note says, when it is written, and what waits until then. Imported by the hook.

Notes are derived, and each time they are written three objects become garbage. So a record writes them where nobody has done so in the last
minute; otherwise its line waits in a file of the private directory, for the next record that is due, for maintenance, or for whoever asks.

A line is there before the refs of its checkpoint: a kill leaves a line too many, which is passed over, and never one too few. Where the
file is lost, the checkpoints themselves still name their commits, and `verify --repair` writes their links.
"""

from __future__ import annotations

import os

from gitckpt.git.files import premises
from gitckpt.git.files.ref_files import plain
from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import Update
from gitckpt.model import ids
from gitckpt.model.format.note import is_crowded, link_id, merged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gitckpt.git.objects.port import Item, Objects
    from gitckpt.git.repository import Repository

    Lines = dict[str, list[str]]

CHECKPOINTS = "refs/checkpoints/"
NOTES = "refs/notes/checkpoints"

WAITING = "links"
"""In the private directory: links that wait, a line each: `<commit> <id> <phase> <timestamp>`."""

WRITTEN = "linked"
"""In the private directory, empty: its time is when notes were last written."""

INTERVAL = 60.0
"""Notes are written this often by those who record, in seconds."""

LARGE = 256 << 10
"""From this size on, in bytes, the file of those that wait is written into notes, however little time has passed."""

_LARGEST = 8 << 20
"""So much of it is read at once, in bytes."""

_LOOKED_AT = 100
"""The documents of so many checkpoints are looked at for their commits."""

_DOCUMENT = 1 << 20
"""The longest document that is looked at for its commit, in bytes."""

_STAMP = len("2026-11-21T20:16:35.123456Z")


class Links:
    """Writes links, or lets them wait. Who writes holds the lock of writers."""

    def __init__(self, repository: Repository, objects: Objects) -> None:
        self._repository = repository
        self._objects = objects
        self._taken = 0
        self.put_off = 0
        """How many links of this store's own were left waiting since notes were last written by it."""

    def is_due(self, instant: int) -> bool:
        """Tells whether a record writes notes: none were written in the last minute, or much waits. A stamp in the future says nothing.

        Args:
            instant: now, in microseconds since the epoch.
        """
        try:
            age = instant * 1000 - os.lstat(os.path.join(self._repository.private_dir, WRITTEN)).st_mtime_ns
        except OSError:
            return True
        return not 0 <= age < INTERVAL * 1_000_000_000 or _size(self._repository) > LARGE

    def wait(self, links: Lines) -> bool:
        """Lets links wait; tells whether they do, which they cannot on a disk that is full.

        Args:
            links: note lines by commit.
        """
        return _append(self._repository, links)

    def edit(self, links: Lines, instant: int, updates: list[Update]) -> list[Item]:
        """Appends the update of the notes ref that writes what waits, and returns the objects it needs.

        Args:
            links: further note lines by commit, of checkpoints that there will be.
            instant: now, in microseconds since the epoch.
            updates: what the transaction does until then.
        """
        from gitckpt.git.notes.editor import Notes  # not for a record that writes none

        notes = Notes(self._repository, self._objects, NOTES)
        tip = notes.tip()
        data = _content(self._repository)
        self._taken = len(data)
        wanted = _parsed(self._beyond(data, notes.remark(tip)), links)
        wanted = {commit: [line for line in lines if self._is_there(link_id(line))] for commit, lines in wanted.items()}
        for commit, lines in links.items():
            wanted[commit] = [*wanted.get(commit, ()), *lines]
        commits = [commit for commit, lines in wanted.items() if lines]
        if not commits:
            return []

        def change(commit: str, lines: list[str]) -> list[str]:
            return merged(commit, lines, wanted[commit], self._origins_beside(links))

        new_tip, derived = notes.edited(tip, commits, change, instant, self._remark(data))
        if new_tip != tip:
            updates.append(Update(NOTES, new_tip, tip))
        return derived

    def _remark(self, data: bytes) -> str:
        """Returns what the notes say of those that waited: a note that leaves links out does not tell by itself which it has counted."""
        return f"Waited: {len(data)} {object_id('blob', data, self._repository.object_format)}" if data else ""

    def _beyond(self, data: bytes, remark: str) -> bytes:
        """Returns what waits without that which is in the notes already: whoever wrote it there was killed before it was taken away."""
        size = remark.split(" ")[1] if remark.startswith("Waited: ") else ""
        is_written = size.isdigit() and len(size) < 10 and int(size) <= len(data) and remark == self._remark(data[: int(size)])
        return data[int(size) :] if is_written else data

    def recorded(self, count: int, instant: int, *, with_notes: bool) -> None:
        """Notes that checkpoints are recorded.

        Args:
            count: how many.
            instant: now, in microseconds since the epoch.
            with_notes: whether the notes were written with them.
        """
        if with_notes:
            self.written(instant)
        else:
            self.put_off += count

    def written(self, instant: int) -> None:
        """Notes that the last edit has come to its end: what it wrote waits no more.

        Args:
            instant: now, in microseconds since the epoch.
        """
        self.put_off = 0
        place = self._repository.make_private_dir()
        try:
            if self._taken:
                _drop(os.path.join(place, WAITING), self._taken)
            _stamp(os.path.join(place, WRITTEN), instant)
        except OSError:
            return  # they are written once more, which changes nothing

    def origins(self, names: Sequence[str]) -> list[str]:
        """Returns the commits to which the first hundred of some checkpoints belong; of one that cannot be read, or is large, none."""
        refs = [CHECKPOINTS + name for name in names[:_LOOKED_AT]]
        return [_commit_in(found[2]) for found in self._repository.cat_file.contents(refs, _DOCUMENT) if found is not None]

    def _origins_beside(self, links: Lines) -> Callable[[Sequence[str]], list[str]]:
        own = {link_id(line) for lines in links.values() for line in lines}
        return lambda names: self.origins([name for name in names if name not in own])

    def _is_there(self, name: str) -> bool:
        ref = CHECKPOINTS + name
        return plain(self._repository, ref) is not None or self._repository.cat_file.info(ref) is not None


def prepare(repository: Repository) -> None:
    """Make the file to which the shell hook appends links; without it, the hook starts Python."""
    with open(os.path.join(repository.make_private_dir(), WAITING), "ab", opener=premises.create):
        pass


def waiting(repository: Repository) -> Lines:
    """Returns the links that wait, by commit; some may be of checkpoints that are gone, or were never finished."""
    return _parsed(_content(repository))


def missing(repository: Repository, objects: Objects, links: Lines) -> Lines:
    """Returns which links are neither in the notes nor wait; none of a commit whose note leaves links out, which does not tell which.

    Args:
        links: note lines by commit.
    """
    from gitckpt.git.notes.editor import Notes

    there = waiting(repository)  # first: they may be written meanwhile
    noted = Notes(repository, objects, NOTES).lines(list(links))
    known = {link_id(line) for found in (there, noted) for lines in found.values() for line in lines}
    left = {commit: [line for line in lines if link_id(line) not in known] for commit, lines in links.items()}
    return {commit: lines for commit, lines in left.items() if lines and not is_crowded(noted.get(commit, ()))}


def is_any_waiting(repository: Repository) -> bool:
    """Tells whether links wait."""
    return _size(repository) > 0


def _size(repository: Repository) -> int:
    try:
        return os.lstat(os.path.join(repository.private_dir, WAITING)).st_size
    except OSError:
        return 0


def forget(repository: Repository, gone: Collection[str]) -> None:
    """Lets the links of checkpoints that were removed wait no more; the caller holds the lock of writers.

    Args:
        gone: ids of the checkpoints.
    """
    if not gone or not is_any_waiting(repository):
        return
    data = _content(repository)
    left = {commit: [line for line in lines if link_id(line) not in gone] for commit, lines in _parsed(data).items()}
    if left == _parsed(data) or not _append(repository, left):  # first: a kill leaves them twice
        return
    try:
        _drop(os.path.join(repository.private_dir, WAITING), len(data))
    except OSError:
        return  # what is gone is passed over all the same


def carry(repository: Repository, command: str) -> None:
    """Lets links that wait for a commit wait for the one, too, that has taken its place; what is in the notes, git carries over itself.

    Args:
        repository: seen from the worktree in which somebody has rewritten commits.
        command: what git passes to the hook post-rewrite: "amend" or "rebase".
    """
    if not is_any_waiting(repository):
        return
    from gitckpt.git.worktree import rewrites  # not for the records of commits

    there = waiting(repository)
    carried: Lines = {}
    # As git has noted it: what it tells the hook belongs to the user's part of that.
    for old, new in rewrites.amended(repository) if command == "amend" else rewrites.rebased(repository):
        if old in there and new != old:
            carried.setdefault(new, []).extend(there[old])
    _append(repository, carried)


def _content(repository: Repository) -> bytes:
    """Returns what the file of those that wait holds, or the beginning; nothing where it cannot be read."""
    try:
        with open(os.path.join(repository.private_dir, WAITING), "rb", buffering=0, opener=premises.create) as file:
            size = os.fstat(file.fileno()).st_size  # for more there would be made room first
            return file.read(min(size, _LARGEST)) or b""
    except OSError:
        return b""


def _parsed(data: bytes, beside: Mapping[str, Collection[str]] | None = None) -> Lines:
    """Returns note lines by commit; what a kill, a full disk or somebody else has made of a line is passed over.

    Args:
        data: what the file of those that wait holds.
        beside: lines that are left out, by commit: who is at work adds them.
    """
    found: dict[tuple[str, str], str] = {}
    for entry in data.decode("utf-8", "surrogateescape").split("\n"):
        commit, _, line = entry.partition(" ")
        if ids.is_oid(commit) and ids.is_id(link_id(line)) and _is_stamp(line.rpartition(" ")[2]):
            found[commit, link_id(line)] = line  # whoever had to begin anew may have said it twice
    lines: Lines = {}
    own = {(commit, link_id(line)) for commit, some in (beside or {}).items() for line in some}
    for (commit, name), line in found.items():
        if (commit, name) not in own:
            lines.setdefault(commit, []).append(line)
    return lines


def _is_stamp(text: str) -> bool:
    return len(text) == _STAMP and text[10] == "T" and text[-1] == "Z" and text.isascii() and text[:4].isdigit() and text[20:26].isdigit()


def _append(repository: Repository, links: Lines) -> bool:
    text = "".join(f"{commit} {line}\n" for commit, lines in links.items() for line in lines)
    if not text:
        return True
    path = os.path.join(repository.make_private_dir(), WAITING)
    try:
        with open(path, "ab", buffering=0, opener=premises.create) as file:
            data = f"\n{text}".encode("utf-8", "surrogateescape")  # a line that somebody has cut off is none of these
            return file.write(data) == len(data)
    except OSError:
        return False


def _drop(path: str, size: int) -> None:
    """Takes the first bytes of a file away; what somebody has added meanwhile stays."""
    with open(path, "r+b", buffering=0, opener=premises.create) as file:
        if os.fstat(file.fileno()).st_size > size:
            file.seek(size)
            rest = file.read() or b""
            file.seek(0)
            file.write(rest)
            size = len(rest)
        else:
            size = 0
        file.truncate(size)


def _stamp(path: str, instant: int) -> None:
    """Gives an empty file the time of an instant, anew where somebody else has made it: only they may change its time."""
    for _ in range(2):
        with open(path, "wb", opener=premises.create) as file:
            try:
                os.utime(file.fileno(), ns=(instant * 1000, instant * 1000))
            except PermissionError:
                os.unlink(path)
            else:
                return


def _commit_in(document: bytes) -> str:
    """Returns the commit that a document names, as we write it; "" where it has none, or says so in another way."""
    _, found, rest = document.partition(b'\ngit_sha = "')
    oid = rest[:64].partition(b'"')[0].decode("ascii", "replace")
    return oid if found and ids.is_oid(oid) else ""
