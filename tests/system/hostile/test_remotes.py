"""A plain push sends no checkpoint, or `init` and `doctor` report the remote."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gitckpt import Store
from tests import forked
from tests.conftest import Checkout

OURS = ("refs/checkpoints", "refs/ckpt", "refs/keep", "refs/notes")


@pytest.fixture
def bare(tmp_path: Path, main_checkout: Checkout) -> Path:
    """A bare repository beside one that has checkpoints of all kinds."""
    main_checkout.git("init", "--quiet", "--bare", str(tmp_path / "bare"))
    with Store.open(main_checkout.path) as store:
        main_checkout.write("README", "changed\n")
        store.record("a-complete", start="run", worktree=store.capture())
    assert main_checkout.git("for-each-ref", *OURS)
    return tmp_path / "bare"


def arrived(bare: Path) -> list[str]:
    listed = subprocess.run(
        ["git", "-C", str(bare), "for-each-ref", "--format=%(refname)", *OURS],
        capture_output=True,
        check=True,
        text=True,
    )
    return listed.stdout.split()


def codes(checkout: Checkout) -> list[tuple[str, str]]:
    with Store.open(checkout.path) as store:
        return [
            (finding.code, finding.object)
            for finding in store.examine().findings
            if finding.code == "remote-mirrors"
        ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "how", [["--all"], ["--tags"], ["origin", "main"], ["--follow-tags"], ["-u", "origin", "HEAD"]]
)
@pytest.mark.parametrize("default", ["simple", "matching", "current", "upstream"])
def test_no_plain_push_sends_a_checkpoint(
    main_checkout: Checkout, bare: Path, how: list[str], default: str
) -> None:
    main_checkout.git("remote", "add", "origin", str(bare))
    main_checkout.git("config", "push.default", default)
    main_checkout.git("push", "--quiet", "-u", "origin", "main")
    main_checkout.git("push", "--quiet", *how)
    assert arrived(bare) == []
    assert codes(main_checkout) == []


MIRRORS = {
    "mirror": ([["remote", "add", "--mirror=push", "origin", "BARE"]], "remote.origin.mirror"),
    "push": (
        [["remote", "add", "origin", "BARE"], ["config", "remote.origin.push", "+refs/*:refs/*"]],
        "remote.origin.push",
    ),
    "ours": (
        [["remote", "add", "origin", "BARE"], ["config", "remote.origin.push", "refs/ckpt/*"]],
        "remote.origin.push",
    ),
    "named": ([["remote", "add", "--mirror=push", "a 'b' c", "BARE"]], "remote.a 'b' c.mirror"),
}


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", MIRRORS)
def test_a_mirror_is_told_of_and_cured(main_checkout: Checkout, bare: Path, kind: str) -> None:
    calls, place = MIRRORS[kind]
    for words in calls:
        if kind == "named":
            main_checkout.git("config", "remote.a 'b' c.url", str(bare))
            main_checkout.git("config", "remote.a 'b' c.mirror", "true")
        else:
            main_checkout.git(*(word.replace("BARE", str(bare)) for word in words))
    remote = place.removeprefix("remote.").rpartition(".")[0]
    main_checkout.git("push", "--quiet", remote)
    assert arrived(bare)
    assert codes(main_checkout) == [("remote-mirrors", place)]
    told = forked.git_ckpt("doctor", directory=main_checkout.path)
    assert f"remote-mirrors: {place}: " in told.out
    assert place in forked.git_ckpt("init", directory=main_checkout.path).err
    cure = next(
        line for line in told.out.splitlines() if "cure: git config --unset-all" in line
    ).partition("cure: ")[2]
    subprocess.run(["sh", "-c", cure], cwd=main_checkout.path, check=True)
    assert codes(main_checkout) == []
    for ref in arrived(bare):
        subprocess.run(["git", "-C", str(bare), "update-ref", "-d", ref], check=True)
    main_checkout.git("push", "--quiet", remote)
    assert arrived(bare) == []


def test_a_clone_that_is_a_mirror_is_told_of(
    main_checkout: Checkout, bare: Path, tmp_path: Path
) -> None:
    main_checkout.git("push", "--quiet", str(bare), "main")
    main_checkout.git("clone", "--quiet", "--mirror", str(bare), str(tmp_path / "clone"))
    assert codes(Checkout(tmp_path / "clone")) == [
        ("remote-mirrors", "remote.origin.mirror"),
        ("remote-mirrors", "remote.origin.fetch"),
    ]


def test_what_is_no_mirror_by_its_setting_is_none(main_checkout: Checkout) -> None:
    main_checkout.git("config", "remote.origin.mirror", "")
    assert main_checkout.git("config", "--type=bool", "remote.origin.mirror") == "false"
    assert codes(main_checkout) == []


@pytest.mark.parametrize(
    "spec",
    [
        "refs/heads/*:refs/heads/*",
        "+refs/heads/*:refs/remotes/origin/*",
        "HEAD",
        ":",
        "refs/notes/commits",
    ],
)
def test_what_sends_no_checkpoint_is_none(main_checkout: Checkout, spec: str) -> None:
    main_checkout.git("config", "remote.origin.push", spec)
    main_checkout.git("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    assert codes(main_checkout) == []
