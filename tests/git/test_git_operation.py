"""The commits that an operation in progress needs, however many it names."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator

import pytest

from gitckpt.git.objects.plumbing import Plumbing
from gitckpt.git.repository import Repository, discover
from gitckpt.git.worktree import operation
from tests.conftest import Checkout


@pytest.fixture
def repository(main_checkout: Checkout) -> Iterator[Repository]:
    opened = discover(str(main_checkout.path))
    yield opened
    opened.close()


def imported(checkout: Checkout, parents: list[list[int]]) -> list[str]:
    """Makes commits, each with those of the ones before that are its parents, and returns their oids."""
    lines = []
    for number, above in enumerate(parents):
        lines += [f"commit refs/heads/c{number if not above else above[0]}\nmark :{number + 1}"]
        lines += [f"committer a <a@example.com> {1_700_000_000 + number} +0000\ndata 0\n"]
        lines += [f"{'merge' if at else 'from'} :{parent + 1}" for at, parent in enumerate(above)]
    checkout.git("fast-import", "--quiet", "--force", "--export-marks=../marks", data="\n".join(lines) + "\n")
    marks = dict(line.split() for line in (checkout.path.parent / "marks").read_text().splitlines())
    return [marks[f":{number + 1}"] for number in range(len(parents))]


def test_a_rebase_of_more_commits_than_a_command_takes(repository: Repository, main_checkout: Checkout) -> None:
    commits = imported(main_checkout, [[number - 1] if number else [] for number in range(6000)])
    todo = {operation.INSTRUCTIONS: "".join(f"pick {oid} x\n" for oid in commits).encode()}
    before = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, before[1]))  # a quarter of it is what a command takes
    try:
        kept = operation.holder_of(repository, Plumbing(repository), todo, main_checkout.head())
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)
    assert main_checkout.git("merge-base", "--is-ancestor", commits[-1], str(kept)) == ""


@pytest.mark.parametrize("seed", range(10))
def test_those_to_which_no_other_leads_are_the_same_as_git_says(
    repository: Repository, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    history = [draw.sample(range(number), min(number, draw.choice([0, 1, 1, 1, 2]))) for number in range(30)]
    some = draw.sample(imported(main_checkout, history), 12)
    of_few = operation._independent(repository, some)
    monkeypatch.setattr(operation, "_FEW", 0)
    assert operation._independent(repository, some) == sorted(of_few)
