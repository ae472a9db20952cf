"""The seal: no test sees the developer's HOME, configuration, clock or repository. Real git everywhere, never a mock of it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import ConfigLevel

from gitckpt.git.process import LOCAL_VARIABLES, git_executable

# Their assertions are to say as much as those of a test; they stand in no test, so pytest has to be told.
pytest.register_assert_rewrite("tests.model.example_documents", "tests.store.killer")

DATE = "1700000000 +0000"
"""The date of every commit a test makes, unless it says otherwise: 2023-11-14T22:13:20Z."""

GITCONFIG = """\
[user]
    name = Ada Tester
    email = ada@example.org
[init]
    defaultBranch = main
[gc]
    auto = 0
[maintenance]
    auto = false
[commit]
    gpgSign = false
[advice]
    detachedHead = false
[protocol "file"]
    allow = always
"""


# A shell that starts the tests in the background has signals ignored, which would be inherited by all that they start.
for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, action)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long`: the property tests take an hour instead of a minute."""
    parser.addoption("--long", action="store_true", help="run the state machines for 100,000 steps, each time other ones")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets long tests begin first: with several workers, one that begins last is waited for alone."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def sealed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives the test a HOME of its own and a current directory that is no repository; returns that HOME."""
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text(GITCONFIG)
    for name in list(os.environ):
        if name.startswith(("GIT_", "GITCKPT_", "XDG_")) and name not in ("GITCKPT_GIT", "GITCKPT_TEST_GIT"):
            monkeypatch.delenv(name)
    for name in LOCAL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    settings = {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(home.parent),
        "GIT_AUTHOR_DATE": DATE,
        "GIT_COMMITTER_DATE": DATE,
        "GIT_EDITOR": "false",
        "GIT_TEMPLATE_DIR": "",
        "NO_COLOR": "1",
        "COLUMNS": "120",
        "TERM": "dumb",
        "TZ": "UTC",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for level in (ConfigLevel.GLOBAL, ConfigLevel.XDG, ConfigLevel.SYSTEM, ConfigLevel.PROGRAMDATA):
        pygit2.settings.search_path[level] = str(home) if level == ConfigLevel.GLOBAL else ""
    outside = tmp_path_factory.mktemp("outside")
    monkeypatch.chdir(outside)
    return home


class Checkout:
    """A worktree that a test works in.

    Attributes:
        path: its top.
        main: top of the main worktree of its repository.
    """

    def __init__(self, path: Path, main: Path | None = None) -> None:
        self.path = path
        self.main = main or path

    def git(self, *args: str, data: str | bytes = b"", env: dict[str, str] | None = None, ok: tuple[int, ...] = (0,)) -> str:
        """Runs git here and returns what it printed, without the final newline. Fails on an exit code that is not in `ok`."""
        done = subprocess.run(
            [git_executable(), *args],
            cwd=self.path,
            input=data.encode() if isinstance(data, str) else data,
            capture_output=True,
            env=os.environ | (env or {}),
            check=False,
        )
        said = done.stderr.decode(errors="replace")
        assert done.returncode in ok, f"git {' '.join(args)}: exit {done.returncode}: {said}"
        return done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")

    def write(self, name: str, content: str | bytes) -> Path:
        """Writes a file below the top, with the directories it needs."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def commit(self, message: str = "a change", **files: str) -> str:
        """Writes files (`name="text"`; without any, one that is new), commits everything, and returns the commit's oid."""
        for name, content in (files or {f"file-{os.urandom(4).hex()}": message}).items():
            self.write(name, content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def refs(self, *patterns: str) -> dict[str, str]:
        """Returns the oid of each ref (of those below the patterns)."""
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)", *patterns).splitlines()
        return dict(line.split(" ") for line in lines)

    def fingerprint(self) -> dict[str, object]:
        """Returns all that a command that fails must leave as it was: refs, HEAD, index, configuration and the files."""
        git_dir = Path(self.git("rev-parse", "--absolute-git-dir"))
        common = Path(self.git("rev-parse", "--path-format=absolute", "--git-common-dir"))
        files = {
            str(file.relative_to(self.path)): (file.lstat().st_mode, os.readlink(file) if file.is_symlink() else file.read_bytes())
            for file in sorted(self.path.rglob("*"))
            if ".git" not in file.relative_to(self.path).parts and not file.is_dir()
        }
        index = git_dir / "index"
        return {
            "refs": self.refs(),
            "head": (git_dir / "HEAD").read_bytes(),
            "index": index.read_bytes() if index.exists() else None,
            "config": (common / "config").read_bytes(),
            "files": files,
            "worktrees": self.git("worktree", "list", "--porcelain"),
        }


@pytest.fixture
def make_checkout(tmp_path: Path) -> Callable[..., Checkout]:
    """Makes repositories: `make_checkout("name", "--bare", …)` passes the options on to `git init`."""

    def make(name: str = "project", *options: str) -> Checkout:
        path = tmp_path / name
        subprocess.run([git_executable(), "init", "--quiet", *options, str(path)], check=True)
        return Checkout(path)

    return make


@pytest.fixture
def main_checkout(make_checkout: Callable[..., Checkout]) -> Checkout:
    """The main worktree of a repository with one commit, which holds `README`."""
    checkout = make_checkout()
    checkout.commit("first", README="hello\n")
    return checkout


@pytest.fixture(params=["main", "linked"])
def checkout(request: pytest.FixtureRequest, main_checkout: Checkout, tmp_path: Path) -> Iterator[Checkout]:
    """A worktree with one commit on a branch; every test that uses it runs in a main and in a linked worktree."""
    if request.param == "main":
        yield main_checkout
        return
    path = tmp_path / "linked worktree"
    main_checkout.git("worktree", "add", "--quiet", "-b", "side", str(path))
    yield Checkout(path, main_checkout.path)


@pytest.fixture
def newer_git(monkeypatch: pytest.MonkeyPatch) -> str:
    """A git with reftables and hooks in its configuration, which every call uses from here on; skips where none is named."""
    path = os.environ.get("GITCKPT_TEST_GIT")
    if not path:
        pytest.skip("GITCKPT_TEST_GIT names no git with reftables and with hooks in its configuration (2.54 or newer)")
    monkeypatch.setenv("GITCKPT_GIT", path)
    return path


class Clock:
    """A clock that a test turns by hand. Each look at it moves it on by `step` microseconds."""

    def __init__(self, start: int = 1_800_000_000_000_000, step: int = 1_000_000) -> None:
        self.instant = start
        self.step = step

    def __call__(self) -> int:
        self.instant += self.step
        return self.instant


class Ids:
    """Ids that count up: 00000001-0000-4000-8000-000000000000 and so on."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return f"{self.count:08x}-0000-4000-8000-000000000000"


@pytest.fixture
def clock() -> Clock:
    """A clock that starts at 2027-01-15T08:00:00Z and moves one second with each look."""
    return Clock()


@pytest.fixture
def ids() -> Ids:
    """Ids that count up from 1."""
    return Ids()
