"""Keys: names that callers choose, each for one run, so that whoever starts "the same" run again finds it.

A key is a blob at `refs/ckpt/keys/<SHA-256 of the key>` (docs/format.md). It is written in the
transaction that starts its run, before the run is there: what a kill leaves is a key without a run,
which the next start takes over, never a run without its key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, Refs, Update
from gitckpt.model import budget, ids, toml
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import InvalidCheckpoint, RunExists, UsageError
from gitckpt.model.fence import fenced
from gitckpt.store.records import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects

MAX_LENGTH = 1000
"""The longest key, in characters."""

_VERSION = 1


def ref_of(key: str) -> str:
    """Returns the ref of a key. A digest, because any text is a key, and some file systems take `A` for `a`.

    Raises:
        UsageError: it is blank, longer than `MAX_LENGTH`, or no text that UTF-8 can encode.
    """
    if not isinstance(key, str) or not key.strip() or len(key) > MAX_LENGTH:
        raise UsageError(f"{key!r:.60} is not a key", hint=f"a key is a text of 1 to {MAX_LENGTH} characters, such as nightly-2026-11-22")
    try:
        return layout.KEYS + hashlib.sha256(key.encode()).hexdigest()
    except UnicodeEncodeError:
        raise UsageError(f"{key!r:.60} is not a key: it holds a lone surrogate", hint="give a text that UTF-8 can encode") from None


def render(key: str, run: str) -> bytes:
    """Returns the document that gives a key to a run."""
    return toml.dumps({"version": _VERSION, "key": key, "run": run}).encode()


def run_in(found: tuple[str, bytes] | None, ref: str) -> str:
    """Returns the run that a key names.

    Args:
        found: kind and content of the object that its ref points to; None where it is missing.
        ref: full name of that ref; its last part must be the digest of the key.

    Raises:
        InvalidCheckpoint: it is no key.
    """
    return fenced(ref, lambda: _run_in(found, ref))


def _run_in(found: tuple[str, bytes] | None, ref: str) -> str:
    data = found[1] if found is not None and found[0] == "blob" else b""
    try:
        budget.require_size(len(data), budget.RECORD)
        said = toml.loads(data.decode("utf-8"), budget.RECORD)
    except ValueError as error:
        raise InvalidCheckpoint(ref, "", f"not a key: {error}", hint=_cure(ref)) from None
    version, key, run = said.get("version"), said.get("key"), said.get("run")
    if type(version) is int and version > _VERSION:
        raise InvalidCheckpoint(ref, "version", "written by a newer gitckpt", hint="upgrade gitckpt: pip install -U gitckpt")
    if not (type(version) is int and isinstance(key, str) and isinstance(run, str) and ids.is_run_id(run)):
        raise InvalidCheckpoint(ref, "", "does not point to a key", hint=_cure(ref))
    try:
        is_named = ref_of(key) == ref
    except UsageError:  # blank or too long: nobody can ask for it
        is_named = False
    if not is_named:
        raise InvalidCheckpoint(ref, "key", "is not the one that the ref is named after", hint=_cure(ref))
    return run


class Claim:
    """What gives a key to a run that starts, once.

    Args:
        key: the key.
        object_format: "sha1" or "sha256".
        is_there: tells whether a run exists.
    """

    def __init__(self, key: str, refs: Refs, objects: Objects, object_format: str, is_there: Callable[[str], bool]) -> None:
        self._key = key
        self._ref = ref_of(key)
        self._refs = refs
        self._objects = objects
        self._format = object_format
        self._is_there = is_there

    def holder(self) -> tuple[str, str] | None:
        """Returns the run that the key names, whether it exists or not, and the oid that says so; None where nobody has had it.

        Raises:
            InvalidCheckpoint: its ref does not hold a key.
        """
        oid = self._refs.read(self._ref)
        return None if oid is None else (run_in(next(self._objects.read([oid])), self._ref), oid)

    def run(self) -> str | None:
        """Returns the run that has the key; None where there is none, or not any more. Errors: as `holder`."""
        held = self.holder()
        return held[0] if held is not None and self._is_there(held[0]) else None

    def require_free(self) -> None:
        """Raises `RunExists` where a run has the key."""
        run = self.run()
        if run is not None:
            raise _exists(self._key, run)

    def updates(self, run: str) -> list[Update]:
        """Returns what the transaction that starts a run begins with, to give it the key.

        Raises:
            RunExists: another run has it.
            InvalidCheckpoint: its ref does not hold a key.
        """
        held = self.holder()
        if held is not None and self._is_there(held[0]):
            raise _exists(self._key, held[0])
        data = render(self._key, run)
        self._objects.write([("blob", data)])
        new = object_id("blob", data, self._format)
        if held is None:
            return [Update(self._ref, new, "")]
        # Whoever is starting the run that it names holds the lock of its head: this waits, and fails once the run is there.
        absent = [Update(layout.RUNS + held[0], "", "")] if held[0] != run else []
        return [*absent, Update(self._ref, new, held[1])]


def of_runs(refs: Refs, objects: Objects, runs: Collection[str]) -> list[Update]:
    """Returns what deletes the keys of runs that go."""
    return [Update(ref, "", oid) for ref, oid, run in _everything(refs, objects) if run in runs] if runs else []


def forget_orphans(refs: Refs, objects: Objects, runs: Callable[[], Collection[str]]) -> None:
    """Deletes the keys of runs that do not exist.

    Args:
        runs: returns the runs there are.

    Raises:
        LockHeld, GitError: one could not be deleted.
    """
    held = _everything(refs, objects)
    there = set(runs()) if held else set()
    for ref, oid, run in held:
        if run is not None and run not in there:
            try:
                refs.update([Update(layout.RUNS + run, "", ""), Update(ref, "", oid)])
            except RefMoved:
                continue  # the run, or another one with the key, has just begun


def _everything(refs: Refs, objects: Objects) -> list[tuple[str, str, str | None]]:
    """Returns ref, oid and run of each key; None for the run of one that cannot be read, which is for `verify`."""
    named = list(refs.each(layout.KEYS))
    held: list[tuple[str, str, str | None]] = []
    for (ref, oid), found in zip(named, objects.read([oid for _, oid in named]), strict=True):
        try:
            held.append((ref, oid, run_in(found, ref)))
        except InvalidCheckpoint:
            held.append((ref, oid, None))
    return held


def _exists(key: str, run: str) -> RunExists:
    return RunExists(f"the run with the key {key!r} exists: {run}", run, hint=f"go on with it: git ckpt resume {run}")


def _cure(ref: str) -> str:
    return f"look at it: git cat-file -p {shell_word(ref)}; to give the key up: git update-ref -d {shell_word(ref)}"
