"""Isolate each test from the developer's HOME, settings, clock and repository.

Tests run real git everywhere, never a mock of it.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import hashlib
import itertools
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pygit2
import pytest
from hypothesis import settings
from pygit2.enums import ConfigLevel

from gitckpt.git.process import LOCAL_VARIABLES
from gitckpt.git.repository import Repository, discover_repository

# pytest explains failed assertions of test modules only; these are helpers.
pytest.register_assert_rewrite("tests.model.example_documents", "tests.system.kills.killer")

DATE = "1700000000 +0000"
"""The default date of a test's commits: 2023-11-14T22:13:20Z."""

NEWER = (2, 54)
"""The first git that takes hooks from its configuration; it knows reftables, too."""

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

GIT_VARIABLES = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_DATE": DATE,
    "GIT_COMMITTER_DATE": DATE,
    "GIT_EDITOR": "false",
    "GIT_TEMPLATE_DIR": "",
}

_KEPT_VARIABLES = ("GITCKPT_GIT", "GITCKPT_TEST_GIT", "GITCKPT_TEST_CLIENTS")

# A background job of a shell ignores these signals, and its child processes inherit that.
for number, action in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, action)


def git_program() -> str:
    """Return the git that tests run: that of `GITCKPT_GIT`, else the one in PATH."""
    return os.environ.get("GITCKPT_GIT") or "git"


PLACES = ("main", "linked")
"""The two kinds of worktree."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options `--long`, `--lane` and `--shard`."""
    parser.addoption(
        "--long",
        action="store_true",
        help="run the state machines for 100,000 steps, each time other ones",
    )
    lanes = (
        "test: all that are not marked long (where no path is named, the default); long: the "
        "others, less cases that are like one of "
    )
    lanes += (
        "those; all (where a path is, the default); clients: those marked client and not "
        "long, which are in neither of the first two"
    )
    parser.addoption("--lane", choices=("test", "long", "clients", "all"), help=lanes)
    parser.addoption(
        "--shard", metavar="K/N", type=shard, help="run only the K-th of N parts of the tests"
    )


def shard(text: str) -> tuple[int, int]:
    """Return the two numbers of `K/N`."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no part of the tests: say --shard 1/4 for the first of four"
        )
    return int(number), int(count)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the default lane and set how many examples a property test tries.

    The lane `test` tries a third of the usual number, and no test has a deadline. pytest-xdist
    passes the lane to its workers with the other options.
    """
    if config.option.lane is None:
        config.option.lane = (
            "test" if config.args_source is pytest.Config.ArgsSource.TESTPATHS else "all"
        )
    if config.getoption("--hypothesis-profile", None) is None:
        part = 3 if config.option.lane == "test" else 1
        settings.register_profile(
            "gitckpt", settings(), max_examples=settings().max_examples // part, deadline=None
        )
        settings.load_profile("gitckpt")


def examples(number: int) -> int:
    """Scale a property's own number of examples to the current lane."""
    return max(1, number * settings().max_examples // 100)


def is_long(item: pytest.Item) -> bool:
    """Return whether the mark `long` applies to this case of a test."""
    marker = item.get_closest_marker("long")
    case = getattr(item, "callspec", None)
    return marker is not None and (case is None or case.id not in marker.kwargs.get("but", ()))


def is_spare(item: pytest.Item) -> bool:
    """Return whether the mark `long` leaves a case to the lane `all`."""
    marker = item.get_closest_marker("long")
    case = getattr(item, "callspec", None)
    return marker is not None and case is not None and case.id in marker.kwargs.get("spare", ())


def is_property(item: pytest.Item) -> bool:
    """Return whether a test is a property test, which runs in `test` and `long`."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def lane_of(item: pytest.Item, *, is_late: bool) -> str | None:
    """Return the lane of a test; None if only the lane `all` runs it.

    Args:
        item: the test.
        is_late: whether another case is the one for the lane `test`.
    """
    if item.get_closest_marker("client"):
        return None if is_long(item) else "clients"
    return "long" if is_long(item) or is_late else "test"


def groups_of_alike(items: list[pytest.Item]) -> dict[str, list[list[pytest.Item]]]:
    """Group the equivalent cases of each test.

    Most tests behave alike in a main and in a linked worktree, and through either adapter. The mark
    `turns` names other parameters that make no difference.
    """
    alike: dict[str, dict[tuple[int, ...], list[pytest.Item]]] = {}
    for item in items:
        case = getattr(item, "callspec", None)
        if case is None:
            continue
        names = {name for marker in item.iter_markers("turns") for name in marker.args}
        if case.params.get("checkout") in PLACES:
            names |= {"checkout", "adapter"}
        if names & case.params.keys():
            rest = tuple(id(value) for name, value in case.params.items() if name not in names)
            alike.setdefault(item.nodeid.partition("[")[0], {}).setdefault(rest, []).append(item)
    return {name: list(groups.values()) for name, groups in alike.items()}


def shared_out(items: list[pytest.Item]) -> tuple[set[pytest.Item], set[pytest.Item]]:
    """Return the cases for the lane `long` and the cases only for the lane `all`.

    Of equivalent cases, the lane `test` runs one; which one changes from group to group. The lane
    `long` runs the case that differs from it most, so that each place and each adapter is covered.
    If a test is marked `long`, that lane runs one case of each group. Of a grid marked `sampled`,
    the lane `test` runs every n-th case, and the lane `long` runs the others; of equivalent ones
    again every n-th. Of a grid marked `long` as well, the lane `long` runs every n-th case alone.
    """
    later: set[pytest.Item] = set()
    never = {item for item in items if is_spare(item)}
    second: set[pytest.Item] = set()
    for name, groups in groups_of_alike([item for item in items if item not in never]).items():
        for turn, cases in enumerate(groups, zlib.crc32(name.encode())):
            named = [
                number
                for number, item in enumerate(cases)
                if item.get_closest_marker("long") and not is_long(item)
            ]
            first = named[0] if named else turn % len(cases)
            opposite = len(cases) - 1 - first
            if opposite == first:
                opposite = (first + 1) % len(cases)
            if is_long(cases[first]):
                opposite = first
            for number in {*range(len(cases))} - {first, *named}:
                later.add(cases[number])
                (second if number == opposite else never).add(cases[number])
    seen: Counter[tuple[str, bool]] = Counter()
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None and item not in never:
            key = (item.nodeid.partition("[")[0], item in second)
            if seen[key] % marker.args[0]:
                (never if item in second or is_long(item) else later).add(item)
            seen[key] += 1
    return later, never


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of the lane and the shard, and put the marked ones first.

    A long test that begins last would keep one worker busy while the others are idle. Of real
    clients, the unmarked tests are the longest: they run with the slow clients as well.
    """
    items.sort(
        key=lambda item: (
            (item.get_closest_marker("long") is None)
            != (item.get_closest_marker("client") is not None)
        )
    )
    lane, (number, count) = config.getoption("--lane"), config.getoption("--shard") or (1, 1)
    later, never = shared_out(items)
    lanes = [
        (item, None if item in never else lane_of(item, is_late=item in later)) for item in items
    ]
    wanted = [
        item
        for item, own in lanes
        if lane in ("all", own) or (lane == "long" and own == "test" and is_property(item))
    ]
    # The cases of a long test are neighbors, so each shard gets its share of them.
    wanted = wanted[number - 1 :: count]
    kept = set(wanted)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = wanted


def pytest_collection(session: pytest.Session) -> None:
    """Disable the garbage collector during collection: nearly all objects stay."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the collected tests, a million objects, from garbage collection."""
    gc.freeze()
    gc.enable()


MakeDirectory = Callable[[str], Path]


@pytest.fixture(scope="session")
def make_directory(tmp_path_factory: pytest.TempPathFactory) -> MakeDirectory:
    """Return a function that makes directories: `make_directory("name")`.

    pytest's own factory lists all existing directories for each test.
    """
    numbers = itertools.count()
    base = tmp_path_factory.getbasetemp()

    def make(name: str) -> Path:
        path = base / f"{name}-{next(numbers)}"
        path.mkdir()
        return path

    return make


@pytest.fixture
def tmp_path(make_directory: MakeDirectory, request: pytest.FixtureRequest) -> Path:
    """Return a new directory that is named after the test."""
    name = "".join(
        each if each.isalnum() and each.isascii() else "_" for each in request.node.name[:30]
    )
    return make_directory(name)


@pytest.fixture(autouse=True)
def sealed(make_directory: MakeDirectory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a new HOME and leave any repository; return that HOME."""
    home = make_directory("home")
    (home / ".gitconfig").write_text(GITCONFIG)
    for name in list(os.environ):
        if name.startswith(("GIT_", "GITCKPT_", "XDG_")) and name not in _KEPT_VARIABLES:
            monkeypatch.delenv(name)
    for name in (*LOCAL_VARIABLES, "SHELL"):
        monkeypatch.delenv(name, raising=False)
    settings = {
        "HOME": str(home),
        "USERPROFILE": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "GIT_CEILING_DIRECTORIES": str(home.parent),
        **GIT_VARIABLES,
        "NO_COLOR": "1",
        "COLUMNS": "120",
        "TERM": "dumb",
        "TZ": "UTC",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for level in (ConfigLevel.GLOBAL, ConfigLevel.XDG, ConfigLevel.SYSTEM, ConfigLevel.PROGRAMDATA):
        pygit2.settings.search_path[level] = str(home) if level == ConfigLevel.GLOBAL else ""
    monkeypatch.chdir(make_directory("outside"))
    return home


def _scratch() -> IO[bytes]:
    """Open an empty file without a name."""
    return (
        open(os.memfd_create("scratch"), "w+b")
        if sys.platform == "linux"
        else tempfile.TemporaryFile()
    )


class Checkout:
    """A worktree that a test works in.

    Attributes:
        path: its top directory.
        main: the top directory of the repository's main worktree.
    """

    def __init__(self, path: Path, main: Path | None = None) -> None:
        self.path = path
        self.main = main or path

    def git(
        self,
        *args: str,
        data: str | bytes = b"",
        env: dict[str, str] | None = None,
        ok: tuple[int, ...] = (0,),
    ) -> str:
        """Run git in this worktree and return its output without the last newline.

        Fail if the exit code is not in `ok`.
        """
        said = self._ask(args, data.encode() if isinstance(data, str) else data, env or {}, ok)
        return said.decode("utf-8", "surrogateescape").removesuffix("\n")

    def blobs(self, *names: str) -> list[bytes]:
        """Return the contents of blobs, which one git process reads."""
        if not names:
            return []
        said, found = (
            self._ask(
                ("cat-file", "--batch"), "".join(f"{name}\n" for name in names).encode(), {}, (0,)
            ),
            [],
        )
        for name in names:
            head, _, said = said.partition(b"\n")
            assert head.split(b" ")[1:2] == [b"blob"], f"{name}: {head!r}"
            size = int(head.split(b" ")[2])
            found.append(said[:size])
            said = said[size + 1 :]
        return found

    def _ask(
        self, args: tuple[str, ...], data: bytes, env: dict[str, str], ok: tuple[int, ...]
    ) -> bytes:
        """Run git in this worktree and return its output.

        `subprocess.run` takes twice as long, and the tests make ten thousand calls.
        """
        with _scratch() as given, _scratch() as out, _scratch() as err:
            given.write(data)
            given.seek(0)
            child = os.posix_spawnp(
                git_program(),
                [git_program(), "-C", str(self.path), *args],
                os.environ | env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, file.fileno(), number)
                    for number, file in enumerate((given, out, err))
                ],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these
            )
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for file in (out, err):
                file.seek(0)
            assert code in ok, (
                f"git {' '.join(args)}: exit {code}: {err.read().decode(errors='replace')}"
            )
            return out.read()

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file and the directories that it needs."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def commit(self, message: str = "a change", **files: str) -> str:
        """Write and commit files (`name="text"`); return the commit's oid.

        Without arguments, commit one new file.
        """
        for name, content in (files or {f"file-{os.urandom(4).hex()}": message}).items():
            self.write(name, content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.head()

    def head(self) -> str:
        """Return the oid of HEAD.

        Reading git's files saves a third of the time that a commit takes.
        """
        git_dir, common = self._git_dirs()
        name = (git_dir / "HEAD").read_text().removeprefix("ref: ").removesuffix("\n")
        if name.startswith("refs/"):
            ref = common / name
            return (
                ref.read_text().removesuffix("\n")
                if ref.is_file()
                else self.git("rev-parse", "HEAD")
            )
        return name

    def refs(self, *patterns: str) -> dict[str, str]:
        """Map each ref, or each ref that matches the patterns, to its oid."""
        lines = self.git(
            "for-each-ref", "--format=%(refname) %(objectname)", *patterns
        ).splitlines()
        return dict(line.split(" ") for line in lines)

    def fingerprint(self) -> dict[str, object]:
        """Return all that a failing command must leave unchanged.

        These are the refs, HEAD, the index, the configuration, the files and the worktrees. They
        are read from git's files: calls of git would take a quarter of the time of all tests of
        refusals.
        """
        git_dir, common = self._git_dirs()
        index = git_dir / "index"
        return {
            "refs": self.refs()
            if (common / "reftable").exists()
            else _refs(common) | _refs(git_dir),
            "head": (git_dir / "HEAD").read_bytes(),
            "index": index.read_bytes() if index.exists() else None,
            "config": (common / "config").read_bytes(),
            "files": dict(_files(os.fspath(self.path))),
            "worktrees": [_worktree(place) for place in sorted((common / "worktrees").glob("*"))],
        }

    def _git_dirs(self) -> tuple[Path, Path]:
        """Return the git directory of this worktree and that of its repository."""
        place = self.path / ".git"
        if place.is_dir():
            return place, place
        if not place.exists():  # a bare repository
            return self.path, self.path
        git_dir = self.path / os.fsdecode(place.read_bytes()).removeprefix("gitdir: ").removesuffix(
            "\n"
        )
        common = git_dir / "commondir"
        return git_dir, git_dir / os.fsdecode(common.read_bytes()).removesuffix(
            "\n"
        ) if common.exists() else git_dir


def repository_of(checkout: Checkout) -> Repository:
    """Return the result of `discover` without starting git.

    Thousands of tests begin with this call. An incomplete worktree is passed to `discover`.
    """
    git_dir, common = checkout._git_dirs()
    if not (checkout.path / ".git").exists() or not (git_dir / "HEAD").is_file():
        return discover_repository(str(checkout.path))
    is_long = b"objectformat = sha256" in (common / "config").read_bytes().lower()
    return Repository(
        os.path.normpath(git_dir), str(checkout.path), "sha256" if is_long else "sha1"
    )


def allow(checkout: Checkout) -> None:
    """Approve the relaxed settings in `gitckpt.toml`, as `git ckpt allow` does."""
    from gitckpt.store.config import settings
    from gitckpt.store.config import settings as approval

    repository = repository_of(checkout)
    loosened = settings.read_settings(repository).loosened
    if loosened is not None:
        approval.record_approval(repository, [loosened.digest])


def _files(top: str) -> Iterator[tuple[str, tuple[int, str | bytes]]]:
    """Yield each file below a directory with its mode and content, except `.git`."""
    for place, directories, names in os.walk(top):
        directories[:] = sorted(name for name in directories if name != ".git")
        links = [name for name in directories if os.path.islink(os.path.join(place, name))]
        for name in sorted([*names, *links]):
            path = os.path.join(place, name)
            if name != ".git":
                mode = os.lstat(path).st_mode
                yield (
                    path[len(top) + 1 :],
                    (mode, os.readlink(path) if stat.S_ISLNK(mode) else Path(path).read_bytes()),
                )


def _refs(git_dir: Path) -> dict[str, str]:
    """Return the loose and packed refs of a git directory."""
    packed = git_dir / "packed-refs"
    lines = packed.read_bytes().splitlines() if packed.exists() else []
    found = {
        os.fsdecode(name): oid.decode()
        for oid, _, name in (line.partition(b" ") for line in lines if line[:1] not in b"#^")
    }
    for directory, _, names in os.walk(git_dir / "refs"):
        for name in names:
            file = Path(directory, name)
            found[os.fspath(file.relative_to(git_dir))] = (
                file.read_bytes().decode("utf-8", "surrogateescape").removesuffix("\n")
            )
    return found


def _worktree(place: Path) -> tuple[object, ...]:
    """Return git's files about a linked worktree, and whether it exists."""
    said = [
        file.read_bytes() if (file := place / name).exists() else None
        for name in ("gitdir", "HEAD", "locked")
    ]
    return (place.name, *said, said[0] is not None and os.path.exists(said[0].rstrip(b"\n")))


@pytest.fixture
def make_checkout(tmp_path: Path) -> Callable[..., Checkout]:
    """Return a function that makes repositories: `make_checkout("name", "--bare")`.

    The options go to `git init`.
    """

    def make(name: str = "project", *options: str) -> Checkout:
        path = tmp_path / name
        subprocess.run([git_program(), "init", "--quiet", *options, str(path)], check=True)
        return Checkout(path)

    return make


class Templates:
    """A repository and a linked worktree that each test copies.

    A copy is faster than the five git processes that make one.

    Args:
        directory: holds the originals, one for each git program.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[str, Path] = {}
        self._contents: dict[Path, Contents] = {}

    def make(self, path: Path) -> None:
        """Make a repository with one commit that has the file `README`."""
        _write(self._contents[self._template() / "project"], path)
        _know(path / ".git/index", path / "README")

    def add(self, main: Checkout, path: Path) -> None:
        """Add a linked worktree on the new branch `side` to a copied repository."""
        template = self._template()
        git_dir, made = main.path / ".git", template / "project/.git"
        if (git_dir / "worktrees").exists() or any(
            (git_dir / name).read_bytes() != (made / name).read_bytes()
            for name in ("HEAD", "config", "refs/heads/main")
        ):
            main.git("worktree", "add", "--quiet", "-b", "side", str(path))
            return
        _write(self._contents[template / LINKED], path)
        admin = git_dir / ADMIN
        admin.parent.mkdir()
        _write(self._contents[made / ADMIN], admin)
        for name in ("refs/heads/side", "logs/refs/heads/side"):
            shutil.copy2(made / name, git_dir / name)
        (admin / "gitdir").write_text(f"{path}/.git\n")
        (path / ".git").write_text(f"gitdir: {admin}\n")
        _know(admin / "index", path / "README")

    def _template(self) -> Path:
        git = git_program()
        if git not in self._made:
            place = self._directory / str(len(self._made))
            place.mkdir()
            main = Checkout(place / "project")
            subprocess.run([git, "init", "--quiet", str(main.path)], check=True)
            main.commit("first", README="hello\n")
            self._contents[main.path] = _contents(main.path)
            main.git("worktree", "add", "--quiet", "-b", "side", str(place / LINKED))
            self._contents.update(
                {each: _contents(each) for each in (place / LINKED, main.path / ".git" / ADMIN)}
            )
            self._made[git] = place
        return self._made[git]


Contents = tuple[list[str], list[tuple[str, int, bytes]]]
LINKED = "linked worktree"
ADMIN = "worktrees/linked-worktree"


def _contents(top: Path) -> Contents:
    """Return the relative paths of directories, and files with mode and content.

    The tree must not contain symlinks.
    """
    ends = {path: os.fspath(path)[len(os.fspath(top)) :] for path in sorted(top.rglob("*"))}
    files = [
        (end, path.stat().st_mode & 0o777, path.read_bytes())
        for path, end in ends.items()
        if not path.is_dir()
    ]
    return ["", *(end for path, end in ends.items() if path.is_dir())], files


def _write(contents: Contents, path: Path) -> None:
    directories, files = contents
    for directory in directories:
        os.mkdir(f"{path}{directory}")
    for name, mode, content in files:
        file = os.open(f"{path}{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        os.write(file, content)
        os.close(file)


def _know(index: Path, file: Path) -> None:
    """Write a file's stat data into the index, as `git update-index --refresh` does."""
    data, now = index.read_bytes(), file.stat()
    assert data[:12] == b"DIRC\0\0\0\2\0\0\0\1"
    times = (
        part
        for nanoseconds in (now.st_ctime_ns, now.st_mtime_ns)
        for part in divmod(nanoseconds, 10**9)
    )
    known = struct.pack(
        ">6I", *(number & 0xFFFFFFFF for number in (*times, now.st_dev, now.st_ino))
    )
    content = data[:12] + known + data[36:-20]
    index.write_bytes(content + hashlib.sha1(content).digest())


@pytest.fixture(scope="session")
def templates(make_directory: MakeDirectory) -> Templates:
    """Return the originals that most test repositories are copied from."""
    return Templates(make_directory("templates"))


@pytest.fixture
def main_checkout(
    make_checkout: Callable[..., Checkout], templates: Templates, sealed: Path, tmp_path: Path
) -> Checkout:
    """Return the main worktree of a repository with one commit of `README`."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("GIT_") and name != "GIT_CEILING_DIRECTORIES"
    }
    if variables == GIT_VARIABLES and (sealed / ".gitconfig").read_text() == GITCONFIG:
        templates.make(tmp_path / "project")
        return Checkout(tmp_path / "project")
    checkout = make_checkout()
    checkout.commit("first", README="hello\n")
    return checkout


MakeOnce = Callable[[Checkout, Callable[[], object]], None]


@pytest.fixture(scope="session")
def originals() -> dict[tuple[str, ...], tuple[Path, int, int]]:
    """Map a setup function to its repository and the state of the clock and the ids."""
    return {}


@pytest.fixture
def make_once(
    originals: dict[tuple[str, ...], tuple[Path, int, int]],
    make_directory: MakeDirectory,
    clock: Clock,
    ids: Ids,
) -> MakeOnce:
    """Run a setup function on `main_checkout` once; later tests get a copy.

    Call it as `make_once(main_checkout, function)`. The function must not write outside of the
    repository, nor store its path; a linked worktree would.
    """

    def make(checkout: Checkout, function: Callable[[], object]) -> None:
        assert (checkout.path / ".git").is_dir()
        key = (function.__module__, function.__qualname__, git_program())
        if key in originals:
            original, clock.instant, ids.count = originals[key]
            shutil.rmtree(checkout.path)
            shutil.copytree(original, checkout.path, symlinks=True)
        else:
            function()
            original = make_directory("original") / "project"
            shutil.copytree(checkout.path, original, symlinks=True)
            originals[key] = (original, clock.instant, ids.count)

    return make


@pytest.fixture(params=PLACES)
def checkout(
    request: pytest.FixtureRequest, main_checkout: Checkout, templates: Templates, tmp_path: Path
) -> Checkout:
    """Return a worktree with one commit; each test runs in a main and a linked one."""
    if request.param == "main":
        return main_checkout
    templates.add(main_checkout, tmp_path / LINKED)
    return Checkout(tmp_path / LINKED, main_checkout.path)


@pytest.fixture
def newer_git(monkeypatch: pytest.MonkeyPatch) -> str:
    """Select a git that supports reftables and configured hooks, or skip the test.

    `GITCKPT_TEST_GIT` names it; if that is not set, the git of the other tests is tried.
    """
    path = os.environ.get("GITCKPT_TEST_GIT") or git_program()
    if git_version(path) < NEWER:
        pytest.skip(
            "GITCKPT_TEST_GIT names no git with reftables and with hooks in its configuration "
            "(2.54 or newer)"
        )
    monkeypatch.setenv("GITCKPT_GIT", path)
    return path


@functools.cache
def git_version(git: str) -> tuple[int, ...]:
    said = subprocess.run([git, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(word) for word in said.split()[2].split(".")[:2])


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the paths that this process flushes to disk from now on, in order."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("the system does not say which file a descriptor is of")
    paths: list[str] = []
    flush = os.fsync

    def note(fd: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{fd}"))
        flush(fd)

    monkeypatch.setattr(os, "fsync", note)
    return paths


@pytest.fixture
def mortal() -> Iterator[None]:
    """Make permissions apply to this thread even if it runs as root."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0
    before = data[0]
    data[0] &= ~0b110
    assert libc.capset(header, data) == 0
    yield
    data[0] = before
    assert libc.capset(header, data) == 0


class Clock:
    """A clock that a test sets; each call advances it by `step` microseconds."""

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
    """Return a clock that starts at 2027-01-15T08:00:00Z and advances 1 s a call."""
    return Clock()


@pytest.fixture
def ids() -> Ids:
    """Return ids that count up from 1."""
    return Ids()
