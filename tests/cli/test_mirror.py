"""`mirror` writes a track's state to a file, and never replaces a foreign file."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from pathlib import Path

import pytest

from gitckpt import StepReport, Steps, Store
from tests import planted
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout
from tests.dying import die_at_rename
from tests.planted import plant

PATH = "conductor/tracks/login/metadata.json"
CONFIG = '[steps.superpowers]\nmirror = "conductor/tracks/{track}/metadata.json"\n'


@pytest.fixture
def project(checkout: Checkout) -> Checkout:
    checkout.write("gitckpt.toml", CONFIG)
    return checkout


def report(ckpt: Ckpt, at: Checkout, *words: str) -> str:
    done = ckpt("step", *words, "--track", "login", at=at)
    assert done.code == 0, done.err
    return done.err


def test_it_is_written_with_each_report(ckpt: Ckpt, project: Checkout) -> None:
    report(ckpt, project, "start", "PLAN")
    path = project.path / PATH
    first = json.loads(path.read_text())
    assert (
        first["track_id"],
        first["loop_state"]["current_step"],
        first["loop_state"]["step_status"],
    ) == ("login", "PLAN", "IN_PROGRESS")
    report(ckpt, project, "pass", "PLAN")
    assert json.loads(path.read_text())["loop_state"]["current_step"] == "EVALUATE_PLAN"
    run = ckpt("runs", at=project).out.split("\t")[0]
    assert path.read_text() == ckpt(
        "export", run, "--format", "superpowers", at=project
    ).out.replace('{\n  "version": 3,\n', "{\n")
    assert os.listdir(path.parent) == ["metadata.json"]


def test_a_kill_leaves_no_part_of_it_in_the_worktree(ckpt: Ckpt, project: Checkout) -> None:
    report(ckpt, project, "start", "PLAN")
    die_at_rename("metadata.json", lambda: report(ckpt, project, "pass", "PLAN"))
    assert os.listdir((project.path / PATH).parent) == ["metadata.json"]


def test_a_worktree_that_is_mounted_by_itself(
    ckpt: Ckpt, project: Checkout, tmp_path: Path
) -> None:
    """The mirror works in a worktree that is a bind mount, as in containers.

    No file can be renamed from git's directory into such a worktree, though both are on one device.
    """
    project.git("add", ".")
    project.git("commit", "--quiet", "--message=settings")
    linked = Checkout(tmp_path / "linked")
    project.git("worktree", "add", "--quiet", str(linked.path))
    if (
        subprocess.run(
            ["mount", "--bind", str(linked.path), str(linked.path)],
            capture_output=True,
            check=False,
        ).returncode
        != 0
    ):
        pytest.skip("nothing can be mounted here")
    try:
        for word in ("start", "pass"):
            assert "cannot write" not in report(ckpt, linked, word, "PLAN")
        assert (
            json.loads((linked.path / PATH).read_text())["loop_state"]["current_step"]
            == "EVALUATE_PLAN"
        )
        assert os.listdir((linked.path / PATH).parent) == ["metadata.json"]
    finally:
        subprocess.run(["umount", "--lazy", str(linked.path)], check=True)


def test_whoever_writes_it_last_writes_what_was_reported_last(
    ckpt: Ckpt, project: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(ckpt, project, "start", "PLAN")
    written = planted.original(planted.WRITE_MIRROR)

    def after_another(*args: object) -> None:
        plant(monkeypatch, planted.WRITE_MIRROR, written)
        report(ckpt, project, "pass", "PLAN")
        written(*args)

    plant(monkeypatch, planted.WRITE_MIRROR, after_another)
    with Store.open(project.path, adapter="plumbing") as store:
        Steps(store, track="login").report(StepReport("progress", "PLAN", notes="on my way"))
    assert (
        json.loads((project.path / PATH).read_text())["loop_state"]["current_step"]
        == "EVALUATE_PLAN"
    )


def test_a_repeated_report_writes_the_mirror_that_a_killed_one_did_not(
    ckpt: Ckpt, project: Checkout
) -> None:
    report(ckpt, project, "start", "EXECUTE", "--force")
    path, first, second = project.path / PATH, str(uuid.uuid4()), str(uuid.uuid4())
    words = (
        "progress",
        "EXECUTE",
        "--task",
        "1.1",
        "--task-status",
        "PASSED",
        "--track",
        "login",
        "--id",
        first,
    )
    before = path.read_bytes()
    die_at_rename("metadata.json", lambda: ckpt("step", *words, at=project))
    assert path.read_bytes() == before
    done = ckpt("step", *words, at=project)
    assert (done.code, done.out) == (0, f"{first}\n")
    assert list(json.loads(path.read_text())["loop_state"]["checkpoints"]["EXECUTE"]["tasks"]) == [
        "1.1"
    ]
    # Reported again after another report, it takes nothing back.
    report(
        ckpt,
        project,
        "progress",
        "EXECUTE",
        "--task",
        "1.2",
        "--task-status",
        "PASSED",
        "--id",
        second,
    )
    assert ckpt("step", *words, at=project).code == 0
    assert list(json.loads(path.read_text())["loop_state"]["checkpoints"]["EXECUTE"]["tasks"]) == [
        "1.1",
        "1.2",
    ]


def test_a_file_that_was_there_is_gone_on_with(ckpt: Ckpt, project: Checkout) -> None:
    """An orchestrator made the file, and its own keys stay in it."""
    path = project.write(
        PATH,
        json.dumps(
            {
                "track_id": "login",
                "own": 1,
                "loop_state": {"current_step": "EXECUTE", "step_status": "NOT_STARTED"},
            }
        ),
    )
    assert ckpt("save", "--state", str(path), "--track", "login", at=project).code == 0
    report(ckpt, project, "start", "EXECUTE")
    assert (
        json.loads(path.read_text())["own"],
        json.loads(path.read_text())["loop_state"]["step_status"],
    ) == (1, "IN_PROGRESS")


@pytest.mark.parametrize(
    ("pattern", "track"),
    [("{track}/m.json", ".git"), (".gi{track}/m.json", "T"), ("{track}/m.json", ".ckpt")],
)
def test_no_track_leads_out_of_the_worktree(
    ckpt: Ckpt, checkout: Checkout, pattern: str, track: str
) -> None:
    checkout.write("gitckpt.toml", f'[steps.superpowers]\nmirror = "{pattern}"\n')
    done = ckpt("step", "start", "PLAN", "--track", track, at=checkout)
    assert (
        done.code,
        f"the state is not mirrored: '{track}' is not a file name" in done.err,
    ) == (0, True), done.err
    assert not (checkout.path / pattern.replace("{track}", track).lower()).exists()


@pytest.mark.parametrize(
    "text", ["mine\n", "[]", '{"track_id": "other", "loop_state": {}}', '{"name": "package"}']
)
def test_what_is_somebody_elses_stays(ckpt: Ckpt, project: Checkout, text: str) -> None:
    path = project.write(PATH, text)
    said = report(ckpt, project, "start", "PLAN")
    assert f"cannot write {PATH}: the existing file does not belong to the track login" in said
    assert path.read_text() == text


def test_nothing_is_written_through_a_link(ckpt: Ckpt, project: Checkout, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (project.path / "conductor").symlink_to(outside)
    assert "gitckpt does not write through the link" in report(ckpt, project, "start", "PLAN")
    assert list(outside.iterdir()) == []
    (project.path / "conductor").unlink()
    (project.path / PATH).parent.mkdir(parents=True)
    (project.path / PATH).symlink_to(outside / "new.json")
    report(ckpt, project, "pass", "PLAN")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "pattern",
    [
        "/etc/{track}.json",
        "../{track}.json",
        ".git/{track}.json",
        "a/.GIT/{track}.json",
        "metadata.json",
        "{track}",
        "a//{track}.json",
        "",
    ],
)
def test_a_path_that_is_none(ckpt: Ckpt, checkout: Checkout, pattern: str) -> None:
    checkout.write("gitckpt.toml", f'[steps.superpowers]\nmirror = "{pattern}"\n')
    done = ckpt("step", "start", "PLAN", "--track", "login", at=checkout)
    assert (done.code, done.out) == (2, "")
    assert "gitckpt.toml" in done.err


@pytest.mark.parametrize("track", ["a/b", "..", "../x"])
def test_a_track_that_is_no_name_of_a_file(ckpt: Ckpt, project: Checkout, track: str) -> None:
    done = ckpt("step", "start", "PLAN", "--track", track, at=project)
    assert done.code == 0
    assert "the state is not mirrored" in done.err
    assert not (project.path / "conductor").exists()


def test_steps_of_ones_own(ckpt: Ckpt, checkout: Checkout) -> None:
    checkout.write(
        "gitckpt.toml",
        '[steps.docs]\nmirror = "{track}.json"\n[[steps.docs.steps]]\nname = "WRITE"\n',
    )
    assert ckpt("step", "start", "WRITE", "--track", "t", "--graph", "docs", at=checkout).code == 0
    assert json.loads((checkout.path / "t.json").read_text())["loop_state"]["graph"] == "docs"
