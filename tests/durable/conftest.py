"""Fixtures and helpers that the tests of runs share."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitckpt import Attempt, Checkpoint, PhaseOptions, Query, Run, Store
from gitckpt.durable.run.attempts import USUAL, CurrentAttempt, RunSession
from gitckpt.durable.run.opener import reopen_run
from gitckpt.store.checkpoints import Checkpoints
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, Clock, Ids, repository_of
from tests.store import working

RUN = "20270115-080001-add-login"
"""The run that a first checkpoint starts at the time of the fixture `clock`."""


@pytest.fixture
def make_store(clock: Clock, ids: Ids) -> Iterator[Callable[..., Store]]:
    """Open stores with the test's clock and ids, and close them after the test."""
    stores: list[Store] = []

    def make(checkout: Checkout) -> Store:
        stores.append(
            Store(Checkpoints(repository_of(checkout), adapter="plumbing", clock=clock, new_id=ids))
        )
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(make_store: Callable[..., Store], checkout: Checkout) -> Store:
    """The store of `checkout`, which has a main and a linked worktree."""
    return make_store(checkout)


@pytest.fixture
def plain(make_store: Callable[..., Store], main_checkout: Checkout) -> Store:
    """The store of `main_checkout`."""
    return make_store(main_checkout)


@pytest.fixture
def run(store: Store) -> Iterator[Run]:
    """A run with one complete phase.

    The first start of a driver finds the files settled and waits for nothing.
    """
    with Run.start(store, "a run") as made:
        made.phase("first", lambda: None)
        made.pause()
        yield made


class Sleeper:
    """Sleep by advancing the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.slept = 0.0

    def __call__(self, seconds: float) -> None:
        self.slept += seconds
        self._clock.instant += round(seconds * 1_000_000)


@pytest.fixture
def sleeper(clock: Clock) -> Sleeper:
    """A sleep that takes no time."""
    return Sleeper(clock)


def go_on(
    store: Store,
    run: str,
    sleep: Callable[[float], None] | None = None,
    *,
    accept_changes: bool = False,
) -> Run:
    """Resume a run that waits with the given sleep."""
    opening = reopen_run(
        checkpoints_of_store(store), run, adapter="plumbing", accept_changes=accept_changes
    )
    return Run(RunSession(opening, sleep or time.sleep))


def labels(store: Store, run: str) -> list[str]:
    """Return the phase labels of a run, oldest first."""
    return [entry.label for entry in reversed(store.list(Query(run=run)))]


def checkpoints(store: Store, run: str) -> list[Checkpoint]:
    """Return the checkpoints of a run, oldest first."""
    return [store.read(entry.id) for entry in reversed(store.list(Query(run=run)))]


def require_one_line(store: Store, run: str) -> list[Checkpoint]:
    """Return the checkpoints of a run, after a check that they form one chain.

    The rest of the store must have no problems either.
    """
    found = checkpoints(store, run)
    assert [each.sequence for each in found] == list(range(1, len(found) + 1))
    assert [each.parent for each in found] == [None, *(each.id for each in found[:-1])]
    assert checkpoints_of_store(store).heads.read(run).id == found[-1].id
    assert list(store.verify().findings) == []
    return found


def git(run: Run, *words: str) -> str:
    """Call git in the worktree of a run."""
    return subprocess.run(
        ["git", *words], cwd=run.path, check=True, capture_output=True, text=True
    ).stdout.strip()


class Killed(BaseException):
    """An exception in place of SIGKILL, after which the driver records nothing."""


def die(run: Run, name: str, work: Callable[..., Any], conduct: PhaseOptions = USUAL) -> None:
    """Kill the driver of a run within a phase: the work of the phase raises `Killed`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CurrentAttempt, "_record_failure", lambda *_: None)
        with pytest.raises(Killed):
            run.phase(name, work, conduct=conduct)
    crash(run)


def crash(run: Run) -> None:
    """Leave a run like a killed driver: no record, and the lease of a dead process."""
    run._session._renewer.close()
    working.crashed(run.store, run.id)
    run._session._opening.close_stores()


def take_over(store: Store, run: str) -> None:
    """Let another process drive a run from now on."""
    leases = checkpoints_of_store(store).leases
    found = leases.read(run)
    assert found is not None
    leases.replace_lease(replace(found[1], token=found[1].token + 1, holder="somebody"), found[0])


def refuse_refs(checkout: Checkout, flag: Path) -> None:
    """Let git refuse every ref transaction while a file exists, like a full disk."""
    hook = checkout.main / ".git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        f'#!/bin/sh\n[ "$1" != prepared ] || [ ! -e "{flag}" ] || {{ echo "no space" '
        f">&2; exit 1; }}\n"
    )
    hook.chmod(0o755)


class Counted:
    """Work that counts its calls, and raises the given exceptions."""

    def __init__(self, *errors: BaseException | None, result: Any = None) -> None:
        self.errors = list(errors)
        self.result = result
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **inputs: Any) -> Any:
        self.calls.append(inputs)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return self.result


def attempt_of(store: Store, run: str, label: str) -> Attempt:
    """Return the attempt of the newest checkpoint with a label."""
    found = store.read(store.list(Query(run=run, label=label))[0].id).attempt
    assert found is not None
    return found
