"""Capture the files of a worktree as a tree.

Git turns files into blobs (filters, eol and LFS apply) through a private copy of the index:
first git lists what differs, then only that is read. The user's index, HEAD, refs and stash are
not touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from gitckpt.git import damage, fsync
from gitckpt.git.contents import attributes, bounds, conversion, layout, raw_files
from gitckpt.git.objects.encoding import DIRECTORY, EXECUTABLE, FILE, GITLINK, MalformedTree, decode_tree, object_id
from gitckpt.git.process import DeadlinePassed, GitError
from gitckpt.git.worktree import index as sparse
from gitckpt.git.worktree import modules, operation
from gitckpt.git.worktree.administration import is_corrupt
from gitckpt.git.worktree.index import PrivateIndex
from gitckpt.model.arguments import quoted
from gitckpt.model.checkpoint import Omitted, Suspect, Worktree
from gitckpt.model.errors import CkptError, WorktreeError
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store.records.recorder import FilesPruned
from gitckpt.store.snapshot import manifest
from gitckpt.store.snapshot.limits import Limits, size_text
from gitckpt.store.snapshot.status import Survey, Surveyor, leading_to

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.contents.plain_files import TreeWriter
    from gitckpt.git.contents.refusal import Refused
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.model.checkpoint import Checkpoint


_UNREADABLE = re.compile(r"(?:loose|packed) object ([0-9a-f]{40,64}) \(stored in ")
_ATTRIBUTES = b".gitattributes"
# From this many files on, their objects go into a pack: 1,000 loose ones take 20 ms and as many
# flushes.
_MANY = 1000
# git compares each object that it streams into a pack with all that are in it (`already_written`
# in bulk-checkin.c).
_AT_ONCE = 20_000
_WITHOUT = "leave them out: git ckpt save --no-worktree"


class Moved(WorktreeError):
    """HEAD moved while the worktree was looked at."""


def moved() -> Moved:
    return Moved("HEAD moved while the files were looked at", hint="run the command again")


class DamagedObject(WorktreeError):
    """git met a damaged object while it looked at the worktree."""

    def __init__(self, message: str, oid: str) -> None:
        super().__init__(message, hint="see what is wrong, and who has it: git ckpt verify --contents")
        self.oid = oid


@dataclass(frozen=True, slots=True)
class Captured:
    # The table `[worktree]` of a checkpoint; no ref holds its tree yet.
    worktree: Worktree
    files: str  # the tree of all files; "" if the time ran out
    submodules: Collection[bytes] = ()  # checked out; `worktree` lists them as omitted
    left: Collection[bytes] = ()  # files that are held as git converts them only
    # The objects of `files` that the commit may lack; None if the capture does not know them.
    parts: Collection[str] | None = None
    as_is: Mapping[bytes, str] = field(default_factory=dict)  # oids of files git cannot convert
    # Tracked files whose content is not held, with the reason; `files` has the staged content.
    unheld: Mapping[bytes, str] = field(default_factory=dict)
    apart: Collection[bytes] = ()  # directories of repositories: nothing in them is captured
    unlisted: Collection[bytes] = ()  # paths for which the private index is out of date
    is_as_stored: bool = False  # whether git stores every file as it is


def capture(index: PrivateIndex, objects: Objects, commit: str, limits: Limits) -> Captured:
    """Capture the worktree; the result is degraded if the time runs out.

    The private index is opened and closed here. `commit` is "" on an unborn branch.
    """
    if index.repository.worktree is None:
        raise WorktreeError("there is no worktree here whose files could be saved", hint=_WITHOUT)
    index.deadline = limits.deadline()
    try:
        with index:
            return capture_in(index, objects, commit, limits)
    except DeadlinePassed:
        return Captured(Worktree(dirty=True, degraded=f"capturing the files took more than {limits.timeout:g} seconds"), "")


def capture_in(
    index: PrivateIndex,
    objects: Objects,
    commit: str,
    limits: Limits,
    also: Collection[bytes] = (),
    *,
    keeps: Callable[[bytes], bool] = lambda _: False,
) -> Captured:
    """Capture the worktree in an open private index.

    Args:
        also: untracked paths to capture whatever `limits` or `.gitignore` say.
        keeps: returns whether to hold a tracked file that its required filter refuses.

    Raises:
        DeadlinePassed: it took longer than `index` may.
        FilesPruned: a gc took objects meanwhile.
        WorktreeError: git cannot read the worktree.
    """
    try:
        return _Capture(index, objects, commit, limits, also, keeps=keeps).run()
    except DeadlinePassed:
        raise
    except GitError as error:
        from gitckpt.git.contents import refusal

        if refusal.was_pruned(error):
            raise FilesPruned from None
        message = f"cannot capture the files of {index.repository.worktree}: {error.message}"
        damaged = _UNREADABLE.search(error.stderr)
        if damaged is not None:
            raise DamagedObject(message, damaged[1]) from None
        # If objects cannot be stored, a checkpoint without files cannot either: no such hint.
        raise WorktreeError(message, hint=error.hint or (None if refusal.is_unstorable(error) else _WITHOUT)) from None


class _Capture:
    """One capture; afterwards the index lists all files except `Captured.unlisted`."""

    def __init__(
        self,
        index: PrivateIndex,
        objects: Objects,
        commit: str,
        limits: Limits,
        also: Collection[bytes],
        *,
        keeps: Callable[[bytes], bool],
    ) -> None:
        self._index = index
        self._repository = index.repository
        self._top = os.fsencode(index.repository.worktree or "")
        self._objects = objects
        self._commit = commit
        self._limits = limits
        self._also = set(also)
        self._keeps = keeps
        self._staged: Mapping[bytes, bytes] = {}
        self._tracked: Collection[bytes] = ()
        self._apart: Collection[bytes] = ()
        self._as_is: dict[bytes, str] = {}
        self._unheld: dict[bytes, str] = {}
        self._omitted: list[Omitted] = []
        self._read: list[bytes] = []
        self._converted: list[str] = []
        self._unread: set[bytes] = set()
        self._named: set[bytes] = set(also)
        self._writer: TreeWriter | None = None

    def run(self) -> Captured:
        seen, settings = self._survey()
        under_way = self._repository.operation()
        base = manifest.base_tree(self._repository, self._commit)
        stages = self._index_trees(seen) if seen.is_staged else {}
        if not seen.is_staged and manifest.INTENT in seen.flags:  # git does not compare these
            tree = self._index.write_tree()
            stages = {0: tree} if tree != base else {}
        self._staged = {path: entry[1] for path, entry in _ours(seen).items()} | seen.staged
        self._tracked = set(seen.changed)
        self._apart = seen.apart
        wanted = list(dict.fromkeys([*seen.changed, *self._accepted(seen.untracked)]))
        rules = self._rules(seen)
        files = self._files_tree(seen, base, rules, wanted)
        inexact = self._inexact(rules)
        raw = manifest.write_raw(self._repository, self._objects, inexact.raw | self._as_is)
        directories, modes = self._layout(seen, files)
        self._omitted += [*self._nested(seen), *seen.submodules.values(), *seen.passed_over]
        by_path = {entry.path: entry for entry in self._omitted}  # the last reason is the best
        omitted = tuple(entry for _, entry in sorted(by_path.items()))
        is_flagged = any(flag != manifest.SKIPPED or settings is None for flag in seen.flags)
        dirty = bool(stages or is_flagged or under_way or files != base)
        converted = tuple(sorted(self._converted))
        outside = attributes.settings(self._repository, rules.configured) if rules else b""
        is_plain = settings is None and raw is None and not (outside or directories or modes)
        if is_plain and not dirty:
            found = Worktree(dirty=False, omitted=omitted, converted=converted)  # no files read
            captured = Captured(found, files, seen.submodules.keys(), inexact.left, is_as_stored=rules is None)
            return replace(captured, unheld=self._unheld, apart=seen.apart)
        content = manifest.Contents(files, stages, seen.flags, sparse=settings, raw=raw)
        content.conversion = outside
        content.directories, content.modes = directories, modes
        needed = None
        if under_way:
            content.operation = operation.collect(self._repository)
            if bounds.is_too_much(content.operation):
                self._omitted.append(Omitted(".git", f"what git keeps of the {under_way} in progress: {bounds.OPERATION}"))
                omitted, under_way, content.operation = (*omitted, self._omitted[-1]), None, {}
            needed = operation.holder_of(self._repository, self._objects, content.operation, self._commit)
        tree = manifest.write(self._repository, self._objects, content)
        found = Worktree(dirty, tree, under_way, needed, omitted=omitted, converted=converted, suspects=self._suspects(files))
        captured = Captured(found, files, seen.submodules.keys(), left=inexact.left, is_as_stored=rules is None)
        captured = replace(captured, as_is=self._as_is, unheld=self._unheld, apart=seen.apart)
        if self._writer is not None:
            captured = replace(captured, parts=self._writer.oids, unlisted=[*self._read, *seen.deleted])
        return captured

    def _survey(self) -> tuple[Survey, bytes | None]:
        """Return what the worktree holds, and the settings of a sparse checkout."""
        try:
            seen, settings = self._look()
        except GitError as error:
            if isinstance(error, DeadlinePassed) or not is_corrupt(error):
                raise
            self._index.rebuild(self._commit)
            self._omitted.append(Omitted(".git/index", "git cannot read it, so what was staged is not known"))
            seen, settings = self._look()
        if seen.commit != self._commit:
            raise moved()
        return seen, settings

    def _look(self) -> tuple[Survey, bytes | None]:
        surveyor = Surveyor(self._index)
        try:
            surveyor.begin()
            settings = sparse.read(self._repository)  # while git looks at the files
            return surveyor.finish(is_sparse=settings is not None), settings
        finally:
            surveyor.stop()

    def _layout(self, seen: Survey, files: str) -> tuple[list[bytes], dict[bytes, int]]:
        """Return the empty directories, and the modes that are narrower than usual."""
        lead = set(seen.leading) - {os.path.dirname(path) for path in seen.deleted}
        others = set(seen.directories) - lead - {os.path.dirname(path) for path in self._read}
        directories = layout.empty(self._repository, self._top, others, files)
        modes = layout.narrowed_directories(seen.modes) | layout.narrowed_files(self._top, self._read)
        if len(directories) > layout.MOST:
            self._omit(directories[layout.MOST], f"without files, as are {len(directories) - layout.MOST - 1} more: {layout.MOST} are kept")
        if len(modes) > layout.MOST:
            first = sorted(modes)[layout.MOST]
            self._omit(first, f"its mode, as those of {len(modes) - layout.MOST - 1} more: {layout.MOST} are kept")
            modes = {path: mode for path, mode in modes.items() if path < first}
        return directories[: layout.MOST], modes

    def _index_trees(self, seen: Survey) -> Mapping[int, str]:
        if not seen.conflicts:
            return {0: self._index.write_tree()}
        # In a copy: the private index keeps its conflicts until the files are added.
        zero = b"0" * len(object_id("blob", b"", self._repository.object_format))
        with PrivateIndex(self._repository, self._index.deadline) as scratch:
            scratch.copy_from(self._index.path)
            scratch.put(b"0 %s 0\t%s" % (zero, path) for path in seen.unmerged)
            trees = {0: scratch.write_tree()}
            for stage, entries in seen.conflicts.items():
                scratch.git("read-tree", "--empty")
                scratch.put(b"%s 0\t%s" % tuple(entry.split(b"\t", 1)) for entry in entries)
                trees[stage] = scratch.write_tree()
        return trees

    def _files_tree(self, seen: Survey, base: str, rules: attributes.AttributeRules | None, wanted: list[bytes]) -> str:
        """Return the tree of all files; `base` if nothing differs from it."""
        if not wanted:
            return self._index.write_tree() if seen.is_staged or self._index.is_rebuilt else base
        from gitckpt.git.contents import unfiltered  # costly: only if files differ

        gone = set(seen.deleted)
        self._read = [path for path in wanted if path not in gone]
        if rules is None and (plain := self._plain_tree(seen, base, gone)):
            return plain
        removed_rules = {path for path in gone if os.path.basename(path) == _ATTRIBUTES}
        # git would not look at these, or not drop their stages.
        apart = {path for path in gone - removed_rules if self._is_behind_link(path) or self._is_directory(path)}
        self._index.update("--force-remove", sorted(apart))
        held = unfiltered.held(self._repository)
        unfiltered.accept(self._index, {path: held[path] for path in wanted if path in held})
        self._add([*sorted(gone - removed_rules - apart), *(path for path in wanted if path not in gone and path not in held)])
        ours = _ours(seen)
        self._index.put(b"%s %s 0\t%s" % (*ours[path], path) for path in sorted(self._unread & ours.keys()))
        # Last: their filters must apply to the other files, lest a secret is stored in plain text.
        self._index.update("--force-remove", sorted(removed_rules))
        return self._index.write_tree()

    def _plain_tree(self, seen: Survey, base: str, gone: set[bytes]) -> str | None:
        """Return the tree of all files if it can be built without git, else None."""
        is_special = seen.is_staged or seen.conflicts or seen.flags or self._index.is_rebuilt or not self._commit
        if is_special or len(self._read) >= _MANY or not self._limits.conversions(self._repository).takes_as_is:
            return None
        from gitckpt.git.contents import unfiltered
        from gitckpt.git.contents.plain_files import TreeWriter

        if conversion.are_there(self._repository) or unfiltered.held(self._repository):
            return None
        writer = TreeWriter(self._repository, self._objects)
        tree = writer.tree(base, gone, self._read, set(self._read).difference(seen.changed))
        self._writer = writer if tree is not None else None
        self._index.require_time("write-tree")
        return tree

    def _accepted(self, untracked: list[bytes]) -> list[bytes]:
        """Return the untracked and ignored paths to capture."""
        included = {path for path in self._also if not self._is_directory(path) and not self._is_behind_link(path)}
        if self._limits.include:
            patterns = [option for pattern in self._limits.include for option in ("-x", pattern)]
            listed = self._index.git("ls-files", "--others", "--ignored", "-z", *patterns).split(b"\0")[:-1]
            included |= {path for path in listed if not path.endswith(b"/")}
        included = {path for path in included if not modules.lies_in(path, self._apart)}
        self._named |= included
        accepted = []
        for path in dict.fromkeys([*untracked, *sorted(included)]):
            whole = os.path.join(self._top, path)
            reason = None if path in self._also else self._limits.reason_to_omit(whole, included=path in included)
            if reason is None:
                accepted.append(path)
            else:
                self._omitted.append(Omitted(quoted(path), reason[0], reason[1]))
        return self._within_total(accepted)

    def _within_total(self, untracked: list[bytes]) -> list[bytes]:
        most = self._limits.max_total_size
        if most is None:
            return untracked
        sizes = {path: _size(os.path.join(self._top, path)) for path in untracked if path not in self._also}
        excess = set(self._limits.excess(sizes))
        reason = f"an automatic checkpoint takes {size_text(most)} of untracked files, the smallest first"
        self._omitted += [Omitted(quoted(path), reason, sizes[path]) for path in sorted(excess)]
        return [path for path in untracked if path not in excess]

    def _is_directory(self, path: bytes) -> bool:
        whole = os.path.join(self._top, path)
        return os.path.isdir(whole) and not os.path.islink(whole)

    def _is_behind_link(self, path: bytes) -> bool:
        parent = os.path.dirname(path)
        while parent:
            if os.path.islink(os.path.join(self._top, parent)):
                return True
            parent = os.path.dirname(parent)
        return False

    def _add(self, paths: list[bytes]) -> None:
        """Read files into the private index; list unreadable ones as omitted."""
        paths = [path for path in paths if self._is_readable(path)]
        if len(paths) < _MANY:
            self._read_in(paths)
            return
        from gitckpt.git.contents.bounds import Quarantine

        with Quarantine(self._repository) as quarantine:
            for at in range(0, len(paths), _AT_ONCE):
                self._read_in(paths[at : at + _AT_ONCE], quarantine.options, quarantine.environment)
            quarantine.migrate(self._index.deadline)

    def _read_in(self, paths: list[bytes], settings: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        from gitckpt.git.contents import refusal

        found = refusal.read_in(self._index, paths, settings, environment)
        self._converted += map(quoted, found.converted)
        for refused in found.refused:
            self._take_refused(refused)

    def _take_refused(self, refused: Refused) -> None:
        from gitckpt.git.contents import refusal

        path, reason = refused.path, f"git cannot store it: {refused.cause}"
        may_be_held = not refused.is_name
        if refused.is_name:
            reason = refused.cause
        elif refused.driver and path in self._tracked:
            oid = self._staged.get(path, b"").decode("ascii")
            if oid.strip("0") and refusal.filter_works(self._index, path, oid):
                reason = f"filter {refused.driver} refuses it"
                may_be_held = self._keeps(path) and self._limits.looks_secret(path) is None
            else:
                reason = f"filter {refused.driver} does not work: {refused.cause}"
                may_be_held = False
        elif refused.driver:
            may_be_held = False
        if not (may_be_held and self._hold_as_is(path)):
            self._omit(path, reason)

    def _hold_as_is(self, path: bytes) -> bool:
        (data,) = raw_files.bytes_of(self._repository, [path])
        if data is None:
            return False
        (oid,) = self._objects.write([("blob", data)], flushed=False)
        is_executable = os.lstat(os.path.join(self._top, path)).st_mode & 0o100
        self._index.put([b"%s %s 0\t%s" % (EXECUTABLE if is_executable else FILE, oid.encode("ascii"), path)])
        self._as_is[path] = oid
        return True

    def _is_readable(self, path: bytes) -> bool:
        whole = os.path.join(self._top, path)
        if os.path.islink(whole) or not os.path.isfile(whole) or os.access(whole, os.R_OK):
            return True
        self._omit(path, "cannot be read: permission denied")
        return False

    def _rules(self, seen: Survey) -> attributes.AttributeRules | None:
        """Return the rules for conversions; None if git converts nothing."""
        unseen = [*seen.deleted, *seen.flags.get(manifest.SKIPPED, ())]
        directories = {*seen.directories, *leading_to(self._named)}  # ignored ones, too
        return attributes.rules(self._repository, self._limits.conversions(self._repository), directories, unseen)

    def _inexact(self, rules: attributes.AttributeRules | None) -> conversion.Converted:
        """Return the files that git would write differently."""
        if rules is None and not conversion.are_there(self._repository):
            return conversion.Converted()
        terms = self._limits.terms(self._named, self._also)
        found = conversion.Conversions(self._index, self._objects, rules, terms).look(self._unread | self._as_is.keys())
        behind = {quoted(path) for path in found.required}.intersection(self._converted)
        self._converted = sorted({*map(quoted, found.left), *behind})
        return found

    def _omit(self, path: bytes, reason: str) -> None:
        self._unread.add(path)
        if path in self._tracked:
            self._unheld[path] = reason
        self._omitted.append(Omitted(quoted(path), reason))

    def _suspects(self, files: str) -> tuple[Suspect, ...]:
        if not self._read:
            return ()
        from gitckpt.store import secrets

        stored = self._writer.contents if self._writer is not None else None
        return secrets.look(self._index, files, [path for path in self._read if path not in self._unread], stored)

    def _nested(self, seen: Survey) -> list[Omitted]:
        reason = "a repository of its own: its files stay in it"
        return [Omitted(quoted(path), reason, oid=modules.head_of(os.path.join(self._top, path))) for path in seen.nested]


def _size(path: bytes) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _ours(seen: Survey) -> dict[bytes, tuple[bytes, bytes]]:
    """Return mode and oid of our side of each conflict; else theirs, else the base."""
    entries = [entry.partition(b"\t") for stage in (1, 3, 2) for entry in seen.conflicts.get(stage, ())]
    return {path: (mode, oid) for about, _, path in entries for mode, oid in [about.split(b" ")]}


# Damaged objects of a snapshot are written again while the worktree has the files.

_SNAPSHOT = re.compile(rb"^(files|raw|index/[0-3])/")  # prefixes of worktree paths in a snapshot


def write_again(repository: Repository, objects: Objects, checkpoint: Checkpoint) -> tuple[list[str], CkptError | None]:
    """Write damaged blobs again from files; move damaged trees aside.

    The next capture writes these. Returns a sentence for each object, and an error that names one
    whose content is nowhere.
    """
    messages = []
    error: CkptError | None = None
    for oid, (paths, is_committed) in sorted(_damaged(repository, objects, checkpoint).items()):
        source = next((path for path in paths if _write_file(repository, objects, oid, path)), None)
        if source is not None:
            messages.append(f"the object {oid} was missing or damaged, and was written again from {quoted(source)}")
        elif not paths and not is_committed and damage.move_aside(repository, oid):
            messages.append(f"the object {oid} was damaged, and is written again; its file is in {repository.private_dir}/damaged")
        else:
            error = _nowhere(oid, paths)
    return messages, error


def make_way(repository: Repository, objects: Objects, oid: str) -> bool:
    """Move a damaged object aside for a capture to write, unless HEAD has it."""
    return oid not in _listed(objects, manifest.base_tree(repository, "HEAD"), repository.object_format, set()) and damage.move_aside(
        repository, oid
    )


def _damaged(repository: Repository, objects: Objects, checkpoint: Checkpoint) -> dict[str, tuple[list[bytes], bool]]:
    """Return the unreadable objects of a snapshot and its commit, by oid.

    Each has its paths in the worktree (none for a tree), and whether the commit has it.
    """
    if checkpoint.tree is None:
        return {}
    broken: set[str] = set()
    own = _listed(objects, checkpoint.tree, repository.object_format, broken)
    committed = _listed(objects, manifest.base_tree(repository, checkpoint.git_sha), repository.object_format, broken)
    suspects = sorted(broken.union(own.keys() - committed.keys()))
    return {oid: (own.get(oid, []), oid in committed) for oid in damage.unreadable(repository, suspects)}


def _listed(objects: Objects, root: str, object_format: str, broken: set[str]) -> dict[str, list[bytes]]:
    """Return objects of a tree, blobs with paths; add unreadable trees to `broken`."""
    listed: dict[str, list[bytes]] = {}
    level: dict[str, bytes] = {root: b""}
    while level:
        below: dict[str, bytes] = {}
        for (oid, path), entry in zip(level.items(), objects.read(list(level), None), strict=True):
            listed[oid] = []
            try:
                entries = decode_tree(entry[1], object_format) if entry is not None and entry[0] == "tree" else None
            except MalformedTree:
                entries = None
            if entries is None:
                broken.add(oid)
            for name, (mode, child) in (entries or {}).items():
                inner = b"/".join([path, name]) if path else name
                if mode == DIRECTORY:
                    below.setdefault(child, inner)
                elif mode != GITLINK:
                    listed.setdefault(child, []).append(_SNAPSHOT.sub(b"", inner))
        level = {oid: path for oid, path in below.items() if oid not in listed}
    return listed


def _write_file(repository: Repository, objects: Objects, oid: str, path: bytes) -> bool:
    whole = os.path.join(os.fsencode(repository.worktree or ""), path)
    try:
        data = os.readlink(whole) if os.path.islink(whole) else _read(whole)
    except OSError:
        return False
    if object_id("blob", data, repository.object_format) == oid:
        damage.move_aside(repository, oid)
        objects.write([("blob", data)])  # also if a damaged pack has it: git would write nothing
        return True
    words = ("-c", "core.safecrlf=false", "hash-object", "--stdin", f"--path={os.fsdecode(path)}")
    if repository.git.run(*words, data=data, ok=(0, 1, 128)).out.decode("ascii").strip() != oid:
        return False
    damage.move_aside(repository, oid)
    repository.git.run(*words, "-w", data=data)
    fsync.flush(fsync.object_paths(repository.common_dir, [oid]))
    return True


def _read(path: bytes) -> bytes:
    if not os.path.isfile(path):
        raise OSError
    with open(path, "rb") as file:
        return file.read()


def _nowhere(oid: str, paths: list[bytes]) -> WorktreeError:
    where = ", ".join(quoted(path) for path in sorted(set(paths))[:3])
    return WorktreeError(
        f"the object {oid}{f' of {where}' if where else ''} is missing or damaged, and no file has its content",
        hint="if it was staged, stage it again: git add; else fetch it from a clone, see how: git ckpt verify --contents",
    )
