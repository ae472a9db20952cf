"""`operation` finds the commits that an operation in progress needs."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Iterator

import pytest

from gitckpt.git.objects.plumbing import PlumbingObjects
from gitckpt.git.repository import Repository, discover_repository
from gitckpt.git.worktree import operation
from tests.conftest import Checkout
from tests.damaging import place_of


@pytest.fixture
def repository(main_checkout: Checkout) -> Iterator[Repository]:
    opened = discover_repository(str(main_checkout.path))
    yield opened
    opened.close()


def imported(checkout: Checkout, parents: list[list[int]]) -> list[str]:
    """Create commits with earlier ones as parents; return their oids."""
    lines = []
    for number, above in enumerate(parents):
        lines += [f"commit refs/heads/c{number if not above else above[0]}\nmark :{number + 1}"]
        lines += [f"committer a <a@example.com> {1_700_000_000 + number} +0000\ndata 0\n"]
        lines += [f"{'merge' if at else 'from'} :{parent + 1}" for at, parent in enumerate(above)]
    loosely = ("-c", "fastimport.unpackLimit=1000")
    checkout.git(
        *loosely,
        "fast-import",
        "--quiet",
        "--force",
        "--export-marks=../marks",
        data="\n".join(lines) + "\n",
    )
    marks = dict(line.split() for line in (checkout.path.parent / "marks").read_text().splitlines())
    return [marks[f":{number + 1}"] for number in range(len(parents))]


@pytest.mark.long
def test_a_rebase_of_more_commits_than_a_command_takes(
    repository: Repository, main_checkout: Checkout
) -> None:
    commits = imported(main_checkout, [[number - 1] if number else [] for number in range(6000)])
    todo = {operation.INSTRUCTIONS: "".join(f"pick {oid} x\n" for oid in commits).encode()}
    before = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(
        resource.RLIMIT_STACK, (1 << 20, before[1])
    )  # arguments may fill a quarter of the stack
    try:
        kept = operation.write_keep_commit(
            repository, PlumbingObjects(repository), todo, main_checkout.head()
        )
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)
    assert main_checkout.git("merge-base", "--is-ancestor", commits[-1], str(kept)) == ""


def test_what_head_leads_to_is_not_walked(repository: Repository, main_checkout: Checkout) -> None:
    """HEAD may have a million commits, or lack an old one."""
    commits = imported(main_checkout, [[number - 1] if number else [] for number in range(300)])
    place_of(main_checkout, commits[20]).unlink()
    todo = {operation.INSTRUCTIONS: "".join(f"pick {oid} x\n" for oid in commits[150:]).encode()}
    kept = operation.write_keep_commit(repository, PlumbingObjects(repository), todo, commits[140])
    assert main_checkout.git("rev-parse", f"{kept}^1") == commits[-1]


@pytest.mark.parametrize("seed", range(10))
def test_those_are_kept_to_which_neither_head_nor_another_one_leads(
    repository: Repository, main_checkout: Checkout, seed: int
) -> None:
    draw = random.Random(seed)
    history = [
        draw.sample(range(number), min(number, draw.choice([0, 1, 1, 1, 2])))
        for number in range(30)
    ]
    *some, head = draw.sample(imported(main_checkout, history), 13)
    for at in (head, ""):
        beyond = [
            oid for oid in some if not at or main_checkout.git("rev-list", "-n1", oid, f"^{at}")
        ]
        wanted = main_checkout.git("merge-base", "--independent", *beyond).split() if beyond else []
        assert operation._find_tips(repository, set(some), at) == sorted(wanted)


@pytest.mark.parametrize("how", ["link", "garbage", "directory", "none"])
def test_the_map_of_commits_is_only_read_for_what_it_is(
    main_checkout: Checkout, repository: Repository, how: str
) -> None:
    place = main_checkout.path / ".git/filter-repo"
    place.mkdir()
    if how == "link":
        (place / "commit-map").symlink_to("/dev/zero")
    elif how == "garbage":
        lines = [
            b"old new",
            b"\xff\0",
            b"--help --version",
            b"HEAD main",
            f"{main_checkout.head()} ../../x".encode(),
            b"0" * 10_000,
        ]
        (place / "commit-map").write_bytes(b"\n".join(lines))
    elif how == "directory":
        os.mkdir(place / "commit-map")
    assert operation.read_filter_repo_map(repository) == {}
