"""`verify` names each invalid snapshot, and no command restores any part of one."""

from __future__ import annotations

import pytest

from gitckpt import Store
from tests import forked, planted
from tests.conftest import Checkout
from tests.planted import plant
from tests.store.audit.verifying import look, told
from tests.store.snapshot.test_capture_operations import two_sides
from tests.system.hostile.attacks import BAD
from tests.system.hostile.odd_snapshots import ODD, Maker

pytestmark = pytest.mark.long

REFUSING = ("diff {}", "restore --dry-run {}", "restore {}", "resume {} --into there")
OTHERS = (
    "list",
    "show {}",
    "doctor",
    "du",
    "expire --dry-run",
    "expire",
    "save -m x",
    "verify --contents",
)


LIMITS = {"RLIMIT_CPU": 20, "RLIMIT_AS": 600 << 20}


def limited(*words: str, at: Checkout) -> forked.Done:
    """Run a command with limits of time and memory."""
    return forked.git_ckpt(*words, directory=at.path, limits=LIMITS)


def made(here: Checkout, name: str) -> str:
    """Make a good checkpoint and an odd one; return the id of the good one."""
    with Store.open(here.path) as store:
        good = store.save("good-complete").id
    make, _ = ODD[name]
    odd = Maker(here)
    odd.checkpoint(make(odd))
    return good


def require_told(call: str, done: forked.Done) -> None:
    assert done.code in (0, 1, 14), f"{call}: {done.code} {done.err[:2000]}"
    assert "Traceback" not in done.err, done.err[:2000]
    assert len(done.err) < 5000, done.err[:500]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ODD)
def test_verify_names_it_and_remove_clears_it(main_checkout: Checkout, name: str) -> None:
    made(main_checkout, name)
    (finding,) = (each for each in look(main_checkout).findings if each.code == "snapshot-invalid")
    assert finding.object == "refs/checkpoints/" + BAD
    assert ODD[name][1] in finding.sentence
    assert (
        finding.cure == f"inspect the tree: git ls-tree refs/ckpt/trees/{BAD}; "
        f"remove the checkpoint: git ckpt remove {BAD}"
    )
    assert limited("remove", BAD, at=main_checkout).out == f"{BAD}\n"
    assert "snapshot-invalid" not in [code for code, *_ in told(look(main_checkout))]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ODD)
def test_no_command_brings_it_back_and_the_others_go_on(main_checkout: Checkout, name: str) -> None:
    good = made(main_checkout, name)
    for call in REFUSING:
        done = limited(*call.format(BAD).split(), at=main_checkout)
        require_told(call, done)
        if not call.startswith("diff"):
            assert done.code == 14, f"{call}: {done.err}"
    for call in OTHERS:
        done = limited(*call.format(BAD).split(), at=main_checkout)
        require_told(call, done)
        assert done.code in (
            (0,) if call.startswith(("list", "show", "du", "expire", "save")) else (0, 1)
        ), f"{call}: {done.err}"
        if call == "list":
            assert good in done.out
            assert BAD in done.out
    assert limited("restore", "--dry-run", good, at=main_checkout).code == 0


def test_trees_that_are_not_in_order_are_named(main_checkout: Checkout) -> None:
    odd = Maker(main_checkout)
    odd.checkpoint(
        {b"files": (b"40000", odd.tree((b"100644", b"b", odd.blob), (b"100644", b"a", odd.blob)))}
    )
    (sentence,) = (
        sentence for code, _, sentence in told(look(main_checkout)) if code == "snapshot-invalid"
    )
    assert sentence.endswith("the entries are not in the order of git")


def test_an_operation_that_is_more_than_a_reader_takes_is_left_out(
    main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_sides(main_checkout)
    main_checkout.git("merge", "theirs", ok=(1,))
    plant(monkeypatch, planted.OPERATION_SIZE, 10)
    with Store.open(main_checkout.path) as store:
        worktree = store.save("merging-partial").worktree
    assert worktree is not None
    assert (worktree.operation, worktree.dirty) == (None, True)
    assert [entry.path for entry in worktree.omitted] == [".git"]
    assert "snapshot-invalid" not in [code for code, *_ in told(look(main_checkout))]
