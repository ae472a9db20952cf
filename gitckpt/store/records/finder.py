"""Resolve an id, a prefix, a run, "latest" or a rev to a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gitckpt.git.files.refs_stat import plain
from gitckpt.git.notes import Notes
from gitckpt.git.objects import diff
from gitckpt.git.repository import Repository
from gitckpt.model import budget, ids, note
from gitckpt.model.arguments import closest, require_text
from gitckpt.model.checkpoint import SAFETY
from gitckpt.model.errors import AmbiguousError, CkptError, NotFoundError, UsageError
from gitckpt.model.skip_invalid import fenced
from gitckpt.store import local_checkpoints, notes
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import heads, ref_names
from gitckpt.store.records.entry import CheckpointInfo, Query
from gitckpt.store.records.index import Index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects


# Changed paths of a snapshot against its commit; counted on demand and cached in the index.


def count(
    repository: Repository, index: Index, entries: Sequence[CheckpointInfo]
) -> dict[str, int]:
    """Return, by id, the number of changed paths of each checkpoint with files."""
    known = {entry.id: entry.changed for entry in entries if entry.changed is not None}
    unknown = [entry for entry in entries if entry.changed is None and entry.tree]
    found = _trees(repository, [f"{entry.tree}:files" for entry in unknown])
    bases = _trees(repository, [f"{entry.git_sha}^{{tree}}" for entry in unknown if entry.git_sha])
    pairs: dict[tuple[str, str], list[str]] = {}
    expansion = diff.Expansion(repository, budget.SNAPSHOT)
    for entry in unknown:
        files = found.get(f"{entry.tree}:files")
        base = bases.get(f"{entry.git_sha}^{{tree}}") if entry.git_sha else ""
        # One unreadable tree would end git before it has counted the others.
        if (
            files is not None
            and base is not None
            and not expansion.is_beyond(base, files)
            and not expansion.is_lacking(base, files)
        ):
            pairs.setdefault((base, files), []).append(entry.id)
    counted = diff.counts(repository, pairs)
    fresh = [
        (checkpoint, counted[pair])
        for pair, checkpoints in pairs.items()
        for checkpoint in checkpoints
    ]
    if fresh:
        index.remember_changed(fresh)
    return known | dict(fresh)


def _trees(repository: Repository, names: Sequence[str]) -> dict[str, str]:
    once = list(dict.fromkeys(names))
    return {
        name: read[0]
        for name, read in zip(once, repository.cat_file.contents(once), strict=True)
        if read is not None
    }


# Resolve names.


# The newest checkpoint of this worktree (or of its run), and the newest of all.
LATEST, LATEST_ANY = "latest", "latest:any"

_FIRST = 20
_LIST = "see which there are: git ckpt list"


def find(
    text: str,
    repository: Repository,
    index: Index,
    linked: Callable[[str], Sequence[CheckpointInfo]],
) -> str:
    require_text("id", text)
    if not text.strip():
        raise UsageError("the id is empty", hint=_LIST)
    if text == LATEST:
        return latest(repository, index).id
    if text == LATEST_ANY:
        return _latest_any(repository, index)
    return (
        _by_name(text, repository, index)
        or _by_rev(text, repository, linked)
        or _nothing(text, index)
    )


def linked(
    commit: str, repository: Repository, objects: Objects, index: Index
) -> Sequence[CheckpointInfo]:
    """List the checkpoints of a commit and of the commits it was rewritten from."""
    ids.require_oid_or_unborn(commit)
    waiting = notes.waiting(repository).get(
        commit, []
    )  # read first: lines written meanwhile are in the notes
    lines = Notes(repository, objects, ref_names.NOTES).lines([commit]).get(commit, [])
    listed = index.select(Query(ids=list(map(note.link_id, (*lines, *waiting)))))
    # The note also lists checkpoints of the commits it replaced; a full note lacks some of them.
    commits = {commit, *(entry.git_sha for entry in listed if note.is_full(lines))} - {""} or {""}
    own = [entry.id for each in commits for entry in index.select(Query(git_sha=each))]
    return index.select(Query(ids=[*(entry.id for entry in listed), *own]))


def latest(repository: Repository, index: Index) -> CheckpointInfo:
    """Return the newest checkpoint of this worktree, or of its run, but no safety one."""
    for limit in (_FIRST, None):
        found = next(_of_this_worktree(index.select(Query(limit=limit)), repository), None)
        if found is not None:
            return found
    known = LocalCheckpoints.read(repository)
    replaced = known.replaced(index.oids())
    if any(
        known.was_captured_in(name, local_checkpoints.place_of(repository)) for name in replaced
    ):
        hint = "put back what was written here: git ckpt verify --repair"
        raise NotFoundError("a fetch has replaced the checkpoints of this worktree", hint=hint)
    if not index.select(Query(limit=1)):
        raise _none_yet()
    hint = f"the newest of all worktrees goes by {LATEST_ANY}; to make one here: git ckpt save"
    raise NotFoundError("no checkpoint was made in this worktree", hint=hint)


def _latest_any(repository: Repository, index: Index) -> str:
    """Return the newest local checkpoint; fetched ones can have any date."""
    for limit in (_FIRST, None):
        found = next(_ours(index.select(Query(limit=limit)), repository), None)
        if found is not None:
            return found.id
    outside = index.select(Query(in_run=False))
    if outside and not LocalCheckpoints.read(
        repository
    ):  # a fresh clone: nothing is listed as written here
        found = next((entry for entry in outside if entry.trigger != SAFETY), None)
        if found is not None:
            return found.id
    if index.select(Query(limit=1)):
        what = "was written elsewhere, and fetched, or made before files were replaced"
        raise NotFoundError(f"every checkpoint {what}", hint=_LIST)
    raise _none_yet()


def _none_yet() -> NotFoundError:
    return NotFoundError("there are no checkpoints yet", hint="make one: git ckpt save")


def _ours(entries: Sequence[CheckpointInfo], repository: Repository) -> Iterator[CheckpointInfo]:
    known = LocalCheckpoints.read(repository, [entry.id for entry in entries])
    return (entry for entry in entries if entry.trigger != SAFETY and known.is_ours(entry))


def _of_this_worktree(
    entries: Sequence[CheckpointInfo], repository: Repository
) -> Iterator[CheckpointInfo]:
    known = LocalCheckpoints.read(repository, [entry.id for entry in entries])
    place, made_for = local_checkpoints.place_of(repository), ref_names.owner_in(repository.git_dir)
    run = made_for.run if made_for is not None else None
    for entry in _ours(entries, repository):
        if (run is not None and entry.run == run) or known.was_captured_in(entry.id, place):
            yield entry


def named_run(text: str, repository: Repository, index: Index) -> str | None:
    require_text("id", text)
    return _named(text, repository, index)[1]


def _by_name(text: str, repository: Repository, index: Index) -> str | None:
    checkpoint, run = _named(text, repository, index)
    if run is None:
        return checkpoint
    newest = heads.newest(index, repository, run)
    return newest.id if newest is not None else None


def _named(text: str, repository: Repository, index: Index) -> tuple[str | None, str | None]:
    folded = text.lower()
    if ids.is_id(folded):
        ref = ref_names.CHECKPOINTS + folded
        if (
            plain(repository, ref) is not None or repository.cat_file.info(ref) is not None
        ):  # needs no new process
            return folded, None
    checkpoints = _checkpoints(folded, repository)
    if folded in checkpoints:
        return folded, None  # an exact id wins, even if runs cannot be listed
    try:
        runs = _runs(text, index)
    except CkptError:
        if not checkpoints:
            raise  # not "no such run", which would be wrong
        runs = []  # it may be the broken checkpoint that is to be removed
    if text in runs:
        return None, text
    found = [*checkpoints, *runs]
    if len(found) > 1:
        raise AmbiguousError(
            f"{text!r} begins {len(found)} ids", found[:10], hint="give more characters of it"
        )
    return (checkpoints[0], None) if checkpoints else (None, runs[0] if runs else None)


def _checkpoints(text: str, repository: Repository) -> list[str]:
    if not ids.is_id_prefix(text):
        return []
    pattern = f"{ref_names.CHECKPOINTS}{text}*"
    out = repository.git.run("for-each-ref", "--format=%(refname)", pattern).out.decode(
        "utf-8", "backslashreplace"
    )
    names = [ref.removeprefix(ref_names.CHECKPOINTS) for ref in out.split("\n")]
    return [name for name in names if ids.is_id(name)]


def _runs(text: str, index: Index) -> list[str]:
    if len(text) < ids.MIN_PREFIX or not text[:1].isdigit():
        return []
    return [run for run in fenced(ref_names.CHECKPOINTS, index.runs) if run.startswith(text)]


def _by_rev(
    text: str, repository: Repository, linked: Callable[[str], Sequence[CheckpointInfo]]
) -> str | None:
    try:
        commit = repository.commit(text)
    except NotFoundError:
        return None
    there = linked(commit)
    if not there:
        raise NotFoundError(f"no checkpoint is linked to commit {commit[:10]} ({text})", hint=_LIST)
    meant = next(_of_this_worktree(there, repository), None) or next(_ours(there, repository), None)
    meant = meant or _of_others(there, repository)
    if meant is None:  # a restore of a safety checkpoint, run twice, would undo itself
        only = "only what was there before files were replaced is linked to"
        raise NotFoundError(
            f"{only} commit {commit[:10]} ({text})",
            hint=f"to take that back: git ckpt undo; or {_LIST}",
        )
    return meant.id


def _of_others(entries: Sequence[CheckpointInfo], repository: Repository) -> CheckpointInfo | None:
    """Return the first fetched checkpoint that replaces no local one."""
    known = LocalCheckpoints.read(repository, [entry.id for entry in entries])
    for entry in entries:
        if entry.trigger != SAFETY and not known.is_replaced(entry.id, entry.oid):
            return entry
    return None


def _nothing(text: str, index: Index) -> str:
    known = [
        LATEST,
        LATEST_ANY,
        *index.runs(),
        *(entry.id for entry in index.select(Query(limit=1000))),
    ]
    close = closest(text, [*known, *(name[: len(text)] for name in known)], likeness=0.7)
    if close:
        meant = next(name for name in known if name.startswith(close))
        hint = f"did you mean {meant}?"
    elif len(text) < ids.MIN_PREFIX:
        hint = f"give at least {ids.MIN_PREFIX} characters of an id, or {_LIST}"
    else:
        hint = _LIST
    raise NotFoundError(f"no checkpoint, run or commit goes by {text!r}", hint=hint)


def find_run(text: str, index: Index) -> str:
    runs = index.runs()
    if text in runs:
        return text
    found = [run for run in runs if text and run.startswith(text)]
    if len(found) > 1:
        raise AmbiguousError(
            f"{text!r} begins {len(found)} run ids", found[:10], hint="give more characters of it"
        )
    if not found:
        close = closest(text, runs, likeness=0.7)
        raise NotFoundError(
            f"no run goes by {text!r}",
            hint=f"did you mean {close}?" if close else "see them: git ckpt runs",
        )
    return found[0]
