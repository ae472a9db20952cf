"""Hooks in git's configuration, and settings that make notes follow commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gitckpt import Finding, Installation, UsageError
from tests.conftest import Checkout, git_program
from tests.store.hooks.hook_standin import (
    NEW,
    NOTES_CHANGES,
    OLD,
    USER_TEXT,
    StandIn,
    everything,
    hooks_of,
    put_hook,
    uninstall,
)
from tests.stores import HOOKS


class TestConfigHooks:
    def test_they_need_no_file_and_work_beside_core_hooks_path(
        self, new_git: None, checkout: Checkout, standin: StandIn
    ) -> None:
        checkout.git("config", "core.hooksPath", "/dev/null")
        before = everything(checkout)

        done = standin.install(checkout, version=NEW)

        assert done == Installation(
            "config",
            [
                *(f"{event}: set hook.gitckpt-{event} in the configuration" for event in HOOKS),
                *NOTES_CHANGES,
            ],
            [],
        )
        assert everything(checkout)["hooks"] == before["hooks"]
        assert standin.inspect(checkout, NEW) == []
        checkout.git("commit", "--quiet", "--allow-empty", "-m", "one")
        assert standin.calls() == [["post-commit", ""]]
        assert checkout.git("hook", "list", "post-commit") == "gitckpt-post-commit"
        assert uninstall(checkout).changed == [
            *(f"{event}: removed hook.gitckpt-{event} from the configuration" for event in HOOKS),
            "removed notes.rewriteRef = refs/notes/checkpoint[s] from the configuration",
            "removed notes.rewriteMode = cat_sort_uniq from the configuration",
            "removed gc.cruftPacks = true from the configuration",
        ]
        assert everything(checkout) == before

    def test_a_newer_git_moves_the_hooks_into_the_configuration(
        self, new_git: None, main_checkout: Checkout, standin: StandIn
    ) -> None:
        path = put_hook(main_checkout, "post-merge", USER_TEXT)
        standin.install(main_checkout, version=OLD)
        done = standin.install(main_checkout, version=NEW)
        hooks = hooks_of(main_checkout)
        assert done.mode == "config"
        assert done.changed == [
            f"post-commit: removed {hooks}/post-commit",
            f"post-merge: removed the block from {path}",
            *(f"{event}: removed {hooks}/{event}" for event in HOOKS[2:]),
            *(f"{event}: set hook.gitckpt-{event} in the configuration" for event in HOOKS),
        ]
        main_checkout.git("commit", "--quiet", "--allow-empty", "-m", "one")
        assert standin.calls() == [["post-commit", ""]]
        assert path.read_text() == USER_TEXT
        assert standin.install(main_checkout, version=OLD).changed == [
            f"post-commit: wrote {hooks}/post-commit",
            f"post-merge: added a block to {path}",
            *(f"{event}: wrote {hooks}/{event}" for event in HOOKS[2:]),
            *(f"{event}: removed hook.gitckpt-{event} from the configuration" for event in HOOKS),
        ]

    def test_an_old_git_refuses_them(self, main_checkout: Checkout, standin: StandIn) -> None:
        before = everything(main_checkout)
        with pytest.raises(UsageError) as caught:
            standin.install(main_checkout, "config")
        assert (
            caught.value.message
            == "git 2.39.5 cannot read hooks from its configuration; git 2.54 can"
        )
        assert (
            caught.value.hint
            == "install a newer git, or choose another mode: files, external or auto"
        )
        assert everything(main_checkout) == before

    def test_what_is_wrong_with_them(self, main_checkout: Checkout, standin: StandIn) -> None:
        standin.install(main_checkout, version=NEW)
        main_checkout.git("config", "--unset", "hook.gitckpt-post-commit.command")
        main_checkout.git("config", "--unset", "hook.gitckpt-post-merge.event")
        main_checkout.git(
            "config", "hook.gitckpt-post-rewrite.enabled", ""
        )  # git takes that for false
        main_checkout.git("config", "hook.gitckpt-pre-auto-gc.command", "git ckpt hook pre-auto-gc")
        path = put_hook(main_checkout, "post-applypatch", 'git ckpt hook post-applypatch "$@"')
        twice = f"post-applypatch calls gitckpt twice; remove the call from {path}"
        assert standin.inspect(main_checkout, NEW) == [
            Finding(
                "hook-missing",
                "hook.gitckpt-post-commit",
                "post-commit does not call gitckpt",
                "git ckpt init",
            ),
            Finding(
                "hook-missing",
                "hook.gitckpt-post-merge",
                "post-merge does not call gitckpt",
                "git ckpt init",
            ),
            Finding(
                "hook-twice",
                "hook.gitckpt-post-applypatch",
                twice,
            ),
            Finding(
                "hook-missing",
                "hook.gitckpt-post-rewrite",
                "hook.gitckpt-post-rewrite.enabled turns the hook post-rewrite off",
                "git config --unset hook.gitckpt-post-rewrite.enabled",
            ),
            Finding(
                "hook-outdated",
                "hook.gitckpt-pre-auto-gc",
                "pre-auto-gc calls gitckpt in an outdated form",
                "git ckpt init",
            ),
        ]
        assert standin.install(main_checkout, version=NEW).advice == [twice]
        assert standin.inspect(main_checkout, OLD) == [
            Finding(
                "hook-missing",
                "ckpt.hooks",
                "git 2.39.5 does not run hooks that its configuration defines",
                "git ckpt init",
            )
        ]


class TestSettings:
    @pytest.mark.sampled(4)
    @pytest.mark.parametrize(
        ("config", "changed"),
        [
            ("", NOTES_CHANGES),
            ("[notes]\n\trewriteRef = refs/notes/mine\n", [NOTES_CHANGES[0], NOTES_CHANGES[2]]),
            (
                "[notes]\n\t# how I like it\n\trewriteMode = overwrite\n",
                [NOTES_CHANGES[0], NOTES_CHANGES[2]],
            ),
            ("[notes]\n\trewriteRef = refs/notes/checkpoints\n", NOTES_CHANGES[2:]),
            ("[notes]\n\trewriteRef = refs/notes/*\n", NOTES_CHANGES[2:]),
            ("[gc]\n\tcruftPacks = false\n", NOTES_CHANGES[:2]),
            ("[notes]\n\tdisplayRef = refs/notes/mine\n[ckpt]\n\tkeepLast = 3\n", NOTES_CHANGES),
        ],
    )
    @pytest.mark.parametrize("mode", ["files", "none"])
    def test_what_the_user_has_set_stays(
        self, mode: str, config: str, changed: list[str], checkout: Checkout, standin: StandIn
    ) -> None:
        path = checkout.main / ".git" / "config"
        path.write_text(path.read_text() + config)
        before = everything(checkout)
        assert standin.install(checkout, mode).changed[-len(changed) or 9 :] == changed
        standin.install(checkout, mode)
        uninstall(checkout)
        assert everything(checkout) == before

    def test_what_the_user_has_set_for_all_repositories_counts(
        self, sealed: Path, main_checkout: Checkout, standin: StandIn
    ) -> None:
        main_checkout.git("config", "--global", "notes.rewriteRef", "refs/notes/mine")
        assert standin.install(main_checkout, "none").changed == [
            NOTES_CHANGES[0],
            NOTES_CHANGES[2],
        ]
        main_checkout.git("config", "--global", "--add", "notes.rewriteRef", "refs/notes/check*")
        main_checkout.git("config", "--global", "gc.cruftPacks", "false")
        uninstall(main_checkout)
        assert standin.install(main_checkout, "none").changed == []
        assert standin.inspect(main_checkout) == []

    def test_git_does_not_warn_of_notes_that_are_not_there_yet(
        self, main_checkout: Checkout, standin: StandIn
    ) -> None:
        standin.install(main_checkout, "none")
        amend = [git_program(), "commit", "--quiet", "--allow-empty", "--amend", "-m"]
        main_checkout.git("notes", "--ref=checkpoints-of-mine", "add", "-m", "mine")
        assert (
            subprocess.run(
                [*amend, "two"], cwd=main_checkout.path, capture_output=True, check=True
            ).stderr
            == b""
        )
        main_checkout.git("notes", "--ref=checkpoints", "add", "-m", "link")
        main_checkout.git("notes", "--ref=checkpoints-of-mine", "add", "-m", "mine")
        assert (
            subprocess.run(
                [*amend, "three"], cwd=main_checkout.path, capture_output=True, check=True
            ).stderr
            == b""
        )
        assert main_checkout.git("notes", "--ref=checkpoints", "show") == "link"
        main_checkout.git("notes", "--ref=checkpoints-of-mine", "show", ok=(1,))

    def test_links_follow_an_amended_commit(
        self, main_checkout: Checkout, standin: StandIn
    ) -> None:
        standin.install(main_checkout, "none")
        main_checkout.git("notes", "--ref=checkpoints", "add", "-m", "b link\na link")
        main_checkout.git("commit", "--quiet", "--amend", "-m", "amended")
        assert main_checkout.git("notes", "--ref=checkpoints", "show").splitlines() == [
            "b link",
            "a link",
        ]
