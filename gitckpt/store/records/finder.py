"""Find the newest checkpoints of a worktree, of all, and those of a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gitckpt.git.notes import GitNotes
from gitckpt.git.objects import diff
from gitckpt.git.repository import Repository
from gitckpt.model import budget, ids, note
from gitckpt.model.checkpoint import SAFETY
from gitckpt.model.errors import NotFoundError
from gitckpt.store import local_checkpoints, notes
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import ref_names
from gitckpt.store.records.entry import CheckpointInfo, Infos, Query
from gitckpt.store.records.index import Index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from gitckpt.git.objects.writer import ObjectDatabase

    Linked: TypeAlias = Callable[[str], Infos]  # the checkpoints of a commit
    Pick: TypeAlias = Callable[[Infos, Repository], Iterator[CheckpointInfo]]


def count_changed_files(repository: Repository, index: Index, entries: Infos) -> dict[str, int]:
    counts = {entry.id: entry.changed for entry in entries if entry.changed is not None}
    uncounted = [entry for entry in entries if entry.changed is None and entry.tree]
    name_pairs = [(f"{entry.tree}:files", f"{entry.git_sha}^{{tree}}") for entry in uncounted]
    unique = list(dict.fromkeys(name for pair in name_pairs for name in pair if name != "^{tree}"))
    contents = repository.cat_file.read_contents(unique)
    tree_oids = {name: read[0] for name, read in zip(unique, contents, strict=True) if read}
    tree_oids["^{tree}"] = ""  # unborn
    ids_of: dict[tuple[str, str], list[str]] = {}
    expansion = diff.DiffCounter(repository, budget.SNAPSHOT)
    for entry, (name, base_name) in zip(uncounted, name_pairs, strict=True):
        files_tree, base_tree = tree_oids.get(name), tree_oids.get(base_name)
        if files_tree is None or base_tree is None:
            continue
        if expansion.exceeds_path_limit(base_tree, files_tree):
            continue
        # One unreadable tree would end git before it has counted the others.
        if not expansion.met_unreadable_tree(base_tree, files_tree):
            ids_of.setdefault((base_tree, files_tree), []).append(entry.id)
    count_of = diff.count_differences(repository, ids_of)
    if totals := [(id_, count_of[pair]) for pair, members in ids_of.items() for id_ in members]:
        index.remember_changed_counts(totals)
    return counts | dict(totals)


# The newest checkpoint of this worktree (or of its run), and the newest of all.
LATEST, LATEST_ANY = "latest", "latest:any"
_FIRST = 20
LIST = "list the checkpoints: git ckpt list"


def find_linked(
    commit: str, repository: Repository, objects: ObjectDatabase, index: Index
) -> Infos:
    """List the checkpoints of a commit, and of commits amended or rebased into it."""
    ids.require_oid_or_unborn(commit)
    # The pending lines first: if they are written meanwhile, they are in the notes.
    pending_lines = notes.list_pending_links(repository)[0].get(commit, [])
    lines = GitNotes(repository, objects, ref_names.NOTES).read_note_lines([commit]).get(commit, [])
    entries = index.select(Query(ids=list(map(note.leading_id, (*lines, *pending_lines)))))
    # The note also lists checkpoints of the commits it replaced; a full note lacks some of them.
    replaced = {entry.git_sha for entry in entries if note.note_omits_older(lines)}
    commits = {commit, *replaced} - {""} or {""}
    entry_ids = [entry.id for oid in commits for entry in index.select(Query(git_sha=oid))]
    return index.select(Query(ids=[*(entry.id for entry in entries), *entry_ids]))


def find_latest_checkpoint(repository: Repository, index: Index) -> CheckpointInfo:
    if newest_entry := _find_newest_picked(index, repository, _pick_from_worktree):
        return newest_entry
    local, key = (LocalCheckpoints.read(repository), local_checkpoints.worktree_key(repository))
    if any(local.was_captured_in(id_, key) for id_ in local.replaced_oids(index.oids_by_id())):
        hint = "restore the checkpoints that were written here: git ckpt verify --repair"
        raise NotFoundError("a fetch has replaced the checkpoints of this worktree", hint=hint)
    if not index.select(Query(limit=1)):
        raise _no_checkpoints_error()
    hint = f"use {LATEST_ANY} for the newest of all worktrees, or save one here: git ckpt save"
    raise NotFoundError("no checkpoint was made in this worktree", hint=hint)


def find_latest_of_all(repository: Repository, index: Index) -> str:
    # Not a fetched one, which can have any date.
    if newest_entry := _find_newest_picked(index, repository, _pick_local):
        return newest_entry.id
    if not LocalCheckpoints.read(repository):  # a fresh clone: nothing is listed as written here
        for entry in index.select(Query(in_run=False)):
            if entry.trigger != SAFETY:
                return entry.id
    if index.select(Query(limit=1)):
        problem = "every checkpoint was fetched, or is a safety checkpoint of a restore"
        raise NotFoundError(problem, hint=LIST)
    raise _no_checkpoints_error()


def _find_newest_picked(index: Index, repository: Repository, pick: Pick) -> CheckpointInfo | None:
    return next(_iterate_picked(index, repository, pick), None)


def iterate_worktree(
    index: Index, repository: Repository, until: int | None = None
) -> Iterator[CheckpointInfo]:
    """Yield the checkpoints of this worktree, or of its run, newest first."""
    return _iterate_picked(index, repository, _pick_from_worktree, until)


def _iterate_picked(
    index: Index, repository: Repository, pick: Pick, until: int | None = None
) -> Iterator[CheckpointInfo]:
    for query in (Query(until=until, limit=_FIRST), Query(until=until, skip=_FIRST)):
        yield from pick(index.select(query), repository)


def _no_checkpoints_error() -> NotFoundError:
    return NotFoundError("there are no checkpoints yet", hint="save a checkpoint: git ckpt save")


def _pick_local(entries: Infos, repository: Repository) -> Iterator[CheckpointInfo]:
    local_ids = LocalCheckpoints.read(repository, [entry.id for entry in entries])
    chosen = (entry for entry in entries if entry.trigger != SAFETY)
    return filter(local_ids.is_written_here, chosen)


def _pick_from_worktree(entries: Infos, repository: Repository) -> Iterator[CheckpointInfo]:
    own_checkpoints = LocalCheckpoints.read(repository, [entry.id for entry in entries])
    worktree_key = local_checkpoints.worktree_key(repository)
    owner = ref_names.read_worktree_owner(repository.git_dir)
    for entry in _pick_local(entries, repository):
        is_of_run = owner is not None and owner.run is not None and owner.run == entry.run
        if is_of_run or own_checkpoints.was_captured_in(entry.id, worktree_key):
            yield entry


def find_by_revision(
    text: str, repository: Repository, linked: Linked
) -> tuple[str, CheckpointInfo] | None:
    """Return the commit that a revision names, and its newest checkpoint."""
    try:
        commit = repository.resolve_commit(text)
    except NotFoundError:
        return None
    if not (entries := linked(commit)):
        raise NotFoundError(f"no checkpoint is linked to commit {commit[:10]} ({text})", hint=LIST)
    if preferred := [*_pick_from_worktree(entries, repository), *_pick_local(entries, repository)]:
        return commit, preferred[0]
    # Else the first fetched checkpoint that replaces no local one. No safety checkpoint: its
    # restore, run twice, would undo itself.
    own_checkpoints = LocalCheckpoints.read(repository, [entry.id for entry in entries])
    for entry in entries:
        if entry.trigger != SAFETY and not own_checkpoints.is_replaced(entry.id, entry.oid):
            return commit, entry
    problem = f"commit {commit[:10]} ({text}) only has safety checkpoints of restores"
    raise NotFoundError(problem, hint=f"undo the last restore: git ckpt undo; or {LIST}")
