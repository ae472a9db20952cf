"""Start processes of gitckpt quickly, by forking one that has it loaded.

Other tests cover the start of the program.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent

SERVER = """
import gc, importlib, json, os, pkgutil, resource, select, signal, sys
import sqlite3, tomllib, typer
import gitckpt, gitckpt.__main__

for module in pkgutil.walk_packages(gitckpt.__path__, "gitckpt."):
    if module.name not in ("gitckpt.git.objects.libgit2", "gitckpt.__main__"):  \
# libgit2 reads HOME when it is imported
        importlib.import_module(module.name)
gc.freeze()

def child(argv, script, directory, env, given, out, err, limits):
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, name), (most, most))
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(env)
    for fd, path in ((0, given), (1, out), (2, err)):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, fd)
        os.close(file)
    if os.isatty(1):  # streams know from the beginning whether they are on a terminal
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            was = getattr(sys, name)
            setattr(sys, name, open(was.fileno(), mode, encoding=was.encoding, errors=was.errors, \
closefd=False))
    sys.argv = argv
    if script is None:
        gitckpt.__main__.main()
    try:
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        os._exit(end.code or 0)
    sys.stdout.flush()
    os._exit(0)

ended, ending = os.pipe()
os.set_blocking(ending, False)
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.set_wakeup_fd(ending, warn_on_full_buffer=False)

def outcome(pid):
    # If the tests die meanwhile, so does the child.
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
        elif not os.read(0, 1):
            os.kill(pid, signal.SIGKILL)
            os._exit(1)

orders = b""
while chunk := os.read(0, 65536):
    orders += chunk
    if not orders.endswith(b"\\n"):
        continue
    line, orders = orders, b""
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            child(**json.loads(line))
        except BaseException:
            import traceback
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    os.write(1, b"%d\\n" % outcome(pid))
"""


class Done(NamedTuple):
    """The result of a process: its exit code (negative for a signal) and output."""

    code: int
    out: str
    err: str


class _Server:
    """A process that forks other processes, one at a time."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="forked-"))
        self._number = 0
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def run(
        self,
        argv: list[str],
        script: str | None,
        directory: Path,
        env: Mapping[str, str],
        terminal: str | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> Done:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # A background process may still write to the files of an earlier call.
        self._number += 1
        paths = [self._directory / f"{name}-{self._number}" for name in ("out", "err")]
        given, out, err = [terminal] * 3 if terminal else [os.devnull, *map(str, paths)]
        order: dict[str, object] = {
            "argv": argv,
            "script": script,
            "directory": str(directory),
            "env": dict(env),
        }
        order |= {"given": given, "out": out, "err": err, "limits": dict(limits or {})}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the server has ended"
        if terminal:
            return Done(int(answer), "", "")
        said = [path.read_text(encoding="utf-8", errors="surrogateescape") for path in paths]
        for path in paths:
            path.unlink()
        return Done(int(answer), *said)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


_servers: list[_Server] = []


def _server() -> _Server:
    if not _servers:
        _servers.append(_Server())
    return _servers[0]


@atexit.register
def close() -> None:
    """Stop the process that forks the others; the next call starts a new one."""
    while _servers:
        _servers.pop().close()


def git_ckpt(
    *args: str,
    directory: Path,
    env: Mapping[str, str] | None = None,
    terminal: str | None = None,
    limits: Mapping[str, int] | None = None,
) -> Done:
    """Run `git ckpt` with empty standard input.

    Args:
        args: the arguments of `git ckpt`.
        directory: the current directory.
        env: the whole environment; that of the test by default.
        terminal: a device to use for standard input, output and error.
        limits: limits of resources, by their names in the module `resource`.
    """
    return _server().run(
        ["git-ckpt", *args], None, directory, os.environ if env is None else env, terminal, limits
    )


def script(text: str, *args: str, env: Mapping[str, str]) -> Done:
    """Run a Python script in the project's directory.

    Args:
        text: the script.
        args: `sys.argv[1:]`.
        env: the whole environment.
    """
    return _server().run(["-c", *args], text, ROOT, env)


TOGETHER = """
import importlib, json, multiprocessing, sys
jobs = [(getattr(importlib.import_module(module), name), args) for module, name, args in \
json.loads(sys.argv[1])]
if len(jobs) == 1:
    [(work, args)] = jobs
    print(json.dumps([work(*args)]))
else:
    with multiprocessing.get_context("fork").Pool(int(sys.argv[2])) as pool:
        print(json.dumps([one.get(timeout=300) for one in [pool.apply_async(work, args) \
for work, args in jobs]]))
"""


def together(
    *jobs: tuple[Callable[..., Any], tuple[Any, ...]], processes: int | None = None
) -> list[Any]:
    """Call functions in parallel processes and return their results.

    Args:
        jobs: module-level functions and their arguments; JSON must represent arguments and results.
        processes: the number of processes; one for each job by default.
    """
    said = json.dumps([(work.__module__, work.__qualname__, args) for work, args in jobs])
    done = script(TOGETHER, said, str(processes or len(jobs)), env=os.environ)
    assert done.code == 0, done
    return list(json.loads(done.out))
