"""No run starts with a broken committed `gitckpt.toml`, but a run can end with it."""

from __future__ import annotations

import pytest

from gitckpt import ConfigError
from gitckpt.git.repository import discover_repository
from gitckpt.store.config import settings
from tests.conftest import Checkout
from tests.durable.stage import Stage, stage

__all__ = ["stage"]

MISTAKE = "[retention]\nolder_then = '1d'\n"
SAID = "gitckpt.toml:2: unknown key 'older_then' in [retention]"
INSTEAD = "using built-in settings, or stricter ones that can be read"
CORRECT = (
    "[retention]\nolder_than = '30d'\n[[pipelines.ci.phases]]\nname = 'one'\nrun = '[ -e ok ]'\n"
)


class TestBegin:
    @pytest.mark.long
    def test_nothing_is_made(self, stage: Stage) -> None:
        commit = stage.checkout.commit("a mistake", **{"gitckpt.toml": MISTAKE})
        stage.checkout.write("gitckpt.toml", CORRECT)
        before = stage.checkout.refs()
        where = stage.checkout.path / "gitckpt.toml"
        cure = f"the run would use this file: correct {where}, commit it, and start again"
        err = f"error: {commit[:10]}:{SAID}\nhint: {cure} (did you mean older_than?)\n"
        assert stage.ckpt("run", "ci") == (2, "", err)
        assert stage.checkout.refs() == before
        assert not (stage.checkout.path / ".ckpt/worktrees").exists()
        stage.checkout.commit("corrected", **{"gitckpt.toml": f"{CORRECT}# by hand\n"})
        older = stage.ckpt("run", "ci", "--base", commit)
        assert older.err.endswith(
            "; or start at another commit: --base REV (did you mean older_than?)\n"
        )
        assert stage.runs() == []
        assert stage.ckpt("run", "ci").code == 20  # as its phase says

    def test_several_mistakes_are_named(self, stage: Stage) -> None:
        commit = stage.checkout.commit("mistakes", **{"gitckpt.toml": f"typo = 1\n{MISTAKE}"})
        stage.checkout.write("gitckpt.toml", CORRECT)
        done = stage.ckpt("run", "ci")
        assert (done.code, done.err.splitlines()[0]) == (
            2,
            f"error: {commit[:10]}:gitckpt.toml: 2 mistakes",
        )
        assert done.err.splitlines()[-1].startswith("hint: the run would use this file: correct ")

    def test_where_head_is_unborn(self, main_checkout: Checkout) -> None:
        commit = main_checkout.commit("a mistake", **{"gitckpt.toml": MISTAKE})
        main_checkout.git("symbolic-ref", "HEAD", "refs/heads/unborn")
        with pytest.raises(ConfigError) as caught:
            settings.require_valid_settings_at(discover_repository(str(main_checkout.path)), commit)
        assert caught.value.message == f"{commit[:10]}:{SAID}"

    def test_what_git_config_overrides_is_not_judged(self, main_checkout: Checkout) -> None:
        commit = main_checkout.commit(
            "a mistake", **{"gitckpt.toml": "[retention]\nkeep_last = -1\n"}
        )
        main_checkout.git("config", "ckpt.keepLast", "5")
        settings.require_valid_settings_at(discover_repository(str(main_checkout.path)), commit)

    def test_a_link_and_what_a_filter_makes_something_else_of_are_not_judged_by_the_blob(
        self, main_checkout: Checkout
    ) -> None:
        repository = discover_repository(str(main_checkout.path))
        (main_checkout.path / "gitckpt.toml").symlink_to("[elsewhere")
        settings.require_valid_settings_at(repository, main_checkout.commit("a link", other="x"))
        (main_checkout.path / "gitckpt.toml").unlink()
        main_checkout.git("config", "filter.turn.clean", "tr a-z n-za-m")
        main_checkout.git("config", "filter.turn.smudge", "tr a-z n-za-m")
        attributes = {".gitattributes": "gitckpt.toml filter=turn\n"}
        commit = main_checkout.commit(
            "turned", **attributes, **{"gitckpt.toml": "[retention]\nkeep_last = 3\n"}
        )
        assert "retention" not in main_checkout.git("cat-file", "-p", f"{commit}:gitckpt.toml")
        settings.require_valid_settings_at(repository, commit)


class TestEnd:
    """A run ends although a phase or a person broke `gitckpt.toml` in its worktree."""

    @pytest.mark.long
    def test_resume_finish_and_expire(self, stage: Stage) -> None:
        stage.checkout.write("gitckpt.toml", CORRECT)
        assert stage.ckpt("run", "ci").code == 20
        run = stage.run()
        place = stage.worktree(run)
        (place / "gitckpt.toml").write_text(MISTAKE)
        warning = f"warning: {SAID}; {INSTEAD}, until this is corrected: {place}/gitckpt.toml\n"
        again = stage.ckpt("resume", run)
        assert (again.code, again.err.count(warning)) == (20, 1)
        (place / "ok").touch()
        assert stage.ckpt("resume", run).code == 0
        assert stage.status(run) == "complete"
        done = stage.ckpt("expire", "--all", "--older-than", "0s", "--keep-last", "0")
        assert (done.code, done.err.count(warning)) == (0, 1)
        assert (stage.runs(), place.exists()) == ([], False)

    @pytest.mark.long
    def test_finish_in_the_worktree_and_from_outside(self, stage: Stage) -> None:
        for inside in (True, False):
            place = stage.worktree(stage.ok("start").rpartition("/")[2])
            (place / "gitckpt.toml").write_text(MISTAKE)
            done = stage.ckpt("finish", at=place) if inside else stage.ckpt("finish", place.name)
            assert done.code == 0, done.err
            assert INSTEAD in done.err
            assert stage.status(place.name) == "complete"
            assert stage.ok("remove", place.name) == place.name
        assert stage.runs() == []

    def test_what_is_told_in_the_worktree_names_the_path(self, stage: Stage) -> None:
        place = stage.worktree(stage.ok("start").rpartition("/")[2])
        (place / "gitckpt.toml").write_text(MISTAKE)
        for words in (["save"], ["expire"]):
            done = stage.ckpt(*words, at=place)
            assert done.code == 0
            assert f"{INSTEAD}, until this is corrected: {place}/gitckpt.toml\n" in done.err
