"""Verify that the objects that checkpoints need exist, and that refs protect them.

Snapshots may be fetched from anywhere, so this module also checks their shape and size.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping

from gitckpt.git import graph
from gitckpt.git.contents import bounds
from gitckpt.git.objects.encoding import DIRECTORY, MalformedTree, decode_tree
from gitckpt.git.process import GitError
from gitckpt.git.refs import Update
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, operation
from gitckpt.model import budget, ids
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import CkptError
from gitckpt.store import submodules
from gitckpt.store.audit.inventory import FETCH, KINDS, Evidence, Flaw, Row, lasting, repairable
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.local_checkpoints import LocalCheckpoints
from gitckpt.store.records import commit_refs, ref_names
from gitckpt.store.snapshot import manifest

# In a plain fetch, the server omits all objects that commits of this clone reach.
_REFETCH = "git fetch --refetch --no-tags REMOTE"

_REWRITE = "write the object again: git hash-object -w FILE; "
_REWRITE += f"or fetch from a clone that has it: {_REFETCH}"
_EMPTY = "this object file is empty, perhaps after a power cut: git will not rewrite object {}"

# For each namespace: the prefix of finding codes, and the meaning of the object in a checkpoint.
_MEANINGS = {
    ref_names.TREES: ("tree", "snapshot"),
    ref_names.OPERATIONS: ("operation", "commit of the operation in progress"),
    ref_names.ORIGINALS: ("original", "file it was imported from"),
}

_STASH = "refs/stash"
_USER_REFS = ("refs/heads", "refs/remotes", "refs/tags", _STASH)
_BEFORE = "@{1}"  # revision suffix: the previous value in the reflog

# Entries of a snapshot that need no check beyond that of their trees.
_PLAIN = frozenset((b"files", b"index", b"raw", b"run", b"auto-merge"))


def audit_objects(
    store: Checkpoints,
    evidence: Evidence,
    empty: Mapping[str, str],
    damaged: Collection[str],
    only: Collection[str] | None = None,
) -> Iterator[Flaw]:
    """Yield checkpoints (all or `only`) that lack objects, then the damaged objects.

    `empty` maps oids to paths of empty loose objects. With `only`, commit history is not checked.
    """
    lost = {*damaged, *graph.find_unreadable(store.repository, sorted(empty))}
    # Sorted by time, similar trees are adjacent, which is fast.
    rows = evidence.by_time() if only is None else [evidence.rows[id_] for id_ in sorted(only)]
    roots = list(dict.fromkeys(oid for row in rows for oid in _find_roots(row, evidence)))
    lacking = graph.find_lacking(
        store.repository, store.objects, roots, lost, with_history=only is None
    )
    if lacking.complaint:
        cure = "see what is wrong: git fsck"
        yield lasting("objects-unreadable", ref_names.OWN[1], lacking.complaint, cure)
    if lacking.samples or None in evidence.odd.values():
        rewritten = operation.filter_repo_commits(store.repository)
        for row in sorted(rows, key=lambda row: row.id):
            missing = _missing_objects(row, evidence)
            samples = (lacking.samples.get(root, ()) for root in _find_roots(row, evidence))
            oids = list(dict.fromkeys([*missing, *(oid for sample in samples for oid in sample)]))
            commit = row.entry.git_sha
            if commit in missing and commit in rewritten:
                sentence = f"git filter-repo has rewritten its commit {commit}"
                cure = "git ckpt remove --rewritten"
                yield lasting("commit-rewritten", row.ref, sentence, cure)
            elif oids:
                yield _describe_incomplete(row, oids, lacks_commit=commit in missing)
    for oid, path in sorted(empty.items()):
        cure = f"remove the file: rm -f {shell_word(path)}; then {_REWRITE} {oid}"
        yield lasting("object-empty", path, _EMPTY.format(oid), cure)
    for oid in sorted(lost - empty.keys()):
        cure = f"move the object's file away; then {_REWRITE} {oid}"
        yield lasting("object-damaged", oid, "the stored content does not match the oid", cure)


def _missing_objects(row: Row, evidence: Evidence) -> list[str]:
    """Return a checkpoint's missing objects, unless a flaw of its ref reports them."""
    missing = [pair for pair in row.holds.items() if evidence.kind(*pair) is None]
    refs, keep = evidence.refs, ref_names.KEEP
    return [oid for space, oid in missing if space == keep or refs.get(space + row.id) == oid]


def _find_roots(row: Row, evidence: Evidence) -> list[str]:
    return [oid for space, oid in row.holds.items() if evidence.is_sound(space, oid)]


def _describe_incomplete(row: Row, oids: list[str], *, lacks_commit: bool) -> Flaw:
    names = ", ".join(oids[: graph.SHOWN]) + (" and others" if len(oids) > graph.SHOWN else "")
    verb = "is" if len(oids) == 1 else "are"
    sentence = f"{names} {verb} missing or damaged; files or history of the checkpoint need this"
    fetch = " ".join([_REFETCH, *oids[: graph.SHOWN]])
    if lacks_commit:
        fetch = f"git fetch --no-tags --no-prune REMOTE '{ref_names.KEEP}*:{ref_names.KEEP}*'"
    remove = f"git ckpt remove {row.id[: ids.SHORT]}"
    cure = f"fetch from a clone that has it: {fetch}; or give the checkpoint up: {remove}"
    return lasting("objects-missing", row.ref, sentence, cure)


def audit_snapshots(store: Checkpoints, evidence: Evidence) -> Iterator[Flaw]:
    """Yield a flaw, the first problem, for each checkpoint with an invalid snapshot."""
    space = ref_names.TREES
    trees = {row.id: row.holds[space] for row in evidence.rich if space in row.holds}
    trees = {id_: tree for id_, tree in trees.items() if evidence.is_sound(space, tree)}
    problems = dict(_find_problems(store, sorted(set(trees.values()))))
    for id_, tree in trees.items():
        if tree in problems:
            look = f"git ls-tree {shell_word(space + id_)}"
            cure = f"inspect the tree: {look}; remove the checkpoint: git ckpt remove {id_}"
            sentence = f"its files cannot be restored: {problems[tree]}"
            yield lasting("snapshot-invalid", ref_names.CHECKPOINTS + id_, sentence, cure)


def _find_problems(store: Checkpoints, roots: list[str]) -> Iterator[tuple[str, str]]:
    repository = store.repository
    is_whole = graph.promisor(repository) is None

    def present(trees: list[str]) -> list[str]:
        # In a partial clone, do not fetch missing trees.
        odd = {} if is_whole else graph.find_other_kinds(repository, trees, "tree")
        return [tree for tree in trees if odd.get(tree, "tree") is not None]

    census = bounds.Census(repository, roots, present)
    for tree, read in zip(roots, repository.cat_file.contents(roots), strict=True):
        try:
            parts = decode_tree(read[2], repository.object_format) if read is not None else {}
            if read is not None:
                bounds.require_shape(parts, tree)
            if flaw := census.flaw(tree):
                raise bounds.UnsoundSnapshot(flaw)
            trees = [oid for mode, oid in parts.values() if mode == DIRECTORY]
            if any(census.is_beyond(oid, budget.SNAPSHOT) for oid in trees):
                bounds.require(repository, tree, "")  # checked-out files do not count
            if is_whole and parts.keys() - _PLAIN:
                manifest.read(repository, store.objects, tree, "")
        except (bounds.UnsoundSnapshot, MalformedTree) as error:
            yield tree, str(error)
        except CkptError:
            pass  # missing or damaged objects are separate findings


def audit_refs(repository: Repository, evidence: Evidence) -> Iterator[Flaw]:
    """Yield the flaws of object refs, of replaced checkpoints, and of branches."""
    for holder in evidence.rich:
        yield from _holder_flaws(holder, evidence)
    for space in ref_names.OBJECTS:
        for id_, ref, oid in evidence.below(space):
            row = evidence.rows.get(id_)
            sentence = ""
            if row is not None and space not in row.holds:
                sentence = f"the checkpoint of this ref has no {_MEANINGS[space][1]}"
            elif id_.rpartition("/")[2] not in evidence.oids:
                sentence = "keeps an object for a checkpoint that does not exist"
            if sentence and not commit_refs.is_recently_written(repository, ref):
                absent = [Update(ref_names.CHECKPOINTS + id_, "", "")] if ids.is_id(id_) else []
                updates = [*(absent if row is None else ()), Update(ref, "", oid)]
                yield repairable("ref-leftover", ref, sentence, *updates, is_leftover=True)
    local = LocalCheckpoints.read(repository)
    oids = {id_: evidence.oids[id_] for id_ in local if id_ in evidence.oids}
    yield from find_replaced(repository, oids, local)
    yield from _symbolic_flaws(evidence)
    yield from _submodule_flaws(repository, evidence)
    yield from _commit_flaws(repository, evidence)
    yield from find_lost_targets(repository)


def find_replaced(
    repository: Repository, oids: Mapping[str, str], local: LocalCheckpoints
) -> Iterator[Flaw]:
    for id_, original in sorted(local.replaced(oids).items()):
        ref = ref_names.CHECKPOINTS + id_
        sentence = f"points to {oids[id_]}; the document written in this clone is {original}"
        info = repository.cat_file.info(original)
        if info is not None and info[1] == "blob":
            yield repairable("checkpoint-replaced", ref, sentence, Update(ref, original, oids[id_]))
        else:
            cure = f"see the new document: git ckpt show {id_}; remove it: git ckpt remove {id_}"
            yield lasting("checkpoint-replaced", ref, f"{sentence}, which is gone", cure)


def find_lost_targets(repository: Repository) -> Iterator[Flaw]:
    """Yield branches, tags, stashes and detached HEADs that point to lost objects."""
    tips = _list_tips(repository)
    odd = graph.find_other_kinds(repository, sorted({oid for oid, _ in tips.values()}), "commit")
    lost = [tip for tip in tips.items() if odd.get(tip[1][0], "") is None]
    current = _list_tips(repository) if lost else {}  # other processes may have moved refs
    for name, (oid, undo) in lost:
        if current.get(name) != (oid, undo):
            continue
        cure = f"fetch it from a clone that has it: {_REFETCH} {oid}"
        if name == _STASH:  # rarely in other clones; older stashes are only in its reflog
            words = ("rev-parse", "--quiet", "--verify", _STASH + _BEFORE)
            has_older = repository.git.run(*words, ok=(0, 1, 128)).code == 0
            drop = "reflog delete --updateref --rewrite 'refs/stash@{0}'"
            cure += f"; or drop the stash: git {drop if has_older else f'update-ref -d {_STASH}'}"
        elif undo:
            cure += f"; or go back to the previous value, if the reflog has one: {undo}"
        sentence = f"points to {oid}, which is missing or damaged: every git gc fails"
        yield lasting("ref-target-missing", name, sentence, cure)


def _list_tips(repository: Repository) -> dict[str, tuple[str, str]]:
    """Map the user's refs and detached HEADs to oid and undo command ("" for none)."""
    output = repository.git.run("for-each-ref", "--format=%(objectname) %(refname)", *_USER_REFS)
    tips: dict[str, tuple[str, str]] = {}
    for line in output.out.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        oid, _, ref = line.partition(" ")
        undo = f"git update-ref {shell_word(ref)} {shell_word(ref + _BEFORE)}"
        tips[ref] = oid, undo if ref.startswith(BRANCHES) else ""
    top = administration.main_worktree(repository) or repository.common_dir
    heads = [("main-worktree/HEAD", repository.common_dir, top)]
    for git_dir, path in administration.registered(repository):
        if os.path.isdir(path):
            heads.append((f"worktrees/{os.path.basename(git_dir)}/HEAD", git_dir, path))
    for name, git_dir, path in heads:
        oid = administration.read_line(os.path.join(git_dir, "HEAD"))
        # HEAD is all zeros while git creates the worktree.
        if ids.is_oid(oid) and oid.strip("0"):
            tips[name] = oid, f"git -C {shell_word(path)} update-ref --no-deref HEAD HEAD{_BEFORE}"
    return tips


def _symbolic_flaws(evidence: Evidence) -> Iterator[Flaw]:
    for ref, target in evidence.symbolic.items():
        sentence = f"is a symbolic ref, which moves and vanishes with {target}"
        if ref.startswith(ref_names.CHECKPOINTS):
            oid = evidence.oids[ref.removeprefix(ref_names.CHECKPOINTS)]
            cure = f"git update-ref --no-deref {shell_word(ref)} {oid}"
            yield lasting("ref-symbolic", ref, sentence, cure)
        elif not ref.startswith(ref_names.KEEP):
            oid = evidence.refs[ref]
            yield repairable("ref-symbolic", ref, sentence, Update(ref, oid, oid, is_symbolic=True))


def _submodule_flaws(repository: Repository, evidence: Evidence) -> Iterator[Flaw]:
    first: dict[str, tuple[str, bytes]] = {}
    for row in evidence.rich:
        for checkpoint, path in submodules.named_by([row.entry]).items():
            first.setdefault(checkpoint, (row.ref, path))
    for checkpoint, (ref, path) in first.items():
        problem = submodules.describe_problem(repository, path, checkpoint)
        if problem is not None:
            verify = f"git -C {shell_word(os.fsdecode(path))} ckpt verify"
            cure = f"fetch it from a clone that has it; to list all that is missing: {verify}"
            sentence = f"of the submodule {os.fsdecode(path)}: {problem}"
            yield lasting("submodule-missing", ref, sentence, cure)


def _holder_flaws(row: Row, evidence: Evidence) -> Iterator[Flaw]:
    for space in ref_names.OBJECTS:
        oid = row.holds.get(space)
        if oid is None:
            continue
        ref, (prefix, meaning) = space + row.id, _MEANINGS[space]
        kind, present = evidence.kind(space, oid), evidence.refs.get(ref)
        code, start = f"{prefix}-ref-wrong", f"points to {present}, not to"
        if present is None:
            code, start = f"{prefix}-ref-missing", "no ref keeps"
        sentence = f"{start} {oid}, the {meaning} of the checkpoint"
        if kind is not None and kind != KINDS[space]:
            sentence = f"the checkpoint names {oid}, which is a {kind}, not a {KINDS[space]}"
            yield lasting(f"{prefix}-ref-wrong", ref, sentence, f"git ckpt remove {row.id}")
        elif kind is None and present != oid:
            cure = f"{FETCH} {shell_word(f'+{ref}:{ref}')}"
            yield lasting(code, ref, f"{sentence}; the object is missing", cure)
        elif present != oid:
            yield repairable(code, ref, sentence, row.check, Update(ref, oid, present or ""))


def _commit_flaws(repository: Repository, evidence: Evidence) -> Iterator[Flaw]:
    owners: dict[str, Row] = {}
    missing: set[str] = set()
    for row in evidence.rows.values():
        commit = row.entry.git_sha
        owners.setdefault(commit, row)
        kind = evidence.kind(ref_names.KEEP, commit)
        if commit and kind is None:
            missing.add(commit)
        elif commit and kind != "commit":
            sentence = f"the checkpoint names {commit}, which is a {kind}, not a commit"
            yield lasting("commit-ref-wrong", row.ref, sentence, f"git ckpt remove {row.id}")
    keeps = evidence.below(ref_names.KEEP)
    right = {oid for name, ref, oid in keeps if name == oid and ref not in evidence.symbolic}
    linked = evidence.commits()
    needed = right.intersection(linked)
    # If history is missing, which is a separate finding, treat every ref as useful.
    lost, useful = set() if right else set(linked), right
    with contextlib.suppress(GitError):
        if not right & missing:
            unreached = graph.unreached(repository.git, linked, right)
            lost, useful = unreached, graph.above(repository.git, right - needed, linked)
    for commit in sorted(lost):
        yield _describe_unkept(owners[commit], evidence)
    if evidence.invalid:
        useful = right  # unreadable checkpoints may need them
    for name, ref, present in keeps:
        if name in lost or (name in right and (name in needed or name in useful)):
            continue
        if not commit_refs.is_recently_written(repository, ref):
            sentence = "does not point to the commit that the ref is named after"
            if name in right:
                sentence = "keeps a commit that no checkpoint needs"
            update = Update(ref, "", present)
            yield repairable("ref-leftover", ref, sentence, update, is_leftover=True)


def _describe_unkept(row: Row, evidence: Evidence) -> Flaw:
    commit = row.entry.git_sha
    ref = ref_names.KEEP + commit
    present, target = evidence.refs.get(ref, ""), evidence.symbolic.get(ref)
    code = "commit-ref-wrong" if target is not None or present else "commit-ref-missing"
    start = f"points to {present}, which does not keep" if present else "no ref keeps"
    if target is not None:
        start = f"is a symbolic ref: if {target} moves, no ref keeps"
    sentence = f"{start} {commit}, the linked commit of checkpoint {row.id}"
    update = Update(ref, commit, present, is_symbolic=target is not None)
    return repairable(code, ref, sentence, row.check, update)
