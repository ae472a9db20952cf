"""Files of a run that lie beside its worktree: what it was started with, and what its phases put out.

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
from gitckpt.store import secrets as named
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.limits import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects


# Which checkpoints of a run could not be written: a small file says so, for those who ask while its driver goes on.


def read(repository: Repository, run: str) -> list[str]:
    """Returns what could not be written of a run, a sentence each."""
    try:
        with open(_path(repository, run), encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def note(repository: Repository, run: str, sentences: Sequence[str]) -> None:
    """Notes what could not be written of a run; nothing, once all of it was. Where that fails too, only its driver tells of it."""
    path = _path(repository, run)
    with contextlib.suppress(OSError):
        if sentences:
            with open(path, "w", encoding="utf-8", errors="replace", opener=premises.create) as file:
                file.writelines(f"{' '.join(sentence.split())}\n" for sentence in sentences)
        elif os.path.exists(path):
            os.unlink(path)


def _path(repository: Repository, run: str) -> str:
    return os.path.join(repository.private_dir, f"unwritten-{run}")


# Files of a run that lie beside its worktree: what it was started with, and what its phases put out.


ENTRY = b"run"
"""The entry of a snapshot's tree."""

INPUT, OUTPUT = "input", "output"
"""The directories of a run: its inputs that are files; and one for each phase that puts something out."""

_TOLD = (".log", "/prompt")
"""How the names end of what was told to an agent, and of what it said: a secret in these is masked before they are stored."""

_SCRATCH = "writing"


def names(repository: Repository, snapshot: str | None) -> list[str]:
    """Returns the paths of the files that a snapshot keeps for its run, as seen from their directory; none where there is no snapshot.

    Raises:
        WorktreeError: there are more than anybody lists.
    """
    if snapshot is None or repository.cat_file.info(f"{snapshot}:{ENTRY.decode()}") is None:
        return []
    bounds.require(repository, snapshot, "")
    return [os.fsdecode(path) for path, _, _ in leaves(repository, f"{snapshot}:{ENTRY.decode()}")]


def masked(repository: Repository, snapshot: str | None) -> list[str]:
    """Returns the names of those files in which what looked like a secret was masked. Args and errors: as `names`."""
    found = [name for name in names(repository, snapshot) if "\n" not in name]  # git is asked for a name a line
    contents = repository.cat_file.contents([f"{snapshot}:{ENTRY.decode()}/{name}" for name in found], secrets.LARGEST)
    return [name for name, content in zip(found, contents, strict=True) if content is not None and secrets.has_masks(content[2])]


@dataclass(slots=True)
class _Listed:
    """What is left out, what is to be written, and what looks like a secret."""

    omitted: list[Omitted] = field(default_factory=list)
    pending: list[tuple[str, bytes]] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)


class RunFiles:
    """The directory of a run's files.

    Args:
        path: absolute path of the directory, which need not be there.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: dict[str, tuple[tuple[int, int, int, int], str, list[tuple[str, int, bytes]]]] = {}

    def added(self, repository: Repository, objects: Objects, found: Worktree, commit: str, limits: Limits) -> Worktree:
        """Returns what a capture found, with these files in its tree.

        Args:
            found: what was captured.
            commit: the linked commit; "" for none.
            limits: what is left out: names that look like secrets, and what is too large. Links are left out, too.

        Raises:
            CkptError: a file cannot be read.
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
            found, tree=made, omitted=(*found.omitted, *listed.omitted), suspects=(*found.suspects, *listed.suspects)[: named.MOST]
        )

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Lets the copies of inputs be these, whole, as no snapshot has them. What is the same already is not written.

        Args:
            files: name → content.

        Raises:
            WorktreeError: they cannot be written.
        """
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
        if written:  # of what was masked in the snapshot, this is the only copy: it is on the disk, under its name, with the run
            fsync.flush([os.path.join(self.path, INPUT), *_above(self.path)])

    def inputs(self) -> dict[str, bytes]:
        """Returns the copies of inputs that are there: name → content."""
        found = {}
        directory = os.path.join(self.path, INPUT)
        for name in names_in(directory):
            try:
                found[name] = regular.content(os.path.join(directory, name))
            except OSError:
                continue  # it is brought back from the snapshot
        return found

    def bring_back(self, repository: Repository, objects: Objects, tree: str) -> None:
        """Writes the files of a snapshot to where they were, those that are not there.

        Args:
            tree: the snapshot. It may have been fetched: nothing is written outside of the directory.

        Raises:
            WorktreeError: an object is missing, or a file cannot be written.
        """
        bounds.require(repository, tree, "")
        found = next(objects.read([tree], None))
        entry = manifest.decoded(found[1], repository, tree).get(ENTRY) if found else None
        if entry is not None and entry[0] == DIRECTORY:
            make_directory(self.path)
            self._write(repository, objects, entry[1], self.path, is_top=True)

    def take_back(self, repository: Repository, objects: Objects, now: str, then: str | None) -> None:
        """Lets the output be what it was. What is in the way of nothing and in no snapshot, as what looks like a secret, stays.

        Args:
            now: a snapshot that holds what is there.
            then: the snapshot to go back to; None for one without such files.

        Raises:
            WorktreeError: an object is missing, or a file cannot be removed or written.
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
        """Return the tree of a directory, None for an empty one; what is found joins `listed`."""
        entries: Entries = {}
        with os.scandir(os.path.join(self.path, below)) as listing:
            there = sorted((entry for entry in listing if below or entry.name in (INPUT, OUTPUT)), key=lambda entry: entry.name)
        for entry in there:
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
        """Return the blob of a file; one that was not touched since it was last read is there already."""
        mark = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        seen = self._seen.get(inner)
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
                # A phase's output is the only copy of it, so a secret in it is named and not masked.
                places = [(hit.rule, line, secret) for hit, line, secret in secrets.lines(data)]
            listed.pending.append(("blob", data))
            seen = self._seen[inner] = mark, object_id("blob", data, repository.object_format), places
        if seen[2]:
            listed.suspects += named.unsettled_suspects(repository, b"%s/%s" % (ENTRY, os.fsencode(inner)), seen[2])
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
    """Writes a file whole or not at all: of one that is there nobody would ask whether a kill or a power cut has left a part of it.

    Args:
        path: of the file.
        data: what it shall hold.
        top: the directory of the run's files. The scratch file lies there, where no snapshot looks.
        is_executable: whether it may be executed.

    Raises:
        WorktreeError: it cannot be written.
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
    """Returns the directory of a run's files, and those above it up to the one that is not ours."""
    top, names = premises.way(path) or (os.path.dirname(path), [os.path.basename(path)])
    return [os.path.join(top, *names[:depth]) for depth in range(len(names), -1, -1)]


def with_inputs(repository: Repository, objects: Objects, found: Worktree, commit: str, files: Mapping[str, bytes]) -> Worktree:
    """Returns a table `[worktree]` with the inputs of a run that starts.

    Args:
        found: the table without them.
        commit: the linked commit; "" for none.
        files: name → content. What looks like a secret is masked in what is stored, so each is also to be given to `RunFiles.keep`.

    Raises:
        WorktreeError: the snapshot that `found` names is gone.
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
    """Returns what a snapshot holds; of a clean worktree, which has none, the files of the commit."""
    if tree is None:
        return {b"files": (DIRECTORY, manifest.base_tree(repository, commit))}
    held = next(objects.read([tree], None))
    if held is None:
        raise WorktreeError(f"the snapshot {tree} vanished while it was made", hint="run the command again")
    return manifest.decoded(held[1], repository, tree)


def of_run(repository: Repository, run: str) -> RunFiles:
    """Returns the files of a run.

    Args:
        repository: seen from any of its worktrees.
    """
    return RunFiles(os.path.join(directory(repository), run))


def directory(repository: Repository) -> str:
    """Returns where the files of all runs are, a directory for each; it need not be there.

    Args:
        repository: seen from any of its worktrees.
    """
    top = main_worktree(repository)
    return os.path.join(top, premises.PRIVATE, "runs") if top is not None else os.path.join(repository.common_dir, premises.RUNS)


def output_of(repository: Repository, tree: str | None) -> str | None:
    """Returns the tree of what the phases of a run put out.

    Args:
        tree: a snapshot; None for one without such files.
    """
    found = repository.cat_file.info(f"{tree}:{ENTRY.decode()}/{OUTPUT}") if tree is not None else None
    return found[0] if found is not None else None


def replace_file(path: str, data: bytes) -> None:
    """Writes a file of a run in the place of another one.

    Raises:
        WorktreeError: it cannot be written.
    """
    directory = os.path.dirname(path)
    make_directory(directory)
    _put(path, data, directory)


def make_directory(path: str) -> None:
    """Makes a directory of a run.

    Raises:
        WorktreeError: it cannot be made.
    """
    try:
        premises.make(path)
    except OSError as error:
        raise WorktreeError(f"cannot make {path}: {error.strerror}") from None
