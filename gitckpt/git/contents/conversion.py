"""Find files that git would not write again as they are.

What git makes of a blob is compared with the file. A cached verdict holds while the stat data, the
blob and the rules stay the same. git itself goes by stat data: under new rules, it may call a file
unchanged that it would now store differently. So once verdicts are cached, files without one are
compared with their blobs even if nothing converts them any more.
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


# Cached verdicts: a derived file in the administrative directory of a worktree.

FILE = "ckpt-exact"

# Verdicts: the file is what git would write; it is not, and is not kept; a required filter applies.
# Any other verdict is the oid of the kept bytes.
EXACT, INEXACT, REQUIRED = b"=", b"!", b"-"

_FORM = b"gitckpt exact 1 "


def verdict_mark(oid: str, status: os.stat_result) -> bytes:
    return b"%s %d %d" % (oid.encode(), status.st_ctime_ns, status.st_ino)


def are_there(repository: Repository) -> bool:
    return os.path.exists(_path(repository))


def load(repository: Repository) -> tuple[str, dict[bytes, bytes] | None]:
    """Return the rules' digest and verdicts with marks by path; None without a file."""
    try:
        with open(_path(repository), "rb") as file:
            head, *records = file.read().split(b"\0")
    except OSError:
        return "", None
    if not head.startswith(_FORM):
        return "", {}
    verdicts = {}
    for record in records:
        about, tab, path = record.partition(b"\t")
        if tab and about.count(b" ") == 3:
            verdicts[path] = about
    return head.removeprefix(_FORM).decode("ascii", "replace"), verdicts


def save(repository: Repository, key: str, known: dict[bytes, bytes]) -> None:
    # Failure does no harm: the next capture compares again.
    data = _FORM + key.encode() + b"".join(b"\0%s\t%s" % (about, path) for path, about in known.items())
    with contextlib.suppress(OSError):
        atomic.write_own(_path(repository), data, flushed=False)


def forget(repository: Repository) -> None:
    with contextlib.suppress(OSError):
        os.unlink(_path(repository))


def _path(repository: Repository) -> str:
    return os.path.join(repository.git_dir, FILE)


# The comparison.

_NO_RULES = "none"
# In nanoseconds: the coarsest time stamps of file systems. A file may change twice within one.
_GRAIN = 2_000_000_000

# In bytes of files held in memory at once; a single larger file is held whole.
_PORTION = 32 << 20

# From this many blobs on, they are written as a pack.
_MANY = 500

_FAILED = "external filter"


@dataclass(slots=True)
class Converted:
    """Files that git would not write as they are. Paths are relative to the top."""

    # Files that git would write differently, with the oids of their bytes.
    raw: dict[bytes, str] = field(default_factory=dict)
    # Files that git would or may write differently, and whose bytes must not be kept.
    left: list[bytes] = field(default_factory=list)
    # Files with a required filter, which nothing may bypass.
    required: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Terms:
    # In bytes; larger files are not kept. None sets no limit.
    most: int | None = None
    # Returns whether the bytes of a path must not be kept if a filter applies.
    refuses: Callable[[bytes], bool] = lambda _: False
    # Differs whenever these terms do.
    text: str = ""
    # Paths that are kept in any case.
    regardless: Collection[bytes] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    path: bytes
    oid: str
    data: bytes
    treatment: Treatment
    status: os.stat_result


class Conversions:
    """A search for files that git would not write as they are; keeps their bytes."""

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
        of_annex = {path: (oid, status.st_size) for path, oid, status in files if treatments.get(path, attributes.UNTOUCHED).is_annex}
        if not of_annex:
            return ()
        from gitckpt.git.contents import annex

        return annex.held(self._index.repository, of_annex)

    def _is_otherwise(self, oid: str, size: int, pieces: Iterable[bytes]) -> bool:
        # Under other rules, git may have called the file unchanged: it goes by stat data.
        if self._earlier is None:
            return False
        digest = object_hash(self._format, b"blob %d\0" % size)
        for piece in pieces:
            digest.update(piece)
        return digest.hexdigest() != oid

    def _was_to_stay_out(self, path: bytes, oid: str, status: os.stat_result) -> bool:
        about, _, verdict = (self._earlier or {}).get(path, b"").rpartition(b" ")
        # An unchanged file that other rules kept secret is not kept under the present ones either.
        if about != verdict_mark(oid, status) or path in self._terms.regardless:
            return False
        return verdict == REQUIRED or (verdict == INEXACT and self._terms.refuses(path))

    def _compare(self, held: Sequence[_Candidate], fd: int) -> None:
        for driver in sorted({file.treatment.driver for file in held}):
            group = [file for file in held if file.treatment.driver == driver]
            for file, smudged in zip(
                group, written_by_git(self._index, [(file.oid, file.path) for file in group], is_filtered=bool(driver)), strict=True
            ):
                if smudged == file.data:
                    verdict = EXACT
                elif not self._may_be_kept(file, smudged) or not self._is_of_blob(file, fd):
                    verdict = INEXACT
                else:
                    oid = object_id("blob", file.data, self._format)
                    self._found.raw[file.path] = oid
                    self._pending[oid] = file.data
                    verdict = oid.encode()
                self._settle(file.path, file.oid, file.status, verdict)
        self._write(_PORTION)

    def _may_be_kept(self, one: _Candidate, smudged: bytes | None) -> bool:
        # Not if a filter failed, or may hide a secret.
        if one.path in self._terms.regardless:
            return True
        return smudged is not None and not (one.treatment.driver and self._terms.refuses(one.path))

    def _is_of_blob(self, one: _Candidate, fd: int) -> bool:
        # The file may have changed since its blob was made.
        if one.status.st_ctime_ns < self._index.opened:
            now = _status(one.path, fd)
            return now is not None and now.st_ctime_ns == one.status.st_ctime_ns and len(one.data) == one.status.st_size
        words = ("-c", "core.safecrlf=false", "hash-object", "--stdin", f"--path={os.fsdecode(one.path)}")
        done = self._index.run(*words, data=one.data, ok=(0, 1, 128))
        return done.code == 0 and done.out.strip().decode("ascii") == one.oid

    def _settle(self, path: bytes, oid: str, status: os.stat_result, verdict: bytes) -> None:
        if verdict == INEXACT:
            self._found.left.append(path)
        # A file that changed lately may change again under the same time stamp.
        if verdict == REQUIRED or status.st_ctime_ns < time.time_ns() - _GRAIN:
            self._known[path] = b"%s %s" % (verdict_mark(oid, status), verdict)

    def _write(self, most: int) -> None:
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
    """Return what git writes for each blob (oid and path); None if it cannot.

    If a filter applies (`is_filtered`) and fails, git goes on without it: no output is trusted.
    """
    if not wanted:
        return []
    mark = os.urandom(16).hex()  # the sizes that git prints are those of the blobs, unfiltered
    plain = [(oid, path) for oid, path in wanted if not path.startswith((b" ", b"\t"))]  # git would skip leading blanks
    data = b"".join(b"%s %s\0" % (oid.encode(), path) for oid, path in plain)
    words = [*options, "cat-file", "-z", "--filters", f"--batch={mark} %(objectname)"]
    done = index.run(*words, data=data, ok=(0, 128))
    parts = done.out.split(b"%s " % mark.encode())[1:]
    if is_filtered and _FAILED in done.complaint:
        return [None] * len(wanted)
    by_path: dict[bytes, bytes | None] = {}
    if done.code == 0 and len(parts) == len(plain):
        by_path = {path: part.partition(b"\n")[2][:-1] for (_, path), part in zip(plain, parts, strict=True)}
    return [by_path[path] if path in by_path else _one(index, oid, path, options) for oid, path in wanted]


def _one(index: PrivateIndex, oid: str, path: bytes, options: Sequence[str]) -> bytes | None:
    words = [*options, "cat-file", "--filters", f"--path={os.fsdecode(path)}"]
    done = index.run(*words, oid, ok=(0, 128))
    return done.out if done.code == 0 and _FAILED not in done.complaint else None


def _entries(index: PrivateIndex) -> Iterator[tuple[bytes, str]]:
    return ((path, oid) for path, mode, oid, stage, _ in index.entries() if stage == 0 and mode in FILES)


def _status(path: bytes, fd: int) -> os.stat_result | None:
    try:
        status = os.lstat(path, dir_fd=fd)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _pieces(path: bytes, fd: int) -> Iterable[bytes]:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd), "rb") as file:
            while piece := file.read(1 << 20):
                yield piece
    except OSError:
        return
