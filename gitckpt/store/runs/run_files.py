"""Files of a run beside its worktree: its inputs, and the outputs of its phases.

A snapshot keeps them below `run/`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence

from gitckpt.git import fsync
from gitckpt.git.contents import bounds
from gitckpt.git.files import atomic, mounts, premises, regular
from gitckpt.git.filesystem import names_in
from gitckpt.git.objects.diff import leaves
from gitckpt.git.objects.encoding import DIRECTORY, EXECUTABLE, FILE, Entries, encode_tree, object_id
from gitckpt.git.repository import Repository
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model.checkpoint import Omitted, Suspect, Worktree
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store import secrets
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects

# Checkpoints that could not be written: a small file lists them for other processes while the
# driver goes on.


def read(repository: Repository, run: str) -> list[str]:
    try:
        with open(_path(repository, run), encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def note(repository: Repository, run: str, sentences: Sequence[str]) -> None:
    """Record what could not be written of a run; an empty list removes the record.

    If that fails too, only the driver reports it.
    """
    path = _path(repository, run)
    with contextlib.suppress(OSError):
        if sentences:
            with open(path, "w", encoding="utf-8", errors="replace", opener=premises.create) as file:
                file.writelines(f"{' '.join(sentence.split())}\n" for sentence in sentences)
        elif os.path.exists(path):
            os.unlink(path)


def _path(repository: Repository, run: str) -> str:
    return os.path.join(repository.private_dir, f"unwritten-{run}")


# The files of a run.

# The entry of a snapshot's tree.
ENTRY = b"run"

# The directories: files given as inputs, and one directory per phase with output.
INPUT, OUTPUT = "input", "output"

# File name endings of agents' prompts and logs: secrets in these are masked before they are
# stored.
_TOLD = (".log", "/prompt")

_SCRATCH = "writing"


def names(repository: Repository, snapshot: str | None) -> list[str]:
    """Return the paths of a snapshot's run files, relative to their directory."""
    if snapshot is None or repository.cat_file.info(f"{snapshot}:{ENTRY.decode()}") is None:
        return []
    bounds.require(repository, snapshot, "")
    return [os.fsdecode(path) for path, _, _ in leaves(repository, f"{snapshot}:{ENTRY.decode()}")]


def masked(repository: Repository, snapshot: str | None) -> list[str]:
    # cat-file reads one name per line.
    found = [name for name in names(repository, snapshot) if "\n" not in name]
    contents = repository.cat_file.contents([f"{snapshot}:{ENTRY.decode()}/{name}" for name in found], secrets.LARGEST)
    return [name for name, content in zip(found, contents, strict=True) if content is not None and secrets.has_masks(content[2])]


@dataclass(slots=True)
class _Listed:
    omitted: list[Omitted] = field(default_factory=list)
    pending: list[tuple[str, bytes]] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)


class RunFiles:
    """The files of a run; the directory, an absolute path, need not exist."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: dict[str, tuple[tuple[int, int, int, int], str, list[tuple[str, int, bytes]]]] = {}

    def added(self, repository: Repository, objects: Objects, found: Worktree, commit: str, limits: Limits) -> Worktree:
        """Return a captured `Worktree` with these files added to its tree.

        `commit` is the linked one, "" for none. Symbolic links are always omitted.
        """
        premises.require(self.path)
        if found.degraded or not os.path.isdir(self.path):
            return found
        listed = _Listed()
        tree = self._tree(repository, "", limits, listed)
        if tree is None and not listed.omitted:
            return found
        whole = _entries(repository, objects, found.tree, commit)
        if tree is not None:
            whole[ENTRY] = (DIRECTORY, tree)
        data = encode_tree(whole)
        objects.write([*listed.pending, ("tree", data)], flushed=False)
        made = object_id("tree", data, repository.object_format)
        return replace(
            found, tree=made, omitted=(*found.omitted, *listed.omitted), suspects=(*found.suspects, *listed.suspects)[: secrets.MOST]
        )

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Store complete copies of inputs, not masked as in snapshots, if changed."""
        written = []
        for name, data in files.items():
            path = os.path.join(self.path, INPUT, name)
            try:
                with open(path, "rb", opener=premises.create) as file:
                    is_there = file.read() == data
            except OSError:
                is_there = False
            if not is_there:
                make_directory(os.path.dirname(path))
                _put(path, data, self.path)
                written.append(path)
        # The snapshot may have masked parts: this is the only complete copy, so flush it with its
        # directories.
        if written:
            fsync.flush([os.path.join(self.path, INPUT), *_above(self.path)])

    def inputs(self) -> dict[str, bytes]:
        contents = {}
        directory = os.path.join(self.path, INPUT)
        for name in names_in(directory):
            try:
                contents[name] = regular.content(os.path.join(directory, name))
            except OSError:
                continue  # restored from the snapshot later
        return contents

    def bring_back(self, repository: Repository, objects: Objects, tree: str) -> None:
        """Write the missing files from a snapshot.

        It may be fetched: nothing is written outside the directory.
        """
        bounds.require(repository, tree, "")
        found = next(objects.read([tree], None))
        entry = manifest.decoded(found[1], repository, tree).get(ENTRY) if found else None
        if entry is not None and entry[0] == DIRECTORY:
            make_directory(self.path)
            self._write(repository, objects, entry[1], self.path, is_top=True)

    def take_back(self, repository: Repository, objects: Objects, now: str, then: str | None) -> None:
        """Restore the output to that of an earlier snapshot (None: without such files).

        Files that are not in `now`, a snapshot of the present files, such as suspected secrets,
        stay unless they are in the way.
        """
        premises.require(self.path)
        bounds.require(repository, now, "")
        mounted = mounts.reason(self.path)
        if mounted is not None:
            raise WorktreeError(f"the output of the run cannot be taken back: {mounted}", hint="unmount that, then run the command again")
        written = leaves(repository, now, [b"%s/%s/" % (ENTRY, os.fsencode(OUTPUT))])
        try:
            for path, _, _ in written:
                os.unlink(os.path.join(self.path, os.fsdecode(path.partition(b"/")[2])))
            for top, _, _ in os.walk(os.path.join(self.path, OUTPUT), topdown=False):
                if not os.listdir(top):
                    os.rmdir(top)
        except OSError as error:
            raise WorktreeError(f"cannot remove {error.filename}: {error.strerror}") from None
        if then is not None:
            self.bring_back(repository, objects, then)

    def _tree(self, repository: Repository, below: str, limits: Limits, listed: _Listed) -> str | None:
        """Return the tree of a directory, None if it is empty; add findings to `listed`."""
        entries: Entries = {}
        with os.scandir(os.path.join(self.path, below)) as listing:
            children = sorted((entry for entry in listing if below or entry.name in (INPUT, OUTPUT)), key=lambda entry: entry.name)
        for entry in children:
            inner = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                tree = self._tree(repository, inner, limits, listed)
                if tree is not None:
                    entries[os.fsencode(entry.name)] = (DIRECTORY, tree)
                continue
            status = entry.stat(follow_symlinks=False)
            reason = limits.reason_to_omit(os.fsencode(entry.path), included=inner.startswith(f"{INPUT}/"))
            if not stat.S_ISREG(status.st_mode):
                reason = "not a regular file", None
            if reason is not None:
                listed.omitted.append(Omitted(f"{ENTRY.decode()}/{os.fsencode(inner).decode('utf-8', 'replace')}", *reason))
                continue
            mode = EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE
            entries[os.fsencode(entry.name)] = (mode, self._blob(repository, inner, status, listed))
        if not entries:
            return None
        data = encode_tree(entries)
        listed.pending.append(("tree", data))
        return object_id("tree", data, repository.object_format)

    def _blob(self, repository: Repository, inner: str, status: os.stat_result, listed: _Listed) -> str:
        mark = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        seen = self._seen.get(inner)  # not read again unless its stat data changed
        if seen is None or seen[0] != mark or repository.cat_file.info(seen[1]) is None:
            try:
                with open(os.path.join(self.path, inner), "rb", opener=premises.create) as file:
                    data = file.read()
            except OSError as error:
                raise CkptError(f"cannot read {error.filename}: {error.strerror}") from None
            places: list[tuple[str, int, bytes]] = []
            if inner.startswith(f"{INPUT}/"):
                data = secrets.masked_copies(repository, data)
            elif inner.endswith(_TOLD):
                data = secrets.masked_bytes(data)
            elif len(data) <= secrets.LARGEST:
                # The output of a phase exists only here, so secrets in it are reported, not
                # masked.
                places = [(hit.rule, line, secret) for hit, line, secret in secrets.lines(data)]
            listed.pending.append(("blob", data))
            seen = self._seen[inner] = mark, object_id("blob", data, repository.object_format), places
        if seen[2]:
            listed.suspects += secrets.unsettled_suspects(repository, b"%s/%s" % (ENTRY, os.fsencode(inner)), seen[2])
        return seen[1]

    def _write(self, repository: Repository, objects: Objects, tree: str, directory: str, *, is_top: bool = False) -> None:
        found = next(objects.read([tree], None))
        if found is None or found[0] != "tree":
            raise WorktreeError(f"the tree {tree} of the snapshot is missing", hint="see what is wrong: git ckpt verify")
        for name, (mode, oid) in manifest.decoded(found[1], repository, tree).items():
            path = os.path.join(directory, os.fsdecode(name))
            if name in (b"", b".", b"..") or b"/" in name or os.path.islink(path) or (is_top and os.fsdecode(name) not in (INPUT, OUTPUT)):
                raise WorktreeError(f"the snapshot holds a file of the run named {os.fsdecode(name)!r}", hint="it was not made by gitckpt")
            if mode == DIRECTORY:
                self._write(repository, objects, oid, path)
            elif mode in (FILE, EXECUTABLE) and not os.path.lexists(path):
                held = next(objects.read([oid], None))
                if held is None or held[0] != "blob":
                    raise WorktreeError(f"the blob {oid} of the snapshot is missing", hint="see what is wrong: git ckpt verify")
                _put(path, held[1], self.path, is_executable=mode != FILE)


def _put(path: str, data: bytes, top: str, *, is_executable: bool = False) -> None:
    """Write a file atomically: existing files are never checked for a torn write.

    `top` is the directory of the run's files; no snapshot includes a scratch file in it.
    """
    directory = os.path.dirname(path)

    def opened(scratch: str, flags: int) -> int:
        fd = premises.create(scratch, flags)
        if is_executable:
            os.fchmod(fd, os.stat(directory).st_mode & 0o777)
        return fd

    try:
        premises.make(directory)
        with premises.holding(directory), premises.holding(top):
            atomic.write_own(path, data, flushed=True, opener=opened, scratch=os.path.join(top, _SCRATCH))
    except OSError as error:
        raise WorktreeError(f"cannot write {path}: {error.strerror}") from None


def _above(path: str) -> list[str]:
    """Return the directory of a run's files and its parents, up to a foreign one."""
    top, names = premises.way(path) or (os.path.dirname(path), [os.path.basename(path)])
    return [os.path.join(top, *names[:depth]) for depth in range(len(names), -1, -1)]


def with_inputs(repository: Repository, objects: Objects, found: Worktree, commit: str, files: Mapping[str, bytes]) -> Worktree:
    """Add the inputs (name → content) of a starting run to a `Worktree` record.

    Stored contents are masked, so call `RunFiles.keep` as well. `commit` is "" for none.
    """
    files = {name: secrets.masked_copies(repository, data) for name, data in files.items()}
    pending: list[tuple[str, bytes]] = [("blob", data) for data in files.values()]

    def put(entries: Entries) -> str:
        data = encode_tree(entries)
        pending.append(("tree", data))
        return object_id("tree", data, repository.object_format)

    blobs: Entries = {name.encode(): (FILE, object_id("blob", data, repository.object_format)) for name, data in files.items()}
    inner = put({INPUT.encode(): (DIRECTORY, put(blobs))})
    entries = _entries(repository, objects, found.tree, commit)
    whole = put({**entries, ENTRY: (DIRECTORY, inner)})
    objects.write(pending, flushed=False)
    return replace(found, tree=whole)


def _entries(repository: Repository, objects: Objects, tree: str | None, commit: str) -> Entries:
    if tree is None:  # a clean worktree has the files of the commit
        return {b"files": (DIRECTORY, manifest.base_tree(repository, commit))}
    held = next(objects.read([tree], None))
    if held is None:
        raise WorktreeError(f"the snapshot {tree} vanished while it was made", hint="run the command again")
    return manifest.decoded(held[1], repository, tree)


def of_run(repository: Repository, run: str) -> RunFiles:
    return RunFiles(os.path.join(directory(repository), run))


def directory(repository: Repository) -> str:
    """Return the directory of all runs' files, which need not exist."""
    top = main_worktree(repository)
    return os.path.join(top, premises.PRIVATE, "runs") if top is not None else os.path.join(repository.common_dir, premises.RUNS)


def output_of(repository: Repository, tree: str | None) -> str | None:
    found = repository.cat_file.info(f"{tree}:{ENTRY.decode()}/{OUTPUT}") if tree is not None else None
    return found[0] if found is not None else None


def replace_file(path: str, data: bytes) -> None:
    directory = os.path.dirname(path)
    make_directory(directory)
    _put(path, data, directory)


def make_directory(path: str) -> None:
    try:
        premises.make(path)
    except OSError as error:
        raise WorktreeError(f"cannot make {path}: {error.strerror}") from None
