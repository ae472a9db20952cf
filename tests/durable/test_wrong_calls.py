"""Invalid arguments of every public call raise a `UsageError` and do nothing.

The error names the argument.
"""

# mypy: disable-error-code="arg-type,call-arg,call-overload,dict-item,assignment,comparison-overlap"

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitckpt import (
    Exporter,
    Importer,
    Limits,
    Listener,
    PhaseOptions,
    Pipelines,
    Policy,
    Progress,
    Query,
    Retries,
    Run,
    StepReport,
    Steps,
    Store,
    UsageError,
    gauges,
)
from tests.conftest import Checkout


def saved(store: Store) -> str:
    return store.list()[0].id


def within(call: Callable[[Run], object]) -> Callable[[Any], object]:
    """Return a call that gets a run with a driver."""

    def made(store: Any) -> None:
        with Run.start(store, "add-login", adapter="plumbing") as run:
            run.pause()
            call(run)

    return made


CALLS: dict[str, tuple[Callable[[Any], object], str]] = {
    "Store.open": (lambda _: Store.open(None), "path: must be a path, not None"),
    "Store.open bytes": (lambda _: Store.open(b"."), "path: must be a path, not b'.'"),
    "Store.open zero": (
        lambda _: Store.open("a\0"),
        r"path: must be a path without a NUL byte, not 'a\x00'",
    ),
    "Store.open adapter": (lambda _: Store.open(adapter=3), "adapter: must be a string, not 3"),
    "Store.open listener": (
        lambda _: Store.open(listener=print),
        f"listener: must be a Listener, not {print!r}",
    ),
    "Listener": (lambda _: Listener(3), "tell: must be a function, not 3"),
    "file": (lambda store: store.file(saved(store), 3), "path: must be a path, not 3"),
    "diff_commit": (
        lambda store: store.diff_commit(saved(store), paths="a"),
        "paths: must be a list of paths, not 'a'",
    ),
    "preset": (lambda _: Pipelines.preset([3]), "name: must be a string, not [3]"),
    "restore": (
        lambda store: store.restore(saved(store), 3),
        "paths: must be a list of paths, not 3",
    ),
    "restore one": (
        lambda store: store.restore(saved(store), ["a", 3]),
        "paths[1]: must be a path, not 3",
    ),
    "restore announce": (
        lambda store: store.restore(saved(store), announce=3),
        "announce: must be a function, not 3",
    ),
    "undo": (lambda store: store.undo(announce=3), "announce: must be a function, not 3"),
    "redo": (lambda store: store.redo(announce=3), "announce: must be a function, not 3"),
    "diff": (lambda store: store.diff(saved(store), paths=[3]), "paths[0]: must be a path, not 3"),
    "diff zero": (
        lambda store: store.diff(saved(store), paths=[b"\0"]),
        r"paths[0]: must be a path without a NUL byte, not b'\x00'",
    ),
    "restore surrogate": (
        lambda store: store.restore(saved(store), ["\ud800"]),
        r"paths[0]: must be a path that can be encoded, not '\ud800'",
    ),
    "file surrogate": (
        lambda store: store.file(saved(store), "\ud800"),
        r"path: must be a path that can be encoded, not '\ud800'",
    ),
    "resume surrogate": (
        lambda store: store.resume(saved(store), "\ud800"),
        r"directory: must be a path that can be encoded, not '\ud800'",
    ),
    "settle surrogate": (
        lambda store: store.settle("\ud800"),
        r"what: must be a path that can be encoded, not '\ud800'",
    ),
    "diff options": (
        lambda store: store.diff(saved(store), options=["\0"]),
        r"options[0]: must be a path without a NUL byte, not '\x00'",
    ),
    "an empty id": (
        lambda store: store.record("plan", id=""),
        "id: must be a UUID version 4 in lower case, not ''",
    ),
    "changed_files": (
        lambda store: store.changed_files(None),
        "entries: must be a list of entries, not None",
    ),
    "changed_files one": (
        lambda store: store.changed_files(["a"]),
        "entries[0]: must be a CheckpointInfo, not 'a'",
    ),
    "changed_files text": (
        lambda store: store.changed_files("a"),
        "entries: must be a list with each item a CheckpointInfo, not 'a'",
    ),
    "allow": (
        lambda store: store.allow(None),
        "loosened: must be what Store.loosened returned, not None",
    ),
    "settle": (lambda store: store.settle(3), "what: must be a string, not 3"),
    "save": (lambda store: store.save("p", limits=3), "limits: must be a Limits, not 3"),
    "capture": (lambda store: store.capture(3), "limits: must be a Limits, not 3"),
    "resume": (lambda store: store.resume(saved(store), 3), "directory: must be a path, not 3"),
    "expire": (lambda store: store.expire(progress=3), "progress: must be a function, not 3"),
    "verify": (lambda store: store.verify(progress=3), "progress: must be a function, not 3"),
    "Run.start store": (lambda _: Run.start(3, "a"), "store: must be a Store, not 3"),
    "Run.start base": (lambda store: Run.start(store, "a", base=3), "rev: must be a string, not 3"),
    "Run.resume": (lambda _: Run.resume(3, "a"), "store: must be a Store, not 3"),
    "Run.fork": (lambda _: Run.fork(3, "a"), "store: must be a Store, not 3"),
    "wait": (within(lambda run: run.wait("a")), "seconds: must be a number of seconds, not 'a'"),
    "run.redo": (within(lambda run: run.redo([3])), "name: must be a string, not [3]"),
    "run.redo record": (
        within(lambda run: run.redo(3, record=True)),
        "name: must be a string, not 3",
    ),
    "run.restart": (within(lambda run: run.restart([3])), "name: must be a string, not [3]"),
    "Pipelines": (lambda _: Pipelines(3), "store: must be a Store, not 3"),
    "Observer": (lambda store: Pipelines(store, 3), "observer: must be an Observer, not 3"),
    "Pipelines.run": (lambda store: Pipelines(store).run(3), "name: must be a string, not 3"),
    "base": (lambda store: Pipelines(store).run("ci", base=3), "rev: must be a string, not 3"),
    "timeout": (
        lambda store: Pipelines(store).run("ci", timeout="1h"),
        "timeout: must be a whole number, not '1h'",
    ),
    "autonomy": (
        lambda store: Pipelines(store).run("ci", autonomy=3),
        "autonomy: must be a string, not 3",
    ),
    "holder": (
        lambda store: Pipelines(store).run("ci", holder=3),
        "holder: must be a string, not 3",
    ),
    "a slip": (lambda store: Pipelines(store).run("ci", timout=3), "there is no argument 'timout'"),
    "preview": (
        lambda store: Pipelines(store).preview("loop", 3),
        "inputs: must be a map of names to values, not 3",
    ),
    "an input": (
        lambda store: Pipelines(store).preview("loop", {"plan": 3}),
        "inputs['plan']: must be a string, not 3",
    ),
    "Pipelines.resume": (lambda store: Pipelines(store).resume(3), "3 is not a run id"),
    "phase": (
        lambda store: Pipelines(store).resume("a", phase=3),
        "phase: must be a string, not 3",
    ),
    "rewind": (
        lambda store: Pipelines(store).resume("a", rewind="b"),
        "rewind: must be a Checkpoint, not 'b'",
    ),
    "inputs": (
        lambda store: Pipelines(store).resume("a", inputs=None),
        "inputs: must be a map of names to values, not None",
    ),
    "refactor": (lambda store: Pipelines(store).refactor("a", 3), "task: must be a string, not 3"),
    "Steps": (lambda _: Steps(3), "store: must be a Store, not 3"),
    "Steps track": (lambda store: Steps(store, track=3), "track: must be a string, not 3"),
    "Steps run": (lambda store: Steps(store, run=3), "run: must be a string, not 3"),
    "report": (
        lambda store: Steps(store, track="a").report("PLAN"),
        "said: must be a StepReport, not 'PLAN'",
    ),
    "next": (lambda store: Steps(store, track="a").next(plan=3), "plan: must be a string, not 3"),
    "graph": (
        lambda store: Steps(store, track="a").report(StepReport("start", "PLAN"), graph=3),
        "graph: must be a string, not 3",
    ),
    "Importer": (lambda _: Importer(3), "store: must be a Store, not 3"),
    "Importer format": (
        lambda store: Importer(store, format=[3]),
        "format: must be a string, not [3]",
    ),
    "Importer phases": (
        lambda store: Importer(store, phases=[3]),
        "phases: must be a string, not [3]",
    ),
    "take": (lambda store: Importer(store).take(3), "paths: must be a list of paths, not 3"),
    "take one": (
        lambda store: Importer(store).take("a.json"),
        "paths: must be a list of paths, not 'a.json'",
    ),
    "Exporter": (lambda _: Exporter(3), "store: must be a Store, not 3"),
    "files": (
        lambda store: Exporter(store).files("latest", [3]),
        "format: must be a string, not [3]",
    ),
    "write": (lambda store: Exporter(store).write(3, None), "path: must be a path, not 3"),
    "write what": (
        lambda store: Exporter(store).write("a", None),
        "exported: must be what Exporter.files returned, not None",
    ),
    "gauges": (lambda _: gauges(3), "state: must be a map of names to values, not 3"),
    "gauges progress": (lambda _: gauges({}, 3), "progress: must be a Progress, not 3"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("call", "said"), CALLS.values(), ids=CALLS)
def test_a_call_that_cannot_be_meant_is_refused(
    plain: Store,
    main_checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[Store], object],
    said: str,
) -> None:
    monkeypatch.chdir(main_checkout.path)
    main_checkout.write(
        "gitckpt.toml", '[pipelines.ci]\nphases = [{ name = "one", run = "true" }]\n'
    )
    plain.save("plan")
    with pytest.raises(UsageError) as refused:
        call(plain)
    assert refused.value.message == said
    assert plain.problems() == []
    assert [info.label for info in plain.runs() if info.label != "run-started"] == []


VALUES: dict[str, tuple[Callable[[], object], str]] = {
    "secrets": (lambda: Limits(secrets=3), "secrets: must be a list of strings, not 3"),
    "a secret": (
        lambda: Limits(secrets="*.key"),
        "secrets: must be a list of strings, not '*.key'",
    ),
    "include": (lambda: Limits(include=(3,)), "include[0]: must be a string, not 3"),
    "timeout": (
        lambda: Limits(timeout="a"),
        "timeout: must be a number of seconds from 0 on, not 'a'",
    ),
    "size": (
        lambda: Limits(max_file_size=-1),
        "max_file_size: must be a whole number from 0 on, not -1",
    ),
    "submodules": (
        lambda: Limits(submodules="all"),
        "submodules: must be True or False, not 'all'",
    ),
    "retry_on": (
        lambda: PhaseOptions(retry_on=3),
        "retry_on: must be a tuple of exceptions, not 3",
    ),
    "one of retry_on": (
        lambda: PhaseOptions(retry_on=(OSError, int)),
        "retry_on: must be a tuple of exceptions, not (<class 'OSError'>, <class 'int'>)",
    ),
    "on": (lambda: Retries(on=3), "on: must be a list with each item an exit code, not 3"),
    "backoff": (lambda: Retries(backoff="2"), "backoff: must be a number from 0 on, not '2'"),
    "a negative count": (
        lambda: Progress(tasks_total=-1),
        "tasks_total: must be a whole number from 0 on, not -1",
    ),
    "no count": (lambda: Progress(tasks_total="a"), "tasks_total: must be a whole number, not 'a'"),
    "no task": (lambda: Progress(current_task=3), "current_task: must be a string, not 3"),
    "no action": (lambda: StepReport(3, 4), "action: must be a string, not 3"),
    "no step": (lambda: StepReport("start", 4), "step: must be a string, not 4"),
    "another action": (
        lambda: StepReport("begin", "PLAN"),
        "'begin' is not an action of a step",
    ),
    "outputs": (
        lambda: StepReport("start", "PLAN", outputs="a"),
        "outputs: must be a list of strings, not 'a'",
    ),
    "total": (
        lambda: StepReport("start", "PLAN", tasks_total=-1),
        "tasks_total: must be a whole number from 0 on, not -1",
    ),
    "force": (
        lambda: StepReport("start", "PLAN", force="no"),
        "force: must be True or False, not 'no'",
    ),
    "everything": (lambda: Policy(everything="no"), "everything: must be True or False, not 'no'"),
    "in_run": (lambda: Query(in_run="no"), "in_run: must be True or False, not 'no'"),
    "by_agent": (lambda: Query(by_agent=1), "by_agent: must be True or False, not 1"),
    "safety": (lambda: Query(safety=None), "safety: must be True or False, not None"),
    "an expression": (
        lambda: Query(grep="a("),
        "'a(' is no regular expression: missing ), unterminated subpattern at position 1",
    ),
    "surrogate": (
        lambda: Query(phase="\ud800"),
        r"phase: must be a string without lone surrogates, not '\ud800'",
    ),
    "an id": (
        lambda: Query(ids=["\ud800"]),
        r"ids: must be a string without lone surrogates, not '\ud800'",
    ),
    "a pattern": (
        lambda: Limits(include=["a\0"]),
        r"include[0]: must be a path without a NUL byte, not 'a\x00'",
    ),
    "unknown": (lambda: Progress(unknown=3), "unknown: must be a map of names to values, not 3"),
    "values": (
        lambda: StepReport("start", "PLAN", values=3),
        "values: must be a map of names to values, not 3",
    ),
}


@pytest.mark.parametrize(("make", "said"), VALUES.values(), ids=VALUES)
def test_a_value_is_looked_at_when_it_is_made(make: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert refused.value.message == said


def test_numbers_beyond_64_bits_are_as_much_as_there_is(plain: Store) -> None:
    made = plain.record("plan")
    assert [entry.id for entry in plain.list(Query(until=2**70, limit=2**70, skip=0))] == [made.id]
    assert (plain.list(Query(since=2**70)), plain.list(Query(limit=1, skip=2**70))) == ([], [])
    assert (
        plain.expire(Policy(older_than=2**70, keep_last=2**70, safety_keep_last=2**70)).total == 1
    )


def test_lists_do_for_tuples(plain: Store, main_checkout: Checkout) -> None:
    main_checkout.write("server.key", "secret\n")
    kept = plain.save("keys", limits=Limits(secrets=[], include=["*.log"]))
    assert kept.worktree is not None
    assert kept.worktree.omitted == ()
    assert StepReport("start", "PLAN", outputs=["a"]).outputs == ("a",)
    assert PhaseOptions(retry_on=OSError).retry_on is OSError


def test_paths_of_imports_may_be_paths(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(main_checkout.path)
    assert [each.status for each in Importer(plain).take([Path("README")])] == ["failed"]
