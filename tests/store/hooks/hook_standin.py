"""A stand-in for gitckpt behind a repository's hooks, and shared helpers."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from gitckpt import Finding, Installation, Store
from gitckpt.git.repository import discover_repository
from gitckpt.store.hooks.files import PACKAGE_DIR, PinnedPython
from gitckpt.store.hooks.installation import inspect_hooks, install_hooks
from tests.conftest import Checkout

OLD = (2, 39, 5)
NEW = (2, 55)
USER_TEXT = '#!/bin/sh\n# mine\necho "mine: $*"\ncat\nexit 3\n'
NOTES_CHANGES = [
    "added notes.rewriteRef = refs/notes/checkpoint[s] to the configuration",
    "added notes.rewriteMode = cat_sort_uniq to the configuration",
    "added gc.cruftPacks = true to the configuration",
]

HOOK = """\
import json, os, sys

def run(argv):
    with open(os.path.join(os.path.dirname(__file__), "calls"), "a", encoding="utf-8") as file:
        file.write(json.dumps([*argv, sys.stdin.read()]) + "\\n")
    return int(os.environ.get("STANDIN_EXIT", "0"))
"""


class StandIn:
    """A package `gitckpt` whose hook records how it was called."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        package = directory / "gitckpt"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "hook.py").write_text(HOOK)
        (directory / "hooks").mkdir()
        shutil.copy(f"{PACKAGE_DIR}/hooks/hook.sh", directory / "hooks")
        self._calls = package / "calls"

    def calls(self) -> list[list[str]]:
        """Return arguments and standard input of each call since the last time."""
        if not self._calls.exists():
            return []
        text = self._calls.read_text()
        self._calls.unlink()
        return [json.loads(line) for line in text.splitlines()]

    def install(
        self,
        place: Checkout | Path,
        mode: str = "auto",
        version: tuple[int, ...] = OLD,
        python: str = sys.executable,
    ) -> Installation:
        """Install hooks that run this package, as `Store.install` does for gitckpt."""
        repository = discover_repository(str(place.path if isinstance(place, Checkout) else place))
        return install_hooks(
            repository, version=version, mode=mode, python=python, package_dir=str(self.dir)
        )

    def inspect(
        self,
        place: Checkout | Path,
        version: tuple[int, ...] = OLD,
        python: str = sys.executable,
    ) -> list[Finding]:
        """Return the findings about the hooks, as `Store.examine` does for gitckpt's."""
        repository = discover_repository(str(place.path if isinstance(place, Checkout) else place))
        return inspect_hooks(repository, version=version, python=python, package_dir=str(self.dir))

    @staticmethod
    def of(python: str, directory: str) -> PinnedPython:
        """Return the pin of another interpreter and package."""
        return PinnedPython(python, directory)

    def block(self, event: str, *, created: bool = False) -> bytes:
        return self.of(sys.executable, str(self.dir)).block(event, created=created)


def uninstall(checkout: Checkout) -> Installation:
    """Remove hooks and settings as `git ckpt uninit` does."""
    with Store.open(checkout.path) as store:
        return store.uninstall()


def version_for(way: str) -> tuple[int, ...]:
    return NEW if way == "config" else OLD


def hooks_of(checkout: Checkout) -> Path:
    return checkout.main / ".git" / "hooks"


def put_hook(checkout: Checkout, event: str, text: str | bytes, mode: int = 0o755) -> Path:
    path = hooks_of(checkout) / event
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def everything(checkout: Checkout) -> dict[str, object]:
    """Return configuration and hook files with their modes."""
    hooks = hooks_of(checkout)
    files = (
        {path.name: (path.lstat().st_mode, path.read_bytes()) for path in sorted(hooks.iterdir())}
        if hooks.exists()
        else None
    )
    return {"config": (checkout.main / ".git" / "config").read_bytes(), "hooks": files}
