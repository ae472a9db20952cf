"""`git ckpt remove --rewritten` works after `git filter-repo`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import planted
from tests.cli.conftest import Ckpt
from tests.conftest import Checkout
from tests.planted import plant

Save = Callable[..., str]


@pytest.fixture
def rewritten(save: Save, checkout: Checkout) -> tuple[str, str]:
    """Save two checkpoints, the first one at a commit that was rewritten."""
    checkout.write("new", "1\n")
    first = save(checkout)
    place = checkout.main / ".git/filter-repo"
    place.mkdir()
    commit = checkout.git("rev-parse", "HEAD")
    other = checkout.commit("other")
    lines = [
        "old                                      new",
        f"{commit} {'0' * 40}",
        f"{other} {other}",
    ]
    (place / "commit-map").write_text("\n".join(lines) + "\n")
    return first, save(checkout)


def ids(ckpt: Ckpt, checkout: Checkout) -> list[str]:
    return [line.partition("\t")[0] for line in ckpt("list", at=checkout).out.splitlines()]


def test_nothing_goes_unasked_where_nobody_can_be_asked(
    ckpt: Ckpt, checkout: Checkout, rewritten: tuple[str, str]
) -> None:
    done = ckpt("remove", "--rewritten", at=checkout)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"{rewritten[0]}  ")
    assert "hint: to remove them: git ckpt remove --rewritten --force" in done.err
    assert ids(ckpt, checkout) == [*reversed(rewritten)]


@pytest.mark.parametrize("answer", ["y", "", None])
def test_a_person_is_shown_them_and_asked(
    ckpt: Ckpt,
    checkout: Checkout,
    rewritten: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str | None,
) -> None:
    asked: list[list[str]] = []

    def ask(question: str, *, intro: list[str]) -> str | None:
        asked.append([question, *intro])
        return answer

    plant(monkeypatch, planted.MAY_ASK_USER, lambda: True)
    plant(monkeypatch, planted.ASK_USER, ask)
    done = ckpt("remove", "--rewritten", at=checkout)
    assert asked[0][0] == "Remove 1 checkpoint? [y/N] "
    assert asked[0][1].startswith(rewritten[0])
    assert (done.code, done.out) == (0, f"{rewritten[0]}\n" if answer == "y" else "")
    assert ids(ckpt, checkout) == ([rewritten[1]] if answer == "y" else [*reversed(rewritten)])


def test_force_does_not_ask_and_a_run_goes_as_a_whole(
    ckpt: Ckpt, checkout: Checkout, rewritten: tuple[str, str]
) -> None:
    (checkout.main / ".git/filter-repo/commit-map").write_text(
        f"{checkout.git('rev-parse', 'HEAD')} {'0' * 40}\n"
    )
    assert ckpt("start", "hand", at=checkout).code == 0
    done = ckpt("remove", "--rewritten", "--force", at=checkout)
    assert done.code == 0
    assert ids(ckpt, checkout) == [rewritten[0]]
    assert ckpt("runs", at=checkout).out == ""
    assert ckpt("remove", "--rewritten", at=checkout).code == 0


def test_it_is_said_what_is_meant(ckpt: Ckpt, checkout: Checkout) -> None:
    assert ckpt("remove", at=checkout).code == 2
    assert ckpt("remove", "--rewritten", "latest", at=checkout).code == 2
