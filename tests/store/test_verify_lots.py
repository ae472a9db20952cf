"""Of very many checkpoints, history is walked in lots: what is found stays the same, word for word."""

from __future__ import annotations

import random

import pytest

from gitckpt.git import graph
from gitckpt.store.records import ref_names
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout
from tests.store.verifying import look, told

DATES = [
    "@100 +0000",
    "@1700000000 +0000",
    "@1800000000 +0000",
    "@1900000000 +0000",
    "@2000000000 +0000",
]


def history(checkout: Checkout, store: Store, dice: random.Random) -> None:
    """Commits with one parent, two or none, whose clocks are wrong, and checkpoints of them in any order, some with a snapshot."""
    commits = [checkout.git("rev-parse", "HEAD")]
    for number in range(14):
        checkout.write(f"file-{dice.randrange(4)}", f"{number}\n")
        checkout.git("add", "--all")
        tree = checkout.git("write-tree")
        parents = dice.sample(commits, min(dice.choice([0, 1, 1, 1, 2]), len(commits)))
        of = [word for parent in parents for word in ("-p", parent)]
        date = dice.choice(DATES)
        setting = {"GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date}
        commits.append(checkout.git("commit-tree", *of, "-m", f"{number}", tree, env=setting))
    clock = [1_800_000_000_000_000]
    inside(store).clock = lambda: clock[0]
    for commit in dice.choices(commits, k=14):
        clock[0] += dice.choice([-5, 0, 1, 9]) * 1_000_000
        checkout.git("reset", "--quiet", "--hard", commit)
        if dice.random() < 0.4:
            checkout.write("new", f"{dice.random()}\n")
            store.save("work-partial")
        else:
            store.record("plan-complete", {"n": dice.random()})


def damage(checkout: Checkout, dice: random.Random) -> None:
    """Deletes refs, and objects of any kind."""
    there = sorted(
        ref
        for ref in checkout.refs(*ref_names.OWN)
        if not ref.startswith(ref_names.CHECKPOINTS) or dice.random() < 0.2
    )
    for ref in dice.sample(there, min(dice.choice([0, 0, 1, 3]), len(there))):
        checkout.git("update-ref", "-d", ref)
    objects = sorted(checkout.path.glob(".git/objects/??/*"))
    for path in dice.sample(objects, dice.choice([0, 1, 1, 2])):
        path.unlink()


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_stays_the_same(
    plain: Store,
    main_checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    seed: int,
) -> None:
    dice = random.Random(seed)
    history(main_checkout, plain, dice)
    plain.write_notes()
    plain.close()
    for _ in range(12 if request.config.getoption("--long") else 2):
        damage(main_checkout, dice)
        whole = look(main_checkout)
        main_checkout.git("pack-refs", "--all")
        with monkeypatch.context() as patch:
            for lot, end in ((1, 1), (2, 1), (3, 2), (5, 5)):
                patch.setattr(graph, "LOT", lot)
                patch.setattr(graph, "END", end)
                again = look(main_checkout)
                assert (told(again), again) == (told(whole), whole)
