"""Remove the worktree of a run once a checkpoint holds all of its contents.

The git directory of the worktree is moved into the private directory, the worktree is renamed,
then both are deleted. A kill leaves a whole worktree or none; the next removal deletes the
rest.
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

# Submodule repositories of a linked worktree.

_OWN = ("refs/heads", "refs/tags", "refs/stash")


def unsaved_submodules(store: Checkpoints, git_dir: str) -> list[str]:
    """Describe what only the submodule repositories of a worktree hold.

    Their checked-out files are not compared: the capture of the worktree covers them.
    """
    descriptions = []
    for name, own, counterpart in _pairs(store.repository, git_dir):
        if counterpart is None:
            descriptions.append(f"the repository of its submodule {name}, and no other one is here")
            continue
        descriptions += [f"{what} in its submodule {name}" for what in _lone(store, own, counterpart)]
    return descriptions


def hand_over(store: Checkpoints, git_dir: str) -> None:
    """Copy the checkpoints of a worktree's submodule repositories to the main ones."""
    for _, own, counterpart in _pairs(store.repository, git_dir):
        if counterpart is not None:
            submodules.bring(store, own, counterpart)


def _pairs(repository: Repository, git_dir: str) -> Iterator[tuple[str, Repository, Repository | None]]:
    for name, own, counterpart in modules.pairs(repository, git_dir):
        with contextlib.closing(own):
            yield name, own, counterpart
        if counterpart is not None:
            counterpart.close()


def _lone(store: Checkpoints, own: Repository, counterpart: Repository) -> list[str]:
    """Describe checkpoints, and refs to commits that no other repository has."""
    descriptions = ["linked worktrees"] if administration.registered(own) else []
    form = "--format=%(objectname) %(objecttype) %(refname)"
    for line in own.git.run("for-each-ref", form, *_OWN).out.decode("utf-8", "replace").split("\n")[:-1]:
        oid, kind, ref = line.split(" ", 2)
        if kind not in ("commit", "tag"):
            is_there = counterpart.cat_file.info(ref) == own.cat_file.info(ref)
        else:
            lone = own.git.run("rev-list", "--max-count=1", oid, "--not", "--remotes").out.strip()
            is_there = not lone or _is_reached(counterpart, oid)
        if not is_there:
            descriptions.append(f"{ref.removeprefix('refs/heads/')} ({oid[:12]})")
    with contextlib.closing(store.seen_from(own, "plumbing")) as inner:
        descriptions += [f"checkpoint {entry.id}" for entry in inner.list() if entry.trigger != SUBMODULE]
    return descriptions


def _is_reached(counterpart: Repository, oid: str) -> bool:
    if counterpart.cat_file.info(oid) is None:
        return False
    found = counterpart.git.run("rev-list", "--max-count=1", oid, "--not", "--branches", "--tags", "--remotes", ok=(0, 128))
    return found.code == 0 and not found.out.strip()


# Removal of the worktree.

HOLDER = "git ckpt expire"  # the lease holder name during a removal
HOLDS = "holds what no checkpoint does"

_AWAY = ".making-way-"  # prefix of a worktree, beside its path, that is about to be deleted
_PARKED = "removing."  # prefix of a parked git directory
_NOTE = "ckpt-removal"
_LOCK = "removal.lock"
_RETRY = "git ckpt expire"
_PATIENCE = 10.0
_SHOWN = 3


def remove_worktree(store: Checkpoints, run: str, known: Settings | None = None, newest: Entry | None = None) -> str | None:
    """Remove the worktree of a run unless it holds what no checkpoint does.

    The checkpoints stay. Ignored files go, as with `git worktree remove`. If the directory is
    gone, what was staged is recorded first.

    Returns:
        Why the worktree stays, one clause; None if it is gone or there was none.

    Raises:
        CkptError: the worktree is unreadable, or removal failed; it is unchanged or renamed.
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
    """Return why `remove_worktree` would refuse, or None; change nothing."""
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
    """Return whether a remote-tracking branch contains the commit a run has reached."""
    commit = _newest(store, run).git_sha
    for _, path in _worktrees_of(store.repository, run):
        repository = administration.seen_from(store.repository, path)
        if repository is not None:
            with store.seen_from(repository, "plumbing") as seen:
                commit = seen.objects.head()[0]
    if not commit:
        return False
    words = ("for-each-ref", "--count=1", "--format=%(refname)", f"--contains={commit}", "refs/remotes")
    return store.repository.git.run(*words).out != b""


def finish(repository: Repository) -> list[str]:
    """Finish or undo the removals that a kill interrupted; return the failures."""
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
    private = repository.private_dir
    paths = []
    for name in names_in(private):
        if name.startswith(_PARKED):
            paths.append(os.path.join(private, name))
            with (
                contextlib.suppress(OSError, ValueError, KeyError, TypeError),
                open(os.path.join(paths[-1], _NOTE), encoding="utf-8") as file,
            ):
                paths.append(str(json.load(file)["stage"]))
    return [path for path in paths if os.path.isdir(path)]


def delete_directory(path: str) -> None:
    """Delete a directory recursively, even if directories in it are read-only."""
    try:
        premises.remove(path)
    except FileNotFoundError:
        return  # another process deleted it
    except OSError as error:
        mounted = mounts.reason(path)
        if mounted is not None:
            raise WorktreeError(f"cannot delete {path}: {mounted}", hint=f"unmount that, then: {_RETRY}") from None
        what = error.filename if isinstance(error.filename, str) else path
        hint = f"see what it is: ls -la {shell_word(path)}; once it can be deleted: {_RETRY}"
        raise WorktreeError(f"cannot delete {path}: {what}: {error.strerror}", hint=hint) from None


def _remove(store: Checkpoints, run: str, known: Settings | None, newest: Entry | None) -> str | None:
    finish(store.repository)  # `expire` reports its failures
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
    for git_dir, path in administration.registered(repository):
        owner = ownership.owner_in(git_dir)
        if owner is not None and owner.run == run:
            yield git_dir, path


def _mounted(repository: Repository, run: str) -> str | None:
    places = [place for pair in _worktrees_of(repository, run) for place in pair]
    return mounts.reason(*places, run_files.of_run(repository, run).path)


def _forgotten(repository: Repository, run: str, known: Settings | None) -> str | None:
    """Return a reason if a directory was the run's worktree and git has forgotten it."""
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
    """Describe what worktree and run files hold that the newest checkpoint does not."""
    there = administration.seen_from(store.repository, path)
    if there is None:
        raise WorktreeError(f"{path} is no worktree", hint="see what is wrong: git ckpt doctor")
    with store.seen_from(there, "plumbing") as seen:
        commit = seen.objects.head()[0]
        if commit != newest.git_sha:
            return [f"commit {commit[:12]}" if commit else "an unborn branch"]
        limits = replace(_limits(seen), timeout=math.inf)
        captured = seen.capture(limits, run_files.of_run(there, str(newest.run)))
        tree = newest.tree
        before, after = (manifest.read(there, seen.objects, oid, commit) for oid in (tree, captured.tree))
        descriptions = [one.path.decode("utf-8", "replace") for one in diff.differences(there, before.files, after.files)]
        descriptions += [path.decode("utf-8", "replace") for path in manifest.differing_raw(there, before, after)]
        descriptions += _differing(there, before, after, commit)
        descriptions += _beside(there, tree, captured.tree)
        known = {one.path: one.checkpoint for one in newest.worktree.submodules} if newest.worktree is not None else {}
        descriptions += [f"the submodule {one.path}" for one in captured.submodules if known.get(one.path) != one.checkpoint]
        descriptions += [one.path for one in captured.omitted if _is_work(path, one)]
        descriptions += filter(None, there.git.text("for-each-ref", "--format=%(refname)", "refs/worktree").split("\n"))
        return list(dict.fromkeys(descriptions))


def _limits(seen: Checkpoints) -> Limits:
    # Reports mistakes, but never asks for approval.
    rules = settings.read(seen.repository)
    return rules.limits if not rules.problem else seen.rules.limits()


def _differing(there: Repository, before: Contents, after: Contents, commit: str) -> list[str]:
    descriptions = []
    staged = [{**found.index, 0: comparison.merged_tree(there, found, commit)} for found in (before, after)]
    if staged[0] != staged[1]:
        descriptions.append("what is staged")
    if before.operation != after.operation:
        descriptions.append("an operation in progress")
    flags = [{(flag, path) for flag, paths in found.flags.items() for path in paths} for found in (before, after)]
    if flags[0] != flags[1]:
        descriptions.append("flags of the index")
    return descriptions


def _beside(there: Repository, before: str | None, after: str | None) -> list[str]:
    empty = manifest.base_tree(there, "")
    trees = [there.cat_file.info(f"{tree}:{run_files.ENTRY.decode()}") if tree else None for tree in (before, after)]
    old, new = (found[0] if found else empty for found in trees)
    if old == new:
        return []
    differing = diff.differences(there, old, new)
    return [f"{run_files.ENTRY.decode()}/{one.path.decode('utf-8', 'replace')}" for one in differing if one.status != "D"]


def _is_work(top: str, omitted: Omitted) -> bool:
    try:  # sockets and the like hold no work
        mode = os.lstat(os.path.join(top, omitted.path)).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _take_away(repository: Repository, git_dir: str, path: str) -> None:
    """Park the git directory of a worktree, rename the worktree, and delete both."""
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
    try:
        with open(os.path.join(parked, _NOTE), encoding="utf-8") as file:
            note = json.load(file)
        git_dir, path, stage = (str(note[key]) for key in ("git_dir", "path", "stage"))
    except (OSError, ValueError, KeyError, TypeError):
        return delete_directory(parked)  # killed while deleting: the worktree is gone already
    if os.path.lexists(stage):
        premises.require(stage)
        delete_directory(stage)
    elif administration.named_by(path) == os.path.normpath(git_dir) and not os.path.lexists(git_dir):
        os.unlink(os.path.join(parked, _NOTE))
        os.rename(parked, git_dir)
        return None
    return delete_directory(parked)
