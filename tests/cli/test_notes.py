"""`git ckpt notes` writes the pending notes that `git log` shows."""

from __future__ import annotations

import json
import shutil

import pytest

from tests import planted
from tests.cli.conftest import Ckpt, Outcome
from tests.conftest import Checkout
from tests.planted import plant


def shown(checkout: Checkout) -> list[str]:
    """Return the first word of each of HEAD's notes in `git log`."""
    out = checkout.git("log", "-1", "--notes=checkpoints", "--format=%N")
    return [line.split(" ")[0] for line in out.splitlines() if line]


def save(ckpt: Ckpt, checkout: Checkout) -> str:
    return ckpt("save", at=checkout).out.strip()


def found(ckpt: Ckpt, checkout: Checkout) -> list[str]:
    """Return the ids of HEAD's checkpoints, newest first."""
    return [
        one["id"]
        for one in json.loads(ckpt("list", "--commit", "HEAD", "--json", at=checkout).out)[
            "checkpoints"
        ]
    ]


def test_that_none_waits(ckpt: Ckpt, main_checkout: Checkout) -> None:
    before = main_checkout.fingerprint()
    assert ckpt("notes", at=main_checkout) == Outcome(0, "", "no note is pending\n")
    assert main_checkout.fingerprint() == before
    assert ckpt("notes", "all", at=main_checkout).code == 2


def test_the_first_is_there_at_once_and_the_others_when_asked_for(
    ckpt: Ckpt, checkout: Checkout
) -> None:
    first = save(ckpt, checkout)
    assert shown(checkout) == [first]
    others = [save(ckpt, checkout) for _ in range(2)]
    assert shown(checkout) == [first]
    assert found(ckpt, checkout) == [*reversed(others), first]
    assert others[-1] in ckpt("show", "HEAD", at=checkout).out
    assert ckpt("verify", at=checkout).code == 0
    assert ckpt("notes", at=checkout) == Outcome(0, "", "the notes now list all new checkpoints\n")
    assert shown(checkout) == [first, *others]
    assert ckpt("notes", at=checkout) == Outcome(0, "", "no note is pending\n")
    ckpt("remove", first, at=checkout)
    assert shown(checkout) == others


def test_a_lock_in_the_way(
    ckpt: Ckpt, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, planted.LOCK_TIMEOUT_MS, 20)
    saved = [save(ckpt, main_checkout) for _ in range(2)]
    lock = main_checkout.path / ".git/refs/notes/checkpoints.lock"
    lock.touch()
    done = ckpt("notes", at=main_checkout)
    assert (done.code, str(lock) in done.err) == (11, True)
    assert ckpt("verify", at=main_checkout).code == 0
    lock.unlink()
    assert ckpt("notes", at=main_checkout).code == 0
    assert shown(main_checkout) == saved


def test_the_private_directory_may_go(ckpt: Ckpt, main_checkout: Checkout) -> None:
    save(ckpt, main_checkout)
    second = save(ckpt, main_checkout)
    shutil.rmtree(main_checkout.path / ".git/ckpt")
    assert ckpt("notes", at=main_checkout) == Outcome(0, "", "no note is pending\n")
    assert second in found(ckpt, main_checkout)
    assert ckpt("verify", "--repair", at=main_checkout).code == 0
    assert second in shown(main_checkout)
