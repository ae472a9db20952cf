"""Of very many checkpoints, history is walked in lots and refs are listed in parts: what is found stays the same, word for word."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gitckpt.git.files import ref_files
from gitckpt.git.graph import reachability
from gitckpt.git.repository import discover
from gitckpt.store.audit import inventory
from gitckpt.store.records import layout
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout
from tests.store.conftest import MakeStore, nth
from tests.store.verifying import look, told

DATES = ["@100 +0000", "@1700000000 +0000", "@1800000000 +0000", "@1900000000 +0000", "@2000000000 +0000"]


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
    there = sorted(ref for ref in checkout.refs(*layout.OWN) if not ref.startswith(layout.CHECKPOINTS) or dice.random() < 0.2)
    for ref in dice.sample(there, min(dice.choice([0, 0, 1, 3]), len(there))):
        checkout.git("update-ref", "-d", ref)
    objects = sorted(checkout.path.glob(".git/objects/??/*"))
    for path in dice.sample(objects, dice.choice([0, 1, 1, 2])):
        path.unlink()


@pytest.mark.long
@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_stays_the_same(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, seed: int
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
            patch.setattr(ref_files, "_LARGE", 0)
            for lot, end in ((1, 1), (2, 1), (3, 2), (5, 5)):
                patch.setattr(reachability, "LOT", lot)
                patch.setattr(reachability, "END", end)
                again = look(main_checkout)
                assert (told(again), again) == (told(whole), whole)


def test_refs_in_parts(make_store: MakeStore, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other tools are left out, and a broken one is told once."""
    store = make_store(main_checkout)
    for _ in range(4):
        store.save("work-partial")
    main_checkout.git("update-ref", "refs/checkpoints/session/1", "HEAD")
    main_checkout.git("pack-refs", "--all")
    broken = Path(main_checkout.path, ".git/refs/checkpoints/0a1b2c3d-0000-4000-8000-00000000000f")
    broken.parent.mkdir(parents=True, exist_ok=True)
    broken.write_bytes(b"")
    repository = discover(str(main_checkout.path))
    seen: list[tuple[str, str, str]] = []
    whole = inventory.list_refs(repository, lambda *one: seen.append(one))
    monkeypatch.setattr(ref_files, "_LARGE", 0)
    parts: list[tuple[str, str, str]] = []
    again = inventory.list_refs(repository, lambda *one: parts.append(one))
    assert parts == [one for one in seen if "session" not in one[1]]
    assert [flaw.finding for flaw in inventory.broken(repository, again.complaint)] == [
        flaw.finding for flaw in inventory.broken(repository, whole.complaint)
    ]
    assert len(inventory.broken(repository, again.complaint)) == 1


def test_a_listing_in_parts(plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        plain.record("plan-complete", {})
    main_checkout.git("update-ref", "refs/checkpoints/session/1", "HEAD")
    main_checkout.git("update-ref", f"refs/checkpoints/{nth(9)}", "HEAD")
    main_checkout.git("pack-refs", "--all")
    whole = plain.list(), plain.problems()
    plain.write_notes()
    plain.close()
    monkeypatch.setattr(ref_files, "_LARGE", 0)
    for path in main_checkout.path.glob(".git/ckpt/index.sqlite*"):
        path.unlink()
    assert (plain.list(), plain.problems()) == whole
    assert (len(whole[0]), len(whole[1])) == (4, 1)


def test_a_ref_in_the_place_of_all_of_them(main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    main_checkout.git("update-ref", "refs/checkpoints", "HEAD")
    main_checkout.git("pack-refs", "--all")
    repository = discover(str(main_checkout.path))
    assert inventory.list_refs(repository).barring == ["refs/checkpoints"]
    monkeypatch.setattr(ref_files, "_LARGE", 0)
    assert inventory.list_refs(repository).barring == ["refs/checkpoints"]
