"""Find the violations in a repository after a fault.

They are lost checkpoints, changes to the user's own data, and commands that fail afterwards. Git
alone reads the repository; then gitckpt has to continue without help.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from gitckpt import CkptError
from gitckpt.git import leftovers
from gitckpt.git.repository import discover_repository
from gitckpt.model import codec
from gitckpt.store.records import ref_names
from gitckpt.store.records.heads import is_ref_lock
from tests import forked
from tests.system.faults.operation import Acknowledged, Ended, Operation, Place, snapshot
from tests.system.faults.view import View, worktree_files
from tests.system.power import scenarios

LOST = "lost: "
"""The first word of a violation that concerns an acknowledged checkpoint."""

_HALF_WRITTEN = re.compile(r"objects/[^/]+/tmp_obj_\w+")
_HALF_MADE = re.compile(r"error: worktrees/[^/]+/HEAD: detached HEAD points at nothing$")
"""The complaint of `git fsck` about a worktree whose creation was killed.

Its HEAD names no commit yet; the next command repairs that.
"""

PATIENCE = 60
"""Seconds that each later command may take."""

LATER = 2 * 3600
"""Seconds after which maintenance runs: all private files are old by then."""

DERIVED = frozenset(
    (
        *(
            "note-missing",
            "note-stray",
            "index-stale",
            "run-head-missing",
            "run-head-lags",
            "run-head-orphan",
            "ref-leftover",
            "key-orphan",
        ),
        *(
            "lease-orphan",
            "worktree-unclaimed",
            "worktree-unregistered",
            "worktree-missing",
            "worktree-orphan",
            "worktree-unfinished",
        ),
    )
)
"""Findings of `verify` that an interruption explains.

The data is derived from checkpoints, and is written after them.
"""

_LATER = f"""
import sys, time
from gitckpt.git.repository import discover_repository
now, now_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: now() + {LATER}, lambda: now_ns() + {LATER} * 10**9
from gitckpt.store.retention.maintenance import run_maintenance
run_maintenance(discover_repository(sys.argv[1]))
"""

_UNWRITTEN = "ckpt/unwritten-*"
"""Parts of a run that could not be recorded; `status` shows them until a resume."""

_PASSING = ("started", "progress")
"""Suffixes of labels that expiry deletes once their phase is complete."""

_PLAIN = re.compile(
    r"""objects/[0-9a-f]{2}(/[0-9a-f]{38,62})? | """
    r"""objects/pack/pack-[0-9a-f]+\.(pack|idx|rev|bitmap|mtimes) | objects/info/.* |
    logs(/.*)? | refs/(?!.*\.lock$).* | hooks(/.*)? | info(/.*)? | branches |
    (worktrees/[^/]+/)?ORIG_HEAD | HEAD | COMMIT_EDITMSG | AUTO_MERGE | config | description | """
    r"""index |
    packed-refs | objects/info | gc\.pid | objects | objects/pack | refs | worktrees""",
    re.VERBOSE,
)
_NUMBER = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}[0-9]*|[0-9]{8}-[0-9]{6}-[a-z0-9-]+|\b[0-9a-f]{8,}\b|\b[0-9]+\b"
)


class TookTooLong(Exception):
    """A command ran longer than its time limit."""


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """Raise TookTooLong when the time is over; works in the main thread only."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    known = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    except TookTooLong:
        forked.close()
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, known)


@dataclass(frozen=True)
class Known:
    """The results of an undisturbed operation, before the first fault.

    Attributes:
        before: the user's own data before it.
        after: the same after an undisturbed one.
        refs: gitckpt's refs before it.
        kinds: the kinds of files in git's directory after an undisturbed one was judged.
    """

    before: View
    after: View
    refs: dict[str, str]
    kinds: frozenset[str]


def refs_of(place: Place) -> dict[str, str]:
    """Return the refs that hold checkpoints and their dependencies."""
    lines = (
        place.git(
            "for-each-ref",
            "--format=%(objectname) %(refname)",
            "refs/checkpoints",
            "refs/ckpt/trees",
        )
        .decode()
        .splitlines()
    )
    return {name: oid for oid, _, name in (line.partition(" ") for line in lines)}


class Judge:
    """A judge of one operation, which may be done many times.

    Args:
        operation: the operation.
        known: its undisturbed results.
        is_first: whether the kinds of files are still unknown.
    """

    def __init__(self, operation: Operation, known: Known, *, is_first: bool = False) -> None:
        self._operation = operation
        self._is_first = is_first
        self._known = known

    def flaws(self, place: Place, ended: Ended, *, is_brief: bool = False) -> list[str]:
        """Return the violations; lost checkpoints begin with `LOST`.

        Args:
            place: where the operation was done. Its files change.
            ended: how the operation ended.
            is_brief: whether to stop after the interrupted operation is completed and repaired.
        """
        operation, known = self._operation, self._known
        said = operation.promised(place, ended, known.before, known.after)
        found = [*said.wrong, *self._complaints(ended)]
        found += View.of(place).differences(
            known.before, known.after, operation.changes, is_over=ended.code == 0
        )
        doomed = self._doomed(place)
        there = {
            ref: oid for ref, oid in known.refs.items() if ref.rpartition("/")[2] not in doomed
        }
        found += self._lost(place, said, there)
        if not operation.begins_damaged:
            found += self._broken(place, said, passing=_HALF_MADE)
            found += self._findings(place)
        found += self._locks(place)
        if is_brief:
            found += [
                *self._completed(place),
                *self._call(place, "verify", "--repair"),
                *self._half_made(place),
            ]
            passed = self._passed(place, said)
            found += self._lost(
                place,
                said,
                {ref: oid for ref, oid in there.items() if ref.rpartition("/")[2] not in passed},
            )
            return list(dict.fromkeys(found))
        found += self._next(place, said)
        there = {
            ref: oid
            for ref, oid in there.items()
            if ref.rpartition("/")[2] not in self._passed(place, said)
        }
        found += self._lost(place, said, there)
        found += self._broken(place, said)
        found += [] if self._is_first else self._litter(place)
        for checkpoint, files in said.there.items():
            if files is not None and not any(sentence.startswith(LOST) for sentence in found):
                found += self._call(place, "restore", checkpoint)
                if worktree_files(place.project) != files:
                    found.append(
                        f"{LOST}what was restored of {checkpoint} are not the files that were saved"
                    )
        return list(dict.fromkeys(found))

    def _complaints(self, ended: Ended) -> list[str]:
        """Return violations in an operation's error, which says what, why and what next."""
        found = []
        if ended.code is None:
            return []
        if ended.code < 0:
            found.append(f"it died of signal {-ended.code}: {ended.err}")
        if ended.code == 3 or "Traceback" in ended.err or "this is a bug" in ended.err:
            found.append(f"it ended with {ended.code}, as after an unexpected error: {ended.err}")
        elif ended.code > 0 and self._operation.is_report and ended.out:
            pass  # the operation reports damage, and there is some
        elif ended.code > 0 and "error: " not in ended.err:
            found.append(f"it ended with {ended.code}, and no word of an error: {ended.err!r}")
        elif ended.code > 0 and "hint: " not in ended.err:
            found.append(f"it ended with {ended.code}, and said not what to do next: {ended.err!r}")
        return found

    def _doomed(self, place: Place) -> set[str]:
        named = place.beside / "doomed"
        return set(named.read_text().split()) if named.exists() else set()

    def _lost(self, place: Place, said: Acknowledged, there: dict[str, str]) -> list[str]:
        refs = refs_of(place)
        found = [
            f"{LOST}{ref} is not what it was" for ref, oid in there.items() if refs.get(ref) != oid
        ]
        found += [
            f"{LOST}{name} is gone"
            for name in said.there
            if ref_names.CHECKPOINTS + name not in refs
        ]
        found += [
            f"{LOST}{name} is there again"
            for name in said.gone
            if ref_names.CHECKPOINTS + name in refs
        ]
        for name, files in said.there.items():
            if files is not None and not found and snapshot(place, name) != files:
                found.append(f"{LOST}{name} has other files than were saved")
        for name, state in said.states.items():
            if ref_names.CHECKPOINTS + name in refs and self._state(place, name) != json.loads(
                state
            ):
                found.append(f"{LOST}{name} has another state than was saved")
        return found

    def _state(self, place: Place, name: str) -> object:
        try:
            return codec.decode(
                place.git("cat-file", "blob", ref_names.CHECKPOINTS + name), name
            ).state
        except (CkptError, subprocess.CalledProcessError) as error:
            return str(error)

    def _broken(
        self, place: Place, said: Acknowledged, *, passing: re.Pattern[str] | None = None
    ) -> list[str]:
        """Return git's errors about checkpoints, except for damage repaired later."""
        listened = scenarios.Acknowledged()
        found = [
            f"{LOST}{sentence}" for sentence in scenarios.flaws(place.project, listened, place.env)
        ]
        checked = subprocess.run(
            # A commit graph may name deleted commits: `git repack -a -d` keeps the graph.
            ["git", "-c", "core.commitGraph=false", "fsck", "--no-dangling", "--no-progress"],
            cwd=place.project,
            env=place.env,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = (checked.stdout + checked.stderr).splitlines()
        said_by_git = [
            line
            for line in lines
            if not line.startswith("notice: ") and not (passing and passing.match(line))
        ]
        if said_by_git or (checked.returncode and not lines):
            found.append(f"{LOST}git fsck: {'; '.join(said_by_git)}")
        if said.commits:
            listed = place.git("for-each-ref", "--format=%(objectname)", "refs/checkpoints")
            documents = place.git("cat-file", "--batch", data=listed).decode("utf-8", "replace")
            found += [
                f"{LOST}commit {commit} has no checkpoint"
                for commit in said.commits
                if f'git_sha = "{commit}"' not in documents
            ]
        return found

    def _findings(self, place: Place) -> list[str]:
        done = forked.git_ckpt("verify", "--json", directory=place.project, env=place.env)
        try:
            findings = json.loads(done.out)["findings"]
        except ValueError:
            return [f"verify ended with {done.code}: {done.err}"]
        return [
            f"verify: {one['code']}: {one['sentence']}"
            for one in findings
            if one["code"] not in DERIVED
        ]

    def _call(self, place: Place, *args: str, codes: tuple[int, ...] = (0,)) -> list[str]:
        """Run `git ckpt`, which has to succeed; return the violations."""
        try:
            with patience(PATIENCE):
                done = forked.git_ckpt("--quiet", *args, directory=place.project, env=place.env)
        except TookTooLong:
            return [f"git ckpt {' '.join(args)} takes more than {PATIENCE} s"]
        if done.code not in codes:
            return [
                f"afterwards, git ckpt {' '.join(args)} ends with {done.code}: {done.err.strip()}"
            ]
        return []

    def _locks(self, place: Place) -> list[str]:
        """Remove git's stale locks, as a user does after `doctor` has named them."""
        top = place.project / ".git"
        repository = discover_repository(str(place.project))
        there = [*top.rglob("*.lock"), *top.glob("packed-refs.new")]
        locks = [
            path
            for path in there
            if not is_ref_lock(repository, str(path)) and path.parent.name != "ckpt"
        ]
        if not locks:
            return []
        time.sleep(leftovers.QUIET)  # a younger lock may belong to a live process
        told = forked.git_ckpt("doctor", directory=place.project, env=place.env)
        found = [
            f"doctor does not name {path.relative_to(top)}: {told.out}{told.err}"
            for path in locks
            if f"rm {path}" not in told.out + told.err
        ]
        for path in locks:
            path.unlink()
        return found

    def _next(self, place: Place, said: Acknowledged) -> list[str]:
        """Continue as a user would: complete, save, commit, expire and maintain."""
        found = self._completed(place)
        (place.project / "next").write_text("next\n")
        found += self._call(place, "save", "--message", "afterwards")
        commands = (
            ["git", "add", "next"],
            ["git", "commit", "--quiet", "--message", "next", "next"],
        )
        for command in commands:
            done = subprocess.run(
                command,
                cwd=place.project,
                env=place.env,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
            if done.returncode or (
                done.stderr
                and "left by" not in done.stderr
                and "no living process" not in done.stderr
            ):
                found.append(
                    f"afterwards, {' '.join(command)} ends with {done.returncode}: "
                    f"{done.stderr.strip()}"
                )
        if b"gitckpt" in b"".join(View.of(place).hooks.values()):
            said.commits.add(place.git("rev-parse", "HEAD").decode().strip())
        found += self._call(place, "expire")
        later = forked.script(_LATER, str(place.project), env=place.env)
        if later.code:
            found.append(f"maintenance fails: {later.err.strip()}")
        return found + self._mended(place)

    def _completed(self, place: Place) -> list[str]:
        """Complete the interrupted operation."""
        operation, known = self._operation, self._known
        if not operation.again:
            return []
        found = self._call(
            place, *operation.named(place, operation.again), codes=operation.again_codes
        )
        if operation.ends_alike and (
            odd := View.of(place).differences(known.after, known.after, frozenset({"index"}))
        ):
            found += [f"done again: {sentence}" for sentence in odd]
        return found

    def _mended(self, place: Place) -> list[str]:
        """Repair derived data; a second look then finds nothing."""
        found = self._call(place, "verify", "--repair")
        verified = forked.git_ckpt("verify", directory=place.project, env=place.env)
        return [
            *found,
            *(
                [f"what verify finds is not mended: {verified.out.strip()}"]
                if verified.code
                else []
            ),
        ]

    def _half_made(self, place: Place) -> list[str]:
        done = subprocess.run(
            ["git", "fsck", "--connectivity-only"],
            cwd=place.project,
            env=place.env,
            capture_output=True,
            text=True,
            check=False,
        )
        return [
            f"it is left as it was: {line}"
            for line in done.stderr.splitlines()
            if _HALF_MADE.match(line)
        ]

    def _passed(self, place: Place, said: Acknowledged) -> set[str]:
        """Return the progress checkpoints that expiry deleted, and stop requiring them."""
        refs = refs_of(place)
        gone = {
            name
            for name in said.there
            if ref_names.CHECKPOINTS + name not in refs and said.there[name] is None
        }
        for name in gone:
            del said.there[name]
        return gone

    def _litter(self, place: Place) -> list[str]:
        for pause in (0.3, 1.0, 0.0):
            # Git deletes a half-written object after a day.
            found = {
                name
                for name in kinds_of_files(place) - self._known.kinds
                if not _HALF_WRITTEN.fullmatch(name)
            }
            if not found:
                break
            time.sleep(pause)  # refs may still be packed in the background
        runs = (
            forked.git_ckpt("runs", directory=place.project, env=place.env).out.splitlines()
            if _UNWRITTEN in found
            else ()
        )
        if any(line.split("\t")[1] != "complete" for line in runs):
            found -= {_UNWRITTEN}
        return [f"{name} is left" for name in sorted(found)]


def kinds_of_files(place: Place) -> frozenset[str]:
    """Return the paths in git's directory, without numbers and ids.

    Files that any repository has are left out.
    """
    top = place.project / ".git"
    found = set()
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.relpath(os.path.join(directory, name), top)
            if not _PLAIN.fullmatch(path):
                found.add(_NUMBER.sub("*", path))
    return frozenset(found)
