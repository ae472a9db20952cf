"""A project, a real client in a HOME of its own, and a server of models, for the tests that drive clients."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Checkout
from tests.system.clients.client_kit import CLIENTS_VARIABLE, KITS, Kit, installed
from tests.system.clients.model_server import ModelServer

LIMIT = 150.0
"""In seconds: how long a command of gitckpt may take before its test has failed."""

_KEPT = ("PATH", "LANG", "TZ", "TMPDIR")


class Bench:
    """Where a client is driven.

    Attributes:
        kit: the client.
        models: the server it talks to.
        checkout: the project.
        home: its home directory.
        env: the whole environment of gitckpt, and so of the client.
    """

    def __init__(self, kit: Kit, models: ModelServer, checkout: Checkout, home: Path) -> None:
        self.kit = kit
        self.models = models
        self.checkout = checkout
        self.home = home
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.startswith("GIT_")
        }
        places = [str(Path(sys.executable).parent), installed()[kit.name], kept["PATH"]]
        # Whatever would go anywhere else than to the server of models meets a proxy that is not there.
        nowhere = dict.fromkeys(
            ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"
        )
        own = {
            "HOME": str(home),
            "TERM": "dumb",
            "PATH": os.pathsep.join(places),
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        self.env = kept | nowhere | own | kit.settle(home, models.url)

    def begin(self, *words: str, **env: str) -> subprocess.Popen[str]:
        """Starts `git-ckpt` with these words, in a process group of its own."""
        return subprocess.Popen(
            ["git-ckpt", *words],
            cwd=self.checkout.path,
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, *words: str, code: int = 0, **env: str) -> tuple[str, str]:
        """Runs `git-ckpt`, and returns what it prints on stdout and stderr. Fails on another exit code."""
        child = self.begin(*words, **env)
        try:
            out, err = child.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            pytest.fail(f"git ckpt {' '.join(words)} did not end:\n{out}\n{err}")
        assert child.returncode == code, (
            f"git ckpt {' '.join(words)}: exit {child.returncode}\n{out}\n{err}"
        )
        return out, err

    def wait_for_hold(self, driver: subprocess.Popen[str]) -> None:
        """Waits until the client waits for an answer that is held back. Fails if its driver ends before."""
        until = time.monotonic() + LIMIT
        while not self.models.held.wait(0.1):
            if driver.poll() is not None or time.monotonic() > until:
                driver.kill()
                pytest.fail("\n".join(driver.communicate()))

    def wait_for_end(self) -> None:
        """Waits until no process of the client is left."""
        until = time.monotonic() + LIMIT
        while (left := self.agents()) and time.monotonic() < until:
            time.sleep(0.05)
        assert not left, "the client outlives its driver"

    def state(self, run: str) -> dict[str, Any]:
        """Returns the state in the newest checkpoint of a run."""
        out, _ = self.call("show", run, "--json")
        found: dict[str, Any] = json.loads(out)["state"]
        return found

    def agents(self) -> list[int]:
        """Returns the processes that were started with the HOME of the client."""
        mark = f"HOME={self.home}".encode()
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                environment = (place / "environ").read_bytes().split(b"\0")
                words = (place / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in environment and self.kit.name.encode() in words:
                found.append(int(place.name))
        return found


@pytest.fixture(params=KITS, ids=lambda kit: kit.name)
def kit(request: pytest.FixtureRequest) -> Kit:
    """Each client that is installed."""
    found: Kit = request.param
    if found.name not in installed():
        pytest.skip(f"{found.name} is not installed below {CLIENTS_VARIABLE}: ./dev clients")
    return found


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """A server of models."""
    with ModelServer() as server:
        yield server


@pytest.fixture
def desk(kit: Kit, models: ModelServer, main_checkout: Checkout, sealed: Path) -> Bench:
    """A project with a plan, and the client."""
    main_checkout.commit("a plan", **{"plan.md": "# Plan\n\n- [ ] two.txt is there.\n"})
    return Bench(kit, models, main_checkout, sealed)


def quoted(path: Path) -> str:
    """Returns a path as a word of a shell."""
    return shlex.quote(str(path))
