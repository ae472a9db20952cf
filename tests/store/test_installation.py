"""Hooks as git runs them: installed, kept beside other people's text, inspected, and taken out without a trace."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt.git.process import GitError, git_executable
from gitckpt.git.repository import Repository, discover
from gitckpt.model.errors import RepositoryError, UsageError
from gitckpt.store import hook_files
from gitckpt.store.finding import Finding
from gitckpt.store.hook_files import PACKAGE_DIR, Change, Pin
from gitckpt.store.installation import EVENTS, Installation, inspect, install, uninstall
from tests.conftest import Checkout

OLD = (2, 39, 5)
NEW = (2, 55)
USER_TEXT = '#!/bin/sh\n# mine\necho "mine: $*"\ncat\nexit 3\n'
NOTES_CHANGES = [
    "added notes.rewriteRef = refs/notes/checkpoints to the configuration",
    "added notes.rewriteMode = cat_sort_uniq to the configuration",
]

HOOK = """\
import json, os, sys

def run(argv):
    with open(os.path.join(os.path.dirname(__file__), "calls"), "a", encoding="utf-8") as file:
        file.write(json.dumps([*argv, sys.stdin.read()]) + "\\n")
    return int(os.environ.get("STANDIN_EXIT", "0"))
"""


class StandIn:
    """A package `gitckpt` whose hook writes down how it was called."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        package = directory / "gitckpt"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "hook.py").write_text(HOOK)
        self._calls = package / "calls"

    def calls(self) -> list[list[str]]:
        """Returns the calls since the last time: the arguments of each, and what its standard input held."""
        if not self._calls.exists():
            return []
        text = self._calls.read_text()
        self._calls.unlink()
        return [json.loads(line) for line in text.splitlines()]

    def install(self, repository: Repository, mode: str = "auto", version: tuple[int, ...] = OLD) -> Installation:
        return install(repository, version=version, mode=mode, package_dir=str(self.dir))

    def inspect(self, repository: Repository, version: tuple[int, ...] = OLD) -> list[Finding]:
        return inspect(repository, version=version, package_dir=str(self.dir))

    def block(self, event: str, *, created: bool = False) -> bytes:
        return Pin(sys.executable, str(self.dir)).block(event, created=created)


@pytest.fixture
def standin(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path / "lib")


@pytest.fixture(params=["files", "config"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The two ways in which git calls us; for hooks in its configuration with a git that knows them."""
    if request.param == "config":
        use_new_git(monkeypatch)
    return str(request.param)


@pytest.fixture
def new_git(monkeypatch: pytest.MonkeyPatch) -> None:
    use_new_git(monkeypatch)


def use_new_git(monkeypatch: pytest.MonkeyPatch) -> None:
    git = os.environ.get("GITCKPT_TEST_GIT")
    if not git:
        pytest.skip("GITCKPT_TEST_GIT names no git that takes hooks from its configuration (2.54 or newer)")
    monkeypatch.setenv("GITCKPT_GIT", git)


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
    """Returns configuration and hook files with their modes."""
    hooks = hooks_of(checkout)
    files = {path.name: (path.lstat().st_mode, path.read_bytes()) for path in sorted(hooks.iterdir())} if hooks.exists() else None
    return {"config": (checkout.main / ".git" / "config").read_bytes(), "hooks": files}


def git_streams(checkout: Checkout, *args: str, **env: str) -> tuple[int, str, str]:
    done = subprocess.run([git_executable(), *args], cwd=checkout.path, capture_output=True, env=os.environ | env, check=False, text=True)
    return done.returncode, done.stdout, done.stderr


def branch_off(checkout: Checkout, name: str) -> None:
    """Leaves the checkout on its branch, with one commit of its own, beside a branch with another."""
    checkout.git("-c", "core.hooksPath=/dev/null", "branch", name)
    checkout.git("checkout", "--quiet", name)
    quiet = {"GITCKPT_SKIP": "1"}
    checkout.write(f"theirs-{name}", "theirs\n")
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "-m", f"theirs {name}", env=quiet)
    checkout.git("checkout", "--quiet", "-")
    checkout.write(f"ours-{name}", "ours\n")
    checkout.git("add", "--all")
    checkout.git("commit", "--quiet", "-m", f"ours {name}", env=quiet)


def auto_gc(checkout: Checkout, **env: str) -> tuple[int, str, str]:
    """Lets git clean up in a repository that is in need of it."""
    for number in range(2):
        checkout.git("-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--allow-empty", "-m", str(number), env={"GITCKPT_SKIP": "1"})
        checkout.git("repack", "--quiet")
    return git_streams(
        checkout, "-c", "gc.auto=1000", "-c", "gc.autoPackLimit=1", "-c", "gc.autoDetach=false", "gc", "--auto", "--quiet", **env
    )


def packs(checkout: Checkout) -> int:
    return len(list((checkout.main / ".git" / "objects" / "pack").glob("*.pack")))


class TestEvents:
    def test_each_event_reaches_gitckpt_with_its_arguments(self, way: str, checkout: Checkout, standin: StandIn) -> None:
        standin.install(discover(str(checkout.path)), way, version_for(way))

        checkout.commit("one")
        assert standin.calls() == [["post-commit", ""]]

        checkout.git("commit", "--quiet", "--amend", "-m", "amended")
        assert standin.calls() == [["post-commit", ""], ["post-rewrite", "amend", ""]]

        branch_off(checkout, "merged")
        checkout.git("merge", "--quiet", "--no-edit", "merged")
        assert standin.calls() == [["post-merge", "0", ""]]

        branch_off(checkout, "squashed")
        checkout.git("merge", "--quiet", "--squash", "squashed")
        assert standin.calls() == [["post-merge", "1", ""]]
        checkout.git("reset", "--quiet", "--hard")

        branch_off(checkout, "mailed")
        patch = checkout.git("format-patch", "--stdout", "-1", "mailed") + "\n"
        checkout.git("am", "--quiet", data=patch)
        assert standin.calls() == [["post-applypatch", ""]]

        branch_off(checkout, "base")
        checkout.git("rebase", "--quiet", "--merge", "base")
        assert standin.calls() == [["post-commit", ""], ["post-rewrite", "rebase", ""]]

        branch_off(checkout, "other-base")
        checkout.git("rebase", "--quiet", "--apply", "other-base")
        assert standin.calls() == [["post-applypatch", ""], ["post-rewrite", "rebase", ""]]

        assert auto_gc(checkout) == (0, "", "")
        assert standin.calls() == [["pre-auto-gc", ""]]

    def test_the_users_text_keeps_arguments_input_output_and_exit_status(self, way: str, checkout: Checkout, standin: StandIn) -> None:
        for event in EVENTS:
            put_hook(checkout, event, USER_TEXT)
        checkout.git("notes", "--ref=checkpoints", "add", "-m", "so that git does not warn of a missing notes ref")
        without = git_streams(checkout, "commit", "--quiet", "--amend", "-m", "amended")
        old = checkout.git("rev-parse", "HEAD")
        standin.install(discover(str(checkout.path)), way, version_for(way))

        code, out, err = git_streams(checkout, "commit", "--quiet", "--amend", "-m", "amended again")

        new = checkout.git("rev-parse", "HEAD")
        assert (code, out, err) == (0, "", f"mine: \nmine: amend\n{old} {new}\n")
        assert without[0] == 0
        assert standin.calls() == [["post-commit", ""], ["post-rewrite", "amend", ""]]

    def test_a_veto_of_the_user_stays_the_last_word(self, way: str, checkout: Checkout, standin: StandIn) -> None:
        path = put_hook(checkout, "pre-auto-gc", "#!/bin/sh\nexit 1\n")
        standin.install(discover(str(checkout.path)), way, version_for(way))

        assert auto_gc(checkout) == (0, "", "")
        assert (packs(checkout), standin.calls()) == (2, [["pre-auto-gc", ""]])

        path.write_bytes(path.read_bytes().replace(b"exit 1", b"exit 0"))
        assert auto_gc(checkout, STANDIN_EXIT="1") == (0, "", "")
        assert (packs(checkout), standin.calls()) == (1, [["pre-auto-gc", ""]])

    @pytest.mark.parametrize("trouble", ["fails", "python", "package"])
    def test_trouble_of_ours_never_becomes_the_hooks(self, trouble: str, way: str, checkout: Checkout, standin: StandIn) -> None:
        python = checkout.main.parent / "python"
        python.symlink_to(sys.executable)
        install(discover(str(checkout.path)), version=version_for(way), mode=way, python=str(python), package_dir=str(standin.dir))
        missing = ""
        if trouble == "python":
            python.unlink()
            missing = str(python)
        if trouble == "package":
            shutil.rmtree(standin.dir)
            missing = f"{standin.dir}/gitckpt/hook.py"
        checkout.write("file", "text")
        checkout.git("add", "--all")

        commit = git_streams(checkout, "commit", "--quiet", "-m", "one", STANDIN_EXIT="1")
        gc = auto_gc(checkout, STANDIN_EXIT="1")

        said = "gitckpt: {}: {} is missing; run: git ckpt init\n" if missing else ""
        assert commit == (0, "", said.format("post-commit", missing))
        assert gc == (0, "", said.format("pre-auto-gc", missing))
        assert packs(checkout) == 1

    @pytest.mark.parametrize(("value", "is_called"), [("1", False), ("yes", False), ("", True), ("0", True)])
    def test_a_variable_skips_it(self, value: str, is_called: bool, way: str, main_checkout: Checkout, standin: StandIn) -> None:
        standin.install(discover(str(main_checkout.path)), way, version_for(way))
        main_checkout.git("commit", "--quiet", "--allow-empty", "-m", "one", env={"GITCKPT_SKIP": value})
        assert standin.calls() == ([["post-commit", ""]] if is_called else [])

    @pytest.mark.parametrize(
        "name", ["a b", 'it\'s "quoted" $HOME `id` \\', "new\nline", "naïve-日本", "@EVENT@ -I", "lefthook", "ckpt hook post-commit"]
    )
    def test_any_path_is_right(self, name: str, way: str, main_checkout: Checkout, tmp_path: Path) -> None:
        standin = StandIn(tmp_path / name)
        python = tmp_path / name / "python"
        python.symlink_to(sys.executable)
        repository = discover(str(main_checkout.path))
        args = {"version": version_for(way), "python": str(python), "package_dir": str(standin.dir)}
        first = install(repository, mode=way, **args)  # type: ignore[arg-type]
        again = install(repository, **args)  # type: ignore[arg-type]

        main_checkout.git("commit", "--quiet", "--allow-empty", "-m", "one")

        assert standin.calls() == [["post-commit", ""]]
        assert (first.mode, again) == (way, Installation(way, [], []))
        assert inspect(repository, **args) == []  # type: ignore[arg-type]

    def test_bytes_that_are_no_text_are_right_in_paths(self, way: str, main_checkout: Checkout, tmp_path: Path) -> None:
        standin = StandIn(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")))
        standin.install(discover(str(main_checkout.path)), way, version_for(way))
        main_checkout.git("commit", "--quiet", "--allow-empty", "-m", "one")
        assert standin.calls() == [["post-commit", ""]]
        assert standin.inspect(discover(str(main_checkout.path)), version_for(way)) == []

    def test_a_repository_with_an_odd_name_works(self, way: str, make_checkout: Callable[..., Checkout], standin: StandIn) -> None:
        checkout = make_checkout("it's a\nproject $HOME")
        standin.install(discover(str(checkout.path)), way, version_for(way))
        checkout.commit("one")
        assert standin.calls() == [["post-commit", ""]]


class TestBlock:
    @pytest.mark.parametrize("shell", ["sh", "dash", "bash", "ksh", "zsh", "busybox"])
    @pytest.mark.parametrize("options", ["", "-eu", "-euxC"])
    def test_every_shell_runs_it(self, shell: str, options: str, standin: StandIn, tmp_path: Path) -> None:
        if shutil.which(shell) is None:
            pytest.skip(f"no {shell} on this machine")
        program = [shell, "sh"] if shell == "busybox" else [shell]
        script = tmp_path / "script"
        script.write_bytes(standin.block("post-rewrite") + b'\necho "$?:$#:$1:$2"; cat\n')

        syntax = subprocess.run([*program, "-n", script], capture_output=True, check=False)
        run = subprocess.run(
            [*program, *options.split(), script, "a b", "*"],
            input=b"the list",
            capture_output=True,
            env=os.environ | {"STANDIN_EXIT": "1"},
            check=False,
        )

        assert (syntax.returncode, syntax.stderr) == (0, b"")
        assert (run.returncode, run.stdout) == (0, b"0:2:a b:*\nthe list")
        assert standin.calls() == [["post-rewrite", "a b", "*", ""]]

    def test_a_shell_that_stops_at_errors_goes_on_when_even_the_complaint_fails(self, standin: StandIn, tmp_path: Path) -> None:
        script = tmp_path / "script"
        script.write_bytes(Pin("/nowhere/python", "/nowhere").block("post-commit") + b"\necho on\n")
        run = subprocess.run(f"exec 2>&-; sh -e {shlex.quote(str(script))}", shell=True, capture_output=True, check=False)
        assert (run.returncode, run.stdout) == (0, b"on\n")

    def test_what_runs_can_be_read_back(self, standin: StandIn) -> None:
        pin = Pin("/opt/my python's/bin/python", "/opt/lib\nwith -I # and 'quotes'")
        assert [hook_files.pinned(os.fsdecode(pin.block(event, created=True))) for event in EVENTS] == [pin] * 5
        assert [hook_files.pinned(pin.command(event)) for event in EVENTS] == [pin] * 5
        assert hook_files.pinned("git ckpt hook post-commit") is None
        assert hook_files.pinned("it's") is None

    def test_a_wheel_brings_its_templates_along(self, tmp_path: Path) -> None:
        site = tmp_path / "site-packages"
        shutil.copytree(os.path.join(PACKAGE_DIR, "gitckpt"), site / "gitckpt", ignore=shutil.ignore_patterns("__pycache__"))
        (site / "hooks").mkdir()
        (site / "hooks" / "block.sh").write_text("somebody else's package")
        code = "from gitckpt.store import hook_files; print(hook_files.Pin('/p', '/d').block('e').decode())"
        code = f"import sys; sys.path.insert(0, sys.argv[1]); {code}"
        shutil.copytree(os.path.join(PACKAGE_DIR, "hooks"), site / "gitckpt" / "hooks")
        run = subprocess.run([sys.executable, "-I", "-c", code, site], capture_output=True, check=True, text=True)
        assert run.stdout == Pin("/p", "/d").block("e").decode() + "\n"

    def test_the_text_in_full(self) -> None:
        command = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gitckpt.hook import run; run(sys.argv[1:])"
        code = f"""\
if [ "${{GITCKPT_SKIP:-0}}" != 0 ]; then
	:
elif [ ! -x /p/python ]; then
	printf 'gitckpt: %s: %s is missing; run: git ckpt init\\n' post-merge /p/python >&2 || :
elif [ ! -f '/a b/gitckpt/hook.py' ]; then
	printf 'gitckpt: %s: %s is missing; run: git ckpt init\\n' post-merge '/a b/gitckpt/hook.py' >&2 || :
else
	/p/python -I -S -c '{command}' '/a b' post-merge "$@" </dev/null || :
fi
"""
        comment = "# Records a checkpoint. Written by `git ckpt init`, taken out by `git ckpt uninit`; what you change in here is lost.\n"
        created = "# This file was created by `git ckpt init`.\n"
        pin = Pin("/p/python", "/a b")
        assert pin.block("post-merge").decode() == f"# >>> gitckpt >>>\n{comment}{code}# <<< gitckpt <<<"
        assert pin.block("post-merge", created=True).decode() == f"# >>> gitckpt >>>\n{created}{comment}{code}# <<< gitckpt <<<"
        assert pin.command("post-merge") == f"gitckpt() {{\n{code}}}\ngitckpt"


class TestFiles:
    def test_new_files_are_ours_alone(self, checkout: Checkout, standin: StandIn) -> None:
        before = everything(checkout)
        repository = discover(str(checkout.path))
        hooks = hooks_of(checkout)

        done = standin.install(repository)

        files = {path.name: (oct(path.stat().st_mode), path.read_bytes()) for path in hooks.iterdir()}
        assert done == Installation("files", [*(f"{event}: wrote {hooks}/{event}" for event in EVENTS), *NOTES_CHANGES], [])
        assert files == {event: ("0o100755", b"#!/bin/sh\n" + standin.block(event, created=True) + b"\n") for event in EVENTS}
        assert standin.inspect(repository) == []

        taken = uninstall(repository)

        assert taken == [
            *(f"{event}: removed {hooks}/{event}" for event in EVENTS),
            "took notes.rewriteRef = refs/notes/checkpoints out of the configuration",
            "took notes.rewriteMode = cat_sort_uniq out of the configuration",
            f"removed the empty directory {hooks}",
        ]
        assert everything(checkout) == before
        assert uninstall(repository) == []

    def test_the_block_comes_right_after_the_shebang(self, checkout: Checkout, standin: StandIn) -> None:
        path = put_hook(checkout, "post-commit", USER_TEXT, 0o775)
        before = everything(checkout)
        repository = discover(str(checkout.path))

        done = standin.install(repository)

        others = [f"{event}: wrote {hooks_of(checkout)}/{event}" for event in EVENTS[1:]]
        assert done == Installation("files", [f"post-commit: added a block to {path}", *others, *NOTES_CHANGES], [])
        shebang, rest = USER_TEXT.split("\n", 1)
        assert path.read_bytes() == b"".join([shebang.encode(), b"\n", standin.block("post-commit"), b"\n", rest.encode()])
        assert path.stat().st_mode & 0o7777 == 0o775
        assert uninstall(repository)[0] == f"post-commit: took the block out of {path}"
        assert everything(checkout) == before

    def test_installing_again_changes_nothing(self, way: str, checkout: Checkout, standin: StandIn) -> None:
        put_hook(checkout, "post-merge", "#!/bin/bash\nexec true")
        repository = discover(str(checkout.path))
        standin.install(repository, way, version_for(way))
        before = everything(checkout)
        assert standin.install(repository, "auto", version_for(way)) == Installation(way, [], [])
        assert everything(checkout) == before

    def test_another_interpreter_renews_the_block_where_it_stands(self, main_checkout: Checkout, standin: StandIn) -> None:
        repository = discover(str(main_checkout.path))
        old = Pin("/old/python", "/old lib")
        put_hook(main_checkout, "post-commit", b"#!/bin/sh\nfirst\n" + old.block("post-commit") + b"\nlast\n" + old.block("post-commit"))
        put_hook(main_checkout, "post-merge", b"#!/bin/sh\n" + old.block("post-merge", created=True) + b"\nadded by hand")

        standin.install(repository)

        read = {event: (hooks_of(main_checkout) / event).read_bytes() for event in EVENTS[:2]}
        assert read == {
            "post-commit": b"#!/bin/sh\nfirst\n" + standin.block("post-commit") + b"\nlast",
            "post-merge": b"#!/bin/sh\n" + standin.block("post-merge", created=True) + b"\nadded by hand",
        }
        uninstall(repository)
        assert {event: (hooks_of(main_checkout) / event).read_bytes() for event in EVENTS[:2]} == {
            "post-commit": b"#!/bin/sh\nfirst\nlast",
            "post-merge": b"#!/bin/sh\nadded by hand",
        }

    def test_a_lost_mode_of_a_file_of_ours_is_mended(self, main_checkout: Checkout, standin: StandIn) -> None:
        repository = discover(str(main_checkout.path))
        standin.install(repository)
        path = hooks_of(main_checkout) / "post-commit"
        path.chmod(0o644)
        assert standin.inspect(repository) == [
            Finding("hook-not-executable", str(path), "git ignores post-commit: the file is not executable", f"chmod +x {path}")
        ]
        assert standin.install(repository).changed == [f"post-commit: renewed the block in {path}"]
        assert path.stat().st_mode & 0o7777 == 0o755
        assert standin.inspect(repository) == []

    @pytest.mark.parametrize(
        ("text", "mode", "reason"),
        [
            ("#!/usr/bin/env python3\npass\n", 0o755, "is a script for python3, not for a POSIX shell"),
            ("#! /usr/bin/perl -w\n", 0o755, "is a script for perl, not for a POSIX shell"),
            ("#!/usr/bin/env -S node --flag\n", 0o755, "is a script for node, not for a POSIX shell"),
            ("#!", 0o755, "is a script for an interpreter without a name, not for a POSIX shell"),
            (b"\x7fELF\0\0", 0o755, "is no text file"),
            ("#!/bin/sh\r\necho hi\r\n", 0o755, "cannot be run by the system: its first line ends with a carriage return"),
            (
                "#!/bin/sh\necho hi\n",
                0o644,
                "is not executable, so git ignores it, and making it executable would switch on the text that is in it",
            ),
            (
                "#!/bin/sh\n# >>> gitckpt >>>\nif\n",
                0o755,
                "holds a part of a gitckpt block; take out the lines from `# >>> gitckpt >>>` on that belong to it",
            ),
        ],
    )
    def test_some_files_must_not_be_written(
        self, text: str | bytes, mode: int, reason: str, main_checkout: Checkout, standin: StandIn
    ) -> None:
        path = put_hook(main_checkout, "post-merge", text, mode)
        before = everything(main_checkout)
        repository = discover(str(main_checkout.path))
        content = path.read_bytes()

        done = standin.install(repository)

        others = [f"{event}: wrote {hooks_of(main_checkout)}/{event}" for event in EVENTS if event != "post-merge"]
        advice = f'post-merge: {path} {reason}; make it call: git ckpt hook post-merge "$@" || :'
        assert done == Installation("files", [*others, *NOTES_CHANGES], [advice])
        assert (path.read_bytes(), path.stat().st_mode & 0o7777) == (content, mode)
        assert standin.inspect(repository) == [
            Finding("hook-missing", str(path), f"post-merge does not call gitckpt: the file {reason}", 'git ckpt hook post-merge "$@" || :')
        ]
        uninstall(repository)
        assert everything(main_checkout) == before

    @pytest.mark.parametrize(
        "first", ["#!/bin/bash -e", "#! /usr/bin/env bash", "#!/usr/bin/env -S A=b dash -u", "#!/bin/busybox sh", ":", ""]
    )
    def test_shell_scripts_of_all_kinds_take_it(self, first: str, main_checkout: Checkout, standin: StandIn) -> None:
        path = put_hook(main_checkout, "post-commit", first)
        standin.install(discover(str(main_checkout.path)))
        block = standin.block("post-commit")
        assert path.read_bytes() == (first.encode() + b"\n" + block if first.startswith("#!") else block + b"\n" + first.encode())
        uninstall(discover(str(main_checkout.path)))
        assert path.read_bytes() == first.encode()

    def test_links_directories_and_dangling_links_stay(self, main_checkout: Checkout, standin: StandIn) -> None:
        hooks = hooks_of(main_checkout)
        hooks.mkdir()
        target = main_checkout.write("shared-hook", "#!/bin/sh\n")
        target.chmod(0o755)
        (hooks / "post-commit").symlink_to(target)
        (hooks / "post-merge").symlink_to("nowhere")
        (hooks / "post-rewrite").mkdir()
        done = standin.install(discover(str(main_checkout.path)))
        assert done.advice == [
            f'post-commit: {hooks}/post-commit is a symbolic link to {target}; make it call: git ckpt hook post-commit "$@" || :',
            f'post-merge: {hooks}/post-merge is a symbolic link to nowhere; make it call: git ckpt hook post-merge "$@" || :',
            f'post-rewrite: {hooks}/post-rewrite is no regular file; make it call: git ckpt hook post-rewrite "$@" || :',
        ]
        assert target.read_bytes() == b"#!/bin/sh\n"
        uninstall(discover(str(main_checkout.path)))
        assert sorted(path.name for path in hooks.iterdir()) == ["post-commit", "post-merge", "post-rewrite"]

    def test_a_script_in_another_language_that_calls_us_needs_no_advice(self, main_checkout: Checkout, standin: StandIn) -> None:
        script = '#!/usr/bin/env python3\nimport subprocess, sys\nsubprocess.run(["git", "ckpt", "hook", "post-commit", *sys.argv[1:]])\n'
        put_hook(main_checkout, "post-commit", script)
        assert standin.install(discover(str(main_checkout.path))).advice == []
        assert standin.inspect(discover(str(main_checkout.path))) == []

    def test_a_relative_hooks_path_inside_the_git_directory_is_used(self, checkout: Checkout, standin: StandIn) -> None:
        own = checkout.main / ".git" / "my hooks"
        checkout.git("config", "core.hooksPath", str(own))
        before = everything(checkout)
        repository = discover(str(checkout.path))
        done = standin.install(repository)
        assert done.changed[:5] == [f"{event}: wrote {own}/{event}" for event in EVENTS]
        checkout.git("commit", "--quiet", "--allow-empty", "-m", "one")
        assert standin.calls() == [["post-commit", ""]]
        checkout.git("config", "--unset", "core.hooksPath")
        assert standin.inspect(repository) == [
            Finding(
                "hook-shadowed",
                "core.hooksPath",
                f"git looks for hooks in {hooks_of(checkout)}, so those of gitckpt in {own} never run",
                "git ckpt init",
            )
        ]
        checkout.git("config", "core.hooksPath", str(own))
        uninstall(repository)
        assert everything(checkout) == before
        assert not own.exists()

    def test_a_bare_repository_has_hooks(self, make_checkout: Callable[..., Checkout], standin: StandIn) -> None:
        bare = make_checkout("bare.git", "--bare")
        repository = discover(str(bare.path))
        assert standin.install(repository).changed[0] == f"post-commit: wrote {bare.path}/hooks/post-commit"
        assert standin.inspect(repository) == []


HOOK_TEXTS = st.builds(
    lambda shebang, lines, newline, end: shebang + newline.join(lines) + end,
    st.sampled_from(
        [
            b"",
            b"#!/bin/sh",
            b"#!/bin/sh\n",
            b"#!/usr/bin/env bash\n",
            b"#! /bin/dash -e\n\n",
            b"#!/bin/sh\n\r\n",
            b"\xef\xbb\xbf#!/bin/sh\n",
        ]
    ),
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [b"# >>> gitckpt >>>", b"# <<< gitckpt <<<", b"echo \xff\xfe", b"exit 1", b"#!/bin/sh", b"", b"  # >>> gitckpt >>>"]
            ),
        ),
        max_size=6,
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]),
)


class TestBytes:
    @settings(max_examples=400, deadline=None)
    @given(text=HOOK_TEXTS, mode=st.sampled_from([0o755, 0o700, 0o775, 0o644, 0o111 | 0o444]))
    def test_in_and_out_again_gives_the_same_bytes(self, text: bytes, mode: int) -> None:
        file = hook_files.HookFile("/hooks/post-commit", text, mode, "")
        if file.block is not None or file.obstacle:
            return
        old, new = Pin("/old/python", "/old"), Pin("/new/python", "/new lib")
        change = file.with_block("post-commit", old)
        assert change is not None
        assert change.data is not None
        installed = hook_files.HookFile(file.path, change.data, change.mode, "")
        assert installed.block == old.block("post-commit")
        assert installed.with_block("post-commit", old) is None
        renewed = installed.with_block("post-commit", new)
        assert renewed is not None
        assert renewed.data is not None
        assert renewed.data == change.data.replace(old.block("post-commit"), new.block("post-commit"))
        for data in (change.data, renewed.data):
            back = hook_files.HookFile(file.path, data, mode, "").without_block("post-commit")
            assert back is not None
            assert (back.data, back.mode) == (text, mode)

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(texts=st.dictionaries(st.sampled_from(EVENTS), st.tuples(HOOK_TEXTS, st.sampled_from([0o755, 0o700, 0o644]))))
    def test_the_whole_way_leaves_no_trace(self, texts: dict[str, tuple[bytes, int]], main_checkout: Checkout, standin: StandIn) -> None:
        shutil.rmtree(hooks_of(main_checkout), ignore_errors=True)
        for event, (text, mode) in texts.items():
            if hook_files.HookFile("", text, mode, "").block is None:
                put_hook(main_checkout, event, text, mode)
        before = everything(main_checkout)
        repository = discover(str(main_checkout.path))
        standin.install(repository, "files")
        installed = everything(main_checkout)
        assert standin.install(repository, "files").changed == []
        assert everything(main_checkout) == installed
        uninstall(repository)
        assert everything(main_checkout) == before


class TestConfigHooks:
    def test_they_need_no_file_and_work_beside_core_hooks_path(self, new_git: None, checkout: Checkout, standin: StandIn) -> None:
        checkout.git("config", "core.hooksPath", "/dev/null")
        before = everything(checkout)
        repository = discover(str(checkout.path))

        done = standin.install(repository, version=NEW)

        assert done == Installation(
            "config", [*(f"{event}: set hook.gitckpt-{event} in the configuration" for event in EVENTS), *NOTES_CHANGES], []
        )
        assert everything(checkout)["hooks"] == before["hooks"]
        assert standin.inspect(repository, NEW) == []
        checkout.git("commit", "--quiet", "--allow-empty", "-m", "one")
        assert standin.calls() == [["post-commit", ""]]
        assert checkout.git("hook", "list", "post-commit") == "gitckpt-post-commit"
        assert uninstall(repository) == [
            *(f"{event}: took hook.gitckpt-{event} out of the configuration" for event in EVENTS),
            "took notes.rewriteRef = refs/notes/checkpoints out of the configuration",
            "took notes.rewriteMode = cat_sort_uniq out of the configuration",
        ]
        assert everything(checkout) == before

    def test_a_newer_git_moves_the_hooks_into_the_configuration(self, new_git: None, main_checkout: Checkout, standin: StandIn) -> None:
        repository = discover(str(main_checkout.path))
        path = put_hook(main_checkout, "post-merge", USER_TEXT)
        standin.install(repository, version=OLD)
        done = standin.install(repository, version=NEW)
        hooks = hooks_of(main_checkout)
        assert done.mode == "config"
        assert done.changed == [
            f"post-commit: removed {hooks}/post-commit",
            f"post-merge: took the block out of {path}",
            *(f"{event}: removed {hooks}/{event}" for event in EVENTS[2:]),
            *(f"{event}: set hook.gitckpt-{event} in the configuration" for event in EVENTS),
        ]
        main_checkout.git("commit", "--quiet", "--allow-empty", "-m", "one")
        assert standin.calls() == [["post-commit", ""]]
        assert path.read_text() == USER_TEXT
        assert standin.install(repository, version=OLD).changed == [
            f"post-commit: wrote {hooks}/post-commit",
            f"post-merge: added a block to {path}",
            *(f"{event}: wrote {hooks}/{event}" for event in EVENTS[2:]),
            *(f"{event}: took hook.gitckpt-{event} out of the configuration" for event in EVENTS),
        ]

    def test_an_old_git_refuses_them(self, main_checkout: Checkout, standin: StandIn) -> None:
        before = everything(main_checkout)
        with pytest.raises(UsageError) as caught:
            standin.install(discover(str(main_checkout.path)), "config")
        assert caught.value.message == "git 2.39.5 takes no hooks from its configuration; 2.54 is the first that does"
        assert caught.value.hint == "install a newer git, or choose another way: files, external or auto"
        assert everything(main_checkout) == before

    def test_what_is_wrong_with_them(self, main_checkout: Checkout, standin: StandIn) -> None:
        repository = discover(str(main_checkout.path))
        standin.install(repository, version=NEW)
        main_checkout.git("config", "--unset", "hook.gitckpt-post-commit.command")
        main_checkout.git("config", "--unset", "hook.gitckpt-post-merge.event")
        main_checkout.git("config", "hook.gitckpt-post-rewrite.enabled", "false")
        main_checkout.git("config", "hook.gitckpt-pre-auto-gc.command", "git ckpt hook pre-auto-gc")
        path = put_hook(main_checkout, "post-applypatch", 'git ckpt hook post-applypatch "$@"')
        twice = f"post-applypatch calls gitckpt twice: {path} has a line for it, too; take that line out"
        assert standin.inspect(repository, NEW) == [
            Finding("hook-missing", "hook.gitckpt-post-commit", "post-commit does not call gitckpt", "git ckpt init"),
            Finding("hook-missing", "hook.gitckpt-post-merge", "post-merge does not call gitckpt", "git ckpt init"),
            Finding(
                "hook-twice",
                "hook.gitckpt-post-applypatch",
                twice,
            ),
            Finding(
                "hook-missing",
                "hook.gitckpt-post-rewrite",
                "post-rewrite is switched off by hook.gitckpt-post-rewrite.enabled",
                "git config --unset hook.gitckpt-post-rewrite.enabled",
            ),
            Finding(
                "hook-outdated",
                "hook.gitckpt-pre-auto-gc",
                "pre-auto-gc calls gitckpt in another way than this gitckpt would set up",
                "git ckpt init",
            ),
        ]
        assert standin.install(repository, version=NEW).advice == [twice]
        assert standin.inspect(repository, OLD) == [
            Finding("hook-missing", "ckpt.hooks", "git 2.39.5 ignores the hooks that are set in its configuration", "git ckpt init")
        ]


def husky(checkout: Checkout) -> tuple[str, list[str]]:
    checkout.write(".husky/pre-commit", "npm test\n")
    checkout.write(".husky/_/post-commit", '#!/usr/bin/env sh\n. "${0%/*}/h"').chmod(0o755)
    checkout.git("config", "core.hooksPath", ".husky/_")
    return ".husky/post-commit", [
        "husky owns the hooks; add a line to each file (a new one starts with #!/bin/sh and is executable):",
        *(f'  {checkout.path}/.husky/{event}: git ckpt hook {event} "$@" || :' for event in EVENTS),
    ]


def old_husky(checkout: Checkout) -> tuple[str, list[str]]:
    where, advice = husky(checkout)
    checkout.git("config", "core.hooksPath", ".husky")
    return where, advice


def husky_not_switched_on(checkout: Checkout) -> tuple[str, list[str]]:
    where, advice = husky(checkout)
    checkout.git("config", "--unset", "core.hooksPath")
    return where, advice


def lefthook_advice(path: str) -> list[str]:
    lines = [f"lefthook owns the hooks; add to {path}, in its syntax, then run: lefthook install"]
    for event in EVENTS:
        lines += [f"  {event}:", "    commands:", "      gitckpt:", f"        run: git ckpt hook {event} {{0}} || :"]
    return lines


def lefthook(checkout: Checkout) -> tuple[str, list[str]]:
    checkout.write("lefthook.yml", "pre-commit:\n")
    return "lefthook.yml", lefthook_advice(f"{checkout.path}/lefthook.yml")


def lefthook_in_json(checkout: Checkout) -> tuple[str, list[str]]:
    checkout.write(".config/lefthook.jsonc", "{}\n")
    return ".config/lefthook.jsonc", lefthook_advice(f"{checkout.path}/.config/lefthook.jsonc")


def lefthook_in_the_hooks(checkout: Checkout) -> tuple[str, list[str]]:
    put_hook(checkout, "pre-push", '#!/bin/sh\ncall_lefthook run "pre-push" "$@"\n')
    return "lefthook.yml", lefthook_advice(f"{checkout.path}/lefthook.yml")


def pre_commit_advice(checkout: Checkout) -> list[str]:
    entries = {
        "post-commit": "git ckpt hook post-commit",
        "post-merge": "sh -c 'git ckpt hook post-merge \"$PRE_COMMIT_IS_SQUASH_MERGE\"'",
        "post-rewrite": "sh -c 'git ckpt hook post-rewrite \"$PRE_COMMIT_REWRITE_COMMAND\"'",
    }
    config = f"{checkout.path}/.pre-commit-config.yaml"
    types = "--hook-type post-commit --hook-type post-merge --hook-type post-rewrite"
    lines = [
        f"pre-commit owns the hooks; add to {config} below `repos:`, then run: pre-commit install {types}",
        "  - repo: local",
        "    hooks:",
    ]
    for event, entry in entries.items():
        lines += [f"      - id: gitckpt-{event}", f"        name: gitckpt {event}", f"        entry: {entry}", "        language: system"]
        lines += [f"        stages: [{event}]", "        always_run: true", "        pass_filenames: false"]
    return [
        *lines,
        "pre-commit has no type for this; add a line to each file (a new one starts with #!/bin/sh and is executable):",
        *(f'  {hooks_of(checkout)}/{event}: git ckpt hook {event} "$@" || :' for event in ("post-applypatch", "pre-auto-gc")),
    ]


def pre_commit(checkout: Checkout) -> tuple[str, list[str]]:
    checkout.write(".pre-commit-config.yaml", "repos:\n")
    return ".pre-commit-config.yaml", pre_commit_advice(checkout)


def pre_commit_in_the_hooks(checkout: Checkout) -> tuple[str, list[str]]:
    put_hook(checkout, "pre-commit", "#!/usr/bin/env bash\n# File generated by pre-commit: https://pre-commit.com\n")
    return ".pre-commit-config.yaml", pre_commit_advice(checkout)


def tracked_directory(checkout: Checkout) -> tuple[str, list[str]]:
    checkout.git("config", "core.hooksPath", "git hooks")
    hooks = checkout.path / "git hooks"
    return "git hooks/post-commit", [
        f"{hooks} is not gitckpt's to write; add a line to each file (a new one starts with #!/bin/sh and is executable):",
        *(f'  {hooks}/{event}: git ckpt hook {event} "$@" || :' for event in EVENTS),
    ]


def linked_directory(checkout: Checkout) -> tuple[str, list[str]]:
    shared = checkout.main / "shared"
    shared.mkdir()
    hooks_of(checkout).symlink_to(shared)
    hooks = shared
    return str(hooks / "post-commit"), [
        f"{hooks} is not gitckpt's to write; add a line to each file (a new one starts with #!/bin/sh and is executable):",
        *(f'  {hooks}/{event}: git ckpt hook {event} "$@" || :' for event in EVENTS),
    ]


MANAGERS = [
    husky,
    old_husky,
    husky_not_switched_on,
    lefthook,
    lefthook_in_json,
    lefthook_in_the_hooks,
    pre_commit,
    pre_commit_in_the_hooks,
    tracked_directory,
    linked_directory,
]


class TestManagers:
    @pytest.mark.parametrize("manager", MANAGERS)
    def test_their_files_are_left_to_the_person(
        self, manager: Callable[[Checkout], tuple[str, list[str]]], checkout: Checkout, standin: StandIn
    ) -> None:
        where, advice = manager(checkout)
        before = everything(checkout)
        files = checkout.fingerprint()["files"]
        repository = discover(str(checkout.path))

        assert standin.install(repository) == Installation("external", NOTES_CHANGES, advice)

        assert (everything(checkout)["hooks"], checkout.fingerprint()["files"]) == (before["hooks"], files)
        found = standin.inspect(repository)
        assert [finding.code for finding in found] == ["hook-external-missing"] * 5
        assert found[0].object == os.path.join(checkout.path, where)
        assert found[0].cure is not None
        assert "git ckpt hook post-commit" in found[0].cure
        checkout.write(where, found[0].cure.split(": ", 1)[1] + "\n")
        assert [finding.sentence.split()[0] for finding in standin.inspect(repository)] == list(EVENTS[1:])
        checkout.write(where, "# " + found[0].cure.split(": ", 1)[1] + "\n")
        assert [finding.sentence.split()[0] for finding in standin.inspect(repository)] == list(EVENTS)
        uninstall(repository)
        assert everything(checkout)["config"] == before["config"]

    @pytest.mark.parametrize("manager", MANAGERS)
    def test_a_person_may_want_the_files_written(
        self, manager: Callable[[Checkout], tuple[str, list[str]]], main_checkout: Checkout, standin: StandIn
    ) -> None:
        manager(main_checkout)
        before = main_checkout.fingerprint()
        repository = discover(str(main_checkout.path))
        assert standin.install(repository, "files").mode == "files"
        assert standin.install(repository) == Installation("files", [], [])
        uninstall(repository)
        assert main_checkout.fingerprint() == before

    @pytest.mark.parametrize("manager", MANAGERS)
    def test_hooks_in_the_configuration_work_beside_them(
        self, manager: Callable[[Checkout], tuple[str, list[str]]], new_git: None, main_checkout: Checkout, standin: StandIn
    ) -> None:
        manager(main_checkout)
        assert standin.install(discover(str(main_checkout.path)), version=NEW).mode == "config"
        main_checkout.git("commit", "--quiet", "--allow-empty", "-m", "one", ok=(0, 1))
        assert standin.calls() == [["post-commit", ""]]

    def test_one_that_comes_later_and_leaves_our_blocks_alone_is_no_reason_to_go(self, main_checkout: Checkout, standin: StandIn) -> None:
        repository = discover(str(main_checkout.path))
        standin.install(repository)
        pre_commit(main_checkout)
        assert standin.install(repository) == Installation("files", [], [])
        assert standin.inspect(repository) == []
        (hooks_of(main_checkout) / "post-merge").unlink()
        assert standin.install(repository).mode == "external"

    def test_hooks_that_are_switched_off(self, main_checkout: Checkout, standin: StandIn) -> None:
        main_checkout.git("config", "core.hooksPath", "/dev/null")
        repository = discover(str(main_checkout.path))
        advice = "core.hooksPath is /dev/null, so git runs no hooks; git config --unset core.hooksPath, then run: git ckpt init"
        assert standin.install(repository) == Installation("external", NOTES_CHANGES, [advice])
        with pytest.raises(RepositoryError) as caught:
            standin.install(repository, "files")
        assert caught.value.message == "cannot make the directory /dev/null: File exists"

    def test_external_and_none_can_be_chosen_and_are_remembered(self, main_checkout: Checkout, standin: StandIn) -> None:
        repository = discover(str(main_checkout.path))
        hooks = hooks_of(main_checkout)
        standin.install(repository)
        gone = [f"{event}: removed {hooks}/{event}" for event in EVENTS]
        by_hand = [
            f"{hooks} is not gitckpt's to write; add a line to each file (a new one starts with #!/bin/sh and is executable):",
            *(f'  {hooks}/{event}: git ckpt hook {event} "$@" || :' for event in EVENTS),
        ]
        assert standin.install(repository, "external") == Installation("external", gone, by_hand)
        assert standin.install(repository) == Installation("external", [], by_hand)
        assert standin.install(repository, "none") == Installation("none", [], [])
        off = "no hooks, as chosen before; to have them: git config --unset ckpt.hooksChosen, then git ckpt init"
        assert standin.install(repository) == Installation("none", [], [off])
        assert standin.inspect(repository) == []
        assert main_checkout.git("config", "--local", "ckpt.hooks") == "none"
        main_checkout.git("config", "--unset", "ckpt.hooksChosen")
        assert standin.install(repository).mode == "files"

    def test_no_such_mode(self, main_checkout: Checkout, standin: StandIn) -> None:
        with pytest.raises(UsageError) as caught:
            standin.install(discover(str(main_checkout.path)), "magic")
        assert (caught.value.message, caught.value.hint) == (
            "no such way to install hooks: magic",
            "one of auto, config, files, external, none",
        )


class TestInspection:
    def test_a_repository_that_was_never_set_up(self, checkout: Checkout, standin: StandIn) -> None:
        assert standin.inspect(discover(str(checkout.path))) == [
            Finding("hooks-not-installed", str(checkout.main / ".git"), "gitckpt was never set up in this repository", "git ckpt init")
        ]

    def test_files_that_are_gone_or_changed(self, checkout: Checkout, standin: StandIn) -> None:
        repository = discover(str(checkout.path))
        standin.install(repository)
        hooks = hooks_of(checkout)
        (hooks / "post-commit").unlink()
        (hooks / "post-merge").write_text("#!/bin/sh\nexit 0\n")
        text = (hooks / "post-rewrite").read_text()
        (hooks / "post-rewrite").write_text(text.replace("GITCKPT_SKIP:-0", "GITCKPT_SKIP:-1"))
        (hooks / "pre-auto-gc").write_text((hooks / "pre-auto-gc").read_text() + 'git ckpt hook pre-auto-gc "$@"\n')
        checkout.git("config", "--unset", "notes.rewriteRef")
        assert standin.inspect(repository) == [
            Finding("hook-missing", f"{hooks}/post-commit", "post-commit does not call gitckpt", "git ckpt init"),
            Finding("hook-missing", f"{hooks}/post-merge", "post-merge does not call gitckpt", "git ckpt init"),
            Finding(
                "hook-outdated",
                f"{hooks}/post-rewrite",
                "post-rewrite calls gitckpt in another way than this gitckpt would set up",
                "git ckpt init",
            ),
            Finding(
                "hook-twice",
                f"{hooks}/pre-auto-gc",
                f"pre-auto-gc calls gitckpt twice: {hooks}/pre-auto-gc has a line for it, too; take that line out",
            ),
            Finding(
                "rewrite-ref-missing",
                "notes.rewriteRef",
                "amend and rebase leave the links of a commit to its checkpoints behind",
                "git config --add notes.rewriteRef refs/notes/checkpoints",
            ),
        ]

    def test_an_interpreter_or_package_that_is_gone_is_reported_once(
        self, way: str, main_checkout: Checkout, standin: StandIn, tmp_path: Path
    ) -> None:
        repository = discover(str(main_checkout.path))
        python = tmp_path / "python"
        python.symlink_to(sys.executable)
        install(repository, version=version_for(way), mode=way, python=str(python), package_dir=str(standin.dir))
        python.unlink()
        gone = Finding("interpreter-missing", str(python), "the hooks start a Python interpreter that is gone", "git ckpt init")
        assert standin.inspect(repository, version_for(way)) == [gone]
        other = StandIn(tmp_path / "other")
        other.install(repository, way, version_for(way))
        assert [finding.code for finding in standin.inspect(repository, version_for(way))] == ["hook-outdated"] * 5
        shutil.rmtree(other.dir)
        module = f"{other.dir}/gitckpt/hook.py"
        gone = Finding("package-missing", module, "the hooks use a gitckpt that is gone", "git ckpt init")
        assert standin.inspect(repository, version_for(way)) == [gone]

    def test_hooks_that_were_moved_aside(self, checkout: Checkout, standin: StandIn) -> None:
        repository = discover(str(checkout.path))
        standin.install(repository)
        hooks = hooks_of(checkout)
        (hooks / "post-commit").rename(hooks / "post-commit.legacy")
        put_hook(checkout, "post-commit", "#!/usr/bin/env bash\n# File generated by pre-commit: https://pre-commit.com\n")
        (hooks / "post-merge").rename(hooks / "post-merge.old")
        put_hook(checkout, "post-merge", "#!/bin/sh\ncall_lefthook run post-merge\n")
        (hooks / "post-rewrite").rename(hooks / "post-rewrite.legacy")
        no_longer = "another hook manager moved the {} hook aside; it no longer runs"
        assert standin.inspect(repository) == [
            Finding("hook-moved-aside", f"{hooks}/post-commit.legacy", "pre-commit moved the post-commit hook aside; it still runs"),
            Finding("hook-moved-aside", f"{hooks}/post-merge.old", no_longer.format("post-merge"), "git ckpt init"),
            Finding("hook-moved-aside", f"{hooks}/post-rewrite.legacy", no_longer.format("post-rewrite"), "git ckpt init"),
        ]
        assert standin.install(repository, "external").changed == [
            f"post-commit: removed {hooks}/post-commit.legacy",
            f"post-merge: removed {hooks}/post-merge.old",
            f"post-applypatch: removed {hooks}/post-applypatch",
            f"post-rewrite: removed {hooks}/post-rewrite.legacy",
            f"pre-auto-gc: removed {hooks}/pre-auto-gc",
        ]

    def test_a_hooks_path_that_was_set_later(self, main_checkout: Checkout, standin: StandIn) -> None:
        repository = discover(str(main_checkout.path))
        standin.install(repository)
        main_checkout.git("config", "core.hooksPath", ".githooks")
        new, old = main_checkout.path / ".githooks", hooks_of(main_checkout)
        sentence = f"git looks for hooks in {new}, so those of gitckpt in {old} never run"
        assert standin.inspect(repository) == [Finding("hook-shadowed", "core.hooksPath", sentence, "git ckpt init")]
        done = standin.install(repository)
        assert (done.mode, done.changed) == ("external", [f"{event}: removed {old}/{event}" for event in EVENTS])

    def test_a_linked_worktree_sees_the_same(self, way: str, main_checkout: Checkout, standin: StandIn) -> None:
        standin.install(discover(str(main_checkout.path)), way, version_for(way))
        main_checkout.git("worktree", "add", "--quiet", "--detach", "../linked")
        assert standin.inspect(discover(str(main_checkout.path.parent / "linked")), version_for(way)) == []


class TestSettings:
    @pytest.mark.parametrize(
        ("config", "changed"),
        [
            ("", NOTES_CHANGES),
            ("[notes]\n\trewriteRef = refs/notes/mine\n", NOTES_CHANGES[:1]),
            ("[notes]\n\t# how I like it\n\trewriteMode = overwrite\n", NOTES_CHANGES[:1]),
            ("[notes]\n\trewriteRef = refs/notes/checkpoints\n", []),
            ("[notes]\n\trewriteRef = refs/notes/*\n", []),
            ("[notes]\n\tdisplayRef = refs/notes/mine\n[ckpt]\n\tkeepLast = 3\n", NOTES_CHANGES),
        ],
    )
    @pytest.mark.parametrize("mode", ["files", "none"])
    def test_what_the_user_has_set_stays(self, mode: str, config: str, changed: list[str], checkout: Checkout, standin: StandIn) -> None:
        path = checkout.main / ".git" / "config"
        path.write_text(path.read_text() + config)
        before = everything(checkout)
        repository = discover(str(checkout.path))
        assert standin.install(repository, mode).changed[-len(changed) or 9 :] == changed
        standin.install(repository, mode)
        uninstall(repository)
        assert everything(checkout) == before

    def test_what_the_user_has_set_for_all_repositories_counts(self, sealed: Path, main_checkout: Checkout, standin: StandIn) -> None:
        main_checkout.git("config", "--global", "notes.rewriteRef", "refs/notes/mine")
        repository = discover(str(main_checkout.path))
        assert standin.install(repository, "none").changed == NOTES_CHANGES[:1]
        main_checkout.git("config", "--global", "--add", "notes.rewriteRef", "refs/notes/check*")
        uninstall(repository)
        assert standin.install(repository, "none").changed == []
        assert standin.inspect(repository) == []

    def test_links_follow_an_amended_commit(self, main_checkout: Checkout, standin: StandIn) -> None:
        standin.install(discover(str(main_checkout.path)), "none")
        main_checkout.git("notes", "--ref=checkpoints", "add", "-m", "b link\na link")
        main_checkout.git("commit", "--quiet", "--amend", "-m", "amended")
        assert main_checkout.git("notes", "--ref=checkpoints", "show").splitlines() == ["b link", "a link"]


@pytest.fixture
def mortal() -> Iterator[None]:
    """Takes from this thread the power of root to write where permissions forbid it."""
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


class TestFailures:
    def test_a_directory_that_cannot_be_written(self, mortal: None, main_checkout: Checkout, standin: StandIn) -> None:
        put_hook(main_checkout, "post-merge", USER_TEXT)
        hooks = hooks_of(main_checkout)
        before = everything(main_checkout)
        hooks.chmod(0o555)
        try:
            with pytest.raises(RepositoryError) as caught:
                standin.install(discover(str(main_checkout.path)))
        finally:
            hooks.chmod(0o755)
        assert caught.value.message == f"cannot write {hooks}/post-commit: Permission denied"
        assert caught.value.hint == f"make it writable, and run the command again: chmod u+w {hooks}"
        assert everything(main_checkout) == before

    def test_a_file_that_cannot_be_read(self, mortal: None, main_checkout: Checkout, standin: StandIn) -> None:
        path = put_hook(main_checkout, "post-merge", USER_TEXT, 0o000)
        with pytest.raises(RepositoryError) as caught:
            standin.install(discover(str(main_checkout.path)))
        assert caught.value.message == f"cannot read {path}: Permission denied"
        assert [file.name for file in hooks_of(main_checkout).iterdir()] == ["post-merge"]

    def test_a_locked_configuration_takes_the_files_back(self, way: str, main_checkout: Checkout, standin: StandIn) -> None:
        put_hook(main_checkout, "post-merge", USER_TEXT)
        lock = main_checkout.path / ".git" / "config.lock"
        lock.touch()
        before = everything(main_checkout)
        repository = discover(str(main_checkout.path))
        with pytest.raises(GitError) as caught:
            standin.install(repository, way, version_for(way))
        assert "could not lock config file" in caught.value.message
        assert everything(main_checkout) == before
        lock.unlink()
        standin.install(repository, way, version_for(way))
        installed = everything(main_checkout)
        lock.touch()
        with pytest.raises(GitError):
            uninstall(repository)
        assert everything(main_checkout) == installed

    def test_settings_that_were_written_before_the_failure_are_taken_back(
        self, mortal: None, main_checkout: Checkout, standin: StandIn
    ) -> None:
        own = main_checkout.path / ".git" / "own"
        own.mkdir()
        main_checkout.git("config", "core.hooksPath", str(own))
        before = everything(main_checkout)
        own.chmod(0o555)
        with pytest.raises(RepositoryError) as caught:
            standin.install(discover(str(main_checkout.path)))
        own.chmod(0o755)
        assert caught.value.message == f"cannot write {own}/post-commit: Permission denied"
        assert everything(main_checkout) == before

    def test_a_failure_halfway_takes_the_first_half_back(self, tmp_path: Path) -> None:
        (tmp_path / "post-commit").write_text("old")
        (tmp_path / "post-merge").write_text("to be removed")
        (tmp_path / "post-rewrite").mkdir()
        files = [hook_files.read(str(tmp_path / name)) for name in EVENTS]
        new = [b"new", None, b"created", b"in the way of a directory"]
        changes = [Change(file, data, 0o755, "") for file, data in zip(files, new, strict=False)]
        before = {path.name: path.lstat().st_mode for path in tmp_path.iterdir()}
        with pytest.raises(RepositoryError) as caught, ExitStack() as undo:
            hook_files.apply(changes, undo)
        assert caught.value.message == f"cannot write {tmp_path}/post-rewrite: Is a directory"
        assert {path.name: path.lstat().st_mode for path in tmp_path.iterdir()} == before
        assert ((tmp_path / "post-commit").read_text(), (tmp_path / "post-merge").read_text()) == ("old", "to be removed")

    def test_a_file_in_the_place_of_the_directory(self, main_checkout: Checkout, standin: StandIn) -> None:
        repository = discover(str(main_checkout.path))
        standin.install(repository, "none")
        before = everything(main_checkout)
        hooks = hooks_of(main_checkout)
        hooks.write_text("in the way")
        with pytest.raises(RepositoryError) as caught:
            standin.install(repository, "files")
        hooks.unlink()
        assert caught.value.message == f"cannot make the directory {hooks}: File exists"
        assert everything(main_checkout) == before

    def test_no_interpreter(self, main_checkout: Checkout) -> None:
        with pytest.raises(UsageError) as caught:
            install(discover(str(main_checkout.path)), version=OLD, python="")
        assert (caught.value.message, caught.value.hint) == (
            "there is no Python interpreter that the hooks could start",
            "run it as: python3 -m gitckpt init",
        )
