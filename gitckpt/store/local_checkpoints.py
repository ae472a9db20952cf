"""Keep files that list the documents written in this clone.

After a fetch, a checkpoint's ref may point to a foreign document; its oid then differs from the
listed oid. A line is written before the refs of its checkpoint, so after a kill a line may exist
without a checkpoint. The hook imports this module.
"""

from __future__ import annotations

import contextlib
import os
import time

from gitckpt.git.files import private_dirs
from gitckpt.model import ids, times
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.store import error_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Protocol

    from gitckpt.git.repository import Repository

    class RecordedCheckpoint(Protocol):
        @property
        def id(self) -> str: ...
        @property
        def oid(self) -> str: ...
        @property
        def run(self) -> str | None: ...

    # Oid of the document; `_IN`, `_FROM` or `_COPIED`; key of the worktree.
    Written = tuple[str, str, str]

# Documents of runs: a file per run lists the oids written in this clone. Only from a listed
# document can a run continue without `--trust`.

DIRECTORY = "chains"
_TAIL = 4096  # bytes to search first: most lookups are for the newest of up to 100,000 lines


def extend_run_file(
    repository: Repository, run: str, head: str, oids: Sequence[str], *, drives: bool = False
) -> list[str]:
    """Append the oids of new documents to a run's file; return paths to fsync.

    `oids` are oldest first; `head` is the run's newest document, or "" for a new run. If another
    clone wrote `head`, this appends nothing, or raises CkptError if a driver writes (`drives`).
    """
    if head and not is_document_local(repository, run, head):
        if drives:
            problem = f"the newest checkpoint of run {run} was not written in this clone: "
            problem += "perhaps a fetch replaced the ref"
            raise CkptError(problem, hint=f"see the fetched checkpoint: git ckpt resume {run}")
        return []
    return append_oids(repository, run, oids)


def append_oids(repository: Repository, run: str, oids: Sequence[str]) -> list[str]:
    path = _run_path(repository, run)
    directory = os.path.dirname(path)
    try:
        if not os.path.isdir(directory):
            repository.make_private_dir()
        private_dirs.check_private(directory, repository.common_dir, make=True)
        with open(path, "ab", buffering=0, opener=private_dirs.open_private_file) as file:
            is_new = not os.fstat(file.fileno()).st_size
            # The first newline ends a line that a full disk cut off.
            lines = b"\n%s\n" % "\n".join(oids).encode("ascii") if oids else b""
            if lines and file.write(lines) < len(lines):
                raise OSError(0, "there is no room for a whole line")
    except (WorktreeError, OSError) as error:
        problem = error.message if isinstance(error, WorktreeError) else error.strerror
        cure = f"to continue the run: git ckpt resume {run} --trust"
        with contextlib.suppress(CkptError):  # if the disk is full, recording fails too
            error_log.append_to_log(repository, f"cannot write {path}: {problem}; {cure}")
        return []
    return [path, *([directory, repository.private_dir, repository.common_dir] if is_new else [])]


def is_document_local(repository: Repository, run: str, oid: str) -> bool:
    """Return whether this clone wrote or adopted the document `oid` of a run."""
    oid_line = oid.encode("ascii", "replace")
    return any(oid_line in _read_oids(repository, run, byte_count) for byte_count in (_TAIL, None))


def list_oids_after(repository: Repository, run: str, oid: str) -> list[bytes]:
    oids, oid_bytes = _read_oids(repository, run, _TAIL), oid.encode("ascii", "replace")
    return oids[: oids.index(oid_bytes) : -1] if oid_bytes in oids else []


def read_local_oids(repository: Repository, run: str) -> frozenset[str]:
    return frozenset(oid.decode("ascii", "replace") for oid in _read_oids(repository, run))


def _read_oids(repository: Repository, run: str, size: int | None = None) -> list[bytes]:
    if not ids.is_run_id(run):
        return []
    return private_dirs.read_private_file(_run_path(repository, run), size).split()


def delete_run_file(repository: Repository, run: str) -> None:
    with contextlib.suppress(OSError):  # maintenance tries again
        os.unlink(_run_path(repository, run))


def forget_removed_runs(repository: Repository, existing: Callable[[], Collection[str]]) -> None:
    directory = os.path.join(repository.private_dir, DIRECTORY)
    try:
        old_runs = [
            entry.name
            for entry in os.scandir(directory)
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > times.GRACE
        ]
    except OSError:
        return
    for run in set(old_runs).difference(existing() if old_runs else ()):
        delete_run_file(repository, run)


def _run_path(repository: Repository, run: str) -> str:
    return f"{repository.private_dir}/{DIRECTORY}/{run}"


# Checkpoints: lines `<id> <oid> in|from|copied <worktree name>:<creation time>` in one file of the
# private directory.

FILE = "written"

# "in": the worktree's files were captured. "from": a run was started, imported or adopted in the
# worktree. "copied": another checkpoint captured the files (of a fork, or a submodule's copy).
_IN, _FROM, _COPIED = "in", "from", "copied"

_FEW = 64  # search the file for at most this many ids; for more, parse all lines
_COMMONDIR = "commondir"
MAIN = ":"  # the main worktree in a line


def worktree_name(repository: Repository) -> str:
    return os.path.basename(repository.git_dir) if repository.is_linked else ""


def worktree_creation_time(repository: Repository) -> str:
    return _git_dir_creation_time(repository.git_dir) if repository.is_linked else ""


def worktree_key(repository: Repository) -> str:
    """Return a key of this worktree that does not change if the worktree moves."""
    return worktree_key_in(repository.git_dir) if repository.is_linked else MAIN


def worktree_key_in(git_dir: str) -> str:
    return f"{os.path.basename(git_dir)}:{_git_dir_creation_time(git_dir)}".replace("\n", "?")


def _git_dir_creation_time(git_dir: str) -> str:
    with contextlib.suppress(OSError):
        return str(os.stat(os.path.join(git_dir, _COMMONDIR)).st_mtime_ns)
    return ""


def append_lines(
    repository: Repository,
    documents: Iterable[tuple[str, str]],
    *,
    is_apart: bool = False,
    flushed: bool = False,
    kind: str = "",
) -> None:
    line_end = f"{kind or (_FROM if is_apart else _IN)} {worktree_key(repository)}\n"
    text = "".join(f"{checkpoint_id} {oid} {line_end}" for checkpoint_id, oid in documents)
    if text:
        with contextlib.suppress(OSError):
            path = os.path.join(repository.make_private_dir(), FILE)
            # The line before may have been cut off.
            private_dirs.append_to_private_file(path, os.fsencode(f"\n{text}"), flushed=flushed)


def append_forked_checkpoint(repository: Repository, checkpoint_id: str) -> None:
    if oid := _read_ref_oid(repository, checkpoint_id):
        append_lines(repository, [(checkpoint_id, oid)], kind=_COPIED)


def create_list_file(repository: Repository) -> None:
    """Create `FILE`: if it is missing, the shell hook starts the slow Python hook."""
    private_dirs.append_to_private_file(os.path.join(repository.make_private_dir(), FILE), b"")


def copy_lines(source: Repository, target: Repository, checkpoint_ids: Collection[str]) -> None:
    local = LocalCheckpoints.read(source, checkpoint_ids)
    for kind, is_copied in ((_FROM, False), (_COPIED, True)):
        names = [id_ for id_ in checkpoint_ids if local.has_captured_files(id_) == is_copied]
        oids = ((id_, local.find_oid(id_)) for id_ in names)
        append_lines(target, [(id_, oid) for id_, oid in oids if oid is not None], kind=kind)


def is_captured_here(repository: Repository, checkpoint_id: str) -> bool:
    local = LocalCheckpoints.read(repository, [checkpoint_id])
    oid = _read_ref_oid(repository, checkpoint_id)
    has_document = oid is not None and local.has_document(checkpoint_id, oid)
    return has_document and local.has_captured_files(checkpoint_id)


def replaced_error(checkpoint_id: str, hint_end: str = "") -> WorktreeError:
    problem = f"a fetch has replaced the document of checkpoint {checkpoint_id[: ids.SHORT]}"
    hint = f"put back what was written here: git ckpt verify --repair{hint_end}"
    return WorktreeError(problem, hint=hint)


class LocalCheckpoints:
    """The checkpoints written in this clone, with oid and worktree of each one."""

    def __init__(self, repository: Repository, lines: Mapping[str, Written]) -> None:
        self._repository = repository
        self._lines = lines

    @classmethod
    def read(
        cls, repository: Repository, checkpoint_ids: Collection[str] | None = None
    ) -> LocalCheckpoints:
        data = private_dirs.read_private_file(_path(repository))
        if checkpoint_ids is None or len(checkpoint_ids) > _FEW:
            lines = data.split(b"\n")
        else:
            lines = [_find_last_line(data, checkpoint_id) for checkpoint_id in checkpoint_ids]
        return cls(repository, dict(filter(None, map(_parse_line, lines))))

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __bool__(self) -> bool:
        return bool(self._lines)

    def find_oid(self, checkpoint_id: str) -> str | None:
        return self._lines.get(checkpoint_id, (None,))[0]

    def has_document(self, checkpoint_id: str, oid: str) -> bool:
        return self.find_oid(checkpoint_id) == oid

    def is_replaced(self, checkpoint_id: str, oid: str) -> bool:
        return self.find_oid(checkpoint_id) not in (None, oid)

    def is_written_here(self, entry: RecordedCheckpoint) -> bool:
        if entry.run is None:
            return self.has_document(entry.id, entry.oid)
        return is_document_local(self._repository, entry.run, entry.oid)

    def was_captured_in(self, checkpoint_id: str, key: str) -> bool:
        return self._lines.get(checkpoint_id, ("",))[1:] == (_IN, key)

    def has_captured_files(self, checkpoint_id: str) -> bool:
        return self._lines.get(checkpoint_id, ("", "", ""))[1] in (_IN, _COPIED)

    def find_worktree_key(self, checkpoint_id: str) -> str | None:
        return self._lines.get(checkpoint_id, (None, None, None))[2]

    def list_unreplaced_ids(self, oids: Mapping[str, str]) -> set[str]:
        return {id_ for id_, fields in self._lines.items() if oids.get(id_) == fields[0]}

    def replaced_oids(self, oids: Mapping[str, str]) -> dict[str, str]:
        replaced_ids = (id_ for id_, oid in oids.items() if self.is_replaced(id_, oid))
        return {id_: self._lines[id_][0] for id_ in replaced_ids}


def forget_removed_checkpoints(
    repository: Repository, existing: Callable[[], Collection[str]]
) -> None:
    """Drop the lines of removed checkpoints; the caller holds the write lock of refs."""
    lines = private_dirs.read_private_file(_path(repository)).split(b"\n")
    if len(lines) <= 2 * _FEW:
        return
    existing_ids = existing()
    parsed = ((_parse_line(line), line) for line in lines)
    lines_by_id = {entry[0]: line for entry, line in parsed if entry and entry[0] in existing_ids}
    if len(lines) <= 2 * (len(lines_by_id) + _FEW):
        return
    from gitckpt.git.files import regular  # seldom needed

    data = b"".join(b"\n%s" % line for line in lines_by_id.values()) + b"\n"
    with contextlib.suppress(OSError):  # the next maintenance tries again
        opener = private_dirs.open_private_file
        regular.write_private_file(_path(repository), data, flushed=True, opener=opener)


def _read_ref_oid(repository: Repository, checkpoint_id: str) -> str | None:
    from gitckpt.store import notes  # not needed to record

    object_info = repository.cat_file.info(notes.CHECKPOINTS + checkpoint_id)
    return object_info[0] if object_info is not None else None


def _find_last_line(data: bytes, checkpoint_id: str) -> bytes:
    data = b"\n" + data
    start = data.rfind(b"\n%s " % checkpoint_id.encode("ascii", "replace"))
    end = data.find(b"\n", start + 1)
    return data[start + 1 : end] if -1 < start < end else b""


def _parse_line(line: bytes) -> tuple[str, Written] | None:
    fields = os.fsdecode(line).split(" ", 3)
    if len(fields) != 4 or not ids.is_checkpoint_id(fields[0]) or not ids.is_oid(fields[1]):
        return None
    return fields[0], (fields[1], fields[2], fields[3])


def _path(repository: Repository) -> str:
    return os.path.join(repository.private_dir, FILE)
