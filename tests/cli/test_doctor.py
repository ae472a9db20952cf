"""`git ckpt doctor` recommends settings of git for a large worktree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitckpt.store.audit import doctor
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout, git_program

CACHE = (
    "git status reads each directory of a worktree with 12,000 files; to let git remember "
    "untracked files: git update-index --test-untracked-cache && git config core.untrackedCache "
    "true"
)
MONITOR = (
    "git status looks at each of 12,000 files; to let a process of git watch them: git config "
    "core.fsmonitor true"
)


@pytest.fixture
def large(main_checkout: Checkout, ckpt: Ckpt) -> Checkout:
    """Return a healthy repository with 12,000 files in its index."""
    oid = main_checkout.git("hash-object", "-w", "--stdin", data="x\n")
    main_checkout.git("read-tree", "--empty")
    lines = (f"100644 {oid} 0\tdirectory/file {number}" for number in range(12_000))
    main_checkout.git("update-index", "--index-info", data="\n".join(lines))
    main_checkout.git("commit", "--quiet", "-m", "many files")
    assert ckpt("init", at=main_checkout).code == 0
    return main_checkout


@pytest.fixture
def watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let git say that it can watch files, as it does on some systems."""
    git = tmp_path / "watching git"
    script = "case \" $* \" in *' --build-options '*) echo 'feature: fsmonitor--daemon';; esac"
    git.write_text(f"#!/bin/sh\n{script}\nexec '{git_program()}' \"$@\"\n")
    git.chmod(0o755)
    monkeypatch.setenv("GITCKPT_GIT", str(git))


@pytest.mark.long
@pytest.mark.usefixtures("watching")
def test_it_recommends_what_is_not_set(large: Checkout, ckpt: Ckpt) -> None:
    """It is a remark: nothing is wrong."""
    done = ckpt("doctor", at=large)
    assert (done.code, done.err) == (0, f"{CACHE}\n{MONITOR}\n")
    assert done.out.splitlines()[-1] == "nothing is wrong"
    document = json.loads(ckpt("doctor", "--json", at=large).out)
    assert (document["findings"], document["advice"]) == ([], [CACHE, MONITOR])
    assert ckpt("--quiet", "doctor", at=large).err == ""
    large.git("config", "core.untrackedCache", "true")
    assert ckpt("doctor", at=large).err == f"{MONITOR}\n"
    large.git("config", "core.fsmonitor", "true")
    assert ckpt("doctor", at=large).err == ""


@pytest.mark.usefixtures("watching")
@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        (["core.untrackedCache=false"], [MONITOR]),
        (["feature.manyFiles=true"], [MONITOR]),
        (["feature.manyFiles=false"], [CACHE, MONITOR]),
        (["core.fsmonitor=false"], [CACHE]),
        (["core.fsmonitor=/bin/true", "core.untrackedCache=keep"], []),
    ],
)
def test_a_decision_of_the_user_stands(
    large: Checkout, ckpt: Ckpt, settings: list[str], advice: list[str]
) -> None:
    for setting in settings:
        large.git("config", *setting.split("="))
    assert ckpt("doctor", at=large).err.splitlines() == advice


def test_only_for_a_git_that_can_watch(large: Checkout, ckpt: Ckpt) -> None:
    can_watch = "fsmonitor--daemon" in large.git("version", "--build-options")
    expected = [CACHE, MONITOR] if can_watch else [CACHE]
    assert ckpt("doctor", at=large).err.splitlines() == expected


def test_an_index_that_has_the_cache_needs_no_setting(large: Checkout, ckpt: Ckpt) -> None:
    large.git("update-index", "--force-untracked-cache")
    assert "untrackedCache" not in ckpt("doctor", at=large).err


def test_not_for_a_few_files(large: Checkout, ckpt: Ckpt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LARGE", 12_001)
    assert ckpt("doctor", at=large).err == ""


def test_not_for_an_index_that_is_damaged_or_missing(large: Checkout, ckpt: Ckpt) -> None:
    (large.path / ".git/index").write_bytes(b"no index of git")
    assert ckpt("doctor", at=large).err == ""
    (large.path / ".git/index").unlink()
    assert ckpt("doctor", at=large).err == ""
