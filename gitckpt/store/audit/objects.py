"""Verify that the objects that checkpoints need exist and are kept by refs.

This covers commits with their history and snapshots with their files. Snapshots may be fetched
from anywhere, so their shape and size are checked, too.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from gitckpt.git import damage, graph
from gitckpt.git.contents import bounds
from gitckpt.git.contents.bounds import Census, UnsoundSnapshot
from gitckpt.git.objects.encoding import DIRECTORY, MalformedTree, decode_tree
from gitckpt.git.process import GitError
from gitckpt.git.refs import Update
from gitckpt.git.repository import BRANCHES, Repository
from gitckpt.git.worktree import administration, operation
from gitckpt.model import budget, ids
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import CkptError, Finding
from gitckpt.model.values import dataclass
from gitckpt.store import submodules
from gitckpt.store.audit.inventory import KINDS, Evidence, Flaw, Linked, SheetRow, lasting, mendable
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.records import keep, layout
from gitckpt.store.roster import Roster
from gitckpt.store.snapshot import manifest

# A plain fetch offers the commits that exist here, so the server omits what they reach.
_ANEW = "git fetch --refetch --no-tags REMOTE"

_AGAIN = f"then write it again: git hash-object -w FILE; or fetch from a clone that has it: {_ANEW}"
_EMPTY = "the file of an object is empty, as a power cut leaves it: git takes {oid} to be there, and never writes it again"
_SPOILED = "its content is not what it was"

_WORDS = {layout.TREES: "tree", layout.OPERATIONS: "operation", layout.ORIGINALS: "original"}

_STASH = "refs/stash"
_OF_PEOPLE = ("refs/heads", "refs/remotes", "refs/tags", _STASH)

_BEFORE = "@{1}"

_MEANT = {layout.TREES: "snapshot", layout.OPERATIONS: "commit of its operation", layout.ORIGINALS: "file it was imported from"}

# Entries of a snapshot: only their trees are checked.
_PLAIN = frozenset((b"files", b"index", b"raw", b"run", b"auto-merge"))


def audit_objects(
    store: Checkpoints, evidence: Evidence, empty: Mapping[str, str], damaged: Collection[str], only: Collection[int] | None = None
) -> list[Flaw]:
    """Return the checkpoints that lack objects, and the damaged objects.

    Args:
        empty: paths of loose objects of length zero, by oid.
        only: places of the checkpoints to check, without their history; None for all.
    """
    lost = {*damaged, *damage.unreadable(store.repository, sorted(empty))}
    roots = _Roots(evidence, only)
    lacking = graph.lacking(store.repository, store.objects, roots, lost, with_history=only is None)
    flaws = [lasting("objects-unreadable", layout.OWN[1], lacking.complaint, "see what is wrong: git fsck")] if lacking.complaint else []
    rewritten: Mapping[str, str] | None = None
    for at in evidence.places() if only is None else sorted(only):
        if not lacking.samples and None not in evidence.odd.values():
            break
        record = evidence.record(at)
        gone = _gone(record, evidence)
        oids = list(dict.fromkeys([*gone, *(oid for root in _roots(record, evidence) for oid in lacking.samples.get(root, ()))]))
        if not oids:
            continue
        commit = record.holds.get(layout.KEEP)
        if rewritten is None:
            rewritten = operation.filtered(store.repository)
        if commit in gone and commit in rewritten:
            flaws.append(_rewritten(record, commit))
        else:
            flaws.append(_incomplete(record, oids, lacks_commit=commit in gone))
    flaws += [
        lasting("object-empty", path, _EMPTY.format(oid=oid), f"remove it: rm -f {shell_word(path)}; {_AGAIN} {oid}")
        for oid, path in sorted(empty.items())
    ]
    flaws += [lasting("object-damaged", oid, _SPOILED, f"move its file away; {_AGAIN} {oid}") for oid in sorted(lost - empty.keys())]
    return flaws


def _gone(record: SheetRow, evidence: Evidence) -> list[str]:
    """Return the missing objects of a checkpoint that are not already a flaw of a ref."""
    return [
        oid
        for space, oid in record.holds.items()
        if evidence.kind(space, oid) is None and (space == layout.KEEP or evidence.refs.get(space + record.id) == oid)
    ]


def _roots(record: SheetRow, evidence: Evidence) -> list[str]:
    return [oid for space, oid in record.holds.items() if evidence.kind(space, oid) == KINDS[space]]


@dataclass(frozen=True, slots=True)
class _Roots:
    """The existing objects that checkpoints need, by time: similar ones are adjacent."""

    evidence: Evidence
    only: Collection[int] | None = None

    def __iter__(self) -> Iterator[str]:
        last = ""
        table = self.evidence.table
        for at in table.by_time() if self.only is None else sorted(self.only):
            commit = table.commit(at)
            if commit and commit != last and self.evidence.kind(layout.KEEP, commit) == KINDS[layout.KEEP]:
                yield commit
                last = commit
            if at in table.extras:
                yield from (oid for oid in _roots(self.evidence.record(at), self.evidence) if oid != commit)


def _incomplete(record: SheetRow, oids: list[str], *, lacks_commit: bool) -> Flaw:
    names = ", ".join(oids[: graph.SHOWN]) + (" and others" if len(oids) > graph.SHOWN else "")
    sentence = f"{names} {'is' if len(oids) == 1 else 'are'} missing or damaged, which its files or history need"
    kept = f"git fetch --no-tags --no-prune REMOTE '{layout.KEEP}*:{layout.KEEP}*'"
    fetch = kept if lacks_commit else " ".join([_ANEW, *oids[: graph.SHOWN]])
    cure = f"fetch from a clone that has it: {fetch}; or give it up: git ckpt remove {record.id[: ids.SHORT]}"
    return lasting("objects-missing", record.ref, sentence, cure)


def _rewritten(record: SheetRow, commit: str) -> Flaw:
    return lasting("commit-rewritten", record.ref, f"git filter-repo has rewritten its commit {commit}", "git ckpt remove --rewritten")


def snapshots(store: Checkpoints, evidence: Evidence) -> Iterator[Flaw]:
    """Yield the first problem of each checkpoint whose snapshot is damaged."""
    problems = dict(_problems(store, {tree for _, tree in _snapshots(evidence)}))
    for checkpoint, tree in _snapshots(evidence) if problems else ():
        if tree in problems:
            place = shell_word(layout.TREES + checkpoint)
            cure = f"look at it: git ls-tree {place}; remove it: git ckpt remove {checkpoint}"
            yield lasting("snapshot-invalid", layout.CHECKPOINTS + checkpoint, f"nothing can be brought back of it: {problems[tree]}", cure)


def _snapshots(evidence: Evidence) -> Iterator[tuple[str, str]]:
    for record in evidence.rich():
        tree = record.holds.get(layout.TREES)
        if tree is not None and evidence.kind(layout.TREES, tree) == KINDS[layout.TREES]:
            yield record.id, tree


def _problems(store: Checkpoints, trees: set[str]) -> Iterator[tuple[str, str]]:
    repository, roots = store.repository, sorted(trees)
    is_whole = graph.promisor(repository) is None
    census = Census(repository, roots, lambda trees: trees if is_whole else _there(repository, trees))
    for tree, found in zip(roots, repository.cat_file.contents(roots), strict=True):
        try:
            parts = decode_tree(found[2], repository.object_format) if found is not None else {}
            if found is not None:
                bounds.require_shape(parts, tree)
            whole = [oid for mode, oid in parts.values() if mode == DIRECTORY]
            if flaw := census.flaw(tree):
                raise UnsoundSnapshot(flaw)
            if any(census.is_beyond(oid, budget.SNAPSHOT) for oid in whole):
                bounds.require(repository, tree, "")  # checked-out files do not count
            if is_whole and parts.keys() - _PLAIN:
                manifest.read(repository, store.objects, tree, "")
        except (UnsoundSnapshot, MalformedTree) as error:
            yield tree, str(error)
        except CkptError:
            pass  # missing or damaged objects are separate findings


def _there(repository: Repository, trees: list[str]) -> list[str]:
    """Return the trees that exist, without fetching any."""
    odd = graph.unlike(repository, trees, "tree")
    return [tree for tree in trees if odd.get(tree, "tree") is not None]


def audit_refs(repository: Repository, evidence: Evidence) -> list[Flaw]:
    concerned = {at for space in layout.HOLDERS for name, _, _ in evidence.below(space) if (at := evidence.table.find(name)) is not None}
    concerned = {at for at in concerned if evidence.table.valid[at]}.union(evidence.table.extras)
    flaws = [flaw for at in sorted(concerned) for flaw in _of_checkpoint(repository, evidence.record(at), evidence)]
    for space in layout.HOLDERS:
        for name, ref, oid in evidence.below(space):
            if not evidence.is_there(name.rpartition("/")[2]) and not keep.is_young(repository, ref):
                owner = layout.CHECKPOINTS + name
                updates = (Update(owner, "", ""), Update(ref, "", oid)) if ids.is_id(name) else (Update(ref, "", oid),)
                sentence = "keeps something for a checkpoint that does not exist"
                flaws.append(mendable("ref-leftover", ref, sentence, updates=updates, is_leftover=True))
    known = Roster.read(repository)
    table = evidence.table
    places = ((name, table.find(name)) for name in known)
    oids = {name: table.oid(at) for name, at in places if at is not None}
    flaws += replaced(repository, oids, known)
    others = [lasting(each.code, each.object, each.sentence, each.cure) for each in pointing_nowhere(repository)]
    return [*flaws, *_symbolic(evidence), *_of_submodules(repository, evidence), *_of_commits(repository, evidence), *others]


def replaced(repository: Repository, oids: Mapping[str, str], known: Roster) -> Iterator[Flaw]:
    """Yield the checkpoints that a fetch has replaced."""
    for name, written in sorted(known.replaced(oids).items()):
        ref = layout.CHECKPOINTS + name
        sentence = f"points to {oids[name]}, and not to {written}, which was written here"
        found = repository.cat_file.info(written)
        if found is not None and found[1] == "blob":
            updates = (Update(ref, written, oids[name]),)
            yield mendable("checkpoint-replaced", ref, sentence, updates=updates)
        else:
            cure = f"look at what came: git ckpt show {name}; remove it: git ckpt remove {name}"
            sentence += ", and is gone"
            yield lasting("checkpoint-replaced", ref, sentence, cure)


def pointing_nowhere(repository: Repository) -> list[Finding]:
    """Return branches, tags, stashes and detached HEADs whose object is gone."""
    tips = _tips(repository)
    gone = {oid for oid, kind in graph.unlike(repository, sorted({oid for oid, _ in tips.values()}), "commit").items() if kind is None}
    lost = {name: tip for name, tip in tips.items() if tip[0] in gone}
    if not lost:
        return []
    now = _tips(repository)  # skip refs deleted or moved meanwhile
    return [_lost(repository, name, *tip) for name, tip in lost.items() if now.get(name) == tip]


def _tips(repository: Repository) -> dict[str, tuple[str, str]]:
    """Return oid and undo command ("" if none) of the user's refs and detached HEADs."""
    output = repository.git.run("for-each-ref", "--format=%(objectname) %(refname)", *_OF_PEOPLE).out
    lines = (line.decode("utf-8", "surrogateescape").partition(" ") for line in output.split(b"\n")[:-1])
    tips = {ref: (oid, _way_back(ref) if ref.startswith(BRANCHES) else "") for oid, _, ref in lines}
    existing = [(git_dir, path) for git_dir, path in administration.registered(repository) if os.path.isdir(path)]
    heads = [(f"worktrees/{os.path.basename(git_dir)}/HEAD", git_dir, path) for git_dir, path in existing]
    heads.append(("main-worktree/HEAD", repository.common_dir, administration.main_worktree(repository) or repository.common_dir))
    for name, git_dir, path in heads:
        oid = administration.content(os.path.join(git_dir, "HEAD"))
        # HEAD is all zeros while git creates the worktree.
        if ids.is_oid(oid) and oid.strip("0"):
            tips[name] = oid, f"git -C {shell_word(path)} update-ref --no-deref HEAD HEAD{_BEFORE}"
    return tips


def _way_back(ref: str) -> str:
    return f"git update-ref {shell_word(ref)} {shell_word(ref + _BEFORE)}"


def _lost(repository: Repository, name: str, oid: str, back: str) -> Finding:
    cure = f"fetch it from a clone that has it: git fetch --refetch --no-tags REMOTE {oid}"
    if name == _STASH:  # rarely in other clones; older stashes are only in its reflog
        has_older = repository.git.run("rev-parse", "--quiet", "--verify", _STASH + _BEFORE, ok=(0, 1, 128)).code == 0
        drop = "reflog delete --updateref --rewrite 'refs/stash@{0}'" if has_older else f"update-ref -d {_STASH}"
        cure += f"; or drop it: git {drop}"
    elif back:
        cure += f"; or go back to where it was before, if the reflog has it: {back}"
    return Finding("ref-target-missing", name, f"points to {oid}, which is missing or damaged: every git gc fails", cure)


def _of_submodules(repository: Repository, evidence: Evidence) -> Iterator[Flaw]:
    seen = set()
    for record in evidence.rich():
        for checkpoint, path in submodules.named_by([record.submodules]).items():
            problem = submodules.problem(repository, path, checkpoint) if checkpoint not in seen else None
            seen.add(checkpoint)
            if problem is not None:
                place = shell_word(os.fsdecode(path))
                cure = f"fetch it from a clone that has it; what else the submodule lacks: git -C {place} ckpt verify"
                yield lasting("submodule-missing", record.ref, f"of the submodule {os.fsdecode(path)}: {problem}", cure)


def _symbolic(evidence: Evidence) -> Iterator[Flaw]:
    """Yield symbolic refs of gitckpt except keep refs: they follow their targets."""
    for ref, (target, oid) in evidence.symbolic.items():
        sentence = f"stands for {target}, and points to nothing itself"
        if ref.startswith(layout.CHECKPOINTS):
            yield lasting("ref-symbolic", ref, sentence, f"git update-ref --no-deref {shell_word(ref)} {oid}")
        elif not ref.startswith(layout.KEEP):
            yield mendable("ref-symbolic", ref, sentence, updates=(Update(ref, oid, oid, is_symbolic=True),))


def _of_checkpoint(repository: Repository, record: SheetRow, evidence: Evidence) -> Iterator[Flaw]:
    for space in layout.HOLDERS:
        ref = space + record.id
        wanted, there = record.holds.get(space), evidence.refs.get(ref)
        if wanted is None:
            if there is not None and not keep.is_young(repository, ref):
                sentence = f"its checkpoint names no {_MEANT[space]}"
                yield mendable("ref-leftover", ref, sentence, updates=(Update(ref, "", there),), is_leftover=True)
            continue
        kind = evidence.kind(space, wanted)
        if kind is not None and kind != KINDS[space]:
            sentence = f"its checkpoint names {wanted}, which is a {kind}, not a {KINDS[space]}"
            yield lasting(f"{_WORDS[space]}-ref-wrong", ref, sentence, f"git ckpt remove {record.id}")
        elif there != wanted:
            yield _unlike(record, space, there, is_gone=kind is None)


def _unlike(record: SheetRow, space: str, there: str | None, *, is_gone: bool) -> Flaw:
    ref, wanted = space + record.id, record.holds[space]
    if there is None:
        code, sentence = f"{_WORDS[space]}-ref-missing", f"nothing keeps {wanted}, the {_MEANT[space]} of its checkpoint"
    else:
        code, sentence = f"{_WORDS[space]}-ref-wrong", f"points to {there}, not to {wanted}, the {_MEANT[space]} of its checkpoint"
    if is_gone:
        cure = f"fetch it from a clone that has it: git fetch --no-tags --no-prune REMOTE {shell_word(f'+{ref}:{ref}')}"
        return lasting(code, ref, f"{sentence}; that is missing", cure)
    return mendable(code, ref, sentence, updates=(record.is_there, Update(ref, wanted, there or "")))


def _of_commits(repository: Repository, evidence: Evidence) -> Iterator[Flaw]:
    gone: set[str] = set()
    for at in evidence.places() if evidence.odd else ():
        commit = evidence.table.commit(at)
        kind = evidence.kind(layout.KEEP, commit)
        if commit and kind is None:
            gone.add(commit)
        elif commit and kind != KINDS[layout.KEEP]:
            record = evidence.record(at)
            sentence = f"its checkpoint names {commit}, which is a {kind}, not a commit"
            yield lasting("commit-ref-wrong", record.ref, sentence, f"git ckpt remove {record.id}")
    kept = {name: (ref, oid) for name, ref, oid in evidence.below(layout.KEEP)}
    plain = {name: oid for name, (ref, oid) in kept.items() if ids.is_oid(name) and ref not in evidence.symbolic}
    right = {name for name, oid in plain.items() if name == oid}
    linked = Linked(evidence)
    needed = right.intersection(linked)
    try:
        lost = graph.unreached(repository.git, linked, right)
        useful = graph.above(repository.git, right - needed, linked)
        is_whole = not right & gone
    except GitError:
        is_whole = False
    if not is_whole:  # the missing history is a separate finding
        lost, useful = (set() if right else set(linked)), right
    owners = _owners(evidence, lost)
    for commit in sorted(lost):
        record, (ref, there) = owners[commit], kept.get(commit, (layout.KEEP + commit, ""))
        code, sentence = "commit-ref-missing", f"nothing keeps {commit}, the linked commit of {record.id}"
        if there:
            code, sentence = "commit-ref-wrong", f"points to {there}, which does not keep {commit}, the linked commit of {record.id}"
        target, _ = evidence.symbolic.get(ref, (None, None))
        if target is not None:
            sentence = f"stands for {target}, and keeps {commit}, the linked commit of {record.id}, only while that does not move"
        update = Update(ref, commit, there, is_symbolic=target is not None)
        yield mendable(code, ref, sentence, updates=(record.is_there, update))
    if evidence.unjudged:
        useful = right  # unreadable checkpoints may need them
    for name, (ref, there) in kept.items():
        if name in lost or (name in right and (name in needed or name in useful)) or keep.is_young(repository, ref):
            continue
        sentence = "keeps something for no checkpoint" if name in right else "does not keep the commit that it is named after"
        yield mendable("ref-leftover", ref, sentence, updates=(Update(ref, "", there),), is_leftover=True)


def _owners(evidence: Evidence, commits: Collection[str]) -> dict[str, SheetRow]:
    owners: dict[str, SheetRow] = {}
    for at in evidence.places() if commits else ():
        commit = evidence.table.commit(at)
        if commit in commits and commit not in owners:
            owners[commit] = evidence.record(at)
    return owners
