"""Removes the worktree of a run, once a checkpoint holds all that is in it.

What git keeps of the worktree is parked among our private data, then the directory is moved out of sight, then both are deleted. A kill
leaves a worktree that is whole, or none; what is left to delete, the next removal deletes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections.abc import Iterator

from gitckpt.git.files import mounts, premises
from gitckpt.git.filesystem import names_in
from gitckpt.git.lock import Lock
from gitckpt.git.objects import diff
from gitckpt.git.repository import Repository
from gitckpt.git.worktree import administration, modules
from gitckpt.git.worktree.administration import main_worktree
from gitckpt.model.arguments import first_of, shell_word
from gitckpt.model.checkpoint import SUBMODULE, Checkpoint, Omitted
from gitckpt.model.errors import NotFoundError, WorktreeError
from gitckpt.model.values import replace
from gitckpt.store import submodules
from gitckpt.store.config import settings
from gitckpt.store.leases.leases import LeaseHeld, LeaseLost
from gitckpt.store.records import heads
from gitckpt.store.runs import run_files
from gitckpt.store.snapshot import comparison, manifest
from gitckpt.store.worktrees import opener, ownership
from gitckpt.store.worktrees.resumption import record_leftover

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.store.checkpoints import Checkpoints
    from gitckpt.store.config.settings import Settings
    from gitckpt.store.records.entry import Entry
    from gitckpt.store.snapshot.limits import Limits
    from gitckpt.store.snapshot.manifest import Contents


# Repositories of submodules that a linked worktree has of its own: what nobody else has, and what is handed over before they go.


_OWN = ("refs/heads", "refs/tags", "refs/stash")


def unsaved_submodules(store: Checkpoints, git_dir: str) -> list[str]:
    """Returns what repositories of submodules of a worktree hold that would go with them, for a person; it changes nothing.

    What is checked out in them is not looked at: a capture of the worktree says whether a checkpoint has it.

    Args:
        store: of the repository around them.
        git_dir: what git keeps of the worktree.
    """
    said = []
    for name, own, counterpart in _pairs(store.repository, git_dir):
        if counterpart is None:
            said.append(f"the repository of its submodule {name}, and no other one is here")
            continue
        said += [f"{what} in its submodule {name}" for what in _lone(store, own, counterpart)]
    return said


def hand_over(store: Checkpoints, git_dir: str) -> None:
    """Copies the checkpoints that repositories of submodules of a worktree have to their counterparts, with all they keep alive.

    Args:
        store: of the repository around them.
        git_dir: what git keeps of the worktree.

    Raises:
        GitError: not all of them could be copied.
    """
    for _, own, counterpart in _pairs(store.repository, git_dir):
        if counterpart is not None:
            submodules.bring(store, own, counterpart)


def _pairs(repository: Repository, git_dir: str) -> Iterator[tuple[str, Repository, Repository | None]]:
    """Yields name, repository and counterpart of each submodule of a worktree, those within them too."""
    for name, own, counterpart in modules.pairs(repository, git_dir):
        with contextlib.closing(own):
            yield name, own, counterpart
        if counterpart is not None:
            counterpart.close()


def _lone(store: Checkpoints, own: Repository, counterpart: Repository) -> list[str]:
    """Returns the refs that lead to commits which neither the counterpart has nor a remote, and checkpoints of the submodule's own."""
    said = ["linked worktrees"] if administration.registered(own) else []
    form = "--format=%(objectname) %(objecttype) %(refname)"
    for line in own.git.run("for-each-ref", form, *_OWN).out.decode("utf-8", "replace").split("\n")[:-1]:
        oid, kind, ref = line.split(" ", 2)
        if kind not in ("commit", "tag"):
            is_there = counterpart.cat_file.info(ref) == own.cat_file.info(ref)
        else:
            lone = own.git.run("rev-list", "--max-count=1", oid, "--not", "--remotes").out.strip()
            is_there = not lone or _is_reached(counterpart, oid)
        if not is_there:
            said.append(f"{ref.removeprefix('refs/heads/')} ({oid[:12]})")
    with contextlib.closing(store.seen_from(own, "plumbing")) as inner:
        said += [f"checkpoint {entry.id}" for entry in inner.list() if entry.trigger != SUBMODULE]
    return said


def _is_reached(counterpart: Repository, oid: str) -> bool:
    """Tells whether a repository has a commit that branches, tags or remote-tracking branches of its lead to."""
    if counterpart.cat_file.info(oid) is None:
        return False
    found = counterpart.git.run("rev-list", "--max-count=1", oid, "--not", "--branches", "--tags", "--remotes", ok=(0, 128))
    return found.code == 0 and not found.out.strip()


# Removes the worktree of a run, once a checkpoint holds all that is in it.


HOLDER = "git ckpt expire"
"""What the lease of a run is taken for while it is removed."""

HOLDS = "holds what no checkpoint does"
"""Says of a worktree that it has somebody's work in it."""

_AWAY = ".making-way-"
"""Begins the name of a directory that is about to be deleted; it lies beside the worktree that it was."""

_PARKED = "removing."
"""Begins the name under which what git kept of such a worktree is parked."""

_NOTE = "ckpt-removal"
_LOCK = "removal.lock"
_RETRY = "git ckpt expire"
"""The command that deletes what an earlier removal could not."""

_PATIENCE = 10.0
_SHOWN = 3


def remove_worktree(store: Checkpoints, run: str, known: Settings | None = None, newest: Entry | None = None) -> str | None:
    """Removes the worktree of a run, unless there is something in it that no checkpoint holds. Its checkpoints stay as they are.

    Ignored files go, as with `git worktree remove`. Of a worktree whose directory is gone, what was staged is recorded first.

    Args:
        store: of the repository, as seen from another worktree.
        known: the settings, where the caller has read them already.
        newest: the newest checkpoint of the run, where the caller knows it.

    Returns:
        Why the worktree stays, one clause; None where it is gone, or there was none.

    Raises:
        NotFoundError: there is no such run.
        CkptError: the worktree cannot be looked at, or not be removed; then nothing of it has changed, or it is out of sight.
    """
    found = store.leases.read(run)
    if found is not None and store.leases.is_held(*found) and found[1].is_ours:
        return _remove(store, run, known, newest)
    try:
        hold = store.leases.acquire(run, HOLDER)
    except LeaseHeld as error:
        return error.message
    try:
        return _remove(store, run, known, None)
    finally:
        try:
            hold.release()
        except LeaseLost:
            pass


def reason_to_stay(store: Checkpoints, run: str, known: Settings | None = None) -> str | None:
    """Returns why the worktree of a run would not be removed; None where it would, or there is none. Changes nothing.

    Args and errors: as `remove_worktree`.
    """
    found = store.leases.read(run)
    if found is not None and store.leases.is_held(*found) and not found[1].is_ours:
        return store.leases.refusal(*found).message
    newest = _newest(store, run)
    mounted = _mounted(store.repository, run)
    if mounted is not None:
        return mounted
    reasons = (_reason(store, store.read(newest.id), git_dir, path) for git_dir, path in _worktrees_of(store.repository, run))
    return next((reason for reason in reasons if reason), None) or _forgotten(store.repository, run, known)


def is_pushed(store: Checkpoints, run: str) -> bool:
    """Tells whether the commit that a run has come to is in a branch that was pushed, as far as this repository knows.

    Raises:
        NotFoundError: there is no such run.
    """
    commit = _newest(store, run).git_sha
    for _, path in _worktrees_of(store.repository, run):
        there = administration.seen_from(store.repository, path)
        if there is not None:
            with store.seen_from(there, "plumbing") as seen:
                commit = seen.objects.head()[0]
    if not commit:
        return False
    words = ("for-each-ref", "--count=1", "--format=%(refname)", f"--contains={commit}", "refs/remotes")
    return store.repository.git.run(*words).out != b""


def finish(repository: Repository) -> list[str]:
    """Delete what killed removals have left to delete; one that had only begun counts as not begun.

    Args:
        repository: seen from any of its worktrees.

    Returns:
        What cannot be deleted, and what to do about it, a sentence each: it keeps nothing else from being removed.
    """
    private = repository.make_private_dir()
    failures = []
    with Lock(os.path.join(private, _LOCK), 0) as alone:
        for name in sorted(os.listdir(private)) if alone else ():
            if name.startswith(_PARKED):
                try:
                    _finish(os.path.join(private, name))
                except WorktreeError as error:
                    failures.append(f"{error.message}; {error.hint}")
    return failures


def half_removed(repository: Repository) -> list[str]:
    """Returns the directories that `finish` deletes, unless somebody is at it now: worktrees, and what git kept of each.

    Args:
        repository: seen from any of its worktrees.
    """
    private = repository.private_dir
    found = []
    for name in names_in(private):
        if name.startswith(_PARKED):
            found.append(os.path.join(private, name))
            with (
                contextlib.suppress(OSError, ValueError, KeyError, TypeError),
                open(os.path.join(found[-1], _NOTE), encoding="utf-8") as file,
            ):
                found.append(str(json.load(file)["stage"]))
    return [path for path in found if os.path.isdir(path)]


def delete_directory(path: str) -> None:
    """Deletes a directory with all that is in it, also where directories in it are read-only.

    Raises:
        WorktreeError: it cannot be deleted.
    """
    try:
        premises.remove(path)
    except FileNotFoundError:
        return  # somebody else was faster
    except OSError as error:
        mounted = mounts.reason(path)
        if mounted is not None:
            raise WorktreeError(f"cannot delete {path}: {mounted}", hint=f"unmount that, then: {_RETRY}") from None
        what = error.filename if isinstance(error.filename, str) else path
        hint = f"see what it is: ls -la {shell_word(path)}; once it can be deleted: {_RETRY}"
        raise WorktreeError(f"cannot delete {path}: {what}: {error.strerror}", hint=hint) from None


def _remove(store: Checkpoints, run: str, known: Settings | None, newest: Entry | None) -> str | None:
    finish(store.repository)  # `expire` says what of other runs cannot be deleted
    last = newest or _newest(store, run)
    mounted = _mounted(store.repository, run)
    if mounted is not None:
        return mounted
    for git_dir, path in _worktrees_of(store.repository, run):
        reason = _reason(store, store.read(last.id), git_dir, path)
        if reason is not None:
            return reason
        hand_over(store, git_dir)
        if os.path.lexists(path):
            _take_away(store.repository, git_dir, path)
        else:
            record_leftover(store, git_dir, path)
            administration.forget(store.repository, git_dir)
    return _forgotten(store.repository, run, known)


def _newest(store: Checkpoints, run: str) -> Entry:
    found = heads.newest(store.index, store.repository, run)
    if found is None:
        raise NotFoundError(f"no run {run}", hint="see which there are: git ckpt runs")
    return found


def _worktrees_of(repository: Repository, run: str) -> Iterator[tuple[str, str]]:
    """Yields what git keeps of each worktree of a run, and where git believes it to be."""
    for git_dir, path in administration.registered(repository):
        owner = ownership.owner_in(git_dir)
        if owner is not None and owner.run == run:
            yield git_dir, path


def _mounted(repository: Repository, run: str) -> str | None:
    """Return why nothing of a run may be deleted where something is mounted in what it has; None where nothing is."""
    places = [place for pair in _worktrees_of(repository, run) for place in pair]
    return mounts.reason(*places, run_files.of_run(repository, run).path)


def _forgotten(repository: Repository, run: str, known: Settings | None) -> str | None:
    """Returns what is to be said of a directory that was the worktree of a run, and that git has forgotten."""
    top = main_worktree(repository)
    configured = (known or settings.read(repository)).worktree_dir
    if top is None and configured is None:
        return None
    path = os.path.join(opener.default_root(repository, configured), run)
    named = administration.named_by(path)
    if named is None or os.path.isdir(named) or not administration.is_ours(repository, named):
        return None
    return f"git has forgotten its worktree {path}: git ckpt resume {run} takes it back"


def _reason(store: Checkpoints, newest: Checkpoint, git_dir: str, path: str) -> str | None:
    """Returns why a worktree stays."""
    if not os.path.lexists(path) and modules.has_own(git_dir):
        return f"its worktree {path} is gone, and {git_dir} has repositories of submodules"
    if ownership.is_locked_by_others(git_dir):
        return f"its worktree {path} is locked"
    named = administration.named_by(path)
    if named is None or os.path.realpath(named) != os.path.realpath(git_dir):
        moved = administration.moved_to(store.repository, git_dir, path)
        if moved is not None:
            return f"its worktree was moved to {moved}: git worktree repair {shell_word(moved)}"
        return f"{path} is not the worktree that it was" if os.path.lexists(path) else None
    if administration.lacks_commondir(store.repository, git_dir) or administration.lacks_head(store.repository, git_dir):
        return f"git does not see its worktree {path} any more: git ckpt resume {newest.run} mends that"
    if _is_inside(path) or os.path.realpath(store.repository.git_dir) == os.path.realpath(git_dir):
        return f"you are in its worktree {path}"
    unsaved = _unsaved(store, newest, path) + unsaved_submodules(store, git_dir)
    if not unsaved:
        return None
    return f"its worktree {path} {HOLDS}: {first_of(unsaved, _SHOWN)}"


def _is_inside(path: str) -> bool:
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return False
    top = os.path.realpath(path)
    return os.path.commonpath([os.path.realpath(here), top]) == top


def _unsaved(store: Checkpoints, newest: Checkpoint, path: str) -> list[str]:
    """Returns what a worktree and the files beside it hold that the newest checkpoint of the run does not, for a person."""
    there = administration.seen_from(store.repository, path)
    if there is None:
        raise WorktreeError(f"{path} is no worktree", hint="see what is wrong: git ckpt doctor")
    with store.seen_from(there, "plumbing") as seen:
        commit = seen.objects.head()[0]
        if commit != newest.git_sha:
            return [f"commit {commit[:12]}" if commit else "an unborn branch"]
        limits = replace(_limits(seen), timeout=math.inf)
        found = seen.capture(limits, run_files.of_run(there, str(newest.run)))
        tree = newest.tree
        before, after = (manifest.read(there, seen.objects, oid, commit) for oid in (tree, found.tree))
        said = [one.path.decode("utf-8", "replace") for one in diff.differences(there, before.files, after.files)]
        said += [path.decode("utf-8", "replace") for path in manifest.differing_raw(there, before, after)]
        said += _differing(there, before, after, commit)
        said += _beside(there, tree, found.tree)
        known = {one.path: one.checkpoint for one in newest.worktree.submodules} if newest.worktree is not None else {}
        said += [f"the submodule {one.path}" for one in found.submodules if known.get(one.path) != one.checkpoint]
        said += [one.path for one in found.omitted if _is_work(path, one)]
        said += filter(None, there.git.text("for-each-ref", "--format=%(refname)", "refs/worktree").split("\n"))
        return list(dict.fromkeys(said))


def _limits(seen: Checkpoints) -> Limits:
    """Return the limits of a capture; tell of mistakes, but ask nobody to approve anything."""
    found = settings.read(seen.repository)
    return found.limits if not found.problem else seen.rules.limits()


def _differing(there: Repository, before: Contents, after: Contents, commit: str) -> list[str]:
    """Returns what differs beside the files, in words."""
    said = []
    staged = [{**found.index, 0: comparison.merged_tree(there, found, commit)} for found in (before, after)]
    if staged[0] != staged[1]:
        said.append("what is staged")
    if before.operation != after.operation:
        said.append("an operation in progress")
    flags = [{(flag, path) for flag, paths in found.flags.items() for path in paths} for found in (before, after)]
    if flags[0] != flags[1]:
        said.append("flags of the index")
    return said


def _beside(there: Repository, before: str | None, after: str | None) -> list[str]:
    """Returns which files of the run beside the worktree differ from those in the snapshot."""
    empty = manifest.base_tree(there, "")
    trees = [there.cat_file.info(f"{tree}:{run_files.ENTRY.decode()}") if tree else None for tree in (before, after)]
    old, new = (found[0] if found else empty for found in trees)
    if old == new:
        return []
    differing = diff.differences(there, old, new)
    return [f"{run_files.ENTRY.decode()}/{one.path.decode('utf-8', 'replace')}" for one in differing if one.status != "D"]


def _is_work(top: str, omitted: Omitted) -> bool:
    """Tells whether something that was left out of a capture may be somebody's work; sockets and the like are not."""
    try:
        mode = os.lstat(os.path.join(top, omitted.path)).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _take_away(repository: Repository, git_dir: str, path: str) -> None:
    """Parks what git keeps of a worktree, moves its directory out of sight, and deletes both."""
    private, token = repository.make_private_dir(), os.urandom(4).hex()
    stage = os.path.join(os.path.dirname(path), f"{_AWAY}{token}")
    parked = os.path.join(private, f"{_PARKED}{token}")
    with premises.holding(os.path.dirname(path)), Lock(os.path.join(private, _LOCK), _PATIENCE):
        try:
            with open(os.path.join(git_dir, _NOTE), "w", encoding="utf-8") as file:
                json.dump({"git_dir": git_dir, "path": path, "stage": stage}, file)
                file.flush()
                os.fsync(file.fileno())
            with administration.turn(repository):
                os.rename(git_dir, parked)
            os.rename(path, stage)
        except OSError as error:
            if os.path.isdir(parked):
                _finish(parked)
            raise WorktreeError(f"cannot remove the worktree {path}: {error.strerror}") from None
        _finish(parked)


def _finish(parked: str) -> None:
    """Ends a removal that has come as far as parking what git kept of the worktree."""
    try:
        with open(os.path.join(parked, _NOTE), encoding="utf-8") as file:
            said = json.load(file)
        git_dir, path, stage = (str(said[key]) for key in ("git_dir", "path", "stage"))
    except (OSError, ValueError, KeyError, TypeError):
        return delete_directory(parked)  # a kill while it was deleted: the directory went first
    if os.path.lexists(stage):
        premises.require(stage)
        delete_directory(stage)
    elif administration.named_by(path) == os.path.normpath(git_dir) and not os.path.lexists(git_dir):
        os.unlink(os.path.join(parked, _NOTE))
        os.rename(parked, git_dir)
        return None
    return delete_directory(parked)
