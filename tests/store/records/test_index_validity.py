"""However refs change, the index answers as a listing without an index does."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gitckpt import Checkpoint, Query, Store, Worktree
from gitckpt.git.files import refs_stat
from gitckpt.model.checkpoint import Submodule
from gitckpt.store.records import entry, index
from gitckpt.store.store import checkpoints_of_store
from tests.conftest import Checkout, git_program
from tests.store.conftest import MakeStore, nth

COUNT = 6
SETTLED = 0.02
"""In seconds: longer than a tick of the clock of file systems."""


class World:
    """A repository whose refs change in every way that git has, and in some others.

    Args:
        checkout: the repository.
        documents: for each checkpoint, the blobs of two documents.
    """

    def __init__(self, checkout: Checkout, documents: Sequence[tuple[str, str]]) -> None:
        self.checkout = checkout
        self.documents = documents
        self.other = checkout.main.parent / "other.git"
        self.backup = checkout.main.parent / "backup"
        checkout.git("clone", "--quiet", "--bare", str(checkout.main), str(self.other))
        for number, pair in enumerate(documents):
            for blob in pair:
                checkout.git(
                    "push", "--quiet", str(self.other), f"{blob}:refs/tags/{number}-{blob}"
                )

    def point(self, number: int, which: int) -> None:
        self.checkout.git(
            "update-ref",
            "--no-deref",
            f"refs/checkpoints/{nth(number + 1)}",
            self.documents[number][which],
        )

    def delete(self, number: int, which: int) -> None:
        del which
        self.checkout.git("update-ref", "--no-deref", "-d", f"refs/checkpoints/{nth(number + 1)}")

    def clear(self, number: int, which: int) -> None:
        del which
        lines = (f"delete refs/checkpoints/{nth(each + 1)}\n" for each in range(number, COUNT))
        self.checkout.git("update-ref", "--no-deref", "--stdin", data="".join(lines))

    def many(self, number: int, which: int) -> None:
        lines = (
            f"update refs/checkpoints/{nth(each + 1)} {self.documents[each][which]}\n"
            for each in range(number, COUNT)
        )
        self.checkout.git("update-ref", "--no-deref", "--stdin", data="".join(lines))

    def pack(self, number: int, which: int) -> None:
        del number
        self.checkout.git("pack-refs", "--all", *(["--no-prune"] if which else []))

    def collect(self, number: int, which: int) -> None:
        del number, which
        self.checkout.git("gc", "--quiet")

    def fetch(self, number: int, which: int) -> None:
        source = f"refs/tags/{number}-{self.documents[number][which]}"
        self.checkout.git(
            "fetch", "--quiet", str(self.other), f"+{source}:refs/checkpoints/{nth(number + 1)}"
        )

    def push_into(self, number: int, which: int) -> None:
        source = (
            f"+refs/tags/{number}-{self.documents[number][which]}:"
            f"refs/checkpoints/{nth(number + 1)}"
        )
        subprocess.run(
            [git_program(), "push", "--quiet", str(self.checkout.main), source],
            cwd=self.other,
            check=True,
        )

    def keep(self, number: int, which: int) -> None:
        del number, which
        shutil.rmtree(self.backup, ignore_errors=True)
        self._copy(self.checkout.main / ".git", self.backup)

    def bring_back(self, number: int, which: int) -> None:
        """Restore the refs from a backup, with the times of the files."""
        del number, which
        if self.backup.exists():
            git = self.checkout.main / ".git"
            shutil.rmtree(git / "refs/checkpoints", ignore_errors=True)
            (git / "packed-refs").unlink(missing_ok=True)
            self._copy(self.backup, git)

    def _copy(self, source: Path, to: Path) -> None:
        if (source / "refs/checkpoints").exists():
            shutil.copytree(source / "refs/checkpoints", to / "refs/checkpoints")
        else:
            to.mkdir(exist_ok=True)
        if (source / "packed-refs").exists():
            shutil.copy2(source / "packed-refs", to / "packed-refs")

    def write_over(self, number: int, which: int) -> None:
        """Write the backup into the existing files, as `cp` does."""
        del number, which
        packed = self.checkout.main / ".git/packed-refs"
        if (self.backup / "packed-refs").exists() and packed.exists():
            shutil.rmtree(packed.parent / "refs/checkpoints", ignore_errors=True)
            packed.write_bytes((self.backup / "packed-refs").read_bytes())

    def step_of_the_clock(self, number: int, which: int) -> None:
        """Give files the times that they have after a step of the clock."""
        del number
        git = self.checkout.main / ".git"
        now = time.time() + (1 if which else -1)
        for path in (
            git / "packed-refs",
            git / "refs/checkpoints",
            *(git / "refs/checkpoints").glob("*"),
        ):
            if path.exists():
                os.utime(path, (now, now))

    def foreign(self, number: int, which: int) -> None:
        self.checkout.git(
            "update-ref",
            "--no-deref",
            f"refs/checkpoints/session/{number}",
            self.documents[number][which],
        )

    def wait(self, number: int, which: int) -> None:
        del number, which
        time.sleep(SETTLED * 1.5)

    def there(self) -> set[tuple[str, str]]:
        """Return the checkpoints of a listing without an index."""
        listing = self.checkout.git(
            "for-each-ref", "--format=%(refname) %(objectname)", "refs/checkpoints/"
        ).splitlines()
        known = {
            f"refs/checkpoints/{nth(number + 1)}": pair
            for number, pair in enumerate(self.documents)
        }
        return {
            (ref.rpartition("/")[2], oid)
            for ref, _, oid in (line.partition(" ") for line in listing)
            if oid in known.get(ref, ())
        }


CHANGES: tuple[Callable[[World, int, int], None], ...] = (
    World.point,
    World.point,
    World.delete,
    World.clear,
    World.many,
    World.pack,
    World.collect,
    World.fetch,
    World.push_into,
    World.keep,
    World.bring_back,
    World.write_over,
    World.step_of_the_clock,
    World.foreign,
    World.wait,
    World.wait,
)


def documents_of(store: Store, checkout: Checkout) -> list[tuple[str, str]]:
    """Record checkpoints; return for each the blobs of two possible documents."""
    found = []
    for number in range(1, COUNT + 1):
        store.record("a-complete", {})
        first = checkout.git("rev-parse", f"refs/checkpoints/{nth(number)}")
        text = store.raw(nth(number)).decode().replace("a-complete", "z-failed")
        found.append((first, checkout.git("hash-object", "-w", "--stdin", data=text)))
    return found


@pytest.mark.long
@pytest.mark.sampled(6)
@pytest.mark.parametrize("ref_format", ["files", "reftable"])
@pytest.mark.parametrize("seed", range(3))
def test_an_answer_is_never_stale(
    main_checkout: Checkout,
    make_store: MakeStore,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    ref_format: str,
    seed: int,
) -> None:
    monkeypatch.setattr(refs_stat, "_SETTLED", int(SETTLED * 1e9))
    monkeypatch.setattr(refs_stat, "_FINELY_SETTLED", int(SETTLED * 1e9))
    if ref_format == "reftable":
        main_checkout.git(
            "-C",
            str(request.getfixturevalue("newer_git") and main_checkout.main),
            "refs",
            "migrate",
            "--ref-format=reftable",
        )
    chance = random.Random(seed)
    lasting = make_store(main_checkout)
    world = World(main_checkout, documents_of(lasting, main_checkout))
    told = []
    for _ in range(600 if request.config.getoption("--long") else 50):
        change, number, which = chance.choice(CHANGES), chance.randrange(COUNT), chance.randrange(2)
        told.append((change.__name__, number, which))
        if ref_format == "reftable" and change in (
            World.keep,
            World.bring_back,
            World.write_over,
            World.step_of_the_clock,
        ):
            continue
        change(world, number, which)
        for store in (lasting, make_store(main_checkout))[: chance.randrange(3)]:
            assert {(one.id, one.oid) for one in store.list()} == world.there(), told
            store.close() if store is not lasting else None


@pytest.mark.long
def test_git_is_asked_only_where_refs_have_changed(
    plain: Store, main_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refs_stat, "_SETTLED", int(SETTLED * 1e9))
    monkeypatch.setattr(refs_stat, "_FINELY_SETTLED", int(SETTLED * 1e9))
    asked: list[tuple[str, ...]] = []
    really = checkpoints_of_store(plain).refs.list_refs

    def counting(*patterns: str, **fields: str) -> bytes:
        asked.append(patterns)
        return really(*patterns, **fields)

    monkeypatch.setattr(checkpoints_of_store(plain).refs, "list_refs", counting)
    plain.record("a-complete", {})
    time.sleep(2 * SETTLED)

    def listings(change: Callable[[], object]) -> int:
        change()
        time.sleep(2 * SETTLED)
        asked.clear()
        for query in (Query(), Query(limit=1), Query(), Query(ids=[nth(1)])):
            plain.list(query)
        return len(asked)

    assert [
        listings(plain.list),
        listings(lambda: plain.record("b-complete", {})),
        listings(lambda: main_checkout.git("branch", "other")),
        listings(lambda: main_checkout.git("pack-refs", "--all")),
        listings(lambda: plain.record("c-complete", {})),
        listings(lambda: main_checkout.git("update-ref", "-d", f"refs/checkpoints/{nth(3)}")),
        listings(lambda: None),
    ] == [0, 1, 0, 1, 1, 1, 0]
    assert [one.id for one in plain.list()] == [nth(2), nth(1)]


def test_what_is_young_is_looked_at_again(plain: Store, main_checkout: Checkout) -> None:
    """Young packed refs are read again: two changes in one clock tick look alike."""
    plain.record("a-complete", {})
    main_checkout.git("pack-refs", "--all")
    # On a slow machine, more time may pass than counts as young.
    os.utime(main_checkout.path / ".git/packed-refs", (time.time() + 1,) * 2)
    state = refs_stat.read_refs_state(checkpoints_of_store(plain).repository, "refs/checkpoints")
    assert state.packed is None


def test_packed_refs_that_are_young_each_time_are_listed_each_time(
    plain: Store, main_checkout: Checkout
) -> None:
    """Packed refs that are always young are listed each time.

    Their stat data prove nothing, even where they equal the previous ones.
    """

    def listed() -> list[str]:
        os.utime(
            main_checkout.path / ".git/packed-refs", (time.time() + 3600,) * 2
        )  # as is one from the future
        return [one.id for one in plain.list()]

    for label in ("a-complete", "b-complete"):
        plain.record(label, {})
    main_checkout.git("pack-refs", "--all")
    assert listed() == [nth(2), nth(1)]
    main_checkout.git("update-ref", "-d", f"refs/checkpoints/{nth(1)}")
    assert listed() == [nth(2)]


def test_rows_are_made_anew_where_the_reader_is_another_one(plain: Store) -> None:
    """A change of what rows hold must raise `_READER` and update the digest here."""
    rich = Checkpoint(
        id=nth(1),
        label="add login-failed",
        timestamp="2026-11-21T20:15:00+01:00",
        git_sha="1" * 40,
        branch="main",
        trigger="phase",
        message="a\nb",
        agent="claude",
        run="20261121-201500-add-login",
        sequence=7,
        worktree=Worktree(
            dirty=True,
            tree="2" * 40,
            operation="rebase",
            submodules=(Submodule("lib", "3" * 40, nth(2), dirty=True),),
        ),
    )
    plainest = Checkpoint(
        id=nth(2),
        label="commit-complete",
        timestamp="2026-11-21T20:15:00.000000Z",
        git_sha="",
        trigger="post-commit",
    )
    rows = [entry.to_row(one, "4" * 40) for one in (rich, plainest)]
    found = hashlib.blake2b(repr(rows).encode(), digest_size=8).hexdigest()
    assert (index._READER, found) == (1, "bcefb0aa99db7308")
