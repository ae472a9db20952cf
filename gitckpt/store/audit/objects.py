"""Check that the objects of all checkpoints exist, and that refs protect them.

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
from gitckpt.git.refs import RefUpdate
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, operation
from gitckpt.model import budget, ids
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import CkptError
from gitckpt.store import submodules
from gitckpt.store.audit.inventory import FETCH, KINDS, AuditData, Flaw, Row, lasting, repairable
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
    evidence: AuditData,
    empty: Mapping[str, str],
    damaged: Collection[str],
    only: Collection[str] | None = None,
) -> Iterator[Flaw]:
    """Yield flaws for checkpoints that lack objects, then for damaged objects.

    `empty` maps oids to the paths of empty object files. If `only` names checkpoints, this checks
    only these, without the history of their commits.
    """
    damaged_oids = {*damaged, *graph.find_unreadable(store.repository, sorted(empty))}
    # Sorted by time, similar trees are adjacent, which is fast.
    rows = evidence.rows_by_time() if only is None else [evidence.rows[id_] for id_ in sorted(only)]
    root_oids = list(dict.fromkeys(oid for row in rows for oid in _find_roots(row, evidence)))
    lacking_objects = graph.find_lacking_objects(
        store.repository, store.objects, root_oids, damaged_oids, with_history=only is None
    )
    if lacking_objects.complaint:
        cure = "see what is wrong: git fsck"
        yield lasting("objects-unreadable", ref_names.OWN[1], lacking_objects.complaint, cure)
    if lacking_objects.samples or None in evidence.odd.values():
        rewritten_commits = operation.read_filter_repo_map(store.repository)
        for row in sorted(rows, key=lambda row: row.id):
            missing = _list_missing_objects(row, evidence)
            samples = (lacking_objects.samples.get(root, ()) for root in _find_roots(row, evidence))
            oids = list(dict.fromkeys([*missing, *(oid for sample in samples for oid in sample)]))
            commit = row.entry.git_sha
            if commit in missing and commit in rewritten_commits:
                sentence = f"git filter-repo has rewritten its commit {commit}"
                cure = "git ckpt remove --rewritten"
                yield lasting("commit-rewritten", row.ref, sentence, cure)
            elif oids:
                yield _describe_incomplete(row, oids, lacks_commit=commit in missing)
    for oid, path in sorted(empty.items()):
        cure = f"remove the file: rm -f {shell_quoted(path)}; then {_REWRITE} {oid}"
        yield lasting("object-empty", path, _EMPTY.format(oid), cure)
    for oid in sorted(damaged_oids - empty.keys()):
        cure = f"move the object's file away; then {_REWRITE} {oid}"
        yield lasting("object-damaged", oid, "the stored content does not match the oid", cure)


def _list_missing_objects(row: Row, evidence: AuditData) -> list[str]:
    missing_pairs = [pair for pair in row.holds.items() if evidence.object_type(*pair) is None]
    refs, keep = evidence.refs, ref_names.KEEP
    return [oid for space, oid in missing_pairs if space == keep or refs.get(space + row.id) == oid]


def _find_roots(row: Row, evidence: AuditData) -> list[str]:
    return [oid for namespace, oid in row.holds.items() if evidence.is_object_sound(namespace, oid)]


def _describe_incomplete(row: Row, oids: list[str], *, lacks_commit: bool) -> Flaw:
    names = ", ".join(oids[: graph.SHOWN]) + (" and others" if len(oids) > graph.SHOWN else "")
    verb = "is" if len(oids) == 1 else "are"
    sentence = f"{names} {verb} missing or damaged; files or history of the checkpoint need this"
    fetching = " ".join([_REFETCH, *oids[: graph.SHOWN]])
    if lacks_commit:
        fetching = f"git fetch --no-tags --no-prune REMOTE '{ref_names.KEEP}*:{ref_names.KEEP}*'"
    removing = f"git ckpt remove {row.id[: ids.SHORT]}"
    cure = f"fetch from a clone that has it: {fetching}; or give the checkpoint up: {removing}"
    return lasting("objects-missing", row.ref, sentence, cure)


def audit_snapshots(store: Checkpoints, evidence: AuditData) -> Iterator[Flaw]:
    namespace = ref_names.TREES
    trees = {row.id: row.holds[namespace] for row in evidence.rich if namespace in row.holds}
    trees = {id_: tree for id_, tree in trees.items() if evidence.is_object_sound(namespace, tree)}
    problem_of = dict(_find_snapshot_problems(store, sorted(set(trees.values()))))
    for id_, tree in trees.items():
        if tree in problem_of:
            inspection = f"git ls-tree {shell_quoted(namespace + id_)}"
            cure = f"inspect the tree: {inspection}; remove the checkpoint: git ckpt remove {id_}"
            sentence = f"its files cannot be restored: {problem_of[tree]}"
            yield lasting("snapshot-invalid", ref_names.CHECKPOINTS + id_, sentence, cure)


def _find_snapshot_problems(store: Checkpoints, roots: list[str]) -> Iterator[tuple[str, str]]:
    repository = store.repository
    has_all_objects = graph.find_promisor_remote(repository) is None

    def list_present_trees(trees: list[str]) -> list[str]:
        # In a partial clone, do not fetch missing trees.
        wrong_types = (
            {} if has_all_objects else graph.find_objects_of_other_kinds(repository, trees, "tree")
        )
        return [tree for tree in trees if wrong_types.get(tree, "tree") is not None]

    census = bounds.TreeChecker(repository, roots, list_present_trees)
    for tree, stored in zip(roots, repository.cat_file.read_contents(roots), strict=True):
        try:
            entries = decode_tree(stored[2], repository.object_format) if stored is not None else {}
            if stored is not None:
                bounds.require_snapshot_shape(entries, tree)
            if flaw := census.find_tree_flaw(tree):
                raise bounds.UnsoundSnapshot(flaw)
            trees = [oid for mode, oid in entries.values() if mode == DIRECTORY]
            if any(census.exceeds_path_limits(oid, budget.SNAPSHOT) for oid in trees):
                bounds.require_sound_snapshot(repository, tree, "")  # without checked-out files
            if has_all_objects and entries.keys() - _PLAIN:
                manifest.read(repository, store.objects, tree, "")
        except (bounds.UnsoundSnapshot, MalformedTree) as error:
            yield tree, str(error)
        except CkptError:
            pass  # missing or damaged objects are separate findings


def audit_refs(repository: Repository, evidence: AuditData) -> Iterator[Flaw]:
    for holder_row in evidence.rich:
        yield from _audit_object_refs(holder_row, evidence)
    for namespace in ref_names.OBJECTS:
        for id_, ref, oid in evidence.list_refs_below(namespace):
            row = evidence.rows.get(id_)
            sentence = ""
            if row is not None and namespace not in row.holds:
                sentence = f"the checkpoint of this ref has no {_MEANINGS[namespace][1]}"
            elif id_.rpartition("/")[2] not in evidence.oids:
                sentence = "keeps an object for a checkpoint that does not exist"
            if sentence and not commit_refs.is_recently_written(repository, ref):
                updates = [RefUpdate(ref, "", oid)]
                if row is None and ids.is_checkpoint_id(id_):
                    updates.insert(0, RefUpdate(ref_names.CHECKPOINTS + id_, "", ""))
                yield repairable("ref-leftover", ref, sentence, *updates, is_leftover=True)
    local_entries = LocalCheckpoints.read(repository)
    oids = {id_: evidence.oids[id_] for id_ in local_entries if id_ in evidence.oids}
    yield from find_replaced_checkpoints(repository, oids, local_entries)
    yield from _audit_symbolic_refs(evidence)
    yield from _audit_submodules(repository, evidence)
    yield from _audit_commit_refs(repository, evidence)
    yield from find_refs_to_lost_objects(repository)


def audit_labels(store: Checkpoints, evidence: AuditData) -> Iterator[Flaw]:
    for ref, owner in store.labels.find_owners(evidence.refs).items():
        oid = evidence.refs[ref]
        if owner is None:
            sentence = f"points to {oid}, which is not the document of a checkpoint"
            yield lasting("label-invalid", ref, sentence, f"git update-ref -d {shell_quoted(ref)}")
        elif owner not in evidence.oids and not commit_refs.is_recently_written(
            store.repository, ref
        ):
            sentence = "labels a checkpoint that does not exist"
            yield repairable("label-orphan", ref, sentence, RefUpdate(ref, "", oid))


def find_replaced_checkpoints(
    repository: Repository, oids: Mapping[str, str], local_entries: LocalCheckpoints
) -> Iterator[Flaw]:
    for id_, original in sorted(local_entries.replaced_oids(oids).items()):
        ref = ref_names.CHECKPOINTS + id_
        sentence = f"points to {oids[id_]}; the document written in this clone is {original}"
        object_info = repository.cat_file.info(original)
        if object_info is not None and object_info[1] == "blob":
            update = RefUpdate(ref, original, oids[id_])
            yield repairable("checkpoint-replaced", ref, sentence, update)
        else:
            cure = f"see the new document: git ckpt show {id_}; remove it: git ckpt remove {id_}"
            yield lasting("checkpoint-replaced", ref, f"{sentence}, which is gone", cure)


def find_refs_to_lost_objects(repository: Repository) -> Iterator[Flaw]:
    tips = _list_tips(repository)
    tip_oids = sorted({oid for oid, _ in tips.values()})
    types = graph.find_objects_of_other_kinds(repository, tip_oids, "commit")
    lost_tips = [tip for tip in tips.items() if types.get(tip[1][0], "") is None]
    tips_now = _list_tips(repository) if lost_tips else {}  # other processes may have moved refs
    for name, (oid, undo_command) in lost_tips:
        if tips_now.get(name) != (oid, undo_command):
            continue
        cure = f"fetch it from a clone that has it: {_REFETCH} {oid}"
        if name == _STASH:  # rarely in other clones; older stashes are only in its reflog
            rev_parse = ("rev-parse", "--quiet", "--verify", _STASH + _BEFORE)
            has_older = repository.git.run(*rev_parse, ok=(0, 1, 128)).code == 0
            drop = "reflog delete --updateref --rewrite 'refs/stash@{0}'"
            cure += f"; or drop the stash: git {drop if has_older else f'update-ref -d {_STASH}'}"
        elif undo_command:
            cure += f"; or go back to the previous value, if the reflog has one: {undo_command}"
        sentence = f"points to {oid}, which is missing or damaged: every git gc fails"
        yield lasting("ref-target-missing", name, sentence, cure)


def _list_tips(repository: Repository) -> dict[str, tuple[str, str]]:
    """Map the user's refs and detached HEADs to oid and undo command ("" for none)."""
    output = repository.git.run("for-each-ref", "--format=%(objectname) %(refname)", *_USER_REFS)
    tips: dict[str, tuple[str, str]] = {}
    for line in output.out.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        oid, _, ref = line.partition(" ")
        undo_command = f"git update-ref {shell_quoted(ref)} {shell_quoted(ref + _BEFORE)}"
        tips[ref] = oid, undo_command if ref.startswith(BRANCHES) else ""
    top_dir = administration.main_worktree(repository) or repository.common_dir
    worktree_heads = [("main-worktree/HEAD", repository.common_dir, top_dir)]
    for git_dir, path in administration.list_worktrees(repository):
        if os.path.isdir(path):
            worktree_heads.append((f"worktrees/{os.path.basename(git_dir)}/HEAD", git_dir, path))
    for name, git_dir, path in worktree_heads:
        oid = administration.read_line(os.path.join(git_dir, "HEAD"))
        # HEAD is all zeros while git creates the worktree.
        if ids.is_oid(oid) and oid.strip("0"):
            undo_command = f"git -C {shell_quoted(path)} update-ref --no-deref HEAD HEAD{_BEFORE}"
            tips[name] = oid, undo_command
    return tips


def _audit_symbolic_refs(evidence: AuditData) -> Iterator[Flaw]:
    for ref, target in evidence.symbolic.items():
        sentence = f"is a symbolic ref, which moves and vanishes with {target}"
        if ref.startswith(ref_names.CHECKPOINTS):
            oid = evidence.oids[ref.removeprefix(ref_names.CHECKPOINTS)]
            cure = f"git update-ref --no-deref {shell_quoted(ref)} {oid}"
            yield lasting("ref-symbolic", ref, sentence, cure)
        elif not ref.startswith(ref_names.KEEP):
            update = RefUpdate(ref, evidence.refs[ref], evidence.refs[ref], is_symbolic=True)
            yield repairable("ref-symbolic", ref, sentence, update)


def _audit_submodules(repository: Repository, evidence: AuditData) -> Iterator[Flaw]:
    first_references: dict[str, tuple[str, bytes]] = {}
    for row in evidence.rich:
        for checkpoint, path in submodules.map_ids_to_paths([row.entry]).items():
            first_references.setdefault(checkpoint, (row.ref, path))
    for checkpoint, (ref, path) in first_references.items():
        problem = submodules.describe_problem(repository, path, checkpoint)
        if problem is not None:
            verifying = f"git -C {shell_quoted(os.fsdecode(path))} ckpt verify"
            cure = f"fetch it from a clone that has it; to list all that is missing: {verifying}"
            sentence = f"of the submodule {os.fsdecode(path)}: {problem}"
            yield lasting("submodule-missing", ref, sentence, cure)


def _audit_object_refs(row: Row, evidence: AuditData) -> Iterator[Flaw]:
    for space in ref_names.OBJECTS:
        oid = row.holds.get(space)
        if oid is None:
            continue
        ref, (code_prefix, meaning) = space + row.id, _MEANINGS[space]
        actual_type, actual_oid = evidence.object_type(space, oid), evidence.refs.get(ref)
        code, sentence_start = f"{code_prefix}-ref-wrong", f"points to {actual_oid}, not to"
        if actual_oid is None:
            code, sentence_start = f"{code_prefix}-ref-missing", "no ref keeps"
        sentence = f"{sentence_start} {oid}, the {meaning} of the checkpoint"
        if actual_type is not None and actual_type != KINDS[space]:
            sentence = f"the checkpoint names {oid}, which is a {actual_type}, not a {KINDS[space]}"
            yield lasting(f"{code_prefix}-ref-wrong", ref, sentence, f"git ckpt remove {row.id}")
        elif actual_type is None and actual_oid != oid:
            cure = f"{FETCH} {shell_quoted(f'+{ref}:{ref}')}"
            yield lasting(code, ref, f"{sentence}; the object is missing", cure)
        elif actual_oid != oid:
            update = RefUpdate(ref, oid, actual_oid or "")
            yield repairable(code, ref, sentence, row.unchanged, update)


def _audit_commit_refs(repository: Repository, evidence: AuditData) -> Iterator[Flaw]:
    row_by_commit: dict[str, Row] = {}
    missing_commits: set[str] = set()
    for row in evidence.rows.values():
        commit = row.entry.git_sha
        row_by_commit.setdefault(commit, row)
        actual_type = evidence.object_type(ref_names.KEEP, commit)
        if commit and actual_type is None:
            missing_commits.add(commit)
        elif commit and actual_type != "commit":
            sentence = f"the checkpoint names {commit}, which is a {actual_type}, not a commit"
            yield lasting("commit-ref-wrong", row.ref, sentence, f"git ckpt remove {row.id}")
    keep_refs = evidence.list_refs_below(ref_names.KEEP)
    kept = {oid for name, ref, oid in keep_refs if name == oid and ref not in evidence.symbolic}
    linked_commits = evidence.list_linked_commits()
    needed = kept.intersection(linked_commits)
    # If history is missing, which is a separate finding, treat every ref as useful.
    unkept, useful = set() if kept else set(linked_commits), kept
    with contextlib.suppress(GitError):
        if not kept & missing_commits:
            unreached = graph.find_outside_safely(repository.git, linked_commits, kept)
            useful = graph.find_descendants(repository.git, kept - needed, linked_commits)
            unkept = unreached
    for commit in sorted(unkept):
        yield _describe_unkept_commit(row_by_commit[commit], evidence)
    if evidence.invalid:
        useful = kept  # unreadable checkpoints may need them
    for name, ref, actual_oid in keep_refs:
        if name in unkept or (name in kept and (name in needed or name in useful)):
            continue
        if not commit_refs.is_recently_written(repository, ref):
            sentence = "does not point to the commit that the ref is named after"
            if name in kept:
                sentence = "keeps a commit that no checkpoint needs"
            update = RefUpdate(ref, "", actual_oid)
            yield repairable("ref-leftover", ref, sentence, update, is_leftover=True)


def _describe_unkept_commit(row: Row, evidence: AuditData) -> Flaw:
    commit = row.entry.git_sha
    ref = ref_names.KEEP + commit
    actual_oid, target = evidence.refs.get(ref, ""), evidence.symbolic.get(ref)
    code = "commit-ref-wrong" if target is not None or actual_oid else "commit-ref-missing"
    beginning = f"points to {actual_oid}, which does not keep" if actual_oid else "no ref keeps"
    if target is not None:
        beginning = f"is a symbolic ref: if {target} moves, no ref keeps"
    sentence = f"{beginning} {commit}, the linked commit of checkpoint {row.id}"
    update = RefUpdate(ref, commit, actual_oid, is_symbolic=target is not None)
    return repairable(code, ref, sentence, row.unchanged, update)
