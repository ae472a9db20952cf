"""Addresses: every text that names a checkpoint, wherever a command takes an ID."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from gitckpt import Store
from gitckpt.model import times
from tests.agents.hook_calls import call_hook
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout
from tests.stores import HOUR, open_store

MINUTE = HOUR // 60


class Scene:
    """A worktree with four checkpoints, 200, 100, 30 and 10 minutes old, and two runs."""

    def __init__(self, ckpt: Ckpt, checkout: Checkout) -> None:
        self.ckpt, self.checkout = ckpt, checkout
        self.ids: list[str] = []
        now = times.now()
        for age in (200, 100, 30, 10):
            with open_store(checkout, clock=partial(int, now - age * MINUTE)) as store:
                checkout.write("README", f"{age}\n")
                self.ids.append(store.save("manual-complete", message=f"{age} ago").id)
        self.runs: list[str] = []
        with open_store(checkout, clock=lambda: now - 300 * MINUTE) as store:
            for name in ("add login", "add logout"):
                first = store.record("plan-complete", {}, start=name)
                run = str(first.run)
                build = store.record("build-failed", {}, run=run, message=f"{name} fails")
                self.runs.append(run)
                self.ids += [first.id, build.id]

    def found(self, address: str) -> str:
        done = self.ckpt("show", address, "--json", at=self.checkout)
        assert done.code == 0, done.err
        return str(json.loads(done.out)["id"])

    def refused(self, address: str) -> str:
        done = self.ckpt("show", address, at=self.checkout)
        assert (done.code, done.out) == (12, "")
        return done.err


@pytest.fixture
def scene(ckpt: Ckpt, main_checkout: Checkout) -> Scene:
    return Scene(ckpt, main_checkout)


def test_steps_back_in_this_worktree(scene: Scene) -> None:
    found = [scene.found(address) for address in ("latest", "latest~", "latest~1", "latest~3")]
    assert found == [scene.ids[3], scene.ids[2], scene.ids[2], scene.ids[0]]
    assert "latest~99: this worktree has only" in scene.refused("latest~99")


def test_a_point_in_time(scene: Scene) -> None:
    stamp = times.to_text(times.now() - 60 * MINUTE)
    texts = ("@{now}", "@{20m}", "@{2 hours ago}", f"@{{{stamp}}}")
    assert [scene.found(text) for text in texts] == [scene.ids[n] for n in (3, 2, 0, 1)]
    oldest = scene.refused("@{9h}")
    assert "no checkpoint of this worktree is as old as @{9h}" in oldest
    assert "git ckpt show" in oldest
    done = scene.ckpt("show", "@{soon}", at=scene.checkout)
    assert (done.code, "'soon' is not a point in time" in done.err) == (2, True)


def test_a_point_in_time_of_git_stays_a_revision(scene: Scene) -> None:
    scene.checkout.commit("second")
    assert "no checkpoint is linked to commit" in scene.refused("@{0}")
    for text in ("@{0}", "@{50}", "latest@{50}"):
        number = text.rpartition("{")[2][:-1]
        hint = f"hint: latest~{number} counts checkpoints, @{{{number}m}} minutes"
        assert scene.refused(text).splitlines()[-1] == hint
    assert scene.found("@{1}") == scene.found("HEAD~1")


def test_a_part_of_the_name_of_a_run(scene: Scene) -> None:
    login, logout = scene.runs
    assert scene.found("add-login") == scene.ids[5]
    assert scene.found("logout") == scene.found(logout) == scene.ids[7]
    several = scene.refused("add-log").splitlines()
    assert several[0] == "error: 2 runs have names with 'add-log'"
    assert several[1] == f"  {login}  5h  add login fails"
    assert several[2] == f"  {logout}  5h  add logout fails"


def test_a_revision_comes_before_a_part_of_a_name(scene: Scene) -> None:
    scene.checkout.git("branch", "login")
    assert scene.found("login") == scene.found("HEAD")


def test_a_note_says_which_checkpoint_a_revision_names(scene: Scene) -> None:
    commit, newest = scene.checkout.git("rev-parse", "HEAD")[:10], scene.ids[3][:8]
    scene.checkout.git("branch", "side")
    note = f"commit {commit}, using its newest checkpoint {newest} (10m ago)"
    for words, expected in {
        ("show", "HEAD"): f"note: HEAD is {note}\n",
        ("show", commit): f"note: {commit} is a {note.replace(f' {commit}', '')}\n",
        ("log", "side"): f"note: side is {note}\n",
        ("diff", "HEAD"): f"note: HEAD is {note}; git diff HEAD compares with the commit itself\n",
        ("show", "HEAD", "--json"): "",
        ("-q", "show", "HEAD"): "",
        ("show", newest): "",
        ("complete", "--", "ls", "HEAD", ""): "",
    }.items():
        done = scene.ckpt(*words, at=scene.checkout)
        assert (done.code, done.err) == (0, expected), words
    assert "note: HEAD is commit" in scene.ckpt("restore", "HEAD", at=scene.checkout).err


def test_in_a_run(scene: Scene) -> None:
    first, build = scene.ids[4:6]
    assert scene.found("login:plan") == scene.found("login:plan-complete") == first
    assert scene.found(f"{scene.runs[0]}:build") == build
    assert [scene.found(text) for text in ("login~0", "login~", "login~1")] == [build, first, first]
    assert "has no phase 'review'" in scene.refused("login:review")
    assert "has only 2 checkpoints" in scene.refused("login~2")


@pytest.mark.long
def test_a_turn_of_a_session(ckpt: Ckpt, checkout: Checkout) -> None:
    for number in (1, 2):
        call_hook("UserPromptSubmit", checkout, prompt=f"fix the parser {number}")
        checkout.write("README", f"{number}\n")
        call_hook("Stop", checkout)
    listed = json.loads(ckpt("turns", "--json", at=checkout).out)["turns"]
    second, first = listed
    for session in (first["run"], "parser", first["session"]):
        done = ckpt("show", f"{session}:1", "--json", at=checkout)
        assert json.loads(done.out)["id"] == first["after"], done.err
        newest = json.loads(ckpt("show", session, "--json", at=checkout).out)["id"]
        assert newest == second["after"]
    assert "has no phase '7'" in ckpt("show", "parser:7", at=checkout).err


@pytest.mark.long
def test_each_command_takes_addresses(scene: Scene, tmp_path: Path) -> None:
    def call(*words: str) -> None:
        done = scene.ckpt(*words, at=scene.checkout)
        assert done.code == 0, done.err

    call("diff", "latest~2", "@{20m}")
    call("restore", "latest~2")
    assert scene.checkout.path.joinpath("README").read_text() == "100\n"
    call("resume", "--no-run", "@{20m}", "--into", str(tmp_path / "there"))
    call("verify", "latest~", "logout:plan")
    assert scene.ckpt("list", "--run", "logout", at=scene.checkout).out.count("\n") == 2
    call("remove", "logout:build", "--force")
    call("remove", "login", "--force")
    with Store.open(scene.checkout.path) as store:
        assert [run.run for run in store.runs()] == scene.runs[1:]


def test_a_path_in_a_checkpoint(scene: Scene) -> None:
    with Store.open(scene.checkout.path) as store:
        newest, plan = scene.ids[3], scene.ids[4]
        for text, expected in {
            newest: (newest, None),
            f"{newest[:8]}:README": (newest, "README"),
            f"{newest[:8]}:a:b": (newest, "a:b"),
            "@{20m}:src/app.py": (scene.ids[2], "src/app.py"),
            "latest:any": (newest, None),
            "latest:any:README": (newest, "README"),
            "login:plan": (plan, None),
            "login:plan:README": (plan, "README"),
            "login:README": (scene.ids[5], "README"),
            "latest~1:": (scene.ids[2], ""),
        }.items():
            assert store.find_path(text) == expected, text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "..",
            "a..b",
            "~",
            "~3",
            ":",
            "::",
            ":plan",
            "latest~-1",
            "@{",
            "@{}",
            "login:",
            "login~x",
        ),
        *(
            "\x1b[31m",
            "login:\x1b[2J",
            "a\nb",
            "\udcff",
            "x" * 5000,
            "@{\x1b[31m}",
            "login~" + "9" * 99,
        ),
    ],
)
def test_a_hostile_address_is_refused_and_escaped(scene: Scene, text: str) -> None:
    done = scene.ckpt("show", "--", text, at=scene.checkout)
    assert done.code in (2, 12)
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert "\x1b" not in done.err
    assert "bug" not in done.err


def test_the_whole_name_of_a_run_may_be_short(scene: Scene) -> None:
    with open_store(scene.checkout) as store:
        checkpoint = store.record("plan-complete", {}, start="ci")
        store.record("plan-complete", {}, start="ci-lint")
    assert scene.found("ci") == checkpoint.id
    assert "no checkpoint, run or commit is named 'c'" in scene.refused("c")
