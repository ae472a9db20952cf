"""Which repository and worktree we are in, and how to call git there."""

from __future__ import annotations

import os

from gitckpt.git.catfile import CatFile
from gitckpt.git.process import Child, Completed, GitError, environment, git_executable, run
from gitckpt.model.errors import RepositoryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MINIMUM = (2, 39)
"""The oldest git that is supported."""

DURABLE = ("-c", "core.fsync=loose-object,reference", "-c", "core.fsyncMethod=fsync")
"""Options for git commands that write: by default git flushes neither objects nor refs to the disk."""


_versions: dict[tuple[str, str], tuple[int, ...]] = {}
_asked: dict[tuple[str, str], Child] = {}


class Git:
    """Calls git in one repository, whatever the caller's environment says.

    Args:
        git_dir: absolute path of the repository or of a linked worktree's administrative directory.
        worktree: absolute path of the top of the worktree; None where there is none.
    """

    def __init__(self, git_dir: str, worktree: str | None) -> None:
        # A file system monitor is a program of the user's that git starts, and that may stay.
        self._prefix = [git_executable(), "-c", "core.fsmonitor=false", f"--git-dir={git_dir}", "-C", worktree or git_dir]
        if worktree is not None:
            self._prefix.append(f"--work-tree={worktree}")

    def run(
        self,
        *args: str,
        data: bytes = b"",
        env: Mapping[str, str] | None = None,
        ok: Sequence[int] = (0,),
        locks: bool = False,
        deadline: float | None = None,
    ) -> Completed:
        """Runs one git command.

        Args:
            args: options and command.
            data: its standard input.
            env: variables to set beside those of `environment()`.
            ok: the exit codes that are no failure.
            locks: whether it may take optional locks, that is, refresh the index on disk.
            deadline: when to end it, on the clock of `time.monotonic`.

        Raises:
            GitError: another exit code.
            DeadlinePassed: it took longer.
        """
        child = Child([*self._prefix, *args], self._environment(env, locks=locks), own_group=deadline is not None)
        return self.finish(child, args, data=data, ok=ok, deadline=deadline)

    @staticmethod
    def finish(
        child: Child, args: Sequence[str], *, data: bytes = b"", ok: Sequence[int] = (0,), deadline: float | None = None
    ) -> Completed:
        """Waits for a command that was started, and returns what it said. Args and errors: as `run`."""
        done = child.communicate(data, deadline)
        if done.code not in ok:
            raise GitError(args, done.code, done.complaint)
        return done

    def text(self, *args: str) -> str:
        """Runs one git command and returns its output without the final newline; bytes that are not UTF-8 become surrogates."""
        return os.fsdecode(self.run(*args).out.removesuffix(b"\n"))

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> Child:
        """Starts a git command, in a process group of its own.

        Args:
            args: options and command.
            env: variables to set beside those of `environment()`.
        """
        return Child([*self._prefix, *args], self._environment(env, locks=False), own_group=True)

    @staticmethod
    def _environment(env: Mapping[str, str] | None, *, locks: bool) -> dict[str, str]:
        whole = environment(env)
        if not locks:
            whole["GIT_OPTIONAL_LOCKS"] = "0"
        return whole


class Repository:
    """A repository as seen from one of its worktrees.

    Attributes:
        git_dir: absolute path of this worktree's administrative directory.
        common_dir: absolute path of the directory that all worktrees share; equals `git_dir` in the main worktree.
        worktree: absolute path of the top of this worktree; None in a bare repository or inside a git directory.
        object_format: "sha1" or "sha256".
        git: calls git here.
        cat_file: reads refs and objects here, through one long-lived process.
    """

    def __init__(self, git_dir: str, worktree: str | None, object_format: str = "sha1") -> None:
        self.git_dir = git_dir
        self.common_dir = common_dir(git_dir)
        self.worktree = worktree
        self.object_format = object_format
        self.git = Git(git_dir, worktree)
        self.cat_file = CatFile(self.git)
        self._has_private_dir = False

    @property
    def is_linked(self) -> bool:
        """Whether this is a linked worktree."""
        return self.git_dir != self.common_dir

    @property
    def has_reftable(self) -> bool:
        """Whether refs are kept in reftables rather than in files."""
        return os.path.isdir(os.path.join(self.common_dir, "reftable"))

    @property
    def private_dir(self) -> str:
        """Where derived data and logs live; everything in it may be deleted at any time."""
        return os.path.join(self.common_dir, "ckpt")

    def make_private_dir(self) -> str:
        """Returns `private_dir`, created where it was missing.

        Raises:
            RepositoryError: it cannot be created.
        """
        if self._has_private_dir:
            return self.private_dir
        try:
            os.makedirs(self.private_dir, exist_ok=True)
            self._has_private_dir = True
        except OSError as error:
            raise RepositoryError(
                f"cannot write to {self.common_dir}: {error.strerror}", hint=f"make it writable: chmod -R u+w {self.common_dir}"
            ) from None
        return self.private_dir

    def close(self) -> None:
        """Ends the long-lived process."""
        self.cat_file.close()


def open_repository(path: str = ".") -> Repository:
    """Returns what `discover` does, after a look at the version of git.

    Raises:
        RepositoryError: there is none, git refuses it, or git is too old.
    """
    ask_version()
    try:
        return discover(path)
    finally:
        require_git()  # if it is too old, that is why


def discover(path: str = ".") -> Repository:
    """Returns the repository that `path` is in, found as git finds it (`GIT_DIR` and the like are respected).

    Raises:
        RepositoryError: there is none, git refuses it, or git itself is older than `MINIMUM`.
    """
    if not os.path.isdir(path):
        raise RepositoryError(f"no such directory: {path}")
    ask = [git_executable(), "-C", path, "rev-parse", "--path-format=absolute"]
    what = ["--is-bare-repository", "--is-inside-git-dir", "--show-object-format", "--git-dir", "--show-toplevel"]
    done = run([*ask, *what], env=environment(keep_local=True))
    # The last question is one too many where there is no worktree; the others are answered all the same.
    said = os.fsdecode(done.out).split("\n", 3)
    if done.code != 0 and len(said) < 4:
        raise _refused(path, done.complaint)
    if said[0] not in ("true", "false") or len(said) < 4:  # git before 2.31 repeats the option that it does not know
        require_git()
        raise RepositoryError(f"{git_executable()} does not answer as git does", hint="name another one in GITCKPT_GIT")
    bare, inside, object_format, rest = said
    if bare == "true" or inside == "true":
        return Repository(rest.removesuffix("\n"), None, object_format)
    if done.code != 0:
        raise _refused(path, done.complaint)
    git_dir, worktree = _two_paths(rest.removesuffix("\n"))
    return Repository(git_dir, worktree, object_format)


def _two_paths(lines: str) -> tuple[str, str]:
    """Splits two absolute paths, the first that of a directory, which a line break separates; they may hold others."""
    at = lines.find("\n/")
    while at >= 0 and not os.path.isdir(lines[:at]):
        at = lines.find("\n/", at + 1)
    return lines[:at], lines[at + 1 :]


def main_worktree(repository: Repository) -> str | None:
    """Returns the top of the repository's main worktree; None where it has none, or git does not know where it is."""
    from gitckpt.git import config

    settings = config.read(repository, r"^core\.(bare|worktree)$")
    if "core.worktree" in settings:
        return os.path.normpath(os.path.join(repository.common_dir, settings["core.worktree"][-1]))
    if settings.get("core.bare", ["false"])[-1] == "true":
        return None
    if not repository.is_linked and repository.worktree is not None:
        return repository.worktree
    parent, name = os.path.split(repository.common_dir)
    return parent if name == ".git" else None


def common_dir(git_dir: str) -> str:
    """Returns the directory that all worktrees of a repository share (gitrepository-layout(5), `commondir`)."""
    try:
        with open(os.path.join(git_dir, "commondir"), "rb") as file:
            relative = os.fsdecode(file.read().removesuffix(b"\n"))
    except FileNotFoundError:
        return git_dir
    return os.path.normpath(os.path.join(git_dir, relative))


def ask_version() -> None:
    """Asks git for its version, for `require_git` to find it out without waiting as long.

    Raises:
        CkptError: there is no git.
    """
    executable = _executable()
    if executable not in _versions and executable not in _asked:
        _asked[executable] = Child([executable[0], "version"], environment())


def require_git() -> tuple[int, ...]:
    """Returns the version of git.

    It is asked once for each executable.

    Raises:
        RepositoryError: it is older than `MINIMUM`.
        CkptError: there is no git.
    """
    executable = _executable()
    if executable in _versions:
        return _versions[executable]
    ask_version()
    said = _asked.pop(executable).communicate().out.decode("utf-8", "replace").strip()
    numbers = []
    for part in said.removeprefix("git version ").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    version = tuple(numbers)
    if version < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise RepositoryError(f"{said} is too old", hint=f"install git {wanted} or newer, or name one in GITCKPT_GIT")
    _versions[executable] = version
    return version


def _executable() -> tuple[str, str]:
    return git_executable(), os.environ.get("PATH", "")


def _refused(path: str, said: str) -> RepositoryError:
    where = os.path.abspath(path)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = lines[0].removeprefix("fatal: ") if lines else "git gave no reason"
    if first.endswith(":"):
        first = " ".join([first, ", ".join(lines[1:])])
    if "not a git repository" in said:
        return RepositoryError(f"not in a git repository: {where}", hint="go to one, or make one: git init")
    cure = next((line for line in lines if line.startswith("git config")), None)
    return RepositoryError(f"git refuses the repository at {where}: {first}", hint=cure)
