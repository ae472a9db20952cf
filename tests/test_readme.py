"""Each block of README.md, run as typed, prints the output that the page shows."""

from __future__ import annotations

import fcntl
import functools
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import MakeDirectory

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COLUMNS = 100
SEPARATOR = "\x1e"

SHIMS = {
    "git-ckpt": f'PYTHONPATH={ROOT} exec {sys.executable} -P -m gitckpt "$@"',
    # An installation needs a package index; test_release.py builds the wheel.
    "pipx": '[ "$*" = "install ." ]',
}
"""Programs that the blocks find on PATH."""


def blocks() -> list[tuple[int, list[tuple[str, str]]]]:
    """Return the line of each `console` block and its commands, each with its output."""
    return [
        (PAGE.count("\n", 0, match.start()) + 1, commands(match[2]))
        for match in BLOCK.finditer(PAGE)
        if match[1] == "console"
    ]


def commands(block: str) -> list[tuple[str, str]]:
    """Split a block into commands (`$ `, continued with `> `) and their outputs."""
    result: list[tuple[str, str]] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            result.append((line[2:], ""))
        elif line.startswith("> ") and not result[-1][1]:
            result[-1] = (result[-1][0] + line[2:], "")
        else:
            result[-1] = (result[-1][0], result[-1][1] + line)
    return result


def play(typed: list[str], directory: Path, shims: Path) -> list[str]:
    """Run commands in one shell on a terminal; return the output of each."""
    script = "".join(f"printf '\\036'\n{command}" for command in typed)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment["GIT_PAGER"] = "cat"
    environment["PATH"] = f"{shims}:{environment['PATH']}"
    chunks: list[bytes] = []
    reader = threading.Thread(target=_read, args=(leader, chunks))
    reader.start()
    subprocess.run(
        ["sh", "-c", script],
        cwd=directory,
        env=environment,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        timeout=300,
        check=False,
    )
    os.close(follower)
    reader.join()
    os.close(leader)
    text = b"".join(chunks).decode().replace("\r\n", "\n")
    return text.split(SEPARATOR)[1:]


def _read(leader: int, chunks: list[bytes]) -> None:
    try:
        while chunk := os.read(leader, 65536):
            chunks.append(chunk)
    except OSError:  # Linux reports the closed terminal as an error
        pass


def normal(outputs: list[str]) -> list[str]:
    """Replace ids (the same id by the same number), times and padding."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0][:8], f"<{len(numbers) + 1}>")

    rules: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
        (r"\r\x1b\[K[^\r\n]*(?=\r\x1b\[K)|\r\x1b\[K", ""),  # progress
        (r"\b\d{8}-\d{6}-", "<time>-"),
        (r"\b(?=[a-f]*\d)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", number),
        (r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b", number),
        (r"(?m)\b(now|\d+(\.\d+)?(ms|s|m))(?= |$)", "<age>"),
        (r"/\S*/(?=(demo|exact|job)/)", "/path/"),
        (r"(?<=\S) {2,}", "  "),
    ]
    return [
        functools.reduce(lambda text, rule: re.sub(rule[0], rule[1], text), rules, output)
        for output in outputs
    ]


@pytest.fixture
def shims(make_directory: MakeDirectory) -> Path:
    directory = make_directory("shims")
    for name, body in SHIMS.items():
        (directory / name).write_text(f"#!/bin/sh\n{body}\n")
        (directory / name).chmod(0o755)
    return directory


def test_normal_keeps_what_differs() -> None:
    assert normal(["1a2b3c4d  12s  x\n", "1a2b3c4d-0000-4000-8000-000000000000 9f9f9f9f\n"]) == [
        "<1>  <age>  x\n",
        "<1> <2>\n",
    ]
    assert normal(["\r\x1b[K… restoring files: 1s\r\x1b[Kadd     a\n"]) == ["add  a\n"]
    assert normal(["add  a\n"]) != normal(["add  b\n"])


def test_every_block_is_run() -> None:
    assert {match[1] for match in BLOCK.finditer(PAGE)} == {"console"}
    assert PAGE.count("```") == 2 * len(BLOCK.findall(PAGE))
    assert sum(bool(output) for _, block in blocks() for _, output in block) > 6


@pytest.mark.parametrize(("line", "block"), blocks(), ids=[f"line-{line}" for line, _ in blocks()])
def test_block_prints_what_the_page_shows(
    line: int, block: list[tuple[str, str]], make_directory: MakeDirectory, shims: Path
) -> None:
    typed = [command for command, _ in block]
    if typed[0].startswith("./dev"):
        developer = (ROOT / "dev").read_text()
        for command in typed:
            name = command.split()[1]
            assert f"\n    {name})\n" in developer, f"README.md:{line}: no ./dev {name}"
        return
    outputs = play(typed, make_directory("empty"), shims)
    assert normal(outputs) == normal([output for _, output in block])


def test_the_page_is_short() -> None:
    lines = PAGE.splitlines()
    assert len(lines) <= 130
    assert [line for line in lines if len(line) > 100] == []
