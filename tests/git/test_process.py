"""`process` is the only module that starts processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gitckpt import CkptError, GitError
from gitckpt.git.command import StandbyProcess
from gitckpt.git.process import Child, git_executable, run_attached, run_program, start_detached
from gitckpt.git.repository import discover_repository
from tests.conftest import Checkout, repository_of

ROOT = Path(__file__).parents[2]
SCREAM = "import sys; sys.stderr.buffer.write(b'e' * 3_000_000); sys.stderr.flush(); print('done')"


def alive(pid: int) -> bool:
    """Return whether a process exists on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def python(script: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", script]


def start(script: str) -> Child:
    return Child(python(script), dict(os.environ))


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def children_of_ours() -> set[str]:
    """Return the child processes not waited for yet, zombies included."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                parent = file.read().rpartition(")")[2].split()[1]
        except OSError:
            continue  # it has just ended
        if int(parent) == os.getpid():
            found.add(pid)
    return found


class TestInParts:
    @pytest.mark.long
    def test_more_than_a_pipe_holds_goes_in_and_comes_out(self) -> None:
        came: list[bytes] = []
        echo = start("import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)")
        done = echo.communicate((b"%07d\n" % number for number in range(100_000)), into=came.append)
        assert (done.code, done.out, b"".join(came)) == (
            0,
            b"",
            b"".join(b"%07d\n" % number for number in range(100_000)),
        )

    def test_who_does_not_listen_to_all_of_it_is_waited_for(self) -> None:
        done = start("print('enough')").communicate(b"x" * 1000 for _ in range(1000))
        assert (done.code, done.out) == (0, b"enough\n")

    def test_git_does_not_write_line_by_line(self, main_checkout: Checkout) -> None:
        said: list[bytes] = []
        discover_repository(str(main_checkout.path)).git.stream_lines(
            "-c", "alias.say=!printenv GIT_FLUSH", "say", handle=said.extend
        )
        assert said == [b"0"]


class TestRun:
    def test_gives_code_output_and_complaints(self) -> None:
        done = run_program(
            python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
        )
        assert (done.code, done.out, done.err, done.error_text) == (3, b"out\n", b"err\n", "err\n")

    def test_hands_over_the_input(self) -> None:
        done = run_program(["cat"], data=b"\0\xff\n")
        assert (done.code, done.out, done.err) == (0, b"\0\xff\n", b"")

    def test_input_ends_where_none_is_given(self) -> None:
        assert run_program(["cat"]).out == b""

    def test_much_in_and_out_at_once(self) -> None:
        data = os.urandom(1 << 20) * 8
        assert run_program(["cat"], data=data).out == data

    def test_much_on_all_three_streams_at_once(self) -> None:
        data = b"x" * 3_000_000
        done = run_program(
            python(
                "import sys\nfor line in iter(lambda: sys.stdin.buffer.read(9999), b''):\n"
                " sys.stdout.buffer.write(line); sys.stderr.buffer.write(line)"
            ),
            data=data,
        )
        assert (done.code, done.out, done.err) == (0, data, data)

    def test_a_program_that_does_not_read_its_input(self) -> None:
        done = run_program(python("print('enough')"), data=b"x" * 3_000_000)
        assert (done.code, done.out) == (0, b"enough\n")

    def test_a_program_that_closes_its_input(self) -> None:
        done = run_program(python("import os; os.close(0); print('enough')"), data=b"x" * 3_000_000)
        assert (done.code, done.out) == (0, b"enough\n")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGPIPE])
    def test_a_signal_is_a_negative_code(self, number: signal.Signals) -> None:
        assert run_program(["sh", "-c", f"kill -{int(number)} $$"]).code == -number

    def test_a_broken_pipe_ends_the_program_as_in_a_shell(self) -> None:
        # Python ignores SIGPIPE and would pass that on.
        assert run_program(["sh", "-c", "yes | head -n 1; trap"]).out == b"y\n"

    def test_a_program_that_is_missing(self) -> None:
        before = open_files()
        with pytest.raises(CkptError) as caught:
            run_program(["no-such-program"])
        assert (caught.value.message, caught.value.hint, caught.value.exit_code) == (
            "cannot start no-such-program: No such file or directory",
            "install no-such-program, or put it on PATH",
            1,
        )
        assert open_files() == before

    def test_one_that_is_there_need_not_be_installed(self) -> None:
        with pytest.raises(CkptError) as caught:
            run_program(["true", "x" * 3_000_000])
        assert (caught.value.message, caught.value.hint) == (
            "cannot start true: Argument list too long",
            None,
        )

    def test_uses_the_environment_it_is_given(self) -> None:
        assert run_program(
            ["env"], env={"ONLY": "this", "PATH": os.environ["PATH"]}
        ).out.splitlines() == [
            b"ONLY=this",
            b"PATH=" + os.environ["PATH"].encode(),
        ]

    def test_leaves_no_open_files_and_no_zombies(self) -> None:
        before, children = open_files(), children_of_ours()
        for _ in range(5):
            run_program(["true"])
        assert (open_files(), children_of_ours()) == (before, children)

    def test_works_without_standard_streams(self) -> None:
        script = (
            "import os\nfor fd in (0, 1, 2): os.close(fd)\n"
            "from gitckpt.git.process import run_program\n"
            "done = run_program(['sh', '-c', 'cat; echo err >&2'], data=b'in')\n"
            "os._exit(0 if (done.code, done.out, done.err) == (0, b'in', b'err\\n') else 1)\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


class TestChild:
    def test_answers_line_by_line_and_by_size(self) -> None:
        child = start("import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)")
        child.write_input(b"one\ntwo\nthree\n")
        answers = [child.read_output_line(), child.read_output(4), child.read_output_line()]
        child.write_input(b"four\n")
        answers += [child.read_output(5)]
        assert (answers, child.close()) == ([b"ONE", b"TWO\n", b"THREE", b"FOUR\n"], 0)

    def test_the_end_of_its_output(self) -> None:
        child = start("print('whole'); print('half', end='')")
        assert [
            child.read_output_line(),
            child.read_output(100),
            child.read_output_line(),
            child.read_output(1),
        ] == [
            b"whole",
            b"half",
            b"",
            b"",
        ]
        assert child.close() == 0

    def test_complaints_do_not_block_it_while_we_wait_for_lines(self) -> None:
        child = start(SCREAM)
        assert (child.read_output_line(), child.close()) == (b"done", 0)

    def test_complaints_do_not_block_it_while_we_wait_for_bytes(self) -> None:
        child = start(SCREAM)
        assert (child.read_output(5), child.close()) == (b"done\n", 0)

    def test_complaints_from_before_are_kept(self) -> None:
        child = start(
            "import sys; print('first', file=sys.stderr, flush=True); "
            "print('line', flush=True); input(); sys.exit('last')"
        )
        line = child.read_output_line()
        done = child.communicate(b"go\n")
        assert (line, done.code, done.out, done.err) == (b"line", 1, b"", b"first\nlast\n")

    def test_writing_to_one_that_has_ended(self) -> None:
        child = start("import os; os.close(0); print('closed', flush=True)")
        child.read_output_line()
        with pytest.raises(BrokenPipeError):
            child.write_input(b"x" * 100_000)
        assert child.close() == 0

    def test_stop_ends_one_that_would_not_end(self) -> None:
        child = start("import time\nprint('ready', flush=True)\nwhile True: time.sleep(9)")
        child.read_output_line()
        child.terminate_and_close()
        assert not alive(child.pid)

    def test_stop_of_one_that_has_ended(self) -> None:
        child = start("pass")
        child.read_output_line()
        child.terminate_and_close()
        child.terminate_and_close()
        assert not alive(child.pid)

    def test_a_fork_does_not_wait_for_it(self) -> None:
        child = start("input()")
        pid = os.fork()
        if pid == 0:
            os._exit(child.close())
        assert os.waitpid(pid, 0)[1] == 0
        child.write_input(b"\n")
        assert child.close() == 0


class TestStandby:
    def test_one_process_serves_many_uses(self) -> None:
        standby = StandbyProcess(lambda: start("input()"))
        pids = []
        for _ in range(3):
            child = standby.take_process()
            pids.append(child.pid)
            standby.give_back_process(child)
        standby.close()
        assert len(set(pids)) == 1
        assert not alive(pids[0])

    def test_nested_uses_have_one_each_and_only_one_is_kept(self) -> None:
        standby = StandbyProcess(lambda: start("input()"))
        outer, inner = standby.take_process(), standby.take_process()
        standby.give_back_process(inner)
        standby.give_back_process(outer)
        assert (outer.pid != inner.pid, alive(inner.pid), alive(outer.pid)) == (True, True, False)
        standby.close()
        assert not alive(inner.pid)

    def test_one_that_was_killed_is_replaced(self) -> None:
        standby = StandbyProcess(lambda: start("print(input())"))
        first = standby.take_process()
        standby.give_back_process(first)
        os.kill(first.pid, signal.SIGKILL)
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        second = standby.take_process()
        assert second is not first
        second.write_input(b"here\n")
        assert second.read_output_line() == b"here"
        assert str(first.pid) not in children_of_ours()
        second.close()

    def test_one_that_was_warmed_up_stands_by(self) -> None:
        standby = StandbyProcess(lambda: start("input()"))
        standby.start_idle_process()
        standby.start_idle_process()
        (waiting,) = standby._idle
        taken = standby.take_process()
        taken.terminate_and_close()
        assert taken is waiting


class TestRunAttached:
    def test_uses_our_own_streams(self) -> None:
        script = (
            "import os, sys\n"
            "from gitckpt.git.process import run_attached\n"
            "sys.exit(run_attached(['sh', '-c', sys.argv[1]], dict(os.environ)))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, "cat; echo err >&2; exit 3"],
            input=b"in\n",
            capture_output=True,
            check=False,
            cwd=ROOT,
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, b"in\n", b"err\n")

    def test_a_signal_is_a_negative_code(self) -> None:
        assert run_attached(["sh", "-c", "kill -9 $$"], dict(os.environ)) == -9

    def test_a_program_that_is_missing(self) -> None:
        with pytest.raises(
            CkptError, match=r"^cannot start no-such-program: No such file or directory$"
        ):
            run_attached(["no-such-program"], dict(os.environ))


class TestDetach:
    def test_its_caller_does_not_wait_for_it(self, tmp_path: Path) -> None:
        go, done = tmp_path / "go", tmp_path / "done"
        os.mkfifo(go)
        script = (
            "import os, sys\n"
            "from gitckpt.git.process import start_detached\n"
            "start_detached(['sh', '-c', 'read line <\"$1\"; echo \"$line\" >\"$2\"', "
            "'sh', *sys.argv[1:]], dict(os.environ))\n"
            "print('back')\n"
        )
        caller = subprocess.run(
            [sys.executable, "-c", script, str(go), str(done)],
            capture_output=True,
            check=True,
            cwd=ROOT,
        )
        returned_before_its_end = not done.exists()
        os.mkfifo(done)
        go.write_text("finished\n")
        assert (caller.stdout, caller.stderr, returned_before_its_end, done.read_text()) == (
            b"back\n",
            b"",
            True,
            "finished\n",
        )

    def test_it_has_nothing_of_ours(self, tmp_path: Path) -> None:
        answer = tmp_path / "answer"
        os.mkfifo(answer)
        script = (
            "import os, sys\n"
            "streams = [os.readlink(f'/proc/self/fd/{fd}') for fd in (0, 1, 2)]\n"
            "print(streams, os.getsid(0) == os.getpid(), os.environ.get('ONLY'), "
            "file=open(sys.argv[1], 'w'))\n"
        )
        start_detached([*python(script), str(answer)], {"ONLY": "this", "PATH": os.environ["PATH"]})
        assert answer.read_text() == "['/dev/null', '/dev/null', '/dev/null'] True this\n"
        os.wait()

    def test_a_program_that_is_missing(self) -> None:
        with pytest.raises(
            CkptError, match=r"^cannot start no-such-program: No such file or directory$"
        ):
            start_detached(["no-such-program"], dict(os.environ))


class TestGitError:
    def test_names_the_command_and_joins_what_it_said(self) -> None:
        error = GitError(
            ["-c", "core.fsync=all", "update-ref", "--stdin"],
            128,
            "fatal: one\n\n  two\n",
            hint="try",
        )
        assert (str(error), error.hint, error.code, error.stderr, error.exit_code) == (
            "git update-ref failed: fatal: one; two",
            "try",
            128,
            "fatal: one\n\n  two\n",
            1,
        )

    def test_without_a_word_it_gives_the_code(self) -> None:
        assert str(GitError(["gc"], -9, "")) == "git gc failed: killed by signal 9"
        assert (
            str(GitError(["-C", "/a/place", "--work-tree=/a/place", "status"], 1, "no"))
            == "git status failed: no"
        )

    @pytest.mark.parametrize("line", ["garbage\n", "1" * 40 + " refs/heads/cut-off"])
    def test_a_line_of_packed_refs_that_is_broken(self, main_checkout: Checkout, line: str) -> None:
        """Each command that reads refs fails then, `doctor` included."""
        main_checkout.git("pack-refs", "--all")
        with open(main_checkout.path / ".git/packed-refs", "a") as file:
            file.write(line)
        repository = repository_of(main_checkout)
        with pytest.raises(GitError) as caught:
            repository.git.run("for-each-ref")
        repository.close()
        assert (
            f"line in {main_checkout.path}/.git/packed-refs: {line.strip()}" in caught.value.message
        )
        assert str(caught.value.hint).startswith("copy packed-refs, delete that line")


def test_git_executable_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITCKPT_GIT", raising=False)
    default = git_executable()
    monkeypatch.setenv("GITCKPT_GIT", "")
    empty = git_executable()
    monkeypatch.setenv("GITCKPT_GIT", "/opt/git")
    assert [default, empty, git_executable()] == ["git", "git", "/opt/git"]


MODULES = (
    "process",
    "repository",
    "catfile",
    "refs",
    "notes",
    "objects",
    "objects.plumbing",
    "lock",
    "config",
    "packing",
    "objects.encoding",
)
HEAVY = {
    "re",
    "typing",
    "dataclasses",
    "datetime",
    "json",
    "enum",
    "subprocess",
    "pathlib",
    "contextlib",
    "hashlib",
    "pygit2",
    "signal",
    "tempfile",
}


@pytest.mark.parametrize("module", MODULES)
def test_importing_is_light(module: str) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import gitckpt.git.{module}; "
        "print(*sys.modules)"
    )
    loaded = run_program(python(script)).out.decode().split()
    assert f"gitckpt.git.{module}" in loaded
    assert HEAVY.intersection(loaded) == set()


def test_polling_is_there() -> None:
    """The module needs `poll`, which some platforms lack."""
    assert hasattr(select, "poll")
