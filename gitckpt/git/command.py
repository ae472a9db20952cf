"""Run git commands in one repository, reuse idle processes, check git's version."""

from __future__ import annotations

import os
from itertools import takewhile

from gitckpt.git import process
from gitckpt.git.process import Child, GitError, ProcResult, git_environment, git_executable
from gitckpt.model.errors import RepositoryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Args = Sequence[str]
    Codes = Sequence[int]
    Env = Mapping[str, str] | None
    Input = bytes | Iterable[bytes]
    Counted = Callable[[int, int], object]  # receives the number of items done, and the total

_MINIMUM = (2, 39)


def config_options(*settings: str) -> tuple[str, ...]:
    return tuple(argument for setting in settings for argument in ("-c", setting))


# For commands that write: by default git flushes neither loose objects nor refs.
_FSYNC = "core.fsync=committed,loose-object,index,reference"
DURABLE = config_options(_FSYNC, "core.fsyncMethod=fsync")
# For commands that walk a whole repository: a tenth of the memory, no more time. By default, git
# maps all of each pack.
_SMALL_WINDOW = ("core.packedGitWindowSize=1m", "core.packedGitLimit=32m")
LEAN = config_options(*_SMALL_WINDOW, "core.deltaBaseCacheLimit=16m")
# For commands that read many objects: packs may be larger than memory, so map less of them.
BOUNDED = config_options("core.packedGitWindowSize=8m", "core.packedGitLimit=64m")
# For commands that read contents of any size: git then holds no large file in memory.
STREAMED = ("-c", "core.bigFileThreshold=32m", *BOUNDED)
# Options of every call, so that settings cannot change what these do.
# `tests/store/config/test_user_settings.py` covers the other settings.
_FIXED = config_options(
    "core.fsmonitor=false",  # else git starts the user's program, which may stay
    "core.warnAmbiguousRefs=false",  # else git looks six times for a ref named like an oid
    "submodule.recurse=false",  # else `read-tree -u` overwrites uncommitted work in submodules
    "core.ignoreStat=false",  # else git assumes that written files stay unchanged
)
# For commands that change files or an index: these are no events for the user's hooks.
# Hooks in the configuration (git 2.54 and later) are disabled by event.
_CONFIGURED_HOOKS = ("hook.post-index-change.enabled=false", "hook.post-checkout.enabled=false")
NO_HOOKS = config_options("core.hooksPath=/dev/null", *_CONFIGURED_HOOKS)
STATUS = (
    *("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all"),
    *("--no-renames", "--no-ahead-behind", "--ignore-submodules=none"),
)
# Variables for the user's own commands: pathspec matching, dates, source of attributes.
_USER_VARIABLES = (
    *("GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
    *("GIT_COMMITTER_DATE", "GIT_AUTHOR_DATE", "GIT_ATTR_SOURCE"),
)


# Variables for progress lines: without a delay, and each on one line.
_WITH_PROGRESS = {"GIT_PROGRESS_DELAY": "0", "COLUMNS": "80"}
_PORTION = 4096  # bytes of paths that are written at once, and that git reads at once


# Input of git's `-z --stdin`.
def encode_paths(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


_versions: dict[tuple[str, str], tuple[int, ...]] = {}


class GitRunner:
    """Run git in one repository; environment variables such as GIT_DIR are ignored."""

    def __init__(self, git_dir: str, worktree: str | None) -> None:
        self._prefix = [git_executable(), *_FIXED, f"--git-dir={git_dir}"]
        self._prefix += ["-C", worktree or git_dir]
        if worktree is not None:
            self._prefix.append(f"--work-tree={worktree}")

    def run(
        self,
        *args: str,
        data: bytes = b"",
        env: Env = None,
        ok: Codes = (0,),
        locks: bool = False,
        deadline: float | None = None,
        progress: Counted | None = None,
    ) -> ProcResult:
        """Run a git command; raise `GitError` unless its exit code is in `ok`.

        `progress` receives the number of paths in `data` (see `encode_paths`) that git has read,
        or without `data` the numbers in git's progress lines, if `args` make git print them.
        """
        if progress is None:
            child = self._start_child(args, env, locks=locks, own_group=deadline is not None)
            return self.wait_and_check(child, args, data=data, ok=ok, deadline=deadline)
        counter, env = _ProgressCounter(progress), {**(env or {}), **_WITH_PROGRESS}
        child = self._start_child(args, env, locks=locks, own_group=deadline is not None)
        child.shrink_input_pipe(_PORTION)
        portions = counter.count_paths(data)
        return self.wait_and_check(
            child, args, data=portions, ok=ok, deadline=deadline, counter=counter
        )

    def stream_lines(
        self,
        *args: str,
        handle: Callable[[list[bytes]], object],
        data: Input = b"",
        ok: Codes = (0,),
        deadline: float | None = None,
    ) -> ProcResult:
        """Run a git command and pass its output to `handle`, several lines per call."""
        partial_line = b""

        def split_chunk(chunk: bytes) -> None:
            nonlocal partial_line
            *lines, partial_line = (partial_line + chunk).split(b"\n")
            handle(lines)

        # Otherwise git writes line by line, a million times for a million commits.
        child = self._start_child(args, {"GIT_FLUSH": "0"}, own_group=deadline is not None)
        return self.wait_and_check(
            child, args, data=data, ok=ok, deadline=deadline, handle=split_chunk
        )

    @staticmethod
    def wait_and_check(
        child: Child,
        args: Args,
        *,
        data: Input = b"",
        ok: Codes = (0,),
        deadline: float | None = None,
        handle: Callable[[bytes], object] | None = None,
        counter: _ProgressCounter | None = None,
    ) -> ProcResult:
        handle_errors = None if counter is None else counter.count_in_lines
        try:
            result = child.communicate(data, deadline, handle, handle_errors)
        except BaseException:
            child.terminate_and_close()  # after an interrupt, git would block on its output
            raise
        if counter is not None:
            result.err = counter.end(result.err)
        if result.code not in ok:
            raise GitError(args, result.code, result.error_text)
        return result

    def run_for_text(self, *args: str) -> str:
        return os.fsdecode(self.run(*args).out.removesuffix(b"\n"))

    def start_git(self, *args: str, env: Env = None) -> Child:
        return self._start_child(args, env, own_group=True)

    def _start_child(self, args: Args, env: Env, *, own_group: bool, locks: bool = False) -> Child:
        may_fetch = env is not None and env.items() >= process.MAY_FETCH.items()
        variables = git_environment(env if may_fetch else {**process.OFFLINE, **(env or {})})
        for name in set(_USER_VARIABLES).difference(env or ()):
            variables.pop(name, None)
        # With git-replace(1), a restored file could have another content than the saved one.
        variables["GIT_NO_REPLACE_OBJECTS"] = "1"
        if not locks:
            variables["GIT_OPTIONAL_LOCKS"] = "0"
        return Child([*self._prefix, *args], variables, own_group=own_group)


class _ProgressCounter:
    """Report how many files git has read or written so far."""

    def __init__(self, progress: Counted) -> None:
        import re  # only at a terminal

        self._progress, self._total = progress, 0
        self._line = re.compile(
            rb"(?:Updating files|Filtering content): +\d+% \((\d+)/(\d+)\)[^\r\n]*[\r\n]?"
        )

    def count_paths(self, paths: bytes) -> Iterator[bytes]:
        self._total, count, counted_end = paths.count(b"\0"), 0, 0
        for start in range(0, len(paths), _PORTION):
            read_end = max(start - 2 * _PORTION, 0)  # the pipe and git's buffer hold the rest
            count += paths.count(b"\0", counted_end, read_end)
            counted_end = read_end
            self._progress(count, self._total)
            yield paths[start : start + _PORTION]

    def count_in_lines(self, errors: bytes) -> None:
        # A line may be cut by the end of the chunk: the next line is as good.
        if numbers := self._line.findall(errors):
            count, self._total = map(int, numbers[-1])
            self._progress(count, self._total)

    def end(self, errors: bytes) -> bytes:
        """Report the end, and return git's standard error without progress lines."""
        if self._total:
            self._progress(self._total, self._total)
        return self._line.sub(b"", errors)


def start_git_version() -> Child | None:
    """Start the process `git version`; return None if its answer is already cached."""
    executable = _version_cache_key()
    return None if executable in _versions else Child([executable[0], "version"], git_environment())


def require_git_version(child: Child | None = None) -> tuple[int, ...]:
    """Read git's version from `child` or a cache; raise `RepositoryError` if too old."""
    executable = _version_cache_key()
    if child is None and executable in _versions:
        return _versions[executable]
    child = child or Child([executable[0], "version"], git_environment())
    result = child.communicate()
    if result.code < 0:
        message = f"git version was killed by signal {-result.code}"
        raise RepositoryError(message, hint="run the command again")
    reply = result.out.decode("utf-8", "replace").strip()
    parts = reply.removeprefix("git version ").split(".")
    version = tuple(int(part) for part in takewhile(str.isdigit, parts))
    if version < _MINIMUM:
        minimum = ".".join(map(str, _MINIMUM))
        hint = f"install git {minimum} or newer, or set GITCKPT_GIT to the path of a newer one"
        raise RepositoryError(f"{reply} is too old", hint=hint)
    _versions[executable] = version
    return version


def _version_cache_key() -> tuple[str, str]:
    return git_executable(), os.environ.get("PATH", "")


class StandbyProcess:
    """Keep one idle process for reuse; give each process to one thread at a time."""

    def __init__(self, start: Callable[[], Child]) -> None:
        self._start = start
        self._idle: list[Child] = []

    def take_process(self) -> Child:
        while True:
            try:
                child = self._idle.pop()
            except IndexError:
                return self._start()
            if child.owner == os.getpid() and child.is_running():
                return child
            child.close()

    def give_back_process(self, child: Child) -> None:
        # The process must have no pending output.
        if self._idle:
            child.terminate_and_close()
        else:
            self._idle.append(child)

    def start_idle_process(self) -> None:
        self.give_back_process(self.take_process())

    def close(self) -> None:
        while self._idle:
            self._idle.pop().terminate_and_close()
