"""Store a run's input and output files beside its worktree, and in snapshots."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence

from gitckpt.git import fsync
from gitckpt.git.contents import bounds
from gitckpt.git.files import mounts, private_dirs, regular
from gitckpt.git.filesystem import names_in
from gitckpt.git.objects.diff import list_leaves
from gitckpt.git.objects.encoding import DIRECTORY, EXECUTABLE, FILE, encode_tree, object_id
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
    from gitckpt.git.objects.encoding import Entries
    from gitckpt.git.objects.writer import ObjectDatabase

    Inputs = Mapping[str, bytes]  # content by name


def read_unwritten_notes(repository: Repository, run: str) -> list[str]:
    try:
        with open(_unwritten_path(repository, run), encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def record_unwritten_notes(repository: Repository, run: str, sentences: Sequence[str]) -> None:
    path = _unwritten_path(repository, run)
    lines = [f"{' '.join(sentence.split())}\n" for sentence in sentences]
    with contextlib.suppress(OSError):
        if lines:
            with open(path, "wb", opener=private_dirs.open_private_file) as file:
                file.write("".join(lines).encode("utf-8", "replace"))
        else:
            os.unlink(path)


def _unwritten_path(repository: Repository, run: str) -> str:
    return os.path.join(repository.private_dir, f"unwritten-{run}")


ENTRY = "run"  # name of the directory of these files in the tree of a snapshot

# The directories: files given as inputs, and one directory per phase with output.
INPUT, OUTPUT = "input", "output"

# File name endings of agents' prompts and logs: secrets in them are masked in snapshots.
_MASKED = (".log", "/prompt")
_SCRATCH = "writing"
_LAST_LINE, _LONGEST_LINE = "last-line", 1000  # a file, and the bytes of it


def list_run_files(repository: Repository, snapshot: str | None) -> list[str]:
    directory_name = f"{snapshot}:{ENTRY}"
    if snapshot is None or repository.cat_file.info(directory_name) is None:
        return []
    bounds.require_sound_snapshot(repository, snapshot, "")
    return [os.fsdecode(path) for path, _, _ in list_leaves(repository, directory_name)]


def list_masked_files(repository: Repository, snapshot: str | None) -> list[str]:
    # cat-file reads one name per line.
    paths = [name for name in list_run_files(repository, snapshot) if "\n" not in name]
    names = [f"{snapshot}:{ENTRY}/{name}" for name in paths]
    items = zip(paths, repository.cat_file.read_contents(names, secrets.LARGEST), strict=True)
    return [path for path, content in items if content and secrets.has_masked_secrets(content[2])]


@dataclass(slots=True)
class _CapturedRunFiles:
    repository: Repository
    omitted: list[Omitted] = field(default_factory=list)
    pending: list[tuple[str, bytes]] = field(default_factory=list)  # objects to write
    suspects: list[Suspect] = field(default_factory=list)

    def add(self, kind: str, data: bytes) -> str:
        self.pending.append((kind, data))
        return object_id(kind, data, self.repository.object_format)

    def add_to(
        self, files: Worktree, commit: str, tree: str | None, objects: ObjectDatabase
    ) -> Worktree:
        if files.tree is None:  # a clean worktree has the files of the commit
            entries = {b"files": (DIRECTORY, manifest.base_tree(self.repository, commit))}
        elif content := next(objects.read([files.tree], None)):
            entries = manifest.decode_snapshot_tree(content[1], self.repository, files.tree)
        else:
            problem = f"the snapshot {files.tree} vanished before the run's files were added"
            raise WorktreeError(problem, hint="run the command again")
        if tree is not None:
            entries[ENTRY.encode()] = DIRECTORY, tree
        snapshot_tree = self.add("tree", encode_tree(entries))
        objects.write(self.pending, flushed=False)
        omitted = (*files.omitted, *self.omitted)
        suspects = (*files.suspects, *self.suspects)[: secrets.MOST]
        return replace(files, tree=snapshot_tree, omitted=omitted, suspects=suspects)


class RunFiles:
    """The input and output files of a run, in the directory `path` if that exists."""

    def __init__(self, path: str) -> None:
        self.path = path
        # By relative path: stat data, oid of the blob, possible secrets (rule, line, secret).
        self._cache: dict[str, tuple[tuple[int, ...], str, list[tuple[str, int, bytes]]]] = {}

    def added(
        self,
        repository: Repository,
        objects: ObjectDatabase,
        files: Worktree,
        commit: str,
        limits: Limits,
    ) -> Worktree:
        """Return the captured `files` of a worktree together with the files of the run."""
        private_dirs.require_own_directory(self.path)
        if files.degraded or not os.path.isdir(self.path):
            return files
        captured = _CapturedRunFiles(repository)
        tree = self._add_tree("", limits, captured)
        is_empty = tree is None and not captured.omitted
        return files if is_empty else captured.add_to(files, commit, tree, objects)

    def write_inputs(self, files: Inputs) -> None:
        paths = []
        for name, data in files.items():
            path = os.path.join(self.path, INPUT, name)
            opener = private_dirs.open_private_file
            with contextlib.suppress(OSError), open(path, "rb", opener=opener) as file:
                if file.read() == data:
                    continue
            _write_file(path, data, self.path)
            paths.append(path)
        # Secrets may be masked in the snapshot. This is the only complete copy: flush it with its
        # directories.
        if paths:
            parent_dir, name = os.path.split(self.path)
            top, names = private_dirs.split_private_path(self.path) or (parent_dir, [name])
            parents = [os.path.join(top, *names[:depth]) for depth in range(len(names), -1, -1)]
            fsync.flush([os.path.join(self.path, INPUT), *parents])

    def read_inputs(self) -> dict[str, bytes]:
        contents = {}
        directory = os.path.join(self.path, INPUT)
        for name in names_in(directory):
            try:
                contents[name] = regular.read_content(os.path.join(directory, name))
            except OSError:
                continue  # restored from the snapshot later
        return contents

    def write_last_line(self, line: bytes) -> None:
        """Write the last line of a command's output for `git ckpt status`; b"" removes it."""
        path = os.path.join(self.path, _LAST_LINE)
        with contextlib.suppress(OSError):
            if line:
                # In place: a reader may see half of a line, but a kill leaves no scratch file.
                with open(path, "wb", opener=private_dirs.open_private_file) as file:
                    file.write(line[-_LONGEST_LINE:])
            else:
                os.unlink(path)

    def read_last_line(self) -> str:
        with contextlib.suppress(OSError):
            path = os.path.join(self.path, _LAST_LINE)
            return regular.read_content(path, _LONGEST_LINE, follow=False).decode(
                "utf-8", "replace"
            )
        return ""

    def restore_missing(self, repository: Repository, objects: ObjectDatabase, tree: str) -> None:
        bounds.require_sound_snapshot(repository, tree, "")
        content = next(objects.read([tree], None))
        entries = manifest.decode_snapshot_tree(content[1], repository, tree) if content else {}
        mode, oid = entries.get(ENTRY.encode(), (b"", ""))
        if mode == DIRECTORY:
            make_directory(self.path)
            self._write_tree(repository, objects, oid, self.path)

    def restore_output(
        self, repository: Repository, objects: ObjectDatabase, present: str, target: str | None
    ) -> None:
        """Replace the output files of the snapshot `present` by those of `target`."""
        private_dirs.require_own_directory(self.path)
        bounds.require_sound_snapshot(repository, present, "")
        if (mount_reason := mounts.describe_mounts(self.path)) is not None:
            problem = f"cannot restore the output files of the run: {mount_reason}"
            raise WorktreeError(problem, hint="unmount the file system, then run the command again")
        # Files that no snapshot has, such as suspected secrets, stay if they block nothing.
        output_files = list_leaves(repository, present, [os.fsencode(f"{ENTRY}/{OUTPUT}/")])
        try:
            for path, _, _ in output_files:
                os.unlink(os.path.join(self.path, os.fsdecode(path.partition(b"/")[2])))
            for folder, _, _ in os.walk(os.path.join(self.path, OUTPUT), topdown=False):
                if not os.listdir(folder):
                    os.rmdir(folder)
        except OSError as error:
            raise WorktreeError(f"cannot remove {error.filename}: {error.strerror}") from None
        if target is not None:
            self.restore_missing(repository, objects, target)

    def _add_tree(self, below: str, limits: Limits, captured: _CapturedRunFiles) -> str | None:
        entries: Entries = {}
        with os.scandir(os.path.join(self.path, below)) as listing:
            children = [child for child in listing if below or child.name in (INPUT, OUTPUT)]
        for child in sorted(children, key=lambda child: child.name):
            inner_path = f"{below}/{child.name}" if below else child.name
            if child.is_dir(follow_symlinks=False):
                if (tree := self._add_tree(inner_path, limits, captured)) is not None:
                    entries[os.fsencode(child.name)] = (DIRECTORY, tree)
                continue
            status = child.stat(follow_symlinks=False)
            is_input = inner_path.startswith(f"{INPUT}/")
            reason = limits.reason_to_omit(os.fsencode(child.path), included=is_input)
            if not stat.S_ISREG(status.st_mode):
                reason = "not a regular file", None
            if reason is not None:
                path = f"{ENTRY}/{os.fsencode(inner_path).decode('utf-8', 'replace')}"
                captured.omitted.append(Omitted(path, *reason))
                continue
            mode = EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE
            entries[os.fsencode(child.name)] = mode, self._add_blob(inner_path, status, captured)
        return captured.add("tree", encode_tree(entries)) if entries else None

    def _add_blob(self, inner: str, status: os.stat_result, captured: _CapturedRunFiles) -> str:
        repository = captured.repository
        stat_data = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        cached = self._cache.get(inner)  # not read again unless its stat data changed
        if cached is None or cached[0] != stat_data or repository.cat_file.info(cached[1]) is None:
            try:
                absolute_path = os.path.join(self.path, inner)
                with open(absolute_path, "rb", opener=private_dirs.open_private_file) as file:
                    data = file.read()
            except OSError as error:
                raise CkptError(f"cannot read {error.filename}: {error.strerror}") from None
            findings: list[tuple[str, int, bytes]] = []
            if inner.startswith(f"{INPUT}/"):
                data = secrets.mask_unsettled_secrets(repository, data)
            elif inner.endswith(_MASKED):
                data = secrets.mask_bytes(data)
            elif len(data) <= secrets.LARGEST:
                # A phase's output exists only here: secrets in it are reported, not masked.
                hits = secrets.locate_hits(data)
                findings = [(hit.rule, line, secret) for hit, line, secret in hits]
            cached = self._cache[inner] = stat_data, captured.add("blob", data), findings
        if cached[2]:
            path = os.fsencode(f"{ENTRY}/{inner}")
            captured.suspects += secrets.list_unsettled_suspects(repository, path, cached[2])
        return cached[1]

    def _write_tree(
        self, repository: Repository, objects: ObjectDatabase, tree: str, path: str
    ) -> None:
        data = _read_object(objects, "tree", tree)
        for name, (mode, oid) in manifest.decode_snapshot_tree(data, repository, tree).items():
            text = os.fsdecode(name)
            inner_path = os.path.join(path, text)
            is_unsafe = text in ("", ".", "..") or "/" in text or os.path.islink(inner_path)
            if is_unsafe or (path == self.path and text not in (INPUT, OUTPUT)):
                problem = f"the snapshot has the invalid file name {text!r} among the run's files"
                raise WorktreeError(problem, hint="gitckpt never writes such a snapshot")
            if mode == DIRECTORY:
                self._write_tree(repository, objects, oid, inner_path)
            elif mode in (FILE, EXECUTABLE) and not os.path.lexists(inner_path):
                content = _read_object(objects, "blob", oid)
                _write_file(inner_path, content, self.path, is_executable=mode != FILE)


def _read_object(objects: ObjectDatabase, kind: str, oid: str) -> bytes:
    if (content := next(objects.read([oid], None))) is None or content[0] != kind:
        problem = f"the {kind} {oid} of a snapshot is missing"
        raise WorktreeError(problem, hint="find the cause: git ckpt verify")
    return content[1]


def _write_file(path: str, data: bytes, top: str, *, is_executable: bool = False) -> None:
    directory = os.path.dirname(path)

    def open_scratch(scratch: str, flags: int) -> int:
        fd = private_dirs.open_private_file(scratch, flags)
        if is_executable:
            os.fchmod(fd, os.stat(directory).st_mode & 0o777)
        return fd

    try:
        private_dirs.make_private_directory(directory)
        with private_dirs.hold_directory_open(directory), private_dirs.hold_directory_open(top):
            temp = os.path.join(top, _SCRATCH)
            regular.write_private_file(path, data, flushed=True, opener=open_scratch, scratch=temp)
    except OSError as error:
        raise WorktreeError(f"cannot write {path}: {error.strerror}") from None


def add_input_files(
    repository: Repository, objects: ObjectDatabase, files: Worktree, commit: str, inputs: Inputs
) -> Worktree:
    """Add a new run's input files, with secrets masked, to its captured `files`."""
    captured = _CapturedRunFiles(repository)
    blobs: Entries = {}
    for name, data in inputs.items():
        content = secrets.mask_unsettled_secrets(repository, data)
        blobs[name.encode()] = FILE, captured.add("blob", content)
    tree = captured.add("tree", encode_tree(blobs))
    tree = captured.add("tree", encode_tree({INPUT.encode(): (DIRECTORY, tree)}))
    return captured.add_to(files, commit, tree, objects)


def files_of_run(repository: Repository, run: str) -> RunFiles:
    return RunFiles(os.path.join(run_files_dir(repository), run))


def run_files_dir(repository: Repository) -> str:
    if (top := main_worktree(repository)) is None:
        return os.path.join(repository.common_dir, private_dirs.RUNS)
    return os.path.join(top, private_dirs.PRIVATE, "runs")


def output_tree_oid(repository: Repository, tree: str | None) -> str | None:
    info = repository.cat_file.info(f"{tree}:{ENTRY}/{OUTPUT}") if tree is not None else None
    return info[0] if info is not None else None


def replace_file(path: str, data: bytes) -> None:
    _write_file(path, data, os.path.dirname(path))


def make_directory(path: str) -> None:
    try:
        private_dirs.make_private_directory(path)
    except OSError as error:
        raise WorktreeError(f"cannot create the directory {path}: {error.strerror}") from None
