"""Capture submodules: each gets a checkpoint in its own repository.

The checkpoint of the superproject names them and is recorded after them. A kill can thus leave an
unnamed one, which expiry removes; they are removed with the checkpoints that name them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from gitckpt.git.lock import Lock
from gitckpt.git.worktree import modules
from gitckpt.model import budget, codec, times
from gitckpt.model.arguments import quoted, shell_word
from gitckpt.model.checkpoint import CLEAN, SUBMODULE, Checkpoint, Submodule, Worktree
from gitckpt.model.errors import CkptError
from gitckpt.model.fence import fenced
from gitckpt.model.values import replace
from gitckpt.store import log, roster
from gitckpt.store.records import layout
from gitckpt.store.records.entry import Query
from gitckpt.store.roster import Roster
from gitckpt.store.snapshot import assurance, manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.store.records.entry import Entry, Problem
    from gitckpt.store.snapshot.limits import Limits

    class AnyCheckpoints(Protocol):
        repository: Repository
        objects: Objects
        clock: Callable[[], int]

        def seen_from(self, repository: Repository, adapter: str) -> AnyCheckpoints: ...
        def capture(self, limits: Limits | None = None) -> Worktree: ...
        def record(self, label: str, state: dict[str, Any], *, worktree: Worktree, trigger: str, base: str | None = None) -> Checkpoint: ...
        def read(self, checkpoint_id: str) -> Checkpoint: ...
        def read_own(self, checkpoint_id: str) -> Checkpoint: ...
        def list(self, query: Query | None = None) -> Sequence[Entry]: ...
        def problems(self) -> Sequence[Problem]: ...
        def remove(self, checkpoint_ids: Collection[str]) -> int: ...
        def link(self, entries: Sequence[Entry]) -> None: ...
        def announce(self, sentence: str) -> None: ...
        def close(self) -> None: ...


_LABEL = "submodule-complete"


def capture(store: AnyCheckpoints, found: Worktree, paths: Collection[bytes], limits: Limits) -> Worktree:
    """Capture the submodules of a worktree (`found`), recursively.

    A submodule that could not be captured stays among the omitted paths, with the reason. `paths`
    are those of submodules that are checked out, and of embedded repositories.
    """
    made: list[Submodule] = []
    failed: dict[bytes, str] = {}
    texts = {modules.unquoted(entry.path): entry.path for entry in found.omitted}
    texts |= {path: quoted(path) for path in paths if path + b"/" in texts}  # embedded repositories that the index does not know
    for path in sorted(path for path in paths if path in texts):
        there = modules.seen_from(store.repository, path)
        if there is None:
            continue
        try:
            with contextlib.closing(store.seen_from(there, "plumbing")) as inner:
                checkpoint = _checkpoint_of(inner, texts[path], limits)
        except CkptError as error:
            failed[path] = error.message
            continue
        files = checkpoint.worktree or CLEAN
        is_dirty = files.dirty or any(submodule.dirty for submodule in files.submodules)
        made.append(Submodule(texts[path], checkpoint.id, checkpoint.git_sha, dirty=is_dirty))
    done = {one.path for one in made} | {quoted(modules.unquoted(one.path) + b"/") for one in made}
    omitted = [
        replace(entry, reason=f"a submodule that could not be captured: {failed[path]}", dirty=None)
        if (path := modules.unquoted(entry.path)) in failed
        else entry
        for entry in found.omitted
        if entry.path not in done
    ]
    return replace(found, omitted=tuple(omitted), submodules=tuple(made))


def differ(store: AnyCheckpoints, before: Worktree | None, after: Worktree) -> bool:
    """Return whether a submodule, also a nested one, differs in commit or files."""
    known = {one.path: one for one in before.submodules} if before is not None else {}
    pairs = [(known[one.path], one) for one in after.submodules if one.path in known]
    return any(_differs(store, then, now) for then, now in pairs if then.checkpoint != now.checkpoint)


def _differs(store: AnyCheckpoints, then: Submodule, now: Submodule) -> bool:
    # Different checkpoints may differ in the branch alone.
    there = modules.seen_from(store.repository, modules.unquoted(now.path)) if then.git_sha == now.git_sha else None
    if there is None:
        return True
    with contextlib.closing(store.seen_from(there, "plumbing")) as inner:
        try:
            before, after = inner.read_own(then.checkpoint), inner.read_own(now.checkpoint)
            old, new = (manifest.contents_of(each, inner.repository, inner.objects) for each in (before, after))
        except CkptError:
            return True  # gone or incomplete
        return (old.files, old.raw) != (new.files, new.raw) or differ(inner, before.worktree, after.worktree or CLEAN)


def of_tree(store: AnyCheckpoints, tree: str, but: Collection[str] = ()) -> tuple[Submodule, ...]:
    """Return the checked-out submodules of a tree, clean at their recorded commits.

    A submodule whose repository lacks the commit is left out, as `git worktree add` leaves out all;
    other errors are logged.

    Args:
        store: of the worktree in which the submodules are checked out.
        tree: of the files, or a commit; "" for none.
        but: paths of submodules to skip.
    """
    repository = store.repository
    if not tree or repository.worktree is None or not modules.are_there(repository):
        return ()
    made = []
    for path, oid in modules.of_tree(repository, tree):
        there = modules.seen_from(repository, path) if quoted(path) not in but else None
        if there is None:
            continue
        with contextlib.closing(store.seen_from(there, "plumbing")) as inner:
            if inner.repository.cat_file.info(f"{oid}^{{commit}}") is None:
                continue
            try:
                made.append(Submodule(quoted(path), _clean_at(inner, oid, quoted(path)).id, oid, dirty=False))
            except CkptError as error:
                log.append(repository, f"the submodule {quoted(path)} is not in a new worktree: {error.message}")
    return tuple(made)


def _clean_at(inner: AnyCheckpoints, commit: str, path: str) -> Checkpoint:
    worktree = replace(CLEAN, submodules=of_tree(inner, commit))

    def attempt() -> Checkpoint:
        known = _known(inner, (commit, None), worktree)
        return known or inner.record(_LABEL, {"path": path}, worktree=worktree, trigger=SUBMODULE, base=commit)

    return assurance.recorded(inner.repository, inner.objects, attempt, inner.remove, inner.announce)


def _checkpoint_of(inner: AnyCheckpoints, path: str, limits: Limits) -> Checkpoint:
    def attempt() -> Checkpoint:
        worktree = inner.capture(limits)
        if worktree.degraded is not None:
            raise CkptError(worktree.degraded)
        return _known(inner, inner.objects.head(), worktree) or inner.record(_LABEL, {"path": path}, worktree=worktree, trigger=SUBMODULE)

    return assurance.recorded(inner.repository, inner.objects, attempt, inner.remove, inner.announce)


def _known(inner: AnyCheckpoints, head: tuple[str, str | None], worktree: Worktree) -> Checkpoint | None:
    wanted = (head[1], worktree.tree)
    linked = inner.list(Query(git_sha=head[0]))
    alike = [entry for entry in linked if (entry.branch, entry.tree) == wanted]
    known_here = Roster.read(inner.repository, [entry.id for entry in alike])
    for entry in alike:
        if entry.trigger == SUBMODULE and known_here.is_ours(entry):
            known = inner.read(entry.id)
            if known.worktree == worktree:
                return known
    return None


def named_by(submodules: Iterable[str]) -> dict[str, bytes]:
    """Return, by id, the path of the submodule checkpoints in `Entry.submodules`."""
    lines = (line.partition(" ") for each in submodules for line in each.split("\0")[:-1])
    return {checkpoint: modules.unquoted(path) for checkpoint, _, path in lines}


def _submodules(entries: Iterable[Entry]) -> Iterator[str]:
    return (entry.submodules for entry in entries)


def way_to_make(path: bytes) -> str:
    return f"git submodule update --init --recursive -- {shell_word(os.fsdecode(path))}"


def way_to_fetch(path: bytes, checkpoint_id: str) -> str:
    specs = " ".join(f"'{refs}:{refs}'" for refs in (layout.CHECKPOINTS + checkpoint_id, f"refs/ckpt/*/{checkpoint_id}", "refs/keep/*"))
    # Without a checkout, `git -C` would fetch the refs into the superproject; `--git-dir` fails.
    git_dir = shell_word(os.path.join(os.fsdecode(path), ".git"))
    return f"fetch it from where it was captured: git --git-dir={git_dir} fetch --no-tags --no-prune CLONE {specs}"


def problem(repository: Repository, path: bytes, checkpoint_id: str) -> str | None:
    """Return why a submodule checkpoint cannot be restored, in one clause, or None."""
    ref = layout.CHECKPOINTS + checkpoint_id
    there = modules.holding(repository, path, ref)
    if there is None:
        return f"no repository of it has the checkpoint {checkpoint_id}"
    try:
        found = next(there.cat_file.contents([ref], budget.DOCUMENT.size))
        known = Roster.read(there, [checkpoint_id])
        if found is not None and known.is_replaced(checkpoint_id, found[0]):
            return roster.replaced(checkpoint_id).message
        checkpoint = codec.decode_header(layout.document(found and found[1:], ref, "of the document"), ref)
        needed = [checkpoint.git_sha, checkpoint.tree, checkpoint.worktree.operation_commit if checkpoint.worktree else None]
        gone = [oid for oid in needed if oid and there.cat_file.info(oid) is None]
        if gone:
            return f"{gone[0]} of the checkpoint {checkpoint_id} is missing"
        inner = checkpoint.worktree.submodules if checkpoint.worktree else ()
    except CkptError as error:
        return error.message
    finally:
        there.close()
    problems = (problem(there, modules.unquoted(one.path), one.checkpoint) for one in inner)
    return next((f"within it, {each}" for each in problems if each), None)


@contextlib.contextmanager
def removal(store: AnyCheckpoints, checkpoint_ids: Collection[str], listed: Mapping[str, Entry] | None = None) -> Iterator[None]:
    """Remove, after the body, submodule checkpoints that are no longer named.

    The body removes `checkpoint_ids` of the superproject, which the caller may have `listed`.
    Failures are logged; expiry tries again.
    """
    try:
        entries = fenced(layout.CHECKPOINTS, lambda: store.list(Query(ids=list(checkpoint_ids)))) if listed is None else listed.values()
        named = named_by(_submodules(entries))
    except CkptError:
        named = {}  # a checkpoint to remove may make listing fail; expiry finds the rest
    yield
    if not named:
        return
    with _alone(store) as is_alone:
        if is_alone and not store.problems():  # what cannot be read may name any of them
            _remove(store, named.keys() - named_by(_submodules(store.list())).keys(), named.values())


def sweep(store: AnyCheckpoints) -> None:
    """Remove submodule checkpoints that no checkpoint names, recursively."""
    if not modules.are_there(store.repository):
        return

    def clear(inner: AnyCheckpoints) -> None:
        entries = (entry for entry in inner.list() if entry.trigger == SUBMODULE and entry.time < until)
        stray = [entry.id for entry in entries if entry.id not in named]
        if stray:
            inner.remove(stray)
        sweep(inner)

    with _alone(store) as is_alone:
        # An unnamed one may belong to a checkpoint that is being recorded.
        named, until = named_by(_submodules(store.list())), store.clock() - times.GRACE * times.MICRO
        if is_alone and not store.problems():  # what cannot be read may name any of them
            _in_each(store, named.values(), clear)


def bring(store: AnyCheckpoints, source: Repository, to: Repository) -> None:
    """Copy submodule checkpoints, with all they need, to another repository of it.

    The source's own checkpoints are not copied. Of `store`, only the clock is used.
    """
    with contextlib.closing(store.seen_from(source, "plumbing")) as theirs:
        ids = [one.id for one in theirs.list() if one.trigger == SUBMODULE and not modules.has(to, layout.CHECKPOINTS + one.id)]
    if not ids:
        return
    there = set(_refs(source, *layout.HOLDERS))
    kept = [ref for ref in _refs(source, layout.KEEP) if not modules.has(to, ref)]  # an existing ref keeps the same commit
    modules.fetch(to, source, [*kept, *(space + each for each in ids for space in layout.HOLDERS if space + each in there)])
    modules.fetch(to, source, [layout.CHECKPOINTS + each for each in ids])
    roster.copy(source, to, ids)
    with contextlib.closing(store.seen_from(to, "plumbing")) as inner:
        inner.link(inner.list(Query(ids=ids)))


def bring_all(store: AnyCheckpoints, source: Repository, to: Repository) -> None:
    bring(store, source, to)
    for _, one, other in modules.within(source, to):
        with contextlib.closing(one):
            if other is not None:
                bring(store, one, other)


def _refs(repository: Repository, *spaces: str) -> list[str]:
    patterns = [space.rstrip("/") for space in spaces]
    return repository.git.run("for-each-ref", "--format=%(refname)", *patterns).out.decode("utf-8", "surrogateescape").split("\n")[:-1]


def _remove(store: AnyCheckpoints, ids: Collection[str], paths: Collection[bytes]) -> None:
    def remove(inner: AnyCheckpoints) -> None:
        # A fetched document may name a checkpoint that a user saved in the submodule.
        theirs = [entry.id for entry in inner.list(Query(ids=sorted(ids))) if entry.trigger == SUBMODULE]
        if theirs:
            inner.remove(theirs)

    _in_each(store, paths, remove)


def _in_each(store: AnyCheckpoints, paths: Collection[bytes], do: Callable[[AnyCheckpoints], None]) -> None:
    for repository in modules.stores(store.repository, paths):
        try:
            with contextlib.closing(store.seen_from(repository, "plumbing")) as inner:
                do(inner)
        except CkptError as error:
            log.append(store.repository, f"checkpoints of the submodule in {repository.git_dir} stay: {error.message}")


def _alone(store: AnyCheckpoints) -> Lock:
    # A later writer checks that the submodule checkpoints it names exist.
    return layout.turn(store.repository)
