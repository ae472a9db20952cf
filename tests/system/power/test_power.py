"""Acknowledged checkpoints survive a power cut, by a record of writes and flushes.

`./dev prove power` runs all scenarios.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import git_program
from tests.system.power import replay, scenarios
from tests.system.power.__main__ import instants
from tests.system.power.disk import Disk, NoDisk
from tests.system.power.scenarios import SCENARIOS, Acknowledged

NEVER = 10**9

needs_strace = pytest.mark.skipif(
    not replay.can_record(), reason="needs strace, and the right to use it"
)


@needs_strace
@pytest.mark.long
@pytest.mark.parametrize("name", ["save", "run", "remove"])
def test_what_was_acknowledged_is_on_the_disk(name: str, tmp_path: Path) -> None:
    env = scenarios.environment(tmp_path / "home", git_program())
    found = list(instants(SCENARIOS[name], tmp_path / "record", env, NEVER))
    assert [(moment, wrong) for moment, wrong in found if wrong] == []
    assert len(found) >= 2


def test_what_a_scenario_begins_with_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scenarios.fill(
        tmp_path, SCENARIOS["import"], scenarios.environment(tmp_path / "home", git_program())
    )
    assert capfd.readouterr().out == ""


@needs_strace
@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_cut_at_any_instant_leaves_whole_checkpoints(name: str, tmp_path: Path) -> None:
    env = scenarios.environment(tmp_path / "home", git_program())
    found = list(instants(SCENARIOS[name], tmp_path / "record", env, 29))
    assert [(moment, wrong) for moment, wrong in found if wrong] == []


@needs_strace
def test_what_git_alone_writes_is_lost(tmp_path: Path) -> None:
    """A replay loses the objects and refs that git does not flush."""
    env = scenarios.environment(tmp_path / "home", git_program())
    top = tmp_path / "top"
    top.mkdir()
    scenarios.fill(top, SCENARIOS["save"], env)
    project = top / scenarios.PROJECT_NAME
    played = replay.Replay(top, project)
    script = (
        "echo new >new && git add new && git commit -qm new && "
        'git update-ref refs/checkpoints/x "$(git rev-parse HEAD:new)"'
    )
    for call in replay.record(["sh", "-ec", script], tmp_path / "log", project, env):
        played.play(call)
    for names in (False, True):
        played.left(
            tmp_path / f"left-{names}",
            names=names,
            spared=[f"{scenarios.PROJECT_NAME}/.git/{name}" for name in scenarios.SPARED],
        )
    said = Acknowledged(there=["x"])
    lost, empty = (
        scenarios.flaws(tmp_path / f"left-{names}" / scenarios.PROJECT_NAME, said, env)
        for names in (False, True)
    )
    assert lost == ["x is gone"]
    assert empty[0] == "warning: ignoring broken ref refs/checkpoints/x"


@needs_strace
@pytest.mark.long
@pytest.mark.parametrize("name", ["save", "remove"])
def test_what_was_acknowledged_is_in_reftables_on_the_disk(
    name: str, newer_git: str, tmp_path: Path
) -> None:
    env = scenarios.environment(tmp_path / "home", newer_git) | {
        "GIT_DEFAULT_REF_FORMAT": "reftable",
        "GITCKPT_GIT": newer_git,
    }
    found = list(instants(SCENARIOS[name], tmp_path / "record", env, NEVER))
    assert [(moment, wrong) for moment, wrong in found if wrong] == []


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_disk_that_somebody_else_still_has_mounted_comes_back(tmp_path: Path) -> None:
    """A cut disk is usable though another process still has its file system mounted.

    Linux would mount the same file system again, which was shut down.
    """
    try:
        disk = Disk(tmp_path, lambda top: (top / "before").symlink_to("x"))
        disk.mount()
    except NoDisk as error:
        pytest.skip(f"no disk can be made here: {error}")
    other = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE
    )
    try:
        assert other.stdout is not None
        if other.stdout.read(1) != b"\n":
            pytest.skip("may not have mounts of its own")
        disk.commit()
        disk.cut()
        (disk.top / "after").write_text("x")
    finally:
        other.kill()
        other.communicate()
        disk.unmount()
