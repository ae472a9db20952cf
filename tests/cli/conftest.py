"""Run `git ckpt` for the tests of the command line."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from gitckpt.cli.main import run
from tests.conftest import Checkout

COMMANDS = [
    "init",
    "save",
    "list",
    "log",
    "show",
    "ls",
    "grep",
    "why",
    "bisect",
    "diff",
    "tag",
    "pin",
    "unpin",
    "note",
    "resume",
    "restore",
    "undo",
    "redo",
    "run",
    "loop",
    "review",
    "runs",
    "status",
    "start",
    "finish",
    "step",
    "agent",
    "turns",
    "guard",
    "watch",
    "rescue",
    "report",
    "cancel",
    "remove",
    "expire",
    "import",
    "export",
    "allow",
    "notes",
    "verify",
    "doctor",
    "du",
    "uninit",
    "hook",
    "completion",
    "demo",
]
"""The commands in the order of completions."""

PROJECT = Path(__file__).resolve().parents[2]


class Outcome(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


class Ckpt(Protocol):
    """Run `git ckpt` in this process."""

    def __call__(
        self, *args: str, at: Checkout | Path | None = None, stdin: str | bytes | None = None
    ) -> Outcome: ...


class Spawn(Protocol):
    """Run `git ckpt` in a new process."""

    def __call__(
        self,
        *args: str,
        at: Checkout | Path,
        stdin: str | bytes = b"",
        env: dict[str, str] | None = None,
        argv: list[str] | None = None,
        preexec: Callable[[], None] | None = None,
    ) -> Outcome: ...


def size(number: int) -> str:
    """Format a number of bytes as commands do: units of 1000, one decimal."""
    if number < 1000:
        return "1 byte" if number == 1 else f"{number} bytes"
    power = 1
    while power < 4 and round(number / 1000**power, 1) >= 1000:
        power += 1
    return f"{number / 1000**power:.1f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def top(at: Checkout | Path) -> Path:
    return at.path if isinstance(at, Checkout) else at


def normal(text: str, *places: Checkout | Path) -> str:
    """Replace variable parts of a text by words.

    Paths of places become TOP, TOP2 and so on; the other words are ID, TIME, OID, SHORT and STAMP.
    """
    for number, place in enumerate(places):
        text = text.replace(str(top(place)), f"TOP{number + 1 if number else ''}")
    text = re.sub(
        r"\b[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b", "ID", text
    )
    text = re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "TIME", text)
    text = re.sub(r"\b([0-9a-f]{64}|[0-9a-f]{40})\b", "OID", text)
    text = re.sub(r"\b\d{8}-\d{6}-", "STAMP-", text)
    return re.sub(r"(?<![\w/.-])[0-9a-f]{8}(?:[0-9a-f]{2})?\b", "SHORT", text)


def without_names(text: str) -> str:
    """Drop which files an aborted capture left out; it depends on how far it came."""
    return re.sub(r"; (which files have changed is unknown|left out: [^;\n]*)", "", text)


@pytest.fixture
def ckpt(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ckpt:
    def call(
        *args: str, at: Checkout | Path | None = None, stdin: str | bytes | None = None
    ) -> Outcome:
        if at is not None:
            monkeypatch.chdir(top(at))
        if stdin is not None:
            data = stdin.encode() if isinstance(stdin, str) else stdin
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capfd.readouterr()
        code = run(list(args))
        return Outcome(code, *capfd.readouterr())

    return call


@pytest.fixture
def spawn() -> Spawn:
    def call(
        *args: str,
        at: Checkout | Path,
        stdin: str | bytes = b"",
        env: dict[str, str] | None = None,
        argv: list[str] | None = None,
        preexec: Callable[[], None] | None = None,
    ) -> Outcome:
        done = subprocess.run(
            [*(argv or [sys.executable, "-m", "gitckpt"]), *args],
            cwd=top(at),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env=os.environ | {"PYTHONPATH": str(PROJECT)} | (env or {}),
            preexec_fn=preexec,
            check=False,
        )
        return Outcome(
            done.returncode,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "surrogateescape"),
        )

    return call


@pytest.fixture
def save(ckpt: Ckpt) -> Callable[..., str]:
    """Return a function that saves a checkpoint and returns its id."""

    def call(at: Checkout | Path, *args: str, stdin: str | None = None) -> str:
        done = ckpt("save", *args, at=at, stdin=stdin)
        assert done.code == 0, done.err
        return done.out.strip()

    return call


@pytest.fixture
def git_ckpt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a `git-ckpt` on PATH, so that `git ckpt` works; return its path."""
    directory = tmp_path / "bin dir"
    directory.mkdir()
    script = directory / "git-ckpt"
    script.write_text(
        f"#!/bin/sh\nPYTHONPATH='{PROJECT}' exec '{sys.executable}' -m gitckpt \"$@\"\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    return script


def store_text(checkout: Checkout, ref: str, text: str | bytes) -> str:
    """Write a text as a blob, point a ref to it and return its oid."""
    oid = checkout.git("hash-object", "-w", "--stdin", data=text)
    checkout.git("update-ref", ref, oid)
    return oid


def document(**fields: Any) -> str:
    """Return a valid document, with keys replaced, added or (None) left out.

    Values are TOML.
    """
    whole = {
        "version": "1",
        "id": '"11111111-1111-4111-8111-111111111111"',
        "phase": '"research-complete"',
        "timestamp": '"2026-11-21T20:15:00.123456Z"',
        "git_sha": '""',
        "trigger": '"manual"',
        "errors": "[]",
        **fields,
    }
    return (
        "".join(f"{key} = {value}\n" for key, value in whole.items() if value is not None)
        + "\n[state]\n"
    )
