"""Install the clients of `clients.toml` and list them: `installer DIR [NAME…]`.

Each client has its own directory. A line is `NAME VERSION`, or `NAME -` and the reason why it is
missing. A client that is installed in its version is left as it is.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.system.clients.client_kit import CLIENTS_VARIABLE, installed

_LIST = Path(__file__).with_name("clients.toml")
_STAMP = ".installed"
_LIMIT, _START_LIMIT = 1200.0, 180.0
"""Seconds for an installer, or until a program prints its version.

aider took more than 170 on a busy machine.
"""


class NotToBeHad(Exception):
    """A client cannot be installed or does not start; one line says why."""


def install(name: str, wanted: Mapping[str, str], directory: Path) -> str:
    """Install a client, and return the version that it prints.

    Args:
        name: of its program.
        wanted: `npm` or `pip` → the package with its version.
        directory: where to install; emptied first unless it holds that version.

    Raises:
        NotToBeHad: it cannot be installed, or does not start.
    """
    ((manager, package),) = wanted.items()
    stamp = directory / _STAMP
    if not stamp.exists() or stamp.read_text() != package:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        (_npm if manager == "npm" else _pip)(package, directory)
        stamp.write_text(package)
    place = installed().get(name)
    if place is None:
        raise NotToBeHad(f"{package} has no program {name}")
    home = directory / "home"
    home.mkdir(exist_ok=True)
    said = _run(
        [str(Path(place, name)), "--version"], _START_LIMIT, env={**os.environ, "HOME": str(home)}
    )
    found = re.search(r"\d+\.\d\S*", said)
    return found[0] if found else "?"


def _npm(package: str, directory: Path) -> None:
    if shutil.which("npm") is None:
        raise NotToBeHad("there is no npm")
    quiet = [
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--loglevel=error",
        "--fetch-retries=1",
        "--cache",
        str(directory / "cache"),
    ]
    _run(
        ["npm", "install", *quiet, "--prefix", str(directory), package],
        _LIMIT,
        env={**os.environ, "HOME": str(directory)},
    )
    shutil.rmtree(directory / "cache", ignore_errors=True)


def _pip(package: str, directory: Path) -> None:
    _run([sys.executable, "-I", "-m", "venv", str(directory)], _LIMIT)
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
    _run([str(directory / "bin" / "python"), "-I", "-m", "pip", "install", *quiet, package], _LIMIT)


def _run(words: list[str], limit: float, env: Mapping[str, str] | None = None) -> str:
    """Run a program, and return its output.

    Raises:
        NotToBeHad: it fails, or takes too long.
    """
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            env=env,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotToBeHad(f"{Path(words[0]).name} took more than {limit:g} seconds") from None
    except OSError as error:
        raise NotToBeHad(f"{Path(words[0]).name} does not start: {error.strerror}") from None
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        why = next(
            (line for line in said if "error" in line.lower()),
            said[0] if said else f"exit code {done.returncode}",
        )
        raise NotToBeHad(
            f"{'pip' if 'pip' in words else Path(words[0]).name} failed: {_harmless(why)}"
        )
    return done.stdout


def _harmless(line: str) -> str:
    """Return a line without addresses, which differ between machines."""
    return " ".join("…" if "://" in word else word for word in line.split())[:120]


def main() -> int:
    """Install the clients that the arguments name, all at once."""
    parser = argparse.ArgumentParser(prog="installer")
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    known: dict[str, dict[str, str]] = tomllib.loads(_LIST.read_text())
    names = given.names or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"there is no client {unknown[0]}: {', '.join(known)}")
    directory = given.directory.absolute()
    os.environ[CLIENTS_VARIABLE] = str(directory)

    def line(name: str) -> str:
        try:
            return f"{name} {install(name, known[name], directory / name)}"
        except NotToBeHad as error:
            shutil.rmtree(directory / name, ignore_errors=True)
            return f"{name} - {error}"

    with ThreadPoolExecutor(len(names)) as pool:
        for said in pool.map(line, names):
            sys.stdout.write(f"{said}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
