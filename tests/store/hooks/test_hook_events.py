"""Every hook event reaches gitckpt, and the user's own hook text still works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt import Installation
from tests.conftest import Checkout, git_program
from tests.store.hooks.hook_standin import USER_TEXT, StandIn, put_hook, version_for
from tests.stores import HOOKS


def git_streams(checkout: Checkout, *args: str, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [git_program(), *args],
        cwd=checkout.path,
        capture_output=True,
        env=os.environ | env,
        check=False,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def branch_off(checkout: Checkout, name: str) -> None:
    """Give the current branch and another one a commit each."""
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
    """Let git run its automatic gc in a repository that needs it."""
    for number in range(2):
        checkout.git(
            "-c",
            "core.hooksPath=/dev/null",
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            str(number),
            env={"GITCKPT_SKIP": "1"},
        )
        checkout.git("repack", "--quiet")
    return git_streams(
        checkout,
        "-c",
        "gc.auto=1000",
        "-c",
        "gc.autoPackLimit=1",
        "-c",
        "gc.autoDetach=false",
        "gc",
        "--auto",
        "--quiet",
        **env,
    )


def packs(checkout: Checkout) -> int:
    return len(list((checkout.main / ".git" / "objects" / "pack").glob("*.pack")))


class TestEvents:
    @pytest.mark.long
    def test_each_event_reaches_gitckpt_with_its_arguments(
        self, way: str, checkout: Checkout, standin: StandIn
    ) -> None:
        standin.install(checkout, way, version_for(way))

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

    def test_the_users_text_keeps_arguments_input_output_and_exit_status(
        self, way: str, checkout: Checkout, standin: StandIn
    ) -> None:
        for event in HOOKS:
            put_hook(checkout, event, USER_TEXT)
        checkout.git(
            "notes",
            "--ref=checkpoints",
            "add",
            "-m",
            "so that git does not warn of a missing notes ref",
        )
        without = git_streams(checkout, "commit", "--quiet", "--amend", "-m", "amended")
        old = checkout.git("rev-parse", "HEAD")
        standin.install(checkout, way, version_for(way))

        code, out, err = git_streams(
            checkout, "commit", "--quiet", "--amend", "-m", "amended again"
        )

        new = checkout.git("rev-parse", "HEAD")
        assert (code, out, err) == (0, "", f"mine: \nmine: amend\n{old} {new}\n")
        assert without[0] == 0
        assert standin.calls() == [["post-commit", ""], ["post-rewrite", "amend", ""]]

    def test_a_veto_of_the_user_stays_the_last_word(
        self, way: str, checkout: Checkout, standin: StandIn
    ) -> None:
        path = put_hook(checkout, "pre-auto-gc", "#!/bin/sh\nexit 1\n")
        standin.install(checkout, way, version_for(way))

        assert auto_gc(checkout) == (0, "", "")
        assert (packs(checkout), standin.calls()) == (2, [["pre-auto-gc", ""]])

        path.write_bytes(path.read_bytes().replace(b"exit 1", b"exit 0"))
        assert auto_gc(checkout, STANDIN_EXIT="1") == (0, "", "")
        assert (packs(checkout), standin.calls()) == (1, [["pre-auto-gc", ""]])

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("trouble", ["fails", "python", "package"])
    def test_trouble_of_ours_never_becomes_the_hooks(
        self, trouble: str, way: str, checkout: Checkout, standin: StandIn
    ) -> None:
        python = checkout.main.parent / "python"
        python.symlink_to(sys.executable)
        standin.install(checkout, way, version_for(way), python=str(python))
        missing = ""
        if trouble == "python":
            python.unlink()
            missing = str(python)
        if trouble == "package":
            shutil.rmtree(standin.dir)
            missing = f"{standin.dir}/hooks/hook.sh"
        checkout.write("file", "text")
        checkout.git("add", "--all")

        commit = git_streams(checkout, "commit", "--quiet", "-m", "one", STANDIN_EXIT="1")
        gc = auto_gc(checkout, STANDIN_EXIT="1")

        said = "gitckpt: {}: {} is missing; run: git ckpt init\n" if missing else ""
        assert commit == (0, "", said.format("post-commit", missing))
        assert gc == (0, "", said.format("pre-auto-gc", missing))
        assert packs(checkout) == 1

    @pytest.mark.parametrize(
        ("value", "is_called"), [("1", False), ("yes", False), ("", True), ("0", True)]
    )
    def test_a_variable_skips_it(
        self, value: str, is_called: bool, way: str, main_checkout: Checkout, standin: StandIn
    ) -> None:
        standin.install(main_checkout, way, version_for(way))
        main_checkout.git(
            "commit", "--quiet", "--allow-empty", "-m", "one", env={"GITCKPT_SKIP": value}
        )
        assert standin.calls() == ([["post-commit", ""]] if is_called else [])

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "name",
        [
            "a b",
            'it\'s "quoted" $HOME `id` \\',
            "new\nline",
            "naïve-日本",
            "@EVENT@ -I",
            "lefthook",
            "ckpt hook post-commit",
        ],
    )
    def test_any_path_is_right(
        self, name: str, way: str, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        standin = StandIn(tmp_path / name)
        python = tmp_path / name / "python"
        python.symlink_to(sys.executable)
        version = version_for(way)
        first = standin.install(main_checkout, way, version, str(python))
        again = standin.install(main_checkout, version=version, python=str(python))

        main_checkout.git("commit", "--quiet", "--allow-empty", "-m", "one")

        assert standin.calls() == [["post-commit", ""]]
        assert (first.mode, again) == (way, Installation(way, [], []))
        assert standin.inspect(main_checkout, version, str(python)) == []

    def test_bytes_that_are_no_text_are_right_in_paths(
        self, way: str, main_checkout: Checkout, tmp_path: Path
    ) -> None:
        standin = StandIn(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")))
        standin.install(main_checkout, way, version_for(way))
        main_checkout.git("commit", "--quiet", "--allow-empty", "-m", "one")
        assert standin.calls() == [["post-commit", ""]]
        assert standin.inspect(main_checkout, version_for(way)) == []

    def test_a_repository_with_an_odd_name_works(
        self, way: str, make_checkout: Callable[..., Checkout], standin: StandIn
    ) -> None:
        checkout = make_checkout("it's a\nproject $HOME")
        standin.install(checkout, way, version_for(way))
        checkout.commit("one")
        assert standin.calls() == [["post-commit", ""]]
