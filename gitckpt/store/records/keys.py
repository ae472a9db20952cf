"""Keys that callers choose for runs, so that a repeated start finds the run.

A key is a blob at `refs/ckpt/keys/<SHA-256 of the key>` (docs/format.md). It is written in the
transaction that starts its run, before the run's refs. A kill can leave a key without a run, which
the next start takes over, but never a run without its key.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, Refs, Update
from gitckpt.model import ids, toml
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import InvalidCheckpoint, RunExists, UsageError
from gitckpt.model.skip_invalid import fenced
from gitckpt.model.table import parse_record
from gitckpt.store.records import ref_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from gitckpt.git.objects.writer import Objects

    Exists: TypeAlias = Callable[[str], bool]  # whether a run exists

MAX_LENGTH = 1000  # in characters


def ref_of(key: str) -> str:
    """Return the ref of a key; it is a digest, since some file systems ignore case."""
    if not isinstance(key, str) or not key.strip() or len(key) > MAX_LENGTH:
        hint = f"give a text of 1 to {MAX_LENGTH} characters, such as nightly-2026-11-22"
        raise UsageError(f"{key!r:.60} is not a key", hint=hint)
    try:
        return ref_names.KEYS + hashlib.sha256(key.encode()).hexdigest()
    except UnicodeEncodeError:
        hint = "give a text that UTF-8 can encode"
        raise UsageError(f"{key!r:.60} holds a lone surrogate", hint=hint) from None


def render(key: str, run: str) -> bytes:
    return toml.dumps({"version": 1, "key": key, "run": run}).encode()


def run_in(content: tuple[str, bytes] | None, ref: str) -> str:
    """Return the run of a key, from kind and content of its object."""
    return fenced(ref, lambda: _run_in(content, ref))


def _run_in(content: tuple[str, bytes] | None, ref: str) -> str:
    data = content[1] if content is not None and content[0] == "blob" else b""
    cure = f"look at it: git cat-file -p {shell_word(ref)}; "
    cure += f"to give up the key: git update-ref -d {shell_word(ref)}"
    record = parse_record(data, ref, "key", cure)
    version, key, run = map(record.get, ("version", "key", "run"))
    is_valid = type(version) is int and isinstance(run, str) and ids.is_run_id(run)
    if not is_valid or not isinstance(key, str):
        raise InvalidCheckpoint(ref, "", "does not point to a key", hint=cure)
    with contextlib.suppress(UsageError):  # blank or too long: not a valid key
        if ref_of(key) == ref:
            return str(run)
    raise InvalidCheckpoint(ref, "key", "is not the one that the ref is named after", hint=cure)


class Claim:
    """Gives a key to a new run, once."""

    def __init__(
        self, key: str, refs: Refs, objects: Objects, object_format: str, exists: Exists
    ) -> None:
        self._key = key
        self._ref = ref_of(key)
        self._refs = refs
        self._objects = objects
        self._format = object_format
        self._exists = exists

    def holder(self) -> tuple[str, str] | None:
        """Return the run that has the key, existing or not, and the oid; None if unused."""
        oid = self._refs.read(self._ref)
        return None if oid is None else (run_in(next(self._objects.read([oid])), self._ref), oid)

    def run(self) -> str | None:
        held = self.holder()
        return held[0] if held is not None and self._exists(held[0]) else None

    def require_free(self) -> None:
        run = self.run()
        if run is not None:
            problem = f"the run with the key {self._key!r} exists: {run}"
            raise RunExists(problem, run, hint=f"go on with it: git ckpt resume {run}")

    def updates(self, run: str) -> list[Update]:
        self.require_free()
        held = self.holder()
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
    keys = _list_keys(refs, objects) if runs else []
    return [Update(ref, "", oid) for ref, oid, run in keys if run in runs]


def forget_orphans(refs: Refs, objects: Objects, runs: Callable[[], Collection[str]]) -> None:
    keys = _list_keys(refs, objects)
    existing = set(runs()) if keys else set()
    for ref, oid, run in keys:
        if run is not None and run not in existing:
            try:
                refs.update([Update(ref_names.RUNS + run, "", ""), Update(ref, "", oid)])
            except RefMoved:
                continue  # the run, or another one with the key, was just started


def _list_keys(refs: Refs, objects: Objects) -> list[tuple[str, str, str | None]]:
    """Return ref, oid and run of each key; None for the run of an unreadable one."""
    named = list(refs.iterate(ref_names.KEYS))
    keys: list[tuple[str, str, str | None]] = []
    for (ref, oid), content in zip(named, objects.read([oid for _, oid in named]), strict=True):
        try:
            keys.append((ref, oid, run_in(content, ref)))
        except InvalidCheckpoint:
            keys.append((ref, oid, None))
    return keys
