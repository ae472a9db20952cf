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
from gitckpt.model.arguments import quote_path, shell_word
from gitckpt.model.checkpoint import CLEAN, SUBMODULE, Checkpoint, Submodule, Worktree
from gitckpt.model.errors import CkptError
from gitckpt.model.skip_invalid import read_safely
from gitckpt.model.values import replace
from gitckpt.store import error_log, local_checkpoints
from gitckpt.store.records import ref_names
from gitckpt.store.records.entry import CheckpointInfo, Problem, Query
from gitckpt.store.snapshot import capture as snapshot
from gitckpt.store.snapshot import manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol, Self

    from gitckpt.git.objects.writer import Objects
    from gitckpt.git.repository import Repository
    from gitckpt.store.snapshot.limits import Limits

    class AnyCheckpoints(Protocol):
        repository: Repository
        objects: Objects
        clock: Callable[[], int]

        def seen_from(self, repository: Repository, adapter: str) -> AnyCheckpoints: ...
        def capture(self, limits: Limits | None = None) -> Worktree: ...
        @property
        def record(self) -> Callable[..., Checkpoint]: ...
        def read(self, checkpoint_id: str) -> Checkpoint: ...
        def read_own(self, checkpoint_id: str) -> Checkpoint: ...
        def list(self, query: Query | None = None) -> Sequence[CheckpointInfo]: ...
        def problems(self) -> Sequence[Problem]: ...
        def remove(self, checkpoint_ids: Collection[str]) -> int: ...
        def link(self, entries: Sequence[CheckpointInfo]) -> None: ...
        def announce(self, sentence: str) -> None: ...
        def __enter__(self) -> Self: ...
        def __exit__(self, *_: object) -> None: ...


_LABEL = "submodule-complete"


def capture(
    store: AnyCheckpoints, files: Worktree, paths: Collection[bytes], limits: Limits
) -> Worktree:
    """Capture submodules recursively; list failed ones as omitted, with a reason.

    `files` is the capture of the superproject; the result is `files` with the submodules added.
    """
    captured: list[Submodule] = []
    failed: dict[bytes, str] = {}
    texts = {modules.unquote(entry.path): entry.path for entry in files.omitted}
    # Embedded repositories that the index does not know are omitted with a slash at the end.
    texts |= {path: quote_path(path) for path in paths if path + b"/" in texts}
    for path in sorted(path for path in paths if path in texts):
        repository = modules.seen_from(store.repository, path)
        if repository is None:
            continue
        try:
            with store.seen_from(repository, "plumbing") as inner:
                checkpoint = _capture_one(inner, texts[path], limits)
        except CkptError as error:
            failed[path] = error.message
            continue
        inside = checkpoint.worktree or CLEAN
        is_dirty = inside.dirty or any(submodule.dirty for submodule in inside.submodules)
        captured.append(Submodule(texts[path], checkpoint.id, checkpoint.git_sha, dirty=is_dirty))
    captured_paths = {submodule.path for submodule in captured}
    captured_paths |= {quote_path(modules.unquote(path) + b"/") for path in captured_paths}
    omitted = []
    for entry in files.omitted:
        problem = failed.get(modules.unquote(entry.path))
        if problem is not None:
            reason = f"a submodule that could not be captured: {problem}"
            omitted.append(replace(entry, reason=reason, dirty=None))
        elif entry.path not in captured_paths:
            omitted.append(entry)
    return replace(files, omitted=tuple(omitted), submodules=tuple(captured))


def have_changed(store: AnyCheckpoints, old: Worktree | None, new: Worktree) -> bool:
    entries = {entry.path: entry for entry in new.submodules}
    pairs = [(entry, entries.get(entry.path, entry)) for entry in old.submodules] if old else []
    return any(_differs(store, *pair) for pair in pairs)


def _differs(store: AnyCheckpoints, old_entry: Submodule, new_entry: Submodule) -> bool:
    if old_entry.checkpoint == new_entry.checkpoint:
        return False
    if old_entry.git_sha != new_entry.git_sha:
        return True
    # Two checkpoints of a submodule may differ only in the branch.
    repository = modules.seen_from(store.repository, modules.unquote(new_entry.path))
    if repository is None:
        return True
    with store.seen_from(repository, "plumbing") as inner:
        try:
            pair = inner.read_own(old_entry.checkpoint), inner.read_own(new_entry.checkpoint)
            common = inner.repository, inner.objects
            old, new = (manifest.contents_of(checkpoint, *common) for checkpoint in pair)
        except CkptError:
            return True  # gone or incomplete
        if (old.files, old.raw) != (new.files, new.raw):
            return True
        return have_changed(inner, pair[0].worktree, pair[1].worktree or CLEAN)


def capture_tree(
    store: AnyCheckpoints, tree: str, skip: Collection[str] = ()
) -> tuple[Submodule, ...]:
    """Return checkpoints of the clean submodules that `tree` names; log failures.

    Finds or records a checkpoint of each submodule commit; skips the quoted paths in `skip`.
    """
    repository = store.repository
    if not tree or repository.worktree is None or not modules.may_have_submodules(repository):
        return ()
    submodules = []
    for path, oid in modules.submodules_of(repository, tree):
        name = quote_path(path)
        submodule = modules.seen_from(repository, path) if name not in skip else None
        if submodule is None:
            continue
        with store.seen_from(submodule, "plumbing") as inner:
            if inner.repository.cat_file.info(f"{oid}^{{commit}}") is None:
                continue
            try:
                worktree = replace(CLEAN, submodules=capture_tree(inner, oid))
                attempt = partial(_find_or_record, inner, (oid, None), worktree, name, oid)
                checkpoint = _record_whole(inner, attempt)
                submodules.append(Submodule(name, checkpoint.id, oid, dirty=False))
            except CkptError as error:
                problem = f"new worktrees will lack the submodule {name}: {error.message}"
                error_log.append(repository, problem)
    return tuple(submodules)


def _capture_one(inner: AnyCheckpoints, path: str, limits: Limits) -> Checkpoint:
    def attempt() -> Checkpoint:
        worktree = inner.capture(limits)
        if worktree.degraded is not None:
            raise CkptError(worktree.degraded)
        return _find_or_record(inner, inner.objects.head(), worktree, path)

    return _record_whole(inner, attempt)


def _record_whole(inner: AnyCheckpoints, attempt: Callable[[], Checkpoint]) -> Checkpoint:
    common = inner.repository, inner.objects
    return snapshot.record_whole(*common, attempt, inner.remove, inner.announce)


def _find_or_record(
    inner: AnyCheckpoints,
    head: tuple[str, str | None],
    worktree: Worktree,
    path: str,
    base: str | None = None,
) -> Checkpoint:
    linked = inner.list(Query(git_sha=head[0]))
    alike = [entry for entry in linked if (entry.branch, entry.tree) == (head[1], worktree.tree)]
    local = local_checkpoints.LocalCheckpoints.read(inner.repository, [entry.id for entry in alike])
    for entry in alike:
        if entry.trigger == SUBMODULE and local.is_ours(entry):
            checkpoint = inner.read(entry.id)
            if checkpoint.worktree == worktree:
                return checkpoint
    return inner.record(_LABEL, {"path": path}, worktree=worktree, trigger=SUBMODULE, base=base)


def named_by(entries: Iterable[CheckpointInfo]) -> dict[str, bytes]:
    lines = (line.partition(" ") for entry in entries for line in entry.submodules.split("\0"))
    return {checkpoint: modules.unquote(path) for checkpoint, _, path in lines if checkpoint}


def init_command(path: bytes) -> str:
    return f"git submodule update --init --recursive -- {shell_word(os.fsdecode(path))}"


def fetch_hint(path: bytes, checkpoint_id: str) -> str:
    refs = (ref_names.CHECKPOINTS + checkpoint_id, f"refs/ckpt/*/{checkpoint_id}", "refs/keep/*")
    specs = " ".join(f"'{ref}:{ref}'" for ref in refs)
    # Without a checkout, `git -C` would fetch the refs into the superproject; `--git-dir` fails.
    git_dir = shell_word(os.path.join(os.fsdecode(path), ".git"))
    fetch = f"git --git-dir={git_dir} fetch --no-tags --no-prune CLONE {specs}"
    return f"fetch the checkpoint from the CLONE that captured it: {fetch}"


def describe_problem(repository: Repository, path: bytes, checkpoint_id: str) -> str | None:
    """Describe the problem of a submodule's checkpoint; None if there is no problem."""
    ref = ref_names.CHECKPOINTS + checkpoint_id
    submodule = modules.find_with_ref(repository, path, ref)
    if submodule is None:
        return f"no repository of the submodule has the checkpoint {checkpoint_id}"
    with contextlib.closing(submodule):
        try:
            stored = next(submodule.cat_file.contents([ref], budget.DOCUMENT.size))
            local = local_checkpoints.LocalCheckpoints.read(submodule, [checkpoint_id])
            if stored is not None and local.is_replaced(checkpoint_id, stored[0]):
                return local_checkpoints.replaced(checkpoint_id).message
            document = ref_names.document(stored and stored[1:], ref, "of the document")
            checkpoint = codec.decode_header(document, ref)
            files = checkpoint.worktree or CLEAN
            for oid in (checkpoint.git_sha, checkpoint.tree, files.operation_commit):
                if oid and submodule.cat_file.info(oid) is None:
                    return f"the object {oid} of the checkpoint {checkpoint_id} is missing"
        except CkptError as error:
            return error.message
    for entry in files.submodules:
        if inner := describe_problem(submodule, modules.unquote(entry.path), entry.checkpoint):
            return f"in the nested submodule {entry.path}, {inner}"
    return None


@contextlib.contextmanager
def removal(
    store: AnyCheckpoints,
    checkpoint_ids: Collection[str],
    listed: Mapping[str, CheckpointInfo] | None = None,
) -> Iterator[None]:
    """After the body, remove submodule checkpoints that only `checkpoint_ids` named.

    The body removes `checkpoint_ids`; failures of the rest are logged.
    """
    try:
        query = Query(ids=list(checkpoint_ids))
        find = partial(read_safely, ref_names.CHECKPOINTS, lambda: store.list(query))
        paths_by_id = named_by(find() if listed is None else listed.values())
    except CkptError:
        paths_by_id = {}  # a checkpoint to remove may make listing fail; expiry finds the rest
    yield
    if not paths_by_id:
        return
    with ref_names.write_lock(store.repository) as is_alone:
        if is_alone and not store.problems():  # an invalid checkpoint may name any of them
            ids = sorted(paths_by_id.keys() - named_by(store.list()).keys())

            def remove(inner: AnyCheckpoints) -> None:
                # A fetched document may name a checkpoint that a user saved in the submodule.
                _remove(inner, inner.list(Query(ids=ids)))

            _apply_in_each(store, paths_by_id.values(), remove)


def sweep(store: AnyCheckpoints) -> None:
    if not modules.may_have_submodules(store.repository):
        return

    def clear(inner: AnyCheckpoints) -> None:
        entries = (entry for entry in inner.list() if entry.id not in paths_by_id)
        _remove(inner, (entry for entry in entries if entry.time < until))
        sweep(inner)

    # A later writer checks that the submodule checkpoints it names exist.
    with ref_names.write_lock(store.repository) as is_alone:
        paths_by_id = named_by(store.list())
        # A checkpoint that is being recorded may be about to name a recent one.
        until = store.clock() - times.GRACE * times.MICRO
        if is_alone and not store.problems():  # an invalid one may name any submodule checkpoint
            _apply_in_each(store, paths_by_id.values(), clear)


def copy_checkpoints(store: AnyCheckpoints, source: Repository, to: Repository) -> None:
    """Copy the submodule checkpoints, with the refs they need, between repositories."""
    with store.seen_from(source, "plumbing") as source_store:
        listed = [entry.id for entry in source_store.list() if entry.trigger == SUBMODULE]
    ids = [name for name in listed if not modules.has_ref(to, ref_names.CHECKPOINTS + name)]
    if not ids:
        return
    spaces = [space.rstrip("/") for space in (*ref_names.OBJECTS, ref_names.KEEP)]
    output = source.git.run("for-each-ref", "--format=%(refname)", *spaces).out
    refs = output.decode("utf-8", "surrogateescape").split("\n")[:-1]
    holders = {space + name for name in ids for space in ref_names.OBJECTS}
    # An existing keep ref keeps the same commit.
    keeps = {ref for ref in refs if ref.startswith(ref_names.KEEP) and not modules.has_ref(to, ref)}
    modules.fetch(to, source, [ref for ref in refs if ref in holders or ref in keeps])
    modules.fetch(to, source, [ref_names.CHECKPOINTS + name for name in ids])
    local_checkpoints.copy(source, to, ids)
    with store.seen_from(to, "plumbing") as inner:
        inner.link(inner.list(Query(ids=ids)))


def copy_all_checkpoints(store: AnyCheckpoints, source: Repository, to: Repository) -> None:
    copy_checkpoints(store, source, to)
    for _, inner_source, inner_target in modules.nested_pairs(source, to):
        with contextlib.closing(inner_source):
            if inner_target is not None:
                copy_checkpoints(store, inner_source, inner_target)


def _remove(inner: AnyCheckpoints, entries: Iterable[CheckpointInfo]) -> None:
    ids = [entry.id for entry in entries if entry.trigger == SUBMODULE]
    if ids:
        inner.remove(ids)


def _apply_in_each(
    store: AnyCheckpoints, paths: Collection[bytes], action: Callable[[AnyCheckpoints], None]
) -> None:
    for repository in modules.repositories_of_submodules(store.repository, paths):
        try:
            with store.seen_from(repository, "plumbing") as inner:
                action(inner)
        except CkptError as error:
            problem = f"the checkpoints of {repository.git_dir}, a submodule, were not removed: "
            problem += error.message
            error_log.append(store.repository, problem)
