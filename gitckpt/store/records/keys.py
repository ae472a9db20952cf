"""Store the key that a caller chose for a run: a second start finds the run by it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, Refs, Update
from gitckpt.model import ids, toml
from gitckpt.model.arguments import shell_word
from gitckpt.model.errors import InvalidCheckpoint, RunExists, UsageError
from gitckpt.model.skip_invalid import read_safely
from gitckpt.model.table import parse_record
from gitckpt.store.records import ref_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from gitckpt.git.objects.writer import Objects

    Exists: TypeAlias = Callable[[str], bool]  # whether a run exists

MAX_LENGTH = 1000  # in characters


def ref_of(key: str) -> str:
    """Return the ref of a key, named by a digest: some file systems ignore case."""
    if not isinstance(key, str) or not key.strip() or len(key) > MAX_LENGTH:
        hint = f"give a text of 1 to {MAX_LENGTH} characters, such as nightly-2026-11-22"
        raise UsageError(f"{key!r:.60} is not a valid key", hint=hint)
    try:
        return ref_names.KEYS + hashlib.sha256(key.encode()).hexdigest()
    except UnicodeEncodeError:
        hint = "give a text that UTF-8 can encode"
        raise UsageError(f"the key {key!r:.60} contains a lone surrogate", hint=hint) from None


def render(key: str, run: str) -> bytes:
    return toml.dumps({"version": 1, "key": key, "run": run}).encode()


def run_in(content: tuple[str, bytes] | None, ref: str) -> str:
    """Parse the object (kind, content) that a key's ref points to; return the run."""
    return read_safely(ref, lambda: _run_in(content, ref))


def _run_in(content: tuple[str, bytes] | None, ref: str) -> str:
    data = content[1] if content is not None and content[0] == "blob" else b""
    hint = f"see the document: git cat-file -p {shell_word(ref)}; "
    hint += f"delete the key: git update-ref -d {shell_word(ref)}"
    version, key, run = map(parse_record(data, ref, "key", hint).get, ("version", "key", "run"))
    is_valid = type(version) is int and isinstance(run, str) and ids.is_run_id(run)
    if not is_valid or not isinstance(key, str):
        raise InvalidCheckpoint(ref, "", "does not point to the document of a key", hint=hint)
    with contextlib.suppress(UsageError):  # blank or too long: not a valid key
        if ref_of(key) == ref:
            return str(run)
    raise InvalidCheckpoint(ref, "key", "is not the key that the ref is named after", hint=hint)


class Claim:
    def __init__(
        self, key: str, refs: Refs, objects: Objects, object_format: str, exists: Exists
    ) -> None:
        self._key, self._ref = key, ref_of(key)
        self._refs, self._objects, self._format = refs, objects, object_format
        self._exists = exists

    def read(self) -> tuple[str, str] | None:
        """Return the key's run, which may be removed, and its document's oid; or None."""
        oid = self._refs.read(self._ref)
        return None if oid is None else (run_in(next(self._objects.read([oid])), self._ref), oid)

    def run(self) -> str | None:
        stored = self.read()
        return stored[0] if stored is not None and self._exists(stored[0]) else None

    def require_free(self) -> None:
        if (run := self.run()) is not None:
            problem = f"the run with the key {self._key!r} exists: {run}"
            raise RunExists(problem, run, hint=f"continue that run: git ckpt resume {run}")

    def updates(self, run: str) -> list[Update]:
        # In the transaction that starts the run: a kill never leaves a run without its key.
        self.require_free()
        stored = self.read()
        data = render(self._key, run)
        self._objects.write([("blob", data)])
        new = object_id("blob", data, self._format)
        if stored is None:
            return [Update(self._ref, new, "")]
        # If another process is starting that run, this update waits for the head, then fails.
        absent = [Update(ref_names.RUNS + stored[0], "", "")] if stored[0] != run else []
        return [*absent, Update(self._ref, new, stored[1])]


def of_runs(refs: Refs, objects: Objects, runs: Collection[str]) -> list[Update]:
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
    """Return the ref, oid and run of each key; no run if unreadable."""
    refs_of_keys = list(refs.iterate(ref_names.KEYS))
    keys: list[tuple[str, str, str | None]] = []
    contents = objects.read([oid for _, oid in refs_of_keys])
    for (ref, oid), content in zip(refs_of_keys, contents, strict=True):
        try:
            keys.append((ref, oid, run_in(content, ref)))
        except InvalidCheckpoint:
            keys.append((ref, oid, None))
    return keys
