"""Calls git in one repository, keeps those of its processes that serve many calls, and knows which version it is."""

from __future__ import annotations

import os

from gitckpt.git.process import MAY_FETCH, OFFLINE, Child, Completed, GitError, environment, git_executable
from gitckpt.model.errors import RepositoryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


_MINIMUM = (2, 39)
"""The oldest git that is supported."""


DURABLE = ("-c", "core.fsync=committed,loose-object,index,reference", "-c", "core.fsyncMethod=fsync")
"""Options for git commands that write: by default git flushes neither loose objects nor refs. It never flushes directories."""


LEAN = (
    *("-c", "core.packedGitWindowSize=1m", "-c", "core.packedGitLimit=32m"),  # else all of each pack is mapped
    *("-c", "core.deltaBaseCacheLimit=16m"),
)
"""Options for git commands that walk through a whole repository: a tenth of the memory, and no more time."""


BOUNDED = ("-c", "core.packedGitWindowSize=8m", "-c", "core.packedGitLimit=64m")
"""Options for git commands that read many objects of a repository, whose packs may be larger than the memory: no more of them is mapped."""

STREAMED = ("-c", "core.bigFileThreshold=32m", *BOUNDED)
"""The same for those that read contents of any size: git has no large file in memory as a whole."""

_OURS = (
    *("-c", "core.fsmonitor=false"),  # a program of the user's that git starts, and that may stay
    *("-c", "core.warnAmbiguousRefs=false"),  # an oid is an oid: git looks six times for a ref with such a name, to warn of it
    *("-c", "submodule.recurse=false"),  # else `read-tree -u` overwrites what is not committed in a submodule, and fails without one
    *("-c", "core.ignoreStat=false"),  # else each file that is written is assumed to be unchanged from then on
)
"""Options of every call: what settings may not change. `tests/store/test_user_settings.py` tries the others."""

NO_HOOKS = (
    *("-c", "core.hooksPath=/dev/null"),
    # Those in the configuration, from git 2.54 on, are switched off by their events.
    *("-c", "hook.post-index-change.enabled=false", "-c", "hook.post-checkout.enabled=false"),
)
"""Options for git commands that change files or an index: what happens there is no event of the user's."""

_THEIRS = (
    *("GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
    *("GIT_COMMITTER_DATE", "GIT_AUTHOR_DATE", "GIT_ATTR_SOURCE"),
)
"""Variables for what people call themselves: how paths are matched, when they commit, whose attributes count."""


_versions: dict[tuple[str, str], tuple[int, ...]] = {}


class Git:
    """Calls git in one repository, whatever the caller's environment says.

    Args:
        git_dir: absolute path of the repository or of a linked worktree's administrative directory.
        worktree: absolute path of the top of the worktree; None where there is none.
    """

    def __init__(self, git_dir: str, worktree: str | None) -> None:
        self._prefix = [git_executable(), *_OURS, f"--git-dir={git_dir}", "-C", worktree or git_dir]
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
        most: int | None = None,
    ) -> Completed:
        """Runs one git command.

        Args:
            args: options and command.
            data: its standard input.
            env: variables to set beside those of `environment()`.
            ok: the exit codes that are no failure.
            locks: whether it may take optional locks, that is, refresh the index on disk.
            deadline: when to end it, on the clock of `time.monotonic`.
            most: after how many bytes of output to end it, by SIGTERM.

        Raises:
            GitError: another exit code.
            DeadlinePassed: it took longer.
        """
        child = Child([*self._prefix, *args], self._environment(env, locks=locks), own_group=deadline is not None)
        return self.finish(child, args, data=data, ok=ok, deadline=deadline, most=most)

    def each_line(
        self,
        *args: str,
        take: Callable[[list[bytes]], object],
        data: bytes | Iterable[bytes] = b"",
        env: Mapping[str, str] | None = None,
        ok: Sequence[int] = (0,),
        deadline: float | None = None,
    ) -> Completed:
        """Runs one git command that says more than has to be in memory at once.

        Args:
            args: options and command.
            take: is given some lines of its output at a time, without their ends.
            data: its standard input; if it comes in parts, none of them is empty.
            env: variables to set beside those of `environment()`.
            ok: the exit codes that are no failure.
            deadline: when to end it, on the clock of `time.monotonic`.

        Returns:
            What it said besides.

        Raises:
            GitError: another exit code.
            DeadlinePassed: it took longer.
        """
        rest = b""

        def into(chunk: bytes) -> None:
            nonlocal rest
            *lines, rest = (rest + chunk).split(b"\n")
            take(lines)

        env = {"GIT_FLUSH": "0", **(env or {})}  # git writes line by line otherwise, a million times for a million commits
        child = Child([*self._prefix, *args], self._environment(env, locks=False), own_group=deadline is not None)
        try:
            done = child.communicate(data, deadline, into=into)
        except BaseException:
            child.stop()  # as in `finish`
            raise
        if done.code not in ok:
            raise GitError(args, done.code, done.complaint)
        return done

    @staticmethod
    def finish(
        child: Child,
        args: Sequence[str],
        *,
        data: bytes = b"",
        ok: Sequence[int] = (0,),
        deadline: float | None = None,
        most: int | None = None,
    ) -> Completed:
        """Waits for a command that was started, and returns what it said. Args and errors: as `run`."""
        try:
            done = child.communicate(data, deadline, most)
        except BaseException:
            child.stop()  # an interrupt: nobody listens to it any more, and it would wait for that, and its pipes stay open here
            raise
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
        may_fetch = env is not None and env.items() >= MAY_FETCH.items()
        whole = environment(env if may_fetch else {**OFFLINE, **(env or {})})
        for name in _THEIRS:
            if env is None or name not in env:
                whole.pop(name, None)
        whole["GIT_NO_REPLACE_OBJECTS"] = "1"  # an object is what its oid says (git-replace(1)): a file would come back as another one
        if not locks:
            whole["GIT_OPTIONAL_LOCKS"] = "0"
        return whole


def ask_version() -> Child | None:
    """Returns git as it is being asked for its version, for `require_git`; None where the answer is known.

    Raises:
        CkptError: there is no git.
    """
    executable = _executable()
    return None if executable in _versions else Child([executable[0], "version"], environment())


def require_git(asked: Child | None = None) -> tuple[int, ...]:
    """Returns the version of git.

    It is asked once for each executable.

    Args:
        asked: what `ask_version` returned, so that nobody waits longer than for what git did meanwhile.

    Raises:
        RepositoryError: it is older than `_MINIMUM`.
        CkptError: there is no git.
    """
    executable = _executable()
    if asked is None and executable in _versions:
        return _versions[executable]
    asked = asked or Child([executable[0], "version"], environment())
    done = asked.communicate()
    if done.code < 0:
        raise RepositoryError(f"git was killed by signal {-done.code} when it was asked for its version", hint="run the command again")
    said = done.out.decode("utf-8", "replace").strip()
    numbers = []
    for part in said.removeprefix("git version ").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    version = tuple(numbers)
    if version < _MINIMUM:
        wanted = ".".join(map(str, _MINIMUM))
        raise RepositoryError(f"{said} is too old", hint=f"install git {wanted} or newer, or name one in GITCKPT_GIT")
    _versions[executable] = version
    return version


def _executable() -> tuple[str, str]:
    return git_executable(), os.environ.get("PATH", "")


class Standby:
    """A long-lived process between its uses. Whoever takes it has it alone, so threads, forks and nested uses never share one.

    Args:
        start: starts one.
    """

    def __init__(self, start: Callable[[], Child]) -> None:
        self._start = start
        self._idle: list[Child] = []

    def take(self) -> Child:
        """Returns the process that stands by, or a new one. It is to be given back, stopped or closed."""
        while True:
            try:
                child = self._idle.pop()
            except IndexError:
                return self._start()
            if child.owner == os.getpid() and child.is_running():
                return child
            child.close()

    def give_back(self, child: Child) -> None:
        """Keeps a process that was taken, and waits for its next question, for the next use."""
        if self._idle:
            child.stop()
        else:
            self._idle.append(child)

    def warm_up(self) -> None:
        """Starts the process now, so that it stands by when it is needed."""
        self.give_back(self.take())

    def close(self) -> None:
        """Ends the process that stands by."""
        while self._idle:
            self._idle.pop().stop()
