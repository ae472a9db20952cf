"""Provide a project, a real client with its own HOME, and a model server."""

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
"""Seconds that a command of gitckpt may take before its test fails."""

_KEPT = ("PATH", "LANG", "TZ", "TMPDIR")


class Bench:
    """A project in which a client runs.

    Attributes:
        kit: the client.
        models: the server it talks to.
        checkout: the project.
        home: its home directory.
        env: the environment of gitckpt and the client.
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
        # A call to any other address than the model server's fails at a proxy that does not exist.
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
        """Start `git-ckpt` with these words, in its own process group."""
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
        """Run `git-ckpt`; return its stdout and stderr, and fail on another exit code."""
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
        """Wait until the model server holds an answer; fail if the driver ends before."""
        until = time.monotonic() + LIMIT
        while not self.models.held.wait(0.1):
            if driver.poll() is not None or time.monotonic() > until:
                driver.kill()
                pytest.fail("\n".join(driver.communicate()))

    def wait_for_end(self) -> None:
        """Wait until no process of the client is alive."""
        until = time.monotonic() + LIMIT
        while (left := self.agents()) and time.monotonic() < until:
            time.sleep(0.05)
        assert not left, "the client outlives its driver"

    def state(self, run: str) -> dict[str, Any]:
        """Return the state in the newest checkpoint of a run."""
        out, _ = self.call("show", run, "--json")
        found: dict[str, Any] = json.loads(out)["state"]
        return found

    def agents(self) -> list[int]:
        """Return the ids of processes that have the client's HOME."""
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
    """Each installed client."""
    found: Kit = request.param
    if found.name not in installed():
        pytest.skip(f"{found.name} is not installed below {CLIENTS_VARIABLE}: ./dev clients")
    return found


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """A running model server."""
    with ModelServer() as server:
        yield server


@pytest.fixture
def desk(kit: Kit, models: ModelServer, main_checkout: Checkout, sealed: Path) -> Bench:
    """A project with a plan, and the client."""
    main_checkout.commit("a plan", **{"plan.md": "# Plan\n\n- [ ] two.txt is there.\n"})
    return Bench(kit, models, main_checkout, sealed)


def quoted(path: Path) -> str:
    """Quote a path for a shell."""
    return shlex.quote(str(path))
