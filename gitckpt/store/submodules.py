"""Capture submodules: each gets a checkpoint in its own repository.

The superproject's checkpoint is recorded last and names the submodules' checkpoints. Expiry removes
submodule checkpoints that no superproject's checkpoint names.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from gitckpt.git.worktree import modules
from gitckpt.model import budget, codec, times
from gitckpt.model.arguments import quote_path, shell_quoted
from gitckpt.model.checkpoint import CLEAN, SUBMODULE, Checkpoint, Submodule, Worktree
from gitckpt.model.errors import CkptError
from gitckpt.model.skip_invalid import read_or_raise_invalid
from gitckpt.model.values import replace
from gitckpt.store import error_log, local_checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.records.entry import CheckpointInfo, Problem, Query
from gitckpt.store.snapshot import capture as snapshot
from gitckpt.store.snapshot import manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol, Self

    from gitckpt.git.objects.writer import ObjectDatabase
    from gitckpt.git.repository import Repository
    from gitckpt.store.records.labels import LabelRefs
    from gitckpt.store.snapshot.limits import Limits

    class SubmoduleStore(Protocol):
        repository: Repository
        objects: ObjectDatabase
        clock: Callable[[], int]

        def open_store_for(self, repository: Repository, adapter: str) -> SubmoduleStore: ...
        def capture_worktree(self, limits: Limits | None = None) -> Worktree: ...
        @property
        def labels(self) -> LabelRefs: ...
        @property
        def record(self) -> Callable[..., Checkpoint]: ...
        def read(self, checkpoint_id: str) -> Checkpoint: ...
        def read_own(self, checkpoint_id: str) -> Checkpoint: ...
        def list(self, query: Query | None = None) -> Sequence[CheckpointInfo]: ...
        def list_problems(self) -> Sequence[Problem]: ...
        def remove(self, checkpoint_ids: Collection[str]) -> int: ...
        def queue_links(self, entries: Sequence[CheckpointInfo]) -> None: ...
        def announce(self, sentence: str) -> None: ...
        def __enter__(self) -> Self: ...
        def __exit__(self, *_: object) -> None: ...


_LABEL = "submodule-complete"


def capture_submodules(
    store: SubmoduleStore, files: Worktree, paths: Collection[bytes], limits: Limits
) -> Worktree:
    """Record a checkpoint of each submodule, recursively, and add them to `files`."""
    captures: list[Submodule] = []
    problems_by_path: dict[bytes, str] = {}
    quotes = {modules.unquote_path(entry.path): entry.path for entry in files.omitted}
    # Embedded repositories that the index does not know are omitted with a slash at the end.
    quotes |= {path: quote_path(path) for path in paths if path + b"/" in quotes}
    for path in sorted(path for path in paths if path in quotes):
        repository = modules.open_submodule(store.repository, path)
        if repository is None:
            continue
        try:
            with store.open_store_for(repository, "plumbing") as submodule_store:
                checkpoint = _capture_submodule(submodule_store, quotes[path], limits)
        except CkptError as error:
            problems_by_path[path] = error.message
            continue
        worktree = checkpoint.worktree or CLEAN
        is_dirty = worktree.dirty or any(submodule.dirty for submodule in worktree.submodules)
        captures.append(Submodule(quotes[path], checkpoint.id, checkpoint.git_sha, dirty=is_dirty))
    captured_paths = {submodule.path for submodule in captures}
    captured_paths |= {quote_path(modules.unquote_path(path) + b"/") for path in captured_paths}
    still_omitted = []
    for entry in files.omitted:
        problem = problems_by_path.get(modules.unquote_path(entry.path))
        if problem is not None:
            reason = f"a submodule that could not be captured: {problem}"
            still_omitted.append(replace(entry, reason=reason, dirty=None))
        elif entry.path not in captured_paths:
            still_omitted.append(entry)
    return replace(files, omitted=tuple(still_omitted), submodules=tuple(captures))


def have_submodules_changed(store: SubmoduleStore, old: Worktree | None, new: Worktree) -> bool:
    new_entries = {entry.path: entry for entry in new.submodules}
    pairs = [(entry, new_entries.get(entry.path, entry)) for entry in old.submodules] if old else []
    return any(_differs(store, *entry_pair) for entry_pair in pairs)


def _differs(store: SubmoduleStore, old_entry: Submodule, new_entry: Submodule) -> bool:
    if old_entry.checkpoint == new_entry.checkpoint:
        return False
    if old_entry.git_sha != new_entry.git_sha:
        return True
    # Two checkpoints of a submodule may differ only in the branch.
    repository = modules.open_submodule(store.repository, modules.unquote_path(new_entry.path))
    if repository is None:
        return True
    with store.open_store_for(repository, "plumbing") as inner:
        try:
            both = (inner.read_own(old_entry.checkpoint), inner.read_own(new_entry.checkpoint))
            sources = inner.repository, inner.objects
            before, after = (manifest.contents_of(checkpoint, *sources) for checkpoint in both)
        except CkptError:
            return True  # gone or incomplete
        if (before.files, before.raw) != (after.files, after.raw):
            return True
        return have_submodules_changed(inner, both[0].worktree, both[1].worktree or CLEAN)


def capture_submodules_of_tree(
    store: SubmoduleStore, tree: str, skip: Collection[str] = ()
) -> tuple[Submodule, ...]:
    """Return a checkpoint of each submodule at the commit that `tree` names."""
    repository = store.repository
    if not tree or repository.worktree is None or not modules.may_have_submodules(repository):
        return ()
    submodules = []
    for path, oid in modules.list_submodules(repository, tree):
        quoted_path = quote_path(path)
        submodule = modules.open_submodule(repository, path) if quoted_path not in skip else None
        if submodule is None:
            continue
        with store.open_store_for(submodule, "plumbing") as inner:
            if inner.repository.cat_file.info(f"{oid}^{{commit}}") is None:
                continue
            try:
                worktree = replace(CLEAN, submodules=capture_submodules_of_tree(inner, oid))
                find = partial(_find_or_record, inner, (oid, None), worktree, quoted_path, oid)
                checkpoint = _record_until_whole(inner, find)
                submodules.append(Submodule(quoted_path, checkpoint.id, oid, dirty=False))
            except CkptError as error:
                problem = f"new worktrees will lack the submodule {quoted_path}: {error.message}"
                error_log.append_to_log(repository, problem)
    return tuple(submodules)


def _capture_submodule(submodule_store: SubmoduleStore, path: str, limits: Limits) -> Checkpoint:
    def capture_and_record() -> Checkpoint:
        worktree = submodule_store.capture_worktree(limits)
        if worktree.degraded is not None:
            raise CkptError(worktree.degraded)
        return _find_or_record(submodule_store, submodule_store.objects.read_head(), worktree, path)

    return _record_until_whole(submodule_store, capture_and_record)


def _record_until_whole(inner: SubmoduleStore, attempt: Callable[[], Checkpoint]) -> Checkpoint:
    arguments = inner.repository, inner.objects, attempt, inner.remove, inner.announce
    return snapshot.record_until_complete(*arguments)


def _find_or_record(
    inner: SubmoduleStore,
    head: tuple[str, str | None],
    worktree: Worktree,
    path: str,
    base: str | None = None,
) -> Checkpoint:
    entries = inner.list(Query(git_sha=head[0]))
    alike = [entry for entry in entries if (entry.branch, entry.tree) == (head[1], worktree.tree)]
    own = local_checkpoints.LocalCheckpoints.read(inner.repository, [entry.id for entry in alike])
    for entry in alike:
        if entry.trigger == SUBMODULE and own.is_written_here(entry):
            checkpoint = inner.read(entry.id)
            if checkpoint.worktree == worktree:
                return checkpoint
    return inner.record(_LABEL, {"path": path}, worktree=worktree, trigger=SUBMODULE, base=base)


def map_ids_to_paths(entries: Iterable[CheckpointInfo]) -> dict[str, bytes]:
    lines = (line.partition(" ") for entry in entries for line in entry.submodules.split("\0"))
    return {checkpoint: modules.unquote_path(path) for checkpoint, _, path in lines if checkpoint}


def submodule_init_command(path: bytes) -> str:
    return f"git submodule update --init --recursive -- {shell_quoted(os.fsdecode(path))}"


def fetch_hint(path: bytes, checkpoint_id: str) -> str:
    refs = (ref_names.CHECKPOINTS + checkpoint_id, f"refs/ckpt/*/{checkpoint_id}", "refs/keep/*")
    refspecs = " ".join(f"'{ref}:{ref}'" for ref in refs)
    # Without a checkout, `git -C` would fetch the refs into the superproject; `--git-dir` fails.
    git_dir = shell_quoted(os.path.join(os.fsdecode(path), ".git"))
    fetch_command = f"git --git-dir={git_dir} fetch --no-tags --no-prune CLONE {refspecs}"
    return f"fetch the checkpoint from the CLONE that captured it: {fetch_command}"


def describe_problem(repository: Repository, path: bytes, checkpoint_id: str) -> str | None:
    ref = ref_names.CHECKPOINTS + checkpoint_id
    submodule = modules.find_submodule_with_ref(repository, path, ref)
    if submodule is None:
        return f"no repository of the submodule has the checkpoint {checkpoint_id}"
    with contextlib.closing(submodule):
        try:
            blob = next(submodule.cat_file.read_contents([ref], budget.DOCUMENT.size))
            local_entries = local_checkpoints.LocalCheckpoints.read(submodule, [checkpoint_id])
            if blob is not None and local_entries.is_replaced(checkpoint_id, blob[0]):
                return local_checkpoints.replaced_error(checkpoint_id).message
            document = ref_names.require_document(blob and blob[1:], ref, "of the document")
            checkpoint = codec.decode_header(document, ref)
            worktree = checkpoint.worktree or CLEAN
            for oid in (checkpoint.git_sha, checkpoint.tree, worktree.operation_commit):
                if oid and submodule.cat_file.info(oid) is None:
                    return f"the object {oid} of the checkpoint {checkpoint_id} is missing"
        except CkptError as error:
            return error.message
    for entry in worktree.submodules:
        nested_path = modules.unquote_path(entry.path)
        if reason := describe_problem(submodule, nested_path, entry.checkpoint):
            return f"in the nested submodule {entry.path}, {reason}"
    return None


@contextlib.contextmanager
def remove_from_submodules_after(
    store: SubmoduleStore,
    checkpoint_ids: Collection[str],
    listed: Mapping[str, CheckpointInfo] | None = None,
) -> Iterator[None]:
    """Provide a context whose body removes checkpoints of the superproject.

    On exit, it removes the submodule checkpoints that only these named; it logs errors.
    """
    try:
        select = partial(store.list, Query(ids=list(checkpoint_ids)))
        list_removed = partial(read_or_raise_invalid, ref_names.CHECKPOINTS, select)
        paths_by_id = map_ids_to_paths(list_removed() if listed is None else listed.values())
    except CkptError:
        paths_by_id = {}  # a checkpoint to remove may make listing fail; expiry finds the rest
    yield
    if not paths_by_id:
        return
    with ref_names.write_lock(store.repository) as is_alone:
        if is_alone and not store.list_problems():  # an invalid checkpoint may name any of them
            unnamed_ids = sorted(paths_by_id.keys() - map_ids_to_paths(store.list()).keys())

            def remove_unreferenced(submodule_store: SubmoduleStore) -> None:
                # A fetched document may name a checkpoint that a user saved in the submodule.
                _remove_automatic(submodule_store, submodule_store.list(Query(ids=unnamed_ids)))

            _apply_in_submodules(store, paths_by_id.values(), remove_unreferenced)


def remove_unreferenced_checkpoints(store: SubmoduleStore) -> None:
    if not modules.may_have_submodules(store.repository):
        return

    def remove_unreferenced(submodule_store: SubmoduleStore) -> None:
        entries = (entry for entry in submodule_store.list() if entry.id not in paths_by_id)
        _remove_automatic(submodule_store, (entry for entry in entries if entry.time < grace_start))
        remove_unreferenced_checkpoints(submodule_store)

    # A later writer checks that the submodule checkpoints it names exist.
    with ref_names.write_lock(store.repository) as is_alone:
        paths_by_id = map_ids_to_paths(store.list())
        # A checkpoint that is being recorded may be about to name a recent one.
        grace_start = store.clock() - times.GRACE * times.MICRO
        if is_alone and not store.list_problems():  # an invalid one may name any of them
            _apply_in_submodules(store, paths_by_id.values(), remove_unreferenced)


def copy_checkpoints(store: SubmoduleStore, source: Repository, to: Repository) -> None:
    with store.open_store_for(source, "plumbing") as source_store:
        submodule_ids = [entry.id for entry in source_store.list() if entry.trigger == SUBMODULE]
    new_ids = [id_ for id_ in submodule_ids if not modules.has_ref(to, ref_names.CHECKPOINTS + id_)]
    if not new_ids:
        return
    ref_prefixes = [namespace.rstrip("/") for namespace in (*ref_names.OBJECTS, ref_names.KEEP)]
    output = source.git.run("for-each-ref", "--format=%(refname)", *ref_prefixes).out
    refs = output.decode("utf-8", "surrogateescape").split("\n")[:-1]
    object_refs = {namespace + id_ for id_ in new_ids for namespace in ref_names.OBJECTS}
    # An existing keep ref keeps the same commit.
    keeps = {ref for ref in refs if ref.startswith(ref_names.KEEP) and not modules.has_ref(to, ref)}
    modules.fetch_refs(to, source, [ref for ref in refs if ref in object_refs or ref in keeps])
    modules.fetch_refs(to, source, [ref_names.CHECKPOINTS + id_ for id_ in new_ids])
    local_checkpoints.copy_lines(source, to, new_ids)
    with store.open_store_for(to, "plumbing") as target_store:
        target_store.queue_links(target_store.list(Query(ids=new_ids)))


def copy_all_checkpoints(store: SubmoduleStore, source: Repository, to: Repository) -> None:
    copy_checkpoints(store, source, to)
    for _, inner_source, inner_target in modules.iterate_nested_pairs(source, to):
        with contextlib.closing(inner_source):
            if inner_target is not None:
                copy_checkpoints(store, inner_source, inner_target)


def _remove_automatic(submodule_store: SubmoduleStore, entries: Iterable[CheckpointInfo]) -> None:
    ids = {entry.id for entry in entries if entry.trigger == SUBMODULE}
    if ids:
        submodule_store.remove(sorted(ids - submodule_store.labels.read_kept_ids()))


def _apply_in_submodules(
    store: SubmoduleStore, paths: Collection[bytes], action: Callable[[SubmoduleStore], None]
) -> None:
    for repository in modules.list_submodule_repos(store.repository, paths):
        try:
            with store.open_store_for(repository, "plumbing") as submodule_store:
                action(submodule_store)
        except CkptError as error:
            problem = f"the checkpoints of {repository.git_dir}, a submodule, were not removed: "
            problem += error.message
            error_log.append_to_log(store.repository, problem)
