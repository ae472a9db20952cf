"""Captures submodules: each gets a checkpoint in its own repository, and those go with the checkpoints around them that name them.

They are recorded before the one that names them: a kill leaves one too many, which an expiry takes.
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
        """What this room uses of the checkpoints of a repository."""

        repository: Repository
        objects: Objects
        clock: Callable[[], int]

        def seen_from(self, repository: Repository, adapter: str) -> AnyCheckpoints: ...  # noqa: D102
        def capture(self, limits: Limits | None = None) -> Worktree: ...  # noqa: D102
        def record(  # noqa: D102
            self, label: str, state: dict[str, Any], *, worktree: Worktree, trigger: str, base: str | None = None
        ) -> Checkpoint: ...
        def read(self, checkpoint_id: str) -> Checkpoint: ...  # noqa: D102
        def read_own(self, checkpoint_id: str) -> Checkpoint: ...  # noqa: D102
        def list(self, query: Query | None = None) -> Sequence[Entry]: ...  # noqa: D102
        def problems(self) -> Sequence[Problem]: ...  # noqa: D102
        def remove(self, checkpoint_ids: Collection[str]) -> int: ...  # noqa: D102
        def link(self, entries: Sequence[Entry]) -> None: ...  # noqa: D102
        def announce(self, sentence: str) -> None: ...  # noqa: D102
        def close(self) -> None: ...  # noqa: D102


_LABEL = "submodule-complete"


def capture(store: AnyCheckpoints, found: Worktree, paths: Collection[bytes], limits: Limits) -> Worktree:
    """Captures the submodules of a worktree, those within them too.

    Args:
        store: of the worktree that they are in.
        found: what the worktree holds; it says of each submodule that it was left out.
        paths: of those that are checked out, or of other repositories that are to be captured like them.
        limits: what is left out, in them as in the worktree itself.

    Returns:
        What the worktree holds, with the submodules. One that could not be captured stays among what was left out, with the reason.
    """
    made: list[Submodule] = []
    failed: dict[bytes, str] = {}
    texts = {modules.unquoted(entry.path): entry.path for entry in found.omitted}
    texts |= {path: quoted(path) for path in paths if path + b"/" in texts}  # a repository that the index here does not have as one
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
    """Tells whether commit or files of a submodule differ that two captures of a worktree have in common, or of one within it.

    Args:
        store: of the worktree that they are in.
        before: the earlier capture.
        after: the later one.
    """
    known = {one.path: one for one in before.submodules} if before is not None else {}
    pairs = [(known[one.path], one) for one in after.submodules if one.path in known]
    return any(_differs(store, then, now) for then, now in pairs if then.checkpoint != now.checkpoint)


def _differs(store: AnyCheckpoints, then: Submodule, now: Submodule) -> bool:
    """Does what `differ` says for one of them, whose checkpoints may differ by no more than a branch."""
    there = modules.seen_from(store.repository, modules.unquoted(now.path)) if then.git_sha == now.git_sha else None
    if there is None:
        return True
    with contextlib.closing(store.seen_from(there, "plumbing")) as inner:
        try:
            before, after = inner.read_own(then.checkpoint), inner.read_own(now.checkpoint)
            old, new = (manifest.contents_of(each, inner.repository, inner.objects) for each in (before, after))
        except CkptError:
            return True  # it is gone, or lacks something
        return (old.files, old.raw) != (new.files, new.raw) or differ(inner, before.worktree, after.worktree or CLEAN)


def of_tree(store: AnyCheckpoints, tree: str, but: Collection[str] = ()) -> tuple[Submodule, ...]:
    """Returns the submodules of files that nobody has captured with theirs: those that are checked out here, each without changes.

    Args:
        store: of the worktree that says which are checked out.
        tree: of the files, or a commit; "" for none.
        but: paths of those that are known already.

    Returns:
        A submodule whose repository lacks its commit is left out, as `git worktree add` leaves out all; the log says what went wrong.
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
    """Returns a checkpoint of a submodule without changes: one that is there already, or a new one."""
    worktree = replace(CLEAN, submodules=of_tree(inner, commit))

    def attempt() -> Checkpoint:
        known = _known(inner, (commit, None), worktree)
        return known or inner.record(_LABEL, {"path": path}, worktree=worktree, trigger=SUBMODULE, base=commit)

    return assurance.recorded(inner.repository, inner.objects, attempt, inner.remove, inner.announce)


def _checkpoint_of(inner: AnyCheckpoints, path: str, limits: Limits) -> Checkpoint:
    """Returns a checkpoint of a submodule as it is now: one that is there already, or a new one."""

    def attempt() -> Checkpoint:
        worktree = inner.capture(limits)
        if worktree.degraded is not None:
            raise CkptError(worktree.degraded)
        return _known(inner, inner.objects.head(), worktree) or inner.record(_LABEL, {"path": path}, worktree=worktree, trigger=SUBMODULE)

    return assurance.recorded(inner.repository, inner.objects, attempt, inner.remove, inner.announce)


def _known(inner: AnyCheckpoints, head: tuple[str, str | None], worktree: Worktree) -> Checkpoint | None:
    """Returns the checkpoint of a submodule at a commit and a branch, with these files; None where there is none."""
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
    """Returns the checkpoints of submodules that some checkpoints name, each with the path of its submodule.

    Args:
        submodules: those of each checkpoint, as `Entry` has them.
    """
    lines = (line.partition(" ") for each in submodules for line in each.split("\0")[:-1])
    return {checkpoint: modules.unquoted(path) for checkpoint, _, path in lines}


def _submodules(entries: Iterable[Entry]) -> Iterator[str]:
    return (entry.submodules for entry in entries)


def way_to_make(path: bytes) -> str:
    """Returns the command by which a person has a submodule checked out that is not there, with those within it."""
    return f"git submodule update --init --recursive -- {shell_word(os.fsdecode(path))}"


def way_to_fetch(path: bytes, checkpoint_id: str) -> str:
    """Returns how a person brings the checkpoint of a submodule into the repository that is checked out at its path.

    Where none is, that fails: `git -C` would go to the repository around it, and fetch the refs into that.
    """
    specs = " ".join(f"'{refs}:{refs}'" for refs in (layout.CHECKPOINTS + checkpoint_id, f"refs/ckpt/*/{checkpoint_id}", "refs/keep/*"))
    git_dir = shell_word(os.path.join(os.fsdecode(path), ".git"))
    return f"fetch it from where it was captured: git --git-dir={git_dir} fetch --no-tags --no-prune CLONE {specs}"


def problem(repository: Repository, path: bytes, checkpoint_id: str) -> str | None:
    """Returns what is wrong with the checkpoint of a submodule, one clause; None where all that it names is there.

    Args:
        repository: the one around it, seen from any of its worktrees.
        path: of the submodule.
        checkpoint_id: of its checkpoint.
    """
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
    """Around a removal of checkpoints: removes those of submodules afterwards that they named, unless others name them, too.

    What cannot be removed is for the log: an expiry tries again.

    Args:
        store: of the repository around the submodules.
        checkpoint_ids: what is to be removed.
        listed: the same by their ids, where the caller has listed them already.
    """
    try:
        entries = fenced(layout.CHECKPOINTS, lambda: store.list(Query(ids=list(checkpoint_ids)))) if listed is None else listed.values()
        named = named_by(_submodules(entries))
    except CkptError:
        named = {}  # what is to be removed may be the reason that nothing can be listed: an expiry looks for the others
    yield
    if not named:
        return
    with _alone(store) as is_alone:
        if is_alone and not store.problems():  # what cannot be read may name any of them
            _remove(store, named.keys() - named_by(_submodules(store.list())).keys(), named.values())


def sweep(store: AnyCheckpoints) -> None:
    """Removes the checkpoints of submodules that nothing names any more, or never did, as a kill leaves them; and so on within them.

    Args:
        store: of the repository around them.
    """
    if not modules.are_there(store.repository):
        return

    def clear(inner: AnyCheckpoints) -> None:
        entries = (entry for entry in inner.list() if entry.trigger == SUBMODULE and entry.time < until)
        stray = [entry.id for entry in entries if entry.id not in named]
        if stray:
            inner.remove(stray)
        sweep(inner)

    with _alone(store) as is_alone:
        # What nothing names may be of a checkpoint that is being recorded.
        named, until = named_by(_submodules(store.list())), store.clock() - times.GRACE * times.MICRO
        if is_alone and not store.problems():  # what cannot be read may name any of them
            _in_each(store, named.values(), clear)


def bring(store: AnyCheckpoints, source: Repository, to: Repository) -> None:
    """Copies checkpoints from one repository of a submodule to another one of the same, with all that they keep alive: not its own ones.

    Args:
        store: of any repository: its clock is used.
        source: has them.
        to: gets those that it lacks.

    Raises:
        GitError: not all of them could be copied.
    """
    with contextlib.closing(store.seen_from(source, "plumbing")) as theirs:
        ids = [one.id for one in theirs.list() if one.trigger == SUBMODULE and not modules.has(to, layout.CHECKPOINTS + one.id)]
    if not ids:
        return
    there = set(_refs(source, *layout.HOLDERS))
    kept = [ref for ref in _refs(source, layout.KEEP) if not modules.has(to, ref)]  # else it keeps the same commit
    modules.fetch(to, source, [*kept, *(space + each for each in ids for space in layout.HOLDERS if space + each in there)])
    modules.fetch(to, source, [layout.CHECKPOINTS + each for each in ids])
    roster.copy(source, to, ids)
    with contextlib.closing(store.seen_from(to, "plumbing")) as inner:
        inner.link(inner.list(Query(ids=ids)))


def bring_all(store: AnyCheckpoints, source: Repository, to: Repository) -> None:
    """As `bring`, and for the submodules within them."""
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
        # A document that was fetched may name one that somebody has saved there.
        theirs = [entry.id for entry in inner.list(Query(ids=sorted(ids))) if entry.trigger == SUBMODULE]
        if theirs:
            inner.remove(theirs)

    _in_each(store, paths, remove)


def _in_each(store: AnyCheckpoints, paths: Collection[bytes], do: Callable[[AnyCheckpoints], None]) -> None:
    """Does something with the checkpoints in each submodule's repository; what goes wrong there is for the log."""
    for repository in modules.stores(store.repository, paths):
        try:
            with contextlib.closing(store.seen_from(repository, "plumbing")) as inner:
                do(inner)
        except CkptError as error:
            log.append(store.repository, f"checkpoints of the submodule in {repository.git_dir} stay: {error.message}")


def _alone(store: AnyCheckpoints) -> Lock:
    """Returns the lock under which checkpoints are recorded: whoever records one afterwards looks whether those it names are there."""
    return layout.turn(store.repository)
