"""Where in the packed refs the branches and the lines are that are kept: however many others there are."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gitckpt.git.files.reader import packed_between
from gitckpt.git.files.ref_files import plain as plainly_said
from gitckpt.git.repository import Repository
from gitckpt.store.records import abandoned
from gitckpt.store.store import Store, inside
from tests.conftest import Checkout

NAMES = {
    "all": ["refs/a", "refs/heads/a", "refs/heads/b/c", "refs/keep/ckpt-x/a", "refs/keep/ckpt/d", "refs/notes/e", "refs/tags/f"],
    "none of them": ["refs/checkpoints/a", "refs/ckpt/trees/a", "refs/notes/e"],
    "only before": ["refs/a", "refs/b"],
    "only after": ["refs/tags/a", "refs/tags/b"],
    "only them": ["refs/heads/a", "refs/keep/ckpt/d"],
    "nothing": [],
}


def between(repository: Repository, most: int) -> bytes | None:
    return packed_between(repository, abandoned._FROM, abandoned._TO, most)


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_lines_that_count(plain: Store, main_checkout: Checkout, names: list[str]) -> None:
    oid = main_checkout.head()
    lines = [f"{oid} {name}\n" + (f"^{oid}\n" if "tags" in name or name == "refs/heads/a" else "") for name in names]
    repository = inside(plain).repository
    Path(repository.common_dir, "packed-refs").write_text("# pack-refs with: peeled fully-peeled sorted \n" + "".join(lines))
    whole = between(repository, abandoned._WHOLE)
    most = 0
    if any(name.startswith(("refs/heads/", "refs/keep/ckpt/")) for name in names):
        assert between(repository, most) is None, "they are too many"
        most = len(whole or b"") - 1
    found = between(repository, most)
    assert found is not None
    assert [line for line in found.decode().splitlines() if not line.startswith("^")] == [
        f"{oid} {name}" for name in names if name.startswith(("refs/heads/", "refs/keep/"))
    ]


def test_one_that_is_not_sorted(plain: Store, main_checkout: Checkout) -> None:
    repository = inside(plain).repository
    Path(repository.common_dir, "packed-refs").write_text(f"# pack-refs with: peeled \n{main_checkout.head()} refs/heads/a\n")
    assert between(repository, 10) is None


def test_nothing_is_looked_at_again_that_has_not_changed(plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record of a run comes by: with a thousand branches that have checkpoints, it took thirty times as long."""
    for name in ("a", "below/b"):
        main_checkout.git("checkout", "--quiet", "-b", name, "main")
        main_checkout.commit(name)
        plain.record("a-complete", {})
    main_checkout.git("checkout", "--quiet", "main")
    plain.record("a-complete", {})
    refs = main_checkout.path / ".git" / "refs"
    long_ago = time.time() - 60
    for place in (refs / "heads", refs / "heads" / "below", main_checkout.path / ".git" / "packed-refs"):
        if place.exists():
            os.utime(place, (long_ago, long_ago))
    looked: list[str] = []
    real = plainly_said

    def plainly(repository: Repository, ref: str) -> str | None:
        looked.append(ref)
        return real(repository, ref)

    monkeypatch.setattr(abandoned, "plain", plainly)
    plain.record("a-complete", {})
    assert "refs/heads/below/b" in looked
    looked.clear()
    plain.record("a-complete", {})
    assert looked == []
    assert not abandoned.is_any(inside(plain).repository, but=main_checkout.head())
    gone = main_checkout.git("rev-parse", "below/b")
    main_checkout.git("branch", "--quiet", "-D", "below/b")
    plain.record("a-complete", {})
    assert main_checkout.git("rev-parse", f"refs/keep/ckpt/{gone}") != gone, "it lends no name any more"
