"""A run belongs to one thread at a time, and refuses coroutines as work.

A call that would lose a result fails at once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gitckpt import Listener, Observer, Pipelines, Run, Store, UsageError


def test_a_second_thread_is_refused_and_nothing_is_lost(plain: Store) -> None:
    within, leave = threading.Event(), threading.Event()
    called: list[str] = []

    def slow() -> str:
        within.set()
        assert leave.wait(30)
        return "slow"

    def other() -> None:
        called.append("other")

    with Run.start(plain, "threads") as run, ThreadPoolExecutor(1) as pool:
        done = pool.submit(run.phase, "slow", slow)
        assert within.wait(30)
        calls: dict[str, Callable[[], object]] = {
            "phase": lambda: run.phase("other", other),
            "milestone": run.milestone,
            "skip": lambda: run.skip("other"),
            "redo": lambda: run.redo("slow"),
            "restart": lambda: run.restart("slow"),
            "rewind": lambda: run.rewind(run.newest),
            "state": lambda: setattr(run, "state", {}),
            "pause": run.pause,
            "finish": run.finish,
            "close": run.close,
        }
        for name, call in calls.items():
            with pytest.raises(UsageError) as refused:
                call()
            assert (
                refused.value.message
                == f"another thread uses run {run.id}: phases of a run cannot run in parallel"
            ), name
            assert (
                refused.value.hint
                == "call the phases from one thread, or start a run for each thread"
            )
        leave.set()
        assert done.result() == "slow"
        run.phase("other", other)
    assert [
        event.phase for event in plain.history(run.id).events if event.status == "complete"
    ] == ["slow", "other"]
    assert called == ["other"]


def test_a_phase_within_a_phase_is_of_the_same_thread(plain: Store) -> None:
    with Run.start(plain, "nested") as run:
        assert run.phase("outer", lambda: run.phase("inner", lambda: 1) + 1) == 2


class Service:
    async def __call__(self) -> None: ...
    async def fetch(self) -> None: ...


async def fetch() -> None: ...


async def rows() -> Any:
    yield 1


ASYNC: dict[str, tuple[Callable[..., Any], str]] = {
    "function": (fetch, "fetch"),
    "partial": (functools.partial(functools.partial(fetch)), "fetch"),
    "method": (Service().fetch, "fetch"),
    "object": (Service(), "Service"),
    "generator": (rows, "rows"),
}


@pytest.mark.parametrize(("work", "name"), ASYNC.values(), ids=ASYNC)
def test_a_coroutine_function_is_refused_before_it_is_called(
    plain: Store, work: Callable[..., Any], name: str
) -> None:
    with Run.start(plain, "async") as run:
        with pytest.raises(UsageError) as refused:
            run.phase("fetch", work)
        why = f"{name} is asynchronous, but gitckpt calls {name} without await"
        assert (
            refused.value.message
            == f"work: {why}: let another function call asyncio.run({name}(…))"
        )
        assert plain.history(run.id).events == []


def test_a_coroutine_that_comes_back_is_no_result(plain: Store) -> None:
    with Run.start(plain, "async") as run:
        with pytest.raises(UsageError, match="is asynchronous"):
            run.phase("fetch", lambda: Service().fetch())
        assert [event.status for event in plain.history(run.id).events] == ["failed"]


def test_whoever_is_told_is_not_awaited_either(plain: Store) -> None:
    class Told(Observer):
        async def ended(self, *_: object) -> None: ...  # type: ignore[override]

    with pytest.raises(UsageError, match=r"^observer\.ended: ended is asynchronous"):
        Pipelines(plain, Told())
    with pytest.raises(UsageError, match=r"^tell: fetch is asynchronous"):
        Listener(tell=fetch)  # type: ignore[arg-type]
