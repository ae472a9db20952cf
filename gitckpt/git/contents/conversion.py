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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gitckpt.git.contents import attributes
from gitckpt.git.contents.attributes import AttributeRules, Treatment
from gitckpt.git.files import regular
from gitckpt.git.objects import writer
from gitckpt.git.objects.encoding import FILES, object_hash, object_id
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.git.worktree.index import PrivateIndex

    Wanted = Sequence[tuple[str, bytes]]  # oids and paths

_File = tuple[bytes, str, os.stat_result]  # path, oid and stat data of an entry

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


def save(repository: Repository, key: str, verdicts: dict[bytes, bytes]) -> None:
    # Failure does no harm: the next capture compares again.
    records = b"".join(b"\0%s\t%s" % (about, path) for path, about in verdicts.items())
    data = _FORM + key.encode() + records
    with contextlib.suppress(OSError):
        regular.write_own(_path(repository), data, flushed=False)


def forget(repository: Repository) -> None:
    with contextlib.suppress(OSError):
        os.unlink(_path(repository))


def _path(repository: Repository) -> str:
    return os.path.join(repository.git_dir, FILE)


# The comparison.

_NO_RULES = "none"
# Nanoseconds: the coarsest time stamps of file systems. A file may change twice within one.
_GRAIN = 2_000_000_000
_PORTION = 32 << 20  # bytes of files in memory at once; a single larger file is held whole
_MANY = 500  # blobs from which on they are written as a pack

_FAILED = "external filter"


@dataclass(slots=True)
class Converted:
    """Files that git would not write as they are. Paths are relative to the top."""

    raw: dict[bytes, str] = field(default_factory=dict)  # with the oids of their bytes
    left: list[bytes] = field(default_factory=list)  # whose bytes must not be kept
    required: set[bytes] = field(default_factory=set)  # with a required filter: never bypass it


@dataclass(frozen=True, slots=True)
class Terms:
    """What bytes to keep; `refuses` tells secret paths, if a filter applies to them."""

    most: int | None = None  # bytes: larger files are not kept
    refuses: Callable[[bytes], bool] = lambda _: False
    text: str = ""  # differs whenever these terms do
    regardless: Collection[bytes] = ()  # paths that are kept in any case


@dataclass(frozen=True, slots=True)
class _Candidate:
    file: _File
    data: bytes
    treatment: Treatment


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
        self._top = index.repository.worktree or "."
        self._found = Converted()
        self._known: dict[bytes, bytes] = {}
        self._earlier: dict[bytes, bytes] | None = None
        self._pending: dict[str, bytes] = {}

    def look(self, besides: Collection[bytes] = ()) -> Converted:
        entries = [
            (path, oid)
            for path, mode, oid, stage, _ in self._index.entries()
            if stage == 0 and mode in FILES
        ]
        key = self._key(entries)
        last_key, self._earlier = load(self._index.repository)
        before = (self._earlier or {}) if last_key == key else {}
        looked_at = 0
        fresh: list[_File] = []
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
        are_exact = all(mark.endswith(EXACT) for mark in self._known.values())
        if self._rules is None and len(self._known) == looked_at and are_exact:
            forget(self._index.repository)
        elif news:
            save(self._index.repository, key, self._known)
        return self._found

    def _key(self, entries: Iterable[tuple[bytes, str]]) -> str:
        if self._rules is None:
            return _NO_RULES
        files = [entry for entry in entries if os.path.basename(entry[0]) == attributes.FILE]
        unread = [b"%s %s" % (oid.encode(), path) for path, oid in files]
        return self._rules.digest([*unread, self._terms.text.encode("utf-8", "surrogateescape")])

    def _holds(self, path: bytes, verdict: bytes) -> bool:
        if verdict == INEXACT and path in self._terms.regardless:
            return False
        is_kept = verdict not in (EXACT, INEXACT, REQUIRED) and self._objects is not None
        if is_kept and self._index.repository.cat_file.info(verdict.decode("ascii")) is None:
            return False
        self._note(path, verdict)
        return True

    def _note(self, path: bytes, verdict: bytes) -> None:
        if verdict == INEXACT:
            self._found.left.append(path)
        elif verdict == REQUIRED:
            self._found.required.add(path)
        elif verdict != EXACT:
            self._found.raw[path] = verdict.decode("ascii")

    def _judge(self, files: Sequence[_File], fd: int) -> None:
        treatments: Mapping[bytes, Treatment] = {}
        if self._rules is not None:
            paths = [path for path, _, _ in files]
            treatments = attributes.treatments(self._index, self._rules.configured, paths)
        held: list[_Candidate] = []
        size = 0
        annexed = self._of_annex(files, treatments)
        for file in files:
            self._index.require_time("check-attr")
            path, oid, status = file
            treatment = treatments.get(path, attributes.UNTOUCHED)
            converts = treatment.is_rewritten or treatment.is_text
            if treatment.is_required:
                self._settle(file, REQUIRED)
            elif (not converts and self._earlier is None) or path in annexed:
                self._settle(file, EXACT)
            elif self._was_to_stay_out(file):
                self._settle(file, INEXACT)
            elif self._is_too_large(path, status.st_size):
                size_of_file = status.st_size
                may_differ = converts and any(map(treatment.may_change, _pieces(path, fd)))
                may_differ = may_differ or self._is_otherwise(oid, size_of_file, _pieces(path, fd))
                self._settle(file, INEXACT if may_differ else EXACT)
            else:
                data = b"".join(_pieces(path, fd))
                may_differ = converts and treatment.may_change(data)
                if not may_differ and not self._is_otherwise(oid, len(data), [data]):
                    self._settle(file, EXACT)
                    continue
                held.append(_Candidate(file, data, treatment))
                size += len(data)
                if size > _PORTION:
                    self._compare(held, fd)
                    held, size = [], 0
        self._compare(held, fd)
        self._write(0)

    def _is_too_large(self, path: bytes, size: int) -> bool:
        most = self._terms.most
        return most is not None and size > most and path not in self._terms.regardless

    def _of_annex(
        self, files: Sequence[_File], treatments: Mapping[bytes, Treatment]
    ) -> Collection[bytes]:
        of_annex = {
            path: (oid, status.st_size)
            for path, oid, status in files
            if path in treatments and treatments[path].driver == attributes.ANNEX
        }
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

    def _was_to_stay_out(self, file: _File) -> bool:
        path, oid, status = file
        about, _, verdict = (self._earlier or {}).get(path, b"").rpartition(b" ")
        # An unchanged file that other rules kept secret is not kept under the present ones either.
        if about != verdict_mark(oid, status) or path in self._terms.regardless:
            return False
        return verdict == REQUIRED or (verdict == INEXACT and self._terms.refuses(path))

    def _compare(self, held: Sequence[_Candidate], fd: int) -> None:
        for driver in sorted({candidate.treatment.driver for candidate in held}):
            group = [candidate for candidate in held if candidate.treatment.driver == driver]
            wanted = [(oid, path) for path, oid, _ in (candidate.file for candidate in group)]
            written = written_by_git(self._index, wanted, is_filtered=bool(driver))
            for candidate, smudged in zip(group, written, strict=True):
                if smudged == candidate.data:
                    verdict = EXACT
                elif self._may_be_kept(candidate, smudged) and self._is_of_blob(candidate, fd):
                    oid = object_id("blob", candidate.data, self._format)
                    self._pending[oid] = candidate.data
                    verdict = oid.encode()
                else:
                    verdict = INEXACT
                self._settle(candidate.file, verdict)
        self._write(_PORTION)

    def _may_be_kept(self, candidate: _Candidate, smudged: bytes | None) -> bool:
        # Not if a filter failed, or may hide a secret.
        path = candidate.file[0]
        if path in self._terms.regardless:
            return True
        is_secret = candidate.treatment.driver and self._terms.refuses(path)
        return smudged is not None and not is_secret

    def _is_of_blob(self, candidate: _Candidate, fd: int) -> bool:
        # The file may have changed since its blob was made.
        path, oid, status = candidate.file
        if status.st_ctime_ns < self._index.opened:
            now = _status(path, fd)
            is_same = now is not None and now.st_ctime_ns == status.st_ctime_ns
            return is_same and len(candidate.data) == status.st_size
        words = ("hash-object", "--stdin", f"--path={os.fsdecode(path)}")
        options = ("-c", "core.safecrlf=false")
        done = self._index.run(*options, *words, data=candidate.data, ok=(0, 1, 128))
        return done.code == 0 and done.text == oid

    def _settle(self, file: _File, verdict: bytes) -> None:
        path, oid, status = file
        self._note(path, verdict)
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
    index: PrivateIndex, wanted: Wanted, *, is_filtered: bool, options: Sequence[str] = ()
) -> list[bytes | None]:
    """Return what git writes for each blob (oid and path); None if it cannot.

    If a filter applies (`is_filtered`) and fails, git goes on without it: no output is trusted.
    """
    if not wanted:
        return []
    mark = os.urandom(16).hex()  # the sizes that git prints are those of the blobs, unfiltered
    # git would skip leading blanks.
    plain = [(oid, path) for oid, path in wanted if not path.startswith((b" ", b"\t"))]
    data = b"".join(b"%s %s\0" % (oid.encode(), path) for oid, path in plain)
    words = [*options, "cat-file", "-z", "--filters", f"--batch={mark} %(objectname)"]
    done = index.run(*words, data=data, ok=(0, 128))
    parts = done.out.split(b"%s " % mark.encode())[1:]
    if is_filtered and _FAILED in done.complaint:
        return [None] * len(wanted)
    by_path: dict[bytes, bytes | None] = {}
    if done.code == 0 and len(parts) == len(plain):
        by_path = {
            path: part.partition(b"\n")[2][:-1]
            for (_, path), part in zip(plain, parts, strict=True)
        }
    return [
        by_path[path] if path in by_path else _one(index, oid, path, options)
        for oid, path in wanted
    ]


def _one(index: PrivateIndex, oid: str, path: bytes, options: Sequence[str]) -> bytes | None:
    words = [*options, "cat-file", "--filters", f"--path={os.fsdecode(path)}"]
    done = index.run(*words, oid, ok=(0, 128))
    return done.out if done.code == 0 and _FAILED not in done.complaint else None


def _status(path: bytes, fd: int) -> os.stat_result | None:
    try:
        status = os.lstat(path, dir_fd=fd)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _pieces(path: bytes, fd: int) -> Iterable[bytes]:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        with open(opened, "rb") as file:
            while piece := file.read(1 << 20):
                yield piece
    except OSError:
        return
