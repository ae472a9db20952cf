"""Control groups of what a driver starts: made where that is ours to do, found again, and removed once nobody is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitckpt.durable.command import cgroup
from tests.durable.cgroups import has_groups


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    """A group of its own."""
    made = cgroup.make("a-run", "7", repository(tmp_path))
    assert made is not None
    yield made
    cgroup.kill(made, set())
    cgroup.remove(made)


def repository(directory: Path) -> str:
    status = directory.stat()
    return f"{status.st_dev}:{status.st_ino}"


def daemon(place: str) -> int:
    """Starts a process in a group that has neither parent nor environment, and returns its number."""
    text = f"echo $$ >{place}/cgroup.procs; setsid env -i sh -c 'sleep 60 >/dev/null & echo $!'"
    return int(subprocess.run(["sh", "-c", text], stdout=subprocess.PIPE, check=True).stdout)


@has_groups
class TestAGroup:
    def test_holds_whoever_is_started_in_it_until_the_end(self, place: str, tmp_path: Path) -> None:
        pid = daemon(place)
        assert cgroup.members(place) == {pid}
        cgroup.remove(place)
        assert os.path.isdir(place)
        cgroup.kill(place, set())
        while cgroup.members(place):
            pass
        cgroup.remove(place)
        assert not os.path.exists(place)

    def test_holds_who_is_in_one_below(self, place: str) -> None:
        below = os.path.join(place, "below")
        os.mkdir(below)
        pid = daemon(below)
        assert cgroup.members(place) == {pid}
        cgroup.kill(place, set())
        while cgroup.members(place):
            pass
        cgroup.remove(place)
        assert not os.path.exists(place)

    def test_is_found_by_run_repository_and_token(self, place: str, tmp_path: Path) -> None:
        def found(run: str, of: str, token: int) -> list[str]:
            return cgroup.find(run, of, token.__eq__)

        assert found("a-run", repository(tmp_path), 7) == [place]
        for words in (("a-run", repository(tmp_path), 8), ("a", repository(tmp_path), 7), ("a-run", "0:0", 7)):
            assert found(*words) == []

    def test_of_somebody_else_is_none_of_ours(self, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1 + os.getuid())
        assert cgroup.find("a-run", repository(tmp_path), lambda _: True) == []
        assert cgroup.make("a-run", "8", repository(tmp_path)) is None

    def test_goes_with_the_last_one_who_leaves(self, tmp_path: Path) -> None:
        made = cgroup.make("a-run", "7", repository(tmp_path))
        pid = os.fork()
        if not pid:
            joined = made is not None and cgroup.join(made)
            cgroup.leave(made or "")
            os._exit(0 if joined else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert cgroup.find("a-run", repository(tmp_path), lambda _: True) == []

    def test_that_is_there_is_taken(self, place: str, tmp_path: Path) -> None:
        assert cgroup.make("a-run", "7", repository(tmp_path)) == place

    def test_is_not_killed_with_whoever_is_to_be_spared(self, place: str) -> None:
        pid = os.fork()
        if not pid:
            joined = cgroup.join(place)
            cgroup.kill(place, {os.getpid()})
            os._exit(0 if joined and os.getpid() in cgroup.members(place) else 1)
        assert os.waitpid(pid, 0)[1] == 0

    @pytest.mark.parametrize("is_delegated", [False, True])
    def test_is_made_beneath_systemd_where_that_has_delegated_one(
        self, is_delegated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cgroup, "_SYSTEMD", str(tmp_path))
        monkeypatch.setattr(cgroup, "_attribute", lambda _, name: b"1" if is_delegated and name == "user.delegate" else b"")
        made = cgroup.make("a-run", "7", repository(tmp_path))
        assert (made is not None) == is_delegated
        if made is not None:
            cgroup.remove(made)

    def test_with_a_name_that_is_too_long_is_not_made(self, tmp_path: Path) -> None:
        assert cgroup.make("x" * 255, "7", repository(tmp_path)) is None


MOUNT = "41 31 0:38 {root} {mount} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
OTHER = "22 20 0:5 / /proc rw,relatime - proc proc rw\n40 31 0:37 / {mount} rw - cgroup cgroup rw,pids\n"


class TestWhereItIsMade:
    @pytest.mark.parametrize(
        ("own", "root", "expected"),
        [
            ("9:pids:/x\n0::/a/b\n", "/", "a/b"),
            ("0::/\n", "/", ""),
            ("0::/a/b\n", "/a", "b"),
            ("0::/a\n", "/a", ""),
            ("0::/ab\n", "/a", None),
            ("0::/../x\n", "/", None),
            ("9:pids:/x\n", "/", None),
            ("", "/", None),
        ],
    )
    def test_by_what_proc_says(self, own: str, root: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "self").write_text(own)
        (tmp_path / "mounts").write_text(OTHER.format(mount=tmp_path / "v1") + MOUNT.format(root=root, mount=tmp_path / "v2"))
        monkeypatch.setattr(cgroup, "_SELF", str(tmp_path / "self"))
        monkeypatch.setattr(cgroup, "_MOUNTS", str(tmp_path / "mounts"))
        monkeypatch.setattr(cgroup, "_SYSTEMD", str(tmp_path / "nowhere"))
        monkeypatch.setattr(sys, "platform", "linux")
        place = tmp_path / "v2" / (expected or "")
        place.mkdir(parents=True)
        made = cgroup.make("a-run", "7", "1:2")
        assert made == (None if expected is None else str(place / "gitckpt.1-2.a-run.7"))
        assert cgroup.find("a-run", "1:2", lambda _: True) == ([] if made is None else [made])

    def test_nowhere_without_proc(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("_SELF", "_MOUNTS"):
            monkeypatch.setattr(cgroup, name, str(tmp_path / "nowhere"))
        assert cgroup.make("a-run", "7", "1:2") is None
        assert cgroup.find("a-run", "1:2", lambda _: True) == []
