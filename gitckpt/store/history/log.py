"""List checkpoints, newest first, with what each changed.

Each is compared with the one before it in its run. The first of a run, and one of no run, is
compared with the one before it in its worktree.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from gitckpt.git.objects import diff
from gitckpt.git.objects.diff import FileChange
from gitckpt.git.objects.encoding import decode_tree, empty_tree_oid
from gitckpt.git.process import GitError
from gitckpt.git.repository import Repository
from gitckpt.model import budget, phase
from gitckpt.model.arguments import quote_path
from gitckpt.model.checkpoint import GUARD, TURN
from gitckpt.model.errors import CkptError, InvalidCheckpoint
from gitckpt.model.values import dataclass, field, replace
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import ref_names
from gitckpt.store.records.entry import CheckpointInfo, Query
from gitckpt.store.snapshot import comparison

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from gitckpt.model.checkpoint import Checkpoint
    from gitckpt.model.jsonable import StateChange

    Trees: TypeAlias = tuple[str, str]

RUNS, TURNS = "runs", "turns"  # what `list_items` folds to one item
_PAGES = (64, 512, None)  # sizes; of few ids, `LocalCheckpoints` searches the file from its end
_MOST_AT_ONCE = 500  # names of objects that are looked up before the limit is checked
# Absent from documents whose capture left nothing out, which need no decoding for that.
_OMITTED = b"omitted"
_STATE = b"\n[state]\n"


@dataclass(slots=True)
class LogItem:
    """A checkpoint, or a folded run or turn, and what changed in it."""

    entries: list[CheckpointInfo]  # newest first
    folded: str | None = None  # `RUNS` or `TURNS` if `entries` are one run or one turn
    after: CheckpointInfo | None = None  # whose files were compared; None if none were
    previous: CheckpointInfo | None = None  # what they were compared with; None: the commit
    trees: tuple[str, str] | None = None  # of these files, before and after
    not_compared: str | None = None  # why the files were not compared
    files: list[FileChange] = field(default_factory=list)
    state: list[StateChange] = field(default_factory=list)
    omitted: int = 0  # paths that one of the two captures left out; they are not in `files`

    @property
    def newest(self) -> CheckpointInfo:
        return self.entries[0]

    @property
    def phases(self) -> list[str]:
        """The names of the phases in a folded run, in order."""
        names = (entry.phase_name for entry in reversed(self.entries))
        return [name for name in dict.fromkeys(names) if name not in phase.NOT_PHASES]


def has_files(entry: CheckpointInfo) -> bool:
    """Return whether a checkpoint tells which files its worktree had."""
    # A guard without files keeps commits from being lost, such as stashes, in any worktree.
    keeps_commits = entry.trigger == GUARD and not entry.examined
    return not entry.is_degraded and not keeps_commits


def files_name(entry: CheckpointInfo) -> str:
    """Return a name by which git finds the tree of the files; "" for no files at all."""
    return f"{entry.tree}:files" if entry.tree is not None else _commit_name(entry)


def _commit_name(entry: CheckpointInfo) -> str:
    return f"{entry.git_sha}^{{tree}}" if entry.git_sha else ""


def _compared_names(entry: CheckpointInfo, previous: CheckpointInfo | None) -> tuple[str, str]:
    """Return names of the trees to compare, before and after."""
    if previous is None:
        return _commit_name(entry), files_name(entry)
    if not entry.examined:
        # The worktree was not captured: only what was committed since is known.
        return _commit_name(previous), _commit_name(entry)
    return files_name(previous), files_name(entry)


class Listing:
    """The checkpoints that match a query, newest first, read in growing pages."""

    def __init__(self, store: Checkpoints, query: Query) -> None:
        self._store, self._query, self._pages = store, query, list(_PAGES)
        self.entries: list[CheckpointInfo] = []
        self.keys: dict[str, str] = {}  # id -> worktree; "branch NAME" if that is unknown

    def read_more(self) -> bool:
        """Read another page; return False at the end."""
        if not self._pages:
            return False
        limit, skip = self._pages.pop(0), len(self.entries)
        page = self._store.list(replace(self._query, limit=limit, skip=skip))
        if limit is not None and len(page) < limit:
            self._pages.clear()
        new = [entry for entry in page if entry.id not in self.keys]  # one may have come meanwhile
        local = LocalCheckpoints.read(self._store.repository, [entry.id for entry in new])
        for entry in new:
            key = local.find_worktree_key(entry.id)
            self.keys[entry.id] = f"branch {entry.branch}" if key is None else key
        self.entries += new
        return bool(page)

    def read_all(self) -> list[CheckpointInfo]:
        while self.read_more():
            pass
        return self.entries

    def find_previous(self) -> dict[str, CheckpointInfo]:
        """Map ids of the entries read so far to the entry before each."""
        # By run or worktree: the last one whose files were captured, and the last one of all.
        captured: dict[str | None, CheckpointInfo] = {}
        last: dict[str | None, CheckpointInfo] = {}
        previous: dict[str, CheckpointInfo] = {}
        for entry in reversed(self.entries):
            key = self.keys[entry.id]
            is_start = entry.label == ref_names.RUN_STARTED  # from the commit, in a new worktree
            for found in () if is_start else (captured, last) if entry.examined else (last,):
                before = found.get(entry.run) if entry.run is not None else None
                before = before or found.get(key)
                if before is not None:
                    previous[entry.id] = before
                    break
            if has_files(entry):
                names = (key,) if entry.run is None else (key, entry.run)
                last |= dict.fromkeys(names, entry)
                captured |= dict.fromkeys(names if entry.examined else (), entry)
        return previous


class Log:
    """Read the log of a store; ignores safety checkpoints unless `query.safety`."""

    def __init__(self, store: Checkpoints, query: Query) -> None:
        self._store, self._repository = store, store.repository
        self._query = query
        self._everything: Listing | None = None  # with the entries that the query leaves out
        self._empty_tree = empty_tree_oid(store.repository.object_format)
        self._trees: dict[str, str | None] = {"": self._empty_tree}

    def list_items(
        self,
        *,
        fold: str | None = None,
        paths: Sequence[bytes] = (),
        starts: Sequence[CheckpointInfo] = (),
    ) -> list[LogItem]:
        """Return the items of a log, not compared yet; the query's limit counts items.

        Args:
            fold: `RUNS` or `TURNS`.
            paths: list only checkpoints in which one of these paths changed.
            starts: begin at these checkpoints, and go back in their runs or worktrees.
        """
        limit, query = self._query.limit, replace(self._query, limit=None)
        listing = Listing(self._store, query)
        if query == Query(safety=query.safety):
            self._everything = listing
        if paths:
            return self._list_changed(listing, paths, starts, limit)
        items: dict[object, LogItem] = {}
        seen, is_before = 0, self._make_filter(listing, starts)
        while listing.read_more():
            for entry in listing.entries[seen:]:
                if is_before(entry):
                    key = _fold_key(entry, fold)
                    item = items.setdefault(key, LogItem([], fold if key != entry.id else None))
                    item.entries.append(entry)
            seen = len(listing.entries)
            if limit is not None and len(items) >= limit and not starts:
                break
        chosen = dict(list(items.items())[:limit])
        self._complete_folded(chosen, is_before)
        return list(chosen.values())

    def _make_filter(
        self, listing: Listing, starts: Sequence[CheckpointInfo]
    ) -> Callable[[CheckpointInfo], bool]:
        local = LocalCheckpoints.read(self._repository, [entry.id for entry in starts])
        worktrees = {
            entry.id: local.find_worktree_key(entry.id) or f"branch {entry.branch}"
            for entry in starts
        }
        begun: set[str] = set()

        def is_before(entry: CheckpointInfo) -> bool:
            for start in starts:
                begun.update({start.id} & {entry.id})
                in_run = start.run is not None and entry.run == start.run
                in_worktree = start.run is None and listing.keys[entry.id] == worktrees[start.id]
                if start.id in begun and (in_run or in_worktree):
                    return True
            return not starts

        return is_before

    def _complete_folded(
        self,
        items: Mapping[object, LogItem],
        is_before: Callable[[CheckpointInfo], bool],
    ) -> None:
        folded = [item for item in items.values() if item.folded]
        if not folded:
            return
        fold, runs = folded[0].folded, {str(item.newest.run) for item in folded}
        entries: dict[object, list[CheckpointInfo]] = {}
        for entry in self._store.list(replace(self._query, runs=list(runs), limit=None)):
            if is_before(entry):
                entries.setdefault(_fold_key(entry, fold), []).append(entry)
        for key, item in items.items():
            item.entries = entries.get(key, item.entries)
            if isinstance(key, tuple) and item.newest.trigger != TURN:
                following = entries.get((key[0], key[1] + 1), [])
                item.after = following[-1] if following else None  # begins where this one ends

    def _list_changed(
        self,
        listing: Listing,
        paths: Sequence[bytes],
        starts: Sequence[CheckpointInfo],
        limit: int | None,
    ) -> list[LogItem]:
        is_before = self._make_filter(listing, starts)
        candidates = [entry for entry in listing.read_all() if is_before(entry)]
        previous, found = self._find_previous(candidates), list[LogItem]()
        for start in range(0, len(candidates), _MOST_AT_ONCE):
            portion = [entry for entry in candidates[start:][:_MOST_AT_ONCE] if has_files(entry)]
            names = {entry.id: _compared_names(entry, previous.get(entry.id)) for entry in portion}
            unique = list(dict.fromkeys(name for pair in names.values() for name in pair))
            in_trees = find_in_trees(self._repository, unique, paths)
            objects = dict(zip(unique, in_trees, strict=True))
            for entry in portion:
                if limit is not None and len(found) >= limit:
                    return found
                old, new = names[entry.id]
                if objects[old] != objects[new]:
                    found.append(LogItem([entry], previous=previous.get(entry.id)))
        return found

    def _find_previous(self, entries: Sequence[CheckpointInfo]) -> dict[str, CheckpointInfo]:
        if not entries:
            return {}
        # Among all checkpoints, also ones that do not match the query.
        if self._everything is None:
            until = max(entry.time for entry in entries)
            query = Query(until=until, safety=self._query.safety)
            self._everything = Listing(self._store, query)
        listing = self._everything
        previous = listing.find_previous()
        while any(entry.id not in previous for entry in entries) and listing.read_more():
            previous = listing.find_previous()
        return previous

    # What changed

    def compare(self, items: Sequence[LogItem], paths: Sequence[bytes] = ()) -> None:
        """Set what changed in each item; with `paths`, only files at or below these."""
        for item in items:
            self._choose_sides(item)
        comparable = [item for item in items if item.after is not None]
        self._set_previous(comparable)
        names = [_compared_names(item.after or item.newest, item.previous) for item in comparable]
        self._resolve([name for pair in names for name in pair])
        self._resolve([name for item in comparable for name in _raw_names(item)])
        counter = diff.DiffCounter(self._repository, budget.SNAPSHOT)
        pairs: dict[Trees, list[LogItem]] = {}
        for item, (old_name, new_name) in zip(comparable, names, strict=True):
            old, new = self._trees[old_name], self._trees[new_name]
            if old is None or new is None:
                item.not_compared = "an object is missing; see: git ckpt verify"
            elif counter.exceeds_path_limit(old, new) or counter.met_unreadable_tree(old, new):
                item.not_compared = "a tree is malformed or missing; see: git ckpt verify"
            else:
                item.trees = self._tell_raw_apart(item, (old, new))
                pairs.setdefault(item.trees, []).append(item)
        for pair, changes in self._count_lines(list(pairs), paths).items():
            for item in pairs[pair]:
                if isinstance(changes, str):
                    item.not_compared = changes
                else:
                    item.files = list(changes)
        self._compare_documents(items)

    def _choose_sides(self, item: LogItem) -> None:
        with_files = [entry for entry in item.entries if has_files(entry)]
        with_files = [entry for entry in with_files if entry.examined] or with_files
        if item.after is None and with_files:
            item.after = with_files[0]
        if item.after is None:
            reason = "it keeps commits, and has no files"
            item.not_compared = "its files were not captured" if item.newest.is_degraded else reason
        elif item.folded and with_files and with_files[-1].status == "started":
            item.previous = with_files[-1]

    def _set_previous(self, items: Sequence[LogItem]) -> None:
        wanted = [item.entries[-1] for item in items if item.previous is None]
        previous = self._find_previous(wanted)
        for item in items:
            item.previous = item.previous or previous.get(item.entries[-1].id)

    def _resolve(self, names: Iterable[str]) -> None:
        missing = [name for name in dict.fromkeys(names) if name not in self._trees]
        infos = self._repository.cat_file.list_infos(missing)
        for name, info in zip(missing, infos, strict=True):
            self._trees[name] = info[0] if info is not None and info[1] == "tree" else None

    def _tell_raw_apart(self, item: LogItem, trees: Trees) -> Trees:
        """Return trees that also show what git stores alike, such as line ends."""
        commit = item.entries[-1].git_sha
        old = (item.previous.tree, item.previous.git_sha) if item.previous else (None, commit)
        new = (item.after.tree, item.after.git_sha) if item.after else old
        old_raw, new_raw = (self._trees[name] if name else None for name in _raw_names(item))
        if old_raw == new_raw:
            return trees
        try:
            arguments = self._repository, self._store.objects, old, new
            return comparison.make_comparable_trees(*arguments)
        except CkptError:
            return trees

    def _count_lines(
        self, pairs: Sequence[Trees], paths: Sequence[bytes]
    ) -> dict[Trees, list[FileChange] | str]:
        try:
            return {**diff.count_lines(self._repository, pairs, paths)}
        except GitError as error:  # such as a blob that is missing: one by one
            if len(pairs) == 1:
                return {pairs[0]: error.message}
        found: dict[Trees, list[FileChange] | str] = {}
        for pair in pairs:
            found |= self._count_lines([pair], paths)
        return found

    def _compare_documents(self, items: Sequence[LogItem]) -> None:
        sides = [entry for item in items for entry in (item.newest, item.after, item.previous)]
        oids = list(dict.fromkeys(entry.oid for entry in sides if entry is not None))
        contents = zip(oids, self._store.objects.read(oids), strict=True)
        documents = {oid: content[1] for oid, content in contents if content is not None}
        for item in items:
            before = item.previous if _has_same_state(item) else None
            old = documents.get(before.oid, b"") if before is not None else b""
            new = documents.get(item.newest.oid, b"")
            if old.partition(_STATE)[2] != new.partition(_STATE)[2]:
                from gitckpt.model import jsonable

                states = [dict(side.state) if side else {} for side in map(_decode, (old, new))]
                item.state = jsonable.compare_states(*states)
            for side in (item.previous, item.after):
                document = documents.get(side.oid, b"") if side is not None else b""
                if _OMITTED in document and (checkpoint := _decode(document)) is not None:
                    _leave_out_omitted(item, checkpoint)

    def format_changes(
        self, items: Sequence[LogItem], options: Sequence[str], paths: Sequence[bytes] = ()
    ) -> list[bytes]:
        """Return what git prints of each compared item with options such as "-p"."""
        pairs = [item.trees for item in items if item.trees is not None and item.files]
        try:
            texts = diff.format_pairs(self._repository, pairs, options, paths)
        except GitError as error:
            return [os.fsencode(error.message) + b"\n" if item.trees else b"" for item in items]
        return [texts.get(item.trees, b"") if item.trees is not None else b"" for item in items]


def _fold_key(entry: CheckpointInfo, fold: str | None) -> object:
    if entry.run is None or fold is None:
        return entry.id
    if fold == TURNS:
        number = phase.turn_number(entry.label)
        return (entry.run, number) if number is not None else entry.id
    return entry.run


def _raw_names(item: LogItem) -> list[str]:
    # Of copies of files whose bytes git would not store, such as other line ends.
    sides = (item.previous, item.after)
    return [f"{side.tree}:raw" if side is not None and side.tree else "" for side in sides]


def _has_same_state(item: LogItem) -> bool:
    # A run begins without a state.
    return item.previous is not None and item.previous.run == item.newest.run


@functools.lru_cache(16)  # most documents are compared twice: with the next, and the one before
def _decode(document: bytes) -> Checkpoint | None:
    from gitckpt.model import codec

    try:
        return codec.decode(document, "") if document else None
    except InvalidCheckpoint:  # `verify` reports it
        return None


def _leave_out_omitted(item: LogItem, checkpoint: Checkpoint) -> None:
    captured = checkpoint.worktree
    omitted = {entry.path for entry in captured.omitted} if captured is not None else set[str]()
    item.omitted = max(item.omitted, len(omitted))
    item.files = [
        change for change in item.files if omitted.isdisjoint(_parents(quote_path(change.path)))
    ]


def _parents(path: str) -> Iterable[str]:
    while path:
        yield from (path, f"{path}/")
        path = path.rpartition("/")[0]


def find_in_trees(
    repository: Repository, names: Sequence[str], paths: Sequence[bytes]
) -> list[list[str | None]]:
    """Return the oid of each path in each tree; b"" is the tree itself."""
    if any(b"\n" in path for path in paths):  # git reads one name from each line
        return [[_find_slowly(repository, name, path) for path in paths] for name in names]
    texts = [os.fsdecode(path) for path in paths]
    wanted = [
        (name if not path else f"{name}/{path}" if ":" in name else f"{name[:-7]}:{path}")
        for name in names
        if name
        for path in texts
    ]
    oids = iter([info and info[0] for info in repository.cat_file.list_infos(wanted)])
    return [[next(oids) if name else None for _ in paths] for name in names]


def _find_slowly(repository: Repository, name: str, path: bytes) -> str | None:
    info = repository.cat_file.info(name) if name else None
    for part in path.split(b"/"):
        tree = next(repository.cat_file.read_contents([info[0]])) if info is not None else None
        if tree is None or tree[1] != "tree":
            return None
        entry = decode_tree(tree[2], repository.object_format).get(part)
        info = (entry[1], "", 0) if entry is not None else None
    return info[0] if info is not None else None
