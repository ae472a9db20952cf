"""Hooks in files: written, added to existing hooks, inspected and removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gitckpt import Finding, Installation
from tests.conftest import Checkout
from tests.store.hooks.hook_standin import (
    NOTES_CHANGES,
    USER_TEXT,
    StandIn,
    everything,
    hooks_of,
    put_hook,
    uninstall,
    version_for,
)
from tests.stores import HOOKS


class TestFiles:
    def test_new_files_are_ours_alone(self, checkout: Checkout, standin: StandIn) -> None:
        before = everything(checkout)
        hooks = hooks_of(checkout)

        done = standin.install(checkout)

        files = {
            path.name: (oct(path.stat().st_mode), path.read_bytes()) for path in hooks.iterdir()
        }
        assert done == Installation(
            "files", [*(f"{event}: wrote {hooks}/{event}" for event in HOOKS), *NOTES_CHANGES], []
        )
        assert files == {
            event: ("0o100755", b"#!/bin/sh\n" + standin.block(event, created=True) + b"\n")
            for event in HOOKS
        }
        assert standin.inspect(checkout) == []

        taken = uninstall(checkout).changed

        assert taken == [
            *(f"{event}: removed {hooks}/{event}" for event in HOOKS),
            "removed notes.rewriteRef = refs/notes/checkpoint[s] from the configuration",
            "removed notes.rewriteMode = cat_sort_uniq from the configuration",
            "removed gc.cruftPacks = true from the configuration",
            f"removed the empty directory {hooks}",
        ]
        assert everything(checkout) == before
        assert uninstall(checkout).changed == []

    def test_is_on_the_disk(self, checkout: Checkout, standin: StandIn, flushed: list[str]) -> None:
        standin.install(checkout)
        hooks = hooks_of(checkout)
        assert {str(hooks), str(hooks.parent), str(checkout.main / ".git/config")} <= set(flushed)

    def test_the_block_comes_right_after_the_shebang(
        self, checkout: Checkout, standin: StandIn
    ) -> None:
        path = put_hook(checkout, "post-commit", USER_TEXT, 0o775)
        before = everything(checkout)

        done = standin.install(checkout)

        others = [f"{event}: wrote {hooks_of(checkout)}/{event}" for event in HOOKS[1:]]
        assert done == Installation(
            "files", [f"post-commit: added a block to {path}", *others, *NOTES_CHANGES], []
        )
        shebang, rest = USER_TEXT.split("\n", 1)
        assert path.read_bytes() == b"".join(
            [shebang.encode(), b"\n", standin.block("post-commit"), b"\n", rest.encode()]
        )
        assert path.stat().st_mode & 0o7777 == 0o775
        assert uninstall(checkout).changed[0] == f"post-commit: removed the block from {path}"
        assert everything(checkout) == before

    def test_installing_again_changes_nothing(
        self, way: str, checkout: Checkout, standin: StandIn
    ) -> None:
        put_hook(checkout, "post-merge", "#!/bin/bash\nexec true")
        standin.install(checkout, way, version_for(way))
        before = everything(checkout)
        assert standin.install(checkout, "auto", version_for(way)) == Installation(way, [], [])
        assert everything(checkout) == before

    def test_another_interpreter_renews_the_block_where_it_stands(
        self, main_checkout: Checkout, standin: StandIn
    ) -> None:
        old = StandIn.of("/old/python", "/old lib")
        put_hook(
            main_checkout,
            "post-commit",
            b"#!/bin/sh\nfirst\n"
            + old.block("post-commit")
            + b"\nlast\n"
            + old.block("post-commit"),
        )
        put_hook(
            main_checkout,
            "post-merge",
            b"#!/bin/sh\n" + old.block("post-merge", created=True) + b"\nadded by hand",
        )

        standin.install(main_checkout)

        read = {event: (hooks_of(main_checkout) / event).read_bytes() for event in HOOKS[:2]}
        assert read == {
            "post-commit": b"#!/bin/sh\nfirst\n" + standin.block("post-commit") + b"\nlast",
            "post-merge": b"#!/bin/sh\n"
            + standin.block("post-merge", created=True)
            + b"\nadded by hand",
        }
        uninstall(main_checkout)
        assert {event: (hooks_of(main_checkout) / event).read_bytes() for event in HOOKS[:2]} == {
            "post-commit": b"#!/bin/sh\nfirst\nlast",
            "post-merge": b"#!/bin/sh\nadded by hand",
        }

    def test_a_lost_mode_of_a_file_of_ours_is_mended(
        self, main_checkout: Checkout, standin: StandIn
    ) -> None:
        standin.install(main_checkout)
        path = hooks_of(main_checkout) / "post-commit"
        path.chmod(0o644)
        assert standin.inspect(main_checkout) == [
            Finding(
                "hook-not-executable",
                str(path),
                "git ignores post-commit: the file is not executable",
                f"chmod +x {path}",
            )
        ]
        assert standin.install(main_checkout).changed == [
            f"post-commit: updated the block in {path}"
        ]
        assert path.stat().st_mode & 0o7777 == 0o755
        assert standin.inspect(main_checkout) == []

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("text", "mode", "reason"),
        [
            (
                "#!/usr/bin/env python3\npass\n",
                0o755,
                "is a script for python3, not for a POSIX shell",
            ),
            ("#! /usr/bin/perl -w\n", 0o755, "is a script for perl, not for a POSIX shell"),
            (
                "#!/usr/bin/env -S node --flag\n",
                0o755,
                "is a script for node, not for a POSIX shell",
            ),
            ("#!", 0o755, "is a script for an unnamed interpreter, not for a POSIX shell"),
            (b"\x7fELF\0\0", 0o755, "is not a text file"),
            (
                "#!/bin/sh\r\necho hi\r\n",
                0o755,
                "has a carriage return in its first line, which the system cannot run",
            ),
            (
                "#!/bin/sh\necho hi\n",
                0o644,
                "is not executable; to make it executable would activate its other lines",
            ),
            (
                "#!/bin/sh\n# >>> gitckpt >>>\nif\n",
                0o755,
                "contains a part of a gitckpt block; remove all from `# >>> gitckpt >>>` on",
            ),
        ],
    )
    def test_some_files_must_not_be_written(
        self, text: str | bytes, mode: int, reason: str, main_checkout: Checkout, standin: StandIn
    ) -> None:
        path = put_hook(main_checkout, "post-merge", text, mode)
        before = everything(main_checkout)
        content = path.read_bytes()

        done = standin.install(main_checkout)

        others = [
            f"{event}: wrote {hooks_of(main_checkout)}/{event}"
            for event in HOOKS
            if event != "post-merge"
        ]
        advice = f'post-merge: {path} {reason}; add: git ckpt hook post-merge "$@" || :'
        assert done == Installation("files", [*others, *NOTES_CHANGES], [advice])
        assert (path.read_bytes(), path.stat().st_mode & 0o7777) == (content, mode)
        assert standin.inspect(main_checkout) == [
            Finding(
                "hook-missing",
                str(path),
                f"post-merge does not call gitckpt: the file {reason}",
                'git ckpt hook post-merge "$@" || :',
            )
        ]
        uninstall(main_checkout)
        assert everything(main_checkout) == before

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "first",
        [
            "#!/bin/bash -e",
            "#! /usr/bin/env bash",
            "#!/usr/bin/env -S A=b dash -u",
            "#!/bin/busybox sh",
            ":",
            "",
        ],
    )
    def test_shell_scripts_of_all_kinds_take_it(
        self, first: str, main_checkout: Checkout, standin: StandIn
    ) -> None:
        path = put_hook(main_checkout, "post-commit", first)
        standin.install(main_checkout)
        block = standin.block("post-commit")
        assert path.read_bytes() == (
            first.encode() + b"\n" + block
            if first.startswith("#!")
            else block + b"\n" + first.encode()
        )
        uninstall(main_checkout)
        assert path.read_bytes() == first.encode()

    def test_links_directories_and_dangling_links_stay(
        self, main_checkout: Checkout, standin: StandIn
    ) -> None:
        hooks = hooks_of(main_checkout)
        hooks.mkdir()
        target = main_checkout.write("shared-hook", "#!/bin/sh\n")
        target.chmod(0o755)
        (hooks / "post-commit").symlink_to(target)
        (hooks / "post-merge").symlink_to("nowhere")
        (hooks / "post-rewrite").mkdir()
        done = standin.install(main_checkout)
        assert done.advice == [
            (
                f"post-commit: {hooks}/post-commit is a symbolic link to {target}; "
                'add: git ckpt hook post-commit "$@" || :'
            ),
            (
                f"post-merge: {hooks}/post-merge is a symbolic link to nowhere; "
                'add: git ckpt hook post-merge "$@" || :'
            ),
            (
                f"post-rewrite: {hooks}/post-rewrite is not a regular file; "
                'add: git ckpt hook post-rewrite "$@" || :'
            ),
        ]
        assert target.read_bytes() == b"#!/bin/sh\n"
        uninstall(main_checkout)
        assert sorted(path.name for path in hooks.iterdir()) == [
            "post-commit",
            "post-merge",
            "post-rewrite",
        ]

    def test_a_script_in_another_language_that_calls_us_needs_no_advice(
        self, main_checkout: Checkout, standin: StandIn
    ) -> None:
        script = (
            "#!/usr/bin/env python3\nimport subprocess, sys\n"
            'subprocess.run(["git", "ckpt", "hook", "post-commit", *sys.argv[1:]])\n'
        )
        put_hook(main_checkout, "post-commit", script)
        assert standin.install(main_checkout).advice == []
        assert standin.inspect(main_checkout) == []

    def test_a_relative_hooks_path_inside_the_git_directory_is_used(
        self, checkout: Checkout, standin: StandIn
    ) -> None:
        own = checkout.main / ".git" / "my hooks"
        checkout.git("config", "core.hooksPath", str(own))
        before = everything(checkout)
        done = standin.install(checkout)
        assert done.changed[:5] == [f"{event}: wrote {own}/{event}" for event in HOOKS]
        checkout.git("commit", "--quiet", "--allow-empty", "-m", "one")
        assert standin.calls() == [["post-commit", ""]]
        checkout.git("config", "--unset", "core.hooksPath")
        assert standin.inspect(checkout) == [
            Finding(
                "hook-shadowed",
                "core.hooksPath",
                f"git runs the hooks in {hooks_of(checkout)}, not the hooks of gitckpt in {own}",
                "git ckpt init",
            )
        ]
        checkout.git("config", "core.hooksPath", str(own))
        uninstall(checkout)
        assert everything(checkout) == before
        assert not own.exists()

    def test_a_bare_repository_has_hooks(
        self, make_checkout: Callable[..., Checkout], standin: StandIn
    ) -> None:
        bare = make_checkout("bare.git", "--bare")
        assert (
            standin.install(bare).changed[0] == f"post-commit: wrote {bare.path}/hooks/post-commit"
        )
        assert standin.inspect(bare) == []
