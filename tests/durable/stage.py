"""A project with a remote and fake programs, in which commands start runs.

The programs on PATH replace an agent, `gh` and `bd`.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gitckpt import Checkpoint, Query, Store
from gitckpt.store.runs import summary
from gitckpt.store.runs.summary import PhaseProgress
from gitckpt.store.store import checkpoints_of_store
from tests import forked
from tests.cli.conftest import PROJECT
from tests.conftest import Checkout
from tests.durable.command.commanding import comes

CKPT = [sys.executable, "-m", "gitckpt"]
URL = "https://example.org/ada/project/pull/42"


class Outcome(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


class Stage:
    """A project in which tests run pipelines.

    Attributes:
        checkout: the project.
        remote: the bare repository behind `origin`.
        programs: a directory that comes first on PATH.
        calls: the lines that the programs logged.
    """

    def __init__(self, checkout: Checkout, directory: Path) -> None:
        self.checkout = checkout
        self.remote = Checkout(directory / "remote.git")
        self.programs = directory / "programs"
        self._calls = directory / "calls"
        self._list_children: list[subprocess.Popen[str]] = []
        self.programs.mkdir()
        checkout.git("init", "--quiet", "--bare", str(self.remote.path))
        checkout.git("remote", "add", "origin", str(self.remote.path))

    @property
    def env(self) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": str(PROJECT),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "CALLS": str(self._calls),
        }

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    def program(self, name: str, script: str) -> None:
        """Put a shell script on PATH; it logs its name at each call."""
        path = self.programs / name
        path.write_text(f'#!/bin/sh\necho {name} >> "$CALLS"\n{script}\n')
        path.chmod(0o755)

    def pipeline(self, *phases: str, name: str = "ci", top: str = "", more: str = "") -> None:
        """Write `gitckpt.toml` with a pipeline of phases given as `name: command`."""
        text = f"[pipelines.{name}]\n{top}\n" if top else ""
        for phase in phases:
            title, _, command = phase.partition(": ")
            text += f"[[pipelines.{name}.phases]]\nname = '{title}'\nrun = '''{command}'''\n"
        self.checkout.write("gitckpt.toml", text + more)

    def ckpt(
        self, *args: str, at: Path | None = None, env: dict[str, str] | None = None
    ) -> Outcome:
        """Run `git ckpt` in a process of its own."""
        return Outcome(
            *forked.git_ckpt(*args, directory=at or self.checkout.path, env=self.env | (env or {}))
        )

    def begin(self, *args: str) -> subprocess.Popen[str]:
        """Run `git ckpt` in the background."""
        child = subprocess.Popen(
            [*CKPT, *args],
            cwd=self.checkout.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            start_new_session=True,
        )
        self._list_children.append(child)
        return child

    def close(self) -> None:
        """End the processes of a failed test."""
        for child in self._list_children:
            if child.poll() is None:
                child.kill()
                child.wait()
            for stream in (child.stdout, child.stderr):
                if stream is not None:
                    stream.close()

    def ok(self, *args: str, at: Path | None = None) -> str:
        """Run `git ckpt`, require success, and return its output without the last newline."""
        done = self.ckpt(*args, at=at)
        assert done.code == 0, done.err
        return done.out.removesuffix("\n")

    def runs(self) -> list[str]:
        """Return the ids of the runs, newest first."""
        return [line.partition("\t")[0] for line in self.ok("runs").splitlines()]

    def run(self) -> str:
        """Return the id of the only run."""
        (only,) = self.runs()
        return only

    def store(self) -> Store:
        return Store.open(self.checkout.path, adapter="plumbing")

    def newest(self, run: str) -> Checkpoint:
        with self.store() as store:
            return checkpoints_of_store(store).heads.read(run)

    def checkpoint(self, run: str, label: str) -> Checkpoint:
        """Return the newest checkpoint of a run with a label."""
        with self.store() as store:
            return store.read(store.list(Query(run=run, label=label))[0].id)

    def labels(self, run: str) -> list[str]:
        """Return the phase labels of a run, oldest first, without those of autosaves."""
        with self.store() as store:
            found = [entry.label for entry in reversed(store.list(Query(run=run)))]
        return [label for label in found if not label.endswith("-progress")]

    def status(self, run: str) -> str:
        with self.store() as store:
            return summary.read_history(checkpoints_of_store(store), run).summary.status

    def lease(self, run: str) -> str:
        """Return the sentence that describes the driver of a run."""
        with self.store() as store:
            (lease,) = (each.lease for each in store.runs() if each.run == run)
        assert lease is not None
        return lease.sentence()

    def events(self, run: str) -> dict[str, PhaseProgress]:
        """Return the newest event of each phase."""
        with self.store() as store:
            return {
                event.phase: event
                for event in summary.read_history(checkpoints_of_store(store), run).events
            }

    def worktree(self, run: str) -> Path:
        return self.checkout.path / ".ckpt/worktrees" / run

    def files(self, checkpoint: Checkpoint) -> list[str]:
        """Return the names of the files in a checkpoint."""
        tree = checkpoint.tree
        where = f"{tree}:files" if tree else checkpoint.git_sha
        return self.checkout.git("ls-tree", "-r", "--name-only", where).splitlines()

    def waits_for(self, *paths: Path) -> None:
        """Wait until files exist."""
        assert comes(lambda: all(path.exists() for path in paths)), paths


class Talk:
    """A command on a terminal, with the keyboard of its user."""

    def __init__(self, stage: Stage, *args: str, argv: list[str] | None = None) -> None:
        self._leader, follower = os.openpty()
        self.said = ""
        self.child = subprocess.Popen(
            [*(argv or CKPT), *args],
            cwd=stage.checkout.path,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=stage.env | {"GIT_PAGER": "cat", "NO_COLOR": "1"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - so that Ctrl-C is a signal
        )
        os.close(follower)

    def reads(self, text: str) -> None:
        """Wait until the terminal shows a text after the last one that was read."""
        deadline = time.monotonic() + 20
        while text not in self.said:
            assert time.monotonic() < deadline, self.said
            if not self._more():
                raise AssertionError(f"it ended without {text!r}: {self.said}")
        self.said = self.said.partition(text)[2]

    def types(self, line: str) -> None:
        os.write(self._leader, f"{line}\n".encode())

    def ends(self) -> int:
        """Wait for the end of the command, and return the exit code."""
        while self._more():
            pass
        return self.child.wait()

    def killed(self) -> None:
        """Kill the command, like a power cut."""
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        os.close(self._leader)

    def _more(self) -> bool:
        ready, _, _ = select.select([self._leader], [], [], 20)
        assert ready, f"nothing more came: {self.said}"
        try:
            chunk = os.read(self._leader, 65536)
        except OSError:  # the other side is closed
            return False
        self.said += chunk.decode(errors="replace").replace("\r\n", "\n")
        return bool(chunk)


def normal(text: str, stage: Stage) -> str:
    """Replace the parts of a text that differ from run to run.

    The replacements are TOP, STAMP, ID, TIME, and 0.0s for lengths of time.
    """
    text = text.replace(str(stage.checkout.path), "TOP")
    text = re.sub(r"\b\d{8}-\d{6}-", "STAMP-", text)
    text = re.sub(
        r"\b[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b", "ID", text
    )
    text = re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "TIME", text)
    text = re.sub(r"\b\d+s ago", "0s ago", text)
    text = re.sub(r"(--binary) [0-9a-f]{8}\b", r"\1 SHORT", text)
    return re.sub(r"\b\d+\.\d+s\b|(?<=after )(?:\d+m)?\d+s\b", "0.0s", text)


@pytest.fixture
def stage(main_checkout: Checkout, tmp_path: Path) -> Iterator[Stage]:
    """A project whose agent writes the file `feature`; its pull request is number 42."""
    made = Stage(main_checkout, tmp_path)
    made.program("claude", 'cat > plan-as-read\necho "claude $*"\necho "done in $PWD" > feature')
    made.program("gh", f"echo {URL}")
    yield made
    made.close()
