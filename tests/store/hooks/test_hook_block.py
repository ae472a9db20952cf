"""The shell block in a hook: its command, its output and its clean removal."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitckpt import hook
from gitckpt.store.hooks import files
from gitckpt.store.hooks.files import PACKAGE_DIR, PinnedPython
from tests.conftest import Checkout, examples
from tests.store.hooks.hook_standin import StandIn, everything, hooks_of, put_hook, uninstall
from tests.stores import HOOKS


class TestBlock:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("shell", ["sh", "dash", "bash", "ksh", "zsh", "busybox"])
    @pytest.mark.parametrize("options", ["", "-eu", "-euxC"])
    def test_every_shell_runs_it(
        self, shell: str, options: str, standin: StandIn, tmp_path: Path
    ) -> None:
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

    def test_a_shell_that_stops_at_errors_goes_on_when_even_the_complaint_fails(
        self, standin: StandIn, tmp_path: Path
    ) -> None:
        script = tmp_path / "script"
        script.write_bytes(
            PinnedPython("/nowhere/python", "/nowhere").block("post-commit") + b"\necho on\n"
        )
        run = subprocess.run(
            f"exec 2>&-; sh -e {shlex.quote(str(script))}",
            shell=True,
            capture_output=True,
            check=False,
        )
        assert (run.returncode, run.stdout) == (0, b"on\n")

    def test_what_runs_can_be_read_back(self, standin: StandIn) -> None:
        pin = PinnedPython("/opt/my python's/bin/python", "/opt/lib\nwith -I # and 'quotes'")
        assert [
            files.parse_pinned_python(os.fsdecode(pin.block(event, created=True)))
            for event in HOOKS
        ] == [pin] * 5
        assert [files.parse_pinned_python(pin.make_command(event)) for event in HOOKS] == [pin] * 5
        assert files.parse_pinned_python("git ckpt hook post-commit") is None
        assert files.parse_pinned_python("it's") is None

    def test_a_wheel_brings_its_templates_along(self, tmp_path: Path) -> None:
        site = tmp_path / "site-packages"
        shutil.copytree(
            os.path.join(PACKAGE_DIR, "gitckpt"),
            site / "gitckpt",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        (site / "hooks").mkdir()
        (site / "hooks" / "block.sh").write_text("somebody else's package")
        code = (
            "from gitckpt.store.hooks import files; "
            "print(files.PinnedPython('/p', '/d').block('e').decode())"
        )
        code = f"import sys; sys.path.insert(0, sys.argv[1]); {code}"
        shutil.copytree(os.path.join(PACKAGE_DIR, "hooks"), site / "gitckpt" / "hooks")
        run = subprocess.run(
            [sys.executable, "-I", "-c", code, site], capture_output=True, check=True, text=True
        )
        assert run.stdout == PinnedPython("/p", "/d").block("e").decode() + "\n"

    def test_the_text_in_full(self) -> None:
        code = """\
if [ "${GITCKPT_SKIP:-0}" != 0 ]; then
	:
elif [ ! -f '/a b/hooks/hook.sh' ]; then
	printf 'gitckpt: %s: %s is missing; run: git ckpt init\\n' post-merge \
'/a b/hooks/hook.sh' >&2 || :
else
	sh '/a b/hooks/hook.sh' post-merge /p/python '/a b' "$@" </dev/null || :
fi
"""
        comment = (
            "# Records a checkpoint. Written by `git ckpt init`, taken out by `git ckpt uninit`; "
            "what you change in here is lost.\n"
        )
        created = "# This file was created by `git ckpt init`.\n"
        pin = PinnedPython("/p/python", "/a b")
        assert (
            pin.block("post-merge").decode()
            == f"# >>> gitckpt >>>\n{comment}{code}# <<< gitckpt <<<"
        )
        sourced = code.replace(
            """sh '/a b/hooks/hook.sh' post-merge /p/python '/a b' "$@" <""",
            """(set -- post-merge /p/python '/a b' "$@"; . '/a b/hooks/hook.sh') <""",
        )
        assert (
            pin.block("post-merge", created=True).decode()
            == f"# >>> gitckpt >>>\n{created}{comment}{sourced}# <<< gitckpt <<<"
        )
        assert pin.make_command("post-merge") == f"gitckpt() {{\n{code}}}\ngitckpt"


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
                [
                    b"# >>> gitckpt >>>",
                    b"# <<< gitckpt <<<",
                    b"echo \xff\xfe",
                    b"exit 1",
                    b"#!/bin/sh",
                    b"",
                    b"  # >>> gitckpt >>>",
                ]
            ),
        ),
        max_size=6,
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]),
)


class TestBytes:
    @pytest.mark.long
    @settings(max_examples=examples(400), deadline=None)
    @given(text=HOOK_TEXTS, mode=st.sampled_from([0o755, 0o700, 0o775, 0o644, 0o111 | 0o444]))
    def test_in_and_out_again_gives_the_same_bytes(self, text: bytes, mode: int) -> None:
        file = files.HookFile("/hooks/post-commit", text, mode, "")
        if file.block is not None or file.obstacle:
            return
        old, new = PinnedPython("/old/python", "/old"), PinnedPython("/new/python", "/new lib")
        change = file.add_block("post-commit", old)
        assert change is not None
        assert change.data is not None
        installed = files.HookFile(file.path, change.data, change.mode, "")
        assert installed.block == old.block("post-commit")
        assert installed.add_block("post-commit", old) is None
        renewed = installed.add_block("post-commit", new)
        assert renewed is not None
        assert renewed.data is not None
        assert renewed.data == change.data.replace(
            old.block("post-commit"), new.block("post-commit")
        )
        for data in (change.data, renewed.data):
            back = files.HookFile(file.path, data, mode, "").remove_block("post-commit")
            assert back is not None
            assert (back.data, back.mode) == (text, mode)

    @pytest.mark.long
    @settings(
        max_examples=examples(15),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        texts=st.dictionaries(
            st.sampled_from(HOOKS), st.tuples(HOOK_TEXTS, st.sampled_from([0o755, 0o700, 0o644]))
        )
    )
    def test_the_whole_way_leaves_no_trace(
        self, texts: dict[str, tuple[bytes, int]], main_checkout: Checkout, standin: StandIn
    ) -> None:
        shutil.rmtree(hooks_of(main_checkout), ignore_errors=True)
        for event, (text, mode) in texts.items():
            if files.HookFile("", text, mode, "").block is None:
                put_hook(main_checkout, event, text, mode)
        before = everything(main_checkout)
        standin.install(main_checkout, "files")
        installed = everything(main_checkout)
        assert standin.install(main_checkout, "files").changed == []
        assert everything(main_checkout) == installed
        uninstall(main_checkout)
        assert everything(main_checkout) == before


def test_every_event_that_is_installed_is_known_to_the_hook_and_no_other() -> None:
    assert {*hook._RECORDING_EVENTS, hook._GC} == set(HOOKS)
