"""The tables of a checkpoint's document, and the values that stand in several of them. Each error names ref and key."""

from __future__ import annotations

from collections.abc import Iterator

from gitckpt.model import ids
from gitckpt.model.checkpoint import Attempt, Imported, Omitted, Pipeline, Progress, Submodule, Suspect, Worktree
from gitckpt.model.readers.table import TableReader, shown


def identity(take: TableReader, key: str, text: str) -> str:
    """Returns the id of a checkpoint that stands in a key."""
    if not ids.is_id(text):
        raise take.invalid(key, f"must be a UUID version 4 in lower case, not {shown(text)}")
    return text


def optional_identity(take: TableReader, key: str) -> str | None:
    """Returns the id of a checkpoint in a key that may be absent."""
    text = take.optional(key, str)
    return None if text is None else identity(take, key, text)


def line(take: TableReader, key: str, text: str) -> str:
    """Returns a text that is not empty."""
    if not text.strip():
        raise take.invalid(key, "empty")
    return text


def count(take: TableReader, key: str, least: int) -> int | None:
    """Returns a number that is not below the least one, or None."""
    value = take.optional(key, int)
    if value is not None and value < least:
        raise take.invalid(key, f"must be {least} or more, not {shown(value)}")
    return value


def git_sha(take: TableReader, text: str) -> str:
    """Returns an oid, or "" for none."""
    if text and not ids.is_oid(text):
        raise take.invalid("git_sha", f"must be a full object id or empty, not {shown(text)}")
    return text


def _optional_oid(take: TableReader, key: str) -> str | None:
    """Returns an oid in a key that may be absent."""
    text = take.optional(key, str)
    if text is not None and not ids.is_oid(text):
        raise take.invalid(key, f"must be a full object id, not {shown(text)}")
    return text


def _tables(take: TableReader, key: str) -> Iterator[TableReader]:
    """Yields a reader for each table of an array in the table `worktree`."""
    for i, entry in enumerate(take.optional(key, list) or []):
        if type(entry) is not dict:
            raise take.invalid(f"{key}[{i}]", f"must be a table, not {shown(entry)}")
        yield TableReader(entry, take.source, f"worktree.{key}[{i}].")


def worktree(take: TableReader) -> Worktree:
    """Returns the table `[worktree]`."""
    tree = _optional_oid(take, "tree")
    omitted = [
        Omitted(
            inner.required("path", str),
            inner.required("reason", str),
            count(inner, "size", 0),
            _optional_oid(inner, "oid"),
            inner.optional("dirty", bool),
            unknown=inner.rest,
        )
        for inner in _tables(take, "omitted")
    ]
    submodules = [
        Submodule(
            inner.required("path", str),
            identity(inner, "checkpoint", inner.required("checkpoint", str)),
            git_sha(inner, inner.required("git_sha", str)),
            inner.required("dirty", bool),
            unknown=inner.rest,
        )
        for inner in _tables(take, "submodules")
    ]
    suspects = [
        Suspect(
            inner.required("path", str),
            inner.required("rule", str),
            count(inner, "line", 1) or 1,
            inner.required("digest", str),
            unknown=inner.rest,
        )
        for inner in _tables(take, "suspects")
    ]
    return Worktree(
        dirty=take.required("dirty", bool),
        tree=tree,
        operation=take.optional("operation", str),
        operation_commit=_optional_oid(take, "operation_commit"),
        omitted=tuple(omitted),
        submodules=tuple(submodules),
        converted=take.texts("converted"),
        suspects=tuple(suspects),
        degraded=take.optional("degraded", str),
        unknown=take.rest,
    )


def progress(take: TableReader) -> Progress:
    """Returns the table `[progress]`."""
    return Progress(
        current_phase=count(take, "current_phase", 0),
        total_phases=count(take, "total_phases", 0),
        current_task=take.optional("current_task", str),
        tasks_completed=count(take, "tasks_completed", 0),
        tasks_total=count(take, "tasks_total", 0),
        unknown=take.rest,
    )


def imported(take: TableReader) -> Imported:
    """Returns the table `[imported]`."""
    original = take.required("original", str)
    if not ids.is_oid(original):
        raise take.invalid("original", f"must be a full object id, not {shown(original)}")
    at = take.instant("at")
    if at is None:
        raise take.invalid("at", "missing")
    return Imported(take.required("path", str), original, at, take.optional("untrusted", bool), unknown=take.rest)


def pipeline(take: TableReader) -> Pipeline:
    """Returns the table `[pipeline]`."""
    completed = take.map("completed")
    for phase, checkpoint in completed.items():
        identity(take, f"completed.{phase}", checkpoint)
    return Pipeline(
        name=take.optional("name", str),
        phases=take.texts("phases"),
        completed=completed,
        autonomy=take.optional("autonomy", str),
        deadline=take.instant("deadline"),
        definition=take.map("definition"),
        inputs=take.map("inputs"),
        contents=take.map("contents"),
        unknown=take.rest,
    )


def attempt(take: TableReader) -> Attempt:
    """Returns the table `[attempt]`."""
    return Attempt(
        phase=line(take, "phase", take.required("phase", str)),
        number=count(take, "number", 1) or 1,
        ended=take.optional("ended", str),
        began=optional_identity(take, "began"),
        failures=count(take, "failures", 0) or 0,
        recoveries=count(take, "recoveries", 0) or 0,
        retry_at=take.instant("retry_at"),
        exit_code=take.optional("exit_code", int),
        seconds=take.optional("seconds", float),
        output=take.optional("output", str),
        result=take.optional("result", str),
        inputs=take.map("inputs"),
        unknown=take.rest,
    )
