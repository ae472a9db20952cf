"""Fixtures for the tests of `gitckpt.git`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gitckpt.git.objects.plumbing import open_objects
from gitckpt.git.refs import Refs
from gitckpt.git.repository import Repository, discover_repository
from tests.conftest import Checkout, repository_of

if TYPE_CHECKING:
    from gitckpt.git.objects.writer import ObjectDatabase


@pytest.fixture
def opened() -> Iterator[Callable[..., Repository]]:
    """Open repositories and close them after the test."""
    repositories: list[Repository] = []

    def open_one(checkout: Checkout | Path) -> Repository:
        repositories.append(
            discover_repository(str(checkout.path if isinstance(checkout, Checkout) else checkout))
        )
        return repositories[-1]

    yield open_one
    for repository in repositories:
        repository.close()


@pytest.fixture
def repository(main_checkout: Checkout) -> Iterator[Repository]:
    """The repository of `main_checkout`."""
    found = repository_of(main_checkout)
    yield found
    found.close()


@pytest.fixture(params=["libgit2", "plumbing"])
def adapter(request: pytest.FixtureRequest) -> str:
    """The name of an object adapter; each test runs with both."""
    name: str = request.param
    return name


@pytest.fixture
def objects(repository: Repository, adapter: str) -> Iterator[ObjectDatabase]:
    """The object store of `main_checkout`, through either adapter."""
    made = open_objects(repository, adapter)
    yield made
    made.close()


@pytest.fixture
def refs(repository: Repository) -> Iterator[Refs]:
    """The refs of `main_checkout`."""
    made = Refs(repository)
    yield made
    made.close()


@pytest.fixture
def flushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the files that git flushes; the git processes must have ended."""
    log = tmp_path / "trace"
    log.touch()
    monkeypatch.setenv("GIT_TRACE2_EVENT", str(log))

    def count() -> int:
        total = 0
        for line in log.read_text().splitlines():
            event = json.loads(line)
            if event.get("category") != "fsync":
                continue
            if event["event"] == "counter" and event["name"] == "hardware-flush":
                total += event["count"]
            elif event["event"] == "data" and event["key"] == "fsync/hardware-flush":
                total += int(event["value"])
        return total

    return count
