"""examples/saver has the methods that LangGraph calls on a checkpoint saver.

A stand-in has the names that the saver imports from LangGraph.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from gitckpt import Query, Store
from tests.conftest import Checkout

EXAMPLE = Path(__file__).resolve().parent.parent / "examples/saver/langgraph_saver.py"


class _Serde:
    """Convert a value to a type and bytes, as LangGraph's serializers do."""

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        return "json", json.dumps(value).encode()

    def loads_typed(self, typed: tuple[str, bytes]) -> Any:
        assert type(typed) is tuple
        assert typed[0] == "json"
        return json.loads(typed[1])


class _Base:
    def __init__(self, *, serde: Any = None) -> None:
        self.serde = serde or _Serde()


class _Tuple(NamedTuple):
    config: dict[str, Any]
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    parent_config: dict[str, Any] | None = None
    pending_writes: list[tuple[str, str, Any]] | None = None


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    base = ModuleType("langgraph.checkpoint.base")
    vars(base).update(
        WRITES_IDX_MAP={
            "__error__": -1,
            "__scheduled__": -2,
            "__interrupt__": -3,
            "__resume__": -4,
        },
        BaseCheckpointSaver=_Base,
        CheckpointTuple=_Tuple,
        get_checkpoint_metadata=lambda config, metadata: {**metadata, **config.get("metadata", {})},
    )
    for name, module in (
        ("langgraph", ModuleType("")),
        ("langgraph.checkpoint", ModuleType("")),
        ("langgraph.checkpoint.base", base),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("langgraph_saver", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # nothing is written beside the examples
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def store(main_checkout: Checkout) -> Iterator[Store]:
    with Store.open(main_checkout.path) as store:
        yield store


@pytest.fixture
def saver(example: ModuleType, store: Store) -> Any:
    return example.GitSaver(store)


def config(thread: str = "issue-7", ns: str = "", id: str = "") -> dict[str, Any]:  # noqa: A002 - their word
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": ns,
            **({"checkpoint_id": id} if id else {}),
        }
    }


def put(saver: Any, after: dict[str, Any], id: str, step: int, **metadata: Any) -> dict[str, Any]:  # noqa: A002
    checkpoint = {"v": 1, "id": id, "channel_values": {"log": [f"step {step}"]}}
    there: dict[str, Any] = saver.put(after, checkpoint, {"step": step, **metadata}, {})
    return there


def names(tuples: Any) -> list[str]:
    return [each.config["configurable"]["checkpoint_id"] for each in tuples]


def test_a_superstep_comes_back_with_its_files(
    saver: Any, store: Store, main_checkout: Checkout, example: ModuleType
) -> None:
    assert saver.get_tuple(config()) is None
    assert list(saver.list(config())) == []
    first = put(saver, config(), "1-a", -1, source="input")
    assert first == config(id="1-a")
    main_checkout.write("notes.md", "notes\n")
    second = put(saver, first, "1-b", 0, source="loop")
    main_checkout.write("notes.md", "ruined\n")
    with Store.open(main_checkout.path) as other:  # another process finds it
        assert example.GitSaver(other).get_tuple(config()) == (
            second,
            {"v": 1, "id": "1-b", "channel_values": {"log": ["step 0"]}},
            {"step": 0, "source": "loop"},
            first,
            [],
        )
    assert saver.get_tuple(first).parent_config is None
    assert saver.get_tuple(config(id="1-c")) is None
    (run,) = store.runs()
    assert (run.status, store.run_of("langgraph issue-7")) == ("open", run.run)
    store.restore(store.find("latest"))
    assert (main_checkout.path / "notes.md").read_text() == "notes\n"


def test_writes_of_tasks_come_back_in_the_order_of_the_tasks(saver: Any) -> None:
    first = put(saver, config(), "1-a", 0)
    saver.put_writes(first, [("log", "later")], "task-2", "~b")
    saver.put_writes(first, [("log", "sooner"), ("__interrupt__", "may I?")], "task-1", "~a")
    assert saver.get_tuple(config()).pending_writes == [
        ("task-1", "__interrupt__", "may I?"),
        ("task-1", "log", "sooner"),
        ("task-2", "log", "later"),
    ]
    saver.put_writes(first, [("log", "done again"), ("__interrupt__", "and now?")], "task-1", "~a")
    assert saver.get_tuple(config()).pending_writes[:2] == [
        ("task-1", "__interrupt__", "and now?"),
        ("task-1", "log", "sooner"),
    ]
    assert saver.get_tuple(put(saver, first, "1-b", 1)).pending_writes == []


def test_a_listing_is_newest_first_and_is_restricted(saver: Any) -> None:
    first = put(saver, config(), "1-a", 0, source="input")
    second = put(saver, first, "1-b", 1, source="loop")
    put(saver, second, "1-c", 2, source="loop")
    put(saver, config(ns="sub:1"), "1-d", 0, source="loop")
    put(saver, config("issue-8"), "1-e", 0, source="loop")
    whole = {"configurable": {"thread_id": "issue-7"}}
    assert names(saver.list(None)) == ["1-e", "1-d", "1-c", "1-b", "1-a"]
    assert names(saver.list(whole)) == ["1-d", "1-c", "1-b", "1-a"]
    assert names(saver.list(config())) == ["1-c", "1-b", "1-a"]
    assert names(saver.list(config(), filter={"source": "loop"})) == ["1-c", "1-b"]
    assert names(saver.list(config(), limit=1)) == ["1-c"]
    assert names(saver.list(config(), limit=0)) == []
    assert names(saver.list(config(), before=second)) == ["1-a"]
    assert names(saver.list(second)) == ["1-b"]
    assert names([saver.get_tuple(whole)]) == ["1-c"]
    assert names([saver.get_tuple(config(ns="sub:1"))]) == ["1-d"]


def test_a_thread_is_one_run_whoever_is_the_first(saver: Any, store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda number: saver.put_writes(
                    config(id="1-a"), [("log", number)], f"task-{number}"
                ),
                range(4),
            )
        )
    put(saver, config(), "1-a", 0)
    assert len(store.runs()) == 1
    assert [value for _, _, value in saver.get_tuple(config()).pending_writes] == [0, 1, 2, 3]


def test_a_thread_is_deleted(saver: Any, store: Store) -> None:
    saver.put_writes(put(saver, config(), "1-a", 0), [("log", 1)], "task")
    put(saver, config("issue-8"), "1-b", 0)
    saver.delete_thread("issue-7")
    saver.delete_thread("issue-7")
    assert saver.get_tuple(config()) is None
    assert names(saver.list(None)) == ["1-b"]
    assert len(store.list(Query())) == 1
    put(saver, config(), "1-c", 0)
    assert names(saver.list(config())) == ["1-c"]


def test_all_of_it_can_be_awaited(saver: Any) -> None:
    async def use() -> tuple[Any, list[str], Any]:
        checkpoint = {"v": 1, "id": "1-a", "channel_values": {}}
        there = await saver.aput(config(), checkpoint, {"step": 0}, {})
        await saver.aput_writes(there, [("log", 1)], "task", task_path="~a")
        found, listed = (
            await saver.aget_tuple(config()),
            names([each async for each in saver.alist(config(), limit=5)]),
        )
        await saver.adelete_thread("issue-7")
        return found.pending_writes, listed, await saver.aget_tuple(config())

    assert asyncio.run(use()) == ([("task", "log", 1)], ["1-a"], None)
