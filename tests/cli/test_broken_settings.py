"""A broken `gitckpt.toml` stops only commands that would execute its commands.

Commands that save or restore work.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ckpt
from tests.conftest import Checkout
from tests.durable.stage import Stage, stage
from tests.stores import default_settings

__all__ = ["stage"]

INSTEAD = "using built-in settings, or stricter ones that can be read"
NEWER = f"{default_settings()}\n[retention.elsewhere]\nolder_than = '1d'\n"


def _write(text: str | bytes) -> Callable[[Checkout], object]:
    return lambda checkout: checkout.write("gitckpt.toml", text)


def _directory(checkout: Checkout) -> None:
    checkout.write("gitckpt.toml/inside", "x")


def _link(checkout: Checkout) -> None:
    (checkout.path / "gitckpt.toml").symlink_to("README")


CONFLICT = "[retention]\n<<<<<<< HEAD\nkeep_last = 200\n=======\nkeep_last = 300\n>>>>>>> other\n"
BROKEN: dict[str, tuple[Callable[[Checkout], object], str]] = {
    "conflict": (_write(CONFLICT), "gitckpt.toml:2: not TOML: "),
    "syntax": (_write("[retention]\nhalf = [\n"), "gitckpt.toml:2: not TOML: "),
    "newer key": (
        _write("\n[snapshot]\ntomorrow = 1\n"),
        "gitckpt.toml:3: unknown key 'tomorrow' in [snapshot]; ",
    ),
    "newer table": (
        _write("\n[tomorrow]\n"),
        "gitckpt.toml:2: unknown key 'tomorrow' in the file; ",
    ),
    "type": (_write("[snapshot]\nsecrets = 3\n"), "gitckpt.toml:2: secrets in [snapshot] must be "),
    "two": (
        _write("[snapshot]\nsecrets = 3\ninclude = 3\n"),
        "gitckpt.toml:2: secrets in [snapshot] must be ",
    ),
    "binary": (_write(bytes(range(256))), "gitckpt.toml:1: "),
    "long": (_write("# long\n" * 200_000), "cannot read "),
    "directory": (_directory, "cannot read "),
    "link": (_link, "PLACE/gitckpt.toml is a symbolic link"),
}


@pytest.fixture
def project(main_checkout: Checkout) -> Checkout:
    main_checkout.commit("settings", **{"gitckpt.toml": default_settings()})
    return main_checkout


def _break(checkout: Checkout, how: Callable[[Checkout], object]) -> None:
    file = checkout.path / "gitckpt.toml"
    if file.is_dir() and not file.is_symlink():
        (file / "inside").unlink()
        file.rmdir()
    else:
        file.unlink(missing_ok=True)
    how(checkout)


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", BROKEN)
def test_work_is_saved_and_comes_back(project: Checkout, ckpt: Ckpt, kind: str) -> None:
    how, said = BROKEN[kind]
    saved = ckpt("save", at=project).out.strip()
    _break(project, how)
    project.write("README", "work\n")

    def call(*words: str, tells: bool = True) -> str:
        done = ckpt(*words)
        assert done.code == 0, (words, done.err)
        lines = [line for line in done.err.splitlines() if INSTEAD in line]
        assert [
            line.startswith(f"warning: {said.replace('PLACE', str(project.path))}")
            for line in lines
        ] == [True] * tells
        return done.out

    call("list", tells=False)
    call("show", saved, tells=False)
    assert "README" in call("diff", saved, "--stat")
    call("save")
    call("save", "--agent", "claude")
    call("start")
    call("resume", "--no-run", saved)
    call("expire")
    call("du")
    assert "settings-invalid" in ckpt("doctor").out
    call("restore", saved)
    file = project.path / "gitckpt.toml"
    assert (file.read_text(), (project.path / "README").read_text() == "work\n") == (
        default_settings(),
        False,
    )
    call("undo", tells=False)
    assert (project.path / "README").read_text() == "work\n"
    call("redo")
    assert file.read_text() == default_settings()
    call("undo", tells=False)
    call("save")  # the broken file is there again


@pytest.mark.long
def test_a_restore_does_not_take_its_own_undo_away(project: Checkout, ckpt: Ckpt) -> None:
    file = project.path / "gitckpt.toml"
    older = ckpt("save", at=project).out.strip()
    project.write("gitckpt.toml", NEWER)
    newer = ckpt("save").out.strip()
    file.write_text(default_settings())
    for words, now in (
        (["restore", newer], NEWER),
        (["undo"], default_settings()),
        (["redo"], NEWER),
        (["restore", older], default_settings()),
        (["undo"], NEWER),
        (["redo"], default_settings()),
    ):
        done = ckpt(*words)
        assert (done.code, file.read_text() == now) == (0, True), (words, done.err)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["conflict", "newer key", "directory"])
def test_what_the_file_would_execute_is_refused(stage: Stage, kind: str) -> None:
    pipeline = "[[pipelines.ci.phases]]\nname = 'one'\nrun = 'exit 1'\n"
    stage.checkout.commit("a pipeline", **{"gitckpt.toml": pipeline, "plan.md": "x"})
    assert stage.ckpt("run", "ci").code == 20
    run = stage.run()
    harmful = pipeline.replace("exit 1", f"touch {stage.checkout.path}/marker")
    _break(stage.checkout, BROKEN[kind][0])
    if kind != "directory":
        file = stage.checkout.path / "gitckpt.toml"
        file.write_text(f"{file.read_text()}{harmful}")
    for words in (
        ["run", "ci"],
        ["run", "plan.md"],
        ["loop", "plan.md", "--done", "true"],
        ["review", "x"],
        ["resume", run],
        ["resume"],
    ):
        done = stage.ckpt(*words)
        assert done.code == 2, (words, done.err)
        assert "gitckpt.toml" in next(
            line for line in done.err.splitlines() if line.startswith("error")
        )
    assert stage.runs() == [run]
    assert not (stage.checkout.path / "marker").exists()
    assert stage.ckpt("resume", "--no-run", run).code == 0


def test_nothing_is_captured_that_built_in_settings_leave_out(
    project: Checkout, ckpt: Ckpt
) -> None:
    loose = 'include = ["*.log"]\nsecrets = []\n'
    project.write("gitckpt.toml", f"[snapshot]\n{loose}")
    assert ckpt("allow", at=project).code == 0
    project.write(".gitignore", "*.log\n")
    for name in ("server.pem", "a.log", "notes"):
        project.write(name, "x\n")
    project.write("gitckpt.toml", f"[snapshot]\n{loose}tomorrow = 1\n")
    saved = ckpt("save").out.strip()
    held = json.loads(ckpt("show", saved, "--json").out)["worktree"]
    assert [each["path"] for each in held["omitted"]] == ["server.pem"]
    names = project.git("ls-tree", "-r", "--name-only", f"{held['tree']}:files").split("\n")
    assert ("notes" in names, "a.log" in names) == (True, False)


def test_what_head_leaves_out_stays_left_out_beside_a_conflict(
    project: Checkout, ckpt: Ckpt
) -> None:
    project.commit(
        "stricter", **{"gitckpt.toml": '[snapshot]\nsecrets = ["customers*", ".env*"]\n'}
    )
    project.write("gitckpt.toml", CONFLICT)
    project.write("customers.csv", "x\n")
    saved = ckpt("save", at=project).out.strip()
    held = json.loads(ckpt("show", saved, "--json").out)["worktree"]
    assert [each["path"] for each in held["omitted"]] == ["customers.csv"]


def test_a_commit_in_the_worktree_of_a_run_is_recorded(stage: Stage) -> None:
    stage.ok("init")
    place = Path(stage.ok("start").strip())
    (place / "gitckpt.toml").write_text("[tomorrow]\n")
    worktree = Checkout(place, stage.checkout.path)
    worktree.git("add", "gitckpt.toml")
    worktree.write("more", "x\n")
    done = stage.ckpt("hook", "post-commit", at=place)
    assert (
        f"gitckpt: post-commit: gitckpt.toml:1: unknown key 'tomorrow' in the file; {INSTEAD}"
        in done.err
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "value"), [("keepLast", "many"), ("olderThan", "soon"), ("maxFileSize", "big")]
)
def test_a_bad_value_in_git_config_stops_nothing(
    project: Checkout, ckpt: Ckpt, name: str, value: str
) -> None:
    saved = ckpt("save", at=project).out.strip()
    project.git("config", f"ckpt.{name}", value)
    project.write("README", "work\n")
    for words in (
        ["save"],
        ["diff", saved],
        ["start"],
        ["expire"],
        ["restore", saved],
        ["undo"],
        ["redo"],
        ["init"],
    ):
        done = ckpt(*words)
        assert done.code == 0, (words, done.err)
        assert done.err.count(f"warning: ckpt.{name.lower()} in git config") == 1, words
    done = ckpt("loop", "README")
    assert (done.code, f"ckpt.{name.lower()} in git config" in done.err) == (2, True)


def test_init_installs_hooks_beside_a_file_of_a_newer_version(
    project: Checkout, ckpt: Ckpt
) -> None:
    project.write("gitckpt.toml", NEWER)
    done = ckpt("init", at=project)
    assert (done.code, INSTEAD in done.err) == (0, True)
    assert (project.path / "gitckpt.toml").read_text() == NEWER
    assert "hook-missing" not in ckpt("doctor").out
    project.write("gitckpt.toml", "[half\n")
    assert ckpt("init").code == 0
    assert ckpt("uninit").code == 0


def test_allow_refuses_what_it_cannot_read(project: Checkout, ckpt: Ckpt) -> None:
    project.write("gitckpt.toml", CONFLICT)
    done = ckpt("allow", at=project)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: gitckpt.toml:2: not TOML: ")


def test_doctor_names_settings_that_nothing_reads(
    project: Checkout, ckpt: Ckpt, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.git("config", "ckpt.keepLats", "3")
    project.git("config", "ckpt.keepLast", "3")
    project.git("config", "--global", "ckpt.zzz", "3")
    for name, value in (("COUNT", "1"), ("KEY_0", "ckpt.includes"), ("VALUE_0", "x")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    assert ckpt("init", at=project).code == 0
    found = [
        each
        for each in json.loads(ckpt("doctor", "--json").out)["findings"]
        if each["code"] == "settings-unknown"
    ]
    local = project.path / ".git/config"
    assert [each["object"] for each in found] == ["ckpt.zzz", "ckpt.keeplats", "ckpt.includes"]
    assert found[1]["sentence"] == f"is unknown to this gitckpt; set in {local}"
    assert found[1]["cure"] == (
        f"did you mean ckpt.keeplast? To remove ckpt.keeplats: git config --file {local} "
        "--unset-all ckpt.keeplats"
    )
    assert found[2]["sentence"] == "is unknown to this gitckpt"
    assert found[2]["cure"].startswith("did you mean ckpt.include? ")


@pytest.mark.parametrize("kind", ["conflict", "directory"])
def test_steps_are_reported_as_head_has_them(project: Checkout, ckpt: Ckpt, kind: str) -> None:
    steps = '[[steps.mine.steps]]\nname = "dig"\n[[steps.mine.steps]]\nname = "fill"\n'
    project.commit("steps", **{"gitckpt.toml": steps})
    assert ckpt("step", "start", "dig", "--track", "hole", "--graph", "mine", at=project).code == 0
    _break(project, BROKEN[kind][0])
    if kind == "conflict":
        project.write("gitckpt.toml", f"{steps}{CONFLICT}")
    done = ckpt("step", "pass", "dig", "--track", "hole")
    assert (done.code, INSTEAD in done.err) == (0, True)
    assert ckpt("step", "next", "--track", "hole").out == "fill\n"
    assert ckpt("step", "start", "x", "--track", "other", "--graph", "nothing").code == 2
