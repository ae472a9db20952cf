"""Copied repositories equal new ones of git; fingerprints show each change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gitckpt.git.repository import discover_repository
from tests.conftest import LINKED, Checkout, repository_of


def look(checkout: Checkout) -> dict[str, object]:
    """Return git's view of a repository and one of its worktrees."""
    git_dir = Path(checkout.git("rev-parse", "--absolute-git-dir"))
    top = str(checkout.main.parent)
    return {
        "refs": checkout.refs(),
        "log": checkout.git("reflog", "--all"),
        "config": checkout.git("config", "--local", "--list"),
        "worktrees": checkout.git("worktree", "list", "--porcelain").replace(top, ""),
        "index": checkout.git("ls-files", "--stage"),
        "changed": checkout.git("diff-files", "--raw"),
        "fsck": checkout.git("fsck", "--strict"),
        "kept": sorted(
            str(path.relative_to(git_dir)) for path in git_dir.rglob("*") if path.is_file()
        ),
    }


def test_a_copy_is_as_git_makes_it(
    checkout: Checkout, make_checkout: Callable[..., Checkout]
) -> None:
    made = make_checkout("made/project")
    made.commit("first", README="hello\n")
    if checkout.main != checkout.path:
        made.git("worktree", "add", "--quiet", "-b", "side", str(made.path.parent / LINKED))
        made = Checkout(made.path.parent / LINKED, made.path)
    assert look(checkout) == look(made)


@pytest.mark.parametrize(
    "options", [(), ("--object-format=sha256",), ("--bare",)], ids=["sha1", "sha256", "bare"]
)
def test_a_repository_is_the_one_that_discover_finds(
    make_checkout: Callable[..., Checkout], options: tuple[str, ...]
) -> None:
    made = make_checkout("a project", *options)
    if options != ("--bare",):
        made.commit("first", README="hello\n")
        made.git("worktree", "add", "--quiet", "-b", "side", str(made.path.parent / LINKED))
    for place in (
        made,
        *([Checkout(made.path.parent / LINKED, made.path)] if options != ("--bare",) else []),
    ):
        found, wanted = repository_of(place), discover_repository(str(place.path))
        assert [
            getattr(found, name) for name in ("git_dir", "common_dir", "worktree", "object_format")
        ] == [
            getattr(wanted, name) for name in ("git_dir", "common_dir", "worktree", "object_format")
        ]


def _pack(here: Checkout) -> None:
    here.git("update-ref", "refs/tags/packed", "HEAD")
    here.git("pack-refs", "--all")


def _edit_packed(here: Checkout) -> None:
    file = here.main / ".git/packed-refs"
    file.write_text(file.read_text().replace("refs/tags/packed", "refs/tags/parked"))


CHANGES: dict[str, Callable[[Checkout], object]] = {
    "a ref more": lambda here: here.git("update-ref", "refs/ckpt/one", "HEAD"),
    "a ref moved": lambda here: here.git("update-ref", "refs/tags/packed", "HEAD^{tree}"),
    "a ref less": lambda here: here.git("update-ref", "-d", "refs/tags/packed"),
    "a packed ref": _edit_packed,
    "a ref of the worktree": lambda here: here.git("update-ref", "refs/worktree/mine", "HEAD"),
    "a detached HEAD": lambda here: here.git("checkout", "--quiet", "--detach"),
    "the index": lambda here: here.git("rm", "--quiet", "--cached", "README"),
    "the configuration": lambda here: here.git("config", "ckpt.any", "thing"),
    "a file changed": lambda here: here.write("README", "hallo\n"),
    "a file more": lambda here: here.write("in/deep", ""),
    "a mode": lambda here: (here.path / "README").chmod(0o755),
    "a file less": lambda here: (here.path / "README").unlink(),
    "a worktree more": lambda here: here.git(
        "worktree", "add", "--quiet", "--detach", str(here.main.parent / "more")
    ),
    "a worktree locked": lambda here: here.git("worktree", "lock", str(here.main.parent / "other")),
    "a worktree gone": lambda here: (here.main.parent / "other/.git").unlink(),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", CHANGES)
def test_a_fingerprint_sees(checkout: Checkout, change: str) -> None:
    checkout.git("worktree", "add", "--quiet", "--detach", str(checkout.main.parent / "other"))
    _pack(checkout)
    before = checkout.fingerprint()
    assert checkout.fingerprint() == before
    CHANGES[change](checkout)
    assert checkout.fingerprint() != before


def test_a_fingerprint_is_the_same_of_packed_and_loose_refs(checkout: Checkout) -> None:
    before = checkout.fingerprint()
    checkout.git("pack-refs", "--all")
    assert checkout.fingerprint() == before


def test_a_fingerprint_sees_refs_in_tables(
    newer_git: str, make_checkout: Callable[..., Checkout]
) -> None:
    checkout = make_checkout("tables", "--ref-format=reftable")
    checkout.commit("first")
    before = checkout.fingerprint()
    checkout.git("update-ref", "refs/ckpt/one", "HEAD")
    assert checkout.fingerprint() != before
