"""Which files git would not write again as they are: what it makes of their blobs is compared with what is on the disk.

A file that was looked at is not looked at again while its stat data, its blob and the rules stay: a derived file in the worktree's
administrative directory knows. Where rules were others before, git may call a file unchanged that it would store otherwise: it goes by stat
data. So from then on, what is new to that file is compared with its blob, even if nothing converts it now.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from gitckpt.git.contents import attributes
from gitckpt.git.contents.attributes import AttributeRules, Treatment
from gitckpt.git.files import atomic
from gitckpt.git.objects import writer
from gitckpt.git.objects.encoding import FILES, object_hash, object_id
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.git.worktree.index import PrivateIndex


# What was found of the files of a worktree when they were compared with what git makes of their blobs: a derived file beside its index.


FILE = "ckpt-exact"

EXACT, INEXACT, REQUIRED = b"=", b"!", b"-"
"""That a file is what git would write; that it is not, and is not kept; that nothing is to go around a filter. Else, an oid."""

_FORM = b"gitckpt exact 1 "


def verdict_mark(oid: str, status: os.stat_result) -> bytes:
    """Returns what a verdict is about: a blob, and a file as it is.

    Args:
        oid: of the blob that stands for it.
        status: its stat data.
    """
    return b"%s %d %d" % (oid.encode(), status.st_ctime_ns, status.st_ino)


def are_there(repository: Repository) -> bool:
    """Tells whether anything was converted when a worktree was looked at before, and may be so still.

    Args:
        repository: seen from the worktree.
    """
    return os.path.exists(_path(repository))


def load(repository: Repository) -> tuple[str, dict[bytes, bytes] | None]:
    """Returns under which rules files were looked at the last time, and what was found: marks by path, each with the verdict.

    Args:
        repository: seen from the worktree.

    Returns:
        The digest of the rules, and the verdicts; None where there is no such file.
    """
    try:
        with open(_path(repository), "rb") as file:
            head, *records = file.read().split(b"\0")
    except OSError:
        return "", None
    if not head.startswith(_FORM):
        return "", {}
    found = {}
    for record in records:
        about, tab, path = record.partition(b"\t")
        if tab and about.count(b" ") == 3:
            found[path] = about
    return head.removeprefix(_FORM).decode("ascii", "replace"), found


def save(repository: Repository, key: str, known: dict[bytes, bytes]) -> None:
    """Keeps what was found, where that is possible: without it, the next capture looks again.

    Args:
        repository: seen from the worktree.
        key: the digest of the rules.
        known: marks by path, each with the verdict.
    """
    data = _FORM + key.encode() + b"".join(b"\0%s\t%s" % (about, path) for path, about in known.items())
    with contextlib.suppress(OSError):
        atomic.write_own(_path(repository), data, flushed=False)


def forget(repository: Repository) -> None:
    """Removes the file: nothing is converted any more. Args: as `load`."""
    with contextlib.suppress(OSError):
        os.unlink(_path(repository))


def _path(repository: Repository) -> str:
    return os.path.join(repository.git_dir, FILE)


# Which files git would not write again as they are: what it makes of their blobs is compared with what is on the disk.


_NO_RULES = "none"
_GRAIN = 2_000_000_000
"""In nanoseconds: the coarsest time stamps of file systems. What changed within may change again under the same one."""

_PORTION = 32 << 20
"""So many bytes of files are held in memory at once; of a single file, as many as it has."""

_MANY = 500
"""From so many blobs on, they go into a pack."""

_FAILED = "external filter"


@dataclass(slots=True)
class Converted:
    """What does not come back by itself. Paths are relative to the top."""

    raw: dict[bytes, str] = field(default_factory=dict)
    """Files that git would write otherwise than they are, with the oids of their bytes as they are."""

    left: list[bytes] = field(default_factory=list)
    """Files that git would, or may, write otherwise, and whose bytes are not to be kept."""

    required: set[bytes] = field(default_factory=set)
    """Files behind a filter that nothing is to go around."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What is not to be kept."""

    most: int | None = None
    """In bytes; larger files are not kept. None sets no limit."""

    refuses: Callable[[bytes], bool] = lambda _: False
    """Tells whether the bytes of a path must not be kept where a filter applies, whatever they are."""

    text: str = ""
    """What differs whenever one of these does."""

    regardless: Collection[bytes] = ()
    """Paths that are kept all the same."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that may come back otherwise."""

    path: bytes
    oid: str
    """Of its blob."""

    data: bytes
    treatment: Treatment
    status: os.stat_result


class Conversions:
    """Looks for what does not come back by itself.

    Args:
        index: lists the files of the worktree, each with the blob that stands for it.
        objects: into which bytes are written; None to write none.
        rules: what decides about conversions; None where nothing is converted.
        terms: what is not to be kept.
    """

    def __init__(
        self,
        index: PrivateIndex,
        objects: Objects | None,
        rules: AttributeRules | None,
        terms: Terms,
    ) -> None:
        self._index = index
        self._objects = objects
        self._format = index.repository.object_format
        self._rules = rules
        self._terms = terms
        self._most = terms.most
        self._top = index.repository.worktree or "."
        self._found = Converted()
        self._known: dict[bytes, bytes] = {}
        self._earlier: dict[bytes, bytes] | None = None
        self._pending: dict[str, bytes] = {}

    def look(self, besides: Collection[bytes] = ()) -> Converted:
        """Looks at all files.

        Args:
            besides: paths that are passed over.

        Raises:
            GitError: git cannot read the index, or write.
            DeadlinePassed: it took longer than the index may.
        """
        entries = list(_entries(self._index))
        key = self._key(entries)
        last_key, self._earlier = load(self._index.repository)
        before = (self._earlier or {}) if last_key == key else {}
        looked_at = 0
        fresh: list[tuple[bytes, str, os.stat_result]] = []
        fd = os.open(self._top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for path, oid in entries:
                status = _status(path, fd)
                if status is None or path in besides:
                    continue
                looked_at += 1
                last, _, verdict = before.get(path, b"").rpartition(b" ")
                if last == verdict_mark(oid, status) and self._holds(path, verdict):
                    self._known[path] = before[path]
                else:
                    fresh.append((path, oid, status))
            news = bool(fresh) or len(self._known) != len(before)
            self._judge(fresh, fd)
        finally:
            os.close(fd)
        if self._rules is None and len(self._known) == looked_at and all(mark.endswith(EXACT) for mark in self._known.values()):
            forget(self._index.repository)
        elif news:
            save(self._index.repository, key, self._known)
        return self._found

    def _key(self, entries: Iterable[tuple[bytes, str]]) -> str:
        if self._rules is None:
            return _NO_RULES
        unread = [b"%s %s" % (oid.encode(), path) for path, oid in entries if os.path.basename(path) == attributes.FILE]
        return self._rules.digest([*unread, self._terms.text.encode("utf-8", "surrogateescape")])

    def _holds(self, path: bytes, verdict: bytes) -> bool:
        """Takes over what was found the last time; tells whether that still is so."""
        if verdict == INEXACT:
            if path in self._terms.regardless:
                return False
            self._found.left.append(path)
        elif verdict == REQUIRED:
            self._found.required.add(path)
        elif verdict != EXACT:
            if self._objects is not None and self._index.repository.cat_file.info(verdict.decode("ascii")) is None:
                return False
            self._found.raw[path] = verdict.decode("ascii")
        return True

    def _judge(self, files: Sequence[tuple[bytes, str, os.stat_result]], fd: int) -> None:
        """Looks at files of which nothing is known."""
        paths = [path for path, _, _ in files]
        treatments = attributes.treatments(self._index, self._rules.configured, paths) if self._rules is not None else {}
        held: list[_Candidate] = []
        size = 0
        annexed = self._of_annex(files, treatments)
        for path, oid, status in files:
            self._index.require_time("check-attr")
            treatment = treatments.get(path, attributes.UNTOUCHED)
            converts = treatment.is_rewritten or treatment.is_text
            if treatment.is_required:
                self._found.required.add(path)
                self._settle(path, oid, status, REQUIRED)
            elif (not converts and self._earlier is None) or path in annexed:
                self._settle(path, oid, status, EXACT)
            elif self._was_to_stay_out(path, oid, status):
                self._settle(path, oid, status, INEXACT)
            elif self._most is not None and status.st_size > self._most and path not in self._terms.regardless:
                differs = treatment.is_rewritten or (converts and any(map(treatment.may_change, _pieces(path, fd))))
                differs = differs or self._is_otherwise(oid, status.st_size, _pieces(path, fd))
                self._settle(path, oid, status, INEXACT if differs else EXACT)
            else:
                data = b"".join(_pieces(path, fd))
                if not (converts and treatment.may_change(data)) and not self._is_otherwise(oid, len(data), [data]):
                    self._settle(path, oid, status, EXACT)
                    continue
                held.append(_Candidate(path, oid, data, treatment, status))
                size += len(data)
                if size > _PORTION:
                    self._compare(held, fd)
                    held, size = [], 0
        self._compare(held, fd)
        self._write(0)

    def _of_annex(self, files: Sequence[tuple[bytes, str, os.stat_result]], treatments: Mapping[bytes, Treatment]) -> Collection[bytes]:
        """Returns those of some files whose content git-annex keeps."""
        of_annex = {path: (oid, status.st_size) for path, oid, status in files if treatments.get(path, attributes.UNTOUCHED).is_annex}
        if not of_annex:
            return ()
        from gitckpt.git.contents import annex

        return annex.held(self._index.repository, of_annex)

    def _is_otherwise(self, oid: str, size: int, pieces: Iterable[bytes]) -> bool:
        """Tells whether a file is not its blob, byte for byte; only where rules may have been others when git compared them."""
        if self._earlier is None:
            return False
        found = object_hash(self._format, b"blob %d\0" % size)
        for piece in pieces:
            found.update(piece)
        return found.hexdigest() != oid

    def _was_to_stay_out(self, path: bytes, oid: str, status: os.stat_result) -> bool:
        """Tells whether a file that is as it was then was not to be kept under other rules: they kept something from everybody."""
        about, _, verdict = (self._earlier or {}).get(path, b"").rpartition(b" ")
        if about != verdict_mark(oid, status) or path in self._terms.regardless:
            return False
        return verdict == REQUIRED or (verdict == INEXACT and self._terms.refuses(path))

    def _compare(self, held: Sequence[_Candidate], fd: int) -> None:
        """Compares files with what git makes of their blobs."""
        for driver in sorted({one.treatment.driver for one in held}):
            some = [one for one in held if one.treatment.driver == driver]
            for one, smudged in zip(
                some, written_by_git(self._index, [(one.oid, one.path) for one in some], is_filtered=bool(driver)), strict=True
            ):
                if smudged == one.data:
                    verdict = EXACT
                elif not self._may_be_kept(one, smudged) or not self._is_of_blob(one, fd):
                    verdict = INEXACT
                else:
                    oid = object_id("blob", one.data, self._format)
                    self._found.raw[one.path] = oid
                    self._pending[oid] = one.data
                    verdict = oid.encode()
                self._settle(one.path, one.oid, one.status, verdict)
        self._write(_PORTION)

    def _may_be_kept(self, one: _Candidate, smudged: bytes | None) -> bool:
        """Tells whether nothing speaks against it: that a filter failed, or that it may leave out what nobody is to see."""
        if one.path in self._terms.regardless:
            return True
        return smudged is not None and not (one.treatment.driver and self._terms.refuses(one.path))

    def _is_of_blob(self, one: _Candidate, fd: int) -> bool:
        """Tells whether content belongs to the blob that stands for it: the file may have changed since that was made."""
        if one.status.st_ctime_ns < self._index.opened:
            now = _status(one.path, fd)
            return now is not None and now.st_ctime_ns == one.status.st_ctime_ns and len(one.data) == one.status.st_size
        words = ("-c", "core.safecrlf=false", "hash-object", "--stdin", f"--path={os.fsdecode(one.path)}")
        done = self._index.run(*words, data=one.data, ok=(0, 1, 128))
        return done.code == 0 and done.out.strip().decode("ascii") == one.oid

    def _settle(self, path: bytes, oid: str, status: os.stat_result, verdict: bytes) -> None:
        """Takes note of what was found of a file; where it changed lately, and that depends on its content, only for this time."""
        if verdict == INEXACT:
            self._found.left.append(path)
        if verdict == REQUIRED or status.st_ctime_ns < time.time_ns() - _GRAIN:
            self._known[path] = b"%s %s" % (verdict_mark(oid, status), verdict)

    def _write(self, most: int) -> None:
        """Writes the bytes that are to be kept, if they are more than `most`."""
        if not self._pending or sum(map(len, self._pending.values())) <= most:
            return
        items = [("blob", data) for data in self._pending.values()]
        self._pending.clear()
        if self._objects is None:
            return
        if len(items) < _MANY:
            self._objects.write(items, flushed=False)
        else:
            writer.write_pack(self._index.repository, items)


def written_by_git(
    index: PrivateIndex,
    wanted: Sequence[tuple[str, bytes]],
    *,
    is_filtered: bool,
    options: Sequence[str] = (),
) -> list[bytes | None]:
    """Returns what git writes to the worktree for each of some blobs; None where it cannot.

    Args:
        index: of the worktree.
        wanted: oids, each with the path at which it would be written.
        is_filtered: whether a filter applies: where it fails, git goes on without it, and nothing is known of any of them.
        options: for git, before its command.

    Raises:
        GitError: git cannot be run.
        DeadlinePassed: it took longer than the index may.
    """
    if not wanted:
        return []
    mark = os.urandom(16).hex()  # the sizes that git prints are those of the blobs
    plain = [(oid, path) for oid, path in wanted if not path.startswith((b" ", b"\t"))]  # git takes spaces there for its own
    data = b"".join(b"%s %s\0" % (oid.encode(), path) for oid, path in plain)
    words = [*options, "cat-file", "-z", "--filters", f"--batch={mark} %(objectname)"]
    done = index.run(*words, data=data, ok=(0, 128))
    parts = done.out.split(b"%s " % mark.encode())[1:]
    if is_filtered and _FAILED in done.complaint:
        return [None] * len(wanted)
    found: dict[bytes, bytes | None] = {}
    if done.code == 0 and len(parts) == len(plain):
        found = {path: part.partition(b"\n")[2][:-1] for (_, path), part in zip(plain, parts, strict=True)}
    return [found[path] if path in found else _one(index, oid, path, options) for oid, path in wanted]


def _one(index: PrivateIndex, oid: str, path: bytes, options: Sequence[str]) -> bytes | None:
    words = [*options, "cat-file", "--filters", f"--path={os.fsdecode(path)}"]
    done = index.run(*words, oid, ok=(0, 128))
    return done.out if done.code == 0 and _FAILED not in done.complaint else None


def _entries(index: PrivateIndex) -> Iterator[tuple[bytes, str]]:
    """Returns the files of an index, without links and what is in conflict: path and oid."""
    return ((path, oid) for path, mode, oid, stage, _ in index.entries() if stage == 0 and mode in FILES)


def _status(path: bytes, fd: int) -> os.stat_result | None:
    """Returns the stat data of a file; None where there is none."""
    try:
        status = os.lstat(path, dir_fd=fd)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _pieces(path: bytes, fd: int) -> Iterable[bytes]:
    """Yields the content of a file in pieces; nothing where it cannot be read."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd), "rb") as file:
            while piece := file.read(1 << 20):
                yield piece
    except OSError:
        return
