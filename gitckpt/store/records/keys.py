"""Keys that callers choose for runs, so that a repeated start finds the run.

A key is a blob at `refs/ckpt/keys/<SHA-256 of the key>` (docs/format.md). It is written in the
transaction that starts its run, before the run's refs. A kill can leave a key without a run, which
the next start takes over, but never a run without its key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, Refs, Update
from gitckpt.model import budget, ids, toml
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import InvalidCheckpoint, RunExists, UsageError
from gitckpt.model.skip_invalid import fenced
from gitckpt.store.records import ref_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gitckpt.git.objects.port import Objects

MAX_LENGTH = 1000  # in characters
_VERSION = 1


def ref_of(key: str) -> str:
    """Return the ref of a key; it is a digest, since some file systems ignore case."""
    if not isinstance(key, str) or not key.strip() or len(key) > MAX_LENGTH:
        raise UsageError(
            f"{key!r:.60} is not a key",
            hint=f"a key is a text of 1 to {MAX_LENGTH} characters, such as nightly-2026-11-22",
        )
    try:
        return ref_names.KEYS + hashlib.sha256(key.encode()).hexdigest()
    except UnicodeEncodeError:
        raise UsageError(
            f"{key!r:.60} is not a key: it holds a lone surrogate",
            hint="give a text that UTF-8 can encode",
        ) from None


def render(key: str, run: str) -> bytes:
    return toml.dumps({"version": _VERSION, "key": key, "run": run}).encode()


def run_in(found: tuple[str, bytes] | None, ref: str) -> str:
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
        raise InvalidCheckpoint(
            ref,
            "version",
            "written by a newer gitckpt",
            hint="upgrade gitckpt: pip install -U gitckpt",
        )
    if not (
        type(version) is int
        and isinstance(key, str)
        and isinstance(run, str)
        and ids.is_run_id(run)
    ):
        raise InvalidCheckpoint(ref, "", "does not point to a key", hint=_cure(ref))
    try:
        is_named = ref_of(key) == ref
    except UsageError:  # blank or too long: not a valid key
        is_named = False
    if not is_named:
        raise InvalidCheckpoint(
            ref, "key", "is not the one that the ref is named after", hint=_cure(ref)
        )
    return run


class Claim:
    """Gives a key to a new run, once."""

    def __init__(
        self,
        key: str,
        refs: Refs,
        objects: Objects,
        object_format: str,
        is_there: Callable[[str], bool],
    ) -> None:
        self._key = key
        self._ref = ref_of(key)
        self._refs = refs
        self._objects = objects
        self._format = object_format
        self._is_there = is_there

    def holder(self) -> tuple[str, str] | None:
        """Return the run that has the key, existing or not, and the oid; None if unused."""
        oid = self._refs.read(self._ref)
        return None if oid is None else (run_in(next(self._objects.read([oid])), self._ref), oid)

    def run(self) -> str | None:
        held = self.holder()
        return held[0] if held is not None and self._is_there(held[0]) else None

    def require_free(self) -> None:
        run = self.run()
        if run is not None:
            raise _exists(self._key, run)

    def updates(self, run: str) -> list[Update]:
        held = self.holder()
        if held is not None and self._is_there(held[0]):
            raise _exists(self._key, held[0])
        data = render(self._key, run)
        self._objects.write([("blob", data)])
        new = object_id("blob", data, self._format)
        if held is None:
            return [Update(self._ref, new, "")]
        # A process that starts the named run locks its head: this waits, and fails once it exists.
        absent = [Update(ref_names.RUNS + held[0], "", "")] if held[0] != run else []
        return [*absent, Update(self._ref, new, held[1])]


def of_runs(refs: Refs, objects: Objects, runs: Collection[str]) -> list[Update]:
    """Return the updates that delete the keys of removed runs."""
    return (
        [Update(ref, "", oid) for ref, oid, run in _everything(refs, objects) if run in runs]
        if runs
        else []
    )


def forget_orphans(refs: Refs, objects: Objects, runs: Callable[[], Collection[str]]) -> None:
    held = _everything(refs, objects)
    there = set(runs()) if held else set()
    for ref, oid, run in held:
        if run is not None and run not in there:
            try:
                refs.update([Update(ref_names.RUNS + run, "", ""), Update(ref, "", oid)])
            except RefMoved:
                continue  # the run, or another one with the key, was just started


def _everything(refs: Refs, objects: Objects) -> list[tuple[str, str, str | None]]:
    """Return ref, oid and run of each key; None for the run of an unreadable one."""
    named = list(refs.each(ref_names.KEYS))
    held: list[tuple[str, str, str | None]] = []
    for (ref, oid), found in zip(named, objects.read([oid for _, oid in named]), strict=True):
        try:
            held.append((ref, oid, run_in(found, ref)))
        except InvalidCheckpoint:
            held.append((ref, oid, None))
    return held


def _exists(key: str, run: str) -> RunExists:
    return RunExists(
        f"the run with the key {key!r} exists: {run}",
        run,
        hint=f"go on with it: git ckpt resume {run}",
    )


def _cure(ref: str) -> str:
    return f"look at it: git cat-file -p {shell_word(ref)}; to give the key up: git update-ref -d {shell_word(ref)}"
