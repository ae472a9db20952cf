"""`git ckpt grep` searches the files of checkpoints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Ckpt
from tests.conftest import Checkout

Save = Callable[..., str]


@pytest.fixture
def saved(checkout: Checkout, save: Save) -> list[str]:
    """Save three checkpoints: of two files, of a change to one, of a new file."""
    checkout.write("src/app.py", "def find():\n    return 1\n")
    checkout.write("untracked", "a needle (1)\n")
    made = [save(checkout)]
    checkout.write("src/app.py", "def find():\n    return 2\n")
    made.append(save(checkout))
    checkout.write("other", "nothing\n")
    return [*made, save(checkout)]


def test_the_same_content_is_shown_once_with_the_newest_checkpoint(
    ckpt: Ckpt, checkout: Checkout, saved: list[str]
) -> None:
    assert ckpt("grep", "needle", at=checkout).out == (
        f"{saved[2]}:untracked:1: a needle (1)  (in 3 checkpoints)\n"
    )
    assert ckpt("grep", "return", "--", "src").out == (
        f"{saved[2]}:src/app.py:2:     return 2  (in 2 checkpoints)\n"
        f"{saved[0]}:src/app.py:2:     return 1\n"
    )
    assert ckpt("grep", "return", saved[0], "--", "src/app.py", "nowhere").out == (
        f"{saved[0]}:src/app.py:2:     return 1\n"
    )


def test_options_are_those_of_git_grep(ckpt: Ckpt, checkout: Checkout, saved: list[str]) -> None:
    first = saved[0]
    assert ckpt("grep", "NEEDLE", at=checkout).code == 1
    assert ckpt("grep", "-i", "-l", "NEEDLE", first).out == f"{first}:untracked\n"
    assert ckpt("grep", "-F", "needle (1)", first).code == 0
    assert ckpt("grep", "-E", "needle (1)", first).code == 1
    assert ckpt("grep", "-E", "needle [(]1", first).code == 0
    assert ckpt("grep", "-E", "(find|needle)", first).out.count("\n") == 2
    checkout.git("config", "grep.patternType", "fixed")
    assert ckpt("grep", "need.e", first).code == 0
    done = ckpt("grep", r"\(", first)
    assert (done.code, done.out) == (2, "")
    assert "Unmatched" in done.err
    assert ckpt("grep", "--", "-x").code == 2
    assert ckpt("grep", "x", "nowhere").code == 12


def test_hostile_names_and_binary_files(ckpt: Ckpt, checkout: Checkout, save: Save) -> None:
    checkout.write("a\nb:1:", "needle\n")
    checkout.write("binary", b"\0needle\n")
    checkout.write("-e", "needle\r\n")
    made = save(checkout)
    done = ckpt("grep", "needle", at=checkout)
    assert f"{made}:a\\nb:1::1: needle\n" in done.out
    assert f"{made}:binary: binary file matches\n" in done.out
    assert f"{made}:-e:1: needle" in done.out


def test_without_checkpoints(ckpt: Ckpt, main_checkout: Checkout) -> None:
    done = ckpt("grep", "x", at=main_checkout)
    assert (done.code, done.out) == (1, "")


def test_what_a_restore_replaced_is_found(ckpt: Ckpt, checkout: Checkout, saved: list[str]) -> None:
    checkout.write("other", "a late thought\n")
    ckpt("restore", saved[0], at=checkout)
    assert ":other:1: a late thought\n" in ckpt("grep", "late thought", at=checkout).out
