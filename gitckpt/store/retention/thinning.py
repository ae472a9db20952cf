"""Thinning: of what hooks and agents made, one checkpoint an hour stays, then one a day, where it has what the others have.

What a hook recorded is its commit: that has to be reached without it. What an agent saved is its commit and the files beside it: each path
that is not as in a commit which stays must have a later version, in a later checkpoint of the same branch. What goes, then, are versions
that an agent wrote over. A file that was deleted, or put back to what was committed, has no later version: the last checkpoint that has it
stays. So does one from which a run was forked, or a worktree made. What a person saved is not thinned at all, and keeps what it holds.
"""

from __future__ import annotations

from gitckpt.git.graph import reachability
from gitckpt.git.objects.diff import Expansion, differences
from gitckpt.git.objects.encoding import empty_tree
from gitckpt.model import policy
from gitckpt.model.checkpoint import HOOK_TRIGGERS
from gitckpt.model.errors import CkptError
from gitckpt.model.format import budget
from gitckpt.store.retention import runs
from gitckpt.store.roster import Roster
from gitckpt.store.worktrees import ownership

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gitckpt.model.policy import Candidate, Decision, Newest, Policy
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.records.entry import Entry

_HOLDERS = ("refs/heads", "refs/tags", "refs/remotes")


def decide(
    store: Checkpoints, entries: Mapping[str, Entry], staying: Sequence[Candidate], rules: Policy, newest: Newest
) -> dict[str, Decision]:
    """Returns the decisions on those that are thinned away, by id.

    Args:
        entries: the checkpoints, by id.
        staying: those of them that do not expire, newest first.
        rules: the policy.
        newest: which stay as they are among the newest.
    """
    now = store.clock()
    mine = Roster.read(store.repository)
    spans = policy.spans([each for each in staying if mine.is_ours(entries[each.id])], rules, newest, now=now)
    if not spans:
        return {}
    used = runs.named(store) | ownership.checkpoints(store.repository)
    held = _Holdings(store, [entries[each.id] for span in spans for each in span.due], [entries[span.newest.id] for span in spans])
    found: dict[str, Decision] = {}
    for span in spans:
        first = nearest = entries[span.newest.id]
        for each in span.due:
            entry = entries[each.id]
            if each.id not in used and (held.has(nearest, entry) or (nearest is not first and held.has(first, entry))):
                found[each.id] = policy.thinned(each, span, now=now)
            else:
                nearest = entry
    return found


def heads(store: Checkpoints) -> set[str]:
    """Returns what branches, tags and remote-tracking branches point to, as far as it is there."""
    found = set(store.refs.list(*_HOLDERS, fields="%(objectname)").decode("ascii").split())
    return set(store.repository.cat_file.known(sorted(found)))


class _Holdings:
    """Tells what checkpoints hold that later ones have, too.

    Args:
        due: those that may go.
        newest: those that stay in any case.
    """

    def __init__(self, store: Checkpoints, due: Sequence[Entry], newest: Sequence[Entry]) -> None:
        self._repository = store.repository
        self._expansion = Expansion(store.repository, budget.SNAPSHOT)
        commits = {entry.git_sha for entry in due if entry.git_sha}
        self._there = set(store.repository.cat_file.known(sorted(commits)))
        stay = set(store.repository.cat_file.known(sorted({entry.git_sha for entry in newest if entry.git_sha})))
        self._outside = reachability.outside(store.repository.git, self._there, heads(store) | stay) if self._there else set()

    def has(self, later: Entry, entry: Entry) -> bool:
        """Tells whether a later checkpoint, or a commit that stays, has what one has. What cannot be read is nowhere else."""
        if entry.git_sha and entry.git_sha not in self._there:
            return False
        is_reached = entry.git_sha not in self._outside
        if entry.trigger in HOOK_TRIGGERS:
            return is_reached and entry.tree in (None, later.tree)
        if entry.operation is not None and entry.operation != later.operation:
            return False
        if not _submodules(entry) <= _submodules(later):
            return False
        try:
            return self._has_paths(later, entry, is_reached=is_reached)
        except CkptError:
            return False

    def _has_paths(self, later: Entry, entry: Entry, *, is_reached: bool) -> bool:
        files, after, committed = self._files(entry), self._files(later), self._tree(entry.git_sha)
        if files is None or after is None or committed is None:
            return False
        base = committed if is_reached else self._tree("")
        if (
            base is None
            or any(self._expansion.is_beyond(each, files) for each in (base, committed))
            or self._expansion.is_beyond(files, after)
        ):
            return False
        before = {one.path: (one.old_mode, one.old) for one in differences(self._repository, committed, files)}
        changed = {one.path: one for one in differences(self._repository, files, after)}
        for own in differences(self._repository, base, files):
            then = changed.get(own.path)
            if own.status == "D" or then is None:
                continue
            is_gone = then.status == "D" or (then.new_mode, then.new) == before.get(own.path)
            if is_gone or entry.branch is None:  # of two worktrees without a branch, nobody can tell whose version that is
                return False
        return True

    def _files(self, entry: Entry) -> str | None:
        """Returns the tree of the files of a checkpoint; None where it is missing."""
        if entry.tree is None:
            return self._tree(entry.git_sha)
        found = self._repository.cat_file.info(f"{entry.tree}:files")
        return found[0] if found is not None else None

    def _tree(self, commit: str) -> str | None:
        if not commit:
            return empty_tree(self._repository.object_format)
        found = self._repository.cat_file.info(f"{commit}^{{tree}}")
        return found[0] if found is not None else None


def _submodules(entry: Entry) -> set[str]:
    return {one.partition(" ")[2] for one in entry.submodules.split("\0")[:-1]}
