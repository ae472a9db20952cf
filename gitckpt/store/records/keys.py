"""Store the keys of runs: a second start with the same key finds the run."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection

from gitckpt.git.objects.encoding import object_id
from gitckpt.git.refs import RefMoved, Refs, RefUpdate
from gitckpt.model import ids, toml
from gitckpt.model.arguments import shell_quoted
from gitckpt.model.errors import InvalidCheckpoint, RunExists, UsageError
from gitckpt.model.skip_invalid import read_or_raise_invalid
from gitckpt.model.table import parse_record
from gitckpt.store.records import ref_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from gitckpt.git.objects.writer import ObjectDatabase

    Exists: TypeAlias = Callable[[str], bool]  # whether a run exists

MAX_LENGTH = 1000  # in characters


def name_key_ref(key: str) -> str:
    """Return the ref of a key: it contains a digest, as some file systems ignore case."""
    if not isinstance(key, str) or not key.strip() or len(key) > MAX_LENGTH:
        hint = f"give a text of 1 to {MAX_LENGTH} characters, such as nightly-2026-11-22"
        raise UsageError(f"{key!r:.60} is not a valid key", hint=hint)
    try:
        return ref_names.KEYS + hashlib.sha256(key.encode()).hexdigest()
    except UnicodeEncodeError:
        hint = "give a text that UTF-8 can encode"
        raise UsageError(f"the key {key!r:.60} contains a lone surrogate", hint=hint) from None


def render_key_document(key: str, run: str) -> bytes:
    return toml.dumps({"version": 1, "key": key, "run": run}).encode()


def parse_run(content: tuple[str, bytes] | None, ref: str) -> str:
    return read_or_raise_invalid(ref, lambda: _parse_key_document(content, ref))


def _parse_key_document(content: tuple[str, bytes] | None, ref: str) -> str:
    blob = content[1] if content is not None and content[0] == "blob" else b""
    hint = f"see the document: git cat-file -p {shell_quoted(ref)}; "
    hint += f"delete the key: git update-ref -d {shell_quoted(ref)}"
    version, key, run = map(parse_record(blob, ref, "key", hint).get, ("version", "key", "run"))
    is_valid_run = type(version) is int and isinstance(run, str) and ids.is_run_id(run)
    if not is_valid_run or not isinstance(key, str):
        raise InvalidCheckpoint(ref, "", "does not point to the document of a key", hint=hint)
    with contextlib.suppress(UsageError):  # blank or too long: not a valid key
        if name_key_ref(key) == ref:
            return str(run)
    raise InvalidCheckpoint(ref, "key", "is not the key that the ref is named after", hint=hint)


class KeyClaim:
    def __init__(
        self, key: str, refs: Refs, objects: ObjectDatabase, object_format: str, exists: Exists
    ) -> None:
        self._key, self._ref = key, name_key_ref(key)
        self._refs, self._objects, self._format = refs, objects, object_format
        self._exists = exists

    def read_run_and_oid(self) -> tuple[str, str] | None:
        """Return the key's run, even if it is removed, and the oid of the key's document."""
        oid = self._refs.read_ref(self._ref)
        return None if oid is None else (parse_run(next(self._objects.read([oid])), self._ref), oid)

    def existing_run(self) -> str | None:
        run_and_oid = self.read_run_and_oid()
        return run_and_oid[0] if run_and_oid is not None and self._exists(run_and_oid[0]) else None

    def require_key_unused(self) -> None:
        if (run := self.existing_run()) is not None:
            problem = f"the run with the key {self._key!r} exists: {run}"
            raise RunExists(problem, run, hint=f"continue that run: git ckpt resume {run}")

    def make_key_updates(self, run: str) -> list[RefUpdate]:
        # In the transaction that starts the run: a kill never leaves a run without its key.
        self.require_key_unused()
        stored = self.read_run_and_oid()
        key_document = render_key_document(self._key, run)
        self._objects.write([("blob", key_document)])
        new_oid = object_id("blob", key_document, self._format)
        if stored is None:
            return [RefUpdate(self._ref, new_oid, "")]
        # If another process is starting that run, this update waits for the head, then fails.
        absence_checks = [RefUpdate(ref_names.RUNS + stored[0], "", "")] if stored[0] != run else []
        return [*absence_checks, RefUpdate(self._ref, new_oid, stored[1])]


def list_key_deletions(
    refs: Refs, objects: ObjectDatabase, runs: Collection[str]
) -> list[RefUpdate]:
    key_rows = _list_keys(refs, objects) if runs else []
    return [RefUpdate(ref, "", oid) for ref, oid, run in key_rows if run in runs]


def delete_orphan_keys(
    refs: Refs, objects: ObjectDatabase, runs: Callable[[], Collection[str]]
) -> None:
    key_rows = _list_keys(refs, objects)
    existing_runs = set(runs()) if key_rows else set()
    for ref, oid, run in key_rows:
        if run is not None and run not in existing_runs:
            try:
                absence_check = RefUpdate(ref_names.RUNS + run, "", "")
                refs.apply_updates([absence_check, RefUpdate(ref, "", oid)])
            except RefMoved:
                continue  # the run, or another one with the key, was just started


def _list_keys(refs: Refs, objects: ObjectDatabase) -> list[tuple[str, str, str | None]]:
    refs_of_keys = list(refs.iterate_refs(ref_names.KEYS))
    key_rows: list[tuple[str, str, str | None]] = []
    documents = objects.read([oid for _, oid in refs_of_keys])
    for (ref, oid), document in zip(refs_of_keys, documents, strict=True):
        try:
            key_rows.append((ref, oid, parse_run(document, ref)))
        except InvalidCheckpoint:
            key_rows.append((ref, oid, None))
    return key_rows
