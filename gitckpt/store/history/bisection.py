"""Find the first checkpoint in which a command fails, by binary search.

The progress is kept in the private directory, so that the search continues after a kill.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence

from gitckpt.git.files import private_dirs, regular
from gitckpt.git.lock import FileLock
from gitckpt.model.checkpoint import GUARD, TURN
from gitckpt.model.errors import BusyError, CkptError, UsageError
from gitckpt.model.ids import SHORT
from gitckpt.model.values import dataclass, field
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.history.log import Listing, files_name, has_files
from gitckpt.store.records.entry import CheckpointInfo, Query
from gitckpt.store.worktrees import resumption

GOOD, BAD, SKIPPED = "good", "bad", "skipped"
_SKIP_CODE = 125  # as in git-bisect(1)
_NO_VERDICT = (126, 127)  # of a shell, if the command cannot be started
_FILE, _LOCK = "bisect", "bisect.lock"
_FIELDS = ("command", "candidates", "verdicts")
RESET = "git ckpt bisect --reset"


@dataclass(frozen=True, slots=True)
class BisectResult:
    """The end of a search."""

    first_bad: CheckpointInfo
    last_good: CheckpointInfo | None  # None if the command fails in all checkpoints
    skipped: list[CheckpointInfo]  # between both; one of these may be the first bad one


@dataclass(slots=True)
class Bisection:
    """A search among checkpoints, oldest first; the command fails in the last one."""

    command: tuple[str, ...]
    candidates: tuple[str, ...]
    verdicts: dict[str, str] = field(default_factory=dict)  # id -> verdict

    def bounds(self) -> tuple[int, int]:
        """Return where the last good one (-1 for none) and the first bad one are."""
        of_verdict = {
            verdict: [
                i for i, id_ in enumerate(self.candidates) if self.verdicts.get(id_) == verdict
            ]
            for verdict in (GOOD, BAD)
        }
        good = max(of_verdict[GOOD], default=-1)
        bad = min((i for i in of_verdict[BAD] if i > good), default=len(self.candidates) - 1)
        return good, bad

    def choose_next(self) -> str | None:
        """Return the checkpoint to try next, or None at the end; the two ends come first."""
        for end in (self.candidates[-1], self.candidates[0]):
            if end not in self.verdicts:
                return end
        good, bad = self.bounds()
        untried = [i for i in range(good + 1, bad) if self.candidates[i] not in self.verdicts]
        if not untried or good < 0:
            return None
        middle = (good + bad) / 2
        return self.candidates[min(untried, key=lambda i: abs(i - middle))]

    @property
    def left(self) -> int:
        """How many checkpoints can still be the first bad one."""
        good, bad = self.bounds()
        return bad - good


def load(store: Checkpoints) -> Bisection | None:
    """Return the search that was begun and has not ended, or None."""
    data = private_dirs.read_private_file(os.path.join(store.repository.private_dir, _FILE))
    if not data:
        return None
    try:
        fields = json.loads(data)
        command, candidates = (tuple(map(str, fields[name])) for name in _FIELDS[:2])
        verdicts = {str(key): str(value) for key, value in fields["verdicts"].items()}
        bisection = Bisection(command, candidates, verdicts)
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = "the record of the bisection is damaged"
        raise CkptError(problem, hint=f"delete it: {RESET}") from None
    return bisection


def save(store: Checkpoints, bisection: Bisection) -> None:
    data = json.dumps({name: getattr(bisection, name) for name in _FIELDS}).encode()
    path = os.path.join(store.repository.make_private_dir(), _FILE)
    opener = private_dirs.open_private_file
    regular.write_private_file(path, data, flushed=True, opener=opener)


def reset(store: Checkpoints) -> bool:
    """Forget the search; return False if there was none."""
    path = os.path.join(store.repository.private_dir, _FILE)
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def begin(
    store: Checkpoints, command: Sequence[str], good: CheckpointInfo | None, bad: CheckpointInfo
) -> Bisection:
    """Begin a search among the checkpoints before `bad` of its worktree or run.

    Those of a run count if `good` is of the same one, or left out; not of a session of an agent,
    which works in the worktree of its user.
    """
    is_in_session = bad.trigger in (TURN, GUARD)
    is_same_run = not is_in_session if good is None else good.run == bad.run
    run_name = bad.run if is_same_run else None
    listing = Listing(store, Query(until=bad.time, safety=False))
    entries = listing.read_all()
    key = listing.keys.get(bad.id)
    chosen: list[CheckpointInfo] = []
    for entry in entries:
        is_related = entry.run == run_name if run_name else listing.keys[entry.id] == key
        if entry.id == bad.id or (chosen and has_files(entry) and is_related):
            chosen.append(entry)
            if good is not None and entry.id == good.id:
                break
    if not chosen or not has_files(bad):
        raise UsageError(f"checkpoint {bad.id[:SHORT]} has no files", hint="name another as --bad")
    if good is not None and chosen[-1].id != good.id:
        problem = f"{good.id[:SHORT]} is not before {bad.id[:SHORT]} in its run or worktree"
        raise UsageError(problem, hint="list the checkpoints: git ckpt log")
    chosen.reverse()
    # Of checkpoints with the same files, the oldest.
    unique = [
        e
        for e, before in zip(chosen[1:], chosen, strict=False)
        if files_name(e) != files_name(before)
    ]
    bisection = Bisection(tuple(command), tuple(entry.id for entry in (chosen[0], *unique)))
    save(store, bisection)
    return bisection


def run(
    store: Checkpoints,
    bisection: Bisection,
    trial: Callable[[str, str], int],
    tell: Callable[[CheckpointInfo, str, int], object],
) -> BisectResult:
    """Try checkpoints until the first bad one is found, and forget the search.

    Args:
        store: has the checkpoints.
        bisection: a search; each verdict is saved.
        trial: runs the command in a directory, given the id as well; returns its exit code.
        tell: is called with a checkpoint, the verdict, and how many are left.

    Raises UsageError if the command does not fail in the last one, or cannot be run.
    """
    entries = {entry.id: entry for entry in store.list(Query(ids=bisection.candidates))}
    if missing := [id_ for id_ in bisection.candidates if id_ not in entries]:
        problem = f"checkpoint {missing[0][:SHORT]} of the bisection was removed"
        raise CkptError(problem, hint=f"begin again: {RESET}")
    lock = FileLock(os.path.join(store.repository.make_private_dir(), _LOCK), 0)
    if not lock.acquire():
        hint = "wait for it, or press Ctrl-C there"
        raise BusyError("another process runs this bisection", hint=hint)
    try:
        while (id_ := bisection.choose_next()) is not None:
            verdict = _try(store, id_, trial)
            bisection.verdicts[id_] = verdict
            save(store, bisection)
            tell(entries[id_], verdict, bisection.left)
            _require_ends(bisection, id_, verdict)
        reset(store)
    except UsageError:
        if bisection.choose_next() in (bisection.candidates[0], bisection.candidates[-1]):
            reset(store)  # hardly begun, and the command or the range is wrong
        raise
    finally:
        lock.release(delete=True)
    good, bad = bisection.bounds()
    skipped = [entries[id_] for id_ in bisection.candidates[good + 1 : bad]]
    first_bad = entries[bisection.candidates[bad]]
    last_good = entries[bisection.candidates[good]] if good >= 0 else None
    return BisectResult(first_bad, last_good, skipped if last_good is not None else [])


def _try(store: Checkpoints, checkpoint_id: str, trial: Callable[[str, str], int]) -> str:
    with contextlib.ExitStack() as stack:
        try:
            scratch = resumption.open_scratch(store, store.read_own(checkpoint_id))
            directory = stack.enter_context(scratch)
        except CkptError as error:
            store.announce(f"skipped {checkpoint_id[:SHORT]}: {error.message}")
            return SKIPPED
        code = trial(directory, checkpoint_id)
    if code < 0 or code >= 128 or code in _NO_VERDICT:
        reason = f"signal {-code}" if code < 0 else f"exit code {code}"
        hint = "if that means failure: git ckpt bisect -- sh -c 'COMMAND || exit 1'"
        raise UsageError(f"the command ended with {reason}, which is no verdict", hint=hint)
    return GOOD if code == 0 else SKIPPED if code == _SKIP_CODE else BAD


def _require_ends(bisection: Bisection, checkpoint_id: str, verdict: str) -> None:
    is_last = checkpoint_id == bisection.candidates[-1]
    is_first = checkpoint_id == bisection.candidates[0]
    if (is_last and verdict != BAD) or (is_first and verdict == SKIPPED):
        bisection.verdicts.clear()
        end = "succeeds" if verdict == GOOD else "was skipped"
        hint = f"name another checkpoint as {'--bad' if is_last else '--good'}"
        raise UsageError(f"the command {end} in {checkpoint_id[:SHORT]}", hint=hint)
