"""Find files that differ from what git would write for their blobs.

A verdict says whether a file differs. A cached one is valid while the stat data, the blob and the
conversion rules stay the same. Under new rules, git may call a file unchanged that it would now
store differently. Once verdicts are cached, each file without one is compared, even if no rule
applies.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gitckpt.git.contents import attributes
from gitckpt.git.contents.attributes import AttributeRules, FileConversion
from gitckpt.git.files import regular
from gitckpt.git.objects import writer
from gitckpt.git.objects.encoding import FILES, object_hash, object_id
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.writer import ObjectDatabase

_File = tuple[bytes, str, os.stat_result]  # path, oid and stat data of an entry

# Cached verdicts: a derived file in the administrative directory of a worktree.

FILE = "ckpt-exact"

# Verdicts: git would write these bytes; it would not, so no snapshot stores them; a filter is
# required for the file. Any other verdict is the oid of the blob that stores the bytes.
EXACT, INEXACT, REQUIRED = b"=", b"!", b"-"

_FORM = b"gitckpt exact 1 "


def encode_file_state(oid: str, status: os.stat_result) -> bytes:
    return b"%s %d %d" % (oid.encode(), status.st_ctime_ns, status.st_ino)


def has_conversion_cache(repository: Repository) -> bool:
    return os.path.exists(_conversion_cache_path(repository))


def load_conversion_cache(repository: Repository) -> tuple[str, dict[bytes, bytes] | None]:
    """Read the cached results of an earlier comparison.

    Returns the digest of the conversion rules and the verdicts by path; None without a cache.
    """
    try:
        with open(_conversion_cache_path(repository), "rb") as file:
            header, *records = file.read().split(b"\0")
    except OSError:
        return "", None
    if not header.startswith(_FORM):
        return "", {}
    fields = (record.partition(b"\t") for record in records)
    verdicts = {path: verdict for verdict, tab, path in fields if tab and verdict.count(b" ") == 3}
    return header.removeprefix(_FORM).decode("ascii", "replace"), verdicts


def save_conversion_cache(repository: Repository, key: str, verdicts: dict[bytes, bytes]) -> None:
    # Failure does no harm: the next capture compares again.
    records = b"".join(b"\0%s\t%s" % (verdict, path) for path, verdict in verdicts.items())
    data = _FORM + key.encode() + records
    with contextlib.suppress(OSError):
        regular.write_private_file(_conversion_cache_path(repository), data, flushed=False)


def delete_conversion_cache(repository: Repository) -> None:
    with contextlib.suppress(OSError):
        os.unlink(_conversion_cache_path(repository))


def _conversion_cache_path(repository: Repository) -> str:
    return os.path.join(repository.git_dir, FILE)


# The comparison.

_NO_RULES = "none"
# Nanoseconds: the coarsest time stamps of file systems. A file may change twice within one.
_GRAIN = 2_000_000_000
_PORTION = 32 << 20  # bytes of files in memory at once; a single larger file is held whole
_MANY = 500  # blobs from which on they are written as a pack

_FAILED = "external filter"


@dataclass(slots=True)
class ConvertedFiles:
    """Files whose bytes differ from what git would write for their blobs."""

    raw: dict[bytes, str] = field(default_factory=dict)  # path → oid of the blob with the bytes
    skipped: list[bytes] = field(default_factory=list)  # paths: their bytes must not be stored
    # Paths with a required filter, which is never bypassed.
    required: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class RawStorageRules:
    """Decides whether a snapshot stores the raw bytes of a file beside git's version."""

    max_size: int | None = None  # bytes: larger files are skipped
    is_secret: Callable[[bytes], bool] = lambda _: False  # for paths to which a filter applies
    text: str = ""  # the rules as text, to detect changes
    always: Collection[bytes] = ()  # paths that are stored in any case


@dataclass(frozen=True, slots=True)
class _Candidate:
    file: _File
    data: bytes
    treatment: FileConversion


class ConversionSearch:
    """Find files whose bytes a checkout would not restore; store the bytes as blobs."""

    def __init__(
        self,
        index: PrivateIndex,
        objects: ObjectDatabase | None,
        rules: AttributeRules | None,
        terms: RawStorageRules,
    ) -> None:
        self._index = index
        self._objects = objects
        self._format = index.repository.object_format
        self._rules = rules
        self._terms = terms
        self._top = index.repository.worktree or "."
        self._result = ConvertedFiles()
        self._verdicts: dict[bytes, bytes] = {}
        self._old_verdicts: dict[bytes, bytes] | None = None
        self._pending: dict[str, bytes] = {}

    def find_converted_files(self, excluded: Collection[bytes]) -> ConvertedFiles:
        entries = [
            (path, oid)
            for path, mode, oid, stage, _ in self._index.list_entries()
            if stage == 0 and mode in FILES
        ]
        key = self._hash_rules(entries)
        old_key, self._old_verdicts = load_conversion_cache(self._index.repository)
        valid_verdicts = (self._old_verdicts or {}) if old_key == key else {}
        count = 0
        files: list[_File] = []
        top_fd = os.open(self._top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for path, oid in entries:
                status = _read_file_status(path, top_fd)
                if status is None or path in excluded:
                    continue
                count += 1
                state, _, verdict = valid_verdicts.get(path, b"").rpartition(b" ")
                if state == encode_file_state(oid, status) and self._reuse_verdict(path, verdict):
                    self._verdicts[path] = valid_verdicts[path]
                else:
                    files.append((path, oid, status))
            has_changed = bool(files) or len(self._verdicts) != len(valid_verdicts)
            self._judge_files(files, top_fd)
        finally:
            os.close(top_fd)
        are_exact = all(state.endswith(EXACT) for state in self._verdicts.values())
        if self._rules is None and len(self._verdicts) == count and are_exact:
            delete_conversion_cache(self._index.repository)
        elif has_changed:
            save_conversion_cache(self._index.repository, key, self._verdicts)
        return self._result

    def _hash_rules(self, entries: Iterable[tuple[bytes, str]]) -> str:
        if self._rules is None:
            return _NO_RULES
        files = [entry for entry in entries if os.path.basename(entry[0]) == attributes.FILE]
        unread = [b"%s %s" % (oid.encode(), path) for path, oid in files]
        return self._rules.digest([*unread, self._terms.text.encode("utf-8", "surrogateescape")])

    def _reuse_verdict(self, path: bytes, verdict: bytes) -> bool:
        if verdict == INEXACT and path in self._terms.always:
            return False
        is_stored = verdict not in (EXACT, INEXACT, REQUIRED) and self._objects is not None
        if is_stored and self._index.repository.cat_file.info(verdict.decode("ascii")) is None:
            return False
        self._add_to_result(path, verdict)
        return True

    def _add_to_result(self, path: bytes, verdict: bytes) -> None:
        if verdict == INEXACT:
            self._result.skipped.append(path)
        elif verdict == REQUIRED:
            self._result.required.add(path)
        elif verdict != EXACT:
            self._result.raw[path] = verdict.decode("ascii")

    def _judge_files(self, files: Sequence[_File], fd: int) -> None:
        treatments: Mapping[bytes, FileConversion] = {}
        if self._rules is not None:
            paths = [path for path, _, _ in files]
            treatments = attributes.find_conversions(self._index, self._rules.configured, paths)
        candidates: list[_Candidate] = []
        total_size = 0
        annexed_paths = self._find_annexed_files(files, treatments)
        for file in files:
            self._index.require_time_left("check-attr")
            path, oid, status = file
            treatment = treatments.get(path, attributes.UNTOUCHED)
            converts = treatment.is_rewritten or treatment.is_text
            if treatment.is_required:
                self._record_verdict(file, REQUIRED)
            elif (not converts and self._old_verdicts is None) or path in annexed_paths:
                self._record_verdict(file, EXACT)
            elif self._was_secret_file(file):
                self._record_verdict(file, INEXACT)
            elif self._is_too_large(path, size := status.st_size):
                may_differ = converts and any(map(treatment.may_change, _read_pieces(path, fd)))
                may_differ = may_differ or self._is_other_blob(oid, size, _read_pieces(path, fd))
                self._record_verdict(file, INEXACT if may_differ else EXACT)
            else:
                data = b"".join(_read_pieces(path, fd))
                may_differ = converts and treatment.may_change(data)
                if not may_differ and not self._is_other_blob(oid, len(data), [data]):
                    self._record_verdict(file, EXACT)
                    continue
                candidates.append(_Candidate(file, data, treatment))
                total_size += len(data)
                if total_size > _PORTION:
                    self._compare_with_checkout(candidates, fd)
                    candidates, total_size = [], 0
        self._compare_with_checkout(candidates, fd)
        self._write_pending_blobs(0)

    def _is_too_large(self, path: bytes, size: int) -> bool:
        limit = self._terms.max_size
        return limit is not None and size > limit and path not in self._terms.always

    def _find_annexed_files(
        self, files: Sequence[_File], treatments: Mapping[bytes, FileConversion]
    ) -> Collection[bytes]:
        files_of_annex = {
            path: (oid, status.st_size)
            for path, oid, status in files
            if path in treatments and treatments[path].driver == attributes.ANNEX
        }
        if not files_of_annex:
            return ()
        from gitckpt.git.contents import unfiltered

        return unfiltered.find_annexed(self._index.repository, files_of_annex)

    def _is_other_blob(self, oid: str, size: int, pieces: Iterable[bytes]) -> bool:
        # Under other rules, git may have called the file unchanged: it goes by stat data.
        if self._old_verdicts is None:
            return False
        digest = object_hash(self._format, b"blob %d\0" % size)
        for piece in pieces:
            digest.update(piece)
        return digest.hexdigest() != oid

    def _was_secret_file(self, file: _File) -> bool:
        path, oid, status = file
        state, _, verdict = (self._old_verdicts or {}).get(path, b"").rpartition(b" ")
        # An unchanged file that other rules kept secret is not kept under the present ones either.
        if state != encode_file_state(oid, status) or path in self._terms.always:
            return False
        return verdict == REQUIRED or (verdict == INEXACT and self._terms.is_secret(path))

    def _compare_with_checkout(self, candidates: Sequence[_Candidate], fd: int) -> None:
        for driver in sorted({candidate.treatment.driver for candidate in candidates}):
            chosen = [candidate for candidate in candidates if candidate.treatment.driver == driver]
            blobs = [(oid, path) for path, oid, _ in (candidate.file for candidate in chosen)]
            contents = convert_blobs(self._index, blobs, is_filtered=bool(driver))
            for candidate, output in zip(chosen, contents, strict=True):
                if output == candidate.data:
                    verdict = EXACT
                elif self._may_be_stored(candidate, output) and self._matches_blob(candidate, fd):
                    oid = object_id("blob", candidate.data, self._format)
                    self._pending[oid] = candidate.data
                    verdict = oid.encode()
                else:
                    verdict = INEXACT
                self._record_verdict(candidate.file, verdict)
        self._write_pending_blobs(_PORTION)

    def _may_be_stored(self, candidate: _Candidate, written_content: bytes | None) -> bool:
        # Not if a filter failed, or may hide a secret.
        path = candidate.file[0]
        is_secret = candidate.treatment.driver and self._terms.is_secret(path)
        return path in self._terms.always or (written_content is not None and not is_secret)

    def _matches_blob(self, candidate: _Candidate, fd: int) -> bool:
        # The file may have changed since its blob was made.
        path, oid, status = candidate.file
        if status.st_ctime_ns < self._index.opened:
            new_status = _read_file_status(path, fd)
            is_unchanged = new_status is not None and new_status.st_ctime_ns == status.st_ctime_ns
            return is_unchanged and len(candidate.data) == status.st_size
        words = ("hash-object", "--stdin", f"--path={os.fsdecode(path)}")
        options = ("-c", "core.safecrlf=false")
        result = self._index.run(*options, *words, data=candidate.data, ok=(0, 1, 128))
        return result.code == 0 and result.text == oid

    def _record_verdict(self, file: _File, verdict: bytes) -> None:
        path, oid, status = file
        self._add_to_result(path, verdict)
        # A file that changed lately may change again under the same time stamp.
        if verdict == REQUIRED or status.st_ctime_ns < time.time_ns() - _GRAIN:
            self._verdicts[path] = b"%s %s" % (encode_file_state(oid, status), verdict)

    def _write_pending_blobs(self, limit: int) -> None:
        if sum(map(len, self._pending.values())) <= limit:
            return
        items = [("blob", data) for data in self._pending.values()]
        self._pending.clear()
        if self._objects is not None and len(items) < _MANY:
            self._objects.write(items, flushed=False)
        elif self._objects is not None:
            writer.write_pack(self._index.repository, items)


def convert_blobs(
    index: PrivateIndex,
    blobs: Sequence[tuple[str, bytes]],
    *,
    is_filtered: bool,
    options: Sequence[str] = (),
) -> list[bytes | None]:
    """Return what a checkout would write for each blob and path; None on failure."""
    if not blobs:
        return []
    separator = os.urandom(16).hex()  # the sizes that git prints are those of the blobs, unfiltered
    # git would skip leading blanks.
    batched_blobs = [(oid, path) for oid, path in blobs if not path.startswith((b" ", b"\t"))]
    data = b"".join(b"%s %s\0" % (oid.encode(), path) for oid, path in batched_blobs)
    words = [*options, "cat-file", "-z", "--filters", f"--batch={separator} %(objectname)"]
    result = index.run(*words, data=data, ok=(0, 128))
    parts = result.out.split(b"%s " % separator.encode())[1:]
    # git goes on without a filter that fails: no output is trusted.
    if is_filtered and _FAILED in result.error_text:
        return [None] * len(blobs)
    is_complete = result.code == 0 and len(parts) == len(batched_blobs)
    contents = [part.partition(b"\n")[2][:-1] for part in parts] if is_complete else []
    content_by_path = dict(zip((path for _, path in batched_blobs), contents, strict=False))
    return [
        content_by_path[path] if path in content_by_path else _smudge(index, oid, path, options)
        for oid, path in blobs
    ]


def _smudge(index: PrivateIndex, oid: str, path: bytes, options: Sequence[str]) -> bytes | None:
    words = [*options, "cat-file", "--filters", f"--path={os.fsdecode(path)}"]
    result = index.run(*words, oid, ok=(0, 128))
    return result.out if result.code == 0 and _FAILED not in result.error_text else None


def _read_file_status(path: bytes, fd: int) -> os.stat_result | None:
    try:
        status = os.lstat(path, dir_fd=fd)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _read_pieces(path: bytes, fd: int) -> Iterable[bytes]:
    try:
        file_fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        with open(file_fd, "rb") as file:
            while piece := file.read(1 << 20):
                yield piece
    except OSError:
        return
