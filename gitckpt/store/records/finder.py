"""Find the checkpoint that an id, a prefix, a run, "latest" or a revision names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from gitckpt.git.files.refs_stat import read_loose
from gitckpt.git.notes import Notes
from gitckpt.git.objects import diff
from gitckpt.git.repository import Repository
from gitckpt.model import budget, ids, note
from gitckpt.model.arguments import closest, require_text
from gitckpt.model.checkpoint import SAFETY
from gitckpt.model.errors import AmbiguousError, CkptError, NotFoundError, UsageError
from gitckpt.model.skip_invalid import read_safely
from gitckpt.store import local_checkpoints, notes
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import heads, ref_names
from gitckpt.store.records.entry import CheckpointInfo, Infos, Query
from gitckpt.store.records.index import Index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from gitckpt.git.objects.writer import Objects

    Linked: TypeAlias = Callable[[str], Infos]  # the checkpoints of a commit
    Pick: TypeAlias = Callable[[Infos, Repository], Iterator[CheckpointInfo]]


def count_changes(repository: Repository, index: Index, entries: Infos) -> dict[str, int]:
    counts = {entry.id: entry.changed for entry in entries if entry.changed is not None}
    unknown = [entry for entry in entries if entry.changed is None and entry.tree]
    names = [(f"{entry.tree}:files", f"{entry.git_sha}^{{tree}}") for entry in unknown]
    unique = list(dict.fromkeys(name for pair in names for name in pair if name != "^{tree}"))
    contents = repository.cat_file.contents(unique)
    trees = {name: read[0] for name, read in zip(unique, contents, strict=True) if read}
    trees["^{tree}"] = ""  # unborn
    pairs: dict[tuple[str, str], list[str]] = {}
    expansion = diff.Expansion(repository, budget.SNAPSHOT)
    for entry, (name, base_name) in zip(unknown, names, strict=True):
        files, base = trees.get(name), trees.get(base_name)
        if files is None or base is None or expansion.is_beyond(base, files):
            continue
        # One unreadable tree would end git before it has counted the others.
        if not expansion.needs_unreadable_trees(base, files):
            pairs.setdefault((base, files), []).append(entry.id)
    counted = diff.count_differences(repository, pairs)
    if new := [(id_, counted[pair]) for pair, members in pairs.items() for id_ in members]:
        index.remember_changed(new)
    return counts | dict(new)


# The newest checkpoint of this worktree (or of its run), and the newest of all.
LATEST, LATEST_ANY = "latest", "latest:any"
_FIRST = 20
_LIST = "list the checkpoints: git ckpt list"


def find(text: str, repository: Repository, index: Index, linked: Linked) -> str:
    require_text("id", text)
    if not text.strip():
        raise UsageError("the id is empty", hint=_LIST)
    if text == LATEST:
        return latest(repository, index).id
    if text == LATEST_ANY:
        return _latest_any(repository, index)
    checkpoint, run = _resolve(text, repository, index)
    if run is not None and (newest := heads.newest(index, repository, run)):
        return newest.id
    if checkpoint := checkpoint or _by_rev(text, repository, linked):
        return checkpoint
    raise _not_found(text, index)


def linked(commit: str, repository: Repository, objects: Objects, index: Index) -> Infos:
    """List the checkpoints of a commit, and of the commits amended or rebased into it."""
    ids.require_oid_or_unborn(commit)
    # The pending lines first: if they are written meanwhile, they are in the notes.
    pending = notes.pending(repository)[0].get(commit, [])
    lines = Notes(repository, objects, ref_names.NOTES).lines([commit]).get(commit, [])
    listed = index.select(Query(ids=list(map(note.link_id, (*lines, *pending)))))
    # The note also lists checkpoints of the commits it replaced; a full note lacks some of them.
    commits = {commit, *(entry.git_sha for entry in listed if note.has_more(lines))} - {""} or {""}
    entry_ids = [entry.id for oid in commits for entry in index.select(Query(git_sha=oid))]
    return index.select(Query(ids=[*(entry.id for entry in listed), *entry_ids]))


def latest(repository: Repository, index: Index) -> CheckpointInfo:
    """Return the newest checkpoint of this worktree or its run; no safety checkpoint."""
    if newest := _find_newest(index, repository, _pick_from_worktree):
        return newest
    local, here = LocalCheckpoints.read(repository), local_checkpoints.worktree_key(repository)
    if any(local.was_captured_in(id_, here) for id_ in local.replaced(index.oids())):
        hint = "restore the checkpoints that were written here: git ckpt verify --repair"
        raise NotFoundError("a fetch has replaced the checkpoints of this worktree", hint=hint)
    if not index.select(Query(limit=1)):
        raise _none_yet()
    hint = f"use {LATEST_ANY} for the newest of all worktrees, or save one here: git ckpt save"
    raise NotFoundError("no checkpoint was made in this worktree", hint=hint)


def _latest_any(repository: Repository, index: Index) -> str:
    # Not a fetched one, which can have any date.
    if newest := _find_newest(index, repository, _pick_local):
        return newest.id
    if not LocalCheckpoints.read(repository):  # a fresh clone: nothing is listed as written here
        for entry in index.select(Query(in_run=False)):
            if entry.trigger != SAFETY:
                return entry.id
    if index.select(Query(limit=1)):
        problem = "every checkpoint was fetched, or is a safety checkpoint of a restore"
        raise NotFoundError(problem, hint=_LIST)
    raise _none_yet()


def _find_newest(index: Index, repository: Repository, pick: Pick) -> CheckpointInfo | None:
    picked = (pick(index.select(Query(limit=limit)), repository) for limit in (_FIRST, None))
    return next(chain.from_iterable(picked), None)


def _none_yet() -> NotFoundError:
    return NotFoundError("there are no checkpoints yet", hint="save a checkpoint: git ckpt save")


def _pick_local(entries: Infos, repository: Repository) -> Iterator[CheckpointInfo]:
    local = LocalCheckpoints.read(repository, [entry.id for entry in entries])
    return (entry for entry in entries if entry.trigger != SAFETY and local.is_ours(entry))


def _pick_from_worktree(entries: Infos, repository: Repository) -> Iterator[CheckpointInfo]:
    local = LocalCheckpoints.read(repository, [entry.id for entry in entries])
    here, owner = local_checkpoints.worktree_key(repository), ref_names.owner_in(repository.git_dir)
    for entry in _pick_local(entries, repository):
        is_of_run = owner is not None and owner.run is not None and owner.run == entry.run
        if is_of_run or local.was_captured_in(entry.id, here):
            yield entry


def named_run(text: str, repository: Repository, index: Index) -> str | None:
    require_text("id", text)
    return _resolve(text, repository, index)[1]


def _resolve(text: str, repository: Repository, index: Index) -> tuple[str | None, str | None]:
    folded = text.lower()
    ref = ref_names.CHECKPOINTS + folded
    if ids.is_id(folded) and (read_loose(repository, ref) or repository.cat_file.info(ref)):
        return folded, None  # needs no new process
    checkpoints = _checkpoints(folded, repository)
    if folded in checkpoints:
        return folded, None  # an exact id wins, even if runs cannot be listed
    try:
        runs = _runs(text, index)
    except CkptError:
        if not checkpoints:
            raise  # not "no such run", which would be wrong
        runs = []  # listing may fail due to a broken checkpoint, which the user may want to remove
    if text in runs:
        return None, text
    if len(checkpoints) + len(runs) > 1:
        raise _ambiguous(text, [*checkpoints, *runs])
    return next(iter(checkpoints), None), next(iter(runs), None)


def _ambiguous(text: str, candidates: list[str]) -> AmbiguousError:
    problem = f"{len(candidates)} ids begin with {text!r}"
    return AmbiguousError(problem, candidates[:10], hint="give more characters of the id")


def _checkpoints(text: str, repository: Repository) -> list[str]:
    if not ids.is_id_prefix(text):
        return []
    pattern = f"{ref_names.CHECKPOINTS}{text}*"
    output = repository.git.run("for-each-ref", "--format=%(refname)", pattern).out
    refs = output.decode("utf-8", "backslashreplace").split("\n")
    return [ref.removeprefix(ref_names.CHECKPOINTS) for ref in refs if ref_names.is_own(ref)]


def _runs(text: str, index: Index) -> list[str]:
    if len(text) < ids.MIN_PREFIX or not text[:1].isdigit():
        return []
    return [run for run in read_safely(ref_names.CHECKPOINTS, index.runs) if run.startswith(text)]


def _by_rev(text: str, repository: Repository, linked: Linked) -> str | None:
    try:
        commit = repository.commit(text)
    except NotFoundError:
        return None
    if not (entries := linked(commit)):
        raise NotFoundError(f"no checkpoint is linked to commit {commit[:10]} ({text})", hint=_LIST)
    if preferred := [*_pick_from_worktree(entries, repository), *_pick_local(entries, repository)]:
        return preferred[0].id
    # Else the first fetched checkpoint that replaces no local one. No safety checkpoint: its
    # restore, run twice, would undo itself.
    local = LocalCheckpoints.read(repository, [entry.id for entry in entries])
    for entry in entries:
        if entry.trigger != SAFETY and not local.is_replaced(entry.id, entry.oid):
            return entry.id
    problem = f"commit {commit[:10]} ({text}) only has safety checkpoints of restores"
    raise NotFoundError(problem, hint=f"undo the last restore: git ckpt undo; or {_LIST}")


def _not_found(text: str, index: Index) -> NotFoundError:
    recent = [entry.id for entry in index.select(Query(limit=1000))]
    names = [LATEST, LATEST_ANY, *index.runs(), *recent]
    close = closest(text, [*names, *(name[: len(text)] for name in names)], likeness=0.7)
    hint = _LIST
    if close:
        hint = f"did you mean {next(name for name in names if name.startswith(close))}?"
    elif len(text) < ids.MIN_PREFIX:
        hint = f"give at least {ids.MIN_PREFIX} characters of an id, or {_LIST}"
    return NotFoundError(f"no checkpoint, run or commit is named {text!r}", hint=hint)


def find_run(text: str, index: Index) -> str:
    runs = index.runs()
    candidates = [run for run in runs if text and run.startswith(text)]
    if len(candidates) > 1 and text not in runs:
        raise _ambiguous(text, candidates)
    if candidates:
        return text if text in runs else candidates[0]
    close = closest(text, runs, likeness=0.7)
    hint = f"did you mean {close}?" if close else "list the runs: git ckpt runs"
    raise NotFoundError(f"no run is named {text!r}", hint=hint)
